// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Reads the same metadata as engine-load.c, in the same order, and judges it alike:
 * if the kernel refuses it, it is damage here; if the kernel passes over it, it is
 * none.  But it goes on behind damage.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "intent.h"
#include "journal.h"
#include "map.h"
#include "metadata.h"
#include "units.h"

#define READ_BLOCKS	64	/* metadata blocks in one read */
#define WINDOW_BLOCKS	256	/* of the journal */

struct reader {
	struct hybrid_metadata *md;
	const struct hybrid_device *dev;
	struct hybrid_findings *f;
	void *mem;			/* READ_BLOCKS */
	/* The hash of each set: index + 1, 0 ends a chain */
	struct hybrid_map map;		/* only the fields that hashes need */
	u16 *bucket, *next;
	u32 last_instance;
	int last_volume;
	/* Where the block at hand comes from */
	const char *source;
	u64 source_nr;
	/* The part of the journal that was read last */
	void *window;
	u64 window_sector;
	u32 window_blocks;
};

static int read_blocks(struct reader *rd, u64 sector, u32 blocks, void *mem)
{
	return hybrid_device_read(rd->dev, sector, mem, (size_t)blocks * HYBRID_META_BLOCK_SIZE);
}

static void unreadable(struct reader *rd, const char *what, u64 nr, int r)
{
	hybrid_found(rd->f, HYBRID_FOUND_UNREADABLE, hybrid_where(rd->f, what, nr), "%s",
		     strerror(-r));
}

static void bad(struct reader *rd, enum hybrid_finding_id id, const char *what, u64 nr, int r,
		const char *why)
{
	char text[HYBRID_CODEC_TEXT];

	hybrid_found(rd->f, id, hybrid_where(rd->f, what, nr), "%s",
		     hybrid_codec_text(text, r, why));
}

/* ---- root and index ------------------------------------------------------- */

static const char * const root_name[] = { "root A", "root B" };

static bool all_zero(const void *block)
{
	const u8 *p = block;

	return !p[0] && !memcmp(p, p + 1, HYBRID_META_BLOCK_SIZE - 1);
}

/* Reads the root of @area; text: the reason if it is bad, unless nothing was ever written there. */
static void read_root(struct reader *rd, u32 area, u16 *generation, char text[HYBRID_CODEC_TEXT])
{
	struct hybrid_metadata *md = rd->md;
	struct hybrid_root_info root;
	const char *why = NULL;
	int r;

	text[0] = '\0';
	r = read_blocks(rd, hybrid_root_sector(md->g, area), 1, rd->mem);
	if (r) {
		hybrid_found(rd->f, HYBRID_FOUND_UNREADABLE, root_name[area], "%s", strerror(-r));
		return;
	}
	r = hybrid_root_decode(rd->mem, md->g, &md->id, &root, generation, &why);
	if (!r && (root.sequence & 1) != area) {
		r = -ESTALE;
		why = "sequence";
	}
	if (r && !all_zero(rd->mem))
		hybrid_codec_text(text, r, why);
	if (r)
		return;
	md->roots |= 1U << area;
	if (md->roots != 1U << area && root.sequence < md->root.sequence)
		return;
	md->root = root;
	memcpy(md->index_generation, generation, md->g->nr_index * sizeof(*generation));
}

static int read_roots(struct reader *rd)
{
	struct hybrid_metadata *md = rd->md;
	u16 *generation = calloc(md->g->nr_index, sizeof(*generation));
	char text[2][HYBRID_CODEC_TEXT];
	u32 area;

	md->index_generation = calloc(md->g->nr_index, sizeof(u16));
	if (!generation || !md->index_generation) {
		free(generation);
		return hybrid_nomem();
	}
	for (area = 0; area < 2; area++)
		read_root(rd, area, generation, text[area]);
	free(generation);
	md->id.epoch = md->root.epoch;
	for (area = 0; area < 2 && md->roots; area++)
		if (text[area][0])
			hybrid_found(rd->f, HYBRID_FOUND_ROOT_OTHER, root_name[area], "%s",
				     text[area]);
	if (!md->roots)
		hybrid_found(rd->f, HYBRID_FOUND_ROOT_NONE, NULL, "root A: %s; root B: %s",
			     text[0][0] ? text[0] : "nothing", text[1][0] ? text[1] : "nothing");
	if (hybrid_number_ends(md->root.sequence) || hybrid_number_ends(md->root.journal_head) ||
	    hybrid_number_ends(md->root.intent_tail))
		hybrid_found(rd->f, HYBRID_FOUND_NUMBERS, root_name[md->root.sequence & 1],
			     "the sequence is %llu, the journal goes on from %llu, the intents from %llu",
			     (unsigned long long)md->root.sequence,
			     (unsigned long long)md->root.journal_head,
			     (unsigned long long)md->root.intent_tail);
	return 0;
}

/* The leaves that index block @nr names. */
static u32 index_leaves(const struct hybrid_geometry *g, u32 nr)
{
	return min_t(u32, HYBRID_INDEX_LEAVES, g->nr_leaves - nr * HYBRID_INDEX_LEAVES);
}

