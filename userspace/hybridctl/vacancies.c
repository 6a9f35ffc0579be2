// SPDX-License-Identifier: GPL-2.0-or-later
/* New pools on cache devices that came up blank, and the volumes that get them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common.h"
#include "create.h"
#include "ephemeral.h"
#include "errors.h"
#include "live.h"
#include "look.h"
#include "new-volume.h"
#include "owner.h"
#include "sysfs.h"
#include "vacancies.h"

/* Whether an origin of this host misses its pool, and may have another one. */
static bool misses_pool(struct hybrid_inventory *inv, const struct hybrid_member *m)
{
	return m->ok && ephemeral_of(m) && !hybrid_config_foreign(m->sb.host_id) &&
	       !hybrid_find_cache(inv, m->sb.pool_uuid) && !hybrid_dm_find(m->sb.pool_uuid, true);
}

const struct hybrid_member *find_origin_without_pool(struct hybrid_inventory *inv,
						     const struct hybrid_ephemeral *e)
{
	const struct hybrid_member *m;

	for (m = inv->members; m < inv->members + inv->nr_members; m++)
		if (misses_pool(inv, m) && hybrid_config_ephemeral(&m->sb) == e)
			return m;
	return NULL;
}

static bool is_meant(const struct command_line *cl, struct hybrid_inventory *inv,
		     const struct hybrid_member *m)
{
	const struct hybrid_ephemeral *e = hybrid_config_ephemeral(&m->sb);
	const struct hybrid_node *node;
	uint8_t uuid[16];

	if (!volume_comes_up(cl, m->sb.name, m->sb.volume_uuid, e->pool, m->sb.pool_uuid, NULL) ||
	    !device_comes_up(cl, m->devno))
		return false;
	if (!cl->argc)
		return true;
	node = hybrid_find(inv, cl->argv[0], HYBRID_ANY);
	if (node)
		return node->kind == HYBRID_VOLUME && node->member == m;
	return !strcmp(cl->argv[0], e->pool) ||
	       (hybrid_uuid_parse(cl->argv[0], uuid) && !memcmp(uuid, m->sb.pool_uuid, 16));
}

static struct vacancy *find_vacancy(const struct vacancies *all, const struct hybrid_ephemeral *e)
{
	struct vacancy *v;

	for (v = all->v; v < all->v + all->nr; v++)
		if (v->line == e)
			return v;
	return NULL;
}

static int add_vacancy(struct vacancies *all, const struct hybrid_member *m)
{
	struct vacancy *array = reallocarray(all->v, all->nr + 1, sizeof(*array));

	if (!array)
		return hybrid_nomem();
	all->v = array;
	array += all->nr++;
	memset(array, 0, sizeof(*array));
	array->line = hybrid_config_ephemeral(&m->sb);
	memcpy(array->pool, m->sb.pool_uuid, 16);
	return 0;
}

/*
 * Finds the device that the line names; false, and why, if there is not exactly one, or no pool may
 * be on it.
 */
static bool find_device(struct vacancy *v)
{
	struct stat st;

	v->devno = stat(v->line->device, &st) || !S_ISBLK(st.st_mode) ? 0 : st.st_rdev;
	if (!v->devno)
		snprintf(v->why, sizeof(v->why), "is not here");
	else if (hybrid_udev_claims(v->line->device) > 1)
		snprintf(v->why, sizeof(v->why), "is the name of more than one device");
	else if (!hybrid_config_looks_at(v->devno) || hybrid_sysfs_ours(v->devno) ||
		 hybrid_udev_multipath(v->devno))
		snprintf(v->why, sizeof(v->why), "is not searched for members");
	else
		return true;
	return false;
}

/* @member: the pool on the device; its role is 0 if there is none. */
static int look_at(struct vacancy *v, struct hybrid_member *member)
{
	struct hybrid_looks looks = {};
	const struct hybrid_look *l;
	int r;

	v->blank = false;
	memset(member, 0, sizeof(*member));
	if (!find_device(v))
		return 0;
	/* Not exclusively: other tools may look at it beside this one */
	r = hybrid_looks_add(&looks, v->line->device, HYBRID_OPEN_QUIET, HYBRID_LOOK_BLANK);
	if (!r)
		r = hybrid_looks_run(&looks);
	l = looks.look;
	if (!r && l->r == -ETIMEDOUT)
		snprintf(v->why, sizeof(v->why), "does not answer");
	else if (!r)
		snprintf(v->why, sizeof(v->why), "%s", l->r > 0 ? "cannot be opened" : l->why);
	v->blank = !r && l->blank && l->devno == v->devno;
	if (!r && !l->r && l->member.ok && l->member.sb.role == HYBRID_ROLE_CACHE)
		*member = l->member;
	hybrid_looks_free(&looks);
	return r;
}

