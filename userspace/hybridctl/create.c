// SPDX-License-Identifier: GPL-2.0-or-later
/* create and attach: new pools, new volumes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common.h"
#include "config.h"
#include "create.h"
#include "ephemeral.h"
#include "errors.h"
#include "live.h"
#include "look.h"
#include "mirror.h"
#include "new-volume.h"
#include "owner.h"
#include "progress.h"

#define DISCARD_SECTORS	(1U << 21)	/* per discard: a signal may have to wait for one */

/* --ephemeral: hybrid.conf describes this pool, and all later pools on the device. */
static int find_line(const struct command_line *cl, const struct hybrid_ephemeral **e)
{
	static const int of_line[] = { OPT_POOL, OPT_POLICY, OPT_BLOCK_SIZE, OPT_JOURNAL_SIZE };
	const char *path = cl->value[OPT_CACHE];
	unsigned int i;
	struct stat st;

	*e = NULL;
	if (!cl->given[OPT_EPHEMERAL])
		return 0;
	for (i = 0; i < sizeof(of_line) / sizeof(of_line[0]); i++)
		if (cl->given[of_line[i]])
			return hybrid_fail(HYBRID_USAGE, "leave it out, and see hybrid.conf(5)",
					   "--%s does not go with --ephemeral: hybrid.conf describes that pool",
					   option_table[of_line[i]].name);
	return find_ephemeral(!stat(path, &st) && S_ISBLK(st.st_mode) ? st.st_rdev : 0, path, e);
}

static int pool_name(char *name, size_t len, const struct command_line *cl,
		     const struct hybrid_ephemeral *e)
{
	int n;

	if (e)
		n = snprintf(name, len, "%s", e->pool);
	else if (cl->value[OPT_POOL])
		n = snprintf(name, len, "%s", cl->value[OPT_POOL]);
	else
		n = snprintf(name, len, "%s-pool", cl->argv[0]);
	if (n < 0 || (size_t)n >= len)
		return hybrid_fail(HYBRID_USAGE, "give a shorter one with --pool NAME",
				   "the name of the pool would be too long");
	if (!strcmp(name, cl->argv[0]))
		return hybrid_fail(HYBRID_USAGE, "give another name with --pool",
				   "pool and volume cannot both be %s", name);
	return check_new_name("pool", name, !cl->given[OPT_TEST]);
}

static const char *policy_of(const struct command_line *cl)
{
	return cl->value[OPT_POLICY] ? cl->value[OPT_POLICY] : DEFAULT_POLICY;
}

int new_pool_parse(struct new_pool *np, const struct command_line *cl, const char *name,
		   const char *policy, const struct hybrid_ephemeral *e)
{
	unsigned int flags = HYBRID_OPEN_EXCLUSIVE;
	int r;

	memset(np, 0, sizeof(*np));
	np->cache.fd = -1;
	np->plan.guard = cl->given[OPT_GUARD_MBR];
	r = parse_pool_sizes(cl, &np->plan.block_sectors, &np->plan.journal_blocks);
	if (r)
		return r;
	snprintf(np->plan.name, sizeof(np->plan.name), "%s", name);
	snprintf(np->plan.policy, sizeof(np->plan.policy), "%s", policy);
	if (cl->given[OPT_TEST])
		flags |= HYBRID_OPEN_FILES;
	r = hybrid_device_answers(cl->value[OPT_CACHE]);
	if (!r)
		r = hybrid_device_open(&np->cache, cl->value[OPT_CACHE], flags);
	if (!r && e)
		plan_ephemeral(&np->plan, e, np->cache.sectors);
	else if (!r && !cl->value[OPT_BLOCK_SIZE])
		np->plan.block_sectors = choose_block_size(np->plan.policy, np->cache.sectors,
							   np->plan.journal_blocks);
	return r;
}

