# SPDX-License-Identifier: GPL-2.0-or-later
"""What goes on while a task stays at one place of the module: pauses/README.md.

The module that is tested has pause points. With KASAN, what goes on after its pool has gone shows.
"""
import time

import pytest

from .stack import HERE, Stack, io

PARAMETERS = "/sys/module/dm_hybrid/parameters"


class Pause:
    """The next task that comes to a pause point stays there, until the test releases it."""

    def __init__(self, guest, point: str):
        self.guest = guest
        guest.write_file(f"{PARAMETERS}/pause", f"{point}\n")

    @property
    def state(self) -> str:
        return self.guest.read_file(f"{PARAMETERS}/paused").strip()

    def reached(self, timeout: float = 30) -> str:
        """How, as soon as a task is, or was, there."""
        end = time.monotonic() + timeout * self.guest.slow
        while (state := self.state) == "armed":
            assert time.monotonic() < end, "nobody comes there"
            time.sleep(0.1)
        return state

    def release(self) -> None:
        self.guest.write_file(f"{PARAMETERS}/pause", "\n")


def step(s, dev, text):
    """One I/O of steps.py, in the background."""
    return s.guest.run_bg(["python3", "-S", HERE / "steps.py", dev], input=text)


def at_the_cache(s, count):
    """Waits until so many I/Os, at least, are with the cache device."""
    s.guest.run("f=/sys/dev/block/$(stat -Lc %Hr:%Lr /dev/mapper/vssd)/inflight; "
                f"until [ $(awk '{{ print $1 + $2 }}' $f) -ge {count} ]; do sleep 0.1; done", timeout=30)


def stays(job, seconds=5):
    """Whether a job waits. One that need not may be slow and pass for one that does, but not the reverse."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and job.poll() is None:
        time.sleep(0.1)
    return job.poll() is None


def removed(s):
    return s.guest.run_bg("dmsetup remove vol && dmsetup remove pool")


def hanging_cache(s, *steps):
    """A volume with a dirty granule, without records but for what users ask for; of the cache device
    writes hang from here on."""
    dev = s.create("vol", "--mode", "writeback", "--cutoff", "0")
    s.message("set", "commit_interval", 60000, name="pool")
    io(s.guest, dev, "w:0:8:a", *steps)
    s.guest.dm_message("vssd", "hang", "write", "on")
    return dev


def hanging_commit(s):
    """A user who flushes the volume."""
    dev = hanging_cache(s)
    user = step(s, dev, "f")
    at_the_cache(s, 1)
    return user


def kept_writes(s, point="end_miss", writers=2) -> Pause:
    """Two FUA writes that reach the cache device, of granules that are dirty without a record, so that
    they are under no intent; then the one joins the commit that the other has started. Who ends them is neither their user nor an interrupt: the task that lets the device go on.
    If the commit ends before the other write does, the next two try it."""
    size = 8 * writers
    dev = hanging_cache(s, f"w:8:{size}:a")
    for at in range(8, 128 - size, size):
        users = [step(s, dev, f"W:{at + 8 * n}:8:b") for n in range(writers)]
        at_the_cache(s, len(users))
        pause = Pause(s.guest, point)
        s.go_on = s.guest.run_bg("dmsetup message vssd 0 hang all off")
        for user in users:
            user.wait(timeout=30)
        while pause.state == "armed" and s.go_on.poll() is None:
            time.sleep(0.1)
        if pause.state != "armed":
            return pause
        pause.release()
        io(s.guest, dev, f"w:{at + size}:{size}:a")
        s.guest.dm_message("vssd", "hang", "write", "on")
    raise AssertionError("nobody comes there")


@pytest.mark.debug
def test_pool_beside_the_end_of_its_last_bio(make_stack):
    """A bio that the engine keeps is ended by others, and pool and volume may go at once. Whoever
    brought it there looks at the pool under RCU, for which their removal waits."""
    s = make_stack(volatile="ssd hdd", paused=True)
    pause = kept_writes(s)
    removed(s).wait(timeout=60)
    if pause.state == "held":
        pause.release()
    s.go_on.wait(timeout=30)
    s.guest.check_console()


@pytest.fixture
def preemptible(tools, make_qemu_guest, disks):
    guest = make_qemu_guest(disks=disks("ssd", 32, "hdd", 64), cpus=2, append="preempt=full",
                            modprobe=["dm-testdisk", "dm-hybrid"], paused=True)
    return Stack(guest, volatile={"ssd": "0", "hdd": "0"}).members()


@pytest.mark.qemu
@pytest.mark.slow
def test_unloading_waits_for_the_end_of_the_last_bio(preemptible):
    """What is left of end_miss() needs no pool, but the module."""
    s = preemptible
    pause = kept_writes(s, "end_miss_returns", 1)
    assert pause.state == "held"
    removed(s).wait(timeout=60)
    unload = s.guest.run_bg("rmmod dm_hybrid_c2q && rmmod dm_hybrid")
    s.guest.run("until ! lsmod | grep -q dm_hybrid_c2q; do sleep 0.1; done", timeout=60)
    assert stays(unload)
    pause.release()
    unload.wait(timeout=60)
    s.go_on.wait(timeout=30)
    s.guest.check_console()


@pytest.mark.qemu
@pytest.mark.slow
def test_removal_waits_for_the_end_of_the_last_bio(preemptible):
    s = preemptible
    pause = kept_writes(s)
    assert pause.state == "held"
    removal = removed(s)
    assert stays(removal)
    pause.release()
    removal.wait(timeout=60)
    s.go_on.wait(timeout=30)


@pytest.mark.debug
def test_pool_beside_the_end_of_an_operation(make_stack):
    """Once the worker has been told of it, the pool may go."""
    s = make_stack(volatile={"ssd": "1 lying", "hdd": "0"}, paused=True)
    user = hanging_commit(s)
    pause = Pause(s.guest, "queue_end")
    go_on = s.guest.run_bg("dmsetup message vssd 0 hang all off")
    assert pause.reached() == "held"
    user.wait(timeout=30)
    removed(s).wait(timeout=60)
    pause.release()
    go_on.wait(timeout=30)
    s.guest.check_console()


@pytest.mark.debug
def test_pool_beside_its_worker(make_stack):
    """A user whose I/O has ended may remove volume and pool. The removal of a pool that failed needs no
    worker, and waits for it all the same."""
    s = make_stack(volatile="ssd hdd", paused=True)
    user = hanging_commit(s)
    s.guest.dm_message("vssd", "die")
    pause = Pause(s.guest, "complete_user")
    s.guest.dm_message("vssd", "hang", "all", "off")
    assert pause.reached() == "held"
    assert user.wait(timeout=30).out.split() == ["EIO"]
    removal = removed(s)
    assert stays(removal)
    pause.release()
    removal.wait(timeout=60)
    s.guest.check_console()


@pytest.mark.debug
def test_suspend_beside_a_call_of_map(make_stack):
    """The bio may have ended before map returns: dm tells its user, and suspends, after that."""
    s = make_stack(volatile={"ssd": "1 lying", "hdd": "0"}, paused=True)
    # The second flush joins the commit that the first has started
    first = hanging_commit(s)
    pause = Pause(s.guest, "map_miss")
    second = step(s, "/dev/mapper/vol", "f")
    assert pause.reached() == "held"
    s.guest.dm_message("vssd", "hang", "all", "off")
    first.wait(timeout=30)
    suspend = s.guest.run_bg("dmsetup suspend --noflush vol && dmsetup resume vol")
    assert stays(suspend) and second.poll() is None
    pause.release()
    suspend.wait(timeout=30)
    second.wait(timeout=30)


# Tables of a pool ---------------------------------------------------------------------------


def last_table_goes(s):
    """The pool's only table is replaced by force, below a volume; in the background."""
    return s.guest.run_bg("dmsetup suspend --noflush pool && dmsetup resume pool")


