# SPDX-License-Identifier: GPL-2.0-or-later
"""Traces of block numbers: made by a seed, and recorded ones where there are any."""
import itertools
import os
import random
import subprocess
from array import array
from pathlib import Path

ACCESSES = 150_000
SECTORS = 8		# of a block of 4 KiB


def zipf(rng, blocks, n, skew=0.9):
    places = list(range(blocks))
    rng.shuffle(places)
    weights = list(itertools.accumulate((k + 1) ** -skew for k in range(blocks)))
    return rng.choices(places, cum_weights=weights, k=n)


def skewed(rng):
    return zipf(rng, 20_000, ACCESSES)


def loop(rng):
    """Larger than any of the caches."""
    return [n % 6_000 for n in range(ACCESSES)]


def scans(rng):
    """A backup now and then."""
    cold, out = itertools.count(1_000_000), []
    while len(out) < ACCESSES:
        out += zipf(rng, 6_000, 20_000, 1.0)
        out += itertools.islice(cold, 5_000)
    return out


def drift(rng):
    """What is popular today is not tomorrow."""
    return [b + 200 * (n // 3_000) for n, b in enumerate(zipf(rng, 8_000, ACCESSES, 0.8))]


def bursts(rng):
    """Most blocks are read twice, soon, and never again: the hits that Clock2Q+ does not count."""
    cold, out, late = itertools.count(1_000_000), zipf(rng, 8_000, ACCESSES // 2), []
    mixed = []
    for b in out:
        mixed.append(b)
        new = next(cold)
        mixed.append(new)
        late.append(new)
        if len(late) > rng.randrange(1, 30):
            mixed.append(late.pop(0))
    return mixed


def zigzag(rng):
    """There and back: the bad case of the small queues."""
    there = list(range(5_000))
    return list(itertools.islice(itertools.cycle(there + there[::-1]), ACCESSES))


MADE = {f.__name__: f for f in (skewed, loop, scans, drift, bursts, zigzag)}


def recorded():
    """{name: path} of what stands in $TRACES: text by zstd, "us R|W|? sector count" a line."""
    directory = os.environ.get("TRACES")
    return {p.name.split(".")[0]: p for p in sorted(Path(directory).glob("*.txt.zst"))} if directory else {}


def lines(path):
    text = subprocess.run(["zstd", "-dcq", path], capture_output=True, text=True, check=True).stdout
    return (line.split() for line in text.splitlines())


def read(path):
    for _, _, sector, count in lines(path):
        yield from range(int(sector) // SECTORS, (int(sector) + int(count) - 1) // SECTORS + 1)


def load(name):
    """The blocks of a trace, in order."""
    return array("Q", MADE[name](random.Random(name)) if name in MADE else read(recorded()[name]))
