# SPDX-License-Identifier: GPL-2.0-or-later
"""hybrid_dump: all that the metadata say, once, and never of damaged ones."""
import json
import os
import re
import resource
import stat
import subprocess
import sys

from check.corrupt import Cache, constant
from check.pools import Pool, dump, run


def test_a_dump_says_what_the_leaves_say(build, clean):
    """Stopped: the journal adds nothing to the leaves, which python reads by itself."""
    cache = Cache(clean.cache)
    size = cache.geometry("set_size")
    want, open_sets = {}, set()
    for nr in cache.written_leaves():
        first = nr // constant("LEAVES_PER_SET") * size + \
            nr % constant("LEAVES_PER_SET") * constant("MAP_LEAF_BLOCKS")
        leaf = cache.map_leaf(nr)
        for i in range(constant("MAP_LEAF_BLOCKS")):
            if leaf["instance", i]:
                want[first + i] = tuple(leaf[f, i] for f in
                                        ("instance", "oblock", "valid", "dirty", "hint"))
        if leaf["open_regions"]:
            open_sets.add(nr // constant("LEAVES_PER_SET"))
    d = json.loads(dump(build, clean.cache))
    instance = {v["id"]: v["instance"] for v in d["volumes"]}
    got = {m["block"] + k: (instance[m["volume"]], m["origin_block"] + k, int(m["valid"], 0),
                            int(m["dirty"], 0), m["hint"])
           for m in d["mappings"] for k in range(m["count"])}
    assert len(want) > 100 and got == want
    assert {r["set"] for r in d["open_regions"]} == open_sets

    for v in d["volumes"]:
        mine = [m for m in d["mappings"] if m["volume"] == v["id"]]
        assert v["blocks"] == sum(m["count"] for m in mine)
        assert v["dirty_blocks"] == sum(m["count"] for m in mine if int(m["dirty"], 0))

    table = cache.volumes(0)

    def raw(field, index):
        offset, size = table.place(field, index)
        return table.data[offset:offset + size].hex()

    for v in d["volumes"]:
        assert v["pairing_key"] == raw("entry.pairing_key", v["id"])
        assert int(v["nonce"], 0) == table["entry.nonce", v["id"]]
        assert v["uuid"].replace("-", "") == raw("entry.uuid", v["id"])
        assert (v["mode"], v["state"], v["name"]) == ("writeback", "active", f"vol{v['id']}")
    assert d["pool"]["clean"] and d["pool"]["data_sector"] == cache.geometry("data_sector")


def test_the_journal_counts(build, crashed, tmp_path):
    d = json.loads(dump(build, crashed.cache))
    assert not d["pool"]["clean"]
    seen = {(m["origin_block"] + k) * 8 for m in d["mappings"] for k in range(m["count"])}
    # Written last, and in no leaf
    assert {4000, 4008, 8000, 8008} <= seen


def test_a_block_behind_eight_free_ones_is_not_passed_over(build, tmp_path):
    """It was: it did not count, and the checker did not see that another one claims its place."""
    pool = Pool(build, tmp_path / "pool", block=8)
    pool.write((0, 0, 8 * 40, 1), end=("close 0", "stop"))
    cache = Cache(pool.cache)
    nr = cache.written_leaves()[0]
    with cache.map_leaf(nr) as leaf:
        first = next(n for n in range(100) if leaf["instance", n])
        assert all(leaf["instance", n] for n in range(first, first + 11))
        for n in range(first + 1, first + 9):
            for field in ("instance", "oblock", "valid", "dirty"):
                leaf[field, n] = 0
    assert json.loads(dump(build, pool.cache))["volumes"][0]["blocks"] == 32
    with cache.map_leaf(nr) as leaf:
        leaf["oblock", first + 10] = leaf["oblock", first + 9]
    r = run(build, "check", "--json", pool.cache)
    assert r.returncode == 4 and "block-twice" in json.loads(r.stdout)["counts"]


def test_runs_of_neighbours_are_one_line(build, tmp_path):
    pool = Pool(build, tmp_path / "pool", block=8)
    pool.write((0, 0, 512, 1))
    assert any(m["count"] > 1 for m in json.loads(dump(build, pool.cache))["mappings"])


def test_parts(build, crashed):
    whole = json.loads(dump(build, crashed.cache))
    one = json.loads(dump(build, crashed.cache, "--volume", "vol1"))
    assert [v["name"] for v in one["volumes"]] == ["vol1"] and not one["mappings"]
    assert not one["dm_hybrid_dump"]["complete"]
    assert json.loads(dump(build, crashed.cache, "--volume", "vol0"))["mappings"] == \
        whole["mappings"]
    short = json.loads(dump(build, crashed.cache, "--skip-mappings"))
    assert "mappings" not in short and "open_regions" not in short
    assert short["volumes"] == whole["volumes"]
    assert not short["dm_hybrid_dump"]["mappings"]
    assert run(build, "dump", crashed.cache, "--volume", "").returncode == 1
    r = run(build, "dump", crashed.cache, "--volume", "vol2")
    assert r.returncode == 4 and "no volume vol2" in r.stderr and not r.stdout


def test_the_output_file_is_for_its_owner_and_the_device_is_not_touched(build, crashed, tmp_path):
    before = crashed.bytes()
    out = tmp_path / "out"
    assert dump(build, crashed.cache, "-o", out) == ""
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    text = out.read_text()
    assert text == dump(build, crashed.cache)
    out.write_text("much longer " * 100000)
    out.chmod(0o644)
    dump(build, crashed.cache, "-o", out)
    assert out.read_text() == text
    # It was readable: before the first key is in it, it is not
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert crashed.bytes() == before


def test_the_man_page_names_every_field(build, crashed, top):
    page = (top / "man/hybrid-dump.5.scd").read_text()
    document = json.loads(dump(build, crashed.cache))
    document["open_regions"] = [{"set": 0, "open": 0}]
    for part, value in document.items():
        text = page[page.index(f"*{part}*\n"):]
        for field in value if isinstance(value, dict) else value[0]:
            assert f"*{field}*" in text, (part, field)


def test_an_output_that_is_full(build, crashed):
    r = run(build, "dump", crashed.cache, "-o", "/dev/full")
    assert r.returncode == 6 and "could not be written" in r.stderr


def test_damaged_metadata_are_refused(build, crashed, tmp_path):
    pool = crashed.copy(tmp_path / "pool")
    with Cache(pool.cache).map_leaf(0) as leaf:
        leaf.spoil()
    r = run(build, "dump", pool.cache, "-o", tmp_path / "out")
    assert r.returncode == 4 and "map-bad" in r.stderr and not r.stdout
    assert not (tmp_path / "out").exists()


def test_an_empty_cache_of_a_tebibyte_takes_no_time_and_no_memory(build, tmp_path):
    cache = tmp_path / "cache"
    with open(cache, "wb") as f:
        f.truncate(1 << 40)
    subprocess.run([build / "offline-driver"], input=f"format {cache} 128 big\n", text=True,
                   check=True)
    # By a process of its own: a child's peak is at least what its parent had
    r = subprocess.run([sys.executable, "-c", "import resource, subprocess, sys\n"
                        "subprocess.run(sys.argv[1:], check=True)\n"
                        "print(resource.getrusage(resource.RUSAGE_CHILDREN), file=sys.stderr)",
                        build / "hybrid_dump", cache], capture_output=True, text=True, check=True)
    d = json.loads(r.stdout)
    used = dict(re.findall(r"(ru_\w+)=([\d.]+)", r.stderr))
    assert d["pool"]["blocks"] > 16e6 and not d["mappings"]
    assert int(used["ru_maxrss"]) < 128 << 10
    assert float(used["ru_utime"]) + float(used["ru_stime"]) < 5


def test_a_dump_that_is_not_durable_is_none(build, clean, tmp_path):
    """The device that it is of may be repaired next: a cut must not take both."""
    path = tmp_path / "dump"
    path.write_text("the dump before")
    # Of the new file, and of the directory
    for fsync, text in ((1, "the dump before"), (2, dump(build, clean.cache))):
        env = {**os.environ, "LD_PRELOAD": str(build / "faults.so"), "FAULT_FLUSH": f"{fsync} any"}
        r = run(build, "dump", clean.cache, "-o", path, env=env)
        assert r.returncode == 6 and "could not be written completely" in r.stderr, r
        assert path.read_text() == text and list(tmp_path.iterdir()) == [path]
    assert run(build, "dump", clean.cache, "-o", "/dev/stdout").returncode == 0


def test_a_full_disk_leaves_the_dump_before(build, clean, tmp_path):
    """It was truncated first: then there was neither."""
    path, link = tmp_path / "dump", tmp_path / "link"
    path.write_text("the dump before")
    link.symlink_to("dump")
    for output in (path, link, tmp_path / "new"):
        r = run(build, "dump", clean.cache, "-o", output, restore_signals=False,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
        assert r.returncode == 6 and "could not be written completely" in r.stderr, r
        assert path.read_text() == "the dump before"
        assert {p.name for p in tmp_path.iterdir()} == {"dump", "link"}
    dump(build, clean.cache, "-o", link)
    assert link.is_symlink() and path.read_text() == dump(build, clean.cache)


def test_a_dump_does_not_replace_what_it_is_of(build, clean, tmp_path):
    pool = clean.copy(tmp_path / "pool")
    (tmp_path / "symbolic").symlink_to(pool.cache)
    os.link(pool.cache, tmp_path / "hard")
    before = pool.bytes()
    for path in (pool.cache, tmp_path / "symbolic", tmp_path / "hard"):
        r = run(build, "dump", pool.cache, "-o", path)
        assert r.returncode == 2 and "that is to be dumped" in r.stderr, r
    assert pool.bytes() == before


def test_standard_output_stays_the_file_that_it_is(build, clean, tmp_path):
    path = tmp_path / "out"
    with open(path, "w", encoding="ascii") as out:
        subprocess.run([build / "hybrid_dump", clean.cache, "-o", "/dev/stdout"], stdout=out,
                       check=True)
        assert os.path.samestat(os.fstat(out.fileno()), path.stat())
    assert path.read_text() == dump(build, clean.cache)


def test_an_output_that_leads_nowhere_is_not_replaced(build, clean, tmp_path):
    link = tmp_path / "link"
    link.symlink_to("not-mounted/dump")
    r = run(build, "dump", clean.cache, "-o", link)
    assert r.returncode == 2 and "cannot write a dump there" in r.stderr, r
    assert link.is_symlink() and list(tmp_path.iterdir()) == [link]


def test_quiet_is_no_empty_dump(build, clean):
    assert dump(build, clean.cache, "--quiet") == dump(build, clean.cache)
