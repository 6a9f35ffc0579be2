# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine in userspace keeps what it is told, over a crash and a drain."""
import pytest
from check.pools import Pool


@pytest.mark.parametrize("block", [8, 128, 2048])
def test_a_crash_keeps_what_was_flushed_and_a_drain_brings_it_to_the_origin(build, tmp_path, block):
    pool = Pool(build, tmp_path / "pool", block=block, origins=2)
    pool.write((0, 0, 16, 1), (0, 1000, 300, 2), (1, 4000, 64, 3), (0, 1016, 24, 4))
    assert pool.on_origin(0) != pool.want[0] and pool.on_origin(1) != pool.want[1]
    assert pool.opened("read 0 1012 12").split() == 4 * ["2"] + 8 * ["4"]
    pool.opened("drain", "close 0", "close 1", "stop")
    for n in range(2):
        assert pool.on_origin(n) == pool.want[n]
