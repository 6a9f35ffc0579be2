// SPDX-License-Identifier: GPL-2.0-only
/* The target hybrid-pool, and the pool objects behind it. */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/reboot.h>
#include <linux/slab.h>
#include <linux/suspend.h>

#include "calls.h"
#include "events.h"
#include "io.h"
#include "superblock.h"
#include "target.h"

static LIST_HEAD(pools);
static LIST_HEAD(origins);	/* hybrid_claim: of all volumes' tables, in all pools */
static DEFINE_MUTEX(pools_lock);
static bool hibernating;	/* there is no pool, and none may come; under pools_lock */

/* ---- pool objects --------------------------------------------------------- */

static struct hybrid_pool *find_md(struct mapped_device *md)
{
	struct hybrid_pool *pool;

	list_for_each_entry(pool, &pools, link)
		if (pool->md == md)
			return pool;
	return NULL;
}

static struct hybrid_pool *find_dev(dev_t dev)
{
	struct hybrid_pool *pool;

	list_for_each_entry(pool, &pools, link)
		if (pool->dev == dev)
			return pool;
	return NULL;
}

static struct hybrid_claim *find_claim(dev_t dev)
{
	struct hybrid_claim *claim;

	list_for_each_entry(claim, &origins, link)
		if (claim->dev == dev)
			return claim;
	return NULL;
}

char *hybrid_origin_claim(struct hybrid_claim *claim)
{
	struct hybrid_claim *other;
	char *error = NULL;

	mutex_lock(&pools_lock);
	/* All claims on a device are one volume's: the first stands for them. */
	other = find_claim(claim->dev);
	if (find_dev(claim->dev))
		error = "Origin is a pool or a cache device";
	else if (other && (other->pool != claim->pool || other->id != claim->id))
		error = "Origin is in use by another volume";
	else
		list_add(&claim->link, &origins);
	mutex_unlock(&pools_lock);
	return error;
}

void hybrid_origin_release(struct hybrid_claim *claim)
{
	mutex_lock(&pools_lock);
	list_del(&claim->link);
	mutex_unlock(&pools_lock);
}

struct hybrid_pool *hybrid_pool_get(dev_t dev)
{
	struct mapped_device *md = dm_get_md(dev);
	struct hybrid_pool *pool;

	if (!md)
		return NULL;
	mutex_lock(&pools_lock);
	pool = find_md(md);
	if (pool)
		pool->refs++;
	mutex_unlock(&pools_lock);
	dm_put(md);
	return pool;
}

static void pool_free(struct hybrid_pool *pool)
{
	hybrid_pool_io_exit(pool);
	hybrid_events_exit(pool);
	if (pool->engine)
		hybrid_call_destroy(pool);
	if (pool->policy)
		hybrid_policy_put(pool->policy);
	mutex_destroy(&pool->lock);
	kfree(pool);
}

void hybrid_pool_put(struct hybrid_pool *pool)
{
	bool last;

	mutex_lock(&pools_lock);
	last = !--pool->refs;
	if (last)
		list_del(&pool->link);
	mutex_unlock(&pools_lock);
	if (last)
		pool_free(pool);
}

static struct hybrid_pool *pool_alloc(struct mapped_device *md, struct block_device *bdev,
				      const struct hybrid_sb *sb)
{
	struct hybrid_pool *pool = kzalloc(sizeof(*pool), GFP_KERNEL);
	int r;

	if (!pool)
		return ERR_PTR(-ENOMEM);
	pool->md = md;
	r = hybrid_pool_io_init(pool);
	if (r) {
		kfree(pool);
		return ERR_PTR(r);
	}
	hybrid_events_init(pool);
	mutex_init(&pool->lock);
	INIT_LIST_HEAD(&pool->volumes);
	pool->bdev = bdev;
	pool->dev = bdev->bd_dev;
	pool->block_sectors = sb->geometry.block_sectors;
	pool->granule_sectors = sb->geometry.granule_sectors;
	memcpy(pool->uuid, sb->pool_uuid, HYBRID_UUID_SIZE);
	return pool;
}

