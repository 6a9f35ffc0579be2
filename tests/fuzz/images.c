// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>

#include "images.h"
#include "members.h"

#define CACHE_SECTORS	(9 * 2048)
#define ORIGIN_SECTORS	(4 * 2048)
#define TOMBSTONE	3		/* volume that was deleted */

const u32 image_volume[POOL_ORIGINS] = { 0, 20 };	/* in two leaves */

/* ---- fields ------------------------------------------------------------------- */

#define STRUCT(block)	struct hybrid_##block
#define MEMBER(block, member) (((STRUCT(block) *)0)->member)
#define ROW(block, path, member, n, step) { \
	.name = #path, .offset = offsetof(STRUCT(block), member), \
	.size = sizeof(MEMBER(block, member)), .count = n, .stride = step },
#define FIELD(block, path, member) ROW(block, path, member, 1, 0)
#define ARRAY(block, path, member, array) \
	ROW(block, path, member, ARRAY_SIZE(MEMBER(block, array)), sizeof(MEMBER(block, array[0])))
#define FLEXIBLE(block, path, member, array) \
	ROW(block, path, member, 0, sizeof(MEMBER(block, array[0])))

#include "fields.inc"

const struct fields fields_of[NR_PLACE_KINDS] = {
	[PLACE_SUPERBLOCK] = { superblock_fields, ARRAY_SIZE(superblock_fields) },
	[PLACE_ROOT] = { root_fields, ARRAY_SIZE(root_fields) },
	[PLACE_INDEX] = { index_fields, ARRAY_SIZE(index_fields) },
	[PLACE_VOLUMES] = { volume_leaf_fields, ARRAY_SIZE(volume_leaf_fields) },
	[PLACE_MAP] = { map_leaf_fields, ARRAY_SIZE(map_leaf_fields) },
	[PLACE_JOURNAL] = { journal_entry_fields, ARRAY_SIZE(journal_entry_fields) },
	[PLACE_INTENT] = { intent_fields, ARRAY_SIZE(intent_fields) },
	[PLACE_LOST] = { lost_map_fields, ARRAY_SIZE(lost_map_fields) },
};

/* ---- places ------------------------------------------------------------------- */

static void *block_at(struct image *im, u32 disk, u64 sector)
{
	return im->disk[disk].bytes + sector * 512;
}

struct place *image_add_place(struct image *im, enum place_kind kind, u32 disk, u64 sector,
			      u32 blocks, const char *name)
{
	struct place *p = &im->place[im->nr_places];

	if (im->nr_places == MAX_PLACES)
		return NULL;
	im->nr_places++;
	*p = (struct place){ .kind = kind, .disk = disk, .sector = sector, .blocks = blocks };
	snprintf(p->name, sizeof(p->name), "%s", name);
	return p;
}

static void add_superblocks(struct image *im)
{
	char name[24];
	u32 disk, copy;

	for (disk = 0; disk <= POOL_ORIGINS; disk++)
		for (copy = 0; copy < 2; copy++) {
			if (disk)
				snprintf(name, sizeof(name), "origin%u.sb%u", disk - 1, copy);
			else
				snprintf(name, sizeof(name), "cache.sb%u", copy);
			image_add_place(im, PLACE_SUPERBLOCK, disk,
					hybrid_sb_sector(im->disk[disk].size, copy), 1, name);
		}
}

/* Adds a block of the tree, and the block in the other area. */
static void add_tree(struct image *im, enum place_kind kind, const char *name, u64 sector,
		     u64 other)
{
	const struct hybrid_block_header *h = block_at(im, 0, other);
	char old[24];

	image_add_place(im, kind, 0, sector, 1, name);
	if (!h->magic)
		return;
	snprintf(old, sizeof(old), "%s.old", name);
	image_add_place(im, kind, 0, other, 1, old)->old = true;
}

