# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for tests of the module in a guest."""
import random
import subprocess

import pytest

from .stack import Stack

ISOLATION = []		# (what hangs, {operation: how it ended})


@pytest.fixture(scope="session")
def tools(top):
    """hybridctl, up to date: it formats the members."""
    subprocess.run(["make", "-s", "-C", top / "userspace", "all"], check=True,
                   capture_output=True)


@pytest.fixture
def make_stack(tools, make_guest, disks):
    """A function that boots a guest with members: make_stack(ssd=64, hdd=256, log=1).

    `volatile` lists the members that lose unflushed data in a power cut ("ssd hdd"), or
    maps them to the features of their volatile cache. paused=True: with pause points.
    """
    def make(volatile=(), memory=512, paused=False, **sizes) -> Stack:
        sizes = sizes or {"ssd": 32, "hdd": 64}
        if isinstance(volatile, str):
            volatile = dict.fromkeys(volatile.split(), "0")
        guest = make_guest(disks=disks(*(w for pair in sizes.items() for w in pair)),
                           modprobe=["dm-testdisk", "dm-hybrid"], memory=memory, paused=paused)
        return Stack(guest, volatile=dict(volatile)).members()
    return make


@pytest.fixture
def seed(request):
    """A fixed seed for each test; a failure prints it as part of the test's locals."""
    value = sum(request.node.nodeid.encode())
    print(f"seed {value}")
    return value


@pytest.fixture
def rnd(seed):
    return random.Random(seed)


def pytest_runtest_logreport(report):
    if report.when == "teardown":
        ISOLATION.extend(value for key, value in report.user_properties if key == "isolation")


def pytest_terminal_summary(terminalreporter):
    """What hangs beside which operations do not end, or how far the row came."""
    if not ISOLATION:
        return
    terminalreporter.section("members that hang")
    for name, found in sorted(ISOLATION):
        hang = [operation for operation, how in found.items() if how != "ends"]
        terminalreporter.line(f"{name:<28} {len(found) - len(hang):>2} of {len(found)} operations end"
                              f"{'; until it answers wait: ' if hang else ''}{', '.join(hang)}")
