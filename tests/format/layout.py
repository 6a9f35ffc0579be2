#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints format version 7 as it is compiled: constants, sizes, offsets, example blocks.

The names come from format.h, the numbers from the compiler, the examples from the
codec.  After a deliberate change: layout.py > golden.txt
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
FLAGS = ["-std=gnu11", "-I", TOP / "userspace/kernel-shim", "-I", TOP / "dm-hybrid/core"]


def structs(text):
    """(struct, [(type, member, "[...]" or "")]); members of an unnamed union are the struct's."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for name, body in re.findall(r"^struct (\w+) {\n(.*?)^};", text, flags=re.S | re.M):
        body = re.sub(r"\bunion\s*{(.*?)}\s*;", r"\1", body, flags=re.S)
        yield name, re.findall(r"((?:struct )?\w+)\s+(\w+)\s*(\[[^\]]*\]|)\s*;", body)


def constants(text):
    """Every constant that is a number."""
    for name, value in re.findall(r"^#define\s+(HYBRID_\w+)\s+(.+)$", text, flags=re.M):
        if not value.startswith('"'):
            yield name


def program(text):
    lines = ['#include "core.h"', "#include <stdio.h>", "int main(void)", "{"]
    for name in constants(text):
        lines.append(f'printf("constant {name} 0x%llx\\n", (unsigned long long)({name}));')
    for name, fields in structs(text):
        lines.append(f'printf("struct {name} size %zu\\n", sizeof(struct {name}));')
        for _, field, array in fields:
            size = "(size_t)0" if array == "[]" else f"sizeof(((struct {name} *)0)->{field})"
            lines.append(f'printf("  {field} offset %zu size %zu\\n", '
                         f"offsetof(struct {name}, {field}), {size});")
    return "\n".join([*lines, "return 0;", "}", ""])


def compile_and_run(directory, name, sources, compiler):
    binary = Path(directory) / name
    subprocess.run([compiler, *FLAGS, "-I", TOP / "tests/unit", "-o", binary, *sources], check=True)
    return subprocess.run([binary], check=True, capture_output=True, text=True).stdout


def layout(compiler="cc"):
    text = (TOP / "dm-hybrid/core/format.h").read_text()
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "layout.c"
        source.write_text(program(text))
        core = TOP / "dm-hybrid/core"
        return "\n".join([
            "# Version 7 of the on-disk format. Written by layout.py.",
            compile_and_run(directory, "layout", [source], compiler).rstrip(),
            compile_and_run(directory, "examples", [HERE / "examples.c", core / "geometry.c",
                                                    core / "codec.c"], compiler)])


if __name__ == "__main__":
    sys.stdout.write(layout())
