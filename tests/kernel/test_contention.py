# SPDX-License-Identifier: GPL-2.0-or-later
"""Two CPUs at once in the module: whether one ever waits for a lock that the other one has.

CONFIG_LOCK_STAT counts it. The guest emulates, so how often is no figure; that it is never, is one.
"""
import json
import re

import pytest

from .stack import Stack

pytestmark = [pytest.mark.qemu, pytest.mark.thorough]

WINDOW = 64		# blocks of 4 KiB: neighbours that share a set
GOLDEN = 0x61C8864680B583EB
# The pool's tick, and the look for events: these two may wait for each other.
BACKGROUND = re.compile(r"hybrid_\w+_tick(_flush)?|hybrid_stall_wake|hybrid_engine_(retired|state|status)")


def set_of(window, sets):
    """map.h's, for the pool's first volume."""
    return ((window * GOLDEN & (1 << 64) - 1) >> 32) * sets >> 32


@pytest.fixture
def stack(tools, make_qemu_guest, disks):
    guest = make_qemu_guest(disks=disks("ssd", 32, "hdd", 64), cpus=2, modprobe=["dm-testdisk", "dm-hybrid"])
    assert guest.run("nproc").out.strip() == "2"
    if guest.run("test -e /proc/lock_stat", check=False).rc:
        pytest.skip("a kernel without CONFIG_LOCK_STAT")
    s = Stack(guest)
    s.create("vol", "--mode", "writeback", "--cutoff", "0", "--block-size", "4k")
    return s


def waits(s):
    """{lock in function: how often it was waited for}, of those that the module takes for users' I/O."""
    found = {}
    for line in s.guest.run("cat /proc/lock_stat").out.splitlines():
        m = re.match(r"\s*(\S+) +(\d+) +\[<\S+>\] (\w+)\S* \[dm_hybrid", line)
        if m and not BACKGROUND.fullmatch(m[3]):
            place = f"{m[1]} in {m[3]}"
            found[place] = found.get(place, 0) + int(m[2])
    return found


def both(s, kind, places):
    """Ten seconds of each CPU, in the window at its place; what waited, and the I/Os of each."""
    s.guest.run("echo 0 >/proc/lock_stat; echo 1 >/proc/sys/kernel/lock_stat")
    jobs = [s.guest.run_bg(f"fio --filename=/dev/mapper/vol --direct=1 --ioengine=libaio --iodepth=16 --rw={kind} "
                           f"--bs=4k --size={WINDOW * 4}k --offset={place * WINDOW * 4}k --time_based --runtime=10 "
                           f"--randrepeat=1 --output-format=json --name=cpu{cpu} --cpus_allowed={cpu}")
            for cpu, place in enumerate(places)]
    outs = [job.wait(timeout=240).out for job in jobs]
    s.guest.run("echo 0 >/proc/sys/kernel/lock_stat")
    sums = [json.loads(out[out.index("{"):])["jobs"][0] for out in outs]
    return waits(s), [job["read"]["total_ios"] + job["write"]["total_ios"] for job in sums]


def test_hits_on_disjoint_sets_never_wait(stack):
    s = stack
    sets = s.status("pool")["blocks"] // 512
    assert sets > 1
    other = next(w for w in range(1, 200) if set_of(w, sets) != set_of(0, sets))
    for window in (0, other):
        s.guest.run(f"dd if=/dev/urandom of=/dev/mapper/vol bs={WINDOW * 4}k seek={window} count=1 "
                    "oflag=direct conv=notrunc,fsync status=none")
    for kind, places, hits in (("randread", (0, other), "read_hits"), ("randwrite", (0, other), "write_hits"),
                               # Without a lock, whoever else reads the same.
                               ("randread", (0, 0), "read_hits")):
        before = s.status()[hits]
        found, ios = both(s, kind, places)
        print(kind, places, ios, found)
        assert not found
        assert min(ios) > 100 and s.status()[hits] - before >= sum(ios)
    # A wait would be seen: of those who write the same blocks.
    for _ in range(5):
        found, ios = both(s, "randwrite", (0, 0))
        print("randwrite on one set:", ios, found)
        if found:
            break
    assert found
    s.drain()
    s.deactivate()
