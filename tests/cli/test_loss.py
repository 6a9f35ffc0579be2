# SPDX-License-Identifier: GPL-2.0-or-later
"""A cache device that is gone for good: accept-loss, and what comes after it."""
import json
import subprocess

import pytest
from check.corrupt import Block, Member, constant

DIRTY, UNKNOWN = constant("SB_DIRTY"), constant("SB_LOSS_UNKNOWN")
ORIGIN, DETACHED = constant("ROLE_ORIGIN"), constant("ROLE_DETACHED")


@pytest.fixture
def faults(build):
    return lambda **env: {"LD_PRELOAD": str(build / "faults.so"), **{k: str(v) for k, v in env.items()}}


class Disk(Member):
    """A member on a block device."""

    def __init__(self, device):
        super().__init__(device)
        self.sectors = int(subprocess.run(["blockdev", "--getsz", device], capture_output=True, text=True,
                                          check=True).stdout)

    def superblock(self, copy):
        at = constant("SB_SECTOR")
        return Block(self.path, self.sectors - at if copy else at, "hybrid_superblock")

    def says(self, field, copy=None):
        copies = [copy] if copy is not None else [0, 1]
        values = {self.superblock(c)[field] for c in copies}
        assert len(values) == 1, f"{field}: the copies differ"
        return values.pop()


@pytest.fixture
def lone(kernel, loop):
    """The origin of "vol", dirty, whose cache device is gone."""
    cache, origin = loop("cache.img", 64), loop("origin.img", 100)
    kernel.ok("create", "vol", "--cache", cache, "--origin", origin, "--mode", "writeback", "-y")
    kernel.ok("deactivate", "vol")
    kernel.cache = cache
    kernel.unplug(cache)
    disk = Disk(origin)
    disk.set("flags", DIRTY)
    disk.set("origin.paired_nonce", 17)
    return disk


def add_lost_map(disk, chunks=b"\x05"):
    for copy in range(2):
        disk.lost_map(copy, chunks)


def status(kernel, name="vol"):
    r = kernel("status", name, "--json")
    return json.loads(r.stdout)["status"][0]


def lost(kernel, what):
    r = kernel("lost", what, "--json")
    return r.returncode, [(x["offset"], x["length"]) for x in json.loads(r.stdout)["lost"]]


def test_a_loss_is_accepted(kernel, lone):
    """The disk can be used again, and what is lost stays listed until that is acknowledged."""
    add_lost_map(lone)
    kernel.announce(lone.path)
    assert status(kernel)["state"] == "incomplete" and "accept-loss vol" in status(kernel)["action"]
    nonce, sequence = lone.says("origin.nonce"), lone.says("sequence")
    out = kernel.ok("accept-loss", "vol", "-y")
    assert "its cache died" in out and "hybridctl activate vol brings it up" in out
    assert lone.says("role") == DETACHED and lone.says("flags") == 0 and lone.says("origin.lost") == 1
    assert lone.says("sequence") == sequence + 1 and lone.says("origin.nonce") not in (0, nonce)
    for field in "pool_uuid", "origin.pairing_key", "origin.paired_nonce":
        assert lone.says(field) == 0, field
    want = 7, [(0, 4096), (8192, 4096)]
    assert lost(kernel, "vol") == lost(kernel, lone.path) == want
    # By itself, and once only
    assert kernel.ok("accept-loss", "vol") == "volume vol already has no cache\n"
    assert kernel.ok("lost", "vol", "--acknowledge") == "the losses of volume vol are no longer listed\n"
    assert lost(kernel, "vol") == (0, []) and lone.says("role") == DETACHED
    assert "no loss that is not acknowledged" in kernel.ok("lost", "vol", "--acknowledge")
    assert kernel.devices == []


@pytest.mark.parametrize("spoiled", ["none", "one", "both"])
def test_what_is_lost_is_known_or_said_to_be_unknown(kernel, lone, spoiled):
    if spoiled != "none":
        add_lost_map(lone)
        for copy in range(2 if spoiled == "both" else 1):
            with Block(lone.path, lone.superblock(copy).sector + 8, "hybrid_lost_map", 8192) as map:
                map.spoil()
    known = spoiled == "one"
    out = kernel.ok("accept-loss", "vol", "-y")
    assert (" unknown: " in out) == (not known)
    assert lone.says("flags") == (0 if known else UNKNOWN)
    assert lone.says("origin.lost") == (1 if known else 0)
    assert lost(kernel, "vol")[0] == (7 if known else 4)
    kernel.ok("lost", "vol", "--acknowledge")
    assert lone.says("flags") == lone.says("origin.lost") == 0 and lost(kernel, "vol")[0] == 0


