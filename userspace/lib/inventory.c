// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "announce.h"
#include "config.h"
#include "errors.h"
#include "inventory.h"
#include "look.h"
#include "sysfs.h"

/* Members ------------------------------------------------------------------ */

static int add_member(struct hybrid_inventory *inv, const struct hybrid_member *m)
{
	struct hybrid_member *array;

	array = realloc(inv->members, (inv->nr_members + 1) * sizeof(*array));
	if (!array)
		return hybrid_nomem();
	inv->members = array;
	array[inv->nr_members++] = *m;
	return 0;
}

static void note_unreadable(const struct hybrid_look *l)
{
	char why[HYBRID_WHY_MAX];

	snprintf(why, sizeof(why), "it cannot be read: %s", strerror(-l->r));
	announce_unreadable(l->devno, l->r == -ETIMEDOUT ? "it does not answer" : why);
}

/* Takes the result of a look at one path. */
static int take_look(struct hybrid_inventory *inv, const struct hybrid_look *l, bool named)
{
	const char *why = l->r < 0 ? strerror(-l->r) : "cannot be opened";

	if (!l->r || l->r == -ENODATA)
		announce_found(l->devno, l->r || l->snapshot ? NULL : &l->member);
	else if (l->r < 0 && l->devno)
		note_unreadable(l);
	if (!l->r && !named && l->snapshot) {
		hybrid_verbose("%s: a snapshot of a member", l->path);
		return 0;
	}
	if (!l->r)
		return add_member(inv, &l->member);
	if (l->r == -ENODATA)
		return 0;
	if (l->r == -ETIMEDOUT) {
		inv->silent++;
		hybrid_warn("%s does not answer: its contents are unknown", l->path);
		return 0;
	}
	if (l->r > 0 && named)
		return l->r;
	if (named)
		return hybrid_fail(hybrid_exit_of_errno(-l->r), "check the device and the kernel log",
				   "%s: cannot read: %s", l->path, why);
	if (l->r < 0)
		hybrid_verbose("%s: cannot read: %s", l->path, why);
	return 0;
}

static int take_looks(struct hybrid_inventory *inv, const struct hybrid_looks *looks, bool named)
{
	unsigned int i;
	int r = 0;

	for (i = 0; i < looks->nr && !r; i++)
		r = take_look(inv, &looks->look[i], named);
	return r;
}

static int take_known(struct hybrid_inventory *inv, const struct hybrid_look *l,
		      const struct hybrid_member *known)
{
	struct hybrid_member m;

	if (!l->r)
		return add_member(inv, &l->member);
	if (l->r > 0 || l->r == -ENODATA)
		return 0;
	m = *known;
	m.ok = false;
	m.unread = true;
	if (l->r == -ETIMEDOUT)
		snprintf(m.why, sizeof(m.why), "it does not answer");
	else
		snprintf(m.why, sizeof(m.why), "it cannot be read: %s", strerror(-l->r));
	return add_member(inv, &m);
}

struct scan {
	struct hybrid_looks *looks;
	const struct hybrid_dm_device *skip;
	unsigned int nr_skip, what;
};

/* A device that is or will be below others shows the same identity as they do; so does a snapshot. */
static bool may_be_inplace(dev_t devno)
{
	return !hybrid_devno_held(devno, 0) && !hybrid_udev_multipath(devno) &&
	       !hybrid_sysfs_snapshot_of(devno);
}

static int scan_each(dev_t devno, void *arg)
{
	struct scan *scan = arg;
	char path[HYBRID_PATH_MAX];
	unsigned int i;

	if (!hybrid_config_looks_at(devno))
		return 0;
	/* Reading through our own volumes would find members inside them */
	for (i = 0; i < scan->nr_skip; i++)
		if (scan->skip[i].devno == devno)
			return 0;
	hybrid_devno_path(devno, path, sizeof(path));
	if (path[0] != '/' || (scan->what == HYBRID_LOOK_IDENTITY && !may_be_inplace(devno)))
		return 0;
	return hybrid_looks_add(scan->looks, path, HYBRID_OPEN_FILES | HYBRID_OPEN_QUIET, scan->what);
}

