// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>
#include <stdlib.h>

#include "engine-internal.h"
#include "executor.h"
#include "pool.h"

#define TICK_MS		100
/* After so many ticks without an operation, only time passes.  More than the commit interval. */
#define QUIET_TICKS	20
/* The most ticks to wait for an I/O, a checkpoint or a drain. */
#define MAX_LEAPS	100000
#define PAGE_SECTORS	8
#define VOLUME_SECTORS	TRACE_MAX_SECTOR

struct replay_pool {
	struct hybrid_executor x;
	struct hybrid_sb sb;
	struct replay_setup setup;
	struct hybrid_volume *volume[TRACE_MAX_SOURCES];
	struct model_disk *disk[TRACE_MAX_SOURCES];
	struct hybrid_root root;	/* of a fresh pool: the only block that is read */
	u64 due;			/* ms: of the next tick */
	bool ticking;
	u64 random;
	u64 misses[TRACE_MAX_SOURCES];	/* of blocks, so far */
	struct replay_count count;
};

/* ---- counting -------------------------------------------------------------- */

static u64 pages(u64 sector, u32 count)
{
	return (sector + count - 1) / PAGE_SECTORS - sector / PAGE_SECTORS + 1;
}

static struct model_disk *op_disk(const struct hybrid_op *op)
{
	return hybrid_volume_context(op->volume);
}

static void count_transfer(struct replay_pool *p, const struct hybrid_op *op, bool origin,
			   u64 sector, u32 count)
{
	u64 *written = op->io ? &p->count.ssd_write : &p->count.ssd_fill;

	if (origin)
		model_op(op_disk(op), op->write, sector, count, op->write && !op->io);
	else if (op->write)
		*written += pages(sector, count);
}

static void count_user(struct replay_pool *p, const struct hybrid_op *op, bool origin, u64 sector,
		       u32 count)
{
	if (op->io->type != HYBRID_IO_READ && op->io->type != HYBRID_IO_WRITE)
		return;
	if (origin)
		model_op(op_disk(op), op->write, sector, count, false);
	else if (op->write)
		p->count.ssd_write += pages(sector, count);
}

/* Reads find the metadata of a fresh pool: zeroes, except for its root. */
static void read_meta(const struct replay_pool *p, u64 sector, u32 count, void *mem)
{
	memset(mem, 0, (size_t)count * 512);
	if (sector == p->sb.geometry.root_sector)
		memcpy(mem, &p->root, sizeof(p->root));
}

/* ---- executing ------------------------------------------------------------- */

static struct replay_pool *pool_of(struct hybrid_executor *x)
{
	return container_of(x, struct replay_pool, x);
}

static int transfer(struct hybrid_executor *x, const struct hybrid_op *op, bool origin, u64 sector,
		    u32 count, void *data)
{
	struct replay_pool *p = pool_of(x);

	if (op->type == HYBRID_OP_TRANSFER)
		count_transfer(p, op, origin, sector, count);
	else if (op->type == HYBRID_OP_USER)
		count_user(p, op, origin, sector, count);
	else if (op->type == HYBRID_OP_META && !op->write)
		read_meta(p, sector, count, data);
	else if (op->type == HYBRID_OP_META && !origin)
		p->count.ssd_meta += pages(sector, count);
	return 0;
}

static int flush(struct hybrid_executor *x, struct hybrid_op *op, bool origin)
{
	struct replay_pool *p = pool_of(x);

	if (op->type == HYBRID_OP_FLUSH || op->type == HYBRID_OP_META)
		*(origin ? &p->count.disk_flushes : &p->count.ssd_flushes) += 1;
	return 0;
}

/* ---- time ------------------------------------------------------------------ */

/* Runs the ticks until @ms, except where nothing would happen. */
static void advance(struct replay_pool *p, u64 ms)
{
	u32 quiet = 0;
	u64 before;

	for (; p->due <= ms; p->due += TICK_MS) {
		if (!p->ticking || quiet == QUIET_TICKS)
			p->due = max(p->due, ms - ms % TICK_MS);
		before = p->x.executed;
		p->ticking = hybrid_execute_tick(&p->x, p->due - p->x.now);
		quiet = p->x.executed == before ? min(quiet + 1, (u32)QUIET_TICKS) : 0;
	}
}

/* Lets time pass where nothing happens by itself. */
static bool wait_for(struct hybrid_executor *x, const bool *ended)
{
	struct replay_pool *p = pool_of(x);
	u32 leaps;

	/* A request may leave work for later ticks. */
	p->ticking = true;
	hybrid_execute_all(x);
	for (leaps = 0; !*ended && leaps < MAX_LEAPS; leaps++)
		advance(p, p->due);
	return *ended;
}

