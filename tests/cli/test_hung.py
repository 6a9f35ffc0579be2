# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks that do not answer, in a guest: no command waits for them for ever, or keeps others waiting.

Each is one of the kinds of HUNG: device-mapper holds its I/O back, or the disk itself does.
"""
import json

import pytest

SSD, HDD, HDD2, BAD = "/dev/test/ssd", "/dev/test/hdd", "/dev/test/hddb", "/dev/test/bad"
LONG = 60		# seconds in which a command must end that a hung disk does not concern


@pytest.fixture
def guest(build, make_guest, disks):
    g = make_guest(disks=disks("ssd", 64, "hdd", 100, "hddb", 100, "bad", 100),
                   modprobe=["dm-testdisk", "dm-hybrid"])
    g.run(f"hybridctl create vol --cache {SSD} --origin {HDD} -y")
    g.dm_create("disk", f"0 {g.disks[3].sectors} volatile {BAD} 0")
    g.dm_create("lower", f"0 {g.disks[3].sectors} linear /dev/mapper/disk 0")
    return g


class Hung:
    """The device that a command meets, and how it begins and ends to hang."""

    def __init__(self, guest, kind):
        self.guest, self.kind = guest, kind
        self.device = "/dev/mapper/lower"
        if kind == "below a foreign device":
            guest.dm_create("upper", f"0 {guest.disks[3].sectors} linear /dev/mapper/lower 0")
            self.device = "/dev/mapper/upper"

    def __enter__(self):
        if self.kind == "the disk":
            self.guest.dm_message("disk", "hang", "read", "on")
        else:
            self.guest.run("dmsetup suspend --noflush lower")
        return self

    def __exit__(self, *_):
        if self.kind == "the disk":
            self.guest.dm_message("disk", "hang", "read", "off")
        else:
            self.guest.run("dmsetup resume lower")
        # Who was left behind ends now
        self.guest.run("until ! pgrep -x hybridctl; do sleep 0.1; done", timeout=LONG)


HUNG = pytest.mark.parametrize("kind", ["below a foreign device", "device-mapper", "the disk"])


def run(guest, command):
    return guest.run(command, check=False, timeout=LONG)


def names(text, key="members", field="device"):
    return [row[field] for row in json.loads(text)[key]]


@HUNG
def test_scan_leaves_it_out(guest, kind):
    """It is named, the others are listed; who scans again and again does not hang either."""
    with Hung(guest, kind) as hung:
        for _ in range(2):
            r = run(guest, "hybridctl scan --json --timeout 2")
            assert r.rc == 7 and f"{hung.device} does not answer" in r.err, r.text
            assert len(names(r.out)) == 2
        assert run(guest, f"hybridctl scan {hung.device} --timeout 2").rc == 7
        r = run(guest, f"hybridctl scan --udev {hung.device} --timeout 2")
        assert (r.rc, r.out) == (4, "") and "cannot read" in r.err
    assert run(guest, "hybridctl scan").rc == 0


@HUNG
def test_activate_waits_for_it_without_the_lock(guest, kind):
    """Others change things meanwhile; what it needs of other disks it gets."""
    guest.run("hybridctl deactivate vol")
    with Hung(guest, kind) as hung:
        job = guest.run_bg("hybridctl activate vol --timeout 10000")
        guest.run("until pgrep -x hybridctl; do sleep 0.1; done; sleep 1")
        r = run(guest, "hybridctl activate vol --timeout 2")
        assert r.rc == 0 and f"{hung.device} does not answer" in r.err, r.text
        assert run(guest, "hybridctl set vol cutoff=1m").rc == 0
        assert job.poll() is None
    r = job.wait(LONG)
    assert r.rc == 0 and "is active already" in r.out, r.text
