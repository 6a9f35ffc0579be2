/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions that the engine's own files share; engine-state.h says which locks there are. */
#ifndef DM_HYBRID_ENGINE_INTERNAL_H
#define DM_HYBRID_ENGINE_INTERNAL_H

#include "engine-state.h"

/*
 * What must hold where the state changes.  If it does not, RAM cannot be trusted any more: the
 * pool fails, so that no metadata are written of it (P5); the simulator ends.  Never for what was
 * read from a disk: that is refused (engine-load.c).  Any context.
 */
#define engine_assert(e, holds)							\
	do {									\
		if (WARN_ON_ONCE(!(holds)))					\
			/* As fail_pool() does: what is lost was counted before */	\
			smp_store_release(&(e)->failed, true);			\
	} while (0)

/* ---- shared helpers ------------------------------------------------------ */

/* Blocking.  What grows with the cache device, and of a small one is no page; for kvfree(). */
static inline void *alloc_zeroes(size_t bytes)
{
	return bytes <= HYBRID_META_BLOCK_SIZE / 2 ? kzalloc(bytes, GFP_KERNEL) : vzalloc(bytes);
}

static inline unsigned long *alloc_bits(u32 nr)
{
	return alloc_zeroes(BITS_TO_LONGS(nr) * sizeof(long));
}

/* Sectors are written to the cache device, metadata not counted. */
static inline void cache_wears(struct hybrid_engine *e, u32 sectors)
{
	this_cpu_add(e->readers->cache_written, sectors);
}

static inline void act(struct hybrid_actions *acts, struct hybrid_op *op)
{
	list_add_tail(&op->link, &acts->list);
}

static inline void want(struct hybrid_actions *acts, enum want what)
{
	acts->wanted |= what;
}

/* A fresh operation; the caller adds what its type needs. @v: whose origin, or NULL. */
static inline void op_begin(struct hybrid_op *op, enum hybrid_op_type type, bool write,
			    struct hybrid_volume *v,
			    void (*done)(struct hybrid_engine *e, struct hybrid_op *op,
					 struct hybrid_actions *acts))
{
	op->type = type;
	op->write = write;
	op->origin = v;
	op->volume = v;
	op->fua = false;
	op->io = NULL;
	op->user = NULL;
	op->nr_segments = 0;
	op->buffer_offset = 0;
	op->error_cache = 0;
	op->error_origin = 0;
	op->elapsed_ms = 0;
	op->done = done;
}

static inline void count(struct hybrid_volume *v, enum hybrid_counter c)
{
	this_cpu_inc(v->counters->c[c]);
}

/* I/O of the volume to the cache device failed; of metadata: fail_pool() */
static inline void count_cache_error(struct hybrid_engine *e, struct hybrid_volume *v,
				     enum cache_error kind)
{
	atomic64_inc(&e->stats.errors[kind]);
	count(v, HYBRID_CACHE_ERRORS);
}

/*
 * Enter or leave a state of the pool.  Between the two thresholds the state stays as it is:
 * otherwise there would be an event every second.  For the tick.
 */
static inline void put_state(struct hybrid_engine *e, u32 state, bool begins, bool ends)
{
	if (begins)
		WRITE_ONCE(e->state, e->state | state);
	else if (ends)
		WRITE_ONCE(e->state, e->state & ~state);
}

static inline void complete_io(struct hybrid_io *io, int error, struct hybrid_actions *acts)
{
	if (error)
		io->error = error;
	io->op.type = HYBRID_OP_COMPLETE;
	io->op.io = io;
	act(acts, &io->op);
}

/* A user's flush must wait for a commit.  Called after what must be recorded was marked. */
static inline void note_cache_written(struct hybrid_volume *v)
{
	/* The commit that takes the note finds the mark; pairs with cache_written_to_flushing(). */
	smp_mb();
	WRITE_ONCE(v->cache_written, true);
}

