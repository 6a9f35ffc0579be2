# SPDX-License-Identifier: GPL-2.0-or-later
"""Every setting that a message or a table changes is there after a power cut at once.

The lists are the parser's own, so that a new setting is cut, too, or fails here.
"""
import re

import pytest

from .stack import MODES, POLICIES
from .test_refusals import crc32c
from .test_targets import documented

LAST = 2 ** 32 - 1


def rows(top, source, table):
    """The rows of an array of the module, each the text between its braces."""
    text = (top / "dm-hybrid" / source).read_text()
    text = re.search(rf"\b{table}\[\] = \{{\n(.*?)\n\}};", text, re.S)[1]
    return [r.strip() for r in re.findall(r"\{(.*?)\}", text, re.S)]


def tunables(top):
    """Name, lowest and highest value, as ctr.c has them."""
    number = {"U32_MAX": LAST, "HYBRID_MAX_ENDURANCE": 33554432}
    for row in rows(top, "ctr.c", "tunables"):
        name, low, high = re.match(r'"(\w+)", .*, (\w+), (\w+),\s*"', row, re.S).groups()
        yield name, *(number[w] if w in number else int(w) for w in (low, high))


def volume_settings(top):
    return [re.match(r'"(\w+)"', row)[1] for row in rows(top, "message.c", "volume_settings")]


def values(setting):
    """Two values of a volume's setting; any but a mode is a number."""
    return ("writearound", "writeback") if setting == "mode" else (640, 0)


def after_cut(s):
    s.guest.power_cut()
    s.after_cut()


def places(disk):
    return 512 << 10, disk.size - (512 << 10)


def superblocks(s, disk="ssd"):
    disk = s.disk(disk)
    return [disk.read(at, 4096) for at in places(disk)]


def edit(s, fields):
    """Both superblocks of the cache device, with good checksums."""
    disk = s.disk("ssd")
    for at, old in zip(places(disk), superblocks(s)):
        sb = bytearray(old)
        for offset, value in fields.items():
            sb[offset:offset + len(value)] = value
        sb[16:20] = bytes(4)
        sb[16:20] = crc32c(bytes(sb)).to_bytes(4, "little")
        disk.write(at, bytes(sb))


def has(table, setting, value):
    """Does a table line say so?  A mode is a word by itself."""
    words = table.split()
    if setting == "mode":
        return [w for w in words if w in MODES] == [value]
    return words[words.index(setting) + 1] == str(value)


def test_a_table_with_every_feature(make_stack, top):
    s = make_stack()
    s.create("vol")
    words = s.table("pool").split()[6:8] + [str(word) for name, low, high in tunables(top)
                                            for word in (name, max(low, min(high, 50)))]
    table = s.pool_table(*words)
    assert f" 128 {len(words)} uuid " in table and len(words) == 20
    s.load("pool", table)
    assert s.table("pool") == table


def test_every_setting_is_documented(top):
    names = [name for name, *_ in tunables(top)]
    assert len(names) == 9 and volume_settings(top) == ["mode", "cutoff"]
    text = (top / "dm-hybrid/Documentation/dm-hybrid.rst").read_text()
    listed = re.search(r"returns\. Tunables:\n(.*?)\npolicy <name> ", text, re.S)[1]
    assert re.findall(r"\w+", listed) == names
    assert set(volume_settings(top)) < set(documented(top, "Messages", "To a volume"))


@pytest.mark.kernels
def test_a_volume_setting_survives_a_cut(make_stack, top):
    """Each alone: the checkpoint that one asks for must not hide that another asks for none."""
    s = make_stack(volatile="ssd hdd")
    s.create("vol", "--mode", "writethrough")
    s.guest.run("sync")
    for setting in volume_settings(top):
        for value in values(setting):
            s.message(setting, value)
            assert has(s.table(), setting, value)
            after_cut(s)
            assert has(s.table(), setting, value), f"{setting} {value}: {s.table()}"


def test_a_volume_table_survives_a_cut(make_stack, top):
    s = make_stack(volatile="ssd hdd")
    s.create("vol", "--mode", "writethrough")
    for setting in volume_settings(top):
        for value in values(setting):
            words = [value] if setting == "mode" else [setting, value]
            line = " ".join(map(str, (*s.table().split()[:6], len(words), *words)))
            s.load("vol", line)
            after_cut(s)
            assert has(s.table(), setting, value), f"{line}: {s.table()}"


