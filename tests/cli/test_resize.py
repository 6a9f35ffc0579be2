# SPDX-License-Identifier: GPL-2.0-or-later
"""resize: a volume gets what its origin has grown by, whatever is cut short meanwhile."""
import json
import os
import signal
import subprocess
import uuid

import pytest

from cli.test_boot import HEAD_SB, edit_superblocks
from cli.test_life import ALONE, LOSS_UNKNOWN, Superblock
from cli.test_life import superblock as whole
from cli.test_replace import lines

MIB = 1 << 20
SIZES = {"ssd": 64, "one": 20, "alone": 16, "three": 12}
MORE = 5


@pytest.fixture
def devs(kernel, loop):
    """one on ssd, three in place on it, alone without a cache."""
    devs = {name: loop(f"{name}.img", mib) for name, mib in SIZES.items()}
    subprocess.run(["mke2fs", "-q", devs["three"]], check=True)
    kernel.ok("create", "one", "--pool", "ssd", "--cache", devs["ssd"], "--origin", devs["one"], "-y")
    kernel.ok("attach", "ssd", "alone", "--origin", devs["alone"], "-y")
    kernel.ok("detach", "alone", "--live")
    kernel.ok("attach", "ssd", "three", "--origin", devs["three"], "--in-place", "-y")
    return devs


@pytest.fixture
def resized(devs, tmp_path):
    """resized(name, mib): the device has that size now."""
    def run(name, mib):
        os.truncate(tmp_path / f"{name}.img", int(mib * MIB))
        subprocess.run(["losetup", "-c", devs[name]], check=True)
    return run


def contents(device):
    with open(device, "rb") as f:
        return f.read()


class World:
    """The disks, grown or not, and the kernel, to begin with again."""

    def __init__(self, kernel, devs):
        self.kernel, self.devs = kernel, devs
        self.state = kernel.path.read_text()
        self.disks = {device: contents(device) for device in devs.values()}

    def restore(self):
        self.kernel.path.write_text(self.state)
        for device, data in self.disks.items():
            with open(device, "r+b") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())
            self.kernel.announce(device)


def closed(kernel):
    kernel.ok("deactivate", "alone")


# What grows, from and to so many MiB of data
CASES = {
    "cache": ("one", lambda kernel: kernel.change_device("one", open_count=1), 18),
    "in place": ("three", lambda kernel: None, 12),
    "no cache": ("alone", lambda kernel: kernel.change_device("alone", open_count=1), 14),
    "no cache, closed": ("alone", closed, 14),
}


def data_of(kernel, devs, name):
    """MiB of the device, of the entry, of the superblock; each None if there is none."""
    device = next((d["sectors"] for d in kernel.state["devices"] if d["name"] == name), None)
    entry = lines(kernel, str(uuid.UUID(bytes=whole(devs["ssd"]).pool))).get(name)
    words = entry.split() if entry else None
    assert not words or words[12] == "0"
    sb = whole_at(devs[name]).data_sectors if name != "three" else None
    return {n / 2048 for n in (device, int(words[7]) if words else None, sb) if n is not None}


def whole_at(device):
    """Both copies, at the end of the device, say the same."""
    data = contents(device)
    head, tail = (Superblock(data[at:at + 4096]) for at in (HEAD_SB, len(data) - HEAD_SB))
    assert head == tail
    assert int.from_bytes(data[HEAD_SB + 56:HEAD_SB + 64], "little") * 512 == len(data)
    return head


def old_tail_is_gone(devs, name):
    if name == "three":
        return
    data = contents(devs[name])
    at = SIZES[name] * MIB - HEAD_SB
    assert not any(data[at:at + 8192])


def new_tail(device):
    """What is where the tail of a member as large as the device would be."""
    data = contents(device)[-HEAD_SB:][:4096]
    return data if any(data) else None


def check(kernel, devs, name, mib):
    assert data_of(kernel, devs, name) == {mib}
    if mib > SIZES[name]:
        old_tail_is_gone(devs, name)
    assert not [d for d in kernel.state["devices"] if d.get("suspended")]


@pytest.mark.parametrize("case", CASES)
def test_grown(kernel, devs, resized, case):
    name, prepare, data = CASES[case]
    prepare(kernel)
    assert "already uses all of its origin" in kernel.ok("resize", name)
    # What is not a whole MiB is not used
    if name != "three":
        resized(name, SIZES[name] + 0.5)
        assert "already uses all of its origin" in kernel.ok("resize", name)
    resized(name, SIZES[name] + MORE)
    r = kernel("status", name)
    if case != "no cache, closed":
        assert f"its origin has grown by {MORE} MiB" in r.stdout and f"action: hybridctl resize {name}" in r.stdout
    assert f"the origin of {name} has grown by {MORE} MiB" in kernel("doctor").stdout
    before = {n: contents(devs[n]) for n in devs if n != name}
    out = kernel.ok("resize", name)
    assert f"has grown to {data + MORE} MiB from {data} MiB" in out
    check(kernel, devs, name, data + MORE)
    assert before == {n: contents(devs[n]) for n in devs if n != name}
    assert "already uses all of its origin" in kernel.ok("resize", name)
    assert "resize" not in kernel("status", name).stdout
    # After a boot, too
    kernel.change(devices=[])
    kernel.ok("activate", "--all")
    check(kernel, devs, name, data + MORE)


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_done_with_test(kernel, devs, resized, case):
    name, prepare, data = CASES[case]
    prepare(kernel)
    resized(name, SIZES[name] + MORE)
    saved = World(kernel, devs)
    out = kernel.ok("resize", name, "--test")
    assert str((data + MORE) * 2048) in out
    assert kernel.state == json.loads(saved.state)
    assert {device: contents(device) for device in devs.values()} == saved.disks


