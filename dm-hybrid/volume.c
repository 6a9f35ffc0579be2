// SPDX-License-Identifier: GPL-2.0-only
/* The target hybrid, and the volume objects behind it. */
#include <linux/module.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#include "calls.h"
#include "events.h"
#include "io.h"
#include "target.h"

/* ---- open, close, suspend ------------------------------------------------- */

static bool suspend_step(struct hybrid_pool *pool, void *what, struct hybrid_actions *acts)
{
	return hybrid_call_suspend(pool, what, acts);
}

/* Ends the engine's own I/O to the origin, until resume.  May wait for the origin. */
static void quiesce(struct volume_object *object, struct hybrid_volume *handle)
{
	if (!handle || object->suspended)
		return;
	hybrid_run_until(object->pool, suspend_step, handle);
	hybrid_queue_flush(&object->queue);
	object->suspended = true;
}

/*
 * Open, settle and close wait for the origin, which may never answer.  So they run between
 * origin_wait() and origin_waited(), without pool->lock.  Their caller has the volume to itself
 * from manage() to manage_done(), and calls both under pool->lock.  The pool neither stops nor
 * restarts meanwhile: hybrid_volumes_settle().
 */
static void manage(struct volume_object *object)
{
	struct hybrid_pool *pool = object->pool;

	while (object->managed) {
		hybrid_pool_unlock(pool);
		wait_event(pool->wait, !READ_ONCE(object->managed));
		hybrid_pool_lock(pool);
	}
	WRITE_ONCE(object->managed, true);
	WRITE_ONCE(pool->managed, pool->managed + 1);
}

static void manage_done(struct volume_object *object)
{
	struct hybrid_pool *pool = object->pool;

	WRITE_ONCE(object->managed, false);
	WRITE_ONCE(pool->managed, pool->managed - 1);
	wake_up_all(&pool->wait);
}

/*
 * The same for a caller without a table of the volume: its last table may go while pool->lock
 * is dropped, but the object stays until manage_done_pinned().
 */
static void manage_pinned(struct volume_object *object)
{
	object->pins++;
	manage(object);
}

static void manage_done_pinned(struct volume_object *object)
{
	WRITE_ONCE(object->pins, object->pins - 1);
	manage_done(object);
}

/* Memory must not wait for a suspended volume here, either.  Returns origin_waited()'s @noio. */
static unsigned int origin_wait(struct hybrid_pool *pool)
{
	hybrid_pool_unlock(pool);
	return memalloc_noio_save();
}

static void origin_waited(struct hybrid_pool *pool, unsigned int noio)
{
	memalloc_noio_restore(noio);
	hybrid_pool_lock(pool);
}

/*
 * Caller manages the volume; no I/O of users is in flight.  After an error, the last
 * writes to the origin may not be durable there, or not recorded.
 */
static int close_volume(struct volume_object *object)
{
	struct hybrid_volume *handle = object->handle;
	struct hybrid_pool *pool = object->pool;
	unsigned int noio;
	int r;

	if (!handle)
		return 0;
	mutex_lock(&object->handle_lock);
	object->handle = NULL;
	mutex_unlock(&object->handle_lock);
	noio = origin_wait(pool);
	quiesce(object, handle);
	r = hybrid_call_close(object, handle);
	origin_waited(pool, noio);
	/* A failed or suspended pool cannot: the flag that stays only errs on the safe side. */
	if (r && pool->running && !hybrid_engine_failed(pool->engine))
		DMWARN("%s: volume %u: cannot mark the origin clean (%d)",
		       dm_device_name(object->md), object->id, r);
	return r;
}

static u32 device_traits(const struct volume_object *object)
{
	struct block_device *origin = object->origin;
	u32 traits = 0;

	if (hybrid_bdev_seeks(origin))
		traits |= HYBRID_ORIGIN_SEEKS;
	if (!bdev_max_discard_sectors(origin))
		traits |= HYBRID_ORIGIN_NO_DISCARD;
	if (hybrid_bdev_emulates_fua(origin))
		traits |= HYBRID_ORIGIN_NO_FUA;
	if (hybrid_bdev_emulates_fua(object->pool->bdev))
		traits |= HYBRID_CACHE_NO_FUA;
	return traits;
}

