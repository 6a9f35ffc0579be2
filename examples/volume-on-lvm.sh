#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# A volume on LVM: origin and cache device are logical volumes, on disks and an SSD that hold other
# logical volumes, too.
#
#	volume-on-lvm.sh create	once; makes new logical volumes, and leaves others as they are
#	volume-on-lvm.sh mount	after a boot: LVM brings up the logical volumes, udev the volume on them
#
# Change these, or give them in the environment. The volume groups must exist. They may be the same
# group if SLOW_PV and FAST_PV name the physical volumes to allocate from.
: "${SLOW_VG:=disks}"
: "${FAST_VG:=ssd}"
: "${SLOW_PV:=}"
: "${FAST_PV:=}"
: "${SIZE:=500g}"
: "${CACHE_SIZE:=50g}"
: "${NAME:=home}"
: "${MODE:=writeback}"
: "${ASK:=}"		# --yes: do not ask
set -eu

case ${1:-} in
create)
	lvcreate --yes --name "$NAME-disk" --size "$SIZE" "$SLOW_VG" $SLOW_PV
	lvcreate --yes --name "$NAME-cache" --size "$CACHE_SIZE" "$FAST_VG" $FAST_PV
	hybridctl create "$NAME" --origin "/dev/$SLOW_VG/$NAME-disk" \
		--cache "/dev/$FAST_VG/$NAME-cache" --mode "$MODE" $ASK
	# 4 KiB, the cache's granule: the default of mkfs, except for tiny file systems.
	mkfs.ext4 -q -b 4096 "/dev/mapper/$NAME"
	;;
mount)
	# In /etc/fstab: /dev/mapper/home /srv/home ext4 nofail 0 0
	mkdir -p "/srv/$NAME"
	mount "/dev/mapper/$NAME" "/srv/$NAME"
	;;
*)
	echo "usage: $0 create|mount" >&2
	exit 1
esac
