// SPDX-License-Identifier: GPL-2.0-or-later
/* list, scan and table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "errors.h"
#include "fields.def"
#include "health.h"
#include "list.h"
#include "owner.h"
#include "udev.h"

/* list --------------------------------------------------------------------- */

enum {
#define X(id, name, heading, type, text) LIST_##id,
	LIST_FIELDS(X)
#undef X
	NR_LIST_FIELDS
};

static const struct hybrid_field list_fields[] = {
#define X(id, name, heading, type, text) { name, heading, HYBRID_FIELD_##type, text },
	LIST_FIELDS(X)
#undef X
};

const struct hybrid_fields list_report = {
	list_fields, NR_LIST_FIELDS,
	"name,kind,state,mode,pool,cache,origin,size,dirty,hit_ratio",
};

static void list_pool(struct hybrid_value *row, const struct hybrid_node *node)
{
	const struct hybrid_pool_status *s = &node->p.status;
	uint64_t block = (uint64_t)node->p.table.block_sectors * 512;
	char path[HYBRID_PATH_MAX];

	hybrid_set_text(&row[LIST_CACHE], hybrid_node_device(node, path, sizeof(path)));
	if (node->active) {
		hybrid_set_number(&row[LIST_SIZE], s->blocks * block);
		hybrid_set_number(&row[LIST_USED], s->used * block);
		hybrid_set_number(&row[LIST_DIRTY], dirty_bytes(node));
		hybrid_set_number(&row[LIST_BLOCK], block);
		hybrid_set_text(&row[LIST_POLICY], s->policy);
	} else if (node->member) {
		const struct hybrid_geometry *g = &node->member->sb.geometry;

		block = (uint64_t)g->block_sectors * 512;
		hybrid_set_number(&row[LIST_SIZE], g->nr_blocks * block);
		hybrid_set_number(&row[LIST_BLOCK], block);
		hybrid_set_text(&row[LIST_POLICY], node->member->sb.policy);
	}
}

static void list_volume(struct hybrid_value *row, const struct hybrid_node *node)
{
	const struct hybrid_volume_status *s = &node->v.status;
	const struct hybrid_node *pool = node->pool;
	uint64_t block = 0, ratio;
	char path[HYBRID_PATH_MAX];

	hybrid_set_text(&row[LIST_ORIGIN], hybrid_node_device(node, path, sizeof(path)));
	if (pool) {
		hybrid_set_text(&row[LIST_POOL], pool->name);
		hybrid_set_text(&row[LIST_CACHE],
				hybrid_node_device(pool, path, sizeof(path)));
	}
	if (!node->active && !node->closed) {
		if (node->member)
			hybrid_set_number(&row[LIST_SIZE],
					  node->member->sb.data_sectors * 512);
		return;
	}
	hybrid_set_number(&row[LIST_SIZE], node->dm.sectors * 512);
	hybrid_set_text(&row[LIST_MODE], s->mode);
	if (!node->dm.alone)
		hybrid_set_number(&row[LIST_ID], node->v.table.id);
	/* A volume that runs alone, or was never resumed, has neither mode nor cutoff */
	if (!node->dm.alone && s->mode[0])
		hybrid_set_number(&row[LIST_CUTOFF], s->cutoff * 512);
	if (pool && pool->active) {
		block = (uint64_t)pool->p.table.block_sectors * 512;
		if (!node->closed)
			hybrid_set_number(&row[LIST_USED], s->cached * block);
		hybrid_set_number(&row[LIST_DIRTY], dirty_bytes(node));
		hybrid_set_number(&row[LIST_BLOCK], block);
		hybrid_set_text(&row[LIST_POLICY], pool->p.status.policy);
	}
	if (hit_ratio(node, true, true, &ratio))
		hybrid_set_number(&row[LIST_HIT], ratio);
	if (hit_ratio(node, true, false, &ratio))
		hybrid_set_number(&row[LIST_READ_HIT], ratio);
	if (hit_ratio(node, false, true, &ratio))
		hybrid_set_number(&row[LIST_WRITE_HIT], ratio);
}

