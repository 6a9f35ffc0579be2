# SPDX-License-Identifier: GPL-2.0-or-later
"""hybridctl and the real targets, in a guest without udev and systemd."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif("module.o" not in (TOP / "dm-hybrid/Kbuild").read_text(),
                                reason="the module has no targets yet")
SSD, HDD, HDD2 = "/dev/test/ssd", "/dev/test/hdd", "/dev/test/hddb"


@pytest.fixture
def guest(build, make_guest, disks):
    return make_guest(disks=disks("ssd", 64, "hdd", 200, "hddb", 100), modprobe=["dm-hybrid"])


def rc(guest, command):
    return guest.run(command, check=False).rc


def listed(guest):
    rows = json.loads(text(guest, "hybridctl list --json -o all"))["volumes"]
    return {row["name"]: row for row in rows}


def text(guest, command):
    return guest.run(command).out


def test_life_of_a_volume(guest):
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} --mode writeback -y")
    guest.run(f"hybridctl attach vol-pool two --origin {HDD2} -y")
    guest.run("mkfs.ext4 -q /dev/mapper/vol && mount /dev/mapper/vol /mnt")
    guest.run("dd if=/dev/urandom of=/mnt/f bs=1M count=8 conv=fsync status=none")
    digest = text(guest, "md5sum < /mnt/f")
    assert listed(guest)["vol"]["dirty"] > 0
    for command in ("hybridctl detach vol", "hybridctl deactivate vol"):
        assert rc(guest, command) == 5
    assert rc(guest, "hybridctl set vol mode=writethrough cutoff=0") == 0
    assert text(guest, "hybridctl get vol mode") == "writethrough\n"
    guest.run("umount /mnt; hybridctl deactivate --all")
    assert {v["state"] for v in listed(guest).values()} == {"inactive"}
    guest.run("hybridctl activate --all && mount /dev/mapper/vol /mnt")
    assert text(guest, "md5sum < /mnt/f") == digest
    guest.run("umount /mnt")
    out = text(guest, "hybridctl detach vol")
    table = re.search(r"dmsetup create vol --table '.*'", out)[0]
    guest.run(f"{table} && mount /dev/mapper/vol /mnt")
    assert text(guest, "md5sum < /mnt/f") == digest
    guest.run("umount /mnt && dmsetup remove vol")


def test_a_policy_that_the_kernel_does_not_have(guest):
    """Said by the kernel's own modprobe, before what is on the devices is lost."""
    guest.run(f"mkswap {SSD}; mkswap {HDD}; sync")
    sums = text(guest, f"md5sum {SSD} {HDD}")
    create = f"hybridctl create vol --cache {SSD} --origin {HDD} -y --wipe-signatures --policy"
    r = guest.run(f"{create} lruu", check=False)
    assert r.rc == 1 and "no such policy: lruu" in r.err
    guest.run("modprobe -q -r dm-hybrid-arc; echo /bin/false >/proc/sys/kernel/modprobe")
    r = guest.run(f"{create} arc", check=False)
    assert r.rc == 8 and "the kernel has no module for policy arc" in r.err
    guest.run("echo 3 >/proc/sys/vm/drop_caches")
    assert text(guest, f"md5sum {SSD} {HDD}") == sums
    guest.run("echo /sbin/modprobe >/proc/sys/kernel/modprobe")
    guest.run(f"{create} arc && hybridctl set vol-pool policy=sieve")
    assert rc(guest, "hybridctl set vol-pool endurance=7 policy=sieveu") == 1
    assert text(guest, "hybridctl get vol-pool endurance") == "0\n"
    # One that is loaded needs no modprobe
    guest.run("echo /bin/false >/proc/sys/kernel/modprobe; hybridctl set vol-pool policy=arc")


