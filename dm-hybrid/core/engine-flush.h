/* SPDX-License-Identifier: GPL-2.0-only */
/* Flushes of origins, and the epochs that they cover. */
#ifndef DM_HYBRID_ENGINE_FLUSH_H
#define DM_HYBRID_ENGINE_FLUSH_H

#include "engine.h"
#include "map.h"

/*
 * After this many flushes of origins, the durable epochs of one set are brought up to the present
 * one.  There are fewer than 2^20 sets, so 2^30 flushes cover all of them.
 */
#define LIFT_FLUSHES		1024

/*
 * Flushes of one origin.  A write that ended in epoch n is covered by a flush that began in epoch
 * n or later.
 */
struct hybrid_origin_flush {
	u64 epoch;			/* of writes that end now */
	u64 last_write;			/* epoch of the last one */
	u64 last_user_write;		/* not by writeback: users' flushes cover it */
	u64 flushed;			/* epochs up to it are durable */
	u64 target;			/* ... once the present flush has ended */
	bool busy, again;
	bool lazy;			/* lazy records wait for the next flush */
	bool flushing_lazy;		/* ... for the present one */
	bool gated;			/* records that users' flushes need wait for the next */
	int error;
	struct list_head now, next;	/* ios */
	struct hybrid_op op;
	void (*ended)(struct hybrid_engine *e, struct hybrid_op *op,
		      struct hybrid_actions *acts);	/* hybrid_origin_flushed() */
};

/* The next set whose flush epochs are lifted. */
struct hybrid_lift {
	u32 flushes;			/* of origins, ended: see LIFT_FLUSHES; may wrap */
	u32 set;			/* the next one */
};

/*
 * Begins a flush of the origin; if one is under way, or a write of the origin's superblock,
 * another flush follows it.  flush.ended() is called at its end.  Under the engine's lock.
 */
void hybrid_origin_flush_locked(struct hybrid_engine *e, struct hybrid_volume *v,
				struct hybrid_actions *acts);
/* Begins a flush that had to wait.  Under the engine's lock. */
void hybrid_origin_flush_next_locked(struct hybrid_engine *e, struct hybrid_volume *v,
				     struct hybrid_actions *acts);
/*
 * Notes that a flush of the origin failed with @error, or a write with FUA that the block layer
 * emulates by a flush.  Writes may be lost, and no later flush can make up for them.  Under the
 * engine's lock; or while the volume is being opened, closed or grown, so that nobody flushes it.
 */
void hybrid_origin_flush_failed(struct hybrid_volume *v, int error);
/*
 * Notes that a write to the origin has ended; @user: users' flushes must cover it.  The first one
 * of an epoch takes the engine's lock.
 */
void hybrid_origin_written(struct hybrid_engine *e, struct hybrid_volume *v, bool user);
/*
 * Flushes the origin if it has unflushed writes, and then, if @record, records changes that nobody
 * waits for.  Returns false if there was nothing to flush.  Under the engine's lock.
 */
bool hybrid_origin_settle_locked(struct hybrid_engine *e, struct hybrid_volume *v, bool record,
				 struct hybrid_actions *acts);
/* Lifts the flush epochs of one more set: see LIFT_FLUSHES.  The caller holds no lock. */
void hybrid_lift_flush_epochs(struct hybrid_engine *e);
/*
 * May the origin's copy of block @i change now?  If not, requests the record that must come first;
 * the caller waits for WAIT_RECORD.  Under the set's lock.
 */
bool hybrid_record_first(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);

#endif
