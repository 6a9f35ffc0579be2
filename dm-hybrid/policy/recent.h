/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hits without a lock for policies that keep their blocks in the order of use.  A
 * hit is noted in a small ring; the next operation under the set's lock brings the
 * order up to date.  The order is exact as long as the ring does not overflow
 * between two such updates.  After an overflow, a mark for each block tells whether
 * the ring has lost a hit of it; marked blocks keep their order among themselves.  If
 * hits race, a few may be forgotten.
 */
#ifndef DM_HYBRID_POLICY_RECENT_H
#define DM_HYBRID_POLICY_RECENT_H

#include "order.h"

#define HYBRID_RECENT_HITS	64	/* a power of two */

struct hybrid_recent {
	u16 hits;		/* noted, modulo 2^16 */
	u16 seen;		/* ... of these, the hits that the order reflects */
	u16 set_size;
	u16 ring[HYBRID_RECENT_HITS];
	u8 *marked;		/* by block: was hit, and has not been moved in the order yet */
};

/* Notes a hit of block @i.  Needs no lock. */
static inline void hybrid_recent_hit(struct hybrid_recent *r, u32 i)
{
	u16 hits = READ_ONCE(r->hits);
	u16 last = hits - 1;

	if (i >= r->set_size)
		return;
	if (hits != READ_ONCE(r->seen) && READ_ONCE(r->ring[last % HYBRID_RECENT_HITS]) == i)
		return;
	WRITE_ONCE(r->ring[hits % HYBRID_RECENT_HITS], i);
	WRITE_ONCE(r->hits, hits + 1);
	if (!READ_ONCE(r->marked[i]))
		WRITE_ONCE(r->marked[i], 1);
}

/* Appends to queue @q the blocks whose hits the ring has lost. */
static inline void hybrid_recent_overflow(struct hybrid_recent *r, struct hybrid_order *o, u32 q)
{
	u32 n, from, i, next;

	for (n = 0; n < HYBRID_RECENT_HITS; n++) {
		i = READ_ONCE(r->ring[n]);
		if (i < r->set_size)
			WRITE_ONCE(r->marked[i], 0);
	}
	for (from = 0; from < o->queues; from++) {
		for (i = hybrid_order_first(o, from); i < o->size; i = next) {
			next = o->link[i].next;
			if (!READ_ONCE(r->marked[i]))
				continue;
			WRITE_ONCE(r->marked[i], 0);
			hybrid_order_append(o, q, i);
		}
	}
}

/*
 * Moves the blocks that were hit since the last call to the end of queue @q.  Caller
 * holds the set's lock, and calls this before it reads or changes the order.
 */
static inline void hybrid_recent_apply(struct hybrid_recent *r, struct hybrid_order *o, u32 q)
{
	u16 hits = READ_ONCE(r->hits);
	u16 seen = r->seen;

	hybrid_order_settle(o);
	if ((u16)(hits - seen) > HYBRID_RECENT_HITS) {
		seen = hits - HYBRID_RECENT_HITS;
		hybrid_recent_overflow(r, o, q);
	}
	for (; seen != hits; seen++) {
		u16 i = READ_ONCE(r->ring[seen % HYBRID_RECENT_HITS]);

		if (i < r->set_size)
			WRITE_ONCE(r->marked[i], 0);
		/* May have been removed since, or never inserted. */
		if (hybrid_order_has(o, i))
			hybrid_order_append(o, q, i);
	}
	WRITE_ONCE(r->seen, seen);
}

#endif
