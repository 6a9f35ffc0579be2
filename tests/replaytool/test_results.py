# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures that can be found in another way, too."""
from collections import OrderedDict

import pytest

from . import traces

KIB = 1024
GOLDEN = 0x61C8864680B583EB


def only(result):
    assert len(result["caches"]) == 1
    return result["caches"][0]


@pytest.mark.parametrize("block", [256, 512, 1024])
def test_what_fits_misses_once(replay, block):
    """A cache larger than all that is touched: each block misses the first time; they are windows of their own."""
    reads = [(t, "R", s, n) for t, kind, s, n in traces.mixed(4000) if kind != "FF"]
    touched = {b for _, _, s, n in reads for b in range(s // (2 * block), (s + n - 1) // (2 * block) + 1)}
    pages = {b for _, _, s, n in reads for b in range(s // 8, (s + n - 1) // 8 + 1)}
    result = replay.json(traces.text(reads), "--size", "16g", "--block-size", f"{block}k", "--cutoff", "0")
    c = only(result)
    assert result["trace"]["footprint"] == len(pages) * 4096
    assert c["counters"]["read_misses"] == c["counters"]["fills"] == len(touched)
    assert c["ssd_pages_filled"] == len(touched) * block / 4
    assert c["counters"]["bypass_full"] == c["counters"]["evictions"] == 0


@pytest.mark.parametrize("block", [4, 16, 64])
def test_what_was_read_hits(replay, block):
    """The same, of small blocks: what is filled beside a miss does not miss, and nothing misses again."""
    reads = [(t, "R", s, n) for t, kind, s, n in traces.mixed(4000) if kind != "FF"]
    touched = {b for _, _, s, n in reads for b in range(s // (2 * block), (s + n - 1) // (2 * block) + 1)}
    again = reads + [(reads[-1][0] + t, *rest) for t, *rest in reads]
    once, twice = (only(replay.json(traces.text(r), "--size", "16g", "--block-size", f"{block}k", "--cutoff", "0"))
                   for r in (reads, again))
    assert once["counters"]["read_misses"] < len(touched) <= once["counters"]["fills"]
    assert once["ssd_pages_filled"] == once["counters"]["fills"] * block / 4
    assert twice["counters"]["read_misses"] == once["counters"]["read_misses"]
    assert twice["counters"]["bypass_full"] == 0


@pytest.mark.parametrize("block", [4, 16, 64])
def test_a_window_misses_once(replay, block):
    """Read side by side, all of a window is filled with its first block as soon as hits have paid for it."""
    windows, blocks = 40, 256 // block
    reads = list(traces.loop(windows * blocks, windows * blocks, unit=2 * block))
    c = only(replay.json(traces.text(reads), "--size", "400%", "--block-size", f"{block}k", "--cutoff", "0"))
    assert windows < c["counters"]["read_misses"] <= windows * 1.1
    assert c["counters"]["fills"] == c["counters"]["read_hits"] + c["counters"]["read_misses"] == len(reads)


class Sets:
    """The map's sets, each with an order of its own; a reserve stays free."""

    def __init__(self, blocks, moves):
        self.nr = blocks // 512
        self.sets = [OrderedDict() for _ in range(self.nr)]
        self.moves = moves
        self.hits = 0

    def access(self, page):
        key = page >> 6
        s = self.sets[((key * GOLDEN & (1 << 64) - 1) >> 32) * self.nr >> 32]
        if page in s:
            self.hits += 1
            if self.moves:
                s.move_to_end(page)
            return
        while len(s) > 512 - 16:
            s.popitem(last=False)
        s[page] = True


@pytest.mark.parametrize("policy", ["lru", "fifo"])
@pytest.mark.parametrize("sets", [1, 3])
def test_policies_hit_as_in_the_books(replay, policy, sets):
    """Exactly: with time between requests for all that the engine does in the background."""
    # Writes: nothing is filled beside them.
    requests = list(traces.zipf(6000, 4000, us=2_500_000, direction="W"))
    model = Sets(sets * 512, policy == "lru")
    for _, _, sector, _ in requests:
        model.access(sector // 8)
    c = only(replay.json(traces.text(requests), "--size", f"{sets * 2}m", "--block-size", "4k",
                         "--policy", policy))
    assert c["counters"]["write_hits"] == model.hits
    assert c["miss_ratio_requests"]["all"] == pytest.approx(1 - model.hits / 6000)


class Disk:
    def __init__(self):
        self.ends, self.ms, self.ops = [], 0.0, 0

    def op(self, sector, count):
        before = next((end for end in self.ends if 0 <= sector - end <= 512), None)
        self.ms += 8 if before is None else 0.5 + (sector - before) * 512 / 150e3
        self.ms += count * 512 / 150e3
        if before is not None:
            self.ends.remove(before)
        self.ends = [sector + count, *self.ends[:31]]
        self.ops += 1


@pytest.mark.parametrize("args", [["--policy", "null"], ["--mode", "passthrough"]])
def test_the_disk_alone(replay, args):
    """Where nothing is cached the disk does what it does without a cache, by the man page's model."""
    requests = [r for r in traces.mixed(3000) if r[1] != "FF"]
    disk = Disk()
    for _, _, sector, count in requests:
        disk.op(sector, count)
    result = replay.json(traces.text(requests), "--size", "10%", *args)
    assert result["trace"]["disk_operations"] == disk.ops
    assert result["trace"]["disk_ms"] == pytest.approx(disk.ms)
    c = only(result)
    assert (c["disk_operations"], c["disk_ms"]) == (disk.ops, pytest.approx(disk.ms))
    assert c["miss_ratio_requests"]["all"] == 1
    assert c["ssd_pages_filled"] == c["ssd_pages_written"] == 0


def test_every_write_reaches_the_disk(replay):
    """Writeback: as often as is left over after rewriting; what is dirty at the end counts, too."""
    requests = list(traces.zipf(5000, 2000, writes=1))
    c = only(replay.json(traces.text(requests), "--size", "400%", "--block-size", "4k", "--mode", "writeback"))
    assert c["ssd_pages_written"] == 5000
    assert c["counters"]["write_hits"] + c["counters"]["write_misses"] == 5000
    assert len({r[2] for r in requests}) <= c["counters"]["writebacks"] < 5000
    through = only(replay.json(traces.text(requests), "--size", "400%", "--block-size", "4k"))
    assert through["disk_operations"] == 5000 and through["counters"]["writebacks"] == 0


def test_devices_are_apart(replay):
    """The same sectors of two devices are different blocks of one cache."""
    requests = list(traces.apart(traces.loop(2000, 500)))
    text = "".join("{} {} {} {} {}\n".format(*r, f"8,{i % 2}") for i, r in enumerate(requests))
    one, two = (replay.json(t, "--size", "16m", "--block-size", "4k") for t in (traces.text(requests), text))
    assert two["trace"]["sources"] == 2 and two["trace"]["footprint"] == one["trace"]["footprint"]
    assert only(two)["counters"]["read_misses"] == 500
    doubled = "".join("{} {} {} {} d{}\n".format(*r, i // 500 % 2) for i, r in enumerate(requests))
    assert only(replay.json(doubled, "--size", "16m", "--block-size", "4k"))["counters"]["read_misses"] == 1000


def test_discards_forget(replay):
    text = "0 R 0 8\n5000000 R 0 8\n10000000 D 0 2048\n15000000 R 0 8\n"
    c = only(replay.json(text, "--size", "1m"))
    assert (c["counters"]["read_hits"], c["counters"]["read_misses"]) == (1, 2)


def test_without_time(replay):
    """A request a millisecond; nothing is said about life."""
    requests = [(0, *r[1:]) for r in traces.zipf(3000, 1000)]
    result = replay.json(traces.text(requests), "--size", "400%", "--block-size", "4k")
    assert result["trace"]["seconds"] == 0 and only(result)["life_years"] == 0
    assert only(result)["counters"]["bypass_full"] == 0


def test_life(replay):
    """Bytes written a day against what the SSD is rated for."""
    trace = traces.text(traces.zipf(2000, 500, writes=1, us=43_200_000))
    for args, rated in ((["--endurance", "10g"], 10 << 30), (["--endurance", "2dwpd"], None), ([], None)):
        result = replay.json(trace, "--size", "4m", "--mode", "writeback", *args)
        c = only(result)
        written = 4096 * (c["ssd_pages_filled"] + c["ssd_pages_written"] + c["ssd_pages_metadata"])
        daily = written / result["trace"]["seconds"] * 86400
        assert c["ssd_bytes_per_day"] == pytest.approx(daily)
        rated = rated or (2 if args else 0.3) * 5 * 365 * c["device_size"]
        assert c["life_years"] == pytest.approx(rated / daily / 365)


def test_memory_is_the_footprints_alone(replay, tmp_path):
    """Ten times the lines over the same blocks take no more memory."""
    for name, n in ("short", 30_000), ("long", 300_000):
        (tmp_path / name).write_text(traces.text(traces.loop(n, 20_000)))
    short, long = (replay.peak(name, "--block-size", "4k") for name in ("short", "long"))
    assert long < short + 2048


# ---- curves ------------------------------------------------------------------

def curve(replay, trace, sample):
    result = replay.json(trace, "--curve", "--sample", sample, "--mode", "writeback", "--policy", "lru",
                         "--block-size", "16k")
    return {c["size"]: c for c in result["caches"]}


@pytest.mark.parametrize("name", traces.CURVES)
def test_a_sample_is_near_the_whole(replay, name):
    """hybrid_replay(8) states the error.  Long runs are bypassed in the sample as in the whole."""
    trace = traces.text(traces.CURVES[name]())
    exact, small = (curve(replay, trace, sample) for sample in ("all", "512"))
    assert set(small) <= set(exact) and len(small) >= 12
    assert all(c["sampled"] < 1 for c in small.values())
    off = [abs(small[k]["miss_ratio_requests"]["all"] - exact[k]["miss_ratio_requests"]["all"])
           for k in small]
    print(name, "average", sum(off) / len(off), "worst", max(off))
    assert sum(off) / len(off) < 0.045 and max(off) < 0.12


def test_a_sample_of_all_is_exact(replay):
    trace = traces.text(traces.zipf(3000, 1000))
    result = replay.json(trace, "--curve", "--block-size", "16k", "--mode", "writeback")
    for c in result["caches"]:
        one = only(replay.json(trace, "--size", str(c["size"]), "--block-size", "16k", "--mode", "writeback"))
        assert one == c


def test_advice(replay):
    """A working set of 40 MiB of 1 GiB: the knee is found, and 90 % of the hits before it."""
    hot = list(traces.zipf(30_000, 10_000, skew=0))
    cold = [(t + 500, *r) for t, *r in traces.apart(traces.loop(4000, 4000, us=7500, start=1 << 17))]

    def advice(requests, *args):
        return replay.json(traces.text(sorted([*requests, *cold])), "--curve", "--block-size", *args)["advice"]

    fine, = advice(traces.apart(hot), "4k", "--sample", "all")["series"]
    assert 30 << 20 < fine["size_for_90_percent"] < 80 << 20
    assert 35 << 20 < fine["knee"] < 100 << 20
    assert fine["reachable_hit_ratio"] == pytest.approx(20_000 / 34_000, abs=0.02)
    # What is popular lies side by side: one miss fetches sixteen pages of it.
    dense = advice(hot, "4k,64k")
    assert dense["series"][dense["best"]]["block_size"] == 65536