static const struct hybrid_executor_ops executor_ops = {
	.transfer = transfer,
	.flush = flush,
	.wait = wait_for,
};

/* ---- services for the engine ----------------------------------------------- */

/* The same each time: nothing here is a secret. */
static u64 next_random(struct hybrid_engine *e)
{
	return ++pool_of(hybrid_engine_context(e))->random;
}

static const struct hybrid_engine_ops replay_ops = {
	.alloc_buffer = hybrid_execute_no_buffer,
	.free_buffer = hybrid_execute_no_free,
	.checksum = hybrid_execute_no_checksum,
	.do_op = hybrid_execute_now,
	.wait_checkpoint = hybrid_execute_checkpoint,
	.random = next_random,
};

/* ---- the pool -------------------------------------------------------------- */

int replay_geometry(struct hybrid_geometry *g, u32 block_sectors, u64 blocks, const char **why)
{
	u64 low = HYBRID_HEAD_SECTORS + HYBRID_TAIL_SECTORS + 1, high, middle;
	int r;

	*why = "it is too large for this block size";
	if (!blocks || blocks > U32_MAX)
		return -EINVAL;
	/* Metadata takes less than 64 bytes a block and 8 MiB. */
	high = low + blocks * (block_sectors + 1) + (72U << 11);
	while (low < high) {
		middle = low + (high - low) / 2;
		r = hybrid_geometry_init(g, middle, block_sectors, 0, why);
		if (r == -EINVAL)
			return r;
		/* Metadata alone takes less than that: the device is not too small, but too large. */
		if (r ? middle < 32U << 11 : g->nr_blocks < blocks)
			low = middle + 1;
		else
			high = middle;
	}
	return hybrid_geometry_init(g, low, block_sectors, 0, why);
}

static int make_root(struct replay_pool *p)
{
	const struct hybrid_root_info info = {
		.sequence = 2, .epoch = 1, .flags = HYBRID_ROOT_CLEAN, .next_instance = 1,
	};
	const struct hybrid_ident id = { .epoch = 1 };
	u16 *generations = calloc(p->sb.geometry.nr_index, sizeof(*generations));

	if (!generations)
		return -ENOMEM;
	hybrid_root_encode(&p->root, &p->sb.geometry, &id, &info, generations);
	free(generations);
	return 0;
}

static int load(struct replay_pool *p, const char **why)
{
	const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	int r;

	r = replay_geometry(&p->sb.geometry, p->setup.block_sectors, p->setup.blocks, why);
	if (r)
		return r;
	*why = "there is not enough memory";
	p->sb.role = HYBRID_ROLE_CACHE;
	p->sb.member_sectors = p->sb.geometry.member_sectors;
	r = make_root(p);
	if (r)
		return r;
	p->x.engine = hybrid_engine_create(&p->sb, &replay_ops, &p->x, p->setup.policy, &config, &r);
	return p->x.engine ? hybrid_engine_load(p->x.engine, why) : r;
}

struct replay_pool *replay_pool_create(const struct replay_setup *setup, const char **why)
{
	struct replay_pool *p = calloc(1, sizeof(*p));

	*why = "there is not enough memory";
	if (!p)
		return NULL;
	p->setup = *setup;
	hybrid_executor_init(&p->x, &executor_ops);
	p->x.block_sectors = setup->block_sectors;
	if (load(p, why)) {
		replay_pool_destroy(p);
		return NULL;
	}
	p->due = TICK_MS;
	return p;
}

/* The engine is given up as it is. */
void replay_pool_destroy(struct replay_pool *p)
{
	u32 i;

	if (!p)
		return;
	if (p->x.engine)
		hybrid_engine_destroy(p->x.engine);
	for (i = 0; i < TRACE_MAX_SOURCES; i++)
		free(p->disk[i]);
	free(p);
}

const struct hybrid_geometry *replay_pool_geometry(const struct replay_pool *p)
{
	return &p->sb.geometry;
}

