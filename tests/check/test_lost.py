# SPDX-License-Identifier: GPL-2.0-or-later
"""hybridctl lost: what is gone with a cache device, and the files that are concerned."""
import json
import os
import re
import subprocess

import pytest
from check.corrupt import Block, Member, constant
from check.pools import HEAD, MIB, Pool

UNREADABLE = "cache device: Input/output error"


@pytest.fixture
def lost(build, tmp_path):
    """lost(*args, bad=...): hybridctl lost on disks with bad sectors."""
    def go(*args, bad="", **kw):
        return subprocess.run([build / "hybridctl", "lost", *args], capture_output=True, text=True,
                              cwd=tmp_path, timeout=60, **kw,
                              env={**os.environ, "LD_PRELOAD": str(build / "faults.so"),
                                   "FAULT_BAD": bad})
    return go


def ranges(r):
    return [(x["volume"], x["offset"], x["length"], x["reason"])
            for x in json.loads(r.stdout)["lost"]]


def bad(pool, *places):
    """FAULT_BAD for (volume, sector, count)s of what is in the cache."""
    data = pool.cache.read_bytes()
    out = []
    for n, sector, count in places:
        want = bytes(pool.want[n][sector * 512:(sector + count) * 512])
        assert data.count(want) == 1
        first = data.index(want) // 512
        out.append(f"read {pool.cache} {first} {first + count}")
    return ";".join(out)


def test_what_can_be_read_is_not_lost(pool, lost):
    r = lost(pool.cache, *pool.origins)
    assert (r.returncode, r.stdout, r.stderr) == (0, "nothing is lost\n", "")
    assert ranges(lost(pool.cache, "--json")) == []
    # Nor is what the origin has as well.
    pool.opened("drain", "close 0", "close 1", "stop")
    assert lost(pool.cache, bad=f"read {pool.cache} {5 * 2048} 30000").returncode == 0


def test_dirty_data_behind_bad_sectors(pool, lost):
    where = bad(pool, (0, 1020, 1), (1, 4000, 24), (1, 4040, 8))
    before = pool.bytes()
    r = lost(pool.cache, "--json", bad=where)
    assert r.returncode == 7
    assert ranges(r) == [("vol0", 1016 * 512, 4096, UNREADABLE),
                         ("vol1", 4000 * 512, 24 * 512, UNREADABLE),
                         ("vol1", 4040 * 512, 4096, UNREADABLE)]
    words = lost(pool.cache, "--noheadings", bad=where).stdout.splitlines()
    assert words[0].split(None, 3) == ["vol0", str(1016 * 512), "4096", UNREADABLE]
    assert len(words) == 3
    r = lost(pool.cache, "-q", bad=where)
    assert (r.returncode, r.stdout, r.stderr) == (7, "", "")
    assert pool.bytes() == before


