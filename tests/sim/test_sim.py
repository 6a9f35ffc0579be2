# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs the simulator for a bounded time.

SIM_SECONDS is the budget of each part (default 20), SIM_SEED the first seed
(default: drawn anew; whatever fails is printed with its seed).
"""

import os
import pathlib
import random
import re
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build"
SECONDS = float(os.environ.get("SIM_SECONDS", "20"))
SEED = int(os.environ.get("SIM_SEED", random.randrange(1, 1 << 40)))


@pytest.fixture(scope="session")
def sim():
    subprocess.run(["make", "-s", "-C", str(HERE)], check=True)
    return BUILD / "sim" / "sim"


@pytest.fixture(scope="session")
def sim_asan():
    subprocess.run(["make", "-s", "-C", str(HERE), "asan"], check=True)
    return BUILD / "sim-asan" / "sim"


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
def test_pinned(sim, words):
    mode, seed, *options = words
    run(sim, "--mode", mode, "--seed", seed, *options)


@pytest.mark.parametrize("mode", ["A", "B"])
def test_swarm(sim, mode):
    output = run(sim, "--mode", mode, "--seed", SEED, "--time", SECONDS)
    assert counts(output)["violations"] == 0
    assert counts(output)["crash_states"] > 0


def test_faults(sim):
    run(sim, "--faults", "--seed", SEED, "--time", SECONDS)


@pytest.mark.parametrize("mode", ["A", "B"])
def test_sanitizers(sim_asan, mode):
    run(sim_asan, "--mode", mode, "--seed", SEED, "--time", SECONDS / 2)


@pytest.mark.parametrize("mode", ["A", "B"])
def test_same_seed_same_hash(sim, mode):
    args = ["--mode", mode, "--seed", SEED, "--count", "5", "--hash"]
    first, second = (
        [line for line in run(sim, *args).splitlines() if line.startswith("seed=")]
        for _ in range(2)
    )
    assert len(first) == 5
    assert first == second
