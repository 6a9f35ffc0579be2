/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A pool without devices: the engine of the kernel module, its map, policies and journal,
 * whose operations are counted instead of carried out.  Each ends before the next begins,
 * and time is that of the trace.
 */
#ifndef HYBRID_REPLAY_POOL_H
#define HYBRID_REPLAY_POOL_H

#include "engine.h"
#include "model.h"
#include "trace.h"

struct replay_setup {
	const struct hybrid_policy_type *policy;
	u32 block_sectors;
	u64 blocks;		/* as wanted; sets make it a little more */
	u32 mode;		/* HYBRID_MODE_* */
	u64 cutoff;		/* sectors */
};

struct replay_count {
	u64 requests[2], missed[2];	/* reads, writes; missed: any block of it */
	u64 blocks[2], block_misses[2];	/* a request's parts in each block, as the module counts */
	u64 counter[HYBRID_NR_COUNTERS];
	u64 disk_ops[2], disk_sectors[2], disk_runs, disk_flushes;
	double disk_ms;
	u64 ssd_fill, ssd_write, ssd_meta;	/* pages of 4 KiB written */
	u64 ssd_flushes, records, evictions;
	u32 dirty;
};

struct replay_pool;

/*
 * The geometry of the smallest cache device with that many blocks.  0, or -errno and
 * *why, as hybrid_geometry_init().
 */
int replay_geometry(struct hybrid_geometry *g, u32 block_sectors, u64 blocks, const char **why);

/* NULL: *why is the reason. */
struct replay_pool *replay_pool_create(const struct replay_setup *setup, const char **why);
void replay_pool_destroy(struct replay_pool *p);

const struct hybrid_geometry *replay_pool_geometry(const struct replay_pool *p);

/* Runs a request to its end.  Returns 0, -ENOMEM, or -EDEADLK: the engine does not go on. */
int replay_pool_request(struct replay_pool *p, const struct trace_request *r);

/*
 * Passes over a part of the trace that is not simulated.  If the part continues a run of
 * misses, the run goes on behind it: the part counts as missed, too.
 */
void replay_pool_pass(struct replay_pool *p, const struct trace_request *r);

/* Writes back all dirty data, and counts that, too. */
int replay_pool_finish(struct replay_pool *p);

void replay_pool_count(struct replay_pool *p, struct replay_count *c);

#endif
