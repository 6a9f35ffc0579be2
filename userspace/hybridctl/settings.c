// SPDX-License-Identifier: GPL-2.0-or-later
/* set and get. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "ephemeral.h"
#include "errors.h"
#include "look.h"
#include "settings.h"

/* set ---------------------------------------------------------------------- */

static int fail_value(const char *key, const char *value, const char *next)
{
	return hybrid_fail(HYBRID_USAGE, next, "%s=%s is not valid", key, value);
}

/* @r: result of hybrid_parse_setting(); 0: the value is out of bounds. */
static int fail_number(const char *key, const char *value, const char *unit, int64_t lowest,
		       int64_t highest, int r)
{
	bool size = strchr(unit, 'B');
	char next[120];

	snprintf(next, sizeof(next), "give %lld to %lld %s%s", (long long)lowest,
		 (long long)highest, unit, size ? ", or a size with its unit, such as 10m" : "");
	if (r == -EINVAL)
		return hybrid_fail(HYBRID_USAGE, next, "%s=%s is not a number of %s%s", key, value,
				   unit, size ? " or a size" : "");
	if (r == -EDOM)
		return hybrid_fail(HYBRID_USAGE, next, "%s=%s is not a whole number of %s", key,
				   value, unit);
	return hybrid_fail(HYBRID_USAGE, next, "%s=%s is out of bounds", key, value);
}

static int volume_message(char *message, size_t len, const char *key, const char *value)
{
	uint64_t sectors;
	int r;

	if (!strcmp(key, "mode")) {
		if (hybrid_mode_parse(value) < 0)
			return fail_value(key, value,
					  "use writethrough, writeback, writearound or passthrough");
		snprintf(message, len, "mode %s", value);
		return 0;
	}
	if (!strcmp(key, "cutoff")) {
		r = parse_sectors(key, value, &sectors);
		if (!r)
			snprintf(message, len, "cutoff %llu", (unsigned long long)sectors);
		return r;
	}
	return hybrid_fail(HYBRID_USAGE, "a volume has mode and cutoff",
			   "no such setting of a volume: %s", key);
}

