// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * hybridctl repair: writes the certain part of damaged metadata (salvage.h) anew.
 *
 * In place: it writes the new tree to blocks that the current root does not name, then
 * the new root over the older root, then the superblocks.  Until the new root is durable,
 * all is as it was.  Journal and intents stay: the new root begins a lap behind their ends.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "errors.h"
#include "map.h"
#include "members.h"
#include "metadata-write.h"
#include "salvage.h"

#define FIRST_SEQUENCE		2

struct repair {
	const struct command_line *cl;
	struct hybrid_device dev, out;
	struct hybrid_findings f;
	struct hybrid_salvage s;
	struct hybrid_ranges stale;
	/* With --output */
	struct hybrid_metadata new;
	u32 *source;			/* by new cache block: the old one + 1 */
	u64 no_room;			/* clean blocks that were left behind */
};

/* ---- superblocks ------------------------------------------------------- */

/* The bad copy first: the other one stays whole meanwhile. */
static int write_superblocks(const struct hybrid_device *dev, const struct hybrid_sb *sb,
			     u32 copies)
{
	struct hybrid_writer w;
	u32 k, copy;
	int r;

	r = hybrid_writer_begin(&w, dev);
	for (k = 0; !r && k < 2; k++) {
		u64 sector;

		copy = (copies & 1) ^ k;
		sector = hybrid_sb_sector(sb->member_sectors, copy);
		hybrid_sb_encode(hybrid_writer_next(&w), sb, sector);
		hybrid_writer_put(&w, sector);
		hybrid_writer_flush(&w);
	}
	return r ? r : hybrid_writer_end(&w);
}

/* ---- in place ---------------------------------------------------------- */

/* Is the block at @sector, apart from its header, the same as @block? */
static bool same_block(const struct hybrid_device *dev, u64 sector, const void *block, void *mem)
{
	const size_t header = sizeof(struct hybrid_block_header);

	return !hybrid_device_read(dev, sector, mem, HYBRID_META_BLOCK_SIZE) &&
	       !memcmp(mem + header, block + header, HYBRID_META_BLOCK_SIZE - header);
}

/* Returns whether the index has to name another generation. */
static bool write_leaf(struct repair *p, struct hybrid_writer *w, u32 nr, void *mem)
{
	struct hybrid_metadata *md = &p->s.md;
	const struct hybrid_geometry *g = md->g;
	u16 named = md->leaf_generation[nr], next = p->s.leaf_next[nr];
	void *block = hybrid_writer_next(w);
	bool used = hybrid_leaf_encode(md, nr, next, block);

	if (p->s.leaf_named[nr] && !used == !named &&
	    (!used || same_block(&p->dev, hybrid_leaf_sector(g, nr, named), block, mem)))
		return false;
	md->leaf_generation[nr] = used ? next : 0;
	if (used)
		hybrid_writer_put(w, hybrid_leaf_sector(g, nr, next));
	return true;
}

static void write_index(struct repair *p, struct hybrid_writer *w, u32 nr, bool changed)
{
	struct hybrid_metadata *md = &p->s.md;
	const u16 *leaf = md->leaf_generation + nr * HYBRID_INDEX_LEAVES;
	u32 k, n = min_t(u32, HYBRID_INDEX_LEAVES, md->g->nr_leaves - nr * HYBRID_INDEX_LEAVES);

	if (p->s.index_named[nr] && !changed)
		return;
	for (k = 0; k < n && !leaf[k]; k++)
		;
	md->index_generation[nr] = k < n ? p->s.index_next[nr] : 0;
	if (k == n)
		return;
	hybrid_index_encode(hybrid_writer_next(w), md->g, &md->id, nr, p->s.index_next[nr], leaf);
	hybrid_writer_put(w, hybrid_index_sector(md->g, nr, p->s.index_next[nr]));
}

