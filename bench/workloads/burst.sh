# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# Random writes, then a drain of all their data to the disk.  An earlier phase takes the delay that only
# the very first write has.

fresh
run first reads=0 pattern=shuffled size=512 ios=20 seed="9$SEED"
begun=$(busy)
run burst reads=0 pattern=shuffled depth=32 size=512 ios=8000 end_fsync=1 seed="$SEED"
started=$(seconds)
if type stack_drain >/dev/null 2>&1; then
	stack_drain
	wait_for 120 stack_clean || die "not clean"
fi
say drain seconds "$started $(seconds)"
quiesce
say drain busy_ms "$begun $(busy)"
