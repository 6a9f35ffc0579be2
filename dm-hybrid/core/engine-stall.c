// SPDX-License-Identifier: GPL-2.0-only
/*
 * Backpressure: writes that find no free block.  Their set is full of dirty blocks, or the blocks
 * that leave it are not free yet.
 *
 * A disk takes blocks written back in order several times as fast as the same writes one
 * by one, and single writes in between would cost the order.  So where the origin seeks,
 * such a write stalls until a block is written back and evicted, as long as blocks
 * become free.  It does not wait for ever: blocks become free as the sweep comes
 * by, and with thousands of sets it may take minutes until the sweep has come to a block
 * of the write's own set.
 *
 * A block that was written back is free after a flush of its origin and two commits.
 * While writes stall, this does not happen once an interval, but for each batch of
 * windows, when all of them are written.  In a larger batch the disk finds shorter ways;
 * but stalled writes, and I/O that waits for the disk, wait for the flush.
 *
 * So beside users' I/O, a batch has no more windows than the origin has lately flushed in
 * FLUSH_MS, or in READS_FLUSH_MS if reads wait, whether writes stall or not: a disk
 * serves no reads during a flush.  Nobody has timed the first flushes, so the first batches
 * are small.  The next batch waits until as many reads have ended as were in flight at the
 * end of the flush; otherwise the disk would go from one flush straight to the next.
 *
 * No windows are written back during such a flush: it would take that much longer, and
 * on a disk that takes writes during a flush it would not end at all.
 *
 * A volume whose origin is slow, or does not answer, must not fill the cache with dirty
 * blocks: other volumes could not cache anything.  So each open volume has a share that
 * the others leave free; all shares together are a quarter of the cache.  A volume that
 * has reached its limit gets no new dirty blocks, and its writes to clean blocks go
 * to both devices.  And no write waits for a set whose dirty blocks all belong to such
 * volumes.
 */
#include "engine-internal.h"

/* All shares together are the cache divided by this. */
#define KEPT_FREE	4
/* Windows; the second if only a drain uses the disk, and no user came for USERS_AWAY ticks. */
#define BATCH		64U
#define DRAIN_BATCH	256
#define FIRST_BATCH	8	/* before any flush was timed */
#define FLUSH_MS	50
#define READS_FLUSH_MS	25	/* if reads wait for the flush */
#define READS_TICKS	2	/* that reads may take after a flush */
#define STALLED_TICKS	8
#define WAIT_TICKS	20	/* for each write */
#define WAKE_MOST	256	/* writes that one event routes again */

void hybrid_stall_create(struct hybrid_volume *v)
{
	v->writeback.bound = FIRST_BATCH;
}

void hybrid_stall_share(struct hybrid_engine *e)
{
	u32 nr = e->g->nr_blocks, share = nr / (KEPT_FREE * max(e->volumes.nr_open, 1U)), dirty;
	struct hybrid_volume *v;
	/* Closed volumes have dirty blocks, too. */
	u64 taken = atomic_read(&e->writebacks.nr_dirty);

	list_for_each_entry(v, &e->volumes.open, open_link) {
		dirty = atomic_read(&v->blocks.dirty);
		taken += share - min(share, dirty);
	}
	list_for_each_entry(v, &e->volumes.open, open_link) {
		u64 mine = max_t(u32, atomic_read(&v->blocks.dirty), share);
		u64 others = taken - min(taken, mine);

		WRITE_ONCE(v->blocks.most_dirty, max_t(u64, nr - min_t(u64, nr, others), share));
	}
}

/*
 * Is a flush for windows that were written back under way, or the next to come?  Flushes for
 * users alone, or of users' writes alone, do not count: one such flush may follow the other.
 */
static bool flushing(const struct hybrid_volume *v)
{
	const struct hybrid_writeback *w = &v->writeback;

	return v->flush.busy && (w->flushing_batch ||
				 (w->windows && (w->flush_batch || v->flush.lazy)));
}

