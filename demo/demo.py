#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""make demo: a database on a slow disk, without and with a cache, before and after a power cut.

Everything happens in a guest (User Mode Linux) on modelled disks: no hardware is needed and
nothing on this machine changes. All figures, printed or drawn, are measured in this run.
Leaves build/demo/index.html, result.json and console.log.
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent
OUT = TOP / "build" / "demo"
sys.path.insert(0, str(TOP / "tests"))
sys.path.insert(0, str(HERE))

import report  # noqa: E402
from guest import MIB, Disk, GuestError, UmlGuest  # noqa: E402

# A disk of 7,200 rpm and an SSD on SATA: tests/guest/README.md explains the words.
HDD = "7200 150 1000 16000 32 8192 100"
SSD = "16 80 30 500 450 1000"
# In a power cut, this share of the unflushed writes has reached the medium all the same.
DESTAGE = "2 destage_pct 30"
HDD_MIB, SSD_MIB = 2048, 1024
MEMORY = 512
NEEDED_MIB = 2560	# for the disks' files, at most

# The database: pages of 8 KiB in four tables, some far more popular than others.
TABLES_MIB = 256
FIO = ["fio", "--name=db", "--directory=/mnt", "--nrfiles=4", f"--size={TABLES_MIB}m",
       "--filename_format=table.$filenum", "--direct=1", "--output-format=json"]
LOAD = ["--ioengine=libaio", "--iodepth=16", "--bs=8k", "--norandommap", "--random_distribution=zipf:1.1"]
JOBS = {
    "read": ["--rw=randread"],
    "mix": ["--rw=randrw", "--rwmixread=70"],
    "write": ["--rw=randwrite", "--fdatasync=32"],
}
JOB_TEXT = {
    "read": "random reads",
    "mix": "70 % reads, 30 % writes",
    "write": "random writes, fdatasync after each 32",
}
SECONDS = {"read": 12, "mix": 8, "write": 8}
# A cold cache warms up while it is measured.  After a fixed number of reads its state does not depend
# on the machine's speed, as it would after a fixed time; the same holds after the power cut.
COLD_READS = 4000
AFTER_CUT_READS = 60000
READ_LIMIT = 120	# seconds
SEED = 2026
WARM_UP = 2		# times the read job, with other seeds
FASTER = 10		# warm, at least this many times the bare disk
COLD_AT_LEAST = 0.98

MKFS = {"xfs": "mkfs.xfs -q -f -K", "ext4": "mkfs.ext4 -q -F -E nodiscard"}


class DemoError(Exception):
    """A step failed; the text names the reason."""


def make(*targets: str) -> str:
    run = subprocess.run(["make", "-s", "--no-print-directory", "-C", TOP, *targets],
                         stdout=subprocess.PIPE, text=True)
    if run.returncode:
        raise DemoError(f"make {' '.join(targets)} failed")
    return run.stdout


