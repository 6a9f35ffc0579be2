#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# One SSD cut into slices, each the cache of only one disk: no volume takes another's space. (In
# four-volumes.sh, one pool serves all volumes, and the SSD's space goes where it is of most use.)
#
#	four-slices.sh create	once; erases the devices
#	four-slices.sh mount	after a boot: pools and volumes come up by themselves
#
# The slices are partitions, or logical volumes. This command makes four partitions, each a quarter
# of 400 GiB, with the type by which other tools recognise partitions of dm-hybrid:
#
#	T=32544467-74e4-4122-a528-2221570be82a
#	printf 'label: gpt\n,100G,%s\n,100G,%s\n,100G,%s\n,100G,%s\n' $T $T $T $T | sfdisk /dev/nvme0n1
#
# Change these, or give them in the environment. One line for each volume: name, disk, slice.
: "${VOLUMES:=
mail     /dev/sdb  /dev/nvme0n1p1
photos   /dev/sdc  /dev/nvme0n1p2
video    /dev/sdd  /dev/nvme0n1p3
backup   /dev/sde  /dev/nvme0n1p4
}"
: "${MODE:=writeback}"	# for all volumes; "hybridctl set mail mode=..." changes one
: "${ASK:=}"		# --yes: do not ask
set -eu

each() {	# each COMMAND: calls it with name, disk and slice of each volume
	while read -r name disk slice <&3; do
		test -z "$name" || "$1" "$name" "$disk" "$slice"
	done 3<<END
$VOLUMES
END
}

add() {
	hybridctl create "$1" --origin "$2" --cache "$3" --mode "$MODE" $ASK
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