static void mark_twins(struct hybrid_member *a, struct hybrid_member *b)
{
	snprintf(a->why, sizeof(a->why), "%.120s has the same member UUID", b->path);
	snprintf(b->why, sizeof(b->why), "%.120s has the same member UUID", a->path);
	a->ok = false;
	b->ok = false;
	a->unknown = false;
	b->unknown = false;
}

static bool same_member(const struct hybrid_member *a, const struct hybrid_member *b)
{
	return a != b && a->sb.role && b->sb.role &&
	       !memcmp(a->sb.member_uuid, b->sb.member_uuid, 16);
}

/* Whether a device above @lower shows the same member, and is to be used instead. */
static bool is_covered(const struct hybrid_inventory *inv, const struct hybrid_member *lower)
{
	const struct hybrid_member *m;

	for (m = inv->members; m < inv->members + inv->nr_members; m++) {
		if (!m->ok || !same_member(m, lower))
			continue;
		if (hybrid_sysfs_built_on(m->devno, lower->devno))
			return true;
		/* Named twice */
		if (m < lower && m->devno && m->devno == lower->devno)
			return true;
	}
	return false;
}

/*
 * One member seen through two devices is no clone if one is built on the other
 * (multipath, md, dm-linear): the topmost counts.  All covered ones are dropped
 * first: only the device above both relates two paths to one disk.
 */
static int drop_covered(struct hybrid_inventory *inv)
{
	bool *covered = calloc(inv->nr_members + 1, sizeof(*covered));
	unsigned int i, kept = 0;

	if (!covered)
		return hybrid_nomem();
	for (i = 0; i < inv->nr_members; i++)
		covered[i] = is_covered(inv, &inv->members[i]);
	for (i = 0; i < inv->nr_members; i++) {
		if (covered[i])
			hybrid_verbose("%s: the same member is seen through a device above it",
				       inv->members[i].path);
		else
			inv->members[kept++] = inv->members[i];
	}
	inv->nr_members = kept;
	free(covered);
	return 0;
}

static void refuse_twins(struct hybrid_inventory *inv)
{
	struct hybrid_member *a, *b;

	for (a = inv->members; a < inv->members + inv->nr_members; a++)
		for (b = a + 1; b < inv->members + inv->nr_members; b++)
			if (same_member(a, b) && !hybrid_sysfs_built_on(a->devno, b->devno) &&
			    !hybrid_sysfs_built_on(b->devno, a->devno))
				mark_twins(a, b);
}

/* Look at all block devices. */
static int scan_all(struct hybrid_looks *looks, unsigned int what)
{
	struct scan scan = { .looks = looks, .what = what };
	struct hybrid_dm_device *skip;
	int r;

	r = hybrid_dm_list(&skip, &scan.nr_skip);
	scan.skip = skip;
	if (!r)
		r = hybrid_sysfs_each(scan_each, &scan);
	free(skip);
	return r ? r : hybrid_looks_run(looks);
}

static int scan_named(struct hybrid_looks *looks, unsigned int what, char * const *paths,
		      unsigned int nr)
{
	unsigned int i;
	int r = 0;

	for (i = 0; i < nr && !r; i++)
		r = hybrid_looks_add(looks, paths[i], HYBRID_OPEN_FILES, what);
	return r ? r : hybrid_looks_run(looks);
}

static int scan_members(struct hybrid_inventory *inv, char * const *paths, unsigned int nr_paths)
{
	struct hybrid_looks looks = {};
	int r;

	r = nr_paths ? scan_named(&looks, HYBRID_LOOK_ARRAY, paths, nr_paths) :
		       scan_all(&looks, HYBRID_LOOK_ARRAY);
	if (!r)
		r = take_looks(inv, &looks, nr_paths);
	hybrid_looks_free(&looks);
	return r;
}

static int add_lookalike(struct hybrid_inventory *inv, const struct hybrid_look *l)
{
	struct hybrid_lookalike *array = reallocarray(inv->lookalikes, inv->nr_lookalikes + 1,
						      sizeof(*array));

	if (!array)
		return hybrid_nomem();
	inv->lookalikes = array;
	array += inv->nr_lookalikes++;
	snprintf(array->path, sizeof(array->path), "%s", l->path);
	array->devno = l->devno;
	array->identities = l->identities;
	memcpy(array->claim, l->claim, sizeof(array->claim));
	return 0;
}

