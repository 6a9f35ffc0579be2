# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# fsync after each write, then the same blocks again, which are dirty by then. An earlier phase takes the
# delays that only the very first write has.

fresh
run first pattern=shuffled reads=0 fsync=1 size=512 ios=20 seed="9$SEED"
run new pattern=shuffled reads=0 fsync=1 size=512 ios=600 seed="$SEED"
run rewrite pattern=shuffled reads=0 fsync=1 size=512 ios=600 seed="$SEED"
