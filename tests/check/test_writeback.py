# SPDX-License-Identifier: GPL-2.0-or-later
"""hybrid_writeback: drains a pool without the kernel, whatever happens meanwhile."""
import json
import os
import signal
import subprocess
import time

import pytest
from check.corrupt import Cache
from check.pools import HEAD, Pool, dump, sectors
from cli.test_refusals import signatures

CUTS = 40	# of each kind; every one is a run that is killed, and another


@pytest.fixture
def writeback(build, tmp_path):
    """writeback(pool, *args, **faults): the tool, with faults.c's FAULT_ variables."""
    def start(pool, *args, origins=None, **faults):
        env = {f"FAULT_{key.upper()}": str(value) for key, value in faults.items()}
        env["LD_PRELOAD"] = build / "faults.so"
        origins = pool.origins if origins is None else origins
        return subprocess.Popen(
            [build / "hybrid_writeback", pool.cache, *origins, *args], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path,
            env={**os.environ, **{k: str(v) for k, v in env.items()}})

    def go(*args, **kw):
        process = start(*args, **kw)
        process.out, process.err = process.communicate(timeout=60)
        return process

    go.start = start
    return go


def verdict(tool, pool):
    return tool("hybrid_check", pool.cache, *pool.origins).returncode


def check_drained(tool, pool):
    for n in range(len(pool.origins)):
        assert pool.on_origin(n) == pool.want[n]
    r = tool("hybrid_check", pool.cache, *pool.origins, "--json")
    assert r.returncode == 0, r.stdout
    assert not json.loads(r.stdout)["findings"]	# no dirty flag either


def number(path):
    return int(path.read_text())


def test_all_is_on_the_origins_and_the_second_run_writes_nothing(pool, writeback, tool, tmp_path):
    assert verdict(tool, pool) == 7
    r = writeback(pool)
    assert r.returncode == 0 and not r.err
    assert "dirty blocks at the start" in r.out and "nothing is dirty" in r.out
    check_drained(tool, pool)
    before = pool.bytes()
    r = writeback(pool, count=tmp_path / "count")
    assert (r.returncode, r.out, r.err) == (0, "pool: nothing is dirty\n", "")
    assert number(tmp_path / "count") == 0 and pool.bytes() == before
    # What is cached is still good.
    assert pool.opened("read 0 1000 4", "stop").split() == ["2"] * 4


def test_test_writes_nothing(pool, writeback, tmp_path):
    before = pool.bytes()
    r = writeback(pool, "--test", count=tmp_path / "count")
    assert r.returncode == 0 and number(tmp_path / "count") == 0 and pool.bytes() == before
    assert r.out.splitlines()[0] == (f"copy 160.00k from {pool.cache} to {pool.origins[0]} "
                                     "(volume vol0)")


def test_quiet_is_silent(pool, writeback):
    r = writeback(pool, "-q")
    assert (r.returncode, r.out, r.err) == (0, "", "")


def test_progress_and_result_in_json(pool, writeback, tool):
    found = json.loads(tool("hybrid_check", pool.cache, *pool.origins, "--json").stdout)
    lines = [json.loads(line) for line in writeback(pool, "--progress-json").out.splitlines()]
    assert lines[0]["state"] == "draining" and lines[0]["dirty_blocks"] > 0
    # Granules, not blocks
    assert lines[0]["dirty_bytes"] == lines[0]["total_bytes"] == found["pool"]["dirty_bytes"]
    assert 0 < sum(v["dirty_bytes"] for v in found["volumes"]) == found["pool"]["dirty_bytes"]
    assert lines[0]["dirty_bytes"] < 65536 * lines[0]["dirty_blocks"]
    assert lines[-1]["state"] == "clean" and lines[-1]["dirty_blocks"] == 0
    assert lines[-1]["written_bytes"] == lines[0]["dirty_bytes"]
    assert json.loads(writeback(pool, "--json").out)["state"] == "clean"


# --- which origins ------------------------------------------------------------------