static void read_index(struct reader *rd, u32 nr)
{
	struct hybrid_metadata *md = rd->md;
	u32 first = nr * HYBRID_INDEX_LEAVES, n = index_leaves(md->g, nr), k;
	u16 gen = md->index_generation[nr];
	const char *why = NULL;
	int r;

	r = read_blocks(rd, hybrid_index_sector(md->g, nr, gen), 1, rd->mem);
	if (r) {
		unreadable(rd, "index block", nr, r);
	} else {
		r = hybrid_index_decode(rd->mem, md->g, &md->id, nr, gen,
					md->leaf_generation + first, &why);
		if (r)
			bad(rd, HYBRID_FOUND_INDEX, "index block", nr, r, why);
	}
	for (k = first; k < first + n; k++)
		if (r)
			md->leaf_state[k] = HYBRID_LEAF_BAD;
		else if (md->leaf_generation[k])
			md->leaf_state[k] = HYBRID_LEAF_GOOD;
}

static void read_indexes(struct reader *rd)
{
	u32 nr;

	for (nr = 0; nr < rd->md->g->nr_index; nr++)
		if (rd->md->index_generation[nr])
			read_index(rd, nr);
}

/* ---- leaves ---------------------------------------------------------------- */

typedef void (*leaf_fn)(struct reader *rd, u32 nr, const void *block);

static const char *leaf_name(u32 nr)
{
	return nr < HYBRID_VOLUME_LEAVES ? "volume leaf" : "map leaf";
}

/* A run could not be read at once: reads its leaves in use one by one. */
static void read_singly(struct reader *rd, u32 first, u32 n, u32 area, leaf_fn leaf)
{
	struct hybrid_metadata *md = rd->md;
	u32 nr;
	int r;

	for (nr = first; nr < first + n; nr++) {
		u16 gen = md->leaf_generation[nr];

		if (!gen || (gen & 1) != area)
			continue;
		r = read_blocks(rd, hybrid_leaf_sector(md->g, nr, area), 1, rd->mem);
		if (r) {
			unreadable(rd, leaf_name(nr), nr, r);
			md->leaf_state[nr] = HYBRID_LEAF_BAD;
		} else {
			leaf(rd, nr, rd->mem);
		}
	}
}

/* The leaves of one area among @n: from the first to the last in one read. */
static void read_run(struct reader *rd, u32 first, u32 n, u32 area, leaf_fn leaf)
{
	struct hybrid_metadata *md = rd->md;
	u32 k, from = n, to = 0;

	for (k = 0; k < n; k++) {
		u16 gen = md->leaf_generation[first + k];

		if (!gen || (gen & 1) != area)
			continue;
		from = min(from, k);
		to = k + 1;
	}
	if (from >= to)
		return;
	if (read_blocks(rd, hybrid_leaf_sector(md->g, first + from, area), to - from, rd->mem)) {
		read_singly(rd, first + from, to - from, area, leaf);
		return;
	}
	for (k = from; k < to; k++) {
		u16 gen = md->leaf_generation[first + k];

		if (gen && (gen & 1) == area)
			leaf(rd, first + k, rd->mem + (k - from) * HYBRID_META_BLOCK_SIZE);
	}
}

static void read_leaves(struct reader *rd, u32 first, u32 end, leaf_fn leaf)
{
	u32 n;

	for (; first < end; first += n) {
		n = min_t(u32, end - first, READ_BLOCKS);
		read_run(rd, first, n, 0, leaf);
		read_run(rd, first, n, 1, leaf);
	}
}

/* ---- volumes --------------------------------------------------------------- */

static void load_volumes(struct reader *rd, u32 nr, const void *block)
{
	struct hybrid_volume_info info[HYBRID_VOLUMES_PER_LEAF];
	struct hybrid_metadata *md = rd->md;
	u32 id = nr * HYBRID_VOLUMES_PER_LEAF, k;
	const char *why = NULL;
	int r;

	r = hybrid_volumes_decode(block, &md->id, nr, md->leaf_generation[nr], info, &why);
	if (r) {
		md->leaf_state[nr] = HYBRID_LEAF_BAD;
		bad(rd, HYBRID_FOUND_VOLUMES, "volume leaf", nr, r, why);
		return;
	}
	for (k = 0; k < HYBRID_VOLUMES_PER_LEAF && id + k < HYBRID_MAX_VOLUMES; k++)
		md->volume[id + k] = info[k];
}

static void find_twins(struct reader *rd, u32 id)
{
	const struct hybrid_volume_info *v = rd->md->volume, *a = &v[id], *b;
	const char *what;

	for (b = v; b < a; b++) {
		what = NULL;
		if (b->state == HYBRID_VOLUME_FREE)
			continue;
		if (!memcmp(a->uuid, b->uuid, HYBRID_UUID_SIZE))
			what = "UUID";
		else if (!memcmp(a->member_uuid, b->member_uuid, HYBRID_UUID_SIZE))
			what = "origin";
		else if (!strncmp(a->name, b->name, HYBRID_NAME_SIZE))
			what = "name";
		if (what)
			hybrid_found(rd->f, HYBRID_FOUND_VOLUME_TWICE,
				     hybrid_where(rd->f, "volume", id),
				     "it has the %s of volume %u", what, (u32)(b - v));
	}
}

