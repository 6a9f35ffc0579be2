// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An executor over block devices and image files.
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

#include "executor.h"
#include "offline.h"

#define NR_THREADS	16
#define TICK_MS		100
#define PIECE_SECTORS	8	/* in which bad parts of a range are looked for */

/* A node of one of the two trees, ordered by device and sector; none overlaps another one. */
struct place {
	struct hybrid_bad_piece at;
	void *block;		/* KEEP: the metadata block written here */
};

struct hybrid_offline {
	struct hybrid_executor x;
	const struct hybrid_device *cache;
	struct hybrid_geometry geometry;
	unsigned int flags;
	bool (*interrupted)(void);
	u64 leapt;			/* ms */
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

/* ---- places ---------------------------------------------------------------- */

/* Equal: they overlap. */
static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->at.dev != y->at.dev)
		return x->at.dev < y->at.dev ? -1 : 1;
	if (x->at.sector + x->at.count <= y->at.sector)
		return -1;
	return x->at.sector >= y->at.sector + y->at.count;
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
	p->at.count = PIECE_SECTORS;
	found = tsearch(p, tree, compare_places);
	*made = found && *found == p;
	if (!*made)
		free(p);
	return found ? *found : NULL;
}

static struct place *find_place(void * const *tree, const struct hybrid_device *dev, u64 sector)
{
	struct place key = { .at = { .dev = dev, .sector = sector, .count = 1 } }, **found;

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

/* One place of two neighbours, if they are alike. */
static struct place *merge(void **tree, struct place *p, struct place *next)
{
	if (!p || !next || p->at.error != next->at.error || p->at.write != next->at.write ||
	    p->at.count > U32_MAX - next->at.count)
		return next;
	tdelete(next, tree, compare_places);
	p->at.count += next->at.count;
	free_place(next);
	return p;
}

static void note_bad(struct hybrid_offline *o, const struct hybrid_device *dev, u64 sector,
		     int error, bool write)
{
	u64 start = piece_start(sector);
	struct place *p;
	bool made;

	pthread_mutex_lock(&o->lock);
	o->nr_failures++;
	p = place_at(&o->bad, dev, start, &made);
	if (p && made) {
		p->at.error = error;
		p->at.write = write;
		o->nr_bad++;
		if (start)
			p = merge(&o->bad, find_place(&o->bad, dev, start - 1), p);
		merge(&o->bad, p, find_place(&o->bad, dev, start + PIECE_SECTORS));
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

static const struct hybrid_device *op_device(struct hybrid_offline *o,
					     const struct hybrid_op *op, bool origin)
{
	return origin ? hybrid_volume_context(op->volume) : o->cache;
}

static int move(const struct hybrid_device *dev, bool write, u64 sector, void *data, u32 count)
{
	return write ? hybrid_device_write(dev, sector, data, (size_t)count * 512) :
	       hybrid_device_read(dev, sector, data, (size_t)count * 512);
}

static bool is_interrupted(const struct hybrid_offline *o)
{
	return o->interrupted && o->interrupted();
}

/* Finds the bad pieces of a range that failed, for the report. */
static void find_bad(struct hybrid_offline *o, const struct hybrid_device *dev, bool write,
		     u64 sector, void *data, u32 count)
{
	u32 n;
	int r;

	for (; count && !is_interrupted(o); sector += n, data += (size_t)n * 512, count -= n) {
		n = min_t(u32, count, PIECE_SECTORS);
		r = move(dev, write, sector, data, n);
		if (r)
			note_bad(o, dev, sector, r, write);
	}
}

static int move_data(struct hybrid_offline *o, const struct hybrid_device *dev, bool write,
		     u64 sector, void *data, u32 count)
{
	int r = move(dev, write, sector, data, count);

	if (r)
		find_bad(o, dev, write, sector, data, count);
	return r;
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
static int move_meta(struct hybrid_offline *o, const struct hybrid_device *dev, bool write,
		     u64 sector, void *mem, u32 count)
{
	size_t len = (size_t)count * 512;
	void *buf;
	int r;

	if (write && o->flags & HYBRID_OFFLINE_KEEP)
		return keep(o, dev, sector, mem, count);
	buf = hybrid_buffer(len);
	if (!buf)
		return -ENOMEM;
	if (write)
		memcpy(buf, mem, len);
	r = move(dev, write, sector, buf, count);
	if (!r && !write) {
		memcpy(mem, buf, len);
		put_kept(o, dev, sector, mem, count);
	}
	free(buf);
	return r;
}

/* ---- the executor ---------------------------------------------------------- */

static struct hybrid_offline *offline_of(struct hybrid_executor *x)
{
	return container_of(x, struct hybrid_offline, x);
}

static int transfer(struct hybrid_executor *x, const struct hybrid_op *op, bool origin, u64 sector,
		    u32 count, void *data)
{
	struct hybrid_offline *o = offline_of(x);
	const struct hybrid_device *dev = op_device(o, op, origin);

	if (op->type == HYBRID_OP_META)
		return move_meta(o, dev, op->write, sector, data, count);
	if (op->type == HYBRID_OP_TRANSFER)
		return move_data(o, dev, op->write, sector, data, count);
	if (op->type == HYBRID_OP_USER &&
	    (op->io->type == HYBRID_IO_READ || op->io->type == HYBRID_IO_WRITE))
		return move(dev, op->write, sector, data, count);
	return -EOPNOTSUPP;
}

/* Nothing at all is written to a cache device whose metadata is only in memory. */
static int flush(struct hybrid_executor *x, struct hybrid_op *op, bool origin)
{
	struct hybrid_offline *o = offline_of(x);

	if (o->flags & HYBRID_OFFLINE_KEEP && !origin)
		return 0;
	return hybrid_device_flush(op_device(o, op, origin));
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
		hybrid_execute_io(&o->x, op);
		pthread_mutex_lock(&o->lock);
		list_add_tail(&op->link, &o->ended);
		pthread_cond_signal(&o->back);
	}
	pthread_mutex_unlock(&o->lock);
	return NULL;
}

static void start_transfer(struct hybrid_offline *o, struct hybrid_op *op)
{
	pthread_mutex_lock(&o->lock);
	o->under_way++;
	list_add_tail(&op->link, &o->todo);
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

static u64 now(const struct hybrid_offline *o)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (u64)t.tv_sec * 1000 + (u64)t.tv_nsec / 1000000 + o->leapt;
}

static void tick(struct hybrid_offline *o)
{
	o->x.now = now(o);
	hybrid_engine_tick(o->x.engine, o->x.now, &o->x.acts);
}

/* Something ends, or, with nothing under way, time passes. */
static void step(struct hybrid_offline *o)
{
	struct hybrid_op *op = hybrid_actions_pop(&o->x.acts);

	if (op && op->type == HYBRID_OP_TRANSFER && o->nr_threads) {
		start_transfer(o, op);
	} else if (op) {
		hybrid_execute(&o->x, op);
	} else {
		op = ended_transfer(o);
		if (op)
			hybrid_engine_op_done(o->x.engine, op, &o->x.acts);
	}
	if (!op) {
		o->leapt += TICK_MS;
		o->leaps++;
	}
	if (!op || now(o) - o->x.now >= TICK_MS)
		tick(o);
}

static bool wait_for(struct hybrid_executor *x, const bool *ended)
{
	while (!*ended)
		step(offline_of(x));
	return true;
}

static const struct hybrid_executor_ops executor_ops = {
	.transfer = transfer,
	.flush = flush,
	.wait = wait_for,
};

void hybrid_offline_interruptible(struct hybrid_offline *o, bool (*interrupted)(void))
{
	o->interrupted = interrupted;
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
	.checksum = hybrid_execute_checksum,
	.do_op = hybrid_execute_now,
	.wait_checkpoint = hybrid_execute_checkpoint,
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
	hybrid_executor_init(&o->x, &executor_ops);
	o->x.block_sectors = sb->geometry.block_sectors;
	INIT_LIST_HEAD(&o->todo);
	INIT_LIST_HEAD(&o->ended);
	pthread_mutex_init(&o->lock, NULL);
	pthread_cond_init(&o->work, NULL);
	pthread_cond_init(&o->back, NULL);
	o->x.engine = hybrid_engine_create(sb, &offline_ops, &o->x, policy_of(sb), &config,
					   &error);
	if (!o->x.engine) {
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
	if (o->x.engine)
		hybrid_engine_destroy(o->x.engine);
	pthread_cond_destroy(&o->back);
	pthread_cond_destroy(&o->work);
	pthread_mutex_destroy(&o->lock);
	tdestroy(o->kept, free_place);
	tdestroy(o->bad, free_place);
	free(o);
}

struct hybrid_engine *hybrid_offline_engine(struct hybrid_offline *o)
{
	return o->x.engine;
}

int hybrid_offline_load(struct hybrid_offline *o, const char **why)
{
	int r = hybrid_engine_load(o->x.engine, why);

	if (!r)
		tick(o);
	return r;
}

int hybrid_offline_stop(struct hybrid_offline *o)
{
	while (!hybrid_engine_stop(o->x.engine, &o->x.acts))
		step(o);
	return hybrid_engine_failed(o->x.engine) ? -EIO : 0;
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
	return hybrid_volume_open(o->x.engine, id, origin->sectors, (void *)origin, v, why);
}

int hybrid_offline_close(struct hybrid_offline *o, struct hybrid_volume *v)
{
	while (!hybrid_volume_suspend(o->x.engine, v, &o->x.acts))
		step(o);
	return hybrid_volume_close(o->x.engine, v);
}

void hybrid_offline_drain(struct hybrid_offline *o, struct hybrid_volume *v, bool on)
{
	hybrid_engine_drain(o->x.engine, v, on, 0, &o->x.acts);
}

/* ---- users' I/O ------------------------------------------------------------- */

int hybrid_offline_write(struct hybrid_offline *o, struct hybrid_volume *v, uint64_t sector,
			 const void *data, uint32_t count)
{
	return hybrid_request_blocks(&o->x, v, HYBRID_IO_WRITE, sector, count, (void *)data, 0);
}

int hybrid_offline_read(struct hybrid_offline *o, struct hybrid_volume *v, uint64_t sector,
			void *data, uint32_t count)
{
	return hybrid_request_blocks(&o->x, v, HYBRID_IO_READ, sector, count, data, 0);
}

int hybrid_offline_flush(struct hybrid_offline *o, struct hybrid_volume *v)
{
	return hybrid_request_run(&o->x, v, HYBRID_IO_FLUSH, 0, 0, NULL, 0);
}

/* ---- reports --------------------------------------------------------------- */

uint32_t hybrid_offline_dirty(struct hybrid_offline *o, struct hybrid_volume *v, uint64_t *bytes)
{
	struct hybrid_volume_status vs;
	struct hybrid_pool_status ps;

	if (v)
		hybrid_volume_status(o->x.engine, v, &vs);
	else
		hybrid_engine_status(o->x.engine, &ps);
	if (bytes)
		*bytes = 512 * (v ? vs.dirty_sectors : ps.dirty_sectors);
	return v ? vs.dirty : ps.dirty;
}

bool hybrid_offline_failed(struct hybrid_offline *o)
{
	return hybrid_engine_failed(o->x.engine);
}

int hybrid_offline_info(struct hybrid_offline *o, uint32_t id, struct hybrid_volume_info *info)
{
	return hybrid_volume_info(o->x.engine, id, info);
}
