#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Each allocation of a device-mapper call fails once, one call after the other, in a guest.

On stdin a list of steps, JSON: {"before": [call, ...], "call": call}. A call is
["create" | "remove" | "suspend" | "resume" | "status" | "table", <device>],
["load", <device>, <table>] or ["message", <device>, <text>]. For n = 1, 2, ... what is "before"
is done, and then the call, with its nth allocation failing, until it has fewer than that. Beyond
the 64th not each: where there are that many, most are the pages of some large ones.
Prints for each step how its calls ended.
"""
import errno
import fcntl
import json
import struct
import sys

HEAD = struct.Struct("=3I I I I i I I I Q 128s 129s 7x")
TARGET = struct.Struct("=QQiI16s")
NR = {"create": 3, "remove": 4, "suspend": 6, "resume": 6, "load": 9, "table": 12, "status": 12,
      "message": 14}
FLAGS = {"suspend": 1 << 1, "table": 1 << 4}
ROOM = 16384


def payload(kind, args):
    if kind == "load":
        start, length, target, params = args[0].split(maxsplit=3)
        data = params.encode() + b"\0"
        return TARGET.pack(int(start), int(length), 0, TARGET.size + len(data),
                           target.encode()) + data
    if kind == "message":
        return struct.pack("=Q", 0) + args[0].encode() + b"\0"
    return b""


def prepared(kind, device, *args):
    """The ioctl's number and argument: built before anything may fail."""
    buf = bytearray(ROOM)
    HEAD.pack_into(buf, 0, 4, 0, 0, ROOM, HEAD.size, kind == "load", 0, FLAGS.get(kind, 0), 0, 0, 0,
                   device.encode(), b"")
    data = payload(kind, args)
    buf[HEAD.size:HEAD.size + len(data)] = data
    return 3 << 30 | HEAD.size << 16 | 0xfd << 8 | NR[kind], buf


def call(control, number, buf):
    try:
        fcntl.ioctl(control, number, buf)
        return "ok"
    except OSError as e:
        return errno.errorcode[e.errno]


def run(control, step):
    said = []
    n = 1
    while True:
        for other in step["before"]:
            call(control, *prepared(*other))	# what it is for may be there already
        number, buf = prepared(*step["call"])
        # The file does not seek.
        nth, left = (open("/proc/thread-self/fail-nth", "r+b", buffering=0) for _ in range(2))
        with nth, left:
            nth.write(b"%d" % n)
            how = call(control, number, buf)
            failed = not int(left.read())
            nth.write(b"0")
        if not failed:
            assert how == "ok", f"{step['call']} without a failed allocation: {how}"
            return said
        said.append(how)
        n += 1 + n // 64


with open("/dev/mapper/control", "rb") as control:
    for step in json.load(sys.stdin):
        print(json.dumps({"call": step["call"], "said": run(control, step)}), flush=True)
