// SPDX-License-Identifier: GPL-2.0-or-later
#include "pool.h"

#include "io.h"
#include "superblock.h"

#define MAX_STEPS	100000	/* more than anything here takes */

struct request {
	struct hybrid_io io;
	u8 *data;
	bool done;
};

static struct pool *pool_of(struct hybrid_engine *e)
{
	return hybrid_engine_context(e);
}

static struct disk *disk_of(struct pool *p, const struct hybrid_op *op, bool origin)
{
	return origin ? p->origin[*(u32 *)hybrid_volume_context(op->volume)] : p->cache;
}

static int transfer(struct disk *d, bool write, u64 sector, u32 count, void *data)
{
	return write ? disk_write(d, sector, data, count * 512ULL) :
		       disk_read(d, sector, data, count * 512ULL);
}

static void segments(struct pool *p, struct hybrid_op *op, void *data)
{
	u32 k;

	for (k = 0; k < op->nr_segments; k++) {
		const struct hybrid_segment *s = &op->segments[k];
		int r = transfer(disk_of(p, op, s->origin), op->write, s->sector, s->count,
				 data + s->offset * 512ULL);

		if (r && s->origin)
			op->error_origin = r;
		else if (r)
			op->error_cache = r;
	}
}

static struct request *request_of(struct hybrid_io *io)
{
	return container_of(io, struct request, io);
}

static void user_op(struct pool *p, struct hybrid_op *op, struct hybrid_actions *acts)
{
	struct hybrid_io *io = op->io;
	int r = 0;

	if (io->type == HYBRID_IO_READ || io->type == HYBRID_IO_WRITE)
		r = transfer(disk_of(p, op, op->origin), op->write, op->sector, op->count,
			     request_of(io)->data);
	if (hybrid_engine_io_done(p->engine, io, r, acts))
		request_of(io)->done = true;
}

static void carry_one(struct pool *p, struct hybrid_op *op, struct hybrid_actions *acts)
{
	op->error_cache = 0;
	op->error_origin = 0;
	switch (op->type) {
	case HYBRID_OP_USER:
		user_op(p, op, acts);
		return;
	case HYBRID_OP_TRANSFER:
		if (op->io)
			memcpy(op->buffer + op->buffer_offset * 512ULL, request_of(op->io)->data,
			       op->io->count * 512ULL);
		segments(p, op, op->buffer);
		break;
	case HYBRID_OP_META:
		segments(p, op, op->mem);
		break;
	case HYBRID_OP_COPY_OUT:
		memcpy(request_of(op->io)->data, op->buffer + op->buffer_offset * 512ULL,
		       op->io->count * 512ULL);
		break;
	case HYBRID_OP_COMPLETE:
		request_of(op->io)->done = true;
		return;
	case HYBRID_OP_WAKE:
		op->waiter->done(op->waiter);
		return;
	default:
		break;
	}
	hybrid_engine_op_done(p->engine, op, acts);
}

void pool_carry(struct pool *p, struct hybrid_actions *acts)
{
	struct hybrid_op *op;
	u32 n = 0;

	while ((op = hybrid_actions_pop(acts))) {
		if (n++ == MAX_STEPS)
			abort();
		carry_one(p, op, acts);
	}
}

static bool tick(struct pool *p, u32 ms)
{
	struct hybrid_actions acts;
	bool more;

	hybrid_actions_init(&acts);
	p->now += ms;
	more = hybrid_engine_tick(p->engine, p->now, &acts);
	pool_carry(p, &acts);
	return more;
}

static void tick_until(struct pool *p, const bool *done)
{
	u32 n;

	for (n = 0; !*done; n++) {
		if (n == 1000)
			abort();
		tick(p, 100);
	}
}

/* ---- services for the engine ------------------------------------------------ */

static void *alloc_buffer(struct hybrid_engine *e, u32 sectors, gfp_t gfp)
{
	return vmalloc(sectors * 512ULL);
}

static void free_buffer(struct hybrid_engine *e, void *buffer)
{
	vfree(buffer);
}

static int do_op(struct hybrid_engine *e, struct hybrid_op *op)
{
	op->error_cache = 0;
	op->error_origin = 0;
	if (op->type == HYBRID_OP_META)
		segments(pool_of(e), op, op->mem);
	return op->error_cache ? op->error_cache : op->error_origin;
}

