# SPDX-License-Identifier: GPL-2.0-or-later
"""Members that fail: what is on the other one is served, what is lost is said, nobody hangs."""
import json
import time

import pytest

from .stack import io

ALL = ("--cutoff", "0")


@pytest.fixture
def stack(make_stack):
    return make_stack(volatile="ssd hdd")


def fail(stack, disk, *words):
    stack.guest.dm_message(f"v{disk}", *words)


def errors(stack):
    pool = stack.status("pool")
    return tuple(pool[kind] for kind in ("errors", "read_errors", "write_errors", "flush_errors"))


def test_cache_read_error_on_clean_data_is_served_from_the_origin(stack):
    dev = stack.create("vol", *ALL)
    io(stack.guest, dev, "w:0:128:a")
    fail(stack, "ssd", "fail", "read", "once")
    assert stack.moved(lambda: io(stack.guest, dev, "r:0:8"))["cache_errors"] == 1
    assert io(stack.guest, dev, "r:0:128") == ["a"]
    assert errors(stack) == (1, 1, 0, 0)
    fail(stack, "ssd", "fail", "read", "on")
    assert io(stack.guest, dev, "r:0:128", "r:8:8") == ["a", "a"]
    fail(stack, "ssd", "fail", "read", "off")
    assert io(stack.guest, dev, "r:0:128") == ["a"]


def test_cache_read_error_on_dirty_data_is_an_error(stack):
    """Never the origin's old data (S8)."""
    dev = stack.create("vol", "--mode", "writeback", *ALL)
    io(stack.guest, dev, "w:0:8:a", "w:256:8:c", "f")
    fail(stack, "ssd", "fail", "read", "on")
    assert io(stack.guest, dev, "r:0:8", "r:128:8") == ["EIO", "0"]
    assert stack.status()["cache_errors"] >= 1
    fail(stack, "ssd", "fail", "read", "off")
    assert io(stack.guest, dev, "r:0:8", "r:256:8") == ["a", "c"]


@pytest.mark.kernels
def test_cache_write_error_redirects(stack):
    """S7: never acknowledged from memory."""
    dev = stack.create("vol", "--mode", "writeback", *ALL)
    io(stack.guest, dev, "w:1024:8:x", "f")
    fail(stack, "ssd", "fail", "write", "once")
    assert io(stack.guest, dev, "w:0:8:a", "r:0:8") == ["a"]
    assert stack.status()["cache_errors"] == 1
    assert errors(stack) == (1, 0, 1, 0)
    assert io(stack.guest, "/dev/mapper/vhdd", "r:2048:8") == ["a"]
    assert io(stack.guest, dev, "f", "r:0:8", "r:1024:8") == ["a", "x"]


def on_a_disk(stack):
    """A dirty volume whose cache device is no mapped one: it has a write cache and no FUA."""
    stack.guest.run("modprobe -q loop; "
                    "ln -s $(losetup -f --show --direct-io=on /dev/mapper/vssd) /dev/test/fast")
    stack.cache = "fast"
    dev = stack.create("vol", "--mode", "writeback", *ALL)
    io(stack.guest, dev, "w:1024:8:x", "f")
    stack.message("set", "commit_interval", 60000, name="pool")
    return dev


def test_cache_write_error_of_a_disk_redirects(stack):
    """A disk's driver gives a bio back used up, its error notwithstanding; device-mapper does not."""
    dev = on_a_disk(stack)
    fail(stack, "ssd", "fail", "write", "once")
    assert io(stack.guest, dev, "w:0:64:a", "r:0:64") == ["a"]
    assert stack.status()["cache_errors"] == 1
    assert io(stack.guest, "/dev/mapper/vhdd", "r:2048:64") == ["a"]
    assert io(stack.guest, dev, "f", "r:0:64", "r:1024:8") == ["a", "x"]


@pytest.mark.parametrize("what", ["flush", "write"])
@pytest.mark.parametrize("words", [("set", "endurance", "77"), ("policy", "lru"), ("rename", "other")],
                         ids=lambda words: words[0])
