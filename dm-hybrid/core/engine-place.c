// SPDX-License-Identifier: GPL-2.0-only
/*
 * Places on the cache device that fail.  One error may be chance, but if I/O to a block fails
 * again its place is bad, and the next data put there would suffer, too.  So the engine
 * remembers the blocks that failed last.  A block that fails for the second time is bad:
 *   1. it is evicted if it can be; otherwise with the next error, or whenever it leaves;
 *   2. once removed, it is not taken back;
 *   3. when it would become free, it is retired: it gets no data until the pool is loaded
 *      again.
 * A share of each set may be retired.  If more blocks fail, the device is bad, not its places.
 *
 * All this is in RAM alone: a block without data needs no record.
 */
#include "engine-internal.h"

#define RETIRED_SHARE	8	/* one block in so many of a set may be retired */

static u32 block_number(const struct hybrid_engine *e, u32 set, u32 i)
{
	return from_cblock(hybrid_map_cblock(&e->map, set, i));
}

/* The next four functions run under the engine's lock. */
static struct hybrid_place *find_place(struct hybrid_places *p, u32 block)
{
	u32 n;

	for (n = 0; n < p->nr; n++)
		if (p->place[n].block == block)
			return &p->place[n];
	return NULL;
}

static void forget_place(struct hybrid_places *p, struct hybrid_place *place)
{
	struct hybrid_place *end = &p->place[p->nr--];

	if (place->bad)
		WRITE_ONCE(p->nr_bad, p->nr_bad - 1);
	memmove(place, place + 1, (end - place - 1) * sizeof(*place));
}

/* Make room: forget the oldest place that is not bad; bad ones stay until they are retired. */
static void forget_oldest(struct hybrid_places *p)
{
	u32 n;

	for (n = 0; n < p->nr && p->place[n].bad; n++)
		;
	if (n < p->nr)
		forget_place(p, &p->place[n]);
}

/* Returns whether the place is bad. */
static bool note_place(struct hybrid_places *p, u32 block)
{
	struct hybrid_place *place = find_place(p, block);

	if (place && !place->bad) {
		place->bad = true;
		WRITE_ONCE(p->nr_bad, p->nr_bad + 1);
	}
	if (place)
		return true;
	if (p->nr == NR_PLACES)
		forget_oldest(p);
	if (p->nr < NR_PLACES)
		p->place[p->nr++] = (struct hybrid_place){ .block = block };
	return false;
}

bool hybrid_place_note(struct hybrid_engine *e, u32 set, u32 i)
{
	bool bad;

	lockdep_assert_held(&e->map.set[set].lock);
	spin_lock(&e->lock);
	bad = note_place(&e->places, block_number(e, set, i));
	spin_unlock(&e->lock);
	return bad;
}

bool hybrid_place_is_bad(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_place *place;
	bool bad;

	lockdep_assert_held(&e->map.set[set].lock);
	if (!READ_ONCE(e->places.nr_bad))
		return false;
	spin_lock(&e->lock);
	place = find_place(&e->places, block_number(e, set, i));
	bad = place && place->bad;
	spin_unlock(&e->lock);
	return bad;
}

/* Forget block @i, which is bad; returns whether it is to be retired. */
static bool retires(struct hybrid_engine *e, u32 set, u32 i)
{
	bool room = e->map.set[set].nr_retired < e->map.set_size / RETIRED_SHARE;
	u32 block = block_number(e, set, i);

	spin_lock(&e->lock);
	forget_place(&e->places, find_place(&e->places, block));
	if (room) {
		e->places.last_retired = block;
		WRITE_ONCE(e->places.nr_retired, e->places.nr_retired + 1);
	}
	spin_unlock(&e->lock);
	return room;
}

bool hybrid_place_free(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];

	lockdep_assert_held(&s->lock);
	if (hybrid_place_is_bad(e, set, i) && retires(e, set, i)) {
		hybrid_set_retire(&e->map, s, i);
		return false;
	}
	hybrid_set_free(&e->map, s, i);
	return true;
}

u32 hybrid_engine_retired(struct hybrid_engine *e, u64 *sector)
{
	unsigned long flags;
	u32 nr;

	spin_lock_irqsave(&e->lock, flags);
	nr = e->places.nr_retired;
	*sector = hybrid_data_sector(e->g, to_cblock(e->places.last_retired));
	spin_unlock_irqrestore(&e->lock, flags);
	return nr;
}

const char *hybrid_places_check(const struct hybrid_engine *e)
{
	const struct hybrid_places *p = &e->places;
	u32 set, n, bad = 0, retired = 0;

	for (set = 0; set < e->map.nr_sets; set++)
		retired += e->map.set[set].nr_retired;
	for (n = 0; n < p->nr; n++)
		bad += p->place[n].bad;
	return bad == p->nr_bad && retired == p->nr_retired ? NULL :
	       "the counts of bad places are wrong";
}
