# SPDX-License-Identifier: GPL-2.0-or-later
"""hybrid_check: each finding of findings.def, made on purpose; and no verdict that the
engine does not share."""
import hashlib
import json
import os
import re
import resource
import subprocess
from pathlib import Path

import pytest
from check.corrupt import Block, Cache, Member, constant
from check.pools import Pool

TOP = Path(__file__).resolve().parents[2]
DEF = (TOP / "userspace/check/findings.def").read_text()
# name -> number, severity
FINDINGS = {name: (int(number), severity) for number, name, severity in
            re.findall(r'^FINDING\((\d+), \w+, "([a-z-]+)", (\w+),', DEF, re.M)}
EXIT = {"clean": 0, "recoverable": 7, "unknown": 4, "damaged": 4}
SEVERITY = {"NOTE": "clean", "RECOVERABLE": "recoverable", "UNKNOWN": "unknown", "DAMAGE": "damaged"}

IMAGES = {}


def image(*findings: str, base: str = "clean", members: str = "cache", **options):
    """Registers a function that spoils a copy of pool `base` such that this is found.

    `members`: what is given to the checker.  `env`: a function of the pool.
    """
    def register(function):
        name = function.__name__.removeprefix("_")
        assert name not in IMAGES
        IMAGES[name] = (findings, base, members, function, options)
        return function
    return register


# --- superblocks ---------------------------------------------------------------

def _spoil_superblock(member: Member, copy: int):
    with member.superblock(copy) as sb:
        sb.spoil()


@image("no-superblock")
def _no_superblock(pool: Pool):
    for copy in range(2):
        with Cache(pool.cache).superblock(copy) as sb:
            sb.seal, sb.data[:] = False, bytes(len(sb.data))


@image("no-superblock")
def _too_small(pool: Pool):
    os.truncate(pool.cache, 1 << 20)


@image("no-superblock", "no-cache", members="origin0 no-such-role")
def _only_garbage_beside_an_origin(pool: Pool):
    (pool.dir / "no-such-role").write_bytes(b"text " * 1000000)


@image("superblock-copy")
def _superblock_tail(pool: Pool):
    _spoil_superblock(Cache(pool.cache), 1)


@image("superblock-copy")
def _superblock_head(pool: Pool):
    _spoil_superblock(Cache(pool.cache), 0)


@image("superblock-copy", members="cache origin0")
def _superblock_of_origin(pool: Pool):
    _spoil_superblock(Member(pool.origins[0]), 0)


@image("superblock-bad")
def _superblock_both(pool: Pool):
    for copy in range(2):
        _spoil_superblock(Cache(pool.cache), copy)


@image("superblock-bad", members="cache origin0")
def _superblock_both_of_origin(pool: Pool):
    for copy in range(2):
        _spoil_superblock(Member(pool.origins[0]), copy)


@image("superblock-older")
def _superblock_older(pool: Pool):
    with Cache(pool.cache).superblock(1) as sb:
        sb["sequence"] += 1


@image("superblock-members")
def _superblock_members(pool: Pool):
    with Cache(pool.cache).superblock(1) as sb:
        sb["member_uuid"] = b"another"


@image("superblocks-differ")
def _superblocks_differ(pool: Pool):
    with Cache(pool.cache).superblock(1) as sb:
        sb["name"] = b"another"


@image("superblock-feature")
def _superblock_version(pool: Pool):
    Cache(pool.cache).set("version", constant("FORMAT_VERSION") + 1)


@image("superblock-feature")
def _superblock_version_and_a_bad_tail(pool: Pool):
    Cache(pool.cache).set("version", constant("FORMAT_VERSION") - 1)
    _spoil_superblock(Cache(pool.cache), 1)


@image("superblock-feature")
def _superblock_incompat(pool: Pool):
    Cache(pool.cache).set("incompat", 1 << 40)


