/* SPDX-License-Identifier: GPL-2.0-only */
/* Data through a buffer: fills, and writes to both devices. */
#ifndef DM_HYBRID_ENGINE_JOB_H
#define DM_HYBRID_ENGINE_JOB_H

#include "engine.h"
#include "map.h"

#define NR_FILL_JOBS		64
#define NR_AHEAD_JOBS		16
#define NR_WRITEBACK_JOBS	32
#define MAX_JOB_MEMORY		(16U << 11)	/* sectors, for each kind: 16 MiB */
#define OWN_WRITEBACK_SECTORS	32		/* of a volume's own buffer: any granule */

enum job_type {
	JOB_FILL,
	JOB_AHEAD,		/* a fill of several blocks of a window */
	JOB_STAGED,		/* a user's I/O with a private copy of the data */
	JOB_WRITEBACK,
	JOB_HOLD,		/* data of the origin in memory, ahead of a run */
};

/* Jobs of one kind have buffers of one size, and a pool. */
enum job_kind {
	FILLS,			/* JOB_FILL and JOB_STAGED: a block */
	AHEADS,			/* JOB_AHEAD and JOB_HOLD: a window */
	WRITEBACKS,		/* a window */
	NR_JOB_KINDS
};

/*
 * Jobs of one kind.  They are allocated where memory is to be had at once, and freed when they
 * were not needed for a while.  Each open volume has one more of its own for good, which may
 * have a smaller buffer, and which it takes where there is no other.
 */
struct hybrid_job_pool {
	struct list_head free;		/* used last, first */
	u32 sectors;			/* of a buffer */
	u32 own_sectors;		/* ... of a volume's own job; 0: it has none */
	u32 most;			/* a volume may have, in use */
	u32 lent;			/* in use, the first of each volume not counted */
	u32 nr_claims;			/* volumes that were refused less than their share */
	u32 nr;				/* volumes' own not counted; READ_ONCE without the lock */
	u32 nr_free;			/* READ_ONCE without the lock */
	u32 spare;			/* the fewest free since the last tick */
};

/*
 * Work on one window: fills and staged I/O on one block of it.  While it runs,
 * a fill's or writeback's blocks are BLOCK_BUSY.
 */
struct hybrid_job {
	struct list_head link;		/* of the set, or of the free jobs */
	struct hybrid_op op;
	u8 type;
	bool in_buffer;			/* fill: the data can be copied out */
	bool exclusive;			/* writeback: writes wait for it */
	bool closing;			/* ... and it for those in flight */
	bool done;
	u32 set;
	u64 key;			/* of its first block; writeback: of the window's */
	u64 mask;			/* granules it moves, from there on */
	u64 readable;			/* fill, hold: granules that the buffer will hold */
	u64 touched;			/* writeback: written meanwhile */
	u64 part;			/* fill, writeback: of mask, under way now */
	u64 left, failed;		/* ... not tried yet, and could not be moved */
	bool one_by_one;		/* ... since a part of many could not be */
	u32 from;			/* granule that the buffer begins with */
	u32 sectors;			/* of the buffer */
	u32 copies;			/* COPY_OUT under way, under the set's lock */
	u32 age;			/* hold: ticks */
	u64 hole;			/* hold: sector at which the run will come to it */
	struct list_head held;		/* hold: of the engine */
	struct hybrid_volume *volume;
	struct hybrid_io *io;		/* staged */
	bool (*written)(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
			int error_origin, struct hybrid_actions *acts);	/* ... a write */
	struct list_head readers;	/* fill, hold: ios to be served */
	void *buffer;
	s16 block[HYBRID_MAX_GRANULES];	/* index of each block or -1 */
	struct hybrid_segment segment[HYBRID_MAX_SEGMENTS];
};

/* Of all volumes */
struct hybrid_jobs {
	struct hybrid_job_pool pool[NR_JOB_KINDS];
	u32 nr_busy;
	u32 nr_waiters;			/* ios, all volumes; READ_ONCE without the lock */
};

/* A volume's share of one pool of jobs.  It may always have one; others are lent to it. */
struct hybrid_job_share {
	struct hybrid_job *own;		/* for where there is no memory; NULL: none */
	bool own_busy;
	u32 nr;				/* in use */
	bool claims;			/* counted in nr_claims */
};

/* Of one volume */
struct hybrid_volume_jobs {
	struct hybrid_job_share share[NR_JOB_KINDS];
	u32 nr;				/* in use, of all kinds */
	struct list_head waiters;	/* ios */
};

