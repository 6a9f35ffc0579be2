/* SPDX-License-Identifier: GPL-2.0-only */
/* The superblocks of the members. */
#ifndef DM_HYBRID_SUPERBLOCK_H
#define DM_HYBRID_SUPERBLOCK_H

#include <linux/blkdev.h>

#include "core/codec.h"

/*
 * Read the current superblock of the cache device @bdev, from head or tail.
 * Blocking.  Returns 0 or -errno; then *error is a phrase fit for ti->error
 * and *why, unless it is NULL, names the field.
 */
int hybrid_cache_sb_read(struct block_device *bdev, struct hybrid_sb *sb, char **error,
			 const char **why);

/*
 * Record in both copies of the superblock what to activate the pool of the cache
 * device @bdev with.  @name: a new name, which also ends the replacement of another pool;
 * NULL leaves both as they are.  Blocking.  Returns 0 or -errno.
 */
int hybrid_cache_sb_record(struct block_device *bdev, const char *name, const char *policy,
			   const struct hybrid_settings *settings);

#endif
