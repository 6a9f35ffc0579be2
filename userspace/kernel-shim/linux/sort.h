/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_SORT_H
#define SHIM_LINUX_SORT_H

#include <linux/types.h>
#include <stdlib.h>

static inline void sort(void *base, size_t n, size_t size,
			int (*cmp)(const void *, const void *),
			void (*swap_func)(void *, void *, int))
{
	(void)swap_func;
	if (n)
		qsort(base, n, size, cmp);
}

#endif
