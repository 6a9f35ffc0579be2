# SPDX-License-Identifier: GPL-2.0-or-later
"""The cache is attached and detached while its volume is in use."""
import re
import signal
import subprocess

import pytest

from .stack import io
from .test_power import Cutter, cut_stack

# Written, read and compared, again and again, until it is told to stop
LOAD = ("cd /mnt; until test -e /tmp/stop; do fio --name=load --size=4m --rw=randrw --bs=4k --direct=1 "
        "--ioengine=libaio --iodepth=8 --verify=crc32c --fsync=16 || exit 1; done")


def linear(s, disk="hdd", start=0, sectors=None):
    s.guest.dm_create("vol", f"0 {sectors or s.disk(disk).sectors} linear {s.dev(disk)} {start}")


def target(s, name="vol"):
    return s.table(name).split()[2]


def sums(s):
    s.guest.run("sync; echo 3 >/proc/sys/vm/drop_caches")
    return s.guest.run("cd /mnt; sha256sum file*").out


def fill(s, fs):
    s.guest.run(f"mkfs.{fs} /dev/mapper/vol >&2; mount /dev/mapper/vol /mnt; cd /mnt; "
                "for n in 1 2 3; do dd if=/dev/urandom of=file$n bs=1M count=3 conv=fsync; done")
    return sums(s)


def stop(s, load):
    assert load.poll() is None, load.wait(0).text
    s.guest.run("touch /tmp/stop")
    r = load.wait(120)
    assert r.rc == 0, r.text


def states(s):
    """What hybridctl says of each volume that is there."""
    return dict(line.split() for line in
                s.guest.run("hybridctl list --noheadings -o name,state").out.splitlines())


@pytest.mark.kernels
def test_in_place(make_stack):
    """A file system that was made without a cache gets one, loses it, and gets it again."""
    s = make_stack(ssd=24, hdd=48, other=16)
    s.cache, s.origin = "ssd", "other"
    s.create("two", "--cutoff", "0")
    linear(s)
    before = fill(s, "ext4")
    load = s.guest.run_bg(LOAD)
    for _ in range(2):
        s.guest.run(f"hybridctl attach pool vol --origin {s.dev('hdd')} --in-place --live --cutoff 0")
        assert target(s) == "hybrid" and states(s)["vol"] == "running"
        assert sums(s) == before
        assert s.status()["read_misses"] > 0 and s.status()["cached"] > 0
        s.guest.run("hybridctl detach vol --live")
        assert target(s) == "linear" and states(s)["vol"] == "no-cache"
        assert s.guest.run("hybridctl status").rc == 0
        assert sums(s) == before
    stop(s, load)
    # The disk alone has everything
    s.guest.run(f"umount /mnt; dmsetup remove vol; e2fsck -fn {s.dev('hdd')}; mount {s.dev('hdd')} /mnt")
    assert sums(s) == before
    s.guest.run("umount /mnt")


@pytest.mark.parametrize("what", ["write", "flush"])
def test_detach_from_an_origin_that_fails(make_stack, what):
    """It stays a volume, in the mode that it had, and what fails is said."""
    s = make_stack(volatile="ssd hdd", ssd=24, hdd=48)
    dev = s.create("vol", "--cutoff", "0", "--mode", "writeback")
    io(s.guest, dev, "w:0:128:a", "w:1024:8:b", "f")
    s.guest.dm_message("vhdd", "fail", what, "on")
    # Nothing but errors is drained: it ends when it is interrupted, or by itself
    r = s.guest.run("timeout -s INT 3 hybridctl detach vol --live", check=False)
    assert r.rc and target(s) == "hybrid", r.text
    if what == "write":
        r = s.guest.run("hybridctl drain vol", check=False, timeout=200)
        assert r.rc == 7 and "cannot be written back" in r.err, r.text
        assert s.status()["draining"] == 0
    assert s.status()["mode"] == "writeback"
    s.guest.dm_message("vhdd", "fail", what, "off")
    if what == "write":
        r = s.guest.run("hybridctl detach vol --live", check=False)
        assert r.rc == 2 and "I/O to the origin of vol failed" in r.err
    assert s.guest.run("dmsetup info -c --noheadings -o suspended vol").out.strip() == "Active"
    flushed = [] if what == "write" else ["EIO"]
    assert io(s.guest, dev, "r:0:128", "r:1024:8", "w:8:8:c", "f", "r:0:24") == ["a", "b", *flushed, "aca"]


