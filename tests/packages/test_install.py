# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's packages, installed in a Debian, booted, purged: `make check-packages`.

Everything but the boot is done in a chroot, where DKMS compiles at native speed.
"""
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from boot import debian
from boot.machine import Machine
from guest import packaged

TOP = Path(__file__).resolve().parents[2]
DEBS = TOP / "build/packages"
NEWER = "bookworm-backports"
# What the packages need, and the next kernel, so that a second run needs no network
PREPARE = f"""
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y linux-headers-amd64 dkms
awk '$1 == "deb" {{ sub("bookworm", "{NEWER}", $0); print; exit }}' /etc/apt/sources.list \
	>/etc/apt/sources.list.d/newer.list
apt-get update -q
apt-get install -q -y -d -t {NEWER} linux-image-amd64 linux-headers-amd64
"""
# Changes with every package that comes or goes, or says when it ran
VOLATILE = re.compile(r"^(var/(lib/(apt|dpkg|dkms/mok|initramfs-tools|systemd|ucf|update-notifier)|cache|log)|"
                      r"tmp|run|proc|sys|dev|debs|root/\.|boot/initrd|etc/ld\.so\.cache|"
                      r"(usr/)?lib/modules/[^/]+/modules\.)")
pytestmark = pytest.mark.packages


class Chroot:
    def __init__(self, root: Path):
        self.root = root

    def run(self, script: str, check=True) -> str:
        mounts = "; ".join(f"mount --bind /{d} {self.root}/{d}" for d in ("proc", "dev", "sys"))
        r = subprocess.run(["unshare", "-m", "sh", "-ec",
                            f"{mounts}; exec chroot {self.root} sh -ec \"$1\"", "sh", script],
                           capture_output=True, text=True, timeout=1800)
        assert not check or r.returncode == 0, (r.stdout + r.stderr)[-6000:]
        return r.stdout

    def install(self) -> None:
        self.run("DEBIAN_FRONTEND=noninteractive apt-get install -q -y /debs/*.deb")

    def files(self) -> dict[str, bytes]:
        """Path -> what it is; without what changes by itself."""
        found = {}
        for path in self.root.rglob("*"):
            name = str(path.relative_to(self.root))
            if VOLATILE.match(name):
                continue
            if path.is_symlink():
                found[name] = str(path.readlink()).encode()
            elif path.is_file():
                found[name] = hashlib.sha256(path.read_bytes()).digest()
            else:
                found[name] = b"dir"
        return found

    def kernels(self) -> list[str]:
        return sorted(p.name.removeprefix("vmlinuz-") for p in (self.root / "boot").glob("vmlinuz-*"))


def _prepared() -> Path:
    """A tar of a Debian with a compiler and the present kernel's headers."""
    tar = debian.packages("bookworm")
    key = hashlib.sha256((tar.parent.name + PREPARE).encode()).hexdigest()[:12]
    final = packaged.cache() / f"dkms-{key}"
    with debian.made(final) as new:
        if new:
            root = new / "root"
            root.mkdir()
            debian.run("tar", "-C", root, "--exclude=./dev/*", "-xf", tar)
            shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
            Chroot(root).run(PREPARE)
            debian.run("tar", "-C", root, "-cf", new / "root.tar", ".")
            shutil.rmtree(root)
    return final / "root.tar"


@pytest.fixture(scope="module")
def before():
    return {}


@pytest.fixture(scope="module")
def chroot(tmp_path_factory, before):
    """The packages installed by apt. Tests run in the order in which they stand here."""
    assert list(DEBS.glob("*.deb")), "make deb"
    root = tmp_path_factory.mktemp("chroot")
    try:
        debian.run("tar", "-C", root, "-xf", _prepared())
        c = Chroot(root)
        before.update(c.files())
        (root / "debs").mkdir()
        for deb in DEBS.glob("*.deb"):
            if "dbgsym" not in deb.name:
                shutil.copy(deb, root / "debs")
        c.install()
        yield c
    finally:
        shutil.rmtree(root)


def built_for(chroot) -> list[str]:
    return re.findall(r"^dm-hybrid/\S+, (\S+), x86_64: installed", chroot.run("dkms status"), re.M)