static int wait_checkpoint(struct hybrid_engine *e)
{
	struct hybrid_waiter w = { .done = hybrid_waiter_ended };
	struct pool *p = pool_of(e);
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_engine_checkpoint(e, &w, &acts);
	pool_carry(p, &acts);
	tick_until(p, &w.ended);
	return w.error;
}

/* Nothing runs beside another call. */
static void wait_hits(struct hybrid_engine *e)
{
}

static u64 next_random(struct hybrid_engine *e)
{
	return ++pool_of(e)->random * 0x9e3779b97f4a7c15ULL | 1;
}

const struct hybrid_engine_ops hybrid_io_ops = {
	.alloc_buffer = alloc_buffer,
	.free_buffer = free_buffer,
	.do_op = do_op,
	.wait_checkpoint = wait_checkpoint,
	.wait_hits = wait_hits,
	.random = next_random,
};

/* ---- a life ----------------------------------------------------------------- */

int pool_load(struct pool *p, const char **why)
{
	static const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	const char *field;
	char *error = NULL;
	int r;

	r = hybrid_cache_sb_read((void *)p->cache, &p->sb, &error, &field);
	*why = error;
	if (r)
		return r;
	p->now = 1000;
	p->engine = hybrid_engine_create(&p->sb, &hybrid_io_ops, p, hybrid_policy_get("lru"), &config, &r);
	if (!p->engine)
		return r;
	r = hybrid_engine_load(p->engine, why);
	if (r)
		pool_drop(p);
	return r;
}

int pool_open(struct pool *p, u32 id, u32 origin, const char **why)
{
	static u32 number[POOL_ORIGINS] = { 0, 1 };

	return hybrid_volume_open(p->engine, id, p->origin[origin]->device.sectors,
				  &number[origin], &p->volume[origin], why);
}

int pool_io(struct pool *p, u32 origin, enum hybrid_io_type type, u64 sector, u32 count,
	    void *data, bool fua)
{
	struct request r = { .data = data };
	struct hybrid_actions acts;

	hybrid_io_init(&r.io, p->volume[origin], type, sector, count,
		       fua ? HYBRID_IO_FUA : 0);
	hybrid_actions_init(&acts);
	if (hybrid_engine_map(p->engine, &r.io, &acts) == HYBRID_MAP_REMAP)
		user_op(p, &r.io.op, &acts);
	pool_carry(p, &acts);
	tick_until(p, &r.done);
	return r.io.error;
}

void pool_run(struct pool *p, u32 ms)
{
	while (ms && tick(p, 100))
		ms -= min(ms, 100U);
}

static void until(struct pool *p, struct hybrid_volume *v)
{
	struct hybrid_actions acts;
	bool done = false;
	u32 n;

	for (n = 0; !done; n++) {
		if (n == 1000)
			abort();
		hybrid_actions_init(&acts);
		done = v ? hybrid_volume_suspend(p->engine, v, &acts) :
			   hybrid_engine_stop(p->engine, &acts);
		pool_carry(p, &acts);
	}
}

void pool_close(struct pool *p, u32 origin)
{
	if (!p->volume[origin])
		return;
	until(p, p->volume[origin]);
	hybrid_volume_close(p->engine, p->volume[origin]);
	p->volume[origin] = NULL;
}

void pool_stop(struct pool *p)
{
	u32 i;

	for (i = 0; i < POOL_ORIGINS; i++)
		pool_close(p, i);
	until(p, NULL);
	pool_drop(p);
}

void pool_drop(struct pool *p)
{
	hybrid_engine_destroy(p->engine);
	p->engine = NULL;
	memset(p->volume, 0, sizeof(p->volume));
}

/* ---- functions for the module's files ------------------------------------------ */

sector_t bdev_nr_sectors(struct block_device *bdev)
{
	return ((struct disk *)bdev)->device.sectors;
}

int hybrid_read_block(struct block_device *bdev, u64 sector, void *block)
{
	return disk_read((struct disk *)bdev, sector, block, HYBRID_META_BLOCK_SIZE);
}

int hybrid_write_block(struct block_device *bdev, u64 sector, void *block)
{
	return disk_write((struct disk *)bdev, sector, block, HYBRID_META_BLOCK_SIZE);
}
