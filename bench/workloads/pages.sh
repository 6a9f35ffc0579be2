# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# Database pages of 16 KiB.

fresh
run pages pattern=zipf reads=70 bs=16 depth=16 size=768 seconds=12 seed="$SEED"