def refused(writeback, pool, *args, rc, says, **kw):
    before = pool.bytes()
    r = writeback(pool, *args, **kw)
    assert r.returncode == rc, r.err
    assert says in r.err and "\n  next: " in r.err
    assert pool.bytes() == before


def test_the_origins_of_all_dirty_volumes_are_needed(pool, writeback, tool):
    refused(writeback, pool, rc=2, says="volume vol1 has 544.00k of dirty data, and its origin is not given",
            origins=pool.origins[:1])
    refused(writeback, pool, "--volume", "vol2", rc=4, says="no volume vol2", origins=[])
    refused(writeback, pool, "--volume", "vol0,vol1", rc=2, says="origins of 2 volumes",
            origins=[])
    r = writeback(pool, "--volume", "vol0", origins=pool.origins[:1])
    assert r.returncode == 0 and "other volumes are dirty: vol1 (544.00k)" in r.out
    assert pool.on_origin(0) == pool.want[0] and pool.on_origin(1) != pool.want[1]
    assert writeback(pool, origins=pool.origins[1:]).returncode == 0
    check_drained(tool, pool)


@pytest.mark.parametrize("names", ["", ",", "vol0,", ",vol0", "vol0,,vol1"])
def test_a_name_that_is_empty_is_no_volume(pool, writeback, names):
    """A list without names left everything dirty, with status 0."""
    refused(writeback, pool, "--volume", names, rc=1, says="a name is empty")


def test_volumes_that_were_not_named_are_not_called_clean(build, writeback, tmp_path):
    pool = Pool(build, tmp_path / "pool", origins=2)
    pool.write((1, 0, 64, 1))
    r = writeback(pool, "--volume", "vol0", origins=[])
    assert (r.returncode, r.out) == (0, "pool: other volumes are dirty: vol1 (32.00k)\n")
    last = json.loads(writeback(pool, "--volume", "vol0", "--json", origins=[]).out)
    assert last["state"] == "clean"
    assert last["other_dirty"] == [{"volume": "vol1", "dirty_bytes": 32768}]
    r = writeback(pool, "--volume", "vol0", "--copy-only", origins=[])
    assert r.returncode == 0 and "nothing is dirty" not in r.out and "vol1 (32.00k)" in r.out
    assert "other_dirty" not in json.loads(writeback(pool, "--json").out)


def test_the_origin_of_a_volume_that_is_not_named_is_refused(pool, writeback):
    """It was drained."""
    refused(writeback, pool, "--volume", "vol0", rc=2,
            says=f"{pool.origins[1]} is the origin of volume vol1, which --volume does not name")


def test_foreign_cloned_stale_detached_are_refused_as_by_the_kernel(pool, build, writeback,
                                                                    tmp_path):
    other = Pool(build, tmp_path / "other")
    one = pool.origins[:1]
    refused(writeback, pool, rc=4, says="belongs to another pool", origins=other.origins)
    refused(writeback, pool, rc=4, says="has no dm-hybrid superblock", 
            origins=[pool._image("empty", 8)])
    refused(writeback, pool, rc=4, says="is not an origin", origins=[other.cache])
    refused(writeback, pool, rc=2, says="are the same device", origins=one * 2)
    clone = pool.copy(tmp_path / "clone")
    refused(writeback, pool, rc=4, says="are both the origin of volume vol0",
            origins=[*one, clone.origins[0]])
    # The cache was used with another copy of the origin meanwhile.
    pool.opened("write 0 0 16 9", "flush 0", "write 1 0 16 9", "flush 1")
    refused(writeback, pool, rc=4, says="was written without its cache, which holds newer data",
            origins=[*clone.origins])


def test_a_damaged_cache_device_is_refused(pool, writeback):
    with open(pool.cache, "r+b") as f:
        f.seek(1 << 20)
        f.write(bytes(8192))	# both roots
    refused(writeback, pool, rc=4, says="no-root")


