# SPDX-License-Identifier: GPL-2.0-or-later
"""Origins grow under volumes that are in use, and the volumes and their file systems follow."""
import pytest

from .stack import io
from .test_live import LOAD, killed_at, mortal, states, stop, sums  # noqa: F401 (mortal is a fixture)

SMALL, LARGE, LARGEST = 32, 44, 47	# MiB of the origin
MKFS = {"xfs": "--unsupported"}	# so small
GROW = {"ext4": "resize2fs /dev/mapper/vol", "xfs": "xfs_growfs /mnt"}


def origin(s, mib):
    """The origin has that size: a linear device, as LVM makes them."""
    table = f"0 {mib * 2048} linear {s.dev('hdd')} 0"
    if "slow" in s.guest.run("dmsetup ls").out:
        s.guest.run("dmsetup load slow && dmsetup suspend --noflush --nolockfs slow; dmsetup resume slow",
                    input=table + "\n")
    else:
        # It has an identity, as disks have by their serial numbers
        s.guest.run("dmsetup create slow --uuid TEST-a-disk", input=table + "\n")


def create(s, *options):
    origin(s, SMALL)
    s.guest.run(["hybridctl", "create", "vol", "--cache", s.dev("ssd"), "--origin", "/dev/mapper/slow", "--pool",
                 "pool", "--yes", "--cutoff", "0", *options])


def files(s, fs):
    s.guest.run(f"mkfs.{fs} {MKFS.get(fs, '')} /dev/mapper/vol >&2; mount /dev/mapper/vol /mnt; cd /mnt; "
                "for n in 1 2 3; do dd if=/dev/urandom of=file$n bs=1M count=2 conv=fsync; done")
    return sums(s)


def mib(s, name="vol"):
    return int(s.guest.run(f"blockdev --getsz /dev/mapper/{name}").out) / 2048


def entry(s):
    return s.guest.run("dmsetup message pool 0 volumes").out.split()


def boot(s):
    s.guest.power_cut()
    s.guest.boot()
    s.guest.modprobe("dm-testdisk", "dm-hybrid")
    origin(s, LARGE)
    s.guest.run("hybridctl activate --all")


def filled(s):
    """Not all of it fits on what the file system had."""
    s.guest.run("dd if=/dev/urandom of=/mnt/file4 bs=1M count=10 conv=fsync")
    return sums(s)


@pytest.mark.kernels
@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_in_use(make_stack, fs):
    s = make_stack(ssd=24, hdd=48)
    create(s, "--mode", "writeback")
    before = files(s, fs)
    load = s.guest.run_bg(LOAD.replace("4m", "1m"))
    origin(s, LARGE)
    out = s.guest.run("hybridctl status vol", check=False).out
    assert "its origin has grown by 12 MiB" in out and "action: hybridctl resize vol" in out
    s.guest.run("hybridctl resize vol")
    assert mib(s) == LARGE - 2 and states(s)["vol"] == "running"
    assert entry(s)[7] == str((LARGE - 2) * 2048) and entry(s)[12] == "0"
    s.guest.run(GROW[fs])
    assert sums(s) == before
    stop(s, load)
    before = filled(s)
    boot(s)
    s.guest.run("mount /dev/mapper/vol /mnt")
    assert mib(s) == LARGE - 2 and sums(s) == before
    # The end is the origin's, too
    s.guest.run("umount /mnt; hybridctl detach vol; hybridctl activate vol; mount /dev/mapper/vol /mnt")
    assert mib(s) == LARGE - 2 and sums(s) == before
    s.guest.run("umount /mnt")


def below(s, offset):
    """Where the data are without dm-hybrid: a device, which is there once."""
    if not offset:
        return "/dev/mapper/slow"
    s.guest.run(f"dmsetup create data --table \"0 $(($(blockdev --getsz /dev/mapper/slow) - {offset})) linear "
                f"/dev/mapper/slow {offset}\"")
    return "/dev/mapper/data"


@pytest.mark.parametrize("offset", [0, 16])
def test_in_place(make_stack, offset):
    """
    It is found again by its new size, and what its old end cut off is the origin's.  Also behind what
    another cache had before the data.
    """
    s = make_stack(ssd=24, hdd=48)
    origin(s, SMALL)
    s.guest.run(f"mkfs.ext4 -q -b 4096 {below(s, offset)}; dmsetup remove --force data 2>/dev/null; "
                f"hybridctl create vol --cache {s.dev('ssd')} --origin /dev/mapper/slow --pool pool -y --cutoff 0 "
                f"--in-place {f'--data-offset {offset * 512}' if offset else ''}; "
                "mount /dev/mapper/vol /mnt; dd if=/dev/urandom of=/mnt/file1 bs=1M count=2 conv=fsync")
    before = sums(s)
    load = s.guest.run_bg(LOAD.replace("4m", "1m"))
    origin(s, LARGE)
    out = s.guest.run("hybridctl status vol", check=False).out
    assert "its origin has grown by 12 MiB" in out and "action: hybridctl resize vol" in out
    s.guest.run("hybridctl resize vol; resize2fs /dev/mapper/vol")
    assert mib(s) == LARGE - offset / 2048 and sums(s) == before
    stop(s, load)
    before = filled(s)
    boot(s)
    s.guest.run("mount /dev/mapper/vol /mnt")
    assert mib(s) == LARGE - offset / 2048 and sums(s) == before
    s.guest.run("hybridctl detach vol --live")
    # Linear, it grows once more
    origin(s, LARGEST)
    s.guest.run("hybridctl resize vol; resize2fs /dev/mapper/vol")
    assert mib(s) == LARGEST - offset / 2048 and sums(s) == before and states(s)["vol"] == "no-cache"
    s.guest.run("umount /mnt; dmsetup remove vol")
    s.guest.run(f"mount {below(s, offset)} /mnt")
    assert sums(s) == before
    s.guest.run("umount /mnt")


