/* SPDX-License-Identifier: GPL-2.0-only */
/* Writes that are no hit: where each granule goes, what their end means. */
#ifndef DM_HYBRID_ENGINE_WRITE_H
#define DM_HYBRID_ENGINE_WRITE_H

#include "engine.h"
#include "engine-queue.h"
#include "map.h"

/* Under the set's lock: the way of a write */
enum route route_write(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
		       struct hybrid_actions *acts);
/*
 * Overlapping writes may be in flight together only where they all go to the
 * same one device (J6); the device decides their order then.  Under the set's lock.
 */
bool write_conflicts(const struct hybrid_set *s, const struct hybrid_io *io);
/* Its operation ended; returns whether the io ends. */
bool finish_write(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
		  int error_origin, struct hybrid_actions *acts);
/* Errors of a write, or of the origin, but for -EAGAIN, which says nothing about the device. */
void count_errors(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
		  int error_origin);

#endif
