# SPDX-License-Identifier: GPL-2.0-or-later
"""What becomes of a pool and its volumes is told: `dmsetup wait` ends, a uevent, a line in the log."""
import re
import time

import pytest

from .stack import Stack, io

WRITEBACK = ("--mode", "writeback", "--cutoff", "0")
BLOCK = 128


class Watch:
    """Of a stack: the events of its devices, the uevents with our key, and the log, from here on."""

    def __init__(self, stack):
        self.stack, self.guest = stack, stack.guest
        self.guest.run("dmesg -C")
        self.monitor = self.guest.run_bg(
            "udevadm monitor --kernel --property --subsystem-match=block >/tmp/uevents")
        self.guest.run("until grep -q KERNEL /tmp/uevents; do sleep 0.1; done")
        self.seen = {name: self.number(name) for name in self.names()}

    def names(self):
        return self.guest.run("dmsetup info -c --noheadings -o name -S uuid=~^HYBRID").out.split()

    def number(self, name):
        return int(self.guest.run(f"dmsetup info -c --noheadings -o events {name}").out)

    def wait(self, *names):
        """Until each has had one more event."""
        for name in names:
            self.guest.run(f"dmsetup wait {name} {self.seen[name]}", timeout=60)
            self.seen[name] += 1

    def uevents(self, count):
        """(device, event, its pool) of so many, in order; the last may be on its way still."""
        end = time.monotonic() + 30 * self.guest.slow
        while True:
            parts = [dict(re.findall(r"^(\w+)=(.*)$", part, re.M))
                     for part in self.guest.read_file("/tmp/uevents").split("\n\n")[:-1]]
            ours = [p for p in parts if "HYBRID_EVENT" in p]
            if len(ours) >= count or time.monotonic() > end:
                break
            time.sleep(0.1)
        assert all(p["ACTION"] == "change" and "DM_UUID" in p for p in ours)
        return [(p["DM_NAME"], p["HYBRID_EVENT"], p["HYBRID_POOL"]) for p in ours]

    def log(self):
        return [line.split(" hybrid: ", 1)[1]
                for line in self.guest.run("dmesg").out.splitlines() if " hybrid: " in line]

    def nothing_more(self, seconds=2.5):
        """No event comes in that time: longer than from one look to the next."""
        time.sleep(seconds)
        assert self.seen == {name: self.number(name) for name in self.seen}


def two_volumes(make_stack):
    stack = make_stack(volatile="ssd hdd", ssd=32, hdd=64, other=64)
    dev = stack.create("vol", *WRITEBACK)
    stack.attach("clean", "other")
    return stack, dev


def test_a_pool_fails(make_stack):
    """Of pool and volumes: who failed, on which device, what is lost."""
    stack, dev = two_volumes(make_stack)
    io(stack.guest, dev, "w:0:8:a", "w:1024:8:b", "f")
    watch = Watch(stack)
    stack.guest.dm_message("vssd", "die")
    stack.guest.run("dmsetup message pool 0 checkpoint", check=False)
    watch.wait("pool", "vol", "clean")
    assert sorted(watch.uevents(3)) == [
        ("clean", "degraded", "pool"), ("pool", "failed", "pool"), ("vol", "degraded", "pool")]
    log = "\n".join(watch.log())
    assert ": pool pool failed: no metadata can be written to dm-0: up to 8 KiB are lost" in log
    assert ": volume vol on dm-1 is degraded: up to 8 KiB are lost with dm-0" in log
    assert ": volume clean on ubdc is degraded: nothing is lost with dm-0" in log
    watch.nothing_more()


def test_drains(make_stack):
    """Of a volume and of a pool, each time they are asked for, of something or of nothing."""
    stack, dev = two_volumes(make_stack)
    io(stack.guest, dev, "w:0:8:a", "f")
    watch = Watch(stack)
    for name in "vol", "vol", "clean", "pool", "pool":
        stack.message("drain", name=name)
        watch.wait(name)
        assert stack.status()["dirty"] == 0
    assert watch.uevents(5) == [
        (name, "drained", "pool") for name in ("vol", "vol", "clean", "pool", "pool")]
    assert watch.log()[-1].endswith(": pool pool is drained")
    stack.message("drain_cancel", name="vol")
    stack.message("drain_cancel", name="pool")
    watch.nothing_more()


def test_a_cancelled_drain(make_stack):
    """... is not complete."""
    stack, dev = two_volumes(make_stack)
    io(stack.guest, dev, "w:0:8:a", "f")
    watch = Watch(stack)
    stack.guest.dm_message("vhdd", "hang", "write", "on")
    stack.message("drain")
    time.sleep(1.5)
    stack.message("drain_cancel")
    stack.guest.dm_message("vhdd", "hang", "write", "off")
    watch.nothing_more()


def test_mode_switches(make_stack):
    """By message and by table; one that leaves nothing to do is complete at once."""
    stack, dev = two_volumes(make_stack)
    table = stack.table()
    io(stack.guest, dev, "w:0:8:a", "f")
    watch = Watch(stack)
    stack.message("mode", "writethrough")
    watch.wait("vol")
    assert stack.status()["dirty"] == 0
    stack.message("mode", "passthrough")
    watch.wait("vol")
    stack.message("mode", "writeback")
    io(stack.guest, dev, "w:0:8:b", "f")
    assert stack.status()["dirty"] == 1
    watch.nothing_more()
    stack.load("vol", table.replace("writeback", "writearound"))
    watch.wait("vol")
    assert watch.uevents(3) == [("vol", "drained", "pool")] * 3
    assert "volume vol on dm-1 is drained" in watch.log()[-1]