def test_without_a_cache(make_stack):
    s = make_stack(ssd=24, hdd=48)
    create(s)
    before = files(s, "ext4")
    s.guest.run("hybridctl detach vol --live")
    origin(s, 40)
    s.guest.run("hybridctl resize vol; resize2fs /dev/mapper/vol")
    assert mib(s) == 38 and sums(s) == before and states(s)["vol"] == "no-cache"
    s.guest.run("umount /mnt; hybridctl deactivate vol")
    origin(s, LARGE)
    s.guest.run("hybridctl resize vol; hybridctl activate vol; mount /dev/mapper/vol /mnt; "
                "hybridctl attach pool vol --live; resize2fs /dev/mapper/vol")
    assert mib(s) == LARGE - 2 and states(s)["vol"] == "running" and sums(s) == before
    s.guest.run("umount /mnt")


STEPS = ["message pool: volumes", "message vol: grow", "load vol", "resume vol"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("power", [False, True])
def test_killed_at_each_step(make_stack, mortal, step, power):  # noqa: F811
    """The old size or the new one; the command again ends it, also where the device was left suspended."""
    s = make_stack(ssd=24, hdd=48)
    create(s, "--mode", "writeback")
    before = files(s, "ext4")
    origin(s, LARGE)
    killed_at(s, mortal, step, "hybridctl resize vol")
    if power:
        boot(s)
        s.guest.run("mount /dev/mapper/vol /mnt")
    elif step == STEPS[1]:
        # Whoever resumes it has what there was
        s.guest.run("dmsetup resume vol")
        assert mib(s) == SMALL - 2 and sums(s) == before
    s.guest.run("hybridctl resize vol")
    assert mib(s) == LARGE - 2 and entry(s)[12] == "0" and states(s)["vol"] == "running"
    assert sums(s) == before
    s.guest.run("resize2fs /dev/mapper/vol")
    before = filled(s)
    boot(s)
    s.guest.run("mount /dev/mapper/vol /mnt")
    assert mib(s) == LARGE - 2 and sums(s) == before
    s.guest.run("umount /mnt")


def test_refused(make_stack):
    s = make_stack(ssd=24, hdd=48)
    create(s)
    io(s.guest, "/dev/mapper/vol", "w:0:128:a", "f")
    s.guest.run("hybridctl resize vol")
    assert "not suspended" in s.refused("dmsetup message vol 0 grow")
    assert "only an origin in place" in s.refused(
        "dmsetup message vol 0 grow 00000007-0000-0000-0000-000000000002")
    r = s.guest.run("hybridctl resize pool", check=False)
    assert r.rc == 2 and "hybridctl replace-cache pool" in r.err
    table = s.table()
    origin(s, LARGE)
    # A longer table before the volume has grown
    longer = table.replace(str((SMALL - 2) * 2048), str((LARGE - 2) * 2048), 1)
    assert "Length of the table is not the size of the volume" in s.refused("dmsetup load vol", longer + "\n")
    # And a shorter one after that, but for the one that has it open
    s.guest.run("dmsetup suspend vol; dmsetup message vol 0 grow")
    assert "Length of the table is not the size of the volume" in s.refused("dmsetup load vol", table + "\n")
    s.guest.run("dmsetup resume vol")
    assert io(s.guest, "/dev/mapper/vol", "r:0:128") == ["a"] and mib(s) == SMALL - 2
    s.guest.run("hybridctl resize vol")
    assert mib(s) == LARGE - 2 and io(s.guest, "/dev/mapper/vol", "r:0:128") == ["a"]


def test_a_longer_table_after_a_growth_that_failed(make_stack):
    """Users' writes would reach the tail of the old size, which the next activation still needs."""
    s = make_stack(ssd=24, hdd=48, volatile="ssd")
    create(s)
    longer = s.table().replace(str((SMALL - 2) * 2048), str((LARGE - 2) * 2048), 1)
    origin(s, LARGE)
    s.guest.run("dmsetup suspend vol")
    s.guest.dm_message("vssd", "fail", "write", "on")
    assert s.guest.run("dmsetup message vol 0 grow", check=False).rc
    s.guest.dm_message("vssd", "fail", "write", "off")
    s.guest.run("dmsetup load vol", input=longer + "\n")
    assert s.guest.run("dmsetup resume vol", check=False).rc
    s.guest.run("hybridctl deactivate pool")
    s.guest.run("hybridctl activate vol")
    assert mib(s) == SMALL - 2
    s.guest.run("hybridctl resize vol")
    assert mib(s) == LARGE - 2 and states(s)["vol"] == "running"
