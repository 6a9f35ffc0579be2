# SPDX-License-Identifier: GPL-2.0-or-later
"""The tools recognise an origin in place under each kernel, and after mkfs on its volume."""
import os
import subprocess
import uuid

import pytest

from cli.test_refusals import signatures

# As in userspace/lib/units.c
NAMESPACE = uuid.UUID("6b1d073e-529f-4c41-8a66-1b3cd094e825")
WWID = "t10.tests disk-1"


def out(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def disk(kernel, loop, tmp_path):
    """A disk with a WWID. sysfs is a copy for hybridctl, as a loop device has none."""
    path = loop("disk.img", 64)
    tool, sys = kernel.tool, out("realpath", f"/sys/block/{path.removeprefix('/dev/')}")
    copy, events = tmp_path / "sys", tmp_path / "events"
    copy.mkdir()
    events.touch()
    kernel.tool = tmp_path / "tool"
    kernel.tool.write_text(f"""#!/bin/sh
export SYSTEMD_DEVICE_VERIFY_SYSFS=0
exec unshare -m sh -c '
mount -t tmpfs none {copy}
cp -a {sys}/. {copy} 2>/dev/null
if [ -f {tmp_path}/dm ]; then mkdir {copy}/dm; cp {tmp_path}/dm {copy}/dm/uuid
else echo "{WWID}" > {copy}/wwid; fi
for part in {copy}/loop*p1; do [ ! -d $part ] || cat {events} >> $part/uevent; done
mount --bind {copy} {sys}; mount -o remount,ro,bind {sys}
exec {tool} "$@"' sh "$@"
""")
    kernel.tool.chmod(0o755)
    return path


@pytest.fixture
def mapped(disk, tmp_path):
    """mapped(DM_UUID): from now on the disk is a device-mapper device."""
    return lambda uuid: (tmp_path / "dm").write_text(f"{uuid}\n") and disk


@pytest.fixture
def newer(tmp_path):
    """newer(PARTUUID): from now on the kernel says it in its events; newer(""): it does not."""
    return lambda text: (tmp_path / "events").write_text(text and f"PARTUUID={text}\n")


@pytest.fixture
def part(kernel, disk):
    """Its partition, and the UUID of that."""
    subprocess.run(["sfdisk", "-q", "--no-reread", "--no-tell-kernel", disk], text=True, check=True,
                   input="label: gpt\nsize=32M\n")
    out("partx", "-a", disk)
    kernel.scan[kernel.scan.index(disk.removeprefix("/dev/"))] += "p1"
    node = f"{disk}p1"
    yield node, out("blkid", "-p", "-s", "PART_ENTRY_UUID", "-o", "value", node)
    out("partx", "-d", disk)


def of(text):
    return str(uuid.uuid5(NAMESPACE, text))


def entry(kernel):
    """Words of the line of the only volume."""
    (lines,) = kernel.state["volumes"].values()
    (line,) = lines
    return line.split()


def recorded(kernel):
    return entry(kernel)[4]


def record(kernel, text):
    """As if that had been its identity when it was made."""
    words = entry(kernel)
    words[4] = of(text)
    kernel.change(volumes={pool: [" ".join(words)] for pool in kernel.state["volumes"]})


def boot(kernel, *more):
    kernel.change(devices=[])
    return kernel("activate", "--all", *more)


def comes_up(kernel):
    r = boot(kernel)
    assert r.returncode == 0 and kernel.devices == ["vol-pool", "vol"], r.stderr
    return True


@pytest.fixture
def create(kernel, loop):
    """create(origin): vol is on it, in place."""
    cache = loop("cache.img", 64)
    return lambda origin: kernel.ok("create", "vol", "--cache", cache, "--origin", origin, "--in-place", "-y")


KERNELS = ["6.1", "7.3"]


@pytest.mark.parametrize("then", KERNELS)
@pytest.mark.parametrize("now", KERNELS)
def test_a_partition_under_another_kernel(kernel, create, part, newer, now, then):
    """Only newer ones say PARTUUID in their events, but the same is recorded under all."""
    origin, partuuid = part
    newer(partuuid if now == "7.3" else "")
    create(origin)
    assert recorded(kernel) == of(f"disk:PARTUUID={partuuid}:{32 << 11}")
    newer(partuuid if then == "7.3" else "")
    assert comes_up(kernel)


@pytest.mark.parametrize("label", ["dos", "gpt"])
def test_another_partition_in_its_place(kernel, create, disk, label):
    """In a table other than GPT it has the PARTUUID of the one that was there."""
    def table(lines):
        subprocess.run(["sfdisk", "-q", "--no-reread", "--no-tell-kernel", disk], text=True, check=True,
                       input=f"label: {label}\nlabel-id: {'0x' + '5' * 8 if label == 'dos' else uuid.uuid4()}\n{lines}")
        subprocess.run(["partx", "-d", disk], capture_output=True)
        out("partx", "-a", disk)

    kernel.scan[kernel.scan.index(disk.removeprefix("/dev/"))] += "p1"
    table("start=4M, size=24M\n")
    create(f"{disk}p1")
    assert comes_up(kernel)
    table("start=28M, size=24M\n")
    try:
        assert boot(kernel).returncode == 7 and kernel.devices == ["vol-pool"]
    finally:
        out("partx", "-d", disk)


@pytest.mark.parametrize("make", [["mkfs.ext4", "-qF"], ["mkswap", "-q"]])
def test_a_disk_gets_its_contents_later(kernel, create, disk, make):
    """It was recorded by its WWID, which mkfs leaves alone, and so does the next change of a UUID."""
    create(disk)
    assert recorded(kernel) == of(f"disk:wwid={WWID}:{64 << 11}")
    out(*make, disk)
    assert comes_up(kernel)
    out(*make, disk)
    assert comes_up(kernel)


@pytest.mark.parametrize("kind", ["LUKS1", "LUKS2", "part1-LUKS2"])
def test_luks_under_another_name(kernel, create, mapped, kind):
    """The name of the mapping is nothing of the origin's."""
    part, luks = kind.removesuffix(kind[-5:]), kind[-5:]
    luks = f"{part}CRYPT-{luks}-0f1e2d3c4b5a69788796a5b4c3d2e1f0"
    create(mapped(f"{luks}-old-name"))
    assert recorded(kernel) == of(f"disk:dm/uuid={luks}:{64 << 11}")
    mapped(f"{luks}-other")
    assert comes_up(kernel)
    mapped(luks.replace("f0", "f1") + "-old-name")
    assert boot(kernel).returncode == 7 and kernel.devices == ["vol-pool"]


@pytest.mark.parametrize("uuid", ["CRYPT-PLAIN-name", "CRYPT-LOOPAES-0f1e2d3c4b5a69788796a5b4c3d2e1f0"])
def test_a_mapping_name_is_no_identity(kernel, loop, mapped, uuid):
    """Whatever is mapped under that name would be taken for the origin."""
    r = kernel("create", "vol", "--cache", loop("cache.img", 64), "--origin", mapped(uuid), "--in-place", "-y")
    assert r.returncode == 4 and "cannot be recognised later" in r.stderr, r


def test_an_event_names_the_recorded_identity(kernel, create, part):
    """Of all that the device has: its unit finds the volume by it."""
    origin, _ = part
    create(origin)
    out("mkfs.ext4", "-qF", origin)
    kernel.unplug(origin)
    assert boot(kernel, "--auto").returncode == 7
    kernel.scan.append(origin.removeprefix("/dev/"))
    words = kernel.ok("scan", "--udev", origin, env={"ID_FS_TYPE": "ext4"}).splitlines()
    assert f"HYBRID_MEMBER_UUID={recorded(kernel)}" in words and "HYBRID_STATE=in-place" in words
    kernel.ok("activate", "--auto", recorded(kernel))
    assert kernel.devices == ["vol-pool", "vol"]


def test_growth_keeps_the_kind(kernel, create, disk, tmp_path):
    """A disk recorded by its WWID goes on to be, whatever is made on it later."""
    create(disk)
    out("mkfs.ext4", "-qF", disk)
    os.truncate(tmp_path / "disk.img", 96 << 20)
    out("losetup", "-c", disk)
    kernel.ok("resize", "vol")
    assert recorded(kernel) == of(f"disk:wwid={WWID}:{96 << 11}")
    assert comes_up(kernel)


# A device that only looks like it ------------------------------------------------------------


def sign(kind, device, mib=64):
    """The device is a part of something else from now on."""
    with open(device, "r+b") as f:
        for place, data in signatures(mib << 20)[kind].items():
            f.seek(place)
            f.write(data)


@pytest.mark.parametrize("mode", [[], ["--mode", "writeback", "--force"]])
def test_dirty_data_waits_for_the_user(kernel, loop, disk, mode):
    """In any mode: a change of the mode takes effect before the data is written back."""
    kernel.ok("create", "vol", "--cache", loop("cache.img", 64), "--origin", disk, "--in-place", "-y", *mode)
    kernel.change(dirty_vol=1)
    r = boot(kernel, "--auto")
    assert r.returncode == 2 and kernel.devices == ["vol-pool"] and "it never comes up by itself" in r.stderr
    assert ("is in place and in writeback mode" if mode else "is in place and has dirty data") in r.stderr
    assert "HYBRID" not in kernel.ok("scan", "--udev", disk)
    assert comes_up(kernel)


@pytest.mark.parametrize("kind", ["LVM2_member", "linux_raid_member", "bcache", "zfs_member", "drbd"])
def test_a_disk_that_became_a_part(kernel, create, disk, kind):
    """Of something that other tools assemble. Its user may know that it is the volume's own contents."""
    create(disk)
    sign(kind, disk)
    for auto in [], ["--auto"]:
        r = boot(kernel, *auto)
        assert r.returncode == 2 and kernel.devices == ["vol-pool"]
        assert f"volume vol: {disk} looks like its origin, but has become something else: {kind}" in r.stderr
        assert f"next: hybridctl activate vol --device {disk}, only if" in r.stderr
    assert "HYBRID" not in kernel.ok("scan", "--udev", disk)
    kernel.ok("activate", "vol", "--device", disk)
    assert kernel.devices == ["vol-pool", "vol"]


def test_a_disk_that_became_another_volumes(kernel, create, disk, loop):
    create(disk)
    kernel.ok("deactivate", "--all")
    kernel.ok("create", "b", "--cache", loop("other.img", 64), "--origin", disk, "-y", "--wipe-signatures")
    kernel.change(devices=[])
    r = kernel("activate", "vol-pool")
    assert r.returncode == 2 and kernel.devices == ["vol-pool"]
    assert "has become something else: dm-hybrid origin b" in r.stderr
    kernel.ok("activate", "b")
    assert kernel.devices == ["vol-pool", "b-pool", "b"]


def test_one_volume_for_each_disk(kernel, create, disk):
    """A second one would be recognised by the file system, and the first by the disk."""
    create(disk)
    kernel.ok("deactivate", "vol", "--keep-pool")
    out("mkfs.ext4", "-qF", disk)
    attach = "attach", "vol-pool", "b", "--in-place", "--origin", disk, "-y"
    for more in [], ["--test"]:
        r = kernel(*attach, *more)
        assert r.returncode == 5, r
        assert f"{disk} looks like the origin of volume vol of pool vol-pool\n  next: hybridctl detach that" in r.stderr
    kernel.ok("detach", "vol")
    kernel.ok(*attach)
    assert kernel.devices == ["vol-pool", "b"]


@pytest.fixture
def clone(kernel, create, disk, loop):
    """The disk of vol, with the file system of b: a copy of the disk of b."""
    first = loop("first.img", 64)
    out("mkfs.ext4", "-q", first)
    create(disk)
    kernel.ok("attach", "vol-pool", "b", "--in-place", "--origin", first, "-y")
    kernel.change(devices=[])
    kernel.unplug(first)
    out("dd", f"if={first}", f"of={disk}", "bs=1M", "status=none")
    return disk


def test_a_disk_with_the_contents_of_another(kernel, clone):
    r = kernel("activate", "--all")
    assert r.returncode == 2 and kernel.devices == ["vol-pool"]
    assert f"{clone} looks like the origin of two volumes: vol and b" in r.stderr
    kernel.ok("activate", "b", "--device", clone)
    assert kernel.devices == ["vol-pool", "b"]


# Recorded by its file system ---------------------------------------------------------------

CHANGED = "or the UUID of its file system has changed since it was recorded"


@pytest.fixture
def changed(kernel, create, loop):
    """The origin; its file system has another UUID than at the time of create."""
    origin = loop("fs.img", 16)
    out("mkfs.ext4", "-q", origin)
    create(origin)
    out("mkfs.ext4", "-qF", origin)
    return origin


def test_another_uuid(kernel, changed):
    """Told with what to do, which helps."""
    r = boot(kernel)
    assert r.returncode == 7 and kernel.devices == ["vol-pool"] and CHANGED in r.stderr
    assert "connect it, then activate again; if it is here, hybridctl detach vol, and attach it again" in r.stderr
    text = kernel("status", "vol").stdout
    assert "the UUID of its file system may have changed" in text and "CACHING IN PLACE in hybridctl(8)" in text
    kernel.ok("detach", "vol")
    kernel.ok("attach", "vol-pool", "vol", "--in-place", "--origin", changed, "-y")
    assert comes_up(kernel)


def test_another_uuid_while_dirty(kernel, changed):
    """To detach it would give that data up."""
    kernel.change(dirty_vol=1)
    r = boot(kernel)
    assert r.returncode == 7 and CHANGED in r.stderr and "detach" not in r.stderr
    assert "leave it as it is: see CACHING IN PLACE in hybridctl(8)" in r.stderr
    assert kernel("detach", "vol", "-y").returncode
    # What the page has the user fill in
    volume, pool = entry(kernel)[2], "vol-pool"
    fields = kernel.ok("list", "-o", "name,id,uuid,size", "--units", "s", "--noheadings", "vol").split()
    assert fields == ["vol", "0", volume, f"{16 << 11}s"] and pool in kernel.devices


def test_another_uuid_while_active(kernel, changed):
    kernel.change_device("vol", open_count=1)
    kernel.ok("detach", "vol", "--live")
    kernel.ok("attach", "vol-pool", "vol", "--live", "--in-place", "--origin", changed, "-y")
    assert comes_up(kernel)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("dirty", [0, 3])
def test_attach_in_use_that_is_killed(kernel, create, loop, own, dirty):
    """After the entry, before the table.  own: a user's device, which has no UUID yet."""
    origin = loop("fs.img", 16)
    out("mkfs.ext4", "-q", origin)
    create(origin)
    kernel.change_device("vol", open_count=1)
    kernel.ok("detach", "vol", "--live")
    if own:
        kernel.change_device("vol", uuid="")
    words = ["attach", "vol-pool", "vol", "--live", "--in-place", "--origin", origin, "-y"]
    assert kernel(*words, env={"HYBRID_FAKE_SIGNAL": "9 switch vol"}).returncode == -9
    assert kernel.device("vol")["alone"] and entry(kernel)
    kernel.change(dirty_vol=dirty)
    r = kernel(*words)
    if dirty:
        assert r.returncode == 5 and kernel.device("vol")["alone"]
    else:
        assert r.returncode == 0 and not kernel.device("vol")["alone"], r.stderr
        assert comes_up(kernel)


def test_a_formatted_origin_has_no_other_uuid(kernel, loop):
    cache, origin = loop("cache.img", 64), loop("origin.img", 16)
    kernel.ok("create", "vol", "--cache", cache, "--origin", origin, "-y")
    kernel.unplug(origin)
    r = boot(kernel)
    assert r.returncode == 7 and ") is missing\n  next: connect it, then activate again\n" in r.stderr
