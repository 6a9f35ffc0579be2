# SPDX-License-Identifier: GPL-2.0-or-later
"""export: an origin without a cache becomes an ordinary disk, and what is refused."""
import hashlib
import json
import os
import signal
import subprocess
import uuid

import pytest

from cli.test_boot import HEAD_SB, MIB, edit_superblocks, event
from cli.test_life import DETACHED, LOSS_UNKNOWN, ORIGIN, copies, state, superblock

START = 2048


def out(*argv, **kw):
    return subprocess.run(argv, capture_output=True, text=True, check=True, **kw).stdout


def digest(device, start=START, sectors=None):
    with open(device, "rb") as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        f.seek(512 * start)
        return hashlib.sha256(f.read(512 * sectors if sectors else -1)).hexdigest()


def data(device):
    sb = next(sb for sb in copies(device) if sb.role)
    return digest(device, sb.data_sector, sb.data_sectors)


@pytest.fixture(params=[512, 4096])
def sector(request):
    return request.param


@pytest.fixture
def guard():
    return []


@pytest.fixture
def lone(kernel, loop, sector, guard):
    """The origin of vol, which has no cache, inactive, with data up to both ends."""
    cache, origin = loop("cache.img", 64), loop("origin.img", 100, sector)
    kernel.ok("create", "vol", "--cache", cache, "--origin", origin, "--block-size", "256k", "-y", *guard)
    kernel.ok("detach", "vol")
    with open(origin, "r+b") as f:
        f.seek(512 * START)
        f.write(os.urandom(98 * MIB))
        os.fsync(f.fileno())
    return origin


def table(device):
    return json.loads(out("sfdisk", "--json", device))["partitiontable"]


def is_exported(device, before, sector):
    """A GPT, whole at both ends, whose one partition is the data; nothing of ours."""
    assert "No errors detected" in out("sfdisk", "--verify", device)
    t = table(device)
    assert t["label"] == "gpt" and uuid.UUID(t["id"]) == uuid.UUID(bytes=before.member)
    (part,) = t["partitions"]
    assert (part["start"] * t["sectorsize"], part["size"] * t["sectorsize"]) == (
        before.data_sector * 512, before.data_sectors * 512)
    assert t["sectorsize"] == sector and part["type"] == "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
    assert uuid.UUID(part["uuid"]) == uuid.UUID(bytes=before.volume) and part["name"] == before.name
    with open(device, "rb") as f:
        image = f.read()
    assert b"dm-hybrid member" not in image[:MIB] and b"dm-hybrid member" not in image[-MIB:]
    # The backup alone is as good
    end = len(image) - sector
    assert image[end:end + 8] == image[sector:sector + 8] == b"EFI PART"
    assert image[end - 16384:end] == image[2 * sector:2 * sector + 16384]
    return part["node"]


def test_an_ordinary_disk(kernel, lone, sector):
    before, old = superblock(lone), data(lone)
    test = kernel.ok("export", "vol", "--test")
    assert f"from sector {START} on, 200704 sectors" in test and "at sectors 1024 and 203776" in test
    assert superblock(lone) == before
    text = kernel.ok("export", "vol", "-y")
    node = is_exported(lone, before, sector)
    assert f"its partition {node} (PARTUUID={uuid.UUID(bytes=before.volume)})" in text
    assert digest(lone, START, before.data_sectors) == old
    assert [row["name"] for row in json.loads(kernel.ok("list", "--json"))["volumes"]] == ["vol-pool"]
    assert event(kernel, lone) is None
    r = kernel("export", "vol", "-y")
    assert r.returncode == 4 and "no volume vol is known" in r.stderr


@pytest.mark.parametrize("what", ["device", "uuid"])
@pytest.mark.parametrize("sector", [512], indirect=True)
def test_by_its_device_or_uuid(kernel, lone, sector, what):
    before = superblock(lone)
    kernel.ok("export", lone if what == "device" else str(uuid.UUID(bytes=before.volume)), "-y")
    is_exported(lone, before, sector)


@pytest.mark.parametrize("guard", [["--guard-mbr"]])
def test_a_guard_becomes_the_tables(kernel, lone, guard, sector):
    """It is no table: attach takes such a disk, and so does export."""
    kernel.ok("attach", "vol-pool", "vol")
    kernel.ok("detach", "vol")
    before = superblock(lone)
    kernel.ok("export", "vol", "-y")
    is_exported(lone, before, sector)


@pytest.mark.parametrize("sector", [512], indirect=True)
def test_a_long_name(kernel, loop, sector):
    """63 characters, of which a GPT has room for 36."""
    name = "v" * 60 + "end"
    cache, origin = loop("cache.img", 64), loop("origin.img", 100)
    kernel.ok("create", name, "--pool", "p", "--cache", cache, "--origin", origin, "-y")
    kernel.ok("detach", name)
    kernel.ok("export", name, "-y")
    assert table(origin)["partitions"][0]["name"] == name[:36]


