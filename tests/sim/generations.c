// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The engine notices a lost write of a tree block because the old block in its place
 * has another generation than the one named (P6).  So whenever such a block is written,
 * in crash states too, the old block must not be a good block of the same generation,
 * unless both say the same.  There is one exception: a recovery that was cut may have
 * written a block from the journal's last entry, whose loss nobody notices.
 */
#include <string.h>

#include "sim.h"

#define BLOCK HYBRID_META_BLOCK_SECTORS

union block {
	struct hybrid_block_header header;
	struct hybrid_index index;
	struct hybrid_volume_leaf volumes;
	struct hybrid_map_leaf map;
};

static bool good(const struct world *w, const union block *b, u32 leaf, bool index)
{
	struct hybrid_ident id = {};
	struct hybrid_volume_info info[HYBRID_VOLUMES_PER_LEAF];
	u16 leaves[HYBRID_INDEX_LEAVES], generation = le64_to_cpu(b->header.generation);
	u32 nr = le64_to_cpu(b->header.number);

	memcpy(id.pool_uuid, w->sb.pool_uuid, HYBRID_UUID_SIZE);
	if (index)
		return !hybrid_index_decode(&b->index, w->g, &id, nr, generation, leaves, NULL);
	if (leaf < HYBRID_VOLUME_LEAVES)
		return !hybrid_volumes_decode(&b->volumes, &id, nr, generation, info, NULL);
	return !hybrid_map_check(&b->map, w->g, &id, nr, generation, HYBRID_MAP_LEAF_BLOCKS, NULL);
}

/* Clears the fields in which two blocks of one generation may differ. */
static void forget_differences(union block *b, bool map)
{
	b->header.crc = 0;
	b->header.epoch = 0;
	if (map)
		memset(b->map.hint, 0, sizeof(b->map.hint));
}

static void check_block(struct world *w, u64 sector, const void *bytes, bool durable)
{
	const struct hybrid_geometry *g = w->g;
	bool index = sector < g->leaf_sector;
	u64 from = index ? g->index_sector : g->leaf_sector;
	u32 leaf = (sector - from) / BLOCK % (index ? g->nr_index : g->nr_leaves);
	union block old, new;

	memcpy(&new, bytes, sizeof(new));
	device_get_bytes(w->dev[0], sector, &old, sizeof(old), durable);
	if (old.header.generation != new.header.generation ||
	    old.header.number != new.header.number || !good(w, &old, leaf, index))
		return;
	forget_differences(&old, !index && leaf >= HYBRID_VOLUME_LEAVES);
	forget_differences(&new, !index && leaf >= HYBRID_VOLUME_LEAVES);
	if (memcmp(&old, &new, sizeof(old)))
		violation(w, "J7", "generation %llu of %s %u is written again with other content",
			  (unsigned long long)le64_to_cpu(new.header.generation),
			  index ? "index block" : "leaf", leaf);
}

void generations_check(struct world *w, const struct dreq *r)
{
	u32 i;

	if (!sim_lint || r->dev->nr || !r->meta || r->kind != DREQ_WRITE || w->lying ||
	    w->unjudged || r->sector < w->g->index_sector || r->sector >= w->g->journal_sector)
		return;
	for (i = 0; i < r->count; i += BLOCK) {
		check_block(w, r->sector + i, r->bytes + i * 512, true);
		check_block(w, r->sector + i, r->bytes + i * 512, false);
	}
}