static inline u64 block_mask(const struct hybrid_engine *e, const struct hybrid_set *s,
			     enum hybrid_mask m, u32 i)
{
	return set_mask(&e->map, s, m, i);
}

/* Volume @id, or NULL. */
static inline struct hybrid_volume *volume_of(const struct hybrid_engine *e, u32 id)
{
	struct hybrid_volume **some;

	if (id >= HYBRID_MAX_VOLUMES)
		return NULL;
	some = e->volumes[id / VOLUMES_TOGETHER];
	return some ? some[id % VOLUMES_TOGETHER] : NULL;
}

static inline struct hybrid_volume *key_volume(const struct hybrid_engine *e, u64 key)
{
	return volume_of(e, hybrid_key_volume(key));
}

/* The credit for fills ahead where @key is. */
static inline atomic_t *ahead_credit(struct hybrid_engine *e, u64 key)
{
	u64 part = key >> (e->g->window_shift + AHEAD_PART_SHIFT);

	return &key_volume(e, key)->ahead[part % AHEAD_PARTS];
}

/*
 * Has every origin write that @stamp stands for been flushed?  Stamps are compared
 * modulo 2^32: none is ever 2^31 flushes behind (lift_stamps()).
 */
static inline bool origin_durable(const struct hybrid_volume *v, u32 stamp)
{
	return (s32)((u32)READ_ONCE(v->flush.flushed) - stamp) >= 0;
}

/* First sector of the block of @key, on its volume. */
static inline u64 key_sector(const struct hybrid_engine *e, u64 key)
{
	return from_oblock(hybrid_key_block(key)) << e->g->block_shift;
}

static inline u32 window_blocks(const struct hybrid_engine *e)
{
	return 1U << e->g->window_shift;
}

/* Granules of a job's block @k among those of @mask. */
static inline u64 job_mask(const struct hybrid_engine *e, u64 mask, u32 k)
{
	return (mask >> (k * e->g->granules)) & e->map.granules;
}

/* Sectors from a job's granule @at on, @n granules, cut at the volume's end. */
static inline u32 job_sectors(const struct hybrid_engine *e, const struct hybrid_job *job, u32 at,
			      u32 n)
{
	u64 start = key_sector(e, job->key) + ((u64)at << e->g->granule_shift);

	return min_t(u64, (u64)n << e->g->granule_shift, job->volume->info.data_sectors - start);
}

/*
 * Is all that is dirty of @v to be written back, and nothing to become dirty?  READ_ONCE
 * without the lock.
 */
static inline bool drains(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	return READ_ONCE(v->drain.on) || READ_ONCE(e->writebacks.drain.on);
}

/* How many blocks of @v are dirty, in RAM or on record, whichever is more. */
static inline u32 dirty_blocks(const struct hybrid_volume *v)
{
	return max(atomic_read(&v->nr_dirty), atomic_read(&v->nr_jdirty));
}

/* Is anything of @v to become clean that is not, on record too?  Under the engine's lock. */
static inline bool is_draining(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	return e->writebacks.drain.on || (v->drain.on && dirty_blocks(v));
}

/* Under the engine's lock. */
static inline void drain_set(struct hybrid_drain *d, bool on, u32 rate)
{
	WRITE_ONCE(d->on, on);
	d->rate = rate;
	d->credit = 0;
}

/* Blocks of the set on their way to be free. */
static inline u32 leaving(const struct hybrid_engine *e, const struct hybrid_set *s)
{
	return e->map.set_size - (s->nr_mapped + s->nr_free + s->nr_retired);
}

/* How many sectors are in granules of @v that are dirty, in RAM or on record. */
static inline u64 dirty_sectors(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	return (u64)atomic64_read(&v->nr_granules) << e->g->granule_shift;
}

/* Has @v reached its limit of dirty blocks, which room_share() sets? */
static inline bool room_used_up(const struct hybrid_volume *v)
{
	return (u32)atomic_read(&v->nr_dirty) >= READ_ONCE(v->most_dirty);
}

