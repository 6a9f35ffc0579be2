# SPDX-License-Identifier: GPL-2.0-or-later
"""Test guests: real kernels that a test may crash. README.md says how to use them."""
from . import packaged, qemu
from .base import (CommandError, Guest, GuestComplaint, GuestCrash, GuestError, GuestTimeout,
                   Job, Result)
from .disk import MIB, Disk
from .oplog import Op
from .qemu import QemuGuest
from .uml import UmlGuest

__all__ = ["CommandError", "Disk", "Guest", "GuestComplaint", "GuestCrash", "GuestError",
           "GuestTimeout", "Job", "MIB", "Op", "QemuGuest", "Result", "UmlGuest", "packaged",
           "qemu"]