/* Caller manages the volume. */
static int open_volume(struct volume_object *object, struct volume_table *vt)
{
	struct block_device *bdev = vt->origin->bdev;
	struct hybrid_volume *handle;
	const char *why = "";
	unsigned int noio;
	int r;

	object->origin = bdev;
	object->suspended = false;
	noio = origin_wait(object->pool);
	r = hybrid_call_open(object, bdev_nr_sectors(bdev), &handle, &why);
	if (!r)
		hybrid_call_set_traits(object->pool, handle, device_traits(object));
	origin_waited(object->pool, noio);
	if (r) {
		DMERR("%s: cannot open volume %u on %pg: %s (%d)",
		      dm_device_name(object->md), object->id, bdev, why, r);
		return r;
	}
	WRITE_ONCE(object->flush_failed, false);
	mutex_lock(&object->handle_lock);
	object->handle = handle;
	mutex_unlock(&object->handle_lock);
	return 0;
}

/*
 * Returns NULL, or why the table may not use the volume's entry.  A table that opened the volume
 * (@opened) may be resumed although the volume has grown since.
 */
static char *entry_mismatch(const struct volume_table *vt, const struct hybrid_volume_info *info,
			    bool opened)
{
	u64 length = hybrid_volume_length(info, bdev_nr_sectors(vt->origin->bdev));
	bool inplace = info->flags & HYBRID_VOLUME_INPLACE;

	if (info->state != HYBRID_VOLUME_ACTIVE)
		return "Volume was deleted";
	if (opened ? vt->ti->len > length : vt->ti->len != length)
		return "Length of the table is not the size of the volume";
	if (inplace && !vt->args.inplace)
		return "Volume is in place, but the table does not say so";
	if (!inplace && vt->args.inplace)
		return "Volume is not in place";
	if (info->data_sector + info->data_sectors > bdev_nr_sectors(vt->origin->bdev))
		return "Origin is smaller than the volume";
	return NULL;
}

/* Applies the table's mode and cutoff to the volume, once; makes them durable if they are new. */
static void apply_args(struct volume_object *object, struct volume_table *vt,
		       const struct hybrid_volume_info *info)
{
	struct hybrid_pool *pool = object->pool;
	bool new = (vt->args.has_mode && vt->args.mode != info->mode) ||
		   (vt->args.has_cutoff && vt->args.cutoff != info->cutoff_sectors);
	struct hybrid_actions acts;
	int r = 0;

	if (vt->applied)
		return;
	hybrid_actions_init(&acts);
	if (vt->args.has_mode)
		hybrid_call_set_mode(pool, object->handle, vt->args.mode, &acts);
	if (vt->args.has_cutoff)
		hybrid_call_set_cutoff(pool, object->handle, vt->args.cutoff, &acts);
	hybrid_run(pool, &acts);
	vt->applied = true;
	if (new)
		r = hybrid_io_ops.wait_checkpoint(pool->engine);
	if (r)
		DMWARN("%s: cannot record mode and cutoff of volume %u (%d)",
		       dm_device_name(object->md), object->id, r);
}

/* Caller manages the volume. */
static int bind_volume(struct volume_object *object, struct volume_table *vt)
{
	struct hybrid_pool *pool = object->pool;
	const char *name = dm_device_name(object->md);
	struct hybrid_volume_info info;
	bool opened = false;
	char *error;
	int r;

	if (!pool->running) {
		DMERR("%s: pool %s is not loaded, or is suspended", name,
		      dm_device_name(pool->md));
		return -EAGAIN;
	}
	r = hybrid_volume_info(pool->engine, object->id, &info);
	error = r ? "No such volume in the pool" :
		    entry_mismatch(vt, &info, object->handle && vt->applied);
	if (error) {
		DMERR("%s: volume %u: %s", name, object->id, error);
		return r ? r : -EINVAL;
	}
	/* A growth that failed half way is completed by an opening, or not at all. */
	if (object->handle && (object->origin->bd_dev != vt->origin->bdev->bd_dev ||
			       vt->ti->len > hybrid_volume_sectors(object->handle)))
		close_volume(object);
	if (!object->handle) {
		r = open_volume(object, vt);
		if (r)
			return r;
		opened = true;
	}
	object->origin = vt->origin->bdev;
	object->bound = vt;
	apply_args(object, vt, &info);
	if (opened)
		hybrid_events_opened(object);
	hybrid_tick_kick(pool);
	return 0;
}

