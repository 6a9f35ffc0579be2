// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Carries the engine's actions out, as dm-hybrid/io.c does in the kernel.
 *
 * The caller's thread runs the engine, and metadata and flushes, one after the
 * other.  Transfers go to threads, if there are any, and come back by a list; a
 * flush covers the transfers that had come back before.
 *
 * Time is real, but leaps by a tick if nothing is under way: nobody waits for an
 * interval of the engine to end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "engine.h"
#include "offline.h"

#define NR_THREADS	16
#define TICK_MS		100
#define PIECE_SECTORS	8	/* in which bad parts of a range are looked for */

/* A node of one of the two trees, ordered by device and sector. */
struct place {
	struct hybrid_bad_piece at;
	void *block;		/* KEEP: the metadata block written here */
};

struct hybrid_offline {
	const struct hybrid_device *cache;
	struct hybrid_engine *engine;
	struct hybrid_geometry geometry;
	unsigned int flags;
	struct hybrid_actions acts;
	u64 last_tick, leapt;		/* ms */
	unsigned int leaps;
	void *kept;			/* struct place, by tsearch() */

	pthread_t thread[NR_THREADS];
	unsigned int nr_threads;
	pthread_mutex_t lock;		/* the rest */
	pthread_cond_t work, back;
	struct list_head todo, ended;	/* hybrid_op.link */
	unsigned int under_way;
	bool leave;
	void *bad;			/* struct place, by tsearch() */
	unsigned int nr_bad, nr_failures;
};

struct user_io {
	struct hybrid_io io;
	void *data;
	bool done;
};

/* ---- places ---------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->at.dev != y->at.dev)
		return x->at.dev < y->at.dev ? -1 : 1;
	return x->at.sector < y->at.sector ? -1 : x->at.sector > y->at.sector;
}

/* The node of that place, made if it is not there; NULL: no memory. */
static struct place *place_at(void **tree, const struct hybrid_device *dev, u64 sector, bool *made)
{
	struct place *p = calloc(1, sizeof(*p)), **found;

	*made = false;
	if (!p)
		return NULL;
	p->at.dev = dev;
	p->at.sector = sector;
	found = tsearch(p, tree, compare_places);
	*made = found && *found == p;
	if (!*made)
		free(p);
	return found ? *found : NULL;
}

static struct place *find_place(void * const *tree, const struct hybrid_device *dev, u64 sector)
{
	struct place key = { .at = { .dev = dev, .sector = sector } }, **found;

	found = tfind(&key, tree, compare_places);
	return found ? *found : NULL;
}

static void free_place(void *node)
{
	struct place *p = node;

	free(p->block);
	free(p);
}

static u64 piece_start(u64 sector)
{
	return sector / PIECE_SECTORS * PIECE_SECTORS;
}

static void note_bad(struct hybrid_offline *o, const struct hybrid_device *dev, u64 sector,
		     u32 count, int error, bool write)
{
	struct place *p;
	bool made;

	pthread_mutex_lock(&o->lock);
	o->nr_failures++;
	p = place_at(&o->bad, dev, piece_start(sector), &made);
	if (p) {
		p->at.count = count;
		p->at.error = error;
		p->at.write = write;
		o->nr_bad += made;
	}
	pthread_mutex_unlock(&o->lock);
}

const struct hybrid_bad_piece *hybrid_offline_bad(struct hybrid_offline *o,
						  const struct hybrid_device *dev,
						  uint64_t sector)
{
	struct place *p;

	pthread_mutex_lock(&o->lock);
	p = find_place(&o->bad, dev, piece_start(sector));
	pthread_mutex_unlock(&o->lock);
	return p ? &p->at : NULL;
}

unsigned int hybrid_offline_nr_bad(struct hybrid_offline *o, unsigned int *failures)
{
	unsigned int nr;

	pthread_mutex_lock(&o->lock);
	nr = o->nr_bad;
	*failures = o->nr_failures;
	pthread_mutex_unlock(&o->lock);
	return nr;
}

/* ---- devices --------------------------------------------------------------- */

static const struct hybrid_device *op_device(struct hybrid_offline *o, struct hybrid_op *op,
					     bool origin)
{
	return origin ? hybrid_volume_context(op->volume) : o->cache;
}

