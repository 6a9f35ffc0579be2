#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""bench.py BUILD [GIB]: what checking the metadata of a full cache device costs.

1 TiB at blocks of 64 KiB; the goals are 2 s of CPU and 256 MiB beside the map itself.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# oblock, valid, dirty, instance, hint, state: userspace/check/metadata.h
BYTES_PER_BLOCK = 8 + 8 + 8 + 4 + 1 + 1
MIB = 1 << 20


def measured(*argv) -> tuple[dict, float, float, int]:
    """What it printed, seconds of CPU and in all, and the peak of its memory in bytes."""
    start = time.monotonic()
    with subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, text=True) as p:
        out = p.stdout.read()
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
    return (json.loads(out), usage.ru_utime + usage.ru_stime, time.monotonic() - start,
            usage.ru_maxrss * 1024)


def main(build: Path, gib: int) -> int:
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as directory:
        image = Path(directory) / "cache"
        subprocess.run([build / "big-pool", image, str(gib << 10), "128", "128"], check=True)
        for options in ([], ["--fast"]):
            report, cpu, wall, peak = measured(build / "hybrid_check", "--json", *options, image)
            assert report["verdict"] == "recoverable", report
            blocks = report["pool"]["blocks"]
            beside = peak - (0 if options else blocks * BYTES_PER_BLOCK)
            print(f"check {' '.join(options):6} {gib} GiB, {blocks} blocks,"
                  f" {report['pool'].get('used', 0)} used,"
                  f" {report['pool'].get('journal_records', 0)} journal records:"
                  f" {cpu:.2f} s CPU, {wall:.2f} s, {beside / MIB:.0f} MiB beside the map"
                  f" ({peak / MIB:.0f} in all)")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1024))
