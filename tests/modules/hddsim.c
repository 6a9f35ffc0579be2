// SPDX-License-Identifier: GPL-2.0-only
/*
 * hddsim <dev> <start> <rpm> <MB/s> <settle us> <full stroke us> <queue depth>
 *	  <write cache KiB> <overhead us> [smr <band MiB> <media cache MiB>]
 *
 * The timing of a rotating disk with one actuator, over any device. The head's
 * position is a sector address plus the platter's angle, which is a function
 * of time. Requests are served in order of shortest positioning time among the
 * oldest <queue depth>. After a read the head goes on reading (look-ahead).
 * Writes enter a write cache, are destaged by the same scheduler, and a flush
 * drains it. Only time is modelled: data passes to the backing device when a
 * request completes. A "volatile" target below models the loss of a cache.
 *
 * With smr, the tracks overlap like shingles, and the drive manages that by itself.
 * A write goes to the end of a log, the media cache, unless it goes on with the
 * rewrite of a whole band. To clean a band, the head reads all of it and its data in
 * the log, and writes it again. The drive cleans the band that has waited longest, in
 * a second without a request, or when the media cache is full. A read takes as long
 * as if its data were in the band. After Aghayev and Desnoyers, "Skylight: A Window on
 * Shingled Disk Operation", FAST 2015.
 *
 * Status: r <reads> rs <sectors> w <writes> ws <sectors> f <flushes>
 *	   seeks <n> seq <n> cleaned <bands> busy_ms <n>
 */
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include "testdisk.h"

#define READAHEAD_SECTORS	2048
/* How late the thread may be for a queued request still to start on time. */
#define LATE_NS			(3 * NSEC_PER_MSEC)
/* How long a shingled disk has no request before it cleans bands. */
#define IDLE_JIFFIES		HZ
#define MAX_BANDS		1000000
#define NOWHERE			((sector_t)-1)
#define LARGEST_WRITE		(BIO_MAX_VECS * PAGE_SECTORS)

struct request {
	struct list_head list;
	struct bio *bio;	/* NULL: a write that sits in the write cache */
	sector_t sector;
	unsigned int count;
	bool write;
	bool rewrites;		/* goes to its band, not to the media cache */
	u64 born;
};

struct band {
	sector_t rewritten;	/* end of the rewrite so far, or NOWHERE; under hdd::lock */
	struct list_head list;	/* in hdd::dirty: it must be cleaned */
	u64 cached;		/* sectors in the media cache */
};

struct hdd {
	struct td_dev td;

	u64 args[7];		/* as given, for the table */
	u64 smr_args[2];
	u64 band_sectors;	/* of a shingled disk; see also bands */
	u64 media_sectors;
	u64 rev_ns, settle_ns, full_ns, overhead_ns;
	u64 track_sectors, tracks;
	u64 queue_depth;
	u64 cache_bytes;

	spinlock_t lock;	/* protects the fields up to the next blank line */
	struct list_head host;		/* requests */
	struct list_head destage;	/* contents of the write cache */
	struct list_head flushes;
	u64 cache_used;
	u64 reads, read_sectors, writes, write_sectors, nr_flushes;

	/* The thread's own. */
	sector_t head;
	u64 head_ns;		/* when the head was there */
	sector_t ra_end;	/* look-ahead has read to here ... */
	u64 ra_ns;		/* ... at this time */
	bool ra_valid;
	struct band *bands;
	struct list_head dirty;	/* bands, the oldest first */
	u64 media_head, media_used;
	u64 seeks, sequential, cleaned, busy_ns;

	wait_queue_head_t wait;
	struct task_struct *thread;
};

static u64 transfer_ns(struct hdd *h, u64 count)
{
	return div64_u64(count * h->rev_ns, h->track_sectors);
}

static struct band *band_of(struct hdd *h, sector_t sector)
{
	return &h->bands[div64_u64(sector, h->band_sectors)];
}

/* Does this write go on with the rewrite of a band, or begin one? Called in order of arrival. */
static bool arrives_in_order(struct hdd *h, struct request *rq)
{
	struct band *band = band_of(h, rq->sector);
	u64 offset;

	lockdep_assert_held(&h->lock);
	div64_u64_rem(rq->sector, h->band_sectors, &offset);
	if (offset && rq->sector != band->rewritten)
		return false;
	band->rewritten = rq->sector + rq->count;
	return true;
}

