# SPDX-License-Identifier: GPL-2.0-or-later
"""The harness itself: a test that passes because its tools are broken proves nothing."""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from guest import CommandError, GuestComplaint, GuestCrash, GuestTimeout, base

SECTOR = 512
TESTS = Path(__file__).resolve().parents[1]
# A test run that says which session its guest is, and waits
RUN = """
import sys
from pathlib import Path
from guest import UmlGuest
guest = UmlGuest(*map(Path, sys.argv[1:])).boot()
print(guest._process.pid, flush=True)
input()
"""
HDD = "7200 150 1000 16000 32 8192 100"
SSD = "16 80 30 500 450 1000"


def volatile(guest, name, features="", sectors=None):
    """A volatile disk over the guest's disk of that name."""
    disk = next(d for d in guest.disks if d.name == name)
    return guest.dm_create(f"v{name}", f"0 {sectors or disk.sectors} volatile {disk.dev} 0 {features}")


def put(guest, dev, sector, data, *flags):
    """One direct write of 512-byte units."""
    guest.run(["dd", f"of={dev}", "bs=512", f"seek={sector}", "oflag=direct",
               "conv=notrunc", "status=none", *flags], input=data)


def get(guest, dev, sector, count=1):
    return guest.run(f"dd if={dev} bs=512 skip={sector} count={count} iflag=direct status=none").out


def fio(guest, dev, *options, timeout=60):
    out = guest.run(["fio", "--name=t", f"--filename={dev}", "--direct=1", "--thread",
                     "--randrepeat=1", "--output-format=json", *options], timeout=timeout).out
    return json.loads(out[out.index("{"):])["jobs"][0]


# --- guests -------------------------------------------------------------------


def test_boots_and_runs_commands(guest):
    assert guest.run("echo out; echo err >&2; exit 3", check=False) == (3, "out\n", "err\n")
    assert guest.run(["printf", "%s", "a b $HOME"]).out == "a b $HOME"
    assert guest.run("cat", input="x" * 300000).out == "x" * 300000
    assert guest.run("echo $V", env={"V": "7"}).out == "7\n"
    with pytest.raises(CommandError, match="exit status 1"):
        guest.run("false")
    guest.write_file("/etc/dm-hybrid-test", "the root is writable\n")
    assert guest.read_file("/etc/dm-hybrid-test") == "the root is writable\n"
    assert guest.run("dmsetup targets | grep -c -E '^(hddsim|ssdsim|volatile) '").out == "3\n"


def test_is_ready_in_about_a_second(guest):
    """Of CPU time: the clock also counts what else the machine does."""
    assert guest.cpu_seconds() < 3


def test_random_numbers_are_there_before_init(guest):
    """Init's Python reads some as it starts; without them the kernel spins for up to 15 s."""
    console = guest.console_path.read_text(errors="replace")
    assert console.index("random: crng init done") < console.index(" as init process"), console


def test_host_is_untouched(guest):
    guest.run("touch /etc/dm-hybrid-leak")
    assert guest.run(["ls", "/etc/dm-hybrid-leak"], check=False).rc == 0
    with pytest.raises(FileNotFoundError):
        open("/etc/dm-hybrid-leak")


def test_commands_run_beside_each_other(guest):
    job = guest.run_bg("read x; until [ -e /run/go ]; do sleep 0.1; done; echo $x", input="later\n")
    assert guest.run("echo now").out == "now\n"
    assert job.poll() is None
    guest.run("touch /run/go")
    assert job.wait().out == "later\n"
    job = guest.run_bg("sleep 100")
    job.kill()
    assert job.wait(check=False).rc == -9


def test_hung_command_times_out(guest):
    with pytest.raises(GuestTimeout, match="sleep 100(?s:.*)the agent answers"):
        guest.run("sleep 100", timeout=1)
    assert guest.run("echo alive").out == "alive\n"


