/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Index types that must not be mixed up, checked by sparse.
 *
 * oblock_t: block of a volume, in units of the pool's block size.
 * cblock_t: cache block, set * set_size + index in the set.
 */
#ifndef DM_HYBRID_BLOCK_TYPES_H
#define DM_HYBRID_BLOCK_TYPES_H

#include <linux/types.h>

typedef u64 __bitwise oblock_t;
typedef u32 __bitwise cblock_t;

static inline oblock_t to_oblock(u64 b)
{
	return (__force oblock_t)b;
}

static inline u64 from_oblock(oblock_t b)
{
	return (__force u64)b;
}

static inline cblock_t to_cblock(u32 b)
{
	return (__force cblock_t)b;
}

static inline u32 from_cblock(cblock_t b)
{
	return (__force u32)b;
}

#endif