def test_detach_from_an_origin_that_fails_its_last_flush(make_stack):
    """The next fsync fails, as it would without the attempt to detach."""
    s = make_stack(volatile="ssd hdd", ssd=24, hdd=48)
    dev = s.create("vol", "--cutoff", "0", "--mode", "writethrough")
    s.message("set", "commit_interval", 60000, name="pool")
    io(s.guest, dev, "w:0:8:a")
    s.guest.dm_message("vhdd", "fail", "flush", "once")
    r = s.guest.run("hybridctl detach vol --live", check=False)
    print(r)
    assert r.rc and target(s) == "hybrid", r.text
    assert io(s.guest, dev, "f") == ["EIO"]


@pytest.mark.kernels
def test_formatted(make_stack):
    """With data that only the cache has, on an origin whose superblocks say whose it is."""
    s = make_stack(ssd=24, hdd=48)
    s.create("vol", "--cutoff", "0", "--mode", "writeback")
    before = fill(s, "ext4")
    load = s.guest.run_bg(LOAD)
    for _ in range(2):
        out = s.guest.run("hybridctl detach vol --live").out
        assert target(s) == "linear" and states(s)["vol"] == "no-cache"
        assert s.guest.run("hybridctl detach vol --live", check=False).rc == 1
        assert sums(s) == before
        s.guest.run(f"hybridctl attach pool vol --origin {s.dev('hdd')} --live --mode writeback --cutoff 0")
        assert target(s) == "hybrid" and s.status()["mode"] == "writeback"
        assert sums(s) == before
    stop(s, load)
    assert s.status()["dirty"] > 0
    # A reboot finds the new volume; and the way back without it is as it is printed
    s.guest.run("umount /mnt")
    s.deactivate()
    s.activate()
    s.guest.run("mount /dev/mapper/vol /mnt")
    assert sums(s) == before
    s.guest.run("hybridctl detach vol --live; umount /mnt; hybridctl deactivate vol")
    s.guest.run(re.search("dmsetup create .*", out)[0] + "; e2fsck -fn /dev/mapper/vol; mount /dev/mapper/vol /mnt")
    assert sums(s) == before
    s.guest.run("umount /mnt; dmsetup remove vol")


