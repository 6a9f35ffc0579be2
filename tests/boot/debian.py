# SPDX-License-Identifier: GPL-2.0-or-later
"""A Debian that boots from a volume: made once, cached by all that it is made of.

Two steps, both outside the tree (packaged.cache()): the packages as Debian ships them, and
on top of them what this tree installs, with both kinds of initramfs.
"""
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from guest import packaged

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
SUITE = "bookworm"
PACKAGES = [
    "systemd", "systemd-sysv", "udev", "dbus", "dmsetup", "lvm2", "cryptsetup-bin",
    "cryptsetup-initramfs", "initramfs-tools", "dracut-core", "kmod", "e2fsprogs", "util-linux",
    "mdadm", "libjson-c5", "libblkid1", "libuuid1", "linux-image-amd64", "busybox", "cpio", "zstd",
    "pigz"]
MMDEBSTRAP = [
    "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(PACKAGES)}",
    '--aptopt=Apt::Install-Recommends "false"', "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*", SUITE]
# No machine of ours has such: without them images and initramfs are a third as large.
NO_DRIVERS = ["drivers/gpu", "drivers/media", "drivers/net", "drivers/infiniband", "drivers/staging",
              "drivers/iio", "drivers/hid", "drivers/input", "drivers/mtd", "drivers/isdn", "sound",
              "net", "fs/ocfs2", "fs/gfs2", "fs/cifs", "fs/nfs", "fs/ceph"]
QUIET = ["apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "e2scrub_reap.service",
         "fstrim.timer", "dpkg-db-backup.timer", "logrotate.timer", "getty@tty1.service",
         "serial-getty@ttyS0.service", "systemd-timesyncd.service", "mdmonitor.service",
         "systemd-update-utmp.service", "systemd-pcrphase.service", "mdcheck_start.timer",
         "mdcheck_continue.timer", "mdmonitor-oneshot.timer",
         # Puts an initramfs of its own in the place of dracut's
         "mdadm-shutdown.service", "systemd-networkd.service"]
FSTAB = """\
LABEL=root / ext4 errors=remount-ro 0 1
/dev/mapper/data /data ext4 nofail,x-systemd.device-timeout=8s 0 2
"""
AGENT_UNIT = """\
[Unit]
After=local-fs.target
[Service]
ExecStart=/usr/local/sbin/agent
StandardError=journal+console
[Install]
WantedBy=multi-user.target
"""
# A line is a command; the answer ends with a line of its exit status.
AGENT = """\
#!/bin/sh
until [ -c /dev/virtio-ports/agent ]; do sleep 1; done
exec 3<>/dev/virtio-ports/agent
echo @@ready >&3
while read -r line <&3; do
	(eval "$line") </dev/null >/run/agent.out 2>&1
	rc=$?
	cat /run/agent.out >&3
	echo "@@$rc" >&3
done
"""


class Missing(Exception):
    """Something that this machine does not have."""


class Image(NamedTuple):
    directory: Path
    release: str

    @property
    def kernel(self) -> Path:
        return self.directory / "vmlinux"

    def initrd(self, kind: str) -> Path:
        return self.directory / f"initrd-{kind}"

    @property
    def filesystem(self) -> Path:
        """ext4: what is copied to a volume."""
        return self.directory / "root.ext4"


def run(*argv, **kw) -> str:
    r = subprocess.run([str(a) for a in argv], capture_output=True, text=True, **kw)
    if r.returncode:
        raise Missing(f"{' '.join(map(str, argv[:6]))} ...\n{r.stdout[-3000:]}{r.stderr[-3000:]}")
    return r.stdout


