# SPDX-License-Identifier: GPL-2.0-or-later
"""Disk time a request, of hybrid_replay's model, against dm-cache's smq.

smq was measured once: an unmodified one, driven as dm-cache drives it, on the same model of a disk,
with the whole of CloudPhysics' w92. Of that trace the first hour is at hand. How far the two can be
compared is seen by what was measured of these policies then, without a cutoff: "then" below. With the
cutoff, lru in blocks of 4 KiB loses: long reads that the cache would have had again bypass it.
"""
import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import traces

REPLAY = Path(__file__).resolve().parents[2] / "build/userspace/hybrid_replay"
TRACE = "cp_w92_h1"
PERCENTS = (10, 25)
SMQ = {"64k": (3.03, 2.74), "256k": (2.91, 2.29)}
CUTOFFS = ("4m", "0")	# the default; none
DEFAULT = "c2q"
THEN = {(DEFAULT, "64k"): (1.70, 1.13), (DEFAULT, "16k"): (1.86, 1.21), ("lru", "4k"): (2.44, 1.93)}


@dataclass
class Row:
    policy: str
    block: str
    percent: int
    cutoff: str
    ours: float
    then: float
    smq: float		# at the better of its block sizes

    @property
    def verdict(self):
        return "ok" if self.ours <= self.smq else "off"

    def __str__(self):
        return (f"{self.policy:7} {TRACE:14} {self.percent:3} % {self.block:>5} {self.cutoff:>6} {self.ours:7.2f} {self.then:5.2f} "
                f"{self.smq:5.2f} {self.ours / self.smq:6.2f}  {self.verdict}")


HEADER = (f"{'policy':7} {'trace':14} {'cache':>5} {'block':>5} {'cutoff':>6} {'ours/ms':>7} {'then':>5} {'smq':>5} "
          f"{'ratio':>6}")


def in_pages(path, out):
    """Whole pages of 4 KiB, as what was measured counted; this old disk's partitions begin anywhere."""
    with open(out, "w") as f:
        for us, direction, sector, count in traces.lines(path):
            first, end = int(sector) // 8 * 8, (int(sector) + int(count) + 7) // 8 * 8
            f.write(f"{us} {direction} {first} {end - first}\n")


def replay(trace, policy, block, cutoff):
    """Disk time a request, for each of the sizes."""
    sizes = ",".join(f"{p}%" for p in PERCENTS)
    out = subprocess.run([REPLAY, trace, "--mode", "writeback", "--policy", policy, "--block-size", block,
                          "--cutoff", cutoff, "--size", sizes, "--json"], check=True, capture_output=True).stdout
    return [cache["disk_ms_per_request"] for cache in json.loads(out)["caches"]]


def rows():
    """None where the trace is not at hand."""
    path = traces.recorded().get(TRACE)
    if not path:
        return
    with tempfile.TemporaryDirectory() as directory:
        trace = Path(directory) / "trace"
        in_pages(path, trace)
        for (policy, block), then in THEN.items():
            for cutoff in CUTOFFS:
                for k, ms in enumerate(replay(trace, policy, block, cutoff)):
                    yield Row(policy, block, PERCENTS[k], cutoff, ms, then[k],
                              min(both[k] for both in SMQ.values()))
