#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# A volume on LVM: origin and cache device are logical volumes, of disks and of an SSD that have
# other tenants, too.
#
#	volume-on-lvm.sh create	once; the logical volumes are new, others stay as they are
#	volume-on-lvm.sh mount	after a boot: LVM brings up its part, udev the volume on it
#
# Change these, or give them in the environment. The volume groups exist; they may be one and the
# same, if SLOW_PV and FAST_PV say where in it to allocate.
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
	# 4 KiB, as it is anyway where it is not tiny: the cache's unit, too.
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
