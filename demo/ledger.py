#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""A ledger that knows what it was promised: writes, and checks after a power cut.

    ledger.py prepare <directory>
    ledger.py write <directory> <notebook>
    ledger.py verify <directory> <notebook>

Four writers, one file each. A transaction writes a few random pages with direct I/O, calls
fdatasync(), and only then notes its number in the notebook: a device that survives the
power cut by other means. So after the cut, for each sector of each page:

    version of the last noted transaction that wrote it  <=  version found
    version found  <=  the one transaction that may have been under way

Which pages a transaction writes follows from the writer's number alone, so nothing else
need be remembered. Prints one JSON object.
"""
import json
import mmap
import os
import random
import struct
import sys
import zlib

WRITERS = 4
PAGES = 2048		# of each file
PAGE = 8192
SECTOR = 512
PAGES_IN_TRANSACTION = 4
NOTE = struct.Struct("<8sQI")
HEAD = struct.Struct("<8sIIQI")	# magic, writer, sector of the file, version, crc


def transactions(writer: int):
    """The pages of transaction 1, 2, ..."""
    rng = random.Random(writer)
    while True:
        yield rng.sample(range(PAGES), PAGES_IN_TRANSACTION)


def sector(writer: int, number: int, version: int) -> bytes:
    body = struct.pack("<Q", (version * 0x9E3779B97F4A7C15 + number) & (1 << 64) - 1) * 61
    body = body[:SECTOR - HEAD.size]
    crc = zlib.crc32(body, zlib.crc32(struct.pack("<IIQ", writer, number, version)))
    return HEAD.pack(b"dmledger", writer, number, version, crc) + body


def page(writer: int, number: int, version: int) -> bytes:
    first = number * (PAGE // SECTOR)
    return b"".join(sector(writer, first + k, version) for k in range(PAGE // SECTOR))


def version_of(writer: int, number: int, data: bytes) -> int | None:
    """The version of a sector; None if it is not one of ours, whole and in its place."""
    version = HEAD.unpack_from(data)[3]
    return version if data == sector(writer, number, version) else None


def path_of(directory: str, writer: int) -> str:
    return os.path.join(directory, f"ledger.{writer}")


def prepare(directory: str) -> dict:
    for writer in range(WRITERS):
        with open(path_of(directory, writer), "wb") as f:
            for number in range(PAGES):
                f.write(page(writer, number, 0))
            f.flush()
            os.fsync(f.fileno())
    return {"bytes": WRITERS * PAGES * PAGE}


def write_forever(directory: str, notebook: str, writer: int) -> None:
    buffer = mmap.mmap(-1, PAGE)	# aligned, as direct I/O wants it
    note = mmap.mmap(-1, SECTOR)
    data = os.open(path_of(directory, writer), os.O_RDWR | os.O_DIRECT)
    notes = os.open(notebook, os.O_RDWR | os.O_DIRECT)
    for version, pages in enumerate(transactions(writer), 1):
        for number in pages:
            buffer[:] = page(writer, number, version)
            if os.pwrite(data, buffer, number * PAGE) != PAGE:
                raise OSError("short write")
        os.fdatasync(data)
        note[:NOTE.size] = NOTE.pack(b"dmledger", version, zlib.crc32(struct.pack("<Q", version)))
        os.pwrite(notes, note, writer * SECTOR)


def write(directory: str, notebook: str) -> dict:
    children = []
    for writer in range(WRITERS):
        pid = os.fork()
        if not pid:
            write_forever(directory, notebook, writer)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return {}


def noted(notebook: str, writer: int) -> int:
    with open(notebook, "rb") as f:
        f.seek(writer * SECTOR)
        magic, version, crc = NOTE.unpack(f.read(NOTE.size))
    if magic != b"dmledger" or crc != zlib.crc32(struct.pack("<Q", version)):
        return 0
    return version


def verify(directory: str, notebook: str) -> dict:
    result = {"transactions": 0, "writes": 0, "sectors": 0, "lost": 0, "damaged": 0, "newer": 0}
    for writer in range(WRITERS):
        acknowledged = noted(notebook, writer)
        least = [0] * PAGES
        most = [0] * PAGES
        for version, pages in enumerate(transactions(writer), 1):
            if version > acknowledged + 1:
                break
            for number in pages:
                most[number] = version
                if version <= acknowledged:
                    least[number] = version
        result["transactions"] += acknowledged
        result["writes"] += acknowledged * PAGES_IN_TRANSACTION
        with open(path_of(directory, writer), "rb") as f:
            for number in range(PAGES):
                for k in range(PAGE // SECTOR):
                    found = version_of(writer, number * (PAGE // SECTOR) + k, f.read(SECTOR))
                    result["sectors"] += 1
                    if found is None or found > most[number]:
                        result["damaged"] += 1
                    elif found < least[number]:
                        result["lost"] += 1
                    elif found > least[number]:
                        result["newer"] += 1
    return result


def main() -> None:
    what = {"prepare": prepare, "write": write, "verify": verify}[sys.argv[1]]
    print(json.dumps(what(*sys.argv[2:])))


if __name__ == "__main__":
    main()