static void check_volume(struct reader *rd, u32 id)
{
	struct hybrid_metadata *md = rd->md;
	struct hybrid_volume_info *info = &md->volume[id];
	const char *where = hybrid_where(rd->f, "volume", id);

	if (info->instance >= md->root.next_instance)
		hybrid_found(rd->f, HYBRID_FOUND_VOLUME_INSTANCE, where,
			     "%s: instance %u was never assigned, the next one is %u", info->name,
			     info->instance, md->root.next_instance);
	if (info->state == HYBRID_VOLUME_TOMBSTONE)
		hybrid_found(rd->f, HYBRID_FOUND_VOLUME_TOMBSTONE, where, "%s: detached",
			     info->name);
	else if (info->nonce_old)
		hybrid_found(rd->f, HYBRID_FOUND_VOLUME_NONCE, where,
			     "%s: two nonces are valid", info->name);
	find_twins(rd, id);
}

static int compare_instances(const void *a, const void *b)
{
	const struct hybrid_instance *x = a, *y = b;

	return x->instance < y->instance ? -1 : x->instance > y->instance;
}

void hybrid_metadata_index(struct hybrid_metadata *md)
{
	struct hybrid_instance *pair = md->by_instance;
	u32 id;

	md->nr_active = 0;
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		if (md->volume[id].state == HYBRID_VOLUME_ACTIVE)
			pair[md->nr_active++] = (struct hybrid_instance) {
				md->volume[id].instance, id };
	qsort(pair, md->nr_active, sizeof(*pair), compare_instances);
}

static void index_instances(struct reader *rd)
{
	const struct hybrid_instance *pair = rd->md->by_instance;
	u32 id, k;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		if (rd->md->volume[id].state != HYBRID_VOLUME_FREE)
			check_volume(rd, id);
	hybrid_metadata_index(rd->md);
	for (k = 1; k < rd->md->nr_active; k++)
		if (pair[k].instance == pair[k - 1].instance)
			hybrid_found(rd->f, HYBRID_FOUND_VOLUME_SHARED,
				     hybrid_where(rd->f, "volume", pair[k].volume),
				     "it has instance %u, and so has volume %u", pair[k].instance,
				     pair[k - 1].volume);
}

int hybrid_metadata_volume_of(const struct hybrid_metadata *md, u32 instance)
{
	struct hybrid_instance want = { .instance = instance }, *found;

	found = bsearch(&want, md->by_instance, md->nr_active, sizeof(want), compare_instances);
	return found ? (int)found->volume : -1;
}

int hybrid_metadata_inplace(const struct hybrid_metadata *md, const struct hybrid_device *dev)
{
	const struct hybrid_volume_info *v;
	struct hybrid_identities ids;
	int found = -1;
	u32 id;

	hybrid_device_identities(dev, &ids);
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		v = &md->volume[id];
		if (v->state == HYBRID_VOLUME_ACTIVE && v->flags & HYBRID_VOLUME_INPLACE &&
		    hybrid_identities_have(&ids, v->member_uuid)) {
			if (found >= 0)
				return -1;
			found = id;
		}
	}
	return found;
}

/* Neighbours are of one volume as a rule. */
static int volume_of(struct reader *rd, u32 instance)
{
	if (instance != rd->last_instance) {
		rd->last_instance = instance;
		rd->last_volume = hybrid_metadata_volume_of(rd->md, instance);
	}
	return rd->last_volume;
}

/* ---- the map ---------------------------------------------------------------- */

/* The head of the hash chain of @key in @set. */
static u16 *hash_link(struct reader *rd, u32 set, u64 key)
{
	return &rd->bucket[(size_t)set * rd->map.nr_buckets + set_hash(&rd->map, key)];
}

static void unhash(struct reader *rd, u32 set, u32 i)
{
	size_t first = (size_t)set * rd->map.set_size;
	struct hybrid_metadata *md = rd->md;
	u64 key = hybrid_key(volume_of(rd, md->instance[first + i]),
			     to_oblock(md->oblock[first + i]));
	u16 *link = hash_link(rd, set, key);

	while (*link != i + 1)
		link = &rd->next[first + *link - 1];
	*link = rd->next[first + i];
}

/* Block @i becomes the one that holds its block of the volume. */
static void claim(struct reader *rd, u32 set, u32 i, u64 key)
{
	size_t first = (size_t)set * rd->map.set_size;
	struct hybrid_metadata *md = rd->md;
	u64 oblock = md->oblock[first + i];
	u32 instance = md->instance[first + i];
	u16 *link = hash_link(rd, set, key), k;

	for (k = *link; k; k = rd->next[first + k - 1]) {
		if (md->oblock[first + k - 1] != oblock ||
		    md->instance[first + k - 1] != instance)
			continue;
		unhash(rd, set, k - 1);
		md->block_state[first + k - 1] = HYBRID_BLOCK_CLAIMED;
		break;
	}
	rd->next[first + i] = *link;
	*link = i + 1;
	md->block_state[first + i] = HYBRID_BLOCK_LIVE;
}

