# SPDX-License-Identifier: GPL-2.0-or-later
"""create --discard: what is discarded, what is not, and what is left if it does not end."""
import errno
import os
import pty
import re
import signal
import subprocess

import pytest

MIB = 1 << 20
FILL = b"\xaa" * 4096


@pytest.fixture
def devs(loop):
    return loop("c", 64), loop("o", 64)


def fill(device, *places):
    """4 KiB at each of the bytes @places."""
    with open(device, "r+b") as f:
        for at in places:
            f.seek(at)
            f.write(FILL)
        f.flush()
        os.fsync(f.fileno())


def at(device, byte):
    with open(device, "rb") as f:
        f.seek(byte)
        return f.read(4096)


def create(*devs):
    return ("create", "vol", "--cache", devs[0], "--origin", devs[1], "-y", "--discard")


def area(kernel, *devs):
    """First byte of the data area, and the one after its last."""
    out = kernel.ok(*create(*devs), "--test")
    found = re.search(rf"discard {devs[0]}: (\d+) sectors from sector (\d+) on\n", out)
    return int(found[2]) * 512, (int(found[1]) + int(found[2])) * 512


def faults(build, **env):
    return {"LD_PRELOAD": str(build / "faults.so"), **env}


def test_the_data_area_and_nothing_else(kernel, devs):
    size = os.lseek(fd := os.open(devs[0], os.O_RDONLY), 0, os.SEEK_END)
    os.close(fd)
    first, end = area(kernel, *devs)
    assert MIB < first < end <= size - MIB
    fill(devs[0], *range(0, size, 4096))
    kernel.ok(*create(*devs))
    with open(devs[0], "rb") as f:
        now = f.read()
    assert not any(now[first:end])
    # Of the metadata the head, the tail, a root and where the next will be are written.
    for begin, stop in ((MIB, first), (end, size - MIB)):
        assert sum(now[k:k + 4096] != FILL for k in range(begin, stop, 4096)) <= 2
    assert any(now[:MIB]) and kernel.devices == ["vol-pool", "vol"]


def test_only_where_it_is_asked_for(kernel, devs):
    first, end = area(kernel, *devs)
    fill(devs[0], first, end - 4096)
    out = kernel.ok(*create(*devs)[:-1], "--test")
    assert "discard" not in out
    kernel.ok(*create(*devs)[:-1])
    assert at(devs[0], first) == at(devs[0], end - 4096) == FILL


def test_of_a_pool_that_is_there(kernel, devs, loop):
    """There is no cache device that nobody needs."""
    kernel.ok(*create(*devs))
    r = kernel("create", "two", "--pool", "vol-pool", "--origin", loop("p", 64), "-y", "--discard")
    assert r.returncode == 1 and "--discard" in r.stderr
    r = kernel("attach", "vol-pool", "two", "--origin", devs[1], "-y", "--discard")
    assert r.returncode == 1


def test_a_device_that_takes_none(kernel, devs, build):
    first, end = area(kernel, *devs)
    fill(devs[0], first)
    r = kernel(*create(*devs), env=faults(build, FAULT_BAD=f"discard {devs[0]} 0 {1 << 40}",
                                          FAULT_ERRNO=str(int(errno.EOPNOTSUPP))))
    assert r.returncode == 0 and f"warning: {devs[0]} does not support discards" in r.stderr, r
    assert kernel.devices == ["vol-pool", "vol"] and at(devs[0], first) == FILL


def test_an_error(kernel, devs, build):
    first, end = area(kernel, *devs)
    fill(devs[0], first)
    r = kernel(*create(*devs), env=faults(build, FAULT_BAD=f"discard {devs[0]} 0 {1 << 40}"))
    assert r.returncode == 4 and f"{devs[0]}: cannot discard: Input/output error" in r.stderr, r
    assert "nothing was created" in r.stderr and "leave out --discard" in r.stderr
    assert not kernel.devices and kernel("probe", devs[0]).returncode == 4
    kernel.ok("create", "vol", "--cache", devs[0], "--origin", devs[1], "-y")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_interrupted(kernel, loop, build, name):
    """After a GiB at most; what the device was a part of before does not come back with holes."""
    devs = loop("c", 3072), loop("o", 64)
    first, end = area(kernel, *devs)
    kernel.ok(*create(*devs)[:-1])
    kernel.ok("deactivate", "vol")
    assert kernel("probe", devs[0]).returncode == 0
    fill(devs[0], first, first + (1 << 30), end - 4096)
    before = list(kernel.log)
    r = kernel(*create(*devs), "--force", "--wipe-signatures",
               env=faults(build, FAULT_SIGNAL=str(int(getattr(signal, name)))))
    assert r.returncode == 6 and "nothing was created" in r.stderr, r
    assert not any(at(devs[0], first))
    assert at(devs[0], first + (1 << 30)) == at(devs[0], end - 4096) == FILL
    assert kernel("probe", devs[0]).returncode == 4
    assert kernel("probe", devs[1]).returncode == 0
    assert set(kernel.log[len(before):]) == {"check"} and not kernel.devices


def test_all_of_a_large_one_with_a_bar(kernel, loop, build):
    devs = loop("c", 3072), loop("o", 64)
    first, end = area(kernel, *devs)
    fill(devs[0], *(first + k * (1 << 29) for k in range(6) if first + k * (1 << 29) < end),
         end - 4096)
    terminal, theirs = pty.openpty()
    env = {**os.environ, "HYBRID_FAKE_DM": str(kernel.path), "HYBRID_SCAN_ONLY": "none"}
    tool = subprocess.Popen([build / "hybridctl-fake", *create(*devs)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=theirs, env=env)
    os.close(theirs)
    said = b""
    try:
        while some := os.read(terminal, 4096):
            said += some
    except OSError:		# the other end is closed
        pass
    os.close(terminal)
    assert tool.wait(timeout=60) == 0
    assert said.count(f"\rdiscard {devs[0]} [".encode()) == 3 and b"#] 100% 0" in said, said
    assert not any(any(at(devs[0], first + k * (1 << 29))) for k in range(6) if first + k * (1 << 29) < end)
    assert not any(at(devs[0], end - 4096))
    assert kernel.devices == ["vol-pool", "vol"]


@pytest.mark.parametrize("discard", [[], ["--discard"]])
def test_the_tail_of_a_smaller_member_goes(kernel, devs, build, driver, image, discard):
    """A discard begins with a wipe, after which no head leads there, and need not zero anything."""
    small = image("small.img", 16)
    assert driver("format-cache", small, "old", "128").returncode == 0
    with open(devs[0], "r+b") as f:
        f.write(small.read_bytes())
        os.fsync(f.fileno())
    tail = 16 * MIB - MIB // 2
    assert at(devs[0], tail).startswith(b"dm-hybrid member")
    kernel.ok(*create(*devs)[:-1], *discard, "--force", "--wipe-signatures",
              env=faults(build, FAULT_BAD=f"discard {devs[0]} 0 {1 << 40}", FAULT_ERRNO=str(int(errno.EOPNOTSUPP))))
    assert not any(at(devs[0], tail))
