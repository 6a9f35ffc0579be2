/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_BITMAP_H
#define SHIM_LINUX_BITMAP_H

#include <linux/bitops.h>
#include <linux/slab.h>
#include <linux/string.h>

#define DECLARE_BITMAP(name, bits) unsigned long name[BITS_TO_LONGS(bits)]

static inline void bitmap_zero(unsigned long *p, unsigned int bits)
{
	memset(p, 0, BITS_TO_LONGS(bits) * sizeof(long));
}

static inline void bitmap_fill(unsigned long *p, unsigned int bits)
{
	memset(p, 0xff, BITS_TO_LONGS(bits) * sizeof(long));
}

static inline void bitmap_copy(unsigned long *to, const unsigned long *from,
			       unsigned int bits)
{
	memcpy(to, from, BITS_TO_LONGS(bits) * sizeof(long));
}

static inline void bitmap_set(unsigned long *p, unsigned int from, unsigned int n)
{
	while (n--)
		__set_bit(from++, p);
}

static inline void bitmap_clear(unsigned long *p, unsigned int from, unsigned int n)
{
	while (n--)
		__clear_bit(from++, p);
}

static inline bool bitmap_empty(const unsigned long *p, unsigned int bits)
{
	return find_first_bit(p, bits) == bits;
}

static inline bool bitmap_full(const unsigned long *p, unsigned int bits)
{
	return find_first_zero_bit(p, bits) == bits;
}

static inline unsigned int bitmap_weight(const unsigned long *p, unsigned int bits)
{
	unsigned int n = 0, i;

	for_each_set_bit(i, p, bits)
		n++;
	return n;
}

static inline unsigned long *bitmap_zalloc(unsigned int bits, gfp_t gfp)
{
	return kcalloc(BITS_TO_LONGS(bits), sizeof(long), gfp);
}

static inline void bitmap_free(const unsigned long *p)
{
	kfree(p);
}

#endif
