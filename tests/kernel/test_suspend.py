# SPDX-License-Identifier: GPL-2.0-or-later
"""Suspending pools and volumes in any order: nobody is lost, nobody waits for ever."""
import re

import pytest

from .stack import io


def suspended(s, name):
    return "SUSPENDED" in s.guest.run(["dmsetup", "info", name]).out


@pytest.mark.kernels
def test_pool_takes_its_volumes_along(make_stack):
    """I/O to a volume of a suspended pool waits, and goes on after it."""
    s = make_stack(ssd=32, hdd=32, hdd2=32)
    dev = s.create("one", "--mode", "writeback")
    s.attach("two", "hdd2")
    s.guest.run("dmsetup suspend pool")
    job = s.guest.run_bg(f"dd if=/dev/zero of={dev} bs=4k count=1 oflag=direct status=none")
    s.guest.run("sleep 0.3")
    assert job.poll() is None
    s.guest.run("dmsetup resume pool")
    job.wait(timeout=10)
    assert s.status("one")["dirty"] == 1


def test_what_was_suspended_before_stays_so(make_stack):
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback")
    s.guest.run("dmsetup suspend vol && dmsetup suspend pool && dmsetup resume pool")
    assert suspended(s, "vol") and not suspended(s, "pool")
    s.guest.run("dmsetup resume vol")
    assert io(s.guest, dev, "w:0:8:a", "r:0:8") == ["a"]


def test_volume_resumes_with_its_pool(make_stack):
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback")
    s.guest.run("dmsetup suspend vol && dmsetup suspend pool")
    job = s.guest.run_bg("dmsetup resume vol")
    s.guest.run("sleep 0.3; dmsetup resume pool")
    job.wait(timeout=10, check=False)
    s.guest.run("dmsetup resume vol")
    assert io(s.guest, dev, "w:0:8:a", "r:0:8") == ["a"]


def test_messages_to_a_suspended_pool_are_refused(make_stack):
    s = make_stack()
    s.create("vol")
    s.guest.run("dmsetup suspend pool")
    for command in ("pool 0 drain", "pool 0 checkpoint", "vol 0 mode writeback"):
        assert "suspended" in s.refused(f"dmsetup message {command}")
    s.status("pool"), s.table("pool"), s.table("vol")
    s.guest.run("dmsetup resume pool")
    s.message("mode", "writeback")


def half_slow(s):
    """The second half of the origin hdd is on /dev/mapper/slow."""
    s.guest.dm_create("slow", "0 32768 linear /dev/test/hdd 32768")
    s.guest.dm_create("hdd", "0 32768 linear /dev/test/hdd 0\n32768 32768 linear /dev/mapper/slow 0")
    s.guest.run("ln -sf /dev/mapper/hdd /dev/test/hdd")


def begin_to_suspend(s, name):
    """The pool suspends, and waits for a volume with a slow origin: the jobs to wait for."""
    dev = f"/dev/mapper/{name}"
    # A request that the origin does not answer holds up the suspend of its volume, and so the
    # pool's: the origin answers the pool's own read
    s.guest.run("dmsetup suspend --noflush slow")
    read = s.guest.run_bg(f"dd if={dev} of=/dev/null bs=4k skip=5000 count=1 iflag=direct status=none")
    s.guest.run(f"until grep -q 1 /sys/dev/block/$(stat -Lc %Hr:%Lr {dev})/inflight; do "
                "sleep 0.1; done", timeout=20)
    suspend = s.guest.run_bg("dmsetup suspend pool")
    s.guest.run("for i in $(seq 50); do dmsetup message pool 0 set commit_interval 1000 2>/dev/null || "
                "exit 0; sleep 0.1; done")
    s.guest.run("sleep 0.5")
    assert suspend.poll() is None and read.poll() is None
    return read, suspend


def end_to_suspend(s, jobs):
    """And the pool goes on."""
    s.guest.run("dmsetup resume slow")
    for job in jobs:
        job.wait(timeout=20)
    s.guest.run("dmsetup resume pool")


def test_nothing_gets_in_while_a_pool_suspends(make_stack):
    """From the moment on at which the pool begins to suspend its volumes, and not only after it."""
    s = make_stack(ssd=32, hdd=32, hdd2=32)
    half_slow(s)
    s.create("one", "--mode", "passthrough")
    s.attach("two", "hdd2", "--mode", "writeback")
    two = s.table("two")
    s.guest.dm_remove("two")
    jobs = begin_to_suspend(s, "one")
    for command in ("pool 0 set commit_interval 500", "pool 0 checkpoint", "one 0 mode writeback",
                    "pool 0 create_volume 7 " + " ".join(4 * ["0"])):
        assert "suspended" in s.refused(f"dmsetup message {command}"), command
    assert "is suspended" in s.create_refused(two)
    end_to_suspend(s, jobs)
    assert s.status("pool")["commit_interval"] == 1000
    s.guest.dm_create("two", two)
    assert io(s.guest, "/dev/mapper/two", "w:0:8:a", "r:0:8") == ["a"]


