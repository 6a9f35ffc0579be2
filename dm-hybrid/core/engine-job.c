// SPDX-License-Identifier: GPL-2.0-only
/*
 * Jobs that move data through a buffer: fills, and users' I/O that goes to, or
 * comes from, both devices.
 *
 * A fill:
 *   1. its block is mapped with nothing valid, and BUSY: writes to it wait;
 *   2. the origin is read into the buffer;
 *   3. the readers that wait are served from the buffer;
 *   4. the granules that were not valid are written to the cache;
 *   5. they become valid.  A lazy commit records it, after an origin flush if
 *      writes were outstanding (J5).
 */
#include "engine-internal.h"

static struct hybrid_job *job_alloc(struct hybrid_engine *e, u32 sectors, gfp_t gfp)
{
	struct hybrid_job *job = kzalloc(sizeof(*job), gfp);

	if (!job)
		return NULL;
	job->sectors = sectors;
	job->buffer = e->ops->alloc_buffer(e, sectors, gfp);
	if (!job->buffer) {
		kfree(job);
		return NULL;
	}
	INIT_LIST_HEAD(&job->link);
	INIT_LIST_HEAD(&job->op.link);
	INIT_LIST_HEAD(&job->readers);
	INIT_LIST_HEAD(&job->readahead.link);
	return job;
}

static void job_free(struct hybrid_engine *e, struct hybrid_job *job)
{
	e->ops->free_buffer(e, job->buffer);
	kfree(job);
}

static void pool_create(struct hybrid_job_pool *p, u32 sectors, u32 own_sectors, u32 most)
{
	INIT_LIST_HEAD(&p->free);
	p->sectors = sectors;
	p->own_sectors = own_sectors;
	p->most = min(most, MAX_JOB_MEMORY / sectors);
}

static bool may_grow(const struct hybrid_engine *e, const struct hybrid_job_pool *p)
{
	u32 nr_open = max(READ_ONCE(e->volumes.nr_open), 1U);

	return !READ_ONCE(p->nr_free) && p->most && READ_ONCE(p->nr) < p->most + nr_open - 1;
}

/* Under the engine's lock. */
static void pool_add(struct hybrid_job_pool *p, struct hybrid_job *job)
{
	list_add(&job->link, &p->free);
	WRITE_ONCE(p->nr_free, p->nr_free + 1);
}

void hybrid_job_prepare(struct hybrid_engine *e, enum job_kind kind)
{
	struct hybrid_job_pool *p = &e->jobs.pool[kind];
	struct hybrid_job *job;
	unsigned long flags;

	if (!may_grow(e, p))
		return;
	job = job_alloc(e, p->sectors, GFP_NOWAIT | __GFP_NOWARN);
	if (!job)
		return;
	spin_lock_irqsave(&e->lock, flags);
	if (may_grow(e, p)) {
		pool_add(p, job);
		WRITE_ONCE(p->nr, p->nr + 1);
		job = NULL;
	}
	spin_unlock_irqrestore(&e->lock, flags);
	if (job)
		job_free(e, job);
}

/* Returns NULL if no job is free, nor the volume's own.  Under the engine's lock. */
static struct hybrid_job *pool_take(struct hybrid_job_pool *p, struct hybrid_job_share *share)
{
	struct hybrid_job *job;

	if (list_empty(&p->free)) {
		if (share->own_busy)
			return NULL;
		share->own_busy = share->own;
		return share->own;
	}
	job = list_first_entry(&p->free, struct hybrid_job, link);
	list_del_init(&job->link);
	WRITE_ONCE(p->nr_free, p->nr_free - 1);
	p->spare = min(p->spare, p->nr_free);
	return job;
}

/*
 * Moves an eighth of the jobs that nobody needed since the last tick to @out, the least recently
 * used first: all of them are freed within some seconds.  Under the engine's lock.
 */
