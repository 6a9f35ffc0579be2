# SPDX-License-Identifier: GPL-2.0-or-later
"""Members under udevd and systemd: the host's, in a User Mode Linux guest.

Disks are plugged in and out as ubd devices; partitions, loop, md, LUKS, LVM, nbd stand on them.
"""
import json
import re
import subprocess
import time

import pytest

from guest import Disk

from .debian import TOP

MIB = 1 << 20
FS_UUID = "6a1b4a9e-6f3b-4c2e-b16e-30a4d1dcbd1f"
RUNNING = {"vol-pool": "running", "vol": "running"}
WAITING = {"vol-pool": "running", "vol": "incomplete"}	# for the origin
INACTIVE = {"vol-pool": "running", "vol": "inactive"}


class System:
    """A guest with systemd, and the disks that are plugged in."""

    def __init__(self, guest, directory):
        self.guest = guest
        self.directory = directory
        self.number = {}

    def run(self, command, **kw):
        return self.guest.run(command, **kw).out

    def rc(self, command):
        return self.guest.run(command, check=False).rc

    def file(self, name, mib):
        return Disk(self.directory / f"{name}.img", mib * MIB, name)

    def plug(self, disk):
        """Its device, and what follows has happened, but for timers."""
        number = next(n for n in range(1, 16) if n not in self.number.values())
        self.number[disk.name] = number
        dev = self.guest.plug(disk, number)
        self.settle()
        return dev

    def unplug(self, disk):
        self.guest.unplug(self.number.pop(disk.name))
        self.settle()

    def rule(self, number, text):
        """One more for udev; nothing: no more."""
        path = f"/run/udev/rules.d/{number}-test.rules"
        self.run(f"mkdir -p /run/udev/rules.d; rm -f {path}")
        if text:
            self.guest.write_file(path, text + "\n")
        self.run("udevadm control --reload")

    def settle(self):
        """Events are handled, and the units that they want have run."""
        self.run("""for i in 1 2; do
                udevadm settle
                until [ -z "$(systemctl list-jobs --no-legend)" ]; do sleep 0.1; done
            done""")

    def timers(self):
        """The last resorts that wait for their 30 seconds."""
        out = self.run("systemctl list-units --no-legend --plain --state=active 'hybrid-last*.timer'")
        return [line.split()[0] for line in out.splitlines()]

    def expire(self):
        """As if the 30 seconds were over."""
        for timer in self.timers():
            self.run(f"systemctl start {timer.replace('.timer', '.service')}; systemctl stop {timer}")
        self.settle()

    def info(self, dev):
        lines = self.run(f"udevadm info -q property {dev}").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def links(self, dev):
        return set(self.info(dev).get("DEVLINKS", "").split())

    def state(self, dev):
        """What udev was told to do about it; None: it is no member."""
        return self.info(dev).get("HYBRID_STATE")

    def rows(self):
        rows = json.loads(self.run("hybridctl list --json -o all"))["volumes"]
        return {row["name"]: row for row in rows}

    def states(self):
        return {name: row["state"] for name, row in self.rows().items()}

    def active(self, volume):
        return self.rc(f"dmsetup info {volume}") == 0

    def becomes(self, states):
        """What follows may take its time: LVM activates in a unit of its own."""
        end = time.monotonic() + 30 * self.guest.slow
        while self.states() != states and time.monotonic() < end:
            time.sleep(0.2)
        assert self.states() == states

    def members(self):
        return len(self.run("ls /run/hybrid/members").split())

    def journal(self):
        return self.run("journalctl -b --no-pager -o cat")

    def create(self, cache, origin, name="vol", options=""):
        self.run(f"hybridctl create {name} --cache {cache} --origin {origin} -y {options}")
        self.settle()
        assert self.states()[name] == "running"

    def knows(self, *devices):
        """Wait for the events of the new superblocks: udevadm settle may return before they come."""
        end = time.monotonic() + 30 * self.guest.slow
        while not all(self.state(dev) for dev in devices) and time.monotonic() < end:
            time.sleep(0.2)
        assert all(self.state(dev) for dev in devices)

    def deactivate(self):
        self.run("hybridctl deactivate --all")
        self.settle()
        assert "running" not in self.states().values()


@pytest.fixture(scope="session")
def installed(build, tmp_path_factory):	# noqa: F811
    """Rules and units, with hybridctl where it was built."""
    root = tmp_path_factory.mktemp("installed")
    subprocess.run(["make", "-s", "-f", TOP / "boot.mk", "install", f"O={root / 'o'}",
                    f"DESTDIR={root / 'root'}", f"sbindir={build}", "udevdir=/etc/udev",
                    "unitdir=/etc/systemd/system"], check=True)
    return root / "root"


@pytest.fixture
def system(make_guest, installed, tmp_path):
    s = System(make_guest(modprobe=["dm-hybrid"], systemd=installed), tmp_path)
    yield s
    if s.guest.running:
        assert "ordering cycle" not in s.journal()


@pytest.fixture
def volume(system):
    """(cache, origin): disks of an inactive volume, not plugged in."""
    disks = system.file("cache", 32), system.file("origin", 64)
    system.create(*(system.plug(d) for d in disks))
    system.deactivate()
    for d in disks:
        system.unplug(d)
    assert system.members() == 0
    return disks


# Order, and what others see ---------------------------------------------------------

