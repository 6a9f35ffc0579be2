// SPDX-License-Identifier: GPL-2.0-or-later
#define _GNU_SOURCE
#include <blkid/blkid.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/blkzoned.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "devices.h"
#include "errors.h"
#include "sysfs.h"
#include "units.h"

#define IO_ALIGN	4096
#define ZERO_CHUNK	(1U << 20)

static bool is_block(const struct stat *st)
{
	return S_ISBLK(st->st_mode);
}

/* The error of an exclusive open names the device's user. */
static int fail_busy(const char *path, dev_t devno)
{
	char where[HYBRID_PATH_MAX];

	if (hybrid_devno_mounted(devno, where, sizeof(where)))
		return hybrid_fail(HYBRID_BUSY, "unmount it first", "%s is mounted at %s", path,
				   where);
	if (hybrid_sysfs_holders(devno, where, sizeof(where)))
		return hybrid_fail(HYBRID_BUSY, "stop its users first (see lsblk)",
				   "%s is in use by %s", path, where);
	return hybrid_fail(HYBRID_BUSY, "see lsblk, swapon --show and fuser for its user",
			   "%s is in use", path);
}

static int fail_open(const char *path, const struct stat *st, unsigned int flags)
{
	int err = errno;

	if (flags & HYBRID_OPEN_QUIET)
		return hybrid_exit_of_errno(err);
	switch (err) {
	case EBUSY:
		return fail_busy(path, st->st_rdev);
	case EPERM:
	case EACCES:
		return hybrid_fail(HYBRID_REFUSED, "run this as root", "%s: no permission", path);
	case EROFS:
		return hybrid_fail(HYBRID_REFUSED, "make it writable (blockdev --setrw)",
				   "%s is read-only", path);
	default:
		return hybrid_fail(hybrid_exit_of_errno(err), "check the path and the device",
				   "%s: cannot open: %s", path, strerror(err));
	}
}

/* Returns 0, or -1 and sets errno. */
static int device_limits(struct hybrid_device *dev, const struct stat *st, unsigned int flags)
{
	unsigned int opt = 0, zone;
	int logical, readonly;

	dev->logical_sectors = 1;
	if (dev->file) {
		dev->sectors = st->st_size / 512;
		return 0;
	}
	if (ioctl(dev->fd, BLKGETSIZE64, &dev->sectors))
		return -1;
	dev->sectors /= 512;
	/* Some kernels let it be opened for writing, and refuse each write */
	if (flags & HYBRID_OPEN_WRITE && !ioctl(dev->fd, BLKROGET, &readonly) && readonly) {
		errno = EROFS;
		return -1;
	}
	if (!ioctl(dev->fd, BLKSSZGET, &logical) && logical >= 512)
		dev->logical_sectors = logical / 512;
	dev->zoned = !ioctl(dev->fd, BLKGETZONESZ, &zone) && zone;
	if (!ioctl(dev->fd, BLKIOOPT, &opt))
		dev->optimal_sectors = opt / 512;
	return 0;
}

static int open_fd(const char *path, const struct stat *st, unsigned int flags)
{
	int mode = flags & HYBRID_OPEN_WRITE ? O_RDWR : O_RDONLY;

	if (!is_block(st))
		return open(path, mode | O_CLOEXEC);
	if (flags & HYBRID_OPEN_EXCLUSIVE)
		mode |= O_EXCL;
	return open(path, mode | O_CLOEXEC | O_DIRECT);
}

static int check_kind(const char *path, const struct stat *st, unsigned int flags)
{
	if (is_block(st) || (S_ISREG(st->st_mode) && flags & HYBRID_OPEN_FILES))
		return 0;
	if (flags & HYBRID_OPEN_QUIET)
		return HYBRID_BADDEV;
	if (S_ISREG(st->st_mode))
		return hybrid_fail(HYBRID_BADDEV, "make a loop device of it (losetup)",
				   "%s is a file, not a block device", path);
	return hybrid_fail(HYBRID_BADDEV, "give a block device such as /dev/sdb",
			   "%s is not a block device", path);
}