def two_tables(s):
    """A volume in use; the pool's table, and in its inactive slot one without the pool."""
    s.dev = s.create("vol", "--mode", "writeback", "--cutoff", "0")
    io(s.guest, s.dev, "w:0:8:a", "f")
    table = s.table("pool")
    s.guest.run("dmsetup load pool", input=f"0 {table.split()[1]} error\n")
    return table


def load_beside_the_last(s, point, command="dmsetup load pool"):
    """The load of a table is held at a pause point while the pool's last one goes, then released."""
    table = two_tables(s)
    pause = Pause(s.guest, point)
    load = s.guest.run_bg(command, input=table + "\n")
    assert pause.reached() == "held"
    last_table_goes(s).wait(timeout=30)
    pause.release()
    return load


REFUSED = "removed by force"


@pytest.mark.debug
def test_last_table_goes_before_another_comes(make_stack):
    """A constructor that is about to join a pool finds it dead."""
    s = make_stack(paused=True)
    load = load_beside_the_last(s, "pool_ctr_before",
                                "dmesg -C; dmsetup load pool; rc=$?; dmesg; exit $rc")
    loaded = load.wait(timeout=30, check=False)
    assert loaded.rc and REFUSED in loaded.out
    assert io(s.guest, s.dev, "r:0:8") == ["EIO"]


@pytest.mark.debug
def test_last_table_goes_after_another_came(make_stack):
    """A table that has joined keeps the pool alive, and resumes it."""
    s = make_stack(paused=True)
    load_beside_the_last(s, "pool_ctr_after").wait(timeout=30)
    s.guest.run("dmsetup resume pool", timeout=30)
    assert io(s.guest, s.dev, "r:0:8", "w:8:8:b", "f", "r:0:16") == ["a", "ab"]
    assert s.status("pool")["state"] == "running"


@pytest.mark.debug
def test_another_table_comes_as_the_last_goes(make_stack):
    """From the moment on at which it does not count any more, the pool is dead."""
    s = make_stack(paused=True)
    table = two_tables(s)
    pause = Pause(s.guest, "unbind_table")
    gone = last_table_goes(s)
    assert pause.reached() == "held"
    assert REFUSED in s.refused("dmsetup load pool", table + "\n")
    pause.release()
    gone.wait(timeout=30)
    assert io(s.guest, s.dev, "r:0:8") == ["EIO"]