@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["cache-first", "origin-first"])
def test_disks_in_either_order(system, volume, order):
    """Up with the second; members are hidden, the volume is a disk like any other."""
    devs = [system.plug(volume[order[0]])]
    assert system.states() == ({"vol": "incomplete"} if order[0] else WAITING)
    assert len(system.timers()) == order[0]
    system.run("udevadm monitor --udev --subsystem-match=block >/run/monitor 2>&1 & sleep 0.5")
    devs.append(system.plug(volume[order[1]]))
    system.becomes(RUNNING)
    # Scanned once: the event of its creation, before it is active, and one more
    kernel_name = system.run("basename $(readlink /dev/mapper/vol)").strip()
    assert re.findall(rf"(\w+) +/devices/virtual/block/{kernel_name} ",
                      system.run("cat /run/monitor")) == ["add", "change"]
    system.run(f"mkfs.ext4 -q -L inside -U {FS_UUID} /dev/mapper/vol")
    system.settle()
    for dev in devs:
        k = system.info(dev)
        assert (k["ID_FS_TYPE"], k["ID_FS_USAGE"], k["UDISKS_IGNORE"]) == (
            "dm_hybrid_member", "raid", "1")
        assert not [link for link in system.links(dev) if "/by-uuid/" in link or "/by-label/" in link]
    assert {"/dev/mapper/vol", f"/dev/disk/by-uuid/{FS_UUID}",
            "/dev/disk/by-label/inside"} <= system.links("/dev/mapper/vol")
    pool = system.info("/dev/mapper/vol-pool")
    assert system.links("/dev/mapper/vol-pool") == {"/dev/mapper/vol-pool"}
    assert (pool["SYSTEMD_READY"], pool["UDISKS_IGNORE"], pool["DM_NOSCAN"]) == ("0", "1", "1")
    # A volume's user may be LVM; members and pools are none of its business
    system.run("pvcreate -y /dev/mapper/vol")
    assert system.run("pvs --noheadings -o pv_name").split() == ["/dev/mapper/vol"]


def test_partitions_and_several_origins(system):
    """Three origins, two of them partitions, before the cache device; the disk is no member."""
    cache, parts, disk = system.file("cache", 32), system.file("parts", 130), system.file("disk", 64)
    dev = system.plug(parts)
    system.run(f"printf 'label: gpt\n,64M\n,\n' | sfdisk -q {dev}")
    system.settle()
    first, second = (f"{dev}{n}" for n in (1, 2))
    system.create(system.plug(cache), first)
    for origin, name in (second, "two"), (system.plug(disk), "three"):
        system.run(f"hybridctl attach vol-pool {name} --origin {origin} -y")
    system.deactivate()
    for d in (cache, parts, disk):
        system.unplug(d)
    system.plug(disk)
    dev = system.plug(parts)
    assert set(system.states().values()) == {"incomplete"} and system.members() == 3
    assert system.state(dev) is None and system.info(dev)["ID_PART_TABLE_TYPE"] == "gpt"
    system.plug(cache)
    system.becomes({**RUNNING, "two": "running", "three": "running"})


def test_without_a_cache(system, volume):
    """A volume that was detached is there at once, under its name; its old pool comes up beside it."""
    cache, origin = volume
    for d in volume:
        system.plug(d)
    system.becomes(RUNNING)
    system.run(f"mkfs.ext4 -q -U {FS_UUID} /dev/mapper/vol; hybridctl detach vol")
    # That was a write, and no reason to bring anything up
    system.settle()
    assert system.states() == {"vol-pool": "running", "vol": "inactive"}
    system.run("hybridctl activate vol")
    system.becomes({"vol-pool": "running", "vol": "no-cache"})
    system.deactivate()
    for d in volume:
        system.unplug(d)
    dev = system.plug(origin)
    assert system.states() == {"vol": "no-cache"} and system.timers() == []
    assert system.state(dev) == "complete" and system.rc("hybridctl status") == 0
    assert f"/dev/disk/by-uuid/{FS_UUID}" in system.links("/dev/mapper/vol")
    assert not [link for link in system.links(dev) if "/by-uuid/" in link]
    system.plug(cache)
    system.becomes({"vol-pool": "running", "vol": "no-cache"})


def test_an_exported_disk(system, volume):
    """A disk with a partition, at once and when it comes back; where that was cut short, the volume."""
    cache, origin = volume
    for d in volume:
        dev = system.plug(d)
    system.becomes(RUNNING)
    system.run(f"mkfs.ext4 -q -U {FS_UUID} /dev/mapper/vol; hybridctl detach vol")
    last = int(system.run(f"blockdev --getsz {dev}")) - 1024
    system.run("".join(f"dd if={dev} of=/run/{at} skip={at} count=8 status=none; " for at in (1024, last)))
    assert "the kernel does not know" not in system.run("hybridctl export vol -y 2>&1")
    system.settle()

    def is_ordinary():
        return (system.state(dev) is None and system.info(dev)["ID_PART_TABLE_TYPE"] == "gpt" and
                f"/dev/disk/by-uuid/{FS_UUID}" in system.links(f"{dev}1"))
    assert is_ordinary() and system.states() == {"vol-pool": "running"} and system.members() == 1
    system.run("".join(f"dd if=/run/{at} of={dev} seek={at} count=8 oflag=direct status=none; "
                       for at in (1024, last)))
    system.unplug(origin)
    dev = system.plug(origin)
    system.becomes({"vol-pool": "running", "vol": "no-cache"})
    assert f"/dev/disk/by-uuid/{FS_UUID}" in system.links("/dev/mapper/vol")
    assert system.rc(f"mount {dev}1 /mnt")
    system.run("hybridctl export vol -y")
    system.settle()
    assert is_ordinary()
    system.unplug(origin)
    dev = system.plug(origin)
    assert is_ordinary() and system.states() == {"vol-pool": "running"}


# What members may stand on ------------------------------------------------------------

def test_loop_and_nbd(system):
    """Found when they are connected, forgotten when they are not."""
    system.run("truncate -s 32M /run/c; truncate -s 64M /run/o; modprobe nbd nbds_max=2")
    system.run("printf '[generic]\nunixsock=/run/nbd\n[o]\nexportname=/run/o\n' >/run/nbd.conf && "
               "nbd-server -C /run/nbd.conf")
    connect = "nbd-client -unix /run/nbd -name o /dev/nbd0"
    system.run(f"losetup /dev/loop0 /run/c; {connect}")
    system.settle()
    system.create("/dev/loop0", "/dev/nbd0")
    # Else that they are members is news after it, and brings them up
    system.knows("/dev/loop0", "/dev/nbd0")
    system.deactivate()
    # Written to, though not by us: it stays as the administrator left it
    system.run("for d in loop0 nbd0; do dd if=/dev/$d of=/dev/$d bs=4k count=1 conv=fsync; done")
    system.settle()
    assert "running" not in system.states().values()
    system.run("losetup -d /dev/loop0; nbd-client -d /dev/nbd0")
    system.settle()
    assert system.members() == 0 and system.state("/dev/loop0") is None
    system.run(connect)
    system.settle()
    assert system.state("/dev/nbd0") == "degraded"
    system.run("losetup /dev/loop0 /run/c")
    system.settle()
    system.becomes(RUNNING)


