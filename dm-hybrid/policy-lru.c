// SPDX-License-Identifier: GPL-2.0-only
/*
 * Least recently used.  A hit takes no lock: it notes the block in a small ring
 * of recent hits, and whoever next holds the set's lock brings the order up to
 * date.  The order is exactly LRU as long as the ring does not overflow between
 * two such times; where it does, or where hits race, the oldest or a few hits
 * are forgotten.
 */
#include "policy.h"
#include "policy-module.h"
#include "policy-order.h"

#define RECENT_HITS	64	/* a power of two */

struct lru_set {
	u16 hits;		/* noted, counts on without end */
	u16 seen;		/* of those, how many the order knows */
	u16 set_size;
	u16 recent[RECENT_HITS];
	struct hybrid_order order;
};

static size_t lru_set_bytes(u32 set_size)
{
	return round_up(offsetof(struct lru_set, order) + hybrid_order_bytes(set_size),
			sizeof(u64));
}

static void lru_init(void *state, u32 set_size)
{
	struct lru_set *s = state;

	s->set_size = set_size;
	hybrid_order_init(&s->order, set_size);
}

static void lru_hit(void *state, u32 i)
{
	struct lru_set *s = state;
	u16 hits = READ_ONCE(s->hits);
	u16 last = hits - 1;

	if (i >= s->set_size)
		return;
	if (hits != READ_ONCE(s->seen) && READ_ONCE(s->recent[last % RECENT_HITS]) == i)
		return;
	WRITE_ONCE(s->recent[hits % RECENT_HITS], i);
	WRITE_ONCE(s->hits, hits + 1);
}

/* Let the order know the hits noted since the last time. */
static void lru_catch_up(struct lru_set *s)
{
	u16 hits = READ_ONCE(s->hits);
	u16 seen = s->seen;

	if ((u16)(hits - seen) > RECENT_HITS)
		seen = hits - RECENT_HITS;
	for (; seen != hits; seen++) {
		u16 i = READ_ONCE(s->recent[seen % RECENT_HITS]);

		/* May have been removed since, or never inserted. */
		if (hybrid_order_has(&s->order, i))
			hybrid_order_append(&s->order, i);
	}
	WRITE_ONCE(s->seen, seen);
}

/* Before anything reads or changes the order. */
static struct lru_set *lru_update(void *state)
{
	struct lru_set *s = state;

	hybrid_order_settle(&s->order);
	lru_catch_up(s);
	return s;
}

static void lru_insert(void *state, u32 i, u32 print)
{
	hybrid_order_append(&lru_update(state)->order, i);
}

static void lru_remove(void *state, u32 i, u32 print, bool evicted)
{
	hybrid_order_remove(&lru_update(state)->order, i);
}

static int lru_victim(void *state, u32 scan, bool (*usable)(void *ctx, u32 i), void *ctx)
{
	return hybrid_order_find(&lru_update(state)->order, scan, usable, ctx);
}

static u8 lru_hint(void *state, u32 i)
{
	return hybrid_order_rank(&lru_update(state)->order, i);
}

static void lru_load(void *state, u32 i, u8 hint)
{
	struct lru_set *s = state;

	hybrid_order_load(&s->order, i, hint);
}

static struct hybrid_policy_type lru_policy = {
	.name = "lru",
	.owner = THIS_MODULE,
	.admit = true,
	.version = { 1, 0, 0 },
	.set_bytes = lru_set_bytes,
	.init = lru_init,
	.hit = lru_hit,
	.insert = lru_insert,
	.remove = lru_remove,
	.victim = lru_victim,
	.hint = lru_hint,
	.load = lru_load,
};

HYBRID_POLICY_MODULE(lru_policy, "lru", "LRU policy");
