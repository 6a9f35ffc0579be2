/* SPDX-License-Identifier: GPL-2.0-only */
/* Which way each other user I/O goes. */
#ifndef DM_HYBRID_ENGINE_IO_H
#define DM_HYBRID_ENGINE_IO_H

#include "engine.h"
#include "engine-queue.h"
#include "map.h"

/* hybrid_engine_miss() and hybrid_engine_io_done() of what is no hit */
enum hybrid_map_result io_miss(struct hybrid_engine *e, struct hybrid_io *io,
			       struct hybrid_actions *acts);
bool io_done(struct hybrid_engine *e, struct hybrid_io *io, int error, struct hybrid_actions *acts);
/* What @io waited for has ended: it goes on, or waits again. */
void io_again(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts);

#endif
