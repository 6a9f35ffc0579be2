# SPDX-License-Identifier: GPL-2.0-or-later
"""A member that does not answer: which operations of a healthy volume end while it still hangs.

A row is a member whose requests of one kind wait until the test ends, a column an operation of
volume one. Where an origin hangs, each must end. The cache device is everybody's: there the table
says which operations wait for it, and that they go on with it.
"""
import itertools
import time

import pytest

from .stack import HERE, fio, io
from .test_injection import failed, with_memory, without_memory
from .test_races import stays

KINDS = ("all", "read", "write", "flush", "discard")
BLOCK = 128		# sectors
CLEAN, DIRTY, NEW = 0, 16, 32	# blocks of volume one; from NEW on nothing is cached
FOUND_HANGING = 3	# seconds
HANGS, WAITED = "HANGS", "waited"

UNTIL_CLEAN = "until dmsetup status one | grep -q ' dirty 0 '; do sleep 0.05; done"
SEVEN = ("00000000-0000-0000-0000-000000000007 seven 00000000-0000-0000-0000-000000000008 "
         f"{'1' * 32} 2048 8192 writeback 0")
# More of everything than one volume may have: jobs, room, what waits for records
LOAD = ("fio --direct=1 --ioengine=libaio --iodepth=128 --rw=randrw --bs=4k-64k --size=8m --loops=9999 "
        "--randrepeat=1 {} >/dev/null 2>&1")
LOAD_OF_EACH = f"""dmsetup message $v 0 drain
blkdiscard -o 4194304 -l 1048576 /dev/mapper/$v &
printf 'w:8:8:a\\nf\\n' | python3 -S {HERE}/steps.py /dev/mapper/$v &"""


class Cells:
    """Operations of volume one, one after the other."""

    def __init__(self, s, other_hangs, hang, go_on):
        """@other_hangs: does what hangs belong to others alone? @hang, @go_on: begin and end it."""
        self.s, self.other_hangs, self.hang, self.go_on = s, other_hangs, hang, go_on
        self.new = itertools.count(NEW)
        self.found = {}

    def ended(self, name, command, input=""):
        """Does it end in time? Where it need not, what hangs goes on until it has."""
        job = self.s.guest.run_bg(command, input)
        if self.other_hangs:
            job.wait(timeout=30)
            self.found[name] = "ends"
            return
        end = time.monotonic() + FOUND_HANGING
        while job.poll() is None and time.monotonic() < end:
            self.s.guest.run("sleep 0.05")
        self.found[name] = "ends" if job.poll() else HANGS
        if self.found[name] == HANGS:
            self.go_on()
            job.wait(timeout=60)
            self.hang()

    def io(self, name, *steps):
        self.ended(name, ["python3", "-S", HERE / "steps.py", "/dev/mapper/one"], "\n".join(steps))

    def block(self):
        return next(self.new) * BLOCK

    def measure(self):
        self.io("read hit", f"r:{CLEAN * BLOCK}:8")
        self.io("read miss", f"r:{self.block()}:8")
        at = self.block()
        self.io("read mixed", f"w:{at}:8:a", f"r:{at}:{BLOCK}")
        for mode in ("writethrough", "writearound", "passthrough", "writeback"):
            self.ended(f"to {mode}", f"dmsetup message one 0 mode {mode}; " +
                       (UNTIL_CLEAN if mode != "writeback" else ":"))
            self.io(f"{mode}: write", f"w:{CLEAN * BLOCK}:8:a", f"w:{DIRTY * BLOCK}:8:a",
                    f"w:{self.block()}:{BLOCK}:a", f"w:{self.block() + 1}:6:a")
            self.io(f"{mode}: fsync", f"w:{DIRTY * BLOCK}:8:b", "f", f"u:{DIRTY * BLOCK}:8:c")
        self.io("discard", f"w:{DIRTY * BLOCK}:{BLOCK}:d", f"d:{(CLEAN + 1) * BLOCK}:{BLOCK * 20}")
        self.io("zeroes", f"z:{(CLEAN + 1) * BLOCK}:{BLOCK}")
        self.io("dirty", f"w:{DIRTY * BLOCK}:{BLOCK}:d")
        self.ended("drain", f"dmsetup message one 0 drain; {UNTIL_CLEAN}; "
                            "dmsetup message one 0 drain_cancel")
        self.ended("suspend", "dmsetup suspend one; dmsetup resume one")
        self.ended("noflush", "dmsetup suspend --noflush one; dmsetup resume one")
        self.ended("status", "dmsetup status; dmsetup table; dmsetup message pool 0 volumes")
        self.ended("policy", "dmsetup message pool 0 policy lru; dmsetup message pool 0 policy c2q")
        self.ended("checkpoint", "dmsetup message pool 0 checkpoint")
        self.ended("create", f"dmsetup message pool 0 create_volume 99 {SEVEN}")
        self.ended("delete", "dmsetup message pool 0 delete_volume 99; "
                             "dmsetup message pool 0 forget_volume 99")
        table = self.s.table("one")
        self.ended("reload", "dmsetup load one && dmsetup resume one", table + "\n")
        self.ended("remove", "dmsetup remove one")
        self.ended("resume", "dmsetup create one", table + "\n")
        self.io("read at last", f"r:{self.block()}:8")


