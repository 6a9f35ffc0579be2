// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * replace-cache: moves the volumes of a pool to a new cache device, in use or not.
 *
 * 1. Makes a pool on the new device, whose superblock names the pool that it replaces.  Until the end, a
 *    command that is given again goes by that name.
 * 2. Moves one volume after the other: see move().  At each point its origin names one pool, and that
 *    pool has its entry; data of the volume in the other pool is clean.
 * 3. When the old pool is empty, gives its cache device back, and the new pool takes its name.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common.h"
#include "create.h"
#include "errors.h"
#include "live.h"
#include "owner.h"
#include "sysfs.h"

struct replace {
	const struct command_line *cl;
	struct hybrid_inventory inv;
	struct hybrid_node *old;	/* NULL: its cache device was given back, or is not here */
	struct hybrid_node *new;	/* NULL: not made yet */
	char name[HYBRID_NAME_SIZE];	/* of the old pool, and of the new one in the end */
	bool drains;			/* the volume below drains: it stays clean until it has moved */
	uint8_t drained[16];
	unsigned int moved;
};

/* Reports progress: in words, or in JSON as drains do. */
static void tell(const struct replace *r, const char *what, const char *name, const char *state,
		 const char *words)
{
	struct json_object *line;

	if (!r->cl->given[OPT_PROGRESS_JSON]) {
		hybrid_note("%s %s %s", what, name, words);
		return;
	}
	line = json_object_new_object();
	json_object_object_add(line, "name", json_object_new_string(name));
	json_object_object_add(line, "state", json_object_new_string(state));
	puts(json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN));
	json_object_put(line);
}

/* Finding both ---------------------------------------------------------------- */

/* Finds the new pool by the name of the old one, when that is gone. */
static struct hybrid_node *find_by_final_name(struct hybrid_inventory *inv, const char *what)
{
	char name[HYBRID_NAME_SIZE];
	struct hybrid_node *node;

	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++) {
		if (hybrid_node_replaces(node) &&
		    !strcmp(hybrid_replaced_name(name, &node->member->sb), what))
			return node;
	}
	return NULL;
}

/* If there are two new pools, either may have some of the volumes. */
static int check_one(struct replace *r, const uint8_t old[16])
{
	const struct hybrid_node *node, *first = NULL;
	const uint8_t *uuid;

	for (node = r->inv.nodes; node < r->inv.nodes + r->inv.nr_nodes; node++) {
		uuid = hybrid_node_replaces(node);
		if (!uuid || memcmp(uuid, old, 16))
			continue;
		if (first)
			return hybrid_fail(HYBRID_BADDEV,
					   "hybridctl destroy, or disconnect, the unwanted one",
					   "two pools replace the same pool: %s and %s", first->member->path,
					   node->member->path);
		first = node;
	}
	return 0;
}

/* Refuses if an origin is still the old pool's: that pool is not here. */
static int check_all_moved(struct replace *r, const uint8_t old[16])
{
	const struct hybrid_member *m;

	for (m = r->inv.members; m < r->inv.members + r->inv.nr_members; m++)
		if (m->ok && m->sb.role == HYBRID_ROLE_ORIGIN && !memcmp(m->sb.pool_uuid, old, 16))
			return hybrid_fail(HYBRID_DEGRADED,
					   "connect it; or, if it is gone for good, hybridctl accept-loss or detach that volume",
					   "the old cache device is missing, and volume %s has not moved yet",
					   m->sb.name);
	return 0;
}

static int find(struct replace *r, const char *what)
{
	struct hybrid_node *node = hybrid_find(&r->inv, what, 1U << HYBRID_POOL);
	const uint8_t *uuid;
	int err = 0;

	if (!node)
		node = find_by_final_name(&r->inv, what);
	if (!node)
		return hybrid_find_or_fail(&r->inv, what, 1U << HYBRID_POOL, &node);
	uuid = hybrid_node_replaces(node);
	r->old = uuid ? hybrid_find_uuid(&r->inv, uuid, HYBRID_POOL) : node;
	r->new = uuid ? node : node->successor;
	if (r->new)
		hybrid_replaced_name(r->name, &r->new->member->sb);
	else
		snprintf(r->name, sizeof(r->name), "%s", node->name);
	err = check_one(r, uuid ? uuid : node->uuid);
	return err || r->old ? err : check_all_moved(r, uuid);
}

