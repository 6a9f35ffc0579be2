# SPDX-License-Identifier: GPL-2.0-or-later
"""The log of device operations that dm-testdisk keeps (tests/modules/oplog.c)."""
from typing import NamedTuple


class Op(NamedTuple):
    """One record. `seq` is one order over all test devices; S and E join by `id`."""

    seq: int
    us: int
    device: str
    event: str		# S arrival, E completion
    op: str		# R W F D Z
    flags: str		# P preflush, F FUA, I sync and idle, - none
    sector: int
    count: int
    id: int
    error: int

    @property
    def fua(self) -> bool:
        return "F" in self.flags

    @property
    def preflush(self) -> bool:
        return "P" in self.flags

    @property
    def passes(self) -> bool:
        """Writeback throttling does not hold it back."""
        return "I" in self.flags


def parse(text: str) -> list[Op]:
    ops = []
    for line in text.splitlines():
        seq, us, device, event, op, flags, sector, count, id_, error = line.split()
        ops.append(Op(int(seq), int(us), device, event, op, flags, int(sector),
                      int(count), int(id_), int(error)))
    return ops
