/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A small queue in front of a main one, as in S3-FIFO and Clock2Q+.  A block that is
 * requested once leaves the small queue soon, and leaves a fingerprint.  A block that
 * was hit in the small queue, or comes back while its fingerprint is known, goes to
 * the main queue: a clock with a counter of two bits for each block.  A hit writes
 * only that counter.
 *
 * While a set fills, blocks for which the small queue's share has no room go to the
 * main queue at once.  Otherwise a loop that is larger than the cache would find the
 * main queue empty for ever.
 *
 * Hits on a new block may say little, because they belong to the miss that brought
 * it.  So the newest blocks of the small queue may have a queue of their own.  When a
 * block leaves that queue, its counter begins anew.
 */
#ifndef DM_HYBRID_POLICY_TWOQUEUE_H
#define DM_HYBRID_POLICY_TWOQUEUE_H

#include "../core/policy.h"
#include "ghost.h"
#include "order.h"

/* In the order in which their blocks are evicted, other things being equal. */
enum {
	TWOQUEUE_SMALL,
	TWOQUEUE_NEW,
	TWOQUEUE_MAIN,
	TWOQUEUE_QUEUES
};

#define TWOQUEUE_MOST_HITS	3

/*
 * Blocks of the small queue: a tenth of a full set, as in the papers.  The runs of I/O that pass at
 * one time are not fewer in a smaller set, so it gets as many, but not more than a third of it.
 */
#define TWOQUEUE_SMALL_BLOCKS	(HYBRID_MAX_SET_SIZE / 10)

struct hybrid_twoqueue {
	struct hybrid_order *order;
	struct hybrid_ghost *ghost;
	u16 set_size;
	u16 small;		/* the small queue's share, the newest included */
	u16 window;		/* of these, the newest, whose hits do not count */
	u8 need;		/* hits that move a block from the small queue to the main one */
	bool full;		/* a block had to go */
	u8 hits[];		/* set_size: hits not yet used up, written without a lock */
};

static_assert(TWOQUEUE_QUEUES <= HYBRID_ORDER_QUEUES);

static inline u32 hybrid_twoqueue_ghosts(u32 set_size)
{
	return set_size * 9 / 10;
}

static inline size_t hybrid_twoqueue_head(u32 set_size)
{
	return round_up(sizeof(struct hybrid_twoqueue) + set_size, sizeof(u64));
}

static inline size_t hybrid_twoqueue_bytes(u32 set_size)
{
	size_t bytes = hybrid_order_bytes(set_size, TWOQUEUE_QUEUES) +
		       hybrid_ghost_bytes(hybrid_twoqueue_ghosts(set_size));

	return hybrid_twoqueue_head(set_size) + round_up(bytes, sizeof(u64));
}

/* @window: percent of the small queue. */
static inline void hybrid_twoqueue_init(void *state, u32 set_size, u32 window, u8 need)
{
	struct hybrid_twoqueue *t = state;

	t->set_size = set_size;
	t->small = clamp(set_size / 3, 1U, (u32)TWOQUEUE_SMALL_BLOCKS);
	t->window = t->small * window / 100;
	t->need = need;
	t->order = state + hybrid_twoqueue_head(set_size);
	hybrid_order_init(t->order, set_size, TWOQUEUE_QUEUES);
	t->ghost = (void *)t->order + hybrid_order_bytes(set_size, TWOQUEUE_QUEUES);
	hybrid_ghost_init(t->ghost, hybrid_twoqueue_ghosts(set_size));
}

static inline void hybrid_twoqueue_hit(void *state, u32 i)
{
	struct hybrid_twoqueue *t = state;
	u8 hits;

	if (i >= t->set_size)
		return;
	hits = READ_ONCE(t->hits[i]);
	if (hits < TWOQUEUE_MOST_HITS)
		WRITE_ONCE(t->hits[i], hits + 1);
}

static inline void hybrid_twoqueue_move(struct hybrid_twoqueue *t, u32 q, u32 i)
{
	WRITE_ONCE(t->hits[i], 0);
	hybrid_order_append(t->order, q, i);
}

static inline u32 hybrid_twoqueue_nr_small(const struct hybrid_twoqueue *t)
{
	return t->order->nr[TWOQUEUE_SMALL] + t->order->nr[TWOQUEUE_NEW];
}

static inline void hybrid_twoqueue_insert(void *state, u32 i, u32 fingerprint)
{
	struct hybrid_twoqueue *t = state;
	struct hybrid_order *o = t->order;
	u16 *ghost;
	bool main;

	hybrid_order_settle(o);
	if (i >= t->set_size || hybrid_order_has(o, i))
		return;
	if (hybrid_twoqueue_nr_small(t) + o->nr[TWOQUEUE_MAIN] < t->set_size / 2)
		t->full = false;
	ghost = hybrid_ghost_find(t->ghost, fingerprint);
	if (ghost)
		*ghost = GHOST_FORGOTTEN;
	main = ghost || (!t->full && hybrid_twoqueue_nr_small(t) >= t->small);
	hybrid_twoqueue_move(t, main ? TWOQUEUE_MAIN : TWOQUEUE_NEW, i);
	while (o->nr[TWOQUEUE_NEW] > t->window)
		hybrid_twoqueue_move(t, TWOQUEUE_SMALL, hybrid_order_first(o, TWOQUEUE_NEW));
}

