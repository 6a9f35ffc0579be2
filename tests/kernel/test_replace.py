# SPDX-License-Identifier: GPL-2.0-or-later
"""The volumes of a pool get another cache device, while they are in use and over power cuts."""
import time

import pytest

from .stack import io
from .test_life import cut, entries, faults, probe  # noqa: F401 (cut and faults are fixtures)
from .test_live import LOAD, fill, states, stop, sums, target

SIZES = {"ssd": 24, "new": 32, "hdd": 48, "other": 32}


def two_volumes(s):
    """vol, mounted, and two: each with data that only the cache has.  What is in vol."""
    s.create("vol", "--cutoff", "0", "--mode", "writeback")
    # What is dirty stays so until it is drained
    s.guest.run("hybridctl set pool high_watermark=95 low_watermark=90")
    dev = s.attach("two", "other", "--cutoff", "0", "--mode", "writeback")
    before = fill(s, "ext4")
    io(s.guest, dev, "w:0:128:a", "w:4096:64:b", "f")
    assert s.status("two")["dirty"] > 0
    return before


def seen(s):
    return io(s.guest, "/dev/mapper/two", "r:0:128", "r:4096:64", "r:128:8")


def replace(s, *options, **kw):
    return s.guest.run(["hybridctl", "replace-cache", "pool", *options], timeout=120, **kw)


def to_new(s):
    return "--cache", s.dev("new"), "--yes", "--wipe-signatures"


def pool_on(s, disk):
    """The one pool that there is, and both volumes on it."""
    assert probe(s, disk)["name"] == "pool"
    pools = s.guest.run("dmsetup ls --target hybrid-pool").out.split("\n")
    assert [line.split()[0] for line in pools if line] == ["pool"]
    assert s.guest.run("dmsetup deps -o devname pool").out.count(disk_name(s, disk)) == 1
    assert states(s)["vol"] == states(s)["two"] == "running"
    assert len(entries(s).splitlines()) == 2


def disk_name(s, disk):
    return s.guest.run(f"basename $(readlink -f {s.dev(disk)})").out.strip()


@pytest.mark.kernels
def test_in_use(make_stack):
    """Nobody notices; what was dirty is on the origins, and what is written from then on survives a cut."""
    s = make_stack(**SIZES)
    before = two_volumes(s)
    load = s.guest.run_bg(LOAD)
    out = replace(s, *to_new(s)).out
    assert out.index("vol has moved") < out.index("two has moved")
    pool_on(s, "new")
    assert s.status("pool")["high_watermark"] == 95 and s.status()["mode"] == "writeback"
    assert s.guest.run(f"hybridctl probe {s.dev('ssd')}", check=False).rc == 4
    assert s.guest.run("hybridctl status").rc == 0
    assert sums(s) == before and seen(s) == ["a", "b", "0"]
    stop(s, load)
    s.guest.run("dd if=/dev/urandom of=/mnt/file1 bs=1M count=2 conv=fsync,notrunc")
    io(s.guest, "/dev/mapper/two", "w:128:8:c", "f")
    assert s.status("two")["dirty"] > 0
    before = sums(s)
    s.guest.power_cut()
    s.guest.boot()
    s.guest.modprobe("dm-testdisk", "dm-hybrid")
    s.guest.run("hybridctl activate --all; mount /dev/mapper/vol /mnt")
    pool_on(s, "new")
    assert sums(s) == before and seen(s) == ["a", "b", "c"]
    # And back
    replace(s, "--cache", s.dev("ssd"), "--yes", "--wipe-signatures")
    pool_on(s, "ssd")
    assert sums(s) == before and seen(s) == ["a", "b", "c"]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_resume_fails(make_stack, faults, n):
    """No table stays loaded that a later resume would bring in, beside a cache that is used again."""
    s = make_stack(**SIZES)
    dev = s.create("vol", "--cutoff", "0", "--mode", "writeback")
    io(s.guest, dev, "w:0:128:a", "f")
    assert io(s.guest, dev, "r:0:128") == ["a"]
    command = " ".join(["hybridctl replace-cache pool", *to_new(s)])
    r = s.guest.run(f"env LD_PRELOAD={faults} FAULT_RESUME={n} {command}", timeout=120, check=False)
    assert r.rc not in (0, 2) and "resume" in r.err, r.text
    if "Suspended" in s.guest.run("dmsetup info -c --noheadings -o suspended vol").out:
        s.guest.run("hybridctl activate --all", check=False)
    io(s.guest, dev, "w:0:8:b", "f")
    s.guest.run("hybridctl activate --all", check=False)
    assert io(s.guest, dev, "r:0:8", "r:8:120") == ["b", "a"]
    s.guest.power_cut()
    s.guest.boot()
    s.guest.modprobe("dm-testdisk", "dm-hybrid")
    s.guest.run("hybridctl activate --all", check=False)
    assert io(s.guest, dev, "r:0:8", "r:8:120") == ["b", "a"]
    replace(s, *([] if "pool-new" in s.guest.run("dmsetup ls").out else to_new(s)))
    assert target(s) == "hybrid"
    assert io(s.guest, dev, "r:0:8", "r:8:120") == ["b", "a"]


