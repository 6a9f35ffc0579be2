# SPDX-License-Identifier: GPL-2.0-or-later
"""The demo's results: as text, and as an HTML page with pictures in SVG. Nothing is fetched."""
import html as escape
import math

ROWS = (
    ("read", "Random reads", "8 KiB, a few pages far more popular than others"),
    ("mix", "70 % reads, 30 % writes", "8 KiB"),
    ("write", "Durable random writes", "8 KiB, fdatasync after each 32"),
)
PHASES = ("bare", "cold", "warm", "after power cut")
PHASE_TEXT = {"bare": "bare disk", "cold": "cold cache", "warm": "warm cache",
              "after power cut": "after the power cut"}


def number(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u202f")


def rows(r: dict):
    """(job, phase, figures, times the bare disk's)"""
    for job, title, _ in ROWS:
        bare = r["load"]["bare"][job]["iops"]
        for phase in PHASES:
            figures = r["load"].get(phase, {}).get(job)
            if figures:
                yield job, title, phase, figures, figures["iops"] / bare if bare else 0


def text(r: dict) -> str:
    out = [f"{'':26}{'':21}{'a second':>10}{'times':>8}{'hits':>8}{'p50 ms':>9}{'p99 ms':>9}"]
    last = ""
    for _, title, phase, f, times in rows(r):
        hits = f"{f['hit_ratio']:.1%}" if "hit_ratio" in f else ""
        out.append(f"{title if title != last else '':26}{PHASE_TEXT[phase]:21}{f['iops']:>10,.0f}"
                   f"{times:>8.1f}{hits:>8}{f['p50_ms']:>9.2f}{f['p99_ms']:>9.2f}")
        last = title
    ledger = r["ledger"]
    out += ["", f"Power cut: {ledger['writes']} acknowledged page writes, "
                f"{r['lost_after_power_cut']} lost; {r['lost_on_the_disk_alone']} missing on the "
                f"disk alone after the drain.",
            f"Activation after the cut: {r['activate_seconds']:.1f} s. "
            f"Drain of {r['drained_blocks']} blocks: {r['drain_seconds']:.1f} s. "
            f"The demo took {r['seconds']} s."]
    return "\n".join(out)


# --- pictures -----------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; --paper: #fcfcfa; --ink: #1d2327; --soft: #5b656d;
  --line: #d9dcd8; --bare: #9aa3a9; --cold: #6d9fc4; --warm: #d9822b; --after: #b2559d;
  --card: #ffffff; --good: #2b7a3d; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181b; --ink: #e6e8e6; --soft: #9aa4ab;
  --line: #343a3f; --bare: #7c868d; --cold: #6aa5d1; --warm: #f0a04b; --after: #cf7fbc;
  --card: #1c2024; --good: #7bc98c; --bad: #f2867d; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem; }
p { margin: .4rem 0; } .soft { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem;
  margin: 1.4rem 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .8rem 1rem; }
.tile b { display: block; font-size: 1.9rem; line-height: 1.2; font-variant-numeric: tabular-nums; }
figure { margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: 1rem; overflow-x: auto; }
figcaption { color: var(--soft); font-size: .9rem; margin-top: .5rem; }
svg { display: block; width: 100%; height: auto; min-width: 34rem; }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; }
svg .soft { fill: var(--soft); } svg .grid { stroke: var(--line); stroke-width: 1; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .35rem .6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
th { color: var(--soft); font-weight: 600; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: 1rem;
  overflow-x: auto; font-size: .85rem; line-height: 1.4; }
.good { color: var(--good); } .bad { color: var(--bad); }
"""
COLOUR = {"bare": "var(--bare)", "cold": "var(--cold)", "warm": "var(--warm)",
          "warming": "var(--cold)", "after power cut": "var(--after)"}


class Log:
    """A logarithmic axis that begins with a whole decade."""

    def __init__(self, values, start: float, end: float):
        values = [v for v in values if v > 0] or [1]
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.log10(max(values) * 1.25), self.low + 1)
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        share = (math.log10(max(value, 10 ** self.low)) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self):
        return [10 ** k for k in range(self.low, math.floor(self.high) + 1)]


def bars(r: dict) -> str:
    every = list(rows(r))
    left, right, bar, gap = 190, 560, 20, 14
    axis = Log([f["iops"] for _, _, _, f, _ in every], left, right)
    parts, y, last = [], 8, ""
    for _, title, phase, f, times in every:
        if title != last:
            y += 0 if not last else gap
            parts.append(f'<text x="0" y="{y + 12}" font-weight="600">{title}</text>')
            y += 22
            last = title
        width = max(axis.at(f["iops"]) - left, 2)
        label = number(f["iops"]) + ("" if phase == "bare" else
                                     f'<tspan class="soft" dx="9">{times:.1f} times</tspan>')
        parts.append(
            f'<text x="{left - 8}" y="{y + 14}" text-anchor="end" class="soft">'
            f'{PHASE_TEXT[phase]}</text>'
            f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{bar - 3}" rx="2" '
            f'fill="{COLOUR[phase]}"/>'
            f'<text x="{left + width + 8:.1f}" y="{y + 13}">{label}</text>')
        y += bar
    grid = "".join(
        f'<line class="grid" x1="{axis.at(t):.1f}" y1="0" x2="{axis.at(t):.1f}" y2="{y + 4}"/>'
        f'<text class="soft" x="{axis.at(t):.1f}" y="{y + 20}" text-anchor="middle">{number(t)}'
        f'</text>' for t in axis.ticks())
    return (f'<svg viewBox="0 0 700 {y + 28}" role="img" aria-label="I/O a second on the bare disk, '
            f'with a cold and with a warm cache">{grid}{"".join(parts)}</svg>')


def curve(r: dict) -> str:
    """Reads a second, second by second, through the phases."""
    points, spans, second = [], [], 0
    for phase, values in r["curve"]:
        spans.append((phase, second, second + len(values)))
        points += [(phase, second + k + 0.5, v) for k, v in enumerate(values)]
        second += len(values)
    left, right, top, bottom = 60, 675, 26, 240	# half of the last label stands beyond right
    axis = Log([v for _, _, v in points] + [r["bare_iops"]], bottom, top)
    bare_y = axis.at(r["bare_iops"])

    def x(t: float) -> float:
        return left + (right - left) * t / max(second, 1)

    parts = [f'<line class="grid" x1="{left}" y1="{axis.at(t):.1f}" x2="{right}" '
             f'y2="{axis.at(t):.1f}"/><text class="soft" x="{left - 8}" y="{axis.at(t) + 4:.1f}" '
             f'text-anchor="end">{number(t)}</text>' for t in axis.ticks()]
    shown = ""
    for phase, start, end in spans:
        if phase != shown:
            # The last name may be longer than its phase.
            at, anchor = (x(start) + 5, "start") if x(start) < right - 110 else (right + 25, "end")
            parts.append(f'<line class="grid" x1="{x(start):.1f}" y1="{top}" x2="{x(start):.1f}" '
                         f'y2="{bottom}"/><text x="{at:.1f}" y="{top - 9}" text-anchor="{anchor}">'
                         f'{escape.escape(phase)}</text>')
        shown = phase
        path = " ".join(f"{x(t):.1f},{axis.at(v):.1f}" for p, t, v in points if start <= t < end)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{COLOUR[phase]}" '
                     f'stroke-width="2.5" stroke-linejoin="round"/>')
    parts.append(f'<line x1="{left}" y1="{bare_y:.1f}" x2="{right}" y2="{bare_y:.1f}" '
                 f'stroke="var(--bare)" stroke-dasharray="5 4"/>'
                 f'<text class="soft" x="{right}" y="{bare_y - 6:.1f}" text-anchor="end">'
                 f'bare disk, mean</text>')
    parts += [f'<text class="soft" x="{x(t):.1f}" y="{bottom + 18}" text-anchor="middle">{t} s</text>'
              for t in range(0, second + 1, 10)]
    return (f'<svg viewBox="0 0 700 {bottom + 26}" role="img" aria-label="Reads a second while the '
            f'cache warms up">{"".join(parts)}</svg>')


def table(r: dict) -> str:
    out = ["<table><tr><th>Load<th>On<th>a second<th>times<th>hits<th>median<th>99 %</tr>"]
    last = ""
    for _, title, phase, f, times in rows(r):
        hits = f"{f['hit_ratio']:.1%}" if "hit_ratio" in f else ""
        out.append(f"<tr><td>{title if title != last else ''}<td>{PHASE_TEXT[phase]}"
                   f"<td>{number(f['iops'])}<td>{times:.1f}<td>{hits}"
                   f"<td>{f['p50_ms']:.2f} ms<td>{f['p99_ms']:.2f} ms</tr>")
        last = title
    return "\n".join([*out, "</table>"])


def tile(value: str, text: str, kind: str = "") -> str:
    return f'<div class="tile"><b class="{kind}">{value}</b><span class="soft">{text}</span></div>'


def html(r: dict) -> str:
    ledger = r["ledger"]
    lost = r["lost_after_power_cut"]
    times = r["warm_iops"] / r["bare_iops"], r["write_iops"] / r["write_bare_iops"]
    missed = "".join(f'<li class="bad">{escape.escape(m)}</li>' for m in r["missed"])
    loads = "; ".join(f"{title}: {what}" for _, title, what in ROWS)
    return f"""<!DOCTYPE html>
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>dm-hybrid: a run of make demo</title><style>{STYLE}</style></head><body><main>
<h1>A slow disk behind a fast one</h1>
<p class="soft">One run of <code>make demo</code>: a database-like load in a guest (Linux
{escape.escape(r['kernel'])}, {r['filesystem']}) on a modelled disk of 7,200 rpm, alone and cached by dm-hybrid
on a modelled SATA SSD. All figures are from this run, which took {r['seconds']} s.</p>
{f'<ul>{missed}</ul>' if missed else ''}
<div class="tiles">
{tile(f"{times[0]:.0f}×", "random reads, warm against bare")}
{tile(f"{times[1]:.0f}×", "durable random writes")}
{tile(f"{r['hit_ratio']:.1%}", "of the reads are hits when warm")}
{tile(str(lost), f"lost of {number(ledger['writes'])} acknowledged page writes after a power cut",
      "bad" if lost else "good")}
</div>
<h2>I/O a second</h2>
<figure>{bars(r)}<figcaption>The axis is logarithmic. The same fio job ran with the same seed on the bare
disk and on the warm cache, each for some seconds; on the empty cache for its first {number(r['cold_reads'])} reads, and
after a power cut for {number(r['after_cut_reads'])} reads.</figcaption></figure>
<h2>Reads a second while the cache warms up</h2>
<figure>{curve(r)}<figcaption>Each point is the mean of one second; the axis is logarithmic. The writes, the
cut and a new boot lie between "warm" and "after power cut".</figcaption></figure>
<h2>Figures</h2>
<div class="wide">{table(r)}</div>
<p class="soft">{escape.escape(loads)}. Direct I/O, 16 requests at a time, tables of 256 MiB. Latencies are
of reads; in the rows of durable writes, of writes.</p>
<h2>The power cut</h2>
<p>Four writers changed random pages, called fdatasync, and noted each acknowledged transaction on another
device, while the database load ran beside them. The guest was killed in the middle. Disk and SSD each lost
writes that they had not been told to flush. At that moment {number(r['dirty_blocks_at_power_cut'])} cache
blocks held data that the disk did not have.</p>
<p>After the next boot <code>hybridctl activate</code> took {r['activate_seconds']:.1f} s. Of
{number(ledger['transactions'])} acknowledged transactions with {number(ledger['writes'])} page writes
{ledger['lost']} sectors were lost and {ledger['damaged']} damaged. Then <code>hybridctl drain</code> wrote
back {number(r['drained_blocks'])} dirty blocks in {r['drain_seconds']:.1f} s. On the disk alone, without its
cache, {r['lost_on_the_disk_alone']} acknowledged sectors were lost or damaged, and the file system was
sound.</p>
<h2>hybridctl status, warm</h2>
<pre>{escape.escape(r['status'])}</pre>
</main></body></html>
"""