def test_udev_looks_elsewhere(system):
    """udev misses a close while it handles an earlier event: each write tells udev itself."""
    system.rule("70", 'SUBSYSTEM=="block", OPTIONS:="nowatch"')
    cache, origin = (system.plug(system.file(name, 64)) for name in ("cache", "origin"))
    system.create(cache, origin)
    system.knows(cache, origin)
    system.run("hybridctl detach vol; hybridctl destroy vol-pool -y")
    system.settle()
    assert system.state(cache) is None


def test_a_loop_on_a_dead_nbd(system):
    """A server that does not answer any more keeps no command waiting that only looks."""
    system.run("truncate -s 32M /run/c; truncate -s 64M /run/o; modprobe nbd nbds_max=2")
    system.run("printf '[generic]\nunixsock=/run/nbd\n[o]\nexportname=/run/o\n' >/run/nbd.conf && "
               "nbd-server -C /run/nbd.conf && nbd-client -unix /run/nbd -name o /dev/nbd0")
    system.run("losetup /dev/loop0 /run/c; losetup -o 1M --sizelimit 48M /dev/loop1 /dev/nbd0")
    system.settle()
    system.create("/dev/loop0", "/dev/loop1")
    system.knows("/dev/loop0", "/dev/loop1")
    system.deactivate()
    before = system.states()
    system.run("kill -STOP $(pidof nbd-server)")
    for command in "list", "status", "status vol", "list --json -o all":
        assert system.rc(f"timeout 20 hybridctl {command}") in (0, 7), command
    assert system.states() == before
    assert "does not answer" in system.guest.run("timeout 60 hybridctl scan --timeout 2", check=False).err
    system.run("kill -CONT $(pidof nbd-server)")
    system.run("hybridctl activate --all")
    system.becomes(RUNNING)


def test_md(system):
    """An array whose superblock is at its end: its halves look like members, and are none."""
    halves, cache = [system.file(f"half{n}", 64) for n in (0, 1)], system.file("cache", 32)
    devs = [system.plug(d) for d in halves]
    system.run(f"yes | mdadm --create /dev/md/o --metadata=1.0 --level=1 -n 2 {' '.join(devs)} -z 60M")
    system.settle()
    system.create(system.plug(cache), "/dev/md/o")
    system.deactivate()
    system.run("mdadm --stop /dev/md/o")
    for d in (cache, *halves):
        system.unplug(d)
    system.plug(cache)
    dev = system.plug(halves[0])
    assert system.info(dev)["ID_FS_TYPE"] == "linux_raid_member" and system.state(dev) is None
    assert "inactive" in system.run("cat /proc/mdstat")
    # Nor by hand: the other half would not be written
    assert system.rc("hybridctl activate vol") == 4
    assert system.states() == WAITING and system.members() == 1
    system.plug(halves[1])
    system.becomes(RUNNING)
    assert system.members() == 2


def test_luks_and_lvm(system):
    """An origin in LUKS, the cache device a logical volume; one activated by hand, one by LVM."""
    luks, lvm = system.file("luks", 96), system.file("lvm", 64)
    dev = system.plug(luks)
    key = "--key-file /run/key"
    system.run(f"printf secret >/run/key; cryptsetup luksFormat -q --pbkdf pbkdf2 "
               f"--pbkdf-force-iterations 1000 {key} {dev}; cryptsetup open {key} {dev} secret")
    pv = system.plug(lvm)
    system.run(f"vgcreate -qq vg {pv}; lvcreate -qq -y -n fast -l 100%FREE vg")
    system.settle()
    system.create("/dev/vg/fast", "/dev/mapper/secret")
    system.deactivate()
    system.run("vgchange -qq -an vg; cryptsetup close secret")
    for d in (luks, lvm):
        system.unplug(d)
    assert system.members() == 0
    dev = system.plug(luks)
    system.plug(lvm)
    system.becomes(WAITING)
    system.run(f"cryptsetup open {key} {dev} secret")
    system.settle()
    system.becomes(RUNNING)
    assert system.info(dev)["ID_FS_TYPE"] == "crypto_LUKS" and system.state(dev) is None


def test_snapshots_of_lvm(system):
    """Of members in use, and when both come up together: what it was taken of is meant, not a clone."""
    cache, lvm = system.file("cache", 32), system.file("lvm", 300)
    pv = system.plug(lvm)
    system.run(f"vgcreate -qq vg {pv}; lvcreate -qq -y -n o -L 64M vg; lvcreate -qq -y -n p -L 64M vg")
    system.settle()
    system.run("mkfs.ext4 -qF /dev/vg/p")
    system.create(system.plug(cache), "/dev/vg/o")
    system.run("hybridctl attach vol-pool inplace --origin /dev/vg/p --in-place --mode writethrough -y")
    system.run("for v in o p; do lvcreate -qq -y -s -n s$v -L 16M vg/$v; done")
    system.settle()
    running = RUNNING | {"inplace": "running"}
    assert system.state("/dev/vg/so") == "covered" and system.states() == running
    system.run("echo new | dd of=/dev/mapper/vol bs=4k conv=sync,fsync status=none")
    system.deactivate()
    system.run("vgchange -qq -an vg")
    for d in (cache, lvm):
        system.unplug(d)
    system.plug(cache)
    system.plug(lvm)
    system.becomes(running)
    assert system.rows()["vol"]["origin"] == "/dev/mapper/vg-o"
    assert system.rows()["inplace"]["origin"] == "/dev/mapper/vg-p"
    assert system.run("head -c 4 /dev/mapper/vol").strip() == "new"
    # In place nothing tells a snapshot from its like
    system.run("hybridctl detach inplace -y")
    r = system.guest.run("hybridctl attach vol-pool inplace --origin /dev/vg/sp --in-place -y", check=False)
    assert r.rc == 2 and "is a snapshot" in r.err
    # A member of its own it can be; and the merged one is as if there had never been another
    system.run("hybridctl attach vol-pool own --origin /dev/vg/sp -y --wipe-signatures; hybridctl deactivate own; hybridctl activate own")
    assert system.rows()["own"]["origin"] == "/dev/mapper/vg-sp"
    system.run("hybridctl detach own -y")
    system.deactivate()
    system.run("lvconvert -qq -i 1 --merge vg/so")
    system.settle()
    system.run("hybridctl activate vol-pool")
    assert system.states()["vol"] == "running" and system.rows()["vol"]["origin"] == "/dev/mapper/vg-o"


