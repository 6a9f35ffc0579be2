// SPDX-License-Identifier: GPL-2.0-or-later
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "errors.h"

/* A volume on its way out. */
struct detach {
	const struct command_line *cl;
	struct hybrid_node *volume, *pool;
	struct hybrid_volume_line entry;
	char origin[HYBRID_PATH_MAX];	/* empty: not here */
};

static int find_entry(struct detach *d)
{
	struct hybrid_volume_line *entries;
	unsigned int nr, i;
	int r;

	r = hybrid_pool_volumes(d->pool->name, &entries, &nr);
	if (r)
		return r;
	for (i = 0; i < nr; i++)
		if (!memcmp(entries[i].uuid, d->volume->uuid, 16))
			break;
	if (i < nr)
		d->entry = entries[i];
	free(entries);
	if (i < nr)
		return 0;
	return hybrid_fail(HYBRID_BADDEV, "see hybridctl scan",
			   "pool %s does not know volume %s", d->pool->name, d->volume->name);
}

static int check_detachable(struct detach *d)
{
	char where[HYBRID_PATH_MAX];

	if (!d->pool || !d->pool->active)
		return hybrid_fail(HYBRID_BADDEV, "hybridctl activate it first",
				   "the pool of %s is not active", d->volume->name);
	if (!d->volume->active)
		return 0;
	if (d->volume->dm.alone)
		return hybrid_fail(HYBRID_BADDEV, "deactivate and activate it first",
				   "%s runs without its pool", d->volume->name);
	if (hybrid_devno_mounted(d->volume->dm.devno, where, sizeof(where)))
		return hybrid_fail(HYBRID_BUSY, "unmount it first", "%s is mounted at %s",
				   d->volume->name, where);
	if (d->volume->dm.open_count)
		return hybrid_fail(HYBRID_BUSY, "stop what uses it first (lsblk, fuser)",
				   "%s is in use", d->volume->name);
	return 0;
}

/*
 * 1. No new dirty data, and what there is goes to the origin.  Undone if it does
 * not end well: the volume stays as it was.
 */
static int make_clean(struct detach *d)
{
	char message[64];
	int r;

	if (!d->volume->active || d->cl->given[OPT_DROP_DIRTY])
		return 0;
	if (d->volume->v.table.mode == HYBRID_MODE_WRITEBACK) {
		r = hybrid_dm_message(d->volume->name, "mode writethrough", NULL);
		if (r)
			return r;
	}
	r = drain_and_wait(d->cl, d->volume);
	if (r && d->entry.mode == HYBRID_MODE_WRITEBACK) {
		snprintf(message, sizeof(message), "mode %s", hybrid_mode_name(d->entry.mode));
		hybrid_dm_message(d->volume->name, message, NULL);
	}
	return r;
}

static int mark_origin(struct detach *d)
{
	struct hybrid_device dev;
	int r;

	if (d->entry.inplace)
		return 0;
	if (!d->origin[0]) {
		hybrid_warn("the origin of %s is not here; it is marked at the next activation",
			    d->entry.name);
		return HYBRID_DEGRADED;
	}
	r = hybrid_device_open(&dev, d->origin, HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE);
	if (!r)
		r = hybrid_member_mark_detached(&dev);
	hybrid_device_close(&dev);
	return r;
}

/* 2. the device  3. the pool's entry  4. the origin's mark  5. the id is free */
static int take_apart(struct detach *d)
{
	char message[64];
	int r;

	hold_signals();
	if (d->volume->active) {
		r = hybrid_dm_remove(d->volume->name);
		if (r)
			return r;
	}
	snprintf(message, sizeof(message), "delete_volume %u%s", d->entry.id,
		 d->cl->given[OPT_DROP_DIRTY] ? " drop_dirty" : "");
	r = hybrid_dm_message(d->pool->name, message, NULL);
	if (r)
		return hybrid_fail(r, "hybridctl activate it, drain it, and detach again",
				   "%s was not detached; its device is gone for now",
				   d->entry.name);
	r = mark_origin(d);
	if (r)
		return r;
	snprintf(message, sizeof(message), "forget_volume %u", d->entry.id);
	return hybrid_dm_message(d->pool->name, message, NULL);
}

