// SPDX-License-Identifier: GPL-2.0-or-later
/* activate makes devices from members, and deactivate removes them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "announce.h"
#include "common.h"
#include "config.h"
#include "ephemeral.h"
#include "errors.h"
#include "live.h"
#include "look.h"
#include "owner.h"
#include "sysfs.h"
#include "vacancies.h"

/* Activation of one pool. */
struct activation {
	const struct command_line *cl;
	struct hybrid_inventory *inv;
	const char *pool_name;
	const uint8_t *pool_uuid;
	dev_t pool;
	const struct hybrid_member *cache;	/* NULL: not found */
	const struct hybrid_node *only;	/* the volume to activate; NULL: all */
	const struct hybrid_volume_line *entries;	/* the pool's volumes */
	unsigned int nr_entries;
	bool looked;			/* for origins in place */
	bool postponed;			/* until we have looked for origins in place */
	unsigned int started, missing, failed;
};

/* State of command_activate(): of a first round, and of a second one for postponed pools. */
struct round {
	const struct command_line *cl;
	struct hybrid_inventory inv;
	struct vacancies vacancies;
	bool looked;			/* this is the second round */
	struct postponed *later;
	unsigned int nr_later;
	bool any;			/* result is set */
	int result;
};

struct postponed {
	uint8_t pool[16], only[16];	/* only: null: all volumes of the pool */
};

static int open_for_kernel(const struct hybrid_member *m)
{
	struct hybrid_device dev;
	int r;

	/* This open names the user of the device; the kernel's EBUSY does not */
	r = hybrid_device_open(&dev, m->path, HYBRID_OPEN_EXCLUSIVE);
	if (!r && dev.devno != m->devno)
		r = hybrid_fail(HYBRID_BADDEV, "try again", "%s changed since it was scanned",
				m->path);
	hybrid_device_close(&dev);
	return r;
}

/*
 * Members are read before the lock is taken, and another command may have changed one since.  This
 * reads it again before a step that would undo the change.  False: it is not the same member, or
 * cannot be read.
 */
static bool read_again(struct hybrid_member *m)
{
	struct hybrid_device dev;
	struct hybrid_member now;
	bool same;

	same = !hybrid_device_open(&dev, m->path, HYBRID_OPEN_QUIET) && dev.devno == m->devno &&
	       !hybrid_member_read(&dev, &now) && now.ok &&
	       !memcmp(now.sb.member_uuid, m->sb.member_uuid, 16);
	hybrid_device_close(&dev);
	if (same)
		m->sb = now.sb;
	return same;
}

/* In-place origins --------------------------------------------------------- */

/*
 * Dirty data written to a device that only looks like the origin would destroy both.  Data may be
 * dirty in any mode: a change of the mode takes effect before all is written back.
 */
static bool needs_user(const struct hybrid_volume_line *entry)
{
	return entry->mode == HYBRID_MODE_WRITEBACK || entry->dirty;
}

static int check_automatic(const struct activation *a, const struct hybrid_volume_line *entry)
{
	if (!a->cl->given[OPT_AUTO] || !needs_user(entry))
		return 0;
	return hybrid_fail(HYBRID_REFUSED, "hybridctl activate it, if its origin was not used anywhere else",
			   "volume %s is in place and %s: it never comes up by itself", entry->name,
			   entry->mode == HYBRID_MODE_WRITEBACK ? "in writeback mode" : "has dirty data");
}

/* A device that was free when it was looked at may be in use by now. */
static bool looks_like(const struct activation *a, const struct hybrid_lookalike *l,
		       const struct hybrid_volume_line *entry)
{
	return hybrid_identities_have(&l->identities, entry->member_uuid) &&
	       (a->cl->nr_devices || !hybrid_devno_held(l->devno, 0)) &&
	       !(a->cl->given[OPT_AUTO] && hybrid_sysfs_removable(l->devno));
}

/* Data that begins behind the superblock of bcache is bcache's until import has removed that. */
static bool is_cut_import(const struct hybrid_lookalike *l, const struct hybrid_volume_line *entry)
{
	return entry->data_sector && !strcmp(l->claim, "bcache");
}

/*
 * A device that became something else, by its contents, is taken only if the user names it.  The
 * contents may be the volume's own: an LVM physical volume, say.
 */
static bool may_be_taken(const struct activation *a, const struct hybrid_lookalike *l,
			 const struct hybrid_volume_line *entry)
{
	return !l->claim[0] || (a->cl->nr_devices && !is_cut_import(l, entry));
}

static int fail_claimed(const struct hybrid_lookalike *l, const struct hybrid_volume_line *entry)
{
	char next[HYBRID_NAME_SIZE + HYBRID_PATH_MAX + 80] = "give the hybridctl import again that was interrupted";

	if (!is_cut_import(l, entry))
		snprintf(next, sizeof(next), "hybridctl activate %s --device %s, only if it is the origin all the same",
			 entry->name, l->path);
	return hybrid_fail(HYBRID_REFUSED, next, "volume %s: %s looks like its origin, but has become something else: %s",
			   entry->name, l->path, l->claim);
}

/* Another volume's disk may have got the contents of this one's, or the reverse. */
static int check_one_volume(const struct activation *a, const struct hybrid_lookalike *l,
			    const struct hybrid_volume_line *entry)
{
	char next[2 * HYBRID_NAME_SIZE + HYBRID_PATH_MAX + 96];
	const struct hybrid_volume_line *other;
	const struct hybrid_node *node;

	for (other = a->entries; other < a->entries + a->nr_entries; other++) {
		if (other == entry || !other->inplace || other->tombstone ||
		    !hybrid_identities_have(&l->identities, other->member_uuid))
			continue;
		node = hybrid_find_uuid(a->inv, other->uuid, HYBRID_VOLUME);
		if ((node && node->active) || (a->only && a->cl->nr_devices))
			continue;
		snprintf(next, sizeof(next), "hybridctl activate the right one by its name, with --device %s; then detach the other one",
			 l->path);
		return hybrid_fail(HYBRID_REFUSED, next, "%s looks like the origin of two volumes: %s and %s", l->path,
				   entry->name, other->name);
	}
	return 0;
}

static int find_inplace(const struct activation *a, const struct hybrid_volume_line *entry,
			dev_t *devno)
{
	const struct hybrid_inventory *inv = a->inv;
	const struct hybrid_lookalike *l, *claimed = NULL;
	int r = check_automatic(a, entry);

	for (l = inv->lookalikes; !r && l < inv->lookalikes + inv->nr_lookalikes; l++) {
		if (!looks_like(a, l, entry) || l->devno == *devno)
			continue;
		if (!may_be_taken(a, l, entry)) {
			claimed = l;
			continue;
		}
		r = check_one_volume(a, l, entry);
		if (!r && *devno)
			r = hybrid_fail(HYBRID_BADDEV, "name the right one with --device",
					"volume %s: more than one device looks like its origin, for example %s",
					entry->name, l->path);
		*devno = l->devno;
	}
	return r || *devno || !claimed ? r : fail_claimed(claimed, entry);
}

