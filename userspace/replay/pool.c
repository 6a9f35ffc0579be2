// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>
#include <stdlib.h>

#include "engine-internal.h"
#include "pool.h"

#define TICK_MS		100
/* After so many ticks without an operation, only time passes.  More than the commit interval. */
#define QUIET_TICKS	20
/* The most ticks to wait for an I/O, a checkpoint or a drain. */
#define MAX_LEAPS	100000
#define PAGE_SECTORS	8
#define VOLUME_SECTORS	TRACE_MAX_SECTOR

struct replay_pool {
	struct hybrid_sb sb;
	struct replay_setup setup;
	struct hybrid_engine *engine;
	struct hybrid_actions acts;
	struct hybrid_volume *volume[TRACE_MAX_SOURCES];
	struct model_disk *disk[TRACE_MAX_SOURCES];
	struct hybrid_root root;	/* of a fresh pool: the only block that is read */
	u64 now, due;			/* ms: of the trace; of the next tick */
	bool ticking;
	u64 random, acted;
	u64 misses[TRACE_MAX_SOURCES];	/* of blocks, so far */
	struct replay_count count;
};

struct request {
	struct hybrid_io io;
	bool done;
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

static void count_transfer(struct replay_pool *p, const struct hybrid_op *op)
{
	u64 *written = op->io ? &p->count.ssd_write : &p->count.ssd_fill;
	u32 i;

	for (i = 0; i < op->nr_segments; i++) {
		const struct hybrid_segment *s = &op->segments[i];

		if (s->origin)
			model_op(op_disk(op), op->write, s->sector, s->count,
				 op->write && !op->io);
		else if (op->write)
			*written += pages(s->sector, s->count);
	}
}

static void count_user(struct replay_pool *p, const struct hybrid_op *op)
{
	if (op->io->type != HYBRID_IO_READ && op->io->type != HYBRID_IO_WRITE)
		return;
	if (op->origin)
		model_op(op_disk(op), op->write, op->sector, op->count, false);
	else if (op->write)
		p->count.ssd_write += pages(op->sector, op->count);
}

static void count_meta(struct replay_pool *p, const struct hybrid_op *op)
{
	u32 i;

	if (op->type == HYBRID_OP_FLUSH || op->fua)
		op->origin ? p->count.disk_flushes++ : p->count.ssd_flushes++;
	if (op->type == HYBRID_OP_FLUSH || !op->write || op->origin)
		return;
	for (i = 0; i < op->nr_segments; i++)
		p->count.ssd_meta += pages(op->segments[i].sector, op->segments[i].count);
}

/* ---- carrying out ---------------------------------------------------------- */

/* Reads find the metadata of a fresh pool: zeroes, except for its root. */
static int carry_meta(struct replay_pool *p, struct hybrid_op *op)
{
	u32 i;

	count_meta(p, op);
	for (i = 0; op->type == HYBRID_OP_META && !op->write && i < op->nr_segments; i++) {
		const struct hybrid_segment *s = &op->segments[i];
		void *mem = op->mem + (size_t)s->offset * 512;

		memset(mem, 0, (size_t)s->count * 512);
		if (s->sector == p->sb.geometry.root_sector)
			memcpy(mem, &p->root, sizeof(p->root));
	}
	op->error_cache = 0;
	op->error_origin = 0;
	return 0;
}

static struct request *request_of(struct hybrid_op *op)
{
	return container_of(op->io, struct request, io);
}

static void carry_user(struct replay_pool *p, struct hybrid_op *op)
{
	count_user(p, op);
	if (hybrid_engine_io_done(p->engine, op->io, 0, &p->acts))
		request_of(op)->done = true;
}

static void carry_out(struct replay_pool *p, struct hybrid_op *op)
{
	p->acted++;
	switch (op->type) {
	case HYBRID_OP_USER:
		carry_user(p, op);
		return;
	case HYBRID_OP_COMPLETE:
		request_of(op)->done = true;
		return;
	case HYBRID_OP_WAKE:
		op->waiter->done(op->waiter);
		return;
	case HYBRID_OP_TRANSFER:
		op->error_cache = 0;
		op->error_origin = 0;
		count_transfer(p, op);
		break;
	case HYBRID_OP_META:
	case HYBRID_OP_FLUSH:
		carry_meta(p, op);
		break;
	}
	hybrid_engine_op_done(p->engine, op, &p->acts);
}

static void run(struct replay_pool *p)
{
	struct hybrid_op *op;

	while ((op = hybrid_actions_pop(&p->acts)))
		carry_out(p, op);
}

/* ---- time ------------------------------------------------------------------ */

static void tick(struct replay_pool *p, u64 ms)
{
	p->ticking = hybrid_engine_tick(p->engine, ms, &p->acts);
	run(p);
}

/* Runs the ticks until @ms, without the ones in which nothing would happen. */
static void advance(struct replay_pool *p, u64 ms)
{
	u32 quiet = 0;
	u64 acted;

	for (; p->due <= ms; p->due += TICK_MS) {
		if (!p->ticking || quiet == QUIET_TICKS)
			p->due = max(p->due, ms - ms % TICK_MS);
		acted = p->acted;
		tick(p, p->due);
		quiet = p->acted == acted ? min(quiet + 1, (u32)QUIET_TICKS) : 0;
	}
	p->now = max(p->now, ms);
}

/* Waits until *@done, and lets time pass if nothing happens by itself. */
static int wait_for(struct replay_pool *p, const bool *done)
{
	u32 leaps;

	run(p);
	for (leaps = 0; !*done && leaps < MAX_LEAPS; leaps++) {
		p->now = p->due;
		advance(p, p->now);
	}
	return *done ? 0 : -EDEADLK;
}

/* ---- services for the engine ----------------------------------------------- */

/* Nobody looks at data. */
static void *alloc_buffer(struct hybrid_engine *e, u32 sectors, gfp_t gfp)
{
	(void)sectors;
	(void)gfp;
	return e;
}

static void free_buffer(struct hybrid_engine *e, void *buffer)
{
	(void)e;
	(void)buffer;
}

static int do_op(struct hybrid_engine *e, struct hybrid_op *op)
{
	return carry_meta(hybrid_engine_context(e), op);
}

static int wait_checkpoint(struct hybrid_engine *e)
{
	struct replay_pool *p = hybrid_engine_context(e);
	struct hybrid_waiter w = { .done = hybrid_waiter_ended };
	int r;

	hybrid_engine_checkpoint(e, &w, &p->acts);
	r = wait_for(p, &w.ended);
	return r ? r : w.error;
}

/* The same each time: nothing here is a secret. */
static u64 next_random(struct hybrid_engine *e)
{
	struct replay_pool *p = hybrid_engine_context(e);

	return ++p->random;
}

static const struct hybrid_engine_ops replay_ops = {
	.alloc_buffer = alloc_buffer,
	.free_buffer = free_buffer,
	.do_op = do_op,
	.wait_checkpoint = wait_checkpoint,
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
	p->engine = hybrid_engine_create(&p->sb, &replay_ops, p, p->setup.policy, &config, &r);
	return p->engine ? hybrid_engine_load(p->engine, why) : r;
}

struct replay_pool *replay_pool_create(const struct replay_setup *setup, const char **why)
{
	struct replay_pool *p = calloc(1, sizeof(*p));