def test_a_clean_volume_loses_nothing_and_nothing_is_asked(kernel, lone):
    lone.set("flags", constant("SB_ALONE"))
    out = kernel.ok("accept-loss", "vol")
    assert "nothing is lost" in out and "has lost nothing" in out
    assert lone.says("role") == DETACHED and lone.says("flags") == 0
    assert lost(kernel, "vol") == (0, [])


def test_what_is_refused_is_refused_before_anything_is_written(kernel, lone):
    before = [lone.superblock(copy).data for copy in range(2)]

    def refused(rc, *words, args=("accept-loss", "vol", "-y")):
        r = kernel(*args)
        assert r.returncode == rc and all(word in r.stderr for word in words), r
        assert [lone.superblock(copy).data for copy in range(2)] == before

    refused(2, "cannot ask without a terminal", args=("accept-loss", "vol"))
    refused(4, "no volume other", args=("accept-loss", "other"))
    refused(4, "accept-loss first", args=("lost", "vol", "--acknowledge"))
    assert "superblocks with role detached" in kernel.ok("accept-loss", "vol", "--test")
    refused(2, "cannot ask without a terminal", args=("accept-loss", "vol"))
    kernel.plug(kernel.cache)
    refused(2, "the cache device of vol is here", kernel.cache, "--force")
    kernel.ok("activate", "vol")
    refused(5, "vol is active")
    kernel.ok("deactivate", "vol", "--keep-pool")
    refused(2, "is active", "detach --drop-dirty")
    kernel.change_device("vol-pool", state="failed")
    refused(5, "has failed", "deactivate")
    kernel.ok("deactivate", "vol-pool")
    kernel.ok("accept-loss", "vol", "-y", "--force")
    assert lone.says("role") == DETACHED


def test_a_device_that_does_not_answer_may_be_the_cache(kernel, lone, loop, faults):
    env = faults(FAULT_BAD=f"read {loop('silent.img', 64)} 0 {64 * 2048}", FAULT_ERRNO=0)
    r = kernel("accept-loss", "vol", "-y", env=env)
    assert r.returncode == 2 and "may be the cache device of vol" in r.stderr, r
    assert lone.says("role") == ORIGIN
    kernel.ok("accept-loss", "vol", "-y", "--force", env=env)
    assert lone.says("role") == DETACHED


def test_while_the_user_is_asked_the_cache_comes_back(kernel, lone):
    """What was found out before the question is looked at again."""
    with kernel.waits("accept-loss", "vol", "-y") as r:
        # Somebody used the volume, and has gone again
        lone.set("origin.nonce", 4711)
    assert r.returncode == 5 and "has been used meanwhile" in r.stderr
    assert lone.says("role") == ORIGIN


def writes_of(kernel, faults, tmp_path, *command):
    kernel.ok(*command, env=faults(FAULT_COUNT=tmp_path / "count"))
    return int((tmp_path / "count").read_text())


@pytest.mark.parametrize("known", [True, False])
def test_cut_at_each_write_it_is_one_state_or_the_other(kernel, lone, faults, tmp_path, known):
    """As it was, or without its cache; and the same command given again ends what was begun."""
    if known:
        add_lost_map(lone)
    before = [lone.superblock(copy) for copy in range(2)]
    total = writes_of(kernel, faults, tmp_path, "accept-loss", "vol", "-y")
    assert total == 2
    steps = {"accept-loss": ("accept-loss", "vol", "-y"), "acknowledge": ("lost", "vol", "--acknowledge")}
    for name, command in steps.items():
        for cut in range(1, total + 1):
            for seed in range(8):
                for block in before if name == "accept-loss" else after:
                    with block:
                        pass
                assert kernel(*command, env=faults(FAULT_CUT=f"{cut} {seed}")).returncode == -9
                code, _ = lost(kernel, "vol")
                role = {lone.superblock(copy)["role"] for copy in range(2)}
                # Never less than what is lost; while it can still be known
                assert code == (7 if known else 4) or (name == "acknowledge" and code == 0)
                assert name == "accept-loss" or role == {DETACHED}
                if name == "accept-loss":
                    row = status(kernel)
                    assert "accept-loss" in row["action"] or "lost with its cache" in row["reason"]
                kernel.ok(*command)
                assert lone.says("role") == DETACHED
                assert lost(kernel, "vol")[0] == (0 if name == "acknowledge" else 7 if known else 4)
        after = [lone.superblock(copy) for copy in range(2)] if name == "accept-loss" else None


