// SPDX-License-Identifier: GPL-2.0-only
/*
 * volatile <dev> <start> [<#args> [destage_pct <n>] [seed <n>] [torn] [lying]]
 *
 * A disk with a volatile write cache that exists only in this machine's RAM.
 * A write is acknowledged when it is in the cache. A flush writes to the
 * backing device all writes that had completed when it was submitted; FUA writes
 * through. Killing the machine is a power cut: the backing device holds all
 * flushed data, and the rest as far as it happened to be destaged.
 *
 * Features:
 *   - destage_pct <n>: this share of written pages reaches the backing device
 *     some milliseconds later without a flush
 *   - torn: that share is drawn for each sector instead of each page
 *   - seed <n>: of the generator that draws
 *   - lying: flushes and FUA do nothing: a disk outside the contract
 *
 * Messages:
 *   - fail read|write|flush|all [on|off|once]: answer with EIO
 *   - bad <sector> <count>: reads and writes of these sectors, and of no others,
 *     are answered with EIO; a count of 0 ends that
 *   - die, revive: the device is gone (EIO for everything) and back; its cached
 *     data survives
 *   - lose: power cut of this device alone: forget the cache
 *   - hang read|write|flush|discard|all on|off: requests wait until it is off
 *   - throttle on|off: a task that submits a write that writeback throttling would
 *     not let pass sleeps until it is off
 *   - busy on|off: requests that must not wait (REQ_NOWAIT) are answered with
 *     EAGAIN until it is off
 *   - log on|off|clear: see oplog.c
 *
 * Status: dirty <pages> r <reads> w <writes> f <flushes> failed <errors>
 *
 * The backing device's own flush is never called: nothing below this target is
 * meant to be volatile, and it would cost the host an fsync.
 */
#include <linux/blkdev.h>
#include <linux/module.h>
#include <linux/prandom.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include "testdisk.h"

#define DM_MSG_PREFIX "volatile"
#define MAX_DESTAGE_DELAY_MS	20
/* Zeroes are cached like data, so one request must not fill the RAM. */
#define MAX_ZEROES_SECTORS	2048
#define BATCH			64

enum kind { KIND_READ, KIND_WRITE, KIND_FLUSH, NR_FAIL, KIND_DISCARD = NR_FAIL, NR_HANG };
enum fail_mode { FAIL_OFF, FAIL_ON, FAIL_ONCE };

/* A cached page; it exists as long as a sector of it is dirty or being written. */
struct vpage {
	pgoff_t index;
	u8 dirty;		/* sectors newer than the backing device */
	u8 writing;		/* sectors on their way there */
	u8 destage;		/* dirty sectors that the destager will write */
	u8 data[PAGE_SIZE];
};

/* One write to the backing device: sectors of one page, from a copy. */
struct writeout {
	struct vdisk *v;
	struct vpage *page;
	struct page *copy;
	struct bio *bio;
	u8 mask;
	blk_status_t status;
};

struct vdisk {
	struct td_dev td;
	u64 destage_pct, seed;
	bool torn, lying;

	struct mutex lock;	/* protects the fields below; never held over I/O */
	struct xarray pages;	/* of struct vpage */
	struct rnd_state rnd;
	enum fail_mode fail[NR_FAIL];
	u64 bad_from, bad_to;	/* sectors */
	bool hang[NR_HANG];
	struct bio_list hung;
	bool dead;
	bool busy;
	bool throttle;		/* READ_ONCE without the lock */
	wait_queue_head_t throttled;
	u64 reads, writes, flushes, failed;

	/*
	 * Ordered, so that writes to the backing device never overtake each
	 * other; the batch belongs to the one work item that runs.
	 */
	struct workqueue_struct *wq;
	struct delayed_work destager;
	struct writeout batch[BATCH];
	atomic_t in_flight;
	struct completion batch_done;
};

struct vio {
	struct td_io io;	/* first, see testdisk.h */
	struct work_struct work;
	struct vdisk *v;
	struct bvec_iter iter;	/* as the bio came */
	u8 *snapshot;		/* for a partly cached read: cached data when it came ... */
	unsigned long *cached;	/* ... and the sectors of it that were cached */
};

