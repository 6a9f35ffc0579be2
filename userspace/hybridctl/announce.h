/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The members that udev has announced: names in a directory under /run, which
 * survives the switch from the initramfs.  Only where to look is kept there; the
 * superblocks are read again each time.
 */
#ifndef HYBRIDCTL_ANNOUNCE_H
#define HYBRIDCTL_ANNOUNCE_H

#include "options.h"

/* Paths of those that are still there; free with announced_free(). */
int announced(char ***paths, unsigned int *nr);
void announced_free(char **paths, unsigned int nr);

/* scan --udev: announce one device, and say what is to be done. */
int scan_for_udev(const struct command_line *cl);

#endif
