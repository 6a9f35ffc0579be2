# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for boots: an image, a root on a volume, machines; and the table of cases."""
import time

import pytest

from guest import Disk, UmlGuest, packaged

from . import debian
from .machine import Machine, copy

CACHE_MIB = 160
ROWS = []


@pytest.fixture(scope="session")
def image():
    try:
        return debian.image()
    except (debian.Missing, packaged.Missing) as e:
        pytest.fail(str(e), pytrace=False)


def _make_root(directory, image, guest_of) -> None:
    """Both members of a volume with the image's root; `directory`/{clean,dirty}-{cache,origin}."""
    size = image.filesystem.stat().st_size / (1 << 20) + 64
    disks = [Disk(directory / "cache.img", CACHE_MIB << 20, "cache"),
             Disk(directory / "origin.img", int(size) << 20, "origin")]
    guest = guest_of(disks)
    guest.run("hybridctl create root --cache /dev/test/cache --origin /dev/test/origin "
              "--mode writeback -y --cutoff 0")
    guest.run(f"dd if={image.filesystem} of=/dev/mapper/root bs=1M oflag=direct status=none",
              timeout=300)
    for state in ("dirty", "clean"):
        if state == "clean":
            guest.run("hybridctl activate root && hybridctl drain root", timeout=300)
            guest.run("hybridctl set root mode=writethrough")
        guest.run("hybridctl deactivate root")
        for d in disks:
            copy(d.path, directory / f"{state}-{d.name}")
    guest.close()
    for d in disks:
        d.path.unlink()


@pytest.fixture(scope="session")
def roots(image, uml_kernel, guest_modules, tmp_path_factory):
    """A directory with the members of a root; cached beside the image."""
    def guest_of(disks):
        guest = UmlGuest(tmp_path_factory.mktemp("uml"), uml_kernel, disks=disks,
                         modules=guest_modules, path=[debian.TOP / "build/userspace"])
        guest.boot()
        guest.modprobe("dm-hybrid")
        return guest

    final = image.directory.with_name(image.directory.name.replace("boot-", "roots-"))
    with debian._made(final) as new:
        if new:
            _make_root(new, image, guest_of)
    return final


@pytest.fixture(scope="session")
def guest_modules():
    debian._make("guest-modules", "GUEST=uml")
    return debian.TOP / "build/guest-uml"


@pytest.fixture
def members(roots, tmp_path):
    """members("dirty"): copies of both, to be used up."""
    def make(state="dirty"):
        return {name: copy(roots / f"{state}-{name}", tmp_path / name)
                for name in ("cache", "origin")}
    return make


@pytest.fixture
def machine(image, tmp_path, request):
    """machine(kind, disks, ...): not started yet; ends with the test."""
    made = []

    def make(kind, disks, **options):
        made.append(Machine(tmp_path, image, kind, disks, **options))
        return made[-1]

    begin = time.monotonic()
    yield make
    for m in made:
        m.power_cut()
    request.node.user_properties += [("boot", [m.seconds for m in made if m.seconds]),
                                     ("took", time.monotonic() - begin)]


def _console(item):
    path = item.funcargs["tmp_path"] / "console.log"
    return path.read_text(errors="replace")[-8000:] if path.exists() else ""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and item.get_closest_marker("boot"):
        item.outcome = report.outcome
        if report.failed:
            report.sections.append(("console", _console(item)))
    if report.when == "teardown" and hasattr(item, "outcome"):
        report.user_properties = [("case", (item.obj.__doc__ or item.name).split("\n")[0]),
                                  ("outcome", item.outcome), *item.user_properties]


def pytest_runtest_logreport(report):
    properties = dict(report.user_properties)
    if report.when == "teardown" and "case" in properties:
        kind = report.nodeid.partition("[")[2].rstrip("]") or "-"
        ROWS.append((properties["case"], kind, properties["outcome"], properties.get("boot", []),
                     properties.get("took", 0.0)))


def pytest_terminal_summary(terminalreporter):
    """The table of cases."""
    if not ROWS:
        return
    terminalreporter.section("boots")
    for case, kind, outcome, boots, took in sorted(ROWS):
        times = ", ".join(f"{s:.0f}" for s in boots) or "-"
        terminalreporter.line(f"{case:<72} {kind:<16} {outcome:<7} {times:>9} s {took:5.0f} s")
