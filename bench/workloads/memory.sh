# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# RAM for 1 GiB of cache. Freed pages that a CPU keeps for itself are free, too, although MemFree does
# not count them.

CACHE_MIB=1024
META_MIB=64

free_kib() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	sleep 1
	awk '/^MemFree/ { kib = $2 } / count: / { kib += 4 * $2 } END { print kib }' /proc/meminfo /proc/zoneinfo
}

devices sparse
stack_up
stack_stop
free=$(free_kib)
stack_start
say empty kib "$free $(free_kib)"