def test_a_setting_that_cannot_be_recorded_fails_the_pool(stack, words, what):
    """A flush that failed beside the superblock may have lost a user's write (P1)."""
    dev = on_a_disk(stack)
    io(stack.guest, dev, "w:0:8:a")
    fail(stack, "ssd", "fail", what, "once")
    stack.refused("dmsetup message pool 0 " + " ".join(words))
    assert io(stack.guest, dev, "f") == ["EIO"]
    assert stack.status("pool")["state"] == "failed"
    assert errors(stack)[2:] == (int(what == "write"), int(what == "flush"))


def test_readahead_waits_for_a_suspended_cache_device(make_stack):
    """device-mapper fails it otherwise, which is no error of the cache device and drops no data."""
    s = make_stack().behind_linear()
    dev = s.create("vol", *ALL)
    io(s.guest, dev, "w:0:128:a", "r:0:128", "f")
    cached = s.status()["cached"]
    s.guest.run("dmsetup suspend --noflush --nolockfs fast")
    ahead = s.guest.run_bg(["python3", "-S", "-c", "import os; fd = os.open('%s', os.O_RDONLY); "
                            "os.posix_fadvise(fd, 0, 65536, os.POSIX_FADV_WILLNEED); "
                            "print(os.pread(fd, 1, 4096))" % dev])
    s.guest.run("for i in $(seq 50); do grep -q [1-9] /sys/dev/block/$(stat -Lc %Hr:%Lr "
                f"{dev})/inflight && break; sleep 0.1; done")
    s.guest.run("dmsetup resume fast")
    assert ahead.wait().out == "b'a'\n"
    assert errors(s) == (0, 0, 0, 0) and s.status()["cache_errors"] == 0
    assert s.status()["cached"] == cached > 0
    assert s.moved(lambda: io(s.guest, dev, "r:0:128")) == {"read_hits": 1}


def test_a_device_that_fails_more_and_more(stack):
    """The pool has nothing dirty any more when the device dies, and has said so; a reboot forgets nothing."""
    dev = stack.create("vol", "--mode", "writeback", *ALL)
    io(stack.guest, dev, "w:0:64:a", "r:1024:128", "r:2048:128", "f")
    stack.message("set", "read_error_limit", 2, name="pool")
    stack.guest.run("dmesg -C")
    for sector in 1024, 2048:
        fail(stack, "ssd", "fail", "read", "once")
        assert io(stack.guest, dev, f"r:{sector}:8") == ["0"]
    end = time.monotonic() + 60 * stack.guest.slow
    while (not stack.status("pool")["failing"] or stack.status("pool")["dirty"]) and \
            time.monotonic() < end:
        time.sleep(0.2)
    pool = stack.status("pool")
    assert (pool["failing"], pool["dirty"], pool["recent_read_errors"]) == (1, 0, 2)
    assert io(stack.guest, "/dev/mapper/vhdd", "r:2048:64") == ["a"]
    assert io(stack.guest, dev, "w:128:8:b", "f") == []
    assert io(stack.guest, "/dev/mapper/vhdd", "r:2176:8") == ["b"]
    stack.guest.run("sleep 1.5")
    assert "pool pool: cache device dm-0 is failing: 2 reads and 0 writes failed of late" in \
        stack.guest.run("dmesg").out
    said = stack.guest.run("hybridctl status pool", check=False).out
    assert "its cache device is failing (recent errors: 2 of reads, 0 of writes)" in said
    table = stack.table(), stack.table("pool")
    stack.guest.dm_remove("vol", "pool")
    stack.guest.dm_create("pool", table[1])
    stack.guest.dm_create("vol", table[0])
    assert stack.status("pool")["failing"] == 1
    stack.message("set", "read_error_limit", 3, name="pool")
    assert stack.status("pool")["failing"] == 0
    io(stack.guest, dev, "w:0:64:c", "f")
    assert stack.status()["dirty"] == 1


