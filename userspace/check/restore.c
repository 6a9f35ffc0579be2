// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * hybridctl restore: a dump back onto a device.  The dump is read, and all of it
 * checked, before anything is written.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "dump.h"
#include "errors.h"
#include "map.h"
#include "members.h"
#include "metadata-write.h"

struct restore {
	const struct command_line *cl;
	struct json j;
	struct hybrid_device dev;
	struct hybrid_metadata md;
	struct hybrid_map map;			/* only the fields that hashes need */
	struct hybrid_volume_usage *said;	/* by volume */
	bool mappings;				/* the dump has them */
};

/* ---- parsing ----------------------------------------------------------- */

static int read_head(struct restore *t)
{
	struct dump_head head = {};
	int r;

	r = json_open(&t->j, '{');
	if (!r)
		r = json_expect(&t->j, "dm_hybrid_dump");
	snprintf(t->j.section, sizeof(t->j.section), "dm_hybrid_dump");
	if (!r)
		r = json_record(&t->j, dump_head_fields, &head);
	if (r)
		return r;
	if (head.version != DUMP_VERSION)
		return json_fail(&t->j, "version %u is not known here", head.version);
	if (!(head.flags >> DUMP_COMPLETE_BIT & 1))
		return json_fail(&t->j, "this is a dump of some volumes, not of a pool");
	t->mappings = head.flags >> DUMP_MAPPINGS_BIT & 1;
	return 0;
}

/* The next part of the document begins. */
static int begin_section(struct restore *t, const char *name)
{
	int r;

	t->j.element = 0;
	t->j.section[0] = '\0';
	r = json_expect(&t->j, name);
	t->j.key[0] = '\0';
	snprintf(t->j.section, sizeof(t->j.section), "%s", name);
	return r;
}

/* All of a layout follows from three numbers; the others must agree. */
static int check_layout(struct restore *t, const struct hybrid_sb *sb)
{
	const struct hybrid_geometry *want = &sb->geometry;
	struct hybrid_geometry *g = &t->md.sb.geometry;
	const char *why = NULL;

	if (sb->member_sectors > t->dev.sectors)
		return json_fail(&t->j, "%s has %llu sectors, the dump's device had %llu",
				 t->dev.path, (unsigned long long)t->dev.sectors,
				 (unsigned long long)sb->member_sectors);
	if (!want->journal_blocks ||
	    hybrid_geometry_init(g, sb->member_sectors, want->block_sectors,
				 want->journal_blocks, &why))
		return json_fail(&t->j, "the layout is not valid: %s", why ? why : "journal_blocks is 0");
	if (g->granule_sectors != want->granule_sectors || g->nr_blocks != want->nr_blocks ||
	    g->set_size != want->set_size || g->data_sector != want->data_sector)
		return json_fail(&t->j, "granule_sectors %u, blocks %u, set_blocks %u and data_sector %llu follow from the rest",
				 g->granule_sectors, g->nr_blocks, g->set_size,
				 (unsigned long long)g->data_sector);
	return 0;
}

static int read_pool(struct restore *t)
{
	u64 sector = hybrid_sb_sector(0, 0);
	struct hybrid_superblock *block;
	struct dump_pool pool = {};
	const char *why = NULL;
	int r;

	r = begin_section(t, "pool");
	if (!r)
		r = json_record(&t->j, dump_pool_fields, &pool);
	if (r)
		return r;
	t->md.sb = pool.sb;
	t->md.root = pool.root;
	t->md.sb.role = HYBRID_ROLE_CACHE;
	r = check_layout(t, &pool.sb);
	if (r)
		return r;
	block = hybrid_buffer(sizeof(*block));
	if (!block)
		return hybrid_nomem();
	hybrid_sb_encode(block, &t->md.sb, sector);
	if (hybrid_sb_decode(block, sector, t->dev.sectors, &t->md.sb, &why))
		r = json_fail(&t->j, "%s is not valid", why);
	else if (t->md.sb.ro_compat & ~HYBRID_RO_COMPAT_KNOWN)
		r = json_fail(&t->j, "ro_compat is not valid: a newer version wrote this");
	else if (!t->md.root.next_instance)
		r = json_fail(&t->j, "next_instance is not valid");
	free(block);
	t->map.g = &t->md.sb.geometry;
	t->map.nr_sets = t->md.sb.geometry.nr_sets;
	return r ? r : hybrid_metadata_alloc(&t->md);
}

