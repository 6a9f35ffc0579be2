/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads that miss the fast path. */
#ifndef DM_HYBRID_ENGINE_READ_H
#define DM_HYBRID_ENGINE_READ_H

#include "engine.h"
#include "engine-queue.h"
#include "map.h"

/* Routes a read; sends a read to the origin.  Under the set's lock. */
enum route hybrid_route_read(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			     struct hybrid_actions *acts);
enum route hybrid_route_origin(struct hybrid_io *io);
/*
 * The cache could not be read.  Clean granules are dropped from the cache and read from the
 * origin; dirty granules are lost.  If @io covers both, either may be unreadable: @io is
 * routed again and reads each granule from the device that has it.  Granules that a write in
 * flight replaces no longer count as cached then, or the read might fail for as long as that write
 * lasts.  Returns whether @io ends.  The caller holds no lock.
 */
bool hybrid_read_failed(struct hybrid_engine *e, struct hybrid_io *io, int error,
			struct hybrid_actions *acts);

#endif
