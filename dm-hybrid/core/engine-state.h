/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The state of a pool and of its volumes, put together from the structs in the header of each
 * file.
 *
 * Locks, in this order: a set's lock, the engine's lock; never two sets.  The engine's lock
 * protects all fields of struct hybrid_engine and hybrid_volume without another note.  Under a lock
 * actions are only listed; the caller carries them out without any lock.
 */
#ifndef DM_HYBRID_ENGINE_STATE_H
#define DM_HYBRID_ENGINE_STATE_H

#include "engine-admit.h"
#include "engine-block.h"
#include "engine-checkpoint.h"
#include "engine-commit.h"
#include "engine-evict.h"
#include "engine-flush.h"
#include "engine-intent.h"
#include "engine-job.h"
#include "engine-lost.h"
#include "engine-place.h"
#include "engine-range.h"
#include "engine-stall.h"
#include "engine-stream.h"
#include "engine-superblock.h"
#include "engine-sweep.h"
#include "engine-trim.h"
#include "engine-volume.h"
#include "engine-wear.h"
#include "engine-writeback.h"
#include "journal.h"

#define MS_PER_SECOND		1000ULL

struct hybrid_counters {
	u64 c[HYBRID_NR_COUNTERS];
	u64 hits_spent;			/* of HYBRID_READ_HITS: spent on fills ahead */
	u64 hits_paid;			/* ... taken into account in rest_debt */
	u32 rest_debt;			/* see REST_COST */
};

#define USERS_AWAY		10

/* What the users of a volume do.  READ_ONCE without the lock. */
struct hybrid_users {
	bool now;			/* there was I/O since the last tick */
	u8 idle;			/* ticks before that without I/O, up to USERS_AWAY */
	struct hybrid_sync sync;
};

/* Members are placed by the code that writes them. */
struct hybrid_volume {
	/* All I/O reads these, and they seldom change. */
	struct hybrid_engine *e;
	u32 id;
	u8 state;			/* enum volume_state; READ_ONCE without the lock */
	u32 traits;		/* of its devices: HYBRID_ORIGIN_*; READ_ONCE without the lock */
	struct hybrid_volume_info info;
	u32 mode;			/* READ_ONCE without the lock */
	u64 cutoff;
	void *context;
	struct hybrid_counters __percpu *counters;

	/* Writes read these, and change them once between two flushes, or two ticks. */
	struct hybrid_users users ____cacheline_aligned_in_smp;
	struct hybrid_volume_commit commit;
	struct hybrid_ranges ranges;

	/* The rest changes with each miss, or with the volume. */
	struct hybrid_volume_blocks blocks ____cacheline_aligned_in_smp;
	struct hybrid_drain drain;	/* requested, or for a mode switch */
	bool healthy_again;		/* since it was opened: HYBRID_STATE_HEALTHY_AGAIN */
	u64 merged;			/* sectors: see struct hybrid_volume_status */
	struct list_head open_link;	/* of hybrid_volumes.open */
	struct hybrid_origin_flush flush;
	struct hybrid_origin_sb sb;
	struct hybrid_lost lost;
	struct hybrid_volume_jobs jobs;
	struct hybrid_writeback writeback;
	atomic_t nr_reads;		/* users' reads of the origin in flight */
	struct hybrid_credit credit;
	struct hybrid_streams streams;
};

/* Since the pool was loaded: see struct hybrid_pool_status */
struct hybrid_stats {
	u64 journal_writes, journal_records, checkpoints;
	u64 metadata_writes, intent_writes, cache_flushes, trimmed;
	atomic64_t evictions, errors[NR_CACHE_ERRORS];
	u64 ram;			/* bytes */
};

enum pool_life {
	POOL_STOPPED,			/* or not loaded yet */
	POOL_RUNNING,
	POOL_STOPPING,
};

struct hybrid_life {
	u8 state;			/* enum pool_life; READ_ONCE without the lock */
	bool failed;			/* ends with the engine; likewise */
	bool inconsistent;		/* an assertion failed; likewise */
	bool stop_tried;		/* to record everything, before the last checkpoint */
	u32 flags;			/* enum hybrid_state: with hysteresis, by the tick */
};

struct hybrid_engine {
	/* All I/O reads these, and they seldom change, up to evict.reserve. */
	const struct hybrid_engine_ops *ops;
	void *context;
	struct hybrid_config config;
	struct hybrid_sb sb;
	struct hybrid_geometry *g;	/* &sb.geometry */
	struct hybrid_map map;
	struct hybrid_life life;
	struct hybrid_volumes volumes;
	struct hybrid_evict evict;

	spinlock_t lock ____cacheline_aligned_in_smp;	/* see above */
	struct hybrid_wear wear;
	u64 now;			/* ms, time of the last tick */

	/* Metadata: one operation at a time */
	struct hybrid_journal journal;
	struct hybrid_meta meta;
	struct hybrid_commit commit;
	struct hybrid_intents intents;	/* ... but for the intent log's own */
	struct hybrid_checkpoint cp;

	struct hybrid_jobs jobs;
	struct hybrid_runs runs;
	struct hybrid_writebacks writebacks;
	struct hybrid_lift lift;
	struct hybrid_stall stall;
	struct hybrid_trim trim;
	struct hybrid_places places;

	struct hybrid_stats stats;
};

#endif
