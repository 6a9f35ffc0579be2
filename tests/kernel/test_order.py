# SPDX-License-Identifier: GPL-2.0-or-later
"""The order of device operations: what reaches which member before what.

Final bytes look right even where an unlucky cut would lose data; the order does not.
"""
import pytest

from .stack import DATA_SECTOR, MODES, io

CUTOFF = ("--cutoff", "0")
WINDOWS_AT_A_TIME = 32


@pytest.fixture
def stack(make_stack):
    return make_stack(volatile="ssd hdd")


def quiet(stack):
    """Let a second's records and their origin flushes be behind us."""
    stack.guest.run("sleep 2.5")


def area(stack, op):
    """What an operation is about."""
    if op.op == "F":
        return "flush"
    last = stack.disk(op.device[1:]).sectors
    if op.device == "vhdd":
        return "super" if op.sector < DATA_SECTOR or op.sector >= last - 2048 else "data"
    return "data" if op.sector >= stack.data_start else "meta"


def story(stack, *steps, dev="/dev/mapper/vol"):
    """The arrivals at both members during some I/O, in words; and all records."""
    stack.data_start = stack.disk("ssd").sectors - 2048 - \
        stack.status("pool")["blocks"] * stack.status("pool")["block_sectors"]
    # The data area is aligned to 1 MiB: what is left over lies behind it.
    stack.data_start -= stack.data_start % 2048
    # What nobody waits for shall not come in between.
    stack.message("set", "commit_interval", 60000, name="pool")
    said = []
    ops = stack.logged(lambda: said.extend(io(stack.guest, dev, *steps)))
    words = [f"{op.device[1:]} {'' if op.op == 'F' else op.op + ' '}{area(stack, op)}"
             f"{' fua' if op.fua and op.op != 'F' else ''}" for op in ops if op.event == "S"]
    return words, ops, said


@pytest.mark.kernels
def test_write_and_fsync_in_writeback(stack):
    """Data, then one journal write; the origin is left alone."""
    dev = stack.create("vol", "--mode", "writeback", *CUTOFF)
    io(stack.guest, dev, "w:4096:8:x", "f")	# the origin is marked dirty from here on
    words, ops, _ = story(stack, "w:0:8:a", "f")
    assert words == ["ssd W data", "ssd flush", "ssd W meta fua"]
    # Each began after the one before had ended.
    assert [op.event for op in ops] == ["S", "E"] * 3


@pytest.mark.kernels
def test_fua_write_in_writeback(stack):
    dev = stack.create("vol", "--mode", "writeback", *CUTOFF)
    io(stack.guest, dev, "w:4096:8:x", "f")
    before = stack.status("pool")
    words, _, _ = story(stack, "W:0:8:a")
    # Data and intent, each with FUA.  O_DSYNC may add a flush of its own.
    assert sorted(words[:2]) == ["ssd W data fua", "ssd W meta fua"]
    assert not [w for w in words[2:] if w != "ssd flush"]
    after = stack.status("pool")
    assert after["intent_writes"] == before["intent_writes"] + 1
    assert after["journal_writes"] == before["journal_writes"]


def test_first_dirty_write_marks_the_origin_first(stack):
    stack.create("vol", "--mode", "writeback", *CUTOFF)
    words, ops, _ = story(stack, "w:0:8:a")
    assert words == ["hdd W super fua", "hdd W super fua", "ssd W data"]
    assert [op.event for op in ops] == ["S", "E"] * 3


def test_rewriting_dirty_data_changes_no_metadata(stack):
    dev = stack.create("vol", "--mode", "writeback", *CUTOFF)
    io(stack.guest, dev, "w:0:8:a", "f")
    # As story() does, which then has nothing to record
    stack.message("set", "commit_interval", 60000, name="pool")
    before = stack.status("pool")
    words, _, _ = story(stack, "w:0:8:b", "f", "w:2:1:c", "f")
    assert words == ["ssd W data", "ssd flush"] * 2
    after = stack.status("pool")
    assert after["journal_writes"] == before["journal_writes"]
    assert after["metadata_writes"] == before["metadata_writes"]
    assert after["cache_flushes"] == before["cache_flushes"] + 2


def test_rewriting_dirty_data_with_fua_is_one_fua_write(stack):
    dev = stack.create("vol", "--mode", "writeback", *CUTOFF)
    io(stack.guest, dev, "w:0:8:a", "f", "t:0.1")
    words, _, _ = story(stack, "W:0:8:b")
    assert words[0] == "ssd W data fua"
    assert not [w for w in words if "meta" in w or "hdd" in w]


# A name, the steps that prepare a block, and the range of it that a FUA write covers.
SHAPES = {
    "a granule of nothing": ([], 0, 8),
    "a part of nothing": ([], 1, 3),
    "a granule of what is clean": (["r:{}:128"], 0, 8),
    "a part of what is clean": (["r:{}:128"], 1, 3),
    "a part of what was written": (["w:{}:8:p", "f"], 1, 3),
    "parts of what was written and of nothing": (["w:{}:8:p", "f"], 1, 12),
    "what was written, and nothing": (["w:{}:16:p", "f"], 0, 32),
    "parts of what was written, clean and nothing": (["r:{}:8", "w:{}:8:p", "f"], 3, 47),
}


