# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# The instructions of I/O that is no hit, with both devices in RAM.

devices ram
stack_up
run fsync pattern=shuffled reads=0 fsync=1 size=512 ios=300 seed="4$SEED"
quiesce
run miss pattern=shuffled size=1024 ios=10000 seed="1$SEED"
run overload pattern=uniform reads=60 size=1024 depth=32 ios=20000 seed="2$SEED"
quiesce
run write pattern=uniform reads=0 size=128 ios=10000 seed="3$SEED"
