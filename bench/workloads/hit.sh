# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# The cost of a hit in instructions, with both devices in RAM.

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
