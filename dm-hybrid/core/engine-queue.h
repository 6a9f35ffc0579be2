/* SPDX-License-Identifier: GPL-2.0-only */
/* Users' I/Os on their way to a device, and those that wait. */
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
	IO_REWRITE,		/* ... of what is dirty: write_hit() */
	IO_RANGE,		/* discard, zeroes: in flight */
	IO_COMMIT,		/* waits for a commit */
};

/* What a route came to. */
enum route {
	ROUTE_REMAP,		/* io->op is ready */
	ROUTE_TAKEN,		/* somebody has it */
};

/* hybrid_io.wait: why it is on a waiting list */
enum io_wait {
	WAIT_NONE = 0,
	WAIT_OPEN = 1 << 0,	/* its region's open record */
	WAIT_TRANSIT = 1 << 1,	/* a removal record */
	WAIT_BUSY = 1 << 2,	/* the job that works on the block */
	WAIT_OVERLAP = 1 << 3,	/* an overlapping write in flight */
	WAIT_RECORD = 1 << 4,	/* the record of what ended a dirty granule */
	WAIT_JOB = 1 << 5,	/* nothing any more: a job of its volume has ended */
};

/*
 * hybrid_actions.wanted: what a file wants of one above it.  Nobody calls upwards, under a set's
 * lock perhaps: engine_settle() sees to it at the end of the event.
 */
enum want {
	WANT_COMMIT = 1 << 0,	/* somebody waits for records, or will soon */
	WANT_OPENS = 1 << 1,	/* ... for open regions */
	WANT_LAZY = 1 << 2,	/* records that nobody waits for */
	WANT_WRITEBACK = 1 << 3,	/* windows may be able to go */
	WANT_ROOM = 1 << 4,	/* blocks became free, or can be evicted */
};

/* What hybrid_io_init() and hybrid_engine_hit() leave to who takes the slow path. */
void io_begin(struct hybrid_io *io);
/* Make @io->op the user's own operation on the origin, or the cache, from that sector on. */
void user_op(struct hybrid_io *io, bool origin, u64 sector, bool fua);
/* Make @io->op a read of the origin; the caller sends it. */
void io_read_origin(struct hybrid_io *io);
/* Does a discard, or write of zeroes, in flight touch these sectors?  Under the engine's lock. */
bool find_range(struct hybrid_volume *v, u64 sector, u32 count);
/* The same; caller does not hold the engine's lock. */
bool range_blocks(struct hybrid_volume *v, u64 sector, u32 count);
/* If so, @io waits for it. */
bool range_wait(struct hybrid_volume *v, struct hybrid_io *io);

/* @io waits in its set, whose lock the caller holds; the second returns ROUTE_TAKEN. */
void wait_in_set(struct hybrid_set *s, struct hybrid_io *io, enum io_wait why);
enum route wait_routed(struct hybrid_set *s, struct hybrid_io *io, enum io_wait why);
/* @io, which is on no list, runs again at the end of the event.  Any locks may be held. */
void rerun(struct hybrid_io *io, struct hybrid_actions *acts);
/* The same of all on a list, by io->link. */
void rerun_list(struct list_head *list, struct hybrid_actions *acts);
/* ... in an event of its own: where there may be thousands, each of which takes long. */
void rerun_later(struct hybrid_io *io, struct hybrid_actions *acts);
/* Those in set @nr run again that wait for any of @why.  Caller holds no set's lock. */
void wake_set(struct hybrid_engine *e, u32 nr, u8 why, struct hybrid_actions *acts);
/* ... in any set, that wait for records which can never go out. */
void wake_records(struct hybrid_engine *e, struct hybrid_actions *acts);

#endif
