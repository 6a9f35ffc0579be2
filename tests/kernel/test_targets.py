# SPDX-License-Identifier: GPL-2.0-or-later
"""Loading, tables, status lines, messages, and removal in every order."""
import json
import re

import pytest

from .stack import MODES, io

POOL_KEYS = """state policy block_sectors granule_sectors blocks used free dirty volumes
open_regions ram ram_per_block journal_used journal_blocks journal_writes journal_records
checkpoints metadata_writes cache_flushes evictions errors draining cache_written
high_watermark low_watermark writeback_rate commit_interval endurance
metadata_share trim_rate read_error_limit write_error_limit metadata read_errors write_errors flush_errors trimmed retired
total_written drain_on dirty_sectors failing recent_read_errors recent_write_errors endurance_left
endurance_owed intent_writes""".split()
VOLUME_KEYS = """state mode dirty draining cached read_hits read_misses write_hits write_misses
bypass_sequential bypass_policy bypass_full bypass_busy bypass_mode bypass_partial fills
writebacks discards flushes origin_flushes cache_errors origin_errors
lost bypass_once cutoff drain_on dirty_sectors""".split()


def rc(stack, command):
    return stack.guest.run(command, check=False).rc


def documented(top, section, title):
    """The keys that dm-hybrid.rst lists in a table of a section."""
    text = (top / "dm-hybrid/Documentation/dm-hybrid.rst").read_text()
    text = text[text.index(f"\n{section}\n"):]
    rows = text[text.index(f"\n{title}\n---"):].split("\n====")[1:3][0].splitlines()[1:]
    return [r.split()[0] for r in rows if r and not r[0].isspace()]


@pytest.mark.kernels
def test_module_has_both_targets_and_loads_policies_by_name(make_stack, top):
    headers = "".join((top / "dm-hybrid" / name).read_text() for name in ("version.h", "core/format.h"))
    version = ".".join(re.search(rf"#define HYBRID_{word}\s+(\d+)", headers)[1]
                       for word in ("TARGET_MAJOR", "TARGET_MINOR", "FORMAT_VERSION"))
    s = make_stack()
    out = s.guest.run("dmsetup targets").out
    assert f"hybrid-pool      v{version}" in out and f"hybrid           v{version}" in out
    assert s.guest.run("cat /sys/module/dm_hybrid/version").out == f"{version}\n"
    assert "dm_hybrid_fifo" not in s.guest.run("lsmod").out
    s.create("vol", "--policy", "fifo")
    assert "dm_hybrid_fifo" in s.guest.run("lsmod").out
    assert s.status("pool")["policy"] == "fifo"
    # A policy in use cannot go; afterwards all can.
    assert rc(s, "rmmod dm-hybrid-fifo") and rc(s, "rmmod dm-hybrid")
    s.deactivate()
    s.guest.run("rmmod dm-hybrid-fifo dm-hybrid")


@pytest.mark.kernels
def test_targets_load_by_name(make_stack):
    """dm core asks for dm-hybrid-pool: the alias leads to the module."""
    s = make_stack()
    s.create()
    tables = s.guest.run("hybridctl table").out
    s.deactivate()
    s.guest.run("rmmod dm-hybrid-c2q dm-hybrid")
    s.guest.run(tables)
    assert s.status()["state"] == "running"


@pytest.mark.kernels
@pytest.mark.parametrize("mode", MODES)
def test_reads_what_was_written(make_stack, mode):
    s = make_stack()
    dev = s.create("vol", "--mode", mode, "--cutoff", "0")
    assert io(s.guest, dev, "w:0:8:a", "r:0:8", "w:130:3:b", "r:128:8", "w:1000:600:c",
              "r:992:616", "r:128:128", "r:0:128", "W:4:1:d", "f", "r:0:8") == [
        "a", "0b0", "0c0", "0b0", "a0", "ada"]
    s.deactivate()
    s.activate()
    assert io(s.guest, dev, "r:0:8", "r:128:8", "r:992:616") == ["ada", "0b0", "0c0"]


