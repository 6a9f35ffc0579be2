/* SPDX-License-Identifier: GPL-2.0-only */
/* Backpressure: writes wait for writeback where the origin seeks and no block is free. */
#ifndef DM_HYBRID_ENGINE_ROOM_H
#define DM_HYBRID_ENGINE_ROOM_H

#include "engine.h"
#include "map.h"

struct hybrid_room {
	struct list_head waiters;	/* ios */
	u32 tick;			/* of now; never 0 */
	u32 stalled;			/* ticks in which they waited, and no block became free */
	bool freed;			/* one did, in this tick; READ_ONCE without the lock */
};

/*
 * A write found no free block in its set, or may not make its block dirty.  Queues it and returns
 * true, or returns false if it need not wait.  Under the set's lock.
 */
bool room_wait(struct hybrid_engine *e, const struct hybrid_set *s, struct hybrid_io *io);
/* Initialises a new volume. */
void room_create(struct hybrid_volume *v);
/* Sets the limit of dirty blocks of each open volume.  Under the engine's lock. */
void room_share(struct hybrid_engine *e);
/* Blocks have become free or evictable: writes that wait are routed again. */
void room_wake(struct hybrid_engine *e, struct hybrid_actions *acts);
/*
 * Must writeback of @v wait for a flush of the blocks already written?  Under the engine's lock.
 */
bool room_batch_full(const struct hybrid_engine *e, const struct hybrid_volume *v);
/*
 * A window has ended, or no other can begin now: flushes the batch if it is due.  Under the
 * engine's lock.
 */
void room_flush_batch(struct hybrid_engine *e, struct hybrid_volume *v,
		      struct hybrid_actions *acts);
/* A flush of the origin has ended after @elapsed_ms.  Under the engine's lock. */
void room_flush_ended(struct hybrid_engine *e, struct hybrid_volume *v, u32 elapsed_ms,
		      struct hybrid_actions *acts);
/* A read of the origin has ended that a user waited for.  Any context. */
void room_read_ended(struct hybrid_engine *e, struct hybrid_volume *v,
		     struct hybrid_actions *acts);
/*
 * At each tick: routes all writes again that wait.  Then, when they have been routed, flushes
 * batches and sets the limits of dirty blocks.  The caller holds no lock.
 */
void room_tick(struct hybrid_engine *e, struct hybrid_actions *acts);
void room_tick_flush(struct hybrid_engine *e, struct hybrid_actions *acts);

#endif
