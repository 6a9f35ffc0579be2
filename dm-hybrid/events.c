// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reports changes of a pool and its volumes to the administrator: a line in the log, an event
 * of device-mapper (dmsetup wait), and a uevent.
 *
 * An event is a state of the engine (enum hybrid_state) that has begun since the last look.  A
 * work item looks at once if there is a reason.  It also looks every second while the pool runs:
 * a pool without I/O has no tick, but its cache device may be unplugged.  Raising an event may
 * wait for memory, and so for a volume.  So neither the worker nor a holder of hybrid_pool.lock
 * raises it, and only the destructor of a table waits for it.
 */
#include <linux/blkdev.h>
#include <linux/kobject.h>

#include "events.h"
#include "io.h"

#define LOOK_MS		1000

struct event {
	struct dm_table *table;		/* of the pool, or of a volume */
	u32 state;			/* one bit of enum hybrid_state */
};

/* ---- the log -------------------------------------------------------------- */

/* The name by which users know a mapped device, or its number if it is being removed. */
static const char *md_name(struct mapped_device *md, char name[DM_NAME_LEN])
{
	if (dm_copy_name_and_uuid(md, name, NULL))
		strscpy(name, dm_device_name(md), DM_NAME_LEN);
	return name;
}

static noinline void log_failure(struct hybrid_pool *pool)
{
	struct hybrid_pool_status st;
	char name[DM_NAME_LEN];

	hybrid_engine_status(pool->engine, &st);
	DMERR("%s: pool %s failed: %s %pg: up to %llu KiB are lost",
	      dm_device_name(pool->md), md_name(pool->md, name),
	      hybrid_engine_inconsistent(pool->engine) ?
	      "its state in memory is inconsistent, a bug; no metadata are written to" :
	      "no metadata can be written to", pool->bdev, st.dirty_sectors / 2);
}

void hybrid_report_failure(struct hybrid_pool *pool)
{
	if (!hybrid_engine_failed(pool->engine) ||
	    test_and_set_bit(HYBRID_POOL_FAILED, &pool->flags))
		return;
	log_failure(pool);
	hybrid_events_look(pool);
}

/* Logs at most one line with each look: the last retired block, and their number. */
static void log_retired(struct hybrid_pool *pool)
{
	u32 before = pool->retired;
	char name[DM_NAME_LEN];
	u64 sector;

	/* Fewer than before if the pool was loaded again. */
	pool->retired = hybrid_engine_retired(pool->engine, &sector);
	if (pool->retired <= before)
		return;
	DMWARN("%s: pool %s: sector %llu of %pg failed twice: block not used any more (%u so far)",
	       dm_device_name(pool->md), md_name(pool->md, name), sector, pool->bdev,
	       pool->retired);
}

static void log_failing(struct hybrid_pool *pool, const char *name)
{
	struct hybrid_pool_status st;

	hybrid_engine_status(pool->engine, &st);
	DMWARN("%s: pool %s: cache device %pg is failing: %u reads and %u writes failed of late",
	       dm_device_name(pool->md), name, pool->bdev, st.recent_read_errors,
	       st.recent_write_errors);
}

static void log_pool(struct hybrid_pool *pool, u32 state)
{
	const struct hybrid_config *config = hybrid_engine_config(pool->engine);
	const char *dev = dm_device_name(pool->md);
	char name[DM_NAME_LEN];

	md_name(pool->md, name);
	switch (state) {
	case HYBRID_STATE_FAILED:
		hybrid_report_failure(pool);
		break;
	case HYBRID_STATE_DRAINED:
		DMINFO("%s: pool %s is drained", dev, name);
		break;
	case HYBRID_STATE_OVER_WATERMARK:
		DMWARN("%s: pool %s: more than %u%% of cache device %pg is dirty", dev, name,
		       config->high_watermark, pool->bdev);
		break;
	case HYBRID_STATE_ENDURANCE_USED:
		DMWARN("%s: pool %s: endurance of cache device %pg is used up (%u MiB a day)",
		       dev, name, pool->bdev, config->endurance);
		break;
	case HYBRID_STATE_FAILING:
		log_failing(pool, name);
		break;
	}
}