@pytest.mark.parametrize("sector", [512], indirect=True)
def test_a_disk_that_has_grown(kernel, lone, sector):
    """The backup stands at the end of what is there now."""
    before = superblock(lone)
    path = out("losetup", "--noheadings", "--output", "BACK-FILE", lone).strip()
    os.truncate(path, 120 * MIB)
    subprocess.run(["losetup", "--set-capacity", lone], check=True)
    kernel.ok("export", "vol", "-y")
    is_exported(lone, before, sector)


@pytest.mark.parametrize("sector", [512], indirect=True)
def test_its_device_goes_first(kernel, lone, sector):
    """Not while somebody uses it."""
    before = superblock(lone)
    kernel.ok("activate", "vol")
    now = superblock(lone)
    assert now.role == DETACHED
    kernel.change_device("vol", open_count=1)
    r = kernel("export", "vol", "-y")
    assert r.returncode == 5 and "vol is in use" in r.stderr
    assert superblock(lone) == now and kernel.devices == ["vol-pool", "vol"]
    kernel.change_device("vol", open_count=0)
    assert "dmsetup remove vol" in kernel.ok("export", "vol", "--test")
    kernel.ok("export", "vol", "-y")
    is_exported(lone, before, sector)
    assert kernel.devices == ["vol-pool"]


# What is refused ----------------------------------------------------------------------------

@pytest.mark.parametrize("sector", [512], indirect=True)
def test_refused(kernel, lone, sector, tmp_path, loop, driver):
    whole = digest(lone, 0)

    def refused(code, *words, args=("vol", "-y"), **kw):
        r = kernel("export", *args, **kw)
        assert r.returncode == code and all(word in r.stderr for word in words), r
        assert digest(lone, 0) == whole

    refused(1, "export needs NAME|DEVICE", args=())
    refused(2, "cannot ask without a terminal", args=("vol",))
    refused(2, "nothing was changed" if os.isatty(0) else "cannot ask without a terminal", args=("vol",), stdin="no\n")
    refused(4, "no volume other", args=("other", "-y"))
    refused(4, "no volume vol-pool", args=("vol-pool", "-y"))
    # Somebody else has it
    fd = os.open(lone, os.O_RDONLY | os.O_EXCL)
    refused(5, "is in use")
    os.close(fd)
    # Another host's
    conf = kernel.conf.read_text()
    kernel.conf.write_text("host_id = 11111111-2222-3333-4444-555555555555\n")
    refused(2, "belongs to another host", "adopt")
    kernel.conf.write_text(conf)
    # No dm-hybrid in the kernel, no device-mapper: neither is needed
    assert "GPT" in kernel.ok("export", "vol", "--test", fail="check")
    # Its loss was accepted, and nobody has seen to it
    for flags, lost in ((LOSS_UNKNOWN, 0), (0, 7)):
        edit_superblocks(lone, {100: bytes([flags]), 240: bytes([lost])})
        whole = digest(lone, 0)
        refused(2, "lost --acknowledge")
    edit_superblocks(lone, {100: b"\0", 240: b"\0"})
    # Damaged
    with open(lone, "r+b") as f:
        for at in HEAD_SB, 100 * MIB - HEAD_SB:
            f.seek(at + 200)
            f.write(b"damage")
    whole = digest(lone, 0)
    assert kernel("export", lone, "-y").returncode == 4 and digest(lone, 0) == whole


@pytest.mark.parametrize("sector", [512], indirect=True)
def test_with_a_cache(kernel, lone, sector):
    kernel.ok("attach", "vol-pool", "vol")
    for words in [], ["deactivate", "vol"]:
        if words:
            kernel.ok(*words)
        r = kernel("export", "vol", "-y")
        assert r.returncode == 2 and "detach it first" in r.stderr
    assert superblock(lone).role == ORIGIN


@pytest.mark.parametrize("sector", [512], indirect=True)
def test_in_place(kernel, loop, sector):
    cache, origin = loop("cache.img", 64), loop("origin.img", 100)
    subprocess.run(["mkfs.ext4", "-qF", origin], check=True)
    kernel.ok("create", "vol", "--cache", cache, "--origin", origin, "--in-place", "-y")
    r = kernel("export", "vol", "-y")
    assert r.returncode == 2 and f"its data is on {origin} as if there were no dm-hybrid" in r.stderr
    kernel.ok("deactivate", "vol")
    assert kernel("export", "vol", "-y").returncode == 4


@pytest.mark.parametrize("sector", [512], indirect=True)
def test_not_root(kernel, lone, sector, build):
    whole = digest(lone, 0)
    r = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", kernel.tool, "export", lone, "-y"],
                       capture_output=True, text=True)
    assert r.returncode == 2 and "run this as root" in r.stderr and digest(lone, 0) == whole


@pytest.mark.parametrize("sector", [512], indirect=True)
def test_a_device_that_cannot_be_written(kernel, build, lone, sector):
    """The table, or the second superblock: it is a volume still."""
    before = superblock(lone)
    for first in 203800 // 8 * 8, 0, 203776, 1024:
        for what in ({"FAULT_BAD": f"write {lone} {first} {204800 if first > 203776 else first + 8}"},
                     {"FAULT_FLUSH": f"1 {lone}"}):
            r = kernel("export", "vol", "-y", env={"LD_PRELOAD": str(build / "faults.so"), **what})
            assert r.returncode == 4 and "cannot write" in r.stderr, r
            assert any(sb.role == DETACHED for sb in copies(lone))
    kernel.ok("export", "vol", "-y")
    is_exported(lone, before, sector)


