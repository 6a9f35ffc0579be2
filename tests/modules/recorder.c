// SPDX-License-Identifier: GPL-2.0-only
/*
 * recorder <dev> <start> <tag>
 *
 * Passes everything through, and records all changes of the device: beginnings
 * and ends of writes, flushes, discards and zeroes of all recorders in one
 * order, with the contents. A recorder over each member of a stack and one over
 * the volume on top give a trace from which every power cut can be computed
 * afterwards (tests/replay).
 *
 * The recorder sends down the log's own copy of the data, so that a buffer that
 * changes under way cannot make the log and the device differ. The log is kept in
 * RAM, from the first recorder to the module's end. When it is full it ends, for
 * all recorders at once; up to then it is complete.
 *
 * Messages: mark <word>	leave a mark in the log
 * Status: <records> <bytes of data> on|full
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "recorder.h"
#include "testdisk.h"

#define DM_MSG_PREFIX "recorder"
#define MAX_IO_SECTORS	1024
#define MAX_VECS	(MAX_IO_SECTORS / PAGE_SECTORS + 1)

static unsigned int recorder_mib = 96;
module_param(recorder_mib, uint, 0444);
MODULE_PARM_DESC(recorder_mib, "Size of the log of all recorders, made with the first of them");

static DEFINE_MUTEX(log_mutex);		/* to make the log, and number recorders */
static DEFINE_SPINLOCK(log_lock);	/* protects the sizes, and full */
static struct debugfs_blob_wrapper records, data;	/* size: bytes used */
static size_t max_records, max_data;	/* bytes */
static u16 nr_devices;
static bool full;

struct recorder {
	struct td_dev td;
	struct bio_set bios;
	u16 nr;
	char tag[32];
};

struct rio {
	u64 id;			/* number of its record */
};

#define NOT_RECORDED	U64_MAX

/* Adds a record with room for @bytes of data at rec->data; returns its number. */
static u64 add(struct rec_record *rec, size_t bytes)
{
	struct rec_record *to = records.data;
	u64 nr = NOT_RECORDED;
	unsigned long flags;

	bytes = round_up(bytes, SECTOR_SIZE);
	spin_lock_irqsave(&log_lock, flags);
	full |= records.size + sizeof(*rec) > max_records || data.size + bytes > max_data;
	if (!full) {
		nr = records.size / sizeof(*rec);
		rec->data = data.size;
		to[nr] = *rec;
		records.size += sizeof(*rec);
		data.size += bytes;
	}
	spin_unlock_irqrestore(&log_lock, flags);
	return nr;
}

static int add_text(struct recorder *r, enum rec_type type, sector_t sector, const char *text)
{
	struct rec_record rec = { .type = type, .device = r->nr, .sector = sector };

	if (add(&rec, strlen(text) + 1) == NOT_RECORDED)
		return -ENOSPC;
	strcpy(data.data + rec.data, text);
	return 0;
}

static void write_end(struct bio *bio)
{
	struct bio *orig = bio->bi_private;

	orig->bi_status = bio->bi_status;
	bio_put(bio);
	bio_endio(orig);
}

/* Sends down a copy of the write @bio whose pages are the log's. */
static void submit_copy(struct recorder *r, struct bio *bio, u8 *to)
{
	struct bio *copy = bio_alloc_bioset(r->td.dev->bdev, MAX_VECS, bio->bi_opf, GFP_NOIO,
					    &r->bios);
	struct bvec_iter iter;
	struct bio_vec bv;
	u8 *end = to;

	bio_for_each_segment(bv, bio, iter) {
		memcpy_from_bvec(end, &bv);
		end += bv.bv_len;
	}
	copy->bi_iter.bi_sector = bio->bi_iter.bi_sector;
	copy->bi_ioprio = bio->bi_ioprio;
	copy->bi_private = bio;
	copy->bi_end_io = write_end;
	while (to < end) {
		unsigned int n = min_t(size_t, end - to, PAGE_SIZE - offset_in_page(to));

		__bio_add_page(copy, vmalloc_to_page(to), n, offset_in_page(to));
		to += n;
	}
	submit_bio_noacct(copy);
}

static bool type_of(struct bio *bio, u8 *type)
{
	switch (bio_op(bio)) {
	case REQ_OP_WRITE:
		/* dm sends a flush ahead of the data that it came with. */
		*type = bio_sectors(bio) ? REC_WRITE : REC_FLUSH;
		return true;
	case REQ_OP_DISCARD:
		*type = REC_DISCARD;
		return true;
	case REQ_OP_WRITE_ZEROES:
		*type = REC_ZEROES;
		return true;
	default:
		return false;
	}
}

