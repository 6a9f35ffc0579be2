/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The journal: bytes only.  Entries are built here, one at a time, and read
 * back; what goes into them, and when they are written, others decide.
 */
#ifndef DM_HYBRID_JOURNAL_H
#define DM_HYBRID_JOURNAL_H

#include "codec.h"

struct hybrid_journal {
	const struct hybrid_geometry *g;
	u64 tail;		/* first entry that is still needed */
	u64 head;		/* next free journal block number */
	u32 max_blocks;		/* of an entry */
	u32 room;		/* blocks for which there is memory now */
	u32 nr;			/* records in the entry being built */
	u32 blocks;		/* of the sealed entry */
	u64 place;		/* ... and its number */
	struct hybrid_journal_entry *entry;	/* free for other uses as long as nr is 0 */
	struct hybrid_journal_entry *kept;	/* entry, until it grows */
	u64 *ended;		/* by each record: granules that were dirty on record before it */
	u64 *kept_ended;	/* ended, until the entry grows */
};

/* Blocks of memory that are kept for good: any set's records fit. */
#define HYBRID_JOURNAL_KEPT_BLOCKS	6

/* Blocking.  0 or -ENOMEM. */
int hybrid_journal_create(struct hybrid_journal *j, const struct hybrid_geometry *g);
void hybrid_journal_destroy(struct hybrid_journal *j);

/* Is there room in the ring for the largest entry? */
bool hybrid_journal_has_room(const struct hybrid_journal *j);

/* Is half of the ring in use? */
bool hybrid_journal_half_full(const struct hybrid_journal *j);

/* Records that still fit into the entry, as long as it does not grow. */
u32 hybrid_journal_space(const struct hybrid_journal *j);

/*
 * Have memory for @blocks, or for as many as there is memory for at once; what is in
 * the entry stays.  False: it has all that it can get.  From any context.
 */
bool hybrid_journal_grow(struct hybrid_journal *j, u32 blocks);
/* Give that back.  What is in the entry is lost. */
void hybrid_journal_shrink(struct hybrid_journal *j);

/*
 * Add a record; there must be space.  @ended is not written: it stays in j->ended until
 * the entry is durable.
 */
void hybrid_journal_block(struct hybrid_journal *j, cblock_t b, u32 instance, oblock_t oblock,
			  u64 valid, u64 dirty, u64 ended);
void hybrid_journal_regions(struct hybrid_journal *j, u32 set, u64 open);

/* Seal the entry; it goes, whole, to the sector returned. */
u64 hybrid_journal_seal(struct hybrid_journal *j, const struct hybrid_ident *id);

/* The sealed entry is durable: the next one can be built. */
void hybrid_journal_advance(struct hybrid_journal *j);

/* Blocking.  Read @blocks metadata blocks from @sector of the cache device. */
typedef int (*hybrid_read_fn)(void *context, u64 sector, u32 blocks, void *mem);

/*
 * Blocking.  Replay from j->tail: apply() every record in order, and set
 * j->head behind the last good entry.  -ENOMEM; or damage, which *why describes:
 *   -EINVAL	an entry with a good checksum says what cannot be
 *   -ENODATA	the journal ends before @head
 *   -EBADMSG	it goes on behind a gap
 *   -ESTALE	... in another epoch
 * else 0, or what read() or apply() returned.
 */
int hybrid_journal_replay(struct hybrid_journal *j, const struct hybrid_ident *id, u64 head,
			  hybrid_read_fn read, int (*apply)(void *context,
							    const struct hybrid_record *r),
			  void *context, const char **why);

#endif
