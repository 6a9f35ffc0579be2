// SPDX-License-Identifier: GPL-2.0-or-later
/* hybridctl check: the cache device, then each origin against it. */
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "members.h"
#include "metadata.h"
#include "options.h"
#include "tables.h"
#include "units.h"
#include "words.h"

struct member {
	struct hybrid_device dev;
	struct hybrid_superblocks s;	/* sb.role 0: none that can be used */
};

struct check {
	const struct command_line *cl;
	struct device_words words;
	struct hybrid_findings f;
	struct hybrid_metadata md;
	struct member *member;		/* by words */
	int nr;
	int cache;			/* which is the cache device; -1: none */
	bool tree;			/* volume table and map were read */
};

/* ---- origins ---------------------------------------------------------------- */

static const struct hybrid_volume_info *find_volume(const struct hybrid_metadata *md,
						    const u8 *uuid)
{
	u32 id;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		if (md->volume[id].state != HYBRID_VOLUME_FREE &&
		    !memcmp(md->volume[id].uuid, uuid, HYBRID_UUID_SIZE))
			return &md->volume[id];
	return NULL;
}

static bool table_whole(const struct hybrid_metadata *md)
{
	u32 nr;

	for (nr = 0; nr < HYBRID_VOLUME_LEAVES; nr++)
		if (md->leaf_state[nr] == HYBRID_LEAF_BAD)
			return false;
	return md->roots;
}

/* An origin goes on alone only when both copies say so: one known nonce is enough. */
static bool nonce_known(const struct hybrid_superblocks *s, const struct hybrid_volume_info *info)
{
	int i;

	for (i = 0; i < 2; i++)
		if (s->good >> i & 1 &&
		    (s->copy[i].nonce == info->nonce ||
		     (info->nonce_old && s->copy[i].nonce == info->nonce_old)))
			return true;
	return false;
}

static bool failed_together(const struct hybrid_sb *sb, const struct hybrid_volume_info *info)
{
	return sb->flags & HYBRID_SB_ALONE && sb->paired_nonce &&
	       (sb->paired_nonce == info->nonce || sb->paired_nonce == info->nonce_old) &&
	       sb->instance == info->instance;
}

/* The cache does not know the origin's nonce: as check_nonce() in the engine. */
static enum hybrid_finding_id judge_alone(const struct hybrid_sb *sb,
					  const struct hybrid_volume_info *info, bool dirty)
{
	bool marked = sb->flags & HYBRID_SB_DIRTY;

	if (failed_together(sb, info))
		return marked ? HYBRID_FOUND_ORIGIN_MERGES : HYBRID_FOUND_ORIGIN_ALONE;
	if (dirty)
		return HYBRID_FOUND_ORIGIN_ALONE_DIRTY;
	return marked ? HYBRID_FOUND_CACHE_OLDER : HYBRID_FOUND_ORIGIN_ALONE;
}

/* Judges the nonce as hybrid_volume_open() would. */
static void judge_nonce(struct check *c, const struct hybrid_superblocks *s,
			const struct hybrid_volume_info *info)
{
	const struct hybrid_sb *sb = &s->sb;
	const struct hybrid_volume_usage *usage = &c->md.usage[info - c->md.volume];
	bool dirty = usage->dirty_granules, known = nonce_known(s, info);

	if (!known)
		hybrid_found(&c->f, judge_alone(sb, info, dirty), NULL,
			     "%s: the cache does not know its nonce; %llu blocks are dirty there",
			     info->name, (unsigned long long)usage->dirty_blocks);
	/* Nothing was lost when the pool failed: the records are outdated. */
	if (!known && failed_together(sb, info) && !(sb->flags & HYBRID_SB_DIRTY))
		dirty = false;
	if (dirty && !(sb->flags & HYBRID_SB_DIRTY))
		hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_UNFLAGGED, NULL,
			     "%s: %llu blocks are dirty in the cache", info->name,
			     (unsigned long long)usage->dirty_blocks);
	if (!dirty && sb->flags & HYBRID_SB_DIRTY)
		hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_FLAGGED, NULL,
			     "%s: the cache has no dirty data of it", info->name);
	if (sb->instance && sb->instance != info->instance)
		hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_OLDER, NULL,
			     "%s: last opened as instance %u, is %u now", info->name,
			     sb->instance, info->instance);
}