static u8 page_mask(sector_t sector, sector_t end, pgoff_t index)
{
	sector_t first = (sector_t)index << PAGE_SECTORS_SHIFT;
	unsigned int from = sector > first ? sector - first : 0;
	unsigned int to = min_t(sector_t, end - first, PAGE_SECTORS);

	return GENMASK(to - 1, from);
}

static struct vpage *get_page_at(struct vdisk *v, pgoff_t index)
{
	struct vpage *p = xa_load(&v->pages, index);

	if (p)
		return p;
	p = kzalloc(sizeof(*p), GFP_NOIO);
	if (!p)
		return NULL;
	p->index = index;
	if (xa_err(xa_store(&v->pages, index, p, GFP_NOIO))) {
		kfree(p);
		return NULL;
	}
	return p;
}

static void drop_if_clean(struct vdisk *v, struct vpage *p)
{
	if (p->dirty || p->writing)
		return;
	xa_erase(&v->pages, p->index);
	kfree(p);
}

static u32 draw(struct vdisk *v, u32 below)
{
	return prandom_u32_state(&v->rnd) % below;
}

/* Some of the data just written will reach the backing device without a flush. */
static void maybe_destage(struct vdisk *v, struct vpage *p, u8 mask)
{
	u8 chosen = 0;
	unsigned int i;

	if (!v->destage_pct)
		return;
	if (!v->torn) {
		if (draw(v, 100) < v->destage_pct)
			chosen = mask;
	} else {
		for (i = 0; i < PAGE_SECTORS; i++)
			if (mask & BIT(i) && draw(v, 100) < v->destage_pct)
				chosen |= BIT(i);
	}
	p->destage |= chosen;
	if (chosen)
		queue_delayed_work(v->wq, &v->destager,
				   msecs_to_jiffies(draw(v, MAX_DESTAGE_DELAY_MS)) + 1);
}

/* Copies the data of a bio, or zeroes, into its cached pages, all of which exist. */
static void copy_bio(struct vdisk *v, struct bio *bio, struct bvec_iter start, sector_t sector)
{
	bool zero = bio_op(bio) == REQ_OP_WRITE_ZEROES;
	u64 pos = to_bytes(sector), end = pos + start.bi_size;
	struct bvec_iter iter;
	struct bio_vec bv;

	if (zero) {
		while (pos < end) {
			unsigned int n = min_t(u64, end - pos, PAGE_SIZE - offset_in_page(pos));

			memset(get_page_at(v, pos >> PAGE_SHIFT)->data + offset_in_page(pos), 0, n);
			pos += n;
		}
		return;
	}
	__bio_for_each_segment(bv, bio, iter, start) {
		u8 *from = bvec_kmap_local(&bv);
		unsigned int done = 0;

		while (done < bv.bv_len) {
			unsigned int n = min_t(unsigned int, bv.bv_len - done,
					       PAGE_SIZE - offset_in_page(pos));

			memcpy(get_page_at(v, pos >> PAGE_SHIFT)->data + offset_in_page(pos),
			       from + done, n);
			done += n;
			pos += n;
		}
		kunmap_local(from);
	}
}

/* Puts a write, or zeroes, into the cache. */
static int cache_write(struct vdisk *v, struct bio *bio, sector_t sector)
{
	sector_t end = sector + bio_sectors(bio);
	pgoff_t index, first = sector >> PAGE_SECTORS_SHIFT;
	pgoff_t last = (end - 1) >> PAGE_SECTORS_SHIFT;
	struct vpage *p;

	/* All pages first, so that copying cannot fail half way. */
	for (index = first; index <= last; index++) {
		if (!get_page_at(v, index))
			goto no_memory;
	}
	copy_bio(v, bio, bio->bi_iter, sector);
	for (index = first; index <= last; index++) {
		u8 mask = page_mask(sector, end, index);

		p = get_page_at(v, index);
		p->dirty |= mask;
		p->destage &= ~mask;
		maybe_destage(v, p, mask);
	}
	return 0;

no_memory:
	xa_for_each_range(&v->pages, index, p, first, last)
		drop_if_clean(v, p);
	return -ENOMEM;
}