def make_part(path):
    """The backing disk of DRBD, say: a mirror's superblock behind ours."""
    size = path.stat().st_size + (64 << 10)
    ((place, data),) = signatures(size)["drbd"].items()
    with open(path, "r+b") as f:
        f.truncate(size)
        f.seek(place)
        f.write(data)


@pytest.mark.parametrize("which", ["cache", "origin"])
def test_a_part_of_a_mirror_is_not_written(build, pool, writeback, tool, which):
    """The other half would not get it, and the mirror takes them for the same."""
    text = dump(build, pool.cache)
    part = {"cache": pool.cache, "origin": pool.origins[1]}[which]
    make_part(part)
    refused(writeback, pool, rc=2, says=f"{part} is a part of an array (drbd)")
    before = pool.bytes()
    r = tool("hybrid_repair", part, "-y")
    assert r.returncode == 2 and "is a part of an array (drbd)" in r.stderr
    if which == "cache":
        r = subprocess.run([build / "hybrid_restore", "-i", "-", "-o", part, "-y", "--wipe-signatures"], input=text,
                           capture_output=True, text=True)
        assert r.returncode == 2 and "is a part of an array (drbd)" in r.stderr
    assert pool.bytes() == before
    r = tool("hybrid_check", pool.cache, *pool.origins)
    assert r.returncode == 7 and r.stderr.count("warning") == 1
    assert f"{part} is a part of an array (drbd): check the array instead" in r.stderr
    os.truncate(part, part.stat().st_size - (64 << 10))
    assert writeback(pool).returncode == 0
    assert tool("hybrid_check", pool.cache, *pool.origins).stderr == ""


def test_an_origin_in_place(build, tmp_path, writeback, tool):
    pool = Pool(build, tmp_path / "pool")
    disk = pool._image("disk", 8)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", disk], check=True)
    pool.run(f"load {pool.cache}", f"create 1 place writeback {disk} inplace", f"open 1 {disk}",
             "write 1 8192 64 7", "flush 1")
    want = bytearray(disk.read_bytes())
    assert writeback(pool, origins=[disk]).returncode == 0
    pool.want[0][:] = bytes(pool.size)
    want[8192 * 512:8256 * 512] = sectors(7, 8192, 64)
    assert disk.read_bytes() == want
    check_drained(tool, pool)


@pytest.fixture
def partition(tmp_path):
    """The only partition, of 8 MiB, of a disk."""
    disk = tmp_path / "disk.img"
    with open(disk, "wb") as f:
        f.truncate(16 << 20)
    subprocess.run(["sfdisk", "-q", disk], input="label: gpt\nsize=8M\n", text=True, check=True)
    r = subprocess.run(["losetup", "--find", "--show", disk], capture_output=True, text=True)
    if r.returncode:
        pytest.skip(f"no loop device: {r.stderr.strip()}")
    loop = r.stdout.strip()
    subprocess.run(["partx", "-a", loop], check=True)
    yield f"{loop}p1"
    subprocess.run(["partx", "-d", loop], check=True)
    subprocess.run(["losetup", "-d", loop], check=True)


def test_an_origin_in_place_that_got_its_file_system_later(build, tmp_path, writeback, tool, partition):
    """It was recorded by the UUID of its partition, which it still has."""
    pool = Pool(build, tmp_path / "pool", origins=0)
    pool.run(f"load {pool.cache}", f"create 0 place writeback {partition} inplace", f"open 0 {partition}",
             "write 0 8192 64 7", "flush 0")
    subprocess.run(["mke2fs", "-q", "-t", "ext4", partition], check=True)
    assert tool("hybrid_check", pool.cache, partition).returncode == 7
    r = writeback(pool, origins=[partition])
    assert r.returncode == 0, r.err
    with open(partition, "rb") as f:
        f.seek(8192 * 512)
        assert f.read(64 * 512) == sectors(7, 8192, 64)