static int check_volume(struct restore *t, const struct dump_volume *v)
{
	const struct hybrid_volume_info *info[HYBRID_VOLUMES_PER_LEAF];
	struct hybrid_volume_info back[HYBRID_VOLUMES_PER_LEAF], none = {};
	struct hybrid_volume_leaf *leaf;
	const char *why = NULL;
	u32 k;
	int r;

	if (v->info.state == HYBRID_VOLUME_FREE)
		return json_fail(&t->j, "a volume cannot be free");
	if (t->md.volume[v->id].state != HYBRID_VOLUME_FREE)
		return json_fail(&t->j, "id %u occurs twice", v->id);
	if (v->info.instance >= t->md.root.next_instance)
		return json_fail(&t->j, "instance %u is not below next_instance",
				 v->info.instance);
	leaf = hybrid_buffer(sizeof(*leaf));
	if (!leaf)
		return hybrid_nomem();
	for (k = 0; k < HYBRID_VOLUMES_PER_LEAF; k++)
		info[k] = k ? &none : &v->info;
	hybrid_volumes_encode(leaf, &t->md.id, 0, 1, info);
	r = hybrid_volumes_decode(leaf, &t->md.id, 0, 1, back, &why);
	free(leaf);
	return r ? json_fail(&t->j, "%s is not valid", why) : 0;
}

static int read_volume(struct restore *t)
{
	struct dump_volume v = {};
	int r;

	r = json_record(&t->j, dump_volume_fields, &v);
	if (!r)
		r = check_volume(t, &v);
	if (r)
		return r;
	t->md.volume[v.id] = v.info;
	t->said[v.id] = v.usage;
	return 0;
}

/* Blocks carry instances: each instance must lead to one volume. */
static int check_instances(struct restore *t)
{
	const struct hybrid_instance *pair = t->md.by_instance;
	u32 k;

	hybrid_metadata_index(&t->md);
	for (k = 1; k < t->md.nr_active; k++)
		if (pair[k].instance == pair[k - 1].instance)
			return json_fail(&t->j, "volumes %u and %u have the same instance",
					 pair[k - 1].volume, pair[k].volume);
	return 0;
}

static int read_regions(struct restore *t)
{
	u32 regions = DIV_ROUND_UP(t->md.g->set_size, HYBRID_REGION_BLOCKS);
	struct dump_regions reg;
	int r;

	r = json_record(&t->j, dump_regions_fields, &reg);
	if (r)
		return r;
	if (reg.set >= t->md.g->nr_sets || t->md.open[reg.set])
		return json_fail(&t->j, "set %u does not exist, or occurs twice", reg.set);
	if (!reg.open || reg.open & ~GENMASK_ULL(regions - 1, 0))
		return json_fail(&t->j, "open is not a mask of %u regions", regions);
	t->md.open[reg.set] = reg.open;
	return 0;
}

static int check_mapping(struct restore *t, const struct dump_mapping *m)
{
	const struct hybrid_geometry *g = t->md.g;
	const struct hybrid_volume_info *v = &t->md.volume[m->volume];
	u64 last;

	if (v->state != HYBRID_VOLUME_ACTIVE)
		return json_fail(&t->j, "volume %u does not exist, or is not active", m->volume);
	if (!m->count || m->block >= g->nr_blocks || m->count > g->nr_blocks - m->block)
		return json_fail(&t->j, "the pool has %u blocks", g->nr_blocks);
	last = (hybrid_volume_reach(v) - 1) >> g->block_shift;
	if (m->oblock > last || m->count - 1 > last - m->oblock)
		return json_fail(&t->j, "the volume's last block is %llu",
				 (unsigned long long)last);
	if (m->valid & ~GENMASK_ULL(g->granules - 1, 0))
		return json_fail(&t->j, "valid has more than %u granules", g->granules);
	if (m->dirty & ~m->valid)
		return json_fail(&t->j, "dirty is not within valid");
	return 0;
}

