# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# The I/O of the benchmark script YABS, one size after the other.

fresh
run layout pattern=sequential reads=0 bs=256 depth=4 size=160 ios=640
quiesce
run 4k pattern=uniform reads=50 bs=4 depth=128 size=160 ios=10240 seed="$SEED"
quiesce
run 64k pattern=uniform reads=50 bs=64 depth=128 size=160 ios=5120 seed="$SEED"
quiesce
run 512k pattern=uniform reads=50 bs=512 depth=128 size=160 ios=640 seed="$SEED"
quiesce
run 1m pattern=uniform reads=50 bs=1024 depth=128 size=160 ios=320 seed="$SEED"
