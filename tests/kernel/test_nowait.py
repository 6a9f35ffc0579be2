# SPDX-License-Identifier: GPL-2.0-or-later
"""I/O that must not wait, and I/O that is polled: a hit at once, or the user hears that it is none."""
import re

import pytest

from .stack import Stack, fio, io

ALL = ("--cutoff", "0")
WRITEBACK = ("--mode", "writeback", *ALL)


@pytest.fixture
def stack(make_stack):
    return make_stack(volatile="ssd hdd")


def busy(stack, word, *disks):
    for disk in disks:
        stack.guest.dm_message(f"v{disk}", "busy", word)


def unharmed(stack):
    """Nothing counts as an error, and the pool runs."""
    now, pool = stack.status(), stack.status("pool")
    assert (now["cache_errors"], now["origin_errors"], now["state"]) == (0, 0, "running"), now
    assert (pool["errors"], pool["state"]) == (0, "running"), pool


@pytest.mark.kernels
def test_a_miss_is_refused_and_leaves_no_trace(stack):
    dev = stack.create("vol", *WRITEBACK)
    io(stack.guest, dev, "w:1024:128:x", "f")
    stack.drain()
    stack.message("checkpoint", name="pool")

    def refused():
        # Nothing is there; clean, so that a record must come first; both in one
        assert io(stack.guest, dev, "nr:0:8", "nw:0:8:a", "nw:1024:8:b") == ["EAGAIN"] * 3
    before = stack.status("pool")
    assert stack.moved(refused) == {}
    after = stack.status("pool")
    assert [after[k] for k in ("used", "dirty", "open_regions", "journal_records")] == \
        [before[k] for k in ("used", "dirty", "open_regions", "journal_records")]
    assert io(stack.guest, dev, "r:0:8", "r:1024:128") == ["0", "x"]
    unharmed(stack)


@pytest.mark.kernels
def test_a_hit_goes_to_the_cache_at_once(stack):
    dev = stack.create("vol", *WRITEBACK)
    io(stack.guest, dev, "w:0:128:a", "f")
    moved = stack.moved(lambda: io(stack.guest, dev, "nw:8:8:b", "nr:0:128"))
    assert (moved["write_hits"], moved["read_hits"]) == (1, 1)
    assert io(stack.guest, dev, "nr:0:128", "f") == ["aba"]
    stack.drain()
    # Of what is clean a read still is a hit.
    assert io(stack.guest, dev, "nr:0:128", "nw:0:8:c") == ["aba", "EAGAIN"]
    assert io(stack.guest, "/dev/mapper/vhdd", "r:2048:128") == ["aba"]
    unharmed(stack)


@pytest.mark.kernels
@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_a_device_that_would_wait_tells_the_user(stack, mode):
    """It is no error of the device; nobody tries again in the user's place; data are as before."""
    dev = stack.create("vol", "--mode", mode, *ALL)
    io(stack.guest, dev, "w:0:128:a", "f")
    dirty = stack.status()["dirty"]
    busy(stack, "on", "ssd", "hdd")
    # A write hits only what is dirty.
    assert stack.moved(lambda: io(stack.guest, dev, "nr:0:128"))["read_hits"] == 1
    assert io(stack.guest, dev, "nr:0:128", "nw:0:8:b", "nr:0:8") == ["EAGAIN"] * 3
    # Whoever may wait is not concerned, neither by the hit nor by what follows of a miss.
    assert io(stack.guest, dev, "r:0:128", "r:1024:8") == ["a", "0"]
    busy(stack, "off", "ssd", "hdd")
    assert stack.status()["dirty"] == dirty
    assert io(stack.guest, dev, "nr:0:128") == ["a"]
    unharmed(stack)
    stack.drain()
    assert io(stack.guest, "/dev/mapper/vhdd", "r:2048:128") == ["a"]


@pytest.mark.kernels
def test_a_refused_write_is_in_nobodys_way(stack):
    """It is not in flight any more: the block is written back, and dirty until then."""
    dev = stack.create("vol", *WRITEBACK)
    io(stack.guest, dev, "w:0:128:a", "f")
    busy(stack, "on", "ssd")
    assert io(stack.guest, dev, *["nw:0:8:b"] * 4) == ["EAGAIN"] * 4
    busy(stack, "off", "ssd")
    assert io(stack.guest, dev, "w:0:8:c", "nw:8:8:d", "r:0:128", "f") == ["cda"]
    stack.drain()
    assert io(stack.guest, "/dev/mapper/vhdd", "r:2048:128") == ["cda"]
    unharmed(stack)


