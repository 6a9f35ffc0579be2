# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# What a cache still knows after a clean stop, and after a power cut, with 10 % and with 30 % writes.

# The devices as they are now: put_back() restores this state after the stack was stopped.
keep() {
	dd if=/dev/ram1 of=/tmp/ssd bs=1M count=$((CACHE_MIB + META_MIB)) 2>/dev/null
	dd if=/dev/ram0 of=/tmp/hdd bs=1M count=10 2>/dev/null
}
put_back() {
	dd if=/tmp/ssd of=/dev/ram1 bs=1M 2>/dev/null
	dd if=/tmp/hdd of=/dev/ram0 bs=1M 2>/dev/null
}

# Another phase of the same load
mixed() { run "$1-$reads" pattern=zipf reads=$reads depth=16 size=512 ios=12000 seed="$2$SEED"; }
reads() { run "$1-$reads" pattern=zipf depth=16 size=512 ios=3000 seed="$2$SEED"; }

fresh
for reads in 90 70; do
	mixed first 1
	mixed second 2
	reads before 3
	restart stop
	quiesce
	reads stopped 4
	mixed third 5
	keep
	restart cut put_back
	quiesce
	reads cut 6
done