/* May a table that maps @dev as @md use the pool object? */
static char *pool_conflict(struct hybrid_pool *pool, struct mapped_device *md, dev_t dev,
			   const struct hybrid_sb *sb)
{
	if (pool->md != md)
		return "Cache device is in use by another pool";
	if (pool->dev != dev)
		return "A pool cannot move to another cache device";
	if (pool->block_sectors != sb->geometry.block_sectors)
		return "The block size of a pool cannot change";
	if (memcmp(pool->uuid, sb->pool_uuid, HYBRID_UUID_SIZE))
		return "Cache device was formatted for another pool meanwhile";
	if (pool->dead)
		return "Volumes of the pool that was removed by force are still there";
	return NULL;
}

/* The pool object for a table; takes a reference. */
static struct hybrid_pool *pool_bind_table(struct mapped_device *md, struct block_device *bdev,
					   const struct hybrid_sb *sb, char **error)
{
	struct hybrid_pool *pool;
	unsigned int noio;

	mutex_lock(&pools_lock);
	/* A holder of a pool's lock may wait for this one: memory must not wait for its volumes. */
	noio = memalloc_noio_save();
	pool = find_dev(bdev->bd_dev);
	if (!pool)
		pool = find_md(md);
	if (pool) {
		*error = pool_conflict(pool, md, bdev->bd_dev, sb);
		if (*error)
			pool = ERR_PTR(-EBUSY);
	} else if (hibernating) {
		*error = "The system hibernates";
		pool = ERR_PTR(-EBUSY);
	} else if (find_claim(bdev->bd_dev)) {
		*error = "Cache device is the origin of a volume";
		pool = ERR_PTR(-EBUSY);
	} else {
		*error = "Cannot allocate the pool";
		pool = pool_alloc(md, bdev, sb);
		if (!IS_ERR(pool))
			list_add(&pool->link, &pools);
	}
	if (!IS_ERR(pool)) {
		pool->refs++;
		pool->tables++;
	}
	memalloc_noio_restore(noio);
	mutex_unlock(&pools_lock);
	return pool;
}

/* ---- constructor ---------------------------------------------------------- */

/* Does the cache device fit the table?  Claims nothing. */
static int check_device(struct dm_target *ti, struct block_device *bdev,
			const struct pool_args *args, const struct hybrid_sb *sb)
{
	if (bdev_is_zoned(bdev)) {
		ti->error = "Zoned devices are not supported";
		return -EINVAL;
	}
	if (bdev_logical_block_size(bdev) > HYBRID_META_BLOCK_SIZE) {
		ti->error = "Logical sector size of the cache device is larger than 4096";
		return -EINVAL;
	}
	if (ti->len > bdev_nr_sectors(bdev)) {
		ti->error = "Cache device is smaller than the table says";
		return -EINVAL;
	}
	if (args->has_uuid && memcmp(args->uuid, sb->pool_uuid, HYBRID_UUID_SIZE)) {
		ti->error = "Cache device belongs to a pool with another uuid";
		return -EINVAL;
	}
	if (args->block_sectors != sb->geometry.block_sectors) {
		ti->error = "Block size is not that of the superblock";
		return -EINVAL;
	}
	return 0;
}

/* Do the tunables in the table fit the recorded values of all others? */
static int check_tunables(struct dm_target *ti, const struct tunable_words *words,
			  const struct hybrid_sb *sb)
{
	struct hybrid_config config;

	hybrid_tunables_recorded(&sb->settings, &config);
	hybrid_tunables_merge(&config, words);
	ti->error = hybrid_tunables_contradict(&config);
	return ti->error ? -EINVAL : 0;
}

/* Fills in a pool table, except for the device and policy, which @pt has. */
static int pool_table_init(struct dm_target *ti, struct pool_table *pt,
			   const struct pool_args *args)
{
	struct hybrid_sb *sb = kmalloc(sizeof(*sb), GFP_KERNEL);
	char why[HYBRID_SB_WHY];
	int r;

	if (!sb) {
		ti->error = "Cannot allocate memory for the superblock";
		return -ENOMEM;
	}
	r = hybrid_cache_sb_read(pt->dev->bdev, sb, &ti->error, why);
	if (r && why[0])
		DMERR("%pg: superblock: %s", pt->dev->bdev, why);
	if (!r)
		r = check_device(ti, pt->dev->bdev, args, sb);
	if (!r)
		r = check_tunables(ti, &args->words, sb);
	if (!r) {
		pt->pool = pool_bind_table(dm_table_get_md(ti->table), pt->dev->bdev, sb,
					   &ti->error);
		r = PTR_ERR_OR_ZERO(pt->pool);
	}
	kfree(sb);
	pt->ti = ti;
	pt->has_uuid = args->has_uuid;
	pt->words = args->words;
	return r;
}

