#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""make bench: dm-hybrid and its peers on modelled devices, in virtual time.

Leaves build/bench/results.json, results.md and index.html, and a file for each run in
build/bench/runs. A run is repeated only if one of its files has changed.
"""
import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import figures  # noqa: E402
import machine  # noqa: E402
import report  # noqa: E402

KNOWN = HERE / "peers.json"
SCRIPTS = {p.stem for p in (HERE / "workloads").glob("*.sh")}
# The longest runs begin first, so that all CPUs end together.
LONG = ("activate", "mixed", "yabs", "oltp", "latency")


def plan(stacks: list[str], works: list[str], seed: int, quick: bool) -> list[tuple]:
    """(stack, workload, seed), in the order of their start."""
    runs = [(stack, work, seed + n) for work in works for script in [work.partition("@")[0]] for stack in stacks
            if stack in figures.ONLY.get(script, figures.STACKS) + figures.MORE
            for n in range(1 if quick else figures.SEEDS.get(script, 1))]
    return sorted(runs, key=lambda r: (r[1].partition("@")[0] not in LONG, r[1]))


def result(stack: str, work: str, seed: int, args) -> dict | None:
    run = machine.Run(stack, work, seed)
    found = None if args.again else run.known()
    return found or (None if args.report else run.measure())


def missing(stacks: list[str]) -> set[str]:
    """The stacks that cannot be had here; prints the reasons."""
    print("bench: building the files for the guests", file=sys.stderr, flush=True)
    machine.prepare()
    found = set()
    for kind, fetch in machine.FETCHED.items():
        if those := {s for s in stacks if s.split("-")[0] == kind}:
            try:
                fetch()
            except machine.Missing as e:
                found |= those
                print(f"bench: without {', '.join(sorted(those))}: {e}", file=sys.stderr)
    return found


def measure(runs: list[tuple], args) -> tuple[list[dict], list[str]]:
    """The results, and the failures; prints the progress."""
    results, failed, started = [], [], time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        waiting = {pool.submit(result, *r, args): r for r in runs}
        for n, done in enumerate(concurrent.futures.as_completed(waiting), 1):
            stack, work, seed = waiting[done]
            try:
                found = done.result()
            except machine.Failed as e:
                failed.append(f"{stack} {work} {seed}: {e}")
            else:
                results += [found] if found else []
            if not args.report:
                print(f"[{time.monotonic() - started:5.0f} s] {n}/{len(runs)} {work} on {stack}, seed "
                      f"{seed}{'' if not done.exception() else ': FAILED'}", file=sys.stderr, flush=True)
    return results, failed


def by_stack(results: list[dict]) -> figures.Runs:
    runs: figures.Runs = {}
    for r in sorted(results, key=lambda r: r["seed"]):
        runs.setdefault((r["stack"], r["work"]), []).append(r["phases"])
    return runs


def about(args) -> str:
    command = ["make bench" + ("-quick" if args.quick else ""),
             *(f'{name}="{v}"' for name, v in (("BENCH", args.works), ("STACKS", args.stacks)) if v),
             *([f"SEED={args.seed}"] if args.seed != 1 else [])]
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=HERE,
                            capture_output=True, text=True).stdout.strip()
    kernel, _ = machine.prepare()
    return (f"`{' '.join(command)}`, commit {commit or 'unknown'}, Linux {kernel.release}. Each stack runs "
            "in QEMU, in virtual time (an instruction takes a nanosecond), on models of a disk (7,200 rpm, "
            "2 GiB full stroke) and of a SATA SSD, unless the row says otherwise. The cache has 256 MiB. The same "
            f"files give the same figures on any machine. The limit is the SSD alone. Seed {args.seed}"
            + "".join(f"; {work}: the median of {n} seeds" for work, n in figures.SEEDS.items()
                      if not args.quick) + ".")


def words(text: str, known) -> list[str]:
    """The words of an option: of @known, or a workload at any hardware, as zipf@nvme-smr."""
    chosen = text.replace(",", " ").split()
    for word in chosen:
        script, _, hardware = word.partition("@")
        if word not in known and not (script in SCRIPTS and hardware in figures.HARDWARE):
            sys.exit(f"bench: no {word}; there are: {' '.join(known)}; after @: {' '.join(figures.HARDWARE)}")
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only the runs that the goals need")
    parser.add_argument("--works", default="", help=" ".join(figures.WORKS))
    parser.add_argument("--stacks", default="", help=" ".join(figures.STACKS + figures.MORE))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="repeat runs of unchanged files, too")
    parser.add_argument("--report", action="store_true", help="report earlier results, without a run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    works = words(args.works, figures.WORKS) or figures.WORKS
    stacks = words(args.stacks, figures.STACKS + figures.MORE)
    if not stacks:
        stacks = [figures.DISK, figures.LIMIT, figures.OURS] if args.quick else figures.STACKS
    without = missing(stacks)
    stacks = [s for s in stacks if s not in without]
    results, failed = measure(plan(stacks, works, args.seed, args.quick), args)
    runs = by_stack(results)
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    goals = figures.goals(runs, known)
    text = about(args)
    machine.OUT.joinpath("results.json").write_text(json.dumps(results, indent=1) + "\n")
    machine.OUT.joinpath("results.md").write_text(report.markdown(runs, goals, text))
    machine.OUT.joinpath("index.html").write_text(report.html(runs, goals, text))
    everything = args.seed == 1 and {*works} >= {*figures.WORKS} and {*stacks} >= {*figures.STACKS}
    if everything and not (failed or args.quick or args.report):
        KNOWN.write_text(json.dumps(figures.best_peers(runs), indent=1) + "\n")
    print(*failed, sep="\n", end="\n" if failed else "", file=sys.stderr)
    if args.works or args.stacks:
        print(*report.table(runs, figures.rows(works)), "", *report.latencies(runs), sep="\n")
    print(report.gate([g for g in goals if g.value is not None]))
    print(f"All results: {machine.OUT}/index.html, results.md, results.json")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
