# SPDX-License-Identifier: GPL-2.0-or-later
"""What holds for every tool of the binary: one row of TOOLS each."""
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
DEF = (TOP / "userspace/hybridctl/commands.def").read_text()
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

# What each tool reads first, and its exit codes for that.
BAD = {"missing": 4, "directory": 4, "tiny": 4, "text": 4}


@dataclass
class Tool:
    """args: what is behind the program's name; {} stands for the input, {out} for a new file,
    {target} for a device that is written."""
    args: str = "{}"
    bad: dict | None = None	# where the codes are others than BAD's
    writes: bool = False	# to its input
    dump: bool = False		# the input is a dump, not a cache device

    def argv(self, path, directory: Path) -> list[str]:
        target = directory / "target"
        if not target.exists():
            source = directory / "pool/cache"
            target.write_bytes(source.read_bytes() if os.access(source, os.R_OK) else b"")
            target.chmod(0o666)
            os.truncate(target, 16 << 20)
        return self.args.format(path, out=directory / "out", target=target).split()


TOOLS = {
    "hybrid_check": Tool(),
    "hybrid_metadata_size": Tool(),
    "hybrid_writeback": Tool(writes=True),
    "hybrid_dump": Tool("{} --output {out}"),
    "hybrid_restore": Tool("--input {} --output {target} --yes --force --wipe-signatures",
                           dump=True),
    "hybrid_repair": Tool("{} --yes"),	# undamaged: nothing to write
}

every_tool = pytest.mark.parametrize("name", TOOLS)


def command_of(name: str) -> str:
    """hybridctl's."""
    return dict(re.findall(r'^TOOL\("(\w+)", "([\w-]+)"', DEF, re.M))[name]


def exit_codes(name: str) -> set[int]:
    """Those that its manual explains."""
    text = (TOP / f"man/{name}.8.scd.in").read_text()
    section = re.search(r"^# EXIT STATUS$(.*?)^# ", text, re.M | re.S)[1]
    return {int(code) for code in re.findall(r"^\*(\d)\*$", section, re.M)}


def test_every_tool_has_a_row():
    # hybrid_replay reads traces: tests/replaytool
    assert set(re.findall(r'^TOOL\("(\w+)"', DEF, re.M)) - {"hybrid_replay"} == set(TOOLS)


