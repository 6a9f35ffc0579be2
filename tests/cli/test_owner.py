# SPDX-License-Identifier: GPL-2.0-or-later
"""Whose a pool is, and what comes up by itself."""
import json
import re
import uuid

import pytest

from .test_boot import crc32c, edit_superblocks, event, keys, mark_dirty, number

MIB = 1 << 20
OTHER = "11111111-2222-3333-4444-555555555555"
NULL = str(uuid.UUID(int=0))
ROOT_SECTOR, ROOT_FLAGS = 2048, 88


# Whose it is ------------------------------------------------------------------------

@pytest.fixture
def devs(loop):
    return loop("cache.img", 64), loop("origin.img", 100)


@pytest.fixture
def volume(kernel, devs):
    """An inactive pool of one volume, of this host."""
    kernel.ok("create", "vol", "--cache", devs[0], "--origin", devs[1], "-y")
    kernel.ok("deactivate", "vol")
    return devs


def become(kernel, text):
    """Another host, on which this is hybrid.conf."""
    kernel.conf.write_text(text)


def own_id(kernel):
    return re.search(r"^host_id = (.*)$", kernel.conf.read_text(), re.M)[1]


def owners(kernel, *devices):
    r = kernel("scan", *devices, "--json", "-o", "device,host_id")
    return [m["host_id"] for d in devices for m in json.loads(r.stdout)["members"] if m["device"] == d]


def states(kernel):
    rows = json.loads(kernel.ok("list", "--json", "-o", "name,state"))["volumes"]
    return {row["name"]: row["state"] for row in rows}


def contents(devices):
    found = []
    for device in devices:
        with open(device, "rb") as f:
            found.append(f.read(2 * MIB))
    return found


def not_stopped(cache):
    """As after a crash: the current root does not say that the pool was stopped."""
    with open(cache, "r+b") as f:
        f.seek(512 * ROOT_SECTOR)
        root = bytearray(f.read(4096))
        assert root[:4] == b"Root" and root[ROOT_FLAGS] & 1
        root[ROOT_FLAGS] &= ~1
        root[4:8] = bytes(4)
        root[4:8] = crc32c(bytes(root)).to_bytes(4, "little")
        f.seek(512 * ROOT_SECTOR)
        f.write(root)


def test_host_id(kernel):
    """Made once, behind what is there; said."""
    kernel.conf.write_text("autoactivate = none  # for now")
    assert "a new UUID" in kernel.ok("host-id", "--test")
    text = kernel.ok("host-id").strip()
    assert uuid.UUID(text).int and kernel.conf.read_text() == (
        f"autoactivate = none  # for now\nhost_id = {text}\n")
    assert kernel.ok("host-id").strip() == text and kernel.ok("host-id", "--test") == ""
    kernel.conf.unlink()
    other = kernel.ok("host-id").strip()
    assert other not in (text, NULL) and own_id(kernel) == other


def test_create_and_attach_write_the_id(kernel, volume, loop):
    """Made by the first create; an origin follows its pool."""
    mine = own_id(kernel)
    assert owners(kernel, *volume) == [mine] * 2
    assert f"host id      {mine}\n" in kernel.ok("probe", volume[0])
    assert keys(kernel("probe", volume[1], "--export"))["HYBRID_HOST_ID"] == mine
    rows = json.loads(kernel.ok("list", "--json", "-o", "host_id"))["volumes"]
    assert [row["host_id"] for row in rows] == [mine] * 2
    become(kernel, f"host_id = {OTHER}\n")
    assert "(another host)" in kernel.ok("probe", volume[0])
    kernel.ok("activate", "vol", "--foreign")
    more = loop("more.img", 100)
    kernel.ok("attach", "vol-pool", "more", "--origin", more, "-y")
    assert owners(kernel, *volume, more) == [mine] * 3


