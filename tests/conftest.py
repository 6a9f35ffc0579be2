# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for all tests. The ones for guests are explained in guest/README.md."""
import contextlib
import functools
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from guest import MIB, Disk, Guest, QemuGuest, UmlGuest, kernels, packaged, pauses, qemu

TOP = Path(__file__).resolve().parent.parent
FLAVOUR = os.environ.get("DM_HYBRID_GUEST", "uml")
X86 = FLAVOUR.startswith("x86-")
DEBIAN = FLAVOUR.removeprefix("debian-") if FLAVOUR.startswith("debian-") else ""
# How much longer things take in a kernel with checkers.
SLOW = {"uml-debug": 8.0, "x86-debug": 6.0, "x86-kcsan": 6.0, "debian": 3.0}


# Tests send signals. Who was started by nohup, or by a shell in the background, ignores some,
# and what it starts would, too; what has a handler instead is as usual after an exec.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


@pytest.fixture(scope="session")
def top() -> Path:
    """The root of the source tree."""
    return TOP


@pytest.fixture(scope="session")
def sim_dir(top) -> Path:
    """Where the simulator is, and the engine's objects of which it is made."""
    directory = top / "build/sim"
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["flock", directory / ".lock", "make", "-s", "-C", top / "tests/sim"], check=True)
    return directory