/* The place on the platter: the media cache follows the last band. */
static sector_t place(struct hdd *h, struct request *rq)
{
	return rq->write && !rq->rewrites ? h->td.ti->len + h->media_head : rq->sector;
}

/* When does an access to @sector finish whose arm movement starts at @now? */
static u64 media_finish(struct hdd *h, u64 now, sector_t sector, u64 count, bool *seek)
{
	u64 from, to, distance, offset, angle, target, rotation, ignored;

	*seek = false;
	if (sector == h->head && now == h->head_ns)
		return now + transfer_ns(h, count);

	from = div64_u64_rem(h->head, h->track_sectors, &ignored);
	to = div64_u64_rem(sector, h->track_sectors, &offset);
	distance = from > to ? from - to : to - from;
	if (distance) {
		/* settle + (full - settle) * sqrt(distance / tracks) */
		u64 fraction = int_sqrt64(div64_u64(distance << 20, h->tracks));

		now += h->settle_ns + (((h->full_ns - h->settle_ns) * fraction) >> 10);
		*seek = true;
	}
	div64_u64_rem(now, h->rev_ns, &angle);
	target = div64_u64(offset * h->rev_ns, h->track_sectors);
	rotation = target >= angle ? target - angle : h->rev_ns - angle + target;
	if (rotation)
		*seek = true;
	return now + rotation + transfer_ns(h, count);
}

/* The same for a read that the look-ahead has covered or will cover; 0 for other requests. */
static u64 readahead_finish(struct hdd *h, u64 now, struct request *rq)
{
	if (rq->write || !h->ra_valid || rq->sector < h->ra_end ||
	    rq->sector > h->ra_end + READAHEAD_SECTORS)
		return 0;
	return max(now, h->ra_ns + transfer_ns(h, rq->sector - h->ra_end + rq->count));
}

static u64 request_finish(struct hdd *h, u64 now, struct request *rq, bool *seek)
{
	u64 finish = readahead_finish(h, now, rq);

	*seek = false;
	if (finish)
		return finish;
	/*
	 * A request that waited while the head was busy starts when the head
	 * became free, however late this thread is.
	 */
	if (rq->born <= h->head_ns && now < h->head_ns + LATE_NS)
		now = h->head_ns;
	return media_finish(h, now, place(h, rq), rq->count, seek);
}

static void sleep_until(u64 due)
{
	ktime_t when = ns_to_ktime(due);

	while (ktime_get_ns() < due) {
		set_current_state(TASK_IDLE);
		schedule_hrtimeout_range(&when, 0, HRTIMER_MODE_ABS);
	}
	__set_current_state(TASK_RUNNING);
}

static struct request *first_request(struct list_head *list)
{
	return list_first_entry_or_null(list, struct request, list);
}

/* The request of @list that would finish first, if that is before *@finish. */
static struct request *pick(struct hdd *h, struct list_head *list, u64 depth, bool aging,
			    u64 now, struct request *best, u64 *finish)
{
	struct request *rq;
	bool seek;

	list_for_each_entry(rq, list, list) {
		u64 f, age;

		if (!depth--)
			break;
		f = request_finish(h, now, rq, &seek);
		if (aging) {
			/* Otherwise a far request could wait for ever. */
			age = (now - rq->born) / 16;
			f = f > age ? f - age : 0;
		}
		if (f < *finish) {
			*finish = f;
			best = rq;
		}
	}
	return best;
}

/*
 * Takes the next request to serve. Destages wait behind the host's requests unless the
 * cache is half full; while a flush waits, only destages run.
 */
static struct request *next_request(struct hdd *h, u64 now)
{
	struct request *best = NULL;
	u64 finish = U64_MAX;

	lockdep_assert_held(&h->lock);
	if (list_empty(&h->flushes))
		best = pick(h, &h->host, h->queue_depth, true, now, best, &finish);
	if (!best || h->cache_used * 2 > h->cache_bytes)
		best = pick(h, &h->destage, 2 * h->queue_depth, false, now, best, &finish);
	if (best)
		list_del(&best->list);
	return best;
}

static bool cache_takes(struct hdd *h, struct request *rq)
{
	return rq->bio && rq->write && !(rq->bio->bi_opf & REQ_FUA) &&
	       h->cache_used + to_bytes(rq->count) <= h->cache_bytes;
}

/* Turns a write into a destage; the caller passes the bio on. */
static struct bio *enter_cache(struct hdd *h, struct request *rq)
{
	struct bio *bio = rq->bio;