def test_several_volumes_share_a_pool(make_stack):
    s = make_stack(ssd=32, hdd=32, hdd2=32, hdd3=48)
    devs = [s.create("one", "--mode", "writeback"), s.attach("two", "hdd2"),
            s.attach("three", "hdd3", "--mode", "writearound", "--cutoff", "0")]
    for letter, dev in zip("xyz", devs):
        io(s.guest, dev, f"w:256:256:{letter}", f"w:8:8:{letter}")
    for letter, dev in zip("xyz", devs):
        assert io(s.guest, dev, "r:256:256", "r:0:24") == [letter, f"0{letter}0"]
    assert s.status("pool")["volumes"] == 3
    assert [s.status(n)["mode"] for n in ("one", "two", "three")] == [
        "writeback", "writethrough", "writearound"]
    # They come and go while others run.
    s.guest.dm_remove("two")
    assert s.status("pool")["volumes"] == 2
    assert io(s.guest, devs[0], "r:256:256") == ["x"]
    s.guest.run("hybridctl activate two --device /dev/test/hdd2 --device /dev/test/ssd")
    assert io(s.guest, devs[1], "r:256:256") == ["y"]
    rows = [r.split() for r in s.message("volumes", name="pool").splitlines() if r]
    assert [(int(r[10]) > 0, int(r[11])) for r in rows] == [(True, 264), (False, 0), (False, 0)]
    assert [(r[0], r[1], r[3], r[5], *r[6:10]) for r in rows] == [
        ("0", "active", "one", "writeback", "2048", "61440", "8192", "formatted"),
        ("1", "active", "two", "writethrough", "2048", "61440", "8192", "formatted"),
        ("2", "active", "three", "writearound", "2048", "94208", "0", "formatted")]


@pytest.mark.kernels
def test_status_has_exactly_the_documented_keys(make_stack, top):
    s = make_stack()
    s.create()
    assert list(s.status("pool")) == POOL_KEYS == documented(top, "Status", "Pool")
    assert list(s.status()) == VOLUME_KEYS == documented(top, "Status", "Volume")
    pool, vol = s.status("pool"), s.status()
    assert (pool["state"], pool["policy"], pool["block_sectors"], pool["granule_sectors"],
            pool["volumes"], pool["dirty"], pool["errors"], pool["draining"]) == (
        "running", "c2q", 128, 8, 1, 0, 0, 0)
    assert pool["used"] + pool["free"] == pool["blocks"]
    assert 0 < pool["ram_per_block"] <= 40	# so small a pool; tests/unit: 32
    assert (vol["state"], vol["mode"], vol["dirty"], vol["draining"]) == (
        "running", "writethrough", 0, 0)
    # The tools read the same line.
    got = json.loads(s.guest.run("hybridctl get vol --json").out)
    assert "read_hits" in json.dumps(got)


def test_workqueues_carry_the_pools_number(make_stack):
    s = make_stack()
    s.create("vol")
    number = s.guest.run("stat -Lc %Hr:%Lr /dev/mapper/pool").out.strip()
    names = s.guest.run("cat /proc/[0-9]*/comm").out.split()
    # A thread's name ends after 15 characters.
    assert f"dm-hybrid/{number}"[:15] in names