static void write_tree(struct repair *p, struct hybrid_writer *w, void *mem)
{
	struct hybrid_metadata *md = &p->s.md;
	bool *changed = calloc(md->g->nr_index, sizeof(*changed));
	u32 nr;

	if (!changed) {
		w->error = -ENOMEM;
		return;
	}
	for (nr = 0; nr < md->g->nr_leaves; nr++)
		changed[nr / HYBRID_INDEX_LEAVES] |= write_leaf(p, w, nr, mem);
	for (nr = 0; nr < md->g->nr_index; nr++)
		write_index(p, w, nr, changed[nr]);
	hybrid_writer_flush(w);
	free(changed);
}

static void write_root(struct repair *p, struct hybrid_writer *w)
{
	struct hybrid_metadata *md = &p->s.md;
	struct hybrid_root_info root = {
		.sequence = md->root.sequence ? md->root.sequence + 1 : FIRST_SEQUENCE,
		.epoch = md->id.epoch,
		.journal_tail = p->s.journal_next,
		.journal_head = p->s.journal_next,
		.intent_tail = p->s.intent_next,
		.next_instance = md->root.next_instance,
		.written_sectors = md->root.written_sectors,
		.read_errors = md->root.read_errors,
		.write_errors = md->root.write_errors,
		.halved_ms = md->root.halved_ms,
	};

	hybrid_root_encode(hybrid_writer_next(w), md->g, &md->id, &root, md->index_generation);
	hybrid_writer_put(w, hybrid_root_sector(md->g, root.sequence));
	hybrid_writer_flush(w);
}

/* Blocks of a ring that cannot be read: the new root needs none of them, and a write may mend them. */
static void mend_ring(struct repair *p, struct hybrid_writer *w, u64 sector, u32 blocks, void *mem)
{
	u32 k;

	for (k = 0; k < blocks; k++, sector += HYBRID_META_BLOCK_SECTORS) {
		if (!hybrid_device_read(&p->dev, sector, mem, HYBRID_META_BLOCK_SIZE))
			continue;
		memset(hybrid_writer_next(w), 0, HYBRID_META_BLOCK_SIZE);
		hybrid_writer_put(w, sector);
	}
	hybrid_writer_flush(w);
}

static int new_epoch(struct hybrid_metadata *md)
{
	if (hybrid_random(&md->id.epoch, sizeof(md->id.epoch)))
		return hybrid_fail(HYBRID_BADDEV, "try again", "no random numbers from the kernel");
	md->root.epoch = md->id.epoch;
	return 0;
}

static int write_in_place(struct repair *p)
{
	const struct hybrid_geometry *g = p->s.md.g;
	struct hybrid_writer w;
	void *mem;
	int r;

	r = hybrid_device_reopen(&p->dev, HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE |
				 HYBRID_OPEN_FILES);
	if (!r)
		r = new_epoch(&p->s.md);
	if (r)
		return r;
	mem = hybrid_buffer(HYBRID_META_BLOCK_SIZE);
	r = mem ? hybrid_writer_begin(&w, &p->dev) : hybrid_nomem();
	if (!r) {
		write_tree(p, &w, mem);
		write_root(p, &w);
		if (p->s.unreadable) {
			mend_ring(p, &w, g->journal_sector, g->journal_blocks, mem);
			mend_ring(p, &w, g->intent_sector, g->intent_blocks, mem);
		}
		r = hybrid_writer_end(&w);
	}
	free(mem);
	return r ? r : write_superblocks(&p->dev, &p->s.md.sb, p->s.md.copies);
}

/* ---- to another device ------------------------------------------------- */

