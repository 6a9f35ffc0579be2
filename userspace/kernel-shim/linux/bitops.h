/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_BITOPS_H
#define SHIM_LINUX_BITOPS_H

#include <linux/bits.h>
#include <linux/compiler.h>
#include <linux/types.h>

static inline void __set_bit(long nr, volatile unsigned long *p)
{
	p[BIT_WORD(nr)] |= BIT_MASK(nr);
}

static inline void __clear_bit(long nr, volatile unsigned long *p)
{
	p[BIT_WORD(nr)] &= ~BIT_MASK(nr);
}

static inline bool test_bit(long nr, const volatile unsigned long *p)
{
	return p[BIT_WORD(nr)] & BIT_MASK(nr);
}

static inline bool __test_and_set_bit(long nr, volatile unsigned long *p)
{
	bool old = test_bit(nr, p);

	__set_bit(nr, p);
	return old;
}

static inline bool __test_and_clear_bit(long nr, volatile unsigned long *p)
{
	bool old = test_bit(nr, p);

	__clear_bit(nr, p);
	return old;
}

static inline bool test_and_set_bit(long nr, volatile unsigned long *p)
{
	return __atomic_fetch_or(&p[BIT_WORD(nr)], BIT_MASK(nr),
				 __ATOMIC_SEQ_CST) & BIT_MASK(nr);
}

static inline bool test_and_clear_bit(long nr, volatile unsigned long *p)
{
	return __atomic_fetch_and(&p[BIT_WORD(nr)], ~BIT_MASK(nr),
				  __ATOMIC_SEQ_CST) & BIT_MASK(nr);
}

static inline void set_bit(long nr, volatile unsigned long *p)
{
	test_and_set_bit(nr, p);
}

static inline void clear_bit(long nr, volatile unsigned long *p)
{
	test_and_clear_bit(nr, p);
}

#define hweight8(x) ((unsigned int)__builtin_popcount((u8)(x)))
#define hweight16(x) ((unsigned int)__builtin_popcount((u16)(x)))
#define hweight32(x) ((unsigned int)__builtin_popcount((u32)(x)))
#define hweight64(x) ((unsigned long)__builtin_popcountll((u64)(x)))
#define hweight_long(x) ((unsigned long)__builtin_popcountl(x))

static inline int fls(unsigned int x)
{
	return x ? 32 - __builtin_clz(x) : 0;
}

static inline int fls64(u64 x)
{
	return x ? 64 - __builtin_clzll(x) : 0;
}

static inline int ffs64(u64 x)
{
	return __builtin_ffsll((long long)x);
}

#define __ffs(x) ((unsigned long)__builtin_ctzl(x))
#define __ffs64(x) ((unsigned long)__builtin_ctzll(x))
#define __fls(x) ((unsigned long)(BITS_PER_LONG - 1 - __builtin_clzl(x)))
#define ffz(x) __ffs(~(x))

#include <linux/find.h>

#endif
