/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_MATH64_H
#define SHIM_LINUX_MATH64_H

#include <linux/math.h>
#include <linux/types.h>

static inline u64 div_u64_rem(u64 n, u32 d, u32 *rem)
{
	*rem = (u32)(n % d);
	return n / d;
}

static inline u64 div64_u64_rem(u64 n, u64 d, u64 *rem)
{
	*rem = n % d;
	return n / d;
}

static inline u64 div_u64(u64 n, u32 d)
{
	return n / d;
}

static inline u64 div64_u64(u64 n, u64 d)
{
	return n / d;
}

static inline s64 div_s64(s64 n, s32 d)
{
	return n / d;
}

static inline u64 mul_u64_u32_shr(u64 a, u32 mul, unsigned int shift)
{
	return (u64)((unsigned __int128)a * mul >> shift);
}

static inline u64 mul_u64_u64_shr(u64 a, u64 mul, unsigned int shift)
{
	return (u64)((unsigned __int128)a * mul >> shift);
}

static inline u64 mul_u64_u64_div_u64(u64 a, u64 mul, u64 div)
{
	return (u64)((unsigned __int128)a * mul / div);
}

/* Divides the 64-bit lvalue in place and yields the remainder. */
#define do_div(n, base) ({						\
	u32 shim_base = (base);						\
	u32 shim_rem = (u32)((u64)(n) % shim_base);			\
	(n) = (u64)(n) / shim_base;					\
	shim_rem; })

#endif
