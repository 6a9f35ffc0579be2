// SPDX-License-Identifier: GPL-2.0-only
/* Messages to pools and volumes; every one is in Documentation/dm-hybrid.rst. */
#include <linux/ctype.h>

#include "calls.h"
#include "events.h"
#include "io.h"
#include "target.h"

static int parse_id(const char *text, u32 *id)
{
	if (kstrtou32(text, 10, id) || *id >= HYBRID_MAX_VOLUMES) {
		DMWARN("volume id must be 0 to %u, not '%s'", HYBRID_MAX_VOLUMES - 1, text);
		return -EINVAL;
	}
	return 0;
}

static int parse_number(const char *what, const char *text, u64 *value)
{
	if (kstrtou64(text, 10, value)) {
		DMWARN("%s must be a number of sectors, not '%s'", what, text);
		return -EINVAL;
	}
	return 0;
}

static int parse_name(const char *what, const char *text, char name[HYBRID_NAME_SIZE])
{
	const char *c;

	for (c = text; *c; c++)
		if (!isascii(*c) || !(isalnum(*c) || strchr("+_.-", *c)))
			break;
	if (*c || c == text || strchr("-.", *text) || strscpy(name, text, HYBRID_NAME_SIZE) < 0) {
		DMWARN("%s must be 1 to %d letters, digits or +_.-, not beginning with - or .",
		       what, HYBRID_NAME_SIZE - 1);
		return -EINVAL;
	}
	return 0;
}

static int parse_uuid(const char *what, const char *text, u8 uuid[HYBRID_UUID_SIZE])
{
	int r = hybrid_uuid_parse(text, uuid);

	if (r)
		DMWARN("%s must be 8-4-4-4-12 hex digits", what);
	return r;
}

static int parse_key(const char *text, u8 key[HYBRID_KEY_SIZE])
{
	char digits[3] = "";
	unsigned int i;

	for (i = 0; text[i] && isxdigit(text[i]); i++)
		;
	if (text[i] || i != 2 * HYBRID_KEY_SIZE) {
		DMWARN("pairing key must be %d hex digits", 2 * HYBRID_KEY_SIZE);
		return -EINVAL;
	}
	for (i = 0; i < HYBRID_KEY_SIZE; i++) {
		memcpy(digits, text + 2 * i, 2);
		if (kstrtou8(digits, 16, &key[i]))
			return -EINVAL;
	}
	return 0;
}

static int parse_mode(const char *text, u32 *mode)
{
	int m = hybrid_mode_parse(text);

	if (m < 0) {
		DMWARN("unknown mode '%s'", text);
		return -EINVAL;
	}
	*mode = m;
	return 0;
}

/* ---- to the pool ---------------------------------------------------------- */

/* Locks a pool that takes messages; otherwise returns -EAGAIN. */
static int lock_running(struct hybrid_pool *pool)
{
	hybrid_pool_lock(pool);
	if (pool->running)
		return 0;
	hybrid_pool_unlock(pool);
	DMWARN("%s: the pool is suspended", dm_device_name(pool->md));
	return -EAGAIN;
}

/* A message to a pool.  min, max: arguments after the name.  run() runs under the lock. */
struct pool_message {
	const char *name;
	unsigned int min, max;
	int (*run)(struct pool_table *pt, unsigned int argc, char **argv);
};

static int create_volume(struct pool_table *pt, unsigned int argc, char **argv)
{
	struct hybrid_volume_info info = { .state = HYBRID_VOLUME_ACTIVE };
	u32 id;
	int r;

	if (parse_id(argv[0], &id) ||
	    parse_uuid("volume uuid", argv[1], info.uuid) ||
	    parse_name("volume name", argv[2], info.name) ||
	    parse_uuid("member uuid", argv[3], info.member_uuid) ||
	    parse_key(argv[4], info.pairing_key) ||
	    parse_number("data sector", argv[5], &info.data_sector) ||
	    parse_number("data sectors", argv[6], &info.data_sectors) ||
	    parse_mode(argv[7], &info.mode) ||
	    parse_number("cutoff", argv[8], &info.cutoff_sectors))
		return -EINVAL;
	if (!info.data_sectors) {
		DMWARN("data sectors must not be 0");
		return -EINVAL;
	}
	if (argc > 9) {
		if (strcmp(argv[9], "inplace")) {
			DMWARN("unknown argument '%s'", argv[9]);
			return -EINVAL;
		}
		info.flags |= HYBRID_VOLUME_INPLACE;
	}
	r = hybrid_call_volume_create(pt->pool, id, &info);
	if (r)
		DMWARN("%s: cannot create volume %u: %s (%d)", dm_device_name(pt->pool->md), id,
		       r == -EEXIST ? "id, uuid or name is in use" :
		       r == -EINVAL ? "name or data area is out of bounds" : "error", r);
	return r;
}

