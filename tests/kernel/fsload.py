#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A load on a file system like fsstress's, in a guest, that knows what must be there.

    fsload.py run <dir> <seed> <seconds> [<ack device>]
    fsload.py kept <dir> <count>

Random creations, writes, truncations, renames, links, removals, and now and then a file
"keep-<n>", synced with its directory and then acknowledged on a device of its own: it must
be there for ever, with contents that follow from n.
"""
import hashlib
import mmap
import os
import random
import struct
import sys
import time


def contents(n):
    return hashlib.sha512(b"%d" % n).digest() * (1 + n * 7919 % 1500)


class Load:
    def __init__(self, root, seed, ack):
        self.root, self.rnd = root, random.Random(seed)
        self.files, self.dirs = {}, [root]
        self.kept = self.names = 0
        self.ack = os.open(ack, os.O_RDWR | os.O_DIRECT) if ack else -1
        self.buf = mmap.mmap(-1, 512)

    def name(self):
        self.names += 1
        return f"{self.rnd.choice(self.dirs)}/f{self.names}"

    def any(self):
        return self.rnd.choice(list(self.files))

    def keep(self):
        path = f"{self.root}/keep-{self.kept}"
        with open(path, "wb") as f:
            f.write(contents(self.kept))
            f.flush()
            os.fsync(f.fileno())
        fd = os.open(self.root, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        self.kept += 1
        if self.ack >= 0:
            self.buf[:8] = struct.pack("<Q", self.kept)
            os.pwrite(self.ack, self.buf, 0)

    def create(self):
        path = self.name()
        data = self.rnd.randbytes(int(2 ** self.rnd.uniform(0, 18)))
        with open(path, "wb") as f:
            f.write(data)
        self.files[path] = data

    def overwrite(self):
        path = self.any()
        at = self.rnd.randrange(len(self.files[path]) + 5000)
        data = self.rnd.randbytes(int(2 ** self.rnd.uniform(0, 16)))
        with open(path, "r+b") as f:
            f.seek(at)
            f.write(data)
            if self.rnd.random() < 0.1:
                f.flush()
                os.fsync(f.fileno())
        old = self.files[path].ljust(at, b"\0")
        self.files[path] = old[:at] + data + old[at + len(data):]

    def truncate(self):
        path = self.any()
        size = self.rnd.randrange(len(self.files[path]) + 9000)
        os.truncate(path, size)
        self.files[path] = self.files[path][:size].ljust(size, b"\0")

    def rename(self):
        old, new = self.any(), self.name()
        os.rename(old, new)
        self.files[new] = self.files.pop(old)

    def remove(self):
        path = self.any()
        os.unlink(path)
        del self.files[path]

    def mkdir(self):
        self.dirs.append(self.name())
        os.mkdir(self.dirs[-1])

    def full(self):
        space = os.statvfs(self.root)
        return space.f_bavail < space.f_blocks // 5

    def run(self, seconds):
        end = time.monotonic() + seconds
        steps = [self.create] * 6 + [self.overwrite] * 6 + [self.remove] * 3 + \
            [self.truncate, self.rename, self.keep]
        while time.monotonic() < end:
            while self.full() and self.files:
                self.remove()
            if self.full():
                break  # what was kept fills it
            step = self.rnd.choice(steps) if len(self.files) > 3 else self.create
            step()
            if len(self.dirs) < 20 and self.rnd.random() < 0.02:
                self.mkdir()
            while len(self.files) > 300:
                self.remove()
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")
        for path, data in self.files.items():
            with open(path, "rb") as f:
                if f.read() != data:
                    raise SystemExit(f"{path} is not what was written")
        check_kept(self.root, self.kept)
        print(self.kept)


def check_kept(root, count):
    for n in range(count):
        with open(f"{root}/keep-{n}", "rb") as f:
            if f.read() != contents(n):
                raise SystemExit(f"keep-{n} of {count} is not what was synced")


if sys.argv[1] == "kept":
    check_kept(sys.argv[2], int(sys.argv[3]))
else:
    Load(sys.argv[2], int(sys.argv[3]), sys.argv[5] if len(sys.argv) > 5 else "").run(
        float(sys.argv[4]))
