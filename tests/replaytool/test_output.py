# SPDX-License-Identifier: GPL-2.0-or-later
"""The table, the advice in words, the chart."""
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from . import traces

PAGE = Path(__file__).resolve().parents[2] / "man/hybrid_replay.8.scd.in"
SVG = "{http://www.w3.org/2000/svg}"


def test_table(replay):
    r = replay.run(traces.text(traces.zipf(3000, 5000, writes=0.5)), "--size", "25%,4m",
                   "--block-size", "4k,64k", "--policy", "lru,fifo")
    rows = [line.split() for line in r.stdout.decode().splitlines() if re.match(r"lru|fifo", line)]
    assert [row[:2] for row in rows] == [[p, b] for p in ("lru", "fifo") for b in ("4.00k", "64.00k")
                                         for _ in range(2)]
    assert all(0 <= float(row[4]) <= 1 and row[3] != "0.0" for row in rows)
    assert "the disk alone: 1.000 operations" in r.stdout.decode()


def test_words(replay):
    r = replay.run(traces.text(traces.zipf(3000, 5000, writes=0.5)), "--curve", "--mode", "writeback")
    said = r.stdout.decode()
    for word in "How much: ", "Blocks: ", "Life: ", " of RAM", "worn out after: ":
        assert word in said
    assert "nan" not in said and "inf" not in said


def test_a_chart_of_tiny_caches(replay, tmp_path):
    """Less than 1 KiB is bytes."""
    replay.json(traces.text(traces.loop(10, 10)), "--size", "600,1200", "--block-size", "1m", "--svg", "out.svg")
    words = [t.text for t in ElementTree.fromstring((tmp_path / "out.svg").read_text()).iter(SVG + "text")]
    assert "512 B" in words and "2 KiB" in words and "c2q 1 MiB" in words


def test_words_where_no_cache_helps(replay):
    said = replay.run(traces.text(traces.apart(traces.loop(4000, 4000))), "--curve",
                      "--block-size", "4k").stdout
    assert b"No cache helps" in said


def test_chart(replay, tmp_path):
    """Self-contained; each point stands where its value is, by the ticks of the axes."""
    name = 'a<b>&"\x1b.txt'
    result = replay.json(traces.text(traces.zipf(3000, 50_000)), "--curve", "--block-size", "4k,64k",
                         "--svg", "out.svg", name=name)
    text = (tmp_path / "out.svg").read_text()
    assert text.isascii() and "href" not in text and "url(" not in text and "\x1b" not in text
    root = ElementTree.fromstring(text)
    words = [t.text for t in root.iter(SVG + "text")]
    assert 'a<b>&"?.txt' in words and "c2q 4 KiB" in words and "c2q 64 KiB" in words
    lines = [[tuple(map(float, p.split(","))) for p in line.get("points").split()]
             for line in root.iter(SVG + "polyline")]
    assert len(lines) == 4
    series = [[c for c in result["caches"] if c["block_size"] == b] for b in (4096, 65536)]
    xs = {t.text: float(t.get("x")) for t in root.iter(SVG + "text") if t.get("class") == "m"}
    ticks = {x: float(k.split()[0]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[k.split()[1][0]]
             for k, x in xs.items() if "iB" in k}
    (x0, b0), (x1, b1) = sorted(ticks.items())[0], sorted(ticks.items())[-1]
    ys = [float(t.get("y")) - 4 for t in root.iter(SVG + "text") if t.get("class") == "e"][:6]
    from math import log2
    for points, caches in zip(lines[:2], series):
        assert len(points) == len(caches)
        for (x, y), c in zip(points, caches):
            at = (log2(c["size"]) - log2(b0)) / (log2(b1) - log2(b0))
            assert abs(x - (x0 + at * (x1 - x0))) < 0.2
            miss = c["miss_ratio_requests"]["all"]
            assert abs(y - (ys[0] + miss * (ys[5] - ys[0]))) < 0.2


def figure(word: str) -> float | None:
    """None: it is no figure."""
    m = re.fullmatch(r"\(?([\d.]*\d)([bkmgt%]?)[,.:)]?", word)
    return float(m[1]) * 1024 ** ("bkmgt".find(m[2] or "b") if m[2] != "%" else 0) if m else None


EXAMPLES = re.findall(r"^```\n\$ hybrid_replay trace.txt (.*)\n((?s:.*?))^```", PAGE.read_text(), re.M)


@pytest.mark.parametrize("args,shown", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_of_the_page(replay, args, shown):
    """What it shows is what is printed, give or take a tenth: the engine may learn."""
    r = replay.run(traces.text(traces.EXAMPLES["mail"]()), *args.split())
    assert r.returncode == 0, r.stderr.decode()
    said = r.stdout.decode()
    said = said[said.index(shown.split(None, 1)[0] + " "):]
    pairs = list(zip(shown.split(), said.split(), strict=True))
    assert len(pairs) > 50
    for old, new in pairs:
        if figure(old) is None:
            assert old == new, (old, new)
        else:
            assert figure(new) == pytest.approx(figure(old), rel=0.1), (old, new)


def test_there_are_examples():
    assert len(EXAMPLES) == 2