@pytest.mark.kernels
def test_table_prints_the_words_given_with_current_values(make_stack):
    s = make_stack()
    s.create("vol", "--mode", "writeback", "--cutoff", "1m")
    dev = {n: s.guest.run(f"stat -Lc %Hr:%Lr {p}").out.strip()
           for n, p in (("ssd", "/dev/test/ssd"), ("hdd", "/dev/test/hdd"),
                        ("pool", "/dev/mapper/pool"))}
    assert s.table() == f"0 126976 hybrid {dev['pool']} 0 {dev['hdd']} 3 writeback cutoff 2048"
    uuid = s.table("pool").split()[7]
    assert s.table("pool") == f"0 65536 hybrid-pool {dev['ssd']} 128 2 uuid {uuid} c2q 0"
    s.load("pool", s.pool_table("uuid", uuid, "endurance", 5, "high_watermark", 65))
    # Messages change the values of words that the table has, and add none.
    s.message("mode", "writearound")
    s.message("cutoff", 77)
    want = {"high_watermark": 60, "low_watermark": 5, "writeback_rate": 12345, "commit_interval": 500,
            "endurance": 77, "metadata_share": 30, "trim_rate": 4096,
            "read_error_limit": 7, "write_error_limit": 8}
    for tunable, value in want.items():
        s.message("set", tunable, value, name="pool")
    assert s.table().endswith(" 3 writearound cutoff 77")
    assert s.table("pool").endswith(f" 6 uuid {uuid} high_watermark 60 endurance 77 c2q 0")
    for name in ("pool", "vol"):
        line = s.table(name)
        s.load(name, line)
        assert s.table(name) == line
    # A reload takes nothing back of what it does not name.
    s.load("pool", s.pool_table("low_watermark", 7))
    assert s.table("pool").endswith(" 128 2 low_watermark 7 c2q 0")
    want["low_watermark"] = 7
    assert {key: s.status("pool")[key] for key in want} == want
    s.load("vol", " ".join(s.table().split()[:6]) + " 0")
    assert s.table().endswith(f" {dev['hdd']} 0")
    assert s.status()["mode"] == "writearound" and s.status()["cutoff"] == 77
    s.message("mode", "writeback")
    assert s.table().endswith(f" {dev['hdd']} 0") and s.status()["mode"] == "writeback"
    s.load("vol", " ".join(s.table().split()[:6]) + " 1 passthrough")
    assert s.table().endswith(" 1 passthrough") and s.status()["cutoff"] == 77


def test_a_table_contradicts_a_recorded_tunable(make_stack):
    """Which it does not name: refused when loaded, or at resume if a message came in between."""
    s = make_stack()
    s.create("vol")
    refused = s.refused("dmsetup load pool", input=s.pool_table("low_watermark", 71) + "\n")
    assert "low_watermark must be 0 to high_watermark" in refused
    s.guest.run(["dmsetup", "load", "pool"], input=s.pool_table("low_watermark", 30) + "\n")
    s.message("set", "high_watermark", 20, name="pool")
    assert "low_watermark must be 0 to high_watermark" in s.refused("dmsetup resume pool")
    status = s.status("pool")
    assert (status["state"], status["low_watermark"], status["high_watermark"]) == ("running", 10, 20)
    s.load("pool", s.pool_table("low_watermark", 15))
    assert s.status("pool")["low_watermark"] == 15
    assert io(s.guest, "/dev/mapper/vol", "w:8:8:a", "r:0:16") == ["0a"]


def test_settings_by_message_stay_after_a_stop(make_stack):
    s = make_stack()
    s.create("vol")
    s.message("mode", "writeback")
    s.message("cutoff", 640)
    s.deactivate()
    s.activate()
    assert s.status()["mode"] == "writeback" and s.status()["cutoff"] == 640


def test_settings_are_durable_in_both_superblocks(make_stack):
    """When the message returns: not even a power cut, and then a lost superblock, take them back."""
    s = make_stack(volatile="ssd hdd")
    s.create("vol")
    s.message("set", "high_watermark", 60, name="pool")
    s.message("set", "endurance", 77, name="pool")
    s.message("set", "metadata_share", 0, name="pool")
    s.guest.power_cut()
    disk = s.disk("ssd")
    places = 512 << 10, disk.size - (512 << 10)
    head, tail = (disk.read(at, 4096) for at in places)
    # All but the checksum and the place of each
    one, other = (b[:16] + b[20:48] + b[56:] for b in (head, tail))
    assert one == other
    for at, block in zip(places, (head, tail)):
        disk.write(at, bytes(4096))
        s.after_cut()
        status = s.status("pool")
        assert status["high_watermark"] == 60 and status["endurance"] == 77
        assert status["metadata_share"] == 0
        s.guest.power_cut()
        disk.write(at, block)


