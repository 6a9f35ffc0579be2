# SPDX-License-Identifier: GPL-2.0-or-later
"""Power cuts with volatile caches on both members: what was acknowledged is there (P1, P2)."""
import json
import time

import pytest

from .stack import HERE, io
from .stress import Model, Plan, parse_acks, parse_dump

ALL = ("--cutoff", "0")
SECTORS = 61440
ACKS = 16 << 20		# room for a writer's acknowledgements, in bytes
KINDS = "wwwwwwwwwwrrrrWWf"


def caches(seed, *features):
    """Independent volatile caches, which destage and tear as the seed says."""
    words = ["destage_pct", "40", "torn", *features]
    return {name: f"{len(words) + 2} {' '.join(words)} seed {seed + n}"
            for n, name in enumerate(("ssd", "hdd"))}


class Cutter:
    """Writers on a volume, power cuts, and what must have survived."""

    def __init__(self, stack, seed, rnd, writers=2, area=SECTORS, **plan):
        self.stack, self.guest, self.rnd = stack, stack.guest, rnd
        self.seed, self.writers, self.area = seed, writers, area
        self.plan = {"kinds": KINDS, "parts": writers, "chunk": 96, "most": 96, **plan}
        self.model = Model(SECTORS)
        self.first = 1

    def start(self):
        """Starts the writers; returns when each has had something acknowledged."""
        for part in range(self.writers):
            options = {"dev": "/dev/mapper/vol", "seed": self.seed, "sectors": self.area,
                       "first": self.first, "seconds": 1000, "ack": "/dev/test/log",
                       "ack_at": ACKS * part, "part": part, **self.plan}
            self.guest.run_bg(["python3", "-S", HERE / "stress.py", "run", json.dumps(options)])
        end = time.monotonic() + 60 * self.guest.slow
        while not all(any(self.stack.disk("log").read(ACKS * part, 16))
                      for part in range(self.writers)):
            assert time.monotonic() < end, "nothing was acknowledged"
            self.guest.check_console()
            time.sleep(0.02)

    def cut(self, seconds):
        """Let them run so long, cut, and take note of what was acknowledged."""
        time.sleep(seconds)
        self.guest.check_console()
        self.guest.power_cut()
        log = self.stack.disk("log")
        last = 0
        for part in range(self.writers):
            acks = parse_acks(log.read(ACKS * part, ACKS))
            plan = Plan(self.seed, self.area, part=part, **self.plan)
            last = max(last, self.model.ran(plan, self.first, acks))
        log.write(0, bytes(ACKS * self.writers))
        self.first = last + 1000

    def check(self, dev="/dev/mapper/vol"):
        out = self.guest.run(["python3", "-S", HERE / "stress.py", "dump", dev, SECTORS],
                             timeout=120).out
        self.model.check(parse_dump(out))


def cut_stack(make_stack, seed, *options, features=(), ssd=16):
    s = make_stack(volatile=caches(seed, *features), ssd=ssd, hdd=32, log=48)
    s.create("vol", *ALL, *options)
    return s


@pytest.mark.kernels
@pytest.mark.parametrize("mode", ["writeback", "writethrough", "writearound"])
def test_acknowledged_data_survives(make_stack, mode, seed, rnd):
    """More data than cache, so that fills, evictions and writeback are cut, too."""
    s = cut_stack(make_stack, seed, "--mode", mode)
    c = Cutter(s, seed, rnd)
    for _ in range(4):
        c.start()
        c.cut(rnd.uniform(0.4, 2.2))
        s.after_cut()
        c.check()
        if mode != "writeback":
            assert s.status()["dirty"] == 0	# P4
    # The same for good: a cut after which nobody wrote changes nothing.
    s.guest.power_cut()
    s.after_cut()
    c.check()