/*
 * Devices are looked at without the lock, so the whole pool waits for the second round.  That
 * search misses a device that appears meanwhile, and so do udev's rules if they do not see yet that
 * it is awaited.  So it is awaited first.
 */
static void await_lookalike(struct activation *a, const struct hybrid_volume_line *entry)
{
	a->postponed = true;
	if (a->cl->given[OPT_AUTO] && !needs_user(entry))
		await_origin(entry->member_uuid, a->pool_uuid);
}

/* Volumes ------------------------------------------------------------------ */

/* Sets *devno to 0 if the origin is missing, which is no error. */
static int find_origin(struct activation *a, const struct hybrid_volume_line *entry,
		       dev_t *devno)
{
	struct hybrid_member *m;

	*devno = 0;
	if (entry->inplace)
		return find_inplace(a, entry, devno);
	m = hybrid_find_member(a->inv, entry->member_uuid);
	if (!m)
		return 0;
	if (!m->ok)
		return fail_refused_origin(entry, m);
	if (memcmp(m->sb.pool_uuid, a->pool_uuid, 16) ||
	    memcmp(m->sb.volume_uuid, entry->uuid, 16))
		return hybrid_fail(HYBRID_BADDEV, "see hybridctl scan",
				   "volume %s: %s belongs to another pool or volume", entry->name,
				   m->path);
	if (on_its_own(&m->sb) && hybrid_config_foreign(m->sb.host_id) &&
	    !named_without_id(a->cl) && !a->cl->given[OPT_FOREIGN])
		return hybrid_fail(HYBRID_REFUSED, "stop it there, then hybridctl adopt it",
				   "volume %s: its origin %s ran without its cache, on another host",
				   entry->name, m->path);
	if (a->cache && a->cache->ok)
		follow_pool(m, a->cache);
	*devno = m->devno;
	return open_for_kernel(m);
}

/* Origins alone ------------------------------------------------------------- */

/* An origin without an owner belongs to this host from now on. */
static bool make_ours(struct hybrid_member *m)
{
	if (!hybrid_uuid_is_null(m->sb.host_id) || hybrid_uuid_is_null(hybrid_config()->host_id))
		return false;
	memcpy(m->sb.host_id, hybrid_config()->host_id, 16);
	return true;
}

/* Writes a nonce that the cache does not know to both copies, before anything else changes (J9). */
static int mark_alone(const struct hybrid_device *dev, struct hybrid_member *m)
{
	if (m->sb.flags & HYBRID_SB_DIRTY)
		return hybrid_fail(HYBRID_DEGRADED,
				   "connect the cache device, then activate again; hybridctl accept-loss if it is gone for good",
				   "volume %s: its cache device is missing, and has newer data than the origin",
				   m->sb.name);
	if (hybrid_random(&m->sb.nonce, sizeof(m->sb.nonce)))
		return hybrid_fail(HYBRID_BADDEV, "try again", "no random numbers from the kernel");
	make_ours(m);
	m->sb.flags |= HYBRID_SB_ALONE;
	m->sb.paired_nonce = 0;
	m->sb.sequence++;
	return hybrid_member_write(dev, &m->sb);
}

/* Makes both copies of the superblock say that the volume runs without its cache, or has none. */
static int prepare_origin(const struct hybrid_member *known)
{
	struct hybrid_device dev;
	struct hybrid_member m;
	bool unite;
	int r;

	r = hybrid_device_open(&dev, known->path, HYBRID_OPEN_EXCLUSIVE);
	if (r)
		return r;
	if (dev.devno != known->devno || hybrid_member_read(&dev, &m) || !m.ok ||
	    m.sb.role != known->sb.role)
		r = hybrid_fail(HYBRID_BADDEV, "try again", "%s changed since it was scanned",
				known->path);
	unite = !r && m.sb.role != HYBRID_ROLE_ORIGIN && (make_ours(&m) || m.apart);
	/* udev counts a device that was open for writing as changed */
	if (!r && (unite || m.sb.role == HYBRID_ROLE_ORIGIN))
		r = hybrid_device_reopen(&dev, HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE);
	if (!r && m.sb.role == HYBRID_ROLE_ORIGIN)
		r = mark_alone(&dev, &m);
	else if (!r && unite)
		r = hybrid_member_unite(&dev, &m);
	hybrid_device_close(&dev);
	return r;
}

/* Starts a volume as its origin and nothing else, under its own name. */
static int start_linear(const struct hybrid_member *m)
{
	const struct hybrid_sb *sb = &m->sb;
	int r;

	if (hybrid_dm_name_taken(sb->name))
		return hybrid_fail(HYBRID_BUSY, "rename or remove that device",
				   "volume %s: a device-mapper device of this name exists", sb->name);
	r = prepare_origin(m);
	return r ? r : hybrid_dm_create_alone(sb->name, sb->volume_uuid, sb->data_sectors, m->devno,
					      sb->data_sector);
}

static int start_uncached(const struct hybrid_member *m)
{
	int r = start_linear(m);

	if (!r)
		hybrid_note("volume %s is active, without a cache: /dev/mapper/%s", m->sb.name,
			    m->sb.name);
	return r;
}

/* Volumes that go --------------------------------------------------------------- */

static bool is_origin_of(const struct hybrid_member *m, const uint8_t pool[16])
{
	return m->sb.role == HYBRID_ROLE_ORIGIN && !memcmp(m->sb.pool_uuid, pool, 16);
}

/*
 * Marks the origin in both copies of its superblock.  One of them may say already that it is
 * detached, and then the origin may be in use.
 */
static int mark_origin(const struct activation *a, const struct hybrid_volume_line *entry,
		       const struct hybrid_member *m, bool live)
{
	bool begun = m->sb.role == HYBRID_ROLE_DETACHED && m->apart;
	struct hybrid_volume_settings next = settings_of(entry);
	struct hybrid_device dev;
	struct hybrid_member now;
	int r;

	if (!begun && !is_origin_of(m, a->pool_uuid))
		return 0;
	r = hybrid_device_open(&dev, m->path, HYBRID_OPEN_WRITE |
			       (live || begun ? 0 : HYBRID_OPEN_EXCLUSIVE));
	/* The inventory was read before the lock was taken */
	if (!r && (hybrid_member_read(&dev, &now) || is_origin_of(&now, a->pool_uuid)))
		r = hybrid_member_mark_detached(&dev, &next);
	else if (!r && now.sb.role == HYBRID_ROLE_DETACHED)
		r = hybrid_member_unite(&dev, &now);
	hybrid_device_close(&dev);
	return r;
}

static bool pool_failed(const struct activation *a)
{
	return hybrid_pool_failed(hybrid_find_uuid(a->inv, a->pool_uuid, HYBRID_POOL));
}

