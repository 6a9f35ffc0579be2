/* SPDX-License-Identifier: GPL-2.0-only */
/* The masks of a block, and the counters and marks derived from them. */
#ifndef DM_HYBRID_ENGINE_BLOCK_H
#define DM_HYBRID_ENGINE_BLOCK_H

#include "engine.h"
#include "map.h"

/* Numbers of a volume's blocks. */
struct hybrid_volume_blocks {
	atomic_t cached;
	atomic_t dirty;			/* in RAM */
	atomic_t jdirty;		/* on record */
	atomic_t ended;			/* on record alone: the next records end that */
	u32 most_dirty;			/* limit on dirty; READ_ONCE without the lock */
	bool dirtied;			/* any block was dirty in this session */
	atomic64_t granules;		/* dirty in RAM or on record */
};

/*
 * Set the granules of block @i that are dirty in RAM; on record.  Adjust all counters.  Under the
 * set's lock.
 */
void hybrid_put_dirty(struct hybrid_engine *e, struct hybrid_set *s, u32 i, u64 dirty);
void hybrid_put_jdirty(struct hybrid_engine *e, struct hybrid_set *s, u32 i, u64 jdirty);
/*
 * Block @i has changes to record: the next commit must write them; some later commit will.  Under
 * the set's lock.
 */
void hybrid_mark_must(struct hybrid_engine *e, u32 set, u32 i);
void hybrid_mark_lazy(struct hybrid_engine *e, u32 set, u32 i);
/*
 * The granules that are dirty on record but no longer valid in RAM: they were discarded, or
 * replaced on the origin, and that is not recorded yet.  Under the set's lock.
 */
u64 hybrid_replaced_granules(const struct hybrid_engine *e, const struct hybrid_set *s, u32 i);
/* Is a write in flight to any of these granules of @key's block?  Under the set's lock. */
bool hybrid_write_in_flight(const struct hybrid_set *s, u64 key, u64 mask);
/*
 * Calls @each for every block of @v, removed ones included, under the lock of its set.  The caller
 * holds no lock.  May sleep.
 */
void hybrid_each_block(struct hybrid_engine *e, struct hybrid_volume *v,
		       void (*each)(struct hybrid_engine *e, u32 set, u32 i));

#endif
