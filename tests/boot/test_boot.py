# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian, booted from a volume by its own initramfs, udev and systemd: `make check-boot`."""
import json
import subprocess
import time

import pytest

from . import debian
from .machine import copy

pytestmark = pytest.mark.boot
both = pytest.mark.parametrize("kind", ["initramfs-tools", "dracut"])
# Of dracut; initramfs-tools gives up after 30 s
SOON = "rd.retry=24"


def volumes(machine):
    """Name -> row of `hybridctl list`."""
    rows = json.loads(machine.run("hybridctl list --json -o all"))["volumes"]
    return {row["name"]: row for row in rows}


def check_root(machine, state="running"):
    """The root is on its volume, and nothing failed on the way."""
    assert machine.run("findmnt -no SOURCE /").strip() == "/dev/mapper/root"
    row = volumes(machine)["root"]
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


def never_up(machine, says):
    """No root: the initramfs gives up. A machine that comes up does not end by itself."""
    machine.start().wait_end()
    assert says in machine.console, machine.console[-4000:]


@both
def test_clean_and_power_cut(machine, members, tmp_path, kind):
    """dirty cache, beside foreign, damaged, removable members; power cut; cache 8 s late; shutdown"""
    disks = members()
    m = machine(kind, {**disks, **foreign(tmp_path)}, removable=("stick",)).boot()
    assert check_root(m)["dirty"] > 0
    known = members_of(m)
    assert sorted(k["HYBRID_STATE"] for k in known.values()) == [
        "active", "active", "degraded", "refused", "removable"], known
    assert {k["ID_FS_TYPE"] for k in known.values()} == {"dm_hybrid_member"}
    assert {k["UDISKS_IGNORE"] for k in known.values()} == {"1"}
    # A data volume in fstab, with nofail, that does not exist: the boot went on
    assert m.run("findmnt /data", check=False) == ""
    m.run("dd if=/dev/urandom of=/root/sum bs=64k count=16 conv=fsync && md5sum </root/sum "
          ">/root/md5 && sync")
    m.send("while :; do dd if=/dev/zero of=/root/more bs=4k count=64 conv=fsync; done")
    time.sleep(3)
    m.power_cut()

    m = machine(kind, disks, late=("cache",)).start()
    m.wait_console("local-block|initqueue")
    time.sleep(8)
    m.plug("cache")
    check_root(m.booted())
    assert m.run("md5sum </root/sum") == m.run("cat /root/md5")
    m.run("hybridctl doctor")
    m.send("systemctl poweroff")
    m.wait_end()
    # Nobody took down the root: the kernel recorded what there was
    verdict = subprocess.run([debian.TOP / "build/userspace/hybridctl", "check", disks["cache"],
                              disks["origin"]], capture_output=True, text=True)
    assert verdict.returncode == 0 or "0 journal records to replay" in verdict.stdout


@both
def test_cache_missing_dirty(machine, members, kind):
    """cache device missing, dirty: the origin alone is never shown, nor written"""
    disks = members()
    before = disks["origin"].read_bytes()
    never_up(machine(kind, {"origin": disks["origin"]}, append=SOON), "newer data than the origin")
    assert disks["origin"].read_bytes() == before


@both
def test_cache_missing_clean(machine, members, kind):
    """cache device missing, clean: up alone after the wait; with it again: stale, not believed"""
    disks = members("clean")
    m = machine(kind, {"origin": disks["origin"]}, append=SOON).boot()
    check_root(m, "alone")
    m.run("echo alone >/root/note; sync")
    m.send("systemctl poweroff")
    m.wait_end()
    m = machine(kind, disks).boot()
    check_root(m)
    assert m.run("cat /root/note") == "alone\n"
    m.run("e2fsck -fn /dev/mapper/root; [ $? -le 4 ]")


@both
def test_origin_missing(machine, members, kind):
    """origin missing: no root, and the cache keeps what it has"""
    never_up(machine(kind, {"cache": members()["cache"]}, append=SOON), "")


@both
def test_cloned(machine, members, tmp_path, kind):
    """a clone of the origin beside it: both refused, neither written"""
    disks = members()
    disks["clone"] = copy(disks["origin"], tmp_path / "clone")
    before = disks["clone"].read_bytes()
    never_up(machine(kind, disks, append=SOON), "has the same member UUID")
    assert disks["clone"].read_bytes() == before == disks["origin"].read_bytes()


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
