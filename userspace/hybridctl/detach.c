// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "errors.h"
#include "live.h"
#include "owner.h"

/* A volume that leaves its pool. */
struct detach {
	const struct command_line *cl;
	struct hybrid_inventory inv;
	struct hybrid_node *volume, *pool;
	struct hybrid_volume_line entry;
	char origin[HYBRID_PATH_MAX];	/* empty: not here */
	bool drains;			/* the drain of make_clean() is on */
	bool parted;			/* its pool has failed, is not here, or does not know it: records nothing */
	bool deleted;			/* the pool has deleted it, and the origin is not here: no volume */
};

/* Whether the volume's device is its origin and nothing else already. */
static bool is_linear(const struct detach *d)
{
	return d->volume->active && d->volume->dm.alone;
}

/* Whether the device stays for its users, as its origin and nothing else. */
static bool stays(const struct detach *d)
{
	return is_linear(d) || d->cl->given[OPT_LIVE];
}

/* The pool is not here: takes the entry from the origin's superblock. */
static void entry_of_member(struct detach *d)
{
	const struct hybrid_sb *sb = &d->volume->member->sb;

	snprintf(d->entry.name, sizeof(d->entry.name), "%s", sb->name);
	memcpy(d->entry.uuid, sb->volume_uuid, 16);
	memcpy(d->entry.member_uuid, sb->member_uuid, 16);
	d->entry.data_sector = sb->data_sector;
	d->entry.data_sectors = sb->data_sectors;
}