/* Does any write wait for room, or is about to be routed again? */
static bool any_waits(const struct hybrid_engine *e)
{
	return !list_empty(&e->stall.waiters) || !list_empty(&e->stall.woken);
}

/* Must blocks that were written back become free, or known to be clean, soon? */
static bool is_urgent(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	u64 dirty = (u64)atomic_read(&e->writebacks.nr_dirty) * 100;

	return any_waits(e) ||
	       dirty > (u64)e->g->nr_blocks * e->config.high_watermark || is_draining(e, v);
}

static bool is_full(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	const struct hybrid_writeback *w = &v->writeback;

	if (!any_waits(e) && users_idle(v) &&
	    READ_ONCE(v->users.idle) == USERS_AWAY && is_draining(e, v))
		return w->windows >= DRAIN_BATCH;
	return w->windows >= w->bound;
}

/*
 * Is @v written back?  If not, because its origin does not answer, or fails, or because the volume
 * is closed, its dirty blocks stay.
 */
static bool makes_progress(const struct hybrid_volume *v)
{
	return READ_ONCE(v->state) == VOLUME_OPEN && !READ_ONCE(v->flush.error) &&
	       READ_ONCE(v->writeback.stuck) < STALLED_TICKS;
}

/* Can writeback free a block of the set?  Usually its first dirty block tells. */
static bool may_become_free(const struct hybrid_engine *e, const struct hybrid_set *s)
{
	u32 i;

	if (leaving(e, s))
		return true;
	for (i = 0; i < e->map.set_size; i++)
		if ((block_mask(e, s, MASK_DIRTY, i) | block_mask(e, s, MASK_JDIRTY, i)) &&
		    makes_progress(key_volume(e, s->key[i])))
			return true;
	return false;
}

bool hybrid_stall_wait(struct hybrid_engine *e, const struct hybrid_set *s, struct hybrid_io *io)
{
	struct hybrid_volume *v = io->volume;
	struct hybrid_stall *r = &e->stall;
	unsigned long flags;
	bool waits;

	if (!origin_seeks(v) || write_mode(e, v) != HYBRID_MODE_WRITEBACK)
		return false;
	if (!READ_ONCE(e->writebacks.urgent) && !leaving(e, s) && !dirty_limit_reached(v))
		return false;
	if (dirty_limit_reached(v) ? !makes_progress(v) : !may_become_free(e, s))
		return false;
	spin_lock_irqsave(&e->lock, flags);
	if (!io->write.stalled_since)
		io->write.stalled_since = r->tick;
	waits = r->stalled < STALLED_TICKS && !v->writeback.paused && !is_suspended(v) &&
		!is_stopping(e) && r->tick - io->write.stalled_since < WAIT_TICKS;
	if (waits)
		list_add_tail(&io->link, &r->waiters);
	spin_unlock_irqrestore(&e->lock, flags);
	return waits;
}

static void wake_work(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts);

/* Routes some of the woken writes again, and leaves the others to the worker. */
static void wake_some(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_stall *r = &e->stall;
	u32 left = WAKE_MOST;
	LIST_HEAD(some);

	lockdep_assert_held(&e->lock);
	while (left-- && !list_empty(&r->woken))
		list_move_tail(r->woken.next, &some);
	if (!list_empty(&r->woken) && !r->queued) {
		r->queued = true;
		r->op.type = HYBRID_OP_WORK;
		r->op.done = wake_work;
		act(acts, &r->op);
	}
	hybrid_rerun_list(&some, acts);
}

static void wake_work(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	e->stall.queued = false;
	wake_some(e, acts);
	spin_unlock_irqrestore(&e->lock, flags);
}

void hybrid_stall_wake(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	list_splice_tail_init(&e->stall.waiters, &e->stall.woken);
	wake_some(e, acts);
	spin_unlock_irqrestore(&e->lock, flags);
}

bool hybrid_stall_batch_full(const struct hybrid_engine *e, const struct hybrid_volume *v)
{
	lockdep_assert_held(&e->lock);
	return flushing(v) || v->writeback.reads_first || is_full(e, v);
}

