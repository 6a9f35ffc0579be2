#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# LVM on a volume: you make, resize and remove logical volumes as usual, and all of them are cached.
#
#	lvm-on-volume.sh create	once; erases the devices
#	lvm-on-volume.sh mount	after a boot: pool, volume and volume group come up by themselves
#
# Change these, or give them in the environment.
: "${DISK:=/dev/sdb}"
: "${CACHE:=/dev/nvme0n1p3}"
: "${NAME:=lvmdisk}"	# the cached volume, which is the physical volume of:
: "${VG:=vg0}"
: "${SIZES:=root=20g home=100g}"
: "${MODE:=writeback}"
: "${ASK:=}"		# --yes: do not ask
set -eu

case ${1:-} in
create)
	hybridctl create "$NAME" --origin "$DISK" --cache "$CACHE" --mode "$MODE" $ASK
	# LVM sees only the volume: the devices below are no physical volumes to LVM.
	vgcreate "$VG" "/dev/mapper/$NAME"
	for lv in $SIZES; do
		lvcreate --yes --name "${lv%=*}" --size "${lv#*=}" "$VG"
		# 4 KiB, the cache's granule: the default of mkfs, except for tiny file systems.
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
