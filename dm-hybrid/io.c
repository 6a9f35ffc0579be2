// SPDX-License-Identifier: GPL-2.0-only
/*
 * Carries out the engine's actions.
 *
 * Completions, wake-ups, small copies and direct flushes are carried out where they arise.  A
 * direct transfer is submitted in map() by the user whose bio needs it, if there is memory.
 * Other actions may sleep and go to a queue: to that of their volume if they need an origin or
 * submit a user's bio, otherwise to the pool's.  So an origin with a full request queue holds up
 * no other volume, and neither does a user whose cgroup the block layer makes wait.  Each queue
 * has one work item.  Operations that ended return through the pool's queue, except for direct
 * ones that have succeeded.
 *
 * The pool's work item and the tick have a workqueue of their own.  Volumes' items may
 * occupy theirs for as long as their origins take: all kworkers that it runs at once, or
 * its one rescuer if there is no memory for another kworker.
 *
 * Forward progress: a transfer needs one struct transfer, and bios one after
 * the other, each submitted before the next is allocated.  All come from
 * mempools of the queue, and return to them from interrupt context.  So an origin that
 * does not answer keeps nothing that the pool or another volume needs.  Only map()
 * takes several bios at once, and never waits for one.
 */
#include <linux/bio.h>
#include <linux/blk-cgroup.h>
#include <linux/completion.h>
#include <linux/highmem.h>
#include <linux/ktime.h>
#include <linux/pagemap.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/xxhash.h>

#include "calls.h"
#include "events.h"
#include "io.h"

#define TICK_MS		100
/* Of each queue. */
#define MIN_BIOS	2
#define MIN_TRANSFERS	4

/* Copies of so many sectors are made where they arise, in any context. */
#define MAX_DIRECT_COPY	32

/* One operation on its way through the devices. */
struct transfer {
	struct hybrid_queue *q;		/* whose mempools it uses */
	struct hybrid_op *op;
	struct completion *wait;	/* of a blocking caller, else NULL */
	ktime_t begun;
	atomic_t pending;		/* bios, plus one while they are submitted */
};

/* Data of a TRANSFER: pages, so that no large allocation is needed. */
struct buffer {
	u32 nr_pages;
	struct page *page[];
};

static struct kmem_cache *transfer_cache;
/* Data of writes of zeroes. */
static struct bio_vec zero_vec __ro_after_init;

int hybrid_io_module_init(void)
{
	zero_vec = (struct bio_vec){ .bv_page = ZERO_PAGE(0), .bv_len = PAGE_SIZE };
	transfer_cache = kmem_cache_create("dm_hybrid_transfer", sizeof(struct transfer), 0, 0,
					   NULL);
	return transfer_cache ? 0 : -ENOMEM;
}

void hybrid_io_module_exit(void)
{
	kmem_cache_destroy(transfer_cache);
}

/* ---- buffers -------------------------------------------------------------- */

static void free_buffer(struct hybrid_engine *e, void *buffer)
{
	struct buffer *b = buffer;

	if (!b)
		return;
	release_pages(b->page, b->nr_pages);
	kfree(b);
}

static void *alloc_buffer(struct hybrid_engine *e, u32 sectors, gfp_t gfp)
{
	u32 nr = DIV_ROUND_UP(sectors, PAGE_SECTORS);
	struct buffer *b = kzalloc(struct_size(b, page, nr), gfp);

	if (!b)
		return NULL;
	while (b->nr_pages < nr) {
		b->page[b->nr_pages] = alloc_page(gfp | __GFP_NOWARN);
		if (!b->page[b->nr_pages]) {
			free_buffer(e, b);
			return NULL;
		}
		b->nr_pages++;
	}
	return b;
}

static struct bio *io_bio(struct hybrid_io *io)
{
	struct hybrid_bio *b = container_of(io, struct hybrid_bio, io);

	return dm_bio_from_per_bio_data(b, sizeof(*b));
}

static void copy_segment(const struct bio_vec *bv, struct buffer *b, size_t at, bool to_bio)
{
	size_t done = 0, off, n;
	struct page *page;

	while (done < bv->bv_len) {
		page = b->page[(at + done) >> PAGE_SHIFT];
		off = offset_in_page(at + done);
		n = min_t(size_t, bv->bv_len - done, PAGE_SIZE - off);
		if (to_bio)
			memcpy_page(bv->bv_page, bv->bv_offset + done, page, off, n);
		else
			memcpy_page(page, off, bv->bv_page, bv->bv_offset + done, n);
		done += n;
	}
	if (to_bio)
		flush_dcache_page(bv->bv_page);
}

/* Copy all data of a bio, as it arrived, from or to a buffer at @sector. */
static void copy_bio(struct hybrid_io *io, struct buffer *b, u32 sector, bool to_bio)
{
	struct hybrid_bio *hb = container_of(io, struct hybrid_bio, io);
	struct bio *bio = io_bio(io);
	size_t at = (size_t)sector << SECTOR_SHIFT;
	struct bvec_iter iter;
	struct bio_vec bv;

	__bio_for_each_segment(bv, bio, iter, hb->iter) {
		copy_segment(&bv, b, at, to_bio);
		at += bv.bv_len;
	}
}

static u64 checksum(struct hybrid_engine *e, void *buffer, u32 offset, u32 count, u64 seed)
{
	size_t at = (size_t)offset << SECTOR_SHIFT, left = (size_t)count << SECTOR_SHIFT, n;
	struct hybrid_pool *pool = hybrid_engine_context(e);
	const struct buffer *b = buffer;
	struct xxh64_state state;
	u64 sum;
	void *p;

	xxh64_reset(&state, seed);
	for (; left; left -= n, at += n) {
		n = min_t(size_t, left, PAGE_SIZE - offset_in_page(at));
		p = kmap_local_page(b->page[at >> PAGE_SHIFT]);
		xxh64_update(&state, p + offset_in_page(at), n);
		kunmap_local(p);
	}
	sum = xxh64_digest(&state);
	trace_hybrid_number(pool, sum);
	return sum;
}

