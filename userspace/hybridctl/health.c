// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "format.h"
#include "health.h"
#include "owner.h"
#include "sysfs.h"

static void say(struct health *h, bool healthy, const char *state, const char *reason,
		const char *action)
{
	h->healthy = healthy;
	h->state = state;
	snprintf(h->reason, sizeof(h->reason), "%s", reason);
	snprintf(h->action, sizeof(h->action), "%s", action);
}

/* Describes data that went with the last cache of a volume, and is not acknowledged.  NULL: none. */
static const char *loss_of(const struct hybrid_node *node)
{
	const struct hybrid_sb *sb = node->member ? &node->member->sb : NULL;

	if (!sb || sb->role != HYBRID_ROLE_DETACHED)
		return NULL;
	if (sb->flags & HYBRID_SB_LOSS_UNKNOWN)
		return "data was lost with its cache, and the ranges are unknown";
	return sb->lost ? "data was lost with its cache: hybridctl lost lists it" : NULL;
}

/* A volume without a cache is healthy, unless data that was lost with the last one is missing. */
static void judge_uncached(const struct hybrid_node *node, struct health *h)
{
	const char *loss = loss_of(node);

	say(h, !loss, "no-cache", loss ? loss : "it is its origin alone", "");
	if (loss)
		snprintf(h->action, sizeof(h->action),
			 "hybridctl lost --acknowledge %s, once the lost data is restored",
			 node->name);
}

/* The disk shows the data twice, as the volume and as a partition: only one of them may be used. */
static void judge_exported(const struct hybrid_node *node, struct health *h)
{
	if (!node->member || !node->member->gpt || is_foreign(node) || loss_of(node))
		return;
	say(h, false, h->state, "its export was interrupted: its disk has a partition table, too", "");
	snprintf(h->action, sizeof(h->action), "hybridctl export %s", node->name);
}

/* A volume may run alone for any time: all of its data is there. */
static void judge_alone(const struct hybrid_node *node, struct health *h)
{
	say(h, true, "alone", "its cache device is missing: it runs at the speed of its origin", "");
	if (node->pool && node->pool->active)
		snprintf(h->action, sizeof(h->action), "hybridctl activate %s", node->name);
	else
		snprintf(h->action, sizeof(h->action),
			 "connect the cache device; or, if it is gone for good, hybridctl detach %s",
			 node->name);
}

/* The pool is active, and has nothing of the volume. */
static void judge_unknown(const struct hybrid_node *node, struct health *h)
{
	bool dirty = node->member && node->member->sb.flags & HYBRID_SB_DIRTY;

	if (!node->unknown)
		return;
	say(h, false, h->state, dirty ?
	    "its pool does not know it: the data that only the cache had is lost" :
	    "its pool does not know it: an attach was interrupted, or a repair of the pool lost its entry", "");
	snprintf(h->action, sizeof(h->action), dirty ? "hybridctl accept-loss %s" :
		 "hybridctl detach %s, and attach it again", node->name);
}

static void judge_given_up(const struct hybrid_node *node, struct health *h)
{
	say(h, false, "given-up", "its origin no longer uses this cache, which still has dirty data of the volume", "");
	snprintf(h->action, sizeof(h->action), "hybridctl detach --drop-dirty %s", node->name);
}

static void judge_without_origin(const struct hybrid_node *node, struct health *h)
{
	say(h, false, "incomplete", node->v.status.dirty ?
	    "its origin is missing; the pool keeps its dirty data" : "its origin is missing", "");
	snprintf(h->action, sizeof(h->action),
		 "connect the origin, then activate; if it is gone for good: hybridctl detach --drop-dirty %s",
		 node->name);
}

static void judge_inplace(const struct hybrid_node *node, struct health *h)
{
	say(h, false, "inactive",
	    "it is not active; the UUID of its file system may have changed since it was recorded", "");
	snprintf(h->action, sizeof(h->action),
		 "hybridctl activate %s; if it does not find the origin, see CACHING IN PLACE in hybridctl(8)",
		 node->name);
}