/*
 * Frees the id of a volume whose origin is marked.  A pool that has failed cannot record this; it
 * deletes its data of the volume when its cache device is back.
 */
static int forget(const struct activation *a, const struct hybrid_volume_line *entry)
{
	char message[64];

	if (pool_failed(a)) {
		hybrid_verbose("pool %s has failed, and forgets volume %s when it is back", a->pool_name,
			       entry->name);
		return 0;
	}
	snprintf(message, sizeof(message), "forget_volume %u", entry->id);
	return hybrid_dm_message(a->pool_name, message, NULL);
}

static bool is_linear(const struct hybrid_node *node)
{
	return node->dm.alone && !node->dm.suspended;
}

/*
 * Completes a detach --live: the device is suspended, or has the linear table already.  @marked: so
 * is its origin.
 */
static int finish_live(struct activation *a, struct hybrid_node *node,
		       const struct hybrid_volume_line *entry, bool marked)
{
	char params[HYBRID_PARAMS_MAX];
	int r;

	if (is_linear(node))
		return 0;
	if (!marked && pool_failed(a)) {
		a->missing++;
		return hybrid_fail(HYBRID_DEGRADED, "hybridctl activate --all, once its origin is found",
				   "%s is suspended: its pool has failed, and its origin, which cannot be marked, is missing or refused",
				   node->name);
	}
	if (!node->dm.alone)
		hybrid_linear_params(params, node->below, entry->data_sector);
	r = node->dm.alone ? hybrid_dm_resume(node->name) :
	    hybrid_dm_switch(node->name, HYBRID_LINEAR_TARGET, entry->data_sectors, params);
	if (r)
		return r;
	hybrid_note("volume %s is detached: /dev/mapper/%s goes on without a cache", node->name,
		    node->name);
	return 0;
}

/*
 * Completes a detach that was cut short: marks the origin, makes the device linear if it is in use
 * (@live), then frees the id.  The origin comes first: if the pool failed before it had recorded the
 * detach, the mark alone keeps its cached data from being used again.  An origin that has been
 * attached to another pool meanwhile is not marked.
 */
static int mark_and_forget(struct activation *a, const struct hybrid_volume_line *entry,
			   struct hybrid_node *node, bool live)
{
	const struct hybrid_member *m = hybrid_find_member(a->inv, entry->member_uuid);
	bool may_mark = entry->inplace || (m && m->ok);
	bool goes_on = live && entry->tombstone;
	int r = goes_on && !is_linear(node) ? survive_suspend() : 0;

	if (!r && m && m->ok)
		r = mark_origin(a, entry, m, live);
	if (!r && goes_on)
		r = finish_live(a, node, entry, may_mark);
	if (r)
		return r;
	if (may_mark)
		return forget(a, entry);
	if (m)
		return fail_refused_origin(entry, m);
	hybrid_verbose("volume %s was detached; its origin is missing and cannot be marked yet",
		       entry->name);
	return 0;
}

/* Brings the volume up as the next boot will. */
static int go_on_uncached(struct activation *a, const struct hybrid_volume_line *entry,
			  struct hybrid_node *node)
{
	struct hybrid_member *m = hybrid_find_member(a->inv, entry->member_uuid);
	int r;

	/* Not one that another pool has by now */
	if (!m || !node || node->active || !member_comes_up(a->cl, m) ||
	    (m->sb.role != HYBRID_ROLE_DETACHED && memcmp(m->sb.pool_uuid, a->pool_uuid, 16)))
		return 0;
	m->sb.role = HYBRID_ROLE_DETACHED;
	r = start_uncached(m);
	node->active = !r;
	return r;
}

/* The origin has another cache, or none any more: only the user may drop dirty data in this cache. */
static int warn_given_up(const struct hybrid_volume_line *entry)
{
	hybrid_warn("volume %s: its origin no longer uses this cache, which still has dirty data of the volume: hybridctl detach --drop-dirty %s gives that data up",
		    entry->name, entry->name);
	return 0;
}

/* Cleans up in the pool after a volume that was detached, or that has another cache. */
static int finish_detach(struct activation *a, const struct hybrid_volume_line *entry,
			 struct hybrid_node *node)
{
	/* The device is not another pool's by now */
	bool live = node && node->active && (node->dm.alone || node->pool == hybrid_find_uuid(
		a->inv, a->pool_uuid, HYBRID_POOL));
	char message[64];
	int r = 0;

	if (!entry->tombstone && entry->dirty)
		return warn_given_up(entry);
	/* A pool that has failed does that when it is back */
	if (!entry->tombstone && !pool_failed(a)) {
		snprintf(message, sizeof(message), "delete_volume %u", entry->id);
		r = hybrid_dm_message(a->pool_name, message, NULL);
	}
	if (!r)
		r = mark_and_forget(a, entry, node, live);
	if (r || !entry->tombstone || entry->inplace)
		return r;
	return go_on_uncached(a, entry, node);
}

/*
 * The kernel has given the reason: the origin is older than its cache, say, or newer than this copy
 * of the cache.
 */
static int fail_start_volume(const struct hybrid_volume_line *entry, int r)
{
	char next[HYBRID_NAME_SIZE + 192];

	if (r != HYBRID_BADDEV)
		return r;
	snprintf(next, sizeof(next),
		 "connect the cache device that it last ran with; or hybridctl detach --drop-dirty %s, which gives up the data that only this one has",
		 entry->name);
	return hybrid_fail(r, next, "volume %s is not active", entry->name);
}

/* One in place may be here and look like any other device, as nothing of ours is on it. */
static int fail_missing(const struct hybrid_volume_line *entry)
{
	char next[256] = "connect it, then activate again", uuid[HYBRID_UUID_TEXT];
	size_t len = strlen(next);

	if (entry->inplace && entry->dirty)
		snprintf(next + len, sizeof(next) - len,
			 "; if it is here, leave it as it is: see CACHING IN PLACE in hybridctl(8)");
	else if (entry->inplace)
		snprintf(next + len, sizeof(next) - len,
			 "; if it is here, hybridctl detach %s, and attach it again in place",
			 entry->name);
	return hybrid_fail(HYBRID_DEGRADED, next, "volume %s: its origin (member %s) is missing%s",
			   entry->name, hybrid_uuid_text(uuid, entry->member_uuid), entry->inplace ?
			   ", or the UUID of its file system has changed since it was recorded" : "");
}

static int activate_volume(struct activation *a, const struct hybrid_volume_line *entry)
{
	const struct hybrid_member *m = entry->inplace ? NULL :
					hybrid_find_member(a->inv, entry->member_uuid);
	dev_t origin;
	int r;

	if (m && m->ok && !member_comes_up(a->cl, m))
		return 0;
	r = find_origin(a, entry, &origin);
	if (r)
		return r;
	if (!origin) {
		a->missing++;
		return fail_missing(entry);
	}
	if (hybrid_dm_name_taken(entry->name))
		return hybrid_fail(HYBRID_BUSY, "rename or remove that device",
				   "volume %s: a device-mapper device of this name exists",
				   entry->name);
	r = start_volume(entry, a->pool, origin);
	if (r)
		return fail_start_volume(entry, r);
	if (entry->inplace)
		await_no_longer(entry->member_uuid, a->pool_uuid);
	a->started++;
	hybrid_note("volume %s is active: /dev/mapper/%s", entry->name, entry->name);
	return 0;
}

