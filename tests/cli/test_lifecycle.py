# SPDX-License-Identifier: GPL-2.0-or-later
"""Whole lives of volumes, on loop devices over a model of device-mapper."""
import contextlib
import fcntl
import itertools
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time

import pytest

MIB = 1 << 20


@pytest.fixture
def devs(loop):
    return loop("cache.img", 64), loop("origin.img", 100)


@pytest.fixture
def volume(kernel, devs):
    """A volume "vol" on the pool "vol-pool", in writeback mode."""
    kernel.ok("create", "vol", "--cache", devs[0], "--origin", devs[1], "--mode", "writeback",
              "-y")
    return devs


def members(kernel, *devices):
    r = kernel("scan", *devices, "--json", "-o", "all")
    return {m["device"]: m for m in json.loads(r.stdout)["members"]}

# Bytes that a dirty block of the fake kernel has only in the cache
DIRTY = 2 * 4096


def listed(kernel):
    out = json.loads(kernel.ok("list", "--json", "-o", "all"))
    return {v["name"]: v for v in out["volumes"]}


def test_create_makes_pool_and_volume(kernel, devs):
    out = kernel.ok("create", "vol", "--cache", devs[0], "--origin", devs[1], "-y")
    assert "/dev/mapper/vol" in out
    assert kernel.devices == ["vol-pool", "vol"]
    assert [re.sub("[0-9a-f]{8,}[-0-9a-f]*", "ID", line) for line in kernel.log] == [
        "check",
        f"create vol-pool 131072 {os_dev(devs[0])} 64 2 uuid ID c2q 0",
        f"message vol-pool create_volume 0 ID vol ID ID 2048 200704 writethrough 8192",
        f"create vol 200704 4000:0 0 {os_dev(devs[1])} 3 writethrough cutoff 8192"]
    found = members(kernel, *devs)
    assert found[devs[0]]["role"] == "cache" and found[devs[0]]["name"] == "vol-pool"
    assert found[devs[1]]["role"] == "origin" and found[devs[1]]["name"] == "vol"
    assert found[devs[0]]["pool_uuid"] == found[devs[1]]["pool_uuid"]


def os_dev(path):
    st = os.stat(path)
    return f"{os.major(st.st_rdev)}:{os.minor(st.st_rdev)}"


def test_options_reach_the_tables(kernel, devs):
    kernel.ok("create", "vol", "--cache", devs[0], "--origin", devs[1], "-y", "--pool", "fast",
              "--block-size", "4k", "--policy", "fifo", "--cutoff", "0", "--mode",
              "writearound", "--journal-size", "1m")
    tables = kernel.ok("table").splitlines()
    assert re.fullmatch(rf"dmsetup create fast --uuid HYBRID-\S+-pool --table "
                        rf"'0 131072 hybrid-pool {devs[0]} 8 2 uuid \S+ fifo 0'", tables[0])
    assert re.fullmatch(rf"dmsetup create vol --uuid HYBRID-[0-9a-f-]+ --table "
                        rf"'0 200704 hybrid /dev/mapper/fast 0 {devs[1]} 3 writearound "
                        rf"cutoff 0'", tables[1])
    assert kernel.ok("table", "vol").splitlines() == tables[1:]


@pytest.mark.parametrize("fail", ["create vol-pool", "message vol-pool create_volume",
                                  "create vol "])
def test_a_failed_create_leaves_nothing(kernel, devs, fail):
    r = kernel("create", "vol", "--cache", devs[0], "--origin", devs[1], "-y", fail=fail)
    assert r.returncode == 4
    assert kernel.devices == []
    assert members(kernel, *devs) == {}
    for volumes in kernel.state.get("volumes", {}).values():
        assert volumes == []
    # And it can be done again
    kernel.ok("create", "vol", "--cache", devs[0], "--origin", devs[1], "-y")


def test_a_second_volume(kernel, volume, loop):
    other = loop("other.img", 50)
    kernel.ok("attach", "vol-pool", "two", "--origin", other, "-y")
    assert kernel.devices == ["vol-pool", "vol", "two"]
    assert listed(kernel)["two"]["id"] == 1
    third = loop("third.img", 50)
    kernel.ok("create", "three", "--pool", "vol-pool", "--origin", third, "-y")
    assert listed(kernel)["three"]["id"] == 2
    assert listed(kernel)["three"]["pool"] == "vol-pool"


def test_a_failed_attach_leaves_nothing(kernel, volume, loop):
    other = loop("other.img", 50)
    r = kernel("attach", "vol-pool", "two", "--origin", other, "-y", fail="create two")
    assert r.returncode == 4
    assert kernel.devices == ["vol-pool", "vol"]
    assert members(kernel, other) == {}
    assert [len(v) for v in kernel.state["volumes"].values()] == [1]


def test_down_and_up_again(kernel, volume):
    kernel.ok("deactivate", "vol")
    assert kernel.devices == []
    assert {n["state"] for n in listed(kernel).values()} == {"inactive"}
    kernel.clear_log()
    kernel.ok("activate", "vol")
    assert kernel.devices == ["vol-pool", "vol"]
    assert f"{os_dev(volume[1])} 3 writeback cutoff 8192" in kernel.log[-1]
    # Once more changes nothing
    kernel.ok("activate", "--all")
    assert kernel.devices == ["vol-pool", "vol"]


@pytest.mark.parametrize("what", ["vol-pool", "vol", "--all", "origin", "uuid"])
def test_ways_to_name_it(kernel, volume, what):
    uuid = listed(kernel)["vol"]["uuid"]
    what = {"origin": volume[1], "uuid": uuid}.get(what, what)
    kernel.ok("deactivate", what)
    assert kernel.devices == []
    kernel.ok("activate", what)
    assert kernel.devices == ["vol-pool", "vol"]


def test_the_pool_stays_for_other_volumes(kernel, volume, loop):
    other = loop("other.img", 50)
    kernel.ok("attach", "vol-pool", "two", "--origin", other, "-y")
    kernel.ok("deactivate", "vol")
    assert kernel.devices == ["vol-pool", "two"]
    kernel.ok("deactivate", "two", "--keep-pool")
    assert kernel.devices == ["vol-pool"]
    kernel.ok("activate", "two")
    assert kernel.devices == ["vol-pool", "two"]


def test_in_use_is_refused(kernel, volume):
    kernel.change_device("vol", open_count=1)
    for command in ("deactivate", "detach"):
        r = kernel(command, "vol")
        assert r.returncode == 5 and "in use" in r.stderr
    assert kernel.devices == ["vol-pool", "vol"]


def test_a_missing_origin_is_named_and_left_out(kernel, volume, loop):
    other = loop("other.img", 50)
    kernel.ok("attach", "vol-pool", "two", "--origin", other, "-y")
    kernel.ok("deactivate", "--all")
    r = kernel("activate", "vol-pool", "--device", volume[0], "--device", volume[1])
    assert r.returncode == 7
    assert "volume two: its origin" in r.stderr and "missing" in r.stderr
    assert kernel.devices == ["vol-pool", "vol"]
    kernel.ok("activate", "two")
    assert kernel.devices == ["vol-pool", "vol", "two"]


def test_a_missing_cache_device_is_degraded(kernel, volume):
    kernel.ok("deactivate", "--all")
    r = kernel("activate", "vol", "--device", volume[1])
    assert r.returncode == 7 and "pool" in r.stderr and "missing" in r.stderr
    assert kernel.devices == []


