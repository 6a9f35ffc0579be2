/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fingerprints that a set keeps of blocks that it does not have: half of each, in 2 bytes, in
 * two hash tables.  When the young table is full, it becomes the old one, and the old one is
 * forgotten.  So the newest half is known for certain, and nothing beyond both.  One new block
 * in a hundred seems to be known by chance, which costs no more than a wrong guess.  Callers
 * hold the set's lock.
 */
#ifndef DM_HYBRID_POLICY_GHOST_H
#define DM_HYBRID_POLICY_GHOST_H

#include "../core/core.h"

enum {
	GHOST_NONE,		/* ends a search */
	GHOST_FORGOTTEN,	/* does not */
	GHOST_FINGERPRINT	/* the first */
};

struct hybrid_ghost {
	u16 most;		/* fingerprints of a table, forgotten ones included */
	u16 size;		/* slots of a table: a fifth stays empty */
	u16 nr;			/* in the young table */
	u16 young;		/* 0 or 1 */
	u16 slot[];
};

/* @nr: of both tables. */
static inline u32 hybrid_ghost_most(u32 nr)
{
	return nr / 2 + 1;
}

static inline u32 hybrid_ghost_size(u32 nr)
{
	return hybrid_ghost_most(nr) * 5 / 4 + 1;
}

static inline size_t hybrid_ghost_bytes(u32 nr)
{
	return sizeof(struct hybrid_ghost) + 2 * hybrid_ghost_size(nr) * sizeof(u16);
}

/* @g is zeroed. */
static inline void hybrid_ghost_init(struct hybrid_ghost *g, u32 nr)
{
	g->most = hybrid_ghost_most(nr);
	g->size = hybrid_ghost_size(nr);
}

static inline u16 hybrid_ghost_half(u32 fingerprint)
{
	return max_t(u16, fingerprint, GHOST_FINGERPRINT);
}

/* Returns the slot of @half in @table, or the empty one where it would be. */
static inline u16 *hybrid_ghost_slot(const struct hybrid_ghost *g, u16 *table, u16 half)
{
	u16 *slot = table + (half * (u32)g->size >> 16);

	while (*slot != half && *slot != GHOST_NONE)
		if (++slot == table + g->size)
			slot = table;
	return slot;
}

/* Returns where the fingerprint is, or NULL. */
static inline u16 *hybrid_ghost_find(struct hybrid_ghost *g, u32 fingerprint)
{
	u16 half = hybrid_ghost_half(fingerprint), *slot;

	slot = hybrid_ghost_slot(g, g->slot, half);
	if (*slot == GHOST_NONE)
		slot = hybrid_ghost_slot(g, g->slot + g->size, half);
	return *slot == GHOST_NONE ? NULL : slot;
}

/* Adds the newest fingerprint. */
static inline void hybrid_ghost_add(struct hybrid_ghost *g, u32 fingerprint)
{
	u16 half = hybrid_ghost_half(fingerprint), *slot;

	if (g->nr == g->most) {
		g->young = !g->young;
		g->nr = 0;
		memset(g->slot + g->young * g->size, 0, g->size * sizeof(u16));
	}
	slot = hybrid_ghost_slot(g, g->slot + g->young * g->size, half);
	if (*slot == GHOST_NONE) {
		*slot = half;
		g->nr++;
	}
}

#endif
