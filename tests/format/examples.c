// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Prints the bytes of one example of each metadata block, rows of zeroes left
 * out: what version 7 of the format is, byte by byte.
 */
#include "samples.h"
#include <stdio.h>

static void encode_volumes(struct hybrid_volume_leaf *block, const struct hybrid_ident *id, u32 nr,
			   u16 generation, const struct hybrid_volume_info *info)
{
	const struct hybrid_volume_info *p[HYBRID_VOLUMES_PER_LEAF];
	unsigned int k;

	for (k = 0; k < HYBRID_VOLUMES_PER_LEAF; k++)
		p[k] = &info[k];
	hybrid_volumes_encode(block, id, nr, generation, p);
}

static union {
	struct hybrid_superblock sb;
	struct hybrid_root root;
	struct hybrid_index index;
	struct hybrid_volume_leaf volumes;
	struct hybrid_map_leaf map;
	struct hybrid_journal_entry entry;
	struct hybrid_intent intent;
	struct hybrid_lost_map lost;
	u8 byte[SAMPLE_LOST_BLOCKS * HYBRID_META_BLOCK_SIZE];
} block;

static void print(const char *name, size_t size)
{
	static const u8 zero[32];
	size_t row, i;

	printf("example %s crc %08x\n", name, ~crc32c(~0, block.byte, size));
	for (row = 0; row < size; row += sizeof(zero)) {
		if (!memcmp(block.byte + row, zero, sizeof(zero)))
			continue;
		printf("  %04zx:", row);
		for (i = 0; i < sizeof(zero); i++)
			printf("%s%02x", i % 4 ? "" : " ", block.byte[row + i]);
		printf("\n");
	}
	memset(&block, 0xa5, sizeof(block));
}

static void print_superblocks(void)
{
	struct hybrid_sb sb;

	sample_sb(&sb, HYBRID_ROLE_CACHE);
	hybrid_sb_encode(&block.sb, &sb, hybrid_sb_sector(SAMPLE_SECTORS, 0));
	print("superblock of a cache device", HYBRID_META_BLOCK_SIZE);
	sample_sb(&sb, HYBRID_ROLE_ORIGIN);
	hybrid_sb_encode(&block.sb, &sb, hybrid_sb_sector(SAMPLE_SECTORS, 1));
	print("superblock of an origin, in its tail", HYBRID_META_BLOCK_SIZE);
	sample_lost(&block.lost);
	hybrid_lost_seal(&block.lost, &sb, SAMPLE_LOST_SHIFT, 1);
	print("lost map, in the tail", SAMPLE_LOST_BLOCKS * HYBRID_META_BLOCK_SIZE);
}

static void print_tree(const struct hybrid_geometry *g, const struct hybrid_ident *id)
{
	struct hybrid_volume_info info[HYBRID_VOLUMES_PER_LEAF];
	u16 generation[HYBRID_INDEX_LEAVES];
	struct hybrid_root_info root;

	sample_root(&root, generation, g->nr_index);
	hybrid_root_encode(&block.root, g, id, &root, generation);
	print("root", HYBRID_META_BLOCK_SIZE);
	sample_root(&root, generation, HYBRID_ROOT_INDEXES);
	hybrid_index_encode(&block.index, g, id, g->nr_index - 1, 3, generation);
	print("index", HYBRID_META_BLOCK_SIZE);
	sample_volumes(info);
	encode_volumes(&block.volumes, id, 1, 4, info);
	print("volume leaf", HYBRID_META_BLOCK_SIZE);
	sample_map(&block.map);
	hybrid_map_seal(&block.map, id, HYBRID_VOLUME_LEAVES + 1, 5);
	print("map leaf", HYBRID_META_BLOCK_SIZE);
}

int main(void)
{
	struct hybrid_geometry g;
	struct hybrid_ident id;
	u32 blocks;

	sample_geometry(&g);
	sample_ident(&id);
	print_superblocks();
	print_tree(&g, &id);
	sample_records(&block.entry, 103);
	blocks = hybrid_entry_seal(&block.entry, &id, 5000, 103, 70);
	print("journal entry", blocks * HYBRID_META_BLOCK_SIZE);
	memset(&block.intent, 0, sizeof(block.intent));
	sample_intent(&block.intent);
	hybrid_intent_seal(&block.intent, &id, 80, 2, 75);
	print("intent", HYBRID_META_BLOCK_SIZE);
	return 0;
}
