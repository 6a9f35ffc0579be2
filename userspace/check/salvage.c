// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "journal.h"
#include "map.h"
#include "metadata-write.h"
#include "salvage.h"

#define READ_BLOCKS	64
#define MAX_EPOCHS	16
#define MAX_ASKED	(1ULL << 28)	/* blocks of all volumes: 16 TiB of 64 KiB */
#define MAX_RANGES	(1U << 17)	/* that are listed one by one */

/* The certain part of a cache block's state. */
enum known {
	NOT_KNOWN,
	DIRTY_PARTLY,	/* ... and a recovery since may have taken more from intents */
	DIRTY_KNOWN,	/* ... of an earlier epoch: a recovery since may have forgotten the rest */
	ALL_KNOWN,
};

/* A root that can be decoded, and the blocks that it names. */
struct source {
	bool good;
	struct hybrid_root_info info;
	u16 *index, *leaf;		/* generations */
	u8 *index_known;		/* by index block: leaf[] is from the named one, or a later one */
	bool exact;			/* the journal has no gap from its tail on */
	bool quiet;			/* ... and is of its epoch */
};

struct entry {
	u64 number, epoch, intent_tail;
	u32 blocks;
};

struct salvager {
	struct hybrid_salvage *s;
	struct hybrid_metadata *md;
	const struct hybrid_device *dev;
	void *mem[2];			/* READ_BLOCKS of each area */
	struct source root[2];		/* the current one first */
	struct entry *entry;		/* by number */
	u32 nr_entries, first;		/* entries from the first-th on have no gap */
	u64 epoch;			/* the newest */
	u64 epochs[MAX_EPOCHS];		/* epochs in which newer blocks may be written */
	u32 nr_epochs;
	struct entry taken;		/* the first known after the last recovery that may have taken
					 * intents */
	u8 *known;			/* by cache block: enum known */
	u64 *from;			/* by leaf: the journal counts from here on */
	u8 *regions_known;		/* by leaf */
};

/* ---- reading ----------------------------------------------------------- */

/* A block that cannot be read is zero. */
static void read_blocks(struct salvager *v, u64 sector, u32 nr, void *mem)
{
	u32 k;

	if (!hybrid_device_read(v->dev, sector, mem, (size_t)nr * HYBRID_META_BLOCK_SIZE))
		return;
	for (k = 0; k < nr; k++, mem += HYBRID_META_BLOCK_SIZE)
		if (hybrid_device_read(v->dev, sector + k * HYBRID_META_BLOCK_SECTORS, mem,
				       HYBRID_META_BLOCK_SIZE)) {
			memset(mem, 0, HYBRID_META_BLOCK_SIZE);
			v->s->unreadable = true;
		}
}

static int read_roots(struct salvager *v)
{
	const struct hybrid_geometry *g = v->md->g;
	struct source swap;
	u32 area;

	for (area = 0; area < 2; area++) {
		struct source *root = &v->root[area];

		root->index = calloc(g->nr_index, sizeof(*root->index));
		root->leaf = calloc(g->nr_leaves, sizeof(*root->leaf));
		root->index_known = calloc(g->nr_index, 1);
		if (!root->index || !root->leaf || !root->index_known)
			return hybrid_nomem();
		read_blocks(v, hybrid_root_sector(g, area), 1, v->mem[0]);
		root->good = !hybrid_root_decode(v->mem[0], g, &v->md->id, &root->info,
						 root->index, NULL) &&
			     (root->info.sequence & 1) == area;
	}
	if (v->root[1].good &&
	    (!v->root[0].good || v->root[1].info.sequence > v->root[0].info.sequence)) {
		swap = v->root[0];
		v->root[0] = v->root[1];
		v->root[1] = swap;
	}
	v->md->root = v->root[0].good ? v->root[0].info : (struct hybrid_root_info) {};
	return 0;
}

/* ---- the journal ------------------------------------------------------- */

static u64 place(const struct salvager *v, u64 n)
{
	return hybrid_journal_place(v->md->g, n,
				    HYBRID_JOURNAL_ENTRY_LIMIT(v->md->g->journal_blocks));
}

/* The entry that begins at place @k of the ring: its blocks, 0 if there is none. */
static u32 read_entry(struct salvager *v, const struct hybrid_block_header *header, u32 k,
		      struct entry *entry)
{
	const struct hybrid_geometry *g = v->md->g;
	struct hybrid_ident id = v->md->id;
	u64 n = le64_to_cpu(header->number);
	int blocks;