/* The mode that writes follow. */
static inline u32 write_mode(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	u32 mode = READ_ONCE(v->mode);

	return mode == HYBRID_MODE_WRITEBACK && drains(e, v) ? HYBRID_MODE_WRITETHROUGH : mode;
}

/* Does anybody wait for a write in the set to end?  Caller holds its lock. */
static inline bool somebody_waits(const struct hybrid_set *s)
{
	lockdep_assert_held(&s->lock);
	return !list_empty(&s->waiting) || !list_empty(&s->waiting_ranges) || s->closing;
}

/*
 * May a job retry after an error?  Not while a suspend or a stop waits for it, which then waits
 * for one operation at most.
 */
static inline bool may_try_again(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	return !READ_ONCE(v->suspended) && !READ_ONCE(e->stopping) && !READ_ONCE(e->failed);
}

/*
 * Credit for I/O at @rate KiB a second, @ms later: a second's at most.  In sectors times ms, so
 * that the lowest rate counts in the shortest tick.
 */
static inline s64 credit_after(s64 credit, u32 rate, u64 ms)
{
	s64 per_second = (s64)rate * 2;

	return min(credit + per_second * (s64)min(ms, MS_PER_SECOND),
		   per_second * (s64)MS_PER_SECOND);
}

static inline bool is_fill(const struct hybrid_job *job)
{
	return job->type == JOB_FILL || job->type == JOB_AHEAD;
}

/* A read of the origin begins that a user waits for; any context.  room_read_ended() */
static inline void room_read_begins(struct hybrid_volume *v)
{
	atomic_inc(&v->nr_reads);
}

/* Where the data of @io are on its origin. */
static inline u64 io_origin_sector(const struct hybrid_io *io)
{
	return io->volume->info.data_sector + io->sector;
}

/* First sector, on its device, of granule @g of a block. */
static inline u64 cache_sector(const struct hybrid_engine *e, u32 set, u32 i, u32 granule)
{
	return hybrid_data_sector(e->g, hybrid_map_cblock(&e->map, set, i)) +
	       ((u64)granule << e->g->granule_shift);
}

static inline u64 origin_sector(const struct hybrid_engine *e, const struct hybrid_volume *v,
				u64 key, u32 granule)
{
	return v->info.data_sector + key_sector(e, key) + ((u64)granule << e->g->granule_shift);
}

/* Next run of set bits of @mask at or after *at: its start in *at, returns its length or 0. */
static inline u32 next_run(u64 mask, u32 *at)
{
	u32 n = 0;

	while (*at < 64 && !(mask & BIT_ULL(*at)))
		(*at)++;
	while (*at + n < 64 && (mask & BIT_ULL(*at + n)))
		n++;
	return n;
}

/* Where the data of @io are on the cache device, which has them in block @i. */
static inline u64 io_cache_sector(const struct hybrid_engine *e, const struct hybrid_io *io, u32 i)
{
	return cache_sector(e, io->set, i, 0) + (io->sector & (e->g->block_sectors - 1));
}

/* The block of its set where @io went, to the cache alone, and not through a job. */
static inline u32 io_block(const struct hybrid_engine *e, const struct hybrid_io *io)
{
	return (io->op.sector - cache_sector(e, io->set, 0, 0)) >> e->g->block_shift;
}

/* Key, set and granules of an I/O within one block. */
static inline void io_locate(const struct hybrid_engine *e, struct hybrid_io *io)
{
	const struct hybrid_geometry *g = e->g;
	u32 start = io->sector & (g->block_sectors - 1);

	io->key = hybrid_key(io->volume->id, to_oblock(io->sector >> g->block_shift));
	io->set = hybrid_map_set_of(&e->map, io->key);
	io->mask = GENMASK_ULL((start + io->count - 1) >> g->granule_shift,
			       start >> g->granule_shift);
}

/* Not for read hits.  Written once in an interval. */
static inline void note_foreground(struct hybrid_volume *v)
{
	if (!READ_ONCE(v->foreground))
		WRITE_ONCE(v->foreground, true);
}

