# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine in userspace keeps what it is told, over a crash and a drain."""
import pytest
from check.pools import HEAD, Pool


@pytest.mark.parametrize("block", [8, 128, 2048])
def test_a_crash_keeps_what_was_flushed_and_a_drain_brings_it_to_the_origin(build, tmp_path, block):
    pool = Pool(build, tmp_path / "pool", block=block, origins=2)
    pool.write((0, 0, 16, 1), (0, 1000, 300, 2), (1, 4000, 64, 3), (0, 1016, 24, 4))
    assert pool.on_origin(0) != pool.want[0] and pool.on_origin(1) != pool.want[1]
    assert pool.opened("read 0 1012 12").split() == 4 * ["2"] + 8 * ["4"]
    pool.opened("drain", "close 0", "close 1", "stop")
    for n in range(2):
        assert pool.on_origin(n) == pool.want[n]


@pytest.mark.parametrize("interrupted", [False, True])
def test_neighbouring_bad_pieces_are_one(build, tmp_path, interrupted):
    """Each 4 KiB had a node of its own; and after an interruption all of them were tried."""
    pool = Pool(build, tmp_path / "pool")
    bad = HEAD + 64
    out = pool.opened("write 0 0 256 1", "flush 0", *["interrupt"] * interrupted, "begin-drain", "idle 50",
                      f"bad 0 {bad + 100}", f"bad 0 {bad - 1}",
                      bad=f"write {pool.origins[0]} {bad} {bad + 512}")
    assert out.splitlines() == ["none" if interrupted else f"{bad} 192 of 192", "none"]
