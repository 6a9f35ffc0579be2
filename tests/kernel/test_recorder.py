# SPDX-License-Identifier: GPL-2.0-or-later
"""What a real kernel did, recorded on all members and on the volumes, and cut afterwards.

A trace is cut at random points, in thousands of ways; each time the shipped engine recovers
in userspace (tests/replay), and the promises are held against what the volumes' users had
been told. Some of these states are also activated in a guest, which must come to the same
volume, bit for bit.
"""
import itertools
import json
import re
import struct
import subprocess

import pytest

from guest import Disk

from .recording import TOP, Recording, replay
from .stack import HERE, MODES, fio
from .test_integrity import ALL, MIXED, every_100_ms, stress

RECORD = struct.Struct("<QQQIiHBBI")	# struct rec_record
FLUSH, END = 3, 7
CACHE, ORIGIN = 0, 1	# recorders, in the order in which Recording makes them
AREA = 12288		# sectors that are written: three times the cache
EVERYTHING = {"kinds": "wwwwwwwwwwrrrWWfzd", "most": 24, "check": True}
PER_GUEST = 6		# images that one guest has room for


@pytest.fixture
def make_recording(tools, make_guest, disks, top):
    """A function that makes a recorded stack: make_recording(ssd=8, hdd=12), the cache first."""
    build = top / "build/replay"
    build.mkdir(parents=True, exist_ok=True)
    subprocess.run(["flock", build / ".lock", "make", "-s", "-C", top / "tests/replay"], check=True,
                   capture_output=True)

    def make(make_guest=make_guest, log_mib=96, **sizes):
        sizes = sizes or {"ssd": 8, "hdd": 12}
        guest = make_guest(disks=disks(*itertools.chain(*sizes.items())), modprobe=["dm-hybrid"])
        guest.run(f"modprobe dm-testdisk recorder_mib={log_mib}")
        return Recording(guest, *list(sizes)[:1], list(sizes)[1:]).members()
    return make


def recorded_volume(s, mode="writeback", *options):
    """The one volume of a stack, from whose creation on everything may be cut."""
    s.create("vol", "--mode", mode, *(options or ALL))
    dev = s.record("vol", s.origin)
    if mode == "writeback":
        s.mark("writeback", "rvol")
    s.begin()
    return dev


def cut(trace, seed, points=200):
    """Replays with cuts at about so many points; what is counted are distinct states."""
    line = replay(trace, "--seed", seed, "--points", points)
    print(line)
    counts = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", line)}
    assert counts["crash_states"] >= points and not counts["violations"], line


def images(trace, path, seed, points):
    """Some crash states as images: directories with member0 (the cache), member1, volume0."""
    path.mkdir()
    replay(trace, "--seed", seed, "--points", points, "--images", path)
    states = sorted(path.iterdir())
    for state in states:
        r = subprocess.run([TOP / "build/userspace/hybrid_check", state / "member0",
                            state / "member1"], capture_output=True, text=True)
        assert r.returncode in (0, 7), r.stdout + r.stderr
    return states


def activated(make_guest, states):
    """Activates each state in a guest and compares its volume with what userspace read."""
    for some in (states[n:n + PER_GUEST] for n in range(0, len(states), PER_GUEST)):
        disks = [Disk(state / f"member{m}", 0, f"{name}{n}") for n, state in enumerate(some)
                 for m, name in enumerate(("ssd", "hdd"))]
        guest = make_guest(disks=disks, modprobe=["dm-hybrid"])
        for n, state in enumerate(some):
            guest.run(["hybridctl", "activate", "--all", "--device", f"/dev/test/ssd{n}",
                       "--device", f"/dev/test/hdd{n}"])
            guest.run(["cmp", "/dev/mapper/vol", state / "volume0"])
            guest.run("hybridctl deactivate --all")
            guest.run(["hybrid_check", f"/dev/test/ssd{n}", f"/dev/test/hdd{n}"])


# --- short -------------------------------------------------------------------


def test_all_operations(make_recording, make_guest, tmp_path, seed):
    s = make_recording()
    dev = recorded_volume(s)
    stress(s.guest, dev, seed, AREA, 1, **EVERYTHING)
    assert s.status("pool")["evictions"] and s.status()["writebacks"]
    trace = s.end()
    cut(trace, seed)
    states = images(trace, tmp_path / "images", seed, PER_GUEST - 2)
    assert states
    activated(make_guest, states)


@pytest.mark.parametrize("recorder, rc", [(CACHE, "recovery|S2"), (ORIGIN, "drain|S2")])
def test_a_member_that_does_not_flush_is_noticed(make_recording, recorder, rc, seed):
    """The replay has teeth: without the flushes of one member promises are broken."""
    s = make_recording()
    stress(s.guest, recorded_volume(s), seed, AREA, 0.3, **EVERYTHING)
    trace = s.end()
    data = (trace / "records").read_bytes()
    records = [list(r) for r in RECORD.iter_unpack(data)]
    for r in records:
        began = records[r[0]]
        if r[6] == END and began[5] == recorder and began[6] == FLUSH:
            r[4] = -5
    (trace / "records").write_bytes(b"".join(RECORD.pack(*r) for r in records))
    run = replay(trace, "--points", 300, check=False)
    assert run.returncode == 1
    assert re.match(f"VIOLATION ({rc}) ", run.stderr), run.stderr
    again = re.search(r"reproduce: replay (.*) --trace", run.stderr)[1]
    assert replay(trace, *again.split(), check=False).stderr == run.stderr


