# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh

stack_up() { stack_start; }

stack_start() { create volume $HDD_MIB "writecache s $hdd $ssd 4096 0"; }

stack_stop() { dmsetup remove volume; }

stack_drain() {
	dmsetup message volume 0 flush
	dmsetup message volume 0 cleaner
}

# <start> <len> writecache <errors> <blocks> <free blocks> ...
stack_clean() { [ "$(dmsetup status volume | cut -d' ' -f5)" = "$(dmsetup status volume | cut -d' ' -f6)" ]; }
