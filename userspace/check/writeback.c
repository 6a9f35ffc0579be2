// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * writeback: drains a pool without the kernel.
 *
 *   1. read the cache device, find the volumes of the other devices, and whether
 *      an origin is missing;
 *   2. let the engine recover the pool and open the volumes, with its writes kept
 *      in memory: if it refuses anything, nothing has been written;
 *   3. if there is anything to do, do the same with real writes; drain, close, stop.
 *
 * The engine writes a granule to its origin, flushes, and records it as clean.  If
 * this is cut anywhere, another run goes on from the records.
 *
 * With --copy-only, metadata stays in memory as in step 2: only data reaches the
 * origins.  On record nothing changes, neither on the cache device nor in the
 * origins' superblocks.  Copied granules are still dirty, and an origin may have the
 * newer data of a dirty granule at any time.  The nonces still match (J9), the flag
 * stays (J10), so that neither is used without the other as if it were whole.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "errors.h"
#include "metadata.h"
#include "offline.h"
#include "progress.h"
#include "ranges.h"

#define SHOW_MS		250
/* Ticks with nothing under way that are enough to record everything that can be recorded */
#define QUIET_TICKS	50

struct target {
	u32 id;
	const struct hybrid_volume_info *info;
	struct hybrid_device origin;
	bool flagged;			/* the origin's dirty flag */
	u32 dirty;			/* blocks */
	struct hybrid_volume *v;
	int error;			/* of its close */
};

struct writeback {
	const struct command_line *cl;
	struct hybrid_device cache;
	struct hybrid_findings findings;
	struct hybrid_metadata md;
	struct hybrid_inventory found;	/* --all */
	struct target *target;
	unsigned int nr;
	struct hybrid_offline *pool;
	struct progress progress;
	struct timespec shown;
	/* When the number of dirty blocks last fell */
	u32 dirty;
	unsigned int leaps, failures;
	char *others;			/* dirty volumes that --volume does not name, as text */
	struct hybrid_ranges unwritten;
	bool unreadable;		/* the metadata, in the end */
};

/* ---- whose origins they are ------------------------------------------------ */

static int read_pool(struct writeback *w)
{
	int r;

	r = hybrid_device_open(&w->cache, w->cl->argv[0],
			       HYBRID_OPEN_EXCLUSIVE | HYBRID_OPEN_FILES);
	if (!r)
		r = hybrid_check_no_part(&w->cache);
	if (r)
		return r;
	w->findings.device = w->cache.path;
	r = hybrid_metadata_read(&w->md, &w->cache, &w->findings);
	if (r == HYBRID_NOMEM)
		return r;
	if (r || hybrid_findings_worst(&w->findings) == HYBRID_DAMAGE)
		return hybrid_findings_fail(&w->findings, "see hybridctl check",
					    "%s cannot be used as it is", w->cache.path);
	w->target = calloc(HYBRID_MAX_VOLUMES, sizeof(*w->target));
	return w->target ? 0 : hybrid_nomem();
}

static int volume_by(const struct writeback *w, const u8 *uuid)
{
	const struct hybrid_volume_info *v;
	u32 id;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		v = &w->md.volume[id];
		if (v->state == HYBRID_VOLUME_ACTIVE && !(v->flags & HYBRID_VOLUME_INPLACE) &&
		    !memcmp(v->uuid, uuid, HYBRID_UUID_SIZE))
			return id;
	}
	return -1;
}

static int fail_foreign(const struct writeback *w, const struct hybrid_device *dev, int r,
			const struct hybrid_member *m)
{
	const char *why = "the pool has no such volume";

	if (r && r != -ENODATA)
		why = strerror(-r);
	else if (r)
		why = "has no dm-hybrid superblock";
	else if (!m->ok)
		why = m->why;
	else if (m->sb.role != HYBRID_ROLE_ORIGIN)
		why = "is not an origin";
	else if (memcmp(m->sb.pool_uuid, w->md.sb.pool_uuid, HYBRID_UUID_SIZE))
		why = "belongs to another pool";
	return hybrid_fail(HYBRID_BADDEV, hybrid_member_next(m, "see hybridctl scan"),
			   "%s is not an origin of pool %s: %s", dev->path, w->md.sb.name, why);
}

/*
 * Finds the volume of an origin; the kernel's other checks come later.  Without a superblock, what
 * looks like a part of an array may be the volume's own data.
 */