static void bad_block(struct reader *rd, size_t b, enum hybrid_finding_id id, const char *what)
{
	struct hybrid_metadata *md = rd->md;

	md->block_state[b] = HYBRID_BLOCK_BAD;
	hybrid_found(rd->f, id, hybrid_where(rd->f, "block", b),
		     "%s %llu: instance %u, origin block %llu: %s", rd->source,
		     (unsigned long long)rd->source_nr, md->instance[b],
		     (unsigned long long)md->oblock[b], what);
}

/* Sets block @i as a leaf or a record describes it. */
static void load_block(struct reader *rd, u32 set, u32 i, u32 instance, u64 oblock, u64 valid,
		       u64 dirty)
{
	struct hybrid_metadata *md = rd->md;
	size_t b = (size_t)set * rd->map.set_size + i;
	const struct hybrid_volume_info *info;
	int volume;
	u64 key;

	if (md->block_state[b] == HYBRID_BLOCK_LIVE)
		unhash(rd, set, i);
	md->instance[b] = instance;
	md->oblock[b] = oblock;
	md->valid[b] = valid;
	md->dirty[b] = dirty;
	md->block_state[b] = HYBRID_BLOCK_FREE;
	if (!instance)
		return;
	volume = volume_of(rd, instance);
	if (instance >= md->root.next_instance) {
		bad_block(rd, b, HYBRID_FOUND_BLOCK_INSTANCE, "it was never assigned");
		return;
	}
	if (volume < 0) {
		md->block_state[b] = HYBRID_BLOCK_DEAD;
		return;
	}
	info = &md->volume[volume];
	key = hybrid_key(volume, to_oblock(oblock));
	if (oblock > (hybrid_volume_reach(info) - 1) >> md->g->block_shift)
		bad_block(rd, b, HYBRID_FOUND_BLOCK_BEYOND, "the volume ends before it");
	else if (hybrid_map_set_of(&rd->map, key) != set)
		bad_block(rd, b, HYBRID_FOUND_BLOCK_SET, "it belongs to another set");
	else
		claim(rd, set, i, key);
}

static void load_map(struct reader *rd, u32 nr, const void *block)
{
	const struct hybrid_map_leaf *leaf = block;
	struct hybrid_metadata *md = rd->md;
	u32 set = (nr - HYBRID_VOLUME_LEAVES) / HYBRID_LEAVES_PER_SET;
	u32 first = (nr - HYBRID_VOLUME_LEAVES) % HYBRID_LEAVES_PER_SET * HYBRID_MAP_LEAF_BLOCKS;
	u32 size = rd->map.set_size, k;
	u32 count = first < size ? min_t(u32, size - first, HYBRID_MAP_LEAF_BLOCKS) : 0;
	const char *why = NULL;
	int r;

	r = hybrid_map_check(leaf, md->g, &md->id, nr, md->leaf_generation[nr], count, &why);
	if (r) {
		md->leaf_state[nr] = HYBRID_LEAF_BAD;
		bad(rd, HYBRID_FOUND_MAP, "map leaf", nr, r, why);
		return;
	}
	rd->source = "map leaf";
	rd->source_nr = nr;
	md->open[set] |= (u64)le16_to_cpu(leaf->open_regions) << first / HYBRID_REGION_BLOCKS;
	for (k = 0; k < count; k++) {
		if (!leaf->instance[k])
			continue;
		load_block(rd, set, first + k, le32_to_cpu(leaf->instance[k]),
			   le64_to_cpu(leaf->oblock[k]), le64_to_cpu(leaf->valid[k]),
			   le64_to_cpu(leaf->dirty[k]));
		md->hint[(size_t)set * size + first + k] = leaf->hint[k];
	}
}

/* ---- the journal ------------------------------------------------------------- */

/*
 * Reads blocks of the journal, or of the ring of intents behind it.  Entries are small, reads large:
 * the window runs ahead, up to the end of the ring.  @mem need not be aligned.
 */
static int read_ring(void *context, u64 sector, u32 blocks, void *mem)
{
	struct reader *rd = context;
	const struct hybrid_geometry *g = rd->md->g;
	u64 end = sector < g->intent_sector ? g->intent_sector : g->intent_sector +
		  (u64)g->intent_blocks * HYBRID_META_BLOCK_SECTORS;
	u64 at = (sector - rd->window_sector) / HYBRID_META_BLOCK_SECTORS;

	if (sector < rd->window_sector || at + blocks > rd->window_blocks) {
		u32 n = min_t(u64, WINDOW_BLOCKS, (end - sector) / HYBRID_META_BLOCK_SECTORS);
		int r = read_blocks(rd, sector, n, rd->window);

		/* The blocks asked for may be good, though not all blocks behind them */
		if (r && n > blocks) {
			n = blocks;
			r = read_blocks(rd, sector, n, rd->window);
		}
		rd->window_sector = sector;
		rd->window_blocks = r ? 0 : n;
		if (r)
			return r;
		at = 0;
	}
	memcpy(mem, rd->window + at * HYBRID_META_BLOCK_SIZE,
	       (size_t)blocks * HYBRID_META_BLOCK_SIZE);
	return 0;
}