class Demo:
    STEPS = 10

    def __init__(self, fs: str, work: Path):
        self.fs = fs
        self.work = work
        self.started = time.monotonic()
        self.step_number = 0
        self.step_text = "preparing"
        self.r: dict = {"filesystem": fs, "load": {}, "seconds": 0}
        self.curve: list[tuple[str, list[float]]] = []	# reads a second, second by second
        kernel = Path(make("guest-kernel").split()[-1])
        self.disks = [Disk(work / "hdd.img", HDD_MIB * MIB), Disk(work / "ssd.img", SSD_MIB * MIB),
                      Disk(work / "notes.img", 1 * MIB)]
        self.guest = UmlGuest(work / "guest", kernel, disks=self.disks, memory=MEMORY,
                              modules=TOP / "build" / "guest-uml",
                              path=[TOP / "build" / "userspace"], shares=[HERE])

    # --- talking ------------------------------------------------------------------

    def step(self, text: str) -> None:
        self.step_number += 1
        self.step_text = text
        print(f"\n[{self.step_number}/{self.STEPS}] {text}  "
              f"({time.monotonic() - self.started:.0f} s)", flush=True)

    def say(self, text: str) -> None:
        for line in text.rstrip().splitlines():
            print(f"      {line}", flush=True)

    def run(self, command, timeout: float = 60, show: bool = False) -> str:
        if show:
            self.say(f"# {command}")
        result = self.guest.run(command, timeout=timeout)
        if show:
            self.say(result.text)
        return result.out

    # --- the stack ----------------------------------------------------------------

    def devices(self) -> None:
        """Each disk is a volatile write cache, and above it a model of the timing."""
        self.guest.modprobe("dm-testdisk", "dm-hybrid")
        for disk, model in zip(self.disks, (f"hddsim # 0 {HDD}", f"ssdsim # 0 {SSD}")):
            v = self.guest.dm_create(f"v{disk.name}", f"0 {disk.sectors} volatile {disk.dev} 0 "
                                     f"{DESTAGE}")
            self.guest.dm_create(disk.name, f"0 {disk.sectors} {model.replace('#', v)}")

    def prepare_tables(self, dev: str) -> None:
        self.run(f"{MKFS[self.fs]} {dev} && mount {dev} /mnt", timeout=120)
        self.run([*FIO, "--rw=write", "--bs=1m", "--fsync=16", "--end_fsync=1"], timeout=120)
        self.say(f"{self.fs} made, tables of {TABLES_MIB} MiB written")

    def counters(self) -> dict[str, int]:
        words = self.guest.dm_status("db").split()[3:]
        return {k: int(v) for k, v in zip(words[::2], words[1::2]) if v.isdigit()}

    def load(self, phase: str, job: str, seed: int = SEED, reads: int = 0) -> dict:
        """Runs a fio job, for its time or for @reads; returns reads, writes and both a second,
        latencies, and the hit ratio."""
        seconds = READ_LIMIT if reads else SECONDS[job]
        length = [f"--number_ios={reads}", f"--io_size={8 * reads}k"] if reads else ["--time_based"]
        before = self.counters() if phase != "bare" else None
        out = self.run(["sh", "-c", 'cd /tmp && rm -f demo_iops* && exec "$@"', "fio", *FIO, *LOAD,
                        *JOBS[job], *length, f"--randseed={seed}", f"--runtime={seconds}",
                        "--write_iops_log=demo", "--log_avg_msec=1000"], timeout=4 * seconds + 60)
        j = json.loads(out[out.index("{"):])["jobs"][0]
        figures = {"read_iops": round(j["read"]["iops"], 1),
                   "write_iops": round(j["write"]["iops"], 1),
                   "iops": round(j["read"]["iops"] + j["write"]["iops"], 1)}
        if reads and j["read"]["total_ios"] < reads:
            raise DemoError(f"only {j['read']['total_ios']} of {reads} reads in {seconds} s: this machine is too busy")
        kind = "write" if job == "write" else "read"
        percentiles = j[kind]["clat_ns"].get("percentile", {})
        for p in ("50", "99"):
            figures[f"p{p}_ms"] = round(percentiles.get(f"{p}.000000", 0) / 1e6, 3)
        hits = ""
        if before is not None:
            after = self.counters()
            d = {k: after[k] - before[k] for k in after}
            total = d["read_hits"] + d["read_misses"]
            if total and job != "write":
                figures["hit_ratio"] = round(d["read_hits"] / total, 4)
                hits = f", {figures['hit_ratio']:.1%} of the reads from the cache"
        if job == "read":
            log = self.run("cat /tmp/demo_iops.1.log")
            seen = [float(line.split(",")[1]) for line in log.splitlines() if line.strip()]
            self.curve.append((phase, seen[:seconds]))
        self.say(f"{JOB_TEXT[job]:40} {figures['iops']:8.0f} a second{hits}")
        return figures

    # --- the steps ----------------------------------------------------------------

    def boot(self) -> None:
        self.step("Booting a guest with a slow disk and a fast one")
        self.guest.boot()
        self.devices()
        self.say(f"Linux {self.guest.release} in {self.guest.boot_seconds:.1f} s; the disk turns "
                 f"7,200 times a minute,\nthe SSD has 16 channels; in a power cut both lose "
                 f"unflushed writes")
        self.r["kernel"] = self.guest.release

    def bare(self) -> None:
        self.step("The database on the bare disk")
        self.prepare_tables("/dev/mapper/hdd")
        self.r["load"]["bare"] = {job: self.load("bare", job) for job in JOBS}
        self.run("umount /mnt")

    def create(self) -> None:
        self.step("Joining disk and SSD into a volume")
        self.run("hybridctl create db --origin /dev/mapper/hdd --cache /dev/mapper/ssd "
                 "--mode passthrough --yes --wipe-signatures", show=True)
        self.prepare_tables("/dev/mapper/db")
        self.say("In passthrough mode none of these writes entered the cache. Now the volume uses it:")
        self.run("hybridctl set db mode=writeback", show=True)

    def cold(self) -> None:
        self.step("The same load, cache cold")
        self.r["load"]["cold"] = {"read": self.load("cold", "read", reads=COLD_READS)}

    def warm(self) -> None:
        self.step("Warming up the cache with the load itself")
        for k in range(WARM_UP):
            self.load("warming", "read", seed=SEED + 1 + k)
        self.step("The same load, cache warm")
        self.r["load"]["warm"] = {job: self.load("warm", job) for job in JOBS}
        self.r["status"] = self.run("hybridctl status", show=True)

    def power_cut(self) -> None:
        self.step("Cutting the power in the middle of writes")
        prepared = json.loads(self.run(["python3", "-I", HERE / "ledger.py", "prepare",
                                        "/mnt"], timeout=120))
        self.run("sync")
        writer = self.guest.run_bg(["python3", "-I", HERE / "ledger.py", "write", "/mnt",
                                    "/dev/test/notes"])
        load = self.guest.run_bg([*FIO, *LOAD, *JOBS["mix"], f"--randseed={SEED + 9}",
                                  "--time_based", "--runtime=60", "--iodepth=4"])
        wait = random.uniform(8, 12)
        self.say(f"Four writers change pages of {prepared['bytes'] // MIB} MiB, call fdatasync, and "
                 f"note each\nacknowledged transaction on another device; the database load runs beside "
                 f"them. Power off in {wait:.1f} s ...")
        time.sleep(wait)
        dirty = self.counters()["dirty"]
        if writer.poll() or load.poll():
            raise DemoError("the writers ended before the power did:\n" +
                            (writer.poll() or load.poll()).text)
        self.guest.check_console()
        self.guest.power_cut()
        self.say(f"Power is off. {dirty} cache blocks held data that the disk did not have. "
                 f"Disk and SSD\neach lost unflushed writes.")
        self.r["dirty_blocks_at_power_cut"] = dirty

    def recover(self) -> None:
        self.step("Power on: checking all acknowledged writes")
        self.guest.boot()
        self.devices()
        started = time.monotonic()
        # The devices below the modelled disks have the same superblocks: name the disks.
        self.run("hybridctl activate db --device /dev/mapper/hdd --device /dev/mapper/ssd",
                 show=True)
        self.r["activate_seconds"] = round(time.monotonic() - started, 2)
        self.run("mount /dev/mapper/db /mnt", timeout=120)
        found = self.verify("/mnt")
        self.r["ledger"] = found
        self.r["lost_after_power_cut"] = found["lost"] + found["damaged"]
        self.say("The cache is still warm:")
        self.r["load"]["after power cut"] = {"read": self.load("after power cut", "read",
                                                             reads=AFTER_CUT_READS)}

    def verify(self, directory: str) -> dict:
        found = json.loads(self.run(["python3", "-I", HERE / "ledger.py", "verify", directory,
                                     "/dev/test/notes"], timeout=120))
        self.say(f"{found['transactions']} transactions with {found['writes']} page writes were "
                 f"acknowledged; {found['sectors']} sectors checked:\n{found['lost']} lost, "
                 f"{found['damaged']} damaged")
        return found

    def drain(self) -> None:
        self.step("Writing back all dirty data, and separating disk and cache")
        self.run("umount /mnt", timeout=120)
        dirty = self.counters()["dirty"]
        started = time.monotonic()
        self.run("hybridctl drain db", timeout=240, show=True)
        self.r["drained_blocks"] = dirty
        self.r["drain_seconds"] = round(time.monotonic() - started, 2)
        if self.counters()["dirty"]:
            raise DemoError("the volume is still dirty after the drain")
        self.say(f"{dirty} blocks in {self.r['drain_seconds']:.1f} s")
        sectors = self.run("blockdev --getsz /dev/mapper/db").strip()
        # dm prints the volume's place on the origin in its table of the pool.
        place = [line.split() for line in self.run("dmsetup message db-pool 0 volumes").splitlines()]
        start = next(w[6] for w in place if w[3] == "db")
        self.run("hybridctl deactivate db", show=True)
        self.say("Now the disk alone, read-only, without its cache:")
        options = {"xfs": "ro,norecovery", "ext4": "ro,noload"}[self.fs]
        self.run(f"dmsetup create alone --readonly --table '0 {sectors} linear /dev/mapper/hdd "
                 f"{start}' && mount -o {options} /dev/mapper/alone /mnt")
        found = self.verify("/mnt")
        self.r["lost_on_the_disk_alone"] = found["lost"] + found["damaged"]
        check = {"xfs": "xfs_repair -n", "ext4": "e2fsck -fn"}[self.fs]
        self.run(f"umount /mnt && {check} /dev/mapper/alone", timeout=120)
        self.say(f"{check}: the file system is sound")
        self.run("dmsetup remove alone")
        self.guest.check_console()

    def results(self) -> list[str]:
        """Fills in the figures of the report; returns the missed goals."""
        r, load = self.r, self.r["load"]
        r["bare_iops"] = load["bare"]["read"]["iops"]
        r["cold_iops"] = load["cold"]["read"]["iops"]
        r["warm_iops"] = load["warm"]["read"]["iops"]
        r["write_bare_iops"] = load["bare"]["write"]["iops"]
        r["write_iops"] = load["warm"]["write"]["iops"]
        r["mix_bare_iops"] = load["bare"]["mix"]["iops"]
        r["mix_iops"] = load["warm"]["mix"]["iops"]
        r["hit_ratio"] = load["warm"]["read"]["hit_ratio"]
        r["cold_reads"], r["after_cut_reads"] = COLD_READS, AFTER_CUT_READS
        r["curve"] = self.curve
        r["seconds"] = round(time.monotonic() - self.started)
        missed = []

        def require(ok: bool, text: str) -> None:
            if not ok:
                missed.append(text)

        for name, fast, slow in (("reads", "warm_iops", "bare_iops"),
                                 ("writes", "write_iops", "write_bare_iops")):
            require(r[fast] >= FASTER * r[slow],
                    f"warm {name} are {r[fast] / max(r[slow], 1e-9):.1f} times the bare disk's, "
                    f"not {FASTER}")
        require(r["cold_iops"] >= COLD_AT_LEAST * r["bare_iops"],
                f"cold reads are {r['cold_iops'] / max(r['bare_iops'], 1e-9):.2f} of the bare "
                f"disk's, less than {COLD_AT_LEAST}")
        require(r["lost_after_power_cut"] == 0,
                f"{r['lost_after_power_cut']} acknowledged sectors are lost or damaged "
                f"after the power cut")
        require(r["lost_on_the_disk_alone"] == 0,
                f"{r['lost_on_the_disk_alone']} acknowledged sectors are not on the disk after "
                f"the drain")
        require(r["ledger"]["transactions"] > 0, "no transaction was acknowledged before the cut")
        r["missed"] = missed
        return missed

    def finish(self) -> list[str]:
        self.step("Results")
        missed = self.results()
        (OUT / "result.json").write_text(json.dumps(self.r, indent=1) + "\n")
        page = OUT / "index.html"
        page.write_text(report.html(self.r))
        print()
        print(report.text(self.r))
        print(f"\nPicture: {page}\nFigures: {OUT / 'result.json'}")
        return missed

    def perform(self) -> list[str]:
        self.boot()
        self.bare()
        self.create()
        self.cold()
        self.warm()
        self.power_cut()
        self.recover()
        self.drain()
        return self.finish()


