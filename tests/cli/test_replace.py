# SPDX-License-Identifier: GPL-2.0-or-later
"""replace-cache: all volumes of a pool get another cache device, whatever is cut short meanwhile."""
import itertools
import json
import os
import re
import signal
import subprocess
import uuid

import pytest

from cli.test_boot import HEAD_SB, crc32c, edit_superblocks, event
from cli.test_life import ALONE, DETACHED, DIRTY, ORIGIN, Superblock, superblock

MIB = 1 << 20
REPLACES = 320


@pytest.fixture
def devs(loop):
    return {name: loop(f"{name}.img", mib) for name, mib in
            (("old", 64), ("new", 80), ("one", 20), ("two", 24))}


@pytest.fixture
def pool(kernel, devs):
    """one and two on ssd, with data on their origins."""
    kernel.ok("create", "one", "--pool", "ssd", "--cache", devs["old"], "--origin", devs["one"], "--mode",
              "writeback", "--cutoff", "1m", "--policy", "lru", "-y")
    kernel.ok("attach", "ssd", "two", "--origin", devs["two"], "-y")
    for name in "one", "two":
        with open(devs[name], "r+b") as f:
            f.seek(MIB)
            f.write(os.urandom(MIB))
            f.flush()
            os.fsync(f.fileno())
    return devs


COMMAND = "replace-cache", "ssd", "-y", "--cache"


def bands(device):
    """What the tools may write to, and the first MiB of data of an origin."""
    with open(device, "rb") as f:
        head = f.read(2 * MIB)
        f.seek(-MIB, os.SEEK_END)
        return head, f.read()


class Saved:
    """The disks and the kernel, to begin with again."""

    def __init__(self, kernel, devs):
        self.kernel, self.devs = kernel, devs
        self.state = kernel.path.read_text()
        self.bands = {device: bands(device) for device in devs.values()}

    def restore(self):
        self.kernel.path.write_text(self.state)
        for device, (head, tail) in self.bands.items():
            with open(device, "r+b") as f:
                f.write(head)
                f.seek(-MIB, os.SEEK_END)
                f.write(tail)
                f.flush()
                os.fsync(f.fileno())
            self.kernel.announce(device)

    def same_data(self):
        """All of the origins but for their superblocks."""
        for name in "one", "two":
            before, now = self.bands[self.devs[name]], bands(self.devs[name])
            for at, (a, b) in (HEAD_SB, (before[0], now[0])), (MIB - HEAD_SB, (before[1], now[1])):
                assert a[:at] + a[at + 4096:] == b[:at] + b[at + 4096:]


def text(raw):
    return str(uuid.UUID(bytes=raw))


def copies(device):
    """The good ones, the one that counts first."""
    head, tail = bands(device)
    good = [sb for sb in (head[HEAD_SB:HEAD_SB + 4096], tail[MIB - HEAD_SB:MIB - HEAD_SB + 4096])
            if any(sb) and int.from_bytes(sb[16:20], "little") == crc32c(sb[:16] + bytes(4) + sb[20:])]
    return sorted(good, key=lambda sb: sb[104:112][::-1], reverse=True)


def replaces(device):
    """Of the copy that counts; None: not a member."""
    return copies(device)[0][REPLACES:REPLACES + 16] if copies(device) else None


def current(device):
    """The kernel, which makes both copies one when it opens them, is a model here."""
    return Superblock(copies(device)[0])


def lines(kernel, pool):
    return {line.split()[3]: line for line in kernel.state["volumes"].get(pool, [])}


