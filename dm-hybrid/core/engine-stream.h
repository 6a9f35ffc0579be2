/* SPDX-License-Identifier: GPL-2.0-only */
/* Sequential runs: which of their blocks stay cached, and readahead into memory. */
#ifndef DM_HYBRID_ENGINE_STREAM_H
#define DM_HYBRID_ENGINE_STREAM_H

#include "engine.h"
#include "engine-job.h"
#include "map.h"

#define NR_STREAMS		32

/* The reason why data read ahead was dropped from memory. */
enum readahead_end {
	READAHEAD_READ,
	READAHEAD_WRITTEN,
	READAHEAD_DISCARDED,
	READAHEAD_CACHED,		/* it got a cache block */
	READAHEAD_MODE,
	READAHEAD_SUSPENDED,		/* volume or pool */
	READAHEAD_UNUSED,		/* for too long */
	READAHEAD_YIELDED,		/* to a fill */
	READAHEAD_FAILED,		/* it could not be read */
	NR_READAHEAD_ENDS
};

struct hybrid_stream {
	struct list_head link;
	u64 next;
	u64 from;		/* nothing was cached from here to next */
	u64 sectors;		/* of the run, without cached ones; 0: no run */
};

/* The runs of one volume. */
struct hybrid_streams {
	spinlock_t lock;		/* all of this */
	struct list_head list;		/* all of them; the one that went on last is first */
	struct hybrid_stream stream[NR_STREAMS];
};

/* So many misses of runs count as beside random I/O: for each random miss, and at most. */
#define BESIDE_RANDOM		64
#define BESIDE_RANDOM_MOST	1024

/* The runs of all volumes: their readahead into memory, and the room that they may fill. */
struct hybrid_runs {
	struct list_head readahead;	/* jobs, the oldest first */
	u32 nr_readahead;		/* of them; READ_ONCE without the lock */
	bool unwanted;			/* fills need the jobs; READ_ONCE without the lock */
	u32 shortest;			/* run to read ahead of, sectors */
	u8 segment_shift;		/* log2(blocks) */
	u64 ends[NR_READAHEAD_ENDS];
	u32 beside_random;		/* misses of runs to come; roughly, without a lock */
};

/* No run is known at first. */
void hybrid_streams_init(struct hybrid_streams *s);
/* Returns the run that continues at @sector, or NULL.  Under the stream lock. */
struct hybrid_stream *hybrid_stream_find(struct hybrid_volume *v, u64 sector);
/*
 * Adds this miss to its sequential run and returns the length of the run in sectors.  From sector
 * *from on, nothing of the run was cached; @from may be NULL.
 */
u64 hybrid_stream_run(struct hybrid_volume *v, const struct hybrid_io *io, u64 *from);
/* Initialises the state that depends on the pool's geometry. */
void hybrid_stream_create(struct hybrid_engine *e);
/*
 * Should @io, a read miss in a run of @run sectors that began at @from, replace another block of
 * the same run?  Evicts that block if so.  Under the set's lock.
 */
bool hybrid_stream_spreads(struct hybrid_engine *e, struct hybrid_set *s,
			   const struct hybrid_io *io,
			   u64 from, u64 run, struct hybrid_actions *acts);
/*
 * Serves a read from memory; returns false if memory does not have all of it.  Under the set's
 * lock.
 */
bool hybrid_readahead_serve(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			    struct hybrid_actions *acts);
/* Drops these granules from memory.  Under the set's lock. */
void hybrid_readahead_forget(struct hybrid_engine *e, struct hybrid_set *s, u64 key, u64 mask,
			     enum readahead_end why);
/* Reads ahead of a run, after a read up to @sector that was no hit.  The caller holds no lock. */
void hybrid_stream_ahead(struct hybrid_engine *e, struct hybrid_volume *v, u64 sector,
			 struct hybrid_actions *acts);
/*
 * Drops all data read ahead into memory, of @v or (NULL) of all volumes.  The caller holds no
 * lock.
 */
void hybrid_readahead_drop(struct hybrid_engine *e, const struct hybrid_volume *v,
			   enum readahead_end why);
/* Drops data that nobody has read for too long.  The caller holds no lock. */
void hybrid_readahead_tick(struct hybrid_engine *e);
/* For the simulator: returns NULL or a description of the inconsistency.  Nothing runs. */
const char *hybrid_readahead_check(struct hybrid_engine *e, struct hybrid_set *s);

#endif
