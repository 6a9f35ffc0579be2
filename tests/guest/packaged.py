# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's kernels, ready for QEMU: an ELF image, an initrd, a tree of modules, headers.

Nothing is installed: what the machine does not have is fetched as a package and
unpacked in the cache. What is made from it is cached by a hash of all that it is made of.
"""
import contextlib
import hashlib
import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

from . import apt
from .apt import Missing

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


# Which kernels there are beside the one of this machine's release: suites, and versions of them.
OWN = "6.1"
OTHERS = {"6.12": (["bookworm-backports"], r"6\.12\."),
          "newest": (["trixie-backports", "sid"], "")}


class Kernel(NamedTuple):
    release: str
    image: Path		# ELF, with the PVH entry: QEMU boots it without firmware; or bzImage
    initrd: Path | None	# unless the kernel mounts its root itself
    modules: Path	# lib/modules/<release>


class Headers(NamedTuple):
    """What modules are built with: make -C <directory> <arguments>."""
    release: str
    version: str	# of the package
    directory: Path
    arguments: list[str] = []


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("DM_HYBRID_CACHE") or Path(base) / "dm-hybrid")


@contextlib.contextmanager
def _made(final: Path):
    """A new directory that becomes `final`, unless somebody else is faster; None: it is there."""
    if final.exists():
        yield None
        return
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=final.parent) as tmp:
        os.chmod(tmp, 0o755)	# or apt's own user cannot write here
        new = Path(tmp) / "new"
        new.mkdir()
        yield new
        with contextlib.suppress(OSError):
            os.rename(new, final)
        assert final.exists()


def release() -> str:
    """Of the newest 6.1 that our modules can be built for."""
    names = [d.name.removeprefix("linux-headers-") for d in
             HEADERS.glob(f"linux-headers-{OWN}.*-amd64")]
    if not names:
        raise Missing("linux-headers-amd64 is not installed")
    return max(names, key=lambda n: [int(d) for d in re.findall(r"\d+", n)])


def suites(name: str) -> apt.Apt:
    return apt.suites(cache() / f"apt-{name}", OTHERS[name][0])


def _found(name: str) -> tuple[apt.Apt, str, str]:
    """Where the newest kernel of that name comes from, its release and version."""
    names, pattern = OTHERS[name]
    source = suites(name)
    for version in source.versions("linux-image-amd64"):
        if re.match(pattern, version):
            for package in source.depends("linux-image-amd64", version):
                if re.fullmatch(r"linux-image-\d.*-amd64", package):
                    return source, package.removeprefix("linux-image-"), version
    raise Missing(f"no kernel {name} in {', '.join(names)}")


# --- headers ------------------------------------------------------------------


def headers(name: str = OWN) -> Headers:
    """Makes what is not there yet; raises Missing with the reason why it cannot."""
    if name == OWN:
        rel = release()
        version = subprocess.run(["dpkg-query", "-Wf", "${Version}", f"linux-headers-{rel}"],
                                 capture_output=True, text=True).stdout
        return Headers(rel, version, HEADERS / f"linux-headers-{rel}")
    source, rel, version = _found(name)
    root = cache() / f"headers-{rel}-{version}"
    with _made(root) as new:
        if new:
            package = f"linux-headers-{rel}"
            packages = source.closure(package, version, "linux-(headers|kbuild)-")
            kbuild = next(p for p in packages if p.startswith("linux-kbuild-"))
            libraries = _libraries(source, kbuild, packages[kbuild])
            source.unpack(packages | libraries, new)
            makefile = new / "usr/src" / package / "Makefile"
            makefile.write_text(makefile.read_text().replace("/usr/src/", f"{root}/usr/src/"))
            if libraries:
                _use_libraries(new / "usr/lib" / kbuild, root / "usr/lib")
    # Debian's compiler for it may be newer than ours; and there is no pahole.
    return Headers(rel, version, root / "usr/src" / f"linux-headers-{rel}",
                   [f"CC={HERE / 'as-newer-gcc'}", "CONFIG_DEBUG_INFO_BTF_MODULES="])


def _libraries(source: apt.Apt, kbuild: str, version: str) -> dict[str, str]:
    """Those that kbuild's tools were built for, if ours are older."""
    needs = source.depends(kbuild, version)["libc6"].removeprefix(">= ")
    ours = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    if [int(n) for n in needs.split(".")] <= [int(n) for n in ours.split(".")]:
        return {}
    return source.closure(kbuild, version, "lib|zlib")