	rq->bio = NULL;
	h->cache_used += to_bytes(rq->count);
	list_add_tail(&rq->list, &h->destage);
	return bio;
}

/* A destage is done: a write that waited for room enters the cache. */
static void leave_cache(struct hdd *h, struct request *done)
{
	struct request *rq;
	struct bio *bio = NULL;

	spin_lock_irq(&h->lock);
	h->cache_used -= to_bytes(done->count);
	list_for_each_entry(rq, &h->host, list) {
		if (cache_takes(h, rq)) {
			list_del(&rq->list);
			bio = enter_cache(h, rq);
			break;
		}
	}
	spin_unlock_irq(&h->lock);
	if (bio)
		submit_bio_noacct(bio);
}

static u64 access(struct hdd *h, u64 now, sector_t sector, u64 count)
{
	bool seek;

	h->head_ns = media_finish(h, now, sector, count, &seek);
	h->head = sector + count;
	return h->head_ns;
}

static void set_clean(struct hdd *h, struct band *band)
{
	h->media_used -= band->cached;
	band->cached = 0;
	list_del_init(&band->list);
}

static void clean_oldest_band(struct hdd *h)
{
	struct band *band = list_first_entry(&h->dirty, struct band, list);
	sector_t start = (band - h->bands) * h->band_sectors;
	u64 count = min_t(u64, h->band_sectors, h->td.ti->len - start);
	u64 begun = ktime_get_ns(), now = begun;

	if (band->cached)
		now = access(h, now, h->td.ti->len, band->cached);
	now = access(h, now, start, count);
	now = access(h, now, start, count);
	h->ra_valid = false;
	h->busy_ns += now - begun;
	h->cleaned++;
	set_clean(h, band);
	spin_lock_irq(&h->lock);
	band->rewritten = NOWHERE;
	spin_unlock_irq(&h->lock);
	sleep_until(now);
}

static void write_to_media_cache(struct hdd *h, struct band *band, u64 count)
{
	h->media_head += count;
	if (h->media_head >= h->media_sectors)
		h->media_head = 0;
	h->media_used += count;
	band->cached += count;
}

static void write_shingled(struct hdd *h, struct request *rq)
{
	struct band *band = band_of(h, rq->sector);
	sector_t end = rq->sector + rq->count;
	u64 offset;

	div64_u64_rem(end, h->band_sectors, &offset);
	if (rq->rewrites && (!offset || end == h->td.ti->len)) {
		set_clean(h, band);
		return;
	}
	if (!rq->rewrites)
		write_to_media_cache(h, band, rq->count);
	if (list_empty(&band->list))
		list_add_tail(&band->list, &h->dirty);
}

static void serve(struct hdd *h, struct request *rq, u64 now)
{
	sector_t sector = place(h, rq);
	bool seek, merged;
	u64 finish = request_finish(h, now, rq, &seek);

	if (seek)
		h->seeks++;
	else
		h->sequential++;
	h->busy_ns += finish > now ? finish - now : 0;
	/*
	 * A request that was queued in time and continues the one before costs
	 * no command overhead: the block layer would have merged the two.
	 */
	merged = sector == h->head && rq->born <= h->head_ns;
	sleep_until(finish + (rq->bio && !merged ? h->overhead_ns : 0));

	h->head = sector + rq->count;
	h->head_ns = finish;
	if (h->bands && rq->write)
		write_shingled(h, rq);
	h->ra_valid = !rq->write;
	h->ra_end = h->head;
	h->ra_ns = finish;

	if (rq->bio)
		submit_bio_noacct(rq->bio);
	else
		leave_cache(h, rq);
	kfree(rq);
}

static void serve_flush(struct hdd *h)
{
	struct request *rq;

	spin_lock_irq(&h->lock);
	rq = first_request(&h->flushes);
	list_del(&rq->list);
	spin_unlock_irq(&h->lock);
	sleep_until(ktime_get_ns() + h->overhead_ns);
	submit_bio_noacct(rq->bio);
	kfree(rq);
}

static bool has_work(struct hdd *h)
{
	return !list_empty(&h->host) || !list_empty(&h->destage) || !list_empty(&h->flushes);
}

static bool media_cache_is_full(struct hdd *h)
{
	return h->media_used + LARGEST_WRITE > h->media_sectors;
}

/* Waits for work; returns false after @patience jiffies without any if bands wait to be cleaned. */
static bool wait_for_work(struct hdd *h, long patience)
{
	if (list_empty(&h->dirty)) {
		wait_event_idle(h->wait, kthread_should_stop() || has_work(h));
		return true;
	}
	return wait_event_idle_timeout(h->wait, kthread_should_stop() || has_work(h), patience);
}

