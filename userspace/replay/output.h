/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The results as a table, JSON, SVG, and advice in words. */
#ifndef HYBRID_REPLAY_OUTPUT_H
#define HYBRID_REPLAY_OUTPUT_H

#include <stdio.h>

#include "run.h"

/* Rated endurance of the SSD: bytes in all, or, if that is 0, drive writes a day. */
struct endurance {
	uint64_t bytes;
	double daily;
};

#define WARRANTY_DAYS	(5 * 365.0)	/* "drive writes a day" is rated for this time */

/* Years until it is worn out; 0: not known, for the trace has no time. */
double cache_life(const struct survey *s, const struct cache *c, const struct endurance *e);

/* In words: into @buf, or a constant. */
const char *life_text(char buf[32], double years);

/*
 * A series of caches that differ in size only, ascending: neighbours in run->cache[].
 * 0: there is none at @first.
 */
u32 series_length(const struct run *run, u32 first);

struct json_object *advice_json(const struct run *run, const struct endurance *e);
void advice_print(const struct run *run, const struct endurance *e);

void table_print(const struct run *run, const struct endurance *e);
void json_output(const struct run *run, const struct endurance *e, bool curve);

/* Returns 0 or an exit code, after a message. */
int svg_write(const struct run *run, const char *trace, const char *path);

#endif