static int volume_preresume(struct dm_target *ti)
{
	struct volume_table *vt = ti->private;
	struct volume_object *object = vt->object;
	int r = 0;

	hybrid_pool_lock(object->pool);
	manage(object);
	vt->in_force = true;
	/* Without a pool all I/O fails, but nobody waits. */
	if (object->pool->dead)
		close_volume(object);
	else
		r = bind_volume(object, vt);
	/* Otherwise md stays suspended. */
	if (!r)
		object->stopped = false;
	manage_done(object);
	hybrid_pool_unlock(object->pool);
	return r;
}

static void volume_resume(struct dm_target *ti)
{
	struct volume_table *vt = ti->private;
	struct volume_object *object = vt->object;
	struct hybrid_actions acts;

	if (!object->handle || !object->suspended)
		return;
	object->suspended = false;
	hybrid_actions_init(&acts);
	hybrid_call_resume(object->pool, object->handle, &acts);
	hybrid_run(object->pool, &acts);
	hybrid_tick_kick(object->pool);
}

static void volume_postsuspend(struct dm_target *ti)
{
	struct volume_table *vt = ti->private;
	struct volume_object *object = vt->object;

	if (object->bound != vt)
		return;
	quiesce(object, object->handle);
	hybrid_pool_lock(object->pool);
	/* Not if the pool suspended md: it resumes md by itself. */
	object->stopped = dm_suspended(ti);
	hybrid_pool_unlock(object->pool);
}

/* ---- volume objects ------------------------------------------------------- */

static struct volume_object *find_object(struct hybrid_pool *pool, u32 id)
{
	struct volume_object *object;

	list_for_each_entry(object, &pool->volumes, link)
		if (object->id == id)
			return object;
	return NULL;
}

/* Caller manages the volume. */
static int release_volume(struct volume_object *object)
{
	struct hybrid_pool *pool = object->pool;
	struct hybrid_volume_status st;
	unsigned int noio;
	int r;

	if (!object->handle || !object->stopped)
		return 0;
	hybrid_volume_status(pool->engine, object->handle, &st);
	if (st.dirty)
		return 0;
	/* Nothing is lost: the volume can leave the pool, which cannot record that. */
	if (hybrid_engine_failed(pool->engine))
		return close_volume(object);
	/* Its users go on with it: their next flush must report an error of the origin. */
	noio = origin_wait(pool);
	r = hybrid_call_settle(object);
	origin_waited(pool, noio);
	if (!r)
		return close_volume(object);
	DMWARN("%s: volume %u: cannot flush the origin (%d)", dm_device_name(object->md),
	       object->id, r);
	return r;
}

int hybrid_volume_release(struct hybrid_pool *pool, u32 id)
{
	struct volume_object *object = find_object(pool, id);
	int r;

	if (!object)
		return 0;
	manage_pinned(object);
	r = release_volume(object);
	manage_done_pinned(object);
	return r ? r : pool->running ? 0 : -EAGAIN;
}

static bool claim_sb_step(struct hybrid_pool *pool, void *what, struct hybrid_actions *acts)
{
	return hybrid_call_claim_sb(pool, what);
}

/* Caller manages the volume. */
static int renew_volume(struct volume_object *object)
{
	struct hybrid_pool *pool = object->pool;
	struct hybrid_actions acts;
	unsigned int noio;
	int r;

	if (!object->handle)
		return 0;
	noio = origin_wait(pool);
	hybrid_run_until(pool, claim_sb_step, object->handle);
	r = hybrid_call_renew_sb(object);
	hybrid_actions_init(&acts);
	hybrid_call_release_sb(pool, object->handle, &acts);
	hybrid_run(pool, &acts);
	origin_waited(pool, noio);
	return r;
}

