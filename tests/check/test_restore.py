# SPDX-License-Identifier: GPL-2.0-or-later
"""hybrid_restore: what was dumped comes back, byte for byte; what is no dump changes nothing."""
import copy
import json
import os
import random
import subprocess

import pytest
from check.corrupt import Cache, constant
from check.pools import Pool, dump, random_pool, run


@pytest.fixture(scope="session")
def text(build, crashed) -> str:
    return dump(build, crashed.cache)


def blank(pool: Pool, path):
    with open(path, "wb") as f:
        f.truncate(pool.cache.stat().st_size)
    return path


def restore(build, text, path, *args):
    return run(build, "restore", "-i", "-", "-o", path, "-y", *args, input=text)


@pytest.mark.parametrize("seed", range(12))
def test_dump_restore_dump_is_the_identity_and_the_engine_agrees(build, tmp_path, seed):
    rng = random.Random(seed)
    pool = random_pool(build, tmp_path / "pool", rng)
    before = dump(build, pool.cache)
    new = blank(pool, tmp_path / "new")
    r = restore(build, before, new, "--force")
    assert r.returncode == 0, r.stderr
    assert dump(build, new) == before
    # Over the device that was dumped: the data are there, in their places
    again = pool.copy(tmp_path / "again")
    r = restore(build, before, again.cache, "--force", "--wipe-signatures")
    assert r.returncode == 0, r.stderr
    assert dump(build, again.cache) == before
    check = run(build, "check", again.cache, *again.origins)
    assert check.returncode in (0, 7), check.stdout
    ends = [f"close {n}" for n in range(len(pool.origins))]
    again.opened("drain", *ends, "stop")
    for n in range(len(pool.origins)):
        assert again.on_origin(n) == again.want[n]


def lost_without_data(build, pool, layout):
    """As if no data could be read from the cache device."""
    bad = f"read {pool.cache} {layout['data_sector']} {layout['member_sectors']}"
    r = subprocess.run([build / "hybridctl", "lost", pool.cache, "--json"], capture_output=True,
                       text=True, timeout=60,
                       env={**os.environ, "LD_PRELOAD": str(build / "faults.so"), "FAULT_BAD": bad})
    return json.loads(r.stdout)["lost"]


def test_blocks_beyond_the_old_end_of_a_volume_that_grows(build, crashed, text, tmp_path):
    """As the older root and the journal have them, once the root that ended the growth is lost."""
    document = json.loads(text)
    grows = document["volumes"][0]
    grows["data_sectors_new"], grows["data_sectors"] = grows["data_sectors"], 8192
    again = crashed.copy(tmp_path / "again")
    r = restore(build, json.dumps(document), again.cache, "--force", "--wipe-signatures")
    assert r.returncode == 0, r.stderr
    assert json.loads(dump(build, again.cache)) == document
    r = run(build, "check", again.cache, *again.origins)
    assert r.returncode == 7, r.stdout
    lost = [lost_without_data(build, pool, document["pool"]) for pool in (crashed, again)]
    assert lost[0] == lost[1] and any(x["offset"] >= 8192 * 512 for x in lost[0])
    again.opened("drain", "close 0", "close 1", "stop")
    assert again.on_origin(0) == again.want[0]


def test_any_form_of_the_same_json(build, crashed, text, tmp_path):
    for n, form in enumerate((json.dumps(json.loads(text)), json.dumps(json.loads(text), indent=4),
                              text.replace("\n", "\r\n"))):
        new = blank(crashed, tmp_path / f"new{n}")
        assert restore(build, form, new, "--force").returncode == 0
        assert dump(build, new) == text


def test_a_larger_device_and_one_that_is_too_small(build, crashed, text, tmp_path):
    for change, code in ((8 << 20, 0), (-4096, 4)):
        new = tmp_path / "new"
        with open(new, "wb") as f:
            f.truncate(crashed.cache.stat().st_size + change)
        r = restore(build, text, new, "--force")
        assert r.returncode == code, r.stderr
        if not code:
            assert dump(build, new) == text


