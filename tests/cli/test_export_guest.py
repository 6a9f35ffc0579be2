# SPDX-License-Identifier: GPL-2.0-or-later
"""An exported disk in a kernel that has no dm-hybrid, and what the advice for others is worth."""
import re

import pytest

SSD, HDD = "/dev/test/ssd", "/dev/test/hdd"
KEY = "--key-file /run/key"


@pytest.fixture
def guest(build, make_guest, disks):
    return make_guest(disks=disks("ssd", 64, "hdd", 400), modprobe=["dm-hybrid"])


def text(guest, command):
    return guest.run(command).out.strip()


def fill(guest, device):
    """Files, and their checksums."""
    guest.run(f"mount {device} /mnt && cp -r /usr/include/linux /mnt/ && "
              "head -c 20M /dev/urandom >/mnt/random && umount /mnt")
    return sums(guest, device)


def sums(guest, device):
    return text(guest, f"mount -o ro {device} /mnt && cd /mnt && find . -type f -print0 | sort -z | "
                "xargs -0 md5sum | md5sum; cd /; umount /mnt")


def without_dm_hybrid(guest):
    guest.reboot()
    assert guest.run("grep dm_hybrid /proc/modules; dmsetup targets | grep hybrid", check=False).rc
    guest.run("echo /bin/false >/proc/sys/kernel/modprobe")


MAKE = {"ext4": "mkfs.ext4 -q", "xfs": "mkfs.xfs -q"}


@pytest.mark.parametrize("fs", MAKE)
@pytest.mark.parametrize("up", [False, True])
def test_mounted_by_a_kernel_without_the_module(guest, fs, up):
    """Written in writeback, detached, exported; the partition is there at once, and after a boot."""
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} --mode writeback -y && {MAKE[fs]} /dev/mapper/vol")
    digest = fill(guest, "/dev/mapper/vol")
    guest.run("mount /dev/mapper/vol /mnt && hybridctl detach --live vol")
    r = guest.run("hybridctl export vol -y", check=False)
    assert r.rc == 5 and "mounted at /mnt" in r.err
    guest.run(f"umount /mnt; {'' if up else 'hybridctl deactivate vol'}")
    r = guest.run("hybridctl export vol -y")
    assert "the kernel does not know" not in r.err
    part = re.search(r"is its partition (\S+) \(PARTUUID=(\S+)\)", r.out)
    assert text(guest, f"blkid -o value -s TYPE {part[1]}") == fs
    assert text(guest, f"blkid -o value -s PARTUUID {part[1]}") == part[2]
    assert text(guest, f"blkid -o value -s PTTYPE {HDD}") == "gpt"
    assert sums(guest, part[1]) == digest
    assert guest.run("hybridctl list vol", check=False).rc == 4
    without_dm_hybrid(guest)
    assert sums(guest, f"PARTUUID={part[2]}") == digest
    guest.run(f"mount {part[1]} /mnt && echo new >/mnt/new && umount /mnt")
    guest.run({"ext4": f"e2fsck -fn {part[1]}", "xfs": f"xfs_repair -n {part[1]}"}[fs])


def test_luks_on_the_volume(guest):
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} -y; printf secret >/run/key; "
              f"cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 {KEY} /dev/mapper/vol && "
              f"cryptsetup open {KEY} /dev/mapper/vol secret && mkfs.ext4 -q /dev/mapper/secret")
    digest = fill(guest, "/dev/mapper/secret")
    guest.run("hybridctl detach --live vol")
    r = guest.run("hybridctl export vol -y", check=False)
    assert r.rc == 5 and "vol is in use" in r.err
    guest.run("cryptsetup close secret && hybridctl export vol -y")
    part = text(guest, f"readlink -f {HDD}") + "1"
    without_dm_hybrid(guest)
    guest.run(f"printf secret >/run/key; cryptsetup open {KEY} {part} secret")
    assert sums(guest, "/dev/mapper/secret") == digest


