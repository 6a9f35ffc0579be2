// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The order linter: rules J1 to J11 on the stream of device operations.
 *
 * The linter keeps its own copy of the metadata on disk, decoded from the journal
 * entries, leaves and roots as they are written: once as it is durable, once as the
 * last submitted write has it.  It asks the engine nothing, except at rest, when RAM
 * and disk must agree.  It finds a broken rule without an unlucky cut.
 *
 * It reads the contents of a granule's copies from the devices: it compares a record
 * with the data written, not with the engine's opinion.
 */
#include <stdlib.h>

#include "sim.h"
#include "coverage.h"
#include "fibers.h"
#include "linter.h"
#include "recovery.h"

#define BLOCK_BYTES ((size_t)HYBRID_META_BLOCK_SIZE)
#define LOST_BYTES (HYBRID_LOST_CHUNKS / 8 + BLOCK_BYTES)

struct linter *linter_new(struct world *w)
{
	struct linter *l = xalloc(sizeof(*l));
	u32 n = w->g->nr_blocks;

	l->w = w;
	l->g = w->g;
	l->durable = xalloc(n * sizeof(*l->durable));
	l->sent = xalloc(n * sizeof(*l->sent));
	l->leaf = xalloc(n * sizeof(*l->leaf));
	l->open_durable = xalloc(w->g->nr_sets * sizeof(u64));
	l->open_sent = xalloc(w->g->nr_sets * sizeof(u64));
	l->open_leaf = xalloc(w->g->nr_sets * sizeof(u64));
	l->generation = xalloc(w->g->nr_leaves * sizeof(u16));
	l->index = xalloc(HYBRID_ROOT_INDEXES * sizeof(u16));
	BUILD_BUG_ON(2 * LOST_BYTES < HYBRID_JOURNAL_ENTRY_BLOCKS * BLOCK_BYTES);
	l->block = xalloc(2 * LOST_BYTES);
	INIT_LIST_HEAD(&l->entries);
	INIT_LIST_HEAD(&l->intended);
	return l;
}

static void drop_entries(struct linter *l, u64 below)
{
	struct entry_seen *e, *next;

	list_for_each_entry_safe(e, next, &l->entries, link)
		if (e->n < below) {
			list_del(&e->link);
			free(e);
		}
}

void linter_free(struct linter *l)
{
	drop_entries(l, SIM_NEVER);
	intents_drop(l);
	free(l->durable);
	free(l->sent);
	free(l->leaf);
	free(l->open_durable);
	free(l->open_sent);
	free(l->open_leaf);
	free(l->generation);
	free(l->index);
	free(l->block);
	free(l);
}

void linter_boot(struct linter *l, const struct found *f)
{
	memset(l->flushed, 0, sizeof(l->flushed));
	memset(l->unsettled, 0, sizeof(l->unsettled));
	l->data_flushed = false;
	l->tree_flushed = false;
	memset(l->cold, 0, sizeof(l->cold));
	l->known = false;
	l->failed = false;
	l->in_order = false;
	l->leaves_in_flight = 0;
	l->before = f;
	memset(l->table, 0, sizeof(l->table));
	memset(l->generation, 0, l->g->nr_leaves * sizeof(u16));
	memset(l->index, 0, l->g->nr_index * sizeof(u16));
	if (f) {
		memcpy(l->generation, f->generation, l->g->nr_leaves * sizeof(u16));
		memcpy(l->index, f->index, l->g->nr_index * sizeof(u16));
	}
	drop_entries(l, SIM_NEVER);
	intents_drop(l);
}

void linter_crash(struct linter *l)
{
	l->known = false;
}

/* ---- Volumes --------------------------------------------------------------------- */

struct volume *volume_of_instance(struct linter *l, u32 instance)
{
	u32 i;

	for (i = 0; instance && i < l->w->nr_vol; i++) {
		struct volume *vol = l->w->vol[i];

		if (l->table[vol->id].state == HYBRID_VOLUME_ACTIVE &&
		    l->table[vol->id].instance == instance)
			return vol;
	}
	return NULL;
}

/* Reads the origin's durable superblocks. */
static void read_origin(struct linter *l, struct volume *vol)
{
	struct hybrid_sb sb, best = {};
	u32 copy;

	if (vol->info.flags & HYBRID_VOLUME_INPLACE) {
		l->origin_dirty[vol->nr] = true;	/* no superblock says so */
		return;
	}
	l->origin_lost[vol->nr] = false;
	for (copy = 0; copy < 2; copy++) {
		l->copy_nonce[vol->nr][copy] = 0;
		if (!device_get_sb(vol->origin, copy, &sb, true))
			continue;
		l->copy_nonce[vol->nr][copy] = sb.nonce;
		l->origin_lost[vol->nr] |= sb.lost;
		if (sb.sequence >= best.sequence)
			best = sb;
	}
	l->origin_dirty[vol->nr] = best.flags & HYBRID_SB_DIRTY;
	l->origin_nonce[vol->nr] = best.nonce;
}

/* Would the cache take the origin for its own? */
static bool nonce_known(const struct hybrid_volume_info *t, u64 nonce)
{
	return nonce && (nonce == t->nonce || nonce == t->nonce_old);
}

void linter_reformat(struct linter *l, struct volume *vol)
{
	read_origin(l, vol);
}

/* Only an origin that may have been written without its cache starts cold. */
void linter_open(struct linter *l, struct volume *vol)
{
	const struct hybrid_volume_info *t = &l->table[vol->id];

	read_origin(l, vol);
	l->cold[vol->nr] = vol->info.flags & HYBRID_VOLUME_INPLACE ||
			   !nonce_known(t, l->origin_nonce[vol->nr]) ? t->instance : 0;
}

/* ---- Granules ---------------------------------------------------------------------- */

static u32 set_of(struct linter *l, u32 b)
{
	return b / l->g->set_size;
}

static u64 region_of(struct linter *l, u32 b)
{
	return BIT_ULL(b % l->g->set_size / HYBRID_REGION_BLOCKS);
}

static bool is_open(struct linter *l, u32 b)
{
	return l->open_durable[set_of(l, b)] & l->open_sent[set_of(l, b)] & region_of(l, b);
}

u64 granules_of(struct linter *l, u32 first, u32 count)
{
	u32 from = first >> l->g->granule_shift;
	u32 to = (first + count - 1) >> l->g->granule_shift;

	return (U64_MAX >> (63 - (to - from))) << from;
}

/* Is a change of the device under way in this range? */
static struct dreq *changing(struct device *d, u64 sector, u32 count)
{
	u32 i;

	for (i = 0; i < d->v->nr_inflight; i++) {
		struct dreq *r = d->v->inflight[i];

		if (!r->meta && r->kind != DREQ_READ && r->kind != DREQ_FLUSH &&
		    r->sector < sector + count && sector < r->sector + r->count)
			return r;
	}
	return NULL;
}

struct granule {
	struct volume *vol;
	u64 cache, origin;	/* sectors on the devices */
	u64 sector;		/* ... of the volume */
};

static bool find_granule(struct linter *l, u32 b, const struct owner *o, u32 nr, struct granule *gr)
{
	u64 offset = (u64)nr << l->g->granule_shift;

	/* The record was true when it was assembled; other calls may have gone on since. */
	if (fiber_overlapped())
		return false;
	gr->vol = volume_of_instance(l, o->instance);
	if (!gr->vol)
		return false;
	gr->sector = (o->oblock << l->g->block_shift) + offset;
	gr->cache = hybrid_data_sector(l->g, to_cblock(b)) + offset;
	gr->origin = gr->vol->origin->data_from + gr->sector;
	return gr->origin + l->g->granule_sectors <= gr->vol->origin->data_to;
}

