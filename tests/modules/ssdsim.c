// SPDX-License-Identifier: GPL-2.0-only
/*
 * ssdsim <dev> <start> <channels> <read us> <write us> <read MB/s> <write MB/s>
 *	  <flush us> [nofua]
 *
 * The timing of a flash device, over any device: <channels> servers with a
 * fixed latency for each operation, and one link that they share, whose speed
 * limits throughput. A flush starts when the last write has ended. With nofua, each
 * write with FUA is followed by a flush, as the block layer does for a device without
 * FUA (block/blk-flush.c).
 *
 * Status: r <reads> rs <sectors> w <writes> ws <sectors> f <flushes> busy_ns <n>
 * busy_ns: time from arrival to completion, summed over all reads and writes, in the model.
 */
#include <linux/hrtimer.h>
#include <linux/kthread.h>
#include <linux/math64.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include "testdisk.h"

#define MAX_CHANNELS	1024
/* A request due sooner than this is due now: a timer would take longer. */
#define TIMER_SLACK_NS	500

struct request {
	struct list_head list;
	struct bio *bio;
	u64 due;
};

struct ssd {
	struct td_dev td;

	u64 channels;
	u64 read_ns, write_ns, flush_ns;
	u64 read_mb, write_mb;
	bool no_fua;

	spinlock_t lock;	/* protects the fields below */
	struct list_head running;	/* by time of completion */
	u64 *channel_free;		/* when each channel becomes free */
	u64 link_free;
	u64 last_write;
	u64 reads, read_sectors, writes, write_sectors, nr_flushes, busy_ns;

	wait_queue_head_t wait;
	struct task_struct *thread;
};

static u64 data_due(struct ssd *s, u64 now, unsigned int count, bool write)
{
	u64 latency = write ? s->write_ns : s->read_ns;
	u64 link_ns = div64_u64(to_bytes((u64)count) * 1000, write ? s->write_mb : s->read_mb);
	unsigned int i, best = 0;
	u64 start, due;

	for (i = 1; i < s->channels; i++)
		if (s->channel_free[i] < s->channel_free[best])
			best = i;
	start = max(now, s->channel_free[best]);
	s->channel_free[best] = start + latency;
	s->link_free = max(s->link_free, start) + link_ns;
	due = max(start + latency + link_ns, s->link_free);
	if (write)
		s->last_write = max(s->last_write, due);
	return due;
}

static u64 flush_due(struct ssd *s, u64 from)
{
	s->nr_flushes++;
	return max(from, s->last_write) + s->flush_ns;
}

static void insert_sorted(struct ssd *s, struct request *rq)
{
	struct request *p;

	list_for_each_entry_reverse(p, &s->running, list)
		if (p->due <= rq->due)
			break;
	/* At the end of the walk p->list is the head itself. */
	list_add(&rq->list, &p->list);
}

static int ssd_thread(void *data)
{
	struct ssd *s = data;

	sched_set_fifo(current);
	for (;;) {
		struct request *rq;
		ktime_t due;

		wait_event_idle(s->wait, kthread_should_stop() || !list_empty(&s->running));
		if (kthread_should_stop())
			break;
		spin_lock_irq(&s->lock);
		rq = list_first_entry(&s->running, struct request, list);
		if (rq->due > ktime_get_ns() + TIMER_SLACK_NS) {
			/* State first: a wake-up for an earlier request must not be lost. */
			due = ns_to_ktime(rq->due);
			set_current_state(TASK_IDLE);
			spin_unlock_irq(&s->lock);
			schedule_hrtimeout_range(&due, 0, HRTIMER_MODE_ABS);
			continue;
		}
		list_del(&rq->list);
		spin_unlock_irq(&s->lock);
		submit_bio_noacct(rq->bio);
		kfree(rq);
	}
	return 0;
}

static int ssd_map(struct dm_target *ti, struct bio *bio)
{
	struct ssd *s = ti->private;
	bool flush = bio->bi_opf & REQ_PREFLUSH;
	bool write = op_is_write(bio_op(bio));
	unsigned int count = bio_sectors(bio);
	struct request *rq;
	u64 now;

	td_log_start(&s->td, bio);
	bio_set_dev(bio, s->td.dev->bdev);
	if (count)
		bio->bi_iter.bi_sector = td_remap(&s->td, bio->bi_iter.bi_sector);
	if (!flush && (!count || (bio_op(bio) != REQ_OP_READ && bio_op(bio) != REQ_OP_WRITE)))
		return DM_MAPIO_REMAPPED;

	rq = kzalloc(sizeof(*rq), GFP_NOIO);
	if (!rq)
		return DM_MAPIO_KILL;
	rq->bio = bio;

	spin_lock_irq(&s->lock);
	now = ktime_get_ns();
	if (flush) {
		rq->due = flush_due(s, now);
	} else {
		if (write) {
			s->writes++;
			s->write_sectors += count;
		} else {
			s->reads++;
			s->read_sectors += count;
		}
		rq->due = data_due(s, now, count, write);
		s->busy_ns += rq->due - now;
		if (s->no_fua && bio->bi_opf & REQ_FUA)
			rq->due = flush_due(s, rq->due);
	}
	insert_sorted(s, rq);
	spin_unlock_irq(&s->lock);
	wake_up_process(s->thread);
	return DM_MAPIO_SUBMITTED;
}