def test_create_discards_the_data_area_and_no_metadata(build, make_guest, disks):
    """By the log of the cache device; and before there is anything of the pool on it."""
    g = make_guest(disks=disks("ssd", 64, "hdd", 100), modprobe=["dm-testdisk", "dm-hybrid"])
    g.dm_create("vssd", f"0 {g.disks[0].sectors} volatile {SSD} 0")
    create = f"hybridctl create vol --cache /dev/mapper/vssd --origin {HDD} -y"
    found = re.search(r"discard /dev/mapper/vssd: (\d+) sectors from sector (\d+) on\n",
                      text(g, f"{create} --discard --test"))
    first, end = int(found[2]), int(found[1]) + int(found[2])

    def logged(command):
        for word in ("clear", "on"):
            g.dm_message("vssd", "log", word)
        g.run(command)
        g.dm_message("vssd", "log", "off")
        return [op for op in g.op_log() if op.event == "S" and op.op in "WD"]

    log = logged(f"{create} --discard")
    discards = [op for op in log if op.op == "D"]
    at = first
    for op in discards:
        assert op.sector == at, discards
        at += op.count
    assert at == end
    # The first and the last MiB are written before, for what was there to be gone
    before = [op for op in log if op.seq < discards[0].seq]
    assert before and all(op.sector < 2048 or op.sector >= g.disks[0].sectors - 2048 for op in before)
    assert not [op for op in log if op.seq > discards[0].seq and op.op == "W" and op.seq < discards[-1].seq]
    assert [op for op in log if op.seq > discards[-1].seq and op.op == "W"]
    g.run("mkfs.ext4 -q /dev/mapper/vol && e2fsck -fn /dev/mapper/vol && hybridctl deactivate vol")
    # Not unasked, and not of a device that takes none
    again = f"{create} --force --wipe-signatures"
    assert not [op for op in logged(again) if op.op == "D"]
    g.run("hybridctl deactivate vol; "
          "echo 0 >/sys/dev/block/$(stat -Lc %Hr:%Lr /dev/mapper/vssd)/queue/discard_max_bytes")
    r = g.run(f"{again} --discard")
    assert "does not support discards" in r.err
    g.run("mkfs.ext4 -q /dev/mapper/vol")


def test_a_detach_that_drains_holds_up_nobody(guest):
    """Others change things meanwhile; it looks again before it goes on."""
    sectors = int(text(guest, f"blockdev --getsz {HDD}"))
    fast, slow = f"0 {sectors} linear {HDD} 0", f"0 {sectors} delay {HDD} 0 0 {HDD} 0 3000"
    guest.run(f"dmsetup create slow --table '{fast}'")
    guest.run(f"hybridctl create vol --cache {SSD} --origin /dev/mapper/slow --mode writeback -y")
    guest.run("mkfs.ext4 -qF /dev/mapper/vol")

    def become(table):
        guest.run(f"dmsetup suspend slow; dmsetup load slow --table '{table}'; dmsetup resume slow")

    def detach():
        become(fast)
        guest.run("for i in $(seq 200); do echo $i; done | while read i; do dd if=/dev/zero of=/dev/mapper/vol "
                  "bs=64k count=1 seek=$((700 + 11 * i)) oflag=direct status=none; done")
        become(slow)
        guest.run("{ hybridctl detach vol; echo $? >/run/rc; } </dev/null >/run/out 2>&1 & "
                  "until hybridctl get vol drain_on | grep 1; do sleep 0.1; done")

    def ended():
        become(fast)	# until here the drain takes longer than anything beside it
        guest.run("until [ -s /run/rc ]; do sleep 0.1; done")
        return int(text(guest, "cat /run/rc; rm /run/rc")), text(guest, "cat /run/out")

    detach()
    guest.run(f"hybridctl attach vol-pool two --origin {HDD2} -y; mount -o ro /dev/mapper/vol /mnt")
    assert listed(guest)["vol"]["dirty"] and rc(guest, "test -e /run/rc")
    code, out = ended()
    assert code == 5 and "mounted at /mnt" in out
    assert text(guest, "hybridctl get vol drain_on") == "0\n"
    guest.run("umount /mnt")
    detach()
    guest.run("hybridctl deactivate vol")
    code, out = ended()
    assert code and "is still draining" not in out
    guest.run("hybridctl activate vol")
    assert text(guest, "hybridctl get vol mode; hybridctl get vol drain_on") == "writeback\n0\n"
    detach()
    guest.run("kill -9 $(pidof hybridctl)")
    r = guest.run("hybridctl status vol")
    assert "state: dr" in r.out and "mode: writeback" in r.out
    assert "action: hybridctl drain vol --cancel ends the drain" in r.out
    become(fast)
    guest.run("dd if=/dev/zero of=/dev/mapper/vol bs=64k count=1 oflag=direct status=none seek=2900; "
              "until [ $(hybridctl get vol dirty) = 0 ]; do sleep 0.1; done")
    assert "state: drained" in text(guest, "hybridctl status vol")
    guest.run("hybridctl drain vol --cancel")
    assert "state: running" in text(guest, "hybridctl status vol")
    guest.run("rm -f /run/rc")
    # Renamed meanwhile, it is waited for, and its drain is cancelled, by its new name
    detach()
    guest.run("hybridctl rename vol moved; mount -o ro /dev/mapper/moved /mnt")
    code, out = ended()
    assert code == 5 and "moved is mounted at /mnt" in out, out
    assert text(guest, "hybridctl get moved drain_on; hybridctl get moved dirty") == "0\n0\n"
    guest.run("umount /mnt; hybridctl rename moved vol")
    detach()
    guest.run("hybridctl detach two")
    assert listed(guest)["vol"]["dirty"] and rc(guest, "test -e /run/rc")
    assert ended()[0] == 0 and listed(guest)["vol"]["state"] == "inactive"
    assert listed(guest)["vol"]["pool"] is None