static int identify(struct writeback *w, struct target *t)
{
	struct hybrid_member m;
	int r, id = -1;

	r = hybrid_member_read(&t->origin, &m);
	if (!r && m.ok && m.sb.role == HYBRID_ROLE_ORIGIN) {
		id = volume_by(w, m.sb.volume_uuid);
		t->flagged = m.sb.flags & HYBRID_SB_DIRTY;
	} else if (r == -ENODATA) {
		id = hybrid_metadata_inplace(&w->md, &t->origin);
	}
	if (id < 0)
		return fail_foreign(w, &t->origin, r, &m);
	t->id = id;
	t->info = &w->md.volume[id];
	return r ? 0 : hybrid_check_no_part(&t->origin);
}

static struct target *find_target(struct writeback *w, u32 id)
{
	unsigned int i;

	for (i = 0; i < w->nr; i++)
		if (w->target[i].id == id)
			return &w->target[i];
	return NULL;
}

static int check_distinct(struct writeback *w, const char *path)
{
	unsigned int i;
	int r;

	r = hybrid_devices_distinct(w->cache.path, path, true);
	for (i = 0; !r && i < w->nr; i++)
		r = hybrid_devices_distinct(w->target[i].origin.path, path, true);
	return r;
}

static int check_other(struct writeback *w, const struct target *t)
{
	const struct target *other = find_target(w, t->id);

	if (!other)
		return 0;
	return hybrid_fail(HYBRID_BADDEV, "find out which of them is the copy",
			   "%s and %s are both the origin of volume %s", other->origin.path,
			   t->origin.path, t->info->name);
}

static int check_named(const struct writeback *w, const struct target *t)
{
	if (hybrid_volume_named(t->info, w->cl->value[OPT_VOLUME]))
		return 0;
	return hybrid_fail(HYBRID_REFUSED, "name that volume, too, or leave out the origin",
			   "%s is the origin of volume %s, which --volume does not name",
			   t->origin.path, t->info->name);
}

static int add_origin(struct writeback *w, const char *path)
{
	struct target *t;
	int r;

	if (w->nr == HYBRID_MAX_VOLUMES)
		return hybrid_fail(HYBRID_USAGE, NULL, "too many origins");
	t = &w->target[w->nr];
	r = check_distinct(w, path);
	if (!r)
		r = hybrid_device_open(&t->origin, path, HYBRID_OPEN_EXCLUSIVE | HYBRID_OPEN_FILES);
	if (r)
		return r;
	r = identify(w, t);
	if (!r)
		r = check_named(w, t);
	if (!r)
		r = check_other(w, t);
	if (r)
		hybrid_device_close(&t->origin);
	else
		w->nr++;
	return r;
}

/* ---- whether all are there ------------------------------------------------- */

static bool is_missing(struct writeback *w, u32 id)
{
	const struct hybrid_volume_info *v = &w->md.volume[id];

	return v->state == HYBRID_VOLUME_ACTIVE && w->md.usage[id].dirty_granules &&
	       hybrid_volume_named(v, w->cl->value[OPT_VOLUME]) && !find_target(w, id);
}

/* --all: adds the missing origins, on any block device. */
static int search_origins(struct writeback *w)
{
	struct hybrid_member *m;
	int r = 0;
	u32 id;

	for (id = 0; !r && id < HYBRID_MAX_VOLUMES; id++) {
		m = is_missing(w, id) ? hybrid_find_member(&w->found, w->md.volume[id].member_uuid) :
		    NULL;
		if (m && m->ok)
			r = add_origin(w, m->path);
		else if (m)
			hybrid_warn("%s: %s", m->path, m->why);
	}
	return r;
}

static int check_complete(struct writeback *w)
{
	unsigned int missing = 0;
	char size[32];
	u32 id;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		if (!is_missing(w, id))
			continue;
		hybrid_format_size(size, sizeof(size), w->md.usage[id].dirty_granules *
				   w->md.g->granule_sectors * 512, 'h');
		hybrid_warn("volume %s has %s of dirty data, and its origin is not given",
			    w->md.volume[id].name, size);
		missing++;
	}
	if (!missing)
		return 0;
	return hybrid_fail(HYBRID_REFUSED,
			   "give them, or --all to look for them, or --volume NAMES for some only",
			   "origins of %u volume%s of pool %s are missing", missing,
			   missing > 1 ? "s" : "", w->md.sb.name);
}

/* ---- the engine ------------------------------------------------------------ */

