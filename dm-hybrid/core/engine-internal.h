/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Included by all files of the engine: the helpers that they share.  Each file has a header of its
 * own, with its state and its functions for the files above it.
 */
#ifndef DM_HYBRID_ENGINE_INTERNAL_H
#define DM_HYBRID_ENGINE_INTERNAL_H

#include "engine-grow.h"
#include "engine-io.h"
#include "engine-queue.h"
#include "engine-read.h"
#include "engine-state.h"
#include "engine-write.h"

/* The state in RAM cannot be trusted: see engine_assert(). */
static inline void engine_inconsistent(struct hybrid_engine *e)
{
	WRITE_ONCE(e->life.inconsistent, true);
	/* As in hybrid_fail_pool() */
	smp_store_release(&e->life.failed, true);
}

/* Without the lock, too */
static inline bool is_loaded(const struct hybrid_engine *e)
{
	return READ_ONCE(e->life.state) != POOL_STOPPED;
}

static inline bool is_running(const struct hybrid_engine *e)
{
	return READ_ONCE(e->life.state) == POOL_RUNNING;
}

static inline bool is_stopping(const struct hybrid_engine *e)
{
	return READ_ONCE(e->life.state) == POOL_STOPPING;
}

static inline bool is_suspended(const struct hybrid_volume *v)
{
	return READ_ONCE(v->state) == VOLUME_SUSPENDED;
}

/*
 * Asserts a condition that always holds where the state changes; returns whether it holds.  If not,
 * a kernel warns and the pool fails, so that no entry of the journal assembled from such a state is
 * written (hybrid_meta_work()); the simulator ends.  Never a condition on data read from a disk:
 * engine-load.c refuses such data.  Any context.
 */
#define engine_assert(e, condition) ({						\
	bool holds = (condition);						\
										\
	if (WARN_ON_ONCE(!holds))						\
		engine_inconsistent(e);						\
	holds;									\
})

/* ---- shared helpers ------------------------------------------------------ */

/*
 * Allocates a zeroed array that grows with the cache device and may be smaller than a page;
 * kvfree() frees it.  May sleep.
 */
static inline void *alloc_zeroes(size_t bytes)
{
	return bytes <= HYBRID_META_BLOCK_SIZE / 2 ? kzalloc(bytes, GFP_KERNEL) : vzalloc(bytes);
}

static inline unsigned long *alloc_bits(u32 nr)
{
	return alloc_zeroes(BITS_TO_LONGS(nr) * sizeof(long));
}

/* Counts sectors written to the cache device, except metadata. */
static inline void cache_wears(struct hybrid_engine *e, u32 sectors)
{
	this_cpu_add(e->evict.readers->cache_written, sectors);
}

/* Adds to one of struct hybrid_stats, which has one writer at a time.  Readers take no lock. */
static inline void add_stat(u64 *stat, u64 nr)
{
	WRITE_ONCE(*stat, *stat + nr);
}

static inline void act(struct hybrid_actions *acts, struct hybrid_op *op)
{
	list_add_tail(&op->link, &acts->list);
}

static inline void want(struct hybrid_actions *acts, enum want what)
{
	acts->wanted |= what;
}

/* Requests writeback of @v, or (NULL) of all volumes. */
static inline void want_writeback(struct hybrid_actions *acts, struct hybrid_volume *v)
{
	if (!(acts->wanted & WANT_WRITEBACK))
		acts->writeback = v;
	else if (acts->writeback != v)
		acts->writeback = NULL;
	want(acts, WANT_WRITEBACK);
}

/*
 * Initialises an operation; the caller adds the fields that its type needs.  @v: the volume of the
 * origin, or NULL.
 */
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
	op->direct = false;
	op->io = NULL;
	op->user = NULL;
	op->copied = NULL;
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

/* Counts a failure of the volume's I/O to the cache device.  Metadata: hybrid_fail_pool() */
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
		WRITE_ONCE(e->life.flags, e->life.flags | state);
	else if (ends)
		WRITE_ONCE(e->life.flags, e->life.flags & ~state);
}

static inline void complete_io(struct hybrid_io *io, int error, struct hybrid_actions *acts)
{
	if (error)
		io->error = error;
	io->op.type = HYBRID_OP_COMPLETE;
	io->op.io = io;
	act(acts, &io->op);
}

/*
 * A write to the cache device has ended: users' flushes of @v flush that device.  Most often the
 * note is there already, and its cache line stays shared.
 */
static inline void note_cache_written(struct hybrid_volume *v)
{
	/* Whoever takes the note flushes the data; pairs with take_notes(). */
	smp_mb();
	if (!READ_ONCE(v->commit.written))
		WRITE_ONCE(v->commit.written, true);
}

/*
 * Makes users' flushes of @v wait for a commit.  Called after hybrid_mark_must() for the changes to
 * record.
 */
