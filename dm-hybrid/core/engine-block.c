// SPDX-License-Identifier: GPL-2.0-only
/*
 * The state of a block, under the lock of its set: its masks and the counters derived from them,
 * the marks for the journal, and the writes in flight to it.
 */
#include "engine-internal.h"

static void count_granules(struct hybrid_volume *v, u64 before, u64 after)
{
	if (after != before)
		atomic64_add((int)hweight64(after) - (int)hweight64(before), &v->blocks.granules);
}

/* Counts a change of the masks of a block of @v. */
static void count_ended(struct hybrid_volume *v, bool before, bool after)
{
	if (after != before)
		atomic_add(after ? 1 : -1, &v->blocks.ended);
}

void hybrid_put_dirty(struct hybrid_engine *e, struct hybrid_set *s, u32 i, u64 dirty)
{
	struct hybrid_volume *v = key_volume(e, s->key[i]);
	u64 before = block_mask(e, s, MASK_DIRTY, i), jdirty = block_mask(e, s, MASK_JDIRTY, i);
	int change = !!dirty - !!before;

	lockdep_assert_held(&s->lock);
	engine_assert(e, !(dirty & ~block_mask(e, s, MASK_VALID, i)));
	set_put_mask(&e->map, s, MASK_DIRTY, i, dirty);
	count_granules(v, before | jdirty, dirty | jdirty);
	count_ended(v, jdirty && !before, jdirty && !dirty);
	if (!change)
		return;
	if (dirty)
		hybrid_sweep_note(e, s);
	if (dirty && !READ_ONCE(v->blocks.dirtied))
		WRITE_ONCE(v->blocks.dirtied, true);
	s->nr_dirty += change;
	engine_assert(e, s->nr_dirty <= e->map.set_size);
	atomic_add(change, &e->writebacks.nr_dirty);
	atomic_add(change, &v->blocks.dirty);
}

void hybrid_put_jdirty(struct hybrid_engine *e, struct hybrid_set *s, u32 i, u64 jdirty)
{
	struct hybrid_volume *v = key_volume(e, s->key[i]);
	u64 before = block_mask(e, s, MASK_JDIRTY, i), dirty = block_mask(e, s, MASK_DIRTY, i);
	int change = !!jdirty - !!before;

	lockdep_assert_held(&s->lock);
	engine_assert(e, !(jdirty & ~block_mask(e, s, MASK_JVALID, i)));
	set_put_mask(&e->map, s, MASK_JDIRTY, i, jdirty);
	count_granules(v, before | dirty, jdirty | dirty);
	count_ended(v, before && !dirty, jdirty && !dirty);
	if (!change)
		return;
	atomic_add(change, &e->writebacks.nr_jdirty);
	atomic_add(change, &v->blocks.jdirty);
}

/* The region of block @i has records that the next commit must write. */
void hybrid_mark_must(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];

	lockdep_assert_held(&s->lock);
	if (s->regions.must & region_bit(i))
		return;
	s->regions.must |= region_bit(i);
	set_bit(set, e->commit.must_sets);
}

/* ... that nobody waits for. */
void hybrid_mark_lazy(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];

	lockdep_assert_held(&s->lock);
	if (s->regions.lazy & region_bit(i))
		return;
	s->regions.lazy |= region_bit(i);
	set_bit(set, e->commit.lazy_sets);
}

bool hybrid_write_in_flight(const struct hybrid_set *s, u64 key, u64 mask)
{
	struct hybrid_io *w;

	hlist_for_each_entry(w, &s->inflight, write.inflight)
		if (w->key == key && (w->mask & mask))
			return true;
	return false;
}

u64 hybrid_replaced_granules(const struct hybrid_engine *e, const struct hybrid_set *s, u32 i)
{
	return block_mask(e, s, MASK_JDIRTY, i) & ~block_mask(e, s, MASK_VALID, i);
}

void hybrid_each_block(struct hybrid_engine *e, struct hybrid_volume *v,
		       void (*each)(struct hybrid_engine *e, u32 set, u32 i))
{
	unsigned long flags;
	u32 set, i;

	for (set = 0; set < e->map.nr_sets; set++) {
		struct hybrid_set *s = &e->map.set[set];

		spin_lock_irqsave(&s->lock, flags);
		for (i = 0; i < e->map.set_size; i++)
			if ((s->flags[i] & (BLOCK_MAPPED | BLOCK_REMOVED)) &&
			    hybrid_key_volume(s->key[i]) == v->id)
				each(e, set, i);
		spin_unlock_irqrestore(&s->lock, flags);
		cond_resched();
	}
}
