# SPDX-License-Identifier: GPL-2.0-or-later
"""Members with a root on them, made once and cached, by the image and this file."""
from pathlib import Path

from guest import Disk, packaged

from . import debian
from .machine import copy

CACHE_MIB = 160
LUKS = "7e0dcb16-2a38-4f5e-9d0c-5b8a4c3f2e10"


def _final(kind: str, image: debian.Image) -> Path:
    return packaged.cache() / f"{kind}-{image.directory.name.partition('-')[2]}-" \
                              f"{debian.digest([Path(__file__)])}"


def _size(image: debian.Image) -> int:
    """MiB of an origin that has room for the root."""
    return (image.filesystem.stat().st_size >> 20) + 64


def roots(image: debian.Image, guest_of) -> Path:
    """{clean,dirty}-[data-]{cache,origin}: a root, and a filesystem without one.

    guest_of(disks): a guest with these.
    """
    final = _final("roots", image)
    with debian.made(final) as new:
        if new:
            _make_roots(new, image, guest_of)
    return final


def _write(guest, image: debian.Image, name: str, device: str) -> None:
    """The root; its beginning once more, as a full cache may have written back all."""
    dd = f"dd if={image.filesystem} of={device} bs=1M oflag=direct status=none"
    guest.run(dd, timeout=300)
    guest.run(f"sleep 1; until {dd} count=2; hybridctl list --noheadings -o dirty {name} | "
              "grep -q '[1-9]'; do sleep 1; done", timeout=300)


def _down(guest, name: str, prefix: str) -> None:
    """Deactivated, and dirty."""
    guest.run(f"hybridctl deactivate {name}")
    guest.run(f"hybridctl check /dev/test/{prefix}cache /dev/test/{prefix}origin | "
              "grep ' [1-9][0-9]* dirty'")


def _make_roots(directory: Path, image: debian.Image, guest_of) -> None:
    sizes = {"cache": CACHE_MIB, "origin": _size(image), "data-cache": 32, "data-origin": 64}
    disks = [Disk(directory / name, mib << 20, name) for name, mib in sizes.items()]
    guest = guest_of(disks)
    for name, prefix in ("root", ""), ("data", "data-"):
        guest.run(f"hybridctl create {name} --cache /dev/test/{prefix}cache "
                  f"--origin /dev/test/{prefix}origin --mode writeback -y --cutoff 0")
    guest.run("mkfs.ext4 -q /dev/mapper/data")
    _down(guest, "data", "data-")
    _write(guest, image, "root", "/dev/mapper/root")
    _down(guest, "root", "")
    for state in ("dirty", "clean"):
        if state == "clean":
            for name in ("root", "data"):
                guest.run(f"hybridctl activate {name} && hybridctl drain {name}", timeout=300)
                guest.run(f"hybridctl set {name} mode=writethrough && hybridctl deactivate {name}")
        for d in disks:
            copy(d.path, directory / f"{state}-{d.name}")
    guest.close()
    for d in disks:
        d.path.unlink()


def stacks(image: debian.Image, guest_of) -> Path:
    """{lvm,luks}-{cache,origin}, dirty: a root on what is named so, on a volume; luks-key."""
    final = _final("stacks", image)
    with debian.made(final) as new:
        if new:
            _make_stacks(new, image, guest_of)
    return final


def _make_stacks(directory: Path, image: debian.Image, guest_of) -> None:
    sizes = {"cache": CACHE_MIB, "origin": _size(image)}
    disks = [Disk(directory / f"{stack}-{name}", mib << 20, f"{stack}-{name}")
             for stack in ("lvm", "luks") for name, mib in sizes.items()]
    key = directory / "luks-key"
    key.write_bytes(b"open sesame".ljust(4096, b"."))
    guest = guest_of(disks)
    for stack in "lvm", "luks":
        guest.run(f"hybridctl create {stack} --cache /dev/test/{stack}-cache "
                  f"--origin /dev/test/{stack}-origin --mode writeback -y --cutoff 0")
    # No udevd runs there
    guest.run("export DM_DISABLE_UDEV=1; set -e; "
              "o='--config devices{obtain_device_list_from_udev=0}'; "
              "pvcreate $o /dev/mapper/lvm; vgcreate $o vg /dev/mapper/lvm; "
              "lvcreate $o -y -Wn -l 100%FREE -n root vg")
    guest.run(f"cryptsetup luksFormat -q --uuid {LUKS} --pbkdf pbkdf2 --pbkdf-force-iterations 1000 "
              f"/dev/mapper/luks {key} && cryptsetup open -d {key} /dev/mapper/luks plain")
    for stack, device, close in (("lvm", "/dev/mapper/vg-root", "dmsetup remove vg-root"),
                                 ("luks", "/dev/mapper/plain", "cryptsetup close plain")):
        _write(guest, image, stack, device)
        guest.run(close)
        _down(guest, stack, f"{stack}-")
    guest.close()