def test_a_cloned_origin_is_refused(kernel, volume, loop):
    kernel.ok("deactivate", "--all")
    clone = loop("clone.img", 100)
    subprocess.run(["dd", f"if={volume[1]}", f"of={clone}", "bs=1M", "status=none",
                    "conv=fsync"], check=True)
    r = kernel("activate", "vol-pool")
    assert r.returncode == 4
    assert volume[1] in r.stderr and clone in r.stderr
    assert "vol" not in kernel.devices
    # The admin decides
    kernel.ok("activate", "vol-pool", "--device", volume[0], "--device", volume[1])
    assert kernel.devices == ["vol-pool", "vol"]


def test_detach(kernel, volume):
    kernel.change(dirty_vol=100)
    kernel.clear_log()
    look = 2 * ["message vol-pool volumes"]
    out = kernel.ok("detach", "vol")
    assert f"its data is on {volume[1]}, from sector 2048 on (200704 sectors)" in out
    assert f"dmsetup create vol --table '0 200704 linear {volume[1]} 2048'" in out
    assert kernel.log == ["check", *look, *look, "message vol drain", *look, "remove vol",
                          "message vol-pool delete_volume 0", "message vol-pool forget_volume 0"]
    m = members(kernel, volume[1])[volume[1]]
    assert (m["role"], m["sequence"], m["state"]) == ("detached", 2, "ok")
    assert kernel.devices == ["vol-pool"]
    r = kernel("attach", "vol-pool", "vol", "--origin", volume[1], "-y", "--in-place")
    assert r.returncode == 2 and "begins at sector 2048" in r.stderr
    # Its origin is attached again with its data; a new volume it becomes once it is wiped
    r = kernel("attach", "vol-pool", "new", "--origin", volume[1], "-y", "--wipe-signatures")
    assert r.returncode == 2 and "hybridctl wipe" in r.stderr
    kernel.ok("attach", "vol-pool", "vol", "--origin", volume[1])
    assert members(kernel, volume[1])[volume[1]]["sequence"] == 3


def test_detach_in_json(kernel, volume):
    kernel.change(dirty_vol=100)
    lines = [json.loads(line) for line in
             kernel.ok("detach", "vol", "--progress-json").splitlines()]
    assert [line["state"] for line in lines] == ["draining"] * 2 + ["clean", "detached"]
    assert lines[-1]["origin"] == volume[1] and lines[-1]["data_sector"] == 2048


def test_one_bad_superblock_is_a_warning(kernel, volume):
    kernel.ok("deactivate", "vol")
    with open(volume[1], "r+b") as f:
        f.seek(512 * 1024 + 200)
        f.write(b"\xff" * 16)
        f.flush()
        os.fsync(f.fileno())
    r = kernel("activate", "vol")
    assert r.returncode == 0 and "warning: " in r.stderr and volume[1] in r.stderr
    # Detaching writes both again
    kernel.ok("detach", "vol")
    assert members(kernel, volume[1])[volume[1]]["state"] == "ok"


def test_detach_cut_short_is_finished_at_the_next_activation(kernel, volume):
    r = kernel("detach", "vol", fail="message vol-pool forget_volume")
    assert r.returncode == 4
    assert members(kernel, volume[1])[volume[1]]["role"] == "detached"
    assert "tombstone" in json.dumps(kernel.state["volumes"])
    kernel.ok("deactivate", "vol-pool")
    kernel.ok("activate", "vol-pool")
    assert [len(v) for v in kernel.state["volumes"].values()] == [0]


def test_detach_of_dirty_data_without_draining(kernel, volume):
    kernel.change(dirty_vol=100)
    r = kernel("detach", "vol", "--drop-dirty")
    assert r.returncode == 2 and kernel.devices == ["vol-pool", "vol"]
    kernel.ok("detach", "vol", "--drop-dirty", "-y")
    assert "message vol-pool delete_volume 0 drop_dirty" in kernel.log
    assert "message vol drain" not in kernel.log


@pytest.fixture
def two(kernel, volume, loop):
    """A second volume of the pool, in place."""
    other = loop("other.img", 50)
    subprocess.run(["mkfs.ext4", "-q", other], check=True)
    kernel.ok("attach", "vol-pool", "two", "--origin", other, "-y", "--in-place")
    return other


def test_detach_of_a_pool_is_of_all_its_volumes(kernel, volume, two):
    kernel.change(dirty_vol=100)
    out = kernel.ok("detach", "vol-pool")
    assert "volume vol is detached" in out and "volume two is detached" in out
    assert kernel.devices == ["vol-pool"]
    assert [len(v) for v in kernel.state["volumes"].values()] == [0]
    assert members(kernel, volume[1])[volume[1]]["role"] == "detached"
    assert kernel.ok("detach", "vol-pool") == "pool vol-pool has no volumes\n"
    kernel.ok("deactivate", "vol-pool")
    r = kernel("detach", "vol-pool")
    assert r.returncode == 4 and "pool vol-pool is not active" in r.stderr


def test_detach_of_a_pool_looks_at_all_first(kernel, volume, two):
    kernel.change_device("two", open_count=1)
    kernel.clear_log()
    r = kernel("detach", "vol-pool")
    assert r.returncode == 5 and "two is in use" in r.stderr
    assert not [line for line in kernel.log if line != "message vol-pool volumes"][1:]
    # A later failure ends it there; the first volume stays detached
    kernel.change_device("two", open_count=0)
    r = kernel("detach", "vol-pool", fail="remove two")
    assert r.returncode == 6 and kernel.devices == ["vol-pool", "two"]
    # What its pool alone knows, too
    kernel.ok("deactivate", "two", "--keep-pool")
    kernel.ok("detach", "vol-pool")
    assert [len(v) for v in kernel.state["volumes"].values()] == [0]


def test_a_signal_between_two_volumes_ends_a_detach(kernel, volume, two):
    """Held while the first is taken apart, and not after it."""
    r = kernel("detach", "vol-pool", env={"HYBRID_FAKE_SIGNAL": f"{int(signal.SIGINT)} remove vol"})
    assert r.returncode == -signal.SIGINT and "volume vol is detached" in r.stdout
    assert kernel.devices == ["vol-pool", "two"]
    assert [len(v) for v in kernel.state["volumes"].values()] == [1]


def test_a_name_goes_before_a_file_of_that_name(kernel, volume, two, tmp_path):
    """Where devices and files are expected, too; and a path is none of a name."""
    where = tmp_path / "where"
    where.mkdir()
    for name in ("vol", "vol-pool", "file"):
        (where / name).write_bytes(bytes(8 * MIB))
    kernel.clear_log()
    assert kernel.ok("lost", "vol", cwd=where) == "nothing is lost\n"
    assert kernel.log == ["message vol lost 0"]
    for name in ("vol", "vol-pool"):
        r = kernel("check", name, cwd=where)
        assert r.returncode == 5 and f"{name} is active" in r.stderr and not r.stdout
    for command in "check", "lost":
        r = kernel(command, "./vol", cwd=where)
        assert r.returncode == 4 and "vol-pool" not in r.stdout + r.stderr
        assert r.stdout + r.stderr == kernel(command, "file", cwd=where).stdout.replace("file", "./vol") + \
            kernel(command, "file", cwd=where).stderr.replace("file", "./vol")
    kernel.ok("deactivate", "vol", "--keep-pool")
    r = kernel("check", "vol", cwd=where)
    assert r.returncode == 5 and "vol-pool is active" in r.stderr