static int fail_discard(const struct new_pool *np, int r)
{
	if (!r)
		return hybrid_fail(HYBRID_PARTIAL, "create it again, with or without --discard",
				   "the discard of %s was interrupted", np->cache.path);
	return hybrid_fail(hybrid_exit_of_errno(-r),
			   "check the device and the kernel log, or leave out --discard",
			   "%s: cannot discard: %s", np->cache.path, strerror(-r));
}

static struct amount sectors(uint64_t nr)
{
	return (struct amount){ .blocks = nr, .bytes = nr * 512 };
}

static int discard_blocks(const struct command_line *cl, struct new_pool *np)
{
	const struct hybrid_geometry *g = &np->plan.sb.geometry;
	uint64_t left = (uint64_t)g->nr_blocks << g->block_shift, n;
	uint64_t sector = g->data_sector;
	char name[HYBRID_PATH_MAX + 16];
	bool interrupted = false;
	struct progress p;
	int r = 0;

	snprintf(name, sizeof(name), "discard %s", np->cache.path);
	progress_begin(&p, cl, name, sectors(left));
	while (left && !r && !interrupted) {
		n = left < DISCARD_SECTORS ? left : DISCARD_SECTORS;
		r = hybrid_device_discard(&np->cache, sector, n);
		sector += n;
		left -= n;
		progress_show(&p, sectors(left));
		interrupted = progress_interrupted();
	}
	progress_end(&p, NULL);
	np->discarded = r != -EOPNOTSUPP;
	if (np->discarded)
		return r || interrupted ? fail_discard(np, r) : 0;
	hybrid_warn("%s does not support discards: the pool is made without them", np->cache.path);
	return 0;
}

/*
 * Called before anything of the pool is written.  If the discard is cut short, no older pool on the
 * device may be found whole, with holes in its data.
 */
int new_pool_discard(const struct command_line *cl, struct new_pool *np)
{
	int r;

	r = hybrid_device_reopen(&np->cache, HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE);
	if (r)
		return r;
	hybrid_verbose("wipe and discard cache device %s", np->cache.path);
	np->written = true;
	r = hybrid_member_wipe(&np->cache, &np->plan.sb);
	if (!r)
		r = discard_blocks(cl, np);
	return r;
}

int new_pool_write(struct new_pool *np)
{
	int r;

	r = hybrid_device_reopen(&np->cache, HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE);
	if (r)
		return r;
	hybrid_verbose("format cache device %s", np->cache.path);
	explain_guard(&np->cache, np->plan.guard);
	np->written = true;
	r = hybrid_cache_format(&np->cache, &np->plan);
	if (r)
		hybrid_member_wipe(&np->cache, &np->plan.sb);
	hybrid_device_close(&np->cache);
	return r;
}

void undo_pool_write(struct new_pool *np)
{
	hybrid_verbose("undo: wipe %s", np->cache.path);
	if (!hybrid_device_reopen(&np->cache, HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE))
		hybrid_member_wipe(&np->cache, &np->plan.sb);
	hybrid_device_close(&np->cache);
}

int fail_lost(int r, const struct new_pool *np, const struct new_volume *nv)
{
	char cache[HYBRID_PATH_MAX + 64] = "", origin[HYBRID_PATH_MAX + 64] = "";

	if (np && np->discarded)
		snprintf(cache, sizeof(cache), "all data on %s", np->cache.path);
	else if (np && np->written)
		snprintf(cache, sizeof(cache), "the data on %s in its first %llu MiB and its last MiB",
			 np->cache.path,
			 (unsigned long long)(np->plan.sb.geometry.data_sector + 2047) >> 11);
	if (nv && nv->written)
		snprintf(origin, sizeof(origin), "the data on %s in its first and its last MiB",
			 nv->origin.path);
	if (!cache[0] && !origin[0])
		return r;
	return hybrid_fail(r, "resolve the error above, then try again",
			   "nothing was created; only this is lost: %s%s%s", cache,
			   cache[0] && origin[0] ? ", and " : "", origin);
}