/* @branch: drawn before the name in a tree, or "". */
static int list_node(struct hybrid_report *report, const struct hybrid_node *node,
		     const char *branch)
{
	char name[HYBRID_NAME_SIZE + 8];
	const struct hybrid_member *owner = owning_member(node);
	struct hybrid_value *row = hybrid_report_row(report);
	char text[HYBRID_UUID_TEXT];
	struct health health;

	if (!row)
		return hybrid_nomem();
	judge(node, &health);
	snprintf(name, sizeof(name), "%s%s", branch, node->name);
	hybrid_set_text(&row[LIST_NAME], name);
	hybrid_set_text(&row[LIST_KIND], node->kind == HYBRID_POOL ? "pool" : "volume");
	hybrid_set_text(&row[LIST_STATE], health.state);
	if (health.reason[0])
		hybrid_set_text(&row[LIST_WHY], health.reason);
	hybrid_set_text(&row[LIST_UUID], hybrid_uuid_text(text, node->uuid));
	if (!hybrid_uuid_is_null(node->pool_uuid))
		hybrid_set_text(&row[LIST_POOL_UUID],
				hybrid_uuid_text(text, node->pool_uuid));
	if (owner && owner->ok && !hybrid_uuid_is_null(owner->sb.host_id))
		hybrid_set_text(&row[LIST_HOST_ID], hybrid_uuid_text(text, owner->sb.host_id));
	if (node->active)
		hybrid_set_text(&row[LIST_DEVICE],
				hybrid_devno_text(node->dm.devno, text, sizeof(text)));
	if (node->kind == HYBRID_POOL)
		list_pool(row, node);
	else
		list_volume(row, node);
	return 0;
}

/* Lists a member that cannot be used, such as a clone, as the pool or volume that it would be. */
static int list_refused(struct hybrid_report *report, const struct hybrid_member *m)
{
	bool pool = m->sb.role == HYBRID_ROLE_CACHE;
	char text[HYBRID_UUID_TEXT];
	struct hybrid_value *row;

	if (m->ok || !m->sb.role)
		return 0;
	row = hybrid_report_row(report);
	if (!row)
		return hybrid_nomem();
	hybrid_set_text(&row[LIST_NAME], m->sb.name);
	hybrid_set_text(&row[LIST_KIND], pool ? "pool" : "volume");
	hybrid_set_text(&row[LIST_STATE], "refused");
	hybrid_set_text(&row[pool ? LIST_CACHE : LIST_ORIGIN], m->path);
	hybrid_set_text(&row[LIST_UUID],
			hybrid_uuid_text(text, pool ? m->sb.pool_uuid : m->sb.volume_uuid));
	if (!hybrid_uuid_is_null(m->sb.pool_uuid))
		hybrid_set_text(&row[LIST_POOL_UUID], hybrid_uuid_text(text, m->sb.pool_uuid));
	hybrid_set_text(&row[LIST_WHY], m->why);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct hybrid_node * const *)a)->name,
		      (*(const struct hybrid_node * const *)b)->name);
}

/* Lists the volumes of @pool below it; NULL: the volumes without a pool here. */
static int list_below(struct hybrid_report *report, const struct hybrid_node **sorted,
		      unsigned int nr, const struct hybrid_node *pool)
{
	unsigned int i, left = 0;
	int r = 0;

	for (i = 0; i < nr; i++)
		left += sorted[i]->kind == HYBRID_VOLUME && sorted[i]->pool == pool;
	for (i = 0; i < nr && left && !r; i++)
		if (sorted[i]->kind == HYBRID_VOLUME && sorted[i]->pool == pool)
			r = list_node(report, sorted[i], !pool ? "" : --left ? "|-" : "`-");
	return r;
}

static int list_tree(struct hybrid_report *report, const struct hybrid_inventory *inv,
		     const struct hybrid_node *root)
{
	const struct hybrid_node **sorted = calloc(inv->nr_nodes + 1, sizeof(*sorted));
	unsigned int i;
	int r = 0;

	if (!sorted)
		return hybrid_nomem();
	for (i = 0; i < inv->nr_nodes; i++)
		sorted[i] = &inv->nodes[i];
	qsort(sorted, inv->nr_nodes, sizeof(*sorted), by_name);
	for (i = 0; i < inv->nr_nodes && !r; i++) {
		if (sorted[i]->kind != HYBRID_POOL || (root && root != sorted[i]))
			continue;
		r = list_node(report, sorted[i], "");
		if (!r)
			r = list_below(report, sorted, inv->nr_nodes, sorted[i]);
	}
	if (!r && !root)
		r = list_below(report, sorted, inv->nr_nodes, NULL);
	free(sorted);
	return r;
}

/* A volume is shown below its pool, with the pool's other volumes. */
static int list_named_tree(struct hybrid_report *report, struct hybrid_inventory *inv,
			   const char *name)
{
	struct hybrid_node *node;
	int r = hybrid_find_or_fail(inv, name, HYBRID_ANY, &node);

	if (!r && node->kind == HYBRID_VOLUME && !node->pool)
		return list_node(report, node, "");
	return r ? r : list_tree(report, inv, node->kind == HYBRID_POOL ? node : node->pool);
}

