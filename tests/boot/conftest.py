# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for boots: an image, a root on a volume, machines; and the table of cases."""
import pytest

from guest import UmlGuest, packaged

from . import debian, volumes
from .machine import Machine, copy

ROWS = []


@pytest.fixture(scope="session")
def image(request):
    """Debian 12, or the suite that is asked for by parametrize(..., indirect=True)."""
    try:
        return debian.image(getattr(request, "param", "bookworm"))
    except (debian.Missing, packaged.Missing) as e:
        pytest.fail(str(e), pytrace=False)


@pytest.fixture(scope="session")
def guest_of(uml_kernel, guest_modules, tmp_path_factory):
    """guest_of(disks): a guest that can make volumes of them."""
    def make(disks):
        guest = UmlGuest(tmp_path_factory.mktemp("uml"), uml_kernel, disks=disks,
                         modules=guest_modules, path=[debian.TOP / "build/userspace"])
        guest.boot()
        guest.modprobe("dm-hybrid")
        return guest

    return make


@pytest.fixture(scope="session")
def roots(image, guest_of):
    """A directory with the members of a root; cached beside the image."""
    return volumes.roots(image, guest_of)


@pytest.fixture(scope="session")
def stacks(image, guest_of):
    """The same of roots on LVM and on LUKS."""
    return volumes.stacks(image, guest_of)


@pytest.fixture(scope="session")
def guest_modules():
    debian._make("guest-modules", "GUEST=uml")
    return debian.TOP / "build/guest-uml"


def _copies(directory, tmp_path, prefix, names):
    return {name: copy(directory / f"{prefix}-{name}", tmp_path / name) for name in names}


@pytest.fixture
def members(roots, tmp_path):
    """members("dirty"): copies of both, to be used up."""
    return lambda state="dirty": _copies(roots, tmp_path, state, ("cache", "origin"))


@pytest.fixture
def data(roots, tmp_path):
    """data("dirty"): the same of a volume beside it."""
    return lambda state="dirty": _copies(roots, tmp_path, state, ("data-cache", "data-origin"))


@pytest.fixture
def stack(stacks, tmp_path):
    """stack("lvm"): copies of both members."""
    return lambda name, *more: _copies(stacks, tmp_path, name, ("cache", "origin", *more))


@pytest.fixture
def machine(image, tmp_path, request):
    """machine(kind, disks, ...): not started yet; ends with the test.  image=: another one."""
    made = []

    def make(kind, disks, image=image, **options):
        made.append(Machine(tmp_path, image, kind, disks, **options))
        return made[-1]

    yield make
    for m in made:
        m.power_cut()
    request.node.user_properties.append(("boot", [m.seconds for m in made if m.seconds]))


def _console(item):
    path = item.funcargs["tmp_path"] / "console.log"
    return path.read_text(errors="replace")[-8000:] if path.exists() else ""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.when == "call" and item.get_closest_marker("boot"):
        item.outcome, item.took = report.outcome, report.duration
        if report.failed:
            report.sections.append(("console", _console(item)))
    if report.when == "teardown" and hasattr(item, "outcome"):
        report.user_properties = [("case", item.obj.__doc__ or item.name),
                                  ("outcome", item.outcome), ("took", item.took),
                                  *item.user_properties]


def pytest_runtest_logreport(report):
    properties = dict(report.user_properties)
    if report.when == "teardown" and "case" in properties:
        kind = report.nodeid.partition("[")[2].rstrip("]") or "-"
        ROWS.append((properties["case"], kind, properties["outcome"], properties.get("boot", []),
                     properties["took"]))


def pytest_terminal_summary(terminalreporter):
    """The table of cases."""
    if not ROWS:
        return
    terminalreporter.section("boots")
    for cases, kind, outcome, boots, took in sorted(ROWS):
        times = f"{', '.join(f'{s:.0f}' for s in boots)} s" if boots else ""
        first, *others = [line.strip() for line in cases.strip().splitlines()]
        terminalreporter.line(f"{first:<80} {kind:<24} {outcome:<7} {times:>10} {took:5.0f} s")
        for case in others:
            terminalreporter.line(f"{case:<80} {kind:<24} {outcome}")
