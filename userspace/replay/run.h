/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Runs a trace through many caches at once.  It is read twice: first to survey it, then for all
 * simulations side by side, whole or scaled down (sample.h).
 *
 * Functions return 0 or an exit code, after a message.
 */
#ifndef HYBRID_REPLAY_RUN_H
#define HYBRID_REPLAY_RUN_H

#include "footprint.h"
#include "pool.h"
#include "sample.h"

#define RUN_BLOCK_SIZES	9		/* 4 KiB ... 1 MiB */

/* Contents of a trace. */
struct survey {
	u64 lines, requests[2], others;	/* reads, writes; flushes and discards */
	u64 sectors[2];
	double seconds;
	bool untimed;			/* all at one time: one request a millisecond is assumed */
	u64 footprint;			/* bytes: pages of 4 KiB that are touched */
	u64 windows;			/* of 256 KiB */
	u64 blocks[RUN_BLOCK_SIZES];	/* distinct, by block size */
	u64 parts[RUN_BLOCK_SIZES];	/* requests' parts in each block */
	u64 disk_ops;			/* of the bare disk, and its time */
	double disk_ms;
};

/* One cache: its parameters, then the results. */
struct cache {
	const struct hybrid_policy_type *policy;
	u32 block_sectors;
	u64 bytes;			/* of cached data, as wanted */
	/* The real one, even if the simulation is scaled down */
	u64 blocks, device_bytes, ram;
	double rate;			/* of the simulation: 1, or less */
	u64 sampled;			/* blocks of the footprint that it sees */
	struct replay_count count;	/* of the simulation */
	/* By requests, by blocks: all, reads, writes.  Negative: there are none. */
	double miss[2][3];
	double disk_ops, disk_ms;	/* all */
	double ssd_fill, ssd_write, ssd_meta;	/* pages of 4 KiB */
};

struct run {
	struct trace *trace;
	u32 mode;
	uint64_t cutoff;
	u32 max_windows;		/* sampled, 0: all */
	struct survey survey;
	struct footprint footprint;
	struct cache *cache;
	u32 nr_caches;
};

int run_survey(struct run *run);

/* Fills in the results in run->cache[].  A cache that cannot exist is an error. */
int run_caches(struct run *run);

void run_free(struct run *run);

static inline u32 block_class(u32 block_sectors)
{
	return ilog2(block_sectors) - ilog2(HYBRID_MIN_BLOCK_SECTORS);
}

/* Bytes written to the SSD a day; 0: the trace has no time. */
double cache_daily(const struct survey *s, const struct cache *c);

#endif