static void log_degraded(struct volume_object *object, const char *name)
{
	struct hybrid_pool *pool = object->pool;
	struct hybrid_volume_status st;

	hybrid_volume_status(pool->engine, object->handle, &st);
	if (st.lost)
		DMERR("%s: volume %s on %pg is degraded: up to %llu KiB are lost with %pg",
		      dm_device_name(object->md), name, object->origin, st.dirty_sectors / 2,
		      pool->bdev);
	else
		DMWARN("%s: volume %s on %pg is degraded: nothing is lost with %pg",
		       dm_device_name(object->md), name, object->origin, pool->bdev);
}

static void log_healthy(struct volume_object *object, const char *name)
{
	struct hybrid_pool *pool = object->pool;
	struct hybrid_volume_status st;

	hybrid_volume_status(pool->engine, object->handle, &st);
	DMINFO("%s: volume %s on %pg is healthy again: cache device %pg is back",
	       dm_device_name(object->md), name, object->origin, pool->bdev);
	if (st.merged)
		DMINFO("%s: volume %s: %llu KiB that only %pg has are there again",
		       dm_device_name(object->md), name, st.merged / 2, pool->bdev);
}

static void log_volume(struct volume_object *object, u32 state)
{
	const char *dev = dm_device_name(object->md);
	char name[DM_NAME_LEN];

	md_name(object->md, name);
	switch (state) {
	case HYBRID_STATE_FAILED:
		log_degraded(object, name);
		break;
	case HYBRID_STATE_DRAINED:
		DMINFO("%s: volume %s on %pg is drained", dev, name, object->origin);
		break;
	case HYBRID_STATE_HEALTHY_AGAIN:
		log_healthy(object, name);
		break;
	}
}

/* ---- finding it ----------------------------------------------------------- */

/* Returns the first state of @now that was not reported, and notes it as reported; or 0. */
static u32 next_state(u32 *reported, u32 now)
{
	u32 state = now & ~*reported;

	state &= -state;
	*reported = (*reported & now) | state;
	return state;
}

static bool pool_event(struct hybrid_pool *pool, struct event *event)
{
	event->state = next_state(&pool->reported, hybrid_engine_state(pool->engine));
	if (!event->state)
		return false;
	event->table = pool->bound->ti->table;
	log_pool(pool, event->state);
	return true;
}

static bool volume_event(struct volume_object *object, struct event *event)
{
	if (!object->bound || !object->handle)
		return false;
	event->state = next_state(&object->reported, hybrid_volume_state(object->handle));
	if (!event->state)
		return false;
	event->table = object->bound->ti->table;
	log_volume(object, event->state);
	return true;
}

/* Caller holds pool->lock, as for all functions above except hybrid_report_failure(). */
static bool next_event(struct hybrid_pool *pool, struct event *event)
{
	struct volume_object *object;

	if (pool_event(pool, event))
		return true;
	list_for_each_entry(object, &pool->volumes, link)
		if (volume_event(object, event))
			return true;
	return false;
}

/* ---- telling -------------------------------------------------------------- */

static const char *event_name(const struct hybrid_pool *pool, const struct event *event)
{
	bool of_pool = dm_table_get_md(event->table) == pool->md;

	switch (event->state) {
	case HYBRID_STATE_FAILED:
		return of_pool ? "failed" : "degraded";
	case HYBRID_STATE_DRAINED:
		return "drained";
	case HYBRID_STATE_OVER_WATERMARK:
		return "high_watermark";
	case HYBRID_STATE_ENDURANCE_USED:
		return "endurance";
	case HYBRID_STATE_FAILING:
		return "failing";
	default:
		return "healthy";
	}
}

