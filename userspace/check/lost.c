// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lost: what of the volumes is gone with a cache device.
 *
 * From a cache device: dirty data that it does not give back.  From an origin:
 * the map that was saved when its cache died.  Where neither tells, it is
 * unknown, and said to be: nothing is ever "none" for lack of knowledge.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "errors.h"
#include "files.h"
#include "metadata.h"
#include "ranges.h"

#define PIECE		8	/* sectors: what is lost is as exact as that */

struct known_place {
	char volume[HYBRID_NAME_SIZE];
	struct hybrid_place place;
};

struct lost {
	const struct command_line *cl;
	struct hybrid_ranges ranges;
	bool unknown;			/* of a volume at least: a range without length */
	struct hybrid_metadata md;	/* of the cache device at hand */
	struct hybrid_device dev;
	void *buf;			/* of a cache block */
	/* Volumes whose cache device was looked at, or that can be looked at */
	u8 (*told)[HYBRID_UUID_SIZE];
	unsigned int nr_told;
	struct known_place *place;
	unsigned int nr_places;
};

/* Names outlive what they were read from. */
static const char *keep_name(const char *name)
{
	static struct kept {
		struct kept *next;
		char name[HYBRID_NAME_SIZE];
	} *all;
	struct kept *k;

	for (k = all; k; k = k->next)
		if (!strcmp(k->name, name))
			return k->name;
	k = calloc(1, sizeof(*k));
	if (!k)
		return "?";
	snprintf(k->name, sizeof(k->name), "%s", name);
	k->next = all;
	all = k;
	return k->name;
}

static void unknown(struct lost *l, const char *volume, const char *why)
{
	hybrid_ranges_add(&l->ranges, keep_name(volume), 0, 0, why);
	l->unknown = true;
}

/* ---- a cache device -------------------------------------------------------- */

static int check_run(void *context, u32 volume, u64 sector, u32 count, u64 cache_sector)
{
	struct lost *l = context;
	const char *name = keep_name(l->md.volume[volume].name);
	u32 n;
	int r;

	if (l->cl->given[OPT_ALL]) {
		hybrid_ranges_add(&l->ranges, name, sector, count, "only the cache device has it");
		return 0;
	}
	if (!hybrid_device_read(&l->dev, cache_sector, l->buf, (size_t)count * 512))
		return 0;
	for (; count; sector += n, cache_sector += n, count -= n) {
		n = min_t(u32, count, PIECE);
		r = hybrid_device_read(&l->dev, cache_sector, l->buf, n * 512);
		if (r)
			hybrid_ranges_add(&l->ranges, name, sector, n,
					  hybrid_range_why("cache device", r));
	}
	return 0;
}

/* What is dirty is not known, or not exactly. */
static void damaged(struct lost *l, const char *path)
{
	bool any = false;
	u32 id;

	for (id = 0; l->md.volume && id < HYBRID_MAX_VOLUMES; id++) {
		if (l->md.volume[id].state != HYBRID_VOLUME_ACTIVE)
			continue;
		unknown(l, l->md.volume[id].name, "unknown: the metadata of its cache device are damaged");
		any = true;
	}
	if (!any)
		unknown(l, path, "unknown: the metadata of the cache device are damaged");
}

static int lost_cache(struct lost *l)
{
	struct hybrid_findings findings = { .device = l->dev.path };
	u32 id;
	int r;

	r = hybrid_metadata_read(&l->md, &l->dev, &findings);
	if (r == HYBRID_NOMEM)
		goto out;
	if (r || hybrid_findings_worst(&findings) == HYBRID_DAMAGE)
		damaged(l, l->dev.path);
	l->buf = r ? NULL : hybrid_buffer(l->md.g->block_sectors * 512);
	if (r)
		r = 0;
	else if (!l->buf)
		r = hybrid_nomem();
	else
		r = hybrid_dirty_each(&l->md, check_run, l);
	for (id = 0; !r && l->md.volume && id < HYBRID_MAX_VOLUMES; id++)
		if (l->md.volume[id].state == HYBRID_VOLUME_ACTIVE)
			memcpy(l->told[l->nr_told++], l->md.volume[id].uuid, HYBRID_UUID_SIZE);
	free(l->buf);
out:
	hybrid_metadata_free(&l->md);
	hybrid_findings_free(&findings);
	return r;
}

/* ---- an origin ------------------------------------------------------------- */

static bool was_told(const struct lost *l, const u8 *uuid)
{
	unsigned int i;

	for (i = 0; i < l->nr_told; i++)
		if (!memcmp(l->told[i], uuid, HYBRID_UUID_SIZE))
			return true;
	return false;
}

