#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The mutation gate: would the tests notice?

Each NAME.patch is one defect of the engine.  It is built into the simulator and the unit tests,
which must find it.  Each outer/NAME.patch is one of the glue, the tools or the scripts: in a copy of
the tree the tests that its header names must fail; README.md says more.

    run.py                      all of them, and the tree as it is, which must pass
    run.py --list               names and promises
    run.py NAME...              these; one alone shows what the check that found it printed
    run.py outer                all that are not of the engine
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
import threading
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
BUILD = TOP / "build" / "mutants"
FIELDS = ("Promise", "Stands for", "Noticed by")
# The unit tests go before the simulator where a defect lies in one of these files, or its header
# says that they notice it.
LOW = re.compile(r"core/(codec|format|geometry|journal|map|policy).*|policy/.*")

# CPU seconds of all checks of one mutant, and of a single seed.
BUDGET = 240
SEED_LIMIT = 15
USAGE = 2	# the simulator's exit code

# pytest's exit codes.
PASSED, FAILED = 0, 1
# Seconds of wall clock after which the tests of one outer mutant are ended: they hang.
OUTER_LIMIT = 1800


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
    Check("isolation", (("--isolation", "--hang-of", "1 of 2"),)),
    seeds("A+hang", 1, 200, "--hang"),
    seeds("A+collisions", 1, 150, "--collisions"),
    seeds("A+collisions+faults", 1, 150, "--collisions", "--faults", "--events"),
    seeds("A+alloc-faults", 1, 40, "--alloc-faults"),
    seeds("A+nowait", 1, 60, "--nowait"),
    seeds("A+grow", 1, 40, "--grow"),
    seeds("B+grow", 1, 4, "--grow"),
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
    """The source has changed: the patch must follow it."""


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
    """A defect of the engine; its files are relative to ROOT."""
    name: str
    header: dict = field(default_factory=dict)
    hunks: list = field(default_factory=list)	# (file, function, what stands there, what shall)

    ROOT = "dm-hybrid/"
    PREFIX = ""		# of the name

    @classmethod
    def read(cls, path: Path) -> "Mutant":
        self = cls(cls.PREFIX + path.stem)
        head, *files = re.split(r"^(?=--- a/)", path.read_text(), flags=re.M)
        for name, text in re.findall(r"^([A-Z][a-z ]+): (.*(?:\n[ \t]+.*)*)", head, re.M):
            self.header[name] = " ".join(text.split())
        for part in files:
            file = re.match(f"--- a/{cls.ROOT}(.*)", part)[1]
            _, *hunks = re.split(r"^@@ .* @@ ?(.*)\n", part, flags=re.M)
            for where, hunk in zip(hunks[::2], hunks[1::2]):
                lines = hunk.splitlines(keepends=True)
                self.hunks.append((file, _name(where), "".join(x[1:] for x in lines if x[0] in " -"),
                                   "".join(x[1:] for x in lines if x[0] in " +")))
        return self

    def mutated(self, directory: Path) -> dict[str, str]:
        """The files of @directory that it changes, as it makes them.

        By what stands there, once, and not by line numbers: others edit these files, too."""
        texts = {}
        for file, function, old, new in self.hunks:
            text = texts.get(file) or (directory / file).read_text()
            if text.count(old) != 1:
                raise DoesNotApply(f"{self.name}: found {text.count(old)} times in {file}:\n{old}")
            # Only C has functions that a hunk's header names.
            if file.endswith((".c", ".h")) and \
                    (found := _function_at(text, text.index(old))) != function:
                raise DoesNotApply(f"{self.name}: stands in {found}() of {file}, not in {function}()")
            texts[file] = text.replace(old, new)
        return texts

    def apply(self, directory: Path) -> None:
        for file, text in self.mutated(directory).items():
            (directory / file).write_text(text)

    def checks(self) -> tuple:
        if any(LOW.fullmatch(file) for file, *_ in self.hunks) or \
                self.header.get("Noticed by", "").startswith(("unit", "the unit")):
            return (UNIT, *SHORT, *LONG)
        return (*SHORT, UNIT, *LONG)


class OuterMutant(Mutant):
    """A defect of the glue, the tools or the scripts, found by tests of pytest."""
    ROOT = ""
    PREFIX = "outer/"

    def tests(self) -> list[str]:
        """The node ids in the header, relative to the tree's top."""
        return re.split(r"\s+(?=tests/)", self.header["Noticed by"])


CONTROL = Mutant("(none)")
OUTER_CONTROL = Mutant("(none, outer)")


def all_mutants() -> list[Mutant]:
    return [Mutant.read(p) for p in sorted(HERE.glob("*.patch"))]


def outer_mutants() -> list[OuterMutant]:
    return [OuterMutant.read(p) for p in sorted((HERE / "outer").glob("*.patch"))]


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


def write_copy(sources, patches: list[Mutant], directory: Path) -> None:
    """Copies of files and folders with the patches in them; what is there already keeps its time stamp."""
    with tempfile.TemporaryDirectory() as temporary:
        for source in sources:
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, Path(temporary) / source.name)
        for patch in patches:
            patch.apply(Path(temporary))
        subprocess.run(["rsync", "-rc", "--delete", f"{temporary}/", directory], check=True)


def write_engine(mutant: Mutant, directory: Path) -> None:
    """The pure files with the mutant in them."""
    write_copy([TOP / "dm-hybrid/core", TOP / "dm-hybrid/policy"], [mutant], directory)


class Copy:
    """The engine with one mutant in it, built as it is needed.

    The directory, and what was built of the mutant before, is one that nobody else uses now."""

    PREFIX = ""

    def __init__(self, mutant: Mutant):
        self.dir, self.lock = next(filter(None, map(self.take, itertools.count())))
        self.write(mutant)

    def write(self, mutant: Mutant) -> None:
        self.engine = self.dir / "dm-hybrid"
        write_engine(mutant, self.engine)

    @classmethod
    def take(cls, number: int):
        directory = BUILD / f"{cls.PREFIX}{number}"
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


