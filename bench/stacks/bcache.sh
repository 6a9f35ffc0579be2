# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh

stack_up() {
	make-bcache --block 4k --bucket 256k -C $ssd -B $hdd >/tmp/bcache 2>&1 || die "$(cat /tmp/bcache)"
	stack_start
	basename /sys/fs/bcache/*-*-* >/sys/block/bcache0/bcache/attach 2>/tmp/bcache
	echo "$MODE" >/sys/block/bcache0/bcache/cache_mode
	if [ "$TUNED" ]; then
		echo 0 >/sys/block/bcache0/bcache/sequential_cutoff
		for direction in read write; do
			echo 0 >"$(echo /sys/fs/bcache/*-*-*)/congested_${direction}_threshold_us"
		done
	fi
}

stack_start() {
	sleep 1
	for device in $ssd $hdd; do
		readlink -f $device >/sys/fs/bcache/register
	done
	volume=/dev/bcache0
	wait_for 10 test -d /sys/block/bcache0/bcache || die "no bcache0"
	wait_for 10 test -b $volume || die "no $volume"
}

stack_stop() {
	set=$(echo /sys/fs/bcache/*-*-*)
	echo 1 >/sys/block/bcache0/bcache/stop
	echo 1 >"$set/unregister"
	wait_for 60 test ! -e $volume -a ! -e "$set" || die "bcache does not stop"
}

stack_drain() {
	cd /sys/block/bcache0/bcache || die "no bcache0"
	echo 0 >writeback_percent
	echo 0 >writeback_delay
	echo 1 >writeback_running
	echo writethrough >cache_mode
	cd /
}

stack_clean() { [ "$(cat /sys/block/bcache0/bcache/state)" = clean ]; }