def test_paths_of_a_multipath(system, volume):
    """Ignored; what is above them is the member."""
    cache, origin = volume
    system.rule(61, 'KERNEL=="ubdc", ENV{DM_MULTIPATH_DEVICE_PATH}="1"')
    system.plug(cache)
    path = system.plug(origin)
    assert system.states() == WAITING
    assert path == "/dev/ubdc" and system.state(path) is None
    system.run(f"dmsetup create mpath --uuid mpath-0 --table '0 {origin.sectors} linear {path} 0'")
    system.settle()
    assert system.rows()["vol"]["origin"] == "/dev/mapper/mpath"
    system.becomes(RUNNING)


def test_what_was_announced_is_kept_up_to_date(system):
    """Not read, and yet known: what the superblock says since the volume was in use."""
    disks = system.file("cache", 32), system.file("origin", 64)
    devs = [system.plug(d) for d in disks]
    system.create(*devs, options="--mode writeback")
    system.run("dd if=/dev/zero of=/dev/mapper/vol bs=64k count=4 oflag=direct status=none")
    system.deactivate()
    assert system.states() == {"vol-pool": "inactive", "vol": "inactive"}
    system.unplug(disks[0])
    status = json.loads(system.run("hybridctl status --json || :"))["status"]
    assert [(v["name"], v["state"]) for v in status] == [("vol", "incomplete")]
    assert "holds newer data than the origin" in status[0]["reason"]
    # Nor does it come up because it was looked at
    assert not system.active("vol")


# Refused ------------------------------------------------------------------------------

def test_clones(system, volume):
    """Both are refused by name; when one is gone, the other comes up."""
    cache, origin = volume
    clone = Disk(system.directory / "clone.img", 0, "clone")
    subprocess.run(["cp", "--sparse=always", origin.path, clone.path], check=True)
    devs = [system.plug(d) for d in (origin, clone)]
    before = [d.path.read_bytes() for d in (origin, clone)]
    system.plug(cache)
    system.expire()
    assert system.states() == {"vol-pool": "running", "vol": "refused"}
    rows = json.loads(system.run("hybridctl list --json -o all"))["volumes"]
    refused = {row["origin"]: row["why"] for row in rows if row["state"] == "refused"}
    assert refused == {a: f"{b} has the same member UUID" for a, b in (devs, devs[::-1])}
    assert f"{devs[0]} is refused: {devs[1]} has the same member UUID" in system.journal()
    r = system.guest.run("hybridctl doctor", check=False)
    assert r.rc == 7 and devs[0] in r.out and devs[1] in r.out
    assert [d.path.read_bytes() for d in (origin, clone)] == before
    system.unplug(clone)
    system.becomes(RUNNING)
    # Of what runs a clone changes nothing
    dev = system.plug(clone)
    assert system.state(dev) == "refused" and system.rows()["vol"]["state"] == "refused"
    assert system.run("dmsetup ls").count("vol") == 2


def test_a_clone_of_what_cannot_be_read(system):
    """Still a member, not gone, and hidden; once it is gone, the clone comes up."""
    cache, disk = system.file("cache", 32), system.file("disk", 65)
    devs = [system.plug(d) for d in (cache, disk)]
    # Not at the disk's own beginning: only above it there is a member
    good, broken = f"0 {64 * MIB // 512} linear {devs[1]} 8", f"0 {64 * MIB // 512} error"
    system.run(f"dmsetup create o --table '{good}'")
    system.create(devs[0], "/dev/mapper/o")
    system.deactivate()
    clone = Disk(system.directory / "clone.img", 64 * MIB, "clone")
    clone.path.write_bytes(disk.path.read_bytes()[4096:4096 + 64 * MIB])
    system.unplug(cache)
    system.run(f"dmsetup load o --table '{broken}' && dmsetup resume o")
    system.settle()
    known = system.info("/dev/mapper/o")
    assert known["ID_FS_TYPE"] == "dm_hybrid_member" and known["HYBRID_STATE"] == "complete"
    for d in (clone, cache):
        system.plug(d)
    system.expire()
    assert system.rows()["vol-pool"]["state"] == "running" and not system.active("vol")
    assert re.search(r"/dev/mapper/o is refused: /dev/ubd\w has the same member UUID", system.journal())
    system.run("dmsetup remove o")
    system.settle()
    system.becomes(RUNNING)


def test_removable(system, volume):
    """What can be taken out is never activated by itself."""
    cache, origin = volume
    system.plug(cache)
    system.run("udevadm control --stop-exec-queue; echo 1 >/run/one")
    dev = system.guest.plug(origin, 2)
    system.run("mount --bind /run/one /sys/class/block/ubdc/removable; "
               "udevadm control --start-exec-queue")
    system.settle()
    system.expire()
    assert system.state(dev) == "removable"
    assert system.states() == {"vol-pool": "running", "vol": "inactive"}
    system.run("hybridctl activate vol")


def test_cache_missing(system, volume):
    """Clean: alone after 30 s; its cache then notices. Dirty: never, and nothing is written."""
    cache, origin = volume
    dev = system.plug(origin)
    timer, = system.timers()
    assert "OnActiveSec=30" in system.run(f"systemctl cat {timer}").replace("30s", "30")
    assert system.states() == {"vol": "incomplete"} and system.state(dev) == "degraded"
    system.expire()
    assert system.states() == {"vol": "alone"}
    system.deactivate()
    system.plug(cache)
    system.run("hybridctl activate vol; hybridctl set vol mode=writeback cutoff=0; "
               "dd if=/dev/urandom of=/dev/mapper/vol bs=1M count=1 oflag=direct conv=fsync")
    system.deactivate()
    for d in volume:
        system.unplug(d)
    before = origin.path.read_bytes()
    dev = system.plug(origin)
    assert system.state(dev) == "waiting" and system.timers() == []
    assert system.rc("hybridctl activate --auto --degraded --all") == 7
    assert system.states() == {"vol": "incomplete"} and origin.path.read_bytes() == before
    system.plug(cache)
    system.becomes(RUNNING)


