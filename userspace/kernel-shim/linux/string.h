/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef SHIM_LINUX_STRING_H
#define SHIM_LINUX_STRING_H

#include <linux/errno.h>
#include <linux/types.h>
#include <string.h>

static inline void *memchr_inv(const void *p, int c, size_t n)
{
	const unsigned char *s = p;

	for (; n; s++, n--)
		if (*s != (unsigned char)c)
			return (void *)s;
	return NULL;
}

static inline ssize_t strscpy(char *to, const char *from, size_t size)
{
	size_t n;

	for (n = 0; n < size; n++) {
		to[n] = from[n];
		if (!from[n])
			return (ssize_t)n;
	}
	if (size)
		to[size - 1] = '\0';
	return -E2BIG;
}

static inline bool strstarts(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

#endif
