// SPDX-License-Identifier: GPL-2.0-or-later
#include <linux/bits.h>
#include <linux/build_bug.h>
#include <linux/bitops.h>
#include <linux/log2.h>
#include <linux/minmax.h>
#include <stdlib.h>

#include "footprint.h"
#include "trace.h"

#define PAGE_SHIFT_	3	/* sectors */
#define KEY_SHIFT	(54 - FOOTPRINT_WINDOW_SHIFT)

static_assert(TRACE_MAX_SECTOR >> FOOTPRINT_WINDOW_SHIFT == 1ULL << KEY_SHIFT);

static u64 key_of(u32 source, u64 window)
{
	return ((u64)(source + 1) << KEY_SHIFT) | window;
}

/* The window's place in the table, or the free place for it. */
static struct footprint_window *find(const struct footprint *f, u64 key)
{
	u64 i = sample_hash(key) & (f->size - 1);

	while (f->table[i].key && f->table[i].key != key)
		i = (i + 1) & (f->size - 1);
	return &f->table[i];
}

static bool grow(struct footprint *f)
{
	struct footprint new = { .size = f->size ? 2 * f->size : 1024, .used = f->used };
	u64 i;

	new.table = calloc(new.size, sizeof(*new.table));
	if (!new.table)
		return false;
	for (i = 0; i < f->size; i++)
		if (f->table[i].key)
			*find(&new, f->table[i].key) = f->table[i];
	free(f->table);
	*f = new;
	return true;
}

bool footprint_add(struct footprint *f, u32 source, u64 sector, u32 count)
{
	u64 page = sector >> PAGE_SHIFT_, last = (sector + count - 1) >> PAGE_SHIFT_;
	struct footprint_window *w;
	u32 from, to;

	for (; page <= last; page = (page | 63) + 1) {
		if (4 * f->used >= 3 * f->size && !grow(f))
			return false;
		w = find(f, key_of(source, page >> 6));
		f->used += !w->key;
		w->key = key_of(source, page >> 6);
		from = page & 63;
		to = page >> 6 == last >> 6 ? last & 63 : 63;
		w->pages |= GENMASK_ULL(to, from);
	}
	return true;
}

/* Blocks within a window. */
static u32 count_parts(u64 pages, u32 block_pages)
{
	u32 at, n = 0;

	for (at = 0; at < 64; at += block_pages)
		n += !!(pages & GENMASK_ULL(at + block_pages - 1, at));
	return n;
}

/* Is this the first touched window of its block? */
static bool is_first(const struct footprint *f, u64 key, u32 windows)
{
	u64 first = key & ~(u64)(windows - 1);

	while (first < key && !find(f, first)->key)
		first++;
	return first == key;
}

static bool sampled(const struct sample *sample, u64 key)
{
	u64 window = key & ((1ULL << KEY_SHIFT) - 1);

	return sample_has(sample, (key >> KEY_SHIFT) - 1, window << FOOTPRINT_WINDOW_SHIFT);
}

u64 footprint_blocks(const struct footprint *f, u32 block_sectors, const struct sample *sample)
{
	u32 pages = block_sectors >> PAGE_SHIFT_;
	u64 i, n = 0;

	for (i = 0; i < f->size; i++) {
		if (!f->table[i].key || !sampled(sample, f->table[i].key))
			continue;
		if (pages <= 64)
			n += count_parts(f->table[i].pages, pages);
		else
			n += is_first(f, f->table[i].key, pages / 64);
	}
	return n;
}

void footprint_free(struct footprint *f)
{
	free(f->table);
	*f = (struct footprint) { .size = 0 };
}