def test_cache_missing_again(system, volume):
    """An origin that comes a second time is waited with, and brought up alone, as the first time."""
    system.run("d=/run/systemd/system/hybrid-last-resort@.timer.d; mkdir -p $d; "
               "printf '[Timer]\\nOnActiveSec=\\nOnActiveSec=1\\n' >$d/soon.conf; systemctl daemon-reload")
    for _ in range(2):
        system.plug(volume[1])
        system.becomes({"vol": "alone"})
        system.deactivate()
        system.unplug(volume[1])


def test_cache_missing_for_long(system, volume):
    """Waited for once; then the volume is there at once, and gets its cache in use when that comes."""
    cache, origin = volume
    system.plug(origin)
    system.expire()
    system.run(f"mkfs.ext4 -q -U {FS_UUID} /dev/mapper/vol")
    system.deactivate()
    system.unplug(origin)
    system.plug(origin)
    assert system.states() == {"vol": "alone"} and system.timers() == []
    assert system.rc("hybridctl status") == 0
    system.run("mount /dev/mapper/vol /mnt; head -c 1M /dev/urandom >/mnt/x; sync; md5sum /mnt/x >/run/sum")
    system.plug(cache)
    system.becomes(RUNNING)
    system.run("echo 3 >/proc/sys/vm/drop_caches; md5sum -c /run/sum; umount /mnt; hybridctl status")
    assert f"/dev/disk/by-uuid/{FS_UUID}" in system.links("/dev/mapper/vol")


# In place -----------------------------------------------------------------------------

@pytest.fixture
def inplace(system):
    """(cache, origin): an origin with ext4 in place, its volume inactive, not plugged in."""
    disks = system.file("cache", 32), system.file("origin", 64)
    devs = [system.plug(d) for d in disks]
    system.run(f"mkfs.ext4 -q -U {FS_UUID} {devs[1]}")
    system.create(*devs, options="--in-place")
    system.deactivate()
    for d in disks:
        system.unplug(d)
    return disks


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["cache-first", "origin-first"])
def test_in_place(system, inplace, order):
    """Recognised by its filesystem; /dev/disk/by-uuid leads to the volume, not to the origin."""
    for n in order:
        system.plug(inplace[n])
    system.becomes(RUNNING)
    assert system.run(f"readlink -f /dev/disk/by-uuid/{FS_UUID}") == system.run(
        "readlink -f /dev/mapper/vol")
    assert system.rc("test -e /run/hybrid/awaited") == 1


def test_in_place_on_md(system):
    """Arrays, too, claim the filesystem's name, and more than disks do."""
    parts, cache = [system.file(f"part{n}", 48) for n in (0, 1)], system.file("cache", 32)
    devs = [system.plug(d) for d in parts]
    system.run(f"yes | mdadm --create /dev/md/o --metadata=1.2 --level=0 -n 2 {' '.join(devs)}")
    system.run(f"mkfs.ext4 -q -U {FS_UUID} /dev/md/o")
    system.settle()
    link = f"/dev/disk/by-uuid/{FS_UUID}"
    assert system.run(f"readlink -f {link}") == system.run("readlink -f /dev/md/o")
    system.create(system.plug(cache), "/dev/md/o", options="--in-place")
    for _ in range(2):
        assert system.run(f"readlink -f {link}") == system.run("readlink -f /dev/mapper/vol")
        # Coldplugged, as after the switch from an initramfs
        system.run("udevadm trigger --action=add --subsystem-match=block")
        system.settle()


def test_in_place_late_in_an_initramfs(system, inplace):
    """Seen where no units are: they run once systemd hears of it, whoever else waits for it."""
    cache, origin = inplace
    system.rule(99, 'ENV{SYSTEMD_WANTS}=""')
    system.plug(cache)
    system.run("hybridctl activate --auto --all", check=False)
    # Pools that are not here
    system.run("cd /run/hybrid/awaited; i=$(ls | cut -c-36); for n in $(seq 20); do "
               "touch $i.$(cat /proc/sys/kernel/random/uuid); done")
    dev = system.plug(origin)
    assert system.state(dev) == "in-place" and system.states() == INACTIVE
    system.rule(99, "")
    system.run("udevadm trigger --action=add --subsystem-match=block")
    system.settle()
    system.becomes(RUNNING)


def test_in_place_looked_for_again(system, inplace):
    """Once udev knows that it is awaited: what came before that is found, what comes later announced."""
    system.plug(inplace[0])
    system.run("rm -r /run/hybrid/awaited")
    trace = system.guest.run("strace -e trace=openat hybridctl activate --auto vol-pool", check=False).err
    told, looked = (trace.rindex(path) for path in ("/run/hybrid/awaited/", '"/sys/class/block/", '))
    assert told < looked, trace


def test_in_place_one_after_the_other(system):
    """Each has a unit of its own: one that comes while another's runs is not lost, nor the sixth."""
    cache, disk = system.file("cache", 32), system.file("disk", 200)
    devs = [system.plug(d) for d in (cache, disk)]
    names = [f"vol{n}" for n in range(7)]
    tables = {name: f"dmsetup create {name}-o --uuid TEST-{name} --table "
              f"'0 40960 linear {devs[1]} {n * 40960}'" for n, name in enumerate(names)}
    for name in names:
        system.run(f"{tables[name]}; mkfs.ext4 -q /dev/mapper/{name}-o")
    system.create(devs[0], "/dev/mapper/vol0-o", "vol0", "--in-place")
    for name in names[1:]:
        system.run(f"hybridctl attach vol0-pool {name} --in-place --origin /dev/mapper/{name}-o -y")
    system.deactivate()
    system.run(f"for v in {' '.join(names)}; do dmsetup remove $v-o; done")
    system.unplug(cache)
    # Machines are slow: the five starts that a unit has in ten seconds, for as long as this takes
    system.run("d=/run/systemd/system/hybrid-activate@.service.d; mkdir -p $d; "
               "printf '[Unit]\\nStartLimitIntervalSec=1h\\n' >$d/limit.conf; "
               "printf '[Service]\\nExecStartPost=/bin/sh -c \"while [ -e /run/held ]; do sleep 0.1; done\"\\n' "
               ">$d/held.conf; systemctl daemon-reload")
    system.plug(cache)
    system.run("touch /run/held")
    for name in names[:2]:
        system.run(f"{tables[name]}; udevadm settle; sleep 3")
    system.run("rm /run/held")
    system.settle()
    assert system.states() == {"vol0-pool": "running", **dict.fromkeys(names, "inactive"),
                               **dict.fromkeys(names[:2], "running")}
    for name in names[2:]:
        system.run(tables[name])
        system.settle()
    system.becomes({"vol0-pool": "running", **dict.fromkeys(names, "running")})


