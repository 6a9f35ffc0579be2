# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# Reads without a hit, of an SSD as origin: it answers as fast as the cache device.

ORIGIN=$ORIGIN_SSD
ROTATIONAL=0
fresh
run cold pattern=uniform depth=16 size=2000 ios=8000 seed="1$SEED"
for pass in 1 2 3; do
	run $pass pattern=shuffled depth=16 size=8 ios=2000 seed="2$SEED"
done