static void forget(struct vdisk *v, sector_t sector, sector_t end)
{
	struct vpage *p;
	unsigned long index;

	xa_for_each_range(&v->pages, index, p, sector >> PAGE_SECTORS_SHIFT,
			  (end - 1) >> PAGE_SECTORS_SHIFT) {
		u8 mask = page_mask(sector, end, index);

		p->dirty &= ~mask;
		p->destage &= ~mask;
		drop_if_clean(v, p);
	}
}

/*
 * The backing device answers a read, and data that was cached when the read
 * came is laid over the answer. Looking again at the end would be wrong: a
 * sector may have been written out and dropped in between.
 */
static int snapshot_cache(struct vdisk *v, struct vio *vio, sector_t sector, unsigned int count)
{
	sector_t end = sector + count;
	unsigned long index;
	struct vpage *p;

	xa_for_each_range(&v->pages, index, p, sector >> PAGE_SECTORS_SHIFT,
			  (end - 1) >> PAGE_SECTORS_SHIFT) {
		u8 mask = page_mask(sector, end, index) & (p->dirty | p->writing);
		sector_t base = (sector_t)index << PAGE_SECTORS_SHIFT;
		unsigned int i;

		if (!mask)
			continue;
		if (!vio->snapshot) {
			vio->snapshot = kvmalloc(to_bytes(count), GFP_NOIO);
			vio->cached = bitmap_zalloc(count, GFP_NOIO);
			if (!vio->snapshot || !vio->cached)
				return -ENOMEM;
		}
		for (i = 0; i < PAGE_SECTORS; i++) {
			if (!(mask & BIT(i)))
				continue;
			memcpy(vio->snapshot + to_bytes(base + i - sector),
			       p->data + to_bytes(i), SECTOR_SIZE);
			__set_bit(base + i - sector, vio->cached);
		}
	}
	return 0;
}

static void overlay_snapshot(struct vio *vio, struct bio *bio)
{
	struct bvec_iter iter;
	struct bio_vec bv;
	unsigned int pos = 0;

	__bio_for_each_segment(bv, bio, iter, vio->iter) {
		u8 *to = bvec_kmap_local(&bv);
		unsigned int done = 0;

		while (done < bv.bv_len) {
			unsigned int n = min_t(unsigned int, bv.bv_len - done,
					       SECTOR_SIZE - pos % SECTOR_SIZE);

			if (test_bit(pos >> SECTOR_SHIFT, vio->cached))
				memcpy(to + done, vio->snapshot + pos, n);
			done += n;
			pos += n;
		}
		kunmap_local(to);
	}
}

static void free_snapshot(struct vio *vio)
{
	kvfree(vio->snapshot);
	bitmap_free(vio->cached);
	vio->snapshot = NULL;
	vio->cached = NULL;
}

static void writeout_end(struct bio *bio)
{
	struct writeout *wo = bio->bi_private;

	wo->status = bio->bi_status;
	if (atomic_dec_and_test(&wo->v->in_flight))
		complete(&wo->v->batch_done);
}

/* Starts the write of the first run of sectors in @mask. */
static int prepare_writeout(struct vdisk *v, struct writeout *wo, struct vpage *p, u8 mask)
{
	unsigned int first = __ffs(mask);
	unsigned int count = ffz(mask >> first);

	wo->copy = alloc_page(GFP_NOIO);
	if (!wo->copy)
		return -ENOMEM;
	wo->bio = bio_alloc(v->td.dev->bdev, 1, REQ_OP_WRITE | REQ_SYNC, GFP_NOIO);
	wo->v = v;
	wo->page = p;
	wo->mask = GENMASK(first + count - 1, first);
	memcpy(page_address(wo->copy), p->data, PAGE_SIZE);
	p->dirty &= ~wo->mask;
	p->destage &= ~wo->mask;
	p->writing |= wo->mask;

	wo->bio->bi_iter.bi_sector = v->td.start + ((sector_t)p->index << PAGE_SECTORS_SHIFT) +
				     first;
	wo->bio->bi_private = wo;
	wo->bio->bi_end_io = writeout_end;
	__bio_add_page(wo->bio, wo->copy, to_bytes(count), to_bytes(first));
	return 0;
}