int hybrid_inventory_lookalikes(struct hybrid_inventory *inv, char * const *paths,
				unsigned int nr_paths)
{
	struct hybrid_looks looks = {};
	const struct hybrid_look *l;
	int r;

	r = nr_paths ? scan_named(&looks, HYBRID_LOOK_IDENTITY, paths, nr_paths) :
		       scan_all(&looks, HYBRID_LOOK_IDENTITY);
	for (l = looks.look; l < looks.look + looks.nr && !r; l++)
		if (l->identities.nr)
			r = add_lookalike(inv, l);
	hybrid_looks_free(&looks);
	return r;
}

static int settle_members(struct hybrid_inventory *inv)
{
	int r = drop_covered(inv);

	refuse_twins(inv);
	return r;
}

/* Nodes -------------------------------------------------------------------- */

static struct hybrid_node *add_node(struct hybrid_inventory *inv)
{
	struct hybrid_node *array;

	array = realloc(inv->nodes, (inv->nr_nodes + 1) * sizeof(*array));
	if (!array)
		return NULL;
	inv->nodes = array;
	memset(&array[inv->nr_nodes], 0, sizeof(*array));
	return &array[inv->nr_nodes++];
}

static int fail_parse(const struct hybrid_node *node, const char *what, const char *text)
{
	return hybrid_fail(HYBRID_NOTARGET, "install the module and the tools of the same release",
			   "%s: the kernel's %s is not understood: %s", node->name, what, text);
}

static int parse_table(struct hybrid_node *node, const char *text)
{
	const char *below;
	int r;

	if (node->kind == HYBRID_POOL) {
		r = hybrid_pool_table_parse(text, &node->p.table);
		below = node->p.table.cache_dev;
	} else {
		r = hybrid_volume_table_parse(text, &node->v.table);
		below = node->v.table.origin_dev;
	}
	if (r)
		return fail_parse(node, "table", text);
	if (hybrid_devno_parse(below, &node->below))
		node->below = 0;
	return 0;
}

/* An origin without its pool shows as a volume in passthrough, without counters. */
static int refresh_alone(struct hybrid_node *node, char *table)
{
	table[strcspn(table, " ")] = '\0';
	if (hybrid_devno_parse(table, &node->below))
		node->below = 0;
	free(table);
	snprintf(node->v.status.state, sizeof(node->v.status.state), "alone");
	snprintf(node->v.status.mode, sizeof(node->v.status.mode), "passthrough");
	return 0;
}

int hybrid_node_refresh(struct hybrid_node *node)
{
	char *text;
	int r;

	r = hybrid_dm_table(node->dm.name, &text);
	if (r)
		return r;
	if (node->dm.alone)
		return refresh_alone(node, text);
	r = parse_table(node, text);
	free(text);
	if (!r)
		r = hybrid_dm_status(node->dm.name, &text);
	if (r)
		return r;
	if (node->kind == HYBRID_POOL)
		r = hybrid_pool_status_parse(text, &node->p.status);
	else
		r = hybrid_volume_status_parse(text, &node->v.status);
	if (r)
		r = fail_parse(node, "status", text);
	free(text);
	return r;
}

static int add_active(struct hybrid_inventory *inv, const struct hybrid_dm_device *dm)
{
	struct hybrid_node *node = add_node(inv);

	if (!node)
		return hybrid_nomem();
	node->kind = dm->pool ? HYBRID_POOL : HYBRID_VOLUME;
	snprintf(node->name, sizeof(node->name), "%.63s", dm->name);
	memcpy(node->uuid, dm->uuid, 16);
	if (dm->pool)
		memcpy(node->pool_uuid, dm->uuid, 16);
	node->active = true;
	node->dm = *dm;
	return dm->live ? hybrid_node_refresh(node) : 0;
}

