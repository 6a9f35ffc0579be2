# SPDX-License-Identifier: GPL-2.0-or-later
"""Cache devices that come up blank: a boot makes a pool on a blank one, and leaves any other alone."""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import uuid

import pytest

from cli.test_boot import MIB, edit_superblocks, event, keys, number
from cli.test_life import (ALONE, DETACHED, DIRTY, EPHEMERAL, ORIGIN, WRITETHROUGH, action, contents,
                           copies, cut, entries, listed, state, superblock)	# noqa: F401 (fixture)

PATH = 288	# of the cache device, in a superblock
OTHER = "11111111-2222-3333-4444-555555555555"


def cache_path(device):
    with open(device, "rb") as f:
        f.seek(512 * 1024)
        return f.read(4096)[PATH:PATH + 128].split(b"\0")[0].decode()


def newest(origin):
    """The kernel makes both copies one; the model of it does not."""
    return max(copies(origin), key=lambda sb: sb.sequence)


@pytest.fixture
def named(loop):
    """named(name of an image): a loop device, and its link below /dev/disk."""
    made = []

    def make(name, mib=64, kind="by-id", sector=512):
        device = loop(name, mib, sector)
        link = f"/dev/disk/{kind}/test-{os.getpid()}-{device.removeprefix('/dev/')}"
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if os.path.lexists(link):
            os.unlink(link)
        os.symlink(device, link)
        made.append(link)
        return device, link
    yield make
    for link in made:
        if os.path.lexists(link):
            os.unlink(link)


class Cloud:
    """A host with an SSD that is blank after each boot, and origins that stay."""

    def __init__(self, kernel, ssd, link, origins):
        self.kernel, self.ssd, self.link, self.origins = kernel, ssd, link, origins

    def list(self, text="", pool="fast"):
        with self.kernel.conf.open("a") as f:
            f.write(f"ephemeral = {self.link} pool={pool} {text}\n")

    def create(self, *words):
        self.kernel.ok("create", "vol", "--cache", self.ssd, "--origin", self.origins[0], "--ephemeral", "-y",
                       *words)

    def stop(self, blank=True, clean=True):
        """The power goes, and the SSD's data with it."""
        if clean:
            self.kernel.ok("deactivate", "--all")
        self.kernel.change(devices=[], **({"volumes": {}} if blank else {}))
        shutil.rmtree(self.kernel.path.with_name("run"))
        os.unlink(self.link)
        if blank:
            self.blank()

    def blank(self):
        subprocess.run(["blkdiscard", "-f", self.ssd], stderr=subprocess.DEVNULL, check=True)

    def plug(self, device):
        """What its event says; the link of the SSD is made after that."""
        env = {}
        if device == self.ssd:
            major, minor = number(device).split(":")
            env = {"MAJOR": major, "MINOR": minor, "DEVLINKS": f"/dev/disk/by-path/x {self.link}"}
        k = keys(self.kernel("scan", "--udev", device, env=env))
        if env and not os.path.lexists(self.link):
            os.symlink(device, self.link)
        return k

    def plug_all(self):
        for device in self.ssd, *self.origins:
            self.plug(device)

    def boot(self, *order):
        """What udev and the units do, for devices in this order."""
        for device in order or (self.ssd, *self.origins):
            k = self.plug(device)
            if k.get("HYBRID_STATE") in ("complete", "ephemeral"):
                self.kernel("activate", "--auto", k["HYBRID_MEMBER_UUID"])

    def pool(self):
        return newest(self.origins[0]).pool


@pytest.fixture
def cloud(kernel, loop, named):
    ssd, link = named("ssd.img")
    return Cloud(kernel, ssd, link, [loop("o0.img", 100)])


@pytest.fixture
def volume(cloud):
    """vol on pool fast, which comes up blank; in use."""
    cloud.list()
    cloud.create()
    return cloud


def running(kernel, name="vol"):
    row = listed(kernel)["volume", name, "running"]
    assert row["pool"] == "fast"
    return row


# A removable disk -------------------------------------------------------------------

def test_no_pool_is_made_on_a_removable_disk_by_itself(kernel, volume, removable):
    volume.stop()
    removable(volume.ssd)
    volume.plug_all()
    r = kernel("activate", "--auto", "--all")
    assert "no new pool fast is made on" in r.stderr and "is removable" in r.stderr, r
    assert kernel.devices == ["vol"]
    kernel.ok("activate", "vol")
    running(kernel)


# The marks --------------------------------------------------------------------------

