# SPDX-License-Identifier: GPL-2.0-or-later
"""I/O that must not wait: a hit at once, or the user hears that it is none."""
import pytest

from .stack import fio, io

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