static int pool_message(char *message, size_t len, const char *key, const char *value,
			bool test)
{
	uint64_t number;
	int r;

	if (!strcmp(key, "policy")) {
		r = check_policy(value, test);
		if (r)
			return r;
		snprintf(message, len, "policy %s", value);
		return 0;
	}
#define X(name, unit, lowest, highest) \
	if (!strcmp(key, #name)) { \
		r = hybrid_parse_setting(value, unit, &number); \
		if (r || number > (highest) || (int64_t)number < (lowest)) \
			return fail_number(key, value, unit, lowest, highest, r); \
		snprintf(message, len, "set " #name " %llu", (unsigned long long)number); \
		return 0; \
	}
	HYBRID_POOL_TUNABLES(X)
#undef X
	return hybrid_fail(HYBRID_USAGE,
			   "a pool has high_watermark, low_watermark, writeback_rate, commit_interval, "
			   "endurance, metadata_share, trim_rate, read_error_limit, "
			   "write_error_limit, policy",
			   "no such setting of a pool: %s", key);
}

/* @send false: only check. */
static int set_one(const struct command_line *cl, const struct hybrid_node *node,
		   const char *assignment, bool send)
{
	const char *value = strchr(assignment, '=');
	char key[64], message[128];
	int r;

	if (!value || value == assignment || (size_t)(value - assignment) >= sizeof(key))
		return hybrid_fail(HYBRID_USAGE, "write it as mode=writeback",
				   "%s is not KEY=VALUE", assignment);
	snprintf(key, sizeof(key), "%.*s", (int)(value - assignment), assignment);
	value++;
	if (node->kind == HYBRID_POOL)
		r = pool_message(message, sizeof(message), key, value, cl->given[OPT_TEST]);
	else
		r = volume_message(message, sizeof(message), key, value);
	if (!r && node->kind != HYBRID_POOL && !strcmp(key, "mode"))
		r = check_mode(cl, node->v.table.inplace, hybrid_mode_parse(value));
	if (r || !send)
		return r;
	if (cl->given[OPT_TEST]) {
		printf("dmsetup message %s 0 %s\n", node->name, message);
		return 0;
	}
	return hybrid_dm_message(node->name, message, NULL);
}

/* Index of the assignment of @key; 0: there is none. */
static int find_assignment(const struct command_line *cl, const char *key)
{
	size_t len = strlen(key);
	int i;

	for (i = cl->argc - 1; i > 0; i--)
		if (!strncmp(cl->argv[i], key, len) && cl->argv[i][len] == '=')
			break;
	return i;
}

static int check_once(const struct command_line *cl, int at)
{
	char key[64];

	snprintf(key, sizeof(key), "%.*s", (int)strcspn(cl->argv[at], "="), cl->argv[at]);
	if (find_assignment(cl, key) == at)
		return 0;
	return hybrid_fail(HYBRID_USAGE, "leave one of them out", "%s is given twice", key);
}

/* @at: index of the assignment, or 0; @now: the present value. */
static int64_t value_after(const struct command_line *cl, int at, int64_t now)
{
	return at ? strtoll(strchr(cl->argv[at], '=') + 1, NULL, 10) : now;
}

/* Low must never be above high, not even in between: the kernel takes one after the other. */
static int order_watermarks(const struct command_line *cl, const struct hybrid_node *pool)
{
	int high = find_assignment(cl, "high_watermark"), low = find_assignment(cl, "low_watermark");
	int64_t high_now = pool->p.status.high_watermark;
	int64_t high_then = value_after(cl, high, high_now);
	int64_t low_then = value_after(cl, low, pool->p.status.low_watermark);
	char *arg;

	if ((high || low) && low_then > high_then)
		return hybrid_fail(HYBRID_USAGE, high && low ? "give a lower low_watermark" :
				   "give both in one command",
				   "low_watermark %lld would be above high_watermark %lld",
				   (long long)low_then, (long long)high_then);
	if (!high || !low || (high_then >= high_now) == (high < low))
		return 0;
	arg = cl->argv[high];
	cl->argv[high] = cl->argv[low];
	cl->argv[low] = arg;
	return 0;
}

/* Reads the origin, so it is not called under the lock. */
static int check_origin(const struct hybrid_node *volume)
{
	struct hybrid_looks looks = {};
	char path[HYBRID_PATH_MAX];
	const struct hybrid_look *l;
	int r;

	hybrid_node_device(volume, path, sizeof(path));
	r = hybrid_looks_add(&looks, path, HYBRID_OPEN_QUIET, 0);
	if (!r)
		r = hybrid_looks_run(&looks);
	l = looks.look;
	if (!r && l->r == -ETIMEDOUT)
		r = hybrid_fail(HYBRID_BUSY, HYBRID_NEXT_SILENT, "%s does not answer", path);
	if (!r && !l->r && l->member.sb.flags & HYBRID_SB_EPHEMERAL)
		r = fail_ephemeral_writeback(volume->name);
	hybrid_looks_free(&looks);
	return r;
}

/* Refuses writeback for a volume whose cache device may come up blank. */
static int check_writeback(const struct command_line *cl)
{
	int at = find_assignment(cl, "mode"), r;
	struct hybrid_inventory inv;
	const struct hybrid_node *node;

	if (!at || strcmp(cl->argv[at], "mode=writeback"))
		return 0;
	r = hybrid_inventory_load(&inv, HYBRID_LOAD_ACTIVE, NULL, 0);
	node = r ? NULL : hybrid_find(&inv, cl->argv[0], 1U << HYBRID_VOLUME);
	if (node && node->active && node->below && !node->v.table.inplace)
		r = check_origin(node);
	hybrid_inventory_free(&inv);
	return r;
}

int command_set(const struct command_line *cl)
{
	struct hybrid_inventory inv;
	struct hybrid_node *node;
	int i, r;

	r = hybrid_dm_check(false);
	if (!r)
		r = check_writeback(cl);
	if (!r)
		r = lock_tools();
	if (r)
		return r;
	r = hybrid_inventory_load(&inv, HYBRID_LOAD_ACTIVE, NULL, 0);
	if (!r)
		r = hybrid_find_active(&inv, cl->argv[0], HYBRID_ANY, &node);
	/* All are checked before the first is sent */
	for (i = 1; i < cl->argc && !r; i++) {
		r = set_one(cl, node, cl->argv[i], false);
		if (!r)
			r = check_once(cl, i);
	}
	if (!r && node->kind == HYBRID_POOL)
		r = order_watermarks(cl, node);
	for (i = 1; i < cl->argc && !r; i++) {
		r = set_one(cl, node, cl->argv[i], true);
		if (r && i > 1)
			r = HYBRID_PARTIAL;
	}
	hybrid_inventory_free(&inv);
	return r;
}

/* get ---------------------------------------------------------------------- */

static const struct hybrid_field get_fields[] = {
	{ "key", "Key", HYBRID_FIELD_TEXT, "name of the setting or counter" },
	{ "value", "Value", HYBRID_FIELD_TEXT, "its value" },
};

const struct hybrid_fields get_report = { get_fields, 2, "key,value" };

struct getter {
	struct hybrid_report *report;
	const char *wanted;	/* NULL: all */
	bool bare;		/* print it, make no row */
	bool found, nomem;
};

static void get_text(struct getter *g, const char *key, const char *value)
{
	struct hybrid_value *row;

	if (g->wanted && strcmp(g->wanted, key))
		return;
	g->found = true;
	if (g->bare) {
		puts(value);
		return;
	}
	row = hybrid_report_row(g->report);
	if (!row) {
		g->nomem = true;
		return;
	}
	hybrid_set_text(&row[0], key);
	hybrid_set_text(&row[1], value);
}

static void get_number(struct getter *g, const char *key, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	get_text(g, key, text);
}

static void get_pool(struct getter *g, const struct hybrid_node *node)
{
	const struct hybrid_pool_status *s = &node->p.status;

#define X(name) get_text(g, #name, s->name);
	HYBRID_POOL_STATUS_WORDS(X)
#undef X
#define X(name) get_number(g, #name, s->name);
	HYBRID_POOL_STATUS_NUMBERS(X)
#undef X
}

static void get_volume(struct getter *g, const struct hybrid_node *node)
{
	struct hybrid_volume_status copy = node->v.status, *s = &copy;

	/* In bytes, as set takes it */
	s->cutoff *= 512;
#define X(name) get_text(g, #name, s->name);
	HYBRID_VOLUME_STATUS_WORDS(X)
#undef X
#define X(name) get_number(g, #name, s->name);
	HYBRID_VOLUME_STATUS_NUMBERS(X)
#undef X
}

static int get(const struct command_line *cl, const struct hybrid_inventory *inv,
	       struct hybrid_node *node)
{
	struct hybrid_report_options opts;
	struct getter g = { .wanted = cl->argc > 1 ? cl->argv[1] : NULL };
	int r;

	(void)inv;
	r = report_options(cl, &opts);
	if (r)
		return r;
	g.bare = g.wanted && !opts.json && !opts.export && !opts.fields;
	g.report = hybrid_report_new("settings", &get_report);
	if (!g.report)
		return hybrid_nomem();
	if (node->kind == HYBRID_POOL)
		get_pool(&g, node);
	else
		get_volume(&g, node);
	if (g.nomem)
		r = hybrid_nomem();
	else if (g.wanted && !g.found)
		r = hybrid_fail(HYBRID_USAGE, "leave out KEY to see all",
				"%s has no key %s", node->name, g.wanted);
	else if (!g.bare)
		r = hybrid_report_print(g.report, &opts);
	hybrid_report_free(g.report);
	return r;
}

int command_get(const struct command_line *cl)
{
	return with_active(cl, HYBRID_ANY, get);
}
