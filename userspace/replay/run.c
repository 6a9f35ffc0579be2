// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdlib.h>

#include "errors.h"
#include "run.h"
#include "units.h"

/* A cache of this many times the touched blocks has no full set: a larger one is no different. */
#define ENOUGH		4
#define UNTIMED_US	1000
#define DAY		86400.0

/* ---- the first look -------------------------------------------------------- */

struct look {
	struct model_disk disk[TRACE_MAX_SOURCES];
	u64 last_us;
};

static int look_at(struct run *run, struct look *look, const struct trace_request *r)
{
	struct survey *s = &run->survey;
	bool write = r->op == TRACE_WRITE;
	u32 k, shift;

	look->last_us = r->us;
	if (r->op != TRACE_READ && !write) {
		s->others++;
		return 0;
	}
	s->requests[write]++;
	s->sectors[write] += r->count;
	for (k = 0; k < RUN_BLOCK_SIZES; k++) {
		shift = ilog2(HYBRID_MIN_BLOCK_SECTORS) + k;
		s->parts[k] += ((r->sector + r->count - 1) >> shift) - (r->sector >> shift) + 1;
	}
	model_request(&look->disk[r->source]);
	model_op(&look->disk[r->source], write, r->sector, r->count, false);
	if (!footprint_add(&run->footprint, r->source, r->sector, r->count))
		return hybrid_nomem();
	return 0;
}

static void sum_up(struct run *run, const struct look *look)
{
	const struct sample all = { .parts = SAMPLE_ALL };
	struct survey *s = &run->survey;
	u32 i;

	s->untimed = !look->last_us;
	s->seconds = look->last_us / 1e6;
	for (i = 0; i < RUN_BLOCK_SIZES; i++)
		s->blocks[i] = footprint_blocks(&run->footprint, HYBRID_MIN_BLOCK_SECTORS << i,
						&all);
	s->footprint = s->blocks[0] * 512 * HYBRID_MIN_BLOCK_SECTORS;
	s->windows = run->footprint.used;
	for (i = 0; i < TRACE_MAX_SOURCES; i++) {
		s->disk_ops += look->disk[i].ops[0] + look->disk[i].ops[1];
		s->disk_ms += look->disk[i].ms;
	}
}

int run_survey(struct run *run)
{
	struct look *look = calloc(1, sizeof(*look));
	struct survey *s = &run->survey;
	struct trace_request r;
	bool more = true;
	int e = 0;

	if (!look)
		return hybrid_nomem();
	while (!e && more) {
		e = trace_next(run->trace, &r, &more);
		if (!e && more)
			e = look_at(run, look, &r);
	}
	s->lines = trace_lines(run->trace);
	if (!e && !s->requests[0] && !s->requests[1])
		e = hybrid_fail(HYBRID_BADDEV, NULL, "the trace has no reads and no writes");
	if (!e)
		sum_up(run, look);
	free(look);
	return e;
}

/* ---- the caches ------------------------------------------------------------ */

/* Caches that see the same part of the trace. */
struct group {
	struct sample sample;
	struct replay_pool **pool;
	struct cache **cache;
	u32 nr;
};

/* Groups by unit: the range that the map keeps in one set. */
#define NR_GROUPS	3	/* 256 KiB, 512 KiB, 1 MiB */

static u32 group_of(const struct cache *c)
{
	u32 shift = ilog2(c->block_sectors);

	return shift > FOOTPRINT_WINDOW_SHIFT ? shift - FOOTPRINT_WINDOW_SHIFT : 0;
}

static int fail_cache(const struct cache *c, const char *why)
{
	char size[32], block[32];

	return hybrid_fail(HYBRID_BADDEV, "choose another --size or --block-size",
			   "a cache of %s in blocks of %s is not possible: %s",
			   hybrid_format_size(size, sizeof(size), c->bytes, 'h'),
			   hybrid_format_size(block, sizeof(block), c->block_sectors * 512ULL, 'h'),
			   why);
}

/* Describes the real cache. */
static int describe(struct cache *c)
{
	struct hybrid_geometry g;
	const char *why;

	c->blocks = max_t(u64, c->bytes / 512 / c->block_sectors, 1);
	if (replay_geometry(&g, c->block_sectors, c->blocks, &why))
		return fail_cache(c, why);
	c->device_bytes = g.member_sectors * 512;
	c->ram = hybrid_engine_ram(&g, c->policy);
	return 0;
}