static int move(const struct hybrid_device *dev, bool write, u64 sector, void *data, u32 count)
{
	return write ? hybrid_device_write(dev, sector, data, (size_t)count * 512) :
	       hybrid_device_read(dev, sector, data, (size_t)count * 512);
}

/* Finds the bad pieces of a range that failed, for the report. */
static void find_bad(struct hybrid_offline *o, const struct hybrid_device *dev, bool write,
		     u64 sector, void *data, u32 count)
{
	u32 n;
	int r;

	for (; count; sector += n, data += (size_t)n * 512, count -= n) {
		n = min_t(u32, count, PIECE_SECTORS);
		r = move(dev, write, sector, data, n);
		if (r)
			note_bad(o, dev, sector, n, r, write);
	}
}

static void carry_transfer(struct hybrid_offline *o, struct hybrid_op *op)
{
	const struct hybrid_segment *seg;
	const struct hybrid_device *dev;
	void *data;
	u32 i;
	int r;

	op->error_cache = 0;
	op->error_origin = 0;
	for (i = 0; i < op->nr_segments; i++) {
		seg = &op->segments[i];
		dev = op_device(o, op, seg->origin);
		data = op->buffer + (size_t)seg->offset * 512;
		r = move(dev, op->write, seg->sector, data, seg->count);
		if (!r && op->write && op->fua)
			r = hybrid_device_flush(dev);
		if (!r)
			continue;
		*(seg->origin ? &op->error_origin : &op->error_cache) = r;
		find_bad(o, dev, op->write, seg->sector, data, seg->count);
	}
}

/* ---- metadata -------------------------------------------------------------- */

/* Keeps metadata blocks in memory instead of writing them. */
static int keep(struct hybrid_offline *o, const struct hybrid_device *dev, u64 sector,
		const void *data, u32 count)
{
	struct place *p;
	bool made;

	for (; count; count -= HYBRID_META_BLOCK_SECTORS) {
		p = place_at(&o->kept, dev, sector, &made);
		if (p && !p->block)
			p->block = malloc(HYBRID_META_BLOCK_SIZE);
		if (!p || !p->block)
			return -ENOMEM;
		memcpy(p->block, data, HYBRID_META_BLOCK_SIZE);
		sector += HYBRID_META_BLOCK_SECTORS;
		data += HYBRID_META_BLOCK_SIZE;
	}
	return 0;
}

static void put_kept(struct hybrid_offline *o, const struct hybrid_device *dev, u64 sector,
		     void *data, u32 count)
{
	const struct place *p;

	for (; count; count -= HYBRID_META_BLOCK_SECTORS) {
		p = find_place(&o->kept, dev, sector);
		if (p && p->block)
			memcpy(data, p->block, HYBRID_META_BLOCK_SIZE);
		sector += HYBRID_META_BLOCK_SECTORS;
		data += HYBRID_META_BLOCK_SIZE;
	}
}

/* The engine's memory is not aligned as the device may want it. */
static int carry_segment(struct hybrid_offline *o, struct hybrid_op *op,
			 const struct hybrid_segment *seg, const struct hybrid_device *dev)
{
	void *mem = op->mem + (size_t)seg->offset * 512, *buf;
	size_t len = (size_t)seg->count * 512;
	int r;

	if (op->write && o->flags & HYBRID_OFFLINE_KEEP)
		return keep(o, dev, seg->sector, mem, seg->count);
	buf = hybrid_buffer(len);
	if (!buf)
		return -ENOMEM;
	if (op->write)
		memcpy(buf, mem, len);
	r = move(dev, op->write, seg->sector, buf, seg->count);
	if (!r && !op->write) {
		memcpy(mem, buf, len);
		put_kept(o, dev, seg->sector, mem, seg->count);
	}
	free(buf);
	return r;
}

/* Nothing at all is written to a cache device whose metadata is only in memory. */
static int flush(struct hybrid_offline *o, const struct hybrid_device *dev)
{
	if (o->flags & HYBRID_OFFLINE_KEEP && dev == o->cache)
		return 0;
	return hybrid_device_flush(dev);
}

/* META and FLUSH. */
static int carry_meta(struct hybrid_offline *o, struct hybrid_op *op)
{
	const struct hybrid_device *dev = op_device(o, op, op->origin);
	u32 i;
	int r = 0;

	if (op->type == HYBRID_OP_FLUSH)
		r = flush(o, dev);
	for (i = 0; !r && op->type == HYBRID_OP_META && i < op->nr_segments; i++)
		r = carry_segment(o, op, &op->segments[i], dev);
	if (!r && op->fua)
		r = flush(o, dev);
	op->error_cache = op->origin ? 0 : r;
	op->error_origin = op->origin ? r : 0;
	return r;
}