@image("superblock-feature")
def _superblock_ro_compat(pool: Pool):
    Cache(pool.cache).set("ro_compat", 1 << 40)


@image("device-grown")
def _device_grown(pool: Pool):
    os.truncate(pool.cache, pool.cache.stat().st_size + 4096)


@image("device-shrunk")
def _device_shrunk(pool: Pool):
    os.truncate(pool.cache, pool.cache.stat().st_size - 4096)


@image("numbers-end")
def _last_superblock(pool: Pool):
    Cache(pool.cache).set("sequence", 1 << 62)


# --- what the root names ---------------------------------------------------------

def _bad(path: Path, sector: int) -> dict:
    return {"FAULT_BAD": f"read {path} {sector} {sector + 1}"}


@image("unreadable", env=lambda pool: _bad(pool.cache, Cache(pool.cache).geometry("root_sector")))
def _unreadable_root(pool: Pool):
    pass


@image("unreadable", env=lambda pool: _bad(pool.cache, Cache(pool.cache).map_leaf(0).sector))
def _unreadable_leaf(pool: Pool):
    pass


@image("unreadable", env=lambda pool: _bad(pool.cache, Cache(pool.cache).index(0).sector))
def _unreadable_index(pool: Pool):
    pass


@image("unreadable", env=lambda pool:
       _bad(pool.cache, Cache(pool.cache).geometry("journal_sector") + 800))
def _unreadable_journal(pool: Pool):
    pass


@image("unreadable", base="crashed",
       env=lambda pool: _bad(pool.cache, Cache(pool.cache).entries()[1].sector))
def _unreadable_entry(pool: Pool):
    pass


@image("unreadable", env=lambda pool: {"FAULT_BAD": ";".join(
    f"read {pool.cache} {sb.sector} {sb.sector + 8}"
    for sb in map(Cache(pool.cache).superblock, range(2)))})
def _unreadable_superblocks(pool: Pool):
    pass


@image("no-root")
def _no_root(pool: Pool):
    for other in (False, True):
        with Cache(pool.cache).root(other) as root:
            root.spoil()


@image("no-root")
def _root_of_another_pool(pool: Pool):
    for other in (False, True):
        with Cache(pool.cache).root(other) as root:
            root["pool_uuid"] = b"another"


@image("no-root")
def _roots_in_the_wrong_places(pool: Pool):
    for root in (Cache(pool.cache).root(), Cache(pool.cache).root(other=True)):
        with root:
            root["generation"] += 1


@image("numbers-end")
def _last_root(pool: Pool):
    with Cache(pool.cache).root() as root:
        root["generation"] = (1 << 62) + root["generation"] % 2 - 2


@image("root-other")
def _root_other(pool: Pool):
    with Cache(pool.cache).root(other=True) as root:
        root.spoil()


@image("not-clean", base="crashed", members="cache origin0 origin1")
def _crashed(pool: Pool):
    pass


@image("clean-but-open")
def _clean_but_open(pool: Pool):
    with Cache(pool.cache).map_leaf(0) as leaf:
        leaf["open_regions"] = 1


@image("index-bad")
def _index_bad(pool: Pool):
    with Cache(pool.cache).index(0) as index:
        index.spoil()


@image("index-bad")
def _index_lost(pool: Pool):
    with Cache(pool.cache).root() as root:
        root["index_generation", 0] += 2


@image("volumes-bad")
def _volumes_bad(pool: Pool):
    with Cache(pool.cache).volumes(0) as leaf:
        leaf["entry.mode", 0] = 99


@image("map-bad")
def _map_bad(pool: Pool):
    with Cache(pool.cache).map_leaf(0) as leaf:
        leaf.spoil()


@image("map-bad")
def _map_lost(pool: Pool):
    cache = Cache(pool.cache)
    with cache.index(0) as index:
        index["leaf_generation", constant("VOLUME_LEAVES")] += 2