/* Fitness of both pools ---------------------------------------------------------- */

/* @next: advice if the pool has failed. */
static int check_running(const struct hybrid_node *pool, const char *next)
{
	if (!pool->dm.live || pool->dm.suspended)
		return hybrid_fail(HYBRID_BUSY, "see hybridctl status",
				   "pool %s is suspended, or has no table", pool->name);
	if (strcmp(pool->p.status.state, "running"))
		return hybrid_fail(HYBRID_DEGRADED, next, "pool %s is %s", pool->name,
				   pool->p.status.state);
	return 0;
}

static int check_old(const struct hybrid_node *old)
{
	if (!old->member || !old->member->ok)
		return hybrid_fail(HYBRID_BADDEV, "see hybridctl scan",
				   "the cache device of pool %s is missing or refused", old->name);
	if (!old->active)
		return hybrid_fail(HYBRID_BADDEV,
				   "hybridctl activate it; or, if its cache device is gone for good, accept-loss or detach its volumes, then attach them to a new pool",
				   "pool %s is not active", old->name);
	return check_running(old, "hybridctl detach --live its volumes that lost nothing, and accept-loss the others; then attach them to a new pool");
}

static int check_new(const struct hybrid_node *new)
{
	return check_running(new, "hybridctl detach --live its volumes; then destroy it, or disconnect its device, and give another --cache");
}

static int check_active(const struct replace *r, const struct hybrid_node *node,
			const struct hybrid_volume_line *entry)
{
	if (!node->dm.live || node->dm.alone)
		return hybrid_fail(HYBRID_BUSY, "hybridctl activate it first",
				   "volume %s runs without its cache", node->name);
	/* A clean one was suspended by us: go on from there */
	if (node->dm.suspended && (!r->new || entry->dirty))
		return hybrid_fail(HYBRID_BUSY, "dmsetup resume it first", "%s is suspended", node->name);
	if (!node->dm.suspended && strcmp(node->v.status.state, "running"))
		return hybrid_fail(HYBRID_DEGRADED, "see hybridctl status", "volume %s is %s",
				   node->name, node->v.status.state);
	/* A volume that lost writes on the way must go on reporting that (S9) */
	if (node->v.status.origin_errors)
		return hybrid_fail(HYBRID_REFUSED, "see hybridctl status; deactivate and activate it first",
				   "I/O to the origin of %s failed", node->name);
	return 0;
}

static int check_closed(const struct hybrid_volume_line *entry, const struct hybrid_member *m)
{
	if (!entry->dirty && !(m->sb.flags & (HYBRID_SB_DIRTY | HYBRID_SB_ALONE)))
		return 0;
	return hybrid_fail(HYBRID_BUSY, "hybridctl activate it first, so that it can be drained",
			   "volume %s is not active, and its origin may lack newer data", entry->name);
}

/* The origin may have its new size already: an entry with the old one would never open. */
static int check_not_growing(const struct hybrid_volume_line *entry, bool active)
{
	if (!entry->data_sectors_new)
		return 0;
	return hybrid_fail(HYBRID_BUSY, active ? "hybridctl resize it again, which completes that" :
			   "hybridctl activate it first, which completes that",
			   "the resize of volume %s was interrupted", entry->name);
}

/*
 * A volume has the larger sectors of its two devices; the new cache device must not have larger
 * ones still.
 */
static int check_device(struct replace *r, const struct hybrid_device *cache, uint32_t granule,
			const struct hybrid_volume_line *entry)
{
	const struct hybrid_member *m = hybrid_find_member(&r->inv, entry->member_uuid);
	unsigned int origin = 512, fast = 512;
	int err;

	if (hybrid_entry_foreign(&r->inv, r->old->uuid, entry))
		return 0;
	err = hybrid_devices_distinct(cache->path, m->path, r->cl->given[OPT_FORCE]);
	if (err)
		return err;
	hybrid_sysfs_queue(m->devno, "logical_block_size", &origin);
	hybrid_sysfs_queue(r->old->member->devno, "logical_block_size", &fast);
	if (origin > granule * 512)
		return hybrid_fail(HYBRID_BADDEV, "use a larger block size",
				   "%s has sectors of %u bytes, more than the new pool's granule", m->path,
				   origin);
	return check_sectors(cache->devno, origin > fast ? m->devno : r->old->member->devno,
			     m->sb.name, "use a cache device with smaller sectors");
}

