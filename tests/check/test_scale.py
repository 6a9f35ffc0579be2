# SPDX-License-Identifier: GPL-2.0-or-later
"""What grows with what: scale.py's measurements of a small cache, and only what is counted."""
import pytest
from check.scale import META, measure

GIB, BLOCK, ORIGIN = 2, 64, 4 << 10	# GiB, KiB, GiB
READ = 64	# metadata blocks in a large read; of leaves twice that


@pytest.fixture(scope="module")
def scale(build) -> dict[str, dict]:
    return measure(build, GIB, BLOCK, ORIGIN, sweeps=1000)


def large_reads(blocks: int) -> int:
    return int(-(-blocks // READ)) + 1


def test_memory_is_32_bytes_a_block(scale):
    clean = scale["clean"]
    assert clean["blocks"] > 32000
    assert clean["ram"] <= 32 * clean["blocks"]
    assert clean["ram"] - (1 << 20) < clean["resident"] < clean["ram"] + (4 << 20)


def test_activation_reads_in_large_pieces(scale):
    """The leaves, each where it stands now, the journal and the intents.

    One block each: two roots, the index, the volume table.
    """
    for phase in (scale["empty"], scale["clean"]):
        leaves = 0 if phase is scale["empty"] else phase["leaves"]
        few = 2 + phase["indexes"] + 1
        # The ends of the map and of the journal
        assert phase["small_reads"] <= few + 2
        assert phase["reads"] - few <= \
            large_reads(leaves / 2) + large_reads(phase["journal_blocks"]) + large_reads(phase["intent_blocks"])
        assert phase["read_bytes"] <= META * (leaves + phase["journal_blocks"] +
                                               phase["intent_blocks"] + few)
        # The volume table, its index, and the root of the new epoch
        assert phase["write_bytes"] == META * 3


def test_activation_does_not_grow_with_the_origin(build, scale):
    large = measure(build, GIB, BLOCK, 16 * ORIGIN)
    for phase in ("empty", "clean"):
        assert [scale[phase][k] for k in ("reads", "read_bytes", "writes", "ram")] == \
            [large[phase][k] for k in ("reads", "read_bytes", "writes", "ram")]


def test_recovery_reads_the_journal_in_large_pieces(scale):
    """An entry that a piece has the beginning of begins the next; changed leaves are written once."""
    fill, cut, clean = scale["fill"], scale["cut"], scale["clean"]
    assert fill["journal_used"] > fill["journal_blocks"] / 4
    assert cut["read_bytes"] - clean["read_bytes"] <= META * 2 * fill["journal_used"]
    assert cut["reads"] - clean["reads"] <= 2 * large_reads(fill["journal_used"])
    assert cut["write_bytes"] <= META * (cut["leaves"] + cut["indexes"] + 1)
    assert cut["dirty"] > 1000


def test_records_of_a_write(scale):
    """One that opens its region, unless it is open, and one that says what became dirty."""
    for phase in (scale["singles"], scale["groups"], scale["fill"]):
        assert phase["user_writes"] < phase["records"] + phase["user_writes"] / 3
        assert phase["records"] <= 2 * phase["user_writes"]
    assert scale["singles"]["journal_bytes"] <= 2 * META * scale["singles"]["user_writes"]
    # Many at the same time share their entries.
    assert scale["groups"]["journal_bytes"] <= 2 * META * scale["groups"]["user_writes"] / 64 * 2


def test_checkpoints_write_what_changed(scale):
    leaves, few = scale["clean"]["leaves"] + scale["clean"]["indexes"] + 1, scale["checkpoint-few"]
    # Of a set's four leaves those where a region was opened, or is closed now
    assert META < few["write_bytes"] < META * leaves / 3
    # All but those of the volume table that were never written
    assert scale["checkpoint-all"]["write_bytes"] > META * (leaves - 280)


@pytest.mark.parametrize("per_mille", [1, 100, 700])
def test_sweeps_gather_thousands_of_windows_in_order(scale, per_mille):
    writeback, blocks = scale[f"writeback-{per_mille}"], scale["clean"]["blocks"]
    dirty = writeback["made_dirty"]
    assert dirty == pytest.approx(blocks * per_mille / 1000, rel=0.5)
    assert writeback["dirty"] == 0 and writeback["origin_back"] == 0
    # One that finds what is still being written, and one that finds nothing
    assert writeback["sweeps"] <= 2 + dirty // 3000
    assert writeback["origin_bytes"] == dirty * (BLOCK << 10)
    # Neighbours together
    assert writeback["origin_writes"] < dirty or per_mille == 1
