// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * resize: extends a volume to the new size of its origin, in use or not.
 *
 * With a cache, the volume is suspended, the kernel writes entry and superblocks (engine-grow.c has the
 * order), and the longer table follows.  Without a cache, only the tools write the superblocks:
 * hybrid_member_grow().  A resize that is cut short goes on when the command is given again, or when the
 * volume comes up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "errors.h"
#include "health.h"
#include "live.h"
#include "owner.h"
#include "sysfs.h"

struct resize {
	const struct command_line *cl;
	struct hybrid_inventory inv;
	struct hybrid_node *node;
	struct hybrid_volume_line entry;	/* of a volume with a cache */
	dev_t origin;
	uint64_t origin_sectors;
	uint64_t sectors;			/* the new size of the volume */
};

static unsigned long long mib(uint64_t sectors)
{
	return sectors >> 11;
}

/* Whether it can be done ------------------------------------------------------------ */

static int fail_pool(const struct hybrid_node *pool)
{
	char next[HYBRID_NAME_SIZE + 96];

	snprintf(next, sizeof(next), "hybridctl replace-cache %s --cache DEVICE moves its volumes to a larger one",
		 pool->name);
	return hybrid_fail(HYBRID_REFUSED, next,
			   "pool %s cannot be resized: the places of its blocks depend on its size", pool->name);
}

static int fail_smaller(const struct resize *r, uint64_t needed)
{
	char path[HYBRID_PATH_MAX];

	return hybrid_fail(HYBRID_REFUSED, "give the device its old size again",
			   "%s has %llu sectors, and volume %s needs %llu: it cannot shrink",
			   hybrid_devno_path(r->origin, path, sizeof(path)),
			   (unsigned long long)r->origin_sectors, r->node->name,
			   (unsigned long long)needed);
}

/* Start of the data of a volume without a cache; in place, only the device's table has it. */
static uint64_t data_start(const struct hybrid_node *node)
{
	struct hybrid_dm_linear linear;

	if (node->member)
		return node->member->sb.data_sector;
	return hybrid_dm_linear(node->name, &linear) ? linear.start : 0;
}

/* Finds the new size: the room for data, less the tail of a formatted origin. */
static int plan(struct resize *r, bool inplace, uint64_t data_sector, uint64_t data_sectors)
{
	struct hybrid_volume_info info = {
		.flags = inplace ? HYBRID_VOLUME_INPLACE : 0,
		.data_sector = data_sector,
	};

	r->sectors = hybrid_volume_room(&info, r->origin_sectors);
	if (r->sectors >= data_sectors)
		return 0;
	return fail_smaller(r, data_sector + data_sectors + (inplace ? 0 : HYBRID_TAIL_SECTORS));
}

static int find_entry(struct resize *r)
{
	struct hybrid_volume_line *entries;
	unsigned int nr, i;
	bool found = false;
	int err;

	err = hybrid_pool_volumes(r->node->pool->name, &entries, &nr);
	if (err)
		return err;
	for (i = 0; i < nr && !found; i++) {
		found = !entries[i].tombstone && !memcmp(entries[i].uuid, r->node->uuid, 16);
		r->entry = entries[i];
	}
	free(entries);
	if (found)
		return 0;
	return hybrid_fail(HYBRID_BADDEV, "see hybridctl scan", "pool %s does not know volume %s",
			   r->node->pool->name, r->node->name);
}

/* Whether a resize suspended it: a device that others suspended is not ours to resume. */
static bool was_cut_short(const struct resize *r)
{
	return r->entry.data_sectors_new || r->entry.data_sectors > r->node->dm.sectors;
}

static int check_running(const struct resize *r)
{
	const struct hybrid_node *node = r->node, *pool = node->pool;

	if (!pool->dm.live || pool->dm.suspended || strcmp(pool->p.status.state, "running"))
		return hybrid_fail(HYBRID_DEGRADED, "see hybridctl status", "pool %s is %s", pool->name,
				   pool->dm.live && !pool->dm.suspended ? pool->p.status.state : "suspended");
	if (node->dm.suspended)
		return was_cut_short(r) ? 0 :
		       hybrid_fail(HYBRID_BUSY, "dmsetup resume it first", "%s is suspended", node->name);
	if (strcmp(node->v.status.state, "running"))
		return hybrid_fail(HYBRID_DEGRADED, "see hybridctl status", "volume %s is %s", node->name,
				   node->v.status.state);
	if (node->v.status.origin_errors)
		return hybrid_fail(HYBRID_REFUSED, "see hybridctl status; deactivate and activate it first",
				   "I/O to the origin of %s failed", node->name);
	return 0;
}

