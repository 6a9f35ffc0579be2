// SPDX-License-Identifier: GPL-2.0-only
#include "geometry.h"
#include "format-check.h"

#define WINDOW_SECTORS		512	/* 256 KiB */

/* The root can name only so many leaves: this bounds the map, and with it the cache. */
#define MAX_LEAVES		((u32)HYBRID_ROOT_INDEXES * HYBRID_INDEX_LEAVES)
#define MAX_SETS		((MAX_LEAVES - HYBRID_VOLUME_LEAVES) / HYBRID_LEAVES_PER_SET)
#define MAX_BLOCKS		(MAX_SETS * HYBRID_MAX_SET_SIZE)
#define MIN_SET_SIZE		(HYBRID_MAX_SET_SIZE / 2)	/* unless the cache is smaller */

static_assert((u64)MAX_SETS * HYBRID_MAX_SET_SIZE < BIT_ULL(31));

/* Beyond this a member's bytes could not be counted in a loff_t. */
#define MAX_MEMBER_SECTORS	BIT_ULL(54)

/*
 * An fsync of new data takes a journal block, and half of the journal forces a checkpoint.  But a
 * small cache misses the space: its journal gets a 256th of the member, if that is less.
 */
#define DEFAULT_JOURNAL		1024	/* 4 MiB */
#define DEFAULT_JOURNAL_MIN	256
#define DEFAULT_JOURNAL_MAX	16384
#define JOURNAL_SHARE		256

static int refuse(const char **why, const char *what, int r)
{
	if (why)
		*why = what;
	return r;
}

static void set_units(struct hybrid_geometry *g, u32 block_sectors)
{
	g->block_sectors = block_sectors;
	g->granule_sectors = max_t(u32, HYBRID_MIN_GRANULE_SECTORS,
				   block_sectors / HYBRID_MAX_GRANULES);
	g->block_shift = ilog2(block_sectors);
	g->granule_shift = ilog2(g->granule_sectors);
	g->window_shift = block_sectors < WINDOW_SECTORS ?
			  ilog2(WINDOW_SECTORS) - g->block_shift : 0;
	g->granules = block_sectors >> g->granule_shift;
}

/* Places everything in front of the data, for @nr_sets sets. */
static void place_areas(struct hybrid_geometry *g, u32 nr_sets)
{
	const u64 block = HYBRID_META_BLOCK_SECTORS;

	g->nr_leaves = HYBRID_VOLUME_LEAVES + nr_sets * HYBRID_LEAVES_PER_SET;
	g->nr_index = DIV_ROUND_UP(g->nr_leaves, HYBRID_INDEX_LEAVES);
	g->root_sector = HYBRID_HEAD_SECTORS;
	g->index_sector = g->root_sector + 2 * block;
	g->leaf_sector = g->index_sector + 2 * block * g->nr_index;
	g->journal_sector = g->leaf_sector + 2 * block * g->nr_leaves;
	g->intent_sector = g->journal_sector + block * g->journal_blocks;
	g->data_sector = round_up(g->intent_sector + block * g->intent_blocks,
				  (u64)HYBRID_ALIGN_SECTORS);
}

/* Whether so many sets fit between their metadata and the tail. */
static bool fits(struct hybrid_geometry *g, u32 nr_sets, u32 set_size)
{
	u64 data = ((u64)nr_sets * set_size) << g->block_shift;

	place_areas(g, nr_sets);
	return g->member_sectors >= g->data_sector + data + HYBRID_TAIL_SECTORS;
}

