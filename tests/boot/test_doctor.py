# SPDX-License-Identifier: GPL-2.0-or-later
"""hybridctl doctor, on a system that lies on a volume."""
import pytest

from cli.conftest import build	# noqa: F401 (fixture)

SYSTEM = """
    mkdir -p /mnt/boot /mnt/etc /mnt/lib/modules/6.1 /mnt/usr/lib/udev/rules.d /image/sbin /image/lib
    cd /image; touch sbin/hybridctl lib/dm-hybrid.ko lib/dm-hybrid-lru.ko 62-dm-hybrid-member.rules
    find . | cpio -o -H newc --quiet | gzip >/mnt/boot/initrd.img-6.1
    echo kernel/dm-hybrid.ko: >/mnt/lib/modules/6.1/modules.dep
    touch /mnt/boot/vmlinuz-6.1 /mnt/usr/lib/udev/rules.d/62-dm-hybrid-member.rules
    echo '/dev/mapper/data /data ext4 nofail 0 0' >/mnt/etc/fstab
"""


@pytest.fixture
def guest(build, make_guest, disks):		# noqa: F811
    guest = make_guest(disks=disks("ssd", 64, "hdd", 100, "hddb", 32), modprobe=["dm-hybrid"])
    guest.run("hybridctl create vol --cache /dev/test/ssd --origin /dev/test/hdd -y && "
              "hybridctl attach vol-pool data --origin /dev/test/hddb -y && "
              "mkfs.ext4 -q /dev/mapper/vol && mount /dev/mapper/vol /mnt")
    guest.run(["sh", "-ec", SYSTEM])
    return guest


def test_what_keeps_a_root_from_coming_up(guest):
    def doctor(code=7):
        r = guest.run("hybridctl doctor /mnt", check=False)
        assert r.rc == code, r.text
        return r.out
    out = doctor(0)
    assert "The root will come up." in out and "problem" not in out
    for do, undo, says in [
            ("mv lib/modules/6.1/modules.dep dep", "mv dep lib/modules/6.1/modules.dep",
             "kernel 6.1 has no module dm-hybrid"),
            ("mv boot/initrd.img-6.1 .", "mv initrd.img-6.1 boot", "has no initramfs"),
            ("cp boot/initrd.img-6.1 . && (cd /image; echo sbin/hybridctl | cpio -o -H newc --quiet | gzip) "
             ">boot/initrd.img-6.1", "mv initrd.img-6.1 boot", "has no dm-hybrid-lru.ko"),
            ("touch boot/vmlinuz-6.2", "rm boot/vmlinuz-6.2", "kernel 6.2 has no"),
            ("mv usr/lib/udev/rules.d rules", "mv rules usr/lib/udev/rules.d",
             "udev rules are not installed"),
            ("sed -i s/nofail/defaults/ etc/fstab", "sed -i s/defaults/nofail/ etc/fstab",
             "/data is mounted without nofail"),
            ("dd if=/dev/zero of=/dev/test/hdd bs=4k seek=128 count=1 conv=notrunc,fsync "
             "status=none", "true", "one good superblock")]:
        guest.run(f"cd /mnt && {do}")
        out = doctor()
        assert says in out and "may not come up" in out and "next:" in out, out
        guest.run(f"cd /mnt && {undo}")


def test_a_root_elsewhere(guest):
    out = guest.run("hybridctl doctor / 2>&1", check=False).out
    assert "on no volume" in out