def test_a_volume_whose_resume_was_refused_is_suspended_still(make_stack):
    """It can be released; the pool, which suspends, gets to this volume last."""
    s = make_stack(ssd=32, hdd=32, hdd2=32)
    half_slow(s)
    s.origin = "hdd2"
    dev = s.create("one", "--mode", "writethrough")
    s.attach("two", "hdd", "--mode", "passthrough")
    io(s.guest, dev, "w:0:8:a")
    s.guest.run("dmsetup suspend one")
    jobs = begin_to_suspend(s, "two")
    assert "is suspended" in s.refused("dmsetup resume one")
    end_to_suspend(s, jobs)
    assert suspended(s, "one")
    s.message("release_volume", 0, name="pool")
    assert s.status("one") == {"state": "unloaded"}
    s.guest.run("dmsetup resume one")
    assert io(s.guest, dev, "r:0:8") == ["a"]


def test_origin_in_place_that_was_used_without_the_pool(make_stack):
    """Another table of the volume is loaded meanwhile: when it is resumed, what the cache has is old (P3)."""
    s = make_stack().behind_linear()
    s.guest.run("mkfs.ext4 -q /dev/test/hdd")
    dev = s.create("vol", "--in-place", "--mode", "writethrough", "--cutoff", "0")
    io(s.guest, dev, "w:1024:128:a", "r:1024:128", "f")
    table = s.table()
    s.guest.run("dmsetup suspend vol")
    s.guest.run(["dmsetup", "load", "vol"],
                input=f"0 {s.disk('hdd').sectors} linear /dev/test/hdd 0\n")
    # The message holds the pool's lock. The load waits for it first, then the end of the volume's old table
    s.guest.run("dmsetup suspend --noflush --nolockfs fast")
    jobs = []
    for command in ("dmsetup message pool 0 checkpoint", f"dmsetup load vol --table '{table}'",
                    "dmsetup resume vol"):
        jobs.append(s.guest.run_bg(command))
        s.guest.run("sleep 0.5")
    assert not [job for job in jobs if job.poll()]
    s.guest.run("dmsetup resume fast")
    for job in jobs:
        job.wait()
    assert " linear " in s.table()
    assert io(s.guest, dev, "w:1024:128:b", "r:1024:128") == ["b"]
    s.guest.run("dmsetup resume vol")
    assert s.table() == table
    assert io(s.guest, dev, "r:1024:128") == ["b"]


def test_tables_are_loaded_while_suspended(make_stack):
    """Both suspended, both loaded, resumed from the bottom up: as lvm does it."""
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback", "--cutoff", "0")
    pool, vol = s.table("pool").replace("c2q", "fifo"), s.table()
    io(s.guest, dev, "w:0:128:a")
    s.guest.run("dmsetup suspend vol && dmsetup load vol", input=vol)
    s.guest.run("dmsetup suspend pool && dmsetup load pool", input=pool)
    s.guest.run("dmsetup resume pool && dmsetup resume vol")
    assert s.status("pool")["policy"] == "fifo"
    assert io(s.guest, dev, "r:0:128") == ["a"]
    assert s.status()["read_hits"] == 1


def test_cache_that_dies_while_suspended(make_stack):
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", "--cutoff", "0")
    io(s.guest, dev, "w:0:8:a", "f", "r:128:128")
    s.guest.run("dmsetup suspend pool")
    s.guest.dm_message("vssd", "die")
    s.guest.run("dmsetup resume pool", timeout=20)
    assert io(s.guest, dev, "r:128:8", "r:0:8") == ["0", "EIO"]
    s.guest.run("dmsetup remove vol && dmsetup remove pool", timeout=20)


def test_flush_error_while_stopping(make_stack):
    """What could not be made durable is dirty still."""
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", "--cutoff", "0")
    io(s.guest, dev, "w:0:128:a", "f")
    s.guest.dm_message("vhdd", "fail", "flush", "on")
    s.message("drain")
    s.guest.run("sleep 1; dmsetup remove vol && dmsetup remove pool", timeout=20)
    s.guest.dm_message("vhdd", "fail", "flush", "off")
    s.guest.dm_message("vhdd", "lose")
    s.activate()
    assert s.status()["dirty"] == 1
    assert io(s.guest, dev, "r:0:128") == ["a"]


@pytest.mark.kernels
def test_a_volume_as_part_of_a_device(make_stack):
    """A table of several targets, the volume not the first."""
    s = make_stack(ssd=32, hdd=32, hdd2=32)
    s.create("vol", "--mode", "writeback", "--cutoff", "0")
    line = s.table().split(" ", 2)[2]
    s.guest.dm_remove("vol")
    dev = s.guest.dm_create("vol", "0 1000 linear /dev/test/hdd2 8\n"
                                   f"1000 61440 {line}\n62440 1000 zero")
    assert io(s.guest, dev, "w:900:200:a", "w:62400:39:b", "r:0:1200", "r:62390:60") == [
        "0a0", "0b0"]
    s.guest.dm_remove("vol")
    s.guest.dm_create("vol", f"0 61440 {line}")
    assert io(s.guest, "/dev/mapper/vol", "r:0:200", "r:61390:50") == ["a0", "0b0"]


