# SPDX-License-Identifier: GPL-2.0-or-later
"""`make check-stacks` ends with a table: what each stack gained over its bare disks."""
import pytest

from boot.test_udev import installed	# noqa: F401 (fixture)

from stacks.machine import Machine


@pytest.fixture
def machine(request, installed, tmp_path, record_property):	# noqa: F811
    """machine(hdd=4, hdd_mib=256, ssd=1, ssd_mib=128): switched on, with modelled disks.

    In User Mode Linux; guest="make_qemu_guest": with Debian's own kernel.
    """
    machines = []

    def make(guest="make_guest", **options):
        m = Machine(request.getfixturevalue(guest), installed, tmp_path, record_property, **options)
        machines.append(m)
        return m

    yield make
    for m in machines:
        if m.guest.running:
            assert "ordering cycle" not in m.journal()


def pytest_terminal_summary(terminalreporter):
    rows = [(report, value) for kind in ("passed", "failed") for report in
            terminalreporter.stats.get(kind, []) for key, value in report.user_properties
            if key == "stack" and report.when == "call"]
    if not rows:
        return
    terminalreporter.section("stacks: the same work on the bare disks and through a warm cache")
    line = "{:<34} {:<38} {:>7} {:>7} {:>7} {:>7} {:>9} {:>7}  {}"
    terminalreporter.line(line.format("stack", "work", "bare s", "first s", "warm s", "faster",
                                      "disk I/Os", "warm", ""))
    for report, r in sorted(rows, key=lambda row: row[1]["stack"]):
        terminalreporter.line(line.format(
            r["stack"], r["work"], *(f"{r[k][0]:.1f}" for k in ("bare", "cold", "warm")),
            f"{r['bare'][0] / r['warm'][0]:.1f} x", r["bare"][1], r["warm"][1], report.outcome))