def test_who_waits_for_another_is_told(guest):
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} -y")
    guest.run("flock /run/hybrid/lock sleep 4 </dev/null >/dev/null 2>&1 & sleep 0.5")
    r = guest.run("hybridctl set vol cutoff=0")
    assert "warning: another dm-hybrid tool is running" in r.err
    assert guest.run("hybridctl set vol cutoff=0").err == ""


def test_comes_back_after_a_power_cut(guest):
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} --mode writeback -y")
    guest.run("dd if=/dev/urandom of=/dev/mapper/vol bs=1M count=8 oflag=direct conv=fsync "
              "status=none")
    digest = text(guest, "head -c 8M /dev/mapper/vol | md5sum")
    guest.reboot()
    guest.run("hybridctl activate vol")
    assert text(guest, "head -c 8M /dev/mapper/vol | md5sum") == digest
    assert listed(guest)["vol"]["mode"] == "writeback"


def test_check_of_what_the_kernel_left(guest):
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} --mode writeback -y")
    guest.run("dd if=/dev/urandom of=/dev/mapper/vol bs=1M count=8 oflag=direct conv=fsync "
              "status=none")
    ram = int(re.search(r" ram (\d+) ", text(guest, "dmsetup status vol-pool"))[1])
    size = json.loads(text(guest, f"hybrid_metadata_size --json {SSD}"))["memory"]
    # Locks are larger where the kernel watches them.
    watched = "debug" in os.environ.get("DM_HYBRID_GUEST", "")
    assert size <= ram < size * 1.02 if watched else ram == size
    for device, holder in ((SSD, "vol-pool"), (HDD, "vol")):
        r = guest.run(f"hybrid_check {device}", check=False)
        assert r.rc == 5 and f"{device} is in use by {holder}\n" in r.err
    guest.reboot()
    r = guest.run(f"hybrid_check {SSD} {HDD}", check=False)
    assert r.rc == 7 and "(not-clean)" in r.out and "blocks are dirty" not in r.out
    guest.run("hybridctl activate vol && hybridctl deactivate vol")
    report = json.loads(text(guest, f"hybrid_check --json {SSD} {HDD}"))
    assert report["verdict"] == "clean" and not report["findings"]
    assert 64 < report["volumes"][0]["dirty"] <= 256	# blocks: what is not written back yet


def test_the_printed_tables_make_the_same_devices(guest):
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} --cutoff 1m -y")
    tables = text(guest, "hybridctl table")
    guest.run("hybridctl deactivate vol")
    guest.run(tables)
    assert text(guest, "hybridctl table") == tables


def scanned(guest):
    r = guest.run("hybridctl scan --json -o all", check=False)
    return {m["device"]: m["state"] for m in json.loads(r.out)["members"]}