def test_create_takes_what_hybrid_conf_says(kernel, cloud):
    r = kernel("create", "vol", "--cache", cloud.ssd, "--origin", cloud.origins[0], "--ephemeral", "-y")
    assert r.returncode == 2 and "hybrid.conf does not list it" in r.stderr and kernel.devices == []
    cloud.list("block_size=32k policy=fifo")
    for word in ["--pool", "x"], ["--block-size", "64k"], ["--policy", "lru"], ["--journal-size", "1m"]:
        r = kernel("create", "vol", "--cache", cloud.ssd, "--origin", cloud.origins[0], "--ephemeral", "-y", *word)
        assert r.returncode == 1 and "hybrid.conf describes that pool" in r.stderr
    cloud.create("--cutoff", "1m", "--mode", "writearound")
    now = superblock(cloud.origins[0])
    assert (now.flags, now.mode, now.cutoff) == (EPHEMERAL, 2 + 1, 2048 + 1)
    assert cache_path(cloud.origins[0]) == cloud.link.removeprefix("/dev/disk/")
    assert kernel.devices == ["fast", "vol"]
    assert re.search(r"hybrid-pool \S+ 64 .*fifo", kernel.ok("table"))


def test_attach_marks_and_takes_the_mark_off(kernel, cloud, named):
    """Of the pool's cache device; with another one it is no longer true."""
    kernel.ok("create", "vol", "--pool", "fast", "--cache", cloud.ssd, "--origin", cloud.origins[0], "-y")
    kernel.ok("detach", "vol")
    r = kernel("attach", "fast", "vol", "--ephemeral")
    assert r.returncode == 2 and "hybrid.conf does not list it" in r.stderr
    cloud.list(pool="other")
    r = kernel("attach", "fast", "vol", "--ephemeral")
    assert r.returncode == 2 and "the pool is called fast, but hybrid.conf calls" in r.stderr
    assert superblock(cloud.origins[0]).role == DETACHED
    kernel.conf.write_text(re.sub("(?m)^ephemeral.*$", "", kernel.conf.read_text()))
    cloud.list()
    kernel.ok("attach", "fast", "vol", "--ephemeral")
    assert superblock(cloud.origins[0]).flags == EPHEMERAL
    kernel.ok("detach", "vol")
    kernel.ok("attach", "fast", "vol")
    assert superblock(cloud.origins[0]).flags == EPHEMERAL and cache_path(cloud.origins[0])
    kernel.ok("detach", "vol")
    kernel.ok("create", "vol", "--pool", "else", "--cache", named("other.img")[0], "-y", "--wipe-signatures")
    assert superblock(cloud.origins[0]).flags == 0 and not cache_path(cloud.origins[0])


@pytest.mark.parametrize("words", [[], ["--force"]])
def test_writeback_is_refused(kernel, cloud, words):
    cloud.list()
    make = ["create", "vol", "--cache", cloud.ssd, "--origin", cloud.origins[0], "--ephemeral", "-y", *words]
    r = kernel(*make, "--mode", "writeback")
    assert r.returncode == 2 and "the only copy of some data" in r.stderr and kernel.devices == []
    r = kernel(*make, "--in-place")
    assert r.returncode == 2 and "--in-place writes nothing" in r.stderr and kernel.devices == []
    kernel.ok(*make)
    r = kernel("set", "vol", "mode=writeback", *words)
    assert r.returncode == 2 and "the only copy of some data" in r.stderr
    assert running(kernel)["mode"] == "writethrough"
    kernel.ok("set", "vol", "mode=passthrough")
    # What another cache left of settings
    kernel.ok("detach", "vol")
    for mode in [["--mode", "writeback"], []]:
        edit_superblocks(cloud.origins[0], {256: struct.pack("<Q", 2)})
        r = kernel("attach", "fast", "vol", *mode, *words)
        assert r.returncode == 2 and "the only copy of some data" in r.stderr
    kernel.ok("attach", "fast", "vol", "--mode", "writethrough", *words)


# Boots -------------------------------------------------------------------------------

