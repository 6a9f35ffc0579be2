#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The best that block placement alone could reach: some workloads, in caches that are only lists.

Such a cache has all of the SSD for blocks of 64 KiB. A read that misses brings in the missing blocks
of the aligned piece around it (64 KiB to 1 MiB). It takes the disk a seek and the transfer; nothing
else takes time. The cache first evicts blocks that it brought in and that were never read, then the
least recently read block. An oracle evicts the block that is used again last (Belady). Seeks and
transfers take as long as in dm-hybrid's own run, so `make bench` must have measured it before.
"""
import argparse
import heapq
import json
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import figures
import machine

SECTOR, BLOCK = 512, 65536
CAPACITY = 272 * 2**20 // BLOCK		# all of the SSD: there is no metadata
PIECES = (1, 2, 4, 8, 16)
NEVER = 1 << 60
# Workload, its phases in order (the last one counts), and the name of its goal
READS = {"zipf": (("1", "2", "3"), "zipf3"), "zoned": (("1", "2", "3"), "zoned3"),
         "oltp": (("data",), "oltp-data")}


@dataclass
class IO:
    write: bool
    block: int
    part: int		# first byte of the I/O within the block


def loads(work: str, seed: int) -> dict[str, list[str]]:
    """The options of each load that the script of a workload starts."""
    script = 'run() { echo "$@"; }; for word in fresh busy seconds say quiesce; do ' \
             'eval "$word() { :; }"; done; . "$0"'
    run = subprocess.run(["sh", "-c", script, machine.HERE / f"workloads/{work}.sh"], text=True,
                         env={"SEED": str(seed)}, stdout=subprocess.PIPE, check=True)
    words = [line.split() for line in run.stdout.splitlines()]
    return {phase: options for phase, *options in words}


def sequence(options: list[str], ios: int | None = None) -> list[IO]:
    """The I/Os of `load` with these options; the first @ios of a load that ends by time."""
    if ios:
        options = [o for o in options if not o.startswith("seconds=")] + [f"ios={ios}"]
    run = subprocess.run([machine.OUT / "sequence", *options], stdout=subprocess.PIPE, check=True,
                         text=True)
    found = []
    for line in run.stdout.splitlines():
        kind, at, _ = line.split()
        found.append(IO(kind == "w", int(at) // BLOCK, int(at) % BLOCK))
    return found


class Recent:
    """Evicts the oldest block that was never read; if there is none, the least recently read one."""

    def __init__(self, ios: list[IO]):
        self.read: OrderedDict[int, None] = OrderedDict()
        self.unread: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        return block in self.read or block in self.unread

    def use(self, block: int, now: int) -> None:
        self.unread.pop(block, None)
        self.read[block] = None
        self.read.move_to_end(block)

    def bring(self, block: int, now: int) -> None:
        self.unread[block] = None

    def evict(self) -> int | None:
        if len(self.read) + len(self.unread) <= CAPACITY:
            return None
        return (self.unread or self.read).popitem(last=False)[0]


class Oracle:
    """Evicts the block whose next use is farthest in the future."""

    def __init__(self, ios: list[IO]):
        self.uses: dict[int, list[int]] = {}
        for n in range(len(ios) - 1, -1, -1):
            self.uses.setdefault(ios[n].block, []).append(n)
        self.next: dict[int, int] = {}
        self.latest: list[tuple[int, int]] = []

    def __contains__(self, block: int) -> bool:
        return block in self.next

    def use(self, block: int, now: int) -> None:
        uses = self.uses.get(block, [])
        while uses and uses[-1] <= now:
            uses.pop()
        self.next[block] = uses[-1] if uses else NEVER
        heapq.heappush(self.latest, (-self.next[block], block))

    bring = use

    def evict(self) -> int | None:
        while len(self.next) > CAPACITY:
            when, block = heapq.heappop(self.latest)
            if self.next.get(block) == -when:
                del self.next[block]
                return block
        return None


@dataclass
class Disk:
    """Milliseconds."""
    seek: float
    block: float


def measured(stack: str, work: str, phase: str, seed: int) -> dict:
    path = machine.OUT / f"runs/{stack}.{work}.{seed}.json"
    if not path.exists():
        sys.exit(f"bounds: {path} is missing: run `make bench STACKS=\"disk limit hybrid\" SEED={seed}`")
    return json.loads(path.read_text())["phases"][phase]


def pace(work: str, phase: str, seed: int) -> Disk:
    """The time of a seek and of a block in dm-hybrid's run of the workload."""
    once = measured("disk", "reread", "1", seed)
    block = figures.delta(once, "hdd", "busy_ms") / figures.delta(once, "hdd", "rs") * BLOCK / SECTOR
    ours = measured("hybrid", work, phase, seed)
    moved = figures.delta(ours, "hdd", "rs") * SECTOR / BLOCK
    return Disk((figures.delta(ours, "hdd", "busy_ms") - moved * block) /
                figures.delta(ours, "hdd", "seeks"), block)