@pytest.mark.kernels
def test_a_hit_that_fails_may_wait(stack):
    """The cache device's error is one; the read that follows is the worker's, to an origin that is busy."""
    dev = stack.create("vol", *ALL)
    io(stack.guest, dev, "w:0:128:a", "f")
    busy(stack, "on", "hdd")
    stack.guest.dm_message("vssd", "fail", "read", "once")
    assert io(stack.guest, dev, "nr:0:8") == ["a"]
    now = stack.status()
    assert (now["cache_errors"], now["origin_errors"]) == (1, 0)


def test_io_uring_that_polls_gets_through(stack):
    """Linux 6.1 sends all that it polls for with NOWAIT, and for ever while that is refused."""
    dev = stack.create("vol", *WRITEBACK)
    io(stack.guest, dev, "w:0:1024:a", "f")
    stack.drain()
    stack.message("checkpoint", name="pool")
    # Misses; writes to what is clean, which a record must precede; all by a volume that has no queue to poll
    for options in (["--rw=randread", "--offset=8m"], ["--rw=randwrite", "--size=512k"]):
        fio(stack.guest, dev, "--ioengine=io_uring", "--hipri", "--iodepth=4", "--bs=4k", "--size=1m",
            *options, timeout=60)
    unharmed(stack)


@pytest.mark.kernels
def test_io_uring_fills_and_verifies(stack):
    """It first asks for what need not wait, and then has a thread that waits."""
    dev = stack.create("vol", *WRITEBACK)
    fio(stack.guest, dev, "--ioengine=io_uring", "--iodepth=8", "--rw=randwrite", "--bs=4k", "--size=4m",
        "--verify=crc32c", "--do_verify=1")
    fio(stack.guest, dev, "--ioengine=io_uring", "--iodepth=8", "--rw=randread", "--bs=4k",
        "--offset=8m", "--size=2m")
    assert stack.moved(lambda: fio(stack.guest, dev, "--ioengine=io_uring", "--rw=read", "--bs=64k",
                                   "--offset=8m", "--size=2m")).get("read_misses", 0) == 0
    unharmed(stack)


# --- polled: in QEMU, since null_blk has queues for it --------------------------

def null_blk(guest, name, **options):
    """A disk in RAM, of 64 MiB."""
    where = f"/sys/kernel/config/nullb/{name}"
    guest.run("modprobe null_blk nr_devices=0 && { mountpoint -q /sys/kernel/config || "
              "mount -t configfs none /sys/kernel/config; }")
    guest.run(f"mkdir {where}")
    for option, value in {"size": 64, "memory_backed": 1, **options, "power": 1}.items():
        guest.write_file(f"{where}/{option}", str(value))
    # It allocates a page when that is first written, also below a poll, where it must not sleep.
    guest.run(f"dd if=/dev/zero of=/dev/{name} bs=1M count=64 oflag=direct 2>&1")
    guest.run(f"ln -s /dev/{name} /dev/test/{name}")


class Polled(Stack):
    """A volume on disks that can be polled, or not; dm-linear beside it."""

    def __init__(self, guest, cache, origin):
        super().__init__(guest, "fast", "slow")
        # More queues than the origin: one's cookie is no queue of the other's.
        null_blk(guest, "fast", irqmode=0, submit_queues=2, poll_queues=cache)
        # By a timer, so that whoever polls has the time to.
        null_blk(guest, "slow", irqmode=2, completion_nsec=2000000, submit_queues=1, poll_queues=origin)

    def can_be_polled(self, name):
        minor = self.guest.run(f"dmsetup info -c --noheadings -o minor {name}").out.strip()
        return self.guest.read_file(f"/sys/block/dm-{minor}/queue/io_poll").strip() == "1"

    def _all_polls(self):
        """
        Once set, the probe stays: it changes the code of a running kernel.  Beside polled I/O to
        null_blk alone, without a module of ours, Linux 7.3 on two CPUs of QEMU's crashed within a
        minute of setting and removing it.
        """
        tracing = "/sys/kernel/tracing"
        self.guest.run(f"""
            mountpoint -q {tracing} || mount -t tracefs none {tracing}
            [ -d {tracing}/events/kprobes ] ||
            {{ echo p:polled null_poll >{tracing}/kprobe_events &&
               echo 1 >{tracing}/events/kprobes/polled/enable; }}""")
        return int(self.guest.run(f"cat {tracing}/kprobe_profile").out.split()[1])

    def polls(self, action):
        """How often the driver was asked during action()."""
        before = self._all_polls()
        action()
        return self._all_polls() - before


