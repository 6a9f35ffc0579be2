# SPDX-License-Identifier: GPL-2.0-or-later
"""rename: pools and volumes get another name, in use or not, whatever is cut short meanwhile."""
import json
import signal
import subprocess
import uuid

import pytest

from cli.test_boot import edit_superblocks
from cli.test_life import ALONE, Superblock
from cli.test_life import superblock as whole
from cli.test_replace import Saved, bands, copies, lines

CONFIG = "autoactivate = listed\nautoactivate_list = {}\n"


@pytest.fixture
def devs(kernel, loop):
    """one and two on ssd, alone without a cache."""
    devs = {name: loop(f"{name}.img", mib) for name, mib in (("ssd", 64), ("one", 20), ("two", 24), ("alone", 16))}
    kernel.ok("create", "one", "--pool", "ssd", "--cache", devs["ssd"], "--origin", devs["one"], "-y")
    kernel.ok("attach", "ssd", "two", "--origin", devs["two"], "-y")
    kernel.ok("attach", "ssd", "alone", "--origin", devs["alone"], "-y")
    kernel.ok("detach", "alone", "--live")
    return devs


class World(Saved):
    def same_data(self):
        """Nothing but names and sequences has changed."""
        for device, before in self.bands.items():
            for old, now in zip(before, bands(device)):
                differs = [i for i in range(len(old)) if old[i] != now[i]]
                assert len({i // 4096 for i in differs}) < 2
                assert all(16 <= i % 4096 < 20 or 104 <= i % 4096 < 176 for i in differs)


def closed(kernel):
    kernel.ok("deactivate", "two", "--keep-pool")


def used(name):
    return lambda kernel: kernel.change_device(name, open_count=1)


def reported(kernel, device, name, new):
    """udev has another name for what is there."""
    rows = json.loads(kernel.ok("list", "--json", "-o", "all"))["volumes"]
    assert name not in [r["name"] for r in rows] and new in [r["name"] for r in rows]


# The kind of node that is renamed, and its use meanwhile
CASES = {
    "pool": ("ssd", used("ssd")),
    "pool, closed": ("ssd", lambda kernel: kernel.ok("deactivate", "ssd")),
    "volume": ("one", used("one")),
    "volume, suspended": ("one", lambda kernel: kernel.change_device("one", suspended=1)),
    "volume, closed": ("two", closed),
    "no cache": ("alone", used("alone")),
    "no cache, closed": ("alone", lambda kernel: kernel.ok("deactivate", "alone")),
}


def check(kernel, devs, saved, name, new):
    """All that says how it is called says the same."""
    assert whole(devs[name]).name == new
    if name in ("one", "two"):
        pool = str(uuid.UUID(bytes=whole(devs["ssd"]).pool))
        assert set(lines(kernel, pool)) == {"one", "two"} - {name} | {new}
    was = [d["name"] for d in json.loads(saved.state)["devices"]]
    assert kernel.devices == [new if n == name else n for n in was]
    saved.same_data()
    reported(kernel, devs[name], name, new)


@pytest.mark.parametrize("case", CASES)
def test_renamed(kernel, devs, case):
    name, prepare = CASES[case]
    prepare(kernel)
    saved = World(kernel, devs)
    out = kernel.ok("rename", name, "other")
    assert f"{name} is now called other" in out
    check(kernel, devs, saved, name, "other")
    # Its UUID and its number stay
    for before, now in zip(json.loads(saved.state)["devices"], kernel.state["devices"]):
        assert {**before, "name": 0} == {**now, "name": 0}
    assert "already has this name" in kernel.ok("rename", "other", "other")
    # After a boot, too
    kernel.change(devices=[])
    kernel.ok("activate", "--all")
    assert sorted(kernel.devices) == sorted({"ssd", "one", "two", "alone"} - {name} | {"other"})
    assert whole(devs[name]).name == "other"


def test_in_place(kernel, devs, loop):
    device = loop("three.img", 16)
    subprocess.run(["mke2fs", "-q", device], check=True)
    kernel.ok("attach", "ssd", "three", "--origin", device, "--in-place", "-y")
    before = bands(device)
    kernel.ok("rename", "three", "3")
    assert "3" in kernel.devices and bands(device) == before
    kernel.change(devices=[])
    kernel.ok("activate", "--all")
    assert "3" in kernel.devices
    # Without its pool nothing records it
    kernel.ok("detach", "3", "--live")
    r = kernel("rename", "3", "three")
    assert r.returncode == 2 and "nothing records the name" in r.stderr and "dmsetup rename" in r.stderr


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_done_with_test(kernel, devs, case):
    name, prepare = CASES[case]
    prepare(kernel)
    saved = World(kernel, devs)
    out = kernel.ok("rename", name, "other", "--test")
    assert "other" in out
    assert kernel.state == json.loads(saved.state)
    assert {device: bands(device) for device in devs.values()} == saved.bands


# Cut short ---------------------------------------------------------------------------------

def go_on(kernel, devs, saved, name, how):
    """@how: the command given again; an activation; one after the power has gone."""
    for device in devs.values():
        kernel.announce(device)
    # The copy that counts, and the entry
    current = Superblock(copies(devs[name])[0]).name
    if how == "again":
        # Given to what it is called now
        known = [r["name"] for r in json.loads(kernel.ok("list", "--json", "-o", "all"))["volumes"]]
        kernel.ok("rename", name if name in known else "other", "other")
        check(kernel, devs, saved, name, "other")
        return
    if how == "power":
        kernel.change(devices=[])
    kernel("activate", "--all")
    names = set(kernel.devices)
    assert names in ({"ssd", "one", "two", "alone"}, {"ssd", "one", "two", "alone"} - {name} | {"other"})
    new = name if name in names else "other"
    # What is durable counts
    if name in ("ssd", "alone"):
        assert new == current
    else:
        pool = str(uuid.UUID(bytes=Superblock(copies(devs["ssd"])[0]).pool))
        assert new in lines(kernel, pool)
        if how == "power":
            assert whole(devs[name]).name == new
    saved.same_data()


@pytest.mark.parametrize("how", ["again", "activate", "power"])
@pytest.mark.parametrize("case", CASES)
def test_killed_at_each_step(kernel, devs, case, how):
    name, prepare = CASES[case]
    prepare(kernel)
    saved = World(kernel, devs)
    kernel.clear_log()
    kernel.ok("rename", name, "other")
    steps = [step for step in dict.fromkeys(kernel.log) if not step.endswith(" volumes")]
    for step in steps:
        saved.restore()
        r = kernel("rename", name, "other", env={"HYBRID_FAKE_SIGNAL": f"{int(signal.SIGKILL)} {step}"})
        assert r.returncode == -9, (step, r)
        go_on(kernel, devs, saved, name, how)


@pytest.mark.parametrize("how", ["again", "activate", "power"])
@pytest.mark.parametrize("case", CASES)
def test_cut_in_a_superblock(kernel, build, devs, case, how):
    name, prepare = CASES[case]
    prepare(kernel)
    saved = World(kernel, devs)
    for n in range(1, 10):
        saved.restore()
        r = kernel("rename", name, "other",
                   env={"LD_PRELOAD": str(build / "faults.so"), "FAULT_CUT": f"{n} {n}"})
        if not r.returncode:
            break
        assert r.returncode == -9, (n, r)
        # A copy that is torn is made good by what writes it next
        head, tail = (bytes(b) for b in bands(devs[name]))
        assert copies(devs[name]), (n, head == tail)
        if len(copies(devs[name])) == 2:
            go_on(kernel, devs, saved, name, how)
        else:
            kernel.announce(devs[name])
            known = [x["name"] for x in json.loads(kernel.ok("list", "--json", "-o", "all"))["volumes"]]
            kernel.ok("rename", name if name in known else "other", "other")
            check(kernel, devs, saved, name, "other")
    assert n > 2


@pytest.mark.parametrize("case", CASES)
def test_each_step_fails(kernel, devs, case):
    """It is as it was, or says how to go on."""
    name, prepare = CASES[case]
    prepare(kernel)
    saved = World(kernel, devs)
    kernel.clear_log()
    kernel.ok("rename", name, "other")
    for step in [step for step in dict.fromkeys(kernel.log) if not step.endswith(" volumes")]:
        saved.restore()
        r = kernel("rename", name, "other", fail=step)
        assert r.returncode and f"{name} was not renamed" in r.stderr and "next: " in r.stderr, step
        assert kernel.devices == [d["name"] for d in json.loads(saved.state)["devices"]]
        assert whole(devs[name]).name == name
        saved.same_data()


def test_an_origin_that_cannot_be_written(kernel, build, devs):
    closed(kernel)
    r = kernel("rename", "two", "other", env={"LD_PRELOAD": str(build / "faults.so"),
                                              "FAULT_BAD": f"write {devs['two']} 0 {24 * 2048}"})
    assert r.returncode and "cannot write" in r.stderr and "two was not renamed" in r.stderr
    kernel.ok("activate", "two")
    assert "two" in kernel.devices and whole(devs["two"]).name == "two"


# What is refused, before anything is written ------------------------------------------------

def taken(kernel, devs):
    state = kernel.state
    state["devices"].append(dict(state["devices"][0], name="other", uuid=str(uuid.uuid4()), minor=77))
    kernel.path.write_text(json.dumps(state))


def foreign(kernel, devs):
    kernel.ok("host-id")
    kernel.ok("deactivate", "ssd")
    edit_superblocks(devs["ssd"], {688: bytes(range(16))})


def ran_alone(kernel, devs):
    kernel.ok("deactivate", "ssd")
    kernel.unplug(devs["ssd"])
    edit_superblocks(devs["two"], {100: bytes([ALONE])})
    kernel.ok("activate", "two")


def replacing(kernel, devs):
    edit_superblocks(devs["ssd"], {320: bytes(range(16))})


def clone(kernel, devs):
    subprocess.run(["dd", f"if={devs['alone']}", f"of={devs['two']}", "bs=1M", "count=1", "conv=notrunc",
                    "status=none"], check=True)


REFUSED = {
    "a/b": (["one", "a/b"], None, 1, "cannot be the name"),
    "empty": (["one", ""], None, 1, "cannot be the name"),
    "an option": (["--", "one", "-x"], None, 1, "cannot be the name"),
    "hidden": (["one", ".x"], None, 1, "cannot be the name"),
    "dm's own": (["one", "control"], None, 1, "cannot be the name"),
    "too long": (["one", "n" * 64], None, 1, "63"),
    "a space": (["one", "a b"], None, 1, "cannot be the name"),
    "missing": (["one"], None, 1, "rename needs"),
    "too many": (["one", "two", "three"], None, 1, "too many arguments"),
    "unknown": (["nothing", "other"], None, 4, "no pool or volume nothing"),
    "a volume's": (["one", "two"], None, 5, "a volume two already exists"),
    "a closed volume's": (["one", "two"], lambda k, d: closed(k), 5, "a volume two already exists"),
    "one without cache's": (["ssd", "alone"], lambda k, d: k.ok("deactivate", "alone"), 5,
                            "a volume alone already exists"),
    "a pool's": (["one", "ssd"], None, 5, "a pool ssd already exists"),
    "another device's": (["one", "other"], taken, 5, "other already exists"),
    "pool suspended": (["ssd", "other"], lambda k, d: k.change_device("ssd", suspended=1), 5, "ssd is suspended"),
    "its pool suspended": (["one", "other"], lambda k, d: k.change_device("ssd", suspended=1), 5,
                           "ssd is suspended"),
    "pool failed": (["ssd", "other"], lambda k, d: k.change_device("ssd", state="failed"), 7, "ssd is failed"),
    "its pool failed": (["one", "other"], lambda k, d: k.change_device("ssd", state="failed"), 7, "ssd is failed"),
    "pool not active": (["one", "other"], lambda k, d: k.ok("deactivate", "ssd"), 7, "hybridctl activate the pool"),
    "pool missing": (["two", "other"], lambda k, d: (k.ok("deactivate", "ssd"), k.unplug(d["ssd"])), 7,
                     "connect the cache device"),
    "ran alone": (["two", "other"], ran_alone, 7, "connect the cache device"),
    "another host's": (["ssd", "other"], foreign, 2, "belongs to another host"),
    "being replaced": (["ssd", "other"], replacing, 5, "is being replaced"),
    "a copy": (["one", "alone"], clone, 5, "already exists"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(kernel, devs, case):
    words, prepare, rc, says = REFUSED[case]
    if prepare:
        prepare(kernel, devs)
    saved = World(kernel, devs)
    r = kernel("rename", *words)
    assert r.returncode == rc and says in r.stderr and "next: " in r.stderr, r
    assert kernel.state["devices"] == json.loads(saved.state)["devices"]
    assert {k: v for k, v in kernel.state["volumes"].items() if v} == json.loads(saved.state)["volumes"]
    assert {device: bands(device) for device in devs.values()} == saved.bands


def test_a_detach_that_was_cut_short(kernel, devs):
    assert kernel("detach", "two", fail="message ssd forget").returncode
    r = kernel("rename", "two", "other")
    assert r.returncode == 5 and "was interrupted" in r.stderr and "next: " in r.stderr


# Who else has the old name ---------------------------------------------------------------------

FILES = {
    "fstab": "/dev/mapper/{} /srv ext4 defaults 0 2\n",
    "crypttab": "secret /dev/mapper/{} none luks\n",
    "default/grub": 'GRUB_CMDLINE_LINUX="quiet rd.hybrid.name={}"\n',
    "kernel/cmdline": "root=/dev/mapper/{} ro\n",
}


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_names_it(kernel, devs, tmp_path, file):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    # As part of another word, or in a comment, it is no name
    path.write_text("".join(FILES[file].format(n) for n in ("one2", "anyone")) + "# " + FILES[file].format("one"))
    assert "warning" not in kernel("rename", "one", "other").stderr
    path.write_text(FILES[file].format("other"))
    r = kernel("rename", "other", "one")
    assert r.returncode == 0 and f"{path} names other: write one there" in r.stderr


def test_hybrid_conf_names_it(kernel, devs):
    kernel.conf.write_text(CONFIG.format("one ssd"))
    r = kernel("rename", "one", "other")
    assert r.returncode == 0 and f"{kernel.conf} lists one: write other there" in r.stderr
    r = kernel("rename", "ssd", "nvme")
    assert f"{kernel.conf} lists ssd: write nvme there" in r.stderr
    assert "lists" not in kernel("rename", "two", "2").stderr


def test_after_the_pool_came_up_blank_its_origins_find_it(kernel, devs):
    """A pool in another's place goes on saying in whose."""
    edit_superblocks(devs["ssd"], {320: bytes(range(16)), 100: b"\x08"})
    kernel.ok("rename", "ssd", "other")
    assert copies(devs["ssd"])[0][320:336] == bytes(range(16))


def test_an_activation_by_udev_renames_nothing(kernel, devs):
    """Who gave a device another name by hand keeps it until asking."""
    state = kernel.state
    state["devices"][1]["name"] = "mine"
    kernel.path.write_text(json.dumps(state))
    kernel.ok("activate", "--auto", "--all")
    assert "mine" in kernel.devices
    kernel.ok("activate", "--all")
    assert "mine" not in kernel.devices and "one" in kernel.devices


def test_the_recorded_name_is_taken_meanwhile(kernel, devs):
    kill = {"HYBRID_FAKE_SIGNAL": f"{int(signal.SIGKILL)} rename one other"}
    assert kernel("rename", "one", "other", env=kill).returncode == -9
    taken(kernel, devs)
    r = kernel("activate", "--all")
    assert r.returncode in (5, 6) and "a device-mapper device of this name exists" in r.stderr
