/* SPDX-License-Identifier: GPL-2.0-only */
/* Checkpoints: leaves, index, root. */
#ifndef DM_HYBRID_ENGINE_CHECKPOINT_H
#define DM_HYBRID_ENGINE_CHECKPOINT_H

#include "engine.h"
#include "map.h"

#define CHECKPOINT_BLOCKS	16		/* metadata blocks in one write, at most */

enum checkpoint_phase {
	CP_NONE,
	CP_LEAVES,
	CP_INDEX,
	CP_FLUSH,		/* both are durable before the root names them */
	CP_ROOT,
};

/* The checkpoint under way, and the generations on disk. */
struct hybrid_checkpoint {
	u8 phase;			/* enum checkpoint_phase */
	bool wanted;
	bool clean;			/* the checkpoint is the last before a stop */
	bool is_clean;			/* the root on the disk is marked clean */
	bool recovery;			/* the checkpoint makes a recovery durable */
	bool passed;			/* by a commit, since the last step */
	bool lazy_due;			/* a lazy commit comes first, for those who wait */
	u32 pos;			/* of the phase: the next leaf or index */
	u32 blocks;			/* in the present step */
	u64 tail;			/* the journal's, once the root is durable */
	u64 root_sequence;
	u16 *leaf_generation, *index_generation;
	unsigned long *leaf_dirty, *indexes;
	struct list_head waiters, now;	/* hybrid_waiter */
};

/* May sleep; 0 or -ENOMEM.  hybrid_checkpoint_destroy() frees everything in both cases. */
int hybrid_checkpoint_create(struct hybrid_engine *e);
void hybrid_checkpoint_destroy(struct hybrid_engine *e);
/*
 * Marks a leaf as changed, for the next checkpoint: the leaf of block @i, or of these regions
 * (under the set's lock); of the entry of volume @id (under the engine's lock).
 */
void hybrid_mark_leaf(struct hybrid_engine *e, u32 set, u32 i);
void hybrid_mark_region_leaves(struct hybrid_engine *e, u32 set, u64 regions);
void hybrid_mark_volume_leaf(struct hybrid_engine *e, u32 id);
/*
 * Begins a checkpoint.  Each of its steps is one operation on metadata.  Under the engine's lock.
 */
void hybrid_checkpoint_begin(struct hybrid_engine *e);
/* Makes the next checkpoint the one that makes the result of a recovery durable. */
void hybrid_checkpoint_recovery(struct hybrid_engine *e);
/*
 * Puts the next write of the checkpoint into meta.op, which the caller has begun; notes its end.
 */
void hybrid_checkpoint_step(struct hybrid_engine *e);
void hybrid_checkpoint_step_done(struct hybrid_engine *e);

#endif