/* Removes a device without a usable table, left by a killed activation or by dmsetup remove --force. */
static int remove_empty(struct hybrid_node *node)
{
	int r;

	if (!node->active || node->dm.live)
		return 0;
	if (node->dm.open_count)
		return hybrid_fail(HYBRID_BUSY, "stop its users first (lsblk, fuser)",
				   "%s has no table or an error table, and is in use", node->name);
	r = hybrid_dm_remove(node->name);
	if (!r)
		node->active = false;
	return r;
}

/* A volume that a user, or a command that was killed, left suspended does not count as active. */
static int check_suspended(const struct activation *a, const struct hybrid_node *node)
{
	if (!node->dm.suspended || a->cl->given[OPT_AUTO])
		return 0;
	return hybrid_fail(HYBRID_BUSY, "dmsetup resume it", "%s is suspended: its I/O is held back",
			   node->name);
}

/*
 * Whether an active volume is still without this pool: it runs alone, or it is suspended with the
 * table of another pool because a replace-cache was cut short after the origin had become this
 * pool's.
 */
static bool may_join(const struct activation *a, const struct hybrid_node *node)
{
	if (node->dm.alone)
		return !node->dm.suspended;
	return node->dm.live && node->dm.suspended && node->pool &&
	       memcmp(node->pool->uuid, a->pool_uuid, 16);
}

/*
 * Gives a volume this pool's table: it runs alone, on this very origin, or an attach, or a move to
 * this pool, was cut short before its last step.
 */
static int join(struct activation *a, const struct hybrid_volume_line *entry,
		const struct hybrid_node *node)
{
	const struct hybrid_member *m = hybrid_find_member(a->inv, entry->member_uuid);
	int r;

	if (!m || m->devno != node->below)
		return 0;
	if (!m->ok)
		return fail_refused_origin(entry, m);
	if (!member_comes_up(a->cl, m))
		return 0;
	r = node->dm.alone ? live_join(entry, node->name, a->pool, m->devno) :
			     live_move(entry, node->name, a->pool, m->devno);
	if (r)
		return r;
	a->started++;
	hybrid_note("volume %s has its cache again: /dev/mapper/%s", node->name, node->name);
	return 0;
}

/* Finds whether a volume has left the pool: it was deleted, or its origin has another cache, or none. */
static int find_left(struct activation *a, const struct hybrid_volume_line *entry,
		     struct hybrid_node *node, bool *left)
{
	struct hybrid_member *m = hybrid_find_member(a->inv, entry->member_uuid);

	*left = entry->tombstone || hybrid_entry_foreign(a->inv, a->pool_uuid, entry);
	if (entry->tombstone || !*left)
		return 0;
	if (!read_again(m))
		return hybrid_fail(HYBRID_BADDEV, "try again", "%s changed since it was scanned", m->path);
	*left = hybrid_entry_foreign(a->inv, a->pool_uuid, entry);
	/* It came to this pool meanwhile */
	if (node && !*left)
		node->pool = hybrid_find_uuid(a->inv, a->pool_uuid, HYBRID_POOL);
	return 0;
}

static int activate_entry(struct activation *a, const struct hybrid_volume_line *entry)
{
	struct hybrid_node *node = hybrid_find_uuid(a->inv, entry->uuid, HYBRID_VOLUME);
	bool left;
	int r;

	if (!entry->tombstone &&
	    !volume_comes_up(a->cl, entry->name, entry->uuid, a->pool_name, a->pool_uuid, a->cache))
		return 0;
	r = node ? remove_empty(node) : 0;
	if (!r)
		r = find_left(a, entry, node, &left);
	if (r)
		return r;
	if (left)
		return finish_detach(a, entry, node);
	/* Data read from it may be in a page cache, and would change when the volume gets its cache */
	if (node && node->active && node->dm.alone && node->dm.readonly)
		return hybrid_fail(HYBRID_BUSY, "hybridctl deactivate it first",
				   "volume %s is shown read-only, without its cache", node->name);
	if (node && node->active && !entry->inplace && may_join(a, node))
		return join(a, entry, node);
	if (node && node->active)
		return check_suspended(a, node);
	return activate_volume(a, entry);
}

static bool is_wanted(const struct activation *a, const struct hybrid_volume_line *entry)
{
	return !a->only || !memcmp(a->only->uuid, entry->uuid, 16);
}

/* Whether the pool has to wait until origins in place have been looked for. */
static bool postpone(struct activation *a, const struct hybrid_volume_line *entries,
		     unsigned int nr)
{
	const struct hybrid_node *node;
	unsigned int i;

	for (i = 0; i < nr && !a->looked; i++) {
		node = hybrid_find_uuid(a->inv, entries[i].uuid, HYBRID_VOLUME);
		if (is_wanted(a, &entries[i]) && entries[i].inplace && !entries[i].tombstone &&
		    !(node && node->active))
			await_lookalike(a, &entries[i]);
	}
	return a->postponed;
}

/* An attach was cut short, or a repair lost the entry: the origin may have all data of the volume. */
static int fail_unknown(const struct activation *a)
{
	const struct hybrid_member *m = a->only->member;
	char next[HYBRID_NAME_SIZE + 96] = "see hybridctl scan";

	if (m && m->sb.flags & HYBRID_SB_DIRTY)
		snprintf(next, sizeof(next), "hybridctl accept-loss %s goes on without the data that only the cache had",
			 a->only->name);
	else if (m)
		snprintf(next, sizeof(next), "hybridctl detach %s makes it a volume without a cache",
			 a->only->name);
	return hybrid_fail(HYBRID_BADDEV, next, "pool %s does not know volume %s", a->pool_name,
			   a->only->name);
}

static int activate_volumes(struct activation *a)
{
	struct hybrid_volume_line *entries;
	unsigned int nr, i, wanted = 0;
	int r, worst = 0;

	r = hybrid_pool_volumes(a->pool_name, &entries, &nr);
	if (r)
		return r;
	a->entries = entries;
	a->nr_entries = nr;
	if (postpone(a, entries, nr))
		nr = 0;
	for (i = 0; i < nr; i++) {
		if (!is_wanted(a, &entries[i]))
			continue;
		wanted++;
		r = activate_entry(a, &entries[i]);
		if (r && r != HYBRID_DEGRADED) {
			a->failed++;
			worst = r;
		}
	}
	free(entries);
	if (a->only && !wanted && !a->postponed)
		return fail_unknown(a);
	if (worst)
		return a->started ? HYBRID_PARTIAL : worst;
	return a->missing ? HYBRID_DEGRADED : 0;
}

