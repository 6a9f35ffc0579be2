/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Put in front of every file that is fuzzed.  Large pieces of memory are used
 * again: a sanitizer gets each of them from the kernel, page by page, which
 * takes most of the time.  They are poisoned as its own are.
 */
#ifndef FUZZ_ALLOC_H
#define FUZZ_ALLOC_H

#include <stdlib.h>

void *fuzz_malloc(size_t bytes);
void *fuzz_calloc(size_t n, size_t bytes);
void *fuzz_realloc(void *p, size_t bytes);
void fuzz_free(void *p);
/* Page-aligned. */
void *fuzz_large(size_t bytes);

/* In use: in all, and in large pieces, which no leak checker looks at. */
extern size_t fuzz_bytes, fuzz_large_bytes;

#define malloc(bytes) fuzz_malloc(bytes)
#define calloc(n, bytes) fuzz_calloc(n, bytes)
#define realloc(p, bytes) fuzz_realloc(p, bytes)
#define free(p) fuzz_free(p)

#endif
