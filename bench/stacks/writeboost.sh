# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh

# writeboost formats a cache that begins with zeros. By default it caches no reads.
stack_up() { stack_start; }

stack_start() { create volume $HDD_MIB "writeboost $hdd $ssd"; }

stack_stop() { dmsetup remove volume; }

# By default, writeboost writes back only when it must: when its cache is full, or for this message.
stack_drain() {
	dmsetup suspend volume && dmsetup resume volume || die "suspend and resume"
	dmsetup message volume 0 drop_caches
}

# <start> <len> writeboost <cursor> <blocks> <segments> <3 ids> <dirty> ...
stack_clean() { [ "$(dmsetup status volume | cut -d' ' -f10)" = 0 ]; }
