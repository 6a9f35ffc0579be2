#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""scale.py BUILD [GIB:BLOCK-KIB ...]: what the engine costs at sizes that nobody has at hand.

Drives the pure files over the metadata of a full cache device that are made up as they are
read (scale.c), with an origin of 100 TiB. Prints a table in Markdown.
"""
import json
import subprocess
import sys
from pathlib import Path

ORIGIN = 100 << 10	# GiB
# The second: what `hybridctl create` takes with 64 GiB of memory.
SIZES = ["1024:64", "16384:512", "16384:64"]
META = 4096
SWEEPS = 4	# of a drain; all of them: a large number
DIRTY = {"0.1 %": "1", "10 %": "100", "70 %": "700"}


def measure(build: Path, gib: int, block: int, origin: int = ORIGIN,
            sweeps: int = SWEEPS) -> dict[str, dict]:
    """The phases by name."""
    out = subprocess.run([build / "scale", str(gib), str(block), str(origin), str(sweeps)],
                         check=True, capture_output=True, text=True).stdout
    return {phase["phase"]: phase for phase in map(json.loads, out.splitlines())}


def size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.0f} {unit}" if number >= 100 else f"{number:.3g} {unit}"
        number /= 1024


def seconds(number: float) -> str:
    return f"{number:.3g} s" if number >= 1 else f"{number * 1e3:.2g} ms"


def activation(phase: dict) -> str:
    return f"{size(phase['read_bytes'])} in {phase['reads']:.0f} reads, {seconds(phase['cpu'])}"


def checkpoint(phase: dict) -> str:
    return (f"{size(phase['write_bytes'] - phase['journal_bytes'])}, "
            f"{seconds(phase['step_cpu'])}, {seconds(phase['longest_step'])}")


def sweeps(p: dict[str, dict], per_mille: str) -> str:
    """Of the drain of all that is dirty, by what the first few sweeps took."""
    phase = p[f"writeback-{per_mille}"]
    moved = phase["made_dirty"] - phase["dirty"]
    done = phase["sweeps"] - bool(phase["dirty"])	# the last one's windows are still there
    nr = max(1, round(done * phase["made_dirty"] / moved))
    return (f"{seconds(phase['sweep_cpu'])}, {seconds(phase['longest_slice'])} a slice, "
            f"{nr} for all of it, {size(phase['origin_gap'])} apart, {phase['origin_back']} back")


def rows(p: dict[str, dict]) -> dict[str, str]:
    clean, fill, forced, hits = p["clean"], p["fill"], p["forced"], p["hits"]
    alone = p["singles"]["journal_bytes"] / p["singles"]["user_writes"]
    return {
        "cache blocks": f"{clean['blocks'] / 1e6:.3g} million",
        "memory": f"{size(clean['ram'])}, {clean['ram'] / clean['blocks']:.1f} B a block",
        "activation, empty": activation(p["empty"]),
        "activation, full and clean": activation(clean),
        "activation, full, after a cut": activation(p["cut"]),
        "... and its checkpoint": size(p["cut"]["write_bytes"]),
        "read hit: all over, on 64 blocks": " / ".join(
            f"{hits[key] / hits['hits'] * 1e9:.0f} ns" for key in ("cpu", "near_cpu")),
        "journal": size(fill["journal_blocks"] * META),
        "journal a write of 4 KiB: alone, in 64, in 4096": " / ".join(
            f"{p[n]['journal_bytes'] / p[n]['user_writes']:.0f} B"
            for n in ("singles", "groups", "fill")),
        "writes until a checkpoint: alone, in 4096":
            f"{fill['journal_blocks'] * META / 2 / alone:.0f} / {forced['user_writes']:.0f}",
        "checkpoint after 256 writes": checkpoint(p["checkpoint-few"]),
        "checkpoint that the journal forces": checkpoint(forced),
        "checkpoint of everything": checkpoint(p["checkpoint-all"]),
        **{f"sweep, {name} dirty": sweeps(p, n) for name, n in DIRTY.items()},
        "idle, a second": seconds(p["idle"]["cpu"]),
        "deleting the volume": seconds(p["delete"]["all_cpu"]),
    }


def main(build: Path, sizes: list[str]) -> int:
    columns = []
    for where in sizes:
        gib, block = map(int, where.split(":"))
        print(f"{gib} GiB, blocks of {block} KiB ...", file=sys.stderr)
        columns.append((f"{size(gib << 30).replace('1024 GiB', '1 TiB')}, {block} KiB",
                        rows(measure(build, gib, block))))
    print("| cache, block |", " | ".join(name for name, _ in columns), "|")
    print("|---" * (len(columns) + 1) + "|")
    for row in columns[0][1]:
        print(f"| {row} |", " | ".join(column[row] for _, column in columns), "|")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:] or SIZES))