static void pool_tick(struct hybrid_job_pool *p, struct list_head *out)
{
	u32 nr;

	for (nr = DIV_ROUND_UP(p->spare, 8); nr; nr--) {
		list_move(p->free.prev, out);
		WRITE_ONCE(p->nr_free, p->nr_free - 1);
		WRITE_ONCE(p->nr, p->nr - 1);
	}
	p->spare = p->nr_free;
}

static void free_list(struct hybrid_engine *e, struct list_head *list)
{
	struct hybrid_job *job, *next;

	list_for_each_entry_safe(job, next, list, link)
		job_free(e, job);
}

static void claim_end(struct hybrid_job_pool *p, struct hybrid_job_share *share)
{
	p->nr_claims -= share->claims;
	share->claims = false;
}

void hybrid_jobs_unclaim(struct hybrid_engine *e, struct hybrid_volume *v)
{
	u32 k;

	lockdep_assert_held(&e->lock);
	for (k = 0; k < NR_JOB_KINDS; k++)
		claim_end(&e->jobs.pool[k], &v->jobs.share[k]);
}

/* No claim is older than a tick.  Under the engine's lock. */
static void volume_tick(struct hybrid_engine *e, struct hybrid_volume *v,
			struct list_head *woken)
{
	u32 left = e->jobs.pool[FILLS].most;

	lockdep_assert_held(&e->lock);
	hybrid_jobs_unclaim(e, v);
	/* No more than could get a job: each that ends goes to the next one. */
	for (; left && !list_empty(&v->jobs.waiters); left--) {
		WRITE_ONCE(e->jobs.nr_waiters, e->jobs.nr_waiters - 1);
		list_move_tail(v->jobs.waiters.next, woken);
	}
}

void hybrid_jobs_tick(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_volume *v;
	unsigned long flags;
	LIST_HEAD(woken);
	LIST_HEAD(out);
	u32 k;

	spin_lock_irqsave(&e->lock, flags);
	for (k = 0; k < NR_JOB_KINDS; k++)
		pool_tick(&e->jobs.pool[k], &out);
	list_for_each_entry(v, &e->volumes.open, open_link)
		volume_tick(e, v, &woken);
	spin_unlock_irqrestore(&e->lock, flags);
	free_list(e, &out);
	hybrid_rerun_list(&woken, acts);
}

bool hybrid_jobs_spare(const struct hybrid_engine *e)
{
	u32 k, nr = 0;

	for (k = 0; k < NR_JOB_KINDS; k++)
		nr += READ_ONCE(e->jobs.pool[k].nr);
	return nr;
}

static enum job_kind kind_of(enum job_type type)
{
	static const u8 kind[] = {
		[JOB_FILL] = FILLS, [JOB_STAGED] = FILLS, [JOB_AHEAD] = AHEADS,
		[JOB_READAHEAD] = AHEADS, [JOB_WRITEBACK] = WRITEBACKS,
	};

	return kind[type];
}

static bool has_share(const struct hybrid_engine *e, const struct hybrid_job_pool *p,
		      const struct hybrid_job_share *share)
{
	return share->nr >= max(p->most / max(e->volumes.nr_open, 1U), 1U);
}

/* May a volume with that share take another job?  Under the engine's lock. */
static bool may_take(const struct hybrid_engine *e, const struct hybrid_job_pool *p,
		     const struct hybrid_job_share *share)
{
	lockdep_assert_held(&e->lock);
	if (!p->most || !share->nr)
		return p->most;
	return p->lent < p->most - 1 && !(p->nr_claims && has_share(e, p, share));
}

/* Takes a job if allowed; a volume that is refused less than its share claims it. */
static struct hybrid_job *share_take(struct hybrid_engine *e, struct hybrid_job_pool *p,
				     struct hybrid_job_share *share)
{
	struct hybrid_job *job = NULL;