@pytest.mark.parametrize("mode", MODES)
def test_fua_alone_makes_durable(stack, mode):
    """Whichever way a write goes: FUA where it ends, or a commit behind it. Then the power goes."""
    dev = stack.create("vol", "--mode", mode, *CUTOFF)
    io(stack.guest, dev, "w:8192:8:x", "f")	# in writeback: the origin is marked dirty
    starts = [1280 + 256 * n for n in range(len(SHAPES))]
    for start, (before, _, _) in zip(starts, SHAPES.values()):
        io(stack.guest, dev, *(step.format(start) for step in before))
    quiet(stack)
    for start, (name, (_, first, count)) in zip(starts, SHAPES.items()):
        words, ops, said = story(stack, f"u:{start + first}:{count}:a")
        assert not said
        data = [n for n, w in enumerate(words) if " W data" in w]
        assert data, (name, words)
        twice = {w.split()[0] for w in words if " W data" in w} == {"ssd", "hdd"} and \
            mode == "writethrough"
        for n in data:
            if words[n].endswith("fua") or (twice and words[n].startswith("ssd")):
                continue
            rest = words[n + 1:]
            assert words[n] == "ssd W data" and "ssd flush" in rest and \
                "ssd W meta fua" in rest[rest.index("ssd flush"):], (name, words)
    stack.guest.power_cut()
    stack.after_cut()
    for start, (name, (_, first, count)) in zip(starts, SHAPES.items()):
        assert io(stack.guest, dev, f"r:{start + first}:{count}") == ["a"], name


@pytest.mark.kernels
def test_fsync_in_writethrough_flushes_the_origin_alone(stack):
    dev = stack.create("vol", "--mode", "writethrough", *CUTOFF)
    io(stack.guest, dev, "w:4096:8:x", "f")
    words, _, _ = story(stack, *(f"{what}:{128 * n}:8:a" if what == "w" else what
                                 for n in range(20) for what in "wf"))
    assert words.count("hdd W data") == words.count("ssd W data") == 20
    assert words.count("hdd flush") == 20
    # Now and then what nobody waits for is recorded, but not for each fsync.
    assert words.count("ssd W meta fua") <= 4, words
    assert words[2] == "hdd flush"


@pytest.mark.parametrize("mode", ["writearound", "passthrough"])
def test_modes_that_bypass_never_touch_the_cache(stack, mode):
    stack.create("vol", "--mode", mode, *CUTOFF)
    words, _, _ = story(stack, "w:0:8:a", "f", "W:128:8:b")
    assert words[:3] == ["hdd W data", "hdd flush", "hdd W data fua"]
    assert not [w for w in words if w.startswith("ssd")]


@pytest.mark.parametrize("mode", ["writeback", "writethrough", "writearound"])
def test_write_to_clean_cached_data_waits_for_an_open_record(stack, mode):
    """J4: first the journal says that the two copies may differ, or that the granules are not valid."""
    dev = stack.create("vol", "--mode", mode, *CUTOFF)
    # A dirty mark and a filled block, recorded and its region closed.
    if mode == "writeback":
        io(stack.guest, dev, "w:8192:8:x")
    io(stack.guest, dev, "r:0:128")
    assert stack.status()["fills"] == 1
    quiet(stack)
    stack.wait("open_regions", 0, "pool")
    words, ops, _ = story(stack, "w:0:8:a", "w:8:8:b")
    data = {"writeback": ["ssd W data"], "writearound": ["hdd W data"],
            "writethrough": ["hdd W data", "ssd W data"]}[mode]
    meta = [n for n, w in enumerate(words) if w == "ssd W meta fua"]
    # The second write finds the region open; in writeback each has a record of its granules.
    assert len(meta) == (2 if mode == "writeback" else 1), words
    first = min(n for n, w in enumerate(words) if w in data)
    assert meta[0] < first, words
    record = next(op for op in ops if op.event == "S" and op.device == "vssd" and op.fua
                  and op.op == "W")
    ended = next(op.seq for op in ops if op.event == "E" and op.id == record.id)
    assert all(op.seq > ended for op in ops if op.event == "S" and op.op == "W"
               and area(stack, op) == "data")
    assert sorted(w for w in words if w.endswith("data")) == sorted(2 * data)


@pytest.mark.kernels
def test_read_hit_is_one_read(stack):
    dev = stack.create("vol", *CUTOFF)
    io(stack.guest, dev, "r:0:128")
    quiet(stack)
    words, _, _ = story(stack, "r:0:8", "r:64:64", "r:3:1")
    assert words == ["ssd R data"] * 3


