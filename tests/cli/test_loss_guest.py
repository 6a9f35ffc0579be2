# SPDX-License-Identifier: GPL-2.0-or-later
"""A cache device that is gone for good, in a guest: the disk is given back without it."""
import json

import pytest

from cli.test_guest import HDD, HDD2, SSD, listed, rc, text
from cli.test_guest import pytestmark  # noqa: F401

CACHE = "/dev/mapper/cache"


@pytest.fixture
def guest(build, make_guest, disks):
    return make_guest(disks=disks("ssd", 64, "hdd", 200, "hddb", 100), modprobe=["dm-testdisk", "dm-hybrid"])


def status(guest, name):
    r = guest.run(f"hybridctl status {name} --json", check=False)
    return json.loads(r.out)["status"][0]


def by_state(guest):
    """The volume without its cache, and what its old pool has of it."""
    rows = json.loads(guest.run("hybridctl status --json", check=False).out)["status"]
    rows = {row["state"]: row for row in rows if row["name"] == "vol"}
    return rows["no-cache"], rows["given-up"]


def lost(guest, what):
    r = guest.run(f"hybridctl lost --json {what}", check=False)
    return r.rc, [(x["offset"], x["length"]) for x in json.loads(r.out)["lost"]]


def plug_cache(guest, target="linear"):
    """The cache device, which no other device shows."""
    guest.dm_create("cache", f"0 {guest.disks[0].sectors - 16} {target} {SSD} 8")


def is_blank(guest, device):
    first = text(guest, f"head -c 1M {device} | tr -d '\\0' | wc -c")
    return first.strip() == text(guest, f"tail -c 1M {device} | tr -d '\\0' | wc -c").strip() == "0"


class Volume:
    """vol, with a file system and a block of /file that only the cache has; then that is gone."""

    def __init__(self, guest, how):
        plug_cache(guest, "volatile" if how == "fails" else "linear")
        guest.run(f"hybridctl create vol --cache {CACHE} --origin {HDD} --mode writeback -y")
        guest.run("hybridctl set vol-pool high_watermark=95 low_watermark=90")
        guest.run("mkfs.ext4 -q -b 4096 /dev/mapper/vol && mount /dev/mapper/vol /mnt")
        for name in "file", "kept":
            guest.run(f"dd if=/dev/urandom of=/mnt/{name} bs=64k count=20 conv=fsync status=none")
        self.kept = text(guest, "md5sum </mnt/kept")
        guest.run("umount /mnt; hybridctl drain vol")
        self.old = text(guest, "md5sum </dev/mapper/vol")
        self.block = int(text(guest, "debugfs -R 'bmap /file 3' /dev/mapper/vol 2>/dev/null"))
        guest.run(f"dd if=/dev/urandom of=/dev/mapper/vol bs=4k count=1 seek={self.block} oflag=direct "
                  "conv=fsync,notrunc status=none")
        self.new = text(guest, "md5sum </dev/mapper/vol")
        assert self.old != self.new
        if how == "fails":
            guest.dm_message("cache", "die")
            assert rc(guest, "dmsetup message vol-pool 0 checkpoint")
        guest.run("hybridctl deactivate vol", check=False)
        guest.run("dmsetup remove cache")

    def is_listed(self, guest, what="vol"):
        code, ranges = lost(guest, what)
        at = self.block * 4096
        return code == 7 and any(o <= at and at + 4096 <= o + n for o, n in ranges)


@pytest.mark.parametrize("how", ["fails", "is gone"])
def test_the_disk_of_a_dead_cache_is_given_back(guest, how):
    """What was lost is named, with the file; the rest is there; the old cache is never used again."""
    vol = Volume(guest, how)
    known = how == "fails"
    assert rc(guest, "hybridctl activate --degraded vol") == 7
    assert "accept-loss vol" in status(guest, "vol")["action"]
    r = guest.run("hybridctl accept-loss vol -y")
    assert ("\n  /file\n" in r.out) == known and (" unknown: " in r.out) == (not known)
    assert vol.is_listed(guest) if known else lost(guest, "vol")[0] == 4
    guest.run("hybridctl activate vol && mount /dev/mapper/vol /mnt && touch /mnt/after")
    assert text(guest, "md5sum </mnt/kept") == vol.kept
    guest.run("umount /mnt && hybridctl deactivate vol")
    after = text(guest, f"md5sum <{HDD}")
    # The cache is back, with what it had: for nobody
    plug_cache(guest)
    guest.run("hybridctl activate --all")
    vol_row, given_up = by_state(guest)
    assert not vol_row["healthy"] and "lost --acknowledge vol" in vol_row["action"]
    assert given_up["dirty"] and given_up["action"] == "hybridctl detach --drop-dirty vol"
    assert text(guest, f"md5sum <{HDD}") == after
    if known:
        guest.run(given_up["action"] + " -y")
        assert "given-up" not in text(guest, "hybridctl list")
        guest.run("hybridctl destroy vol-pool -y")
    else:
        for command in "true", "hybridctl deactivate vol-pool":
            guest.run(command)
            r = guest.run("hybridctl destroy vol-pool -y", check=False)
            assert r.rc == 2 and "volume vol: it was given up" in r.err, r.text
        guest.run("hybridctl destroy vol-pool -y --drop-dirty")
    assert list(listed(guest)) == ["vol"] and is_blank(guest, CACHE)
    assert text(guest, f"md5sum <{HDD}") == after
    guest.run("hybridctl lost vol --acknowledge")
    assert status(guest, "vol")["healthy"]
    assert lost(guest, "vol") == (0, [])