def test_hung_guest_is_told_from_a_hung_command(guest):
    """It does not answer; what its processes do then is seen on the host only."""
    leader = guest._process.pid
    for pid in sorted(pid for pid, _ in base._processes(leader)):
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(GuestTimeout, match=f"agent does not answer(?s:.*)\n{leader} T (?s:.*)console"):
            guest.run("true", timeout=1)
    finally:
        guest.power_cut()


def test_modprobe_finds_modules(guest):
    guest.run("rmmod dm-testdisk")
    guest.modprobe("brd")
    # request_module() by the kernel itself
    guest.run("dmsetup create x --table '0 8 no-such-target'", check=False)
    guest.modprobe("dm-testdisk")
    assert "dm_testdisk" in guest.run("lsmod").out


def test_planted_panic_is_a_crash(make_guest):
    guest = make_guest()
    with pytest.raises(GuestCrash, match="(?s)Kernel panic - not syncing: sysrq.*Call Trace"):
        guest.run("echo c >/proc/sysrq-trigger")
    guest.power_cut()


def test_death_is_noticed(make_guest):
    guest = make_guest()
    guest.run_bg("sleep 0.3; echo o >/proc/sysrq-trigger")
    with pytest.raises(GuestCrash, match="died"):
        guest.run("sleep 20", timeout=10)


def test_kernel_warning_is_a_complaint(make_guest):
    guest = make_guest()
    guest.run("echo 'WARNING: CPU: 0 PID: 1 at planted' >/dev/kmsg")
    with pytest.raises(GuestComplaint, match="planted"):
        guest.check_console()
    guest.tolerate.append("harmless")
    guest.run("echo 'WARNING: harmless' >/dev/kmsg")
    guest.check_console()


