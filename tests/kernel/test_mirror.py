# SPDX-License-Identifier: GPL-2.0-or-later
"""create with two --cache: an md RAID1 below the pool, of which either disk may die."""
import json

import pytest

from .stack import io

# Written, read and compared, again and again, until it is told to stop
LOAD = ("until test -e /tmp/stop; do fio --name=load --filename=/dev/mapper/vol --size=4m --rw=randrw --bs=4k --direct=1 "
        "--ioengine=libaio --iodepth=8 --verify=crc32c --fsync=16 >/dev/null || exit 1; done")
LEGS = ("one", "two")


@pytest.fixture
def stack(make_stack):
    """Its cache is /dev/md/pool, of the volatile devices vone and vtwo."""
    s = make_stack(volatile="one two", ssd=4, hdd=48, one=32, two=32)
    create(s)
    return s


def create(s, *options, check=True):
    words = [word for leg in LEGS for word in ("--cache", s.dev(leg))]
    return s.guest.run(["hybridctl", "create", "vol", *words, "--origin", s.dev("hdd"), "--pool", "pool", "--mode",
                        "writeback", "--cutoff", "0", "--yes", "--wipe-signatures", *options], check=check)


def in_sync(s):
    """Both legs are in the array, and hold the same."""
    s.guest.run("until grep -q '\\[UU\\]' /proc/mdstat && ! grep -q = /proc/mdstat; do sleep 0.1; done",
                timeout=60 * s.guest.slow)


def degraded(s):
    status = s.guest.run("hybridctl status pool", check=False)
    return status.rc == 7 and "is an array that lacks a disk" in status.out and "--add DEVICE" in status.out


def assembled(s, *legs):
    """After a boot, as mdadm's rules do it: of these legs alone, if not all are there."""
    s.guest.boot()
    s.guest.modprobe("dm-testdisk", "dm-hybrid")
    s.members()
    s.guest.run(["mdadm", "--assemble", "--run", "/dev/md/pool", *map(s.dev, legs)])
    s.guest.run(["hybridctl", "activate", "--all", "--device", "/dev/md/pool", "--device", s.dev("hdd")])


@pytest.mark.parametrize("leg", LEGS)
def test_a_leg_dies_under_load(stack, leg):
    """Nobody notices but status; what is written meanwhile is on the other, and on a third one later."""
    s = stack
    in_sync(s)
    assert s.guest.run("hybridctl status").rc == 0
    io(s.guest, "/dev/mapper/vol", "w:57344:1024:a", "f")
    load = s.guest.run_bg(LOAD)
    s.guest.dm_message(f"v{leg}", "die")
    s.guest.run("until grep -q '(F)' /proc/mdstat; do sleep 0.1; done; touch /tmp/stop", timeout=60 * s.guest.slow)
    assert load.wait(60 * s.guest.slow).rc == 0
    assert s.status("pool")["state"] == "running" and degraded(s)
    io(s.guest, "/dev/mapper/vol", "w:0:1024:b", "f")
    # Another disk in its place; then the one that was left goes, too
    s.guest.dm_message(f"v{leg}", "revive")
    s.guest.run(f"mdadm /dev/md/pool --remove {s.dev(leg)}; mdadm --zero-superblock {s.dev(leg)}; "
                f"mdadm /dev/md/pool --add {s.dev(leg)}")
    in_sync(s)
    assert s.guest.run("hybridctl status").rc == 0
    other, = set(LEGS) - {leg}
    s.guest.dm_message(f"v{other}", "die")
    assert io(s.guest, "/dev/mapper/vol", "r:0:1024", "r:57344:1024") == ["b", "a"]
    s.drain()
    assert io(s.guest, s.dev("hdd"), "r:2048:1024", "r:59392:1024") == ["b", "a"]