static int list(const struct command_line *cl, struct hybrid_inventory *inv,
		struct hybrid_report *report)
{
	struct hybrid_node *node;
	unsigned int i;
	bool tree = cl->given[OPT_TREE];
	int a, r = 0;

	if (tree && !cl->argc)
		r = list_tree(report, inv, NULL);
	for (i = 0; i < inv->nr_nodes && !cl->argc && !tree && !r; i++)
		r = list_node(report, &inv->nodes[i], "");
	for (i = 0; i < inv->nr_members && !cl->argc && !r; i++)
		r = list_refused(report, &inv->members[i]);
	for (a = 0; a < cl->argc && !r; a++) {
		if (tree) {
			r = list_named_tree(report, inv, cl->argv[a]);
			continue;
		}
		r = hybrid_find_or_fail(inv, cl->argv[a], HYBRID_ANY, &node);
		if (!r)
			r = list_node(report, node, "");
	}
	return r;
}

int command_list(const struct command_line *cl)
{
	struct hybrid_report_options opts;
	struct hybrid_inventory inv;
	struct hybrid_report *report;
	int r;

	r = report_options(cl, &opts);
	if (r)
		return r;
	if (cl->given[OPT_TREE] && (opts.sort || opts.json || opts.export))
		return hybrid_fail(HYBRID_USAGE, "leave out one of them",
				   "--tree excludes --sort, --json and --export");
	if (!opts.sort && !cl->argc && !cl->given[OPT_TREE])
		opts.sort = "kind,name";
	report = hybrid_report_new("volumes", &list_report);
	if (!report)
		return hybrid_nomem();
	r = hybrid_inventory_load(&inv, HYBRID_LOAD_ALL | HYBRID_LOAD_CLOSED, NULL, 0);
	if (!r)
		explain_unknown(&inv);
	if (!r)
		r = list(cl, &inv, report);
	if (!r)
		r = hybrid_report_print(report, &opts);
	hybrid_report_free(report);
	hybrid_inventory_free(&inv);
	return r;
}

/* scan --------------------------------------------------------------------- */

enum {
#define X(id, name, heading, type, text) SCAN_##id,
	SCAN_FIELDS(X)
#undef X
	NR_SCAN_FIELDS
};

static const struct hybrid_field scan_fields[] = {
#define X(id, name, heading, type, text) { name, heading, HYBRID_FIELD_##type, text },
	SCAN_FIELDS(X)
#undef X
};

const struct hybrid_fields scan_report = {
	scan_fields, NR_SCAN_FIELDS,
	"device,role,state,name,size,data_offset,pool_uuid,why",
};

static void scan_superblock(struct hybrid_value *row, const struct hybrid_sb *sb)
{
	char text[HYBRID_UUID_TEXT];

	hybrid_set_text(&row[SCAN_NAME], sb->name);
	if (!hybrid_uuid_is_null(sb->pool_uuid))
		hybrid_set_text(&row[SCAN_POOL_UUID], hybrid_uuid_text(text, sb->pool_uuid));
	hybrid_set_text(&row[SCAN_MEMBER_UUID], hybrid_uuid_text(text, sb->member_uuid));
	hybrid_set_number(&row[SCAN_SIZE], sb->member_sectors * 512);
	if (!hybrid_uuid_is_null(sb->host_id))
		hybrid_set_text(&row[SCAN_HOST_ID], hybrid_uuid_text(text, sb->host_id));
	hybrid_set_number(&row[SCAN_SEQUENCE], sb->sequence);
	if (sb->role == HYBRID_ROLE_CACHE) {
		hybrid_set_number(&row[SCAN_OFFSET], sb->geometry.data_sector * 512);
		hybrid_set_number(&row[SCAN_BLOCK],
				  (uint64_t)sb->geometry.block_sectors * 512);
		hybrid_set_text(&row[SCAN_POLICY], sb->policy);
		return;
	}
	hybrid_set_text(&row[SCAN_VOLUME_UUID], hybrid_uuid_text(text, sb->volume_uuid));
	hybrid_set_number(&row[SCAN_OFFSET], sb->data_sector * 512);
	if (sb->role == HYBRID_ROLE_ORIGIN)
		hybrid_set_number(&row[SCAN_ID], sb->volume_id);
	hybrid_set_text(&row[SCAN_DIRTY], sb->flags & HYBRID_SB_DIRTY ? "yes" : "no");
}

