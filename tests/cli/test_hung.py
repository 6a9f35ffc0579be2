# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks that do not answer, in a guest: no command waits for them for ever, or keeps others waiting.

Each is one of the kinds of HUNG: device-mapper holds its I/O back, or the disk itself does.
"""
import json
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
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


COMPLETE = """
    . /usr/lib/completion
    COMP_LINE="hybridctl %s "; COMP_POINT=${#COMP_LINE}; _hybridctl; echo "${COMPREPLY[@]}"
"""


def completed(guest, command):
    return guest.run(["bash", "-ec", COMPLETE % command], timeout=LONG).out.split()


def reads(guest):
    """What has been read of each block device; of requests under way, too."""
    out = guest.run("for d in /sys/block/*; do echo ${d##*/} $(cat $d/stat) $(cat $d/inflight); done").out
    return {line.split()[0]: (line.split()[1], line.split()[3]) for line in out.splitlines()}


@HUNG
def test_who_only_looks_reads_no_disk(build, guest, kind):
    """What is active and what is not, of a pool that hangs, too: from the kernel, and as it was announced."""
    guest.write_file("/usr/lib/completion", (TOP / "completion/hybridctl.bash").read_text())
    guest.run(f"hybridctl create deep --cache /dev/mapper/lower --origin {HDD2} -y")
    if kind != "below a foreign device":
        guest.run("hybridctl deactivate deep")
    with Hung(guest, kind):
        before = reads(guest)
        rows = {row["name"]: row for row in json.loads(run(guest, "hybridctl list --json -o all").out)["volumes"]}
        state = "running" if kind == "below a foreign device" else "inactive"
        assert {name: row["state"] for name, row in rows.items()} == {
            "vol": "running", "vol-pool": "running", "deep": state, "deep-pool": state}
        assert rows["deep"]["size"] == 98 << 20 and rows["deep-pool"]["policy"] == "c2q"
        r = run(guest, "hybridctl status")
        assert r.rc == (0 if state == "running" else 7) and f"state: {state}" in r.out, r.text
        assert run(guest, "hybridctl status deep").rc == r.rc
        assert run(guest, "hybridctl lost vol").rc == 0
        assert set(completed(guest, "status")) == {"vol", "vol-pool", "deep", "deep-pool"}
        assert run(guest, "hybridctl get vol mode").rc == 0
        assert reads(guest) == before
        r = run(guest, "hybridctl doctor --timeout 2")
        assert r.rc in (0, 7) and "does not answer" in r.err, r.text


def test_what_nobody_announced_is_not_known(guest):
    """It is said so, and who knows: without udev a scan announces what it finds."""
    guest.run("hybridctl deactivate vol; rm -r /run/hybrid/members")
    before = reads(guest)
    r = run(guest, "hybridctl list")
    assert r.rc == 0 and "vol" not in r.out and "hybridctl scan reads all disks" in r.err, r.text
    assert "hybridctl scan" in run(guest, "hybridctl status vol").err
    assert reads(guest) == before
    guest.run("hybridctl scan")
    r = run(guest, "hybridctl list --noheadings -o name")
    assert r.out.split() == ["vol-pool", "vol"] and not r.err
    guest.run(f"hybridctl wipe {HDD} -y --wipe-signatures")
    assert run(guest, "hybridctl list --noheadings -o name").out.split() == ["vol-pool"]


def test_a_member_that_cannot_be_read_any_more_does_not_count(guest):
    """Its device is still there: until it can be read again, status names the command that goes on without it."""
    guest.run("dmsetup remove lower; dmsetup remove disk")
    # Nothing else shows its superblocks
    guest.dm_create("disk", f"0 {guest.disks[3].sectors - 16} volatile {BAD} 8 0")
    guest.run(f"hybridctl create deep --cache /dev/mapper/disk --origin {HDD2} -y; hybridctl deactivate deep")
    for event, state, leads in (("die", "incomplete", "activate --degraded deep"),
                                ("revive", "inactive", "activate deep")):
        guest.dm_message("disk", event)
        run(guest, "hybridctl scan")
        out = run(guest, "hybridctl status deep").out
        assert f"state: {state}" in out and f"hybridctl {leads}\n" in out


def test_a_number_that_another_disk_has_is_no_member(guest):
    """What was announced was of a disk that is gone."""
    guest.run(f"hybridctl create deep --cache /dev/mapper/lower --origin {HDD2} -y; hybridctl deactivate deep")
    numbers = guest.run("cat /sys/block/dm-*/dev").out
    guest.run("dmsetup remove lower")
    assert "deep-pool" not in run(guest, "hybridctl list").out
    guest.dm_create("other", f"0 {guest.disks[3].sectors} error")
    assert guest.run("cat /sys/block/dm-*/dev").out == numbers
    assert "deep-pool" not in run(guest, "hybridctl list").out


def test_what_is_announced_has_no_key(guest):
    """Everybody may read it; it has what the superblock says, but for what pairs it with its cache."""
    guest.run(f"dd if={HDD} bs=4k skip=128 count=1 status=none >/sb; cd /run/hybrid/members; "
              "for f in *origin*; do dd if=$f bs=4k count=1 status=none >/noted; done")
    sb, noted = (bytes.fromhex(guest.run(f"od -An -v -tx1 {f}").out) for f in ("/sb", "/noted"))
    key = slice(224, 240)
    assert b"vol\0" in sb and b"vol\0" in noted and any(sb[key]) and not any(noted[key])
