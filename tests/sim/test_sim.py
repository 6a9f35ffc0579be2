# SPDX-License-Identifier: GPL-2.0-or-later
"""A bounded run of the simulator that is the same each time.

Fixed seeds and counts, about 90 seconds of one core: a commit that fails here
broke something itself.  `make check-sim` draws fresh seeds and runs for longer.
"""

import functools
import pathlib
import re
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build"


def built(name, *target):
    """One at a time: each worker of pytest asks for it."""
    lock = BUILD / name / ".lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["flock", lock, "make", "-s", "-C", HERE, *target], check=True)
    return BUILD / name / "sim"


@pytest.fixture(scope="session")
def sim():
    return built("sim")


@pytest.fixture(scope="session")
def sim_asan():
    return built("sim-asan", "asan")


@pytest.fixture(scope="session")
def sim_interleave():
    return built("sim-interleave", "interleave")


def run(binary, *args):
    result = subprocess.run(
        [str(binary), *map(str, args)], capture_output=True, text=True, check=False
    )
    last = result.stdout.strip().splitlines()[-1:] or [""]
    if result.returncode != 0:
        pytest.fail(f"sim {' '.join(map(str, args))}\n{last[0]}\n{result.stderr[-4000:]}")
    return result.stdout


def counts(output):
    line = output.strip().splitlines()[-1]
    return {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)(?!\.)\b", line)}


def pinned_seeds():
    """Lines of seeds/*.txt: mode, seed, options; the rest is a comment."""
    for path in sorted((HERE / "seeds").glob("*.txt")):
        for line in path.read_text().splitlines():
            words = line.split("#")[0].split()
            if words:
                yield pytest.param(words, id=" ".join(words))


@pytest.mark.parametrize("words", list(pinned_seeds()))
def test_pinned(sim, sim_interleave, words):
    mode, seed, *options = words
    binary = sim_interleave if "--interleave" in options else sim
    run(binary, "--mode", mode, "--seed", seed, *options)


@pytest.mark.parametrize("script", sorted((HERE / "seeds").glob("*.script")), ids=lambda p: p.stem)
def test_pinned_script(sim, script):
    run(sim, "--script", script)


@pytest.mark.parametrize("faults", [[], ["--faults"]], ids=["plain", "faults"])
@pytest.mark.parametrize("mode, count", [("A", 1250), ("B", 25)])
def test_swarm(sim, mode, count, faults):
    output = run(sim, "--mode", mode, "--seed", 1, "--count", count, *faults)
    assert counts(output)["seeds"] == count
    assert counts(output)["violations"] == 0
    assert counts(output)["crash_states"] > 3 * count


@pytest.mark.parametrize("mode, count", [("A", 300), ("B", 8)])
def test_rot(sim, mode, count):
    """Damaged metadata in every crash state: refused by name, or not used."""
    output = run(sim, "--mode", mode, "--seed", 1, "--count", count, "--rot")
    assert counts(output)["seeds"] == count
    assert counts(output)["crash_states"] > 3 * count


@functools.lru_cache
def tabled(sim, *args):
    """Runs once, however many tests look at it."""
    return run(sim, "--seed", 1, "--table", *args)


@pytest.mark.parametrize("hangs", ["1 of 2", "15 of 16 origins: all"])
def test_isolation(sim, hangs):
    """An origin that hangs costs no operation of another volume much, or makes it wait."""
    output = run(sim, "--isolation", "--hang-of", hangs)
    rows = [line for line in output.splitlines() if hangs in line]
    assert len(rows) == (10 if hangs == "1 of 2" else 1)
    assert not [row for row in rows if "!" in row or "HANGS" in row]


LOOPS = [("--loop", what, "--count", 10) for what in ("alloc", "io")]
EVENTS = [
    # So many for a journal that is full, which seeds without faults come to
    ("--events", "--count", 2000),
    ("--events", "--faults", "--count", 800),
    ("--mode", "B", "--events", "--count", 12),
    ("--mode", "B", "--events", "--faults", "--count", 12),
    ("--events", "--faults", "--policies", "--count", 500),
    ("--events", "--faults", "--demand-fill", "--count", 300),
]


