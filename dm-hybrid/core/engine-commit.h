/* SPDX-License-Identifier: GPL-2.0-only */
/* Users' flushes, and the journal's entries. */
#ifndef DM_HYBRID_ENGINE_COMMIT_H
#define DM_HYBRID_ENGINE_COMMIT_H

#include "engine.h"
#include "engine-checkpoint.h"
#include "map.h"

enum meta_state {
	META_IDLE,
	META_WORK,		/* meta.op is queued as work */
	META_COMMIT_FLUSH,	/* of the cache device, before the entry is written */
	META_COMMIT,
	META_FLUSH,		/* a commit without records */
	META_CHECKPOINT,
};

/* The one operation on metadata that is under way */
struct hybrid_meta {
	u8 state;			/* enum meta_state */
	struct hybrid_op op;
	struct hybrid_segment segment[CHECKPOINT_BLOCKS];
};

/* The next entry of the journal, and the present one */
struct hybrid_commit {
	bool wanted;			/* something waits, or is urgent */
	bool opens_wanted;		/* somebody waits for open regions */
	bool lazy_wanted;
	bool lazy;			/* the present assembly */
	bool opens;			/* ... has nothing but open regions */
	bool gated;			/* ... found records that wait for a flush of an origin */
	struct list_head next, now;	/* ios */
	struct list_head waiting;	/* ios, for such a flush */
	/* With records that somebody waits for, that nobody does, and with regions to be opened */
	unsigned long *must_sets, *lazy_sets, *open_sets;
};

/* @wanted: of WANT_COMMIT, WANT_OPENS, WANT_LAZY.  Caller holds no lock. */
void commit_kick(struct hybrid_engine *e, u32 wanted, struct hybrid_actions *acts);
/* Under the engine's lock: look for something to commit, or to checkpoint, if that is not done. */
void meta_kick_locked(struct hybrid_engine *e, struct hybrid_actions *acts);
/* Process context: an operation on metadata ended, or there is something to begin. */
void meta_work(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts);
/*
 * A flush of which the origin's part is done: it ends, or joins a commit, if anything of its volume
 * is only in the cache's volatile memory, or in RAM.
 */
void commit_or_complete(struct hybrid_engine *e, struct hybrid_io *io,
			struct hybrid_actions *acts);
/* @io ends with the next commit that begins. */
void join_commit(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts);
/* A user's flush */
void flush_io(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts);
/* The end of the operation that origin_flush_locked() begins. */
void origin_flushed(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts);
/* Ask for the region to be opened; caller holds the set's lock. */
void open_region(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);
/* Once in commit_interval: records that nobody waits for, and regions to be closed. */
void lazy_interval(struct hybrid_engine *e, struct hybrid_actions *acts);
/* Is anything left that the journal does not know?  A hint without locks. */
bool unrecorded_left(struct hybrid_engine *e);

#endif
