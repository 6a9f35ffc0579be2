# SPDX-License-Identifier: GPL-2.0-or-later
"""Data that another cache had, taken in place: dm-cache by the real lvm2 and thin-provisioning-tools."""
import json
import re

import pytest

from cli.test_export_guest import fill, sums, text

SSD, HDD, NEW = "/dev/test/ssd", "/dev/test/hdd", "/dev/test/new"


@pytest.fixture
def guest(build, make_guest, disks):
    g = make_guest(disks=disks("ssd", 100, "hdd", 200, "new", 64), modprobe=["dm-hybrid"])
    # As without udev
    g.run("mkdir -p /etc/lvm; printf 'devices { use_devicesfile=0 }\n' >/etc/lvm/lvmlocal.conf")
    return g


def cached(guest, how, mode="writeback", options=""):
    """vg/data, on the disk, cached on the SSD; nothing is written back by itself.  Checksums of its files."""
    guest.run(f"vgcreate -qq vg {HDD} {SSD} && lvcreate -qq -y -n data -L 120M vg {HDD} && "
              "mkfs.ext4 -q /dev/vg/data")
    guest.run({"cachepool": f"lvcreate -qq -y --type cache-pool -n fast -L 64M vg {SSD} && "
                            f"lvconvert -qq -y --type cache --cachemode {mode} {options} --cachepool vg/fast vg/data",
               "cachevol": f"lvcreate -qq -y -n fast -L 64M vg {SSD} && "
                           f"lvconvert -qq -y --type cache --cachemode {mode} --cachevol vg/fast vg/data"}[how] +
              " && lvchange -qq --cachesettings migration_threshold=0 vg/data")
    return fill(guest, "/dev/vg/data")


def dirty(guest):
    return int(text(guest, "lvs --noheadings -o cache_dirty_blocks vg/data"))


def imports(guest, digest, origin="/dev/vg/data", rest=""):
    r = guest.run(f"hybridctl import vol --origin {origin} --cache {NEW} -y {rest}", timeout=300)
    assert sums(guest, "/dev/mapper/vol") == digest
    assert text(guest, "lvs --noheadings -o segtype vg/data") == "linear"
    assert "fast" not in text(guest, "lvs --all --noheadings -o lv_name vg")
    # Of the origin alone, too
    guest.run("hybridctl detach vol")
    assert sums(guest, "/dev/vg/data") == digest
    return r


@pytest.mark.parametrize("how, mode", [("cachepool", "writeback"), ("cachevol", "writeback"),
                                       ("cachepool", "writethrough")])
@pytest.mark.parametrize("active", [True, False])
def test_a_cached_logical_volume(guest, how, mode, active):
    digest = cached(guest, how, mode)
    assert (dirty(guest) > 0) == (mode == "writeback")
    r = guest.run(f"hybridctl import vol --origin /dev/vg/data --cache {NEW} --test")
    assert "lvconvert --yes --uncache vg/data" in r.out and "inplace" in r.out
    r = guest.run(f"hybridctl import vol --origin /dev/vg/data --cache {NEW} </dev/null", check=False)
    assert r.rc == 2 and re.search(r"cannot ask without a terminal: LVM will take the cache fast\w* off vg/data after "
                                   r"writing back \d+ dirty chunks",
                                   r.err)
    guest.run("mount /dev/vg/data /mnt")
    r = guest.run(f"hybridctl import vol --origin /dev/vg/data --cache {NEW} -y", check=False)
    assert r.rc == 5 and "mounted at /mnt" in r.err
    guest.run("umount /mnt")
    if not active:
        guest.run("vgchange -qq -an vg")
    imports(guest, digest, "/dev/vg/data" if active else "vg/data")
    guest.run(f"mount /dev/mapper/vg-data /mnt && umount /mnt && hybridctl attach vol-pool again --in-place "
              "--origin /dev/vg/data -y")


# LVM has the metadata checked before it activates a cache: by one that says no
NO_LVM = r"""printf '#!/bin/sh\n[ "$1" = -V ] && echo 0.9.0 && exit\nexit 1\n' >/run/says-no; chmod +x /run/says-no
printf 'global { cache_check_executable = "/run/says-no" }\n' >>/etc/lvm/lvmlocal.conf"""


