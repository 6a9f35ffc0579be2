# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine is built in floors: a file calls only files below it, and no struct holds everything.
Nor do files of the tools call one another in circles."""
from style import walk
from style.floors import CORE, circles, floors, structs, symbols

MOST_FIELDS = 25
# Those that have more must not grow; hybrid_pool_status is a report, and printed whole.
FIELDS = {"hybrid_sb": 26, "hybrid_pool_status": 34}


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


def test_tools_have_no_circles(build):
    objects = {path.stem: symbols(path) for folder in ("hybridctl", "check", "replay", "lib")
               for path in (build / "obj" / folder).glob("*.o")}
    calls = {name: {other for other in objects if other != name and objects[name][1] & objects[other][0]}
             for name in objects}
    assert not circles(calls)
    assert sum(map(len, calls.values())) > 300
    assert circles(calls | {"units": {"create"}})


# Files crossed by an event, and changes of file: neither may grow.
WAYS = {"a hit, read": (3, 3), "a hit, write": (3, 3), "a miss, read": (11, 32), "a miss, write": (13, 24),
        "a flush with a record": (14, 33)}


def test_ways_are_short():
    ways = walk.ways(walk.build())
    assert set(ways) == set(WAYS)
    long = {event: (len(set(way)), walk.changes(way)) for event, way in ways.items()
            if len(set(way)) > WAYS[event][0] or walk.changes(way) > WAYS[event][1]}
    assert not long


def test_no_struct_holds_everything():
    large = {name: n for path in CORE.glob("*.h") for name, n in structs(path)
             if n > FIELDS.get(name, MOST_FIELDS)}
    assert not large
