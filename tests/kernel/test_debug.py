# SPDX-License-Identifier: GPL-2.0-or-later
"""A life under KASAN, lockdep, kmemleak; and that they would say what is wrong."""
import pytest

from guest import GuestComplaint, GuestCrash

from .stack import MODES, fio, io

pytestmark = pytest.mark.debug
WRITES = {"write_hits", "write_misses", "bypass_mode"}


def test_a_life_without_a_report(make_stack):
    """Load of all kinds, switches, reloads, a power cut, recovery, the end: see Guest.FAREWELL."""
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", "--cutoff", "64k")
    c2q = s.table("pool")
    # Until told to stop: however slow this kernel is, it is there in every mode
    load = s.guest.run_bg(
        f"until test -e /run/stop; do fio --name=t --filename={dev} --direct=1 --thread --rw=randrw "
        "--bsrange=512-96k --ioengine=libaio --iodepth=8 --size=48m --time_based --runtime=4 --fsync=32 "
        "--verify=crc32c --verify_backlog=64 --verify_fatal=1 --randrepeat=1 || exit 1; done")
    for n, mode in enumerate((*MODES, "writeback")):
        s.message("mode", mode)
        while not WRITES & s.moved(lambda: s.guest.run("sleep 0.5")).keys():
            assert load.poll() is None, load.wait(0).text
        s.guest.run("sleep 1; dmsetup suspend vol; dmsetup resume vol; dmsetup suspend pool")
        s.load("pool", c2q if n % 2 else c2q.replace("c2q", "fifo"))
        s.message("drain")
    s.guest.run("touch /run/stop")
    load.wait(300)
    st = s.status()
    assert st["read_hits"] and st["write_hits"] and st["fills"] and st["writebacks"], st
    s.message("mode", "writeback")
    io(s.guest, dev, "w:0:128:a", "f", "w:256:8:b", "f", "d:1024:256", "z:2048:256")
    s.guest.power_cut()
    s.after_cut()
    assert io(s.guest, dev, "r:0:128", "r:256:8") == ["a", "b"]
    fio(s.guest, dev, "--rw=randwrite", "--bs=4k", "--size=48m", "--io_size=1m",
        "--verify=crc32c", "--do_verify=1", "--verify_fatal=1")
    s.drain()
    s.deactivate()


def test_a_planted_leak_is_seen(make_guest):
    guest = make_guest()
    guest.modprobe("kmemleak-test")
    with pytest.raises(GuestComplaint, match="unreferenced object"):
        guest.check_farewell()
    guest.power_cut()


def test_a_planted_use_after_free_is_seen(make_guest):
    guest = make_guest()
    guest.tolerate.append("__copy_overflow")	# planted, too
    with pytest.raises(GuestCrash, match="KASAN: "):
        guest.run("modprobe kasan_test_module; sleep 1")
        guest.check_console()
    guest.power_cut()