static void judge_detached(struct check *c, const struct hybrid_sb *sb,
			   const struct hybrid_volume_info *info)
{
	if (!info)
		hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_DETACHED, NULL,
			     "%s: the data begins at sector %llu", sb->name,
			     (unsigned long long)sb->data_sector);
	else if (info->state == HYBRID_VOLUME_TOMBSTONE)
		hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_TOMBSTONE, NULL,
			     "%s: marked, but the pool still keeps the entry", info->name);
	else
		hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_IS_DETACHED, NULL,
			     "%s is an active volume of the pool", info->name);
}

/* As hybrid_sb_matches() in the engine, in its order. */
static void judge_origin(struct check *c, const struct hybrid_superblocks *s)
{
	const struct hybrid_sb *sb = &s->sb;
	const struct hybrid_volume_info *info = NULL;
	bool ours = !memcmp(sb->pool_uuid, c->md.sb.pool_uuid, HYBRID_UUID_SIZE);

	/* An origin without a cache names no pool */
	if ((ours || hybrid_uuid_is_null(sb->pool_uuid)) && c->tree)
		info = find_volume(&c->md, sb->volume_uuid);
	if (sb->role == HYBRID_ROLE_DETACHED)
		judge_detached(c, sb, info);
	else if (!ours)
		hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_POOL, NULL,
			     "%s: it belongs to another pool", sb->name);
	else if (!c->tree || (!info && !table_whole(&c->md)))
		return;
	else if (!info)
		hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_VOLUME, NULL,
			     "%s: not in the volume table", sb->name);
	else if (info->state == HYBRID_VOLUME_TOMBSTONE)
		hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_TOMBSTONE, NULL, "%s: not yet marked",
			     info->name);
	else if (memcmp(sb->member_uuid, info->member_uuid, HYBRID_UUID_SIZE))
		hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_MEMBER, NULL,
			     "%s: its member UUID is not the one in the volume table", info->name);
	else if (memcmp(sb->pairing_key, info->pairing_key, HYBRID_KEY_SIZE))
		hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_KEY, NULL,
			     "%s: its pairing key is not the one in the volume table", info->name);
	else if (sb->data_sector != info->data_sector ||
		 (sb->data_sectors != info->data_sectors && sb->data_sectors != info->data_sectors_new))
		hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_AREA, NULL,
			     "%s: data at sector %llu + %llu, the volume table says %llu + %llu",
			     info->name, (unsigned long long)sb->data_sector,
			     (unsigned long long)sb->data_sectors,
			     (unsigned long long)info->data_sector,
			     (unsigned long long)info->data_sectors);
	else
		judge_nonce(c, s, info);
}

/* The data lost when a cache died, as the origin itself has it on record. */
static void judge_lost(struct check *c, const struct member *m)
{
	const struct hybrid_sb *sb = &m->s.sb;
	u64 sector = 0, n, sum = 0, pieces = 0;
	struct hybrid_lost_map *map;

	if (!sb->lost)
		return;
	if (hybrid_lost_map_read(&m->dev, sb, &map)) {
		hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_LOST_UNKNOWN, NULL,
			     "%s: neither copy of its lost map is good", sb->name);
		return;
	}
	for (; (n = hybrid_lost_next(map, &sector)); sector += n) {
		sum += n;
		pieces++;
	}
	free(map);
	hybrid_found(&c->f, HYBRID_FOUND_ORIGIN_LOST, NULL, "%s: %llu KiB in %llu ranges",
		     sb->name, (unsigned long long)sum / 2, (unsigned long long)pieces);
}

/* A copy of the cache device was reported already. */
static int check_other_cache(const struct check *c, const struct member *m)
{
	if (!memcmp(m->s.sb.member_uuid, c->member[c->cache].s.sb.member_uuid, HYBRID_UUID_SIZE))
		return 0;
	return hybrid_fail(HYBRID_USAGE, "check one pool at a time", "%s is a cache device, too",
			   m->dev.path);
}

static int check_origin(struct check *c, struct member *m)
{
	int r;

	if (m->s.sb.role == HYBRID_ROLE_CACHE)
		return check_other_cache(c, m);
	if (!m->s.sb.role && c->tree && hybrid_metadata_inplace(&c->md, &m->dev) >= 0)
		return 0;
	c->f.device = m->dev.path;
	r = hybrid_superblocks_read(&m->dev, &c->f, &m->s);
	if (r)
		return r == HYBRID_NOMEM ? r : 0;
	judge_lost(c, m);
	if (c->cache >= 0 && c->md.g)
		judge_origin(c, &m->s);
	return 0;
}