static int plan_new(struct repair *p)
{
	const struct hybrid_geometry *old = p->s.md.g;
	struct hybrid_metadata *new = &p->new;
	const char *why = "";

	new->sb = p->s.md.sb;
	new->sb.member_sectors = p->out.sectors;
	new->sb.sequence = hybrid_number_ends(new->sb.sequence) ? 1 : new->sb.sequence + 1;
	if (hybrid_geometry_init(&new->sb.geometry, p->out.sectors, old->block_sectors,
				 old->journal_blocks, &why) &&
	    hybrid_geometry_init(&new->sb.geometry, p->out.sectors, old->block_sectors, 0, &why))
		return hybrid_fail(HYBRID_BADDEV, "give a larger one",
				   "%s cannot be a cache device: %s", p->out.path, why);
	new->root.next_instance = p->s.md.root.next_instance;
	p->source = calloc(new->sb.geometry.nr_blocks, sizeof(*p->source));
	if (!p->source)
		return hybrid_nomem();
	memcpy(new->sb.pool_uuid, p->s.md.sb.pool_uuid, HYBRID_UUID_SIZE);
	return hybrid_metadata_alloc(new);
}

/* A place for block @b of the old device; false: its set is full. */
static bool place_block(struct repair *p, const struct hybrid_map *map, u16 *used, size_t b)
{
	const struct hybrid_metadata *old = &p->s.md;
	struct hybrid_metadata *new = &p->new;
	int volume = hybrid_metadata_volume_of(old, old->instance[b]);
	u32 set = hybrid_map_set_of(map, hybrid_key(volume, to_oblock(old->oblock[b])));
	size_t to = (size_t)set * map->g->set_size + used[set];

	if (used[set] == map->g->set_size)
		return false;
	used[set]++;
	p->source[to] = b + 1;
	new->instance[to] = old->instance[b];
	new->oblock[to] = old->oblock[b];
	new->valid[to] = old->valid[b];
	new->dirty[to] = old->dirty[b];
	new->hint[to] = old->hint[b];
	return true;
}

/* Dirty blocks first: they must fit. */
static int place_blocks(struct repair *p)
{
	const struct hybrid_metadata *old = &p->s.md;
	struct hybrid_map map = { .g = p->new.g, .nr_sets = p->new.g->nr_sets };
	u16 *used = calloc(map.nr_sets, sizeof(*used));
	u64 dirty = 0;
	int clean;
	size_t b;

	if (!used)
		return hybrid_nomem();
	for (clean = 0; clean < 2; clean++)
		for (b = 0; b < old->g->nr_blocks; b++) {
			if (!old->instance[b] || (old->dirty[b] ? 0 : 1) != clean ||
			    place_block(p, &map, used, b))
				continue;
			if (clean)
				p->no_room++;
			else
				dirty++;
		}
	free(used);
	if (dirty)
		return hybrid_fail(HYBRID_REFUSED, "give a larger device",
				   "%s has no room for %llu dirty blocks", p->out.path,
				   (unsigned long long)dirty);
	memcpy(p->new.volume, old->volume, HYBRID_MAX_VOLUMES * sizeof(*old->volume));
	return 0;
}

/* Granule @i of new block @b cannot be read any more. */
static void lose_granule(struct repair *p, size_t b, u32 i)
{
	const struct hybrid_geometry *g = p->new.g;
	int volume = hybrid_metadata_volume_of(&p->s.md, p->new.instance[b]);

	if (p->new.dirty[b] & BIT_ULL(i))
		hybrid_ranges_add(&p->stale, p->s.md.volume[volume].name,
				  (p->new.oblock[b] << g->block_shift) +
				  ((u64)i << g->granule_shift), g->granule_sectors,
				  "it cannot be read from the cache device");
	p->new.valid[b] &= ~BIT_ULL(i);
	p->new.dirty[b] &= ~BIT_ULL(i);
}