static int load_active(struct hybrid_inventory *inv)
{
	struct hybrid_dm_device *devices;
	unsigned int nr, i, pass;
	int r;

	r = hybrid_dm_list(&devices, &nr);
	/* Pools first: volumes point to them */
	for (pass = 0; pass < 2 && !r; pass++)
		for (i = 0; i < nr && !r; i++)
			if (devices[i].pool == !pass)
				r = add_active(inv, &devices[i]);
	free(devices);
	return r;
}

static int add_inactive(struct hybrid_inventory *inv, const struct hybrid_member *m)
{
	bool pool = m->sb.role == HYBRID_ROLE_CACHE;
	const uint8_t *uuid = pool ? m->sb.pool_uuid : m->sb.volume_uuid;
	struct hybrid_node *node;

	if (!m->ok || hybrid_find_uuid(inv, uuid, pool ? HYBRID_POOL : HYBRID_VOLUME))
		return 0;
	node = add_node(inv);
	if (!node)
		return hybrid_nomem();
	node->kind = pool ? HYBRID_POOL : HYBRID_VOLUME;
	memcpy(node->name, m->sb.name, sizeof(node->name));
	memcpy(node->uuid, uuid, 16);
	memcpy(node->pool_uuid, m->sb.pool_uuid, 16);
	return 0;
}

static int load_inactive(struct hybrid_inventory *inv)
{
	unsigned int i, pass;
	int r = 0;

	for (pass = 0; pass < 2 && !r; pass++)
		for (i = 0; i < inv->nr_members && !r; i++)
			if ((inv->members[i].sb.role == HYBRID_ROLE_CACHE) == !pass)
				r = add_inactive(inv, &inv->members[i]);
	return r;
}

/* Not if another pool has taken over the volume, which kept its UUID. */
static bool may_be_of(const struct hybrid_node *volume, const uint8_t pool_uuid[16], dev_t pool)
{
	dev_t devno;

	if (!volume->active)
		return hybrid_uuid_is_null(volume->pool_uuid) ||
		       !memcmp(volume->pool_uuid, pool_uuid, 16);
	return !volume->dm.live || volume->dm.alone ||
	       (!hybrid_devno_parse(volume->v.table.pool_dev, &devno) && devno == pool);
}

bool hybrid_entry_foreign(struct hybrid_inventory *inv, const uint8_t pool_uuid[16],
			  const struct hybrid_volume_line *entry)
{
	const struct hybrid_member *m = hybrid_find_member(inv, entry->member_uuid);

	return m && m->ok && !memcmp(m->sb.volume_uuid, entry->uuid, 16) &&
	       (m->sb.role == HYBRID_ROLE_DETACHED || memcmp(m->sb.pool_uuid, pool_uuid, 16));
}

/* Whether its origin alone is left of a deleted volume, which may be linear. */
static bool is_parted(const struct hybrid_node *node)
{
	return !node->active || (node->dm.alone && !node->dm.suspended);
}

/*
 * Adds a volume of an active pool that no device maps, whether or not its origin is found.  Notes
 * on the node of a deleted volume that it was deleted; but a pool that has @failed cannot forget it,
 * and is not waited for.
 */
static int add_closed(struct hybrid_inventory *inv, const uint8_t pool_uuid[16], dev_t pool,
		      bool failed, const struct hybrid_volume_line *entry)
{
	struct hybrid_node *node = hybrid_find_uuid(inv, entry->uuid, HYBRID_VOLUME);

	bool foreign = hybrid_entry_foreign(inv, pool_uuid, entry);

	if (entry->tombstone && node)
		node->deleted = may_be_of(node, pool_uuid, pool) &&
				!(failed && foreign && is_parted(node));
	if (entry->tombstone || (foreign && !entry->dirty) ||
	    (!foreign && node && node->active && node->dm.live))
		return 0;
	/* The node of a foreign volume stands for its origin, which has left this pool */
	if (!node || foreign)
		node = add_node(inv);
	if (!node)
		return hybrid_nomem();
	node->kind = HYBRID_VOLUME;
	node->closed = true;
	node->given_up = foreign;
	snprintf(node->name, sizeof(node->name), "%.63s", entry->name);
	memcpy(node->uuid, entry->uuid, 16);
	memcpy(node->pool_uuid, pool_uuid, 16);
	node->dm.sectors = entry->data_sectors;
	node->v.table.id = entry->id;
	node->v.table.inplace = entry->inplace;
	node->v.status.cutoff = entry->cutoff_sectors;
	node->v.status.dirty = entry->dirty;
	node->v.status.dirty_sectors = entry->dirty_sectors;
	snprintf(node->v.status.mode, sizeof(node->v.status.mode), "%s",
		 hybrid_mode_name(entry->mode));
	return 0;
}