static int delete_volume(struct pool_table *pt, unsigned int argc, char **argv)
{
	bool drop_dirty = argc > 1;
	u32 id;
	int r;

	if (parse_id(argv[0], &id))
		return -EINVAL;
	if (drop_dirty && strcmp(argv[1], "drop_dirty")) {
		DMWARN("unknown argument '%s'", argv[1]);
		return -EINVAL;
	}
	/* A volume in use is deleted while it is suspended, and another table follows. */
	r = hybrid_volume_release(pt->pool, id);
	if (!r)
		r = hybrid_call_volume_delete(pt->pool, id, drop_dirty);
	if (r)
		DMWARN("%s: cannot delete volume %u: %s (%d)", dm_device_name(pt->pool->md), id,
		       r == -EBUSY ? "in use, or dirty" :
		       r == -ENOENT ? "no such volume" : "error", r);
	return r;
}

/* Afterwards the origin may get another superblock; before, a resume opens the volume again. */
static int release_volume(struct pool_table *pt, unsigned int argc, char **argv)
{
	u32 id;
	int r;

	if (parse_id(argv[0], &id))
		return -EINVAL;
	r = hybrid_volume_release(pt->pool, id);
	if (!r && hybrid_volume_opened(pt->pool, id))
		r = -EBUSY;
	if (r)
		DMWARN("%s: cannot release volume %u: %s (%d)", dm_device_name(pt->pool->md), id,
		       r == -EBUSY ? "not suspended, or dirty" : "error", r);
	return r;
}

/* Durable when this returns 0.  Renames the pool's entry, then the origin of an open volume. */
static int rename_volume(struct pool_table *pt, unsigned int argc, char **argv)
{
	char name[HYBRID_NAME_SIZE];
	u32 id;
	int r;

	if (parse_id(argv[0], &id) || parse_name("volume name", argv[1], name))
		return -EINVAL;
	r = hybrid_call_volume_rename(pt->pool, id, name);
	if (r) {
		DMWARN("%s: cannot rename volume %u: %s (%d)", dm_device_name(pt->pool->md), id,
		       r == -EEXIST ? "another volume has that name" :
		       r == -ENOENT ? "no such volume" : "error", r);
		return r;
	}
	r = hybrid_volume_renew(pt->pool, id);
	if (r)
		DMWARN("%s: volume %u has another name, but its origin does not say so (%d)",
		       dm_device_name(pt->pool->md), id, r);
	return r;
}

static int forget_volume(struct pool_table *pt, unsigned int argc, char **argv)
{
	u32 id;
	int r;

	if (parse_id(argv[0], &id))
		return -EINVAL;
	r = hybrid_call_volume_forget(pt->pool, id);
	if (r)
		DMWARN("%s: cannot forget volume %u: %s (%d)", dm_device_name(pt->pool->md), id,
		       r == -EBUSY ? "not deleted" :
		       r == -ENOENT ? "no such volume" : "error", r);
	return r;
}

/* @object: NULL for all volumes; @rate: KiB a second, 0: no limit */
static int drain_pool(struct hybrid_pool *pool, struct volume_object *object, bool on, u32 rate)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_call_drain(pool, object ? object->handle : NULL, on, rate, &acts);
	hybrid_run(pool, &acts);
	hybrid_tick_kick(pool);
	hybrid_events_expect_drained(pool, object ? &object->reported : &pool->reported);
	return 0;
}

/* drain [<KiB a second>] */
static int start_drain(struct hybrid_pool *pool, struct volume_object *object, unsigned int argc,
		       char **argv)
{
	u32 rate = 0;

	if (argc && kstrtou32(argv[0], 10, &rate)) {
		DMWARN("rate must be a number of KiB a second, not '%s'", argv[0]);
		return -EINVAL;
	}
	return drain_pool(pool, object, true, rate);
}

static int drain_all(struct pool_table *pt, unsigned int argc, char **argv)
{
	return start_drain(pt->pool, NULL, argc, argv);
}

static int drain_all_cancel(struct pool_table *pt, unsigned int argc, char **argv)
{
	return drain_pool(pt->pool, NULL, false, 0);
}

static int set_tunable(struct pool_table *pt, unsigned int argc, char **argv)
{
	struct hybrid_config config = *hybrid_engine_config(pt->pool->engine);
	char *error;
	int r = hybrid_tunable_parse(argv[0], argv[1], &config, &error);

	if (r == -ENOENT) {
		DMWARN("unknown tunable '%s'", argv[0]);
		return -EINVAL;
	}
	if (r >= 0) {
		error = hybrid_tunables_contradict(&config);
		r = error ? -EINVAL : 0;
	}
	if (r) {
		DMWARN("%s", error);
		return r;
	}
	r = hybrid_call_configure(pt->pool, &config);
	if (!r)
		r = hybrid_pool_record(pt->pool);
	hybrid_tick_kick(pt->pool);
	return r;
}

