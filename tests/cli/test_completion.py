# SPDX-License-Identifier: GPL-2.0-or-later
"""Completion of command lines: by "hybridctl complete", and by the shells that call it."""
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from .test_usage import COMMANDS, DEF, OPTIONS, TOOLS, TOP

SHELLS = TOP / "completion"
ARGUMENTS = re.findall(r'^OPTION\(\w+, "[a-z-]+", (?:0|\'.\'), "([^"]+)"', DEF, re.M)


@pytest.fixture
def shell(kernel, loop, build, tmp_path):
    """A function: what a shell offers for a line, of two pools and their volumes."""
    for pool, volume in ("fast", "data"), ("other", "home"):
        kernel.ok("create", volume, "--pool", pool, "--cache", loop(f"{pool}.img", 64),
                  "--origin", loop(f"{volume}.img", 64), "-y")
    (tmp_path / "bin").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here/an-image").touch()
    for name in "hybridctl", *TOOLS:
        (tmp_path / "bin" / name).symlink_to(build / "hybridctl-fake")
    env = {**os.environ, "HYBRID_FAKE_DM": str(kernel.path), "HYBRID_SCAN_ONLY": "none", "HOME": str(tmp_path),
           "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}

    def ask(how, line):
        return [word for word in how(line, env, tmp_path / "here") if word]
    return ask


def itself(line, env, _):
    words = shlex.split(line) + ([""] if line.endswith(" ") else [])
    out = subprocess.run(["hybridctl", "complete", "--", *words], env=env, text=True, capture_output=True, check=True)
    assert not out.stderr
    return [row.split("\t")[0] for row in out.stdout.splitlines()]


def run(argv, env, cwd):
    r = subprocess.run(argv, env=env, cwd=cwd, text=True, capture_output=True)
    assert r.returncode == 0 and not r.stderr, r
    return r.stdout.splitlines()


def bash(line, env, cwd):
    return run(["bash", "-c", f"""source {SHELLS}/hybridctl.bash
        COMP_LINE={shlex.quote(line)} COMP_POINT={len(line)}
        complete -p {line.split()[0]} >/dev/null && _hybridctl; printf '%s\\n' "${{COMPREPLY[@]}}" """], env, cwd)


def zsh(line, env, cwd):
    """The function of compinit, with its last steps in our hands."""
    words = [*line.split(), ""] if line.endswith(" ") else line.split()
    return run(["zsh", "-fc", f"""
        compadd() {{ print -l -- ${{(P)@[-1]}} }}
        _files() {{ print -l -- $words[CURRENT]*(N) }}
        words=({" ".join(map(shlex.quote, words))}) CURRENT={len(words)}
        _hybridctl() {{ source {SHELLS}/_hybridctl }}
        _hybridctl || :"""], env, cwd)


def fish(line, env, cwd):
    script = f"source {SHELLS}/hybridctl.fish; complete -C {shlex.quote(line)}"
    rows = run(["fish", "--no-config", "-c", script], env, cwd)
    return [row.split("\t")[0] for row in rows]


def test_each_word_for_an_argument_has_its_kind():
    kinds = re.findall(r'\{ "([A-Z=]+)", offer_', (TOP / "userspace/hybridctl/complete.c").read_text())
    words = {word for _, _, args in COMMANDS for word in re.findall(r"[A-Z]+(?:=[A-Z]+)?", args)} | set(ARGUMENTS)
    assert words == set(kinds) and len(kinds) == len(set(kinds))


CASES = {
    "hybridctl de": {"deactivate", "detach", "destroy"},
    "hybridctl help de": {"deactivate", "detach", "destroy"},
    "hybridctl --ver": {"--version", "--verbose"},
    "hybridctl -q drai": {"drain"},
    "hybridctl status ": {"fast", "other", "data", "home"},
    "hybridctl status d": {"data"},
    "hybridctl destroy ": {"fast", "other"},
    "hybridctl attach ": {"fast", "other"},
    "hybridctl attach fast h": {"home"},
    "hybridctl accept-loss ": {"data", "home"},
    "hybridctl create ": set(),
    "hybridctl create new --pool o": {"other"},
    "hybridctl list data h": {"home"},
    "hybridctl destroy fast ": set(),
    "hybridctl drain --rate ": set(),
    "hybridctl drain --rate 1m d": {"data"},
    "hybridctl create --mode writet": {"writethrough"},
    "hybridctl list --units ": set("hbskmgt"),
    "hybridctl set data ": {"mode=", "cutoff="},
    "hybridctl set fast tr": {"trim_rate="},
    "hybridctl set nobody ": set(),
    "hybridctl get data cut": {"cutoff"},
    "hybridctl get fast total": {"total_written"},
    "hybridctl list -o name,si": {"name,size"},
    "hybridctl list -o +po": {"+pool", "+policy", "+pool_uuid"},
    "hybridctl list -O ori": {"origin"},
    "hybridctl scan -o r": {"role"},
    "hybridctl lost -S of": {"offset"},
    "hybridctl writeback --volume data,": {"data,data", "data,home"},
    "hybridctl create --policy s": {"s3fifo", "sieve"},
    "hybridctl replay --format ": {"text", "blkparse", "fio"},
    "hybridctl frobnicate ": set(),
    "hybridctl wipe an-i": {"an-image"},
    "hybridctl check d": {"data"},
    "hybridctl create new --cache an-i": {"an-image"},
    "hybrid_check --fas": {"--fast"},
    "hybrid_dump --output an": {"an-image"},
    "hybrid_writeback an": {"an-image"},
}


@pytest.mark.parametrize("how", [bash, zsh, fish])
def test_of_shells(shell, how):
    wrong = {line: (offered, words) for line, words in CASES.items() if (offered := set(shell(how, line))) != words}
    assert not wrong


# bash replaces only the text after the "=", so its words come without the key
@pytest.mark.parametrize("how, prefix", [(itself, True), (zsh, True), (fish, True), (bash, False)])
def test_of_values(shell, how, prefix):
    for line, words in {"hybridctl set data mode=write": {"writethrough", "writeback", "writearound"},
                        "hybridctl set fast high_watermark=70 policy=l": {"lru"},
                        "hybridctl create --policy=l": {"lru"}}.items():
        key = line.split()[-1].split("=")[0]
        assert set(shell(how, line)) == {f"{key}={word}" if prefix else word for word in words}


def test_every_option_of_a_command(shell):
    for _, name, _ in COMMANDS:
        offered = shell(itself, f"hybridctl {name} --")
        assert set(offered) <= {f"--{option}" for option in OPTIONS} and "--help" in offered
    assert "--origin" in shell(itself, "hybridctl create --")
    assert "--origin" not in shell(itself, "hybridctl list --")


def test_of_who_cannot_ask_the_kernel(build):
    """Nothing is said in the middle of the line that is typed."""
    r = subprocess.run([build / "hybridctl-fake", "complete", "--", "hybridctl", "status", ""], text=True,
                       capture_output=True, env={**os.environ, "HYBRID_FAKE_DM": "/nonexistent/state"})
    assert r.returncode == 0 and not r.stderr


def test_tools_are_completed_by_every_shell():
    for script in ("hybridctl.bash", "_hybridctl", "hybridctl.fish"):
        assert set(re.findall(r"hybrid_[a-z_]+", Path(SHELLS / script).read_text())) >= set(TOOLS)
