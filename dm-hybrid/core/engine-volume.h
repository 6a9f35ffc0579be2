/* SPDX-License-Identifier: GPL-2.0-only */
/* The volume table; opening and closing volumes; session nonces. */
#ifndef DM_HYBRID_ENGINE_VOLUME_H
#define DM_HYBRID_ENGINE_VOLUME_H

#include "engine.h"
#include "map.h"

#define VOLUMES_TOGETHER	64

/* The pool's volumes. */
struct hybrid_volumes {
	struct hybrid_volume **group[HYBRID_MAX_VOLUMES / VOLUMES_TOGETHER];	/* volume_of() */
	struct list_head open;		/* hybrid_volume.open_link */
	u32 nr_open;
	u32 next_instance;		/* for the next volume created */
};

enum volume_state {
	VOLUME_CLOSED,
	VOLUME_CLAIMED,			/* being opened or closed */
	VOLUME_OPEN,
	VOLUME_SUSPENDED,
};

/* Allocates a volume outside any table; returns NULL if there is no memory.  May sleep. */
struct hybrid_volume *hybrid_volume_alloc(struct hybrid_engine *e, u32 id,
					  const struct hybrid_volume_info *info);
void hybrid_volume_free(struct hybrid_volume *v);
/*
 * Enters @v, or NULL, into the table as volume @id, for which hybrid_volume_alloc() was called
 * before.
 */
void hybrid_volume_enter(struct hybrid_engine *e, u32 id, struct hybrid_volume *v);
void hybrid_volumes_destroy(struct hybrid_engine *e);
/*
 * Forgets all blocks of @v, which has no I/O in flight.  @free: they can be reused, because both
 * roots know that the instance in their records is dead.  May sleep.
 */
void hybrid_volume_purge(struct hybrid_engine *e, struct hybrid_volume *v, bool free);

#endif
