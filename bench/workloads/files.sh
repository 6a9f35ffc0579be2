# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# Small files on ext4, each written and flushed, as a mail server does.

fresh
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0,nodiscard $volume || die "mkfs.ext4"
mkdir -p /files
mount -t ext4 $volume /files || die "mount"
quiesce
volume=/files
run files reads=0 size=4 fsync=1 ios=600
