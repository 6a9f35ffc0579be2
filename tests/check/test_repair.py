# SPDX-License-Identifier: GPL-2.0-or-later
"""hybrid_repair: what it keeps is true, what it cannot keep it names, and a cut of it harms
nothing."""
import json
import os
import random
import shutil
import subprocess

import pytest
from check.corrupt import Block, Cache, constant
from check.pools import Pool, dump, random_pool, run, sectors
from check.test_check import IMAGES, SEVERITY, FINDINGS

BLOCK = 4096


def preload(build, **faults):
    return {**os.environ, "LD_PRELOAD": str(build / "faults.so"),
            **{f"FAULT_{k.upper()}": str(v) for k, v in faults.items()}}


def repair(build, path, *args, **kw):
    """Its report; it must have said what it did."""
    r = run(build, "repair", path, "-y", "--json", *args, **kw)
    assert r.returncode in (0, 6), (r.returncode, r.stderr)
    report = json.loads(r.stdout)
    lost = bool(report.get("may_be_stale") or report.get("lost_volume_leaves"))
    assert (r.returncode == 6) == lost
    return report


class View:
    """What volumes read as, by a dump: the cache where it is valid, else the origin."""

    def __init__(self, build, pool: Pool, cache=None):
        cache = cache or pool.cache
        self.dump = json.loads(dump(build, cache))
        self.names = {v["id"]: v["name"] for v in self.dump["volumes"]}
        self.origin = {n: pool.on_origin(n) for n in range(len(pool.origins))}
        self.cached = {n: {} for n in self.origin}	# granule -> data
        self.dirty = {n: set() for n in self.origin}
        self.granule = self.dump["pool"]["granule_sectors"] * 512
        size = self.dump["pool"]["block_sectors"] * 512
        per = size // self.granule
        open_regions = {r["set"]: int(r["open"], 0) for r in self.dump["open_regions"]}
        with open(cache, "rb") as f:
            for m in self.dump["mappings"]:
                for k in range(m["count"]):
                    where, i = divmod(m["block"] + k, self.dump["pool"]["set_blocks"])
                    is_open = open_regions.get(where, 0) >> i // constant("REGION_BLOCKS") & 1
                    f.seek(self.dump["pool"]["data_sector"] * 512 + (m["block"] + k) * size)
                    data = f.read(size)
                    mask = int(m["dirty" if is_open else "valid"], 0)
                    for g in range(per):
                        if not mask >> g & 1:
                            continue
                        at = (m["origin_block"] + k) * per + g
                        self.cached[m["volume"]][at] = data[g * self.granule:
                                                            (g + 1) * self.granule]
                        if int(m["dirty"], 0) >> g & 1:
                            self.dirty[m["volume"]].add(at)

    def wrong(self, n: int, want: bytes) -> set[int]:
        """Granules that do not read as they should."""
        g = self.granule
        cached = self.cached[n]
        return {k for k in range(len(want) // g)
                if cached.get(k, self.origin[n][k * g:(k + 1) * g]) != want[k * g:(k + 1) * g]}


def judge(build, pool: Pool, report, cache=None):
    """Everything kept is true; what is not read as it was written is named."""
    view = View(build, pool, cache)
    for n in range(len(pool.origins)):
        want, g = bytes(pool.want[n]), view.granule
        for k, data in view.cached[n].items():
            assert data == want[k * g:(k + 1) * g], f"volume {n}: granule {k} is kept, not true"
        if n not in view.names:
            assert report["lost_volume_leaves"]
            continue
        named = set()
        for r in report.get("may_be_stale", []):
            if r["volume"] == view.names[n]:
                end = min(r["offset"] + r["length"], len(want))
                named |= set(range(r["offset"] // g, -(-end // g)))
        missing = view.wrong(n, want) - named
        assert not missing, f"volume {n}: granules {sorted(missing)[:9]} are stale, not named"
    return view


def judge_engine(build, pool: Pool, view: View):
    """The checker is content, the engine loads it, and drains what was kept."""
    r = run(build, "check", pool.cache)
    assert r.returncode in (0, 7), r.stdout
    pool.run(f"load {pool.cache}")
    r = run(build, "check", "--json", pool.cache, *pool.origins)
    if json.loads(r.stdout)["verdict"] == "damaged":
        return
    pool.opened("drain", *(f"close {n}" for n in range(len(pool.origins))), "stop")
    for n in range(len(pool.origins)):
        want = bytearray(view.origin[n])
        for k, data in view.cached[n].items():
            want[k * view.granule:(k + 1) * view.granule] = data
        assert pool.on_origin(n) == want


# --- the corruption matrix --------------------------------------------------------------

CACHE_ALONE = [name for name, image in IMAGES.items()
               if image[2] == "cache" and "env" not in image[4]]
# Nothing says any more what stands where
HOPELESS = {"no-superblock", "superblock-bad", "superblock-members", "superblock-feature",
            "device-shrunk"}


@pytest.mark.parametrize("name", CACHE_ALONE)
def test_after_a_repair_the_kernel_loads_it(build, request, tmp_path, name):
    findings, base, _, function, _ = IMAGES[name]
    pool = request.getfixturevalue(base).copy(tmp_path / "pool")
    function(pool)
    before = pool.cache.read_bytes()
    if HOPELESS & set(findings):
        r = run(build, "repair", pool.cache, "-y")
        assert r.returncode == 4 and pool.cache.read_bytes() == before
        return
    if "numbers-end" in findings:
        r = run(build, "repair", pool.cache, "-y")
        assert r.returncode == 2 and pool.cache.read_bytes() == before
        new = tmp_path / "new"
        new.touch()
        os.truncate(new, len(before))
        r = run(build, "repair", "-i", pool.cache, "-o", new, "-y")
        assert r.returncode in (0, 6), r.stderr
        new.rename(pool.cache)
        before = pool.cache.read_bytes()
    r = run(build, "repair", pool.cache, "--test", "-y")
    assert r.returncode in (0, 6) and pool.cache.read_bytes() == before, r.stderr
    repair(build, pool.cache)
    assert run(build, "check", pool.cache).returncode in (0, 7)
    pool.run(f"load {pool.cache}")
    if not any(FINDINGS[f][1] == "DAMAGE" for f in findings):
        again = pool.cache.read_bytes()
        repair(build, pool.cache)
        assert pool.cache.read_bytes() == again


# --- damage at random, and the truth ----------------------------------------------------

def metadata_blocks(cache: Cache):
    """Sectors of all metadata blocks that were ever written; the last entry is not among them:
    its loss looks like a cut write."""
    first, end = cache.geometry("root_sector"), cache.geometry("data_sector")
    journal, ring = cache.geometry("journal_sector"), cache.geometry("journal_blocks")
    found, entries = [], {}
    with open(cache.path, "rb") as f:
        for sector in range(first, end, 8):
            f.seek(sector * 512)
            data = f.read(BLOCK)
            if not any(data):
                continue
            if sector >= journal:
                number = int.from_bytes(data[8:16], "little")
                if data[:4] == constant("JOURNAL_MAGIC").to_bytes(4, "little") and \
                        number % ring == (sector - journal) // 8:
                    entries[number] = sector
            else:
                found.append(sector)
    numbers = sorted(entries)
    return found, [entries[n] for n in numbers[:-1]]


def flushed_intents(cache: Cache) -> list[Block]:
    """Intents that count, and that a later one says were flushed."""
    tail = max([cache.root()["intent_tail"], *(e["intent_tail"] for e in cache.entries())])
    intents = [i for i in cache.intents() if i["number"] >= tail]
    flushed = max((i["flushed"] for i in intents), default=0)
    return [i for i in intents if i["number"] < flushed]


OLDER = ["older0", "older1"]


def spoil(cache: Cache, rng) -> str:
    tree, entries = metadata_blocks(cache)
    root = cache.geometry("root_sector")
    kind = rng.choice(["leaf", "leaf", "leaf", "entry", "root", "index", "superblock", "many",
                       "intent", "intent", "intended"])
    if kind == "superblock":
        with cache.superblock(0) as sb:	# not both: nothing would say what stands where
            sb.spoil()
        return kind
    intents = flushed_intents(cache)
    if kind == "intended":
        for intent in intents[:1]:
            with open(cache.path, "r+b") as f:
                f.seek(512 * cache.intended(intent) + rng.randrange(BLOCK))
                f.write(b"damaged")
        return kind
    index, leaf = cache.geometry("index_sector"), cache.geometry("leaf_sector")
    chosen = {"leaf": [s for s in tree if s >= leaf], "entry": entries,
              "root": [s for s in tree if root <= s < index],
              "index": [s for s in tree if index <= s < leaf],
              "intent": [i.sector for i in intents], "many": tree + entries}[kind]
    for sector in rng.sample(chosen, min(len(chosen), rng.randint(2, 6) if kind == "many" else 1)):
        block = Block(cache.path, sector, "hybrid_root")
        with block:
            block.seal = False
            how = rng.randrange(4)
            if how == 0:
                block.data[rng.randrange(BLOCK)] ^= 1 << rng.randrange(8)
            elif how == 1:
                block.data[:] = bytes(BLOCK)
            elif how == 2:
                block.data[:] = Block(cache.path, rng.choice(tree), "hybrid_root").data
            else:			# its last writes were lost
                block.data[:] = Block(cache.path.parent / rng.choice(OLDER), sector,
                                      "hybrid_root").data
    return kind


@pytest.fixture(scope="session")
def worked(build, tmp_path_factory):
    """Pools with several generations of everything, and what their volumes hold."""
    pools = []
    for seed in range(8):
        rng = random.Random(seed)
        pool = random_pool(build, tmp_path_factory.mktemp("worked") / "pool", rng)
        sectors = pool.size // 512
        lives = rng.randint(1, 3)
        for life in range(lives):
            lines = []
            for name in OLDER[life > 0:]:
                shutil.copyfile(pool.cache, pool.dir / name)
            # Enough, now and then, for checkpoints amid a life
            for step in range(rng.choice([5, 40, 40, 400])):
                n, count = rng.randrange(len(pool.origins)), 8 * rng.randint(1, 16)
                at = 8 * rng.randrange((sectors - count) // 8 + 1)
                value = 1000 * seed + 100 * life + step
                lines += [f"write {n} {at} {count} {value}", f"flush {n}"]
                pool.note(n, at, count, value)
                if rng.random() < 0.1:
                    lines.append(rng.choice(["drain", "idle 3", f"read {n} {at} {count}"]))
            ends = [f"close {n}" for n in range(len(pool.origins))] + ["stop"]
            pool.opened(*lines, *(ends if rng.random() < 0.3 else []))
        pools.append(pool)
    return pools


@pytest.mark.parametrize("seed", range(60))
def test_what_is_kept_is_true_and_the_rest_is_named(build, worked, tmp_path, seed):
    rng = random.Random(1000 + seed)
    source = rng.choice(worked)
    pool = source.copy(tmp_path / "pool")
    for name in OLDER:
        shutil.copyfile(source.dir / name, pool.dir / name)
    for _ in range(rng.choice([1, 1, 2, 4])):
        spoil(Cache(pool.cache), rng)
    first = run(build, "dump", pool.cache, "--repair")
    report = repair(build, pool.cache)
    if report["verdict"] == "damaged":
        assert first.returncode == (6 if report["may_be_stale"] or report["lost_volume_leaves"] else 0)
        assert first.stdout == dump(build, pool.cache)
    judge_engine(build, pool, judge(build, pool, report))


def test_the_oracle_itself(build, worked):
    """Undamaged pools read as they were written; without their cache they do not."""
    stale = 0
    for pool in worked:
        view = judge(build, pool, {})
        for n in range(len(pool.origins)):
            view.cached[n].clear()
            stale += len(view.wrong(n, bytes(pool.want[n])))
    assert stale > 200


# --- what costs nothing -----------------------------------------------------------------

def spoil_block(block):
    with block:
        block.spoil()


@pytest.mark.parametrize("which", ["root", "superblock"])
def test_a_lost_root_or_superblock_costs_nothing_dirty(build, crashed, tmp_path, which):
    """The other root, and a journal that goes on across the epochs."""
    pool = crashed.copy(tmp_path / "pool")
    was = View(build, pool)
    if which == "root":
        spoil_block(Cache(pool.cache).root())
    else:
        spoil_block(Cache(pool.cache).superblock(1))
    report = repair(build, pool.cache)
    view = judge(build, pool, report)
    assert not report.get("may_be_stale") and view.dirty == was.dirty
    found = json.loads(run(build, "check", "--json", pool.cache).stdout)["counts"]
    assert set(found) <= {"not-clean", "root-other", "volume-nonce"}


@pytest.fixture(scope="session")
def journaled(build, tmp_path_factory):
    """Each entry of its journal says something that no other one does. Writes of parts have no intents."""
    pool = Pool(build, tmp_path_factory.mktemp("journaled") / "pool", block=8)
    pool.opened(*(line for n in range(12) for line in (f"write 0 {800 * n} 7 {n + 1}", "flush 0")))
    for n in range(12):
        pool.note(0, 800 * n, 7, n + 1)
    assert len(Cache(pool.cache).entries()) >= 12
    return pool


def intended_beside_recorded(build, directory) -> Pool:
    """Blocks of 64 KiB, each with a granule on record and one under an intent."""
    pool = Pool(build, directory)
    writes = [(128 * n + 8 * part, 100 * part + n + 1) for part in range(2) for n in range(6)]
    lines = []
    for n, (at, seed) in enumerate(writes):
        lines += [f"write 0 {at} 8 {seed}", "flush 0", *(["idle 3"] if n == 5 else [])]
        pool.note(0, at, 8, seed)
    pool.opened(*lines)
    assert len(flushed_intents(Cache(pool.cache))) >= 4
    return pool


def named(report) -> int:
    return sum(r["length"] for r in report["may_be_stale"])


@pytest.mark.parametrize("how", ["data", "data unreadable", "intent", "newest unreadable"])
def test_what_an_intent_alone_named(build, tmp_path, how):
    """Where its data is gone, exactly that is named; where the intent is, all that is not on record."""
    pool = intended_beside_recorded(build, tmp_path / "pool")
    cache = Cache(pool.cache)
    intent = flushed_intents(cache)[1]
    env = None
    if how == "data":
        with open(pool.cache, "r+b") as f:
            f.seek(512 * cache.intended(intent))
            f.write(b"damaged")
    elif how == "intent":
        spoil_block(intent)
    else:
        sector = cache.intended(intent) if "data" in how else cache.intents()[-1].sector
        env = preload(build, bad=f"read {pool.cache} {sector} {sector + 1}")
    report = repair(build, pool.cache, env=env)
    view = judge(build, pool, report)
    judge_engine(build, pool, view)
    assert report["kept_dirty_blocks"] == 6
    if "data" in how:
        assert named(report) == 4096 and len(report["may_be_stale"]) == 1
    else:
        assert named(report) == pool.size - 4096 * len(view.dirty[0])


def spoil_written_leaves(pool: Pool) -> None:
    for nr in Cache(pool.cache).written_leaves():
        spoil_block(Cache(pool.cache).map_leaf(nr))


@pytest.mark.parametrize("crashes", [1, 3])
def test_what_a_recovery_took_from_intents_is_named(build, tmp_path, crashes):
    """Its leaves alone had these granules; the last record of their blocks had not."""
    pool = intended_beside_recorded(build, tmp_path / "pool")
    for _ in range(crashes):
        pool.opened()
    spoil_written_leaves(pool)
    report = repair(build, pool.cache)
    view = judge(build, pool, report)
    judge_engine(build, pool, view)
    assert view.dirty[0]
    assert named(report) == pool.size - 4096 * len(view.dirty[0])


def test_blocks_that_a_recovery_took_from_intents_are_named(build, tmp_path):
    """No leaf and no entry of the life before knows them: they were free."""
    pool = Pool(build, tmp_path / "pool")
    pool.write((0, 0, 64, 1), end=("idle 20", "close 0", "stop"))
    lines = []
    for n in range(4):
        lines += [f"write 0 {64 + 8 * n} 8 {n + 2}", "flush 0"]
        pool.note(0, 64 + 8 * n, 8, n + 2)
    pool.opened(*lines)
    pool.run(f"load {pool.cache}")
    spoil_written_leaves(pool)
    judge_engine(build, pool, judge(build, pool, repair(build, pool.cache)))


@pytest.mark.parametrize("taken", [False, True])
def test_a_recovery_that_took_no_intents_costs_nothing(build, tmp_path, taken):
    """Nor does one from before the records."""
    pool = Pool(build, tmp_path / "pool")
    lines = []
    for n in range(4 if taken else 0):
        lines += [f"write 0 {1280 + 8 * n} 8 {n + 1}", "flush 0"]
        pool.note(0, 1280 + 8 * n, 8, n + 1)
    pool.opened(*lines)
    lines = []
    for n in range(6):
        lines += [f"write 0 {128 * n} 7 {n + 1}", "flush 0"]
        pool.note(0, 128 * n, 7, n + 1)
    pool.opened(*lines)
    pool.opened()
    spoil_written_leaves(pool)
    report = repair(build, pool.cache)
    assert judge(build, pool, report).dirty[0] >= {16 * n for n in range(6)}
    assert min(r["offset"] for r in report["may_be_stale"]) == 6 * 65536


@pytest.mark.parametrize("ring", ["journal", "intent"])
def test_a_repair_mends_a_place_of_a_ring(build, clean, tmp_path, ring):
    """Nothing is lost with a place that nothing needs, and a write makes it readable again."""
    pool = clean.copy(tmp_path / "pool")
    sector = Cache(pool.cache).geometry(f"{ring}_sector") + 8 * 50
    with open(pool.cache, "r+b") as f:
        f.seek(512 * sector)
        f.write(b"unreadable")
    env = preload(build, bad=f"read {pool.cache} {sector} {sector + 1}")
    assert run(build, "check", pool.cache, env=env).returncode == 4
    report = repair(build, pool.cache, env=env)
    assert not report["may_be_stale"]
    with open(pool.cache, "rb") as f:
        f.seek(512 * sector)
        assert not any(f.read(BLOCK))
    judge_engine(build, pool, judge(build, pool, report))


@pytest.mark.parametrize("nr", range(0, 11, 2))
def test_a_lost_entry_costs_what_has_no_record_behind_it(build, journaled, tmp_path, nr):
    pool = journaled.copy(tmp_path / "pool")
    spoil_block(Cache(pool.cache).entries()[nr])
    report = repair(build, pool.cache)
    view = judge(build, pool, report)
    # One block is written, and recorded, for each entry
    assert view.dirty[0] == {100 * n for n in range(12) if n > nr}
    assert report["may_be_stale"] and report["kept_dirty_blocks"] == 11 - nr


def test_a_journal_that_is_too_short_says_nothing(build, journaled, tmp_path):
    pool = journaled.copy(tmp_path / "pool")
    with Cache(pool.cache).root() as root:
        root["journal_head"] += 100
    report = repair(build, pool.cache)
    assert not judge(build, pool, report).dirty[0] and report["kept_dirty_blocks"] == 0
    assert [(r["offset"], r["length"]) for r in report["may_be_stale"]] == [(0, pool.size)]


def test_a_volume_of_any_size_takes_no_time(build, crashed, tmp_path):
    """It took for ever to say which parts of 512 PiB may be stale."""
    pool = crashed.copy(tmp_path / "pool")
    cache = Cache(pool.cache)
    with cache.volumes(1) as leaf:
        leaf["entry.data_sectors", 1] = 1 << 50
    spoil_block(cache.map_leaf(cache.written_leaves()[0]))
    spoil_block(cache.entries()[0])
    report = repair(build, pool.cache)
    assert {"volume": "vol1", "offset": 0, "length": 1 << 59} in \
        [{k: r[k] for k in ("volume", "offset", "length")} for r in report["may_be_stale"]]
    judge(build, pool, report)


def test_a_volume_of_many_pieces_takes_no_memory(build, tmp_path):
    """Of a large one, be its size a lie, every fourth block or so was a range of its own."""
    pool = Pool(build, tmp_path / "pool", block=512, cache_mib=400)
    pool.write((0, 0, 4096, 1), (0, 8192, 4096, 2), end=("close 0", "stop"))
    cache = Cache(pool.cache)
    assert cache.geometry("nr_sets") > 1
    with cache.volumes(0) as leaf:
        leaf["entry.data_sectors", 0] = size = 512 << 27
    spoil_block(cache.map_leaf(cache.written_leaves()[0]))
    for sector in metadata_blocks(cache)[1]:	# else all is known by the root before
        spoil_block(Block(pool.cache, sector, "hybrid_root"))
    r = subprocess.run(["prlimit", f"--as={1 << 30}", build / "hybrid_repair", pool.cache, "-y",
                        "--json"], capture_output=True, text=True, timeout=300)
    assert r.returncode == 6, (r.returncode, r.stderr)
    stale = json.loads(r.stdout)["may_be_stale"]
    ends = [(s["offset"], s["offset"] + s["length"]) for s in stale]
    assert 1000 < len(stale) < 1 << 18 and ends[-1][1] == 512 * size
    assert all(a[1] < b[0] for a, b in zip(ends, ends[1:]))


def test_what_was_clean_in_open_regions_is_forgotten(build, tmp_path):
    """... and nothing clean elsewhere."""
    pool = Pool(build, tmp_path / "pool", block=8)
    pool.write((0, 0, 8 * 800, 1), end=("idle 5", "drain", "idle 20", "close 0", "stop"))
    cache = Cache(pool.cache)
    leaves = cache.written_leaves()
    with cache.map_leaf(leaves[1]) as leaf:
        leaf["open_regions"] = 3
        leaf["dirty", 1] = leaf["valid", 1]
    lost, was = cache.map_leaf(leaves[0]), cache.map_leaf(leaves[1])
    spoil_block(cache.map_leaf(leaves[0]))
    report = repair(build, pool.cache)
    judge(build, pool, report)
    leaf = Cache(pool.cache).map_leaf(leaves[1])
    assert [n for n in range(16) if leaf["instance", n]] == [1]
    kept = [n for n in range(16, constant("MAP_LEAF_BLOCKS")) if leaf["valid", n]]
    assert kept and kept == [n for n in range(16, constant("MAP_LEAF_BLOCKS"))
                             if was["valid", n]]
    # The lost leaf's other generation is of an earlier life, whose clean blocks do not count
    gone = sum(lost["instance", n] != 0 for n in range(constant("MAP_LEAF_BLOCKS")))
    assert report["forgotten_blocks"] + report["unknown_blocks"] == 15 + gone
    assert leaf["open_regions"] == 0


def test_what_an_earlier_life_left_behind_is_not_taken(build, tmp_path):
    """Restored over itself: old leaves still stand where later ones would be."""
    pool = Pool(build, tmp_path / "pool", block=8)
    pool.write((0, 0, 800, 1), end=("close 0", "stop"))
    pool.write((0, 4000, 800, 2), end=("idle 5", "close 0", "stop"))
    text = dump(build, pool.cache)
    assert run(build, "restore", "-i", "-", "-o", pool.cache, "-y", "--force", "--wipe-signatures",
               input=text).returncode == 0
    cache = Cache(pool.cache)
    leftover = []
    for nr in cache.written_leaves():
        with Block(cache.path, cache._area("leaf_sector", constant("VOLUME_LEAVES") + nr,
                                           cache.geometry("nr_leaves"), 2),
                   "hybrid_map_leaf") as old:
            old.seal = bool(old["generation"])
            if old.seal:
                old["generation"] = 2		# as if it were the one after what was restored
                leftover.append(nr)
    assert leftover
    for nr in leftover:
        spoil_block(cache.map_leaf(nr))
    report = repair(build, pool.cache)
    judge(build, pool, report)
    assert report["unknown_blocks"] == len(leftover) * constant("MAP_LEAF_BLOCKS")


# --- cuts ------------------------------------------------------------------------------

@pytest.mark.parametrize("what", ["leaf", "entry", "index"])
def test_a_cut_at_any_write_leaves_the_old_state_or_the_new_one(build, crashed, tmp_path, what):
    pool = crashed.copy(tmp_path / "pool")
    cache = Cache(pool.cache)
    spoil_block({"leaf": lambda: cache.map_leaf(cache.written_leaves()[0]),
                 "entry": lambda: cache.entries()[0], "index": lambda: cache.index(0)}[what]())
    before = pool.cache.read_bytes()
    damage = json.loads(run(build, "check", "--json", pool.cache).stdout)["counts"]
    count = tmp_path / "count"
    want = repair(build, pool.cache, env=preload(build, count=count))
    after, writes = dump(build, pool.cache), int(count.read_text())
    assert writes > 4
    states = set()
    for cut in range(1, writes + 1):
        for seed in range(3):
            pool.cache.write_bytes(before)
            r = run(build, "repair", pool.cache, "-y", env=preload(build, cut=f"{cut} {seed}"))
            assert r.returncode == -9
            found = json.loads(run(build, "check", "--json", pool.cache).stdout)
            old = found["verdict"] == "damaged"
            states.add(old)
            if old:
                assert found["counts"] == damage
                again = repair(build, pool.cache)
                assert {k: v for k, v in again.items() if "findings" not in k} == \
                    {k: v for k, v in want.items() if "findings" not in k}
            assert dump(build, pool.cache) == after
    assert states == {True, False}


def written_again(build, pool: Pool, at: int) -> int:
    """A granule's sector, in the set of the one at @at, but in another of its regions."""
    d = json.loads(dump(build, pool.cache))["mappings"]
    blocks = {m["origin_block"] + k: m["block"] + k for m in d for k in range(m["count"])}
    size, region = constant("MAX_SET_SIZE"), constant("REGION_BLOCKS")
    mine = blocks[at // 8]
    return next(8 * o for o, b in blocks.items()
                if b // size == mine // size and b // region != mine // region)


def test_what_a_recovery_forgot_is_not_kept(build, tmp_path):
    """The newest root is damaged, and the tree is one from before the recovery: later entries
    say which regions were open since, not which had been until then."""
    pool = Pool(build, tmp_path / "pool", block=8)
    pool.write((0, 0, 8 * 800, 1), end=("idle 5", "drain", "idle 20", "close 0", "stop"))
    other = written_again(build, pool, 0)
    pool.opened("write 0 0 8 2")	# never flushed: the origin wins
    before = Cache(pool.copy(tmp_path / "before").cache)
    pool.write((0, other, 8, 3))
    roots = [Cache(pool.cache).root(older) for older in (False, True)]
    newest = next(r for r in roots if r.sector != before.root().sector)
    spoil_block(newest)
    for block in (before.root(), before.index(0)):	# writes that were lost
        with Block(pool.cache, block.sector, block.struct) as lost:
            lost.data[:] = block.data
    report = repair(build, pool.cache)
    view = judge(build, pool, report)
    assert view.dirty[0] == {other // 8}
    judge_engine(build, pool, view)


# --- a volume whose last block is short --------------------------------------------------

ODD = 8 * 2048 - 67	# sectors: neither whole blocks nor whole granules
TAIL = 45		# of these, dirty at its end


@pytest.fixture(scope="session")
def odd(build, tmp_path_factory):
    """An origin in place; the newest data of its last block is in the cache alone."""
    pool = Pool(build, tmp_path_factory.mktemp("odd") / "pool")
    disk = pool.dir / "disk"
    with open(disk, "wb") as f:
        f.truncate(ODD * 512)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", disk], check=True)
    pool.run(f"load {pool.cache}", f"create 1 place writeback {disk} inplace", f"open 1 {disk}",
             f"write 1 {ODD - TAIL} {TAIL} 7", "write 1 1024 16 8", "flush 1")
    return pool


def last_block(build, path):
    """Its entry in a dump."""
    block, = (m for m in json.loads(dump(build, path))["mappings"]
              if m["volume"] == 1 and m["origin_block"] + m["count"] > ODD // 128)
    return {k: block[k] for k in ("origin_block", "valid", "dirty")}


def drains(build, pool, cache, tmp_path):
    """To a copy of the origin: it is drained more than once."""
    disk = tmp_path / "disk"
    shutil.copy(pool.dir / "disk", disk)
    want = bytearray(disk.read_bytes())
    for first, count, seed in ((ODD - TAIL, TAIL, 7), (1024, 16, 8)):
        want[first * 512:(first + count) * 512] = sectors(seed, first, count)
    pool.run(f"load {cache}", f"open 1 {disk}", "drain", "close 1", "stop")
    assert disk.read_bytes() == want


@pytest.mark.parametrize("how", ["in-place", "onto-another", "restored"])
def test_a_short_last_block_is_kept(build, odd, tmp_path, how):
    """By repair and by restore, as the engine has it; the checker finds nothing wrong with it."""
    pool = odd.copy(tmp_path / "pool")
    shutil.copy(odd.dir / "disk", pool.dir / "disk")
    was, new = last_block(build, pool.cache), tmp_path / "new"
    assert run(build, "check", pool.cache).returncode == 7
    if how == "restored":
        shutil.copy(pool.cache, new)
        r = run(build, "restore", "-i", "-", "-o", new, "-y", "--force",
                "--wipe-signatures", input=dump(build, pool.cache))
        assert r.returncode == 0, r.stderr
    else:
        spoil_block(Cache(pool.cache).root())
        if how == "in-place":
            words = [new]
            shutil.copy(pool.cache, new)
        else:
            pool._image("../new", 16)
            words = ["-i", pool.cache, "-o", new]
        r = run(build, "repair", *words, "-y", "--json")
        assert r.returncode == 0 and not json.loads(r.stdout).get("may_be_stale"), r.stderr
    assert last_block(build, new) == was
    assert run(build, "check", new).returncode in (0, 7)
    drains(build, pool, new, tmp_path)


def test_a_short_last_block_that_is_lost_is_named(build, odd, tmp_path):
    """To the last sector, and not beyond."""
    pool = odd.copy(tmp_path / "pool")
    shutil.copy(odd.dir / "disk", pool.dir / "disk")
    pool.run(f"load {pool.cache}", f"open 1 {pool.dir / 'disk'}", "close 1", "stop")
    cache = Cache(pool.cache)
    for leaf in cache.written_leaves():
        spoil_block(cache.map_leaf(leaf))
    first, end = (cache.geometry(k) * 512 for k in ("journal_sector", "data_sector"))
    with open(pool.cache, "r+b") as f:
        f.seek(first)
        f.write(bytes(end - first))
    stale = [(r["offset"], r["offset"] + r["length"]) for r in
             repair(build, pool.cache)["may_be_stale"] if r["volume"] == "place"]
    assert stale and stale[-1][0] <= (ODD - TAIL) * 512 and stale[-1][1] == ODD * 512


# --- to another device --------------------------------------------------------------------

@pytest.mark.parametrize("seed", range(8))
def test_onto_another_device(build, worked, tmp_path, seed):
    rng = random.Random(seed)
    pool = worked[seed].copy(tmp_path / "pool")
    if seed % 2:
        spoil_block(Cache(pool.cache).map_leaf(0))
    before = pool.cache.read_bytes()
    new = tmp_path / "new"
    with open(new, "wb") as f:
        f.truncate(pool.cache.stat().st_size + rng.choice([0, 1, 5]) * (1 << 20))
    r = run(build, "repair", "-i", pool.cache, "-o", new, "-y", "--json")
    assert pool.cache.read_bytes() == before
    assert r.returncode in (0, 6), r.stderr
    view = judge(build, pool, json.loads(r.stdout), new)
    pool.cache = new
    judge_engine(build, pool, view)


def test_a_new_device_must_have_room_for_what_is_dirty(build, tmp_path):
    pool = Pool(build, tmp_path / "pool", cache_mib=24, block=8)
    pool.write((0, 0, 12288, 1))
    new = tmp_path / "new"
    with open(new, "wb") as f:
        f.truncate(9 << 20)
    r = run(build, "repair", "-i", pool.cache, "-o", new, "-y")
    assert r.returncode == 2 and "no room" in r.stderr and not any(new.read_bytes())
    pool.opened("drain", "close 0", "stop")
    r = run(build, "repair", "-i", pool.cache, "-o", new, "-y", "--json")
    assert r.returncode == 0 and json.loads(r.stdout)["forgotten_blocks"] > 100
    judge(build, pool, json.loads(r.stdout), new)


def test_data_that_the_old_device_does_not_give_back(build, crashed, tmp_path):
    d = json.loads(dump(build, crashed.cache))
    m = next(m for m in d["mappings"] if int(m["dirty"], 0))
    sector = d["pool"]["data_sector"] + m["block"] * d["pool"]["block_sectors"]
    new = tmp_path / "new"
    with open(new, "wb") as f:
        f.truncate(crashed.cache.stat().st_size)
    r = run(build, "repair", "-i", crashed.cache, "-o", new, "-y", "--json",
            env=preload(build, bad=f"read {crashed.cache} {sector} {sector + 8}"))
    assert r.returncode == 6, r.stderr
    report = json.loads(r.stdout)
    size = d["pool"]["block_sectors"] * 512
    assert [(x["volume"], x["offset"], x["length"]) for x in report["may_be_stale"]] == \
        [("vol0", m["origin_block"] * size, size)]
    judge(build, crashed, report, new)


def test_data_that_is_not_given_back_is_named_in_words_too(build, crashed, tmp_path):
    """What was lost while it was copied was counted in the exit status alone."""
    d = json.loads(dump(build, crashed.cache))
    m = next(m for m in d["mappings"] if int(m["dirty"], 0))
    sector = d["pool"]["data_sector"] + m["block"] * d["pool"]["block_sectors"]
    new = tmp_path / "new"
    with open(new, "wb") as f:
        f.truncate(crashed.cache.stat().st_size)
    r = run(build, "repair", "-i", crashed.cache, "-o", new, "-y",
            env=preload(build, bad=f"read {crashed.cache} {sector} {sector + 8}"))
    assert r.returncode == 6, r.stderr
    size = d["pool"]["block_sectors"] * 512
    assert f"({size} bytes)" in r.stdout
    assert ["vol0", str(m["origin_block"] * size), str(size)] in \
        [line.split()[:3] for line in r.stdout.splitlines()]


@pytest.mark.parametrize("base", ["clean", "crashed"])
@pytest.mark.parametrize("lost", [None, "cache", "origin"])
def test_json_is_one_object_whatever_there_is_to_repair(build, request, tmp_path, base, lost):
    """Where the metadata were good, there was none."""
    from check.corrupt import Member
    pool = request.getfixturevalue(base).copy(tmp_path / "pool")
    path = pool.origins[0] if lost == "origin" else pool.cache
    if lost:
        spoil_block(Member(path).superblock(1))
    checked = json.loads(run(build, "check", "--json", pool.cache).stdout)
    for test in (True, False):
        r = run(build, "repair", path, "-y", "--json", *["--test"] * test)
        assert r.returncode == 0, r.stderr
        report = json.loads(r.stdout)
        assert report["written"] == (bool(lost) and not test) and not report["may_be_stale"]
        assert ("superblock-copy" in report["counts"]) == (lost is not None), report
        if lost != "origin":
            assert report["counts"] == checked["counts"]
            dirty = sum(int(m["dirty"], 0).bit_count() and m["count"]
                        for m in json.loads(dump(build, pool.cache))["mappings"])
            assert report["kept_dirty_blocks"] == dirty and report["volumes"] == 2


def test_instances_that_are_used_up(build, crashed, tmp_path):
    """Who was to get a new one got 0, and whoever saw it was asked to report that."""
    pool = crashed.copy(tmp_path / "pool")
    with Cache(pool.cache).volumes(0) as leaf:
        for n in range(2):
            leaf["entry.instance", n] = 0xffffffff
    before = pool.bytes()
    r = run(build, "repair", pool.cache, "-y")
    assert r.returncode == 4 and "are used up" in r.stderr, r.stderr
    assert pool.bytes() == before


# --- refusals ------------------------------------------------------------------------------

def test_refusals(build, clean, tmp_path):
    pool = clean.copy(tmp_path / "pool")
    r = run(build, "repair", pool.cache)
    assert r.returncode == 0 and "nothing to repair" in r.stdout
    spoil_block(Cache(pool.cache).map_leaf(0))
    before = pool.bytes()
    r = run(build, "repair", pool.cache, input="")
    assert r.returncode == 2 and "kept" in r.stdout
    assert run(build, "repair").returncode == 1
    assert run(build, "repair", pool.cache, "-i", pool.cache).returncode == 1
    assert run(build, "repair", "-i", pool.cache, "-o", pool.cache, "-y").returncode == 2
    r = run(build, "repair", "-i", pool.cache, "-o", pool.origins[0], "-y")
    assert r.returncode == 5 and "already" in r.stderr
    small = tmp_path / "small"
    small.write_bytes(bytes(1 << 20))
    assert run(build, "repair", "-i", pool.cache, "-o", small, "-y").returncode == 4
    assert pool.bytes() == before


def test_an_origin_gets_its_superblock_back(build, clean, tmp_path):
    from check.corrupt import Member
    pool = clean.copy(tmp_path / "pool")
    before = pool.origins[0].read_bytes()
    spoil_block(Member(pool.origins[0]).superblock(0))
    repair(build, pool.origins[0])
    assert pool.origins[0].read_bytes() == before


def test_an_origin_is_not_repaired_onto_another_device(build, clean, tmp_path):
    """Who names another device wants this one to stay as it is."""
    from check.corrupt import Member
    pool = clean.copy(tmp_path / "pool")
    spoil_block(Member(pool.origins[0]).superblock(0))
    before = pool.bytes()
    other = tmp_path / "other"
    other.write_bytes(bytes(64 << 20))
    r = run(build, "repair", pool.origins[0], "--output", other, "-y")
    assert r.returncode == 1 and "--output" in r.stderr, r
    assert pool.bytes() == before
