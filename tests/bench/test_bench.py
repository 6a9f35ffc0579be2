# SPDX-License-Identifier: GPL-2.0-or-later
"""The benchmarks themselves: the load, what the tables say, and a small run of it all."""
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "bench"), str(TOP)]

import bounds  # noqa: E402
import figures  # noqa: E402
import machine  # noqa: E402
import report  # noqa: E402
import run as bench  # noqa: E402


@pytest.fixture(scope="module")
def load(tmp_path_factory):
    """Runs load.c, built with sanitizers, on a file of zeroes of 16 MiB."""
    directory = tmp_path_factory.mktemp("load")
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-g", "-fsanitize=address,undefined", "-o",
                    directory / "load", TOP / "bench/load.c", "-lm"], check=True)
    file = directory / "file"
    file.write_bytes(bytes(16 << 20))

    def go(*options):
        # Its exit frees what it has.
        found = subprocess.run([directory / "load", file, *options], capture_output=True, text=True,
                               env={"ASAN_OPTIONS": "detect_leaks=0"})
        return json.loads(found.stdout) if found.returncode == 0 else found.stderr
    go.file = file
    return go


@pytest.mark.parametrize("pattern", ["sequential", "shuffled", "sorted", "uniform", "zipf",
                                     "zoned"])
def test_load_counts(load, pattern):
    found = load(f"pattern={pattern}", "size=16", "bs=4/50:64/50", "reads=50", "depth=8", "ios=400")
    read, write = found["read"], found["write"]
    assert read["ios"] + write["ios"] == 400
    assert 120 < read["ios"] < 280
    assert 8 * 400 < read["sectors"] + write["sectors"] < 128 * 400
    for side in (read, write):
        assert 0 < side["p50_ns"] <= side["p99_ns"] <= side["p999_ns"] <= side["max_ns"]


def test_load_writes_each_block_once(load):
    """Of 4,096 blocks the half that a shuffle takes, and as many with the next seed."""
    load.file.write_bytes(bytes(16 << 20))
    load("pattern=shuffled", "size=16", "reads=0", "depth=8", "ios=2048", "seed=5")
    data = load.file.read_bytes()
    blocks = {n for n in range(4096) if data[n * 4096]}
    assert len(blocks) == 2048
    assert 900 < len([n for n in blocks if n < 2048]) < 1150
    load("pattern=sorted", "size=16", "reads=0", "ios=2048", "seed=5")
    data = load.file.read_bytes()
    assert {n for n in range(4096) if data[n * 4096]} == blocks