/* ---- devices -------------------------------------------------------------- */

static struct block_device *op_bdev(struct hybrid_pool *pool, struct hybrid_op *op, bool origin)
{
	struct volume_object *object;

	if (!origin)
		return pool->bdev;
	object = hybrid_volume_context(op->volume);
	return object->origin;
}

/* Does the operation need an origin? */
static bool wants_origin(const struct hybrid_op *op)
{
	u32 i;

	if (op->type != HYBRID_OP_TRANSFER)
		return op->origin;
	for (i = 0; i < op->nr_segments; i++)
		if (op->segments[i].origin)
			return true;
	return false;
}

/* The queue whose worker carries out the operation, and whose mempools it uses. */
static struct hybrid_queue *op_queue(struct hybrid_pool *pool, struct hybrid_op *op)
{
	struct volume_object *object;

	if (op->type == HYBRID_OP_WORK || op->type == HYBRID_OP_COPY_OUT)
		return &pool->queue;
	if (op->type != HYBRID_OP_USER && !wants_origin(op))
		return &pool->queue;
	object = hybrid_volume_context(op->volume);
	return &object->queue;
}

/* Has the worker tell the engine that the operation has ended. */
static void queue_end(struct hybrid_pool *pool, struct hybrid_op *op)
{
	struct hybrid_queue *q = &pool->queue;
	unsigned long flags;

	/* Once the lock is dropped, the pool may go. */
	spin_lock_irqsave(&q->lock, flags);
	list_add_tail(&op->link, &q->done);
	queue_work(q->wq, &q->work);
	spin_unlock_irqrestore(&q->lock, flags);
}

/* Tells the engine, in any context, that a direct operation has succeeded. */
static void end_direct(struct hybrid_pool *pool, struct hybrid_op *op)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	/* One of the actions may end a user's bio, which may be the pool's last: see end_miss(). */
	rcu_read_lock();
	hybrid_call_op_done(pool, op, &acts);
	hybrid_run(pool, &acts);
	hybrid_tick_kick(pool);
	/* hybrid_run_until() looks again after a pass of the worker. */
	if (wq_has_sleeper(&pool->wait))
		queue_work(pool->queue.wq, &pool->queue.work);
	rcu_read_unlock();
}

static void transfer_put(struct transfer *t)
{
	struct hybrid_pool *pool = t->q->pool;
	struct hybrid_op *op = t->op;

	if (!atomic_dec_and_test(&t->pending))
		return;
	if (op->type == HYBRID_OP_FLUSH)
		op->elapsed_ms = min_t(s64, ktime_ms_delta(ktime_get(), t->begun), U32_MAX);
	if (t->wait) {
		complete(t->wait);
		return;
	}
	mempool_free(t, &t->q->transfers);
	if (op->direct && !op->error_cache && !op->error_origin)
		end_direct(pool, op);
	else
		queue_end(pool, op);
}

/*
 * The error code for the engine.  -EAGAIN: the device refused the bio because it would have had
 * to wait, or because it supports neither REQ_NOWAIT nor polling; it is no error of the device.
 */
static int bio_error(const struct bio *bio, blk_status_t status)
{
	bool refused = status == BLK_STS_AGAIN || status == BLK_STS_NOTSUPP;

	if (refused && (bio->bi_opf & (REQ_NOWAIT | REQ_POLLED)))
		return -EAGAIN;
	return status == BLK_STS_AGAIN ? -EIO : blk_status_to_errno(status);
}

static void end_cache_bio(struct bio *bio)
{
	struct transfer *t = bio->bi_private;

	if (bio->bi_status)
		WRITE_ONCE(t->op->error_cache, bio_error(bio, bio->bi_status));
	bio_put(bio);
	transfer_put(t);
}

static void end_origin_bio(struct bio *bio)
{
	struct transfer *t = bio->bi_private;

	if (bio->bi_status)
		WRITE_ONCE(t->op->error_origin, bio_error(bio, bio->bi_status));
	bio_put(bio);
	transfer_put(t);
}

/* The page that holds byte @at of an operation's memory. */
static struct page *data_page(struct hybrid_op *op, size_t at, size_t *offset)
{
	if (op->type == HYBRID_OP_META) {
		void *p = op->mem + at;

		*offset = offset_in_page(p);
		return is_vmalloc_addr(p) ? vmalloc_to_page(p) : virt_to_page(p);
	}
	*offset = offset_in_page(at);
	return ((struct buffer *)op->buffer)->page[at >> PAGE_SHIFT];
}

/* Fill a bio from sector @from of the operation's memory; returns sectors added. */
static u32 fill_bio(struct bio *bio, struct hybrid_op *op, u32 from, u32 count)
{
	size_t at = (size_t)from << SECTOR_SHIFT, left = (size_t)count << SECTOR_SHIFT;
	size_t offset, n;
	struct page *page;

	while (left) {
		page = data_page(op, at, &offset);
		n = min_t(size_t, left, PAGE_SIZE - offset);
		if (bio_add_page(bio, page, n, offset) != n)
			break;
		at += n;
		left -= n;
	}
	return count - (left >> SECTOR_SHIFT);
}

/*
 * Submits @bio with priority and write hint of @user's bio, and its cgroup; @shared: others wait
 * for it, too, so the limits of that cgroup do not apply.  NULL: it serves all users.
 */
static void submit_for(struct bio *bio, struct hybrid_io *user, bool shared)
{
	struct bio *from = user ? io_bio(user) : NULL;

	if (from) {
		bio->bi_ioprio = from->bi_ioprio;
		hybrid_copy_write_hint(bio, from);
	}
	if (from && !shared) {
		/* dm sets the cgroup: that of the bio that dm has cloned. */
		dm_submit_bio_remap(from, bio);
		return;
	}
	bio_associate_blkg_from_css(bio, blkcg_root_css);
	submit_bio(bio);
}

