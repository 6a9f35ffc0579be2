# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# Random I/O on data that was laid out before; three quarters are reads.

fresh
run layout pattern=sequential reads=0 bs=256 depth=4 size=32 ios=128
quiesce
for pass in 1 2 3; do
	run $pass pattern=shuffled reads=75 depth=64 size=32 ios=8192 seed="$SEED"
	quiesce
done