def replaced(kernel, devs, before, active=("one", "two"), whole=superblock):
    """The end: as it was, but on the new device."""
    new = whole(devs["new"])
    assert new.role == 1 and new.name == "ssd" and not any(replaces(devs["new"]))
    assert kernel("probe", devs["old"]).returncode == 4
    assert sorted(kernel.devices) == sorted(["ssd", *active])
    mine = kernel.device("ssd")
    assert mine["uuid"] == text(new.pool)
    for name, mode, cutoff in ("one", "writeback", 2048), ("two", "writethrough", 8192):
        sb, old = whole(devs[name]), before[name]
        assert (sb.role, sb.flags, sb.pool, sb.nonce, sb.instance) == (ORIGIN, 0, new.pool, 0, 0)
        assert sb.key != old.key and sb.sequence > old.sequence
        for field in "member", "volume", "name", "data_sector", "data_sectors":
            assert getattr(sb, field) == getattr(old, field)
        words = lines(kernel, text(new.pool))[name].split()
        assert words[1] == "active" and words[5] == mode and words[8] == str(cutoff)
        assert words[0] == str(sb.id)
        if name in active:
            dev = kernel.device(name)
            assert not dev.get("alone") and not dev.get("suspended")
            assert dev["params"].startswith(f"4000:{mine['minor']} {sb.id} ")
    assert len(lines(kernel, text(new.pool))) == 2 and not lines(kernel, text(before["pool"]))
    assert kernel("status").returncode == (0 if len(active) == 2 else 7)


def known(devs):
    return {"pool": superblock(devs["old"]).pool, **{n: superblock(devs[n]) for n in ("one", "two")}}


@pytest.mark.parametrize("use", ["mounted", "idle", "closed"])
def test_all_volumes_move(kernel, pool, use):
    before, saved = known(pool), Saved(kernel, pool)
    if use == "mounted":
        kernel.change_device("one", open_count=1)
        kernel.change_device("two", open_count=1)
    if use == "closed":
        kernel.ok("deactivate", "two", "--keep-pool")
    kernel.change(dirty_one=100)
    kernel.ok("set", "ssd", "high_watermark=33")
    kernel.clear_log()
    out = kernel.ok(*COMMAND, pool["new"], "--progress-json")
    told = [(p["name"], p["state"]) for p in map(json.loads, out.splitlines()) if p["state"] != "draining"]
    assert told == [("ssd-new", "active"), ("one", "clean"), ("one", "moved"),
                    *([] if use == "closed" else [("two", "clean")]), ("two", "moved"), ("ssd", "replaced")]
    replaced(kernel, pool, before, ["one"] if use == "closed" else ["one", "two"])
    saved.same_data()
    # The steps that need their order
    steps = [" ".join(line.split()[:3]) for line in kernel.log if not line.startswith(("check", "try")) and
             not line.endswith(("volumes", "drain")) and ("one" in line or "ssd" in line)]
    want = ["create ssd-new", "message ssd-new create_volume", "suspend one", "message ssd release_volume",
            "switch one", "switch one", "message ssd delete_volume", "message ssd forget_volume"]
    assert [s for s in steps if s.startswith(tuple(want))][:8] == [
        s if s[-4:] not in (" one", "-new") else next(x for x in steps if x.startswith(s)) for s in want]
    assert steps[-3:] == ["remove ssd", "rename ssd-new ssd", "message ssd rename"]
    # Its policy, too
    assert " lru " in kernel.device("ssd")["params"]


def test_nothing_is_done_with_test(kernel, pool):
    before, saved = known(pool), Saved(kernel, pool)
    out = kernel.ok("replace-cache", "ssd", "--cache", pool["new"], "--test")
    for step in ("write " + pool["new"], "create ssd-new", "create_volume 0 ", "suspend --nolockfs two",
                 "ssd 0 release_volume 1", "load one --table", "remove ssd", "rename ssd-new ssd"):
        assert step in out
    assert known(pool) == before and kernel.path.read_text() == saved.state and replaces(pool["new"]) is None


def created(text):
    """Number, volume, name, member ... of each message create_volume, without its key."""
    found = re.findall(r"create_volume (\d+ \S+ \S+ \S+) [0-9a-f]{32} ([^'\n]*\w)", text)
    return [" ".join(words) for words in found]


