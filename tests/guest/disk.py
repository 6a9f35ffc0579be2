# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks of a guest: sparse files of the host."""
import os
from pathlib import Path

MIB = 1 << 20


class Disk:
    """A sparse file that guests see as the block device `dev`.

    The file stays when the guest dies, so the next guest (or a tool on the host) finds
    what was written.
    """

    def __init__(self, path: Path, size: int, name: str | None = None):
        self.path = Path(path)
        self.name = name or self.path.stem
        self.dev = f"/dev/test/{self.name}"
        if size:
            with open(self.path, "ab") as f:
                f.truncate(size)

    @property
    def size(self) -> int:
        return os.path.getsize(self.path)

    @property
    def sectors(self) -> int:
        return self.size // 512

    def read(self, offset: int, length: int) -> bytes:
        with open(self.path, "rb") as f:
            f.seek(offset)
            return f.read(length)

    def write(self, offset: int, data: bytes) -> None:
        with open(self.path, "r+b") as f:
            f.seek(offset)
            f.write(data)

    def __repr__(self) -> str:
        return f"<Disk {self.name} {self.size // MIB} MiB>"
