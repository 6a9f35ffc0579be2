/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Time of a disk for an operation: 8 ms; 0.5 ms if it continues one of the last ones, or begins up to
 * 256 KiB behind it; 5 ms for a run of writeback, which comes sorted.  The transfer at 150 MB/s is
 * added, and so is the passage over such a gap.
 */
#ifndef HYBRID_REPLAY_MODEL_H
#define HYBRID_REPLAY_MODEL_H

#include <linux/types.h>
#include <stdbool.h>

#define MODEL_STREAMS	32

struct model_disk {
	u64 end[MODEL_STREAMS];		/* of the last operations, the newest first */
	u64 ops[2];			/* reads, writes */
	u64 sectors[2];
	u64 runs;			/* of the writes: writeback's */
	double ms;
	u64 merge_at;			/* an operation that begins here is part of the one before */
	bool merge_write;
};

/* Zero @d first.  Operations of different requests are not merged. */
static inline void model_request(struct model_disk *d)
{
	d->merge_at = 0;
}

/* @writeback: by the cache, not for the request. */
void model_op(struct model_disk *d, bool write, u64 sector, u32 count, bool writeback);

#endif
