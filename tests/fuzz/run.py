#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs fuzz targets, as many beside each other as there are CPUs; then a line for each.

    run.py --seconds 60 [TARGET...]     keeps what it learns in build/fuzz/corpus
    run.py --runs 5000 [TARGET...]      always the same runs, from the seeds alone

What makes a target fail stays in build/fuzz/crashes; a change to an image is shown as text.
"""
import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
BUILD = TOP / "build/fuzz"
REPLAY = TOP / "build/fuzz-replay/replay"
# Their input is a list of changes to an image; the others' is text, or a block.
IMAGES = ("load", "check", "dump", "repair")
TEXTS = ("restore", "table", "status", "message", "trace")
LONGEST = {"superblock": 4200, "restore": 12000, "table": 1200, "status": 2000, "message": 800, "trace": 1200}


def targets():
    """Those that the Makefile knows."""
    return re.search(r"^TARGETS := (.*)$", (HERE / "Makefile").read_text(), re.M)[1].split()


def words(directory: Path) -> Path:
    """A dictionary: every word that the documentation quotes, every key of a dump."""
    text = (TOP / "dm-hybrid/Documentation/dm-hybrid.rst").read_text()
    quoted = {w for part in re.findall(r"``([^`\n]+)``", text) for w in re.findall(r"[\w-]+", part)}
    dump = subprocess.run([REPLAY, "--dump", "small"], capture_output=True, text=True, check=True)
    quoted |= set(re.findall(r'"(\w+)":', dump.stdout))
    path = directory / "words"
    path.write_text("".join(f'"{w}"\n' for w in sorted(quoted)))
    return path


def seeds(target: str, directory: Path) -> Path:
    """What to begin with: one change of each field, and what once failed."""
    path = directory / f"{target}.seeds"
    path.mkdir()
    if target in IMAGES:
        subprocess.run([REPLAY, "--seeds", path, *sorted(HERE.glob("regressions/*.change"))], check=True)
    if target == "restore":
        for name, which in ("whole", ["small"]), ("brief", ["clean", "brief"]):
            with open(path / name, "w") as out:
                subprocess.run([REPLAY, "--dump", *which], stdout=out, check=True)
    for file in sorted([*HERE.glob(f"seeds/{target}/*"), *HERE.glob(f"regressions/*.{target}")]):
        shutil.copy(file, path)
    return path


def run(target: str, limit: str, directory: Path, corpus: Path):
    """(the line, whether nothing was found, all that was said)"""
    crashes = BUILD / "crashes"
    for d in (corpus, crashes):
        d.mkdir(parents=True, exist_ok=True)
    # 0: another one each time
    seed = f"-seed={int(limit.startswith('-runs'))}"
    command = [BUILD / target, limit, seed, "-rss_limit_mb=1024", "-malloc_limit_mb=64",
               f"-max_len={LONGEST.get(target, 400)}", "-print_final_stats=1",
               f"-artifact_prefix={crashes}/{target}-", corpus, seeds(target, directory)]
    if target in TEXTS:
        command.insert(1, f"-dict={words(directory)}")
    r = subprocess.run(command, capture_output=True, text=True, errors="replace",
                       env={**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=4"})
    text = r.stderr
    for crash in re.findall(r"Test unit written to (.*)", text):
        said = subprocess.run([REPLAY, "--text", crash], capture_output=True, text=True).stdout
        text += f"\n{crash}\n{said if target in IMAGES else Path(crash).read_bytes()!r}\n"
    count = re.search(r"number_of_executed_units: (\d+)", text)
    covered = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", text) or [("?",) * 3]
    edges = re.search(r"\((\d+) inline 8-bit counters\)", text)
    line = (f"{target}: executions={count[1] if count else '?'} coverage={covered[-1][0]}"
            f"/{edges[1] if edges else '?'} features={covered[-1][1]} corpus={covered[-1][2]} "
            f"crashes={int(r.returncode != 0)}")
    return line, r.returncode == 0, text


def main() -> int:
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=int, default=0)
    p.add_argument("--runs", type=int)
    p.add_argument("target", nargs="*")
    args = p.parse_args()
    limit = f"-runs={args.runs}" if args.runs else f"-max_total_time={args.seconds}"
    good = True
    with tempfile.TemporaryDirectory() as tmp, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        work = []
        for target in args.target or targets():
            directory = Path(tmp) / target
            directory.mkdir()
            corpus = directory / "corpus" if args.runs else BUILD / "corpus" / target
            work.append(pool.submit(run, target, limit, directory, corpus))
        for w in work:
            line, ok, text = w.result()
            if not ok:
                print(text, file=sys.stderr)
                good = False
            print(line, flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