def test_tables_work_without_features(make_stack):
    """The shortest tables that dmsetup can load."""
    s = make_stack()
    s.create("vol", "--policy", "null")
    s.deactivate()
    s.guest.dm_create("p", "0 65536 hybrid-pool /dev/test/ssd 128 0 c2q 0")
    s.guest.dm_create("v", "0 126976 hybrid /dev/mapper/p 0 /dev/test/hdd 0")
    assert io(s.guest, "/dev/mapper/v", "w:8:8:a", "r:0:16") == ["0a"]
    assert s.table("p").endswith(" 128 0 c2q 0") and s.table("v").endswith(" 0")
    assert s.status("p")["high_watermark"] == 70


def test_volumes_by_message_alone(make_stack):
    """create_volume in place, delete_volume, forget_volume: without hybridctl."""
    s = make_stack(ssd=32, hdd=32, bare=32)
    s.create()
    io(s.guest, "/dev/test/bare", "w:0:64:o")
    ident = "11111111-2222-3333-4444-555555555555"
    create = ["create_volume", 7, ident, "bare", ident, "00" * 16, 0, 65536, "writethrough", 0,
              "inplace"]
    s.message(*create, name="pool")
    table = "0 65536 hybrid /dev/mapper/pool 7 /dev/test/bare 1 inplace"
    dev = s.guest.dm_create("b", table)
    assert io(s.guest, dev, "r:0:64", "w:8:8:p", "r:0:64", "r:65528:8", "w:65528:8:q",
              "r:65528:8") == ["o", "opo", "0", "q"]
    assert io(s.guest, dev, "r:0:64") == ["opo"]
    assert "in use, or dirty" in s.refused("dmsetup message pool 0 delete_volume 7")
    s.guest.dm_remove("b")
    assert "not deleted" in s.refused("dmsetup message pool 0 forget_volume 7")
    s.message("delete_volume", 7, name="pool")
    assert "\n7 tombstone " in "\n" + s.message("volumes", name="pool")
    assert "Volume was deleted" in s.create_refused(table)
    assert "is in use" in s.refused("dmsetup message pool 0 " + " ".join(map(str, create)))
    s.message("forget_volume", 7, name="pool")
    assert "\n7 " not in "\n" + s.message("volumes", name="pool")
    s.message(*create, name="pool")
    assert s.guest.dm_create("b", table)
    assert io(s.guest, dev, "r:0:64") == ["opo"]


def test_pool_device_takes_no_data(make_stack):
    s = make_stack()
    s.create()
    assert io(s.guest, "/dev/mapper/pool", "r:0:8", "w:0:8:a") == ["EIO", "EIO"]
    assert s.status("pool")["state"] == "running"


@pytest.mark.kernels
def test_mode_switches_keep_data(make_stack):
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback", "--cutoff", "0")
    io(s.guest, dev, "w:0:64:a", "w:256:16:b")
    last = ""
    for n, mode in enumerate(("writethrough", "writeback", "writearound", "writeback",
                              "passthrough")):
        s.message("mode", mode)
        assert s.status()["mode"] == mode
        assert io(s.guest, dev, "r:0:64", "r:256:16", f"w:0:1:{n + 1}", "r:0:2") == [
            last + "a", "b", f"{n + 1}a"]
        last = str(n + 1)
    s.wait("dirty", 0)
    s.wait("draining", 0)
    assert s.status("pool")["dirty"] == 0


# --- removal ------------------------------------------------------------------


def test_pool_in_use_stays(make_stack):
    s = make_stack()
    s.create()
    assert rc(s, "dmsetup remove pool")
    assert s.status("pool")["state"] == "running"
    s.guest.dm_remove("vol", "pool")


