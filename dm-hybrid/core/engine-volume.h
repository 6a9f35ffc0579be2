/* SPDX-License-Identifier: GPL-2.0-only */
/* Volume table; volumes are opened and closed, nonces. */
#ifndef DM_HYBRID_ENGINE_VOLUME_H
#define DM_HYBRID_ENGINE_VOLUME_H

#include "engine.h"
#include "map.h"

/* Blocking; NULL: no memory.  It is in no table yet. */
struct hybrid_volume *volume_alloc(struct hybrid_engine *e, u32 id,
				   const struct hybrid_volume_info *info);
void volume_free(struct hybrid_volume *v);
/* What volume_of() gives from now on, of one for which volume_alloc() was called. */
void volume_put(struct hybrid_engine *e, u32 id, struct hybrid_volume *v);
void volumes_destroy(struct hybrid_engine *e);
/*
 * Forget all blocks of @v, of which nothing may be in flight; @free: they may be used again,
 * because its records are dead, durably.  May sleep.
 */
void volume_purge(struct hybrid_engine *e, struct hybrid_volume *v, bool free);

#endif
