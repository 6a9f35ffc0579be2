# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh

stack_up() {
	create meta $META_MIB "linear $ssd 0"
	create data $CACHE_MIB "linear $ssd $((META_MIB * 2048))"
	stack_start
}

stack_table() { echo "cache /dev/mapper/meta /dev/mapper/data $hdd $((BLOCK * 2)) 1 $MODE $1 0"; }

stack_start() { create volume $HDD_MIB "$(stack_table smq)"; }

stack_stop() { dmsetup remove volume; }

stack_drain() {
	dmsetup reload volume --table "0 $((HDD_MIB * 2048)) $(stack_table cleaner)" &&
		dmsetup suspend volume && dmsetup resume volume || die cleaner
}

# <start> <len> cache <4 words> <hits and misses: 4> <demotions> <promotions> <dirty>
stack_clean() { [ "$(dmsetup status volume | cut -d' ' -f14)" = 0 ]; }
