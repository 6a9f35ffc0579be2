// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sequential runs: their length, the blocks that stay cached of a run that does not
 * fit, and readahead of a run into memory.
 *
 * A disk reads in order a third as fast as an SSD or faster, so that a loop that
 * is larger than the cache gains little as long as one device waits while the
 * other works.  Two measures keep both at work:
 *
 * - Of a run that is longer than the cutoff whole segments stay, evenly spread.
 *   Each segment has a rank.  Once a set is full, a block of the run replaces
 *   a block of the same run with a higher rank, if there is one.  The ranks are
 *   multiples of the golden ratio: any few of a run's lowest are spread evenly.
 *
 * - When a run reaches cached blocks, the origin becomes idle.  Then the beginning
 *   of the next hole is read into memory, and stays there until the run gets to it:
 *
 *   1. a job of a window's missing blocks, JOB_READAHEAD, is listed in their set, and
 *      the origin is read into its buffer;
 *   2. reads of ->readable granules are served from the buffer, each granule once,
 *      as by a fill.  Nothing becomes valid, and nothing is written;
 *   3. a write, a discard, or a new cache block takes its granules out of
 *      ->readable.  Reads that came before may get the data from before;
 *   4. when no granule is readable any more the job is retired: off all lists, and
 *      free once its read and the copies have ended.
 *
 *   So a readable granule is in no block, no write to it is under way, and the
 *   origin has not changed since it was read: a read of the origin would return
 *   the same data.  hybrid_engine_check() verifies this.
 */
#include "engine-internal.h"

#define SEGMENT_SECTORS	16384	/* 8 MiB: far more than the disk passes in a seek */
#define LONGEST_SPREAD	4	/* times the cache; spreading a longer run would gain nothing */
#define SHORTEST_RUN	512	/* sectors; no shorter run is expected behind cached blocks */
#define READAHEAD_FAR	131072	/* cached sectors to search for the next hole */
#define READAHEAD_TICKS	20	/* until unread data is dropped */

/* ---- runs ---------------------------------------------------------------- */

void hybrid_streams_init(struct hybrid_streams *s)
{
	u32 k;

	spin_lock_init(&s->lock);
	INIT_LIST_HEAD(&s->list);
	for (k = 0; k < NR_STREAMS; k++)
		list_add(&s->stream[k].link, &s->list);
}

struct hybrid_stream *hybrid_stream_find(struct hybrid_volume *v, u64 sector)
{
	struct hybrid_stream *st;

	list_for_each_entry(st, &v->streams.list, link)
		if (st->next == sector && st->sectors)
			return st;
	return NULL;
}

u64 hybrid_stream_run(struct hybrid_volume *v, const struct hybrid_io *io, u64 *from)
{
	struct hybrid_stream *st;
	unsigned long flags;
	u64 run = io->count;

	if (io->flags & HYBRID_IO_META)
		return 0;
	spin_lock_irqsave(&v->streams.lock, flags);
	st = hybrid_stream_find(v, io->sector);
	if (st) {
		run += st->sectors;
	} else {
		st = list_last_entry(&v->streams.list, struct hybrid_stream, link);
		st->from = io->sector;
	}
	st->next = io->sector + io->count;
	st->sectors = run;
	list_move(&st->link, &v->streams.list);
	if (from)
		*from = st->from;
	spin_unlock_irqrestore(&v->streams.lock, flags);
	return run;
}

/* Returns the length of the run that has come to @sector, in sectors; 0 if there is none. */
static u64 stream_length(struct hybrid_volume *v, u64 sector)
{
	struct hybrid_stream *st;
	unsigned long flags;
	u64 run;

	spin_lock_irqsave(&v->streams.lock, flags);
	st = hybrid_stream_find(v, sector);
	run = st ? st->sectors : 0;
	spin_unlock_irqrestore(&v->streams.lock, flags);
	return run;
}

/* The run will go on at @next: all sectors up to there are cached. */
static void stream_skip(struct hybrid_volume *v, u64 sector, u64 next)
{
	struct hybrid_stream *st;
	unsigned long flags;

	spin_lock_irqsave(&v->streams.lock, flags);
	st = hybrid_stream_find(v, sector);
	if (st) {
		st->next = next;
		st->from = next;
	}
	spin_unlock_irqrestore(&v->streams.lock, flags);
}

/* ---- blocks that stay ---------------------------------------------------- */

void hybrid_stream_create(struct hybrid_engine *e)
{
	u64 cache = (u64)e->g->nr_blocks << e->g->block_shift;
	u32 window = e->g->block_sectors << e->g->window_shift;
	u32 segment = clamp_t(u64, cache / 32, window, max_t(u32, window, SEGMENT_SECTORS));

	INIT_LIST_HEAD(&e->runs.readahead);
	e->runs.segment_shift = ilog2(segment) - e->g->block_shift;
	e->runs.shortest = min_t(u64, SHORTEST_RUN, cache / 8);
}

