/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Which part of the address space a small simulation sees: spatial sampling by hash, as
 * in SHARDS (Waldspurger and others, FAST'15).  A unit, the range that the module keeps in
 * one set, is in or out as a whole.
 */
#ifndef HYBRID_REPLAY_SAMPLE_H
#define HYBRID_REPLAY_SAMPLE_H

#include <linux/types.h>
#include <stdbool.h>

/* Independent of the map's hash.  (The finalizer of splitmix64.) */
static inline u64 sample_hash(u64 x)
{
	x += 0x9e3779b97f4a7c15ULL;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

struct sample {
	u32 parts;		/* of 2^24: the rate */
	u8 shift;		/* log2 of a unit's sectors */
};

#define SAMPLE_ALL	(1U << 24)

static inline bool sample_has(const struct sample *s, u32 source, u64 sector)
{
	u64 unit = sector >> s->shift;

	return s->parts >= SAMPLE_ALL || (sample_hash(unit << 6 | source) >> 40) < s->parts;
}

static inline double sample_rate(const struct sample *s)
{
	return (double)s->parts / SAMPLE_ALL;
}

#endif