int hybrid_volume_renew(struct hybrid_pool *pool, u32 id)
{
	struct volume_object *object = find_object(pool, id);
	int r;

	if (!object)
		return 0;
	manage_pinned(object);
	r = renew_volume(object);
	manage_done_pinned(object);
	return r;
}

int hybrid_volume_extend(struct volume_object *object, const u8 *member_uuid)
{
	struct hybrid_pool *pool = object->pool;
	unsigned int noio;
	int r = -EBUSY;

	manage_pinned(object);
	if (object->handle && object->stopped) {
		noio = origin_wait(pool);
		r = hybrid_call_grow(object, bdev_nr_sectors(object->origin), member_uuid);
		origin_waited(pool, noio);
	}
	manage_done_pinned(object);
	return r;
}

bool hybrid_volume_opened(struct hybrid_pool *pool, u32 id)
{
	struct volume_object *object = find_object(pool, id);

	return object && object->handle;
}

static dev_t md_dev(struct mapped_device *md)
{
	return disk_devt(dm_disk(md));
}

/*
 * A volume on a volume of its own pool would wait for itself: for room, for a job, or
 * while the pool is suspended.  Either of these volumes may get its table first.
 */
static char *stacked(struct hybrid_pool *pool, struct mapped_device *md, dev_t origin)
{
	struct volume_object *object;
	struct volume_table *vt;

	if (md_dev(md) == origin)
		return "Origin is the volume itself";
	list_for_each_entry(object, &pool->volumes, link) {
		if (md_dev(object->md) == origin)
			return "Origin is a volume of the same pool";
		list_for_each_entry(vt, &object->tables, link)
			if (vt->claim.dev == md_dev(md))
				return "Device is the origin of a volume of the same pool";
	}
	return NULL;
}

/* Caller holds pool->lock. */
static int claim_origin(struct dm_target *ti, struct volume_table *vt, struct hybrid_pool *pool)
{
	dev_t origin = vt->origin->bdev->bd_dev;
	char *error = stacked(pool, dm_table_get_md(ti->table), origin);

	vt->claim = (struct hybrid_claim) { .dev = origin, .pool = pool, .id = vt->args.id };
	if (!error)
		error = hybrid_origin_claim(&vt->claim);
	if (!error)
		return 0;
	ti->error = error;
	return -EBUSY;
}

static struct volume_object *alloc_object(struct hybrid_pool *pool, u32 id,
					  struct mapped_device *md)
{
	struct volume_object *object = kzalloc(sizeof(*object), GFP_KERNEL);

	if (!object)
		return NULL;
	if (hybrid_queue_init(&object->queue, pool)) {
		kfree(object);
		return NULL;
	}
	object->pool = pool;
	object->id = id;
	object->md = md;
	INIT_LIST_HEAD(&object->tables);
	mutex_init(&object->handle_lock);
	list_add(&object->link, &pool->volumes);
	return object;
}

/* Join the object of the table's volume, or make it.  Caller holds pool->lock. */
static int join_object(struct dm_target *ti, struct volume_table *vt, struct hybrid_pool *pool)
{
	struct mapped_device *md = dm_table_get_md(ti->table);
	struct volume_object *object = find_object(pool, vt->args.id);
	struct volume_table *other;

	if (object && object->md != md) {
		ti->error = "Volume is in use by another device";
		return -EBUSY;
	}
	if (!object) {
		object = alloc_object(pool, vt->args.id, md);
		if (!object) {
			ti->error = "Cannot allocate the volume";
			return -ENOMEM;
		}
	}
	list_for_each_entry(other, &object->tables, link) {
		if (other->ti->table == ti->table) {
			ti->error = "Volume is in the table twice";
			return -EINVAL;
		}
	}
	list_add_tail(&vt->link, &object->tables);
	vt->object = object;
	return 0;
}

/*
 * If the bound table goes, binds the table that replaced it, or closes the volume.  A table that is
 * only loaded does not count: a table of another target may write to the origin before it.
 */
