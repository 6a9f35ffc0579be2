# SPDX-License-Identifier: GPL-2.0-or-later
"""Pools and volumes get another name while they are in use, and over power cuts."""
import pytest

from .stack import io
from .test_life import probe
from .test_live import LOAD, fill, killed_at, mortal, states, stop, sums, target  # noqa: F401 (mortal is a fixture)

SIZES = {"ssd": 24, "hdd": 48, "other": 32}


def names(s):
    """What the members say, both copies of each, and the entries."""
    for disk in SIZES:
        # A copy that is older would count after the other one rots
        place = s.guest.run(f"blockdev --getsz {s.dev(disk)}").out.strip()
        copies = s.guest.run(f"for n in 1024 $(({place} / 8 * 8 - 1024)); do "
                             f"dd if={s.dev(disk)} bs=1 skip=$((n * 512 + 112)) count=64 status=none | tr -d '\\0'; echo; "
                             "done").out.split()
        assert copies[0] == copies[1] == probe(s, disk)["name"]
        yield copies[0]
    yield sorted(line.split()[3] for line in s.guest.run("dmsetup message pool 0 volumes || "
                                                         "dmsetup message nvme 0 volumes").out.splitlines())


def two_volumes(s):
    s.create("vol", "--cutoff", "0", "--mode", "writeback")
    before = fill(s, "ext4")
    s.attach("two", "other", "--cutoff", "0", "--mode", "writeback")
    io(s.guest, "/dev/mapper/two", "w:0:128:a", "f")
    return before


def seen(s, name="two"):
    return io(s.guest, f"/dev/mapper/{name}", "r:0:128")


@pytest.mark.kernels
def test_in_use(make_stack):
    """Its users do not notice; and what is durable when the command returns is so after a cut."""
    s = make_stack(**SIZES)
    before = two_volumes(s)
    load = s.guest.run_bg(LOAD)
    for _ in range(3):
        for old, new in ("vol", "data"), ("data", "vol"):
            s.guest.run(f"hybridctl rename {old} {new}")
            assert target(s, new) == "hybrid" and s.guest.run(f"test -e /dev/mapper/{old}", check=False).rc
    s.guest.run("hybridctl rename vol data && hybridctl rename pool nvme")
    assert states(s) == {"nvme": "running", "data": "running", "two": "running"}
    assert sums(s) == before
    stop(s, load)
    assert list(names(s)) == ["nvme", "data", "two", ["data", "two"]]
    # The journal of a file system, and all of its data, are on one device
    s.guest.run("dd if=/dev/urandom of=/mnt/file1 bs=1M count=2 conv=fsync,notrunc")
    before = sums(s)
    s.guest.power_cut()
    s.guest.boot()
    s.guest.modprobe("dm-testdisk", "dm-hybrid")
    s.guest.run("hybridctl activate --all; mount /dev/mapper/data /mnt")
    assert states(s) == {"nvme": "running", "data": "running", "two": "running"}
    assert sums(s) == before and seen(s) == ["a"]
    s.guest.run("umount /mnt; hybridctl deactivate --all")
    s.guest.run("hybridctl rename nvme pool && hybridctl activate pool && hybridctl deactivate data --keep-pool && "
                "hybridctl rename data vol && hybridctl activate vol && mount /dev/mapper/vol /mnt")
    assert list(names(s)) == ["pool", "vol", "two", ["two", "vol"]] and sums(s) == before
    s.guest.run("umount /mnt")


def test_without_a_cache(make_stack):
    """In use, too: nobody but the tools writes those superblocks."""
    s = make_stack(ssd=24, hdd=48)
    s.create("vol", "--cutoff", "0")
    before = fill(s, "ext4")
    s.guest.run("hybridctl detach vol --live; hybridctl rename vol data")
    assert states(s)["data"] == "no-cache" and sums(s) == before
    s.guest.run("umount /mnt; hybridctl deactivate data; hybridctl rename data vol; hybridctl activate vol; "
                "mount /dev/mapper/vol /mnt")
    assert sums(s) == before
    s.guest.run("umount /mnt")


@pytest.mark.parametrize("step", ["message pool: rename_volume", "rename vol"])
@pytest.mark.parametrize("power", [False, True])
def test_killed_at_each_step(make_stack, mortal, step, power):  # noqa: F811
    """What was durable counts: for the device, too, as soon as an activation looks."""
    s = make_stack(**SIZES)
    before = two_volumes(s)
    killed_at(s, mortal, step, "hybridctl rename vol data")
    if power:
        s.guest.power_cut()
        s.guest.boot()
        s.guest.modprobe("dm-testdisk", "dm-hybrid")
    s.guest.run("hybridctl activate --all")
    if power:
        s.guest.run("mount /dev/mapper/data /mnt")
    assert states(s) == {"pool": "running", "data": "running", "two": "running"}
    assert sums(s) == before and list(names(s)) == ["pool", "data", "two", ["data", "two"]]
    s.guest.run("umount /mnt")


def test_beside_the_first_dirty_writes(make_stack):
    """The superblock has its dirty flag to be written, and a flush before that: one at a time."""
    s = make_stack(volatile="ssd hdd", ssd=24, hdd=48)
    dev = s.create("vol", "--cutoff", "0", "--mode", "writeback")
    for n in range(12):
        s.drain()
        s.guest.run("hybridctl deactivate --all")
        s.activate()
        load = s.guest.run_bg(f"for i in 1 2 3 4 5 6; do dd if=/dev/zero of={dev} bs=4k count=4 oflag=direct "
                              "conv=fsync,notrunc; done")
        s.guest.run(f"dmsetup message pool 0 rename_volume 0 name{n}")
        load.wait(60)
        assert s.guest.run(f"hybridctl probe {s.dev('hdd')}").out.count(f"name{n}") == 1
        assert "its cache may have newer" in s.guest.run(f"hybridctl probe {s.dev('hdd')}").out
        io(s.guest, dev, "w:0:8:a", "f", "r:0:8")
        s.guest.run(f"dmsetup rename vol name{n}; dmsetup message pool 0 rename_volume 0 vol; "
                    f"dmsetup rename name{n} vol")


def test_an_origin_that_cannot_be_written(make_stack):
    """The name stays; where a copy has got the other one the entry is right, and the next open says so."""
    s = make_stack(volatile="ssd hdd", ssd=24, hdd=48)
    dev = s.create("vol", "--cutoff", "0")
    io(s.guest, dev, "w:0:128:a", "f")
    s.guest.dm_message("vhdd", "fail", "write", "once")
    r = s.guest.run("hybridctl rename vol data", check=False)
    assert r.rc and "vol was not renamed" in r.err and target(s) == "hybrid", r.text
    assert states(s)["vol"] == "running"
    s.guest.run("hybridctl deactivate --all")
    s.activate()
    assert probe(s, "hdd")["name"] == "vol" and io(s.guest, dev, "r:0:128") == ["a"]


def test_names_that_are_taken(make_stack):
    s = make_stack(**SIZES)
    two_volumes(s)
    s.guest.dm_create("mine", f"0 2048 linear {s.dev('ssd')} 0")
    for old, new, says in (("vol", "two", "a volume two already exists"),
                           ("vol", "pool", "a pool pool already exists"),
                           ("pool", "mine", "a device-mapper device mine exists already")):
        r = s.guest.run(f"hybridctl rename {old} {new}", check=False)
        assert r.rc == 5 and says in r.err, r.text
    assert list(names(s)) == ["pool", "vol", "two", ["two", "vol"]]
    s.guest.run("umount /mnt; dmsetup remove mine")