def test_refusals(make_stack):
    """What cannot be done live is refused, changes nothing, and says what to do."""
    s = make_stack(ssd=16, hdd=32, other=32)
    s.create("vol", "--mode", "writeback")
    attach = f"hybridctl attach pool {{}} --origin {s.dev('other')} {{}}--live"

    def refused(command, *words):
        r = s.guest.run(command, check=False)
        assert r.rc and all(w in r.err for w in words), r

    other = s.disk("other").sectors
    refused(attach.format("two", "--in-place "), "there is no linear device two")
    s.guest.run(f"mkfs.ext4 -q {s.dev('other')}; mount {s.dev('other')} /mnt")
    refused(attach.format("two", "--in-place "), "mounted at /mnt", "unmount it")
    s.guest.run("umount /mnt")
    s.guest.dm_create("two", f"0 {other} linear {s.dev('other')} 0")
    refused(attach.format("two", ""), "add --in-place")
    refused(attach.format("vol", "--in-place "), "there is no linear device vol")
    s.guest.dm_create("three", f"0 8 linear {s.dev('other')} 0")
    refused(attach.format("two", "--in-place "), "is not used by two alone")
    s.guest.run("dmsetup remove three; dmsetup remove two")
    s.guest.dm_create("two", f"0 {other - 8} linear {s.dev('other')} 8")
    refused(attach.format("two", "--in-place "), "only a part")
    s.guest.run("dmsetup remove two; dmsetup create two --uuid LVM-x "
                f"--table '0 {other} linear {s.dev('other')} 0'")
    refused(attach.format("two", "--in-place "), "belongs to another tool", "LVM-x")
    assert target(s, "two") == "linear"
    refused("hybridctl detach vol --live --drop-dirty")
    refused("exec 3</dev/mapper/vol; hybridctl detach vol", "add --live")
    # The pool's own message: not while the volume is used, nor while it is dirty
    s.refused("dmsetup message pool 0 delete_volume 0")
    s.guest.run("dd if=/dev/urandom of=/dev/mapper/vol bs=64k count=4 oflag=direct; dmsetup suspend vol")
    s.refused("dmsetup message pool 0 delete_volume 0")
    s.refused("dmsetup message pool 0 release_volume 0")
    s.guest.run("dmsetup resume vol; dd if=/dev/mapper/vol of=/dev/null bs=64k count=4 iflag=direct")
    s.drain()
    s.refused("dmsetup message pool 0 release_volume 0")
    # Released it is closed, and its entry stays: the next resume opens it
    s.guest.run("dmsetup suspend vol; dmsetup message pool 0 release_volume 0")
    assert s.status()["state"] == "unloaded" and s.status("pool")["volumes"] == 0
    s.guest.run("dmsetup resume vol")
    assert s.status()["state"] == "running" and s.status("pool")["volumes"] == 1
    s.guest.run("dmsetup suspend vol; dmsetup message pool 0 delete_volume 0")
    assert "Volume was deleted" in s.refused("dmsetup resume vol")
    s.guest.run(f"dmsetup load vol --table '0 61440 linear {s.dev('hdd')} 2048'; dmsetup resume vol; "
                "dmsetup message pool 0 forget_volume 0; dmsetup remove vol")
    s.guest.run("dmsetup remove two; dmsetup remove pool")


def bring_up(s):
    """What is there after a boot: the volume, with its cache or without."""
    s.guest.boot()
    s.guest.modprobe("dm-testdisk", "dm-hybrid")
    s.members()
    s.guest.run(f"hybridctl activate --all --device {s.dev('ssd')} --device {s.dev('hdd')}", check=False)
    assert states(s)["vol"] in ("running", "draining", "no-cache")


ATTACH = ["message pool: create_volume", "mark origin", "load vol", "resume vol"]
DETACH = ["message vol: drain", "load vol: 0 61440 linear", "message pool: delete_volume",
          "resume vol", "message pool: forget"]


@pytest.fixture
def mortal(tmp_path):
    """To be preloaded: kills the process at its first message after the one that matches $DIE_AFTER."""
    (tmp_path / "mortal.c").write_text("""
        #define _GNU_SOURCE
        #include <regex.h>
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        static regex_t step;
        static int done;
        static ssize_t message(void *fd, const char *text, size_t len)
        {
            char *line = strndup(text, len);
            if (done)
                kill(getpid(), SIGKILL);
            done = line && !regexec(&step, line, 0, NULL, 0);
            free(line);
            return write((long)fd, text, len);
        }
        static FILE *watched(long fd)
        {
            FILE *f = fopencookie((void *)fd, "w", (cookie_io_functions_t){ .write = message });
            setvbuf(f, NULL, _IOLBF, BUFSIZ);
            return f;
        }
        __attribute__((constructor)) static void watch(void)
        {
            if (regcomp(&step, getenv("DIE_AFTER"), 0))
                abort();
            stdout = watched(STDOUT_FILENO);
            stderr = watched(STDERR_FILENO);
        }
    """)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "mortal.so", tmp_path / "mortal.c"], check=True)
    return tmp_path / "mortal.so"


def killed_at(s, mortal, step, command):
    """Runs hybridctl until it has done this step; it dies when it names the next one."""
    r = s.guest.run(f"DIE_AFTER='{step}' LD_PRELOAD={mortal} {command} -v", timeout=60 * s.guest.slow, check=False)
    assert r.rc == 128 + signal.SIGKILL, r.text


@pytest.mark.parametrize("then", ["activate", "attach"])
@pytest.mark.parametrize("step, left", [("load vol: 0 [0-9]* linear", "running"),
                                        ("message pool: delete_volume", "suspended"), ("resume vol", "linear")])
