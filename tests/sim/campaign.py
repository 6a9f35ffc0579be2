#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""campaign.py check|long: the simulator on all cores, added up in one last line.

check   fresh seeds for SIM_SECONDS (290): mode C to LENGTH (3) and the loops of
        failing allocations and requests first, then modes A and B, each without
        and with faults and events, and with calls that overlap: as many of A, which has
        the most seeds, and of B, which has the most crash states, that both numbers reach
        GOAL together; never more than SEEDS seeds in all.
        SEED= is the first one, MODE= selects (of "A B C loop").
long    towards STATES (1e9) crash states, with mode C to length 4, by gcc and
        clang, -O2, -O3 and with sanitizers.  It can be interrupted at any time
        and goes on where it was: STATE= names the file that says where.

What fails is printed with the command that repeats it, and as a short script.
"""

import concurrent.futures
import itertools
import json
import os
import pathlib
import random
import re
import shlex
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build"
CORES = len(os.sched_getaffinity(0))
SANITIZERS = "-O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined"
VARIANTS = {
    "gcc-O2": ("gcc", "-O2"),
    "gcc-O3": ("gcc", "-O3"),
    "clang-O2": ("clang", "-O2"),
    "clang-O3": ("clang", "-O3"),
    "gcc-sanitizers": ("gcc", SANITIZERS),
}
OPTIONS = [[], ["--faults"], ["--events"], ["--faults", "--events"], ["--rot"],
           ["--faults", "--events", "--policies"], ["--faults", "--events", "--demand-fill"],
           ["--alloc-faults"], ["--faults", "--events", "--alloc-faults"],
           ["--collisions"], ["--faults", "--events", "--collisions"],
           ["--nowait"], ["--faults", "--events", "--nowait"],
           ["--grow"], ["--faults", "--events", "--rot", "--grow"]]
# Origins that do not answer: of many volumes, for a while.
HANGS = [("A", ["--hang"]), ("A", ["--hang", "--events"]), ("A", ["--hang", "--faults", "--events"])]
SWARM = [(mode, options) for options in OPTIONS for mode in "AB"] + HANGS
# Several CPUs, by a build of its own: make interleave.
INTERLEAVED = [("A", ["--interleave"]), ("B", ["--interleave"]), ("A", ["--interleave", "--faults"])]
GOAL = {"seeds": 20000, "crash_states": 5000000}
COUNTS = ("seeds", "sequences", "runs", "crash_states", "violations")


def build(variant):
    cc, flags = VARIANTS[variant]
    directory = BUILD / f"sim-{variant}"
    subprocess.run(
        ["make", "-s", "-C", HERE, f"BUILD={directory}", f"CC={cc}", f"VARIANT_CFLAGS={flags}"],
        check=True,
    )
    return directory / "sim"


def shorter(args):
    """The failing run as a script of a few lines."""
    result = subprocess.run(
        [*args, "--shrink"], capture_output=True, text=True, check=False, timeout=600
    )
    return result.stdout


def run(args, running):
    """Returns what the last line counts, and what is to be said of failures."""
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sim:
        running.add(sim)
        out, err = sim.communicate()
        running.remove(sim)
    numbers = dict.fromkeys(COUNTS, 0)
    for name, value in re.findall(r"(\w+)=(\d+)(?!\.)\b", out):
        if name in numbers:
            numbers[name] += int(value)
    if "C" in args:
        numbers["sequences"], numbers["seeds"] = numbers["seeds"], 0
    if sim.returncode == 0:
        return numbers, ""
    numbers["violations"] = max(1, numbers["violations"])
    said = f"{shlex.join(args)}\n{err}"
    repeat = re.search(r"reproduce: sim (--mode .*) --trace", err)
    if repeat:
        said += shorter([args[0], *repeat.group(1).split()])
    elif "C" in args:
        said += out
    return numbers, said


class Campaign:
    """Units of work, done on all cores, and what they come to."""

    def __init__(self):
        self.sum = dict.fromkeys(COUNTS, 0)
        self.start = time.monotonic()

    def seconds(self):
        return time.monotonic() - self.start

    def add(self, numbers, said):
        for name in COUNTS:
            self.sum[name] += numbers[name]
        if said:
            print(said, flush=True)

    def work(self, units, done=lambda unit: None, go_on=lambda: True):
        """@units: pairs of a name and the command."""
        sims = set()
        with concurrent.futures.ThreadPoolExecutor(CORES) as pool:
            try:
                self.work_off(pool, iter(units), done, go_on, sims)
            except KeyboardInterrupt:
                for sim in list(sims):
                    sim.kill()
                print("interrupted", flush=True)

    def work_off(self, pool, units, done, go_on, sims):
        running = {}
        while True:
            while len(running) < CORES and go_on():
                name, args = next(units, (None, None))
                if args is None:
                    break
                running[pool.submit(run, [str(a) for a in args], sims)] = name
            if not running:
                return
            ended, _ = concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for future in ended:
                self.add(*future.result())
                done(running.pop(future))

    def behind(self):
        """The mode that brings forward what is further from its goal."""
        reached = {name: self.sum[name] / goal for name, goal in GOAL.items()}
        return "A" if reached["seeds"] < reached["crash_states"] else "B"

    def last_line(self):
        print("sim:", " ".join(f"{name}={self.sum[name]}" for name in COUNTS),
              f"seconds={self.seconds():.0f}")
        return 1 if self.sum["violations"] else 0


def swarm(sim, seed, sizes, next_mode):
    """Without end: sizes[mode] seeds of that mode at a time, each kind of it in its turn."""
    kinds = {
        mode: itertools.cycle([kind for kind in SWARM + INTERLEAVED if kind[0] == mode])
        for mode in sizes
    }
    while True:
        mode, options = next(kinds[next_mode()])
        binary = BUILD / "sim-interleave" / "sim" if "--interleave" in options else sim
        yield None, [binary, "--mode", mode, "--seed", seed, "--count", sizes[mode], *options]
        seed += sizes[mode]


def check(sim):
    limit = float(os.environ.get("SIM_SECONDS") or 290)
    seeds = int(float(os.environ.get("SEEDS") or 0))
    seed = int(os.environ.get("SEED") or random.randrange(1, 1 << 40))
    modes = (os.environ.get("MODE") or "A B C loop").split()
    length = int(os.environ.get("LENGTH") or 3)
    campaign = Campaign()
    units = []
    print(f"first seed {seed}, {CORES} cores", flush=True)
    if "C" in modes:
        units += [["--mode", "C", "--length", length, "--part", f"{i}/32"] for i in range(32)]
    if "loop" in modes:
        units += [["--loop", loop, "--seed", seed + i, "--count", 3]
                  for i in range(0, 12, 3) for loop in ("alloc", "io")]
    campaign.work((None, [sim, *unit]) for unit in units)
    sizes = {mode: count for mode, count in (("A", 400), ("B", 60)) if mode in modes}
    in_turn = itertools.cycle(sizes).__next__
    if seeds and sizes:
        sizes = dict.fromkeys(sizes, min(20, max(1, seeds // CORES)))
        units = swarm(sim, seed, sizes, in_turn)
        campaign.work(itertools.islice(units, -(-seeds // min(sizes.values()))))
    elif sizes:
        campaign.work(
            swarm(sim, seed, sizes, campaign.behind if len(sizes) == 2 else in_turn),
            go_on=lambda: campaign.seconds() < limit,
        )
    return campaign.last_line()


class Long(Campaign):
    """A campaign that remembers."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.state = {"seed": random.randrange(1, 1 << 40), "next": 0, "again": [], "before": 0}
        if path.exists():
            self.state = json.loads(path.read_text())
            self.sum = self.state["sum"]
            print(f"goes on after {self.sum['crash_states']:.3g} crash states", flush=True)
        self.running = set()
        self.told = self.seconds()

    def seconds(self):
        return super().seconds() + (self.state["before"] if hasattr(self, "state") else 0)

    def save(self):
        state = dict(self.state, sum=self.sum, again=sorted(self.running), before=self.seconds())
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.rename(self.path)

    def unit(self, number, sims):
        """Number @number, always the same: mode C first, with the swarm in between."""
        if number % 2 and number < 2 * 4096:
            return [sims["gcc-O2"], "--mode", "C", "--length", 4, "--part", f"{number // 2}/4096"]
        variant = list(sims)[number // 2 % len(sims)]
        mode, options = SWARM[number // 2 // len(sims) % len(SWARM)]
        count = {"A": 1000, "B": 300}[mode] // (10 if "sanitizers" in variant else 1)
        seed = self.state["seed"] + number * 1000
        return [sims[variant], "--mode", mode, "--seed", seed, "--count", count, *options]

    def units(self, sims):
        again = self.state["again"]
        while True:
            number = again.pop(0) if again else self.state["next"]
            self.state["next"] = max(self.state["next"], number + 1)
            self.running.add(number)
            yield number, self.unit(number, sims)

    def done(self, number):
        self.running.remove(number)
        self.save()
        if self.seconds() - self.told > 30:
            self.told = self.seconds()
            states = self.sum["crash_states"]
            print(f"{states:.4g} crash states, {states / self.told:.0f} a second, "
                  f"{self.sum['violations']} violations", flush=True)


def long():
    path = pathlib.Path(os.environ.get("STATE") or BUILD / "check-long.json")
    states = float(os.environ.get("STATES") or 1e9)
    limit = float(os.environ.get("SIM_SECONDS") or "inf")
    path.parent.mkdir(parents=True, exist_ok=True)
    sims = {variant: build(variant) for variant in VARIANTS}
    campaign = Long(path)
    begun = campaign.seconds()
    campaign.work(
        campaign.units(sims),
        campaign.done,
        lambda: campaign.sum["crash_states"] < states and campaign.seconds() - begun < limit,
    )
    return campaign.last_line()


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.argv[1:2] == ["check"] and len(sys.argv) == 3:
        return check(sys.argv[2])
    if sys.argv[1:] == ["long"]:
        return long()
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
