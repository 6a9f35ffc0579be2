#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# Four disks mirrored and striped (RAID10), one NVMe as their cache, LUKS, ext4: a database server.
#
#	raid10-luks-ext4.sh create	once; erases the devices
#	raid10-luks-ext4.sh mount	after a boot: array and volume come up by themselves
#
# LUKS is on the volume: disks and NVMe see only ciphertext, and data is encrypted only once.
#
# Change these, or give them in the environment.
: "${DISKS:=/dev/sdb /dev/sdc /dev/sdd /dev/sde}"
: "${CACHE:=/dev/nvme0n1p3}"	# preferably a mirror (md RAID1) of two NVMe, because of:
: "${MODE:=writeback}"	# commits are as fast as the NVMe, which alone has the newest data for a while
: "${NAME:=db}"
: "${MOUNT:=/srv/db}"
: "${LUKS:=}"		# further options of luksFormat
: "${KEY:=}"		# a key file; without it, cryptsetup asks for a passphrase
: "${ASK:=}"		# --yes: do not ask
set -eu

luks() {
	cryptsetup ${KEY:+--batch-mode --key-file "$KEY"} "$@"
}

case ${1:-} in
create)
	set -- $DISKS
	mdadm --create "/dev/md/$NAME" --homehost=any --level=10 --raid-devices=$# "$@"
	udevadm settle
	hybridctl create "$NAME-cached" --origin "/dev/md/$NAME" --cache "$CACHE" --mode "$MODE" $ASK
	luks luksFormat --type luks2 $LUKS "/dev/mapper/$NAME-cached"
	luks open "/dev/mapper/$NAME-cached" "$NAME"
	# 4 KiB, the cache's granule: the default of mkfs, except for tiny file systems.
	mkfs.ext4 -q -b 4096 "/dev/mapper/$NAME"
	luks close "$NAME"
	;;
mount)
	# In /etc/crypttab: db /dev/mapper/db-cached none luks,nofail
	# In /etc/fstab:    /dev/mapper/db /srv/db ext4 nofail 0 0
	luks open "/dev/mapper/$NAME-cached" "$NAME"
	mkdir -p "$MOUNT"
	mount "/dev/mapper/$NAME" "$MOUNT"
	;;
*)
	echo "usage: $0 create|mount" >&2
	exit 1
esac
