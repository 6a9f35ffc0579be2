# SPDX-License-Identifier: GPL-2.0-or-later
"""The counters move as documented, and what is cached is what should be."""
import pytest

from .stack import io

ALL = ("--cutoff", "0")


def test_reads_and_writes(make_stack):
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback", *ALL)
    assert s.moved(lambda: io(s.guest, dev, "r:0:8")) == {
        "read_misses": 1, "fills": 1, "cached": 1}
    assert s.moved(lambda: io(s.guest, dev, "r:8:8", "r:64:64", "r:127:1")) == {"read_hits": 3}
    assert s.moved(lambda: io(s.guest, dev, "w:16:8:a")) == {
        "write_hits": 1, "dirty": 1, "dirty_sectors": 8}
    assert s.moved(lambda: io(s.guest, dev, "w:256:128:a")) == {
        "write_misses": 1, "dirty": 1, "cached": 1, "dirty_sectors": 128}
    assert s.moved(lambda: io(s.guest, dev, "w:256:1:b", "w:300:8:b")) == {"write_hits": 2}
    # Partly cached: the rest of the block is filled around what is dirty.
    assert s.moved(lambda: io(s.guest, dev, "w:512:8:c")) == {
        "write_misses": 1, "dirty": 1, "cached": 1, "dirty_sectors": 8}
    moved = s.moved(lambda: io(s.guest, dev, "r:512:128", "r:600:8"))
    assert moved["read_misses"] >= 1 and "dirty" not in moved
    assert s.moved(lambda: io(s.guest, dev, "f", "f"))["flushes"] == 2
    s.message("reset_counters")
    # Those are states, not counters. Hits have paid for the rest of the last window.
    assert {k: v for k, v in s.status().items() if v} == {
        "state": "running", "mode": "writeback", "dirty": 3, "cached": 6,
        "dirty_sectors": 144}


def test_whole_granules_never_fetch(make_stack):
    """The origin is not read for a write of whole granules, whatever its size and place."""
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", *ALL)

    def writes():
        assert s.moved(lambda: io(s.guest, dev, "w:0:8:a", "w:136:16:b", "w:1000:104:c")) == {
            "write_misses": 4, "dirty": 4, "cached": 4, "dirty_sectors": 128}
    ops = s.logged(writes)
    assert not [op for op in ops if op.op == "R"]
    assert io(s.guest, dev, "r:0:16", "r:128:32", "r:992:128") == ["a0", "0b0", "0c0"]
    s.drain()
    assert io(s.guest, "/dev/mapper/vhdd", "r:2048:16", "r:2176:32", "r:3040:128") == [
        "a0", "0b0", "0c0"]


def test_parts_of_granules_fill_the_block(make_stack):
    """One read of the block, and no write of the origin; what follows hits (J11)."""
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", *ALL)

    def writes():
        assert s.moved(lambda: io(s.guest, dev, "w:4096:1:d")) == {
            "write_misses": 1, "fills": 1, "dirty": 1, "cached": 1, "dirty_sectors": 8}
        assert s.moved(lambda: io(s.guest, dev, "w:4227:3:e")) == {
            "write_misses": 1, "fills": 1, "dirty": 1, "cached": 1, "dirty_sectors": 8}
        assert s.moved(lambda: io(s.guest, dev, "w:4097:2:h")) == {"write_hits": 1}
    ops = s.logged(writes)
    assert [(op.op, op.sector, op.count) for op in ops
            if op.event == "S" and op.device == "vhdd" and 2048 <= op.sector < 12000] == [
        ("R", 2048 + 4096, 128), ("R", 2048 + 4224, 128)]
    # Unaligned, with whole granules in the middle.
    io(s.guest, dev, "w:8193:30:f", "w:8200:8:g")
    assert io(s.guest, dev, "r:4096:4", "r:4224:8", "r:8192:40") == ["dh0", "0e0", "0fgf0"]
    s.drain()
    assert io(s.guest, "/dev/mapper/vhdd", "r:6144:4", "r:6272:8", "r:10240:40") == [
        "dh0", "0e0", "0fgf0"]


