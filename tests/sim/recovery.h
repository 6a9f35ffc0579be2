/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The state that a recovery must find: read from the cache device as it is before the
 * pool is loaded, by the codec alone.  The engine is asked nothing.
 */
#ifndef SIM_RECOVERY_H
#define SIM_RECOVERY_H

#include "sim.h"

struct found_block {
	u32 instance;		/* 0: none, or of no existing volume */
	u64 oblock;
	u64 valid, dirty;
};

struct found {
	struct hybrid_root_info root;
	u16 *generation;	/* of leaves */
	u16 *index;		/* ... of index blocks */
	struct found_block *block;	/* without clean granules of open regions */
	struct hybrid_volume_info table[SIM_MAX_VOLUMES];	/* of the world's volumes */
	bool warm[SIM_MAX_VOLUMES];	/* the origin's nonces are known: nothing is forgotten */
	/* The pool failed, and the origin went on alone: it has all data ... */
	bool outdated[SIM_MAX_VOLUMES];
	bool merges[SIM_MAX_VOLUMES];	/* ... except dirty data */
};

/* Returns NULL if there is no pool that could be loaded.  The result lives as long as sim_arena. */
struct found *found_read(struct world *w);
/* Returns the engine's state of block @b, as far as its data could be read. */
struct found_block found_in_ram(struct hybrid_engine *e, u32 b);
/* Does block @b of @f belong to the volume? */
bool found_of(const struct found *f, u32 b, u32 volume_nr);
/* The pool was loaded: did it find @f?  Checks the blocks of volume @only, or NULL: of all volumes. */
void found_check(struct world *w, const struct found *f, const struct volume *only);

#endif
