# SPDX-License-Identifier: GPL-2.0-or-later
"""A volume loses its cache and gets one: its origin after each write that is cut."""
import json
import os
import re
import signal
import struct
import uuid

import pytest

from cli.test_boot import HEAD_SB, crc32c, edit_superblocks, event

CACHE, ORIGIN, DETACHED = 1, 2, 3
DIRTY, ALONE, LOSS_UNKNOWN, EPHEMERAL = 1, 2, 4, 8
WRITETHROUGH, WRITEBACK = 0, 1


class Superblock:
    """One copy: the fields of format.h that the life of a cache changes."""

    def __init__(self, block):
        self.pool, self.member = block[64:80], block[80:96]
        self.role, self.flags, self.sequence = struct.unpack_from("<IIQ", block, 96)
        self.name = block[112:176].split(b"\0")[0].decode()
        (self.id, self.instance, self.data_sector, self.data_sectors, self.nonce, self.volume, self.key,
         self.lost, self.paired_nonce, self.mode, self.cutoff) = struct.unpack_from("<IIQQQ16s16sQQQQ", block, 176)

    def __eq__(self, other):
        return vars(self) == vars(other)


def copies(device):
    with open(device, "rb") as f:
        for at in (HEAD_SB, f.seek(0, os.SEEK_END) - HEAD_SB):
            f.seek(at)
            yield Superblock(f.read(4096))


def superblock(device):
    """Both copies say the same."""
    head, tail = copies(device)
    assert head == tail
    return head


def entries(kernel):
    return [line for volumes in kernel.state.get("volumes", {}).values() for line in volumes]


def listed(kernel):
    rows = json.loads(kernel.ok("list", "--json", "-o", "all"))["volumes"]
    return {(row["kind"], row["name"], row["state"]): row for row in rows}


def state(kernel, name="vol"):
    return next(state for _, n, state in listed(kernel) if n == name)


@pytest.fixture
def devs(loop):
    return loop("cache.img", 64), loop("origin.img", 100)


@pytest.fixture
def volume(kernel, devs):
    """vol on vol-pool, with settings of its own."""
    kernel.ok("create", "vol", "--cache", devs[0], "--origin", devs[1], "--mode", "writeback", "--cutoff", "1m",
              "-y")
    return devs


@pytest.fixture
def cut(kernel, build):
    """cut(n, command...): the power goes in the nth write of its superblocks."""
    def run(n, *command, seed=1):
        r = kernel(*command, env={"LD_PRELOAD": str(build / "faults.so"), "FAULT_CUT": f"{n} {seed}"})
        assert r.returncode == -9, r
    return run


def no_cache(before, device):
    """What a detach leaves of an origin."""
    now = superblock(device)
    assert (now.role, now.flags & ~EPHEMERAL, now.paired_nonce, now.id) == (DETACHED, 0, 0, 0)
    assert not any(now.pool) and not any(now.key)
    assert now.nonce not in (0, before.nonce) and now.sequence > before.sequence
    for field in "member", "volume", "name", "data_sector", "data_sectors":
        assert getattr(now, field) == getattr(before, field)
    return now


@pytest.mark.parametrize("live", [[], ["--live"]])
def test_detach_leaves_an_origin_without_cache(kernel, volume, live):
    edit_superblocks(volume[1], {100: b"\x08", 248: b"paired.."})
    before = superblock(volume[1])
    kernel.ok("detach", "vol", *live)
    now = no_cache(before, volume[1])
    assert now.flags == EPHEMERAL
    # For the next cache
    assert (now.mode, now.cutoff) == (WRITEBACK + 1, 2048 + 1)
    assert entries(kernel) == []


@pytest.mark.parametrize("live", [[], ["--live"]])
@pytest.mark.parametrize("n, seed", [(1, 1), (1, 3), (2, 1), (2, 6)])
@pytest.mark.parametrize("what", ["--all", "vol-pool", "vol"])
def test_detach_that_is_cut_in_a_superblock(kernel, volume, cut, live, n, seed, what):
    """The pool's tombstone finishes it, whatever is activated."""
    before = superblock(volume[1])
    cut(n, "detach", "vol", *live, seed=seed)
    assert "tombstone" in entries(kernel)[0]
    if what == "vol" and not live:
        # Already without cache, or it becomes that
        kernel.ok("activate", "vol")
        assert kernel.devices == ["vol-pool", "vol"]
    kernel.ok("activate", "vol-pool" if what == "vol" else what)
    no_cache(before, volume[1])
    assert kernel.devices == ["vol-pool", "vol"] and state(kernel) == "no-cache"
    assert entries(kernel) == []


def test_detach_without_the_pool(kernel, volume):
    """Nothing is dirty, so the origin alone can say it; the pool's entry goes when that is back."""
    kernel.ok("deactivate", "vol")
    r = kernel("detach", "vol")
    assert r.returncode == 4 and "is not active" in r.stderr
    kernel.unplug(volume[0])
    before = superblock(volume[1])
    edit_superblocks(volume[1], {100: b"\x01"})
    r = kernel("detach", "vol")
    assert r.returncode == 7 and "had the only copy of some data" in r.stderr
    assert superblock(volume[1]).role == ORIGIN
    edit_superblocks(volume[1], {100: b"\x00"})
    assert "detached" in kernel.ok("detach", "vol", "--test")
    assert superblock(volume[1]) == before
    kernel.ok("detach", "vol")
    no_cache(before, volume[1])
    kernel.plug(volume[0])
    kernel.ok("activate", "vol-pool")
    assert entries(kernel) == []