static void add_leaves(struct image *im, const u16 *generation)
{
	const struct hybrid_geometry *g = &im->sb.geometry;
	char name[24];
	u32 nr;

	for (nr = 0; nr < g->nr_leaves; nr++) {
		bool map = nr >= HYBRID_VOLUME_LEAVES;

		if (!generation[nr])
			continue;
		snprintf(name, sizeof(name), map ? "map%u" : "volumes%u",
			 map ? nr - HYBRID_VOLUME_LEAVES : nr);
		add_tree(im, map ? PLACE_MAP : PLACE_VOLUMES, name,
			 hybrid_leaf_sector(g, nr, generation[nr]),
			 hybrid_leaf_sector(g, nr, generation[nr] + 1));
	}
}

/* From the root's tail on, as long as there are entries. */
static void add_journal(struct image *im, struct hybrid_ident *id)
{
	const struct hybrid_geometry *g = &im->sb.geometry;
	u32 max = HYBRID_JOURNAL_ENTRY_LIMIT(g->journal_blocks), nr = 0;
	u64 n = im->root.journal_tail;
	char name[24];
	int blocks;

	im->intent_tail = im->root.intent_tail;
	for (;;) {
		u64 place = hybrid_journal_place(g, n, max);
		u64 sector = hybrid_journal_sector(g, place);
		const struct hybrid_block_header *header = block_at(im, 0, sector);

		blocks = hybrid_entry_peek(header, id, place);
		if (blocks <= 0)
			break;
		snprintf(name, sizeof(name), "journal%u", nr++);
		image_add_place(im, PLACE_JOURNAL, 0, sector, blocks, name);
		n = place + blocks;
		im->intent_tail = max(im->intent_tail, le64_to_cpu(header->intent_tail));
	}
	im->journal_end = n;
}

/* The newest tail: that of the last entry, or of the root. */
static u64 intent_tail(struct image *im)
{
	const struct hybrid_block_header *h;
	u64 tail = im->root.intent_tail;
	u32 i;

	for (i = 0; i < im->nr_places; i++) {
		h = block_at(im, im->place[i].disk, im->place[i].sector);
		if (im->place[i].kind == PLACE_JOURNAL)
			tail = max(tail, le64_to_cpu(h->intent_tail));
	}
	return tail;
}

/* The intents that count. */
static void add_intents(struct image *im, struct hybrid_ident *id)
{
	const struct hybrid_geometry *g = &im->sb.geometry;
	const struct hybrid_intent *intent;
	u64 n, tail = intent_tail(im);
	char name[24];

	for (n = tail; n < tail + g->intent_blocks; n++) {
		intent = block_at(im, 0, hybrid_intent_sector(g, n));
		if (hybrid_intent_check(intent, g, id, NULL) ||
		    le64_to_cpu(intent->header.number) != n)
			continue;
		snprintf(name, sizeof(name), "intent%u", (u32)(n - tail));
		image_add_place(im, PLACE_INTENT, 0, hybrid_intent_sector(g, n), 1, name);
	}
}

/* Adds the lists of lost granules that an origin has once its cache died. */
static void add_lost_maps(struct image *im)
{
	const struct hybrid_lost_map *map;
	char name[24];
	u32 disk, copy;
	u64 sector;

	for (disk = 1; disk <= POOL_ORIGINS; disk++)
		for (copy = 0; copy < 2; copy++) {
			sector = hybrid_lost_sector(im->disk[disk].size, copy);
			map = block_at(im, disk, sector);
			if (!map->header.magic)
				continue;
			snprintf(name, sizeof(name), "origin%u.lost%u", disk - 1, copy);
			image_add_place(im, PLACE_LOST, disk, sector,
					le32_to_cpu(map->header.blocks), name);
		}
}

