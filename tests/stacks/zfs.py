# SPDX-License-Identifier: GPL-2.0-or-later
"""ZFS for guests with Debian's own kernel: Debian's packages (contrib), their module built here.

Nothing is installed: packages are unpacked in the cache, and the module is compiled there, once, in
some ten minutes.
"""
import hashlib
import os
import shutil
from pathlib import Path

from boot import debian
from guest import apt, packaged
from guest.packaged import Headers

SUITE = "bookworm"
ARC = 64 << 20	# bytes of RAM for its cache: less it does not heed
# As zfs-dkms has it
BUILD = """./configure --with-config=kernel --with-linux={common} --with-linux-obj={obj}
make -j{jobs}"""


def _packages(source: apt.Apt) -> dict[str, str]:
    for version in source.versions("zfs-dkms")[:1]:
        return {"zfs-dkms": version, **source.closure("zfsutils-linux", version, r"lib\w+linux$")}
    return {}


def _final(packages: dict[str, str], headers: Headers) -> Path:
    key = hashlib.sha256(repr((packages, headers.release, headers.version, BUILD)).encode()).hexdigest()
    return packaged.cache() / f"zfs-{key[:12]}"


def _build(root: Path, headers: Headers) -> None:
    """root: where the packages are unpacked; the modules are put where modprobe -d finds them."""
    source, = (root / "usr/src").glob("zfs-*")
    obj = headers.directory
    for line in BUILD.splitlines():
        debian.run(*line.format(common=obj.with_name(obj.name.replace("-amd64", "-common")), obj=obj,
                                jobs=os.cpu_count()).split(), cwd=source, env=debian.without_make())
    modules = root / "lib/modules" / headers.release / "extra"
    modules.mkdir(parents=True)
    for module in source.glob("module/**/*.ko"):
        debian.run("strip", "--strip-debug", "-o", modules / module.name, module)
    debian.run("/sbin/depmod", "-b", root, headers.release)
    shutil.rmtree(root / "usr/src")


def ready() -> str:
    """Makes what is not there yet; the commands that give a guest its ZFS, after each boot.

    Raises apt.Missing if apt does not have the packages.
    """
    source = apt.suites(packaged.cache() / "apt-zfs", [SUITE], "main contrib")
    headers = packaged.headers()
    packages = _packages(source)
    if not packages or not _final(packages, headers).exists():
        source.update("--error-on=any")	# what was listed once may be gone
        packages = _packages(source)
    if not packages:
        raise apt.Missing(f"no zfs-dkms in {SUITE}/contrib of {apt.mirror()}")
    final = _final(packages, headers)
    with debian.made(final) as new:
        if new:
            source.unpack(packages, new / "root")
            _build(new / "root", headers)
    root = final / "root"
    return "; ".join([
        f"ln -sf {root}/sbin/* /usr/local/sbin",
        f"ln -sf {root}/lib/x86_64-linux-gnu/*.so.* /usr/lib/x86_64-linux-gnu",
        f"modprobe -d {root} zfs zfs_arc_max={ARC}"])
