/* SPDX-License-Identifier: GPL-2.0-only */
/* Users' I/O on its way to a device, and users' I/O that waits. */
#ifndef DM_HYBRID_ENGINE_QUEUE_H
#define DM_HYBRID_ENGINE_QUEUE_H

#include "engine.h"
#include "map.h"

/* hybrid_io.state */
enum io_state {
	IO_NEW,
	IO_READ_CACHE,		/* in flight to the cache device, in an epoch */
	IO_READ_ORIGIN,
	IO_WRITE,		/* in flight, on its set's list */
	IO_REWRITE,		/* ... of dirty granules: write_hit() */
	IO_RANGE,		/* discard, zeroes: in flight */
	IO_COMMIT,		/* waits for a commit */
};

/* The result of routing an I/O. */
enum route {
	ROUTE_REMAP,		/* io->op is ready */
	ROUTE_TAKEN,		/* somebody has it */
};

/* hybrid_io.wait: the event that the I/O waits for. */
enum io_wait {
	WAIT_NONE = 0,
	WAIT_OPEN = 1 << 0,	/* its region's open record */
	WAIT_TRANSIT = 1 << 1,	/* a removal record */
	WAIT_BUSY = 1 << 2,	/* the job that works on the block */
	WAIT_OVERLAP = 1 << 3,	/* an overlapping write in flight */
	WAIT_RECORD = 1 << 4,	/* the record that ends a dirty granule */
	WAIT_JOB = 1 << 5,	/* no event: it runs again because a job of its volume has ended */
};

/*
 * hybrid_actions.wanted: requests to a file further up.  No file calls one above it;
 * hybrid_engine_settle() carries out the requests at the end of the event, when no lock is held.
 */
enum want {
	WANT_COMMIT = 1 << 0,	/* somebody waits for records, or will soon */
	WANT_OPENS = 1 << 1,	/* ... for open regions */
	WANT_LAZY = 1 << 2,	/* records that nobody waits for */
	WANT_WRITEBACK = 1 << 3,	/* windows may be ready to be written back */
	WANT_STALLED = 1 << 4,	/* blocks became free, or can be evicted */
};

/* Initialises the fields that hybrid_io_init() and hybrid_engine_hit() leave to the slow path. */
void hybrid_io_begin(struct hybrid_io *io);
/*
 * Makes @io->op the user's operation at @sector of the origin, or of the cache device.  @fua is
 * left out on an origin without FUA: hybrid_flush_after_write() follows.
 */
void hybrid_user_op(struct hybrid_io *io, bool origin, u64 sector, bool fua);
/* Makes @io->op a read from the origin; the caller sends it. */
void hybrid_io_read_origin(struct hybrid_io *io);
/*
 * Does a discard or a write of zeroes in flight overlap these sectors?  Under the engine's lock.
 */
bool hybrid_find_range(struct hybrid_volume *v, u64 sector, u32 count);
/* The same; takes the engine's lock. */
bool hybrid_range_blocks(struct hybrid_volume *v, u64 sector, u32 count);
/* The same; if so, @io waits for its end. */
bool hybrid_range_wait(struct hybrid_volume *v, struct hybrid_io *io);

/* @io waits in its set, under the set's lock.  The second returns ROUTE_TAKEN. */
void hybrid_wait_in_set(struct hybrid_set *s, struct hybrid_io *io, enum io_wait why);
enum route hybrid_wait_routed(struct hybrid_set *s, struct hybrid_io *io, enum io_wait why);
/*
 * Routes @io again at the end of the event.  Nothing uses its op; any lock may be held.
 */
void hybrid_rerun(struct hybrid_io *io, struct hybrid_actions *acts);
/* The same for each I/O on a list linked by io->link. */
void hybrid_rerun_list(struct list_head *list, struct hybrid_actions *acts);
/* Routes @io again in an event of its own, for I/O that may come in thousands and takes long. */
void hybrid_rerun_later(struct hybrid_io *io, struct hybrid_actions *acts);
/* Routes all I/O in set @nr again that waits for any event in @why.  Takes the set's lock. */
void hybrid_wake_set(struct hybrid_engine *e, u32 nr, u8 why, struct hybrid_actions *acts);
/* The same in all sets. */
void hybrid_wake_all_sets(struct hybrid_engine *e, u8 why, struct hybrid_actions *acts);

#endif