def test_in_place_below_a_multipath(system, inplace):
    """A path of it is not taken for the origin, though nothing is above it yet."""
    cache, origin = inplace
    system.rule(61, 'KERNEL=="ubdb", ENV{DM_MULTIPATH_DEVICE_PATH}="1"')
    path = system.plug(origin)
    system.plug(cache)
    assert path == "/dev/ubdb" and system.states() == INACTIVE
    system.run(f"dmsetup create mpath --uuid mpath-0 --table '0 {origin.sectors} linear {path} 0'")
    system.settle()
    system.becomes(RUNNING)
    assert system.rows()["vol"]["origin"] == "/dev/mapper/mpath"


def test_in_place_not_by_itself(system, inplace):
    """Not if two look like it, and not in writeback: said, and nothing touched."""
    cache, origin = inplace
    clone = Disk(system.directory / "clone.img", 0, "clone")
    subprocess.run(["cp", "--sparse=always", origin.path, clone.path], check=True)
    before = origin.path.read_bytes()
    for d in (origin, clone, cache):
        system.plug(d)
    system.becomes(INACTIVE)
    assert "more than one device looks like its origin" in system.journal()
    system.unplug(clone)
    system.run("hybridctl activate vol-pool; hybridctl set vol mode=writeback --force")
    system.deactivate()
    assert system.rc("hybridctl activate --auto --all") == 2
    system.becomes(INACTIVE)
    assert "never comes up by itself" in system.guest.run(
        "hybridctl activate --auto --all", check=False).err
    assert origin.path.read_bytes() == before


# Whose it is, and what hybrid.conf leaves alone --------------------------------------------

OTHER = "11111111-2222-3333-4444-555555555555"
FOREIGN = {"vol-pool": "foreign", "vol": "foreign"}


def configure(system, text):
    system.guest.write_file("/etc/hybrid/hybrid.conf", text)


def test_two_hosts(make_guest, installed, tmp_path):
    """The second leaves the first one's pool alone, which crashed; there it comes up again."""
    def host():
        return System(make_guest(modprobe=["dm-hybrid"], systemd=installed), tmp_path)

    first = host()
    disks = first.file("cache", 32), first.file("origin", 64)
    first.create(*(first.plug(d) for d in disks), options="--mode writeback --cutoff 0")
    first.run("mkfs.ext4 -q /dev/mapper/vol; mount /dev/mapper/vol /mnt; echo here >/mnt/x; sync /mnt/x")
    first.guest.power_cut()
    second = host()
    configure(second, f"host_id = {OTHER}\n")
    before = [d.path.read_bytes() for d in disks]
    devs = [second.plug(d) for d in reversed(disks)]
    assert [second.state(dev) for dev in devs] == ["foreign"] * 2
    assert second.states() == FOREIGN and second.timers() == []
    assert second.rc("hybridctl activate --auto --all --degraded") == 0
    r = second.guest.run("hybridctl activate vol --foreign", check=False)
    assert r.rc == 2 and "was not stopped" in r.err
    for d in disks:
        second.unplug(d)
    assert [d.path.read_bytes() for d in disks] == before
    second.guest.power_cut()
    again = host()
    for d in disks:
        again.plug(d)
    again.becomes(RUNNING)
    assert again.run("mount /dev/mapper/vol /mnt; cat /mnt/x") == "here\n"


def replug(system, disks):
    """All of them are gone before the first is back."""
    for d in disks:
        system.unplug(d)
    for d in disks:
        system.plug(d)


def test_taken_over(system, volume):
    """Stopped, another host adopts it without being asked, and it comes up there from then on."""
    configure(system, f"host_id = {OTHER}\n")
    for d in volume:
        system.plug(d)
    assert system.states() == FOREIGN
    system.run("hybridctl adopt vol")
    system.settle()
    replug(system, volume)
    system.becomes(RUNNING)
    system.deactivate()
    system.run("hybridctl release vol")
    configure(system, "")
    system.settle()
    replug(system, volume)
    system.becomes(RUNNING)


def test_disks_of_a_virtual_machine(system, volume):
    """Logical volumes here: the machine's pool is not this host's; then they are not looked at."""
    configure(system, f"host_id = {OTHER}\n")
    pv = system.plug(system.file("lvm", 160))
    system.run(f"vgcreate -qq vg {pv}")
    for n, d in enumerate(volume):
        system.run(f"lvcreate -qq -y -n guest-{n} -L {d.path.stat().st_size >> 20}M vg && "
                   f"dd if={d.path} of=/dev/vg/guest-{n} bs=1M conv=fsync status=none")
    system.run("vgchange -qq -an vg; vgchange -qq -ay vg")
    system.settle()
    assert system.states() == FOREIGN and system.members() == 2
    configure(system, f"host_id = {OTHER}\nignore_devices = /dev/vg/guest-*\n")
    system.run("vgchange -qq -an vg; vgchange -qq -ay vg")
    system.settle()
    assert system.states() == {} and system.members() == 0
    assert system.state("/dev/vg/guest-0") is None


