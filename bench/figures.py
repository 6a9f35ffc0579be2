# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures from the raw counters of the runs, rows of the tables, and goals."""
import statistics
from typing import Callable, NamedTuple

OURS, DISK, LIMIT = "hybrid", "disk", "limit"
PEERS = ("dmcache-wb-64", "dmcache-wb-256", "dmcache-wt-64", "dmcache-wt-256", "bcache-wb",
         "bcache-wb-tuned", "writecache", "writeboost")
STACKS = (DISK, LIMIT, *PEERS, "hybrid-wt", OURS)
# Measured only when STACKS names them.
MORE = ("hybrid-wb-16", "hybrid-wb-64")
# One of each kind that caches reads.
RIVALS = ("dmcache-wb-64", "bcache-wb", "writeboost")
# Of reads alone: there the limit says nothing, and the mode is one more stack.
READS = (DISK, *PEERS, OURS, "hybrid-wt")
# Workloads that make sense on some stacks only, or that take long and have no peers.
ONLY = {"ascending": (DISK,), "activate": (OURS, "dmcache-wb-64", "writecache", "writeboost"),
        "memory": (OURS, *PEERS[:2], "writecache", "writeboost"),
        "zipf": READS, "uniform": READS, "zoned": READS, "cold": READS,
        "beside": (DISK, *PEERS, OURS), "neighbour": (OURS,),
        "warm": (*RIVALS, OURS), "moved": (DISK, *RIVALS, OURS), "stream": (DISK, *RIVALS, OURS)}
# The figures of these workloads depend on timing, so the median of more seeds counts.
SEEDS = {"boot": 5, "uniform": 3}

# <cache device>-<origin>: guest.sh has the models. Workloads run with the first unless @ names another.
CACHES = {"sata": "SATA SSD", "plp": "SSD with power-loss protection", "nofua": "SSD without FUA", "nvme": "NVMe"}
ORIGINS = {"disk": "disk", "smr": "SMR disk", "ssd": "SATA SSD as origin", "net": "network disk"}
HARDWARE = {f"{c}-{o}": f"{cache} and {origin}" for c, cache in CACHES.items() for o, origin in ORIGINS.items()}

Runs = dict[tuple[str, str], list[dict]]	# (stack, workload[@hardware]) -> phases, one for each seed


def delta(phase: dict, device: str, key: str) -> float:
    return phase[f"{device}1"].get(key, 0) - phase[f"{device}0"].get(key, 0)


def iops(phase: dict) -> float:
    load = phase["load"]
    return (load["read"]["ios"] + load["write"]["ios"]) * 1e9 / load["ns"]


def written(phase: dict) -> float:
    """SSD sectors written for each sector written by the user."""
    return delta(phase, "ssd", "ws") / phase["load"]["write"]["sectors"]


def flushes(device: str) -> Callable[[dict], float]:
    """Flushes of a device for each write."""
    return lambda phase: delta(phase, device, "f") / phase["load"]["write"]["ios"]


def instructions(phase: dict) -> float:
    return phase["load"]["ns"] / (phase["load"]["read"]["ios"] + phase["load"]["write"]["ios"])


def busy(phase: dict) -> float:
    return (phase["busy_ms"][1] - phase["busy_ms"][0]) / 1000


def clock(phase: dict) -> float:
    return phase["seconds"][1] - phase["seconds"][0]


def mib(phase: dict) -> float:
    return (phase["kib"][0] - phase["kib"][1]) / 1024


def waited(key: str, kind: str = "read") -> Callable[[dict], float]:
    """Latency of reads or writes, in milliseconds."""
    return lambda phase: phase["load"][kind][f"{key}_ns"] / 1e6


class Row(NamedTuple):
    """A line of the table: a figure of one phase of a workload."""
    text: str			# rows of one group have the same text before ": "
    work: str
    phase: str
    figure: Callable[[dict], float] = iops
    form: str = ",.0f"
    lower: bool = False		# less is better


# The hardware of the workload latency
MEASURED = ("sata-disk", "plp-disk", "nofua-disk", "nvme-disk", "nvme-smr", "nvme-ssd", "nvme-net")