static inline void hybrid_twoqueue_remove(void *state, u32 i, u32 fingerprint, bool evicted)
{
	struct hybrid_twoqueue *t = state;
	struct hybrid_order *o = t->order;

	hybrid_order_settle(o);
	if (!hybrid_order_has(o, i))
		return;
	t->full |= evicted;
	if (evicted && o->link[i].queue != TWOQUEUE_MAIN)
		hybrid_ghost_add(t->ghost, fingerprint);
	hybrid_order_remove(o, i);
}

static inline bool hybrid_twoqueue_ghost_hit(void *state, u32 fingerprint)
{
	struct hybrid_twoqueue *t = state;

	if (hybrid_ghost_find(t->ghost, fingerprint))
		return true;
	hybrid_ghost_add(t->ghost, fingerprint);
	return false;
}

/* The victim in the small queue; blocks that were hit move on until the queue has its share. */
static inline int hybrid_twoqueue_small(struct hybrid_twoqueue *t, u32 *scan,
					bool (*usable)(void *ctx, u32 i), void *ctx)
{
	struct hybrid_order *o = t->order;
	u32 i, next;
	bool can;

	for (i = hybrid_order_first(o, TWOQUEUE_SMALL); i < o->size; i = next) {
		next = o->link[i].next;
		if (hybrid_twoqueue_nr_small(t) < t->small || !*scan)
			return -1;
		can = usable(ctx, i);
		if (can && READ_ONCE(t->hits[i]) < t->need)
			return i;
		if (can)
			hybrid_twoqueue_move(t, TWOQUEUE_MAIN, i);
		else
			--*scan;
	}
	return -1;
}

/* The clock; a block that must stay is passed over, and keeps its hits and its place. */
static inline int hybrid_twoqueue_main(struct hybrid_twoqueue *t, u32 *scan,
				       bool (*usable)(void *ctx, u32 i), void *ctx)
{
	struct hybrid_order *o = t->order;
	u32 i, next, hits, most = (TWOQUEUE_MOST_HITS + 1) * o->nr[TWOQUEUE_MAIN];

	for (i = hybrid_order_first(o, TWOQUEUE_MAIN); i < o->size && most && *scan;
	     i = next, most--) {
		next = o->link[i].next;
		if (!usable(ctx, i)) {
			--*scan;
			continue;
		}
		hits = READ_ONCE(t->hits[i]);
		if (!hits)
			return i;
		WRITE_ONCE(t->hits[i], hits - 1);
		hybrid_order_append(o, TWOQUEUE_MAIN, i);
		/* The last one comes again at once. */
		if (next >= o->size)
			next = i;
	}
	return -1;
}

static inline int hybrid_twoqueue_victim(void *state, u32 scan, bool (*usable)(void *ctx, u32 i),
					 void *ctx)
{
	struct hybrid_twoqueue *t = state;
	u32 left = scan, q;
	int i;

	hybrid_order_settle(t->order);
	i = hybrid_twoqueue_small(t, &left, usable, ctx);
	if (i < 0)
		i = hybrid_twoqueue_main(t, &left, usable, ctx);
	/* Neither queue gives up a block by its rules: any will do. */
	for (q = 0; i < 0 && left && q < TWOQUEUE_QUEUES; q++)
		i = hybrid_order_find(t->order, q, scan, usable, ctx);
	return i;
}

/* Two bits for the queue, 3 for a block of the main one that was hit; six for the place. */
static inline u8 hybrid_twoqueue_counted(const struct hybrid_twoqueue *t, u32 i)
{
	u8 place = t->order->link[i].rank / 4, q = t->order->link[i].queue;

	return (q == TWOQUEUE_MAIN && READ_ONCE(t->hits[i]) ? 3 : q) << 6 | place;
}

static noinline u8 hybrid_twoqueue_count(const struct hybrid_twoqueue *t, u32 i)
{
	hybrid_order_count(t->order);
	return hybrid_twoqueue_counted(t, i);
}

static inline u8 hybrid_twoqueue_hint(void *state, u32 i)
{
	const struct hybrid_twoqueue *t = state;

	if (!hybrid_order_has(t->order, i))
		return 0;
	if (hybrid_order_stale(t->order, i))
		return hybrid_twoqueue_count(t, i);
	return hybrid_twoqueue_counted(t, i);
}

static inline void hybrid_twoqueue_load(void *state, u32 i, u8 hint)
{
	struct hybrid_twoqueue *t = state;

	if (i >= t->set_size)
		return;
	t->hits[i] = hint >> 6 == 3;
	hybrid_order_load(t->order, min(hint >> 6, TWOQUEUE_MAIN), i, hint % 64 * 4);
}

#define HYBRID_TWOQUEUE_OPS				\
	.owner = THIS_MODULE,				\
	.admit = true,					\
	.version = { 1, 0, 0 },				\
	.set_bytes = hybrid_twoqueue_bytes,		\
	.hit = hybrid_twoqueue_hit,			\
	.insert = hybrid_twoqueue_insert,		\
	.remove = hybrid_twoqueue_remove,		\
	.ghost_hit = hybrid_twoqueue_ghost_hit,			\
	.victim = hybrid_twoqueue_victim,		\
	.hint = hybrid_twoqueue_hint,			\
	.load = hybrid_twoqueue_load

#endif
