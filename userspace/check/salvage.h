/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What is certain of damaged metadata.
 *
 * Records of the journal are absolute.  So the state of a cache block is certain if
 *   - its last record is in the part of the journal that has no gap to its end, or
 *   - its leaf is one that a good root names, or a later one, and the journal has no
 *     gap from that root's tail to its end.
 * All else is dropped: clean data are on the origin, too; what dirty data there may
 * have been is said by hybrid_salvage_stale().  Nothing dirty is taken from a state
 * that may have been followed by another one.
 *
 * What is clean counts only if nothing can have made recovery forget it since; as
 * after recovery, nothing clean is left in open regions, and no region is open.
 */
#ifndef HYBRID_SALVAGE_H
#define HYBRID_SALVAGE_H

#include "metadata.h"
#include "ranges.h"

struct hybrid_salvage {
	/*
	 * The result: superblock, volumes, blocks (all that have an instance are live).
	 * root is the current one, or zero; but its next_instance is above all seen.
	 */
	struct hybrid_metadata md;
	u8 *uncertain;			/* by set: dirty data of it may be missing */
	u8 *doubtful;			/* by volume: nothing of it is kept */
	u64 lost_volumes;		/* leaves of the volume table that are gone, or older */
	u64 unknown_blocks;		/* their state is not certain */
	u64 forgotten_blocks;		/* clean ones among the certain that were dropped */
	u64 journal_next;		/* above all numbers in the ring, by a lap */
	/*
	 * Generation for what is written instead of leaf or index block @nr: in the
	 * area whose block is not needed; and whether what stands there now is good.
	 */
	u16 *leaf_next, *index_next;
	u8 *leaf_named, *index_named;	/* md's generation stands there, and is good */
};

/*
 * Returns 0, or an exit code after a message: no superblock is good, or no memory.
 * Free it in any case.
 */
int hybrid_salvage_read(struct hybrid_salvage *s, const struct hybrid_device *dev);
void hybrid_salvage_free(struct hybrid_salvage *s);

/* Where volumes may have lost writes: their origins may be older there. */
void hybrid_salvage_stale(const struct hybrid_salvage *s, struct hybrid_ranges *ranges);

#endif