static void unbind(struct volume_object *object, struct volume_table *vt)
{
	struct volume_table *other;

	if (object->bound != vt)
		return;
	object->bound = NULL;
	list_for_each_entry(other, &object->tables, link) {
		if (other != vt && other->in_force && other->origin->bdev == object->origin) {
			object->bound = other;
			return;
		}
	}
	close_volume(object);
}

static void leave_object(struct volume_table *vt)
{
	struct volume_object *object = vt->object;
	struct hybrid_pool *pool = object->pool;
	bool last;

	hybrid_pool_lock(pool);
	/* Until it is closed, no other device gets the volume. */
	manage(object);
	unbind(object, vt);
	list_del(&vt->link);
	last = list_empty(&object->tables);
	if (last)
		list_del(&object->link);
	manage_done(object);
	hybrid_pool_unlock(pool);
	hybrid_events_flush(pool);
	if (!last)
		return;
	wait_event(pool->wait, !READ_ONCE(object->pins));
	/* Wait until the task that dropped the last pin is done with the object. */
	hybrid_pool_lock(pool);
	hybrid_pool_unlock(pool);
	/* The pool no longer finds the object. */
	if (object->pool_suspended)
		dm_internal_resume(object->md);
	hybrid_queue_flush(&object->queue);
	hybrid_queue_exit(&object->queue);
	mutex_destroy(&object->handle_lock);
	kfree(object);
}

/* ---- the pool's hold on its volumes --------------------------------------- */

/* Pins and returns a volume with pool_suspended == @suspended, and inverts pool_suspended. */
static struct volume_object *pin_next(struct hybrid_pool *pool, bool suspended)
{
	struct volume_object *object;

	hybrid_pool_lock(pool);
	list_for_each_entry(object, &pool->volumes, link) {
		if (object->pool_suspended == suspended) {
			object->pool_suspended = !suspended;
			object->pins++;
			hybrid_pool_unlock(pool);
			return object;
		}
	}
	hybrid_pool_unlock(pool);
	return NULL;
}

static void unpin(struct hybrid_pool *pool, struct volume_object *object)
{
	hybrid_pool_lock(pool);
	WRITE_ONCE(object->pins, object->pins - 1);
	hybrid_pool_unlock(pool);
	wake_up_all(&pool->wait);
}

void hybrid_volumes_settle(struct hybrid_pool *pool)
{
	while (pool->managed) {
		hybrid_pool_unlock(pool);
		wait_event(pool->wait, !READ_ONCE(pool->managed));
		hybrid_pool_lock(pool);
	}
}

/* The volume in use with the lowest id that is not below @id, or NULL.  Caller holds pool->lock. */
static struct volume_object *next_object(struct hybrid_pool *pool, u32 id)
{
	struct volume_object *object, *next = NULL;

	list_for_each_entry(object, &pool->volumes, link)
		if (object->id >= id && (!next || object->id < next->id))
			next = object;
	return next;
}

void hybrid_volumes_wait_for_origins(struct hybrid_pool *pool)
{
	void *block = kmalloc(HYBRID_META_BLOCK_SIZE, GFP_KERNEL);
	struct volume_object *object;
	unsigned int noio;
	u32 id = 0;

	hybrid_pool_lock(pool);
	while (block && (object = next_object(pool, id))) {
		id = object->id + 1;
		manage_pinned(object);
		if (object->handle) {
			noio = origin_wait(pool);
			/* A flush could consume an error that a flush of the volume must report. */
			hybrid_read_block(object->origin, 0, block);
			origin_waited(pool, noio);
		}
		manage_done_pinned(object);
	}
	hybrid_pool_unlock(pool);
	kfree(block);
}

void hybrid_volumes_suspend(struct hybrid_pool *pool)
{
	struct volume_object *object;

	while ((object = pin_next(pool, false))) {
		dm_internal_suspend_noflush(object->md);
		unpin(pool, object);
	}
}

void hybrid_volumes_resume(struct hybrid_pool *pool)
{
	struct volume_object *object;

	while ((object = pin_next(pool, true))) {
		dm_internal_resume(object->md);
		unpin(pool, object);
	}
}

/* ---- constructor ---------------------------------------------------------- */