@pytest.mark.parametrize("place", ["formatted", "--in-place"])
def test_killed_in_a_detach(make_stack, mortal, place, step, left, then):
    """status names the command that finishes the detach; after it the volume's name is free."""
    s = make_stack(ssd=24, hdd=48)
    inplace = [place] if place == "--in-place" else []
    attach = f"hybridctl attach pool vol --origin {s.dev('hdd')} --live --cutoff 0 {' '.join(inplace)}"
    if inplace:
        s.guest.run(f"mkfs.ext4 -q {s.dev('hdd')}")
    s.create("vol", "--cutoff", "0", *inplace)
    before = fill(s, "ext4")
    killed_at(s, mortal, step, "hybridctl detach vol --live")
    r = s.guest.run("hybridctl status vol", check=False)
    if left == "running":
        # Before anything was given up: whoever resumes it has the volume as it was
        assert r.rc == 7 and "state: suspended" in r.out and "action: dmsetup resume it" in r.out
        r = s.guest.run("hybridctl activate --all", check=False)
        assert r.rc == 5 and "vol is suspended" in r.err
        s.guest.run("dmsetup resume vol && hybridctl activate --all")
        assert target(s) == "hybrid" and states(s)["vol"] == "running" and sums(s) == before
        s.guest.run("hybridctl detach vol --live")
        assert sums(s) == before
        return
    assert r.rc == 7 and "its detach was interrupted" in r.out and "action: hybridctl activate --all" in r.out
    assert "was interrupted" in s.guest.run("hybridctl detach vol --live", check=False).err
    if left == "suspended" or then == "activate":
        s.guest.run("hybridctl activate --all")
        assert s.guest.run("dmsetup message pool 0 volumes").out.strip() == ""
        assert target(s) == "linear" and states(s)["vol"] == "no-cache"
        assert s.guest.run("hybridctl status").rc == 0
    assert sums(s) == before
    s.guest.run(attach)
    assert target(s) == "hybrid" and states(s)["vol"] == "running" and sums(s) == before
    s.guest.run("hybridctl detach vol --live; umount /mnt; dmsetup remove vol")


def test_killed_in_a_detach_and_attached_to_another_pool(make_stack, mortal):
    """What the first pool has to end is no longer its business, though the UUIDs are the same."""
    s = make_stack(ssd=24, hdd=48, more=24, other=16)
    s.create("vol", "--cutoff", "0")
    before = fill(s, "ext4")
    s.guest.run(f"hybridctl create two --pool second --cache {s.dev('more')} --origin {s.dev('other')} -y")
    attach = f"hybridctl attach {{}} vol --origin {s.dev('hdd')} --live --mode writeback --cutoff 0"
    killed_at(s, mortal, "resume vol", "hybridctl detach vol --live")
    s.guest.run(attach.format("second"))
    s.guest.run("dd if=/dev/urandom of=/mnt/file4 bs=64k count=8 oflag=direct")
    before = sums(s)
    assert "tombstone" in s.guest.run("dmsetup message pool 0 volumes").out
    assert s.guest.run("hybridctl status").rc == 0
    s.guest.run("hybridctl activate --all")
    assert target(s) == "hybrid" and states(s)["vol"] == "running" and sums(s) == before
    assert not s.guest.run("dmsetup message pool 0 volumes").out.strip()
    # Nor while it is not active
    s.guest.run("hybridctl detach vol --live")
    s.guest.run(attach.format("pool"))
    killed_at(s, mortal, "resume vol", "hybridctl detach vol --live")
    s.guest.run(attach.format("second"))
    s.guest.run("umount /mnt; hybridctl deactivate --all; hybridctl activate pool")
    assert re.search("role +origin", s.guest.run(f"hybridctl probe {s.dev('hdd')}").out)
    s.guest.run("hybridctl activate --all; mount /dev/mapper/vol /mnt")
    assert sums(s) == before