static int parse_model(struct dm_target *ti, struct ssd *s, char **argv)
{
	u64 v[6];
	unsigned int i;
	int r;

	for (i = 0; i < ARRAY_SIZE(v); i++) {
		bool may_be_zero = i == 1 || i == 2 || i == 5;

		r = td_parse_u64(ti, argv[i], !may_be_zero, i ? U32_MAX : MAX_CHANNELS, &v[i]);
		if (r)
			return r;
	}
	s->channels = v[0];
	s->read_ns = v[1] * NSEC_PER_USEC;
	s->write_ns = v[2] * NSEC_PER_USEC;
	s->read_mb = v[3];
	s->write_mb = v[4];
	s->flush_ns = v[5] * NSEC_PER_USEC;
	return 0;
}

static int ssd_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct ssd *s;
	int r;

	if (argc != 8 && (argc != 9 || strcmp(argv[8], "nofua"))) {
		ti->error = "Eight arguments are needed, and nofua may follow";
		return -EINVAL;
	}
	s = kzalloc(sizeof(*s), GFP_KERNEL);
	if (!s) {
		ti->error = "Cannot allocate the disk";
		return -ENOMEM;
	}
	spin_lock_init(&s->lock);
	init_waitqueue_head(&s->wait);
	INIT_LIST_HEAD(&s->running);
	s->no_fua = argc == 9;
	r = parse_model(ti, s, argv + 2);
	if (r)
		goto free_ssd;
	s->channel_free = kcalloc(s->channels, sizeof(*s->channel_free), GFP_KERNEL);
	if (!s->channel_free) {
		ti->error = "Cannot allocate the channels";
		r = -ENOMEM;
		goto free_ssd;
	}
	r = td_dev_init(&s->td, ti, argv, sizeof(struct td_io));
	if (r)
		goto free_channels;
	s->thread = kthread_run(ssd_thread, s, "ssdsim");
	if (IS_ERR(s->thread)) {
		ti->error = "Cannot start the disk's thread";
		r = PTR_ERR(s->thread);
		goto exit_dev;
	}
	return 0;

exit_dev:
	td_dev_exit(&s->td);
free_channels:
	kfree(s->channel_free);
free_ssd:
	kfree(s);
	return r;
}

static void ssd_dtr(struct dm_target *ti)
{
	struct ssd *s = ti->private;

	kthread_stop(s->thread);
	td_dev_exit(&s->td);
	kfree(s->channel_free);
	kfree(s);
}

static void ssd_status(struct dm_target *ti, status_type_t type, unsigned int status_flags,
		       char *result, unsigned int maxlen)
{
	struct ssd *s = ti->private;
	unsigned int sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		DMEMIT("r %llu rs %llu w %llu ws %llu f %llu busy_ns %llu",
		       s->reads, s->read_sectors, s->writes, s->write_sectors, s->nr_flushes,
		       s->busy_ns);
		break;
	case STATUSTYPE_TABLE:
		DMEMIT("%s %llu %llu %llu %llu %llu %llu %llu", s->td.dev->name,
		       (unsigned long long)s->td.start, s->channels,
		       div64_u64(s->read_ns, NSEC_PER_USEC),
		       div64_u64(s->write_ns, NSEC_PER_USEC),
		       s->read_mb, s->write_mb, div64_u64(s->flush_ns, NSEC_PER_USEC));
		if (s->no_fua)
			DMEMIT(" nofua");
		break;
	case STATUSTYPE_IMA:
		*result = '\0';
		break;
	}
}

struct target_type td_ssdsim_target = {
	.name = "ssdsim",
	.version = {1, 0, 0},
	.module = THIS_MODULE,
	.ctr = ssd_ctr,
	.dtr = ssd_dtr,
	.map = ssd_map,
	.end_io = td_end_io,
	.message = td_message,
	.status = ssd_status,
	.iterate_devices = td_iterate_devices,
};
