// SPDX-License-Identifier: GPL-2.0-only
/*
 * Flushes of origins, one at a time for each.  A write that ended in epoch n is covered by a
 * flush that began in epoch n or later.  Each block keeps the epoch of the last write to the
 * origin's copy as its flush epoch (origin_durable()).
 */
#include "engine-internal.h"

/* The blocks written back so far form a batch if this flush is for them: engine-stall.c. */
static void batch_begins(struct hybrid_volume *v)
{
	struct hybrid_writeback *w = &v->writeback;

	w->flushing_batch = w->windows && (w->flush_batch || v->flush.flushing_lazy);
	w->flush_batch = false;
	w->flushing = w->windows - w->nr_active;
	if (w->flushing_batch)
		w->windows = w->nr_active;
}

void hybrid_origin_flush_locked(struct hybrid_engine *e, struct hybrid_volume *v,
				struct hybrid_actions *acts)
{
	struct hybrid_op *op = &v->flush.op;

	lockdep_assert_held(&e->lock);
	/*
	 * One flush at a time, and none beside a superblock write, which may flush, too: a
	 * failed flush may lose data that another one, already under way, would not miss.
	 */
	if (v->flush.busy || v->sb.busy || v->sb.claim_waits) {
		v->flush.again = true;
		return;
	}
	v->flush.busy = true;
	v->flush.again = false;
	v->flush.flushing_lazy = v->flush.lazy;
	v->flush.lazy = false;
	batch_begins(v);
	v->flush.target = v->flush.epoch;
	/* After an error no flush covers anything: epochs must not get ahead of the last one. */
	if (!v->flush.error)
		WRITE_ONCE(v->flush.epoch, v->flush.epoch + 1);
	list_splice_tail_init(&v->flush.next, &v->flush.now);
	op_begin(op, HYBRID_OP_FLUSH, true, v, v->flush.ended);
	count(v, HYBRID_ORIGIN_FLUSHES);
	act(acts, op);
}

/* Flushes that waited for another, or for the superblock. */
void hybrid_origin_flush_next_locked(struct hybrid_engine *e, struct hybrid_volume *v,
				     struct hybrid_actions *acts)
{
	lockdep_assert_held(&e->lock);
	if (!list_empty(&v->flush.next) || (v->flush.again && !is_suspended(v)))
		hybrid_origin_flush_locked(e, v, acts);
}

/*
 * A write to the origin ended: a flush that begins from now on covers it.  Until
 * then, data that was written back is durable in the cache, and dirty on record,
 * so users' flushes need not wait for it.  Most writes of an epoch find it noted.
 */
void hybrid_origin_written(struct hybrid_engine *e, struct hybrid_volume *v, bool user)
{
	unsigned long flags;
	u64 epoch;

	/*
	 * The write has ended before the epoch is read.  If it still is an epoch that a flush has
	 * just ended, that flush is submitted later, and covers the write.
	 */
	smp_mb();
	epoch = READ_ONCE(v->flush.epoch);
	if (READ_ONCE(v->flush.last_write) == epoch &&
	    (!user || READ_ONCE(v->flush.last_user_write) == epoch))
		return;
	spin_lock_irqsave(&e->lock, flags);
	WRITE_ONCE(v->flush.last_write, v->flush.epoch);
	if (user)
		WRITE_ONCE(v->flush.last_user_write, v->flush.epoch);
	spin_unlock_irqrestore(&e->lock, flags);
}

/*
 * A flush of the origin failed, or an operation that began with one: it may have
 * lost writes, and no later flush can make them good.
 */
void hybrid_origin_flush_failed(struct hybrid_volume *v, int error)
{
	if (!v->flush.error)
		WRITE_ONCE(v->flush.error, error);
}

/* The end of the flush asks for the commit. */
bool hybrid_origin_settle_locked(struct hybrid_engine *e, struct hybrid_volume *v, bool record,
				 struct hybrid_actions *acts)
{
	lockdep_assert_held(&e->lock);
	if (is_suspended(v) || v->flush.error || v->flush.last_write <= v->flush.flushed)
		return false;
	v->writeback.flush_batch = true;
	v->flush.lazy |= record;
	hybrid_origin_flush_locked(e, v, acts);
	return true;
}

#define MOST_SETS	(HYBRID_ROOT_INDEXES * HYBRID_INDEX_LEAVES / HYBRID_LEAVES_PER_SET)

static_assert(BIT(30) / LIFT_FLUSHES >= MOST_SETS);

/*
 * A flush epoch stays durable once a flush covered it.  But it has 32 bits, and 2^31
 * flushes later it would no longer look durable.  So durable ones are raised to the
 * last flushed epoch, set after set.
 */
void hybrid_lift_flush_epochs(struct hybrid_engine *e)
{
	const struct hybrid_volume *v;
	struct hybrid_set *s;
	unsigned long flags;
	u32 i;

	spin_lock_irqsave(&e->lock, flags);
	s = &e->map.set[e->lift.set++];
	if (e->lift.set == e->map.nr_sets)
		e->lift.set = 0;
	spin_unlock_irqrestore(&e->lock, flags);
	spin_lock_irqsave(&s->lock, flags);
	for (i = 0; i < e->map.set_size; i++) {
		if (!(s->flags[i] & (BLOCK_MAPPED | BLOCK_REMOVED)))
			continue;
		v = key_volume(e, s->key[i]);
		if (origin_durable(v, s->flush_epoch[i]))
			s->flush_epoch[i] = (u32)READ_ONCE(v->flush.flushed);
	}
	spin_unlock_irqrestore(&s->lock, flags);
}

/*
 * May the origin's copy of block @i change?  Not while it has replaced granules:
 * their record waits for the flush of all origin writes to the block (J2), and
 * must not wait for ever while more writes come.  Nor while a drain waits for the
 * record of granules that it wrote back.  Nor while a record that ends a dirty
 * granule is on its way: until it is durable, a crash would bring the old data back
 * over the data written to the origin now.  Requests the missing record; the caller
 * holds the set's lock and waits.
 */
bool hybrid_record_first(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts)
{
	struct hybrid_set *s = &e->map.set[set];
	struct hybrid_volume *v = key_volume(e, s->key[i]);
	u64 left = hybrid_replaced_granules(e, s, i);

	if (s->regions.ending & region_bit(i))
		return false;
	if (drains(e, v))
		left |= block_mask(e, s, MASK_JDIRTY, i) & ~block_mask(e, s, MASK_DIRTY, i);
	if (!left || READ_ONCE(v->flush.error))
		return true;
	hybrid_mark_must(e, set, i);
	spin_lock(&e->lock);
	if (origin_durable(v, s->flush_epoch[i])) {
		want(acts, WANT_COMMIT);
	} else {
		v->flush.lazy = true;
		hybrid_origin_flush_locked(e, v, acts);
	}
	spin_unlock(&e->lock);
	return false;
}