static int copy_block(struct repair *p, size_t b, void *mem)
{
	const struct hybrid_geometry *g = p->new.g;
	u64 from = hybrid_data_sector(p->s.md.g, to_cblock(p->source[b] - 1));
	u64 to = hybrid_data_sector(g, to_cblock(b));
	size_t size = (size_t)g->granule_sectors * 512;
	u32 i, n;
	int r = 0;

	for (i = 0; i < g->granules && !r; i += n) {
		for (n = 0; i + n < g->granules && p->new.valid[b] & BIT_ULL(i + n); n++)
			;
		if (n && hybrid_device_read(&p->dev, from + ((u64)i << g->granule_shift), mem,
					    n * size)) {
			n = 1;
			if (hybrid_device_read(&p->dev, from + ((u64)i << g->granule_shift), mem,
					       size)) {
				lose_granule(p, b, i);
				n = 0;
			}
		}
		if (n)
			r = hybrid_device_write(&p->out, to + ((u64)i << g->granule_shift), mem,
						n * size);
		n = max(n, 1U);
	}
	if (!p->new.valid[b])
		p->new.instance[b] = 0;
	return r;
}

static int copy_data(struct repair *p)
{
	void *mem = hybrid_buffer((size_t)p->new.g->block_sectors * 512);
	int r = mem ? 0 : -ENOMEM;
	size_t b;

	for (b = 0; b < p->new.g->nr_blocks && !r; b++)
		if (p->source[b])
			r = copy_block(p, b, mem);
	free(mem);
	if (!r)
		r = hybrid_device_flush(&p->out);
	return !r ? 0 : hybrid_fail(hybrid_exit_of_errno(-r), "check the device and the kernel log",
				    "%s: cannot write: %s", p->out.path, strerror(-r));
}

static int write_new(struct repair *p)
{
	int r;

	r = hybrid_device_reopen(&p->out, HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE |
				 HYBRID_OPEN_FILES);
	if (!r)
		r = new_epoch(&p->new);
	if (!r)
		r = hybrid_member_wipe(&p->out, &p->new.sb);
	if (!r)
		r = copy_data(p);
	return r ? r : hybrid_metadata_write(&p->out, &p->new);
}

/* ---- the report -------------------------------------------------------- */

static u64 sum(const struct repair *p, bool dirty)
{
	u64 n = 0;
	u32 id;

	for (id = 0; p->s.md.usage && id < HYBRID_MAX_VOLUMES; id++)
		n += dirty ? p->s.md.usage[id].dirty_blocks : p->s.md.usage[id].blocks;
	return n;
}

static bool something_lost(const struct repair *p)
{
	return p->stale.nr || p->s.lost_volumes;
}

/* Prints the ranges from the @first-th on. */
static int print_stale(const struct repair *p, size_t first, const char *what)
{
	struct hybrid_report_options opts = { .unit = 'h' };
	struct hybrid_ranges stale = p->stale;

	if (p->cl->given[OPT_QUIET] || first >= stale.nr)
		return 0;
	stale.list += first;
	stale.nr -= first;
	printf("may be stale: %s (%llu bytes)\n", what,
	       (unsigned long long)hybrid_ranges_bytes(&stale));
	return hybrid_ranges_print(&stale, "may_be_stale", &opts);
}

static int print_text(const struct repair *p)
{
	const struct hybrid_salvage *s = &p->s;

	if (p->cl->given[OPT_QUIET])
		return 0;
	printf("kept: %u volumes; %llu blocks, %llu of them dirty\n", s->md.nr_active,
	       (unsigned long long)sum(p, false), (unsigned long long)sum(p, true));
	printf("dropped: %llu blocks whose state is not certain; the clean data of %llu others\n",
	       (unsigned long long)s->unknown_blocks,
	       (unsigned long long)(s->forgotten_blocks + p->no_room));
	if (s->lost_volumes)
		printf("%llu blocks of the volume table are lost or outdated: volumes may be missing, with all their dirty data\n",
		       (unsigned long long)s->lost_volumes);
	return print_stale(p, 0, "the origins may be older here than the last writes");
}

static void add_u64(struct json_object *o, const char *key, u64 value)
{
	json_object_object_add(o, key, json_object_new_uint64(value));
}

