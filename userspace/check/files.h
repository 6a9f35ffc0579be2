/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which files are in ranges of a volume, as far as the tools of its file system can tell. */
#ifndef HYBRID_FILES_H
#define HYBRID_FILES_H

#include "ranges.h"

/* Where a volume can be looked at: all of a device, or from @offset (bytes) on. */
struct hybrid_place {
	char path[HYBRID_PATH_MAX];
	u64 offset, size;
};

/*
 * Runs the tools that find the files in the ranges of @volume, or prints their
 * commands, and tells how much stays unknown.  Returns an exit code: HYBRID_PARTIAL
 * if the tools are missing or fail.
 */
int hybrid_files_print(const struct hybrid_ranges *ranges, const char *volume,
		       const struct hybrid_place *place);

#endif