/* The volume is not active, and its cache device is not here. */
static void judge_cache_missing(const struct hybrid_node *node, struct health *h)
{
	uint32_t flags = node->member ? node->member->sb.flags : 0;

	say(h, false, "incomplete", flags & HYBRID_SB_DIRTY ?
	    "its cache device is missing, and holds newer data than the origin" :
	    "its cache device is missing", "");
	if (flags & HYBRID_SB_DIRTY)
		snprintf(h->action, sizeof(h->action),
			 "connect the cache device; or, if it is gone for good, hybridctl accept-loss %s",
			 node->name);
	else if (flags & HYBRID_SB_ALONE)
		snprintf(h->action, sizeof(h->action), "hybridctl activate %s", node->name);
	else
		snprintf(h->action, sizeof(h->action),
			 "connect the cache device; or, without it, hybridctl activate --degraded %s",
			 node->name);
}

/* A clone of it is here, for example.  Nothing is missing, and nothing is to be given up. */
static void judge_refused(const struct hybrid_member *m, struct health *h)
{
	say(h, false, "incomplete", "", hybrid_member_next(m, NEXT_OF_COPY));
	snprintf(h->reason, sizeof(h->reason), "its %s %.128s is refused: %s",
		 m->sb.role == HYBRID_ROLE_CACHE ? "cache device" : "origin", m->path, m->why);
}

static void judge_inactive(const struct hybrid_node *node, struct health *h)
{
	const struct hybrid_member *m = node->member;

	if (is_foreign(node)) {
		say(h, true, "foreign", "it belongs to another host",
		    "hybridctl activate --foreign uses it once, hybridctl adopt takes it over");
		return;
	}
	say(h, false, "inactive", "its members are here, but it is not active", "");
	snprintf(h->action, sizeof(h->action), "hybridctl activate %s", node->name);
	if (loss_of(node))
		snprintf(h->reason, sizeof(h->reason), "%s", loss_of(node));
	/* Nothing on the origin of a volume in place says that it is one. */
	if (node->closed && node->v.table.inplace)
		judge_inplace(node, h);
	else if (node->closed && !m)
		judge_without_origin(node, h);
	if (node->refused)
		judge_refused(node->refused, h);
	else if (node->kind == HYBRID_VOLUME && !hybrid_node_uncached(node) &&
		 (!node->pool || !(node->pool->member || node->pool->active)))
		judge_cache_missing(node, h);
}

bool errors_by_kind(const struct hybrid_node *pool, char *buf, size_t len)
{
	const struct hybrid_pool_status *s = &pool->p.status;

	snprintf(buf, len, "reads: %llu, writes: %llu, flushes: %llu",
		 (unsigned long long)s->read_errors, (unsigned long long)s->write_errors,
		 (unsigned long long)s->flush_errors);
	return s->read_errors || s->write_errors || s->flush_errors;
}

static void judge_errors(const struct hybrid_node *pool, struct health *h)
{
	char kinds[128];

	say(h, false, "running", "I/O to the cache device failed",
	    "check the cache device (dmesg, smartctl)");
	if (errors_by_kind(pool, kinds, sizeof(kinds)))
		snprintf(h->reason, sizeof(h->reason), "I/O to the cache device failed (%s)", kinds);
}

static void judge_retired(const struct hybrid_node *pool, struct health *h)
{
	unsigned long long nr = pool->p.status.retired;

	say(h, false, "running", "", "");
	snprintf(h->action, sizeof(h->action),
		 "replace the cache device soon (dmesg, smartctl): hybridctl replace-cache %s --cache DEVICE",
		 pool->name);
	snprintf(h->reason, sizeof(h->reason),
		 "%llu block%s of the cache device failed twice and %s no longer used", nr,
		 nr == 1 ? "" : "s", nr == 1 ? "is" : "are");
}

static void judge_failing(const struct hybrid_node *pool, struct health *h)
{
	const struct hybrid_pool_status *s = &pool->p.status;

	say(h, false, "failing", "", "");
	snprintf(h->reason, sizeof(h->reason),
		 "its cache device is failing (recent errors: %llu of reads, %llu of writes): writes go to the origins, too",
		 (unsigned long long)s->recent_read_errors,
		 (unsigned long long)s->recent_write_errors);
	snprintf(h->action, sizeof(h->action),
		 "hybridctl replace-cache %s --cache DEVICE; if the device is well (dmesg, smartctl), set its read_error_limit or write_error_limit higher",
		 pool->name);
}