/* Sends DM_NAME and DM_UUID, as in device-mapper's own uevents, and variables of ours. */
static void send_uevent(struct hybrid_pool *pool, const struct event *event)
{
	struct mapped_device *md = dm_table_get_md(event->table);
	char name[sizeof("DM_NAME=") + DM_NAME_LEN] = "DM_NAME=";
	char uuid[sizeof("DM_UUID=") + DM_UUID_LEN] = "DM_UUID=";
	char of_pool[sizeof("HYBRID_POOL=") + DM_NAME_LEN] = "HYBRID_POOL=";
	char kind[32];
	char *env[5] = { name, uuid, of_pool, kind, NULL };

	/* One of the devices is being removed: nobody needs the event. */
	if (dm_copy_name_and_uuid(md, name + strlen(name), uuid + strlen(uuid)) ||
	    dm_copy_name_and_uuid(pool->md, of_pool + strlen(of_pool), NULL))
		return;
	snprintf(kind, sizeof(kind), "HYBRID_EVENT=%s", event_name(pool, event));
	kobject_uevent_env(&disk_to_dev(dm_disk(md))->kobj, KOBJ_CHANGE, env);
}

/* The table stays until this returns: hybrid_events_flush(). */
static void tell(struct hybrid_pool *pool, const struct event *event)
{
	unsigned int noio = memalloc_noio_save();

	dm_table_event(event->table);
	send_uevent(pool, event);
	memalloc_noio_restore(noio);
}

/* Was the cache device unplugged, or given up by its driver?  Devices below it do not count. */
static bool device_gone(const struct hybrid_pool *pool)
{
	return test_bit(GD_DEAD, &pool->bdev->bd_disk->state);
}

/* A checkpoint now fails, and with it the pool, as after any failed write of metadata. */
static void give_up_device(struct hybrid_pool *pool)
{
	char name[DM_NAME_LEN];

	DMERR("%s: pool %s: cache device %pg is unplugged", dm_device_name(pool->md),
	      md_name(pool->md, name), pool->bdev);
	hybrid_io_ops.wait_checkpoint(pool->engine);
}

static void look_work(struct work_struct *work)
{
	struct hybrid_pool *pool = container_of(to_delayed_work(work), struct hybrid_pool, look);
	struct event event;

	hybrid_pool_lock(pool);
	if (pool->running && device_gone(pool) && !hybrid_engine_failed(pool->engine))
		give_up_device(pool);
	if (pool->running)
		log_retired(pool);
	while (pool->running && next_event(pool, &event)) {
		hybrid_pool_unlock(pool);
		tell(pool, &event);
		hybrid_pool_lock(pool);
	}
	if (pool->running)
		queue_delayed_work(system_long_wq, &pool->look,
				   round_jiffies_relative(msecs_to_jiffies(LOOK_MS)));
	hybrid_pool_unlock(pool);
}

/* ---- when ----------------------------------------------------------------- */

void hybrid_events_init(struct hybrid_pool *pool)
{
	INIT_DELAYED_WORK(&pool->look, look_work);
}

void hybrid_events_exit(struct hybrid_pool *pool)
{
	cancel_delayed_work_sync(&pool->look);
}

void hybrid_events_look(struct hybrid_pool *pool)
{
	mod_delayed_work(system_long_wq, &pool->look, 0);
}

void hybrid_events_flush(struct hybrid_pool *pool)
{
	flush_delayed_work(&pool->look);
}

void hybrid_events_expect_drained(struct hybrid_pool *pool, u32 *reported)
{
	*reported &= ~HYBRID_STATE_DRAINED;
	hybrid_events_look(pool);
}

void hybrid_events_opened(struct volume_object *object)
{
	object->reported = hybrid_volume_state(object->handle) & ~HYBRID_STATE_HEALTHY_AGAIN;
}
