#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Single I/Os to a block device, in a guest: steps.py <dev>, and on stdin, a line each:

    w:<sector>:<count>:<letter>	write that letter; W: with O_DSYNC (FUA, and a flush behind it)
    u:<sector>:<count>:<letter>	write that letter with FUA, and no flush behind it
    r:<sector>:<count>		read; prints the letters that it saw, each run of sectors as one
    nw:<sector>:<count>:<letter>	write, and nr:<sector>:<count> read, with RWF_NOWAIT
    f				fsync
    d:<sector>:<count>		discard;  z: write zeroes (BLKZEROOUT, which may fall back)
    t:<seconds>			sleep

One process, so that nothing else (an open, a close) comes between them. An I/O that
fails prints its errno's name and the steps go on.
"""
import errno
import fcntl
import itertools
import mmap
import os
import struct
import sys
import time

BLKDISCARD, BLKZEROOUT = 0x1277, 0x127F


def letter_of(sector):
    """0: zeroes, ?: not what one step wrote."""
    if sector != sector[:1] * 512:
        return "?"
    return chr(sector[0]) if sector[0] else "0"


def fua(fd, buf, start):
    """An asynchronous write: behind others with O_DSYNC the kernel sends a flush by itself."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    io_setup, io_submit, io_getevents, pwrite = 206, 209, 208, 1
    context = ctypes.c_ulong()
    control = ctypes.create_string_buffer(struct.pack(
        "=QIIHhIQQqQII", 0, 0, 0, pwrite, 0, fd, ctypes.addressof(ctypes.c_char.from_buffer(buf)),
        len(buf), start, 0, 0, 0))
    pointer = ctypes.c_void_p(ctypes.addressof(control))
    event = (ctypes.c_int64 * 4)()
    for call in ((io_setup, 1, ctypes.byref(context)),
                 (io_submit, context, ctypes.c_long(1), ctypes.byref(pointer)),
                 (io_getevents, context, ctypes.c_long(1), ctypes.c_long(1), event, None)):
        if libc.syscall(*call) < 0:
            raise OSError(ctypes.get_errno(), "asynchronous I/O")
    if event[2] != len(buf):
        raise OSError(-event[2], "write")


def step(fd, sync_fd, word):
    what, *numbers = word.split(":")
    if what == "f":
        os.fsync(fd)
    elif what == "t":
        time.sleep(float(numbers[0]))
    elif what in "dz":
        start, count = (512 * int(n) for n in numbers)
        fcntl.ioctl(fd, BLKDISCARD if what == "d" else BLKZEROOUT,
                    struct.pack("QQ", start, count))
    else:
        start, count = (512 * int(n) for n in numbers[:2])
        with mmap.mmap(-1, count) as buf:
            nowait = os.RWF_NOWAIT if what[0] == "n" else 0
            if what in ("r", "nr"):
                os.preadv(fd, [buf], start, nowait)
                return "".join(letter for letter, _ in itertools.groupby(
                    letter_of(buf[n:n + 512]) for n in range(0, count, 512)))
            buf[:] = numbers[2].encode() * count
            if what == "u":
                return fua(sync_fd, buf, start)
            assert os.pwritev(sync_fd if what == "W" else fd, [buf], start, nowait) == count
    return None


def main():
    fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
    sync_fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
    for word in sys.stdin.read().split():
        try:
            said = step(fd, sync_fd, word)
        except OSError as e:
            said = errno.errorcode[e.errno]
        if said is not None:
            print(said, flush=True)


main()