@pytest.mark.parametrize("size", ["4k", "1m"])
def test_acknowledged_data_survives_with_other_block_sizes(make_stack, size, seed, rnd):
    s = cut_stack(make_stack, seed, "--mode", "writeback", "--block-size", size, ssd=24)
    c = Cutter(s, seed, rnd)
    for _ in range(2):
        c.start()
        c.cut(rnd.uniform(0.4, 1.7))
        s.after_cut()
        c.check()


def test_rewritten_dirty_data_survives(make_stack, seed, rnd):
    """What is dirty already needs no record, but a flush of the cache all the same."""
    s = cut_stack(make_stack, seed, "--mode", "writeback")
    c = Cutter(s, seed, rnd, writers=1, area=768, kinds="wwwf", most=24)
    for _ in range(3):
        c.start()
        c.cut(rnd.uniform(0.4, 1.2))
        s.after_cut()
        c.check()


def test_zeroes_survive(make_stack, seed, rnd):
    s = cut_stack(make_stack, seed, "--mode", "writeback")
    c = Cutter(s, seed, rnd, kinds=KINDS + "zz")
    for _ in range(3):
        c.start()
        c.cut(rnd.uniform(0.4, 1.7))
        s.after_cut()
        c.check()


def test_cuts_while_modes_change_and_drains_run(make_stack, seed, rnd):
    s = cut_stack(make_stack, seed, "--mode", "writeback")
    c = Cutter(s, seed, rnd)
    for _ in range(3):
        c.start()
        s.guest.run_bg("while :; do for m in writethrough writeback writearound writeback "
                       "passthrough writeback; do dmsetup message vol 0 mode $m; sleep 0.07; "
                       "dmsetup message pool 0 drain; sleep 0.05; "
                       "dmsetup message pool 0 checkpoint; done; done")
        c.cut(rnd.uniform(0.4, 2.2))
        s.after_cut()
        c.check()


def test_cuts_while_suspending_and_reloading(make_stack, seed, rnd):
    s = cut_stack(make_stack, seed, "--mode", "writeback")
    c = Cutter(s, seed, rnd)
    for _ in range(3):
        c.start()
        s.guest.write_file("/run/pool", s.table("pool").replace("c2q", "fifo") + "\n")
        s.guest.run_bg("while :; do dmsetup suspend pool; dmsetup resume pool; "
                       "dmsetup load pool /run/pool; dmsetup resume pool; sleep 0.05; done")
        c.cut(rnd.uniform(0.4, 1.7))
        s.after_cut()
        c.check()


def test_cuts_during_recovery(make_stack, seed, rnd):
    """J8: recovery may be cut at any moment, and again."""
    s = cut_stack(make_stack, seed, "--mode", "writeback")
    c = Cutter(s, seed, rnd)
    for _ in range(2):
        c.start()
        c.cut(rnd.uniform(0.4, 1.7))
        for _ in range(4):
            s.guest.boot()
            s.guest.modprobe("dm-testdisk", "dm-hybrid")
            s.members()
            s.guest.run_bg("hybridctl activate --all --device /dev/mapper/vssd "
                           "--device /dev/mapper/vhdd")
            time.sleep(rnd.uniform(0, 0.15))
            s.guest.power_cut()
        s.after_cut()
        c.check()


def test_reset_without_power_loss_then_a_cut(make_stack, seed, rnd):
    """Volatile caches that outlive the crash; then they are lost while recovered data is used."""
    s = cut_stack(make_stack, seed, "--mode", "writeback")
    c = Cutter(s, seed, rnd, writers=1)
    c.start()
    time.sleep(1)
    # Gone without a word for the members' caches: the pool fails, the devices live on. The
    # origin first, so that it is not written without its cache.
    for name in ("vhdd", "vssd"):
        s.guest.dm_message(name, "die")
    s.guest.run("sleep 0.3; dmsetup remove --force vol; dmsetup remove --force pool; "
                "sleep 0.3; pkill -f stress.py; sleep 0.5; "
                "dmsetup remove vol; dmsetup remove pool", check=False)
    for name in ("vssd", "vhdd"):
        s.guest.dm_message(name, "revive")
    s.activate()
    c.cut(0)
    s.after_cut()
    c.check()


