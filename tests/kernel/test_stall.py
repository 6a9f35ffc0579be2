# SPDX-License-Identifier: GPL-2.0-or-later
"""A cache full of dirty blocks: writes wait for room, and are as durable and as whole as others."""
import pytest

from .test_harness import HDD

# Direct writes of 4 KiB, eight at a time, each to a block of its own; then all is read.
WRITER = """
import mmap, os, random, sys, threading
fd, blocks = os.open("/dev/mapper/vol", os.O_RDWR | os.O_DIRECT), int(sys.argv[1])
order = list(range(blocks))
random.Random(1).shuffle(order)

def page(n):
    buf = mmap.mmap(-1, 4096)
    buf.write(n.to_bytes(8, "little") * 512)
    return buf

def write(mine):
    for n in mine:
        assert os.pwritev(fd, [page(n)], n << 16) == 4096

def read(mine):
    buf = mmap.mmap(-1, 4096)
    for n in mine:
        assert os.preadv(fd, [buf], n << 16) == 4096
        assert buf[:] == page(n)[:], n

def all(what):
    failed = []
    def one(mine):
        try:
            what(mine)
        except BaseException as e:
            failed.append(e)
    threads = [threading.Thread(target=one, args=(order[k::8],)) for k in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failed, failed

all(write if sys.argv[2] == "write" else read)
os.fsync(fd)
"""


@pytest.mark.parametrize("rotational", [1, 0])
def test_full_of_dirty_blocks(make_stack, rotational):
    s = make_stack(ssd=24, hdd=256)
    if not rotational:
        s.guest.run("echo 0 >/sys/class/block/$(basename $(readlink -f /dev/test/hdd))/queue/rotational")
        # Blocks become free with a flush only: they do so more slowly than anything writes.
        s.guest.dm_create("vhdd", f"0 {s.disk('hdd').sectors} delay" + "".join(
            f" /dev/test/hdd 0 {delay}" for delay in (0, 0, 300)))
        s.volatile["hdd"] = ""	# its name is taken
    s.create("vol", "--mode", "writeback", "--cutoff", "0")
    blocks = 6 * s.status("pool")["blocks"]
    s.guest.write_file("/tmp/writer", WRITER)
    # Suspended in between: what waits ends, or goes on later.
    s.guest.run(f"python3 /tmp/writer {blocks} write & writer=$!; "
                "while kill -0 $writer 2>/dev/null; do dmsetup suspend vol; dmsetup resume vol; sleep 0.3; done; "
                "wait $writer", timeout=120)
    status = s.status()
    assert status["write_misses"] == blocks
    assert (status["bypass_full"] > blocks / 20) == (not rotational)
    # What is in the cache, and what is not
    s.guest.run(f"python3 /tmp/writer {blocks} read", timeout=60)
    s.drain()
    s.guest.run(f"python3 /tmp/writer {blocks} read", timeout=60)
    assert s.status()["origin_errors"] == s.status()["cache_errors"] == 0


@pytest.mark.parametrize("command", [
    "hybridctl drain vol", "hybridctl drain pool", "hybridctl set vol mode=writethrough",
    "hybridctl detach --live vol -y"])
def test_a_block_that_is_always_written_is_drained(make_stack, command):
    """32 writes to one block are in flight for as long as it takes."""
    s = make_stack(ssd=24, hdd=64)
    # The model's flush waits for an empty write cache: detach's own would not end beside writes.
    if "detach" not in command:
        s.guest.dm_create("vhdd", f"0 {s.disk('hdd').sectors} hddsim /dev/test/hdd 0 {HDD}")
        s.volatile["hdd"] = ""	# its name is taken
    s.create("vol", "--mode", "writeback")
    writer = s.guest.run_bg("exec fio --thread --name=t --filename=/dev/mapper/vol --direct=1 --rw=randwrite "
                            "--bs=512 --size=4k --ioengine=libaio --iodepth=32 --runtime=600 --time_based")
    s.wait("dirty", 1)
    s.guest.run(command, timeout=120)
    if "mode" in command:
        s.wait("dirty", 0)
        s.wait("draining", 0)
    assert writer.poll() is None
    writer.kill()
    writer.wait(check=False)
