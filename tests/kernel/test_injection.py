# SPDX-License-Identifier: GPL-2.0-or-later
"""Allocations that fail, and members whose requests fail: what must go on goes on, the rest says so."""
import json
import re

import pytest

from .stack import HERE, fio, io

pytestmark = pytest.mark.debug
ALL = ("--cutoff", "0")


def knobs(guest, kind, **values):
    """kind: failslab, fail_page_alloc or fail_make_request."""
    guest.run(["sh", "-e"], input="".join(
        f"echo {v} >/sys/kernel/debug/{kind}/{k.replace('_', '-')}\n" for k, v in values.items()))


def symbol(guest, name):
    """Where a function of the kernel begins and ends."""
    table = sorted(int(line.split()[0], 16) for line in guest.read_file("/proc/kallsyms").splitlines()
                   if line.split()[1] in "tT")
    start = int(guest.run(f"grep ' [tT] {name}$' /proc/kallsyms").out.split()[0], 16)
    return start, next(a for a in table if a > start)


def module(guest):
    """Where the module lies."""
    size, start = re.search(r"^dm_hybrid (\d+) .* (0x\S+)", guest.read_file("/proc/modules"),
                            re.M).groups()
    return int(start, 16), int(start, 16) + int(size)


def without_memory(guest):
    """From now on each allocation that the module asks for fails, but none below submit_bio()."""
    start, end = module(guest)
    rejected = symbol(guest, "submit_bio_noacct")
    options = {"require_start": start, "require_end": end, "reject_start": rejected[0],
               "reject_end": rejected[1], "stacktrace_depth": 32, "verbose": 0, "interval": 1,
               "times": 10 ** 9, "ignore_gfp_wait": "N", "probability": 100}
    knobs(guest, "fail_page_alloc", min_order=0, ignore_gfp_highmem="N", **options)
    knobs(guest, "failslab", **options)


def failed(guest):
    """How many did."""
    return sum(10 ** 9 - int(guest.read_file(f"/sys/kernel/debug/{kind}/times"))
               for kind in ("failslab", "fail_page_alloc"))


def with_memory(guest):
    for kind in ("failslab", "fail_page_alloc"):
        knobs(guest, kind, probability=0)


def test_io_makes_progress_when_every_allocation_fails(make_stack):
    """S17: hits, fills, evictions, writeback, flushes, mode switches live on what was set aside."""
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback", *ALL)
    s.guest.modprobe("dm-hybrid-fifo")
    without_memory(s.guest)
    for mode in ("writeback", "writethrough", "writearound", "writeback"):
        s.message("mode", mode)
        fio(s.guest, dev, "--rw=randrw", "--bsrange=512-64k", "--size=48m", "--io_size=24m",
            "--ioengine=libaio", "--iodepth=16", "--fsync=32", "--verify=crc32c", "--do_verify=1",
            "--verify_fatal=1", "--group_reporting", timeout=300)
    assert s.status()["read_hits"] and s.status()["writebacks"] and s.status("pool")["evictions"]
    count = failed(s.guest)
    assert count > 1000, count
    # What needs memory says so; what is there stays.
    table = s.table("pool")
    for what in (table, table.replace("c2q", "fifo")):
        r = s.guest.run(["dmsetup", "load", "pool"], input=what + "\n", check=False)
        assert r.rc and "Cannot allocate memory" in r.text, r
    io(s.guest, dev, "w:0:128:a", "f")
    s.drain()
    s.guest.run("dmsetup suspend vol && dmsetup resume vol && dmsetup suspend pool && "
                "dmsetup resume pool")
    with_memory(s.guest)
    assert io(s.guest, dev, "r:0:128") == ["a"]
    assert not s.status()["cache_errors"] and not s.status()["origin_errors"]


def nth(s, *steps):
    """What each call said while its nth allocation failed, and that its reasons are named."""
    for kind in ("failslab", "fail_page_alloc"):
        knobs(s.guest, kind, verbose=0, ignore_gfp_wait="N")
    knobs(s.guest, "fail_page_alloc", min_order=0)
    out = s.guest.run(["python3", "-S", HERE / "nth.py"], timeout=600, input=json.dumps(
        [{"before": before, "call": call} for *before, call in steps])).out
    result = [json.loads(line) for line in out.splitlines()]
    assert len(result) == len(steps)
    for step in result:
        assert set(step["said"]) <= {"ok", "ENOMEM"}, step
    return [len(step["said"]) for step in result]


