# SPDX-License-Identifier: GPL-2.0-or-later
"""What was written is read, whatever happens to the volume meanwhile."""
import itertools
import json
import time

import pytest

from .stack import HERE, MODES, POLICIES, fio, io

ALL = ("--cutoff", "0")
VERIFY = ("--ioengine=libaio", "--iodepth=16", "--serialize_overlap=1", "--norandommap",
          "--verify=crc32c", "--verify_fatal=1", "--do_verify=1")
SETTINGS = {"high_watermark": 70, "low_watermark": 10, "writeback_rate": 0, "commit_interval": 1000,
            "endurance": 0, "metadata_share": 25, "trim_rate": 65536,
            "read_error_limit": 20, "write_error_limit": 5}
MIXED = ("--rw=randwrite", "--bsrange=512-1m", "--blockalign=512", *VERIFY)


def stress(guest, dev, seed, sectors, seconds, check=True, **options):
    """A job of stress.py, which verifies by itself."""
    options = {"dev": dev, "seed": seed, "sectors": sectors, "seconds": seconds, **options}
    job = guest.run_bg(["python3", "-S", HERE / "stress.py", "run", json.dumps(options)])
    return job.wait(timeout=60 + 4 * seconds) if check else job


def every_100_ms(guest, script, seconds):
    """A shell script again and again while others work."""
    return guest.run_bg(f"n=0; end=$(($(date +%s) + {seconds})); set -e; "
                        f"while [ $(date +%s) -lt $end ]; do n=$((n + 1)); {script}; "
                        "sleep 0.1; done; echo $n")


@pytest.mark.parametrize("mode", MODES)
def test_fio_verify(make_stack, mode, seed):
    """More data than cache, every size and place, some of it with fsync."""
    s = make_stack(ssd=16, hdd=64)
    dev = s.create("vol", "--mode", mode, *ALL)
    fio(s.guest, dev, *MIXED, "--size=60m", "--io_size=80m", "--fsync=40", f"--randseed={seed}")
    if mode == "writeback":
        s.drain()
        assert s.status("pool")["evictions"] or s.status()["writebacks"]


@pytest.mark.parametrize("size", ["4k", "1m"])
@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_fio_verify_block_sizes(make_stack, size, mode, seed):
    s = make_stack(ssd=24, hdd=64)
    dev = s.create("vol", "--mode", mode, "--block-size", size, *ALL)
    fio(s.guest, dev, *MIXED, "--size=48m", "--io_size=48m", "--fsync=40", f"--randseed={seed}")


@pytest.mark.kernels
@pytest.mark.parametrize("mode", MODES)
def test_every_sector_under_all_operations(make_stack, mode, seed):
    """Reads, writes, FUA, flush, zeroes, discards of any size and place, an exact model."""
    s = make_stack(volatile="ssd hdd", ssd=16, hdd=32)
    dev = s.create("vol", "--mode", mode, *ALL)
    stress(s.guest, dev, seed, 61440, 5, kinds="wwwwwwwwwwrrrrrWfzd", most=512)


@pytest.mark.parametrize("size", ["4k", "32k", "512k"])
def test_every_sector_with_other_block_sizes(make_stack, size, seed):
    s = make_stack(volatile="ssd hdd", ssd=16, hdd=32)
    dev = s.create("vol", "--mode", "writeback", "--block-size", size, *ALL)
    stress(s.guest, dev, seed, 61440, 4, kinds="wwwwwwwwwwrrrrrWfzd", most=512)