	id.epoch = le64_to_cpu(header->epoch);
	blocks = hybrid_entry_peek(header, &id, n);
	if (blocks <= 0 || n % g->journal_blocks != k || k + blocks > g->journal_blocks ||
	    blocks > READ_BLOCKS)
		return 0;
	read_blocks(v, hybrid_journal_sector(g, n), blocks, v->mem[1]);
	if (hybrid_entry_check(v->mem[1], g, blocks, NULL) < 0)
		return 0;
	*entry = (struct entry) {
		.number = n, .epoch = id.epoch, .blocks = blocks,
		.intent_tail = le64_to_cpu(header->intent_tail),
	};
	return blocks;
}

/* In the order of time: a root comes before the entry at its head. */
static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	if (!x->blocks != !y->blocks)
		return x->blocks ? 1 : -1;
	return x->intent_tail < y->intent_tail ? -1 : x->intent_tail > y->intent_tail;
}

static int scan_journal(struct salvager *v)
{
	const struct hybrid_geometry *g = v->md->g;
	u32 k, at = 0, window = 0, blocks;

	v->entry = calloc(g->journal_blocks, sizeof(*v->entry));
	if (!v->entry)
		return hybrid_nomem();
	for (k = 0; k < g->journal_blocks; k += blocks) {
		if (k >= at + window) {
			at = k;
			window = min_t(u32, READ_BLOCKS, g->journal_blocks - k);
			read_blocks(v, g->journal_sector + (u64)k * HYBRID_META_BLOCK_SECTORS,
				    window, v->mem[0]);
		}
		blocks = read_entry(v, v->mem[0] + (size_t)(k - at) * HYBRID_META_BLOCK_SIZE, k,
				    &v->entry[v->nr_entries]);
		v->nr_entries += !!blocks;
		blocks = max(blocks, 1U);
	}
	qsort(v->entry, v->nr_entries, sizeof(*v->entry), compare_entries);
	return 0;
}

/* Behind the last entry. */
static u64 journal_end(const struct salvager *v)
{
	const struct entry *last = v->entry + v->nr_entries - 1;

	return v->nr_entries ? last->number + last->blocks : 0;
}

/* From which entry on is none missing? */
static void find_first(struct salvager *v)
{
	const struct entry *e = v->entry;

	v->first = v->nr_entries;
	if (v->root[0].good && journal_end(v) < v->root[0].info.journal_head)
		return;
	for (; v->first > 0; v->first--) {
		const struct entry *before = &e[v->first - 1];

		if (v->first < v->nr_entries &&
		    place(v, before->number + before->blocks) != e[v->first].number)
			break;
	}
}

static void judge_source(struct salvager *v, struct source *root)
{
	u32 k = v->first;

	root->exact = root->good;
	root->quiet = root->good && root->info.epoch == v->epoch;
	while (k < v->nr_entries && v->entry[k].number < root->info.journal_tail)
		k++;
	if (k == v->nr_entries)		/* nothing to replay: is nothing missing? */
		root->exact &= max(v->root[0].info.journal_head, journal_end(v)) <=
			       root->info.journal_tail;
	else
		root->exact &= v->entry[k].number == place(v, root->info.journal_tail);
	for (; k < v->nr_entries; k++)
		root->quiet &= v->entry[k].epoch == root->info.epoch;
}

static void add_epoch(struct salvager *v, u64 epoch)
{
	if (v->nr_epochs && v->epochs[v->nr_epochs - 1] == epoch)
		return;
	if (v->nr_epochs == MAX_EPOCHS)
		memmove(v->epochs, v->epochs + 1, --v->nr_epochs * sizeof(v->epochs[0]));
	v->epochs[v->nr_epochs++] = epoch;
}

/* A root among the entries of the journal. */
static struct entry root_entry(const struct source *root)
{
	return (struct entry) {
		.number = root->info.journal_head, .epoch = root->info.epoch,
		.intent_tail = root->info.intent_tail,
	};
}

/*
 * A recovery takes the granules of intents into leaves, and writes no entry for them.  It moves the
 * tail of the ring behind the last intent that it found.
 */
static int find_taken(struct salvager *v)
{
	struct entry *all = calloc(v->nr_entries + 2, sizeof(*all));
	u32 nr = v->nr_entries, k;

	if (!all)
		return hybrid_nomem();
	memcpy(all, v->entry, nr * sizeof(*all));
	for (k = 0; k < 2; k++)
		if (v->root[k].good)
			all[nr++] = root_entry(&v->root[k]);
	qsort(all, nr, sizeof(*all), compare_entries);
	for (k = 1; k < nr; k++)
		if (all[k].epoch != all[k - 1].epoch &&
		    all[k].intent_tail > all[k - 1].intent_tail)
			v->taken = all[k];
	free(all);
	return 0;
}

