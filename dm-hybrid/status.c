// SPDX-License-Identifier: GPL-2.0-only
/* Prints status and tables; every token is in Documentation/dm-hybrid.rst. */
#include "target.h"

static void print_dev(char *buf, size_t len, const struct dm_dev *dev)
{
	snprintf(buf, len, "%u:%u", MAJOR(dev->bdev->bd_dev), MINOR(dev->bdev->bd_dev));
}

/* ---- the pool ------------------------------------------------------------- */

/* Once this is true, the engine stays until the pool is freed. */
static bool pool_loaded(struct hybrid_pool *pool)
{
	/* Pairs with the release in pool_load(). */
	return smp_load_acquire(&pool->loaded);
}

/* The bound table prints current values, any other table the values that it was given. */
static bool is_bound(struct pool_table *pt)
{
	return pool_loaded(pt->pool) && READ_ONCE(pt->pool->bound) == pt;
}

static void policy_now(struct pool_table *pt, char name[HYBRID_POLICY_NAME_SIZE])
{
	if (is_bound(pt))
		hybrid_engine_policy_name(pt->pool->engine, name);
	else
		strscpy(name, pt->policy_name, HYBRID_POLICY_NAME_SIZE);
}

static void pool_info(struct pool_table *pt, char *result, unsigned int maxlen)
{
	struct hybrid_pool *pool = pt->pool;
	char policy[HYBRID_POLICY_NAME_SIZE];
	struct hybrid_pool_status st;
	struct hybrid_config config;
	unsigned int sz = 0, i;
	const char *name;
	u32 value;

	if (!pool_loaded(pool)) {
		DMEMIT("state unloaded");
		return;
	}
	hybrid_engine_status(pool->engine, &st);
	hybrid_engine_policy_name(pool->engine, policy);
	config = *hybrid_engine_config(pool->engine);
	DMEMIT("state %s policy %s block_sectors %u granule_sectors %u",
	       st.failed ? "failed" : "running", policy, st.block_sectors,
	       st.granule_sectors);
	DMEMIT(" blocks %u used %u free %u dirty %u volumes %u open_regions %u",
	       st.blocks, st.used, st.free, st.dirty, st.volumes, st.open_regions);
	DMEMIT(" ram %llu ram_per_block %llu", st.ram,
	       st.blocks ? div_u64(st.ram + st.blocks - 1, st.blocks) : 0);
	DMEMIT(" journal_used %llu journal_blocks %llu journal_writes %llu journal_records %llu",
	       st.journal_used, st.journal_blocks, st.journal_writes, st.journal_records);
	DMEMIT(" checkpoints %llu metadata_writes %llu cache_flushes %llu evictions %llu",
	       st.checkpoints, st.metadata_writes, st.cache_flushes, st.evictions);
	DMEMIT(" errors %llu draining %d cache_written %llu",
	       st.read_errors + st.write_errors + st.flush_errors, st.draining,
	       st.cache_written);
	for (i = 0; (name = hybrid_tunable_print(&config, i, &value)); i++)
		DMEMIT(" %s %u", name, value);
	DMEMIT(" metadata %u read_errors %llu write_errors %llu flush_errors %llu", st.metadata,
	       st.read_errors, st.write_errors, st.flush_errors);
	DMEMIT(" trimmed %llu retired %u", st.trimmed, st.retired);
	DMEMIT(" total_written %llu drain_on %d", st.total_written, st.drain_on);
	DMEMIT(" dirty_sectors %llu", st.dirty_sectors);
	DMEMIT(" failing %d recent_read_errors %u recent_write_errors %u", st.failing,
	       st.recent_read_errors, st.recent_write_errors);
	DMEMIT(" endurance_left %llu endurance_owed %llu", max_t(s64, st.endurance, 0),
	       max_t(s64, -st.endurance, 0));
	DMEMIT(" intent_writes %llu", st.intent_writes);
}

static void pool_table_line(struct pool_table *pt, char *result, unsigned int maxlen)
{
	struct hybrid_pool *pool = pt->pool;
	bool bound = is_bound(pt);
	struct hybrid_config config = bound ? *hybrid_engine_config(pool->engine) :
				      pt->words.config;
	char policy[HYBRID_POLICY_NAME_SIZE];
	unsigned int sz = 0, i;
	const char *name;
	char dev[24];
	u32 value;

	policy_now(pt, policy);
	print_dev(dev, sizeof(dev), pt->dev);
	DMEMIT("%s %u %u", dev, pool->block_sectors,
	       2 * (pt->has_uuid + hweight32(pt->words.given)));
	if (pt->has_uuid)
		DMEMIT(" uuid %pU", pool->uuid);
	for (i = 0; (name = hybrid_tunable_print(&config, i, &value)); i++)
		if (pt->words.given & BIT(i))
			DMEMIT(" %s %u", name, value);
	DMEMIT(" %s 0", policy);
}

static void pool_ima(struct pool_table *pt, char *result, unsigned int maxlen)
{
	char policy[HYBRID_POLICY_NAME_SIZE];
	unsigned int sz = 0;
	char dev[24];

	policy_now(pt, policy);
	print_dev(dev, sizeof(dev), pt->dev);
	DMEMIT_TARGET_NAME_VERSION(pt->ti->type);
	DMEMIT(",cache_device=%s,pool_uuid=%pU,block_size=%u,policy=%s;", dev,
	       pt->pool->uuid, pt->pool->block_sectors, policy);
}