@pytest.fixture(scope="session")
def build(top) -> Path:
    """Directory of the built tools."""
    missing = [p for p in ("cc", "make", "pkg-config", "scdoc") if not shutil.which(p)]
    if missing:
        pytest.fail(f"needed to build the tools: {', '.join(missing)}")
    directory = top / "build/userspace"
    directory.mkdir(parents=True, exist_ok=True)
    # Workers of one test run begin at the same time
    r = subprocess.run(["flock", directory / ".lock", "make", "-C", top / "userspace", "tests"],
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr
    return directory


@pytest.fixture(autouse=True)
def _tidy(request):
    """Takes a passed test's disks away: those of all tests together fill a small /tmp."""
    path = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if path is None or getattr(request.node, "failed", False):
        return
    for file in path.rglob("*"):
        if file.is_file() and not file.is_symlink() and file.stat().st_size > MIB:
            file.unlink()


def _make(*targets: str) -> str:
    run = subprocess.run(["make", "-s", "--no-print-directory", "-C", TOP, *targets],
                         capture_output=True, text=True)
    if run.returncode:
        pytest.fail(f"make {' '.join(targets)} failed\n{run.stdout}{run.stderr}", pytrace=False)
    return run.stdout


@functools.cache
def _kernel(flavour: str) -> Path:
    """The directory with a guest kernel; built if it is not there (some minutes)."""
    return Path(_make("guest-kernel", f"GUEST={flavour}").split()[-1])


@functools.cache
def _modules(flavour: str, target: str = "guest-modules", paused: bool = False) -> Path:
    """The root under which lib/modules/<release> holds ours, up to date with the sources."""
    stage = flavour + pauses.SUFFIX if paused else flavour
    _make(target, f"GUEST={flavour}", f"STAGE={stage}",
          *([f"MODULE_DIRS={pauses.sources()}"] if paused else []))
    return TOP / "build" / f"guest-{stage}"


@pytest.fixture(scope="session")
def uml_kernel() -> Path:
    return _kernel("uml")


@pytest.fixture
def disks(tmp_path: Path):
    """A function that makes disks: disks("ssd", 64, "hdd", 256) -> [Disk, Disk] (MiB)."""
    def make(*names_and_sizes) -> list[Disk]:
        pairs = zip(names_and_sizes[::2], names_and_sizes[1::2])
        return [Disk(tmp_path / f"{name}.img", int(size * MIB), name) for name, size in pairs]
    return make


@contextlib.contextmanager
def _guests(request):
    """A list of guests that end with the test.

    At its end every guest's console is looked at: a warning of the kernel fails the test,
    whatever the test itself thought.
    """
    guests = request.node.__dict__.setdefault("guests", [])
    yield guests
    try:
        for g in guests:
            if g.running:
                g.check_console()
                if g.flavour == "uml-debug":
                    g.check_farewell()
    finally:
        for g in guests:
            g.close()


def _boot(guests: list[Guest], g: Guest, flavour: str, boot: bool, modprobe) -> Guest:
    g.flavour, g.slow = flavour, SLOW.get("debian" if DEBIAN else flavour, 1.0)
    guests.append(g)
    if boot:
        g.boot()
        if modprobe:
            g.modprobe(*modprobe)
        if flavour == "x86-kcsan":
            g.run("echo on >/sys/kernel/debug/kcsan")
    return g


def _uml_guest(workdir: Path, flavour: str, modprobe, memory: int = 512, paused: bool = False,
               **options) -> Guest:
    ours = any("hybrid" in m for m in modprobe)
    target = "guest-modules" if ours else "guest-test-modules"
    return UmlGuest(workdir, _kernel(flavour), memory=memory * (2 if flavour == "uml-debug" else 1),
                    modules=_modules(flavour, target, paused), path=[TOP / "build" / "userspace"],
                    **options)


@functools.cache
def _debian(name: str, paused: bool) -> tuple[packaged.Kernel, Path]:
    try:
        return kernels.ready(name, paused)
    except (packaged.Missing, kernels.Failed) as e:
        pytest.fail(str(e), pytrace=False)


def _qemu_guest(workdir: Path, flavour: str, paused: bool = False, **options) -> Guest:
    if X86:
        kernel, modules = qemu.built(_kernel(flavour)), _modules(flavour, paused=paused)
    else:
        kernel, modules = _debian(DEBIAN or packaged.OWN, paused)
    return QemuGuest(workdir, kernel, modules=modules, path=[TOP / "build" / "userspace"],
                     **options)


@pytest.fixture
def make_guest(tmp_path: Path, request):
    """A function that boots guests: make_guest(disks=[...], modprobe=["dm-testdisk"])."""
    flavour = "uml-debug" if request.node.get_closest_marker("debug") else FLAVOUR

    def make(disks=(), modprobe=("dm-testdisk",), boot=True, **options) -> Guest:
        options |= {"workdir": tmp_path / f"guest{len(guests)}", "flavour": flavour,
                    "disks": list(disks)}
        g = _qemu_guest(**options) if DEBIAN or X86 else _uml_guest(modprobe=modprobe, **options)
        return _boot(guests, g, flavour, boot, modprobe)

    with _guests(request) as guests:
        yield make


@pytest.fixture
def make_qemu_guest(tmp_path: Path, request):
    """As make_guest: make_qemu_guest(disks=[...], cpus=2). Debian's kernel, or the flavour's."""
    if not qemu.available():
        pytest.skip(f"{qemu.PROGRAM} is not installed")
    flavour = FLAVOUR if X86 or DEBIAN else "qemu"

    def make(disks=(), modprobe=("dm-testdisk",), boot=True, **options) -> Guest:
        g = _qemu_guest(tmp_path / f"guest{len(guests)}", flavour, disks=list(disks), **options)
        return _boot(guests, g, flavour, boot, modprobe)

    with _guests(request) as guests:
        yield make


@pytest.fixture
def guest(make_guest) -> Guest:
    """A fresh guest without disks, with the test targets loaded."""
    return make_guest()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failed test shows what its guests' kernels had to say."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        item.failed = True
        for n, g in enumerate(getattr(item, "guests", [])):
            if g.console_path.exists():
                report.sections.append((f"console of guest {n} ({g.console_path})",
                                        g.console_tail(100)))


def _runs_here(item) -> bool:
    if "long" in item.keywords and not os.environ.get("DM_HYBRID_LONG"):
        return False
    if item.get_closest_marker("boot") and not item.get_closest_marker("check") and \
            not os.environ.get("DM_HYBRID_BOOT"):
        return False
    if item.get_closest_marker("stacks") and not item.get_closest_marker("check") and \
            not os.environ.get("DM_HYBRID_STACKS"):
        return False
    if item.get_closest_marker("life") and not os.environ.get("DM_HYBRID_LIFE"):
        return False
    if "isolation" in item.keywords and not os.environ.get("DM_HYBRID_ISOLATION"):
        return False
    if item.get_closest_marker("packages") and not os.environ.get("DM_HYBRID_PACKAGES"):
        return False
    if DEBIAN:
        return item.get_closest_marker("kernels") is not None
    if FLAVOUR == "uml":
        return "thorough" not in item.keywords
    if X86:
        return "qemu" in item.keywords or item.get_closest_marker("kernels") is not None
    return "qemu" not in item.keywords


def pytest_collection_modifyitems(config, items):
    """Other flavours' tests, and long ones, are none of this run, unless it is for them."""
    others = [item for item in items if not _runs_here(item)]
    items[:] = [item for item in items if _runs_here(item)]
    config.hook.pytest_deselected(items=others)
    if os.environ.get("DM_HYBRID_QUICK"):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="DM_HYBRID_QUICK is set"))
