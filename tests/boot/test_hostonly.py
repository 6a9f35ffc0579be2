# SPDX-License-Identifier: GPL-2.0-or-later
"""Host-only images, made on a system whose root is on a volume, and on one whose root is not.

They are made in User Mode Linux, at native speed, by the tools of the Debian that is mounted
there; what they must find below / in sysfs is the same.
"""
import re

import pytest

from guest import Disk, UmlGuest

from . import debian
from .machine import copy

pytestmark = [pytest.mark.boot, pytest.mark.parametrize("image", ["bookworm", "trixie"], indirect=True)]
both = pytest.mark.parametrize("kind", ["initramfs-tools", "dracut"])
MAKE = {
    "dracut": "dracut --hostonly --quiet --force "
              "--compress 'zstd -3' --add-drivers 'ext4 virtio_blk virtio_pci' /tmp/image {release}",
    "initramfs-tools": "sed -i s/^MODULES=.*/MODULES=dep/ /etc/initramfs-tools/initramfs.conf && "
                       "printf 'virtio_blk\\nvirtio_pci\\n' >>/etc/initramfs-tools/modules && "
                       "mkinitramfs -o /tmp/image {release}"}
LIST = {"dracut": "lsinitrd /tmp/image", "initramfs-tools": "lsinitramfs /tmp/image"}
OURS = {"hybridctl", "62-dm-hybrid-member.rules", "56-dm-hybrid.rules"}


@pytest.fixture
def system(tmp_path, uml_kernel, guest_modules):
    """system(disks, commands that leave its root mounted at /mnt): a guest, ready to chroot."""
    guests = []

    def make(disks, *commands):
        guest = UmlGuest(tmp_path / "uml", uml_kernel, disks=disks, modules=guest_modules,
                         memory=1024, path=[debian.TOP / "build/userspace"])
        guests.append(guest)
        guest.boot()
        for command in (*commands, "mount -t tmpfs none /mnt/var/tmp",
                        "for d in proc sys dev; do mount --bind /$d /mnt/$d; done"):
            guest.run(command, timeout=600)
        guest.run("mount -t tmpfs none /mnt/tmp")
        # dracut finds devices by their numbers; no udevd runs here
        guest.run("mkdir -p /dev/block; for d in /sys/class/block/*; do "
                  "ln -sf ../${d##*/} /dev/block/$(cat $d/dev); IFS=: read a b <$d/dev; "
                  "[ -b /dev/${d##*/} ] || mknod /dev/${d##*/} b $a $b; done")
        return guest

    yield make
    for guest in guests:
        guest.close()


def make_image(guest, image, kind):
    """The files of an image that is made there: their paths."""
    guest.run(["chroot", "/mnt", "/bin/sh", "-ec",
               "export PATH=/usr/sbin:/usr/bin:/sbin:/bin; " + MAKE[kind].format(release=image.release)],
              timeout=900)
    # An answer of the guest's agent has an end
    out = guest.run(["chroot", "/mnt", "/bin/sh", "-ec", "PATH=/usr/sbin:/usr/bin; "
                     f"{LIST[kind]} >/tmp/list; grep -c . /tmp/list; grep -E 'hybrid|crc32c' /tmp/list || :"],
                    timeout=300).out.splitlines()
    assert int(out[0]) > 100, out
    return [line.split()[-1] for line in out[1:] if "Arguments" not in line]


def disks_of(files):
    return [Disk(path, path.stat().st_size, name) for name, path in files.items()]


@both
def test_root_on_a_volume(image, members, system, machine, tmp_path, kind):
    """host-only: what a root on a volume needs, and boots from"""
    files = members()
    with open(tmp_path / "out", "wb") as f:
        f.truncate(96 << 20)
    guest = system(disks_of({**files, "out": tmp_path / "out"}), "modprobe dm-hybrid",
                   "hybridctl activate --all", "mount /dev/mapper/root /mnt")
    found = make_image(guest, image, kind)
    ours = {name for name in (path.rsplit("/", 1)[-1] for path in found) if "hybrid" in name}
    policy = guest.run("hybridctl list --noheadings -o policy root-pool").out.strip()
    assert OURS <= ours and {name for name in ours if ".ko" in name} == {
        "dm-hybrid.ko", f"dm-hybrid-{policy}.ko"}, ours
    assert [p for p in found if re.search(r"/crc32c[^/]*\.ko", p)]
    size = int(guest.run("stat -c %s /mnt/tmp/image").out)
    guest.run("dd if=/mnt/tmp/image of=/dev/test/out bs=1M conv=sync,fsync status=none")
    guest.run("umount -R /mnt && hybridctl deactivate root")
    guest.close()

    directory = tmp_path / "made"
    directory.mkdir()
    (directory / "vmlinux").symlink_to(image.kernel)
    with open(tmp_path / "out", "rb") as f:
        (directory / f"initrd-{kind}").write_bytes(f.read(size))
    m = machine(kind, files)
    m.image = debian.Image(directory, image.release)
    m.boot()
    assert m.run("findmnt -no SOURCE /").strip() == "/dev/mapper/root"


@both
def test_root_elsewhere(image, system, tmp_path, kind):
    """host-only: nothing of ours where no volume is needed"""
    plain = copy(image.filesystem, tmp_path / "plain")
    guest = system(disks_of({"plain": plain}), "mount /dev/test/plain /mnt")
    found = [path for path in make_image(guest, image, kind) if "hybrid" in path]
    # mkinitramfs takes all scripts that there are: these find no members, and end
    assert found == [] or kind == "initramfs-tools" and sorted(found) == [
        "scripts/local-block/dm-hybrid", "scripts/local-top/dm-hybrid"]


def test_members_on_logical_volumes(image, members, system):
    """host-only: members on LVM are asked for, at boot, from lvm's module of dracut"""
    files = members()
    table = '0 $(blockdev --getsz /dev/test/{0}) linear /dev/test/{0} 0'
    guest = system(disks_of(files), *(
        f'dmsetup create vg-{name} --uuid LVM-{name} --table "{table.format(name)}"'
        for name in files), "modprobe dm-hybrid", "hybridctl activate --all",
                   "mount /dev/mapper/root /mnt")
    out = guest.run(["chroot", "/mnt", "/bin/sh", "-c", "PATH=/usr/sbin:/usr/bin:/sbin:/bin; "
                     f"dracut --print-cmdline --kver {image.release}"], timeout=300).text
    assert {"rd.lvm.lv=vg/cache", "rd.lvm.lv=vg/origin"} <= set(out.split()), out
