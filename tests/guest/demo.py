#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""make demo: a cache at work, in a guest, on a simulated disk and SSD.

Needs no hardware and changes nothing on this machine.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "tests"))

from guest import MIB, Disk, UmlGuest  # noqa: E402

HDD = "7200 150 1000 16000 32 8192 100"
SSD = "16 80 30 500 450 1000"


def make(*targets: str) -> str:
    return subprocess.run(["make", "-s", "--no-print-directory", "-C", TOP, *targets],
                          check=True, capture_output=True, text=True).stdout


def random_reads(guest: UmlGuest, dev: str) -> float:
    """Most reads go to a small part of the device, as in life."""
    out = guest.run(["fio", "--name=demo", f"--filename={dev}", "--rw=randread", "--bs=4k",
                     "--direct=1", "--ioengine=psync", "--thread", "--runtime=6", "--time_based",
                     "--random_distribution=zipf:1.2", "--output-format=json"]).out
    return json.loads(out[out.index("{"):])["jobs"][0]["read"]["iops"]


def main() -> int:
    kernel = Path(make("guest-kernel").split()[-1])
    with tempfile.TemporaryDirectory(prefix="dm-hybrid-demo-") as tmp:
        disks = [Disk(Path(tmp) / "hdd.img", 2048 * MIB), Disk(Path(tmp) / "ssd.img", 256 * MIB)]
        guest = UmlGuest(Path(tmp) / "guest", kernel, disks=disks,
                         modules=TOP / "build" / "guest-uml", path=[TOP / "build" / "userspace"])
        try:
            guest.boot()
            print(f"A guest booted in {guest.boot_seconds:.1f} s.")
            guest.modprobe("dm-testdisk")
            hdd = guest.dm_create("hdd", f"0 {disks[0].sectors} hddsim /dev/test/hdd 0 {HDD}")
            ssd = guest.dm_create("ssd", f"0 {disks[1].sectors} ssdsim /dev/test/ssd 0 {SSD}")
            print(f"The disk alone:  {random_reads(guest, hdd):8.0f} random reads a second")
            print(f"The SSD alone:   {random_reads(guest, ssd):8.0f} random reads a second")
            if guest.run("modprobe dm-hybrid && which hybridctl", check=False).rc:
                print("dm-hybrid is not built: no more to show.")
                return 1
        finally:
            guest.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