/* Pools -------------------------------------------------------------------- */

/* The kernel has given the reason: the device cannot be written, say. */
static int fail_start_pool(const struct hybrid_member *m, int r)
{
	char next[2 * HYBRID_PATH_MAX + HYBRID_NAME_SIZE + 224];

	if (r != HYBRID_BADDEV)
		return r;
	snprintf(next, sizeof(next),
		 "hybridctl activate %s once more; hybridctl check %s; if it cannot be mended, hybridctl writeback --copy-only %s ORIGIN... saves its data, and hybridctl accept-loss --force VOLUME goes on without it",
		 m->sb.name, m->path, m->path);
	return hybrid_fail(r, next, "pool %s is not active", m->sb.name);
}

static int start_inactive_pool(struct activation *a, struct hybrid_node *pool)
{
	struct hybrid_member *m = pool->member;
	int r;

	if (!m)
		return hybrid_fail(HYBRID_DEGRADED, "connect it, then activate again",
				   "pool %s: its cache device is missing", pool->name);
	if (hybrid_dm_name_taken(pool->name))
		return hybrid_fail(HYBRID_BUSY, "rename or remove that device",
				   "pool %s: a device-mapper device of this name exists",
				   pool->name);
	claim(m);
	r = open_for_kernel(m);
	if (r)
		return r;
	r = start_pool(&m->sb, m->devno, &a->pool);
	if (r)
		return fail_start_pool(m, r);
	hybrid_note("pool %s is active", pool->name);
	return 0;
}

/*
 * Enters the volumes of a lost pool in the pool that replaces it.  A volume that cannot be entered
 * goes on without a pool.
 */
static int enter_followers(struct activation *a, const struct hybrid_node *pool)
{
	struct hybrid_inventory *inv = a->inv;
	struct hybrid_node *node;
	int r, worst = 0;

	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++) {
		if (!is_follower(node) || node->pool != pool || (a->only && node != a->only) ||
		    !device_comes_up(a->cl, node->member->devno) ||
		    !volume_comes_up(a->cl, node->name, node->uuid, a->pool_name, a->pool_uuid,
				     pool->member))
			continue;
		r = enter_follower(node, pool, a->pool);
		if (r)
			worst = r;
	}
	return worst;
}

/* The pool itself does not come up: all its followers go on without a pool. */
static void leave_pool(struct hybrid_inventory *inv, const struct hybrid_node *pool)
{
	struct hybrid_node *node;

	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++)
		if (is_follower(node) && node->pool == pool)
			node->pool = NULL;
}

static void print_activation(const struct activation *a, const struct hybrid_node *pool)
{
	if (!pool->active)
		print_pool_command(&pool->member->sb, pool->member->path);
	printf("# then the volumes of pool %s whose origins are present\n", a->pool_name);
}

static int postpone_pool(struct round *round, const struct activation *a)
{
	struct postponed *array = reallocarray(round->later, round->nr_later + 1, sizeof(*array));

	if (!array)
		return hybrid_nomem();
	round->later = array;
	array += round->nr_later++;
	memset(array, 0, sizeof(*array));
	memcpy(array->pool, a->pool_uuid, sizeof(array->pool));
	if (a->only)
		memcpy(array->only, a->only->uuid, sizeof(array->only));
	return 0;
}

/* Combines two results: if they differ, HYBRID_DEGRADED if either is, else HYBRID_PARTIAL. */
static int combine(int a, int b, bool first)
{
	if (first || a == b)
		return b;
	return a == HYBRID_DEGRADED || b == HYBRID_DEGRADED ? HYBRID_DEGRADED : HYBRID_PARTIAL;
}

static void add_result(struct round *round, int r)
{
	round->result = combine(round->result, r, !round->any);
	round->any = true;
}

/* With its cache a volume is never read-only: the cache writes even if users only read. */
static int fail_readonly(const char *name)
{
	return hybrid_fail(HYBRID_REFUSED,
			   "leave out --readonly, then mount it read-only, or blockdev --setro /dev/mapper/NAME",
			   "the cache device of %s is here: --readonly is only for a volume whose cache device is missing",
			   name);
}

/* @only: one volume of the pool; NULL: all. */
static void activate_pool(struct round *round, struct hybrid_node *pool,
			  const struct hybrid_node *only)
{
	struct activation a = {
		.cl = round->cl, .inv = &round->inv, .cache = pool->member, .only = only,
		.looked = round->looked,
		.pool_name = pool->name, .pool_uuid = pool->uuid, .pool = pool->dm.devno,
	};
	int r, entered = 0;

	if (!pool->active && !pool_comes_up(round->cl, &round->inv, pool)) {
		hybrid_verbose("hybrid.conf does not let %s come up by itself", pool->name);
		return;
	}
	if (round->cl->given[OPT_READONLY] && (pool->active || pool->member)) {
		add_result(round, fail_readonly(only ? only->name : pool->name));
		return;
	}
	r = check_owner(round->cl, pool);
	if (r)
		add_result(round, r);
	if (r || (!pool->active && pool->member && !member_comes_up(round->cl, pool->member))) {
		leave_pool(&round->inv, pool);
		return;
	}
	if (round->cl->given[OPT_TEST]) {
		print_activation(&a, pool);
		return;
	}
	/* A volume without a cache needs no module */
	r = hybrid_dm_check(false);
	if (!r)
		r = remove_empty(pool);
	if (!r && !pool->active)
		r = start_inactive_pool(&a, pool);
	if (r)
		leave_pool(&round->inv, pool);
	else
		entered = enter_followers(&a, pool);
	if (entered)
		add_result(round, entered);
	/* A volume that could not be entered does not belong to this pool */
	if (!r && !(entered && only && !only->pool))
		r = activate_volumes(&a);
	if (a.postponed)
		r = postpone_pool(round, &a);
	if (r || !a.postponed)
		add_result(round, r);
}

/* Fails for a name that is unknown, or whose member is here but refused. */
static int fail_refused(struct hybrid_inventory *inv, const char *what)
{
	struct hybrid_member *m;

	for (m = inv->members; m < inv->members + inv->nr_members; m++)
		if (!m->ok && (!strcmp(m->sb.name, what) || !strcmp(m->path, what)))
			return hybrid_fail(HYBRID_BADDEV, hybrid_member_next(m, NEXT_OF_COPY),
					   "%s is refused: %s", m->path, m->why);
	return hybrid_fail(HYBRID_BADDEV, "see hybridctl scan",
			   "no pool or volume %s is known", what);
}

static int fail_no_pool(const struct hybrid_node *volume)
{
	char uuid[HYBRID_UUID_TEXT];

	return hybrid_fail(HYBRID_DEGRADED, "connect the cache device, then activate again",
			   "volume %s: its pool %s is missing; the origin alone may be out of date",
			   volume->name, hybrid_uuid_text(uuid, volume->pool_uuid));
}