/*
 * Two intervals without users' I/O to the volume: the first of them may have only just begun.
 * Users of other volumes do not use its origin.
 */
static inline bool users_idle(const struct hybrid_volume *v)
{
	return !READ_ONCE(v->foreground) && !READ_ONCE(v->foreground_before);
}

/* Epochs of lock-free readers: engine.c.  Returns the phase, for epoch_leave(). */
static inline u32 epoch_enter(struct hybrid_engine *e)
{
	u32 phase = READ_ONCE(e->grace.phase) & 1;

	this_cpu_inc(e->readers->enter[phase]);
	/* Entered before anything is looked up. */
	smp_mb();
	return phase;
}

static inline void epoch_leave(struct hybrid_engine *e, u32 phase)
{
	/* What was read is read before it may go; pairs with phase_empty(). */
	smp_mb();
	this_cpu_inc(e->readers->leave[phase]);
}

/* engine-block.c: dirty masks and their counts; caller holds the set's lock */
void put_dirty(struct hybrid_engine *e, struct hybrid_set *s, u32 i, u64 dirty);
void put_jdirty(struct hybrid_engine *e, struct hybrid_set *s, u32 i, u64 jdirty);
void mark_must(struct hybrid_engine *e, u32 set, u32 i);
void mark_lazy(struct hybrid_engine *e, u32 set, u32 i);
/*
 * Granules that the journal calls dirty and RAM not even valid: they were
 * discarded or replaced on the origin, and the record of that must come.
 */
u64 replaced_granules(const struct hybrid_engine *e, const struct hybrid_set *s, u32 i);
bool write_in_flight(const struct hybrid_set *s, u64 key, u64 mask);
/*
 * Call @each for all blocks of @v, also for removed ones, under the lock of their set.  The
 * caller holds no lock.
 */
void each_block(struct hybrid_engine *e, struct hybrid_volume *v,
		void (*each)(struct hybrid_engine *e, u32 set, u32 i));

/* engine-flush.c */
void origin_flush_locked(struct hybrid_engine *e, struct hybrid_volume *v,
			 struct hybrid_actions *acts);
void origin_flush_next_locked(struct hybrid_engine *e, struct hybrid_volume *v,
			      struct hybrid_actions *acts);
void origin_flush_failed(struct hybrid_volume *v, int error);
void origin_written(struct hybrid_engine *e, struct hybrid_volume *v, bool user);
/*
 * Flush the origin if it has writes outstanding; then, if @record says so, record what
 * nobody waits for.  False: there is nothing to flush.  Under the engine's lock.
 */
bool origin_settle_locked(struct hybrid_engine *e, struct hybrid_volume *v, bool record,
			  struct hybrid_actions *acts);
/* Caller holds no lock. */
void lift_stamps(struct hybrid_engine *e);
bool record_first(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);

/* engine.c, for its own events alone, and for tests of other files' functions */
void engine_settle(struct hybrid_engine *e, struct hybrid_actions *acts);

/* engine-queue.c */
/* What hybrid_io_init() and hybrid_engine_hit() leave to who takes the slow path. */
void io_begin(struct hybrid_io *io);
void user_op(struct hybrid_io *io, bool origin, u64 sector, bool fua);
/* Make @io->op a read of the origin; the caller sends it. */
void io_read_origin(struct hybrid_io *io);
/* Does a discard, or write of zeroes, in flight touch these sectors?  Under the engine's lock. */
bool find_range(struct hybrid_volume *v, u64 sector, u32 count);
/* The same; caller does not hold the engine's lock. */
bool range_blocks(struct hybrid_volume *v, u64 sector, u32 count);
/* If so, @io waits for it. */
bool range_wait(struct hybrid_volume *v, struct hybrid_io *io);