static int read_mapping(struct restore *t)
{
	struct hybrid_metadata *md = &t->md;
	struct dump_mapping m;
	u32 k, b;
	int r;

	r = json_record(&t->j, dump_mapping_fields, &m);
	if (!r)
		r = check_mapping(t, &m);
	for (k = 0; !r && k < m.count; k++) {
		b = m.block + k;
		if (md->instance[b])
			return json_fail(&t->j, "block %u occurs twice", b);
		if (hybrid_map_set_of(&t->map, hybrid_key(m.volume, to_oblock(m.oblock + k))) !=
		    b / md->g->set_size)
			return json_fail(&t->j, "origin block %llu cannot be in block %u",
					 (unsigned long long)m.oblock + k, b);
		md->instance[b] = md->volume[m.volume].instance;
		md->oblock[b] = m.oblock + k;
		md->valid[b] = m.valid;
		md->dirty[b] = m.dirty;
		md->hint[b] = m.hint;
	}
	return r;
}

static int read_array(struct restore *t, const char *name, int (*element)(struct restore *t))
{
	bool more;
	int r;

	r = begin_section(t, name);
	if (!r)
		r = json_open(&t->j, '[');
	for (;;) {
		if (!r)
			r = json_more(&t->j, ']', &more);
		if (r || !more)
			break;
		t->j.element++;
		r = element(t);
		t->j.key[0] = '\0';
	}
	t->j.element = 0;
	return r;
}

/* Counts in the dump that do not fit tell of a cut or a careless edit. */
static int check_counts(struct restore *t)
{
	u32 id;

	if (hybrid_metadata_judge(&t->md))
		return json_fail(&t->j, "two blocks hold the same block of a volume");
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		const struct hybrid_volume_usage *said = &t->said[id], *is = &t->md.usage[id];

		if (said->blocks != is->blocks || said->dirty_blocks != is->dirty_blocks)
			return json_fail(&t->j, "volume %u has %llu blocks, %llu dirty; \"volumes\" says otherwise",
					 id, (unsigned long long)is->blocks,
					 (unsigned long long)is->dirty_blocks);
	}
	return 0;
}

static int read_dump(struct restore *t)
{
	bool more = true;
	int r;

	r = read_head(t);
	if (!r)
		r = read_pool(t);
	if (!r)
		r = read_array(t, "volumes", read_volume);
	if (!r)
		r = check_instances(t);
	if (!r && t->mappings)
		r = read_array(t, "open_regions", read_regions);
	if (!r && t->mappings)
		r = read_array(t, "mappings", read_mapping);
	if (!r && t->mappings)
		r = check_counts(t);
	t->j.section[0] = '\0';
	if (!r)
		r = json_more(&t->j, '}', &more);
	if (!r && more)
		r = json_fail(&t->j, "nothing else belongs in a dump");
	return r ? r : json_end(&t->j);
}

static int read_input(struct restore *t)
{
	const char *path = t->cl->value[OPT_INPUT];
	FILE *in = strcmp(path, "-") ? fopen(path, "re") : stdin;
	int r;

	if (!in)
		return hybrid_fail(hybrid_exit_of_errno(errno), "check the path",
				   "%s: cannot open: %s", path, strerror(errno));
	json_begin(&t->j, in, path);
	r = read_dump(t);
	if (in != stdin)
		fclose(in);
	return r;
}

/* ---- deciding and writing ---------------------------------------------- */

static void forget_mappings(struct hybrid_metadata *md)
{
	memset(md->instance, 0, md->g->nr_blocks * sizeof(*md->instance));
	memset(md->open, 0, md->g->nr_sets * sizeof(*md->open));
	md->root.flags = HYBRID_ROOT_CLEAN;
}

/* A later restore of the same dump must see that the cache was used, though the root is new. */
static void forget_use(struct restore *t, const struct hybrid_root_info *root)
{
	u64 *written = &t->md.root.written_sectors;

	*written = max(*written, root->written_sectors) + HYBRID_META_BLOCK_SECTORS;
}