/* Whether a volume runs without its cache at once: it did so before, or its cache may come up blank. */
static bool goes_alone(const struct hybrid_member *m)
{
	return m && !(m->sb.flags & HYBRID_SB_DIRTY) &&
	       (m->sb.flags & HYBRID_SB_ALONE || ephemeral_of(m));
}

/* Starts a clean volume without its cache device, which is not here; or any volume, read-only. */
static int start_alone(const struct command_line *cl, struct hybrid_inventory *inv,
		       const struct hybrid_node *volume)
{
	const struct hybrid_member *m = volume->member;
	int r;

	/* A cache device that is here, but not to be used, may have newer data */
	if (!m || !m->ok || hybrid_find_cache(inv, volume->pool_uuid))
		return fail_no_pool(volume);
	if (cl->given[OPT_READONLY])
		return start_readonly(m);
	r = start_linear(m);
	if (!r)
		hybrid_warn("volume %s runs without its cache device: /dev/mapper/%s",
			    volume->name, volume->name);
	return r;
}

static int print_linear(const struct hybrid_node *volume)
{
	const struct hybrid_sb *sb = &volume->member->sb;
	char uuid[HYBRID_DM_UUID_TEXT];

	printf("dmsetup create %s --uuid %s --table '0 %llu %s %s %llu'\n", volume->name,
	       hybrid_dm_uuid(uuid, volume->uuid, false), (unsigned long long)sb->data_sectors,
	       HYBRID_LINEAR_TARGET, volume->member->path, (unsigned long long)sb->data_sector);
	return 0;
}

static int start_without_pool(struct round *round, struct hybrid_node *volume)
{
	const struct command_line *cl = round->cl;

	if (hybrid_node_uncached(volume) && cl->given[OPT_TEST])
		return print_linear(volume);
	if (hybrid_node_uncached(volume))
		return cl->given[OPT_READONLY] ? start_readonly(volume->member) :
						 start_uncached(volume->member);
	if (cl->given[OPT_TEST] && goes_alone(volume->member))
		return will_be_filled(&round->vacancies, volume->member) ? 0 : print_linear(volume);
	if (cl->given[OPT_TEST] || (!cl->given[OPT_DEGRADED] && !goes_alone(volume->member)))
		return fail_no_pool(volume);
	return start_alone(cl, &round->inv, volume);
}

static void without_pool(struct round *round, struct hybrid_node *volume)
{
	const struct hybrid_ephemeral *e = volume->member ? ephemeral_of(volume->member) : NULL;
	const struct command_line *cl = round->cl;
	int r;

	if (!volume_comes_up(cl, volume->name, volume->uuid, e ? e->pool : "", volume->pool_uuid,
			     NULL)) {
		hybrid_verbose("hybrid.conf does not let %s come up by itself", volume->name);
		return;
	}
	if (volume->member && !member_comes_up(cl, volume->member))
		return;
	r = check_owner(cl, volume);
	add_result(round, r ? r : start_without_pool(round, volume));
}

/* Finds the active pool of an origin in place by its identity: nothing on the origin names the pool. */
static struct hybrid_node *pool_of_inplace(struct hybrid_inventory *inv, const char *what)
{
	struct hybrid_volume_line *entries;
	struct hybrid_node *node;
	unsigned int nr, i;
	uint8_t uuid[16];
	bool found = false;

	if (!hybrid_uuid_parse(what, uuid))
		return NULL;
	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++) {
		if (node->kind != HYBRID_POOL || !node->active || !node->dm.live ||
		    hybrid_pool_volumes(node->name, &entries, &nr))
			continue;
		for (i = 0; i < nr && !found; i++)
			found = entries[i].inplace && !entries[i].tombstone &&
				!memcmp(entries[i].member_uuid, uuid, 16);
		free(entries);
		if (found)
			return node;
	}
	return NULL;
}

/* Activates a volume with its pool, or without if the pool that replaces its own cannot have it. */
static void activate_with_pool(struct round *round, struct hybrid_node *volume)
{
	activate_pool(round, volume->pool, volume);
	if (!volume->pool && !volume->active)
		without_pool(round, volume);
}

/* Activates the pool in the place of one that is gone, by the UUID of the latter. */
static void activate_filled(struct round *round, const char *what)
{
	bool known;
	struct hybrid_node *pool = find_filled(&round->vacancies, &round->inv, what, &known);

	if (pool)
		activate_pool(round, pool, NULL);
	else if (!known)
		add_result(round, fail_refused(&round->inv, what));
	else if (!round->cl->given[OPT_TEST])
		add_result(round, hybrid_fail(HYBRID_DEGRADED, "see hybridctl status",
					      "there is no pool %s, and no new one was made", what));
}

/* Whether nothing is left to do for a volume. */
static bool is_up(const struct hybrid_node *volume)
{
	return volume->active && volume->dm.live && !volume->dm.suspended && !volume->deleted &&
	       !(volume->dm.alone && volume->pool);
}

static void activate_one(struct round *round, const char *what)
{
	struct hybrid_node *node = hybrid_find(&round->inv, what, HYBRID_ANY);
	int several = node ? 0 : hybrid_check_several(&round->inv, what, HYBRID_ANY);

	if (!node)
		node = pool_of_inplace(&round->inv, what);
	if (several)
		add_result(round, several);
	else if (!node)
		activate_filled(round, what);
	else if (node->kind == HYBRID_POOL)
		activate_pool(round, node, NULL);
	else if (is_up(node) && round->cl->given[OPT_READONLY] && !node->dm.readonly)
		add_result(round, hybrid_fail(HYBRID_BUSY, "hybridctl deactivate it first",
					      "%s is active, and not read-only", node->name));
	else if (is_up(node))
		hybrid_note("%s is active already", node->name);
	else if (!node->pool)
		without_pool(round, node);
	else
		activate_with_pool(round, node);
}

static void activate_all(struct round *round)
{
	struct hybrid_inventory *inv = &round->inv;
	struct hybrid_node *node;
	struct hybrid_member *m;

	for (m = inv->members; m < inv->members + inv->nr_members; m++) {
		if (m->ok)
			continue;
		hybrid_warn("%s is refused: %s", m->path, m->why);
		add_result(round, HYBRID_DEGRADED);
	}
	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++) {
		/* No error: a user who wants foreign ones gives --foreign */
		if (is_foreign(node) && !round->cl->given[OPT_FOREIGN]) {
			if (node->kind == HYBRID_POOL || !node->pool)
				hybrid_warn("%s belongs to another host: left alone", node->name);
			continue;
		}
		if (node->kind == HYBRID_POOL)
			activate_pool(round, node, NULL);
		else if (!node->pool && !node->active)
			without_pool(round, node);
	}
}