static int hdd_thread(void *data)
{
	struct hdd *h = data;
	long patience = IDLE_JIFFIES;

	sched_set_fifo(current);
	for (;;) {
		struct request *rq;
		bool flush;
		u64 now;

		if (!wait_for_work(h, patience)) {
			clean_oldest_band(h);
			patience = 0;
			continue;
		}
		if (kthread_should_stop())
			break;
		patience = IDLE_JIFFIES;
		if (!list_empty(&h->dirty) && media_cache_is_full(h))
			clean_oldest_band(h);
		spin_lock_irq(&h->lock);
		now = ktime_get_ns();
		flush = !list_empty(&h->flushes) && list_empty(&h->destage);
		rq = flush ? NULL : next_request(h, now);
		spin_unlock_irq(&h->lock);
		if (flush)
			serve_flush(h);
		else if (rq)
			serve(h, rq, now);
	}
	return 0;
}

static int hdd_map(struct dm_target *ti, struct bio *bio)
{
	struct hdd *h = ti->private;
	bool flush = bio->bi_opf & REQ_PREFLUSH;
	bool to_cache = false;
	struct request *rq;

	td_log_start(&h->td, bio);
	bio_set_dev(bio, h->td.dev->bdev);
	if (bio_sectors(bio))
		bio->bi_iter.bi_sector = td_remap(&h->td, bio->bi_iter.bi_sector);
	if (!flush && (!bio_sectors(bio) ||
		       (bio_op(bio) != REQ_OP_READ && bio_op(bio) != REQ_OP_WRITE)))
		return DM_MAPIO_REMAPPED;

	rq = kzalloc(sizeof(*rq), GFP_NOIO);
	if (!rq)
		return DM_MAPIO_KILL;
	rq->bio = bio;
	rq->born = ktime_get_ns();
	rq->sector = flush ? 0 : bio->bi_iter.bi_sector - h->td.start;
	rq->count = bio_sectors(bio);
	rq->write = op_is_write(bio_op(bio));

	spin_lock_irq(&h->lock);
	if (flush) {
		h->nr_flushes++;
		list_add_tail(&rq->list, &h->flushes);
	} else {
		if (rq->write) {
			h->writes++;
			h->write_sectors += rq->count;
			rq->rewrites = !h->bands || arrives_in_order(h, rq);
		} else {
			h->reads++;
			h->read_sectors += rq->count;
		}
		to_cache = cache_takes(h, rq);
		if (to_cache)
			enter_cache(h, rq);
		else
			list_add_tail(&rq->list, &h->host);
	}
	spin_unlock_irq(&h->lock);
	wake_up(&h->wait);
	return to_cache ? DM_MAPIO_REMAPPED : DM_MAPIO_SUBMITTED;
}

static int parse_model(struct dm_target *ti, struct hdd *h, char **argv)
{
	u64 *v = h->args;
	unsigned int i;
	int r;

	for (i = 0; i < ARRAY_SIZE(h->args); i++) {
		/* Speeds and the queue must not be zero; times and the cache may. */
		bool may_be_zero = i == 2 || i == 3 || i >= 5;

		r = td_parse_u64(ti, argv[i], !may_be_zero, U32_MAX, &v[i]);
		if (r)
			return r;
	}
	h->rev_ns = div64_u64(60ULL * NSEC_PER_SEC, v[0]);
	h->track_sectors = div64_u64(v[1] * h->rev_ns, SECTOR_SIZE * 1000);
	if (!h->track_sectors || v[3] < v[2]) {
		ti->error = "Impossible disk";
		return -EINVAL;
	}
	h->tracks = div64_u64(ti->len, h->track_sectors) + 1;
	h->settle_ns = v[2] * NSEC_PER_USEC;
	h->full_ns = v[3] * NSEC_PER_USEC;
	h->queue_depth = v[4];
	h->cache_bytes = v[5] << 10;
	h->overhead_ns = v[6] * NSEC_PER_USEC;
	return 0;
}

