# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# The reads of a system that starts, the same reads in each pass.

fresh
for pass in 1 2 3 4; do
	run $pass pattern=uniform bs=4/40:16/30:64/20:128/10 depth=4 size=192 ios=1500 seed="7$SEED"
done
