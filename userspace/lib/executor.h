/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Executes an engine's operations outside a kernel: the counterpart of dm-hybrid/io.c for tools and
 * tests.  Operations run one after the other, in the order in which the engine asked for them.
 * Time is the milliseconds that the caller passes to the engine.
 *
 * One thread calls these functions for each executor.  They do not print.
 */
#ifndef HYBRID_EXECUTOR_H
#define HYBRID_EXECUTOR_H

#include "engine.h"

struct hybrid_executor;

/* A user's I/O.  @data: io.count sectors; NULL where no data moves. */
struct hybrid_request {
	struct hybrid_io io;
	void *data;
	bool ended;
};

struct hybrid_executor_ops {
	/*
	 * Transfers @count sectors of @op between @data and a device: the origin of op->volume, or
	 * the cache device.  With op->fua, flush() follows.  For a DISCARD operation @data is NULL,
	 * and for a user's request io->type says whether to transfer, discard or write zeroes.
	 * Returns 0 or -errno, as the device would in a kernel.
	 */
	int (*transfer)(struct hybrid_executor *x, const struct hybrid_op *op, bool origin,
			u64 sector, u32 count, void *data);
	/*
	 * Flushes that device: a FLUSH operation, or the end of a write with FUA.  May set
	 * op->elapsed_ms.
	 */
	int (*flush)(struct hybrid_executor *x, struct hybrid_op *op, bool origin);
	/*
	 * Waits until *@ended; returns false if that does not come.  NULL: ticks each 100 ms, at
	 * most 1000 of them.
	 */
	bool (*wait)(struct hybrid_executor *x, const bool *ended);
	/* Called in place of hybrid_engine_op_done(); NULL: that function. */
	void (*op_done)(struct hybrid_executor *x, struct hybrid_op *op);
};

/* The context of its engine (hybrid_engine_create()). */
struct hybrid_executor {
	const struct hybrid_executor_ops *ops;
	struct hybrid_engine *engine;
	struct hybrid_actions acts;	/* not yet executed */
	u64 now;			/* ms, of the last tick */
	u64 executed;			/* operations so far */
	u32 block_sectors;		/* set by the caller, for hybrid_request_blocks() */
};

void hybrid_executor_init(struct hybrid_executor *x, const struct hybrid_executor_ops *ops);

/* Executes one operation and tells the engine its end, which may add to x->acts. */
void hybrid_execute(struct hybrid_executor *x, struct hybrid_op *op);
/*
 * Executes an operation that ends with hybrid_engine_op_done(), except for that call; any thread, if
 * the ops allow it.
 */
void hybrid_execute_io(struct hybrid_executor *x, struct hybrid_op *op);
/* Executes all operations of x->acts, and all that follow from them. */
void hybrid_execute_all(struct hybrid_executor *x);
/* Calls the engine's tick @ms later and executes all operations; returns whether it wants more. */
bool hybrid_execute_tick(struct hybrid_executor *x, u64 ms);

/*
 * Sends a request to the engine, with HYBRID_IO_* @flags; the next call of a function above executes
 * its operations.  @count: within one block for READ and WRITE.
 */
void hybrid_request_send(struct hybrid_executor *x, struct hybrid_request *r,
			 struct hybrid_volume *v, enum hybrid_io_type type, u64 sector, u32 count,
			 u8 flags);
/* Sends a request and waits for its end.  Returns its error; -EDEADLK: it does not end. */
int hybrid_request_run(struct hybrid_executor *x, struct hybrid_volume *v, enum hybrid_io_type type,
		       u64 sector, u32 count, void *data, u8 flags);
/* The same for a READ or WRITE of any length, a block of the cache at a time. */
int hybrid_request_blocks(struct hybrid_executor *x, struct hybrid_volume *v,
			  enum hybrid_io_type type, u64 sector, u32 count, void *data, u8 flags);

/* The request of a USER, COPY_OUT or COMPLETE operation, or of a TRANSFER with op->io. */
static inline struct hybrid_request *hybrid_request_of(const struct hybrid_op *op)
{
	return container_of(op->io, struct hybrid_request, io);
}

/* For struct hybrid_engine_ops: do_op() and wait_checkpoint(). */
int hybrid_execute_now(struct hybrid_engine *e, struct hybrid_op *op);
int hybrid_execute_checkpoint(struct hybrid_engine *e);
/* The same: alloc_buffer(), free_buffer() and checksum() where no data moves. */
void *hybrid_execute_no_buffer(struct hybrid_engine *e, u32 sectors, gfp_t gfp);
void hybrid_execute_no_free(struct hybrid_engine *e, void *buffer);
u64 hybrid_execute_no_checksum(struct hybrid_engine *e, void *buffer, u32 offset, u32 count,
			       u64 seed);
/* checksum() of a buffer that is ordinary memory. */
u64 hybrid_execute_checksum(struct hybrid_engine *e, void *buffer, u32 offset, u32 count, u64 seed);

#endif