static int replay_apply(void *context, const struct hybrid_record *r)
{
	struct reader *rd = context;
	u32 where = le32_to_cpu(r->where), size = rd->map.set_size;

	rd->source_nr = rd->md->journal_records++;
	if (le32_to_cpu(r->type) == HYBRID_RECORD_REGIONS)
		rd->md->open[where] = le64_to_cpu(r->valid);
	else
		load_block(rd, where / size, where % size, le32_to_cpu(r->instance),
			   le64_to_cpu(r->oblock), le64_to_cpu(r->valid),
			   le64_to_cpu(r->dirty));
	return 0;
}

static void bad_journal(struct reader *rd, u64 head, int r, const char *why)
{
	const char *where = hybrid_where(rd->f, "journal block", head);

	switch (r) {
	case -EINVAL:
		bad(rd, HYBRID_FOUND_JOURNAL_ENTRY, "journal block", head, r, why);
		break;
	case -ENODATA:
		hybrid_found(rd->f, HYBRID_FOUND_JOURNAL_SHORT, where,
			     "there is no entry, but the root was written after journal block %llu",
			     (unsigned long long)rd->md->root.journal_head);
		break;
	case -EBADMSG:
		hybrid_found(rd->f, HYBRID_FOUND_JOURNAL_GAP, where, "%s", why);
		break;
	case -ESTALE:
		hybrid_found(rd->f, HYBRID_FOUND_JOURNAL_NEWER, where, "%s", why);
		break;
	default:
		unreadable(rd, "journal block", head, r);
	}
}

static int read_journal(struct reader *rd)
{
	struct hybrid_metadata *md = rd->md;
	struct hybrid_journal j;
	const char *why = NULL;
	int r;

	if (hybrid_journal_create(&j, md->g))
		return hybrid_nomem();
	j.tail = md->root.journal_tail;
	j.intent_tail = md->root.intent_tail;
	rd->source = "journal record";
	r = hybrid_journal_replay(&j, &md->id, md->root.journal_head, read_ring, replay_apply,
				  rd, &why);
	if (r)
		bad_journal(rd, j.head, r, why);
	md->journal_head = j.head;
	md->intent_tail = j.intent_tail;
	if (hybrid_number_ends(j.intent_tail) && !hybrid_number_ends(md->root.intent_tail))
		hybrid_found(rd->f, HYBRID_FOUND_NUMBERS, "journal", "the intents go on from %llu",
			     (unsigned long long)j.intent_tail);
	hybrid_journal_destroy(&j);
	return 0;
}

/* ---- intents ------------------------------------------------------------------ */

static int intent_data_read(void *context, u64 sector, u32 blocks, void *mem)
{
	return read_blocks(context, sector, blocks, mem);
}

/* The block that holds the block of @key, as index + 1; 0: none. */
static u16 find_claim(struct reader *rd, u32 set, u64 key)
{
	size_t first = (size_t)set * rd->map.set_size;
	const struct hybrid_metadata *md = rd->md;
	u16 k;

	for (k = *hash_link(rd, set, key); k; k = rd->next[first + k - 1])
		if (hybrid_key(volume_of(rd, md->instance[first + k - 1]),
			       to_oblock(md->oblock[first + k - 1])) == key)
			break;
	return k;
}

static int bad_intent(struct reader *rd, const struct hybrid_intent_record *r,
		      enum hybrid_finding_id id, const char *what)
{
	hybrid_found(rd->f, id, hybrid_where(rd->f, "block", le32_to_cpu(r->where)),
		     "intent: instance %u, origin block %llu: %s", le32_to_cpu(r->instance),
		     (unsigned long long)le64_to_cpu(r->oblock), what);
	return 0;
}

/* Does block @b count?  Granules that are clean in an open region do not. */
static bool is_taken(const struct reader *rd, u32 b)
{
	const struct hybrid_metadata *md = rd->md;
	u32 size = rd->map.set_size;
	bool open = md->open[b / size] >> b % size / HYBRID_REGION_BLOCKS & 1;

	return md->block_state[b] == HYBRID_BLOCK_LIVE && (open ? md->dirty[b] : md->valid[b]);
}

/* Does the record agree with the map?  If not, a finding has the reason. */
static bool intent_fits(struct reader *rd, const struct hybrid_intent_record *r, int volume)
{
	const struct hybrid_volume_info *info = &rd->md->volume[volume];
	u32 size = rd->map.set_size, b = le32_to_cpu(r->where);
	u64 oblock = le64_to_cpu(r->oblock), key = hybrid_key(volume, to_oblock(oblock));
	u16 holder;

	if (oblock > (hybrid_volume_reach(info) - 1) >> rd->md->g->block_shift ||
	    hybrid_intent_end(rd->md->g, r) > hybrid_volume_reach(info)) {
		bad_intent(rd, r, HYBRID_FOUND_INTENT, "the volume ends before it");
		return false;
	}
	if (hybrid_map_set_of(&rd->map, key) != b / size) {
		bad_intent(rd, r, HYBRID_FOUND_INTENT, "it belongs to another set");
		return false;
	}
	holder = find_claim(rd, b / size, key);
	if (holder && !is_taken(rd, b / size * size + holder - 1)) {
		/* It is forgotten before intents are looked at. */
		load_block(rd, b / size, holder - 1, 0, 0, 0, 0);
		holder = 0;
	}
	if (holder ? holder != b % size + 1 : is_taken(rd, b)) {
		bad_intent(rd, r, HYBRID_FOUND_INTENT, "the map says that it is another's");
		return false;
	}
	return true;
}