static struct user_io *user_of(struct hybrid_op *op)
{
	return container_of(op->io, struct user_io, io);
}

static void copy_out(struct hybrid_op *op)
{
	memcpy(user_of(op)->data, op->buffer + (size_t)op->buffer_offset * 512,
	       (size_t)op->io->count * 512);
}

static void copy_in(struct hybrid_op *op)
{
	memcpy(op->buffer + (size_t)op->buffer_offset * 512, user_of(op)->data,
	       (size_t)op->io->count * 512);
}

static void carry_user(struct hybrid_offline *o, struct hybrid_op *op)
{
	struct hybrid_io *io = op->io;
	const struct hybrid_device *dev;
	bool write = io->type == HYBRID_IO_WRITE;
	int r = -EOPNOTSUPP;

	op->volume = io->volume;
	dev = op_device(o, op, op->origin);
	if (write || io->type == HYBRID_IO_READ)
		r = move(dev, write, op->sector, user_of(op)->data, io->count);
	if (!r && op->fua)
		r = hybrid_device_flush(dev);
	if (hybrid_engine_io_done(o->engine, io, r, &o->acts))
		user_of(op)->done = true;
}

/* ---- threads --------------------------------------------------------------- */

static void *work(void *arg)
{
	struct hybrid_offline *o = arg;
	struct hybrid_op *op;

	pthread_mutex_lock(&o->lock);
	while (!o->leave) {
		op = list_first_entry_or_null(&o->todo, struct hybrid_op, link);
		if (!op) {
			pthread_cond_wait(&o->work, &o->lock);
			continue;
		}
		list_del_init(&op->link);
		pthread_mutex_unlock(&o->lock);
		carry_transfer(o, op);
		pthread_mutex_lock(&o->lock);
		list_add_tail(&op->link, &o->ended);
		pthread_cond_signal(&o->back);
	}
	pthread_mutex_unlock(&o->lock);
	return NULL;
}

static void start_transfer(struct hybrid_offline *o, struct hybrid_op *op)
{
	if (op->io)
		copy_in(op);
	if (!o->nr_threads)
		carry_transfer(o, op);
	pthread_mutex_lock(&o->lock);
	o->under_way++;
	list_add_tail(&op->link, o->nr_threads ? &o->todo : &o->ended);
	pthread_cond_signal(&o->work);
	pthread_mutex_unlock(&o->lock);
}

/* Waits for a transfer to end, and returns it; NULL: none is under way. */
static struct hybrid_op *ended_transfer(struct hybrid_offline *o)
{
	struct hybrid_op *op;

	pthread_mutex_lock(&o->lock);
	while (o->under_way && list_empty(&o->ended))
		pthread_cond_wait(&o->back, &o->lock);
	op = list_first_entry_or_null(&o->ended, struct hybrid_op, link);
	if (op) {
		list_del_init(&op->link);
		o->under_way--;
	}
	pthread_mutex_unlock(&o->lock);
	return op;
}

static void start_threads(struct hybrid_offline *o)
{
	while (o->nr_threads < NR_THREADS &&
	       !pthread_create(&o->thread[o->nr_threads], NULL, work, o))
		o->nr_threads++;
}

static void stop_threads(struct hybrid_offline *o)
{
	pthread_mutex_lock(&o->lock);
	o->leave = true;
	pthread_cond_broadcast(&o->work);
	pthread_mutex_unlock(&o->lock);
	while (o->nr_threads)
		pthread_join(o->thread[--o->nr_threads], NULL);
}

/* ---- steps ----------------------------------------------------------------- */

static void carry_out(struct hybrid_offline *o, struct hybrid_op *op)
{
	switch (op->type) {
	case HYBRID_OP_TRANSFER:
		start_transfer(o, op);
		return;
	case HYBRID_OP_USER:
		carry_user(o, op);
		return;
	case HYBRID_OP_COMPLETE:
		user_of(op)->done = true;
		return;
	case HYBRID_OP_WAKE:
		op->waiter->done(op->waiter);
		return;
	case HYBRID_OP_META:
	case HYBRID_OP_FLUSH:
		carry_meta(o, op);
		break;
	case HYBRID_OP_COPY_OUT:
		copy_out(op);
		break;
	}
	hybrid_engine_op_done(o->engine, op, &o->acts);
}