void print_pool_test(const struct new_pool *np, bool discard)
{
	const struct hybrid_sb *sb = &np->plan.sb;
	const struct hybrid_geometry *g = &sb->geometry;

	if (discard)
		printf("discard %s: %llu sectors from sector %llu on\n", np->cache.path,
		       (unsigned long long)g->nr_blocks << g->block_shift,
		       (unsigned long long)g->data_sector);
	printf("write %s: zero the first and the last MiB, root at sector %llu, superblocks at sectors %llu and %llu\n",
	       np->cache.path,
	       (unsigned long long)g->root_sector,
	       (unsigned long long)hybrid_sb_sector(sb->member_sectors, 0),
	       (unsigned long long)hybrid_sb_sector(sb->member_sectors, 1));
	print_guard_test(&np->cache, np->plan.guard);
	printf("# %u blocks of %u KiB, journal %u KiB, data from sector %llu on\n",
	       g->nr_blocks, g->block_sectors / 2, g->journal_blocks * 4,
	       (unsigned long long)g->data_sector);
	print_pool_command(sb, np->cache.path);
}

/* Repeats the checks whose result may have changed while the user was asked. */
static int check_again(struct new_pool *np, struct new_volume *nv)
{
	int r;

	r = check_new_name("pool", np->plan.name, true);
	if (!r && !nv->live)
		r = check_new_name("volume", nv->entry.name, true);
	if (!r)
		r = hybrid_device_reopen(&np->cache, HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE);
	return r ? r : new_volume_check_writable(nv);
}

static bool is_origin_of(const struct new_volume *nv, const struct hybrid_volume_line *entry,
			 struct hybrid_member *m)
{
	return !hybrid_member_read(&nv->origin, m) && m->ok &&
	       !memcmp(m->sb.member_uuid, entry->member_uuid, 16);
}

static bool is_paired(const struct new_volume *nv, const struct hybrid_member *m)
{
	return m->sb.role == HYBRID_ROLE_ORIGIN && !memcmp(m->sb.pool_uuid, nv->plan.pool_uuid, 16);
}

/*
 * The entry is of an attach --live --in-place that was cut short: the volume's device, which may not
 * have its UUID yet, is still linear.
 */
static bool is_linear(const struct new_volume *nv, const struct hybrid_volume_line *entry)
{
	struct hybrid_identities ids;

	if (!nv->live || !nv->entry.inplace || !entry->inplace || entry->dirty)
		return false;
	if (nv->linear.uuid[0])
		return !memcmp(entry->uuid, nv->live_uuid, 16);
	hybrid_device_identities(&nv->origin, &ids);
	return !strcmp(entry->name, nv->entry.name) && hybrid_identities_have(&ids, entry->member_uuid);
}

/* Whether @entry is left from a detach or an attach that was cut short, and in the way of the new one. */
static bool is_stale(const struct new_volume *nv, const struct hybrid_volume_line *entry)
{
	struct hybrid_member m;
	bool mine = is_origin_of(nv, entry, &m);

	if (!entry->tombstone && nv->other)
		return entry->inplace && entry->data_sector == nv->other->data_sector &&
		       hybrid_identities_have(&nv->other->identities, entry->member_uuid);
	/* Another name is refused, and nothing is deleted for it */
	if (!entry->tombstone && mine && m.sb.role == HYBRID_ROLE_DETACHED &&
	    strcmp(m.sb.name, nv->entry.name))
		return false;
	if (!entry->tombstone)
		return is_linear(nv, entry) || (mine && !is_paired(nv, &m));
	return mine || !strcmp(entry->name, nv->entry.name) || !memcmp(entry->uuid, nv->live_uuid, 16);
}

/* Whether an entry of the pool is of an origin in place that looks like this one. */
static int check_no_entry(const char *pool, const struct new_volume *nv, const struct hybrid_identities *ids)
{
	struct hybrid_volume_line *entries, *entry;
	unsigned int nr;
	int r;

	r = hybrid_pool_volumes(pool, &entries, &nr);
	if (r)
		return r;
	for (entry = entries; entry < entries + nr && !r; entry++)
		if (entry->inplace && !entry->tombstone && !is_stale(nv, entry) &&
		    hybrid_identities_have(ids, entry->member_uuid))
			r = hybrid_fail(HYBRID_BUSY, "hybridctl detach that volume first",
					"%s looks like the origin of volume %s of pool %s", nv->origin.path,
					entry->name, pool);
	free(entries);
	return r;
}

