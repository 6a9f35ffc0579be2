/* SPDX-License-Identifier: GPL-2.0-only */
/* Discard and write-zeroes. */
#ifndef DM_HYBRID_ENGINE_RANGE_H
#define DM_HYBRID_ENGINE_RANGE_H

#include "engine.h"
#include "map.h"

/* The discards and writes of zeroes of one volume. */
struct hybrid_ranges {
	struct list_head list;		/* ios under way */
	struct list_head waiters;	/* ios that overlap one of them */
	struct list_head queue;		/* ios that found list full */
	u32 nr;				/* READ_ONCE without the lock */
};

/* Begins or continues a discard or a write of zeroes.  The caller holds no lock. */
enum hybrid_map_result hybrid_range_io(struct hybrid_engine *e, struct hybrid_io *io,
				       struct hybrid_actions *acts);
/* Finishes a range after the origin's operation ended with @error.  Returns true: the I/O ends. */
bool hybrid_range_done(struct hybrid_engine *e, struct hybrid_io *io, int error,
		       struct hybrid_actions *acts);

#endif
