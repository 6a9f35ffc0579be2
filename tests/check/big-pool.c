// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * big-pool FILE SIZE-MIB BLOCK-SECTORS ENTRIES: the cache device of a crashed pool, as a sparse
 * file.  Every block that finds room in its set is mapped, every fourth of them is dirty, and the
 * journal has so many of the largest entries.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "journal.h"
#include "map.h"

static u8 *file;		/* all metadata before the data */
static struct hybrid_sb sb = {
	.role = HYBRID_ROLE_CACHE, .sequence = 1, .name = "big", .policy = "lru",
	.pool_uuid = { 1 }, .member_uuid = { 2 },
};
static const struct hybrid_ident id = { .pool_uuid = { 1 }, .epoch = 4711 };
static struct hybrid_geometry *g = &sb.geometry;

static void die(const char *what)
{
	perror(what);
	exit(2);
}

static void *at(u64 sector)
{
	return file + sector * 512;
}

static struct hybrid_map_leaf *leaf_of(u32 set, u32 i)
{
	return at(hybrid_leaf_sector(g, HYBRID_VOLUME_LEAVES + set * HYBRID_LEAVES_PER_SET +
				     i / HYBRID_MAP_LEAF_BLOCKS, 2));
}

static void map_block(u32 set, u32 i, u64 oblock)
{
	struct hybrid_map_leaf *leaf = leaf_of(set, i);
	u32 k = i % HYBRID_MAP_LEAF_BLOCKS;
	u64 valid = GENMASK_ULL(g->granules - 1, 0);

	leaf->instance[k] = cpu_to_le32(1);
	leaf->oblock[k] = cpu_to_le64(oblock);
	leaf->valid[k] = cpu_to_le64(valid);
	leaf->dirty[k] = cpu_to_le64(oblock % 4 ? 0 : valid & (oblock >> 2));
}

/* Until no set has been given anything for a while: nearly all are full then. */
static void fill_map(void)
{
	struct hybrid_map map = { .g = g, .nr_sets = g->nr_sets };
	u16 *used = calloc(g->nr_sets, sizeof(*used));
	u64 oblock, left = g->nr_blocks, full = 0;

	if (!used)
		die("memory");
	for (oblock = 0; left && full < 16 * g->nr_sets; oblock++) {
		u32 set = hybrid_map_set_of(&map, hybrid_key(0, to_oblock(oblock)));

		full++;
		if (used[set] == g->set_size)
			continue;
		map_block(set, used[set]++, oblock);
		left--;
		full = 0;
	}
	free(used);
}

static void seal_tree(void)
{
	u16 *index = calloc(g->nr_index, sizeof(*index));
	u16 *leaf = calloc(g->nr_leaves, sizeof(*leaf));
	struct hybrid_volume_info info[HYBRID_VOLUMES_PER_LEAF] = { {
		.state = HYBRID_VOLUME_ACTIVE, .instance = 1, .mode = HYBRID_MODE_WRITEBACK,
		.uuid = { 3 }, .member_uuid = { 4 }, .name = "volume", .nonce = 5,
		.data_sector = HYBRID_HEAD_SECTORS, .data_sectors = BIT_ULL(50),
	} };
	const struct hybrid_volume_info *infos[HYBRID_VOLUMES_PER_LEAF];
	u32 nr;

	if (!leaf || !index)
		die("memory");
	for (nr = 0; nr < HYBRID_VOLUMES_PER_LEAF; nr++)
		infos[nr] = &info[nr];
	leaf[0] = 2;
	hybrid_volumes_encode(at(hybrid_leaf_sector(g, 0, 2)), &id, 0, 2, infos);
	for (nr = HYBRID_VOLUME_LEAVES; nr < g->nr_leaves; nr++) {
		leaf[nr] = 2;
		hybrid_map_seal(at(hybrid_leaf_sector(g, nr, 2)), &id, nr, 2);
	}
	for (nr = 0; nr < g->nr_index; nr++) {
		index[nr] = 2;
		hybrid_index_encode(at(hybrid_index_sector(g, nr, 2)), g, &id, nr, 2,
				    leaf + nr * HYBRID_INDEX_LEAVES);
	}
	hybrid_root_encode(at(hybrid_root_sector(g, 2)), g, &id, &(struct hybrid_root_info) {
		.sequence = 2, .epoch = id.epoch, .next_instance = 2 }, index);
	free(leaf);
	free(index);
}

/* Records that repeat the map's contents for every 64th block. */
static void fill_journal(u32 entries)
{
	struct hybrid_journal j;
	u64 sector, b = 0;

	if (hybrid_journal_create(&j, g))
		die("memory");
	while (entries--) {
		if (!hybrid_journal_grow(&j, j.max_blocks))
			die("memory");
		while (hybrid_journal_space(&j)) {
			struct hybrid_map_leaf *leaf = leaf_of(b / g->set_size, b % g->set_size);
			u32 k = b % g->set_size % HYBRID_MAP_LEAF_BLOCKS;

			hybrid_journal_block(&j, to_cblock(b), le32_to_cpu(leaf->instance[k]),
					     to_oblock(le64_to_cpu(leaf->oblock[k])),
					     le64_to_cpu(leaf->valid[k]),
					     le64_to_cpu(leaf->dirty[k]), 0);
			b = (b + 64) % g->nr_blocks;
		}
		sector = hybrid_journal_seal(&j, &id, 0);
		memcpy(at(sector), j.entry, (size_t)j.blocks * HYBRID_META_BLOCK_SIZE);
		hybrid_journal_advance(&j);
	}
	hybrid_journal_destroy(&j);
}

static void write_superblocks(int fd)
{
	struct hybrid_superblock block;
	unsigned int copy;
	u64 sector;

	for (copy = 0; copy < 2; copy++) {
		sector = hybrid_sb_sector(sb.member_sectors, copy);
		hybrid_sb_encode(&block, &sb, sector);
		if (pwrite(fd, &block, sizeof(block), sector * 512) != sizeof(block))
			die("superblock");
	}
}

int main(int argc, char **argv)
{
	const char *why;
	int fd;

	if (argc != 5)
		return 1;
	sb.member_sectors = strtoull(argv[2], NULL, 0) << 11;
	if (hybrid_geometry_init(g, sb.member_sectors, atoi(argv[3]), 0, &why))
		die(why);
	fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
	if (fd < 0 || ftruncate(fd, sb.member_sectors * 512))
		die(argv[1]);
	file = mmap(NULL, g->data_sector * 512, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (file == MAP_FAILED)
		die("mmap");
	fill_map();
	seal_tree();
	fill_journal(atoi(argv[4]));
	write_superblocks(fd);
	return fsync(fd);
}
