# SPDX-License-Identifier: GPL-2.0-or-later
"""What udev, units and initramfs call: probe, wipe, scan --udev, activate --auto."""
import errno
import json
import os
import shutil
import subprocess

import pytest

MIB = 1 << 20
UUID = "0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1aa"
HEAD_SB = 512 * 1024


def keys(r):
    assert r.returncode == 0, r.stderr
    return dict(line.split("=", 1) for line in r.stdout.splitlines())


@pytest.fixture
def origin(driver, image):
    path = image("origin.img", 16)
    r = driver("format-origin", path, "data", UUID)
    assert r.returncode == 0, r.stderr
    return path


# probe --------------------------------------------------------------------------

def test_probe_tells_udev_what_blkid_would(hybridctl, origin):
    k = keys(hybridctl("probe", origin, "--export"))
    assert (k["ID_FS_TYPE"], k["ID_FS_USAGE"]) == ("dm_hybrid_member", "raid")
    assert (k["ID_FS_UUID"], k["HYBRID_POOL_UUID"]) == (UUID, UUID)
    assert k["ID_FS_UUID_SUB"] == k["HYBRID_MEMBER_UUID"]
    assert (k["ID_FS_LABEL"], k["HYBRID_ROLE"], k["HYBRID_DIRTY"]) == ("data", "origin", "no")


def test_probe_in_words(hybridctl, origin, image):
    r = hybridctl("probe", origin)
    assert r.returncode == 0 and "origin" in r.stdout and UUID in r.stdout
    r = hybridctl("probe", image("empty", 16))
    assert r.returncode == 4 and "not a member" in r.stderr


def test_a_hostile_name_is_harmless(hybridctl, driver, origin):
    """The superblock is whatever a stranger wrote: with a good checksum, too."""
    data = bytearray(origin.read_bytes())
    for at in (HEAD_SB, 16 * MIB - HEAD_SB):
        name = b'a"$(b)`\n\\c;X=1 / \xc3\xa4'
        data[at + 112:at + 112 + len(name)] = name
        data[at + 16:at + 20] = bytes(4)
        data[at + 16:at + 20] = crc32c(bytes(data[at:at + 4096])).to_bytes(4, "little")
    origin.write_bytes(data)
    r = hybridctl("probe", origin, "--export")
    for line in r.stdout.splitlines():
        key, value = line.split("=", 1)
        assert key.replace("_", "").isalnum() and not set(value) & set("\"'$`;\n"), line
        assert "\\" not in value or key.endswith("_ENC")


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def test_a_damaged_member_is_named(hybridctl, origin):
    for at in (HEAD_SB, 16 * MIB - HEAD_SB):
        with open(origin, "r+b") as f:
            f.seek(at + 200)
            f.write(b"\xff" * 16)
    r = hybridctl("probe", origin, "--export")
    assert r.returncode == 4
    assert "ID_FS_TYPE=dm_hybrid_member" in r.stdout and "checksum" in r.stdout


# wipe ---------------------------------------------------------------------------

def test_wipe(hybridctl, origin):
    with open(origin, "r+b") as f:
        f.seek(MIB)
        f.write(b"x" * MIB)
    before = origin.read_bytes()
    for words, says in (([], "cannot ask without a terminal"), (["-y"], "belongs to a pool")):
        r = hybridctl("wipe", origin, *words)
        assert r.returncode == 2 and says in r.stderr
    assert hybridctl("wipe", origin, "--test").returncode == 0
    assert origin.read_bytes() == before
    assert hybridctl("wipe", origin, "-y", "--wipe-signatures").returncode == 0
    after = origin.read_bytes()
    assert not any(after[:MIB]) and not any(after[15 * MIB:])
    assert after[MIB:15 * MIB] == before[MIB:15 * MIB]
    assert hybridctl("wipe", origin, "-y", "--wipe-signatures").returncode == 4