@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("clean", [True, False])
def test_three_boots(kernel, volume, loop, order, clean):
    """Two volumes, in any order; nothing but the superblocks of the origins is written."""
    volume.origins.append(loop("o1.img", 50))
    kernel.ok("attach", "fast", "two", "--origin", volume.origins[1], "--ephemeral", "--cutoff", "1m", "-y")
    data = [contents(o) for o in volume.origins]
    before = [superblock(o) for o in volume.origins]
    seen = {volume.pool()}
    for _ in range(3):
        volume.stop(clean=clean)
        if order == "after":
            volume.boot(*volume.origins)
            assert set(kernel.devices) == {"vol", "two"} and state(kernel, "two") == "alone"
            for name in "vol", "two":
                kernel.change_device(name, open_count=1)
            volume.boot(volume.ssd)
        else:
            volume.boot()
        assert set(kernel.devices) == {"fast", "vol", "two"}
        assert running(kernel, "two")["cutoff"] == MIB and running(kernel)["mode"] == "writethrough"
        assert volume.pool() not in seen
        seen.add(volume.pool())
        for o, was in zip(volume.origins, before):
            now = superblock(o)
            assert (now.role, now.flags, now.pool) == (ORIGIN, EPHEMERAL, volume.pool())
            assert (now.member, now.volume, now.name, now.mode, now.cutoff) == (
                was.member, was.volume, was.name, was.mode, was.cutoff)
            assert now.key != was.key and (now.nonce, now.instance) == (0, 0)
        if order == "after":
            for name in "vol", "two":
                kernel.change_device(name, open_count=0)
    assert [contents(o) for o in volume.origins] == data
    assert kernel("status").returncode == 0


@pytest.mark.parametrize("announced", [True, False])
def test_a_boot_that_finds_the_pool(kernel, volume, announced):
    """A restart keeps the SSD: nothing is made anew, though nobody waits for its event."""
    before = superblock(volume.origins[0])
    volume.stop(blank=False)
    if announced:
        volume.boot()
    else:
        os.symlink(volume.ssd, volume.link)
        volume.boot(*volume.origins)
    assert running(kernel) and superblock(volume.origins[0]) == before


def test_after_the_cache_failed_in_use(kernel, volume):
    """The kernel says that the volume ran alone, and with whom before: a new cache knows nothing of that."""
    volume.stop()
    edit_superblocks(volume.origins[0], {100: bytes([EPHEMERAL | ALONE]), 248: b"paired.."})
    volume.boot()
    now = superblock(volume.origins[0])
    assert running(kernel) and (now.flags, now.paired_nonce) == (EPHEMERAL, 0)


def test_beside_another_activation(kernel, volume, loop):
    """Its pool is up, and udev has not announced it yet."""
    volume.origins.append(loop("o1.img", 50))
    kernel.ok("attach", "fast", "two", "--origin", volume.origins[1], "--ephemeral", "-y")
    volume.stop()
    volume.boot(volume.ssd, volume.origins[0])
    kernel.ok("scan", "--udev", "--gone", number(volume.ssd))
    fd = os.open(volume.ssd, os.O_RDONLY | os.O_EXCL)
    try:
        volume.boot(volume.origins[1])
    finally:
        os.close(fd)
    assert running(kernel, "two")


def test_by_all_and_by_hand(kernel, volume):
    """What an initramfs calls; and with nothing but its name."""
    for what in ["--auto", "--all"], ["vol"], ["fast"], ["--all"]:
        volume.stop()
        volume.plug_all()
        before = superblock(volume.origins[0])
        out = kernel.ok("activate", *what, "--test")
        assert out == f"write {volume.link}: a new pool fast, with the volumes that had one there\n"
        assert superblock(volume.origins[0]) == before and kernel.devices == []
        r = kernel("activate", *what)
        assert r.returncode == 0 and "which was blank" in r.stdout, r
        running(kernel)
        assert kernel("activate", *what).returncode == 0


def test_no_boot_waits(kernel, volume):
    """The origin goes alone at once, and again at each boot."""
    for n in range(2):
        if n:
            os.symlink(volume.ssd, volume.link)
        volume.stop()
        assert event(kernel, volume.origins[0]) == "complete"
        r = kernel("activate", "--auto", "--all")
        assert r.returncode == 0 and "runs without its cache device" in r.stderr
        assert state(kernel) == "alone" and superblock(volume.origins[0]).flags == ALONE | EPHEMERAL
    os.symlink(volume.ssd, volume.link)
    assert action(kernel, healthy=True) == "hybridctl activate vol"
    volume.boot(volume.ssd)
    running(kernel)


@pytest.mark.parametrize("listed_as", ["vol", "fast", "nothing"])
def test_only_what_is_listed_comes_up(kernel, volume, listed_as):
    with kernel.conf.open("a") as f:
        f.write(f"autoactivate = listed\nautoactivate_list = {listed_as}\n")
    volume.stop()
    volume.boot()
    assert kernel.devices == ([] if listed_as == "nothing" else ["fast", "vol"])


