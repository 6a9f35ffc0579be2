#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2086
#
# A disk of another machine, over the network (nbd), and an SSD of this one as its cache.
#
#	nbd.sh connect	first, and after each boot
#	nbd.sh create	once; what is on the devices is lost
#	nbd.sh mount	after a boot: pool and volume come up when the disk is connected
#	nbd.sh again	when the server was away and is back
#
# The server must pass on flushes (nbd-server: "flush = true"), or its own power cut loses data.
# While the server is away what the cache has can be read, and in writeback what it has can be
# written; the rest fails. What is dirty waits for the server. It has to be connected anew, with
# nobody using the device: "again".
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
	# 4 KiB, as it is anyway where it is not tiny: the cache's unit, too.
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