def test_removal_of_a_busy_volume_is_refused(make_stack):
    s = make_stack()
    dev = s.create()
    job = s.guest.run_bg(f"sleep 5 < {dev}")
    s.guest.run("sleep 0.2")
    assert rc(s, "dmsetup remove vol")
    job.kill()
    job.wait(check=False)
    s.guest.run("sleep 0.2; pkill -x sleep || true; sleep 0.2")
    assert io(s.guest, dev, "w:0:8:a", "r:0:8") == ["a"]


def test_second_activation_is_refused(make_stack):
    s = make_stack(ssd=32, hdd=32, hdd2=32)
    s.create("one")
    s.attach("two", "hdd2")
    sectors = 61440
    for table, why in (
            (s.table("pool"), "Cache device is in use by another pool"),
            (f"0 {sectors} hybrid /dev/mapper/pool 0 /dev/test/hdd 0",
             "Volume is in use by another device"),
            (f"0 {sectors} hybrid /dev/mapper/pool 1 /dev/test/hdd 0",
             "Origin is in use by another volume"),
            (f"0 {sectors} hybrid /dev/mapper/pool 0 /dev/test/ssd 0",
             "Origin is a pool or a cache device"),
            (f"0 {sectors} hybrid /dev/mapper/pool 0 /dev/mapper/pool 0",
             "Origin is a pool or a cache device"),
            (f"0 {sectors} hybrid /dev/mapper/one 0 /dev/test/hdd 0",
             "Pool device is not a hybrid-pool")):
        assert why in s.create_refused(table), table
    twice = s.table("one")
    s.guest.dm_remove("one")
    second = twice.replace(f"0 {sectors}", f"{sectors} {sectors}", 1)
    assert "Volume is in the table twice" in s.create_refused(f"{twice}\n{second}")
    s.guest.dm_create("one", twice)
    assert s.status("one")["state"] == "running"


def test_volumes_go_in_any_order_and_come_back(make_stack, rnd):
    s = make_stack(ssd=32, hdd=32, hdd2=32, hdd3=32)
    s.create("v0", "--mode", "writeback")
    s.attach("v1", "hdd2", "--mode", "writeback")
    s.attach("v2", "hdd3")
    lines = {n: s.table(n) for n in ("v0", "v1", "v2")}
    for turn in range(3):
        for n in range(3):
            io(s.guest, f"/dev/mapper/v{n}", f"w:{8 * turn}:8:{chr(97 + 3 * turn + n)}")
        names = sorted(lines, key=lambda _: rnd.random())
        s.guest.dm_remove(*names)
        if turn == 1:
            pool = s.table("pool")
            s.guest.dm_remove("pool")
            s.guest.dm_create("pool", pool)
        for n in sorted(lines, key=lambda _: rnd.random()):
            s.guest.dm_create(n, lines[n])
    assert [io(s.guest, f"/dev/mapper/v{n}", "r:0:24") for n in range(3)] == [
        ["adg"], ["beh"], ["cfi"]]


def test_suspended_pool_and_volumes_can_be_removed(make_stack):
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback")
    io(s.guest, dev, "w:0:8:a")
    s.guest.run("dmsetup suspend vol && dmsetup remove vol")
    s.guest.run("dmsetup suspend pool && dmsetup remove pool")
    s.activate()
    assert io(s.guest, dev, "r:0:8") == ["a"]
    # The pool suspended first: its volumes are suspended with it.
    s.guest.run("dmsetup suspend pool && dmsetup remove vol && dmsetup remove pool")
    s.activate()
    assert io(s.guest, dev, "r:0:8") == ["a"]


def test_tables_that_were_never_resumed_go(make_stack):
    s = make_stack()
    s.create()
    line = s.table()
    s.guest.run("dmsetup load vol && dmsetup clear vol", input=line)
    s.guest.run("dmsetup load pool && dmsetup clear pool", input=s.table("pool"))
    s.guest.dm_remove("vol")
    s.guest.run("dmsetup create --notable vol && dmsetup load vol", input=line)
    assert s.status("pool")["volumes"] == 0
    assert rc(s, "dmsetup remove pool")
    s.guest.dm_remove("vol", "pool")
    s.guest.run("rmmod dm-hybrid-c2q dm-hybrid")


