# SPDX-License-Identifier: GPL-2.0-or-later
"""What all guests have in common: running commands, watching the console, dying."""
import base64
import contextlib
import glob
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import NamedTuple

from . import oplog
from .disk import Disk

# The kernel is dead or cannot be trusted any more.
CRASH = re.compile(
    r"Kernel panic|BUG: (?!KCSAN)|Oops[: ]|general protection fault|KASAN: |kernel BUG at|"
    r"Unable to handle kernel|double fault")
# The kernel goes on, but a test that provoked this has failed.
COMPLAINT = re.compile(
    r"BUG: KCSAN: .*\[dm_(?:hybrid|testdisk)|WARNING: |INFO: task .* blocked for more than|INFO: rcu|UBSAN: |"
    r"possible circular locking|possible recursive locking|suspicious RCU|"
    r"inconsistent lock state|INFO: trying to register|BUG \S+ \(|still has objects|"
    r"soft lockup|list_(?:add|del) corruption")

# What systemd starts, of the host's units and in /etc.
TARGET = """\
[Unit]
Requires=systemd-journald.service systemd-udevd.service systemd-udev-trigger.service
After=systemd-journald.service systemd-udevd.service systemd-udev-trigger.service
"""

# In a kernel with lockdep and kmemleak, when a test is over: what is there goes, and nothing of
# it stays. Prints what stays.
FAREWELL = r"""
exec 2>&1
umount -qR /mnt 2>/dev/null	# what lies on volumes; below, what they lie on
losetup -D
dmsetup remove_all
mdadm --stop --scan 2>/dev/null	# arrays below what was there
dmsetup remove_all	# a loop device that went with its last user closes its file after that call
umount -qR /mnt
for m in $(sed -n 's/^\(dm_hybrid_[^ ]*\) .*/\1/p' /proc/modules) dm-hybrid dm-testdisk; do
	modprobe -qr $m
done
sed -n 's/^dm_\(hybrid\|testdisk\).*/still loaded: &/p' /proc/modules
grep -q 'debug_locks: *1' /proc/lockdep_stats || echo lockdep is off
sleep 0.3
echo scan >/sys/kernel/debug/kmemleak
echo scan >/sys/kernel/debug/kmemleak
cat /sys/kernel/debug/kmemleak
"""


class GuestError(Exception):
    """Anything wrong with a guest; carries the end of its console."""


class GuestCrash(GuestError):
    """The guest's kernel panicked, oopsed or died."""


class GuestComplaint(GuestError):
    """The guest's kernel printed a warning, a lockdep or a hung-task report."""


class GuestTimeout(GuestError):
    """A command (or the boot) did not end in time."""


class CommandError(GuestError):
    """A command failed in the guest."""


class Result(NamedTuple):
    rc: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


