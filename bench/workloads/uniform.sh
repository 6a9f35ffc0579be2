# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# Hardly any of these reads is repeated, so all further data that a cache reads only costs time.

fresh
for pass in 1 2 3 4; do
	run $pass pattern=uniform depth=16 size=2000 ios=1000 seed="$pass$SEED"
done