@pytest.mark.parametrize("cut", ["", "message ssd-new create_volume", "switch one"])
def test_messages_that_test_prints(kernel, pool, cut):
    """They are those that are sent, also when the command is given again.  Numbers begin anew."""
    if not cut:
        kernel.ok("detach", "one", "--live")
    else:
        r = kernel(*COMMAND, pool["new"], env={"HYBRID_FAKE_SIGNAL": f"{int(signal.SIGKILL)} {cut}"})
        assert r.returncode == -9
    out = kernel.ok("replace-cache", "ssd", *([] if cut else ["--cache", pool["new"]]), "--test")
    kernel.clear_log()
    kernel.ok("replace-cache", "ssd", *([] if cut else ["--cache", pool["new"]]), "-y")
    assert created(out) == created("\n".join(kernel.log)) != []
    tables = re.findall(r"load (\w+) --table '0 \d+ hybrid \S+ (\d+) ", out)
    assert tables == [(name, kernel.device(name)["params"].split()[1]) for name, _ in tables] != []


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("use", ["active", "closed"])
def test_cut_in_a_superblock(kernel, build, pool, power, use):
    """Given again it ends as if nothing had been, after a boot or without one."""
    before = known(pool)
    if use == "closed":
        kernel.ok("deactivate", "two", "--keep-pool")
    saved = Saved(kernel, pool)
    for n in range(1, 100):
        saved.restore()
        r = kernel(*COMMAND, pool["new"], "--wipe-signatures",
                   env={"LD_PRELOAD": str(build / "faults.so"), "FAULT_CUT": f"{n} {n}"})
        if not r.returncode:
            break
        assert r.returncode == -9, (n, r.stderr)
        go_on(kernel, pool, before, saved, power)
    assert n > 15
    replaced(kernel, pool, before, ["one"] if use == "closed" else ["one", "two"])


def refused(kernel, *devices):
    members = json.loads(kernel("scan", *devices, "--json", "-o", "all").stdout)["members"]
    return [m for m in members if m["state"] == "refused"]


def test_cut_while_devices_are_formatted(kernel, build, pool, loop):
    """Whatever part of a superblock is written: a device is a member, or it is none."""
    other = loop("other.img", 20)
    saved, blank = Saved(kernel, pool), bands(other)
    commands = ((*COMMAND, pool["new"]), ("create", "three", "--cache", pool["new"], "--origin", other, "-y"))
    for command, writes in zip(commands, (7, 14)):
        for n, seed in itertools.product(range(1, writes), range(6)):
            saved.restore()
            with open(other, "r+b") as f:
                f.write(blank[0])
                f.seek(-MIB, os.SEEK_END)
                f.write(blank[1])
            r = kernel(*command, env={"LD_PRELOAD": str(build / "faults.so"), "FAULT_CUT": f"{n} {seed}"})
            assert r.returncode == -9, (command, n, r)
            assert not refused(kernel, pool["new"], other), (command, n, seed)


def go_on(kernel, pool, before, saved, power):
    if power:
        kernel.change(devices=[])
    for device in pool.values():
        kernel.announce(device)
    suspended = [d["name"] for d in kernel.state["devices"] if d.get("suspended")]
    assert len(suspended) < 2
    for name in suspended:
        assert "action: hybridctl replace-cache ssd\n" in kernel("status", name).stdout
    r = kernel("activate", "--all")
    saved.same_data()
    for name in "one", "two":
        now = kernel("status", name, "--json")
        state = json.loads(now.stdout)["status"][0]
        if power:
            assert state["state"] == "running", (r, state)
            continue
        # Of one that is linear both copies name one pool
        assert len({sb[64:80] for sb in copies(pool[name])}) == 1 or not kernel.device(name).get("alone")
        # It may be suspended, and its pool's still
        if state["state"] == "suspended":
            assert current(pool[name]).pool == before["pool"] and r.returncode in (5, 6)
    if replaces(pool["new"]) is None:
        # A superblock is there, or it is not
        kernel.ok(*COMMAND, pool["new"])
    elif any(replaces(pool["new"])):
        assert "hybridctl replace-cache ssd" in kernel("status").stdout
        # The device need not be named again
        kernel.ok("replace-cache", "ssd")
    replaced(kernel, pool, before, whole=current)
    saved.same_data()


