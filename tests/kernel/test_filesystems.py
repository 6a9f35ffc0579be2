# SPDX-License-Identifier: GPL-2.0-or-later
"""ext4 and XFS on a volume: a mixed load, power cuts, and the file systems' own checkers."""
import struct
import time

import pytest

from .stack import HERE

LOAD = f"python3 -S {HERE}/fsload.py"
CHECK = {"ext4": "e2fsck -fn", "xfs": "xfs_repair -n"}
FLAKY = "5 destage_pct 40 torn seed"


def mount(s, fs, dev="/dev/mapper/vol"):
    s.guest.run(f"mount -t {fs} {dev} /mnt")


def check(s, fs, dev="/dev/mapper/vol"):
    s.guest.run(f"umount /mnt && {CHECK[fs]} {dev}")


def logged(s):
    """How much of the load was fsynced."""
    return struct.unpack("<Q", s.disk("log").read(0, 8))[0]


@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_load_on_a_file_system(make_stack, fs, mode, seed):
    """Less cache than data; clean before and after a stop, and on the origin alone."""
    s = make_stack(ssd=24, hdd=330)
    dev = s.create("vol", "--mode", mode, "--cutoff", "1m")
    s.guest.run(f"mkfs.{fs} -q {dev}")
    mount(s, fs)
    kept = int(s.guest.run(f"{LOAD} run /mnt {seed} 4", timeout=120).out)
    check(s, fs)
    s.deactivate()
    s.activate()
    mount(s, fs)
    s.guest.run(f"{LOAD} kept /mnt {kept}")
    check(s, fs)
    s.drain()
    s.deactivate()
    s.guest.run(f"dmsetup create plain --table '0 {s.disk('hdd').sectors - 4096} linear "
                "/dev/test/hdd 2048'")
    s.guest.run(f"{CHECK[fs]} /dev/mapper/plain")


@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_file_system_survives_power_cuts(make_stack, fs, rnd, seed):
    """What was fsynced is there, and the file system is whole after its log's replay."""
    s = make_stack(volatile={"ssd": f"{FLAKY} {seed}", "hdd": f"{FLAKY} {seed + 1}"},
                   ssd=24, hdd=330, log=1)
    dev = s.create("vol", "--mode", "writeback", "--cutoff", "0")
    s.guest.run(f"mkfs.{fs} -q {dev} && sync")
    kept = 0
    for turn in range(3):
        mount(s, fs)
        s.guest.run(f"mkdir -p /mnt/{turn}")
        job = s.guest.run_bg(f"{LOAD} run /mnt/{turn} {seed + turn} 100 /dev/test/log")
        end = time.monotonic() + 60 * s.guest.slow
        while logged(s) < 2:
            assert job.poll() is None, job.wait(check=False).text
            assert time.monotonic() < end, "nothing was fsynced"
            time.sleep(0.1)
        s.guest.run(["sleep", f"{rnd.uniform(0, 2):.2f}"])
        assert job.poll() is None, job.wait(check=False).text
        s.guest.power_cut()
        kept = logged(s)
        s.disk("log").write(0, bytes(8))
        s.after_cut()
        mount(s, fs)
        s.guest.run(f"{LOAD} kept /mnt/{turn} {kept}")
        check(s, fs)
    assert s.status()["read_hits"] > 0
