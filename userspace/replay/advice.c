// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Size and life of the SSD, and the block size, read off the curves.
 *
 * The knee is the point of the curve, both axes linear and of length one, that lies
 * farthest above the line between its ends.  Between simulated sizes the hit ratio is taken
 * as a straight line over the logarithm of the size.
 */
#include <json-c/json.h>
#include <math.h>
#include <stdlib.h>

#include "output.h"
#include "units.h"

#define MOST		0.9
#define ALIKE		1.05	/* disk times within this factor count as equal */

/* Advice from the caches of a series, if they are a curve. */
struct advice {
	const struct cache *first;
	u32 nr;
	double reachable;		/* hit ratio of the largest, by requests */
	double most;			/* bytes at which 90 % of these hits are reached */
	double knee;			/* bytes after which more brings less */
	struct cache at;		/* the cache of the first size not below @most */
};

static double hits(const struct cache *c)
{
	return 1 - c->miss[0][0];
}

u32 series_length(const struct run *run, u32 first)
{
	const struct cache *c = &run->cache[first];
	u32 n = 0;

	while (first + n < run->nr_caches && c[n].policy == c->policy &&
	       c[n].block_sectors == c->block_sectors && (!n || c[n].bytes > c[n - 1].bytes))
		n++;
	return n;
}

static void find_most(struct advice *a)
{
	const struct cache *c = a->first;
	double want = MOST * a->reachable, part;
	u32 i = 0;

	while (i < a->nr - 1 && hits(&c[i]) < want)
		i++;
	a->at = c[i];
	a->most = c[i].bytes;
	if (!i || hits(&c[i]) <= hits(&c[i - 1]))
		return;
	part = (want - hits(&c[i - 1])) / (hits(&c[i]) - hits(&c[i - 1]));
	a->most = c[i - 1].bytes * pow((double)c[i].bytes / c[i - 1].bytes, fmin(part, 1));
}

static void find_knee(struct advice *a)
{
	const struct cache *c = a->first, *last = &c[a->nr - 1];
	double width = last->bytes - c->bytes, height = hits(last) - hits(c), far = 0, above;
	u32 i;

	a->knee = last->bytes;
	for (i = 0; height > 0 && i < a->nr; i++) {
		above = (hits(&c[i]) - hits(c)) / height - (c[i].bytes - c->bytes) / width;
		if (above <= far)
			continue;
		far = above;
		a->knee = c[i].bytes;
	}
}

static void advise(const struct run *run, u32 first, u32 nr, struct advice *a)
{
	a->first = &run->cache[first];
	a->nr = nr;
	a->reachable = hits(&a->first[nr - 1]);
	find_most(a);
	find_knee(a);
}

static double written(const struct cache *c)
{
	return c->ssd_fill + c->ssd_write + c->ssd_meta;
}

/* The cache of the series that is at least that large. */
static const struct cache *cache_of(const struct advice *a, double bytes)
{
	u32 i = 0;

	while (i < a->nr - 1 && a->first[i].bytes < bytes)
		i++;
	return &a->first[i];
}

/*
 * Chooses the series with the least disk time; of series with nearly the least, the one that writes
 * least to the SSD.  All are compared at one size, the smallest that is enough for one of them.
 */
static u32 best_advice(const struct advice *a, u32 nr)
{
	double bytes = a[0].most, least = INFINITY;
	const struct cache *c;
	u32 i, best = nr;

	for (i = 1; i < nr; i++)
		bytes = fmin(bytes, a[i].most);
	for (i = 0; i < nr; i++)
		least = fmin(least, cache_of(&a[i], bytes)->disk_ms);
	for (i = 0; i < nr; i++) {
		c = cache_of(&a[i], bytes);
		if (c->disk_ms <= least * ALIKE &&
		    (best == nr || written(c) < written(cache_of(&a[best], bytes))))
			best = i;
	}
	return best;
}

double cache_life(const struct survey *s, const struct cache *c, const struct endurance *e)
{
	double rated = e->bytes ? e->bytes : e->daily * WARRANTY_DAYS * c->device_bytes;
	double daily = cache_daily(s, c);

	return daily > 0 ? rated / daily / 365 : 0;
}

/* All series; free() it. */
static struct advice *all_advice(const struct run *run, u32 *nr)
{
	struct advice *a = calloc(run->nr_caches, sizeof(*a));
	u32 first, n;

	*nr = 0;
	for (first = 0; a && first < run->nr_caches; first += n) {
		n = series_length(run, first);
		advise(run, first, n, &a[(*nr)++]);
	}
	return a;
}

/* ---- JSON ------------------------------------------------------------------ */