	if (may_take(e, p, share)) {
		job = pool_take(p, share);
	} else if (p->most && !share->claims && !has_share(e, p, share)) {
		share->claims = true;
		p->nr_claims++;
	}
	if (!job)
		return NULL;
	if (share->nr++)
		p->lent++;
	if (has_share(e, p, share))
		claim_end(p, share);
	return job;
}

void hybrid_jobs_create(struct hybrid_engine *e)
{
	u32 block = e->g->block_sectors, window = block << e->g->window_shift;
	u32 near = block * near_blocks(e);

	pool_create(&e->jobs.pool[FILLS], near, near, NR_FILL_JOBS);
	pool_create(&e->jobs.pool[AHEADS], window, 0, window > block ? NR_AHEAD_JOBS : 0);
	pool_create(&e->jobs.pool[WRITEBACKS], window, OWN_WRITEBACK_SECTORS, NR_WRITEBACK_JOBS);
}

void hybrid_jobs_destroy(struct hybrid_engine *e)
{
	u32 k;

	for (k = 0; k < NR_JOB_KINDS; k++)
		free_list(e, &e->jobs.pool[k].free);
}

int hybrid_jobs_reserve(struct hybrid_engine *e, struct hybrid_volume *v)
{
	u32 k;

	for (k = 0; k < NR_JOB_KINDS; k++) {
		if (!e->jobs.pool[k].own_sectors)
			continue;
		v->jobs.share[k].own = job_alloc(e, e->jobs.pool[k].own_sectors, GFP_KERNEL);
		if (!v->jobs.share[k].own)
			return -ENOMEM;
	}
	return 0;
}

void hybrid_jobs_release(struct hybrid_volume *v)
{
	u32 k;

	for (k = 0; k < NR_JOB_KINDS; k++) {
		if (v->jobs.share[k].own)
			job_free(v->e, v->jobs.share[k].own);
		v->jobs.share[k].own = NULL;
	}
}

/* Caller holds the engine's lock, so that nothing begins once a suspend or stop is granted. */
static bool may_begin(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	lockdep_assert_held(&e->lock);
	return v->state == VOLUME_OPEN && !is_stopping(e) && !READ_ONCE(e->life.failed);
}

/* Under the engine's lock. */
static struct hybrid_job *get_locked(struct hybrid_engine *e, enum job_type type,
				     struct hybrid_volume *v)
{
	enum job_kind k = kind_of(type);
	struct hybrid_job *job;

	lockdep_assert_held(&e->lock);
	if ((type == JOB_WRITEBACK || type == JOB_READAHEAD) && !may_begin(e, v))
		return NULL;
	job = share_take(e, &e->jobs.pool[k], &v->jobs.share[k]);
	if (!job)
		return NULL;
	e->jobs.nr_busy++;
	v->jobs.nr++;
	job->type = type;
	job->volume = v;
	job->in_buffer = false;
	job->exclusive = false;
	job->closing = false;
	job->parts.one_by_one = false;
	job->done = false;
	job->from = 0;
	job->touched = 0;
	job->copies = 0;
	job->io = NULL;
	job->op.private = NULL;
	return job;
}

struct hybrid_job *hybrid_job_get(struct hybrid_engine *e, enum job_type type,
				  struct hybrid_volume *v)
{
	struct hybrid_job *job;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	job = get_locked(e, type, v);
	spin_unlock_irqrestore(&e->lock, flags);
	return job;
}

bool hybrid_job_get_staged(struct hybrid_engine *e, struct hybrid_io *io, bool must,
			   struct hybrid_job **job)
{
	struct hybrid_volume *v = io->volume;
	unsigned long flags;
	bool waits;

	spin_lock_irqsave(&e->lock, flags);
	*job = get_locked(e, JOB_STAGED, v);
	waits = !*job && (must || has_share(e, &e->jobs.pool[FILLS], &v->jobs.share[FILLS]));
	if (waits) {
		list_add_tail(&io->link, &v->jobs.waiters);
		WRITE_ONCE(e->jobs.nr_waiters, e->jobs.nr_waiters + 1);
	}
	spin_unlock_irqrestore(&e->lock, flags);
	return !waits;
}