/*
 * Whether @cache is a pool made on the device that @m names, when that was blank.  Such a pool
 * takes the place of all pools that were on the device before: @m may name one that is long gone,
 * after cuts in several boots.
 */
static bool follows(const struct hybrid_member *cache, const struct hybrid_member *m)
{
	return cache->ok && cache->sb.role == HYBRID_ROLE_CACHE &&
	       !hybrid_config_foreign(cache->sb.host_id) &&
	       cache->sb.flags & HYBRID_SB_EPHEMERAL &&
	       hybrid_ephemeral_leads_to(hybrid_config_ephemeral(&m->sb), cache->devno);
}

static bool has_new_pool(struct hybrid_inventory *inv, const struct hybrid_member *m)
{
	const struct hybrid_member *c;

	for (c = inv->members; c < inv->members + inv->nr_members; c++)
		if (follows(c, m))
			return true;
	return false;
}

/*
 * No activation waits for the device, and udev may not have announced it yet.  If the pool is on it
 * after all, there is no vacancy.
 */
static int look_for_pool(struct vacancy *v, struct hybrid_inventory *inv)
{
	struct hybrid_member m;
	int r = look_at(v, &m);

	if (r || m.sb.role != HYBRID_ROLE_CACHE || (memcmp(m.sb.pool_uuid, v->pool, 16) &&
						    !(m.sb.flags & HYBRID_SB_EPHEMERAL)))
		return r;
	v->taken = true;
	hybrid_devno_path(m.devno, m.path, sizeof(m.path));
	return hybrid_inventory_add(inv, &m);
}

int find_vacancies(struct vacancies *all, const struct command_line *cl,
		   struct hybrid_inventory *inv)
{
	const struct hybrid_member *m;
	struct vacancy *v;
	int r = 0;

	/* The user named the devices to look at, or wants no cache */
	if (cl->nr_devices || cl->given[OPT_READONLY])
		return 0;
	for (m = inv->members; m < inv->members + inv->nr_members && !r; m++)
		if (misses_pool(inv, m) && !has_new_pool(inv, m) && is_meant(cl, inv, m) &&
		    !find_vacancy(all, hybrid_config_ephemeral(&m->sb)))
			r = add_vacancy(all, m);
	for (v = all->v; v < all->v + all->nr && !r; v++)
		r = look_for_pool(v, inv);
	return r;
}

/* New pools ---------------------------------------------------------------- */

/* A cache with newer data must not be replaced by a blank one. */
static bool was_needed(struct vacancy *v, struct hybrid_inventory *inv)
{
	const struct hybrid_member *m;

	for (m = inv->members; m < inv->members + inv->nr_members; m++) {
		if (m->sb.role != HYBRID_ROLE_ORIGIN || !(m->sb.flags & HYBRID_SB_DIRTY) ||
		    hybrid_config_ephemeral(&m->sb) != v->line)
			continue;
		snprintf(v->why, sizeof(v->why), "had newer data of volume %.63s than its origin", m->sb.name);
		return true;
	}
	return false;
}

static void warn_of_vacancy(const struct vacancy *v)
{
	/* A missing device is reported with the volumes that run without it */
	if (v->devno)
		hybrid_warn("no new pool %s is made on %s: it %s (see hybridctl status)",
			    v->line->pool, v->line->device, v->why);
}

static int check_new_pool(const struct vacancy *v, const struct hybrid_cache_plan *plan)
{
	int r = check_new_name("pool", v->line->pool, true);

	if (!r)
		r = hybrid_dm_check(true);
	return r ? r : check_policy(plan->policy, false);
}

/* The new pool belongs to nobody until it comes up. */
static int format(const struct vacancy *v, const struct hybrid_device *dev,
		  struct hybrid_cache_plan *plan)
{
	int r;

	memcpy(plan->sb.replaces, v->pool, 16);
	plan->sb.flags |= HYBRID_SB_EPHEMERAL;
	hybrid_verbose("format cache device %s", v->line->device);
	r = hybrid_cache_format(dev, plan);
	if (r)
		hybrid_member_wipe(dev, &plan->sb);
	return r;
}