def _processes(leader: int):
    """Of the session of a guest: pid, fields of /proc/PID/stat from the third on."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == leader:
            yield int(entry), fields


class KeptWaiting:
    """How long a guest has waited for a CPU of the host since this was made.

    @pids: a function. Its processes wait one after the other, and come and go: to be asked often.
    """

    def __init__(self, pids):
        self.pids = pids
        self.total = 0
        self.seen = self._delays()

    def _delays(self) -> dict[int, int]:
        found = {}
        for pid in self.pids():
            for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
                with contextlib.suppress(OSError):	# it ended
                    delay = int(Path(path).read_text().split()[1])
                    found[pid] = max(found.get(pid, 0), delay)
        return found

    def seconds(self) -> float:
        now = self._delays()
        self.total += sum(delay - self.seen.get(pid, 0) for pid, delay in now.items())
        self.seen = now
        return self.total / 1e9


class Job:
    """A command that runs in the guest."""

    def __init__(self, guest: "Guest", ident: int, argv: list[str]):
        self.guest = guest
        self.id = ident
        self.argv = argv
        self.answer: dict | None = None

    def poll(self) -> Result | None:
        """The result, or None while it runs."""
        if self.answer is None:
            return None
        return Result(self.answer["rc"],
                      base64.b64decode(self.answer["out"]).decode(errors="replace"),
                      base64.b64decode(self.answer["err"]).decode(errors="replace"))

    def wait(self, timeout: float = 60, check: bool = True) -> Result:
        self.guest._wait(lambda: self.answer is not None, timeout, " ".join(self.argv))
        result = self.poll()
        if check and result.rc:
            raise CommandError(
                f"exit status {result.rc}: {' '.join(self.argv)}\n{result.text}"
                f"--- console ---\n{self.guest.console_tail(15)}")
        return result

    def kill(self, sig: int = signal.SIGKILL) -> None:
        self.guest._send({"kill": self.id, "signal": int(sig)})


class Guest:
    """One kernel. Subclasses say how it is started (`_command`) and what devices are called."""

    flavour = ""
    slow = 1.0		# how many times slower than without checkers in the kernel
    _cpu: int | None = None	# of the host, to which the guest is tied
    _patience = 1.0		# by which every time-out is multiplied

    def __init__(self, workdir: Path, disks: list[Disk] = (), memory: int = 512,
                 modules: Path | None = None, shares: list[Path] = (),
                 path: list[Path] = (), append: str = "", systemd: Path | None = None):
        self.workdir = Path(workdir)
        self.workdir.mkdir(parents=True, exist_ok=True)
        self.disks = list(disks)
        self.memory = memory
        self.modules = modules
        self.shares = [self.workdir, *map(Path, shares)]
        self.append = append
        self.console_path = self.workdir / "console.log"
        self.release = ""
        self.boots = 0
        self.boot_seconds = 0.0
        self.tolerate: list[str] = []	# regular expressions of complaints to overlook
        self.env = {
            "PATH": ":".join([*map(str, path), "/usr/local/sbin:/usr/local/bin:"
                              "/usr/sbin:/usr/bin:/sbin:/bin"]),
            "HOME": "/root", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8",
        }
        self.systemd = systemd
        if not systemd:
            # No udevd here: dmsetup must make the nodes.
            self.env["DM_DISABLE_UDEV"] = "1"
        self._process: subprocess.Popen | None = None
        self._ids = itertools.count(1)
        self._jobs: dict[int, Job] = {}
        self._changed = threading.Condition()
        self._checked = 0	# how much of the console has been looked at

    # --- for subclasses -----------------------------------------------------------

    def _command(self, channel: socket.socket, config: Path) -> list[str]:
        raise NotImplementedError

    def _config(self) -> dict:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    # --- life ---------------------------------------------------------------------

    def boot(self, timeout: float = 30) -> "Guest":
        assert self._process is None, "already running"
        started = time.monotonic()
        config = self.workdir / "config.json"
        config.write_text(json.dumps({
            "env": self.env,
            "shares": [str(s) for s in self.shares],
            "share_source": {},
            "modules": str(self.modules) if self.modules else "",
            "sysctl": {},
            "random": os.urandom(64).hex(),
            **self._config()}))
        ours, theirs = socket.socketpair()
        with theirs, open(self.console_path, "ab") as console:
            self._checked = console.seek(0, os.SEEK_END)
            self._boot_offset = self._checked
            self._process = subprocess.Popen(
                self._command(theirs, config), stdin=subprocess.DEVNULL, stdout=console,
                stderr=console, pass_fds=[theirs.fileno()], start_new_session=True,
                preexec_fn=lambda: _in_child(self._cpu), env=self._environment(), cwd=self.workdir)
        self._guard = guard(self._process.pid)
        self._channel = ours
        self._ready: dict | None = None
        self._jobs.clear()
        threading.Thread(target=self._reader, args=(ours,), daemon=True).start()
        self._wait(lambda: self._ready is not None, timeout, "boot")
        self.release = self._ready["release"]
        self.boots += 1
        if self.systemd:
            self._systemd()
        self.boot_seconds = time.monotonic() - started
        return self

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def power_cut(self) -> None:
        """The machine is gone, now; what was in its RAM is lost, its disks stay."""
        if self._process is None:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._guard.communicate(b"\n")
        self._process = None
        self._channel.close()

    def shutdown(self, timeout: float = 30) -> None:
        """Sync and power off in an orderly way."""
        self.run("sync", timeout=timeout)
        self.check_console()
        self.power_cut()

    def reboot(self, timeout: float = 30) -> "Guest":
        """A fresh kernel on the same disks; the old one gets no warning."""
        self.check_console()
        self.power_cut()
        return self.boot(timeout)

    def close(self) -> None:
        self.power_cut()

    # --- commands -----------------------------------------------------------------

    def run_bg(self, command: str | list, input: bytes | str = b"",
               env: dict[str, str] | None = None, cwd: str = "/") -> Job:
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else [*map(str, command)]
        if isinstance(input, str):
            input = input.encode()
        job = Job(self, next(self._ids), argv)
        self._jobs[job.id] = job
        request = {"id": job.id, "argv": argv, "env": env or {}, "cwd": cwd}
        if input:
            # Not through the serial line: its input side has no flow control.
            path = self.workdir / f"input.{job.id}"
            path.write_bytes(input)
            request["input"] = str(path)
        self._send(request)
        return job

    def run(self, command: str | list, check: bool = True, timeout: float = 60,
            input: bytes | str = b"", env: dict[str, str] | None = None,
            cwd: str = "/") -> Result:
        """Runs a shell command (str) or a program (list); raises CommandError if it fails."""
        return self.run_bg(command, input, env, cwd).wait(timeout, check)

    def read_file(self, path: str) -> str:
        return self.run(["cat", path]).out

    def write_file(self, path: str, data: bytes | str) -> None:
        self.run(["sh", "-c", 'cat >"$0"', path], input=data)

    def insmod(self, module: str | Path, **params) -> None:
        self.run(["insmod", module, *(f"{k}={v}" for k, v in params.items())])

    def modprobe(self, *modules: str) -> None:
        """By name, with dependencies and aliases, as request_module() does it."""
        self.run(["modprobe", "-a", *modules])

    def _systemd(self) -> None:
        """Init becomes systemd, with udevd and a journal."""
        # The host may be a container; this is none
        self.run("rm -rf /.dockerenv /etc/systemd/system/*.wants; : >/etc/fstab; "
                 f"cp -r {self.systemd}/. /")
        self.write_file("/etc/systemd/system/guest.target", TARGET)
        self.run("kill -USR1 1; until systemctl -q is-active guest.target; do sleep 0.1; done; "
                 "udevadm settle")

    # --- device-mapper ------------------------------------------------------------

    def dm_create(self, name: str, table: str) -> str:
        """Creates a dm device from a table (of one or more lines); returns its path."""
        self.run(["dmsetup", "create", name], input=table + "\n")
        return f"/dev/mapper/{name}"

    def dm_remove(self, *names: str) -> None:
        for name in names:
            self.run(["dmsetup", "remove", name])

    def dm_message(self, name: str, *words) -> str:
        return self.run(["dmsetup", "message", name, "0", *words]).out

    def dm_status(self, name: str) -> str:
        return self.run(["dmsetup", "status", name]).out.strip()

    def op_log(self) -> list[oplog.Op]:
        """What reached the test devices since "log on" or "log clear"."""
        return oplog.parse(self.read_file("/sys/kernel/debug/dm-testdisk/log"))

    # --- console ------------------------------------------------------------------

    @property
    def console(self) -> str:
        """Everything that all kernels of this guest printed."""
        return self.console_path.read_text(errors="replace").replace("\r", "")

    def console_tail(self, lines: int = 60) -> str:
        return "\n".join(self.console.splitlines()[-lines:])

    def check_console(self) -> None:
        """Raises if the kernel printed what no healthy kernel prints."""
        with open(self.console_path, "rb") as f:
            f.seek(self._checked)
            new = f.read()
        # A line may be half written; it is looked at when it is whole.
        end = new.rfind(b"\n") + 1
        text = new[:end].decode(errors="replace")
        if not text:
            return
        for line in text.splitlines():
            if any(re.search(t, line) for t in self.tolerate):
                continue
            if CRASH.search(line):
                self._settle()
                raise GuestCrash(f"{line.strip()}\n--- console ---\n{self.console_tail()}")
            if COMPLAINT.search(line):
                self._checked += end
                raise GuestComplaint(f"{line.strip()}\n--- console ---\n{self.console_tail()}")
        self._checked += end

    def check_farewell(self) -> None:
        """Raises if anything of ours outlives its removal: see FAREWELL."""
        left = self.run(FAREWELL, check=False).out
        if left:
            raise GuestComplaint(left)
        self.check_console()

    def _settle(self) -> None:
        """Gives a dying kernel a moment to print its last words."""
        size = -1
        for _ in range(20):
            if self._process is None or self._process.poll() is not None:
                return
            now = self.console_path.stat().st_size
            if now == size:
                return
            size = now
            time.sleep(0.1)

    # --- plumbing -----------------------------------------------------------------

    def _send(self, message: dict) -> None:
        try:
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass	# the guest is dead: the next wait says so

    def _reader(self, channel: socket.socket) -> None:
        pending = b""
        while True:
            try:
                data = channel.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            with self._changed:
                for line in lines:
                    try:
                        message = json.loads(line)
                    except ValueError:
                        continue	# noise of the line before the agent set it up
                    if "ready" in message:
                        self._ready = message
                    elif message.get("id") in self._jobs:
                        self._jobs.pop(message["id"]).answer = message
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _wait(self, done, timeout: float, what: str) -> None:
        """Waits for done(), or for the guest's death, or for too long.

        Time in which the guest was ready to run, and a busy host ran others, does not count.
        """
        timeout *= self._patience * self.slow
        started = time.monotonic()
        kept = KeptWaiting(lambda: [pid for pid, _ in _processes(self._process.pid)])
        with self._changed:
            while not done():
                self._changed.wait(0.2)
                if done():
                    break
                self.check_console()
                if not self.running:
                    raise GuestCrash(f"the guest died during: {what}\n--- console ---\n"
                                     f"{self.console_tail()}")
                elapsed = time.monotonic() - started
                if elapsed > timeout / 4 and elapsed - kept.seconds() > timeout:
                    said = self._report_hang()
                    raise GuestTimeout(f"after {elapsed:.0f} s: {what}\n{said}\n--- console ---\n"
                                       f"{self.console_tail(120)}")

    def _report_hang(self) -> str:
        """The stacks of all blocked tasks on the console; returns what the host sees of the guest."""
        answers = "is not there yet"
        if self._ready is not None:
            job = self.run_bg("echo w >/proc/sysrq-trigger")
            self._changed.wait_for(lambda: job.answer is not None, 5 * self._patience * self.slow)
            answers = "answers" if job.answer is not None else "does not answer"
        before, _ = self._host_view()
        time.sleep(0.5)
        ticks, lines = self._host_view()
        moved = {pid: n - before.get(pid, 0) for pid, n in ticks.items()}
        return "\n".join([f"--- the agent {answers}; processes on the host: pid, state, system call, where "
                          "it sleeps, ticks of CPU in the last half second ---",
                          *(f"{line} {moved[pid]}" for pid, line in lines.items())])

    def _host_view(self) -> tuple[dict[int, int], dict[int, str]]:
        """By pid: CPU time so far, and a line about it."""
        ticks, lines = {}, {}
        for pid, fields in _processes(self._process.pid):
            ticks[pid] = int(fields[11]) + int(fields[12])
            words = [str(pid), fields[0]]
            for name in ("syscall", "wchan"):
                try:
                    text = Path(f"/proc/{pid}/{name}").read_text()
                except OSError:		# it ended, or is not ours to see
                    text = ""
                words.append((text.split() or ["?"])[0])
            lines[pid] = " ".join(words)
        return ticks, lines

    def cpu_seconds(self) -> float:
        """CPU time of all processes of the guest."""
        ticks = sum(sum(map(int, fields[11:15])) for _, fields in _processes(self._process.pid))
        return ticks / os.sysconf("SC_CLK_TCK")


def guard(leader: int) -> subprocess.Popen:
    """No guest outlives a killed test run; until it is told a line.

    Of User Mode Linux there are processes that do not end with their kernel.
    """
    return subprocess.Popen(["sh", "-c", 'read -r _ || kill -KILL -"$0"', str(leader)],
                            stdin=subprocess.PIPE, start_new_session=True)


def _in_child(cpu: int | None) -> None:
    """No core files."""
    import ctypes
    import resource
    libc = ctypes.CDLL(None)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # User Mode Linux counts the random gap before the heap as RAM to manage.
    libc.personality(0x0040000)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