def test_create_without_an_id(kernel, devs, tmp_path):
    """Nobody's where no file can be; refused where the file may have one."""
    args = "create", "vol", "--cache", devs[0], "--origin", devs[1], "-y"
    become(kernel, "host_id = mine\n")
    r = kernel(*args)
    assert r.returncode == 2 and "its host_id is not valid" in r.stderr and not kernel.devices
    assert kernel.conf.read_text() == "host_id = mine\n"
    kernel.conf.unlink()
    kernel.conf.symlink_to(tmp_path / "none/none/hybrid.conf")
    assert "any host may bring it up" in kernel(*args).stderr
    assert kernel.devices == ["vol-pool", "vol"] and owners(kernel, *devs) == [None, None]


@pytest.mark.parametrize("text,code", [(f"host_id = {OTHER}\n", 0), ("host_id = mine\n", 2)])
def test_create_beside_one_that_makes_the_id(kernel, devs, text, code):
    """The one that waits takes the id that it finds then, and writes no other."""
    with kernel.waits("create", "vol", "--cache", devs[0], "--origin", devs[1], "-y") as r:
        kernel.conf.write_text(text)
    assert r.returncode == code, r.stderr
    assert kernel.conf.read_text() == text
    assert owners(kernel, *devs) == ([] if code else [OTHER] * 2)


def test_another_hosts(kernel, volume):
    """Listed, healthy, left alone: refused by name, passed over by --all, and not written to."""
    mine = kernel.conf.read_text()
    for text in f"host_id = {OTHER}\n", "", "host_id = wrong\n":
        become(kernel, text)
        before = contents(volume)
        assert states(kernel) == {"vol-pool": "foreign", "vol": "foreign"}
        assert kernel("status", "--unhealthy").returncode == 0
        for name in "vol", "vol-pool":
            r = kernel("activate", name)
            assert r.returncode == 2 and "belongs to another host" in r.stderr and "adopt" in r.stderr
        r = kernel("activate", "--all")
        assert r.returncode == 0 and r.stderr.count("vol-pool belongs to another host: left alone") == 1
        assert [event(kernel, d) for d in volume] == ["foreign"] * 2
        assert kernel("activate", "--auto", "--all", "--degraded").returncode == 0
        assert kernel.devices == [] and contents(volume) == before
    kernel.conf.write_text(mine)
    assert [event(kernel, d) for d in volume] == ["complete"] * 2
    kernel.ok("activate", "--auto", "--all")
    assert kernel.devices == ["vol-pool", "vol"]


def test_another_hosts_origin_alone(kernel, volume):
    """Clean, and its pool is not here: not after the wait either."""
    become(kernel, f"host_id = {OTHER}\n")
    assert event(kernel, volume[1]) == "foreign"
    before = contents(volume)
    kernel.scan = [volume[1].removeprefix("/dev/")]
    assert kernel("activate", "--auto", "--all", "--degraded").returncode == 0
    r = kernel("activate", "vol", "--degraded")
    assert r.returncode == 2 and not kernel.devices and contents(volume) == before
    assert "The pool of vol is not here" in kernel("activate", "vol", "--degraded", "--foreign").stderr
    kernel.ok("activate", "vol", "--degraded", "--foreign", "-y")
    assert kernel.devices == ["vol"]
    assert owners(kernel, volume[1]) != [OTHER]


def prepare(kernel, volume, how):
    """how: the pool is here; gone; gone, and the loss was accepted; or vol was detached."""
    cache, origin = volume
    if how == "detached":
        kernel.ok("activate", "vol")
        kernel.ok("detach", "vol")
        kernel.ok("deactivate", "vol-pool")
    elif how != "here":
        kernel.scan.remove(cache.removeprefix("/dev/"))
    if how == "accepted":
        mark_dirty(origin)
        kernel.ok("accept-loss", "vol", "-y")


@pytest.mark.parametrize("how,args", [
    ("gone", "detach vol"), ("gone", "detach vol --test"), ("gone", "accept-loss vol"),
    ("here", "accept-loss vol --force"),
    ("accepted", "lost vol --acknowledge"), ("detached", "destroy vol-pool"), ("detached", "accept-loss vol"),
    ("detached", "attach fast vol"), ("detached", "attach fast vol --origin ORIGIN"),
    ("detached", "create vol --pool new --cache NEW --origin ORIGIN"),
    ("detached", "create vol --pool new --cache NEW --origin ORIGIN --test")])
