# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh

stack_up() { create volume $HDD_MIB "linear $ssd 0"; }
