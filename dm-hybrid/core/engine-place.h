/* SPDX-License-Identifier: GPL-2.0-only */
/* Blocks whose place on the cache device failed, and their retirement. */
#ifndef DM_HYBRID_ENGINE_PLACE_H
#define DM_HYBRID_ENGINE_PLACE_H

#include "engine.h"
#include "map.h"

#define NR_PLACES		64

/* A cache block whose place failed. */
struct hybrid_place {
	u32 block;			/* its number among all */
	bool bad;			/* failed more than once, and is to be retired */
};

struct hybrid_places {
	struct hybrid_place place[NR_PLACES];	/* in the order of their first error */
	u32 nr;
	u32 nr_bad;			/* READ_ONCE without the lock */
	u32 nr_retired;			/* since the pool was loaded; READ_ONCE */
	u32 last_retired;		/* block */
};

/*
 * Notes that I/O to block @i failed.  Returns whether the block must not be used again.  Under the
 * set's lock.
 */
bool hybrid_place_note(struct hybrid_engine *e, u32 set, u32 i);
/* Must the block not be reused once it is evicted?  Under the set's lock. */
bool hybrid_place_is_bad(struct hybrid_engine *e, u32 set, u32 i);
/*
 * Frees the unhashed block @i and returns true, or retires it and returns false.  Under the set's
 * lock.
 */
bool hybrid_place_free(struct hybrid_engine *e, u32 set, u32 i);
/* For the simulator: returns NULL or a description of the inconsistency.  Nothing runs. */
const char *hybrid_places_check(const struct hybrid_engine *e);

#endif