static int pool_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct dm_arg_set as = { .argc = argc, .argv = argv };
	const char *path = dm_shift_arg(&as);
	struct pool_args args;
	struct pool_table *pt;
	int r;

	if (!path) {
		ti->error = "No cache device given";
		return -EINVAL;
	}
	r = hybrid_pool_parse(&as, &args, &ti->error);
	if (r)
		return r;
	pt = kzalloc(sizeof(*pt), GFP_KERNEL);
	if (!pt) {
		ti->error = "Cannot allocate the table";
		return -ENOMEM;
	}
	pt->policy = hybrid_policy_get(args.policy);
	if (!pt->policy) {
		ti->error = "Unknown policy, or its module cannot be loaded";
		r = -EINVAL;
		goto bad_policy;
	}
	strscpy(pt->policy_name, args.policy, sizeof(pt->policy_name));
	r = dm_get_device(ti, path, HYBRID_OPEN_RW, &pt->dev);
	if (r) {
		ti->error = "Cannot open the cache device";
		goto bad_device;
	}
	r = pool_table_init(ti, pt, &args);
	if (r)
		goto bad_pool;
	ti->private = pt;
	return 0;

bad_pool:
	dm_put_device(ti, pt->dev);
bad_device:
	hybrid_policy_put(pt->policy);
bad_policy:
	kfree(pt);
	return r;
}

/*
 * Unbinds a table that goes.  Returns true if it was the last one of a pool that volumes still
 * use: an administrator replaced it by force.  Such a pool is dead from here on.  Takes both
 * locks, so that a constructor joins the pool before its last table goes, or finds it dead.
 */
static bool unbind_table(struct hybrid_pool *pool, struct pool_table *pt)
{
	bool dead;

	hybrid_pool_lock(pool);
	if (pool->bound == pt)
		WRITE_ONCE(pool->bound, NULL);
	mutex_lock(&pools_lock);
	dead = !--pool->tables && pool->refs > 1;
	if (dead) {
		pool->dead = true;
		pool->running = false;
	}
	mutex_unlock(&pools_lock);
	hybrid_pool_unlock(pool);
	return dead;
}

static void pool_dtr(struct dm_target *ti)
{
	struct pool_table *pt = ti->private;
	struct hybrid_pool *pool = pt->pool;

	/* Volumes of a dead pool are suspended; they go on, and fail all I/O. */
	if (unbind_table(pool, pt))
		hybrid_volumes_resume(pool);
	hybrid_events_flush(pool);
	hybrid_pool_put(pool);
	dm_put_device(ti, pt->dev);
	if (!pt->applied)
		hybrid_policy_put(pt->policy);
	kfree(pt);
}

/* ---- suspend and resume --------------------------------------------------- */

int hybrid_pool_set_policy(struct hybrid_pool *pool, const struct hybrid_policy_type *policy)
{
	int r = pool->engine && pool->policy != policy ? hybrid_call_set_policy(pool, policy) : 0;

	if (r) {
		DMERR("%s: cannot use policy %s: %d", dm_device_name(pool->md), policy->name, r);
		return r;
	}
	if (pool->policy)
		hybrid_policy_put(pool->policy);
	pool->policy = policy;
	return 0;
}

/* Apply the table's policy and tunables, once: messages may change them later. */
static int pool_apply(struct hybrid_pool *pool, struct pool_table *pt)
{
	struct hybrid_config config;
	const char *error = NULL;
	int r;

	if (pt->applied)
		return 0;
	if (pool->engine) {
		config = *hybrid_engine_config(pool->engine);
		hybrid_tunables_merge(&config, &pt->words);
		error = hybrid_tunables_contradict(&config);
	}
	if (error) {
		DMERR("%s: %s", dm_device_name(pool->md), error);
		return -EINVAL;
	}
	r = hybrid_pool_set_policy(pool, pt->policy);
	if (r)
		return r;
	pt->applied = true;
	return pool->engine ? hybrid_call_configure(pool, &config) : 0;
}