# Left alone ---------------------------------------------------------------------------

def place(device, at, data):
    with open(device, "r+b") as f:
        f.seek(at, os.SEEK_SET if at >= 0 else os.SEEK_END)
        f.write(data)
        os.fsync(f.fileno())


def whole(device):
    with open(device, "rb") as f:
        return f.read()


def left_alone(kernel, cloud, why):
    """Nothing is written to the SSD; the volume is there, without it, and the reason is said twice."""
    before = whole(cloud.ssd)
    cloud.plug_all()
    r = kernel("activate", "--auto", "--all")
    assert f"no new pool fast is made on {cloud.link}" in r.stderr and why in r.stderr, r
    assert whole(cloud.ssd) == before and state(kernel) == "alone"
    out = kernel("status", "vol").stdout
    assert why in re.search("reason: (.*)", out)[1]
    return re.search("action: (.*)", out)[1]


@pytest.mark.parametrize("at", [0, 4096, MIB - 1, -1, -MIB])
def test_not_blank(kernel, volume, at):
    volume.stop()
    place(volume.ssd, at, b"x")
    why = f"is not zero in its {'last' if at < 0 else 'first'} MiB"
    leads = left_alone(kernel, volume, why)
    # What is in between nobody asks
    volume.stop(clean=True)
    for between in MIB, -MIB - 1:
        place(volume.ssd, between, b"x")
    volume.boot()
    running(kernel)
    # The way out that status names
    volume.stop()
    place(volume.ssd, at, b"x")
    left_alone(kernel, volume, why)
    for command in re.findall(r"hybridctl ([^;]*)", leads):
        kernel.ok(*command.replace("DEVICE", volume.link).split(), *(["-y"] if "create" in command else []))
    running(kernel)
    assert superblock(volume.origins[0]).flags == EPHEMERAL


@pytest.mark.parametrize("what", ["ext4", "gpt"])
def test_a_file_system_or_a_partition_table(kernel, volume, what):
    volume.stop()
    if what == "gpt":
        subprocess.run(["sfdisk", "-q", volume.ssd], input="label: gpt\n,1M\n", text=True, check=True)
    else:
        subprocess.run(["mkfs.ext4", "-qF", volume.ssd], check=True)
    left_alone(kernel, volume, f"holds data: {what}")


@pytest.mark.parametrize("pool", ["stale", "another"])
def test_another_pool(kernel, volume, pool, named, loop):
    """One of ours from an earlier boot, or any other."""
    if pool == "stale":
        old = whole(volume.ssd)
        volume.stop()
        volume.boot()
        volume.stop()
        place(volume.ssd, 0, old)
    else:
        volume.stop()
        kernel.ok("create", "x", "--cache", volume.ssd, "--origin", loop("x.img", 20), "-y")
        kernel.ok("deactivate", "x")
    before = superblock(volume.origins[0]).pool
    leads = left_alone(kernel, volume, "is the cache device of pool")
    assert superblock(volume.origins[0]).pool == before
    if pool == "stale":
        for command in re.findall(r"hybridctl ([^;]*)", leads):
            kernel.ok(*command.split(), "-y")
        running(kernel)


def test_in_use(kernel, volume):
    volume.stop()
    volume.plug_all()
    fd = os.open(volume.ssd, os.O_RDONLY | os.O_EXCL)
    try:
        r = kernel("activate", "--auto", "--all")
    finally:
        os.close(fd)
    assert r.returncode == 6 and f"{volume.ssd} is in use" in r.stderr, r
    assert not any(whole(volume.ssd)) and state(kernel) == "alone"


def test_not_looked_at(kernel, volume):
    volume.stop()
    with kernel.conf.open("a") as f:
        f.write(f"ignore_devices = {volume.ssd}\n")
    left_alone(kernel, volume, "is not searched for members")


def test_not_where_data_were_in_the_cache(kernel, volume, loop):
    """Of it, or of another volume of that pool."""
    volume.origins.append(loop("o1.img", 50))
    kernel.ok("attach", "fast", "two", "--origin", volume.origins[1], "--ephemeral", "-y")
    volume.stop()
    edit_superblocks(volume.origins[1], {100: bytes([EPHEMERAL | DIRTY])})
    volume.plug_all()
    assert event(kernel, volume.origins[1]) == "waiting"
    r = kernel("activate", "--auto", "--all")
    assert r.returncode == 7 and "newer data of volume two" in r.stderr
    assert kernel.devices == ["vol"] and state(kernel) == "alone" and not any(whole(volume.ssd))
    r = kernel("activate", "two")
    assert r.returncode == 7 and not any(whole(volume.ssd))
    assert superblock(volume.origins[1]).flags == EPHEMERAL | DIRTY
    edit_superblocks(volume.origins[1], {100: bytes([EPHEMERAL])})
    kernel.ok("activate", "--all")
    assert running(kernel) and running(kernel, "two")


