# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's own kernel, ready for QEMU: an ELF image, an initrd, a tree of modules.

Nothing is installed: what the machine does not have is fetched as a package and
unpacked in the cache. What is made from it is cached by a hash of all that it is made of.
"""
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
BUSYBOX = Path("/bin/busybox")
HEADERS = Path("/usr/src")
# What a guest needs before it has a root. The rest is loaded from there.
EARLY = ["virtio_pci", "virtio_blk", "virtio_console", "9pnet_virtio", "9p", "overlay"]

INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
for m in $(/bin/busybox cat /modules); do
	/bin/busybox insmod /$m || echo "initrd: cannot load $m"
done
/bin/busybox mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose root /root
for w in $(/bin/busybox cat /proc/cmdline); do
	case $w in hybrid.init=*) init=${w#*=};; esac
done
/bin/busybox umount /proc
exec /bin/busybox switch_root /root "$init"
"""


class Missing(Exception):
    """Something that only apt-get could bring."""


class Kernel(NamedTuple):
    release: str
    image: Path		# ELF, with the PVH entry: QEMU boots it without firmware; or bzImage
    initrd: Path | None	# unless the kernel mounts its root itself
    modules: Path	# lib/modules/<release>


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("DM_HYBRID_CACHE") or Path(base) / "dm-hybrid")


def release() -> str:
    """Of the newest 6.1 that our modules can be built for."""
    names = [d.name.removeprefix("linux-headers-") for d in
             HEADERS.glob("linux-headers-6.1.*-amd64")]
    if not names:
        raise Missing("linux-headers-amd64 is not installed")
    return max(names, key=lambda n: [int(d) for d in re.findall(r"\d+", n)])


def _unpacked(rel: str) -> Path:
    """A root under which boot/ and lib/modules/ of that kernel lie."""
    if os.access(f"/boot/vmlinuz-{rel}", os.R_OK) and Path(f"/lib/modules/{rel}/kernel").is_dir():
        return Path("/")
    root = cache() / f"image-{rel}"
    if root.exists():
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as tmp:
        os.chmod(tmp, 0o755)	# or apt's own user cannot write here
        get = subprocess.run(["apt-get", "download", f"linux-image-{rel}"], cwd=tmp,
                             capture_output=True, text=True)
        debs = list(Path(tmp).glob("*.deb"))
        if get.returncode or not debs:
            raise Missing(f"linux-image-{rel} cannot be downloaded: {get.stderr.strip()}")
        subprocess.run(["dpkg-deb", "-x", debs[0], f"{tmp}/root"], check=True)
        # No modules.dep in the package: its postinst makes it.
        subprocess.run(["/sbin/depmod", "-b", f"{tmp}/root", rel], check=True)
        _publish(Path(tmp) / "root", root)
    return root


def _publish(new: Path, final: Path) -> None:
    """Somebody else may have made the same meanwhile: then theirs stays."""
    try:
        os.rename(new, final)
    except OSError:
        if not final.exists():
            raise


def elf(vmlinuz: bytes) -> bytes:
    at = vmlinuz.find(b"\xfd7zXZ\0")
    if at < 0:
        raise Missing("the packaged kernel is not compressed with xz")
    return lzma.LZMADecompressor().decompress(vmlinuz[at:])


def with_dependencies(tree: Path, names: list[str]) -> list[Path]:
    """The modules in an order in which insmod can load them."""
    needs = {}
    for line in (tree / "modules.dep").read_text().splitlines():
        module, _, deps = line.partition(":")
        needs[module] = deps.split()
    by_name = {Path(m).name.split(".ko")[0].replace("-", "_"): m for m in needs}
    order: list[str] = []

    def add(module):
        for dep in needs[module]:
            add(dep)
        if module not in order:
            order.append(module)

    for name in names:
        if name in by_name:	# else it is built in
            add(by_name[name])
    return [tree / m for m in order]


def _cpio(entries) -> bytes:
    """(name, mode, data) in the format that the kernel unpacks."""
    out = bytearray()
    for ino, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        fields = [ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        out += b"070701" + b"".join(b"%08x" % f for f in fields) + name.encode() + b"\0"
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return bytes(out)


def _initrd(tree: Path) -> bytes:
    modules = with_dependencies(tree, EARLY)
    entries = [(d, 0o040755, b"") for d in ("bin", "dev", "proc", "root")]
    # Without it the first process has no console to complain on.
    entries += [("bin/busybox", 0o100755, BUSYBOX.read_bytes()),
                ("init", 0o100755, INIT.encode()),
                ("modules", 0o100644, "\n".join(m.name for m in modules).encode())]
    for m in modules:
        data = m.read_bytes()
        entries.append((m.name, 0o100644, lzma.decompress(data) if m.suffix == ".xz" else data))
    return _cpio(entries)


def kernel() -> Kernel:
    """Makes what is not there yet; raises Missing with the reason why it cannot."""
    if not BUSYBOX.exists():
        raise Missing("busybox-static is not installed")
    rel = release()
    root = _unpacked(rel)
    tree = root / "lib/modules" / rel
    vmlinuz = (root / f"boot/vmlinuz-{rel}").read_bytes()
    initrd = _initrd(tree)
    key = hashlib.sha256(hashlib.sha256(vmlinuz).digest() + initrd).hexdigest()[:12]
    final = cache() / f"qemu-{key}"
    if not final.exists():
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=final.parent) as tmp:
            new = Path(tmp) / "new"
            new.mkdir()
            (new / "vmlinux").write_bytes(elf(vmlinuz))
            (new / "initrd").write_bytes(initrd)
            _publish(new, final)
    return Kernel(rel, final / "vmlinux", final / "initrd", tree)


def install_modules(ours: Path, tree: Path, root: Path) -> None:
    """Lay out <root>/lib/modules/<release>: Debian's modules, by reference, and ours."""
    target = root / "lib/modules" / tree.name
    (target / "extra").mkdir(parents=True, exist_ok=True)
    wanted = {m.name: m for m in ours.glob("*/*.ko")}
    for old in (target / "extra").iterdir():
        if old.name not in wanted:
            old.unlink()
    changed = not (target / "modules.dep.bin").exists()
    for name, module in wanted.items():
        copy = target / "extra" / name
        if not copy.exists() or copy.stat().st_mtime < module.stat().st_mtime:
            shutil.copy2(module, copy)
            changed = True
    link = target / "kernel"
    if not link.is_symlink() or Path(os.readlink(link)) != tree / "kernel":
        link.unlink(missing_ok=True)
        link.symlink_to(tree / "kernel")
        changed = True
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        if not (target / name).exists():
            shutil.copy2(tree / name, target / name)
    if changed:
        subprocess.run(["/sbin/depmod", "-b", root, tree.name], check=True)