class Tree(Copy):
    """The whole tree with one outer mutant in it, or with none.

    What was built stays; what is the same as before keeps its time stamp."""

    PREFIX = "outer-"
    # Of a tree nothing that was built, and not the lock.
    SKIPPED = ("/build", "/.git", "/.lock", "__pycache__", ".pytest_cache", "/debian/.debhelper")

    def write(self, mutant: Mutant) -> None:
        texts = mutant.mutated(TOP)
        skipped = [*self.SKIPPED, *(f"/{file}" for file in texts)]
        subprocess.run(["rsync", "-rlpc", "--delete", *(f"--exclude={x}" for x in skipped),
                        f"{TOP}/", self.dir], check=True)
        for file, text in texts.items():
            path = self.dir / file
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(TOP / file, path)
            if path.read_text() != text:
                path.write_text(text)

    def build(self, what: str = "all") -> None:
        """What the fixtures would build: here, where a failure is no test's."""
        make(self.dir / "userspace", "all", "tests")
        if what == "all":
            make(self.dir, "guest-modules")

    def test(self, nodes: list[str], *options: str) -> tuple[int, str, list[str], float]:
        """pytest's exit code, its output, the tests whose call failed, seconds of CPU."""
        report = self.dir / "build" / "junit.xml"
        report.unlink(missing_ok=True)
        env = {k: v for k, v in os.environ.items()
               if not k.startswith(("PYTEST_", "MAKE", "MFLAGS")) or k == "PYTEST_XDIST_WORKER"}
        # Tests named by a mutant run, those of a check of their own, too.
        env["DM_HYBRID_ISOLATION"] = "1"
        command = [sys.executable, "-m", "pytest", "-c", "tests/pytest.ini", "-p", "no:cacheprovider",
                   "-p", "no:xdist", "-q", *options, f"--junitxml={report}", *nodes]
        with tempfile.TemporaryFile("w+", errors="replace") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.STDOUT, cwd=self.dir, env=env,
                                       start_new_session=True)
            limit = threading.Timer(OUTER_LIMIT, os.killpg, (process.pid, signal.SIGKILL))
            limit.start()
            _, status, usage = os.wait4(process.pid, 0)
            limit.cancel()
            code = process.returncode = os.waitstatus_to_exitcode(status)
            out.seek(0)
            output = out.read()
        failed = []
        if report.exists():
            failed = [case.get("name") for case in ElementTree.parse(report).iter("testcase")
                      if case.find("failure") is not None]
        return code, output, failed, usage.ru_utime + usage.ru_stime


def judge_outer(mutant: OuterMutant) -> list[Result]:
    """Noticed where a test that the header names fails by itself: pytest's exit code 1, and not for a
    fixture, nor because there is no such test."""
    result = Result(Check("pytest"))
    with Tree(mutant) as tree:
        tree.build("all" if any(file.startswith("dm-hybrid/") for file, *_ in mutant.hunks) else "tools")
        code, result.output, failed, result.cpu = tree.test(mutant.tests(), "-x")
    if code == FAILED and failed:
        result.killer = failed[0]
    elif code != PASSED:
        raise RuntimeError(f"pytest ends with {code}\n{result.output[-6000:]}")
    return [result]


def control_outer(mutants: list[OuterMutant]) -> list[Result]:
    """All the tests that are to notice something, in a tree without a mutant."""
    result = Result(Check("pytest"))
    with Tree(CONTROL) as tree:
        tree.build()
        nodes = sorted({node for m in mutants for node in m.tests()})
        code, result.output, failed, result.cpu = tree.test(nodes)
    if code != PASSED:
        result.killer = ", ".join(failed) or f"exit code {code}"
    return [result]


def judge(mutant: Mutant, survey: bool = False) -> list[Result]:
    """The results of the checks, up to the first that finds something, or of all."""
    if isinstance(mutant, OuterMutant):
        return judge_outer(mutant)
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
    return (f"{mutant.name:<44} {promise:<20} {str(last):<60} "
            f"{last.seed or '':>6} {sum(r.cpu for r in results):>6.1f}")


def run(mutants: list[Mutant], jobs: int, survey: bool, control: bool) -> int:
    print(f"{'mutant':<44} {'promise':<20} {'noticed by':<60} {'seed':>6} {'CPU s':>6}")
    killed = failures = 0
    start = time.monotonic()
    outer = [m for m in mutants if isinstance(m, OuterMutant)]
    todo = [(m, judge, (m, survey)) for m in mutants]
    if outer:
        todo.insert(0, (OUTER_CONTROL, control_outer, (outer,)))
    if control:
        todo.insert(0, (CONTROL, judge, (CONTROL, survey)))
    with ThreadPoolExecutor(jobs) as pool:
        for mutant, future in [(m, pool.submit(call, *args)) for m, call, args in todo]:
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
            elif mutant is OUTER_CONTROL:
                failures += bool(found)
            else:
                killed += bool(found)
            if found and (mutant in (CONTROL, OUTER_CONTROL) or len(mutants) == 1):
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
    mutants = [m for m in [*all_mutants(), *outer_mutants()]
               if not args.names or any(m.name.startswith(n) for n in args.names)]
    if args.list:
        for m in mutants:
            print(f"{m.name:<44} {m.header['Promise']:<20} {m.header['Stands for']}")
        return 0
    if not mutants:
        parser.error("no mutant of that name")
    return run(mutants, args.jobs, args.survey, not args.names)


if __name__ == "__main__":
    sys.exit(main())
