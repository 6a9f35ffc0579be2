# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# A working set that is larger than the cache.

fresh
for pass in 1 2 3; do
	run $pass pattern=zipf depth=16 size=1024 ios=7000 seed="$pass$SEED"
done
