# SPDX-License-Identifier: GPL-2.0-or-later
"""Policy x trace x size: what ours misses, and what the policy of the paper does; disk time and smq's.

    cd tests; python3 -m policies.compare [TRACE...]      (make check-policies)
"""
import fcntl
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import disktime, traces

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
BUILD = TOP / "build/policies"
KERNEL = TOP / "dm-hybrid"
POLICIES = ("c2q", "s3fifo", "sieve", "arc", "lru", "fifo")
PERCENTS = (1, 10, 25)
POINT = 1.0


def compile_to(program, sources, *command):
    """Tests beside each other begin with this: one builds, none finds half a program."""
    target = BUILD / program
    with open(BUILD / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        depends = [*sources, *KERNEL.glob("*/*.h")]
        if not target.exists() or any(s.stat().st_mtime >= target.stat().st_mtime for s in depends):
            subprocess.run([*command, "-O2", "-Wall", "-Wextra", "-Werror", "-o", target, *sources], check=True)


def build():
    BUILD.mkdir(parents=True, exist_ok=True)
    compile_to("ours", [HERE / "ours.c", KERNEL / "core/map.c", *KERNEL.glob("policy/*.c"),
                        TOP / "userspace/lib/policy-registry.c"],
               "cc", "-std=gnu11", "-Wno-unused-parameter", "-Wno-sign-compare",
               f"-I{TOP}/userspace/kernel-shim", f"-I{KERNEL}/core")
    compile_to("reference", [HERE / "reference.cc"], "c++")


@dataclass
class Row:
    policy: str
    trace: str
    percent: int
    ours: float
    reference: float
    in_sets: float | None = None	# the paper's, the cache divided as ours; where that matters

    @property
    def off(self):
        return self.ours - self.reference

    @property
    def verdict(self):
        if abs(self.off) <= POINT:
            return "ok"
        return "sets" if abs(self.ours - self.in_sets) <= POINT else "off"

    def __str__(self):
        text = (f"{self.policy:7} {self.trace:14} {self.percent:3} % {self.ours:7.2f} {self.reference:9.2f} "
                f"{self.off:+10.2f}  {self.verdict}")
        return text if self.verdict == "ok" else f"{text}: in the same sets {self.in_sets:.2f}"


HEADER = f"{'policy':7} {'trace':14} {'cache':>5} {'ours':>7} {'reference':>9} {'difference':>10}"


def run(program, *args, trace):
    with open(trace, "rb") as f:
        return subprocess.run([BUILD / program, *map(str, args)], stdin=f, check=True,
                              capture_output=True).stdout


def rows(name):
    blocks = traces.load(name)
    footprint = len(set(blocks))
    with tempfile.TemporaryDirectory() as directory:
        trace, divided = Path(directory) / "trace", Path(directory) / "divided"
        trace.write_bytes(blocks.tobytes())
        for percent in PERCENTS:
            size = max(footprint * percent // 100, 1)
            divided.write_bytes(run("ours", "sets", size, trace=trace))
            for policy in POLICIES:
                sets, each, misses, _ = map(int, run("ours", policy, size, trace=trace).split())
                row = Row(policy, name, percent, 100 * misses / len(blocks),
                          100 * int(run("reference", policy, sets * each, 1, trace=trace)) / len(blocks))
                if abs(row.off) > POINT:
                    row.in_sets = 100 * int(run("reference", policy, each, sets, trace=divided)) / len(blocks)
                yield row


def main(names):
    build()
    print(HEADER)
    bad = 0
    for name in names or [*traces.MADE, *traces.recorded()]:
        for row in rows(name):
            print(row, flush=True)
            bad += row.verdict == "off"
    if not names:
        print(f"\n{disktime.HEADER}")
        for row in disktime.rows():
            print(row, flush=True)
            # The others show how far what was measured then can be compared.
            bad += row.verdict == "off" and row.policy == disktime.DEFAULT
    if not traces.recorded():
        print("TRACES= names no directory with recorded traces: these are made up ones")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