/* A bio of a transfer with up to @count sectors of its data, from @from on.  NULL: no memory. */
static struct bio *data_bio(struct transfer *t, bool origin, blk_opf_t opf, u64 sector, u32 from,
			    u32 count, gfp_t gfp)
{
	struct block_device *bdev = op_bdev(t->q->pool, t->op, origin);
	struct bio *bio;

	bio = bio_alloc_bioset(bdev, bio_max_segs(DIV_ROUND_UP(count, PAGE_SECTORS) + 1), opf, gfp,
			       &t->q->bios);
	if (!bio)
		return NULL;
	bio->bi_iter.bi_sector = sector;
	bio->bi_private = t;
	bio->bi_end_io = origin ? end_origin_bio : end_cache_bio;
	fill_bio(bio, t->op, from, count);
	atomic_inc(&t->pending);
	return bio;
}

static void submit_data(struct transfer *t, bool origin, blk_opf_t opf, u64 sector, u32 from,
			u32 count)
{
	/* Limits of one user's cgroup must not hold up the pool's worker. */
	struct hybrid_io *user = t->q == &t->q->pool->queue ? NULL : t->op->user;
	struct bio *bio;
	u32 n;

	/* A flush has no data, but goes out once. */
	do {
		bio = data_bio(t, origin, opf, sector, from, count, GFP_NOIO);
		n = bio_sectors(bio);
		sector += n;
		from += n;
		count -= n;
		submit_for(bio, user, false);
	} while (count);
}

/* Submits one bio of any size: the block layer splits it as the device needs. */
static void submit_discard(struct transfer *t, const struct hybrid_segment *seg)
{
	struct block_device *bdev = op_bdev(t->q->pool, t->op, false);
	struct bio *bio;

	if (!bdev_max_discard_sectors(bdev)) {
		WRITE_ONCE(t->op->error_cache, -EOPNOTSUPP);
		return;
	}
	bio = bio_alloc_bioset(bdev, 0, REQ_OP_DISCARD, GFP_NOIO, &t->q->bios);
	bio->bi_iter.bi_sector = seg->sector;
	bio->bi_iter.bi_size = seg->count << SECTOR_SHIFT;
	bio->bi_private = t;
	bio->bi_end_io = end_cache_bio;
	atomic_inc(&t->pending);
	submit_bio(bio);
}

static void flush_vmap(struct hybrid_op *op, const struct hybrid_segment *seg, bool after)
{
	void *p = op->mem + ((size_t)seg->offset << SECTOR_SHIFT);
	int size = seg->count << SECTOR_SHIFT;

	if (!is_vmalloc_addr(p))
		return;
	if (!after)
		flush_kernel_vmap_range(p, size);
	else if (!op->write)
		invalidate_kernel_vmap_range(p, size);
}

/*
 * Users wait for metadata writes and flushes.  Writeback throttling exempts writes that carry
 * both flags (wbt_should_throttle() in block/blk-wbt.c).
 */
#define AWAITED		(REQ_SYNC | REQ_IDLE)
/* Request flags that a copy inherits from the user's bio. */
#define INHERITED	(REQ_SYNC | REQ_IDLE | REQ_META | REQ_PRIO)

/* FUA of a transfer is for the origin, if it has a part there: see write_started(). */
static bool wants_fua(const struct hybrid_op *op, bool origin)
{
	return op->fua && (origin || op->type == HYBRID_OP_META || !wants_origin(op));
}

static blk_opf_t op_opf(const struct hybrid_op *op, bool origin)
{
	blk_opf_t opf = op->write ? REQ_OP_WRITE : REQ_OP_READ;

	if (op->type == HYBRID_OP_META)
		opf |= REQ_META | AWAITED;
	else if (op->copied)
		opf |= AWAITED;
	else if (op->user)
		opf |= io_bio(op->user)->bi_opf & INHERITED;
	if (wants_fua(op, origin))
		opf |= REQ_FUA;
	return opf;
}

/* Copies the data of a user's write to the buffer from which it is written. */
static void copy_in(struct hybrid_pool *pool, struct hybrid_op *op, struct hybrid_actions *acts)
{
	if (op->type != HYBRID_OP_TRANSFER || !op->io)
		return;
	copy_bio(op->io, op->buffer, op->buffer_offset, false);
	if (op->copied)
		hybrid_call_op_copied(pool, op, acts);
}

/* For operations that move data: TRANSFER and META. */
static void submit_segments(struct transfer *t)
{
	struct hybrid_op *op = t->op;
	u32 i;

	for (i = 0; i < op->nr_segments; i++) {
		const struct hybrid_segment *seg = &op->segments[i];
		bool origin = op->type == HYBRID_OP_META ? op->origin : seg->origin;

		if (op->type == HYBRID_OP_META)
			flush_vmap(op, seg, false);
		submit_data(t, origin, op_opf(op, origin), seg->sector, seg->offset, seg->count);
	}
}

static void begin_transfer(struct transfer *t, struct hybrid_queue *q, struct hybrid_op *op)
{
	t->q = q;
	t->op = op;
	t->wait = NULL;
	t->begun = ktime_get();
	op->error_cache = 0;
	op->error_origin = 0;
	atomic_set(&t->pending, 1);
}

/* Submits the bios of a TRANSFER, META, FLUSH or DISCARD.  Drops the first reference. */
static void submit_transfer(struct transfer *t)
{
	struct hybrid_op *op = t->op;

	if (op->type == HYBRID_OP_FLUSH)
		submit_data(t, op->origin, REQ_OP_WRITE | REQ_PREFLUSH | AWAITED, 0, 0, 0);
	else if (op->type == HYBRID_OP_DISCARD)
		submit_discard(t, op->segments);
	else
		submit_segments(t);
	transfer_put(t);
}

static void start_transfer(struct hybrid_pool *pool, struct hybrid_op *op,
			   struct hybrid_actions *acts)
{
	struct hybrid_queue *q = op_queue(pool, op);
	struct transfer *t = mempool_alloc(&q->transfers, GFP_NOIO);