static u32 segment_rank(const struct hybrid_engine *e, u64 key)
{
	return ((key >> e->runs.segment_shift) * GOLDEN_RATIO_64) >> 32;
}

/* Returns the block from @first to @key with the highest rank, if above @key's own; or -1. */
static int spread_victim(struct hybrid_engine *e, struct hybrid_set *s, u64 first, u64 key)
{
	u32 highest = segment_rank(e, key), rank, i;
	int victim = -1;

	for (i = 0; i < e->map.set_size; i++) {
		if (s->key[i] < first || s->key[i] >= key)
			continue;
		rank = segment_rank(e, s->key[i]);
		if (rank > highest && hybrid_may_evict(e, s, i)) {
			highest = rank;
			victim = i;
		}
	}
	return victim;
}

bool hybrid_stream_spreads(struct hybrid_engine *e, struct hybrid_set *s,
			   const struct hybrid_io *io,
			   u64 from, u64 run, struct hybrid_actions *acts)
{
	u64 cache = (u64)e->g->nr_blocks << e->g->block_shift, first;
	int i;

	lockdep_assert_held(&s->lock);
	if (run > LONGEST_SPREAD * cache || READ_ONCE(e->wear.endurance) != ENDURANCE_PLENTY ||
	    s->nr_free <= e->evict.reserve / 2)
		return false;
	first = hybrid_key(io->volume->id, to_oblock((from + e->g->block_sectors - 1) >>
						     e->g->block_shift));
	i = spread_victim(e, s, first, io->key);
	if (i < 0 || !hybrid_evict_block(e, io->set, i))
		return false;
	/* An evicted block is free with the next commit; half of the reserve is for writes. */
	if (s->nr_free <= e->evict.reserve / 4 * 3)
		want(acts, WANT_COMMIT);
	return true;
}

/* ---- readahead into memory ----------------------------------------------- */

static void readahead_done(struct hybrid_engine *e, struct hybrid_op *op,
			   struct hybrid_actions *acts);

static u64 next_window(const struct hybrid_engine *e, u64 key)
{
	return (key | (window_blocks(e) - 1)) + 1;
}

/* Granules @mask of @key's block, counted from the first block of the job. */
static u64 readahead_mask(const struct hybrid_engine *e, const struct hybrid_job *job, u64 key,
			  u64 mask)
{
	u64 k = key - job->key;

	return k < window_blocks(e) ? mask << (k * e->g->granules) : 0;
}

/* The job that has read, or reads, any of the granules.  Caller holds the set's lock. */
static struct hybrid_job *readahead_find(struct hybrid_engine *e, struct hybrid_set *s,
					 u64 key, u64 mask)
{
	struct hybrid_job *job;

	lockdep_assert_held(&s->lock);
	/* A job that begins in this set is counted under its lock. */
	if (!READ_ONCE(e->runs.nr_readahead))
		return NULL;
	list_for_each_entry(job, &s->jobs, link)
		if (job->type == JOB_READAHEAD &&
		    (readahead_mask(e, job, key, mask) & job->readable))
			return job;
	return NULL;
}

/* Granules @mask can no longer be read from the job.  Caller holds the set's lock. */
static void readahead_ends(struct hybrid_engine *e, struct hybrid_job *job, u64 mask,
			   enum readahead_end why)
{
	unsigned long flags;

	job->readable &= ~mask;
	if (!job->readable)
		list_del_init(&job->link);
	spin_lock_irqsave(&e->lock, flags);
	e->runs.ends[why]++;
	if (!job->readable) {
		list_del_init(&job->readahead.link);
		WRITE_ONCE(e->runs.nr_readahead, e->runs.nr_readahead - 1);
	}
	spin_unlock_irqrestore(&e->lock, flags);
	job->done = job->in_buffer && !job->readable;
}

/* Calls readahead_ends(), and frees the job if nothing uses it any more. */
static void readahead_drop(struct hybrid_engine *e, struct hybrid_job *job, u64 mask,
			   enum readahead_end why)
{
	readahead_ends(e, job, mask, why);
	/* No io waits for a job of this kind: no action follows. */
	if (job->done && !job->copies)
		hybrid_job_put(e, job, NULL);
}

void hybrid_readahead_forget(struct hybrid_engine *e, struct hybrid_set *s, u64 key, u64 mask,
			     enum readahead_end why)
{
	struct hybrid_job *job;

	lockdep_assert_held(&s->lock);
	while ((job = readahead_find(e, s, key, mask)))
		readahead_drop(e, job, readahead_mask(e, job, key, mask), why);
}