def test_a_place_that_fails_twice_is_retired(stack):
    """Whoever gets it next would pay again: after the second error nobody does, and the log says so."""
    dev = stack.create("vol", *ALL)
    free = stack.status("pool")["free"]
    op = next(op for op in stack.logged(lambda: io(stack.guest, dev, "r:0:128"))
              if op.device == "vssd" and op.op == "W" and op.count == 128)
    fail(stack, "ssd", "bad", op.sector, 8)
    stack.guest.run("dmesg -C")
    # The first error costs the sectors, and no more.
    assert io(stack.guest, dev, "r:0:8", "r:8:8") == ["0", "0"]
    assert stack.status("pool")["retired"] == 0 and stack.status()["cached"] == 1
    # They are filled again when the journal knows that they are gone (J4): that is the second.
    end = time.monotonic() + 60 * stack.guest.slow
    while not stack.status("pool")["retired"] and time.monotonic() < end:
        assert io(stack.guest, dev, "r:0:8", "r:16:8") == ["0", "0"]
        time.sleep(0.2)
    assert stack.status("pool")["retired"] == 1
    stack.guest.run("sleep 1.5")
    said = stack.guest.run("dmesg").out
    assert said.count("failed twice") == 1
    assert (f"pool pool: sector {op.sector} of dm-0 failed twice: block not used any more (1 so far)"
            in said)
    assert "1 block of the cache device failed twice" in \
        stack.guest.run("hybridctl status pool", check=False).out
    # All the cache is filled, and nothing goes there.
    errors_before = errors(stack)
    log = stack.logged(lambda: stack.guest.run(
        f"dd if={dev} of=/dev/null bs=64k iflag=direct status=none"))
    assert not [o for o in log if o.device == "vssd" and o.op in "RW" and
                o.sector < op.sector + 128 and o.sector + o.count > op.sector]
    assert errors(stack) == errors_before
    pool = stack.status("pool")
    assert pool["used"] > free - 32 and pool["used"] + pool["free"] < free
    # From the next load of the pool on it is a place as any other.
    fail(stack, "ssd", "bad", 0, 0)
    table = stack.table(), stack.table("pool")
    stack.guest.dm_remove("vol", "pool")
    stack.guest.dm_create("pool", table[1])
    stack.guest.dm_create("vol", table[0])
    assert stack.status("pool")["retired"] == 0


@pytest.mark.parametrize("what, step", [("read", "r:0:8"), ("write", "w:0:8:a")])
def test_origin_errors_pass_through(stack, what, step):
    dev = stack.create("vol", "--mode", "writearound", *ALL)
    fail(stack, "hdd", "fail", what, "on")
    assert io(stack.guest, dev, step) == ["EIO"]
    assert stack.status()["origin_errors"] >= 1
    fail(stack, "hdd", "fail", what, "off")
    assert io(stack.guest, dev, "w:0:8:b", "r:0:8") == ["b"]


def test_failed_origin_flush_is_reported(stack):
    dev = stack.create("vol", *ALL)
    fail(stack, "hdd", "fail", "flush", "once")
    assert io(stack.guest, dev, "w:0:8:a", "f") == ["EIO"]
    # The origin could not be flushed under that data: later flushes say so, too (S9).
    assert io(stack.guest, dev, "f") == ["EIO"]


@pytest.mark.parametrize("what, why", [("flush", "cannot be flushed"), ("read", "cannot be read"),
                                       ("write", "cannot be written")])
def test_origin_error_at_open(stack, what, why):
    """No volume comes up on an origin that does not do what an activation needs."""
    dev = stack.create("vol", *ALL)
    io(stack.guest, dev, "w:0:8:a", "f")
    table = stack.table()
    stack.guest.dm_remove("vol")
    fail(stack, "hdd", "fail", what, "on")
    assert why in stack.create_refused(table)
    fail(stack, "hdd", "fail", what, "off")
    stack.guest.dm_create("vol", table)
    assert io(stack.guest, dev, "r:0:8") == ["a"]


