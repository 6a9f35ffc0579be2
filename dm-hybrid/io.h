/* SPDX-License-Identifier: GPL-2.0-only */
/* Carries out the engine's actions: bios, buffers, the workers and the timer. */
#ifndef DM_HYBRID_IO_H
#define DM_HYBRID_IO_H

#include "target.h"

/* Per-bio data of a volume. */
struct hybrid_bio {
	struct bvec_iter iter;		/* of the bio as it arrived, for another try */
	unsigned short flags;
	bool completing;		/* io.c called bio_endio() itself */
	struct hybrid_io io;
};

extern const struct hybrid_engine_ops hybrid_io_ops;

/* Create and destroy the slab cache of the module.  May sleep. */
int hybrid_io_module_init(void);
void hybrid_io_module_exit(void);

/* Set up and tear down the I/O of a pool.  May sleep.  exit: nothing may be in flight. */
int hybrid_pool_io_init(struct hybrid_pool *pool);
void hybrid_pool_io_exit(struct hybrid_pool *pool);

/* Set up and free a volume's queue.  May sleep.  0 or -ENOMEM.  exit: nothing may be in flight. */
int hybrid_queue_init(struct hybrid_queue *q, struct hybrid_pool *pool);
void hybrid_queue_exit(struct hybrid_queue *q);
/* Waits until the queue's worker has carried out everything queued so far.  May sleep. */
void hybrid_queue_flush(struct hybrid_queue *q);

/*
 * Carries out actions, from any context.  Leaves actions that may sleep to the workers.
 */
void hybrid_run(struct hybrid_pool *pool, struct hybrid_actions *acts);

/*
 * Calls @step until it returns true.  After each call, carries out its actions and
 * waits for an operation to end, or for a tick.  May sleep.
 */
void hybrid_run_until(struct hybrid_pool *pool,
		      bool (*step)(struct hybrid_pool *pool, void *what,
				   struct hybrid_actions *acts), void *what);

/* Lets the timer run, and starts it; stops it, and keeps it from starting (may sleep). */
void hybrid_tick_start(struct hybrid_pool *pool);
void hybrid_tick_stop(struct hybrid_pool *pool);
/* Starts the timer if it may run and does not: there may be something to do. */
void hybrid_tick_kick(struct hybrid_pool *pool);

/*
 * Read one metadata block; write one to the cache device of a loaded pool, durably.  If the latter
 * fails, the pool has failed.  @block: 4096 bytes of kernel memory.  May sleep.  Return 0 or
 * -errno.
 */
int hybrid_read_block(struct block_device *bdev, u64 sector, void *block);
int hybrid_write_block(struct hybrid_pool *pool, u64 sector, void *block);

/* map and end_io of a volume. */
int hybrid_map_bio(struct dm_target *ti, struct bio *bio);
int hybrid_end_bio(struct dm_target *ti, struct bio *bio, blk_status_t *status);

#endif