/* Is @val one that the volume wrote, or zeroed, at sector @i of the granule? */
static bool is_sector_of(const struct granule *gr, u32 i, val_t val)
{
	return val == VAL_ZERO || (val_owner(val) == gr->vol->oracle->owner &&
				   val_sector(val) == gr->sector + i);
}

/* J3, J5: a granule that the record calls valid was written to the cache, and is durable there. */
static void check_written(struct linter *l, struct action *a, u32 b, const struct owner *o, u32 nr)
{
	struct granule gr;
	u32 i;

	if (!find_granule(l, b, o, nr, &gr))
		return;
	for (i = 0; i < l->g->granule_sectors; i++) {
		val_t v = device_completed(l->w->dev[0], gr.cache + i);
		val_t durable = device_durable(l->w->dev[0], gr.cache + i);

		if (is_sector_of(&gr, i, durable))
			continue;
		broken(l, is_sector_of(&gr, i, v) ? "J5" : "J3",
		       "record of block %u calls granule %u valid, its sector %llu has %s, durable is %s",
		       b, nr, (unsigned long long)gr.sector + i, val_name(v), val_name(durable));
		return;
	}
}

/* J4, J5: a clean granule of a closed region has two copies, equal and durable. */
static void check_equal(struct linter *l, struct action *a, u32 b, const struct owner *o, u32 nr,
			const char *rule)
{
	struct device *cache = l->w->dev[0];
	struct granule gr;
	u32 i, n = l->g->granule_sectors;

	if (!find_granule(l, b, o, nr, &gr))
		return;
	/* A closed origin may be written without its cache: its nonce tells, when it is opened. */
	if (!gr.vol->v)
		return;
	if (changing(cache, gr.cache, n) || changing(gr.vol->origin, gr.origin, n)) {
		broken(l, rule, "block %u granule %u of a closed region counts as clean while written",
		       b, nr);
		return;
	}
	for (i = 0; i < n; i++) {
		val_t c = device_completed(cache, gr.cache + i);
		val_t durable = device_durable(gr.vol->origin, gr.origin + i);
		val_t newest = device_read(gr.vol->origin, gr.origin + i);

		if (c == durable && c == newest)
			continue;
		broken(l, rule, "block %u granule %u of a closed region counts as clean: sector %llu is %s in the cache, %s on the origin, there durable %s",
		       b, nr, (unsigned long long)gr.sector + i, val_name(c), val_name(newest),
		       val_name(durable));
		return;
	}
}

/* J2: of a granule that is no longer dirty, the origin durably has this or newer data. */
static void check_replaced(struct linter *l, struct action *a, u32 b, const struct owner *o, u32 nr)
{
	struct granule gr;
	u32 i;

	if (!find_granule(l, b, o, nr, &gr))
		return;
	for (i = 0; i < l->g->granule_sectors; i++) {
		u64 s = gr.sector + i;
		val_t c = device_completed(l->w->dev[0], gr.cache + i);
		val_t durable = device_durable(gr.vol->origin, gr.origin + i);
		struct oracle *or = gr.vol->oracle;

		if (oracle_wild(or, s))
			continue;
		if (is_open(l, b) ? oracle_crash_allows(or, s, durable) :
				    !oracle_before(or, s, durable, c, l->assembled))
			continue;
		broken(l, "J2", "record ends dirty block %u granule %u: sector %llu is %s in the cache, durable on the origin is %s",
		       b, nr, (unsigned long long)s, val_name(c), val_name(durable));
		oracle_explain(or, s);
		return;
	}
}

/* ---- Journal ------------------------------------------------------------------------- */

static bool same_owner(const struct owner *a, const struct owner *b)
{
	return a->instance == b->instance && a->oblock == b->oblock;
}

static void check_record(struct linter *l, struct action *a, u32 b, const struct owner *old,
			 const struct owner *new)
{
	bool same = same_owner(old, new);
	u64 kept_valid = same ? old->valid : 0, kept_dirty = same ? old->dirty : 0;
	u64 clean = new->valid & ~new->dirty;
	struct volume *vol = volume_of_instance(l, new->instance);
	u32 nr;

	if (new->dirty && vol && !l->origin_dirty[vol->nr])
		broken(l, "J10", "block %u recorded dirty, the origin is not marked", b);
	for (nr = 0; nr < l->g->granules && !l->w->stop; nr++) {
		u64 bit = BIT_ULL(nr);

		if (old->dirty & bit && !(same && new->dirty & bit))
			check_replaced(l, a, b, old, nr);
		if (new->valid & bit && (!(kept_valid & bit) || (new->dirty & ~kept_dirty & bit)))
			check_written(l, a, b, new, nr);
		if (clean & bit && !(kept_valid & ~kept_dirty & bit) &&
		    !(l->open_sent[set_of(l, b)] & region_of(l, b)))
			check_equal(l, a, b, new, nr, "J5");
	}
}

static void check_close(struct linter *l, struct action *a, u32 set, u64 closed)
{
	u32 i, nr;

	for (i = 0; i < l->g->set_size; i++) {
		u32 b = set * l->g->set_size + i;
		u64 clean = l->sent[b].valid & ~l->sent[b].dirty;

		if (!(closed & region_of(l, b)))
			continue;
		for (nr = 0; nr < l->g->granules && !l->w->stop; nr++)
			if (clean >> nr & 1)
				check_equal(l, a, b, &l->sent[b], nr, "J4");
	}
}

/* Returns the number of the simulator's block: blocks in a volume's hole do not exist. */
u64 oblock_of(__le64 oblock)
{
	return le64_to_cpu(oblock) - sim_world->hole / sim_world->g->block_sectors;
}

static void take_record(struct owner *o, const struct hybrid_record *r)
{
	o->instance = le32_to_cpu(r->instance);
	o->oblock = oblock_of(r->oblock);
	o->valid = le64_to_cpu(r->valid);
	o->dirty = le64_to_cpu(r->dirty);
	if (!o->instance)
		memset(o, 0, sizeof(*o));
}

static void apply_records(const struct entry_seen *e, struct owner *owner, u64 *open)
{
	u32 i;

	for (i = 0; i < e->nr; i++) {
		u32 where = le32_to_cpu(e->record[i].where);

		if (le32_to_cpu(e->record[i].type) == HYBRID_RECORD_BLOCK)
			take_record(&owner[where], &e->record[i]);
		else
			open[where] = le64_to_cpu(e->record[i].valid);
	}
}

static struct entry_seen *decode_entry(struct linter *l, struct action *a, const void *bytes,
				       u32 blocks)
{
	const struct hybrid_journal_entry *j = bytes;
	struct entry_seen *e;
	const char *why = "";
	int nr;

	if (le32_to_cpu(j->header.blocks) != blocks) {
		broken(l, "format", "journal entry of %u blocks written as %u",
		       le32_to_cpu(j->header.blocks), blocks);
		return NULL;
	}
	nr = hybrid_entry_check(j, l->g, blocks, &why);
	if (nr < 0) {
		broken(l, "format", "journal entry is not valid: %s", why);
		return NULL;
	}
	e = xalloc(sizeof(*e) + nr * sizeof(e->record[0]));
	e->n = le64_to_cpu(j->header.number);
	e->blocks = blocks;
	e->intent_tail = le64_to_cpu(j->header.intent_tail);
	e->nr = nr;
	memcpy(e->record, j->record, nr * sizeof(e->record[0]));
	return e;
}

static void trace_entry(struct linter *l, struct entry_seen *e)
{
	u32 i;

	if (!sim_trace)
		return;
	for (i = 0; i < e->nr; i++) {
		struct hybrid_record *r = &e->record[i];

		if (le32_to_cpu(r->type) == HYBRID_RECORD_BLOCK)
			fprintf(stderr, "         journal %llu: block %u = %u.%llu valid %llx dirty %llx\n",
				(unsigned long long)e->n, le32_to_cpu(r->where),
				le32_to_cpu(r->instance),
				(unsigned long long)le64_to_cpu(r->oblock),
				(unsigned long long)le64_to_cpu(r->valid),
				(unsigned long long)le64_to_cpu(r->dirty));
		else
			fprintf(stderr, "         journal %llu: set %u open %llx\n",
				(unsigned long long)e->n, le32_to_cpu(r->where),
				(unsigned long long)le64_to_cpu(r->valid));
	}
}

