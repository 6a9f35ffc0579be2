# SPDX-License-Identifier: GPL-2.0-or-later
"""A sample of the mutants; `make check-mutants` runs all of them."""
import re

import pytest

from mutants import run

MUTANTS = {m.name: m for m in run.all_mutants()}
# One of each kind: order, P1, J1 and the lock-free hit, recovery, overlap, faults, codec, detach.
SAMPLE = [MUTANTS[name] for name in (
    "001-journal-without-flush", "033-clean-without-flush", "027-reuse-under-a-hit",
    "081-dirty-forgotten", "062-overlap-not-serialised", "102-failed-write-acknowledged",
    "047-entry-crc-of-first-block", "094-instance-reused")]
OUTER = {m.name: m for m in run.outer_mutants()}
# One of each kind.
OUTER_SAMPLE = [OUTER[f"outer/{name}"] for name in (
    "008-errors-of-origins-are-the-caches", "031-drain-goes-on-unsaid", "060-shutdown-asks-udev")]


def name_of(mutant):
    return mutant.name


def test_enough():
    assert len(MUTANTS) >= 40


@pytest.mark.parametrize("name", MUTANTS)
def test_applies(name, tmp_path):
    """To the engine as it is: who changes what a mutant breaks moves the mutant, too."""
    mutant = MUTANTS[name]
    assert set(mutant.header) == set(run.FIELDS)
    run.write_engine(mutant, tmp_path)


def test_refused_elsewhere(tmp_path):
    """What a function did may stand in another one today, where the same change is no defect."""
    mutant = MUTANTS["045-fill-valid-before-written"]
    (file, _, old, new), = mutant.hunks
    moved = run.Mutant("moved", hunks=[(file, "fill_end", old, new)])
    with pytest.raises(run.DoesNotApply, match=r"stands in fill_read\(\)"):
        run.write_engine(moved, tmp_path)


@pytest.mark.parametrize("mutant", SAMPLE, ids=name_of)
def test_noticed(mutant):
    results = run.judge(mutant)
    assert results[-1].killer, run.row(mutant, results)


# Of the glue, the tools and the scripts ---------------------------------------------------


def test_enough_outside_of_the_engine():
    files = [file for m in OUTER.values() for file, *_ in m.hunks]
    for directory, least in ("dm-hybrid/", 12), ("userspace/", 10), ("", 30):
        assert len([f for f in files if f.startswith(directory)]) >= least
    assert len([f for f in files if f.split("/")[0] in ("udev", "systemd", "dracut", "initramfs-tools")]) >= 8


@pytest.mark.parametrize("name", OUTER)
def test_applies_outside_of_the_engine(name, top):
    """To the tree as it is, and the tests that it names are there."""
    mutant = OUTER[name]
    assert set(mutant.header) == set(run.FIELDS)
    for file, text in mutant.mutated(top).items():
        assert text != (top / file).read_text()
    for node in mutant.tests():
        file, test = re.fullmatch(r"(tests/[^:]+\.py)::(\w+)(?:\[.*\])?", node).groups()
        assert f"\ndef {test}(" in (top / file).read_text(), node


@pytest.mark.slow
@pytest.mark.parametrize("mutant", OUTER_SAMPLE, ids=name_of)
def test_noticed_outside_of_the_engine(mutant):
    results = run.judge(mutant)
    assert results[-1].killer, run.row(mutant, results)
