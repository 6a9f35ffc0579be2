# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernels of Debian that the module is built for and tested with: make check-kernels.

    cd tests && python3 -m guest.kernels [6.1] [6.12] [newest]
"""
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

from . import packaged, pauses
from .base import GuestError
from .packaged import Headers, Kernel, Missing
from .qemu import QemuGuest

TOP = Path(__file__).resolve().parents[2]
NAMES = [packaged.OWN, *packaged.OTHERS]
COLUMNS = "{:<8} {:<20} {:>7} {:>9} {:>6} {:>7} {:>7} {:>8} {:>8}"


class Failed(Exception):
    """The modules do not build, or one does not load."""


def _staging(name: str, paused: bool = False) -> Path:
    directory = "modules-amd64" if name == packaged.OWN else f"modules-debian-{name}"
    return TOP / "build" / (directory + (pauses.SUFFIX if paused else ""))


def build(name: str, headers: Headers, paused: bool = False) -> list[str]:
    """Brings our modules, those of the tests, too, up to date; returns the compiler's warnings."""
    words = ["modules-debian", f"KERNEL={_staging(name, paused).name.removeprefix('modules-')}",
             f"KERNEL_HEADERS={headers.directory}", f"KERNEL_ARGS={' '.join(headers.arguments)}",
             *([f"MODULE_DIRS={pauses.sources()}"] if paused else [])]
    run = subprocess.run(["make", "-s", "--no-print-directory", "-C", TOP, *words],
                         capture_output=True, text=True)
    if run.returncode:
        raise Failed(f"make {' '.join(words)}\n{run.stdout}{run.stderr}")
    # Not those of kbuild, about the tools that it would like to have.
    return re.findall(r"^\S+: warning: .*$", run.stdout + run.stderr, re.M)


def ready(name: str, paused: bool = False) -> tuple[Kernel, Path]:
    """A kernel for QemuGuest, and the root under which lib/modules/<release> has ours."""
    build(name, packaged.headers(name), paused)
    kernel = packaged.kernel(name)
    root = "guest-qemu" if name == packaged.OWN else f"guest-debian-{name}"
    root = TOP / "build" / (root + (pauses.SUFFIX if paused else ""))
    root.mkdir(exist_ok=True)
    with open(root / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        packaged.install_modules(_staging(name, paused), kernel.modules, root)
    return kernel, root


def load(kernel: Kernel, root: Path) -> int:
    """Loads each of our modules in a guest; returns how many."""
    ours = sorted(p.stem for p in (root / "lib/modules" / kernel.release / "extra").glob("*.ko"))
    with tempfile.TemporaryDirectory() as tmp:
        guest = QemuGuest(Path(tmp), kernel, modules=root)
        try:
            guest.boot()
            guest.modprobe(*ours)
            guest.check_console()
        finally:
            guest.close()
    return len(ours)


def run_tests(name: str, options: list[str]) -> dict[str, int]:
    """Those marked "kernels", with that kernel; what failed is on the terminal."""
    report = TOP / "build" / f"check-kernels-{name}.xml"
    report.unlink(missing_ok=True)
    jobs = ["-n", str(os.cpu_count())] if not subprocess.run(
        [sys.executable, "-c", "import xdist"], capture_output=True).returncode else []
    subprocess.run([sys.executable, "-m", "pytest", "-c", TOP / "tests/pytest.ini", "-q", *jobs,
                    f"--junitxml={report}", *options, TOP / "tests/kernel"],
                   env={**os.environ, "DM_HYBRID_GUEST": f"debian-{name}"})
    suite = ET.parse(report).getroot().find("testsuite")
    count = {k: int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    return {"passed": count["tests"] - failed - count["skipped"], "failed": failed,
            "skipped": count["skipped"]}


def check(name: str, options: list[str]) -> tuple[list, bool]:
    """A row of the table, as far as it goes, and whether all is well."""
    row = [name]
    started = time.monotonic()
    try:
        if name in packaged.OTHERS:
            packaged.suites(name).update()
        headers = packaged.headers(name)
        row.append(headers.version)
        for old in _staging(name).glob("*/"):
            shutil.rmtree(old)	# so that every warning is seen
        warnings = build(name, headers)
        print(*warnings, sep="\n", end="\n" if warnings else "")
        row += ["yes", len(warnings)]
        load(*ready(name))
        row.append("yes")
    except (Missing, Failed, GuestError) as e:
        print(f"{name}: {e}", file=sys.stderr)
        columns = COLUMNS.count("{")
        return [*row, "no", *["-"] * columns][:columns], False
    counts = run_tests(name, options)
    seconds = f"{time.monotonic() - started:.0f} s"
    return [*row, *counts.values(), seconds], not warnings and not counts["failed"] \
        and counts["passed"] > 0


def main(argv: list[str]) -> int:
    names = [a for a in argv if a in NAMES] or NAMES
    options = [a for a in argv if a not in NAMES]
    results = [check(name, options) for name in names]
    print(COLUMNS.format("Kernel", "Package", "builds", "warnings", "loads", "passed", "failed",
                         "skipped", "time"))
    for row, _ in results:
        print(COLUMNS.format(*row))
    return 0 if all(well for _, well in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