static struct json_object *series_json(const struct run *run, const struct advice *a,
				       const struct endurance *e)
{
	double requests = run->survey.requests[0] + run->survey.requests[1];
	struct json_object *o = json_object_new_object();

	json_object_object_add(o, "policy", json_object_new_string(a->at.policy->name));
	json_object_object_add(o, "block_size",
			       json_object_new_uint64(a->at.block_sectors * 512ULL));
	json_object_object_add(o, "reachable_hit_ratio", json_object_new_double(a->reachable));
	json_object_object_add(o, "size_for_90_percent", json_object_new_uint64(a->most));
	json_object_object_add(o, "knee", json_object_new_uint64(a->knee));
	json_object_object_add(o, "memory", json_object_new_uint64(a->at.ram));
	json_object_object_add(o, "disk_ms_per_request",
			       json_object_new_double(a->at.disk_ms / requests));
	json_object_object_add(o, "life_years",
			       json_object_new_double(cache_life(&run->survey, &a->at, e)));
	return o;
}

struct json_object *advice_json(const struct run *run, const struct endurance *e)
{
	struct json_object *o = json_object_new_object();
	struct json_object *all = json_object_new_array();
	u32 nr, i;
	struct advice *a = all_advice(run, &nr);

	for (i = 0; a && i < nr; i++)
		json_object_array_add(all, series_json(run, &a[i], e));
	json_object_object_add(o, "series", all);
	if (a)
		json_object_object_add(o, "best", json_object_new_int(best_advice(a, nr)));
	free(a);
	return o;
}

/* ---- words ----------------------------------------------------------------- */

const char *life_text(char buf[32], double years)
{
	if (years <= 0)
		return "?";
	if (years >= 100)
		return "over 100 years";
	if (years < 1)
		snprintf(buf, 32, "%.1f days", years * 365);
	else
		snprintf(buf, 32, "%.1f years", years);
	return buf;
}

static void print_series(const struct run *run, const struct advice *a,
			 const struct endurance *e)
{
	double requests = run->survey.requests[0] + run->survey.requests[1];
	char most[32], knee[32], ram[32], block[32], life[32];

	printf("  %-8s %7s %10s %10s %7.1f%% %9.3f %10s  %s\n", a->at.policy->name,
	       hybrid_size_text(block, a->at.block_sectors * 512.0), hybrid_size_text(most, a->most),
	       hybrid_size_text(knee, a->knee), 100 * a->reachable, a->at.disk_ms / requests,
	       hybrid_size_text(ram, a->at.ram),
	       life_text(life, cache_life(&run->survey, &a->at, e)));
}

static void print_best(const struct run *run, const struct advice *a, const struct endurance *e)
{
	double requests = run->survey.requests[0] + run->survey.requests[1], daily;
	const struct survey *s = &run->survey;
	char buf[32], block[32];

	if (a->reachable < 0.01) {
		printf("No cache helps: hardly any data is requested twice.\n");
		return;
	}
	if (a->at.disk_ms > s->disk_ms)
		printf("No cache takes work off the disk in this mode: %.3f ms a request instead of %.3f ms\n"
		       "without one.  The best of them:\n", a->at.disk_ms / requests,
		       s->disk_ms / requests);
	printf("How much: %s, which gives 90 %% of the hits that any size gives",
	       hybrid_size_text(buf, a->most));
	printf(" (%.1f %% of requests).\nMore than %s brings little for its price.\n",
	       100 * MOST * a->reachable, hybrid_size_text(buf, fmax(a->knee, a->most)));
	printf("Blocks: %s, policy %s: the disk works %.3f ms a request, without a cache %.3f ms;\n",
	       hybrid_size_text(block, a->at.block_sectors * 512.0), a->at.policy->name,
	       a->at.disk_ms / requests, s->disk_ms / requests);
	printf("the map takes %s of RAM, the cache device %s.\n", hybrid_size_text(block, a->at.ram),
	       hybrid_size_text(buf, a->at.device_bytes));
	daily = cache_daily(s, &a->at);
	if (daily <= 0) {
		printf("Life: the trace has no time; %s is written to the SSD for each run of it.\n",
		       hybrid_size_text(buf, written(&a->at) * 4096));
		return;
	}
	printf("Life: %s is written to the SSD a day, %.2f times its size.  ",
	       hybrid_size_text(buf, daily), daily / a->at.device_bytes);
	if (e->bytes)
		printf("Rated for %s in all,", hybrid_size_text(buf, e->bytes));
	else
		printf("Rated for %g drive writes a day over 5 years,", e->daily);
	printf("\nit is worn out after: %s.\n", life_text(buf, cache_life(s, &a->at, e)));
}

void advice_print(const struct run *run, const struct endurance *e)
{
	u32 nr, i;
	struct advice *a = all_advice(run, &nr);

	if (!a)
		return;
	printf("\nAdvice, at the size that gives 90 %% of the possible hits\n  %-8s %7s %10s %10s "
	       "%8s %9s %10s  %s\n", "policy", "block", "size", "knee",
	       "hits", "disk ms", "RAM", "life");
	for (i = 0; i < nr; i++)
		print_series(run, &a[i], e);
	putchar('\n');
	print_best(run, &a[best_advice(a, nr)], e);
	free(a);
}
