# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that is a User Mode Linux process: native speed, one CPU, no KVM."""
import os
import socket
import struct
import time
from pathlib import Path

from .base import Guest
from .disk import Disk

HERE = Path(__file__).resolve().parent


class UmlGuest(Guest):
    """`kernel` is the directory that tests/guest/build-kernel prints."""

    flavour = "uml"
    _started = 0

    def __init__(self, workdir: Path, kernel: Path, **options):
        super().__init__(workdir, **options)
        self.kernel = Path(kernel)
        # A system call in the guest is a ptrace stop of one process by another. Across
        # host CPUs it takes four times as long. Guests take turns with the CPUs;
        # pytest-xdist's workers each start at another one.
        cpus = sorted(os.sched_getaffinity(0))
        worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
        self._cpu = cpus[(int(worker) + UmlGuest._started) % len(cpus)]
        UmlGuest._started += 1

    def _device(self, number: int) -> str:
        return f"/dev/ubd{chr(ord('a') + number)}"

    def _config(self) -> dict:
        return {
            "channel": "/dev/ttyS0",
            "share_fs": "hostfs",
            "share_options": "%",
            "disks": {d.name: self._device(n) for n, d in enumerate(self.disks)},
        }

    def _command(self, channel: socket.socket, config: Path) -> list[str]:
        return [
            str(self.kernel / "linux"), f"mem={self.memory}M",
            "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro",
            f"init={HERE / 'agent.py'}", f"hybrid.config={config}",
            "con0=null,fd:1", "con=null", f"ssl0=fd:{channel.fileno()}", "ssl=null",
            f"uml_dir={self.workdir}/uml", "panic=-1", "quiet", "loglevel=7",
            *(f"ubd{n}={d.path}" for n, d in enumerate(self.disks)),
            *self.append.split()]

    # --- disks that come and go -----------------------------------------------------

    def _management(self, command: str) -> None:
        """To the kernel's management console: one datagram each way."""
        console, = self.workdir.glob("uml/*/mconsole")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.bind("")
            s.settimeout(60)
            s.sendto(struct.pack("=III512s", 0xcafebabe, 2, len(command), command.encode()),
                     str(console))
            error, _, length = struct.unpack_from("=III", answer := s.recv(4096))
        if error:
            raise OSError(f"{command}: {answer[12:12 + length].decode()}")

    def plug(self, disk: Disk, number: int) -> str:
        """As the device that is returned."""
        self._management(f"config ubd{number}={disk.path}")
        return self._device(number)

    def unplug(self, number: int) -> None:
        """Once nobody has it open: udev looks at what was written to, when that is closed."""
        end = time.monotonic() + 30 * self.slow
        while True:
            try:
                return self._management(f"remove ubd{number}")
            except OSError as e:
                if "currently open" not in str(e) or time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def _environment(self) -> dict[str, str]:
        """The guest's RAM is a file in TMPDIR: best in RAM; it must allow exec, and have room."""
        env = dict(os.environ)
        try:
            shm = os.statvfs("/dev/shm")
            # Containers often have 64 MiB there: the guest would die of SIGBUS.
            room = shm.f_bavail * shm.f_frsize >= self.memory << 20
            if room and not shm.f_flag & os.ST_NOEXEC:
                env["TMPDIR"] = "/dev/shm"
        except OSError:
            pass
        return env