int hybrid_device_open(struct hybrid_device *dev, const char *path, unsigned int flags)
{
	struct stat before, st;
	int r;

	memset(dev, 0, sizeof(*dev));
	dev->fd = -1;
	snprintf(dev->path, sizeof(dev->path), "%s", path);
	if (strlen(path) >= sizeof(dev->path)) {
		errno = ENAMETOOLONG;
		return fail_open(path, NULL, flags);
	}
	if (stat(path, &before))
		return fail_open(path, NULL, flags);
	r = check_kind(path, &before, flags);
	if (r)
		return r;
	dev->fd = open_fd(path, &before, flags);
	if (dev->fd < 0)
		return fail_open(path, &before, flags);

	/* The path may have been made to lead elsewhere in between */
	if (fstat(dev->fd, &st) || st.st_rdev != before.st_rdev ||
	    (st.st_mode & S_IFMT) != (before.st_mode & S_IFMT)) {
		hybrid_device_close(dev);
		return hybrid_fail(HYBRID_BADDEV, "try again", "%s changed while it was opened",
				   path);
	}
	dev->file = !is_block(&st);
	dev->devno = dev->file ? 0 : st.st_rdev;
	if (device_limits(dev, &st, flags)) {
		r = fail_open(path, &st, flags);
		hybrid_device_close(dev);
	}
	return r;
}

void hybrid_device_close(struct hybrid_device *dev)
{
	bool written = !dev->file && hybrid_device_writable(dev);

	if (dev->fd >= 0)
		close(dev->fd);
	dev->fd = -1;
	if (written)
		hybrid_sysfs_uevent(dev->devno, "change");
}

int hybrid_device_reopen(struct hybrid_device *dev, unsigned int flags)
{
	struct hybrid_device again;
	int r;

	hybrid_device_close(dev);
	r = hybrid_device_open(&again, dev->path, flags);
	if (r)
		return r;
	if (again.devno != dev->devno || again.file != dev->file ||
	    again.sectors != dev->sectors) {
		hybrid_device_close(&again);
		return hybrid_fail(HYBRID_BADDEV, "check the devices and start over",
				   "%s is not the device it was a moment ago", dev->path);
	}
	*dev = again;
	return 0;
}

bool hybrid_device_writable(const struct hybrid_device *dev)
{
	return dev->fd >= 0 && (fcntl(dev->fd, F_GETFL) & O_ACCMODE) == O_RDWR;
}

int hybrid_device_read(const struct hybrid_device *dev, uint64_t sector, void *buf, size_t len)
{
	ssize_t n = pread(dev->fd, buf, len, sector * 512);

	/* A device may fail with ENODATA (a bad medium), but here that means "nothing there" */
	if (n < 0)
		return errno == ENOMEM ? -ENOMEM : -EIO;
	return (size_t)n == len ? 0 : -EIO;
}

int hybrid_device_write(const struct hybrid_device *dev, uint64_t sector, const void *buf,
			size_t len)
{
	ssize_t n = pwrite(dev->fd, buf, len, sector * 512);

	if (n < 0)
		return -errno;
	return (size_t)n == len ? 0 : -EIO;
}

int hybrid_device_zero(const struct hybrid_device *dev, uint64_t sector, uint64_t sectors)
{
	void *zero = hybrid_buffer(ZERO_CHUNK);
	uint64_t n;
	int r = zero ? 0 : -ENOMEM;

	while (!r && sectors) {
		n = sectors < ZERO_CHUNK / 512 ? sectors : ZERO_CHUNK / 512;
		r = hybrid_device_write(dev, sector, zero, n * 512);
		sector += n;
		sectors -= n;
	}
	free(zero);
	return r;
}

int hybrid_device_flush(const struct hybrid_device *dev)
{
	return fsync(dev->fd) ? -errno : 0;
}

int hybrid_device_discard(const struct hybrid_device *dev, uint64_t sector, uint64_t sectors)
{
	uint64_t range[2] = { sector * 512, sectors * 512 };

	return ioctl(dev->fd, BLKDISCARD, range) ? -errno : 0;
}

void *hybrid_buffer(size_t len)
{
	void *buf;

	if (posix_memalign(&buf, IO_ALIGN, len))
		return NULL;
	return memset(buf, 0, len);
}

/* Signatures --------------------------------------------------------------- */

static const char *probe_value(blkid_probe probe, const char *name)
{
	const char *value;

	return blkid_probe_lookup_value(probe, name, &value, NULL) ? NULL : value;
}

static void print_signature(FILE *out, blkid_probe probe)
{
	const char *type = probe_value(probe, "TYPE");
	const char *pttype = probe_value(probe, "PTTYPE");
	const char *usage = probe_value(probe, "USAGE");
	const char *label = probe_value(probe, "LABEL");
	const char *uuid = probe_value(probe, "UUID");

	if (type)
		fprintf(out, "%s %s", type, usage ? usage : "signature");
	else if (pttype)
		fprintf(out, "%s partition table", pttype);
	else
		return;
	if (label)
		fprintf(out, ", label \"%s\"", label);
	if (uuid)
		fprintf(out, ", uuid %s", uuid);
	fputc('\n', out);
}

