// SPDX-License-Identifier: GPL-2.0-or-later
#include "pool.h"

#include "io.h"
#include "superblock.h"

/* More than anything here takes */
#define MAX_STEPS	1000
#define MAX_OPERATIONS	1000000

static struct pool *pool_of(struct hybrid_executor *x)
{
	return container_of(x, struct pool, x);
}

static struct disk *disk_of(struct hybrid_executor *x, const struct hybrid_op *op, bool origin)
{
	struct pool *p = pool_of(x);

	return origin ? p->origin[*(u32 *)hybrid_volume_context(op->volume)] : p->cache;
}

static int transfer(struct hybrid_executor *x, const struct hybrid_op *op, bool origin, u64 sector,
		    u32 count, void *data)
{
	struct disk *d = disk_of(x, op, origin);

	if (x->executed > MAX_OPERATIONS)
		abort();
	if (op->type == HYBRID_OP_DISCARD)
		return 0;
	if (op->io && op->io->type != HYBRID_IO_READ && op->io->type != HYBRID_IO_WRITE)
		return 0;
	return op->write ? disk_write(d, sector, data, count * 512ULL) :
			   disk_read(d, sector, data, count * 512ULL);
}

static int flush(struct hybrid_executor *x, struct hybrid_op *op, bool origin)
{
	return 0;
}

static const struct hybrid_executor_ops executor_ops = { .transfer = transfer, .flush = flush };

/* ---- services for the engine ------------------------------------------------ */

static void *alloc_buffer(struct hybrid_engine *e, u32 sectors, gfp_t gfp)
{
	return vmalloc(sectors * 512ULL);
}

static void free_buffer(struct hybrid_engine *e, void *buffer)
{
	vfree(buffer);
}

/* Nothing runs beside another call. */
static void wait_hits(struct hybrid_engine *e)
{
}

static u64 next_random(struct hybrid_engine *e)
{
	return ++pool_of(hybrid_engine_context(e))->random * 0x9e3779b97f4a7c15ULL | 1;
}

const struct hybrid_engine_ops hybrid_io_ops = {
	.alloc_buffer = alloc_buffer,
	.free_buffer = free_buffer,
	.checksum = hybrid_execute_checksum,
	.do_op = hybrid_execute_now,
	.wait_checkpoint = hybrid_execute_checkpoint,
	.wait_hits = wait_hits,
	.random = next_random,
};

/* ---- a life ----------------------------------------------------------------- */

int pool_load(struct pool *p, const char **why)
{
	static const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	char *error = NULL, field[HYBRID_SB_WHY];
	int r;

	r = hybrid_cache_sb_read((void *)p->cache, &p->sb, &error, field);
	*why = error;
	if (r)
		return r;
	hybrid_executor_init(&p->x, &executor_ops);
	p->x.now = 1000;
	p->x.engine = hybrid_engine_create(&p->sb, &hybrid_io_ops, &p->x, hybrid_policy_get("lru"),
					   &config, &r);
	if (!p->x.engine)
		return r;
	r = hybrid_engine_load(p->x.engine, why);
	if (r)
		pool_drop(p);
	return r;
}

int pool_open(struct pool *p, u32 id, u32 origin, const char **why)
{
	static u32 number[POOL_ORIGINS] = { 0, 1 };

	return hybrid_volume_open(p->x.engine, id, p->origin[origin]->device.sectors,
				  &number[origin], &p->volume[origin], why);
}

int pool_io(struct pool *p, u32 origin, enum hybrid_io_type type, u64 sector, u32 count,
	    void *data, bool fua)
{
	int r = hybrid_request_run(&p->x, p->volume[origin], type, sector, count, data,
				   fua ? HYBRID_IO_FUA : 0);

	if (r == -EDEADLK)
		abort();
	return r;
}

void pool_run(struct pool *p, u32 ms)
{
	while (ms && hybrid_execute_tick(&p->x, 100))
		ms -= min(ms, 100U);
}

static void until(struct pool *p, struct hybrid_volume *v)
{
	bool done = false;
	u32 n;

	for (n = 0; !done; n++) {
		if (n == MAX_STEPS)
			abort();
		done = v ? hybrid_volume_suspend(p->x.engine, v, &p->x.acts) :
			   hybrid_engine_stop(p->x.engine, &p->x.acts);
		hybrid_execute_all(&p->x);
	}
}

void pool_close(struct pool *p, u32 origin)
{
	if (!p->volume[origin])
		return;
	until(p, p->volume[origin]);
	hybrid_volume_close(p->x.engine, p->volume[origin]);
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
	hybrid_engine_destroy(p->x.engine);
	p->x.engine = NULL;
	memset(p->volume, 0, sizeof(p->volume));
}

int pool_record(struct pool *p, const char *policy, const struct hybrid_settings *settings)
{
	struct hybrid_pool pool = { .bdev = (void *)p->cache };

	return hybrid_cache_sb_record(&pool, NULL, policy, settings);
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

int hybrid_write_block(struct hybrid_pool *pool, u64 sector, void *block)
{
	return disk_write((struct disk *)pool->bdev, sector, block, HYBRID_META_BLOCK_SIZE);
}
