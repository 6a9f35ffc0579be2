#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# Images of virtual machines on slow disks: when all of them start at once, in the morning or after
# a power cut, each reads another place. A warm cache survives the host's own reboot.
#
#	guests.sh create	once; what is on the devices is lost
#	guests.sh mount		after a boot: the volume comes up by itself
#
# Change these, or give them in the environment.
: "${DISK:=/dev/sdb}"	# better an array: /dev/md/images
: "${CACHE:=/dev/nvme0n1p3}"
: "${NAME:=images}"
: "${MODE:=writeback}"	# guests call fsync often; writethrough if the SSD is not mirrored
: "${ASK:=}"		# --yes: do not ask
set -eu

case ${1:-} in
create)
	hybridctl create "$NAME" --origin "$DISK" --cache "$CACHE" --mode "$MODE" $ASK
	mkfs.xfs -q "/dev/mapper/$NAME"
	;;
mount)
	# In /etc/fstab: /dev/mapper/images /srv/images xfs nofail 0 0
	# Let the guests' disks be opened with cache=none (QEMU), so that the host's RAM is free.
	mkdir -p "/srv/$NAME"
	mount "/dev/mapper/$NAME" "/srv/$NAME"
	;;
*)
	echo "usage: $0 create|mount" >&2
	exit 1
esac
