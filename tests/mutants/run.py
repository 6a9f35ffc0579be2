#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The mutation gate: would the tests notice?

Each NAME.patch is one defect of the engine.  It is built into the simulator and the unit tests,
which must find it; README.md says more.

    run.py                      all of them, and the engine as it is, which must pass
    run.py --list               names and promises
    run.py NAME...              these; one alone shows what the check that found it printed
    run.py --survey NAME...     all checks, also behind the first that finds it
"""
import argparse
import fcntl
import itertools
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
BUILD = TOP / "build" / "mutants"
FIELDS = ("Promise", "Stands for", "Noticed by")
# Where a defect lies in one of these, its unit tests are asked before the simulator.
LOW = re.compile(r"(codec|format|geometry|journal|map|policy).*\.[ch]")

# CPU seconds of all checks of one mutant, and of a single seed.
BUDGET = 240
SEED_LIMIT = 15
USAGE = 2	# the simulator's exit code


@dataclass(frozen=True)
class Check:
    """Runs of the simulator, each a list of arguments; none: the unit tests."""
    name: str
    runs: tuple = ()
    build: str = "sim"


def seeds(name: str, first: int, last: int, *options: str, build: str = "sim") -> Check:
    mode = ("--mode", name[0], *options, "--limit", str(SEED_LIMIT))
    return Check(name, ((*mode, "--seed", str(first), "--count", str(last - first + 1)),), build)


SEEDS = TOP / "tests/sim/seeds"


def pinned(interleaved: bool) -> tuple:
    """What once showed a defect should show it again."""
    text = (SEEDS / "regressions.txt").read_text()
    lines = [words for line in text.splitlines() if (words := line.split("#")[0].split())]
    return tuple(("--mode", mode, "--seed", seed, *options) for mode, seed, *options in lines
                 if interleaved == ("--interleave" in options))


def scripts() -> tuple:
    return tuple(("--script", str(path)) for path in sorted(SEEDS.glob("*.script")))


UNIT = Check("unit")
# Most defects need few seeds of some mode: a short round of all, then a long one.
SHORT = (
    seeds("A", 1, 300),
    seeds("A+faults", 1, 300, "--faults"),
    seeds("A+events", 1, 300, "--events"),
    Check("C", (("--mode", "C", "--length", "2"),)),
    seeds("B", 1, 20),
    Check("pinned", (*pinned(False), *scripts())),
)
LONG = (
    Check("pinned+interleave", pinned(True), "sim-interleave"),
    seeds("A+interleave", 1, 300, "--interleave", build="sim-interleave"),
    seeds("A+interleave+events", 1, 60, "--interleave", "--events", build="sim-interleave"),
    seeds("A+crowd", 1, 150, "--crowd"),
    seeds("A+crowd+faults", 1, 150, "--crowd", "--faults", "--events"),
    seeds("A+scarce", 1, 40, "--scarce"),
    seeds("A+rot", 1, 300, "--rot"),
    seeds("B+rot", 1, 6, "--rot"),
    Check("loop", tuple(("--loop", what, "--seed", "1", "--count", "3") for what in ("alloc", "io"))),
    seeds("A", 301, 2000),
    seeds("A+faults", 301, 3200, "--faults"),
    seeds("A+events", 301, 1700, "--events", "--faults"),
    seeds("B", 21, 60),
    seeds("B+faults", 1, 40, "--faults"),
)


class DoesNotApply(Exception):
    """The engine has changed: the patch must follow it."""


def _name(line: str) -> str:
    """Of the function, or the type, that begins so."""
    found = re.search(r"(\w+)\s*\(", line) or re.search(r"(\w+) \{", line)
    return found[1] if found else line


def _function_at(text: str, at: int) -> str:
    """As diff -p finds it."""
    before = text[:at].splitlines()
    return next((_name(x) for x in reversed(before) if re.match(r"[A-Za-z_]", x) and
                 not x.endswith(":")), "")


@dataclass
class Mutant:
    name: str
    header: dict = field(default_factory=dict)
    hunks: list = field(default_factory=list)	# (file, function, what stands there, what shall)

    @classmethod
    def read(cls, path: Path) -> "Mutant":
        self = cls(path.stem)
        head, *files = re.split(r"^(?=--- a/)", path.read_text(), flags=re.M)
        for name, text in re.findall(r"^([A-Z][a-z ]+): (.*(?:\n[ \t]+.*)*)", head, re.M):
            self.header[name] = " ".join(text.split())
        for part in files:
            file = re.match(r"--- a/dm-hybrid/(.*)", part)[1]
            _, *hunks = re.split(r"^@@ .* @@ ?(.*)\n", part, flags=re.M)
            for where, hunk in zip(hunks[::2], hunks[1::2]):
                lines = hunk.splitlines(keepends=True)
                self.hunks.append((file, _name(where), "".join(x[1:] for x in lines if x[0] in " -"),
                                   "".join(x[1:] for x in lines if x[0] in " +")))
        return self

    def apply(self, directory: Path) -> None:
        """By what stands there, once, and not by line numbers: others edit these files, too."""
        for file, function, old, new in self.hunks:
            text = (directory / file).read_text()
            if text.count(old) != 1:
                raise DoesNotApply(f"{self.name}: found {text.count(old)} times in {file}:\n{old}")
            if (found := _function_at(text, text.index(old))) != function:
                raise DoesNotApply(f"{self.name}: stands in {found}() of {file}, not in {function}()")
            (directory / file).write_text(text.replace(old, new))

    def checks(self) -> tuple:
        if any(LOW.fullmatch(file) for file, *_ in self.hunks):
            return (UNIT, *SHORT, *LONG)
        return (*SHORT, UNIT, *LONG)


CONTROL = Mutant("(none)")


def all_mutants() -> list[Mutant]:
    return [Mutant.read(p) for p in sorted(HERE.glob("*.patch"))]


@dataclass
class Result:
    """What a check came to.  killer: the rule or the test that found something; seed: where,
    which is after how many, for all but the pinned ones."""
    check: Check
    killer: str = ""
    seed: int = 0
    cpu: float = 0.0
    output: str = ""

    def __str__(self) -> str:
        return f"{self.check.name}: {self.killer}" if self.killer else "survives"


def execute(command: list, cpu: float, **options) -> tuple[int, str, float]:
    """Exit code, output, CPU seconds.  A process that uses up its time dies of SIGXCPU."""
    limit = int(cpu) + 1
    process = subprocess.Popen(
        [str(x) for x in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1)), **options)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, output, usage.ru_utime + usage.ru_stime


def make(directory: str, *variables: str) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    run = subprocess.run(["make", "-s", "-C", TOP / directory, *variables], env=env,
                         capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"make -C {directory} {' '.join(variables)}\n{run.stdout}{run.stderr}")


def write_engine(mutant: Mutant, directory: Path) -> None:
    """The pure files with the mutant in them; what is there already keeps its time stamp."""
    with tempfile.TemporaryDirectory() as temporary:
        for file in (TOP / "dm-hybrid").glob("*.[ch]"):
            shutil.copy(file, temporary)
        mutant.apply(Path(temporary))
        subprocess.run(["rsync", "-rc", "--delete", f"{temporary}/", directory], check=True)


class Copy:
    """The engine with one mutant in it, built as it is needed.

    The directory, and what was built of the mutant before, is one that nobody else uses now."""

    def __init__(self, mutant: Mutant):
        self.dir, self.lock = next(filter(None, map(self.take, itertools.count())))
        self.engine = self.dir / "dm-hybrid"
        write_engine(mutant, self.engine)

    @staticmethod
    def take(number: int):
        directory = BUILD / str(number)
        directory.mkdir(parents=True, exist_ok=True)
        lock = open(directory / ".lock", "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        return directory, lock

    def __enter__(self) -> "Copy":
        return self

    def __exit__(self, *error) -> None:
        self.lock.close()

    def build(self, what: str) -> Path:
        directory = self.dir / what
        if what == "unit":
            make("tests/unit", f"BUILD={directory}", f"KERNEL={self.engine}")
        elif what == "sim":
            make("tests/sim", f"BUILD={directory}", f"ENGINE_DIR={self.engine}")
        else:
            make("tests/sim", "interleave", f"INTERLEAVE_BUILD={directory}",
                 f"ENGINE_DIR={self.engine}")
        return directory

    def run(self, check: Check, cpu: float) -> Result:
        return self.unit(cpu) if check is UNIT else self.simulate(check, cpu)

    def simulate(self, check: Check, cpu: float) -> Result:
        result = Result(check)
        program = self.build(check.build) / "sim"
        for arguments in check.runs:
            code, result.output, used = execute([program, *arguments], cpu - result.cpu)
            result.cpu += used
            found = re.search(r"^VIOLATION (.+?) seed=(\d+)", result.output, re.M)
            if found:
                result.killer, result.seed = found[1], int(found[2])
            elif code == USAGE:
                raise RuntimeError(f"{program} {' '.join(arguments)}\n{result.output}")
            elif code and code != -signal.SIGXCPU:
                result.killer = f"exit code {code}"
            if code:
                break
        return result

    def unit(self, cpu: float) -> Result:
        result = Result(UNIT)
        directory = self.build("unit")
        for source in sorted((TOP / "tests/unit").glob("test_*.c")):
            code, output, used = execute(
                [directory / source.stem], cpu - result.cpu,
                env={**os.environ, "CMOCKA_MESSAGE_OUTPUT": "stdout"})
            result.cpu += used
            result.output += output
            if code:
                failed = re.findall(r"^\[ +FAILED +\] (?!tests)(\w+)", output, re.M)
                case = failed[0] if failed else f"exit code {code}"
                result.killer = f"{source.stem}.{case}"
                break
        return result


def judge(mutant: Mutant, survey: bool = False) -> list[Result]:
    """The results of the checks, up to the first that finds something, or of all."""
    left = BUDGET
    results = []
    with Copy(mutant) as copy:
        for check in mutant.checks():
            results.append(copy.run(check, left))
            left -= results[-1].cpu
            if left <= 0 or (results[-1].killer and not survey):
                break
    return results


def row(mutant: Mutant, results: list[Result]) -> str:
    last = results[-1]
    promise = mutant.header.get("Promise", "")
    return (f"{mutant.name:<34} {promise:<12} {str(last):<46} "
            f"{last.seed or '':>6} {sum(r.cpu for r in results):>6.1f}")


def run(mutants: list[Mutant], jobs: int, survey: bool, control: bool) -> int:
    print(f"{'mutant':<34} {'promise':<12} {'noticed by':<46} {'seed':>6} {'CPU s':>6}")
    killed = failures = 0
    start = time.monotonic()
    todo = [CONTROL, *mutants] if control else mutants
    with ThreadPoolExecutor(jobs) as pool:
        for mutant, future in [(m, pool.submit(judge, m, survey)) for m in todo]:
            try:
                results = future.result()
            except (DoesNotApply, RuntimeError) as error:
                print(f"{mutant.name}: FAILED\n{error}", flush=True)
                failures += 1
                continue
            found = [r for r in results if r.killer]
            print(row(mutant, results), flush=True)
            if survey:
                for r in results:
                    print(f"    {r.check.name:<10} {r.killer or '-':<40} {r.seed or '':>6} {r.cpu:6.1f}")
            if mutant is CONTROL:
                failures += bool(found) or results[-1].check is not mutant.checks()[-1]
            else:
                killed += bool(found)
            if found and (mutant is CONTROL or len(mutants) == 1):
                print(found[0].output[-6000:])
    print(f"{time.monotonic() - start:.0f} seconds")
    print(f"mutants: killed={killed}/{len(mutants)}")
    return 1 if failures or killed < len(mutants) else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="whole, or the beginning")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--survey", action="store_true", help="do not stop at the first check")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    mutants = [m for m in all_mutants()
               if not args.names or any(m.name.startswith(n) for n in args.names)]
    if args.list:
        for m in mutants:
            print(f"{m.name:<34} {m.header['Promise']:<12} {m.header['Stands for']}")
        return 0
    if not mutants:
        parser.error("no mutant of that name")
    return run(mutants, args.jobs, args.survey, not args.names)


if __name__ == "__main__":
    sys.exit(main())