void hybrid_job_ended(struct hybrid_engine *e, struct hybrid_volume *v, enum job_kind kind,
		      struct hybrid_actions *acts)
{
	struct hybrid_job_pool *p = &e->jobs.pool[FILLS];
	struct hybrid_job_share *share = &v->jobs.share[FILLS];
	struct hybrid_io *io = NULL;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	if (kind == FILLS && (p->nr_free || !share->own_busy) && may_take(e, p, share))
		io = list_first_entry_or_null(&v->jobs.waiters, struct hybrid_io, link);
	if (io) {
		list_del_init(&io->link);
		WRITE_ONCE(e->jobs.nr_waiters, e->jobs.nr_waiters - 1);
	} else {
		e->jobs.nr_busy--;
		v->jobs.nr--;
	}
	spin_unlock_irqrestore(&e->lock, flags);
	if (!io)
		return;
	io->wait = WAIT_JOB;
	/* Before I/O that waited for the end of the same write or fill, and may take the job. */
	list_add(&io->op.link, &acts->again);
}

/* The job is on no list of its set any more. */
void hybrid_job_put(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_actions *acts)
{
	enum job_kind k = kind_of(job->type);
	struct hybrid_job_pool *p = &e->jobs.pool[k];
	struct hybrid_volume *v = job->volume;
	struct hybrid_job_share *share = &v->jobs.share[k];
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	/* Rather lose the job than let a count wrap: a suspend waits until it is 0. */
	if (!engine_assert(e, list_empty(&job->link) && share->nr && v->jobs.nr)) {
		spin_unlock_irqrestore(&e->lock, flags);
		return;
	}
	if (--share->nr)
		p->lent--;
	if (job == share->own)
		share->own_busy = false;
	else
		pool_add(p, job);
	spin_unlock_irqrestore(&e->lock, flags);
	hybrid_job_ended(e, v, k, acts);
}

/* The job that works on the block of @key.  Caller holds the set's lock. */
struct hybrid_job *hybrid_job_find(struct hybrid_engine *e, struct hybrid_set *s, u64 key)
{
	struct hybrid_job *job;

	lockdep_assert_held(&s->lock);
	list_for_each_entry(job, &s->jobs, link)
		if (key - job->key < window_blocks(e) && job->block[key - job->key] >= 0)
			return job;
	return NULL;
}

void hybrid_job_transfer(struct hybrid_job *job, bool write,
			 void (*done)(struct hybrid_engine *e, struct hybrid_op *op,
				      struct hybrid_actions *acts))
{
	op_begin(&job->op, HYBRID_OP_TRANSFER, write, job->volume, done);
	job->op.segments = job->segment;
	job->op.buffer = job->buffer;
}

void hybrid_job_segment(struct hybrid_job *job, bool origin, u64 sector, u32 offset, u32 sectors)
{
	struct hybrid_segment *seg = &job->segment[job->op.nr_segments++];

	seg->origin = origin;
	seg->sector = sector;
	seg->offset = offset;
	seg->count = sectors;
	if (job->op.write && !origin)
		cache_wears(job->volume->e, sectors);
}

void hybrid_job_cache_segments(struct hybrid_engine *e, struct hybrid_job *job, u64 mask)
{
	u32 k, at, n;

	for (k = 0; k < window_blocks(e); k++) {
		u32 base = k * e->g->granules;
		u64 part = job_mask(e, mask, k);

		for (at = 0; (n = next_run(part, &at)); at += n)
			hybrid_job_segment(job, false, cache_sector(e, job->set, job->block[k], at),
					   (base + at - job->from) << e->g->granule_shift,
					   job_sectors(e, job, base + at, n));
	}
}

