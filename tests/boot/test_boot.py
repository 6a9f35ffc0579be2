# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian, booted from a volume by its own initramfs, udev and systemd: `make check-boot`.

A line of a test's description is a case of the table. Boots are dear: a test has many.
"""
import json
import re
import subprocess

import pytest

from cli.test_boot import edit_superblocks
from guest import Disk

from . import debian, volumes
from .machine import Slice, copy

pytestmark = pytest.mark.boot
both = pytest.mark.parametrize("kind", ["initramfs-tools", "dracut"])
# The first is part of make check
representative = pytest.mark.parametrize("kind", [
    pytest.param("initramfs-tools", marks=pytest.mark.check), "dracut"])
HYBRIDCTL = debian.TOP / "build/userspace/hybridctl"
# Of dracut; initramfs-tools gives up after 30 s
SOON = "rd.retry=24"


def rows(machine):
    """Name -> row of `hybridctl list`."""
    found = json.loads(machine.run("hybridctl list --json -o all"))["volumes"]
    return {row["name"]: row for row in found}


def check_root(machine, state="running", device="/dev/mapper/root", volume="root"):
    """The root is on its volume, and nothing failed on the way."""
    assert machine.run("findmnt -no SOURCE /").strip() == device
    row = rows(machine)[volume]
    assert row["state"] == state
    assert machine.run("systemctl --failed --no-legend --plain").strip() == ""
    return row


def members_of(machine):
    """Serial of each member -> what udev knows of it."""
    text = machine.run("for d in /sys/class/block/[vs]d?; do udevadm info -q property -x $d; echo; done")
    found = {}
    for block in text.split("\n\n"):
        k = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        k = {key: value.strip("'") for key, value in k.items()}
        if "HYBRID_STATE" in k or k.get("ID_FS_TYPE") == "dm_hybrid_member":
            found[k.get("ID_SERIAL_SHORT") or k.get("ID_SERIAL") or k["DEVNAME"]] = k
    return found


def uuids(member):
    """What hybridctl probe says of a member's file."""
    r = subprocess.run([HYBRIDCTL, "probe", "--export", member], capture_output=True, text=True,
                       check=True)
    return dict(line.split("=", 1) for line in r.stdout.splitlines())


def brought_up(machine, unit):
    """Member UUIDs for which systemd has run such a unit."""
    journal = machine.run(f"journalctl -o cat -u '{unit}@*' JOB_TYPE=start")
    return set(re.findall(rf"^Finished {unit}@(.*?)\.service", journal, re.M))


def never_up(machine, *says):
    """No root: the initramfs gives up. A machine that comes up does not end by itself."""
    machine.start().wait_end()
    for text in says:
        assert text in machine.console, machine.console[-8000:]


def unwritten(disks, *names):
    """A function that says whether those still are what they were."""
    before = {name: disks[name].read_bytes() for name in names}
    return lambda: all(disks[name].read_bytes() == was for name, was in before.items())


def kill(machine, cache, place):
    """A cache device dies; until that is noticed, in what is mounted there."""
    machine.run("hybridctl status -x")
    machine.unplug(cache)
    machine.run(f"while hybridctl status -x; do dd if=/dev/zero of={place}/more bs=4k count=64 conv=fsync; "
                "sleep 1; done")


def end(machine, command="systemctl poweroff"):
    """It does, and waits for nothing that never comes."""
    before = len(machine.console)
    machine.send(command)
    machine.wait_end()
    late = re.findall(r".*(?:timed out|blocked for more than|does not wait).*",
                      machine.console[before:])
    assert not late, late


def check(kind, disks):
    """After an orderly end: dracut took the pool down; else the kernel recorded what there was."""
    verdict = subprocess.run([HYBRIDCTL, "check", disks["cache"], disks["origin"]],
                             capture_output=True, text=True)
    if kind == "dracut":
        assert verdict.returncode == 0, verdict.stdout
    else:
        assert verdict.returncode == 7, verdict.stdout
        assert "0 records of the journal and 0 of intents to replay" in verdict.stdout


def foreign(directory):
    """Three origins of pools that are not here, one of them damaged."""
    made = {}
    for n, name in enumerate(("foreign", "damaged", "stick")):
        made[name] = directory / name
        with open(made[name], "wb") as f:
            f.truncate(16 << 20)
        subprocess.run([debian.TOP / "build/userspace/lib-driver", "format-origin", made[name],
                        f"other{n}", f"0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1a{n}"], check=True)
    with open(made["damaged"], "r+b") as f:
        for at in (512 << 10, (16 << 20) - (512 << 10)):
            f.seek(at + 200)
            f.write(b"\xff" * 16)
    return made


