/* SPDX-License-Identifier: GPL-2.0-only */
/* Eviction, grace periods, and the reserve of free blocks. */
#ifndef DM_HYBRID_ENGINE_EVICT_H
#define DM_HYBRID_ENGINE_EVICT_H

#include "engine.h"
#include "map.h"

/* Lock-free readers on one CPU. */
struct hybrid_readers {
	unsigned long enter[2], leave[2];	/* other CPUs read them untorn */
	unsigned long cache_written;	/* sectors; may wrap */
};

/*
 * Grace periods for readers of blocks being removed.  Each has two stages; a stage flips the
 * readers' phase and waits for those that entered in the phase before.
 */
struct hybrid_grace {
	u8 stage;			/* 0: no period is under way */
	bool wanted;			/* a set waits for a period; READ_ONCE without the lock */
	u32 started, done;		/* periods; may wrap */
	unsigned long *sets;		/* with blocks that wait for a period */
};

struct hybrid_evict {
	struct hybrid_readers __percpu *readers;
	u32 phase;			/* of readers, the lowest bit; READ_ONCE without the lock */
	u32 reserve;			/* free blocks to keep in each set */

	/* Written by evictions and the tick; hits read only what is above. */
	u32 ahead_next ____cacheline_aligned_in_smp;	/* ahead_victim() begins there in any set */
	struct hybrid_grace grace;
};

/* Restores the reserve of free blocks in the set of @io.  Under the set's lock. */
void hybrid_evict(struct hybrid_engine *e, const struct hybrid_io *io, struct hybrid_actions *acts);
/* Does the set have an evictable block that was never read?  Under the set's lock. */
bool hybrid_can_spare(struct hybrid_engine *e, struct hybrid_set *s);
/* Can block @i be evicted, and is it not kept as metadata?  Under the set's lock. */
bool hybrid_may_evict(struct hybrid_engine *e, struct hybrid_set *s, u32 i);
/*
 * Keeps block @i, from which metadata was read, within the set's share.  Under the set's lock.
 */
void hybrid_keep_metadata(struct hybrid_engine *e, struct hybrid_set *s, u32 i);
/* Would hybrid_keep_metadata() change nothing?  Without the set's lock: a hint. */
bool hybrid_metadata_is_kept(const struct hybrid_engine *e, const struct hybrid_set *s, u32 i);
/* Evicts block @i if possible; returns whether it was evicted.  Under the set's lock. */
bool hybrid_evict_block(struct hybrid_engine *e, u32 set, u32 i);
/*
 * Removes block @i if it has no valid granule, nothing dirty on record, no job and no write in
 * flight.  Under the set's lock.
 */
void hybrid_remove_empty_block(struct hybrid_engine *e, u32 set, u32 i);
/*
 * Takes back the removed block @i.  Returns false if its removal is, or is about to be, on its way
 * to the journal: I/O that needs the block gone waits for WAIT_TRANSIT.  Under the set's lock.
 */
bool hybrid_resurrect(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);
/* Begins the grace period of block @i: its removal is durable.  Under the set's lock. */
void hybrid_removal_durable(struct hybrid_engine *e, u32 set, u32 i);
/* Frees blocks whose grace period has ended.  The caller holds no lock. */
void hybrid_reclaim(struct hybrid_engine *e, struct hybrid_actions *acts);
/*
 * Notes that I/O to block @i alone failed (with an error other than -EAGAIN).  The second failure
 * evicts the block if possible, so the caller first gives up its own use of the block.  Under the
 * set's lock.
 */
void hybrid_place_failed(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);

#endif
