# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# The latency of hits, misses and fsyncs: alone, and beside writeback, fills and commits. Each load has
# a part of the volume to itself; hardly any miss is repeated.

warm() {
	for pass in 1 2 3 4; do
		run warm-$1-$pass pattern=shuffled bs=64 depth=4 size=32 ios=512 seed="4$SEED"
	done
}

# measure <name of the load beside>: misses take other blocks each time
measure() {
	round=$((round + 1))
	run hits-$1 pattern=uniform size=32 ios=3000 seed="1$SEED"
	run misses-$1 pattern=uniform depth=4 offset=1024 size=1000 ios=1500 seed="$round$SEED"
	run fsyncs-$1 pattern=uniform reads=0 fsync=1 offset=32 size=32 ios=1000 seed="3$SEED"
}

# beside <name> <options of load>: measures while this load runs
beside() {
	name=$1
	shift
	quiesce
	warm "$name"
	load $volume "$@" seconds=100000 &
	background=$!
	measure "$name"
	kill $background || die "the load beside has ended: $*"
	wait $background
}

fresh
run burst reads=0 pattern=shuffled depth=32 offset=128 size=512 ios=4000 seed="6$SEED"
quiesce
round=0
warm alone
run hits pattern=uniform size=32 depth=32 ios=10000 seed="5$SEED"
measure alone
beside writeback reads=0 pattern=uniform think=5000 offset=128 size=512 seed="7$SEED"
beside fills pattern=shuffled bs=64 depth=4 offset=640 size=384 seed="8$SEED"
beside commits reads=0 pattern=uniform fsync=1 offset=64 size=32 seed="9$SEED"