/* Nothing is lost yet: the array works on one of its disks. */
static bool judge_array(const struct hybrid_node *pool, struct health *h)
{
	char path[HYBRID_PATH_MAX];

	if (!hybrid_sysfs_degraded(pool->below))
		return false;
	hybrid_devno_path(pool->below, path, sizeof(path));
	say(h, false, "running", "", "");
	snprintf(h->reason, sizeof(h->reason), "its cache device %.128s is an array that lacks a disk",
		 path);
	snprintf(h->action, sizeof(h->action), "mdadm --manage %.128s --add DEVICE adds another one",
		 path);
	return true;
}

/*
 * @draining: dirty data is written back, for a drain that is @on, or because of the mode.  False:
 * neither.
 */
static bool judge_drain(const struct hybrid_node *node, bool draining, bool on, struct health *h)
{
	const struct hybrid_node *whose = node;
	bool failing = node->pool && node->pool->active && node->pool->p.status.failing;

	if (draining)
		say(h, true, "draining", "dirty data is being written back", "");
	else if (on)
		say(h, true, "drained", "nothing is dirty, and writes go to the origin, too", "");
	if (failing && on) {
		snprintf(h->action, sizeof(h->action), "its cache device is failing: hybridctl status %s",
			 node->pool->name);
		return true;
	}
	if (on && node->pool && node->pool->active && node->pool->p.status.drain_on)
		whose = node->pool;
	if (on)
		snprintf(h->action, sizeof(h->action), "hybridctl drain %s --cancel ends the drain",
			 whose->name);
	return draining || on;
}

/* A replace-cache is running, or was cut short. */
static bool judge_replaced(const struct hybrid_node *node, struct health *h)
{
	if (!node->successor && !hybrid_node_replaces(node))
		return false;
	say(h, false, "running", node->successor ?
	    "its volumes move to another cache device: if no replace-cache is running, it was interrupted" :
	    "volumes move to it from another pool: if no replace-cache is running, it was interrupted", "");
	snprintf(h->action, sizeof(h->action), "hybridctl replace-cache %s", node->name);
	return true;
}

static void judge_pool(const struct hybrid_node *node, struct health *h)
{
	const struct hybrid_pool_status *s = &node->p.status;

	if (!strcmp(s->state, "unloaded"))
		say(h, false, "unloaded", "its metadata has not been read",
		    "dmsetup resume it, or deactivate and activate");
	else if (strcmp(s->state, "running"))
		say(h, false, "failed",
		    "the cache device or its metadata failed; dirty data cannot be read",
		    "see dmesg; replace or reconnect the cache device, then deactivate and activate");
	else if (judge_replaced(node, h) || judge_array(node, h))
		return;
	else if (s->failing)
		judge_failing(node, h);
	else if (s->draining)
		judge_drain(node, true, s->drain_on, h);
	else if (s->retired)
		judge_retired(node, h);
	else if (s->errors)
		judge_errors(node, h);
	else if (!judge_drain(node, false, s->drain_on, h))
		say(h, true, "running", "", "");
}

static void judge_degraded(const struct hybrid_node *node, struct health *h)
{
	const struct hybrid_volume_status *s = &node->v.status;

	if (s->lost || s->dirty) {
		say(h, false, "degraded",
		    "its pool failed: clean data comes from the origin, dirty data fails", "");
		snprintf(h->action, sizeof(h->action), "hybridctl lost %s lists the lost data", node->name);
		return;
	}
	say(h, false, "degraded", "its pool failed; nothing is lost", "see the status of its pool");
	if (!node->v.table.inplace)
		snprintf(h->action, sizeof(h->action),
			 "reconnect the cache device, then deactivate and activate; or go on without it: hybridctl detach --live %s",
			 node->name);
}

/* Suspended by a user, by a detach that was cut short after the pool had failed, or by a replace-cache. */
static void judge_suspended(const struct hybrid_node *node, struct health *h)
{
	bool failed = node->kind == HYBRID_VOLUME && hybrid_pool_failed(node->pool);

	say(h, false, "suspended", "its I/O is held back", "dmsetup resume it");
	if (failed)
		snprintf(h->action, sizeof(h->action), "dmsetup resume it, or hybridctl detach --live %s",
			 node->name);
	else if (node->kind == HYBRID_VOLUME && node->pool && node->pool->successor)
		snprintf(h->action, sizeof(h->action), "hybridctl replace-cache %s", node->pool->name);
}