def test_a_member_of_odd_size_on_a_device_with_large_sectors(build, crashed, text, tmp_path):
    """The last write had the remainder of the member's size, after the head was erased."""
    document = json.loads(text)
    document["pool"]["member_sectors"] += 3
    new = blank(crashed, tmp_path / "new")
    end = new.stat().st_size // 512
    os.truncate(new, 512 * end + 4096)
    bad = f"part {new} {end - 2048} {end + 8}"
    r = run(build, "restore", "-i", "-", "-o", new, "-y", "--force", input=json.dumps(document),
            env={**os.environ, "LD_PRELOAD": str(build / "faults.so"), "FAULT_BAD": bad})
    assert r.returncode == 0, r.stderr
    assert json.loads(dump(build, new)) == document


def test_a_pool_that_was_made_anew_on_a_blank_device(build, clean, tmp_path):
    """It replaces its predecessor, but is no replacement that was interrupted."""
    pool = clean.copy(tmp_path / "pool")
    for copy_ in (0, 1):
        with Cache(pool.cache).superblock(copy_) as sb:
            sb["flags"] = constant("SB_EPHEMERAL")
    before = dump(build, pool.cache)
    assert json.loads(before)["pool"]["ephemeral"]
    r = restore(build, before, pool.cache, "--force", "--wipe-signatures")
    assert r.returncode == 0, r.stderr
    for copy_ in (0, 1):
        assert Cache(pool.cache).superblock(copy_)["flags"] == constant("SB_EPHEMERAL")
    assert dump(build, pool.cache) == before
    assert not json.loads(dump(build, clean.cache))["pool"]["ephemeral"]


@pytest.mark.parametrize("mib", [8, 24])
def test_no_superblock_of_the_member_before_stays(build, text, tmp_path, mib):
    """The old tail counted once the head of the restored pool was bad."""
    device = Pool(build, tmp_path / "pool", cache_mib=mib).cache
    os.truncate(device, 24 << 20)
    r = restore(build, text, device, "--force", "--wipe-signatures")
    assert r.returncode == 0, r.stderr
    assert device.read_bytes().count(b"dm-hybrid member") == 2
    assert dump(build, device) == text


def test_without_mappings(build, crashed, clean, text, tmp_path):
    """The pool is empty; what was dirty is not given up in passing."""
    short = dump(build, crashed.cache, "--skip-mappings")
    for source, args in ((text, ["--skip-mappings"]), (short, [])):
        new = blank(crashed, tmp_path / "new")
        r = restore(build, source, new, *args)
        assert r.returncode == 2 and "dirty" in r.stderr
        assert not any(new.read_bytes())
        r = restore(build, source, new, *args, "--drop-dirty")
        assert r.returncode == 0 and "must be on" not in r.stderr, r.stderr
        d, was = json.loads(dump(build, new)), json.loads(text)
        assert d["pool"]["clean"] and not d["mappings"] and not d["open_regions"]
        for v in was["volumes"]:
            v["blocks"] = v["dirty_blocks"] = 0
        assert d["volumes"] == was["volumes"]


def test_a_drained_pool_moves_to_an_empty_device(build, clean, tmp_path):
    pool = clean.copy(tmp_path / "pool")
    pool.opened("drain", "close 0", "close 1", "stop")
    new = blank(pool, tmp_path / "new")
    assert restore(build, dump(build, pool.cache, "--skip-mappings"), new).returncode == 0
    pool.cache = new
    assert pool.opened("read 0 40 8").split() == 8 * ["7"]


def test_what_is_on_the_device_is_not_overwritten_without_a_word(build, crashed, clean, text,
                                                                 tmp_path):
    pool = crashed.copy(tmp_path / "pool")
    before = pool.cache.read_bytes()
    assert restore(build, text, pool.cache).returncode == 5
    assert restore(build, text, pool.cache, "--force").returncode == 2
    r = run(build, "restore", "-i", "-", "-o", pool.cache, "--force", input=text)
    assert r.returncode == 2 and "cannot ask without a terminal" in r.stderr
    r = restore(build, text, pool.cache, "--force", "--wipe-signatures", "--test")
    assert r.returncode == 0 and "write" in r.stdout
    assert pool.cache.read_bytes() == before


ANYWAY = ("--force", "--wipe-signatures")