void jobs_create(struct hybrid_engine *e);
void jobs_destroy(struct hybrid_engine *e);
/* The volume's own jobs, while it is open.  Sleeps.  -ENOMEM: release frees what there is. */
int jobs_reserve(struct hybrid_engine *e, struct hybrid_volume *v);
void jobs_release(struct hybrid_volume *v);
/*
 * Give back memory of jobs that were not needed, end all claims, and run again the ios
 * that wait for jobs.  At each tick.
 */
void jobs_tick(struct hybrid_engine *e, struct hybrid_actions *acts);
/* End all claims of the volume.  Caller holds the engine's lock. */
void jobs_unclaim(struct hybrid_engine *e, struct hybrid_volume *v);
/* Is there more memory to give back at later ticks? */
bool jobs_spare(const struct hybrid_engine *e);
/*
 * Allocate a job of that kind if none is free, for the caller or for whoever comes first.  It
 * does not sleep, but it may allocate many pages: not under a lock.
 */
void job_prepare(struct hybrid_engine *e, enum job_kind kind);
/*
 * NULL: all that @v may have are in use, or none is free; or it is for a writeback, or a hold,
 * that may not begin now.  Caller may hold a set's lock.
 */
struct hybrid_job *job_get(struct hybrid_engine *e, enum job_type type, struct hybrid_volume *v);
/*
 * *job: for staged I/O, as above.  False: there is none and @io waits, which runs again when
 * a job of its volume ends, or at a tick: if it @must have a job, or if its volume has as many
 * in use as there are for each.  Caller may hold a set's lock.
 */
bool job_get_staged(struct hybrid_engine *e, struct hybrid_io *io, bool must,
		    struct hybrid_job **job);
void job_put(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_actions *acts);
/*
 * A job of @v has ended, whose end keeps @v open: the io of @v that has waited longest for one of
 * that kind runs again, if one is free that @v may have.  Otherwise @v may be gone.
 */
void job_ended(struct hybrid_engine *e, struct hybrid_volume *v, enum job_kind kind,
	       struct hybrid_actions *acts);
/* The job's next operation: between its buffer and the devices, no segments yet. */
void job_transfer(struct hybrid_job *job, bool write,
		  void (*done)(struct hybrid_engine *e, struct hybrid_op *op,
			       struct hybrid_actions *acts));
void job_segment(struct hybrid_job *job, bool origin, u64 sector, u32 offset, u32 sectors);
struct hybrid_job *job_find(struct hybrid_engine *e, struct hybrid_set *s, u64 key);
/*
 * Begin a fill of what was added to it.  @io is about one of the blocks: a read is
 * served from the buffer.
 */
void fill_start(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
		struct hybrid_actions *acts);
/*
 * Would a fill write granules of block @i, -1: of none, that are clean in the journal, though
 * not in RAM?  J4 forbids it until that is recorded.  Caller holds the set's lock.
 */
bool fill_forbidden(struct hybrid_engine *e, struct hybrid_set *s, int i);
/* Would a fill of those granules of @key's block @i, -1: that is not there, disturb something? */
bool fill_conflicts(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v, u64 key,
		    int i, u64 mask);
/* Is the block of @key one that could be filled, and would not disturb anything? */
bool block_missing(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
		   u64 key);
/* For a fill, or hold, of blocks from @key on; NULL: as above. */
struct hybrid_job *fill_get(struct hybrid_engine *e, enum job_type type,
			    struct hybrid_volume *v, u64 key);
/* Fill those granules of @key's block @i, too.  Caller holds the set's lock. */
void fill_add(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_job *job, u64 key,
	      u32 i, u64 mask);
/* The granules that the job moves, where they are on the cache device. */
void job_cache_segments(struct hybrid_engine *e, struct hybrid_job *job, u64 mask);
/* Join a fill under way; false: it cannot serve this io. Caller holds the set's lock. */
bool fill_join(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
	       struct hybrid_actions *acts);
/* A fill, or hold, gives @io its data.  Caller holds the set's lock. */
void job_serve(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
	       struct hybrid_actions *acts);
/* The origin was read: so for all that wait for it.  Caller holds the set's lock. */
void job_serve_readers(struct hybrid_engine *e, struct hybrid_job *job,
		       struct hybrid_actions *acts);
/*
 * The origin could not be read.  One bad sector must not fail a read of others: each goes
 * on its own.  Caller holds the set's lock, or nobody can find the job.
 */
void job_fail_readers(struct hybrid_job *job, struct hybrid_actions *acts);
/* @written: what the end of a write means; returns whether the io ends. */
void staged_start(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
		  bool (*written)(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
				  int error_origin, struct hybrid_actions *acts),
		  struct hybrid_actions *acts);

#endif
