# SPDX-License-Identifier: GPL-2.0-or-later
"""The corruption matrix: what check says of every field and every block, damaged in every way.

matrix.txt is written by `build/fuzz-replay/replay --matrix`, which ends with 1 where check and
the module do not agree. A verdict that changes is a line of its diff.
"""
import difflib
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
BUILD = TOP / "build/fuzz"


def test_matrix():
    BUILD.mkdir(parents=True, exist_ok=True)
    subprocess.run(["flock", BUILD / ".lock", "make", "-s", "-C", TOP / "tests/fuzz", "replay"],
                   check=True)
    r = subprocess.run([TOP / "build/fuzz-replay/replay", "--matrix"], capture_output=True, text=True)
    expected = (Path(__file__).parent / "matrix.txt").read_text()
    changes = "\n".join(difflib.unified_diff(expected.splitlines(), r.stdout.splitlines(),
                                             lineterm="", n=0))
    assert not changes, f"other verdicts:\n{changes}"
    assert r.returncode == 0, "check and the module disagree"