@pytest.mark.parametrize("mark", ["conf", "origin", "path", "detached"])
def test_both_marks(kernel, volume, mark):
    """One alone means nothing: it is a volume whose cache device is missing."""
    volume.stop()
    if mark == "conf":
        kernel.conf.write_text(re.search("host_id.*", kernel.conf.read_text())[0])
    elif mark == "origin":
        edit_superblocks(volume.origins[0], {100: b"\0"})
    elif mark == "path":
        edit_superblocks(volume.origins[0], {PATH: b"by-id/another-device".ljust(128, b"\0")})
    else:
        kernel.ok("detach", "vol")
    volume.plug_all()
    assert event(kernel, volume.origins[0]) == ("complete" if mark == "detached" else "degraded")
    assert kernel("scan", "--udev", volume.ssd).stdout == ""
    kernel("activate", "--auto", "--all")
    assert not any(whole(volume.ssd)) and kernel.devices == (["vol"] if mark == "detached" else [])


@pytest.mark.parametrize("whose", ["origin", "host"])
def test_nothing_of_another_host(kernel, volume, whose):
    volume.stop()
    if whose == "origin":
        edit_superblocks(volume.origins[0], {688: uuid.UUID(OTHER).bytes})
    else:
        text = kernel.conf.read_text()
        kernel.conf.write_text(re.sub("host_id = .*", f"host_id = {OTHER}", text))
    volume.plug_all()
    assert event(kernel, volume.origins[0]) == "foreign" and kernel("scan", "--udev", volume.ssd).stdout == ""
    kernel("activate", "--auto", "--all")
    kernel("activate", "vol", "--foreign", "--degraded", "-y")
    assert not any(whole(volume.ssd)) and kernel.devices in ([], ["vol"])


def test_writeback_on_the_origin(kernel, volume):
    """By whom it may be: it gets no cache, until that is changed."""
    volume.stop()
    edit_superblocks(volume.origins[0], {256: struct.pack("<Q", 2)})
    volume.plug_all()
    r = kernel("activate", "--auto", "--all")
    assert r.returncode == 6 and "the only copy of some data" in r.stderr
    assert state(kernel) == "alone" and entries(kernel) == []
    kernel.ok("detach", "vol")
    kernel.ok("attach", "fast", "vol", "--mode", "writethrough", "--ephemeral")
    running(kernel)


def test_nobody_s_becomes_this_host_s(kernel, volume):
    volume.stop()
    edit_superblocks(volume.origins[0], {688: bytes(16)})
    volume.boot()
    running(kernel)
    rows = json.loads(kernel.ok("scan", "--json", "-o", "role,host_id"))["members"]
    own = re.search("host_id = (.*)", kernel.conf.read_text())[1]
    assert [r["host_id"] for r in rows] == [own, own]


@pytest.mark.parametrize("fail", ["create fast", "message fast create_volume", "check"])
def test_what_fails_leaves_the_volume_without_a_cache(kernel, volume, fail):
    """Alone; the next boot goes on."""
    volume.stop()
    volume.plug_all()
    r = kernel("activate", "--auto", "--all", fail=fail)
    assert r.returncode in (4, 6, 7, 8) and state(kernel) == "alone", r
    now = superblock(volume.origins[0])
    assert (now.role, now.flags) == (ORIGIN, EPHEMERAL | ALONE)
    kernel.ok("activate", "--auto", "--all")
    running(kernel)


def test_larger_sectors(kernel, volume, named):
    """The volume's users could not use them."""
    volume.stop()
    volume.ssd, _ = named("big.img", sector=4096)
    volume.plug_all()
    r = kernel("activate", "--auto", "--all")
    assert "sectors of 512 bytes" in r.stderr
    assert state(kernel) == "alone" and superblock(volume.origins[0]).flags == EPHEMERAL | ALONE


# Cut ------------------------------------------------------------------------------------