def test_a_dump_from_before_a_use_is_refused(build, tmp_path):
    """The other volume has taken the places of clean blocks, and the origin's nonce is the same."""
    pool = Pool(build, tmp_path / "pool", block=8, origins=2)
    pool.write((0, 0, 64, 1), end=("idle 20", "drain", "close 0", "close 1", "stop"))
    before = dump(build, pool.cache)
    assert json.loads(before)["mappings"]
    pool.run(f"load {pool.cache}", f"open 1 {pool.origins[1]}", "read 1 0 64", "close 1", "stop")
    for copy_ in (0, 1):
        with Cache(pool.cache).superblock(copy_) as sb:
            sb.spoil()
    r = restore(build, before, pool.cache, *ANYWAY)
    assert r.returncode == 2 and "was used since the dump" in r.stderr, r.stderr
    r = restore(build, before, pool.cache, *ANYWAY, "--skip-mappings")
    assert r.returncode == 0, r.stderr
    # The new root does not hide that
    r = restore(build, before, pool.cache, *ANYWAY)
    assert r.returncode == 2 and "was used since the dump" in r.stderr, r.stderr
    # An edit of a new dump is not affected
    document = json.loads(dump(build, pool.cache))
    document["pool"]["high_watermark"] = 51
    assert restore(build, json.dumps(document), pool.cache, *ANYWAY).returncode == 0
    assert pool.opened("read 0 0 8").split() == 8 * ["1"]


@pytest.mark.parametrize("how", ["skip", "short", "never written"])
@pytest.mark.parametrize("superblocks", [True, False])
def test_dirty_data_since_the_dump_is_not_given_up_unasked(build, tmp_path, how, superblocks):
    """The dump knows nothing of it."""
    pool = Pool(build, tmp_path / "pool", block=8, origins=2)
    if how != "never written":
        pool.write((0, 0, 64, 1), end=("idle 20", "drain", "close 0", "close 1", "stop"))
    before = dump(build, pool.cache, *["--skip-mappings"] * (how == "short"))
    pool.opened("write 0 0 64 9", "flush 0")
    for copy_ in (0, 1) if not superblocks else ():
        with Cache(pool.cache).superblock(copy_) as sb:
            sb.spoil()
    was = pool.cache.read_bytes()
    args = [*ANYWAY, *["--skip-mappings"] * (how == "skip")]
    r = restore(build, before, pool.cache, *args)
    assert r.returncode == 2 and "vol0 (32.00k)" in r.stderr and "vol1" not in r.stderr, r.stderr
    assert ("hybridctl writeback" in r.stderr) == superblocks
    assert pool.cache.read_bytes() == was
    assert restore(build, before, pool.cache, *args, "--drop-dirty").returncode == 0
    assert not json.loads(dump(build, pool.cache))["mappings"]


def test_damage_may_hide_dirty_data_since_the_dump(build, clean, tmp_path):
    pool = clean.copy(tmp_path / "pool")
    pool.opened("drain", "close 0", "close 1", "stop")
    before = dump(build, pool.cache, "--skip-mappings")
    pool.opened("read 1 0 64", "close 0", "close 1", "stop")
    assert restore(build, before, pool.copy(tmp_path / "good").cache, *ANYWAY).returncode == 0
    cache = Cache(pool.cache)
    with cache.map_leaf(cache.written_leaves()[0]) as leaf:
        leaf.spoil()
    r = restore(build, before, pool.cache, *ANYWAY)
    assert r.returncode == 2 and "may have newer data" in r.stderr, r.stderr
    assert restore(build, before, pool.cache, *ANYWAY, "--drop-dirty").returncode == 0


def test_the_next_step_is_one_that_works(build, clean, tmp_path):
    """Without a superblock, restore led to repair, and repair to restore."""
    pool = clean.copy(tmp_path / "pool")
    before = dump(build, pool.cache)
    pool.opened("read 1 0 64")
    r = restore(build, before, pool.cache, *ANYWAY)
    assert r.returncode == 2 and "hybridctl repair" in r.stderr
    for copy_ in (0, 1):
        with Cache(pool.cache).superblock(copy_) as sb:
            sb.spoil()
    r = restore(build, before, pool.cache, *ANYWAY)
    assert r.returncode == 2 and "repair" not in r.stderr and "--skip-mappings" in r.stderr
    assert "hybridctl repair" not in run(build, "check", pool.cache).stdout