static void print_result_json(const struct detach *d)
{
	struct json_object *line = json_object_new_object();

	json_object_object_add(line, "name", json_object_new_string(d->entry.name));
	json_object_object_add(line, "state", json_object_new_string("detached"));
	json_object_object_add(line, "origin", d->origin[0] ?
			       json_object_new_string(d->origin) : NULL);
	json_object_object_add(line, "data_sector",
			       json_object_new_uint64(d->entry.data_sector));
	json_object_object_add(line, "data_sectors",
			       json_object_new_uint64(d->entry.data_sectors));
	puts(json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN |
					    JSON_C_TO_STRING_NOSLASHESCAPE));
	json_object_put(line);
}

static void print_result(const struct detach *d)
{
	const struct hybrid_volume_line *e = &d->entry;
	const char *origin = d->origin[0] ? d->origin : "the origin";

	if (d->cl->given[OPT_PROGRESS_JSON]) {
		print_result_json(d);
		return;
	}
	hybrid_note("volume %s is detached", e->name);
	if (e->inplace) {
		hybrid_note("its data is on %s, as before it was cached", origin);
		return;
	}
	hybrid_note("its data is on %s, from sector %llu on (%llu sectors); to reach it:", origin,
		    (unsigned long long)e->data_sector, (unsigned long long)e->data_sectors);
	hybrid_note("  dmsetup create %s --table '0 %llu linear %s %llu'", e->name,
		    (unsigned long long)e->data_sectors, origin,
		    (unsigned long long)e->data_sector);
}

static void print_test(const struct detach *d)
{
	const char *drop = d->cl->given[OPT_DROP_DIRTY] ? " drop_dirty" : "";

	if (d->volume->active && !drop[0])
		printf("dmsetup message %s 0 mode writethrough\ndmsetup message %s 0 drain\n",
		       d->volume->name, d->volume->name);
	if (d->volume->active)
		printf("dmsetup remove %s\n", d->volume->name);
	printf("dmsetup message %s 0 delete_volume %u%s\n", d->pool->name, d->entry.id, drop);
	if (!d->entry.inplace)
		printf("write %s: superblocks with role detached\n",
		       d->origin[0] ? d->origin : "the origin");
	printf("dmsetup message %s 0 forget_volume %u\n", d->pool->name, d->entry.id);
}

static int detach(struct detach *d)
{
	int r;

	r = check_detachable(d);
	if (!r)
		r = find_entry(d);
	if (r)
		return r;
	hybrid_node_device(d->volume, d->origin, sizeof(d->origin));
	if (d->origin[0] != '/')
		d->origin[0] = '\0';
	if (d->cl->given[OPT_TEST]) {
		print_test(d);
		return 0;
	}
	if (d->cl->given[OPT_DROP_DIRTY])
		r = confirm(d->cl, "Data that only the cache has will be lost.");
	if (!r)
		r = make_clean(d);
	if (!r)
		r = take_apart(d);
	if (!r)
		print_result(d);
	return r;
}

int command_detach(const struct command_line *cl)
{
	struct detach d = { .cl = cl };
	struct hybrid_inventory inv;
	int r;

	r = hybrid_dm_check();
	if (!r)
		r = lock_tools();
	if (r)
		return r;
	/* An inactive volume's origin is found by its superblock */
	r = hybrid_inventory_load(&inv, HYBRID_LOAD_ALL, NULL, 0);
	if (!r)
		r = hybrid_find_or_fail(&inv, cl->argv[0], 1U << HYBRID_VOLUME, &d.volume);
	if (!r) {
		d.pool = d.volume->pool;
		r = detach(&d);
	}
	hybrid_inventory_free(&inv);
	return r;
}
