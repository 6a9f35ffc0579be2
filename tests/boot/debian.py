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
import time
from pathlib import Path
from typing import NamedTuple

from guest import packaged
from guest.agent import HOST_ID

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
KEEP = 2	# of each kind in the cache
PACKAGES = [
    "systemd", "systemd-sysv", "udev", "dbus", "dmsetup", "lvm2", "cryptsetup-bin",
    "cryptsetup-initramfs", "initramfs-tools", "dracut-core", "kmod", "e2fsprogs", "util-linux",
    "mdadm", "libjson-c5", "libblkid1", "libuuid1", "linux-image-amd64", "busybox", "cpio", "zstd",
    "pigz"]
# Of the newer, only what is around the kernel: the modules are built for bookworm's.
SUITES = {"bookworm": PACKAGES,
          "trixie": [p for p in PACKAGES if p != "linux-image-amd64"] + ["systemd-cryptsetup", "libfdisk1"]}
# Of all the drivers what a machine of ours has: initramfs and images are a third as large.
MODULES = ["arch/x86/crypto/*", "crypto/**/*", "lib/**/*", "fs/*", "fs/ext4/*", "fs/jbd2/*",
           "fs/autofs/*", "drivers/block/**/*", "drivers/md/**/*", "drivers/virtio/*",
           "drivers/char/**/*", "drivers/scsi/*", "drivers/usb/host/*", "drivers/usb/storage/*",
           "drivers/usb/core/*", "drivers/usb/common/*"]
QUIET = ["apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "e2scrub_reap.service",
         "fstrim.timer", "dpkg-db-backup.timer", "logrotate.timer", "getty@tty1.service",
         "serial-getty@ttyS0.service", "systemd-timesyncd.service", "mdmonitor.service",
         "systemd-update-utmp.service", "systemd-pcrphase.service", "mdcheck_start.timer",
         "mdcheck_continue.timer", "mdmonitor-oneshot.timer",
         # Puts an initramfs of its own in the place of dracut's
         "mdadm-shutdown.service", "systemd-networkd.service"]
FSTAB = """\
LABEL=root / ext4 errors=remount-ro 0 0
/dev/mapper/data /data ext4 nofail,x-systemd.device-timeout=30min 0 2
/dev/mapper/never /never ext4 nofail,x-systemd.device-timeout=5s 0 2
"""
# A busy host makes everything slow.
PATIENT = """\
[Manager]
DefaultTimeoutStartSec=30min
DefaultTimeoutStopSec=5min
DefaultDeviceTimeoutSec=30min
"""
PATIENT_SERVICES = """\
[Service]
TimeoutStartSec=30min
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


EPHEMERAL = "/dev/disk/by-id/virtio-cache"

_used = []	# locks, for as long as this process runs


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


def _lock_of(final: Path):
    return open(final.parent / f".{final.name}.lock", "w")


def _forget(kind: str, directory: Path) -> None:
    """Of each kind two stay, and what somebody uses or did within the hour."""
    with open(directory / ".forget.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = sorted(directory.glob(f"{kind}-*"), key=lambda p: p.stat().st_mtime)
        for old in found[:-KEEP]:
            if time.time() - old.stat().st_mtime < 3600:
                continue
            with _lock_of(old) as used, contextlib.suppress(BlockingIOError):
                fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(old)


@contextlib.contextmanager
def made(final: Path):
    """A directory to fill, that becomes `final`; None if it is there already.

    It is kept while this process runs. Others of its kind, the name up to the first "-", that
    nobody uses any more go when a new one is made.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    lock = _lock_of(final)
    fcntl.flock(lock, fcntl.LOCK_SH)
    if not final.exists():
        fcntl.flock(lock, fcntl.LOCK_EX)
    if final.exists():
        os.utime(final)
        yield None
    else:
        with tempfile.TemporaryDirectory(dir=final.parent) as tmp:
            os.chmod(tmp, 0o755)
            new = Path(tmp) / "new"
            new.mkdir()
            yield new
            os.rename(new, final)
        _forget(final.name.partition("-")[0], final.parent)
    fcntl.flock(lock, fcntl.LOCK_SH)
    _used.append(lock)


def packages(suite: str) -> Path:
    """A tar of Debian's packages, configured; two minutes the first time."""
    command = [
        "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase",
        f"--include={','.join(SUITES[suite])}", '--aptopt=Apt::Install-Recommends "false"',
        "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*", suite]
    key = hashlib.sha256(repr(command).encode()).hexdigest()[:12]
    final = packaged.cache() / f"debian-{key}"
    with made(final) as new:
        if new:
            if not shutil.which("mmdebstrap") or os.geteuid():
                raise Missing("mmdebstrap, and root, are needed for a Debian to boot")
            run(*command, new / "root.tar")
    return final / "root.tar"


def digest(paths) -> str:
    h = hashlib.sha256()
    for path in sorted(paths):
        h.update(str(path.name).encode() + path.read_bytes())
    return h.hexdigest()[:12]


def without_make() -> dict[str, str]:
    """The environment, but for what a make around this put there."""
    return {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}


def _make(*words) -> None:
    run("make", "-s", "--no-print-directory", "-C", TOP, *words, env=without_make())


def _install(root: Path) -> None:
    """As `make install` does, into the tree of a package."""
    for part in ("-C", "userspace"), ("-f", "boot.mk"):
        _make(*part, "install", f"DESTDIR={root}", "prefix=/usr")