@image("map-bad")
def _map_dirty_not_valid(pool: Pool):
    with Cache(pool.cache).map_leaf(0) as leaf:
        n, _ = _mapped(leaf)
        leaf["valid", n], leaf["dirty", n] = 0, 1


# --- volume table -------------------------------------------------------------------

@image("volume-instance", "block-instance")
def _volume_instance(pool: Pool):
    with Cache(pool.cache).root() as root:
        root["next_instance"] = 1


@image("volume-shared-instance")
def _volume_shared_instance(pool: Pool):
    with Cache(pool.cache).volumes(0) as leaf:
        leaf["entry.instance", 1] = leaf["entry.instance", 0]


@pytest.mark.parametrize("field", ["name", "uuid", "member_uuid"])
def test_volume_twice(build, clean, tmp_path, field):
    pool = clean.copy(tmp_path / "pool")
    with Cache(pool.cache).volumes(0) as leaf:
        leaf[f"entry.{field}", 1] = leaf[f"entry.{field}", 0]
    r = check(build, pool.cache)
    assert r.verdict == "recoverable" and r.found == {"volume-twice"}


@image("volume-twice")
def _volume_twice(pool: Pool):
    with Cache(pool.cache).volumes(0) as leaf:
        leaf["entry.name", 1] = leaf["entry.name", 0]


@image("volume-tombstone")
def _volume_tombstone(pool: Pool):
    with Cache(pool.cache).volumes(0) as leaf:
        leaf["entry.state", 1] = constant("VOLUME_TOMBSTONE")


@image("volume-nonce", members="cache origin1")
def _volume_nonce(pool: Pool):
    with Cache(pool.cache).volumes(0) as leaf:
        leaf["entry.nonce_old", 1] = leaf["entry.nonce", 1]
        leaf["entry.nonce", 1] ^= 5


# --- map ----------------------------------------------------------------------------

def _mapped(leaf, want: bool = True) -> tuple[int, int]:
    """A block of the leaf that is, or is not, mapped, and its instance."""
    for n in range(constant("MAP_LEAF_BLOCKS")):
        if bool(leaf["instance", n]) == want:
            return n, leaf["instance", n]
    raise AssertionError("there is none")


@image("block-instance")
def _block_instance(pool: Pool):
    with Cache(pool.cache).map_leaf(0) as leaf:
        leaf["instance", _mapped(leaf)[0]] = 1000


@image("block-beyond")
def _block_beyond(pool: Pool):
    with Cache(pool.cache).map_leaf(0) as leaf:
        leaf["oblock", _mapped(leaf)[0]] = 1 << 30


def _move(cache: Cache, source: int, target: int, remove: bool):
    with cache.map_leaf(source) as leaf:
        n, instance = _mapped(leaf)
        values = {f: leaf[f, n] for f in ("oblock", "valid", "dirty")}
        if remove:
            leaf["instance", n] = leaf["oblock", n] = leaf["valid", n] = leaf["dirty", n] = 0
    with cache.map_leaf(target) as leaf:
        n, _ = _mapped(leaf, False)
        leaf["instance", n] = instance
        for f, value in values.items():
            leaf[f, n] = value


