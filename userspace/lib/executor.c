// SPDX-License-Identifier: GPL-2.0-or-later
#include "executor.h"

#define TICK_MS		100
#define MAX_TICKS	1000

void hybrid_executor_init(struct hybrid_executor *x, const struct hybrid_executor_ops *ops)
{
	*x = (struct hybrid_executor){ .ops = ops };
	hybrid_actions_init(&x->acts);
}

/* ---- operations ------------------------------------------------------------ */

static void put_error(struct hybrid_op *op, bool origin, int error)
{
	if (error && origin)
		op->error_origin = error;
	else if (error)
		op->error_cache = error;
}

static void flush(struct hybrid_executor *x, struct hybrid_op *op, bool origin)
{
	put_error(op, origin, x->ops->flush(x, op, origin));
}

/*
 * Transfers all segments; then flushes, with FUA, the origin, or the cache device if it alone took
 * data, or took metadata.
 */
static void transfer(struct hybrid_executor *x, struct hybrid_op *op, void *mem)
{
	bool used[2] = { false, false };
	u32 i;

	for (i = 0; i < op->nr_segments; i++) {
		const struct hybrid_segment *s = &op->segments[i];

		used[s->origin] = true;
		put_error(op, s->origin,
			  x->ops->transfer(x, op, s->origin, s->sector, s->count,
					   mem ? mem + (size_t)s->offset * 512 : NULL));
	}
	if (op->write && op->fua && (op->type == HYBRID_OP_META || !used[true]) && used[false] &&
	    !op->error_cache)
		flush(x, op, false);
	if (op->write && op->fua && used[true] && !op->error_origin)
		flush(x, op, true);
}

static void *user_data(const struct hybrid_op *op)
{
	return op->buffer + (size_t)op->buffer_offset * 512;
}

static void copy(void *to, const void *from, u32 sectors)
{
	if (to && from)
		memcpy(to, from, (size_t)sectors * 512);
}

static void execute_user(struct hybrid_executor *x, struct hybrid_op *op)
{
	struct hybrid_io *io = op->io;
	int r;

	op->volume = io->volume;
	r = x->ops->transfer(x, op, op->origin, op->sector, op->count, hybrid_request_of(op)->data);
	if (!r && op->write && op->fua)
		r = x->ops->flush(x, op, op->origin);
	if (hybrid_engine_io_done(x->engine, io, r, &x->acts))
		hybrid_request_of(op)->ended = true;
}

void hybrid_execute_io(struct hybrid_executor *x, struct hybrid_op *op)
{
	op->error_cache = 0;
	op->error_origin = 0;
	switch (op->type) {
	case HYBRID_OP_TRANSFER:
		if (op->io)
			copy(user_data(op), hybrid_request_of(op)->data, op->io->count);
		if (op->copied)
			hybrid_engine_op_copied(x->engine, op, &x->acts);
		transfer(x, op, op->buffer);
		break;
	case HYBRID_OP_META:
		transfer(x, op, op->mem);
		break;
	case HYBRID_OP_DISCARD:
		transfer(x, op, NULL);
		break;
	case HYBRID_OP_FLUSH:
		flush(x, op, op->origin);
		break;
	case HYBRID_OP_COPY_OUT:
		copy(hybrid_request_of(op)->data, user_data(op), op->io->count);
		break;
	}
}

void hybrid_execute(struct hybrid_executor *x, struct hybrid_op *op)
{
	x->executed++;
	switch (op->type) {
	case HYBRID_OP_USER:
		execute_user(x, op);
		return;
	case HYBRID_OP_COMPLETE:
		hybrid_request_of(op)->ended = true;
		return;
	case HYBRID_OP_WAKE:
		op->waiter->done(op->waiter);
		return;
	}
	hybrid_execute_io(x, op);
	if (x->ops->op_done)
		x->ops->op_done(x, op);
	else
		hybrid_engine_op_done(x->engine, op, &x->acts);
}

void hybrid_execute_all(struct hybrid_executor *x)
{
	struct hybrid_op *op;

	while ((op = hybrid_actions_pop(&x->acts)))
		hybrid_execute(x, op);
}

/* ---- time ------------------------------------------------------------------ */

bool hybrid_execute_tick(struct hybrid_executor *x, u64 ms)
{
	bool more;

	x->now += ms;
	more = hybrid_engine_tick(x->engine, x->now, &x->acts);
	hybrid_execute_all(x);
	return more;
}

static bool wait_for(struct hybrid_executor *x, const bool *ended)
{
	u32 n;

	if (x->ops->wait)
		return x->ops->wait(x, ended);
	hybrid_execute_all(x);
	for (n = 0; !*ended && n < MAX_TICKS; n++)
		hybrid_execute_tick(x, TICK_MS);
	return *ended;
}

/* ---- requests -------------------------------------------------------------- */

void hybrid_request_send(struct hybrid_executor *x, struct hybrid_request *r,
			 struct hybrid_volume *v, enum hybrid_io_type type, u64 sector, u32 count,
			 u8 flags)
{
	r->ended = false;
	hybrid_io_init(&r->io, v, type, sector, count, flags);
	if (hybrid_engine_map(x->engine, &r->io, &x->acts) == HYBRID_MAP_REMAP)
		execute_user(x, &r->io.op);
}

int hybrid_request_run(struct hybrid_executor *x, struct hybrid_volume *v, enum hybrid_io_type type,
		       u64 sector, u32 count, void *data, u8 flags)
{
	struct hybrid_request r = { .data = data };

	hybrid_request_send(x, &r, v, type, sector, count, flags);
	return wait_for(x, &r.ended) ? r.io.error : -EDEADLK;
}

int hybrid_request_blocks(struct hybrid_executor *x, struct hybrid_volume *v,
			  enum hybrid_io_type type, u64 sector, u32 count, void *data, u8 flags)
{
	u32 block = x->block_sectors, n;
	int r = 0;

	for (; count && !r; sector += n, count -= n) {
		n = min_t(u32, count, block - (u32)(sector & (block - 1)));
		r = hybrid_request_run(x, v, type, sector, n, data, flags);
		if (data)
			data += (size_t)n * 512;
	}
	return r;
}

/* ---- services for the engine ----------------------------------------------- */

int hybrid_execute_now(struct hybrid_engine *e, struct hybrid_op *op)
{
	hybrid_execute_io(hybrid_engine_context(e), op);
	return op->error_cache ? op->error_cache : op->error_origin;
}

int hybrid_execute_checkpoint(struct hybrid_engine *e)
{
	struct hybrid_executor *x = hybrid_engine_context(e);
	struct hybrid_waiter w = { .done = hybrid_waiter_ended };

	hybrid_engine_checkpoint(e, &w, &x->acts);
	return wait_for(x, &w.ended) ? w.error : -EDEADLK;
}

void *hybrid_execute_no_buffer(struct hybrid_engine *e, u32 sectors, gfp_t gfp)
{
	(void)sectors;
	(void)gfp;
	return e;
}

void hybrid_execute_no_free(struct hybrid_engine *e, void *buffer)
{
	(void)e;
	(void)buffer;
}

u64 hybrid_execute_no_checksum(struct hybrid_engine *e, void *buffer, u32 offset, u32 count,
			       u64 seed)
{
	(void)e;
	(void)buffer;
	(void)offset;
	(void)count;
	return seed;
}

u64 hybrid_execute_checksum(struct hybrid_engine *e, void *buffer, u32 offset, u32 count, u64 seed)
{
	(void)e;
	return xxh64(buffer + (size_t)offset * 512, (size_t)count * 512, seed);
}
