/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_FIND_H
#define SHIM_LINUX_FIND_H

#include <linux/bitops.h>

/*
 * First bit from @from on whose value is @value, or @size.  Bits may change meanwhile: a search
 * without a lock must cope with that.
 */
static inline unsigned long shim_find(const unsigned long *p, unsigned long size,
				      unsigned long from, bool value)
{
	while (from < size) {
		unsigned long w = READ_ONCE(p[BIT_WORD(from)]);

		if (!value)
			w = ~w;
		w &= ~0UL << (from % BITS_PER_LONG);
		from -= from % BITS_PER_LONG;
		if (w) {
			from += __ffs(w);
			return from < size ? from : size;
		}
		from += BITS_PER_LONG;
	}
	return size;
}

#define find_next_bit(p, size, from) shim_find(p, size, from, true)
#define find_first_bit(p, size) shim_find(p, size, 0, true)
#define find_next_zero_bit(p, size, from) shim_find(p, size, from, false)
#define find_first_zero_bit(p, size) shim_find(p, size, 0, false)

#define for_each_set_bit(bit, p, size)					\
	for ((bit) = find_first_bit(p, size); (bit) < (size);		\
	     (bit) = find_next_bit(p, size, (bit) + 1))
#define for_each_clear_bit(bit, p, size)				\
	for ((bit) = find_first_zero_bit(p, size); (bit) < (size);	\
	     (bit) = find_next_zero_bit(p, size, (bit) + 1))

#endif