/* How much is certain of a state as of entry @e? */
static enum known known_since(const struct salvager *v, const struct entry *e)
{
	if (e->epoch == v->epoch)
		return ALL_KNOWN;
	return e->epoch != v->taken.epoch && compare_entries(e, &v->taken) < 0 ? DIRTY_PARTLY :
	       DIRTY_KNOWN;
}

static void judge_journal(struct salvager *v)
{
	const struct hybrid_root_info *root = &v->root[0].info;
	u64 highest = max(journal_end(v), max(root->journal_head, v->root[1].info.journal_head));
	u32 k;

	find_first(v);
	v->epoch = root->epoch;
	if (v->root[0].good)
		add_epoch(v, root->epoch);
	for (k = v->first; k < v->nr_entries; k++) {
		if (v->root[0].good && v->entry[k].number < root->journal_tail)
			continue;
		v->epoch = v->entry[k].epoch;
		add_epoch(v, v->epoch);
	}
	judge_source(v, &v->root[0]);
	judge_source(v, &v->root[1]);
	v->s->journal_next = highest + v->md->g->journal_blocks;
}

/* ---- blocks that roots name -------------------------------------------- */

/* A recovery takes three steps; one may have been cut after the root's successor. */
#define LATER_STEPS	6

/* Is @to generation @from, or a later one? */
static bool same_or_later(u16 from, u16 to)
{
	u32 n;

	for (n = 0; n < LATER_STEPS && from != to; n++)
		from = hybrid_next_generation(from);
	return from == to;
}

/* A block of one area: its generation, 0 if it is no good one. */
struct candidate {
	const void *block;
	u16 generation;
	bool newer;			/* it may be later than the one that a root names */
};

static bool epoch_known(const struct salvager *v, u64 epoch)
{
	u32 k;

	for (k = 0; k < v->nr_epochs && v->epochs[k] != epoch; k++)
		;
	return k < v->nr_epochs;
}

static u32 leaf_count(const struct hybrid_geometry *g, u32 nr, u32 *set, u32 *first)
{
	*set = (nr - HYBRID_VOLUME_LEAVES) / HYBRID_LEAVES_PER_SET;
	*first = (nr - HYBRID_VOLUME_LEAVES) % HYBRID_LEAVES_PER_SET * HYBRID_MAP_LEAF_BLOCKS;
	return *first < g->set_size ? min_t(u32, g->set_size - *first, HYBRID_MAP_LEAF_BLOCKS) : 0;
}

static bool index_good(const struct salvager *v, u32 nr, u16 generation, const void *block)
{
	static u16 unused[HYBRID_INDEX_LEAVES];

	return !hybrid_index_decode(block, v->md->g, &v->md->id, nr, generation, unused, NULL);
}

static bool leaf_good(const struct salvager *v, u32 nr, u16 generation, const void *block)
{
	struct hybrid_volume_info info[HYBRID_VOLUMES_PER_LEAF];
	u32 set, first;

	if (nr < HYBRID_VOLUME_LEAVES)
		return !hybrid_volumes_decode(block, &v->md->id, nr, generation, info, NULL);
	return !hybrid_map_check(block, v->md->g, &v->md->id, nr, generation,
				 leaf_count(v->md->g, nr, &set, &first), NULL);
}

static void look_at(const struct salvager *v, u32 nr, const void *block, u32 area,
		    bool (*good)(const struct salvager *v, u32 nr, u16 generation,
				 const void *block), struct candidate *c)
{
	const struct hybrid_block_header *header = block;
	u64 generation = le64_to_cpu(header->generation);

	c->block = block;
	c->generation = 0;
	if (generation && generation <= U16_MAX && (generation & 1) == area &&
	    good(v, nr, generation, block))
		c->generation = generation;
	c->newer = epoch_known(v, le64_to_cpu(header->epoch));
}

/* The area of the block of generation @named, or of a later one.  -1: neither. */
static int match(const struct candidate c[2], u16 named)
{
	int area, found = -1;

	for (area = 0; area < 2; area++) {
		if (!c[area].generation || !same_or_later(named, c[area].generation))
			continue;
		if (c[area].generation == named)
			return area;
		if (c[area].newer)
			found = area;
	}
	return found;
}

/*
 * Generation of the block to write instead of the one that the current root names.
 * The named block stays if it is good, else the block in area @found (-1: none).  The
 * generation is not as many steps later as the engine takes, nor is it that of a block
 * already there, from a checkpoint or a repair that was cut: a lost write must not go
 * unnoticed.
 */
