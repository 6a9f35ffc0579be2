/* SPDX-License-Identifier: GPL-2.0-only */
/* Writeback: its windows, and its rate. */
#ifndef DM_HYBRID_ENGINE_WRITEBACK_H
#define DM_HYBRID_ENGINE_WRITEBACK_H

#include "engine.h"
#include "engine-sweep.h"
#include "map.h"

/*
 * A drain of one volume, or of all: everything dirty is written back, and nothing becomes dirty.
 */
struct hybrid_drain {
	bool on;		/* READ_ONCE without the lock */
	u32 rate;		/* KiB a second, 0: no limit */
	s64 credit;		/* sectors times ms, with a limit */
};

/*
 * Writeback of one volume.  Volumes share none of this, so that a slow origin delays no other
 * volume.  Windows form a batch until the origin is flushed: engine-stall.c.
 */
struct hybrid_writeback {
	struct list_head turn;		/* in writebacks.turns: the worker looks for windows */
	struct hybrid_sweep sweep;	/* the worker's alone */
	u32 misses;			/* windows in a row with nothing to move; likewise */
	u32 nr_active;			/* windows */
	u8 paused;			/* ticks to pause, after an error */
	u8 stuck;			/* ticks without progress; READ_ONCE without the lock */
	u32 windows;			/* begun or written, and not covered by a flush */
	u32 bound;			/* limit on these, beside users' I/O */
	u32 flushing;			/* windows that the present flush covers */
	bool flush_batch;		/* the next flush is for the batch */
	bool flushing_batch;		/* ... and the present one */
	u32 reads_first;		/* users' reads that end before the next batch; READ_ONCE */
	u8 reads_ticks;			/* ticks for which the batch still waits for them */
};

/* Writeback of all volumes. */
struct hybrid_writebacks {
	struct hybrid_op op;
	bool queued;
	bool urgent;			/* a set has nothing clean to evict */
	bool passed;			/* a set passed over dirty blocks to evict clean ones */
	atomic_t nr_dirty, nr_jdirty;	/* blocks dirty in RAM, on record */
	struct list_head turns;		/* volumes */
	struct hybrid_drain drain;	/* asked for, or because the cache device is failing */
	bool drain_asked;		/* READ_ONCE without the lock */
	u32 drain_rate;			/* asked for: as drain.rate */
	s64 credit;			/* sectors times ms, with a rate limit */
	unsigned long *dirty_sets;	/* all sets with dirty blocks, perhaps others */
};

/*
 * Queues the worker if windows of @v, or (NULL) of any volume, may begin now.  Takes the engine's
 * lock.
 */
void hybrid_writeback_kick(struct hybrid_engine *e, struct hybrid_volume *v,
			   struct hybrid_actions *acts);
/* The worker, in process context: begins windows. */
void hybrid_writeback_work(struct hybrid_engine *e, struct hybrid_op *op,
			   struct hybrid_actions *acts);
/* Accounts for the last @ms.  The caller holds no lock. */
void hybrid_writeback_tick(struct hybrid_engine *e, u64 ms, struct hybrid_actions *acts);
/* Writes back the window of @key now if possible.  The caller holds no lock. */
void hybrid_writeback_window(struct hybrid_engine *e, u64 key, struct hybrid_actions *acts);
/*
 * A write to @key's block has ended: begins the copy of its window if that waited for this write.
 * Under the set's lock.
 */
void hybrid_writeback_written(struct hybrid_engine *e, struct hybrid_set *s, u64 key,
			      struct hybrid_actions *acts);

#endif
