#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""How far the engine's events go through its files, and how large it is: a table.

Beside walk.c it needs only the simulator's objects: walk.py [FILE] prints the table, or writes it.
"""
import itertools
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
from style import floors

BUILD = TOP / "build/walk"


def build() -> Path:
    flags = "-finstrument-functions -fno-pie -fno-inline -Wno-missing-prototypes"
    objects = ["rig.o", "executor.o", "policy-registry.o", *(f"{p.stem}.o" for folder in ("core", "policy")
                                               for p in (TOP / f"dm-hybrid/{folder}").glob("*.c"))]
    BUILD.mkdir(parents=True, exist_ok=True)
    # What is not the engine's is no part of the way.
    subprocess.run(["make", "-s", "-j2", "-C", TOP / "tests/unit", f"BUILD={BUILD}", "SANITIZE=",
                    f"OPT=-O1 -g {flags} -finstrument-functions-exclude-file-list=rig.c,executor.c,kernel-shim,policy",
                    *(BUILD / o for o in objects)], check=True)
    program = BUILD / "walk"
    subprocess.run(["cc", "-g", "-no-pie", f"-I{TOP}/userspace/kernel-shim", f"-I{TOP}/dm-hybrid/core",
                    f"-I{TOP}/tests/unit", f"-I{TOP}/userspace/lib", "-Wno-unused-parameter", "-o", program, HERE / "walk.c",
                    *(BUILD / o for o in objects), "-lcmocka"], check=True)
    return program


def ways(program: Path) -> dict[str, list[str]]:
    """Of each event the files of the functions that it enters: of each once, as a loop is read once."""
    out = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    addresses = sorted(set(re.findall(r"^0x\w+$", out, re.M)))
    lines = subprocess.run(["addr2line", "-e", program, *addresses], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    file = dict(zip(addresses, (Path(x.split(":")[0]).name for x in lines)))
    found = {}
    for event, body in re.findall(r"^= (.*)\n((?:0x.*\n)*)", out, re.M):
        # Helpers in headers are at home everywhere.
        found[event] = [file[a] for a in dict.fromkeys(body.split()) if file[a].endswith(".c")]
    return found


def changes(way: list[str]) -> int:
    return sum(a != b for a, b in itertools.pairwise(way))


def rows():
    names = floors.floors()
    objects = {n: floors.symbols(TOP / f"build/sim/engine/{n}.o") for n in names}
    yield "calls from file to file that go up", sum(
        len(objects[n][1] & objects[above][0]) for at, n in enumerate(names) for above in names[:at])
    for event, way in ways(build()).items():
        yield f"{event}: files crossed, changes of file", f"{len(set(way))}, {changes(way)}"
    structs = {name: n for path in floors.CORE.glob("*.h") for name, n in floors.structs(path)}
    for name in "hybrid_engine", "hybrid_volume", "hybrid_io":
        yield f"members of struct {name}", structs[name]
    sizes = {p.name: len(p.read_text().splitlines()) for p in floors.CORE.glob("engine*.[ch]")}
    for kind in ".c", ".h":
        largest = max((n for n in sizes if n.endswith(kind)), key=sizes.get)
        yield f"lines of the largest {kind} file, {largest}", sizes[largest]
    text = "".join(p.read_text() for p in floors.CORE.glob("engine*.[ch]"))
    asserted = len(re.findall(r"\b(?:lockdep_assert_held|engine_assert)\(", text))
    yield "assertions a thousand lines", round(1000 * asserted / sum(sizes.values()), 1)
    yield "lines of the engine", sum(sizes.values())


def main() -> None:
    subprocess.run(["make", "-s", "-C", TOP / "tests/sim"], check=True)
    table = "".join(f"| {a} | {b} |\n" for a, b in (("", "now"), ("---", "---"), *rows()))
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(table)
    else:
        print(table, end="")


if __name__ == "__main__":
    main()
