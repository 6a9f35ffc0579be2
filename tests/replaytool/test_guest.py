# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tool says of a trace is what the module in a kernel counts."""
import random

import pytest

from . import traces

KEYS = ("read_hits", "read_misses", "write_hits", "write_misses", "fills", "bypass_sequential", "bypass_policy",
        "bypass_full", "bypass_mode", "bypass_partial")
# Direct I/O, one request after the other, as far apart as in the trace, or further.
PLAYER = """
import mmap, os, time
fd, buf = os.open("/dev/mapper/vol", os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, 1 << 20)
last = 0
for line in open("/tmp/trace"):
    us, direction, sector, count = line.split()
    time.sleep((int(us) - last) / 1e6)
    last = int(us)
    move = os.preadv if direction == "R" else os.pwritev
    move(fd, [memoryview(buf)[:int(count) * 512]], int(sector) * 512)
"""


def at(i):
    """The last page of a window of 256 KiB: each block is in a window of its own, even if the next is asked for, too."""
    return 2 * i * traces.WINDOW + traces.WINDOW - traces.PAGE


def requests(once, seed=1):
    """A popular part, read and written; then so many pages that are asked for once."""
    rng = random.Random(seed)
    for i in range(700):
        page = int(120 * rng.random() ** 2)
        yield i * 1000, rng.choice("RRW"), at(page), rng.choice((8, 8, 8, 16, 1))
    us = 1_000_000
    for i in range(once):
        # With time to make room, once there is none
        us += 80_000 if i > 270 else 1000
        yield us, "R", at(200 + i), 8
        yield us, "R", at(rng.randrange(40)), 8


# What is dirty is written back when there is time, and cannot be evicted before: nothing is evicted there.
@pytest.mark.parametrize("mode,policy,once,mib", [("writethrough", "c2q", 400, 32), ("writeback", "lru", 250, 96)])
def test_the_module_counts_the_same(replay, make_guest, disks, mode, policy, once, mib):
    text = traces.text(requests(once))
    c = replay.json(text, "--size", f"{mib}m", "--block-size", "64k", "--policy", policy, "--mode", mode)["caches"][0]
    guest = make_guest(disks=disks("ssd", 128, "hdd", 320), modprobe=["dm-hybrid"])
    guest.dm_create("cache", f"0 {c['device_size'] // 512} linear /dev/test/ssd 0")
    guest.run("hybridctl create vol --cache /dev/mapper/cache --origin /dev/test/hdd --block-size 64k "
              f"--policy {policy} --mode {mode} -y")

    def counted():
        words = guest.dm_status("vol").split()
        return {key: int(words[words.index(key) + 1]) for key in KEYS}

    assert not any(counted().values())
    guest.write_file("/tmp/trace", text)
    guest.write_file("/tmp/player", PLAYER)
    guest.run("python3 /tmp/player", timeout=120)
    assert (c["counters"]["evictions"] > 50) == (mib == 32)
    found = counted()
    # Room is made behind a flush: where the host's disk is busy, a page or two that is asked for once comes before.
    late = found.pop("bypass_full")
    assert late <= 3
    found["fills"] += late
    assert found == {key: c["counters"][key] for key in KEYS if key != "bypass_full"}
    assert not c["counters"]["bypass_full"]
