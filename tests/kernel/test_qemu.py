# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's own kernel and, what User Mode Linux cannot have, two CPUs and preemption.

DM_HYBRID_GUEST=x86-debug or x86-kcsan runs the same in a kernel with checkers.
"""
import itertools
import time

import pytest

from guest import GuestCrash

from .stack import MODES, POLICIES, Stack

pytestmark = [pytest.mark.qemu, pytest.mark.slow, pytest.mark.kernels]


def test_life_and_power_cut(tools, make_qemu_guest, disks):
    guest = make_qemu_guest(disks=disks("ssd", 32, "hdd", 64),
                            modprobe=["dm-testdisk", "dm-hybrid"])
    stack = Stack(guest, volatile={"ssd": "0", "hdd": "0"}).members()
    vol = stack.create("vol", "--mode", "writeback")
    guest.run(f"mkfs.ext4 -q {vol} && mount {vol} /mnt")
    guest.run("dd if=/dev/urandom of=/mnt/f bs=64k count=64 conv=fsync status=none")
    digest = guest.run("md5sum </mnt/f").out
    guest.run("echo 3 >/proc/sys/vm/drop_caches")
    assert guest.run("md5sum </mnt/f").out == digest
    assert stack.status()["dirty"] > 0
    guest.power_cut()
    stack.after_cut()
    guest.run(f"mount {vol} /mnt")
    assert guest.run("md5sum </mnt/f").out == digest
    assert stack.status()["mode"] == "writeback"
    guest.run(f"umount /mnt && e2fsck -fn {vol}")
    stack.drain()
    stack.deactivate()
    with pytest.raises(GuestCrash, match="sysrq triggered crash"):
        guest.run("echo c >/proc/sysrq-trigger")


def test_hibernation_is_refused(tools, make_qemu_guest, disks):
    """The boot that resumes an image changes the pool beneath it; without a pool all is well."""
    guest = make_qemu_guest(disks=disks("ssd", 32, "hdd", 64), modprobe=["dm-testdisk", "dm-hybrid"])
    if guest.run("grep -qw disk /sys/power/state", check=False).rc:
        pytest.skip("this kernel cannot hibernate")
    guest.run("echo freezer >/sys/power/pm_test")
    hibernate = "echo disk >/sys/power/state"
    stack = Stack(guest)
    vol = stack.create("vol", "--mode", "writeback")
    assert guest.run(hibernate, check=False).rc
    assert "no hibernation while the pool on" in guest.run("dmesg").out
    guest.run(f"dd if=/dev/zero of={vol} bs=64k count=4 oflag=direct status=none")
    stack.deactivate()
    # No second notification follows a refusal: pools come up as before
    stack.activate()
    assert stack.status()["dirty"] == 4
    stack.deactivate()
    guest.run(hibernate)
    # From its beginning to its end no pool comes up that would be in the image
    activate = "hybridctl activate --all --device /dev/test/ssd --device /dev/test/hdd"
    r = guest.run(f"exec 3</dev/snapshot; {activate}", check=False)
    assert r.rc and "The system hibernates" in r.err
    stack.activate()


def test_two_cpus(tools, make_qemu_guest, disks):
    """Verified writes from both CPUs into a cache too small for them, while the mode changes."""
    guest = make_qemu_guest(disks=disks("ssd", 32, "hdd", 160), cpus=2,
                            modprobe=["dm-testdisk", "dm-hybrid"])
    assert guest.run("nproc").out.strip() == "2"
    stack = Stack(guest)
    vol = stack.create("vol", "--mode", "writeback", "--cutoff", "0")
    guest.run(f"mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 {vol} && mount {vol} /mnt")
    fio = guest.run_bg(
        ["fio", "--directory=/mnt", "--size=16m", "--rw=randwrite", "--direct=1",
         "--bsrange=4k-32k", "--ioengine=libaio", "--iodepth=8", "--verify=crc32c",
         "--verify_backlog=128", "--verify_fatal=1", "--randrepeat=1", "--runtime=10",
         "--time_based", "--fsync=64", "--fallocate=none", "--name=a", "--name=b", "--name=c",
         "--name=d"])
    for mode in itertools.cycle(MODES):
        if fio.poll():
            break
        stack.message("mode", mode)
        time.sleep(0.5)
    fio.wait()
    st = stack.status()
    assert st["read_hits"] and st["write_hits"] and st["writebacks"]
    assert not st["cache_errors"] and not st["origin_errors"]
    guest.run("umount /mnt")
    guest.run(f"e2fsck -fn {vol}")
    stack.message("mode", "writethrough")
    stack.wait("dirty", 0)
    stack.deactivate()
    guest.run("rmmod dm-hybrid-c2q dm-hybrid")


def test_races(tools, make_qemu_guest, disks):
    """Both CPUs at once in hits, fills, evictions, writeback, while all that can change does."""
    guest = make_qemu_guest(disks=disks("ssd", 16, "hdd", 64, "hdd2", 32), cpus=2,
                            modprobe=["dm-testdisk", "dm-hybrid"], memory=768)
    stack = Stack(guest)
    one = stack.create("one", "--mode", "writeback", "--cutoff", "0", "--block-size", "16k")
    two = stack.attach("two", "hdd2", "--cutoff", "64k")
    pool = stack.table("pool")
    rounds = 0

    def seen() -> bool:
        st = stack.status("one")
        return bool(st["read_hits"] and st["write_hits"] and st["fills"] and st["writebacks"]
                    and stack.status("pool")["evictions"])

    for _ in range(4):		# a busy host leaves time for little at once
        # Each CPU has one that reads what is hot, one that verifies what it writes.
        loads = [guest.run_bg(
            ["fio", f"--filename={dev}", "--direct=1", "--thread", "--time_based", "--runtime=25",
             "--ioengine=libaio", "--randrepeat=1", "--iodepth=4",
             "--name=hot", "--rw=randread", "--bs=4k", "--size=1m", "--offset=24m", f"--cpus_allowed={n}",
             "--name=verified", "--rw=randrw", "--bsrange=512-48k", "--size=24m", "--fsync=32",
             "--verify=crc32c", "--verify_backlog=64", "--verify_fatal=1", f"--cpus_allowed={1 - n}"])
            for n, dev in enumerate((one, two))]
        while not all(load.poll() for load in loads):
            mode = MODES[rounds % len(MODES)]
            stack.script(f"""
                dmsetup message one 0 mode {mode}
                dmsetup message two 0 mode {MODES[-1 - rounds % len(MODES)]}
                dmsetup message pool 0 drain
                dmsetup status one; dmsetup status pool; dmsetup message pool 0 checkpoint
                dmsetup suspend two; dmsetup resume two; dmsetup suspend --noflush one
                dmsetup resume one; dmsetup suspend pool
                echo '{pool.replace("c2q", POLICIES[rounds % len(POLICIES)])}' | dmsetup load pool
                dmsetup resume pool
                """)
            rounds += 1
        for load in loads:
            load.wait()
        if rounds >= 2 and seen():
            break
    assert rounds >= 2 and seen(), stack.status("one")
    stack.message("drain", name="pool")
    stack.wait("dirty", 0, "pool", timeout=120)
    stack.deactivate()
    guest.run(f"for p in {' '.join(POLICIES)}; do rmmod dm-hybrid-$p; done; rmmod dm-hybrid dm-testdisk")
