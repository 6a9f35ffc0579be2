/* SPDX-License-Identifier: GPL-2.0-only */
/* Jobs: data that moves through a buffer, for fills, staged I/O and writeback. */
#ifndef DM_HYBRID_ENGINE_JOB_H
#define DM_HYBRID_ENGINE_JOB_H

#include "engine.h"
#include "map.h"

#define NR_FILL_JOBS		64
#define NR_AHEAD_JOBS		16
#define NR_WRITEBACK_JOBS	32
#define MAX_JOB_MEMORY		(16U << 11)	/* sectors, for each kind: 16 MiB */
#define OWN_WRITEBACK_SECTORS	32		/* of a volume's own buffer; holds any granule */

enum job_type {
	JOB_FILL,
	JOB_AHEAD,		/* a fill of several blocks of a window */
	JOB_STAGED,		/* a user's I/O with a private copy of the data */
	JOB_WRITEBACK,
	JOB_READAHEAD,		/* of a run, into memory */
};

/* Jobs of one kind share a pool and have buffers of one size. */
enum job_kind {
	FILLS,			/* JOB_FILL and JOB_STAGED: a block */
	AHEADS,			/* JOB_AHEAD and JOB_READAHEAD: a window */
	WRITEBACKS,		/* a window */
	NR_JOB_KINDS
};

/*
 * The jobs of one kind.  They are allocated when memory is available at once, and freed when they
 * have not been needed for a while.  Each open volume has one more job of its own, perhaps with a
 * smaller buffer, for use when no other is available.
 */
struct hybrid_job_pool {
	struct list_head free;		/* most recently used first */
	u32 sectors;			/* of a buffer */
	u32 own_sectors;		/* ... of a volume's own job; 0: it has none */
	u32 most;			/* jobs that a volume may use */
	u32 lent;			/* jobs in use, without the first of each volume */
	u32 nr_claims;			/* volumes that were refused less than their share */
	u32 nr;				/* all, without volumes' own; READ_ONCE without the lock */
	u32 nr_free;			/* READ_ONCE without the lock */
	u32 spare;			/* lowest nr_free since the last tick */
};

/* Granules of a fill or of writeback that move in parts. */
struct hybrid_job_parts {
	u64 now;			/* under way */
	u64 left;			/* not tried yet */
	u64 failed;			/* failed to move */
	bool one_by_one;		/* after the failure of a larger part */
};

/* Data of the origin that is read into memory, ahead of a run. */
struct hybrid_readahead {
	struct list_head link;		/* of hybrid_runs.readahead */
	u32 age;			/* ticks */
	u64 hole;			/* sector where the run will reach it */
};

/*
 * Work on one window: a fill, staged I/O on one block, or a writeback.  The blocks of a fill or a
 * writeback are BLOCK_BUSY meanwhile.
 */
struct hybrid_job {
	struct list_head link;		/* of the set, or of the free jobs */
	struct hybrid_op op;
	u8 type;
	bool in_buffer;			/* fill: the data can be copied out */
	bool exclusive;			/* writeback: writes wait for it */
	bool closing;			/* ... it waits for writes in flight */
	bool done;
	u32 set;
	u64 key;			/* of its first block; writeback: of the window's */
	u64 mask;			/* granules to move, counted from key */
	u64 readable;			/* fill, readahead: granules that can be served */
	u64 touched;			/* writeback: granules written meanwhile */
	struct hybrid_job_parts parts;	/* fill, writeback: of mask */
	u32 from;			/* first granule in the buffer */
	u32 sectors;			/* of the buffer */
	u32 copies;			/* COPY_OUTs under way; under the set's lock */
	struct hybrid_readahead readahead;
	struct hybrid_volume *volume;
	struct hybrid_io *io;		/* staged */
	bool (*written)(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
			int error_origin, struct hybrid_actions *acts);	/* ... end of a write */
	struct list_head readers;	/* fill, readahead: ios to be served */
	void *buffer;
	s16 block[HYBRID_MAX_GRANULES];	/* index of each block or -1 */
	struct hybrid_segment segment[HYBRID_MAX_SEGMENTS];
};

/* All jobs of the pool. */
struct hybrid_jobs {
	struct hybrid_job_pool pool[NR_JOB_KINDS];
	u32 nr_busy;
	u32 nr_waiters;			/* ios, all volumes; READ_ONCE without the lock */
};

/*
 * A volume's share of the jobs of one kind.  It may always have one; further jobs are lent to it.
 */
struct hybrid_job_share {
	struct hybrid_job *own;		/* for use when there is no memory; NULL: none */
	bool own_busy;
	u32 nr;				/* in use */
	bool claims;			/* counted in nr_claims */
};

/* The jobs of one volume. */
struct hybrid_volume_jobs {
	struct hybrid_job_share share[NR_JOB_KINDS];
	u32 nr;				/* in use, of all kinds */
	struct list_head waiters;	/* ios */
};

void hybrid_jobs_create(struct hybrid_engine *e);
void hybrid_jobs_destroy(struct hybrid_engine *e);
/*
 * Allocates the volume's own jobs.  May sleep.  Returns 0 or -ENOMEM; hybrid_jobs_release()
 * frees the jobs in both cases.
 */
