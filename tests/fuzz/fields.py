#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints every field of every metadata block as a row of C, in one array for each block.

The names come from format.h, the numbers from the compiler that reads the rows:
    FIELD(block, name, member)           one value; bytes (uuids, names) are one
    ARRAY(block, name, member, array)    one value of each element of the array
    FLEXIBLE(...)                        ... that has as many as its header says
"""
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP / "tests/format"))
import layout

BLOCKS = ("superblock", "root", "index", "volume_leaf", "map_leaf", "journal_entry",
          "intent", "lost_map")


def rows(structs, block, struct, name="", member="", array=()):
    """The values below a struct; @array: the kind and the name of the array on the way to it."""
    for kind, field, elements in structs[struct]:
        here = member + field
        inner = ("FLEXIBLE" if elements == "[]" else "ARRAY", here) if elements else array
        if kind.startswith("struct "):
            yield from rows(structs, block, kind.removeprefix("struct "), f"{name}{field}.",
                            here + ("[0]." if elements else "."), inner)
        elif elements and (kind != "__u8" or elements == "[]"):
            yield inner[0], block, name + field, here + "[0]", here
        elif array:
            yield array[0], block, name + field, here, array[1]
        else:
            yield "FIELD", block, name + field, here


if __name__ == "__main__":
    structs = dict(layout.structs((TOP / "dm-hybrid/core/format.h").read_text()))
    for block in BLOCKS:
        print(f"static const struct field {block}_fields[] = {{")
        for kind, *row in rows(structs, block, f"hybrid_{block}"):
            print(f"{kind}({', '.join(row)})")
        print("};\n")
