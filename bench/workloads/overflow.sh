# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# Random writes whose blocks of 32 KiB do not fit the cache, and as many again once it is full.

fresh
run begin reads=0 pattern=shuffled depth=32 size=2000 ios=12000 end_fsync=1 seed="$SEED"
run on reads=0 pattern=shuffled depth=32 size=2000 ios=12000 end_fsync=1 seed="1$SEED"