def test_high_watermark(make_stack):
    """Once, however often the share goes up and down around it; again after the low one."""
    stack, dev = two_volumes(make_stack)
    blocks = stack.status("pool")["blocks"]
    io(stack.guest, dev, "w:0:8:a", "f")
    stack.guest.dm_message("vhdd", "hang", "write", "on")
    watch = Watch(stack)
    for tunable, percent in ("low_watermark", 2), ("high_watermark", 5):
        stack.message("set", tunable, percent, name="pool")
    io(stack.guest, dev, *(f"w:{n * BLOCK}:8:a" for n in range(blocks * 6 // 100 + 1)))
    watch.wait("pool")
    assert watch.uevents(1) == [("pool", "high_watermark", "pool")]
    assert re.search(r"pool pool: more than 5% of cache device dm-0 is dirty", watch.log()[-1])
    # below the high watermark, not the low one, and above it again
    for percent in 50, 5:
        stack.message("set", "high_watermark", percent, name="pool")
        watch.nothing_more()
    stack.guest.dm_message("vhdd", "hang", "write", "off")
    stack.drain()
    time.sleep(1.5)
    watch.seen["vol"] = watch.number("vol")
    stack.guest.dm_message("vhdd", "hang", "write", "on")
    io(stack.guest, dev, *(f"w:{n * BLOCK}:8:a" for n in range(blocks * 6 // 100 + 1)))
    watch.wait("pool")
    stack.guest.dm_message("vhdd", "hang", "write", "off")


def test_endurance(make_stack):
    """Once, as long as not much of it is saved up again."""
    stack, dev = two_volumes(make_stack)
    watch = Watch(stack)
    stack.message("set", "endurance", 128, name="pool")
    watch.nothing_more()
    for n in range(3):
        io(stack.guest, dev, *(f"w:{k * BLOCK}:{BLOCK}:a" for k in range(64)), "t:1")
        if not n:
            watch.wait("pool")
    watch.nothing_more()
    assert watch.uevents(1) == [("pool", "endurance", "pool")]
    assert "endurance of cache device dm-0 is used up (128 MiB a day)" in watch.log()[-1]


def test_a_volume_is_healthy_again(make_stack):
    """Its cache device is back; a volume that never was without it says nothing."""
    stack = make_stack(volatile="ssd hdd")
    dev = stack.create("vol", *WRITEBACK)
    watch = Watch(stack)
    watch.nothing_more()
    assert watch.number("vol") == 0
    io(stack.guest, dev, "r:0:128")
    table = stack.table(), stack.table("pool")
    stack.guest.dm_message("vssd", "die")
    stack.guest.run("dmsetup message pool 0 checkpoint", check=False)
    watch.wait("pool", "vol")
    io(stack.guest, dev, "w:0:8:b", "f")
    stack.guest.dm_remove("vol", "pool")
    stack.guest.dm_message("vssd", "revive")
    stack.guest.dm_create("pool", table[1])
    stack.guest.dm_create("vol", table[0])
    stack.guest.run("dmsetup wait vol 0", timeout=60)
    assert watch.uevents(3)[-1] == ("vol", "healthy", "pool")
    assert "volume vol on dm-1 is healthy again: cache device dm-0 is back" in watch.log()[-1]
    assert io(stack.guest, dev, "r:0:8") == ["b"]


def test_removal_beside_events(make_stack):
    """Tables come and go while their events are being raised."""
    stack, dev = two_volumes(make_stack)
    table = stack.table()
    stack.script("""
for i in $(seq 40); do
  dmsetup message vol 0 drain
  dmsetup reload vol --table "$TABLE" && dmsetup resume vol
  dmsetup message pool 0 drain
  dmsetup remove vol
  dmsetup create vol --table "$TABLE"
done
""".replace("$TABLE", table))
    io(stack.guest, dev, "w:0:8:a", "f")
    stack.guest.dm_remove("vol", "clean", "pool")
    stack.guest.run("rmmod dm-hybrid-c2q dm-hybrid", timeout=30)


@pytest.mark.qemu
@pytest.mark.slow
def test_a_cache_device_is_unplugged(tools, make_qemu_guest, disks):
    """At once, though nothing is recorded, read or written."""
    guest = make_qemu_guest(disks=disks("hdd", 64), modprobe=["dm-testdisk", "dm-hybrid"])
    if guest.run("modprobe -a sd_mod scsi_debug && modprobe -r scsi_debug && "
                 "modprobe scsi_debug dev_size_mb=48", check=False).rc:
        pytest.skip("a kernel without scsi_debug")
    guest.run("until [ -b /dev/sda ]; do sleep 0.1; done; mkdir -p /dev/test; ln -s /dev/sda /dev/test/ssd")
    stack = Stack(guest)
    dev = stack.create("vol", *WRITEBACK)
    io(guest, dev, "w:0:8:a", "f", "r:1024:8")
    stack.message("mode", "writethrough")
    stack.wait("dirty", 0)
    guest.run("sleep 5")
    watch = Watch(stack)
    guest.run("echo 1 >/sys/block/sda/device/delete")
    watch.wait("pool", "vol")
    assert stack.status("pool")["state"] == "failed"
    assert "is unplugged" in "\n".join(watch.log())
    assert io(guest, dev, "r:0:8", "w:0:8:b", "r:0:8") == ["a", "b"]
    guest.dm_remove("vol", "pool")
    guest.run("rmmod scsi_debug")