static u64 now(const struct hybrid_offline *o)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (u64)t.tv_sec * 1000 + (u64)t.tv_nsec / 1000000 + o->leapt;
}

static void tick(struct hybrid_offline *o)
{
	o->last_tick = now(o);
	hybrid_engine_tick(o->engine, o->last_tick, &o->acts);
}

/* Something ends, or, with nothing under way, time passes. */
static void step(struct hybrid_offline *o)
{
	struct hybrid_op *op = hybrid_actions_pop(&o->acts);

	if (op) {
		carry_out(o, op);
	} else {
		op = ended_transfer(o);
		if (op)
			hybrid_engine_op_done(o->engine, op, &o->acts);
	}
	if (!op) {
		o->leapt += TICK_MS;
		o->leaps++;
	}
	if (!op || now(o) - o->last_tick >= TICK_MS)
		tick(o);
}

void hybrid_offline_run(struct hybrid_offline *o,
			bool (*until)(void *context, unsigned int leaps), void *context)
{
	o->leaps = 0;
	while (!until(context, o->leaps))
		step(o);
}

/* ---- services for the engine ----------------------------------------------- */

static void *alloc_buffer(struct hybrid_engine *e, u32 sectors, gfp_t gfp)
{
	(void)e;
	(void)gfp;
	return hybrid_buffer((size_t)sectors * 512);
}

static void free_buffer(struct hybrid_engine *e, void *buffer)
{
	(void)e;
	free(buffer);
}

static int do_op(struct hybrid_engine *e, struct hybrid_op *op)
{
	return carry_meta(hybrid_engine_context(e), op);
}

static int wait_checkpoint(struct hybrid_engine *e)
{
	struct hybrid_offline *o = hybrid_engine_context(e);
	struct hybrid_waiter w = { .done = hybrid_waiter_ended };

	hybrid_engine_checkpoint(e, &w, &o->acts);
	while (!w.ended)
		step(o);
	return w.error;
}

/* Nothing may be written without random numbers: they identify the metadata as ours. */
static u64 random_nonzero(struct hybrid_engine *e)
{
	u64 r = 0;

	(void)e;
	while (!r)
		if (getrandom(&r, sizeof(r), 0) != sizeof(r) && errno != EINTR)
			abort();
	return r;
}

static const struct hybrid_engine_ops offline_ops = {
	.alloc_buffer = alloc_buffer,
	.free_buffer = free_buffer,
	.do_op = do_op,
	.wait_checkpoint = wait_checkpoint,
	.random = random_nonzero,
};

/* ---- the pool -------------------------------------------------------------- */

/* A policy that is not linked in makes no difference here: nothing is evicted. */
static const struct hybrid_policy_type *policy_of(const struct hybrid_sb *sb)
{
	const struct hybrid_policy_type *policy = hybrid_policy_get(sb->policy);

	return policy ? policy : hybrid_policy_get("lru");
}

struct hybrid_offline *hybrid_offline_create(const struct hybrid_device *cache,
					     const struct hybrid_sb *sb, unsigned int flags)
{
	const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	struct hybrid_offline *o = calloc(1, sizeof(*o));
	int error;

	if (!o)
		return NULL;
	o->cache = cache;
	o->flags = flags;
	o->geometry = sb->geometry;
	hybrid_actions_init(&o->acts);
	INIT_LIST_HEAD(&o->todo);
	INIT_LIST_HEAD(&o->ended);
	pthread_mutex_init(&o->lock, NULL);
	pthread_cond_init(&o->work, NULL);
	pthread_cond_init(&o->back, NULL);
	o->engine = hybrid_engine_create(sb, &offline_ops, o, policy_of(sb), &config, &error);
	if (!o->engine) {
		hybrid_offline_destroy(o);
		return NULL;
	}
	if (flags & HYBRID_OFFLINE_THREADS)
		start_threads(o);
	return o;
}

