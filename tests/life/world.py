# SPDX-License-Identifier: GPL-2.0-or-later
"""A volume, the fates of its cache device, and an admin who knows hybridctl alone."""
import json
import re

HEAD = 8	# sectors before the cache device, so that nothing else shows its superblocks
CACHE, NEW, ORIGIN = "/dev/mapper/vssd", "/dev/test/new", "/dev/test/hdd"
DATA_SECTOR = 2048
CHUNK = 4096
STEPS = 10	# the admin gives up after that many commands

LAYERS = {
    "luks": ("echo key >/tmp/key; cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 {0} /tmp/key",
             "cryptsetup open -d /tmp/key {0} inner", "cryptsetup close inner", "/dev/mapper/inner"),
    "lvm": ("{1} pvcreate -qq -y {0}; {1} vgcreate -qq vg {0}; {1} lvcreate -qq -an -Zn -l 100%FREE -n inner vg",
            "{1} vgchange -qq -ay vg", "{1} vgchange -qq -an vg", "/dev/mapper/vg-inner"),
}
LVM = "LVM_SUPPRESS_FD_WARNINGS=1 lvm"


class World:
    """vol on vol-pool, writeback: a file "base" that the origin has, and "fresh", which may be dirty."""

    def __init__(self, make_guest, disks, fate, data, use):
        self.fate, self.use, self.dirty = fate, use, data == "dirty"
        self.guest = make_guest(disks=disks("ssd", 32, "hdd", 96, "new", 32, "old", 32),
                                modprobe=["dm-testdisk", "dm-hybrid"])
        self.sectors = self.guest.disks[0].sectors - 2 * HEAD
        self.here = False
        self.mounted = False
        self.layer = LAYERS.get(use)
        self.told = set()	# ranges in bytes that hybridctl called lost; None: unknown

    # --- the guest ------------------------------------------------------------

    def run(self, command):
        return self.guest.run(command, check=False, timeout=120)

    def ok(self, command):
        return self.guest.run(command, timeout=120).out

    def plug(self):
        if not self.here:
            self.guest.dm_create("vssd", f"0 {self.sectors} volatile /dev/test/ssd {HEAD} 0")
        self.here = True

    def unplug(self):
        """The pool is gone before, as it has it open."""
        if self.here:
            self.ok("dmsetup remove --retry vssd")
        self.here = False

    def inside(self, step, dev="/dev/mapper/vol"):
        return self.layer[step].format(dev, LVM)

    def mount(self):
        """Repairs the file system first if it must, as a boot does: what was lost may be its own."""
        dev = "/dev/mapper/vol"
        if self.layer:
            self.ok(self.inside(1))
            dev = self.layer[3]
        self.run(f"e2fsck -fy {dev}")
        self.ok(f"mount {dev} /mnt")
        self.mounted = True

    def umount(self):
        if self.mounted:
            self.ok("umount -l /mnt")
        if self.mounted and self.layer:
            self.ok(self.inside(2))
        self.mounted = False

    # --- what was before ------------------------------------------------------

    def set_up(self):
        self.plug()
        self.ok(f"hybridctl create vol --cache {CACHE} --origin {ORIGIN} --mode writeback --cutoff 0 -y")
        self.ok("hybridctl set vol-pool high_watermark=95 low_watermark=90")
        dev = "/dev/mapper/vol"
        if self.layer:
            self.ok(self.inside(0) + "; " + self.inside(1))
            dev = self.layer[3]
        self.ok(f"mkfs.ext4 -q -b {CHUNK} {dev}; mount {dev} /mnt")
        self.mounted = True
        for name in "base", "fresh":
            self.ok(f"dd if=/dev/urandom of=/mnt/{name} bs=64k count=16 conv=fsync status=none")
        self.base, self.old = self.sums("base"), self.sums("fresh")
        self.ok("sync; hybridctl drain vol")
        if self.fate == "stale":
            self.umount()
            self.ok("hybridctl deactivate --all; dmsetup remove vssd; cat /dev/test/ssd >/dev/test/old; sync")
            self.here = False
            self.plug()
            self.ok("hybridctl activate --all; hybridctl set vol-pool high_watermark=95 low_watermark=90")
            self.mount()
        self.ok("dd if=/dev/urandom of=/mnt/fresh bs=64k count=16 conv=fsync,notrunc status=none; sync -f /mnt")
        self.new = self.sums("fresh")
        self.places = {name: self.place_of(name) for name in ("base", "fresh")}
        if not self.dirty:
            self.ok("hybridctl drain vol")
        if self.use == "unmounted":
            self.umount()
            self.ok("hybridctl deactivate --all")

    def sums(self, name):
        """Of each chunk; an error is one, too."""
        self.run("echo 3 >/proc/sys/vm/drop_caches")
        out = self.ok(f"cd /mnt; python3 -S -c 'if 1:\n"
                      "  import os, zlib\n"
                      f"  fd = os.open(\"{name}\", os.O_RDONLY)\n"
                      "  for at in range(0, os.fstat(fd).st_size, 4096):\n"
                      "    try: print(zlib.crc32(os.pread(fd, 4096, at)))\n"
                      "    except OSError as e: print(e.strerror)\n'")
        return out.splitlines()

    def place_of(self, name):
        """Of each chunk, in bytes of the volume."""
        below = 0
        if self.layer:
            table = self.ok(f"dmsetup table {self.layer[3]}").split()
            below = int(table[{"crypt": 7, "linear": 4}[table[2]]]) * 512
        text = self.ok(f"filefrag -e -b{CHUNK} /mnt/{name}")
        found = []
        for first, length in re.findall(r"^ *\d+: +\d+\.\. *\d+: +(\d+)\.\. *\d+: +(\d+):", text, re.M):
            found += [below + (int(first) + n) * CHUNK for n in range(int(length))]
        assert len(found) == len(self.new), text
        return found

    def is_told(self, place):
        return any(at <= place and place + CHUNK <= at + length for at, length in self.told)

    def check_told(self, wrong):
        """What is lost is in the list, and the list is not all that there is: "base" was never lost."""
        untold = [n for n in wrong if not self.is_told(self.places["fresh"][n])]
        assert not untold, f"lost, and not in the list: {untold}; {sorted(self.told)}"
        told = [n for n, place in enumerate(self.places["base"]) if self.is_told(place)]
        # A block of the cache may have some of each
        assert len(told) <= len(self.base) // 2, f"in the list, and not lost: {told}; {sorted(self.told)}"

    def note_lost(self, rc, ranges):
        if rc == 4:
            self.told = None
        elif rc == 7 and self.told is not None:
            self.told |= {(x["offset"], x["length"]) for x in ranges}

    def compare(self):
        """All data of "base"; of "fresh" all, or, where it was said that some is lost, the old."""
        if not self.mounted:
            self.mount()
        assert self.sums("base") == self.base
        fresh = self.sums("fresh")
        assert len(fresh) == len(self.new)
        wrong = [n for n, (now, new) in enumerate(zip(fresh, self.new)) if now != new]
        assert not wrong or self.told is None or self.told, f"lost, and nobody said so: {wrong}"
        if self.told:
            self.check_told(wrong)
        assert all(fresh[n] == self.old[n] for n in wrong), wrong
        return len(wrong)

    # --- what happens ---------------------------------------------------------

    def befall(self):
        getattr(self, self.fate.replace("-", "_"))()

    def power_cut(self):
        self.guest.power_cut()
        self.guest.boot()
        self.guest.modprobe("dm-testdisk", "dm-hybrid")
        self.here = self.mounted = False

    def fail(self, *message):
        """At once if it is in use; else as soon as it is there."""
        if self.use == "rebooted":
            self.power_cut()
        self.plug()
        self.guest.dm_message("vssd", *message)
        if self.use != "unmounted":
            self.touch()

    def touch(self):
        """Somebody uses the volume, so that the pool learns of it."""
        self.run("dmsetup message vol-pool 0 checkpoint; sync -f /mnt; cat /mnt/* >/dev/null")

    def healthy(self):
        if self.use == "rebooted":
            self.power_cut()
        self.plug()

    def one_error(self):
        self.fail("fail", "write", "once")

    def write_errors(self):
        self.fail("fail", "write", "on")

    def read_errors(self):
        """Of the cached data, not of the metadata."""
        self.fail("bad", self.sectors // 2, self.sectors // 4)

    def die(self):
        """In use it dies; else it is not there any more."""
        if self.use == "rebooted":
            self.power_cut()
        elif self.use == "unmounted":
            self.unplug()
        else:
            self.guest.dm_message("vssd", "die")
            self.touch()

    def dead(self):
        self.die()

    def late(self):
        self.die()

    def blank(self):
        """What died comes back with zeroes, in its place."""
        self.die()
        self.come_back = "dd if=/dev/zero of=/dev/test/ssd bs=1M oflag=direct status=none; sync"

    def stale(self):
        self.die()
        self.come_back = "cat /dev/test/old >/dev/test/ssd; sync"

    def replaced(self):
        self.die()

    come_back = "true"

    def bring_back(self):
        """The admin plugs in what there is to plug in."""
        if self.fate in ("dead", "replaced"):
            return False
        if not self.here:
            self.ok(self.come_back)
            self.plug()
        elif self.use not in ("rebooted", "unmounted"):
            self.ok(self.come_back)
            if self.come_back != "true":
                self.guest.dm_message("vssd", "lose")
            self.guest.dm_message("vssd", "revive")
        return True


COMMAND = r"hybridctl ([a-z-]+(?: --[a-z-]+)*(?: (?:/dev/[\w/-]+|vol(?:-pool)?))+)"


ASKS = "accept-loss", "activate", "create", "destroy", "detach", "replace-cache"


class Admin:
    """Follows what status says, and nothing else."""

    UP = "running", "no-cache", "alone"

    def __init__(self, world, want):
        self.w, self.want = world, want
        self.did = []
        self.brought = False
        self.advice = ""

    def status(self, name="vol"):
        r = self.w.run("hybridctl status --json")
        rows = json.loads(r.out)["status"] if r.out.strip() else []
        rows = [row for row in rows if row["name"] == name and row["state"] != "given-up"]
        return rows[0] if rows else {"state": "unknown", "healthy": False, "action": "hybridctl activate vol"}

    def do(self, command):
        """With an answer to its question."""
        yes = " -y" if command.split()[0] in ASKS else ""
        if command.split()[0] in ("accept-loss", "activate") or command.startswith("detach --drop-dirty"):
            self.down()
        r = self.w.run(f"hybridctl {command}{yes}")
        # What it advises, where it fails
        self.advice = re.findall(r"next: (.*)", r.err)[-1] if r.rc and "next: " in r.err else ""
        self.did.append(f"hybridctl {command}: {r.rc} {r.err.strip()}")
        if command.split()[0] in ("lost", "accept-loss") or "--drop-dirty" in command:
            self.note_lost()
        return r

    def note_lost(self):
        r = self.w.run("hybridctl lost vol --json")
        self.w.note_lost(r.rc, json.loads(r.out)["lost"] if r.out.strip() else [])

    def down(self):
        self.w.umount()
        if self.status("vol-pool")["state"] == "failed":
            self.did.append("deactivate --all: %d" % self.w.run("hybridctl deactivate --all").rc)

    def reconnect(self):
        """What there is to be plugged in, once."""
        if self.brought or self.want not in ("go-on", "take-back"):
            return False
        self.brought = True
        if not self.w.bring_back():
            return False
        self.did.append("connect the cache device")
        self.down()
        self.do("activate --all")
        return True

    def follow(self, row):
        action = row["action"]
        if "status of its pool" in action:
            action = self.status("vol-pool")["action"]
        if "connect" in action and self.reconnect():
            return
        if action.startswith("hybridctl activate") and self.advice:
            self.take_advice()
            return
        commands = re.findall(COMMAND, action)
        assert commands, f"status names no command: {row}"
        if commands[-1].startswith("lost vol"):
            self.do("lost vol")
            self.down()
            return
        self.do(commands[-1])

    def take_advice(self):
        """Of the activation that failed: all that it names, in this order, but for what looks and changes nothing."""
        if "connect" in self.advice and self.reconnect():
            return
        for command in re.findall(COMMAND, self.advice.replace("ORIGIN...", ORIGIN).replace("VOLUME", "vol")):
            if command.startswith("check"):
                continue
            if self.do(command).rc == 0 and command.startswith("activate"):
                return

    def lead_on(self):
        for _ in range(STEPS):
            row = self.status()
            if row["state"] in self.UP and (row["healthy"] or "smartctl" in row["action"]):
                return row["state"]
            self.did.append(f"{row['state']}: {row['reason']}; {row['action']}" if "reason" in row else "unknown")
            self.follow(row)
        raise AssertionError("status does not lead on")

    # --- what is wanted -------------------------------------------------------

    def go_on(self):
        self.lead_on()

    def accept_loss(self):
        """Without this cache device, whatever only that has."""
        pool = self.status("vol-pool")["state"]
        if pool in ("running", "draining"):
            self.w.umount()
            self.do("detach --drop-dirty vol")
            self.w.told = None
        if self.lead_on() == "alone":
            self.do("detach vol")
            self.lead_on()

    def replace(self):
        """As long as the old cache device works, by one command; else a pool on the new one."""
        state = self.lead_on()
        if state == "running":
            r = self.do(f"replace-cache vol-pool --cache {NEW}")
            if r.rc == 0:
                assert self.lead_on() == "running"
                return
            # Data that cannot be read cannot move either
            assert "cannot be written back" in r.err, r.text
            self.w.umount()
            for command in "detach --drop-dirty vol", "lost --acknowledge vol", "replace-cache vol-pool", \
                           "attach vol-pool vol":
                r = self.do(command)
                assert r.rc == 0, r.text
            assert self.lead_on() == "running"
            return
        if state == "alone":
            self.do("detach vol")
        r = self.do(f"create vol --pool new-pool --cache {NEW} --origin {ORIGIN} --mode writeback")
        assert r.rc == 0, r.text
        assert self.lead_on() == "running"

    def take_back(self):
        """The bare disk; and the cache device, if that is here."""
        if self.lead_on() != "no-cache":
            self.w.umount()
            r = self.do("detach vol")
            if "cannot be written back" in r.err:
                self.do("detach --drop-dirty vol")
        self.w.umount()
        self.w.run("hybridctl deactivate vol")
        if self.status("vol-pool")["state"] in ("running", "inactive"):
            r = self.do("destroy vol-pool")
            if "add --drop-dirty" in r.err:
                r = self.do("destroy --drop-dirty vol-pool")
            assert r.rc == 0 or self.w.fate == "write-errors" and "cannot write" in r.err, r.text
        self.w.guest.dm_create("vol", f"0 {self.w.guest.disks[1].sectors - 2 * DATA_SECTOR} linear {ORIGIN} "
                                      f"{DATA_SECTOR}")

    def satisfy(self):
        getattr(self, self.want.replace("-", "_"))()
