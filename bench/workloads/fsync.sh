# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=sh

fresh
fsyncs