/* @io waits in its set, whose lock the caller holds; the second returns ROUTE_TAKEN. */
void wait_in_set(struct hybrid_set *s, struct hybrid_io *io, enum io_wait why);
enum route wait_routed(struct hybrid_set *s, struct hybrid_io *io, enum io_wait why);
/* @io, which is on no list, runs again at the end of the event.  Any locks may be held. */
void rerun(struct hybrid_io *io, struct hybrid_actions *acts);
/* The same of all on a list, by io->link. */
void rerun_list(struct list_head *list, struct hybrid_actions *acts);
/* ... in an event of its own: where there may be thousands, each of which takes long. */
void rerun_later(struct hybrid_io *io, struct hybrid_actions *acts);
/* Those in set @nr run again that wait for any of @why.  Caller holds no set's lock. */
void wake_set(struct hybrid_engine *e, u32 nr, u8 why, struct hybrid_actions *acts);
/* ... in any set, that wait for records which can never go out. */
void wake_records(struct hybrid_engine *e, struct hybrid_actions *acts);

/* engine-admit.c.  All of these under the set's lock. */
/* @io is not cached, and that is why. */
void bypass(struct hybrid_io *io, enum hybrid_counter why);
/* Has the set blocks that nothing needs to leave for? */
bool set_fills(const struct hybrid_engine *e, const struct hybrid_set *s);
/* May this miss enter the cache?  IN_PLACE: another block left.  Counts the reason if not. */
enum admission admission(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			 struct hybrid_actions *acts);
/*
 * Is a block that is read worth what it costs the cache device?  Always while the
 * set fills, and if it is metadata; else, where the budget is short, if it was asked
 * for not long ago.
 */
bool worth_its_wear(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io);
/* A free block becomes @key's.  Caller has seen that there is one. */
int take_block(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v, u64 key);
/* Is there a free block for a read miss?  Half of the reserve is for writes. */
bool room_to_fill(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io,
		  struct hybrid_actions *acts);
/* May a miss bring more than it needs?  Would it do without, if no hit had come? */
bool rest_is_paid(struct hybrid_volume *v);
bool rest_is_owed(struct hybrid_volume *v);
/* A miss, or a hit of what was filled ahead, pays for the next ones near @key. */
void ahead_earns(struct hybrid_engine *e, u64 key, int credit);
/* One more block is filled ahead; the first read of one, which would have been a miss. */
void ahead_costs(struct hybrid_engine *e, u64 key);
void ahead_used(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io, u32 i);
/*
 * What to fill around @key, whose block is missed: with it what is missing next to
 * it in its window, without a gap, if something else of the window is there or the
 * set has free blocks.
 */
void ahead_range(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v, u64 key,
		 u64 *from, u64 *to);

/* engine-read.c, under the set's lock */
enum route route_read(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
		      struct hybrid_actions *acts);
enum route route_origin(struct hybrid_io *io);
/*
 * The cache could not be read; no lock is held.  A clean granule is read from the origin and
 * dropped from the cache; a dirty one is lost (S8).  Of both, any may be the one:
 * each is read where it is then, and not again where a write replaces it, which may
 * take for ever.  Returns whether the io ends.
 */
bool read_failed(struct hybrid_engine *e, struct hybrid_io *io, int error,
		 struct hybrid_actions *acts);

/* engine-write.c, the first two under the set's lock */
enum route route_write(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
		       struct hybrid_actions *acts);
/*
 * Overlapping writes may be in flight together only where they all go to the
 * same one device (J6); the device decides their order then.
 */
bool write_conflicts(const struct hybrid_set *s, const struct hybrid_io *io);
/* Its operation ended; returns whether the io ends. */
bool finish_write(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
		  int error_origin, struct hybrid_actions *acts);
/* Errors of a write, or of the origin, but for -EAGAIN, which says nothing about the device. */
void count_errors(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
		  int error_origin);

/* engine-io.c: hybrid_engine_miss() and hybrid_engine_io_done() of what is no hit */
enum hybrid_map_result io_miss(struct hybrid_engine *e, struct hybrid_io *io,
			       struct hybrid_actions *acts);