def test_wipe_of_a_damaged_member(hybridctl, origin):
    with open(origin, "r+b") as f:
        for at in (HEAD_SB, 16 * MIB - HEAD_SB):
            f.seek(at + 200)
            f.write(b"\xff" * 16)
    assert hybridctl("probe", origin).returncode == 4
    assert hybridctl("wipe", origin, "-y", "--wipe-signatures").returncode == 0
    assert "not a member" in hybridctl("probe", origin).stderr


def test_wipe_refuses_what_is_in_use(kernel, loop):
    cache = loop("c", 64)
    kernel.ok("create", "vol", "--cache", cache, "--origin", loop("o", 16), "-y")
    fd = os.open(cache, os.O_RDONLY | os.O_EXCL)
    try:
        r = kernel("wipe", cache, "-y", "--wipe-signatures")
    finally:
        os.close(fd)
    assert r.returncode == 5 and "in use" in r.stderr
    assert kernel("probe", cache).returncode == 0


def test_a_guard_until_it_is_wiped(kernel, loop):
    """--guard-mbr: one entry of type 0xEE over the whole disk; nothing else changes."""
    cache, origin = loop("c", 64), loop("o", 16)
    args = ["create", "vol", "--cache", cache, "--origin", origin, "-y", "--guard-mbr"]
    assert kernel.ok(*args, "--test").count("a protective MBR") == 2
    kernel.ok(*args)
    for dev, mib in (cache, 64), (origin, 16):
        with open(dev, "rb") as f:
            head = f.read(MIB)
        assert head[510:512] == b"\x55\xaa" and head[450] == 0xee
        assert int.from_bytes(head[454:458], "little") == 1
        assert int.from_bytes(head[458:462], "little") == mib * 2048 - 1
        assert not any(head[:446]) and not any(head[462:510]) and not any(head[512:HEAD_SB])
        assert "PMBR" in subprocess.run(["blkid", "-p", dev], capture_output=True, text=True).stdout
    kernel.ok("deactivate", "vol")
    assert keys(kernel("probe", origin, "--export"))["HYBRID_NAME"] == "vol"
    kernel.ok("wipe", origin, "-y", "--wipe-signatures")
    with open(origin, "rb") as f:
        assert not any(f.read(MIB))


# scan --udev ----------------------------------------------------------------------

@pytest.fixture
def volume(kernel, loop):
    """An inactive pool of one volume, as at the beginning of a boot: (cache, origin)."""
    devs = loop("c", 64), loop("o", 100)
    kernel.ok("create", "vol", "--cache", devs[0], "--origin", devs[1], "-y")
    kernel.ok("deactivate", "vol")
    shutil.rmtree(kernel.path.with_name("run"))
    return devs


def event(kernel, device):
    return keys(kernel("scan", "--udev", device)).get("HYBRID_STATE")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_complete_in_either_order(kernel, volume, order):
    first, second = (volume[n] for n in order)
    assert event(kernel, first) == ("degraded" if order[0] else "complete")
    assert event(kernel, second) == "complete"
    uuid = keys(kernel("scan", "--udev", second))["HYBRID_MEMBER_UUID"]
    kernel.ok("activate", "--auto", uuid)
    assert kernel.devices == ["vol-pool", "vol"]
    assert {event(kernel, d) for d in volume} == {"active"}


def test_an_origin_whose_cache_has_newer_data_waits(kernel, driver, volume):
    mark_dirty(volume[1])
    assert event(kernel, volume[1]) == "waiting"
    r = kernel("activate", "--auto", "--all", "--degraded")
    assert r.returncode == 7 and "newer data" in r.stderr
    assert kernel.devices == []


def test_an_origin_of_another_volume_is_refused(kernel, volume):
    """It bears the UUID of the member that is looked for, and the name of another's data."""
    edit_superblocks(volume[1], {208: b"somebody else's!"})
    r = kernel("activate", "vol-pool", "--device", volume[0], "--device", volume[1])
    assert r.returncode == 4 and f"{volume[1]} belongs to another pool or volume" in r.stderr, r
    assert kernel.devices == ["vol-pool"]


