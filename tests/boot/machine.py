# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine that boots Debian in QEMU, without KVM, from its disks."""
import os
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from guest import qemu
from guest.base import KeptWaiting, guard

from .debian import Image

SECONDS = 400	# for whatever is waited for; not those that a busy host kept it waiting


def _tsc_khz() -> int:
    mhz = re.search(r"^cpu MHz\s*: ([\d.]+)", Path("/proc/cpuinfo").read_text(), re.M)
    return int(float(mhz[1]) * 1000)


class BootError(Exception):
    """It did not do what it should; carries the end of the console."""


class Slice(NamedTuple):
    """A part of a file, in bytes: what is a logical volume to another machine."""
    path: Path
    offset: int
    size: int

    def read(self) -> bytes:
        with open(self.path, "rb") as f:
            f.seek(self.offset)
            return f.read(self.size)


class Machine:
    """`disks`: name -> file or slice of one, a device each, by that serial.

    `loose` may be unplugged; `late` as well, and is not plugged in yet.
    """

    def __init__(self, workdir: Path, image: Image, kind: str, disks: dict[str, Path | Slice],
                 late: tuple[str, ...] = (), loose: tuple[str, ...] = (),
                 removable: tuple[str, ...] = (),
                 root: str = "/dev/mapper/root", append: str = ""):
        self.workdir = workdir
        self.image = image
        self.kind = kind
        self.disks = disks
        self.late = late
        self.loose = loose
        self.removable = removable
        self.append = append
        self.root = root
        self.console_path = workdir / "console.log"
        self.seconds = 0.0
        self._process: subprocess.Popen | None = None
        self._rest = b""

    @staticmethod
    def _loose(name: str) -> str:
        return f"scsi-hd,bus=scsi.0,drive={name},serial={name},id=dev-{name}"

    def _command(self, agent: socket.socket) -> list[str]:
        devices = []
        for name, disk in self.disks.items():
            part = isinstance(disk, Slice)
            where = f"{disk.path},offset={disk.offset},size={disk.size}" if part else disk
            devices += ["-drive", f"if=none,id={name},file={where},format=raw,cache=unsafe,"
                                  "aio=threads,discard=unmap,file.locking=off"]
            if name in self.removable:
                devices += ["-device", f"usb-storage,bus=usb.0,drive={name},removable=on"]
            elif name in self.loose:
                devices += ["-device", self._loose(name)]
            elif name not in self.late:
                devices += ["-device", f"virtio-blk-pci,drive={name},serial={name}"]
        # As dracut and Debian's scripts know them: what to do when the root does not come.
        append = [f"root={self.root}", "ro", "console=ttyS0", "panic=2", "rd.shell=0",
                  "rd.emergency=reboot", "no_timer_check", "mitigations=off",
                  # The host's own; calibrated on a busy host time would run ten times too fast
                  "tsc=reliable", f"tsc_early_khz={_tsc_khz()}",
                  "cryptomgr.notests", "random.trust_cpu=on", "systemd.show_status=1",
                  "loglevel=5", self.append]
        if "data-origin" not in self.disks:
            append.append("systemd.mask=data.mount")	# else the boot waits for it
        # rep stosb is emulated byte by byte: without erms the kernel takes words
        return [
            qemu.PROGRAM, "-accel", "tcg,thread=multi", "-cpu", "max,-erms", "-M", "q35,hpet=off",
            "-m", "768", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-serial", "stdio", "-kernel", str(self.image.kernel),
            "-initrd", str(self.image.initrd(self.kind)), "-append", " ".join(append),
            "-chardev", f"socket,id=agent,fd={agent.fileno()}",
            "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=agent",
            "-monitor", f"unix:{self.workdir / 'monitor'},server,nowait",
            "-device", "virtio-scsi-pci,id=scsi", "-device", "qemu-xhci,id=usb", *devices]

    def start(self) -> "Machine":
        self._agent, theirs = socket.socketpair()
        self._began = time.monotonic()
        self._rest = b""
        with theirs, open(self.console_path, "wb") as console, \
                open(self.workdir / "qemu.log", "ab") as log:
            self._process = subprocess.Popen(
                self._command(theirs), pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE, stdout=console, stderr=log, start_new_session=True)
        self._guard = guard(self._process.pid)
        return self

    def boot(self) -> "Machine":
        """Until all that systemd starts has started."""
        return self.start().booted()

    def booted(self) -> "Machine":
        self._until(rb"@@ready\n")
        self.run("systemctl is-system-running --wait", check=False)
        self.seconds = time.monotonic() - self._began
        return self

    @property
    def console(self) -> str:
        return self.console_path.read_text(errors="replace") if self.console_path.exists() else ""

    def fail(self, why: str):
        raise BootError(f"{why}\n--- console ---\n{self.console[-6000:]}")

    def _patience(self, what: str):
        """A function to call while waiting: false once it ended; fails in the end."""
        begin = time.monotonic()
        kept = KeptWaiting(lambda: [self._process.pid])

        def running() -> bool:
            if self._process.poll() is not None:
                return False
            if time.monotonic() - begin - kept.seconds() > SECONDS:
                self.fail(f"too long: {what}")
            return True
        return running

    def _until(self, pattern: bytes, what: str = "boot") -> tuple[str, re.Match]:
        running = self._patience(what)
        self._agent.settimeout(1)
        while not (m := re.search(pattern, self._rest)):
            if not running():
                self.fail(f"the machine ended, waiting for {what}")
            try:
                more = self._agent.recv(65536)
            except TimeoutError:
                continue
            if not more:
                time.sleep(0.1)
            self._rest += more
        text, self._rest = self._rest[:m.start()].decode(errors="replace"), self._rest[m.end():]
        return text, m

    def run(self, command: str, check: bool = True) -> str:
        self._agent.sendall(command.encode() + b"\n")
        text, m = self._until(rb"@@(\d+)\n", command)
        if check and m[1] != b"0":
            self.fail(f"exit status {m[1].decode()}: {command}\n{text}")
        return text

    def send(self, command: str) -> None:
        """A command that does not come back."""
        self._agent.sendall(command.encode() + b"\n")

    def monitor(self, command: str) -> None:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.workdir / "monitor"))
            s.sendall(command.encode() + b"\n")
            s.settimeout(2)
            try:
                while s.recv(4096):
                    pass
            except TimeoutError:
                pass

    def plug(self, name: str) -> None:
        self.monitor(f"device_add {self._loose(name)}")

    def unplug(self, name: str) -> None:
        self.monitor(f"device_del dev-{name}")

    def wait_console(self, pattern: str) -> None:
        running = self._patience(pattern)
        while not re.search(pattern, self.console):
            if not running():
                self.fail(f"the machine ended, waiting for {pattern}")
            time.sleep(0.5)

    def wait_end(self) -> None:
        """Until it is switched off, or would start anew."""
        running = self._patience("its end")
        while running():
            time.sleep(0.2)

    def power_cut(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._guard.communicate(b"\n")
            self._process = None


def copy(source: Path, target: Path) -> Path:
    """Of an image, with its holes."""
    subprocess.run(["cp", "--sparse=always", "--reflink=auto", source, target], check=True)
    return target