def test_fills_are_whole_blocks(make_stack):
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--block-size", "256k", *ALL)
    ops = s.logged(lambda: io(s.guest, dev, "r:1000:1"))
    reads = [op for op in ops if op.event == "S" and op.op == "R" and op.device == "vhdd"]
    assert [(op.sector, op.count) for op in reads] == [(2048 + 512, 512)]
    assert set(s.moved(lambda: io(s.guest, dev, "r:512:512"))) == {"read_hits"}


@pytest.mark.parametrize("mode", ["writearound", "passthrough"])
def test_bypass_by_mode(make_stack, mode):
    s = make_stack()
    dev = s.create("vol", "--mode", mode, *ALL)
    assert s.moved(lambda: io(s.guest, dev, "w:0:128:a")) == {
        "write_misses": 1, "bypass_mode": 1}
    read = {"read_misses": 1, "fills": 1, "cached": 1} if mode == "writearound" else \
        {"read_misses": 1, "bypass_mode": 1}
    assert s.moved(lambda: io(s.guest, dev, "r:0:128")) == read
    # A write drops what it touches.
    if mode == "writearound":
        assert s.moved(lambda: io(s.guest, dev, "w:0:8:b"))["write_hits"] == 1
        assert s.moved(lambda: io(s.guest, dev, "r:0:8", "r:8:8")).get("read_misses") == 1
        assert io(s.guest, dev, "r:0:16") == ["ba"]


def test_writethrough_keeps_nothing_dirty(make_stack):
    s = make_stack()
    dev = s.create("vol", *ALL)
    assert s.moved(lambda: io(s.guest, dev, "w:0:128:a")) == {"write_misses": 1, "cached": 1}
    assert s.moved(lambda: io(s.guest, dev, "w:0:128:b", "r:0:128")) == {
        "write_hits": 1, "read_hits": 1}
    assert io(s.guest, "/dev/test/hdd", "r:2048:128") == ["b"]