def test_no_guest_outlives_a_killed_run(uml_kernel, tmp_path):
    run = subprocess.Popen([sys.executable, "-c", RUN, tmp_path, uml_kernel], cwd=TESTS, text=True,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    leader = int(run.stdout.readline())

    def alive():
        return [pid for pid, fields in base._processes(leader) if fields[0] != "Z"]

    assert len(alive()) > 1
    os.killpg(leader, signal.SIGSTOP)	# else it may notice, and end by itself
    run.kill()
    run.communicate()
    end = time.monotonic() + 30
    while alive() and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive()


def test_two_guests(make_guest):
    a, b = make_guest(), make_guest()
    jobs = [g.run_bg("sleep 0.5; cat /proc/sys/kernel/random/boot_id") for g in (a, b)]
    assert jobs[0].wait().out != jobs[1].wait().out
    a.power_cut()
    assert b.run("echo alive").out == "alive\n"


def test_disks_outlive_guests(make_guest, disks):
    guest = make_guest(disks=disks("a", 16, "b", 32))
    assert guest.run("blockdev --getsize64 /dev/test/a /dev/test/b").out.split() == [
        str(16 << 20), str(32 << 20)]
    put(guest, "/dev/test/b", 5, b"B" * SECTOR)
    guest.power_cut()
    assert guest.disks[1].read(5 * SECTOR, SECTOR) == b"B" * SECTOR
    guest.disks[0].write(0, b"from the host")
    guest.boot()
    assert get(guest, "/dev/test/b", 5) == "B" * SECTOR
    assert get(guest, "/dev/test/a", 0).startswith("from the host")


@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_file_systems(make_guest, disks, fs):
    guest = make_guest(disks=disks("a", 320))
    dev = volatile(guest, "a")
    guest.run(f"mkfs.{fs} -q {dev} && mount {dev} /mnt && echo data >/mnt/f && sync /mnt/f")
    guest.reboot()
    guest.modprobe("dm-testdisk")
    dev = volatile(guest, "a")
    guest.run(f"mount {dev} /mnt")
    assert guest.read_file("/mnt/f") == "data\n"


# --- volatile -----------------------------------------------------------------


def test_power_cut_loses_what_was_not_flushed(make_guest, disks):
    guest = make_guest(disks=disks("a", 16, "b", 16))
    a, b = volatile(guest, "a"), volatile(guest, "b")
    put(guest, a, 0, b"1" * SECTOR)			# flushed below
    put(guest, b, 0, b"1" * SECTOR)			# another device: not flushed
    put(guest, a, 17, b"4" * SECTOR, "oflag=direct,dsync")	# FUA, then a flush
    guest.run(f"blockdev --flushbufs {a}; python3 -c \"import os; "
              f"os.fsync(os.open('{a}', os.O_RDWR))\"")
    put(guest, a, 0, b"2" * SECTOR)			# newer, not flushed
    put(guest, a, 9, b"3" * SECTOR)			# not flushed
    assert get(guest, a, 0) == "2" * SECTOR
    assert get(guest, a, 8, 3) == "\0" * SECTOR + "3" * SECTOR + "\0" * SECTOR
    disk_a, disk_b = guest.disks
    guest.power_cut()
    assert disk_a.read(0, SECTOR) == b"1" * SECTOR
    assert disk_a.read(9 * SECTOR, SECTOR) == bytes(SECTOR)
    assert disk_a.read(17 * SECTOR, SECTOR) == b"4" * SECTOR
    assert disk_b.read(0, SECTOR) == bytes(SECTOR)


def test_destaging_leaves_a_torn_subset(make_guest, disks):
    guest = make_guest(disks=disks("a", 16))
    dev = volatile(guest, "a", "5 destage_pct 50 seed 3 torn")
    put(guest, dev, 0, b"x" * (256 * SECTOR))
    guest.run("sleep 0.3")
    assert get(guest, dev, 0, 256) == "x" * (256 * SECTOR)
    guest.power_cut()
    on_disk = [guest.disks[0].read(n * SECTOR, SECTOR) for n in range(256)]
    assert set(on_disk) == {b"x" * SECTOR, bytes(SECTOR)}
    assert 80 < on_disk.count(bytes(SECTOR)) < 176


def test_lying_disk_loses_flushed_data(make_guest, disks):
    guest = make_guest(disks=disks("a", 16))
    dev = volatile(guest, "a", "1 lying")
    put(guest, dev, 0, b"x" * SECTOR, "oflag=direct,dsync", "conv=notrunc,fsync")
    guest.power_cut()
    assert guest.disks[0].read(0, SECTOR) == bytes(SECTOR)


def test_removal_writes_everything(make_guest, disks):
    guest = make_guest(disks=disks("a", 16))
    dev = volatile(guest, "a")
    put(guest, dev, 0, b"x" * (2048 * SECTOR))
    guest.dm_remove("va")
    guest.power_cut()
    assert guest.disks[0].read(0, 2048 * SECTOR) == b"x" * (2048 * SECTOR)


def test_failures_on_demand(make_guest, disks):
    guest = make_guest(disks=disks("a", 16))
    dev = volatile(guest, "a")
    write = f"dd if=/dev/zero of={dev} bs=4k count=1 oflag=direct"
    read = f"dd if={dev} of=/dev/null bs=4k count=1 iflag=direct"
    flush = f"python3 -c \"import os; os.fsync(os.open('{dev}', os.O_RDWR))\""

    def outcome():
        return [guest.run(c, check=False).rc == 0 for c in (write, read, flush)]

    assert outcome() == [True, True, True]
    for message, expected in (("fail read", [True, False, True]),
                              ("fail read off", [True, True, True]),
                              ("fail write", [False, True, True]),
                              ("fail all off", [True, True, True]),
                              ("fail flush on", [True, True, False]),
                              ("fail flush off", [True, True, True]),
                              ("fail all once", [False, False, False]),
                              ("log off", [True, True, True]),
                              ("die", [False, False, False]),
                              ("revive", [True, True, True])):
        guest.dm_message("va", *message.split())
        assert outcome() == expected, message
    put(guest, dev, 8, b"x" * SECTOR)
    guest.dm_message("va", "lose")
    assert get(guest, dev, 8) == "\0" * SECTOR
    assert guest.run("dmsetup message va 0 nonsense", check=False).rc != 0


def test_verify_over_volatile(make_guest, disks):
    """The cache's own bookkeeping: mixed sizes, flushes and reads, all verified."""
    guest = make_guest(disks=disks("a", 64), memory=768)
    dev = volatile(guest, "a", "5 destage_pct 30 seed 1 torn")
    fio(guest, dev, "--rw=randwrite", "--bsrange=512-64k", "--size=48m", "--ioengine=libaio",
        "--iodepth=8", "--fsync=50", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1",
        timeout=120)


# --- the log ------------------------------------------------------------------


def test_log_has_one_order(make_guest, disks):
    guest = make_guest(disks=disks("a", 16, "b", 16))
    a, b = volatile(guest, "a"), volatile(guest, "b")
    guest.dm_message("va", "log", "on")
    put(guest, a, 8, b"x" * SECTOR)
    put(guest, b, 16, b"x" * SECTOR, "oflag=direct,dsync")
    put(guest, a, 24, b"x" * 1024, "conv=notrunc,fsync")
    guest.dm_message("va", "log", "off")
    get(guest, a, 100)
    log = [op for op in guest.op_log() if op.op in "WF"]
    assert [(op.device, op.op, op.sector, op.count, op.fua) for op in log if op.event == "S"
            and not (op.device == "vb" and op.op == "F")] == [
        ("va", "W", 8, 1, False), ("vb", "W", 16, 1, True), ("va", "W", 24, 1, False),
        ("va", "W", 25, 1, False), ("va", "F", 0, 0, False)]
    assert sorted(op.seq for op in log) == [op.seq for op in log]
    starts = {op.id for op in log if op.event == "S"}
    assert starts == {op.id for op in log if op.event == "E"}
    guest.dm_message("va", "log", "clear")
    assert guest.op_log() == []


# --- timing -------------------------------------------------------------------


# What the models decide, whatever the clock says: a busy host is late, but the models do not know.

def modelled(guest, dev, *options):
    """fio's job, and how far the disk's own counters moved."""
    def counters():
        words = guest.dm_status(dev).split()[3:]
        return dict(zip(words[::2], map(int, words[1::2])))
    before = counters()
    job = fio(guest, f"/dev/mapper/{dev}", *options)
    return job, {key: value - before[key] for key, value in counters().items()}


def test_hddsim_is_a_disk(make_guest, disks):
    guest = make_guest(disks=disks("a", 1024))
    guest.dm_create("hdd", f"0 {guest.disks[0].sectors} hddsim /dev/test/a 0 {HDD}")
    job, moved = modelled(guest, "hdd", "--rw=randread", "--bs=4k", "--ioengine=psync", "--number_ios=250")
    assert moved["r"] == 250 and moved["seeks"] > 240
    assert 60 < 1000 * moved["r"] / moved["busy_ms"] < 140
    # Late it may be, never early
    assert job["read"]["iops"] < 140
    job, moved = modelled(guest, "hdd", "--rw=read", "--bs=1m", "--ioengine=libaio", "--iodepth=4",
                          "--number_ios=250")
    assert moved["rs"] == 250 * 2048 and moved["seq"] > moved["seeks"]
    # What the look-ahead has read while the host was busy costs nothing
    assert 90 < moved["rs"] * SECTOR / 1000 / moved["busy_ms"]
    assert job["read"]["bw"] / 1000 < 170
    assert guest.dm_status("hdd").split()[2] == "hddsim"
    assert guest.run("dmsetup table hdd").out.split()[2:] == [
        "hddsim", guest.run("stat -Lc %Hr:%Lr /dev/test/a").out.strip(), "0", *HDD.split()]


def test_hddsim_shingled(make_guest, disks):
    """64 bands of 4 MiB, a media cache of 2 MiB: rewrites of bands need no cleaning, random writes do."""
    guest = make_guest(disks=disks("a", 256))
    guest.dm_create("hdd", f"0 {guest.disks[0].sectors} hddsim /dev/test/a 0 {HDD} smr 4 2")
    _, moved = modelled(guest, "hdd", "--rw=write", "--bs=1m", "--ioengine=psync", "--end_fsync=1")
    assert moved["ws"] == guest.disks[0].sectors and moved["cleaned"] == 0
    _, moved = modelled(guest, "hdd", "--rw=randwrite", "--bs=4k", "--ioengine=psync", "--number_ios=400",
                        "--end_fsync=1")
    # With 1 MiB in its log the drive begins to clean, and each band frees some 20 KiB.
    assert moved["w"] == 400 and 15 < moved["cleaned"] <= 64
    # Cleaning moves 8 MiB, at 150 MB/s.
    assert moved["busy_ms"] > moved["cleaned"] * 8000 // 150
    _, moved = modelled(guest, "hdd", "--rw=randread", "--bs=4k", "--ioengine=psync", "--number_ios=20",
                        "--thinktime=1500ms", "--thinktime_blocks=19")
    assert moved["cleaned"] > 0		# in the idle second
    assert guest.run("dmsetup table hdd").out.split()[-3:] == ["smr", "4", "2"]


@pytest.mark.parametrize("words", ["smr 4", "smr 0 2", "smr 4 1", "pmr 4 2", "smr 4 2 1"])
def test_hddsim_refuses(make_guest, disks, words):
    guest = make_guest(disks=disks("a", 16))
    with pytest.raises(CommandError):
        guest.dm_create("hdd", f"0 {guest.disks[0].sectors} hddsim /dev/test/a 0 {HDD} {words}")


def test_ssdsim_is_an_ssd(make_guest, disks):
    guest = make_guest(disks=disks("a", 256))
    channels, read_us, write_us, read_mb, write_mb, _ = map(int, SSD.split())
    guest.dm_create("ssd", f"0 {guest.disks[0].sectors} ssdsim /dev/test/a 0 {SSD}")
    # One at a time: neither channels nor the link are waited for
    for what, key, us, mb in ("read", "r", read_us, read_mb), ("write", "w", write_us, write_mb):
        job, moved = modelled(guest, "ssd", f"--rw=rand{what}", "--bs=4k", "--ioengine=psync",
                              "--number_ios=300")
        each = 1000 * us + 4096 * 1000 // mb
        assert moved[key] == 300 and moved["busy_ns"] == 300 * each
        assert job[what]["iops"] < 1e9 / each
    # As many as there are channels: only the link is
    job, moved = modelled(guest, "ssd", "--rw=randread", "--bs=64k", "--ioengine=libaio",
                          f"--iodepth={channels}", "--number_ios=300")
    link = 65536 * 1000 // read_mb
    assert 300 * (1000 * read_us + link) <= moved["busy_ns"] <= 300 * (1000 * read_us + channels * link)
    assert job["read"]["bw"] < 1.024 * 1000 * read_mb


@pytest.mark.parametrize("fua", [True, False])
def test_ssdsim_flushes_for_fua(make_guest, disks, fua):
    """An SSD without FUA: each such write takes a flush, too."""
    guest = make_guest(disks=disks("a", 256))
    table = f"0 {guest.disks[0].sectors} ssdsim /dev/test/a 0 {SSD}{'' if fua else ' nofua'}"
    guest.dm_create("ssd", table)
    _, moved = modelled(guest, "ssd", "--rw=randwrite", "--bs=4k", "--ioengine=psync", "--sync=dsync",
                        "--number_ios=20")
    # Linux flushes after a write with O_DSYNC in any case.
    assert moved["w"] == 20 and moved["f"] == (20 if fua else 40)
    assert guest.run("dmsetup table ssd").out.split()[-1] == ("nofua" if not fua else SSD.split()[-1])


def test_timing_stacks_on_volatile(make_guest, disks):
    guest = make_guest(disks=disks("a", 256))
    below = volatile(guest, "a")
    dev = guest.dm_create("hdd", f"0 {guest.disks[0].sectors} hddsim {below} 0 {HDD}")
    put(guest, dev, 0, b"1" * SECTOR, "conv=notrunc,fsync")
    put(guest, dev, 0, b"2" * SECTOR)
    assert get(guest, dev, 0) == "2" * SECTOR
    guest.power_cut()
    assert guest.disks[0].read(0, SECTOR) == b"1" * SECTOR
