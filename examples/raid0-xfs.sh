#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# Many disks striped (RAID0), one NVMe as their cache, XFS.
#
#	raid0-xfs.sh create	once; erases the devices
#	raid0-xfs.sh mount	after a boot: array and volume come up by themselves
#	raid0-xfs.sh pause	while in use: the cache takes no more data ...
#	raid0-xfs.sh resume	... and takes data again
#	raid0-xfs.sh detach	while in use: the volume goes on without the cache, also after a boot
#	raid0-xfs.sh attach	while in use: the volume has the cache again
#
# Change these, or give them in the environment: DISKS="/dev/sdb /dev/sdc" raid0-xfs.sh create
: "${DISKS:=/dev/sdb /dev/sdc /dev/sdd /dev/sde}"	# any number of disks
: "${CACHE:=/dev/nvme0n1p3}"
: "${NAME:=big}"
: "${MOUNT:=/srv/big}"
# If one disk fails, the whole array is lost. The cache need not be a weak point, too:
# in writethrough mode, the disks alone have all data.
: "${MODE:=writethrough}"
: "${ASK:=}"		# --yes: do not ask
set -eu

case ${1:-} in
create)
	set -- $DISKS
	mdadm --create "/dev/md/$NAME" --homehost=any --level=0 --chunk=256 --raid-devices=$# "$@"
	udevadm settle
	hybridctl create "$NAME" --origin "/dev/md/$NAME" --cache "$CACHE" --mode "$MODE" $ASK
	# The volume passes on the array's stripe and chunk sizes: mkfs finds them.
	mkfs.xfs "/dev/mapper/$NAME"
	;;
mount)
	# In /etc/fstab: /dev/mapper/big /srv/big xfs nofail 0 0
	mkdir -p "$MOUNT"
	mount "/dev/mapper/$NAME" "$MOUNT"
	;;
pause)
	hybridctl set "$NAME" mode=passthrough
	;;
resume)
	hybridctl set "$NAME" mode="$MODE"
	;;
detach)
	hybridctl detach "$NAME" --live
	;;
attach)
	hybridctl attach "$NAME-pool" "$NAME" --origin "/dev/md/$NAME" --mode "$MODE" --live
	;;
*)
	echo "usage: $0 create|mount|pause|resume|detach|attach" >&2
	exit 1
esac