/* As load_intent() in engine-load.c, but clean granules of open regions are not forgotten yet. */
static int load_intent(void *context, const struct hybrid_intent_record *r, bool flushed)
{
	struct reader *rd = context;
	struct hybrid_metadata *md = rd->md;
	u32 b = le32_to_cpu(r->where), size = rd->map.set_size, instance = le32_to_cpu(r->instance);
	u64 granules = le64_to_cpu(r->granules), region = 1ULL << b % size / HYBRID_REGION_BLOCKS;
	int volume = volume_of(rd, instance), found;
	u64 valid, dirty;

	if (instance >= md->root.next_instance)
		return bad_intent(rd, r, HYBRID_FOUND_INTENT, "it was never assigned");
	if (volume < 0 || !intent_fits(rd, r, volume))
		return 0;
	valid = md->block_state[b] == HYBRID_BLOCK_LIVE ? md->valid[b] : 0;
	dirty = md->block_state[b] == HYBRID_BLOCK_LIVE ? md->dirty[b] : 0;
	if ((md->open[b / size] & region ? dirty : valid) & granules)
		return 0;
	found = hybrid_intent_read_data(md->g, &md->id, r, intent_data_read, rd,
					rd->window);
	rd->window_blocks = 0;
	if (found < 0)
		return bad_intent(rd, r, HYBRID_FOUND_INTENT_DATA, strerror(-found));
	if (!found && flushed)
		return bad_intent(rd, r, HYBRID_FOUND_INTENT_LOST, "its data was flushed, and is lost");
	if (!found)
		return 0;
	md->intent_records++;
	rd->source = "intent";
	load_block(rd, b / size, b % size, instance, le64_to_cpu(r->oblock), valid | granules,
		   dirty | granules);
	return 0;
}

static int read_intents(struct reader *rd)
{
	static const u8 finding[] = {
		[EINVAL] = HYBRID_FOUND_INTENT, [ENODATA] = HYBRID_FOUND_INTENT_LOST,
		[ESTALE] = HYBRID_FOUND_INTENT_NEWER,
	};
	struct hybrid_metadata *md = rd->md;
	const char *why = NULL;
	int r;

	r = hybrid_intents_replay(md->g, &md->id, &md->intent_tail, read_ring, load_intent, rd,
				  &why);
	if (r == -ENOMEM)
		return hybrid_nomem();
	if (r == -EINVAL || r == -ENODATA || r == -ESTALE)
		bad(rd, finding[-r], "intent", md->intent_tail, r, why);
	else if (r)
		unreadable(rd, "intent", md->intent_tail, r);
	return 0;
}

/* Without a replay: does the journal begin with an entry, if it has any? */
static int read_journal_first(struct reader *rd)
{
	struct hybrid_metadata *md = rd->md;
	struct hybrid_journal_entry *entry = rd->mem;
	u32 limit = HYBRID_JOURNAL_ENTRY_LIMIT(md->g->journal_blocks);
	u64 n = hybrid_journal_place(md->g, md->root.journal_tail, limit);
	const char *why = NULL;
	int r, blocks;

	if (!md->roots || md->root.journal_tail == md->root.journal_head)
		return 0;
	r = read_blocks(rd, hybrid_journal_sector(md->g, n), limit, rd->mem);
	if (!r) {
		blocks = hybrid_entry_peek(&entry->header, &md->id, n);
		r = -ENODATA;
		if (blocks > 0 && (u32)blocks <= limit)
			r = hybrid_entry_check(entry, md->g, blocks, &why);
		r = r == -EBADMSG ? -ENODATA : r;
	}
	if (r < 0)
		bad_journal(rd, n, r, why);
	return 0;
}

/* ---- the sum of it ------------------------------------------------------------ */

/* The first block from @b on that is not free.  A large cache may be nearly empty. */
static size_t next_used(const struct hybrid_metadata *md, size_t b)
{
	size_t end = md->g->nr_blocks;
	u64 eight;

	while (b < end && !md->block_state[b]) {
		eight = 1;
		if (b + sizeof(eight) <= end)
			memcpy(&eight, md->block_state + b, sizeof(eight));
		b += eight ? 1 : sizeof(eight);
	}
	return b;
}

void hybrid_metadata_count(struct hybrid_metadata *md)
{
	struct hybrid_volume_usage *u = NULL;
	u32 instance = 0;
	size_t b;

	memset(md->usage, 0, HYBRID_MAX_VOLUMES * sizeof(*md->usage));
	for (b = next_used(md, 0); b < md->g->nr_blocks; b = next_used(md, b + 1)) {
		if (md->block_state[b] != HYBRID_BLOCK_LIVE)
			continue;
		if (!u || md->instance[b] != instance) {
			instance = md->instance[b];
			u = &md->usage[hybrid_metadata_volume_of(md, instance)];
		}
		u->blocks++;
		u->dirty_blocks += !!md->dirty[b];
		u->dirty_granules += hweight64(md->dirty[b]);
	}
}

