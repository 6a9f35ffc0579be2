/* SPDX-License-Identifier: GPL-2.0-only */
/* Writes that miss the fast path. */
#ifndef DM_HYBRID_ENGINE_WRITE_H
#define DM_HYBRID_ENGINE_WRITE_H

#include "engine.h"
#include "engine-queue.h"
#include "map.h"

/* Routes a write.  Under the set's lock. */
enum route hybrid_route_write(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			      struct hybrid_actions *acts);
/*
 * Does @io conflict with a write in flight?  Overlapping writes may be in flight together only if
 * all of them go to one and the same device (J6), which then decides their order.  Under the set's
 * lock.
 */
bool hybrid_write_conflicts(const struct hybrid_set *s, const struct hybrid_io *io);
/* Handles the end of a write's operation.  Returns whether the I/O ends. */
bool hybrid_finish_write(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
			 int error_origin, struct hybrid_actions *acts);
/*
 * The same for a write under an intent: its data and its intent have ended, or (@error_cache) one
 * of them could not be written.
 */
bool hybrid_finish_intended(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
			    int error_origin, struct hybrid_actions *acts);
/*
 * Counts errors of a write, or of the origin.  -EAGAIN is none: it says nothing about the device.
 */
void hybrid_count_errors(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
			 int error_origin);

#endif
