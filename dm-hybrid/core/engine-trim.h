/* SPDX-License-Identifier: GPL-2.0-only */
/* TRIM: discards of free blocks on the cache device. */
#ifndef DM_HYBRID_ENGINE_TRIM_H
#define DM_HYBRID_ENGINE_TRIM_H

#include "engine.h"
#include "map.h"

/* The discard under way, and the sets that have free blocks to discard. */
struct hybrid_trim {
	struct hybrid_op op;		/* the discard under way, if busy ... */
	struct hybrid_segment segment;
	u32 set, first, nr;		/* ... its blocks; used by its own events alone */
	bool busy;
	bool refused;			/* one failed: no more; READ_ONCE without the lock */
	s64 credit;			/* sectors times ms */
	unsigned long *sets;		/* bitmap: sets that may have blocks to discard */
};

/* Notes that blocks of the set have become free.  Under the set's lock. */
void hybrid_trim_note(struct hybrid_engine *e, u32 set);
/* Are there free blocks to discard?  Without locks: a hint. */
bool hybrid_trim_wanted(const struct hybrid_engine *e);
void hybrid_trim_tick(struct hybrid_engine *e, u64 ms, struct hybrid_actions *acts);

#endif
