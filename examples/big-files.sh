#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# Files larger than RAM that are read again and again from the beginning to the end: video that is
# cut, models that are loaded, tables that are scanned.
#
#	big-files.sh create	once; what is on the devices is lost
#	big-files.sh mount	after a boot: the volume comes up by itself
#
# Usually a cache leaves what is read in one go to the disk, which is good at it, and keeps its
# space for what is not: --cutoff, 4 MiB. Here that is the very thing to cache. It is of use if the
# cache is larger than what is read in turn.
#
# Change these, or give them in the environment.
: "${DISK:=/dev/sdb}"
: "${CACHE:=/dev/nvme0n1p3}"
: "${NAME:=media}"
: "${MODE:=writethrough}"
: "${ASK:=}"		# --yes: do not ask
set -eu

case ${1:-} in
create)
	# Large blocks: less to look up and fewer, longer transfers.
	hybridctl create "$NAME" --origin "$DISK" --cache "$CACHE" --mode "$MODE" \
		--cutoff 0 --block-size 256k $ASK
	mkfs.xfs -q "/dev/mapper/$NAME"
	;;
mount)
	# In /etc/fstab: /dev/mapper/media /srv/media xfs nofail 0 0
	mkdir -p "/srv/$NAME"
	mount "/dev/mapper/$NAME" "/srv/$NAME"
	;;
*)
	echo "usage: $0 create|mount" >&2
	exit 1
esac