/* An origin in place bears no mark of its volume, so a second volume would be taken for the first. */
static int check_no_origin(const struct hybrid_inventory *inv, const struct new_volume *nv)
{
	const struct hybrid_node *node;
	struct hybrid_identities ids;
	int r = 0;

	hybrid_device_identities(&nv->origin, &ids);
	for (node = inv->nodes; node < inv->nodes + inv->nr_nodes && !r; node++)
		if (node->kind == HYBRID_POOL && node->active && node->dm.live)
			r = check_no_entry(node->name, nv, &ids);
	return r;
}

/*
 * A name may be that of a pool or volume that is not active: at the next boot, either could come up
 * under it.  Announced members are enough: no disk is read.  @np: NULL if there is no new pool;
 * @m: the array that is not made yet, else NULL.
 */
static int check_names(const struct new_pool *np, const struct new_volume *nv, const struct mirror *m)
{
	const dev_t devs[] = {
		nv->origin.devno, np ? np->cache.devno : 0, m ? m->leg[1].devno : 0, 0
	};
	struct hybrid_inventory inv;
	int r;

	r = hybrid_inventory_load(&inv, HYBRID_LOAD_ALL | HYBRID_LOAD_CLOSED, NULL, 0);
	if (!r && np)
		r = check_name_unused(&inv, HYBRID_POOL, np->plan.sb.pool_uuid, np->plan.name, devs);
	if (!r)
		r = check_name_unused(&inv, HYBRID_VOLUME, nv->entry.uuid, nv->entry.name, devs);
	if (!r && nv->plan.inplace)
		r = check_no_origin(&inv, nv);
	hybrid_inventory_free(&inv);
	return r;
}

/* Pool and volume belong to this host or, if the host cannot have an id, to nobody. */
static int own_both(struct new_pool *np, struct new_volume *nv)
{
	uint8_t id[16];
	int r = hybrid_config_make_host_id(id);

	if (r && hybrid_config()->id_unclear)
		return r;
	if (r) {
		hybrid_warn("the pool belongs to no host: any host may bring it up");
		return 0;
	}
	memcpy(np->plan.sb.host_id, id, 16);
	memcpy(nv->plan.sb.host_id, id, 16);
	return 0;
}

/*
 * Plans anew, by the present contents of the origin.  Where the user was told that its data stays, it
 * is not formatted, nor the other way round.
 */
static int plan_same(struct new_volume *nv)
{
	bool kept = nv->kept;
	int r = new_volume_plan(nv);

	if (r || nv->kept == kept)
		return r;
	return hybrid_fail(HYBRID_BADDEV, "see its state, then try again", "%s changed since it was checked",
			   nv->origin.path);
}

/*
 * Called under the lock, after the user was asked.  If the volume is up, others may have changed it
 * meanwhile: attach, resize ...; and the name may be taken.  @np: NULL if there is no new pool.
 */
static int plan_again(const struct new_pool *np, struct new_volume *nv)
{
	int r = nv->live ? live_find(nv) : check_new_name("volume", nv->entry.name, true);

	if (!r)
		r = plan_same(nv);
	return r ? r : check_names(np, nv, NULL);
}

/*
 * The steps that change something, and their undoing in reverse:
 * 1. format the cache device  2. format the origin  3. bring up the pool
 * 4. enter the volume in it and bring it up
 */
