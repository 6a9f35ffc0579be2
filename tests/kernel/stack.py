# SPDX-License-Identifier: GPL-2.0-or-later
"""A pool with its volumes in a guest, and what tests ask of it."""
import json
import time
from pathlib import Path

from guest import Guest
from guest.oplog import Op

HERE = Path(__file__).resolve().parent
POLICIES = ("c2q", "s3fifo", "sieve", "arc", "lru", "fifo", "null")
MODES = ("writeback", "writethrough", "writearound", "passthrough")
DATA_SECTOR = 2048	# of a formatted origin: behind its head


def pairs(line: str) -> dict[str, int | str]:
    """"<start> <len> <target> key value ..." as a dictionary; numbers as numbers."""
    words = line.split()[3:]
    assert len(words) % 2 == 0, line
    return {k: int(v) if v.isdigit() else v for k, v in zip(words[::2], words[1::2])}


class Stack:
    """Members (bare, or behind volatile caches named v<disk>), a pool, volumes.

    hybridctl formats and brings up; what a test is about it does with dmsetup itself.
    """

    def __init__(self, guest: Guest, cache: str = "ssd", origin: str = "hdd",
                 volatile: dict[str, str] | None = None, pool: str = "pool"):
        self.guest = guest
        self.pool = pool
        self.volatile = volatile or {}
        self.cache, self.origin = cache, origin

    def disk(self, name: str):
        return next(d for d in self.guest.disks if d.name == name)

    def dev(self, name: str) -> str:
        """The device that stands for a disk: itself, or the volatile cache over it."""
        return f"/dev/mapper/v{name}" if name in self.volatile else f"/dev/test/{name}"

    def members(self) -> "Stack":
        """The test devices; again after each boot."""
        for name, features in self.volatile.items():
            self.guest.dm_create(f"v{name}", f"0 {self.disk(name).sectors} volatile "
                                             f"/dev/test/{name} 0 {features}")
        return self

    def behind_linear(self) -> "Stack":
        """The cache device becomes /dev/mapper/fast, which a test can suspend."""
        self.guest.dm_create("fast", f"0 {self.disk(self.cache).sectors} linear {self.dev(self.cache)} 0")
        self.guest.run("ln -s /dev/mapper/fast /dev/test/fast")
        self.cache = "fast"
        return self

    def create(self, name: str = "vol", *options: str) -> str:
        """Formats and starts pool and volume; returns the volume's path.  Tests count blocks of 64 KiB."""
        if "--block-size" not in options:
            options = ("--block-size", "64k", *options)
        self.guest.run(["hybridctl", "create", name, "--cache", self.dev(self.cache),
                        "--origin", self.dev(self.origin), "--pool", self.pool,
                        "--yes", "--wipe-signatures", *options])
        return f"/dev/mapper/{name}"

    def attach(self, name: str, origin: str, *options: str) -> str:
        self.guest.run(["hybridctl", "attach", self.pool, name, "--origin", self.dev(origin),
                        "--yes", "--wipe-signatures", *options])
        return f"/dev/mapper/{name}"

    def activate(self) -> None:
        names = {d.name for d in self.guest.disks} - {"log"}
        self.guest.run(["hybridctl", "activate", "--all",
                        *(w for n in sorted(names) for w in ("--device", self.dev(n)))])

    def after_cut(self) -> None:
        """A fresh kernel, the same disks, the stack brought up as after a reboot."""
        self.guest.boot()
        self.guest.modprobe("dm-testdisk", "dm-hybrid")
        self.members()
        self.activate()

    def deactivate(self) -> None:
        self.guest.run("hybridctl deactivate --all")

    # --- what it says ---------------------------------------------------------

    def status(self, name: str = "vol") -> dict[str, int | str]:
        return pairs(self.guest.dm_status(name))

    def table(self, name: str = "vol") -> str:
        return self.guest.run(["dmsetup", "table", name]).out.strip()

    def pool_table(self, *words, policy: str = "c2q") -> str:
        """A table line of the pool with these features, and no others."""
        return " ".join(map(str, (*self.table(self.pool).split()[:5], len(words), *words, policy, 0)))

    def moved(self, action, name: str = "vol") -> dict[str, int]:
        """How far the counters moved during action(); only those that did.

        Not the flushes of the origin: background records have theirs, whenever it suits.
        """
        before = self.status(name)
        action()
        after = self.status(name)
        return {k: v - before[k] for k, v in after.items()
                if isinstance(v, int) and v != before[k] and k != "origin_flushes"}

    def wait(self, key: str, value: int | str = 0, name: str = "vol", timeout: float = 30) -> None:
        """Until the status says so."""
        end = time.monotonic() + timeout * self.guest.slow
        while (now := self.status(name))[key] != value:
            assert time.monotonic() < end, f"{name}: {key} is not {value}: {now}"
            time.sleep(0.1)

    def script(self, text: str) -> str:
        """Shell commands, up to the first that fails. Long ones do not fit the agent's line."""
        return self.guest.run(["sh", "-e"], input=text).out

    # --- what it does ---------------------------------------------------------

    def message(self, *words, name: str = "vol") -> str:
        return self.guest.dm_message(name, *words)

    def drain(self, name: str = "vol") -> None:
        self.message("drain", name=name)
        self.wait("dirty", 0, name)
        self.wait("draining", 0, name)
        self.message("drain_cancel", name=name)

    def load(self, name: str, table: str) -> None:
        """Another table, in force when this returns."""
        self.guest.run(["dmsetup", "load", name], input=table + "\n")
        self.guest.run(["dmsetup", "resume", name])

    def refused(self, command: str, input: str = "") -> str:
        """What the kernel said to a shell command that must fail."""
        r = self.guest.run(f"dmesg -C; {command} >&2; rc=$?; dmesg; exit $rc", check=False,
                           input=input)
        assert r.rc, f"not refused: {command}\n{r.text}"
        return r.out

    def create_refused(self, table: str) -> str:
        return self.refused("dmsetup create refused", input=table + "\n")

    def logged(self, action) -> list[Op]:
        """The device operations of action()."""
        some = f"v{next(iter(self.volatile))}"
        for word in ("clear", "on"):
            self.guest.dm_message(some, "log", word)
        action()
        self.guest.dm_message(some, "log", "off")
        return self.guest.op_log()


# --- I/O ----------------------------------------------------------------------


def fio(guest: Guest, dev: str, *options: str, timeout: float = 120) -> dict:
    """One fio job, direct; raises where verification fails."""
    r = guest.run(["fio", "--name=t", f"--filename={dev}", "--direct=1", "--thread",
                   "--randrepeat=1", "--output-format=json", *options], check=False,
                  timeout=timeout)
    assert r.rc == 0, f"fio {dev} {' '.join(options)}\n{r.text}"
    return json.loads(r.out[r.out.index("{"):])["jobs"][0]


def io(guest: Guest, dev: str, *steps: str, check: bool = True) -> list[str]:
    """Single I/Os, direct, in one process: see steps.py."""
    r = guest.run(["python3", "-S", HERE / "steps.py", dev], input="\n".join(steps),
                  check=False)
    assert not check or r.rc == 0, r.text
    return r.out.splitlines()
