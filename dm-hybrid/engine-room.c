// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes that find no room: their set is full of dirty blocks, or what leaves is not
 * free yet.
 *
 * Written back in order, blocks go to a disk several times as fast as the same writes
 * one by one, and those in between cost the order.  So where the origin seeks such a
 * write waits for a block to be written back and evicted, as long as that goes on, and
 * not for ever: blocks become free as the sweep comes by, and it may take minutes until it
 * has come to a block of the write's own set where there are thousands.
 *
 * What is written back is free after a flush of its origin and two commits.  Where room
 * is short that does not happen once an interval, but for each batch of windows, when all
 * of them are written.  In a larger one the disk finds shorter ways; but whoever waits for
 * room, or for the disk, waits for the flush.
 *
 * No windows are written back during such a flush: it would take as much longer, and on a
 * disk that takes writes during a flush it would not end at all.
 */
#include "engine-internal.h"

/* Windows; the second where nobody but a drain uses the disk. */
#define BATCH		64
#define DRAIN_BATCH	256
#define STALLED_TICKS	8
#define WAIT_TICKS	20	/* for each write */

/* Is an origin flushed of what was written back?  Users' flushes alone do not count. */
static bool flushing(const struct hybrid_engine *e)
{
	struct hybrid_volume *v;

	if (!e->nr_flushes)
		return false;
	list_for_each_entry(v, &e->open_volumes, open_link)
		if (v->flush_busy && (v->flushing_lazy || v->flush_lazy))
			return true;
	return false;
}

/* Is what was written back to be free, or said to be clean, soon? */
static bool is_urgent(struct hybrid_engine *e)
{
	u64 dirty = (u64)atomic_read(&e->nr_dirty) * 100;

	return !list_empty(&e->room.waiters) ||
	       dirty > (u64)e->g->nr_blocks * e->config.high_watermark || any_draining(e);
}

/* This is asked for each window, and few come to where all volumes are looked at. */
static bool is_full(struct hybrid_engine *e)
{
	if (e->room.windows < BATCH)
		return false;
	return e->room.windows >= DRAIN_BATCH || !list_empty(&e->room.waiters) ||
	       !users_idle(e) || !any_draining(e);
}

bool room_wait(struct hybrid_engine *e, const struct hybrid_set *s, struct hybrid_io *io)
{
	struct hybrid_volume *v = io->volume;
	struct hybrid_room *r = &e->room;
	unsigned long flags;
	bool waits;

	if (!READ_ONCE(v->seeks) || READ_ONCE(v->mode) != HYBRID_MODE_WRITEBACK)
		return false;
	if (!READ_ONCE(e->writeback_urgent) && !leaving(e, s))
		return false;
	spin_lock_irqsave(&e->lock, flags);
	if (!io->room_since)
		io->room_since = r->tick;
	waits = r->stalled < STALLED_TICKS && !e->writeback_paused && !v->suspended &&
		!e->stopping && r->tick - io->room_since < WAIT_TICKS;
	if (waits)
		list_add_tail(&io->link, &r->waiters);
	spin_unlock_irqrestore(&e->lock, flags);
	return waits;
}

void room_wake(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	unsigned long flags;
	LIST_HEAD(woken);

	spin_lock_irqsave(&e->lock, flags);
	list_splice_init(&e->room.waiters, &woken);
	spin_unlock_irqrestore(&e->lock, flags);
	rerun_list(e, &woken, acts);
}

bool room_batch_full(struct hybrid_engine *e)
{
	return flushing(e) || (is_full(e) && is_urgent(e));
}

/* At a tick those who wait get what there is, should the rest take long. */
static void flush_batch(struct hybrid_engine *e, bool full, bool tick,
			struct hybrid_actions *acts)
{
	struct hybrid_room *r = &e->room;
	unsigned long flags;
	bool flush;
	u32 active;

	spin_lock_irqsave(&e->lock, flags);
	active = e->nr_active_writebacks;
	flush = r->windows > active && (!active || (tick && !list_empty(&r->waiters))) &&
		(!full || is_full(e)) && is_urgent(e) && !flushing(e);
	if (flush)
		r->windows = active;
	spin_unlock_irqrestore(&e->lock, flags);
	if (flush)
		record_lazily(e, acts);
}

void room_window_ended(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	flush_batch(e, true, false, acts);
}

void room_last_window(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	flush_batch(e, false, false, acts);
}

void room_committed(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	room_wake(e, acts);
	flush_batch(e, true, false, acts);
}

void room_tick(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_room *r = &e->room;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	r->tick = max(r->tick + 1, 1U);
	if (READ_ONCE(r->freed))
		r->stalled = 0;
	else if (r->stalled < STALLED_TICKS && !list_empty(&r->waiters))
		r->stalled++;
	WRITE_ONCE(r->freed, false);
	spin_unlock_irqrestore(&e->lock, flags);
	room_wake(e, acts);
	flush_batch(e, false, true, acts);
}