def test_an_inactive_name_is_its_devices(kernel, volume, loop, tmp_path):
    other = loop("other.img", 50)
    kernel.ok("attach", "vol-pool", "more", "--origin", other, "-y")
    kernel.ok("deactivate", "vol-pool")
    (tmp_path / "vol-pool").write_bytes(bytes(8 * MIB))
    for command in "check", "lost":
        for name, devices in (("vol-pool", [*volume, other]), ("vol", volume), ("more", [volume[0], other])):
            by_name, by_path = (kernel(command, *words, "--json", cwd=tmp_path) for words in ([name], devices))
            assert by_name.stdout and not by_path.stderr
            assert (by_name.returncode, by_name.stdout, by_name.stderr) == \
                (by_path.returncode, by_path.stdout, by_path.stderr)
    r = kernel("check", "vol-pool", volume[0])
    assert r.returncode == 2 and "same device" in r.stderr


def test_inactive_and_dirty_is_not_detached(kernel, volume):
    kernel.ok("deactivate", "vol", "--keep-pool")
    kernel.change(dirty_vol=100)
    r = kernel("detach", "vol")
    assert r.returncode == 5 and "dirty" in r.stderr
    assert members(kernel, volume[1])[volume[1]]["role"] == "origin"
    kernel.change(dirty_vol=0)
    kernel.ok("detach", "vol")
    assert members(kernel, volume[1])[volume[1]]["role"] == "detached"


def test_drain_shows_progress(kernel, volume):
    kernel.change(dirty_vol=100)
    out = kernel.ok("drain", "vol", "--progress-json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["dirty_blocks"] for line in lines] == [60, 20, 0]
    assert lines[-1]["state"] == "clean"
    assert lines[0]["dirty_bytes"] == 60 * DIRTY
    assert [line["percent"] for line in lines] == [40, 80, 100]


def test_drain_says_what_it_did(kernel, volume):
    kernel.change(dirty_vol=100)
    out = kernel.ok("drain", "vol")
    assert re.fullmatch(r"vol: 100 dirty blocks at the start; up to 800\.00k written back in "
                        r"[0-9]+\.[0-9] s, nothing is dirty\n", out), out
    assert kernel.ok("drain", "vol") == "vol: nothing is dirty\n"
    # What is written next is cached again.
    assert kernel.log[-1] == "message vol drain_cancel"
    assert kernel.ok("drain", "vol", "-q") == ""
    # As hybrid-drain@.service does for a name that no unit can have
    assert kernel.ok("drain", kernel.device("vol")["uuid"]) == "vol: nothing is dirty\n"


@pytest.mark.parametrize("option", ["--json", "--progress-json"])
def test_drain_says_what_it_did_in_json(kernel, volume, option):
    kernel.change(dirty_vol=100)
    begin = time.monotonic()
    lines = [json.loads(line) for line in kernel.ok("drain", "vol", option).splitlines()]
    assert len(lines) == (1 if option == "--json" else 3)
    assert all("written_bytes" not in line for line in lines[:-1])
    seconds = lines[-1].pop("seconds")
    assert 0.25 <= seconds <= time.monotonic() - begin
    assert lines[-1] == {"name": "vol", "state": "clean", "dirty_blocks": 0, "dirty_bytes": 0,
                         "total_blocks": 100, "dirty_blocks_at_start": 100, "percent": 100,
                         "total_bytes": 100 * DIRTY, "written_bytes": 100 * DIRTY}


@contextlib.contextmanager
def on_terminal(kernel, build, columns, *args):
    """hybridctl on a terminal of that width: the process, and each line that it draws."""
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, columns, 0, 0))
    env = dict(os.environ, HYBRID_FAKE_DM=str(kernel.path))
    p = subprocess.Popen([build / "hybridctl-fake", *args], stdout=subprocess.DEVNULL, stderr=theirs, env=env)
    os.close(theirs)

    def lines():
        text = b""
        while True:
            while b"\r" not in text[1:]:
                text += os.read(terminal, 4096)
            line, text = text[1:].split(b"\r", 1)
            text = b"\r" + text
            yield line.decode().replace("\033[K", "")
    try:
        yield p, lines()
    finally:
        p.kill()
        p.wait()
        os.close(terminal)


@pytest.mark.parametrize("columns", [1, 20, 40, 80, 200])
@pytest.mark.parametrize("name", ["vol", "a-name-as-long-as-it-may-be".ljust(63, ".")])
def test_progress_fits_the_terminal(kernel, loop, build, columns, name):
    """One line of the screen; percent, rest, speed and time left, unless it is narrower than those."""
    kernel.ok("create", name, "--cache", loop("cache.img", 64), "--origin", loop("origin.img", 64),
              "--mode", "writeback", "--pool", "pool", "-y")
    kernel.change(**{f"dirty_{name}": 1 << 30})
    with on_terminal(kernel, build, columns, "drain", name) as (tool, lines):
        # The speed is known after a second
        shown = list(itertools.islice(lines, 8))
        tool.send_signal(signal.SIGINT)
    width = columns - 1 if columns > 1 else 79
    assert all(len(line) <= width for line in shown), shown
    figures = re.search(r"\b(\d+)% \d\.\d\d[tg] left(, \d+\.\d\d[kmg]/s, \d+ h \d\d min)?$", shown[-1])
    if width >= 40:
        assert figures and figures[2], shown
    bar = re.search(r"\[([#.]+)\]", shown[-1])
    if bar:
        assert shown[-1].startswith(f"{name} [") and len(shown[-1]) == width
    assert bool(bar) == (width - len(name) - 30 > 14), shown


def test_progress_without_a_terminal(kernel, volume):
    """A line now and then, that a log can hold; none with --quiet."""
    kernel.change(dirty_vol=1 << 30)
    for quiet in [], ["--quiet"]:
        r = kernel("drain", "vol", "--wait", "11", *quiet)
        assert r.returncode == 6
        lines = r.stderr.splitlines()
        assert bool(re.fullmatch(r"vol: \d+% \S+ left, \S+/s, \d+ h \d\d min", lines[0])) == (not quiet)
        assert "\r" not in r.stderr and re.search("cancelled after 11 s: .* is still dirty", lines[-2])
        assert lines[-1] == "  next: start it again to continue" and len(lines) == (2 if quiet else 3)
        assert kernel.log[-1] == "message vol drain_cancel"


def test_drain_with_a_limit(kernel, volume):
    kernel.change(dirty_vol=100)
    assert kernel.ok("drain", "vol", "--rate", "20m", "--test") == "dmsetup message vol 0 drain 20480\n"
    kernel.clear_log()
    kernel.ok("drain", "vol", "--rate", "20m")
    assert "message vol drain 20480" in kernel.log and "message vol drain" not in kernel.log
    kernel.change(dirty_vol=100)
    kernel.ok("drain", "vol", "--rate", "1k", "--no-wait")
    assert kernel.log[-1] == "message vol drain 1"
    kernel.change(dirty_vol=100)
    kernel.clear_log()
    kernel.ok("detach", "vol", "--rate", "1g")
    assert "message vol drain 1048576" in kernel.log


def test_drain_of_a_pool_with_a_dirty_volume_that_is_not_active(kernel, volume, two):
    """The pool cannot write it back: the drain ends with the rest, and names it."""
    kernel.change(dirty_vol=100, dirty_two=50)
    kernel.ok("deactivate", "two")
    r = kernel("drain", "vol-pool", seconds=30)
    assert r.returncode == 7 and "volume two is not active" in r.stderr, r
    assert "next: hybridctl activate two" in r.stderr and "volume vol" not in r.stderr
    assert kernel.log[-1] == "message vol-pool drain_cancel"
    assert (kernel.state["dirty_vol"], kernel.state["dirty_two"]) == (0, 50)
    kernel.ok("activate", "two")
    kernel.ok("drain", "vol-pool")
    assert kernel.state["dirty_two"] == 0