def test_miss_fills_the_whole_block(stack):
    stack.create("vol", *CUTOFF)
    words, ops, _ = story(stack, "r:131:2")
    ops = [op for op in ops if op.event == "S"]
    assert words[:2] == ["hdd R data", "ssd W data"]
    assert (ops[0].sector, ops[0].count) == (DATA_SECTOR + 128, 128)
    assert ops[1].count == 128


@pytest.mark.kernels
def test_drain_is_sorted_and_merged(stack, rnd):
    """One pass over the origin, neighbours in one write, the origin complete after it."""
    dev = stack.create("vol", "--mode", "writeback", *CUTOFF)
    stack.message("set", "high_watermark", 95, name="pool")
    stack.message("set", "low_watermark", 95, name="pool")
    blocks = [*range(8), *range(16, 20), 40, *range(64, 320)]
    rnd.shuffle(blocks)
    io(stack.guest, dev, *(f"w:{128 * b}:128:{chr(97 + b % 26)}" for b in blocks), "f")
    assert stack.status()["dirty"] == len(blocks)
    ops = stack.logged(stack.drain)
    writes = [op for op in ops if op.event == "S" and op.device == "vhdd" and op.op == "W"
              and area_is_data(stack, op)]
    # Some windows are under way at a time, and the cache answers in any order.
    sectors = [op.sector for op in writes]
    ahead = max(abs(n - sorted(sectors).index(sector)) for n, sector in enumerate(sectors))
    assert ahead <= WINDOWS_AT_A_TIME, sectors
    assert sum(op.count for op in writes) == 128 * len(blocks)
    assert len(writes) <= len(blocks) // 3, [(op.sector, op.count) for op in writes]
    # Nothing is called clean before the origin has it.
    last = max(op.seq for op in ops if op.event == "E" and op.device == "vhdd"
               and op.op == "W" and area_is_data(stack, op))
    flush = [op.seq for op in ops if op.event == "S" and op.device == "vhdd" and op.op == "F"
             and op.seq > last]
    assert flush
    assert stack.status()["writebacks"] == len(blocks)
    raw = "/dev/mapper/vhdd"
    assert io(stack.guest, raw, *(f"r:{DATA_SECTOR + 128 * b}:128" for b in sorted(blocks))) == [
        chr(97 + b % 26) for b in sorted(blocks)]


def area_is_data(stack, op):
    return DATA_SECTOR <= op.sector < stack.disk("hdd").sectors - 2048


def test_drain_of_a_pool_takes_all_volumes(make_stack):
    s = make_stack(volatile="ssd hdd hdd2", ssd=32, hdd=32, hdd2=32)
    one = s.create("one", "--mode", "writeback", *CUTOFF)
    two = s.attach("two", "hdd2", "--mode", "writeback", *CUTOFF)
    io(s.guest, one, "w:0:300:a")
    io(s.guest, two, "w:77:300:b")
    s.message("drain", name="one")
    s.wait("dirty", 0, "one")
    assert s.status("two")["dirty"] == 3
    io(s.guest, one, "w:0:300:c")
    s.message("drain", name="pool")
    s.wait("dirty", 0, "pool")
    s.wait("draining", 0, "pool")
    assert io(s.guest, "/dev/mapper/vhdd", "r:2048:300") == ["c"]
    assert io(s.guest, "/dev/mapper/vhdd2", "r:2124:302") == ["0b0"]


def test_drain_cancel(make_stack):
    s = make_stack(volatile="ssd hdd")
    dev = s.create("one", "--mode", "writeback", *CUTOFF)
    io(s.guest, dev, "w:0:8:a", "f")
    s.guest.dm_message("vhdd", "fail", "write", "on")
    s.message("drain", name="one")
    assert s.status("one")["draining"] == 1
    s.message("drain_cancel", name="one")
    s.wait("draining", 0, "one")
    assert s.status("one")["dirty"] == 1
    s.guest.dm_message("vhdd", "fail", "write", "off")
    s.drain("one")
    assert io(s.guest, "/dev/mapper/vhdd", "r:2048:8") == ["a"]


def test_background_writeback_keeps_below_the_watermark(make_stack):
    s = make_stack(volatile="ssd hdd")
    dev = s.create("one", "--mode", "writeback", *CUTOFF)
    s.message("set", "low_watermark", 5, name="pool")
    s.message("set", "high_watermark", 10, name="pool")
    blocks = s.status("pool")["blocks"]
    io(s.guest, dev, *(f"w:{256 * n}:128:a" for n in range(blocks // 2)), "f")
    s.guest.run("sleep 1")
    for _ in range(50):
        if s.status("pool")["dirty"] * 100 <= 5 * blocks + 100:
            break
        s.guest.run("sleep 0.2")
    # Windows under way may bring it lower.
    dirty = s.status("pool")["dirty"]
    assert dirty * 100 <= 5 * blocks + 100, (dirty, blocks)
    assert io(s.guest, dev, *(f"r:{256 * n}:128" for n in range(blocks // 2))) == \
        ["a"] * (blocks // 2)
