/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A pool in memory: the kernel's superblock reader and the engine over disks that do everything
 * at once.  An operation that must end and does not causes an abort().
 */
#ifndef FUZZ_POOL_H
#define FUZZ_POOL_H

#include "disks.h"
#include "executor.h"

#define POOL_ORIGINS	2

struct pool {
	struct hybrid_executor x;	/* x.engine: NULL if there is none */
	struct disk *cache, *origin[POOL_ORIGINS];
	struct hybrid_sb sb;
	struct hybrid_volume *volume[POOL_ORIGINS];	/* open; by origin */
	u64 random;
};

extern const struct hybrid_engine_ops hybrid_io_ops;	/* as the module's are called */

/* As the module does at resume: superblock, engine, load.  0 or -errno and *why. */
int pool_load(struct pool *p, const char **why);
/* Volume @id on @origin. */
int pool_open(struct pool *p, u32 id, u32 origin, const char **why);
/* @data: @count sectors, within one block; returns the I/O's error. */
int pool_io(struct pool *p, u32 origin, enum hybrid_io_type type, u64 sector, u32 count,
	    void *data, bool fua);
/* Let time pass until nothing waits for it, or @ms are over. */
void pool_run(struct pool *p, u32 ms);
void pool_close(struct pool *p, u32 origin);
/* The module records that policy and these settings in the superblock. */
int pool_record(struct pool *p, const char *policy, const struct hybrid_settings *settings);
/* Everything closed, everything durable. */
void pool_stop(struct pool *p);
/* As by a crash. */
void pool_drop(struct pool *p);

#endif