/* Does the record only drop clean granules of a block, of which nothing else changes? */
static bool drops_clean(const struct linter *l, const struct hybrid_record *r)
{
	const struct owner *o = &l->sent[le32_to_cpu(r->where)];
	u64 valid = le64_to_cpu(r->valid);

	return o->instance && o->instance == le32_to_cpu(r->instance) &&
	       o->oblock == oblock_of(r->oblock) && o->dirty == le64_to_cpu(r->dirty) &&
	       !(valid & ~o->valid);
}

/* Does the entry depend on data?  All records do, except those that open regions or drop clean granules. */
static bool vouches(const struct linter *l, const struct entry_seen *e)
{
	u32 i;

	for (i = 0; i < e->nr; i++) {
		const struct hybrid_record *r = &e->record[i];

		if (le32_to_cpu(r->type) == HYBRID_RECORD_BLOCK && drops_clean(l, r))
			continue;
		if (le32_to_cpu(r->type) != HYBRID_RECORD_REGIONS ||
		    (l->open_sent[le32_to_cpu(r->where)] & ~le64_to_cpu(r->valid)))
			return true;
	}
	return false;
}

static void journal_submitted(struct linter *l, struct action *a, u64 sector, const void *bytes,
			      u32 count)
{
	struct entry_seen *e = decode_entry(l, a, bytes, count / HYBRID_META_BLOCK_SECTORS);
	struct owner *old;
	u64 *old_open;
	u32 i;

	if (!e)
		return;
	trace_entry(l, e);
	list_add_tail(&e->link, &l->entries);
	e->action = a;
	if (!a->op->fua)
		broken(l, "J3", "journal write without fua");
	if (hybrid_journal_sector(l->g, e->n) != sector)
		broken(l, "format", "journal entry %llu stands elsewhere", (unsigned long long)e->n);
	if (e->n + e->blocks > l->root.journal_tail + l->g->journal_blocks)
		broken(l, "J7", "journal entry %llu overwrites the tail %llu",
		       (unsigned long long)e->n, (unsigned long long)l->root.journal_tail);
	if (l->w->stop)
		return;
	if (!l->data_flushed && vouches(l, e))
		broken(l, "J5", "journal write without a flush before it");
	l->data_flushed = false;
	old = xalloc(l->g->nr_blocks * sizeof(*old));
	old_open = xalloc(l->g->nr_sets * sizeof(u64));
	memcpy(old, l->sent, l->g->nr_blocks * sizeof(*old));
	memcpy(old_open, l->open_sent, l->g->nr_sets * sizeof(u64));
	apply_records(e, l->sent, l->open_sent);
	for (i = 0; i < l->g->nr_blocks; i++)
		if (memcmp(&old[i], &l->sent[i], sizeof(*old)))
			check_record(l, a, i, &old[i], &l->sent[i]);
	for (i = 0; i < l->g->nr_sets; i++)
		if (old_open[i] & ~l->open_sent[i])
			check_close(l, a, i, old_open[i] & ~l->open_sent[i]);
	intents_entry(l, a, e->intent_tail);
	free(old);
	free(old_open);
}

static void journal_completed(struct linter *l, struct dreq *r)
{
	struct entry_seen *e;

	list_for_each_entry(e, &l->entries, link)
		if (e->action == r->action) {
			e->durable = true;
			apply_records(e, l->durable, l->open_durable);
			intents_entry_durable(l, e->intent_tail);
		}
}

/* ---- Checkpoints ------------------------------------------------------------------------ */

static u32 leaf_blocks(struct linter *l, u32 nr, u32 *first)
{
	u32 set = (nr - HYBRID_VOLUME_LEAVES) / HYBRID_LEAVES_PER_SET;
	u32 in_set = (nr - HYBRID_VOLUME_LEAVES) % HYBRID_LEAVES_PER_SET * HYBRID_MAP_LEAF_BLOCKS;

	*first = set * l->g->set_size + in_set;
	if (in_set >= l->g->set_size)
		return 0;
	return min_t(u32, l->g->set_size - in_set, HYBRID_MAP_LEAF_BLOCKS);
}

static void take_map_leaf(struct linter *l, u32 nr, const struct hybrid_map_leaf *m)
{
	u32 first, i, n = leaf_blocks(l, nr, &first), shift;
	u64 mask;

	for (i = 0; i < n; i++) {
		struct owner *o = &l->leaf[first + i];

		o->instance = le32_to_cpu(m->instance[i]);
		o->oblock = oblock_of(m->oblock[i]);
		o->valid = le64_to_cpu(m->valid[i]);
		o->dirty = le64_to_cpu(m->dirty[i]);
		if (!o->instance)
			memset(o, 0, sizeof(*o));
	}
	if (!n)
		return;
	shift = first % l->g->set_size / HYBRID_REGION_BLOCKS;
	mask = 0xffffULL << shift;
	l->open_leaf[set_of(l, first)] &= ~mask;
	l->open_leaf[set_of(l, first)] |= (u64)le16_to_cpu(m->open_regions) << shift;
}

static void take_volume_leaf(struct linter *l, struct action *a, u32 nr, const void *bytes)
{
	struct hybrid_volume_info info[HYBRID_VOLUMES_PER_LEAF];
	const struct hybrid_volume_leaf *leaf = bytes;
	struct hybrid_ident id = {};
	const char *why = "";
	u32 i;

	memcpy(id.pool_uuid, l->w->sb.pool_uuid, HYBRID_UUID_SIZE);
	if (hybrid_volumes_decode(leaf, &id, nr, le64_to_cpu(leaf->header.generation), info, &why)) {
		if (a)
			broken(l, "format", "volume leaf %u: %s", nr, why);
		return;
	}
	for (i = 0; i < HYBRID_VOLUMES_PER_LEAF; i++)
		if (nr * HYBRID_VOLUMES_PER_LEAF + i < HYBRID_MAX_VOLUMES)
			l->table[nr * HYBRID_VOLUMES_PER_LEAF + i] = info[i];
}

static void take_leaf(struct linter *l, struct action *a, u32 nr, const void *bytes)
{
	if (nr < HYBRID_VOLUME_LEAVES)
		take_volume_leaf(l, a, nr, bytes);
	else
		take_map_leaf(l, nr, bytes);
}

static void leaf_submitted(struct linter *l, struct action *a, u64 sector, const void *bytes)
{
	const struct hybrid_block_header *h = bytes;
	u32 nr = (sector - l->g->leaf_sector) / HYBRID_META_BLOCK_SECTORS % l->g->nr_leaves;
	u64 generation = le64_to_cpu(h->generation);

	if (le64_to_cpu(h->number) != nr || hybrid_leaf_sector(l->g, nr, generation) != sector)
		broken(l, "format", "leaf %u is written to the place of another", nr);
	if (l->generation[nr] && (l->generation[nr] & 1) == (generation & 1))
		broken(l, "J7", "leaf %u is written over the one in use", nr);
	take_leaf(l, a, nr, bytes);
}

static void index_submitted(struct linter *l, struct action *a, u64 sector, const void *bytes)
{
	const struct hybrid_block_header *h = bytes;
	u32 nr = (sector - l->g->index_sector) / HYBRID_META_BLOCK_SECTORS % l->g->nr_index;
	u64 generation = le64_to_cpu(h->generation);

	if (le64_to_cpu(h->number) != nr || hybrid_index_sector(l->g, nr, generation) != sector)
		broken(l, "format", "index block %u is written to the place of another", nr);
	if (l->index[nr] && (l->index[nr] & 1) == (generation & 1))
		broken(l, "J7", "index block %u is written over the one in use", nr);
}