def test_origin_error_at_open_in_place(stack):
    """Nothing is read or written there, and what was written must be durable all the same."""
    size = stack.disk("hdd").sectors
    stack.guest.run("mkfs.ext4 -q /dev/mapper/vhdd")
    stack.create("vol", "--in-place")
    table = stack.table()
    assert table.endswith(" inplace") and f"0 {size} " in table
    stack.guest.dm_remove("vol")
    fail(stack, "hdd", "fail", "flush", "on")
    assert "cannot be flushed" in stack.create_refused(table)
    fail(stack, "hdd", "fail", "flush", "off")
    stack.guest.dm_create("vol", table)


def unflushed(stack, mode):
    """A volume whose origin has a write that no flush covers, and none comes by itself."""
    dev = stack.create("vol", "--mode", mode, *ALL)
    stack.message("set", "commit_interval", 60000, name="pool")
    stack.guest.run("sleep 1.5")
    io(stack.guest, dev, "w:0:8:a")
    fail(stack, "hdd", "fail", "flush", "on")
    return dev


@pytest.mark.parametrize("mode", ["writethrough", "writearound"])
def test_origin_error_at_close_before_a_deletion(stack, mode):
    """What the origin was sent last may be lost there: the volume is not deleted."""
    dev = unflushed(stack, mode)
    stack.guest.run("dmsetup suspend vol")
    assert "cannot delete volume 0" in stack.refused("dmsetup message pool 0 delete_volume 0")
    assert stack.message("volumes", name="pool").split()[:2] == ["0", "active"]
    fail(stack, "hdd", "fail", "flush", "off")
    stack.guest.run("dmsetup resume vol")
    assert io(stack.guest, dev, "r:0:8") == ["a"]
    # And again: no later flush makes good what this one may have lost (S9)
    stack.guest.run("dmsetup suspend vol")
    assert "cannot delete volume 0" in stack.refused("dmsetup message pool 0 delete_volume 0")
    stack.guest.run("dmsetup resume vol")
    assert io(stack.guest, dev, "f", "f") == ["EIO", "EIO"]
    stack.guest.run("dmsetup remove vol; dmsetup message pool 0 delete_volume 0")


@pytest.mark.parametrize("mode", ["writethrough", "writeback"])
def test_origin_error_at_close_is_said(stack, mode):
    """And no flag is taken off the origin, whose last writes may be lost."""
    if mode == "writeback":
        dev = stack.create("vol", "--mode", mode, *ALL)
        io(stack.guest, dev, "w:0:8:a", "f")
        stack.drain()
        fail(stack, "hdd", "fail", "write", "on")
    else:
        unflushed(stack, mode)
    table = stack.table()
    said = stack.guest.run("dmesg -C; dmsetup remove vol; dmesg").out
    assert "volume 0: cannot mark the origin clean" in said
    for what in "flush", "write":
        fail(stack, "hdd", "fail", what, "off")
    at = (512 << 10) + 100	# the flags of the first superblock
    flags = stack.guest.run(f"od -An -tu4 -j{at} -N4 /dev/mapper/vhdd").out
    assert int(flags) == (mode == "writeback")
    stack.guest.dm_create("vol", table)
    assert io(stack.guest, "/dev/mapper/vol", "r:0:8") == ["a"]


def test_writethrough_write_error_of_the_origin(stack):
    """The origin decides; the cache does not keep what it did not take."""
    dev = stack.create("vol", *ALL)
    io(stack.guest, dev, "w:0:128:a", "f")
    fail(stack, "hdd", "fail", "write", "on")
    assert io(stack.guest, dev, "w:0:8:b") == ["EIO"]
    fail(stack, "hdd", "fail", "write", "off")
    assert io(stack.guest, dev, "r:0:8")[0] in ("a", "b")
    assert io(stack.guest, dev, "r:0:8") == io(stack.guest, "/dev/mapper/vhdd", "r:2048:8")