def test_ext4(make_recording, seed):
    s = make_recording(ssd=8, hdd=26)
    cut(file_system(s, "ext4", seed, 1), seed)


def test_modes_change_while_draining(make_recording, seed):
    s = make_recording()
    dev = recorded_volume(s)
    s.guest.run_bg("while :; do for m in writethrough writeback writearound writeback "
                   "passthrough writeback; do dmsetup message vol 0 mode $m; sleep 0.03; "
                   "dmsetup message pool 0 drain; sleep 0.03; done; done")
    stress(s.guest, dev, seed, AREA, 1, **EVERYTHING)
    cut(s.end(), seed)


@pytest.mark.parametrize("mode", ["writethrough", "writearound"])
def test_origin_alone_is_whole(make_recording, mode, seed):
    """P4: before anything recovers, the origin of a volume that never was in writeback."""
    s = make_recording()
    stress(s.guest, recorded_volume(s, mode), seed, AREA, 0.5, **EVERYTHING)
    cut(s.end(), seed)


def test_a_full_log_ends_the_trace(make_recording, seed):
    """Everything goes on, and what was recorded can be cut."""
    s = make_recording(log_mib=6)
    stress(s.guest, recorded_volume(s), seed, AREA, 0.5, **EVERYTHING)
    assert s.guest.dm_status("rssd").endswith(" full")
    trace = s.end()
    assert 4 << 20 < (trace / "data").stat().st_size <= 6 << 20
    cut(trace, seed, 100)


def file_system(s, fs, seed, seconds):
    """A load on a file system, from mkfs on; returns the trace."""
    dev = recorded_volume(s)
    s.guest.run(f"mkfs.{fs} -q {dev} && mount -t {fs} {dev} /mnt")
    s.guest.run(f"python3 -S {HERE}/fsload.py run /mnt {seed} {seconds} && umount /mnt",
                timeout=120)
    return s.end()


# --- long --------------------------------------------------------------------


POINTS = 1500


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_fio_verify(make_recording, make_guest, tmp_path, mode, seed):
    s = make_recording(ssd=8, hdd=22)
    dev = recorded_volume(s, mode)
    fio(s.guest, dev, *MIXED, "--bsrange=512-128k", "--size=20m", "--io_size=16m", "--fsync=20",
        f"--randseed={seed}")
    trace = s.end()
    cut(trace, seed, POINTS)
    activated(make_guest, images(trace, tmp_path / "images", seed, 12))


@pytest.mark.long
@pytest.mark.parametrize("fs, hdd", [("ext4", 60), ("xfs", 330)])
def test_file_systems(make_recording, make_guest, tmp_path, fs, hdd, seed):
    s = make_recording(ssd=12, hdd=hdd)
    trace = file_system(s, fs, seed, 3)
    cut(trace, seed, POINTS // 2)
    activated(make_guest, images(trace, tmp_path / "images", seed, 6))


@pytest.mark.long
@pytest.mark.parametrize("size", ["4k", "16k", "256k", "1m"])
def test_block_sizes(make_recording, make_guest, tmp_path, size, seed):
    s = make_recording(ssd=12, hdd=12)
    dev = recorded_volume(s, "writeback", *ALL, "--block-size", size)
    stress(s.guest, dev, seed, AREA, 2, **EVERYTHING)
    trace = s.end()
    cut(trace, seed, POINTS)
    activated(make_guest, images(trace, tmp_path / "images", seed, 12))


@pytest.mark.long
@pytest.mark.parametrize("how", ["", "--noflush"])
def test_suspend_and_reload(make_recording, how, seed):
    s = make_recording()
    dev = recorded_volume(s)
    s.guest.write_file("/run/pool", s.table("pool").replace(" c2q 0", " fifo 0") + "\n")
    every_100_ms(s.guest, f"for n in vol pool; do dmsetup suspend {how} $n; dmsetup resume $n; "
                          "done; dmsetup load pool /run/pool; dmsetup resume pool", 3)
    stress(s.guest, dev, seed, AREA, 2, **EVERYTHING)
    cut(s.end(), seed, POINTS)


@pytest.mark.long
def test_two_volumes(make_recording, seed):
    """P3: no other volume's data."""
    s = make_recording(ssd=8, ha=12, hb=12)
    s.create("a", "--mode", "writeback", *ALL)
    s.attach("b", "hb", "--mode", "writeback", *ALL)
    for name in "ab":
        s.record(name, f"h{name}")
        s.mark("writeback", f"r{name}")
    s.begin()
    jobs = [stress(s.guest, f"/dev/mapper/r{name}", seed + n, AREA, 2,
                   **EVERYTHING | {"check": False}) for n, name in enumerate("ab")]
    for job in jobs:
        job.wait(timeout=120)
    cut(s.end(), seed, POINTS)


@pytest.mark.long
@pytest.mark.qemu
def test_two_cpus(make_recording, make_qemu_guest, seed):
    """Writers on both at once, in Debian's own kernel."""
    s = make_recording(lambda **options: make_qemu_guest(cpus=2, **options))
    dev = recorded_volume(s)
    jobs = [stress(s.guest, dev, seed, AREA, 4, part=part, parts=2, chunk=24,
                   **EVERYTHING | {"check": False, "kinds": "wwwwwwrrWWf"}) for part in (0, 1)]
    for job in jobs:
        job.wait(timeout=240)
    cut(s.end(), seed, POINTS)
