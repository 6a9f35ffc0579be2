// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sweeps over the map: which window is to be written back next.
 *
 * A sweep gathers the windows with dirty blocks that have the lowest keys from the
 * cursor on.  When it has no room for more, it keeps about the lower half, and takes
 * no higher windows any more.  A set without dirty blocks costs it one bit.  The
 * cursor follows the windows that are handed out.  Each volume has its own sweep.
 *
 * Other work of the pool's worker waits for each step of a sweep.  So a sweep goes in
 * slices, and only the next few windows are sorted, when they are needed.  Divisions
 * made on the way to them are kept.
 *
 * Everything here belongs to the writeback worker alone, except for the sets' bits.
 */
#include "engine-internal.h"

#define MIN_ROOM	1024U		/* windows; more than a set has blocks */
#define FULL_ROOM	8192U		/* from 4 GiB of 64 KiB blocks on */
#define MAX_ROOM	0x100000U
#define SLICE_SETS	256
#define SLICE_WINDOWS	4096
#define SORT_WINDOWS	4096
#define NR_SAMPLES	31

static u32 sweep_room(const struct hybrid_geometry *g)
{
	return clamp(max(g->nr_blocks / 256, min(g->nr_blocks / 8, FULL_ROOM)),
		     MIN_ROOM, MAX_ROOM);
}

/* Memory that grows with the cache device; FULL_ROOM windows count as fixed. */
u64 hybrid_sweep_ram(const struct hybrid_geometry *g)
{
	return g->nr_sets / 8 + (max(sweep_room(g), FULL_ROOM) - FULL_ROOM) * sizeof(u64);
}

int hybrid_sweep_create(struct hybrid_engine *e, struct hybrid_volume *v, u32 volumes)
{
	struct hybrid_sweep *w = &v->writeback.sweep;

	memset(w, 0, sizeof(*w));
	w->cursor = hybrid_key(v->id, to_oblock(0));
	w->room = max(sweep_room(e->g) / volumes, MIN_ROOM);
	w->window = vzalloc(array_size(w->room, sizeof(u64)));
	return w->window ? 0 : -ENOMEM;
}

void hybrid_sweep_destroy(struct hybrid_volume *v)
{
	vfree(v->writeback.sweep.window);
	v->writeback.sweep.window = NULL;
}

void hybrid_sweep_note(struct hybrid_engine *e, const struct hybrid_set *s)
{
	u32 set = s - e->map.set;

	lockdep_assert_held(&s->lock);
	if (!test_bit(set, e->writebacks.dirty_sets))
		set_bit(set, e->writebacks.dirty_sets);
}

/* ---- order --------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* Sort the windows and drop duplicates; returns how many are left. */
static u32 sort_windows(u64 *key, u32 nr)
{
	u32 n, kept = 0;

	sort(key, nr, sizeof(u64), compare_keys, NULL);
	for (n = 0; n < nr; n++)
		if (!kept || key[n] != key[kept - 1])
			key[kept++] = key[n];
	return kept;
}

/*
 * Move about the lower half of the keys, which all differ, to the front; returns their
 * number, at least one and not all, and in *pivot the lowest of the others.
 */
static u32 divide(u64 *key, u32 nr, u64 *pivot)
{
	u64 sample[NR_SAMPLES];
	u32 n, low = 0;

	for (n = 0; n < NR_SAMPLES; n++)
		sample[n] = key[nr / NR_SAMPLES * n];
	sort(sample, NR_SAMPLES, sizeof(u64), compare_keys, NULL);
	*pivot = sample[NR_SAMPLES / 2];
	for (n = 0; n < nr; n++) {
		if (key[n] >= *pivot)
			continue;
		swap(key[n], key[low]);
		low++;
	}
	return low;
}

/* ---- gathering ----------------------------------------------------------- */

static void sweep_set(struct hybrid_engine *e, struct hybrid_sweep *w, u32 set)
{
	struct hybrid_set *s = &e->map.set[set];
	u64 windows = ~((1ULL << e->g->window_shift) - 1), *found = w->window + w->nr;
	u64 cursor = w->cursor, limit = w->limit;
	bool dirty = false;
	unsigned long flags;
	u32 i, n = 0;

	spin_lock_irqsave(&s->lock, flags);
	for (i = 0; i < e->map.set_size; i++) {
		u64 key = s->key[i] & windows;
		bool high_or_low = key < cursor || key >= limit;

		/* If much is dirty, most keys are out of range: only the key is looked at. */
		if ((high_or_low && dirty) || !block_mask(e, s, MASK_DIRTY, i))
			continue;
		dirty = true;
		if (!high_or_low && (s->flags[i] & BLOCK_MAPPED))
			found[n++] = key;
	}
	if (!dirty)
		clear_bit(set, e->writebacks.dirty_sets);
	spin_unlock_irqrestore(&s->lock, flags);
	/* A window's blocks are all in one set. */
	w->nr += n > 1 ? sort_windows(found, n) : n;
}

static void sweep_begin(struct hybrid_sweep *w, u64 end)
{
	w->under_way = true;
	w->set = 0;
	w->limit = end;
	w->nr = 0;
	w->next = 0;
	w->sorted = 0;
	w->nr_ends = 0;
}

/* Returns whether the sweep has ended. */
static bool sweep_slice(struct hybrid_engine *e, struct hybrid_sweep *w)
{
	u32 had = w->nr, n;

	for (n = 0; n < SLICE_SETS && w->nr - had < SLICE_WINDOWS; n++) {
		w->set = find_next_bit(e->writebacks.dirty_sets, e->map.nr_sets, w->set);
		if (w->set >= e->map.nr_sets) {
			w->under_way = false;
			return true;
		}
		if (w->nr + e->map.set_size > w->room) {
			w->nr = divide(w->window, w->nr, &w->limit);
			return false;
		}
		sweep_set(e, w, w->set++);
		cond_resched();
	}
	return false;
}

/* ---- handing out --------------------------------------------------------- */

/* Sort the next windows.  The ends of divisions are kept, the nearest one last. */
static void sort_next(struct hybrid_sweep *w)
{
	u32 end = w->nr_ends ? w->end[--w->nr_ends] : w->nr;
	u64 pivot;

	while (end - w->next > SORT_WINDOWS && w->nr_ends < SWEEP_ENDS) {
		w->end[w->nr_ends++] = end;
		end = w->next + divide(w->window + w->next, end - w->next, &pivot);
	}
	sort_windows(w->window + w->next, end - w->next);
	w->sorted = end;
}

enum sweep_result hybrid_sweep_next(struct hybrid_engine *e, struct hybrid_volume *v, u64 *key)
{
	u64 first = hybrid_key(v->id, to_oblock(0));
	/* Behind the last possible block; the next volume's first key may not fit a u64. */
	u64 end = first + GENMASK_ULL(HYBRID_KEY_SHIFT - 1, 0);
	struct hybrid_sweep *w = &v->writeback.sweep;

	while (w->under_way || w->next == w->nr) {
		if (!w->under_way)
			sweep_begin(w, end);
		if (!sweep_slice(e, w))
			return SWEEP_AGAIN;
		if (w->nr)
			break;
		if (w->cursor == first)
			return SWEEP_NOTHING;
		/* None above the cursor: from the start again. */
		w->cursor = first;
	}
	if (w->next == w->sorted)
		sort_next(w);
	*key = w->window[w->next++];
	w->cursor = *key + 1;
	return SWEEP_WINDOW;
}