def volumes(make_stack, others):
    """Volume one, and others on parts of one disk; all of them have something in the cache."""
    s = make_stack(volatile="ssd hdd2", memory=512 + 64 * others, ssd=48 + 8 * others, hdd=32, hdd2=16 * others)
    s.create("one", "--mode", "writeback", "--cutoff", "0")
    names = [f"v{n}" for n in range(others)]
    for n, name in enumerate(names):
        origin = s.guest.dm_create(f"o{n}", f"0 32768 linear {s.dev('hdd2')} {n * 32768}")
        s.guest.run(["hybridctl", "attach", "pool", name, "--origin", origin, "--yes", "--wipe-signatures",
                     "--mode", "writethrough" if n % 2 else "writeback", "--cutoff", "0"])
        io(s.guest, f"/dev/mapper/{name}", "r:0:512", "w:1024:512:a")
    io(s.guest, "/dev/mapper/one", f"r:{CLEAN * BLOCK}:{BLOCK}", f"w:{DIRTY * BLOCK}:{BLOCK}:a")
    return s, names


def load(s, names):
    jobs = " ".join(f"--name={name} --filename=/dev/mapper/{name}" for name in names)
    # One command: the line to the agent takes no more
    s.guest.run_bg("sh", "\n".join([f"{LOAD.format(jobs)} &", f"for v in {' '.join(names)}; do", LOAD_OF_EACH, "done"]))
    s.guest.run("sleep 2")


def end_load(s):
    """Told once, fio may go on with its next loop.

    No SIGKILL: User Mode Linux complains where the kernel ends asynchronous I/O (free_ioctx())."""
    s.guest.run("while pkill -x fio; do sleep 0.1; done", timeout=120)


def table_of(request, name, found):
    request.node.user_properties.append(("isolation", (name, found)))


@pytest.mark.parametrize("others, kind", [
    pytest.param(1, "all"), *(pytest.param(1, kind, marks=pytest.mark.isolation) for kind in KINDS[1:]),
    *(pytest.param(15, kind, marks=pytest.mark.isolation) for kind in KINDS)])
def test_origins_that_hang(make_stack, request, others, kind):
    s, names = volumes(make_stack, others)
    s.guest.dm_message("vhdd2", "hang", kind, "on")
    load(s, names)
    cells = Cells(s, True, None, None)
    try:
        cells.measure()
    finally:
        table_of(request, f"{others} of {others + 1} origins: {kind}", cells.found)
    s.guest.dm_message("vhdd2", "hang", "all", "off")
    end_load(s)
    s.guest.run("for n in /dev/mapper/v[0-9]*; do blockdev --flushbufs $n; done", timeout=120)


@pytest.mark.isolation
@pytest.mark.parametrize("kind", KINDS)
def test_cache_that_hangs(make_stack, request, kind):
    s, _ = volumes(make_stack, 1)
    hang, go_on = ((lambda word=word: s.guest.dm_message("vssd", "hang", kind, word)) for word in ("on", "off"))
    cells = Cells(s, False, hang, go_on)
    hang()
    try:
        cells.measure()
    finally:
        table_of(request, f"cache: {kind}", cells.found)
    go_on()


@pytest.mark.debug
@pytest.mark.isolation
def test_origins_that_hang_without_memory(make_stack):
    """All that hung volumes have set aside is in use, and no allocation succeeds."""
    s, names = volumes(make_stack, 3)
    without_memory(s.guest)
    s.guest.dm_message("vhdd2", "hang", "all", "on")
    load(s, names)
    for mode in ("writeback", "writethrough", "writearound", "writeback"):
        s.message("mode", mode, name="one")
        fio(s.guest, "/dev/mapper/one", "--rw=randrw", "--bsrange=512-64k", "--size=2m", "--ioengine=libaio",
            "--iodepth=16", "--fsync=32", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1")
    s.drain("one")
    s.message("checkpoint", name="pool")
    assert failed(s.guest) > 100
    with_memory(s.guest)
    s.guest.dm_message("vhdd2", "hang", "all", "off")
    end_load(s)


@pytest.mark.debug
def test_the_cache_dies_while_an_origin_hangs(make_stack):
    """Each volume with dirty data lists its losses on its own origin: the one that hangs holds up no other."""
    s, (other,) = volumes(make_stack, 1)
    s.guest.dm_message("vhdd2", "hang", "write", "on")
    s.guest.dm_message("vssd", "die")
    hangs = s.guest.run_bg(["python3", "-S", HERE / "steps.py", f"/dev/mapper/{other}"], "w:4096:8:b")
    # All may be on record already, and only a write of metadata fails the pool
    s.guest.run("dmsetup message pool 0 checkpoint", check=False)
    s.guest.run("until dmsetup status pool | grep -q failed; do sleep 0.1; done; sleep 1", timeout=60)
    for steps in "w:4096:8:b", "f", f"d:{NEW * BLOCK}:8":
        s.guest.run_bg(["python3", "-S", HERE / "steps.py", "/dev/mapper/one"], steps).wait(timeout=60)
    s.guest.run("dmsetup suspend one && dmsetup resume one", timeout=60)
    assert stays(hangs, 1)
    s.guest.dm_message("vhdd2", "hang", "write", "off")
    hangs.wait(timeout=60)
