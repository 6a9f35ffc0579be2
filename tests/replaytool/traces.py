# SPDX-License-Identifier: GPL-2.0-or-later
"""Traces made by seed: (us, direction, sector, count).  python3 traces.py NAME prints one of EXAMPLES."""
import bisect
import itertools
import random
import sys

PAGE = 8
WINDOW = 512


def text(requests) -> str:
    return "".join("{} {} {} {}\n".format(*r) for r in requests)


def zipf(n, blocks, seed=1, skew=0.9, unit=PAGE, writes=0.0, us=1000, direction=None):
    """Popular blocks lie anywhere; @unit: sectors of a block and of a request."""
    rng = random.Random(seed)
    weights = list(itertools.accumulate(1 / (i + 1) ** skew for i in range(blocks)))
    places = list(range(blocks))
    rng.shuffle(places)
    for i in range(n):
        at = places[bisect.bisect_left(weights, rng.random() * weights[-1])]
        yield i * us, direction or ("W" if rng.random() < writes else "R"), at * unit, unit


def loop(n, blocks, us=1000, start=0, unit=PAGE):
    for i in range(n):
        yield i * us, "R", start + i % blocks * unit, unit


def apart(requests, block=PAGE):
    """Each block in a window of 256 KiB of its own: nothing is filled beside it.  Requests end with their block."""
    for us, direction, sector, count in requests:
        number, at = divmod(sector, block)
        yield us, direction, number * max(block, WINDOW) + at, min(count, block - at)


def mixed(n, seed=1, sectors=1 << 22, us=500):
    """Reads and writes of any place and length, some of them flushed, hot spots and a scan."""
    rng = random.Random(seed)
    at = 0
    for i in range(n):
        kind = rng.random()
        count = rng.choice((1, 7, 8, 8, 8, 16, 64, 256, 1000))
        if kind < 0.1:
            sector, at = at, (at + count) % sectors
        elif kind < 0.7:
            sector = rng.randrange(sectors // 64) * 8
        else:
            sector = rng.randrange(sectors)
        yield i * us, rng.choice(("R", "R", "W", "WS", "WFS")), sector, count
        if rng.random() < 0.02:
            yield i * us, "FF", 0, 0


# What the curve is tested with: some thousand windows of 256 KiB each.
CURVES = {
    "zipf": lambda: zipf(30_000, 200_000, skew=0.7, writes=0.2),
    "large": lambda: zipf(10_000, 5_000, unit=128, writes=0.2),
    "loop": lambda: loop(40_000, 15_000, unit=64),
    "scan": lambda: sorted([*zipf(25_000, 100_000, skew=0.7), *loop(20_000, 20_000, unit=32,
                                                                   start=1 << 20)]),
}

EXAMPLES = {
    # Three hours of a small mail server: 2.5 GiB of which some is popular, a third writes.
    "mail": lambda: zipf(60_000, 160_000, unit=32, skew=0.9, writes=0.33, us=180_000),
    **CURVES,
}

if __name__ == "__main__":
    sys.stdout.write(text(EXAMPLES[sys.argv[1]]()))
