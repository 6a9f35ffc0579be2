/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Logical volumes that LVM caches with dm-cache: LVM's own commands take the cache off. */
#ifndef HYBRIDCTL_LVM_H
#define HYBRIDCTL_LVM_H

#include <stdbool.h>

#include "options.h"

/* Whether @text may be VG/LV, or /dev/VG/LV: the name of a logical volume that is not active. */
bool lvm_is_name(const char *text);

/*
 * Takes the cache off a logical volume, and makes the volume in place on it.  If LVM cannot
 * activate the logical volume, the thin-provisioning-tools write the cache back.  Returns 0 or an
 * exit code.
 */
int import_lvm(const struct command_line *cl, const char *name);

#endif
