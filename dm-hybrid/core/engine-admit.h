/* SPDX-License-Identifier: GPL-2.0-only */
/* What may enter the cache, and the credit for what was not asked for. */
#ifndef DM_HYBRID_ENGINE_ADMIT_H
#define DM_HYBRID_ENGINE_ADMIT_H

#include "engine.h"
#include "map.h"

/*
 * Blocks are filled ahead on credit, which each part of a volume has of its own.
 * Each costs AHEAD_COST, and brings AHEAD_USED when it is read; each miss brings 1,
 * and AHEAD_LENT is lent at first.  So it goes on where a third of them are read,
 * and is tried now and then where they are not.  It pays where the credit has come
 * to AHEAD_PAYS.
 *
 * While a set has free blocks, a fill ahead takes nobody's place, and costs a 15th
 * of the disk's time that a hit saves: so hits pay for as many.
 */
#define AHEAD_COST		64
#define AHEAD_USED		(3 * AHEAD_COST)
#define AHEAD_MOST		(64 * AHEAD_COST)
#define AHEAD_PAYS		(AHEAD_MOST / 2)
#define AHEAD_LENT		(AHEAD_MOST / 8)
#define AHEAD_PARTS		64
#define AHEAD_PART_SHIFT	7	/* windows in turn that are of one part */
#define AHEAD_HITS		64	/* the newest, that pay */

/*
 * What a fill brings that was not asked for, of its block and ahead, is on credit as
 * well where the read goes on no run: the rest of 64 KiB takes a disk a 12th of what a
 * miss takes.  Each costs REST_COST, each miss brings 1, and each hit half of what it saves:
 * REST_MOST is lent at first, to each CPU.  So with one hit in 7 reads all fills are
 * whole, and one in REST_COST where nothing is read again.
 */
#define REST_COST		32
#define REST_HIT		(6 * REST_COST)
#define REST_MOST		(64 * REST_COST)

/* May a miss enter the cache? */
enum admission {
	REFUSED,
	WHILE_FILLING,		/* a long run: what it could push out is not there yet */
	IN_PLACE,		/* ... of what the run itself brought */
	ADMITTED,
	SINGLE,			/* ... and goes on no run */
};

/* All of these under the set's lock. */
/* @io is not cached, and that is why. */
void bypass(struct hybrid_io *io, enum hybrid_counter why);
/* Has the set blocks that nothing needs to leave for? */
bool set_fills(const struct hybrid_engine *e, const struct hybrid_set *s);
/* May this miss enter the cache?  IN_PLACE: another block left.  Counts the reason if not. */
enum admission admission(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			 struct hybrid_actions *acts);
/*
 * Is a block that is read worth what it costs the cache device?  Always while the
 * set fills, and if it is metadata; else, where the budget is short, if it was asked
 * for not long ago.
 */
bool worth_its_wear(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io);
/* A free block becomes @key's.  Caller has seen that there is one. */
int take_block(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v, u64 key);
/* Is there a free block for a read miss?  Half of the reserve is for writes. */
bool room_to_fill(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io,
		  struct hybrid_actions *acts);
/* May a miss bring more than it needs?  Would it do without, if no hit had come? */
bool rest_is_paid(struct hybrid_volume *v);
bool rest_is_owed(struct hybrid_volume *v);
/* A miss, or a hit of what was filled ahead, pays for the next ones near @key. */
void ahead_earns(struct hybrid_engine *e, u64 key, int credit);
/* One more block is filled ahead; the first read of one, which would have been a miss. */
void ahead_costs(struct hybrid_engine *e, u64 key);
void ahead_used(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io, u32 i);
/*
 * What to fill around @key, whose block is missed: with it what is missing next to
 * it in its window, without a gap, if something else of the window is there or the
 * set has free blocks.
 */
void ahead_range(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v, u64 key,
		 u64 *from, u64 *to);

#endif
