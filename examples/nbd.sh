#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# A disk of another machine, over the network (nbd), with an SSD of this machine as its cache.
#
#	nbd.sh connect	first, and after each boot
#	nbd.sh create	once; erases the devices
#	nbd.sh mount	after a boot: pool and volume come up when the disk is connected
#	nbd.sh again	when the server is back after an outage
#
# The server must pass on flushes (nbd-server: "flush = true"), or its own power cut loses data.
# While the server is away, cached data can be read, and in writeback mode also written; all other
# I/O fails. Dirty data waits for the server. The device must be connected again while nobody uses
# it: "again" does that.
#
# Change these, or give them in the environment.
: "${SERVER:=storage.example.net}"	# or: -unix /path/of/a/socket
: "${EXPORT:=disk1}"
: "${NBD:=/dev/nbd0}"
: "${CACHE:=/dev/nvme0n1p3}"
: "${NAME:=remote}"
: "${MODE:=writeback}"
: "${ASK:=}"		# --yes: do not ask
set -eu

case ${1:-} in
connect)
	modprobe nbd
	nbd-client -nonetlink -name "$EXPORT" $SERVER "$NBD" -timeout 10
	;;
create)
	hybridctl create "$NAME" --origin "$NBD" --cache "$CACHE" --mode "$MODE" $ASK
	# 4 KiB, the cache's granule: the default of mkfs, except for tiny file systems.
	mkfs.ext4 -q -b 4096 "/dev/mapper/$NAME"
	;;
mount)
	# In /etc/fstab: /dev/mapper/remote /srv/remote ext4 nofail,_netdev 0 0
	mkdir -p "/srv/$NAME"
	mount "/dev/mapper/$NAME" "/srv/$NAME"
	;;
again)
	umount "/srv/$NAME"
	hybridctl deactivate "$NAME"
	"$0" connect
	hybridctl activate "$NAME"
	"$0" mount
	;;
*)
	echo "usage: $0 connect|create|mount|again" >&2
	exit 1
esac