void hybrid_offline_destroy(struct hybrid_offline *o)
{
	if (!o)
		return;
	stop_threads(o);
	if (o->engine)
		hybrid_engine_destroy(o->engine);
	pthread_cond_destroy(&o->back);
	pthread_cond_destroy(&o->work);
	pthread_mutex_destroy(&o->lock);
	tdestroy(o->kept, free_place);
	tdestroy(o->bad, free_place);
	free(o);
}

struct hybrid_engine *hybrid_offline_engine(struct hybrid_offline *o)
{
	return o->engine;
}

int hybrid_offline_load(struct hybrid_offline *o, const char **why)
{
	int r = hybrid_engine_load(o->engine, why);

	if (!r)
		tick(o);
	return r;
}

int hybrid_offline_stop(struct hybrid_offline *o)
{
	while (!hybrid_engine_stop(o->engine, &o->acts))
		step(o);
	return hybrid_engine_failed(o->engine) ? -EIO : 0;
}

/* ---- volumes --------------------------------------------------------------- */

int hybrid_offline_open(struct hybrid_offline *o, uint32_t id,
			const struct hybrid_device *origin, struct hybrid_volume **v,
			const char **why)
{
	if (origin->logical_sectors > o->geometry.granule_sectors) {
		*why = "has logical sectors larger than a granule";
		return -EINVAL;
	}
	return hybrid_volume_open(o->engine, id, origin->sectors, (void *)origin, v, why);
}

int hybrid_offline_close(struct hybrid_offline *o, struct hybrid_volume *v)
{
	while (!hybrid_volume_suspend(o->engine, v, &o->acts))
		step(o);
	return hybrid_volume_close(o->engine, v);
}

void hybrid_offline_drain(struct hybrid_offline *o, struct hybrid_volume *v, bool on)
{
	hybrid_engine_drain(o->engine, v, on, 0, &o->acts);
}

/* ---- users' I/O ------------------------------------------------------------- */

/* READ and WRITE within one block. */
static int one_io(struct hybrid_offline *o, struct hybrid_volume *v, enum hybrid_io_type type,
		  u64 sector, u32 count, void *data)
{
	struct user_io u = { .data = data };

	hybrid_io_init(&u.io, v, type, sector, count, 0);
	if (hybrid_engine_map(o->engine, &u.io, &o->acts) == HYBRID_MAP_REMAP)
		carry_user(o, &u.io.op);
	while (!u.done)
		step(o);
	return u.io.error;
}

static int by_blocks(struct hybrid_offline *o, struct hybrid_volume *v, enum hybrid_io_type type,
		     u64 sector, u32 count, void *data)
{
	u32 block = o->geometry.block_sectors, n;
	int r = 0;

	for (; count && !r; sector += n, count -= n, data += (size_t)n * 512) {
		n = min_t(u32, count, block - (u32)(sector & (block - 1)));
		r = one_io(o, v, type, sector, n, data);
	}
	return r;
}

int hybrid_offline_write(struct hybrid_offline *o, struct hybrid_volume *v, uint64_t sector,
			 const void *data, uint32_t count)
{
	return by_blocks(o, v, HYBRID_IO_WRITE, sector, count, (void *)data);
}

int hybrid_offline_read(struct hybrid_offline *o, struct hybrid_volume *v, uint64_t sector,
			void *data, uint32_t count)
{
	return by_blocks(o, v, HYBRID_IO_READ, sector, count, data);
}

int hybrid_offline_flush(struct hybrid_offline *o, struct hybrid_volume *v)
{
	return one_io(o, v, HYBRID_IO_FLUSH, 0, 0, NULL);
}

/* ---- reports --------------------------------------------------------------- */

uint32_t hybrid_offline_dirty(struct hybrid_offline *o, struct hybrid_volume *v, uint64_t *bytes)
{
	struct hybrid_volume_status vs;
	struct hybrid_pool_status ps;

	if (v)
		hybrid_volume_status(o->engine, v, &vs);
	else
		hybrid_engine_status(o->engine, &ps);
	if (bytes)
		*bytes = 512 * (v ? vs.dirty_sectors : ps.dirty_sectors);
	return v ? vs.dirty : ps.dirty;
}

bool hybrid_offline_failed(struct hybrid_offline *o)
{
	return hybrid_engine_failed(o->engine);
}

int hybrid_offline_info(struct hybrid_offline *o, uint32_t id, struct hybrid_volume_info *info)
{
	return hybrid_volume_info(o->engine, id, info);
}