def test_a_member_below_other_devices_is_no_clone(guest):
    """As with multipath: two paths to one disk, one device over both, one more over that."""
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} -y")
    guest.run("dd if=/dev/urandom of=/dev/mapper/vol bs=1M count=4 oflag=direct status=none")
    digest = text(guest, "head -c 4M /dev/mapper/vol | md5sum")
    guest.run("hybridctl deactivate vol")
    before = scanned(guest)
    assert set(before.values()) == {"ok"} and len(before) == 2
    size = int(text(guest, f"blockdev --getsz {HDD}"))
    half = size // 2
    for path in ("p1", "p2"):
        guest.run(f"dmsetup create {path} --table '0 {size} linear {HDD} 0'")
    # Nothing above both: which of them?
    assert list(scanned(guest).values()).count("refused") == 2
    assert rc(guest, "hybridctl activate vol") == 4
    guest.run("hybridctl deactivate --all")
    guest.run(f"printf '0 {half} linear /dev/mapper/p1 0\n"
              f"{half} {size - half} linear /dev/mapper/p2 {half}\n' | dmsetup create mpath")
    guest.run(f"dmsetup create top --table '0 {size} linear /dev/mapper/mpath 0'")
    found = scanned(guest)
    assert set(found.values()) == {"ok"} and len(found) == 2
    assert "/dev/mapper/top" in found
    # Named in any order
    for devices in (f"{HDD} /dev/mapper/top", f"/dev/mapper/top {HDD}"):
        r = json.loads(text(guest, f"hybridctl scan --json {devices}"))
        assert [m["device"] for m in r["members"]] == ["/dev/mapper/top"]
    guest.run("hybridctl activate --all")
    assert "/dev/mapper/top" in text(guest, "hybridctl table vol")
    assert text(guest, "head -c 4M /dev/mapper/vol | md5sum") == digest
    guest.run("hybridctl deactivate vol")
    # A device above a part of it only is not the member, and does not hide it.
    guest.run(f"dmsetup create part --table '0 {half} linear /dev/mapper/top 0'")
    assert scanned(guest)["/dev/mapper/top"] == "ok"
    for name in ("part", "top", "mpath", "p2", "p1"):
        guest.run(f"dmsetup remove {name}")
    assert scanned(guest) == before


def test_devices_of_one_disk(guest):
    """Partitions and what is made of them: on one disk; each of them a device of its own."""
    disk = text(guest, f"readlink -f {HDD}").strip()
    guest.run(f"printf 'label: gpt\n,64M\n,\n' | sfdisk -q {disk}")
    cache, origin = f"{disk}1", f"{disk}2"
    guest.run(f"dmsetup create one --table \"0 $(blockdev --getsz {cache}) linear {cache} 0\"; "
              f"dmsetup create two --table \"0 $(blockdev --getsz {cache}) linear /dev/mapper/one 0\"")
    for a, b in (cache, origin), ("/dev/mapper/two", origin), (disk, "/dev/mapper/two"):
        r = guest.run(f"hybridctl create vol --cache {a} --origin {b} -y", check=False)
        assert r.rc == 2 and f"{a} and {b} are on the same disk" in r.err, r
    r = guest.run(f"hybridctl create vol --cache {cache} --origin {HDD2} -y", check=False)
    assert r.rc == 5 and f"{cache} is in use by one" in r.err, r
    guest.run("dmsetup remove two; dmsetup remove one")
    guest.run(f"hybridctl create vol --cache {cache} --origin {HDD2} -y")


def test_devices_in_the_order_of_their_names(guest):
    """As the kernel counts them: dm-2 before dm-10."""
    for i in range(11):
        guest.run(f"dmsetup create d{i} --table '0 8192 linear {SSD} {i * 8192}'")
    guest.run(f"hybridctl create vol --cache {HDD} --origin {HDD2} -y")
    for i in range(11):
        guest.run(f"hybridctl attach vol-pool v{i} --origin /dev/mapper/d{i} -y")
    guest.run("hybridctl deactivate --all")
    members = json.loads(text(guest, "hybridctl scan --json -o all"))["members"]
    assert [m["device"] for m in members] == \
        [f"/dev/mapper/d{i}" for i in range(11)] + ["/dev/ubdb", "/dev/ubdc"]


def test_the_uuid_that_a_volume_has_written_is_recorded(guest):
    """Not the one in a page of the origin's that was read before, which udev does at each event."""
    guest.run(f"mkfs.ext4 -q {HDD}; hybridctl create vol --in-place --cache {SSD} --origin {HDD} -y")
    old = text(guest, f"blkid -p -s UUID -o value {HDD}")
    # As a filesystem, which does not close the device
    guest.run("exec 3<>/dev/mapper/vol; tune2fs -U 00000000-0000-0000-0000-00000000000a /dev/mapper/vol && sync && "
              "hybridctl detach vol --live && "
              f"hybridctl attach vol-pool vol --live --in-place --origin {HDD} -y")
    assert "00000000a" not in old
    guest.run("hybridctl deactivate --all && hybridctl activate --all")


