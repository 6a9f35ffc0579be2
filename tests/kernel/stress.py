#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Random I/O whose every sector says who wrote it, in a guest; and its model, on the host.

Operation number v of a seed is always the same one: whoever knows the seed and how far the
writer got knows what may be where. A sector holds its own number and the number of the
operation that wrote it, over and over, so that torn, foreign and old sectors are recognised.

    stress.py run <json>	do operations; what is read is verified at once
    stress.py dump <dev> <n>	who wrote each of the first n sectors: zlib, base64

Acknowledged flushes and FUA writes are put down on a disk of their own ("ack"), directly:
what stands there had been acknowledged before the power was cut.
"""
import array
import base64
import errno
import fcntl
import json
import mmap
import os
import random
import struct
import sys
import time
import zlib

BLKDISCARD, BLKZEROOUT = 0x1277, 0x127F
BAD = 0xffffffffffffffff	# neither written by this nor zeroes
FLUSH_EVERY = 32		# at least


class Plan:
    """Which operations there are. part k of n: chunks k, k + n, ... of the device."""

    def __init__(self, seed, sectors, kinds="wwwwwwwwwwrrrWf", most=256, part=0, parts=1,
                 chunk=0, align=1):
        self.seed, self.kinds, self.most, self.align = seed, kinds, most, align
        self.part, self.parts = part, parts
        self.chunk = chunk or sectors // parts
        self.chunks = sectors // (self.chunk * parts)

    def op(self, version):
        """(kind, sector, count) of an operation."""
        if version % FLUSH_EVERY == 0:
            return "f", 0, 0
        rnd = random.Random(f"{self.seed}:{self.part}:{version}")
        kind = rnd.choice(self.kinds)
        room = min(self.chunk, self.most) // self.align
        # Small ones are as likely as large ones, and some places busier than others.
        count = min(room, int(2 ** rnd.uniform(0, room.bit_length())))
        first = rnd.randrange(self.chunk // self.align - count + 1)
        chunk = int(self.chunks * rnd.random() ** 2) * self.parts + self.part
        return kind, chunk * self.chunk + first * self.align, count * self.align


def sector_data(sector, version):
    return struct.pack("<QQ", sector << 8 | 0x5d, version) * 32


def version_of(data, sector):
    if not any(data):
        return 0
    number, version = struct.unpack_from("<QQ", data)
    return version if data == data[:16] * 32 and number == (sector << 8 | 0x5d) else BAD


# --- in the guest -------------------------------------------------------------


class Runner:
    def __init__(self, dev, seed, sectors, first=1, ack="", ack_at=0, calm="", **plan):
        self.plan = Plan(seed, sectors, **plan)
        self.version = first
        self.fd = os.open(dev, os.O_RDWR | os.O_DIRECT)
        self.sync_fd = os.open(dev, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
        self.ack_fd = os.open(ack, os.O_RDWR | os.O_DIRECT) if ack else -1
        self.ack_at = ack_at
        self.buf = mmap.mmap(-1, 512 * max(self.plan.most, 8))
        self.ack_buf = mmap.mmap(-1, 512)
        self.calm = calm	# I/O may fail, until "0" was written there
        self.errors = 0
        self.expected = None	# of each sector: a version, 0 zeroes, BAD unknown
        if not ack:
            self.expected = array.array("Q", bytes(8 * sectors))
            for n, version in enumerate(dump(dev, sectors)):
                ours = n // self.plan.chunk % self.plan.parts == self.plan.part
                self.expected[n] = version if ours else BAD

    def acknowledge(self, kind, version):
        if self.ack_fd < 0:
            return
        self.ack_buf[:] = struct.pack("<8sQ", kind, version).ljust(512, b"\0")
        assert os.pwritev(self.ack_fd, [self.ack_buf], self.ack_at) == 512
        self.ack_at += 512

    def expect(self, start, count, value):
        if self.expected:
            self.expected[start:start + count] = array.array("Q", [value]) * count

    def check(self, start, count):
        view = memoryview(self.buf)[:512 * count]
        assert os.preadv(self.fd, [view], 512 * start) == 512 * count
        for n in range(count if self.expected else 0):
            want, got = self.expected[start + n], version_of(bytes(view[512 * n:512 * n + 512]),
                                                             start + n)
            if want not in (BAD, got):
                raise SystemExit(f"sector {start + n} has {got:x} instead of {want:x} at "
                                 f"operation {self.version} of seed {self.plan.seed}")

    def write(self, fd, start, count):
        view = memoryview(self.buf)[:512 * count]
        view[:] = b"".join(sector_data(start + n, self.version) for n in range(count))
        assert os.pwritev(fd, [view], 512 * start) == 512 * count

    def step(self):
        kind, start, count = self.plan.op(self.version)
        try:
            self.do(kind, start, count)
        except OSError as e:
            self.failed(e)
            if kind not in "rf":
                self.expect(start, count, BAD)
        self.version += 1

    def failed(self, error):
        if not self.calm or error.errno != errno.EIO:
            raise error
        self.errors += 1

    def do(self, kind, start, count):
        if kind == "r":
            self.check(start, count)
        elif kind == "f":
            os.fsync(self.fd)
            self.acknowledge(b"flush", self.version)
        elif kind in "dz":
            self.expect(start, count, BAD)
            fcntl.ioctl(self.fd, BLKDISCARD if kind == "d" else BLKZEROOUT,
                        struct.pack("QQ", 512 * start, 512 * count))
            self.expect(start, count, BAD if kind == "d" else 0)
        else:
            self.write(self.sync_fd if kind == "W" else self.fd, start, count)
            self.expect(start, count, self.version)
            if kind == "W":
                self.acknowledge(b"fua", self.version)

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.step()
        if self.calm:
            with open(self.calm, "w") as f:
                f.write("0")
        else:
            os.fsync(self.fd)
            self.acknowledge(b"flush", self.version)
        before = self.errors
        for start in range(0, len(self.expected or ()), 8):
            try:
                self.check(start, min(8, len(self.expected) - start))
            except OSError as e:
                self.failed(e)
        print(json.dumps({"version": self.version, "errors": before,
                          "late": self.errors - before}))


def dump(dev, sectors):
    versions = array.array("Q")
    with open(dev, "rb", buffering=0) as f:
        fcntl.ioctl(f, 0x1261)		# BLKFLSBUF
        for start in range(0, sectors, 2048):
            data = f.read(512 * min(2048, sectors - start))
            versions.extend(version_of(data[512 * n:512 * n + 512], start + n)
                            for n in range(len(data) // 512))
    return versions


# --- on the host --------------------------------------------------------------


class Model:
    """What each sector may hold, through power cuts (S2: durable <= v <= submitted)."""

    def __init__(self, sectors):
        self.may = [[0] for _ in range(sectors)]	# oldest first; the first is durable

    def ran(self, plan, first, acks):
        """A writer that began with operation `first` left these acknowledgements."""
        fua = {v for kind, v in acks if kind == b"fua"}
        flushed = max([v for kind, v in acks if kind == b"flush"], default=first - 1)
        last = max([v for _, v in acks], default=first - 1)
        durable = {}
        # Every FLUSH_EVERY there is a flush: that many may have been on their way.
        for version in range(first, last + FLUSH_EVERY + 1):
            kind, start, count = plan.op(version)
            if kind in "rf":
                continue
            for sector in range(start, start + count):
                if kind == "d":
                    # What was there, or nothing, from now on.
                    self.may[sector] = [*self.may[sector], 0]
                    durable.pop(sector, None)
                    continue
                if version <= flushed or version in fua:
                    if kind != "z" or version <= flushed:
                        durable[sector] = len(self.may[sector])
                self.may[sector].append(version if kind != "z" else 0)
        for sector, n in durable.items():
            del self.may[sector][:n]
        return last

    def check(self, versions):
        """Raises where a sector holds what it may not; from now on it must stay so (P2)."""
        wrong = [f"sector {n} has {v:x}, may have {[hex(m) for m in self.may[n]]}"
                 for n, v in enumerate(versions) if v not in self.may[n]]
        assert not wrong, f"{len(wrong)} sectors wrong\n" + "\n".join(wrong[:20])
        self.may = [[v] for v in versions]


def parse_dump(text):
    return array.array("Q", zlib.decompress(base64.b64decode(text)))


def parse_acks(data):
    acks = []
    for at in range(0, len(data), 512):
        kind, version = struct.unpack_from("<8sQ", data, at)
        if not version:
            break
        acks.append((kind.rstrip(b"\0"), version))
    return acks


if __name__ == "__main__":
    if sys.argv[1] == "dump":
        print(base64.b64encode(zlib.compress(dump(sys.argv[2], int(sys.argv[3])).tobytes()))
              .decode())
    else:
        options = json.loads(sys.argv[2])
        length = options.pop("seconds")
        Runner(**options).run(length)