static u16 next_generation(u16 named, bool good, const struct candidate c[2], int found)
{
	u16 keep = named, next;

	if (!good || !named)
		keep = found >= 0 ? c[found].generation : named;
	if (!keep)
		keep = c[0].generation ? c[0].generation : c[1].generation;
	next = hybrid_later_generation(keep, 5);
	if (!good && named && ((next & 1) == (named & 1) || found < 0))
		next = hybrid_later_generation(named, 6);
	while (next == c[next & 1].generation || next == named)
		next = hybrid_later_generation(next, 2);
	return next;
}

static void read_index(struct salvager *v, u32 nr)
{
	const struct hybrid_geometry *g = v->md->g;
	u16 named = v->root[0].index[nr];
	struct candidate c[2];
	int found[2] = { -1, -1 }, k;
	u32 area;

	for (area = 0; area < 2; area++) {
		read_blocks(v, hybrid_index_sector(g, nr, area), 1, v->mem[area]);
		look_at(v, nr, v->mem[area], area, index_good, &c[area]);
	}
	for (k = 0; k < 2; k++) {
		struct source *root = &v->root[k];

		if (!root->good)
			continue;
		if (root->index[nr])
			found[k] = match(c, root->index[nr]);
		root->index_known[nr] = !root->index[nr] || found[k] >= 0;
		if (found[k] >= 0)
			hybrid_index_decode(c[found[k]].block, g, &v->md->id, nr,
					    c[found[k]].generation,
					    root->leaf + nr * HYBRID_INDEX_LEAVES, NULL);
	}
	v->md->index_generation[nr] = named;
	v->s->index_named[nr] = v->root[0].good && (!named || c[named & 1].generation == named);
	v->s->index_next[nr] = next_generation(named, v->s->index_named[nr], c,
					       found[found[0] < 0]);
}

/* ---- leaves ------------------------------------------------------------ */

static void load_volumes(struct salvager *v, u32 nr, const struct candidate *c, bool stale)
{
	struct hybrid_volume_info info[HYBRID_VOLUMES_PER_LEAF];
	u32 k, id;

	hybrid_volumes_decode(c->block, &v->md->id, nr, c->generation, info, NULL);
	for (k = 0; k < HYBRID_VOLUMES_PER_LEAF; k++) {
		id = nr * HYBRID_VOLUMES_PER_LEAF + k;
		if (id >= HYBRID_MAX_VOLUMES || info[k].state == HYBRID_VOLUME_FREE)
			continue;
		v->md->volume[id] = info[k];
		v->s->doubtful[id] = stale;
	}
}

/* Without any root: the later of the two. */
static int latest(const struct candidate c[2])
{
	if (!c[0].generation || !c[1].generation)
		return c[0].generation ? 0 : c[1].generation ? 1 : -1;
	return same_or_later(c[0].generation, c[1].generation);
}

/*
 * An older volume table does no harm to formatted origins: their nonces tell.  Origins
 * in place have no nonces.  Returns the area that was taken, or -1.
 */
static int choose_volumes(struct salvager *v, u32 nr, const struct candidate c[2])
{
	u32 index = nr / HYBRID_INDEX_LEAVES;
	const struct source *now = &v->root[0], *before = &v->root[1];
	int found = -1;

	if (now->index_known[index]) {
		if (!now->leaf[nr])
			return -1;
		found = match(c, now->leaf[nr]);
		if (found >= 0) {
			load_volumes(v, nr, &c[found], false);
			return found;
		}
	}
	if (before->index_known[index] && before->leaf[nr])
		found = match(c, before->leaf[nr]);
	if (found < 0)
		found = latest(c);
	if (found >= 0)
		load_volumes(v, nr, &c[found], true);
	v->s->lost_volumes++;
	return found;
}

static void load_map(struct salvager *v, u32 nr, const void *block, const struct source *root)
{
	const struct hybrid_map_leaf *leaf = block;
	struct hybrid_metadata *md = v->md;
	u32 set, first, k, count = leaf_count(md->g, nr, &set, &first);
	size_t b = (size_t)set * md->g->set_size + first;
	struct entry state = root_entry(root);
	enum known known = known_since(v, &state);

	v->from[nr] = root->info.journal_tail;
	v->regions_known[nr] = root->quiet;
	if (leaf) {
		state.epoch = le64_to_cpu(leaf->header.epoch);
		known = max(known, known_since(v, &state));
	}
	memset(v->known + b, known, count);
	if (!leaf)
		return;
	md->open[set] |= (u64)le16_to_cpu(leaf->open_regions) << first / HYBRID_REGION_BLOCKS;
	for (k = 0; k < count; k++, b++) {
		md->instance[b] = le32_to_cpu(leaf->instance[k]);
		md->oblock[b] = le64_to_cpu(leaf->oblock[k]);
		md->valid[b] = le64_to_cpu(leaf->valid[k]);
		md->dirty[b] = le64_to_cpu(leaf->dirty[k]);
		md->hint[b] = leaf->hint[k];
	}
}

