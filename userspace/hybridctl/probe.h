/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is said to udev, as lines KEY=VALUE that it imports. */
#ifndef HYBRIDCTL_PROBE_H
#define HYBRIDCTL_PROBE_H

#include "members.h"

/* The ID_FS_* that blkid would say, and HYBRID_*; of a refused member what is known. */
void export_member(const struct hybrid_member *m);

/* One line; characters of @value that mean something to udev or a shell become "_". */
void export_text(const char *key, const char *value);

#endif