WRITE = ("dd if=/dev/urandom of={0}/sum bs=64k count=16 conv=fsync status=none && "
         "md5sum <{0}/sum >{0}/md5 && sync")
SAME = '[ "$(md5sum <{0}/sum)" = "$(cat {0}/md5)" ]'


@representative
def test_power_cut(machine, members, data, tmp_path, kind):
    """root on a volume, dirty, beside foreign, damaged and removable members
    rd.hybrid.name=: only that one by the initramfs; a data volume by udev and systemd
    a data volume in fstab that does not exist
    power cut while both volumes are written; up again; shutdown
    """
    disks = {**members(), **data()}
    known_data = {uuids(disks[name])["HYBRID_MEMBER_UUID"] for name in ("data-cache", "data-origin")}
    m = machine(kind, {**disks, **foreign(tmp_path)}, removable=("stick",),
                append="rd.hybrid.name=root").boot()
    assert check_root(m)["dirty"] > 0
    known = members_of(m)
    states = {name: k["HYBRID_STATE"] for name, k in known.items()}
    assert [states.pop(name) for name in ("cache", "origin", "data-cache", "data-origin")] == [
        "active", "active", "complete", "complete"]
    # Alone, but clean: the timer may have brought it up already
    assert states.pop("foreign") in ("degraded", "active")
    assert states.pop("damaged") == "refused" and list(states.values()) == ["removable"]
    assert {k["ID_FS_TYPE"] for k in known.values()} == {"dm_hybrid_member"}
    assert {k["UDISKS_IGNORE"] for k in known.values()} == {"1"}
    ran = brought_up(m, "hybrid-activate")
    assert ran and ran <= known_data
    assert m.run("findmnt -no SOURCE /data").strip() == "/dev/mapper/data"
    assert m.run("findmnt /never", check=False) == ""
    for place in "/root", "/data":
        m.run(WRITE.format(place))
        m.run(f"while :; do dd if=/dev/zero of={place}/more bs=4k count=64 conv=fsync; done "
              ">/dev/null 2>&1 &")
    m.run("until [ -s /root/more -a -s /data/more ]; do sleep 1; done")
    m.power_cut()

    m = machine(kind, disks).boot()
    check_root(m)
    for place in "/root", "/data":
        m.run(SAME.format(place))
    m.run("hybridctl doctor")
    end(m)
    check(kind, disks)


@both
def test_cache_late(machine, members, kind):
    """root's cache device plugged in after the first look for it, dirty
    shutdown with the root's cache device dead, dirty
    """
    m = machine(kind, members(), late=("cache",)).start()
    m.wait_console("local-block|initqueue")
    m.plug("cache")
    assert check_root(m.booted())["dirty"] > 0
    kill(m, "cache", "/root")
    end(m)


@both
def test_cache_missing_clean(machine, members, data, kind):
    """root's cache device missing, clean: up alone after the wait
    a data volume's cache device missing, clean: up alone by systemd's timer, and mounted
    rd.hybrid.uuid=: only that one by the initramfs
    reboot
    both cache devices there again: stale, not believed
    shutdown with the root's cache device dead, clean
    """
    disks = {**members("clean"), **data("clean")}
    known = {name: uuids(path) for name, path in disks.items()}
    m = machine(kind, {name: disks[name] for name in ("origin", "data-origin")},
                append=f"{SOON} rd.hybrid.uuid={known['origin']['HYBRID_VOLUME_UUID']}").boot()
    check_root(m, "alone")
    assert m.run("findmnt -no SOURCE /data").strip() == "/dev/mapper/data"
    assert rows(m)["data"]["state"] == "alone"
    assert brought_up(m, "hybrid-last-resort") == {known["data-origin"]["HYBRID_MEMBER_UUID"]}
    m.run("for d in /root /data; do echo alone >$d/note; done; sync")
    end(m, "systemctl reboot")

    m = machine(kind, disks, loose=("cache",)).boot()
    check_root(m)
    m.run("for d in /root /data; do [ $(cat $d/note) = alone ] || exit; done")
    m.run("e2fsck -fn /dev/mapper/root; [ $? -le 4 ]")
    kill(m, "cache", "/root")
    end(m)