def add_agent(root: Path) -> None:
    """What Machine.run() talks to; and nothing that only costs time."""
    agent = root / "usr/local/sbin/agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    (root / "etc/systemd/system/agent.service").write_text(AGENT_UNIT)
    run("systemctl", f"--root={root}", "enable", "agent.service")
    run("systemctl", f"--root={root}", "mask", *QUIET)


def _configure(root: Path, release: str, modules) -> None:
    """What an administrator and DKMS would have done."""
    tree = root / f"usr/lib/modules/{release}"
    names = [path.name.split(".ko")[0].replace("-", "_")
             for pattern in MODULES for path in tree.glob(f"kernel/{pattern}.ko*")]
    keep = set(packaged.with_dependencies(tree, names))
    for path in tree.rglob("*.ko*"):
        if path not in keep:
            path.unlink()
    updates = tree / "updates/dkms"
    updates.mkdir(parents=True)
    for module in modules:
        shutil.copy(module, updates)
    run("/sbin/depmod", "-b", root, release)
    (root / "etc/fstab").write_text(FSTAB)
    (root / "etc/hostname").write_text("hybrid\n")
    for name in "data", "never":
        (root / name).mkdir()
    # The host that makes the volumes; as the package's installation does
    (root / "etc/hybrid").mkdir()
    # For one of the tests; of no meaning where no origin says the same
    (root / "etc/hybrid/hybrid.conf").write_text(f"host_id = {HOST_ID}\nephemeral = {EPHEMERAL} pool=root-pool\n")
    # Not its first boot, which would do much that is no business of ours
    (root / "etc/machine-id").write_text("0f5f9d6c70f34b4e9f0a0d9a37b9b1aa\n")
    for name in "etc", "var":
        (root / name / ".updated").touch()
    (root / "etc/systemd/journald.conf").write_text("[Journal]\nStorage=volatile\n")
    (root / "etc/systemd/system.conf").write_text(PATIENT)
    drop_in = root / "etc/systemd/system/service.d/patient.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(PATIENT_SERVICES)
    add_agent(root)


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
    # dracut puts its files below the "prefix" of its environment: that of `make check-boot`
    run("unshare", "-m", "sh", "-ec", script, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})


def _kernel(root: Path, release: str) -> None:
    """For a Debian that has none of its own of that release."""
    tree = packaged.kernel().modules
    shutil.copytree(tree, root / "usr/lib/modules" / release, symlinks=True,
                    ignore=shutil.ignore_patterns("updates", "build", "source"))
    for file in (tree.parents[2] / "boot").glob(f"*-{release}"):
        if not file.name.startswith("initrd"):
            shutil.copy(file, root / "boot")


def _build(suite: str, tar: Path, modules, release: str, new: Path) -> None:
    root = new / "root"
    root.mkdir()
    run("tar", "-C", root, "--exclude=./dev/*", "-xf", tar)
    if suite != "bookworm":
        _kernel(root, release)
    if not (root / f"usr/lib/modules/{release}").is_dir():
        raise Missing(f"Debian's kernel there is not {release}, for which modules were built: "
                      "apt-get install linux-headers-amd64")
    _configure(root, release, modules)
    _install(root)
    _initrds(root, release, new)
    vmlinuz = (root / f"boot/vmlinuz-{release}").read_bytes()
    (new / "vmlinux").write_bytes(packaged.elf(vmlinuz))
    (new / "release").write_text(release)
    used = int(run("du", "-sm", root).split()[0])
    run("mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", root, new / "root.ext4",
        f"{used + used // 8 + 64}M")
    shutil.rmtree(root)


def of_host(image: Image, host_id: str, new: Path) -> Image:
    """The same of another host, which is that in the initramfs, too."""
    conf = new / "etc/hybrid/hybrid.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text(f"host_id = {host_id}\n")
    more = subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], cwd=new, input=b"etc/hybrid/hybrid.conf",
                          capture_output=True, check=True).stdout
    for initrd in image.directory.glob("initrd-*"):
        data = initrd.read_bytes()
        # The kernel takes the last file of a name; each archive begins at a multiple of four
        (new / initrd.name).write_bytes(data + bytes(-len(data) % 4) + more)
    (new / image.kernel.name).symlink_to(image.kernel)
    run("cp", "--sparse=always", "--reflink=auto", image.filesystem, new)
    for command in "rm /etc/hybrid/hybrid.conf", f"write {conf} /etc/hybrid/hybrid.conf":
        run("debugfs", "-w", "-R", command, new / image.filesystem.name)
    return Image(new, image.release)


def image(suite: str = "bookworm") -> Image:
    """Of this tree as it is; some 40 seconds after a change of it."""
    release = packaged.release()
    _make("modules-amd64")
    _make("-C", "userspace", "tests")
    _make("-f", "boot.mk", "all", "prefix=/usr")
    tar = packages(suite)
    modules = list((TOP / "build/modules-amd64/dm-hybrid").glob("*.ko"))
    boot = [p for p in (TOP / "build/boot").rglob("*") if p.is_file()]
    ours = [*modules, TOP / "build/userspace/hybridctl", *boot, HERE / "debian.py"]
    final = packaged.cache() / f"boot-{tar.parent.name[7:]}-{digest(ours)}"
    with made(final) as new:
        if new:
            _build(suite, tar, modules, release, new)
    return Image(final, release)
