# SPDX-License-Identifier: GPL-2.0-or-later
"""Results as text, as Markdown, and as a page with plots. Nothing is fetched."""
import html as escape
import re
from typing import Iterator

from demo.report import STYLE, Log
from figures import (ALL, COSTS, DEVICES, DISK, HARDWARE, LATENCIES, LIMIT, MEASURED, MORE, OURS, ROWS, STACKS,
                     Goal, Row, Runs, latency, value)

TEXT = {DISK: "disk", LIMIT: "limit", OURS: "**dm-hybrid**", "hybrid-wt": "dm-hybrid wt",
        "hybrid-wb-16": "dm-hybrid 16k", "hybrid-wb-64": "dm-hybrid 64k",
        "dmcache-wb-64": "dm-cache wb 64k", "dmcache-wb-256": "dm-cache wb 256k",
        "dmcache-wt-64": "dm-cache wt 64k", "dmcache-wt-256": "dm-cache wt 256k",
        "bcache-wb": "bcache wb", "bcache-wb-tuned": "bcache wb tuned", "writecache": "writecache",
        "writeboost": "writeboost"}
# Rows that the Markdown also shows as bars
PLOTTED = ("mixed", "fsync", "boot2", "zipf3", "zoned3", "reread2", "yabs-4k", "oltp-data", "oltp-log", "burst")
LATENCY_TEXT = "Milliseconds: median / p99 / p99.9 / worst. Misses come four at a time, hits and fsyncs one."
# Class of a bar, and its text in the legend
LEGEND = {"bare": "the disk alone", "limit": "the SSD alone: the limit", "peer": "other caches",
          "variant": "dm-hybrid, other modes and block sizes", "ours": "dm-hybrid with its defaults",
          "goal": "the goal"}
KINDS = {DISK: "bare", LIMIT: "limit", OURS: "ours"}
PAGE_STYLE = """
main { max-width: 80rem; } h3 { font-size: .95rem; margin: 0 0 .6rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1rem; }
.plots svg { min-width: 0; } svg .tick { font-size: 11px; }
.bare { fill: var(--bare); } .limit { fill: var(--after); } .peer { fill: var(--cold); }
.ours { fill: var(--warm); } .variant { fill: var(--warm); fill-opacity: .45; }
line.goal { stroke: var(--ink); stroke-width: 1.5; stroke-dasharray: 4 3; }
details { margin: .4rem 0; } summary { cursor: pointer; } details table { font-size: .85rem; }
details th { white-space: normal; vertical-align: bottom; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; margin: .8rem 0; font-size: .9rem; }
.legend svg { display: inline; width: 1rem; min-width: 0; margin-right: .4rem; vertical-align: -.1rem; }
"""


def shown(v: float | None, form: str) -> str:
    return "-" if v is None else format(v, form)


def gate(goals: list[Goal]) -> str:
    """A line for each gating metric."""
    out = [f"{'metric':34}{'value':>10}{'best peer':>11}{'limit':>10}{'goal':>10}"]
    for g in goals:
        cells = [shown(v, g.form) for v in (g.value, g.peer, g.limit, g.goal)]
        out.append("{:34}{:>10}{:>11}{:>10}{:>10}  {}".format(g.name, *cells, g.verdict))
    return "\n".join(out)


def _label(goal: Goal) -> str:
    """The name of the goal, in the words of the tables."""
    name, _, rest = goal.name.partition(", ")
    return f"{ALL[name].text}{rest and ', '}{rest}" if name in ALL else goal.name


def _cells(goal: Goal) -> list[str]:
    wanted = shown(goal.goal, goal.form)
    return [*(shown(v, goal.form) for v in (goal.value, goal.peer, goal.limit)),
            wanted if goal.goal is None else f"{'≤' if goal.lower else '≥'} {wanted}"]


def _stacks(runs: Runs) -> list[str]:
    return [s for s in STACKS + MORE if any(stack == s for stack, _ in runs)]