def test_a_crash_is_a_use_though_its_root_is_bad(build, clean, tmp_path):
    pool = clean.copy(tmp_path / "pool")
    before = dump(build, pool.cache)
    pool.opened("read 1 0 64")
    r = restore(build, before, pool.cache, *ANYWAY)
    assert r.returncode == 2 and "was used since the dump" in r.stderr, r.stderr
    # One root suffices to tell
    for other in (False, True):
        again = pool.copy(tmp_path / f"again-{other}")
        with Cache(again.cache).root(other) as root:
            root.spoil()
        r = restore(build, before, again.cache, *ANYWAY)
        assert r.returncode == 2 and "was used since the dump" in r.stderr, r.stderr


def test_beside_a_bad_root_mappings_need_force(build, clean, tmp_path):
    """The bad one may have been newer."""
    pool = clean.copy(tmp_path / "pool")
    before = dump(build, pool.cache)
    with Cache(pool.cache).root(True) as root:
        root.spoil()
    r = restore(build, before, pool.cache, "--wipe-signatures")
    assert r.returncode == 2 and "has a bad root" in r.stderr, r.stderr
    assert restore(build, before, pool.cache, *ANYWAY).returncode == 0


def test_without_a_root_mappings_need_force(build, clean, tmp_path):
    before, new = dump(build, clean.cache), blank(clean, tmp_path / "new")
    r = restore(build, before, new)
    assert r.returncode == 2 and "has no good root" in r.stderr, r.stderr
    assert not any(new.read_bytes())
    r = restore(build, before, new, "--force")
    assert r.returncode == 0 and "unchanged since the dump" in r.stderr, r.stderr


@pytest.fixture(scope="session")
def in_place(build, tmp_path_factory) -> Pool:
    """Crashed with dirty data of a volume in place."""
    pool = Pool(build, tmp_path_factory.mktemp("in-place") / "pool", block=8)
    disk = pool.dir / "disk"
    with open(disk, "wb") as f:
        f.truncate(8 << 20)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", disk], check=True)
    pool.run(f"load {pool.cache}", f"create 1 place writeback {disk} inplace", f"open 1 {disk}",
             "write 1 1024 16 8", "flush 1")
    return pool


def test_without_a_root_dirty_blocks_of_a_volume_in_place_are_refused(build, in_place, tmp_path):
    """No nonce tells that its origin was written since."""
    pool = in_place.copy(tmp_path / "pool")
    before, new = dump(build, pool.cache), blank(pool, tmp_path / "new")
    r = restore(build, before, new, "--force")
    assert r.returncode == 2 and "may be older than its origin" in r.stderr, r.stderr
    assert not any(new.read_bytes())
    assert restore(build, before, pool.cache, *ANYWAY).returncode == 0
    assert restore(build, before, new, "--skip-mappings", "--drop-dirty").returncode == 0


def test_a_cut_at_any_write_lets_the_same_restore_go_on(build, in_place, tmp_path):
    """The first step took both roots: the second run could not tell that nobody had used the pool."""
    pool = in_place.copy(tmp_path / "pool")
    before, count = dump(build, pool.cache), tmp_path / "count"
    was = pool.cache.read_bytes()

    def again(**faults):
        return run(build, "restore", "-i", "-", "-o", pool.cache, "-y", *ANYWAY, input=before,
                   env={**os.environ, "LD_PRELOAD": str(build / "faults.so"),
                        **{f"FAULT_{k.upper()}": str(v) for k, v in faults.items()}})

    assert again(count=count).returncode == 0
    writes = int(count.read_text())
    assert writes > 10
    for cut in range(1, writes + 1):
        for seed in range(2):
            pool.cache.write_bytes(was)
            assert again(cut=f"{cut} {seed}").returncode == -9
            r = again()
            assert r.returncode == 0, (cut, seed, r.stderr)
            assert dump(build, pool.cache) == before


def test_one_volume_is_no_pool(build, crashed, tmp_path):
    new = blank(crashed, tmp_path / "new")
    r = restore(build, dump(build, crashed.cache, "--volume", "vol0"), new)
    assert r.returncode == 4 and "some volumes" in r.stderr and not any(new.read_bytes())


# --- hostile ------------------------------------------------------------------------

