/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads that are no hit. */
#ifndef DM_HYBRID_ENGINE_READ_H
#define DM_HYBRID_ENGINE_READ_H

#include "engine.h"
#include "engine-queue.h"
#include "map.h"

/* Under the set's lock: the way of a read; to the origin */
enum route route_read(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
		      struct hybrid_actions *acts);
enum route route_origin(struct hybrid_io *io);
/*
 * The cache could not be read; no lock is held.  A clean granule is read from the origin and
 * dropped from the cache; a dirty one is lost (S8).  Of both, any may be the one:
 * each is read where it is then, and not again where a write replaces it, which may
 * take for ever.  Returns whether the io ends.
 */
bool read_failed(struct hybrid_engine *e, struct hybrid_io *io, int error,
		 struct hybrid_actions *acts);

#endif
