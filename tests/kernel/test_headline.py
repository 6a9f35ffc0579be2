# SPDX-License-Identifier: GPL-2.0-or-later
"""fsync, eviction, power cut: dm-hybrid keeps every block where stock dm-cache loses some."""
from .headline import HDD, SSD, DmCache, Hybrid, MIB, report, run


def test_fsynced_blocks_survive_eviction_and_a_power_cut(tools, make_guest, disks):
    written, wrong = outcome(Hybrid, make_guest, disks)
    assert (written, wrong) == (64, 0)


def test_dm_cache_loses_some(make_guest, disks):
    """The control: these steps find the fault where it is."""
    written, wrong = outcome(DmCache, make_guest, disks)
    assert written == 64 and wrong > 0


def outcome(kind, make_guest, disks):
    guest = make_guest(disks=disks("ssd", SSD // MIB, "hdd", HDD // MIB), boot=False,
                       modprobe=["dm-testdisk", "dm-hybrid"])
    written, wrong = run(c := kind(guest))
    print(report(c, written, wrong))
    return written, wrong
