// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writeback: dirty blocks go to their origins in the order of their keys, that
 * is sorted by volume and address, a window of neighbours at a time.
 *
 * A job on a window:
 *   1. The window's dirty blocks without a write in flight become BUSY.  Writes may
 *      go on, but granules that they touch stay dirty (J2).  In a drain, all dirty
 *      blocks become BUSY and are closed: new writes wait for the job, and the job
 *      waits for the writes in flight.
 *   2. The job reads the dirty granules from the cache, then writes them to the
 *      origin in runs; in parts, if there is no memory for all.  If that fails, it
 *      moves one granule after the other, so that bad granules of a device keep
 *      no others from being written back.
 *   3. Granules that were moved and not touched become clean in RAM.  The journal
 *      hears of it after an origin flush, with the next lazy commit.
 */
#include "engine-internal.h"

/* Pauses after an error, and after one that left the whole window unmoved. */
#define PAUSE_TICKS		1
#define LONG_PAUSE_TICKS	10
/* Windows to try before other work gets the worker. */
#define MAX_WINDOWS		256

/* ---- one window ---------------------------------------------------------- */

static void window_closed(struct hybrid_engine *e, struct hybrid_op *op,
			  struct hybrid_actions *acts);
static void window_read(struct hybrid_engine *e, struct hybrid_op *op,
			struct hybrid_actions *acts);
static void window_written(struct hybrid_engine *e, struct hybrid_op *op,
			   struct hybrid_actions *acts);
static void take_turn(struct hybrid_engine *e, struct hybrid_volume *v,
		      struct hybrid_actions *acts);

/*
 * The granules of block @i that may be written back; *unrecorded: others must be recorded
 * first.  A granule whose dirty state is not recorded would be clean in RAM before a flush
 * could make it durable on either device.
 */
static u64 movable(struct hybrid_engine *e, struct hybrid_set *s, int i, bool *unrecorded)
{
	u64 dirty = block_mask(e, s, MASK_DIRTY, i), jdirty = block_mask(e, s, MASK_JDIRTY, i);
	bool replaced = hybrid_replaced_granules(e, s, i);

	/* J12: granules under intents have to be recorded first, too. */
	if (!hlist_empty(&s->intended))
		jdirty &= ~hybrid_intended_granules(s, i);
	*unrecorded |= replaced || (dirty & ~jdirty);
	return replaced ? 0 : dirty & jdirty;
}

/*
 * Collect the window's blocks that can be written back now; returns whether granules
 * must be recorded first.  Blocks with writes in flight are left out, unless new writes wait for
 * the job: then the job waits for the writes in flight.  Caller holds the set's lock.
 */
static bool window_collect(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_job *job,
			   struct hybrid_actions *acts)
{
	u32 k, last = window_blocks(e);
	bool unrecorded = false;

	lockdep_assert_held(&s->lock);
	job->mask = 0;
	for (k = 0; k < last; k++) {
		int i = hybrid_set_find(&e->map, s, job->key + k);
		u64 dirty;

		job->block[k] = -1;
		if (i < 0 || (s->flags[i] & BLOCK_BUSY) || !(s->flags[i] & BLOCK_MAPPED))
			continue;
		/*
		 * A range lists itself, then looks at its blocks under their sets' locks: one
		 * that is not listed yet will find the block BUSY, and wait.
		 */
		if (hybrid_range_blocks(job->volume, key_sector(e, job->key + k),
					e->g->block_sectors))
			continue;
		/* The record of replaced granules may need a flush of the origin. */
		if (hybrid_replaced_granules(e, s, i))
			hybrid_record_first(e, job->set, i, acts);
		dirty = movable(e, s, i, &unrecorded);
		if (!dirty)
			continue;
		if (hybrid_write_in_flight(s, job->key + k, e->map.granules)) {
			if (!job->exclusive)
				continue;
			job->closing = true;
		}
		job->block[k] = i;
		job->mask |= dirty << (k * e->g->granules);
		hybrid_set_flags(s, i, BLOCK_BUSY, 0);
	}
	return unrecorded;
}

/* Read the next part from the cache: as many of the granules left as the buffer can hold. */
static void part_next(struct hybrid_engine *e, struct hybrid_job *job,
		      struct hybrid_actions *acts)
{
	u32 n = job->parts.one_by_one ? 1 : job->sectors >> e->g->granule_shift;
	u32 from = __ffs64(job->parts.left);

	job->from = from;
	job->parts.now = job->parts.left & GENMASK_ULL(min(from + n, 64U) - 1, from);
	hybrid_job_transfer(job, false, window_read);
	hybrid_job_cache_segments(e, job, job->parts.now);
	act(acts, &job->op);
}