/* Returns the area that was taken, or -1. */
static int choose_map(struct salvager *v, u32 nr, const struct candidate c[2])
{
	int found, k;

	for (k = 0; k < 2; k++) {
		const struct source *root = &v->root[k];

		if (!root->exact || !root->index_known[nr / HYBRID_INDEX_LEAVES])
			continue;
		found = root->leaf[nr] ? match(c, root->leaf[nr]) : -1;
		if (root->leaf[nr] && found < 0)
			continue;
		load_map(v, nr, found < 0 ? NULL : c[found].block, root);
		return found;
	}
	return -1;
}

static void choose_leaf(struct salvager *v, u32 nr, const struct candidate c[2])
{
	bool known = v->root[0].index_known[nr / HYBRID_INDEX_LEAVES];
	u16 named = known ? v->root[0].leaf[nr] : 0;
	int found;

	found = nr < HYBRID_VOLUME_LEAVES ? choose_volumes(v, nr, c) : choose_map(v, nr, c);
	v->md->leaf_generation[nr] = named;
	v->s->leaf_named[nr] = known && (!named || c[named & 1].generation == named);
	v->s->leaf_next[nr] = next_generation(named, v->s->leaf_named[nr], c, found);
}

static void read_leaves(struct salvager *v)
{
	const struct hybrid_geometry *g = v->md->g;
	struct candidate c[2];
	u32 nr, n, k, area;

	for (nr = 0; nr < g->nr_leaves; nr += n) {
		n = min_t(u32, READ_BLOCKS, g->nr_leaves - nr);
		for (area = 0; area < 2; area++)
			read_blocks(v, hybrid_leaf_sector(g, nr, area), n, v->mem[area]);
		for (k = 0; k < n; k++) {
			size_t at = (size_t)k * HYBRID_META_BLOCK_SIZE;

			for (area = 0; area < 2; area++)
				look_at(v, nr + k, v->mem[area] + at, area, leaf_good, &c[area]);
			choose_leaf(v, nr + k, c);
		}
	}
}

/* ---- replay ------------------------------------------------------------ */

static void apply_regions(struct salvager *v, const struct entry *e, u32 set, u64 open)
{
	u32 nr = HYBRID_VOLUME_LEAVES + set * HYBRID_LEAVES_PER_SET, k;
	u64 mask = GENMASK_ULL(HYBRID_MAP_LEAF_REGIONS - 1, 0);

	for (k = 0; k < HYBRID_LEAVES_PER_SET; k++, mask <<= HYBRID_MAP_LEAF_REGIONS) {
		if (e->number < v->from[nr + k])
			continue;
		v->md->open[set] = (v->md->open[set] & ~mask) | (open & mask);
		v->regions_known[nr + k] = e->epoch == v->epoch && v->root[0].good;
	}
}

static void apply_block(struct salvager *v, const struct entry *e, const struct hybrid_record *r)
{
	struct hybrid_metadata *md = v->md;
	u32 b = le32_to_cpu(r->where), set = b / md->g->set_size, i = b % md->g->set_size;
	u32 nr = HYBRID_VOLUME_LEAVES + set * HYBRID_LEAVES_PER_SET + i / HYBRID_MAP_LEAF_BLOCKS;

	if (e->number < v->from[nr])
		return;
	v->known[b] = known_since(v, e);
	md->instance[b] = le32_to_cpu(r->instance);
	md->oblock[b] = le64_to_cpu(r->oblock);
	md->valid[b] = le64_to_cpu(r->valid);
	md->dirty[b] = le64_to_cpu(r->dirty);
}

static void replay(struct salvager *v)
{
	struct hybrid_journal_entry *entry = v->mem[0];
	const struct entry *e;
	u32 i;
	int nr;

	for (e = v->entry + v->first; e < v->entry + v->nr_entries; e++) {
		read_blocks(v, hybrid_journal_sector(v->md->g, e->number), e->blocks, entry);
		nr = hybrid_entry_check(entry, v->md->g, e->blocks, NULL);
		for (i = 0; nr > 0 && i < (u32)nr; i++) {
			const struct hybrid_record *r = &entry->record[i];

			if (le32_to_cpu(r->type) == HYBRID_RECORD_REGIONS)
				apply_regions(v, e, le32_to_cpu(r->where), le64_to_cpu(r->valid));
			else
				apply_block(v, e, r);
		}
	}
}

/* ---- the result -------------------------------------------------------- */