def test_install(chroot):
    """apt installs them, DKMS builds the module, both kinds of initramfs have what they need"""
    kernel, = chroot.kernels()
    assert built_for(chroot) == [kernel]
    assert "dm-hybrid" in chroot.run(f"modinfo -k {kernel} -F filename dm-hybrid")
    chroot.run("hybridctl --version && hybrid_check --help >/dev/null")
    names = chroot.run(f"lsinitramfs /boot/initrd.img-{kernel}").splitlines()
    # Configured before the images are made: they know whose pools to bring up
    text = chroot.run("cat /etc/hybrid/hybrid.conf")
    assert text.startswith((TOP / "etc/hybrid.conf").read_text()) and chroot.run(
        "hybridctl host-id").strip() in text
    for part in ("sbin/hybridctl", "etc/hybrid/hybrid.conf", "62-dm-hybrid-member.rules", "56-dm-hybrid.rules",
                 "updates/dkms/dm-hybrid.ko", "scripts/local-block/dm-hybrid"):
        assert [n for n in names if n.endswith(part)], part
    assert "dm-hybrid" in chroot.run("dracut --list-modules --no-kernel 2>/dev/null")


def test_boot(chroot, tmp_path):
    """a volume made in the Debian that has them comes up by itself after a reboot"""
    kernel, = chroot.kernels()
    root = tmp_path / "root"
    debian.run("cp", "-a", "--reflink=auto", chroot.root, root)
    debian.add_agent(root)
    (root / "etc/fstab").write_text("LABEL=root / ext4 errors=remount-ro 0 1\n"
                                    "/dev/mapper/data /mnt ext4 nofail 0 2\n")
    image = tmp_path / "image"
    image.mkdir()
    shutil.copy(root / f"boot/initrd.img-{kernel}", image / "initrd-initramfs-tools")
    (image / "vmlinux").write_bytes(packaged.elf((root / f"boot/vmlinuz-{kernel}").read_bytes()))
    debian.run("mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", root, tmp_path / "system", "3G")
    shutil.rmtree(root)
    disks = {"system": tmp_path / "system"}
    for name, mib in ("cache", 64), ("origin", 256):
        disks[name] = tmp_path / name
        disks[name].touch()
        subprocess.run(["truncate", f"-s{mib}M", disks[name]], check=True)

    def machine():
        return Machine(tmp_path, debian.Image(image, kernel), "initramfs-tools", disks,
                       root="/dev/disk/by-id/virtio-system")

    m = machine().boot()
    try:
        dev = "/dev/disk/by-id/virtio-"
        m.run(f"hybridctl create data --cache {dev}cache --origin {dev}origin --mode writeback -y")
        m.run("mke2fs -q -t ext4 /dev/mapper/data && mount /dev/mapper/data /mnt && "
              "cp /bin/bash /mnt/it && sync")
        m.send("systemctl reboot")
        m.wait_end()
        m = machine().boot()
        assert m.run("findmnt -no SOURCE /mnt").strip() == "/dev/mapper/data"
        m.run("cmp /bin/bash /mnt/it")
        assert m.run("systemctl --failed --no-legend --plain").strip() == ""
    finally:
        m.power_cut()


def test_purge(chroot, before):
    """purged, nothing of them is left"""
    chroot.run("apt-get purge -q -y dm-hybrid-dkms hybridctl dm-hybrid-initramfs dm-hybrid-dracut")
    assert built_for(chroot) == []
    kernel, = chroot.kernels()
    assert "dm-hybrid" not in chroot.run(f"lsinitramfs /boot/initrd.img-{kernel}")
    after = chroot.files()
    assert after.keys() ^ before.keys() == set()
    assert {n for n in after.keys() & before.keys() if after[n] != before[n]} == set()


def test_another_kernel(chroot):
    """installed again, DKMS builds the module for a kernel that comes later, too"""
    chroot.install()
    chroot.run(f"DEBIAN_FRONTEND=noninteractive apt-get install -q -y -t {NEWER} "
               "linux-image-amd64 linux-headers-amd64")
    kernels = chroot.kernels()
    assert len(kernels) == 2 and sorted(built_for(chroot)) == kernels