@pytest.mark.parametrize("n", [1, 2])
def test_detach_without_the_pool_that_is_cut(kernel, volume, cut, n):
    """Paired, or without cache: never both."""
    kernel.ok("deactivate", "vol")
    kernel.unplug(volume[0])
    before = superblock(volume[1])
    cut(n, "detach", "vol", seed=n)
    r = kernel("detach", "vol")
    assert r.returncode in (0, 1), r
    # Linear only once both copies say it
    kernel.ok("activate", "vol")
    no_cache(before, volume[1])
    assert kernel.devices == ["vol"]


@pytest.mark.parametrize("live", [[], ["--live"]])
def test_detach_of_a_pool_that_failed(kernel, volume, live):
    """Only if nothing is lost.  In use it is closed before it is marked, and marked before it is linear."""
    kernel.change_device("vol-pool", state="failed")
    kernel.change_device("vol", state="degraded", lost=3)
    before = superblock(volume[1])
    r = kernel("detach", "vol", *live)
    assert r.returncode == 7 and "unmount" in r.stderr, r
    assert superblock(volume[1]) == before
    kernel.change_device("vol", lost=0, open_count=len(live))
    kernel.clear_log()
    kernel.ok("detach", "vol", *live)
    no_cache(before, volume[1])
    steps = [line.split(" 200704")[0] for line in kernel.log if not line.endswith(("check", "volumes"))]
    assert steps == (["try vol", "suspend vol", "message vol-pool delete_volume 0", "switch vol"] if live else
                     ["remove vol"])
    kernel.ok("activate", "--all")
    assert state(kernel) == "no-cache" and len(entries(kernel)) == 1
    kernel.change_device("vol-pool", state="running")
    kernel.ok("activate", "vol-pool")
    assert entries(kernel) == []


def test_detach_of_a_pool_that_failed_is_cut(kernel, volume, cut):
    """Suspended, the origin marked in one copy: nobody writes until somebody decides."""
    kernel.change_device("vol-pool", state="failed")
    kernel.change_device("vol", state="degraded", open_count=1)
    cut(1, "detach", "vol", "--live")
    assert [d.get("suspended") for d in kernel.state["devices"]] == [None, 1]
    # ... to go on
    r = kernel("detach", "vol", "--live")
    assert r.returncode == 5 and "hybridctl activate --all finishes it" in r.stderr
    kernel.ok("activate", "--all")
    assert superblock(volume[1]).role == DETACHED and state(kernel) == "no-cache"


@pytest.fixture
def half_detached(kernel, build, volume):
    """vol is suspended. Its pool failed, knows the detach in RAM alone, and has this on disk; see its cache device."""
    kernel.change_device("vol-pool", state="failed")
    kernel.change_device("vol", state="degraded", open_count=1)
    recorded = kernel.state["volumes"]
    env = bad_writes(build, volume[1])
    assert kernel("detach", "vol", "--live", env=env).returncode == 4
    assert kernel.device("vol")["suspended"] == 1 and superblock(volume[1]).role == ORIGIN
    assert "tombstone" in entries(kernel)[0]
    return recorded


def bad_writes(build, device):
    """Its superblocks cannot be written."""
    return {"LD_PRELOAD": str(build / "faults.so"), "FAULT_BAD": f"write {device} 1024 1032"}


def test_activate_marks_the_origin_before_a_device_is_linear(kernel, build, volume, half_detached):
    """Users write to it from then on, and the pool may come back with blocks of an older time."""
    before = superblock(volume[1])
    r = kernel("activate", "--all", env=bad_writes(build, volume[1]))
    assert r.returncode == 4 and kernel.device("vol")["suspended"] == 1, r
    assert not [line for line in kernel.log if line.startswith("switch")]
    # Though the pool cannot free the id
    kernel.ok("activate", "--all")
    no_cache(before, volume[1])
    assert state(kernel) == "no-cache" and len(entries(kernel)) == 1
    # After a boot
    kernel.change(devices=[], volumes=half_detached)
    kernel.ok("activate", "--all")
    assert kernel.devices == ["vol-pool", "vol"] and state(kernel) == "no-cache" and entries(kernel) == []


@pytest.mark.parametrize("pool, r, suspended", [("failed", 7, 1), ("running", 0, 0)])
def test_a_suspended_device_whose_origin_is_not_found(kernel, volume, half_detached, pool, r, suspended):
    """It goes on only if the pool has recorded the detach."""
    kernel.change_device("vol-pool", state=pool)
    kernel.unplug(volume[1])
    assert kernel("activate", "--all").returncode == r
    assert kernel.device("vol").get("suspended") == suspended and len(entries(kernel)) == 1
    kernel.plug(volume[1])
    kernel.ok("activate", "--all")
    assert superblock(volume[1]).role == DETACHED and state(kernel) == "no-cache"


@pytest.mark.parametrize("pool", ["gone", "back"])
def test_detach_of_an_origin_alone(kernel, volume, pool):
    """It is linear and goes on so, in use or not."""
    kernel.ok("deactivate", "vol")
    kernel.unplug(volume[0])
    kernel("activate", "vol", "--degraded")
    assert kernel.devices == ["vol"]
    kernel.change_device("vol", open_count=1)
    before = superblock(volume[1])
    if pool == "back":
        kernel.plug(volume[0])
        assert kernel("activate", "vol-pool", fail="switch vol 200704 hybrid").returncode == 4
        assert "action: hybridctl activate vol" in kernel.ok("status", "vol")
    kernel.ok("detach", "vol")
    no_cache(before, volume[1])
    assert "vol" in kernel.devices
    assert not (pool == "back" and entries(kernel))
    r = kernel("detach", "vol")
    assert r.returncode == 1 and "detached already" in r.stderr