@pytest.mark.parametrize("then", ["activate", "attach"])
def test_a_detach_that_cannot_mark_the_origin(make_stack, then):
    """The device is its origin already, and in use; only the mark is missing."""
    s = make_stack(volatile="ssd hdd", ssd=24, hdd=48)
    dev = s.create("vol", "--cutoff", "0")
    io(s.guest, dev, "w:0:128:a", "f")
    s.drain()
    s.guest.run("dmsetup suspend vol; dmsetup resume vol")
    s.guest.dm_message("vhdd", "fail", "write", "on")
    r = s.guest.run("hybridctl detach vol --live", check=False)
    assert r.rc == 4 and "cannot write" in r.err and target(s) == "linear", r.text
    s.guest.dm_message("vhdd", "fail", "write", "off")
    r = s.guest.run("hybridctl status vol", check=False)
    assert r.rc == 7 and "its detach was interrupted" in r.out
    with_user = "exec 3</dev/mapper/vol; "
    if then == "activate":
        s.guest.run(f"{with_user}hybridctl activate --all")
        assert states(s)["vol"] == "no-cache" and s.guest.run("hybridctl status").rc == 0
    s.guest.run(f"{with_user}hybridctl attach pool vol --origin {s.dev('hdd')} --live")
    assert target(s) == "hybrid" and io(s.guest, dev, "r:0:128") == ["a"]
    assert s.guest.run("dmsetup message pool 0 volumes").out.count("\n") == 1


def test_an_attach_cut_between_two_superblocks(make_stack, mortal):
    """Both are one member's: the newer one counts, and the attach goes on."""
    s = make_stack(ssd=24, hdd=48)
    s.create("vol", "--cutoff", "0")
    before = fill(s, "ext4")
    s.guest.run("hybridctl detach vol --live")
    attach = f"hybridctl attach pool vol --origin {s.dev('hdd')} --live --cutoff 0"
    first, second = re.search(r"superblocks at sectors (\d+) and (\d+)", s.guest.run(f"{attach} --test").out).groups()
    copies = s.guest.run(f"for n in {first} {second}; do dd if={s.dev('hdd')} of=/tmp/$n bs=512 skip=$n count=8; done")
    assert copies.rc == 0
    for old in second, first:
        killed_at(s, mortal, "mark origin", attach)
        assert target(s) == "linear"
        s.guest.run(f"dd if=/tmp/{old} of={s.dev('hdd')} bs=512 seek={old} count=8 conv=notrunc,fsync")
        out = s.guest.run(f"hybridctl probe {s.dev('hdd')}").out
        assert re.search("role +origin", out) and "state        ok" in out, out
        s.guest.run("hybridctl activate vol")
        assert target(s) == "hybrid" and states(s)["vol"] == "running" and sums(s) == before
        s.guest.run("hybridctl detach vol --live")
    # What is there and cannot be used is no reason to take the disk for one without a head
    s.guest.run(f"for n in {first} {second}; do printf spoiled | dd of={s.dev('hdd')} bs=1 seek=$((n * 512 + 200)) "
                "conv=notrunc,fsync; done")
    r = s.guest.run(attach, check=False)
    assert r.rc == 4 and "checksum" in r.err and "in-place" not in r.err, r.text
    s.guest.run("umount /mnt; dmsetup remove vol")


@pytest.mark.parametrize("command, steps", [("attach", ATTACH), ("detach", DETACH)])
def test_power_cut_at_each_step(make_stack, seed, rnd, mortal, command, steps):
    """hybridctl is killed at a step, then the power goes, under writers."""
    s = cut_stack(make_stack, seed, "--mode", "writeback")
    attach = f"hybridctl attach pool vol --origin {s.dev('hdd')} --live --mode writeback --cutoff 0"
    detach = "hybridctl detach vol --live"
    doomed = attach if command == "attach" else detach
    if command == "attach":
        s.guest.run(detach)
    c = Cutter(s, seed, rnd)
    for step in steps:
        assert target(s) == ("linear" if command == "attach" else "hybrid")
        c.start()
        killed_at(s, mortal, step, doomed)
        c.cut(rnd.uniform(0, 0.3))
        bring_up(s)
        c.check()
        if target(s) == "hybrid":
            s.guest.run(detach)
        # The disk alone
        c.check()
        if command == "detach":
            s.guest.run(attach)
    s.guest.run("dmsetup remove vol; hybridctl deactivate --all")
