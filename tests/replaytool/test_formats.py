# SPDX-License-Identifier: GPL-2.0-or-later
"""What is read as a trace, and what is not."""
import json
import random
import subprocess

import pytest

from . import traces

TEXT = "# a comment\n\n0 R 0 8\n1000 W 8 16\n1500 WFS 8 8\n2000 D 0 64\n2500 FF 0 0\n3000 ? 99 1"
BLKPARSE = """\
  8,0    3        1     0.000000000   697  A   W 223490 + 8 <- (8,1) 223427
  8,0    3        2     0.000001000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        3     0.000002000   697  G   W 223490 + 8 [kjournald]
  8,0    3        4     0.000003000   697  P   N [kjournald]
  8,16   1        5     0.250000000     0  Q  RA 4096 + 256 [dd]
  8,0    1        6     1.000000001     0  Q FWFS 223498 + 8 [xfs]
  8,0    1        7     1.500000000     0  Q FWS [xfs]
  8,0    1        8     1.600000000     0  Q  DS 8192 + 4194304 [fstrim]
  8,0    0        9     1.700000000     0  C   W 223490 + 8 [0]
CPU0 (8,0):
 Reads Queued:           1,      128KiB	 Writes Queued:           2,        8KiB
Total (8,0):
"""
FIO2 = """fio version 2 iolog
/dev/sda add
/dev/sda open
/dev/sda read 0 4096
/dev/sda wait 1000 0
/dev/sda write 4096 65536
/dev/sda wait 500000
/dev/sda sync 0 0
/dev/sda trim 0 1048576
/dev/sda close
"""
FIO3 = """fio version 3 iolog
0 /dev/sda add
0 /dev/sda open
10 /dev/sda read 0 4096
20 /dev/sdb write 4096 65536
2500 /dev/sda datasync 0 0
2500 /dev/sda close
"""


@pytest.mark.parametrize("trace,form,reads,writes,others,sources,seconds,footprint", [
    (TEXT, "text", 2, 2, 2, 1, 0.003, 4),
    (BLKPARSE, "blkparse", 1, 2, 3, 2, 1.599999, 2 + 32 + 2 - 1),
    (FIO2, "fio", 1, 1, 2, 1, 0.501, 17),
    (FIO3, "fio", 1, 1, 1, 2, 2.49, 17),
], ids=["text", "blkparse", "fio2", "fio3"])
def test_formats(replay, trace, form, reads, writes, others, sources, seconds, footprint):
    t = replay.json(trace, "--size", "1m")["trace"]
    found = {k: t[k] for k in ("format", "reads", "writes", "flushes_and_discards", "sources")}
    assert found == {"format": form, "reads": reads, "writes": writes,
                     "flushes_and_discards": others,
                     "sources": sources}
    assert t["seconds"] == pytest.approx(seconds, abs=2e-6)
    assert t["footprint"] == footprint * 4096
    assert replay.json(trace, "--size", "1m", "--format", form)["trace"] == t


def test_a_flush_before_a_write_is_one_more(replay):
    counts = [replay.json(f"0 {rwbs} 0 8\n", "--size", "1m")["trace"] for rwbs in ("WS", "FWFS")]
    assert [c["flushes_and_discards"] for c in counts] == [0, 1]
    assert [c["writes"] for c in counts] == [1, 1]


def test_the_same_from_everywhere(replay, tmp_path):
    """A file, the standard input as a file and as a pipe, three compressions."""
    trace = traces.text(traces.mixed(3000))
    want = replay.json(trace)
    args = [replay.program, "-", "--json"]
    with open(tmp_path / "trace.txt") as f:
        assert json.loads(subprocess.run(args, stdin=f, capture_output=True).stdout) == want
    piped = subprocess.run(args, input=trace, capture_output=True, text=True)
    assert json.loads(piped.stdout) == want
    for tool in "gzip", "zstd", "xz":
        packed = subprocess.run([tool, "-c"], input=trace.encode(), capture_output=True, check=True)
        assert replay.json(packed.stdout, name=f"trace.{tool}") == want


