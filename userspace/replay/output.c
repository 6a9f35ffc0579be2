// SPDX-License-Identifier: GPL-2.0-or-later
#include <json-c/json.h>
#include <stdio.h>

#include "output.h"
#include "units.h"

/* ---- a table --------------------------------------------------------------- */

static const char *ratio_text(char buf[16], double ratio)
{
	if (ratio < 0)
		return "-";
	snprintf(buf, 16, "%.4f", ratio);
	return buf;
}

static void print_survey(const struct run *run)
{
	const struct survey *s = &run->survey;
	double requests = s->requests[0] + s->requests[1];
	char read[32], written[32], touched[32];

	printf("%.0f requests (%s) of %u devices or files in %.1f s: %.1f %% reads (%s), writes %s\n",
	       requests, trace_format_name(run->trace), trace_sources(run->trace), s->seconds,
	       100 * s->requests[0] / requests, hybrid_size_text(read, s->sectors[0] * 512.0),
	       hybrid_size_text(written, s->sectors[1] * 512.0));
	printf("%s is touched; the disk alone: %.3f operations, %.3f ms a request\n",
	       hybrid_size_text(touched, s->footprint), s->disk_ops / requests,
	       s->disk_ms / requests);
	if (s->untimed)
		printf("The trace has no time: one request a millisecond is assumed.\n");
	if (run->cache[0].rate < 1)
		printf("Simulated: %.3f %% of the address space.\n", 100 * run->cache[0].rate);
}

static void print_cache(const struct run *run, const struct cache *c, const struct endurance *e)
{
	const struct survey *s = &run->survey;
	double requests = s->requests[0] + s->requests[1];
	char text[4][16], block[32], size[32], fill[32], data[32], meta[32], life[32];
	u32 i;

	for (i = 0; i < 3; i++)
		ratio_text(text[i], c->miss[0][i]);
	printf("%-8s %7s %9s %6.1f %7s %7s %7s %7s %7.3f %8.3f %9s %9s %8s  %s\n", c->policy->name,
	       hybrid_size_text(block, c->block_sectors * 512.0), hybrid_size_text(size, c->bytes),
	       100.0 * c->bytes / s->footprint, ratio_text(text[0], c->miss[0][0]),
	       ratio_text(text[1], c->miss[0][1]), ratio_text(text[2], c->miss[0][2]),
	       ratio_text(text[3], c->miss[1][0]), c->disk_ops / requests, c->disk_ms / requests,
	       hybrid_size_text(fill, c->ssd_fill * 4096),
	       hybrid_size_text(data, c->ssd_write * 4096),
	       hybrid_size_text(meta, c->ssd_meta * 4096), life_text(life, cache_life(s, c, e)));
}

void table_print(const struct run *run, const struct endurance *e)
{
	u32 i;

	print_survey(run);
	printf("\n%33s %-31s %-16s %s\n", "", "miss ratio", "disk, a request", "written to the SSD");
	printf("%-8s %7s %9s %6s %7s %7s %7s %7s %7s %8s %9s %9s %8s  %s\n", "policy", "block",
	       "size", "%", "all", "reads", "writes", "blocks", "ops", "ms", "fills", "writes",
	       "metadata", "life");
	for (i = 0; i < run->nr_caches; i++)
		print_cache(run, &run->cache[i], e);
}

/* ---- JSON ------------------------------------------------------------------ */

static void add_u64(struct json_object *o, const char *key, u64 value)
{
	json_object_object_add(o, key, json_object_new_uint64(value));
}

static void add_double(struct json_object *o, const char *key, double value)
{
	json_object_object_add(o, key, json_object_new_double(value));
}

static void add_ratios(struct json_object *o, const char *key, const double miss[3])
{
	static const char * const names[] = { "all", "reads", "writes" };
	struct json_object *sub = json_object_new_object();
	u32 i;

	for (i = 0; i < 3; i++)
		json_object_object_add(sub, names[i], miss[i] < 0 ? NULL :
				       json_object_new_double(miss[i]));
	json_object_object_add(o, key, sub);
}

