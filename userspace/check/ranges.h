/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Ranges of volumes, with data that is dirty or lost, or could not be written. */
#ifndef HYBRID_RANGES_H
#define HYBRID_RANGES_H

#include "metadata.h"
#include "report.h"

struct json_object;

struct hybrid_range {
	const char *volume;		/* its name */
	u64 sector, count;		/* of the volume; count 0: the sectors are unknown */
	const char *why;		/* literal, or hybrid_range_why()'s */
};

/* "@device: strerror(-@error)"; the same pointer for the same arguments, for good. */
const char *hybrid_range_why(const char *device, int error);

/* A zeroed struct is an empty one. */
struct hybrid_ranges {
	struct hybrid_range *list;
	size_t nr, room;
	bool nomem;			/* some are missing */
};

/* Adds a range at the end, or extends the last one if the new one continues it. */
void hybrid_ranges_add(struct hybrid_ranges *ranges, const char *volume, u64 sector, u64 count,
		       const char *why);
void hybrid_ranges_free(struct hybrid_ranges *ranges);
u64 hybrid_ranges_bytes(const struct hybrid_ranges *ranges);

extern const struct hybrid_fields hybrid_ranges_report;

/* Prints them as report @name, in bytes.  Returns an exit code. */
int hybrid_ranges_print(const struct hybrid_ranges *ranges, const char *name,
			const struct hybrid_report_options *opts);
/* As an array; NULL: no memory. */
struct json_object *hybrid_ranges_json(const struct hybrid_ranges *ranges);

/*
 * Calls @fn for each run of dirty granules, by volume and address.  @sector is the
 * volume's, @cache_sector that of the copy.  Stops at, and returns, the first
 * non-zero; or HYBRID_NOMEM, after a message.
 */
int hybrid_dirty_each(const struct hybrid_metadata *md,
		      int (*fn)(void *context, u32 volume, u64 sector, u32 count,
				u64 cache_sector), void *context);

#endif