/* Fills the batch with sectors to write, from *@sector on, and advances *@sector. */
static int fill_batch(struct vdisk *v, sector_t *sector, sector_t end, bool destage,
		      unsigned int *nr)
{
	unsigned long index;
	struct vpage *p;
	int r;

	*nr = 0;
	xa_for_each_range(&v->pages, index, p, *sector >> PAGE_SECTORS_SHIFT,
			  (end - 1) >> PAGE_SECTORS_SHIFT) {
		u8 mask;

		while ((mask = page_mask(*sector, end, index) &
			       (destage ? p->destage : p->dirty))) {
			if (*nr == BATCH)
				return 0;
			r = prepare_writeout(v, &v->batch[*nr], p, mask);
			if (r)
				return r;
			++*nr;
		}
		*sector = ((sector_t)index + 1) << PAGE_SECTORS_SHIFT;
		if (*sector >= end)
			return 0;
	}
	*sector = end;
	return 0;
}

static int finish_batch(struct vdisk *v, unsigned int nr)
{
	unsigned int i;
	int r = 0;

	for (i = 0; i < nr; i++) {
		struct writeout *wo = &v->batch[i];

		wo->page->writing &= ~wo->mask;
		if (wo->status) {
			wo->page->dirty |= wo->mask;
			r = -EIO;
		}
	}
	/* A page may be in the batch more than once: drop it at its last entry. */
	for (i = 0; i < nr; i++) {
		struct writeout *wo = &v->batch[i];

		if (i + 1 == nr || v->batch[i + 1].page != wo->page)
			drop_if_clean(v, wo->page);
		bio_put(wo->bio);
		__free_page(wo->copy);
	}
	return r;
}

/* Writes the dirty (or the drawn) sectors of a range to the backing device. */
static int write_out(struct vdisk *v, sector_t sector, sector_t end, bool destage)
{
	struct blk_plug plug;
	unsigned int i, nr;
	int r = 0, r2;

	while (!r && sector < end) {
		mutex_lock(&v->lock);
		r = fill_batch(v, &sector, end, destage, &nr);
		mutex_unlock(&v->lock);
		if (!nr)
			continue;
		reinit_completion(&v->batch_done);
		atomic_set(&v->in_flight, nr);
		blk_start_plug(&plug);
		for (i = 0; i < nr; i++)
			submit_bio(v->batch[i].bio);
		blk_finish_plug(&plug);
		wait_for_completion_io(&v->batch_done);
		mutex_lock(&v->lock);
		r2 = finish_batch(v, nr);
		mutex_unlock(&v->lock);
		if (!r)
			r = r2;
	}
	return r;
}

static void destage_work(struct work_struct *work)
{
	struct vdisk *v = container_of(to_delayed_work(work), struct vdisk, destager);

	if (!READ_ONCE(v->dead))
		write_out(v, 0, v->td.ti->len, true);
}

/* Flushes, FUA writes and discards: they must not be overtaken. */
static void ordered_work(struct work_struct *work)
{
	struct vio *vio = container_of(work, struct vio, work);
	struct bio *bio = dm_bio_from_per_bio_data(vio, sizeof(*vio));
	struct vdisk *v = vio->v;
	sector_t sector = vio->io.sector, end = sector + vio->io.count;
	int r;

	if (bio_op(bio) == REQ_OP_DISCARD) {
		mutex_lock(&v->lock);
		forget(v, sector, end);
		mutex_unlock(&v->lock);
		submit_bio_noacct(bio);
		return;
	}
	if (READ_ONCE(v->dead))
		r = -EIO;
	else if (vio->io.count)
		r = write_out(v, sector, end, false);
	else
		r = write_out(v, 0, v->td.ti->len, false);
	bio->bi_status = errno_to_blk_status(r);
	bio_endio(bio);
}

static enum kind kind_of(const struct bio *bio)
{
	if (bio->bi_opf & REQ_PREFLUSH)
		return KIND_FLUSH;
	switch (bio_op(bio)) {
	case REQ_OP_READ:
		return KIND_READ;
	case REQ_OP_DISCARD:
	case REQ_OP_WRITE_ZEROES:
		return KIND_DISCARD;
	default:
		return KIND_WRITE;
	}
}