/*
 * Does the block belong to a volume that starts cold, under a new instance?  Then it is not
 * dirty, and a checkpoint under way may have passed the volume's entry but not its blocks.
 */
static bool starts_cold(struct linter *l, const struct owner *o)
{
	struct volume *vol = volume_of_instance(l, o->instance);

	return vol && o->instance == l->cold[vol->nr] && !o->dirty;
}

/* A recovery from this root and the durable journal would find the present state. */
static void check_replay(struct linter *l, struct action *a, const struct hybrid_root_info *root)
{
	struct owner *owner = xalloc(l->g->nr_blocks * sizeof(*owner));
	u64 *open = xalloc(l->g->nr_sets * sizeof(u64));
	struct entry_seen *e;
	u32 b;

	memcpy(owner, l->leaf, l->g->nr_blocks * sizeof(*owner));
	memcpy(open, l->open_leaf, l->g->nr_sets * sizeof(u64));
	list_for_each_entry(e, &l->entries, link)
		if (e->durable && e->n >= root->journal_tail)
			apply_records(e, owner, open);
	for (b = 0; b < l->g->nr_blocks && !l->w->stop; b++) {
		struct owner *d = &l->durable[b];

		if (memcmp(&owner[b], d, sizeof(*d)) && !starts_cold(l, d) &&
		    (volume_of_instance(l, d->instance) ||
		     volume_of_instance(l, owner[b].instance)))
			broken(l, "J7", "from this root block %u would be %u.%llu %llx/%llx and is %u.%llu %llx/%llx",
			       b, owner[b].instance, (unsigned long long)owner[b].oblock,
			       (unsigned long long)owner[b].valid,
			       (unsigned long long)owner[b].dirty, d->instance,
			       (unsigned long long)d->oblock, (unsigned long long)d->valid,
			       (unsigned long long)d->dirty);
	}
	for (b = 0; b < l->g->nr_sets && !l->w->stop; b++)
		if (l->open_durable[b] & l->open_sent[b] & ~open[b])
			broken(l, "J7", "from this root set %u would have %llx open, open are %llx",
			       b, (unsigned long long)open[b],
			       (unsigned long long)l->open_durable[b]);
	free(owner);
	free(open);
}

static int decode_root(struct linter *l, const void *bytes, struct hybrid_root_info *root,
		       u16 *index, const char **why)
{
	struct hybrid_ident id = {};

	memcpy(id.pool_uuid, l->w->sb.pool_uuid, HYBRID_UUID_SIZE);
	return hybrid_root_decode(bytes, l->g, &id, root, index, why);
}

static void check_nonces(struct linter *l, struct action *a)
{
	u32 i;

	for (i = 0; i < l->w->nr_vol; i++) {
		struct volume *vol = l->w->vol[i];
		struct hybrid_volume_info *t = &l->table[vol->id];
		u64 nonce;
		u32 copy;

		if (t->state != HYBRID_VOLUME_ACTIVE || t->flags & HYBRID_VOLUME_INPLACE ||
		    memcmp(t->uuid, vol->info.uuid, HYBRID_UUID_SIZE))
			continue;
		read_origin(l, vol);
		for (copy = 0; copy < 2; copy++) {
			nonce = l->copy_nonce[i][copy];
			if (nonce_known(&l->table_durable[i], nonce) && !nonce_known(t, nonce))
				broken(l, "J9", "volume %u: the cache forgets nonce %llx, which copy %u of the superblock has",
				       vol->id, (unsigned long long)nonce, copy);
		}
		nonce = l->origin_nonce[i];
		if (vol->v && !nonce_known(t, nonce))
			broken(l, "J9", "volume %u: the origin has nonce %llx, the cache will have %llx and %llx",
			       vol->id, (unsigned long long)nonce, (unsigned long long)t->nonce,
			       (unsigned long long)t->nonce_old);
	}
}

static void root_submitted(struct linter *l, struct action *a, u64 sector, const void *bytes)
{
	u16 index[HYBRID_ROOT_INDEXES];
	struct hybrid_root_info root;
	const char *why = "";

	if (decode_root(l, bytes, &root, index, &why)) {
		broken(l, "format", "root: %s", why);
		return;
	}
	if (sim_trace)
		fprintf(stderr, "         root %llu: tail %llu head %llu flags %x epoch %llx\n",
			(unsigned long long)root.sequence, (unsigned long long)root.journal_tail,
			(unsigned long long)root.journal_head, root.flags,
			(unsigned long long)root.epoch);
	if (!l->tree_flushed || !a->op->fua)
		broken(l, "J7", "root without fua, or a flush before it");
	if (l->leaves_in_flight)
		broken(l, "J7", "root while %u leaves are in flight", l->leaves_in_flight);
	if (hybrid_root_sector(l->g, root.sequence) != sector)
		broken(l, "J7", "root is written over the one in use");
	if (!l->known) {
		if (l->before && root.epoch == l->before->root.epoch)
			broken(l, "J8", "the first root of a life has the old epoch");
		if (l->before && root.sequence != l->before->root.sequence + 1)
			broken(l, "J7", "root %llu of a new life follows %llu",
			       (unsigned long long)root.sequence,
			       (unsigned long long)l->before->root.sequence);
		return;
	}
	if (root.sequence != l->root.sequence + 1)
		broken(l, "J7", "root %llu follows %llu", (unsigned long long)root.sequence,
		       (unsigned long long)l->root.sequence);
	check_replay(l, a, &root);
	intents_root(l, a, &root);
	check_nonces(l, a);
}

static void read_leaves(struct linter *l, const u16 *index_generation)
{
	u32 i, nr;

	memset(l->generation, 0, l->g->nr_leaves * sizeof(u16));
	memcpy(l->index, index_generation, l->g->nr_index * sizeof(u16));
	for (i = 0; i < l->g->nr_index; i++) {
		struct hybrid_index *index = (void *)l->block;
		u32 n = min_t(u32, HYBRID_INDEX_LEAVES,
			      l->g->nr_leaves - i * HYBRID_INDEX_LEAVES);

		if (!index_generation[i])
			continue;
		device_get_bytes(l->w->dev[0], hybrid_index_sector(l->g, i, index_generation[i]),
				 index, BLOCK_BYTES, true);
		for (nr = 0; nr < n; nr++)
			l->generation[i * HYBRID_INDEX_LEAVES + nr] =
				le16_to_cpu(index->leaf_generation[nr]);
	}
}

static bool same_volume(const struct hybrid_volume_info *a, const struct hybrid_volume_info *b)
{
	return a->state == b->state && a->instance == b->instance && a->flags == b->flags &&
	       a->mode == b->mode && a->cutoff_sectors == b->cutoff_sectors &&
	       a->nonce == b->nonce && a->nonce_old == b->nonce_old &&
	       !memcmp(a->uuid, b->uuid, HYBRID_UUID_SIZE);
}

