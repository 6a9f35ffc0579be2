/* SPDX-License-Identifier: GPL-2.0-only */
/* Routing of users' I/O. */
#ifndef DM_HYBRID_ENGINE_IO_H
#define DM_HYBRID_ENGINE_IO_H

#include "engine.h"
#include "engine-queue.h"
#include "map.h"

/* The slow path of hybrid_engine_miss() and hybrid_engine_io_done(): everything that is no hit. */
enum hybrid_map_result hybrid_io_miss(struct hybrid_engine *e, struct hybrid_io *io,
				      struct hybrid_actions *acts);
bool hybrid_io_ended(struct hybrid_engine *e, struct hybrid_io *io, int error,
		     struct hybrid_actions *acts);
/* The event that @io waited for has happened: routes it again.  It may wait again. */
void hybrid_io_again(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts);

#endif
