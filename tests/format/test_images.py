# SPDX-License-Identifier: GPL-2.0-or-later
"""Pools of each version of the format are used, or refused, as the files in images/ say."""
import difflib
import json
import os
import re
import struct

import pytest
from check.corrupt import BLOCK, SECTOR, Cache, Member
from check.pools import Pool, dump, sectors

from format import images

ARCHIVES = images.archives()
OPEN = [a for a in ARCHIVES if images.opens(a)]
USABLE = [a for a in OPEN if "\ndamaged\n" not in images.words_of(a).read_text()]
OTHERS = (images.VERSION - 1, images.VERSION + 1)
REFUSED = [(a, version) for a in ARCHIVES for version in (OTHERS if a in OPEN else (images.version_of(a),))]


def name(archive):
    return archive.name.removesuffix(".tar.xz")


def each(archives):
    return pytest.mark.parametrize("archive", archives, ids=name)


@pytest.fixture
def members(archive, tmp_path):
    return images.unpack(archive, tmp_path)


def compare(want: str, now: str) -> None:
    diff = list(difflib.unified_diff(want.splitlines(), now.splitlines(), "stored", "now", lineterm="", n=1))
    assert not diff, "\n".join([*diff, "After a deliberate change of words: images.py build/userspace --words"])


def contents(paths) -> list[bytes]:
    return [path.read_bytes() for path in paths]


def test_this_version_has_an_image_of_each_scenario():
    missing = {f"v{images.VERSION}-{scenario}" for scenario in images.SCENARIOS} - {name(a) for a in OPEN}
    assert not missing, "The version was raised, or a scenario is new: images.py build/userspace writes them"


def test_they_are_small():
    for version in {images.version_of(a) for a in ARCHIVES}:
        files = list(images.IMAGES.glob(f"v{version}-*"))
        assert sum(path.stat().st_size for path in files) < 100 << 10


@each(ARCHIVES)
def test_the_name_says_the_version(archive, members):
    versions = {Member(path).superblock(copy)["version"]
                for path in members if images.has_superblock(path) for copy in range(2)}
    assert versions == {images.version_of(archive)}


@each(OPEN)
def test_words(build, tmp_path, archive, members):
    """hybrid_check, hybridctl, hybrid_dump and the engine say the same as ever, and write nothing."""
    before = contents(members)
    words = images.words_of(archive).read_text()
    assert {command.split()[0] for command in images.commands(words)} >= {"hybrid_check", "hybridctl", "hybrid_dump",
                                                                          "try"}
    compare(words, images.said(build, tmp_path, words))
    assert contents(members) == before


def seed_at(data: bytes, sector: int) -> int:
    """As the driver's `read` prints it."""
    piece = data[sector * SECTOR:(sector + 1) * SECTOR]
    seed, = struct.unpack_from("<Q", piece)
    return seed if piece == sectors(seed, sector, 1) else -1


@each(USABLE)
def test_the_engine_reads_the_data(build, tmp_path, archive, members):
    """All of each volume, through the cache; then from the origin, once the engine has written it back."""
    pool = Pool.found(build, tmp_path)
    active = [v for v in json.loads(dump(build, pool.cache))["volumes"] if v["state"] == "active"]
    want = {v["id"]: bytearray(volume_data(pool, v)) for v in active}
    writes = images.data(images.words_of(archive).read_text())
    for n, sector, count, seed in writes:
        want[n][sector * SECTOR:(sector + count) * SECTOR] = sectors(seed, sector, count)
    assert not want or writes or name(archive).endswith("-created")

    out = pool.run(f"load {pool.cache}", *(f"open {v['id']} {pool.origins[v['id']]}" for v in active),
                   *(f"read {v['id']} 0 {v['data_sectors']}" for v in active), "drain",
                   *(f"close {v['id']}" for v in active), "stop")
    for v, line in zip(active, out.splitlines(), strict=True):
        data = want[v["id"]]
        assert [int(seed) for seed in line.split()] == [seed_at(data, n) for n in range(v["data_sectors"])]
    assert [volume_data(pool, v) == want[v["id"]] for v in active] == [True] * len(active)
    after = json.loads(dump(build, pool.cache))
    assert after["pool"]["clean"] and not any(v["dirty_blocks"] for v in after["volumes"])


def volume_data(pool: Pool, volume: dict) -> bytes:
    """The bytes on its origin."""
    with open(pool.origins[volume["id"]], "rb") as f:
        f.seek(volume["data_sector"] * SECTOR)
        return f.read(volume["data_sectors"] * SECTOR)