/* Tunables of a pool that starts: the table's, and the recorded ones for all others. */
static void first_config(struct hybrid_pool *pool, struct pool_table *pt,
			 const struct hybrid_sb *sb, struct hybrid_config *config)
{
	const char *bad = hybrid_tunables_recorded(&sb->settings, config);

	if (bad)
		DMWARN("%s: recorded in the superblock of %pg, and replaced by the default: %s",
		       dm_device_name(pool->md), pool->bdev, bad);
	hybrid_tunables_merge(config, &pt->words);
}

static int pool_load(struct hybrid_pool *pool, struct pool_table *pt)
{
	struct hybrid_sb *sb = kmalloc(sizeof(*sb), GFP_KERNEL);
	char sb_why[HYBRID_SB_WHY] = "";
	struct hybrid_config config;
	const char *why = sb_why;
	char *error = "cannot allocate memory";
	int r = -ENOMEM;

	if (!sb)
		goto out;
	r = hybrid_cache_sb_read(pool->bdev, sb, &error, sb_why);
	if (r)
		goto out;
	if (sb->geometry.block_sectors != pool->block_sectors ||
	    memcmp(sb->pool_uuid, pool->uuid, HYBRID_UUID_SIZE)) {
		error = "superblock changed since the table was loaded";
		r = -EINVAL;
		goto out;
	}
	first_config(pool, pt, sb, &config);
	pool->engine = hybrid_call_create(pool, sb, &hybrid_io_ops, &config, &r);
	if (!pool->engine)
		goto out;
	r = hybrid_call_load(pool, &why);
	if (r) {
		error = "cannot load the metadata";
		hybrid_queue_flush(&pool->queue);
		hybrid_call_destroy(pool);
		pool->engine = NULL;
		goto out;
	}
	strscpy(pool->recorded_policy, sb->policy, sizeof(pool->recorded_policy));
	pool->recorded = sb->settings;
	/* Pairs with the acquire in status.c: the engine is complete. */
	smp_store_release(&pool->loaded, true);
out:
	if (r)
		DMERR("%s: %s: %s (%d)", dm_device_name(pool->md), error, why, r);
	kfree(sb);
	return r;
}

static int pool_restart(struct hybrid_pool *pool)
{
	const char *why = "";
	int r;

	if (!pool->stopped)
		return 0;
	r = hybrid_call_restart(pool, &why);
	if (r && !hybrid_engine_failed(pool->engine)) {
		DMERR("%s: cannot restart: %s (%d)", dm_device_name(pool->md), why, r);
		return r;
	}
	/* P5: I/O that does not need the cache device goes on without it. */
	pool->stopped = false;
	return 0;
}

/* Records the policy and settings in effect and, unless @name is NULL, a new name. */
static int record_sb(struct hybrid_pool *pool, const char *name)
{
	struct hybrid_settings settings = hybrid_settings(hybrid_engine_config(pool->engine));
	int r;

	r = hybrid_engine_failed(pool->engine) ? -EIO :
	    hybrid_cache_sb_record(pool, name, pool->policy->name, &settings);
	if (r) {
		DMWARN("%s: cannot record %s in the superblock: %d", dm_device_name(pool->md),
		       name ? "its name" : "policy and settings", r);
		return r;
	}
	strscpy(pool->recorded_policy, pool->policy->name, sizeof(pool->recorded_policy));
	pool->recorded = settings;
	return 0;
}

int hybrid_pool_record(struct hybrid_pool *pool)
{
	struct hybrid_settings settings = hybrid_settings(hybrid_engine_config(pool->engine));

	if (!strcmp(pool->recorded_policy, pool->policy->name) &&
	    !memcmp(&pool->recorded, &settings, sizeof(settings)))
		return 0;
	return record_sb(pool, NULL);
}

int hybrid_pool_rename(struct hybrid_pool *pool, const char *name)
{
	return record_sb(pool, name);
}

