# SPDX-License-Identifier: GPL-2.0-or-later
"""hybridctl and the real targets, in a guest without udev and systemd."""
import json
import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif("module.o" not in (TOP / "dm-hybrid/Kbuild").read_text(),
                                reason="the module has no targets yet")
SSD, HDD, HDD2 = "/dev/test/ssd", "/dev/test/hdd", "/dev/test/hddb"


@pytest.fixture
def guest(build, make_guest, disks):
    return make_guest(disks=disks("ssd", 64, "hdd", 200, "hddb", 100), modprobe=["dm-hybrid"])


def rc(guest, command):
    return guest.run(command, check=False).rc


def listed(guest):
    rows = json.loads(text(guest, "hybridctl list --json -o all"))["volumes"]
    return {row["name"]: row for row in rows}


def text(guest, command):
    return guest.run(command).out


def test_life_of_a_volume(guest):
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} --mode writeback -y")
    guest.run(f"hybridctl attach vol-pool two --origin {HDD2} -y")
    guest.run("mkfs.ext4 -q /dev/mapper/vol && mount /dev/mapper/vol /mnt")
    guest.run("dd if=/dev/urandom of=/mnt/f bs=1M count=8 conv=fsync status=none")
    digest = text(guest, "md5sum < /mnt/f")
    assert listed(guest)["vol"]["dirty"] > 0
    for command in ("hybridctl detach vol", "hybridctl deactivate vol"):
        assert rc(guest, command) == 5
    assert rc(guest, "hybridctl set vol mode=writethrough cutoff=0") == 0
    assert text(guest, "hybridctl get vol mode") == "writethrough\n"
    guest.run("umount /mnt; hybridctl deactivate --all")
    assert {v["state"] for v in listed(guest).values()} == {"inactive"}
    guest.run("hybridctl activate --all && mount /dev/mapper/vol /mnt")
    assert text(guest, "md5sum < /mnt/f") == digest
    guest.run("umount /mnt")
    out = text(guest, "hybridctl detach vol")
    table = re.search(r"dmsetup create vol --table '.*'", out)[0]
    guest.run(f"{table} && mount /dev/mapper/vol /mnt")
    assert text(guest, "md5sum < /mnt/f") == digest
    guest.run("umount /mnt && dmsetup remove vol")


def test_comes_back_after_a_power_cut(guest):
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} --mode writeback -y")
    guest.run("dd if=/dev/urandom of=/dev/mapper/vol bs=1M count=8 oflag=direct conv=fsync "
              "status=none")
    digest = text(guest, "head -c 8M /dev/mapper/vol | md5sum")
    guest.reboot()
    guest.run("hybridctl activate vol")
    assert text(guest, "head -c 8M /dev/mapper/vol | md5sum") == digest
    assert listed(guest)["vol"]["mode"] == "writeback"


def test_the_printed_tables_make_the_same_devices(guest):
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} --cutoff 1m -y")
    tables = text(guest, "hybridctl table")
    guest.run("hybridctl deactivate vol")
    guest.run(tables)
    assert text(guest, "hybridctl table") == tables


def test_what_the_kernel_refuses_is_undone_and_explained(guest):
    r = guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} --policy nosuch -y",
                  check=False)
    assert r.rc == 4
    assert "kernel: device-mapper: table: " in r.err and "policy" in r.err
    assert text(guest, "dmsetup ls").strip() == "No devices found"
    assert json.loads(text(guest, "hybridctl scan --json")) == {"members": []}