@pytest.mark.kernels
def test_a_pool_setting_survives_a_cut(make_stack, top):
    s = make_stack(volatile="ssd hdd")
    s.create("vol")
    want = {}
    # The watermarks: up from the higher one, down from the lower one.
    for bound, settings in ((2, list(tunables(top))), (1, list(tunables(top))[::-1])):
        for setting in settings:
            s.message("set", setting[0], setting[bound], name="pool")
            want[setting[0]] = setting[bound]
            after_cut(s)
            status = s.status("pool")
            assert {name: status[name] for name in want} == want


@pytest.mark.parametrize("by", ["table", "message"])
def test_a_policy_survives_a_cut(make_stack, by):
    s = make_stack(volatile="ssd hdd")
    s.create("vol")
    for policy in POLICIES[1:]:
        if by == "message":
            s.message("policy", policy, name="pool")
        else:
            s.load("pool", " ".join([*s.table("pool").split()[:-2], policy, "0"]))
        after_cut(s)
        assert s.status("pool")["policy"] == policy
        assert s.table("pool").split()[-2:] == [policy, "0"]


def test_a_name_survives_a_cut(make_stack):
    """In both superblocks; and from then on the pool replaces no other."""
    s = make_stack(volatile="ssd hdd")
    s.create("vol")
    s.deactivate()
    s.guest.power_cut()
    edit(s, {REPLACES: b"another's pool.."})
    s.after_cut()
    s.message("rename", "other", name="pool")
    s.guest.power_cut()
    for sb in superblocks(s):
        assert sb[112:176].rstrip(b"\0") == b"other" and not any(sb[REPLACES:REPLACES + 16])
    s.after_cut()
    assert "other" in s.guest.run("dmsetup ls").out and s.status()["state"] == "running"


def test_what_cannot_be_recorded_is_said(make_stack):
    """A pool that has failed: the setting holds, the message fails."""
    s = make_stack(volatile="ssd hdd")
    s.create("vol", "--mode", "writethrough")
    s.guest.dm_message("vssd", "fail", "write")
    for name, words in (("vol", "cutoff 640"), ("vol", "mode writearound"),
                        ("pool", "set high_watermark 20"),
                        ("pool", "policy lru"), ("pool", "rename other")):
        assert "cannot" in s.refused(f"dmsetup message {name} 0 {words}")
    assert has(s.table(), "cutoff", 640) and has(s.table(), "mode", "writearound")
    assert s.status("pool")["high_watermark"] == 20
    assert s.status("pool")["state"] == "failed"


# In a cache device's superblock
REPLACES = 328
HIGH, LOW, RATE, INTERVAL, ENDURANCE, SHARE, TRIM = range(272, 328, 8)
READS, WRITES = 344, 352
RECORDED = HIGH, LOW, RATE, INTERVAL, ENDURANCE, SHARE, TRIM, READS, WRITES


@pytest.mark.parametrize("stored,want,replaced", [
    ({HIGH: 31, LOW: 6, RATE: 1 << 32, INTERVAL: 251, ENDURANCE: 8, SHARE: 91, TRIM: 1025,
      READS: 8, WRITES: 1 << 32}, (30, 5, LAST, 250, 7, 90, 1024, 7, LAST), False),
    ({LOW: 1, ENDURANCE: 33554433, SHARE: 1, TRIM: 1, READS: 1, WRITES: 1},
     (70, 0, 0, 1000, 33554432, 0, 0, 0, 0), False),
    # What does not fit stops no boot.
    ({HIGH: 97, RATE: (1 << 32) + 1, INTERVAL: 10, ENDURANCE: 1 << 63, SHARE: 92,
      READS: (1 << 32) + 1}, (70, 10, 0, 1000, 0, 25, 65536, 20, 5), True),
    ({HIGH: 1, ENDURANCE: (1 << 64) - 1, LOW: 4}, (70, 3, 0, 1000, 0, 25, 65536, 20, 5), True),
    ({HIGH: 6}, (70, 10, 0, 1000, 0, 25, 65536, 20, 5), True),
    ({HIGH: 21, LOW: 22, INTERVAL: 101}, (70, 10, 0, 100, 0, 25, 65536, 20, 5), True),
])
def test_recorded_tunables(make_stack, top, stored, want, replaced):
    """As the superblock has them: value + 1, or 0 for the default."""
    s = make_stack(volatile="ssd hdd")
    s.create("vol")
    s.deactivate()
    s.guest.power_cut()
    edit(s, {offset: stored.get(offset, 0).to_bytes(8, "little") for offset in RECORDED})
    s.after_cut()
    status = s.status("pool")
    assert tuple(status[name] for name, *_ in tunables(top)) == want
    assert ("replaced by the default" in s.guest.run("dmesg").out) == replaced