@both
def test_three_blank_ssds(machine, members, kind):
    """root's cache device blank at each of three boots: made a pool anew by the initramfs, at once
    power cut while the root is written
    the same holds a file system: up alone, at once, and nothing is written to it
    """
    disks = members("clean")
    edit_superblocks(disks["origin"], {100: b"\x08", 288: debian.EPHEMERAL.removeprefix("/dev/disk/").encode()})
    pools = set()
    for n in range(3):
        with open(disks["cache"], "r+b") as f:
            size = f.seek(0, 2)
            f.truncate(0)
            f.truncate(size)
        m = machine(kind, disks).boot()
        row = check_root(m)
        assert (row["pool"], row["mode"]) == ("root-pool", "writethrough")
        pools.add(rows(m)["root-pool"]["uuid"])
        if n:
            m.run(SAME.format("/root"))
        m.run(WRITE.format("/root"))
        m.run("while :; do dd if=/dev/zero of=/root/more bs=4k count=64 conv=fsync; done >/dev/null 2>&1 &")
        m.run("until [ -s /root/more ]; do sleep 1; done")
        m.power_cut()
    assert len(pools) == 3
    subprocess.run(["mkfs.ext4", "-qF", disks["cache"]], check=True)
    same = unwritten(disks, "cache")
    m = machine(kind, disks).boot()
    check_root(m, "alone")
    m.run(SAME.format("/root"))
    assert "is not blank: it holds data: ext4" in m.run("hybridctl status")
    assert "no new pool root-pool is made" in m.run("journalctl -b -o cat")
    end(m)
    assert same()


@both
def test_cache_missing_dirty(machine, members, kind):
    """root's cache device missing, dirty: the origin alone is never shown, nor written"""
    disks = members()
    before = disks["origin"].read_bytes()
    never_up(machine(kind, {"origin": disks["origin"]}, append=SOON), "newer data than the origin")
    assert disks["origin"].read_bytes() == before


@both
def test_origin_missing(machine, members, data, kind):
    """origin missing: no root, and the cache keeps what it has
    rd.hybrid.degraded=0: what is missing a member stays down, clean as it is, unwritten
    """
    disks = {"cache": members()["cache"], "data-origin": data("clean")["data-origin"]}
    same = unwritten(disks, "data-origin")
    m = machine(kind, disks, append=f"{SOON} rd.hybrid.degraded=0")
    never_up(m, "its origin (member", "the origin alone may be out of date")
    assert same()
    dump = subprocess.run([HYBRIDCTL, "check", disks["cache"]], capture_output=True, text=True)
    assert dump.returncode in (0, 7), dump.stdout


@both
def test_cloned(machine, members, tmp_path, kind):
    """a clone of the origin beside it: both refused, neither written"""
    disks = members()
    disks["clone"] = copy(disks["origin"], tmp_path / "clone")
    before = disks["clone"].read_bytes()
    never_up(machine(kind, disks, append=SOON), "has the same member UUID")
    assert disks["clone"].read_bytes() == before == disks["origin"].read_bytes()


@both
def test_none_by_the_initramfs(machine, image, members, data, tmp_path, kind):
    """rd.hybrid=0, root on a plain disk: volumes come up later, by udev and systemd
    shutdown with a data volume's cache device dead, dirty
    """
    disks = {**members(), **data(), "plain": copy(image.filesystem, tmp_path / "plain")}
    m = machine(kind, disks, loose=("data-cache",), append="rd.hybrid=0",
                root="/dev/disk/by-id/virtio-plain").boot()
    assert "/dev/mapper" not in m.run("findmnt -no SOURCE /")
    assert {row["state"] for row in rows(m).values()} == {"running"}
    ran = brought_up(m, "hybrid-activate")
    for pair in ("cache", "origin"), ("data-cache", "data-origin"):
        assert ran & {uuids(disks[name])["HYBRID_MEMBER_UUID"] for name in pair}
    assert m.run("findmnt -no SOURCE /data").strip() == "/dev/mapper/data"
    kill(m, "data-cache", "/data")
    end(m)


OTHER = "11111111-2222-3333-4444-555555555555"
LVM = "export DM_DISABLE_UDEV=1 LVM_SUPPRESS_FD_WARNINGS=1; set -e; o='--config devices{obtain_device_list_from_udev=0}'; "


