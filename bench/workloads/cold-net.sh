# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# Reads without a hit, of a network disk as origin: it answers late, but many requests at a time.

ORIGIN=$ORIGIN_NET
ROTATIONAL=0
fresh
run cold pattern=uniform depth=64 size=2000 ios=8000 seed="1$SEED"