def _lines(runs: Runs, rows: list[Row]) -> list[list[str]]:
    """For each row its text, without the part in common with the row before, and a figure for each stack."""
    out, last = [], ""
    for row in rows:
        cells = [value(runs, s, row) for s in _stacks(runs)]
        if any(c is not None for c in cells):
            common, _, rest = row.text.partition(": ")
            out.append([f"... {rest}" if rest and common == last else row.text,
                        *(shown(c, row.form) for c in cells)])
            last = common
    return out


def table(runs: Runs, rows: dict[str, Row]) -> list[str]:
    return _markdown([["", *(TEXT[s] for s in _stacks(runs))], *_lines(runs, rows.values())])


def _markdown(lines: list[list[str]]) -> list[str]:
    out = [f"| {' | '.join(line)} |" for line in lines]
    return [out[0], "|---|" + "---:|" * (len(lines[0]) - 1), *out[1:]]


def _ms(v: float) -> str:
    return f"{v:,.0f}" if v >= 100 else f"{v:.2g}"


def _latencies(runs: Runs) -> Iterator[tuple[str, list[list[str]]]]:
    """For each hardware its name and a table."""
    for hardware in MEASURED:
        work = f"latency@{hardware}"
        stacks = [s for s in _stacks(runs) if (s, work) in runs]
        if stacks:
            yield HARDWARE[hardware], [["", *(TEXT[s] for s in stacks)]] + [
                [row.text, *(" / ".join(map(_ms, v)) if (v := latency(runs, s, work, row)) else "-" for s in stacks)]
                for row in LATENCIES]


def latencies(runs: Runs) -> list[str]:
    out = []
    for title, lines in _latencies(runs):
        out += [f"### {title}", "", *_markdown(lines), ""]
    return out


def markdown(runs: Runs, goals: list[Goal], about: str) -> str:
    out = ["<!-- SPDX-License-Identifier: GPL-2.0-or-later -->", "# Benchmark results", "", about, "",
           "## I/O a second", "", *table(runs, ROWS), "", "## Costs", "",
           *table(runs, COSTS), "", "## Latency", "", LATENCY_TEXT, "", *latencies(runs), "## Goals", "",
           "| | dm-hybrid | best peer | limit | goal | |", "|---|---:|---:|---:|---:|---|"]
    out += [f"| {_label(g)} | {' | '.join(_cells(g))} | {g.verdict} |" for g in goals]
    out += ["", "## As bars", "", "The bars are logarithmic. `build/bench/index.html` has all rows.", "",
            "```"]
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
    return [row.text] + [
        f"  {TEXT[stack].strip('*'):17}{shown(v, row.form):>8}  {'#' * max(1, round(axis.at(v)))}"
        for stack, v in values]


class Linear:
    """An axis from 0."""

    def __init__(self, values, start: float, end: float):
        self.start, self.scale = start, (end - start) / (max(values) or 1)

    def at(self, value: float) -> float:
        return self.start + value * self.scale

    def ticks(self):
        return [0]


def kind(stack: str) -> str:
    return KINDS.get(stack) or ("variant" if stack.startswith(OURS) else "peer")


