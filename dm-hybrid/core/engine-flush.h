/* SPDX-License-Identifier: GPL-2.0-only */
/* Flushes of origins, and the epochs that they cover. */
#ifndef DM_HYBRID_ENGINE_FLUSH_H
#define DM_HYBRID_ENGINE_FLUSH_H

#include "engine.h"
#include "map.h"

/*
 * With each so many flushes of origins, the stamps of one set that are durable are brought
 * up to now.  There are fewer than 2^20 sets: after 2^30 flushes all had their turn.
 */
#define LIFT_FLUSHES		1024

/*
 * Flushes of one origin.  A write that ended in epoch n is covered by a flush that
 * began at n or later.
 */
struct hybrid_origin_flush {
	u64 epoch;			/* of writes that end now */
	u64 last_write;			/* epoch of the last one */
	u64 last_user_write;		/* not by writeback: users' flushes cover it */
	u64 flushed;			/* epochs up to it are durable */
	u64 target;			/* ... once the present flush has ended */
	bool busy, again;
	bool lazy;			/* lazy records wait for the next one */
	bool flushing_lazy;		/* ... for the present one */
	bool gated;			/* records that a user's flush needs wait for it */
	int error;
	struct list_head now, next;	/* ios */
	struct hybrid_op op;
	void (*ended)(struct hybrid_engine *e, struct hybrid_op *op,
		      struct hybrid_actions *acts);	/* origin_flushed() */
};

/* Stamps of all sets are brought up to now, in turn */
struct hybrid_lift {
	u32 flushes;			/* that have ended: see LIFT_FLUSHES; may wrap */
	u32 set;			/* that is next */
};

/*
 * Under the engine's lock: begin a flush of the origin; while there is one, or its superblock is
 * being written, another one follows it.  flush.ended() is its end.
 */
void origin_flush_locked(struct hybrid_engine *e, struct hybrid_volume *v,
			 struct hybrid_actions *acts);
/* Under the engine's lock: ... which may begin now. */
void origin_flush_next_locked(struct hybrid_engine *e, struct hybrid_volume *v,
			      struct hybrid_actions *acts);
/*
 * Under the engine's lock, or while the volume is opened or closed: a flush of the origin failed
 * with @error, or a write for which the block layer flushes.  It may have lost writes, and no later
 * flush makes them good.
 */
void origin_flush_failed(struct hybrid_volume *v, int error);
/* A write to the origin ended, @user: one that users' flushes cover.  Without the engine's lock. */
void origin_written(struct hybrid_engine *e, struct hybrid_volume *v, bool user);
/*
 * Flush the origin if it has writes outstanding; then, if @record says so, record what
 * nobody waits for.  False: there is nothing to flush.  Under the engine's lock.
 */
bool origin_settle_locked(struct hybrid_engine *e, struct hybrid_volume *v, bool record,
			  struct hybrid_actions *acts);
/* See LIFT_FLUSHES: one set more.  Caller holds no lock. */
void lift_stamps(struct hybrid_engine *e);
/*
 * May the origin's copy of block @i change?  If not, what must be recorded first is asked for, and
 * the caller waits for WAIT_RECORD.  Under the set's lock.
 */
bool record_first(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);

#endif