/* The device was blank before the lock was taken, and must still be blank now. */
static int make_pool(struct vacancy *v, struct hybrid_inventory *inv, struct hybrid_device *dev)
{
	struct hybrid_cache_plan plan = {};
	struct hybrid_member m;
	int r;

	/* Another activation made a pool on it meanwhile: take that one */
	if (!hybrid_member_read(dev, &m) && m.ok && m.sb.role == HYBRID_ROLE_CACHE)
		return hybrid_inventory_add(inv, &m);
	plan_ephemeral(&plan, v->line, dev->sectors);
	r = check_new_pool(v, &plan);
	if (!r)
		r = hybrid_cache_plan(dev, &plan);
	/* Reports a device that is in use */
	if (!r)
		r = hybrid_device_reopen(dev, HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE);
	if (!r && !hybrid_member_blank(dev, v->why)) {
		warn_of_vacancy(v);
		r = HYBRID_DEGRADED;
	}
	if (!r)
		r = format(v, dev, &plan);
	if (!r && (hybrid_member_read(dev, &m) || !m.ok))
		r = hybrid_fail(HYBRID_BADDEV, "check the device and the kernel log",
				"%s does not return the data that was written to it", dev->path);
	if (r)
		return r;
	hybrid_note("pool %s is made anew on %s, which was blank", v->line->pool, v->line->device);
	return hybrid_inventory_add(inv, &m);
}

static int fill_vacancy(struct vacancy *v, struct hybrid_inventory *inv)
{
	char path[HYBRID_PATH_MAX];
	struct hybrid_device dev;
	dev_t devno = v->devno;
	int r;

	if (!find_device(v) || v->devno != devno) {
		warn_of_vacancy(v);
		return HYBRID_DEGRADED;
	}
	hybrid_devno_path(v->devno, path, sizeof(path));
	r = hybrid_device_open(&dev, path, 0);
	if (r)
		return r;
	hold_signals();
	r = make_pool(v, inv, &dev);
	release_signals();
	hybrid_device_close(&dev);
	return r;
}

int fill_vacancies(struct vacancies *all, const struct command_line *cl,
		   struct hybrid_inventory *inv)
{
	struct vacancy *v;
	int r, worst = 0;

	for (v = all->v; v < all->v + all->nr; v++) {
		if (v->taken)
			continue;
		if (v->blank && !device_comes_up(cl, v->devno)) {
			v->blank = false;
			snprintf(v->why, sizeof(v->why), "is removable");
		}
		if (!v->blank || was_needed(v, inv)) {
			v->blank = false;
			warn_of_vacancy(v);
			continue;
		}
		if (cl->given[OPT_TEST]) {
			printf("write %s: a new pool %s, with the volumes that had one there\n",
			       v->line->device, v->line->pool);
			continue;
		}
		r = fill_vacancy(v, inv);
		if (r)
			worst = r;
	}
	return worst;
}

/* Followers ---------------------------------------------------------------- */

void find_followers(struct hybrid_inventory *inv)
{
	struct hybrid_node *node, *pool;

	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes; node++) {
		if (node->kind != HYBRID_VOLUME || node->pool || !node->member ||
		    (node->active && !node->dm.alone) || !misses_pool(inv, node->member))
			continue;
		for (pool = inv->nodes; pool < inv->nodes + inv->nr_nodes; pool++)
			if (pool->kind == HYBRID_POOL && pool->member && follows(pool->member, node->member))
				node->pool = pool;
	}
}

bool is_follower(const struct hybrid_node *volume)
{
	return volume->kind == HYBRID_VOLUME && volume->pool && volume->member &&
	       volume->member->sb.role == HYBRID_ROLE_ORIGIN &&
	       memcmp(volume->member->sb.pool_uuid, volume->pool->uuid, 16) &&
	       (!volume->active || volume->dm.alone);
}

static int attach_follower(struct new_volume *nv, struct hybrid_member *m,
			   const struct hybrid_member *cache)
{
	struct hybrid_member now;
	int r;

	/* Another activation attached it while this one waited for the lock */
	if (!hybrid_member_read(&nv->origin, &now) && now.ok &&
	    !memcmp(now.sb.pool_uuid, nv->plan.pool_uuid, 16)) {
		m->sb = now.sb;
		return 0;
	}
	r = nv->live ? live_find(nv) : 0;
	if (!r)
		r = end_detaches(nv, false);
	if (!r)
		r = choose_volume_id(nv->pool_name, nv->entry.name, &nv->entry.id);
	if (!r)
		r = new_volume_plan(nv);
	if (r)
		return r;
	memcpy(nv->plan.sb.host_id, cache->sb.host_id, 16);
	r = new_volume_enter(nv);
	if (!r)
		m->sb = nv->plan.sb;
	return r;
}

