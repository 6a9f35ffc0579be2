// SPDX-License-Identifier: GPL-2.0-only
/*
 * Caches nothing new.  Blocks that an earlier policy left behind are still hit, and
 * are evicted in the order of their index.
 */
#include "../core/policy.h"
#include "module.h"

struct null_set {
	u32 set_size;
	u32 next;		/* where the last search for a victim ended */
	unsigned long present[];
};

static size_t null_set_bytes(u32 set_size)
{
	return round_up(sizeof(struct null_set) + BITS_TO_LONGS(set_size) * sizeof(long),
			sizeof(u64));
}

static void null_init(void *state, u32 set_size)
{
	struct null_set *s = state;

	s->set_size = set_size;
}

static void null_hit(void *state, u32 i)
{
}

static void null_load(void *state, u32 i, u8 hint)
{
	struct null_set *s = state;

	if (i < s->set_size)
		__set_bit(i, s->present);
}

static void null_insert(void *state, u32 i, u32 fingerprint)
{
	null_load(state, i, 0);
}

static void null_remove(void *state, u32 i, u32 fingerprint, bool evicted)
{
	struct null_set *s = state;

	if (i < s->set_size)
		__clear_bit(i, s->present);
}

/* Gives up after @scan unusable blocks; the next search begins behind them. */
static int null_victim(void *state, u32 scan, bool (*usable)(void *ctx, u32 i), void *ctx)
{
	struct null_set *s = state;
	u32 tries = min_t(u32, scan, bitmap_weight(s->present, s->set_size));
	u32 i = s->next;

	while (tries--) {
		i = find_next_bit(s->present, s->set_size, i);
		if (i == s->set_size)
			i = find_first_bit(s->present, s->set_size);
		if (usable(ctx, i)) {
			s->next = i;
			return i;
		}
		i++;
		s->next = i;
	}
	return -1;
}

static u8 null_hint(void *state, u32 i)
{
	return 0;
}

static struct hybrid_policy_type null_policy = {
	.name = "null",
	.owner = THIS_MODULE,
	.admit = false,
	.version = { 1, 0, 0 },
	.set_bytes = null_set_bytes,
	.init = null_init,
	.hit = null_hit,
	.insert = null_insert,
	.remove = null_remove,
	.victim = null_victim,
	.hint = null_hint,
	.load = null_load,
};

HYBRID_POLICY_MODULE(null_policy, "null", "null policy");