def test_no_command_writes_to_another_hosts(kernel, volume, loop, how, args):
    prepare(kernel, volume, how)
    if " fast " in args:
        kernel.ok("create", "more", "--pool", "fast", "--cache", loop("fast.img", 64), "--origin",
                  loop("more.img", 20), "-y")
    words = args.replace("NEW", loop("new.img", 64)).replace("ORIGIN", volume[1]).split()
    mine = kernel.conf.read_text()
    become(kernel, f"host_id = {OTHER}\n")
    before, state = contents(volume), kernel.state
    r = kernel(*words, "-y")
    assert r.returncode == 2 and "belongs to another host" in r.stderr and "hybridctl adopt takes it over" in r.stderr
    assert contents(volume) == before and kernel.state == state
    kernel.conf.write_text(mine)
    kernel.ok(*words, "-y")


def test_a_volume_used_here_once_can_be_attached(kernel, volume, loop):
    """With activate --foreign it is in use here, and nowhere else."""
    prepare(kernel, volume, "detached")
    become(kernel, f"host_id = {OTHER}\n")
    kernel.ok("activate", "vol", "--foreign")
    kernel.ok("create", "more", "--pool", "fast", "--cache", loop("fast.img", 64), "--origin",
              loop("more.img", 20), "-y")
    kernel.ok("attach", "fast", "vol", "-y")
    assert owners(kernel, volume[1]) == [OTHER]


def test_foreign_uses_once(kernel, volume):
    mine = own_id(kernel)
    become(kernel, f"host_id = {OTHER}\n")
    kernel.ok("activate", "vol", "--foreign")
    assert states(kernel) == {"vol-pool": "running", "vol": "running"}
    kernel.ok("deactivate", "vol")
    assert owners(kernel, *volume) == [mine] * 2 and kernel("activate", "vol").returncode == 2
    kernel.ok("activate", "--all", "--foreign")
    assert kernel.devices == ["vol-pool", "vol"]
    assert kernel("activate", "--auto", "--all", "--foreign").returncode == 1


@pytest.mark.parametrize("args", [("activate", "vol", "--foreign"), ("adopt", "vol"), ("release", "vol")])
def test_it_asks_where_the_pool_was_not_stopped(kernel, volume, args):
    not_stopped(volume[0])
    become(kernel, f"host_id = {OTHER}\n")
    before = contents(volume)
    r = kernel(*args)
    assert r.returncode == 2 and "vol-pool was not stopped" in r.stderr
    assert contents(volume) == before and kernel.devices == []
    kernel.ok(*args, "-y")


def test_adopt_and_release(kernel, volume):
    """The pool and its origins; an origin that was not there follows when it comes."""
    cache, origin = volume
    mine = own_id(kernel)
    become(kernel, f"host_id = {OTHER}\n")
    before = contents(volume)
    out = kernel.ok("adopt", "vol", "--test")
    assert out.count(f"host id {OTHER}") == 2 and contents(volume) == before
    kernel.ok("adopt", "vol")
    assert owners(kernel, *volume) == [OTHER] * 2
    kernel.ok("activate", "vol")
    assert kernel("release", "vol").returncode == 5
    kernel.ok("deactivate", "vol")
    kernel.scan = [cache.removeprefix("/dev/")]
    assert "pool vol-pool now belongs to no host" in kernel.ok("release", "vol-pool")
    kernel.scan.append(origin.removeprefix("/dev/"))
    assert owners(kernel, *volume) == [None, OTHER]
    become(kernel, f"host_id = {mine}\n")
    assert [event(kernel, d) for d in volume] == ["complete"] * 2
    kernel.ok("activate", "--auto", "--all")
    assert owners(kernel, *volume) == [mine] * 2