@pytest.mark.parametrize("by", ["name", "uuid"])
def test_detach_of_a_volume_whose_origin_is_gone_for_good(kernel, volume, loop, by):
    """The pool keeps its name and id for the mark of the origin, until somebody says that none will come."""
    before = superblock(volume[1])
    named = {"name": "vol", "uuid": str(uuid.UUID(bytes=before.volume))}
    kernel.ok("deactivate", "vol", "--keep-pool")
    kernel.unplug(volume[1])
    kernel.change(dirty_vol=5)
    r = kernel("detach", "--drop-dirty", "vol", "-y")
    assert r.returncode == 7 and "hybridctl detach --drop-dirty vol makes" in r.stderr
    for refused in (["attach", "vol-pool", "vol", "--origin", loop("other.img", 100), "-y"],
                    ["replace-cache", "vol-pool", "--cache", loop("new.img", 64), "-y"]):
        r = kernel(*refused)
        assert r.returncode and f"hybridctl detach --drop-dirty {named['uuid']}" in r.stderr
    r = kernel("detach", named[by])
    assert r.returncode == 4 and len(entries(kernel)) == 1
    r = kernel("detach", "--drop-dirty", named[by])
    assert r.returncode == 2 and len(entries(kernel)) == 1
    assert "forget_volume 0" in kernel.ok("detach", "--drop-dirty", named[by], "--test")
    kernel.ok("detach", "--drop-dirty", named[by], "-y")
    assert entries(kernel) == []
    kernel.ok(*refused)


def test_a_deleted_volume_whose_origin_is_here_is_marked(kernel, volume):
    """Not only forgotten."""
    before = superblock(volume[1])
    kernel.ok("deactivate", "vol", "--keep-pool")
    kernel.unplug(volume[1])
    assert kernel("detach", "vol").returncode == 7
    kernel.plug(volume[1])
    kernel.ok("detach", "--drop-dirty", "vol", "-y")
    no_cache(before, volume[1])
    assert entries(kernel) == []


# Without a cache -------------------------------------------------------------------------

@pytest.fixture
def uncached(kernel, volume):
    """The origin of a volume without a cache, not active; there is no pool."""
    kernel.ok("detach", "vol")
    kernel.ok("deactivate", "vol-pool")
    kernel.unplug(volume[0])
    return volume[1]


@pytest.mark.parametrize("what", ["vol", "--all", "origin", "uuid"])
def test_without_a_cache_it_comes_up(kernel, uncached, what):
    """Under its name, as linear, and healthy; nothing is written for it, and no module needed."""
    before = superblock(uncached)
    what = {"origin": uncached, "uuid": kernel.ok("list", "vol", "-o", "uuid", "--noheadings").strip()}.get(what, what)
    assert state(kernel) == "inactive" and kernel("status").returncode == 7
    assert kernel.ok("activate", what, "--test").startswith("dmsetup create vol --uuid HYBRID-")
    kernel.ok("activate", what, fail="check")
    assert kernel.devices == ["vol"] and superblock(uncached) == before
    row = listed(kernel)["volume", "vol", "no-cache"]
    assert row["origin"] == uncached and row["pool"] is None and row["size"] == 98 * 1 << 20
    out = kernel.ok("status")
    assert "state: no-cache" in out and uncached in out
    assert re.fullmatch(rf"dmsetup create vol --uuid HYBRID-\S+ --table '0 200704 linear {uncached} 2048'\n",
                        kernel.ok("table"))
    assert kernel.ok("activate", what) in ("", "vol is active already\n")
    for command in (["drain", "vol"], ["set", "vol", "cutoff=0"]):
        assert kernel(*command).returncode > 0
    kernel.ok("deactivate", "vol")
    assert kernel.devices == []


def test_without_a_cache_at_boot(kernel, uncached):
    """By its event alone, at once."""
    assert event(kernel, uncached) == "complete"
    kernel.ok("activate", "--auto", "--all")
    assert kernel.devices == ["vol"]
    assert event(kernel, uncached) == "active"


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("damage", ["old", "bad"])
def test_one_copy_of_an_origin_without_cache_is_old_or_bad(kernel, build, uncached, copy, damage):
    """It comes up once both say so, and not if one cannot be written."""
    if damage == "old":
        edit_superblocks(uncached, {96: b"\2", 104: b"\1"}, [copy])
    else:
        edit_superblocks(uncached, {96: b"\7"}, [copy])
    sectors = [1024, 100 * 2048 - 1024]
    env = {"LD_PRELOAD": str(build / "faults.so"),
           "FAULT_BAD": f"write {uncached} {sectors[copy]} {sectors[copy] + 8}"}
    r = kernel("activate", "vol", env=env)
    assert r.returncode == 4 and "cannot write" in r.stderr and kernel.devices == []
    kernel.ok("activate", "vol")
    assert superblock(uncached).role == DETACHED and kernel.devices == ["vol"]


