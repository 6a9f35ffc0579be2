# SPDX-License-Identifier: GPL-2.0-or-later
"""The tracepoints record all that the engine is told: a replay of it asks for the same.

A run of the module under a mixed load is recorded in a guest and replayed through the same
engine in userspace (tests/sim/replay.c): the operations must be the same in the same order,
and so must the metadata on the members.
"""
import re
import shutil
import subprocess
from typing import NamedTuple

import pytest

from .stack import MODES, io

TRACING = "/sys/kernel/tracing"
# What the module can be asked for, but for what only a failure brings about.
CALLS = {"create", "load", "restart", "stop", "destroy", "configure", "policy", "checkpoint",
         "drain", "volume_delete", "volume_forget", "open", "close", "suspend", "resume", "mode",
         "cutoff", "claim_sb", "renew_sb", "release_sb"}
EVENTS = {"io", "io_mapped", "io_done", "op", "segment", "op_done", "tick", "call", "config",
          "volume_create", "volume_rename", "return", "number", "op_copied"}
OPERATIONS = {"user", "transfer", "meta", "flush", "copy_out", "complete", "work", "wake"}

FIO = ("fio --name=t --direct=1 --thread --randrepeat=1 --ioengine=libaio --iodepth=8 "
       "--bssplit=512/5:2k/10:4k/60:16k/15:64k/10 --blockalign=512 --filename=/dev/mapper/")
JOBS = ("vol --rw=randrw --fsync=16 --size=24m --number_ios=3000",
        "vol --rw=randwrite --sync=1 --ioengine=psync --offset=4m --size=8m --number_ios=500",
        "vol --rw=randtrimwrite --offset=8m --size=8m --number_ios=300",
        "two --rw=randrw --rwmixread=70 --fsync=32 --size=16m --number_ios=3000")


