/* SPDX-License-Identifier: GPL-2.0-only */
/* Users' flushes, and the entries of the journal. */
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

/* The operation on metadata under way.  There is one at a time. */
struct hybrid_meta {
	u8 state;			/* enum meta_state */
	struct hybrid_ident id;		/* of all blocks of metadata */
	struct hybrid_op op;
	struct hybrid_segment segment[CHECKPOINT_BLOCKS];
};

/* The changes of a volume that are not durable yet: noted without the lock, or on their way. */
struct hybrid_volume_commit {
	bool written;			/* data in the cache device's volatile memory; READ_ONCE */
	bool flushing;			/* the present flush makes that durable */
	bool unrecorded;		/* changes that need a journal entry; READ_ONCE */
	bool recording;			/* the present commit does */
};

/* The next journal entry, and the one being written. */
struct hybrid_commit {
	bool wanted;			/* somebody waits for records, or will soon */
	bool opens_wanted;		/* somebody waits for open regions */
	bool lazy_wanted;
	bool lazy;			/* the present assembly */
	bool opens;			/* ... records open regions only */
	bool gated;			/* ... found records that wait for a flush of an origin */
	u64 last_interval;		/* ms, of the tick: see hybrid_lazy_interval() */
	atomic_t invalidations;		/* credit: see hybrid_invalidate_first() */
	struct list_head next, now;	/* ios */
	struct list_head waiting;	/* ios, for such a flush */
	/* Sets with records that somebody waits for, with other records, with open regions */
	unsigned long *must_sets, *lazy_sets, *open_sets;
};

/*
 * Requests a commit for the bits WANT_COMMIT, WANT_OPENS, WANT_LAZY in @wanted.  The caller holds
 * no lock.
 */
void hybrid_commit_kick(struct hybrid_engine *e, u32 wanted, struct hybrid_actions *acts);
/* Wakes the state machine of commits and checkpoints if it is idle.  Under the engine's lock. */
void hybrid_meta_kick_locked(struct hybrid_engine *e, struct hybrid_actions *acts);
/*
 * Handles the end of an operation on metadata, if any, and begins the next.  In process context.
 */
void hybrid_meta_work(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts);
/*
 * Completes a user's flush whose origin is flushed, or makes it wait for a commit if data of its
 * volume is only in the cache's volatile memory, or its metadata only in RAM.
 */
void hybrid_commit_or_complete(struct hybrid_engine *e, struct hybrid_io *io,
			       struct hybrid_actions *acts);
/* Makes @io complete with the next commit that begins. */
void hybrid_join_commit(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts);
/* Handles a user's flush.  In process context. */
void hybrid_flush_io(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts);
/*
 * A write with FUA to an origin without FUA has ended: flushes the origin, then joins a commit if
 * io->commit, and completes the write.
 */
void hybrid_flush_after_write(struct hybrid_engine *e, struct hybrid_io *io,
			      struct hybrid_actions *acts);
/* Ends the operation that hybrid_origin_flush_locked() began. */
void hybrid_origin_flushed(struct hybrid_engine *e, struct hybrid_op *op,
			   struct hybrid_actions *acts);
/* Requests that the region of block @i be opened.  Under the set's lock. */
void hybrid_open_region(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);
/*
 * Requests a record that the granules of a write, clean ones, are not valid: the caller makes the
 * write wait for WAIT_OPEN.  After a crash the rest of the region is still cached; but each such
 * write costs an entry, where an open region lets many writes pass.  So there is a credit: of a few
 * writes a second, and of some for each read that an origin has to serve, which takes longer than
 * their entries.  Returns false if the credit is used up.  Under the set's lock.
 */
bool hybrid_invalidate_first(struct hybrid_engine *e, u32 set, struct hybrid_actions *acts);
/* @passed ms have passed. */
void hybrid_invalidate_tick(struct hybrid_engine *e, u64 passed);

#define MAX_INVALIDATIONS	16	/* credit; and so much of it is earned a second */

/* A read miss earns credit for hybrid_invalidate_first(): @n writes. */
static inline void invalidations_earned(struct hybrid_commit *c, int n)
{
	if (atomic_read(&c->invalidations) < MAX_INVALIDATIONS)
		atomic_add(n, &c->invalidations);
}

/*
 * Called once per commit_interval: records changes that nobody waits for, and closes regions.  The
 * caller holds no lock.
 */
void hybrid_lazy_interval(struct hybrid_engine *e, struct hybrid_actions *acts);
/* Does the journal lack anything that RAM knows?  Without locks: a hint. */
bool hybrid_unrecorded_left(struct hybrid_engine *e);

#endif