/*
 * A window may begin while there is any credit, and pays its whole price: the difference is
 * debt, and the next window waits until it is paid.  Drains without a limit and the high watermark
 * need no credit, so debt is limited to the price of one window.
 */
static void pay_window(struct hybrid_engine *e, struct hybrid_volume *v, u64 mask)
{
	s64 most = (s64)(MS_PER_SECOND * e->g->block_sectors) << e->g->window_shift;
	s64 price = (s64)(MS_PER_SECOND * hweight64(mask)) << e->g->granule_shift;

	e->writebacks.credit = max(e->writebacks.credit - price, -most);
	e->writebacks.drain.credit = max(e->writebacks.drain.credit - price, -most);
	v->drain.credit = max(v->drain.credit - price, -most);
}

/* Begin to move the window's granules. */
static void window_copy(struct hybrid_engine *e, struct hybrid_job *job,
			struct hybrid_actions *acts)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	pay_window(e, job->volume, job->mask);
	spin_unlock_irqrestore(&e->lock, flags);
	job->parts.left = job->mask;
	part_next(e, job, acts);
}

/* Under the set's lock: the job has its blocks. */
static void window_enter(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_job *job)
{
	struct hybrid_writeback *w = &job->volume->writeback;

	lockdep_assert_held(&s->lock);
	job->parts.failed = 0;
	s->closing |= job->closing;
	list_add_tail(&job->link, &s->jobs);
	spin_lock(&e->lock);
	w->nr_active++;
	w->windows++;
	engine_assert(e, w->windows >= w->nr_active);
	spin_unlock(&e->lock);
}

/* Begin to write back the window of @key; false: no block of it can go now.  Takes the job. */
static bool window_begin(struct hybrid_engine *e, struct hybrid_job *job, u64 key,
			 struct hybrid_actions *acts)
{
	u32 set = hybrid_map_set_of(&e->map, key);
	struct hybrid_set *s = &e->map.set[set];
	bool unrecorded, taken, closing;
	unsigned long flags;

	job->set = set;
	job->key = key & ~(u64)(window_blocks(e) - 1);
	job->exclusive = drains(e, job->volume);
	spin_lock_irqsave(&s->lock, flags);
	unrecorded = window_collect(e, s, job, acts);
	taken = job->mask;
	closing = job->closing;
	if (taken)
		window_enter(e, s, job);
	spin_unlock_irqrestore(&s->lock, flags);
	/* From here on a job that waits for writes may have begun, and even ended. */
	if (unrecorded)
		want(acts, WANT_COMMIT);
	if (!taken)
		hybrid_job_put(e, job, acts);
	else if (!closing)
		window_copy(e, job, acts);
	return taken;
}

static struct hybrid_job *window_get(struct hybrid_engine *e, struct hybrid_volume *v)
{
	hybrid_job_prepare(e, WRITEBACKS);
	return hybrid_job_get(e, JOB_WRITEBACK, v);
}

void hybrid_writeback_window(struct hybrid_engine *e, u64 key, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = key_volume(e, key);
	struct hybrid_job *job = v ? window_get(e, v) : NULL;

	if (job)
		window_begin(e, job, key, acts);
}

/* Give the blocks back; granules that were moved, and not touched, are clean now. */
static void window_end(struct hybrid_engine *e, struct hybrid_job *job,
		       struct hybrid_actions *acts)
{
	struct hybrid_set *s = &e->map.set[job->set];
	struct hybrid_volume *v = job->volume;
	unsigned long flags;
	bool progress = false;
	u32 k;

	spin_lock_irqsave(&s->lock, flags);
	list_del_init(&job->link);
	for (k = 0; k < window_blocks(e); k++) {
		s16 i = job->block[k];
		u64 moved = job_mask(e, job->mask & ~job->parts.failed, k);
		u64 clean = job_mask(e, job->mask & ~job->parts.failed & ~job->touched, k);

		if (i < 0)
			continue;
		engine_assert(e, s->flags[i] & BLOCK_BUSY);
		hybrid_set_flags(s, i, 0, BLOCK_BUSY);
		if (!moved)
			continue;
		progress = true;
		s->flush_epoch[i] = (u32)READ_ONCE(v->flush.last_write);
		hybrid_put_dirty(e, s, i, block_mask(e, s, MASK_DIRTY, i) & ~clean);
		if (set_unrecorded(&e->map, s, i))
			hybrid_mark_lazy(e, job->set, i);
		count(v, HYBRID_WRITEBACKS);
	}
	spin_unlock_irqrestore(&s->lock, flags);
	hybrid_wake_set(e, job->set, WAIT_BUSY, acts);
	spin_lock_irqsave(&e->lock, flags);
	if (engine_assert(e, v->writeback.nr_active))
		v->writeback.nr_active--;
	if (progress)
		WRITE_ONCE(v->writeback.stuck, 0);
	if (job->parts.failed) {
		/* The next tick is early enough for a flush, too. */
		v->writeback.paused = job->parts.failed == job->mask ? LONG_PAUSE_TICKS :
								       PAUSE_TICKS;
	} else {
		take_turn(e, v, acts);
		hybrid_stall_flush_batch(e, v, acts);
	}
	spin_unlock_irqrestore(&e->lock, flags);
	hybrid_job_put(e, job, acts);
}