bool hybrid_pool_failed(const struct hybrid_node *pool)
{
	return pool && pool->active && pool->dm.live && !strcmp(pool->p.status.state, "failed");
}

bool hybrid_has_entry(const struct hybrid_volume_line *entries, unsigned int nr,
		      const struct hybrid_sb *origin)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		if (!memcmp(entries[i].member_uuid, origin->member_uuid, 16) ||
		    !memcmp(entries[i].uuid, origin->volume_uuid, 16))
			return true;
	return false;
}

static void note_unknown(struct hybrid_inventory *inv, const uint8_t pool_uuid[16],
			 const struct hybrid_volume_line *entries, unsigned int nr)
{
	const struct hybrid_member *m;
	struct hybrid_node *node;

	for (m = inv->members; m < inv->members + inv->nr_members; m++) {
		if (!m->ok || m->sb.role != HYBRID_ROLE_ORIGIN || memcmp(m->sb.pool_uuid, pool_uuid, 16) ||
		    hybrid_has_entry(entries, nr, &m->sb))
			continue;
		node = hybrid_find_uuid(inv, m->sb.volume_uuid, HYBRID_VOLUME);
		if (node)
			node->unknown = !node->active || node->dm.alone;
	}
}

static int load_closed_of(struct hybrid_inventory *inv, const struct hybrid_node *pool)
{
	struct hybrid_volume_line *entries;
	dev_t devno = pool->dm.devno;
	uint8_t uuid[16];
	unsigned int nr, i;
	bool failed;
	int r;

	if (pool->kind != HYBRID_POOL || !pool->active || !pool->dm.live || pool->dm.suspended ||
	    !strcmp(pool->p.status.state, "unloaded"))
		return 0;
	r = hybrid_pool_volumes(pool->name, &entries, &nr);
	if (r)
		return r;
	/* Nodes move when one is added. */
	memcpy(uuid, pool->uuid, 16);
	failed = hybrid_pool_failed(pool);
	for (i = 0; i < nr && !r; i++)
		r = add_closed(inv, uuid, devno, failed, &entries[i]);
	note_unknown(inv, uuid, entries, nr);
	free(entries);
	return r;
}

static int load_closed(struct hybrid_inventory *inv)
{
	unsigned int i, nr = inv->nr_nodes;
	int r = 0;

	for (i = 0; i < nr && !r; i++)
		r = load_closed_of(inv, &inv->nodes[i]);
	return r;
}

static struct hybrid_node *find_devno(struct hybrid_inventory *inv, dev_t devno)
{
	unsigned int i;

	for (i = 0; i < inv->nr_nodes; i++)
		if (inv->nodes[i].active && inv->nodes[i].dm.devno == devno)
			return &inv->nodes[i];
	return NULL;
}

static struct hybrid_member *member_of(struct hybrid_inventory *inv,
				       const struct hybrid_node *node)
{
	struct hybrid_member *m;

	for (m = inv->members; m < inv->members + inv->nr_members; m++) {
		if (node->active && node->below && m->devno == node->below)
			return m;
		if (!m->ok || node->given_up)
			continue;
		if (!memcmp(m->sb.role == HYBRID_ROLE_CACHE ? m->sb.pool_uuid :
			    m->sb.volume_uuid, node->uuid, 16))
			return m;
	}
	return NULL;
}

/* Tells a linear volume that has no cache from one whose cache is missing. */
static void name_uncached(struct hybrid_node *node)
{
	if (node->active && node->dm.alone &&
	    (!node->member || node->member->sb.role == HYBRID_ROLE_DETACHED))
		snprintf(node->v.status.state, sizeof(node->v.status.state), "no-cache");
}

