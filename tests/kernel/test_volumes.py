# SPDX-License-Identifier: GPL-2.0-or-later
"""Many volumes that come and go: none sees another's data, or that of one who had its id."""
import pytest

from .stack import io

SLICE = 2048	# sectors of an origin
COUNT = 24


class Slices:
    """Small origins in place on one disk, made and unmade by message."""

    def __init__(self, stack):
        self.s, self.guest = stack, stack.guest

    def origins(self):
        self.s.script("\n".join(f"dmsetup create o{n} --table '0 {SLICE} linear "
                                 f"{self.s.dev('hdd')} {n * SLICE}'" for n in range(COUNT)))

    def create(self, ids, tag, mode="writeback"):
        self.s.script("\n".join(
            f"dmsetup message pool 0 create_volume {n} 0000000{tag}-0000-0000-0000-{n:012x} "
            f"v{tag}-{n} 0000000{tag}-0000-0000-0001-{n:012x} {n:032x} 0 {SLICE} {mode} 0 inplace"
            for n in ids))

    def delete(self, ids, *words):
        self.s.script("\n".join(
            f"dmsetup message pool 0 delete_volume {n} {' '.join(words)}\n"
            f"dmsetup message pool 0 forget_volume {n}" for n in ids))

    def up(self, ids):
        self.s.script("\n".join(
            f"dmsetup create v{n} --table '0 {SLICE} hybrid /dev/mapper/pool {n} "
            f"/dev/mapper/o{n} 1 inplace'" for n in ids))

    def down(self, ids):
        self.guest.run("dmsetup remove " + " ".join(f"v{n}" for n in ids))

    def see(self, ids, *steps):
        return [io(self.guest, f"/dev/mapper/v{n}", *steps) for n in ids]


def letter(n):
    return chr(97 + n)


def started(make_stack):
    s = make_stack(volatile="ssd hdd", ssd=32, hdd=32, small=8)
    s.origin = "small"
    s.create("first")
    s.message("set", "low_watermark", 50, name="pool")	# what is dirty stays so
    v = Slices(s)
    v.origins()
    everyone = range(1, COUNT)
    v.create(everyone, 1)
    v.up(everyone)
    for n in everyone:
        io(s.guest, f"/dev/mapper/v{n}", f"w:0:{8 + 8 * (n % 8)}:{letter(n)}", f"w:512:128:{letter(n)}", "f")
    return s, v, everyone


@pytest.mark.kernels
def test_each_volume_has_its_own_data_after_a_cut(make_stack):
    s, v, everyone = started(make_stack)
    table = s.table("pool")
    s.guest.power_cut()
    s.guest.boot()
    s.guest.modprobe("dm-testdisk", "dm-hybrid")
    s.members()
    v.origins()
    s.guest.dm_create("pool", table)
    v.up(everyone)
    assert v.see(everyone, "r:0:128", "r:512:128") == [
        [f"{letter(n)}0", letter(n)] for n in everyone]
    s.message("drain", name="pool")
    s.wait("dirty", 0, "pool")
    assert [io(s.guest, f"/dev/mapper/o{n}", "r:512:128") for n in everyone] == [
        [letter(n)] for n in everyone]


def test_an_id_used_again_shows_nothing_old(make_stack):
    s, v, everyone = started(make_stack)
    some = [n for n in everyone if n % 3]
    v.down(some)
    # Their dirty data is given up: it never comes back.
    said = s.refused(f"dmsetup message pool 0 delete_volume {some[0]}")
    assert "in use, or dirty" in said
    v.delete(some, "drop_dirty")
    v.create(some, 2)
    v.up(some)
    assert v.see(some, "r:0:128", "r:512:128") == [["0", "0"]] * len(some)
    for n in some:
        io(s.guest, f"/dev/mapper/v{n}", f"w:64:8:{letter(n).upper()}", "f")
    table = s.table("pool")
    s.guest.power_cut()
    s.guest.boot()
    s.guest.modprobe("dm-testdisk", "dm-hybrid")
    s.members()
    v.origins()
    s.guest.dm_create("pool", table)
    v.up(everyone)
    assert v.see(some, "r:0:128", "r:512:128") == [
        [f"0{letter(n).upper()}0", "0"] for n in some]
    others = [n for n in everyone if n % 3 == 0]
    assert v.see(others, "r:0:128", "r:512:128") == [
        [f"{letter(n)}0", letter(n)] for n in others]


def test_power_cut_between_delete_and_forget(make_stack):
    """A deletion is one durable record; the tombstone waits for whoever marks the origin."""
    s, v, everyone = started(make_stack)
    v.down(everyone)
    s.message("delete_volume", 5, "drop_dirty", name="pool")
    table = s.table("pool")
    s.guest.power_cut()
    s.guest.boot()
    s.guest.modprobe("dm-testdisk", "dm-hybrid")
    s.members()
    v.origins()
    s.guest.dm_create("pool", table)
    assert "\n5 tombstone " in s.message("volumes", name="pool")
    s.message("forget_volume", 5, name="pool")
    v.up(n for n in everyone if n != 5)
    assert s.status("pool")["volumes"] == COUNT - 2


def test_volumes_come_and_go_under_load(make_stack, seed):
    s, v, everyone = started(make_stack)
    job = s.guest.run_bg("fio --name=t --filename=/dev/mapper/v1 --rw=randrw --bs=4k --direct=1 "
                         "--thread --ioengine=libaio --iodepth=8 --time_based --runtime=4 "
                         "--size=1m --verify=crc32c")
    for _ in range(4):
        v.down([2, 3, 4])
        v.up([2, 3, 4])
        v.down([5])
        v.delete([5], "drop_dirty")
        v.create([5], 3)
        v.up([5])
    job.wait()
    assert v.see([2, 3, 4], "r:512:128") == [[letter(n)] for n in (2, 3, 4)]
    assert v.see([5], "r:512:128") == [["0"]]
