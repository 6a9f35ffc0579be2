# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures: image files, loop devices, a fake kernel."""
import contextlib
import json
import os
import pathlib
import subprocess
import types

import pytest

MIB = 1 << 20


def run(argv, stdin="", env=None, cwd=None, seconds=60):
    full = dict(os.environ, **(env or {}))
    return subprocess.run([str(a) for a in argv], input=stdin, capture_output=True,
                          text=True, env=full, cwd=cwd, timeout=seconds)


@pytest.fixture
def hybridctl(build, tmp_path):
    """hybridctl(*args): the real tool; device-mapper may not be there."""
    return lambda *args, **kw: run([build / "hybridctl", *args], cwd=tmp_path, **kw)


@pytest.fixture
def driver(build, tmp_path):
    """driver(*args): the library's test driver."""
    return lambda *args, **kw: run([build / "lib-driver", *args], cwd=tmp_path, **kw)


@pytest.fixture
def image(tmp_path):
    """image(name, mib): a sparse image file."""
    def make(name, mib):
        path = tmp_path / name
        with open(path, "wb") as f:
            f.truncate(int(mib * MIB))
        return path
    return make


class FakeKernel:
    """hybridctl linked with a model of device-mapper; see fake-dm.c."""

    def __init__(self, build, path):
        self.tool = build / "hybridctl-fake"
        self.path = path
        self.conf = path.with_name("hybrid.conf")
        self.scan = []

    def __call__(self, *args, stdin="", fail="", seconds=60, env=None, cwd=None):
        # Loop devices of tests that run beside this one are none of our business
        return run([self.tool, *args], stdin=stdin, seconds=seconds, cwd=cwd,
                   env={"HYBRID_FAKE_DM": str(self.path), "HYBRID_FAKE_FAIL": fail,
                        "HYBRID_SCAN_ONLY": " ".join(self.scan) or "none", **(env or {})})

    def ok(self, *args, **kw):
        r = self(*args, **kw)
        assert r.returncode == 0, r.stdout + r.stderr
        return r.stdout

    @contextlib.contextmanager
    def waits(self, *args):
        """Its body runs after the command has read all members, and before it has the lock."""
        lock = subprocess.Popen(["flock", "/run/hybrid/lock", "sh", "-c", "echo; read x"], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE)
        lock.stdout.readline()
        tool = subprocess.Popen([self.tool, *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                env={"HYBRID_FAKE_DM": str(self.path), "HYBRID_SCAN_ONLY": " ".join(self.scan)})
        assert "waiting for it" in tool.stderr.readline()
        result = types.SimpleNamespace()
        try:
            yield result
        finally:
            lock.communicate(b"\n")
            result.stderr = tool.stderr.read()
            result.returncode = tool.wait(timeout=60)

    def announce(self, device):
        """As udev does when a device comes or was changed."""
        self.ok("scan", "--udev", device)

    def unplug(self, device):
        """No tool sees it from then on, and udev says that it is gone."""
        self.scan.remove(device.removeprefix("/dev/"))
        st = os.stat(device)
        self.ok("scan", "--udev", "--gone", f"{os.major(st.st_rdev)}:{os.minor(st.st_rdev)}")

    def plug(self, device):
        self.scan.append(device.removeprefix("/dev/"))
        self.announce(device)

    @property
    def state(self):
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def change(self, **values):
        state = self.state
        state.update(values)
        self.path.write_text(json.dumps(state))

    def change_device(self, name, **values):
        state = self.state
        for dev in state["devices"]:
            if dev["name"] == name:
                dev.update(values)
        self.path.write_text(json.dumps(state))

    @property
    def devices(self):
        return [d["name"] for d in self.state.get("devices", [])]

    def device(self, name):
        return next(d for d in self.state["devices"] if d["name"] == name)

    @property
    def log(self):
        path = pathlib.Path(f"{self.path}.log")
        return path.read_text().splitlines() if path.exists() else []

    def clear_log(self):
        pathlib.Path(f"{self.path}.log").unlink(missing_ok=True)


@pytest.fixture
def kernel(build, tmp_path):
    return FakeKernel(build, tmp_path / "dm.json")


@pytest.fixture
def removable(kernel, tmp_path):
    """removable(device, ...): these disks are removable, for hybridctl."""
    one, tool = tmp_path / "one", kernel.tool
    one.write_text("1\n")

    def make(*devices):
        mounts = "".join(f"mount --bind {one} /sys/block/{d.removeprefix('/dev/')}/removable; " for d in devices)
        kernel.tool = tmp_path / "removable"
        kernel.tool.write_text(f"""#!/bin/sh
exec unshare -m sh -c '{mounts}exec {tool} "$@"' sh "$@"
""")
        kernel.tool.chmod(0o755)
    return make


@pytest.fixture
def loop(image, kernel):
    """loop(name, mib, sector=512): a loop device over a new image file."""
    made = []

    def make(name, mib, sector=512):
        path = image(name, mib)
        r = subprocess.run(["losetup", "--find", "--show", "--sector-size", str(sector), str(path)],
                           capture_output=True, text=True)
        if r.returncode:
            pytest.skip(f"no loop device: {r.stderr.strip()}")
        made.append(r.stdout.strip())
        kernel.scan.append(made[-1].removeprefix("/dev/"))
        return made[-1]

    if os.geteuid():
        pytest.skip("loop devices need root")
    yield make
    for dev in made:
        subprocess.run(["losetup", "-d", dev], check=False)