static int fail_inplace(const struct hybrid_volume_line *entry)
{
	return hybrid_fail(HYBRID_REFUSED,
			   "hybridctl detach it, and attach it to the pool when its cache is replaced",
			   "volume %s is in place: its origin cannot show to which of two pools it belongs",
			   entry->name);
}

/* The origin does not belong to the old pool: the entry there is only deleted, unless it is dirty. */
static int check_foreign(const struct replace *r, const struct hybrid_volume_line *entry)
{
	if (entry->tombstone || !entry->dirty)
		return 0;
	return hybrid_fail(HYBRID_REFUSED, "hybridctl detach --drop-dirty gives that data up",
			   "pool %s has dirty data of volume %s, whose origin no longer uses the pool",
			   r->old->name, entry->name);
}

static int fail_missing(const struct hybrid_volume_line *entry)
{
	char next[160], uuid[HYBRID_UUID_TEXT];

	snprintf(next, sizeof(next),
		 "connect it, and hybridctl activate; or, if it is gone for good, hybridctl detach --drop-dirty %s",
		 hybrid_uuid_text(uuid, entry->uuid));
	return hybrid_fail(HYBRID_DEGRADED, next, entry->tombstone ?
			   "volume %s was detached, and its origin, which is to be marked, is missing" :
			   "volume %s: its origin is missing", entry->name);
}

/* Whether the origin of a volume is here, and the volume can move. */
static int check_volume(struct replace *r, const struct hybrid_volume_line *entry)
{
	const struct hybrid_node *node = hybrid_find_uuid(&r->inv, entry->uuid, HYBRID_VOLUME);
	const struct hybrid_member *m = hybrid_find_member(&r->inv, entry->member_uuid);
	bool active = node && node->active;
	int err;

	if (entry->inplace)
		return fail_inplace(entry);
	if (!m)
		return fail_missing(entry);
	if (!m->ok)
		return fail_refused_origin(entry, m);
	if (hybrid_entry_foreign(&r->inv, r->old->uuid, entry))
		return check_foreign(r, entry);
	if (entry->tombstone)
		return hybrid_fail(HYBRID_BUSY, "hybridctl activate --all finishes it",
				   "the detach of volume %s was interrupted", entry->name);
	err = check_not_growing(entry, active);
	if (err)
		return err;
	return active ? check_active(r, node, entry) : check_closed(entry, m);
}

/* Checks all volumes before anything is written. */
static int check_volumes(struct replace *r, const struct new_pool *np)
{
	struct hybrid_volume_line *entries;
	unsigned int nr, i;
	int err;

	err = hybrid_pool_volumes(r->old->name, &entries, &nr);
	if (err)
		return err;
	for (i = 0; i < nr && !err; i++) {
		err = check_volume(r, &entries[i]);
		if (!err)
			err = check_device(r, &np->cache, np->plan.sb.geometry.granule_sectors,
					   &entries[i]);
	}
	free(entries);
	return err;
}

/* 1. The new pool ------------------------------------------------------------------ */

static int check_name(struct replace *r, const char *name)
{
	int err = hybrid_check_several(&r->inv, name, 1U << HYBRID_POOL);

	if (err)
		return err;
	if (hybrid_find(&r->inv, name, 1U << HYBRID_POOL))
		return hybrid_fail(HYBRID_BUSY, "destroy that pool, or deactivate it and disconnect its device",
				   "a pool %s already exists", name);
	return check_new_name("pool", name, !r->cl->given[OPT_TEST]);
}

/* Plans the new pool, which takes over the owner and the settings of the old one. */
static int plan_new(struct replace *r, struct new_pool *np)
{
	const struct hybrid_sb *old = &r->old->member->sb;
	struct hybrid_sb *sb = &np->plan.sb;
	int err = hybrid_cache_plan(&np->cache, &np->plan);

	memcpy(sb->replaces, old->pool_uuid, 16);
	memcpy(sb->host_id, old->host_id, 16);
	sb->settings = old->settings;
	return err;
}

