// SPDX-License-Identifier: GPL-2.0-only
/*
 * TRIM: the places of free blocks are discarded on the cache device, which then need not copy
 * their old data when it collects garbage.
 *
 * A block is free once its removal is durable and no read of it is in flight (J1), so no crash
 * brings back a record of its old data.  While its place is being discarded the block is BUSY,
 * and not on its set's list of free blocks.  Each set keeps twice its reserve on that list:
 * blocks that are evicted for other data are used again soon.  More blocks are free after users'
 * discards, or the end of a volume.
 *
 * One discard is under way at a time, and trim_rate limits all of them together.  After an error
 * there are no more until the pool is loaded again.
 */
#include "engine-internal.h"

#define TRIM_SECTORS	(8U << 11)	/* of one discard: 8 MiB */
/* Each discard costs the device at least as much as so many sectors. */
#define TRIM_COST	2048U

static u32 free_kept(const struct hybrid_engine *e)
{
	return 2 * e->evict.reserve;
}

void hybrid_trim_note(struct hybrid_engine *e, u32 set)
{
	lockdep_assert_held(&e->map.set[set].lock);
	if (e->map.set[set].nr_free > free_kept(e) && !test_bit(set, e->trim.sets))
		set_bit(set, e->trim.sets);
}

bool hybrid_trim_wanted(const struct hybrid_engine *e)
{
	return READ_ONCE(e->config.trim_rate) && !READ_ONCE(e->trim.refused) &&
	       !READ_ONCE(e->life.failed) &&
	       find_first_bit(e->trim.sets, e->map.nr_sets) < e->map.nr_sets;
}

/* Take the next run of free blocks of a set that have held data; returns how many. */
static u32 take_run(struct hybrid_engine *e, u32 set)
{
	u32 most = max(TRIM_SECTORS >> e->g->block_shift, 1U), kept = free_kept(e), i, nr = 0;
	struct hybrid_set *s = &e->map.set[set];
	unsigned long flags;

	spin_lock_irqsave(&s->lock, flags);
	most = min(most, max_t(u32, s->nr_free, kept) - kept);
	for (i = 0; i < e->map.set_size && nr < most; i++) {
		if (hybrid_set_free_used(s, i))
			nr++;
		else if (nr)
			break;
	}
	if (nr)
		hybrid_set_take(&e->map, s, i - nr, nr);
	else
		clear_bit(set, e->trim.sets);
	spin_unlock_irqrestore(&s->lock, flags);
	e->trim.set = set;
	e->trim.first = i - nr;
	e->trim.nr = nr;
	return nr;
}

/* If a discard may begin, hybrid_engine_stop() waits for it from now on. */
static bool may_begin(struct hybrid_engine *e)
{
	struct hybrid_trim *t = &e->trim;
	unsigned long flags;
	bool begins;

	spin_lock_irqsave(&e->lock, flags);
	begins = !t->busy && t->credit > 0 && is_running(e) &&
		 hybrid_trim_wanted(e);
	if (begins)
		t->busy = true;
	spin_unlock_irqrestore(&e->lock, flags);
	return begins;
}

static void trim_ended(struct hybrid_engine *e)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	e->trim.busy = false;
	spin_unlock_irqrestore(&e->lock, flags);
}

static void pay(struct hybrid_engine *e, u32 sectors)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	e->trim.credit -= (s64)(MS_PER_SECOND * max(sectors, TRIM_COST));
	spin_unlock_irqrestore(&e->lock, flags);
}

static void trimmed(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts);

/* Goes from set to set, beginning with the set of the last discard. */
static void trim_next(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_trim *t = &e->trim;
	u32 set, count;

	if (!may_begin(e))
		return;
	for (;;) {
		set = find_next_bit(t->sets, e->map.nr_sets, t->set);
		if (set >= e->map.nr_sets)
			set = find_first_bit(t->sets, e->map.nr_sets);
		if (set >= e->map.nr_sets) {
			trim_ended(e);
			return;
		}
		if (take_run(e, set))
			break;
	}
	count = t->nr << e->g->block_shift;
	pay(e, count);
	t->segment = (struct hybrid_segment){ .sector = cache_sector(e, t->set, t->first, 0),
					      .count = count };
	op_begin(&t->op, HYBRID_OP_DISCARD, true, NULL, trimmed);
	t->op.segments = &t->segment;
	t->op.nr_segments = 1;
	act(acts, &t->op);
}

static void trimmed(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts)
{
	struct hybrid_trim *t = &e->trim;
	struct hybrid_set *s = &e->map.set[t->set];
	unsigned long flags;
	u32 i;

	engine_assert(e, t->busy);
	if (op->error_cache)
		WRITE_ONCE(t->refused, true);
	else
		add_stat(&e->stats.trimmed, t->segment.count);
	spin_lock_irqsave(&s->lock, flags);
	for (i = t->first; i < t->first + t->nr; i++) {
		hybrid_set_free(&e->map, s, i);
		if (!op->error_cache)
			s->free_use[i] = FREE_TRIMMED;
	}
	spin_unlock_irqrestore(&s->lock, flags);
	WRITE_ONCE(e->stall.freed, true);
	trim_ended(e);
	want(acts, WANT_STALLED);
	trim_next(e, acts);
}

void hybrid_trim_tick(struct hybrid_engine *e, u64 ms, struct hybrid_actions *acts)
{
	struct hybrid_trim *t = &e->trim;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	t->credit = credit_after(t->credit, e->config.trim_rate, ms);
	spin_unlock_irqrestore(&e->lock, flags);
	trim_next(e, acts);
}
