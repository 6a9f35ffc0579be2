# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh

fresh
run new pattern=shuffled reads=0 fsync=1 size=16 ios=40 seed="$SEED"
run again pattern=shuffled reads=0 fsync=1 size=16 ios=40 seed="$SEED"
