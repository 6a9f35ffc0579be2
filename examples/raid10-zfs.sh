#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# Four disks mirrored and striped (RAID10), one NVMe as their cache, ZFS directly on the volume.
# No layer between them is needed to keep ZFS' labels apart from the data that dm-hybrid writes. md
# provides the redundancy: ZFS has only one device, so it finds damage (zpool scrub) but cannot repair it.
#
#	raid10-zfs.sh create	once; erases the devices
#	raid10-zfs.sh import	after a boot: array and volume come up by themselves
#
# Change these, or give them in the environment.
: "${DISKS:=/dev/sdb /dev/sdc /dev/sdd /dev/sde}"
: "${CACHE:=/dev/nvme0n1p3}"	# preferably a mirror (md RAID1) of two NVMe, because of:
: "${MODE:=writeback}"	# the NVMe alone has the newest data for a while
: "${NAME:=tank}"
: "${ASK:=}"		# --yes: do not ask
set -eu

case ${1:-} in
create)
	set -- $DISKS
	mdadm --create "/dev/md/$NAME" --homehost=any --level=10 --raid-devices=$# "$@"
	udevadm settle
	hybridctl create "$NAME-cached" --origin "/dev/md/$NAME" --cache "$CACHE" --mode "$MODE" $ASK
	# 4 KiB, the cache's granule.
	zpool create -o ashift=12 -m "/srv/$NAME" "$NAME" "/dev/mapper/$NAME-cached"
	;;
import)
	# zfs-import-cache.service does this at boot, if a drop-in makes it wait for the volume:
	# systemctl edit zfs-import-cache: [Unit] After=dev-mapper-tank\x2dcached.device
	zpool import -d "/dev/mapper/$NAME-cached" "$NAME"
	;;
*)
	echo "usage: $0 create|import" >&2
	exit 1
esac