@pytest.mark.kernels
@pytest.mark.parametrize("cache, origin", [(4096, 512), (512, 4096), (4096, 4096)])
def test_sector_sizes(make_stack, cache, origin, seed):
    """The volume takes what both members take."""
    s = make_stack(ssd=24, hdd=32)
    for name, size in (("ssd", cache), ("hdd", origin)):
        s.guest.run(f"modprobe -q loop; dev=$(losetup -f --show -b {size} $(readlink -f /dev/test/{name})) && "
                    f"ln -sf $dev /dev/test/{name}")
    dev = s.create("vol", "--mode", "writeback", *ALL)
    size = max(cache, origin)
    assert s.guest.run(f"blockdev --getss {dev}").out.strip() == str(size)
    stress(s.guest, dev, seed, 61440, 3, align=size // 512)
    s.drain()
    s.deactivate()


@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_in_place_origin_of_an_odd_size(make_stack, mode, seed):
    """The last granule, and the last block, are cut off; the data lies where it lay."""
    sectors = 61437
    s = make_stack(ssd=16, hdd=32, small=8)
    s.origin = "small"
    s.create("other")
    s.guest.dm_create("odd", f"0 {sectors} linear /dev/test/hdd 0")
    stress(s.guest, "/dev/mapper/odd", seed, sectors, 1)
    ident = "11111111-2222-3333-4444-555555555555"
    s.message("create_volume", 1, ident, "odd", ident, "00" * 16, 0, sectors, mode, 0, "inplace",
              name="pool")
    dev = s.guest.dm_create("vol", f"0 {sectors} hybrid /dev/mapper/pool 1 /dev/mapper/odd 1 "
                                   "inplace")
    assert s.guest.run(f"blockdev --getsz {dev}").out.strip() == str(sectors)
    stress(s.guest, dev, seed + 1, sectors, 3, kinds="wwwwwwwwwwrrrrrWfz", first=100000)
    io(s.guest, dev, f"w:{sectors - 5}:5:a", f"r:{sectors - 1}:1", f"r:{sectors - 13}:13")
    assert io(s.guest, dev, f"r:{sectors - 5}:5", f"w:{sectors - 1}:1:b",
              f"r:{sectors - 5}:5") == ["a", "ab"]
    s.drain()
    assert io(s.guest, "/dev/mapper/odd", f"r:{sectors - 5}:5") == ["ab"]
    s.guest.run(["cmp", "/dev/mapper/odd", dev])


def test_several_volumes_at_once(make_stack, seed):
    """One pool, each mode, each volume its own writer; no sector strays."""
    s = make_stack(ssd=24, a=24, b=24, c=24, d=24)
    s.origin = "a"
    s.create("a", "--mode", "writeback", *ALL)
    for name, mode in zip("bcd", MODES[1:]):
        s.attach(name, name, "--mode", mode, *ALL)
    jobs = [stress(s.guest, f"/dev/mapper/{n}", seed + k, 45056, 6, check=False)
            for k, n in enumerate("abcd")]
    for job in jobs:
        job.wait(timeout=120)


def test_writers_of_one_block(make_stack, seed):
    """Three writers own alternate runs of seven sectors: granules are shared."""
    s = make_stack(ssd=16, hdd=32)
    dev = s.create("vol", "--mode", "writeback", *ALL)
    jobs = [stress(s.guest, dev, seed, 21 * 2900, 5, check=False, part=k, parts=3, chunk=7,
                   most=7, kinds="wwwwwwrrWf") for k in range(3)]
    for job in jobs:
        job.wait(timeout=120)


def test_mode_switches_under_load(make_stack, seed):
    s = make_stack(ssd=16, hdd=32)
    dev = s.create("vol", "--mode", "writeback", *ALL)
    switch = every_100_ms(s.guest, f"set -- {' '.join(2 * MODES)}; shift $((n % 4)); "
                                   "dmsetup message vol 0 mode $1", 6)
    stress(s.guest, dev, seed, 61440, 5, kinds="wwwwwwwwwwrrrrrWf")
    assert int(switch.wait().out) > 1
    s.message("mode", "writethrough")
    s.wait("dirty", 0)
    s.wait("draining", 0)


@pytest.mark.parametrize("how", ["", "--noflush", "--nolockfs"])
def test_suspend_and_resume_under_load(make_stack, how, seed):
    s = make_stack(ssd=16, hdd=32)
    dev = s.create("vol", "--mode", "writeback", *ALL)
    script = " && ".join(f"dmsetup suspend {how} {n} && dmsetup resume {n}"
                         for n in ("vol", "pool"))
    job = every_100_ms(s.guest, script, 6)
    fio(s.guest, dev, *MIXED, "--size=60m", "--io_size=60m", "--bsrange=512-128k",
        f"--randseed={seed}")
    assert int(job.wait().out) > 1


def test_reload_under_load(make_stack, seed):
    """Another policy, other features, other modes, the same data."""
    s = make_stack(ssd=16, hdd=32)
    dev = s.create("vol", "--mode", "writeback", *ALL)
    pool, vol = s.table("pool"), s.table()
    pools = [pool.replace(" c2q 0", f" {policy} 0").replace("low_watermark 10", f"low_watermark {k}")
             for k, policy in enumerate(POLICIES, 10)]
    vols = [vol, vol.replace("writeback cutoff 0", "writethrough cutoff 64")]
    for k, table in enumerate(pools):
        s.guest.write_file(f"/run/pool{k}", table + "\n")
    for k, table in enumerate(vols):
        s.guest.write_file(f"/run/vol{k}", table + "\n")
    job = every_100_ms(s.guest, f"dmsetup load pool /run/pool$((n % {len(pools)})) && dmsetup resume pool && "
                                "dmsetup load vol /run/vol$((n / 2 % 2)) && dmsetup resume vol", 6)
    stress(s.guest, dev, seed, 61440, 5)
    assert int(job.wait().out) > 1
    for policy, table in zip(POLICIES, pools):
        s.load("pool", table)
        assert s.status("pool")["policy"] == policy


def activate_as_at_boot(s):
    for name in ("ssd", "hdd"):
        s.guest.run(["hybridctl", "scan", "--udev", s.dev(name)])
    s.guest.run("hybridctl activate --auto --all")


def test_the_next_activation_has_the_policy_of_the_last_table(make_stack, seed):
    """Reloaded under load by dmsetup, and set by hybridctl."""
    s = make_stack(ssd=16, hdd=32, volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", *ALL)
    for policy in ("sieve", "lru"):
        table = s.pool_table("low_watermark", 3, policy=policy)
        s.guest.write_file(f"/run/{policy}", table + "\n")
    job = every_100_ms(s.guest, "for p in lru sieve; do dmsetup load pool /run/$p && dmsetup resume pool; done", 6)
    stress(s.guest, dev, seed, 61440, 5)
    assert int(job.wait().out) > 0	# two reloads each, of all that a busy host has time for
    s.deactivate()
    activate_as_at_boot(s)
    assert s.status("pool")["policy"] == "sieve" and s.status("pool")["low_watermark"] == 3
    s.guest.run("hybridctl set pool policy=arc")
    # Durable, though nothing was flushed or deactivated.
    s.guest.power_cut()
    s.guest.boot()
    s.guest.modprobe("dm-testdisk", "dm-hybrid")
    s.members()
    activate_as_at_boot(s)
    assert s.status("pool")["policy"] == "arc"


def test_the_next_activation_has_the_settings_of_the_last(make_stack):
    """Set by hybridctl, by a message, by a table; a default stays one. Durable at once."""
    s = make_stack(volatile="ssd hdd")
    s.create("vol")

    def settings(again):
        again()
        status = s.status("pool")
        return {k: status[k] for k in SETTINGS}

    def after_cut():
        s.guest.power_cut()
        s.guest.boot()
        s.guest.modprobe("dm-testdisk", "dm-hybrid")
        s.members()
        activate_as_at_boot(s)

    def after_deactivation():
        s.deactivate()
        activate_as_at_boot(s)

    assert settings(after_deactivation) == SETTINGS
    s.guest.run("hybridctl set pool endurance=4096 commit_interval=250 metadata_share=0")
    s.message("set", "writeback_rate", 0xffffffff, name="pool")
    want = SETTINGS | {"endurance": 4096, "commit_interval": 250, "writeback_rate": 0xffffffff,
                       "metadata_share": 0}
    assert settings(after_cut) == want
    s.load("pool", s.pool_table("high_watermark", 20))
    s.guest.run("hybridctl set pool endurance=0")
    want |= {"endurance": 0, "high_watermark": 20}
    assert settings(after_cut) == want
    # As an admin's own table has it, who does not know of them
    uuid = s.guest.run("dmsetup info -c --noheadings -o uuid pool").out
    s.load("pool", s.pool_table())
    assert settings(after_deactivation) == want
    assert s.guest.run("dmsetup info -c --noheadings -o uuid pool").out == uuid


def test_a_policy_is_recorded_beside_a_damaged_superblock(make_stack):
    """Whichever copy is good, both are afterwards."""
    s = make_stack()
    s.create("vol")

    def activated():
        return s.guest.run("hybridctl activate --all --device /dev/test/ssd --device /dev/test/hdd").err

    for policy, sector in (("fifo", 1024), ("lru", 65536 - 1024)):
        s.deactivate()
        s.guest.run(f"dd if=/dev/zero of=/dev/test/ssd bs=512 seek={sector} count=8 conv=fsync status=none")
        assert "one good superblock" in activated()
        s.guest.run(["hybridctl", "set", "pool", f"policy={policy}"])
        s.deactivate()
        assert "one good superblock" not in activated()
        assert s.status("pool")["policy"] == policy


def test_policies_take_over(make_stack):
    """What one policy cached the next one hits, also after a restart."""
    s = make_stack(ssd=16, hdd=32)
    dev = s.create("vol", *ALL)
    pool, steps = s.table("pool"), [f"r:{128 * n}:8" for n in range(100)]
    io(s.guest, dev, *steps)
    for policy in POLICIES:
        s.load("pool", pool.replace(" c2q 0", f" {policy} 0"))
        assert s.status("pool")["policy"] == policy
        assert s.moved(lambda: io(s.guest, dev, *steps)) == {"read_hits": 100}
        assert s.status()["cached"] == 100
    s.deactivate()
    s.activate()
    assert s.moved(lambda: io(s.guest, dev, *steps)) == {"read_hits": 100}


def test_stop_and_start_between_loads(make_stack, seed):
    s = make_stack(ssd=16, hdd=32)
    dev = s.create("vol", "--mode", "writeback", *ALL)
    version = 1
    for _ in range(3):
        out = stress(s.guest, dev, seed, 61440, 1, first=version).out
        version = json.loads(out)["version"] + 1
        s.deactivate()
        s.activate()
    s.drain()
    s.guest.run(["cmp", "-n", str(61440 * 512), "-i", f"{1 << 20}:0", "/dev/test/hdd", dev])


def test_drain_under_load(make_stack, seed):
    s = make_stack(ssd=16, hdd=32)
    dev = s.create("vol", "--mode", "writeback", *ALL)
    job = every_100_ms(s.guest, "dmsetup message vol 0 drain; "
                                "[ $((n % 3)) = 0 ] && dmsetup message vol 0 drain_cancel || :", 5)
    stress(s.guest, dev, seed, 61440, 5)
    job.wait()
    s.drain()
    s.guest.run(["cmp", "-n", str(61440 * 512), "-i", f"{1 << 20}:0", "/dev/test/hdd", dev])


# --- discard and zeroes -------------------------------------------------------


@pytest.mark.kernels
@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_zeroes(make_stack, mode):
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", mode, *ALL)
    io(s.guest, dev, "w:0:1024:a")
    s.guest.run(f"blkdiscard -z -o 65536 -l 131072 {dev}")
    s.guest.run(f"fallocate -z -o 262144 -l 4096 {dev}; fallocate -z -o 270336 -l 512 {dev}")
    want = ["a", "0", "a", "0", "a", "0", "a"]
    steps = ["r:0:128", "r:128:256", "r:384:128", "r:512:8", "r:520:8", "r:528:1", "r:529:495"]
    assert io(s.guest, dev, *steps) == want
    s.deactivate()
    s.activate()
    assert io(s.guest, dev, *steps) == want
    if mode == "writeback":
        s.drain()
        assert io(s.guest, "/dev/mapper/vhdd", "r:2048:128", "r:2176:256", "r:2432:128",
                  "r:2560:8", "r:2568:8", "r:2576:1") == want[:6]


@pytest.mark.kernels
@pytest.mark.parametrize("block", ["64k", "1m"])	# 1m: granules of more than a page
@pytest.mark.parametrize("mode", MODES)
def test_zeroes_of_any_sectors(make_stack, mode, block):
    """fallocate -p takes what the bare disk takes: ranges that begin and end within a granule."""
    s = make_stack(ssd=32, hdd=32)
    s.guest.run("modprobe -q loop; mount -t tmpfs none /mnt && truncate -s 32M /mnt/disk && "
                "ln -sf $(losetup -f --show /mnt/disk) /dev/test/hdd")
    dev = s.create("vol", "--mode", mode, "--block-size", block, *ALL)
    size = int(s.guest.run(f"blockdev --getsz {dev}").out)
    areas = [(0, 12288), (size - 128, 128)]
    ranges = [(1, 1), (8, 8), (15, 2), (129, 6), (257, 300), (1000, 1000), (2051, 2048),
              (6005, 4099), (size - 35, 20), (size - 9, 9)]
    io(s.guest, dev, *(f"w:{at}:{count}:a" for at, count in areas), "f")
    if mode == "passthrough":
        s.message("mode", "writeback")
        io(s.guest, dev, *(f"r:{at}:{count}" for at, count in areas))
        s.message("mode", "passthrough")
    s.guest.run(["sh", "-e"], input="".join(f"fallocate -p -o {512 * at} -l {512 * count} {dev}\n"
                                            for at, count in ranges))
    zero = {sector for at, count in ranges for sector in range(at, at + count)}
    reads = [f"r:{at}:{count}" for at, count in areas]
    want = ["".join(letter for letter, _ in itertools.groupby(
        "0" if sector in zero else "a" for sector in range(at, at + count))) for at, count in areas]
    assert io(s.guest, dev, *reads) == want
    s.deactivate()
    s.activate()
    assert io(s.guest, dev, *reads) == want


@pytest.fixture
def thin(make_stack):
    """An origin that takes discards: a thin volume, read as zeroes where discarded."""
    s = make_stack(ssd=32, meta=8, data=96)
    s.guest.dm_create("tp", "0 196608 thin-pool /dev/test/meta /dev/test/data 128 0 1 "
                            "skip_block_zeroing")
    s.message("create_thin", 0, name="tp")
    s.guest.dm_create("thin", "0 131072 thin /dev/mapper/tp 0")
    s.guest.run("ln -sf /dev/mapper/thin /dev/test/hdd")
    return s


def thin_used(s):
    return int(s.guest.dm_status("thin").split()[3])


@pytest.mark.kernels
@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_discard(thin, mode, seed):
    s = thin
    dev = s.create("vol", "--mode", mode, *ALL)
    io(s.guest, dev, "w:0:1024:a", "f")
    s.drain()
    used = thin_used(s)
    s.guest.run(f"blkdiscard -o 65536 -l 131072 {dev}")
    assert thin_used(s) == used - 256
    assert io(s.guest, dev, "r:0:128", "r:128:256", "r:384:640") == ["a", "0", "a"]
    assert s.status()["dirty"] == 0
    # Of a part of a block only whole granules go; the rest stays.
    s.guest.run(f"blkdiscard -o 512 -l 65536 {dev}")
    assert io(s.guest, dev, "r:0:1", "r:129:7")[0] == "a"
    # Dirty data is dropped, not written back.
    io(s.guest, dev, "w:2048:1024:b")
    s.guest.run(f"blkdiscard {dev}")
    s.wait("dirty", 0)
    assert io(s.guest, dev, "r:0:1024", "r:2048:1024") == ["0", "0"]
    stress(s.guest, dev, seed, 61440, 4, kinds="wwwwwwwwwwrrrrrWfzdd")


@pytest.mark.kernels
@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_discard_of_a_disk_that_takes_none(make_stack, mode):
    """Nothing of it reaches the disk; what is cached goes, and is not written back."""
    s = make_stack(ssd=32, hdd=64, volatile="ssd hdd")
    limit = f"/sys/dev/block/$(stat -Lc %Hr:%Lr {s.dev('hdd')})/queue/discard_max_bytes"
    s.guest.run(f"echo 0 >{limit}")
    dev = s.create("vol", "--mode", mode, *ALL)
    io(s.guest, dev, "w:0:1024:a", "f")
    s.drain()
    io(s.guest, dev, "w:0:1024:b", "f")
    assert s.status()["cached"] >= 8 and (s.status()["dirty"] == 8) == (mode == "writeback")

    log = s.logged(lambda: s.guest.run(f"blkdiscard {dev}"))
    assert not [op for op in log if "hdd" in op.device and op.op in "WDZ" and op.count]
    s.wait("dirty", 0)
    now = ["a" if mode == "writeback" else "b"]
    # The blocks are gone, at once or with the next commit: then one miss fills several.
    assert 1 <= s.moved(lambda: io(s.guest, dev, "r:0:1024"))["read_misses"] <= 8
    assert io(s.guest, dev, "r:0:1024", "f") == now
    s.guest.power_cut()
    s.after_cut()
    assert io(s.guest, dev, "r:0:1024") == now
    s.guest.run(f"echo 0 >{limit}")
    s.guest.run(f"mkfs.ext4 -q {dev} && mount {dev} /mnt && "
                "dd if=/dev/urandom of=/mnt/a bs=1M count=8 status=none && cp /mnt/a /mnt/b && "
                "sync && rm /mnt/a && sync")
    assert s.moved(lambda: s.guest.run("fstrim /mnt"))["discards"] > 0
    s.guest.run("md5sum /mnt/b >/run/sum && echo 3 >/proc/sys/vm/drop_caches && "
                "md5sum -c /run/sum && umount /mnt")
    s.guest.run(f"e2fsck -fn {dev}")


@pytest.mark.parametrize("cached", ["written", "read", "absent"])
@pytest.mark.parametrize("mode", MODES)
def test_discard_of_any_sectors(make_stack, mode, cached):
    """Only whole granules go, and nothing beside them.

    The block layer lets no discard begin within a granule: but what lies on a volume, and not
    at its beginning, is cut into granules of its own.
    """
    shift, room = 3, 640
    s = make_stack(ssd=32, hdd=64)
    vol = s.create("vol", "--mode", mode if cached == "written" else "passthrough", *ALL)
    dev = s.guest.dm_create("part", f"0 61440 linear {vol} {shift}")
    ranges = [(0, 8), (1, 7), (0, 9), (5, 11), (3, 16), (8, 32), (7, 30), (121, 16), (64, 64),
              (100, 300), (13, 500)]
    places = [(room * n + 128, room * n + 128 + start, count)
              for n, (start, count) in enumerate(ranges)]
    io(s.guest, dev, *(f"w:{first - 64}:640:a" for first, _, _ in places), "f")
    if cached != "written":
        s.message("mode", mode)
    if cached == "read":
        io(s.guest, dev, *(f"r:{first - 64}:640" for first, _, _ in places))
    s.guest.run("sleep 0.3")
    assert (s.status()["cached"] > 0) == (mode != "passthrough" and (cached == "read" or (
        cached == "written" and mode != "writearound")))
    moved = s.moved(lambda: io(s.guest, dev, *(f"d:{start}:{count}" for _, start, count in places)))
    assert moved["discards"] >= len(ranges)

    steps, want = [], []
    for first, start, count in places:
        end = start + count
        # Whole granules of the volume, in sectors of the linear device on it.
        gone = -(-(start + shift) // 8) * 8 - shift, (end + shift) // 8 * 8 - shift
        steps += [f"r:{first - 64}:{start - first + 64}", f"r:{end}:{first + 576 - end}"]
        want += ["a", "a"]
        if gone[0] + 8 < gone[1]:
            # The request may have been cut in two within the first granule.
            steps.append(f"r:{gone[0] + 8}:{gone[1] - gone[0] - 8}")
            want.append("0")
    assert io(s.guest, dev, *steps) == want
    s.drain()
    s.guest.dm_remove("part")
    s.deactivate()
    s.activate()
    s.guest.dm_create("part", f"0 61440 linear {vol} {shift}")
    assert io(s.guest, dev, *steps) == want


@pytest.mark.kernels
def test_fstrim(thin):
    s = thin
    dev = s.create("vol", "--mode", "writeback", *ALL)
    s.guest.run(f"mkfs.ext4 -q {dev} && mount -o discard {dev} /mnt && "
                "dd if=/dev/urandom of=/mnt/a bs=1M count=8 status=none && cp /mnt/a /mnt/b && "
                "sync && rm /mnt/a && sync && fstrim /mnt")
    assert s.status()["discards"] > 0
    s.guest.run("md5sum /mnt/b >/run/sum && echo 3 >/proc/sys/vm/drop_caches && "
                "md5sum -c /run/sum && umount /mnt")
    s.guest.run(f"e2fsck -fn {dev}")


def discards_of(log, name):
    return [op for op in log
            if name in op.device and op.event == "S" and op.op == "D" and op.count]


def wait_trimmed(s, sectors):
    end = time.monotonic() + 30 * s.guest.slow
    while s.status(s.pool)["trimmed"] < sectors:
        assert time.monotonic() < end, s.status(s.pool)
        time.sleep(0.1)


@pytest.mark.kernels
def test_trim(make_stack):
    """What a filesystem gives back is discarded on the cache device, whole blocks of its data area."""
    s = make_stack(ssd=32, hdd=64, volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", *ALL)
    s.guest.run(f"mkfs.ext4 -q {dev} && mount {dev} /mnt && "
                "dd if=/dev/urandom of=/mnt/a bs=1M count=8 status=none && "
                "dd if=/dev/urandom of=/mnt/b bs=1M count=8 status=none && sync && "
                "rm /mnt/a && sync")
    before = s.guest.run("md5sum /mnt/b").out
    status = s.status(s.pool)
    assert status["used"] * status["block_sectors"] > 2 * 8 * 2048

    def trim():
        s.guest.run("fstrim /mnt")
        wait_trimmed(s, status["trimmed"] + 7 * 2048)

    sent = discards_of(s.logged(trim), "ssd")
    assert sum(op.count for op in sent) >= 7 * 2048
    # Neighbours go together, until the device cuts them.
    assert len({op.sector for op in sent} - {op.sector + op.count for op in sent}) < 64
    s.guest.power_cut()
    s.after_cut()
    s.guest.run(f"mount {dev} /mnt")
    assert s.guest.run("md5sum /mnt/b && umount /mnt").out == before
    s.guest.run(f"e2fsck -fn {dev}")


def test_no_trim(make_stack):
    """Of a device that takes none, or with a rate of 0."""
    s = make_stack(ssd=32, hdd=64, volatile="ssd hdd")
    limit = f"/sys/dev/block/$(stat -Lc %Hr:%Lr {s.dev('ssd')})/queue/discard_max_bytes"
    before = s.guest.run(f"cat {limit}").out.strip()
    s.guest.run(f"echo 0 >{limit}")
    dev = s.create("vol", "--mode", "writeback", *ALL)

    def discard():
        io(s.guest, dev, "w:0:4096:a", "f")
        s.guest.run(f"blkdiscard {dev}")
        s.wait("free", s.status(s.pool)["blocks"], s.pool)
        s.guest.run("sleep 0.5")

    assert not discards_of(s.logged(discard), "ssd")
    assert s.status(s.pool)["errors"] == 0
    s.guest.run(f"echo {before} >{limit}")
    s.message("set", "trim_rate", 0, name=s.pool)
    s.guest.run(f"dmsetup suspend {s.pool} && dmsetup resume {s.pool}")
    assert not discards_of(s.logged(discard), "ssd")
    # Asked for now, it makes good what was left.
    s.message("set", "trim_rate", 65536, name=s.pool)
    wait_trimmed(s, 4096)
    assert io(s.guest, dev, "w:0:4096:b", "f", "r:0:4096") == ["b"]
