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
#include "live.h"
#include "new-volume.h"
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

/* There is no linear device over the origin: names the reason and the next step. */
static int fail_not_linear(const struct new_volume *nv)
{
	const struct hybrid_device *origin = &nv->origin;
	char where[HYBRID_PATH_MAX];

	if (hybrid_devno_mounted(origin->devno, where, sizeof(where)))
		return hybrid_fail(HYBRID_BUSY,
				   "unmount it, attach it without --live, and mount the volume from then on",
				   "%s itself is mounted at %s: only a linear device-mapper device on top of it can be given a cache in use",
				   origin->path, where);
	return hybrid_fail(HYBRID_REFUSED, "attach it without --live if nothing uses it",
			   "there is no linear device %s on %s", nv->entry.name,
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
				   "%s belongs to another tool: its DM_UUID is %s",
				   nv->entry.name, l->uuid);
	hybrid_sysfs_holders(nv->origin.devno, holders, sizeof(holders));
	if (holders[0] && strcmp(holders, nv->entry.name))
		return hybrid_fail(HYBRID_BUSY, "stop its other users first (see lsblk)",
				   "%s is not used by %s alone, but by: %s", nv->origin.path,
				   nv->entry.name, holders);
	return 0;
}

/* Only the origin of a volume without a cache has room for a superblock while it is in use. */
static int fail_not_kept(const struct new_volume *nv)
{
	struct hybrid_member m;
	int r = hybrid_member_read(&nv->origin, &m);

	if (r == -ENODATA)
		return hybrid_fail(HYBRID_REFUSED, "add --in-place",
				   "%s was never formatted as an origin: it has no room for a superblock",
				   nv->origin.path);
	if (r || !m.ok)
		return hybrid_fail(HYBRID_BADDEV, hybrid_member_next(&m, "see hybridctl probe"),
				   "%s: %s", nv->origin.path, r ? strerror(-r) : m.why);
	return hybrid_member_fail(&nv->origin, &m, "detach it first");
}

static int check_data_area(const struct new_volume *nv)
{
	const struct hybrid_dm_linear *l = &nv->linear;
	const struct hybrid_sb *sb = &nv->plan.sb;

	if (l->start == sb->data_sector && l->sectors == sb->data_sectors &&
	    (!l->uuid[0] || !memcmp(nv->live_uuid, sb->volume_uuid, 16)))
		return 0;
	return hybrid_fail(HYBRID_REFUSED, "see dmsetup table, hybridctl scan",
			   "%s does not map the %llu sectors of data from sector %llu of %s on",
			   nv->entry.name, (unsigned long long)sb->data_sectors,
			   (unsigned long long)sb->data_sector, nv->origin.path);
}

int live_plan(struct new_volume *nv)
{
	const struct hybrid_dm_linear *l = &nv->linear;
	int r = check_sectors(nv->fast, l->devno, nv->entry.name, "use a cache device with smaller sectors");

	if (r)
		return r;
	if (!nv->plan.inplace)
		r = nv->kept ? check_data_area(nv) : fail_not_kept(nv);
	else if (l->start != nv->plan.data_sector || l->start + l->sectors != nv->origin.sectors)
		r = hybrid_fail(HYBRID_REFUSED, "attach it without --live if nothing uses it",
				"%s maps only a part of %s", nv->entry.name, nv->origin.path);
	if (!r && nv->plan.inplace && l->uuid[0])
		memcpy(nv->plan.sb.volume_uuid, nv->live_uuid, 16);
	return r;
}

static int switch_to_volume(const char *name, const struct hybrid_dm_linear *l, uint64_t sectors,
			    const char *params)
{
	char old[HYBRID_PARAMS_MAX];
	int r = hybrid_dm_switch(name, HYBRID_VOLUME_TARGET, sectors, params);

	if (r)
		hybrid_dm_switch(name, HYBRID_LINEAR_TARGET, l->sectors,
				 hybrid_linear_params(old, l->below, l->start));
	return r;
}

/* Whether the device has the linear table that was planned for: no other table is to be replaced. */
static bool is_still(const char *name, const struct hybrid_dm_linear *l)
{
	struct hybrid_dm_linear now;

	return hybrid_dm_linear(name, &now) && now.devno == l->devno && now.below == l->below &&
	       now.start == l->start && now.sectors == l->sectors;
}

int live_start(const struct new_volume *nv, const char *params)
{
	const struct hybrid_dm_linear *l = &nv->linear;
	int r = survive_suspend();

	if (!r && !is_still(nv->entry.name, l))
		r = hybrid_fail(HYBRID_BUSY, "see hybridctl status, then try again",
				"the table of %s was changed meanwhile", nv->entry.name);
	if (!r && !l->uuid[0])
		r = hybrid_dm_set_uuid(nv->entry.name, nv->entry.uuid);
	return r ? r : switch_to_volume(nv->entry.name, l, l->sectors, params);
}

int live_join(const struct hybrid_volume_line *entry, const char *name, dev_t pool, dev_t origin)
{
	char params[HYBRID_PARAMS_MAX];
	struct hybrid_dm_linear l;
	int r;

	if (!hybrid_dm_linear(name, &l) || l.below != origin || l.start != entry->data_sector ||
	    (l.sectors != entry->data_sectors && l.sectors != entry->data_sectors_new))
		return hybrid_fail(HYBRID_BADDEV, "see dmsetup table, hybridctl scan",
				   "%s does not map the data of its origin", name);
	kernel_params(params, entry, pool, origin);
	r = survive_suspend();
	return r ? r : switch_to_volume(name, &l, length_on(entry, origin), params);
}

int live_stop(const struct hybrid_volume_line *entry, const char *name, dev_t below, bool suspended)
{
	char params[HYBRID_PARAMS_MAX];
	int r;

	hybrid_linear_params(params, below, entry->data_sector);
	r = hybrid_dm_try(name, HYBRID_LINEAR_TARGET, entry->data_sectors, params);
	if (!r)
		r = survive_suspend();
	return r || suspended ? r : hybrid_dm_suspend(name);
}

/* Makes both copies the same: an old one could bring back the old cache. */
static int unite(dev_t origin)
{
	char path[HYBRID_PATH_MAX];
	struct hybrid_device dev;
	struct hybrid_member m;
	int r;

	r = hybrid_device_open(&dev, hybrid_devno_path(origin, path, sizeof(path)), HYBRID_OPEN_WRITE);
	if (!r)
		r = hybrid_member_unite(&dev, &m);
	hybrid_device_close(&dev);
	return r;
}

int live_move(const struct hybrid_volume_line *entry, const char *name, dev_t pool, dev_t origin)
{
	char params[HYBRID_PARAMS_MAX];
	int r = survive_suspend();

	if (!r)
		r = unite(origin);
	if (!r)
		r = hybrid_dm_switch(name, HYBRID_LINEAR_TARGET, entry->data_sectors,
				     hybrid_linear_params(params, origin, entry->data_sector));
	return r ? r : live_join(entry, name, pool, origin);
}
