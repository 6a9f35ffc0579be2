# SPDX-License-Identifier: GPL-2.0-or-later
"""The lines of the table."""
import itertools

import pytest

FATES = ("healthy", "dead", "blank", "stale", "late", "replaced", "read-errors", "write-errors", "one-error")
USES = ("mounted", "unmounted", "rebooted", "luks", "lvm")
WANTS = ("go-on", "accept-loss", "replace", "take-back")
# One of each kind is part of make check.
SAMPLE = {
    ("dead", "dirty", "mounted", "accept-loss"), ("dead", "clean", "luks", "go-on"),
    ("blank", "dirty", "rebooted", "take-back"), ("stale", "dirty", "unmounted", "go-on"),
    ("late", "dirty", "lvm", "go-on"), ("replaced", "dirty", "rebooted", "replace"),
    ("write-errors", "dirty", "unmounted", "go-on"), ("one-error", "dirty", "mounted", "go-on"),
    ("healthy", "dirty", "mounted", "replace"), ("read-errors", "clean", "rebooted", "take-back"),
}
ROWS = [pytest.param(*row, id="-".join(row), marks=() if row in SAMPLE else pytest.mark.life)
        for row in itertools.product(FATES, ("clean", "dirty"), USES, WANTS)]


def may_lose(fate, data, want):
    """Only what a device had that is gone for good, or is given up."""
    if data == "clean":
        return False
    return fate in ("dead", "blank", "stale", "replaced", "read-errors", "write-errors") or \
        want == "accept-loss" or (want == "replace" and fate == "late")