ROWS = {
    "mixed": Row("random 75/25, 4k, laid out before: once", "mixed", "1"),
    "mixed3": Row("random 75/25, 4k, laid out before: third time", "mixed", "3"),
    "fsync": Row("fsync after each 4k random write: of new blocks", "fsync", "new"),
    "fsync-again": Row("fsync after each 4k random write: of dirty blocks", "fsync", "rewrite"),
    "fsync-plp": Row("fsync, SSD with power-loss protection: of new blocks", "fsync@plp-disk", "new"),
    "fsync-plp-again": Row("fsync, SSD with power-loss protection: of dirty blocks", "fsync@plp-disk", "rewrite"),
    "fsync-nofua": Row("fsync, SSD without FUA: of new blocks", "fsync@nofua-disk", "new"),
    "fsync-nofua-again": Row("fsync, SSD without FUA: of dirty blocks", "fsync@nofua-disk", "rewrite"),
    "files": Row("small files on ext4, fsync of each", "files", "files"),
    "groups": Row("16k random writes, fsync after each eighth", "groups", "new"),
    "boot1": Row("boot storm: cold", "boot", "1"),
    "boot2": Row("boot storm: second run", "boot", "2"),
    "uniform1": Row("uniform reads of the whole disk, cold: first 1,000", "uniform", "1"),
    "uniform2": Row("uniform reads of the whole disk, cold: next 1,000", "uniform", "2"),
    "uniform3": Row("uniform reads of the whole disk, cold: third 1,000", "uniform", "3"),
    "cold-ssd": Row("reads without a hit: of an SSD", "cold@sata-ssd", "cold"),
    "warm-ssd": Row("reads without a hit: of an SSD, 2,000 again", "cold@sata-ssd", "2"),
    "hits-ssd": Row("reads without a hit: of an SSD, the 2,000 a third time: hits", "cold@sata-ssd", "3"),
    "cold-net": Row("reads without a hit: of a network disk, 2 ms, queue of 64", "cold@sata-net", "cold"),
    "zipf1": Row("zipf 1.1 over 4x the cache: window 1", "zipf", "1"),
    "zipf3": Row("zipf 1.1 over 4x the cache: window 3", "zipf", "3"),
    "zoned1": Row("zoned 80/5: window 1", "zoned", "1"),
    "zoned3": Row("zoned 80/5: window 3", "zoned", "3"),
    **{f"warm-{reads}-{phase}": Row(f"zipf reads, {100 - reads} % writes before: {text}", "warm", f"{phase}-{reads}")
       for reads in (90, 70)
       for phase, text in (("before", "the cache as it is"), ("stopped", "after a clean stop"),
                           ("cut", "after a power cut"))},
    **{f"moved-{phase}-{window}": Row(f"popular 192 MiB: {text}, window {window}", "moved", f"{phase}-{window}")
       for phase, text in (("first", "empty cache"), ("other", "others, cache full"))
       for window in (1, 2, 3)},
    "stream-alone": Row("zipf reads, queue of 8: alone", "stream", "alone"),
    "stream-beside": Row("zipf reads, queue of 8: beside a stream of reads", "stream", "beside"),
    "reread1": Row("sequential read of 400 MiB: once", "reread", "1"),
    "reread2": Row("sequential read of 400 MiB: again", "reread", "2"),
    "yabs-4k": Row("YABS: 4k", "yabs", "4k"),
    "yabs-64k": Row("YABS: 64k", "yabs", "64k"),
    "yabs-512k": Row("YABS: 512k", "yabs", "512k"),
    "yabs-1m": Row("YABS: 1m", "yabs", "1m"),
    "oltp-data": Row("OLTP: data", "oltp", "data"),
    "oltp-log": Row("OLTP: log", "oltp", "log"),
    "pages": Row("OLTP: pages of 16k, no log", "pages", "pages"),
    "burst": Row("burst of 4k writes, queue of 32", "burst", "burst"),
    "overflow": Row("4k writes over 2,000 MiB, queue of 32: the first 12,000", "overflow", "begin"),
    "overflow-on": Row("4k writes over 2,000 MiB, queue of 32: the next 12,000", "overflow", "on"),
    **{f"{name}@{hardware}": Row(f"{HARDWARE[hardware]}: {text}", f"latency@{hardware}", phase)
       for hardware in MEASURED
       for name, text, phase in (("hits", "hits, queue of 32", "hits"),
                                 ("misses", "misses, queue of 4", "misses-alone"),
                                 ("fsyncs", "fsyncs", "fsyncs-alone"), ("burst", "burst of writes", "burst"))},
    "neighbour-alone": Row("4k writethrough to a fast origin: alone in the pool", "neighbour", "alone"),
    "neighbour": Row("4k writethrough to a fast origin: beside 128 writes to a disk", "neighbour",
                     "beside"),
}
COSTS = {
    "fsync-written": Row("SSD sectors per user sector: fsync", "fsync", "new", written, ".2f", True),
    "fsync-again-written": Row("SSD sectors per user sector: fsync of dirty blocks", "fsync",
                               "rewrite", written, ".2f", True),
    "burst-written": Row("SSD sectors per user sector: burst", "burst", "burst", written, ".2f", True),
    "fsync-flushes": Row("disk flushes per fsync", "fsync", "new", flushes("hdd"), ".2f", True),
    "fsync-nofua-flushes": Row("SSD flushes per fsync, SSD without FUA", "fsync@nofua-disk", "new",
                               flushes("ssd"), ".2f", True),
    "drain-busy": Row("drain of 8,000 blocks: disk busy, s", "burst", "drain", busy, ".2f", True),
    "drain-clock": Row("drain of 8,000 blocks: by the clock, s", "burst", "drain", clock, ".2f", True),
    **{f"reads-{phase}-{key}": Row(f"latency of disk reads, queue of 4, ms: {text}, {name}", "beside", phase,
                                   waited(key), ",.1f", True)
       for phase, text in (("alone", "alone"), ("background", "beside writeback"), ("drain", "beside a drain"))
       for key, name in (("p50", "median"), ("p99", "p99"), ("max", "worst"))},
    **{f"overflow-{key}": Row(f"latency of 4k writes over 2,000 MiB, ms: {name}", "overflow", "on",
                              waited(key, "write"), ",.1f", True)
       for key, name in (("p50", "median"), ("p99", "p99"), ("max", "worst"))},
    "pages-max": Row("OLTP, pages of 16k: worst read latency, ms", "pages", "pages", waited("max"),
                     ",.1f", True),
    "hit-read": Row("instructions per 4k hit: read", "hit", "read", instructions, ",.0f", True),
    "hit-write": Row("instructions per 4k hit: write", "hit", "write", instructions, ",.0f", True),
    "first-read": Row("instructions per 4k first read of an origin that does not seek", "hit", "first", instructions,
                      ",.0f", True),
    **{f"cpu-{phase}": Row(f"instructions per 4k request that is no hit: {text}", "cpu", phase, instructions, ",.0f",
                           True)
       for phase, text in (("miss", "read of a disk"), ("overload", "reads and writes, 60/40, of 4x the cache"),
                           ("write", "write"), ("fsync", "write and fsync"))},
    "memory": Row("RAM for 1 GiB of cache, MiB", "memory", "empty", mib, ".2f", True),
    "active-empty": Row("activation of 16 GiB: empty, s", "activate", "empty", clock, ".2f", True),
    "active-clean": Row("activation of 16 GiB: every block in use, s", "activate", "clean", clock, ".2f", True),
    "active-cut": Row("activation of 16 GiB: after a power cut, s", "activate", "cut", clock, ".2f", True),
}
ALL = ROWS | COSTS


