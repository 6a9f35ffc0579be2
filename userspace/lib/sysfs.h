/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Questions to the kernel and udev about a block device, by libudev.  All are answered "no" if
 * sysfs is not mounted or the device is gone; no function prints.  See devices.h for the other
 * functions.
 */
#ifndef HYBRID_SYSFS_H
#define HYBRID_SYSFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The device with a kernel name such as "sda1" or "dm-0"; false: there is none. */
bool hybrid_sysfs_devno(const char *kname, dev_t *devno);

/* Names of the devices that hold it ("dm-3 md0"); false if none. */
bool hybrid_sysfs_holders(dev_t devno, char *buf, size_t len);

/* An attribute of the request queue of the disk it is on. */
bool hybrid_sysfs_queue(dev_t devno, const char *attr, unsigned int *value);

/*
 * Worldwide identity: wwid, serial, dm (of dm-crypt: the header's) or md UUID; for a partition, with
 * its number.
 */
bool hybrid_sysfs_disk_id(dev_t devno, char *buf, size_t len);

/* Whether both are, at the bottom, on one physical disk. */
bool hybrid_sysfs_share_disk(dev_t a, dev_t b);

/* The disks at its bottom, each once, though several paths may lead to it; no more than @max. */
unsigned int hybrid_sysfs_disks(dev_t devno, dev_t *disks, unsigned int max);

/* Whether it is an md array that misses a disk. */
bool hybrid_sysfs_degraded(dev_t devno);

/* Whether it is a partition of a disk. */
bool hybrid_sysfs_partition(dev_t devno);

/* Of a partition: its disk, its number there, and where it begins, in sectors.  False: it is none. */
bool hybrid_sysfs_partition_of(dev_t devno, dev_t *disk, unsigned int *number, uint64_t *start);

/* Of a running bcache backing device: its state, and its amount of dirty data ("1.2M"); or false. */
bool hybrid_sysfs_bcache(dev_t devno, char *state, char *dirty, size_t len);

/* Whether it is a logical volume of LVM. */
bool hybrid_sysfs_lvm(dev_t devno);

/* Whether it is a device of device-mapper (LVM, LUKS ...), other than a multipath disk. */
bool hybrid_sysfs_mapped(dev_t devno);

/* Whether a disk at its bottom can be taken out (sticks, cards). */
bool hybrid_sysfs_removable(dev_t devno);

/* Whether it is a pool or a volume: nobody looks for members inside. */
bool hybrid_sysfs_ours(dev_t devno);

/*
 * Whether it is a floppy, a CD or raw flash: never a member, and opening it may close a tray,
 * start a motor and wait for it, or log errors.  The tools open one only if the user names it.
 */
bool hybrid_devno_no_disk(dev_t devno);

/* Whether udev has it as a path of a multipath device, which may not be there yet. */
bool hybrid_udev_multipath(dev_t devno);

/*
 * Whether @matches is true of any of its names: /dev/mapper/NAME or /dev/KNAME, the links
 * that udev made, and, in an event of udev for it, the links in the environment.
 */
bool hybrid_devno_any_name(dev_t devno, bool (*matches)(const char *name, void *arg),
			   void *arg);

/* The number of devices that, to udev, have a link such as "/dev/disk/by-id/...". */
unsigned int hybrid_udev_claims(const char *name);

/* Whether there is a udevd. */
bool hybrid_udev_runs(void);

/* An attribute of a module in the kernel, as "dm_hybrid"; false: it is not loaded. */
bool hybrid_sysfs_module(const char *name, const char *attr, char *buf, size_t len);

/* Has the kernel send a uevent for it, such as "add". */
void hybrid_sysfs_uevent(dev_t devno, const char *action);

/*
 * Whether @upper is made of @lower, directly or through any number of devices
 * between them (multipath, md, dm, and partitions of such).
 */
bool hybrid_sysfs_built_on(dev_t upper, dev_t lower);

/*
 * The data of the logical volume that an LVM snapshot (not a thin one) was taken of: the device
 * below that volume.  0: it is no snapshot, or is being merged and gone.
 */
dev_t hybrid_sysfs_snapshot_of(dev_t devno);

/*
 * Calls @fn for each block device that may be a disk; if $HYBRID_SCAN_ONLY is set, only for the
 * devices it names.  Stops at, and returns, the first non-zero.
 */
int hybrid_sysfs_each(int (*fn)(dev_t devno, void *arg), void *arg);

#endif
