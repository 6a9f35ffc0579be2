/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Devices in memory, below userspace/lib/devices.h: writes of the tools and the engine to them
 * are taken back after each run.
 */
#ifndef FUZZ_DISKS_H
#define FUZZ_DISKS_H

#include "core.h"
#include "devices.h"

#define DISK_BLOCK	4096

struct disk {
	struct hybrid_device device;	/* for the tools; fd: which disk */
	const char *name;
	u8 *bytes;
	u8 *pristine;			/* NULL: no contents to go back to yet */
	u64 size;			/* sectors there are; device.sectors may say less */
	u32 *touched, nr_touched;	/* blocks */
	bool *is_touched;
	u64 writes;
	bool dead;			/* everything fails */
};

/* Its path is "image/name". */
void disk_init(struct disk *d, const char *image, const char *name, u64 sectors);
/* Keeps the present contents for disk_reset(). */
void disk_keep(struct disk *d);
void disk_reset(struct disk *d);

/* @len bytes at a place that the caller changes; NULL: they are not all there. */
void *disk_change(struct disk *d, u64 sector, size_t len);

int disk_read(struct disk *d, u64 sector, void *to, size_t len);
int disk_write(struct disk *d, u64 sector, const void *from, size_t len);

#endif
