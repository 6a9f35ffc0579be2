// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * import: makes a volume in place of data that another cache had, and takes that cache off.
 *
 * LVM's dm-cache: see lvm.c.  The logical volume is then an ordinary one.
 *
 * bcache: its superblock stands before the data, usually in 8 KiB; from there on the data is an origin in
 * place.  The order: the pool's entry with that offset, durably; the superblock goes; the volume starts.
 * If import is cut short before the second step, the device is bcache's as before, and import given again
 * replaces the entry.  After that step, activate finds the volume.
 */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "common.h"
#include "create.h"
#include "errors.h"
#include "look.h"
#include "lvm.h"
#include "new-volume.h"
#include "sysfs.h"

/* struct cache_sb_disk of Linux's drivers/md/bcache */
#define BCACHE_SB_SECTOR	8
#define BCACHE_DATA_SECTOR	16	/* of a backing device whose superblock names none */

#define BCACHE_BDEV		1
#define BCACHE_BDEV_OFFSET	4
#define BCACHE_BDEV_FEATURES	6

#define BCACHE_STATE_SHIFT	61
#define BCACHE_DIRTY		2
#define BCACHE_STALE		3

struct bcache_sb {
	uint64_t csum, offset, version;
	uint8_t magic[16], uuid[16], set_uuid[16], label[32];
	uint64_t flags, seq, pad[8], data_offset;
};

_Static_assert(sizeof(struct bcache_sb) == 192, "its place of data_offset");

/* Prints the state of a running bcache, as the kernel reports it, and the steps to take. */
static int fail_running(const struct hybrid_device *dev, const char *state, const char *dirty)
{
	unsigned int a = major(dev->devno), b = minor(dev->devno);
	char detach[128] = "", next[256];

	if (strcmp(state, "no cache"))
		snprintf(detach, sizeof(detach),
			 "echo 1 >/sys/dev/block/%u:%u/bcache/detach; when its state is \"no cache\": ", a, b);
	snprintf(next, sizeof(next), "unmount it; %secho 1 >/sys/dev/block/%u:%u/bcache/stop", detach, a, b);
	return hybrid_fail(HYBRID_BUSY, next, "%s is in use by bcache: its state is \"%s\", and its cache has %s of dirty data",
			   dev->path, state, dirty);
}

static int check_bcache_state(const struct hybrid_device *dev, const struct bcache_sb *sb)
{
	unsigned int state = le64toh(sb->flags) >> BCACHE_STATE_SHIFT & 3;
	char set[HYBRID_UUID_TEXT];

	if (state != BCACHE_DIRTY && state != BCACHE_STALE)
		return 0;
	hybrid_uuid_text(set, sb->set_uuid);
	if (state == BCACHE_STALE)
		return hybrid_fail(HYBRID_REFUSED,
				   "check its data; once the data is sound, start bcache and stop it",
				   "%s ran without its cache (set %s), which had newer data: its state is stale",
				   dev->path, set);
	return hybrid_fail(HYBRID_REFUSED,
			   "start bcache (bcache-register both devices), then detach and stop it: echo 1 >/sys/block/bcacheN/bcache/detach, stop",
			   "%s: its bcache cache (set %s) has newer data: its state is dirty", dev->path,
			   set);
}

static int check_bcache(const struct hybrid_device *dev, const struct bcache_sb *sb, uint64_t *data_sector)
{
	uint64_t version = le64toh(sb->version), offset = le64toh(sb->data_offset);

	if (version != BCACHE_BDEV && version != BCACHE_BDEV_OFFSET && version != BCACHE_BDEV_FEATURES)
		return hybrid_fail(HYBRID_REFUSED, "give the backing device; detach it from this one",
				   "%s is a cache device of bcache, not a backing device (superblock version %llu)",
				   dev->path, (unsigned long long)version);
	*data_sector = version == BCACHE_BDEV ? BCACHE_DATA_SECTOR : offset;
	if (*data_sector < BCACHE_DATA_SECTOR || *data_sector % HYBRID_META_BLOCK_SECTORS ||
	    *data_sector >= dev->sectors)
		return hybrid_fail(HYBRID_REFUSED, NULL,
				   "%s: its data would begin at sector %llu of %llu, not at a multiple of 8 from 16 on",
				   dev->path, (unsigned long long)*data_sector, (unsigned long long)dev->sectors);
	return check_bcache_state(dev, sb);
}