@pytest.mark.thorough
def test_each_allocation_of_a_message_fails_once(make_stack):
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback", *ALL)
    io(s.guest, dev, "w:0:128:a", "f")
    uuid = "6c4b7a52-8d2e-4c1c-9a57-03f3c6a1e0b9"
    create = ["message", "pool",
              f"create_volume 9 {uuid} nine {uuid} {'1' * 32} 2048 8192 "
              "writeback 0"]
    delete, forget = ["message", "pool", "delete_volume 9"], ["message", "pool", "forget_volume 9"]
    counts = nth(
        s,
        [["message", "vol", "mode writethrough"]], [["message", "vol", "mode writeback"]],
        [["message", "vol", "cutoff 0"]], [["message", "vol", "drain"]],
        [["message", "pool", "checkpoint"]], [["message", "pool", "set writeback_rate 0"]],
        [["message", "pool", "volumes"]], [["status", "vol"]], [["table", "vol"]],
        [["status", "pool"]], [["table", "pool"]],
        [delete, forget, create], [create, delete], [create, delete, forget])
    assert min(counts) > 0, counts
    assert io(s.guest, dev, "r:0:128") == ["a"]


@pytest.mark.thorough
def test_each_allocation_of_a_load_fails_once(make_stack):
    """Of a pool and a volume from nothing, of new tables for both, of suspending them."""
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback", *ALL)
    io(s.guest, dev, "w:0:128:a", "f")
    pool, vol = s.table("pool"), s.table()
    s.guest.run("dmsetup suspend vol && dmsetup suspend pool && dmsetup resume pool && "
                "dmsetup resume vol && dmsetup remove vol && dmsetup remove pool")
    fresh = [["create", "pool"], ["load", "pool", pool]]
    counts = nth(
        s,
        fresh,
        [["remove", "pool"], *fresh, ["resume", "pool"]])
    assert counts[1] > 20, counts
    counts += nth(
        s,
        [["create", "vol"], ["load", "vol", vol]],
        [["remove", "vol"], ["create", "vol"], ["load", "vol", vol], ["resume", "vol"]],
        [["resume", "vol"], ["suspend", "vol"]],
        [["suspend", "vol"], ["load", "vol", vol], ["resume", "vol"]],
        [["load", "pool", pool.replace("c2q", "fifo")], ["resume", "pool"]],
        [["load", "pool", pool], ["resume", "pool"]],
        [["resume", "pool"], ["suspend", "pool"]])
    s.guest.run("dmsetup resume pool; dmsetup mknodes")
    assert min(counts) > 0, counts
    assert io(s.guest, dev, "r:0:128") == ["a"]


@pytest.mark.thorough
@pytest.mark.parametrize("member, percent", [("ssd", 1), ("hdd", 5)])
def test_requests_to_a_member_fail_at_random(make_stack, seed, member, percent):
    """What was acknowledged is there, or an error says that it is not; nobody hangs."""
    s = make_stack()
    dev = s.create("vol", "--mode", "writeback", *ALL)
    disk = s.guest.run(f"basename $(readlink -f /dev/test/{member})").out.strip()
    s.guest.run(f"echo 1 >/sys/block/{disk}/make-it-fail")
    knobs(s.guest, "fail_make_request", verbose=0, interval=1, times=10 ** 9, probability=percent)
    options = {"dev": dev, "seed": seed, "sectors": 65536, "seconds": 20,
               "calm": "/sys/kernel/debug/fail_make_request/probability"}
    job = s.guest.run_bg(["python3", "-S", HERE / "stress.py", "run", json.dumps(options)])
    while not job.poll():
        for word in ("drain", "mode writethrough", "mode writeback"):
            r = s.guest.run(f"dmsetup message vol 0 {word}", check=False)
            # A pool that has failed records no mode any more, and says so.
            assert not r.rc or ("Input/output error" in r.err and word != "drain" and member == "ssd"
                                and s.status("pool")["state"] == "failed"), r
            s.guest.run("sleep 0.5; dmsetup suspend vol && dmsetup resume vol")
    said = json.loads(job.wait().out)
    times = int(s.guest.read_file("/sys/kernel/debug/fail_make_request/times"))
    assert times < 10 ** 9
    # A cache device whose metadata cannot be written is given up, with what it alone had, be it
    # nothing; an origin has it all in the end.
    if member == "hdd":
        assert said["errors"] and not said["late"], said
    s.guest.run("dmsetup remove vol && dmsetup remove pool")
