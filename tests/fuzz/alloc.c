// SPDX-License-Identifier: GPL-2.0-or-later
#include "alloc.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#undef malloc
#undef calloc
#undef realloc
#undef free

#define LARGE	(64 << 10)
#define PAGE	4096
#define MAX_PIECES	256

void __asan_poison_memory_region(const volatile void *p, size_t bytes) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void *p, size_t bytes) __attribute__((weak));

size_t fuzz_bytes, fuzz_large_bytes;

static struct piece {
	uint8_t *p;
	size_t capacity, bytes;
	bool used;
} pieces[MAX_PIECES];

/* Poisons the bytes behind the piece's end, or the whole piece once it is freed. */
static void fence(const struct piece *piece, size_t bytes)
{
	if (!__asan_poison_memory_region)
		return;
	__asan_unpoison_memory_region(piece->p, bytes);
	__asan_poison_memory_region(piece->p + bytes, piece->capacity - bytes);
}

static struct piece *find(const void *p)
{
	struct piece *piece;

	for (piece = pieces; piece < pieces + MAX_PIECES && piece->p; piece++)
		if (piece->p == p)
			return piece;
	return NULL;
}

void *fuzz_large(size_t bytes)
{
	size_t capacity = (bytes + PAGE) / PAGE * PAGE;
	struct piece *piece;

	for (piece = pieces; piece < pieces + MAX_PIECES && piece->p; piece++)
		if (!piece->used && piece->capacity == capacity)
			break;
	if (piece == pieces + MAX_PIECES)
		abort();
	if (!piece->p) {
		piece->p = aligned_alloc(PAGE, capacity);
		piece->capacity = capacity;
	}
	if (!piece->p)
		return NULL;
	piece->used = true;
	fuzz_bytes += bytes;
	fuzz_large_bytes += bytes;
	piece->bytes = bytes;
	fence(piece, bytes);
	return piece->p;
}

static void *counted(void *p)
{
	fuzz_bytes += malloc_usable_size(p);
	return p;
}

void *fuzz_malloc(size_t bytes)
{
	return bytes < LARGE ? counted(malloc(bytes)) : fuzz_large(bytes);
}

void *fuzz_calloc(size_t n, size_t bytes)
{
	size_t all;
	void *p;

	if (__builtin_mul_overflow(n, bytes, &all) || all < LARGE)
		return counted(calloc(n, bytes));
	p = fuzz_large(all);
	return p ? memset(p, 0, all) : NULL;
}

void *fuzz_realloc(void *old, size_t bytes)
{
	struct piece *piece = find(old);
	void *p;

	if (!piece) {
		fuzz_bytes -= malloc_usable_size(old);
		return counted(realloc(old, bytes));
	}
	p = fuzz_malloc(bytes);
	if (!p)
		return NULL;
	memcpy(p, old, bytes < piece->bytes ? bytes : piece->bytes);
	fuzz_free(old);
	return p;
}

void fuzz_free(void *p)
{
	struct piece *piece = find(p);

	if (!piece) {
		fuzz_bytes -= malloc_usable_size(p);
		free(p);
		return;
	}
	if (!piece->used)
		abort();
	piece->used = false;
	fuzz_bytes -= piece->bytes;
	fuzz_large_bytes -= piece->bytes;
	fence(piece, 0);
}

