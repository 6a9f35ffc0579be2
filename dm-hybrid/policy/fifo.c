// SPDX-License-Identifier: GPL-2.0-only
/* First in, first out: evicts the block that was inserted first, however often it is hit. */
#include "../core/policy.h"
#include "module.h"
#include "order.h"

static size_t fifo_set_bytes(u32 set_size)
{
	return round_up(hybrid_order_bytes(set_size, 1), sizeof(u64));
}

static void fifo_init(void *state, u32 set_size)
{
	hybrid_order_init(state, set_size, 1);
}

static void fifo_hit(void *state, u32 i)
{
}

/* A block that is written again is not inserted again. */
static void fifo_insert(void *state, u32 i, u32 fingerprint)
{
	struct hybrid_order *o = state;

	hybrid_order_settle(o);
	if (!hybrid_order_has(o, i))
		hybrid_order_append(o, 0, i);
}

static void fifo_remove(void *state, u32 i, u32 fingerprint, bool evicted)
{
	hybrid_order_remove(state, i);
}

static int fifo_victim(void *state, u32 scan, bool (*usable)(void *ctx, u32 i), void *ctx)
{
	return hybrid_order_find(state, 0, scan, usable, ctx);
}

static u8 fifo_hint(void *state, u32 i)
{
	return hybrid_order_rank(state, i);
}

static void fifo_load(void *state, u32 i, u8 hint)
{
	hybrid_order_load(state, 0, i, hint);
}

static struct hybrid_policy_type fifo_policy = {
	.name = "fifo",
	.owner = THIS_MODULE,
	.admit = true,
	.version = { 1, 0, 0 },
	.set_bytes = fifo_set_bytes,
	.init = fifo_init,
	.hit = fifo_hit,
	.insert = fifo_insert,
	.remove = fifo_remove,
	.victim = fifo_victim,
	.hint = fifo_hint,
	.load = fifo_load,
};

HYBRID_POLICY_MODULE(fifo_policy, "fifo", "FIFO policy");