static inline void note_unrecorded(struct hybrid_volume *v)
{
	/* The commit that takes the note finds the mark; pairs with take_notes(). */
	smp_mb();
	if (!READ_ONCE(v->commit.unrecorded))
		WRITE_ONCE(v->commit.unrecorded, true);
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
	some = e->volumes.group[id / VOLUMES_TOGETHER];
	return some ? some[id % VOLUMES_TOGETHER] : NULL;
}

static inline struct hybrid_volume *key_volume(const struct hybrid_engine *e, u64 key)
{
	return volume_of(e, hybrid_key_volume(key));
}

/*
 * Does the device do FUA by itself?  If not, the block layer flushes it after the write.  Such a
 * flush may fail unnoticed beside another one, or take other writes along: no user's write asks for
 * it.
 */
static inline bool origin_has_fua(const struct hybrid_volume *v)
{
	return !(READ_ONCE(v->traits) & HYBRID_ORIGIN_NO_FUA);
}

static inline bool cache_has_fua(const struct hybrid_volume *v)
{
	return !(READ_ONCE(v->traits) & HYBRID_CACHE_NO_FUA);
}

static inline bool origin_seeks(const struct hybrid_volume *v)
{
	return READ_ONCE(v->traits) & HYBRID_ORIGIN_SEEKS;
}

/* The credit for fills ahead in @key's part of its volume. */
static inline atomic_t *ahead_credit(struct hybrid_engine *e, u64 key)
{
	u64 part = key >> (e->g->window_shift + AHEAD_PART_SHIFT);

	return &key_volume(e, key)->credit.ahead[part % AHEAD_PARTS];
}

/*
 * Has every write that ended in @epoch of the origin been flushed?  Epochs are compared
 * modulo 2^32: none is ever 2^31 flushes behind (hybrid_lift_flush_epochs()).
 */
static inline bool origin_durable(const struct hybrid_volume *v, u32 epoch)
{
	return (s32)((u32)READ_ONCE(v->flush.flushed) - epoch) >= 0;
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

/* Number of blocks that a miss fills together, and the first of those around @key. */
static inline u32 near_blocks(const struct hybrid_engine *e)
{
	return max(NEAR_SECTORS >> e->g->block_shift, 1);
}

static inline u64 near_first(const struct hybrid_engine *e, u64 key)
{
	return key & ~(u64)(near_blocks(e) - 1);
}

/* Granules of a job's block @k, taken from @mask, which covers the whole job. */
static inline u64 job_mask(const struct hybrid_engine *e, u64 mask, u32 k)
{
	return (mask >> (k * e->g->granules)) & e->map.granules;
}

/* Sectors in @n granules of a job from granule @at on, cut at the volume's end. */
static inline u32 job_sectors(const struct hybrid_engine *e, const struct hybrid_job *job, u32 at,
			      u32 n)
{
	u64 start = key_sector(e, job->key) + ((u64)at << e->g->granule_shift);

	return min_t(u64, (u64)n << e->g->granule_shift, job->volume->info.data_sectors - start);
}

/*
 * Is all dirty data of @v to be written back, and no data to become dirty?  Also without the lock.
 */
static inline bool drains(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	return READ_ONCE(v->drain.on) || READ_ONCE(e->writebacks.drain.on);
}

/* Number of blocks of @v that are dirty in RAM, or on record if that is larger. */
static inline u32 dirty_blocks(const struct hybrid_volume *v)
{
	return max(atomic_read(&v->blocks.dirty), atomic_read(&v->blocks.jdirty));
}

/*
 * Is a drain of the pool on, or one of @v that has dirty blocks left, in RAM or on record?  Under
 * the engine's lock.
 */
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

/* Number of blocks of the set on their way to its free list. */
static inline u32 leaving(const struct hybrid_engine *e, const struct hybrid_set *s)
{
	return e->map.set_size - (s->nr_mapped + s->nr_free + s->nr_retired);
}

/* Sectors in granules of @v that are dirty in RAM or on record. */
static inline u64 dirty_sectors(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	return (u64)atomic64_read(&v->blocks.granules) << e->g->granule_shift;
}

/* Has @v reached its limit of dirty blocks, which hybrid_stall_share() sets? */
static inline bool dirty_limit_reached(const struct hybrid_volume *v)
{
	return (u32)atomic_read(&v->blocks.dirty) >= READ_ONCE(v->blocks.most_dirty);
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
	return !list_empty(&s->waiting.ios) || !list_empty(&s->waiting.ranges) || s->closing;
}

/*
 * May a job retry after an error?  Not while a suspend or a stop waits for it, which then waits
 * for one operation at most.
 */
static inline bool may_try_again(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	return !is_suspended(v) && !is_stopping(e) && !READ_ONCE(e->life.failed);
}

/*
 * Credit for I/O at @rate KiB a second, @ms later, and at most a second's worth.  Its unit is
 * sectors times ms, so that the lowest rate counts in the shortest tick.
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

/*
 * A read of the origin begins that a user waits for; hybrid_stall_read_ended() ends it.  Any
 * context.
 */
static inline void stall_read_begins(struct hybrid_volume *v)
{
	atomic_inc(&v->nr_reads);
}

/* A write that makes granules dirty begins.  Any context. */
static inline void sync_written(struct hybrid_volume *v)
{
	struct hybrid_sync *sync = &v->users.sync;
	u16 writes = READ_ONCE(sync->writes) + 1, left = READ_ONCE(sync->left);

	if (writes >= SYNC_WRITES) {
		writes /= 2;
		WRITE_ONCE(sync->flushes, READ_ONCE(sync->flushes) / 2);
	}
	WRITE_ONCE(sync->writes, writes);
	if (left < SYNC_WRITES)
		WRITE_ONCE(sync->left, left + 1);
}

/* A user's flush begins, or a write with FUA.  Any context. */
static inline void sync_flushed(struct hybrid_volume *v)
{
	struct hybrid_sync *sync = &v->users.sync;
	u16 left = READ_ONCE(sync->left), flushes = READ_ONCE(sync->flushes);

	if (!left)
		return;
	WRITE_ONCE(sync->left, left - 1);
	if (flushes < SYNC_WRITES)
		WRITE_ONCE(sync->flushes, flushes + 1);
}

/* Do the volume's users flush after more than half of their writes? */
static inline bool volume_syncs(const struct hybrid_volume *v)
{
	const struct hybrid_sync *sync = &v->users.sync;

	return READ_ONCE(sync->flushes) * 2 > READ_ONCE(sync->writes);
}

/* The sector of the origin where the data of @io is. */
static inline u64 io_origin_sector(const struct hybrid_io *io)
{
	return io->volume->info.data_sector + io->sector;
}

/* First sector of a block's granule, on the cache device and on the origin. */
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
	u64 rest = *at < 64 ? mask >> *at : 0;

	if (!rest)
		return 0;
	*at += __ffs64(rest);
	rest = ~(mask >> *at);
	return rest ? __ffs64(rest) : 64;
}