/* A recovery keeps the state that the last life made durable, and changes nothing in it. */
static void check_kept(struct linter *l, struct action *a)
{
	const struct found *f = l->before;
	u32 b, i;

	for (i = 0; i < l->w->nr_vol && !l->w->stop; i++)
		if (!same_volume(&f->table[i], &l->table[l->w->vol[i]->id]))
			broken(l, "J8", "recovery records another entry of volume %u",
			       l->w->vol[i]->id);
	for (b = 0; b < l->g->nr_blocks && !l->w->stop; b++) {
		const struct found_block *o = &f->block[b];
		const struct owner *n = &l->leaf[b];

		if ((volume_of_instance(l, n->instance) || o->instance) &&
		    (n->instance != o->instance || n->valid != o->valid || n->dirty != o->dirty ||
		     (o->instance && n->oblock != oblock_of(cpu_to_le64(o->oblock)))))
			broken(l, "J8", "recovery finds block %u as %u.%llu %llx/%llx, and records %u.%llu %llx/%llx",
			       b, o->instance, (unsigned long long)o->oblock,
			       (unsigned long long)o->valid, (unsigned long long)o->dirty,
			       n->instance, (unsigned long long)n->oblock,
			       (unsigned long long)n->valid, (unsigned long long)n->dirty);
	}
	for (i = 0; i < l->g->nr_sets; i++)
		if (l->open_leaf[i])
			broken(l, "J8", "recovery leaves regions %llx of set %u open",
			       (unsigned long long)l->open_leaf[i], i);
}

/* The first root of a life: from here on the state on disk is known. */
static void learn(struct linter *l, struct action *a)
{
	struct hybrid_ident id = { .epoch = l->root.epoch };
	u64 n = l->root.journal_tail;
	u32 nr;

	memcpy(id.pool_uuid, l->w->sb.pool_uuid, HYBRID_UUID_SIZE);
	memset(l->leaf, 0, l->g->nr_blocks * sizeof(*l->leaf));
	memset(l->open_leaf, 0, l->g->nr_sets * sizeof(u64));
	memset(l->table, 0, sizeof(l->table));
	for (nr = 0; nr < l->g->nr_leaves; nr++) {
		if (!l->generation[nr])
			continue;
		device_get_bytes(l->w->dev[0], hybrid_leaf_sector(l->g, nr, l->generation[nr]),
				 l->block, BLOCK_BYTES, true);
		take_leaf(l, a, nr, l->block);
	}
	memcpy(l->durable, l->leaf, l->g->nr_blocks * sizeof(*l->leaf));
	memcpy(l->sent, l->leaf, l->g->nr_blocks * sizeof(*l->leaf));
	memcpy(l->open_durable, l->open_leaf, l->g->nr_sets * sizeof(u64));
	memcpy(l->open_sent, l->open_leaf, l->g->nr_sets * sizeof(u64));
	if (n != l->root.journal_head)
		broken(l, "J8", "the first root of a life has a journal");
	for (nr = 0; nr < l->w->nr_vol; nr++)
		read_origin(l, l->w->vol[nr]);
	intents_learn(l, l->root.intent_tail);
	l->known = true;
	if (l->before)
		check_kept(l, a);
}

static void root_completed(struct linter *l, struct action *a, struct dreq *r)
{
	u16 index[HYBRID_ROOT_INDEXES];
	const char *why = "";
	u32 i;

	if (decode_root(l, r->bytes, &l->root, index, &why))
		return;
	read_leaves(l, index);
	if (!l->known)
		learn(l, a);
	drop_entries(l, l->root.journal_tail);
	for (i = 0; i < l->w->nr_vol; i++)
		l->table_durable[i] = l->table[l->w->vol[i]->id];
}

/* ---- Metadata ------------------------------------------------------------------------------ */

enum area { AREA_OTHER, AREA_SB, AREA_ROOT, AREA_INDEX, AREA_LEAF, AREA_JOURNAL, AREA_INTENT };

static enum area area_of(struct linter *l, u64 sector)
{
	const struct hybrid_geometry *g = l->g;

	if (sector == hybrid_sb_sector(l->w->dev[0]->sectors, 0) ||
	    sector == hybrid_sb_sector(l->w->dev[0]->sectors, 1))
		return AREA_SB;
	if (sector < g->root_sector || sector >= g->data_sector)
		return AREA_OTHER;
	if (sector < g->index_sector)
		return AREA_ROOT;
	if (sector < g->leaf_sector)
		return AREA_INDEX;
	if (sector < g->journal_sector)
		return AREA_LEAF;
	if (sector < g->intent_sector)
		return AREA_JOURNAL;
	if (sector < g->intent_sector + (u64)g->intent_blocks * HYBRID_META_BLOCK_SECTORS)
		return AREA_INTENT;
	return AREA_OTHER;
}

static void cache_meta_submitted(struct linter *l, struct action *a, u64 sector, const void *bytes,
				 u32 count)
{
	enum area area = area_of(l, sector);
	u32 i;

	if (sector % HYBRID_META_BLOCK_SECTORS || count % HYBRID_META_BLOCK_SECTORS) {
		broken(l, "format", "metadata write of %u sectors at %llu", count,
		       (unsigned long long)sector);
		return;
	}
	switch (area) {
	case AREA_ROOT:
		root_submitted(l, a, sector, bytes);
		break;
	case AREA_JOURNAL:
		if (!l->known)
			broken(l, "J8", "journal write before the first root of a life");
		else
			journal_submitted(l, a, sector, bytes, count);
		break;
	case AREA_INDEX:
	case AREA_LEAF:
		l->leaves_in_flight++;
		l->tree_flushed = false;
		for (i = 0; i < count; i += HYBRID_META_BLOCK_SECTORS)
			if (area == AREA_LEAF)
				leaf_submitted(l, a, sector + i, bytes + i * 512);
			else
				index_submitted(l, a, sector + i, bytes + i * 512);
		break;
	case AREA_INTENT:
		if (!l->known)
			broken(l, "J8", "an intent is written before the first root of a life");
		else
			intents_submitted(l, a, sector, bytes);
		break;
	case AREA_SB:
		break;
	default:
		broken(l, "bounds", "metadata write at %llu", (unsigned long long)sector);
	}
}

static struct volume *volume_of_device(struct linter *l, struct device *d)
{
	return l->w->vol[d->nr - 1];
}

static bool any_dirty(struct linter *l, struct volume *vol, const struct owner *o)
{
	u32 b;

	for (b = 0; b < l->g->nr_blocks; b++)
		if (o[b].dirty && volume_of_instance(l, o[b].instance) == vol)
			return true;
	return false;
}

/* Has the origin all of the granule's data that a crash may not lose? */
static void check_alone(struct linter *l, struct action *a, u32 b, const struct owner *o, u32 nr)
{
	struct granule gr;
	u32 i;

	if (!find_granule(l, b, o, nr, &gr))
		return;
	for (i = 0; i < l->g->granule_sectors; i++) {
		val_t durable = device_durable(gr.vol->origin, gr.origin + i);

		if (oracle_crash_allows(gr.vol->oracle, gr.sector + i, durable))
			continue;
		broken(l, "J10", "volume %u: dirty flag cleared, sector %llu of the origin is %s",
		       gr.vol->id, (unsigned long long)gr.sector + i, val_name(durable));
		return;
	}
}

/*
 * J10: no record calls any granule dirty.  The last records of a failed pool may not have been
 * written; then the origin has the data of all granules that the records on disk call dirty.
 */
static void check_flag_cleared(struct linter *l, struct action *a, struct volume *vol)
{
	u32 b, nr;

	if (!l->failed) {
		if (any_dirty(l, vol, l->durable) || any_dirty(l, vol, l->sent))
			broken(l, "J10", "volume %u: dirty flag cleared, dirty records are durable",
			       vol->id);
		return;
	}
	for (b = 0; b < l->g->nr_blocks; b++) {
		if (volume_of_instance(l, l->sent[b].instance) != vol)
			continue;
		for (nr = 0; nr < l->g->granules && !l->w->stop; nr++)
			if (l->sent[b].dirty >> nr & 1)
				check_alone(l, a, b, &l->sent[b], nr);
	}
}

