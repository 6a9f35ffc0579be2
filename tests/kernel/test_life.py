# SPDX-License-Identifier: GPL-2.0-or-later
"""A cache goes and comes, while its volume is in use and over power cuts."""
import json
import subprocess

import pytest

from .stack import io
from .test_live import LOAD, fill, states, stop, sums, target


def probe(s, disk="hdd"):
    rows = json.loads(s.guest.run(f"hybridctl scan --json -o all {s.dev(disk)}").out)["members"]
    return rows[0]


@pytest.fixture
def faults(tools, top):
    """Preloaded into a tool, makes it fail: see tests/check/faults.c."""
    subprocess.run(["make", "-s", "-C", top / "userspace", top / "build/userspace/faults.so"], check=True)
    return top / "build/userspace/faults.so"


@pytest.fixture
def cut(faults):
    """cut(stack, n, command): hybridctl dies in the nth write of a superblock, and the power goes."""
    def run(s, n, command):
        r = s.guest.run(f"sync; env LD_PRELOAD={faults} FAULT_CUT='{n} {n}' {command}", check=False)
        assert r.rc in (-9, 137), r
        s.guest.power_cut()
        s.guest.boot()
        s.guest.modprobe("dm-testdisk", "dm-hybrid")
        s.members()
    return run


def entries(s):
    return s.guest.run("dmsetup message pool 0 volumes").out.strip()


@pytest.mark.kernels
def test_detach_live_from_a_pool_that_failed(make_stack):
    """With nothing lost: the file system goes on, and the cache, when it is back, is not used again."""
    s = make_stack(volatile="ssd", ssd=24, hdd=48)
    s.create("vol", "--cutoff", "0")
    before = fill(s, "ext4")
    assert s.status()["dirty"] == 0
    s.guest.dm_message("vssd", "die")
    s.guest.run("dmsetup message pool 0 checkpoint", check=False)
    assert s.status()["state"] == "degraded"
    out = s.guest.run("hybridctl detach vol --live")
    assert target(s) == "linear" and "error" not in out.text
    assert probe(s)["role"] == "detached"
    assert s.guest.run("hybridctl status vol").rc == 0
    s.guest.run("dd if=/dev/urandom of=/mnt/file4 bs=64k count=8 conv=fsync; rm /mnt/file1")
    before = sums(s)
    s.guest.run("hybridctl deactivate pool", check=False)
    s.guest.dm_message("vssd", "revive")
    s.guest.run("hybridctl activate pool")
    assert entries(s) == "" and target(s) == "linear" and sums(s) == before


def test_detach_from_a_pool_that_failed_with_a_loss(make_stack):
    """Refused: what is lost would be taken for what is there."""
    s = make_stack(volatile="ssd", ssd=24, hdd=48)
    dev = s.create("vol", "--cutoff", "0", "--mode", "writeback")
    io(s.guest, dev, "w:0:8:a", "f")
    assert s.status()["dirty"] > 0
    s.guest.dm_message("vssd", "die")
    s.guest.run("dmsetup message pool 0 checkpoint", check=False)
    for live in "", "--live":
        r = s.guest.run(f"hybridctl detach vol {live}", check=False)
        assert r.rc == 7 and "unmount" in r.err, r.text
        assert target(s) == "hybrid" and probe(s)["role"] == "origin"


def up(s, *disks):
    """What a boot brings up, of these disks; once it is mounted, what is in it."""
    s.guest.run(["hybridctl", "activate", "--all", *(w for d in disks for w in ("--device", s.dev(d)))])
    s.guest.run("mount /dev/mapper/vol /mnt")
    return sums(s)


@pytest.mark.parametrize("n", [1, 2])
def test_cut_in_a_superblock(make_stack, cut, n):
    """Of a detach and an attach in use: the next boot finds all data, with the cache or without."""
    s = make_stack(ssd=24, hdd=48)
    s.create("vol", "--cutoff", "0", "--mode", "writeback")
    before = fill(s, "ext4")
    cut(s, n, "hybridctl detach vol --live")
    assert up(s, "ssd", "hdd") == before
    assert target(s) == "linear" and entries(s) == "" and probe(s)["state"] == "ok"
    cut(s, n, "hybridctl attach pool vol")
    assert up(s, "ssd", "hdd") == before
    # The first copy was torn by the cut, or is there
    assert (target(s) == "hybrid") == bool(entries(s)) and probe(s)["state"] == "ok"
    assert states(s)["vol"] in ("running", "no-cache")
    assert n == 1 or target(s) == "hybrid"
    s.guest.run("umount /mnt; hybridctl deactivate --all")


@pytest.mark.kernels
def test_alone_and_joined(make_stack, cut):
    """Not twice waited for; what it wrote alone is what it reads when its cache is back, in use."""
    s = make_stack(ssd=24, hdd=48)
    s.create("vol", "--cutoff", "0")
    fill(s, "ext4")
    s.guest.run("cat /mnt/file* >/dev/null; umount /mnt; hybridctl deactivate vol")
    activate = f"hybridctl activate vol --device {s.dev('hdd')}"
    assert s.guest.run(activate, check=False).rc == 7
    for n in 1, 2:
        cut(s, n, f"{activate} --degraded")
        assert "vol" not in s.guest.run("dmsetup ls").out
    s.guest.run(f"{activate} --degraded; mount /dev/mapper/vol /mnt")
    s.guest.run("dd if=/dev/urandom of=/mnt/file1 bs=1M count=3 conv=fsync,notrunc")
    before = sums(s)
    s.guest.power_cut()
    s.guest.boot()
    s.guest.modprobe("dm-testdisk", "dm-hybrid")
    assert up(s, "hdd") == before and target(s) == "linear" and states(s)["vol"] == "alone"
    s.guest.run("dd if=/dev/urandom of=/mnt/file2 bs=1M count=3 conv=fsync,notrunc")
    before = sums(s)
    load = s.guest.run_bg(LOAD)
    s.guest.run("hybridctl activate --all")
    assert target(s) == "hybrid" and states(s)["vol"] == "running" and sums(s) == before
    assert s.guest.run("hybridctl status").rc == 0
    stop(s, load)
    s.guest.power_cut()
    s.guest.boot()
    s.guest.modprobe("dm-testdisk", "dm-hybrid")
    assert up(s, "ssd", "hdd") == before and target(s) == "hybrid"