@pytest.mark.parametrize("known", [True, False])
def test_a_cache_that_is_given_up_leaves_its_loss_on_the_origin(kernel, lone, known):
    """Of a copy of the cache, say, that is older than its origin: the kernel refuses the two."""
    if known:
        add_lost_map(lone)
    kernel.plug(kernel.cache)
    r = kernel("activate", "vol", fail="create vol 200704")
    assert r.returncode == 4 and "hybridctl detach --drop-dirty vol" in r.stderr
    r = kernel("detach", "--drop-dirty", "vol", "-y")
    assert r.returncode == 0 and "lost vol --acknowledge" in r.stderr
    assert lone.says("role") == DETACHED
    assert (lone.says("flags"), lone.says("origin.lost")) == ((0, 1) if known else (UNKNOWN, 0))
    assert lost(kernel, "vol")[0] == (7 if known else 4)


def test_a_pool_that_does_not_come_up_names_what_leads_on(kernel, lone):
    kernel.plug(kernel.cache)
    r = kernel("activate", "vol", fail="create vol-pool")
    assert r.returncode == 4 and f"writeback --copy-only {kernel.cache}" in r.stderr
    assert "accept-loss --force VOLUME" in r.stderr


# --- read-only, without the cache ----------------------------------------------


def bytes_of(disk):
    return [disk.superblock(copy).data for copy in range(2)]


def test_what_is_not_lost_can_be_read(kernel, lone):
    """Nothing is written, and nobody can write."""
    add_lost_map(lone, b"\x1d\x80")
    before = bytes_of(lone)
    r = kernel("activate", "vol", "--degraded", "--readonly")
    assert r.returncode == 0 and "20 KiB fail" in r.stderr and "more than" not in r.stderr
    assert kernel.log[-1].startswith("create_readonly vol 200704 ")
    assert kernel.log[-1].endswith(" 2048 but 0+8 16+24 120+8")
    row = status(kernel)
    assert row["state"] == "read-only" and "accept-loss vol" in row["action"] and not row["healthy"]
    assert lost(kernel, "vol")[0] == 7
    assert kernel("accept-loss", "vol", "-y").returncode == 5
    # Its cache is back: not below what somebody has read
    kernel.plug(kernel.cache)
    r = kernel("activate", "vol")
    assert r.returncode == 5 and "is shown read-only" in r.stderr and status(kernel)["state"] == "read-only"
    kernel.ok("deactivate", "vol")
    assert bytes_of(lone) == before
    kernel.ok("activate", "vol")
    assert status(kernel)["state"] == "running"