static int check_paired(struct resize *r)
{
	const struct hybrid_node *node = r->node;
	int err;

	if (node->given_up || node->deleted)
		return hybrid_fail(HYBRID_BUSY, "see hybridctl status", "volume %s is being removed from its pool",
				   node->name);
	if (node->active && node->dm.alone)
		return hybrid_fail(HYBRID_DEGRADED, "connect the cache device, and hybridctl activate it",
				   "volume %s runs without its cache, which must record the new size", node->name);
	if (node->member && node->member->ok && node->member->sb.lost && !node->active)
		return hybrid_fail(HYBRID_REFUSED, "see hybridctl status; hybridctl lost lists it",
				   "volume %s has lost data with its cache, and the list would not fit",
				   node->name);
	if (!node->active || !node->dm.live || !node->pool || !node->pool->active)
		return hybrid_fail(HYBRID_BUSY, "hybridctl activate it first: it grows while it is in use",
				   "volume %s is not active", node->name);
	err = find_entry(r);
	if (!err)
		err = check_running(r);
	r->origin = node->below;
	r->origin_sectors = hybrid_devno_sectors(r->origin);
	return err ? err : plan(r, r->entry.inplace, r->entry.data_sector, r->entry.data_sectors);
}

static int check_loss(const struct hybrid_sb *sb)
{
	if (!sb->lost && !(sb->flags & HYBRID_SB_LOSS_UNKNOWN))
		return 0;
	return hybrid_fail(HYBRID_REFUSED,
			   "restore it, then hybridctl lost --acknowledge",
			   "some of the data of %s was lost with its last cache, and the list would not fit",
			   sb->name);
}

static int check_uncached(struct resize *r)
{
	const struct hybrid_node *node = r->node;
	const struct hybrid_member *m = node->member;
	int err = 0;

	if (m && !m->ok)
		return hybrid_fail(HYBRID_BADDEV, hybrid_member_next(m, "see hybridctl scan"),
				   "%s is refused: %s", m->path, m->why);
	if (node->active && (!node->dm.live || node->dm.readonly || node->dm.suspended))
		return hybrid_fail(HYBRID_BUSY, "see hybridctl status", "%s is suspended, or read-only",
				   node->name);
	if (m)
		err = check_loss(&m->sb);
	r->origin = m ? m->devno : node->below;
	r->origin_sectors = m && !m->devno ? m->sectors : hybrid_devno_sectors(r->origin);
	if (err)
		return err;
	return plan(r, !m, data_start(node), m ? m->sb.data_sectors : node->dm.sectors);
}

static int check(struct resize *r)
{
	int err;

	if (r->node->kind == HYBRID_POOL)
		return fail_pool(r->node);
	err = check_owner(r->cl, r->node);
	if (err)
		return err;
	return hybrid_node_uncached(r->node) ? check_uncached(r) : check_paired(r);
}

/* With a cache ------------------------------------------------------------------------ */

static int load_longer(struct resize *r)
{
	struct hybrid_volume_line entry = r->entry;
	char params[HYBRID_PARAMS_MAX];

	entry.data_sectors = r->sectors;
	kernel_params(params, &entry, r->node->pool->dm.devno, r->origin);
	return hybrid_dm_switch(r->node->name, HYBRID_VOLUME_TARGET, r->sectors, params);
}

/*
 * Finds the identity to record for the new size: of the kind that was recorded for the old size,
 * because the user may have been told to rely on that.
 */
static bool find_identity(const struct resize *r, const struct hybrid_device *dev, uint8_t uuid[16])
{
	char identity[HYBRID_PATH_MAX + 64];
	struct hybrid_identities was, now;
	struct hybrid_device old = *dev;
	unsigned int i;

	old.sectors = r->entry.data_sector + r->entry.data_sectors;
	hybrid_device_identities(&old, &was);
	hybrid_device_identities(dev, &now);
	for (i = 0; i < was.nr && i < now.nr; i++) {
		if (!memcmp(was.uuid[i], r->entry.member_uuid, 16)) {
			memcpy(uuid, now.uuid[i], 16);
			return true;
		}
	}
	if (!(r->entry.data_sector ? hybrid_device_own_identity(dev, identity, sizeof(identity)) :
	      hybrid_device_identity(dev, identity, sizeof(identity))))
		return false;
	hybrid_uuid_of_identity(uuid, identity);
	return true;
}

/* An origin in place is recognised by its size, too. */
static int grow_message(const struct resize *r, char message[64])
{
	char path[HYBRID_PATH_MAX], text[HYBRID_UUID_TEXT];
	struct hybrid_device dev;
	uint8_t uuid[16];
	int err;

	snprintf(message, 64, "grow");
	if (!r->entry.inplace)
		return 0;
	err = hybrid_device_open(&dev, hybrid_devno_path(r->origin, path, sizeof(path)), 0);
	if (!err && !find_identity(r, &dev, uuid))
		err = hybrid_fail(HYBRID_BADDEV, "detach it, and create it anew, not in place",
				  "%s cannot be recognised later: it has no file system and no serial number", path);
	hybrid_device_close(&dev);
	if (!err)
		snprintf(message, 64, "grow %s", hybrid_uuid_text(text, uuid));
	return err;
}

