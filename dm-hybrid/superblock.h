/* SPDX-License-Identifier: GPL-2.0-only */
/* The superblock of the cache device. */
#ifndef DM_HYBRID_SUPERBLOCK_H
#define DM_HYBRID_SUPERBLOCK_H

#include <linux/blkdev.h>

#include "core/codec.h"

#define HYBRID_SB_WHY	64

/*
 * Reads the current superblock of the cache device @bdev, from head or tail.
 * May sleep.  Returns 0 or -errno.  After an error, *error is a phrase fit for
 * ti->error, and @why, unless empty, names the version of the format, or the field.
 */
int hybrid_cache_sb_read(struct block_device *bdev, struct hybrid_sb *sb, char **error,
			 char why[HYBRID_SB_WHY]);

struct hybrid_pool;

/*
 * Records the policy and settings for the next activation of @pool, which is loaded, in both copies
 * of the superblock of its cache device.  @name: a new name, which also ends the replacement of
 * another pool.  NULL leaves both as they are.  May sleep.  Returns 0 or -errno; if a copy could
 * not be written, the pool has failed.
 */
int hybrid_cache_sb_record(struct hybrid_pool *pool, const char *name, const char *policy,
			   const struct hybrid_settings *settings);

#endif
