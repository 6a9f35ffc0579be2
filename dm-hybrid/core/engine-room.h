/* SPDX-License-Identifier: GPL-2.0-only */
/* Writes that find no room wait for writeback, where the origin seeks. */
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
 * A write found no free block in its set, whose lock the caller holds, or
 * may not make it dirty.  False: it need not wait.
 */
bool room_wait(struct hybrid_engine *e, const struct hybrid_set *s, struct hybrid_io *io);
/* A fresh volume */
void room_create(struct hybrid_volume *v);
/* Under the engine's lock: set the limit of dirty blocks of each open volume. */
void room_share(struct hybrid_engine *e);
/* Blocks became free, or can be evicted. */
void room_wake(struct hybrid_engine *e, struct hybrid_actions *acts);
/* Under the engine's lock: must writeback of @v wait for a flush of what it wrote? */
bool room_batch_full(const struct hybrid_engine *e, const struct hybrid_volume *v);
/* Under the lock: a window ended, or no more can be written back now. */
void room_flush_batch(struct hybrid_engine *e, struct hybrid_volume *v,
		      struct hybrid_actions *acts);
/* Under the lock: a flush of the origin that took so many ms has ended. */
void room_flush_ended(struct hybrid_engine *e, struct hybrid_volume *v, u32 elapsed_ms,
		      struct hybrid_actions *acts);
/* A read of the origin that a user waits for has ended; any context. */
void room_read_ended(struct hybrid_engine *e, struct hybrid_volume *v,
		     struct hybrid_actions *acts);
void room_tick(struct hybrid_engine *e, struct hybrid_actions *acts);

#endif