static void raise_instance(struct salvager *v, u32 instance)
{
	u32 *next = &v->md->root.next_instance;

	if (instance >= *next)
		*next = instance == U32_MAX ? U32_MAX : instance + 1;
}

/* If none is left, the last one again and again: repair refuses that. */
static u32 new_instance(struct hybrid_metadata *md)
{
	u32 instance = md->root.next_instance;

	if (instance != U32_MAX)
		md->root.next_instance++;
	return instance;
}

/* Two volumes with one instance cannot be told apart. */
static void part_twins(struct salvager *v)
{
	struct hybrid_metadata *md = v->md;
	u32 k, id, instance;

	hybrid_metadata_index(md);
	for (k = 1; k < md->nr_active; k++) {
		instance = md->by_instance[k].instance;
		if (instance != md->by_instance[k - 1].instance)
			continue;
		for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
			if (md->volume[id].state == HYBRID_VOLUME_ACTIVE &&
			    md->volume[id].instance == instance) {
				md->volume[id].instance = new_instance(md);
				v->s->doubtful[id] = 2;
			}
	}
}

static void settle_volumes(struct salvager *v)
{
	struct hybrid_metadata *md = v->md;
	size_t b;
	u32 id;

	raise_instance(v, 0);
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		raise_instance(v, md->volume[id].instance);
	for (b = 0; !v->root[0].good && b < md->g->nr_blocks; b++)
		raise_instance(v, md->instance[b]);
	part_twins(v);
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		if (v->s->doubtful[id] != 1)
			continue;
		v->s->doubtful[id] = md->volume[id].flags & HYBRID_VOLUME_INPLACE;
		if (v->s->doubtful[id])
			md->volume[id].instance = new_instance(md);
	}
	hybrid_metadata_index(md);
}

static void drop(struct hybrid_metadata *md, size_t b)
{
	md->instance[b] = 0;
	md->oblock[b] = 0;
	md->valid[b] = 0;
	md->dirty[b] = 0;
	md->hint[b] = 0;
}

/* The origin wins in open regions, and where it is not known whether they are open. */
static void forget(struct salvager *v, u32 set, u32 i)
{
	struct hybrid_metadata *md = v->md;
	u32 nr = HYBRID_VOLUME_LEAVES + set * HYBRID_LEAVES_PER_SET + i / HYBRID_MAP_LEAF_BLOCKS;
	size_t b = (size_t)set * md->g->set_size + i;

	if (v->known[b] == ALL_KNOWN && v->regions_known[nr] &&
	    !(md->open[set] & region_bit(i)))
		return;
	v->s->forgotten_blocks += md->instance[b] && md->valid[b] != md->dirty[b];
	md->valid[b] = md->dirty[b];
	if (!md->dirty[b])
		drop(md, b);
}

static void settle_set(struct salvager *v, u32 set)
{
	struct hybrid_metadata *md = v->md;
	u32 next = v->root[0].good ? v->root[0].info.next_instance : U32_MAX, i;

	for (i = 0; i < md->g->set_size; i++) {
		size_t b = (size_t)set * md->g->set_size + i;

		if (!v->known[b] || (md->instance[b] >= next &&
				     hybrid_metadata_volume_of(md, md->instance[b]) < 0)) {
			v->s->unknown_blocks++;
			v->s->uncertain[set] = 1;
			drop(md, b);
		}
		if (v->known[b] == DIRTY_PARTLY) {
			v->s->incomplete[b] = 1;
			v->s->uncertain[set] = 1;
		}
		forget(v, set, i);
	}
	md->open[set] = 0;
}

static void settle_blocks(struct salvager *v)
{
	struct hybrid_metadata *md = v->md;
	u32 set;
	size_t b;

	for (set = 0; set < md->g->nr_sets; set++)
		settle_set(v, set);
	hybrid_metadata_judge(md);
	for (b = 0; b < md->g->nr_blocks; b++) {
		if (md->block_state[b] == HYBRID_BLOCK_LIVE)
			continue;
		if (md->block_state[b] == HYBRID_BLOCK_BAD ||
		    md->block_state[b] == HYBRID_BLOCK_CLAIMED)
			v->s->uncertain[b / md->g->set_size] = 1;
		drop(md, b);
		md->block_state[b] = HYBRID_BLOCK_FREE;
	}
	md->root.flags = 0;
}

/* The newest tail of the intents that is known. */
static u64 intent_tail(const struct salvager *v)
{
	u64 tail = 0;
	u32 k;

	for (k = 0; k < 2; k++)
		if (v->root[k].good)
			tail = max(tail, v->root[k].info.intent_tail);
	for (k = 0; k < v->nr_entries; k++)
		tail = max(tail, v->entry[k].intent_tail);
	return tail;
}

