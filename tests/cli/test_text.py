# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables, status and messages: what is built parses back, what is wrong does not."""
import random
import re
from pathlib import Path

import pytest

DOC = (Path(__file__).resolve().parents[2] /
       "dm-hybrid/Documentation/dm-hybrid.rst").read_text()
UUID = "0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1aa"
UUID2 = "11111111-2222-3333-4444-555555555555"


def through(driver, kind, lines):
    r = driver("lines", stdin="".join(f"{kind} {line}\n" for line in lines))
    assert r.returncode == 0, r.stderr
    return r.stdout.splitlines()


def keys(section, heading):
    """First column of a status table of dm-hybrid.rst."""
    part = DOC[DOC.index("\nStatus\n======"):]
    part = part[part.index(f"\n{heading}\n"):]
    part = part.split("======================")[1:4]
    text = "".join(part)
    return re.findall(r"^([a-z_]+) +\S", text, re.M)


POOL_TABLES = [
    "/dev/sdb 128 0 lru 0",
    "253:0 128 0 lru 0",
    f"/dev/sdb 8 2 uuid {UUID} fifo 0",
    "/dev/sdb 2048 8 high_watermark 70 low_watermark 10 writeback_rate 0 commit_interval 1000"
    " null 0",
    f"/dev/sdb 128 4 uuid {UUID} writeback_rate 4096 c2q 3 ghost 10 big",
]
BAD_POOL_TABLES = [
    "", "/dev/sdb", "/dev/sdb x 0 lru 0", "/dev/sdb 128 1 lru 0", "/dev/sdb 128 2 lru 0",
    "/dev/sdb 128 2 color red lru 0", "/dev/sdb 128 0 lru", "/dev/sdb 128 0 lru 1",
    "/dev/sdb 128 0 lru 0 more", "/dev/sdb 128 2 high_watermark -1 lru 0",
    "/dev/sdb 128 99999999999 lru 0", "/dev/sdb 128 2 uuid " + 80 * "a" + " lru 0",
]
VOLUME_TABLES = [
    "/dev/mapper/p 0 /dev/sdb 1 writethrough",
    "253:1 4095 8:16 3 writeback cutoff 0",
    "253:1 7 8:16 4 writearound cutoff 8192 inplace",
    "253:1 7 8:16 2 passthrough inplace",
    "253:1 7 8:16 0",
    "253:1 7 8:16 3 cutoff 64 inplace",
]
BAD_VOLUME_TABLES = [
    "", "253:1", "253:1 x 8:16 0", "253:1 0 8:16", "253:1 0 8:16 1", "253:1 0 8:16 1 fast",
    "253:1 0 8:16 1 cutoff", "253:1 0 8:16 0 writeback", "253:1 0 8:16 2 writeback cutoff",
]


@pytest.mark.parametrize("kind,lines", [("pool-table", POOL_TABLES),
                                        ("volume-table", VOLUME_TABLES)])
def test_tables_round_trip(driver, kind, lines):
    assert through(driver, kind, lines) == lines


@pytest.mark.parametrize("kind,lines", [("pool-table", BAD_POOL_TABLES),
                                        ("volume-table", BAD_VOLUME_TABLES)])
def test_bad_tables_are_refused(driver, kind, lines):
    assert through(driver, kind, lines) == ["invalid"] * len(lines)


@pytest.mark.parametrize("kind,heading,words", [
    ("pool-status", "Pool\n----", {"state": "running", "policy": "lru"}),
    ("volume-status", "Volume\n------", {"state": "running", "mode": "writeback"})])
def test_every_documented_status_key_round_trips(driver, kind, heading, words):
    names = keys("Status", heading)
    assert len(names) > 15 and names[0] == "state"
    rng = random.Random(1)
    line = " ".join(f"{n} {words.get(n, rng.getrandbits(64))}" for n in names)
    assert through(driver, kind, [line]) == [line]


def test_status_may_have_new_keys_but_must_have_a_state(driver):
    out = through(driver, "pool-status", [
        "state running policy lru dirty 5 colour red", "dirty 5", "state", "",
        "state running dirty many", "state running dirty 99999999999999999999999"])
    assert out[0].startswith("state running policy lru ") and " dirty 5 " in out[0]
    assert out[1:] == ["invalid"] * 5


def test_volume_lines_round_trip(driver):
    lines = [f"0 active {UUID} data {UUID2} writeback 2048 409600 8192 formatted 17 160 819200",
             f"4095 tombstone {UUID} data {UUID2} passthrough 0 409600 0 inplace 0 0 0"]
    assert through(driver, "volume-line", lines) == lines
    # A module whose volumes do not grow, and one that counts blocks alone
    for missing in " 0", " 0 0":
        old = lines[0].rsplit(" ", missing.count("0"))[0]
        assert through(driver, "volume-line", [old]) == [old + missing]
    bad = [f"4096 active {UUID} data {UUID2} writeback 2048 409600 8192 formatted 0",
           f"0 gone {UUID} data {UUID2} writeback 2048 409600 8192 formatted 0",
           f"0 active nonsense data {UUID2} writeback 2048 409600 8192 formatted 0",
           f"0 active {UUID} data {UUID2} fast 2048 409600 8192 formatted 0",
           f"0 active {UUID} data {UUID2} writeback 2048 409600 formatted 0",
           f"0 active {UUID} data {UUID2} writeback 2048 409600 8192 formatted",
           f"0 active {UUID} data {UUID2} writeback 2048 409600 8192 formatted -1",
           f"0 active {UUID} data {UUID2} writeback 2048 409600 8192 formatted 1 x"]
    assert through(driver, "volume-line", bad) == ["invalid"] * len(bad)


def test_parsers_survive_noise(driver):
    """Whatever the kernel says, the tools neither crash nor hang."""
    rng = random.Random(7)
    good = POOL_TABLES + VOLUME_TABLES + [f"state running dirty {2 ** 64 - 1}"]
    for kind in ("pool-table", "volume-table", "pool-status", "volume-status", "volume-line"):
        lines = []
        for _ in range(500):
            words = rng.choice(good).split()
            rng.shuffle(words)
            text = " ".join(words)[:rng.randrange(1, 120)]
            lines.append(re.sub("[\n\0]", " ", text))
        assert len(through(driver, kind, lines)) == len(lines)


@pytest.mark.parametrize("text,value", [
    ("0", 0), ("512", 512), ("1s", 512), ("4k", 4096), ("64K", 65536), ("4KiB", 4096),
    ("4m", 4 << 20), ("1g", 1 << 30), ("2t", 2 << 40), ("3b", 3),
    ("", None), ("k", None), ("-1", None), ("4q", None), ("4kk", None), ("4 k", None),
    ("99999999999999999999", None), ("99999999t", None), ("0x10", None)])
def test_sizes(driver, text, value):
    out = driver("sizes", stdin=text + "\n").stdout.strip()
    assert out == ("invalid" if value is None else str(value))
