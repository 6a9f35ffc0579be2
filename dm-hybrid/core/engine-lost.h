/* SPDX-License-Identifier: GPL-2.0-only */
/* What is lost when a cache dies. */
#ifndef DM_HYBRID_ENGINE_LOST_H
#define DM_HYBRID_ENGINE_LOST_H

#include "engine.h"
#include "map.h"

/* One volume at a time */
struct hybrid_lost {
	struct hybrid_lost_map *map;
	u32 blocks;			/* metadata blocks of it */
	struct hybrid_volume *volume;	/* whose it is */
	struct list_head waiters;	/* volumes */
	void (*saved)(struct hybrid_engine *e, struct hybrid_volume *v,
		      struct hybrid_actions *acts);
};

void lost_destroy(struct hybrid_engine *e);
/* Blocking, before a volume is open, or larger: have memory for its map; or -ENOMEM. */
int lost_reserve(struct hybrid_engine *e, u64 data_sectors);
/*
 * The pool failed: save what is lost of @v, then call @saved, the same for all volumes.  Under
 * the engine's lock, as @saved; the volume's superblock is busy.
 */
void lost_save(struct hybrid_engine *e, struct hybrid_volume *v,
	       void (*saved)(struct hybrid_engine *e, struct hybrid_volume *v,
			     struct hybrid_actions *acts), struct hybrid_actions *acts);
/* Blocking.  The same while the volume is closed; the caller writes the superblock. */
int lost_save_blocking(struct hybrid_engine *e, struct hybrid_volume *v);

#endif
