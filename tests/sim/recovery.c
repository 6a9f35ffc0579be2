// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The state that a recovery must find, granule by granule.
 *
 * P4 says that after a crash the pool knows exactly which granules are dirty, and recovery
 * keeps clean granules in closed regions.  Reads afterwards cannot show this: a granule
 * that is dirty without need, or forgotten, reads the same.  So this file reads the root,
 * the leaves that it names and the journal, too, before the engine does; then it compares
 * its result with the engine's.
 */
#include "recovery.h"
#include "engine-internal.h"

#define BLOCK_BYTES ((size_t)HYBRID_META_BLOCK_SIZE)

struct reader {
	struct world *w;
	const struct hybrid_geometry *g;
	struct hybrid_ident id;
	struct found *f;
	u64 *open;		/* of each set */
	u8 *mem;		/* one entry of the journal */
	u64 intent_tail;
};

static void *take(size_t bytes)
{
	return memset(arena_alloc(&sim_arena, bytes), 0, bytes);
}

static void *get(struct reader *in, u64 sector, u32 blocks)
{
	device_get_bytes(in->w->dev[0], sector, in->mem, blocks * BLOCK_BYTES, false);
	return in->mem;
}

static bool read_root(struct reader *in)
{
	u16 index[HYBRID_ROOT_INDEXES];
	struct hybrid_root_info root;
	bool known = false;
	u32 area;

	for (area = 0; area < 2; area++) {
		if (hybrid_root_decode(get(in, hybrid_root_sector(in->g, area), 1), in->g, &in->id,
				       &root, index, NULL) ||
		    (root.sequence & 1) != area || (known && root.sequence < in->f->root.sequence))
			continue;
		known = true;
		in->f->root = root;
		memcpy(in->f->index, index, in->g->nr_index * sizeof(u16));
	}
	in->id.epoch = in->f->root.epoch;
	in->intent_tail = in->f->root.intent_tail;
	return known;
}

static bool read_indexes(struct reader *in)
{
	u32 i;

	for (i = 0; i < in->g->nr_index; i++)
		if (in->f->index[i] &&
		    hybrid_index_decode(get(in, hybrid_index_sector(in->g, i, in->f->index[i]), 1),
					in->g, &in->id, i, in->f->index[i],
					in->f->generation + i * HYBRID_INDEX_LEAVES, NULL))
			return false;
	return true;
}

static bool read_volumes(struct reader *in, u32 nr)
{
	struct hybrid_volume_info info[HYBRID_VOLUMES_PER_LEAF];
	u32 i;

	if (hybrid_volumes_decode((void *)in->mem, &in->id, nr, in->f->generation[nr], info, NULL))
		return false;
	for (i = 0; i < in->w->nr_vol; i++)
		if (in->w->vol[i]->id / HYBRID_VOLUMES_PER_LEAF == nr)
			in->f->table[i] = info[in->w->vol[i]->id % HYBRID_VOLUMES_PER_LEAF];
	return true;
}

static bool read_map(struct reader *in, u32 nr)
{
	u32 set = (nr - HYBRID_VOLUME_LEAVES) / HYBRID_LEAVES_PER_SET;
	u32 first = (nr - HYBRID_VOLUME_LEAVES) % HYBRID_LEAVES_PER_SET * HYBRID_MAP_LEAF_BLOCKS;
	u32 size = in->g->set_size, n, i;
	const struct hybrid_map_leaf *leaf = (void *)in->mem;

	n = first < size ? min_t(u32, size - first, HYBRID_MAP_LEAF_BLOCKS) : 0;
	if (hybrid_map_check(leaf, in->g, &in->id, nr, in->f->generation[nr], n, NULL))
		return false;
	for (i = 0; i < n; i++)
		in->f->block[set * size + first + i] = (struct found_block){
			.instance = le32_to_cpu(leaf->instance[i]),
			.oblock = le64_to_cpu(leaf->oblock[i]),
			.valid = le64_to_cpu(leaf->valid[i]),
			.dirty = le64_to_cpu(leaf->dirty[i]),
		};
	in->open[set] |= (u64)le16_to_cpu(leaf->open_regions) << first / HYBRID_REGION_BLOCKS;
	return true;
}

static bool read_leaves(struct reader *in)
{
	u32 nr;

	for (nr = 0; nr < in->g->nr_leaves; nr++) {
		if (!in->f->generation[nr])
			continue;
		get(in, hybrid_leaf_sector(in->g, nr, in->f->generation[nr]), 1);
		if (!(nr < HYBRID_VOLUME_LEAVES ? read_volumes(in, nr) : read_map(in, nr)))
			return false;
	}
	return true;
}

