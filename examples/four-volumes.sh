#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# Several disks with different duties, each a volume with its own mode, on one SSD. The volumes
# share its space: a volume that uses it more gets more.
#
#	four-volumes.sh create	once; erases the devices
#	four-volumes.sh mount	after a boot: pool and volumes come up by themselves
#
# Change these, or give them in the environment. One line for each volume: name, disk, mode.
: "${CACHE:=/dev/nvme0n1p3}"
: "${POOL:=fast}"
: "${VOLUMES:=
mail     /dev/sdb  writeback
photos   /dev/sdc  writethrough
video    /dev/sdd  writearound
backup   /dev/sde  passthrough
}"
# writeback	a write ends when the SSD has it; if the SSD fails, the newest data is lost
# writethrough	the disk always has all data; reads are fast
# writearound	only reads fill the SSD: for data that is seldom read soon after a write
# passthrough	takes no space on the SSD for now; "hybridctl set backup mode=..." changes that
: "${ASK:=}"		# --yes: do not ask
set -eu

each() {	# each COMMAND: calls it with name, disk and mode of each volume
	while read -r name disk mode <&3; do
		test -z "$name" || "$1" "$name" "$disk" "$mode"
	done 3<<END
$VOLUMES
END
}

add() {
	# The first volume makes the pool.
	if dmsetup info "$POOL" >/dev/null 2>&1; then
		hybridctl create "$1" --origin "$2" --pool "$POOL" --mode "$3" $ASK
	else
		hybridctl create "$1" --origin "$2" --cache "$CACHE" --pool "$POOL" --mode "$3" $ASK
	fi
	# 4 KiB, the cache's granule: the default of mkfs, except for tiny file systems.
	mkfs.ext4 -q -b 4096 "/dev/mapper/$1"
}

mount_one() {
	# In /etc/fstab: /dev/mapper/mail /srv/mail ext4 nofail 0 0
	mkdir -p "/srv/$1"
	mount "/dev/mapper/$1" "/srv/$1"
}

case ${1:-} in
create) each add ;;
mount) each mount_one ;;
*)
	echo "usage: $0 create|mount" >&2
	exit 1
esac
