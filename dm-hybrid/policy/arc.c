// SPDX-License-Identifier: GPL-2.0-only
/*
 * ARC (Megiddo and Modha, FAST'03): one queue of the blocks that were requested once,
 * and one of the blocks that were requested again, each in the order of use.  The
 * fingerprints of blocks that a queue lost tell how to divide the cache.  Hits are as
 * exact as recent.h keeps them.  The paper makes room when a known block comes back;
 * this policy evicts in advance, so the division follows one miss later.
 */
#include "../core/policy.h"
#include "module.h"
#include "recent.h"

enum { ARC_ONCE, ARC_AGAIN, ARC_QUEUES };

struct arc_set {
	struct hybrid_recent recent;
	u16 target;		/* blocks that ARC_ONCE should have */
	u16 nr_ghosts[ARC_QUEUES];
	u16 *ghost;		/* oldest first; the lowest bit names the queue */
	struct hybrid_order order;
};

static size_t arc_head(u32 set_size)
{
	return offsetof(struct arc_set, order) + hybrid_order_bytes(set_size, ARC_QUEUES);
}

/* Some more fingerprints than blocks: one may be coming back, and some may be on their way out. */
static u32 arc_ghosts(u32 set_size)
{
	return set_size + set_size / 16 + 1;
}

static size_t arc_set_bytes(u32 set_size)
{
	return round_up(arc_head(set_size) + arc_ghosts(set_size) * sizeof(u16) + set_size,
			sizeof(u64));
}

static void arc_init(void *state, u32 set_size)
{
	struct arc_set *s = state;

	s->recent.set_size = set_size;
	s->ghost = state + arc_head(set_size);
	s->recent.marked = (void *)(s->ghost + arc_ghosts(set_size));
	hybrid_order_init(&s->order, set_size, ARC_QUEUES);
}

static void arc_hit(void *state, u32 i)
{
	struct arc_set *s = state;

	hybrid_recent_hit(&s->recent, i);
}

static struct arc_set *arc_update(void *state)
{
	struct arc_set *s = state;

	hybrid_recent_apply(&s->recent, &s->order, ARC_AGAIN);
	return s;
}

static u32 nr_ghosts(const struct arc_set *s)
{
	return s->nr_ghosts[ARC_ONCE] + s->nr_ghosts[ARC_AGAIN];
}

static void ghost_forget(struct arc_set *s, u32 n)
{
	s->nr_ghosts[s->ghost[n] & 1]--;
	memmove(&s->ghost[n], &s->ghost[n + 1], (nr_ghosts(s) - n) * sizeof(u16));
}

/* Forgets the oldest fingerprint of queue @q. */
static void ghost_forget_oldest(struct arc_set *s, u32 q)
{
	u32 n = 0;

	while ((s->ghost[n] & 1) != q)
		n++;
	ghost_forget(s, n);
}

static void ghost_add(struct arc_set *s, u32 q, u32 fingerprint)
{
	if (nr_ghosts(s) == arc_ghosts(s->order.size))
		ghost_forget(s, 0);
	s->ghost[nr_ghosts(s)] = (fingerprint & ~1U) | q;
	s->nr_ghosts[q]++;
}

static int ghost_find(const struct arc_set *s, u32 fingerprint)
{
	u32 n;

	for (n = 0; n < nr_ghosts(s); n++)
		if (!((s->ghost[n] ^ fingerprint) & (u16)~1U))
			return n;
	return -1;
}

/* A block that queue @q lost is requested again: gives the queue a larger share. */
static void adapt(struct arc_set *s, u32 q)
{
	u32 step = max(s->nr_ghosts[!q] / s->nr_ghosts[q], 1);

	if (q == ARC_ONCE)
		s->target = min_t(u32, s->target + step, s->order.size);
	else
		s->target -= min_t(u32, s->target, step);
}

static void arc_insert(void *state, u32 i, u32 fingerprint)
{
	struct arc_set *s = arc_update(state);
	struct hybrid_order *o = &s->order;
	int n;

	if (i >= o->size || hybrid_order_has(o, i))
		return;
	n = ghost_find(s, fingerprint);
	if (n >= 0) {
		adapt(s, s->ghost[n] & 1);
		ghost_forget(s, n);
		hybrid_order_append(o, ARC_AGAIN, i);
		return;
	}
	hybrid_order_append(o, ARC_ONCE, i);
	while (s->nr_ghosts[ARC_ONCE] && o->nr[ARC_ONCE] + s->nr_ghosts[ARC_ONCE] > o->size)
		ghost_forget_oldest(s, ARC_ONCE);
	while (s->nr_ghosts[ARC_AGAIN] &&
	       o->nr[ARC_ONCE] + o->nr[ARC_AGAIN] + nr_ghosts(s) > 2 * o->size)
		ghost_forget_oldest(s, ARC_AGAIN);
}

static void arc_remove(void *state, u32 i, u32 fingerprint, bool evicted)
{
	struct arc_set *s = arc_update(state);

	if (!hybrid_order_has(&s->order, i))
		return;
	if (evicted)
		ghost_add(s, s->order.link[i].queue, fingerprint);
	hybrid_order_remove(&s->order, i);
}

static bool arc_ghost_hit(void *state, u32 fingerprint)
{
	struct arc_set *s = state;

	if (ghost_find(s, fingerprint) >= 0)
		return true;
	ghost_add(s, ARC_ONCE, fingerprint);
	return false;
}

static int arc_victim(void *state, u32 scan, bool (*usable)(void *ctx, u32 i), void *ctx)
{
	struct arc_set *s = arc_update(state);
	u32 q = s->order.nr[ARC_ONCE] > s->target ? ARC_ONCE : ARC_AGAIN;
	int i = hybrid_order_find(&s->order, q, scan, usable, ctx);

	return i >= 0 ? i : hybrid_order_find(&s->order, !q, scan, usable, ctx);
}

/* A bit for the queue, seven for the place. */
static u8 arc_hint(void *state, u32 i)
{
	struct arc_set *s = arc_update(state);
	u8 place = hybrid_order_rank(&s->order, i) / 2;

	if (!hybrid_order_has(&s->order, i))
		return 0;
	return s->order.link[i].queue << 7 | place;
}

/* Takes the division that was loaded for the right one. */
static void arc_load(void *state, u32 i, u8 hint)
{
	struct arc_set *s = state;

	if (i >= s->order.size)
		return;
	if (hint >> 7 == ARC_ONCE && s->target < s->order.size)
		s->target++;
	hybrid_order_load(&s->order, hint >> 7, i, hint % 128 * 2);
}

static struct hybrid_policy_type arc_policy = {
	.name = "arc",
	.owner = THIS_MODULE,
	.admit = true,
	.version = { 1, 0, 0 },
	.set_bytes = arc_set_bytes,
	.init = arc_init,
	.hit = arc_hit,
	.insert = arc_insert,
	.remove = arc_remove,
	.ghost_hit = arc_ghost_hit,
	.victim = arc_victim,
	.hint = arc_hint,
	.load = arc_load,
};

HYBRID_POLICY_MODULE(arc_policy, "arc", "ARC policy");