bool io_done(struct hybrid_engine *e, struct hybrid_io *io, int error, struct hybrid_actions *acts);
/* What @io waited for has ended: it goes on, or waits again. */
void io_again(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts);

/* engine-stream.c: the run that goes on at @sector, or NULL.  Under the stream lock. */
struct hybrid_stream *stream_find(struct hybrid_volume *v, u64 sector);
/*
 * Sectors of the sequential run that this miss continues, with its own.  From *from on
 * nothing of it was cached; NULL: who calls does not care.
 */
u64 stream_run(struct hybrid_volume *v, const struct hybrid_io *io, u64 *from);
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
void holds_tick(struct hybrid_engine *e);
/* NULL, or what is wrong.  Nothing runs. */
const char *holds_check(struct hybrid_engine *e, struct hybrid_set *s);

/* engine-job.c */
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

/* engine-evict.c: keep the reserve of the set of @io, which needs room; caller holds its lock */
void evict(struct hybrid_engine *e, const struct hybrid_io *io, struct hybrid_actions *acts);
bool can_spare(struct hybrid_engine *e, struct hybrid_set *s);
bool may_evict(struct hybrid_engine *e, struct hybrid_set *s, u32 i);
/* Block @i is read as metadata: keep it, if its set keeps less than it may. */
void metadata_read(struct hybrid_engine *e, struct hybrid_set *s, u32 i);
/* Would metadata_read() change nothing?  Also without the lock: a hint then. */
bool metadata_noted(const struct hybrid_engine *e, const struct hybrid_set *s, u32 i);
bool evict_block(struct hybrid_engine *e, u32 set, u32 i);
/* Remove block @i if it has no valid granule, no job and no write in flight. */
void remove_empty_block(struct hybrid_engine *e, u32 set, u32 i);
/*
 * Take back block @i, which is removed.  False: the removal is on its way to the journal, or
 * will be; an I/O that needs the block gone waits for WAIT_TRANSIT.
 */
bool resurrect(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);
void removal_durable(struct hybrid_engine *e, u32 set, u32 i);
void reclaim(struct hybrid_engine *e, struct hybrid_actions *acts);
/*
 * I/O to the data of block @i, and of no other, failed; not one that was refused (-EAGAIN).
 * At the second time the block is evicted if it can be: call it when nothing of what failed
 * keeps the block any more.  Caller holds the set's lock.
 */
void place_failed(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);

/*
 * engine-place.c: I/O to block @i failed; returns whether it is not to be used again.  Caller
 * holds the set's lock.
 */
bool place_note(struct hybrid_engine *e, u32 set, u32 i);
/* Is the block not to be used again once it has left?  Caller holds the set's lock. */
bool place_is_bad(struct hybrid_engine *e, u32 set, u32 i);
/*
 * Block @i, unhashed, is nobody's any more: it becomes free, or (false) is retired.  Caller
 * holds the set's lock.
 */
bool place_free(struct hybrid_engine *e, u32 set, u32 i);
/* NULL, or what is wrong.  Nothing runs. */
const char *places_check(const struct hybrid_engine *e);

/*
 * engine-room.c: a write found no free block in its set, whose lock the caller holds, or
 * may not make it dirty.  False: it need not wait.
 */
bool room_wait(struct hybrid_engine *e, const struct hybrid_set *s, struct hybrid_io *io);
void room_create(struct hybrid_volume *v);
/* Under the engine's lock: set the limit of dirty blocks of each open volume. */
void room_share(struct hybrid_engine *e);
/* Blocks became free, or can be evicted. */
void room_wake(struct hybrid_engine *e, struct hybrid_actions *acts);
/* Under the engine's lock: must writeback of @v wait for a flush of what it wrote? */
bool room_batch_full(const struct hybrid_engine *e, const struct hybrid_volume *v);
/* Under the lock: a window ended, or no more can be written back now. */
void room_flush_batch(struct hybrid_engine *e, struct hybrid_volume *v,
		      struct hybrid_actions *acts);
