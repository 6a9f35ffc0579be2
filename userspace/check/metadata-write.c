// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "map.h"
#include "members.h"
#include "metadata-write.h"

#define WRITE_BLOCKS		64
#define FIRST_GENERATION	1
#define FIRST_SEQUENCE		2	/* even: area A */

/* ---- leaves ------------------------------------------------------------ */

static bool encode_volumes(const struct hybrid_metadata *md, u32 nr, u16 generation, void *block)
{
	static const struct hybrid_volume_info none;
	const struct hybrid_volume_info *info[HYBRID_VOLUMES_PER_LEAF];
	bool used = false;
	u32 id, k;

	for (k = 0; k < HYBRID_VOLUMES_PER_LEAF; k++) {
		id = nr * HYBRID_VOLUMES_PER_LEAF + k;
		info[k] = id < HYBRID_MAX_VOLUMES ? &md->volume[id] : &none;
		used |= info[k]->state != HYBRID_VOLUME_FREE;
	}
	hybrid_volumes_encode(block, &md->id, nr, generation, info);
	return used;
}

/* Cache blocks of map leaf @nr: from *first on. */
static u32 leaf_blocks(const struct hybrid_geometry *g, u32 nr, size_t *first)
{
	u32 set = (nr - HYBRID_VOLUME_LEAVES) / HYBRID_LEAVES_PER_SET;
	u32 i = (nr - HYBRID_VOLUME_LEAVES) % HYBRID_LEAVES_PER_SET * HYBRID_MAP_LEAF_BLOCKS;

	*first = (size_t)set * g->set_size + i;
	return i < g->set_size ? min_t(u32, g->set_size - i, HYBRID_MAP_LEAF_BLOCKS) : 0;
}

static bool encode_map(const struct hybrid_metadata *md, u32 nr, u16 generation, void *block)
{
	struct hybrid_map_leaf *leaf = block;
	size_t b;
	u32 count = leaf_blocks(md->g, nr, &b), set = (nr - HYBRID_VOLUME_LEAVES) /
						      HYBRID_LEAVES_PER_SET;
	u32 region = (nr - HYBRID_VOLUME_LEAVES) % HYBRID_LEAVES_PER_SET * HYBRID_MAP_LEAF_REGIONS;
	bool used;
	u32 k;

	memset(leaf, 0, sizeof(*leaf));
	leaf->open_regions = cpu_to_le16(md->open[set] >> region);
	used = leaf->open_regions;
	for (k = 0; k < count; k++, b++) {
		if (!md->instance[b])
			continue;
		used = true;
		leaf->oblock[k] = cpu_to_le64(md->oblock[b]);
		leaf->valid[k] = cpu_to_le64(md->valid[b]);
		leaf->dirty[k] = cpu_to_le64(md->dirty[b]);
		leaf->instance[k] = cpu_to_le32(md->instance[b]);
		leaf->hint[k] = md->hint[b];
	}
	if (used)
		hybrid_map_seal(leaf, &md->id, nr, generation);
	return used;
}

bool hybrid_leaf_encode(const struct hybrid_metadata *md, u32 nr, u16 generation, void *block)
{
	if (nr < HYBRID_VOLUME_LEAVES)
		return encode_volumes(md, nr, generation, block);
	return encode_map(md, nr, generation, block);
}

static int verify_leaf(const struct hybrid_metadata *md, u32 nr, void *block, const char **why)
{
	struct hybrid_volume_info info[HYBRID_VOLUMES_PER_LEAF];
	size_t first;

	if (!hybrid_leaf_encode(md, nr, FIRST_GENERATION, block))
		return 0;
	if (nr < HYBRID_VOLUME_LEAVES)
		return hybrid_volumes_decode(block, &md->id, nr, FIRST_GENERATION, info, why);
	return hybrid_map_check(block, md->g, &md->id, nr, FIRST_GENERATION,
				leaf_blocks(md->g, nr, &first), why);
}

int hybrid_metadata_verify(const struct hybrid_metadata *md, const char **why)
{
	void *block = hybrid_buffer(HYBRID_META_BLOCK_SIZE);
	u64 sector = hybrid_sb_sector(md->sb.member_sectors, 0);
	struct hybrid_sb sb;
	int r;
	u32 nr;

	*why = "memory";
	if (!block)
		return -ENOMEM;
	hybrid_sb_encode(block, &md->sb, sector);
	r = hybrid_sb_decode(block, sector, md->sb.member_sectors, &sb, why);
	for (nr = 0; !r && nr < md->g->nr_leaves; nr++)
		r = verify_leaf(md, nr, block, why);
	free(block);
	return r ? -EINVAL : 0;
}

/* ---- the map as the engine would see it -------------------------------- */

struct claim {
	u64 key;
	size_t block;
};

static int compare_claims(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;

	return x->key < y->key ? -1 : x->key > y->key;
}