def test_the_cut_one_has_all_to_recover(build, tmp_path):
    images.unpack(images.IMAGES / f"v{images.VERSION}-cut.tar.xz", tmp_path)
    text = images.say(build, tmp_path, "hybrid_check --json cache")
    pool = json.loads(text[text.index("{"):text.rindex("exit")])["pool"]
    assert pool["journal_records"] and pool["intent_records"] and pool["open_regions"]


@pytest.mark.parametrize("archive, version", REFUSED,
                         ids=[f"{name(archive)}-as-{version}" for archive, version in REFUSED])
def test_another_version_is_refused(build, tmp_path, archive, version, members):
    """Older images as they are.  Of images of this version, the number alone makes the difference."""
    if images.opens(archive):
        images.change_version(members, version)
    before = contents(members)
    for path in members:
        if images.has_superblock(path):
            want = images.refused(path.name, version)
            compare(want, images.said(build, tmp_path, want))
    assert contents(members) == before


NEXT = "use the tools and the module of the release that wrote it"


def test_each_refusal_names_the_version():
    """No refusal advises a command that would overwrite the member."""
    refusals = images.REFUSED.read_text().split("\n\n")
    assert len(refusals) > 5
    for refusal in refusals:
        said = refusal.partition("\n")[2]
        assert "its format is version VERSION, and this program knows version KNOWN: nothing is damaged" in said
        assert re.findall(r"  next: (.*)", said) == [NEXT] * said.count("next: ")
        assert not re.search("repair|restore|wipe|--", re.sub("^hybrid_repair: ", "", said, flags=re.M))


@pytest.mark.parametrize("version", OTHERS)
@pytest.mark.parametrize("bad", [None, 0, 1], ids=["whole", "bad-head", "bad-tail"])
def test_another_version_is_not_overwritten(build, tmp_path, version, bad):
    """A dump is restored onto it, or a pool is repaired onto it, by --force alone; damage makes no difference."""
    cache, *_ = images.unpack(images.IMAGES / f"v{images.VERSION}-clean.tar.xz", tmp_path)
    (tmp_path / "good").write_bytes(cache.read_bytes())
    (tmp_path / "dump").write_text(dump(build, cache))
    images.change_version([cache], version)
    if bad is not None:
        with Member(cache).superblock(bad) as sb:
            sb.spoil()
    before = contents([cache])

    def refused(command: str) -> None:
        said = images.say(build, tmp_path, command)
        assert f"version {version}, and this program" in said and "exit status 0" not in said
        assert re.findall(r"  next: (.*)", said) == [NEXT], said
        assert contents([cache]) == before

    refused("hybrid_repair cache --yes")
    refused("hybrid_repair -i good -o cache --yes --wipe-signatures")
    refused("hybrid_restore -i dump -o cache --yes --wipe-signatures")
    refused("hybridctl wipe cache --yes")
    # Nothing tells whether the pool of the dump was used
    overwrite_root(cache)
    before = contents([cache])
    refused("hybrid_restore -i dump -o cache --yes --wipe-signatures")
    said = images.say(build, tmp_path, "hybrid_restore -i dump -o cache --yes --wipe-signatures --force")
    assert f"  cache: dm-hybrid member: its format is version {version}, " in said and "exit status 0" in said


def overwrite_root(cache) -> None:
    with open(cache, "r+b") as f:
        f.seek(Cache(cache).geometry("root_sector") * SECTOR)
        f.write(bytes(2 * BLOCK))


@pytest.mark.parametrize("version", OTHERS)
def test_the_engine_refuses_an_origin_of_another_version(build, tmp_path, version):
    members = images.unpack(images.IMAGES / f"v{images.VERSION}-clean.tar.xz", tmp_path)
    images.change_version(members[1:2], version)
    before = contents(members)
    compare("$ try cache 0 origin0 1 origin1\nok\n"
            f"is not of format version {images.VERSION}, or has an unknown feature\nok\nexit status 0\n",
            images.say(build, tmp_path, "try cache 0 origin0 1 origin1"))
    assert contents(members) == before


def test_the_same_bytes_make_the_same_archive(tmp_path):
    members = images.unpack(ARCHIVES[0], tmp_path)
    packed = []
    for date in (1, 2):
        for path in members:
            os.utime(path, (date, date))
        images.pack(tmp_path / "archive", members)
        packed.append((tmp_path / "archive").read_bytes())
    assert packed[0] == packed[1]