/* Of "smr <band MiB> <media cache MiB>". */
static int parse_shingles(struct dm_target *ti, struct hdd *h, char **argv)
{
	u64 i, nr_bands;
	int r;

	if (strcmp(argv[0], "smr")) {
		ti->error = "Only smr may follow";
		return -EINVAL;
	}
	for (i = 0; i < ARRAY_SIZE(h->smr_args); i++) {
		r = td_parse_u64(ti, argv[1 + i], 1, U32_MAX >> 11, &h->smr_args[i]);
		if (r)
			return r;
	}
	h->band_sectors = h->smr_args[0] << (20 - SECTOR_SHIFT);
	h->media_sectors = h->smr_args[1] << (20 - SECTOR_SHIFT);
	nr_bands = div64_u64(ti->len - 1, h->band_sectors) + 1;
	if (h->media_sectors < 2 * LARGEST_WRITE || nr_bands > MAX_BANDS) {
		ti->error = "Too many bands, or too small a media cache";
		return -EINVAL;
	}
	/* No request crosses the border of a band. */
	r = dm_set_target_max_io_len(ti, h->band_sectors);
	if (r)
		return r;
	h->bands = kvcalloc(nr_bands, sizeof(*h->bands), GFP_KERNEL);
	if (!h->bands) {
		ti->error = "Cannot allocate the bands";
		return -ENOMEM;
	}
	for (i = 0; i < nr_bands; i++) {
		INIT_LIST_HEAD(&h->bands[i].list);
		h->bands[i].rewritten = NOWHERE;
	}
	return 0;
}

static int hdd_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct hdd *h;
	int r;

	if (argc != 9 && argc != 12) {
		ti->error = "Nine or twelve arguments are needed";
		return -EINVAL;
	}
	h = kzalloc(sizeof(*h), GFP_KERNEL);
	if (!h) {
		ti->error = "Cannot allocate the disk";
		return -ENOMEM;
	}
	spin_lock_init(&h->lock);
	init_waitqueue_head(&h->wait);
	INIT_LIST_HEAD(&h->host);
	INIT_LIST_HEAD(&h->destage);
	INIT_LIST_HEAD(&h->flushes);
	INIT_LIST_HEAD(&h->dirty);
	r = parse_model(ti, h, argv + 2);
	if (!r && argc == 12)
		r = parse_shingles(ti, h, argv + 9);
	if (r)
		goto free_bands;
	r = td_dev_init(&h->td, ti, argv, sizeof(struct td_io));
	if (r)
		goto free_bands;
	h->thread = kthread_run(hdd_thread, h, "hddsim");
	if (IS_ERR(h->thread)) {
		ti->error = "Cannot start the disk's thread";
		r = PTR_ERR(h->thread);
		goto exit_dev;
	}
	return 0;

exit_dev:
	td_dev_exit(&h->td);
free_bands:
	kvfree(h->bands);
	kfree(h);
	return r;
}

static void hdd_dtr(struct dm_target *ti)
{
	struct hdd *h = ti->private;
	struct request *rq, *next;

	kthread_stop(h->thread);
	/* No bio is left by now, but the write cache may still model some. */
	list_for_each_entry_safe(rq, next, &h->destage, list)
		kfree(rq);
	td_dev_exit(&h->td);
	kvfree(h->bands);
	kfree(h);
}

static void hdd_status(struct dm_target *ti, status_type_t type, unsigned int status_flags,
		       char *result, unsigned int maxlen)
{
	struct hdd *h = ti->private;
	unsigned int i, sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		DMEMIT("r %llu rs %llu w %llu ws %llu f %llu ", h->reads, h->read_sectors,
		       h->writes, h->write_sectors, h->nr_flushes);
		DMEMIT("seeks %llu seq %llu cleaned %llu busy_ms %llu", h->seeks, h->sequential,
		       h->cleaned, div64_u64(h->busy_ns, NSEC_PER_MSEC));
		break;
	case STATUSTYPE_TABLE:
		DMEMIT("%s %llu", h->td.dev->name, (unsigned long long)h->td.start);
		for (i = 0; i < ARRAY_SIZE(h->args); i++)
			DMEMIT(" %llu", h->args[i]);
		if (h->bands)
			DMEMIT(" smr %llu %llu", h->smr_args[0], h->smr_args[1]);
		break;
	case STATUSTYPE_IMA:
		*result = '\0';
		break;
	}
}

struct target_type td_hddsim_target = {
	.name = "hddsim",
	.version = {1, 1, 0},
	.module = THIS_MODULE,
	.ctr = hdd_ctr,
	.dtr = hdd_dtr,
	.map = hdd_map,
	.end_io = td_end_io,
	.message = td_message,
	.status = hdd_status,
	.iterate_devices = td_iterate_devices,
};
