// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-testdisk: device-mapper targets for tests and benchmarks only.
 *
 * hddsim and ssdsim give any device the timing of a rotating disk or a flash
 * device; volatile gives it a write cache that is lost with the machine; recorder
 * records all changes of it.
 */
#include <linux/module.h>
#include "testdisk.h"

#define DM_MSG_PREFIX "testdisk"

int td_parse_u64(struct dm_target *ti, const char *arg, u64 min, u64 max, u64 *result)
{
	if (kstrtou64(arg, 10, result) || *result < min || *result > max) {
		ti->error = "Number missing or out of range";
		return -EINVAL;
	}
	return 0;
}

int td_dev_init(struct td_dev *td, struct dm_target *ti, char **argv, unsigned int io_size)
{
	char name[DM_NAME_LEN];
	u64 start;
	int r;

	r = td_parse_u64(ti, argv[1], 0, U64_MAX >> SECTOR_SHIFT, &start);
	if (r)
		return r;
	r = dm_get_device(ti, argv[0], dm_table_get_mode(ti->table), &td->dev);
	if (r) {
		ti->error = "Backing device lookup failed";
		return r;
	}
	td->ti = ti;
	td->start = start;
	if (dm_copy_name_and_uuid(dm_table_get_md(ti->table), name, NULL))
		strscpy(name, "?", sizeof(name));
	strscpy(td->name, name, sizeof(td->name));
	ti->num_flush_bios = 1;
	ti->flush_supported = true;
	ti->num_discard_bios = 1;
	ti->num_write_zeroes_bios = 1;
	ti->per_io_data_size = io_size;
	ti->private = td;
	return 0;
}

void td_dev_exit(struct td_dev *td)
{
	dm_put_device(td->ti, td->dev);
}

int td_end_io(struct dm_target *ti, struct bio *bio, blk_status_t *error)
{
	td_log_end(ti->private, bio, *error);
	return DM_ENDIO_DONE;
}

int td_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
	       unsigned int maxlen)
{
	return td_log_message(argc, argv);
}

int td_iterate_devices(struct dm_target *ti, iterate_devices_callout_fn fn, void *data)
{
	struct td_dev *td = ti->private;

	return fn(ti, td->dev, td->start, ti->len, data);
}

static struct target_type *targets[] = {
	&td_hddsim_target,
	&td_recorder_target,
	&td_ssdsim_target,
	&td_volatile_target,
};

static int __init testdisk_init(void)
{
	unsigned int i;
	int r;

	r = td_log_init();
	if (r)
		return r;
	for (i = 0; i < ARRAY_SIZE(targets); i++) {
		r = dm_register_target(targets[i]);
		if (r)
			goto bad;
	}
	return 0;

bad:
	while (i--)
		dm_unregister_target(targets[i]);
	td_log_exit();
	return r;
}

static void __exit testdisk_exit(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(targets); i++)
		dm_unregister_target(targets[i]);
	td_log_exit();
	td_recorder_exit();
}

module_init(testdisk_init);
module_exit(testdisk_exit);

MODULE_DESCRIPTION("Device-mapper targets for tests");
MODULE_AUTHOR("The dm-hybrid authors");
MODULE_LICENSE("GPL");