@pytest.mark.parametrize("command", [
    "activate {cache}", "doctor", "create new --cache {cache} --origin {other} -y --wipe-signatures",
    "create new --cache {other} --origin {origin} -y --wipe-signatures",
    "create new --cache {other} --origin {origin} --in-place -y --wipe-signatures", "wipe {cache} -y", "lost {origin}"])
def test_members_of_another_format(kernel, volume, loop, command):
    """The command names the format, and advises nothing that would overwrite them."""
    for device in volume:
        edit_superblocks(device, {20: b"\6"})
        assert event(kernel, device) == "refused"
    words = command.format(cache=volume[0], origin=volume[1], other=loop("x", 64)).split()
    r = kernel(*words)
    lines = [line for line in (r.stdout + r.stderr).splitlines() if not line.startswith("hybridctl: warning")]
    said = [n for n, line in enumerate(lines) if "its format is version 6, and this program knows" in line]
    assert r.returncode and said, r
    for n in said:
        assert lines[n + 1].lstrip() == "next: use the tools and the module of the release that wrote it"


def mark_dirty(device):
    edit_superblocks(device, {100: b"\1"})


def edit_superblocks(device, fields, copies=(0, 1)):
    """Both copies, or one, with a good checksum: bytes by their offset."""
    with open(device, "r+b") as f:
        places = HEAD_SB, f.seek(0, os.SEEK_END) - HEAD_SB
        for at in (places[copy] for copy in copies):
            f.seek(at)
            sb = bytearray(f.read(4096))
            for offset, value in fields.items():
                sb[offset:offset + len(value)] = value
            sb[16:20] = bytes(4)
            sb[16:20] = crc32c(bytes(sb)).to_bytes(4, "little")
            f.seek(at)
            f.write(sb)
        os.fsync(f.fileno())


def nonces(device):
    with open(device, "rb") as f:
        for at in (HEAD_SB, 100 * MIB - HEAD_SB):
            f.seek(at)
            yield f.read(4096)


def test_an_origin_alone(kernel, volume):
    """Clean, its cache gone: it runs, but is marked so that the cache is not believed."""
    kernel.scan.remove(volume[0].removeprefix("/dev/"))
    before = list(nonces(volume[1]))
    assert event(kernel, volume[1]) == "degraded"
    assert kernel("activate", "--auto", "--all").returncode == 7
    assert kernel.devices == [] and list(nonces(volume[1])) == before
    r = kernel("activate", "--auto", "--all", "--degraded")
    assert r.returncode == 0 and "without its cache" in r.stderr
    assert kernel.devices == ["vol"]
    assert all(a != b for a, b in zip(before, nonces(volume[1])))
    row = json.loads(kernel.ok("list", "vol", "--json", "-o", "all"))["volumes"][0]
    assert (row["state"], row["mode"], row["origin"]) == ("alone", "passthrough", volume[1])
    assert "action: connect the cache device" in kernel.ok("status", "vol")
    # Nothing that needs the pool is done to it
    for command in (["drain", "vol"], ["set", "vol", "cutoff=0"]):
        assert kernel(*command).returncode not in (0, -11)
    # The cache comes late: its pool starts, and the volume joins it
    assert event(kernel, volume[0]) == "complete"
    kernel.ok("activate", "--auto", "--all")
    assert kernel.devices == ["vol", "vol-pool"]
    row = json.loads(kernel.ok("list", "vol", "--json", "-o", "all"))["volumes"][0]
    assert (row["state"], row["pool"]) == ("running", "vol-pool")
    kernel.ok("deactivate", "--all")
    assert kernel.devices == []


def test_no_origin_alone_beside_a_refused_cache(kernel, volume, loop, tmp_path):
    """A cloned cache device is no missing one."""
    clone = clone_of(volume[0], loop, 64)
    for d in (volume[0], clone, volume[1]):
        event(kernel, d)
    assert kernel("activate", "--auto", "--all", "--degraded").returncode == 7
    assert kernel.devices == []


def clone_of(device, loop, mib):
    clone = loop("clone.img", mib)
    subprocess.run(["dd", f"if={device}", f"of={clone}", "bs=1M", "conv=fsync",
                    "status=none"], check=True)
    return clone