static void judge_readonly(const struct hybrid_node *node, struct health *h)
{
	say(h, false, "read-only", "it is its origin, without its cache device; reads of data lost with the cache fail",
	    "");
	snprintf(h->action, sizeof(h->action),
		 "deactivate it; connect the cache device and activate; or, if it is gone for good, hybridctl accept-loss %s",
		 node->name);
}

static void judge_volume(const struct hybrid_node *node, struct health *h)
{
	const struct hybrid_volume_status *s = &node->v.status;

	if (!strcmp(s->state, "unloaded"))
		say(h, false, "unloaded", "it was never resumed, or another table has taken its place",
		    "dmsetup resume it, or deactivate and activate");
	else if (node->dm.alone && hybrid_node_uncached(node))
		judge_uncached(node, h);
	else if (node->dm.alone && node->dm.readonly)
		judge_readonly(node, h);
	else if (node->dm.alone)
		judge_alone(node, h);
	else if (strcmp(s->state, "running"))
		judge_degraded(node, h);
	else if (s->origin_errors)
		say(h, false, "running", "I/O to the origin failed",
		    "check the origin (dmesg, smartctl)");
	else if (s->cache_errors)
		say(h, false, "running", "I/O to the cache failed and was redirected or reported",
		    "check the cache device (dmesg, smartctl)");
	else if (!judge_drain(node, s->draining, s->drain_on, h))
		say(h, true, "running", "", "");
}

uint64_t may_grow_by(const struct hybrid_node *volume)
{
	const struct hybrid_member *m = volume->member && volume->member->ok ? volume->member : NULL;
	dev_t origin = volume->below ? volume->below : m ? m->devno : 0;
	struct hybrid_volume_info info = { .flags = HYBRID_VOLUME_INPLACE };
	uint64_t now = volume->dm.sectors, room;

	if (volume->kind != HYBRID_VOLUME || !origin || volume->given_up)
		return 0;
	if (m) {
		info.flags = 0;
		info.data_sector = m->sb.data_sector;
		if (!volume->active)
			now = m->sb.data_sectors;
	} else if (!volume->active || !(volume->v.table.inplace || hybrid_node_uncached(volume))) {
		return 0;
	}
	room = hybrid_volume_room(&info, hybrid_devno_sectors(origin));
	return now && room > now ? room - now : 0;
}

/* Nothing is wrong with a volume that could be larger. */
static void judge_growth(const struct hybrid_node *node, struct health *h)
{
	uint64_t more = may_grow_by(node);
	bool stands = node->active && node->dm.suspended && node->member &&
		      node->member->sb.data_sectors > node->dm.sectors;

	if (!more || (h->action[0] && !stands))
		return;
	snprintf(h->reason, sizeof(h->reason), stands ? "a resize was interrupted" :
		 "its origin has grown by %llu MiB", (unsigned long long)more >> 11);
	snprintf(h->action, sizeof(h->action), "hybridctl resize %s", node->name);
}

void judge(const struct hybrid_node *node, struct health *h)
{
	if (node->given_up)
		judge_given_up(node, h);
	else if (!node->active)
		judge_inactive(node, h);
	else if (!node->dm.live)
		say(h, false, "empty", "it has no table, or an error table", "deactivate and activate it");
	else if (node->kind == HYBRID_POOL)
		judge_pool(node, h);
	else
		judge_volume(node, h);
	judge_exported(node, h);
	judge_unknown(node, h);
	if (node->dm.suspended)
		judge_suspended(node, h);
	if (node->deleted)
		say(h, false, node->dm.suspended ? "suspended" : "no-cache",
		    "its detach was interrupted", "hybridctl activate --all finishes it");
	judge_growth(node, h);
}

bool hit_ratio(const struct hybrid_node *node, bool reads, bool writes, uint64_t *ratio)
{
	const struct hybrid_volume_status *s = &node->v.status;
	uint64_t hits, all;

	if (node->kind != HYBRID_VOLUME || !node->active)
		return false;
	hits = (reads ? s->read_hits : 0) + (writes ? s->write_hits : 0);
	all = hits + (reads ? s->read_misses : 0) + (writes ? s->write_misses : 0);
	if (!all)
		return false;
	*ratio = (uint64_t)((double)hits * 10000.0 / (double)all);
	return true;
}
