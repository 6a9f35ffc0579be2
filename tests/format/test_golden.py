# SPDX-License-Identifier: GPL-2.0-or-later
"""The disk format has not changed since version 7."""
import difflib
import importlib.util
import shutil
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_format_is_golden(compiler):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    spec = importlib.util.spec_from_file_location("layout", HERE / "layout.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    golden = (HERE / "golden.txt").read_text().splitlines()
    now = module.layout(compiler).splitlines()
    diff = list(difflib.unified_diff(golden, now, "golden.txt", "now", lineterm="", n=1))
    assert not diff, "the format changed:\n" + "\n".join(diff)


def test_golden_names_every_struct():
    text = (HERE.parent.parent / "dm-hybrid/core/format.h").read_text()
    golden = (HERE / "golden.txt").read_text()
    for line in text.splitlines():
        if line.startswith("struct hybrid_") and line.endswith("{"):
            assert f"\n{line.removesuffix(' {')} size " in golden