/* Give @io its data from the job's buffer. */
static void copy_out(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
		     void (*done)(struct hybrid_engine *e, struct hybrid_op *op,
				  struct hybrid_actions *acts),
		     struct hybrid_actions *acts)
{
	struct hybrid_op *op = &io->op;

	io->job = job;
	op_begin(op, HYBRID_OP_COPY_OUT, false, NULL, done);
	op->io = io;
	op->volume = io->volume;
	op->buffer = job->buffer;
	op->buffer_offset = io->sector - key_sector(e, job->key);
	op->count = io->count;
	act(acts, op);
}

/* ---- fill ---------------------------------------------------------------- */

bool hybrid_fill_forbidden(struct hybrid_engine *e, struct hybrid_set *s, int i)
{
	u64 jclean;

	if (i < 0)
		return false;
	if (hybrid_replaced_granules(e, s, i) || (s->regions.dropping & region_bit(i)))
		return true;
	if (s->regions.dopen & region_bit(i))
		return false;
	jclean = block_mask(e, s, MASK_JVALID, i) & ~block_mask(e, s, MASK_JDIRTY, i);
	return jclean & ~block_mask(e, s, MASK_VALID, i);
}

bool hybrid_fill_conflicts(struct hybrid_engine *e, struct hybrid_set *s,
			   struct hybrid_volume *v, u64 key, int i, u64 mask)
{
	return hybrid_write_in_flight(s, key, mask) || hybrid_fill_forbidden(e, s, i) ||
	       hybrid_range_blocks(v, key_sector(e, key), e->g->block_sectors);
}

bool hybrid_block_missing(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
			  u64 key)
{
	return key_sector(e, key) < v->info.data_sectors &&
	       hybrid_set_find(&e->map, s, key) < 0 &&
	       !hybrid_fill_conflicts(e, s, v, key, -1, e->map.granules);
}

static void fill_copied(struct hybrid_engine *e, struct hybrid_op *op,
			struct hybrid_actions *acts);
static void fill_read(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts);
static void fill_written(struct hybrid_engine *e, struct hybrid_op *op,
			 struct hybrid_actions *acts);

struct hybrid_job *hybrid_fill_get(struct hybrid_engine *e, enum job_type type,
				   struct hybrid_volume *v, u64 key)
{
	struct hybrid_job *job = hybrid_job_get(e, type, v);
	u32 k;

	if (!job)
		return NULL;
	job->key = key;
	job->mask = 0;
	for (k = 0; k < window_blocks(e); k++)
		job->block[k] = -1;
	return job;
}

/* The granules of @io, counted from the first block of its fill. */
static u64 fill_mask(const struct hybrid_engine *e, const struct hybrid_job *job,
		     const struct hybrid_io *io)
{
	return io->mask << ((io->key - job->key) * e->g->granules);
}

void hybrid_fill_add(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_job *job, u64 key,
		     u32 i, u64 mask)
{
	u64 left = job->volume->info.data_sectors - key_sector(e, key);
	u32 k = key - job->key;

	lockdep_assert_held(&s->lock);
	engine_assert(e, job->block[k] < 0 && !(s->flags[i] & BLOCK_BUSY));
	/* The last block of a volume may be short. */
	if (left < e->g->block_sectors)
		mask &= GENMASK_ULL((left - 1) >> e->g->granule_shift, 0);
	job->block[k] = i;
	job->mask |= (mask & ~block_mask(e, s, MASK_VALID, i)) << (k * e->g->granules);
	hybrid_set_flags(s, i, BLOCK_BUSY, 0);
}

/*
 * Reads the granules that are not valid and the granules of @io, in one piece from the
 * first to the last: clean granules are the same on both devices.
 */
void hybrid_fill_start(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
		       struct hybrid_actions *acts)
{
	struct hybrid_set *s = &e->map.set[io->set];
	u64 read = job->mask | fill_mask(e, job, io), dirty;
	u32 first = __ffs64(read), last = fls64(read) - 1, k = io->key - job->key;

