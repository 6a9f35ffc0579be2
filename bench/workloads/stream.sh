# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# Random readers beside a stream.

fresh
run alone pattern=zipf depth=8 size=512 seconds=10 seed="1$SEED"
run stream bs=256 depth=2 pattern=sequential offset=1024 size=1000 seconds=20 seed="2$SEED" &
stream=$!
run beside pattern=zipf depth=8 size=512 seconds=20 seed="3$SEED"
wait $stream
