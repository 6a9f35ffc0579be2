#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# Images of virtual machines on slow disks. When all machines start at once, in the morning or after
# a power cut, each reads from a different place. The cache stays warm when the host reboots.
#
#	guests.sh create	once; erases the devices
#	guests.sh mount		after a boot: the volume comes up by itself
#
# Change these, or give them in the environment.
: "${DISK:=/dev/sdb}"	# preferably an array: /dev/md/images
: "${CACHE:=/dev/nvme0n1p3}"
: "${NAME:=images}"
: "${MODE:=writeback}"	# guests call fsync often; use writethrough if the SSD is not mirrored
: "${ASK:=}"		# --yes: do not ask
set -eu

case ${1:-} in
create)
	hybridctl create "$NAME" --origin "$DISK" --cache "$CACHE" --mode "$MODE" $ASK
	mkfs.xfs -q "/dev/mapper/$NAME"
	;;
mount)
	# In /etc/fstab: /dev/mapper/images /srv/images xfs nofail 0 0
	# Have QEMU open the guests' disks with cache=none, so that the host's RAM stays free.
	mkdir -p "/srv/$NAME"
	mount "/dev/mapper/$NAME" "/srv/$NAME"
	;;
*)
	echo "usage: $0 create|mount" >&2
	exit 1
esac