static int pool_preresume(struct dm_target *ti)
{
	struct pool_table *pt = ti->private;
	struct hybrid_pool *pool = pt->pool;
	int r;

	hybrid_pool_lock(pool);
	/* Volumes may be removed while the pool is suspended: wait until they are closed. */
	hybrid_volumes_settle(pool);
	pool->bdev = pt->dev->bdev;
	r = pool_apply(pool, pt);
	if (!r && !pool->loaded) {
		/* The pool has no volumes yet, and needs all of its memory now. */
		memalloc_noio_restore(pool->noio);
		r = pool_load(pool, pt);
		pool->noio = memalloc_noio_save();
	} else if (!r) {
		r = pool_restart(pool);
	}
	if (!r) {
		/* If that fails, the pool has failed, or its next activation has older settings. */
		hybrid_pool_record(pool);
		WRITE_ONCE(pool->bound, pt);
		pool->running = true;
		hybrid_tick_start(pool);
		hybrid_events_look(pool);
	}
	hybrid_pool_unlock(pool);
	return r;
}

static void pool_resume(struct dm_target *ti)
{
	struct pool_table *pt = ti->private;

	hybrid_volumes_resume(pt->pool);
}

static void pool_presuspend(struct dm_target *ti)
{
	struct pool_table *pt = ti->private;
	struct hybrid_pool *pool = pt->pool;

	/* An origin that does not answer must not freeze the other volumes. */
	hybrid_volumes_wait_for_origins(pool);
	/* No volume resumes from here on, and no message gets in. */
	hybrid_pool_lock(pool);
	pool->running = false;
	hybrid_volumes_settle(pool);
	hybrid_pool_unlock(pool);
	hybrid_volumes_suspend(pool);
}

static void pool_presuspend_undo(struct dm_target *ti)
{
	struct pool_table *pt = ti->private;
	struct hybrid_pool *pool = pt->pool;

	hybrid_pool_lock(pool);
	pool->running = pool->loaded && !pool->stopped;
	hybrid_events_look(pool);
	hybrid_pool_unlock(pool);
	hybrid_volumes_resume(pool);
}

static bool stop_step(struct hybrid_pool *pool, void *what, struct hybrid_actions *acts)
{
	return hybrid_call_stop(pool, acts);
}

static void pool_postsuspend(struct dm_target *ti)
{
	struct pool_table *pt = ti->private;
	struct hybrid_pool *pool = pt->pool;

	if (!pool->loaded || pool->stopped)
		return;
	hybrid_run_until(pool, stop_step, NULL);
	hybrid_tick_stop(pool);
	hybrid_queue_flush(&pool->queue);
	pool->stopped = true;
}

/* ---- reboot --------------------------------------------------------------- */

/* A member that does not answer holds up a reboot for this long, at most. */
#define REBOOT_MS	5000

static void reboot_waiter_done(struct hybrid_waiter *w)
{
	complete(&container_of(w, struct hybrid_pool, reboot_waiter)->reboot_done);
}

/* The lock's holder may wait for a member that does not answer. */
static bool lock_before(struct mutex *lock, unsigned long deadline)
{
	while (!mutex_trylock(lock)) {
		if (time_after(jiffies, deadline))
			return false;
		msleep(20);
	}
	return true;
}

/* Lists the pools that have not been asked before, with a reference to each. */
static void reboot_collect(struct list_head *list, unsigned long deadline)
{
	struct hybrid_pool *pool;

	if (!lock_before(&pools_lock, deadline))
		return;
	list_for_each_entry(pool, &pools, link) {
		if (test_bit(HYBRID_POOL_REBOOT, &pool->flags))
			continue;
		pool->refs++;
		list_add_tail(&pool->reboot_link, list);
	}
	mutex_unlock(&pools_lock);
}

static void reboot_start(struct hybrid_pool *pool, unsigned long deadline)
{
	struct hybrid_actions acts;

	if (!lock_before(&pool->lock, deadline))
		return;
	if (pool->loaded && !pool->stopped) {
		set_bit(HYBRID_POOL_REBOOT, &pool->flags);
		pool->reboot_waiter.done = reboot_waiter_done;
		init_completion(&pool->reboot_done);
		hybrid_actions_init(&acts);
		hybrid_call_checkpoint(pool, &pool->reboot_waiter, &acts);
		hybrid_run(pool, &acts);
	}
	mutex_unlock(&pool->lock);
}