bool hybrid_node_uncached(const struct hybrid_node *node)
{
	if (node->kind != HYBRID_VOLUME)
		return false;
	if (node->member)
		return node->member->sb.role == HYBRID_ROLE_DETACHED;
	return node->active && !strcmp(node->v.status.state, "no-cache");
}

const uint8_t *hybrid_node_replaces(const struct hybrid_node *pool)
{
	const struct hybrid_member *m = pool->member;

	/* A pool in place of one that is gone has nothing to take over from it */
	return pool->kind == HYBRID_POOL && m && m->ok && !(m->sb.flags & HYBRID_SB_EPHEMERAL) &&
	       !hybrid_uuid_is_null(m->sb.replaces) ? m->sb.replaces : NULL;
}

static void note_successor(struct hybrid_inventory *inv, struct hybrid_node *pool)
{
	const uint8_t *uuid = hybrid_node_replaces(pool);
	struct hybrid_node *old = uuid ? hybrid_find_uuid(inv, uuid, HYBRID_POOL) : NULL;

	if (old)
		old->successor = pool;
}

/*
 * Of a volume that is not active: a member that it lacks because that member is not ok.  One that can
 * no longer be read may be dead: then it is missing, and there is a way on without it.
 */
static struct hybrid_member *refused_of(struct hybrid_inventory *inv, const struct hybrid_node *volume)
{
	struct hybrid_member *m;

	if (volume->active || volume->given_up)
		return NULL;
	for (m = inv->members; m < inv->members + inv->nr_members && !volume->member; m++)
		if (!m->unread && m->sb.role != HYBRID_ROLE_CACHE &&
		    !memcmp(m->sb.volume_uuid, volume->uuid, 16))
			return m;
	m = volume->pool || hybrid_node_uncached(volume) ? NULL : hybrid_find_cache(inv, volume->pool_uuid);
	return m && !m->unread ? m : NULL;
}

/* Connects nodes and members, once the arrays no longer move. */
static void connect_nodes(struct hybrid_inventory *inv)
{
	struct hybrid_node *node;
	dev_t devno;

	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++) {
		node->member = member_of(inv, node);
		if (node->kind == HYBRID_POOL) {
			note_successor(inv, node);
			continue;
		}
		if (inv->members_known)
			name_uncached(node);
		if (node->active && (node->dm.alone || !node->dm.live) && node->member)
			memcpy(node->pool_uuid, node->member->sb.pool_uuid, 16);
		if (node->active && !hybrid_devno_parse(node->v.table.pool_dev, &devno))
			node->pool = find_devno(inv, devno);
		if (node->pool)
			memcpy(node->pool_uuid, node->pool->uuid, 16);
		else
			node->pool = hybrid_find_uuid(inv, node->pool_uuid, HYBRID_POOL);
		node->refused = refused_of(inv, node);
	}
}

static int load_nodes(struct hybrid_inventory *inv, unsigned int flags)
{
	int r = 0;

	if (flags & HYBRID_LOAD_ACTIVE)
		r = load_active(inv);
	if (!r)
		r = load_inactive(inv);
	if (!r && (flags & HYBRID_LOAD_CLOSED))
		r = load_closed(inv);
	connect_nodes(inv);
	return r;
}

int hybrid_inventory_load(struct hybrid_inventory *inv, unsigned int flags,
			  char * const *paths, unsigned int nr_paths)
{
	int r = 0;

	memset(inv, 0, sizeof(*inv));
	if (!nr_paths && geteuid())
		return hybrid_fail(HYBRID_REFUSED, "run this as root",
				   "no permission to read block devices and device-mapper");
	inv->members_known = flags & HYBRID_LOAD_MEMBERS ||
			     (flags & HYBRID_LOAD_KNOWN && announced_any());
	if (flags & HYBRID_LOAD_MEMBERS)
		r = scan_members(inv, paths, nr_paths);
	else if (flags & HYBRID_LOAD_KNOWN)
		r = announced(NULL, &inv->members, &inv->nr_members);
	if (!r)
		r = settle_members(inv);
	return r ?: load_nodes(inv, flags);
}

