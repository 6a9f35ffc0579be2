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
    take_away(kernel, cache)
    disk = Disk(origin)
    disk.set("flags", DIRTY)
    disk.set("origin.paired_nonce", 17)
    return disk


def take_away(kernel, *devices):
    for device in devices:
        kernel.scan.remove(device.removeprefix("/dev/"))


def give_back(kernel, *devices):
    kernel.scan += [device.removeprefix("/dev/") for device in devices]


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
    assert kernel.ok("accept-loss", "vol") == "volume vol has no cache already\n"
    assert kernel.ok("lost", "vol", "--acknowledge") == "what volume vol has lost is not listed any more\n"
    assert lost(kernel, "vol") == (0, []) and lone.says("role") == DETACHED
    assert "nothing that is not acknowledged" in kernel.ok("lost", "vol", "--acknowledge")
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

    refused(2, "nobody to ask", args=("accept-loss", "vol"))
    refused(4, "no volume other", args=("accept-loss", "other"))
    refused(4, "accept-loss comes first", args=("lost", "vol", "--acknowledge"))
    assert "superblocks with role detached" in kernel.ok("accept-loss", "vol", "--test")
    refused(2, "nobody to ask", args=("accept-loss", "vol"))
    give_back(kernel, kernel.cache)
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


def test_while_the_user_is_asked_the_cache_comes_back(kernel, lone, build):
    """What was found out before the question is looked at again."""
    lock = subprocess.Popen(["flock", "/run/hybrid/lock", "sh", "-c", "echo; read x"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)
    lock.stdout.readline()
    tool = subprocess.Popen([build / "hybridctl-fake", "accept-loss", "vol", "-y"], stderr=subprocess.PIPE, text=True,
                            stdout=subprocess.DEVNULL,
                            env={"HYBRID_FAKE_DM": str(kernel.path), "HYBRID_SCAN_ONLY": " ".join(kernel.scan)})
    assert "waiting for it" in tool.stderr.readline()
    # Somebody used the volume, and has gone again
    lone.set("origin.nonce", 4711)
    lock.communicate(b"\n")
    assert tool.wait(timeout=60) == 5 and "has been used meanwhile" in tool.stderr.read()
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
