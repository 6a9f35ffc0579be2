/* SPDX-License-Identifier: GPL-2.0-only */
/* The list of granules that are lost with the cache. */
#ifndef DM_HYBRID_ENGINE_LOST_H
#define DM_HYBRID_ENGINE_LOST_H

#include "engine.h"
#include "map.h"

/* Memory for the list, used for one volume at a time. */
struct hybrid_lost {
	struct hybrid_lost_map *map;
	u32 blocks;			/* its size in metadata blocks */
	struct hybrid_volume *volume;	/* the one that uses it, or NULL */
	struct list_head waiters;	/* volumes */
	void (*saved)(struct hybrid_engine *e, struct hybrid_volume *v,
		      struct hybrid_actions *acts);
};

void hybrid_lost_destroy(struct hybrid_engine *e);
/*
 * Allocates memory for the list of a volume, before it is opened or grows.  May sleep.  Returns 0
 * or -ENOMEM.
 */
int hybrid_lost_reserve(struct hybrid_engine *e, u64 data_sectors);
/*
 * Saves the list of @v's lost granules after the pool failed, then calls @saved, which is the same
 * function for all volumes.  Both calls are under the engine's lock; the superblock of @v is busy.
 */
void hybrid_lost_save(struct hybrid_engine *e, struct hybrid_volume *v,
		      void (*saved)(struct hybrid_engine *e, struct hybrid_volume *v,
				    struct hybrid_actions *acts), struct hybrid_actions *acts);
/* Does the same for a volume being closed, whose superblock the caller writes.  May sleep. */
int hybrid_lost_save_blocking(struct hybrid_engine *e, struct hybrid_volume *v);

#endif
