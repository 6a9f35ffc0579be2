/* SPDX-License-Identifier: GPL-2.0-only */
/* Blocks whose place on the cache device failed, and retirement. */
#ifndef DM_HYBRID_ENGINE_PLACE_H
#define DM_HYBRID_ENGINE_PLACE_H

#include "engine.h"
#include "map.h"

#define NR_PLACES		64

/* Cache blocks whose place on the cache device failed */
struct hybrid_place {
	u32 block;			/* of all */
	bool bad;			/* it failed more than once, and is to be retired */
};

struct hybrid_places {
	struct hybrid_place place[NR_PLACES];	/* the one that failed first, first */
	u32 nr;
	u32 nr_bad;			/* READ_ONCE without the lock */
	u32 nr_retired;			/* since the pool was loaded; READ_ONCE */
	u32 last_retired;		/* block */
};

/*
 * I/O to block @i failed; returns whether it is not to be used again.  Caller
 * holds the set's lock.
 */
bool place_note(struct hybrid_engine *e, u32 set, u32 i);
/* Is the block not to be used again once it has left?  Caller holds the set's lock. */
bool place_is_bad(struct hybrid_engine *e, u32 set, u32 i);
/*
 * Block @i, unhashed, is nobody's any more: it becomes free, or (false) is retired.  Caller
 * holds the set's lock.
 */
bool place_free(struct hybrid_engine *e, u32 set, u32 i);
/* NULL, or what is wrong.  Nothing runs. */
const char *places_check(const struct hybrid_engine *e);

#endif