static struct json_object *survey_json(const struct run *run)
{
	struct json_object *o = json_object_new_object();
	const struct survey *s = &run->survey;

	json_object_object_add(o, "format", json_object_new_string(trace_format_name(run->trace)));
	add_u64(o, "lines", s->lines);
	add_u64(o, "reads", s->requests[0]);
	add_u64(o, "writes", s->requests[1]);
	add_u64(o, "flushes_and_discards", s->others);
	add_u64(o, "sources", trace_sources(run->trace));
	add_u64(o, "bytes_read", s->sectors[0] * 512);
	add_u64(o, "bytes_written", s->sectors[1] * 512);
	add_double(o, "seconds", s->seconds);
	add_u64(o, "footprint", s->footprint);
	add_u64(o, "disk_operations", s->disk_ops);
	add_double(o, "disk_ms", s->disk_ms);
	return o;
}

/* The module's own counters, of the simulation. */
static struct json_object *counters_json(const struct replay_count *n)
{
	static const struct {
		const char *name;
		enum hybrid_counter counter;
	} known[] = {
		{ "read_hits", HYBRID_READ_HITS },
		{ "read_misses", HYBRID_READ_MISSES },
		{ "write_hits", HYBRID_WRITE_HITS },
		{ "write_misses", HYBRID_WRITE_MISSES },
		{ "bypass_sequential", HYBRID_BYPASS_SEQUENTIAL },
		{ "bypass_policy", HYBRID_BYPASS_POLICY },
		{ "bypass_full", HYBRID_BYPASS_FULL },
		{ "bypass_busy", HYBRID_BYPASS_BUSY },
		{ "bypass_mode", HYBRID_BYPASS_MODE },
		{ "bypass_partial", HYBRID_BYPASS_PARTIAL },
		{ "fills", HYBRID_FILLS },
		{ "writebacks", HYBRID_WRITEBACKS },
	};
	struct json_object *o = json_object_new_object();
	u32 i;

	for (i = 0; i < ARRAY_SIZE(known); i++)
		add_u64(o, known[i].name, n->counter[known[i].counter]);
	add_u64(o, "evictions", n->evictions);
	return o;
}

static struct json_object *cache_json(const struct run *run, const struct cache *c,
				      const struct endurance *e)
{
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "policy", json_object_new_string(c->policy->name));
	add_u64(o, "block_size", c->block_sectors * 512ULL);
	add_u64(o, "size", c->bytes);
	add_u64(o, "device_size", c->device_bytes);
	add_u64(o, "memory", c->ram);
	add_double(o, "sampled", c->rate);
	add_ratios(o, "miss_ratio_requests", c->miss[0]);
	add_ratios(o, "miss_ratio_blocks", c->miss[1]);
	add_double(o, "disk_operations", c->disk_ops);
	add_double(o, "disk_ms", c->disk_ms);
	add_double(o, "disk_ms_per_request",
		   c->disk_ms / (run->survey.requests[0] + run->survey.requests[1]));
	add_double(o, "ssd_pages_filled", c->ssd_fill);
	add_double(o, "ssd_pages_written", c->ssd_write);
	add_double(o, "ssd_pages_metadata", c->ssd_meta);
	add_double(o, "ssd_bytes_per_day", cache_daily(&run->survey, c));
	add_double(o, "life_years", cache_life(&run->survey, c, e));
	json_object_object_add(o, "counters", counters_json(&c->count));
	return o;
}

void json_output(const struct run *run, const struct endurance *e, bool curve)
{
	struct json_object *o = json_object_new_object(), *all = json_object_new_array();
	u32 i;

	for (i = 0; i < run->nr_caches; i++)
		json_object_array_add(all, cache_json(run, &run->cache[i], e));
	json_object_object_add(o, "trace", survey_json(run));
	json_object_object_add(o, "caches", all);
	if (curve)
		json_object_object_add(o, "advice", advice_json(run, e));
	puts(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PRETTY));
	json_object_put(o);
}