@pytest.mark.parametrize("args", LOOPS, ids=lambda args: args[1])
def test_loop(sim, args):
    """Each allocation, each request of 10 runs fails once; requests also for good."""
    output = tabled(sim, *args)
    assert counts(output)["seeds"] == 10
    assert int(re.search(r"runs=(\d+)", output)[1]) > 10 * (100 if "alloc" in args else 300)


@pytest.mark.parametrize("args", EVENTS, ids=lambda args: " ".join(map(str, args)))
def test_events(sim, args):
    """Suspend, reload, attach, detach with dirty data, while others run."""
    output = tabled(sim, *args)
    assert counts(output)["seeds"] == args[-1]
    assert counts(output)["crash_states"] > 3 * args[-1]


def pairs(output):
    """{(phase, fault): how often, None where it cannot be} of a table."""
    rows = [line.split() for line in output.splitlines()]
    start = next(i for i, words in enumerate(rows) if words[:1] == ["phase"])
    faults = rows[start][1:]
    return {
        (words[0], fault): None if n == "-" else int(n)
        for words in rows[start + 1 :]
        if len(words) == len(rows[start])
        for fault, n in zip(faults, words[1:])
    }


def test_readahead(sim):
    """Data that was read ahead is read, and dropped for each reason but one."""
    ended = {}
    for args in EVENTS:
        for why, n in re.findall(r"^readahead-(\w+) (\d+)$", tabled(sim, *args), re.M):
            ended[why] = ended.get(why, 0) + int(n)
    # More fills at once than the simulator begins: tests/unit/test_stream.c
    del ended["yielded"]
    assert len(ended) == 8 and ended["read"] > 1000
    assert [why for why, n in ended.items() if n == 0] == []


def test_retired(sim):
    """Places fail for good, and their blocks are retired."""
    nr = [int(re.search(r"^retired (\d+)$", tabled(sim, *args), re.M)[1]) for args in EVENTS]
    assert sum(nr) > 20


def test_failing(sim):
    """Cache devices reach their limits of errors, and pools keep nothing dirty from then on."""
    nr = [int(re.search(r"^failing (\d+)$", tabled(sim, *args), re.M)[1]) for args in EVENTS]
    assert sum(nr) > 20


def test_alloc_faults(sim):
    """Jobs, entries and checkpoints get the memory that they do not wait for, and do without."""
    output = tabled(sim, "--alloc-faults", "--count", 100)
    assert counts(output)["seeds"] == 100
    asked = re.findall(r"^memory-(\w+) (\d+) refused (\d+)$", output, re.M)
    assert [who for who, _, _ in asked] == ["job", "entry", "checkpoint"]
    assert all(int(n) > 10 for _, *both in asked for n in both)


NOWAIT = [
    ("--nowait", "--count", 200),
    ("--nowait", "--events", "--faults", "--count", 200),
    ("--mode", "B", "--nowait", "--count", 24),
]