def refused(build, text, path, *words):
    r = restore(build, text, path)
    assert r.returncode == 4, (r.returncode, r.stdout, r.stderr)
    assert not any(path.read_bytes())
    for word in words:
        assert word in r.stderr, r.stderr


BAD_VALUES = [-1, 2**32, 2**64 - 1, 2**64, 1.5, None, True, "", "0x1", "x" * 200, [], {}, "\n", "ä"]


def places(document):
    """A path to each field: of the first element of each array."""
    for part, value in document.items():
        if isinstance(value, dict):
            yield from ((part, field) for field in value)
        elif value:
            yield from ((part, 0, field) for field in value[0])


def change(document, path, value):
    new = copy.deepcopy(document)
    at = new
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return new


def test_every_field_is_checked(build, crashed, text, tmp_path):
    document = json.loads(text)
    if not document["open_regions"]:
        document["open_regions"] = [{"set": 0, "open": "0x" + "1".zfill(16)}]
    new = blank(crashed, tmp_path / "new")
    fields = list(places(document))
    assert len(fields) > 40
    for path in fields:
        old = document[path[0]][path[1]] if len(path) == 2 else document[path[0]][0][path[2]]
        for value in random.Random(str(path)).sample(BAD_VALUES, 5):
            if isinstance(value, type(old)) and not isinstance(value, str):
                continue		# may be possible; see the next test
            if path[-1] in ("name", "policy") and value in ("", "0x1"):
                continue
            r = restore(build, json.dumps(change(document, path, value), indent=1), new)
            assert r.returncode == 4 and path[-1] in r.stderr, (path, value, r.stderr)
    assert not any(new.read_bytes())


@pytest.mark.parametrize("path, value, word", [
    (("dm_hybrid_dump", "version"), 5, "version"),
    (("dm_hybrid_dump", "version"), 7, "version"),
    (("pool", "member_sectors"), 2**63, "sectors"), (("pool", "member_sectors"), 8, "layout"),
    (("pool", "block_sectors"), 24, "layout"), (("pool", "journal_blocks"), 0, "layout"),
    (("pool", "journal_blocks"), 2**32 - 1, "layout"), (("pool", "blocks"), 1, "follow"),
    (("pool", "data_sector"), 0, "follow"), (("pool", "name"), "../x", "name"),
    (("pool", "policy"), "x" * 16, "too long"), (("pool", "next_instance"), 0, "next_instance"),
    (("pool", "halved_ms"), 86400000, "more than"),
    (("pool", "incompat"), "0x0000000000000001", "incompat"),
    (("pool", "ro_compat"), "0x0000000000000001", "ro_compat"),
    (("volumes", 0, "id"), 4096, "more than"), (("volumes", 0, "id"), 1, "twice"),
    (("volumes", 0, "state"), "free", "free"), (("volumes", 0, "instance"), 0, "instance"),
    (("volumes", 0, "instance"), 2, "same instance"),
    (("volumes", 0, "instance"), 99, "next_instance"),
    (("volumes", 0, "data_sector"), 1, "data_sector"),
    (("volumes", 0, "data_sectors"), 2**60, "data_sectors"),
    (("volumes", 0, "blocks"), 1, "says otherwise"),
    (("volumes", 0, "dirty_blocks"), 1, "says otherwise"),
    (("open_regions", 0, "set"), 5000, "does not exist"),
    (("open_regions", 0, "open"), "0x0000000000000000", "mask"),
    (("mappings", 0, "block"), 2**32 - 1, "blocks"), (("mappings", 0, "count"), 0, "blocks"),
    (("mappings", 0, "count"), 2**32 - 1, "blocks"), (("mappings", 0, "volume"), 7, "does not exist"),
    (("mappings", 0, "origin_block"), 2**60, "last block"),
    (("mappings", 0, "valid"), "0x0000000000000000", "within"),
    (("mappings", 0, "valid"), "0xffffffffffffffff", "granules"),
    (("mappings", 0, "dirty"), "0x0000000000000002", "within"),
    (("mappings", 0, "hint"), 256, "more than"),
])
def test_what_cannot_be_is_refused_by_name(build, crashed, text, tmp_path, path, value, word):
    document = json.loads(text)
    document["open_regions"] = [{"set": 0, "open": "0x" + "1".zfill(16)}]
    refused(build, json.dumps(change(document, path, value), indent=1),
            blank(crashed, tmp_path / "new"), word)


