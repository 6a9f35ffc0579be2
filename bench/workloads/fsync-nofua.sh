# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# fsync.sh on an SSD without FUA.

SSDSIM=$SSDSIM_NOFUA
fresh
fsyncs