def real_devices() -> str:
    """The next steps, on real devices."""
    build = Path(f"/lib/modules/{os.uname().release}/build")
    config = build / ".config"
    if config.exists() and "CONFIG_MODULES=y" in config.read_text(errors="replace"):
        return ("On real devices, on this machine:\n"
                "  sudo make install\n"
                "  sudo hybridctl create NAME --origin /dev/SLOW --cache /dev/FAST\n"
                "create asks before it destroys anything; see man hybridctl.")
    return (f"On real devices: 'sudo make install' and 'hybridctl create' on a machine with the "
            f"headers of its\nkernel. This one has none for {os.uname().release}, or cannot load "
            f"modules.")


def workdir(keep: bool):
    """A directory for disks and guest: outside the tree (short paths), unless there is no room."""
    where = None
    if shutil.disk_usage(tempfile.gettempdir()).free < NEEDED_MIB * MIB:
        where = OUT
        if shutil.disk_usage(OUT).free < NEEDED_MIB * MIB:
            raise DemoError(f"the disks' files need {NEEDED_MIB} MiB in {tempfile.gettempdir()} "
                            f"or {OUT}")
    return Path(tempfile.mkdtemp(prefix="dm-hybrid-demo-", dir=where))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fs", choices=sorted(MKFS), default="xfs")
    parser.add_argument("--keep", action="store_true", help="leave the guest's disks behind")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    demo = work = None
    missed = [""]
    try:
        work = workdir(options.keep)
        demo = Demo(options.fs, work)
        missed = demo.perform()
    except (GuestError, DemoError, OSError) as e:
        step = demo.step_text if demo else "preparing"
        print(f"\nThe demo failed in the step \"{step}\":\n{e}", file=sys.stderr)
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
    finally:
        if demo:
            demo.guest.close()
            if demo.guest.console_path.exists():
                shutil.copy(demo.guest.console_path, OUT / "console.log")
        if work and not options.keep:
            shutil.rmtree(work, ignore_errors=True)
        elif work:
            print(f"The guest's disks: {work}")
    if missed == [""]:
        print(f"The guest's console: {OUT / 'console.log'}", file=sys.stderr)
        return 1
    if missed:
        print("\nMissed goals:", file=sys.stderr)
        for text in missed:
            print(f"  - {text}", file=sys.stderr)
        print(f"If the machine is busy with other work, the demo can miss the goals of speed.\n"
              f"The guest's console: {OUT / 'console.log'}", file=sys.stderr)
        return 1
    print(f"\n{real_devices()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