def test_an_origin_that_ran_alone_on_another_host(kernel, volume):
    """It may still be in use there: this host's pool does not take it until it is adopted."""
    mine = own_id(kernel)
    edit_superblocks(volume[1], {100: b"\2", 688: uuid.UUID(OTHER).bytes})
    before = contents(volume)
    assert [event(kernel, d) for d in volume] == ["complete", "foreign"]
    assert states(kernel) == {"vol-pool": "inactive", "vol": "foreign"}
    r = kernel("activate", "--auto", "--all")
    assert "ran without its cache, on another host" in r.stderr and contents(volume) == before
    assert kernel.devices == ["vol-pool"] and event(kernel, volume[1]) == "foreign"
    assert kernel("adopt", "vol").returncode == 2
    kernel.ok("adopt", "vol", "-y")
    assert owners(kernel, *volume) == [mine] * 2
    kernel.ok("activate", "vol")
    assert kernel.devices == ["vol-pool", "vol"]


def test_adopt_makes_an_id(kernel, volume):
    become(kernel, "")
    kernel.ok("adopt", "vol-pool")
    assert owners(kernel, *volume) == [own_id(kernel)] * 2


def test_adopt_of_an_origin_alone(kernel, volume):
    become(kernel, f"host_id = {OTHER}\n")
    kernel.scan = [volume[1].removeprefix("/dev/")]
    assert kernel("adopt", "vol").returncode == 2
    kernel.ok("adopt", "vol", "-y")
    kernel.scan.append(volume[0].removeprefix("/dev/"))
    mine, other = owners(kernel, *volume)
    assert other == OTHER and mine != OTHER
    # The pool's counts
    assert [event(kernel, d) for d in volume] == ["foreign"] * 2


def test_nobodys_become_ones_own(kernel, volume):
    """By whichever activation is the first, if there is an id."""
    mine = kernel.conf.read_text()
    kernel.ok("release", "vol")
    become(kernel, "")
    assert [event(kernel, d) for d in volume] == ["complete"] * 2
    kernel.ok("activate", "--auto", "--all")
    kernel.ok("deactivate", "vol")
    assert owners(kernel, *volume) == [None, None] and kernel.conf.read_text() == ""
    kernel.conf.write_text(mine)
    kernel.ok("activate", "vol")
    assert owners(kernel, *volume) == [own_id(kernel)] * 2


def test_nobodys_origin_alone_becomes_ones_own(kernel, volume):
    mine = own_id(kernel)
    kernel.ok("release", "vol")
    kernel.ok("scan", "--udev", "--gone", number(volume[0]))
    event(kernel, volume[1])
    kernel.ok("activate", "--auto", "--all", "--degraded")
    assert kernel.devices == ["vol"] and owners(kernel, volume[1]) == [mine]


def refused_unless_named(kernel, volume):
    """By another host in any case; and the host has no id from then on."""
    for d in volume:
        event(kernel, d)
    become(kernel, f"host_id = {OTHER}\n")
    assert kernel("activate", "--auto", "--named", "vol").returncode == 2
    become(kernel, "")
    assert kernel("activate", "--auto", "vol").returncode == 2 and kernel.devices == []


def test_named_to_an_initramfs(kernel, volume):
    """Without an id whoever's it is; with one only what is not listed."""
    refused_unless_named(kernel, volume)
    before = contents(volume)
    not_stopped(volume[0])
    kernel.ok("activate", "--auto", "--named", "vol")
    assert kernel.devices == ["vol-pool", "vol"]
    assert contents(volume)[1] == before[1]
    for words in ("--named", "vol"), ("--auto", "--named", "--all"):
        assert kernel("activate", *words).returncode == 1


def test_named_to_an_initramfs_after_a_run_without_its_cache(kernel, volume):
    """Then the origin's own id counts, too, and is this host's as that of the pool is."""
    edit_superblocks(volume[1], {100: b"\2"})
    mine = owners(kernel, *volume)
    refused_unless_named(kernel, volume)
    kernel.ok("activate", "--auto", "--named", "vol")
    assert kernel.devices == ["vol-pool", "vol"] and owners(kernel, *volume) == mine