/* Finds the recorded name, in the pool's entry or in the superblock.  False: it is unknown. */
static bool recorded_name(const struct hybrid_node *node, char name[HYBRID_NAME_SIZE])
{
	struct hybrid_member *m = node->member;
	struct hybrid_volume_line *entries;
	unsigned int nr, i;
	bool found = false;

	if (node->kind == HYBRID_POOL || hybrid_node_uncached(node)) {
		/* A pool that takes another pool's name renames its device before its superblock */
		found = m && m->ok && !hybrid_node_replaces(node) &&
			(!strcmp(m->sb.name, node->name) || read_again(m));
		if (found)
			snprintf(name, HYBRID_NAME_SIZE, "%s", m->sb.name);
		return found;
	}
	if (node->dm.alone || !node->pool || !node->pool->active || !node->pool->dm.live ||
	    node->pool->dm.suspended || hybrid_pool_volumes(node->pool->name, &entries, &nr))
		return false;
	for (i = 0; i < nr && !found; i++) {
		found = !memcmp(entries[i].uuid, node->uuid, 16) && !entries[i].tombstone;
		snprintf(name, HYBRID_NAME_SIZE, "%.63s", entries[i].name);
	}
	free(entries);
	return found;
}

/* Completes renames that were cut short: the active device still has its old name. */
static void finish_renames(struct round *round)
{
	struct hybrid_node *node;
	char name[HYBRID_NAME_SIZE], old[HYBRID_NAME_SIZE];
	int r;

	if (round->cl->given[OPT_AUTO] || round->cl->given[OPT_TEST])
		return;
	for (node = round->inv.nodes; node < round->inv.nodes + round->inv.nr_nodes; node++) {
		if (!node->active || !node->dm.live || !recorded_name(node, name) ||
		    !strcmp(name, node->name))
			continue;
		snprintf(old, sizeof(old), "%s", node->name);
		r = rename_device(node, name);
		if (r)
			add_result(round, r);
		else
			hybrid_note("%s is renamed to %s, its recorded name", old, name);
	}
}

/* The second round, for the pools that the first one postponed. */
static void activate_postponed(struct round *round)
{
	const struct postponed *p;
	struct hybrid_node *pool;
	const struct hybrid_node *only;

	for (p = round->later; p < round->later + round->nr_later; p++) {
		pool = hybrid_find_uuid(&round->inv, p->pool, HYBRID_POOL);
		only = hybrid_find_uuid(&round->inv, p->only, HYBRID_VOLUME);
		/* A pool that was taken down meanwhile is not wanted any more */
		if (pool && pool->active)
			activate_pool(round, pool, only);
	}
}

/*
 * Members with one good copy are used, but the next damage would be the last.  That of an origin is mended
 * when it comes up.
 */
static void warn_of_bad_copies(struct hybrid_inventory *inv)
{
	struct hybrid_member *m;
	char next[MEND_MAX];
	bool cache;

	for (m = inv->members; m < inv->members + inv->nr_members; m++) {
		if (!m->ok || m->copies == 3)
			continue;
		cache = m->sb.role == HYBRID_ROLE_CACHE;
		hybrid_warn("%s has only one good superblock: %s%s%s", m->path, m->why,
			    cache ? "; to mend it, " : "", cache ? mend_copies(m, next) : "");
	}
}

static int load_members(struct round *round)
{
	const struct command_line *cl = round->cl;
	struct hybrid_member *known;
	unsigned int nr;
	int r;

	if (!cl->given[OPT_AUTO])
		return hybrid_inventory_load(&round->inv, HYBRID_LOAD_MEMBERS, cl->devices,
					     cl->nr_devices);
	r = announced(NULL, &known, &nr);
	if (!r)
		r = hybrid_inventory_load_known(&round->inv, 0, known, nr);
	free(known);
	return r;
}

/* Runs after the disks have been read.  Takes the lock, so device-mapper is asked only here. */
static int run_round(struct round *round)
{
	const struct command_line *cl = round->cl;
	unsigned int flags = HYBRID_LOAD_ACTIVE;
	int filled, r = lock_tools();

	/* Only its pool knows a volume in place */
	if (round->looked || (cl->argc && !cl->given[OPT_AUTO]))
		flags |= HYBRID_LOAD_CLOSED;
	if (r)
		return r;
	filled = round->looked ? 0 : fill_vacancies(&round->vacancies, cl, &round->inv);
	if (filled)
		add_result(round, filled);
	r = hybrid_inventory_look_again(&round->inv, flags);
	if (r)
		return r;
	find_followers(&round->inv);
	if (!round->looked)
		finish_renames(round);
	if (round->looked)
		activate_postponed(round);
	else if (cl->argc)
		activate_one(round, cl->argv[0]);
	else
		activate_all(round);
	unlock_tools();
	return 0;
}

static int run_rounds(struct round *round)
{
	const struct command_line *cl = round->cl;
	int r = load_members(round);

	if (r)
		return r;
	warn_of_bad_copies(&round->inv);
	r = ask_if_foreign(cl, &round->inv);
	if (!r)
		r = find_vacancies(&round->vacancies, cl, &round->inv);
	if (!r)
		r = run_round(round);
	if (r || !round->nr_later)
		return r;
	round->looked = true;
	r = hybrid_inventory_lookalikes(&round->inv, cl->devices, cl->nr_devices);
	return r ? r : run_round(round);
}

int command_activate(const struct command_line *cl)
{
	struct round round = { .cl = cl };
	int r;

	if (!cl->argc == !cl->given[OPT_ALL])
		return hybrid_fail(HYBRID_USAGE, "give one of them",
				   "activate needs a pool, a volume, or --all");
	if (cl->given[OPT_READONLY] && !cl->given[OPT_DEGRADED])
		return hybrid_fail(HYBRID_USAGE, "add --degraded, or mount it read-only",
				   "--readonly is for a volume whose cache device is missing");
	if (cl->given[OPT_NAMED] && (!cl->given[OPT_AUTO] || cl->given[OPT_ALL]))
		return hybrid_fail(HYBRID_USAGE, NULL, "--named needs --auto, and a name");
	if (cl->given[OPT_FOREIGN] && cl->given[OPT_AUTO])
		return hybrid_fail(HYBRID_USAGE, NULL, "--foreign and --auto exclude each other");
	r = run_rounds(&round);
	free(round.later);
	free(round.vacancies.v);
	hybrid_inventory_free(&round.inv);
	return r ? r : round.result;
}

/* Deactivation ------------------------------------------------------------- */

/*
 * A volume as it was found before the lock was taken.  device-mapper removes a device when all its
 * I/O has ended: an origin that hangs blocks that, and asking it takes time.
 */
struct checked {
	uint8_t uuid[16];
	bool answers;			/* its origin answers; if not, that was printed */
	bool agreed;			/* the user gives the volume up, though it is in use */
};

struct deactivation {
	const struct command_line *cl;
	struct hybrid_inventory inv;
	struct checked *checked;
	unsigned int nr;
};

static bool is_forced(const struct deactivation *d, const struct hybrid_node *node)
{
	return d->cl->given[OPT_FORCE] && node->kind == HYBRID_VOLUME && node->dm.open_count;
}

