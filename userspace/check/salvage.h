/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The certain part of damaged metadata.
 *
 * Records of the journal are absolute.  So the state of a cache block is certain if
 *   - its last record is in the part of the journal that has no gap to its end, or
 *   - its leaf is one that a good root names, or a later one, and the journal has no
 *     gap from that root's tail to its end.
 * Everything else is dropped: clean data is on the origin, too; hybrid_salvage_stale()
 * lists the ranges in which there may have been dirty data.  No dirty data is taken from
 * a state that may have been followed by another one.
 *
 * A recovery takes granules from intents without a record.  A block of which only a state from
 * before such a recovery is known keeps its dirty data, and is listed but for these granules.
 *
 * Clean data counts only if no recovery can have forgotten it since.  As after recovery,
 * no clean data is left in open regions, and no region is open.
 */
#ifndef HYBRID_SALVAGE_H
#define HYBRID_SALVAGE_H

#include "metadata.h"
#include "ranges.h"

struct hybrid_salvage {
	/*
	 * The result: superblock, volumes, blocks (all that have an instance are live).
	 * root is the current one, or zero; but its next_instance is above all instances seen.
	 */
	struct hybrid_metadata md;
	u8 *uncertain;			/* by set: dirty data of it may be missing */
	u8 *incomplete;			/* by cache block: ... and granules of a block that is kept */
	u8 *doubtful;			/* by volume: nothing of it is kept */
	/* Any granule that is not dirty on record may be: an intent for it may be missing. */
	bool intents_lost;
	struct hybrid_ranges lost;	/* their data, named by intents alone, is gone */
	bool unreadable;		/* a block of the metadata is */
	u64 lost_volumes;		/* leaves of the volume table that are gone, or older */
	u64 unknown_blocks;		/* their state is not certain */
	u64 forgotten_blocks;		/* certain blocks whose clean data was dropped */
	u64 journal_next;		/* above all numbers in the ring, by a lap */
	u64 intent_next;		/* likewise */
	/*
	 * Generation of the block to write instead of leaf or index block @nr, in the
	 * area whose block is not needed; and whether the present block is good.
	 */
	u16 *leaf_next, *index_next;
	u8 *leaf_named, *index_named;	/* md's generation is there, and is good */
};

/*
 * Returns 0, or an exit code after a message: no superblock is good, or no memory.
 * Free it in any case.
 */
int hybrid_salvage_read(struct hybrid_salvage *s, const struct hybrid_device *dev);
void hybrid_salvage_free(struct hybrid_salvage *s);

/*
 * For hybrid_salvage_read(): adds the writes that intents from @tail on name to s->md, whose id has
 * the newest epoch.  @known: by cache block, whether its state is certain.  Returns 0, or an exit
 * code after a message.  @stopped: the pool was stopped, so that no intent counts.
 */
int hybrid_salvage_intents(struct hybrid_salvage *s, const struct hybrid_device *dev,
			   const u8 *known, u64 tail, bool stopped);

/* Where volumes may have lost writes: their origins may be older there. */
void hybrid_salvage_stale(const struct hybrid_salvage *s, struct hybrid_ranges *ranges);

#endif