static int rec_map(struct dm_target *ti, struct bio *bio)
{
	struct recorder *r = ti->private;
	struct rio *rio = dm_per_bio_data(bio, sizeof(*rio));
	struct rec_record rec = {
		.device = r->nr,
		.sector = bio_sectors(bio) ? dm_target_offset(ti, bio->bi_iter.bi_sector) : 0,
		.count = bio_sectors(bio),
		.fua = !!(bio->bi_opf & REQ_FUA),
	};

	bio_set_dev(bio, r->td.dev->bdev);
	if (bio_sectors(bio))
		bio->bi_iter.bi_sector = td_remap(&r->td, bio->bi_iter.bi_sector);
	rio->id = NOT_RECORDED;
	if (!type_of(bio, &rec.type))
		return DM_MAPIO_REMAPPED;
	rio->id = add(&rec, rec.type == REC_WRITE ? bio->bi_iter.bi_size : 0);
	if (rec.type != REC_WRITE || rio->id == NOT_RECORDED)
		return DM_MAPIO_REMAPPED;
	submit_copy(r, bio, data.data + rec.data);
	return DM_MAPIO_SUBMITTED;
}

static int rec_end_io(struct dm_target *ti, struct bio *bio, blk_status_t *error)
{
	struct recorder *r = ti->private;
	struct rio *rio = dm_per_bio_data(bio, sizeof(*rio));
	struct rec_record rec = {
		.type = REC_END,
		.device = r->nr,
		.id = rio->id,
		.error = blk_status_to_errno(*error),
	};

	if (rio->id != NOT_RECORDED)
		add(&rec, 0);
	return DM_ENDIO_DONE;
}

/* Makes the log if there is none yet; an eighth of it is for the records. */
static int make_log(void)
{
	size_t bytes = (size_t)recorder_mib << 20;
	int r = 0;

	mutex_lock(&log_mutex);
	if (!records.data) {
		data.data = vzalloc(bytes - bytes / 8);
		records.data = data.data ? vzalloc(bytes / 8) : NULL;
		if (records.data) {
			max_records = bytes / 8;
			max_data = bytes - bytes / 8;
			td_log_blob("records", &records);
			td_log_blob("data", &data);
		} else {
			vfree(data.data);
			data.data = NULL;
			r = -ENOMEM;
		}
	}
	mutex_unlock(&log_mutex);
	return r;
}

void td_recorder_exit(void)
{
	vfree(records.data);
	vfree(data.data);
}

static int rec_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct recorder *rec;
	int r;

	if (argc != 3 || strlen(argv[2]) >= sizeof(rec->tag)) {
		ti->error = "A device, a start sector and a short tag are needed";
		return -EINVAL;
	}
	rec = kzalloc(sizeof(*rec), GFP_KERNEL);
	if (!rec) {
		ti->error = "Cannot allocate the recorder";
		return -ENOMEM;
	}
	strscpy(rec->tag, argv[2], sizeof(rec->tag));
	r = make_log();
	if (!r)
		r = bioset_init(&rec->bios, BIO_POOL_SIZE, 0, BIOSET_NEED_BVECS);
	if (r) {
		ti->error = "Cannot allocate the log";
		goto free_recorder;
	}
	r = dm_set_target_max_io_len(ti, MAX_IO_SECTORS);
	if (!r)
		r = td_dev_init(&rec->td, ti, argv, sizeof(struct rio));
	if (r)
		goto exit_bios;
	mutex_lock(&log_mutex);
	rec->nr = nr_devices;
	r = add_text(rec, REC_DEVICE, ti->len, rec->tag);
	if (!r)
		nr_devices++;
	mutex_unlock(&log_mutex);
	if (r) {
		ti->error = "The log is full";
		goto exit_dev;
	}
	return 0;

exit_dev:
	td_dev_exit(&rec->td);
exit_bios:
	bioset_exit(&rec->bios);
free_recorder:
	kfree(rec);
	return r;
}

static void rec_dtr(struct dm_target *ti)
{
	struct recorder *rec = ti->private;

	td_dev_exit(&rec->td);
	bioset_exit(&rec->bios);
	kfree(rec);
}

static int rec_message(struct dm_target *ti, unsigned int argc, char **argv,
		       char *result, unsigned int maxlen)
{
	if (argc != 2 || strcmp(argv[0], "mark"))
		return -EINVAL;
	return add_text(ti->private, REC_MARK, 0, argv[1]);
}

static void rec_status(struct dm_target *ti, status_type_t type, unsigned int status_flags,
		       char *result, unsigned int maxlen)
{
	struct recorder *rec = ti->private;
	unsigned int sz = 0;

	switch (type) {
	case STATUSTYPE_INFO:
		DMEMIT("%zu %zu %s", records.size / sizeof(struct rec_record),
		       (size_t)data.size, full ? "full" : "on");
		break;
	case STATUSTYPE_TABLE:
		DMEMIT("%s %llu %s", rec->td.dev->name, (unsigned long long)rec->td.start,
		       rec->tag);
		break;
	case STATUSTYPE_IMA:
		*result = '\0';
		break;
	}
}

struct target_type td_recorder_target = {
	.name = "recorder",
	.version = {1, 0, 0},
	.module = THIS_MODULE,
	.ctr = rec_ctr,
	.dtr = rec_dtr,
	.map = rec_map,
	.end_io = rec_end_io,
	.message = rec_message,
	.status = rec_status,
	.iterate_devices = td_iterate_devices,
};