@pytest.fixture
def place():
    """A directory that others may look into."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


@pytest.fixture
def run(build, place):
    def run(name, *args, prefix=()):
        program = place / name
        if not program.exists():
            shutil.copy(build / "hybridctl", program)
        r = subprocess.run([*prefix, program, *args], capture_output=True, text=True, timeout=60)
        assert r.returncode in exit_codes(name)
        return r
    return run


@pytest.fixture
def good(build, clean, place, name):
    """What the tool reads: a cache device, or a dump of it."""
    pool = clean.copy(place / "pool")
    if not TOOLS[name].dump:
        return pool.cache
    subprocess.run([build / "hybrid_dump", pool.cache, "--output", place / "dump"], check=True)
    return place / "dump"


@every_tool
def test_help(run, name):
    for option in ("--help", "-h"):
        r = run(name, option)
        assert r.returncode == 0 and not r.stderr
        assert r.stdout.startswith(f"Usage: {name} ")
    assert run("hybridctl", command_of(name), "--help").stdout == r.stdout.replace(
        f"Usage: {name}", f"Usage: hybridctl {command_of(name)}")


@every_tool
def test_version(run, name):
    r = run(name, "--version")
    assert r.returncode == 0 and not r.stderr
    assert re.fullmatch(rf"{name} \d+\.\d+\.\d+\n", r.stdout)


@every_tool
@pytest.mark.parametrize("args", [["--frobnicate"], ["-Z"], ["--cache", "x"], []])
def test_wrong_usage(run, name, args):
    r = run(name, *args)
    assert r.returncode == 1 and not r.stdout
    assert r.stderr.startswith(f"{name}: error: ") and "\n  next: " in r.stderr


@pytest.fixture
def bad(place, request):
    """A path that is no member, in one of the ways of BAD."""
    path = place / request.param
    if request.param == "directory":
        path.mkdir()
    elif request.param == "tiny":
        path.write_bytes(b"\0" * 100)
    elif request.param == "text":
        path.write_bytes(b"This is no metadata at all. " * 200000)
    return path


@every_tool
@pytest.mark.parametrize("bad", BAD, indirect=True)
def test_bad_input(run, name, bad, place):
    code = {**BAD, **(TOOLS[name].bad or {})}[bad.name]
    argv = TOOLS[name].argv(bad, place)
    before = bad.read_bytes() if bad.is_file() else None
    r = run(name, *argv)
    assert r.returncode == code, r.stdout + r.stderr
    assert str(bad) in r.stdout + r.stderr or code == 0
    r = run(name, "-q", *argv)
    assert (r.returncode, r.stdout, r.stderr) == (code, "", "")
    r = run("hybridctl", "-q", command_of(name), *argv)
    assert (r.returncode, r.stdout, r.stderr) == (code, "", "")
    assert not bad.is_file() or bad.read_bytes() == before


@pytest.mark.parametrize("name", [name for name in TOOLS if not TOOLS[name].writes])
def test_output_that_cannot_be_written(build, name, good, place):
    argv = TOOLS[name].argv(good, place)
    if name == "hybrid_dump":
        argv = argv[:1]
    with open("/dev/full", "w", encoding="ascii") as full:
        r = subprocess.run([build / name, *argv], stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert r.returncode == 6 and 6 in exit_codes(name), r.stderr


@every_tool
def test_input_that_may_not_be_read(run, name, good, place):
    if os.geteuid():
        pytest.skip("needs root")
    good.chmod(0)
    argv = TOOLS[name].argv(good, place)
    r = run(name, *argv, prefix=NOBODY)
    assert r.returncode == 2 and "ermission" in r.stderr and "next: " in r.stderr
    r = run(name, "--quiet", *argv, prefix=NOBODY)
    assert (r.returncode, r.stdout, r.stderr) == (2, "", "")


@every_tool
def test_input_that_may_only_be_read(run, name, good, place):
    """... is enough for what does not write, and is left as it is."""
    if os.geteuid():
        pytest.skip("needs root")
    good.chmod(0o444)
    place.chmod(0o777)
    before = hashlib.sha256(good.read_bytes()).digest()
    argv = TOOLS[name].argv(good, place)
    r = run(name, *argv, prefix=NOBODY)
    assert r.returncode == (2 if TOOLS[name].writes else 0), r.stdout + r.stderr
    assert hashlib.sha256(good.read_bytes()).digest() == before
    r = run(name, "-q", *argv, prefix=NOBODY)
    assert (r.stdout, r.stderr) == ("", "")


def test_sizes(run):
    """Of 1 TiB at 32 KiB: what the design promises of memory."""
    out = run("hybrid_metadata_size", "1t").stdout
    assert re.search(r"^one block +32.00k$", out, re.M)
    sizes = {unit: run("hybrid_metadata_size", "1t", "--units", unit).stdout for unit in "bm"}
    memory = int(re.search(r"^memory in the kernel +(\d+)b$", sizes["b"], re.M)[1])
    blocks = int(re.search(r"^blocks +(\d+)$", sizes["b"], re.M)[1])
    assert blocks > 33.4e6 and memory <= 32 * blocks
    assert f"{memory / 2**20:.2f}m" in sizes["m"]
    report = json.loads(run("hybrid_metadata_size", "1t", "--json").stdout)
    assert (report["memory"], report["blocks"], report["block_size"]) == (memory, blocks, 32768)


@pytest.mark.parametrize("args, code", [
    (["1t", "--block-size", "3k"], 1), (["1t", "--block-size", "2g"], 1), (["1m"], 4),
    (["1t", "--block-size", "x"], 1), (["1t", "--units", "x"], 1),
    (["1t", "--journal-size", "1k"], 1), (["1t", "--journal-size", "8g"], 4), (["9e"], 4),
    (["8000p"], 4)])
def test_sizes_that_cannot_be(run, args, code):
    assert run("hybrid_metadata_size", *args).returncode == code


def test_the_example_of_sizes_is_the_smallest_that_fits(run):
    text = (TOP / "man/hybrid_metadata_size.8.scd.in").read_text()
    size, block = re.search(r"smallest block size that fits\?\n\n\thybrid_metadata_size (\w+) --block-size (\d+)k$",
                            text, re.M).groups()
    assert run("hybrid_metadata_size", size, "--block-size", f"{block}k").returncode == 0
    assert run("hybrid_metadata_size", size, "--block-size", f"{int(block) // 2}k").returncode == 4
