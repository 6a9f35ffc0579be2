#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""make headline: fsync, eviction, power cut; dm-hybrid and, as a control, stock dm-cache.

The same steps on both, in writeback, on a cache device and an origin that each lose what was
not flushed when the power goes:

    1. fill the cache, stop it, start it again;
    2. overwrite the 64 blocks and fsync them: from here on they must survive anything;
    3. wait until all is written back;
    4. read other blocks until 16 blocks were evicted, and wait until dm-cache, which does so
       each second, has committed that; no flush;
    5. cut the power, boot, activate, read the 64 blocks.

A cache that forgets a block once the origin has acknowledged its copy, and does not flush the
origin, loses it here.
"""
import string
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from guest import MIB, Disk, Guest, UmlGuest  # noqa: E402
from kernel.stack import Stack, io  # noqa: E402

SECTORS = 128		# of a block
LETTERS = string.ascii_letters + string.digits + "+-"
BLOCKS = len(LETTERS)
OLD = BLOCKS * "="
EVICTED = BLOCKS // 4	# dm-cache keeps a quarter of its blocks free
OTHERS = BLOCKS		# the blocks that are read to evict the first ones
SSD, HDD = 12 * MIB, 64 * MIB
PATIENCE = 60		# seconds
COMMIT = 2		# seconds: more than dm-cache's interval


class Cached:
    """A cached volume at `dev` over the disks ssd and hdd of a guest."""

    name = dev = ""

    def __init__(self, guest: Guest):
        self.guest = guest
        self.stack = Stack(guest, volatile={"ssd": "0", "hdd": "0"})

    def boot(self) -> None:
        self.guest.boot()
        self.guest.modprobe("dm-testdisk")
        self.stack.members()

    def write(self, letters: str) -> None:
        """One block of each letter, then fsync."""
        io(self.guest, self.dev, *(f"w:{n * SECTORS}:{SECTORS}:{a}" for n, a in enumerate(letters)),
           "f")

    def wrong(self) -> int:
        """Blocks that are not what write(LETTERS) wrote."""
        found = io(self.guest, self.dev, *(f"r:{n * SECTORS}:{SECTORS}" for n in range(BLOCKS)))
        return sum(a != b for a, b in zip(found, LETTERS, strict=True))

    def counts(self) -> tuple[int, int]:
        """Dirty blocks, evictions since activation."""
        raise NotImplementedError


class Hybrid(Cached):
    name, dev = "dm-hybrid", "/dev/mapper/vol"

    def create_warm(self) -> None:
        self.guest.modprobe("dm-hybrid")
        self.stack.create("vol", "--mode", "writeback", "--cutoff", "0")
        self.write(OLD)
        self.stack.deactivate()
        self.stack.activate()

    def activate(self) -> None:
        self.guest.modprobe("dm-hybrid")
        self.stack.activate()

    def counts(self) -> tuple[int, int]:
        return self.stack.status()["dirty"], self.stack.status("pool")["evictions"]

    def write_back(self) -> None:
        self.stack.drain()


class DmCache(Cached):
    """Its metadata and its blocks share the cache device, so that they share its flushes."""

    name, dev = "dm-cache", "/dev/mapper/cached"
    META = 2048		# sectors

    def activate(self, policy: str = "smq") -> None:
        ssd = self.stack.dev("ssd")
        meta = self.guest.dm_create("meta", f"0 {self.META} linear {ssd} 0")
        data = self.guest.dm_create("data", f"0 {BLOCKS * SECTORS} linear {ssd} {self.META}")
        self.guest.dm_create("cached", f"0 {HDD // 512} cache {meta} {data} "
                                       f"{self.stack.dev('hdd')} {SECTORS} 1 writeback {policy} 0")

    def create_warm(self) -> None:
        """Zeroes for metadata make a new cache.

        smq evicts nothing for up to a minute after a block came into the cache; blocks that
        it finds there are spread over its queues if another policy left them. mq is smq.
        From here on it writes nothing back until it is asked to: what reaches the origin
        beside the 64 writes, their fsync makes durable there as well.
        """
        self.activate("mq")
        self.write(OLD)
        self.guest.dm_remove("cached", "data", "meta")
        self.activate()
        self._migrate(0)

    def _migrate(self, sectors: int) -> None:
        """As many at once at most; 2,048 is its default."""
        self.guest.run(f"dmsetup message cached 0 migration_threshold {sectors}")

    def counts(self) -> tuple[int, int]:
        words = self.guest.dm_status("cached").split()
        # ... cache <meta block size> <used/total> <block size> <used/total> <read hits>
        # <read misses> <write hits> <write misses> <demotions> <promotions> <dirty>
        return int(words[13]), int(words[11])

    def write_back(self) -> None:
        """It does so by itself when idle."""
        self._migrate(2048)
        end = time.monotonic() + PATIENCE
        while self.counts()[0]:
            assert time.monotonic() < end, "dm-cache does not write back"
            time.sleep(0.2)


def evict(c: Cached) -> None:
    reads = [f"r:{(BLOCKS + n) * SECTORS}:{SECTORS}" for n in range(OTHERS)]
    end = time.monotonic() + PATIENCE
    while c.counts()[1] < EVICTED:
        assert time.monotonic() < end, f"{c.name} evicts nothing: {c.counts()}"
        io(c.guest, c.dev, *reads)
    time.sleep(COMMIT)


def run(c: Cached) -> tuple[int, int]:
    """The steps above; returns blocks written, blocks wrong after the cut."""
    c.boot()
    c.create_warm()
    c.write(LETTERS)
    c.write_back()
    evict(c)
    c.guest.power_cut()
    c.boot()
    c.activate()
    return BLOCKS, c.wrong()


def report(c: Cached, written: int, wrong: int) -> str:
    return (f"headline: {c.name} blocks_written={written} wrong_after_power_cut={wrong}"
            f"{'' if wrong else ' (none)'}")


def main() -> int:
    """headline.py <kernel> <modules> <tools>: prints both outcomes; 0 if they are as claimed."""
    kernel, modules, tools = (Path(a).resolve() for a in sys.argv[1:])
    lost = {}
    for kind in (Hybrid, DmCache):
        with tempfile.TemporaryDirectory() as work:
            disks = [Disk(Path(work) / "ssd.img", SSD), Disk(Path(work) / "hdd.img", HDD)]
            guest = UmlGuest(Path(work) / "guest", kernel, disks=disks, modules=modules,
                             path=[tools])
            try:
                written, lost[kind] = run(c := kind(guest))
                print(report(c, written, lost[kind]), flush=True)
            finally:
                guest.close()
    return 1 if lost[Hybrid] or not lost[DmCache] else 0


if __name__ == "__main__":
    sys.exit(main())