	begin_transfer(t, q, op);
	copy_in(pool, op, acts);
	submit_transfer(t);
}

/*
 * Submits a direct transfer in map(), as far as that takes no sleep: with all bios at once, of one
 * segment each.  Returns false, and has done nothing, if there is no memory.  A user whom the block
 * layer makes wait keeps only memory of the volume.
 */
static bool start_direct(struct hybrid_pool *pool, struct hybrid_op *op,
			 struct hybrid_actions *acts)
{
	const gfp_t gfp = GFP_NOWAIT | __GFP_NOWARN;
	struct volume_object *object = hybrid_volume_context(op->volume);
	struct bio_list bios = BIO_EMPTY_LIST;
	struct hybrid_queue *q = &object->queue;
	struct transfer *t = mempool_alloc(&q->transfers, gfp);
	const struct hybrid_segment *seg;
	struct bio *bio;
	u32 i;

	if (!t)
		return false;
	begin_transfer(t, q, op);
	for (i = 0; i < op->nr_segments; i++) {
		seg = &op->segments[i];
		bio = data_bio(t, seg->origin, op_opf(op, seg->origin), seg->sector, seg->offset,
			       seg->count, gfp);
		if (bio)
			bio_list_add(&bios, bio);
		if (!bio || bio_sectors(bio) < seg->count)
			goto busy;
	}
	copy_in(pool, op, acts);
	while ((bio = bio_list_pop(&bios)))
		submit_for(bio, op->user, op->copied);
	transfer_put(t);
	return true;

busy:
	while ((bio = bio_list_pop(&bios)))
		bio_put(bio);
	mempool_free(t, &q->transfers);
	return false;
}

static void end_transfer(struct hybrid_op *op)
{
	u32 i;

	if (op->type == HYBRID_OP_META)
		for (i = 0; i < op->nr_segments; i++)
			flush_vmap(op, &op->segments[i], true);
}

static int do_op(struct hybrid_engine *e, struct hybrid_op *op)
{
	DECLARE_COMPLETION_ONSTACK(wait);
	struct hybrid_pool *pool = hybrid_engine_context(e);
	struct transfer t;

	begin_transfer(&t, op_queue(pool, op), op);
	t.wait = &wait;
	hybrid_trace_op(pool, op);
	submit_transfer(&t);
	wait_for_completion_io(&wait);
	end_transfer(op);
	trace_hybrid_op_done(pool, op);
	return op->error_cache ? op->error_cache : op->error_origin;
}

/* ---- the user's bios ------------------------------------------------------ */

/*
 * Devices fail a read ahead where another read would wait or be repeated: device-mapper while it is
 * suspended, md without memory, NVMe after a transient error.  From the cache device such an error
 * would drop cached data, and count against a healthy device.
 */
static void remap_to_cache(struct hybrid_pool *pool, struct bio *bio, u64 sector)
{
	bio_set_dev(bio, pool->bdev);
	bio->bi_iter.bi_sector = sector;
	bio->bi_opf &= ~REQ_RAHEAD;
}

/* Points a bio at the device and sector that the engine chose. */
static void remap_bio(struct hybrid_pool *pool, struct hybrid_op *op, struct bio *bio)
{
	if (op->origin) {
		bio_set_dev(bio, op_bdev(pool, op, true));
		bio->bi_iter.bi_sector = op->sector;
	} else {
		remap_to_cache(pool, bio, op->sector);
	}
	bio->bi_opf &= ~REQ_FUA;
	if (op->fua)
		bio->bi_opf |= REQ_FUA;
	if (op->io->type == HYBRID_IO_DISCARD || op->io->type == HYBRID_IO_ZEROES)
		bio->bi_iter.bi_size = op->count << SECTOR_SHIFT;
}

/* Submits a bio that was kept, and may have been to a device already. */
static void submit_user(struct hybrid_pool *pool, struct hybrid_op *op)
{
	struct hybrid_bio *b = container_of(op->io, struct hybrid_bio, io);
	struct bio *bio = io_bio(op->io);

	/* The request that the bio was part of may have linked it to others. */
	bio->bi_next = NULL;
	bio->bi_iter = b->iter;
	bio->bi_flags = b->flags;
	bio->bi_status = BLK_STS_OK;
	atomic_set(&bio->__bi_remaining, 1);
	remap_bio(pool, op, bio);
	dm_submit_bio_remap(bio, NULL);
}

/*
 * dm sends a bio with REQ_PREFLUSH and data in two parts, a flush and then the data, and
 * drops the error of the flush (dm_io_complete() in drivers/md/dm.c).  Any dm or md device above
 * the volume drops that error, too.  A filesystem would take its commit block for durable.  After a
 * flush has failed, each later one fails until the volume is opened again, so the writes
 * that rely on one fail, too.  Commit blocks are FUA writes.  XFS also sends log writes with
 * REQ_PREFLUSH alone, before it overwrites the tail of its log; writes to the log are
 * REQ_META and REQ_SYNC.
 */
static bool follows_failed_flush(const struct volume_object *object, const struct bio *bio)
{
	const blk_opf_t journal = REQ_META | REQ_SYNC;

	return unlikely(READ_ONCE(object->flush_failed)) && bio_op(bio) == REQ_OP_WRITE &&
	       !(bio->bi_opf & REQ_PREFLUSH) &&
	       ((bio->bi_opf & REQ_FUA) || (bio->bi_opf & journal) == journal);
}

static void complete_user(struct hybrid_op *op)
{
	struct hybrid_bio *b = container_of(op->io, struct hybrid_bio, io);
	struct bio *bio = io_bio(op->io);

	if (op->io->type == HYBRID_IO_FLUSH && op->io->error) {
		struct volume_object *object = hybrid_volume_context(op->io->volume);

		/* Before dm hears of the error, and sends the data. */
		WRITE_ONCE(object->flush_failed, true);
	}
	b->completing = true;
	bio->bi_status = errno_to_blk_status(op->io->error);
	bio_endio(bio);
}

