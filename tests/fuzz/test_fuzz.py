# SPDX-License-Identifier: GPL-2.0-or-later
"""Hostile input: each target for a while, and all that ever made one fail."""
import subprocess
import sys
from pathlib import Path

import pytest

from . import run

HERE = Path(__file__).resolve().parent
REGRESSIONS = sorted((HERE / "regressions").iterdir())
# Some seconds each; always the same ones.
RUNS = {"superblock": 150_000, "load": 4000, "check": 2000, "dump": 800, "restore": 15_000,
        "repair": 1200, "table": 80_000, "status": 40_000, "message": 800, "trace": 4000}


def make(target: str) -> None:
    """One at a time: the tests run beside each other."""
    run.BUILD.mkdir(parents=True, exist_ok=True)
    r = subprocess.run(["flock", run.BUILD / ".lock", "make", "-s", "-C", HERE, target],
                       capture_output=True, text=True)
    if r.returncode:
        pytest.fail(r.stdout + r.stderr, pytrace=False)


@pytest.fixture(scope="session")
def replay():
    make("replay")
    return run.REPLAY


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda p: p.name)
def test_regression(replay, path):
    """Without sanitizers; the targets get them all as seeds."""
    target = "check" if path.suffix == ".change" else path.suffix[1:]
    r = subprocess.run([replay, target, path], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr


@pytest.mark.parametrize("target", run.targets())
def test_target(replay, target):
    make("fuzzers")
    r = subprocess.run([sys.executable, HERE / "run.py", "--runs", str(RUNS[target]), target],
                       capture_output=True, text=True)
    if r.returncode:
        pytest.fail(r.stdout + r.stderr, pytrace=False)
    print(r.stdout)


def test_changes_are_read_back(replay):
    """An input as text is the same input."""
    for path in (p for p in REGRESSIONS if p.suffix == ".change"):
        lines = [line.split() for line in path.read_text().splitlines() if line[0] != "#"]
        r = subprocess.run([replay, "--text", path], capture_output=True, text=True, check=True)
        words = [line.split() for line in r.stdout.splitlines()]
        assert [w[:2] for w in words] == [w[:2] for w in lines]
        assert [[int(x, 0) for x in w[2:]] for w in words] == \
               [[int(x, 0) for x in w[2:]] for w in lines]