static bool wants_json(const struct writeback *w)
{
	return w->cl->given[OPT_JSON] || w->cl->given[OPT_PROGRESS_JSON];
}

static struct json_object *others_json(const struct writeback *w)
{
	struct json_object *array = json_object_new_array(), *o;
	u64 granules;
	u32 id;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		granules = w->md.usage[id].dirty_granules;
		if (!granules ||
		    hybrid_volume_named(&w->md.volume[id], w->cl->value[OPT_VOLUME]))
			continue;
		o = json_object_new_object();
		json_object_object_add(o, "volume",
				       json_object_new_string(w->md.volume[id].name));
		json_object_object_add(o, "dirty_bytes", json_object_new_uint64(granules *
				       w->md.g->granule_sectors * 512));
		json_object_array_add(array, o);
	}
	return array;
}

static void begin(struct writeback *w, struct amount dirty)
{
	progress_begin(&w->progress, w->cl, w->md.sb.name, dirty);
	if (!*w->others)
		return;
	w->progress.others = w->others;
	if (wants_json(w))
		w->progress.other_dirty = others_json(w);
}

static int start_pool_offline(struct writeback *w, unsigned int flags)
{
	const char *why = "";
	int r;

	w->pool = hybrid_offline_create(&w->cache, &w->md.sb, flags);
	if (!w->pool)
		return hybrid_nomem();
	hybrid_offline_interruptible(w->pool, progress_interrupted);
	r = hybrid_offline_load(w->pool, &why);
	if (!r)
		return 0;
	return hybrid_fail(r == -ENOMEM ? HYBRID_NOMEM : HYBRID_BADDEV,
			   "see hybridctl check; --copy-only writes nothing to the cache device",
			   "pool %s on %s: %s", w->md.sb.name, w->cache.path, why);
}

static int open_targets(struct writeback *w)
{
	const char *why = "";
	unsigned int i;
	int r;

	for (i = 0; i < w->nr; i++) {
		struct target *t = &w->target[i];

		r = hybrid_offline_open(w->pool, t->id, &t->origin, &t->v, &why);
		if (r)
			return hybrid_fail(r == -ENOMEM ? HYBRID_NOMEM : HYBRID_BADDEV,
					   "see hybridctl check",
					   "volume %s: its origin %s %s", t->info->name,
					   t->origin.path, why);
		t->dirty = hybrid_offline_dirty(w->pool, t->v, NULL);
	}
	return 0;
}

/* Refuses as the kernel would, before anything is written. */
static int preview(struct writeback *w)
{
	unsigned int i;
	int r;

	r = start_pool_offline(w, HYBRID_OFFLINE_KEEP);
	if (!r)
		r = open_targets(w);
	hybrid_offline_destroy(w->pool);
	w->pool = NULL;
	for (i = 0; i < w->nr; i++)
		w->target[i].v = NULL;
	return r;
}

static struct amount all_dirty(const struct writeback *w)
{
	struct amount dirty = {};
	unsigned int i;
	uint64_t bytes;

	for (i = 0; i < w->nr; i++) {
		dirty.blocks += hybrid_offline_dirty(w->pool, w->target[i].v, &bytes);
		dirty.bytes += bytes;
	}
	return dirty;
}

static bool nothing_to_do(const struct writeback *w)
{
	bool clean = w->md.root.flags & HYBRID_ROOT_CLEAN || w->cl->given[OPT_COPY_ONLY];
	unsigned int i;

	for (i = 0; i < w->nr; i++)
		clean &= !w->target[i].dirty &&
			 (!w->target[i].flagged || w->cl->given[OPT_COPY_ONLY]);
	return clean;
}

/* The number of dirty blocks no longer falls, and each bad piece was tried twice. */
static bool stuck(struct writeback *w, u32 dirty, unsigned int leaps)
{
	unsigned int failures, bad = hybrid_offline_nr_bad(w->pool, &failures);

	if (dirty < w->dirty) {
		w->dirty = dirty;
		w->leaps = leaps;
		w->failures = failures;
	}
	return leaps - w->leaps > QUIET_TICKS + 2 * bad || failures - w->failures > 4 * bad;
}

static bool finished(void *context, unsigned int leaps)
{
	struct writeback *w = context;
	struct amount dirty = all_dirty(w);
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if ((now.tv_sec - w->shown.tv_sec) * 1000 + (now.tv_nsec - w->shown.tv_nsec) / 1000000 >=
	    SHOW_MS) {
		progress_show(&w->progress, dirty);
		w->shown = now;
	}
	return !dirty.blocks || progress_interrupted() || hybrid_offline_failed(w->pool) ||
	       stuck(w, dirty.blocks, leaps);
}

