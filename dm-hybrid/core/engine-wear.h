/* SPDX-License-Identifier: GPL-2.0-only */
/* The budget of writes to the cache device, and its recent errors. */
#ifndef DM_HYBRID_ENGINE_WEAR_H
#define DM_HYBRID_ENGINE_WEAR_H

#include "engine.h"
#include "map.h"

/* What failed of the cache device, metadata included. */
enum cache_error {
	CACHE_READ_ERRORS,
	CACHE_WRITE_ERRORS,
	CACHE_FLUSH_ERRORS,
	NR_CACHE_ERRORS,
};

/* What read misses may cost the cache device. */
enum endurance {
	ENDURANCE_PLENTY,
	ENDURANCE_SHORT,		/* only what is asked for again is cached */
	ENDURANCE_SPENT,		/* nothing is */
};

/* The worker's, but for what others read */
struct hybrid_wear {
	s64 left;			/* of the endurance: see endurance_tick(); READ_ONCE */
	u64 written;			/* sectors, until the last tick */
	u64 written_before;		/* sectors, by earlier activations */
	u64 counted[NR_CACHE_ERRORS];	/* of all errors, those that recent has */
	u32 recent[NR_CACHE_ERRORS];	/* errors of data, halved each day; READ_ONCE */
	u32 halved_ms;			/* since that */
	u8 endurance;			/* enum endurance, READ_ONCE without the lock */
	bool failing;			/* recent errors reached a limit; READ_ONCE likewise */
};

/* @passed_ms later.  For the tick. */
void wear_tick(struct hybrid_engine *e, u64 passed_ms);
/* As the root has it, when the pool is loaded. */
void wear_load(struct hybrid_engine *e, const struct hybrid_root_info *root);
/* ... and as the next root will have it. */
void wear_save(const struct hybrid_engine *e, struct hybrid_root_info *root);
/* Caller holds the engine's lock. */
void wear_configure(struct hybrid_engine *e, const struct hybrid_config *config);
void wear_status(const struct hybrid_engine *e, struct hybrid_pool_status *st);

#endif