	*why = "there is not enough memory";
	if (!p)
		return NULL;
	p->setup = *setup;
	hybrid_actions_init(&p->acts);
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
	if (p->engine)
		hybrid_engine_destroy(p->engine);
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
	r = hybrid_volume_create(p->engine, id, &info);
	if (!r)
		r = hybrid_volume_open(p->engine, id, VOLUME_SECTORS, p->disk[id], &p->volume[id],
				       &why);
	if (!r)
		hybrid_volume_set_origin(p->volume[id], HYBRID_ORIGIN_SEEKS);
	/* Setting the volume up is not part of the trace */
	p->count = before;
	return r;
}

/* ---- requests -------------------------------------------------------------- */

static int one_io(struct replay_pool *p, u32 source, enum hybrid_io_type type, u64 sector,
		  u32 count, bool fua)
{
	struct request q = { .done = false };

	hybrid_io_init(&q.io, p->volume[source], type, sector, count,
		       fua ? HYBRID_IO_FUA : 0);
	if (hybrid_engine_map(p->engine, &q.io, &p->acts) == HYBRID_MAP_REMAP)
		carry_out(p, &q.io.op);
	p->ticking = true;
	return wait_for(p, &q.done);
}

static int by_blocks(struct replay_pool *p, const struct trace_request *r, enum hybrid_io_type type)
{
	u32 block = p->setup.block_sectors, left = r->count, n;
	u64 sector = r->sector;
	int e = 0;

	for (; left && !e; sector += n, left -= n) {
		n = min_t(u32, left, block - (u32)(sector & (block - 1)));
		e = one_io(p, r->source, type, sector, n, r->fua);
	}
	return e;
}

/* Has any block been missed since the last call? */
static bool missed(struct replay_pool *p, u32 source)
{
	u64 before = p->misses[source];
	struct hybrid_volume_status st;

	hybrid_volume_status(p->engine, p->volume[source], &st);
	p->misses[source] = st.counter[HYBRID_READ_MISSES] + st.counter[HYBRID_WRITE_MISSES];
	return p->misses[source] != before;
}

static int read_or_write(struct replay_pool *p, const struct trace_request *r)
{
	bool write = r->op == TRACE_WRITE;
	int e;

	model_request(p->disk[r->source]);
	e = by_blocks(p, r, write ? HYBRID_IO_WRITE : HYBRID_IO_READ);
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
		return one_io(p, r->source, HYBRID_IO_DISCARD, r->sector, r->count, false);
	if (r->op == TRACE_FLUSH)
		return one_io(p, r->source, HYBRID_IO_FLUSH, 0, 0, false);
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
	st->used = ++v->streams.clock;
}

int replay_pool_finish(struct replay_pool *p)
{
	struct hybrid_pool_status st;
	u32 leaps;

	hybrid_engine_drain(p->engine, NULL, true, 0, &p->acts);
	run(p);
	for (leaps = 0; leaps < MAX_LEAPS; leaps++) {
		hybrid_engine_status(p->engine, &st);
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
	hybrid_engine_status(p->engine, &st);
	c->dirty = st.dirty;
	c->evictions = st.evictions;
	c->records = st.journal_records;
	for (i = 0; i < TRACE_MAX_SOURCES; i++) {
		const struct model_disk *d = p->disk[i];

		if (!p->volume[i])
			continue;
		hybrid_volume_status(p->engine, p->volume[i], &vs);
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
