# SPDX-License-Identifier: GPL-2.0-or-later
"""`make check-packages` ends with a table of what was tried."""
import pytest

ROWS = []


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if item.get_closest_marker("packages") and (report.when == "call" or report.outcome != "passed"):
        ROWS.append((item.obj.__doc__, report.outcome, call.duration))


def pytest_terminal_summary(terminalreporter):
    if ROWS:
        terminalreporter.section("packages")
    for case, outcome, took in ROWS:
        terminalreporter.line(f"{case:<90} {outcome:<7} {took:5.0f} s")