def test_without_a_cache_but_with_a_loss(kernel, uncached):
    """It comes up all the same, and says so until it is acknowledged."""
    edit_superblocks(uncached, {100: bytes([LOSS_UNKNOWN])})
    kernel.ok("activate", "vol")
    r = kernel("status", "vol")
    assert r.returncode == 7 and "action: hybridctl lost --acknowledge vol" in r.stdout


@pytest.mark.parametrize("dirty", [0, 5])
@pytest.mark.parametrize("now", ["no cache", "another pool"])
def test_what_a_pool_has_of_an_origin_that_is_done_with_it(kernel, volume, dirty, now):
    """Deleted if it is clean; else listed until somebody gives it up."""
    kernel.ok("deactivate", "vol", "--keep-pool")
    kernel.change(dirty_vol=dirty)
    edit_superblocks(volume[1], {96: b"\3", 64: bytes(16)} if now == "no cache" else {64: b"another's pool.."})
    before = superblock(volume[1])
    kernel.clear_log()
    r = kernel("activate", "vol-pool")
    assert r.returncode == 0 and not [line for line in kernel.log if line.startswith("create vol ")]
    assert bool(entries(kernel)) == bool(dirty) == ("--drop-dirty vol" in r.stderr)
    if dirty:
        rows = listed(kernel)
        assert rows["volume", "vol", "given-up"]["pool"] == "vol-pool"
        assert len([row for row in rows if row[1] == "vol"]) == 2
        assert "action: hybridctl detach --drop-dirty vol" in kernel("status").stdout
        kernel.ok("detach", "--drop-dirty", "vol", "-y")
    assert entries(kernel) == [] and superblock(volume[1]) == before


# A cache for it ----------------------------------------------------------------------------

@pytest.fixture
def lone(kernel, volume):
    """(origin, its superblock): vol without a cache, closed, beside the pool that it had."""
    kernel.ok("detach", "vol")
    return volume[1], superblock(volume[1])


def paired(kernel, before, device):
    """What an attach makes of an origin without a cache."""
    now = superblock(device)
    assert (now.role, now.flags & ~EPHEMERAL, now.nonce, now.instance) == (ORIGIN, 0, 0, 0)
    assert any(now.key) and any(now.pool)
    for field in "member", "volume", "name", "data_sector", "data_sectors", "mode", "cutoff":
        assert getattr(now, field) == getattr(before, field)
    (entry,) = entries(kernel)
    assert entry.split()[1] == "active" and state(kernel) == "running"
    return now


def contents(device):
    with open(device, "rb") as f:
        data = bytearray(f.read())
    for at in HEAD_SB, len(data) - HEAD_SB:
        data[at:at + 4096] = bytes(4096)
    return data


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("origin", [False, True])
def test_attach_keeps_what_is_there(kernel, lone, up, origin):
    """Nothing but the superblocks is written, and nothing is asked for that they know."""
    device, before = lone
    if up:
        kernel.ok("activate", "vol")
        kernel.change_device("vol", open_count=1)
    old = contents(device)
    words = ["attach", "vol-pool", "vol", *(["--origin", device] if origin else [])]
    assert "zero" not in kernel.ok(*words, "--test")
    assert superblock(device) == before
    kernel.clear_log()
    kernel.ok(*words)
    paired(kernel, before, device)
    assert contents(device) == old
    row = listed(kernel)["volume", "vol", "running"]
    assert (row["mode"], row["cutoff"]) == ("writeback", 1 << 20)
    steps = [line.split()[:3] for line in kernel.log if not line.endswith(("check", "volumes"))]
    assert steps == [["message", "vol-pool", "create_volume"], ["switch" if up else "create", "vol", "200704"]]
    kernel.ok("detach", "vol", *(["--live"] if up else []))
    kernel.ok("attach", "vol-pool", "vol", "--mode", "writearound", "--cutoff", "0")
    row = listed(kernel)["volume", "vol", "running"]
    assert (row["mode"], row["cutoff"]) == ("writearound", 0)


def test_create_keeps_what_is_there(kernel, lone, loop):
    """A new pool for it."""
    device, before = lone
    old, new = contents(device), loop("new.img", 64)
    r = kernel("create", "other", "--pool", "new", "--cache", new, "--origin", device, "-y", "--wipe-signatures")
    assert r.returncode == 2 and "is the origin of volume vol" in r.stderr
    kernel.ok("create", "vol", "--pool", "new", "--cache", new, "--origin", device, "-y")
    paired(kernel, before, device)
    assert contents(device) == old and listed(kernel)["volume", "vol", "running"]["pool"] == "new"


