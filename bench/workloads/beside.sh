# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# The latency of reads from the disk: alone, during background writeback, and during a drain.
# The reads go to an area without writes, and hardly any read is repeated.

# dirty <phase> <seed>: makes three fifths of the cache's blocks dirty
dirty() { run "$1" reads=0 pattern=shuffled depth=32 size=512 ios=3000 seed="$2$SEED"; }

fresh
run alone pattern=uniform depth=4 offset=600 size=1400 seconds=8 seed="1$SEED"
dirty before 2
run writes reads=0 pattern=uniform think=20000 size=512 seconds=8 seed="3$SEED" &
writes=$!
run background pattern=uniform depth=4 offset=600 size=1400 seconds=8 seed="4$SEED"
wait $writes
quiesce
dirty again 5
started=$(seconds)
if type stack_drain >/dev/null 2>&1; then
	stack_drain
fi
run drain pattern=uniform depth=4 offset=600 size=1400 seconds=8 seed="6$SEED"
if type stack_drain >/dev/null 2>&1; then
	wait_for 240 stack_clean || die "not clean"
fi
say drain seconds "$started $(seconds)"