/* ---- actions, where they arise ---------------------------------------------- */

static void enqueue(struct hybrid_queue *q, struct hybrid_op *op)
{
	unsigned long flags;

	spin_lock_irqsave(&q->lock, flags);
	list_add_tail(&op->link, &q->todo);
	queue_work(q->wq, &q->work);
	spin_unlock_irqrestore(&q->lock, flags);
}

static void end_direct_bio(struct bio *bio)
{
	struct direct_bio *d = container_of(bio, struct direct_bio, bio);
	struct hybrid_pool *pool = d->pool;
	struct hybrid_op *op = d->op;

	op->error_cache = bio->bi_status ? bio_error(bio, bio->bi_status) : 0;
	bio_uninit(bio);
	if (op->error_cache) {
		queue_end(pool, op);
		return;
	}
	end_direct(pool, op);
}

/*
 * Begins a flush, or a write of metadata, that a user waits for, in the user's context.  It serves
 * the whole pool: others wait for it, too.  So the limits of that user's cgroup do not apply to it.
 */
static struct bio *direct_bio(struct hybrid_pool *pool, struct hybrid_op *op, struct direct_bio *d,
			      blk_opf_t opf)
{
	d->pool = pool;
	d->op = op;
	bio_init(&d->bio, pool->bdev, &d->vec, 1, opf);
	bio_associate_blkg_from_css(&d->bio, blkcg_root_css);
	d->bio.bi_end_io = end_direct_bio;
	return &d->bio;
}

static void submit_direct_flush(struct hybrid_pool *pool, struct hybrid_op *op)
{
	submit_bio(direct_bio(pool, op, &pool->flush, REQ_OP_WRITE | REQ_PREFLUSH | AWAITED));
}

/* In map() alone; one metadata block. */
static void submit_direct_meta(struct hybrid_pool *pool, struct hybrid_op *op)
{
	struct bio *bio = direct_bio(pool, op, &pool->intent, op_opf(op, false));

	op->error_cache = 0;
	op->error_origin = 0;
	bio->bi_iter.bi_sector = op->segments->sector;
	flush_vmap(op, op->segments, false);
	fill_bio(bio, op, op->segments->offset, op->segments->count);
	submit_bio(bio);
}

/* Carries out an operation that takes neither sleep nor long; queues any other. */
static void dispatch(struct hybrid_pool *pool, struct hybrid_op *op)
{
	switch (op->type) {
	case HYBRID_OP_COMPLETE:
		complete_user(op);
		break;
	case HYBRID_OP_WAKE:
		op->waiter->done(op->waiter);
		break;
	case HYBRID_OP_FLUSH:
		if (op->direct) {
			submit_direct_flush(pool, op);
			break;
		}
		fallthrough;
	default:
		enqueue(op_queue(pool, op), op);
	}
}

/* The same, and copies to users, up to *@room sectors. */
static void dispatch_or_copy(struct hybrid_pool *pool, struct hybrid_op *op, u32 *room,
			     struct hybrid_actions *acts)
{
	if (op->type != HYBRID_OP_COPY_OUT || op->count > *room) {
		dispatch(pool, op);
		return;
	}
	*room -= op->count;
	copy_bio(op->io, op->buffer, op->buffer_offset, true);
	hybrid_call_op_done(pool, op, acts);
}

void hybrid_run(struct hybrid_pool *pool, struct hybrid_actions *acts)
{
	u32 room = MAX_DIRECT_COPY;
	struct hybrid_op *op;

	while ((op = hybrid_actions_pop(acts)))
		dispatch_or_copy(pool, op, &room, acts);
}

/*
 * The same in map(), which has begun @io.  Its user submits the direct transfer that serves it, and
 * waits for the devices, not for a worker.  @io may have ended: only its address is used.
 */
static void run_in_map(struct hybrid_pool *pool, const struct hybrid_io *io,
		       struct hybrid_actions *acts)
{
	u32 room = MAX_DIRECT_COPY;
	struct hybrid_op *op;

	while ((op = hybrid_actions_pop(acts)))
		if (op->type == HYBRID_OP_META && op->direct)
			submit_direct_meta(pool, op);
		else if (op->type != HYBRID_OP_TRANSFER || !op->direct || op->user != io ||
			 !start_direct(pool, op, acts))
			dispatch_or_copy(pool, op, &room, acts);
}

/* ---- map() and end_io() ---------------------------------------------------- */

/*
 * Write-zeroes of part of a granule become a write of the zero page.  A bio that begins or ends
 * within a granule is cut there; dm sends the rest of it after this part.  A bio cloned by dm
 * has no bio_vecs of its own, so they can be replaced.
 */
static noinline int zeroes_type(struct dm_target *ti, struct bio *bio)
{
	struct volume_table *vt = ti->private;
	u64 granule = vt->object->pool->granule_sectors;
	u64 from = dm_target_offset(ti, bio->bi_iter.bi_sector), end = from + bio_sectors(bio);
	u64 to = end == ti->len ? end : round_down(end, granule);
	int type = HYBRID_IO_ZEROES;

	if (!IS_ALIGNED(from, granule) || to <= from) {
		type = HYBRID_IO_WRITE;
		to = min3(end, round_down(from, granule) + granule, from + PAGE_SECTORS);
		bio->bi_opf = (bio->bi_opf & ~(REQ_OP_MASK | REQ_NOUNMAP)) | REQ_OP_WRITE;
		bio->bi_io_vec = &zero_vec;
		bio->bi_vcnt = 1;
		/* All other members become 0: the beginning of the bio_vec. */
		bio->bi_iter = (struct bvec_iter){ .bi_sector = bio->bi_iter.bi_sector,
						   .bi_size = bio->bi_iter.bi_size };
	}
	if (to < end)
		dm_accept_partial_bio(bio, to - from);
	return type;
}