@pytest.mark.parametrize("legs", [LEGS, LEGS[:1], LEGS[1:]])
def test_a_power_cut_and_a_boot_with_one_leg(stack, legs):
    """What a flush acknowledged is on each of them."""
    s = stack
    in_sync(s)
    io(s.guest, "/dev/mapper/vol", "w:0:1024:a", "w:2048:128:b", "f", "w:2048:64:c")
    s.guest.power_cut()
    assembled(s, *legs)
    first, second = io(s.guest, "/dev/mapper/vol", "r:0:1024", "r:2112:64")
    assert (first, second) == ("a", "b") and io(s.guest, "/dev/mapper/vol", "r:2048:64")[0] in ("b", "c", "b+c", "c+b")
    assert s.status()["state"] == "running" and degraded(s) == (len(legs) == 1)
    io(s.guest, "/dev/mapper/vol", "w:4096:128:d", "f")
    s.guest.run("hybridctl deactivate --all; mdadm --stop /dev/md/pool")


def blank(s, *names):
    return all(s.guest.run(["blkid", "-p", s.dev(name)], check=False).rc == 2 for name in names)


def test_nothing_is_left_of_what_fails(make_stack):
    """The origin refuses its superblock: array, pool and volume are gone again."""
    s = make_stack(volatile="one two hdd", ssd=4, hdd=48, one=32, two=32)
    s.guest.dm_message("vhdd", "fail", "write", "on")
    r = create(s, check=False)
    assert r.rc and "vone" in r.err and "vtwo" in r.err and "is lost" in r.err, r.text
    s.guest.dm_message("vhdd", "fail", "write", "off")
    assert blank(s, *LEGS, "hdd") and not s.guest.run("ls /dev/md 2>/dev/null", check=False).out.split()
    assert "md" not in s.guest.run("grep ^md /proc/mdstat", check=False).out
    create(s)
    assert s.status()["state"] == "running"


def test_refused_before_anything_is_written(make_stack):
    s = make_stack(volatile="one two", ssd=4, hdd=48, one=32, two=32)
    s.guest.run(f"mkfs.ext4 -q {s.dev('one')}; mkfs.ext4 -q {s.dev('two')}")
    one, two, hdd = map(s.dev, (*LEGS, "hdd"))
    s.guest.dm_create("small", "0 2048 linear /dev/test/ssd 0")
    s.guest.run(["dmsetup", "create", "fixed", "--readonly", "--table", "0 8192 linear /dev/test/ssd 0"])
    for command, why in {
            f"create vol --cache {one} --cache {one} --origin {hdd}": "are the same device",
            f"create vol --cache {one} --cache {two} --origin {two}": "are the same device",
            f"create vol --cache {one} --cache {two} --cache {hdd} --origin {hdd}": "more than two",
            f"create vol --cache {one} --cache /dev/nothing --origin {hdd}": "/dev/nothing",
            f"create vol --cache {one} --cache /dev/mapper/small --origin {hdd}": "cannot be a cache device",
            f"create vol --cache {one} --cache /dev/mapper/fixed --origin {hdd}": "fixed",
            f"create vol --cache {one} --cache {two} --origin {hdd} --ephemeral": "no second copy",
            f"create vol --cache {one} --cache {two} --origin {hdd} --policy wrong": "wrong",
            f"create vol --cache {one} --cache {two} --origin {hdd} --block-size 3k": "3k",
            f"PATH=/nowhere create vol --cache {one} --cache {two} --origin {hdd}": "mdadm",
            f"create vol --cache {one} --cache {two} --origin {hdd}": "ext4",
            f"replace-cache pool --cache {one} --cache {two}": "one device"}.items():
        words = command.split()
        env = "env PATH=/nowhere" if words[0].startswith("PATH=") else ""
        args = " ".join(words[1:] if env else words)
        tool = s.guest.run("command -v hybridctl").out.strip()
        r = s.guest.run(f"{env} {tool} {args} --yes" + ("" if why == "ext4" else " --wipe-signatures"), check=False)
        assert r.rc and why in r.err, (command, r.text)
    for leg in LEGS:
        assert "ext4" in s.guest.run(["blkid", "-p", s.dev(leg)]).out
    out = create(s, "--test").out
    assert out.startswith("mdadm --create /dev/md/pool ") and f"{one} {two}\n" in out
    for leg in LEGS:
        assert "ext4" in s.guest.run(["blkid", "-p", s.dev(leg)]).out
    assert json.loads(s.guest.run("hybridctl list --json").out)["volumes"] == []
