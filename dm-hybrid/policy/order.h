/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues of one set's blocks, for policies that keep an order.  Each queue is a
 * ring of links around a sentinel, in 4 bytes a block.  A block is in one queue or
 * in none; the first block of a queue is the next to evict.  Functions ignore an index
 * outside the set, or of a block that is in no queue.  Callers hold the set's lock.
 */
#ifndef DM_HYBRID_POLICY_ORDER_H
#define DM_HYBRID_POLICY_ORDER_H

#include "../core/core.h"

#define HYBRID_ORDER_QUEUES	3

/* A block is its own neighbour while it is in no queue. */
union hybrid_order_link {
	struct {
		u32 prev : 10;
		u32 next : 10;
		u32 rank : 8;	/* 0 ... 255, when ranks were last counted */
		u32 queue : 4;
	};
	u32 all;
};

struct hybrid_order {
	u16 size;		/* of the set, and the first sentinel's index */
	u16 nr[HYBRID_ORDER_QUEUES];	/* blocks in each queue */
	u16 moves;		/* since the ranks were counted, saturates */
	u8 queues;
	bool loading;		/* ranks are set, links are not */
	union hybrid_order_link link[];	/* size + queues */
};

static_assert(HYBRID_MAX_SET_SIZE + HYBRID_ORDER_QUEUES <= 1 << 10);
static_assert(sizeof(union hybrid_order_link) == 4);

static inline size_t hybrid_order_bytes(u32 size, u32 queues)
{
	return sizeof(struct hybrid_order) + (size + queues) * sizeof(union hybrid_order_link);
}

/* A link with block @i on either side. */
static inline union hybrid_order_link hybrid_order_both(u32 i)
{
	union hybrid_order_link link = { .prev = 1, .next = 1 };

	link.all *= i;
	return link;
}

static inline void hybrid_order_init(struct hybrid_order *o, u32 size, u32 queues)
{
	u32 i;

	o->size = size;
	o->queues = queues;
	for (i = 0; i < size + queues; i++)
		o->link[i] = hybrid_order_both(i);
}

static inline bool hybrid_order_has(const struct hybrid_order *o, u32 i)
{
	return i < o->size && o->link[i].next != i;
}

/* Returns the first block of queue @q; if it is empty, its sentinel: no block of the set. */
static inline u32 hybrid_order_first(const struct hybrid_order *o, u32 q)
{
	return o->link[o->size + q].next;
}

static inline void hybrid_order_unlink(struct hybrid_order *o, u32 i)
{
	union hybrid_order_link *l = &o->link[i];

	o->link[l->prev].next = l->next;
	o->link[l->next].prev = l->prev;
	l->prev = i;
	l->next = i;
	o->nr[l->queue]--;
}

static inline void hybrid_order_link_last(struct hybrid_order *o, u32 q, u32 i)
{
	u32 end = o->size + q, last = o->link[end].prev;

	o->link[i].queue = q;
	o->link[i].prev = last;
	o->link[i].next = end;
	o->link[last].next = i;
	o->link[end].prev = i;
	o->nr[q]++;
}

/* Links blocks, loaded in any order, by rank, and blocks of the same rank by index. */
static noinline void hybrid_order_link_loaded(struct hybrid_order *o)
{
	u16 bucket[U8_MAX + 1];
	u32 i, next, rank;

	o->loading = false;
	for (rank = 0; rank <= U8_MAX; rank++)
		bucket[rank] = o->size;
	/* Chain each rank through next. */
	for (i = o->size; i-- > 0; ) {
		if (!hybrid_order_has(o, i))
			continue;
		o->link[i].next = bucket[o->link[i].rank];
		bucket[o->link[i].rank] = i;
	}
	for (rank = 0; rank <= U8_MAX; rank++) {
		for (i = bucket[rank]; i != o->size; i = next) {
			next = o->link[i].next;
			hybrid_order_link_last(o, o->link[i].queue, i);
		}
	}
	o->moves = U16_MAX;
}

/* Every function that looks at links or counts calls this first. */
static inline void hybrid_order_settle(struct hybrid_order *o)
{
	if (unlikely(o->loading))
		hybrid_order_link_loaded(o);
}

static inline void hybrid_order_remove(struct hybrid_order *o, u32 i)
{
	hybrid_order_settle(o);
	if (hybrid_order_has(o, i))
		hybrid_order_unlink(o, i);
}

/* Puts block @i last in queue @q, whether or not it is in a queue. */
static inline void hybrid_order_append(struct hybrid_order *o, u32 q, u32 i)
{
	hybrid_order_settle(o);
	if (i >= o->size || o->link[o->size + q].prev == i)
		return;
	if (hybrid_order_has(o, i))
		hybrid_order_unlink(o, i);
	hybrid_order_link_last(o, q, i);
	o->link[i].rank = U8_MAX;
	if (o->moves != U16_MAX)
		o->moves++;
}

/* Loads block @i with its rank.  Once blocks are linked, appends it instead. */
static inline void hybrid_order_load(struct hybrid_order *o, u32 q, u32 i, u8 rank)
{
	const union hybrid_order_link link = { .rank = rank, .queue = q };

	if (!o->loading && (o->nr[0] || o->nr[1] || o->nr[2])) {
		hybrid_order_append(o, q, i);
		return;
	}
	if (i >= o->size)
		return;
	/* No block is linked before hybrid_order_settle(). */
	o->loading = true;
	o->link[i].all = link.all | hybrid_order_both(o->size).all;
}

static noinline void hybrid_order_count(struct hybrid_order *o)
{
	u32 q, i, place;

	for (q = 0; q < o->queues; q++) {
		place = 0;
		for (i = hybrid_order_first(o, q); i < o->size; i = o->link[i].next)
			o->link[i].rank = o->nr[q] > 1 ? place++ * U8_MAX / (o->nr[q] - 1) : U8_MAX;
	}
	o->moves = 0;
}

/* Have so many blocks moved that the ranks of block @i's queue must be counted again? */
static inline bool hybrid_order_stale(const struct hybrid_order *o, u32 i)
{
	/* Ranks that were loaded count as they are. */
	return !o->loading && o->moves > o->nr[o->link[i].queue] / 8;
}

/*
 * Returns the place of block @i in its queue, 0 first, 255 last.  A rank may be out by
 * an eighth of the queue: counting anew only after so many moves keeps this cheap
 * for a caller that asks for block after block.
 */
static inline u8 hybrid_order_rank(struct hybrid_order *o, u32 i)
{
	if (!hybrid_order_has(o, i))
		return 0;
	if (hybrid_order_stale(o, i))
		hybrid_order_count(o);
	return o->link[i].rank;
}

/*
 * Returns the first block of queue @q that @usable accepts; -1 if there is none, or if
 * @usable refused the first @scan blocks.
 */
static inline int hybrid_order_find(struct hybrid_order *o, u32 q, u32 scan,
				    bool (*usable)(void *ctx, u32 i), void *ctx)
{
	u32 i;

	hybrid_order_settle(o);
	for (i = hybrid_order_first(o, q); i < o->size && scan; i = o->link[i].next, scan--)
		if (usable(ctx, i))
			return i;
	return -1;
}

#endif