def logical_volumes(guest_of, path, **sizes):
    """Of a volume group on a disk of that name: name -> slice of its file."""
    disk = Disk(path, (sum(sizes.values()) + 16) << 20, path.name)
    guest = guest_of([disk])
    guest.run(f"{LVM} pvcreate -qq $o /dev/test/{path.name}; vgcreate -qq $o vg /dev/test/{path.name}")
    for name, mib in sizes.items():
        guest.run(f"{LVM} lvcreate -qq $o -y -Wn -Zn -n {name} -L {mib}M vg")
    text = guest.run(f"{LVM} pvs $o --segments --noheadings --units b --nosuffix "
                     "-o lv_name,pe_start,pvseg_start,vg_extent_size,seg_size").out
    guest.close()
    rows = [line.split() for line in text.splitlines() if len(line.split()) == 5]
    found = {name: Slice(path, int(first) + int(at) * int(extent), int(size)) for name, first, at, extent, size in rows}
    assert found.keys() == sizes.keys()
    return found


@both
def test_pool_of_a_virtual_machine(machine, image, guest_of, tmp_path, kind):
    """a pool that a machine made on logical volumes of its host, dirty; power cut
    its host boots, and stops: it lists the pool as another host's, and writes nothing there
    the machine boots: the volume comes up, with all data
    """
    host = debian.of_host(image, OTHER, tmp_path / "host")
    lvs = logical_volumes(guest_of, tmp_path / "lvm", cache=48, origin=96)
    plain = {"plain": copy(image.filesystem, tmp_path / "plain")}
    root = "/dev/disk/by-id/virtio-plain"
    m = machine(kind, {**plain, **lvs}, root=root).boot()
    m.run("hybridctl create vol --cache /dev/disk/by-id/virtio-cache --origin /dev/disk/by-id/virtio-origin "
          "--mode writeback --cutoff 0 -y && mkfs.ext4 -q /dev/mapper/vol && mount /dev/mapper/vol /mnt")
    m.run(WRITE.format("/mnt"))
    assert rows(m)["vol"]["dirty"] > 0
    m.power_cut()
    before = {name: lv.read() for name, lv in lvs.items()}

    m = machine(kind, {"plain": host.filesystem, "lvm": tmp_path / "lvm"}, image=host, root=root).boot()
    m.run("udevadm settle; for d in cache origin; do [ -b /dev/vg/$d ] || exit; done")
    for name in lvs:
        assert "HYBRID_STATE=foreign\n" in m.run(f"udevadm info -q property /dev/vg/{name}")
    assert {name: row["state"] for name, row in rows(m).items()} == {"vol": "foreign", "vol-pool": "foreign"}
    m.run("hybridctl activate --auto --all --degraded; ! hybridctl activate vol")
    assert m.run("systemctl list-units --all --no-legend --plain 'hybrid-activate@*' 'hybrid-last-resort@*'") == ""
    assert "hybrid" not in m.run("dmsetup table")
    assert m.run("systemctl --failed --no-legend --plain").strip() == ""
    end(m)
    assert {name: lv.read() for name, lv in lvs.items()} == before

    m = machine(kind, {**plain, **lvs}, root=root).boot()
    row = rows(m)["vol"]
    assert row["state"] == "running" and row["dirty"] > 0
    m.run("mount /dev/mapper/vol /mnt")
    m.run(SAME.format("/mnt"))
    end(m)


@both
def test_lvm(machine, stack, kind):
    """root on LVM on a volume, dirty; shutdown"""
    disks = stack("lvm")
    m = machine(kind, disks, root="/dev/mapper/vg-root", append="rd.lvm.lv=vg/root").boot()
    assert check_root(m, device="/dev/mapper/vg-root", volume="lvm")["dirty"] > 0
    m.run("hybridctl doctor")
    end(m)
    check(kind, disks)


@both
def test_luks(machine, stack, kind):
    """root on LUKS on a volume, dirty, its key on another disk; shutdown"""
    disks = stack("luks", "key")
    key = "/dev/disk/by-id/virtio-key"
    append = {"initramfs-tools": f"cryptopts=target=plain,source=/dev/mapper/luks,key={key}",
              "dracut": f"rd.luks.name={volumes.LUKS}=plain rd.luks.key={volumes.LUKS}={key}"}[kind]
    m = machine(kind, disks, root="/dev/mapper/plain", append=append).boot()
    assert check_root(m, device="/dev/mapper/plain", volume="luks")["dirty"] > 0
    m.run("hybridctl doctor")
    end(m)
    check(kind, disks)
