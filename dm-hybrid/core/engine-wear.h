/* SPDX-License-Identifier: GPL-2.0-only */
/* The write budget of the cache device, and its recent errors. */
#ifndef DM_HYBRID_ENGINE_WEAR_H
#define DM_HYBRID_ENGINE_WEAR_H

#include "engine.h"
#include "map.h"

/* Errors of the cache device by operation; metadata included. */
enum cache_error {
	CACHE_READ_ERRORS,
	CACHE_WRITE_ERRORS,
	CACHE_FLUSH_ERRORS,
	NR_CACHE_ERRORS,
};

/* The state of the write budget: which read misses may be cached. */
enum endurance {
	ENDURANCE_PLENTY,
	ENDURANCE_SHORT,		/* only blocks that are asked for again */
	ENDURANCE_SPENT,		/* none */
};

/* Belongs to the tick, except for fields that others read (READ_ONCE). */
struct hybrid_wear {
	s64 left;			/* of the budget: see endurance_tick(); READ_ONCE */
	u64 written;			/* sectors, until the last tick */
	u64 written_before;		/* sectors, by earlier activations */
	u64 counted[NR_CACHE_ERRORS];	/* errors that recent already has */
	u32 recent[NR_CACHE_ERRORS];	/* errors of data, halved each day; READ_ONCE */
	u32 halved_ms;			/* since the last halving; READ_ONCE */
	u8 endurance;			/* enum endurance, READ_ONCE without the lock */
	bool failing;			/* recent errors reached a limit; READ_ONCE likewise */
};

/* Accounts for the last @passed_ms.  For the tick. */
void hybrid_wear_tick(struct hybrid_engine *e, u64 passed_ms);
/* Restores the state from the root, and saves it for the next root. */
void hybrid_wear_load(struct hybrid_engine *e, const struct hybrid_root_info *root);
void hybrid_wear_save(const struct hybrid_engine *e, struct hybrid_root_info *root);
/* Takes over the limits from @config.  Under the engine's lock. */
void hybrid_wear_configure(struct hybrid_engine *e, const struct hybrid_config *config);
void hybrid_wear_status(const struct hybrid_engine *e, struct hybrid_pool_status *st);

#endif