/* Does @root, if there is one, tell that the pool was used since the dump? */
static bool was_used(const struct restore *t, const struct hybrid_root_info *root)
{
	return root->sequence && (root->written_sectors != t->md.root.written_sectors ||
				  root->next_instance != t->md.root.next_instance);
}

/* Repair and writeback need one. */
static bool has_superblock(const struct restore *t)
{
	struct hybrid_member m;

	return !hybrid_member_read(&t->dev, &m) && m.ok && m.sb.role == HYBRID_ROLE_CACHE;
}

static int fail_lost(const struct restore *t, const char *what, const char *volumes)
{
	return hybrid_fail(HYBRID_REFUSED, has_superblock(t) ?
			   "write it back first (hybridctl writeback), or add --drop-dirty if it is lost" :
			   "add --drop-dirty if it is lost; these parts of the origins are as old as their last writeback",
			   "pool %s on %s %s%s", t->md.sb.name, t->dev.path, what, volumes);
}

/* Without mappings, the pool forgets what is dirty on the device now, too. */
static int check_lost(const struct restore *t)
{
	struct hybrid_findings f = {};
	struct hybrid_root_info root;
	struct hybrid_metadata now;
	char *dirty = NULL;
	bool certain = hybrid_cache_root(&t->dev, &t->md.sb, &root);
	int r;

	if (t->cl->given[OPT_DROP_DIRTY] || !root.sequence || (certain && !was_used(t, &root)))
		return 0;
	r = hybrid_metadata_read_as(&now, &t->dev, &f, &t->md.sb);
	if (!r)
		dirty = hybrid_volumes_dirty(&now, "");
	if (!r && !dirty)
		r = hybrid_nomem();
	if (!r && *dirty)
		r = fail_lost(t, "has newer data than the dump, which no origin has: ", dirty);
	else if (!r && (!certain || hybrid_findings_worst(&f) == HYBRID_DAMAGE))
		r = fail_lost(t, "may have newer data than the dump: its metadata is damaged", "");
	free(dirty);
	hybrid_metadata_free(&now);
	hybrid_findings_free(&f);
	return r;
}

static int without_mappings(struct restore *t)
{
	struct hybrid_root_info root;
	u64 dirty = 0;
	u32 id;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		dirty += t->said[id].dirty_blocks;
	if (dirty && !t->cl->given[OPT_DROP_DIRTY])
		return hybrid_fail(HYBRID_REFUSED,
				   "add --drop-dirty if that data is lost; these parts of the origins are as old as their last writeback",
				   "%llu blocks are dirty: only the old cache device has their data",
				   (unsigned long long)dirty);
	forget_mappings(&t->md);
	hybrid_cache_root(&t->dev, &t->md.sb, &root);
	forget_use(t, &root);
	return 0;
}

/*
 * Without a root, or beside a bad one, nothing tells that an origin in place has newer data than the
 * dump's dirty blocks.
 */
static int check_unknown_use(struct restore *t, const char *what)
{
	u32 id;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		if (t->md.volume[id].flags & HYBRID_VOLUME_INPLACE && t->said[id].dirty_blocks)
			return hybrid_fail(HYBRID_REFUSED,
					   "add --skip-mappings --drop-dirty; parts of the origins are then as old as their last writeback",
					   "%s has %s root of pool %s, so that dirty blocks of volume %s may be older than its origin",
					   t->dev.path, what, t->md.sb.name,
					   t->md.volume[id].name);
	if (!t->cl->given[OPT_FORCE])
		return hybrid_fail(HYBRID_REFUSED,
				   "add --skip-mappings; or add --force if you know that nobody used the pool since the dump: otherwise a volume may return data of another one",
				   "%s has %s root of pool %s, so that nothing tells whether the pool was used since the dump",
				   t->dev.path, what, t->md.sb.name);
	return 0;
}

