/* SPDX-License-Identifier: GPL-2.0-only */
/* The list of granules that are lost with the cache. */
#ifndef DM_HYBRID_ENGINE_LOST_H
#define DM_HYBRID_ENGINE_LOST_H

#include "engine.h"
#include "map.h"

/* Memory for the list, used for one volume at a time. */
struct hybrid_lost {
	struct hybrid_lost_map *map;
	u32 blocks;			/* metadata blocks of it */
	struct hybrid_volume *volume;	/* whose it is */
	struct list_head waiters;	/* volumes */
	void (*saved)(struct hybrid_engine *e, struct hybrid_volume *v,
		      struct hybrid_actions *acts);
};

void lost_destroy(struct hybrid_engine *e);
/* Blocking, before a volume is opened or grows: allocates memory for its list.  0 or -ENOMEM. */
int lost_reserve(struct hybrid_engine *e, u64 data_sectors);
/*
 * The pool failed: saves the list of @v's lost granules, then calls @saved, which is the same for
 * all volumes.  Both under the engine's lock; the superblock of @v is busy.
 */
void lost_save(struct hybrid_engine *e, struct hybrid_volume *v,
	       void (*saved)(struct hybrid_engine *e, struct hybrid_volume *v,
			     struct hybrid_actions *acts), struct hybrid_actions *acts);
/* Blocking: the same for a volume being closed, whose superblock the caller writes. */
int lost_save_blocking(struct hybrid_engine *e, struct hybrid_volume *v);

#endif