@contextlib.contextmanager
def _made(final: Path):
    """A directory to fill, that becomes `final`; None if it is there already."""
    final.parent.mkdir(parents=True, exist_ok=True)
    with open(final.parent / f".{final.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if final.exists():
            yield None
            return
        with tempfile.TemporaryDirectory(dir=final.parent) as tmp:
            os.chmod(tmp, 0o755)
            new = Path(tmp) / "new"
            new.mkdir()
            yield new
            os.rename(new, final)


def packages() -> Path:
    """A tar of Debian's packages, configured; two minutes the first time."""
    key = hashlib.sha256(repr(MMDEBSTRAP).encode()).hexdigest()[:12]
    final = packaged.cache() / f"debian-{key}"
    with _made(final) as new:
        if new:
            if not shutil.which("mmdebstrap") or os.geteuid():
                raise Missing("mmdebstrap, and root, are needed for a Debian to boot")
            run(*MMDEBSTRAP, new / "root.tar")
    return final / "root.tar"


def _hash(paths) -> str:
    h = hashlib.sha256()
    for path in sorted(paths):
        h.update(str(path.name).encode() + path.read_bytes())
    return h.hexdigest()[:12]


def _make(*words) -> None:
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    run("make", "-s", "--no-print-directory", "-C", TOP, *words, env=env)


def _install(root: Path) -> None:
    """As `make install` does, into the tree of a package."""
    for part in ("-C", "userspace"), ("-f", "boot.mk"):
        _make(*part, "install", f"DESTDIR={root}", "prefix=/usr")


def _configure(root: Path, release: str, modules) -> None:
    """What an administrator and DKMS would have done."""
    for name in NO_DRIVERS:
        shutil.rmtree(root / f"usr/lib/modules/{release}/kernel/{name}", ignore_errors=True)
    updates = root / f"usr/lib/modules/{release}/updates/dkms"
    updates.mkdir(parents=True)
    for module in modules:
        shutil.copy(module, updates)
    run("/sbin/depmod", "-b", root, release)
    (root / "etc/fstab").write_text(FSTAB)
    (root / "etc/hostname").write_text("hybrid\n")
    (root / "data").mkdir()
    (root / "etc/systemd/journald.conf").write_text("[Journal]\nStorage=volatile\n")
    agent = root / "usr/local/sbin/agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    (root / "etc/systemd/system/agent.service").write_text(AGENT_UNIT)
    run("systemctl", f"--root={root}", "enable", "agent.service")
    run("systemctl", f"--root={root}", "mask", *QUIET)


def _initrds(root: Path, release: str, out: Path) -> None:
    """Debian's default, and dracut's, as their own tools make them in there."""
    image = f"/boot/initrd.img-{release}"
    script = f"""
        mount --bind /proc {root}/proc; mount --bind /dev {root}/dev; mount --bind /sys {root}/sys
        rm -f {root}{image}
        chroot {root} update-initramfs -c -k {release}
        mv {root}{image} {out}/initrd-initramfs-tools
        chroot {root} dracut --no-hostonly --no-hostonly-cmdline --add 'dm-hybrid lvm crypt' \
            --omit 'network multipath plymouth' --compress 'zstd -3' --quiet --force {image} {release}
        cp {root}{image} {out}/initrd-dracut"""
    run("unshare", "-m", "sh", "-ec", script)


def _build(tar: Path, modules, release: str, new: Path) -> None:
    root = new / "root"
    root.mkdir()
    run("tar", "-C", root, "--exclude=./dev/*", "-xf", tar)
    if not (root / f"usr/lib/modules/{release}").is_dir():
        raise Missing(f"Debian's kernel there is not {release}, for which modules were built: "
                      "apt-get install linux-headers-amd64")
    _configure(root, release, modules)
    _install(root)
    _initrds(root, release, new)
    vmlinuz = (root / f"boot/vmlinuz-{release}").read_bytes()
    (new / "vmlinux").write_bytes(packaged._elf(vmlinuz))
    (new / "release").write_text(release)
    used = int(run("du", "-sm", root).split()[0])
    run("mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", root, new / "root.ext4",
        f"{used + used // 8 + 64}M")
    shutil.rmtree(root)


def image() -> Image:
    """Of this tree as it is; some 40 seconds after a change of it."""
    release = packaged.release()
    _make("modules-amd64")
    _make("-C", "userspace", "tests")
    _make("-f", "boot.mk", "all", "prefix=/usr")
    tar = packages()
    modules = list((TOP / "build/modules-amd64/dm-hybrid").glob("*.ko"))
    boot = [p for p in (TOP / "build/boot").rglob("*") if p.is_file()]
    ours = [*modules, TOP / "build/userspace/hybridctl", *boot, HERE / "debian.py"]
    final = packaged.cache() / f"boot-{tar.parent.name[7:]}-{_hash(ours)}"
    with _made(final) as new:
        if new:
            _build(tar, modules, release, new)
    return Image(final, release)