static bool any_closing(const struct hybrid_set *s)
{
	const struct hybrid_job *job;

	list_for_each_entry(job, &s->jobs, link)
		if (job->closing)
			return true;
	return false;
}

void hybrid_writeback_written(struct hybrid_engine *e, struct hybrid_set *s, u64 key,
			      struct hybrid_actions *acts)
{
	struct hybrid_job *job = s->closing ? hybrid_job_find(e, s, key) : NULL;
	u32 k;

	lockdep_assert_held(&s->lock);
	if (!job || !job->closing)
		return;
	for (k = 0; k < window_blocks(e); k++)
		if (job->block[k] >= 0 && hybrid_write_in_flight(s, job->key + k, e->map.granules))
			return;
	job->closing = false;
	s->closing = any_closing(s);
	op_begin(&job->op, HYBRID_OP_WORK, false, NULL, window_closed);
	act(acts, &job->op);
}

/* No write to the window's blocks is in flight any more: their dirty granules can be moved. */
static void window_closed(struct hybrid_engine *e, struct hybrid_op *op,
			  struct hybrid_actions *acts)
{
	struct hybrid_job *job = container_of(op, struct hybrid_job, op);
	struct hybrid_set *s = &e->map.set[job->set];
	bool unrecorded = false;
	unsigned long flags;
	u32 k;

	job->mask = 0;
	spin_lock_irqsave(&s->lock, flags);
	for (k = 0; k < window_blocks(e); k++)
		if (job->block[k] >= 0)
			job->mask |= movable(e, s, job->block[k], &unrecorded) <<
				     (k * e->g->granules);
	spin_unlock_irqrestore(&s->lock, flags);
	if (unrecorded)
		want(acts, WANT_COMMIT);
	if (!may_try_again(e, job->volume))
		job->mask = 0;
	if (job->mask)
		window_copy(e, job, acts);
	else
		window_end(e, job, acts);
}

static bool part_is_single(const struct hybrid_job *job)
{
	return !(job->parts.now & (job->parts.now - 1));
}

/* Go on with the job after its part was moved, or could not be. */
static void part_done(struct hybrid_engine *e, struct hybrid_job *job, bool ok,
		      struct hybrid_actions *acts)
{
	bool single = part_is_single(job);

	if (ok || single)
		job->parts.left &= ~job->parts.now;
	if (!ok && single)
		job->parts.failed |= job->parts.now;
	if (!ok)
		job->parts.one_by_one = true;
	if (job->parts.left && !may_try_again(e, job->volume)) {
		job->parts.failed |= job->parts.left;
		job->parts.left = 0;
	}
	if (job->parts.left)
		part_next(e, job, acts);
	else
		window_end(e, job, acts);
}

/* One granule could not be read. */
static void single_unreadable(struct hybrid_engine *e, struct hybrid_job *job,
			      struct hybrid_actions *acts)
{
	struct hybrid_set *s = &e->map.set[job->set];
	unsigned long flags;

	spin_lock_irqsave(&s->lock, flags);
	hybrid_place_failed(e, job->set, job->block[__ffs64(job->parts.now) / e->g->granules],
			    acts);
	spin_unlock_irqrestore(&s->lock, flags);
}

static void window_read(struct hybrid_engine *e, struct hybrid_op *op,
			struct hybrid_actions *acts)
{
	struct hybrid_job *job = container_of(op, struct hybrid_job, op);
	u32 at, n, shift = e->g->granule_shift;