@pytest.mark.parametrize("args", ["--rate 0", "--rate 100", "--rate 1500b", "--rate 5t", "--rate fast", "--wait 0",
                                  "--wait 1.5", "--wait 100000", "--wait 5 --no-wait", "--cancel --no-wait",
                                  "--cancel --wait 5", "--cancel --rate 1m"])
def test_drain_refuses(kernel, volume, args):
    kernel.change(dirty_vol=1 << 30)
    kernel.clear_log()
    r = kernel("drain", "vol", *args.split())
    assert r.returncode == 1 and "next: " in r.stderr
    assert not [line for line in kernel.log if "drain" in line]


def test_drain_without_waiting(kernel, volume):
    kernel.change(dirty_vol=1 << 30)
    kernel.ok("drain", "vol", "--no-wait")
    assert kernel.log[-1] == "message vol drain"
    for test in ["--test"], []:
        out = kernel.ok("drain", "vol", "--cancel", *test)
        assert out == ("dmsetup message vol 0 drain_cancel\n" if test else "")
        assert kernel.device("vol")["drain_on"] == bool(test)
    assert kernel.log[-1] == "message vol drain_cancel"


def ends_with_what_status_says(kernel, state):
    """Of vol, which a drain keeps from the mode that it has."""
    out = kernel.ok("status", "vol")
    assert f"state: {state}" in out and "mode: writeback" in out
    action, = re.findall("action: hybridctl (.*) ends the drain", out)
    kernel.ok(*action.split())
    out = kernel.ok("status", "vol")
    assert "state: running" in out and "action" not in out


@pytest.mark.parametrize("dirty, state", [(1 << 30, "draining"), (0, "drained")])
@pytest.mark.parametrize("what", ["vol", "vol-pool"])
def test_a_drain_that_goes_on_is_said(kernel, volume, what, dirty, state):
    """Also when nothing is dirty: writes are slower than the mode makes expect."""
    kernel.change(dirty_vol=dirty)
    kernel.ok("drain", what, "--no-wait")
    if what == "vol-pool":
        kernel.change_device("vol", draining=int(dirty > 0), drain_on=1)
        assert "hybridctl drain vol-pool --cancel" in kernel.ok("status", "vol")
        kernel.ok("drain", "vol-pool", "--cancel")
        kernel.change_device("vol", draining=1)
    ends_with_what_status_says(kernel, state)


def test_a_drain_by_the_mode_is_not_to_be_ended(kernel, volume):
    kernel.ok("set", "vol", "mode=writethrough")
    kernel.change(dirty_vol=1 << 30)
    kernel.change_device("vol", draining=1, drain_on=1)
    out = kernel.ok("status", "vol")
    assert "state: draining" in out and "action" not in out