@pytest.mark.kernels
def test_cache_is_warm_after_a_cut(make_stack):
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", *ALL)
    io(s.guest, dev, *(f"r:{128 * n}:128" for n in range(100)))
    s.guest.run("sleep 2.5")		# what nobody waits for is recorded, regions are closed
    io(s.guest, dev, "w:65536:256:a", "f")
    s.guest.power_cut()
    s.after_cut()
    assert s.status()["dirty"] == 2
    moved = s.moved(lambda: io(s.guest, dev, *(f"r:{128 * n}:8" for n in range(100)),
                               "r:65536:256"))
    assert moved["read_hits"] >= 100
    assert io(s.guest, dev, "r:65536:256", "r:0:128") == ["a", "0"]


def test_writes_to_clean_blocks_cost_a_cut_only_what_they_wrote(make_stack):
    """J4: a few writes have their granules recorded as not valid, and open no region."""
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", *ALL)
    io(s.guest, dev, *(f"r:{128 * n}:128" for n in range(100)))
    s.guest.run("sleep 2.5")		# fills are recorded, and the credit is full
    io(s.guest, dev, *(f"w:{1280 * n + 64}:8:a" for n in range(10)))
    s.guest.power_cut()
    s.after_cut()
    moved = s.moved(lambda: io(s.guest, dev, *(f"r:{128 * n}:64" for n in range(100)),
                               *(f"r:{1280 * n + 72}:56" for n in range(10))))
    assert moved == {"read_hits": 110}


@pytest.mark.kernels
@pytest.mark.parametrize("mode", ["writeback", "writethrough"])
def test_clean_stop_keeps_the_cache_warm_and_dirty_exact(make_stack, mode):
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", mode, *ALL)
    io(s.guest, dev, *(f"w:{256 * n}:{8 * (1 + n % 16)}:a" for n in range(30)),
       *(f"r:{256 * n + 128}:128" for n in range(30)))
    before = s.status()
    s.deactivate()
    for name in s.volatile:
        s.guest.dm_message(f"v{name}", "lose")	# nothing may have been left in their caches
    s.activate()
    after = s.status()
    assert after["dirty"] == before["dirty"] == (30 if mode == "writeback" else 0)
    assert after["cached"] == before["cached"] == 60
    moved = s.moved(lambda: io(s.guest, dev, *(f"r:{256 * n}:8" for n in range(30)),
                               *(f"r:{256 * n + 128}:128" for n in range(30))))
    assert moved == {"read_hits": 60}
    s.drain()
    s.deactivate()
    s.guest.power_cut()
    s.after_cut()
    assert s.status()["dirty"] == 0 and s.status()["cached"] == 60


def test_origin_holds_all_after_a_drain_and_a_cut(make_stack, seed, rnd):
    s = cut_stack(make_stack, seed, "--mode", "writeback")
    c = Cutter(s, seed, rnd)
    c.start()
    c.cut(1.5)
    s.after_cut()
    s.drain()
    s.guest.run("sleep 2")		# the record of it
    s.guest.power_cut()
    s.guest.boot()
    s.guest.modprobe("dm-testdisk")
    s.members()
    plain = s.guest.dm_create("plain", f"0 {SECTORS} linear /dev/mapper/vhdd 2048")
    c.check(plain)


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [8, pytest.param(50, marks=pytest.mark.long)])
def test_many_cuts(make_stack, seed, rnd, cuts):
    s = cut_stack(make_stack, seed, "--mode", "writeback")
    c = Cutter(s, seed, rnd, writers=3, kinds=KINDS + "z")
    for _ in range(cuts):
        c.start()
        c.cut(rnd.uniform(0, 1.3))
        s.after_cut()
        c.check()