	if (op->error_cache) {
		count_cache_error(e, job->volume, CACHE_READ_ERRORS);
		if (part_is_single(job))
			single_unreadable(e, job, acts);
		part_done(e, job, false, acts);
		return;
	}
	hybrid_job_transfer(job, true, window_written);
	for (at = 0; (n = next_run(job->parts.now, &at)); at += n)
		hybrid_job_segment(job, true, origin_sector(e, job->volume, job->key, at),
				   (at - job->from) << shift, job_sectors(e, job, at, n));
	act(acts, &job->op);
}

static void window_written(struct hybrid_engine *e, struct hybrid_op *op,
			   struct hybrid_actions *acts)
{
	struct hybrid_job *job = container_of(op, struct hybrid_job, op);

	if (op->error_origin)
		count(job->volume, HYBRID_ORIGIN_ERRORS);
	hybrid_origin_written(e, job->volume, false);
	part_done(e, job, !op->error_origin, acts);
}

/* ---- how fast ------------------------------------------------------------ */

static bool within(const struct hybrid_drain *d)
{
	return !d->rate || d->credit > 0;
}

/* Is a drain of @v under way, and within its limit, or limits? */
static bool drain_may_go(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	return is_draining(e, v) && (!e->writebacks.drain.on || within(&e->writebacks.drain)) &&
	       (!v->drain.on || within(&v->drain));
}

/* As many jobs as there are windows above the limit. */
static u32 depth_above(const struct hybrid_engine *e, u64 excess)
{
	u32 most = e->jobs.pool[WRITEBACKS].most;

	return min_t(u64, most, 1 + div_u64(excess, 100 * window_blocks(e)));
}

/*
 * How many jobs of @v may run now.  Up to the high watermark users' I/O has the devices to
 * itself while there is room for all its data.  If eviction passes over dirty blocks, and
 * takes clean ones that are worth more, two jobs run beside it.
 */
static u32 writeback_depth(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	u64 dirty = (u64)atomic_read(&e->writebacks.nr_dirty) * 100;
	u64 low = (u64)e->g->nr_blocks * e->config.low_watermark;
	u64 high = (u64)e->g->nr_blocks * e->config.high_watermark;
	bool idle = users_idle(v);

	if (!atomic_read(&v->blocks.dirty) || v->state != VOLUME_OPEN || v->writeback.paused ||
	    READ_ONCE(e->life.failed) || !is_running(e) ||
	    hybrid_stall_batch_full(e, v))
		return 0;
	/* No record would follow, and blocks dirty on record alone escape the volume's limit. */
	if (v->flush.error)
		return 0;
	if (drain_may_go(e, v) || READ_ONCE(e->writebacks.urgent) || dirty_limit_reached(v))
		return e->jobs.pool[WRITEBACKS].most;
	if (dirty > high)
		return depth_above(e, dirty - high);
	/* Idle or not: the drain's limit is that of all writeback */
	if (is_draining(e, v))
		return 0;
	if (dirty > low && (idle || READ_ONCE(e->writebacks.passed)) &&
	    (!e->config.writeback_rate || e->writebacks.credit > 0))
		return min(idle ? e->jobs.pool[WRITEBACKS].most : 2, depth_above(e, dirty - low));
	return 0;
}

/* ---- whose turn it is ---------------------------------------------------- */

/* Let the worker look for windows of @v, if any may begin.  Under the engine's lock. */
static void take_turn(struct hybrid_engine *e, struct hybrid_volume *v,
		      struct hybrid_actions *acts)
{
	struct hybrid_writeback *w = &v->writeback;
	struct hybrid_op *op = &e->writebacks.op;

	lockdep_assert_held(&e->lock);
	if (!list_empty(&w->turn) || w->nr_active >= writeback_depth(e, v))
		return;
	list_add_tail(&w->turn, &e->writebacks.turns);
	if (e->writebacks.queued)
		return;
	e->writebacks.queued = true;
	op->type = HYBRID_OP_WORK;
	op->done = hybrid_writeback_work;
	act(acts, op);
}

void hybrid_writeback_kick(struct hybrid_engine *e, struct hybrid_volume *v,
			   struct hybrid_actions *acts)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	if (v)
		take_turn(e, v, acts);
	else
		list_for_each_entry(v, &e->volumes.open, open_link)
			take_turn(e, v, acts);
	spin_unlock_irqrestore(&e->lock, flags);
}

/* No more windows of @v, for now.  Under the engine's lock. */
static void end_turn(struct hybrid_engine *e, struct hybrid_volume *v,
		     struct hybrid_actions *acts)
{
	lockdep_assert_held(&e->lock);
	v->writeback.misses = 0;
	list_del_init(&v->writeback.turn);
	hybrid_stall_flush_batch(e, v, acts);
}

