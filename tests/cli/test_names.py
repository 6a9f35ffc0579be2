# SPDX-License-Identifier: GPL-2.0-or-later
"""Names that two pools or volumes would share, in use or not."""
import json
import subprocess
import uuid

import pytest

from .test_boot import edit_superblocks, keys

OTHER = uuid.UUID("11111111-2222-3333-4444-555555555555")


@pytest.fixture
def devs(kernel, loop):
    """data was detached from its active pool; new is blank."""
    devs = {name: loop(f"{name}.img", mib) for name, mib in (("ssd", 64), ("data", 20), ("new", 24))}
    kernel.ok("create", "data", "--cache", devs["ssd"], "--origin", devs["data"], "-y")
    kernel.ok("detach", "data")
    return devs


def contents(*devices):
    return [open(d, "rb").read(2 << 20) for d in devices]


def refused(kernel, words, path, *says):
    """Before anything is written, with the other one's path."""
    state = kernel.state
    r = kernel(*words.split(), "-y")
    assert r.returncode == 5 and "already exists, on " + path in r.stderr, r.stderr
    assert f"next: choose another name; or hybridctl rename {path} NEWNAME; or hybridctl wipe {path}" in r.stderr
    assert kernel.state == state
    for text in says:
        assert text in r.stderr


def test_a_detached_volumes(kernel, devs):
    before = contents(devs["new"], devs["data"])
    refused(kernel, f"attach data-pool data --origin {devs['new']}", devs["data"], "a volume data already")
    refused(kernel, f"attach data-pool data --origin {devs['new']} --test", devs["data"])
    subprocess.run(["mke2fs", "-q", devs["new"]], check=True)
    refused(kernel, f"attach data-pool data --origin {devs['new']} --in-place", devs["data"])
    subprocess.run(["wipefs", "-qa", devs["new"]], check=True)
    assert contents(devs["data"]) == before[1:]


@pytest.mark.parametrize("way", ["wipe OLD -y", "rename OLD was-data"])
def test_what_to_do(kernel, devs, way):
    kernel.ok(*way.replace("OLD", devs["data"]).split())
    kernel.ok("attach", "data-pool", "data", "--origin", devs["new"], "-y")
    assert kernel.devices == ["data-pool", "data"]


def test_its_own(kernel, devs, loop):
    """A volume keeps its name; and the name of what is overwritten is free."""
    kernel.ok("attach", "data-pool", "data", "-y")
    kernel.ok("detach", "data", "--live")
    kernel.ok("attach", "data-pool", "data", "-y")
    kernel.ok("deactivate", "data")
    kernel.change(volumes={})
    kernel.ok("create", "data", "--cache", devs["ssd"], "--origin", devs["data"], "--force", "--wipe-signatures", "-y")
    kernel.ok("deactivate", "data")
    # The pool is overwritten, and its volume is not
    refused(kernel, f"create data --cache {devs['ssd']} --origin {devs['new']} --force --wipe-signatures", devs["data"])
    refused(kernel, f"create new --pool data-pool --cache {loop('more.img', 64)} --origin {devs['new']}", devs["ssd"],
            "a pool data-pool already")


def test_a_pools(kernel, devs, loop):
    """Pools and volumes have no names in common."""
    kernel.ok("deactivate", "data-pool")
    ssd = loop("more.img", 64)
    for words in "other --pool data-pool", "data-pool --pool other":
        refused(kernel, f"create {words} --cache {ssd} --origin {devs['new']}", devs["ssd"], "a pool data-pool already")


def test_another_hosts(kernel, devs):
    """It is not ours to rename or wipe."""
    edit_superblocks(devs["data"], {688: OTHER.bytes})
    kernel.announce(devs["data"])
    r = kernel("attach", "data-pool", "data", "--origin", devs["new"], "-y")
    assert r.returncode == 5 and f"a volume data already exists, on {devs['data']}" in r.stderr
    assert "next: choose another name\n" in r.stderr


def test_a_refused_members(kernel, devs, loop):
    copy = loop("copy.img", 20)
    subprocess.run(["dd", f"if={devs['data']}", f"of={copy}", "bs=1M", "conv=notrunc", "status=none"], check=True)
    kernel.announce(copy)
    r = kernel("attach", "data-pool", "data", "--origin", devs["new"], "-y")
    assert r.returncode == 5 and "which is refused, has the name data" in r.stderr and kernel.devices == ["data-pool"]


def test_one_that_comes_while_create_waits(kernel, devs, loop):
    ssd = loop("more.img", 64)
    kernel.unplug(devs["data"])
    with kernel.waits("create", "data", "--pool", "more", "--cache", ssd, "--origin", devs["new"], "-y") as r:
        kernel.plug(devs["data"])
    assert r.returncode == 5 and f"a volume data already exists, on {devs['data']}" in r.stderr
    assert kernel.devices == ["data-pool"] and not any(contents(devs["new"], ssd)[0])


# Two that came apart from each other --------------------------------------------------------

@pytest.fixture
def twins(kernel, devs):
    """Two volumes called data, both without a cache and closed: devices by UUID."""
    kernel.unplug(devs["data"])
    kernel.ok("attach", "data-pool", "data", "--origin", devs["new"], "-y")
    kernel.ok("detach", "data")
    kernel.plug(devs["data"])
    return {keys(kernel("probe", devs[name], "--export"))["HYBRID_VOLUME_UUID"]: devs[name] for name in ("data", "new")}


@pytest.mark.parametrize("words", [
    "activate data", "activate /dev/mapper/data", "attach data-pool data", "accept-loss data", "rename data other",
    "resize data", "export data", "adopt data", "lost data", "check data"])
def test_a_name_of_two(kernel, twins, words):
    before, state = contents(*twins.values()), kernel.state
    r = kernel(*words.split(), "-y")
    assert r.returncode == 4 and "it is not clear which" in r.stderr and "next: give the UUID" in r.stderr, r.stderr
    for text, device in twins.items():
        assert f"volume {text} on {device}" in r.stderr
    assert contents(*twins.values()) == before and kernel.state == state


def test_which_of_two_is_meant(kernel, twins):
    """The active one; or else the only one of this host."""
    old, new = twins
    edit_superblocks(twins[old], {688: OTHER.bytes})
    kernel.ok("activate", "data")
    assert kernel.device("data")["uuid"] == new
    assert "active already" in kernel.ok("activate", "data")
    kernel.ok("deactivate", "data")
    edit_superblocks(twins[old], {688: bytes(16)})
    kernel.ok("activate", old)
    kernel.ok("rename", "data", "was-data")
    kernel.ok("activate", "data")
    assert kernel.devices == ["data-pool", "was-data", "data"]


def test_doctor_names_them(kernel, twins):
    text = "volume data on {} and volume data on {} have the same name".format(
        *sorted(twins.values(), key=lambda device: int(device.removeprefix("/dev/loop"))))
    r = kernel("doctor")
    assert r.returncode == 7 and text in r.stdout and "next: hybridctl rename " in r.stdout
    kernel.ok("activate", list(twins)[0])
    active, other = twins.values()
    assert f"next: hybridctl rename {other} NEWNAME" in kernel("doctor").stdout
    kernel.ok("rename", other, "other")
    assert "the same name" not in kernel("doctor").stdout
    assert json.loads(kernel.ok("list", "--json", "-o", "name"))["volumes"]