static bool must_fail(struct vdisk *v, const struct vio *vio, struct bio *bio)
{
	enum kind kind = kind_of(bio);
	bool bad = kind != KIND_FLUSH && vio->io.sector < v->bad_to &&
		   vio->io.sector + vio->io.count > v->bad_from;

	if (kind == KIND_DISCARD)
		kind = KIND_WRITE;
	if (!v->dead && !bad && v->fail[kind] == FAIL_OFF)
		return false;
	if (v->fail[kind] == FAIL_ONCE)
		v->fail[kind] = FAIL_OFF;
	v->failed++;
	return true;
}

static int map_locked(struct vdisk *v, struct vio *vio, struct bio *bio)
{
	sector_t sector = vio->io.sector;
	unsigned int count = vio->io.count;
	int r;

	if (v->busy && (bio->bi_opf & REQ_NOWAIT))
		return -EAGAIN;
	if (v->hang[kind_of(bio)]) {
		bio_list_add(&v->hung, bio);
		return DM_MAPIO_SUBMITTED;
	}
	if (must_fail(v, vio, bio))
		return -EIO;
	if (bio->bi_opf & REQ_PREFLUSH) {
		v->flushes++;
		if (v->lying)
			goto done;
		goto ordered;
	}
	switch (bio_op(bio)) {
	case REQ_OP_READ:
		v->reads++;
		r = snapshot_cache(v, vio, sector, count);
		if (r)
			return r;
		if (vio->snapshot && bitmap_full(vio->cached, count))
			goto done;
		return DM_MAPIO_REMAPPED;
	case REQ_OP_WRITE:
	case REQ_OP_WRITE_ZEROES:
		v->writes++;
		r = cache_write(v, bio, sector);
		if (r)
			return r;
		if (bio->bi_opf & REQ_FUA && !v->lying)
			goto ordered;
		goto done;
	case REQ_OP_DISCARD:
		goto ordered;
	default:
		return -EOPNOTSUPP;
	}

ordered:
	queue_work(v->wq, &vio->work);
	return DM_MAPIO_SUBMITTED;
done:
	/* The caller ends the bio, without the lock. */
	return DM_MAPIO_KILL;
}

/* As wbt_should_throttle() in block/blk-wbt.c */
static bool must_wait(const struct bio *bio)
{
	const blk_opf_t passes = REQ_SYNC | REQ_IDLE;

	return bio_op(bio) == REQ_OP_WRITE && (bio->bi_opf & passes) != passes;
}

static int do_map(struct vdisk *v, struct vio *vio, struct bio *bio)
{
	int r;

	mutex_lock(&v->lock);
	r = map_locked(v, vio, bio);
	mutex_unlock(&v->lock);
	if (r == DM_MAPIO_REMAPPED || r == DM_MAPIO_SUBMITTED)
		return r;
	if (r < 0)
		bio->bi_status = errno_to_blk_status(r);
	bio_endio(bio);
	return DM_MAPIO_SUBMITTED;
}

static int v_map(struct dm_target *ti, struct bio *bio)
{
	struct vdisk *v = ti->private;
	struct vio *vio = dm_per_bio_data(bio, sizeof(*vio));

	td_log_start(&v->td, bio);
	if (must_wait(bio))
		wait_event(v->throttled, !READ_ONCE(v->throttle));
	bio_set_dev(bio, v->td.dev->bdev);
	if (bio_sectors(bio))
		bio->bi_iter.bi_sector = td_remap(&v->td, bio->bi_iter.bi_sector);
	vio->v = v;
	vio->iter = bio->bi_iter;
	vio->snapshot = NULL;
	vio->cached = NULL;
	INIT_WORK(&vio->work, ordered_work);
	return do_map(v, vio, bio);
}

/* Bios that hung go on, or hang again. */
static void go_on(struct vdisk *v)
{
	struct bio_list bios;
	struct bio *bio;

	mutex_lock(&v->lock);
	bios = v->hung;
	bio_list_init(&v->hung);
	mutex_unlock(&v->lock);
	while ((bio = bio_list_pop(&bios))) {
		if (do_map(v, dm_per_bio_data(bio, sizeof(struct vio)), bio) == DM_MAPIO_REMAPPED)
			submit_bio_noacct(bio);
	}
}