static void apply(struct reader *in, const struct hybrid_journal_entry *entry, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		const struct hybrid_record *r = &entry->record[i];
		u32 where = le32_to_cpu(r->where);

		if (le32_to_cpu(r->type) != HYBRID_RECORD_BLOCK)
			in->open[where] = le64_to_cpu(r->valid);
		else
			in->f->block[where] = (struct found_block){
				.instance = le32_to_cpu(r->instance),
				.oblock = le64_to_cpu(r->oblock),
				.valid = le64_to_cpu(r->valid),
				.dirty = le64_to_cpu(r->dirty),
			};
	}
}

static void read_journal(struct reader *in)
{
	u64 head = in->f->root.journal_tail, end = head + in->g->journal_blocks, n;
	u32 most = HYBRID_JOURNAL_ENTRY_LIMIT(in->g->journal_blocks);
	int blocks, nr;

	while (head < end) {
		n = hybrid_journal_place(in->g, head, most);
		get(in, hybrid_journal_sector(in->g, n), 1);
		blocks = hybrid_entry_peek((void *)in->mem, &in->id, n);
		if (blocks <= 0 || blocks > (int)most)
			return;
		get(in, hybrid_journal_sector(in->g, n), blocks);
		nr = hybrid_entry_check((void *)in->mem, in->g, blocks, NULL);
		if (nr < 0)
			return;
		apply(in, (void *)in->mem, nr);
		in->intent_tail = max(in->intent_tail,
				      le64_to_cpu(((struct hybrid_block_header *)in->mem)->intent_tail));
		head = n + blocks;
	}
}

/* Applies the rules of recovery: the origin wins in open regions; blocks of deleted volumes go. */
static void forget(struct reader *in)
{
	u32 b, i;

	for (b = 0; b < in->g->nr_blocks; b++) {
		struct found_block *o = &in->f->block[b];
		u32 region = b % in->g->set_size / HYBRID_REGION_BLOCKS;

		for (i = 0; o->instance && i < in->w->nr_vol; i++)
			if (found_of(in->f, b, i))
				break;
		if (!o->instance || i == in->w->nr_vol)
			memset(o, 0, sizeof(*o));
		else if (in->open[b / in->g->set_size] >> region & 1)
			*o = o->dirty ? (struct found_block){ o->instance, o->oblock, o->dirty, o->dirty } :
					(struct found_block){};
	}
}

/* The granules of a record are dirty if nothing says that they are valid, and their data is whole. */
static void take_intended(struct reader *in, const struct hybrid_intent_record *r)
{
	struct found_block *o = &in->f->block[le32_to_cpu(r->where)];
	u64 granules = le64_to_cpu(r->granules);
	u32 sectors = hweight64(granules) << in->g->granule_shift, i;
	static u8 data[HYBRID_INTENT_SECTORS * 512];

	for (i = 0; i < in->w->nr_vol; i++)
		if (in->f->table[i].state == HYBRID_VOLUME_ACTIVE &&
		    in->f->table[i].instance == le32_to_cpu(r->instance))
			break;
	if (i == in->w->nr_vol || (o->valid & granules))
		return;
	device_get_bytes(in->w->dev[0],
			 hybrid_data_sector(in->g, to_cblock(le32_to_cpu(r->where))) +
			 ((u64)__ffs64(granules) << in->g->granule_shift), data, sectors * 512, false);
	if (xxh64(data, sectors * 512, in->id.epoch) != le64_to_cpu(r->checksum))
		return;
	o->instance = le32_to_cpu(r->instance);
	o->oblock = le64_to_cpu(r->oblock);
	o->valid |= granules;
	o->dirty |= granules;
}

static void read_intents(struct reader *in)
{
	struct hybrid_intent intent;
	u64 n;
	u32 i;

	for (n = in->intent_tail; n < in->intent_tail + in->g->intent_blocks; n++) {
		memcpy(&intent, get(in, hybrid_intent_sector(in->g, n), 1), sizeof(intent));
		if (hybrid_intent_check(&intent, in->g, &in->id, NULL) ||
		    le64_to_cpu(intent.header.number) != n)
			continue;
		for (i = 0; i < le32_to_cpu(intent.header.count); i++)
			take_intended(in, &intent.record[i]);
	}
}