/*
 * At a tick waiting writes get the windows written so far, in case the others take long.  And
 * blocks are recorded that a flush covered before that was urgent, or that were discarded.
 */
static void flush_batch(struct hybrid_engine *e, struct hybrid_volume *v, bool tick,
			struct hybrid_actions *acts)
{
	struct hybrid_writeback *w = &v->writeback;
	bool urgent = is_urgent(e, v), ended = atomic_read(&v->blocks.ended);

	if (flushing(v) || (w->windows == w->nr_active && !(tick && urgent && ended)))
		return;
	if (w->nr_active && !(tick && any_waits(e)))
		return;
	if (!is_full(e, v) && !(urgent && list_empty(&w->turn)))
		return;
	if (hybrid_origin_settle_locked(e, v, urgent, acts))
		return;
	/* Another flush has covered these windows; or none ever will, or none while suspended. */
	w->windows = w->nr_active;
	if (urgent)
		want(acts, WANT_LAZY);
}

void hybrid_stall_flush_batch(struct hybrid_engine *e, struct hybrid_volume *v,
			      struct hybrid_actions *acts)
{
	flush_batch(e, v, false, acts);
}

void hybrid_stall_flush_ended(struct hybrid_engine *e, struct hybrid_volume *v, u32 elapsed_ms,
			      struct hybrid_actions *acts)
{
	struct hybrid_writeback *w = &v->writeback;
	u32 bound = w->bound;

	WRITE_ONCE(w->stuck, 0);
	if (w->flushing && !users_idle(v)) {
		u32 reads = atomic_read(&v->nr_reads);

		if (elapsed_ms > (reads ? READS_FLUSH_MS : FLUSH_MS))
			w->bound = max(bound / 2, 1U);
		else if (w->flushing >= bound)
			w->bound = min(bound + bound / 4 + 1, BATCH);
		WRITE_ONCE(w->reads_first, reads);
		w->reads_ticks = READS_TICKS;
	}
	flush_batch(e, v, false, acts);
}

void hybrid_stall_read_ended(struct hybrid_engine *e, struct hybrid_volume *v,
			     struct hybrid_actions *acts)
{
	struct hybrid_writeback *w = &v->writeback;
	bool last = false;
	unsigned long flags;

	atomic_dec(&v->nr_reads);
	if (!READ_ONCE(w->reads_first))
		return;
	spin_lock_irqsave(&e->lock, flags);
	if (w->reads_first) {
		WRITE_ONCE(w->reads_first, w->reads_first - 1);
		last = !w->reads_first;
	}
	spin_unlock_irqrestore(&e->lock, flags);
	if (last)
		want_writeback(acts, v);
}

/* Reads that take longer must not hold up writeback.  Under the engine's lock. */
static void reads_tick(struct hybrid_volume *v)
{
	struct hybrid_writeback *w = &v->writeback;

	if (w->reads_ticks && !--w->reads_ticks)
		WRITE_ONCE(w->reads_first, 0);
}

/* Under the engine's lock. */
static void progress_tick(struct hybrid_volume *v)
{
	struct hybrid_writeback *w = &v->writeback;
	bool busy = w->nr_active || w->paused || v->flush.busy;

	WRITE_ONCE(w->stuck, busy ? min(w->stuck + 1, STALLED_TICKS) : 0);
}

void hybrid_stall_tick(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_stall *r = &e->stall;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	r->tick = max(r->tick + 1, 1U);
	if (READ_ONCE(r->freed))
		r->stalled = 0;
	else if (r->stalled < STALLED_TICKS && any_waits(e))
		r->stalled++;
	WRITE_ONCE(r->freed, false);
	spin_unlock_irqrestore(&e->lock, flags);
	want(acts, WANT_STALLED);
}

void hybrid_stall_tick_flush(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_volume *v;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	list_for_each_entry(v, &e->volumes.open, open_link) {
		reads_tick(v);
		progress_tick(v);
		flush_batch(e, v, true, acts);
	}
	hybrid_stall_share(e);
	spin_unlock_irqrestore(&e->lock, flags);
}
