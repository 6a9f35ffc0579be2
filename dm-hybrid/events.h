/* SPDX-License-Identifier: GPL-2.0-only */
/* What users hear of a pool and its volumes: the log, events of device-mapper, uevents. */
#ifndef DM_HYBRID_EVENTS_H
#define DM_HYBRID_EVENTS_H

#include "target.h"

/* A pool's part.  exit: it does not run; may sleep. */
void hybrid_events_init(struct hybrid_pool *pool);
void hybrid_events_exit(struct hybrid_pool *pool);

/*
 * Look soon for what is new, and from then on every second as long as the pool runs.  Any
 * context; does nothing while the pool does not run.
 */
void hybrid_events_look(struct hybrid_pool *pool);

/*
 * Wait until no event of a table is being raised that is not bound any more, before it goes.
 * Caller does not hold pool->lock; may sleep.
 */
void hybrid_events_flush(struct hybrid_pool *pool);

/*
 * A drain or another mode was asked for of the pool or volume whose states that were reported
 * are @reported: its end is an event even where nothing was dirty.  Under pool->lock.
 */
void hybrid_events_expect_drained(struct hybrid_pool *pool, u32 *reported);

/*
 * A volume was opened, and has the mode of its table, which is no event; that it is healthy again
 * is one.  Under pool->lock.
 */
void hybrid_events_opened(struct volume_object *object);

/* If the pool has failed, say so in the log, once.  Process context; does not sleep for long. */
void hybrid_report_failure(struct hybrid_pool *pool);

#endif
