/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HYBRIDCTL_UDEV_H
#define HYBRIDCTL_UDEV_H

#include "options.h"

/*
 * scan --udev: announces one device, and prints the state by which the rules go on.  --gone: takes
 * the announcement back.
 */
int scan_for_udev(const struct command_line *cl);

#endif
