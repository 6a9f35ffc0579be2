# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds the C unit tests and runs each of their cases as a test of its own."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build"
# gcc's build has the sanitizers, clang's is the optimised one.
COMPILERS = {
    "gcc": {},
    "clang": {"CC": "clang", "OPT": "-O3", "SANITIZE": "", "BUILD": str(BUILD / "unit-clang")},
}


def cases():
    for source in sorted(HERE.glob("test_*.c")):
        for name in re.findall(r"cmocka_unit_test(?:_\w+)?\((\w+)", source.read_text()):
            yield source.stem, name


@pytest.fixture(scope="session", params=COMPILERS)
def results(request):
    """For each program, the outcome of each of its cases, and all it printed."""
    options = COMPILERS[request.param]
    if not shutil.which(options.get("CC", "cc")):
        pytest.skip(f"no {request.param}")
    directory = Path(options.get("BUILD", BUILD / "unit"))
    directory.mkdir(parents=True, exist_ok=True)
    make = subprocess.run(
        ["flock", directory / ".lock", "make", "-s", "-C", HERE,
         *(f"{k}={v}" for k, v in options.items())],
        capture_output=True, text=True)
    if make.returncode:
        pytest.fail(make.stdout + make.stderr, pytrace=False)
    done = {}

    def run(program):
        if program not in done:
            r = subprocess.run([directory / program], capture_output=True, text=True, timeout=300,
                               env={**os.environ, "CMOCKA_MESSAGE_OUTPUT": "stdout"})
            output = r.stdout + r.stderr
            passed = set(re.findall(r"^\[ +OK +\] (\w+)", output, re.M))
            done[program] = passed, r.returncode, output
        return done[program]
    return run


@pytest.mark.parametrize("program, case", cases(), ids=lambda x: x.removeprefix("test_"))
def test_case(results, program, case):
    passed, code, output = results(program)
    if case not in passed:
        pytest.fail(f"{case}: exit code {code}\n{output}", pytrace=False)


@pytest.mark.parametrize("program", sorted({p for p, _ in cases()}))
def test_program_ends_well(results, program):
    """The sanitizers, and what is not counted as a case."""
    _, code, output = results(program)
    assert code == 0, output
