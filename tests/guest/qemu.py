# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that is a QEMU machine without KVM: Debian's kernel or our own, any number of CPUs."""
import shutil
import socket
from pathlib import Path

from .base import Guest
from .packaged import Kernel

HERE = Path(__file__).resolve().parent
PROGRAM = "qemu-system-x86_64"
FIRST_SLOT = 3	# of the disks on the PCI bus; before them the channel, so that it is vport0


def built(directory: Path) -> Kernel:
    """The kernel that build-kernel left there: all it needs for the start is built in."""
    release = (directory / "include/config/kernel.release").read_text().strip()
    return Kernel(release, directory / "arch/x86/boot/bzImage", None, directory)


def available() -> bool:
    return shutil.which(PROGRAM) is not None


class QemuGuest(Guest):
    """`kernel` is what packaged.kernel() returned, or built() for one of build-kernel's.

    Like UmlGuest its root is the host's own, read-only, under an overlay in RAM; here
    it comes by 9p. The kernel is emulated: some ten times slower than the host.
    """

    flavour = "qemu"
    _patience = 4.0

    def __init__(self, workdir: Path, kernel: Kernel, cpus: int = 1, **options):
        super().__init__(workdir, **options)
        self.kernel = kernel
        self.cpus = cpus

    def _device(self, number: int) -> str:
        return f"/dev/vd{chr(ord('a') + number)}"

    def _config(self) -> dict:
        return {
            "channel": "/dev/vport0p1",
            "share_fs": "9p",
            "share_source": {str(s): f"share{n}" for n, s in enumerate(self.shares)},
            "share_options": "trans=virtio,version=9p2000.L,msize=512000,cache=none",
            "disks": {d.name: self._device(n) for n, d in enumerate(self.disks)},
        }

    def _command(self, channel: socket.socket, config: Path) -> list[str]:
        shares = [("root", Path("/"), ",readonly=on")]
        shares += [(f"share{n}", s, "") for n, s in enumerate(self.shares)]
        devices = [
            "-chardev", f"socket,id=agent,fd={channel.fileno()}",
            "-device", "virtio-serial-pci,id=serial,addr=2",
            "-device", "virtserialport,bus=serial.0,nr=1,chardev=agent,name=agent"]
        slot = FIRST_SLOT
        for n, d in enumerate(self.disks):
            devices += [
                "-drive", f"if=none,id=d{n},file={d.path},format=raw,cache=unsafe,"
                          "aio=threads,discard=unmap,file.locking=off",
                "-device", f"virtio-blk-pci,drive=d{n},addr={slot:#x}"]
            slot += 1
        for tag, path, flags in shares:
            devices += [
                "-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap{flags}",
                "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag},addr={slot:#x}"]
            slot += 1
        append = [
            "console=ttyS0", f"hybrid.init={HERE / 'agent.py'}", f"hybrid.config={config}",
            "panic=-1", "quiet", "loglevel=7", "no_timer_check", "tsc=reliable",
            "mitigations=off", "cryptomgr.notests", "random.trust_cpu=on", *self.append.split()]
        if self.kernel.initrd:
            start = ["-initrd", str(self.kernel.initrd)]
        else:
            start = []
            append += [f"init={HERE / 'agent.py'}", "root=root", "ro", "rootfstype=9p",
                       "rootflags=trans=virtio,version=9p2000.L,msize=512000,cache=loose"]
        # A thread for each CPU crashes QEMU 7.2 while a KCSAN kernel boots with two.
        threads = "single" if self.kernel.release.endswith("kcsan") else "multi"
        return [
            PROGRAM, "-accel", f"tcg,thread={threads}", "-cpu", "max", "-M", "q35,hpet=off",
            "-smp", str(self.cpus), "-m", str(self.memory), "-nodefaults", "-no-user-config",
            "-display", "none", "-no-reboot", "-serial", "stdio",
            "-kernel", str(self.kernel.image), *start, "-append", " ".join(append), *devices]

