# SPDX-License-Identifier: GPL-2.0-or-later
"""Flushes that fail are noticed, below the volume and above it.

Where a bio has both REQ_PREFLUSH and data, dm drops the error of the flush.  Members here
are dm devices, so the module must not rely on such bios; a volume is a dm device, so a
filesystem on it does.
"""
import pytest

from .stack import io

ALL = ("--cutoff", "0")


def fail(stack, disk, *words):
    stack.guest.dm_message(f"v{disk}", *words)


def after_power_cut(stack):
    stack.guest.power_cut()
    stack.after_cut()


def test_failed_flush_of_the_cache_fails_each_fsync(make_stack):
    """In writeback, what fsync acknowledges is only on the cache device."""
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", *ALL)
    io(s.guest, dev, "w:4096:8:x", "f")	# the origin is marked dirty from here on
    fail(s, "ssd", "fail", "flush", "on")
    steps = [step for n in range(5) for step in (f"w:{256 * n}:8:a", "f")]
    assert io(s.guest, dev, *steps) == ["EIO"] * 5
    assert s.status("pool")["state"] == "failed"


def test_failed_flush_of_the_cache_does_not_make_data_zeroes(make_stack):
    """In writethrough, a record must not call cached what a power cut takes from the cache."""
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writethrough", *ALL)
    s.message("set", "commit_interval", 3000, name="pool")
    io(s.guest, dev, "w:0:128:a", "f")
    fail(s, "ssd", "fail", "flush", "once")
    s.wait("state", "failed", "pool")
    after_power_cut(s)
    assert io(s.guest, dev, "r:0:128") == ["a"]


def test_failed_flush_of_the_cache_fails_a_checkpoint(make_stack):
    """A root that names leaves which are not durable would lose the whole cache."""
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", *ALL)
    io(s.guest, dev, "w:4096:8:x", "f")
    s.message("set", "commit_interval", 60000, name="pool")
    fail(s, "ssd", "fail", "flush", "once")
    assert "cannot be recorded" in s.refused("dmsetup message vol 0 mode writethrough")
    s.wait("state", "failed", "pool")
    after_power_cut(s)
    assert io(s.guest, dev, "r:4096:8") == ["x"]


# Four files that are written, then fsynced one after the other; prints what each was told.
FSYNC = """
import errno, os
fds = [os.open(f"/mnt/{n}", os.O_RDWR | os.O_CREAT) for n in range(4)]
os.sync()
open("/tmp/ready", "w").close()
while os.path.exists("/tmp/ready"):
    pass
for fd in fds:
    try:
        os.pwrite(fd, b"x" * 65536, 0)
        os.fsync(fd)
        print("durable", flush=True)
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)
"""


def fsyncs(s, break_it):
    """What four fsyncs on /mnt are told after break_it()."""
    s.guest.run("cat > /tmp/fsync.py", input=FSYNC)
    job = s.guest.run_bg("python3 -S /tmp/fsync.py")
    s.guest.run("until test -e /tmp/ready; do sleep 0.1; done")
    break_it()
    s.guest.run("rm /tmp/ready")
    return job.wait().out.split()


@pytest.mark.parametrize("above", ["", "linear"])
@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_fsync_on_a_filesystem_whose_origin_fails_flushes(make_stack, fs, above):
    """Also through another dm device, which drops the error of a preflush as well."""
    s = make_stack(ssd=24, hdd=330, volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writethrough", *ALL)
    if above:
        s.guest.dm_create("above", f"0 {s.disk('hdd').sectors - 4096} linear {dev} 0")
        dev = "/dev/mapper/above"
    s.guest.run(f"mkfs.{fs} -q {dev} && mount -t {fs} {dev} /mnt")
    told = fsyncs(s, lambda: fail(s, "hdd", "fail", "flush", "on"))
    assert len(told) == 4 and told[0] == "EIO" and "durable" not in told
    fail(s, "hdd", "fail", "flush", "off")
    s.guest.run("umount /mnt")


@pytest.mark.parametrize("fs", ["ext4", "xfs"])
def test_fsync_on_a_filesystem_whose_cache_fails_flushes(make_stack, fs):
    """The pool fails with dirty data that the journal relies on."""
    s = make_stack(ssd=24, hdd=330, volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", *ALL)
    s.guest.run(f"mkfs.{fs} -q {dev} && mount -t {fs} {dev} /mnt")
    told = fsyncs(s, lambda: fail(s, "ssd", "fail", "flush", "on"))
    assert s.status("pool")["state"] == "failed"
    assert len(told) == 4 and "durable" not in told
    s.guest.run("umount /mnt")


def test_only_writes_that_rely_on_a_flush_fail_with_it(make_stack):
    """Plain writes and reads go on (P5); FUA writes fail until the volume is opened again."""
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writethrough", *ALL)
    fail(s, "hdd", "fail", "flush", "once")
    assert io(s.guest, dev, "W:0:8:a", "w:8:8:b", "r:8:8", "W:16:8:c", "f") == \
        ["EIO", "b", "EIO", "EIO"]
    s.deactivate()
    s.activate()
    assert io(s.guest, dev, "W:16:8:c", "f", "r:16:8") == ["c"]


def test_metadata_and_flushes_pass_writeback_throttling(make_stack):
    """A device that is throttled for what one volume writes back serves the commits of all."""
    s = make_stack(volatile="ssd hdd")
    dev = s.create("vol", "--mode", "writeback", *ALL)
    ops = s.logged(lambda: (io(s.guest, dev, "w:0:8:a", "f"), s.message("mode", "writethrough"),
                            s.wait("dirty", 0)))
    begun = [op for op in ops if op.event == "S" and op.op in "WF"]
    back = [op for op in begun if op.device == "vhdd" and op.op == "W" and op.sector == 2048]
    metadata = [op for op in begun if op.sector < 8192 and op not in back]
    assert {"W", "F"} <= {op.op for op in metadata if op.device == "vssd"}
    assert all(op.passes for op in metadata), [op for op in metadata if not op.passes]
    # Writeback stays throttled
    assert back and not any(op.passes for op in back)


@pytest.mark.parametrize("fua", [True, False], ids=["fua", "emulated"])
def test_a_write_with_fua_to_an_origin(make_stack, fua):
    """Where the block layer would emulate FUA by a flush, the pool flushes: it must hear of a failure, and begin no
    other flush beside. The disks of User Mode Linux have no FUA, and test disks pass as ones that have it."""
    s = make_stack(volatile="ssd hdd" if fua else "ssd")
    dev = s.create("vol", "--mode", "writearound", *ALL)
    s.message("set", "commit_interval", 60000, name="pool")
    io(s.guest, dev, "w:4096:8:x", "f")
    before = s.status("vol")["origin_flushes"]
    io(s.guest, dev, *(f"u:{n * 8}:8:a" for n in range(10)))
    assert s.status("vol")["origin_flushes"] - before == (0 if fua else 10)
    assert io(s.guest, dev, "r:0:80") == ["a"]