def test_an_origin_in_place_that_holds_a_part_of_an_array(build, tmp_path, writeback, partition):
    """This is the volume's own data."""
    pool = Pool(build, tmp_path / "pool", origins=0)
    pool.run(f"load {pool.cache}", f"create 0 place writeback {partition} inplace", f"open 0 {partition}",
             "write 0 8192 64 7", "flush 0")
    with open(partition, "r+b") as f:
        ((place, data),) = signatures(8 << 20)["drbd"].items()
        f.seek(place)
        f.write(data)
    assert "drbd" in subprocess.run(["blkid", "-p", partition], capture_output=True, text=True).stdout
    r = writeback(pool, origins=[partition])
    assert r.returncode == 0, r.err


# --- interrupted --------------------------------------------------------------------


@pytest.fixture
def large(build, tmp_path):
    """More than what is under way at a time, and less than the engine begins to write back."""
    pool = Pool(build, tmp_path / "large", cache_mib=250, origin_mib=32)
    pool.write((0, 0, 36000, 1))
    return pool


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_it_cleanly_and_another_run_goes_on(large, writeback, tool, sig):
    process = writeback.start(large, "--progress-json", delay=150)
    json.loads(process.stdout.readline())
    time.sleep(0.3)
    process.send_signal(sig)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 6 and "interrupted: " in err and "start it again" in err
    left = json.loads(out.splitlines()[-1])
    assert left["state"] == "dirty" and 0 < left["dirty_blocks"] < left["total_blocks"]
    assert verdict(tool, large) == 0	# clean, with dirty data
    r = json.loads(writeback(large, "--json").out)
    assert r["dirty_blocks_at_start"] == left["dirty_blocks"]
    check_drained(tool, large)