static void print_json(const struct repair *p, bool written)
{
	struct json_object *o = json_object_new_object();

	hybrid_findings_json(&p->f, o);
	json_object_object_add(o, "written", json_object_new_boolean(written));
	add_u64(o, "volumes", p->s.md.nr_active);
	add_u64(o, "kept_blocks", sum(p, false));
	add_u64(o, "kept_dirty_blocks", sum(p, true));
	add_u64(o, "unknown_blocks", p->s.unknown_blocks);
	add_u64(o, "forgotten_blocks", p->s.forgotten_blocks + p->no_room);
	add_u64(o, "lost_volume_leaves", p->s.lost_volumes);
	json_object_object_add(o, "may_be_stale", hybrid_ranges_json(&p->stale));
	if (!p->cl->given[OPT_QUIET])
		puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY |
						    JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(o);
}

/* ---- the command ------------------------------------------------------- */

/* A repair in place would go on from these numbers. */
static bool numbers_end(const struct hybrid_salvage *s)
{
	return hybrid_number_ends(s->md.sb.sequence) || hybrid_number_ends(s->md.root.sequence) ||
	       hybrid_number_ends(s->journal_next) || hybrid_number_ends(s->intent_next);
}

static int plan(struct repair *p)
{
	const char *why;
	int r;

	r = hybrid_salvage_read(&p->s, &p->dev);
	if (r)
		return r;
	if (p->s.md.root.next_instance == U32_MAX)
		return hybrid_fail(HYBRID_BADDEV, NULL,
				   "%s: all instances of volumes are used up", p->dev.path);
	if (!p->cl->value[OPT_OUTPUT] && numbers_end(&p->s))
		return hybrid_fail(HYBRID_REFUSED, "repair it onto another device, with --output",
				   "%s: the numbers of its metadata are used up", p->dev.path);
	if (hybrid_metadata_verify(&p->s.md, &why))
		return hybrid_fail(HYBRID_BADDEV, "please report this",
				   "%s: the salvaged metadata is not valid: %s", p->dev.path, why);
	hybrid_salvage_stale(&p->s, &p->stale);
	return p->stale.nomem ? hybrid_nomem() : 0;
}

static int plan_output(struct repair *p)
{
	const struct hybrid_device *devs[] = { &p->out };
	int r;

	r = hybrid_devices_distinct(p->dev.path, p->cl->value[OPT_OUTPUT], true);
	if (!r)
		r = hybrid_device_open(&p->out, p->cl->value[OPT_OUTPUT],
				       HYBRID_OPEN_EXCLUSIVE | HYBRID_OPEN_FILES);
	if (!r)
		r = hybrid_check_formattable(&p->out);
	if (!r)
		r = plan_new(p);
	if (!r)
		r = place_blocks(p);
	return r ? r : confirm_format(p->cl, devs, 1);
}

static int write_repaired(struct repair *p)
{
	int r;

	if (p->cl->given[OPT_TEST])
		return 0;
	if (!p->cl->value[OPT_OUTPUT])
		r = confirm(p->cl, "The metadata will be replaced by the parts that are kept.");
	else
		r = 0;
	if (!r)
		r = lock_tools();
	if (r)
		return r;
	hold_signals();
	r = p->cl->value[OPT_OUTPUT] ? write_new(p) : write_in_place(p);
	if (!r && !p->cl->given[OPT_JSON])
		hybrid_note("%s is repaired", p->cl->value[OPT_OUTPUT] ? p->out.path : p->dev.path);
	return r;
}

static int repair_pool(struct repair *p)
{
	bool json = p->cl->given[OPT_JSON];
	size_t planned;
	int r;

	r = plan(p);
	if (!r && p->cl->value[OPT_OUTPUT])
		r = plan_output(p);
	if (!r && !json)
		r = print_text(p);
	planned = p->stale.nr;
	if (!r)
		r = write_repaired(p);
	if (!r && !json)
		r = print_stale(p, planned, "the origins may be older here, too");
	if (!r && json)
		print_json(p, !p->cl->given[OPT_TEST]);
	if (!r && something_lost(p))
		r = HYBRID_PARTIAL;
	return r;
}

