/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Logical volumes that LVM caches with dm-cache, and how they lose that: by LVM's own commands. */
#ifndef HYBRIDCTL_LVM_H
#define HYBRIDCTL_LVM_H

#include <stdbool.h>

#include "options.h"

/* Whether @text may be VG/LV, or /dev/VG/LV, of what is not active. */
bool lvm_is_name(const char *text);

/*
 * Take the cache off a logical volume, and make the volume in place on it.  Where LVM cannot activate it: by
 * the tools of thin-provisioning-tools.  Returns 0 or an exit code.
 */
int import_lvm(const struct command_line *cl, const char *name);

#endif