@pytest.mark.parametrize("n", [6, 7, 8, 10, 11, 12])
def test_cut_in_a_superblock(make_stack, cut, n):  # noqa: F811
    """A boot finds all data with one cache or the other, and the command goes on."""
    s = make_stack(**SIZES)
    before = two_volumes(s)
    cut(s, n, " ".join(["hybridctl replace-cache pool", *to_new(s)]))
    s.guest.run("hybridctl activate --all; mount /dev/mapper/vol /mnt")
    assert states(s)["vol"] == states(s)["two"] == "running"
    assert sums(s) == before and seen(s) == ["a", "b", "0"]
    status = s.guest.run("hybridctl status", check=False)
    assert status.rc == 7 and "hybridctl replace-cache pool" in status.out
    replace(s)
    pool_on(s, "new")
    assert sums(s) == before and seen(s) == ["a", "b", "0"]
    assert s.guest.run("hybridctl status").rc == 0


def wait_until(s, condition, timeout=60):
    end = time.monotonic() + timeout * s.guest.slow
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


def number(s, name):
    return s.guest.run(["dmsetup", "info", "-c", "--noheadings", "-o", "devno", name], check=False).out.strip()


def half_way(s):
    """vol has moved, and two cannot be drained: (what is in vol, the command that runs)."""
    before = two_volumes(s)
    # Then a new device that fails takes nothing of it away
    s.message("mode", "writethrough")
    s.guest.dm_message("vother", "fail", "write", "on")
    job = s.guest.run_bg(["hybridctl", "replace-cache", "pool", *to_new(s)])
    wait_until(s, lambda: s.status("two")["drain_on"] and s.status("two")["origin_errors"])
    assert s.table().split()[3] == number(s, "pool-new") and s.status("two")["dirty"] > 0
    return before, job


@pytest.mark.parametrize("step", ["drain", "suspend", "release"])
def test_killed(make_stack, step):
    """Whoever gives the command again gets the end of it."""
    s = make_stack(volatile="other", **SIZES)
    before, job = half_way(s)
    s.guest.run("pkill -KILL hybridctl")
    assert job.wait(check=False).rc
    s.guest.dm_message("vother", "fail", "write", "off")
    s.message("reset_counters", name="two")
    # As if it had been killed there
    if step != "drain":
        s.wait("dirty", 0, "two")
        s.guest.run("dmsetup suspend two")
    if step == "release":
        s.message("release_volume", 1, name="pool")
    replace(s)
    pool_on(s, "new")
    assert sums(s) == before and seen(s) == ["a", "b", "0"]


def test_the_new_device_fails(make_stack):
    """Half way: what has moved goes on without a cache, and the rest with the old one."""
    s = make_stack(volatile="new other", **SIZES)
    before, job = half_way(s)
    s.guest.dm_message("vnew", "die")
    s.guest.run("dmsetup message pool-new 0 checkpoint", check=False)
    s.guest.dm_message("vother", "fail", "write", "off")
    r = job.wait(120, check=False)
    assert r.rc == 6 and "pool-new is failed" in r.err, r.text
    assert s.status("vol")["state"] == "degraded"
    assert s.status("two")["state"] == "running" and s.status("two")["drain_on"] == 0
    assert sums(s) == before and seen(s) == ["a", "b", "0"]
    s.guest.run("dd if=/dev/urandom of=/mnt/file2 bs=1M count=1 conv=fsync,notrunc")
    io(s.guest, "/dev/mapper/two", "w:128:8:c", "f")
    before = sums(s)
    # As it says: what has moved is detached, and another device taken
    r = replace(s, check=False)
    assert r.rc == 7 and "detach --live its volumes" in r.err
    s.guest.run("hybridctl detach vol --live && dmsetup remove pool-new && dmsetup remove vnew")
    assert target(s) == "linear" and sums(s) == before and seen(s) == ["a", "b", "c"]
    assert (states(s)["vol"], states(s)["two"], states(s)["pool"]) == ("no-cache", "running", "running")