# What comes up by itself ----------------------------------------------------------------

@pytest.fixture
def three(kernel, volume, loop):
    """A second volume on the pool, and another pool: devices by name."""
    kernel.ok("activate", "vol")
    found = {"vol-pool": volume[0], "vol": volume[1], "more": loop("more.img", 32)}
    kernel.ok("attach", "vol-pool", "more", "--origin", found["more"], "-y")
    found |= {"fast": loop("fast.img", 64), "other": loop("other.img", 32)}
    kernel.ok("create", "other", "--cache", found["fast"], "--origin", found["other"], "--pool", "fast", "-y")
    kernel.ok("deactivate", "--all")
    return found


@pytest.mark.parametrize("text,up,unlisted", [
    ("autoactivate = all", {"vol-pool", "vol", "more", "fast", "other"}, set()),
    ("autoactivate = none", set(), {"vol-pool", "vol", "more", "fast", "other"}),
    ("autoactivate = listed", set(), {"vol", "more", "other"}),
    ("autoactivate = listed\nautoactivate_list = vol-pool", {"vol-pool", "vol", "more"}, {"other"}),
    ("autoactivate = listed\nautoactivate_list = more other", {"vol-pool", "more", "fast", "other"}, {"vol"}),
    ("autoactivate = listed\nautoactivate_list = UUID", {"vol-pool", "more"}, {"vol", "other"}),
    ("autoactivate_list = vol", {"vol-pool", "vol", "more", "fast", "other"}, set())])
def test_autoactivate(kernel, three, text, up, unlisted):
    uuid_of_more = keys(kernel("probe", three["more"], "--export"))["HYBRID_VOLUME_UUID"]
    kernel.conf.write_text(f"host_id = {own_id(kernel)}\n{text.replace('UUID', uuid_of_more)}\n")
    assert {name for name, d in three.items() if event(kernel, d) == "unlisted"} == unlisted
    kernel.ok("activate", "--auto", "--all", "--degraded")
    assert set(kernel.devices) == up
    # As the units do
    for d in three.values():
        k = keys(kernel("scan", "--udev", d))
        kernel.ok("activate", "--auto", k["HYBRID_MEMBER_UUID"])
    assert set(kernel.devices) == up
    # An initramfs was told to; a user says it
    kernel.ok("activate", "--auto", "--named", "vol")
    kernel.ok("activate", "--all")
    assert set(kernel.devices) == set(three)


@pytest.mark.parametrize("which", ["cache", "origin"])
def test_nothing_removable_comes_up_by_itself(kernel, volume, removable, which):
    """An initramfs was told to; a user says it."""
    n = ["cache", "origin"].index(which)
    removable(volume[n])
    assert [event(kernel, d) for d in volume] == [["removable", "waiting"], ["complete", "removable"]][n]
    before = contents(volume)
    for words in ["--all"], ["--all", "--degraded"], ["vol"], ["vol", "--degraded"]:
        r = kernel("activate", "--auto", *words)
        assert r.returncode == 0 and f"{volume[n]} ({which} " in r.stderr, r
        assert "is on a removable disk: left alone" in r.stderr
        assert kernel.devices == [[], ["vol-pool"]][n] and contents(volume)[n] == before[n]
    kernel.ok("activate", "--auto", "--named", "vol")
    assert kernel.devices == ["vol-pool", "vol"]
    kernel.ok("deactivate", "--all")
    kernel.ok("activate", "vol")
    assert kernel.devices == ["vol-pool", "vol"]