int hybrid_jobs_reserve(struct hybrid_engine *e, struct hybrid_volume *v);
void hybrid_jobs_release(struct hybrid_volume *v);
/*
 * At each tick: frees memory of unneeded jobs, ends all claims, and routes I/O again that waits
 * for a job.
 */
void hybrid_jobs_tick(struct hybrid_engine *e, struct hybrid_actions *acts);
/* Ends all claims of the volume.  Under the engine's lock. */
void hybrid_jobs_unclaim(struct hybrid_engine *e, struct hybrid_volume *v);
/* Will later ticks have memory to free? */
bool hybrid_jobs_spare(const struct hybrid_engine *e);
/*
 * Allocates a job of that kind if none is free, for the caller or for anybody else.  It does not
 * sleep but may allocate many pages, so the caller holds no lock.
 */
void hybrid_job_prepare(struct hybrid_engine *e, enum job_kind kind);
/*
 * Takes a job.  Returns NULL if @v has as many as it may, if none is free, or if a writeback or a
 * readahead into memory must not begin now.  A set's lock may be held.
 */
struct hybrid_job *hybrid_job_get(struct hybrid_engine *e, enum job_type type,
				  struct hybrid_volume *v);
/*
 * Takes a job for staged I/O into *job.  Returns false if @io has to wait for one: because it
 * @must have one, or because its volume already uses its share.  It is routed again when a job of
 * its volume ends, or at the next tick.  Otherwise returns true, with *job NULL if there is none.
 * A set's lock may be held.
 */
bool hybrid_job_get_staged(struct hybrid_engine *e, struct hybrid_io *io, bool must,
			   struct hybrid_job **job);
void hybrid_job_put(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_actions *acts);
/*
 * A job of @v has ended.  Routes again the I/O that has waited longest for a job of that kind, if
 * @v may have one; that I/O keeps @v open.  Without such I/O, @v may be gone on return.
 */
void hybrid_job_ended(struct hybrid_engine *e, struct hybrid_volume *v, enum job_kind kind,
		      struct hybrid_actions *acts);
/* Begins the job's next operation between its buffer and the devices; it has no segments yet. */
void hybrid_job_transfer(struct hybrid_job *job, bool write,
			 void (*done)(struct hybrid_engine *e, struct hybrid_op *op,
				      struct hybrid_actions *acts));
void hybrid_job_segment(struct hybrid_job *job, bool origin, u64 sector, u32 offset, u32 sectors);
struct hybrid_job *hybrid_job_find(struct hybrid_engine *e, struct hybrid_set *s, u64 key);
/*
 * Starts the fill of the blocks that were added.  @io refers to one of them; a read is served from
 * the buffer.
 */
void hybrid_fill_start(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
		       struct hybrid_actions *acts);
/*
 * Would a fill of block @i (-1: none) write granules that are clean on record but invalid in RAM?
 * J4 forbids that until the change is recorded.  Under the set's lock.
 */
bool hybrid_fill_forbidden(struct hybrid_engine *e, struct hybrid_set *s, int i);
/*
 * Would a fill of these granules of @key's block @i (-1: not cached) disturb I/O in flight?  Under
 * the set's lock.
 */
bool hybrid_fill_conflicts(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
			   u64 key, int i, u64 mask);
/*
 * Is @key's block within the volume and not cached, and could it be filled now?  Under the set's
 * lock.
 */
bool hybrid_block_missing(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
			  u64 key);
/*
 * Takes a job for a fill, or a readahead into memory, that begins with @key's block.  Returns NULL
 * as hybrid_job_get() does.
 */
struct hybrid_job *hybrid_fill_get(struct hybrid_engine *e, enum job_type type,
				   struct hybrid_volume *v, u64 key);
/* Adds granules of @key's block @i to the fill.  Under the set's lock. */
void hybrid_fill_add(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_job *job, u64 key,
		     u32 i, u64 mask);
/* Adds a segment for each run of these granules on the cache device. */
void hybrid_job_cache_segments(struct hybrid_engine *e, struct hybrid_job *job, u64 mask);
/*
 * Makes @io wait for a fill under way, or serves it.  Returns false if the fill cannot serve it.
 * Under the set's lock.
 */
bool hybrid_fill_join(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
		      struct hybrid_actions *acts);
/* Serves @io from the buffer of a fill or a readahead.  Under the set's lock. */
void hybrid_job_serve(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
		      struct hybrid_actions *acts);
/* The origin has been read: serves all I/O that waits for it.  Under the set's lock. */
void hybrid_job_serve_readers(struct hybrid_engine *e, struct hybrid_job *job,
			      struct hybrid_actions *acts);
/*
 * The origin could not be read.  Each waiting I/O reads it by itself, so that one bad sector fails
 * no read of other sectors.  Under the set's lock, unless nobody can find the job any more.
 */
void hybrid_job_fail_readers(struct hybrid_job *job, struct hybrid_actions *acts);
/* Starts staged I/O.  @written handles the end of a write; it returns whether the I/O ends. */
void hybrid_staged_start(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
			 bool (*written)(struct hybrid_engine *e, struct hybrid_io *io,
					 int error_cache, int error_origin,
					 struct hybrid_actions *acts),
			 struct hybrid_actions *acts);

#endif