int hybrid_inventory_load_known(struct hybrid_inventory *inv, unsigned int flags,
				const struct hybrid_member *known, unsigned int nr)
{
	struct hybrid_looks looks = {};
	unsigned int i;
	int r = 0;

	memset(inv, 0, sizeof(*inv));
	inv->members_known = true;
	for (i = 0; i < nr && !r; i++)
		r = hybrid_looks_add(&looks, known[i].path, HYBRID_OPEN_QUIET, 0);
	if (!r)
		r = hybrid_looks_run(&looks);
	for (i = 0; i < nr && !r; i++)
		r = take_known(inv, &looks.look[i], &known[i]);
	hybrid_looks_free(&looks);
	if (!r)
		r = settle_members(inv);
	return r ?: load_nodes(inv, flags);
}

int hybrid_inventory_add(struct hybrid_inventory *inv, const struct hybrid_member *m)
{
	return add_member(inv, m);
}

int hybrid_inventory_look_again(struct hybrid_inventory *inv, unsigned int flags)
{
	free(inv->nodes);
	inv->nodes = NULL;
	inv->nr_nodes = 0;
	return load_nodes(inv, flags);
}

void hybrid_inventory_free(struct hybrid_inventory *inv)
{
	free(inv->members);
	free(inv->lookalikes);
	free(inv->nodes);
	memset(inv, 0, sizeof(*inv));
}

/* Finding ------------------------------------------------------------------ */

struct hybrid_node *hybrid_find_uuid(struct hybrid_inventory *inv, const uint8_t uuid[16],
				     enum hybrid_kind kind)
{
	unsigned int i;

	for (i = 0; i < inv->nr_nodes; i++)
		if (inv->nodes[i].kind == kind && !memcmp(inv->nodes[i].uuid, uuid, 16))
			return &inv->nodes[i];
	return NULL;
}

struct hybrid_member *hybrid_find_member(struct hybrid_inventory *inv, const uint8_t uuid[16])
{
	unsigned int i;

	for (i = 0; i < inv->nr_members; i++)
		if (!memcmp(inv->members[i].sb.member_uuid, uuid, 16))
			return &inv->members[i];
	return NULL;
}

struct hybrid_member *hybrid_find_cache(struct hybrid_inventory *inv, const uint8_t pool[16])
{
	struct hybrid_member *m;

	for (m = inv->members; m < inv->members + inv->nr_members; m++)
		if (m->sb.role == HYBRID_ROLE_CACHE && !memcmp(m->sb.pool_uuid, pool, 16))
			return m;
	return NULL;
}

/* The volume or pool at a path, or the one that the device there is a member of. */
static struct hybrid_node *find_path(struct hybrid_inventory *inv, const char *path,
				     unsigned int kinds)
{
	struct hybrid_node *node;
	struct stat st;

	if (stat(path, &st) || !S_ISBLK(st.st_mode))
		return NULL;
	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++) {
		if (!(kinds & (1U << node->kind)))
			continue;
		if (node->active && (node->dm.devno == st.st_rdev || node->below == st.st_rdev))
			return node;
		if (node->member && node->member->devno == st.st_rdev)
			return node;
	}
	return NULL;
}

bool hybrid_node_is(const struct hybrid_node *node, enum hybrid_kind kind, const uint8_t uuid[16])
{
	return node->kind == kind && !memcmp(node->uuid, uuid, 16);
}

const char *hybrid_kind_name(enum hybrid_kind kind)
{
	return kind == HYBRID_POOL ? "pool" : "volume";
}

/* Of several with one name, the one of the highest rank is meant. */
static unsigned int rank(const struct hybrid_node *node)
{
	if (node->active)
		return 2;
	return !node->member || !hybrid_config_foreign(node->member->sb.host_id);
}

static struct hybrid_node *find_name(struct hybrid_inventory *inv, const char *name,
				     unsigned int kinds, bool *several)
{
	struct hybrid_node *node, *found = NULL;

	*several = false;
	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++) {
		if (!(kinds & (1U << node->kind)) || strcmp(node->name, name))
			continue;
		if (!found || rank(node) > rank(found)) {
			found = node;
			*several = false;
		} else if (rank(node) == rank(found) && !hybrid_node_is(node, found->kind, found->uuid)) {
			*several = true;
		}
	}
	return found;
}

