# SPDX-License-Identifier: GPL-2.0-or-later
"""A User Mode Linux guest on modelled disks.

The disks and SSDs are dm devices /dev/mapper/hdd0, ... and /dev/mapper/ssd0, ...: models of
time (tests/guest/README.md) over slices of two files. After a power cut they are made again. What
stands on them is then assembled by udev alone, one device after the other; or, in a guest without
udevd, which is ready sooner, by the commands that an administrator types.
"""
import re
import time
from pathlib import Path

from boot.test_udev import MIB, System
from guest import Disk

TOP = Path(__file__).resolve().parents[2]
# A disk of 7,200 rpm, 150 MB/s, 32 requests in its queue and a cache of 8 MiB; an SSD with 16
# channels: 80 us a read, 30 us a write, 1 ms a flush.
MODEL = {"hdd": "hddsim {} 7200 150 1000 16000 32 8192 100", "ssd": "ssdsim {} 16 80 30 500 450 1000"}


class Machine(System):
    def __init__(self, make_guest, installed, directory, record, hdd=1, hdd_mib=256, ssd=1,
                 ssd_mib=128, memory=512, udev=False):
        self.slices, self.shelves = {}, {}
        for kind, count, mib in ("hdd", hdd, hdd_mib), ("ssd", ssd, ssd_mib):
            self.shelves[kind] = Disk(directory / f"{kind}s.img", (count * mib + 2) * MIB)
            for n in range(count):
                self.slices[f"{kind}{n}"] = n * mib + 1, mib
        self.record = record
        self.udev = udev
        super().__init__(make_guest(modprobe=["dm-testdisk", "dm-hybrid"], disks=list(self.shelves.values()),
                                    systemd=installed if udev else None, memory=memory,
                                    shares=[TOP / "examples"]), directory)
        self.disks()

    def paths(self, kind):
        return " ".join(f"/dev/mapper/{name}" for name in self.slices if name.startswith(kind))

    def disks(self):
        """They appear, the last first, and udev sees to the rest."""
        script = ""
        for name, (start, mib) in reversed(self.slices.items()):
            model = MODEL[name[:3]].format(f"{self.shelves[name[:3]].dev} {start * MIB // 512}")
            script += f"dmsetup create {name} --table '0 {mib * MIB // 512} {model}'\n"
        self.run(f"set -e\n{script}", timeout=200)
        self.settle()

    def settle(self):
        if self.udev:
            super().settle()

    def power_cycle(self, *commands):
        """Off without a warning, and on again; commands are for what udev would have done."""
        self.guest.reboot()
        self.guest.modprobe("dm-testdisk", "dm-hybrid")
        self.disks()
        for command in commands if not self.udev else ():
            self.run(command)

    def example(self, script, *words, **variables):
        """What a user types; answers all questions with yes."""
        env = {"ASK": "--yes", **{k: str(v) for k, v in variables.items()}}
        out = self.guest.run(["sh", TOP / "examples" / script, *words], env=env, timeout=300).text
        self.settle()
        return out

    def detach(self, name):
        """The cache is given up; the data is on the disks alone, under the same name."""
        self.follow(self.guest.run(["hybridctl", "detach", name], timeout=300).text)

    def follow(self, advice):
        """What hybridctl detach says: how to reach the data."""
        self.run(re.search(r"dmsetup create .*", advice)[0])
        self.settle()

    # --- work -------------------------------------------------------------------------

    def ios(self):
        """Reads and writes that reached the disks so far."""
        status = self.run("dmsetup status --target hddsim")
        return sum(int(n) for n in re.findall(r"\b[rw] (\d+)", status))

    def measure(self, command):
        """(seconds, I/Os of the disks) of a command; nothing of its data is in RAM before."""
        self.run("sync; echo 3 >/proc/sys/vm/drop_caches")
        before, begin = self.ios(), time.monotonic()
        self.run(command, timeout=400)
        seconds = time.monotonic() - begin
        return seconds, self.ios() - before

    def warm(self, command):
        """The same of a warm cache: the second time."""
        self.cold = self.measure(command)
        return self.measure(command)

    def report(self, stack, work, bare, warm):
        cold = self.cold
        print(f"{stack}: {work}: bare {bare}, first {cold}, warm {warm}")
        self.record("stack", {"stack": stack, "work": work, "bare": bare, "cold": cold, "warm": warm})
        # Seconds depend on what else the host does
        assert warm[1] < bare[1] / 2, (bare, warm)

    # --- data -------------------------------------------------------------------------

    def fill(self, directory, mib, files=4):
        """Random files, on the disks when this returns; their checksums are kept here."""
        self.run(f"""mkdir -p {directory}; cd {directory}; for n in $(seq {files}); do
                dd if=/dev/urandom of=file$n bs=1M count={mib // files} conv=fsync 2>&1; done; sync""",
                 timeout=400)
        return self.sums(directory)

    def sums(self, directory):
        """Of what stands there, not of what is in RAM."""
        self.run("echo 3 >/proc/sys/vm/drop_caches")
        return self.run(f"cd {directory}; find . -type f ! -path './lost+found/*' | sort | xargs sha256sum",
                        timeout=400)


def random_reads(target, ops, span="", jobs=4, extra=""):
    """fio: reads of 8 KiB, a few places far more popular than others; the same in each run."""
    return (f"cd /tmp; fio --name=work --rw=randread --bs=8k --direct=1 --ioengine=libaio --iodepth=4 "
            f"--numjobs={jobs} --number_ios={ops // jobs} --norandommap "
            f"--random_distribution=zipf:0.9 --randseed=2026 {span} {extra} {target}")
