// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "ranges.h"

const char *hybrid_range_why(const char *device, int error)
{
	static struct why {
		struct why *next;
		char text[96];
	} *all;
	struct why *w;
	char text[sizeof(w->text)];

	snprintf(text, sizeof(text), "%s: %s", device, strerror(-error));
	for (w = all; w; w = w->next)
		if (!strcmp(w->text, text))
			return w->text;
	w = malloc(sizeof(*w));
	if (!w)
		return "I/O error";
	strcpy(w->text, text);
	w->next = all;
	all = w;
	return w->text;
}

void hybrid_ranges_add(struct hybrid_ranges *ranges, const char *volume, u64 sector, u64 count,
		       const char *why)
{
	struct hybrid_range *last = ranges->nr ? &ranges->list[ranges->nr - 1] : NULL;

	if (last && last->volume == volume && last->why == why &&
	    last->sector + last->count == sector) {
		last->count += count;
		return;
	}
	if (ranges->nr == ranges->room) {
		size_t room = ranges->room ? 2 * ranges->room : 64;
		void *list = reallocarray(ranges->list, room, sizeof(*ranges->list));

		if (!list) {
			ranges->nomem = true;
			return;
		}
		ranges->list = list;
		ranges->room = room;
	}
	ranges->list[ranges->nr++] = (struct hybrid_range) { volume, sector, count, why };
}

void hybrid_ranges_free(struct hybrid_ranges *ranges)
{
	free(ranges->list);
	*ranges = (struct hybrid_ranges) {};
}

u64 hybrid_ranges_bytes(const struct hybrid_ranges *ranges)
{
	u64 sectors = 0;
	size_t i;

	for (i = 0; i < ranges->nr; i++)
		sectors += ranges->list[i].count;
	return sectors * 512;
}

/* ---- printing -------------------------------------------------------------- */

static const struct hybrid_field fields[] = {
	{ "volume", "Volume", HYBRID_FIELD_TEXT, "name of the volume" },
	{ "offset", "Offset", HYBRID_FIELD_NUMBER, "on the volume, in bytes" },
	{ "length", "Length", HYBRID_FIELD_NUMBER, "in bytes" },
	{ "reason", "Reason", HYBRID_FIELD_TEXT, "why" },
};

const struct hybrid_fields hybrid_ranges_report = { fields, 4, "volume,offset,length,reason" };

int hybrid_ranges_print(const struct hybrid_ranges *ranges, const char *name,
			const struct hybrid_report_options *opts)
{
	struct hybrid_report *report = hybrid_report_new(name, &hybrid_ranges_report);
	struct hybrid_value *row;
	size_t i;
	int r = report && !ranges->nomem ? 0 : hybrid_nomem();

	for (i = 0; !r && i < ranges->nr; i++) {
		row = hybrid_report_row(report);
		if (!row) {
			r = hybrid_nomem();
			break;
		}
		hybrid_set_text(&row[0], ranges->list[i].volume);
		if (ranges->list[i].count) {
			hybrid_set_number(&row[1], ranges->list[i].sector * 512);
			hybrid_set_number(&row[2], ranges->list[i].count * 512);
		}
		hybrid_set_text(&row[3], ranges->list[i].why);
	}
	if (!r)
		r = hybrid_report_print(report, opts);
	if (report)
		hybrid_report_free(report);
	return r;
}

struct json_object *hybrid_ranges_json(const struct hybrid_ranges *ranges)
{
	struct json_object *array = json_object_new_array(), *o;
	const struct hybrid_range *r;
	size_t i;

	for (i = 0; array && i < ranges->nr; i++) {
		r = &ranges->list[i];
		o = json_object_new_object();
		json_object_object_add(o, "volume", json_object_new_string(r->volume));
		json_object_object_add(o, "offset", json_object_new_uint64(r->sector * 512));
		json_object_object_add(o, "length", json_object_new_uint64(r->count * 512));
		json_object_object_add(o, "reason", json_object_new_string(r->why));
		json_object_array_add(array, o);
	}
	return array;
}

/* ---- dirty data ------------------------------------------------------------ */

struct dirty_block {
	u32 volume, block;
	u64 oblock;
};

static int compare_blocks(const void *a, const void *b)
{
	const struct dirty_block *x = a, *y = b;

	if (x->volume != y->volume)
		return x->volume < y->volume ? -1 : 1;
	return x->oblock < y->oblock ? -1 : x->oblock > y->oblock;
}

static size_t collect(const struct hybrid_metadata *md, struct dirty_block *list)
{
	size_t nr = 0;
	u32 i;

	for (i = 0; i < md->g->nr_blocks; i++) {
		if (md->block_state[i] != HYBRID_BLOCK_LIVE || !md->dirty[i])
			continue;
		if (list) {
			list[nr].volume = hybrid_metadata_volume_of(md, md->instance[i]);
			list[nr].block = i;
			list[nr].oblock = md->oblock[i];
		}
		nr++;
	}
	return nr;
}

static int each_run(const struct hybrid_metadata *md, const struct dirty_block *b,
		    int (*fn)(void *context, u32 volume, u64 sector, u32 count,
			      u64 cache_sector), void *context)
{
	const struct hybrid_geometry *g = md->g;
	u64 dirty = md->dirty[b->block], sector, end = hybrid_volume_reach(&md->volume[b->volume]);
	u32 at, n;
	int r = 0;

	for (at = 0; !r && at < g->granules; at += n) {
		n = 1;
		if (!(dirty >> at & 1))
			continue;
		while (at + n < g->granules && dirty >> (at + n) & 1)
			n++;
		sector = (b->oblock << g->block_shift) + ((u64)at << g->granule_shift);
		if (sector >= end)
			break;
		r = fn(context, b->volume, sector,
		       min_t(u64, (u64)n << g->granule_shift, end - sector),
		       hybrid_data_sector(g, to_cblock(b->block)) + ((u64)at << g->granule_shift));
	}
	return r;
}

int hybrid_dirty_each(const struct hybrid_metadata *md,
		      int (*fn)(void *context, u32 volume, u64 sector, u32 count,
				u64 cache_sector), void *context)
{
	size_t nr = collect(md, NULL), i;
	struct dirty_block *list = malloc((nr + 1) * sizeof(*list));
	int r = 0;

	if (!list)
		return hybrid_nomem();
	collect(md, list);
	qsort(list, nr, sizeof(*list), compare_blocks);
	for (i = 0; !r && i < nr; i++)
		r = each_run(md, &list[i], fn, context);
	free(list);
	return r;
}
