# SPDX-License-Identifier: GPL-2.0-or-later
"""Questions on a terminal: nobody waits for the lock meanwhile, and what was asked about is looked at again."""
import contextlib
import fcntl
import os
import pty
import subprocess
import time

import pytest

QUESTIONS = {
    "attach": "attach vol-pool two --origin {two}",
    "create": "create new --cache {two} --origin {three}",
    "wipe": "wipe {two}",
    "detach": "detach vol --drop-dirty",
    "deactivate": "deactivate vol --force",
}


@pytest.fixture
def asked(kernel, loop, build):
    """A function: starts a command, and returns once it asks; answer(text) -> (exit code, what it said)."""
    devs = {name: loop(f"{name}.img", 64) for name in ("cache", "origin", "two", "three")}
    kernel.ok("create", "vol", "--cache", devs["cache"], "--origin", devs["origin"], "-y")
    kernel.change_device("vol", open_count=1)
    with contextlib.ExitStack() as stack:
        def ask(what):
            if what == "detach":
                kernel.change_device("vol", open_count=0)
            if what == "wipe" and kernel("probe", devs["two"]).returncode:
                kernel.ok("attach", "vol-pool", "two", "--origin", devs["two"], "-y")
                kernel.ok("deactivate", "two", "--keep-pool")
            terminal, theirs = pty.openpty()
            stack.callback(os.close, terminal)
            env = {**os.environ, "HYBRID_FAKE_DM": str(kernel.path), "HYBRID_SCAN_ONLY": "none"}
            tool = subprocess.Popen([build / "hybridctl-fake", *QUESTIONS[what].format(**devs).split()], env=env,
                                    stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True)
            stack.callback(tool.wait)
            stack.callback(tool.kill)
            os.close(theirs)
            said = ""
            while not said.endswith("to go on: "):
                said += (letter := tool.stderr.read(1))
                assert letter, said

            def answer(text):
                os.write(terminal, text.encode())
                return tool.wait(timeout=60), tool.stderr.read()
            return answer
        yield ask, devs


def take_lock():
    """Tools of tests beside this one hold it for a moment, but wait for nobody."""
    end = time.monotonic() + 60
    with open("/run/hybrid/lock", "r+b") as lock:
        while True:
            with contextlib.suppress(BlockingIOError):
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            assert time.monotonic() < end, "somebody holds the lock"
            time.sleep(0.05)


@pytest.mark.parametrize("what", QUESTIONS)
def test_no_question_under_the_lock(kernel, asked, what):
    answer = asked[0](what)
    take_lock()
    before = kernel.log
    code, said = answer("no\n")
    assert code == 2 and "nothing was changed" in said and kernel.log == before
    code, said = asked[0](what)("yes\n")
    assert code == 0, said


def test_a_volume_that_was_taken_down_while_the_user_was_asked(kernel, asked):
    """... and is in use again: what was agreed to was about another user."""
    answer = asked[0]("deactivate")
    kernel.change_device("vol", open_count=0)
    kernel.ok("deactivate", "vol", "--keep-pool")
    code, said = answer("yes\n")
    assert code == 4 and "no active" in said


def test_a_name_that_was_taken_while_the_user_was_asked(kernel, asked):
    ask, devs = asked
    answer = ask("attach")
    kernel.ok("attach", "vol-pool", "two", "--origin", devs["three"], "-y")
    code, said = answer("yes\n")
    assert code == 5 and "two" in said
    assert "two" in kernel.devices and not any(open(devs["two"], "rb").read(1 << 20))


def test_a_member_that_changed_while_the_user_was_asked(kernel, asked):
    """It is held meanwhile; the superblock is compared all the same."""
    ask, devs = asked
    answer = ask("wipe")
    with open(devs["two"], "r+b") as f:
        for at in (512 << 10, (64 << 20) - (512 << 10)):
            f.seek(at)
            f.write(bytes(4096))
        os.fsync(f.fileno())
    code, said = answer("yes\n")
    assert code == 4 and "is not a member" in said
