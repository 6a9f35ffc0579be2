# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for all tests. The ones for guests are explained in guest/README.md."""
import contextlib
import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from guest import MIB, Disk, Guest, QemuGuest, UmlGuest, packaged, qemu

TOP = Path(__file__).resolve().parent.parent
FLAVOUR = os.environ.get("DM_HYBRID_GUEST", "uml")


@pytest.fixture(scope="session")
def top() -> Path:
    """The root of the source tree."""
    return TOP


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


@pytest.fixture(scope="session")
def uml_kernel() -> Path:
    """The directory with the guest kernel; built if it is not there (some minutes)."""
    return Path(_make("guest-kernel", f"GUEST={FLAVOUR}").split()[-1])


@pytest.fixture(scope="session")
def guest_modules(uml_kernel: Path) -> Path:
    """The root under which lib/modules/<release> holds ours, up to date with the sources."""
    _make("guest-modules", f"GUEST={FLAVOUR}")
    return TOP / "build" / f"guest-{FLAVOUR}"


@pytest.fixture(scope="session")
def guest_test_modules(uml_kernel: Path) -> Path:
    """The same with only the tests' modules brought up to date: works without ours."""
    _make("guest-test-modules", f"GUEST={FLAVOUR}")
    return TOP / "build" / f"guest-{FLAVOUR}"


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
    finally:
        for g in guests:
            g.close()


@pytest.fixture
def make_guest(tmp_path: Path, uml_kernel: Path, request):
    """A function that boots guests: make_guest(disks=[...], modprobe=["dm-testdisk"])."""
    def make(disks=(), modprobe=("dm-testdisk",), boot=True, **options) -> Guest:
        ours = any("hybrid" in m for m in modprobe)
        modules = request.getfixturevalue("guest_modules" if ours else "guest_test_modules")
        if FLAVOUR == "uml-debug":
            options["memory"] = 2 * options.get("memory", 512)
        g = UmlGuest(tmp_path / f"guest{len(guests)}", uml_kernel, disks=list(disks),
                     modules=modules,
                     path=[TOP / "build" / "userspace"], **options)
        guests.append(g)
        if boot:
            g.boot()
            if modprobe:
                g.modprobe(*modprobe)
        return g

    with _guests(request) as guests:
        yield make


@pytest.fixture(scope="session")
def qemu_kernel() -> packaged.Kernel:
    """Debian's own kernel; fetched if this machine has only its headers."""
    if not qemu.available():
        pytest.skip(f"{qemu.PROGRAM} is not installed")
    try:
        return packaged.kernel()
    except packaged.Missing as e:
        pytest.fail(str(e), pytrace=False)


@pytest.fixture(scope="session")
def qemu_modules(qemu_kernel: packaged.Kernel) -> Path:
    """The same as guest_modules, for Debian's kernel."""
    _make("modules-amd64")
    root = TOP / "build" / "guest-qemu"
    root.mkdir(exist_ok=True)
    with open(root / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        packaged.install_modules(TOP / "build" / "modules-amd64", qemu_kernel.modules, root)
    return root


@pytest.fixture
def make_qemu_guest(tmp_path: Path, qemu_kernel: packaged.Kernel, qemu_modules: Path, request):
    """As make_guest: make_qemu_guest(disks=[...], cpus=2)."""
    def make(disks=(), modprobe=("dm-testdisk",), boot=True, **options) -> Guest:
        g = QemuGuest(tmp_path / f"guest{len(guests)}", qemu_kernel, disks=list(disks),
                      modules=qemu_modules, path=[TOP / "build" / "userspace"], **options)
        guests.append(g)
        if boot:
            g.boot()
            if modprobe:
                g.modprobe(*modprobe)
        return g

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


def pytest_collection_modifyitems(items):
    """What the environment does not want is left out."""
    left_out = {"slow": "DM_HYBRID_QUICK is set"} if os.environ.get("DM_HYBRID_QUICK") else {}
    if not os.environ.get("DM_HYBRID_LONG"):
        left_out["long"] = "DM_HYBRID_LONG is not set"
    for item in items:
        for mark, reason in left_out.items():
            if mark in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))