def test_interrupt_cancels_a_drain(kernel, volume, build):
    kernel.change(dirty_vol=1 << 30)
    kernel.clear_log()
    env = dict(os.environ, HYBRID_FAKE_DM=str(kernel.path))
    p = subprocess.Popen([build / "hybridctl-fake", "drain", "vol", "--progress-json"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    p.stdout.readline()
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=60)
    assert p.returncode == 6 and re.search(r"cancelled: [0-9]+\.[0-9]+[mgt] is still dirty", err)
    assert kernel.log[-1] == "message vol drain_cancel"


def test_dirty_data_are_counted_by_granules(kernel, volume):
    """Of a module that does not say how many there are: by blocks."""
    for old, each in (0, DIRTY), (1, 32768):
        kernel.change(dirty_vol=6, old_module=old)
        assert listed(kernel)["vol"]["dirty"] == 6 * each
        assert f"{6 * each // 1024}.00k dirty" in kernel.ok("status", "vol")
        line = json.loads(kernel.ok("drain", "vol", "--json"))
        assert line["total_bytes"] == line["written_bytes"] == 6 * each


@pytest.mark.parametrize("condition, rows", [
    ("name=vol", "vol"), ("name!=vol", "vol-pool"), ("name=~^vol", "vol vol-pool"), ("name!~pool$", "vol"),
    ("size>=100m", ""), ("size<1g && kind=volume", "vol"), ("size<1g , kind=pool", "vol-pool"),
    ("kind=pool || id=0", "vol vol-pool"), ("kind=pool # id=0", "vol vol-pool"), ("!(kind=pool)", "vol"),
    ('name="vol-pool"', "vol-pool"), ("hit_ratio>50", "vol"), ("hit_ratio<=50 && kind=volume", ""), ("dirty>64k", "vol vol-pool"),
])
def test_conditions(kernel, volume, condition, rows):
    """Each operator that the man page names."""
    kernel.change(dirty_vol=100)
    assert set(kernel.ok("list", "--noheadings", "-o", "name", "-S", condition).split()) == set(rows.split())


def test_list_as_a_tree(kernel, volume, loop):
    other, more, origin = loop("other.img", 64), loop("more.img", 64), loop("alone.img", 64)
    kernel.ok("create", "more", "--pool", "vol-pool", "--origin", more, "-y")
    kernel.ok("create", "alone", "--pool", "another", "--cache", other, "--origin", origin, "-y")
    kernel.ok("detach", "alone", "--live")

    def shown(*args):
        return kernel.ok("list", "--tree", "--noheadings", "-o", "name", *args).split("\n")[:-1]
    pool = ["vol-pool", "|-more", "`-vol"]
    assert [line.rstrip() for line in shown()] == ["another", *pool, "alone"]
    assert [line.rstrip() for line in shown("vol-pool")] == [line.rstrip() for line in shown("vol")] == pool
    assert [line.rstrip() for line in shown("alone")] == ["alone"]
    for args in ["--json"], ["--export"], ["--sort", "name"]:
        r = kernel("list", "--tree", *args)
        assert r.returncode == 1 and "--tree excludes" in r.stderr
    assert kernel("list", "--tree", "nobody").returncode == 4


def test_counters_and_checkpoint(kernel, volume, loop):
    kernel.ok("create", "more", "--pool", "vol-pool", "--origin", loop("more.img", 64), "-y")
    for what, volumes in ("vol", ["vol"]), ("vol-pool", ["vol", "more"]):
        kernel.clear_log()
        kernel.ok("reset-counters", what)
        assert [line for line in kernel.log if "message" in line and "volumes" not in line] == [
            f"message {name} reset_counters" for name in volumes]
    assert kernel.ok("checkpoint", "vol-pool", "--test") == "dmsetup message vol-pool 0 checkpoint\n"
    kernel.ok("checkpoint", "vol-pool")
    assert kernel.log[-1] == "message vol-pool checkpoint"
    for command in "reset-counters", "checkpoint":
        r = kernel(command, "nobody")
        assert r.returncode == 4 and "next: " in r.stderr
        kernel.ok("deactivate", "--all")
        r = kernel(command, "vol-pool")
        assert r.returncode and "next: " in r.stderr


def test_set_and_get(kernel, volume):
    kernel.ok("set", "vol", "mode=writearound", "cutoff=1m")
    assert kernel.log[-2:] == ["message vol mode writearound", "message vol cutoff 2048"]
    assert kernel.ok("get", "vol", "mode") == "writearound\n"
    assert kernel.ok("get", "vol", "cutoff") == f"{MIB}\n"
    kernel.ok("set", "vol-pool", "high_watermark=50", "writeback_rate=1024")
    assert kernel.ok("get", "vol-pool", "high_watermark") == "50\n"
    rows = json.loads(kernel.ok("get", "vol-pool", "--json"))["settings"]
    assert {"key": "commit_interval", "value": "1000"} in rows


@pytest.mark.parametrize("high,low,first", [(95, 80, "high"), (70, 70, "high"), (60, 5, "low"),
                                            (8, 3, "low"), (8, 0, "low")])
@pytest.mark.parametrize("turned", [False, True])
def test_set_both_watermarks(kernel, volume, high, low, first, turned):
    """From 70 and 10; the kernel refuses what would have low above high in between."""
    words = [f"high_watermark={high}", f"low_watermark={low}", "endurance=7"]
    kernel.ok("set", "vol-pool", *(reversed(words) if turned else words))
    sent = [line.split()[-2:] for line in kernel.log if " set " in line and "watermark" in line]
    now = {"high_watermark": 70, "low_watermark": 10}
    for key, value in sent:
        now[key] = int(value)
        assert now["low_watermark"] <= now["high_watermark"]
    assert sent[0][0] == f"{first}_watermark"
    assert now == {"high_watermark": high, "low_watermark": low}


def test_set_another_policy(kernel, volume):
    """By a message, which suspends nothing."""
    kernel.clear_log()
    kernel.ok("set", "vol-pool", "endurance=7", "policy=arc")
    assert kernel.log[-1] == "message vol-pool policy arc"
    assert not [line for line in kernel.log if line.startswith(("load ", "suspend "))]
    assert kernel.ok("get", "vol-pool", "policy") == "arc\n"
    assert kernel.ok("get", "vol-pool", "endurance") == "7\n"
    kernel.clear_log()
    out = kernel.ok("set", "vol-pool", "policy=lru", "--test")
    assert out == "dmsetup message vol-pool 0 policy lru\n" and kernel.log == ["check"]


@pytest.mark.parametrize("given,sent", [
    ("writeback_rate=10m", 10240), ("writeback_rate=10MiB", 10240), ("writeback_rate=2048s", 1024),
    ("writeback_rate=0", 0), ("writeback_rate=0k", 0), ("writeback_rate=4294967295k", 4294967295),
    ("endurance=50g", 51200), ("endurance=1t", 1 << 20), ("endurance=7", 7),
    ("high_watermark=80%", 80), ("metadata_share=0%", 0), ("commit_interval=2s", 2000),
    ("commit_interval=250ms", 250)])
def test_settings_with_units(kernel, volume, given, sent):
    kernel.ok("set", "vol-pool", given)
    assert kernel.log[-1] == f"message vol-pool set {given.split('=')[0]} {sent}"


@pytest.mark.parametrize("given,says", [
    ("writeback_rate=fast", "is not a number of KiB/s or a size"), ("writeback_rate=", "is not a number of KiB/s or a size"),
    ("writeback_rate=10%", "is not a number of KiB/s or a size"), ("writeback_rate=-1", "is not a number of KiB/s or a size"),
    ("writeback_rate=1536b", "is not a whole number of KiB/s"), ("endurance=100k", "is not a whole number of MiB a day"),
    ("writeback_rate=4t", "is out of bounds"), ("writeback_rate=99999999999999999999", "is out of bounds"),
    ("endurance=33t", "is out of bounds"), ("high_watermark=96", "is out of bounds"),
    ("high_watermark=80k", "is not a number of percent\n"), ("commit_interval=1m", "is not a number of ms\n"),
    ("commit_interval=18446744073709551s", "is out of bounds"), ("commit_interval=61s", "is out of bounds")])
def test_what_is_no_such_setting_is_said_exactly(kernel, volume, given, says):
    r = kernel("set", "vol-pool", given)
    assert r.returncode == 1 and f"{given} {says}" in r.stderr and "next: give " in r.stderr, r.stderr


@pytest.mark.parametrize("given,says", [("big", "is not a size\n"), ("100", "not a multiple of 512 bytes"),
                                        ("99999999t", "too large")])
def test_what_is_no_size_is_said_exactly(kernel, volume, given, says):
    r = kernel("set", "vol", f"cutoff={given}")
    assert r.returncode == 1 and f"error: cutoff: {given} is not a size" in r.stderr and says in r.stderr
    r = kernel("create", "two", "--pool", "vol-pool", "--origin", "x", "--cutoff", given)
    assert r.returncode == 1 and f"error: --cutoff: {given} is not a size" in r.stderr and says in r.stderr


@pytest.mark.parametrize("args", [
    ["vol", "mode=fast"], ["vol", "colour=red"], ["vol", "cutoff=big"], ["vol", "mode"],
    ["vol", "cutoff=1m", "mode=fast"], ["vol-pool", "high_watermark=96"],
    ["vol-pool", "low_watermark=x"], ["vol-pool", "commit_interval=1"],
    ["vol-pool", "endurance=7", "low_watermark=71"], ["vol-pool", "endurance=7", "high_watermark=9"],
    ["vol-pool", "high_watermark=75", "low_watermark=80"],
    ["vol-pool", "endurance=7", "low_watermark=80", "low_watermark=5"],
    ["vol-pool", "mode=writeback"], ["vol-pool", "policy=../x"], ["vol-pool", "policy="],
    ["vol-pool", "policy=sixteen-letters-"], ["vol", "policy=lru"]])
def test_a_bad_setting_changes_nothing(kernel, volume, args):
    kernel.clear_log()
    r = kernel("set", *args)
    assert r.returncode == 1 and "next:" in r.stderr
    assert kernel.log == ["check"]


def test_list_and_selection(kernel, volume):
    rows = listed(kernel)
    assert rows["vol"]["kind"] == "volume" and rows["vol"]["mode"] == "writeback"
    assert rows["vol"]["origin"] == volume[1] and rows["vol"]["cache"] == volume[0]
    assert rows["vol"]["hit_ratio"] == pytest.approx(100 * 950 / 1100, abs=0.01)
    assert rows["vol"]["read_hit_ratio"] == 90
    assert kernel.ok("list", "-S", "kind=pool", "-o", "name", "--noheadings").split() == \
        ["vol-pool"]
    assert kernel.ok("list", "-S", "hit_ratio>=80", "-o", "name", "--noheadings").split() == \
        ["vol"]


def test_status(kernel, volume):
    out = kernel.ok("status", "vol")
    assert re.search(r"state: running\n", out)
    assert "7 sequential beyond the cutoff" in out and "90.0% hits" in out
    assert kernel.ok("status", "-x") == "all pools and volumes are healthy\n"


@pytest.mark.parametrize("name,state,says", [("vol-pool", "failed", "cache device"),
                                             ("vol", "degraded", "pool failed")])
def test_status_of_the_sick(kernel, volume, name, state, says):
    kernel.change_device(name, state=state)
    r = kernel("status", "-x")
    assert r.returncode == 7
    assert f"state: {state}" in r.stdout and says in r.stdout and "action: " in r.stdout
    rows = json.loads(kernel("status", "-x", "--json").stdout)["status"]
    assert [(n["name"], n["healthy"]) for n in rows] == [(name, False)]


def test_status_of_a_cache_device_with_errors(kernel, volume):
    """By kind where the kernel says it, while the pool runs and when it has failed."""
    kernel.change_device("vol-pool", errors=4)
    r = kernel("status", "-x")
    assert r.returncode == 7 and "I/O to the cache device failed\n" in r.stdout
    assert "4 errors" in r.stdout and "reads: " not in r.stdout
    kernel.change_device("vol-pool", read_errors=3, flush_errors=1)
    kinds = "reads: 3, writes: 0, flushes: 1"
    assert f"I/O to the cache device failed ({kinds})\n" in kernel("status", "-x").stdout
    kernel.change_device("vol-pool", state="failed")
    assert f"errors: {kinds}\n" in kernel("status", "-x").stdout
    assert kernel.ok("get", "vol-pool", "read_errors") == "3\n"
    kernel.change_device("vol-pool", state="running", retired=2)
    r = kernel("status", "-x")
    assert r.returncode == 7 and "2 blocks of the cache device failed twice" in r.stdout
    assert "replace the cache device soon" in r.stdout and "replace-cache vol-pool --cache" in r.stdout
    assert "retired: blocks: 2, until the pool is loaded again\n" in r.stdout
    assert kernel.ok("get", "vol-pool", "retired") == "2\n"


def test_status_of_a_cache_device_that_fails(kernel, volume):
    """The pool and its volumes say so, and no drain that nobody asked for can be cancelled."""
    kernel.ok("set", "vol", "mode=writeback")
    kernel.change_device("vol-pool", errors=21, read_errors=21, failing=1, recent_read_errors=21)
    kernel.change_device("vol", drain_on=1)
    r = kernel("status", "vol-pool")
    assert r.returncode == 7
    assert "recent errors: 21 of reads, 0 of writes): writes go to the origins, too\n" in r.stdout
    assert "hybridctl replace-cache vol-pool --cache DEVICE; if" in r.stdout
    out = kernel("status", "vol").stdout
    assert "its cache device is failing: hybridctl status vol-pool\n" in out and "--cancel" not in out
    assert kernel.ok("get", "vol-pool", "recent_read_errors") == "21\n"


def test_status_of_the_endurance(kernel, volume):
    """The budget of a day, and how much of it is left, or owed."""
    assert "endurance:" not in kernel.ok("status", "vol-pool")
    kernel.ok("set", "vol-pool", "endurance=50g")
    kernel.change_device("vol-pool", endurance_left=4096)
    assert "endurance: 50.00g a day, 2.00m saved up\n" in kernel.ok("status", "vol-pool")
    kernel.change_device("vol-pool", endurance_left=0, endurance_owed=8192)
    assert "endurance: 50.00g a day, 4.00m more than that was written\n" in \
        kernel.ok("status", "vol-pool")


def test_status_of_the_inactive(kernel, volume):
    kernel.ok("deactivate", "vol")
    r = kernel("status", "vol")
    assert r.returncode == 7 and "action: hybridctl activate vol" in r.stdout


def test_nothing_known(kernel):
    for command in (["drain", "x"], ["get", "x"], ["set", "x", "mode=writeback"],
                    ["detach", "x"], ["deactivate", "x"], ["activate", "x"], ["status", "x"],
                    ["table", "x"], ["list", "x"], ["attach", "x", "y", "--origin", "/dev/null"]):
        r = kernel(*command)
        assert r.returncode == 4, command
        assert "next:" in r.stderr


def test_test_mode_changes_nothing(kernel, volume, loop):
    other = loop("other.img", 50)
    before = kernel.state
    kernel.clear_log()
    for command in (["attach", "vol-pool", "two", "--origin", other], ["detach", "vol"],
                    ["deactivate", "vol"], ["drain", "vol"], ["set", "vol", "cutoff=0"],
                    ["activate", "--all"]):
        out = kernel.ok(*command, "--test")
        assert out
    assert kernel.state == before
    assert not [line for line in kernel.log if re.match("create|remove", line)]
    assert members(kernel, other) == {}


def test_in_place(kernel, loop):
    cache, origin = loop("cache.img", 64), loop("fs.img", 100)
    subprocess.run(["mkfs.ext4", "-q", origin], check=True)
    with open(origin, "rb") as f:
        before = f.read()
    r = kernel("create", "vol", "--cache", cache, "--origin", origin, "--in-place", "-y",
               "--mode", "writeback")
    assert r.returncode == 2 and "writeback can lose that data" in r.stderr
    kernel.ok("create", "vol", "--cache", cache, "--origin", origin, "--in-place", "-y")
    assert "3 writethrough cutoff 8192" not in kernel.log[-1]
    assert kernel.log[-1].endswith("4 writethrough cutoff 8192 inplace")
    assert f"create vol {100 * 2048} " in kernel.log[-1]
    kernel.ok("deactivate", "vol-pool")
    kernel.ok("activate", "vol-pool", "--device", cache, "--device", origin)
    assert kernel.devices == ["vol-pool", "vol"]
    kernel.ok("detach", "vol")
    with open(origin, "rb") as f:
        assert f.read() == before


def test_sectors_of_a_cache_in_front_of_data(kernel, loop):
    """The volume has the larger sectors of both: what is on an origin may not work with them."""
    cache, origin, large = loop("cache.img", 64, 4096), loop("fs.img", 100), loop("large.img", 100, 4096)
    for device in (origin, large):
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
    before = open(origin, "rb").read()
    wish = ["--cache", cache, "--in-place", "-y"]
    r = kernel("create", "vol", "--origin", origin, *wish)
    assert r.returncode == 2 and f"{origin} is used with sectors of 512 bytes" in r.stderr
    assert "smaller sectors, or --force" in r.stderr and kernel.devices == []
    assert members(kernel, cache) == {}
    kernel.ok("create", "vol", "--origin", origin, *wish, "--force")
    assert open(origin, "rb").read() == before
    # A formatted volume is empty, and where the sectors are as large nothing changes
    for device, more in (large, ["--in-place"]), (origin, ["--wipe-signatures"]):
        kernel.ok("detach", "vol")
        kernel.ok("deactivate", "vol-pool")
        kernel.ok("wipe", cache, "-y", "--wipe-signatures")
        kernel.ok("create", "vol", "--cache", cache, "--origin", device, "-y", *more)


def test_writeback_in_place_is_forced(kernel, loop):
    """By each command that sets a mode; without --force nothing is done."""
    cache, origin, two = loop("cache.img", 64), loop("fs.img", 100), loop("two.img", 100)
    for device in (origin, two):
        subprocess.run(["mkfs.ext4", "-q", device], check=True)
    wish = ["--in-place", "-y", "--mode", "writeback"]

    def needs_force(*command):
        devices, state = kernel.devices, kernel.state
        r = kernel(*command)
        assert r.returncode == 2 and "writeback can lose that data" in r.stderr and "--force" in r.stderr
        assert (kernel.devices, kernel.state) == (devices, state)
        kernel.ok(*command, "--force")

    needs_force("create", "vol", "--cache", cache, "--origin", origin, *wish)
    assert kernel.log[-1].endswith("4 writeback cutoff 8192 inplace")
    needs_force("attach", "vol-pool", "two", "--origin", two, *wish)
    kernel.ok("set", "vol", "mode=writearound", "cutoff=1m")
    needs_force("set", "vol", "mode=writeback")
    assert kernel.ok("get", "vol", "mode") == "writeback\n"
    # Of all settings of a command, none is sent
    kernel.ok("set", "vol", "mode=passthrough")
    r = kernel("set", "vol", "cutoff=2m", "mode=writeback")
    assert r.returncode == 2 and kernel.ok("get", "vol", "cutoff") == f"{MIB}\n"


def test_concurrent_tools_wait(kernel, volume, build):
    """The second tool waits for the lock; nothing is done twice."""
    env = dict(os.environ, HYBRID_FAKE_DM=str(kernel.path),
               HYBRID_SCAN_ONLY=" ".join(kernel.scan))
    with open("/run/hybrid/lock", "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kernel.clear_log()
        tool = subprocess.Popen([build / "hybridctl-fake", "set", "vol", "cutoff=0"], env=env, text=True,
                                stderr=subprocess.PIPE)
        assert "waiting for it" in tool.stderr.readline()
        assert tool.poll() is None and not [line for line in kernel.log if "cutoff" in line]
    tool.communicate(timeout=60)
    assert tool.returncode == 0 and kernel.log.count("message vol cutoff 0") == 1


def test_what_is_lost_of_an_active_volume(kernel, volume):
    """As the kernel lists it, in several replies."""
    assert kernel("lost", "vol").stdout == "nothing is lost\n"
    kernel.change_device("vol", lost_0="8 16\n64 8\nmore 77\n", lost_77="72 8\n128 8\n")
    for what in ("vol", "vol-pool"):
        r = kernel("lost", what, "--json")
        assert r.returncode == 7
        assert [(x["volume"], x["offset"], x["length"]) for x in json.loads(r.stdout)["lost"]] == [
            ("vol", 8 * 512, 16 * 512), ("vol", 64 * 512, 16 * 512), ("vol", 128 * 512, 8 * 512)]
    # A pool that runs does not know what it could not read.
    kernel.change_device("vol", lost_0="", cache_errors=3)
    assert kernel("lost", "vol").returncode == 0
    kernel.change(dirty_vol=5)
    r = kernel("lost", "vol")
    assert r.returncode == 4 and "unknown: I/O to its cache device failed" in r.stdout
    r = kernel("lost", "nothing")
    assert r.returncode == 4 and "nothing: cannot open" in r.stderr


def test_detach_live(kernel, volume):
    """In use: another table under the same name, and the pool forgets it while nothing runs."""
    kernel.change_device("vol", open_count=1)
    kernel.change(dirty_vol=50)
    r = kernel("detach", "vol")
    assert r.returncode == 5 and "add --live" in r.stderr
    kernel.clear_log()
    out = kernel.ok("detach", "vol", "--live")
    origin = f"linear {os_dev(volume[1])} 2048"
    look = 2 * ["message vol-pool volumes"]
    assert kernel.log == [
        "check", *look, *look, "message vol drain", *look, f"try vol 200704 {origin}", "suspend vol",
        "message vol-pool delete_volume 0", f"switch vol 200704 {origin}",
        "message vol-pool forget_volume 0"]
    assert "goes on without a cache" in out and "dmsetup create vol" in out
    assert kernel.devices == ["vol-pool", "vol"] and listed(kernel)["vol"]["state"] == "no-cache"
    assert members(kernel, volume[1])[volume[1]]["role"] == "detached"
    kernel.ok("status")
    assert "detached already" in kernel("detach", "vol").stderr


@pytest.mark.parametrize("step", ["try vol", "suspend vol", "message vol-pool delete_volume"])
def test_detach_live_that_fails_changes_nothing(kernel, volume, step):
    r = kernel("detach", "vol", "--live", fail=step)
    assert r.returncode == 4, r
    vol = listed(kernel)["vol"]
    assert (vol["state"], vol["mode"]) == ("running", "writeback")
    assert members(kernel, volume[1])[volume[1]]["role"] == "origin"
    assert not kernel.state["devices"][1].get("suspended")
    kernel.ok("detach", "vol", "--live")


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_detach_live_of_an_origin_that_fails(kernel, volume, when):
    """Its users must hear of the lost writes: it stays a volume, as it was."""
    kernel.change(dirty_vol=200)
    kernel.change_device("vol", **{"origin_errors" if when == "before" else "drain_errors": 1})
    kernel.clear_log()
    r = kernel("detach", "vol", "--live")
    assert r.returncode == 2 and "I/O to the origin of vol failed" in r.stderr, r
    assert not [line for line in kernel.log if line.startswith(("suspend", "switch"))
                or "delete_volume" in line]
    if when == "before":
        assert not [line for line in kernel.log if line.startswith("message vol ")]
    vol = listed(kernel)["vol"]
    assert vol["mode"] == "writeback"
    assert members(kernel, volume[1])[volume[1]]["role"] == "origin"
    kernel.change_device("vol", origin_errors=0, drain_errors=0)
    kernel.ok("detach", "vol", "--live")


def test_detach_live_while_the_pool_fails(kernel, volume):
    """Closed, so clean, but not recorded as deleted: the origin's mark counts, then and later."""
    r = kernel("detach", "vol", "--live", fail="message vol-pool delete_volume|resume vol")
    assert r.returncode == 4, r
    assert kernel.log[-4:] == ["message vol-pool delete_volume 0", "resume vol",
                               f"switch vol 200704 linear {os_dev(volume[1])} 2048",
                               "message vol-pool forget_volume 0"]
    assert members(kernel, volume[1])[volume[1]]["role"] == "detached"
    kernel.ok("deactivate", "vol")
    assert [len(v) for v in kernel.state["volumes"].values()] == [1]
    kernel.ok("activate", "--all")
    assert kernel.devices == ["vol-pool", "vol"] and listed(kernel)["vol"]["state"] == "no-cache"
    assert [len(v) for v in kernel.state["volumes"].values()] == [0]


def test_activating_a_volume_that_its_pool_does_not_know_fails(kernel, volume):
    """Not a word and success would be taken for a volume that is there."""
    kernel.ok("deactivate", "vol", "--keep-pool")
    kernel.change(volumes={})
    r = kernel("activate", "vol")
    assert r.returncode == 4 and "vol" in r.stderr and "next: " in r.stderr
    assert kernel.devices == ["vol-pool"]


def detach_with_origin_in_use(kernel, origin):
    fd = os.open(origin, os.O_RDONLY | os.O_EXCL)
    try:
        r = kernel("detach", "vol")
    finally:
        os.close(fd)
    assert r.returncode == 5, r
    assert "tombstone" in json.dumps(kernel.state["volumes"])
    assert members(kernel, origin)[origin]["role"] == "origin"


@pytest.mark.parametrize("again", ["detach", "activate"])
def test_detach_cut_short_is_finished_by_its_name(kernel, volume, again):
    """By whichever command names the volume next."""
    detach_with_origin_in_use(kernel, volume[1])
    r = kernel(again, "vol")
    assert members(kernel, volume[1])[volume[1]]["role"] == "detached", r
    assert [len(v) for v in kernel.state["volumes"].values()] == [0]
    assert r.returncode == 0
    # Who asks for the volume gets it, without a cache
    assert kernel.devices == ["vol-pool"] + (["vol"] if again == "activate" else [])


def test_a_detach_that_cannot_be_finished_is_no_success(kernel, volume):
    detach_with_origin_in_use(kernel, volume[1])
    fd = os.open(volume[1], os.O_RDONLY | os.O_EXCL)
    try:
        r = kernel("activate", "vol-pool")
    finally:
        os.close(fd)
    assert r.returncode == 5 and volume[1] in r.stderr
    kernel.ok("activate", "vol-pool")
    assert members(kernel, volume[1])[volume[1]]["role"] == "detached"


def test_a_refused_origin_keeps_its_tombstone(kernel, volume, loop):
    """Two look like it: neither is marked, so what tells of it stays."""
    detach_with_origin_in_use(kernel, volume[1])
    clone = loop("clone.img", 100)
    subprocess.run(["dd", f"if={volume[1]}", f"of={clone}", "bs=1M", "status=none",
                    "conv=fsync"], check=True)
    r = kernel("activate", "vol-pool")
    assert "tombstone" in json.dumps(kernel.state["volumes"]), r
    assert r.returncode == 4 and clone in r.stderr


@pytest.mark.parametrize("step", ["remove vol", "message vol-pool delete_volume"])
def test_detach_that_fails_changes_nothing(kernel, volume, step):
    r = kernel("detach", "vol", fail=step)
    assert r.returncode == 4, r
    assert "next: hybridctl activate" not in r.stderr
    vol = listed(kernel)["vol"]
    assert (vol["state"], vol["mode"]) == ("running", "writeback")
    assert members(kernel, volume[1])[volume[1]]["role"] == "origin"
    kernel.ok("detach", "vol")


DETACH_STEPS = [
    ([], "message vol drain"), ([], "remove vol"), (["--live"], "message vol drain"),
    (["--live"], "try vol"), (["--live"], "suspend vol"), (["--live"], "message vol-pool delete_volume")]


@pytest.mark.parametrize("args, step", DETACH_STEPS)
def test_a_detach_that_fails_ends_its_drain(kernel, volume, args, step):
    """And the mode was never another one."""
    kernel.change(dirty_vol=100)
    r = kernel("detach", "vol", *args, fail=step)
    assert r.returncode == 4, r
    assert not [line for line in kernel.log if line.startswith("message vol mode")]
    assert listed(kernel)["vol"]["mode"] == "writeback" and listed(kernel)["vol"]["state"] == "running"
    assert "is still draining" not in r.stderr


@pytest.mark.parametrize("args, step", DETACH_STEPS)
def test_a_detach_that_cannot_end_its_drain_says_so(kernel, volume, args, step):
    """And how to do it."""
    kernel.change(dirty_vol=100)
    r = kernel("detach", "vol", *args, fail=f"{step}|message vol drain_cancel")
    assert r.returncode == 4, r
    if step == "message vol drain" or (not args and "delete_volume" in step):
        # There is none: it has not begun, or the volume was activated again
        assert "is still draining" not in r.stderr and listed(kernel)["vol"]["state"] == "running"
        return
    again, = re.findall(r"vol is still draining; to end the drain: hybridctl (drain vol --cancel)", r.stderr)
    ends_with_what_status_says(kernel, "drained")
    kernel.ok(*again.split())


@pytest.mark.parametrize("dirty, state", [(1 << 30, "draining"), (200, "drained")])
def test_a_detach_that_is_killed_leaves_a_volume_that_drains(kernel, volume, build, dirty, state):
    kernel.change(dirty_vol=dirty)
    env = {**os.environ, "HYBRID_FAKE_DM": str(kernel.path), "HYBRID_SCAN_ONLY": "none"}
    tool = subprocess.Popen([build / "hybridctl-fake", "detach", "vol", "--live", "--progress-json"],
                            env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert "draining" in tool.stdout.readline()
    tool.kill()
    tool.communicate()
    while state == "drained" and kernel.ok("get", "vol", "dirty") != "0\n":
        pass
    ends_with_what_status_says(kernel, state)


@pytest.mark.parametrize("args, step", [
    (["detach", "vol", "--live"], "suspend vol"), (["detach", "vol"], "remove vol"),
    (["detach", "vol", "--live"], "message vol-pool delete_volume"),
    (["detach", "vol"], "message vol-pool delete_volume")])
@pytest.mark.parametrize("name", ["SIGHUP", "SIGTERM", "SIGINT", "SIGQUIT", "SIGTSTP"])
def test_a_detach_that_has_begun_is_not_cut_by_a_terminal(kernel, volume, args, step, name):
    """The connection that is lost, above all, leaves no root file system suspended."""
    r = kernel(*args, env={"HYBRID_FAKE_SIGNAL": f"{int(getattr(signal, name))} {step}"},
               seconds=60)
    assert r.returncode == 0, r
    assert not any(d.get("suspended") for d in kernel.state["devices"])
    assert members(kernel, volume[1])[volume[1]]["role"] == "detached"


@pytest.mark.parametrize("step", ["create vol-pool", "message vol-pool create_volume"])
def test_a_create_that_has_begun_is_not_cut_by_a_terminal(kernel, devs, step):
    kernel.ok("create", "vol", "--cache", devs[0], "--origin", devs[1], "-y",
              env={"HYBRID_FAKE_SIGNAL": f"{int(signal.SIGHUP)} {step}"})
    assert kernel.devices == ["vol-pool", "vol"]


@pytest.mark.parametrize("name", ["SIGHUP", "SIGTERM", "SIGINT"])
def test_a_detach_that_drains_is_undone_if_the_terminal_goes(kernel, volume, name):
    kernel.change(dirty_vol=1 << 30)
    r = kernel("detach", "vol", seconds=60,
               env={"HYBRID_FAKE_SIGNAL": f"{int(getattr(signal, name))} message vol drain"})
    assert r.returncode == 6, r
    assert listed(kernel)["vol"]["mode"] == "writeback"
    assert kernel.log.count("message vol drain_cancel") == 1


def test_a_detach_that_waits_for_another_tool_is_undone_if_the_terminal_goes(kernel, volume, build):
    """Once it has drained, when somebody else has the lock that it gave away."""
    kernel.change(dirty_vol=200)
    env = {**os.environ, "HYBRID_FAKE_DM": str(kernel.path), "HYBRID_SCAN_ONLY": "none"}
    tool = subprocess.Popen([build / "hybridctl-fake", "detach", "vol", "--progress-json"], env=env, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert "draining" in tool.stdout.readline()
    with open("/run/hybrid/lock", "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = "-"
        while said and "waiting for it" not in said:
            said = tool.stderr.readline()
        assert said
        tool.send_signal(signal.SIGINT)
        assert tool.wait(timeout=60) == 5
    tool.communicate()
    assert kernel.log[-1] == "message vol drain_cancel" and "remove vol" not in kernel.log


def test_a_drain_under_nohup_goes_on(kernel, volume, build):
    kernel.change(dirty_vol=200)
    env = {"HYBRID_FAKE_SIGNAL": f"{int(signal.SIGHUP)} message vol drain",
           "HYBRID_FAKE_DM": str(kernel.path)}
    subprocess.run(["nohup", build / "hybridctl-fake", "drain", "vol"], check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, env={**os.environ, **env})
    assert listed(kernel)["vol"]["dirty"] == 0


@pytest.mark.parametrize("version, age", [("1.0.3", "older"), ("1.99.3", "newer")])
def test_a_module_of_another_minor_version_is_used(kernel, volume, version, age):
    """With a warning: one of the two has words that the other one does not know."""
    kernel.change(version=version)
    r = kernel("set", "vol", "cutoff=0")
    assert r.returncode == 0 and "warning: " in r.stderr
    assert f"hybrid-pool {version[:-2]}) is {age} than this tool" in r.stderr
    kernel.change(version=None)
    assert kernel("set", "vol", "cutoff=0").stderr == ""


@pytest.mark.parametrize("version, age", [("0.9.3", "older"), ("2.0.3", "newer")])
def test_a_module_of_another_major_version_is_refused(kernel, volume, version, age):
    kernel.change(version=version)
    r = kernel("set", "vol", "cutoff=0")
    assert r.returncode == 8 and f"is {age} than this tool" in r.stderr and "next: " in r.stderr
    assert kernel.log[-1] == "check"


@pytest.mark.parametrize("verb", ["create", "attach"])
def test_a_module_of_another_disk_format(kernel, volume, loop, verb):
    """It runs what is active; nothing is formatted that it cannot read."""
    other, ssd = loop("other.img", 50), loop("ssd2.img", 64)
    kernel.change(version="1.1.0")
    before = [open(p, "rb").read() for p in (other, ssd)]
    args = ["create", "new", "--cache", ssd] if verb == "create" else ["attach", "vol-pool", "new"]
    r = kernel(*args, "--origin", other, "-y")
    assert r.returncode == 8 and "does not read the disk format" in r.stderr
    assert [open(p, "rb").read() for p in (other, ssd)] == before
    kernel.ok("set", "vol", "cutoff=0")
    kernel.ok("detach", "vol")