@pytest.mark.parametrize("args", NOWAIT, ids=lambda args: " ".join(map(str, args)))
def test_nowait(sim, args):
    """What must not wait is refused, here or by a device, and data are as before."""
    output = tabled(sim, *args)
    assert counts(output)["seeds"] == args[-1]
    refused, by_device = map(int, re.search(r"^refused (\d+) by-device (\d+)$", output, re.M).groups())
    assert refused > args[-1]
    # The short workloads of mode B make a device refuse in about every other seed.
    assert by_device > (args[-1] // 4 if "B" in args else args[-1])


GROW = [
    ("--grow", "--count", 100),
    ("--grow", "--faults", "--events", "--count", 100),
    ("--grow", "--rot", "--count", 60),
    ("--mode", "B", "--grow", "--count", 4),
    ("--mode", "B", "--grow", "--faults", "--rot", "--count", 12),
]


@pytest.mark.parametrize("args", GROW, ids=lambda args: " ".join(map(str, args)))
def test_origins_that_grow(sim, args):
    """The power goes at each write of it: the old size or the new one, all data, and no tail left behind."""
    output = tabled(sim, *args)
    assert counts(output)["seeds"] == args[-1]
    begun, ended = map(int, re.search(r"^grown (\d+) ended (\d+)$", output, re.M).groups())
    assert ended > args[-1] // 2 and begun > ended


def test_several_entries(sim):
    """A commit takes several entries, and a flush waits for the last of them."""
    output = run(sim, "--script", HERE / "seeds/several-entries.script", "--table")
    assert int(re.search(r"^entries-of-several (\d+)$", output, re.M)[1]) > 0


def test_collisions(sim):
    """Each collision happens in some seed."""
    met = dict.fromkeys(("parts", "flushes", "stops", "alone"), 0)
    for args in ((), ("--faults", "--events")):
        output = tabled(sim, "--collisions", "--count", 300, *args)
        assert counts(output)["seeds"] == 300
        for what, n in re.findall(r"^collision-(\w+) (\d+)$", output, re.M):
            met[what] += int(n)
    assert all(n >= 5 for n in met.values()), met
    output = tabled(sim, "--faults", "--events", "--count", 100)
    assert re.findall(r"^collision-(?:flushes|stops) (\d+)$", output, re.M) == ["0", "0"]


# Too rare for a bounded run: as commits and the steps of a checkpoint take turns, the journal hardly
# ever is without room (test_flush.full_journal); damage is test_rot's.
# Forgetting reads nothing: only a read of another volume can fail beside it.
RARE = re.compile(r"journal-full .*|forget cache-read|.* rot")


def test_every_pair(sim):
    """No fault that can happen in a phase of the engine is left out."""
    hits = {}
    for args in [*LOOPS, *EVENTS]:
        for pair, n in pairs(tabled(sim, *args)).items():
            hits[" ".join(pair)] = None if n is None else (hits.get(" ".join(pair)) or 0) + n
    assert len(hits) > 250
    assert [p for p, n in hits.items() if n == 0 and not RARE.fullmatch(p)] == []


def test_exhaustive(sim):
    """All of it is tried, and it is the same each time."""
    first, second = (run(sim, "--mode", "C", "--length", 2, "--hash") for _ in range(2))
    # 13 operations, of which 5 on block 1, which never comes before block 0; 5 pools
    assert counts(first)["seeds"] == 5 * (8 + 2 * (5 * 13 + 3 * 8))
    assert re.search(r"hash=\w+", first).group() == re.search(r"hash=\w+", second).group()
    parts = [
        counts(run(sim, "--mode", "C", "--length", 2, "--part", f"{i}/3"))["seeds"]
        for i in range(3)
    ]
    assert sum(parts) == counts(first)["seeds"]


@pytest.mark.parametrize("mode, count", [("A", 150), ("B", 4)])
def test_sanitizers(sim_asan, mode, count):
    run(sim_asan, "--mode", mode, "--seed", 5001, "--count", count, "--faults")


@pytest.mark.parametrize("faults", [[], ["--faults"], ["--policies"]], ids=["plain", "faults", "policies"])
@pytest.mark.parametrize("mode, count", [("A", 500), ("B", 10)])
def test_interleaved(sim_interleave, mode, count, faults):
    """Engine calls overlap, as on several CPUs: the promises hold, and no data race."""
    args = ["--mode", mode, "--seed", 1, "--count", count, "--interleave", *faults]
    output = run(sim_interleave, *args)
    assert counts(output)["seeds"] == count
    assert counts(output)["violations"] == 0


def hashes(binary, *args):
    return [line for line in run(binary, *args).splitlines() if line.startswith("seed=")]


@pytest.mark.parametrize("faults", [[], ["--faults"]], ids=["plain", "faults"])
@pytest.mark.parametrize("mode", ["A", "B"])
def test_same_seed_same_hash(sim, sim_interleave, mode, faults):
    args = ["--mode", mode, "--seed", 9001, "--count", "5", "--hash", *faults]
    first = hashes(sim, *args)
    assert len(set(first)) == 5
    assert first == hashes(sim, *args)
    # One CPU is one CPU, also in the build that could do more
    assert first == hashes(sim_interleave, *args)
    overlapped = hashes(sim_interleave, *args, "--interleave")
    assert first != overlapped == hashes(sim_interleave, *args, "--interleave")


@pytest.mark.parametrize(
    "options",
    [["A"], ["B"], ["A", "--faults", "--events"], ["B", "--faults", "--events"], ["A", "--alloc-faults"],
     ["A", "--demand-fill"], ["A", "--collisions"], ["A", "--faults", "--events", "--collisions"],
     ["A", "--hang", "--events"]],
    ids=" ".join,
)
def test_recorded_is_the_same_run(sim, tmp_path, options):
    """A script of all that a seed decided gives the seed's hash."""
    script = tmp_path / "script"
    for seed in range(9101, 9106):
        args = ["--mode", options[0], "--seed", seed, *options[1:]]
        first = re.search(r"hash=(\w+)", run(sim, *args, "--hash"))
        script.write_text(run(sim, *args, "--record"))
        assert first.group() == re.search(r"hash=(\w+)", run(sim, "--script", script, "--hash")).group()


# Defects: mode, file, what it says, what it says then.
PLANTED = {
    "fua-ignored": ("B", "core/engine-write.c", " fua && !io->commit)", " false)"),
    "flush-ignored": ("B", "core/engine-commit.c", "	else\n		hybrid_join_commit(", "	else if (0)\n		hybrid_join_commit("),
    "clean-without-flush": ("B", "core/engine-commit.c", "if (!origin_durable(v, s->flush_epoch[i]))", "if (0)"),
    "rewrite-stays-clean": ("B", "core/engine-write.c", "	if (again)\n", "	if (0)\n"),
    "removal-not-recorded": ("A", "core/engine-evict.c", "	if (s->flags[i] & BLOCK_JMAPPED) {", "	if (0) {"),
}


# Each builds a simulator of its own: one for each mode at each change.
AT_EACH_CHANGE = "removal-not-recorded", "clean-without-flush"


@pytest.fixture(params=[
    pytest.param(name, marks=() if name in AT_EACH_CHANGE else pytest.mark.long) for name in PLANTED])
def defect(request, tmp_path):
    """A simulator of an engine with a defect."""
    engine = tmp_path / "engine"
    shutil.copytree(HERE.parents[1] / "dm-hybrid", engine)
    mode, name, old, new = PLANTED[request.param]
    source = (engine / name).read_text()
    assert source.count(old) == 1
    (engine / name).write_text(source.replace(old, new))
    subprocess.run(
        ["make", "-s", "-C", HERE, f"ENGINE_DIR={engine}", f"BUILD={tmp_path}/build"], check=True
    )
    return tmp_path / "build" / "sim", mode


def violation(binary, *args):
    result = subprocess.run([binary, *args], capture_output=True, text=True, check=False)
    rule = re.search(r"VIOLATION (\S+)", result.stderr)
    seed = re.search(r"reproduce: .*--seed (\d+)", result.stderr)
    return rule and rule.group(1), seed and seed.group(1)


def test_shrinks(sim, defect, tmp_path):
    """A seed that fails becomes a script, that fails for the same reason; some of about ten lines."""
    binary, mode = defect
    script = tmp_path / "script"
    seed, lines = 0, range(100)
    for _ in range(5):  # some get stuck
        if len(lines) <= 14:
            break
        rule, seed = violation(binary, "--mode", mode, "--seed", str(int(seed) + 1),
                               "--count", "300")
        script.write_text(run(binary, "--mode", mode, "--seed", seed, "--shrink"))
        lines = script.read_text().splitlines()
        assert lines[0] == f"# {rule}"
    assert len(lines) <= 14
    assert violation(binary, "--script", script)[0] == rule
    run(sim, "--script", script)
