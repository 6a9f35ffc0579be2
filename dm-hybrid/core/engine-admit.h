/* SPDX-License-Identifier: GPL-2.0-only */
/* Admission to the cache, and the credit for data that nobody asked for. */
#ifndef DM_HYBRID_ENGINE_ADMIT_H
#define DM_HYBRID_ENGINE_ADMIT_H

#include "engine.h"
#include "map.h"

/*
 * Readahead fills neighbouring blocks on credit.  Each part of a volume has its own: 64 KiB, one
 * block or several, cost AHEAD_COST, their first read earns AHEAD_USED, each miss earns 1, and
 * AHEAD_LENT is granted at first.  So readahead continues where a third of its data is read, and is
 * retried now and then elsewhere.  It counts as worthwhile at AHEAD_PAYS.
 *
 * While a set has free blocks, a block filled ahead evicts no other, and 64 KiB cost the disk a
 * 15th of the time that a hit saves: each hit then pays for as much.
 */
#define AHEAD_COST		64
#define AHEAD_USED		(3 * AHEAD_COST)
#define AHEAD_MOST		(64 * AHEAD_COST)
#define AHEAD_PAYS		(AHEAD_MOST / 2)
#define AHEAD_LENT		(AHEAD_MOST / 8)
#define AHEAD_PARTS		64
#define AHEAD_PART_SHIFT	7	/* log2(neighbouring windows of one part) */
#define AHEAD_HITS		64	/* the newest hits, which pay */

/*
 * A miss fills the 64 KiB around it: its block, or the missing blocks on both sides of it if blocks
 * are smaller.  To a disk that is one read.
 */
#define NEAR_SECTORS		128

/*
 * A read outside any sequential run pays by credit, too, for the rest of its 64 KiB and for other
 * neighbours: reading the rest of 64 KiB takes a disk a 12th of the time of a miss.  Each costs
 * REST_COST, each miss earns 1, each hit earns half of the time it saves, and each CPU is granted
 * REST_MOST at first.  So one hit in 7 reads pays for whole fills everywhere; without any hit,
 * one fill in REST_COST is whole.
 */
#define REST_COST		32
#define REST_HIT		(6 * REST_COST)
#define REST_MOST		(64 * REST_COST)

/*
 * Whether the rest is worth its price, too, is learned for each volume.  In each set, of every
 * REST_EVERY-th such fill only the part asked for is filled, and the set remembers the
 * newest REST_SAMPLES of these.  A later miss in one of them would have been a hit, and earns
 * REST_USED; a sample that is forgotten without a miss costs 1.  So rests are filled where a ninth
 * of them are read: from REST_PAYS on, of at most REST_WORTH, which is granted at first.
 */
#define REST_EVERY		128
#define REST_USED		8
#define REST_WORTH		64
#define REST_PAYS		(REST_WORTH / 2)

/* Of a volume: for data that nobody asked for. */
struct hybrid_credit {
	atomic_t ahead[AHEAD_PARTS];	/* for fills ahead: AHEAD_COST */
	atomic_t rest;			/* are rests worth their price?  Up to REST_WORTH */
};

/* Whether a miss may enter the cache. */
enum admission {
	REFUSED,
	WHILE_FILLING,		/* a long run, while the set has blocks to spare */
	IN_PLACE,		/* a long run replaces a block of its own */
	ADMITTED,
	SINGLE,			/* admitted, and part of no run */
};

/*
 * The caller of each function below holds the set's lock.
 */

/* @io bypasses the cache; counts the reason @why. */
void hybrid_io_bypass(struct hybrid_io *io, enum hybrid_counter why);
/* Can the set take another block without an eviction? */
bool hybrid_set_has_room(const struct hybrid_engine *e, const struct hybrid_set *s);
/*
 * May this miss enter the cache?  IN_PLACE: another block has left for it.  REFUSED: the reason is
 * counted.
 */
enum admission hybrid_io_admission(struct hybrid_engine *e, struct hybrid_set *s,
				   struct hybrid_io *io, struct hybrid_actions *acts);
/*
 * Is this miss worth a fill?  Yes on an origin that seeks, and for metadata; else only if the first
 * granule of the read was read not long ago, because a fill costs more than the next hit saves.
 */
bool hybrid_fill_pays(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io);
/*
 * Is caching this read worth the write to the cache device?  Yes while the set fills and for
 * metadata; with a short endurance budget, only if the block was evicted or missed recently.
 */
bool hybrid_worth_its_wear(struct hybrid_engine *e, struct hybrid_set *s,
			   const struct hybrid_io *io);
/*
 * Assigns a free block to @key and returns its index.  The caller has checked that there is one.
 */
int hybrid_take_block(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
		      u64 key);
/* Is a block free for a read miss?  Evicts if not.  Half of the reserve is kept for writes. */
bool hybrid_room_to_fill(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io,
			 struct hybrid_actions *acts);
/* Initialises a new volume.  Needs no lock. */
void hybrid_credit_create(struct hybrid_volume *v);
/*
 * May a miss fill more than was read?  Pays for it.  @alone: only the rest of
 * its 64 KiB.
 */
bool hybrid_rest_is_paid(struct hybrid_engine *e, struct hybrid_set *s, u64 key, bool alone);
/* Notes a miss in @key's 64 KiB, which may be cached in part.  @i: @key's block, or -1. */
void hybrid_rest_is_missed(struct hybrid_engine *e, struct hybrid_set *s, u64 key, int i);
/* Has credit run out? */
bool hybrid_rest_is_owed(struct hybrid_volume *v);
/* A miss near @key, or the first read of a block filled ahead, earns credit there. */
void hybrid_ahead_earns(struct hybrid_engine *e, u64 key, int credit);
/*
 * Notes the first read of block @i, which was filled beside another.  For its run the read counts
 * as a miss.  Returns whether it is the first read of its 64 KiB: then it earns credit, and counts
 * as a miss for the policy, too.
 */
bool hybrid_ahead_used(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io,
		       u32 i);
/* The blocks to fill with @key in its 64 KiB: [*from, *to), as hybrid_ahead_range() counts. */
void hybrid_near_range(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
		       u64 key, u64 *from, u64 *to);
/*
 * The blocks to fill with a miss of @key: [*from, *to) is @key and the missing blocks next to it,
 * without a gap.  These are in its 64 KiB, or, on credit, in its window: if another block of the
 * window is cached, or the set has free blocks.  Returns whether blocks beyond the 64 KiB are.
 */
bool hybrid_ahead_range(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
			u64 key, u64 *from, u64 *to);
/*
 * Adds the blocks in [@from, @to) other than @io's own to its fill, @job, as long as the set has
 * room.  Those beyond the 64 KiB of @io are paid for.  Caller holds the set's lock.
 */
void hybrid_fill_beside(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io,
			struct hybrid_job *job, u64 from, u64 to, enum admission admitted,
			struct hybrid_actions *acts);

#endif