/* Reads from the origin's superblocks whether the volume's cached blocks still count. */
static void read_origin(struct reader *in, u32 nr)
{
	const struct hybrid_volume_info *t = &in->f->table[nr];
	const struct volume *vol = in->w->vol[nr];
	struct hybrid_sb sb, newest = {};
	u32 copy, known = 0;

	if (vol->info.flags & HYBRID_VOLUME_INPLACE)
		return;
	for (copy = 0; copy < 2; copy++) {
		if (!device_get_sb(vol->origin, copy, &sb, false))
			continue;
		known += sb.nonce == t->nonce || sb.nonce == t->nonce_old;
		if (sb.sequence >= newest.sequence)
			newest = sb;
	}
	in->f->warm[nr] = known == 2;
	if (known || !(newest.flags & HYBRID_SB_ALONE))
		return;
	in->f->merges[nr] = newest.flags & HYBRID_SB_DIRTY;
	in->f->outdated[nr] = !in->f->merges[nr];
}

bool found_of(const struct found *f, u32 b, u32 volume_nr)
{
	const struct hybrid_volume_info *t = &f->table[volume_nr];

	return t->state == HYBRID_VOLUME_ACTIVE && t->instance == f->block[b].instance;
}

struct found *found_read(struct world *w)
{
	static u8 mem[HYBRID_JOURNAL_ENTRY_BLOCKS * BLOCK_BYTES];
	struct reader in = { .w = w, .g = w->g, .mem = mem };
	u32 i;

	memcpy(in.id.pool_uuid, w->sb.pool_uuid, HYBRID_UUID_SIZE);
	in.f = take(sizeof(*in.f));
	in.f->index = take(HYBRID_ROOT_INDEXES * sizeof(u16));
	in.f->generation = take(in.g->nr_leaves * sizeof(u16));
	in.f->block = take(in.g->nr_blocks * sizeof(*in.f->block));
	in.open = take(in.g->nr_sets * sizeof(u64));
	if (!read_root(&in) || !read_indexes(&in) || !read_leaves(&in))
		return NULL;
	read_journal(&in);
	forget(&in);
	read_intents(&in);
	for (i = 0; i < w->nr_vol; i++)
		read_origin(&in, i);
	return in.f;
}

/* ---- Comparing --------------------------------------------------------------- */

struct found_block found_in_ram(struct hybrid_engine *e, u32 b)
{
	struct hybrid_set *s = &e->map.set[b / e->map.set_size];
	struct found_block o = {};
	u32 i = b % e->map.set_size;

	if (!(s->flags[i] & BLOCK_MAPPED))
		return o;
	o.instance = key_volume(e, s->key[i])->info.instance;
	o.oblock = from_oblock(hybrid_key_block(s->key[i]));
	o.valid = block_mask(e, s, MASK_VALID, i);
	o.dirty = block_mask(e, s, MASK_DIRTY, i);
	return o;
}

static void check_block(struct world *w, u32 b, const struct found_block *o,
			const struct found_block *ram, bool warm)
{
	bool same = o->instance == ram->instance && o->oblock == ram->oblock;
	u64 dirty = same ? ram->dirty : 0, valid = same ? ram->valid : 0;
	const char *rule = NULL;

	if (dirty != o->dirty || (!same && ram->dirty))
		rule = "P4";
	else if ((valid & ~o->valid) || (!same && ram->valid))
		rule = "P3";
	else if (warm && (o->valid & ~valid))
		rule = "warm";
	if (rule)
		violation(w, rule, "on disk block %u is %u.%llu valid %llx dirty %llx, recovery makes it %u.%llu valid %llx dirty %llx",
			  b, o->instance, (unsigned long long)o->oblock,
			  (unsigned long long)o->valid, (unsigned long long)o->dirty,
			  ram->instance, (unsigned long long)ram->oblock,
			  (unsigned long long)ram->valid, (unsigned long long)ram->dirty);
}

void found_check(struct world *w, const struct found *f, const struct volume *only)
{
	u32 b;

	for (b = 0; b < w->g->nr_blocks && !w->stop; b++) {
		struct found_block disk = f->block[b], ram;

		if (only && !found_of(f, b, only->nr))
			continue;
		if (only && f->outdated[only->nr])
			disk.dirty = 0;
		if (only && (f->outdated[only->nr] || f->merges[only->nr]))
			disk.valid = disk.dirty;
		ram = found_in_ram(w->e, b);
		check_block(w, b, &disk, &ram, !only || f->warm[only->nr]);
	}
}