def _plot(runs: Runs, name: str, goal: float | None) -> str:
    """One row of the table as bars."""
    row, values = ALL[name], _values(runs, name)
    left, right, end, height = 140, 470, 536, 20
    bottom = len(values) * height
    axis = (Linear if name in COSTS else Log)(
        [v for _, v in values] + [goal or 0], left, right)
    parts = [f'<line class="grid" x1="{x}" y1="0" x2="{x}" y2="{bottom}"/><text class="soft tick" '
             f'x="{x}" y="{bottom + 14}" text-anchor="middle">{t:,}</text>'
             for t in axis.ticks() for x in [round(axis.at(t))]]
    for n, (stack, v) in enumerate(values):
        width, y = max(axis.at(v) - left, 2), n * height
        weight = ' font-weight="600"' if stack == OURS else ' class="soft"'
        parts.append(
            f'<text{weight} x="{left - 8}" y="{y + 14}" text-anchor="end">{TEXT[stack].strip("*")}</text>'
            f'<rect class="{kind(stack)}" x="{left}" y="{y}" width="{width:.1f}" '
            f'height="{height - 3}" rx="2"/>'
            f'<text x="{end}" y="{y + 14}" text-anchor="end">{shown(v, row.form)}</text>')
    if goal is not None:
        parts.append(f'<line class="goal" x1="{axis.at(goal):.1f}" y1="0" '
                     f'x2="{axis.at(goal):.1f}" y2="{bottom}"/>')
    title = escape.escape(row.text)
    return (f'<figure><h3>{title}</h3><svg viewBox="0 0 540 {bottom + 20}" role="img" '
            f'aria-label="{title}">{"".join(parts)}</svg></figure>')


def _legend() -> str:
    def sample(name):
        return '<line class="goal" x1="5" y1="0" x2="5" y2="10"/>' if name == "goal" else \
            f'<rect class="{name}" width="10" height="10" rx="2"/>'
    return "".join(f'<span><svg viewBox="0 0 10 10" aria-hidden="true">{sample(name)}</svg>{text}</span>'
                   for name, text in LEGEND.items())


def _devices(runs: Runs) -> str:
    """Activity of the devices, a table for each kind."""
    head = ["", *(TEXT[s] for s in _stacks(runs))]
    return "".join(
        _folded(text, [head, *_lines(runs, [row._replace(figure=figure, form=form) for row in ROWS.values()])])
        for text, (figure, form) in DEVICES.items())


def _folded(text: str, lines: list[list[str]]) -> str:
    """A table that opens at a click."""
    head = "".join(f"<th>{cell.strip('*')}" for cell in lines[0])
    body = "".join(f"<tr>{''.join(f'<td>{escape.escape(cell)}' for cell in line)}</tr>" for line in lines[1:])
    return (f'<details><summary>{text}</summary><div class="wide"><table><tr>{head}</tr>{body}</table></div>'
            "</details>")


def html(runs: Runs, goals: list[Goal], about: str) -> str:
    wanted = {g.name: g.goal for g in goals}
    plots = {rows: "".join(_plot(runs, name, wanted.get(name)) for name in names if _values(runs, name))
             for rows, names in (("rows", ROWS), ("costs", COSTS))}
    lines = "".join(
        f"<tr><td>{escape.escape(_label(g))}<td>" + "".join(f"<td>{c}" for c in _cells(g))
        + f'<td class="{"good" if g.verdict == "ok" else "bad"}">{g.verdict}</tr>' for g in goals
        if g.value is not None)
    about = re.sub("`(.*?)`", r"<code>\1</code>", escape.escape(about))
    return f"""<!DOCTYPE html>
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>dm-hybrid and its peers</title><style>{STYLE}{PAGE_STYLE}</style></head><body><main>
<h1>dm-hybrid and its peers</h1>
<p class="soft">{about}</p>
<p class="legend">{_legend()}</p>
<h2>I/O a second: more is better</h2><p class="soft">The axis is logarithmic: a slightly longer bar
stands for a much higher figure.</p>
<div class="plots">{plots["rows"]}</div>
<h2>Costs: less is better</h2><p class="soft">The axis is linear, from zero.</p>
<div class="plots">{plots["costs"]}</div>
<h2>Latency</h2><p class="soft">{LATENCY_TEXT}</p>
{"".join(_folded(title, lines) for title, lines in _latencies(runs))}
<h2>Activity of the devices</h2>{_devices(runs)}
<h2>Goals</h2><div class="wide"><table>
<tr><th>Metric<th><th>dm-hybrid<th>best peer<th>limit<th>goal<th></tr>{lines}</table></div>
</main></body></html>
"""