static int prepare_new(struct replace *r, struct new_pool *np)
{
	const struct command_line *cl = r->cl;
	const struct hybrid_device *dev = &np->cache;
	const char *policy = cl->value[OPT_POLICY] ? cl->value[OPT_POLICY] : r->old->p.status.policy;
	char name[HYBRID_NAME_SIZE + sizeof(HYBRID_NEW_SUFFIX)];
	int err;

	if (!cl->value[OPT_CACHE])
		return hybrid_fail(HYBRID_USAGE, "give it with --cache DEVICE",
				   "no new cache device given for %s", r->name);
	snprintf(name, sizeof(name), "%s" HYBRID_NEW_SUFFIX, r->name);
	err = check_old(r->old);
	if (!err)
		err = check_name(r, name);
	if (!err)
		err = check_policy(policy, cl->given[OPT_TEST]);
	if (!err)
		err = new_pool_parse(np, cl, name, policy, NULL);
	if (!err)
		err = plan_new(r, np);
	if (!err)
		err = check_volumes(r, np);
	if (!err)
		err = check_owners_of(&dev, 1);
	return err ? err : confirm_format(cl, &dev, 1);
}

/* Repeats the checks that were made before the user was asked.  Takes the lock. */
static int check_again(struct replace *r, const struct new_pool *np)
{
	char uuid[HYBRID_UUID_TEXT];
	int err;

	hybrid_uuid_text(uuid, np->plan.sb.replaces);
	hybrid_inventory_free(&r->inv);
	err = lock_with_members(&r->inv);
	if (!err)
		err = find(r, uuid);
	if (!err && r->new)
		err = hybrid_fail(HYBRID_BUSY, "give the command again", "pool %s is already being replaced",
				  r->name);
	if (!err)
		err = check_old(r->old);
	if (!err)
		err = check_name(r, np->plan.name);
	return err ? err : check_volumes(r, np);
}

static int make_new(struct replace *r, struct new_pool *np)
{
	dev_t devno;
	int err = check_again(r, np);

	if (err)
		return err;
	hold_signals();
	err = new_pool_write(np);
	if (err)
		return err;
	err = start_pool(&np->plan.sb, np->cache.devno, &devno);
	if (err)
		undo_pool_write(np);
	else
		tell(r, "pool", np->plan.name, "active", "is active: the volumes move to it");
	return err;
}

/* 2. One volume --------------------------------------------------------------------- */

/* A volume that moves. */
struct move {
	struct replace *r;
	const struct hybrid_volume_line *from;	/* the old pool's entry */
	struct hybrid_volume_line to;		/* the new one's */
	struct hybrid_node *node;		/* its device; NULL: not active */
	struct hybrid_device origin;
	struct hybrid_sb before;		/* the origin's superblock before the move */
	bool torn;				/* a copy of the superblock may name the new pool */
	bool goes_on;				/* it is the new pool's, but linear for now */
	uint8_t key[16];
};

/* Removes the entry of an attempt that was cut short before the origin named the new pool. */
static int forget_stale(const struct move *m)
{
	const char *pool = m->r->new->name;
	struct hybrid_volume_line *entries;
	unsigned int nr, i;
	int err;

	err = hybrid_pool_volumes(pool, &entries, &nr);
	if (err)
		return err;
	for (i = 0; i < nr && !err; i++)
		if (!memcmp(entries[i].uuid, m->from->uuid, 16))
			err = forget_entry(pool, entries[i].id, entries[i].tombstone);
	free(entries);
	return err;
}

static int enter(struct move *m)
{
	char message[HYBRID_PARAMS_MAX];
	int err = forget_stale(m);

	m->to = *m->from;
	if (!err)
		err = choose_volume_id(m->r->new->name, m->to.name, &m->to.id);
	if (!err && hybrid_random(m->key, sizeof(m->key)))
		err = hybrid_fail(HYBRID_BADDEV, "try again", "no random numbers from the kernel");
	if (err)
		return err;
	hybrid_create_message_build(message, sizeof(message), &m->to, m->key);
	return hybrid_dm_message(m->r->new->name, message, NULL);
}

/* Suspends the volume, so that nobody writes from here on, and has the old pool close it. */
static int stop(const struct move *m)
{
	char message[64];
	int err = live_stop(m->from, m->node->name, m->node->below, m->node->dm.suspended);

	snprintf(message, sizeof(message), "release_volume %u", m->from->id);
	return err ? err : hybrid_dm_message(m->r->old->name, message, NULL);
}

