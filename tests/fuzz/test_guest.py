# SPDX-License-Identifier: GPL-2.0-or-later
"""Damaged images in a kernel with KASAN: refused, or activated and used, as the engine did here.

What check says of each of them agrees with that; replay --export has made sure.
"""
import os
import shutil
import subprocess

import pytest

from .test_fuzz import make
from . import run

pytestmark = pytest.mark.debug
DISKS = {"cache": 9, "origin0": 4, "origin1": 4}	# MiB, as images.c has them

# Prints the exit code of each create, then what the kernel said.
SCRIPT = """
exec 2>/dev/null
dmsetup create pool --table "0 18432 hybrid-pool /dev/test/cache {block} 0 lru 0"; echo $?
for v in {volumes}; do
    set -- $(echo $v | tr : ' ')
    dmsetup create $1 --table "0 $3 hybrid /dev/mapper/pool $2 /dev/test/$1 0"; echo $?
    test -b /dev/mapper/$1 || continue
    dd if=/dev/mapper/$1 of=/dev/null bs=64k iflag=direct
    dd if=/dev/zero of=/dev/mapper/$1 bs=64k count=4 oflag=direct,dsync conv=notrunc
done
for d in {names} pool; do dmsetup remove $d; done
dmesg -c
"""


def put(disk, path) -> None:
    with open(disk.path, "r+b") as to, open(path, "rb") as f:
        shutil.copyfileobj(f, to, 1 << 20)


def activate(guest, block: int, volumes: list[tuple[str, int, int]]) -> tuple[list[bool], str]:
    """Which of pool and volumes came up; what was said."""
    script = SCRIPT.format(block=block, names=" ".join(name for name, _, _ in volumes),
                           volumes=" ".join(":".join(map(str, v)) for v in volumes))
    out = guest.run(["sh"], input=script, check=False, timeout=120).out.splitlines()
    codes = out[:1 + len(volumes)]
    return [code == "0" for code in codes], "\n".join(out[1 + len(volumes):])


@pytest.mark.parametrize("nr, seed", [
    (30, 1), pytest.param(300, 2, marks=pytest.mark.long)])
def test_as_in_userspace(make_guest, disks, tmp_path, nr, seed):
    make("replay")
    seed = int(os.environ.get("SEED", seed))
    lines = subprocess.run([run.REPLAY, "--export", tmp_path, str(nr), str(seed)], check=True,
                           capture_output=True, text=True)
    guest = make_guest(disks=disks(*(w for pair in DISKS.items() for w in pair)),
                       modprobe=["dm-testdisk", "dm-hybrid"])
    loaded = 0
    for line in lines.stdout.splitlines():
        numbers, why = line.split(" |")
        n, block, error, *rest = map(int, numbers.split())
        origins = [(f"origin{i}", *rest[3 * i:3 * i + 3]) for i in range(2)]
        volumes = [(name, id_, sectors) for name, _, id_, sectors in origins if sectors]
        for disk in guest.disks:
            put(disk, tmp_path / f"{n}.{disk.name}")
        came_up, said = activate(guest, block, volumes)
        expected = [error == 0, *(e == 0 for _, e, _, sectors in origins if sectors)]
        assert came_up == expected, f"image {n} of seed {seed} ({why}):\n{said}\n{lines.stderr}"
        assert why in said, f"image {n}: not refused for that: {why}\n{said}"
        loaded += came_up[0]
    assert nr // 4 < loaded < nr - nr // 4