/* Finds the identities that the device has when the superblock of bcache is gone, too. */
static int find_identities(const struct hybrid_device *dev, struct hybrid_identities *ids)
{
	char identity[HYBRID_PATH_MAX + 64], found[64];

	if (hybrid_device_has_other(dev, "bcache", found, sizeof(found)))
		return hybrid_fail(HYBRID_REFUSED, "see which is out of date, and remove it (wipefs)",
				   "%s has another signature besides the superblock of bcache: %s", dev->path, found);
	if (!hybrid_device_own_identity(dev, identity, sizeof(identity)))
		return hybrid_fail(HYBRID_REFUSED, "use a partition of a GPT, or a logical volume",
				   "%s has no serial number or UUID of its own: it would not be recognised",
				   dev->path);
	hybrid_device_identities(dev, ids);
	return 0;
}

static int import_bcache(const struct command_line *cl, const struct hybrid_device *dev)
{
	struct other_cache other = { .type = "bcache", .sector = BCACHE_SB_SECTOR };
	struct command_line create = *cl;
	int r;

	other.block = hybrid_buffer(HYBRID_META_BLOCK_SIZE);
	if (!other.block)
		return hybrid_nomem();
	r = hybrid_device_read(dev, BCACHE_SB_SECTOR, other.block, HYBRID_META_BLOCK_SIZE);
	if (r)
		r = hybrid_fail(HYBRID_BADDEV, "check the device and the kernel log", "%s: cannot read: %s",
				dev->path, strerror(-r));
	if (!r)
		r = check_bcache(dev, other.block, &other.data_sector);
	if (!r)
		r = find_identities(dev, &other.identities);
	create.given[OPT_IN_PLACE] = true;
	if (!r)
		r = create_volume(&create, &other);
	if (!r && !cl->given[OPT_TEST])
		hybrid_note("its data begins at sector %llu of %s: without dm-hybrid, dmsetup create %s --table '0 %llu linear %s %llu'",
			    (unsigned long long)other.data_sector, dev->path, cl->argv[0],
			    (unsigned long long)(dev->sectors - other.data_sector), dev->path,
			    (unsigned long long)other.data_sector);
	free(other.block);
	return r;
}

/* Imports from a block device that is no logical volume. */
static int import_device(const struct command_line *cl, const char *path)
{
	char type[64] = "", state[64], dirty[64];
	struct hybrid_device dev;
	int r;

	r = hybrid_device_answers(path);
	if (!r)
		r = hybrid_device_open(&dev, path, cl->given[OPT_TEST] ? HYBRID_OPEN_FILES : 0);
	if (r)
		return r;
	if (!dev.file && hybrid_sysfs_bcache(dev.devno, state, dirty, sizeof(state)))
		r = fail_running(&dev, state, dirty);
	else if (!hybrid_device_in_array(&dev, type, sizeof(type)))
		r = hybrid_fail(HYBRID_REFUSED, "hybridctl create --in-place caches its data",
				"%s has no cache of LVM or bcache", path);
	else if (strcmp(type, "bcache"))
		r = hybrid_fail(HYBRID_REFUSED, "cache the resulting device (the logical volume, the array)",
				"%s is part of a device that is not a cache (%s)", path, type);
	else
		r = import_bcache(cl, &dev);
	hybrid_device_close(&dev);
	return r;
}

int command_import(const struct command_line *cl)
{
	const char *path = cl->value[OPT_ORIGIN];
	struct stat st;

	if (!path)
		return hybrid_fail(HYBRID_USAGE, "give it with --origin DEVICE", "no origin given for %s",
				   cl->argv[0]);
	if (!cl->value[OPT_CACHE] && !cl->value[OPT_POOL])
		return hybrid_fail(HYBRID_USAGE, "give the fast device (--cache) or an active pool (--pool)",
				   "%s has no cache", cl->argv[0]);
	if (stat(path, &st) ? lvm_is_name(path) : S_ISBLK(st.st_mode) && hybrid_sysfs_lvm(st.st_rdev))
		return import_lvm(cl, path);
	return import_device(cl, path);
}