static int check_origin(struct dm_target *ti, struct volume_table *vt, struct hybrid_pool *pool)
{
	struct block_device *bdev = vt->origin->bdev;

	if (bdev->bd_dev == vt->pool_dev->bdev->bd_dev) {
		ti->error = "Origin is a pool or a cache device";
		return -EINVAL;
	}
	if (bdev_is_zoned(bdev)) {
		ti->error = "Zoned devices are not supported";
		return -EINVAL;
	}
	if (bdev_logical_block_size(bdev) > pool->granule_sectors << SECTOR_SHIFT) {
		ti->error = "Logical sector size of the origin is larger than a granule";
		return -EINVAL;
	}
	if (ti->len > bdev_nr_sectors(bdev)) {
		ti->error = "Origin is smaller than the table says";
		return -EINVAL;
	}
	return 0;
}

/* If the pool runs already, reports errors to the user that preresume would only log. */
static int check_entry(struct dm_target *ti, struct volume_table *vt, struct hybrid_pool *pool)
{
	struct hybrid_volume_info info;
	char *error;

	if (!pool->running)
		return 0;
	if (hybrid_volume_info(pool->engine, vt->args.id, &info))
		error = "No such volume in the pool";
	else
		error = entry_mismatch(vt, &info, false);
	if (!error) {
		vt->data_sector = info.data_sector;
		return 0;
	}
	ti->error = error;
	return -EINVAL;
}

static void init_target(struct dm_target *ti, struct block_device *origin)
{
	ti->num_flush_bios = 1;
	ti->flush_supported = true;
	ti->accounts_remapped_io = true;
	ti->limit_swap_bios = true;
	ti->per_io_data_size = sizeof(struct hybrid_bio);
	/* If the origin takes no discards, they only free cache blocks. */
	ti->num_discard_bios = 1;
	ti->discards_supported = true;
	if (bdev_write_zeroes_sectors(origin))
		ti->num_write_zeroes_bios = 1;
}

/* Finds pool and volume, with both devices open. */
static int volume_table_init(struct dm_target *ti, struct volume_table *vt)
{
	struct hybrid_pool *pool = hybrid_pool_get(vt->pool_dev->bdev->bd_dev);
	int r;

	if (!pool) {
		ti->error = "Pool device is not a hybrid-pool";
		return -EINVAL;
	}
	vt->ti = ti;
	r = check_origin(ti, vt, pool);
	if (!r)
		r = dm_set_target_max_io_len(ti, pool->block_sectors);
	if (r)
		goto bad;
	hybrid_pool_lock(pool);
	r = check_entry(ti, vt, pool);
	if (!r)
		r = claim_origin(ti, vt, pool);
	if (!r) {
		r = join_object(ti, vt, pool);
		if (r)
			hybrid_origin_release(&vt->claim);
	}
	hybrid_pool_unlock(pool);
	if (r)
		goto bad;
	init_target(ti, vt->origin->bdev);
	return 0;

bad:
	hybrid_pool_put(pool);
	return r;
}

static int parse_volume(struct dm_arg_set *as, const char **pool, const char **origin,
			struct volume_args *args, char **error)
{
	const char *id;

	*error = "Usage: <pool dev> <volume id> <origin dev> <#feature args> [<arg>]*";
	if (as->argc < 4)
		return -EINVAL;
	*pool = dm_shift_arg(as);
	id = dm_shift_arg(as);
	*origin = dm_shift_arg(as);
	*error = "Volume id must be 0 to 4095";
	if (kstrtou32(id, 10, &args->id) || args->id >= HYBRID_MAX_VOLUMES)
		return -EINVAL;
	return hybrid_volume_parse(as, args, error);
}

