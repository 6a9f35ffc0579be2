# SPDX-License-Identifier: GPL-2.0-or-later
"""The format's documentation agrees with golden.txt, and so with format.h."""
import re
from pathlib import Path

import pytest
from check.corrupt import constant

HERE = Path(__file__).resolve().parent
RST = HERE.parent.parent / "dm-hybrid/Documentation/dm-hybrid-format.rst"

# The tables in the order of the page: which struct each describes, and what follows in it
# under a common heading.
TABLES = ["hybrid_superblock", "hybrid_sb_cache", "hybrid_sb_origin", "hybrid_lost_map",
          "hybrid_block_header", "hybrid_root", "hybrid_index", "hybrid_volume_entry", "hybrid_map_leaf",
          "hybrid_record", "hybrid_intent", "hybrid_intent_record"]


def golden() -> dict[str, dict[str, tuple[int, int]]]:
    structs: dict = {}
    for line in (HERE / "golden.txt").read_text().splitlines():
        if m := re.match(r"struct (\w+) size (\d+)", line):
            fields = structs.setdefault(m[1], {})
        elif m := re.match(r"  (\w+) offset (\d+) size (\d+)", line):
            fields[m[1]] = int(m[2]), int(m[3])
    return structs


def documented() -> list[dict[str, tuple[int, int]]]:
    tables, rows = [], None
    for line in RST.read_text().splitlines():
        if re.match(r"====== ===== =+ =+$", line):
            rows = {} if rows is None else rows
        elif rows is not None and not line.strip():
            tables.append(rows)
            rows = None
        elif rows is not None and (m := re.match(r"(\d+) +(\d+) +(\S+)", line)):
            rows[m[3]] = int(m[1]), int(m[2])
    return tables


def test_every_struct_has_its_table():
    assert len(documented()) == len(TABLES)


@pytest.mark.parametrize("number,struct", list(enumerate(TABLES)))
def test_offsets(number, struct):
    want = golden()[struct]
    rows = documented()[number]
    for name, place in rows.items():
        if name == "(by":		# the union of the roles
            assert place == want["role_data"]
        elif name == "reserved" and name not in want:
            assert place == want["reserved16"]
        elif struct == "hybrid_map_leaf" and name == "reserved":
            assert place in (want["reserved"], want["reserved16"])
        else:
            assert place == want[name], name
    # And none is left out; what has no size of its own is in the text.
    named = {"cache", "origin", "role_data", "header", "reserved16", *rows}
    assert not {name for name, (_, size) in want.items() if size} - named


def test_the_version():
    text = RST.read_text()
    assert f"This page explains version {constant('FORMAT_VERSION')} of the format" in text
    assert re.search(r"^20 +4 +version +(\d+)$", text, re.M)[1] == str(constant("FORMAT_VERSION"))


@pytest.mark.parametrize("page", sorted(RST.parent.glob("*.rst")), ids=lambda p: p.stem)
def test_pages_are_well_formed(page):
    """A table one of whose words is too long for its column is shown to nobody."""
    core = pytest.importorskip("docutils.core", reason="python3-docutils is not installed")
    core.publish_string(page.read_text(), writer_name="null", settings_overrides={"halt_level": 2})