@pytest.mark.parametrize("power", [False, True])
def test_killed_at_each_step(kernel, pool, power):
    before, saved = known(pool), Saved(kernel, pool)
    kernel.clear_log()
    kernel.ok(*COMMAND, pool["new"])
    steps = list(dict.fromkeys(kernel.log))
    assert len(steps) > 20
    # Before what differs from run to run
    for step in (" ".join(step.split()[:4]) for step in steps):
        saved.restore()
        r = kernel(*COMMAND, pool["new"], "--wipe-signatures",
                   env={"HYBRID_FAKE_SIGNAL": f"{int(signal.SIGKILL)} {step}"})
        assert r.returncode == -9, (step, r)
        go_on(kernel, pool, before, saved, power)


@pytest.mark.parametrize("name", ["SIGHUP", "SIGTERM", "SIGINT"])
def test_a_signal_ends_its_drain(kernel, pool, name):
    """The volume stays where it is, and is no longer drained."""
    kernel.change(dirty_two=1 << 30)
    r = kernel(*COMMAND, pool["new"], seconds=60,
               env={"HYBRID_FAKE_SIGNAL": f"{int(getattr(signal, name))} message two drain"})
    assert r.returncode == 6 and "drain of two cancelled" in r.stderr, r
    assert kernel.log.count("message two drain_cancel") == 1
    assert not kernel.device("two")["drain_on"]
    kernel.change(dirty_two=0)
    kernel.ok("replace-cache", "ssd")


def test_each_step_fails(kernel, pool):
    """Whatever it is, nobody is left suspended, and the command given again goes on."""
    before, saved = known(pool), Saved(kernel, pool)
    kernel.clear_log()
    kernel.ok(*COMMAND, pool["new"])
    steps = dict.fromkeys(" ".join(line.split()[:4]) for line in kernel.log)
    for step in steps:
        saved.restore()
        r = kernel(*COMMAND, pool["new"], "--wipe-signatures", fail=step)
        assert r.returncode, step
        assert not [d["name"] for d in kernel.state["devices"] if d.get("suspended") or d.get("drain_on")], step
        saved.same_data()
        kernel.ok(*COMMAND, pool["new"], "--wipe-signatures")
        replaced(kernel, pool, before)


@pytest.mark.parametrize("copy", [0, 1])
def test_an_origin_that_cannot_be_written(kernel, build, pool, copy):
    """It stays the old pool's, and in use."""
    before = known(pool)
    at = (1024, 24 * 2048 - 1024)[copy]
    r = kernel(*COMMAND, pool["new"],
               env={"LD_PRELOAD": str(build / "faults.so"), "FAULT_BAD": f"write {pool['two']} {at} {at + 8}"})
    assert r.returncode == 6 and "cannot write" in r.stderr and "volume two has not moved" in r.stderr
    assert current(pool["two"]).pool == before["pool"] and current(pool["one"]).pool != before["pool"]
    assert not kernel.device("two").get("suspended")
    kernel.ok("replace-cache", "ssd")
    replaced(kernel, pool, before)


def test_both_pools_are_the_listed_one(kernel, pool):
    """hybrid.conf has the name that the new pool gets: a boot brings up what has moved, too."""
    kill = {"HYBRID_FAKE_SIGNAL": f"{int(signal.SIGKILL)} suspend two"}
    assert kernel(*COMMAND, pool["new"], env=kill).returncode == -9
    kernel.conf.write_text(f"{kernel.conf.read_text()}\nautoactivate = listed\nautoactivate_list = ssd\n")
    kernel.change(devices=[])
    assert {event(kernel, device) for device in pool.values()} == {"complete"}
    kernel.ok("activate", "--auto", "--all")
    assert sorted(kernel.devices) == ["one", "ssd", "ssd-new", "two"]


