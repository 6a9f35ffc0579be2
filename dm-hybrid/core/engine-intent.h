/* SPDX-License-Identifier: GPL-2.0-only */
/* The intent log: users' writes that a flush of the cache device alone makes durable. */
#ifndef DM_HYBRID_ENGINE_INTENT_H
#define DM_HYBRID_ENGINE_INTENT_H

#include "engine.h"
#include "engine-wear.h"
#include "map.h"

#define MAX_INTENDED	256	/* writes under intents, at most */

/* The steps of a write before it counts as ended. */
enum intended_state {
	INTENDED_BEGUN,			/* its data is about to be copied */
	INTENDED_COPIED,		/* waits for the next intent */
	INTENDED_WRITING,		/* its intent is being written */
	INTENDED_WRITTEN,		/* its intent is written, or never will be */
	INTENDED_ENDING,		/* its data is written, too */
};

/* A write whose granules are under an intent.  Under the engine's lock. */
struct hybrid_intended {
	struct hlist_node node;		/* of hybrid_set.intended; under the set's lock */
	struct list_head link;		/* of hybrid_intents.pending or .applied */
	u32 set, i;			/* its cache block: does not change */
	u64 key, granules;		/* likewise */
	u64 number;			/* of its intent, from INTENDED_WRITING on */
	u64 checksum;			/* from INTENDED_COPIED on */
	u8 state;			/* enum intended_state */
	bool data_ended;
	bool gave_up;			/* it failed, and goes elsewhere once the tail has passed */
	bool awaited;			/* somebody waits for that: counted in nr_awaited */
	int error;
	struct hybrid_io *io;		/* until the write has ended */
};

struct hybrid_intents {
	u64 head;			/* number of the next intent; the tail is the journal's */
	u64 flushed;			/* the intents below it are durable, with their data */
	u64 flushing;			/* ... once the present flush has ended */
	u64 next_tail;			/* of the entry being assembled */
	bool busy;			/* an intent is being written */
	bool fua;			/* ... with FUA */
	bool wanted;			/* a commit is requested that may move the tail */
	bool lost;			/* hybrid_intents_lost() was called: none begins any more */
	u32 nr;				/* READ_ONCE without the lock */
	u32 nr_awaited, nr_gave_up;
	struct list_head pending;	/* hybrid_intended: not applied yet, oldest first */
	struct list_head applied;	/* the write has ended, in RAM its granules are dirty */
	struct hybrid_intent *mem;	/* the intent being written */
	struct hybrid_segment segment;
	struct hybrid_op op;
	/* Ends a write: see hybrid_staged_start() */
	bool (*done)(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
		     int error_origin, struct hybrid_actions *acts);
};

#define SYNC_WRITES	16

/*
 * How often the users of a volume flush: see volume_syncs().  READ_ONCE without a lock; counts may
 * be lost.
 */
struct hybrid_sync {
	u16 writes, flushes;		/* halved when there are SYNC_WRITES writes */
	u16 left;			/* writes that no flush has followed, at most SYNC_WRITES */
};

/* May sleep.  Returns 0 or -ENOMEM; hybrid_intents_destroy() frees everything in both cases. */
int hybrid_intents_create(struct hybrid_engine *e);
void hybrid_intents_destroy(struct hybrid_engine *e);

/*
 * The granules of block @i that are under intents: their data stays as it is, in the cache and on
 * the origin, until the intents mean nothing any more (J12).  Under the set's lock.
 */
u64 hybrid_intended_granules(const struct hybrid_set *s, u32 i);
static inline bool is_intended(const struct hybrid_set *s, u32 i, u64 granules)
{
	return !hlist_empty(&s->intended) && (hybrid_intended_granules(s, i) & granules);
}

/*
 * Requests the entry that moves the tail past the intents of these granules of block @i; the
 * caller waits for WAIT_RECORD.  Under the set's lock.
 */
void hybrid_intents_await(struct hybrid_engine *e, struct hybrid_set *s, u32 i, u64 granules,
			  struct hybrid_actions *acts);

/* May @io, a write that goes to block @i, be put under an intent?  Under the set's lock. */
bool hybrid_intent_allowed(struct hybrid_engine *e, const struct hybrid_set *s,
			   const struct hybrid_io *io, u32 i);
/*
 * Puts @io, a write to block @i, under an intent, which goes out when its data has been copied
 * (hybrid_op.copied).  Returns false if there is no room or memory.  Under the set's lock.
 */
bool hybrid_intent_begin(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			 u32 i);
/* hybrid_op.copied of a write under an intent. */
void hybrid_intent_copied(struct hybrid_engine *e, struct hybrid_op *op,
			  struct hybrid_actions *acts);
/*
 * The data of @io has been written, or could not be (*error).  Returns true if its intent has
 * ended, too: then the caller ends the write, with *error, otherwise the intent's end does.
 */
bool hybrid_intent_data_ended(struct hybrid_engine *e, struct hybrid_io *io, int *error);
/*
 * The data of @io could not be written: once the tail has passed its intent, the write is ended
 * again, without an intent.  Returns false if the pool has failed.  The caller holds no lock.
 */
bool hybrid_intent_give_up(struct hybrid_engine *e, struct hybrid_io *io, int error,
			   struct hybrid_actions *acts);
/*
 * The write has ended.  Its granules are dirty in RAM and marked to be recorded already: the tail
 * may pass its intent from now on (J13).  @w is the log's again.  The caller holds no lock.
 */
void hybrid_intent_applied(struct hybrid_engine *e, struct hybrid_intended *w,
			   struct hybrid_actions *acts);

/*
 * Returns the number below which all intents and their writes have ended; @well: without an error.
 * An entry that records all that is marked after this call may move the tail there (J13).  Under
 * the engine's lock.
 */
u64 hybrid_intents_ended(struct hybrid_engine *e, bool well);
/*
 * The tail is durable: frees the writes whose intents it has passed, and lets those that gave up go
 * on.  The caller holds no lock.
 */
void hybrid_intents_passed(struct hybrid_engine *e, struct hybrid_actions *acts);
/*
 * The pool is about to fail.  Intents may be durable all the same: granules whose writes have not
 * ended count as dirty on record, so that nothing else changes on the origin.
 */
void hybrid_intents_lost(struct hybrid_engine *e);
/*
 * The pool fails because metadata cannot be written any more: no new dirty data (P5).  The caller
 * holds no lock.
 */
void hybrid_fail_pool(struct hybrid_engine *e, enum cache_error kind);
/*
 * The same, after a write outside of commits and checkpoints: wakes all that waits for metadata.
 * The caller holds no lock.
 */
void hybrid_metadata_failed(struct hybrid_engine *e, struct hybrid_actions *acts);
/* The pool has failed: ends writes that wait for an intent, or for the tail. */
void hybrid_intents_failed(struct hybrid_engine *e, struct hybrid_actions *acts);
/* For hybrid_engine_check() */
const char *hybrid_intents_check(const struct hybrid_engine *e);

#endif
