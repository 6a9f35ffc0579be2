# SPDX-License-Identifier: GPL-2.0-or-later
"""The prober for libblkid, over a stand-in for libblkid's internals."""
import subprocess
from pathlib import Path

import pytest

from cli.conftest import driver, image	# noqa: F401 (fixtures)

HERE = Path(__file__).resolve().parent
UUID = "0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1aa"
HEAD_SB = 512 << 10


@pytest.fixture(scope="session")
def prober(tmp_path_factory):
    program = tmp_path_factory.mktemp("prober") / "probe"
    subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", f"-I{HERE / 'shim'}", "-o", program,
                    HERE / "probe.c"], check=True)
    return program


@pytest.fixture
def probe(prober):
    def do(path):
        r = subprocess.run([prober, path], capture_output=True, text=True)
        return r.returncode, dict(line.split("=", 1) for line in r.stdout.splitlines())
    return do


@pytest.fixture(params=[16 << 20, (16 << 20) + 512])
def origin(driver, image, request):		# noqa: F811
    path = image("origin.img", request.param / (1 << 20))
    assert driver("format-origin", path, "data", UUID).returncode == 0
    return path


def spoil(path, at):
    with open(path, "r+b") as f:
        f.seek(at + 200)
        f.write(b"\xff")


def test_a_member(origin, probe):
    code, k = probe(origin)
    assert code == 0 and k["UUID"] == UUID and k["LABEL"] == "data" and k["VERSION"] == "7"
    assert k["MAGIC"] == f"{HEAD_SB}:dm-hybrid member" and len(k["UUID_SUB"]) == 36


def test_its_tail_is_enough(origin, probe):
    spoil(origin, HEAD_SB)
    code, k = probe(origin)
    tail = (16 << 20) - HEAD_SB
    assert code == 0 and k["UUID"] == UUID and k["MAGIC"].startswith(f"{tail}:")
    spoil(origin, tail)
    assert probe(origin) == (1, {})


def test_others(origin, probe, image, tmp_path):		# noqa: F811
    assert probe(image("empty", 16)) == (1, {})
    assert probe(image("tiny", 1)) == (1, {})
    shifted = tmp_path / "shifted"
    shifted.write_bytes(bytes(4096) + origin.read_bytes())
    assert probe(shifted) == (1, {})