def test_all_lists_everything_that_only_the_cache_has(pool, lost):
    r = lost(pool.cache, "--all", "--json")
    assert r.returncode == 7
    got = [(v, offset // 512, length // 512) for v, offset, length, _ in ranges(r)]
    assert got == [("vol0", 0, 16), ("vol0", 1000, 304), ("vol1", 0, 1024), ("vol1", 4000, 64)]


def test_where_nothing_tells_it_is_unknown_and_never_none(pool, lost):
    # An origin that is dirty, without its cache
    r = lost(pool.origins[0], "--json")
    assert r.returncode == 4
    assert ranges(r) == [("vol0", None, None,
                          "unknown: its cache device is not here, and may have newer data")]
    # With it: the cache device tells, in any order
    assert lost(pool.origins[0], pool.cache).returncode == 0
    # A cache device whose map is damaged
    with open(pool.cache, "r+b") as f:
        f.seek(MIB)
        f.write(bytes(8192))
    r = lost(pool.cache, "--json")
    assert r.returncode == 4
    assert "unknown: the metadata of the cache device is damaged" in r.stdout
    # A clean origin has lost nothing, whatever became of its cache.
    with open(pool.cache, "r+b") as f:
        f.truncate(4096)
    r = lost(pool.cache)
    assert r.returncode == 4 and "not a member" in r.stderr


def test_a_clean_origin_has_lost_nothing(build, tmp_path, lost):
    pool = Pool(build, tmp_path / "pool")
    pool.write((0, 0, 64, 1), end=("drain", "close 0", "stop"))
    assert lost(*pool.origins).stdout == "nothing is lost\n"


def test_what_is_no_member(tmp_path, lost):
    path = tmp_path / "file"
    path.write_bytes(bytes(8 * MIB))
    r = lost(path)
    assert r.returncode == 4 and "it is not a member of a pool" in r.stderr


@pytest.mark.parametrize("copies", [(0, 1), (0,), (1,)])
def test_what_an_origin_says_that_it_lost(pool, lost, copies):
    origin = Member(pool.origins[0])
    for copy in range(2):
        origin.lost_map(copy, b"\x1d")	# chunks of 4 KiB: 0, 2 to 4
    for copy in {0, 1} - set(copies):
        with Block(origin.path, origin.superblock(copy).sector + 8, "hybrid_lost_map", 8192) as map:
            map.spoil()
    why = "its cache died"
    r = lost(origin.path, "--json")
    assert r.returncode == 7
    assert ranges(r) == [("vol0", 0, 4096, why), ("vol0", 8192, 3 * 4096, why)]
    # Its cache is back, with all it had
    assert lost(pool.cache, origin.path).stdout == "nothing is lost\n"
    # Neither copy is good: unknown
    for copy in copies:
        with Block(origin.path, origin.superblock(copy).sector + 8, "hybrid_lost_map", 8192) as map:
            map.spoil()
    r = lost(origin.path, "--json")
    assert r.returncode == 4
    assert ranges(r) == [("vol0", None, None,
                          "unknown: the map of the lost data cannot be read")]


def test_a_loss_that_was_accepted(pool, lost):
    """The origin has no cache any more: it alone tells, whatever the old cache says."""
    origin = Member(pool.origins[0])
    for copy in range(2):
        origin.lost_map(copy, b"\x03")
    for field, value in (("role", constant("ROLE_DETACHED")), ("flags", 0), ("pool_uuid", bytes(16))):
        origin.set(field, value)
    for devices in [origin.path], [pool.cache, origin.path]:
        r = lost(*devices, "--json")
        assert r.returncode == 7 and ranges(r) == [("vol0", 0, 8192, "its cache died")]
    origin.set("origin.lost", 0)
    r = lost(origin.path)
    assert (r.returncode, r.stdout) == (0, "nothing is lost\n")
    origin.set("flags", constant("SB_LOSS_UNKNOWN"))
    r = lost(origin.path, "--json")
    assert r.returncode == 4
    assert ranges(r) == [("vol0", None, None, "unknown: its cache was given up with newer data")]


def test_an_origin_that_went_on_without_its_cache(pool, lost):
    Member(pool.origins[0]).set("origin.nonce", 12345)
    r = lost(pool.cache, *pool.origins, "--json")
    assert r.returncode == 4
    assert ranges(r) == [("vol0", None, None,
                          "unknown: it was written without its cache, which has newer data")]
    for copy in range(2):
        Member(pool.origins[0]).lost_map(copy, b"\x01")
    assert ranges(lost(pool.cache, *pool.origins, "--json")) == [
        ("vol0", 0, 4096, "its cache died")]


# --- --files --------------------------------------------------------------------


def with_filesystem(build, directory, image):
    """A pool whose volume has that filesystem, clean on the origin."""
    pool = Pool(build, directory / "pool", origin_mib=image.stat().st_size // MIB + 2)
    with open(pool.origins[0], "r+b") as f:
        f.seek(HEAD * 512)
        f.write(image.read_bytes())
    pool.want[0][:] = image.read_bytes()
    return pool


@pytest.fixture
def files(tmp_path):
    """A directory with three files."""
    directory = tmp_path / "files"
    (directory / "dir").mkdir(parents=True)
    for n, name in enumerate(("one", "dir/two", "dir/three")):
        (directory / name).write_bytes(bytes([n + 1]) * 300_000)
    return directory


@pytest.fixture
def ext4(build, files, tmp_path):
    image = tmp_path / "ext4"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-b", "1024", "-d", files, image, "14M"], check=True)
    return with_filesystem(build, tmp_path, image)


def block_of(image, path, index):
    out = subprocess.run(["debugfs", "-R", f"bmap {path} {index}", f"{image}?offset={HEAD * 512}"],
                         capture_output=True, text=True, check=True).stdout
    return int(out)


def test_files_of_ext4(ext4, lost):
    two, three = (block_of(ext4.origins[0], f"/dir/{name}", 8) for name in ("two", "three"))
    # Written again, so that they are dirty; in whole granules
    places = [(0, block * 2 // 8 * 8, 8) for block in (two, three)]
    ext4.write(*((*place, seed) for seed, place in enumerate(places, 5)))
    r = lost("--files", ext4.cache, *ext4.origins, bad=bad(ext4, *places))
    assert r.returncode == 7, r.stderr
    _, _, found = r.stdout.partition("vol0: files of ext4, provided that it is sound")
    assert sorted(re.findall(r"^  (/.*)$", found, re.M)) == ["/dir/three", "/dir/two"]
    # Of one of them, and without its origin
    r = lost("--files", ext4.cache, *ext4.origins, bad=bad(ext4, places[0]))
    assert re.findall(r"^  (/.*)$", r.stdout, re.M) == ["/dir/two"]
    r = lost("--files", ext4.cache, bad=bad(ext4, *places))
    assert "vol0: give its origin, too, to find its files\n" in r.stdout


def test_free_blocks_and_the_filesystem_s_own(ext4, lost):
    free = 12000	# of 14336 blocks
    ext4.write((0, 0, 16, 1), (0, free * 2 // 8 * 8, 8, 2))
    r = lost("--all", "--files", ext4.cache, *ext4.origins)
    assert "  4 blocks are not in use\n" in r.stdout
    assert re.search(r"^  8 blocks hold structures of the file system itself: .* may be wrong",
                     r.stdout, re.M)


def test_files_of_what_nobody_knows(build, tmp_path, lost):
    pool = Pool(build, tmp_path / "pool")
    pool.write((0, 0, 64, 1))
    r = lost("--all", "--files", pool.cache, *pool.origins)
    assert "vol0: no file system is recognised" in r.stdout and "unknown" in r.stdout


def test_files_of_xfs_are_found_by_what_is_printed(build, files, tmp_path, lost):
    image = tmp_path / "xfs"
    with open(image, "wb") as f:
        f.truncate(300 * MIB)
    proto = tmp_path / "proto"
    proto.write_text("/\n0 0\nd--755 0 0\n"
                     f"one ---644 0 0 {files}/one\ndir d--755 0 0\n"
                     f"two ---644 0 0 {files}/dir/two\n$\n$\n")
    subprocess.run(["mkfs.xfs", "-q", "-p", proto, image], check=True)
    pool = Pool(build, tmp_path / "pool", origin_mib=302)
    subprocess.run(["dd", f"if={image}", f"of={pool.origins[0]}", "bs=1M", "seek=1",
                    "conv=notrunc,sparse", "status=none"], check=True)
    start = image.read_bytes().index(bytes([2]) * 4096) // 512
    pool.write((0, start, 8, 7))
    r = lost("--all", "--files", pool.cache, *pool.origins)
    _, _, script = r.stdout.partition("vol0: these commands find the files of xfs:\n")
    losetup, _, xfs_db = script.partition("\n")
    if os.geteuid():
        pytest.skip("a loop device needs root")
    loop = subprocess.run(losetup, shell=True, capture_output=True, text=True)
    if loop.returncode:
        pytest.skip(f"no loop device: {loop.stderr}")
    try:
        r = subprocess.run(xfs_db.replace("LOOP", loop.stdout.strip()), shell=True,
                           capture_output=True, text=True)
        assert re.search(r"^block \d+ .* type data inode \d+ dir/two$", r.stdout, re.M), r.stdout
    finally:
        subprocess.run(["losetup", "-d", loop.stdout.strip()], check=True)


def test_files_of_xfs_where_much_is_lost(build, tmp_path, lost):
    """All blocks in one command line were more than exec takes, and there was no limit."""
    size = 1100	# MiB
    image = tmp_path / "xfs"
    with open(image, "wb") as f:
        f.truncate(size * MIB)
    subprocess.run(["mkfs.xfs", "-q", "-b", "size=1024", image], check=True)
    pool = Pool(build, tmp_path / "pool", origin_mib=size + 2)
    subprocess.run(["dd", f"if={image}", f"of={pool.origins[0]}", "bs=1M", "seek=1",
                    "conv=notrunc,sparse", "status=none"], check=True)
    pool.write((0, 0, 8, 1))
    for copy in range(2):
        Member(pool.origins[0]).lost_map(copy, bytes([255]) * (size * MIB // 4096 // 8))
    r = lost("--files", pool.origins[0])
    assert r.returncode == 7, r.stderr
    _, _, script = r.stdout.partition("vol0: these commands find the files of xfs:\n")
    assert max(map(len, script.replace("\\\n", "").splitlines())) < 200 + len(str(tmp_path))
    assert script.count("blockuse") == 1 << 20
    assert f"  there are {size * 1024 - (1 << 20)} more blocks, which were left out\n" in script
    _, _, script = script.partition("\n")
    few = "\n".join([*script.splitlines()[:4], "END"])
    r = subprocess.run(few.replace("LOOP", str(image)), shell=True, capture_output=True, text=True)
    assert r.returncode == 0 and "block 0 (0/0) type sb" in r.stdout, (r.stdout, r.stderr)