def test_too_many_holes_become_larger_ones(kernel, loop):
    """A table of a million lines is no table: what fails is more then, and that is said."""
    cache, origin = loop("cache.img", 64), loop("origin.img", 202)
    kernel.ok("create", "vol", "--cache", cache, "--origin", origin, "-y")
    kernel.ok("deactivate", "vol")
    kernel.unplug(cache)
    disk = Disk(origin)
    disk.set("flags", DIRTY)
    chunks = disk.says("origin.data_sectors") // 8
    add_lost_map(disk, b"\x55" * (chunks // 8 // 4 * 3 + 1) + bytes(chunks // 8 // 4 - 2) + b"\x80")
    r = kernel("activate", "vol", "--degraded", "--readonly")
    assert r.returncode == 0 and "more than was lost" in r.stderr
    holes = [[int(n) for n in hole.split("+")] for hole in kernel.log[-1].partition(" but ")[2].split()]
    assert len(holes) == 2 and holes[0][0] == 0 and sum(holes[1]) == chunks * 8
    assert holes[0][1] == 64 * (chunks // 8 // 4 * 3 + 1)


@pytest.mark.parametrize("why", ["no map", "no good map", "no degraded"])
def test_what_may_be_out_of_date_is_not_shown(kernel, lone, why):
    add_lost_map(lone)
    options = ["--degraded", "--readonly"]
    if why == "no map":
        lone.set("origin.lost", 0)
    elif why == "no good map":
        for copy in range(2):
            with Block(lone.path, lone.superblock(copy).sector + 8, "hybrid_lost_map", 8192) as map:
                map.spoil()
    else:
        options.remove("--degraded")
    before = bytes_of(lone)
    r = kernel("activate", "vol", *options)
    assert r.returncode == (1 if why == "no degraded" else 7), r
    assert kernel.devices == [] and bytes_of(lone) == before
    assert why == "no degraded" or "in unknown ranges" in r.stderr


@pytest.mark.parametrize("up", [[], ["vol-pool"], ["vol-pool", "vol"]])
@pytest.mark.parametrize("what", ["vol", "vol-pool", "--all"])
def test_with_its_cache_a_volume_is_not_shown_read_only(kernel, lone, what, up):
    """A volume that can be written to is not what was asked for."""
    lone.set("flags", 0)
    kernel.plug(kernel.cache)
    if up:
        kernel.ok("activate", "vol")
        if "vol" not in up:
            kernel.ok("deactivate", "vol", "--keep-pool")
    before, log = bytes_of(lone), kernel.log
    r = kernel("activate", what, "--degraded", "--readonly")
    assert r.returncode == (5 if [what] == up[1:] else 2), r
    assert ("vol is active, and not read-only" if r.returncode == 5 else
            "--readonly is only for a volume whose cache device is missing") in r.stderr
    assert kernel.devices == up and bytes_of(lone) == before
    assert set(kernel.log[len(log):]) <= {"message vol-pool volumes"}


def test_a_clean_volume_is_shown_whole_and_not_marked(kernel, lone):
    lone.set("flags", 0)
    before = bytes_of(lone)
    kernel.ok("activate", "vol", "--degraded", "--readonly")
    assert kernel.log[-1].endswith(" 2048 but") and bytes_of(lone) == before


def test_a_volume_without_a_cache_is_shown_read_only(kernel, lone):
    lone.set("flags", 0)
    kernel.ok("accept-loss", "vol")
    kernel.ok("activate", "vol", "--degraded", "--readonly")
    assert kernel.log[-1].startswith("create_readonly vol ") and kernel.log[-1].endswith(" 2048 but")


# --- what a pool has of volumes that are gone -----------------------------------


@pytest.fixture
def pool(kernel, loop):
    """vol on vol-pool, active."""
    cache, origin = loop("cache.img", 64), loop("origin.img", 100)
    kernel.ok("create", "vol", "--cache", cache, "--origin", origin, "-y")
    kernel.cache, kernel.origin = cache, origin
    return Disk(cache)


def is_blank(device):
    with open(device, "rb") as f:
        head = f.read(1 << 20)
        f.seek(-(1 << 20), 2)
        return not any(head) and not any(f.read())


@pytest.mark.parametrize("active", [True, False])
def test_an_empty_pool_gives_its_device_back(kernel, pool, active):
    r = kernel("destroy", "vol-pool", "-y")
    if active:
        assert r.returncode == 2 and "pool vol-pool has volume vol" in r.stderr and "detach" in r.stderr
    kernel.ok("detach", "vol")
    if not active:
        kernel.ok("deactivate", "vol-pool")
    assert kernel("destroy", "vol-pool").returncode == 2
    assert "zero the first and the last MiB" in kernel.ok("destroy", "vol-pool", "--test")
    assert not is_blank(kernel.cache)
    out = kernel.ok("destroy", "vol-pool", "-y")
    assert f"pool vol-pool is destroyed; {kernel.cache} is an ordinary device" in out
    assert kernel.devices == [] and is_blank(kernel.cache)
    assert kernel("destroy", "vol-pool", "-y").returncode == 4


@pytest.mark.parametrize("fail", ["remove vol-pool", "write"])
def test_a_destroy_that_fails_is_given_again(kernel, pool, faults, fail):
    kernel.ok("detach", "vol")
    env = faults(FAULT_BAD=f"write {kernel.cache} 0 {pool.sectors}") if fail == "write" else {}
    r = kernel("destroy", "vol-pool", "-y", env=env, fail=fail)
    assert r.returncode == 4 and not is_blank(kernel.cache), r
    kernel.ok("destroy", "vol-pool", "-y")
    assert is_blank(kernel.cache)


def test_a_volume_that_is_gone_is_no_obstacle(kernel, pool):
    """Its origin goes on without this pool; with data that only the pool has it must be said."""
    kernel.ok("deactivate", "vol", "--keep-pool")
    origin = Disk(kernel.origin)
    for field, value in (("role", DETACHED), ("pool_uuid", bytes(16)), ("flags", 0)):
        origin.set(field, value)
    kernel.announce(kernel.origin)
    kernel.change(dirty_vol=7)
    assert [row["state"] for row in json.loads(kernel("status", "--json").stdout)["status"]] == [
        "running", "inactive", "given-up"]
    r = kernel("destroy", "vol-pool", "-y")
    assert r.returncode == 2 and "given up" in r.stderr and "--drop-dirty" in r.stderr
    kernel.change(dirty_vol=0)
    kernel.ok("destroy", "vol-pool", "-y")
    assert is_blank(kernel.cache) and kernel.devices == []


def test_an_origin_that_is_gone_for_good(kernel, pool):
    """Given up in its pool; the note of that stays for the origin, should it come back, or is given up, too."""
    kernel.ok("deactivate", "vol", "--keep-pool")
    kernel.unplug(kernel.origin)
    assert "hybridctl detach --drop-dirty vol" in status(kernel)["action"]
    assert kernel("destroy", "vol-pool", "-y").returncode == 2
    r = kernel("detach", "vol", "--drop-dirty", "-y")
    assert r.returncode == 7 and "is marked at the next activation" in r.stderr
    r = kernel("destroy", "vol-pool", "-y")
    assert r.returncode == 2 and "its origin is missing" in r.stderr
    kernel.plug(kernel.origin)
    r = kernel("destroy", "vol-pool", "-y", "--drop-dirty")
    assert r.returncode == 5 and "the detach of volume vol was interrupted" in r.stderr
    kernel.unplug(kernel.origin)
    kernel.ok("destroy", "vol-pool", "-y", "--drop-dirty")
    assert is_blank(kernel.cache)


def test_a_destroy_that_is_cut_is_given_again(kernel, pool, faults, tmp_path):
    """Or the device is wiped, where its last superblock is torn."""
    kernel.ok("detach", "vol")
    kernel.ok("deactivate", "vol-pool")
    with open(kernel.cache, "rb") as f:
        before = f.read()
    total = writes_of(kernel, faults, tmp_path, "destroy", "vol-pool", "-y")
    ends = set()
    for cut in range(1, total + 1):
        for seed in range(3):
            with open(kernel.cache, "r+b") as f:
                f.write(before)
            assert kernel("destroy", "vol-pool", "-y", env=faults(FAULT_CUT=f"{cut} {seed}")).returncode == -9
            again = kernel("destroy", "vol-pool", "-y").returncode
            ends.add(again)
            if again:
                assert again == 4
                wiped = kernel("wipe", kernel.cache, "-y", "--wipe-signatures").returncode
                assert wiped == 0 or not members(kernel)
            assert not members(kernel)
    assert 0 in ends


def members(kernel):
    found = json.loads(kernel("scan", "--json").stdout)["members"]
    return [m for m in found if m["device"] == kernel.cache]


def test_wipe_says_what_it_does_and_what_is_lost(kernel, pool):
    kernel.ok("deactivate", "vol")
    r = kernel("wipe", kernel.cache, "-y")
    assert r.returncode == 2 and "hybridctl destroy" in r.stderr
    r = kernel("wipe", kernel.cache)
    assert "first and its last MiB will be zeroed: the pool vol-pool, with the data of its volumes" in r.stderr
    out = kernel.ok("wipe", kernel.cache, "-y", "--wipe-signatures")
    assert "its first and its last MiB are zeroed\nthe pool vol-pool, with the data of its volumes" in out
    out = kernel.ok("wipe", kernel.origin, "-y", "--wipe-signatures")
    assert "the volume vol is lost; its data stays where it is, from sector 2048 on" in out