def test_a_removable_origin_without_a_cache_does_not_come_up_by_itself(kernel, volume, removable):
    for d in volume:
        event(kernel, d)
    removable(volume[1])
    kernel.unplug(volume[0])
    r = kernel("activate", "--auto", "--all", "--degraded")
    assert r.returncode == 0 and "removable disk: left alone" in r.stderr and kernel.devices == []
    kernel.ok("activate", "vol", "--degraded")
    kernel.plug(volume[0])
    # In use it stays as it is
    kernel.ok("activate", "--auto", "--all")
    assert kernel.device("vol")["alone"] and kernel.devices == ["vol", "vol-pool"]
    kernel.ok("activate", "vol")
    assert not kernel.device("vol")["alone"]
    kernel.ok("detach", "vol")
    kernel.ok("deactivate", "--all")
    assert event(kernel, volume[1]) == "removable"
    assert "left alone" in kernel("activate", "--auto", "--all").stderr and "vol" not in kernel.devices
    kernel.ok("activate", "vol")
    assert "vol" in kernel.devices


def test_an_origin_alone_that_is_not_listed(kernel, volume):
    with kernel.conf.open("a") as f:
        f.write("autoactivate = none\n")
    assert event(kernel, volume[1]) == "unlisted"
    kernel.ok("activate", "--auto", "--all", "--degraded")
    assert kernel.devices == []


@pytest.mark.parametrize("name, which", [("vol-pool", 0), ("vol", 1)])
def test_an_owner_in_one_copy_is_mended_by_the_same_command(kernel, volume, name, which):
    """A power cut between the two copies left the older one to another host."""
    kernel.ok("activate", "vol")
    kernel.ok("detach", "vol")
    kernel.ok("deactivate", "vol-pool")
    edit_superblocks(volume[which], {104: (9).to_bytes(8, "little")}, [0])
    edit_superblocks(volume[which], {688: uuid.UUID(OTHER).bytes}, [1])
    mine = own_id(kernel)
    kernel.ok("adopt", name, "-y")
    edit_superblocks(volume[which], {96: b"\7"}, [0])
    assert owners(kernel, volume[which]) == [mine]


@pytest.mark.parametrize("copy", [0, 1])
def test_a_cache_device_with_one_good_copy(kernel, volume, copy):
    """activate names the step, and that step mends it."""
    edit_superblocks(volume[0], {96: b"\7"}, [copy])
    r = kernel("activate", "vol")
    assert f"to mend it, deactivate its pool, then hybridctl repair {volume[0]}" in r.stderr, r
    kernel.ok("deactivate", "vol")
    assert "only one good superblock" in kernel("activate", "vol").stderr
    kernel.ok("deactivate", "vol")
    kernel.ok("repair", volume[0], "-y")
    assert "good superblock" not in kernel("activate", "vol").stderr


@pytest.mark.parametrize("how, which, command", [
    *(("detached", 1, command) for command in ("create new --pool ssd --cache DEV --origin FREE",
                                               "create new --pool ssd --cache DEV --origin FREE --test",
                                               "replace-cache fast --cache DEV")),
    *(("here", which, command) for which in (0, 1)
      for command in ("create new --pool ssd --cache DEV --origin FREE", "replace-cache fast --cache DEV",
                      "create new --pool ssd --cache FREE --origin DEV", "attach fast new --origin DEV"))])
def test_no_command_overwrites_another_hosts(kernel, volume, loop, how, which, command):
    """Even with --force; wipe is the way to give it up."""
    prepare(kernel, volume, how)
    kernel.ok("create", "more", "--pool", "fast", "--cache", loop("fast.img", 64), "--origin", loop("more.img", 20),
              "-y")
    words = command.replace("DEV", volume[which]).replace("FREE", loop("free.img", 64)).split()
    words += ["-y", "--wipe-signatures", "--force"]
    become(kernel, f"host_id = {OTHER}\n")
    before, state = contents(volume), kernel.state
    r = kernel(*words)
    assert r.returncode == 2 and f"{volume[which]} (" in r.stderr and "belongs to another host" in r.stderr, r
    assert f"hybridctl wipe {volume[which]} gives it up" in r.stderr
    assert contents(volume) == before and kernel.state == state
    kernel.ok("wipe", volume[which], "-y", "--wipe-signatures")
    kernel.ok(*words)