def test_attach_refused(kernel, lone, loop, driver):
    device, before = lone
    for flags, lost in ((LOSS_UNKNOWN, 0), (0, 7)):
        edit_superblocks(device, {100: bytes([flags]), 240: bytes([lost])})
        r = kernel("attach", "vol-pool", "vol")
        assert r.returncode == 2 and "lost --acknowledge" in r.stderr
    edit_superblocks(device, {100: b"\0", 240: b"\0"})
    r = kernel("attach", "vol-pool", "other", "--origin", device, "-y", "--wipe-signatures")
    assert r.returncode == 2 and "is the origin of volume vol" in r.stderr
    r = kernel("attach", "vol-pool", "nothing")
    assert r.returncode == 1 and "no origin given" in r.stderr
    r = kernel("create", "vol", "--pool", "big", "--cache", loop("big.img", 64, 4096), "--origin", device, "-y")
    assert r.returncode == 2 and "is used with sectors of 512 bytes" in r.stderr
    assert superblock(device) == before
    assert state(kernel) == "inactive" and entries(kernel) == []


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("then", ["activate", "attach"])
def test_attach_that_is_cut(kernel, lone, cut, up, n, then):
    """After the entry: without a cache.  Once a copy of the superblock says so: with it."""
    device, before = lone
    if up:
        kernel.ok("activate", "vol")
    if n:
        cut(n, "attach", "vol-pool", "vol", seed=n)
    else:
        r = kernel("attach", "vol-pool", "vol", env={"HYBRID_FAKE_SIGNAL":
                                                     f"{int(signal.SIGKILL)} message vol-pool create_volume"})
        assert r.returncode == -9
        # The model dies before it does what it is asked for
        pool = kernel.state["devices"][0]["uuid"]
        volume, member = (uuid.UUID(bytes=b) for b in (before.volume, before.member))
        kernel.change(volumes={pool: [f"0 active {volume} vol {member} writeback 2048 200704 2048 formatted 0"]})
    assert len(entries(kernel)) == 1
    now = max(copies(device), key=lambda sb: sb.sequence if sb.role in (ORIGIN, DETACHED) else -1)
    if then == "attach" and now.role == DETACHED:
        kernel.ok("attach", "vol-pool", "vol")
        paired(kernel, before, device)
        return
    kernel.ok("activate", "--all")
    if now.role == DETACHED:
        assert entries(kernel) == [] and superblock(device).role == DETACHED
        assert state(kernel) == "no-cache"
    else:
        # The kernel makes both copies one when it opens it
        assert len(entries(kernel)) == 1 and state(kernel) == "running"


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("step", ["message vol-pool create_volume", "create vol|switch vol 200704 hybrid"])
def test_attach_that_fails_leaves_it_without_a_cache(kernel, lone, up, step):
    device, before = lone
    if up:
        kernel.ok("activate", "vol")
    r = kernel("attach", "vol-pool", "vol", fail=step)
    assert r.returncode == 4 and "lost" not in r.stderr, r
    now = superblock(device)
    assert now.role == DETACHED and (now.mode, now.cutoff) == (before.mode, before.cutoff)
    assert entries(kernel) == [] and ("vol" in kernel.devices) == up
    kernel.ok("attach", "vol-pool", "vol")
    paired(kernel, before, device)


def test_attach_to_an_origin_that_cannot_be_written(kernel, build, lone):
    """The second copy: the first one is taken back, and the entry goes."""
    device, before = lone
    at = 100 * 2048 - 1024
    r = kernel("attach", "vol-pool", "vol",
               env={"LD_PRELOAD": str(build / "faults.so"), "FAULT_BAD": f"write {device} {at} {at + 8}"})
    assert r.returncode == 4 and "cannot write" in r.stderr
    # A copy may say that it is paired, and what it says is so
    assert len(entries(kernel)) == 1 or superblock(device).role == DETACHED


@pytest.mark.parametrize("dirty", [0, 5])
def test_attach_where_the_pool_has_something_of_it(kernel, lone, dirty):
    """Of an older life: deleted if it is clean, and else not mixed with the new one."""
    device, before = lone
    pool = kernel.state["devices"][0]["uuid"]
    volume, member = (uuid.UUID(bytes=b) for b in (before.volume, before.member))
    kernel.change(dirty_vol=dirty, volumes={
        pool: [f"3 active {volume} vol {member} writeback 2048 200704 2048 formatted 0"]})
    r = kernel("attach", "vol-pool", "vol")
    if dirty:
        assert r.returncode == 5 and "--drop-dirty" in r.stderr and superblock(device) == before
    else:
        paired(kernel, before, device)


@pytest.mark.parametrize("name, here", [("vol", True), ("old", True), ("old", False)])
def test_attach_of_a_copy_of_the_origin(kernel, lone, loop, name, here):
    """Taken while that had no cache.  The entry is that of the origin, and stays."""
    device, copy = lone[0], loop("copy.img", 100)
    with open(device, "rb") as f, open(copy, "r+b") as g:
        g.write(f.read())
    kernel.ok("attach", "vol-pool", "vol", "--origin", device)
    before = entries(kernel)
    kernel.ok("deactivate", "vol", "--keep-pool")
    kernel.announce(copy)
    if not here:
        kernel.unplug(device)
    r = kernel("attach", "vol-pool", name, "--origin", copy, "-y", "--wipe-signatures")
    assert r.returncode and entries(kernel) == before and superblock(copy).role == DETACHED, r
    assert ("looks like a copy of" if name == "vol" else "is the origin of volume vol") in r.stderr
    kernel.unplug(copy)
    if not here:
        kernel.plug(device)
    kernel.ok("activate", "vol")
    assert state(kernel) == "running"


# Unknown to its pool ------------------------------------------------------------------------

KILLED_BEFORE_ENTRY = {"HYBRID_FAKE_SIGNAL": f"{int(signal.SIGKILL)} message vol-pool create_volume"}


def no_way_on(kernel, *words):
    """What status and activate name for vol."""
    r = kernel("activate", "vol")
    assert r.returncode == 4 and "vol-pool does not know volume vol" in r.stderr
    assert f"hybridctl {words[0]} vol" in r.stderr
    r = kernel("status", "vol")
    assert r.returncode == 7 and f"action: hybridctl {words[0]} vol" in r.stdout


