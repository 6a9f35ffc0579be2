# SPDX-License-Identifier: GPL-2.0-or-later
"""Superblocks on image files: written, found, refused when something is wrong."""
import json
import shutil
import subprocess

import pytest

MIB = 1 << 20
UUID = "0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1aa"
HEAD_SB = 512 * 1024


@pytest.fixture
def cache(driver, image):
    path = image("cache.img", 64)
    r = driver("format-cache", path, "fast", "128")
    assert r.returncode == 0, r.stderr
    return path


@pytest.fixture
def origin(driver, image):
    path = image("origin.img", 100)
    r = driver("format-origin", path, "data", UUID)
    assert r.returncode == 0, r.stderr
    return path


@pytest.fixture
def scan(hybridctl):
    def do(*paths):
        r = hybridctl("scan", *paths, "--json", "-o", "all")
        return r.returncode, json.loads(r.stdout)["members"] if r.stdout else []
    return do


def poke(path, offset, data):
    with open(path, "r+b") as f:
        f.seek(offset)
        f.write(data)


def test_a_new_pool_is_found(cache, scan):
    code, (m,) = scan(cache)
    assert code == 0
    assert (m["role"], m["state"], m["name"]) == ("cache", "ok", "fast")
    assert (m["size"], m["block_size"], m["policy"]) == (64 * MIB, 65536, "lru")
    assert m["data_offset"] % MIB == 0 and m["sequence"] == 1 and m["why"] is None


def test_a_new_origin_is_found(origin, scan):
    code, (m,) = scan(origin)
    assert code == 0
    assert (m["role"], m["state"], m["name"]) == ("origin", "ok", "data")
    assert (m["pool_uuid"], m["dirty"], m["id"]) == (UUID, "no", 0)
    assert m["data_offset"] == MIB


def test_the_first_root(cache, driver):
    """Sequence 2 in area A, nothing in B: what an empty pool must look like."""
    a, b = driver("root", cache).stdout.splitlines()
    assert a == ("A 0 sequence=2 tail=0 head=0 flags=1 next_instance=1 generations=0 epoch=set")
    assert b.startswith("B -")


def test_old_contents_of_head_and_tail_are_gone(driver, image):
    path = image("o.img", 16)
    path.write_bytes(b"\xa5" * (16 * MIB))
    assert driver("format-origin", path, "data", UUID).returncode == 0
    data = path.read_bytes()
    for start in (0, 15 * MIB):
        band = data[start:start + MIB]
        sb = HEAD_SB
        assert not any(band[:sb]) and not any(band[sb + 4096:])
    assert data[MIB:15 * MIB] == b"\xa5" * (14 * MIB)


@pytest.mark.parametrize("kib", [64 * 1024 + 4, 64 * 1024 + 0.5, 5 * 1024 + 3.5])
def test_odd_sizes(driver, image, scan, kib):
    path = image("odd.img", kib / 1024)
    assert driver("format-origin", path, "data", UUID).returncode == 0
    code, (m,) = scan(path)
    assert (code, m["state"]) == (0, "ok")


def test_nothing_there(image, scan):
    assert scan(image("empty.img", 10)) == (0, [])
    assert scan(image("tiny.img", 0.5)) == (0, [])


@pytest.mark.parametrize("where", ["head", "tail"])
def test_one_bad_copy_is_survived_and_named(origin, scan, where):
    offset = HEAD_SB if where == "head" else 100 * MIB - HEAD_SB
    poke(origin, offset + 200, b"\xff" * 16)
    code, (m,) = scan(origin)
    assert (code, m["state"], m["name"]) == (7, "one-copy", "data")
    assert where in m["why"] and "checksum" in m["why"]


def test_both_copies_bad_is_refused(origin, scan):
    for offset in (HEAD_SB, 100 * MIB - HEAD_SB):
        poke(origin, offset + 200, b"\xff" * 16)
    code, (m,) = scan(origin)
    assert (code, m["state"], m["role"]) == (4, "refused", "unknown")
    assert "checksum" in m["why"]


def test_a_clone_is_refused_by_name(origin, scan, tmp_path):
    clone = tmp_path / "clone.img"
    shutil.copy(origin, clone)
    code, members = scan(origin, clone)
    assert code == 4 and len(members) == 2
    assert {m["state"] for m in members} == {"refused"}
    assert "clone.img" in members[0]["why"] and "origin.img" in members[1]["why"]


def test_a_shifted_member_is_refused(origin, scan, tmp_path):
    shifted = tmp_path / "shifted.img"
    shifted.write_bytes(b"\0" * 4096 + origin.read_bytes())
    # Where the tail's superblock belongs stands one that names another place
    code, (m,) = scan(shifted)
    assert (code, m["state"]) == (4, "refused")
    assert "another place" in m["why"]


def test_a_shrunk_device_is_refused(origin, scan):
    with open(origin, "r+b") as f:
        f.truncate(50 * MIB)
    code, (m,) = scan(origin)
    assert (code, m["state"]) == (4, "refused")
    assert "smaller" in m["why"]


