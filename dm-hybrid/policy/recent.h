/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hits without a lock for policies that keep their blocks in the order of use: a
 * hit is noted in a small ring, and whoever next holds the set's lock brings the
 * order up to date.  The order is exact as long as the ring does not overflow
 * between two such times; where it does, a mark for each block says which were
 * hit, and their order is taken to be what it was.  Where hits race, a few may be
 * forgotten.
 */
#ifndef DM_HYBRID_POLICY_RECENT_H
#define DM_HYBRID_POLICY_RECENT_H

#include "order.h"

#define HYBRID_RECENT_HITS	64	/* a power of two */

struct hybrid_recent {
	u16 hits;		/* noted, counts on without end */
	u16 seen;		/* of those, how many the order knows */
	u16 set_size;
	u16 ring[HYBRID_RECENT_HITS];
	u8 *marked;		/* hit, and the order does not know */
};

/* Without a lock. */
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

/* Blocks that were hit before those in the ring, as it stands. */
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
 * Under the set's lock, before anything reads or changes the order: what was hit
 * since the last time goes to the end of queue @q.
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