HOSTILE = {
    "empty": ("", "holds no request"),
    "comments": ("# one\n\n", "holds no request"),
    "prose": ("hello world\n", "trace.txt:1: not a trace as text"),
    "negative-time": ("0 R 0 8\n-5 R 0 8\n", "trace.txt:2: field 1 (time): '-5' is negative"),
    "negative-sector": ("0 R -8 8\n", "trace.txt:1: field 3 (sector): '-8' is negative"),
    "beyond-63-bits": (f"0 R {1 << 63} 8\n", "field 3 (sector): '9223372036854775808' is beyond"),
    "beyond-64-bits": (f"0 R {1 << 64} 8\n", "field 3 (sector): '18446744073709551616' is too l"),
    "end-beyond": (f"0 R {(1 << 54) - 4} 8\n", "field 3 (sector)"),
    "zero-length": ("0 R 0 0\n", "field 4 (length): '0' is not a length"),
    "endless-length": (f"0 W 0 {1 << 40}\n", "field 4 (length): '1099511627776' is too long"),
    "longest-and-one": (f"0 W 0 {1 << 17}\n0 R 0 {(1 << 17) + 1}\n", "trace.txt:2: field 4 (length)"),
    "huge-time": (f"{(1 << 64) - 1} R 0 8\n", "field 1 (time)"),
    "word": ("0 R zero 8\n", "trace.txt:1: field 3 (sector): 'zero' is not a number"),
    "hex": ("0 R 0x10 8\n", "field 3 (sector): '0x10' is not a number"),
    "direction": ("0 X 0 8\n", "trace.txt:1: field 2 (direction): 'X' is none of"),
    "missing": ("0 R 0\n", "trace.txt:1: field 4 (length) is missing"),
    "one-too-many": ("0 R 0 8 8,0 more\n", "field 6"),
    "escapes": ("0 \x1b[31mR 0 8\n", "'?[31mR' is none of"),
    "long-line": ("0 R 0 8\n" + "1" * 5000, "trace.txt:2: the line is longer than 4095 bytes"),
    "endless-line": ("0" * 300_000, "trace.txt:1: the line is longer than 4095 bytes"),
    "devices": ("".join(f"0 R 0 8 d{i}\n" for i in range(65)), "trace.txt:65: field 5 (device)"),
    "long-device": ("0 R 0 8 " + "d" * 300 + "\n", "field 5 (device)"),
    "only-flushes": ("0 F 0 0\n", "no reads and no writes"),
    "blkparse-garbage": ("8,0 3 1 0.0 697 Q W 0 + 8 [x]\n8,0 3\n", "trace.txt:2: not a line of"),
    "blkparse-time": ("8,0 3 1 -1.0 697 Q W 0 + 8 [x]\n", "field 4 (time): '-1.0' is negative"),
    "blkparse-plus": ("8,0 3 1 0.0 697 Q W 0 8 8 [x]\n", "field 9 (plus sign)"),
    "blkparse-no-queue": ("8,0 3 1 0.0 697 D W 0 + 8 [x]\n", "record with blktrace -a queue"),
    "fio-version": ("fio version 9 iolog\n", "trace.txt:1: field 3 (version)"),
    "fio-action": ("fio version 2 iolog\n/dev/sda erase 0 1\n", "field 2 (action): 'erase'"),
    "fio-cut": ("fio version 3 iolog\n12 /dev/sda\n", "field 3 (action) is missing"),
    "fio-offset": ("fio version 2 iolog\nf read 9223372036854775808 1\n", "field 3 (offset)"),
    "binary": (bytes(range(256)) * 40, "trace.txt:1: not text: a zero byte"),
    "blktrace": (b"\x07tae" + bytes(60), "give it the text that blkparse prints"),
    "random": (random.Random(1).randbytes(100_000), "trace.txt:1: "),
}


@pytest.mark.parametrize("trace,said", HOSTILE.values(), ids=HOSTILE)
def test_hostile(replay, trace, said):
    r = replay.run(trace)
    assert r.returncode == 4 and not r.stdout
    assert said in r.stderr.decode()
    assert r.stderr.isascii() and b"\x1b" not in r.stderr


@pytest.mark.parametrize("tool", ["gzip", "zstd", "xz"])
def test_damaged_compression(replay, tool):
    """Cut off, or with one byte changed: never half a trace taken for a whole one."""
    packed = subprocess.run([tool, "-c"], input=traces.text(traces.mixed(3000)).encode(),
                            capture_output=True, check=True).stdout
    for bad in packed[:-20], packed[:len(packed) // 2], packed[:9]:
        r = replay.run(bad, name=f"trace.{tool}")
        assert r.returncode == 4 and f"{tool} cannot decompress it" in r.stderr.decode()


def test_a_bomb_stays_small(replay, tmp_path):
    """So many MiB of one line in some kilobytes: it is not stored anywhere."""
    with open(tmp_path / "bomb.zst", "wb") as out:
        subprocess.run("head -c 64M /dev/zero | tr '\\0' 1 | zstd -q", shell=True, stdout=out, check=True)
    r = replay.run(None, name="bomb.zst")
    assert r.returncode == 4 and b"longer than" in r.stderr


@pytest.mark.parametrize("what", ["missing", "directory"])
def test_no_file(replay, tmp_path, what):
    (tmp_path / "directory").mkdir()
    r = replay.run(None, name=what)
    assert r.returncode == 4 and what in r.stderr.decode()


def test_time_may_leap(replay):
    """Nobody waits for what a number says: three hundred thousand years between two requests."""
    last = (1 << 63) - 1
    t = replay.json(f"0 W 0 8\n{last} R 0 8\n{last // 2} R 8 8\n", "--mode", "writeback")["trace"]
    assert t["seconds"] == pytest.approx(last / 1e6)


@pytest.mark.parametrize("args,said", [
    (["--size", "0"], "not a size"), (["--size", "x%"], "not a size"), (["--size", ","], "no value is given"),
    (["--size", "5000000p"], "not a size"), (["--size", "9000t"], "is not possible"),
    (["--block-size", "5k"], "is not valid"), (["--block-size", "2m"], "is not valid"),
    (["--policy", "best"], "no such policy"), (["--format", "csv"], "no such format"),
    (["--mode", "fast"], "no such mode"), (["--endurance", "long"], "is neither"),
    (["--sample", "100"], "needs --curve"), (["--curve", "--sample", "1"], "is neither"),
    (["--curve", "--size", "1g"], "exclude each other"), (["--cutoff", "1"], "not a size"),
    (["--size", "1.2.3%"], "not a size"), (["--endurance", "0.3.1dwpd"], "is neither"),
    (["--svg", "/nowhere/x.svg"], "cannot be written"),
])
def test_bad_options(replay, args, said):
    r = replay.run("0 R 0 8\n", *args)
    assert r.returncode in (1, 4, 6) and said in r.stderr.decode()
