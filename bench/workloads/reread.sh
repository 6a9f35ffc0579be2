# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# A loop that is larger than the cache.

fresh
for pass in 1 2 3; do
	run $pass pattern=sequential bs=128 depth=4 size=400 ios=3200
done