/* No superblock that a reader could find may name a lost map that is written over. */
static void lost_map_submitted(struct linter *l, struct action *a, struct device *d, u64 sector,
			       const void *bytes, u32 count)
{
	struct volume *vol = volume_of_device(l, d);
	const struct hybrid_lost_map *map = bytes;

	if (le32_to_cpu(map->header.magic) != HYBRID_LOST_MAGIC ||
	    le32_to_cpu(map->header.blocks) * HYBRID_META_BLOCK_SECTORS != count ||
	    hybrid_lost_check(map, count / HYBRID_META_BLOCK_SECTORS, NULL))
		broken(l, "format", "lost map at %llu", (unsigned long long)sector);
	read_origin(l, vol);
	if (!l->failed)
		broken(l, "P5", "a lost map is written, and the pool has not failed");
	if (l->origin_lost[vol->nr])
		broken(l, "P5", "the lost map in use is written over");
}

/* A lost map must be durable before a superblock names it. */
static void check_lost_named(struct linter *l, struct action *a, struct device *d,
			     const struct hybrid_sb *sb)
{
	u32 shift = hybrid_lost_shift(sb->data_sectors, l->g->block_sectors);
	u32 size = hybrid_lost_blocks(sb->data_sectors, shift) * BLOCK_BYTES, copy;
	struct hybrid_lost_map *map[2];
	u32 good = 0;

	for (copy = 0; copy < 2; copy++) {
		map[copy] = (void *)l->block + copy * size;
		device_get_bytes(d, device_place(d, hybrid_lost_sector(sb->member_sectors, copy)),
				 map[copy], size, true);
		if (hybrid_lost_peek(map[copy], sb, copy, NULL) > 0 &&
		    !hybrid_lost_check(map[copy], size / BLOCK_BYTES, NULL))
			good++;
	}
	if (!good)
		broken(l, "P5", "the superblock of dev%u names a lost map that is not written", d->nr);
	if (good == 2 && memcmp(map[0]->bitmap, map[1]->bitmap, size - sizeof(*map[0])))
		broken(l, "P5", "the lost maps of dev%u differ", d->nr);
	if (!(sb->flags & HYBRID_SB_DIRTY))
		broken(l, "P5", "dev%u is clean, but names a lost map", d->nr);
}

/* Checks the zeroing of a tail of an origin that grows.  Returns false if the write is something else. */
static bool tail_zeroed(struct linter *l, struct action *a, struct device *d, u64 sector,
			const void *bytes, u32 count)
{
	struct hybrid_volume_info *t = &l->table_durable[volume_of_device(l, d)->nr];
	u64 end = hybrid_sb_sector(device_size(d), 1);
	struct hybrid_superblock block;
	struct hybrid_sb sb;

	if (*(u8 *)bytes || memcmp(bytes, bytes + 1, count * 512 - 1))
		return false;
	if (!t->data_sectors_new)
		broken(l, "grow", "a tail is zeroed, and the entry of dev%u knows of no growth", d->nr);
	if (sector == HYBRID_SB_SECTOR || (sector == end && device_member(d, true) == device_size(d)))
		broken(l, "grow", "a superblock of dev%u that counts is zeroed", d->nr);
	/* This is the new tail: the old one cannot be there */
	if (sector == end)
		return true;
	device_get_bytes(d, device_place(d, end), &block, sizeof(block), true);
	if (hybrid_sb_decode(&block, end, device_size(d), &sb, NULL))
		broken(l, "grow", "the old tail of dev%u is zeroed, and there is no new one", d->nr);
	return true;
}

/* The durable entry must know the new size first, and the old tail must be gone. */
static void check_grown(struct linter *l, struct action *a, struct device *d, u64 sector,
			const struct hybrid_sb *sb)
{
	struct hybrid_volume_info *t = &l->table_durable[volume_of_device(l, d)->nr];
	u64 before = device_member(d, true), old = hybrid_sb_sector(before, 1);
	struct hybrid_superblock block;
	struct hybrid_sb other;

	if (sb->data_sectors != t->data_sectors && sb->data_sectors != t->data_sectors_new)
		broken(l, "grow", "dev%u gets %llu sectors, its entry has %llu, and %llu", d->nr,
		       (unsigned long long)sb->data_sectors, (unsigned long long)t->data_sectors,
		       (unsigned long long)t->data_sectors_new);
	if (sector != HYBRID_SB_SECTOR || sb->member_sectors == before)
		return;
	device_get_bytes(d, device_place(d, old), &block, sizeof(block), true);
	if (!hybrid_sb_decode(&block, old, device_size(d), &other, NULL))
		broken(l, "grow", "the head of dev%u leaves its old tail behind", d->nr);
}

static void origin_sb_submitted(struct linter *l, struct action *a, struct device *d, u64 sector,
				const void *bytes, u32 count)
{
	struct volume *vol = volume_of_device(l, d);
	struct hybrid_volume_info *t = &l->table_durable[vol->nr];
	struct hybrid_sb sb;
	const char *why = "";

	if (l->w->p.grow && tail_zeroed(l, a, d, sector, bytes, count))
		return;
	/* A new tail may stand where the lost map of the old one was */
	if ((sector == hybrid_lost_sector(device_size(d), 0) ||
	     sector == hybrid_lost_sector(device_size(d), 1) ||
	     sector == hybrid_lost_sector(device_member(d, true), 1)) &&
	    memcmp(bytes, HYBRID_SB_MAGIC, HYBRID_SB_MAGIC_SIZE)) {
		lost_map_submitted(l, a, d, sector, bytes, count);
		return;
	}
	if (count != HYBRID_META_BLOCK_SECTORS ||
	    hybrid_sb_decode(bytes, sector, device_size(d), &sb, &why)) {
		broken(l, "format", "origin superblock: %s", why);
		return;
	}
	if (sim_trace)
		fprintf(stderr, "         superblock of origin %u: sequence %llu nonce %llx flags %x instance %u lost %llx\n",
			vol->nr, (unsigned long long)sb.sequence, (unsigned long long)sb.nonce,
			sb.flags, sb.instance, (unsigned long long)sb.lost);
	if (sb.lost)
		check_lost_named(l, a, d, &sb);
	if (l->w->p.grow)
		check_grown(l, a, d, sector, &sb);
	read_origin(l, vol);
	if (sb.nonce != l->copy_nonce[vol->nr][0] && sb.nonce != l->copy_nonce[vol->nr][1] &&
	    !nonce_known(t, sb.nonce) && !l->failed)
		broken(l, "J9", "the origin gets nonce %llx, the cache durably has %llx",
		       (unsigned long long)sb.nonce, (unsigned long long)t->nonce);
	/* An origin being closed either went alone before, and stays so, or never goes alone. */
	if (a->finished && l->w->doing == PHASE_CLOSE && !nonce_known(t, sb.nonce))
		broken(l, "J9", "the origin is closed with nonce %llx, and did not go alone",
		       (unsigned long long)sb.nonce);
	if (l->origin_dirty[vol->nr] && !(sb.flags & HYBRID_SB_DIRTY))
		check_flag_cleared(l, a, vol);
}

/* ---- Data ------------------------------------------------------------------------------------- */

/* Whose data is it?  A write itself tells; for a read by writeback, the data read tells. */
static void find_owner(struct linter *l, struct action *a, struct dreq *r)
{
	u32 i;

	if (r->owned)
		return;
	if (a->uio) {
		r->owner = a->uio->vol->oracle->owner;
		r->oblock = a->uio->sector >> l->g->block_shift;
		r->owned = true;
		return;
	}
	for (i = 0; i < r->count; i++) {
		val_t v = r->kind == DREQ_WRITE ? r->vals[i] : device_read(r->dev, r->sector + i);

		if (v == VAL_ZERO)
			continue;
		r->owner = val_owner(v);
		r->oblock = val_sector(v) >> l->g->block_shift;
		r->owned = true;
		return;
	}
}

static bool mapped_to_other(struct linter *l, const struct owner *o, struct dreq *r)
{
	struct volume *vol = volume_of_instance(l, o->instance);

	return vol && (vol->oracle->owner != r->owner || o->oblock != r->oblock);
}

