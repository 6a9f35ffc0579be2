// SPDX-License-Identifier: GPL-2.0-or-later
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "errors.h"
#include "health.h"
#include "vacancies.h"
#include "wear.h"

/* For people --------------------------------------------------------------- */

static void print_line(const char *key, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void print_line(const char *key, const char *fmt, ...)
{
	va_list ap;

	printf("  %9s: ", key);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static void print_pool(const struct hybrid_node *node)
{
	const struct hybrid_pool_status *s = &node->p.status;
	uint64_t block = s->block_sectors * 512;
	char path[HYBRID_PATH_MAX], kinds[128], a[32], b[32], c[32];

	print_line("cache", "%s, %llu blocks of %s, policy %s",
		   hybrid_node_device(node, path, sizeof(path)),
		   (unsigned long long)s->blocks, hybrid_size_text(a, block), s->policy);
	print_line("data", "%s used, %s dirty, of %s", hybrid_size_text(a, s->used * block),
		   hybrid_size_text(b, dirty_bytes(node)), hybrid_size_text(c, s->blocks * block));
	if (s->metadata)
		print_line("metadata", "%s of the used space, evicted last",
			   hybrid_size_text(a, s->metadata * block));
	print_line("volumes", "%llu active", (unsigned long long)s->volumes);
	print_line("journal", "%llu of %llu blocks used, %llu writes, %llu checkpoints",
		   (unsigned long long)s->journal_used, (unsigned long long)s->journal_blocks,
		   (unsigned long long)s->journal_writes, (unsigned long long)s->checkpoints);
	print_line("memory", "%s, %llu bytes for each block", hybrid_size_text(a, s->ram),
		   (unsigned long long)s->ram_per_block);
	if (s->evictions || s->errors)
		print_line("counts", "%llu evictions, %llu errors of the cache device",
			   (unsigned long long)s->evictions, (unsigned long long)s->errors);
	if (errors_by_kind(node, kinds, sizeof(kinds)))
		print_line("errors", "%s", kinds);
	if (s->total_written)
		print_line("written", "%s to the cache device, %s since it was formatted",
			   hybrid_size_text(a, s->cache_written * 512),
			   hybrid_size_text(b, s->total_written * 512));
	if (s->endurance && s->endurance_owed)
		print_line("endurance", "%s a day, %s more than that was written",
			   hybrid_size_text(a, s->endurance << 20),
			   hybrid_size_text(b, s->endurance_owed * 512));
	else if (s->endurance)
		print_line("endurance", "%s a day, %s saved up",
			   hybrid_size_text(a, s->endurance << 20),
			   hybrid_size_text(b, s->endurance_left * 512));
	if (s->retired)
		print_line("retired", "blocks: %llu, until the pool is loaded again",
			   (unsigned long long)s->retired);
}

static void print_wear(const struct wears *wears)
{
	char text[3 * HYBRID_PATH_MAX];
	unsigned int i;

	for (i = 0; i < wears->nr; i++)
		print_line("wear", "%s", wear_text(&wears->drive[i], text, sizeof(text)));
}

static void print_hits(const char *key, uint64_t hits, uint64_t misses)
{
	uint64_t all = hits + misses;

	if (!all)
		return;
	print_line(key, "%llu, %.1f%% hits", (unsigned long long)all,
		   100.0 * (double)hits / (double)all);
}

static void print_bypass(const struct hybrid_volume_status *s)
{
	const struct {
		uint64_t count;
		const char *why;
	} reasons[] = {
		{ s->bypass_sequential, "sequential beyond the cutoff" },
		{ s->bypass_policy, "not wanted by the policy" },
		{ s->bypass_full, "no free block (all dirty or in use)" },
		{ s->bypass_busy, "block in use by other I/O" },
		{ s->bypass_mode, "not cached in this mode" },
		{ s->bypass_partial, "part of a granule that is not cached" },
		{ s->bypass_once, "read once: not worth a fill" },
	};
	unsigned int i;

	for (i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (reasons[i].count)
			print_line("bypassed", "%llu %s", (unsigned long long)reasons[i].count,
				   reasons[i].why);
}

/* Block size in bytes; 0: the pool is not active. */
static uint64_t block_of(const struct hybrid_node *volume)
{
	return volume->pool && volume->pool->active ?
	       volume->pool->p.status.block_sectors * 512 : 0;
}

static void print_pool_of(const struct hybrid_node *volume)
{
	print_line("pool", "%s, volume %u", volume->pool ? volume->pool->name : "?",
		   volume->v.table.id);
}

static void print_volume(const struct hybrid_node *node)
{
	const struct hybrid_volume_status *s = &node->v.status;
	uint64_t block = block_of(node);
	char path[HYBRID_PATH_MAX], a[32], b[32];

	print_line("mode", "%s%s", s->mode, node->v.table.inplace ? ", in place" : "");
	print_pool_of(node);
	print_line("origin", "%s, %s", hybrid_node_device(node, path, sizeof(path)),
		   hybrid_size_text(a, node->dm.sectors * 512));
	print_line("cached", "%s, %s dirty", hybrid_size_text(a, s->cached * block),
		   hybrid_size_text(b, dirty_bytes(node)));
	if (s->lost)
		print_line("lost", "up to %s: hybridctl lost lists it",
			   hybrid_size_text(a, dirty_bytes(node)));
	print_hits("reads", s->read_hits, s->read_misses);
	print_hits("writes", s->write_hits, s->write_misses);
	print_bypass(s);
	if (s->fills || s->writebacks)
		print_line("moved", "%llu blocks filled, %llu written back",
			   (unsigned long long)s->fills, (unsigned long long)s->writebacks);
	if (s->cache_errors || s->origin_errors)
		print_line("errors", "%llu of the cache, %llu of the origin",
			   (unsigned long long)s->cache_errors,
			   (unsigned long long)s->origin_errors);
}

/* A linear volume: none of its I/O goes through the module. */
static void print_linear(const struct hybrid_node *node)
{
	char path[HYBRID_PATH_MAX], a[32];

	print_line("origin", "%s, %s", hybrid_node_device(node, path, sizeof(path)),
		   hybrid_size_text(a, node->dm.sectors * 512));
}

static void print_closed(const struct hybrid_node *node)
{
	char a[32];

	print_line("mode", "%s", node->v.status.mode);
	print_pool_of(node);
	print_line("cached", "%s dirty", hybrid_size_text(a, dirty_bytes(node)));
}

static void print_text(const struct hybrid_node *node, const struct health *h,
		       const struct wears *wears)
{
	printf("%s %s\n", node->kind == HYBRID_POOL ? "pool" : "volume", node->name);
	print_line("state", "%s", h->state);
	if (h->reason[0])
		print_line("reason", "%s", h->reason);
	if (h->action[0])
		print_line("action", "%s", h->action);
	if (node->closed)
		print_closed(node);
	if (!node->active || !node->dm.live)
		return;
	if (node->kind == HYBRID_POOL)
		print_pool(node);
	else if (node->dm.alone)
		print_linear(node);
	else
		print_volume(node);
	print_wear(wears);
}

/* For programs ------------------------------------------------------------- */

static void add_text(struct json_object *o, const char *key, const char *value)
{
	json_object_object_add(o, key, value && value[0] ? json_object_new_string(value) : NULL);
}

static void add_counters(struct json_object *o, const struct hybrid_node *node)
{
	struct json_object *counters = json_object_new_object();

	json_object_object_add(o, "counters", counters);
#define X(name) json_object_object_add(counters, #name, json_object_new_uint64(s->name));
	if (node->kind == HYBRID_POOL) {
		const struct hybrid_pool_status *s = &node->p.status;

		add_text(o, "policy", s->policy);
		HYBRID_POOL_STATUS_NUMBERS(X)
	} else {
		const struct hybrid_volume_status *s = &node->v.status;

		add_text(o, "mode", s->mode);
		HYBRID_VOLUME_STATUS_NUMBERS(X)
	}
#undef X
}

static void add_dirty(struct json_object *o, const struct hybrid_node *node)
{
	json_object_object_add(o, "dirty", json_object_new_uint64(node->v.status.dirty));
	json_object_object_add(o, "dirty_sectors",
			       json_object_new_uint64(dirty_bytes(node) / 512));
}

static void add_percent(struct json_object *o, const char *key, int percent)
{
	json_object_object_add(o, key, percent < 0 ? NULL : json_object_new_int(percent));
}

static void add_wear(struct json_object *o, const struct wears *wears)
{
	struct json_object *drives = json_object_new_array(), *drive;
	const struct wear *w;

	json_object_object_add(o, "wear", drives);
	for (w = wears->drive; w < wears->drive + wears->nr; w++) {
		drive = json_object_new_object();
		json_object_array_add(drives, drive);
		add_text(drive, "drive", w->path);
		json_object_object_add(drive, "answers", json_object_new_boolean(!w->silent));
		add_percent(drive, "used_percent", w->used);
		add_percent(drive, "spare_percent", w->spare);
		json_object_object_add(drive, "power_on_hours",
				       w->hours ? json_object_new_int(w->hours) : NULL);
		add_text(drive, "used_up_by", w->end);
		add_text(drive, "warning", w->warning);
	}
}

static struct json_object *node_json(const struct hybrid_node *node, const struct health *h,
				     const struct wears *wears)
{
	struct json_object *o = json_object_new_object();
	char path[HYBRID_PATH_MAX], uuid[HYBRID_UUID_TEXT], number[32];
	uint64_t ratio;

	add_text(o, "name", node->name);
	add_text(o, "kind", node->kind == HYBRID_POOL ? "pool" : "volume");
	add_text(o, "uuid", hybrid_uuid_text(uuid, node->uuid));
	add_text(o, "state", h->state);
	json_object_object_add(o, "healthy", json_object_new_boolean(h->healthy));
	add_text(o, "reason", h->reason);
	add_text(o, "action", h->action);
	if (node->kind == HYBRID_VOLUME)
		add_text(o, "pool", node->pool ? node->pool->name : NULL);
	add_text(o, node->kind == HYBRID_POOL ? "cache" : "origin",
		 hybrid_node_device(node, path, sizeof(path)));
	if (hit_ratio(node, true, true, &ratio)) {
		snprintf(number, sizeof(number), "%.2f", (double)ratio / 100);
		json_object_object_add(o, "hit_ratio",
				       json_object_new_double_s((double)ratio / 100, number));
	}
	if (node->kind == HYBRID_POOL)
		add_wear(o, wears);
	if (node->active && node->dm.live)
		add_counters(o, node);
	else if (node->closed)
		add_dirty(o, node);
	return o;
}

/* Both --------------------------------------------------------------------- */

struct printer {
	const struct command_line *cl;
	struct json_object *rows;	/* NULL: text */
	unsigned int shown;
	bool unhealthy;
};

/* A drive that warns makes its pool unhealthy; problems of the pool itself come first. */
static void judge_wear(const struct hybrid_node *pool, const struct wears *wears, struct health *h)
{
	const struct wear *w = wears->drive, *end = w + wears->nr;

	while (w < end && !w->warning)
		w++;
	if (w == end || !h->healthy)
		return;
	h->healthy = false;
	snprintf(h->reason, sizeof(h->reason), "%.128s warns: %s", w->path, w->warning);
	if (w->replace)
		snprintf(h->action, sizeof(h->action), "hybridctl replace-cache %s --cache DEVICE",
			 pool->name);
	else
		snprintf(h->action, sizeof(h->action), "check its cooling");
}

static void print_node(struct printer *p, const struct hybrid_node *node)
{
	struct wears wears = {};
	struct health health;

	judge(node, &health);
	explain_vacancy(node, &health);
	if (node->kind == HYBRID_POOL && node->active && node->dm.live) {
		wear_read(node->below, &wears);
		judge_wear(node, &wears, &health);
	}
	p->unhealthy |= !health.healthy;
	if (p->cl->given[OPT_UNHEALTHY] && health.healthy)
		return;
	if (p->rows) {
		json_object_array_add(p->rows, node_json(node, &health, &wears));
		return;
	}
	if (p->shown++)
		putchar('\n');
	print_text(node, &health, &wears);
}

static void print_status(struct printer *p, struct hybrid_inventory *inv,
			 const struct hybrid_node *only)
{
	struct json_object *top = NULL;
	unsigned int i;

	if (p->cl->given[OPT_JSON]) {
		top = json_object_new_object();
		p->rows = json_object_new_array();
		json_object_object_add(top, "status", p->rows);
	}
	for (i = 0; i < inv->nr_nodes; i++)
		if (!only || only == &inv->nodes[i])
			print_node(p, &inv->nodes[i]);
	if (top) {
		puts(json_object_to_json_string_ext(top, JSON_C_TO_STRING_PRETTY |
						    JSON_C_TO_STRING_NOSLASHESCAPE));
		json_object_put(top);
	} else if (!p->shown) {
		hybrid_note(p->cl->given[OPT_UNHEALTHY] ? "all pools and volumes are healthy" :
			    "no pool or volume is known");
	}
}

int command_status(const struct command_line *cl)
{
	struct printer printer = { .cl = cl };
	struct hybrid_node *node = NULL;
	struct hybrid_inventory inv;
	int r;

	r = hybrid_inventory_load(&inv, HYBRID_LOAD_ALL | HYBRID_LOAD_CLOSED, NULL, 0);
	if (!r && cl->argc)
		r = hybrid_find_or_fail(&inv, cl->argv[0], HYBRID_ANY, &node);
	if (!r)
		explain_unknown(&inv);
	if (!r) {
		print_status(&printer, &inv, node);
		r = printer.unhealthy ? HYBRID_DEGRADED : 0;
	}
	hybrid_inventory_free(&inv);
	return r;
}
