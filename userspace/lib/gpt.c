// SPDX-License-Identifier: GPL-2.0-or-later
#define _GNU_SOURCE
#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <libfdisk/libfdisk.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "errors.h"
#include "gpt.h"
#include "units.h"

#define ENTRIES_SIZE	16384	/* 128 of 128 bytes, the least to reserve */
#define REREAD_TRIES	20
#define REREAD_PAUSE_MS	100

/* Sectors of a table without its protective MBR: a header and the entries. */
static uint64_t table_sectors(const struct hybrid_device *dev)
{
	return dev->logical_sectors + ENTRIES_SIZE / 512;
}

int hybrid_gpt_check(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	uint64_t head = dev->logical_sectors + table_sectors(dev);
	uint64_t tail = dev->sectors - table_sectors(dev);
	uint64_t end = sb->data_sector + sb->data_sectors;
	uint64_t tail_sb = hybrid_sb_sector(sb->member_sectors, 1) + HYBRID_META_BLOCK_SECTORS;

	if (sb->data_sector % dev->logical_sectors || sb->data_sectors % dev->logical_sectors)
		return hybrid_fail(HYBRID_REFUSED, NULL,
				   "%s has sectors of %u bytes: no partition can have the bounds of its data, sectors %llu to %llu of 512 bytes",
				   dev->path, dev->logical_sectors * 512, (unsigned long long)sb->data_sector,
				   (unsigned long long)end - 1);
	if (head <= HYBRID_SB_SECTOR && head <= sb->data_sector && tail >= tail_sb && tail >= end)
		return 0;
	return hybrid_fail(HYBRID_REFUSED, NULL,
			   "%s: no room for a partition table, which needs the first %llu sectors and the last %llu: the data is in sectors %llu to %llu of %llu",
			   dev->path, (unsigned long long)head, (unsigned long long)table_sectors(dev),
			   (unsigned long long)sb->data_sector, (unsigned long long)end - 1,
			   (unsigned long long)dev->sectors);
}

/* The libraries' reads and writes are not aligned, so they get a descriptor without O_DIRECT. */
static int open_buffered(const struct hybrid_device *dev, int mode)
{
	char self[64];
	int fd;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", dev->fd);
	fd = open(self, mode | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static struct fdisk_context *open_context(const struct hybrid_device *dev, int fd)
{
	struct fdisk_context *cxt = fdisk_new_context();

	if (!cxt)
		return NULL;
	fdisk_disable_dialogs(cxt, 1);
	if (!fdisk_assign_device_by_fd(cxt, fd, dev->path, 0))
		return cxt;
	fdisk_unref_context(cxt);
	return NULL;
}

/* Describes the partition; NULL: no memory. */
static struct fdisk_partition *describe(struct fdisk_context *cxt, const struct hybrid_device *dev,
					const struct hybrid_sb *sb)
{
	struct fdisk_partition *part = fdisk_new_partition();
	struct fdisk_parttype *type =
		fdisk_label_get_parttype_from_string(fdisk_get_label(cxt, "gpt"), HYBRID_GPT_LINUX);
	char uuid[HYBRID_UUID_TEXT];

	if (!part || !type ||
	    fdisk_partition_set_partno(part, 0) ||
	    fdisk_partition_set_start(part, sb->data_sector / dev->logical_sectors) ||
	    fdisk_partition_set_size(part, sb->data_sectors / dev->logical_sectors) ||
	    fdisk_partition_size_explicit(part, 1) ||
	    fdisk_partition_set_type(part, type) ||
	    fdisk_partition_set_uuid(part, hybrid_uuid_text(uuid, sb->volume_uuid)) ||
	    fdisk_partition_set_name(part, sb->name)) {
		fdisk_unref_partition(part);
		part = NULL;
	}
	return part;
}

/* Checks that the partition is as described, and that nothing was rounded. */
static int check_partition(struct fdisk_context *cxt, const struct hybrid_device *dev,
			   const struct hybrid_sb *sb)
{
	struct fdisk_partition *part = NULL;
	int r = fdisk_get_partition(cxt, 0, &part);

	if (!r && (fdisk_get_sector_size(cxt) != dev->logical_sectors * 512UL ||
		   fdisk_partition_get_start(part) != sb->data_sector / dev->logical_sectors ||
		   fdisk_partition_get_size(part) != sb->data_sectors / dev->logical_sectors))
		r = -ERANGE;
	fdisk_unref_partition(part);
	return r;
}

/* In memory. */
static int make_table(struct fdisk_context *cxt, const struct hybrid_device *dev,
		      const struct hybrid_sb *sb)
{
	struct fdisk_partition *part;
	char uuid[HYBRID_UUID_TEXT];
	int r;

	r = fdisk_create_disklabel(cxt, "gpt");
	if (!r)
		r = fdisk_set_disklabel_id_from_string(cxt, hybrid_uuid_text(uuid, sb->member_uuid));
	if (r)
		return r;
	part = describe(cxt, dev, sb);
	r = part ? fdisk_add_partition(cxt, part, NULL) : -ENOMEM;
	fdisk_unref_partition(part);
	return r ? r : check_partition(cxt, dev, sb);
}

int hybrid_gpt_write(const struct hybrid_device *dev, const struct hybrid_sb *sb)
{
	int fd = open_buffered(dev, O_RDWR);
	struct fdisk_context *cxt = fd < 0 ? NULL : open_context(dev, fd);
	int r = cxt ? make_table(cxt, dev, sb) : fd < 0 ? fd : -EIO;

	if (!r)
		r = fdisk_write_disklabel(cxt);
	if (!r && fsync(fd))
		r = -errno;
	if (cxt) {
		fdisk_deassign_device(cxt, 1);
		fdisk_unref_context(cxt);
	}
	if (fd >= 0)
		close(fd);
	if (!r)
		return 0;
	return hybrid_fail(hybrid_exit_of_errno(-r), "check the device and the kernel log",
			   "%s: cannot write a partition table: %s", dev->path, strerror(-r));
}

bool hybrid_gpt_there(const struct hybrid_device *dev)
{
	int fd = open_buffered(dev, O_RDONLY);
	blkid_probe probe = blkid_new_probe();
	const char *type;
	bool found = false;

	if (fd >= 0 && probe && !blkid_probe_set_device(probe, fd, 0, 0)) {
		blkid_probe_enable_superblocks(probe, 0);
		blkid_probe_enable_partitions(probe, 1);
		found = !blkid_do_safeprobe(probe) &&
			!blkid_probe_lookup_value(probe, "PTTYPE", &type, NULL) && !strcmp(type, "gpt");
	}
	blkid_free_probe(probe);
	if (fd >= 0)
		close(fd);
	return found;
}

/* udev may look at a partition at this very moment. */
int hybrid_gpt_reread(const struct hybrid_device *dev)
{
	struct timespec pause = { .tv_nsec = REREAD_PAUSE_MS * 1000000L };
	unsigned int tries;

	for (tries = 1; ioctl(dev->fd, BLKRRPART); tries++) {
		if (errno != EBUSY || tries == REREAD_TRIES)
			return -errno;
		nanosleep(&pause, NULL);
	}
	return 0;
}

char *hybrid_gpt_partition(const char *disk, char *buf, size_t len)
{
	char *name = fdisk_partname(disk, 1);

	snprintf(buf, len, "%s", name ? name : disk);
	free(name);
	return buf;
}