static int reopen(struct writeback *w)
{
	unsigned int i, flags = HYBRID_OPEN_WRITE | HYBRID_OPEN_EXCLUSIVE | HYBRID_OPEN_FILES;
	int r = 0;

	if (!w->cl->given[OPT_COPY_ONLY])
		r = hybrid_device_reopen(&w->cache, flags);
	for (i = 0; !r && i < w->nr; i++)
		r = hybrid_device_reopen(&w->target[i].origin, flags);
	return r;
}

/* Closes all open volumes and stops the pool, as far as possible. */
static void shut(struct writeback *w)
{
	struct target *t;

	for (t = w->target; t < w->target + w->nr; t++) {
		if (!t->v)
			continue;
		hybrid_offline_drain(w->pool, t->v, false);
		t->error = hybrid_offline_close(w->pool, t->v);
	}
	hybrid_offline_stop(w->pool);
}

static void run(struct writeback *w)
{
	struct amount dirty = all_dirty(w);
	unsigned int i;

	w->dirty = dirty.blocks;
	begin(w, dirty);
	progress_show(&w->progress, dirty);
	for (i = 0; i < w->nr; i++)
		hybrid_offline_drain(w->pool, w->target[i].v, true);
	hybrid_offline_run(w->pool, finished, w);
	shut(w);
	progress_show(&w->progress, all_dirty(w));
}

/* ---- the end --------------------------------------------------------------- */

/* Why it is still dirty; NULL: there was no time for it. */
static const char *reason(struct writeback *w, struct target *t, u64 sector, u64 cache_sector)
{
	const struct hybrid_bad_piece *bad;

	bad = hybrid_offline_bad(w->pool, &w->cache, cache_sector);
	if (bad)
		return hybrid_range_why("cache device", bad->error);
	bad = hybrid_offline_bad(w->pool, &t->origin, t->info->data_sector + sector);
	if (bad)
		return hybrid_range_why("origin", bad->error);
	if (hybrid_offline_failed(w->pool))
		return "the cache device cannot be written";
	if (w->unreadable)
		return "the cache device cannot be read";
	return t->error ? hybrid_range_why("origin, or its flush", t->error) : NULL;
}

static int note_dirty(void *context, u32 volume, u64 sector, u32 count, u64 cache_sector)
{
	struct writeback *w = context;
	struct target *t = find_target(w, volume);
	u32 granule = w->md.g->granule_sectors, n;
	const char *why;

	for (; t && count; sector += n, cache_sector += n, count -= n) {
		n = min_t(u32, count, granule);
		why = reason(w, t, sector, cache_sector);
		if (why)
			hybrid_ranges_add(&w->unwritten, t->info->name, sector, n, why);
	}
	return 0;
}

/*
 * Lists the data that is dirty on record now; all data that was if the record cannot be read, or with
 * --copy-only.
 */
static int list_unwritten(struct writeback *w)
{
	struct hybrid_findings findings = { .device = w->cache.path };
	struct hybrid_metadata now = {};
	int r = 0;

	if (!w->cl->given[OPT_COPY_ONLY])
		r = hybrid_metadata_read(&now, &w->cache, &findings);
	w->unreadable = r || hybrid_findings_worst(&findings) == HYBRID_DAMAGE;
	if (r != HYBRID_NOMEM)
		r = hybrid_dirty_each(w->cl->given[OPT_COPY_ONLY] || w->unreadable ? &w->md : &now,
				      note_dirty, w);
	hybrid_metadata_free(&now);
	hybrid_findings_free(&findings);
	return r;
}