bool hybrid_readahead_serve(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			    struct hybrid_actions *acts)
{
	struct hybrid_job *job = readahead_find(e, s, io->key, io->mask);
	u64 mask;

	lockdep_assert_held(&s->lock);
	/* Metadata is to be cached, not only read. */
	if (!job || (io->flags & HYBRID_IO_META))
		return false;
	mask = readahead_mask(e, job, io->key, io->mask);
	if (mask & ~job->readable)
		return false;
	if (job->in_buffer)
		hybrid_job_serve(e, job, io, acts);
	else
		list_add_tail(&io->link, &job->readers);
	readahead_ends(e, job, mask, READAHEAD_READ);
	return true;
}

/* Leaves some jobs to fills. */
static bool readahead_allowed(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	return READ_ONCE(e->runs.nr_readahead) < e->jobs.pool[AHEADS].most / 4 * 3 &&
	       !READ_ONCE(e->life.failed) && READ_ONCE(v->mode) != HYBRID_MODE_PASSTHROUGH;
}

/* Reads @n blocks from the job's key on.  Caller holds the set's lock. */
static void readahead_start(struct hybrid_engine *e, struct hybrid_job *job, u32 set, u32 n,
			    struct hybrid_actions *acts)
{
	u32 granules = n * e->g->granules, sectors = job_sectors(e, job, 0, granules);
	unsigned long flags;

	lockdep_assert_held(&e->map.set[set].lock);
	job->set = set;
	/* The last block of a volume may be short. */
	job->readable = GENMASK_ULL((sectors - 1) >> e->g->granule_shift, 0);
	list_add_tail(&job->link, &e->map.set[set].jobs);
	WRITE_ONCE(job->readahead.age, 0);
	spin_lock_irqsave(&e->lock, flags);
	list_add_tail(&job->readahead.link, &e->runs.readahead);
	WRITE_ONCE(e->runs.nr_readahead, e->runs.nr_readahead + 1);
	spin_unlock_irqrestore(&e->lock, flags);
	hybrid_job_transfer(job, false, readahead_done);
	hybrid_job_segment(job, true, origin_sector(e, job->volume, job->key, 0), 0, sectors);
	act(acts, &job->op);
}

/* Reads the missing blocks of @key's window, from @key up to the first other block. */
static void readahead_window(struct hybrid_engine *e, struct hybrid_volume *v, u64 hole, u64 key,
			     struct hybrid_actions *acts)
{
	u64 end = next_window(e, key), next = key;
	u32 set = hybrid_map_set_of(&e->map, key);
	struct hybrid_set *s = &e->map.set[set];
	struct hybrid_job *job = NULL;
	unsigned long flags;

	hybrid_job_prepare(e, AHEADS);
	spin_lock_irqsave(&s->lock, flags);
	while (next < end && hybrid_block_missing(e, s, v, next) &&
	       !readahead_find(e, s, next, e->map.granules))
		next++;
	if (next > key && readahead_allowed(e, v))
		job = hybrid_fill_get(e, JOB_READAHEAD, v, key);
	if (job) {
		job->readahead.hole = hole;
		readahead_start(e, job, set, next - key, acts);
	}
	spin_unlock_irqrestore(&s->lock, flags);
}

/*
 * Reads one window after the other: a disk would read several in an order of its own.
 * Once the run has reached the hole, its own reads go on.
 */
static void readahead_next(struct hybrid_engine *e, struct hybrid_job *job,
			   struct hybrid_actions *acts)
{
	struct hybrid_set *s = &e->map.set[job->set];
	unsigned long flags;
	bool wanted;

	spin_lock_irqsave(&s->lock, flags);
	wanted = job->readable;
	spin_unlock_irqrestore(&s->lock, flags);
	if (wanted && stream_length(job->volume, job->readahead.hole))
		readahead_window(e, job->volume, job->readahead.hole,
				 next_window(e, job->key), acts);
}

static void readahead_done(struct hybrid_engine *e, struct hybrid_op *op,
			   struct hybrid_actions *acts)
{
	struct hybrid_job *job = container_of(op, struct hybrid_job, op);
	struct hybrid_set *s = &e->map.set[job->set];
	unsigned long flags;
	bool last;

	/* Until the data is in the buffer, nobody else gives up job or volume. */
	if (!op->error_origin)
		readahead_next(e, job, acts);
	spin_lock_irqsave(&s->lock, flags);
	if (op->error_origin) {
		hybrid_job_fail_readers(job, acts);
		if (job->readable)
			readahead_ends(e, job, job->readable, READAHEAD_FAILED);
	}
	hybrid_job_serve_readers(e, job, acts);
	job->done = !job->readable;
	last = job->done && !job->copies;
	spin_unlock_irqrestore(&s->lock, flags);
	if (last)
		hybrid_job_put(e, job, acts);
}

