# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# A database and its log, at the same time.

fresh
run log reads=0 pattern=sequential fsync=1 think=2000 offset=800 size=64 seconds=12 &
log=$!
run data pattern=zipf reads=70 bs=8 depth=16 size=768 seconds=12 seed="$SEED"
wait $log