/*
 * blkid reads unaligned: give it a descriptor of its own, without O_DIRECT.  Pages that were read
 * before a volume wrote to the disk below them are out of date: drop them.
 */
static int open_buffered(const struct hybrid_device *dev)
{
	char self[64];
	int fd;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", dev->fd);
	fd = open(self, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return fd;
}

static blkid_probe open_probe(int fd)
{
	blkid_probe probe = blkid_new_probe();

	if (probe && blkid_probe_set_device(probe, fd, 0, 0)) {
		blkid_free_probe(probe);
		return NULL;
	}
	if (!probe)
		return NULL;
	blkid_probe_enable_superblocks(probe, 1);
	blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_LABEL | BLKID_SUBLKS_UUID |
					  BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE);
	blkid_probe_enable_partitions(probe, 1);
	return probe;
}

int hybrid_device_signatures(const struct hybrid_device *dev, char **text)
{
	blkid_probe probe = NULL;
	int fd, r = 0;
	size_t len;
	FILE *out;

	*text = NULL;
	fd = open_buffered(dev);
	if (fd >= 0)
		probe = open_probe(fd);
	out = open_memstream(text, &len);
	if (!out) {
		r = hybrid_nomem();
	} else if (!probe) {
		r = hybrid_fail(HYBRID_BADDEV, "check the device's cables and the kernel log",
				"%s: cannot look for signatures", dev->path);
	} else {
		while (blkid_do_probe(probe) == 0)
			print_signature(out, probe);
	}
	if (out)
		fclose(out);
	if (r) {
		free(*text);
		*text = NULL;
	}
	if (probe)
		blkid_free_probe(probe);
	if (fd >= 0)
		close(fd);
	return r;
}

/*
 * Whether other software assembles one device of several of this type.  libblkid has the usage
 * "raid" for most such types, but not for these.
 */
static bool is_assembled(const char *type, const char *usage)
{
	static const char * const others[] = { "zfs_member", "bcache", "stratis", "ceph_bluestore" };
	unsigned int i;

	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!strcmp(type, others[i]))
			return true;
	return !strcmp(usage, "raid");
}

bool hybrid_device_in_array(const struct hybrid_device *dev, char *type, size_t len)
{
	char ours[] = "dm_hybrid_member";
	char *names[] = { ours, NULL };
	int fd = open_buffered(dev);
	blkid_probe probe = fd >= 0 ? open_probe(fd) : NULL;
	const char *name;
	bool found = false;

	if (probe) {
		blkid_probe_enable_partitions(probe, 0);
		blkid_probe_filter_superblocks_type(probe, BLKID_FLTR_NOTIN, names);
		while (!found && blkid_do_probe(probe) == 0) {
			name = probe_value(probe, "TYPE") ?: "";
			found = is_assembled(name, probe_value(probe, "USAGE") ?: "");
			if (found)
				snprintf(type, len, "%s", name);
		}
		blkid_free_probe(probe);
	}
	if (fd >= 0)
		close(fd);
	return found;
}

int hybrid_check_no_part(const struct hybrid_device *dev)
{
	char type[64], next[HYBRID_PATH_MAX + 160];

	if (!hybrid_device_in_array(dev, type, sizeof(type)))
		return 0;
	snprintf(next, sizeof(next),
		 "assemble the array, and give that; wipefs --all --types %s %s, only if it is no part any more",
		 type, dev->path);
	return hybrid_fail(HYBRID_REFUSED, next, "%s is a part of an array (%s)", dev->path, type);
}

/* Identity of in-place origins --------------------------------------------- */

static bool filesystem_identity(const struct hybrid_device *dev, char *buf, size_t len)
{
	const char *type, *uuid;
	blkid_probe probe;
	bool found = false;
	int fd;

	fd = open_buffered(dev);
	if (fd < 0)
		return false;
	probe = open_probe(fd);
	if (probe && blkid_do_safeprobe(probe) == 0) {
		type = probe_value(probe, "TYPE");
		uuid = probe_value(probe, "UUID");
		found = type && uuid;
		if (found)
			snprintf(buf, len, "fs:%s:%s:%llu", type, uuid,
				 (unsigned long long)dev->sectors);
	}
	if (probe)
		blkid_free_probe(probe);
	close(fd);
	return found;
}

/*
 * From the table itself: the events of partitions have the UUID only if the kernel is new.  In a
 * table other than GPT, the UUID is a place in the table, and the first sector tells the partition
 * from another one that comes to that place.
 */