@pytest.mark.parametrize("stopped", [True, False])
def test_one_that_lvm_cannot_activate(guest, stopped):
    """Its dirty chunks are on the SSD alone; cache_writeback brings them to the disk."""
    digest = cached(guest, "cachepool", options="--cachemetadataformat 1")
    left = dirty(guest)
    if stopped:
        guest.run("vgchange -qq -an vg")
    else:
        guest.reboot()
        guest.modprobe("dm-hybrid")
        guest.run("mkdir -p /etc/lvm; printf 'devices { use_devicesfile=0 }\n' >/etc/lvm/lvmlocal.conf")
    guest.run(NO_LVM)
    assert left and guest.run("lvchange -ay vg/data", check=False).rc
    r = imports(guest, digest, "vg/data")
    said = int(re.search(r"vg/data: writing back (\d+) chunks of 64 KiB", r.out)[1])
    assert said == left if stopped else said >= left


# What the tool runs, each ending with its death if its command line matches
KILLER = r"""mkdir /run/killer; for c in lvs pvs lvchange lvconvert dmsetup cache_check cache_dump cache_writeback \
    vgcfgbackup vgcfgrestore; do
printf '#!/bin/sh\n%s "$@"\nr=$?\ncase "%s $*" in $KILL) kill -KILL $PPID;; esac\nexit $r\n' \
    "$(command -v $c)" $c >/run/killer/$c; done; chmod +x /run/killer/*"""
PARTS = "metadata", "cache", "origin"
STEPS = {
    # LVM takes the cache off
    "active": ["lvs*vg/data", "lvchange -ay*"],
    "inactive": ["lvs*vg/data", "lvchange -ay*", "lvconvert*"],
    # LVM cannot
    "no": ["dmsetup create hybrid-import-cache*", "cache_writeback*", "vgcfgrestore*", "lvconvert*"],
    "no, and all of them": [
        "lvs*vg/data", "lvchange -ay*", "lvchange -an*", "lvs*vg/fast*", "pvs*",
        *(f"dmsetup create hybrid-import-{part}*" for part in PARTS), "cache_check*", "cache_dump*",
        "cache_writeback*", *(f"dmsetup remove*hybrid-import-{part}" for part in PARTS),
        "vgcfgbackup*", "vgcfgrestore*", "lvconvert*"],
}


@pytest.mark.parametrize("lvm", [pytest.param(lvm, marks={"no": pytest.mark.slow, "no, and all of them": pytest.mark.long}
                                              .get(lvm, ())) for lvm in STEPS])
def test_killed_after_each_step(guest, lvm):
    """Given again it goes on; once LVM has taken the cache off, with the command that it names."""
    digest = cached(guest, "cachepool", options="--cachemetadataformat 1")
    assert dirty(guest)
    guest.run(KILLER)
    if lvm != "active":
        guest.run("vgchange -qq -an vg" + (f"; {NO_LVM}" if lvm.startswith("no") else ""))
    give = f"hybridctl import vol --origin vg/data --cache {NEW} -y"
    for step in STEPS[lvm]:
        r = guest.run(f"KILL='{step}' PATH=/run/killer:$PATH {give}", check=False, timeout=300)
        assert r.rc == 137, (step, r)
        assert guest.run(f"blkid {NEW}", check=False).rc == 2
    r = guest.run(give, check=False)
    assert r.rc == 2 and "vg/data has no cache of LVM (it is linear)" in r.err
    first = "lvchange -ay vg/data, then " if lvm.startswith("no") else ""
    assert f"next: {first}hybridctl create --in-place" in r.err
    assert "hybrid-import" not in guest.run("dmsetup ls").out
    if first:
        guest.run("lvchange -qq -ay vg/data")
    assert sums(guest, "/dev/vg/data") == digest
    guest.run(f"hybridctl create vol --in-place --origin /dev/vg/data --cache {NEW} -y")
    assert sums(guest, "/dev/mapper/vol") == digest


