// SPDX-License-Identifier: GPL-2.0-only
/* Least recently used; the order is as exact as recent.h keeps the hits. */
#include "../core/policy.h"
#include "module.h"
#include "recent.h"

struct lru_set {
	struct hybrid_recent recent;
	struct hybrid_order order;
};

static size_t lru_head(u32 set_size)
{
	return offsetof(struct lru_set, order) + hybrid_order_bytes(set_size, 1);
}

static size_t lru_set_bytes(u32 set_size)
{
	return round_up(lru_head(set_size) + set_size, sizeof(u64));
}

static void lru_init(void *state, u32 set_size)
{
	struct lru_set *s = state;

	s->recent.set_size = set_size;
	s->recent.marked = state + lru_head(set_size);
	hybrid_order_init(&s->order, set_size, 1);
}

static void lru_hit(void *state, u32 i)
{
	struct lru_set *s = state;

	hybrid_recent_hit(&s->recent, i);
}

static struct hybrid_order *lru_order(void *state)
{
	struct lru_set *s = state;

	hybrid_recent_apply(&s->recent, &s->order, 0);
	return &s->order;
}

static void lru_insert(void *state, u32 i, u32 fingerprint)
{
	hybrid_order_append(lru_order(state), 0, i);
}

static void lru_remove(void *state, u32 i, u32 fingerprint, bool evicted)
{
	hybrid_order_remove(lru_order(state), i);
}

static int lru_victim(void *state, u32 scan, bool (*usable)(void *ctx, u32 i), void *ctx)
{
	return hybrid_order_find(lru_order(state), 0, scan, usable, ctx);
}

static u8 lru_hint(void *state, u32 i)
{
	return hybrid_order_rank(lru_order(state), i);
}

static void lru_load(void *state, u32 i, u8 hint)
{
	struct lru_set *s = state;

	hybrid_order_load(&s->order, 0, i, hint);
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