/* Durable when this returns 0.  Unlike the other messages it takes the lock itself. */
static int change_policy(struct hybrid_pool *pool, const char *name)
{
	const struct hybrid_policy_type *policy;
	int r;

	/* Without the lock: the module may be on a volume that is suspended while it is held. */
	policy = hybrid_policy_get(name);
	if (!policy) {
		DMWARN("unknown policy '%s', or its module cannot be loaded", name);
		return -EINVAL;
	}
	r = lock_running(pool);
	if (r) {
		hybrid_policy_put(policy);
		return r;
	}
	r = hybrid_pool_set_policy(pool, policy);
	if (r)
		hybrid_policy_put(policy);
	else
		r = hybrid_pool_record(pool);
	hybrid_pool_unlock(pool);
	return r;
}

static int rename_pool(struct pool_table *pt, unsigned int argc, char **argv)
{
	char name[HYBRID_NAME_SIZE];

	if (parse_name("pool name", argv[0], name))
		return -EINVAL;
	return hybrid_pool_rename(pt->pool, name);
}

static int checkpoint(struct pool_table *pt, unsigned int argc, char **argv)
{
	return hybrid_io_ops.wait_checkpoint(pt->pool->engine);
}

static const struct pool_message pool_messages[] = {
	{ "create_volume", 9, 10, create_volume },
	{ "delete_volume", 1, 2, delete_volume },
	{ "release_volume", 1, 1, release_volume },
	{ "rename_volume", 2, 2, rename_volume },
	{ "forget_volume", 1, 1, forget_volume },
	{ "drain", 0, 1, drain_all },
	{ "drain_cancel", 0, 0, drain_all_cancel },
	{ "set", 2, 2, set_tunable },
	{ "rename", 1, 1, rename_pool },
	{ "checkpoint", 0, 0, checkpoint },
};

/* Replies to "volumes".  If the reply does not fit, dm asks again with more room. */
static int list_volumes(struct hybrid_pool *pool, char *result, unsigned int maxlen)
{
	struct hybrid_volume_info info;
	unsigned int sz = 0;
	u64 sectors;
	u32 id, dirty;

	if (!maxlen)
		return -EINVAL;
	*result = '\0';
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		if (hybrid_volume_info(pool->engine, id, &info))
			continue;
		dirty = hybrid_volume_dirty(pool->engine, id, &sectors);
		DMEMIT("%u %s %pU %s %pU %s %llu %llu %llu %s %u %llu %llu\n", id,
		       info.state == HYBRID_VOLUME_TOMBSTONE ? "tombstone" : "active",
		       info.uuid, info.name, info.member_uuid, hybrid_mode_name(info.mode),
		       info.data_sector, info.data_sectors, info.cutoff_sectors,
		       info.flags & HYBRID_VOLUME_INPLACE ? "inplace" : "formatted",
		       dirty, sectors, info.data_sectors_new);
	}
	return 1;
}

static int run_pool_message(struct pool_table *pt, unsigned int argc, char **argv, char *result,
			    unsigned int maxlen)
{
	const struct pool_message *m;
	unsigned int i;

	if (!strcmp(argv[0], "volumes") && argc == 1)
		return list_volumes(pt->pool, result, maxlen);
	for (i = 0; i < ARRAY_SIZE(pool_messages); i++) {
		m = &pool_messages[i];
		if (strcmp(argv[0], m->name))
			continue;
		if (argc - 1 < m->min || argc - 1 > m->max)
			break;
		return m->run(pt, argc - 1, argv + 1);
	}
	DMWARN("unknown message '%s', or wrong number of arguments", argv[0]);
	return -EINVAL;
}

int hybrid_pool_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
			unsigned int maxlen)
{
	struct pool_table *pt = ti->private;
	int r;

	if (argc == 2 && !strcmp(argv[0], "policy"))
		return change_policy(pt->pool, argv[1]);
	r = lock_running(pt->pool);
	if (r)
		return r;
	r = run_pool_message(pt, argc, argv, result, maxlen);
	hybrid_pool_unlock(pt->pool);
	return r;
}

/* ---- to a volume ---------------------------------------------------------- */

/* A setting of a volume: a message with one value.  set() runs under hybrid_pool.lock. */
struct volume_setting {
	const char *name;
	int (*set)(struct volume_object *object, const char *value, struct hybrid_actions *acts);
};

static int set_mode(struct volume_object *object, const char *value, struct hybrid_actions *acts)
{
	u32 mode;

	if (parse_mode(value, &mode))
		return -EINVAL;
	hybrid_call_set_mode(object->pool, object->handle, mode, acts);
	hybrid_events_expect_drained(object->pool, &object->reported);
	return 0;
}

