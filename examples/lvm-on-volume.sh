#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# LVM on a volume: logical volumes that are made, resized and removed as ever, all of them cached.
#
#	lvm-on-volume.sh create	once; what is on the devices is lost
#	lvm-on-volume.sh mount	after a boot: pool, volume and volume group come up by themselves
#
# Change these, or give them in the environment.
: "${DISK:=/dev/sdb}"
: "${CACHE:=/dev/nvme0n1p3}"
: "${NAME:=lvmdisk}"	# the cached volume, the physical volume of:
: "${VG:=vg0}"
: "${SIZES:=root=20g home=100g}"
: "${MODE:=writeback}"
: "${ASK:=}"		# --yes: do not ask
set -eu

case ${1:-} in
create)
	hybridctl create "$NAME" --origin "$DISK" --cache "$CACHE" --mode "$MODE" $ASK
	# LVM sees the volume only: what is below is no physical volume to it.
	vgcreate "$VG" "/dev/mapper/$NAME"
	for lv in $SIZES; do
		lvcreate --yes --name "${lv%=*}" --size "${lv#*=}" "$VG"
		# 4 KiB, as it is anyway where it is not tiny: the cache's unit, too.
		mkfs.ext4 -q -b 4096 "/dev/$VG/${lv%=*}"
	done
	;;
mount)
	# In /etc/fstab: /dev/vg0/home /srv/home ext4 nofail 0 0
	for lv in $SIZES; do
		mkdir -p "/srv/${lv%=*}"
		mount "/dev/$VG/${lv%=*}" "/srv/${lv%=*}"
	done
	;;
*)
	echo "usage: $0 create|mount" >&2
	exit 1
esac
