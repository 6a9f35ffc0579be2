# SPDX-License-Identifier: GPL-2.0-or-later
"""Data that bcache had, taken in place behind its superblock, by the real bcache-tools and bcache."""
import os
import re
import struct
import tempfile
from pathlib import Path

import pytest

from cli.test_export_guest import fill, sums, text
from guest import apt, packaged

SSD, HDD = "/dev/test/ssd", "/dev/test/hdd"
SLOW = "/dev/mapper/slow"
NONE, CLEAN, DIRTY, STALE = range(4)


@pytest.fixture(scope="session")
def tools():
    """bcache-tools, not installed: that would have udev look for bcache on this machine."""
    final = packaged.cache() / "bcache-tools"
    if not final.exists():
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=final.parent) as tmp:
            os.chmod(tmp, 0o755)
            try:
                apt.Apt().unpack({"bcache-tools": ""}, Path(tmp) / "root")
            except packaged.Missing as e:
                pytest.skip(f"no bcache-tools: {e}")
            if not final.exists():
                (Path(tmp) / "root").rename(final)
    return final / "usr/sbin"


def add_slow(guest):
    """A disk that has an identity, as disks have by their serial numbers."""
    guest.run(f"dmsetup create slow --uuid TEST-a-disk --table \"0 $(blockdev --getsz {HDD}) linear {HDD} 0\"")


@pytest.fixture
def guest(build, make_guest, disks):
    g = make_guest(disks=disks("ssd", 64, "hdd", 200), modprobe=["dm-hybrid"])
    add_slow(g)
    return g


def data_below(guest, offset=16):
    """A file system where bcache shows the data; checksums of its files."""
    guest.run(f"dmsetup create data --table \"0 $(($(blockdev --getsz {SLOW}) - {offset})) linear {SLOW} {offset}\" "
              "&& mkfs.ext4 -q /dev/mapper/data")
    digest = fill(guest, "/dev/mapper/data")
    guest.run("dmsetup remove data")
    return digest


def crc64(data):
    crc = (1 << 64) - 1
    for byte in data:
        crc ^= byte << 56
        for _ in range(8):
            crc = (crc << 1 ^ (0x42f0e1eba9ea3693 if crc >> 63 else 0)) & (1 << 64) - 1
    return crc ^ (1 << 64) - 1


def edit(guest, fields):
    """The superblock of bcache, with a good checksum."""
    disk = guest.disks[1]
    guest.run("sync")
    sb = bytearray(disk.read(4096, 4096))
    for at, value in fields.items():
        struct.pack_into("<Q", sb, at, value)
    struct.pack_into("<Q", sb, 0, crc64(sb[8:208]))
    disk.write(4096, bytes(sb))
    guest.run(f"blockdev --flushbufs {HDD} {SLOW}; echo 3 >/proc/sys/vm/drop_caches")


def imports(guest, rest="--cache " + SSD):
    return guest.run(f"hybridctl import vol --origin {SLOW} {rest} -y", check=False, timeout=200)


