# SPDX-License-Identifier: GPL-2.0-or-later
"""Style as a test: what a reviewer would otherwise have to say again and again."""
import os
import re
import subprocess
from pathlib import Path

import pytest

from guest import kernels, packaged

TOP = Path(__file__).resolve().parent.parent.parent
MODULE = TOP / "dm-hybrid"
KERNEL_FILES = sorted(path for directory in (MODULE, TOP / "tests/modules", TOP / "tests/kernel/pauses")
                      for path in directory.rglob("*.[ch]"))

FILE_LINES = 1500
FUNCTION_LINES = 100

# The files that know no kernel object, and so run in the simulator and in the tools too.
PURE = sorted([*MODULE.glob("core/*.[ch]"), *MODULE.glob("policy/*.[ch]")])
# What a pure file may have from outside: core.h is where all others get it from.
OUTSIDE = {
    "core.h": re.compile(r".*"),
    # Below core.h, and meant for other projects too.
    "format.h": re.compile(r"linux/types\.h"),
    "block-types.h": re.compile(r"linux/types\.h"),
    # The adapter that makes one policy one module.
    "module.h": re.compile(r"linux/module\.h"),
}

kernel_files = pytest.mark.parametrize("path", KERNEL_FILES,
                                       ids=lambda p: str(p.relative_to(TOP)))


@pytest.fixture(scope="session")
def checkpatch(uml_kernel) -> Path:
    """From the sources that the guest kernel was built of."""
    source = (uml_kernel / "source").resolve()
    return source / "scripts/checkpatch.pl"


@kernel_files
def test_checkpatch(checkpatch, path):
    run = subprocess.run(["perl", checkpatch, "--no-tree", "--strict", "--terse", "--show-types",
                          "--no-summary", "-f", path], capture_output=True, text=True)
    assert not run.stderr
    findings = [f for f in run.stdout.splitlines() if not is_false_finding(path, f)]
    assert not findings, "\n".join(findings)


def is_false_finding(path: Path, finding: str) -> bool:
    # BIT() is not for headers that userspace reads too.
    if path.name == "format.h" and "CHECK:BIT_MACRO" in finding:
        return True
    # Nor is min(), with which a constant of the format would name its argument once.
    if path.name == "format.h" and "CHECK:MACRO_ARG_REUSE" in finding:
        return True
    # checkpatch takes the header's name for an expression.
    m = re.match(r".*?:(\d+): \w+:SPACING", finding)
    return bool(m) and "__has_include(<" in path.read_text().splitlines()[int(m[1]) - 1]


@kernel_files
def test_file_size(path):
    assert len(path.read_text().splitlines()) <= FILE_LINES


@kernel_files
def test_function_size(path):
    """Kernel style puts a function's braces, and nothing else, alone in column 0."""
    start, long = 0, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line == "{":
            start = number
        elif line == "}" and start:
            if number - start - 1 > FUNCTION_LINES:
                long.append(f"{path.name}:{start}: {number - start - 1} lines")
            start = 0
    assert not long


@pytest.mark.parametrize("path", PURE, ids=lambda p: p.name)
def test_include_firewall(path):
    wrong = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        m = re.match(r'\s*#\s*include\s*(["<])([^">]+)', line)
        if m and m[1] == '"' and (path.parent / m[2]).resolve() not in PURE:
            wrong.append(f'{path.name}:{number}: "{m[2]}" is not a pure header')
        elif m and m[1] == "<" and not OUTSIDE.get(path.name, re.compile("$^")).fullmatch(m[2]):
            wrong.append(f"{path.name}:{number}: <{m[2]}> belongs into core.h")
        elif re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b.*__KERNEL__", line):
            wrong.append(f"{path.name}:{number}: pure files do not ask where they run")
    assert not wrong


def _make(target: str, *words: str) -> str:
    """Builds and returns what the compilers said about our files."""
    run = subprocess.run(["make", "--no-print-directory", "-C", TOP, target, *words],
                         capture_output=True, text=True)
    text = run.stdout + run.stderr
    assert run.returncode == 0, text
    return "\n".join(line for line in text.splitlines()
                     if re.search(r"warning:|error:", line, re.I))


@pytest.mark.parametrize("target", ["modules-amd64", "modules-amd64-clang", "modules-sparse"])
def test_builds_without_a_word(target):
    """gcc and clang with W=1, and sparse, against Debian's kernel."""
    assert _make(target) == ""


def test_every_global_carries_the_prefix():
    """A kernel with dm-hybrid built in has one name space."""
    assert _make("modules-amd64") == ""
    names = set()
    for path in (TOP / "build/modules-amd64/dm-hybrid").rglob("*.o"):
        if path.with_suffix(".c").exists() and not path.name.endswith(".mod.o"):
            run = subprocess.run(["nm", "--defined-only", "--extern-only", path], capture_output=True, text=True,
                                 check=True)
            names |= {line.split()[-1] for line in run.stdout.splitlines()}
    # Macros of the kernel make names of their own around the name of a tracepoint or an export.
    prefixed = re.compile(r"(__\w+_)?hybrid_\w+|(init|cleanup)_module|__this_module")
    assert len(names) > 300
    assert not sorted(name for name in names if not prefixed.fullmatch(name))


def test_builds_for_backports():
    """The next kernel that users of Debian 12 have; all others, and running them: check-kernels."""
    try:
        packaged.suites("6.12").update()
        headers = packaged.headers("6.12")
    except packaged.Missing as e:
        pytest.skip(f"no headers: {e}")
    assert kernels.build("6.12", headers) == []


def test_clean_reaches_every_directory():
    run = subprocess.run(["make", "-n", "-C", TOP, "clean"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.rstrip().splitlines()[-2].endswith("rm -rf build"), run.stdout


def tracked_files() -> list[Path]:
    run = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, capture_output=True, text=True)
    if run.returncode:
        return []	# not a git checkout: a tarball
    return [TOP / f for f in run.stdout.split("\0") if f and os.path.isfile(TOP / f)]


def test_every_source_says_its_licence():
    sources = re.compile(r".*\.(c|h|py|sh|rst|rules|service|def|config|ini|yml)|.*Makefile|.*/Kbuild|"
                         r".*/Kconfig|.*/init")
    missing = []
    for path in tracked_files():
        head = path.read_bytes()[:400]
        script = head.startswith(b"#!")
        if (script or sources.fullmatch(str(path))) and b"SPDX-License-Identifier:" not in head:
            missing.append(str(path.relative_to(TOP)))
    assert not missing