class Latency(NamedTuple):
    """A line of a table of latencies: one load of the workload latency beside another."""
    text: str
    phase: str
    side: str


LATENCIES = [Latency(f"{load}{', ' if beside == 'alone' else ' beside '}{beside}", f"{load}-{beside}", side)
             for load, side in (("hits", "read"), ("misses", "read"), ("fsyncs", "write"))
             for beside in ("alone", "writeback", "fills", "commits")]
WORKS = sorted({row.work for row in ALL.values()} | {"ascending"})


def rows(works: list[str]) -> dict[str, Row]:
    """All rows, and rows for workloads at hardware that has none."""
    found = dict(ALL)
    for work in sorted({*works} - {*WORKS}):
        script, _, hardware = work.partition("@")
        like = next(w for w in WORKS if w.partition("@")[0] == script)
        found |= {f"{work} {name}": row._replace(work=work, text=f"{HARDWARE[hardware]}: {script}, {row.phase}")
                  for name, row in ALL.items() if row.work == like}
    return found


def latency(runs: Runs, stack: str, work: str, row: Latency) -> list[float] | None:
    """Milliseconds: median, p99, p99.9, worst."""
    found = runs.get((stack, work))
    if not found or not found[0].get(row.phase):
        return None
    load = found[0][row.phase]["load"][row.side]
    return [load[f"{key}_ns"] / 1e6 for key in ("p50", "p99", "p999", "max")]


