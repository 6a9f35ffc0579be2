# SPDX-License-Identifier: GPL-2.0-or-later
"""cgroup v2: each user's I/O is charged to, and limited by, the user's own cgroup."""
import pytest

from .stack import MODES, io

ROOT = "/sys/fs/cgroup"
SLOW = f"{ROOT}/slow"


def number(guest, disk):
    return guest.run(f"lsblk -dno MAJ:MIN $(readlink -f /dev/test/{disk})").out.strip()


@pytest.fixture
def pool_of_two(make_stack):
    """Volumes one and two of a pool; and a cgroup that writes 1 MiB/s to the members of two."""
    s = make_stack(ssd=64, hdd=64, hdd2=64)
    s.create("one", "--mode", "writeback", "--cutoff", "0")
    s.attach("two", "hdd2", "--mode", "writeback", "--cutoff", "0")
    s.guest.run(f"mount -t cgroup2 none {ROOT}; echo +io > {ROOT}/cgroup.subtree_control; mkdir {SLOW}")
    return s


def limit(s, most):
    for disk in ("ssd", "hdd2"):
        s.guest.run(f"echo '{number(s.guest, disk)} rbps={most} wbps={most}' > {SLOW}/io.max")


def slowly(s, command):
    return s.guest.run_bg(f"sh -c 'echo $$ > {SLOW}/cgroup.procs; exec {command}'")


def charged(s, disk, what):
    """Bytes of @disk that the cgroup has been charged for."""
    for line in s.guest.run(f"cat {SLOW}/io.stat").out.splitlines():
        device, *values = line.split()
        if device == number(s.guest, disk):
            return int(dict(v.split("=") for v in values)[what])
    return 0


@pytest.mark.parametrize("mode", MODES)
def test_a_throttled_user_holds_up_no_other(pool_of_two, mode):
    """50 fsyncs to one volume end while a write of 64 MiB to the other is under way."""
    s = pool_of_two
    s.message("mode", mode, name="two")
    limit(s, 1 << 20)
    job = slowly(s, "dd if=/dev/zero of=/dev/mapper/two bs=1M count=48 oflag=direct status=none")
    s.guest.run("sleep 2")
    steps = [step for n in range(50) for step in (f"w:{n * 8}:8:a", "f")]
    io(s.guest, "/dev/mapper/one", *steps)
    s.message("checkpoint", name="pool")
    assert job.poll() is None
    limit(s, "max")
    job.wait(timeout=60)


def test_a_submitter_that_sleeps_holds_up_no_other(make_stack):
    """The block layer makes who submits a write wait: writeback throttling, io.latency, io.cost."""
    s = make_stack(volatile="ssd", ssd=64, hdd=64, hdd2=64)
    s.create("one", "--mode", "writeback", "--cutoff", "0")
    s.attach("two", "hdd2", "--mode", "writeback", "--cutoff", "0")
    s.guest.dm_message("vssd", "throttle", "on")
    # Pages that are written while nobody waits for them, to blocks that must be recorded first
    job = s.guest.run_bg("dd if=/dev/zero of=/dev/mapper/two bs=64k count=16 oflag=nocache status=none")
    s.guest.run("sleep 1")
    io(s.guest, "/dev/mapper/one", *(step for n in range(50) for step in (f"w:{n * 8}:8:a", "f")))
    s.message("checkpoint", name="pool")
    assert job.poll() is None or s.guest.run("grep -q [1-9] /sys/dev/block/$(stat -Lc %Hr:%Lr "
                                             "/dev/mapper/two)/inflight")
    s.guest.dm_message("vssd", "throttle", "off")
    job.wait(timeout=60)
    assert s.guest.run("sync; dmsetup status two").rc == 0


def test_the_user_is_charged(pool_of_two):
    """What a user reads and writes is his, also where it goes through a buffer."""
    s = pool_of_two
    s.message("mode", "writethrough", name="two")
    slowly(s, "dd if=/dev/zero of=/dev/mapper/two bs=64k count=16 oflag=direct status=none").wait()
    assert charged(s, "hdd2", "wbytes") == 1 << 20 <= charged(s, "ssd", "wbytes")
    slowly(s, "dd if=/dev/mapper/two of=/dev/null bs=64k skip=512 count=16 iflag=direct "
              "status=none").wait()
    assert s.status("two")["fills"] and charged(s, "hdd2", "rbytes") >= 1 << 20
    before = charged(s, "ssd", "wbytes")
    # What one user leaves dirty is written back for all.
    s.message("mode", "writeback", name="two")
    slowly(s, "dd if=/dev/zero of=/dev/mapper/two bs=64k seek=32 count=16 oflag=direct "
              "status=none").wait()
    assert charged(s, "ssd", "wbytes") - before == 1 << 20
    s.drain("two")
    assert charged(s, "hdd2", "wbytes") == 1 << 20
