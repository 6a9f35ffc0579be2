#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# Four disks mirrored and striped (RAID10), one NVMe as their cache, LUKS, ext4: a database server.
#
#	raid10-luks-ext4.sh create	once; what is on the devices is lost
#	raid10-luks-ext4.sh mount	after a boot: array and volume come up by themselves
#
# LUKS is on the volume: disks and NVMe see ciphertext only, and it is encrypted once.
#
# Change these, or give them in the environment.
: "${DISKS:=/dev/sdb /dev/sdc /dev/sdd /dev/sde}"
: "${CACHE:=/dev/nvme0n1p3}"	# better a mirror (md RAID1) of two NVMe, because of:
: "${MODE:=writeback}"	# commits are as fast as the NVMe; it alone has the newest for a while
: "${NAME:=db}"
: "${MOUNT:=/srv/db}"
: "${LUKS:=}"		# more options of luksFormat
: "${KEY:=}"		# a key file; without one cryptsetup asks for a passphrase
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
	# 4 KiB, as it is anyway where it is not tiny: the cache's unit, too.
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