static u8 judge_block(struct hybrid_metadata *md, const struct hybrid_map *map, size_t b, u64 *key)
{
	int volume = hybrid_metadata_volume_of(md, md->instance[b]);
	const struct hybrid_volume_info *info;

	if (volume < 0)
		return md->instance[b] ? HYBRID_BLOCK_DEAD : HYBRID_BLOCK_FREE;
	info = &md->volume[volume];
	*key = hybrid_key(volume, to_oblock(md->oblock[b]));
	if (md->oblock[b] > (hybrid_volume_reach(info) - 1) >> md->g->block_shift ||
	    hybrid_map_set_of(map, *key) != b / md->g->set_size)
		return HYBRID_BLOCK_BAD;
	return HYBRID_BLOCK_LIVE;
}

static u64 judge_set(struct hybrid_metadata *md, const struct hybrid_map *map, u32 set)
{
	struct claim claim[HYBRID_MAX_SET_SIZE];
	size_t first = (size_t)set * md->g->set_size, b;
	u32 nr = 0, k;
	u64 bad = 0;

	for (b = first; b < first + md->g->set_size; b++) {
		md->block_state[b] = judge_block(md, map, b, &claim[nr].key);
		claim[nr].block = b;
		nr += md->block_state[b] == HYBRID_BLOCK_LIVE;
	}
	qsort(claim, nr, sizeof(claim[0]), compare_claims);
	for (k = 1; k < nr; k++)
		if (claim[k].key == claim[k - 1].key) {
			md->block_state[claim[k].block] = HYBRID_BLOCK_CLAIMED;
			md->block_state[claim[k - 1].block] = HYBRID_BLOCK_CLAIMED;
		}
	for (b = first; b < first + md->g->set_size; b++)
		bad += md->block_state[b] == HYBRID_BLOCK_BAD ||
		       md->block_state[b] == HYBRID_BLOCK_CLAIMED;
	return bad;
}

u64 hybrid_metadata_judge(struct hybrid_metadata *md)
{
	struct hybrid_map map = { .g = md->g, .nr_sets = md->g->nr_sets };
	u64 bad = 0;
	u32 set;

	hybrid_metadata_index(md);
	for (set = 0; set < md->g->nr_sets; set++)
		bad += judge_set(md, &map, set);
	hybrid_metadata_count(md);
	return bad;
}

/* ---- writing ----------------------------------------------------------- */

int hybrid_writer_begin(struct hybrid_writer *w, const struct hybrid_device *dev)
{
	memset(w, 0, sizeof(*w));
	w->dev = dev;
	w->buffer = hybrid_buffer((size_t)WRITE_BLOCKS * HYBRID_META_BLOCK_SIZE);
	return w->buffer ? 0 : hybrid_nomem();
}

static void write_out(struct hybrid_writer *w)
{
	if (w->nr && !w->error)
		w->error = hybrid_device_write(w->dev, w->sector, w->buffer,
					       (size_t)w->nr * HYBRID_META_BLOCK_SIZE);
	w->nr = 0;
}

void *hybrid_writer_next(struct hybrid_writer *w)
{
	if (w->nr == WRITE_BLOCKS)
		write_out(w);
	return w->buffer + (size_t)w->nr * HYBRID_META_BLOCK_SIZE;
}

void hybrid_writer_put(struct hybrid_writer *w, u64 sector)
{
	void *block = hybrid_writer_next(w);

	if (w->nr && sector != w->sector + (u64)w->nr * HYBRID_META_BLOCK_SECTORS) {
		write_out(w);
		memmove(w->buffer, block, HYBRID_META_BLOCK_SIZE);
	}
	if (!w->nr)
		w->sector = sector;
	w->nr++;
}

void hybrid_writer_flush(struct hybrid_writer *w)
{
	write_out(w);
	if (!w->error)
		w->error = hybrid_device_flush(w->dev);
}

int hybrid_writer_end(struct hybrid_writer *w)
{
	write_out(w);
	free(w->buffer);
	if (!w->error)
		return 0;
	return hybrid_fail(hybrid_exit_of_errno(-w->error), "check the device and the kernel log",
			   "%s: cannot write: %s", w->dev->path, strerror(-w->error));
}

static void zero(struct hybrid_writer *w, u64 sector, u64 sectors)
{
	write_out(w);
	if (!w->error)
		w->error = hybrid_device_zero(w->dev, sector, sectors);
}

/* Nobody may take the old content for a member, or a journal of this pool. */
static void erase(struct hybrid_writer *w, const struct hybrid_metadata *md)
{
	const struct hybrid_geometry *g = md->g;

	w->error = hybrid_member_forget_tails(w->dev, g->member_sectors);
	if (!w->error)
		w->error = hybrid_member_zero(w->dev, g->member_sectors);
	zero(w, g->journal_sector, (u64)g->journal_blocks * HYBRID_META_BLOCK_SECTORS);
	zero(w, g->intent_sector, (u64)g->intent_blocks * HYBRID_META_BLOCK_SECTORS);
	hybrid_writer_flush(w);
}

