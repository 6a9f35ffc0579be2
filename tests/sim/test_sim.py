# SPDX-License-Identifier: GPL-2.0-or-later
"""A bounded run of the simulator that is the same each time.

Fixed seeds and counts, about 90 seconds of one core: a commit that fails here
broke something itself.  `make check-sim` draws fresh seeds and runs for longer.
"""

import pathlib
import re
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build"


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


@pytest.mark.parametrize("faults", [[], ["--faults"]], ids=["plain", "faults"])
@pytest.mark.parametrize("mode, count", [("A", 1500), ("B", 60)])
def test_swarm(sim, mode, count, faults):
    output = run(sim, "--mode", mode, "--seed", 1, "--count", count, *faults)
    assert counts(output)["seeds"] == count
    assert counts(output)["violations"] == 0
    assert counts(output)["crash_states"] > 5 * count


@pytest.mark.parametrize("what", ["alloc", "io"])
def test_loop(sim, what):
    """Each allocation, each request of 30 runs fails once; requests also for good."""
    output = run(sim, "--loop", what, "--seed", 1, "--count", 30)
    assert counts(output)["seeds"] == 30
    assert int(re.search(r"runs=(\d+)", output)[1]) > 30 * 300


@pytest.mark.parametrize("mode, count", [("A", 150), ("B", 4)])
def test_sanitizers(sim_asan, mode, count):
    run(sim_asan, "--mode", mode, "--seed", 5001, "--count", count, "--faults")


@pytest.mark.parametrize("faults", [[], ["--faults"]], ids=["plain", "faults"])
@pytest.mark.parametrize("mode", ["A", "B"])
def test_same_seed_same_hash(sim, mode, faults):
    args = ["--mode", mode, "--seed", 9001, "--count", "5", "--hash", *faults]
    first, second = (
        [line for line in run(sim, *args).splitlines() if line.startswith("seed=")]
        for _ in range(2)
    )
    assert len(set(first)) == 5
    assert first == second