static bool partition_identity(const struct hybrid_device *dev, char *buf, size_t len)
{
	const char *uuid, *scheme, *start;
	blkid_probe probe;
	bool found = false;
	int fd;

	if (!hybrid_sysfs_partition(dev->devno))
		return false;
	fd = open_buffered(dev);
	if (fd < 0)
		return false;
	probe = open_probe(fd);
	if (probe) {
		blkid_probe_enable_superblocks(probe, 0);
		blkid_probe_set_partitions_flags(probe, BLKID_PARTS_ENTRY_DETAILS);
		if (blkid_do_safeprobe(probe) == 0) {
			uuid = probe_value(probe, "PART_ENTRY_UUID");
			scheme = probe_value(probe, "PART_ENTRY_SCHEME");
			start = probe_value(probe, "PART_ENTRY_OFFSET");
			found = uuid && scheme && start;
			if (found && !strcmp(scheme, "gpt"))
				snprintf(buf, len, "disk:PARTUUID=%s:%llu", uuid,
					 (unsigned long long)dev->sectors);
			else if (found)
				snprintf(buf, len, "disk:PARTUUID=%s@%s:%llu", uuid, start,
					 (unsigned long long)dev->sectors);
		}
		blkid_free_probe(probe);
	}
	close(fd);
	return found;
}

static bool disk_identity(const struct hybrid_device *dev, char *buf, size_t len)
{
	char id[HYBRID_PATH_MAX];

	if (!dev->devno || !hybrid_sysfs_disk_id(dev->devno, id, sizeof(id)))
		return false;
	snprintf(buf, len, "disk:%s:%llu", id, (unsigned long long)dev->sectors);
	return true;
}

bool hybrid_device_own_identity(const struct hybrid_device *dev, char *buf, size_t len)
{
	return partition_identity(dev, buf, len) || disk_identity(dev, buf, len);
}

bool hybrid_device_identity(const struct hybrid_device *dev, char *buf, size_t len)
{
	return filesystem_identity(dev, buf, len) || hybrid_device_own_identity(dev, buf, len);
}

void hybrid_device_identities(const struct hybrid_device *dev, struct hybrid_identities *ids)
{
	static bool (* const identities[HYBRID_IDENTITIES])(const struct hybrid_device *dev, char *buf,
							    size_t len) = {
		filesystem_identity, hybrid_device_own_identity,
	};
	char identity[HYBRID_PATH_MAX + 64];
	unsigned int i;

	ids->nr = 0;
	for (i = 0; i < HYBRID_IDENTITIES; i++)
		if (identities[i](dev, identity, sizeof(identity)))
			hybrid_uuid_of_identity(ids->uuid[ids->nr++], identity);
}

bool hybrid_identities_have(const struct hybrid_identities *ids, const uint8_t uuid[16])
{
	unsigned int i;

	for (i = 0; i < ids->nr; i++)
		if (!memcmp(ids->uuid[i], uuid, 16))
			return true;
	return false;
}

bool hybrid_device_has_other(const struct hybrid_device *dev, const char *type, char *found,
			     size_t len)
{
	int fd = open_buffered(dev);
	blkid_probe probe = fd >= 0 ? open_probe(fd) : NULL;
	const char *name = NULL;

	while (probe && !name && blkid_do_probe(probe) == 0) {
		name = probe_value(probe, "TYPE") ?: probe_value(probe, "PTTYPE");
		if (name && !strcmp(name, type))
			name = NULL;
		if (name)
			snprintf(found, len, "%s", name);
	}
	if (probe)
		blkid_free_probe(probe);
	if (fd >= 0)
		close(fd);
	return name;
}

/* Two devices -------------------------------------------------------------- */

int hybrid_devices_distinct(const char *a, const char *b, bool force)
{
	struct stat sa, sb;
	bool blocks;

	if (stat(a, &sa) || stat(b, &sb))
		return 0;
	blocks = is_block(&sa) && is_block(&sb);
	if (blocks ? sa.st_rdev == sb.st_rdev : sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino)
		return hybrid_fail(HYBRID_REFUSED, "give two different devices",
				   "%s and %s are the same device", a, b);
	if (!blocks || force || !hybrid_sysfs_share_disk(sa.st_rdev, sb.st_rdev))
		return 0;
	return hybrid_fail(HYBRID_REFUSED,
			   "use a cache device on another disk, or --force if you are sure",
			   "%s and %s are on the same disk", a, b);
}
