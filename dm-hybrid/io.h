/* SPDX-License-Identifier: GPL-2.0-only */
/* Carries the engine's actions out: bios, buffers, the worker and the timer. */
#ifndef DM_HYBRID_IO_H
#define DM_HYBRID_IO_H

#include "target.h"

/* Per-bio data of a volume. */
struct hybrid_bio {
	struct bvec_iter iter;		/* as it arrived, for another try */
	unsigned short flags;
	bool completing;		/* bio_endio() was called by us */
	struct hybrid_io io;
};

extern const struct hybrid_engine_ops hybrid_io_ops;

/* Caches of the module; may sleep. */
int hybrid_io_module_init(void);
void hybrid_io_module_exit(void);

/* A pool's part; may sleep.  exit: nothing may be in flight. */
int hybrid_pool_io_init(struct hybrid_pool *pool);
void hybrid_pool_io_exit(struct hybrid_pool *pool);

/* A volume's queue; may sleep.  0 or -ENOMEM.  exit: nothing may be in flight. */
int hybrid_queue_init(struct hybrid_queue *q, struct hybrid_pool *pool);
void hybrid_queue_exit(struct hybrid_queue *q);
/* Wait until the queue's worker has done all it was given; may sleep. */
void hybrid_queue_flush(struct hybrid_queue *q);

/*
 * Carry actions out, from any context.  What may sleep is left to the worker.
 */
void hybrid_run(struct hybrid_pool *pool, struct hybrid_actions *acts);

/*
 * Call @step until it returns true, carrying its actions out and waiting for
 * something to end in between.  May sleep.
 */
void hybrid_run_until(struct hybrid_pool *pool,
		      bool (*step)(struct hybrid_pool *pool, void *what,
				   struct hybrid_actions *acts), void *what);

/* Let the timer run, and start it; stop it, and keep it from starting (may sleep). */
void hybrid_tick_start(struct hybrid_pool *pool);
void hybrid_tick_stop(struct hybrid_pool *pool);
/* There may be something to do: start the timer if it may run and does not. */
void hybrid_tick_kick(struct hybrid_pool *pool);

/*
 * Read, or write durably, one metadata block; blocking.  @block: 4096 bytes of
 * kernel memory.  Returns 0 or -errno.
 */
int hybrid_read_block(struct block_device *bdev, u64 sector, void *block);
int hybrid_write_block(struct block_device *bdev, u64 sector, void *block);

/* map and end_io of a volume. */
int hybrid_map_bio(struct dm_target *ti, struct bio *bio);
int hybrid_end_bio(struct dm_target *ti, struct bio *bio, blk_status_t *status);

#endif
