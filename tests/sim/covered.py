#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""covered.py [FILE ...]: how much of the pure files the unit tests and the simulator reach.

Prints lines and branches of each file; of the FILEs named, what was never reached.
What the shim's locks assert is left out.
"""

import collections
import functools
import json
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[1]
SIM = TOP / "build/sim-coverage"
UNIT = TOP / "build/unit-coverage"
FLAGS = "-O0 -g --coverage"
OPTIONS = ([], ["--faults"], ["--events"], ["--faults", "--events"], ["--demand-fill"], ["--alloc-faults"],
           ["--faults", "--collisions"], ["--faults", "--nowait"])
RUNS = [
    *(["--mode", "A", "--seed", "1", "--count", "400", *options] for options in OPTIONS),
    *(["--mode", "B", "--seed", "1", "--count", "15", *options] for options in OPTIONS),
    ["--mode", "C", "--length", "2"],
    ["--loop", "alloc", "--seed", "1", "--count", "5"],
    ["--loop", "io", "--seed", "1", "--count", "5"],
]


def execute():
    for build in (SIM, UNIT):
        for old in build.rglob("*.gcda"):
            old.unlink()
    subprocess.run(["make", "-s", "-C", HERE, f"BUILD={SIM}", f"VARIANT_CFLAGS={FLAGS}",
                    SIM / "sim"], check=True)
    subprocess.run(["make", "-s", "-C", HERE.parent / "unit", f"BUILD={UNIT}", f"OPT={FLAGS}",
                    "SANITIZE=", "CC=gcc", "check"], check=True, stdout=subprocess.DEVNULL)
    for args in RUNS:
        print("sim", *args, flush=True)
        subprocess.run([SIM / "sim", *args], check=True, stdout=subprocess.DEVNULL)


@functools.cache
def locks(path):
    return {n for n, text in enumerate(path.read_text().splitlines(), 1)
            if re.search(r"\bspin_(un)?lock", text)}


def collect():
    """Times each line, and each branch of it, was passed: by file."""
    lines = collections.defaultdict(collections.Counter)
    branches = collections.defaultdict(collections.Counter)
    for data in (*SIM.rglob("*.gcda"), *UNIT.rglob("*.gcda")):
        text = subprocess.run(["gcov", "--json-format", "--branch-probabilities", "--stdout", data],
                              check=True, capture_output=True, text=True, cwd=HERE).stdout
        for file in json.loads(text)["files"]:
            path = pathlib.Path(os.path.normpath(HERE / file["file"]))
            if path.parent != TOP / "dm-hybrid":
                continue
            for line in file["lines"]:
                lines[path.name][line["line_number"]] += line["count"]
                if line["line_number"] in locks(path):
                    continue
                for i, branch in enumerate(line["branches"]):
                    branches[path.name][line["line_number"], i] += branch["count"]
    return lines, branches


def percent(counter):
    hit = sum(1 for count in counter.values() if count)
    return f"{hit:5}/{len(counter):<5}{100 * hit / max(1, len(counter)):6.1f} %"


def missed(name, lines, branches):
    source = (TOP / "dm-hybrid" / name).read_text().splitlines()
    half = {line for (line, _), count in branches.items() if not count and lines[line]}
    for line in sorted({line for line, count in lines.items() if not count} | half):
        print(f"{name}:{line}: {'one way only' if lines[line] else 'never':12} {source[line - 1]}")


def main():
    execute()
    lines, branches = collect()
    print(f"{'':24}{'lines':>14}{'branches':>21}")
    for name in sorted(lines):
        print(f"{name:24}{percent(lines[name])}   {percent(branches[name])}")
    total = [collections.Counter({(n, k): v for n in c for k, v in c[n].items()})
             for c in (lines, branches)]
    print(f"{'all':24}{percent(total[0])}   {percent(total[1])}")
    for name in sys.argv[1:]:
        missed(name, lines[name], branches[name])


if __name__ == "__main__":
    main()