def test_a_clone_is_refused_and_named(kernel, volume, loop):
    event(kernel, volume[0])
    clone = clone_of(volume[1], loop, 100)
    assert event(kernel, volume[1]) == "complete"
    r = kernel("scan", "--udev", clone)
    k = keys(r)
    assert k["HYBRID_STATE"] == "refused" and volume[1] in k["HYBRID_WHY"]
    assert volume[1] in r.stderr
    assert kernel("activate", "--auto", "--all").returncode != 0
    assert "vol" not in kernel.devices
    rows = json.loads(kernel.ok("list", "--json", "-o", "name,state,origin,why"))["volumes"]
    assert {r["origin"]: r["why"] for r in rows if r["state"] == "refused"} == {
        a: f"{b} has the same member UUID" for a, b in ((volume[1], clone), (clone, volume[1]))}


def status_of(kernel, name):
    r = kernel("status", name)
    assert r.returncode == 7, r
    return r.stdout


def test_an_origin_with_a_clone_is_not_missing(kernel, volume, loop):
    """Nothing advises to give up the dirty data that its pool has, and detach does not do it either."""
    event(kernel, volume[0])
    clone = clone_of(volume[1], loop, 100)
    for device in volume[1], clone:
        event(kernel, device)
    assert kernel("activate", "--auto", "--all").returncode == 7 and kernel.devices == ["vol-pool"]
    kernel.change(dirty_vol=100)
    said = status_of(kernel, "vol")
    assert f"its origin {volume[1]} is refused: {clone} has the same member UUID" in said
    assert "disconnect the copy" in said and "missing" not in said and "drop-dirty" not in said
    assert "vol: its member is not found" not in kernel("doctor").stdout
    for words in ["--drop-dirty", "-y"], []:
        r = kernel("detach", "vol", *words)
        assert r.returncode == 4 and f"its origin {volume[1]} is refused" in r.stderr, r
    assert not [line for line in kernel.log if "delete_volume" in line]
    kernel.ok("activate", "vol", "--device", volume[1])
    assert kernel.devices == ["vol-pool", "vol"]
    # The clone is in nobody's way then
    kernel.change(dirty_vol=0)
    kernel.ok("detach", "vol")


def test_a_cache_device_with_a_clone_is_not_missing(kernel, volume, loop):
    mark_dirty(volume[1])
    clone = clone_of(volume[0], loop, 64)
    for device in *volume, clone:
        event(kernel, device)
    said = status_of(kernel, "vol")
    assert f"its cache device {volume[0]} is refused: {clone} has the same member UUID" in said
    assert "disconnect the copy" in said and "missing" not in said and "accept-loss" not in said


def test_a_clone_of_what_runs_is_refused_alone(kernel, volume, loop):
    for d in volume:
        event(kernel, d)
    kernel.ok("activate", "--auto", "--all")
    assert event(kernel, clone_of(volume[1], loop, 100)) == "refused"
    assert kernel.devices == ["vol-pool", "vol"]


def test_a_member_of_another_pool_stays_alone(kernel, volume, loop, driver):
    """Neither its volume nor ours is exposed with it."""
    foreign = loop("foreign.img", 16)
    assert driver("format-origin", foreign, "other", UUID).returncode == 0
    assert event(kernel, volume[0]) == "complete"
    assert event(kernel, foreign) == "degraded"
    assert kernel("activate", "--auto", "--all").returncode == 7
    assert kernel.devices == ["vol-pool"]


def test_what_is_gone_does_not_count(kernel, volume):
    """Of a record of a device that is no member any more, nothing is believed."""
    assert event(kernel, volume[0]) == "complete"
    kernel.ok("wipe", volume[0], "-y", "--wipe-signatures")
    assert event(kernel, volume[1]) == "degraded"
    assert kernel("scan", "--udev", volume[0]).stdout == ""
    record = kernel.path.with_name("run") / "members"
    (record / f"4001:7.cache.{UUID}.{UUID}").touch()
    assert event(kernel, volume[1]) == "degraded"
    assert sorted(p.name.split(".")[0] for p in record.iterdir()) == ["4001:7", number(volume[1])]
    kernel.ok("scan", "--udev", "--gone", "4001:7")
    assert [p.name.split(".")[0] for p in record.iterdir()] == [number(volume[1])]