@pytest.mark.parametrize("then", ["attach", "detach"])
@pytest.mark.parametrize("command", ["attach", "create"])
def test_attach_that_is_killed_before_the_entry(kernel, devs, loop, then, command):
    """The origin names a pool that does not know it."""
    if command == "create":
        words = ["create", "vol", "--cache", devs[0], "--origin", devs[1]]
    else:
        kernel.ok("create", "other", "--pool", "vol-pool", "--cache", devs[0], "--origin", loop("b.img", 100), "-y")
        words = ["attach", "vol-pool", "vol", "--origin", devs[1]]
    assert kernel(*words, "-y", env=KILLED_BEFORE_ENTRY).returncode == -9
    before = superblock(devs[1])
    assert before.role == ORIGIN
    no_way_on(kernel, "detach")
    again = ["attach", "vol-pool", "vol", "--origin", devs[1]]
    if then == "detach":
        kernel.ok("detach", "vol")
        no_cache(before, devs[1])
        assert state(kernel) == "inactive"
        again = again[:3]
    kernel.ok("attach", "vol-pool", "vol", "--test", *again[3:])
    assert superblock(devs[1]).role == (ORIGIN if then == "attach" else DETACHED)
    kernel.ok(*again)
    now = superblock(devs[1])
    assert now.role == ORIGIN and now.volume == before.volume and state(kernel) == "running"


@pytest.fixture
def lost_entry(kernel, volume):
    """vol, closed. A repair of its pool lost the entry."""
    kernel.ok("deactivate", "vol", "--keep-pool")
    kernel.change(volumes={})
    return volume[1]


def test_attach_where_a_repair_lost_the_entry(kernel, lost_entry):
    """The origin has all data, and keeps it."""
    before, data = superblock(lost_entry), contents(lost_entry)
    r = kernel("attach", "vol-pool", "new", "--origin", lost_entry, "-y", "--wipe-signatures")
    assert r.returncode == 5 and "detach it" in r.stderr and superblock(lost_entry) == before
    no_way_on(kernel, "detach")
    kernel.ok("attach", "vol-pool", "vol", "--origin", lost_entry)
    now = superblock(lost_entry)
    assert now.role == ORIGIN and now.volume == before.volume and now.key != before.key
    assert contents(lost_entry) == data and state(kernel) == "running"


def test_dirty_where_a_repair_lost_the_entry(kernel, lost_entry):
    """Only the user can accept that data is lost."""
    edit_superblocks(lost_entry, {100: bytes([DIRTY])})
    kernel.announce(lost_entry)
    before = superblock(lost_entry)
    no_way_on(kernel, "accept-loss")
    for refused in ["detach", "vol"], ["attach", "vol-pool", "vol", "--origin", lost_entry, "-y", "--wipe-signatures"]:
        assert kernel(*refused).returncode in (5, 7) and superblock(lost_entry) == before
    assert "hybridctl accept-loss" in kernel("detach", "vol").stderr
    kernel.ok("accept-loss", "vol", "-y")
    now = superblock(lost_entry)
    assert (now.role, now.flags) == (DETACHED, LOSS_UNKNOWN)


def test_accept_loss_of_a_volume_that_its_pool_knows(kernel, volume):
    """It has the data."""
    kernel.ok("deactivate", "vol", "--keep-pool")
    edit_superblocks(volume[1], {100: bytes([DIRTY])})
    r = kernel("accept-loss", "vol", "-y")
    assert r.returncode == 2 and superblock(volume[1]).role == ORIGIN


def test_alone_and_unknown_to_its_pool(kernel, volume):
    """It goes on in use."""
    kernel.ok("deactivate", "vol")
    kernel.unplug(volume[0])
    kernel.ok("activate", "vol", "--degraded")
    kernel.plug(volume[0])
    kernel.change(volumes={})
    kernel.ok("activate", "vol-pool")
    kernel.change_device("vol", open_count=1)
    no_way_on(kernel, "detach")
    kernel.ok("detach", "vol")
    assert superblock(volume[1]).role == DETACHED and state(kernel) == "no-cache"


# Alone --------------------------------------------------------------------------------------

@pytest.fixture
def clean(kernel, volume):
    """(cache, origin) of vol, not active, nothing of it dirty; the cache is not here."""
    kernel.ok("deactivate", "vol")
    kernel.unplug(volume[0])
    return volume


def test_alone_once_and_at_once_from_then_on(kernel, clean):
    before = superblock(clean[1])
    assert event(kernel, clean[1]) == "degraded"
    assert kernel("activate", "--auto", "--all").returncode == 7 and superblock(clean[1]) == before
    kernel.ok("activate", "--auto", "--all", "--degraded")
    now = superblock(clean[1])
    assert (now.role, now.flags, now.pool, now.key) == (ORIGIN, ALONE, before.pool, before.key)
    assert now.nonce != before.nonce and state(kernel) == "alone"
    assert "connect the cache device" in kernel.ok("status")
    # The next boots
    for _ in range(2):
        kernel.ok("deactivate", "vol")
        assert event(kernel, clean[1]) == "complete"
        kernel.ok("activate", "--auto", "--all")
        assert kernel.devices == ["vol"] and superblock(clean[1]).nonce != now.nonce
        now = superblock(clean[1])


