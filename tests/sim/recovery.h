/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What a recovery must find: read from the cache device as it is before the pool
 * is loaded, by the codec alone.  The engine is asked nothing.
 */
#ifndef SIM_RECOVERY_H
#define SIM_RECOVERY_H

#include "sim.h"

struct found_block {
	u32 instance;		/* 0: none, or of no volume that is */
	u64 oblock;
	u64 valid, dirty;
};

struct found {
	struct hybrid_root_info root;
	u16 *generation;	/* of leaves */
	u16 *index;		/* ... of index blocks */
	struct found_block *block;	/* what is clean in open regions is forgotten already */
	struct hybrid_volume_info table[SIM_MAX_VOLUMES];	/* of the world's volumes */
	bool warm[SIM_MAX_VOLUMES];	/* the origin's nonces are known: nothing is forgotten */
	/* The pool failed, and the origin went on alone: it has everything ... */
	bool outdated[SIM_MAX_VOLUMES];
	bool merges[SIM_MAX_VOLUMES];	/* ... but for what is dirty */
};

/* NULL: there is no pool that could be loaded.  Lives as long as sim_arena does. */
struct found *found_read(struct world *w);
/* What the engine has of block @b, that anybody could read. */
struct found_block found_in_ram(struct hybrid_engine *e, u32 b);
/* The volume has block @b of this. */
bool found_of(const struct found *f, u32 b, u32 volume_nr);
/* The pool was loaded: is this what it found?  Whose blocks: one volume's, or NULL: all. */
void found_check(struct world *w, const struct found *f, const struct volume *only);

#endif