@pytest.fixture
def polled(tools, make_qemu_guest):
    def make(cache, origin):
        guest = make_qemu_guest(cpus=2, modprobe=["dm-testdisk", "dm-hybrid"])
        if guest.run("modprobe -n null_blk", check=False).rc:
            pytest.skip("no null_blk")
        return Polled(guest, cache, origin)
    return make


def decides(stack, cache, origin):
    """Which of both says whether a volume is polled: the origin before Linux 6.11."""
    release = tuple(map(int, re.match(r"(\d+)\.(\d+)", stack.guest.run("uname -r").out).groups()))
    return cache if release >= (6, 11) else origin


URING = ("--ioengine=io_uring", "--bs=4k", "--size=4m", "--iodepth=4")


@pytest.mark.qemu
@pytest.mark.kernels
def test_hits_are_polled(polled):
    s = polled(cache=2, origin=1)
    dev = s.create("vol", *WRITEBACK)
    s.guest.dm_create("lin", "0 65536 linear /dev/fast 65536")
    assert s.can_be_polled("vol") and s.can_be_polled("lin")
    fio(s.guest, dev, *URING, "--rw=write", "--bs=64k", "--end_fsync=1")
    for name in ("lin", "vol"):
        for rw in ("randread", "randwrite"):
            def job(*options, name=name, rw=rw):
                return fio(s.guest, f"/dev/mapper/{name}", *URING, f"--rw={rw}", *options)
            assert s.polls(lambda: job("--hipri")) > 0, (name, rw)
            assert s.polls(job) == 0, (name, rw)
    fio(s.guest, dev, *URING, "--hipri", "--rw=randrw", "--verify=crc32c", "--do_verify=1")
    unharmed(s)


@pytest.mark.qemu
@pytest.mark.kernels
def test_what_is_no_hit_is_not_polled_and_completes(polled):
    s = polled(cache=2, origin=1)
    dev = s.create("vol", *WRITEBACK)
    jobs = [("--rw=randread", "--offset=8m"), ("--rw=randwrite", "--offset=16m"),
            ("--rw=randrw", "--offset=24m", "--verify=crc32c", "--do_verify=1"),
            ("--ioengine=pvsync2", "--rw=randread", "--offset=32m")]
    for job in jobs:
        fio(s.guest, dev, *URING, "--hipri", *job)
    s.drain()
    # A record must come before each write to what is clean.
    fio(s.guest, dev, *URING, "--hipri", "--rw=randrw", "--offset=24m", "--verify=crc32c", "--do_verify=1")
    s.message("mode", "passthrough")
    s.wait("draining", 0)
    assert s.polls(lambda: fio(s.guest, dev, *URING, "--hipri", "--rw=randread", "--offset=40m")) == 0
    unharmed(s)


@pytest.mark.qemu
@pytest.mark.kernels
def test_a_polled_hit_that_fails_goes_to_the_origin(polled):
    """By a worker, while its user still polls: that has to end."""
    s = polled(cache=2, origin=1)
    s.guest.dm_create("vfast", f"0 {64 << 11} volatile /dev/fast 0")
    s.volatile["fast"] = "0"
    dev = s.create("vol", "--mode", "writethrough", *ALL)
    fio(s.guest, dev, *URING, "--rw=randwrite", "--verify=crc32c", "--do_verify=1")
    assert s.can_be_polled("vfast")
    s.guest.dm_message("vfast", "fail", "read", "on")
    fio(s.guest, dev, *URING, "--hipri", "--rw=randwrite", "--verify=crc32c", "--verify_only=1")
    assert s.status()["cache_errors"] > 0
    assert s.status()["origin_errors"] == 0


@pytest.mark.qemu
@pytest.mark.kernels
@pytest.mark.parametrize("cache, origin", [(0, 1), (2, 0)])
def test_one_of_both_cannot_be_polled(polled, cache, origin):
    s = polled(cache, origin)
    dev = s.create("vol", *WRITEBACK)
    polls = decides(s, cache, origin) > 0
    assert s.can_be_polled("vol") == polls
    options = ["--hipri"] if polls else []
    for job in (("--rw=randrw", "--verify=crc32c", "--do_verify=1"), ("--rw=randread", "--offset=8m")):
        fio(s.guest, dev, *URING, *options, *job)
    unharmed(s)