static void find_block(struct reader *rd, size_t b)
{
	struct hybrid_metadata *md = rd->md;

	if (md->block_state[b] == HYBRID_BLOCK_CLAIMED)
		hybrid_found(rd->f, HYBRID_FOUND_BLOCK_TWICE, hybrid_where(rd->f, "block", b),
			     "another cache block claims block %llu of volume %d, too",
			     (unsigned long long)md->oblock[b],
			     volume_of(rd, md->instance[b]));
	else if (md->block_state[b] == HYBRID_BLOCK_DEAD)
		hybrid_found(rd->f, HYBRID_FOUND_BLOCK_DEAD, hybrid_where(rd->f, "block", b),
			     "no volume has instance %u", md->instance[b]);
}

static void sum_up_blocks(struct reader *rd)
{
	struct hybrid_metadata *md = rd->md;
	size_t b;
	u32 set;

	hybrid_metadata_count(md);
	for (b = next_used(md, 0); b < md->g->nr_blocks; b = next_used(md, b + 1))
		find_block(rd, b);
	for (set = 0; set < md->g->nr_sets; set++)
		md->open_regions += hweight64(md->open[set]);
}

static void sum_up(struct reader *rd)
{
	struct hybrid_metadata *md = rd->md;
	bool clean = md->root.flags & HYBRID_ROOT_CLEAN;

	if (!md->roots)
		return;
	if (md->block_state)
		sum_up_blocks(rd);
	if (clean && (md->open_regions || md->journal_records || md->intent_records))
		hybrid_found(rd->f, HYBRID_FOUND_CLEAN_OPEN, NULL,
			     "%llu regions are open, %llu records are in the journal, %llu in intents",
			     (unsigned long long)md->open_regions,
			     (unsigned long long)md->journal_records,
			     (unsigned long long)md->intent_records);
	if (!clean && !md->open)
		hybrid_found(rd->f, HYBRID_FOUND_NOT_CLEAN, NULL, "there is no clean mark");
	else if (!clean)
		hybrid_found(rd->f, HYBRID_FOUND_NOT_CLEAN, NULL,
			     "%llu records of the journal and %llu of intents to replay, %llu regions are open",
			     (unsigned long long)md->journal_records,
			     (unsigned long long)md->intent_records,
			     (unsigned long long)md->open_regions);
}

/* Zeroed memory that is not touched costs nothing: most of a large cache may be empty. */
int hybrid_metadata_alloc(struct hybrid_metadata *md)
{
	const struct hybrid_geometry *g = &md->sb.geometry;

	md->g = g;
	memcpy(md->id.pool_uuid, md->sb.pool_uuid, sizeof(md->id.pool_uuid));
	if (!md->index_generation)
		md->index_generation = calloc(g->nr_index, sizeof(*md->index_generation));
	md->leaf_generation = calloc(g->nr_leaves, sizeof(*md->leaf_generation));
	md->leaf_state = calloc(g->nr_leaves, sizeof(*md->leaf_state));
	md->volume = calloc(HYBRID_MAX_VOLUMES, sizeof(*md->volume));
	md->usage = calloc(HYBRID_MAX_VOLUMES, sizeof(*md->usage));
	md->by_instance = calloc(HYBRID_MAX_VOLUMES, sizeof(*md->by_instance));
	md->oblock = calloc(g->nr_blocks, sizeof(*md->oblock));
	md->valid = calloc(g->nr_blocks, sizeof(*md->valid));
	md->dirty = calloc(g->nr_blocks, sizeof(*md->dirty));
	md->instance = calloc(g->nr_blocks, sizeof(*md->instance));
	md->hint = calloc(g->nr_blocks, sizeof(*md->hint));
	md->block_state = calloc(g->nr_blocks, sizeof(*md->block_state));
	md->open = calloc(g->nr_sets, sizeof(*md->open));
	if (!md->index_generation || !md->leaf_generation || !md->leaf_state || !md->volume ||
	    !md->usage || !md->by_instance || !md->oblock || !md->valid || !md->dirty ||
	    !md->instance || !md->hint || !md->block_state || !md->open)
		return hybrid_nomem();
	return 0;
}

static int allocate(struct reader *rd)
{
	const struct hybrid_geometry *g = rd->md->g;

	rd->map.g = g;
	rd->map.nr_sets = g->nr_sets;
	rd->map.set_size = g->set_size;
	rd->map.nr_buckets = roundup_pow_of_two(max(g->set_size / 2, 1U));
	rd->bucket = calloc((size_t)g->nr_sets * rd->map.nr_buckets, sizeof(*rd->bucket));
	rd->next = calloc(g->nr_blocks, sizeof(*rd->next));
	rd->window = hybrid_buffer((size_t)WINDOW_BLOCKS * HYBRID_META_BLOCK_SIZE);
	if (!rd->bucket || !rd->next || !rd->window)
		return hybrid_nomem();
	return hybrid_metadata_alloc(rd->md);
}

static int read_head(struct reader *rd, const struct hybrid_sb *sb)
{
	struct hybrid_metadata *md = rd->md;

	md->sb = *sb;
	md->g = &md->sb.geometry;
	memcpy(md->id.pool_uuid, md->sb.pool_uuid, sizeof(md->id.pool_uuid));
	return read_roots(rd);
}