static int make_both(struct new_pool *np, struct new_volume *nv)
{
	int r;

	r = lock_tools();
	if (!r)
		r = check_again(np, nv);
	if (!r)
		r = plan_again(np, nv);
	if (!r)
		r = own_both(np, nv);
	if (r)
		return r;
	hold_signals();
	r = new_pool_write(np);
	if (r)
		return r;
	r = new_volume_write(nv);
	if (r)
		goto undo_cache;
	r = start_pool(&np->plan.sb, np->cache.devno, &nv->pool);
	if (r)
		goto undo_origin;
	nv->pool_name = np->plan.name;
	r = new_volume_start(nv);
	if (r)
		goto undo_pool;
	return 0;

undo_pool:
	hybrid_dm_remove(np->plan.name);
undo_origin:
	undo_volume_write(nv);
undo_cache:
	undo_pool_write(np);
	return r;
}

/* @m: the array of two cache devices, else NULL. */
static int plan_both(struct new_pool *np, struct new_volume *nv, const struct mirror *m,
		     const struct command_line *cl)
{
	const struct hybrid_device *devs[3] = { &np->cache };
	unsigned int nr = 1;
	int r;

	r = hybrid_cache_plan(m ? mirror_smaller(m, &np->cache) : &np->cache, &np->plan);
	if (r)
		return r;
	nv->plan.granule_sectors = np->plan.sb.geometry.granule_sectors;
	memcpy(nv->plan.pool_uuid, np->plan.sb.pool_uuid, 16);
	nv->pool_name = np->plan.name;
	nv->fast = np->cache.devno;
	nv->cache = np->cache.devno;
	r = new_volume_plan(nv);
	if (!r && !cl->given[OPT_TEST])
		r = check_names(np, nv, m);
	if (r)
		return r;
	if (m)
		devs[nr++] = &m->leg[1];
	if (!nv->plan.inplace && !nv->kept)
		devs[nr++] = &nv->origin;
	r = check_owners_of(devs, nr);
	return r ? r : confirm_format(cl, devs, nr);
}

/* The array is somewhat smaller than its legs. */
static int plan_on_mirror(struct mirror *m, struct new_pool *np, struct new_volume *nv)
{
	int r = mirror_make(m, &np->cache);

	if (r)
		return r;
	r = hybrid_cache_plan(&np->cache, &np->plan);
	nv->plan.granule_sectors = np->plan.sb.geometry.granule_sectors;
	memcpy(nv->plan.pool_uuid, np->plan.sb.pool_uuid, 16);
	nv->fast = np->cache.devno;
	nv->cache = np->cache.devno;
	return r ? r : plan_same(nv);
}

/* @disk: NULL, or for create_check(). */
static int create_with_cache(const struct command_line *cl, const struct other_cache *other,
			     const char *disk)
{
	const char *origin = disk ? disk : cl->value[OPT_ORIGIN];
	const struct hybrid_ephemeral *e;
	char name[HYBRID_NAME_SIZE];
	struct mirror mirror = MIRROR_NONE, *m = cl->nr_caches == 2 ? &mirror : NULL;
	struct new_volume nv;
	struct new_pool np;
	int r = 0;

	if (m && cl->given[OPT_EPHEMERAL])
		return hybrid_fail(HYBRID_USAGE, "give one device",
				   "--ephemeral takes only one --cache: a device that comes up blank needs no second copy");
	if (origin)
		r = hybrid_devices_distinct(cl->value[OPT_CACHE], origin, cl->given[OPT_FORCE]);
	if (!r)
		r = find_line(cl, &e);
	if (!r)
		r = pool_name(name, sizeof(name), cl, e);
	if (!r && m)
		r = mirror_parse(m, cl, origin, name);
	if (!r) {
		r = new_pool_parse(&np, cl, name, policy_of(cl), e);
		if (r)
			mirror_close(&mirror);
	}
	if (r)
		return r;
	r = new_volume_parse(&nv, cl, cl->argv[0]);
	nv.other = other;
	if (!r && !cl->given[OPT_TEST])
		r = hybrid_dm_check(true);
	if (!r)
		r = check_policy(np.plan.policy, cl->given[OPT_TEST]);
	if (!r)
		r = plan_both(&np, &nv, m, cl);
	if (r)
		goto out;
	if (cl->given[OPT_TEST]) {
		if (m)
			mirror_print_test(m);
		print_pool_test(&np, cl->given[OPT_DISCARD]);
		print_volume_test(&nv);
		goto out;
	}
	/* Without the lock: other commands might wait long. */
	if (m || disk || cl->given[OPT_DISCARD])
		r = check_again(&np, &nv);
	if (disk)
		goto out;
	if (!r && m)
		r = plan_on_mirror(m, &np, &nv);
	if (!r && cl->given[OPT_DISCARD])
		r = new_pool_discard(cl, &np);
	if (!r)
		r = make_both(&np, &nv);
	hybrid_device_close(&np.cache);
	if (r && m)
		mirror_undo(m);
	if (r)
		fail_lost(r, m ? NULL : &np, &nv);
	else
		hybrid_note("pool %s and volume %s are active: /dev/mapper/%s", np.plan.name,
			    nv.entry.name, nv.entry.name);
out:
	hybrid_device_close(&np.cache);
	mirror_close(&mirror);
	new_volume_close(&nv);
	return r;
}