struct hybrid_node *hybrid_find(struct hybrid_inventory *inv, const char *what,
				unsigned int kinds)
{
	struct hybrid_node *node;
	uint8_t uuid[16];
	bool several;

	if (strchr(what, '/')) {
		node = find_path(inv, what, kinds);
		if (node || strncmp(what, "/dev/mapper/", 12))
			return node;
		what += 12;
	}
	node = find_name(inv, what, kinds, &several);
	if (node || !hybrid_uuid_parse(what, uuid))
		return several ? NULL : node;
	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++)
		if (kinds & (1U << node->kind) &&
		    (!memcmp(node->uuid, uuid, 16) ||
		     (node->member && !memcmp(node->member->sb.member_uuid, uuid, 16))))
			return node;
	return NULL;
}

static const char *kinds_name(unsigned int kinds)
{
	if (kinds == HYBRID_ANY)
		return "pool or volume";
	return hybrid_kind_name(kinds & (1U << HYBRID_POOL) ? HYBRID_POOL : HYBRID_VOLUME);
}

int hybrid_check_several(struct hybrid_inventory *inv, const char *what, unsigned int kinds)
{
	char list[1024] = "", uuid[HYBRID_UUID_TEXT], path[HYBRID_PATH_MAX];
	const struct hybrid_node *node, *found;
	bool several;
	size_t len;

	if (!strncmp(what, "/dev/mapper/", 12))
		what += 12;
	found = find_name(inv, what, kinds, &several);
	if (!several)
		return 0;
	for (node = found; node < inv->nodes + inv->nr_nodes; node++) {
		if (!(kinds & (1U << node->kind)) || strcmp(node->name, what) || rank(node) != rank(found))
			continue;
		len = strlen(list);
		snprintf(list + len, sizeof(list) - len, "%s%s %s on %s", len ? ", " : "",
			 hybrid_kind_name(node->kind), hybrid_uuid_text(uuid, node->uuid),
			 hybrid_node_device(node, path, sizeof(path)));
	}
	return hybrid_fail(HYBRID_BADDEV, "give the UUID of one of them; hybridctl rename gives it another name",
			   "it is not clear which %s is meant by %s: %s", kinds_name(kinds), what, list);
}

int hybrid_find_or_fail(struct hybrid_inventory *inv, const char *what, unsigned int kinds,
			struct hybrid_node **node)
{
	int r;

	*node = hybrid_find(inv, what, kinds);
	r = *node ? 0 : hybrid_check_several(inv, what, kinds);
	if (*node || r)
		return r;
	return hybrid_fail(HYBRID_BADDEV, inv->members_known ? "see hybridctl list" :
			   "see hybridctl list; hybridctl scan reads all disks",
			   "no %s %s is known", kinds_name(kinds), what);
}

int hybrid_find_active(struct hybrid_inventory *inv, const char *what, unsigned int kinds,
		       struct hybrid_node **node)
{
	*node = hybrid_find(inv, what, kinds);
	if (*node && (*node)->active)
		return 0;
	return hybrid_fail(HYBRID_BADDEV, "see hybridctl list; hybridctl activate brings it up",
			   "no active %s %s", kinds_name(kinds), what);
}

int hybrid_pool_volumes(const char *pool, struct hybrid_volume_line **entries,
			unsigned int *nr)
{
	char *reply;
	int r;

	r = hybrid_dm_message(pool, "volumes", &reply);
	if (r)
		return r;
	r = hybrid_volume_lines_parse(reply, entries, nr);
	free(reply);
	if (r == -ENOMEM)
		return hybrid_nomem();
	if (r)
		return hybrid_fail(HYBRID_NOTARGET, "install the module and the tools of the same release",
				   "%s: its list of volumes is not understood", pool);
	return 0;
}

char *hybrid_node_device(const struct hybrid_node *node, char *buf, size_t len)
{
	if (node->active && node->below)
		return hybrid_devno_path(node->below, buf, len);
	snprintf(buf, len, "%s", node->member ? node->member->path : "-");
	return buf;
}
