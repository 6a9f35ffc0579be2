// SPDX-License-Identifier: GPL-2.0-or-later
/* create and attach --live: a device that is in use gets a cache, and keeps its name and its users. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "common.h"
#include "errors.h"
#include "sysfs.h"

int survive_suspend(void)
{
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		return hybrid_fail(HYBRID_NOMEM, "free some memory, or raise its limit (ulimit -l)",
				   "cannot lock the memory of %s", hybrid_output.program);
	/* Old kernels do not know it */
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
	return 0;
}

/* What is there instead of a linear device over the origin, and what to do. */
static int fail_not_linear(const struct new_volume *nv)
{
	const struct hybrid_device *origin = &nv->origin;
	char where[HYBRID_PATH_MAX];

	if (hybrid_devno_mounted(origin->devno, where, sizeof(where)))
		return hybrid_fail(HYBRID_BUSY,
				   "unmount it, attach it without --live, and mount the volume from then on",
				   "%s itself is mounted at %s: only a linear device-mapper device over it can get a cache in use",
				   origin->path, where);
	return hybrid_fail(HYBRID_REFUSED, "attach it without --live if nothing uses it",
			   "there is no device %s that is linear and lies on %s", nv->entry.name,
			   origin->path);
}

int live_find(struct new_volume *nv)
{
	struct hybrid_dm_linear *l = &nv->linear;
	char holders[HYBRID_PATH_MAX];
	bool pool;

	if (!hybrid_dm_linear(nv->entry.name, l) || l->below != nv->origin.devno)
		return fail_not_linear(nv);
	if (l->suspended)
		return hybrid_fail(HYBRID_BUSY, "dmsetup resume it first", "%s is suspended",
				   nv->entry.name);
	if (l->uuid[0] && (!hybrid_dm_uuid_parse(l->uuid, nv->live_uuid, &pool) || pool))
		return hybrid_fail(HYBRID_REFUSED,
				   "attach it without --live if nothing uses it",
				   "%s is another's to change: its DM_UUID is %s",
				   nv->entry.name, l->uuid);
	hybrid_sysfs_holders(nv->origin.devno, holders, sizeof(holders));
	if (strcmp(holders, nv->entry.name))
		return hybrid_fail(HYBRID_BUSY, "stop what else uses it first (see lsblk)",
				   "%s is in use by others than %s: %s", nv->origin.path,
				   nv->entry.name, holders);
	return 0;
}

/* A crash in the middle of an attach: formatted for the pool, which does not know it. */
static int is_unknown(const struct new_volume *nv, const struct hybrid_sb *sb, bool *unknown)
{
	struct hybrid_volume_line *entries;
	unsigned int nr, i;
	int r;

	*unknown = sb->role == HYBRID_ROLE_ORIGIN && !(sb->flags & HYBRID_SB_DIRTY) &&
		   !memcmp(sb->pool_uuid, nv->plan.pool_uuid, 16);
	if (!*unknown)
		return 0;
	r = hybrid_pool_volumes(nv->pool_name, &entries, &nr);
	if (r)
		return r;
	for (i = 0; i < nr; i++)
		if (!memcmp(entries[i].uuid, sb->volume_uuid, 16))
			*unknown = false;
	free(entries);
	return 0;
}

/* Behind the head of an origin that was detached there is room for a superblock again. */
static int plan_formatted(struct new_volume *nv)
{
	struct hybrid_sb *sb = &nv->plan.sb;
	struct hybrid_member m;
	bool fits = false;
	int r = hybrid_member_read(&nv->origin, &m);

	if (r == -ENODATA)
		return hybrid_fail(HYBRID_REFUSED, "add --in-place",
				   "%s has no room for a superblock: its data was never moved behind one",
				   nv->origin.path);
	if (r || !m.ok)
		return hybrid_fail(HYBRID_BADDEV, "see hybridctl probe", "%s: %s", nv->origin.path,
				   r ? strerror(-r) : m.why);
	r = is_unknown(nv, &m.sb, &fits);
	if (r)
		return r;
	if (!fits && m.sb.role != HYBRID_ROLE_DETACHED)
		return hybrid_fail(HYBRID_BUSY, "detach it first",
				   "%s belongs to dm-hybrid already: %s %s", nv->origin.path,
				   hybrid_role_name(m.sb.role), m.sb.name);
	if (nv->linear.start != m.sb.data_sector || nv->linear.sectors != m.sb.data_sectors)
		return hybrid_fail(HYBRID_REFUSED, "see dmsetup table, hybridctl scan",
				   "%s is not the %llu sectors of data from sector %llu of %s on",
				   nv->entry.name, (unsigned long long)m.sb.data_sectors,
				   (unsigned long long)m.sb.data_sector, nv->origin.path);
	sb->data_sector = m.sb.data_sector;
	sb->data_sectors = m.sb.data_sectors;
	sb->member_sectors = m.sb.member_sectors;
	sb->sequence = m.sb.sequence + 1;
	/* Of one member both copies count: cut between the two, it is as if both were written */
	memcpy(sb->member_uuid, m.sb.member_uuid, sizeof(sb->member_uuid));
	return 0;
}

int live_plan(struct new_volume *nv)
{
	const struct hybrid_dm_linear *l = &nv->linear;
	int r = check_sectors(nv, l->devno, nv->entry.name, "use a cache device with smaller sectors");

	if (r)
		return r;
	if (!nv->plan.inplace)
		r = plan_formatted(nv);
	else if (l->start || l->sectors != nv->origin.sectors)
		r = hybrid_fail(HYBRID_REFUSED, "attach it without --live if nothing uses it",
				"%s is only a part of %s", nv->entry.name, nv->origin.path);
	if (!r && l->uuid[0])
		memcpy(nv->plan.sb.volume_uuid, nv->live_uuid, 16);
	return r;
}

int live_start(const struct new_volume *nv, const char *params)
{
	const struct hybrid_dm_linear *l = &nv->linear;
	char old[HYBRID_PARAMS_MAX];
	int r = survive_suspend();

	if (!r && !l->uuid[0])
		r = hybrid_dm_set_uuid(nv->entry.name, nv->entry.uuid);
	if (r)
		return r;
	r = hybrid_dm_switch(nv->entry.name, HYBRID_VOLUME_TARGET, l->sectors, params);
	if (r)
		hybrid_dm_switch(nv->entry.name, HYBRID_LINEAR_TARGET, l->sectors,
				 hybrid_linear_params(old, l->below, l->start));
	return r;
}
