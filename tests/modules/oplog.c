// SPDX-License-Identifier: GPL-2.0-only
/*
 * The log of device operations: one global order over all test devices, so
 * that a test can assert the order in which operations reached the devices.
 *
 * <debugfs>/dm-testdisk/log has one record a line:
 *
 *   <seq> <us> <device> <S|E> <op> <flags> <sector> <count> <id> <errno>
 *
 * S is the arrival of an operation, E its completion, joined by the id (the
 * seq of the S record). The op is R, W, F (empty flush), D, Z or ?. The flags
 * are P (preflush), F (FUA), I (sync and idle: writeback throttling lets it
 * pass) or "-". The log keeps the newest records and is off until "log on" is
 * sent to any test device.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/vmalloc.h>
#include "testdisk.h"

#define PASSES (REQ_SYNC | REQ_IDLE)

struct record {
	u64 seq;
	u64 ns;
	u64 id;
	sector_t sector;
	unsigned int count;
	int error;
	char name[32];
	char op;
	bool end, preflush, fua, passes;
};

static unsigned int log_records = 65536;
module_param(log_records, uint, 0444);
MODULE_PARM_DESC(log_records, "How many records the operation log keeps");

static DEFINE_SPINLOCK(log_lock);
static struct record *ring;
static u64 next_seq = 1;	/* of the next record */
static u64 first_seq = 1;	/* of the oldest since the last clear */
static bool log_on;
static struct dentry *log_dir;

static char op_letter(struct bio *bio)
{
	switch (bio_op(bio)) {
	case REQ_OP_READ:
		return 'R';
	case REQ_OP_WRITE:
		return bio_sectors(bio) ? 'W' : 'F';
	case REQ_OP_DISCARD:
		return 'D';
	case REQ_OP_WRITE_ZEROES:
		return 'Z';
	default:
		return '?';
	}
}

/* Returns the record's seq, 0 while the log is off. */
static u64 add(const struct record *from)
{
	unsigned long flags;
	u64 seq = 0;

	spin_lock_irqsave(&log_lock, flags);
	if (log_on) {
		struct record *to = &ring[next_seq % log_records];

		seq = next_seq++;
		*to = *from;
		to->seq = seq;
		to->ns = ktime_get_ns();
		if (!to->id)
			to->id = seq;
	}
	spin_unlock_irqrestore(&log_lock, flags);
	return seq;
}

void td_log_start(struct td_dev *td, struct bio *bio)
{
	struct td_io *io = dm_per_bio_data(bio, td->ti->per_io_data_size);
	struct record rec = {
		.op = op_letter(bio),
		.sector = bio_sectors(bio) ? dm_target_offset(td->ti, bio->bi_iter.bi_sector) : 0,
		.count = bio_sectors(bio),
		.preflush = bio->bi_opf & REQ_PREFLUSH,
		.fua = bio->bi_opf & REQ_FUA,
		.passes = (bio->bi_opf & PASSES) == PASSES,
	};

	/* The bio's own fields are gone by the time that it ends. */
	io->op = rec.op;
	io->sector = rec.sector;
	io->count = rec.count;
	strscpy(rec.name, td->name, sizeof(rec.name));
	io->id = add(&rec);
}

void td_log_end(struct td_dev *td, struct bio *bio, blk_status_t status)
{
	struct td_io *io = dm_per_bio_data(bio, td->ti->per_io_data_size);
	struct record rec = {
		.end = true,
		.id = io->id,
		.op = io->op,
		.sector = io->sector,
		.count = io->count,
		.preflush = bio->bi_opf & REQ_PREFLUSH,
		.fua = bio->bi_opf & REQ_FUA,
		.passes = (bio->bi_opf & PASSES) == PASSES,
		.error = blk_status_to_errno(status),
	};

	if (!io->id)
		return;
	strscpy(rec.name, td->name, sizeof(rec.name));
	add(&rec);
}

int td_log_message(unsigned int argc, char **argv)
{
	int r = 0;

	if (argc != 2 || strcmp(argv[0], "log"))
		return -EINVAL;
	spin_lock_irq(&log_lock);
	if (!strcmp(argv[1], "on"))
		log_on = true;
	else if (!strcmp(argv[1], "off"))
		log_on = false;
	else if (!strcmp(argv[1], "clear"))
		first_seq = next_seq;
	else
		r = -EINVAL;
	spin_unlock_irq(&log_lock);
	return r;
}

static void *log_seq_start(struct seq_file *m, loff_t *pos)
	__acquires(&log_lock)
{
	u64 oldest, seq;

	spin_lock_irq(&log_lock);
	oldest = first_seq;
	if (next_seq > log_records && next_seq - log_records > oldest)
		oldest = next_seq - log_records;
	seq = max_t(u64, *pos, oldest);
	*pos = seq;
	return seq < next_seq ? &ring[seq % log_records] : NULL;
}

static void *log_seq_next(struct seq_file *m, void *v, loff_t *pos)
{
	++*pos;
	return *pos < next_seq ? &ring[*pos % log_records] : NULL;
}

static void log_seq_stop(struct seq_file *m, void *v)
	__releases(&log_lock)
{
	spin_unlock_irq(&log_lock);
}

static int log_seq_show(struct seq_file *m, void *v)
{
	struct record *rec = v;

	seq_printf(m, "%llu %llu %s %c %c %s%s%s%s %llu %u %llu %d\n",
		   rec->seq, rec->ns / NSEC_PER_USEC, rec->name, rec->end ? 'E' : 'S',
		   rec->op, rec->preflush ? "P" : "", rec->fua ? "F" : "",
		   rec->passes ? "I" : "", rec->preflush || rec->fua || rec->passes ? "" : "-",
		   (unsigned long long)rec->sector, rec->count, rec->id, rec->error);
	return 0;
}

static const struct seq_operations log_seq_sops = {
	.start = log_seq_start,
	.next = log_seq_next,
	.stop = log_seq_stop,
	.show = log_seq_show,
};

DEFINE_SEQ_ATTRIBUTE(log_seq);

void td_log_blob(const char *name, struct debugfs_blob_wrapper *blob)
{
	debugfs_create_blob(name, 0400, log_dir, blob);
}

int td_log_init(void)
{
	if (!log_records)
		return -EINVAL;
	ring = vzalloc(array_size(log_records, sizeof(*ring)));
	if (!ring)
		return -ENOMEM;
	log_dir = debugfs_create_dir("dm-testdisk", NULL);
	debugfs_create_file("log", 0444, log_dir, NULL, &log_seq_fops);
	return 0;
}

void td_log_exit(void)
{
	debugfs_remove(log_dir);
	vfree(ring);
}