/* Returns false if the checkpoint has not ended: the pool keeps its reference. */
static bool reboot_wait(struct hybrid_pool *pool, unsigned long deadline)
{
	long left = max_t(long, deadline - jiffies, 1);

	if (!test_bit(HYBRID_POOL_REBOOT, &pool->flags) ||
	    wait_for_completion_timeout(&pool->reboot_done, left))
		return true;
	DMWARN("%s: the reboot does not wait for it any longer", dm_device_name(pool->md));
	return false;
}

/*
 * Nobody deactivates the volume of a root file system.  A checkpoint of each pool keeps the
 * next boot from taking back the last writes.  Nothing is drained.
 */
static int reboot_notify(struct notifier_block *nb, unsigned long action, void *data)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(REBOOT_MS);
	struct hybrid_pool *pool, *next;
	LIST_HEAD(list);

	reboot_collect(&list, deadline);
	list_for_each_entry(pool, &list, reboot_link)
		reboot_start(pool, deadline);
	list_for_each_entry_safe(pool, next, &list, reboot_link)
		if (reboot_wait(pool, deadline))
			hybrid_pool_put(pool);
	return NOTIFY_DONE;
}

static struct notifier_block reboot_notifier = {
	.notifier_call = reboot_notify,
};

/* ---- hibernation ---------------------------------------------------------- */

/*
 * An initramfs activates pools before it resumes an image.  The image goes on with numbers older
 * than the ones that are on the cache device by then: the next recovery would not believe its
 * records, and would lose the writes that they acknowledged.  So a pool refuses hibernation; and
 * from here until the image is written, or has been resumed, no pool may be made.
 */
static int hibernation_notify(struct notifier_block *nb, unsigned long action, void *data)
{
	struct hybrid_pool *pool;
	int r = 0;

	if (action != PM_HIBERNATION_PREPARE && action != PM_POST_HIBERNATION)
		return NOTIFY_DONE;
	mutex_lock(&pools_lock);
	if (action == PM_HIBERNATION_PREPARE) {
		list_for_each_entry(pool, &pools, link) {
			DMERR("no hibernation while the pool on %u:%u is active: deactivate it",
			      MAJOR(pool->dev), MINOR(pool->dev));
			r = -EBUSY;
		}
	}
	hibernating = action == PM_HIBERNATION_PREPARE && !r;
	mutex_unlock(&pools_lock);
	return notifier_from_errno(r);
}

static struct notifier_block hibernation_notifier = {
	.notifier_call = hibernation_notify,
};

int hybrid_notifiers_init(void)
{
	int r = register_reboot_notifier(&reboot_notifier);

	if (r)
		return r;
	r = register_pm_notifier(&hibernation_notifier);
	if (r)
		unregister_reboot_notifier(&reboot_notifier);
	return r;
}

void hybrid_notifiers_exit(void)
{
	unregister_pm_notifier(&hibernation_notifier);
	unregister_reboot_notifier(&reboot_notifier);
}

/* ---- the rest of the target ----------------------------------------------- */

static int pool_map(struct dm_target *ti, struct bio *bio)
{
	return DM_MAPIO_KILL;
}

static int pool_iterate_devices(struct dm_target *ti, iterate_devices_callout_fn fn, void *data)
{
	struct pool_table *pt = ti->private;

	return fn(ti, pt->dev, 0, ti->len, data);
}

struct target_type hybrid_pool_target = {
	.name = "hybrid-pool",
	/* NOWAIT: for its limits, which volumes stack as the cache device's. */
	.features = DM_TARGET_SINGLETON | DM_TARGET_ALWAYS_WRITEABLE | DM_TARGET_IMMUTABLE |
		    DM_TARGET_NOWAIT,
	.version = { HYBRID_TARGET_MAJOR, HYBRID_TARGET_MINOR, HYBRID_FORMAT_VERSION },
	.module = THIS_MODULE,
	.ctr = pool_ctr,
	.dtr = pool_dtr,
	.map = pool_map,
	.presuspend = pool_presuspend,
	.presuspend_undo = pool_presuspend_undo,
	.postsuspend = pool_postsuspend,
	.preresume = pool_preresume,
	.resume = pool_resume,
	.status = hybrid_pool_status_print,
	.message = hybrid_pool_message,
	.iterate_devices = pool_iterate_devices,
};