def cut_everywhere(pool, writeback, tmp_path, *args, cuts=CUTS, **faults):
    """The power is cut in the nth write, some ns; yields what is left each time."""
    whole = pool.copy(tmp_path / "whole")
    assert writeback(whole, *args, count=tmp_path / "count", **faults).returncode == 0
    writes = number(tmp_path / "count")
    for cut in sorted({1 + n * (writes - 1) // (cuts - 1) for n in range(cuts)}):
        state = pool.copy(tmp_path / f"cut{cut}")
        r = writeback(state, *args, cut=f"{cut} {cut}", **faults)
        # With threads one run may need fewer writes than another.
        assert r.returncode == -signal.SIGKILL or cut > writes * 3 / 4
        yield state
        state.remove()


def test_cut_anywhere_and_run_again(pool, writeback, tool, tmp_path):
    for n, state in enumerate(cut_everywhere(pool, writeback, tmp_path)):
        assert verdict(tool, state) in (0, 7)
        # Some of them once more
        if n % 3 == 0:
            writeback(state, cut=f"{1 + n} {n}")
            assert verdict(tool, state) in (0, 7)
        assert writeback(state).returncode == 0
        check_drained(tool, state)


@pytest.mark.slow
def test_cut_while_some_is_recorded_and_more_under_way(large, writeback, tool, tmp_path):
    """Slow enough for the engine to record what is clean meanwhile."""
    left = set()
    for state in cut_everywhere(large, writeback, tmp_path, cuts=9, delay=400):
        r = writeback(state, "--json")
        assert r.returncode == 0
        left.add(json.loads(r.out)["dirty_blocks_at_start"])
        check_drained(tool, state)
    assert len(left) >= 3	# another run did not begin anew


# --- devices that fail --------------------------------------------------------------


def cache_sector(pool, n, sector):
    """Where the cache device has this sector of a volume."""
    want = bytes(pool.want[n][sector * 512:sector * 512 + 512])
    data = pool.cache.read_bytes()
    places = [i for i in range(0, len(data), 512) if data[i:i + 512] == want]
    assert len(places) == 1
    return places[0] // 512


def unwritten(r):
    return [(u["volume"], u["offset"], u["length"], u["reason"])
            for u in json.loads(r.out.splitlines()[-1])["unwritten"]]


def test_what_cannot_be_read_is_listed_and_the_rest_is_written(pool, writeback, tool):
    bad = cache_sector(pool, 0, 1100)
    r = writeback(pool, "--json", bad=f"read {pool.cache} {bad} {bad + 1}")
    assert r.returncode == 6 and "stays dirty" in r.err
    lost = (1096 * 512, 4096)
    assert unwritten(r) == [("vol0", *lost, "cache device: Input/output error")]
    want = pool.want[0][:]
    want[lost[0]:lost[0] + lost[1]] = bytes(lost[1])
    assert pool.on_origin(0) == want and pool.on_origin(1) == pool.want[1]
    # In words, and again as the disk is still bad.
    r = writeback(pool, bad=f"read {pool.cache} {bad} {bad + 1}")
    assert r.returncode == 6
    assert r.out.splitlines()[1].split(None, 3) == ["vol0", str(lost[0]), "4096",
                                                    "cache device: Input/output error"]
    # The disk is good again.
    assert writeback(pool).returncode == 0
    check_drained(tool, pool)


def test_what_cannot_be_written_is_listed(pool, writeback, tool):
    bad = f"write {pool.origins[1]} {HEAD + 4000} {HEAD + 4016}"
    r = writeback(pool, "--json", bad=bad)
    assert r.returncode == 6
    assert unwritten(r) == [("vol1", 4000 * 512, 8192, "origin: Input/output error")]
    assert pool.on_origin(0) == pool.want[0]
    assert verdict(tool, pool) == 0
    assert writeback(pool).returncode == 0
    check_drained(tool, pool)


@pytest.mark.parametrize("nth", range(1, 10))
def test_what_an_origin_does_not_flush_stays_dirty(pool, writeback, tool, nth):
    """Some are before the superblocks, the later ones after the data."""
    r = writeback(pool, "--json", flush=f"{nth} {pool.origins[1]}")
    assert r.returncode in (4, 6), r.err
    if r.returncode == 6:
        assert {(u[0], u[3]) for u in unwritten(r)} <= {
            ("vol1", "origin, or its flush: Input/output error")}
        assert pool.on_origin(0) == pool.want[0]
        assert verdict(tool, pool) in (0, 7)
    assert pool.copy(pool.dir.parent / "again").opened("read 1 0 4").split() == ["5"] * 4
    assert writeback(pool).returncode == 0
    # A copy of the superblock may be the older one: that is no reason to write.
    assert verdict(tool, pool) == 0
    assert pool.on_origin(1) == pool.want[1]


def test_half_of_the_cache_is_gone(large, build, writeback):
    """More bad windows than are under way at a time, among good ones: all that is good is saved."""
    first = Cache(large.cache).geometry("data_sector")
    bad = ";".join(f"read {large.cache} {n} {n + 512}"
                   for n in range(first, large.cache.stat().st_size // 512 - 2048, 1024))
    lost = subprocess.run([build / "hybridctl", "lost", "--json", large.cache], text=True,
                          capture_output=True, env={**os.environ, "FAULT_BAD": bad,
                                                    "LD_PRELOAD": str(build / "faults.so")})
    r = writeback(large, "--json", bad=bad)
    assert (lost.returncode, r.returncode) == (7, 6)
    gone = [(u["offset"], u["length"]) for u in json.loads(lost.stdout)["lost"]]
    assert [u[1:3] for u in unwritten(r)] == gone
    assert 100 * 65536 < sum(length for _, length in gone) < 200 * 65536
    want = large.want[0][:]
    for offset, length in gone:
        want[offset:offset + length] = bytes(length)
    assert large.on_origin(0) == want


def test_a_cache_device_that_cannot_be_written(pool, writeback, tool):
    r = writeback(pool, bad=f"write {pool.cache} 0 32768")
    assert r.returncode == 4 and "--copy-only" in r.err
    assert writeback(pool).returncode == 0
    check_drained(tool, pool)


def test_a_cache_device_that_fails_meanwhile(pool, writeback, tool):
    """The journal cannot be written: recovery can, but nothing can be recorded as clean."""
    journal = Cache(pool.cache).geometry("journal_sector")
    data = Cache(pool.cache).geometry("data_sector")
    bad = f"write {pool.cache} {journal} {data}"
    r = writeback(pool, "--json", bad=bad)
    assert r.returncode == 6 and "can no longer be written" in r.err and "--copy-only" in r.err
    assert sum(u[2] for u in unwritten(r)) == 704 * 1024
    assert {u[3] for u in unwritten(r)} == {"the cache device cannot be written"}
    copied = writeback(pool, "--copy-only", bad=bad)
    assert copied.returncode == 0, copied.err
    for n in range(2):
        assert pool.on_origin(n) == pool.want[n]
    assert writeback(pool).returncode == 0
    check_drained(tool, pool)


@pytest.mark.parametrize("part", ["all", "leaves"])
def test_a_cache_device_that_cannot_be_read_in_the_end(pool, writeback, tool, tmp_path, part):
    """It dies at any time, or loses its map while an origin fails: what was dirty is listed."""
    assert writeback(pool.copy(tmp_path / "count"), count=tmp_path / "writes").returncode == 0
    partial = 0
    for n in range(number(tmp_path / "writes")):
        copy = pool.copy(tmp_path / f"{part}{n}")
        cache, geometry = copy.cache, Cache(copy.cache).geometry
        leaves = f"read {cache} {geometry('leaf_sector')} {geometry('journal_sector')}"
        bad = {"all": f"read {cache} 0 32768;write {cache} 0 32768",
               "leaves": f"{leaves};write {copy.origins[1]} {HEAD + 4000} {HEAD + 4016}"}[part]
        r = writeback(copy, "--json", bad=bad, late=n)
        assert "next: " in r.err if r.returncode else n > 0, (n, r.returncode)
        if r.returncode == 6:
            partial += 1
            assert "can no longer be read; up to 704.00k may" in r.err, r.err
            listed = unwritten(r)
            assert sum(u[2] for u in listed) == 704 * 1024
            assert {u[3] for u in listed} <= {"the cache device cannot be written", "the cache device cannot be read",
                                              "cache device: Input/output error", "origin: Input/output error"}
        else:
            assert r.returncode in (0, 4)
        if part == "leaves":
            assert writeback(copy).returncode == 0
            check_drained(tool, copy)
        copy.remove()
    assert partial > 2


# --- --copy-only --------------------------------------------------------------------


def test_copy_only_touches_no_metadata(pool, writeback, tool):
    cache = pool.cache.read_bytes()
    heads = [path.read_bytes()[:HEAD * 512] for path in pool.origins]
    for _ in range(2):
        r = writeback(pool, "--copy-only")
        assert r.returncode == 0 and "still records it as dirty" in r.out
        assert pool.cache.read_bytes() == cache
        assert [path.read_bytes()[:HEAD * 512] for path in pool.origins] == heads
        for n in range(2):
            assert pool.on_origin(n) == pool.want[n]
    assert writeback(pool).returncode == 0
    check_drained(tool, pool)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("options", [[], ["--copy-only"]], ids=["all", "copy-only"])
def test_what_ended_well_is_durable(pool, writeback, options, seed):
    """The power is cut when the tool has ended: of what no fsync covers sectors are lost."""
    r = writeback(pool, *options, power=seed)
    assert r.returncode == 0, r.err
    for n in range(2):
        assert pool.on_origin(n) == pool.want[n]


def test_copy_only_from_a_device_that_is_read_only(pool, writeback):
    pool.cache.chmod(0o444)
    r = writeback(pool, "--copy-only", bad=f"write {pool.cache} 0 32768")
    assert r.returncode == 0
    assert pool.on_origin(0) == pool.want[0]


def test_copy_only_cut_anywhere(pool, writeback, tool, tmp_path):
    for state in cut_everywhere(pool, writeback, tmp_path, "--copy-only"):
        # Nothing happened, as far as the pool is concerned.
        assert state.opened("read 0 1016 8").split() == ["4"] * 8
        assert writeback(state).returncode == 0
        check_drained(tool, state)