/* Checks that the origin is the old pool's, closed, and has all newer data. */
static int check_origin(struct move *m)
{
	struct hybrid_member now;

	if (hybrid_member_read(&m->origin, &now) || !now.ok || now.sb.role != HYBRID_ROLE_ORIGIN ||
	    memcmp(now.sb.pool_uuid, m->r->old->uuid, 16) ||
	    memcmp(now.sb.volume_uuid, m->from->uuid, 16))
		return hybrid_fail(HYBRID_BADDEV, "see hybridctl scan", "%s is not the origin of %s",
				   m->origin.path, m->from->name);
	if (now.sb.flags & (HYBRID_SB_DIRTY | HYBRID_SB_ALONE) || now.sb.lost)
		return hybrid_fail(HYBRID_BUSY, "give the command again",
				   "the origin of %s may lack newer data", m->from->name);
	m->before = now.sb;
	return 0;
}

/* Writes the superblock as it was. */
static void hand_back(struct move *m)
{
	m->before.sequence += 2;
	m->torn = hybrid_member_write_back(&m->origin, &m->before);
}

/* Makes both copies name the new pool or, if that fails, the old one. */
static int hand_over(struct move *m)
{
	struct hybrid_sb sb;
	int err = check_origin(m);

	if (err)
		return err;
	sb = m->before;
	hybrid_member_pair(&sb, m->r->new->uuid, m->to.id, m->key);
	/* The mark is about the old device */
	sb.flags &= ~HYBRID_SB_EPHEMERAL;
	memset(sb.cache_path, 0, sizeof(sb.cache_path));
	err = hybrid_member_write(&m->origin, &sb);
	if (err)
		hand_back(m);
	return err;
}

/* Brings the volume back as it was, if the origin still names the old pool. */
static int undo_move(struct move *m, int err)
{
	m->r->drains &= !m->goes_on;
	if (m->goes_on)
		return hybrid_fail(err, "resolve the error above, then hybridctl replace-cache again",
				   "volume %s goes on without a cache for now", m->from->name);
	if (!m->torn)
		forget_entry(m->r->new->name, m->to.id, false);
	if (m->node && hybrid_dm_resume(m->node->name))
		return hybrid_fail(err, "hybridctl activate --all, once the error above is resolved",
				   "%s is suspended: its origin cannot be marked", m->node->name);
	return hybrid_fail(err, "resolve the error above, then hybridctl replace-cache again",
			   "volume %s has not moved", m->from->name);
}

/*
 * Loads the new pool's table.  If only the linear one can be loaded, the volume is the new pool's
 * all the same.
 */
static int change_table(struct move *m)
{
	const char *name = m->node->name;
	struct hybrid_dm_linear linear;
	int err = live_move(&m->to, name, m->r->new->dm.devno, m->node->below);

	m->goes_on = err && hybrid_dm_linear(name, &linear);
	if (err && !m->goes_on)
		hand_back(m);
	return err;
}

/*
 * 1. Makes the new pool's entry.  A cut before 3. leaves the entry clean, and it is deleted.
 * 2. Suspends the volume, and has the old pool close it.  The old entry stays: resumed, the volume would
 *    be as it was.
 * 3. Makes both copies of the origin's superblock name the new pool, which has cached nothing of it.  So
 *    the old pool's cached data is never used again, and the origin may run alone.
 * 4. Loads the new pool's table, after a linear one for a moment.
 * 5. Removes the old pool's entry.
 */
static int move(struct replace *r, const struct hybrid_volume_line *entry, struct hybrid_node *node)
{
	const struct hybrid_member *member = hybrid_find_member(&r->inv, entry->member_uuid);
	struct move m = { .r = r, .from = entry, .node = node };
	int err;

	err = hybrid_device_open(&m.origin, member->path, HYBRID_OPEN_WRITE |
				 (node ? 0 : HYBRID_OPEN_EXCLUSIVE));
	if (!err)
		err = enter(&m);
	if (err)
		goto out;
	if (node)
		err = stop(&m);
	if (!err)
		err = hand_over(&m);
	if (!err && node)
		err = change_table(&m);
	if (err) {
		err = undo_move(&m, err);
		goto out;
	}
	r->drains = false;
	err = forget_entry(r->old->name, entry->id, false);
out:
	hybrid_device_close(&m.origin);
	return err;
}