def test_not_listed(system, volume):
    """Nothing comes up by itself; what is listed does."""
    conf = system.run("cat /etc/hybrid/hybrid.conf")
    for text, state, becomes in (
            ("autoactivate = none", "unlisted", {"vol-pool": "inactive", "vol": "inactive"}),
            ("autoactivate = listed\nautoactivate_list = vol", "active", RUNNING)):
        configure(system, f"{conf}{text}\n")
        devs = [system.plug(d) for d in reversed(volume)]
        system.becomes(becomes)
        assert {system.state(dev) for dev in devs[1:]} <= {state, "complete"}
        if becomes == RUNNING:
            system.deactivate()
        for d in volume:
            system.unplug(d)


def test_a_broken_file_stops_nothing(system, volume):
    """Its lines are named in the journal."""
    conf = system.run("cat /etc/hybrid/hybrid.conf")
    configure(system, f"autoactivate = maybe\n{conf}\ndevcies = /dev/sda\nfor the rest see below\n")
    for d in volume:
        system.plug(d)
    system.becomes(RUNNING)
    said = system.journal()
    for n in 1, 4, 5:
        assert f"/etc/hybrid/hybrid.conf:{n}: " in said


# A cache device that comes up blank ----------------------------------------------------------

SSD = "/dev/disk/by-id/test-ssd"
HOST = "0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1aa"


@pytest.fixture
def cloud(make_guest, installed, tmp_path):
    """cloud(): the host after one more boot, which calls all disks of 32 MiB the SSD."""
    def boot():
        system = System(make_guest(modprobe=["dm-hybrid"], systemd=installed), tmp_path)
        system.rule(61, f'KERNEL=="ubd*", ATTR{{size}}=="{32 * 2048}", SYMLINK+="{SSD.removeprefix("/dev/")}"')
        configure(system, f"host_id = {HOST}\nephemeral = {SSD} pool=vol-pool\n")
        return system
    return boot


def blank(disk):
    with open(disk.path, "r+b") as f:
        f.truncate(0)
        f.truncate(32 * MIB)


def test_three_boots_with_a_blank_ssd(cloud):
    """Before its origins or after them, in use; what was written is there, from the cache, too."""
    system = cloud()
    ssd, origin, other = system.file("ssd", 32), system.file("origin", 64), system.file("other", 48)
    system.create(system.plug(ssd), system.plug(origin), options="--ephemeral --cutoff 0")
    system.run(f"hybridctl attach vol-pool two --origin {system.plug(other)} --ephemeral -y")
    write = "head -c 1M /dev/urandom | tee /run/x | dd of=/dev/mapper/vol bs=4k oflag=direct status=none seek="
    system.run(f"{write}0; sync /dev/mapper/vol")
    pools = {system.rows()["vol-pool"]["uuid"]}
    sums = [system.run("md5sum </run/x")]
    for order in (ssd, origin, other), (origin, ssd, other), (other, origin, ssd):
        system.guest.power_cut()
        blank(ssd)
        system = cloud()
        for n, disk in enumerate(order):
            system.plug(disk)
            if disk is origin and ssd not in order[:n]:
                # At once; somebody uses it from then on
                alone = {"vol": "alone", "two": "alone"} if n else {"vol": "alone"}
                system.becomes(alone)
                system.run("sleep 1000 </dev/mapper/vol >/dev/null 2>&1 &")
        system.becomes(RUNNING | {"two": "running"})
        assert system.timers() == [] and system.rc("hybridctl status") == 0
        pools.add(system.rows()["vol-pool"]["uuid"])
        # ... twice: what a read leaves in the cache is the same
        for _ in range(2):
            assert [system.run(f"dd if=/dev/mapper/vol bs=4k iflag=direct status=none skip={n * 256} count=256 | md5sum")
                    for n in range(len(sums))] == sums
        system.run(f"{write}{len(sums) * 256}; sync /dev/mapper/vol")
        sums.append(system.run("md5sum </run/x"))
    assert len(pools) == 4


def test_an_ssd_that_is_not_blank(cloud):
    """Nothing is written to it, the journal says why, and a boot waits for nothing."""
    system = cloud()
    ssd, origin = disks = system.file("ssd", 32), system.file("origin", 64)
    system.create(*(system.plug(d) for d in disks), options="--ephemeral")
    system.guest.power_cut()
    blank(ssd)
    subprocess.run(["mkfs.ext4", "-q", "-F", ssd.path], check=True)
    before = ssd.path.read_bytes()
    system = cloud()
    for d in disks:
        system.plug(d)
    system.becomes({"vol": "alone"})
    assert system.timers() == [] and ssd.path.read_bytes() == before
    assert f"no new pool vol-pool is made on {SSD}: it holds data: ext4" in system.journal()
    assert "hybridctl create vol --cache" in system.run("hybridctl status")
    # Blank again, by hand: that is no reason for anything, until it is asked for
    system.run(f"wipefs -qa {SSD}; dd if=/dev/zero of={SSD} bs=1M count=1 conv=fsync status=none")
    system.run(f"dd if=/dev/zero of={SSD} bs=1M seek=31 count=1 conv=fsync status=none")
    system.settle()
    assert system.states() == {"vol": "alone"}
    # A second one of that name
    twin = system.file("twin", 32)
    system.plug(twin)
    system.run("hybridctl activate vol")
    assert system.states() == {"vol": "alone"} and not any(twin.path.read_bytes())
    assert "is the name of more than one device" in system.run("hybridctl status")
    system.unplug(twin)
    system.run("hybridctl activate vol")
    system.becomes(RUNNING)


# Erased, guarded ------------------------------------------------------------------------

def test_wipe(system, volume):
    """Not while it is in use; then both copies are gone, and udev forgets it."""
    cache, origin = volume
    devs = [system.plug(d) for d in volume]
    for dev in devs:
        assert system.rc(f"hybridctl wipe {dev} -y --wipe-signatures") == 5
    system.deactivate()
    system.run(f"hybridctl wipe {devs[1]} -y --wipe-signatures")
    system.settle()
    assert not any(origin.read(0, MIB)) and not any(origin.read(63 * MIB, MIB))
    k = system.info(devs[1])
    assert not [key for key in k if "HYBRID" in key or key in ("ID_FS_TYPE", "UDISKS_IGNORE")]
    assert system.members() == 1
    # Another's filesystem on a member: it is none any more
    system.run(f"mkfs.ext4 -qF {devs[0]}")
    system.settle()
    assert system.members() == 0 and system.info(devs[0])["ID_FS_TYPE"] == "ext4"