/* Is the block of @key cached, so that its reads are hits, not seen here?  A hint. */
static bool is_cached(const struct hybrid_engine *e, u64 key)
{
	const struct hybrid_set *s = &e->map.set[hybrid_map_set_of(&e->map, key)];
	int i = hybrid_set_find(&e->map, s, key);

	return i >= 0 && !(READ_ONCE(s->flags[i]) & BLOCK_AHEAD);
}

static u64 next_hole(const struct hybrid_engine *e, u64 key, u64 end)
{
	while (key < end && is_cached(e, key))
		key++;
	return key;
}

/*
 * Hits are not seen here, so a run that comes to cached blocks is expected behind them.
 * Its length counts only the sectors read in its holes.
 */
void hybrid_stream_ahead(struct hybrid_engine *e, struct hybrid_volume *v, u64 sector,
			 struct hybrid_actions *acts)
{
	u64 first = sector >> e->g->block_shift, blocks = v->info.data_sectors >> e->g->block_shift;
	u64 key = hybrid_key(v->id, to_oblock(first)), cutoff = READ_ONCE(v->cutoff);
	u64 end, hole, run;

	if ((sector & (e->g->block_sectors - 1)) || first >= blocks || !cutoff ||
	    !is_cached(e, key))
		return;
	run = stream_length(v, sector);
	if (!run || run < e->runs.shortest)
		return;
	end = hybrid_key(v->id, to_oblock(min(blocks,
					      first + (READAHEAD_FAR >> e->g->block_shift))));
	hole = next_hole(e, key, end);
	if (hole >= end)
		return;
	stream_skip(v, sector, key_sector(e, hole));
	if (run > cutoff)
		readahead_window(e, v, key_sector(e, hole), hole, acts);
}

/* Returns the set of a readahead that is at least @age ticks old, or -1. */
static s64 readahead_of_age(struct hybrid_engine *e, const struct hybrid_volume *v, u32 age)
{
	struct hybrid_job *job;
	unsigned long flags;
	s64 set = -1;

	spin_lock_irqsave(&e->lock, flags);
	list_for_each_entry(job, &e->runs.readahead, readahead.link)
		if ((!v || job->volume == v) && READ_ONCE(job->readahead.age) >= age) {
			set = job->set;
			break;
		}
	spin_unlock_irqrestore(&e->lock, flags);
	return set;
}

static void drop_readahead(struct hybrid_engine *e, const struct hybrid_volume *v, u32 age,
			   enum readahead_end why)
{
	struct hybrid_job *job, *next;
	struct hybrid_set *s;
	unsigned long flags;
	s64 set;

	while (READ_ONCE(e->runs.nr_readahead) && (set = readahead_of_age(e, v, age)) >= 0) {
		s = &e->map.set[set];
		spin_lock_irqsave(&s->lock, flags);
		list_for_each_entry_safe(job, next, &s->jobs, link)
			if (job->type == JOB_READAHEAD && (!v || job->volume == v) &&
			    READ_ONCE(job->readahead.age) >= age)
				readahead_drop(e, job, job->readable, why);
		spin_unlock_irqrestore(&s->lock, flags);
	}
}

void hybrid_readahead_drop(struct hybrid_engine *e, const struct hybrid_volume *v,
			   enum readahead_end why)
{
	drop_readahead(e, v, 0, why);
}

void hybrid_readahead_tick(struct hybrid_engine *e)
{
	struct hybrid_job *job;
	unsigned long flags;

	if (!READ_ONCE(e->runs.nr_readahead))
		return;
	spin_lock_irqsave(&e->lock, flags);
	list_for_each_entry(job, &e->runs.readahead, readahead.link)
		WRITE_ONCE(job->readahead.age, READ_ONCE(job->readahead.age) + 1);
	spin_unlock_irqrestore(&e->lock, flags);
	drop_readahead(e, NULL, READ_ONCE(e->life.failed) ? 0 : READAHEAD_TICKS, READAHEAD_UNUSED);
}

/* ---- for the simulator --------------------------------------------------- */

const char *hybrid_readahead_check(struct hybrid_engine *e, struct hybrid_set *s)
{
	struct hybrid_job *job;
	u32 k;

	list_for_each_entry(job, &s->jobs, link) {
		if (job->type != JOB_READAHEAD)
			continue;
		if (!job->readable)
			return "a readahead without data is not retired";
		for (k = 0; k < window_blocks(e); k++) {
			u64 mask = job_mask(e, job->readable, k);

			if (mask && hybrid_set_find(&e->map, s, job->key + k) >= 0)
				return "data read ahead is in a block, too";
			if (mask && hybrid_write_in_flight(s, job->key + k, mask))
				return "data read ahead is being written";
		}
	}
	return NULL;
}
