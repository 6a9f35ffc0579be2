/* SPDX-License-Identifier: GPL-2.0-only */
/* Long runs: what stays of one, and what is read ahead of it. */
#ifndef DM_HYBRID_ENGINE_STREAM_H
#define DM_HYBRID_ENGINE_STREAM_H

#include "engine.h"
#include "engine-job.h"
#include "map.h"

#define NR_STREAMS		32

/* Why granules that were held are held no more */
enum hold_end {
	HOLD_READ,
	HOLD_WRITTEN,
	HOLD_DISCARDED,
	HOLD_CACHED,		/* a block was made for it */
	HOLD_MODE,
	HOLD_SUSPENDED,		/* volume or pool */
	HOLD_UNUSED,		/* for too long */
	HOLD_YIELDED,		/* to a fill */
	HOLD_FAILED,		/* it could not be read */
	NR_HOLD_ENDS
};

struct hybrid_stream {
	u64 next;
	u64 from;		/* nothing was cached from there to next */
	u64 sectors;		/* of the run, what was cached not counted */
	u64 used;
};

/* Of one volume */
struct hybrid_streams {
	spinlock_t lock;		/* all of this */
	u64 clock;
	struct hybrid_stream stream[NR_STREAMS];
};

/* Of all volumes */
struct hybrid_runs {
	struct list_head holds;		/* jobs, the oldest first */
	u32 nr_holds;			/* READ_ONCE without the lock */
	bool unwanted;			/* fills need the jobs; READ_ONCE without the lock */
	u32 shortest;			/* that is read ahead of, sectors */
	u8 segment_shift;		/* log2(blocks) */
	u64 ends[NR_HOLD_ENDS];
};

/* The run that goes on at @sector, or NULL.  Under the stream lock. */
struct hybrid_stream *stream_find(struct hybrid_volume *v, u64 sector);
/*
 * Sectors of the sequential run that this miss continues, with its own.  From *from on
 * nothing of it was cached; NULL: who calls does not care.
 */
u64 stream_run(struct hybrid_volume *v, const struct hybrid_io *io, u64 *from);
/* What depends on the geometry of the pool */
void stream_create(struct hybrid_engine *e);
/*
 * Does @io, a read miss of a run that began at @from and is @run sectors long, take the
 * place of another block of it?  Then that one leaves.  Caller holds the set's lock.
 */
bool stream_spreads(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io,
		    u64 from, u64 run, struct hybrid_actions *acts);
/* Serve a read from what is held; false: not all of it is.  Caller holds the set's lock. */
bool hold_serve(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
		struct hybrid_actions *acts);
/* Those granules are held no more.  Caller holds the set's lock. */
void hold_forget(struct hybrid_engine *e, struct hybrid_set *s, u64 key, u64 mask,
		 enum hold_end why);
/* A read ended at @sector that was no hit.  Caller holds no lock. */
void stream_ahead(struct hybrid_engine *e, struct hybrid_volume *v, u64 sector,
		  struct hybrid_actions *acts);
/* Nothing of one volume, or (NULL) of all, is held any more.  Caller holds no lock. */
void holds_drop(struct hybrid_engine *e, const struct hybrid_volume *v, enum hold_end why);
/* Nobody came for what is old.  Caller holds no lock. */
void holds_tick(struct hybrid_engine *e);
/* NULL, or what is wrong.  Nothing runs. */
const char *holds_check(struct hybrid_engine *e, struct hybrid_set *s);

#endif