# What is refused, before anything is written ------------------------------------------------

def in_place(kernel, pool, loop):
    device = loop("three.img", 16)
    subprocess.run(["mke2fs", "-q", device], check=True)
    kernel.ok("attach", "ssd", "three", "--origin", device, "--in-place", "-y")


def closed_and_dirty(kernel, pool, loop):
    kernel.ok("deactivate", "two", "--keep-pool")
    edit_superblocks(pool["two"], {100: bytes([DIRTY])})


def ran_alone(kernel, pool, loop):
    kernel.ok("deactivate", "two", "--keep-pool")
    edit_superblocks(pool["two"], {100: bytes([ALONE])})


def cut_detach(kernel, pool, loop):
    assert kernel("detach", "two", fail="message ssd forget").returncode
    edit_superblocks(pool["two"], {96: bytes([ORIGIN]), 64: superblock(pool["old"]).pool})


def given_up(kernel, pool, loop):
    kernel.ok("deactivate", "two", "--keep-pool")
    kernel.change(dirty_two=3)
    edit_superblocks(pool["two"], {96: bytes([DETACHED]), 64: bytes(16)})


def cut_resize(closed):
    """Until a resize ends, the entry has both sizes."""
    def prepare(kernel, pool, loop):
        if closed:
            kernel.ok("deactivate", "two", "--keep-pool")
        (uuid_of_pool, lines), = kernel.state["volumes"].items()
        kernel.change(volumes={uuid_of_pool: [re.sub(r" 0$", " 90112", line) if " two " in line else line
                                              for line in lines]})
    return prepare


def taken(kernel, pool, loop):
    state = kernel.state
    state["devices"].append(dict(state["devices"][0], name="ssd-new", uuid=str(uuid.uuid4()), minor=77))
    kernel.path.write_text(json.dumps(state))


def signature(kernel, pool, loop):
    with open(pool["new"], "r+b") as f:
        f.seek(0x10040)
        f.write(b"_BHRfS_M")
        f.seek(0)
        f.write(b"\0" * 510 + b"\x55\xaa")


def changed(name, **values):
    return lambda kernel, pool, loop: kernel.change_device(name, **values)


REFUSED = {
    "failed": (changed("ssd", state="failed"), [], 7, "accept-loss"),
    "suspended": (changed("ssd", suspended=1), [], 5, "is suspended"),
    "volume suspended": (changed("two", suspended=1), [], 5, "two is suspended"),
    "volume degraded": (changed("two", state="degraded"), [], 7, "volume two is degraded"),
    "origin fails": (changed("two", origin_errors=1), [], 2, "origin of two failed"),
    "not active": (lambda kernel, pool, loop: kernel.ok("deactivate", "ssd"), [], 4, "accept-loss"),
    "in place": (in_place, [], 2, "detach it, and attach it"),
    "closed and dirty": (closed_and_dirty, [], 5, "activate it first"),
    "ran alone": (ran_alone, [], 5, "activate it first"),
    "cut detach": (cut_detach, [], 5, "interrupted"),
    "cut resize": (cut_resize(False), [], 5, "resize it again"),
    "cut resize, closed": (cut_resize(True), [], 5, "activate it first"),
    "given up": (given_up, [], 2, "--drop-dirty"),
    "origin missing": (lambda kernel, pool, loop: kernel.unplug(pool["two"]), [], 7, "its origin is missing"),
    "name": (taken, [], 5, "ssd-new already exists"),
    "signature": (signature, [], 2, "--wipe-signatures"),
    "policy": (None, ["--policy", "best"], 1, "no such policy"),
    "block size": (None, ["--block-size", "3k"], 1, "is not valid"),
}


def asked_nothing(kernel, saved):
    """The kernel is as it was."""
    now, before = kernel.state, json.loads(saved.state)
    return now["devices"] == before["devices"] and {k: v for k, v in now["volumes"].items() if v} == before["volumes"]