void hybrid_pool_status_print(struct dm_target *ti, status_type_t type, unsigned int flags,
			      char *result, unsigned int maxlen)
{
	struct pool_table *pt = ti->private;

	switch (type) {
	case STATUSTYPE_INFO:
		pool_info(pt, result, maxlen);
		break;
	case STATUSTYPE_TABLE:
		pool_table_line(pt, result, maxlen);
		break;
	case STATUSTYPE_IMA:
		pool_ima(pt, result, maxlen);
		break;
	}
}

/* ---- a volume ------------------------------------------------------------- */

static const char * const counter_names[HYBRID_NR_COUNTERS] = {
	[HYBRID_READ_HITS] = "read_hits",
	[HYBRID_READ_MISSES] = "read_misses",
	[HYBRID_WRITE_HITS] = "write_hits",
	[HYBRID_WRITE_MISSES] = "write_misses",
	[HYBRID_BYPASS_SEQUENTIAL] = "bypass_sequential",
	[HYBRID_BYPASS_POLICY] = "bypass_policy",
	[HYBRID_BYPASS_FULL] = "bypass_full",
	[HYBRID_BYPASS_BUSY] = "bypass_busy",
	[HYBRID_BYPASS_MODE] = "bypass_mode",
	[HYBRID_BYPASS_PARTIAL] = "bypass_partial",
	[HYBRID_FILLS] = "fills",
	[HYBRID_WRITEBACKS] = "writebacks",
	[HYBRID_DISCARDS] = "discards",
	[HYBRID_FLUSHES] = "flushes",
	[HYBRID_ORIGIN_FLUSHES] = "origin_flushes",
	[HYBRID_CACHE_ERRORS] = "cache_errors",
	[HYBRID_ORIGIN_ERRORS] = "origin_errors",
	[HYBRID_BYPASS_ONCE] = "bypass_once",
};

/* Returns false if the volume is not open, or not by this table. */
static bool volume_status(struct volume_table *vt, struct hybrid_volume_status *st)
{
	struct volume_object *object = vt->object;
	bool open;

	mutex_lock(&object->handle_lock);
	open = object->handle && object->bound == vt;
	if (open)
		hybrid_volume_status(object->pool->engine, object->handle, st);
	mutex_unlock(&object->handle_lock);
	return open;
}

static void volume_info(struct volume_table *vt, char *result, unsigned int maxlen)
{
	struct hybrid_volume_status st;
	unsigned int i, sz = 0;

	if (!volume_status(vt, &st)) {
		DMEMIT("state unloaded");
		return;
	}
	DMEMIT("state %s mode %s dirty %u draining %d cached %u",
	       st.degraded ? "degraded" : "running", hybrid_mode_name(st.mode), st.dirty,
	       st.draining, st.cached);
	for (i = 0; i < HYBRID_NR_COUNTERS; i++) {
		/* New keys come last, even after keys that are not counters. */
		if (i == HYBRID_BYPASS_ONCE)
			DMEMIT(" lost %u", st.lost);
		DMEMIT(" %s %llu", counter_names[i], st.counter[i]);
	}
	DMEMIT(" cutoff %llu drain_on %d dirty_sectors %llu", st.cutoff, st.drain_on,
	       st.dirty_sectors);
}

static void volume_table_line(struct volume_table *vt, char *result, unsigned int maxlen)
{
	struct volume_args args = vt->args;
	struct hybrid_volume_status st;
	char pool[24], origin[24];
	unsigned int sz = 0;

	if (volume_status(vt, &st)) {
		args.mode = st.mode;
		args.cutoff = st.cutoff;
	}
	print_dev(pool, sizeof(pool), vt->pool_dev);
	print_dev(origin, sizeof(origin), vt->origin);
	DMEMIT("%s %u %s %d", pool, args.id, origin,
	       args.has_mode + 2 * args.has_cutoff + args.inplace);
	if (args.has_mode)
		DMEMIT(" %s", hybrid_mode_name(args.mode));
	if (args.has_cutoff)
		DMEMIT(" cutoff %llu", args.cutoff);
	if (args.inplace)
		DMEMIT(" inplace");
}

static void volume_ima(struct volume_table *vt, char *result, unsigned int maxlen)
{
	u32 mode = vt->args.has_mode ? vt->args.mode : HYBRID_MODE_WRITETHROUGH;
	struct hybrid_volume_status st;
	char pool[24], origin[24];
	unsigned int sz = 0;

	if (volume_status(vt, &st))
		mode = st.mode;
	print_dev(pool, sizeof(pool), vt->pool_dev);
	print_dev(origin, sizeof(origin), vt->origin);
	DMEMIT_TARGET_NAME_VERSION(vt->ti->type);
	DMEMIT(",pool_device=%s,volume_id=%u,origin_device=%s,mode=%s,inplace=%c;", pool,
	       vt->args.id, origin, hybrid_mode_name(mode), vt->args.inplace ? 'y' : 'n');
}

void hybrid_volume_status_print(struct dm_target *ti, status_type_t type, unsigned int flags,
				char *result, unsigned int maxlen)
{
	struct volume_table *vt = ti->private;

	switch (type) {
	case STATUSTYPE_INFO:
		volume_info(vt, result, maxlen);
		break;
	case STATUSTYPE_TABLE:
		volume_table_line(vt, result, maxlen);
		break;
	case STATUSTYPE_IMA:
		volume_ima(vt, result, maxlen);
		break;
	}
}