def test_a_volume_is_no_member(guest):
    """Neither a boot nor activate would find it again: refused before anything is written."""
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} -y")
    before = text(guest, "md5sum </dev/mapper/vol")
    for words in (f"create two --cache {HDD2} --origin /dev/mapper/vol",
                  f"create two --cache {HDD2} --origin /dev/mapper/vol --in-place",
                  f"create two --cache /dev/mapper/vol --origin {HDD2}",
                  "attach vol-pool two --origin /dev/mapper/vol --force"):
        r = guest.run(f"hybridctl {words} --wipe-signatures -y", check=False)
        assert r.rc == 2 and "/dev/mapper/vol is itself a volume or pool" in r.err, (words, r.text)
    assert set(listed(guest)) == {"vol", "vol-pool"} and text(guest, "md5sum </dev/mapper/vol") == before


@pytest.mark.parametrize("make, undo", [
    (f"yes | mdadm --create /dev/md0 --metadata=1.2 --level=1 -n 2 {HDD2} missing; ln -s /dev/md0 /dev/test/top",
     "mdadm --stop /dev/md0"),
    (f"dmsetup create top --table \"0 $(($(blockdev --getsz {HDD2}) - 4096)) linear {HDD2} 4096\"; "
     "ln -s /dev/mapper/top /dev/test/top", "dmsetup remove top")], ids=["md", "linear"])
def test_the_tail_of_what_is_above_a_disk(guest, make, undo):
    """An array's, or another's, origin ends where its disk does: the disk is no damaged member."""
    guest.run(make)
    guest.run(f"hybridctl create vol --cache {SSD} --origin /dev/test/top -y")
    assert json.loads(text(guest, "hybridctl scan --json -o all"))["members"]
    for command in "scan", "activate --all":
        r = guest.run(f"hybridctl {command}", check=False)
        assert r.rc == 0 and "refused" not in r.text, r
    guest.run(f"hybridctl deactivate --all && {undo}")
    r = guest.run(f"hybridctl scan {HDD2}", check=False)
    # Without a name of its own below, or anything above, it may be a copy that was cut
    assert ("refused" in r.text) == ("dmsetup" in undo), r


def test_what_the_kernel_refuses_is_undone_and_explained(guest):
    # A modprobe that says yes to everything
    guest.run("echo /bin/true >/proc/sys/kernel/modprobe")
    r = guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} --policy nosuch -y",
                  check=False)
    assert r.rc == 4
    assert "kernel: device-mapper: table: " in r.err and "policy" in r.err
    assert f"only this is lost: the data on {SSD} in its first " in r.err and f"and the data on {HDD} in" in r.err
    assert text(guest, "dmsetup ls").strip() == "No devices found"
    assert json.loads(text(guest, "hybridctl scan --json")) == {"members": []}


def test_what_the_kernel_says_of_others_is_not_repeated(guest):
    """Of the lines since the request only those of its devices, and of no device in particular."""
    guest.dm_create("other", "0 8 error")
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} -y")
    other, pool = (text(guest, f"dmsetup info -c --noheadings --separator : -o major,minor {name}").strip()
                   for name in ("other", "vol-pool"))
    said = [f"table: {other}: linear: theirs", f"table: {other}: hybrid: theirs", f"hybrid: {other}: theirs",
            "hybrid: dm-0: theirs", f"crypt: {pool}: theirs", "ioctl: error adding target to table: theirs",
            f"hybrid: {pool}: ours", f"table: {pool}: hybrid-pool: ours", "hybrid: to whom it may concern: ours"]
    lines = "".join(f"echo '<4>device-mapper: {line}' >/dev/kmsg; " for line in said)
    # Not ten lines in five seconds, and then none
    guest.run("echo on >/proc/sys/kernel/printk_devkmsg")
    guest.run(f"(while [ ! -e /run/end ]; do {lines} sleep 0.1; done) >/dev/null 2>&1 & sleep 0.2")
    guest.run("dmsetup suspend vol-pool")
    err = guest.run("strace -o /dev/null -e trace=ioctl -e inject=ioctl:delay_enter=1000000 "
                    "hybridctl set vol-pool high_watermark=70", check=False).err
    guest.run("touch /run/end; dmsetup resume vol-pool")
    kernel = {line for line in err.splitlines() if "kernel:" in line}
    assert len([line for line in kernel if "ours" in line]) == 3, err
    assert "the pool is suspended" in err and "theirs" not in err, err