/* Was the pool stopped, and nothing written since?  Then no newer root can be lost. */
static bool stopped(const struct salvager *v)
{
	const struct hybrid_root_info *root = &v->root[0].info;
	u32 k;

	for (k = 0; k < v->nr_entries; k++)
		if (v->entry[k].number >= root->journal_head)
			return false;
	return v->root[0].good && v->root[1].good && (root->flags & HYBRID_ROOT_CLEAN);
}

/* ---- all of it --------------------------------------------------------- */

static int allocate(struct salvager *v)
{
	struct hybrid_salvage *s = v->s;
	const struct hybrid_geometry *g;
	int r;

	r = hybrid_metadata_alloc(v->md);
	if (r)
		return r;
	g = v->md->g;
	v->mem[0] = hybrid_buffer((size_t)READ_BLOCKS * HYBRID_META_BLOCK_SIZE);
	v->mem[1] = hybrid_buffer((size_t)READ_BLOCKS * HYBRID_META_BLOCK_SIZE);
	v->known = calloc(g->nr_blocks, 1);
	v->from = calloc(g->nr_leaves, sizeof(*v->from));
	v->regions_known = calloc(g->nr_leaves, 1);
	s->uncertain = calloc(g->nr_sets, 1);
	s->incomplete = calloc(g->nr_blocks, 1);
	s->doubtful = calloc(HYBRID_MAX_VOLUMES, 1);
	s->leaf_next = calloc(g->nr_leaves, sizeof(*s->leaf_next));
	s->leaf_named = calloc(g->nr_leaves, 1);
	s->index_next = calloc(g->nr_index, sizeof(*s->index_next));
	s->index_named = calloc(g->nr_index, 1);
	if (!v->mem[0] || !v->mem[1] || !v->known || !v->from || !v->regions_known ||
	    !s->uncertain || !s->incomplete || !s->doubtful || !s->leaf_next || !s->leaf_named ||
	    !s->index_next || !s->index_named)
		return hybrid_nomem();
	return 0;
}

static int salvage(struct salvager *v)
{
	u32 nr;
	int r;

	r = read_roots(v);
	if (!r)
		r = scan_journal(v);
	if (r)
		return r;
	r = find_taken(v);
	if (r)
		return r;
	judge_journal(v);
	for (nr = 0; nr < v->md->g->nr_index; nr++)
		read_index(v, nr);
	read_leaves(v);
	replay(v);
	settle_volumes(v);
	settle_blocks(v);
	v->md->id.epoch = v->epoch;
	return hybrid_salvage_intents(v->s, v->dev, v->known, intent_tail(v), stopped(v));
}

int hybrid_salvage_read(struct hybrid_salvage *s, const struct hybrid_device *dev)
{
	struct salvager v = { .s = s, .md = &s->md, .dev = dev };
	struct hybrid_findings f = { .device = dev->path };
	struct hybrid_superblocks sbs;
	int r, k;

	memset(s, 0, sizeof(*s));
	r = hybrid_superblocks_read(dev, &f, &sbs);
	s->md.sb = sbs.sb;
	s->md.copies = sbs.good;
	if (!r && s->md.sb.role != HYBRID_ROLE_CACHE)
		r = hybrid_fail(HYBRID_BADDEV, "give the cache device of the pool",
				"%s is not a cache device", dev->path);
	else if (r && r != HYBRID_NOMEM)
		r = hybrid_findings_fail(&f, "see hybridctl check",
					 "%s: no superblock is good: the layout is unknown",
					 dev->path);
	hybrid_findings_free(&f);
	if (!r)
		r = allocate(&v);
	if (!r)
		r = salvage(&v);
	for (k = 0; k < 2; k++) {
		free(v.root[k].index);
		free(v.root[k].leaf);
		free(v.root[k].index_known);
		free(v.mem[k]);
	}
	free(v.entry);
	free(v.known);
	free(v.from);
	free(v.regions_known);
	return r;
}

void hybrid_salvage_free(struct hybrid_salvage *s)
{
	hybrid_metadata_free(&s->md);
	free(s->uncertain);
	free(s->incomplete);
	free(s->doubtful);
	hybrid_ranges_free(&s->lost);
	free(s->leaf_next);
	free(s->leaf_named);
	free(s->index_next);
	free(s->index_named);
}

/* ---- stale ranges ------------------------------------------------------ */

struct live {
	u32 volume;
	bool incomplete;		/* other granules than these may be dirty */
	u64 oblock, dirty;
};

static int compare_live(const void *a, const void *b)
{
	const struct live *x = a, *y = b;

	if (x->volume != y->volume)
		return x->volume < y->volume ? -1 : 1;
	return x->oblock < y->oblock ? -1 : x->oblock > y->oblock;
}

