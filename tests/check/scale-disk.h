/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The metadata of a cache device of any size, without the device: an engine's writes are
 * remembered, and the map of a full cache is made up whenever it is read.
 */
#ifndef HYBRID_SCALE_DISK_H
#define HYBRID_SCALE_DISK_H

#include "engine.h"

struct scale_disk {
	struct hybrid_sb sb, origin;
	bool full;		/* of blocks of one volume, each whole and valid */
	bool forget;		/* written leaves are not needed again */
	u32 *window;		/* number on the origin, for each window of the cache */
	u8 *mem;		/* all in front of the data; leaves only where written */
	u64 *written;		/* bits: leaves of both areas */
	struct hybrid_superblock copy[2];	/* of the origin's superblock */
	/* Requests to the cache device */
	u64 reads, read_bytes, small_reads, writes, write_bytes, journal_bytes, flushes;
};

#define SCALE_SMALL_READ 16	/* metadata blocks: shorter reads are small */

/* A cache of @cache and an origin of @origin sectors, from nothing.  Exits on errors. */
void scale_disk_init(struct scale_disk *d, u64 cache, u32 block, u64 origin, const char *policy);

/* As after a stop. */
void scale_disk_format(struct scale_disk *d, bool full);

/* A segment of a META operation, and a flush, of the cache device or the origin: always succeed. */
void scale_disk_transfer(struct scale_disk *d, const struct hybrid_op *op, u64 sector, u32 count,
			 void *mem);
void scale_disk_flush(struct scale_disk *d, const struct hybrid_op *op, bool origin);

/* The volume's block in block @b of the full cache. */
u64 scale_disk_oblock(const struct scale_disk *d, u64 b);

/* Spreads @x over 32 bits, the same each time. */
u32 scale_mix(u64 x);

#endif