static int add_cache(struct run *run, struct group *group, struct cache *c)
{
	struct group *g = &group[group_of(c)];
	struct replay_setup setup = {
		.policy = c->policy, .block_sectors = c->block_sectors,
		.mode = run->mode, .cutoff = run->cutoff,
	};
	u64 enough = ENOUGH * run->survey.blocks[block_class(c->block_sectors)] + 64;
	const char *why;
	int e;

	e = describe(c);
	if (e)
		return e;
	c->rate = sample_rate(&g->sample);
	c->sampled = footprint_blocks(&run->footprint, c->block_sectors, &g->sample);
	setup.blocks = max_t(u64, min(c->blocks, enough) * c->rate + 0.5, 1);
	g->cache[g->nr] = c;
	g->pool[g->nr] = replay_pool_create(&setup, &why);
	if (!g->pool[g->nr])
		return fail_cache(c, why);
	g->nr++;
	return 0;
}

static void free_groups(struct group *group)
{
	u32 i, k;

	for (i = 0; i < NR_GROUPS; i++) {
		for (k = 0; k < group[i].nr; k++)
			replay_pool_destroy(group[i].pool[k]);
		free(group[i].pool);
		free(group[i].cache);
	}
}

static int make_groups(struct run *run, struct group *group)
{
	u32 i, parts = SAMPLE_ALL;
	int e = 0;

	if (run->max_windows && run->survey.windows > run->max_windows)
		parts = max_t(u32, (double)run->max_windows / run->survey.windows * SAMPLE_ALL, 1);
	for (i = 0; i < NR_GROUPS; i++) {
		group[i].sample.parts = parts;
		group[i].sample.shift = FOOTPRINT_WINDOW_SHIFT + i;
		group[i].pool = calloc(run->nr_caches, sizeof(*group[i].pool));
		group[i].cache = calloc(run->nr_caches, sizeof(*group[i].cache));
		if (!group[i].pool || !group[i].cache)
			return hybrid_nomem();
	}
	for (i = 0; !e && i < run->nr_caches; i++)
		e = add_cache(run, group, &run->cache[i]);
	return e;
}

/* ---- the second pass ------------------------------------------------------- */

static int give(struct group *g, const struct trace_request *r)
{
	u32 k;
	int e = 0;

	for (k = 0; !e && k < g->nr; k++)
		e = replay_pool_request(g->pool[k], r);
	if (e == -ENOMEM)
		return hybrid_nomem();
	if (e)
		return hybrid_fail(HYBRID_BADDEV, "please report this, with the trace",
				   "the engine stopped at sector %llu: error %d", r->sector, -e);
	return 0;
}

static void pass(struct group *g, const struct trace_request *r)
{
	u32 k;

	for (k = 0; k < g->nr; k++)
		replay_pool_pass(g->pool[k], r);
}

/* Simulates the runs of units of @r that are in the sample, and passes over the others. */
static int give_sampled(struct group *g, const struct trace_request *r)
{
	u64 end = r->sector + r->count, next = r->sector;
	struct trace_request part = *r;
	bool in, after = sample_has(&g->sample, r->source, next);
	int e = 0;

	while (!e && next < end) {
		part.sector = next;
		in = after;
		do {
			next = min(((next >> g->sample.shift) + 1) << g->sample.shift, end);
			after = next < end && sample_has(&g->sample, r->source, next);
		} while (next < end && after == in);
		part.count = next - part.sector;
		if (in)
			e = give(g, &part);
		else
			pass(g, &part);
	}
	return e;
}

static int give_all(struct group *group, const struct trace_request *r)
{
	bool whole = r->op == TRACE_FLUSH || r->op == TRACE_DISCARD;
	u32 i;
	int e = 0;

	for (i = 0; !e && i < NR_GROUPS; i++) {
		if (!group[i].nr)
			continue;
		if (whole || group[i].sample.parts >= SAMPLE_ALL)
			e = give(&group[i], r);
		else
			e = give_sampled(&group[i], r);
	}
	return e;
}

