# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh

fresh
for pass in 1 2 3; do
	run $pass pattern=zoned depth=16 size=1024 ios=7000 seed="$pass$SEED"
done