/* Completes the move of a volume that is the new pool's already. */
static int end_move(struct replace *r, const struct hybrid_volume_line *entry)
{
	const struct hybrid_node *node = hybrid_find_uuid(&r->inv, entry->uuid, HYBRID_VOLUME);
	struct hybrid_volume_line *entries;
	unsigned int nr, i;
	int err;

	err = hybrid_pool_volumes(r->new->name, &entries, &nr);
	if (err)
		return err;
	for (i = 0; i < nr && !err; i++) {
		if (memcmp(entries[i].uuid, entry->uuid, 16) || !node || !node->active)
			continue;
		if (node->dm.alone)
			err = live_join(&entries[i], node->name, r->new->dm.devno, node->below);
		else if (node->pool != r->new)
			err = live_move(&entries[i], node->name, r->new->dm.devno, node->below);
	}
	free(entries);
	return err ? err : forget_entry(r->old->name, entry->id, entry->tombstone);
}

/*
 * Drains without the lock: it may take hours, in which others must not wait.  Everything is looked
 * at again afterwards.
 */
static int drain(struct replace *r, struct hybrid_node *node)
{
	int err;

	unlock_tools();
	err = drain_and_wait(r->cl, node);
	if (err)
		return err;
	r->drains = true;
	memcpy(r->drained, node->uuid, 16);
	return 0;
}

static int step_volume(struct replace *r, const struct hybrid_volume_line *entry)
{
	struct hybrid_node *node = hybrid_find_uuid(&r->inv, entry->uuid, HYBRID_VOLUME);
	int err = check_volume(r, entry);

	if (err)
		return err;
	if (hybrid_entry_foreign(&r->inv, r->old->uuid, entry))
		return end_move(r, entry);
	if (node && !node->active)
		node = NULL;
	if (node && !node->dm.suspended &&
	    (!r->drains || memcmp(r->drained, node->uuid, 16) || node->v.status.dirty))
		return drain(r, node);
	err = move(r, entry, node);
	if (err)
		return err;
	r->moved++;
	tell(r, "volume", entry->name, "moved", "has moved");
	return 0;
}

/* Takes one step with the old pool's volumes: drains one, or moves one.  *left: there are any. */
static int step(struct replace *r, bool *left)
{
	struct hybrid_volume_line *entries;
	unsigned int nr;
	int err;

	*left = false;
	err = r->old ? check_running(r->old, "hybridctl detach --live its volumes that lost nothing, and accept-loss the others; then deactivate it, disconnect its device, and give the command again") : 0;
	if (!err)
		err = check_new(r->new);
	if (err || !r->old)
		return err;
	err = hybrid_pool_volumes(r->old->name, &entries, &nr);
	if (err)
		return err;
	*left = nr;
	if (nr)
		err = step_volume(r, &entries[0]);
	free(entries);
	return err;
}

/* Brings up a pool that no boot or activation has brought up yet. */
static int bring_up(struct replace *r, struct hybrid_node *pool)
{
	dev_t devno;
	int err;

	if (!pool || pool->active)
		return 0;
	if (!pool->member || !pool->member->ok)
		return hybrid_fail(HYBRID_BADDEV, "see hybridctl scan",
				   "the cache device of pool %s is missing or refused", pool->name);
	err = check_owner(r->cl, pool);
	if (!err)
		err = start_pool(&pool->member->sb, pool->member->devno, &devno);
	if (!err)
		hybrid_note("pool %s is active", pool->name);
	return err;
}

/* Takes the lock, and finds both pools as they are now. */
static int look(struct replace *r, const char *what)
{
	int err;

	unlock_tools();
	hybrid_inventory_free(&r->inv);
	err = lock_with_members(&r->inv);
	if (!err)
		err = find(r, what);
	if (!err)
		err = bring_up(r, r->old);
	if (!err)
		err = bring_up(r, r->new);
	if (!err)
		err = hybrid_inventory_look_again(&r->inv, HYBRID_LOAD_ACTIVE | HYBRID_LOAD_CLOSED);
	return err ? err : find(r, what);
}

static int move_all(struct replace *r, const char *new)
{
	bool left = true;
	int err = 0;

	while (left && !err) {
		/*
		 * A signal may end the command here, but not while a drain is on that nobody else
		 * would end
		 */
		fflush(stdout);
		if (!r->drains)
			release_signals();
		err = look(r, new);
		hold_signals();
		if (!err)
			err = step(r, &left);
	}
	if (err && r->drains)
		drain_cancel(r->drained, false);
	return err;
}

/* 3. The end -------------------------------------------------------------------------- */

static int give_back(const struct replace *r)
{
	int err = r->old ? give_cache_back(r->cl, r->old->uuid) : 0;

	if (!err)
		return 0;
	return hybrid_fail(err, "resolve the error above, or disconnect that device; then hybridctl replace-cache again",
			   "all volumes have moved, but the old cache device of %s was not freed",
			   r->name);
}

