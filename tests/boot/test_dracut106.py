# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian 13: dracut 106, systemd 257, its initramfs-tools; only the kernel is Debian 12's."""
import subprocess

import pytest

from . import debian
from .test_boot import SOON, both, check_root, never_up

pytestmark = [pytest.mark.boot, pytest.mark.parametrize("image", ["trixie"], indirect=True)]


@both
def test_power_cut(machine, members, kind):
    """Debian 13: dirty cache; power cut; shutdown, by dracut's own hook"""
    disks = members()
    m = machine(kind, disks).boot()
    assert check_root(m)["dirty"] > 0
    assert m.run("cat /etc/debian_version").startswith("13")
    m.run("dd if=/dev/urandom of=/root/sum bs=64k count=16 conv=fsync && md5sum </root/sum "
          ">/root/md5 && sync")
    m.send("while :; do dd if=/dev/zero of=/root/more bs=4k count=64 conv=fsync; done")
    m.power_cut()
    m = machine(kind, disks).boot()
    check_root(m)
    assert m.run("md5sum </root/sum") == m.run("cat /root/md5")
    m.run("hybridctl doctor")
    m.send("systemctl poweroff")
    m.wait_end()
    verdict = subprocess.run([debian.TOP / "build/userspace/hybridctl", "check", disks["cache"],
                              disks["origin"]], capture_output=True, text=True)
    # initramfs-tools takes nothing down: the kernel recorded what there was
    assert verdict.returncode == 0 or kind != "dracut" and \
        "0 records of the journal and 0 of intents to replay" in verdict.stdout, verdict.stdout


@both
def test_cache_missing(machine, members, kind):
    """Debian 13: cache device missing: dirty, never up; clean, alone after the wait"""
    origin = members()["origin"]
    never_up(machine(kind, {"origin": origin}, append=SOON), "newer data than the origin")
    origin = members("clean")["origin"]
    check_root(machine(kind, {"origin": origin}, append=SOON).boot(), "alone")