/* attach ------------------------------------------------------------------- */

static int find_pool(struct hybrid_inventory *inv, const char *name, struct new_volume *nv)
{
	struct hybrid_node *pool;
	int r;

	r = hybrid_find_active(inv, name, 1U << HYBRID_POOL, &pool);
	if (r)
		return r;
	if (pool->dm.suspended)
		return hybrid_fail(HYBRID_BUSY, "dmsetup resume it first", "%s is suspended", pool->name);
	if (strcmp(pool->p.status.state, "running"))
		return hybrid_fail(HYBRID_DEGRADED, "see hybridctl status",
				   "pool %s is %s: no volume can be added to it", pool->name,
				   pool->dm.live ? pool->p.status.state : "without a table");
	nv->pool_name = pool->name;
	nv->pool = pool->dm.devno;
	nv->fast = nv->pool;
	nv->cache = pool->below;
	nv->plan.granule_sectors = pool->p.status.granule_sectors;
	memcpy(nv->plan.pool_uuid, pool->uuid, 16);
	return 0;
}

/* The cache device is in use by its pool: compare with the device below the pool. */
static int check_not_cache(struct hybrid_inventory *inv, const struct new_volume *nv,
			   const struct command_line *cl)
{
	struct hybrid_node *pool = hybrid_find(inv, nv->pool_name, 1U << HYBRID_POOL);
	char path[HYBRID_PATH_MAX];

	return hybrid_devices_distinct(hybrid_node_device(pool, path, sizeof(path)),
				       nv->disk ? nv->disk : nv->origin.path, cl->given[OPT_FORCE]);
}

/*
 * The entry is of an attach that was cut short, of which the origin does not know.  Its dirty data
 * is from an older life of the volume, and only the user may give it up.
 */
static int check_stale(const struct new_volume *nv, const struct hybrid_volume_line *entry)
{
	if (entry->dirty)
		return hybrid_fail(HYBRID_BUSY, "hybridctl detach --drop-dirty gives that data up",
				   "pool %s has dirty data of volume %s, whose origin no longer uses the pool",
				   nv->pool_name, entry->name);
	return 0;
}

static int fail_unmarked(const struct new_volume *nv, const struct hybrid_volume_line *entry)
{
	char next[192], uuid[HYBRID_UUID_TEXT];

	snprintf(next, sizeof(next),
		 "connect it, and hybridctl activate the pool; or choose another name; or, if it is gone for good, hybridctl detach --drop-dirty %s",
		 hybrid_uuid_text(uuid, entry->uuid));
	return hybrid_fail(HYBRID_BUSY, next,
			   "pool %s had a volume %s, whose origin is not marked as detached yet",
			   nv->pool_name, entry->name);
}

/*
 * The device given may be a copy of the entry's origin, from a time when that had no cache.
 * Announced members are enough: no disk is read under the lock.
 */
