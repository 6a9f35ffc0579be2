/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Lines KEY=VALUE that udev imports. */
#ifndef HYBRIDCTL_PROBE_H
#define HYBRIDCTL_PROBE_H

#include "members.h"

/*
 * Prints the ID_FS_* that blkid would print, and HYBRID_*; of a refused member, the values that are
 * known.
 */
void export_member(const struct hybrid_member *m);

/* Prints one line.  Characters of @value that mean something to udev or a shell become "_". */
void export_text(const char *key, const char *value);

#endif
