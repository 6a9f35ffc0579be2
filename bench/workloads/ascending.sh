# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# The limit of any drain after burst.sh: the same blocks in ascending order.

fresh
begun=$(busy)
run burst reads=0 pattern=sorted depth=32 size=512 ios=8000 end_fsync=1 seed="$SEED"
say drain seconds "0 0"
quiesce
say drain busy_ms "$begun $(busy)"
