/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which files stand in ranges of a volume, as far as its filesystem's tools can say. */
#ifndef HYBRID_FILES_H
#define HYBRID_FILES_H

#include "ranges.h"

/* Where a volume can be looked at: all of a device, or from @offset (bytes) on. */
struct hybrid_place {
	char path[HYBRID_PATH_MAX];
	u64 offset, size;
};

/*
 * For the ranges of @volume: run what finds its files, or print the commands, and
 * say what cannot be known.  Returns an exit code: HYBRID_PARTIAL if the tools
 * are missing or fail.
 */
int hybrid_files_print(const struct hybrid_ranges *ranges, const char *volume,
		       const struct hybrid_place *place);

#endif
