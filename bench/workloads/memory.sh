# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# RAM for 1 GiB of cache.

CACHE_MIB=1024
META_MIB=64
devices sparse
stack_up
restart empty
