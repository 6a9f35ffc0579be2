/* SPDX-License-Identifier: GPL-2.0-only */
/* Backpressure: writes wait for writeback where the origin seeks and no block is free. */
#ifndef DM_HYBRID_ENGINE_STALL_H
#define DM_HYBRID_ENGINE_STALL_H

#include "engine.h"
#include "map.h"

struct hybrid_stall {
	struct list_head waiters;	/* ios */
	struct list_head woken;		/* ... to be routed again */
	struct hybrid_op op;		/* the worker routes these */
	bool queued;
	u32 tick;			/* the current one; never 0 */
	u32 stalled;			/* ticks in which ios waited, and no block became free */
	bool freed;			/* a block did, in this tick; READ_ONCE without the lock */
};

/*
 * Queues a write that found no free block in its set, or may not make its block dirty, and returns
 * true; or returns false if the write is not to wait.  Under the set's lock.
 */
bool hybrid_stall_wait(struct hybrid_engine *e, const struct hybrid_set *s, struct hybrid_io *io);
/* Initialises a new volume. */
void hybrid_stall_create(struct hybrid_volume *v);
/* Sets the limit of dirty blocks of each open volume.  Under the engine's lock. */
void hybrid_stall_share(struct hybrid_engine *e);
/*
 * Routes all waiting writes again, because blocks have become free or evictable: many of them in
 * the worker, so that no event takes long.
 */
void hybrid_stall_wake(struct hybrid_engine *e, struct hybrid_actions *acts);
/*
 * Must writeback of @v wait for a flush of the blocks already written?  Under the engine's lock.
 */
bool hybrid_stall_batch_full(const struct hybrid_engine *e, const struct hybrid_volume *v);
/*
 * Flushes the batch if it is due, when a window has ended or no other can begin now.  Under the
 * engine's lock.
 */
void hybrid_stall_flush_batch(struct hybrid_engine *e, struct hybrid_volume *v,
			      struct hybrid_actions *acts);
/* Adapts the batches to a flush of the origin that took @elapsed_ms.  Under the engine's lock. */
void hybrid_stall_flush_ended(struct hybrid_engine *e, struct hybrid_volume *v, u32 elapsed_ms,
			      struct hybrid_actions *acts);
/* Notes the end of a read of the origin that a user waited for.  Any context. */
void hybrid_stall_read_ended(struct hybrid_engine *e, struct hybrid_volume *v,
			     struct hybrid_actions *acts);
/*
 * At each tick: the first routes all waiting writes again.  The second, called when they have been
 * routed, flushes batches and sets the limits of dirty blocks.  The caller holds no lock.
 */
void hybrid_stall_tick(struct hybrid_engine *e, struct hybrid_actions *acts);
void hybrid_stall_tick_flush(struct hybrid_engine *e, struct hybrid_actions *acts);

#endif
