/* SPDX-License-Identifier: GPL-2.0-only */
/* The order of writeback: dirty windows by ascending key. */
#ifndef DM_HYBRID_ENGINE_SWEEP_H
#define DM_HYBRID_ENGINE_SWEEP_H

#include "engine.h"
#include "map.h"

#define SWEEP_ENDS		32

/* The sweep of one volume. */
struct hybrid_sweep {
	u64 *window;			/* keys; each is there once */
	u32 room, nr;
	u32 next;			/* to hand out; windows before ->sorted are sorted */
	u32 sorted;
	u32 end[SWEEP_ENDS];		/* windows behind an end are higher than before it */
	u32 nr_ends;
	u32 set;			/* the next to look at, with a sweep under way */
	bool under_way;
	u64 cursor, limit;		/* keys from limit on are too high for this sweep */
};

enum sweep_result {
	SWEEP_WINDOW,
	SWEEP_NOTHING,
	SWEEP_AGAIN,			/* not yet: ask again, after others had their turn */
};

/* Finds the next window of @v to write back.  For the writeback worker only. */
enum sweep_result hybrid_sweep_next(struct hybrid_engine *e, struct hybrid_volume *v, u64 *key);
/* Notes that a block of the set has become dirty.  Under the set's lock. */
void hybrid_sweep_note(struct hybrid_engine *e, const struct hybrid_set *s);
/*
 * May sleep; 0 or -ENOMEM.  The @volumes in the table share the memory that one of them would get.
 */
int hybrid_sweep_create(struct hybrid_engine *e, struct hybrid_volume *v, u32 volumes);
void hybrid_sweep_destroy(struct hybrid_volume *v);
u64 hybrid_sweep_ram(const struct hybrid_geometry *g);

#endif