@image("block-set")
def _block_set(pool: Pool):
    cache = Cache(pool.cache)
    leaves = cache.written_leaves()
    other = next(n for n in leaves if n // constant("LEAVES_PER_SET") != leaves[0] // 4)
    _move(cache, leaves[0], other, remove=True)


@image("block-twice")
def _block_twice(pool: Pool):
    _move(Cache(pool.cache), 0, 0, remove=False)


@image("block-dead")
def _block_dead(pool: Pool):
    cache = Cache(pool.cache)
    with cache.root() as root:
        root["next_instance"] = 100
    with cache.map_leaf(0) as leaf:
        leaf["instance", _mapped(leaf)[0]] = 50


# --- journal --------------------------------------------------------------------------

@image("journal-short", base="crashed")
def _journal_short(pool: Pool):
    with Cache(pool.cache).root() as root:
        root["journal_head"] = root["journal_tail"] + 100


@image("journal-short", base="crashed")
def _journal_short_of_the_first(pool: Pool):
    """As --fast sees it, too."""
    cache = Cache(pool.cache)
    last = cache.entries()[-1]
    with cache.root() as root:
        root["journal_head"] = last["number"] + 1
    with cache.entries()[0] as entry:
        entry.spoil()


@image("journal-entry", base="crashed")
def _journal_entry(pool: Pool):
    with Cache(pool.cache).entries()[0] as entry:
        entry["record.type", 0] = 99


@image("journal-gap", base="crashed")
def _journal_gap(pool: Pool):
    with Cache(pool.cache).entries()[0] as entry:
        entry.spoil()


@image("journal-newer", base="crashed")
def _journal_newer(pool: Pool):
    with Cache(pool.cache).root() as root:
        root["epoch"] ^= 1


@image("block-set", "not-clean", base="crashed")
def _journal_block_set(pool: Pool):
    """A record may say what is well-formed, and wrong all the same."""
    cache = Cache(pool.cache)
    size = cache.geometry("set_size")
    for entry in cache.entries():
        for n in range(entry["count"]):
            if entry["record.type", n] != constant("RECORD_BLOCK"):
                continue
            with entry:
                where = entry["record.where", n]
                entry["record.where", n] = where - size if where >= size else where + size
            return
    raise AssertionError("no record of a block")


# --- intents ----------------------------------------------------------------------------

def _intent_data(pool: Pool) -> int:
    """The first sector of the data under the first intent."""
    cache = Cache(pool.cache)
    return cache.intended(cache.intents()[0])


@image("intent-bad", base="intended")
def _intent_bad(pool: Pool):
    with Cache(pool.cache).intents()[0] as intent:
        intent["record.instance", 0] = 77


@image("intent-lost", base="intended")
def _intent_lost(pool: Pool):
    with Cache(pool.cache).intents()[0] as intent:
        intent.spoil()


@image("intent-lost", base="intended")
def _intent_data_lost(pool: Pool):
    with open(pool.cache, "r+b") as f:
        f.seek(512 * _intent_data(pool))
        f.write(b"lost")


@image("intent-newer", base="intended")
def _intent_newer(pool: Pool):
    with Cache(pool.cache).intents()[-1] as intent:
        intent["epoch"] ^= 1


def _unreadable_intent(pool: Pool, nr: int) -> dict:
    return _bad(pool.cache, Cache(pool.cache).intents()[nr].sector)


@image("unreadable", base="intended", env=lambda pool: _unreadable_intent(pool, -1))
def _intent_unreadable(pool: Pool):
    pass


@image("unreadable", env=lambda pool: _bad(
    pool.cache, Cache(pool.cache).geometry("intent_sector") + 8 * 50))
def _unused_intent_unreadable(pool: Pool):
    pass


@image("numbers-end", base="intended")
def _entry_ends_intents(pool: Pool):
    with Cache(pool.cache).entries()[-1] as entry:
        entry["intent_tail"] = 1 << 61 | 5


@image("intent-data", base="intended", env=lambda pool: _bad(pool.cache, _intent_data(pool)))
def _intent_data_unreadable(pool: Pool):
    pass


# --- origins ----------------------------------------------------------------------------

def _origin(name: str, field: str, value, *findings: str, which: int = 0, **options):
    def spoil(pool: Pool):
        Member(pool.origins[which]).set(field, value)
    spoil.__name__ = name
    image(*findings, members=f"cache origin{which}", **options)(spoil)


_origin("origin_pool", "pool_uuid", b"another", "origin-pool")
_origin("origin_volume", "origin.volume_uuid", b"another", "origin-volume")
_origin("origin_member", "member_uuid", b"another", "origin-member")
_origin("origin_key", "origin.pairing_key", b"another", "origin-key")
_origin("origin_area", "origin.data_sectors", constant("ALIGN_SECTORS"), "origin-area")
_origin("origin_last", "sequence", 1 << 62, "numbers-end")
_origin("origin_alone_dirty", "origin.nonce", 4711, "origin-alone-dirty")
_origin("origin_alone", "origin.nonce", 4711, "origin-alone", which=1)


def _alone(origin: Member, flags: int):
    """It went on alone when the pool of its last session failed."""
    with origin.superblock(0) as sb:
        paired = sb["origin.nonce"]
    origin.set("origin.nonce", 4711)
    origin.set("origin.paired_nonce", paired)
    origin.set("flags", constant("SB_ALONE") | flags)


@image("origin-merges", members="cache origin0")
def _origin_merges(pool: Pool):
    _alone(Member(pool.origins[0]), constant("SB_DIRTY"))


@image("origin-alone", members="cache origin0")
def _origin_lost_nothing(pool: Pool):
    """It is clean, so records in the cache that call blocks of it dirty are outdated."""
    _alone(Member(pool.origins[0]), 0)


@image("origin-alone-dirty", members="cache origin0")
def _origin_of_another_session(pool: Pool):
    origin = Member(pool.origins[0])
    _alone(origin, constant("SB_DIRTY"))
    origin.set("origin.paired_nonce", 4712)



@image("origin-is-detached", members="cache origin0")
def _origin_is_detached(pool: Pool):
    origin = Member(pool.origins[0])
    origin.set("role", constant("ROLE_DETACHED"))
    origin.set("flags", 0)


@image("origin-is-detached", members="cache origin0")
def _origin_given_up(pool: Pool):
    origin = Member(pool.origins[0])
    origin.set("role", constant("ROLE_DETACHED"))
    origin.set("flags", constant("SB_LOSS_UNKNOWN"))
    origin.set("pool_uuid", bytes(16))


_origin("origin_unflagged", "flags", 0, "origin-unflagged")
_origin("origin_flagged", "flags", constant("SB_DIRTY"), "origin-flagged", which=1)
_origin("origin_older", "origin.instance", 77, "origin-older", which=1)


@image("cache-older", "origin-flagged", members="cache origin1")
def _cache_older(pool: Pool):
    origin = Member(pool.origins[1])
    origin.set("origin.nonce", 4711)
    origin.set("flags", constant("SB_DIRTY"))


@image("volume-tombstone", "origin-tombstone", members="cache origin1")
def _origin_tombstone(pool: Pool):
    _volume_tombstone(pool)


@image("volume-tombstone", "origin-tombstone", members="cache origin1")
def _origin_tombstone_marked(pool: Pool):
    _volume_tombstone(pool)
    Member(pool.origins[1]).set("role", constant("ROLE_DETACHED"))


@image("superblock-older", members="cache origin0")
def _origin_about_to_go_on_alone(pool: Pool):
    """Only one copy said so: it never did."""
    with Member(pool.origins[0]).superblock(0) as sb:
        sb["origin.nonce"], sb["sequence"] = 4711, sb["sequence"] + 1


@image("origin-detached", members="cache origin1")
def _origin_detached(pool: Pool):
    origin = Member(pool.origins[1])
    origin.set("pool_uuid", b"another")
    origin.set("role", constant("ROLE_DETACHED"))


@image("origin-lost", members="cache origin0")
def _origin_lost(pool: Pool):
    for copy in range(2):
        Member(pool.origins[0]).lost_map(copy, b"\x0d")


@image("origin-lost", "no-cache", members="origin0")
def _origin_lost_one_copy(pool: Pool):
    for copy in range(2):
        Member(pool.origins[0]).lost_map(copy, b"\x0d")
    with Block(pool.origins[0], constant("SB_SECTOR") + 8, "hybrid_lost_map", 8192) as lost:
        lost.spoil()


@image("origin-lost-unknown", members="cache origin0")
def _origin_lost_unknown(pool: Pool):
    Member(pool.origins[0]).set("origin.lost", 1)


@image("member-twice", members="cache origin0 twin")
def _member_twice(pool: Pool):
    subprocess.run(["cp", pool.origins[0], pool.dir / "twin"], check=True)


@image("member-twice", members="cache origin0 twin")
def _cache_twice(pool: Pool):
    subprocess.run(["cp", pool.cache, pool.dir / "twin"], check=True)


@image("no-cache", members="origin0 origin1")
def _no_cache(pool: Pool):
    pass


@image(members="cache origin0 origin1")
def _clean(pool: Pool):
    pass


@image(members="origin1 cache origin0")
def _cache_in_the_middle(pool: Pool):
    pass


# --- the tests ------------------------------------------------------------------------

class Result:
    def __init__(self, run: subprocess.CompletedProcess):
        self.code, self.stderr = run.returncode, run.stderr
        self.json = json.loads(run.stdout)
        self.verdict = self.json["verdict"]
        self.found = set(self.json["counts"])


def run(build: Path, *args, env=None, **options) -> subprocess.CompletedProcess:
    env = {**os.environ, "LD_PRELOAD": str(build / "faults.so"), **env} if env else None
    return subprocess.run([build / args[0], *map(str, args[1:])], capture_output=True, text=True,
                          timeout=60, env=env, **options)


def check(build: Path, *args, **options) -> Result:
    return Result(run(build, "hybrid_check", "--json", *args, **options))


def digest(paths) -> list[str]:
    return [hashlib.sha256(p.read_bytes()).hexdigest() for p in paths]


@pytest.fixture(params=IMAGES)
def spoilt(request, tmp_path):
    """A pool with this image's damage: what it is, what is to be checked, in which environment."""
    findings, base, members, function, options = IMAGES[request.param]
    pool = request.getfixturevalue(base).copy(tmp_path / "pool")
    function(pool)
    env = options["env"](pool) if "env" in options else None
    return set(findings), pool, [pool.dir / m for m in members.split()], env


def engine_accepts(build: Path, pool: Pool, paths: list[Path], env) -> bool:
    """Does it load the pool, and open the volumes whose origins are given?  If not, it says why, in words."""
    origins = [f"{n} {p}" for n, p in enumerate(pool.origins) if p in paths]
    r = subprocess.run([build / "offline-driver"], capture_output=True, text=True, timeout=60,
                       input=f"try {pool.cache} {' '.join(origins)}\n",
                       env={**os.environ, "LD_PRELOAD": str(build / "faults.so"), **env}
                       if env else None)
    assert r.returncode == 0, r.stderr
    reasons = set(r.stdout.splitlines()) - {"ok"}
    assert all(" " in reason for reason in reasons), reasons
    return not reasons


# Where the tools refuse what the engine alone would not see.
TOOLS_ONLY = {"superblock-feature", "member-twice", "no-superblock", "volume-tombstone",
              "origin-detached"}


def test_finding(build, spoilt):
    findings, pool, paths, env = spoilt
    before = digest(paths)
    r = check(build, *paths, env=env)
    assert findings <= r.found, r.json["findings"]
    worst = max((list(SEVERITY).index(FINDINGS[name][1]) for name in r.found), default=0)
    assert r.verdict == list(SEVERITY.values())[worst]
    assert r.code == EXIT[r.verdict]
    assert digest(paths) == before
    if not findings & TOOLS_ONLY and pool.cache in paths:
        assert engine_accepts(build, pool, paths, env) == (r.verdict != "damaged")
    # and nothing else but what comes of it
    side = {"not-clean", "block-dead", "origin-flagged", "root-other", "origin-tombstone"}
    if not {"index-bad", "unreadable", "volume-shared-instance"} & findings:
        assert r.found - findings <= side


def test_text_says_the_same(build, spoilt):
    findings, pool, paths, env = spoilt
    r = run(build, "hybrid_check", *paths, env=env)
    last = r.stdout.splitlines()[-1]
    assert r.returncode == EXIT[last] and not r.stderr
    for name in findings:
        assert re.search(rf"^\S+: \w+ {FINDINGS[name][0]} \({name}\): .+", r.stdout, re.M)
    assert r.stdout.count("  meaning: ") == r.stdout.count("  next: ") >= len(findings)


def test_quiet_is_silent(build, spoilt):
    _, _, paths, env = spoilt
    loud, quiet = (run(build, "hybrid_check", *paths, *more, env=env) for more in ([], ["-q"]))
    assert quiet.returncode == loud.returncode
    assert not quiet.stdout and not quiet.stderr


def test_every_finding_has_an_image():
    assert {f for findings, *_ in IMAGES.values() for f in findings} == set(FINDINGS)


def test_a_crash_with_open_regions(build, crashed):
    report = check(build, crashed.cache).json
    assert report["pool"]["open_regions"] and report["pool"]["journal_records"]


def test_what_to_do_next_can_be_done():
    commands = (TOP / "userspace/hybridctl/commands.def").read_text()
    options = set(re.findall(r'^OPTION\(\w+, "([a-z-]+)"', commands, re.M))
    names = set(re.findall(r'^COMMAND\(\w+, "([a-z-]+)"', commands, re.M))
    assert set(re.findall(r"hybridctl ([a-z-]+)", DEF)) <= names
    assert set(re.findall(r"--([a-z-]+)", DEF)) <= options


def test_numbers_are_given_once():
    numbers = [number for number, _ in FINDINGS.values()]
    assert len(set(numbers)) == len(numbers) == DEF.count("\nFINDING(")


def test_a_full_cache_of_64_sets(build, tmp_path):
    """Larger than what the engine makes here; bench.py measures it at 1 TiB."""
    path = tmp_path / "cache"
    assert not run(build, "big-pool", path, "2048", "128", "3").returncode
    r = check(build, path)
    assert r.found == {"not-clean"} and r.json["pool"]["used"] == r.json["pool"]["blocks"] > 32000
    assert r.json["pool"]["journal_records"] == 3 * ((64 * 4096 - 64) // 40)
    fast = check(build, "--fast", path)
    assert fast.found == {"not-clean"} and fast.json["fast"]

    def reads(*options):
        check(build, *options, path, env={"FAULT_READS": str(tmp_path / "reads")})
        return map(int, (tmp_path / "reads").read_text().split())

    # The tree and the ring of the journal in large pieces; superblocks twice, roots, an index
    number, amount = reads()
    assert amount < Cache(path).geometry("data_sector") * 512
    assert number < amount / (256 << 10) + 20
    number, amount = reads("--fast")
    assert number <= 7 and amount <= 512 << 10


@pytest.mark.parametrize("name", ["clean", "crashed", "no_root", "superblock_both",
                                  "journal_short_of_the_first", "superblock_tail"])
def test_fast_sees_what_is_at_the_top(build, name, request, tmp_path):
    findings, base, _, function, _ = IMAGES[name]
    pool = request.getfixturevalue(base).copy(tmp_path / "pool")
    function(pool)
    assert check(build, "--fast", pool.cache).found - {"not-clean"} == set(findings) - {"not-clean"}


def test_an_origin_in_place_is_known_by_its_file_system(build, tmp_path):
    """Nothing of ours stands on it."""
    pool = Pool(build, tmp_path / "pool", origins=0)
    for name in ("ours", "theirs"):
        path = pool.dir / name
        path.write_bytes(b"")
        os.truncate(path, 4 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", path], check=True)
    pool.run(f"load {pool.cache}", f"create 0 vol writethrough {pool.dir / 'ours'} inplace", "stop")
    r = check(build, pool.cache, pool.dir / "ours")
    assert r.verdict == "clean" and not r.found
    assert check(build, pool.cache, pool.dir / "theirs").found == {"no-superblock"}


def test_an_empty_cache_of_8_tib_takes_no_time(build, tmp_path):
    """Memory follows from what is mapped, not from what could be."""
    path = tmp_path / "cache"
    path.write_bytes(b"")
    os.truncate(path, 8 << 40)
    subprocess.run([build / "offline-driver"], input=f"format {path} 128 empty\n", text=True,
                   check=True)
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    r = check(build, path)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert r.verdict == "clean" and r.json["pool"]["blocks"] > 125e6
    assert end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime < 2


def test_how_much_was_lost(build, clean, tmp_path):
    pool = clean.copy(tmp_path / "pool")
    _origin_lost(pool)
    r = check(build, pool.cache, pool.origins[0])
    assert [f["text"] for f in r.json["findings"]] == ["vol0: 12 KiB in 2 ranges"]
    assert r.verdict == "recoverable"


@pytest.fixture
def loop():
    """A function that makes a loop device of a file: read past the page cache, as disks are."""
    made = []

    def make(path: Path) -> str:
        r = subprocess.run(["losetup", "--find", "--show", path], capture_output=True, text=True)
        if r.returncode:
            pytest.skip(f"no loop device: {r.stderr.strip()}")
        made.append(r.stdout.strip())
        return made[-1]
    yield make
    for device in made:
        subprocess.run(["losetup", "-d", device], check=False)


def test_block_devices(build, crashed, tmp_path, loop):
    pool = crashed.copy(tmp_path / "pool")
    device = loop(pool.cache)
    r = check(build, device, pool.origins[0])
    assert r.found == {"not-clean"} and r.json["pool"]["journal_records"]
    assert check(build, "--fast", device).found == {"not-clean"}
    last = Cache(pool.cache).entries()[-1]
    r = check(build, device, env=_bad(device, last.sector))
    assert r.found == {"unreadable", "not-clean"}
    assert r.json["findings"][0]["text"] == "Input/output error"
    # Held by somebody, if only by this test
    with open(os.open(device, os.O_RDONLY | os.O_EXCL), "rb"):
        r = run(build, "hybrid_check", device)
        assert r.returncode == 5 and f"{device} is in use" in r.stderr


def test_an_unreadable_block_that_no_index_names(build, clean):
    """Between leaves in use lies an outdated one: neither the kernel nor the checker needs it."""
    cache = Cache(clean.cache)
    first, per = constant("VOLUME_LEAVES"), constant("INDEX_LEAVES")
    generation = {nr: cache.index(nr // per)["leaf_generation", nr % per]
                  for nr in range(first, first + max(cache.written_leaves()) + 1)}
    area = {nr: gen & 1 for nr, gen in generation.items() if gen}
    hole, wanted = next((nr, area[nr - 1]) for nr in generation
                        if nr - 1 in area and area.get(nr) != area[nr - 1] and
                        any(area.get(k) == area[nr - 1] for k in range(nr + 1, nr + 32)))
    place = cache.geometry("leaf_sector") + 8 * wanted * cache.geometry("nr_leaves")
    assert check(build, clean.cache, env=_bad(clean.cache, place + 8 * hole)).found == set()
    # The neighbour is of the same read, and is missed.
    assert check(build, clean.cache, env=_bad(clean.cache, place + 8 * (hole - 1))).found == {"unreadable"}


def test_one_pool_at_a_time(build, tmp_path):
    pool, other = (Pool(build, tmp_path / name, origins=0) for name in "ab")
    for options in ([], ["--fast"]):
        r = run(build, "hybrid_check", *options, pool.cache, other.cache)
        assert r.returncode == 1 and f"{other.cache} is a cache device, too" in r.stderr
    r = run(build, "hybrid_check", pool.cache, pool.cache)
    assert r.returncode == 2 and "are the same device" in r.stderr
