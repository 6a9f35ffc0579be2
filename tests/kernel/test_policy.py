# SPDX-License-Identifier: GPL-2.0-or-later
"""Another policy while volumes are in use."""
import pytest

from .stack import POLICIES, io

# Written, read and compared, again and again, until it is told to stop
LOAD = ("until test -e /tmp/stop; do fio --name={0} --filename=/dev/mapper/{0} --size=8m --rw=randrw --bs=4k "
        "--direct=1 --ioengine=libaio --iodepth=8 --verify=crc32c || exit 1; done")


def stop(s, *loads):
    assert [load.poll() for load in loads] == [None for _ in loads]
    s.guest.run("touch /tmp/stop")
    for load in loads:
        r = load.wait(120)
        assert r.rc == 0, r.text


def policy(s):
    """What status and table say, which must be the same."""
    name = s.status("pool")["policy"]
    assert s.table("pool").split()[-2:] == [name, "0"]
    return name


@pytest.mark.kernels
def test_policies_change_beside_io(make_stack):
    s = make_stack(ssd=16, hdd=32, hdd2=32)
    s.create("vol", "--mode", "writeback", "--cutoff", "0", "--block-size", "4k")
    s.attach("two", "hdd2", "--mode", "writethrough", "--cutoff", "0")
    loads = [s.guest.run_bg(LOAD.format(name)) for name in ("vol", "two")]
    for _ in range(3):
        for name in POLICIES:
            s.message("policy", name, name="pool")
            assert policy(s) == name
    stop(s, *loads)
    s.deactivate()
    s.activate()
    assert policy(s) == POLICIES[-1]


def test_a_policy_changes_while_an_origin_hangs(make_stack):
    """Neither the change nor the other volume waits for the one that does not answer."""
    s = make_stack(ssd=16, hdd=32, hdd2=32)
    s.guest.dm_create("slow", f"0 {s.disk('hdd').sectors} linear {s.dev('hdd')} 0")
    s.create("vol", "--mode", "writeback", "--cutoff", "0", "--block-size", "4k", "--origin", "/dev/mapper/slow")
    s.attach("two", "hdd2", "--mode", "writeback", "--cutoff", "0")
    s.guest.run("dmsetup suspend --noflush slow")
    hangs = s.guest.run_bg("dd if=/dev/mapper/vol of=/dev/null bs=4k count=1 iflag=direct status=none")
    load = s.guest.run_bg(LOAD.format("two"))
    for name in POLICIES:
        s.guest.run(["hybridctl", "set", "pool", f"policy={name}"])
        assert policy(s) == name
        assert io(s.guest, "/dev/mapper/two", "w:32768:8:a", "r:32768:8") == ["a"]
    assert hangs.poll() is None
    stop(s, load)
    s.guest.run("dmsetup resume slow")
    assert hangs.wait(60).rc == 0


def test_a_table_has_its_word_once(make_stack):
    """What a message has changed holds, whoever suspends; the next table that is loaded changes it."""
    s = make_stack()
    s.create("vol")
    table = s.table("pool")
    s.message("policy", "arc", name="pool")
    s.guest.run("dmsetup suspend pool && dmsetup resume pool")
    assert policy(s) == "arc"
    s.load("pool", s.table("pool"))
    assert policy(s) == "arc"
    s.load("pool", table)
    assert policy(s) == "c2q"


def test_modules_of_policies_come_and_go(make_stack):
    """The one in use stays; the one that a message replaced can go, though the table named it."""
    s = make_stack()
    s.create("vol")
    s.guest.run("! rmmod dm-hybrid-c2q")
    s.message("policy", "lru", name="pool")
    s.guest.run("! rmmod dm-hybrid-lru && rmmod dm-hybrid-c2q")
    s.load("pool", s.table("pool"))
    s.message("policy", "c2q", name="pool")
    s.guest.run("rmmod dm-hybrid-lru")


def test_policies_that_are_refused(make_stack):
    s = make_stack()
    s.create("vol")
    for name in ("nosuch", "../x", "sixteen-letters-"):
        assert "unknown policy" in s.refused(f"dmsetup message pool 0 policy {name}")
    for words in ("policy", "policy arc 0"):
        assert "wrong number of arguments" in s.refused(f"dmsetup message pool 0 {words}")
    assert policy(s) == "c2q"
    s.guest.run("dmsetup suspend pool")
    assert "the pool is suspended" in s.refused("dmsetup message pool 0 policy arc")
    s.guest.run("dmsetup resume pool")
    assert policy(s) == "c2q"
