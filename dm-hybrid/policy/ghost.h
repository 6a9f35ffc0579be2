/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fingerprints that a set keeps of blocks that it does not have: half of each, in 2
 * bytes, oldest first.  One new block in a hundred seems to be known by chance, which
 * costs no more than a wrong guess.  Callers hold the set's lock.
 */
#ifndef DM_HYBRID_POLICY_GHOST_H
#define DM_HYBRID_POLICY_GHOST_H

#include "../core/core.h"

struct hybrid_ghost {
	u16 nr;
	u16 max;
	u16 fingerprint[];
};

static inline size_t hybrid_ghost_bytes(u32 max)
{
	return sizeof(struct hybrid_ghost) + max * sizeof(u16);
}

static inline int hybrid_ghost_find(const struct hybrid_ghost *g, u16 fingerprint)
{
	u32 n;

	for (n = 0; n < g->nr; n++)
		if (g->fingerprint[n] == fingerprint)
			return n;
	return -1;
}

static inline void hybrid_ghost_forget(struct hybrid_ghost *g, u32 n)
{
	g->nr--;
	memmove(&g->fingerprint[n], &g->fingerprint[n + 1], (g->nr - n) * sizeof(u16));
}

/* Adds the newest fingerprint; if there is no room, the oldest goes. */
static inline void hybrid_ghost_add(struct hybrid_ghost *g, u16 fingerprint)
{
	if (!g->max)
		return;
	if (g->nr == g->max)
		hybrid_ghost_forget(g, 0);
	g->fingerprint[g->nr++] = fingerprint;
}

#endif