@pytest.mark.kernels
def test_dead_cache_leaves_clean_volumes_running(make_stack):
    """P5: nothing but speed is lost, while it is mounted."""
    s = make_stack(volatile="ssd hdd hdd2", ssd=32, hdd=32, hdd2=64)
    clean, dirty = s.create("clean", *ALL), s.attach("dirty", "hdd2", "--mode", "writeback", *ALL)
    io(s.guest, clean, "w:0:256:a", "r:0:256")
    io(s.guest, dirty, "w:0:256:b", "f", "r:1024:128")
    fail(s, "ssd", "die")
    assert io(s.guest, clean, "r:0:256", "w:128:8:c", "f", "r:0:256", "w:8192:300:d", "f",
              "r:8192:300") == ["a", "aca", "d"]
    # Only what the cache alone has is lost.
    assert io(s.guest, dirty, "r:0:8", "r:1024:128", "r:4096:8") == ["EIO", "0", "0"]
    assert io(s.guest, dirty, "w:4096:8:e", "r:4096:8", "w:0:8:f") == ["e", "EIO"]
    # The pool has failed as soon as there is something to record.
    assert s.guest.run("dmsetup message pool 0 checkpoint", check=False).rc
    s.wait("state", "failed", "pool")
    assert s.status("clean")["state"] == s.status("dirty")["state"] == "degraded"
    assert s.status("dirty")["dirty"] == 2
    # Suspend, resume and removal return.
    s.guest.run("dmsetup suspend clean && dmsetup resume clean && dmsetup suspend pool && "
                "dmsetup resume pool && dmsetup suspend --noflush dirty && dmsetup resume dirty",
                timeout=30)
    assert io(s.guest, clean, "r:0:256", "r:8192:300") == ["aca", "d"]
    assert io(s.guest, dirty, "r:0:8", "r:4096:8") == ["EIO", "e"]
    s.guest.dm_remove("clean", "dirty", "pool")
    assert io(s.guest, "/dev/mapper/vhdd", "r:2048:256", "r:10240:300") == ["aca", "d"]
    s.guest.run("rmmod dm-hybrid-c2q dm-hybrid")


