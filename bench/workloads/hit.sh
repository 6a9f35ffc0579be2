# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# The cost of a hit, and of a first read beside an origin that does not seek, in instructions: both
# devices are in RAM.

ROTATIONAL=0
devices ram
stack_up
for pass in 1 2 3; do
	run fill$pass pattern=sequential bs=64 size=8 ios=128
done
run fill pattern=sequential reads=0 bs=64 size=8 ios=128
run fill4 pattern=sequential bs=64 size=8 ios=128
run read pattern=uniform size=8 ios=10000
run write pattern=uniform reads=0 size=8 ios=10000
run read32 pattern=uniform size=8 ios=10000 depth=32
run write32 pattern=uniform reads=0 size=8 ios=10000 depth=32
run first pattern=shuffled size=1024 ios=10000
