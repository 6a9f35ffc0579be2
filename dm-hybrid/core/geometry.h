/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Computes where each part of a member stands; no other file does.
 * Pure arithmetic: any context, no allocation, no sleeping.
 */
#ifndef DM_HYBRID_GEOMETRY_H
#define DM_HYBRID_GEOMETRY_H

#include "core.h"

/*
 * Layout of a cache device.  Everything follows from member_sectors,
 * block_sectors and journal_blocks.  Sectors are relative to the device.
 */
struct hybrid_geometry {
	u64 member_sectors;
	u32 block_sectors;	/* power of two, 8 ... 2048 */
	u32 granule_sectors;	/* max(8, block_sectors / 64) */
	u8 block_shift;		/* log2(block_sectors) */
	u8 granule_shift;	/* log2(granule_sectors) */
	u8 window_shift;	/* log2(blocks in a writeback window): 256 KiB, or one block */
	u32 granules;		/* in a block, 1 ... 64 */
	u32 set_size;		/* cache blocks in a set: 1 ... 7, or a multiple of 8 up to 512 */
	u32 nr_sets;
	u32 nr_blocks;		/* set_size * nr_sets */
	u32 journal_blocks, intent_blocks;
	u32 nr_leaves;		/* volume table and map */
	u32 nr_index;
	u64 root_sector, index_sector, leaf_sector, journal_sector, intent_sector;
	u64 data_sector;
};

/*
 * Computes the layout of a cache device.  With @journal_blocks 0, chooses a size for
 * the journal.  On an error, *why tells an admin the reason.
 * Returns 0, -EINVAL (block size, journal size) or -ENOSPC (device too small
 * or too large for the format).
 */
int hybrid_geometry_init(struct hybrid_geometry *g, u64 member_sectors,
			 u32 block_sectors, u32 journal_blocks, const char **why);

/* First sector of metadata block @nr in area @generation & 1. */
u64 hybrid_root_sector(const struct hybrid_geometry *g, u64 generation);
u64 hybrid_index_sector(const struct hybrid_geometry *g, u32 nr, u16 generation);
u64 hybrid_leaf_sector(const struct hybrid_geometry *g, u32 nr, u16 generation);

/* First sector of journal block number @n, taken modulo the ring. */
u64 hybrid_journal_sector(const struct hybrid_geometry *g, u64 n);

/*
 * Returns the journal block number of an entry of @blocks blocks if @n is the next
 * free number: @n, or the next multiple of the ring's size if the entry would wrap.
 */
u64 hybrid_journal_place(const struct hybrid_geometry *g, u64 n, u32 blocks);

/* Place of intent number @n in the ring: @n modulo its size.  Its first sector. */
u32 hybrid_intent_place(const struct hybrid_geometry *g, u64 n);
u64 hybrid_intent_sector(const struct hybrid_geometry *g, u64 n);

/* First sector of a cache block's data. */
static inline u64 hybrid_data_sector(const struct hybrid_geometry *g, cblock_t b)
{
	return g->data_sector + ((u64)from_cblock(b) << g->block_shift);
}

/* Generation that follows @g in the other area; 0 is never reached again. */
static inline u16 hybrid_next_generation(u16 g)
{
	return g == U16_MAX ? 2 : g + 1;
}

/* @steps generations after @g: in the other area if @steps is odd. */
static inline u16 hybrid_later_generation(u16 g, u32 steps)
{
	while (steps--)
		g = hybrid_next_generation(g);
	return g;
}

/*
 * Returns the first generation of an index block that was never written.  It depends
 * on the sequence of the root that is to name the block, and on whether that is the
 * root of a recovery.  So a block that a cut checkpoint has left has another generation.
 */
static inline u16 hybrid_first_generation(u64 sequence, bool recovery)
{
	return (u16)(sequence & 0x1fff) << 2 | (recovery ? 3 : 1);
}

/*
 * Returns the sector of a superblock on a member.  @copy: 0 head, 1 tail.  The
 * member has room for a head and a tail.
 */
u64 hybrid_sb_sector(u64 member_sectors, unsigned int copy);

/* First sector of copy @copy of the lost map, right behind the superblock. */
u64 hybrid_lost_sector(u64 member_sectors, unsigned int copy);

/* log2 of the sectors of a lost map's chunk, for a volume's size and a pool's block size. */
u32 hybrid_lost_shift(u64 data_sectors, u32 block_sectors);

/* Metadata blocks of the lost map, the first one included. */
u32 hybrid_lost_blocks(u64 data_sectors, u32 chunk_shift);

/* Sectors of data that a formatted origin of @member_sectors has room for from @data_sector on. */
u64 hybrid_origin_room(u64 member_sectors, u64 data_sector);

/*
 * Computes the data area of a formatted origin of @member_sectors.  The area starts
 * at *data_sector, the larger of 1 MiB and the device's optimal I/O size, rounded up
 * to 1 MiB.  It has *data_sectors, a multiple of 1 MiB.  Returns 0, or -ENOSPC if no
 * room is left or the device is too large for the format.
 */
int hybrid_origin_data(u64 member_sectors, u32 optimal_io_sectors,
		       u64 *data_sector, u64 *data_sectors);

#endif