def one_row(kernel, origin, before):
    """Paired, clean, with the old pool or a new one; alone: of LIFE's rows these can be."""
    now = newest(origin)
    assert now.role == ORIGIN and not now.flags & DIRTY and now.flags & EPHEMERAL
    assert (now.member, now.volume) == (before.member, before.volume)
    if now.pool == before.pool:
        assert now.key == before.key
    else:
        assert (now.nonce, now.instance) == (0, 0)
    return now


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("then", ["same", "blank"])
def test_cut_at_each_write(kernel, volume, cut, up, then):	# noqa: F811
    """The next activation goes on, whether or not what was made of the SSD is still there."""
    n, ended = 1, False
    while not ended:
        volume.stop()
        if up:
            volume.boot(*volume.origins)
            assert kernel.devices == ["vol"]
        volume.plug_all()
        before = newest(volume.origins[0])
        data = contents(volume.origins[0])
        try:
            cut(n, "activate", "--auto", "--all", seed=n)
        except AssertionError:
            ended = True
        now = one_row(kernel, volume.origins[0], before)
        if then == "blank":
            volume.stop()
        else:
            # The machine starts again: the origin's volume is gone, and what the pool has stays
            volume.stop(blank=False)
        volume.boot()
        running(kernel)
        assert contents(volume.origins[0]) == data
        if then == "same" and now.pool != before.pool:
            assert volume.pool() == now.pool
        assert len(entries(kernel)) == 1
        n += 1
    assert n > 6


@pytest.mark.parametrize("then", ["same", "blank"])
def test_cut_after_the_entry(kernel, volume, then):
    """The origin does not know of it: it is deleted, and made again."""
    volume.stop()
    volume.plug_all()
    before = superblock(volume.origins[0])
    r = kernel("activate", "--auto", "--all",
               env={"HYBRID_FAKE_SIGNAL": f"{int(signal.SIGKILL)} message fast create_volume"})
    assert r.returncode == -9 and superblock(volume.origins[0]) == before
    with open(volume.ssd, "rb") as f:
        f.seek(512 * 1024)
        pool = f.read(4096)[64:80]
    # The model dies before it does what it is asked for
    kernel.change(volumes={str(uuid.UUID(bytes=pool)): [
        f"0 active {uuid.UUID(bytes=before.volume)} vol {uuid.UUID(bytes=before.member)} "
        "writethrough 2048 200704 2048 formatted 0"]})
    volume.stop(blank=then == "blank", clean=False)
    volume.boot()
    running(kernel)
    assert len(entries(kernel)) == 1 and (volume.pool() == pool) == (then == "same")


def test_one_of_two_was_attached(kernel, volume, loop):
    """A cut between them: the second follows, now or with the next pool."""
    volume.origins.append(loop("o1.img", 50))
    kernel.ok("attach", "fast", "two", "--origin", volume.origins[1], "--ephemeral", "-y")
    for blank in False, True:
        volume.stop()
        volume.boot(volume.ssd, volume.origins[0])
        assert superblock(volume.origins[0]).pool != superblock(volume.origins[1]).pool
        volume.stop(blank=blank)
        volume.boot(*reversed(volume.origins), volume.ssd)
        assert running(kernel) and running(kernel, "two")


def test_cuts_in_several_boots(kernel, volume, loop):
    """The second names a pool that was on the device long before, and has the one that is there now."""
    volume.origins.append(loop("o1.img", 50))
    kernel.ok("attach", "fast", "two", "--origin", volume.origins[1], "--ephemeral", "-y")
    for _ in range(3):
        volume.stop()
        volume.boot(volume.ssd, volume.origins[0])
    with open(volume.ssd, "rb") as f:
        f.seek(512 * 1024 + 320)
        assert superblock(volume.origins[1]).pool not in (f.read(16), volume.pool())
    volume.stop(blank=False)
    for device in reversed(volume.origins):
        volume.boot(device)
    assert state(kernel, "two") == "alone"
    volume.plug(volume.ssd)
    assert "action: hybridctl activate" in kernel("status", "two").stdout
    kernel.ok("activate", "--auto", "--all")
    assert running(kernel) and running(kernel, "two")
    assert volume.pool() == superblock(volume.origins[1]).pool


def test_the_old_cache_comes_back(kernel, volume):
    """A volume that has a new one is none of its own any more."""
    old, entry = whole(volume.ssd), kernel.state["volumes"]
    volume.stop()
    volume.boot()
    volume.stop()
    place(volume.ssd, 0, old)
    kernel.change(volumes=entry)
    volume.plug_all()
    kernel.ok("activate", "--auto", "--all")
    assert set(kernel.devices) == {"fast", "vol"} and state(kernel) == "alone" and entries(kernel) == []
