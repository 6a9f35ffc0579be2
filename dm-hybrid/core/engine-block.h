/* SPDX-License-Identifier: GPL-2.0-only */
/* The masks of a block, and the counts and marks that follow from them. */
#ifndef DM_HYBRID_ENGINE_BLOCK_H
#define DM_HYBRID_ENGINE_BLOCK_H

#include "engine.h"
#include "map.h"

/*
 * All of these but the last under the set's lock.  Which granules of block @i are dirty in RAM,
 * and on record; with them what is counted of them.
 */
void put_dirty(struct hybrid_engine *e, struct hybrid_set *s, u32 i, u64 dirty);
void put_jdirty(struct hybrid_engine *e, struct hybrid_set *s, u32 i, u64 jdirty);
/* Block @i has something to be recorded, that a commit must write; that nobody waits for. */
void mark_must(struct hybrid_engine *e, u32 set, u32 i);
void mark_lazy(struct hybrid_engine *e, u32 set, u32 i);
/*
 * Granules that the journal calls dirty and RAM not even valid: they were
 * discarded or replaced on the origin, and the record of that must come.
 */
u64 replaced_granules(const struct hybrid_engine *e, const struct hybrid_set *s, u32 i);
/* Is a write to any of those granules of @key's block in flight? */
bool write_in_flight(const struct hybrid_set *s, u64 key, u64 mask);
/*
 * Call @each for all blocks of @v, also for removed ones, under the lock of their set.  The
 * caller holds no lock.  May sleep.
 */
void each_block(struct hybrid_engine *e, struct hybrid_volume *v,
		void (*each)(struct hybrid_engine *e, u32 set, u32 i));

#endif
