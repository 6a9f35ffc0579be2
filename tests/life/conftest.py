# SPDX-License-Identifier: GPL-2.0-or-later
"""`make check-life` ends with its table: of each fate, how many lines ended well, and how many lost data."""
from kernel.conftest import tools	# noqa: F401 (fixture)

from .rows import FATES, WANTS


def pytest_terminal_summary(terminalreporter):
    rows = {}
    for outcome in "passed", "failed":
        for report in terminalreporter.stats.get(outcome, []):
            found = dict(report.user_properties).get("life")
            if found and report.when == "call":
                rows.setdefault((found["fate"], found["data"], found["want"]), []).append((outcome, found["lost"]))
    if not rows:
        return
    terminalreporter.section("a cache device's end: lines that ended as wanted / of; data lost, and listed, in (n)")
    terminalreporter.line(f"{'cache device':<14} {'data':<6}" + "".join(f"{want:>16}" for want in WANTS))
    for fate in FATES:
        for data in "clean", "dirty":
            cells = [rows.get((fate, data, want), []) for want in WANTS]
            terminalreporter.line(f"{fate:<14} {data:<6}" + "".join(f"{cell(c):>16}" for c in cells))


def cell(results):
    lost = sum(bool(lost) for _, lost in results)
    good = sum(outcome == "passed" for outcome, _ in results)
    return f"{good}/{len(results)}" + (f" ({lost})" if lost else "") if results else "-"