static void find_places(struct image *im)
{
	const struct hybrid_geometry *g = &im->sb.geometry;
	u16 index[HYBRID_ROOT_INDEXES], leaf[HYBRID_INDEX_LEAVES] = { 0 };
	struct hybrid_ident id = { .epoch = 0 };
	struct hybrid_root_info root;
	u32 area;

	memcpy(id.pool_uuid, im->sb.pool_uuid, sizeof(id.pool_uuid));
	for (area = 0; area < 2; area++) {
		if (hybrid_root_decode(block_at(im, 0, hybrid_root_sector(g, area)), g, &id, &root,
				       index, NULL) || root.sequence < im->root.sequence)
			continue;
		im->root = root;
	}
	id.epoch = im->root.epoch;
	add_superblocks(im);
	add_lost_maps(im);
	add_tree(im, PLACE_ROOT, "root", hybrid_root_sector(g, im->root.sequence),
		 hybrid_root_sector(g, im->root.sequence + 1));
	hybrid_root_decode(block_at(im, 0, hybrid_root_sector(g, im->root.sequence)), g, &id, &root,
			   index, NULL);
	if (index[0]) {
		add_tree(im, PLACE_INDEX, "index0", hybrid_index_sector(g, 0, index[0]),
			 hybrid_index_sector(g, 0, index[0] + 1));
		if (hybrid_index_decode(block_at(im, 0, hybrid_index_sector(g, 0, index[0])), g,
					&id, 0, index[0], leaf, NULL))
			abort();
		add_leaves(im, leaf);
	}
	add_journal(im, &id);
	add_intents(im, &id);
}

/* ---- making them ---------------------------------------------------------------- */

static void fixed_bytes(u8 *to, u8 first)
{
	u32 i;

	for (i = 0; i < 16; i++)
		to[i] = first + i;
}

static void must(int r)
{
	if (r)
		abort();
}

static void format_cache(struct image *im, u32 block_sectors)
{
	struct hybrid_cache_plan plan = {
		.name = "pool", .policy = "lru", .block_sectors = block_sectors,
		.journal_blocks = HYBRID_JOURNAL_MIN_BLOCKS,
	};

	disk_init(&im->disk[0], im->name, "cache", CACHE_SECTORS);
	must(hybrid_cache_plan(&im->disk[0].device, &plan));
	fixed_bytes(plan.sb.pool_uuid, 0x10);
	fixed_bytes(plan.sb.member_uuid, 0x20);
	must(hybrid_cache_format(&im->disk[0].device, &plan));
	im->sb = plan.sb;
}

static void format_origin(struct image *im, u32 nr, struct hybrid_volume_info *info)
{
	struct disk *d = &im->disk[1 + nr];
	struct hybrid_origin_plan plan = {
		.volume_id = image_volume[nr],
		.granule_sectors = im->sb.geometry.granule_sectors,
	};

	disk_init(d, im->name, nr ? "origin1" : "origin0", ORIGIN_SECTORS);
	snprintf(plan.name, sizeof(plan.name), "volume%u", nr);
	memcpy(plan.pool_uuid, im->sb.pool_uuid, sizeof(plan.pool_uuid));
	must(hybrid_origin_plan(&d->device, &plan));
	fixed_bytes(plan.sb.member_uuid, 0x30 + 0x30 * nr);
	fixed_bytes(plan.sb.volume_uuid, 0x40 + 0x30 * nr);
	fixed_bytes(plan.sb.pairing_key, 0x50 + 0x30 * nr);
	must(hybrid_origin_format(&d->device, &plan));

	memset(info, 0, sizeof(*info));
	info->state = HYBRID_VOLUME_ACTIVE;
	info->mode = nr ? HYBRID_MODE_WRITETHROUGH : HYBRID_MODE_WRITEBACK;
	memcpy(info->uuid, plan.sb.volume_uuid, sizeof(info->uuid));
	memcpy(info->member_uuid, plan.sb.member_uuid, sizeof(info->member_uuid));
	memcpy(info->pairing_key, plan.sb.pairing_key, sizeof(info->pairing_key));
	info->data_sector = plan.sb.data_sector;
	info->data_sectors = plan.sb.data_sectors;
	memcpy(info->name, plan.name, sizeof(info->name));
}

static void create_volumes(struct image *im, struct pool *p)
{
	struct hybrid_volume_info info, gone;
	const char *why;
	u32 i;

	for (i = 0; i < POOL_ORIGINS; i++) {
		format_origin(im, i, &info);
		must(hybrid_volume_create(p->x.engine, image_volume[i], &info));
		must(pool_open(p, image_volume[i], i, &why));
	}
	gone = info;
	fixed_bytes(gone.uuid, 0xa0);
	fixed_bytes(gone.member_uuid, 0xb0);
	snprintf(gone.name, sizeof(gone.name), "gone");
	must(hybrid_volume_create(p->x.engine, TOMBSTONE, &gone));
	must(hybrid_volume_delete(p->x.engine, TOMBSTONE, false));
}