static int check_no_copy(const struct new_volume *nv, const struct hybrid_volume_line *entry)
{
	const struct hybrid_member *m;
	struct hybrid_inventory inv;
	int r = hybrid_inventory_load(&inv, HYBRID_LOAD_KNOWN, NULL, 0);

	for (m = inv.members; m < inv.members + inv.nr_members && !r; m++)
		if (m->devno != nv->origin.devno && is_paired(nv, m) &&
		    !memcmp(m->sb.member_uuid, entry->member_uuid, 16))
			r = hybrid_fail(HYBRID_BADDEV, "disconnect the copy, or hybridctl wipe it",
					"%s looks like a copy of %s, the origin of volume %s of pool %s",
					nv->origin.path, m->path, entry->name, nv->pool_name);
	hybrid_inventory_free(&inv);
	return r;
}

/* Marks the origin as detached, if it is not yet, and frees the id. */
static int end_detach(struct new_volume *nv, const struct hybrid_volume_line *entry)
{
	struct hybrid_volume_settings next;
	struct hybrid_member m;
	int r = entry->tombstone ? 0 : check_stale(nv, entry);

	if (r)
		return r;
	if (!entry->inplace && !is_origin_of(nv, entry, &m))
		return fail_unmarked(nv, entry);
	r = entry->inplace ? 0 : check_no_copy(nv, entry);
	if (r)
		return r;
	if (!entry->inplace && is_paired(nv, &m)) {
		next = settings_of(entry);
		r = new_volume_check_writable(nv);
		if (!r)
			r = hybrid_member_mark_detached(&nv->origin, &next);
	}
	return r ? r : forget_entry(nv->pool_name, entry->id, entry->tombstone);
}

/*
 * Whether the origin is this pool's, and the pool does not know it: an attach was cut short, or a
 * repair lost the entry.  One that lacks newer data is none: accept-loss comes first.
 */
static bool is_unknown(const struct new_volume *nv, const struct hybrid_volume_line *entries,
		       unsigned int nr, const struct hybrid_member *m)
{
	return !nv->entry.inplace && !nv->force && m->ok && is_paired(nv, m) &&
	       !(m->sb.flags & HYBRID_SB_DIRTY) && !strcmp(m->sb.name, nv->entry.name) &&
	       !hybrid_has_entry(entries, nr, &m->sb);
}

/* Makes an origin that its pool does not know one of a volume without a cache. */
static int free_unknown(struct new_volume *nv, const struct hybrid_volume_line *entries,
			unsigned int nr, bool test)
{
	struct hybrid_member m;
	int r;

	if (hybrid_member_read(&nv->origin, &m) || !is_unknown(nv, entries, nr, &m))
		return 0;
	r = check_owner_of(&m);
	if (r)
		return r;
	if (test) {
		printf("write %s: superblocks with role detached\n", nv->origin.path);
		nv->unknown = true;
		return 0;
	}
	r = new_volume_check_writable(nv);
	return r ? r : hybrid_member_mark_detached(&nv->origin, NULL);
}

/* The kernel takes no volume with a name or UUID that an entry has. */
int end_detaches(struct new_volume *nv, bool test)
{
	struct hybrid_volume_line *entries;
	unsigned int nr, i;
	int r;

	r = hybrid_pool_volumes(nv->pool_name, &entries, &nr);
	if (r)
		return r;
	for (i = 0; i < nr && !r; i++) {
		if (!is_stale(nv, &entries[i]))
			continue;
		if (test)
			printf("dmsetup message %s 0 forget_volume %u\n", nv->pool_name, entries[i].id);
		else
			r = end_detach(nv, &entries[i]);
	}
	if (!r)
		r = free_unknown(nv, entries, nr, test);
	free(entries);
	return r;
}

static int make_volume(struct new_volume *nv)
{
	int r;

	r = new_volume_write(nv);
	if (r)
		return r;
	r = new_volume_start(nv);
	if (r)
		undo_volume_write(nv);
	return r;
}