/* Blocks that were clean in the dump may hold data of other volumes by now, with no new nonce. */
static int check_use(struct restore *t, u64 blocks)
{
	struct hybrid_root_info root;
	bool certain = hybrid_cache_root(&t->dev, &t->md.sb, &root);
	int r = 0;

	if (was_used(t, &root))
		r = hybrid_fail(HYBRID_REFUSED, has_superblock(t) ?
				"see hybridctl repair; or restore without the mappings: --skip-mappings" :
				"restore without the mappings: --skip-mappings",
				"pool %s was used since the dump: %s may hold other data than the mappings say",
				t->md.sb.name, t->dev.path);
	else if (!certain)
		r = check_unknown_use(t, root.sequence ? "a bad" : "no good");
	if (!r)
		hybrid_warn("a dump holds no data: the data of %llu blocks must be on %s already, unchanged since the dump; if it is not, use --skip-mappings",
			    (unsigned long long)blocks, t->dev.path);
	return r;
}

/* First: other refusals advise --force, which would give up a good pool of another release. */
static int check_known(const struct restore *t)
{
	struct hybrid_member m;

	if (t->cl->given[OPT_FORCE] || hybrid_member_read(&t->dev, &m) || !m.unknown)
		return 0;
	return hybrid_member_fail(&t->dev, &m, NULL);
}

static int decide(struct restore *t)
{
	const struct hybrid_device *devs[] = { &t->dev };
	bool mappings = t->mappings && !t->cl->given[OPT_SKIP_MAPPINGS];
	const char *why;
	u64 blocks = 0;
	int r;
	u32 id;

	r = check_known(t);
	if (r)
		return r;
	if (!mappings)
		r = without_mappings(t);
	if (r)
		return r;
	r = hybrid_metadata_verify(&t->md, &why);
	if (r)
		return r == -ENOMEM ? hybrid_nomem() :
		       hybrid_fail(HYBRID_BADDEV, "see hybrid-dump(5)",
				   "%s: %s is not valid", t->cl->value[OPT_INPUT], why);
	for (id = 0; mappings && id < HYBRID_MAX_VOLUMES; id++)
		blocks += t->said[id].blocks;
	r = blocks ? check_use(t, blocks) : check_lost(t);
	if (!r)
		r = hybrid_check_formattable(&t->dev);
	/* --wipe-signatures is no way on: the array's superblock would stay */
	if (!r)
		r = hybrid_check_no_part(&t->dev);
	return r ? r : confirm_format(t->cl, devs, 1);
}

static int write_pool(struct restore *t)
{
	int r;

	if (t->cl->given[OPT_TEST]) {
		printf("write %s: superblocks, root, volume table and map of pool %s; zero journal and intents\n",
		       t->dev.path, t->md.sb.name);
		return 0;
	}
	r = lock_tools();
	if (!r)
		r = hybrid_device_reopen(&t->dev, HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE |
					 HYBRID_OPEN_FILES);
	if (!r && hybrid_random(&t->md.root.epoch, sizeof(t->md.root.epoch)))
		r = hybrid_fail(HYBRID_BADDEV, "try again", "no random numbers from the kernel");
	if (r)
		return r;
	hold_signals();
	t->md.id.epoch = t->md.root.epoch;
	r = hybrid_metadata_write(&t->dev, &t->md);
	if (!r)
		hybrid_note("pool %s is restored on %s", t->md.sb.name, t->dev.path);
	return r;
}

int command_restore(const struct command_line *cl)
{
	struct restore t = { .cl = cl };
	int r;

	if (!cl->value[OPT_INPUT] || !cl->value[OPT_OUTPUT])
		return hybrid_fail(HYBRID_USAGE, "give both: -i FILE -o DEVICE",
				   "restore needs a dump (--input) and a device (--output)");
	r = hybrid_device_open(&t.dev, cl->value[OPT_OUTPUT],
			       HYBRID_OPEN_EXCLUSIVE | HYBRID_OPEN_FILES);
	if (r)
		return r;
	t.said = calloc(HYBRID_MAX_VOLUMES, sizeof(*t.said));
	r = t.said ? read_input(&t) : hybrid_nomem();
	if (!r)
		r = decide(&t);
	if (!r)
		r = write_pool(&t);
	hybrid_metadata_free(&t.md);
	hybrid_device_close(&t.dev);
	free(t.said);
	return r;
}
