# SPDX-License-Identifier: GPL-2.0-or-later
"""dm-hybrid with pause points: make_guest(paused=True). tests/kernel/pauses/README.md says more."""
import fcntl
import functools
import itertools
from pathlib import Path

from mutants.run import Mutant, write_copy

TOP = Path(__file__).resolve().parents[2]
PAUSES = TOP / "tests/kernel/pauses"
SUFFIX = "-pauses"	# of the directories below build


@functools.cache
def sources() -> Path:
    """A copy of the module's sources with all points in it, up to date."""
    directory = TOP / "build" / "pauses" / "dm-hybrid"
    directory.mkdir(parents=True, exist_ok=True)
    module = TOP / "dm-hybrid"
    files = itertools.chain(module.glob("*.[ch]"), PAUSES.glob("*.[ch]"),
                            (module / name for name in ("Kbuild", "core", "policy")))
    with open(directory.parent / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_copy(files, [Mutant.read(p) for p in sorted(PAUSES.glob("*.patch"))], directory)
    return directory
