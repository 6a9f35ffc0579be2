#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# Files larger than RAM that programs read again and again from beginning to end: to cut a video,
# load a model or scan a table.
#
#	big-files.sh create	once; erases the devices
#	big-files.sh mount	after a boot: the volume comes up by itself
#
# By default, a full cache leaves sequential runs beyond --cutoff (4 MiB) to the disk, which is good
# at them, and keeps its space for other data. Here, exactly these runs are worth caching. This helps
# if the cache is larger than all the data that is read in turn.
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
	# Large blocks need fewer lookups, and fewer but longer transfers.
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