def test_alone_and_joined_in_use(kernel, clean):
    kernel.ok("activate", "vol", "--degraded")
    kernel.change_device("vol", open_count=1)
    kernel.plug(clean[0])
    kernel.clear_log()
    # What fails leaves it as it was
    assert kernel("activate", "--all", fail="switch vol 200704 hybrid").returncode == 4
    assert state(kernel) == "alone"
    kernel.ok("activate", "vol")
    assert state(kernel) == "running"
    steps = [line.split()[:2] for line in kernel.log if line.startswith(("suspend", "resume", "switch", "create v"))]
    assert steps == [["create", "vol-pool"]] + 3 * [["switch", "vol"]]


@pytest.mark.parametrize("flags", [DIRTY, DIRTY | ALONE])
def test_never_alone_while_dirty(kernel, clean, flags):
    edit_superblocks(clean[1], {100: bytes([flags])})
    assert event(kernel, clean[1]) == "waiting"
    for words in [], ["--degraded"]:
        assert kernel("activate", "--auto", "--all", *words).returncode == 7
        assert kernel("activate", "vol", *words).returncode == 7
    assert kernel.devices == []


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("then", ["cache", "none"])
def test_alone_that_is_cut(kernel, clean, cut, n, then):
    """It never ran: with its cache it is as before, and without it is marked again."""
    cut(n, "activate", "vol", "--degraded", seed=n)
    assert kernel.devices == []
    if then == "cache":
        kernel.plug(clean[0])
        kernel.ok("activate", "vol")
        assert state(kernel) == "running"
    else:
        kernel.ok("activate", "vol", "--degraded")
        assert superblock(clean[1]).flags == ALONE and state(kernel) == "alone"


@pytest.mark.parametrize("copy", [0, 1])
def test_not_alone_if_a_copy_cannot_be_written(kernel, build, clean, copy):
    at = [1024, 100 * 2048 - 1024][copy]
    r = kernel("activate", "vol", "--degraded",
               env={"LD_PRELOAD": str(build / "faults.so"), "FAULT_BAD": f"write {clean[1]} {at} {at + 8}"})
    assert r.returncode == 4 and kernel.devices == []


def test_not_alone_beside_a_refused_cache(kernel, clean, loop):
    """Though it ran alone before."""
    kernel.ok("activate", "vol", "--degraded")
    kernel.ok("deactivate", "vol")
    copy = loop("copy.img", 64)
    with open(clean[0], "rb") as f, open(copy, "r+b") as g:
        g.write(f.read())
    kernel.plug(clean[0])
    assert kernel("activate", "--all").returncode == 7 and kernel.devices == []


# What leads on ------------------------------------------------------------------------------

def action(kernel, healthy=False):
    """The one command that status names for vol."""
    r = kernel("status", "vol")
    assert r.returncode == (0 if healthy else 7), r
    found = re.search("action: (.*)", r.stdout)
    return found and re.sub(".*(hybridctl .*)", r"\1", found[1])


@pytest.mark.parametrize("flags, leads", [(0, "activate --degraded vol"), (ALONE, "activate vol"),
                                          (DIRTY, "accept-loss vol"), (ALONE | DIRTY, "accept-loss vol")])
def test_status_without_the_cache_device(kernel, clean, flags, leads):
    edit_superblocks(clean[1], {100: bytes([flags])})
    kernel.announce(clean[1])
    assert state(kernel) == "incomplete" and action(kernel) == f"hybridctl {leads}"
    if not flags & DIRTY:
        kernel.ok(*leads.split())
        assert state(kernel) == "alone" and action(kernel, healthy=True) == "hybridctl detach vol"
        kernel.ok("detach", "vol")
        assert state(kernel) == "no-cache" and action(kernel, healthy=True) is None
        kernel.ok("deactivate", "vol")
        assert state(kernel) == "inactive" and action(kernel) == "hybridctl activate vol"


@pytest.mark.parametrize("lost, leads", [(0, "detach --live vol"), (3, "lost vol lists the lost data")])
def test_status_of_a_volume_whose_pool_failed(kernel, volume, cut, lost, leads):
    kernel.change_device("vol-pool", state="failed")
    kernel.change_device("vol", state="degraded", lost=lost)
    assert state(kernel) == "degraded" and action(kernel) == f"hybridctl {leads}"
    if not lost:
        cut(1, *leads.split())
        assert state(kernel) == "suspended" and action(kernel) == "hybridctl activate --all finishes it"
        kernel.ok("activate", "--all")
        # The pool still has the entry, and forgets it when it is back
        assert len(entries(kernel)) == 1
        assert state(kernel) == "no-cache" and action(kernel, healthy=True) is None


@pytest.mark.parametrize("n", range(1, 6))
def test_wipe_that_is_cut(kernel, volume, cut, n):
    """A member with all of its metadata, or none: never a damaged one."""
    kernel.ok("deactivate", "vol")

    def head():
        with open(volume[0], "rb") as f:
            return f.read(HEAD_SB)
    before = head()
    if n < 5:
        cut(n, "wipe", volume[0], "-y", "--wipe-signatures", seed=n)
    else:
        kernel.ok("wipe", volume[0], "-y", "--wipe-signatures")
    r = kernel("probe", volume[0])
    assert r.returncode == 4 and "not a member" in r.stderr or r.returncode == 0 and head() == before, r
    assert (n != 1 or r.returncode == 0) and (n < 3 or r.returncode == 4)


@pytest.mark.parametrize("command, which", [
    (["release", "vol-pool"], 0), (["rename", "vol-pool", "other"], 0), (["destroy", "vol-pool", "-y"], 0),
    (["rename", "vol", "other"], 1), (["lost", "vol", "--acknowledge"], 1), (["export", "vol", "-y"], 1)])