def number(path):
    st = os.stat(path)
    return f"{os.major(st.st_rdev)}:{os.minor(st.st_rdev)}"


def test_no_member_no_words(kernel, loop):
    r = kernel("scan", "--udev", loop("empty", 16))
    assert (r.returncode, r.stdout, r.stderr) == (0, "", "")


def test_what_blkid_knows_as_another_s_is_no_member(kernel, volume):
    """Half of a mirror looks like the array's member; the rules ask about it while an origin is awaited."""
    run = kernel.path.with_name("run")
    (run / "awaited").mkdir(parents=True)
    assert event(kernel, volume[0]) == "complete"
    for device in volume:
        r = kernel("scan", "--udev", device, env={"ID_FS_TYPE": "linux_raid_member"})
        assert (r.returncode, r.stdout, r.stderr) == (0, "", "")
    assert list((run / "members").iterdir()) == []
    k = keys(kernel("scan", "--udev", volume[0], env={"ID_FS_TYPE": "dm_hybrid_member"}))
    assert k["HYBRID_STATE"] == "complete"


def test_udev_gets_its_answer_in_milliseconds(kernel, volume, loop):
    """With some members announced; the bound is wide, for busy machines."""
    for d in volume:
        event(kernel, d)
    begin = os.times()
    for _ in range(10):
        event(kernel, volume[0])
    end = os.times()
    spent = end[2] + end[3] - begin[2] - begin[3]
    assert spent / 10 < 0.05, f"{spent * 100:.1f} ms of CPU for each event"


def unreadable(build, path, *ranges):
    return {"LD_PRELOAD": str(build / "faults.so"),
            "FAULT_BAD": ";".join(f"read {path} {a} {b}" for a, b in ranges)}


@pytest.mark.parametrize("content", [b"", b"somebody's"])
def test_what_cannot_be_read_makes_no_member(hybridctl, build, image, content):
    """A bad sector at the end of a stranger's disk: udev would hide it, wipe would take it."""
    disk = image("disk", 16)
    disk.write_bytes(content.ljust(16 * MIB, b"\0"))
    env = unreadable(build, disk, (15 * 2048, 16 * 2048))
    r = hybridctl("probe", disk, "--export", env=env)
    assert r.returncode == 4 and r.stdout == "" and "cannot read" in r.stderr, r
    r = hybridctl("wipe", disk, "-y", "--wipe-signatures", env=env)
    assert r.returncode == 4 and disk.read_bytes()[:len(content)] == content
    r = hybridctl("scan", disk, "--json", env=env)
    assert r.returncode == 4 and "cannot read" in r.stderr, r


@pytest.mark.parametrize("bad", ["head", "tail"])
def test_one_copy_that_cannot_be_read_is_a_member(hybridctl, build, origin, bad):
    first = {"head": 0, "tail": 15 * 2048}[bad]
    r = hybridctl("probe", origin, env=unreadable(build, origin, (first, first + 2048)))
    assert r.returncode == 0 and "one copy" in r.stdout and bad in r.stdout, r


@pytest.mark.parametrize("error", [errno.EIO, errno.ENODATA, errno.ETIMEDOUT])
def test_what_cannot_be_read_is_not_empty(hybridctl, build, origin, error):
    """As the kernel calls it: a bad medium, no data; a path that is gone, a timeout."""
    env = unreadable(build, origin, (0, 2048), (15 * 2048, 16 * 2048))
    r = hybridctl("probe", origin, "--export", env={**env, "FAULT_ERRNO": str(error)})
    assert r.returncode == 4 and r.stdout == "" and "cannot read" in r.stderr, r
    r = hybridctl("scan", origin, env={**env, "FAULT_ERRNO": str(error)})
    assert r.returncode == 4 and "cannot read" in r.stderr, r