static int set_cutoff(struct volume_object *object, const char *value,
		      struct hybrid_actions *acts)
{
	u64 cutoff;

	if (parse_number("cutoff", value, &cutoff))
		return -EINVAL;
	hybrid_call_set_cutoff(object->pool, object->handle, cutoff, acts);
	return 0;
}

static const struct volume_setting volume_settings[] = {
	{ "mode", set_mode },
	{ "cutoff", set_cutoff },
};

/* Durable when this returns 0. */
static int change_setting(struct volume_object *object, const struct volume_setting *setting,
			  const char *value)
{
	struct hybrid_pool *pool = object->pool;
	struct hybrid_actions acts;
	int r;

	hybrid_actions_init(&acts);
	r = setting->set(object, value, &acts);
	if (r)
		return r;
	hybrid_run(pool, &acts);
	hybrid_tick_kick(pool);
	r = hybrid_io_ops.wait_checkpoint(pool->engine);
	if (r)
		DMWARN("%s: volume %u: %s is in effect, but cannot be recorded (%d)",
		       dm_device_name(object->md), object->id, setting->name, r);
	return r;
}

#define LOST_RUNS 1024	/* in one reply */

/*
 * Replies to "lost" with the runs of granules lost with the pool.  A last line "more" has the
 * cursor to go on from.  If the reply does not fit, dm asks again with more room.
 */
static int list_lost(struct volume_object *object, unsigned int argc, char **argv, char *result,
		     unsigned int maxlen)
{
	unsigned int sz = 0, i;
	u64 cursor = 0, sector;
	u32 count;

	if (!maxlen || (argc && parse_number("cursor", argv[0], &cursor)))
		return -EINVAL;
	*result = '\0';
	for (i = 0; i < LOST_RUNS; i++) {
		if (!hybrid_volume_lost(object->pool->engine, object->handle, &cursor, &sector,
					&count))
			return 1;
		DMEMIT("%llu %u\n", sector, count);
	}
	DMEMIT("more %llu\n", cursor);
	return 1;
}

/* Durable when this returns 0.  A longer table must follow. */
static int grow_volume(struct volume_object *object, const char *member)
{
	u8 member_uuid[HYBRID_UUID_SIZE];
	int r;

	if (member && !object->bound->args.inplace) {
		DMWARN("only an origin in place gets another member uuid");
		return -EINVAL;
	}
	if (member && parse_uuid("member uuid", member, member_uuid))
		return -EINVAL;
	r = hybrid_volume_extend(object, member ? member_uuid : NULL);
	if (r)
		DMWARN("%s: cannot grow volume %u: %s (%d)", dm_device_name(object->md), object->id,
		       r == -EBUSY ? "not suspended, or its last granule is dirty" :
		       r == -ENOSPC ? "its origin is smaller than it" :
		       r == -EINVAL ? "its origin is too large" : "error", r);
	return r;
}

static int run_volume_message(struct volume_object *object, unsigned int argc, char **argv,
			      char *result, unsigned int maxlen)
{
	struct hybrid_pool *pool = object->pool;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(volume_settings); i++)
		if (argc == 2 && !strcmp(argv[0], volume_settings[i].name))
			return change_setting(object, &volume_settings[i], argv[1]);
	if (argc <= 2 && !strcmp(argv[0], "drain"))
		return start_drain(pool, object, argc - 1, argv + 1);
	if (argc == 1 && !strcmp(argv[0], "drain_cancel"))
		return drain_pool(pool, object, false, 0);
	if (argc == 1 && !strcmp(argv[0], "reset_counters")) {
		hybrid_volume_reset_counters(object->handle);
		return 0;
	}
	if (argc <= 2 && !strcmp(argv[0], "grow"))
		return grow_volume(object, argc > 1 ? argv[1] : NULL);
	if (argc <= 2 && !strcmp(argv[0], "lost"))
		return list_lost(object, argc - 1, argv + 1, result, maxlen);
	DMWARN("unknown message '%s', or wrong number of arguments", argv[0]);
	return -EINVAL;
}

int hybrid_volume_message(struct dm_target *ti, unsigned int argc, char **argv, char *result,
			  unsigned int maxlen)
{
	struct volume_table *vt = ti->private;
	struct volume_object *object = vt->object;
	int r;

	hybrid_pool_lock(object->pool);
	if (!object->pool->running || !object->handle || object->bound != vt) {
		DMWARN("%s: volume %u is not loaded, or its pool is suspended",
		       dm_device_name(object->md), object->id);
		r = -EAGAIN;
	} else {
		r = run_volume_message(object, argc, argv, result, maxlen);
	}
	hybrid_pool_unlock(object->pool);
	return r;
}