/*
 * Renames the device first: as long as the superblock names the old pool, a later attempt does this
 * again.
 */
static int take_name(struct replace *r)
{
	char message[HYBRID_NAME_SIZE + 16];
	int err = 0;

	if (strcmp(r->new->name, r->name))
		err = hybrid_dm_rename(r->new->name, r->name, true);
	snprintf(message, sizeof(message), "rename %s", r->name);
	if (!err)
		err = hybrid_dm_message(r->name, message, NULL);
	if (err)
		return hybrid_fail(err, "resolve the error above, then hybridctl replace-cache again",
				   "all volumes have moved, but pool %s has not taken the name %s",
				   r->new->name, r->name);
	hybrid_sysfs_uevent(r->new->below, "change");
	tell(r, "pool", r->name, "replaced", "has its new cache device");
	return 0;
}

static int run(struct replace *r)
{
	char new[HYBRID_UUID_TEXT];
	int err;

	hybrid_uuid_text(new, r->new->uuid);
	err = move_all(r, new);
	if (!err)
		err = give_back(r);
	if (!err)
		err = look(r, new);
	if (!err)
		err = take_name(r);
	return err && r->moved ? HYBRID_PARTIAL : err;
}

/* --test ------------------------------------------------------------------------------ */

/* The ids that the new pool has given to its volumes. */
struct numbers {
	struct hybrid_volume_line *entries;
	unsigned int nr;
	bool used[HYBRID_MAX_VOLUMES + 1];
};

static int load_numbers(const struct replace *r, struct numbers *n)
{
	unsigned int i;
	int err = r->new && r->new->active ?
		hybrid_pool_volumes(r->new->name, &n->entries, &n->nr) : 0;

	for (i = 0; i < n->nr; i++)
		n->used[n->entries[i].id] = true;
	return err;
}

/*
 * The volume's id in the new pool or, if it has not moved, the one that enter() would choose: an
 * attempt that was cut short gives its id back.
 */
static uint32_t number_of(struct numbers *n, const uint8_t volume[16], bool moved)
{
	uint32_t i;

	for (i = 0; i < n->nr; i++) {
		if (memcmp(n->entries[i].uuid, volume, 16))
			continue;
		if (moved)
			return n->entries[i].id;
		n->used[n->entries[i].id] = false;
	}
	for (i = 0; n->used[i]; i++)
		;
	n->used[i] = true;
	return i;
}

/* Prints the steps until the origin names the new pool. */
static void print_hand_over(struct replace *r, const struct hybrid_volume_line *to, const char *new,
			    const char *origin, const struct hybrid_volume_line *from, bool active)
{
	char message[HYBRID_PARAMS_MAX];
	uint8_t key[16] = { 0 };

	hybrid_random(key, sizeof(key));
	hybrid_create_message_build(message, sizeof(message), to, key);
	if (active)
		printf("dmsetup message %s 0 drain\n", from->name);
	printf("dmsetup message %s 0 '%s'\n", new, message);
	if (active)
		printf("dmsetup suspend --nolockfs %s\ndmsetup message %s 0 release_volume %u\n",
		       from->name, r->old->name, from->id);
	printf("write %s: superblocks that name pool %s\n", origin, new);
}

static void print_table(const struct hybrid_volume_line *to, const char *new, const char *origin)
{
	char params[HYBRID_PARAMS_MAX], pool[HYBRID_DEVICE_MAX];

	snprintf(pool, sizeof(pool), "/dev/mapper/%s", new);
	volume_params(params, to, pool, origin);
	printf("dmsetup load %s --table '0 %llu linear %s %llu'\ndmsetup resume %s\n"
	       "dmsetup load %s --table '0 %llu %s %s'\ndmsetup resume --nolockfs %s\n",
	       to->name, (unsigned long long)to->data_sectors, origin,
	       (unsigned long long)to->data_sector, to->name, to->name,
	       (unsigned long long)to->data_sectors, HYBRID_VOLUME_TARGET, params, to->name);
}