static void add_place(struct lost *l, const struct hybrid_sb *sb)
{
	struct known_place *p = &l->place[l->nr_places++];

	snprintf(p->volume, sizeof(p->volume), "%s", sb->name);
	snprintf(p->place.path, sizeof(p->place.path), "%s", l->dev.path);
	p->place.offset = sb->data_sector * 512;
	p->place.size = sb->data_sectors * 512;
}

static int lost_origin(struct lost *l, const struct hybrid_sb *sb)
{
	const char *name = keep_name(sb->name);
	struct hybrid_lost_map *map = NULL;
	u64 sector = 0, count;

	add_place(l, sb);
	if (sb->lost && hybrid_lost_map_read(&l->dev, sb, &map)) {
		unknown(l, name, "unknown: the map of what was lost cannot be read");
	} else if (sb->lost) {
		for (; (count = hybrid_lost_next(map, &sector)); sector += count)
			hybrid_ranges_add(&l->ranges, name, sector, count, "its cache died");
	} else if (sb->flags & HYBRID_SB_DIRTY && !was_told(l, sb->volume_uuid)) {
		unknown(l, name, "unknown: its cache device is not here, and may have newer data");
	}
	free(map);
	return 0;
}

/* ---- all of them ----------------------------------------------------------- */

static int lost_device(struct lost *l, const char *path, bool cache)
{
	struct hybrid_member m;
	int r;

	r = hybrid_device_open(&l->dev, path, HYBRID_OPEN_EXCLUSIVE | HYBRID_OPEN_FILES);
	if (r)
		return r;
	r = hybrid_member_read(&l->dev, &m);
	if (r == -ENODATA || (!r && m.ok && m.sb.role == HYBRID_ROLE_DETACHED))
		r = hybrid_fail(HYBRID_BADDEV, "give a cache device, or a formatted origin",
				"%s: what is lost cannot be told from it: it is no member of a pool",
				path);
	else if (r || !m.ok)
		r = hybrid_fail(HYBRID_BADDEV, "see hybridctl check", "%s: %s", path,
				r ? strerror(-r) : m.why);
	else if (cache && m.sb.role == HYBRID_ROLE_CACHE)
		r = lost_cache(l);
	else if (!cache && m.sb.role == HYBRID_ROLE_ORIGIN)
		r = lost_origin(l, &m.sb);
	hybrid_device_close(&l->dev);
	return r;
}

static int print_files(struct lost *l)
{
	const char *volume = NULL;
	size_t i;
	int r = 0;
	unsigned int k;

	for (i = 0; !r && i < l->ranges.nr; i++) {
		if (l->ranges.list[i].volume == volume || !l->ranges.list[i].count)
			continue;
		volume = l->ranges.list[i].volume;
		for (k = 0; k < l->nr_places; k++)
			if (!strcmp(l->place[k].volume, volume))
				break;
		if (k < l->nr_places)
			r = hybrid_files_print(&l->ranges, volume, &l->place[k].place);
		else
			printf("%s: give its origin, too, to find its files\n", volume);
	}
	return r;
}

static int report(struct lost *l)
{
	struct hybrid_report_options opts;
	int r;

	r = report_options(l->cl, &opts);
	if (!r && !hybrid_output.quiet && (l->ranges.nr || opts.json))
		r = hybrid_ranges_print(&l->ranges, "lost", &opts);
	if (!r && !l->ranges.nr && !opts.json)
		hybrid_note("nothing is lost");
	if (!r && l->cl->given[OPT_FILES] && !hybrid_output.quiet)
		r = print_files(l);
	if (r)
		return r;
	return l->unknown ? HYBRID_BADDEV : l->ranges.nr ? HYBRID_DEGRADED : 0;
}

int command_lost(const struct command_line *cl)
{
	struct lost l = { .cl = cl, .dev.fd = -1 };
	int i, r = 0;

	/* Each cache device tells of as many volumes as there can be */
	l.told = calloc((size_t)cl->argc * HYBRID_MAX_VOLUMES, HYBRID_UUID_SIZE);
	l.place = calloc(cl->argc, sizeof(*l.place));
	if (!l.told || !l.place)
		r = hybrid_nomem();
	for (i = 0; !r && i < 2 * cl->argc; i++)
		r = lost_device(&l, cl->argv[i % cl->argc], i < cl->argc);
	if (!r)
		r = report(&l);
	free(l.told);
	free(l.place);
	hybrid_ranges_free(&l.ranges);
	return r;
}