/* The next volume that may begin a window, or NULL. */
static struct hybrid_volume *whose_turn(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_volume *v, *next = NULL;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	while (!next && !list_empty(&e->writebacks.turns)) {
		v = list_first_entry(&e->writebacks.turns, struct hybrid_volume, writeback.turn);
		if (v->writeback.nr_active < writeback_depth(e, v))
			next = v;
		else
			end_turn(e, v, acts);
	}
	spin_unlock_irqrestore(&e->lock, flags);
	return next;
}

/* The volume's turn after a window. */
enum turn {
	TURN_GOES_ON,
	TURN_OVER,		/* nothing more to do, until there is a reason to look again */
	TURN_LATER,		/* after others had the worker */
};

static enum turn try_window(struct hybrid_engine *e, struct hybrid_volume *v,
			    struct hybrid_actions *acts)
{
	struct hybrid_job *job = window_get(e, v);
	struct hybrid_writeback *w = &v->writeback;
	enum sweep_result r;
	u64 key;

	if (!job)
		return TURN_OVER;
	r = hybrid_sweep_next(e, v, &key);
	if (r != SWEEP_WINDOW) {
		hybrid_job_put(e, job, acts);
		return r == SWEEP_AGAIN ? TURN_LATER : TURN_OVER;
	}
	if (!window_begin(e, job, key, acts))
		return ++w->misses <= w->sweep.nr ? TURN_GOES_ON : TURN_OVER;
	w->misses = 0;
	return TURN_GOES_ON;
}

/* A volume keeps its turn as long as it may begin windows; then others have theirs. */
void hybrid_writeback_work(struct hybrid_engine *e, struct hybrid_op *op,
			   struct hybrid_actions *acts)
{
	enum turn t = TURN_GOES_ON;
	struct hybrid_volume *v;
	unsigned long flags;
	u32 n;

	for (n = 0; n < MAX_WINDOWS && t != TURN_LATER; n++) {
		v = whose_turn(e, acts);
		if (!v)
			break;
		t = try_window(e, v, acts);
		if (t == TURN_OVER) {
			spin_lock_irqsave(&e->lock, flags);
			end_turn(e, v, acts);
			spin_unlock_irqrestore(&e->lock, flags);
		}
	}
	spin_lock_irqsave(&e->lock, flags);
	/* A volume whose turn did not end goes to the end of the list. */
	list_rotate_left(&e->writebacks.turns);
	e->writebacks.queued = !list_empty(&e->writebacks.turns);
	if (e->writebacks.queued)
		act(acts, op);
	spin_unlock_irqrestore(&e->lock, flags);
}

void hybrid_writeback_tick(struct hybrid_engine *e, u64 ms, struct hybrid_actions *acts)
{
	struct hybrid_drain *all = &e->writebacks.drain;
	struct hybrid_volume *v;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	e->writebacks.credit = credit_after(e->writebacks.credit, e->config.writeback_rate, ms);
	all->credit = credit_after(all->credit, all->rate, ms);
	list_for_each_entry(v, &e->volumes.open, open_link) {
		v->drain.credit = credit_after(v->drain.credit, v->drain.rate, ms);
		if (v->writeback.paused)
			v->writeback.paused--;
	}
	spin_unlock_irqrestore(&e->lock, flags);
	hybrid_writeback_kick(e, NULL, acts);
	/* Evictions that dirty blocks still hinder set these again. */
	WRITE_ONCE(e->writebacks.urgent, false);
	WRITE_ONCE(e->writebacks.passed, false);
	spin_lock_irqsave(&e->lock, flags);
	list_for_each_entry(v, &e->volumes.open, open_link) {
		WRITE_ONCE(v->users.idle, READ_ONCE(v->users.now) ? 0 :
			   min(v->users.idle + 1, USERS_AWAY));
		WRITE_ONCE(v->users.now, false);
	}
	spin_unlock_irqrestore(&e->lock, flags);
}

void hybrid_engine_drain(struct hybrid_engine *e, struct hybrid_volume *v, bool on, u32 rate,
			 struct hybrid_actions *acts)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	/* A mode that keeps nothing dirty drains by itself, a failing device all volumes. */
	if (v) {
		drain_set(&v->drain, on || v->mode != HYBRID_MODE_WRITEBACK, rate);
	} else {
		WRITE_ONCE(e->writebacks.drain_asked, on);
		e->writebacks.drain_rate = rate;
		drain_set(&e->writebacks.drain, on || e->wear.failing, rate);
	}
	spin_unlock_irqrestore(&e->lock, flags);
	hybrid_writeback_kick(e, v, acts);
}