# Cut short ---------------------------------------------------------------------------------

def go_on(kernel, devs, resized, name, data, how):
    for device in devs.values():
        kernel.announce(device)
    if how == "again":
        kernel.ok("resize", name)
        check(kernel, devs, name, data + MORE)
        return
    kernel.change(devices=[])
    if how == "power" and name == "three" and entry_of(kernel, devs, name)[7:13:5] == [str(data * 2048), "0"]:
        # One in place is recognised by its size: as long as nothing is recorded of the new one, by the old one
        assert kernel("activate", "--all").returncode == 7 and name not in kernel.devices
        resized(name, SIZES[name])
        kernel.ok("activate", "--all")
        assert data_of_any(kernel, name) == data
        resized(name, SIZES[name] + MORE)
        kernel.ok("resize", name)
        check(kernel, devs, name, data + MORE)
        return
    if how == "shrunk":
        # Smaller again: the old size, or nothing, but never the old tail with a new head
        resized(name, SIZES[name])
        r = kernel("activate", "--all")
        if name in kernel.devices:
            assert next(d["sectors"] for d in kernel.state["devices"] if d["name"] == name) == data * 2048
        else:
            assert r.returncode
        resized(name, SIZES[name] + MORE)
        return
    kernel.ok("activate", "--all")
    sizes = data_of_any(kernel, name)
    assert sizes in (data, data + MORE)
    kernel.ok("resize", name)
    check(kernel, devs, name, data + MORE)


def entry_of(kernel, devs, name):
    return lines(kernel, str(uuid.UUID(bytes=whole(devs["ssd"]).pool)))[name].split()


def data_of_any(kernel, name):
    return next(d["sectors"] for d in kernel.state["devices"] if d["name"] == name) / 2048