class Recording(NamedTuple):
    """A trace, and the images of the members around it: cache, then (id, before, after)."""

    text: str
    members: list

    def replay(self, program, tmp_path, text=None):
        """(events, operations, overlaps, differences), and all that was said."""
        trace = tmp_path / "trace"
        trace.write_text(text or self.text)
        run = subprocess.run([program, trace, *map(str, self.members)], capture_output=True,
                             text=True)
        last = re.fullmatch(r"replay: events=(\d+) operations=(\d+) overlaps=(\d+) "
                            r"differences=(\d+)", (run.stdout.splitlines() or [""])[-1])
        assert last, f"exit status {run.returncode}\n{run.stdout}{run.stderr}"
        return tuple(map(int, last.groups())), run.stdout

    def altered(self, event, old, new):
        """The trace with a line of this event that matches @old altered, or gone.

        The middle one, but for random numbers: those that others replaced left no trace.
        """
        lines = self.text.splitlines(keepends=True)
        some = [n for n, line in enumerate(lines)
                if f": hybrid_{event}: " in line and re.search(old, line)]
        if event == "op_done":	# one that led to something: the last of a pool need not
            some = [n for n in some if ": hybrid_op: " in lines[n + 1]]
        assert some, f"no {event} with {old}"
        n = some[-1 if event == "number" else len(some) // 2]
        lines[n] = re.sub(old, new, lines[n], count=1) if new is not None else ""
        return "".join(lines)

    def overlapping(self):
        """The trace with an interrupt that came between two calls moved into the first."""
        call = r".* \.\.\.\.\. .* hybrid_"
        found = list(re.finditer(rf"({call}op_done: .* type=(?:transfer|work|copy_out) .*\n)"
                                 rf"((?:{call}(?:op|segment): .*\n)*{call}return: .*\n)"
                                 r"((?:.* d.h.. .*\n)+)", self.text))
        m = found[len(found) // 2]
        return self.text[:m.start()] + m[1] + m[3] + m[2] + self.text[m.end():]


def mixed_load(s):
    """All that users and admins do, at once."""
    jobs = [s.guest.run_bg(FIO + job) for job in JOBS]
    s.message("set", "commit_interval", "50", name="pool")
    for mode in (*MODES[1:], MODES[0]):
        s.message("mode", mode)
        io(s.guest, "/dev/mapper/vol", "w:60000:8:a", "w:60100:3:b", "r:61000:8", "t:0.2")
    io(s.guest, "/dev/mapper/vol", *(f"W:{62000 + 1024 * n}:8:c" for n in range(8)))
    s.message("cutoff", 64)
    io(s.guest, "/dev/mapper/vol", "r:70016:128")
    s.message("checkpoint", name="pool")
    s.message("rename_volume", 1, "second", name="pool")
    s.guest.run("dmsetup suspend vol && dmsetup resume vol")
    s.message("policy", "sieve", name="pool")
    s.load("pool", s.table("pool").replace("sieve", "fifo"))
    s.message("create_volume", 7, "00000007-0000-0000-0000-000000000001", "seven",
              "00000007-0000-0000-0000-000000000002", f"{7:032x}", 0, 2048, "writeback", 0,
              "inplace", name="pool")
    s.message("delete_volume", 7, name="pool")
    s.message("forget_volume", 7, name="pool")
    for job in jobs:
        job.wait(timeout=100)


def failing_members(s):
    """A read of the cache fails, and the origin has it; the origin fails, and the user is told."""
    for device, what in (("vssd", "read"), ("vhdd2", "read"), ("vhdd2", "write")):
        io(s.guest, "/dev/mapper/two", "r:0:8")
        s.guest.dm_message(device, "fail", what, "once")
        io(s.guest, "/dev/mapper/two", "r:0:8", "r:24000:8", "w:28000:8:a", "f")


def nowait(s):
    """The volume refuses what is no hit, the cache device what is one."""
    assert io(s.guest, "/dev/mapper/two", "nr:30000:8", "nw:30000:8:a", "r:0:8", "nr:0:8")[:2] == \
        ["EAGAIN"] * 2
    s.guest.dm_message("vssd", "busy", "on")
    assert io(s.guest, "/dev/mapper/two", "nr:0:8") == ["EAGAIN"]
    s.guest.dm_message("vssd", "busy", "off")


def reopen(s, name):
    table, uuid = s.table(name), s.guest.run(f"dmsetup info -c --noheadings -o uuid {name}").out
    s.guest.dm_remove(name)
    s.guest.run(f"dmsetup create {name} --uuid {uuid.strip()}", input=table)


def all_of_it(s):
    mixed_load(s)
    failing_members(s)
    nowait(s)
    s.drain()
    s.message("drain", name="pool")
    s.message("drain_cancel", name="pool")
    reopen(s, "two")


def dying_cache(s):
    """Metadata cannot be written: what is dirty fails, the rest goes on without the cache."""
    io(s.guest, "/dev/mapper/vol", "w:0:128:a", "w:1024:128:a", "f", "r:4096:128")
    io(s.guest, "/dev/mapper/two", "w:0:128:a", "f")
    s.guest.dm_message("vssd", "die")
    assert io(s.guest, "/dev/mapper/vol", "w:2048:8:b", "f", "r:0:8", "r:4096:8") == ["EIO", "0"]
    io(s.guest, "/dev/mapper/two", "w:0:8:b", "f", "r:0:8")
    s.guest.run("dmsetup suspend two && dmsetup resume two && dmsetup suspend pool && "
                "dmsetup resume pool")
    io(s.guest, "/dev/mapper/two", "w:256:8:b", "f", "r:0:8")


def record(s, load):
    """Two volumes on one pool, from its activation to its end."""
    s.create("vol", "--mode", "writeback", "--cutoff", "256k")
    s.attach("two", "hdd2", "--mode", "writethrough")
    s.deactivate()
    names = (s.cache, "hdd", "hdd2")
    for device in s.volatile:
        s.guest.dm_remove(f"v{device}")
    for name in names:
        shutil.copy(s.disk(name).path, s.disk(name).path.with_suffix(".before"))
    s.members()
    s.script(f"mount -t tracefs none {TRACING}; cd {TRACING}; echo 65536 >buffer_size_kb\n"
             "echo 1 >events/dm_hybrid/enable")
    s.activate()
    load(s)
    for name in ("vol", "two", "pool"):
        s.guest.dm_remove(name)
    for device in s.volatile:
        s.guest.dm_remove(f"v{device}")
    # For up to two seconds after its boot a kernel prints all pointers alike.
    s.script(f"cd {TRACING}; echo 0 >tracing_on; grep -x 'overrun: 0' per_cpu/cpu0/stats\n"
             "while grep -qF '(____ptrval____)' trace; do sleep 0.1; done\n"
             "cat trace >/dev/test/log; sync")
    text = s.disk("log").path.read_bytes().rstrip(b"\0").decode()
    images = [(p.with_suffix(".before"), p) for p in (s.disk(name).path for name in names)]
    return Recording(text, [*images[0], 0, *images[1], 1, *images[2]])


def seen(text, key):
    return set(re.findall(rf" {key}=(\w+)", text))


def mutant(sim_dir, tmp_path, top, file, old, new):
    """The replay program with an engine that differs in one place."""
    engine, build = tmp_path / "engine", tmp_path / "mutant"
    shutil.copytree(top / "dm-hybrid", engine)
    shutil.copytree(sim_dir, build)	# with times: only what differs is compiled
    text = (engine / file).read_text()
    assert text.count(old) == 1
    (engine / file).write_text(text.replace(old, new))
    subprocess.run(["make", "-s", "-C", top / "tests/sim", f"BUILD={build}",
                    f"ENGINE_DIR={engine}", build / "replay"], check=True)
    return build / "replay"


def test_recorded_run_is_replayed(make_stack, sim_dir, top, tmp_path):
    s = make_stack(ssd=16, hdd=48, hdd2=32, log=128, volatile="ssd hdd2")
    recording = record(s, all_of_it)
    assert set(re.findall(r": hybrid_(\w+): ", recording.text)) == EVENTS
    assert seen(recording.text, "call") >= CALLS
    assert seen(recording.text, "type") >= OPERATIONS
    assert seen(recording.text, "bypass") >= {"sequential", "mode", "partial", "none"}
    assert re.search(r"io_done: .* error=-5", recording.text)
    assert re.search(r"op_done: .* error_origin=-5", recording.text)

    said = recording.replay(sim_dir / "replay", tmp_path)
    (events, operations, _, differences), text = said
    print(text)
    assert differences == 0, text
    assert events > 15000 and operations > 9000, text

    # One event that was another, or did not happen, is noticed.
    for event, old, new in (
            ("io", r"type=write", "type=read"),
            ("io", r"type=flush", None),
            ("io_done", r"error=0", "error=-5"),
            ("op_done", r"type=meta error_cache=0", "type=meta error_cache=-5"),
            ("call", r"call=cutoff volume=0 value=64", "call=cutoff volume=0 value=0"),
            ("number", r"value=\d", "value="),
            ("op", r"type=transfer", None)):
        (*_, differences), text = recording.replay(sim_dir / "replay", tmp_path,
                                                   recording.altered(event, old, new))
        assert differences == 1, f"{event} {old} -> {new}\n{text}"

    # Time that stands still, too; and where interrupts came does not matter.
    (*_, differences), text = recording.replay(sim_dir / "replay", tmp_path, re.sub(
        r"now_ms=\d+", "now_ms=1", recording.text))
    assert differences == 1, text
    (_, _, overlaps, differences), text = recording.replay(sim_dir / "replay", tmp_path,
                                                           recording.overlapping())
    assert overlaps and not differences, text

    # So is another engine.
    program = mutant(sim_dir, tmp_path, top, "core/engine-commit.c",
                     "if (e->journal.nr && e->commit.opens)", "if (e->journal.nr)")
    (*_, differences), text = recording.replay(program, tmp_path)
    assert differences == 1, text


def test_a_cache_that_dies_is_replayed(make_stack, sim_dir, tmp_path):
    recording = record(make_stack(ssd=16, hdd=48, hdd2=32, log=16, volatile="ssd hdd2"),
                       dying_cache)
    (*_, differences), text = recording.replay(sim_dir / "replay", tmp_path)
    assert differences == 0, text
    assert re.search(r"type=(meta|flush) error_cache=-5", recording.text)


def test_tracepoints_are_documented(make_stack, top):
    s = make_stack()
    text = s.script(f"mount -t tracefs none {TRACING}; ls -d {TRACING}/events/dm_hybrid/*/")
    events = {line.rstrip("/").rpartition("/")[2] for line in text.splitlines()}
    documented = (top / "dm-hybrid/Documentation/dm-hybrid.rst").read_text()
    assert events == {f"hybrid_{name}" for name in EVENTS}
    for event in sorted(events):
        assert re.search(rf"^{event}\b", documented, re.M), event