def test_an_error_of_the_kernel_decides_the_exit_code(guest):
    """In each step of a creation, by the number of the error and not by its text."""
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} -y; hybridctl deactivate vol")
    trace = text(guest, "strace -o /dev/stdout -e trace=ioctl hybridctl activate -q vol")
    guest.run("hybridctl deactivate vol")
    calls = [line for line in trace.splitlines() if line.startswith("ioctl(")]
    step = next(n for n, call in enumerate(calls) if "DM_TABLE_LOAD" in call) + 1
    for name, code in ("EBUSY", 5), ("EROFS", 2), ("ENOMEM", 3):
        r = guest.run(f"strace -o /dev/null -e trace=ioctl -e inject=ioctl:error={name}:when={step} "
                      "hybridctl activate vol", check=False)
        assert r.rc == code and "cannot load a table for vol-pool" in r.err, r.text
        assert text(guest, "dmsetup ls").strip() == "No devices found"


def dirty_volume(guest):
    """Two volumes, one with a filesystem, both with data that only the cache has; digests."""
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} --mode writeback -y")
    guest.run(f"hybridctl attach vol-pool two --origin {HDD2} --mode writeback -y")
    # Nothing is written back while nobody uses the volumes.
    guest.run("hybridctl set vol-pool high_watermark=95 low_watermark=90")
    guest.run("mkfs.ext4 -q /dev/mapper/vol && mount /dev/mapper/vol /mnt")
    guest.run("dd if=/dev/urandom of=/mnt/f bs=64k count=20 conv=fsync status=none; umount /mnt")
    guest.run("dd if=/dev/urandom of=/dev/mapper/two bs=4k count=100 seek=777 oflag=direct "
              "conv=fsync status=none")
    return {name: text(guest, f"md5sum < /dev/mapper/{name}") for name in ("vol", "two")}


def on_origins(guest):
    members = json.loads(text(guest, "hybridctl scan --json -o all"))["members"]
    return {m["name"]: text(guest, f"tail -c +{m['data_offset'] + 1} {m['device']} | "
                                   f"head -c {m['size'] - (2 << 20)} | md5sum")
            for m in members if m["role"] == "origin"}


@pytest.mark.parametrize("end", ["deactivate", "power cut"])
def test_an_offline_drain_agrees_with_the_kernel(guest, end):
    digests = dirty_volume(guest)
    r = guest.run(f"hybrid_writeback {SSD} {HDD} {HDD2}", check=False)
    assert r.rc == 5 and "is in use by" in r.err	# by the active pool
    if end == "deactivate":
        guest.run("hybridctl deactivate --all")
    else:
        guest.reboot()
    assert on_origins(guest) != digests
    assert rc(guest, f"hybrid_writeback {SSD} {HDD}") == 2
    guest.run(f"hybrid_writeback {SSD} --all")
    assert on_origins(guest) == digests
    assert rc(guest, f"hybrid_check {SSD} {HDD} {HDD2}") == 0
    guest.run("e2fsck -fn '{}?offset=1048576'".format(HDD))
    # The kernel finds everything as it was, and clean.
    guest.run("hybridctl activate --all")
    assert listed(guest)["vol"]["dirty"] == listed(guest)["two"]["dirty"] == 0
    for name, digest in digests.items():
        assert text(guest, f"md5sum < /dev/mapper/{name}") == digest


def test_a_copy_of_what_is_dirty_changes_nothing_for_the_kernel(guest):
    digests = dirty_volume(guest)
    guest.run("hybridctl deactivate --all")
    cache = text(guest, f"md5sum < {SSD}")
    guest.run(f"blockdev --setro {SSD}")
    r = guest.run(f"hybrid_writeback {SSD} {HDD} {HDD2}", check=False)
    assert r.rc == 2 and "is read-only" in r.err
    guest.run(f"hybrid_writeback --copy-only {SSD} {HDD} {HDD2}")
    guest.run(f"blockdev --setrw {SSD}")
    assert text(guest, f"md5sum < {SSD}") == cache and on_origins(guest) == digests
    guest.run("hybridctl activate --all")
    assert listed(guest)["vol"]["dirty"] > 0
    for name, digest in digests.items():
        assert text(guest, f"md5sum < /dev/mapper/{name}") == digest