static int v_end_io(struct dm_target *ti, struct bio *bio, blk_status_t *error)
{
	struct vio *vio = dm_per_bio_data(bio, sizeof(*vio));

	if (vio->snapshot && !*error)
		overlay_snapshot(vio, bio);
	free_snapshot(vio);
	return td_end_io(ti, bio, error);
}

static int parse_features(struct dm_target *ti, struct vdisk *v, unsigned int argc, char **argv)
{
	unsigned int i, nr;
	u64 value;
	int r;

	if (!argc)
		return 0;
	r = td_parse_u64(ti, argv[0], 0, 6, &value);
	if (r)
		return r;
	nr = value;
	if (nr != argc - 1) {
		ti->error = "Wrong number of feature arguments";
		return -EINVAL;
	}
	for (i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "torn")) {
			v->torn = true;
		} else if (!strcmp(argv[i], "lying")) {
			v->lying = true;
		} else if (!strcmp(argv[i], "destage_pct") && i + 1 < argc) {
			r = td_parse_u64(ti, argv[++i], 0, 100, &v->destage_pct);
			if (r)
				return r;
		} else if (!strcmp(argv[i], "seed") && i + 1 < argc) {
			r = td_parse_u64(ti, argv[++i], 0, U64_MAX, &v->seed);
			if (r)
				return r;
		} else {
			ti->error = "Unknown feature argument";
			return -EINVAL;
		}
	}
	return 0;
}

static int v_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct vdisk *v;
	int r;

	if (argc < 2) {
		ti->error = "A device and a start sector are needed";
		return -EINVAL;
	}
	v = kvzalloc(sizeof(*v), GFP_KERNEL);
	if (!v) {
		ti->error = "Cannot allocate the disk";
		return -ENOMEM;
	}
	mutex_init(&v->lock);
	bio_list_init(&v->hung);
	xa_init(&v->pages);
	init_completion(&v->batch_done);
	init_waitqueue_head(&v->throttled);
	INIT_DELAYED_WORK(&v->destager, destage_work);
	r = parse_features(ti, v, argc - 2, argv + 2);
	if (r)
		goto free_disk;
	prandom_seed_state(&v->rnd, v->seed);
	r = td_dev_init(&v->td, ti, argv, sizeof(struct vio));
	if (r)
		goto free_disk;
	v->wq = alloc_ordered_workqueue("dm-volatile", WQ_MEM_RECLAIM);
	if (!v->wq) {
		ti->error = "Cannot allocate the workqueue";
		r = -ENOMEM;
		goto exit_dev;
	}
	return 0;

exit_dev:
	td_dev_exit(&v->td);
free_disk:
	kvfree(v);
	return r;
}

static void v_dtr(struct dm_target *ti)
{
	struct vdisk *v = ti->private;
	unsigned long index;
	struct vpage *p;

	cancel_delayed_work_sync(&v->destager);
	/* Removal is an orderly shutdown: it loses nothing. */
	if (!v->dead && write_out(v, 0, ti->len, false))
		DMERR("%s: lost data on removal", v->td.name);
	destroy_workqueue(v->wq);
	xa_for_each(&v->pages, index, p)
		kfree(p);
	xa_destroy(&v->pages);
	td_dev_exit(&v->td);
	kvfree(v);
}

static const char * const kinds[] = { "read", "write", "flush", "discard", "all" };

static int fail_message(struct vdisk *v, unsigned int argc, char **argv)
{
	static const char * const modes[] = { "off", "on", "once" };
	int kind, mode = FAIL_ON, i;

	if (argc < 2 || argc > 3)
		return -EINVAL;
	kind = match_string(kinds, ARRAY_SIZE(kinds), argv[1]);
	if (kind < 0 || kind == KIND_DISCARD)
		return -EINVAL;
	if (argc == 3)
		mode = match_string(modes, ARRAY_SIZE(modes), argv[2]);
	if (mode < 0)
		return mode;
	for (i = 0; i < NR_FAIL; i++)
		if (kind == i || kind == NR_HANG)
			v->fail[i] = mode;
	return 0;
}