static int scan_member(struct hybrid_report *report, const struct hybrid_member *m)
{
	struct hybrid_value *row = hybrid_report_row(report);

	if (!row)
		return hybrid_nomem();
	hybrid_set_text(&row[SCAN_DEVICE], m->path);
	hybrid_set_text(&row[SCAN_ROLE], hybrid_role_name(m->sb.role));
	hybrid_set_text(&row[SCAN_STATE], !m->ok ? "refused" :
			m->copies == 3 ? "ok" : "one-copy");
	if (m->sb.role)
		scan_superblock(row, &m->sb);
	if (m->why[0])
		hybrid_set_text(&row[SCAN_WHY], m->why);
	return 0;
}

int command_scan(const struct command_line *cl)
{
	struct hybrid_report_options opts;
	struct hybrid_inventory inv = {};
	struct hybrid_report *report;
	int r, result = 0;
	unsigned int i;

	if (cl->given[OPT_UDEV])
		return scan_for_udev(cl);
	r = report_options(cl, &opts);
	if (r)
		return r;
	report = hybrid_report_new("members", &scan_report);
	if (!report)
		return hybrid_nomem();
	r = hybrid_inventory_load(&inv, HYBRID_LOAD_MEMBERS, cl->argv, cl->argc);
	for (i = 0; i < inv.nr_members && !r; i++) {
		r = scan_member(report, &inv.members[i]);
		if (!inv.members[i].ok)
			result = HYBRID_BADDEV;
		else if (inv.members[i].copies != 3 && !result)
			result = HYBRID_DEGRADED;
	}
	if (inv.silent && !result)
		result = HYBRID_DEGRADED;
	if (!r)
		r = hybrid_report_print(report, &opts);
	hybrid_report_free(report);
	hybrid_inventory_free(&inv);
	return r ? r : result;
}

/* table -------------------------------------------------------------------- */

static int linear_params(const struct hybrid_node *node, char params[HYBRID_PARAMS_MAX])
{
	struct hybrid_dm_linear linear;
	char path[HYBRID_PATH_MAX];

	if (!hybrid_dm_linear(node->name, &linear))
		return -1;
	snprintf(params, HYBRID_PARAMS_MAX, "%s %llu", hybrid_node_device(node, path, sizeof(path)),
		 linear.start);
	return 0;
}

/* Paths, not numbers: after a boot, other devices may have these numbers. */
static void print_table(const struct hybrid_node *node)
{
	const char *target = node->kind == HYBRID_POOL ? HYBRID_POOL_TARGET : HYBRID_VOLUME_TARGET;
	char params[HYBRID_PARAMS_MAX], uuid[HYBRID_DM_UUID_TEXT];
	struct hybrid_volume_table volume;
	struct hybrid_pool_table pool;

	if (node->kind == HYBRID_POOL) {
		pool = node->p.table;
		hybrid_node_device(node, pool.cache_dev, sizeof(pool.cache_dev));
		if (!pool.uuid[0])
			hybrid_uuid_text(pool.uuid, node->uuid);
		hybrid_pool_table_build(params, sizeof(params), &pool);
	} else if (node->dm.alone) {
		if (linear_params(node, params))
			return;
		target = HYBRID_LINEAR_TARGET;
	} else {
		volume = node->v.table;
		hybrid_node_device(node, volume.origin_dev, sizeof(volume.origin_dev));
		if (node->pool)
			snprintf(volume.pool_dev, sizeof(volume.pool_dev), "/dev/mapper/%s",
				 node->pool->name);
		hybrid_volume_table_build(params, sizeof(params), &volume);
	}
	printf("dmsetup create %s --uuid %s --table '0 %llu %s %s'\n", node->name,
	       hybrid_dm_uuid(uuid, node->uuid, node->kind == HYBRID_POOL),
	       (unsigned long long)node->dm.sectors, target, params);
}

int command_table(const struct command_line *cl)
{
	struct hybrid_inventory inv;
	struct hybrid_node *node = NULL;
	unsigned int i;
	int r;

	r = hybrid_dm_check(false);
	if (r)
		return r;
	r = hybrid_inventory_load(&inv, HYBRID_LOAD_ACTIVE, NULL, 0);
	if (!r && cl->argc)
		r = hybrid_find_active(&inv, cl->argv[0], HYBRID_ANY, &node);
	for (i = 0; i < inv.nr_nodes && !r; i++)
		if (inv.nodes[i].active && (!node || node == &inv.nodes[i]))
			print_table(&inv.nodes[i]);
	hybrid_inventory_free(&inv);
	return r;
}
