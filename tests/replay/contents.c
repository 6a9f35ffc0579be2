// SPDX-License-Identifier: GPL-2.0-or-later
/* Real sectors as values: equal bytes, equal values. */
#include <stdlib.h>

#include "replay.h"

static const char zeroes[512] __attribute__((aligned(512)));

static const void **table;
static u64 table_size, table_used;

static u64 hash_bytes(const void *bytes)
{
	const u64 *word = bytes;
	u64 h = 0;
	int i;

	for (i = 0; i < 64; i++)
		h = (h ^ word[i]) * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 32;
}

static const void **slot_of(const void *bytes)
{
	u64 i = hash_bytes(bytes);

	while (table[i & (table_size - 1)] && memcmp(table[i & (table_size - 1)], bytes, 512))
		i++;
	return &table[i & (table_size - 1)];
}

static void more_room(void)
{
	const void **old = table;
	u64 size = table_size, i;

	table_size = size ? 2 * size : 1 << 16;
	table = xalloc(table_size * sizeof(*table));
	for (i = 0; i < size; i++)
		if (old[i])
			*slot_of(old[i]) = old[i];
	free(old);
}

val_t content(const void *bytes, bool data)
{
	const void **slot;

	if (!memcmp(bytes, zeroes, 512))
		return data ? VAL_ZERO : (val_t)zeroes;
	if (2 * table_used >= table_size)
		more_room();
	slot = slot_of(bytes);
	if (!*slot) {
		*slot = bytes;
		table_used++;
	}
	return (val_t)*slot;
}

/*
 * Returns the 512 bytes of a value.  Data that nobody wrote (junk, on a cache device) was
 * zeroes when the trace began.
 */
const void *content_bytes(val_t val)
{
	return !val || val == VAL_ZERO || val >> 56 ? zeroes : (const void *)val;
}

/* ---- Former values of sectors ------------------------------------------------ */

struct past {
	val_t val;
	u32 version;
	u32 next;
};

struct history {
	u32 *head;
	struct past *past;
	u32 nr, cap;
};

struct history *history_new(u64 sectors)
{
	struct history *h = xalloc(sizeof(*h));

	h->head = xalloc(sectors * sizeof(*h->head));
	h->nr = 1;
	return h;
}

void history_add(struct history *h, u64 sector, u32 version, val_t val)
{
	if (h->nr >= h->cap) {
		h->cap = max(2 * h->cap, 1024U);
		h->past = xrealloc(h->past, h->cap * sizeof(*h->past));
	}
	h->past[h->nr] = (struct past){ val, version, h->head[sector] };
	h->head[sector] = h->nr++;
}

bool history_held(const struct history *h, u64 sector, val_t val, u32 version)
{
	u32 i;

	for (i = h->head[sector]; i; i = h->past[i].next)
		if (h->past[i].val == val && h->past[i].version <= version)
			return true;
	return false;
}