static int bad_message(struct vdisk *v, char **argv)
{
	u64 count;
	int r = kstrtou64(argv[1], 10, &v->bad_from) ?: kstrtou64(argv[2], 10, &count);

	v->bad_to = r ? 0 : v->bad_from + count;
	return r;
}

static int hang_message(struct vdisk *v, char **argv)
{
	int kind = match_string(kinds, ARRAY_SIZE(kinds), argv[1]), i;

	if (kind < 0 || (strcmp(argv[2], "on") && strcmp(argv[2], "off")))
		return -EINVAL;
	for (i = 0; i < NR_HANG; i++)
		if (kind == i || kind == NR_HANG)
			v->hang[i] = !strcmp(argv[2], "on");
	return 0;
}

static int throttle_message(struct vdisk *v, const char *word)
{
	if (strcmp(word, "on") && strcmp(word, "off"))
		return -EINVAL;
	WRITE_ONCE(v->throttle, !strcmp(word, "on"));
	wake_up_all(&v->throttled);
	return 0;
}

static int v_message(struct dm_target *ti, unsigned int argc, char **argv,
		     char *result, unsigned int maxlen)
{
	struct vdisk *v = ti->private;
	int r = 0;

	mutex_lock(&v->lock);
	if (!strcmp(argv[0], "fail"))
		r = fail_message(v, argc, argv);
	else if (argc == 3 && !strcmp(argv[0], "hang"))
		r = hang_message(v, argv);
	else if (argc == 3 && !strcmp(argv[0], "bad"))
		r = bad_message(v, argv);
	else if (argc == 1 && !strcmp(argv[0], "die"))
		v->dead = true;
	else if (argc == 1 && !strcmp(argv[0], "revive"))
		v->dead = false;
	else if (argc == 1 && !strcmp(argv[0], "lose"))
		forget(v, 0, ti->len);
	else if (argc == 2 && !strcmp(argv[0], "busy"))
		r = kstrtobool(argv[1], &v->busy);
	else if (argc == 2 && !strcmp(argv[0], "throttle"))
		r = throttle_message(v, argv[1]);
	else
		r = td_log_message(argc, argv);
	mutex_unlock(&v->lock);
	go_on(v);
	return r;
}

static void v_status(struct dm_target *ti, status_type_t type, unsigned int status_flags,
		     char *result, unsigned int maxlen)
{
	struct vdisk *v = ti->private;
	unsigned int sz = 0, nr;
	unsigned long index;
	u64 dirty = 0;
	struct vpage *p;

	switch (type) {
	case STATUSTYPE_INFO:
		mutex_lock(&v->lock);
		xa_for_each(&v->pages, index, p)
			dirty += !!p->dirty;
		DMEMIT("dirty %llu r %llu w %llu f %llu failed %llu",
		       dirty, v->reads, v->writes, v->flushes, v->failed);
		mutex_unlock(&v->lock);
		break;
	case STATUSTYPE_TABLE:
		nr = 2 * !!v->destage_pct + 2 * !!v->seed + v->torn + v->lying;
		DMEMIT("%s %llu %u", v->td.dev->name, (unsigned long long)v->td.start, nr);
		if (v->destage_pct)
			DMEMIT(" destage_pct %llu", v->destage_pct);
		if (v->seed)
			DMEMIT(" seed %llu", v->seed);
		if (v->torn)
			DMEMIT(" torn");
		if (v->lying)
			DMEMIT(" lying");
		break;
	case STATUSTYPE_IMA:
		*result = '\0';
		break;
	}
}

static void v_io_hints(struct dm_target *ti, struct queue_limits *limits)
{
	limits->max_write_zeroes_sectors = min_t(unsigned int, limits->max_write_zeroes_sectors,
						 MAX_ZEROES_SECTORS);
}

struct target_type td_volatile_target = {
	.name = "volatile",
	.features = DM_TARGET_NOWAIT,
	.version = {1, 1, 0},
	.module = THIS_MODULE,
	.ctr = v_ctr,
	.dtr = v_dtr,
	.map = v_map,
	.end_io = v_end_io,
	.message = v_message,
	.status = v_status,
	.iterate_devices = td_iterate_devices,
	.io_hints = v_io_hints,
};