@pytest.mark.parametrize("case", REFUSED)
def test_refused(kernel, pool, loop, case):
    prepare, options, rc, says = REFUSED[case]
    if prepare:
        prepare(kernel, pool, loop)
    saved = Saved(kernel, pool)
    r = kernel(*COMMAND, pool["new"], *options)
    assert r.returncode == rc and says in r.stderr, r
    assert asked_nothing(kernel, saved)
    assert {device: bands(device) for device in pool.values()} == saved.bands


def test_a_device_that_does_not_fit_is_refused(kernel, pool, loop):
    saved = Saved(kernel, pool)

    def refused(rc, says, *words):
        r = kernel("replace-cache", "ssd", *words)
        assert r.returncode == rc and says in r.stderr, r
        assert asked_nothing(kernel, saved)
        assert {device: bands(device) for device in pool.values()} == saved.bands

    refused(1, "no new cache device given")
    refused(4, "too small", "-y", "--cache", loop("small.img", 2))
    refused(2, "sectors of 512 bytes", "-y", "--cache", loop("big.img", 80, 4096))
    refused(2, "same device", "-y", "--cache", pool["one"], "--force")
    refused(2, "cannot ask without a terminal", "--cache", pool["new"])
    r = kernel("replace-cache", "nothing", "--cache", pool["new"])
    assert r.returncode == 4 and "no pool nothing" in r.stderr


def test_one_new_pool_for_an_old_one(kernel, pool, loop):
    """While a replacement is under way the device is known; and two of them are none."""
    kill = {"HYBRID_FAKE_SIGNAL": f"{int(signal.SIGKILL)} create ssd-new"}
    other = loop("other.img", 80)
    assert kernel(*COMMAND, other, env=kill).returncode == -9
    r = kernel(*COMMAND, pool["new"])
    assert r.returncode == 2 and "is already being replaced by " + other in r.stderr
    kernel.unplug(other)
    assert kernel(*COMMAND, pool["new"], env=kill).returncode == -9
    kernel.plug(other)
    saved = Saved(kernel, pool)
    for what, says in (("ssd", "two pools replace the same pool"), (other, "two pools replace the same pool"),
                       (superblock_name(pool["new"]), "it is not clear which pool is meant")):
        r = kernel("replace-cache", what)
        assert r.returncode == 4 and says in r.stderr
    assert asked_nothing(kernel, saved)
    kernel.unplug(other)
    before = known(pool)
    kernel.ok("replace-cache", "ssd-new")
    replaced(kernel, pool, before)


def superblock_name(device):
    return superblock(device).name


def test_the_old_device_cannot_be_given_back(kernel, build, pool):
    """It was to be replaced for a reason: without it the command ends."""
    before = known(pool)
    r = kernel(*COMMAND, pool["new"],
               env={"LD_PRELOAD": str(build / "faults.so"), "FAULT_BAD": f"write {pool['old']} 0 {64 * 2048}"})
    assert r.returncode == 6 and "disconnect that device" in r.stderr
    kernel.unplug(pool["old"])
    kernel.ok("replace-cache", "ssd")
    assert kernel.devices.count("ssd") == 1
    assert superblock(pool["new"]).name == "ssd" and not any(replaces(pool["new"]))
    for name in "one", "two":
        assert superblock(pool[name]).pool == superblock(pool["new"]).pool != before["pool"]


def test_the_old_device_is_missing_before_all_have_moved(kernel, pool):
    """The rest of the volumes is on it: nobody gets its name."""
    kill = {"HYBRID_FAKE_SIGNAL": f"{int(signal.SIGKILL)} suspend two"}
    assert kernel(*COMMAND, pool["new"], env=kill).returncode == -9
    kernel.change(devices=[])
    kernel.unplug(pool["old"])
    kernel("activate", "--all")
    r = kernel("replace-cache", "ssd")
    assert r.returncode == 7 and "volume two has not moved yet" in r.stderr
    assert superblock(pool["new"]).name == "ssd-new"