@pytest.mark.parametrize("written", [True, False], ids=["written", "closed"])
def test_what_is_lost_is_listed(stack, written):
    """P5: by the volume while it is active, and by its origin from then on."""
    dev = stack.create("vol", "--mode", "writeback", *ALL)
    io(stack.guest, dev, "w:0:128:a", "w:1032:8:b", "f", "w:9000:16:c")
    assert stack.message("lost") == ""
    fail(stack, "ssd", "die")
    assert stack.guest.run("dmsetup message pool 0 checkpoint", check=False).rc
    stack.wait("state", "degraded")
    assert stack.status()["lost"] == 3
    assert sorted(stack.message("lost").split()) == sorted("0 128 1032 8 9000 16".split())
    assert stack.message("lost", 1 << 40) == ""
    assert "unknown" not in stack.refused("dmsetup message vol 0 lost x")
    assert "up to 76" in stack.guest.run("hybridctl status vol", check=False).out
    if written:
        assert io(stack.guest, dev, "w:4096:8:d", "r:4096:8", "r:0:8") == ["d", "EIO"]
    table = stack.table(), stack.table("pool")
    stack.guest.dm_remove("vol", "pool")
    r = stack.guest.run("hybridctl lost --json /dev/mapper/vhdd", check=False)
    assert [(x["offset"] // 512, x["length"] // 512) for x in json.loads(r.out)["lost"]] == [
        (0, 128), (1024, 128), (8960, 128)] and r.rc == 7, r.text
    # The cache comes back, and with it the data; what was written without it stays.
    fail(stack, "ssd", "revive")
    stack.guest.dm_create("pool", table[1])
    stack.guest.dm_create("vol", table[0])
    assert io(stack.guest, dev, "r:0:128", "r:1032:8", "r:4096:8") == ["a", "b", "d" if written else "0"]
    assert stack.status()["lost"] == 0 and stack.message("lost") == ""
    stack.drain()
    stack.guest.dm_remove("vol", "pool")
    assert stack.guest.run("hybridctl lost /dev/mapper/vhdd").out == "nothing is lost\n"


@pytest.mark.parametrize("how", ["dirty", "clean"])
def test_cache_that_died_and_came_back(stack, how):
    """The origin was written alone: the clean data of the cache is dropped, the dirty is the newest (J9)."""
    dev = stack.create("vol", "--mode", "writeback", *ALL)
    io(stack.guest, dev, "r:0:128", *(["w:1024:8:x", "f"] if how == "dirty" else []))
    table = stack.table(), stack.table("pool")
    fail(stack, "ssd", "die")
    io(stack.guest, dev, "w:0:8:a", "f")
    stack.guest.run("sleep 1.5")
    assert io(stack.guest, dev, "w:0:8:b", "f", "r:0:8") == ["b"]
    stack.guest.dm_remove("vol", "pool")
    fail(stack, "ssd", "revive")
    stack.guest.dm_create("pool", table[1])
    stack.guest.dm_create("vol", table[0])
    dirty = how == "dirty"
    assert io(stack.guest, dev, "r:0:8", "r:8:8", "r:1024:8") == ["b", "0", "x" if dirty else "0"]
    if dirty:
        stack.guest.run("timeout 30 sh -c 'until dmesg | grep -q \"4 KiB that only\"; do sleep 0.2; done'")


@pytest.mark.kernels
def test_dead_origin(stack):
    """Hits are served, the rest fails; everything can be removed and comes back."""
    dev = stack.create("vol", "--mode", "writeback", *ALL)
    io(stack.guest, dev, "w:0:8:a", "f", "r:128:128")
    fail(stack, "hdd", "die")
    assert io(stack.guest, dev, "r:0:8", "w:0:8:b", "f", "r:0:8", "r:128:8", "r:4096:8") == [
        "a", "b", "0", "EIO"]
    stack.message("drain")
    stack.guest.run("sleep 1")
    assert stack.status()["dirty"] == 1
    stack.guest.run("dmsetup suspend vol && dmsetup resume vol", timeout=30)
    stack.guest.run("dmsetup remove vol && dmsetup remove pool", timeout=30)
    fail(stack, "hdd", "revive")
    stack.activate()
    assert io(stack.guest, dev, "r:0:8") == ["b"]
    stack.drain()
    assert io(stack.guest, "/dev/mapper/vhdd", "r:2048:8") == ["b"]


@pytest.mark.parametrize("member", ["ssd", "hdd"])
def test_member_dies_under_load(stack, member):
    """Whoever waits is answered; suspend and removal return."""
    dev = stack.create("vol", "--mode", "writeback", *ALL)
    job = stack.guest.run_bg(
        f"fio --name=t --filename={dev} --rw=randrw --bsrange=512-128k --direct=1 --thread "
        "--ioengine=libaio --iodepth=16 --time_based --runtime=4 --fsync=16 "
        "--continue_on_error=all --size=40m")
    stack.guest.run("sleep 1.5")
    fail(stack, member, "die")
    job.wait(timeout=60, check=False)
    stack.guest.run("dmsetup suspend vol && dmsetup resume vol", timeout=30)
    stack.guest.run("dmsetup remove vol && dmsetup remove pool", timeout=30)
    stack.guest.run("rmmod dm-hybrid-c2q dm-hybrid", timeout=30)


def test_origin_errors_during_fills_and_writeback(stack):
    """A sector that cannot be read fails what wants it, and is never called cached."""
    dev = stack.create("vol", "--mode", "writeback", *ALL)
    fail(stack, "hdd", "fail", "read", "on")
    assert io(stack.guest, dev, "r:0:8", "r:0:128") == ["EIO", "EIO"]
    fail(stack, "hdd", "fail", "read", "off")
    assert io(stack.guest, dev, "r:0:128") == ["0"]
    io(stack.guest, dev, "w:0:8:a", "f")
    fail(stack, "hdd", "fail", "write", "on")
    stack.message("drain")
    stack.guest.run("sleep 1")
    assert stack.status()["dirty"] == 1 and stack.status()["origin_errors"] > 0
    assert io(stack.guest, dev, "r:0:8") == ["a"]
    fail(stack, "hdd", "fail", "write", "off")
    stack.wait("dirty", 0)
    assert io(stack.guest, "/dev/mapper/vhdd", "r:2048:8") == ["a"]
