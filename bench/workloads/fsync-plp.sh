# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh
# fsync.sh on an SSD with power-loss protection.

SSDSIM=$SSDSIM_PLP
fresh
fsyncs