static int report_unwritten(struct writeback *w)
{
	struct hybrid_report_options opts = { .unit = 'b' };
	bool json = wants_json(w);
	char size[32];
	int r;

	r = list_unwritten(w);
	if (json)
		w->progress.unwritten = hybrid_ranges_json(&w->unwritten);
	progress_end(&w->progress, "dirty");
	if (!r && !json && w->unwritten.nr && !hybrid_output.quiet)
		r = hybrid_ranges_print(&w->unwritten, "unwritten", &opts);
	if (r)
		return r;
	if (progress_interrupted()) {
		hybrid_format_size(size, sizeof(size), all_dirty(w).bytes, 'h');
		return hybrid_fail(HYBRID_PARTIAL, "start it again to continue",
				   "interrupted: %s is still dirty", size);
	}
	hybrid_format_size(size, sizeof(size), hybrid_ranges_bytes(&w->unwritten), 'h');
	if (w->unreadable)
		return hybrid_fail(HYBRID_PARTIAL, "check the cache device, and run it again",
				   "%s can no longer be read; up to %s may not be written back",
				   w->cache.path, size);
	if (hybrid_offline_failed(w->pool))
		return hybrid_fail(HYBRID_PARTIAL, "run it again with --copy-only",
				   "%s can no longer be written", w->cache.path);
	return hybrid_fail(HYBRID_PARTIAL, "check the devices, and run it again",
			   "%s could not be written back; it stays dirty", size);
}

static int report_result(struct writeback *w)
{
	bool good = !hybrid_offline_failed(w->pool) && !all_dirty(w).blocks;
	unsigned int i;

	for (i = 0; i < w->nr; i++)
		good &= !w->target[i].error;
	if (!good)
		return report_unwritten(w);
	if (!w->cl->given[OPT_COPY_ONLY]) {
		progress_end(&w->progress, "clean");
		return 0;
	}
	progress_end(&w->progress, "copied");
	hybrid_note("all dirty data was copied to the origins; %s was not written, and still "
		    "records it as dirty%s%s", w->cache.path,
		    *w->others ? "; other volumes are dirty: " : "", w->others);
	return 0;
}

static int drain(struct writeback *w)
{
	unsigned int flags = HYBRID_OFFLINE_THREADS;
	int r;

	if (w->cl->given[OPT_COPY_ONLY])
		flags |= HYBRID_OFFLINE_KEEP;
	r = reopen(w);
	if (!r)
		r = start_pool_offline(w, flags);
	if (r)
		return r;
	r = open_targets(w);
	if (r) {
		shut(w);
		return r;
	}
	run(w);
	return report_result(w);
}

static void print_test(const struct writeback *w)
{
	const struct target *t;
	char size[32];

	for (t = w->target; t < w->target + w->nr; t++) {
		hybrid_format_size(size, sizeof(size), w->md.usage[t->id].dirty_granules *
				   w->md.g->granule_sectors * 512, 'h');
		printf("copy %s from %s to %s (volume %s)\n", size, w->cache.path, t->origin.path,
		       t->info->name);
		if (!w->cl->given[OPT_COPY_ONLY] && !(t->info->flags & HYBRID_VOLUME_INPLACE))
			printf("write %s: superblocks, not dirty\n", t->origin.path);
	}
	if (!w->cl->given[OPT_COPY_ONLY])
		printf("write %s: metadata, all clean\n", w->cache.path);
}

static int writeback(struct writeback *w)
{
	int i, r;

	r = read_pool(w);
	if (!r)
		r = hybrid_volumes_named(&w->md, w->cl->value[OPT_VOLUME]);
	if (!r) {
		w->others = hybrid_volumes_dirty(&w->md, w->cl->value[OPT_VOLUME]);
		r = w->others ? 0 : hybrid_nomem();
	}
	for (i = 1; !r && i < w->cl->argc; i++)
		r = add_origin(w, w->cl->argv[i]);
	if (!r && w->cl->given[OPT_ALL])
		r = search_origins(w);
	if (!r)
		r = check_complete(w);
	if (!r)
		r = preview(w);
	if (r)
		return r;
	if (nothing_to_do(w)) {
		begin(w, (struct amount){});
		progress_end(&w->progress, "clean");
		return 0;
	}
	if (w->cl->given[OPT_TEST]) {
		print_test(w);
		return 0;
	}
	return drain(w);
}

int command_writeback(const struct command_line *cl)
{
	struct writeback w = { .cl = cl, .cache.fd = -1 };
	int r;

	r = cl->given[OPT_ALL] ? hybrid_inventory_load(&w.found, HYBRID_LOAD_MEMBERS, NULL, 0) : 0;
	if (!r)
		r = lock_tools();
	if (!r)
		r = writeback(&w);
	hybrid_inventory_free(&w.found);
	hybrid_offline_destroy(w.pool);
	while (w.nr)
		hybrid_device_close(&w.target[--w.nr].origin);
	free(w.target);
	free(w.others);
	hybrid_ranges_free(&w.unwritten);
	hybrid_metadata_free(&w.md);
	hybrid_findings_free(&w.findings);
	hybrid_device_close(&w.cache);
	return r;
}
