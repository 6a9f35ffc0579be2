#!/usr/bin/python3 -IS
# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's init: sets up a root and runs commands that arrive on a serial line.

Runs inside the guest, on the host's files: the root file system is the host's own,
read-only, under an overlay in RAM. So every tool of the host is there, everything is
writable, and nothing of it survives.

One JSON object a line in both directions:
    -> {"id": 1, "argv": [...], "env": {...}, "input": file}
    <- {"id": 1, "rc": 0, "out": base64, "err": base64}
    -> {"kill": 1, "signal": 9}
Standard library modules that are slow to import are avoided: a guest must be ready in
about a second.
"""
import binascii
import ctypes
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import threading

MS_RDONLY, MS_BIND, MS_MOVE = 1, 4096, 8192
RB_POWER_OFF = 0x4321FEDC
RNDADDENTROPY = 0x40085203
HOST_ID = "7d9e1c5a-2f64-4c0b-9b1e-5a3f0c8d6e21"
SYSTEMD = ["/lib/systemd/systemd", "--unit=guest.target", "--show-status=no"]

libc = ctypes.CDLL(None, use_errno=True)


def mount(source, target, fstype, flags=0, data="", optional=False):
    if libc.mount(source.encode(), target.encode(), fstype.encode(), flags, data.encode()):
        errno = ctypes.get_errno()
        if not optional:
            raise OSError(errno, os.strerror(errno), f"mount {fstype} {source} on {target}")


def option(name):
    """A word of the kernel's command line."""
    with open("/proc/cmdline") as f:
        for word in f.read().split():
            key, _, value = word.partition("=")
            if key == name:
                return value
    return ""


def make_root():
    """An overlay over the host's root, and the usual mounts in it."""
    mount("tmpfs", "/run", "tmpfs")
    for d in ("upper", "work", "root"):
        os.mkdir(f"/run/{d}")
    mount("overlay", "/run/root", "overlay", 0,
          "lowerdir=/,upperdir=/run/upper,workdir=/run/work")
    os.chdir("/run/root")
    mount("/run/root", "/", "", MS_MOVE)
    os.chroot(".")
    os.chdir("/")
    mount("proc", "/proc", "proc")
    mount("sysfs", "/sys", "sysfs")
    mount("devtmpfs", "/dev", "devtmpfs")
    mount("tmpfs", "/run", "tmpfs")
    mount("debugfs", "/sys/kernel/debug", "debugfs", optional=True)
    mount("configfs", "/sys/kernel/config", "configfs", optional=True)
    for d in ("/dev/shm", "/dev/pts", "/dev/test", "/run/lock"):
        os.makedirs(d, exist_ok=True)
    mount("tmpfs", "/dev/shm", "tmpfs")
    mount("devpts", "/dev/pts", "devpts", optional=True)
    for n, fd in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{n}", f"/dev/{fd}")
    os.symlink("/proc/self/fd", "/dev/fd")


def seed_random(seed):
    """Else whoever wants a UUID (mkfs) waits some seconds for the kernel to find entropy."""
    fd = os.open("/dev/random", os.O_WRONLY)
    data = binascii.a2b_hex(seed)
    fcntl.ioctl(fd, RNDADDENTROPY, struct.pack("ii", 8 * len(data), len(data)) + data)
    os.close(fd)


def show_modules(directory, source):
    """modprobe finds what the host has laid out; where it knows this kernel, over its own."""
    if not os.path.exists(f"/{directory}"):
        os.makedirs("/lib/modules", exist_ok=True)
        os.symlink(f"{source}/{directory}", f"/{directory}")
        return
    for name in os.listdir(f"{source}/{directory}"):
        if name == "kernel":
            continue	# the same
        if os.path.lexists(f"/{directory}/{name}"):
            os.unlink(f"/{directory}/{name}")
        os.symlink(f"{source}/{directory}/{name}", f"/{directory}/{name}")


def apply_config(config):
    """What the host wants for this guest: shared directories, disks, modules."""
    seed_random(config["random"])
    for path in config["shares"]:
        os.makedirs(path, exist_ok=True)
        mount(config["share_source"].get(path, "none"), path, config["share_fs"], 0,
              config["share_options"].replace("%", path))
    # The same host after each boot, and in each guest that says nothing else
    os.makedirs("/etc/hybrid", exist_ok=True)
    with open("/etc/hybrid/hybrid.conf", "w") as f:
        f.write(f"host_id = {HOST_ID}\n")
    for name, dev in config["disks"].items():
        os.symlink(dev, f"/dev/test/{name}")
    if config["modules"]:
        show_modules(f"lib/modules/{os.uname().release}", config["modules"])
    for key, value in config["sysctl"].items():
        with open("/proc/sys/" + key, "w") as f:
            f.write(value)
    os.environ.clear()
    os.environ.update(config["env"])


class Agent:
    def __init__(self, fd):
        self.fd = fd
        self.lock = threading.Lock()
        self.running = {}	# id -> pid, or None before it has one
        self.killed = {}	# id -> signal that came too early

    def send(self, message):
        data = json.dumps(message).encode() + b"\n"
        with self.lock:
            while data:
                data = data[os.write(self.fd, data):]

    def execute(self, request):
        answer = {"id": request["id"]}
        try:
            data = b""
            if "input" in request:
                with open(request["input"], "rb") as f:
                    data = f.read()
            process = subprocess.Popen(
                request["argv"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True, cwd=request.get("cwd", "/"),
                env={**os.environ, **request.get("env", {})})
            with self.lock:
                self.running[request["id"]] = process.pid
                early = self.killed.pop(request["id"], None)
            if early:
                os.killpg(process.pid, early)
            out, err = process.communicate(data)
            answer.update(rc=process.returncode)
        except (OSError, ValueError) as e:
            out, err = b"", f"agent: {e}\n".encode()
            answer.update(rc=127)
        self.running.pop(request["id"], None)
        answer.update(out=binascii.b2a_base64(out, newline=False).decode(),
                      err=binascii.b2a_base64(err, newline=False).decode())
        self.send(answer)

    def kill(self, ident, signal):
        with self.lock:
            if ident not in self.running:
                return
            pid = self.running[ident]
            if pid is None:
                self.killed[ident] = signal
                return
        try:
            os.killpg(pid, signal)
        except ProcessLookupError:
            pass

    def serve(self):
        pending = b""
        while True:
            data = os.read(self.fd, 65536)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                if "kill" in request:
                    self.kill(request["kill"], request["signal"])
                    continue
                self.running[request["id"]] = None
                threading.Thread(target=self.execute, args=(request,), daemon=True).start()


def main():
    mount("proc", "/proc", "proc")
    with open(option("hybrid.config")) as f:
        config = json.load(f)
    make_root()
    apply_config(config)
    if os.fork():
        # On SIGUSR1 systemd goes on in this place: Guest.systemd().
        signal.signal(signal.SIGUSR1, lambda *_: os.execv(SYSTEMD[0], SYSTEMD))
        # Orphans end here; the agent's own children are not ours to reap.
        while True:
            try:
                os.wait()
            except ChildProcessError:
                libc.reboot(RB_POWER_OFF)
    fd = os.open(config["channel"], os.O_RDWR | os.O_NOCTTY)
    if os.isatty(fd):
        mode = termios.tcgetattr(fd)
        mode[0] = mode[1] = mode[3] = 0
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        termios.tcsetattr(fd, termios.TCSANOW, mode)
    agent = Agent(fd)
    with open("/proc/uptime") as f:
        agent.send({"ready": f.read().split()[0], "release": os.uname().release})
    agent.serve()
    sys.exit(0)


if __name__ == "__main__":
    main()