def test_a_partition_begins_where_its_data_begin(guest):
    """The printed sfdisk line frees the data beside a partition in use; so does a loop device."""
    disk = text(guest, f"readlink -f {HDD}")
    guest.run(f"printf 'label: gpt\\n,20M\\n,\\n' | sfdisk -q {HDD} && mkfs.ext4 -q {disk}1")
    guest.run(f"hybridctl create vol --cache {SSD} --origin {disk}2 -y && mkfs.ext4 -q /dev/mapper/vol")
    digest = fill(guest, "/dev/mapper/vol")
    guest.run("hybridctl detach vol")
    before = text(guest, f"md5sum {disk}")
    r = guest.run("hybridctl export vol -y", check=False)
    assert r.rc == 2 and f"{disk}2 is a partition" in r.err
    assert text(guest, f"md5sum {disk}") == before
    for how in "dmsetup create .*", "losetup .*":
        command = re.search(how, r.out)[0]
        device = "/dev/mapper/vol" if "dmsetup" in how else text(guest, command)
        guest.run(command if "dmsetup" in how else "true")
        assert sums(guest, device) == digest
        guest.run("dmsetup remove vol" if "dmsetup" in how else f"losetup -d {device}")
    guest.run(f"mkdir /run/other && mount {disk}1 /run/other && {re.search('echo .*', r.out)[0]}")
    assert sums(guest, f"{disk}2") == digest
    guest.run("hybridctl scan") and guest.run("umount /run/other")
    without_dm_hybrid(guest)
    assert sums(guest, f"{disk}2") == digest


def test_a_logical_volume_has_no_table(guest):
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} -y; hybridctl detach vol; "
              "hybridctl deactivate vol; true")
    guest.run(f"hybridctl wipe {HDD} -y && dmsetup create lv --table \"0 $(blockdev --getsz {HDD}) linear {HDD} 0\"")
    guest.run("hybridctl create vol --pool vol-pool --origin /dev/mapper/lv -y && mkfs.ext4 -q /dev/mapper/vol")
    digest = fill(guest, "/dev/mapper/vol")
    guest.run("hybridctl detach vol")
    before = text(guest, "md5sum /dev/mapper/lv")
    r = guest.run("hybridctl export vol -y", check=False)
    assert r.rc == 2 and "/dev/mapper/lv is not a disk" in r.err
    assert text(guest, "md5sum /dev/mapper/lv") == before
    guest.run(re.search("dmsetup create .*", r.out)[0])
    assert sums(guest, "/dev/mapper/vol") == digest


def test_what_a_cut_leaves_is_the_volume(guest):
    """The table is whole, and the superblocks are there: a boot shows both, and one is in use at a time."""
    disk = text(guest, f"readlink -f {HDD}")
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} -y && mkfs.ext4 -q /dev/mapper/vol")
    digest = fill(guest, "/dev/mapper/vol")
    last = guest.disks[1].sectors - 1024
    guest.run("hybridctl detach vol")
    for at in 1024, last:
        guest.run(f"dd if={HDD} of=/run/{at} skip={at} count=8 status=none")
    guest.run("hybridctl export vol -y")
    for at in 1024, last:
        guest.run(f"dd if=/run/{at} of={HDD} seek={at} count=8 conv=notrunc oflag=direct status=none")
    guest.reboot()
    guest.modprobe("dm-hybrid")
    guest.run("hybridctl activate --all; mount -o ro /dev/mapper/vol /mnt")
    assert guest.run(f"mount {disk}1 /media", check=False).rc
    assert "action: hybridctl export vol" in guest.run("hybridctl status vol", check=False).out
    guest.run("umount /mnt")
    assert sums(guest, "/dev/mapper/vol") == digest
    guest.run("hybridctl deactivate vol && mount -o ro /dev/ubdb1 /mnt")
    r = guest.run("hybridctl export vol -y", check=False)
    assert r.rc == 5
    assert guest.run("hybridctl activate vol", check=False).rc
    guest.run("umount /mnt && hybridctl export vol -y")
    assert sums(guest, f"{disk}1") == digest
    assert guest.run("hybridctl activate vol", check=False).rc == 4