/* A volume in place, as large as possible: it has no superblock to write. */
static int add_volume(struct replay_pool *p, u32 id)
{
	struct hybrid_volume_info info = {
		.mode = p->setup.mode, .flags = HYBRID_VOLUME_INPLACE,
		.uuid = { id + 1, 1 }, .member_uuid = { id + 1, 2 },
		.data_sectors = VOLUME_SECTORS, .cutoff_sectors = p->setup.cutoff,
	};
	const struct replay_count before = p->count;
	const char *why;
	int r;

	snprintf(info.name, sizeof(info.name), "volume%u", id);
	p->disk[id] = calloc(1, sizeof(*p->disk[id]));
	if (!p->disk[id])
		return -ENOMEM;
	r = hybrid_volume_create(p->x.engine, id, &info);
	if (!r)
		r = hybrid_volume_open(p->x.engine, id, VOLUME_SECTORS, p->disk[id], &p->volume[id],
				       &why);
	if (!r)
		hybrid_volume_set_traits(p->volume[id], HYBRID_ORIGIN_SEEKS);
	/* Setting the volume up is not part of the trace */
	p->count = before;
	return r;
}

/* ---- requests -------------------------------------------------------------- */

/* Has any block been missed since the last call? */
static bool missed(struct replay_pool *p, u32 source)
{
	u64 before = p->misses[source];
	struct hybrid_volume_status st;

	hybrid_volume_status(p->x.engine, p->volume[source], &st);
	p->misses[source] = st.counter[HYBRID_READ_MISSES] + st.counter[HYBRID_WRITE_MISSES];
	return p->misses[source] != before;
}

static int read_or_write(struct replay_pool *p, const struct trace_request *r)
{
	bool write = r->op == TRACE_WRITE;
	int e;

	model_request(p->disk[r->source]);
	e = hybrid_request_blocks(&p->x, p->volume[r->source],
				  write ? HYBRID_IO_WRITE : HYBRID_IO_READ, r->sector, r->count,
				  NULL, r->fua ? HYBRID_IO_FUA : 0);
	p->count.requests[write]++;
	p->count.missed[write] += missed(p, r->source);
	return e;
}

int replay_pool_request(struct replay_pool *p, const struct trace_request *r)
{
	int e = 0;

	if (!p->volume[r->source])
		e = add_volume(p, r->source);
	if (e)
		return e;
	advance(p, r->us / 1000);
	if (r->op == TRACE_DISCARD)
		return hybrid_request_run(&p->x, p->volume[r->source], HYBRID_IO_DISCARD, r->sector,
					  r->count, NULL, 0);
	if (r->op == TRACE_FLUSH)
		return hybrid_request_run(&p->x, p->volume[r->source], HYBRID_IO_FLUSH, 0, 0, NULL,
					  0);
	return read_or_write(p, r);
}

void replay_pool_pass(struct replay_pool *p, const struct trace_request *r)
{
	struct hybrid_volume *v = p->volume[r->source];
	struct hybrid_stream *st = v ? hybrid_stream_find(v, r->sector) : NULL;

	if (!st)
		return;
	st->next += r->count;
	st->sectors += r->count;
	list_move(&st->link, &v->streams.list);
}

int replay_pool_finish(struct replay_pool *p)
{
	struct hybrid_pool_status st;
	u32 leaps;

	hybrid_engine_drain(p->x.engine, NULL, true, 0, &p->x.acts);
	hybrid_execute_all(&p->x);
	for (leaps = 0; leaps < MAX_LEAPS; leaps++) {
		hybrid_engine_status(p->x.engine, &st);
		if (!st.dirty)
			return 0;
		advance(p, p->due);
	}
	return -EDEADLK;
}

void replay_pool_count(struct replay_pool *p, struct replay_count *c)
{
	struct hybrid_volume_status vs;
	struct hybrid_pool_status st;
	u32 i, k;

	*c = p->count;
	hybrid_engine_status(p->x.engine, &st);
	c->dirty = st.dirty;
	c->evictions = st.evictions;
	c->records = st.journal_records;
	for (i = 0; i < TRACE_MAX_SOURCES; i++) {
		const struct model_disk *d = p->disk[i];

		if (!p->volume[i])
			continue;
		hybrid_volume_status(p->x.engine, p->volume[i], &vs);
		for (k = 0; k < HYBRID_NR_COUNTERS; k++)
			c->counter[k] += vs.counter[k];
		for (k = 0; k < 2; k++) {
			c->disk_ops[k] += d->ops[k];
			c->disk_sectors[k] += d->sectors[k];
		}
		c->disk_runs += d->runs;
		c->disk_ms += d->ms;
	}
	c->block_misses[0] = c->counter[HYBRID_READ_MISSES];
	c->block_misses[1] = c->counter[HYBRID_WRITE_MISSES];
	c->blocks[0] = c->counter[HYBRID_READ_HITS] + c->block_misses[0];
	c->blocks[1] = c->counter[HYBRID_WRITE_HITS] + c->block_misses[1];
}