def _use_libraries(tools: Path, final: Path) -> None:
    """Makes a script of each program in `tools`, which will be in `final` as the libraries."""
    libraries = final / "x86_64-linux-gnu"
    for tool in [*tools.rglob("*")]:
        if tool.is_file() and not tool.is_symlink() and tool.read_bytes()[:4] == b"\x7fELF" \
                and os.access(tool, os.X_OK):
            real = tool.rename(tool.with_name(tool.name + ".elf"))
            # Some look for another program by their own name.
            tool.write_text(f'#!/bin/sh\nexec {libraries}/ld-linux-x86-64.so.2 --argv0 "$0" '
                            f'--library-path {libraries} '
                            f'{final / real.relative_to(tools.parent)} "$@"\n')
            tool.chmod(0o755)


# --- images -------------------------------------------------------------------


def _unpacked(name: str) -> tuple[str, Path]:
    """A release, and a root under which boot/ and lib/modules/ of that kernel lie."""
    if name == OWN:
        rel, version = headers().release, headers().version
        if os.access(f"/boot/vmlinuz-{rel}", os.R_OK) \
                and Path(f"/lib/modules/{rel}/kernel").is_dir():
            return rel, Path("/")
        source = apt.Apt()
    else:
        source, rel, version = _found(name)
    root = cache() / f"image-{rel}-{version}"
    with _made(root) as new:
        if new:
            source.unpack(source.closure(f"linux-image-{rel}", "" if name == OWN else version,
                                         r"linux-(image|binary|modules|base)-\d"), new)
            if not (new / "lib").exists():
                (new / "lib").symlink_to("usr/lib")
            # No modules.dep in the package: its postinst makes it.
            subprocess.run(["/sbin/depmod", "-b", new, rel], check=True)
    return rel, root


def elf(vmlinuz: bytes) -> bytes:
    """What a bzImage unpacks; its header (Documentation/arch/x86/boot.rst) says where it lies."""
    setup = (vmlinuz[0x1F1] + 1) * 512
    offset, length = struct.unpack_from("<II", vmlinuz, 0x248)
    packed = vmlinuz[setup + offset:setup + offset + length]
    if packed.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(packed)
    if packed.startswith(b"\x28\xb5\x2f\xfd"):
        # Behind the frame stands its length.
        return subprocess.run(["zstd", "-dcq"], input=packed[:-4], stdout=subprocess.PIPE,
                              check=True).stdout
    raise Missing("the packaged kernel is compressed with neither xz nor zstd")


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


def cpio(entries) -> bytes:
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
    return cpio(entries)


def kernel(name: str = OWN) -> Kernel:
    """Makes what is not there yet; raises Missing with the reason why it cannot."""
    if not BUSYBOX.exists():
        raise Missing("busybox-static is not installed")
    rel, root = _unpacked(name)
    tree = root / "lib/modules" / rel
    vmlinuz = next(p for p in (root / f"boot/vmlinuz-{rel}", tree / "vmlinuz")
                   if p.exists()).read_bytes()
    initrd = _initrd(tree)
    key = hashlib.sha256(hashlib.sha256(vmlinuz).digest() + initrd).hexdigest()[:12]
    final = cache() / f"qemu-{key}"
    with _made(final) as new:
        if new:
            (new / "vmlinux").write_bytes(elf(vmlinuz))
            (new / "initrd").write_bytes(initrd)
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