def test_a_grown_device_is_accepted(origin, scan):
    with open(origin, "r+b") as f:
        f.truncate(150 * MIB)
    code, (m,) = scan(origin)
    assert (code, m["state"], m["size"]) == (0, "ok", 100 * MIB)


def test_a_newer_format_is_refused(origin, scan):
    # The version stands behind magic and crc; a newer one may have another crc
    sb = bytearray(origin.read_bytes()[HEAD_SB:HEAD_SB + 4096])
    sb[20:24] = (99).to_bytes(4, "little")
    sb[16:20] = b"\0\0\0\0"
    sb[16:20] = crc32c(bytes(sb)).to_bytes(4, "little")
    poke(origin, HEAD_SB, bytes(sb))
    poke(origin, 100 * MIB - HEAD_SB, b"\0" * 4096)
    code, (m,) = scan(origin)
    assert (code, m["state"]) == (4, "refused")
    assert m["why"].startswith("its format is version 99, and this program knows version ")


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def test_detached(origin, driver, scan):
    assert driver("mark-detached", origin).returncode == 0
    code, (m,) = scan(origin)
    assert (code, m["state"], m["role"], m["sequence"]) == (0, "ok", "detached", 2)
    assert m["name"] == "data" and m["data_offset"] == MIB


def test_one_superblock_after_the_other(origin, build, tmp_path):
    """Each is durable before the other one is written: no power cut tears both."""
    trace = tmp_path / "trace"
    subprocess.run(["strace", "-e", "trace=pwrite64,fsync,fdatasync", "-o", trace, build / "lib-driver",
                    "mark-detached", origin], check=True)
    calls = [line.split("(")[0] for line in trace.read_text().splitlines() if " = " in line]
    assert calls == ["pwrite64", "fsync"] * 2


def test_wiped(origin, driver, scan):
    assert driver("wipe", origin).returncode == 0
    assert scan(origin) == (0, [])


def test_foreign_data_is_not_ours(image, scan):
    path = image("ext4.img", 20)
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-qF", path], check=True)
    assert scan(path) == (0, [])


@pytest.mark.parametrize("mib,block", [(3, 128), (1, 8), (64, 100), (64, 4)])
def test_a_cache_that_does_not_fit(driver, image, mib, block):
    path = image("small.img", mib)
    before = path.read_bytes()
    r = driver("format-cache", path, "fast", str(block))
    assert r.returncode == 4
    assert "cannot be a cache device" in r.stderr and "next:" in r.stderr
    assert path.read_bytes() == before


def test_export(origin, hybridctl):
    r = hybridctl("scan", origin, "--export", "-o", "role,name,size,state,pool_uuid")
    assert r.stdout.splitlines() == [
        "HYBRID_ROLE=origin", "HYBRID_NAME=data", f"HYBRID_SIZE={100 * MIB}",
        "HYBRID_STATE=ok", f"HYBRID_POOL_UUID={UUID}"]


def test_select_sort_units(origin, cache, hybridctl):
    def names(*args):
        r = hybridctl("scan", origin, cache, "--noheadings", "-o", "name", *args)
        assert r.returncode == 0, r.stderr
        return r.stdout.split()
    assert names("-O", "name") == ["data", "fast"]
    assert names("-O", "-name") == ["fast", "data"]
    assert names("-O", "size") == ["fast", "data"]
    assert names("-S", "role=cache") == ["fast"]
    assert names("-S", "size>80m") == ["data"]
    assert names("-S", "size>80m || role=cache", "-O", "name") == ["data", "fast"]
    r = hybridctl("scan", cache, "--json", "-S", "role=origin")
    assert json.loads(r.stdout) == {"members": []}
    r = hybridctl("scan", cache, "--noheadings", "-o", "size", "--units", "k")
    assert r.stdout.split() == ["65536.00k"]
    r = hybridctl("scan", cache, "-o", "name,size")
    assert r.stdout.splitlines()[0].split() == ["Name", "Size"]


def test_scan_of_what_cannot_be_read(hybridctl, tmp_path):
    r = hybridctl("scan", tmp_path / "missing")
    assert r.returncode == 4 and "No such file" in r.stderr
    assert hybridctl("scan", tmp_path).returncode == 4


@pytest.fixture
def larger(origin, driver):
    """An origin of 100 MiB where one of 50 MiB was; and the tail of that one."""
    with open(origin, "r+b") as f:
        f.truncate(50 * MIB)
    for mib in 50, 100:
        with open(origin, "r+b") as f:
            f.truncate(mib * MIB)
        if mib == 100:
            tail = origin.read_bytes()[50 * MIB - HEAD_SB:][:4096]
        assert driver("format-origin", origin, f"of-{mib}", UUID).returncode == 0
    assert tail.startswith(b"dm-hybrid member")
    return origin, tail


def test_the_tail_of_a_smaller_member_goes(larger):
    """It would describe the device if that shrank, and the head were lost."""
    path, tail = larger
    assert path.read_bytes()[50 * MIB - HEAD_SB:][:len(tail)] == bytes(len(tail))