/* Writes to one volume, reads of the other; the journal's entries at the end are young. */
static void use(struct image *im, struct pool *p, u32 rounds)
{
	u32 block = im->sb.geometry.block_sectors, n, i;
	u32 blocks = min_t(u64, 60, hybrid_volume_sectors(p->volume[0]) / block);
	u8 *data = calloc(block, 512);

	for (n = 0; n < rounds; n++) {
		for (i = 0; i < 40; i++) {
			must(pool_io(p, 0, HYBRID_IO_WRITE, (n * 7 + i * 3) % blocks * block,
				     i % 3 ? block : 8, data, i % 8 == 0));
			must(pool_io(p, 1, HYBRID_IO_READ, (n + i) % blocks * block, block, data,
				     false));
		}
		must(pool_io(p, 0, HYBRID_IO_FLUSH, 0, 0, NULL, false));
		if (n + 1 == rounds)
			break;
		pool_run(p, 2000);
		must(hybrid_io_ops.wait_checkpoint(p->x.engine));
	}
	/* Each write to new blocks is flushed: the last ones are under intents. */
	blocks = hybrid_volume_sectors(p->volume[0]) / block;
	for (i = 60; i < min(blocks, 84U); i++) {
		data[i] = i;
		must(pool_io(p, 0, HYBRID_IO_WRITE, i * block, 8, data, false));
		must(pool_io(p, 0, HYBRID_IO_FLUSH, 0, 0, NULL, false));
	}
	free(data);
}

void image_pool(struct image *im, struct pool *p)
{
	u32 i;

	memset(p, 0, sizeof(*p));
	p->cache = &im->disk[0];
	for (i = 0; i < POOL_ORIGINS; i++)
		p->origin[i] = &im->disk[1 + i];
}

/* The cache device dies with dirty data, and the origin goes on alone. */
static void lose(struct image *im, struct pool *p)
{
	u8 data[HYBRID_META_BLOCK_SIZE] = { 0 };
	u32 i;

	im->disk[0].dead = true;
	for (i = 0; i < POOL_ORIGINS; i++) {
		/* Dirty granules cannot be written any more, granules that are not cached can */
		pool_io(p, i, HYBRID_IO_WRITE, hybrid_volume_sectors(p->volume[i]) - 8, 8, data,
			true);
		pool_close(p, i);
	}
	pool_drop(p);
	im->disk[0].dead = false;
}

enum ending {
	CRASH,
	STOP,
	LOSE,
};

static void make(struct image *im, const char *name, u32 block_sectors, u32 rounds,
		 enum ending ending)
{
	struct pool p;
	const char *why;
	u32 i;

	im->name = name;
	format_cache(im, block_sectors);
	image_pool(im, &p);
	must(pool_load(&p, &why));
	create_volumes(im, &p);
	use(im, &p, rounds);
	if (ending == STOP)
		pool_stop(&p);
	else if (ending == LOSE)
		lose(im, &p);
	else
		pool_drop(&p);
	find_places(im);
	im->nr_kept = im->nr_places;
	im->journal_kept = im->journal_end;
	for (i = 0; i <= POOL_ORIGINS; i++)
		disk_keep(&im->disk[i]);
}

struct image *images(void)
{
	static struct image all[NR_IMAGES];

	if (all[0].name)
		return all;
	/* One set of four leaves and two sets; the state after a crash, and after a clean stop */
	make(&all[0], "crashed", 32, 3, CRASH);
	make(&all[1], "clean", 8, 2, STOP);
	make(&all[2], "small", 128, 2, CRASH);
	make(&all[3], "lost", 64, 2, LOSE);
	return all;
}

struct image *image_find(const char *name)
{
	struct image *all = images();
	u32 i;

	for (i = 0; i < NR_IMAGES; i++)
		if (!strcmp(all[i].name, name))
			return &all[i];
	return NULL;
}

void image_reset(struct image *im)
{
	u32 i;

	im->nr_places = im->nr_kept;
	im->journal_end = im->journal_kept;
	for (i = 0; i <= POOL_ORIGINS; i++)
		disk_reset(&im->disk[i]);
}