	job->set = io->set;
	job->parts.left = job->mask;
	job->parts.failed = 0;
	dirty = block_mask(e, s, MASK_DIRTY, job->block[k]) << (k * e->g->granules);
	job->readable = GENMASK_ULL(last, first) & ~dirty;
	list_add_tail(&job->link, &s->jobs);
	stall_read_begins(job->volume);
	hybrid_job_transfer(job, false, fill_read);
	job->op.direct = true;
	/* A write is no reader: if the pool fails, it may end before the fill. */
	if (io->type == HYBRID_IO_READ) {
		list_add_tail(&io->link, &job->readers);
		job->op.user = io;
	}
	hybrid_job_segment(job, true, origin_sector(e, job->volume, job->key, first),
			   first << e->g->granule_shift,
			   job_sectors(e, job, first, last + 1 - first));
	act(acts, &job->op);
}

void hybrid_job_serve(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
		      struct hybrid_actions *acts)
{
	job->copies++;
	copy_out(e, job, io, fill_copied, acts);
}

void hybrid_job_serve_readers(struct hybrid_engine *e, struct hybrid_job *job,
			      struct hybrid_actions *acts)
{
	struct hybrid_io *io, *next;

	job->in_buffer = true;
	list_for_each_entry_safe(io, next, &job->readers, link) {
		list_del_init(&io->link);
		hybrid_job_serve(e, job, io, acts);
	}
}

void hybrid_job_fail_readers(struct hybrid_job *job, struct hybrid_actions *acts)
{
	struct hybrid_io *io, *next;

	count(job->volume, HYBRID_ORIGIN_ERRORS);
	list_for_each_entry_safe(io, next, &job->readers, link) {
		list_del_init(&io->link);
		hybrid_io_read_origin(io);
		act(acts, &io->op);
	}
}

bool hybrid_fill_join(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
		      struct hybrid_actions *acts)
{
	if (fill_mask(e, job, io) & ~job->readable)
		return false;
	if (job->in_buffer)
		hybrid_job_serve(e, job, io, acts);
	else
		list_add_tail(&io->link, &job->readers);
	return true;
}

/* The fill of block @k has ended: all its granules become valid, or none. */
static void block_filled(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_job *job,
			 u32 k, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = job->volume;
	u32 i = job->block[k];

	engine_assert(e, s->flags[i] & BLOCK_BUSY);
	hybrid_set_flags(s, i, 0, BLOCK_BUSY);
	if (!job_mask(e, job->parts.left | job->parts.failed, k)) {
		count(v, HYBRID_FILLS);
		s->flush_epoch[i] = (u32)READ_ONCE(v->flush.last_write);
		set_put_mask(&e->map, s, MASK_VALID, i,
			     block_mask(e, s, MASK_VALID, i) | job_mask(e, job->mask, k));
		hybrid_mark_lazy(e, job->set, i);
	} else {
		hybrid_remove_empty_block(e, job->set, i);
	}
	if (job_mask(e, job->parts.failed, k))
		hybrid_place_failed(e, job->set, i, acts);
}

static void fill_end(struct hybrid_engine *e, struct hybrid_job *job,
		     struct hybrid_actions *acts)
{
	struct hybrid_set *s = &e->map.set[job->set];
	unsigned long flags;
	u32 k;

	spin_lock_irqsave(&s->lock, flags);
	list_del_init(&job->link);
	for (k = 0; k < window_blocks(e); k++)
		if (job->block[k] >= 0)
			block_filled(e, s, job, k, acts);
	spin_unlock_irqrestore(&s->lock, flags);
	hybrid_wake_set(e, job->set, WAIT_BUSY, acts);
}

static void fill_copied(struct hybrid_engine *e, struct hybrid_op *op,
			struct hybrid_actions *acts)
{
	struct hybrid_io *io = op->io;
	struct hybrid_job *job = io->job;
	struct hybrid_set *s = &e->map.set[job->set];
	unsigned long flags;
	bool last;