/*
 * The real cache's hit ratio as a multiple of the simulation's.  The survey knows how many of all
 * requests' blocks come again.  The sample errs in that number, as it may have the most popular windows
 * or not.  So only the part of these blocks that hits is estimated.  There are more hits if a miss
 * brings in blocks beside it that nobody asked for before: their number is estimated as a part of the
 * blocks that are asked for the first time.
 */
static double hits_correction(const struct cache *c, const struct survey *s)
{
	u32 class = block_class(c->block_sectors);
	double all = s->parts[class], again = all - s->blocks[class];
	double seen = c->count.blocks[0] + c->count.blocks[1], seen_again = seen - c->sampled;
	double hits = seen - c->count.block_misses[0] - c->count.block_misses[1];
	double old = min(hits, seen_again);

	if (c->rate >= 1 || seen_again <= 0 || hits <= 0)
		return 1;
	return (again * old / seen_again + s->blocks[class] * (hits - old) / c->sampled) / all /
	       (hits / seen);
}

static double miss_ratio(u64 missed, u64 seen, double correction)
{
	if (!seen)
		return -1;
	return max(1 - correction * (1 - (double)missed / seen), 0.0);
}

/* @missed and @seen of the sample; by requests, or by blocks. */
static void set_ratios(double miss[3], const u64 missed[2], const u64 seen[2], double correction)
{
	miss[0] = miss_ratio(missed[0] + missed[1], seen[0] + seen[1], correction);
	miss[1] = miss_ratio(missed[0], seen[0], correction);
	miss[2] = miss_ratio(missed[1], seen[1], correction);
}

/*
 * Scales the simulation up to the real cache: the cost of misses by their number, writes by the part
 * of the trace's blocks that was seen.  However small the simulation is, it has one commit an
 * interval: of the metadata, only the records are scaled.
 */
static void scale(struct cache *c, const struct survey *s)
{
	const struct replay_count *n = &c->count;
	double all = s->parts[block_class(c->block_sectors)], by = 1, by_misses = 1;
	double seen = n->blocks[0] + n->blocks[1], misses = n->block_misses[0] + n->block_misses[1];
	double correction = hits_correction(c, s);

	set_ratios(c->miss[0], n->missed, n->requests, correction);
	set_ratios(c->miss[1], n->block_misses, n->blocks, correction);
	if (c->rate < 1 && misses) {
		by = all / seen;
		by_misses = c->miss[1][0] * all / misses;
	}
	c->disk_ops = (n->disk_ops[0] + n->disk_ops[1]) * by_misses;
	c->disk_ms = n->disk_ms * by_misses;
	c->ssd_fill = n->ssd_fill * by_misses;
	c->ssd_write = n->ssd_write * by;
	c->ssd_meta = max_t(double, n->ssd_meta, n->records * by * sizeof(struct hybrid_record) /
			    HYBRID_META_BLOCK_SIZE);
}

static int finish(struct group *g, const struct survey *s)
{
	u32 k;

	for (k = 0; k < g->nr; k++) {
		if (replay_pool_finish(g->pool[k]))
			return hybrid_fail(HYBRID_BADDEV, "please report this, with the trace",
					   "the engine cannot write back dirty data");
		replay_pool_count(g->pool[k], &g->cache[k]->count);
		scale(g->cache[k], s);
	}
	return 0;
}

static int replay(struct run *run, struct group *group)
{
	struct trace_request r;
	bool more = true;
	u64 n = 0;
	u32 i;
	int e;

	e = trace_rewind(run->trace);
	while (!e && more) {
		e = trace_next(run->trace, &r, &more);
		if (e || !more)
			break;
		if (run->survey.untimed)
			r.us = n++ * UNTIMED_US;
		e = give_all(group, &r);
	}
	for (i = 0; !e && i < NR_GROUPS; i++)
		e = finish(&group[i], &run->survey);
	return e;
}

int run_caches(struct run *run)
{
	struct group group[NR_GROUPS] = { { .nr = 0 } };
	int e;

	e = make_groups(run, group);
	if (!e)
		e = replay(run, group);
	free_groups(group);
	return e;
}

void run_free(struct run *run)
{
	footprint_free(&run->footprint);
	free(run->cache);
}

double cache_daily(const struct survey *s, const struct cache *c)
{
	if (s->untimed)
		return 0;
	return (c->ssd_fill + c->ssd_write + c->ssd_meta) * 4096 / s->seconds * DAY;
}
