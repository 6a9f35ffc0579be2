// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdio.h>
#include <string.h>

#include "ephemeral.h"
#include "errors.h"
#include "new-volume.h"

int find_ephemeral(dev_t cache, const char *path, const struct hybrid_ephemeral **e)
{
	*e = cache ? hybrid_config_ephemeral_at(cache) : NULL;
	if (*e)
		return 0;
	return hybrid_fail(HYBRID_REFUSED,
			   "add a line: ephemeral = /dev/disk/by-id/NAME pool=POOL; see hybrid.conf(5)",
			   "%s: hybrid.conf does not list it as a device that comes up blank", path);
}

void plan_ephemeral(struct hybrid_cache_plan *plan, const struct hybrid_ephemeral *e,
		    uint64_t sectors)
{
	snprintf(plan->name, sizeof(plan->name), "%s", e->pool);
	snprintf(plan->policy, sizeof(plan->policy), "%s",
		 e->policy[0] ? e->policy : DEFAULT_POLICY);
	plan->block_sectors = e->block_sectors ? e->block_sectors :
			      choose_block_size(plan->policy, sectors, plan->journal_blocks);
}

int fail_ephemeral_writeback(const char *name)
{
	return hybrid_fail(HYBRID_REFUSED, "use writethrough, writearound or passthrough",
			   "volume %s: its cache device may come up blank, and in writeback mode would have the only copy of some data",
			   name);
}

static int check_pool_name(const struct new_volume *nv, const struct hybrid_ephemeral *e)
{
	if (!strcmp(nv->pool_name, e->pool))
		return 0;
	return hybrid_fail(HYBRID_REFUSED, "give both the same name",
			   "the pool is called %s, but hybrid.conf calls the pool on %s %s", nv->pool_name,
			   e->device, e->pool);
}

/* Whether the mark stays: it names the device of the new cache.  A follower was found by its mark. */
static bool stays_marked(const struct new_volume *nv)
{
	const struct hybrid_ephemeral *e = hybrid_config_ephemeral(&nv->plan.sb);

	return nv->follows || (e && hybrid_ephemeral_leads_to(e, nv->cache) &&
			       !strcmp(nv->pool_name, e->pool));
}

int mark_ephemeral(struct new_volume *nv)
{
	const struct hybrid_ephemeral *e;
	struct hybrid_sb *sb = &nv->plan.sb;
	int r;

	if (nv->ephemeral) {
		r = find_ephemeral(nv->cache, "the cache device", &e);
		if (!r)
			r = check_pool_name(nv, e);
		if (r)
			return r;
		sb->flags |= HYBRID_SB_EPHEMERAL;
		snprintf(sb->cache_path, sizeof(sb->cache_path), "%s",
			 hybrid_ephemeral_path(e->device));
	} else if (!stays_marked(nv)) {
		sb->flags &= ~HYBRID_SB_EPHEMERAL;
		memset(sb->cache_path, 0, sizeof(sb->cache_path));
		return 0;
	}
	if (nv->entry.mode == HYBRID_MODE_WRITEBACK)
		return fail_ephemeral_writeback(nv->entry.name);
	/* No detach will record the settings for the next cache */
	sb->next.mode = nv->entry.mode + 1;
	sb->next.cutoff_sectors = nv->entry.cutoff_sectors + 1;
	return 0;
}

const struct hybrid_ephemeral *ephemeral_of(const struct hybrid_member *m)
{
	return m->sb.role != HYBRID_ROLE_ORIGIN || m->sb.flags & HYBRID_SB_DIRTY ? NULL :
	       hybrid_config_ephemeral(&m->sb);
}