def test_sequential_cutoff(make_stack):
    """Beyond the cutoff a stream bypasses a full cache; another stream is not its business."""
    s = make_stack()
    dev = s.create("vol", "--cutoff", "128k")		# 256 sectors

    def kept(*steps):
        moved = s.moved(lambda: io(s.guest, dev, *steps))
        return moved.get("bypass_sequential", 0), len(steps) - moved.get("bypass_sequential", 0)

    pool = s.status("pool")
    there = [f"r:{128 * n}:128" for n in range(pool["blocks"] - 16 * pool["blocks"] // 512)]
    # A block of a window brings the others, as soon as hits have paid for that: hits, once they are there.
    moved = s.moved(lambda: io(s.guest, dev, *there[:100]))
    assert moved["fills"] == moved["cached"] == moved["read_misses"] + moved["read_hits"] == 100
    assert 25 <= moved["read_misses"] < 100
    io(s.guest, dev, *there[100:])
    # What is cached is a hit, in a stream or not.
    assert s.moved(lambda: io(s.guest, dev, *there[:100])) == {"read_hits": 100}
    s.message("checkpoint", name="pool")
    # From the last block of a window on: neither of the two has one beside it.
    assert kept(*[f"r:{110976 + 128 * n}:128" for n in range(10)]) == (8, 2)
    assert kept(*[f"w:{112640 + 128 * n}:128:a" for n in range(10)]) == (8, 2)
    assert kept(*[f"r:{115072 + 4096 * (n % 3) + 128 * (n // 3)}:128" for n in range(12)]) == (6, 6)


def test_run_that_does_not_fit(make_stack):
    """Parts of it stay, what is between is read ahead; and writes meanwhile are seen."""
    s = make_stack()
    dev = s.create("vol", "--cutoff", "64k")
    blocks = s.status("pool")["blocks"] * 5 // 4
    run = [f"r:{128 * n}:128" for n in range(blocks)]
    io(s.guest, dev, *run)
    again = s.moved(lambda: io(s.guest, dev, *run))
    assert again["read_hits"] > blocks // 2 and again["bypass_sequential"] > blocks // 10
    # Nothing changes any more, but for the beginning of each run.
    assert again.get("fills", 0) < 16
    # A granule ahead of each block that is read: in what is held, being read, or cached.
    steps = [step for n in range(blocks - 3)
             for step in (f"r:{128 * n}:8", f"w:{128 * (n + 2) + 8 * (n % 16)}:8:a", f"r:{128 * n}:128")]
    said = io(s.guest, dev, *steps)[1::2]
    wrong = [n for n, text in enumerate(said) if n >= 2 and "a" not in text]
    assert not wrong


def test_cutoff_zero_caches_everything(make_stack):
    s = make_stack()
    dev = s.create("vol", *ALL)
    steps = [f"r:{512 * n}:128" for n in range(30)]
    assert s.moved(lambda: io(s.guest, dev, *steps)) == {
        "read_misses": 30, "fills": 30, "cached": 30}
    assert s.moved(lambda: io(s.guest, dev, *steps)) == {"read_hits": 30}


def test_null_policy_caches_nothing(make_stack):
    s = make_stack()
    dev = s.create("vol", "--policy", "null", *ALL)
    assert s.moved(lambda: io(s.guest, dev, "r:0:8", "w:0:8:a", "r:0:8")) == {
        "read_misses": 2, "write_misses": 1, "bypass_policy": 3}


@pytest.mark.parametrize("policy", ["lru", "fifo", "c2q", "s3fifo", "sieve", "arc"])
def test_evictions(make_stack, policy):
    """A cache that is full goes on; but for FIFO all keep what is read again and again."""
    s = make_stack(ssd=32, hdd=256)
    dev = s.create("vol", "--policy", policy, *ALL)
    blocks = s.status("pool")["blocks"]
    more = 300		# the first blocks must be gone long before the end
    steps = [step for n in range(1, blocks + more + 1)
             for step in (f"r:{512 * n}:8", *["r:0:8"] * (n % 50 == 0))]
    io(s.guest, dev, *steps)
    pool, status = s.status("pool"), s.status()
    assert pool["evictions"] >= more - status["bypass_full"]
    assert pool["used"] <= blocks and pool["used"] + pool["free"] <= blocks
    assert status["read_hits"] + status["read_misses"] == len(steps)
    assert status["bypass_full"] < more / 4	# reads faster than records are written
    again = len(steps) - blocks - more - 1	# reads of block 0 but the first
    assert (status["read_hits"] == again) == (policy != "fifo"), (status, again)


def test_discard_and_flush_are_counted(make_stack):
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", *ALL)
    io(s.guest, dev, "w:0:256:a", "f")
    moved = s.moved(lambda: io(s.guest, dev, "z:0:128"))
    assert moved["discards"] >= 1
    s.wait("dirty", 1)
    assert io(s.guest, dev, "r:0:128", "r:128:128") == ["0", "a"]


def test_pool_counters(make_stack):
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback", *ALL)
    before = s.status("pool")
    io(s.guest, dev, "w:0:8:a", "f", "w:1024:8:a", "f")
    after = s.status("pool")
    assert after["journal_writes"] == before["journal_writes"] + 2
    assert after["journal_records"] == before["journal_records"] + 2
    assert after["metadata_writes"] == before["metadata_writes"] + 2
    assert after["dirty"] == 2 and after["used"] == 2
    assert after["dirty_sectors"] == s.status()["dirty_sectors"] == 16
    s.message("checkpoint", name="pool")
    assert s.status("pool")["checkpoints"] == after["checkpoints"] + 1
    assert s.status("pool")["journal_used"] == 0