static int volume_ctr(struct dm_target *ti, unsigned int argc, char **argv)
{
	struct dm_arg_set as = { .argc = argc, .argv = argv };
	const char *pool_path, *origin_path;
	struct volume_table *vt;
	int r;

	vt = kzalloc(sizeof(*vt), GFP_KERNEL);
	if (!vt) {
		ti->error = "Cannot allocate the table";
		return -ENOMEM;
	}
	r = parse_volume(&as, &pool_path, &origin_path, &vt->args, &ti->error);
	if (r)
		goto bad_args;
	r = dm_get_device(ti, pool_path, dm_table_get_mode(ti->table), &vt->pool_dev);
	if (r) {
		ti->error = "Cannot open the pool device";
		goto bad_args;
	}
	r = dm_get_device(ti, origin_path, HYBRID_OPEN_RW, &vt->origin);
	if (r) {
		ti->error = "Cannot open the origin device";
		goto bad_origin;
	}
	r = volume_table_init(ti, vt);
	if (r)
		goto bad_volume;
	ti->private = vt;
	return 0;

bad_volume:
	dm_put_device(ti, vt->origin);
bad_origin:
	dm_put_device(ti, vt->pool_dev);
bad_args:
	kfree(vt);
	return r;
}

static void volume_dtr(struct dm_target *ti)
{
	struct volume_table *vt = ti->private;
	struct hybrid_pool *pool = vt->object->pool;

	leave_object(vt);
	hybrid_origin_release(&vt->claim);
	hybrid_pool_put(pool);
	dm_put_device(ti, vt->origin);
	dm_put_device(ti, vt->pool_dev);
	kfree(vt);
}

/* ---- limits --------------------------------------------------------------- */

/*
 * Names the origin alone: the engine decides which I/O goes to the cache device,
 * and io_hints stacks its limits.  A cache device without write-zeroes, for one,
 * does not take them from the volume.
 */
static int volume_iterate_devices(struct dm_target *ti, iterate_devices_callout_fn fn,
				  void *data)
{
	struct volume_table *vt = ti->private;

	return fn(ti, vt->origin, vt->data_sector, ti->len, data);
}

/* Largest discard or write-zeroes, in blocks: the task that ends it visits all of them in a row. */
#define MAX_RANGE_BLOCKS	16384

static void volume_io_hints(struct dm_target *ti, struct queue_limits *limits)
{
	struct volume_table *vt = ti->private;
	struct hybrid_pool *pool = vt->object->pool;
	struct block_device *cache = vt->pool_dev->bdev;
	unsigned int zeroes = limits->max_write_zeroes_sectors;
	unsigned int discard = bdev_max_discard_sectors(vt->origin->bdev);
	unsigned int range = min_t(unsigned int, pool->block_sectors * MAX_RANGE_BLOCKS,
				   SZ_1G >> SECTOR_SHIFT);
	u32 block = pool->block_sectors << SECTOR_SHIFT;
	u32 granule = pool->granule_sectors << SECTOR_SHIFT;

	/* The pool device has the limits of the cache device. */
	if (blk_stack_limits(limits, &bdev_get_queue(cache)->limits, 0) < 0)
		DMWARN("%pg: alignment does not fit that of the origin", cache);
	limits->max_write_zeroes_sectors = min(zeroes, range);
	hybrid_stack_stable_writes(ti, limits, cache);
	hybrid_stack_hits(limits, cache);
	discard = discard ? min(discard, range) : range;
	limits->discard_granularity = max(limits->discard_granularity, granule);
	limits->max_discard_sectors = discard;
	limits->max_hw_discard_sectors = discard;
	/* An origin with stripes keeps its own sizes if blocks divide the stripes. */
	if (limits->io_opt < block || limits->io_opt % block) {
		limits->io_min = block;
		limits->io_opt = block;
	}
}

struct target_type hybrid_volume_target = {
	.name = "hybrid",
	.features = DM_TARGET_NOWAIT,
	.version = { HYBRID_TARGET_MAJOR, HYBRID_TARGET_MINOR, HYBRID_FORMAT_VERSION },
	.module = THIS_MODULE,
	.ctr = volume_ctr,
	.dtr = volume_dtr,
	.map = hybrid_map_bio,
	.end_io = hybrid_end_bio,
	.postsuspend = volume_postsuspend,
	.preresume = volume_preresume,
	.resume = volume_resume,
	.status = hybrid_volume_status_print,
	.message = hybrid_volume_message,
	.iterate_devices = volume_iterate_devices,
	.io_hints = volume_io_hints,
};