def moved(device: str, key: str, unit: float = 1) -> Callable[[dict], float]:
    return lambda phase: delta(phase, device, key) / unit


SECTORS = 2048	# in a MiB
# Activity of the devices during the load: a table each, with the same rows as the I/O table.
DEVICES = {
    "disk busy, s": (moved("hdd", "busy_ms", 1000), ",.2f"),
    "disk read, MiB": (moved("hdd", "rs", SECTORS), ",.1f"),
    "disk written, MiB": (moved("hdd", "ws", SECTORS), ",.1f"),
    "disk flushes": (moved("hdd", "f"), ",.0f"),
    "SSD read, MiB": (moved("ssd", "rs", SECTORS), ",.1f"),
    "SSD written, MiB": (moved("ssd", "ws", SECTORS), ",.1f"),
    "SSD flushes": (moved("ssd", "f"), ",.0f"),
}
COLD = ("mixed", "fsync", "boot1", "uniform1", "uniform2", "uniform3", "zipf1", "zoned1", "reread1", "oltp-data", "oltp-log", "burst")


def value(runs: Runs, stack: str, name: str | Row) -> float | None:
    """The median over the seeds; None: not measured, or the figure makes no sense on this stack."""
    row = name if isinstance(name, Row) else ALL[name]
    found = runs.get((stack, row.work))
    if not found or any(row.phase not in phases for phases in found):
        return None
    if row.figure in (busy, clock) and row.work == "burst":
        # The bare disk has nothing to drain, and the limit has no disk.
        if stack in (DISK, LIMIT) or stack.split("-")[1:2] == ["wt"]:
            return None
    return statistics.median(row.figure(phases[row.phase]) for phases in found)


class Goal(NamedTuple):
    """One gating metric. Its goal is a share of a measured figure, or a fixed figure."""
    name: str
    value: float | None
    peer: float | None
    limit: float | None
    goal: float | None
    form: str = ",.0f"
    lower: bool = False

    @property
    def verdict(self) -> str:
        if self.value is None or self.goal is None:
            return "-"
        shown = [float(format(v, self.form).replace(",", "")) for v in (self.value, self.goal)]
        return "ok" if (shown[0] <= shown[1] if self.lower else shown[0] >= shown[1]) else "short"


def _share(share: float, of: float | None) -> float | None:
    return None if of is None else share * of


def peer(runs: Runs, known: dict, name: str) -> float | None:
    """The best of the peers measured now, or else of the last complete run."""
    found = [v for p in PEERS if (v := value(runs, p, name)) is not None]
    if not found:
        return known.get(name)
    return min(found) if ALL[name].lower else max(found)


def _hit(runs: Runs, name: str, stack: str) -> float | None:
    """Instructions beyond dm-linear, the target of the bare disk's volume."""
    own, linear = value(runs, stack, name), value(runs, DISK, name)
    return None if own is None or linear is None else own - linear


def _best_hit(runs: Runs, name: str) -> float | None:
    return min((v for p in PEERS if (v := _hit(runs, name, p)) is not None), default=None)


def _cold(runs: Runs) -> Goal:
    """The workload that suffers most from an empty cache."""
    shares = {name: ours / bare for name in COLD
              if (ours := value(runs, OURS, name)) and (bare := value(runs, DISK, name))}
    worst = min(shares, key=shares.get, default="")
    return Goal(f"cold, times the disk ({worst})", shares.get(worst), None, None, 0.98, ".2f")