static void print_move(struct replace *r, const struct hybrid_volume_line *entry, const char *new,
		       struct numbers *numbers)
{
	const struct hybrid_member *m = hybrid_find_member(&r->inv, entry->member_uuid);
	const struct hybrid_node *node = hybrid_find_uuid(&r->inv, entry->uuid, HYBRID_VOLUME);
	bool active = node && node->active;
	bool moved = hybrid_entry_foreign(&r->inv, r->old->uuid, entry);
	const char *origin = m ? m->path : "the origin";
	struct hybrid_volume_line to = *entry;

	to.id = number_of(numbers, entry->uuid, moved);
	printf("# volume %s\n", entry->name);
	if (!moved)
		print_hand_over(r, &to, new, origin, entry, active);
	if (active && (!moved || node->dm.alone || node->pool != r->new))
		print_table(&to, new, origin);
	if (!entry->tombstone)
		printf("dmsetup message %s 0 delete_volume %u\n", r->old->name, entry->id);
	printf("dmsetup message %s 0 forget_volume %u\n", r->old->name, entry->id);
}

/* @new: the name of the new pool for now. */
static int print_test(struct replace *r, const char *new)
{
	struct hybrid_volume_line *entries = NULL;
	struct numbers numbers = { 0 };
	unsigned int nr = 0, i;
	int err = r->old && r->old->active ? hybrid_pool_volumes(r->old->name, &entries, &nr) : 0;

	if (!err)
		err = load_numbers(r, &numbers);
	for (i = 0; i < nr && !err; i++)
		print_move(r, &entries[i], new, &numbers);
	free(numbers.entries);
	free(entries);
	if (err)
		return err;
	if (r->old)
		printf("dmsetup remove %s\nwrite %s: zero the first and the last MiB\n", r->old->name,
		       r->old->member ? r->old->member->path : "-");
	if (strcmp(new, r->name))
		printf("dmsetup rename %s %s\n", new, r->name);
	printf("dmsetup message %s 0 'rename %s'\n", r->name, r->name);
	return 0;
}

/* ------------------------------------------------------------------------------------- */

static int start(struct replace *r)
{
	struct new_pool np = { .cache.fd = -1 };
	const struct command_line *cl = r->cl;
	int err = prepare_new(r, &np);

	if (!err && cl->given[OPT_TEST]) {
		print_pool_test(&np, cl->given[OPT_DISCARD]);
		err = print_test(r, np.plan.name);
		goto out;
	}
	if (!err && cl->given[OPT_DISCARD])
		err = check_again(r, &np);
	unlock_tools();
	if (!err && cl->given[OPT_DISCARD])
		err = new_pool_discard(cl, &np);
	if (!err)
		err = make_new(r, &np);
	if (err)
		fail_lost(err, &np, NULL);
	else
		err = look(r, r->cl->argv[0]);
out:
	hybrid_device_close(&np.cache);
	return err;
}

/* The command was given again: refuses another device for --cache. */
static int check_same(const struct replace *r)
{
	const char *path = r->cl->value[OPT_CACHE];
	struct stat st;

	if (!path || (!stat(path, &st) && S_ISBLK(st.st_mode) && st.st_rdev == r->new->member->devno))
		return 0;
	return hybrid_fail(HYBRID_REFUSED, "leave out --cache",
			   "the cache of pool %s is already being replaced by %s", r->name,
			   r->new->member->path);
}

static int replace(struct replace *r)
{
	int err;

	if (!r->new) {
		err = start(r);
		return err || r->cl->given[OPT_TEST] ? err : run(r);
	}
	err = check_same(r);
	if (!err && r->cl->given[OPT_TEST])
		return print_test(r, r->new->name);
	return err ? err : run(r);
}

int command_replace_cache(const struct command_line *cl)
{
	struct replace r = { .cl = cl };
	int err;

	if (cl->nr_caches > 1)
		return hybrid_fail(HYBRID_USAGE,
				   "mdadm --create --level=1 makes one device of two: give that",
				   "replace-cache takes one device");
	/* Lines of JSON and nothing else */
	if (cl->given[OPT_PROGRESS_JSON])
		hybrid_output.quiet = true;
	err = hybrid_dm_check(true);
	if (!err)
		err = hybrid_inventory_load(&r.inv, HYBRID_LOAD_MEMBERS | HYBRID_LOAD_ACTIVE |
					    HYBRID_LOAD_CLOSED, NULL, 0);
	if (!err)
		err = find(&r, cl->argv[0]);
	if (!err)
		err = replace(&r);
	unlock_tools();
	hybrid_inventory_free(&r.inv);
	return err;
}
