/* SPDX-License-Identifier: GPL-2.0-only */
/* The list of granules that are lost with the cache. */
#ifndef DM_HYBRID_ENGINE_LOST_H
#define DM_HYBRID_ENGINE_LOST_H

#include "engine.h"
#include "map.h"

/*
 * Memory for the list of a volume.  Each open volume has its own: the origin of another volume may
 * never answer.
 */
struct hybrid_lost {
	struct hybrid_lost_map *map;	/* NULL: the volume is closed */
	u32 blocks;			/* its size in metadata blocks */
	void (*saved)(struct hybrid_engine *e, struct hybrid_volume *v,
		      struct hybrid_actions *acts);
};

/*
 * Allocates the memory before the volume is opened with @data_sectors, or grows to them.  May
 * sleep.  Returns 0 or -ENOMEM; or, if the volume is open, -EIO if the pool has failed.
 */
int hybrid_lost_reserve(struct hybrid_engine *e, struct hybrid_volume *v, u64 data_sectors);
void hybrid_lost_release(struct hybrid_volume *v);
/*
 * Saves the list of @v's lost granules after the pool failed, then calls @saved.  Both calls are
 * under the engine's lock; the superblock of @v is busy.
 */
void hybrid_lost_save(struct hybrid_engine *e, struct hybrid_volume *v,
		      void (*saved)(struct hybrid_engine *e, struct hybrid_volume *v,
				    struct hybrid_actions *acts), struct hybrid_actions *acts);
/* Does the same for a volume being closed, whose superblock the caller writes.  May sleep. */
int hybrid_lost_save_blocking(struct hybrid_engine *e, struct hybrid_volume *v);

#endif