/* J1 */
static void check_reuse(struct linter *l, struct action *a, u32 b, struct dreq *r)
{
	struct device *d = r->dev;
	u64 start = hybrid_data_sector(l->g, to_cblock(b));
	u32 i;

	if (mapped_to_other(l, &l->durable[b], r) || mapped_to_other(l, &l->sent[b], r))
		broken(l, "J1", "block %u is written for volume %u block %llu, its removal is not durable",
		       b, r->owner, (unsigned long long)r->oblock);
	for (i = 0; i < d->v->nr_inflight; i++) {
		struct dreq *x = d->v->inflight[i];

		if (x->meta || x == r || !x->owned || x->kind == DREQ_FLUSH ||
		    x->sector < start || x->sector >= start + l->g->block_sectors)
			continue;
		if (x->owner == r->owner && x->oblock == r->oblock)
			continue;
		broken(l, "J1", "block %u is written for volume %u block %llu, #%u under the old mapping is in flight",
		       b, r->owner, (unsigned long long)r->oblock, x->action->nr);
		return;
	}
}

/*
 * Has the pool failed, and has the origin durable nonces that the cache does not
 * know, or is it in place, so that it will start cold?
 */
static bool alone(struct linter *l, struct volume *vol)
{
	const u64 *copy = l->copy_nonce[vol->nr];
	u32 i;

	if (vol->info.flags & HYBRID_VOLUME_INPLACE)
		return l->failed;
	for (i = 0; i < 2; i++)
		if (nonce_known(&l->table_durable[vol->nr], copy[i]) ||
		    nonce_known(&l->table[vol->id], copy[i]))
			return false;
	return l->failed;
}

/*
 * A crash finds the durable state, or the state sent last: in both, clean granules
 * that are being written must lie in an open region.
 */
static void check_clean_write(struct linter *l, struct action *a, u32 b, u64 mask, bool sent,
			      const char *copy)
{
	const struct owner *o = sent ? &l->sent[b] : &l->durable[b];
	const u64 *open = sent ? l->open_sent : l->open_durable;

	if (!(mask & o->valid & ~o->dirty) || (open[set_of(l, b)] & region_of(l, b)))
		return;
	broken(l, "J4", "%s copy of clean granules %llx of block %u is written, its region is not open",
	       copy, (unsigned long long)(mask & o->valid & ~o->dirty), b);
}

static bool writes_origin(const struct hybrid_op *op)
{
	u32 i;

	if (op->type != HYBRID_OP_TRANSFER)
		return false;
	for (i = 0; i < op->nr_segments; i++)
		if (op->segments[i].origin)
			return true;
	return false;
}

/*
 * J6: no other request changes the origin's copy while both copies are written, and no
 * user's write goes to one copy while another user's write goes to the other: which would
 * be newer?
 */
static void check_serial(struct linter *l, struct action *a, struct dreq *r, struct volume *vol,
			 u64 sector)
{
	struct device *d = vol->origin;
	u32 i;

	for (i = 0; i < d->v->nr_inflight; i++) {
		struct dreq *x = d->v->inflight[i];

		if (x->meta || x->action == a || x->kind == DREQ_READ || x->kind == DREQ_FLUSH)
			continue;
		if (x->sector >= sector + r->count || sector >= x->sector + x->count)
			continue;
		if (!writes_origin(a->op) && !x->action->op->io)
			continue;
		broken(l, "J6", "the cache's copy of %llu+%u is written while #%u writes the origin's",
		       (unsigned long long)(sector - d->data_from), r->count, x->action->nr);
		return;
	}
}

/* The same, where the write to the cache was first. */
static void check_serial_origin(struct linter *l, struct action *a, struct dreq *r,
				struct volume *vol)
{
	struct device *d = l->w->dev[0];
	u64 at = r->sector - r->dev->data_from;
	u32 i;

	for (i = 0; a->op->io && i < d->v->nr_inflight; i++) {
		struct dreq *x = d->v->inflight[i];
		u64 start;

		if (x->meta || x->action == a || x->kind != DREQ_WRITE || !x->action->op->io ||
		    !x->owned || x->owner >= l->w->nr_vol || l->w->vol[x->owner] != vol)
			continue;
		start = (x->oblock << l->g->block_shift) +
			((x->sector - l->g->data_sector) & (l->g->block_sectors - 1));
		if (start >= at + r->count || at >= start + x->count)
			continue;
		broken(l, "J6", "the origin's copy of %llu+%u is written while #%u writes the cache's",
		       (unsigned long long)at, r->count, x->action->nr);
		return;
	}
}

/* J1: no other request is under way beside a discard of the same place of the cache device. */
static void check_discards(struct linter *l, struct action *a, struct dreq *r)
{
	struct device *d = r->dev;
	u32 i;

	for (i = 0; i < d->v->nr_inflight; i++) {
		struct dreq *x = d->v->inflight[i];

		if (x->meta || x == r || x->kind == DREQ_FLUSH ||
		    (x->kind != DREQ_DISCARD && r->kind != DREQ_DISCARD) ||
		    x->sector >= r->sector + r->count || r->sector >= x->sector + x->count)
			continue;
		broken(l, "J1", "%llu+%u are %s while #%u is under way there",
		       (unsigned long long)r->sector, r->count,
		       r->kind == DREQ_DISCARD ? "discarded" : "read or written", x->action->nr);
		return;
	}
}

/* J1: no record says, or may say after a crash, that data of these blocks is valid. */
static void cache_discard(struct linter *l, struct action *a, struct dreq *r)
{
	u64 offset = r->sector - l->g->data_sector;
	u32 b = offset >> l->g->block_shift, end = (offset + r->count) >> l->g->block_shift, i;

	if ((offset | r->count) & (l->g->block_sectors - 1)) {
		broken(l, "bounds", "a discard of %llu+%u is not of whole blocks",
		       (unsigned long long)r->sector, r->count);
		return;
	}
	for (; b < end; b++) {
		const struct owner *both[] = { &l->durable[b], &l->sent[b] };

		for (i = 0; i < 2; i++)
			if (volume_of_instance(l, both[i]->instance) && both[i]->valid)
				broken(l, "J1", "block %u is discarded, its removal is not durable",
				       b);
		intents_data(l, a, r, b, U64_MAX);
	}
}

static void cache_write(struct linter *l, struct action *a, struct dreq *r)
{
	u64 offset = r->sector - l->g->data_sector;
	u32 b = offset >> l->g->block_shift;
	u32 first = offset & (l->g->block_sectors - 1);
	u64 mask;

	if (first + r->count > l->g->block_sectors) {
		broken(l, "bounds", "a write spans cache blocks %u and the next", b);
		return;
	}
	if (!r->owned)
		return;
	check_reuse(l, a, b, r);
	mask = granules_of(l, first, r->count);
	intents_data(l, a, r, b, mask);
	if (volume_of_instance(l, l->durable[b].instance))
		check_clean_write(l, a, b, mask, false, "the cache's");
	if (volume_of_instance(l, l->sent[b].instance))
		check_clean_write(l, a, b, mask, true, "the cache's");
	if (a->op->io && r->owner < l->w->nr_vol)
		check_serial(l, a, r, l->w->vol[r->owner], l->w->vol[r->owner]->origin->data_from +
			     (r->oblock << l->g->block_shift) + first);
	if (a->op->io && !writes_origin(a->op) && r->owner < l->w->nr_vol &&
	    !l->origin_dirty[r->owner])
		broken(l, "J10", "a dirty write to block %u, the origin is not marked", b);
}

/*
 * J2: as long as a granule is dirty on record, a crash brings its data back over a user's
 * write to the origin.  Zeroes and discards may replace the data, but not while the record
 * that ends the dirty state is on its way.
 */
