// SPDX-License-Identifier: GPL-2.0-or-later
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "map.h"
#include "scale-disk.h"

#define LEAF_BYTES	HYBRID_META_BLOCK_SIZE
#define MIX		0x9e3779b97f4a7c15ULL

static const struct hybrid_ident id = { .pool_uuid = { 1 }, .epoch = 4711 };

u32 scale_mix(u64 x)
{
	x = (x + 1) * MIX;
	x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ULL;
	return (x ^ (x >> 32)) >> 16;
}

static void *zeroes(u64 bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(2);
	}
	return p;
}

static void *at(struct scale_disk *d, u64 sector)
{
	return d->mem + sector * 512;
}

/* As after long use: some leaves in this area, some in that. */
static u16 generation(u32 leaf)
{
	return leaf < HYBRID_VOLUME_LEAVES ? leaf ? 0 : 2 : 2 + scale_mix(leaf) % 2;
}

/* ---- layout -------------------------------------------------------------- */

/*
 * From window to window, so that each comes once, and as many as were taken are spread
 * over all of the origin: near the golden section, and nothing that divides @windows.
 */
static u64 stride(u64 windows)
{
	u64 step = windows * 0.6180339887, a, b, rest;

	do {
		step++;
		for (a = windows, b = step; b; a = b, b = rest)
			rest = a % b;
	} while (a != 1);
	return step;
}

/* Windows from all over the origin, until each set is full of windows that its hash takes. */
static void fill_windows(struct scale_disk *d)
{
	const struct hybrid_geometry *g = &d->sb.geometry;
	struct hybrid_map map = { .g = g, .nr_sets = g->nr_sets };
	u64 windows = d->origin.data_sectors >> (g->block_shift + g->window_shift), w = 0, i;
	u64 step = stride(windows);
	u32 room = g->set_size >> g->window_shift;
	u64 left = (u64)g->nr_sets * room;
	u16 *used = calloc(g->nr_sets, sizeof(*used));

	d->window = malloc(left * sizeof(*d->window));
	if (!d->window || !used)
		exit(2);
	for (i = 0; left && i < windows; i++, w = (w + step) % windows) {
		u64 key = hybrid_key(0, to_oblock(w << g->window_shift));
		u32 set = hybrid_map_set_of(&map, key);

		if (used[set] == room)
			continue;
		d->window[(u64)set * room + used[set]++] = w;
		left--;
	}
	free(used);
	if (left) {
		fprintf(stderr, "the origin is too small to fill the cache\n");
		exit(2);
	}
}

u64 scale_disk_oblock(const struct scale_disk *d, u64 b)
{
	u32 shift = d->sb.geometry.window_shift;

	return ((u64)d->window[b >> shift] << shift) + (b & ((1U << shift) - 1));
}

static void make_map_leaf(const struct scale_disk *d, u32 nr, struct hybrid_map_leaf *leaf)
{
	const struct hybrid_geometry *g = &d->sb.geometry;
	u32 n = nr - HYBRID_VOLUME_LEAVES;
	u32 first = n % HYBRID_LEAVES_PER_SET * HYBRID_MAP_LEAF_BLOCKS, k;
	u64 valid = GENMASK_ULL(g->granules - 1, 0);

	memset(leaf, 0, sizeof(*leaf));
	for (k = 0; k < HYBRID_MAP_LEAF_BLOCKS && first + k < g->set_size; k++) {
		u64 b = (u64)(n / HYBRID_LEAVES_PER_SET) * g->set_size + first + k;

		leaf->instance[k] = cpu_to_le32(1);
		leaf->oblock[k] = cpu_to_le64(scale_disk_oblock(d, b));
		leaf->valid[k] = cpu_to_le64(valid);
		leaf->hint[k] = scale_mix(b);
	}
	hybrid_map_seal(leaf, &id, nr, generation(nr));
}

/* ---- reads and writes ---------------------------------------------------- */

static bool in_leaves(const struct scale_disk *d, u64 sector)
{
	return sector >= d->sb.geometry.leaf_sector && sector < d->sb.geometry.journal_sector;
}

static void read_leaf(struct scale_disk *d, u64 sector, void *block)
{
	const struct hybrid_geometry *g = &d->sb.geometry;
	u64 n = (sector - g->leaf_sector) / HYBRID_META_BLOCK_SECTORS;
	u32 nr = n % g->nr_leaves;

	if (d->written[n / 64] & BIT_ULL(n % 64))
		memcpy(block, at(d, sector), LEAF_BYTES);
	else if (d->full && nr >= HYBRID_VOLUME_LEAVES && n / g->nr_leaves == generation(nr) % 2)
		make_map_leaf(d, nr, block);
	else
		memset(block, 0, LEAF_BYTES);
}

static void write_leaf(struct scale_disk *d, u64 sector, const void *block)
{
	u64 n = (sector - d->sb.geometry.leaf_sector) / HYBRID_META_BLOCK_SECTORS;

	if (d->forget && n % d->sb.geometry.nr_leaves >= HYBRID_VOLUME_LEAVES)
		return;
	d->written[n / 64] |= BIT_ULL(n % 64);
	memcpy(at(d, sector), block, LEAF_BYTES);
}

static void move_block(struct scale_disk *d, bool write, u64 sector, void *block)
{
	if (in_leaves(d, sector))
		write ? write_leaf(d, sector, block) : read_leaf(d, sector, block);
	else if (write)
		memcpy(at(d, sector), block, LEAF_BYTES);
	else
		memcpy(block, at(d, sector), LEAF_BYTES);
}

