# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# A set of popular blocks that fits the cache, and then another one, where the cache is full of the first.

windows() {
	for window in 1 2 3; do
		run "$1-$window" pattern=zipf depth=16 offset="$2" size=192 ios=4000 seed="$window$SEED"
	done
}

fresh
windows first 0
run full pattern=shuffled bs=64 depth=4 offset=192 size=512 ios=4096 seed="4$SEED"
windows again 0
windows other 1024