@pytest.mark.parametrize("offset", [16, 2048])
@pytest.mark.parametrize("state", [NONE, CLEAN])
def test_a_backing_device(guest, tools, offset, state):
    """The data survive boots and a detach; of the sectors before them only the superblock changes."""
    guest.run(f"{tools}/make-bcache --data-offset {offset} -B {SLOW}")
    digest = data_below(guest, offset)
    edit(guest, {104: state << 61})
    before = guest.disks[1].read(0, offset * 512)
    r = guest.run(f"hybridctl import vol --origin {SLOW} --cache {SSD} --test")
    assert f"zero the superblock of bcache at sector 8; the data begins at sector {offset}\n" in r.out
    assert guest.disks[1].read(0, offset * 512) == before
    r = imports(guest)
    assert r.rc == 0 and f"its data begins at sector {offset} of {SLOW}" in r.out, r
    assert sums(guest, "/dev/mapper/vol") == digest
    # The disk has no more behind the data
    guest.run("hybridctl resize vol")
    assert int(text(guest, "blockdev --getsz /dev/mapper/vol")) == guest.disks[1].sectors - offset
    after = guest.disks[1].read(0, offset * 512)
    assert not any(after[4096:4608]) and after[:4096] + after[4608:] == before[:4096] + before[4608:]
    assert guest.run(f"blkid -p {SLOW}", check=False).rc == 2
    guest.run("mount /dev/mapper/vol /mnt; echo new >/mnt/new; umount /mnt")
    digest = sums(guest, "/dev/mapper/vol")
    guest.reboot()
    guest.modprobe("dm-hybrid")
    add_slow(guest)
    guest.run("hybridctl activate --all")
    assert sums(guest, "/dev/mapper/vol") == digest
    guest.run(f"hybridctl deactivate vol && hybridctl check {SSD} {SLOW} && hybridctl activate vol-pool")
    out = guest.run("hybridctl detach vol").out
    guest.run(re.search("dmsetup create vol .*", out)[0])
    assert sums(guest, "/dev/mapper/vol") == digest
    # ... and cached again, in use
    guest.run("mount /dev/mapper/vol /mnt")
    r = guest.run(f"hybridctl attach vol-pool vol --live --in-place --origin {SLOW} -y", check=False)
    assert r.rc == 2 and "maps only a part of" in r.err
    guest.run(f"hybridctl attach vol-pool vol --live --in-place --data-offset {offset // 2}k --origin {SLOW} -y")
    guest.run("umount /mnt; hybridctl detach vol")
    guest.run(f"hybridctl attach vol-pool vol --in-place --data-offset {offset // 2}k --origin {SLOW} -y")
    assert sums(guest, "/dev/mapper/vol") == digest


def test_what_is_refused_is_not_written_to(guest, tools):
    guest.run(f"{tools}/make-bcache -B {SLOW}")
    data_below(guest)

    def refused(code, said, rest="--cache " + SSD):
        before = text(guest, f"md5sum {HDD}")
        r = imports(guest, rest)
        assert r.rc == code and said in r.err, r
        assert text(guest, f"md5sum {HDD}") == before and guest.run(f"blkid {SSD}", check=False).rc == 2
    edit(guest, {104: DIRTY << 61})
    refused(2, "its bcache cache (set ")
    edit(guest, {104: STALE << 61})
    refused(2, "its state is stale")
    edit(guest, {104: 0, 184: 13, 16: 4})
    refused(2, "its data would begin at sector 13 of 409600")
    edit(guest, {184: 16, 16: 4})
    r = guest.run(f"hybridctl create vol --in-place --origin {SLOW} --cache {SSD} -y", check=False)
    assert r.rc == 2 and "hybridctl import" in r.err
    refused(4, "no active pool none", "--pool none")
    guest.run(f"dmsetup create other --table \"0 $(blockdev --getsz {SLOW}) linear {SLOW} 0\"")
    refused(5, "is in use by other")
    guest.run("dmsetup remove other")
    # Of nobody knows which disk
    guest.run("dmsetup remove slow")
    r = guest.run(f"hybridctl import vol --origin {HDD} --cache {SSD} -y", check=False)
    assert r.rc == 2 and "has no serial number or UUID of its own" in r.err
    # A cache device, not a backing device
    add_slow(guest)
    guest.run(f"wipefs -qa {SLOW}; {tools}/make-bcache -C {SLOW}")
    refused(2, "is a cache device of bcache")