int enter_follower(struct hybrid_node *volume, const struct hybrid_node *pool, dev_t devno)
{
	const struct hybrid_member *cache = pool->member;
	struct hybrid_member *m = volume->member;
	struct new_volume nv = {
		.pool_name = pool->name, .pool = devno, .fast = cache->devno, .cache = cache->devno,
		.live = volume->active, .follows = m->sb.pool_uuid,
		.entry = { .mode = HYBRID_MODE_WRITETHROUGH, .cutoff_sectors = DEFAULT_CUTOFF_SECTORS },
		.plan = { .granule_sectors = cache->sb.geometry.granule_sectors },
	};
	int r;

	snprintf(nv.entry.name, sizeof(nv.entry.name), "%s", m->sb.name);
	snprintf(nv.plan.name, sizeof(nv.plan.name), "%s", m->sb.name);
	memcpy(nv.plan.pool_uuid, pool->uuid, 16);
	r = hybrid_device_open(&nv.origin, m->path, nv.live ? 0 : HYBRID_OPEN_EXCLUSIVE);
	if (!r && nv.origin.devno != m->devno)
		r = hybrid_fail(HYBRID_BADDEV, "try again", "%s changed since it was scanned",
				m->path);
	if (!r)
		r = attach_follower(&nv, m, cache);
	new_volume_close(&nv);
	if (r)
		volume->pool = NULL;
	return r;
}

bool will_be_filled(const struct vacancies *all, const struct hybrid_member *origin)
{
	const struct vacancy *v = find_vacancy(all, hybrid_config_ephemeral(&origin->sb));

	return v && v->blank;
}

struct hybrid_node *find_filled(const struct vacancies *all, struct hybrid_inventory *inv,
				const char *what, bool *known)
{
	struct hybrid_node *pool;
	const struct vacancy *v;
	uint8_t uuid[16];
	bool is_uuid = hybrid_uuid_parse(what, uuid);

	*known = false;
	for (v = all->v; v < all->v + all->nr; v++)
		if (!strcmp(v->line->pool, what) || (is_uuid && !memcmp(v->pool, uuid, 16)))
			*known = true;
	for (pool = inv->nodes; pool < inv->nodes + inv->nr_nodes; pool++)
		if (is_uuid && pool->kind == HYBRID_POOL && pool->member &&
		    !memcmp(pool->member->sb.replaces, uuid, 16))
			return pool;
	return NULL;
}

/* In words ----------------------------------------------------------------- */

void explain_vacancy(const struct hybrid_node *volume, struct health *h)
{
	const struct hybrid_member *m = volume->member;
	struct hybrid_member found;
	struct vacancy v = {};

	if (volume->kind != HYBRID_VOLUME || volume->pool || !m || !m->ok ||
	    !ephemeral_of(m) || hybrid_config_foreign(m->sb.host_id))
		return;
	v.line = hybrid_config_ephemeral(&m->sb);
	if (look_at(&v, &found) || !v.devno)
		return;
	if (v.blank) {
		snprintf(h->reason, sizeof(h->reason), "its cache device %s is blank", v.line->device);
		snprintf(h->action, sizeof(h->action), "hybridctl activate %s", volume->name);
		return;
	}
	snprintf(h->reason, sizeof(h->reason), "its cache device %.130s is not blank: it %.80s",
		 v.line->device, v.why);
	if (found.sb.role == HYBRID_ROLE_CACHE && found.sb.flags & HYBRID_SB_EPHEMERAL)
		snprintf(h->action, sizeof(h->action), "hybridctl activate %.63s; if that fails, do as its error says",
			 volume->name);
	else if (found.sb.role == HYBRID_ROLE_CACHE)
		snprintf(h->action, sizeof(h->action),
			 "if nobody needs that pool, hybridctl destroy %.63s; then hybridctl activate %.63s",
			 found.sb.name, volume->name);
	else
		snprintf(h->action, sizeof(h->action),
			 "to use it all the same, hybridctl detach %.63s; then hybridctl create %.63s --cache DEVICE --ephemeral",
			 volume->name, volume->name);
}