/* Finds the pool as it is now; called again after the user was asked.  Takes the lock. */
static int find_place(struct hybrid_inventory *inv, const struct command_line *cl,
		      const char *pool, struct new_volume *nv)
{
	int r = lock_tools();

	hybrid_inventory_free(inv);
	if (!r)
		r = hybrid_inventory_load(inv, HYBRID_LOAD_ACTIVE, NULL, 0);
	if (!r)
		r = find_pool(inv, pool, nv);
	if (!r)
		r = check_not_cache(inv, nv, cl);
	if (!r)
		r = end_detaches(nv, cl->given[OPT_TEST]);
	if (!r)
		r = choose_volume_id(nv->pool_name, nv->entry.name, &nv->entry.id);
	return r;
}

/* Looks at the contents of the origin, and asks whether they may be lost: without the lock. */
static int plan_volume(const struct command_line *cl, struct new_volume *nv)
{
	const struct hybrid_device *devs[] = { &nv->origin };
	int r = new_volume_plan(nv);

	if (!r)
		r = check_names(NULL, nv, NULL);
	if (r || nv->plan.inplace || nv->kept)
		return r;
	r = check_owners_of(devs, 1);
	return r ? r : confirm_format(cl, devs, 1);
}

/* @disk: NULL, or for create_check(). */
static int attach(const struct command_line *cl, const char *pool, const char *name,
		  const struct other_cache *other, const char *disk)
{
	struct hybrid_inventory inv = {};
	struct new_volume nv;
	uint8_t owner[16];
	int r;

	r = new_volume_parse(&nv, cl, name);
	nv.other = other;
	nv.disk = disk;
	if (!r)
		r = hybrid_dm_check(true);
	if (!r)
		r = find_place(&inv, cl, pool, &nv);
	unlock_tools();
	if (!r)
		owner_of_active(hybrid_find(&inv, pool, 1U << HYBRID_POOL), owner);
	if (!r)
		r = plan_volume(cl, &nv);
	if (r)
		goto out;
	if (cl->given[OPT_TEST]) {
		print_volume_test(&nv);
		goto out;
	}
	if (disk) {
		r = new_volume_check_writable(&nv);
		goto out;
	}
	r = find_place(&inv, cl, pool, &nv);
	if (!r)
		r = plan_again(NULL, &nv);
	if (r)
		goto out;
	memcpy(nv.plan.sb.host_id, owner, 16);
	hold_signals();
	r = make_volume(&nv);
	if (r)
		fail_lost(r, NULL, &nv);
	else
		hybrid_note("volume %s is active%s: /dev/mapper/%s", name,
			    nv.live ? ", and its users were not interrupted" : "", name);
out:
	new_volume_close(&nv);
	hybrid_inventory_free(&inv);
	return r;
}

int command_attach(const struct command_line *cl)
{
	return attach(cl, cl->argv[0], cl->argv[1], NULL, NULL);
}

static int create(const struct command_line *cl, const struct other_cache *other, const char *disk)
{
	static const int pool_only[] = { OPT_BLOCK_SIZE, OPT_POLICY, OPT_JOURNAL_SIZE,
					 OPT_DISCARD };
	unsigned int i;

	if (cl->value[OPT_CACHE])
		return create_with_cache(cl, other, disk);
	if (!cl->value[OPT_POOL])
		return hybrid_fail(HYBRID_USAGE,
				   "give the fast device (--cache) or an active pool (--pool)",
				   "%s has no cache", cl->argv[0]);
	for (i = 0; i < sizeof(pool_only) / sizeof(pool_only[0]); i++)
		if (cl->given[pool_only[i]])
			return hybrid_fail(HYBRID_USAGE, "leave it out, or give --cache",
					   "--%s is chosen when the pool is made",
					   option_table[pool_only[i]].name);
	return attach(cl, cl->value[OPT_POOL], cl->argv[0], other, disk);
}

int create_volume(const struct command_line *cl, const struct other_cache *other)
{
	return create(cl, other, NULL);
}

int create_check(const struct command_line *cl, const char *disk)
{
	return create(cl, NULL, disk);
}

int command_create(const struct command_line *cl)
{
	return create_volume(cl, NULL);
}