static int ask_to_give_up(const struct command_line *cl, const struct hybrid_node *node)
{
	char question[HYBRID_PATH_MAX];

	snprintf(question, sizeof(question), "All I/O to %s will fail from now on: its users lose "
		 "all data that they have not written yet.", node->name);
	return confirm(cl, question);
}

/* Fails only if the command is to do nothing at all. */
static int check_volume(struct deactivation *d, const struct hybrid_node *node)
{
	struct checked *c = reallocarray(d->checked, d->nr + 1, sizeof(*c));
	char path[HYBRID_PATH_MAX];
	int r;

	if (!c)
		return hybrid_nomem();
	d->checked = c;
	c += d->nr++;
	memcpy(c->uuid, node->uuid, 16);
	c->agreed = is_forced(d, node);
	c->answers = true;
	/* remove_node() reports that it is in use */
	if (node->dm.open_count && !c->agreed)
		return 0;
	r = c->agreed ? ask_to_give_up(d->cl, node) : 0;
	if (!r && node->below)
		c->answers = !hybrid_device_answers(hybrid_node_device(node, path, sizeof(path)));
	return r;
}

/* Checks one volume, or the volumes of a pool; NULL: all volumes. */
static int check_volumes(struct deactivation *d, const struct hybrid_node *what)
{
	const struct hybrid_node *node;
	int r = 0;

	if (d->cl->given[OPT_TEST])
		return 0;
	for (node = d->inv.nodes; node < d->inv.nodes + d->inv.nr_nodes && !r; node++)
		if (node->kind == HYBRID_VOLUME && node->active &&
		    (!what || node == what || node->pool == what))
			r = check_volume(d, node);
	return r;
}

/* Refuses a volume that has changed since it was checked, or whose origin does not answer. */
static int use_check(const struct deactivation *d, const struct hybrid_node *node)
{
	const struct checked *c;

	if (node->kind != HYBRID_VOLUME)
		return 0;
	for (c = d->checked; c < d->checked + d->nr; c++)
		if (!memcmp(c->uuid, node->uuid, 16))
			break;
	if (c < d->checked + d->nr && !c->answers)
		return HYBRID_BUSY;
	if (c < d->checked + d->nr && (c->agreed || !is_forced(d, node)))
		return 0;
	return hybrid_fail(HYBRID_BUSY, "try again", "%s has just changed", node->name);
}

static int remove_node(const struct deactivation *d, struct hybrid_node *node)
{
	bool force = is_forced(d, node);
	char where[HYBRID_PATH_MAX];
	int r;

	if (!force && hybrid_devno_mounted(node->dm.devno, where, sizeof(where)))
		return hybrid_fail(HYBRID_BUSY, "unmount it first", "%s is mounted at %s",
				   node->name, where);
	if (!force && node->dm.open_count)
		return hybrid_fail(HYBRID_BUSY, "stop its users first (lsblk, fuser)",
				   "%s is in use", node->name);
	if (d->cl->given[OPT_TEST]) {
		printf("dmsetup remove %s%s\n", force ? "--force --deferred " : "", node->name);
		return 0;
	}
	r = use_check(d, node);
	if (!r)
		r = force ? hybrid_dm_give_up(node->name, node->dm.sectors) :
		    hybrid_dm_remove(node->name);
	if (r)
		return r;
	node->active = false;
	/* The kernel wrote to its superblock: what was announced may be out of date */
	if (node->below)
		hybrid_sysfs_uevent(node->below, "change");
	hybrid_note(force ? "%s fails all I/O, and is removed when its last user closes it" :
		    "%s is no longer active", node->name);
	return 0;
}

static bool has_volumes(struct hybrid_inventory *inv, const struct hybrid_node *pool)
{
	struct hybrid_node *node;

	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++)
		if (node->kind == HYBRID_VOLUME && node->active && node->pool == pool)
			return true;
	return false;
}

static int deactivate_volume(struct deactivation *d, struct hybrid_node *node)
{
	const struct command_line *cl = d->cl;
	struct hybrid_node *pool = node->pool;
	int r;

	r = remove_node(d, node);
	if (r || cl->given[OPT_KEEP_POOL] || !pool || !pool->active || cl->given[OPT_TEST] ||
	    has_volumes(&d->inv, pool))
		return r;
	/* The volume's reference is gone; the count was read before */
	pool->dm.open_count = 0;
	return remove_node(d, pool);
}

static int deactivate_pool(struct deactivation *d, struct hybrid_node *pool)
{
	struct hybrid_inventory *inv = &d->inv;
	unsigned int removed = 0;
	struct hybrid_node *node;
	int r = 0, worst = 0;

	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++) {
		if (node->kind != HYBRID_VOLUME || !node->active || node->pool != pool)
			continue;
		r = remove_node(d, node);
		if (r)
			worst = r;
		else
			removed++;
	}
	if (worst)
		return removed ? HYBRID_PARTIAL : worst;
	if (d->cl->given[OPT_KEEP_POOL])
		return 0;
	pool->dm.open_count = 0;
	return remove_node(d, pool);
}

static int deactivate_all(struct deactivation *d)
{
	struct hybrid_inventory *inv = &d->inv;
	struct hybrid_node *node;
	bool first = true;
	int result = 0;

	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++) {
		if (!node->active || (node->kind == HYBRID_VOLUME && !node->dm.alone))
			continue;
		result = combine(result, node->kind == HYBRID_POOL ? deactivate_pool(d, node) :
				 remove_node(d, node), first);
		first = false;
	}
	return result;
}

/* Sets *what to NULL for --all. */
static int load_active(struct deactivation *d, struct hybrid_node **what)
{
	int r;

	*what = NULL;
	hybrid_inventory_free(&d->inv);
	r = hybrid_inventory_load(&d->inv, HYBRID_LOAD_ACTIVE, NULL, 0);
	if (!r && !d->cl->given[OPT_ALL])
		r = hybrid_find_active(&d->inv, d->cl->argv[0], HYBRID_ANY, what);
	return r;
}

/* Slow checks and questions come first; the rest runs under the lock. */
static int deactivate(struct deactivation *d)
{
	struct hybrid_node *what;
	int r;

	r = load_active(d, &what);
	if (!r)
		r = check_volumes(d, what);
	if (!r)
		r = lock_tools();
	if (!r)
		r = load_active(d, &what);
	if (r)
		return r;
	if (!what)
		return deactivate_all(d);
	return what->kind == HYBRID_POOL ? deactivate_pool(d, what) : deactivate_volume(d, what);
}

int command_deactivate(const struct command_line *cl)
{
	struct deactivation d = { .cl = cl };
	int r;

	if (!cl->argc == !cl->given[OPT_ALL])
		return hybrid_fail(HYBRID_USAGE, "give one of them",
				   "deactivate needs a pool, a volume, or --all");
	r = hybrid_dm_check(false);
	if (!r)
		r = deactivate(&d);
	free(d.checked);
	hybrid_inventory_free(&d.inv);
	return r;
}