/* The largest number of sets of that size that fits, up to MAX_SETS. */
static u32 count_sets(struct hybrid_geometry *g, u32 set_size)
{
	u32 low = 0, high = MAX_SETS;

	while (low < high) {
		u32 middle = low + (high - low + 1) / 2;

		if (fits(g, middle, set_size))
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/* One set, where two do not fit: whole regions, if there is room for one. */
static void choose_one_set(struct hybrid_geometry *g)
{
	u32 size = MIN_SET_SIZE;

	while (size && !fits(g, 1, size))
		size -= size > HYBRID_REGION_BLOCKS ? HYBRID_REGION_BLOCKS : 1;
	g->nr_sets = !!size;
	g->set_size = size;
}

/*
 * All sets have one size, of whole regions.  Large sets take less memory and place blocks more
 * freely.  So take the largest, but give up no more than a hundredth of the blocks that fit with
 * another size.
 */
static void choose_sets(struct hybrid_geometry *g)
{
	u32 size, most = 0;

	for (size = MIN_SET_SIZE; size <= HYBRID_MAX_SET_SIZE; size += HYBRID_REGION_BLOCKS)
		most = max(most, count_sets(g, size) * size);
	if (!most) {
		choose_one_set(g);
		return;
	}
	do {
		size -= HYBRID_REGION_BLOCKS;
		g->nr_sets = count_sets(g, size);
	} while (g->nr_sets * size < most - most / 100);
	g->set_size = size;
}

/* Half of the space that one record of every block fills, within reason. */
static u32 default_journal(const struct hybrid_geometry *g)
{
	u64 nr = (g->member_sectors - HYBRID_HEAD_SECTORS - HYBRID_TAIL_SECTORS) >>
		 g->block_shift;
	u64 share = g->member_sectors / HYBRID_META_BLOCK_SECTORS / JOURNAL_SHARE;
	u64 least = clamp_t(u64, share, DEFAULT_JOURNAL_MIN, DEFAULT_JOURNAL);
	u64 blocks;

	nr = min_t(u64, nr, MAX_BLOCKS);
	blocks = nr * sizeof(struct hybrid_record) / HYBRID_META_BLOCK_SIZE / 2;
	return clamp_t(u64, blocks, least, DEFAULT_JOURNAL_MAX);
}

int hybrid_geometry_init(struct hybrid_geometry *g, u64 member_sectors,
			 u32 block_sectors, u32 journal_blocks, const char **why)
{
	if (block_sectors < HYBRID_MIN_BLOCK_SECTORS ||
	    block_sectors > HYBRID_MAX_BLOCK_SECTORS || !is_power_of_2(block_sectors))
		return refuse(why, "block size is not a power of two from 4 KiB to 1 MiB",
			      -EINVAL);
	if (journal_blocks && (journal_blocks < HYBRID_JOURNAL_MIN_BLOCKS ||
			       journal_blocks > HYBRID_JOURNAL_MAX_BLOCKS))
		return refuse(why, "journal size is not from 512 KiB to 4 GiB", -EINVAL);
	if (member_sectors <= HYBRID_HEAD_SECTORS + HYBRID_TAIL_SECTORS)
		return refuse(why, "device is too small", -ENOSPC);

	memset(g, 0, sizeof(*g));
	g->member_sectors = member_sectors;
	set_units(g, block_sectors);
	g->journal_blocks = journal_blocks ? journal_blocks : default_journal(g);
	g->intent_blocks = HYBRID_INTENT_BLOCKS(g->journal_blocks);

	if (member_sectors > MAX_MEMBER_SECTORS || fits(g, MAX_SETS + 1, HYBRID_MAX_SET_SIZE))
		return refuse(why, "device is too large for this block size", -ENOSPC);
	choose_sets(g);
	g->nr_blocks = g->nr_sets * g->set_size;
	if (!g->nr_blocks)
		return refuse(why, "device is too small for the metadata and one block",
			      -ENOSPC);
	place_areas(g, g->nr_sets);
	return 0;
}

/* Areas A and B of @nr blocks each stand one after the other. */
static u64 area_sector(u64 start, u32 nr, u32 block, u64 generation)
{
	return start + (u64)HYBRID_META_BLOCK_SECTORS * ((generation & 1) * nr + block);
}

u64 hybrid_root_sector(const struct hybrid_geometry *g, u64 generation)
{
	return area_sector(g->root_sector, 1, 0, generation);
}

u64 hybrid_index_sector(const struct hybrid_geometry *g, u32 nr, u16 generation)
{
	return area_sector(g->index_sector, g->nr_index, nr, generation);
}

u64 hybrid_leaf_sector(const struct hybrid_geometry *g, u32 nr, u16 generation)
{
	return area_sector(g->leaf_sector, g->nr_leaves, nr, generation);
}

u64 hybrid_journal_sector(const struct hybrid_geometry *g, u64 n)
{
	u32 place;

	div_u64_rem(n, g->journal_blocks, &place);
	return g->journal_sector + (u64)HYBRID_META_BLOCK_SECTORS * place;
}

u32 hybrid_intent_place(const struct hybrid_geometry *g, u64 n)
{
	u32 place;

	div_u64_rem(n, g->intent_blocks, &place);
	return place;
}

u64 hybrid_intent_sector(const struct hybrid_geometry *g, u64 n)
{
	return g->intent_sector + (u64)HYBRID_META_BLOCK_SECTORS * hybrid_intent_place(g, n);
}

u64 hybrid_journal_place(const struct hybrid_geometry *g, u64 n, u32 blocks)
{
	u32 place;

	div_u64_rem(n, g->journal_blocks, &place);
	if ((u64)place + blocks > g->journal_blocks)
		n += g->journal_blocks - place;
	return n;
}

u64 hybrid_sb_sector(u64 member_sectors, unsigned int copy)
{
	if (!copy)
		return HYBRID_SB_SECTOR;
	return round_down(member_sectors, (u64)HYBRID_META_BLOCK_SECTORS) - HYBRID_SB_SECTOR;
}

u64 hybrid_lost_sector(u64 member_sectors, unsigned int copy)
{
	return hybrid_sb_sector(member_sectors, copy) + HYBRID_META_BLOCK_SECTORS;
}

static u64 chunks(u64 data_sectors, u32 shift)
{
	return (data_sectors + BIT_ULL(shift) - 1) >> shift;
}

u32 hybrid_lost_shift(u64 data_sectors, u32 block_sectors)
{
	u32 shift = ilog2(block_sectors);

	while (chunks(data_sectors, shift) > HYBRID_LOST_CHUNKS)
		shift++;
	return shift;
}

u32 hybrid_lost_blocks(u64 data_sectors, u32 chunk_shift)
{
	return 1 + DIV_ROUND_UP((u32)chunks(data_sectors, chunk_shift),
				8 * HYBRID_META_BLOCK_SIZE);
}

u64 hybrid_origin_room(u64 member_sectors, u64 data_sector)
{
	if (member_sectors < data_sector + HYBRID_TAIL_SECTORS)
		return 0;
	return round_down(member_sectors - HYBRID_TAIL_SECTORS - data_sector,
			  (u64)HYBRID_ALIGN_SECTORS);
}

int hybrid_origin_data(u64 member_sectors, u32 optimal_io_sectors,
		       u64 *data_sector, u64 *data_sectors)
{
	u64 start = max_t(u64, HYBRID_HEAD_SECTORS, optimal_io_sectors);

	start = round_up(start, (u64)HYBRID_ALIGN_SECTORS);
	if (member_sectors > MAX_MEMBER_SECTORS ||
	    member_sectors < start + HYBRID_ALIGN_SECTORS + HYBRID_TAIL_SECTORS)
		return -ENOSPC;
	*data_sector = start;
	*data_sectors = hybrid_origin_room(member_sectors, start);
	return 0;
}