def test_tools_that_do_not_know_format_2(guest):
    """The tools of Debian 12 find nothing dirty in metadata that LVM makes; newer tools read them."""
    digest = cached(guest, "cachepool", options="--cachemetadataformat 2")
    left = dirty(guest)
    guest.run(f"vgchange -qq -an vg; {NO_LVM}")
    if not text(guest, "cache_check -V").startswith("0."):
        imports(guest, digest, "vg/data")
        return
    before = text(guest, f"md5sum {HDD}"), text(guest, "vgs --noheadings -o vg_seqno vg")
    r = guest.run(f"hybridctl import vol --origin vg/data --cache {NEW} -y", check=False)
    assert r.rc == 2 and (f"vg/data: {left} chunks ({left // 16} MiB) are dirty, but the installed "
                          "thin-provisioning-tools find 0") in r.err
    assert (text(guest, f"md5sum {HDD}"), text(guest, "vgs --noheadings -o vg_seqno vg")) == before
    guest.run(": >/etc/lvm/lvmlocal.conf; printf 'devices { use_devicesfile=0 }\n' >/etc/lvm/lvmlocal.conf")
    imports(guest, digest, "vg/data")


@pytest.mark.parametrize("what", ["damaged", "cachevol", "no tools"])
def test_one_that_cannot_be_taken(guest, what):
    """Neither LVM's metadata nor the disk are changed."""
    cached(guest, "cachevol" if what == "cachevol" else "cachepool")
    guest.run(f"vgchange -qq -an vg; {NO_LVM}")
    if what == "damaged":
        found = json.loads(text(guest, "lvs --all --reportformat json -o lv_name,seg_start_pe,devices vg"))
        (at,) = [re.search(r"\((\d+)\)", lv["devices"])[1] for lv in found["report"][0]["lv"]
                 if lv["lv_name"].endswith("_cmeta]")]
        guest.run(f"dd if=/dev/urandom of={SSD} bs=4k count=64 seek=$(({at} * 1024 + 256)) conv=notrunc "
                  "oflag=direct status=none")
    if what == "no tools":
        guest.run("rm /usr/sbin/cache_check")
    before = text(guest, f"md5sum {HDD}"), text(guest, "vgs --noheadings -o vg_seqno vg")
    r = guest.run(f"hybridctl import vol --origin vg/data --cache {NEW} -y", check=False)
    said = {"damaged": (2, "is damaged (cache_check: 1): the amount of dirty data is unknown"),
            "cachevol": (2, "is one logical volume (cachevol)"),
            "no tools": (8, "cache_check is not installed")}[what]
    assert r.rc == said[0] and said[1] in r.err, r
    assert (text(guest, f"md5sum {HDD}"), text(guest, "vgs --noheadings -o vg_seqno vg")) == before
    assert "hybrid-import" not in guest.run("dmsetup ls").out
    assert guest.run(f"blkid {NEW}", check=False).rc == 2


def test_refused(guest):
    guest.run(f"vgcreate -qq vg {HDD} {SSD} && lvcreate -qq -y -n plain -L 20M vg {HDD} && "
              f"lvcreate -qq -y -n slow -L 20M vg {HDD} && lvcreate -qq -y -n fast -L 20M vg {SSD} && "
              "lvchange -qq -an vg/fast && lvconvert -qq -y --type writecache --cachevol fast vg/slow")
    for origin, rc, said in (("/dev/vg/plain", 2, "has no cache of LVM (it is linear)"),
                             ("vg/slow", 2, "has a dm-writecache"),
                             ("vg/none", 4, "LVM knows no such logical volume"),
                             (HDD, 2, "part of a device that is not a cache (LVM2_member)"),
                             (NEW, 2, "has no cache of LVM or bcache"),
                             ("/dev/none", 4, "cannot open"), ("/etc/passwd", 4, "not a block device")):
        r = guest.run(f"hybridctl import vol --origin {origin} --cache {NEW} -y", check=False)
        assert r.rc == rc and said in r.err, r
    r = guest.run("hybridctl import vol --origin vg/plain -y", check=False)
    assert r.rc == 1 and "vol has no cache" in r.err
    r = guest.run(f"hybridctl import vol --cache {NEW} -y", check=False)
    assert r.rc == 1 and "no origin given" in r.err