static int replace_superblocks(struct repair *p, const struct hybrid_superblocks *sbs)
{
	int r;

	r = confirm(p->cl, "A superblock will be replaced.");
	if (!r)
		r = lock_tools();
	if (!r)
		r = hybrid_device_reopen(&p->dev, HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE |
					 HYBRID_OPEN_FILES);
	if (r)
		return r;
	hold_signals();
	return write_superblocks(&p->dev, &sbs->sb, sbs->good);
}

/*
 * The tree is good, or the device is an origin: there are only superblocks to repair.  Two
 * good ones of an origin are both right: one of them may be of the session before.
 */
static int repair_superblocks(struct repair *p, const struct hybrid_superblocks *sbs)
{
	bool differ = sbs->sb.role == HYBRID_ROLE_CACHE && p->f.count[HYBRID_FOUND_SB_DIFFER];
	bool write = sbs->good != 3 || differ, json = p->cl->given[OPT_JSON];
	int r = 0;

	if (!json && write)
		hybrid_note("%s: superblocks: one is written from the other", p->dev.path);
	else if (!json)
		hybrid_note("%s: nothing to repair", p->dev.path);
	write &= !p->cl->given[OPT_TEST];
	if (write)
		r = replace_superblocks(p, sbs);
	if (!r && json)
		print_json(p, write);
	return r;
}

static int repair(struct repair *p)
{
	struct hybrid_superblocks sbs;
	int r;

	p->f.device = p->dev.path;
	r = hybrid_superblocks_read(&p->dev, &p->f, &sbs);
	if (r && r != HYBRID_NOMEM)
		return hybrid_findings_fail(&p->f, "if there is a dump of it: hybridctl restore --force",
					    "%s: no superblock is good: the layout is unknown",
					    p->dev.path);
	if (!r && sbs.sb.role != HYBRID_ROLE_CACHE && p->cl->value[OPT_OUTPUT])
		return hybrid_fail(HYBRID_USAGE, "leave out --output to repair it in place",
				   "%s is not a cache device: it cannot be repaired onto another device with --output",
				   p->dev.path);
	if (!r && sbs.sb.role != HYBRID_ROLE_CACHE)
		return repair_superblocks(p, &sbs);
	hybrid_findings_free(&p->f);
	if (!r)
		r = hybrid_metadata_read(&p->s.md, &p->dev, &p->f);
	if (r)
		return r;
	if (!p->cl->value[OPT_OUTPUT] && hybrid_findings_worst(&p->f) != HYBRID_DAMAGE)
		return repair_superblocks(p, &sbs);
	hybrid_metadata_free(&p->s.md);
	return repair_pool(p);
}

int command_repair(const struct command_line *cl)
{
	const char *path = cl->argc ? cl->argv[0] : cl->value[OPT_INPUT];
	struct repair p = { .cl = cl };
	int r;

	p.dev.fd = -1;
	p.out.fd = -1;
	if (!path || (cl->argc && cl->value[OPT_INPUT]))
		return hybrid_fail(HYBRID_USAGE, "give it once, as CACHE or with --input",
				   "repair needs a cache device");
	r = hybrid_device_open(&p.dev, path, HYBRID_OPEN_EXCLUSIVE | HYBRID_OPEN_FILES);
	if (!r)
		r = hybrid_check_no_part(&p.dev);
	if (!r)
		r = repair(&p);
	hybrid_device_close(&p.dev);
	hybrid_device_close(&p.out);
	hybrid_findings_free(&p.f);
	hybrid_salvage_free(&p.s);
	hybrid_ranges_free(&p.stale);
	hybrid_metadata_free(&p.new);
	free(p.source);
	return r;
}
