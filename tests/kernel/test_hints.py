# SPDX-License-Identifier: GPL-2.0-or-later
"""What is said of reads: which are of a file system's metadata, and which are ahead."""
import re

import pytest

from .stack import fio
from .test_trace import TRACING, record

TREE = ("mkdir $(seq -f /mnt/d%g 40); for d in /mnt/d*; do "
        "touch $(seq -f $d/a-long-name-in-this-directory-%g 60); done")
DROP = "sync; echo 3 >/proc/sys/vm/drop_caches"


@pytest.fixture
def traced(make_stack):
    """A function: the I/O of some commands, [(type, sector, count, meta)]."""
    s = make_stack(ssd=24, hdd=330)
    s.create("vol", "--mode", "writethrough")
    s.script(f"mount -t tracefs none {TRACING}; cd {TRACING}; echo 8192 >buffer_size_kb\n"
             "echo 1 >events/dm_hybrid/hybrid_io/enable")

    def run(commands):
        out = s.script(f"echo >{TRACING}/trace; {commands} >/dev/null\n"
                       f"grep -o 'type=.*' {TRACING}/trace || :")
        return [(m[1], int(m[2]), int(m[3]), m[4] == "1") for m in re.finditer(
            r"type=(\w+) sector=(\d+) count=(\d+) .* meta=(\d)", out)]
    run.stack = s
    return run


# Without ext4's thread that zeroes inode tables, from a random second after the mount on
MKFS = {"ext4": "mkfs.ext4 -q -E lazy_itable_init=0", "xfs": "mkfs.xfs -q"}


@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_metadata_of_a_file_system(traced, fs):
    """Reads of directories and inodes; not what a file has, nor what is written."""
    written = traced(f"{MKFS[fs]} /dev/mapper/vol; mount -t {fs} /dev/mapper/vol /mnt; {TREE}; "
                     "dd if=/dev/urandom of=/mnt/file bs=64k count=32 2>&1; sync; umount /mnt")
    assert {kind for kind, *_, meta in written if meta} <= {"read"}
    assert any(kind == "write" for kind, *_ in written)
    traced(f"mount -t {fs} -o noatime /dev/mapper/vol /mnt; {DROP}")
    found = traced("find /mnt -ls")
    assert {kind for kind, *_ in found} == {"read"}
    # ext4 does not mark what it reads ahead: inodes around one that is asked for.
    assert sum(meta for *_, meta in found) > 20
    assert fs == "ext4" or all(meta for *_, meta in found)
    data = traced(f"cat /mnt/file; {DROP}; dd if=/mnt/file iflag=direct bs=64k 2>&1")
    assert sum(count for kind, _, count, meta in data if not meta) >= 2 * 32 * 128
    assert sum(count for kind, _, count, meta in data if meta) < 32 * 128


def of_a_file_system(s):
    """... whose metadata are read when the cache is full, and its budget is used up."""
    s.message("set", "endurance", "1", name="pool")
    s.message("mode", "writearound")
    s.message("cutoff", 0, name="two")	# Or a run leaves half of the cache to the random I/O before it.
    s.script(f"mkfs.ext4 -q /dev/mapper/vol; mount /dev/mapper/vol /mnt; {TREE}; umount /mnt\n"
             "cat /dev/mapper/two >/dev/null; sleep 0.5; mount /dev/mapper/vol /mnt\n"
             "find /mnt -ls >/dev/null; umount /mnt")


def test_metadata_in_a_recorded_run(make_stack, sim_dir, tmp_path):	# noqa: F811
    """The trace says it; an engine that is told another thing does another one."""
    recording = record(make_stack(ssd=16, hdd=48, hdd2=32, log=128, volatile="ssd hdd2"),
                       of_a_file_system)
    (*_, differences), text = recording.replay(sim_dir / "replay", tmp_path)
    assert differences == 0, text
    (*_, differences), text = recording.replay(sim_dir / "replay", tmp_path,
                                               recording.text.replace(" meta=1", " meta=0"))
    assert differences == 1, text


@pytest.mark.parametrize("share", [25, 0])
@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_find_after_a_churn_of_data(make_stack, fs, share):
    """A tree that was walked before is still in the cache; without a share for metadata it is not."""
    s = make_stack(ssd=32, hdd=330)
    s.create("vol", "--mode", "writearound", "--cutoff", "0")
    s.message("set", "metadata_share", share, name="pool")
    s.script(f"mkfs.{fs} -q /dev/mapper/vol; mount -t {fs} /dev/mapper/vol /mnt; {TREE}\n"
             "dd if=/dev/zero of=/mnt/file bs=1M count=64 2>/dev/null")

    def find():
        """How many reads of the origin it needs."""
        s.script(f"umount /mnt; {DROP}; mount -t {fs} -o noatime /dev/mapper/vol /mnt")
        return s.moved(lambda: s.guest.run("find /mnt -ls >/dev/null")).get("read_misses", 0)

    cold = find()
    before = s.status("pool")
    assert bool(before["metadata"]) == bool(share)
    for turn in range(40):
        fio(s.guest, "/mnt/file", "--rw=randread", "--bs=4k", "--number_ios=2000", "--norandommap",
            f"--randseed={turn}")
        if s.status("pool")["evictions"] - before["evictions"] > 8 * before["blocks"]:
            break
    else:
        raise AssertionError("the cache is not full")
    again = find()
    print(f"{fs}, share {share} %: reads of the origin {cold}, after a churn of data {again}")
    assert again < cold / 4 if share else again > cold / 2


def test_files_are_read_ahead_and_cached(make_stack):
    """Linux says so of all that ->readahead() reads, also of what read() waits for."""
    s = make_stack(ssd=32, hdd=64)
    s.create("vol", "--mode", "writearound")
    s.script("mkfs.ext4 -q /dev/mapper/vol; mount /dev/mapper/vol /mnt\n"
             f"dd if=/dev/urandom of=/mnt/file bs=64k count=32 2>/dev/null; {DROP}\n"
             f"mount -t tracefs none {TRACING}; echo 1 >{TRACING}/events/dm_hybrid/hybrid_io_mapped/enable")
    s.guest.run("cat /mnt/file >/dev/null")
    s.script(f"echo 0 >{TRACING}/tracing_on")
    trace = s.guest.run(f"cat {TRACING}/trace").out
    marked = re.findall(r"hybrid_io_mapped: .* ahead=(\d)", trace)
    assert "1" in marked
    again = s.moved(lambda: s.script(f"{DROP}; cat /mnt/file >/dev/null"))
    assert again["read_hits"] and "read_misses" not in again