	spin_lock_irqsave(&s->lock, flags);
	last = !--job->copies && job->done;
	spin_unlock_irqrestore(&s->lock, flags);
	complete_io(io, 0, acts);
	if (last)
		hybrid_job_put(e, job, acts);
}

/*
 * Write the granules that are left to the cache: in one operation, or, after an error, one
 * block at a time, so that a bad place is identified and costs no other block its data.
 */
static void fill_write(struct hybrid_engine *e, struct hybrid_job *job,
		       struct hybrid_actions *acts)
{
	u32 first = round_down(__ffs64(job->parts.left), e->g->granules);

	job->parts.now = job->parts.left;
	if (job->parts.one_by_one)
		job->parts.now &= e->map.granules << first;
	hybrid_job_transfer(job, true, fill_written);
	job->op.direct = true;
	hybrid_job_cache_segments(e, job, job->parts.now);
	act(acts, &job->op);
}

static void fill_read(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts)
{
	struct hybrid_job *job = container_of(op, struct hybrid_job, op);
	struct hybrid_set *s = &e->map.set[job->set];
	unsigned long flags;

	hybrid_stall_read_ended(e, job->volume, acts);
	if (op->error_origin) {
		fill_end(e, job, acts);
		/* The job is off its set's list: no I/O joins it any more. */
		hybrid_job_fail_readers(job, acts);
		hybrid_job_put(e, job, acts);
		return;
	}
	spin_lock_irqsave(&s->lock, flags);
	hybrid_job_serve_readers(e, job, acts);
	spin_unlock_irqrestore(&s->lock, flags);
	fill_write(e, job, acts);
}

/* Are all granules under way in one block? */
static bool fills_one_block(const struct hybrid_engine *e, const struct hybrid_job *job)
{
	u64 now = job->parts.now;

	return __ffs64(now) / e->g->granules == (fls64(now) - 1) / e->g->granules;
}

static void fill_written(struct hybrid_engine *e, struct hybrid_op *op,
			 struct hybrid_actions *acts)
{
	struct hybrid_job *job = container_of(op, struct hybrid_job, op);
	struct hybrid_set *s = &e->map.set[job->set];
	unsigned long flags;
	bool last;

	if (op->error_cache)
		count_cache_error(e, job->volume, CACHE_WRITE_ERRORS);
	if (op->error_cache && !fills_one_block(e, job)) {
		job->parts.one_by_one = true;
	} else {
		job->parts.left &= ~job->parts.now;
		job->parts.failed |= op->error_cache ? job->parts.now : 0;
	}
	if (job->parts.left && may_try_again(e, job->volume)) {
		fill_write(e, job, acts);
		return;
	}
	fill_end(e, job, acts);
	spin_lock_irqsave(&s->lock, flags);
	job->done = true;
	last = !job->copies;
	spin_unlock_irqrestore(&s->lock, flags);
	if (last)
		hybrid_job_put(e, job, acts);
}

/* ---- staged I/O ---------------------------------------------------------- */

/* Sectors of @io in granules @at ... @at + @n - 1 of its block. */
static void staged_segment(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
			   bool origin, u32 at, u32 n)
{
	u32 start = io->sector & (e->g->block_sectors - 1), end = start + io->count;
	u32 from = max(at << e->g->granule_shift, start);
	u32 to = min((at + n) << e->g->granule_shift, end);
	u64 base = origin ? origin_sector(e, io->volume, io->key, 0)
			  : cache_sector(e, io->set, io->idx, 0);

	hybrid_job_segment(job, origin, base + from, from, to - from);
}

static void staged_cache_read(struct hybrid_engine *e, struct hybrid_op *op,
			      struct hybrid_actions *acts);
static void staged_copied(struct hybrid_engine *e, struct hybrid_op *op,
			  struct hybrid_actions *acts);
static void staged_write_done(struct hybrid_engine *e, struct hybrid_op *op,
			      struct hybrid_actions *acts);