def test_what_is_lost_with_a_cache_device_and_whose_file_it_was(guest):
    guest.modprobe("dm-testdisk")
    sectors = text(guest, f"blockdev --getsz {SSD}").strip()
    guest.dm_create("vssd", f"0 {sectors} volatile {SSD} 0")
    guest.run(f"hybridctl create vol --cache /dev/mapper/vssd --origin {HDD} --mode writeback -y")
    guest.run("mkfs.ext4 -q -b 4096 /dev/mapper/vol && mount /dev/mapper/vol /mnt")
    guest.run("dd if=/dev/urandom of=/mnt/file bs=64k count=20 conv=fsync status=none; umount /mnt")
    guest.run("hybridctl drain vol")
    block = int(text(guest, "debugfs -R 'bmap /file 3' /dev/mapper/vol 2>/dev/null"))
    guest.run(f"dd if=/dev/urandom of=/dev/mapper/vol bs=4k count=1 seek={block} oflag=direct "
              "conv=fsync,notrunc status=none")
    guest.dm_message("vssd", "die")
    assert rc(guest, "dmsetup message vol-pool 0 checkpoint")

    def lost(what):
        r = guest.run(f"hybridctl lost --json {what}", check=False)
        assert r.rc == 7, r.text
        return [(x["volume"], x["offset"], x["length"]) for x in json.loads(r.out)["lost"]]

    def covers(ranges):
        return any(v == "vol" and o <= block * 4096 and block * 4096 + 4096 <= o + n
                   for v, o, n in ranges)

    assert covers(lost("vol")) and lost("vol") == lost("/dev/mapper/vol") == lost(HDD)
    assert "\n  /file\n" in guest.run("hybridctl lost --files vol", check=False).out
    # What is written now goes to the origin alone, which says what it lost.
    guest.run("dd if=/dev/urandom of=/dev/mapper/vol bs=4k count=1 seek=41000 oflag=direct "
              "conv=fsync,notrunc status=none")
    guest.run("hybridctl deactivate --all", check=False)
    assert covers(lost(HDD))
    assert "\n  /file\n" in guest.run(f"hybridctl lost --files {HDD}", check=False).out


@pytest.mark.parametrize("what", ["vol", "vol-pool"])
@pytest.mark.parametrize("loaded", [False, True])
def test_an_activation_that_was_killed_is_done_again(guest, what, loaded):
    """It left a device without a table, or with one that was never resumed."""
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} -y")
    uuid = text(guest, f"dmsetup info -c --noheadings -o uuid {what}").strip()
    table = text(guest, f"dmsetup table {what}").strip()
    guest.run("hybridctl deactivate vol" + (" --keep-pool" if what == "vol" else ""))
    guest.run(f"dmsetup create {what} --uuid {uuid} --notable")
    if loaded:
        guest.run(f"dmsetup load {what} --table '{table}'")
    guest.run("hybridctl activate vol")
    guest.run("dd if=/dev/mapper/vol of=/dev/null bs=1M count=1 status=none")
    assert listed(guest)["vol"]["state"] == listed(guest)["vol-pool"]["state"] == "running"


def dying(guest, kind):
    """vol in use, two granules of a block of it dirty, on an origin that fails, or does not answer, from here on."""
    sectors = int(text(guest, f"blockdev --getsz {HDD}")) - 8
    # Not what another device shows, too
    guest.dm_create("disk", f"0 {sectors} linear {HDD} 8")
    guest.run(f"hybridctl create vol --cache {SSD} --origin /dev/mapper/disk --mode writeback -y")
    guest.run(f"hybridctl attach vol-pool two --origin {HDD2} -y")
    guest.run("dd if=/dev/zero of=/dev/mapper/vol bs=8k count=1 oflag=direct conv=fsync status=none;"
              "sleep 1000 < /dev/mapper/vol > /dev/null 2>&1 & echo $! > /run/sleeper; sleep 0.5")
    guest.run("dmsetup suspend --noflush disk")
    if kind == "fails":
        guest.run(f"dmsetup load disk --table '0 {sectors} error'; dmsetup resume disk")
    return sectors


