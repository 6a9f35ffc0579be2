# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures: pools that tests copy and spoil."""
import subprocess

import pytest
from check.corrupt import Cache
from check.pools import Pool


@pytest.fixture
def tool(build, tmp_path):
    """tool(name, *args): a program in build/userspace."""
    return lambda name, *args: subprocess.run([build / name, *args], capture_output=True,
                                              text=True, cwd=tmp_path, timeout=60)


@pytest.fixture
def pool(build, tmp_path):
    """A pool of two volumes that crashed with dirty data of both."""
    pool = Pool(build, tmp_path / "pool", origins=2)
    pool.write((0, 0, 16, 1), (0, 1000, 304, 2), (1, 4000, 64, 3), (0, 1016, 24, 4),
               (1, 0, 1024, 5))
    return pool


@pytest.fixture(scope="session")
def crashed(build, tmp_path_factory) -> Pool:
    """Several sets, a journal with entries, dirty data of volume 0 and none of volume 1.

    A clean block was written again: its region is open.
    """
    pool = Pool(build, tmp_path_factory.mktemp("crashed") / "pool", block=8, origins=2)
    pool.write((0, 11000, 16, 1), end=("idle 5", "drain", "idle 20", "close 0", "close 1", "stop"))
    pool.write(*((0, 512 * n, 64, n) for n in range(20)))
    late = [(0, 40, 16, 7), (0, 4000, 16, 8), (0, 8000, 16, 9), (0, 11000, 8, 9)]
    pool.opened(*(line for w in late for line in ("write {} {} {} {}".format(*w), "flush 0")))
    for w in late:
        pool.note(*w)
    return pool


@pytest.fixture(scope="session")
def clean(crashed, tmp_path_factory) -> Pool:
    """The same, stopped; dirty data are still in the cache."""
    pool = crashed.copy(tmp_path_factory.mktemp("clean") / "pool")
    pool.opened("idle 20", "close 0", "close 1", "stop")
    return pool


@pytest.fixture(scope="session")
def intended(build, tmp_path_factory) -> Pool:
    """Crashed, with intents that no entry has passed; all but the last are known to be flushed."""
    pool = Pool(build, tmp_path_factory.mktemp("intended") / "pool", block=8)
    pool.opened(*(line for n in range(12) for line in (f"write 0 {800 * n} 8 {n + 1}", "flush 0")))
    assert len(Cache(pool.cache).intents()) > 2
    return pool