def reads_a_second(ios: list[IO], begin: int, seconds: float, cache, piece: int,
                   disk: Disk) -> tuple[float, int]:
    """Speed and seeks from I/O number @begin on, to the end or for @seconds (0: to the end)."""
    partly: dict[int, set[int]] = {}	# blocks of which only the written parts are cached
    seeks, ms = 0, 0.0
    for now, io in enumerate(ios):
        if now == begin:
            seeks, ms = 0, 0.0
        if seconds and ms >= seconds * 1000:
            break
        block, there = io.block, io.block in cache
        whole = there and block not in partly
        if io.write and not whole:
            partly.setdefault(block, set()).add(io.part)
        elif not io.write and not whole and io.part not in partly.get(block, ()):
            first = block - block % piece
            missing = [b for b in range(first, first + piece) if b not in cache or b in partly]
            for b in missing:
                partly.pop(b, None)
                if b not in cache:
                    cache.bring(b, now)
            seeks += 1
            ms += disk.seek + disk.block * len(missing)
        cache.use(block, now)
        while (gone := cache.evict()) is not None:
            partly.pop(gone, None)
    else:
        now += 1
    return (now - begin) / ms * 1000, seeks


def of_reads(work: str, seed: int) -> None:
    phases, name = READS[work]
    options = loads(work, seed)
    disk = pace(work, phases[-1], seed)
    seconds = next((float(o[8:]) for o in options[phases[-1]] if o.startswith("seconds=")), 0)
    ios: list[IO] = []
    for phase in phases:
        begin = len(ios)
        ios += sequence(options[phase], 50000 if seconds else None)
    print(f"{name}: a seek {disk.seek:.2f} ms, 64 KiB {disk.block:.2f} ms")
    for piece in PIECES:
        row = [reads_a_second(ios, begin, seconds, kind(ios), piece, disk)
               for kind in (Recent, Oracle)]
        print(f"  {piece * BLOCK // 1024:5} KiB  recent {row[0][0]:6,.0f} ({row[0][1]:,} seeks)"
              f"   oracle {row[1][0]:6,.0f} ({row[1][1]:,} seeks)")


def of_burst(seed: int) -> None:
    """The blocks that do not fit must be written back meanwhile: at best once, in ascending order."""
    ios = sequence(loads("burst", seed)["burst"])
    touched = len({io.block for io in ios})
    away = max(touched - CAPACITY, 0)
    begun, ended = measured("disk", "ascending", "drain", seed)["busy_ms"]
    fast = len(ios) / figures.iops(measured("limit", "burst", "burst", seed))
    at_best = len(ios) / (fast + away * (ended - begun) / len(ios) / 1000)
    print(f"burst: {len(ios):,} writes touch {touched:,} blocks of 64 KiB, {CAPACITY:,} fit: with "
          f"{away:,} written back meanwhile {at_best:,.0f} a second")


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--seed", type=int, default=1)
    seed = args.parse_args().seed
    machine.OUT.mkdir(parents=True, exist_ok=True)
    machine.compile("sequence")
    for work in READS:
        of_reads(work, seed)
    of_burst(seed)


if __name__ == "__main__":
    main()