def goals(runs: Runs, known: dict) -> list[Goal]:
    """The goals; `known` has the best figures of peers that are not measured now."""
    def goal(name, share=None, of=None, fixed=None, stack=OURS):
        row, limit = ALL[name], value(runs, LIMIT, name)
        best = peer(runs, known, name)
        base = {"limit": limit, "disk": value(runs, DISK, name), "peer": best,
                "disk's reads": value(runs, DISK, "reads-alone-p99"),
                "alone": value(runs, OURS, "neighbour-alone"),
                "stopped": value(runs, OURS, name.removesuffix("cut") + "stopped")
                if of == "stopped" else None}.get(of)
        if of != "limit":
            limit = None
        return Goal(name if stack == OURS else f"{name}, {stack}", value(runs, stack, name), best, limit,
                    fixed if fixed is not None else _share(share, base), row.form, row.lower)

    def hit(name, fixed):
        best = _best_hit(runs, name)
        return Goal(f"{name}, over dm-linear", _hit(runs, name, OURS),
                    known.get(f"{name}-over") if best is None else best, None, fixed, "+,.0f", True)

    found = [
        _cold(runs),
        goal("cold-ssd", 0.95, "disk"),
        goal("cold-net", 0.95, "disk"),
        goal("boot1", 1.15, "disk"),
        goal("mixed", 0.97, "limit"),
        goal("fsync", 0.97, "limit"),
        goal("fsync-plp", 0.85, "limit"),
        goal("fsync-plp-again", 0.945, "limit"),
        goal("fsync-nofua-flushes", fixed=1.0),
        goal("files", 1.01, "peer"),
        goal("groups", 0.95, "limit"),
        goal("fsync-written", fixed=2.03),
        goal("fsync-again-written", fixed=1.0),
        # Writeback in the background may flush the disk, too.
        goal("fsync-flushes", fixed=0.01),
        goal("boot2", 0.95, "limit"),
        goal("zipf3", fixed=750),
        goal("zoned3", fixed=2500),
        goal("warm-90-cut", 0.95, "stopped"),
        goal("warm-70-cut", 0.95, "stopped"),
        goal("moved-other-2", 1.0, "peer"),
        goal("moved-other-3", 1.0, "peer"),
        goal("stream-beside", 1.0, "peer"),
        goal("reread2", 2.0, "disk"),
        *(goal(f"yabs-{size}", 0.95, "limit") for size in ("4k", "64k", "512k", "1m")),
        goal("oltp-data", 1.2, "peer"),
        goal("oltp-log", 1.2, "peer"),
        goal("reads-background-p99", 1.5, "disk's reads"),
        goal("reads-drain-p99", 1.5, "disk's reads"),
        goal("neighbour", 0.5, "alone"),
        goal("burst", 0.92, "limit"),
        goal("burst-written", fixed=1.05),
        goal("overflow", fixed=5000),
        goal("drain-busy", fixed=4.1),
        goal("drain-clock", fixed=4.1),
        hit("hit-read", 350),
        hit("hit-write", 450),
        hit("first-read", 1500),
        goal("cpu-miss", fixed=35000),
        goal("cpu-overload", fixed=20000),
        goal("cpu-write", fixed=14000, stack="hybrid-wt"),
        goal("cpu-fsync", fixed=22000),
        goal("memory", fixed=0.5),
        goal("active-empty", fixed=0.1),
        goal("active-clean", fixed=0.1),
        goal("active-cut", fixed=0.1),
    ]
    ascending = runs.get((DISK, "ascending"))
    if ascending:
        best = statistics.median(busy(p["drain"]) for p in ascending)
        found = [g._replace(limit=best) if g.name.startswith("drain") else g for g in found]
    return found


def best_peers(runs: Runs) -> dict[str, float]:
    """For later runs without peers: the result of peer() for each row."""
    found = {name: v for name in ALL if (v := peer(runs, {}, name)) is not None}
    for name in ("hit-read", "hit-write", "first-read"):
        over = _best_hit(runs, name)
        if over is not None:
            found[f"{name}-over"] = over
    return {name: round(v, 3) for name, v in found.items()}
