# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# Reads without a hit, of an origin with a full queue; then the same reads three times.

fresh
run cold pattern=uniform depth=$ORIGIN_DEPTH size=2000 ios=8000 seed="1$SEED"
for pass in 1 2 3; do
	run $pass pattern=shuffled depth=$ORIGIN_DEPTH size=8 ios=2000 seed="2$SEED"
done
