# SPDX-License-Identifier: GPL-2.0-or-later
"""Whatever befalls the cache device, status names the commands by which an admin gets what he wants."""
import pytest

from .rows import ROWS, may_lose
from .world import Admin, World


@pytest.mark.parametrize("fate, data, use, want", ROWS)
def test_row(make_guest, disks, tools, record_property, fate, data, use, want):
    w = World(make_guest, disks, fate, data, use)
    row = {"fate": fate, "data": data, "use": use, "want": want, "lost": 0}
    record_property("life", row)
    w.set_up()
    w.befall()
    admin = Admin(w, want)
    try:
        if use in ("unmounted", "rebooted"):
            admin.do("activate --all")
        admin.satisfy()
        row["lost"] = w.compare()
        assert not row["lost"] or may_lose(fate, data, want), f"{row['lost']} of {len(w.new)} chunks lost"
    finally:
        print("\n".join(admin.did))
    w.umount()