def test_the_map_must_be_injective_and_in_its_sets(build, crashed, text, tmp_path):
    document = json.loads(text)
    new = blank(crashed, tmp_path / "new")
    one = document["mappings"][0]
    size = document["pool"]["set_blocks"]
    used = {m["block"] + k for m in document["mappings"] for k in range(m["count"])}
    free = next(b for b in range(size) if b not in used)
    assert one["block"] < size
    for extra, word in ((dict(one), "twice"), (dict(one, block=free, count=1), "two blocks"),
                        (dict(one, block=document["pool"]["blocks"] - 1, count=1), "cannot be")):
        changed = copy.deepcopy(document)
        changed["mappings"].append(extra)
        refused(build, json.dumps(changed), new, word)
    for part in ("volumes", "open_regions"):
        changed = copy.deepcopy(document)
        changed["open_regions"] = [{"set": 0, "open": "0x" + "1".zfill(16)}]
        changed[part] *= 2
        refused(build, json.dumps(changed), new, "twice")


@pytest.mark.parametrize("spoil, word", [
    (lambda t: "", "expected"), (lambda t: t[:t.index('"', len(t) // 2)], "ends"), (lambda t: t[:-3], "ends"),
    (lambda t: t + "{}", "follows"), (lambda t: t + "\0", "follows"),
    (lambda t: "[" * 100000, "expected"), (lambda t: '{"' + "a" * 100000, "too long"),
    (lambda t: t.replace('"clean"', '"clean": true, "clean"', 1), "twice"),
    (lambda t: t.replace('"clean": false', '"clean": false, "more": 1', 1), "no such field"),
    (lambda t: t.replace(', "clean": false', "", 1), "missing"),
    (lambda t: t.replace('"volumes"', '"mappings"', 1), "volumes"),
    (lambda t: t.replace('"pool"', '"\\u0070ool"', 1), "holds"),
    (lambda t: t.replace('"id": 0', '"id": 00', 1), "id"),
    (lambda t: t.replace('"id": 0', '"id": 0e1', 1), "whole"),
    (lambda t: t.replace('"id": 0', '"id" 0', 1), "':'"),
    (lambda t: t.replace("},\n", "}\n", 2), "','"),
    (lambda t: t.replace("}\n]", "},\n]", 1), "'{'"),
    (lambda t: t[:t.rindex("}")] + ', "more": 1}', "nothing else"),
], ids=range(18))
def test_what_is_no_dump_is_refused_with_its_line(build, crashed, text, tmp_path, spoil, word):
    assert spoil(text) != text
    refused(build, spoil(text), blank(crashed, tmp_path / "new"), word, "-:")


def test_bytes_at_random(build, crashed, text, tmp_path):
    """Either refused without a write, or a pool that the checker does not call damaged."""
    rng = random.Random(4)
    new = blank(crashed, tmp_path / "new")
    accepted = 0
    for _ in range(100):
        data = bytearray(text.encode())
        for _ in range(rng.choice([1, 1, 2, 20])):
            at = rng.randrange(len(data))
            data[at] = rng.choice([data[at] ^ 1 << rng.randrange(7), rng.choice(b'{}[]",:0129tf')])
        r = restore(build, data.decode("latin-1"), new, "--force")
        assert r.returncode in (0, 4), (r.returncode, r.stderr)
        if r.returncode == 0:
            accepted += 1
            assert run(build, "check", new).returncode in (0, 7)
            blank(crashed, new)
        assert not any(new.read_bytes())
    assert 0 < accepted < 100


def test_usage(build, tmp_path, text, crashed):
    new = blank(crashed, tmp_path / "new")
    assert run(build, "restore", "-i", "-", input=text).returncode == 1
    assert run(build, "restore", "-o", new).returncode == 1
    assert run(build, "restore", "-i", tmp_path / "none", "-o", new, "-y").returncode == 4
    assert run(build, "restore", "-i", tmp_path, "-o", new, "-y").returncode == 4
    assert run(build, "restore", "-i", "-", "-o", tmp_path / "none", input=text).returncode == 4
