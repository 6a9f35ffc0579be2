#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The init of a guest that measures one stack under one workload: STACK, SEED and HARDWARE come
# from the kernel's command line. It prints all results at the end, in lines
#	bench <phase> <what> <value>
/bin/busybox --install -s /bin
export PATH=/bin DM_DISABLE_UDEV=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp

HDD_MIB=2048
CACHE_MIB=256
META_MIB=16	# of the cache device, for a stack with a separate metadata device
hdd=/dev/mapper/hdd
ssd=/dev/mapper/ssd
volume=/dev/mapper/volume

die() {
	echo "bench - failed $*"
	dmesg | tail -n 20
	poweroff -f
}

say() { echo "bench $*" >>/tmp/said; }

# hardware <cache device>-<origin>: models of dm-testdisk (tests/guest/README.md)
hardware() {
	sata="16 80 30 500 450 1000"
	case ${1%-*} in
	sata) SSDSIM=$sata ;;
	plp) SSDSIM="16 80 30 500 450 0" ;;	# with power-loss protection a flush takes no time
	nofua) SSDSIM="$sata nofua" ;;		# as Linux sees most SATA SSDs
	nvme) SSDSIM="64 10 10 3200 2500 0" ;;	# of a server, also with power-loss protection
	*) die "no cache device ${1%-*}" ;;
	esac
	# 7,200 rpm, 150 MB/s, queue of 32, write cache of 8 MiB
	HDDSIM="7200 150 1000 16000 32 8192 100"
	ROTATIONAL=0
	case ${1#*-} in
	disk) ORIGIN="hddsim /dev/ram0 0 $HDDSIM" ORIGIN_DEPTH=32 ROTATIONAL=1 ;;
	smr) ORIGIN="hddsim /dev/ram0 0 $HDDSIM smr 32 8" ORIGIN_DEPTH=32 ROTATIONAL=1 ;;
	ssd) ORIGIN="ssdsim /dev/ram0 0 $sata" ORIGIN_DEPTH=16 ;;
	net) ORIGIN="ssdsim /dev/ram0 0 64 2000 2000 1000 1000 2000" ORIGIN_DEPTH=64 ;;
	*) die "no origin ${1#*-}" ;;
	esac
}

# create <name> <MiB> <target and its arguments>
create() {
	dmsetup create "$1" --table "0 $(($2 * 2048)) $3" || die "create $1: $3"
}

# devices sim|ram|sparse: the disk and the SSD. In RAM they take no time. Sparse devices keep
# only the data at both ends
devices() {
	ssd_mib=$((CACHE_MIB + META_MIB))
	[ "$STACK" != limit ] || ssd_mib=$HDD_MIB
	case $1 in
	sim)
		create hdd $HDD_MIB "$ORIGIN"
		create ssd $ssd_mib "ssdsim /dev/ram1 0 $SSDSIM"
		;;
	ram)
		create hdd $HDD_MIB "linear /dev/ram0 0"
		create ssd $ssd_mib "linear /dev/ram1 0"
		;;
	sparse)
		create_sparse hdd $HDD_MIB ram0 8
		create_sparse ssd $ssd_mib ram1 $META_MIB
		;;
	esac
	# Stacks read this flag, which is 0 on the models.
	echo "$ROTATIONAL" >"/sys/block/$(dmsetup info -c --noheadings -o blkdevname hdd)/queue/rotational"
}

# create_sparse <name> <MiB> <ram disk> <MiB that are kept at the beginning>
create_sparse() {
	dmsetup create "$1" <<-END || die "create $1"
	0 $(($4 * 2048)) linear /dev/$3 0
	$(($4 * 2048)) $((($2 - $4 - 2) * 2048)) zero
	$((($2 - 2) * 2048)) 4096 linear /dev/$3 $(($4 * 2048))
	END
}

fresh() {
	devices sim
	stack_up
	quiesce
}

# --- helpers of workloads -----------------------------------------------------------------------

# wait_for <seconds> <command>: until it succeeds
wait_for() {
	tries=$(($1 * 10))
	shift
	until "$@"; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.1
	done
}

# /proc/uptime has only hundredths.
seconds() { awk '/^now at/ { printf "%.6f\n", $3 / 1e9; exit }' /proc/timer_list; }
counters() {
	say "$1" "hdd$2" "$(dmsetup status hdd)"
	say "$1" "ssd$2" "$(dmsetup status ssd)"
}
busy() { dmsetup status hdd | sed 's/.* busy_ms //'; }

# Waits until the disk has been idle for a second: its write cache is empty, and no background work is left.
quiesce() {
	sync
	was=
	tries=120
	while [ "$was" != "$(busy)" ] && [ $tries -gt 0 ]; do
		was=$(busy)
		tries=$((tries - 1))
		sleep 1
	done
}

# run <phase> <options of load>: runs a load, and reports the counters of the devices
run() {
	phase=$1
	shift
	counters "$phase" 0
	said=$(load $volume "$@" 2>&1) || die "load $*: $said"
	counters "$phase" 1
	say "$phase" load "$said"
}

# fsync after each write, then the same blocks again, which are dirty by then. An earlier phase takes the
# delays that only the very first write has.
fsyncs() {
	run first pattern=shuffled reads=0 fsync=1 size=512 ios=20 seed="9$SEED"
	run new pattern=shuffled reads=0 fsync=1 size=512 ios=600 seed="$SEED"
	run rewrite pattern=shuffled reads=0 fsync=1 size=512 ios=600 seed="$SEED"
}

# Reports the time from the start of the stack until the volume exists, and the memory for it.
restart() {
	stack_stop
	[ $# = 1 ] || "$2"
	sync
	echo 3 >/proc/sys/vm/drop_caches
	sleep 1
	free=$(awk '/^MemFree/ { print $2 }' /proc/meminfo)
	started=$(seconds)
	stack_start
	say "$1" seconds "$started $(seconds)"
	sync
	echo 3 >/proc/sys/vm/drop_caches
	sleep 1
	say "$1" kib "$free $(awk '/^MemFree/ { print $2 }' /proc/meminfo)"
}

. /stack.sh

: "${SEED:=1}"
hardware "${HARDWARE:-sata-disk}"
set -- $(echo "$STACK" | tr - ' ')
case ${2:-} in
wt) MODE=writethrough ;;
*) MODE=writeback ;;
esac
[ "${3:-}" != tuned ] || TUNED=1
case ${3:-} in
[0-9]*) BLOCK=$3 ;;
esac
while read -r module; do
	insmod /modules/$module || die "insmod $module"
done </modules/order

. /work.sh
dmesg | grep -E 'WARNING|BUG|Oops|I/O error' >/tmp/complaints && die "$(cat /tmp/complaints)"
cat /tmp/said
echo "bench - seconds $(seconds)"
poweroff -f