def test_what_is_left_can_be_read_before_the_loss_is_accepted(guest):
    vol = Volume(guest, "fails")
    before = text(guest, f"md5sum <{HDD}")
    guest.run("hybridctl activate vol --degraded --readonly")
    assert status(guest, "vol")["state"] == "read-only" and vol.is_listed(guest)
    size = int(text(guest, "blockdev --getsize64 /dev/mapper/vol"))
    assert size == listed(guest)["vol"]["size"] and text(guest, "blockdev --getro /dev/mapper/vol") == "1\n"
    assert rc(guest, "dd if=/dev/zero of=/dev/mapper/vol bs=4k count=1 oflag=direct")
    # The block of 64 KiB fails, and nothing else
    at = vol.block // 16
    assert rc(guest, f"dd if=/dev/mapper/vol of=/dev/null bs=4k count=1 skip={vol.block} iflag=direct")
    guest.run(f"dd if=/dev/mapper/vol of=/dev/null bs=64k count={at} iflag=direct status=none;"
              f"dd if=/dev/mapper/vol of=/dev/null bs=64k skip={at + 1} iflag=direct status=none")
    guest.run("mount -o ro,noload /dev/mapper/vol /mnt")
    assert text(guest, "md5sum </mnt/kept") == vol.kept and rc(guest, "cat /mnt/file >/dev/null")
    guest.run("umount /mnt; hybridctl deactivate vol")
    assert text(guest, f"md5sum <{HDD}") == before
    guest.run("hybridctl accept-loss vol -y")


def test_what_is_clean_of_a_volume_that_was_given_up_is_deleted(guest):
    plug_cache(guest)
    guest.run(f"hybridctl create vol --cache {CACHE} --origin {HDD} -y")
    guest.run("dd if=/dev/urandom of=/dev/mapper/vol bs=64k count=20 oflag=direct conv=fsync status=none")
    guest.run(f"hybridctl attach vol-pool two --origin {HDD2} -y")
    guest.run("hybridctl deactivate --all; dmsetup remove cache; hybridctl accept-loss vol")
    plug_cache(guest)
    guest.run("hybridctl activate --all")
    row = listed(guest)
    assert sorted(row) == ["two", "vol", "vol-pool"] and row["vol"]["state"] == "no-cache"


def test_a_loss_is_acknowledged_in_use(guest):
    """Its device is the origin alone: nobody else writes to the superblocks."""
    vol = Volume(guest, "fails")
    guest.run("hybridctl accept-loss vol -y")
    guest.run("hybridctl activate vol && mount /dev/mapper/vol /mnt")
    row = status(guest, "vol")
    assert not row["healthy"] and "lost --acknowledge vol" in row["action"]
    assert vol.is_listed(guest, HDD)
    guest.run("hybridctl lost vol --acknowledge")
    assert status(guest, "vol")["healthy"] and lost(guest, HDD) == (0, [])
    assert text(guest, "md5sum </mnt/kept") == vol.kept


def test_a_dead_origin_is_given_up_and_the_pool_lives(guest):
    """With what only the pool has of it; the device of the pool is given back after its last volume."""
    plug_cache(guest)
    size = int(text(guest, f"blockdev --getsz {HDD}")) - 16
    guest.dm_create("disk", f"0 {size} linear {HDD} 8")
    guest.run(f"hybridctl create vol --cache {CACHE} --origin /dev/mapper/disk --mode writeback -y")
    guest.run(f"hybridctl attach vol-pool two --origin {HDD2} -y")
    guest.run("dd if=/dev/urandom of=/dev/mapper/vol bs=64k count=1 oflag=direct conv=fsync status=none;"
              "hybridctl deactivate vol; dmsetup remove disk")
    row = status(guest, "vol")
    assert row["state"] == "incomplete" and row["dirty"] and "hybridctl detach --drop-dirty vol" in row["action"]
    assert rc(guest, "hybridctl detach vol") == 5 and rc(guest, "hybridctl detach --drop-dirty vol") == 2
    assert rc(guest, "hybridctl detach --drop-dirty vol -y") == 7
    assert "vol" not in listed(guest)
    assert rc(guest, "hybridctl destroy vol-pool --drop-dirty -y") == 2
    guest.run("hybridctl detach two")
    assert rc(guest, "hybridctl destroy vol-pool -y") == 2
    # It was not so dead
    guest.dm_create("disk", f"0 {size} linear {HDD} 8")
    assert rc(guest, "hybridctl destroy vol-pool --drop-dirty -y") == 5
    guest.run("hybridctl activate vol-pool && hybridctl destroy vol-pool -y")
    assert is_blank(guest, CACHE) and "vol-pool" not in listed(guest)