/* An operation's reads are all requested at once, and waited for once. */
static void count_op(struct scale_disk *d, const struct hybrid_op *op)
{
	u64 sectors = 0;
	u32 i;

	for (i = 0; i < op->nr_segments; i++) {
		const struct hybrid_segment *s = &op->segments[i];

		sectors += s->count;
		if (op->write && s->sector >= d->sb.geometry.journal_sector)
			d->journal_bytes += (u64)s->count * 512;
	}
	if (op->write) {
		d->writes += op->nr_segments;
		d->write_bytes += sectors * 512;
		return;
	}
	d->reads++;
	d->read_bytes += sectors * 512;
	d->small_reads += sectors < SCALE_SMALL_READ * HYBRID_META_BLOCK_SECTORS;
}

static void move_superblock(struct scale_disk *d, bool write, u64 sector, void *mem)
{
	struct hybrid_superblock *copy = &d->copy[sector > HYBRID_HEAD_SECTORS];

	if (write)
		memcpy(copy, mem, sizeof(*copy));
	else
		memcpy(mem, copy, sizeof(*copy));
}

void scale_disk_transfer(struct scale_disk *d, const struct hybrid_op *op, u64 sector, u32 count,
			 void *mem)
{
	u32 k;

	if (op->origin) {
		move_superblock(d, op->write, sector, mem);
		return;
	}
	if (sector == op->segments->sector)
		count_op(d, op);
	for (k = 0; k < count; k += HYBRID_META_BLOCK_SECTORS)
		move_block(d, op->write, sector + k, mem + (u64)k * 512);
}

void scale_disk_flush(struct scale_disk *d, const struct hybrid_op *op, bool origin)
{
	d->flushes += op->type == HYBRID_OP_FLUSH && !origin;
}

/* ---- formatting ---------------------------------------------------------- */

static void format_volume(struct scale_disk *d)
{
	const struct hybrid_volume_info none = { .state = HYBRID_VOLUME_FREE }, info = {
		.state = HYBRID_VOLUME_ACTIVE, .instance = 1, .mode = HYBRID_MODE_WRITEBACK,
		.uuid = { 3 }, .member_uuid = { 4 }, .name = "volume", .nonce = 5,
		.data_sector = d->origin.data_sector, .data_sectors = d->origin.data_sectors,
	};
	const struct hybrid_volume_info *infos[HYBRID_VOLUMES_PER_LEAF];
	struct hybrid_volume_leaf leaf;
	u64 sector = hybrid_leaf_sector(&d->sb.geometry, 0, 2);
	unsigned int k;

	for (k = 0; k < HYBRID_VOLUMES_PER_LEAF; k++)
		infos[k] = k ? &none : &info;
	hybrid_volumes_encode(&leaf, &id, 0, 2, infos);
	write_leaf(d, sector, &leaf);
	d->origin.nonce = info.nonce;
	for (k = 0; k < 2; k++)
		hybrid_sb_encode(&d->copy[k], &d->origin,
				 hybrid_sb_sector(d->origin.member_sectors, k));
}

static void format_tree(struct scale_disk *d)
{
	const struct hybrid_geometry *g = &d->sb.geometry;
	const struct hybrid_root_info root = {
		.sequence = 2, .epoch = id.epoch, .flags = HYBRID_ROOT_CLEAN, .next_instance = 2,
	};
	u16 leaf[HYBRID_INDEX_LEAVES], *index = calloc(g->nr_index, sizeof(*index));
	u32 nr, k;

	if (!index)
		exit(2);
	for (nr = 0; nr < g->nr_index; nr++) {
		index[nr] = d->full || !nr ? 2 : 0;
		for (k = 0; k < HYBRID_INDEX_LEAVES; k++) {
			u32 n = nr * HYBRID_INDEX_LEAVES + k;

			leaf[k] = n < g->nr_leaves && (d->full || !n) ? generation(n) : 0;
		}
		hybrid_index_encode(at(d, hybrid_index_sector(g, nr, 2)), g, &id, nr, 2, leaf);
	}
	hybrid_root_encode(at(d, hybrid_root_sector(g, 2)), g, &id, &root, index);
	free(index);
}

void scale_disk_format(struct scale_disk *d, bool full)
{
	const struct hybrid_geometry *g = &d->sb.geometry;

	madvise(d->mem, g->data_sector * 512, MADV_DONTNEED);
	memset(d->written, 0, 2 * g->nr_leaves / 8 + 8);
	d->forget = false;
	d->full = full;
	format_volume(d);
	format_tree(d);
}

void scale_disk_init(struct scale_disk *d, u64 cache, u32 block, u64 origin, const char *policy)
{
	struct hybrid_geometry *g = &d->sb.geometry;
	const char *why = "";

	memset(d, 0, sizeof(*d));
	if (hybrid_geometry_init(g, cache, block, 0, &why) ||
	    hybrid_origin_data(origin, 0, &d->origin.data_sector, &d->origin.data_sectors)) {
		fprintf(stderr, "no such pool: %s\n", why);
		exit(2);
	}
	d->sb.role = HYBRID_ROLE_CACHE;
	d->sb.member_sectors = cache;
	d->sb.pool_uuid[0] = id.pool_uuid[0];
	d->sb.member_uuid[0] = 2;
	snprintf(d->sb.policy, sizeof(d->sb.policy), "%s", policy);
	d->origin.role = HYBRID_ROLE_ORIGIN;
	d->origin.member_sectors = origin;
	d->origin.sequence = 1;
	d->origin.instance = 1;
	d->origin.pool_uuid[0] = id.pool_uuid[0];
	d->origin.volume_uuid[0] = 3;
	d->origin.member_uuid[0] = 4;
	snprintf(d->origin.name, sizeof(d->origin.name), "volume");
	d->mem = zeroes(g->data_sector * 512);
	d->written = zeroes(2 * g->nr_leaves / 8 + 8);
	fill_windows(d);
}
