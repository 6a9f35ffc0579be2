# SPDX-License-Identifier: GPL-2.0-or-later
"""A stack whose members and volumes are recorded, and what tests/replay makes of it."""
import subprocess
from pathlib import Path

from .stack import Stack

TOP = Path(__file__).resolve().parent.parent.parent
REPLAY = TOP / "build/replay/replay"
LOGS = "/sys/kernel/debug/dm-testdisk"


class Recording(Stack):
    """Recorders r<disk> over the members and r<volume> over the volumes.

    begin() when all volumes are there; end() brings the trace to the host.
    """

    def __init__(self, guest, cache="ssd", origins=("hdd",)):
        super().__init__(guest, cache, origins[0])
        self.origins = origins

    def dev(self, name: str) -> str:
        return f"/dev/mapper/r{name}"

    def members(self) -> "Recording":
        tags = {self.cache: "cache"} | {o: f"origin{n}" for n, o in enumerate(self.origins)}
        for name, tag in tags.items():
            self.guest.dm_create(f"r{name}", f"0 {self.disk(name).sectors} recorder "
                                             f"/dev/test/{name} 0 {tag}")
        return self

    def record(self, name: str, origin: str) -> str:
        """Puts a recorder over a volume; returns what its user uses."""
        words = self.table(name).split()
        return self.guest.dm_create(f"r{name}", f"0 {words[1]} recorder /dev/mapper/{name} 0 "
                                                f"volume{words[4]}@{self.origins.index(origin)}")

    def mark(self, word: str, name: str = "rssd") -> None:
        self.guest.dm_message(name, "mark", word)

    def begin(self) -> None:
        """From here on the replay cuts."""
        self.mark("begin")

    def end(self) -> Path:
        """Returns the directory with the trace."""
        path = self.guest.workdir
        for name in ("records", "data"):
            self.guest.run(f"cat {LOGS}/{name} >{path}/{name}")
        return path


def replay(trace: Path, *options, check: bool = True):
    """Runs the replay; returns its last line, or without check how the process ended."""
    run = subprocess.run([REPLAY, *map(str, options), trace], capture_output=True, text=True)
    assert not check or run.returncode == 0, run.stdout + run.stderr
    return run.stdout.splitlines()[-1] if check else run
