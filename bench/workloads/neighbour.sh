# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# A volume with a fast origin, in the default mode: alone, and beside another volume of the same pool.
# The other volume's disk has no write cache, and 128 writes in flight.

create slow $HDD_MIB "hddsim /dev/ram0 $((HDD_MIB * 2048)) 7200 150 1000 16000 32 0 100"
create hdd $HDD_MIB "linear /dev/ram0 0"
create ssd $((CACHE_MIB + META_MIB)) "ssdsim /dev/ram1 0 $SSDSIM"
MODE=writethrough
stack_up
stack_attach neighbour /dev/mapper/slow
quiesce
run alone reads=0 pattern=uniform size=60 seconds=6 seed="1$SEED"
load /dev/mapper/neighbour reads=0 pattern=uniform depth=128 size=60 seconds=10 seed="2$SEED" >/tmp/neighbour 2>&1 &
sleep 2
run beside reads=0 pattern=uniform size=60 seconds=6 seed="3$SEED"
wait $! || die "$(cat /tmp/neighbour)"
say neighbour load "$(cat /tmp/neighbour)"