static int bio_type(struct dm_target *ti, struct bio *bio)
{
	switch (bio_op(bio)) {
	case REQ_OP_READ:
		return HYBRID_IO_READ;
	case REQ_OP_WRITE:
		/* dm sends a flush that has data in two parts. */
		return bio->bi_opf & REQ_PREFLUSH ? HYBRID_IO_FLUSH : HYBRID_IO_WRITE;
	case REQ_OP_FLUSH:
		return HYBRID_IO_FLUSH;
	case REQ_OP_DISCARD:
		return HYBRID_IO_DISCARD;
	case REQ_OP_WRITE_ZEROES:
		return zeroes_type(ti, bio);
	default:
		return -EOPNOTSUPP;
	}
}

/* Filesystems mark reads of their metadata with one of these, most of them with both. */
#define METADATA	(REQ_META | REQ_PRIO)

static bool is_metadata(const struct bio *bio)
{
	return bio_op(bio) == REQ_OP_READ && (bio->bi_opf & METADATA);
}

/* HYBRID_IO_*; most bios have none of them. */
static u8 io_flags(const struct bio *bio)
{
	u8 flags = 0;

	if (likely(!(bio->bi_opf & (REQ_FUA | METADATA))))
		return 0;
	if (bio->bi_opf & REQ_FUA)
		flags |= HYBRID_IO_FUA;
	if (is_metadata(bio))
		flags |= HYBRID_IO_META;
	return flags;
}

/* Called after this CPU has changed state that the timer looks at. */
void hybrid_tick_kick(struct hybrid_pool *pool)
{
	/* Pairs with the barrier in tick_work(). */
	smp_mb();
	if (!test_bit(HYBRID_POOL_TICKING, &pool->flags) &&
	    test_bit(HYBRID_POOL_TICKS, &pool->flags) &&
	    !test_and_set_bit(HYBRID_POOL_TICKING, &pool->flags))
		queue_delayed_work(pool->queue.wq, &pool->tick, msecs_to_jiffies(TICK_MS));
}

/*
 * For a miss, or a failed hit: from here on the bio may wait, and nobody finds it by polling.
 * Its cookie, set by the device that it has been to, may name a queue that another device lacks.
 * It is cleared here, long before bi_bdev changes: bio_poll() reads the cookie, then bi_bdev.
 */
static void may_wait(struct bio *bio)
{
	bio_clear_polled(bio);
	bio->bi_opf &= ~REQ_NOWAIT;
	WRITE_ONCE(bio->bi_cookie, BLK_QC_T_NONE);
}

/*
 * Apart from hybrid_map_bio(), where its variables would cost a hit a frame.  Only a hit is
 * certain to wait for nothing: other bios that must not wait end here, unknown to the engine.
 */
static noinline int map_miss(struct hybrid_pool *pool, struct hybrid_bio *b, struct bio *bio)
{
	struct hybrid_actions acts;
	int r = DM_MAPIO_SUBMITTED;

	if (hybrid_bio_nowait(bio)) {
		hybrid_call_not_now(pool);
		b->completing = true;
		bio_wouldblock_error(bio);
		return r;
	}
	may_wait(bio);
	/* Set for misses alone, so that it costs hits nothing. */
	if (bio->bi_opf & REQ_RAHEAD)
		b->io.flags |= HYBRID_IO_AHEAD;
	hybrid_actions_init(&acts);
	if (hybrid_call_miss(pool, &b->io, &acts) == HYBRID_MAP_REMAP) {
		remap_bio(pool, &b->io.op, bio);
		r = DM_MAPIO_REMAPPED;
	}
	/* A bio that was not remapped may have ended, and be gone; the table keeps the pool. */
	run_in_map(pool, &b->io, &acts);
	hybrid_tick_kick(pool);
	return r;
}

int hybrid_map_bio(struct dm_target *ti, struct bio *bio)
{
	struct hybrid_bio *b = dm_per_bio_data(bio, sizeof(*b));
	struct volume_table *vt = ti->private;
	struct volume_object *object = vt->object;
	int type = bio_type(ti, bio);
	u64 sector = 0;

	if (unlikely(type < 0 || !object->handle) || follows_failed_flush(object, bio))
		return DM_MAPIO_KILL;
	if (type != HYBRID_IO_FLUSH)
		sector = dm_target_offset(ti, bio->bi_iter.bi_sector);
	b->iter = bio->bi_iter;
	b->flags = bio->bi_flags;
	b->completing = false;
	hybrid_io_init(&b->io, object->handle, type, sector, bio_sectors(bio),
		       io_flags(bio));
	if (!hybrid_call_hit(object, &b->io))
		return map_miss(object->pool, b, bio);
	/* No kick: dirty data keeps the timer running. */
	remap_to_cache(object->pool, bio, b->io.op.sector);
	return DM_MAPIO_REMAPPED;
}

static noinline int end_miss(struct hybrid_pool *pool, struct hybrid_io *io, blk_status_t *status)
{
	struct bio *bio = io_bio(io);
	struct hybrid_actions acts;
	int error = *status ? bio_error(bio, *status) : 0;
	bool ended;

	may_wait(bio);
	hybrid_actions_init(&acts);
	/*
	 * A bio that the engine keeps may be ended by others at once, and be the pool's last.
	 * dm destroys no table before a grace period has passed: dm_sync_table().
	 */
	rcu_read_lock();
	ended = hybrid_call_io_done(pool, io, error, &acts);
	if (ended)
		*status = errno_to_blk_status(io->error);
	hybrid_tick_kick(pool);
	rcu_read_unlock();
	/* Actions keep the pool until they are carried out. */
	hybrid_run(pool, &acts);
	return ended ? DM_ENDIO_DONE : DM_ENDIO_INCOMPLETE;
}

