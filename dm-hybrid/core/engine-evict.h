/* SPDX-License-Identifier: GPL-2.0-only */
/* How a block leaves, and the reserve of free ones. */
#ifndef DM_HYBRID_ENGINE_EVICT_H
#define DM_HYBRID_ENGINE_EVICT_H

#include "engine.h"
#include "map.h"

/* Of one CPU */
struct hybrid_readers {
	unsigned long enter[2], leave[2];	/* read whole by other CPUs */
	unsigned long cache_written;	/* sectors; may wrap */
};

/*
 * Readers of blocks that are being removed.  A period has two stages, each of which
 * flips the phase and waits for those who entered in the phase before.
 */
struct hybrid_grace {
	u32 phase;			/* its lowest bit; READ_ONCE without the lock */
	u8 stage;			/* 0: no period is under way */
	bool wanted;			/* a set waits for a period; READ_ONCE without the lock */
	u32 started, done;		/* periods; may wrap */
	unsigned long *sets;		/* with blocks that wait for one */
};

/* Keep the reserve of the set of @io, which needs room; caller holds its lock */
void evict(struct hybrid_engine *e, const struct hybrid_io *io, struct hybrid_actions *acts);
/* Has the set a block that could go, and nobody has ever asked for?  Under its lock. */
bool can_spare(struct hybrid_engine *e, struct hybrid_set *s);
/* May block @i go, and is it none that is kept as metadata?  Under the set's lock. */
bool may_evict(struct hybrid_engine *e, struct hybrid_set *s, u32 i);
/* Block @i is read as metadata: keep it, if its set keeps less than it may. */
void metadata_read(struct hybrid_engine *e, struct hybrid_set *s, u32 i);
/* Would metadata_read() change nothing?  Also without the lock: a hint then. */
bool metadata_noted(const struct hybrid_engine *e, const struct hybrid_set *s, u32 i);
/* Evict block @i if it can be; returns whether it was.  Under the set's lock. */
bool evict_block(struct hybrid_engine *e, u32 set, u32 i);
/* Remove block @i if it has no valid granule, no job and no write in flight. */
void remove_empty_block(struct hybrid_engine *e, u32 set, u32 i);
/*
 * Take back block @i, which is removed.  False: the removal is on its way to the journal, or
 * will be; an I/O that needs the block gone waits for WAIT_TRANSIT.
 */
bool resurrect(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);
/* The record of block @i's removal is durable.  Under the set's lock. */
void removal_durable(struct hybrid_engine *e, u32 set, u32 i);
/* Free the blocks whose grace period is over.  Caller holds no lock. */
void reclaim(struct hybrid_engine *e, struct hybrid_actions *acts);
/*
 * I/O to the data of block @i, and of no other, failed; not one that was refused (-EAGAIN).
 * At the second time the block is evicted if it can be: call it when nothing of what failed
 * keeps the block any more.  Caller holds the set's lock.
 */
void place_failed(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);

#endif