static int find_entry(struct detach *d)
{
	struct hybrid_volume_line *entries;
	unsigned int nr, i;
	int r;

	if (!d->pool || d->volume->unknown) {
		entry_of_member(d);
		return 0;
	}
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

/* A volume that stays in use must be sound. */
static int check_live(struct detach *d)
{
	if (is_linear(d))
		return 0;
	if (d->cl->given[OPT_DROP_DIRTY])
		return hybrid_fail(HYBRID_USAGE, "stop its users, and leave out --live",
				   "dirty data cannot be given up while the volume is in use");
	if (!d->volume->active)
		return hybrid_fail(HYBRID_USAGE, "leave out --live", "%s is not active",
				   d->volume->name);
	/* A volume of a failed pool cannot be resumed: an earlier detach was cut short, and goes on */
	if (d->volume->dm.suspended && !d->parted)
		return hybrid_fail(HYBRID_BUSY, "dmsetup resume it first", "%s is suspended",
				   d->volume->name);
	/* A volume that lost writes on the way must go on reporting that (S9) */
	if (d->volume->v.status.origin_errors)
		return hybrid_fail(HYBRID_REFUSED, "see hybridctl status; detach it without --live",
				   "I/O to the origin of %s failed", d->volume->name);
	return 0;
}

/* Without the pool, only the data on the origin can be kept: it must be all. */
static int check_parted(const struct detach *d)
{
	const struct hybrid_node *volume = d->volume;
	bool lost = volume->active && !volume->dm.alone ?
		    volume->v.status.lost || volume->v.status.dirty :
		    volume->member && volume->member->sb.flags & HYBRID_SB_DIRTY;

	if (!volume->member || !volume->member->ok)
		return hybrid_fail(HYBRID_BADDEV, "see hybridctl scan",
				   "neither the pool nor a superblock on the origin of %s can record the detach",
				   volume->name);
	if (!lost)
		return 0;
	if (volume->unknown)
		return hybrid_fail(HYBRID_DEGRADED, "hybridctl accept-loss goes on without that data",
				   "pool %s does not know volume %s, and its cache had the only copy of some data",
				   d->pool->name, volume->name);
	return hybrid_fail(HYBRID_DEGRADED, volume->active ?
			   "unmount and deactivate it; hybridctl lost lists the lost data" :
			   "connect the cache device; hybridctl lost lists the data that is lost without it",
			   "%s: its cache device has failed or is missing, and had the only copy of some data",
			   volume->name);
}

static int check_unused(const struct detach *d)
{
	char where[HYBRID_PATH_MAX];

	if (!d->volume->active || stays(d))
		return 0;
	if (hybrid_devno_mounted(d->volume->dm.devno, where, sizeof(where)))
		return hybrid_fail(HYBRID_BUSY, "unmount it first, or add --live",
				   "%s is mounted at %s", d->volume->name, where);
	if (d->volume->dm.open_count)
		return hybrid_fail(HYBRID_BUSY,
				   "stop its users first (lsblk, fuser), or add --live",
				   "%s is in use", d->volume->name);
	return 0;
}

/* Whether the pool cannot record the detach: it is not here, has failed, or does not know the volume. */
static int find_parted(struct detach *d)
{
	const struct hybrid_node *pool = d->pool;

	d->parted = !pool || d->volume->unknown || hybrid_pool_failed(pool);
	if (d->parted)
		return check_parted(d);
	if (!pool->active)
		return hybrid_fail(HYBRID_BADDEV, "hybridctl activate it first",
				   "the pool of %s is not active", d->volume->name);
	return 0;
}

static int check_detachable(struct detach *d)
{
	bool uncached = hybrid_node_uncached(d->volume);
	int r;

	if (d->volume->deleted && (d->volume->active || uncached))
		return hybrid_fail(HYBRID_BUSY, "hybridctl activate --all finishes it",
				   "the detach of %s was interrupted", d->volume->name);
	/* A volume that was suspended after its pool failed still has its table */
	if (uncached && (!d->volume->active || is_linear(d)))
		return hybrid_fail(HYBRID_USAGE, NULL, "%s has no cache: it is detached already",
				   d->volume->name);
	r = find_parted(d);
	return r ? r : check_unused(d);
}

/* For --drop-dirty: finds the volume as a pool still has it, though its origin is done with that pool. */
static void find_given_up(struct detach *d)
{
	struct hybrid_node *node;

	for (node = d->inv.nodes; node < d->inv.nodes + d->inv.nr_nodes; node++)
		if (node->given_up && !memcmp(node->uuid, d->volume->uuid, 16))
			d->volume = node;
}

static bool is_meant(const struct hybrid_volume_line *entry, const char *what)
{
	uint8_t uuid[16];

	return !strcmp(entry->name, what) ||
	       (hybrid_uuid_parse(what, uuid) && !memcmp(entry->uuid, uuid, 16));
}

static int find_deleted_in(struct detach *d, struct hybrid_node *pool, const char *what)
{
	struct hybrid_volume_line *entries, *e;
	unsigned int nr;
	int r = hybrid_pool_volumes(pool->name, &entries, &nr);

	if (r)
		return r;
	for (e = entries; e < entries + nr && !r; e++) {
		if (!e->tombstone || !is_meant(e, what) || hybrid_find_member(&d->inv, e->member_uuid))
			continue;
		if (d->deleted && memcmp(d->entry.uuid, e->uuid, 16))
			r = hybrid_fail(HYBRID_BADDEV, "give the UUID of one of them: dmsetup message POOL 0 volumes",
					"several volumes called %s were detached", what);
		d->deleted = true;
		d->pool = pool;
		d->entry = *e;
	}
	free(entries);
	return r;
}

/* For --drop-dirty: finds a deleted volume that its pool keeps until its origin, missing now, is marked. */
static int find_deleted(struct detach *d, const char *what)
{
	struct hybrid_node *node;
	int r = 0;

	for (node = d->inv.nodes; node < d->inv.nodes + d->inv.nr_nodes && !r; node++)
		if (node->kind == HYBRID_POOL && node->active && node->dm.live && !node->dm.suspended &&
		    !strcmp(node->p.status.state, "running"))
			r = find_deleted_in(d, node, what);
	return r || !d->deleted ? r : check_owner(d->cl, d->pool);
}

/* An origin that is here but refused, because of a clone for example, is not given up as a missing one. */
static int check_refused(struct detach *d)
{
	const struct hybrid_member *m = hybrid_find_member(&d->inv, d->entry.member_uuid);

	return d->origin[0] || d->volume->given_up || !m || m->ok || m->unread ? 0 : fail_refused_origin(&d->entry, m);
}

/* Finds the volume, and checks whether it may be detached. */
static int find(struct detach *d, const char *what)
{
	int r = 0;

	d->deleted = false;
	if (d->cl->given[OPT_DROP_DIRTY] && !hybrid_find(&d->inv, what, HYBRID_ANY))
		r = find_deleted(d, what);
	if (r || d->deleted)
		return r;
	r = hybrid_find_or_fail(&d->inv, what, HYBRID_ANY, &d->volume);
	if (r)
		return r;
	if (d->volume->kind == HYBRID_POOL)
		return hybrid_fail(HYBRID_BADDEV, "hybridctl activate it first",
				   "pool %s is not active", d->volume->name);
	if (d->cl->given[OPT_DROP_DIRTY])
		find_given_up(d);
	d->pool = d->volume->pool;
	r = check_owner(d->cl, d->volume);
	if (!r)
		r = check_detachable(d);
	if (!r && d->cl->given[OPT_LIVE])
		r = check_live(d);
	if (r)
		return r;
	hybrid_node_device(d->volume, d->origin, sizeof(d->origin));
	if (d->origin[0] != '/')
		d->origin[0] = '\0';
	r = find_entry(d);
	return r ? r : check_refused(d);
}

/* An inactive volume is known to its pool; its origin is found by its superblock. */
static int look(struct detach *d, const char *what)
{
	int r = hybrid_inventory_load(&d->inv, HYBRID_LOAD_MEMBERS | HYBRID_LOAD_ACTIVE |
				      HYBRID_LOAD_CLOSED, NULL, 0);

	return r ? r : find(d, what);
}

/* Takes the lock, and finds the same volume, even if other commands have changed it. */
static int lock_and_look_again(struct detach *d)
{
	char uuid[HYBRID_UUID_TEXT];
	int r = lock_tools();

	if (!r)
		r = hybrid_inventory_look_again(&d->inv, HYBRID_LOAD_ACTIVE | HYBRID_LOAD_CLOSED);
	return r ? r : find(d, hybrid_uuid_text(uuid, d->entry.uuid));
}

/* Gives up the detach: writes follow the mode again.  Returns @r. */
static int give_up(const struct detach *d, int r)
{
	if (d->drains)
		drain_cancel(d->entry.uuid, false);
	return r;
}

/*
 * 1. Writes all dirty data to the origin.  Nothing becomes dirty from then on: the drain stays on
 * until the volume is gone, or until give_up().  The mode does not change, so a kill leaves nothing
 * to repair.  The drain may take hours, and other commands do not wait for it: their changes are
 * found out afterwards.
 */
static int make_clean(struct detach *d)
{
	int r;

	if (!d->volume->active || is_linear(d) || d->parted || d->cl->given[OPT_DROP_DIRTY])
		return 0;
	unlock_tools();
	r = drain_and_wait(d->cl, d->volume);
	if (r)
		return r;
	d->drains = true;
	r = lock_and_look_again(d);
	return r ? give_up(d, r) : 0;
}

/* The device was opened by its path: another one may have that path now. */
static int check_origin(const struct detach *d, const struct hybrid_device *dev)
{
	struct hybrid_member m;

	if (hybrid_member_read(dev, &m) || !m.ok)
		return 0;
	/* check_parted() saw the superblock as it was before the lock was taken */
	if (d->parted && !d->volume->active && m.sb.flags & HYBRID_SB_DIRTY)
		return hybrid_fail(HYBRID_BUSY, "check its state, then try again", "%s has been used meanwhile",
				   d->entry.name);
	if (!memcmp(m.sb.volume_uuid, d->entry.uuid, 16))
		return 0;
	return hybrid_fail(HYBRID_BADDEV, "see hybridctl scan", "%s is not the origin of %s",
			   dev->path, d->entry.name);
}

static int mark_origin(struct detach *d)
{
	struct hybrid_volume_settings next = settings_of(&d->entry);
	struct hybrid_device dev;
	int r;

	if (d->entry.inplace || d->volume->given_up)
		return 0;
	if (!d->origin[0]) {
		hybrid_warn("the origin of %s is not here; it is marked at the next activation; or, if it is gone for good, hybridctl detach --drop-dirty %s makes the pool forget it",
			    d->entry.name, d->entry.name);
		return HYBRID_DEGRADED;
	}
	r = hybrid_device_open(&dev, d->origin, HYBRID_OPEN_WRITE |
			       (stays(d) ? 0 : HYBRID_OPEN_EXCLUSIVE));
	if (!r)
		r = check_origin(d, &dev);
	if (!r)
		r = hybrid_member_mark_detached(&dev, d->pool && !d->volume->unknown ? &next : NULL);
	hybrid_device_close(&dev);
	return r;
}

static int delete_entry(const struct detach *d)
{
	char message[64];

	snprintf(message, sizeof(message), "delete_volume %u%s", d->entry.id,
		 d->cl->given[OPT_DROP_DIRTY] ? " drop_dirty" : "");
	return hybrid_dm_message(d->pool->name, message, NULL);
}

/* Brings the volume back, if possible. */
static int put_back(const struct detach *d, int r)
{
	if (!d->volume->active || is_linear(d))
		return hybrid_fail(r, "hybridctl activate it, drain it, and detach it again",
				   "%s was not detached", d->entry.name);
	if (start_volume(&d->entry, d->pool->dm.devno, d->volume->below))
		return hybrid_fail(r, "hybridctl activate it, and detach it again",
				   "%s was not detached; its device is gone for now",
				   d->entry.name);
	return hybrid_fail(r, "detach it again, once the error above is resolved",
			   "%s was not detached, and is active again", d->entry.name);
}

/* 2. Removes the device.  3. Deletes the pool's entry. */
static int part(struct detach *d)
{
	int r;

	if (d->volume->active && !is_linear(d)) {
		r = hybrid_dm_remove(d->volume->name);
		if (r)
			return give_up(d, r);
	}
	r = delete_entry(d);
	return r ? put_back(d, r) : 0;
}

static int fail_unmarked(const struct detach *d, int r)
{
	return hybrid_fail(r, "see dmsetup table, dmsetup load",
			   "%s is suspended: its origin cannot be marked", d->volume->name);
}

/*
 * Resumes the volume, as if nothing had happened.  If that fails, the volume is closed, and so
 * clean, and its pool failed meanwhile.  The pool's record may be lost, so the origin's mark must
 * keep the cached data from ever being used again.
 */
static int part_failed(struct detach *d, int r)
{
	if (!hybrid_dm_resume(d->volume->name))
		return give_up(d, r);
	r = mark_origin(d);
	return r ? fail_unmarked(d, r) : 0;
}

/*
 * 3. for a failed pool: it still closes the volume, and then the origin's mark keeps the cached
 * data from ever being used again.
 */
static int part_from_failed(struct detach *d)
{
	char message[64];
	int r, err;

	snprintf(message, sizeof(message), "delete_volume %u", d->entry.id);
	err = hybrid_dm_message_try(d->pool->name, message);
	if (err && err != EIO) {
		hybrid_dm_resume(d->volume->name);
		return hybrid_fail(hybrid_exit_of_errno(err), "try again", "%s cannot be closed: %s",
				   d->volume->name, strerror(err));
	}
	r = mark_origin(d);
	return r ? fail_unmarked(d, r) : 0;
}

/*
 * 2. Suspends the device.  3. Removes the volume from the pool, durably.  4. Loads another table.
 * So no write bypasses the cache while the pool would still use its data.  The table is not loaded
 * earlier: a resume meanwhile brings back the volume, or nothing.
 */
static int part_live(struct detach *d)
{
	const char *name = d->volume->name;
	char params[HYBRID_PARAMS_MAX];
	int r;

	r = live_stop(&d->entry, name, d->volume->below, d->volume->dm.suspended);
	if (r)
		return give_up(d, r);
	r = d->parted ? part_from_failed(d) : delete_entry(d);
	if (r && !d->parted)
		r = part_failed(d, r);
	hybrid_linear_params(params, d->volume->below, d->entry.data_sector);
	return r ? r : hybrid_dm_switch(name, HYBRID_LINEAR_TARGET, d->entry.data_sectors,
					params);
}

/* The pool records nothing: only the origin is marked, and the pool deletes its data when it is back. */
static int take_apart_parted(struct detach *d)
{
	int r = 0;

	hold_signals();
	if (d->volume->active && !is_linear(d)) {
		if (d->cl->given[OPT_LIVE])
			return part_live(d);
		r = hybrid_dm_remove(d->volume->name);
	}
	return r ? r : mark_origin(d);
}

/* Marks the origin after the detach from the pool, and frees the id. */
static int take_apart(struct detach *d)
{
	int r;

	hold_signals();
	r = d->cl->given[OPT_LIVE] && !is_linear(d) ? part_live(d) : part(d);
	if (!r)
		r = mark_origin(d);
	return r ? r : forget_entry(d->pool->name, d->entry.id, true);
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
	if (stays(d))
		hybrid_note("volume %s is detached: /dev/mapper/%s goes on without a cache",
			    e->name, e->name);
	else
		hybrid_note("volume %s is detached", e->name);
	if (e->inplace && !e->data_sector) {
		hybrid_note("its data is on %s, as before it was cached", origin);
		return;
	}
	if (d->volume->given_up)
		return;
	if (!stays(d) && !e->inplace)
		hybrid_note("hybridctl activate %s brings it up without a cache, as the next boot does",
			    e->name);
	hybrid_note("its data is on %s, from sector %llu on (%llu sectors); to reach it without dm-hybrid:",
		    origin, (unsigned long long)e->data_sector, (unsigned long long)e->data_sectors);
	hybrid_note("  dmsetup create %s --table '0 %llu linear %s %llu'", e->name,
		    (unsigned long long)e->data_sectors, origin,
		    (unsigned long long)e->data_sector);
}

static void print_test(const struct detach *d)
{
	const char *drop = d->cl->given[OPT_DROP_DIRTY] ? " drop_dirty" : "";
	bool runs = d->volume->active && !is_linear(d);

	if (runs && !drop[0] && !d->parted)
		printf("dmsetup message %s 0 drain\n", d->volume->name);
	if (runs && d->cl->given[OPT_LIVE])
		printf("dmsetup suspend --nolockfs %s\n", d->volume->name);
	else if (runs)
		printf("dmsetup remove %s\n", d->volume->name);
	if (!d->parted || (runs && d->cl->given[OPT_LIVE]))
		printf("dmsetup message %s 0 delete_volume %u%s\n", d->pool->name, d->entry.id, drop);
	if (runs && d->cl->given[OPT_LIVE])
		printf("dmsetup load %s --table '0 %llu linear %s %llu'\ndmsetup resume %s\n",
		       d->volume->name, (unsigned long long)d->entry.data_sectors, d->origin,
		       (unsigned long long)d->entry.data_sector, d->volume->name);
	if (!d->entry.inplace)
		printf("write %s: superblocks with role detached\n",
		       d->origin[0] ? d->origin : "the origin");
	if (!d->parted)
		printf("dmsetup message %s 0 forget_volume %u\n", d->pool->name, d->entry.id);
}

static int confirm_loss(const struct detach *d)
{
	char question[HYBRID_NAME_SIZE + 64];

	snprintf(question, sizeof(question), "Data of %s that only the cache has will be lost.",
		 d->entry.name);
	return confirm(d->cl, question);
}

/* Makes the pool forget a deleted volume, though its origin is not marked. */
static int forget_deleted(struct detach *d)
{
	char question[2 * HYBRID_NAME_SIZE + 128];
	int r;

	if (d->cl->given[OPT_TEST]) {
		printf("dmsetup message %s 0 forget_volume %u\n", d->pool->name, d->entry.id);
		return 0;
	}
	snprintf(question, sizeof(question),
		 "Pool %s forgets volume %s, which was detached; its origin is not here, and is not marked.",
		 d->pool->name, d->entry.name);
	r = confirm(d->cl, question);
	if (!r)
		r = lock_and_look_again(d);
	if (!r && !d->deleted)
		r = hybrid_fail(HYBRID_BUSY, "give the command again", "%s has changed meanwhile", d->entry.name);
	if (!r)
		r = forget_entry(d->pool->name, d->entry.id, true);
	if (!r)
		hybrid_note("pool %s has forgotten volume %s", d->pool->name, d->entry.name);
	return r;
}

static int detach(struct detach *d)
{
	int r = 0;

	if (d->deleted)
		return forget_deleted(d);
	if (d->cl->given[OPT_TEST]) {
		print_test(d);
		return 0;
	}
	/* The user is asked without the lock, so the volume is looked at again */
	if (d->cl->given[OPT_DROP_DIRTY])
		r = confirm_loss(d);
	if (!r)
		r = lock_and_look_again(d);
	if (!r)
		r = make_clean(d);
	if (!r)
		r = d->parted ? take_apart_parted(d) : take_apart(d);
	if (!r)
		print_result(d);
	return r;
}

static int detach_one(const struct command_line *cl, const char *what, bool only_look)
{
	struct detach d = { .cl = cl };
	int r;

	r = look(&d, what);
	if (!r && !only_look)
		r = detach(&d);
	unlock_tools();
	hybrid_inventory_free(&d.inv);
	return r;
}

/* Called first with @only_look for all volumes, so that a reason known before does not stop it half way. */
static int detach_each(const struct command_line *cl, const struct hybrid_volume_line *entries,
		       unsigned int nr, bool only_look, unsigned int *detached)
{
	char uuid[HYBRID_UUID_TEXT];
	unsigned int i;
	int r = 0;

	for (i = 0; i < nr && !r; i++) {
		if (entries[i].tombstone)
			continue;
		/* A pending signal ends the process here */
		fflush(stdout);
		release_signals();
		r = detach_one(cl, hybrid_uuid_text(uuid, entries[i].uuid), only_look);
		if (!r)
			++*detached;
	}
	return r;
}

static int detach_all(const struct command_line *cl, const char *pool)
{
	struct hybrid_volume_line *entries;
	unsigned int nr, looked_at = 0, detached = 0;
	int r;

	r = hybrid_pool_volumes(pool, &entries, &nr);
	if (r)
		return r;
	r = detach_each(cl, entries, nr, true, &looked_at);
	if (!r)
		r = detach_each(cl, entries, nr, false, &detached);
	free(entries);
	if (!r && !looked_at)
		hybrid_note("pool %s has no volumes", pool);
	return r && detached ? HYBRID_PARTIAL : r;
}

/* Finds the name of the active pool meant; empty: it is no pool, or not active. */
static int find_pool(const char *what, char name[HYBRID_NAME_SIZE])
{
	struct hybrid_inventory inv;
	struct hybrid_node *node;
	int r;

	name[0] = '\0';
	r = hybrid_inventory_load(&inv, HYBRID_LOAD_ACTIVE, NULL, 0);
	node = r ? NULL : hybrid_find(&inv, what, HYBRID_ANY);
	if (node && node->kind == HYBRID_POOL)
		memcpy(name, node->name, HYBRID_NAME_SIZE);
	hybrid_inventory_free(&inv);
	return r;
}

int command_detach(const struct command_line *cl)
{
	char pool[HYBRID_NAME_SIZE];
	int r;

	r = hybrid_dm_check(false);
	if (!r)
		r = find_pool(cl->argv[0], pool);
	if (r)
		return r;
	return pool[0] ? detach_all(cl, pool) : detach_one(cl, cl->argv[0], false);
}