/* ---- all of them -------------------------------------------------------------- */

static void warn_of_part(const struct hybrid_device *dev)
{
	char type[64];

	if (hybrid_device_in_array(dev, type, sizeof(type)))
		hybrid_warn("%s is a part of an array (%s): check the array instead", dev->path, type);
}

/* Which of them is the cache device?  The first, unless they say otherwise. */
static int find_cache(struct check *c)
{
	struct hybrid_findings unused = {};
	int i, r = 0;

	c->cache = -1;
	for (i = 0; i < c->nr && r != HYBRID_NOMEM; i++) {
		r = hybrid_superblocks_read(&c->member[i].dev, &unused, &c->member[i].s);
		if (r)
			memset(&c->member[i].s, 0, sizeof(c->member[i].s));
		else
			warn_of_part(&c->member[i].dev);
		if (c->member[i].s.sb.role == HYBRID_ROLE_CACHE && c->cache < 0)
			c->cache = i;
	}
	hybrid_findings_free(&unused);
	if (c->cache < 0 && !c->member[0].s.sb.role)
		c->cache = 0;
	return r == HYBRID_NOMEM ? r : 0;
}

static void find_twins(struct check *c)
{
	int i, k;

	for (i = 0; i < c->nr; i++)
		for (k = 0; k < i; k++) {
			if (!c->member[i].s.sb.role || !c->member[k].s.sb.role ||
			    memcmp(c->member[i].s.sb.member_uuid, c->member[k].s.sb.member_uuid,
				   HYBRID_UUID_SIZE))
				continue;
			c->f.device = c->member[i].dev.path;
			hybrid_found(&c->f, HYBRID_FOUND_MEMBER_TWICE, NULL,
				     "%s carries the same member UUID", c->member[k].dev.path);
		}
}

static int check_cache(struct check *c)
{
	const struct hybrid_device *dev = &c->member[c->cache].dev;
	int r;

	if (c->cl->given[OPT_FAST])
		r = hybrid_metadata_read_head(&c->md, dev, &c->f);
	else
		r = hybrid_metadata_read(&c->md, dev, &c->f);
	c->tree = !r && c->md.volume;
	return r == HYBRID_NOMEM ? r : 0;
}

static int check_members(struct check *c)
{
	int i, r;

	r = find_cache(c);
	if (!r)
		find_twins(c);
	if (!r && c->cache >= 0)
		r = check_cache(c);
	if (c->cache < 0) {
		c->f.device = c->member[0].dev.path;
		hybrid_found(&c->f, HYBRID_FOUND_CACHE_NONE, NULL, "no cache device is given");
	}
	for (i = 0; !r && i < c->nr; i++)
		if (i != c->cache)
			r = check_origin(c, &c->member[i]);
	return r;
}

/* ---- the report ----------------------------------------------------------------- */

static void sum_usage(const struct hybrid_metadata *md, struct hybrid_volume_usage *sum)
{
	u32 id;

	memset(sum, 0, sizeof(*sum));
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		sum->blocks += md->usage[id].blocks;
		sum->dirty_blocks += md->usage[id].dirty_blocks;
		sum->dirty_granules += md->usage[id].dirty_granules;
	}
}

static u64 dirty_bytes(const struct hybrid_geometry *g, const struct hybrid_volume_usage *usage)
{
	return (u64)usage->dirty_granules * g->granule_sectors * 512;
}

static void print_text(const struct check *c)
{
	const struct hybrid_geometry *g = c->md.g;
	struct hybrid_volume_usage sum;
	char size[32];

	hybrid_findings_print(&c->f, stdout);
	if (g)
		printf("pool %s: %u blocks of %s", c->md.sb.name, g->nr_blocks,
		       hybrid_format_size(size, sizeof(size), g->block_sectors * 512ULL, 'h'));
	if (c->tree) {
		sum_usage(&c->md, &sum);
		hybrid_format_size(size, sizeof(size), dirty_bytes(g, &sum), 'h');
		printf(", %llu used, %llu dirty (%s); %u active volumes",
		       (unsigned long long)sum.blocks, (unsigned long long)sum.dirty_blocks,
		       size, c->md.nr_active);
	}
	printf("%s%s%s\n", g ? "\n" : "", hybrid_verdict(&c->f),
	       c->cl->given[OPT_FAST] ? " (--fast: superblocks, roots and the first journal entry only)" : "");
}

