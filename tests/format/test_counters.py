# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of counters in the design document agrees with the engine's structs, and has all."""
import platform
import re
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
ENGINE = TOP / "dm-hybrid/core"
RST = TOP / "dm-hybrid/Documentation/dm-hybrid-design.rst"
PURE = [*ENGINE.glob("engine*.[ch]"), *ENGINE.glob("map.[ch]"), *ENGINE.glob("journal.[ch]")]


def section() -> str:
    return re.search(r"^Counters\n=+\n(.*?)^Block size\n=", RST.read_text(), re.S | re.M)[1]


def rows() -> dict[tuple[str, str], str]:
    """Of each struct.member its bits, as the table has them."""
    return {(m[1], m[2]): m[3]
            for m in re.finditer(r"^(hybrid_\w+)\.(\w+) +(\d+|long) ", section(), re.M)}


def bounded() -> set[str]:
    return set(re.findall(r"``(\w+)``", section().split("Others count")[1]))


def counted() -> set[str]:
    """Members that the engine adds to."""
    found = set()
    for path in PURE:
        text = path.read_text()
        for expression in (r"(?:->|\.)(\w+)(?:\[[^\]]*\])?(?:\+\+| \+= )",
                           r"\+\+\w+(?:(?:->|\.)\w+)*(?:->|\.)(\w+)",
                           r"(?:->|\.)(\w+), *\w+(?:(?:->|\.)\w+)*(?:->|\.)\1 \+ ",
                           r"(?:atomic(?:64)?|this_cpu)_(?:inc|add)\([^;]*?(?:->|\.)(\w+)(?:\[[^;]*\])?[,)]"):
            found |= set(re.findall(expression, text))
    return found


def test_there_is_a_table():
    assert len(rows()) > 30
    assert ("hybrid_set", "flush_epoch") in rows()


def test_none_is_left_out():
    named = {member for _, member in rows()}
    assert not named & bounded()
    assert counted() <= named | bounded()
    # Nor is any there that is none
    assert bounded() - {"ahead", "rest", "atomic_t"} <= counted()


# On x86 for 32 bits, too: its headers are the same, but for one that says what glibc has.
@pytest.mark.parametrize("pointer", ["", *(["-m32"] if platform.machine() == "x86_64" else [])])
def test_widths(tmp_path, pointer):
    """By the compiler: sizes of what is counted, also of one of an array."""
    asserts = []
    for (struct, member), bits in rows().items():
        size = "sizeof(long)" if bits == "long" else f"{bits} / 8"
        value = f"((struct {struct} *)0)->{member}"
        element = f"_Generic(&({value}), u16 **: 2, u32 **: 4, default: sizeof({value}))"
        if member in ("c", "ends", "errors", "enter", "leave"):
            element = f"sizeof({value}[0])"
        asserts.append(f'_Static_assert({element} == {size}, "{struct}.{member}");')
    source = tmp_path / "counters.c"
    source.write_text('#include "engine-internal.h"\n' + "\n".join(asserts) + "\n")
    command = ["gcc", "-std=gnu11", "-fsyntax-only", f"-I{ENGINE}", f"-I{TOP}/userspace/kernel-shim"]
    if pointer:
        (tmp_path / "gnu").mkdir()
        (tmp_path / "gnu/stubs-32.h").touch()
        command += [pointer, f"-I{tmp_path}", "-isystem", "/usr/include/x86_64-linux-gnu",
                    "-D__int128=long long"]	# no code is made of it
    r = subprocess.run([*command, source], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