def test_another_member_while_it_waits(kernel, volume, command, which):
    """What was read without the lock is read again before anything is written there."""
    kernel.ok("detach", "vol")
    kernel.ok("deactivate", "vol-pool")
    if command[0] == "lost":
        edit_superblocks(volume[1], {100: bytes([LOSS_UNKNOWN])})
    with kernel.waits(*command) as r:
        edit_superblocks(volume[which], {80: b"another member's"})
        before = superblock(volume[which])
    assert r.returncode == 4 and "changed since it was scanned" in r.stderr
    assert superblock(volume[which]) == before
    assert before.member == b"another member's" and before.name.startswith("vol")


def both_copies(device):
    with open(device, "rb") as f:
        for at in (HEAD_SB, f.seek(0, os.SEEK_END) - HEAD_SB):
            f.seek(at)
            yield at, f.read(4096)


def put_back(device, blocks):
    with open(device, "r+b") as f:
        for at, block in blocks:
            f.seek(at)
            f.write(block)
        os.fsync(f.fileno())


@pytest.mark.parametrize("dirty", [0, 9])
def test_a_volume_that_comes_to_the_pool_while_activate_waits(kernel, driver, volume, dirty):
    """As by replace-cache: its entry is valid, and stays."""
    kernel.ok("deactivate", "vol", "--keep-pool")
    paired = list(both_copies(volume[1]))
    assert driver("mark-detached", volume[1]).returncode == 0 and superblock(volume[1]).role == DETACHED
    (pool, [line]), = kernel.state["volumes"].items()
    words = line.split()
    words[10] = str(dirty)
    kernel.change(volumes={pool: [" ".join(words)]})
    with kernel.waits("activate", "--all") as r:
        put_back(volume[1], paired)
    assert r.returncode == 0 and "--drop-dirty" not in r.stderr, r.stderr
    assert kernel.devices == ["vol-pool", "vol"] and len(entries(kernel)) == 1


def test_a_device_that_is_no_member_any_more_while_activate_waits(kernel, driver, volume):
    """Nothing says then that the pool's entry is not needed."""
    kernel.ok("deactivate", "vol", "--keep-pool")
    driver("mark-detached", volume[1])
    with kernel.waits("activate", "--all") as r:
        edit_superblocks(volume[1], {80: b"another member's"})
    assert r.returncode == 6 and "changed since it was scanned" in r.stderr and len(entries(kernel)) == 1


@pytest.mark.parametrize("name", ["vol", "vol-pool"])
def test_renamed_while_activate_waits(kernel, volume, name):
    """It keeps the new name."""
    if name == "vol":
        kernel.ok("detach", "vol", "--live")
    with kernel.waits("activate", "--all") as r:
        kernel.change(devices=[{**d, "name": "other"} if d["name"] == name else d for d in kernel.state["devices"]])
        edit_superblocks(volume[name == "vol"], {112: b"other".ljust(64, b"\0")})
    assert r.returncode == 0, r.stderr
    assert "other" in kernel.devices and name not in kernel.devices


@pytest.mark.parametrize("meanwhile", ["attach", "change"])
def test_another_command_on_the_volume_while_create_waits(kernel, volume, loop, meanwhile):
    """create goes by the present contents of the origin: it replaces no other pool, and nothing newer by an old plan."""
    new = loop("new.img", 64)
    kernel.ok("detach", "vol", "--live")
    detached, dm = list(both_copies(volume[1])), kernel.path.read_text()
    kernel.ok("attach", "vol-pool", "vol")
    paired, attached = list(both_copies(volume[1])), kernel.state
    put_back(volume[1], detached)
    kernel.path.write_text(dm)
    with kernel.waits("create", "vol", "--pool", "new", "--cache", new, "-y") as r:
        if meanwhile == "attach":
            put_back(volume[1], paired)
            kernel.change(**attached)
        else:
            edit_superblocks(volume[1], {104: (77).to_bytes(8, "little"), 264: (4096 + 1).to_bytes(8, "little")})
            before = superblock(volume[1])
    if meanwhile == "attach":
        assert r.returncode == 2 and "there is no linear device vol" in r.stderr, r.stderr
        assert list(both_copies(volume[1])) == paired and kernel.state == attached
        assert kernel("probe", new).returncode == 4
        return
    assert r.returncode == 0, r.stderr
    now = superblock(volume[1])
    assert now.sequence > 77 and (now.mode, now.cutoff) == (before.mode, before.cutoff)
    assert listed(kernel)["volume", "vol", "running"]["pool"] == "new"


@pytest.mark.parametrize("name", ["vol-pool", "vol"])
@pytest.mark.parametrize("seed, torn", [(3, False), (5, True)])
def test_two_cuts_leave_the_current_copy(kernel, volume, cut, name, seed, torn):
    """The first one leaves the tail old, or tears it; the second one must not hit the head."""
    device = volume[name == "vol"]
    kernel.ok("detach", "vol")
    kernel.ok("deactivate", "vol-pool")
    old = list(both_copies(device))[1]
    cut(2, "release", name, seed=seed)
    head, (_, tail) = both_copies(device)
    crc = crc32c(tail[:16] + bytes(4) + tail[20:]).to_bytes(4, "little")
    assert (tail[16:20] != crc) == torn and (tail == old[1]) != torn
    cut(1, "adopt", name, "-y", seed=5)
    assert next(both_copies(device)) == head