int hybrid_end_bio(struct dm_target *ti, struct bio *bio, blk_status_t *status)
{
	struct hybrid_bio *b = dm_per_bio_data(bio, sizeof(*b));
	struct volume_table *vt = ti->private;
	struct hybrid_pool *pool = vt->object->pool;

	if (b->completing || (!*status && hybrid_call_hit_done(pool, &b->io)))
		return DM_ENDIO_DONE;
	return end_miss(pool, &b->io, status);
}

/* ---- queues --------------------------------------------------------------- */

/* In process context, from the queue that the operation belongs to. */
static void carry_out(struct hybrid_pool *pool, struct hybrid_op *op, struct hybrid_actions *acts)
{
	switch (op->type) {
	case HYBRID_OP_USER:
		submit_user(pool, op);
		break;
	case HYBRID_OP_TRANSFER:
	case HYBRID_OP_META:
	case HYBRID_OP_FLUSH:
	case HYBRID_OP_DISCARD:
		start_transfer(pool, op, acts);
		break;
	case HYBRID_OP_COPY_OUT:
		copy_bio(op->io, op->buffer, op->buffer_offset, true);
		hybrid_call_op_done(pool, op, acts);
		break;
	case HYBRID_OP_WORK:
		hybrid_call_op_done(pool, op, acts);
		break;
	default:
		dispatch(pool, op);
	}
}

/* A WORK operation may ask for itself again for long: other operations get their turn. */
static bool gives_way(struct hybrid_pool *pool, const struct hybrid_op *op)
{
	const struct hybrid_queue *q = &pool->queue;

	return op->type == HYBRID_OP_WORK && (!list_empty(&q->todo) || !list_empty(&q->done));
}

/* The pool's worker need not queue to itself. */
static void run_in_worker(struct hybrid_pool *pool, struct hybrid_actions *acts)
{
	struct hybrid_op *op;

	while ((op = hybrid_actions_pop(acts))) {
		if (op->type == HYBRID_OP_COMPLETE || op->type == HYBRID_OP_WAKE ||
		    op_queue(pool, op) != &pool->queue || gives_way(pool, op))
			dispatch(pool, op);
		else
			carry_out(pool, op, acts);
		cond_resched();
	}
}

static void pool_work(struct work_struct *work)
{
	struct hybrid_queue *q = container_of(work, struct hybrid_queue, work);
	struct hybrid_pool *pool = q->pool;
	struct hybrid_actions acts;
	struct hybrid_op *op, *n;
	LIST_HEAD(done);

	hybrid_actions_init(&acts);
	spin_lock_irq(&q->lock);
	list_splice_init(&q->done, &done);
	list_splice_init(&q->todo, &acts.list);
	spin_unlock_irq(&q->lock);
	list_for_each_entry_safe(op, n, &done, link) {
		list_del_init(&op->link);
		end_transfer(op);
		hybrid_call_op_done(pool, op, &acts);
	}
	run_in_worker(pool, &acts);
	/* Perhaps nobody else notices that the pool failed. */
	hybrid_report_failure(pool);
	hybrid_tick_kick(pool);
	WRITE_ONCE(pool->passes, pool->passes + 1);
	if (wq_has_sleeper(&pool->wait))
		wake_up_all(&pool->wait);
}

/* A volume's queue has only operations to submit: ended ones go to the pool's queue. */
static void volume_work(struct work_struct *work)
{
	struct hybrid_queue *q = container_of(work, struct hybrid_queue, work);
	struct hybrid_pool *pool = q->pool;
	struct hybrid_actions acts;
	struct blk_plug plug;
	struct hybrid_op *op;

	hybrid_actions_init(&acts);
	spin_lock_irq(&q->lock);
	list_splice_init(&q->todo, &acts.list);
	spin_unlock_irq(&q->lock);
	blk_start_plug(&plug);
	while ((op = hybrid_actions_pop(&acts))) {
		carry_out(pool, op, &acts);
		cond_resched();
	}
	blk_finish_plug(&plug);
}

static int queue_init(struct hybrid_queue *q, struct hybrid_pool *pool,
		      struct workqueue_struct *wq, work_func_t fn)
{
	int r;

	r = bioset_init(&q->bios, MIN_BIOS, 0, BIOSET_NEED_BVECS);
	if (r)
		return r;
	r = mempool_init_slab_pool(&q->transfers, MIN_TRANSFERS, transfer_cache);
	if (r) {
		bioset_exit(&q->bios);
		return r;
	}
	q->pool = pool;
	q->wq = wq;
	spin_lock_init(&q->lock);
	INIT_LIST_HEAD(&q->todo);
	INIT_LIST_HEAD(&q->done);
	INIT_WORK(&q->work, fn);
	return 0;
}

int hybrid_queue_init(struct hybrid_queue *q, struct hybrid_pool *pool)
{
	return queue_init(q, pool, pool->volumes_wq, volume_work);
}

void hybrid_queue_exit(struct hybrid_queue *q)
{
	mempool_exit(&q->transfers);
	bioset_exit(&q->bios);
}

void hybrid_queue_flush(struct hybrid_queue *q)
{
	flush_work(&q->work);
}

void hybrid_run_until(struct hybrid_pool *pool,
		      bool (*step)(struct hybrid_pool *pool, void *what,
				   struct hybrid_actions *acts), void *what)
{
	struct hybrid_actions acts;
	unsigned long seen;
	bool ready;

	for (;;) {
		seen = READ_ONCE(pool->passes);
		hybrid_actions_init(&acts);
		ready = step(pool, what, &acts);
		hybrid_run(pool, &acts);
		if (ready)
			break;
		/* Some steps wait for time to pass. */
		wait_event_timeout(pool->wait, READ_ONCE(pool->passes) != seen,
				   msecs_to_jiffies(TICK_MS));
	}
}

/* ---- time ----------------------------------------------------------------- */

static bool do_tick(struct hybrid_pool *pool)
{
	struct hybrid_actions acts;
	bool again;

	hybrid_actions_init(&acts);
	again = hybrid_call_tick(pool, ktime_to_ms(ktime_get()), &acts);
	hybrid_run(pool, &acts);
	return again;
}

