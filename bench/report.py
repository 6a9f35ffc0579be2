# SPDX-License-Identifier: GPL-2.0-or-later
"""Results as text, as Markdown, and as a page with plots. Nothing is fetched."""
import html as escape

from demo.report import STYLE, Log
from figures import ALL, COSTS, DISK, LIMIT, OURS, ROWS, STACKS, Goal, Runs, value

TEXT = {DISK: "disk", LIMIT: "limit", OURS: "**dm-hybrid**", "hybrid-wt": "dm-hybrid wt",
        "dmcache-wb-64": "dm-cache wb 64k", "dmcache-wb-256": "dm-cache wb 256k",
        "dmcache-wt-64": "dm-cache wt 64k", "dmcache-wt-256": "dm-cache wt 256k",
        "bcache-wb": "bcache wb", "bcache-wb-tuned": "bcache wb tuned", "writecache": "writecache",
        "writeboost": "writeboost"}
# What the Markdown has as bars, too
PLOTTED = ("mixed", "fsync", "boot2", "zipf3", "zoned3", "reread2", "yabs-4k", "oltp-data", "oltp-log", "burst")
COLOUR = {DISK: "var(--bare)", LIMIT: "var(--line)", OURS: "var(--warm)", "hybrid-wt": "var(--warm)"}


def shown(v: float | None, form: str) -> str:
    return "-" if v is None else format(v, form)


def gate(goals: list[Goal]) -> str:
    """A line for each gating metric."""
    out = [f"{'metric':34}{'value':>10}{'best peer':>11}{'limit':>10}{'goal':>10}"]
    for g in goals:
        cells = [shown(v, g.form) for v in (g.value, g.peer, g.limit, g.goal)]
        out.append("{:34}{:>10}{:>11}{:>10}{:>10}  {}".format(g.name, *cells, g.verdict))
    return "\n".join(out)


def _stacks(runs: Runs) -> list[str]:
    return [s for s in STACKS if any(stack == s for stack, _ in runs)]


def _table(runs: Runs, rows: dict) -> list[str]:
    stacks = _stacks(runs)
    out = ["| | " + " | ".join(TEXT[s] for s in stacks) + " |",
           "|---|" + "---:|" * len(stacks)]
    for name, row in rows.items():
        cells = [value(runs, s, name) for s in stacks]
        if any(c is not None for c in cells):
            out.append(f"| {row.text} | " + " | ".join(shown(c, row.form) for c in cells) + " |")
    return out


def markdown(runs: Runs, goals: list[Goal], about: str) -> str:
    out = ["<!-- SPDX-License-Identifier: GPL-2.0-or-later -->", "# Measured", "", about, "",
           "## I/O a second", "", *_table(runs, ROWS), "", "## What it costs", "",
           *_table(runs, COSTS), "", "## Goals", "",
           "| | dm-hybrid | best peer | limit | goal | |", "|---|---:|---:|---:|---:|---|"]
    for g in goals:
        cells = " | ".join(shown(v, g.form) for v in (g.value, g.peer, g.limit, g.goal))
        out.append(f"| {g.name} | {cells} | {g.verdict} |")
    out += ["", "## As bars", "", "Logarithmic; `build/bench/index.html` has all of them.", "", "```"]
    for name in PLOTTED:
        out += text_bars(runs, name) + [""] if _values(runs, name) else []
    return "\n".join(out).rstrip() + "\n```\n"


def _values(runs: Runs, name: str) -> list[tuple[str, float]]:
    """One row of the table."""
    return [(s, v) for s in _stacks(runs) if (v := value(runs, s, name)) is not None]


def text_bars(runs: Runs, name: str, width: int = 40) -> list[str]:
    """One row as bars of text, logarithmic."""
    row, values = ALL[name], _values(runs, name)
    axis = Log([v for _, v in values], 0, width)
    return [_titles()[name]] + [
        f"  {TEXT[stack].strip('*'):17}{shown(v, row.form):>8}  {'#' * max(1, round(axis.at(v)))}"
        for stack, v in values]


def _bars(runs: Runs, name: str) -> str:
    """One row of the table as bars, logarithmic."""
    row, values = ALL[name], _values(runs, name)
    left, right, height = 140, 560, 20
    axis = Log([v for _, v in values], left, right)
    parts = []
    for n, (stack, v) in enumerate(values):
        width = max(axis.at(v) - left, 2)
        parts.append(
            f'<text class="soft" x="{left - 8}" y="{n * height + 14}" text-anchor="end">'
            f'{TEXT[stack].strip("*")}</text><rect x="{left}" y="{n * height}" width="{width:.1f}" '
            f'height="{height - 3}" rx="2" fill="{COLOUR.get(stack, "var(--cold)")}"/>'
            f'<text x="{left + width + 8:.1f}" y="{n * height + 14}">{shown(v, row.form)}</text>')
    return (f'<figure><svg viewBox="0 0 700 {len(values) * height + 4}" role="img" '
            f'aria-label="{escape.escape(row.text)}">{"".join(parts)}</svg></figure>')


def _titles() -> dict[str, str]:
    """Rows' texts, where "..." goes on with the one before."""
    found, last = {}, ""
    for name, row in ALL.items():
        if row.text.startswith("... "):
            found[name] = f"{last.removesuffix(', window 1')}: {row.text[4:]}"
        else:
            found[name] = last = row.text
    return found


def html(runs: Runs, goals: list[Goal], about: str) -> str:
    titles = _titles()
    plots = "".join(f"<h3>{escape.escape(titles[name])}</h3>{_bars(runs, name)}" for name in ALL
                    if any(value(runs, s, name) is not None for s in _stacks(runs)))
    lines = "".join(
        f"<tr><td>{escape.escape(g.name)}<td>"
        + "".join(f"<td>{shown(v, g.form)}" for v in (g.value, g.peer, g.limit, g.goal))
        + f'<td class="{"good" if g.verdict == "ok" else "bad"}">{g.verdict}</tr>' for g in goals)
    return f"""<!DOCTYPE html>
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>dm-hybrid and its peers</title><style>{STYLE}</style></head><body><main>
<h1>dm-hybrid and its peers</h1>
<p class="soft">{escape.escape(about)}</p>
<h2>Goals</h2><div class="wide"><table>
<tr><th>Metric<th><th>dm-hybrid<th>best peer<th>limit<th>goal<th></tr>{lines}</table></div>
<h2>Side by side</h2><p class="soft">Bars are logarithmic. Limit: the SSD alone.</p>
{plots}
</main></body></html>
"""
