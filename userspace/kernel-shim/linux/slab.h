/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_SLAB_H
#define SHIM_LINUX_SLAB_H

#include <linux/gfp.h>
#include <linux/overflow.h>
#include <linux/types.h>
#include <stdlib.h>
#include <string.h>

/* Where a test sets it, it says which allocations fail. */
bool (*shim_alloc_fails)(size_t size, gfp_t gfp) __attribute__((weak));

static inline void *shim_alloc(size_t n, size_t size, gfp_t gfp)
{
	size_t bytes;

	if (check_mul_overflow(n, size, &bytes))
		return NULL;
	if (shim_alloc_fails && shim_alloc_fails(bytes, gfp))
		return NULL;
	if (!bytes)
		bytes = 1;
	return gfp & __GFP_ZERO ? calloc(1, bytes) : malloc(bytes);
}

#define kmalloc(size, gfp) shim_alloc(1, size, gfp)
#define kzalloc(size, gfp) shim_alloc(1, size, (gfp) | __GFP_ZERO)
#define kmalloc_array(n, size, gfp) shim_alloc(n, size, gfp)
#define kcalloc(n, size, gfp) shim_alloc(n, size, (gfp) | __GFP_ZERO)
#define kvmalloc(size, gfp) kmalloc(size, gfp)
#define kvzalloc(size, gfp) kzalloc(size, gfp)
#define kvmalloc_array(n, size, gfp) kmalloc_array(n, size, gfp)
#define kvcalloc(n, size, gfp) kcalloc(n, size, gfp)

static inline void kfree(const void *p)
{
	free((void *)p);
}

#define kvfree(p) kfree(p)

static inline char *kstrdup(const char *s, gfp_t gfp)
{
	size_t n = strlen(s) + 1;
	char *p = kmalloc(n, gfp);

	return p ? memcpy(p, s, n) : NULL;
}

#endif
