/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Common to all unit tests: cmocka and its prerequisites, a seeded PRNG. */
#ifndef UNIT_H
#define UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core.h"

#define MIB ((u64)2048)		/* in sectors */
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)

/* xorshift64*: the same numbers on every machine */
static inline u64 next_random(u64 *seed)
{
	*seed ^= *seed >> 12;
	*seed ^= *seed << 25;
	*seed ^= *seed >> 27;
	return *seed * 0x2545f4914f6cdd1dULL;
}

static inline u32 random_below(u64 *seed, u32 n)
{
	return (next_random(seed) >> 32) % n;
}

#endif