static int read_superblocks(struct reader *rd)
{
	struct hybrid_metadata *md = rd->md;
	struct hybrid_superblocks s;
	int r;

	r = hybrid_superblocks_read(rd->dev, rd->f, &s);
	md->sb = s.sb;
	md->copies = s.good;
	if (r)
		return r;
	if (s.sb.role == HYBRID_ROLE_CACHE)
		return read_head(rd, &s.sb);
	hybrid_found(rd->f, HYBRID_FOUND_SB_NONE, NULL, "it is an origin, not a cache device");
	return HYBRID_BADDEV;
}

static int read_tree(struct reader *rd)
{
	int r = allocate(rd);

	if (r || !rd->md->roots)
		return r;
	read_indexes(rd);
	read_leaves(rd, 0, HYBRID_VOLUME_LEAVES, load_volumes);
	index_instances(rd);
	read_leaves(rd, HYBRID_VOLUME_LEAVES, rd->md->g->nr_leaves, load_map);
	r = read_journal(rd);
	return r ? r : read_intents(rd);
}

static int read_all(struct hybrid_metadata *md, const struct hybrid_device *dev,
		    struct hybrid_findings *f, const struct hybrid_sb *sb, bool head_only)
{
	struct reader rd = { .md = md, .dev = dev, .f = f, .last_volume = -1 };
	int r;

	memset(md, 0, sizeof(*md));
	f->device = dev->path;
	rd.mem = hybrid_buffer((size_t)READ_BLOCKS * HYBRID_META_BLOCK_SIZE);
	r = rd.mem ? 0 : hybrid_nomem();
	if (!r)
		r = sb ? read_head(&rd, sb) : read_superblocks(&rd);
	if (!r)
		r = head_only ? read_journal_first(&rd) : read_tree(&rd);
	if (!r)
		sum_up(&rd);
	free(rd.mem);
	free(rd.window);
	free(rd.bucket);
	free(rd.next);
	return r;
}

int hybrid_metadata_read_head(struct hybrid_metadata *md, const struct hybrid_device *dev,
			      struct hybrid_findings *f)
{
	return read_all(md, dev, f, NULL, true);
}

int hybrid_metadata_read(struct hybrid_metadata *md, const struct hybrid_device *dev,
			 struct hybrid_findings *f)
{
	return read_all(md, dev, f, NULL, false);
}

int hybrid_metadata_read_as(struct hybrid_metadata *md, const struct hybrid_device *dev,
			    struct hybrid_findings *f, const struct hybrid_sb *sb)
{
	return read_all(md, dev, f, sb, false);
}

void hybrid_metadata_free(struct hybrid_metadata *md)
{
	free(md->index_generation);
	free(md->leaf_generation);
	free(md->leaf_state);
	free(md->volume);
	free(md->usage);
	free(md->by_instance);
	free(md->oblock);
	free(md->valid);
	free(md->dirty);
	free(md->instance);
	free(md->hint);
	free(md->block_state);
	free(md->open);
	memset(md, 0, sizeof(*md));
}

/* ---- which volumes are meant --------------------------------------------------- */

bool hybrid_volume_named(const struct hybrid_volume_info *v, const char *list)
{
	const char *p;
	size_t len = strlen(v->name);

	if (!list)
		return true;
	for (p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (!strncmp(p, v->name, len) && (p[len] == ',' || !p[len]))
			return true;
	return false;
}

char *hybrid_volumes_dirty(const struct hybrid_metadata *md, const char *list)
{
	const char *separator = "";
	char *text = NULL, size[32];
	size_t len;
	FILE *out;
	u32 id;

	out = open_memstream(&text, &len);
	for (id = 0; out && id < HYBRID_MAX_VOLUMES; id++) {
		const struct hybrid_volume_info *v = &md->volume[id];
		u64 granules = md->usage[id].dirty_granules;

		if (v->state != HYBRID_VOLUME_ACTIVE || !granules || hybrid_volume_named(v, list))
			continue;
		fprintf(out, "%s%s (%s)", separator, v->name,
			hybrid_size_text(size, granules * md->g->granule_sectors * 512));
		separator = ", ";
	}
	return out && !fclose(out) ? text : NULL;
}

int hybrid_volumes_named(const struct hybrid_metadata *md, const char *list)
{
	char *copy, *name, *rest;
	bool found;
	int r = 0;
	u32 id;

	if (!list)
		return 0;
	copy = strdup(list);
	if (!copy)
		return hybrid_nomem();
	for (rest = copy; !r && (name = strsep(&rest, ","));) {
		for (found = false, id = 0; id < HYBRID_MAX_VOLUMES; id++)
			found |= md->volume[id].state != HYBRID_VOLUME_FREE &&
				 !strcmp(md->volume[id].name, name);
		if (!*name)
			r = hybrid_fail(HYBRID_USAGE, "give names of volumes: --volume a,b",
					"--volume '%s': a name is empty", list);
		else if (!found)
			r = hybrid_fail(HYBRID_BADDEV, "see hybridctl check",
					"pool %s has no volume %s", md->sb.name, name);
	}
	free(copy);
	return r;
}
