/* SPDX-License-Identifier: GPL-2.0-only */
/* Reports of a pool and its volumes to users: the log, events of device-mapper, uevents. */
#ifndef DM_HYBRID_EVENTS_H
#define DM_HYBRID_EVENTS_H

#include "target.h"

/* Set up and tear down the reports of a pool.  exit: the pool does not run; may sleep. */
void hybrid_events_init(struct hybrid_pool *pool);
void hybrid_events_exit(struct hybrid_pool *pool);

/*
 * Looks for new states soon, and from then on every second as long as the pool runs.  Does
 * nothing while the pool does not run.  Any context.
 */
void hybrid_events_look(struct hybrid_pool *pool);

/*
 * Waits until no event is being raised for a table that is no longer bound, before the table is
 * freed.  Caller does not hold pool->lock.  May sleep.
 */
void hybrid_events_flush(struct hybrid_pool *pool);

/*
 * Makes the end of a drain, or of a switch of the mode, an event even if nothing was dirty.
 * @reported: the reported states of its pool or volume.  Caller holds pool->lock.
 */
void hybrid_events_expect_drained(struct hybrid_pool *pool, u32 *reported);

/*
 * Notes that a volume was opened, and has the mode of its table: of its present states, only
 * "healthy again" is an event.  Caller holds pool->lock.
 */
void hybrid_events_opened(struct volume_object *object);

/* If the pool has failed, logs that once.  Process context; does not sleep for long. */
void hybrid_report_failure(struct hybrid_pool *pool);

#endif