static void check_dirty_write(struct linter *l, struct action *a, struct dreq *r, u32 b, u64 mask)
{
	u64 dirty = mask & l->durable[b].dirty;
	u32 in_block = (r->sector - r->dev->data_from) & (l->g->block_sectors - 1);

	/*
	 * A range that passed this block may be under way to the next one, or held up
	 * by another CPU, when the record goes out.
	 */
	if (r->kind != DREQ_WRITE &&
	    (sim_interleave || in_block + r->count > l->g->block_sectors))
		return;
	if (r->kind != DREQ_WRITE && same_owner(&l->durable[b], &l->sent[b]))
		dirty &= ~l->sent[b].dirty;
	if (dirty && a->op->io && !l->unsettled[r->dev->nr])
		broken(l, "J2", "the origin's copy of granules %llx of block %u is written, on record they are dirty",
		       (unsigned long long)dirty, b);
}

static void origin_write(struct linter *l, struct action *a, struct dreq *r)
{
	struct volume *vol = volume_of_device(l, r->dev);
	u64 from = r->sector - r->dev->data_from, to = from + r->count;
	u32 b, i;

	check_serial_origin(l, a, r, vol);
	if (alone(l, vol))
		return;
	intents_origin(l, a, vol, from, to);
	for (b = 0; b < l->g->nr_blocks; b++) {
		const struct owner *both[] = { &l->durable[b], &l->sent[b] };

		for (i = 0; i < 2; i++) {
			u64 start = both[i]->oblock << l->g->block_shift;
			u64 end = start + l->g->block_sectors;
			u64 first = max(from, start), last = min(to, end);

			if (volume_of_instance(l, both[i]->instance) != vol || first >= last)
				continue;
			check_clean_write(l, a, b, granules_of(l, first - start, last - first), i,
					  "the origin's");
			if (!i)
				check_dirty_write(l, a, r, b, granules_of(l, first - start, last - first));
		}
	}
}

bool linter_any_dirty(struct linter *l)
{
	u32 b;

	for (b = 0; b < l->g->nr_blocks; b++)
		if (l->durable[b].dirty | l->sent[b].dirty)
			return true;
	return false;
}

void linter_rest(struct linter *l)
{
	u32 b, set;

	for (b = 0; b < l->g->nr_blocks && !l->w->stop; b++) {
		struct found_block ram = found_in_ram(l->w->e, b);
		const struct owner *o = &l->durable[b];
		bool same = ram.instance == o->instance;
		/* The blocks of a dead instance belong to nobody: no leaf is written for them. */
		u64 valid = volume_of_instance(l, o->instance) ? o->valid : 0;

		if (!(ram.valid | valid))
			continue;
		if (!same || ram.valid != o->valid || ram.dirty != o->dirty)
			violation(l->w, "rest", "nothing waits for time to pass, and block %u is %u.%llu %llx/%llx in RAM, %u.%llu %llx/%llx on disk",
				  b, ram.instance, (unsigned long long)ram.oblock,
				  (unsigned long long)ram.valid, (unsigned long long)ram.dirty,
				  o->instance, (unsigned long long)o->oblock,
				  (unsigned long long)o->valid, (unsigned long long)o->dirty);
	}
	for (set = 0; set < l->g->nr_sets && !l->w->stop; set++)
		if (l->open_durable[set])
			violation(l->w, "rest", "nothing waits for time to pass, and regions %llx of set %u are open",
				  (unsigned long long)l->open_durable[set], set);
}

bool linter_dirty(struct linter *l, struct volume *vol, u64 sector, u32 count)
{
	u64 first = sector >> l->g->block_shift, last = (sector + count - 1) >> l->g->block_shift;
	u32 b;

	for (b = 0; b < l->g->nr_blocks; b++) {
		const struct owner *d = &l->durable[b], *s = &l->sent[b];

		if ((d->dirty && d->oblock >= first && d->oblock <= last &&
		     volume_of_instance(l, d->instance) == vol) ||
		    (s->dirty && s->oblock >= first && s->oblock <= last &&
		     volume_of_instance(l, s->instance) == vol))
			return true;
	}
	return false;
}

/* ---- The stream ----------------------------------------------------------------------------------- */

void linter_meta(struct linter *l, struct action *a, struct device *d)
{
	u32 i;

	if (!d->nr && l->in_order && area_of(l, a->op->segments[0].sector) != AREA_INTENT)
		broken(l, "S9", "metadata are written after a write of metadata failed");
	for (i = 0; i < a->op->nr_segments && !l->w->stop; i++) {
		struct hybrid_segment *s = &a->op->segments[i];
		const void *bytes = a->op->mem + s->offset * 512;

		if (!d->nr)
			cache_meta_submitted(l, a, s->sector, bytes, s->count);
		else
			origin_sb_submitted(l, a, d, s->sector, bytes, s->count);
	}
}

void linter_submit(struct linter *l, struct action *a, struct dreq *r)
{
	bool cache = !r->dev->nr;

	if (l->w->stop)
		return;
	if (r->kind == DREQ_READ && !l->flushed[r->dev->nr])
		broken(l, "J8", "dev%u is read before it was flushed", r->dev->nr);
	/*
	 * The call that assembles an entry sends the flush for it, but another CPU may hold
	 * the call up between the two.  A write that meanwhile replaces, in the cache, data whose
	 * dirty state the entry ends, and is acknowledged, has a record of its own; no flush has
	 * promised it.
	 */
	if (r->kind == DREQ_FLUSH && cache) {
		l->assembled = fiber_began();
		intents_flush(l, r);
	}
	if (r->meta || r->kind == DREQ_FLUSH)
		return;
	if (!l->known) {
		broken(l, "J8", "data I/O before the recovery is durable");
		return;
	}
	if (cache)
		check_discards(l, a, r);
	if (cache && r->kind == DREQ_DISCARD) {
		cache_discard(l, a, r);
		return;
	}
	if (cache)
		find_owner(l, a, r);
	if (r->kind == DREQ_READ)
		return;
	if (cache)
		cache_write(l, a, r);
	else
		origin_write(l, a, r);
}

/* The request may have been carried out, or a part of it. */
static void request_failed(struct linter *l, struct action *a, struct dreq *r)
{
	enum area area = r->meta ? area_of(l, r->sector) : AREA_OTHER;

	if (r->dev->nr) {
		if (r->meta)
			read_origin(l, volume_of_device(l, r->dev));
		return;
	}
	if (r->kind == DREQ_WRITE && (area == AREA_INDEX || area == AREA_LEAF))
		l->leaves_in_flight--;
	/* A flush by itself is a commit without records, or the first flush of a load */
	if (a->op->type == HYBRID_OP_META ? a->op->write : r->kind == DREQ_FLUSH) {
		l->failed = true;
		l->in_order |= area != AREA_INTENT;
	}
}

void linter_complete(struct linter *l, struct action *a, struct dreq *r)
{
	if (l->w->stop)
		return;
	intents_ended(l, a, r);
	if (r->error) {
		l->unsettled[r->dev->nr] |= r->meta || r->kind == DREQ_FLUSH;
		request_failed(l, a, r);
		return;
	}
	if (r->kind == DREQ_FLUSH) {
		l->flushed[r->dev->nr] = true;
		l->data_flushed |= !r->dev->nr;
		l->tree_flushed |= !r->dev->nr;
		return;
	}
	if (!r->meta || r->kind != DREQ_WRITE)
		return;
	if (r->dev->nr) {
		read_origin(l, volume_of_device(l, r->dev));
		return;
	}
	switch (area_of(l, r->sector)) {
	case AREA_ROOT:
		root_completed(l, a, r);
		break;
	case AREA_JOURNAL:
		if (l->known)
			journal_completed(l, r);
		break;
	case AREA_INDEX:
	case AREA_LEAF:
		l->leaves_in_flight--;
		break;
	default:
		break;
	}
}
