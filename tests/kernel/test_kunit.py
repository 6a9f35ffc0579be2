# SPDX-License-Identifier: GPL-2.0-or-later
"""The policies' KUnit suite, dm-hybrid/kunit-policy.c, in a kernel that has KUnit."""
import re

import pytest

from .stack import POLICIES

CASES = ("victims", "random", "load", "loop", "contention")


def run_suite(guest):
    """Loading the module runs it; what it says is KTAP, in the log."""
    guest.run("modprobe kunit enable=1 && modprobe dm-hybrid-kunit", timeout=300)
    log = guest.run("dmesg").out
    for case in CASES:
        part = re.search(rf"Subtest: policy_{case}$(.*)\bok \d+ (- )?policy_{case}$", log,
                         re.DOTALL | re.MULTILINE)
        assert part, log
        assert re.findall(r"(ok|not ok) \d+ (?:- )?(\w+)$", part[1], re.MULTILINE) == [
            ("ok", name) for name in POLICIES], log
    assert re.search(r"] ok \d+ (- )?dm-hybrid-policy$", log, re.MULTILINE), log
    guest.run("modprobe -r dm-hybrid-kunit")


def test_policies(make_guest):
    run_suite(make_guest(modprobe=["dm-hybrid"]))


@pytest.mark.qemu
@pytest.mark.thorough
def test_policies_on_two_cpus(make_qemu_guest):
    guest = make_qemu_guest(cpus=2, modprobe=["dm-hybrid"])
    assert guest.run("nproc").out.strip() == "2"
    run_suite(guest)