static void tick_work(struct work_struct *work)
{
	struct hybrid_pool *pool = container_of(to_delayed_work(work), struct hybrid_pool, tick);
	bool again = do_tick(pool);

	if (!again) {
		/*
		 * A change from here on starts the timer; the second look
		 * sees all earlier changes.
		 */
		clear_bit(HYBRID_POOL_TICKING, &pool->flags);
		/* Pairs with the barrier in hybrid_tick_kick(). */
		smp_mb__after_atomic();
		if (!do_tick(pool))
			return;
		if (test_and_set_bit(HYBRID_POOL_TICKING, &pool->flags))
			return;
	}
	if (test_bit(HYBRID_POOL_TICKS, &pool->flags))
		queue_delayed_work(pool->queue.wq, &pool->tick, msecs_to_jiffies(TICK_MS));
}

void hybrid_tick_start(struct hybrid_pool *pool)
{
	set_bit(HYBRID_POOL_TICKS, &pool->flags);
	hybrid_tick_kick(pool);
}

void hybrid_tick_stop(struct hybrid_pool *pool)
{
	clear_bit(HYBRID_POOL_TICKS, &pool->flags);
	cancel_delayed_work_sync(&pool->tick);
	clear_bit(HYBRID_POOL_TICKING, &pool->flags);
}

/* ---- the engine's other needs --------------------------------------------- */

struct sync_waiter {
	struct hybrid_waiter waiter;
	struct completion done;
};

static void sync_waiter_done(struct hybrid_waiter *w)
{
	complete(&container_of(w, struct sync_waiter, waiter)->done);
}

static int wait_checkpoint(struct hybrid_engine *e)
{
	struct hybrid_pool *pool = hybrid_engine_context(e);
	struct sync_waiter w = { .waiter.done = sync_waiter_done };
	struct hybrid_actions acts;

	init_completion(&w.done);
	hybrid_actions_init(&acts);
	hybrid_call_checkpoint(pool, &w.waiter, &acts);
	hybrid_run(pool, &acts);
	wait_for_completion_io(&w.done);
	trace_hybrid_op_done(pool, &w.waiter.op);
	return w.waiter.error;
}

/* Pairs with hybrid_call_hit() */
static void wait_hits(struct hybrid_engine *e)
{
	synchronize_rcu();
}

static u64 random_nonzero(struct hybrid_engine *e)
{
	u64 r;

	do {
		r = get_random_u64();
	} while (!r);
	trace_hybrid_number(hybrid_engine_context(e), r);
	return r;
}

const struct hybrid_engine_ops hybrid_io_ops = {
	.alloc_buffer = alloc_buffer,
	.free_buffer = free_buffer,
	.checksum = checksum,
	.do_op = do_op,
	.wait_checkpoint = wait_checkpoint,
	.wait_hits = wait_hits,
	.random = random_nonzero,
};

static int block_io(struct block_device *bdev, u64 sector, void *block, blk_opf_t opf)
{
	struct bio *bio = bio_alloc(bdev, 2, opf | REQ_META | AWAITED, GFP_KERNEL);
	size_t offset = offset_in_page(block);
	size_t n = min_t(size_t, HYBRID_META_BLOCK_SIZE, PAGE_SIZE - offset);
	int r;

	bio->bi_iter.bi_sector = sector;
	__bio_add_page(bio, virt_to_page(block), n, offset);
	if (n < HYBRID_META_BLOCK_SIZE)
		__bio_add_page(bio, virt_to_page(block + n), HYBRID_META_BLOCK_SIZE - n, 0);
	r = submit_bio_wait(bio);
	bio_put(bio);
	return r;
}

int hybrid_read_block(struct block_device *bdev, u64 sector, void *block)
{
	return block_io(bdev, sector, block, REQ_OP_READ);
}

/*
 * For FUA, the block layer may flush the device behind the engine's back.  If that flush lost
 * users' data, their own flushes would not report it (P1).  So a checkpoint flushes the device.
 */
int hybrid_write_block(struct hybrid_pool *pool, u64 sector, void *block)
{
	int r = block_io(pool->bdev, sector, block, REQ_OP_WRITE);
	struct hybrid_actions acts;

	if (!r)
		return wait_checkpoint(pool->engine);
	hybrid_actions_init(&acts);
	hybrid_call_fail(pool, &acts);
	hybrid_run(pool, &acts);
	return r;
}

/*
 * Unbound: for any free CPU.  Each workqueue has a rescuer, for one item at a time.
 * The name, with the pool's device number, fits into 24 bytes (WQ_NAME_LEN).
 */
static struct workqueue_struct *alloc_wq(const char *name, struct hybrid_pool *pool)
{
	return alloc_workqueue("%s/%s", WQ_MEM_RECLAIM | WQ_HIGHPRI | WQ_UNBOUND, 0, name,
			       dm_device_name(pool->md));
}

int hybrid_pool_io_init(struct hybrid_pool *pool)
{
	struct workqueue_struct *wq = alloc_wq("dm-hybrid", pool);
	int r = -ENOMEM;

	if (!wq)
		return r;
	pool->volumes_wq = alloc_wq("dm-hybrid-vol", pool);
	if (!pool->volumes_wq)
		goto bad_volumes_wq;
	r = queue_init(&pool->queue, pool, wq, pool_work);
	if (r)
		goto bad_queue;
	INIT_DELAYED_WORK(&pool->tick, tick_work);
	init_waitqueue_head(&pool->wait);
	return 0;

bad_queue:
	destroy_workqueue(pool->volumes_wq);
bad_volumes_wq:
	destroy_workqueue(wq);
	return r;
}

void hybrid_pool_io_exit(struct hybrid_pool *pool)
{
	hybrid_tick_stop(pool);
	/* Before the pool's, in which operations of volumes end. */
	destroy_workqueue(pool->volumes_wq);
	destroy_workqueue(pool->queue.wq);
	hybrid_queue_exit(&pool->queue);
}