def test_sequence_is_what_a_load_does(load, tmp_path):
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-o", tmp_path / "sequence",
                    TOP / "bench/sequence.c", "-lm"], check=True)

    def sequence(*options):
        run = subprocess.run([tmp_path / "sequence", *options], capture_output=True, text=True,
                             check=True)
        return [(kind, int(at), int(n)) for kind, at, n in map(str.split, run.stdout.splitlines())]

    options = ["pattern=zipf", "size=15", "offset=1", "ios=800", "seed=3", "reads=0"]
    load.file.write_bytes(bytes(16 << 20))
    load(*options, "depth=8")
    data = load.file.read_bytes()
    assert {at // 4096 for _, at, _ in sequence(*options)} == \
        {n for n in range(4096) if data[n * 4096]}
    options = ["pattern=zoned", "size=16", "ios=800", "bs=4/50:64/50", "reads=70"]
    found, listed = load(*options), sequence(*options)
    for kind, name in (("r", "read"), ("w", "write")):
        sizes = [n // 512 for k, _, n in listed if k == kind]
        assert (found[name]["ios"], found[name]["sectors"]) == (len(sizes), sum(sizes))


def reads(*blocks):
    return [bounds.IO(False, block, 0) for block in blocks]


@pytest.mark.parametrize("cache, piece, seeks", [
    (bounds.Recent, 1, 7),	# each is just gone when it comes again
    (bounds.Oracle, 1, 4),	# does not keep 3
    (bounds.Recent, 2, 6),	# 1 is there when it is read, 3 gone before
    (bounds.Oracle, 2, 3),	# gives up 2, which is read last
])
def test_bounds(monkeypatch, cache, piece, seeks):
    monkeypatch.setattr(bounds, "CAPACITY", 3)
    ios = reads(0, 1, 2, 3, 0, 1, 2)
    disk = bounds.Disk(seek=9, block=1)
    speed, found = bounds.reads_a_second(ios, 0, 0, cache(ios), piece, disk)
    assert found == seeks
    assert speed <= 7 / (seeks * 10) * 1000


def test_bounds_of_a_part(monkeypatch):
    """Only from a number on, or for a time; what was written is there, its block is not."""
    disk = bounds.Disk(seek=9, block=1)
    ios = [bounds.IO(True, 5, 0), *reads(5, 1, 1), bounds.IO(False, 5, 4096), *reads(7, 8)]
    assert bounds.reads_a_second(ios, 0, 0, bounds.Recent(ios), 1, disk) == (7 / 40 * 1000, 4)
    assert bounds.reads_a_second(ios, 4, 0, bounds.Recent(ios), 1, disk) == (3 / 30 * 1000, 3)
    assert bounds.reads_a_second(ios, 0, 0.02, bounds.Recent(ios), 1, disk) == (5 / 20 * 1000, 2)


def test_bounds_know_the_workloads():
    assert list(bounds.loads("zipf", 1)) == ["1", "2", "3"]
    assert "seed=31" in bounds.loads("zipf", 1)["3"]
    assert "ios=8000" in bounds.loads("burst", 2)["burst"]


def test_load_refuses(load):
    assert "no option" in load("size=16", "ios=1", "speed=9")
    assert "no pattern" in load("size=16", "ios=1", "pattern=circles")
    assert "must make sense" in load("size=16")
    assert "must make sense" in load("size=16", "ios=1", "fsync=1", "depth=2")


# --- figures ------------------------------------------------------------------


def phase(ios: int, seconds: float, ssd_sectors: int = 0) -> dict:
    side = {"ios": ios, "sectors": 8 * ios, "mean_ns": 0, "p50_ns": 0, "p99_ns": 0, "p999_ns": 0, "max_ns": 0}
    return {"load": {"ns": seconds * 1e9, "read": side | {"ios": 0, "sectors": 0}, "write": side},
            "hdd0": {"f": 1}, "hdd1": {"f": 1}, "ssd0": {"ws": 100}, "ssd1": {"ws": 100 + ssd_sectors}}


def made_up(ours: int) -> figures.Runs:
    """1,000 fsyncs in as many seconds as it takes; the limit does 1,000 a second."""
    rates = {"disk": 100, "limit": 1000, "bcache-wb": 600, "writecache": 700, "hybrid": ours}
    return {(stack, "fsync"): [{"new": phase(1000, 1000 / rate, 16000)}]
            for stack, rate in rates.items()}


def test_goals():
    found = {g.name: g for g in figures.goals(made_up(970), {})}
    assert found["fsync"] == ("fsync", 970, 700, 1000, 970, ",.0f", False)
    assert found["fsync"].verdict == "ok"
    assert found["fsync-written"][1:5] == (2.0, 2.0, None, 2.03)
    assert found["fsync-written"].verdict == "ok"
    assert found["burst"].verdict == "-"
    found = {g.name: g for g in figures.goals(made_up(969), {})}
    assert found["fsync"].verdict == "short"


def test_reads_are_held_against_those_of_the_disk_alone():
    def waiting(ms):
        return {"load": {"read": {"p50_ns": ms * 5e5, "p99_ns": ms * 1e6, "max_ns": ms * 2e6}}}

    runs = {("disk", "beside"): [{"alone": waiting(80), "drain": waiting(200)}],
            ("hybrid", "beside"): [{"alone": waiting(90), "background": waiting(120), "drain": waiting(121)}]}
    found = {g.name: g for g in figures.goals(runs, {})}
    assert found["reads-background-p99"][1:5] == (120, None, None, 120)
    assert found["reads-background-p99"].verdict == "ok"
    assert found["reads-drain-p99"].verdict == "short"
    assert figures.value(runs, "hybrid", "reads-drain-max") == 242


def test_peers_of_an_earlier_run():
    runs = made_up(970)
    known = figures.best_peers(runs)
    assert known["fsync"] == 700
    few = {key: phases for key, phases in runs.items() if key[0] in ("disk", "limit", "hybrid")}
    assert figures.goals(few, known) == figures.goals(runs, {})


def test_median_of_seeds():
    runs = {("disk", "fsync"): [{"new": phase(1000, s)} for s in (1, 9, 2)]}
    assert figures.value(runs, "disk", "fsync") == 500


def test_reports():
    runs = made_up(500)
    goals = figures.goals(runs, {})
    assert ["fsync", "500", "700", "1,000", "970", "short"] in \
        [line.split() for line in report.gate(goals).splitlines()]
    assert "| fsync after each 4k random write: of new blocks | 100 | 1,000 | 600 | 700 | 500 |" in \
        report.markdown(runs, goals, "about")
    bars = {line[:19].strip(): line.count("#") for line in report.text_bars(runs, "fsync")[1:]}
    assert bars["limit"] > bars["dm-hybrid"] > bars["disk"] > 0
    page = report.html(runs, goals, "a <b> of `c`")
    assert "a &lt;b&gt; of <code>c</code>" in page and "nan" not in page
    rows = [name for name in figures.ALL if figures.value(runs, "hybrid", name) is not None]
    assert page.count("<figure>") == len(rows) == 3
    samples = len(report.LEGEND) - 1
    assert page.count("<rect") == 5 * len(rows) + samples
    assert page.count('<line class="goal"') == len(rows) + 1
    assert page.count("<details>") == len(figures.DEVICES)
    assert "SSD written, MiB" in page and "<td>7.8<" in page	# 16,000 sectors
    assert not re.search(r"(src|href)=|url\(|@import", page)


def test_table_says_what_rows_have_in_common_once():
    runs = made_up(500)
    for phases in runs.values():
        phases[0]["rewrite"] = phases[0]["new"]
    lines = report.table(runs, figures.ROWS)
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| fsync after each 4k random write: of new blocks", "| ... of dirty blocks"]


def test_latencies():
    def waiting(ms):
        return {"load": {"read": {"p50_ns": ms * 5e5, "p99_ns": ms * 1e6, "p999_ns": ms * 1.5e6, "max_ns": ms * 2e6}}}

    runs = {(stack, "latency@nvme-smr"): [{"hits-alone": waiting(ms)}] for stack, ms in (("disk", 88), ("hybrid", .2))}
    text = report.latencies(runs)
    assert text[:3] == ["### NVMe and SMR disk", "", "|  | disk | **dm-hybrid** |"]
    assert "| hits, alone | 44 / 88 / 132 / 176 | 0.1 / 0.2 / 0.3 / 0.4 |" in text
    assert "| fsyncs beside fills | - | - |" in text
    assert "<summary>NVMe and SMR disk</summary>" in report.html(runs, [], "")


def test_every_latency_has_its_load():
    text = (TOP / "bench/workloads/latency.sh").read_text()
    for row in figures.LATENCIES:
        load, beside = row.phase.split("-")
        assert f"run {load}-$1 " in text and (f"measure {beside}\n" in text or f"beside {beside} " in text)


def test_workloads_at_other_hardware():
    works = ["zipf@nvme-smr", "cold@plp-disk", "fsync"]
    assert bench.words(" ".join(works), figures.WORKS) == works
    for wrong in "zipf@nvme-tape", "sleep@nvme-smr", "latency":
        with pytest.raises(SystemExit):
            bench.words(wrong, figures.WORKS)
    found = figures.rows(works)
    new = {row.text: row for name, row in found.items() if name not in figures.ALL}
    assert new["NVMe and SMR disk: zipf, 3"].work == "zipf@nvme-smr"
    assert new["SSD with power-loss protection and disk: cold, cold"].work == "cold@plp-disk"
    assert bench.plan(["limit", "disk"], ["zipf@nvme-smr"], 1, False) == [("disk", "zipf@nvme-smr", 1)]


def test_every_stack_is_shown():
    assert {*report.TEXT} == {*figures.STACKS, *figures.MORE}
    runs = {(stack, "fsync"): [{"new": phase(1000, 1)}] for stack in report.TEXT}
    assert report.html(runs, [], "").count("<rect") == 3 * len(report.TEXT) + len(report.LEGEND) - 1


def test_without_what_cannot_be_had(monkeypatch, capsys):
    def fetch():
        raise machine.Missing("no such package")
    monkeypatch.setattr(machine, "prepare", lambda: None)
    monkeypatch.setitem(machine.FETCHED, "writeboost", fetch)
    assert bench.missing(["disk", "writeboost"]) == {"writeboost"}
    assert "without writeboost: no such package" in capsys.readouterr().err


def test_every_row_has_its_workload():
    for row in figures.ALL.values():
        script, _, hardware = row.work.partition("@")
        assert script in bench.SCRIPTS and hardware in ("", *figures.HARDWARE)
        assert f"run {row.phase} " in (text := (TOP / f"bench/workloads/{script}.sh").read_text()) \
            or f"say {row.phase} " in text or f"restart {row.phase}" in text \
            or row.phase.endswith("-alone") and f"run {row.phase[:-6]}-$1 " in text \
            or row.phase in "123" and "run $pass" in text \
            or 'run "$1-$' in text and f" {row.phase.rpartition('-')[0]} " in text \
            or row.phase in ("new", "rewrite") and "\nfsyncs\n" in text


# --- the guest ----------------------------------------------------------------


@pytest.mark.qemu
def test_a_small_run():
    """The module as it is, on the models; once more, it does the same to the nanosecond."""
    run = machine.Run("hybrid", "tiny", 1, TOP / "tests/bench")
    first = run.measure()["phases"]
    assert figures.written(first["new"]) >= 2
    assert figures.written(first["again"]) < 1.5
    for each in (first["new"], first["again"]):
        assert each["load"]["write"]["ios"] == 40
        assert figures.delta(each, "ssd", "f") >= 40
        assert 300 < figures.iops(each) < 1000
    assert run.known()["phases"] == first
    assert run.measure()["phases"] == first