/* The sector of the cache device where the data of @io is, in block @i. */
static inline u64 io_cache_sector(const struct hybrid_engine *e, const struct hybrid_io *io, u32 i)
{
	return cache_sector(e, io->set, i, 0) + (io->sector & (e->g->block_sectors - 1));
}

/* Index of the block that @io went to.  Only for I/O to the cache alone, and without a job. */
static inline u32 io_block(const struct hybrid_engine *e, const struct hybrid_io *io)
{
	return (io->op.sector - cache_sector(e, io->set, 0, 0)) >> e->g->block_shift;
}

/* Sets the key, set and granules of an I/O within one block. */
static inline void io_locate(const struct hybrid_engine *e, struct hybrid_io *io)
{
	const struct hybrid_geometry *g = e->g;
	u32 start = io->sector & (g->block_sectors - 1);

	io->key = hybrid_key(io->volume->id, to_oblock(io->sector >> g->block_shift));
	io->set = hybrid_map_set_of(&e->map, io->key);
	io->mask = GENMASK_ULL((start + io->count - 1) >> g->granule_shift,
			       start >> g->granule_shift);
}

/* Notes users' I/O to the volume, except read hits.  Writes at most once in an interval. */
static inline void note_foreground(struct hybrid_volume *v)
{
	if (!READ_ONCE(v->users.now))
		WRITE_ONCE(v->users.now, true);
}

/*
 * Was there no users' I/O to the volume in this interval, which may have only just begun, and in
 * the one before?  Users of other volumes do not use its origin.
 */
static inline bool users_idle(const struct hybrid_volume *v)
{
	return !READ_ONCE(v->users.now) && READ_ONCE(v->users.idle);
}

/* Enters an epoch of lock-free readers (engine-evict.c); returns the phase for epoch_leave(). */
static inline u32 epoch_enter(struct hybrid_engine *e)
{
	u32 phase = READ_ONCE(e->evict.phase) & 1;

	this_cpu_inc(e->evict.readers->enter[phase]);
	/* Entered before anything is looked up. */
	smp_mb();
	return phase;
}

static inline void epoch_leave(struct hybrid_engine *e, u32 phase)
{
	/* All reads come before the block may go; pairs with phase_empty(). */
	smp_mb();
	this_cpu_inc(e->evict.readers->leave[phase]);
}

/* engine.c: only for the events there, and for tests of other files' functions */
void hybrid_engine_settle(struct hybrid_engine *e, struct hybrid_actions *acts);

#endif
