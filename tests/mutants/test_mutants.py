# SPDX-License-Identifier: GPL-2.0-or-later
"""A sample of the mutants; `make check-mutants` runs all of them."""
import pytest

from mutants import run

MUTANTS = {m.name: m for m in run.all_mutants()}
# One of each kind: order, P1, J1 and the lock-free hit, recovery, overlap, faults, codec, detach.
SAMPLE = ("journal-without-flush", "clean-without-flush", "reuse-under-a-hit",
          "dirty-forgotten", "overlap-not-serialised", "failed-write-acknowledged",
          "entry-crc-of-first-block", "instance-reused")


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


@pytest.mark.parametrize("name", SAMPLE)
def test_noticed(name):
    mutant = next(m for m in MUTANTS.values() if m.name.endswith(f"-{name}"))
    results = run.judge(mutant)
    assert results[-1].killer, run.row(mutant, results)
