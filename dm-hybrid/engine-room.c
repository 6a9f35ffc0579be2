// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes that find no room: their set is full of dirty blocks, or what leaves is not
 * free yet.
 *
 * Written back in order, blocks go to a disk several times as fast as the same writes
 * one by one, and those in between cost the order.  So where the origin seeks such a
 * write waits for a block to be written back and evicted, as long as that goes on.
 *
 * What is written back is free after a flush of its origin and two commits.  Where room
 * is short that does not happen once an interval, but for each batch of windows.  No
 * more are written back meanwhile: the flush would take as much longer, and on a disk
 * that takes writes during a flush it would not end at all.
 */
#include "engine-internal.h"

#define BATCH 64
#define STALLED_TICKS	8

static bool any_flush(struct hybrid_engine *e)
{
	struct hybrid_volume *v;

	list_for_each_entry(v, &e->open_volumes, open_link)
		if (v->flush_busy)
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
	waits = r->stalled < STALLED_TICKS && !e->writeback_paused && !v->suspended &&
		!e->stopping;
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
	return is_urgent(e) && (e->room.windows >= BATCH || any_flush(e));
}

static void flush_batch(struct hybrid_engine *e, u32 least, struct hybrid_actions *acts)
{
	unsigned long flags;
	bool flush;

	spin_lock_irqsave(&e->lock, flags);
	/* The rest looks at all volumes, and this is asked for each window. */
	flush = e->room.windows >= least && is_urgent(e) && !any_flush(e);
	if (flush)
		e->room.windows = 0;
	spin_unlock_irqrestore(&e->lock, flags);
	if (flush)
		record_lazily(e, acts);
}

void room_window_ended(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	flush_batch(e, BATCH, acts);
}

void room_committed(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	room_wake(e, acts);
	flush_batch(e, BATCH, acts);
}

void room_tick(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_room *r = &e->room;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	if (READ_ONCE(r->freed))
		r->stalled = 0;
	else if (r->stalled < STALLED_TICKS && !list_empty(&r->waiters))
		r->stalled++;
	WRITE_ONCE(r->freed, false);
	spin_unlock_irqrestore(&e->lock, flags);
	room_wake(e, acts);
	flush_batch(e, 1, acts);
}
