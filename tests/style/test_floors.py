# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine is built in floors: a file calls only files below it, and no struct holds everything.
Nor do files of the tools call one another in circles."""
import re
import subprocess
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
CORE = TOP / "dm-hybrid/core"
RST = TOP / "dm-hybrid/Documentation/dm-hybrid-design.rst"

MOST_FIELDS = 25
# Those that have more must not grow; hybrid_pool_status is a report, and printed whole.
FIELDS = {"hybrid_io": 31, "hybrid_job": 29, "hybrid_sb": 26, "hybrid_pool_status": 34}


def floors() -> list[str]:
    """The files of the engine, from the top down, as the design document's table has them."""
    table = re.search(r"^=+ =+\n(engine\.c .*?)^=+ =+\n", RST.read_text(), re.S | re.M)[1]
    return [name for line in table.splitlines()
            for name in re.findall(r"([\w-]+)\.c\b", line.split("  ")[0])]


def symbols(path: Path) -> tuple[set[str], set[str]]:
    """What an object defines for others, and what it needs of them."""
    run = subprocess.run(["nm", path], capture_output=True, text=True, check=True)
    defined, needed = set(), set()
    for line in run.stdout.splitlines():
        *_, kind, name = line.split()
        if kind in "TDBR":
            defined.add(name)
        elif kind == "U":
            needed.add(name)
    return defined, needed


def test_the_table_has_every_file():
    assert sorted(floors()) == sorted(p.stem for p in CORE.glob("*.c"))


def test_calls_go_down(sim_dir):
    names = floors()
    objects = {name: symbols(sim_dir / f"engine/{name}.o") for name in names}
    up = [f"{name}.c uses {symbol} of {above}.c, which is above it"
          for at, name in enumerate(names) for above in names[:at]
          for symbol in sorted(objects[name][1] & objects[above][0])]
    assert not up, "\n".join(up)
    # Were the objects not the engine's, there would be no call at all.
    assert sum(len(objects[a][1] & objects[b][0]) for a in names for b in names if a != b) > 300


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


def test_tools_have_no_circles(build):
    objects = {path.stem: symbols(path) for folder in ("hybridctl", "check", "replay", "lib")
               for path in (build / "obj" / folder).glob("*.o")}
    calls = {name: {other for other in objects if other != name and objects[name][1] & objects[other][0]}
             for name in objects}
    assert not circles(calls)
    assert sum(map(len, calls.values())) > 300
    assert circles(calls | {"units": {"create"}})


def fields(body: str) -> int:
    """Members of a struct; of one that is anonymous, and within it, its own."""
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    body = re.sub(r"\([^()]*\)", "", re.sub(r"\(\*(\w+)\)\([^()]*\)", r"\1", body))
    return sum(len(m.split(",")) for m in re.findall(r"([^;{}]+);", body))


def structs(path: Path) -> list[tuple[str, int]]:
    """The structs of a header, and how many members each has."""
    return [(name, fields(body)) for name, body in
            re.findall(r"^struct (\w+) \{\n(.*?)^\}", path.read_text(), re.S | re.M)]


def test_no_struct_holds_everything():
    large = {name: n for path in CORE.glob("*.h") for name, n in structs(path)
             if n > FIELDS.get(name, MOST_FIELDS)}
    assert not large