/* The present table is good for both sizes: if it is resumed, the volume is as long as before. */
static int grow_paired(struct resize *r)
{
	const char *name = r->node->name;
	char message[64];
	int err = grow_message(r, message);

	if (!err)
		err = survive_suspend();
	if (!err && !r->node->dm.suspended)
		err = hybrid_dm_suspend(name);
	if (err)
		return err;
	err = hybrid_dm_message(name, message, NULL);
	if (!err)
		err = load_longer(r);
	if (!err)
		return 0;
	if (hybrid_dm_resume(name))
		return hybrid_fail(err, "hybridctl resize it again, once the error above is resolved",
				   "%s is suspended", name);
	return hybrid_fail(err, "resolve the error above, then give the command again",
			   "volume %s still has its old size", name);
}

/* Without a cache --------------------------------------------------------------------- */

static int grow_member(struct resize *r)
{
	struct hybrid_device dev;
	struct hybrid_member now;
	int err;

	err = open_unchanged(&dev, r->node->member, r->node->dm.devno, &now);
	if (!err && now.apart)
		err = hybrid_member_unite(&dev, &now);
	if (!err && now.sb.data_sectors < r->sectors)
		err = hybrid_member_grow(&dev, &now.sb);
	hybrid_device_close(&dev);
	return err;
}

static int grow_uncached(struct resize *r)
{
	const struct hybrid_node *node = r->node;
	char params[HYBRID_PARAMS_MAX];
	int err = node->member ? grow_member(r) : 0;

	if (err || !node->active || node->dm.sectors == r->sectors)
		return err;
	err = survive_suspend();
	return err ? err : hybrid_dm_switch(node->name, HYBRID_LINEAR_TARGET, r->sectors,
					    hybrid_linear_params(params, r->origin, data_start(node)));
}

/* --------------------------------------------------------------------------------------- */

/* Whether both the records and the device have the new size. */
static bool is_done(const struct resize *r)
{
	const struct hybrid_node *node = r->node;

	if (node->active && (node->dm.sectors != r->sectors || node->dm.suspended))
		return false;
	if (!hybrid_node_uncached(node))
		return r->entry.data_sectors == r->sectors && !r->entry.data_sectors_new;
	return !node->member || (node->member->sb.data_sectors == r->sectors && !node->member->apart);
}

static void print_test(const struct resize *r)
{
	const struct hybrid_node *node = r->node;
	char path[HYBRID_PATH_MAX], pool[HYBRID_DEVICE_MAX], params[HYBRID_PARAMS_MAX];
	unsigned long long sectors = r->sectors;

	hybrid_devno_path(r->origin, path, sizeof(path));
	if (hybrid_node_uncached(node)) {
		if (node->member)
			printf("write %s: superblocks with %llu sectors of data\n", node->member->path, sectors);
		if (node->active)
			printf("dmsetup load %s --table '0 %llu %s %s %llu'\ndmsetup resume --nolockfs %s\n",
			       node->name, sectors, HYBRID_LINEAR_TARGET, path,
			       (unsigned long long)data_start(node), node->name);
		return;
	}
	snprintf(pool, sizeof(pool), "/dev/mapper/%s", node->pool->name);
	volume_params(params, &r->entry, pool, path);
	printf("dmsetup suspend --nolockfs %s\ndmsetup message %s 0 grow\n"
	       "dmsetup load %s --table '0 %llu %s %s'\ndmsetup resume --nolockfs %s\n", node->name, node->name,
	       node->name, sectors, HYBRID_VOLUME_TARGET, params, node->name);
}

static int run(struct resize *r)
{
	uint64_t before;
	int err;

	err = hybrid_find_or_fail(&r->inv, r->cl->argv[0], HYBRID_ANY, &r->node);
	if (!err)
		err = check(r);
	if (err)
		return err;
	if (is_done(r)) {
		hybrid_note("volume %s already uses all of its origin: %llu MiB", r->node->name, mib(r->sectors));
		return 0;
	}
	if (r->cl->given[OPT_TEST]) {
		print_test(r);
		return 0;
	}
	before = r->node->active ? r->node->dm.sectors : r->node->member->sb.data_sectors;
	hold_signals();
	err = hybrid_node_uncached(r->node) ? grow_uncached(r) : grow_paired(r);
	if (err)
		return err;
	hybrid_sysfs_uevent(r->origin, "change");
	hybrid_note("volume %s has grown to %llu MiB from %llu MiB", r->node->name, mib(r->sectors), mib(before));
	hybrid_note("the file system can grow next: xfs_growfs, resize2fs, pvresize ...");
	return 0;
}

int command_resize(const struct command_line *cl)
{
	struct resize r = { .cl = cl };
	int err;

	err = lock_with_members(&r.inv);
	if (!err)
		err = run(&r);
	hybrid_inventory_free(&r.inv);
	return err;
}