/* Under the lock: a flush of the origin that took so many ms has ended. */
void room_flush_ended(struct hybrid_engine *e, struct hybrid_volume *v, u32 elapsed_ms,
		      struct hybrid_actions *acts);
/* A read of the origin that a user waits for has ended; any context. */
void room_read_ended(struct hybrid_engine *e, struct hybrid_volume *v,
		     struct hybrid_actions *acts);
void room_tick(struct hybrid_engine *e, struct hybrid_actions *acts);

/* engine-wear.c: the budget of writes to the cache device, and its errors */
void wear_tick(struct hybrid_engine *e, u64 passed_ms);
/* As the root has it, when the pool is loaded. */
void wear_load(struct hybrid_engine *e, const struct hybrid_root_info *root);
void wear_save(const struct hybrid_engine *e, struct hybrid_root_info *root);
/* Caller holds the engine's lock. */
void wear_configure(struct hybrid_engine *e, const struct hybrid_config *config);
void wear_status(const struct hybrid_engine *e, struct hybrid_pool_status *st);

/* engine-trim.c: blocks of the set became free; caller holds its lock */
void trim_note(struct hybrid_engine *e, u32 set);
/* Are there places to be discarded?  Also without a lock: a hint then. */
bool trim_wanted(const struct hybrid_engine *e);
void trim_tick(struct hybrid_engine *e, u64 ms, struct hybrid_actions *acts);

/* engine-writeback.c: windows of one volume, or (NULL) of all, may be able to go */
void writeback_kick(struct hybrid_engine *e, struct hybrid_volume *v, struct hybrid_actions *acts);
void writeback_work(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts);
void writeback_tick(struct hybrid_engine *e, u64 ms, struct hybrid_actions *acts);
void writeback_window(struct hybrid_engine *e, u64 key, struct hybrid_actions *acts);
/* A write to the block of @key is in flight no more.  Caller holds the set's lock. */
void writeback_written(struct hybrid_engine *e, struct hybrid_set *s, u64 key,
		       struct hybrid_actions *acts);

/* engine-sweep.c: @v's window to be written back next.  Only for the writeback worker. */
enum sweep_result sweep_next(struct hybrid_engine *e, struct hybrid_volume *v, u64 *key);
/* A block of the set became dirty; caller holds its lock. */
void sweep_note(struct hybrid_engine *e, const struct hybrid_set *s);
/* Blocking.  @volumes are in the table: all of them together have one pool's room. */
int sweep_create(struct hybrid_engine *e, struct hybrid_volume *v, u32 volumes);
void sweep_destroy(struct hybrid_volume *v);
u64 sweep_ram(const struct hybrid_geometry *g);

/* engine-commit.c */
/* WANT_COMMIT, WANT_OPENS, WANT_LAZY */
void commit_kick(struct hybrid_engine *e, u32 wanted, struct hybrid_actions *acts);
void meta_kick_locked(struct hybrid_engine *e, struct hybrid_actions *acts);
void meta_work(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts);
void commit_or_complete(struct hybrid_engine *e, struct hybrid_io *io,
			struct hybrid_actions *acts);
void join_commit(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts);
void flush_io(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts);
/* The end of the operation that origin_flush_locked() begins. */
void origin_flushed(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts);
/* Ask for the region to be opened; caller holds the set's lock. */
void open_region(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts);
void lazy_interval(struct hybrid_engine *e, struct hybrid_actions *acts);
bool unrecorded_left(struct hybrid_engine *e);

/* engine-checkpoint.c */
int checkpoint_create(struct hybrid_engine *e);
void checkpoint_destroy(struct hybrid_engine *e);
void mark_leaf(struct hybrid_engine *e, u32 set, u32 i);
void mark_region_leaves(struct hybrid_engine *e, u32 set, u64 regions);
void mark_volume_leaf(struct hybrid_engine *e, u32 id);
void checkpoint_begin(struct hybrid_engine *e);
/* The next one makes a recovery durable. */
void checkpoint_recovery(struct hybrid_engine *e);
/* Add the next write to meta.op, which the caller began. */
void checkpoint_step(struct hybrid_engine *e);
void checkpoint_step_done(struct hybrid_engine *e);