def test_memory_while_volumes_are_suspended(make_stack):
    """Whoever resumes a pool must not wait for I/O to its volumes, as who needs memory may."""
    s = make_stack()
    s.create("vol")
    table = s.table("pool").replace("c2q", "fifo")
    s.guest.run("dmsetup suspend pool && dmsetup load pool", input=table)
    s.guest.run("mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing;"
                " cd /sys/kernel/tracing/events &&"
                " echo 1 | tee dm_hybrid/enable kmem/mm_page_alloc/enable >/dev/null &&"
                " dmsetup resume pool && echo 0 > enable")
    trace = s.guest.read_file("/sys/kernel/tracing/trace")
    policy = re.search(r"hybrid_config: .*?hybrid_return:", trace, re.S).group()
    pages = re.findall(r"dmsetup-.*mm_page_alloc: .*gfp_flags=(.*)", policy)
    assert pages
    # Neither waits for I/O; a debug kernel's own books are kept by the latter.
    assert not [gfp for gfp in pages if "GFP_NOIO" not in gfp and "GFP_NOWAIT" not in gfp]


# --- an origin that does not answer holds up its own volume alone ------------

OTHERS = ["dmsetup message pool 0 checkpoint",
          "dmsetup message one 0 drain",
          "dmsetup message pool 0 create_volume 7 00000000-0000-0000-0000-000000000007 seven "
          f"00000000-0000-0000-0000-000000000008 {'1' * 32} 2048 8192 writeback 0",
          "dmsetup message pool 0 delete_volume 7",
          "dmsetup message pool 0 forget_volume 7",
          "dmsetup suspend one; dmsetup resume one",
          "dmsetup status; dmsetup table"]


def hang(make_stack, what):
    """Volume two, whose origin has stopped, is being opened, closed or read: the stack, and that job."""
    s = make_stack(ssd=32, hdd=32, hdd2=32)
    s.guest.dm_create("slow", f"0 {s.disk('hdd2').sectors} linear {s.dev('hdd2')} 0")
    s.create("one", "--mode", "writeback", "--cutoff", "0")
    s.guest.run(["hybridctl", "attach", "pool", "two", "--origin", "/dev/mapper/slow", "--yes",
                 "--wipe-signatures", "--mode", "writethrough", "--cutoff", "0"])
    io(s.guest, "/dev/mapper/two", "w:0:8:a", "f")
    # The pool suspends its newest volume first: the one with the hung origin must not be it
    one = s.table("one")
    s.guest.dm_remove("one")
    s.guest.dm_create("one", one)
    if what == "open":
        table = s.table("two")
        s.guest.run("dmsetup remove two; dmsetup create two --notable")
        s.guest.run(["dmsetup", "load", "two"], input=table + "\n")
    else:
        # The close is to have something to flush, however long the host takes until then.
        s.message("set", "commit_interval", 60000, name="pool")
        io(s.guest, "/dev/mapper/two", "w:8:8:b")
    s.guest.run("dmsetup suspend --noflush slow")
    job = s.guest.run_bg({
        "open": "dmsetup resume two", "close": "dmsetup remove two",
        "read": "dd if=/dev/mapper/two bs=4k skip=64 count=1 iflag=direct of=/dev/null status=none"}[what])
    s.guest.run("sleep 0.3")
    return s, job


@pytest.mark.parametrize("what", ["open", "close", "read"])
def test_hung_origin_beside_management(make_stack, what):
    s, job = hang(make_stack, what)
    for command in OTHERS:
        s.guest.run(command, timeout=10)
    assert io(s.guest, "/dev/mapper/one", "w:0:8:c", "f", "r:0:8") == ["c"]
    # Who manages the same volume waits
    if what == "open":
        delete = s.guest.run_bg("dmsetup message pool 0 delete_volume 1")
        s.guest.run("sleep 0.3")
        assert delete.poll() is None
    assert job.poll() is None
    s.guest.run("dmsetup resume slow")
    job.wait()
    if what == "open":
        assert delete.wait(check=False).rc
        assert io(s.guest, "/dev/mapper/two", "r:0:8") == ["a"]


@pytest.mark.parametrize("what", ["open", "close", "read"])
def test_hung_origin_while_the_pool_suspends(make_stack, what):
    """It waits before it suspends anybody: until then the I/O of the others goes on."""
    s, job = hang(make_stack, what)
    suspend = s.guest.run_bg("dmsetup suspend pool")
    s.guest.run("sleep 0.3")
    s.guest.run("dd if=/dev/zero of=/dev/mapper/one bs=4k count=1 oflag=direct status=none", timeout=10)
    assert job.poll() is None and suspend.poll() is None
    s.guest.run("dmsetup resume slow")
    job.wait()
    suspend.wait()
    assert suspended(s, "pool")
    s.guest.run("dmsetup resume pool")
    assert io(s.guest, "/dev/mapper/one", "w:0:8:c", "f", "r:0:8") == ["c"]