def test_a_dead_origin_parts_from_its_pool(guest):
    """Its dirty data stay there, named, and are there again when it comes back."""
    sectors = dying(guest, "fails")
    assert rc(guest, "hybridctl deactivate vol") == 5
    assert rc(guest, "hybridctl deactivate --force vol < /dev/null") == 2
    assert " error " not in text(guest, "dmsetup table vol")
    guest.run("hybridctl deactivate --force vol -y")
    assert " error " in text(guest, "dmsetup table vol")
    row = listed(guest)
    assert row["vol"]["state"] == "empty" and row["two"]["state"] == "running"
    assert row["vol"]["dirty"] == 8192
    guest.run("kill $(cat /run/sleeper); udevadm settle; ! dmsetup info vol")
    # It is there, and no list reads it
    row = listed(guest)["vol"]
    assert row["state"] == "inactive" and row["dirty"] == 8192 and row["mode"] == "writeback"
    assert rc(guest, "hybridctl activate vol") == 7
    guest.run("dmsetup remove disk")
    assert listed(guest)["vol"]["state"] == "incomplete"
    status = guest.run("hybridctl status vol", check=False)
    assert status.rc == 7 and "8.00k dirty" in status.text and "keeps its dirty data" in status.text
    assert [(s["dirty"], s["dirty_sectors"]) for s in json.loads(guest.run("hybridctl status vol --json", check=False).text)
            ["status"]] == [(1, 16)]
    assert rc(guest, "hybridctl activate vol") == 7
    guest.dm_create("disk", f"0 {sectors} linear {HDD} 8")
    guest.run("hybridctl activate vol")
    row = listed(guest)["vol"]
    assert row["state"] == "running" and row["dirty"] == 8192


def test_an_origin_that_does_not_answer(guest):
    """Deactivation says so, and does not keep the lock."""
    dying(guest, "hangs")
    down = guest.run("hybridctl deactivate --force vol -y", check=False, timeout=50)
    assert down.rc == 5 and "/dev/mapper/disk does not answer" in down.text
    guest.run("hybridctl deactivate two --keep-pool", timeout=50)
    guest.run("dmsetup resume disk; hybridctl deactivate --force vol -y --keep-pool;"
              "hybridctl activate two")


def test_a_device_that_was_forced_out_does_not_stop_the_others(guest):
    """dmsetup remove --force leaves the table of an error to who has it open."""
    guest.run(f"hybridctl create vol --cache {SSD} --origin {HDD} -y")
    guest.run(f"hybridctl attach vol-pool two --origin {HDD2} -y")
    guest.run("sleep 1000 < /dev/mapper/vol > /dev/null 2>&1 & echo $! > /run/sleeper")
    guest.run("dmsetup remove --force vol", check=False)
    assert " error " in text(guest, "dmsetup table vol")
    assert listed(guest)["two"]["state"] == "running"
    guest.run("hybridctl get two mode && hybridctl deactivate two --keep-pool && hybridctl activate two")
    assert rc(guest, "hybridctl activate vol") == 5
    guest.run("kill $(cat /run/sleeper); sleep 0.2; hybridctl activate vol")
    assert listed(guest)["vol"]["state"] == "running"


# A process that has answered, and gets no CPU to end.
LINGER = """
#include <sys/syscall.h>
#include <unistd.h>
void _exit(int status)
{
	close(1);
	close(2);
	sleep(600);
	for (;;)
		syscall(SYS_exit_group, status);
}
"""


def test_who_reads_a_device_lets_go_of_it_before_it_answers(guest):
    """Deactivate asks whether the origin answers: after it, the origin can be taken away."""
    lib = guest.workdir / "linger.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-xc", "-", "-o", lib], input=LINGER, text=True, check=True)
    guest.run(f"modprobe -q loop; losetup /dev/loop0 {HDD}; hybridctl create vol --cache {SSD} --origin /dev/loop0 -y")
    guest.run(f"LD_PRELOAD={lib} hybridctl deactivate --all </dev/null >/run/out 2>&1")
    assert rc(guest, "pidof hybridctl") == 0	# it lingers
    guest.run("losetup -d /dev/loop0")
    assert text(guest, "losetup -a") == ""
    guest.run("kill -9 $(pidof hybridctl)")