HOW = ["again", "power", "shrunk"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", CASES)
def test_killed_at_each_step(kernel, devs, resized, case, how):
    name, prepare, data = CASES[case]
    prepare(kernel)
    resized(name, SIZES[name] + MORE)
    saved = World(kernel, devs)
    kernel.clear_log()
    kernel.ok("resize", name)
    for step in [step for step in dict.fromkeys(kernel.log) if not step.endswith(" volumes")]:
        saved.restore()
        r = kernel("resize", name, env={"HYBRID_FAKE_SIGNAL": f"{int(signal.SIGKILL)} {step}"})
        assert r.returncode == -9, (step, r)
        if how == "again" and kernel.state["devices"] and any(d.get("suspended") for d in kernel.state["devices"]):
            # Before anything was recorded it looks like anybody's
            entry = entry_of(kernel, devs, name)
            if entry[12] == "0" and int(entry[7]) == data * 2048:
                r = kernel("resize", name)
                assert r.returncode == 5 and "dmsetup resume it" in r.stderr
                kernel.change_device(name, suspended=0)
        go_on(kernel, devs, resized, name, data, how)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", ["cache", "no cache", "no cache, closed"])
def test_cut_in_a_superblock(kernel, build, devs, resized, case, how):
    name, prepare, data = CASES[case]
    prepare(kernel)
    resized(name, SIZES[name] + MORE)
    saved = World(kernel, devs)
    for n in range(1, 10):
        saved.restore()
        r = kernel("resize", name, env={"LD_PRELOAD": str(build / "faults.so"), "FAULT_CUT": f"{n} {n}"})
        if not r.returncode:
            break
        assert r.returncode == -9, (n, r)
        go_on(kernel, devs, resized, name, data, how)
    assert n == 5


@pytest.mark.parametrize("case", CASES)
def test_each_step_fails(kernel, devs, resized, case):
    """Nobody is left suspended, and the command given again goes on."""
    name, prepare, data = CASES[case]
    prepare(kernel)
    resized(name, SIZES[name] + MORE)
    saved = World(kernel, devs)
    kernel.clear_log()
    kernel.ok("resize", name)
    for step in [step for step in dict.fromkeys(kernel.log) if not step.endswith(" volumes")]:
        saved.restore()
        r = kernel("resize", name, fail=step)
        assert r.returncode and "next: " in r.stderr or step.startswith(("switch", "suspend")), (step, r)
        assert not [d["name"] for d in kernel.state["devices"] if d.get("suspended")], step
        kernel.ok("resize", name)
        check(kernel, devs, name, data + MORE)


def test_a_stale_tail_is_not_left(kernel, build, devs, resized):
    """Cut with the new tail written, the volume goes on as it was: without its head that tail must not count."""
    resized("alone", SIZES["alone"] + MORE)
    r = kernel("resize", "alone", env={"LD_PRELOAD": str(build / "faults.so"), "FAULT_CUT": "2 3"})
    assert r.returncode == -9
    assert new_tail(devs["alone"])
    kernel.ok("attach", "ssd", "alone", "--live")
    assert not new_tail(devs["alone"])


@pytest.mark.parametrize("seed", [pytest.param(3, id="torn"), pytest.param(4, id="whole")])
@pytest.mark.parametrize("command", ["wipe", "export"])
def test_a_stale_tail_does_not_outlive_its_member(kernel, build, devs, resized, command, seed):
    """Alone, it would make a member of an ordinary disk. The old tail may be torn, or whole."""
    closed(kernel)
    resized("alone", SIZES["alone"] + MORE)
    r = kernel("resize", "alone", env={"LD_PRELOAD": str(build / "faults.so"), "FAULT_CUT": f"2 {seed}"})
    assert r.returncode == -9 and new_tail(devs["alone"])
    kernel.ok(command, devs["alone"], "-y")
    assert not new_tail(devs["alone"])
    assert devs["alone"] not in kernel.ok("scan")


# What is refused, before anything is written ------------------------------------------------

def lost(flags):
    def prepare(kernel, devs, resized):
        kernel.ok("deactivate", "alone")
        edit_superblocks(devs["alone"], {100: bytes([flags])} if flags else {240: b"a map..."})
        kernel.announce(devs["alone"])
    return prepare


def ran_alone(kernel, devs, resized):
    kernel.ok("deactivate", "ssd")
    kernel.unplug(devs["ssd"])
    edit_superblocks(devs["one"], {100: bytes([ALONE])})
    kernel.ok("activate", "one")


def foreign(kernel, devs, resized):
    kernel.ok("host-id")
    kernel.ok("deactivate", "alone")
    edit_superblocks(devs["alone"], {688: bytes(range(16))})
    kernel.announce(devs["alone"])


def state(name, **values):
    return lambda kernel, devs, resized: kernel.change_device(name, **values)


REFUSED = {
    "a pool": (["ssd"], None, 2, "hybridctl replace-cache ssd --cache DEVICE"),
    "unknown": (["nothing"], None, 4, "no pool or volume nothing"),
    "missing": ([], None, 1, "resize needs"),
    "too many": (["one", "two"], None, 1, "too many arguments"),
    "smaller": (["three"], lambda k, d, r: r("three", 11), 2, f"has {11 * 2048} sectors, and volume three needs {12 * 2048}"),
    "smaller, formatted": (["one"], lambda k, d, r: r("one", 15), 2, "cannot shrink"),
    "closed": (["one"], lambda k, d, r: k.ok("deactivate", "one", "--keep-pool"), 5, "hybridctl activate it first"),
    "pool not active": (["one"], lambda k, d, r: k.ok("deactivate", "ssd"), 5, "hybridctl activate it first"),
    "runs alone": (["one"], ran_alone, 7, "connect the cache device"),
    "names a lost map": (["alone"], lost(0), 2, "hybridctl lost --acknowledge"),
    "has lost what is unknown": (["alone"], lost(LOSS_UNKNOWN), 2, "hybridctl lost --acknowledge"),
    "suspended": (["one"], state("one", suspended=1), 5, "dmsetup resume it first"),
    "pool suspended": (["one"], state("ssd", suspended=1), 7, "pool ssd is suspended"),
    "pool failed": (["one"], state("ssd", state="failed"), 7, "pool ssd is failed"),
    "degraded": (["one"], state("one", state="degraded"), 7, "one is degraded"),
    "its origin fails": (["one"], state("one", origin_errors=1), 2, "origin of one failed"),
    "another host's": (["alone"], foreign, 2, "belongs to another host"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(kernel, devs, resized, case):
    words, prepare, rc, says = REFUSED[case]
    for name in "one", "alone":
        if not case.startswith("smaller"):
            resized(name, SIZES[name] + MORE)
    if prepare:
        prepare(kernel, devs, resized)
    saved = World(kernel, devs)
    r = kernel("resize", *words)
    assert r.returncode == rc and says in r.stderr and "next: " in r.stderr, r
    assert kernel.state["devices"] == json.loads(saved.state)["devices"]
    assert {k: v for k, v in kernel.state["volumes"].items() if v} == json.loads(saved.state)["volumes"]
    assert {device: contents(device) for device in devs.values()} == saved.disks


@pytest.mark.parametrize("name", ["one", "alone"])
def test_an_origin_that_cannot_be_written(kernel, build, devs, resized, name):
    resized(name, SIZES[name] + MORE)
    bad = {"LD_PRELOAD": str(build / "faults.so"), "FAULT_BAD": f"write {devs[name]} 0 {(SIZES[name] + MORE) * 2048}"}
    r = kernel("resize", name, env=bad)
    assert r.returncode and "cannot write" in r.stderr, r
    assert not kernel.device(name).get("suspended")
    kernel.ok("resize", name)
    check(kernel, devs, name, SIZES[name] - 2 + MORE)
