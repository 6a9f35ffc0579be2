/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Block devices and image files: safe opens, properties, users, and the signatures that a
 * format would destroy.  Reads and writes bypass the page cache where they can, since the
 * kernel targets write beside it.
 */
#ifndef HYBRID_DEVICES_H
#define HYBRID_DEVICES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define HYBRID_PATH_MAX		256

struct hybrid_device {
	char path[HYBRID_PATH_MAX];
	int fd;				/* -1: not open */
	bool file;			/* a regular file, not a block device */
	dev_t devno;			/* of the block device; 0 for files */
	uint64_t sectors;
	uint32_t logical_sectors;	/* logical sector size, in sectors */
	uint32_t optimal_sectors;	/* optimal I/O size, 0: unknown */
	bool zoned;			/* must not be written in arbitrary order */
};

/* hybrid_device_open() flags */
#define HYBRID_OPEN_WRITE	(1U << 0)
#define HYBRID_OPEN_EXCLUSIVE	(1U << 1)	/* refuse if mounted or held */
#define HYBRID_OPEN_FILES	(1U << 2)	/* accept regular files, too */
#define HYBRID_OPEN_QUIET	(1U << 3)	/* print nothing on failure */

/*
 * Open @path and find out size and limits.  Exclusive opens of a device in use
 * fail with HYBRID_BUSY and name the mount points or holders.  Returns 0 or an
 * exit code; on failure nothing is open.
 */
int hybrid_device_open(struct hybrid_device *dev, const char *path, unsigned int flags);

/*
 * Does nothing if the device is not open.  If it was open for writing, sends a change uevent:
 * udev watches for the close itself, but not while it handles an earlier event of the device.
 */
void hybrid_device_close(struct hybrid_device *dev);

/*
 * Closes the device and opens it again, for example for writing.  Fails with HYBRID_BADDEV
 * unless the path still leads to the same device of the same size.
 */
int hybrid_device_reopen(struct hybrid_device *dev, unsigned int flags);

/* Whether it is open for writing. */
bool hybrid_device_writable(const struct hybrid_device *dev);

/*
 * Read or write @len bytes (multiple of 4096, buffer aligned to 4096) at
 * @sector.  Return 0 or -errno; a short transfer is -EIO.
 */
int hybrid_device_read(const struct hybrid_device *dev, uint64_t sector, void *buf, size_t len);
int hybrid_device_write(const struct hybrid_device *dev, uint64_t sector, const void *buf,
			size_t len);
int hybrid_device_zero(const struct hybrid_device *dev, uint64_t sector, uint64_t sectors);
int hybrid_device_flush(const struct hybrid_device *dev);

/*
 * Tells a block device that these sectors are no longer needed.  Returns 0 or -errno, which is
 * -EOPNOTSUPP if it takes no discards.
 */
int hybrid_device_discard(const struct hybrid_device *dev, uint64_t sector, uint64_t sectors);

/* An aligned, zeroed buffer for the above; free() it.  NULL: no memory. */
void *hybrid_buffer(size_t len);

/*
 * Lists the signatures and partition tables that libblkid finds on the device, one line each, in
 * *text ("ext4 filesystem, label \"home\", uuid ..."); empty if there are none.  *text is
 * allocated.  Returns 0 or an exit code.
 */
int hybrid_device_signatures(const struct hybrid_device *dev, char **text);

/*
 * Whether libblkid takes it for a part of a device that other software assembles: LVM, md, ZFS,
 * DRBD, bcache ...  A superblock of ours on it then belongs to the assembled device.  @type:
 * libblkid's name for the part.
 */
bool hybrid_device_in_array(const struct hybrid_device *dev, char *type, size_t len);

/* Refuses such a part: what is written to one half of a mirror, the other one does not get. */
int hybrid_check_no_part(const struct hybrid_device *dev);

/*
 * Refuses two paths of one device (always), and two devices that share a disk below them
 * (unless @force): a cache on its own origin's disk speeds up nothing.  To be called before the
 * second open: while the first device is held exclusively, that open would only report it as in
 * use.  A path that leads nowhere passes: its open reports it.  Returns 0 or HYBRID_REFUSED.
 */
int hybrid_devices_distinct(const char *a, const char *b, bool force);

/*
 * The identity to record of an origin without a superblock: the UUID of its file system, that of the
 * partition, or the disk's own, together with the size.  The text is the same under every kernel.
 * False if it has none.
 */
bool hybrid_device_identity(const struct hybrid_device *dev, char *buf, size_t len);

/* The same if the data begins further in: the device's own identity, never a file system's. */
bool hybrid_device_own_identity(const struct hybrid_device *dev, char *buf, size_t len);

/* All identities that a device has now: the recorded one, whichever it is, is among them. */
#define HYBRID_IDENTITIES	2

struct hybrid_identities {
	unsigned int nr;
	uint8_t uuid[HYBRID_IDENTITIES][16];	/* see hybrid_uuid_of_identity() */
};

void hybrid_device_identities(const struct hybrid_device *dev, struct hybrid_identities *ids);
bool hybrid_identities_have(const struct hybrid_identities *ids, const uint8_t uuid[16]);

/* Whether libblkid finds a signature on it beside that of @type; its type goes to @found. */
bool hybrid_device_has_other(const struct hybrid_device *dev, const char *type, char *found,
			     size_t len);

/* sysfs: whether @devno is held by @holder (0: by anything). */
bool hybrid_devno_held(dev_t devno, dev_t holder);
/* Whether the disk has partitions. */
bool hybrid_devno_has_partitions(dev_t devno);
/* Its size; 0: it is not there. */
uint64_t hybrid_devno_sectors(dev_t devno);
/* Sequence number of its disk, which tells it from other disks with its device number; 0: unknown. */
uint64_t hybrid_devno_sequence(dev_t devno);
/* Where it is mounted: the first mount point, or false. */
bool hybrid_devno_mounted(dev_t devno, char *where, size_t len);
/* The mounted device, if @devno is a number of the file system's own (btrfs); 0: unknown. */
dev_t hybrid_devno_of_mount(dev_t devno);
/* /dev/mapper/NAME or /dev/KNAME of a block device that is there now, or M:m. */
char *hybrid_devno_path(dev_t devno, char *buf, size_t len);
/* "M:m", as table lines have it; back: 0 or -EINVAL. */
char *hybrid_devno_text(dev_t devno, char *buf, size_t len);
int hybrid_devno_parse(const char *text, dev_t *devno);

#endif
