// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Counters near their wrap.  While nothing is under way, the count of a life of months is
 * added to each counter, and to all values that are compared with it.
 */
#include "sim.h"
#include "engine-internal.h"
#include "script.h"

#define CYCLE	(1U << 30)	/* flushes of an origin: all flush epochs are lifted in fewer */

/* Draws a distance from the wrap that a run covers. */
static u32 few(struct world *w)
{
	return 1 + rng_below(&w->agerng, 12);
}

static void age_flush_epochs(struct hybrid_engine *e, const struct hybrid_volume *v, u32 by)
{
	u32 set, i;

	for (set = 0; set < e->map.nr_sets; set++) {
		struct hybrid_set *s = &e->map.set[set];

		for (i = 0; i < e->map.set_size; i++)
			if ((s->flags[i] & (BLOCK_MAPPED | BLOCK_REMOVED)) &&
			    hybrid_key_volume(s->key[i]) == v->id)
				s->flush_epoch[i] += by;
	}
}

/* A volume was opened. */
void age_volume(struct world *w, struct hybrid_volume *v)
{
	u64 by;

	if (!w->p.aged || v->flush.epoch > CYCLE)
		return;
	by = (w->p.aged == 1 ? BIT_ULL(31) : BIT_ULL(32)) - few(w) - v->flush.epoch;
	v->flush.epoch += by;
	v->flush.flushed += by;
	v->flush.last_write += by;
	v->flush.last_user_write += by;
	age_flush_epochs(w->e, v, by);
}

/* The pool was loaded: no block is on its way out yet. */
void age_pool(struct world *w)
{
	struct hybrid_engine *e = w->e;
	unsigned long readers = ULONG_MAX - few(w), written = ULONG_MAX - 1000 * few(w);
	u32 phase;

	if (!w->p.aged || e->evict.grace.started > CYCLE)
		return;
	e->evict.grace.started = (w->p.aged == 1 ? (u32)BIT(31) : 0) - few(w);
	e->evict.grace.done = e->evict.grace.started;
	e->stall.tick = U32_MAX - few(w);
	for (phase = 0; phase < 2; phase++) {
		per_cpu_ptr(e->evict.readers, 0)->enter[phase] += readers;
		per_cpu_ptr(e->evict.readers, 0)->leave[phase] += readers;
	}
	per_cpu_ptr(e->evict.readers, 0)->cache_written += written;
	e->wear.written += written;
}

/* Ages each origin as by so many flushes, except origins with unflushed writes. */
void age_flushes(struct world *w)
{
	struct hybrid_engine *e = w->e;
	u32 i;

	for (i = 0; i < e->map.nr_sets; i++)
		hybrid_lift_flush_epochs(e);
	for (i = 0; i < w->nr_vol; i++) {
		struct hybrid_volume *v = w->vol[i]->v;

		if (!v || v->flush.busy || v->sb.busy || v->flush.last_write > v->flush.flushed)
			continue;
		v->flush.epoch += CYCLE - 1;
		v->flush.flushed = v->flush.epoch - 1;
		v->flush.last_write = v->flush.flushed;
	}
}
