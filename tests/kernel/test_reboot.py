# SPDX-License-Identifier: GPL-2.0-or-later
"""Switched off with volumes up: what was written last is recorded, and nothing holds it up."""
import time

import pytest

from guest.base import KeptWaiting, _processes

from .stack import Stack

GIVES_UP = "the reboot does not wait for it any longer"
VOLATILE = {"ssd": "0", "hdd": "0"}


def switch_off(guest, seconds=60):
    """Without a sync; returns how long it took. Time in which a busy host ran others does not count."""
    leader = guest._process.pid
    kept = KeptWaiting(lambda: [pid for pid, _ in _processes(leader)])
    begin = time.monotonic()
    guest.run_bg("sleep 0.2; poweroff -nf")
    while guest.running:
        elapsed = time.monotonic() - begin
        assert elapsed < seconds * guest.slow or elapsed - kept.seconds() < seconds * guest.slow, \
            guest.console_tail()
        time.sleep(0.05)
    guest.power_cut()
    return time.monotonic() - begin


@pytest.fixture
def stack(tools, make_guest, disks):
    guest = make_guest(disks=disks("ssd", 32, "hdd", 64), modprobe=["dm-testdisk", "dm-hybrid"])
    stack = Stack(guest, volatile=VOLATILE).members()
    stack.create("vol", "--mode", "writeback", "--cutoff", "0")
    # Nothing is recorded for want of time
    stack.message("set", "commit_interval", "60000", name="pool")
    return stack


def write(stack):
    stack.guest.run("dd if=/dev/urandom of=/written bs=64k count=8 status=none; "
                    "dd if=/written of=/dev/mapper/vol bs=64k oflag=direct status=none")
    return stack.guest.run("md5sum </written").out


def read(stack):
    stack.after_cut()
    return stack.guest.run("dd if=/dev/mapper/vol bs=64k count=8 iflag=direct status=none | "
                           "md5sum").out


@pytest.mark.kernels
def test_what_was_written_last_is_recorded(stack):
    """Not flushed: a power cut loses it, switching off does not."""
    digest = write(stack)
    stack.guest.power_cut()
    assert read(stack) != digest
    stack.message("set", "commit_interval", "60000", name="pool")
    digest = write(stack)
    switch_off(stack.guest)
    assert GIVES_UP not in stack.guest.console
    assert read(stack) == digest
    # ... and stays dirty: nothing was drained
    assert stack.status()["dirty"] == 8


def test_a_dead_member_does_not_hold_it_up(stack):
    write(stack)
    stack.guest.dm_message("vssd", "die")
    switch_off(stack.guest)
    assert GIVES_UP not in stack.guest.console


@pytest.mark.slow
def test_a_member_that_does_not_answer_holds_it_up_for_seconds(stack):
    write(stack)
    stack.guest.run("dmsetup suspend --noflush vssd")
    assert 4 < switch_off(stack.guest)
    assert GIVES_UP in stack.guest.console
