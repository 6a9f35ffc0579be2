# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# Database pages of 16 KiB, flushed in groups of eight.

fresh
run first pattern=shuffled reads=0 bs=16 fsync=8 size=512 ios=24 seed="9$SEED"
run new pattern=shuffled reads=0 bs=16 fsync=8 size=512 ios=800 seed="$SEED"