# Cut ----------------------------------------------------------------------------------------

TABLE_WRITES = 5


@pytest.fixture
def cut(kernel, build):
    def run(n, *command, seed=1):
        r = kernel(*command, env={"LD_PRELOAD": str(build / "faults.so"), "FAULT_CUT": f"{n} {seed}"})
        assert r.returncode == -signal.SIGKILL, r
    return run


def test_as_many_writes_as_are_cut(kernel, build, lone, tmp_path):
    kernel.ok("export", "vol", "-y", env={"LD_PRELOAD": str(build / "faults.so"),
                                          "FAULT_COUNT": str(tmp_path / "count")})
    assert int((tmp_path / "count").read_text()) == TABLE_WRITES + 2


@pytest.mark.parametrize("n", range(1, TABLE_WRITES + 3))
@pytest.mark.parametrize("apart", [False, True])
def test_cut_at_each_write(kernel, lone, cut, sector, n, apart):
    """Until the last one a volume that comes up without a cache; then an ordinary disk; never neither."""
    before, old = superblock(lone), data(lone)
    if apart:
        # A mark that was cut short: the older copy says that it has a cache
        edit_superblocks(lone, {96: bytes([ORIGIN]), 64: b"a pool's uuid...",
                                104: (before.sequence - 1).to_bytes(8, "little")}, copies=[1])
    n += 2 * apart
    whole, ended = n > TABLE_WRITES + 2 * apart, False
    for seed in [n] if apart else range(1, 5):
        cut(n, "export", "vol", "-y", seed=seed)
        assert digest(lone, START, before.data_sectors) == old
        if not any(sb.role in (ORIGIN, DETACHED) for sb in copies(lone)):
            ended = True
            break
        if whole:
            newest = max((sb for sb in copies(lone) if sb.role), key=lambda sb: sb.sequence)
            assert newest.role == DETACHED
        kernel.ok("activate", "vol")
        assert state(kernel) == "no-cache"
        kernel.ok("deactivate", "vol")
        if seed > 1 and not apart:
            continue
        r = kernel("attach", "vol-pool", "vol")
        if whole or r.returncode:
            assert r.returncode == 2 and "the export of vol was interrupted" in r.stderr
            out("wipefs", "--all", lone)
            kernel.ok("attach", "vol-pool", "vol")
        kernel.ok("detach", "vol")
    # Only the second superblock's write leaves none
    assert not ended or n == TABLE_WRITES + 2 + 2 * apart
    if not ended:
        kernel.ok("export", "vol", "-y")
    is_exported(lone, before, sector)
    assert digest(lone, START, before.data_sectors) == old


@pytest.mark.parametrize("sector", [512], indirect=True)
@pytest.mark.parametrize("ending", ["export", "wipefs"])
@pytest.mark.parametrize("whole", [2, 1], ids=["whole", "torn"])
def test_a_cut_is_seen(kernel, build, lone, cut, whole, ending):
    """status names the command that goes on, whether or not the volume is up, and list says why.

    Behind the table, before the head's superblock is written or in that write.
    """
    def shown():
        (row,) = json.loads(kernel("status", "vol", "--json").stdout)["status"]
        (listed,) = json.loads(kernel.ok("list", "vol", "--json", "-o", "state,why"))["volumes"]
        assert listed == {"state": row["state"], "why": row["reason"]}
        return row["state"], row["healthy"], "export was interrupted" in (row["reason"] or ""), row["action"]

    def both_say(healthy, cut_short, *actions):
        assert shown() == ("inactive", False, cut_short, actions[0])
        kernel.ok("activate", "vol")
        assert shown() == ("no-cache", healthy, cut_short, actions[-1])
        kernel.ok("deactivate", "vol")

    both_say(True, False, "hybridctl activate vol", None)
    before = superblock(lone)
    if whole == 1:
        cut(TABLE_WRITES + 1, "export", "vol", "-y")
    else:
        r = kernel("export", "vol", "-y", env={"LD_PRELOAD": str(build / "faults.so"),
                                               "FAULT_BAD": f"write {lone} 1024 1032"})
        assert r.returncode == 4 and "cannot write" in r.stderr
    assert len([sb for sb in copies(lone) if sb == before]) == whole
    assert shown() == ("inactive", False, True, "hybridctl export vol")
    # As found on the disk, and not as export announced it
    kernel.announce(lone)
    both_say(False, True, "hybridctl export vol")
    r = kernel("status", "--unhealthy")
    assert r.returncode == 7 and "action: hybridctl export vol" in r.stdout
    if ending == "wipefs":
        out("wipefs", "--all", lone)
        kernel.announce(lone)
        both_say(True, False, "hybridctl activate vol", None)
    else:
        kernel.ok("export", "vol", "-y")
        rows = json.loads(kernel("status", "--json").stdout)["status"]
        assert [row["name"] for row in rows] == ["vol-pool"]
