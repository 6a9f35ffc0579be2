// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A policy that holds the engine to policy.h: depending on the call, the policy must know
 * the block or must not know it, and it must know every block that could be evicted.
 * It evicts the block that was inserted first.
 */
#include "sim.h"
#include "fibers.h"
#include "policy/module.h"

#define CONTRACT 0xc0117ac7

struct contract {
	u32 magic;		/* tells it from another policy's state */
	u32 size;
	u32 clock;
	u32 since[];		/* when block i was inserted; 0: unknown block */
};

static void expect(const struct contract *c, bool ok, const char *what, u32 i)
{
	if ((!ok || i >= c->size || c->magic != CONTRACT) && sim_world)
		violation(sim_world, "policy", "%s block %u of %u", what, i, c->size);
}

static size_t contract_set_bytes(u32 set_size)
{
	return round_up(sizeof(struct contract) + set_size * sizeof(u32), sizeof(u64));
}

static void contract_init(void *state, u32 set_size)
{
	struct contract *c = state;

	c->magic = CONTRACT;
	c->size = set_size;
	c->clock = 256;		/* after all loaded blocks */
}

/* Called without a lock: another call may have removed the block since. */
static void contract_hit(void *state, u32 i)
{
	const struct contract *c = state;

	expect(c, sim_interleave || c->since[i], "hit of unknown", i);
}

static void contract_insert(void *state, u32 i, u32 fingerprint)
{
	struct contract *c = state;

	expect(c, !c->since[i], "insertion of known", i);
	c->since[i] = ++c->clock;
}

static void contract_remove(void *state, u32 i, u32 fingerprint, bool evicted)
{
	struct contract *c = state;

	expect(c, c->since[i], "removal of unknown", i);
	c->since[i] = 0;
}

static int contract_victim(void *state, u32 scan, bool (*usable)(void *ctx, u32 i), void *ctx)
{
	struct contract *c = state;
	int victim = -1;
	u32 i;

	for (i = 0; i < c->size; i++) {
		if (!usable(ctx, i))
			continue;
		expect(c, c->since[i], "nobody told of", i);
		if (victim < 0 || c->since[i] < c->since[victim])
			victim = i;
	}
	return victim;
}

static u8 contract_hint(void *state, u32 i)
{
	const struct contract *c = state;

	expect(c, c->since[i], "hint of unknown", i);
	return min(c->since[i], 255U);
}

static void contract_load(void *state, u32 i, u8 hint)
{
	struct contract *c = state;

	expect(c, !c->since[i] && c->clock == 256, "load of known", i);
	c->since[i] = hint + 1;
}

static struct hybrid_policy_type contract_policy = {
	.name = "contract",
	.owner = THIS_MODULE,
	.admit = true,
	.version = { 1, 0, 0 },
	.set_bytes = contract_set_bytes,
	.init = contract_init,
	.hit = contract_hit,
	.insert = contract_insert,
	.remove = contract_remove,
	.victim = contract_victim,
	.hint = contract_hint,
	.load = contract_load,
};

HYBRID_POLICY_MODULE(contract_policy, "contract", "policy that checks its contract");