static void add_string(struct json_object *o, const char *key, const char *text)
{
	json_object_object_add(o, key, json_object_new_string(text));
}

static void add_u64(struct json_object *o, const char *key, u64 value)
{
	json_object_object_add(o, key, json_object_new_uint64(value));
}

static struct json_object *pool_json(const struct check *c)
{
	struct json_object *o = json_object_new_object();
	const struct hybrid_geometry *g = c->md.g;
	struct hybrid_volume_usage sum;
	char uuid[HYBRID_UUID_TEXT];

	add_string(o, "name", c->md.sb.name);
	add_string(o, "uuid", hybrid_uuid_text(uuid, c->md.sb.pool_uuid));
	add_u64(o, "block_size", g->block_sectors * 512ULL);
	add_u64(o, "blocks", g->nr_blocks);
	if (!c->tree)
		return o;
	sum_usage(&c->md, &sum);
	add_u64(o, "used", sum.blocks);
	add_u64(o, "dirty", sum.dirty_blocks);
	add_u64(o, "dirty_bytes", dirty_bytes(g, &sum));
	add_u64(o, "open_regions", c->md.open_regions);
	add_u64(o, "journal_records", c->md.journal_records);
	add_u64(o, "intent_records", c->md.intent_records);
	return o;
}

static struct json_object *volumes_json(const struct check *c)
{
	struct json_object *list = json_object_new_array(), *o;
	const struct hybrid_volume_info *v;
	char uuid[HYBRID_UUID_TEXT];
	u32 id;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		v = &c->md.volume[id];
		if (v->state == HYBRID_VOLUME_FREE)
			continue;
		o = json_object_new_object();
		add_u64(o, "id", id);
		add_string(o, "name", v->name);
		add_string(o, "uuid", hybrid_uuid_text(uuid, v->uuid));
		add_string(o, "mode", hybrid_mode_name(v->mode));
		json_object_object_add(o, "detached",
				       json_object_new_boolean(v->state == HYBRID_VOLUME_TOMBSTONE));
		add_u64(o, "blocks", c->md.usage[id].blocks);
		add_u64(o, "dirty", c->md.usage[id].dirty_blocks);
		add_u64(o, "dirty_bytes", dirty_bytes(c->md.g, &c->md.usage[id]));
		json_object_array_add(list, o);
	}
	return list;
}

static void print_json(const struct check *c)
{
	struct json_object *top = json_object_new_object();

	json_object_object_add(top, "fast", json_object_new_boolean(c->cl->given[OPT_FAST]));
	hybrid_findings_json(&c->f, top);
	if (c->md.g)
		json_object_object_add(top, "pool", pool_json(c));
	if (c->tree)
		json_object_object_add(top, "volumes", volumes_json(c));
	puts(json_object_to_json_string_ext(top, JSON_C_TO_STRING_PRETTY |
					    JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(top);
}

static void print(const struct check *c)
{
	if (c->cl->given[OPT_QUIET])
		return;
	if (c->cl->given[OPT_JSON])
		print_json(c);
	else
		print_text(c);
}

static int open_member(struct check *c, int i)
{
	int k, r = 0;

	for (k = 0; k < i && !r; k++)
		r = hybrid_devices_distinct(c->words.path[k], c->words.path[i], true);
	return r ? r : hybrid_device_open(&c->member[i].dev, c->words.path[i],
					  HYBRID_OPEN_EXCLUSIVE | HYBRID_OPEN_FILES);
}

static int check_all(struct check *c)
{
	int i, r = 0;

	c->member = calloc(c->nr, sizeof(*c->member));
	if (!c->member)
		return hybrid_nomem();
	for (i = 0; i < c->nr; i++)
		c->member[i].dev.fd = -1;
	for (i = 0; i < c->nr && !r; i++)
		r = open_member(c, i);
	if (!r)
		r = check_members(c);
	if (!r) {
		print(c);
		r = hybrid_verdict_exit(&c->f);
	}
	for (i = 0; i < c->nr; i++)
		hybrid_device_close(&c->member[i].dev);
	return r;
}

int command_check(const struct command_line *cl)
{
	struct check c = { .cl = cl };
	int r;

	r = device_words(&c.words, cl->argc, cl->argv, false);
	c.nr = c.words.nr;
	if (!r)
		r = check_all(&c);
	hybrid_metadata_free(&c.md);
	hybrid_findings_free(&c.f);
	free(c.member);
	device_words_free(&c.words);
	return r;
}