/* engine-superblock.c: while the volume is open */
/* The superblock must be in state @wanted before @io goes on. */
void sb_wait(struct hybrid_engine *e, struct hybrid_volume *v, enum sb_state wanted,
	     struct hybrid_io *io, struct hybrid_actions *acts);
/* Under the engine's lock: the flush ended that the superblock waited for. */
void sb_next_locked(struct hybrid_engine *e, struct hybrid_volume *v,
		    struct hybrid_actions *acts);
/* Under the engine's lock: write both copies for what is wanted now. */
void sb_update(struct hybrid_engine *e, struct hybrid_volume *v, struct hybrid_actions *acts);
/*
 * Blocking, while the volume is opened, closed, or grows, or its superblock is claimed.  Write
 * sb.block there; read or write a copy of a superblock on a member of so many sectors.
 */
void sb_write_block(struct hybrid_volume *v, struct hybrid_op *op, u64 sector);
int sb_io(struct hybrid_volume *v, unsigned int copy, u64 sectors, bool write);
int sb_write_both(struct hybrid_volume *v);
/* Read both, and take the one that counts; -ENODATA, -EIO, -EMEDIUMTYPE: *why says more. */
int sb_read(struct hybrid_volume *v, u64 sectors, const char **why);
/* Is it that of the volume?  0 or -EMEDIUMTYPE. */
int sb_matches(const struct hybrid_engine *e, const struct hybrid_volume *v, u64 sectors,
	       const char **why);
/* Both copies get the present nonce, before the cache hears of another. */
int sb_unite(struct hybrid_volume *v);
void sb_failed(struct hybrid_volume *v, int error);
void sb_paired(struct hybrid_volume *v, u64 nonce);
void sb_take_name(struct hybrid_volume *v);
bool nonce_known(const struct hybrid_volume *v, u64 nonce);

/* engine-grow.c: in RAM; recorded with the next checkpoint */
void set_sizes(struct hybrid_engine *e, struct hybrid_volume *v, u64 data_sectors,
	       u64 data_sectors_new);
/* Blocking, while the volume is opened: the rest of what a cut left half done. */
int finish_growing(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors);

/* engine-volume.c */
struct hybrid_volume *volume_alloc(struct hybrid_engine *e, u32 id,
				   const struct hybrid_volume_info *info);
void volume_free(struct hybrid_volume *v);
/* What volume_of() gives from now on, of one for which volume_alloc() was called. */
void volume_put(struct hybrid_engine *e, u32 id, struct hybrid_volume *v);
void volumes_destroy(struct hybrid_engine *e);
void volume_purge(struct hybrid_engine *e, struct hybrid_volume *v, bool free);

/* engine-lost.c */
void lost_destroy(struct hybrid_engine *e);
/* Blocking, before a volume is open, or larger: have memory for its map; or -ENOMEM. */
int lost_reserve(struct hybrid_engine *e, u64 data_sectors);
/*
 * The pool failed: save what is lost of @v, then call @saved, the same for all volumes.  Under
 * the engine's lock, as @saved; the volume's superblock is busy.
 */
void lost_save(struct hybrid_engine *e, struct hybrid_volume *v,
	       void (*saved)(struct hybrid_engine *e, struct hybrid_volume *v,
			     struct hybrid_actions *acts), struct hybrid_actions *acts);
/* Blocking.  The same while the volume is closed; the caller writes the superblock. */
int lost_save_blocking(struct hybrid_engine *e, struct hybrid_volume *v);

enum hybrid_map_result range_io(struct hybrid_engine *e, struct hybrid_io *io,
				struct hybrid_actions *acts);
bool range_done(struct hybrid_engine *e, struct hybrid_io *io, int error,
		struct hybrid_actions *acts);

#endif
