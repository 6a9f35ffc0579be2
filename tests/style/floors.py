# SPDX-License-Identifier: GPL-2.0-or-later
"""The floors of the engine: its files, their calls, its structs."""
import re
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
CORE = TOP / "dm-hybrid/core"
RST = TOP / "dm-hybrid/Documentation/dm-hybrid-design.rst"


def floors() -> list[str]:
    """The files of the engine, from the top down, as the design document's table has them."""
    table = re.search(r"^=+ =+\n(engine\.c .*?)^=+ =+\n", RST.read_text(), re.S | re.M)[1]
    return [name for line in table.splitlines()
            for name in re.findall(r"([\w-]+)\.c\b", line.split("  ")[0])]


def symbols(path: Path) -> tuple[set[str], set[str]]:
    """Returns the symbols that an object defines, and the symbols that it needs."""
    run = subprocess.run(["nm", path], capture_output=True, text=True, check=True)
    defined, needed = set(), set()
    for line in run.stdout.splitlines():
        *_, kind, name = line.split()
        if kind in "TDBR":
            defined.add(name)
        elif kind == "U":
            needed.add(name)
    return defined, needed


def circles(calls: dict[str, set[str]]) -> list[set[str]]:
    """The sets of files that call one another, directly or through others."""
    def reached(name: str) -> set[str]:
        found, todo = set(), [name]
        while todo:
            new = calls[todo.pop()] - found
            found |= new
            todo += new
        return found
    below = {name: reached(name) for name in calls}
    found = {frozenset(a for a in calls if a in below[name] and name in below[a]) for name in calls}
    return [set(c) for c in found if len(c) > 1]


def fields(body: str) -> int:
    """Members of a struct; of one that is anonymous, and within it, its own."""
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    body = re.sub(r"\([^()]*\)", "", re.sub(r"\(\*(\w+)\)\([^()]*\)", r"\1", body))
    return sum(len(m.split(",")) for m in re.findall(r"([^;{}]+);", body))


def structs(path: Path) -> list[tuple[str, int]]:
    """The structs of a header, and how many members each has."""
    return [(name, fields(body)) for name, body in
            re.findall(r"^struct (\w+) \{\n(.*?)^\}", path.read_text(), re.S | re.M)]
