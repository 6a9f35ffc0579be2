# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# The time to activate 16 GiB of cache.

CACHE_MIB=16384
HDD_MIB=32768
META_MIB=256
devices sparse
stack_up
restart empty
[ "$STACK" = hybrid ] || return

# Every block is in use, some are dirty, and the pool was not shut down: put_back() restores this state.
put_back() {
	dd if=/tmp/ssd of=/dev/ram1 bs=1M 2>/dev/null
	dd if=/tmp/hdd of=/dev/ram0 bs=1M 2>/dev/null
}
run fill pattern=shuffled bs=64 depth=16 size=16384 ios=262144
run write pattern=uniform reads=0 depth=16 size=16384 ios=20000
say cut cached "$(dmsetup status volume)"
dd if=/dev/ram1 of=/tmp/ssd bs=1M count=$((META_MIB + 2)) 2>/dev/null
dd if=/dev/ram0 of=/tmp/hdd bs=1M count=10 2>/dev/null
restart clean
restart cut put_back