def test_volume_does_not_resume_while_its_pool_is_not_loaded(make_stack):
    s = make_stack()
    s.create()
    pool, vol = s.table("pool"), s.table()
    s.deactivate()
    s.guest.run("dmsetup create --notable pool && dmsetup load pool", input=pool)
    assert "not loaded, or is suspended" in s.create_refused(vol)
    s.guest.run("dmsetup resume pool")
    s.guest.dm_create("vol", vol)
    assert s.status()["state"] == "running"


def test_removal_by_force(make_stack):
    """dmsetup remove --force replaces the pool's table by one of errors."""
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback")
    io(s.guest, dev, "w:0:8:a")
    assert rc(s, "dmsetup remove --force pool")
    assert io(s.guest, dev, "r:0:8") == ["EIO"]
    s.guest.run("dmsetup remove vol && dmsetup remove pool")
    s.activate()
    assert io(s.guest, dev, "r:0:8") == ["a"]


def test_wiped_volume(make_stack):
    """A volume whose table is replaced under load: what had been acknowledged is there."""
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback", "--cutoff", "0")
    io(s.guest, dev, "w:0:128:a")
    table = s.table()
    job = s.guest.run_bg(f"fio --name=t --filename={dev} --rw=randwrite --bs=4k --direct=1 "
                         "--thread --ioengine=libaio --iodepth=8 --offset=1m --size=8m")
    s.guest.run("sleep 0.2; dmsetup wipe_table vol")
    job.wait(check=False)
    assert io(s.guest, dev, "r:0:128") == ["EIO"]
    assert s.status("pool")["volumes"] == 0
    s.load("vol", table)
    assert io(s.guest, dev, "r:0:128") == ["a"]


@pytest.mark.kernels
def test_deferred_removal(make_stack):
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback")
    job = s.guest.run_bg(f"exec 3<{dev}; touch /run/open; until [ -e /run/go ]; do sleep 0.1; done")
    s.guest.run("until [ -e /run/open ]; do sleep 0.1; done")
    s.guest.run("dmsetup remove --deferred vol; dmsetup remove --deferred pool")
    assert s.guest.run("dmsetup ls").out.count("\n") == 2
    s.guest.run("touch /run/go")
    job.wait()
    s.guest.run("sleep 0.3")
    assert "No devices found" in s.guest.run("dmsetup ls").out


@pytest.mark.kernels
def test_limits_of_both_members_are_stacked(make_stack):
    s = make_stack()
    dev = s.create("vol", "--block-size", "128k")
    queue = f"/sys/dev/block/$(stat -Lc %Hr:%Lr {dev})/queue"

    def limit(key):
        return int(s.guest.run(f"cat {queue}/{key}").out)
    assert limit("logical_block_size") == 512
    assert limit("minimum_io_size") == limit("optimal_io_size") == 128 << 10
    if limit("discard_max_bytes"):
        assert limit("discard_granularity") >= 4096


def test_ranges_are_bounded(make_stack):
    """A discard or write-zeroes has 16,384 blocks at most, whatever the origin takes at once."""
    s = make_stack()
    s.guest.run("modprobe -q loop; mount -t tmpfs none /mnt && truncate -s 32M /mnt/disk && "
                "ln -sf $(losetup -f --show /mnt/disk) /dev/test/hdd")
    dev = s.create("vol", "--block-size", "4k")
    for key in ("discard_max_bytes", "write_zeroes_max_bytes"):
        for device, most in (("/dev/test/hdd", 4 << 30), (dev, 16384 * 4096)):
            number = f"$(stat -Lc %Hr:%Lr {device})"
            value = int(s.guest.run(f"cat /sys/dev/block/{number}/queue/{key}").out)
            assert most / 2 <= value <= most
