// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>

#include "disks.h"
#include "errors.h"

#define MAX_DISKS 64

static struct disk *disks[MAX_DISKS];
static int nr_disks;

static void *need(void *p)
{
	if (!p)
		abort();
	return p;
}

void disk_init(struct disk *d, const char *image, const char *name, u64 sectors)
{
	u64 blocks = DIV_ROUND_UP(sectors, DISK_BLOCK / 512);

	memset(d, 0, sizeof(*d));
	d->size = sectors;
	d->bytes = need(calloc(blocks, DISK_BLOCK));
	d->touched = need(calloc(blocks, sizeof(*d->touched)));
	d->is_touched = need(calloc(blocks, sizeof(*d->is_touched)));
	if (nr_disks == MAX_DISKS)
		abort();
	d->name = name;
	snprintf(d->device.path, sizeof(d->device.path), "%s/%s", image, name);
	d->device.fd = nr_disks;
	d->device.file = true;
	d->device.sectors = sectors;
	d->device.logical_sectors = 1;
	disks[nr_disks++] = d;
}

void disk_keep(struct disk *d)
{
	if (!d->pristine)
		d->pristine = need(malloc(d->size * 512));
	memcpy(d->pristine, d->bytes, d->size * 512);
	disk_reset(d);
}

void disk_reset(struct disk *d)
{
	u32 i;

	for (i = 0; i < d->nr_touched; i++) {
		size_t at = (size_t)d->touched[i] * DISK_BLOCK;

		memcpy(d->bytes + at, d->pristine + at, min_t(size_t, DISK_BLOCK,
							       d->size * 512 - at));
		d->is_touched[d->touched[i]] = false;
	}
	d->nr_touched = 0;
	d->device.sectors = d->size;
}

static bool within(const struct disk *d, u64 sector, size_t len)
{
	u64 sectors = min_t(u64, d->device.sectors, d->size);

	return !d->dead && sector <= sectors && len <= (sectors - sector) * 512;
}

void *disk_change(struct disk *d, u64 sector, size_t len)
{
	u64 block;

	if (!within(d, sector, len))
		return NULL;
	for (block = sector * 512 / DISK_BLOCK; block * DISK_BLOCK < sector * 512 + len; block++) {
		if (!d->is_touched[block])
			d->touched[d->nr_touched++] = block;
		d->is_touched[block] = true;
	}
	return d->bytes + sector * 512;
}

int disk_read(struct disk *d, u64 sector, void *to, size_t len)
{
	if (!within(d, sector, len))
		return -EIO;
	memcpy(to, d->bytes + sector * 512, len);
	return 0;
}

int disk_write(struct disk *d, u64 sector, const void *from, size_t len)
{
	void *to = disk_change(d, sector, len);

	d->writes++;
	if (!to)
		return -EIO;
	memcpy(to, from, len);
	return 0;
}

/* ---- functions for the tools ------------------------------------------------ */

int hybrid_device_open(struct hybrid_device *dev, const char *path, unsigned int flags)
{
	int i;

	for (i = 0; i < nr_disks; i++)
		if (!strcmp(disks[i]->device.path, path)) {
			*dev = disks[i]->device;
			return 0;
		}
	return HYBRID_BADDEV;
}

int hybrid_device_reopen(struct hybrid_device *dev, unsigned int flags)
{
	return 0;
}

void hybrid_device_close(struct hybrid_device *dev)
{
	dev->fd = -1;
}

static struct disk *disk_of(const struct hybrid_device *dev)
{
	return disks[dev->fd];
}

int hybrid_device_read(const struct hybrid_device *dev, uint64_t sector, void *buf, size_t len)
{
	return disk_read(disk_of(dev), sector, buf, len);
}

int hybrid_device_write(const struct hybrid_device *dev, uint64_t sector, const void *buf,
			size_t len)
{
	return disk_write(disk_of(dev), sector, buf, len);
}

int hybrid_device_zero(const struct hybrid_device *dev, uint64_t sector, uint64_t sectors)
{
	void *at = disk_change(disk_of(dev), sector, sectors * 512);

	if (!at)
		return -EIO;
	memset(at, 0, sectors * 512);
	return 0;
}

int hybrid_device_flush(const struct hybrid_device *dev)
{
	return 0;
}

void *hybrid_buffer(size_t len)
{
	void *buf = fuzz_large(len);

	return buf ? memset(buf, 0, len) : NULL;
}

/* No disk is another one, has or is a partition, or is recognised by its contents. */
int hybrid_devices_distinct(const char *a, const char *b, bool force)
{
	return 0;
}

bool hybrid_devno_has_partitions(dev_t devno)
{
	return false;
}

bool hybrid_sysfs_holders(dev_t devno, char *buf, size_t len)
{
	return false;
}

bool hybrid_device_in_array(const struct hybrid_device *dev, char *type, size_t len)
{
	return false;
}

int hybrid_check_no_part(const struct hybrid_device *dev)
{
	return 0;
}

bool hybrid_sysfs_partition(dev_t devno)
{
	return false;
}

bool hybrid_device_identity(const struct hybrid_device *dev, char *buf, size_t len)
{
	return false;
}

bool hybrid_device_own_identity(const struct hybrid_device *dev, char *buf, size_t len)
{
	return false;
}

void hybrid_device_identities(const struct hybrid_device *dev, struct hybrid_identities *ids)
{
	ids->nr = 0;
}

bool hybrid_identities_have(const struct hybrid_identities *ids, const uint8_t uuid[16])
{
	return false;
}

dev_t hybrid_sysfs_snapshot_of(dev_t devno)
{
	return 0;
}
