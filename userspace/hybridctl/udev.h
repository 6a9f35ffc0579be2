/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef HYBRIDCTL_UDEV_H
#define HYBRIDCTL_UDEV_H

#include "options.h"

/* scan --udev: announce one device, and say what is to be done; --gone: it is gone. */
int scan_for_udev(const struct command_line *cl);

#endif
