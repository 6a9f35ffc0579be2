/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The journal: bytes only.  This file builds entries, one at a time, and reads them
 * back.  Callers decide which records they get and when they are written.
 */
#ifndef DM_HYBRID_JOURNAL_H
#define DM_HYBRID_JOURNAL_H

#include "codec.h"

struct hybrid_journal {
	const struct hybrid_geometry *g;
	u64 tail;		/* first entry that is still needed */
	u64 head;		/* next free journal block number */
	u32 max_blocks;		/* most blocks of an entry */
	u32 room;		/* blocks for which there is memory now */
	u32 nr;			/* records in the entry; READ_ONCE without the lock */
	u32 blocks;		/* of the sealed entry */
	u64 place;		/* journal block number of the sealed entry */
	u64 intent_tail;	/* of the newest durable entry; READ_ONCE without the lock */
	u64 next_tail;		/* of the sealed entry */
	struct hybrid_journal_entry *entry;	/* free for other uses as long as nr is 0 */
	struct hybrid_journal_entry *kept;	/* memory of entry until it grows */
	u64 *ended;		/* by record: granules whose dirty state it ends */
	u64 *kept_ended;	/* memory of ended until the entry grows */
};

/* Blocks of memory that the journal always keeps: all records of any set fit. */
#define HYBRID_JOURNAL_KEPT_BLOCKS	6

/* May sleep.  Returns 0 or -ENOMEM. */
int hybrid_journal_create(struct hybrid_journal *j, const struct hybrid_geometry *g);
void hybrid_journal_destroy(struct hybrid_journal *j);

/* Is there room in the ring for the largest entry? */
bool hybrid_journal_has_room(const struct hybrid_journal *j);

/* Is half of the ring in use? */
bool hybrid_journal_half_full(const struct hybrid_journal *j);

/* Returns how many more records fit into the entry without hybrid_journal_grow(). */
u32 hybrid_journal_space(const struct hybrid_journal *j);

/*
 * Grows the entry's memory to @blocks, or to fewer if memory is short at the moment.  The
 * entry keeps its records.  Returns false if it cannot grow any more.  Any context.
 */
bool hybrid_journal_grow(struct hybrid_journal *j, u32 blocks);
/* Frees that memory.  The entry loses its records. */
void hybrid_journal_shrink(struct hybrid_journal *j);

/*
 * Add a record to the entry, which must have space.  @ended is not written: it stays in
 * j->ended until the entry is durable.
 */
void hybrid_journal_block(struct hybrid_journal *j, cblock_t b, u32 instance, oblock_t oblock,
			  u64 valid, u64 dirty, u64 ended);
void hybrid_journal_regions(struct hybrid_journal *j, u32 set, u64 open);

/*
 * Seals the entry, which may have no records.  Returns the sector to which the caller writes the
 * whole entry.
 */
u64 hybrid_journal_seal(struct hybrid_journal *j, const struct hybrid_ident *id, u64 intent_tail);

/* The sealed entry is durable: begins the next one. */
void hybrid_journal_advance(struct hybrid_journal *j);

/* Reads @blocks metadata blocks from @sector of the cache device.  May sleep. */
typedef int (*hybrid_read_fn)(void *context, u64 sector, u32 blocks, void *mem);

/*
 * Replays the journal from j->tail: calls apply() for every record in order, and sets
 * j->head behind the last good entry.  The caller has set j->intent_tail to the root's;
 * it becomes the newest entry's, if that is higher.  May sleep.  Returns 0, -ENOMEM, an
 * error of read() or apply(), or an error that *why describes, for damage:
 *
 *	-EINVAL		an entry with a good checksum has invalid fields
 *	-ENODATA	the journal ends before @head
 *	-EBADMSG	the journal goes on behind a gap
 *	-ESTALE		the journal goes on behind its end in another epoch
 */
int hybrid_journal_replay(struct hybrid_journal *j, const struct hybrid_ident *id, u64 head,
			  hybrid_read_fn read, int (*apply)(void *context,
							    const struct hybrid_record *r),
			  void *context, const char **why);

#endif
