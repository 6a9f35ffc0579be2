// SPDX-License-Identifier: GPL-2.0-only
/*
 * SIEVE (Zhang and others, NSDI'24): blocks stay in the order in which they came.
 * A hand goes from the oldest to the newest, and around.  It takes the mark from
 * blocks that were hit, and evicts the first block without a mark.  A hit writes a
 * mark if there is none.
 */
#include "../core/policy.h"
#include "module.h"
#include "order.h"

struct sieve_set {
	struct hybrid_order *order;
	u16 set_size;
	u16 hand;		/* where the search goes on; no block: at the oldest */
	u8 marked[];
};

static size_t sieve_head(u32 set_size)
{
	return round_up(sizeof(struct sieve_set) + set_size, sizeof(u64));
}

static size_t sieve_set_bytes(u32 set_size)
{
	return sieve_head(set_size) + round_up(hybrid_order_bytes(set_size, 1), sizeof(u64));
}

static void sieve_init(void *state, u32 set_size)
{
	struct sieve_set *s = state;

	s->set_size = set_size;
	s->hand = set_size;
	s->order = state + sieve_head(set_size);
	hybrid_order_init(s->order, set_size, 1);
}

static void sieve_hit(void *state, u32 i)
{
	struct sieve_set *s = state;

	if (i < s->set_size && !READ_ONCE(s->marked[i]))
		WRITE_ONCE(s->marked[i], 1);
}

static void sieve_insert(void *state, u32 i, u32 fingerprint)
{
	struct sieve_set *s = state;

	hybrid_order_settle(s->order);
	if (i >= s->set_size || hybrid_order_has(s->order, i))
		return;
	WRITE_ONCE(s->marked[i], 0);
	hybrid_order_append(s->order, 0, i);
}

static void sieve_remove(void *state, u32 i, u32 fingerprint, bool evicted)
{
	struct sieve_set *s = state;

	hybrid_order_settle(s->order);
	if (s->hand == i && i < s->set_size)
		s->hand = s->order->link[i].next;
	hybrid_order_remove(s->order, i);
}

/* A block that must stay is passed over, and keeps its mark. */
static int sieve_victim(void *state, u32 scan, bool (*usable)(void *ctx, u32 i), void *ctx)
{
	struct sieve_set *s = state;
	struct hybrid_order *o = s->order;
	u32 i, most, left = scan;
	bool can;

	hybrid_order_settle(o);
	i = s->hand;
	for (most = 2 * o->nr[0]; most && left; most--) {
		if (i >= o->size)
			i = hybrid_order_first(o, 0);
		if (i >= o->size)
			return -1;
		s->hand = i;
		can = usable(ctx, i);
		if (can && !READ_ONCE(s->marked[i]))
			return i;
		if (can)
			WRITE_ONCE(s->marked[i], 0);
		else if (most > o->nr[0])
			left--;
		i = o->link[i].next;
	}
	s->hand = i;
	/* All were hit again in both rounds: the first usable block will do. */
	return left ? hybrid_order_find(o, 0, scan, usable, ctx) : -1;
}

/* A bit for the mark, seven for the place. */
static u8 sieve_hint(void *state, u32 i)
{
	struct sieve_set *s = state;
	u8 place = hybrid_order_rank(s->order, i) / 2;

	if (!hybrid_order_has(s->order, i))
		return 0;
	return READ_ONCE(s->marked[i]) << 7 | place;
}

static void sieve_load(void *state, u32 i, u8 hint)
{
	struct sieve_set *s = state;

	if (i >= s->set_size)
		return;
	s->marked[i] = hint >> 7;
	hybrid_order_load(s->order, 0, i, hint % 128 * 2);
}

static struct hybrid_policy_type sieve_policy = {
	.name = "sieve",
	.owner = THIS_MODULE,
	.admit = true,
	.version = { 1, 0, 0 },
	.set_bytes = sieve_set_bytes,
	.init = sieve_init,
	.hit = sieve_hit,
	.insert = sieve_insert,
	.remove = sieve_remove,
	.victim = sieve_victim,
	.hint = sieve_hint,
	.load = sieve_load,
};

HYBRID_POLICY_MODULE(sieve_policy, "sieve", "SIEVE policy");