def test_guard(system):
    """Other tools ask or refuse where a guard stands; the kernel sees no partitions."""
    cache, origin = system.file("cache", 32), system.file("origin", 64)
    system.create(*(system.plug(d) for d in (cache, origin)), options="--guard-mbr")
    system.deactivate()
    for d in (cache, origin):
        system.unplug(d)
    devs = [system.plug(d) for d in (origin, cache)]
    system.becomes(RUNNING)
    assert system.info(devs[0])["ID_PART_TABLE_TYPE"] == "PMBR"
    assert system.rc(f"ls /sys/class/block/*/{devs[0][5:]}?") == 2
    system.deactivate()
    for command in "mkfs.xfs", "pvcreate":
        r = system.guest.run(f"{command} {devs[0]} </dev/null", check=False)
        assert r.rc and re.search("PMBR|partition", r.text), r
    system.run(f"hybrid_check {devs[1]} {devs[0]}")
    system.run(f"hybridctl wipe {devs[0]} -y --wipe-signatures")
    assert not any(origin.read(0, MIB))


# What the module tells of itself ----------------------------------------------------------

def test_event_of_a_volume(system, volume):
    """Nobody reads the volume for it, and what was known of its data still is."""
    for d in volume:
        system.plug(d)
    system.becomes(RUNNING)
    system.run(f"mkfs.ext4 -q -L inside -U {FS_UUID} /dev/mapper/vol")
    system.settle()
    links, info = system.links("/dev/mapper/vol"), system.info("/dev/mapper/vol")
    assert f"/dev/disk/by-uuid/{FS_UUID}" in links and "DM_NOSCAN" not in info
    reads = system.run("cut -c 1-9 /sys/block/$(basename $(readlink /dev/mapper/vol))/stat")
    system.run("udevadm monitor --udev --property --subsystem-match=block >/run/monitor 2>&1 & sleep 0.5")
    system.run("dmsetup message vol 0 drain; "
               "until grep -q HYBRID_EVENT=drained /run/monitor; do sleep 0.1; done")
    system.settle()
    assert reads == system.run(
        "cut -c 1-9 /sys/block/$(basename $(readlink /dev/mapper/vol))/stat")
    after = system.info("/dev/mapper/vol")
    assert system.links("/dev/mapper/vol") == links and after["DM_NOSCAN"] == "1"
    assert {k: v for k, v in after.items() if k.startswith("ID_FS")} == {
        k: v for k, v in info.items() if k.startswith("ID_FS")}
    # ... until somebody writes to it
    system.run("e2label /dev/mapper/vol other")
    system.settle()
    assert "/dev/disk/by-label/other" in system.links("/dev/mapper/vol")


# What it costs --------------------------------------------------------------------------

def test_an_event_costs_little(system, volume):
    """A few reads and some system calls, however many members there are."""
    devs = [system.plug(d) for d in volume]
    other = system.plug(system.file("other", 16))
    system.run("dmsetup create broken --table '0 32768 error'")
    system.settle()
    # 50 more, on numbers that nobody has
    system.run("cd /run/hybrid/members; for i in $(seq 50); do "
               "touch 240:$i.origin.$(cat /proc/sys/kernel/random/uuid)."
               "$(cat /proc/sys/kernel/random/uuid); done")
    # Its own superblocks, twice, and those of its pool's cache device
    for dev, reads in (devs[0], 4), (devs[1], 6), (other, 2), ("/dev/mapper/broken", 2):
        trace = system.guest.run(f"strace -f -q hybridctl scan --udev {dev}", check=False).err
        assert len(re.findall(r"\bpread64[( ].*, 4096, ", trace)) == reads, trace
        # Programs and their libraries take 140 to begin, a process of its own for each device 20; libudev
        # 40 to find a device in sysfs, which is asked for five to ten times
        calls = sum("resumed>" not in line for line in trace.splitlines())
        print(f"{dev}: {calls} system calls")
        assert calls < 1000, trace


def test_what_is_no_disk_is_not_opened(system):
    """A drive may close its tray, or take seconds to find no medium: neither an event nor a list does that."""
    system.run("""modprobe dm-mod; cd /run; mkdir class dev
        for d in fd0=2:0 sr0=11:0 mtdblock0=31:0; do
            mknod /dev/${d%=*} b $(echo ${d#*=} | tr : ' ')
            mkdir class/${d%=*}; echo ${d#*=} >class/${d%=*}/dev
            ln -s ../../block/${d%=*} dev/${d#*=}
        done
        ln -s /sys/devices/virtual/block/loop0 class; ln -s ../../devices/virtual/block/loop0 dev/7:0
        mount --bind class /sys/class/block; mount --bind dev /sys/dev/block""")
    for command in [f"scan --udev /dev/{name}" for name in ("fd0", "sr0", "mtdblock0")] + ["scan", "list"]:
        r = system.guest.run(f"strace -f -e trace=openat hybridctl {command}", check=False)
        assert r.rc == 0 and "KERNEL" not in r.out, r.text
        assert not re.search(r'openat\([^)]*"/dev/(fd|sr|mtdblock)0"', r.err), r.err
        assert ('"/dev/loop0"' in r.err) == (command == "scan"), r.err


def test_shutdown(system, volume):
    """Nothing of ours is waited for, with a volume in use and a last resort under way."""
    other = system.file("other", 16)
    subprocess.run([TOP / "build/userspace/lib-driver", "format-origin", other.path, "other",
                    "0f5f9d6c-70f3-4b4e-9f0a-0d9a37b9b1aa"], check=True)
    for d in (*volume, other):
        system.plug(d)
    assert len(system.timers()) == 1
    system.run("mkfs.ext4 -q /dev/mapper/vol; mount /dev/mapper/vol /mnt; echo x >/mnt/x; sync /mnt/x")
    begin = time.monotonic()
    system.guest.run_bg("systemctl poweroff")
    system.guest._process.wait(120)
    assert "ordering cycle" not in system.guest.console
    print(f"{time.monotonic() - begin:.1f} s")