/* May other granules of the set than those that are kept be dirty? */
static bool is_uncertain(const struct hybrid_salvage *s, u32 set)
{
	return s->uncertain[set] || s->intents_lost;
}

/* The blocks of uncertain sets that are kept, in the order of volumes. */
static struct live *find_live(const struct hybrid_salvage *s, size_t *nr)
{
	const struct hybrid_metadata *md = &s->md;
	struct live *live = NULL;
	int pass;
	size_t b;

	for (pass = 0; pass < 2; pass++) {
		if (pass)
			live = calloc(*nr + 1, sizeof(*live));
		if (pass && !live)
			return NULL;
		*nr = 0;
		for (b = 0; b < md->g->nr_blocks; b++) {
			if (!md->instance[b] || !is_uncertain(s, b / md->g->set_size))
				continue;
			if (live)
				live[*nr] = (struct live) {
					hybrid_metadata_volume_of(md, md->instance[b]),
					s->intents_lost || s->incomplete[b],
					md->oblock[b], md->dirty[b] };
			++*nr;
		}
	}
	qsort(live, *nr, sizeof(*live), compare_live);
	return live;
}

static const char unknown[] = "its cached data is unknown";

/* Lists block @o of the volume, but for granules that are dirty on record. */
static void add_block(const struct hybrid_salvage *s, const struct hybrid_volume_info *info,
		      u64 o, u64 dirty, struct hybrid_ranges *ranges)
{
	const struct hybrid_geometry *g = s->md.g;
	u32 i, size = dirty ? g->granule_sectors : g->block_sectors;
	u64 end, sector = o << g->block_shift;

	end = min_t(u64, hybrid_volume_reach(info), sector + g->block_sectors);
	for (i = 0; sector < end; i++, sector += size)
		if (!(dirty & BIT_ULL(i)))
			hybrid_ranges_add(ranges, info->name, sector,
					  min_t(u64, size, end - sector), unknown);
}

/*
 * Which blocks would be cached in sets that are not certain?  Up to MAX_ASKED blocks are
 * looked up, and up to MAX_RANGES ranges are told apart.  Beyond these limits, which a
 * false size of a volume can exceed, all data may be stale.
 */
static void add_stale(const struct hybrid_salvage *s, u32 id, const struct live *live, size_t nr,
		      u64 *to_ask, struct hybrid_ranges *ranges)
{
	const struct hybrid_volume_info *info = &s->md.volume[id];
	const struct hybrid_geometry *g = s->md.g;
	struct hybrid_map map = { .g = g, .nr_sets = g->nr_sets };
	u64 end = hybrid_volume_reach(info), last = (end - 1) >> g->block_shift, o, sector;
	size_t k = 0;

	if (last >= *to_ask) {
		hybrid_ranges_add(ranges, info->name, 0, end, unknown);
		return;
	}
	*to_ask -= last;
	while (k < nr && live[k].volume < id)
		k++;
	for (o = 0; o <= last && ranges->nr < MAX_RANGES; o++) {
		u32 set = hybrid_map_set_of(&map, hybrid_key(id, to_oblock(o)));
		bool kept = k < nr && live[k].volume == id && live[k].oblock == o;

		if (kept ? live[k].incomplete : s->doubtful[id] || is_uncertain(s, set))
			add_block(s, info, o, kept ? live[k].dirty : 0, ranges);
		k += kept;
	}
	sector = o << g->block_shift;
	if (o <= last)
		hybrid_ranges_add(ranges, info->name, sector, end - sector, unknown);
}

void hybrid_salvage_stale(const struct hybrid_salvage *s, struct hybrid_ranges *ranges)
{
	bool any = s->intents_lost;
	u64 to_ask = MAX_ASKED;
	struct live *live;
	size_t nr, k;
	u32 id;

	/* If intents are missing, these granules are among those that they may have named. */
	for (k = 0; k < s->lost.nr && !s->intents_lost; k++)
		hybrid_ranges_add(ranges, s->lost.list[k].volume, s->lost.list[k].sector,
				  s->lost.list[k].count, s->lost.list[k].why);
	ranges->nomem |= s->lost.nomem;
	for (id = 0; id < s->md.g->nr_sets && !any; id++)
		any = s->uncertain[id];
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		any |= s->doubtful[id];
	if (!any)
		return;
	live = find_live(s, &nr);
	if (!live) {
		ranges->nomem = true;
		return;
	}
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		if (s->md.volume[id].state == HYBRID_VOLUME_ACTIVE)
			add_stale(s, id, live, nr, &to_ask, ranges);
	free(live);
}