static void staged_segments(struct hybrid_engine *e, struct hybrid_job *job, bool origin)
{
	struct hybrid_io *io = job->io;
	u64 granules = origin ? io->to_origin : io->to_cache;
	u32 at, n;

	for (at = 0; (n = next_run(granules, &at)); at += n)
		staged_segment(e, job, io, origin, at, n);
}

/*
 * io->to_cache and io->to_origin are the granules that each device reads or writes.
 * The data of a write is copied first, so that a user who changes the pages meanwhile
 * cannot make the two copies differ (J6).
 */
void hybrid_staged_start(struct hybrid_engine *e, struct hybrid_job *job, struct hybrid_io *io,
			 bool (*written)(struct hybrid_engine *e, struct hybrid_io *io,
					 int error_cache, int error_origin,
					 struct hybrid_actions *acts),
			 struct hybrid_actions *acts)
{
	bool write = io->type == HYBRID_IO_WRITE;

	job->set = io->set;
	job->key = io->key;
	job->io = io;
	job->written = written;
	INIT_LIST_HEAD(&job->link);
	hybrid_job_transfer(job, write, write ? staged_write_done : staged_cache_read);
	job->op.direct = true;
	job->op.user = io;
	staged_segments(e, job, false);
	if (write) {
		staged_segments(e, job, true);
		job->op.io = io;
		job->op.fua = (io->flags & HYBRID_IO_FUA) && origin_has_fua(io->volume);
		job->op.buffer_offset = io->sector & (e->g->block_sectors - 1);
	}
	act(acts, &job->op);
}

static void staged_write_done(struct hybrid_engine *e, struct hybrid_op *op,
			      struct hybrid_actions *acts)
{
	struct hybrid_job *job = container_of(op, struct hybrid_job, op);
	struct hybrid_io *io = job->io;

	if (job->written(e, io, op->error_cache, op->error_origin, acts))
		complete_io(io, 0, acts);
	hybrid_job_put(e, job, acts);
}

static void staged_copied(struct hybrid_engine *e, struct hybrid_op *op,
			  struct hybrid_actions *acts)
{
	struct hybrid_io *io = op->io;
	struct hybrid_job *job = io->job;

	complete_io(io, 0, acts);
	hybrid_job_put(e, job, acts);
}

static void staged_origin_read(struct hybrid_engine *e, struct hybrid_op *op,
			       struct hybrid_actions *acts)
{
	struct hybrid_job *job = container_of(op, struct hybrid_job, op);
	struct hybrid_io *io = job->io;

	if (op->error_origin) {
		count(io->volume, HYBRID_ORIGIN_ERRORS);
		complete_io(io, op->error_origin, acts);
		hybrid_job_put(e, job, acts);
		return;
	}
	copy_out(e, job, io, staged_copied, acts);
}

/*
 * The read leaves its epoch before it goes to the origin.  While it is in the epoch no block of any
 * volume becomes free (J1), and the origin may never answer.
 */
static void staged_cache_read(struct hybrid_engine *e, struct hybrid_op *op,
			      struct hybrid_actions *acts)
{
	struct hybrid_job *job = container_of(op, struct hybrid_job, op);
	struct hybrid_io *io = job->io;
	struct hybrid_set *s = &e->map.set[job->set];
	unsigned long flags;

	epoch_leave(e, io->phase);
	if (op->error_cache) {
		count_cache_error(e, io->volume, CACHE_READ_ERRORS);
		spin_lock_irqsave(&s->lock, flags);
		hybrid_place_failed(e, job->set, io->idx, acts);
		spin_unlock_irqrestore(&s->lock, flags);
		complete_io(io, op->error_cache, acts);
		hybrid_job_put(e, job, acts);
		return;
	}
	hybrid_job_transfer(job, false, staged_origin_read);
	job->op.user = io;
	staged_segments(e, job, true);
	act(acts, &job->op);
}