/*
 * The first generation for a block of area B at @sector.  A block of a pool with the same UUID
 * may be there: its generation is not used, so that a lost write does not go unnoticed.
 */
static u16 first_generation(const struct hybrid_writer *w, u64 sector,
			    struct hybrid_block_header *header)
{
	u16 generation = FIRST_GENERATION;

	if (!hybrid_device_read(w->dev, sector, header, HYBRID_META_BLOCK_SIZE) &&
	    le64_to_cpu(header->generation) == generation)
		generation = hybrid_later_generation(generation, 2);
	return generation;
}

static void write_tree(struct hybrid_writer *w, struct hybrid_metadata *md)
{
	void *mem = hybrid_buffer(HYBRID_META_BLOCK_SIZE);
	const struct hybrid_geometry *g = md->g;
	u32 nr, index;
	u16 gen;

	if (!mem) {
		w->error = -ENOMEM;
		return;
	}

	memset(md->index_generation, 0, g->nr_index * sizeof(u16));
	for (nr = 0; nr < g->nr_leaves; nr++) {
		md->leaf_generation[nr] = 0;
		if (!hybrid_leaf_encode(md, nr, FIRST_GENERATION, hybrid_writer_next(w)))
			continue;
		gen = first_generation(w, hybrid_leaf_sector(g, nr, FIRST_GENERATION), mem);
		hybrid_leaf_encode(md, nr, gen, hybrid_writer_next(w));
		hybrid_writer_put(w, hybrid_leaf_sector(g, nr, gen));
		md->leaf_generation[nr] = gen;
		md->index_generation[nr / HYBRID_INDEX_LEAVES] = FIRST_GENERATION;
	}
	for (index = 0; index < g->nr_index; index++) {
		if (!md->index_generation[index])
			continue;
		gen = first_generation(w, hybrid_index_sector(g, index, FIRST_GENERATION), mem);
		hybrid_index_encode(hybrid_writer_next(w), g, &md->id, index, gen,
				    md->leaf_generation + index * HYBRID_INDEX_LEAVES);
		hybrid_writer_put(w, hybrid_index_sector(g, index, gen));
		md->index_generation[index] = gen;
	}
	hybrid_writer_flush(w);
	free(mem);
}

/* Its first sector goes first: without it, the rest is no root, and no bad one either. */
static void erase_root(struct hybrid_writer *w, u64 sector)
{
	zero(w, sector, w->dev->logical_sectors);
	hybrid_writer_flush(w);
	zero(w, sector, HYBRID_META_BLOCK_SECTORS);
	hybrid_writer_flush(w);
}

/* ... and comes last. */
static void put_root(struct hybrid_writer *w, u64 sector, const void *block)
{
	size_t first = (size_t)w->dev->logical_sectors * 512;

	erase_root(w, sector);
	if (!w->error && first < HYBRID_META_BLOCK_SIZE)
		w->error = hybrid_device_write(w->dev, sector + w->dev->logical_sectors,
					       block + first, HYBRID_META_BLOCK_SIZE - first);
	hybrid_writer_flush(w);
	if (!w->error)
		w->error = hybrid_device_write(w->dev, sector, block, first);
	hybrid_writer_flush(w);
}

/*
 * Another run of the same restore must find a root that it can compare with the dump, wherever
 * this one is cut.  So the new root takes the area of the older one, and the current one goes last.
 */
static void write_root(struct hybrid_writer *w, struct hybrid_metadata *md)
{
	struct hybrid_root_info old;
	void *block = hybrid_buffer(HYBRID_META_BLOCK_SIZE);

	if (!block) {
		w->error = -ENOMEM;
		return;
	}
	hybrid_cache_root(w->dev, &md->sb, &old);
	md->root.sequence = FIRST_SEQUENCE;
	if (old.sequence && !hybrid_number_ends(old.sequence))
		md->root.sequence = old.sequence + 1;
	md->root.journal_tail = 0;
	md->root.journal_head = 0;
	md->root.intent_tail = 0;
	hybrid_root_encode(block, md->g, &md->id, &md->root, md->index_generation);
	put_root(w, hybrid_root_sector(md->g, md->root.sequence), block);
	erase_root(w, hybrid_root_sector(md->g, md->root.sequence + 1));
	free(block);
}

int hybrid_metadata_write(const struct hybrid_device *dev, struct hybrid_metadata *md)
{
	struct hybrid_writer w;
	int r;

	r = hybrid_writer_begin(&w, dev);
	if (r)
		return r;
	erase(&w, md);
	write_tree(&w, md);
	write_root(&w, md);
	r = hybrid_writer_end(&w);
	return r ? r : hybrid_member_write(dev, &md->sb);
}
