/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef DM_TESTDISK_H
#define DM_TESTDISK_H

#include <linux/bio.h>
#include <linux/debugfs.h>
#include <linux/device-mapper.h>

/*
 * Shared by the test targets: a device, and a log of operations with one
 * order over all test devices.
 */

/* First member of every target's struct, to which ti->private points. */
struct td_dev {
	struct dm_target *ti;
	struct dm_dev *dev;
	sector_t start;
	char name[32];		/* the dm name, for the log */
};

/* First member of every target's per-bio data. */
struct td_io {
	u64 id;			/* of the start record; 0: was not logged */
	sector_t sector;
	unsigned int count;
	char op;
};

/*
 * Takes dev and start from argv[0] and argv[1], and prepares @ti for one bio of each kind with
 * @io_size bytes of data.  Sets ti->error on failure.
 */
int td_dev_init(struct td_dev *td, struct dm_target *ti, char **argv, unsigned int io_size);
void td_dev_exit(struct td_dev *td);
int td_parse_u64(struct dm_target *ti, const char *arg, u64 min, u64 max, u64 *result);

/* For struct target_type: the log's part of end_io and message, and all of iterate_devices. */
int td_end_io(struct dm_target *ti, struct bio *bio, blk_status_t *error);
int td_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
	       unsigned int maxlen);
int td_iterate_devices(struct dm_target *ti, iterate_devices_callout_fn fn, void *data);

/* Record in map() and in end_io(); both may be called from any context. */
void td_log_start(struct td_dev *td, struct bio *bio);
void td_log_end(struct td_dev *td, struct bio *bio, blk_status_t status);
/* "log on|off|clear"; returns -EINVAL if this is not for the log. */
int td_log_message(unsigned int argc, char **argv);
/* A file beside the log that shows @blob. */
void td_log_blob(const char *name, struct debugfs_blob_wrapper *blob);
int td_log_init(void);
void td_log_exit(void);
void td_recorder_exit(void);

/* Sector on the backing device. */
static inline sector_t td_remap(struct td_dev *td, sector_t sector)
{
	return td->start + dm_target_offset(td->ti, sector);
}

extern struct target_type td_hddsim_target;
extern struct target_type td_recorder_target;
extern struct target_type td_ssdsim_target;
extern struct target_type td_volatile_target;

#endif