@pytest.mark.parametrize("how", ["killed", "cut", "fails"])
def test_cut(guest, build, tools, how):
    """Before its superblock goes it is bcache's; after that, a volume."""
    guest.run(f"{tools}/make-bcache -B {SLOW}")
    digest = data_below(guest)
    guest.run(f"hybridctl create other --in-place --origin {HDD} --cache {SSD} -y", check=False)
    guest.run(f"truncate -s 64M /run/o; hybridctl create other --cache {SSD} --pool p "
              "--origin $(losetup --find --show /run/o) -y")
    sb = guest.disks[1].read(4096, 4096)
    preload = f"LD_PRELOAD={build}/faults.so"
    # The first seed keeps the write of the zeroes, the other one loses it
    fault = {"killed": "FAULT_CUT='1 1'", "cut": "FAULT_CUT='1 3'",
             "fails": f"FAULT_BAD='write {SLOW} 8 16'"}[how]
    r = guest.run(f"{preload} {fault} hybridctl import vol --pool p --origin {SLOW} -y", check=False)
    assert r.rc == (4 if how == "fails" else 137), r
    assert (guest.disks[1].read(4096, 4096) == sb) == (how != "killed")
    if how != "killed":
        # bcache has it, and nobody else takes it
        for named in "", f"--device {SLOW}":
            r = guest.run(f"hybridctl activate vol {named}", check=False)
            assert r.rc and ("give the hybridctl import again" if how == "cut" else "no pool or volume vol") in r.err, r
        r = imports(guest, "--pool p")
        assert r.rc == 0, r
    else:
        guest.run("hybridctl activate vol")
    assert sums(guest, "/dev/mapper/vol") == digest
    assert text(guest, "hybridctl list --noheadings -o name | grep -c vol") == "1"


def test_fails_after_its_superblock_is_gone(guest, build, tools):
    """The volume does not start, as a model of device-mapper has it: all is as it was."""
    guest.run(f"{tools}/make-bcache -B {SLOW}")
    digest = data_below(guest)
    before = text(guest, f"md5sum {HDD}")
    r = guest.run(f"HYBRID_FAKE_DM=/run/dm.json HYBRID_FAKE_FAIL='create vol' {build}/hybridctl-fake "
                  f"import vol --origin {SLOW} --cache {SSD} --pool p -y -v", check=False)
    assert r.rc == 4 and "the superblock of bcache is removed" in r.err, r
    assert text(guest, f"md5sum {HDD}") == before
    assert imports(guest).rc == 0 and sums(guest, "/dev/mapper/vol") == digest


@pytest.mark.qemu
def test_of_a_bcache_that_ran(build, make_qemu_guest, disks, tools):
    """Attached, in writeback: refused with what to do, which is done; then its data are the volume's."""
    g = make_qemu_guest(disks=disks("ssd", 512, "hdd", 200, "new", 64), modprobe=["dm-hybrid"])
    add_slow(g)
    g.modprobe("bcache")
    number = text(g, f"stat -Lc %Hr:%Lr {SLOW}")
    g.run(f"{tools}/make-bcache --writeback --bucket 256k -C {SSD} -B {SLOW}; "
          f"for d in {SSD} {SLOW}; do readlink -f $d >/sys/fs/bcache/register; done; "
          "until [ -b /dev/bcache0 ]; do sleep 0.2; done")
    g.run("basename /sys/fs/bcache/*-*-* >/sys/block/bcache0/bcache/attach; "
          "echo writeback >/sys/block/bcache0/bcache/cache_mode; echo 0 >/sys/block/bcache0/bcache/writeback_running; "
          "echo 0 >/sys/block/bcache0/bcache/sequential_cutoff; mkfs.ext4 -q /dev/bcache0")
    digest = fill(g, "/dev/bcache0")
    r = g.run(f"hybridctl import vol --origin {SLOW} --cache /dev/test/new -y", check=False)
    assert r.rc == 5 and re.search(r'its state is "dirty", and its cache has \S+ of dirty data', r.err), r
    detach, stop = re.findall(r"echo 1 >/sys/[^ ;\n]+", r.err)
    assert number in detach and "detach" in detach
    g.run(f"echo 1 >/sys/block/bcache0/bcache/writeback_running; {detach}; "
          "until grep -q 'no cache' /sys/block/bcache0/bcache/state; do sleep 0.5; done; "
          f"{stop}; while [ -e /sys/block/bcache0 ]; do sleep 0.2; done", timeout=300)
    r = g.run(f"hybridctl import vol --origin {SLOW} --cache /dev/test/new -y", check=False)
    assert r.rc == 0, r
    assert sums(g, "/dev/mapper/vol") == digest
    # bcache knows nothing of it any more
    assert g.run(f"readlink -f {SLOW} >/sys/fs/bcache/register", check=False).rc
