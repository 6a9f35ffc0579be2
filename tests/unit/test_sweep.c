// SPDX-License-Identifier: GPL-2.0-or-later
/* Sweeps over a map with many more dirty windows than one of them has room for. */
#include <stdlib.h>

#include "unit.h"
#include "samples.h"
#include "engine-internal.h"
#include "executor.h"

#define NR_VOLUMES	2
#define VOLUME_BLOCKS	(1U << 22)
#define MAX_STEPS	100000

/* Nothing is moved. */
static const struct hybrid_engine_ops ops = {
	.alloc_buffer = hybrid_execute_no_buffer,
	.free_buffer = hybrid_execute_no_free,
	.checksum = hybrid_execute_no_checksum,
};

static struct hybrid_engine *e;
static u64 *window;		/* with dirty blocks, sorted */
static u32 nr_windows, nr_dirty;
static u32 first[NR_VOLUMES + 1];	/* of each volume's windows, and the end */

static int compare(const void *a, const void *b)
{
	u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static u64 window_of(u64 key)
{
	return key & ~((1ULL << e->g->window_shift) - 1);
}

/* Also the last that there can be: nothing is behind it. */
static const u32 ids[NR_VOLUMES] = { 1, HYBRID_MAX_VOLUMES - 1 };

static struct hybrid_volume *volume(u32 nr)
{
	return volume_of(e, ids[nr]);
}

static struct hybrid_sweep *sweep(u32 nr)
{
	return &volume(nr)->writeback.sweep;
}

/* Up to @nr dirty blocks, each third beside the one before, where there is room. */
static void make_dirty(u32 nr)
{
	u64 seed = 5, key = 0;
	u32 n;

	window = calloc(nr, sizeof(u64));
	assert_non_null(window);
	for (n = 0; n < nr; n++) {
		struct hybrid_set *s;
		int i;

		key = n % 3 == 1 ? key + 1 :
		      hybrid_key(ids[random_below(&seed, NR_VOLUMES)],
				 to_oblock(random_below(&seed, VOLUME_BLOCKS)));
		s = &e->map.set[hybrid_map_set_of(&e->map, key)];
		spin_lock(&s->lock);
		i = hybrid_set_find(&e->map, s, key) < 0 ? hybrid_set_alloc(&e->map, s, key) : -1;
		if (i >= 0) {
			set_put_mask(&e->map, s, MASK_VALID, i, 1);
			hybrid_put_dirty(e, s, i, 1);
			window[nr_dirty++] = window_of(key);
		}
		spin_unlock(&s->lock);
	}
	qsort(window, nr_dirty, sizeof(u64), compare);
	for (n = 0; n < nr_dirty; n++)
		if (!n || window[n] != window[nr_windows - 1])
			window[nr_windows++] = window[n];
	first[NR_VOLUMES] = nr_windows;
	for (first[1] = 0; hybrid_key_volume(window[first[1]]) == ids[0]; first[1]++)
		;
}

static int setup(void **state)
{
	static const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	struct hybrid_volume_info info;
	struct hybrid_sb sb;
	int error;
	u32 n;

	sample_sb(&sb, HYBRID_ROLE_CACHE);
	sample_volume(&info);
	assert_int_equal(hybrid_geometry_init(&sb.geometry, 16 * GIB, 128, 0, NULL), 0);
	e = hybrid_engine_create(&sb, &ops, NULL, hybrid_policy_get("fifo"), &config, &error);
	assert_non_null(e);
	for (n = 0; n < NR_VOLUMES; n++) {
		hybrid_volume_enter(e, ids[n], hybrid_volume_alloc(e, ids[n], &info));
		assert_non_null(volume(n));
		assert_int_equal(hybrid_sweep_create(e, volume(n), NR_VOLUMES), 0);
	}
	nr_windows = 0;
	nr_dirty = 0;
	make_dirty(200000);
	assert_true(nr_windows > 100000 && nr_windows < nr_dirty);
	return 0;
}

static int teardown(void **state)
{
	hybrid_engine_destroy(e);
	free(window);
	return 0;
}

/* The volume's next window, or HYBRID_NO_KEY; no step looks at many sets. */
static u64 next(u32 nr)
{
	struct hybrid_sweep *w = sweep(nr);
	u32 n, set;
	u64 key;

	for (n = 0; n < MAX_STEPS; n++) {
		set = w->under_way ? w->set : 0;
		switch (hybrid_sweep_next(e, volume(nr), &key)) {
		case SWEEP_WINDOW:
			return key;
		case SWEEP_NOTHING:
			return HYBRID_NO_KEY;
		case SWEEP_AGAIN:
			assert_true(w->set <= set + 256);
		}
	}
	fail();
	return 0;
}

/* Each window of a volume once, in the order of their keys; then from the start again. */
static void ascending(void **state)
{
	u32 round, nr, n;

	for (nr = 0; nr < NR_VOLUMES; nr++) {
		assert_true(first[nr + 1] - first[nr] > 4 * sweep(nr)->room);
		for (round = 0; round < 2; round++)
			for (n = first[nr]; n < first[nr + 1]; n++)
				assert_true(next(nr) == window[n]);
	}
}

/* The volumes in turn: none has another's windows, and none keeps another from its own. */
static void side_by_side(void **state)
{
	u32 at[NR_VOLUMES] = { first[0], first[1] }, n, nr;

	for (n = 0; n < 2 * nr_windows; n++) {
		nr = n % NR_VOLUMES;
		assert_true(next(nr) == window[at[nr]]);
		if (++at[nr] == first[nr + 1])
			at[nr] = first[nr];
	}
}

/* All volumes' sweeps have the room of one, and each has enough for a set. */
static void room_is_divided(void **state)
{
	u32 one, nr;

	for (nr = 1, one = 0; nr <= HYBRID_MAX_VOLUMES; nr *= 2) {
		hybrid_sweep_destroy(volume(0));
		assert_int_equal(hybrid_sweep_create(e, volume(0), nr), 0);
		one = one ? one : sweep(0)->room;
		assert_true(sweep(0)->room == max(one / nr, 1024U));
	}
}

/* A window that becomes dirty behind the cursor has its turn in the next round. */
static void behind_the_cursor(void **state)
{
	struct hybrid_set *s;
	u64 key = 0;
	u32 n;
	int i;

	for (n = 0; n < first[1]; n++) {
		assert_true(next(0) == window[n]);
		if (n != 3 * first[1] / 4)
			continue;
		s = &e->map.set[hybrid_map_set_of(&e->map, window[0])];
		spin_lock(&s->lock);
		for (key = window[0] + 1; hybrid_set_find(&e->map, s, key) >= 0; key++)
			;
		i = hybrid_set_alloc(&e->map, s, key);
		assert_true(i >= 0);
		set_put_mask(&e->map, s, MASK_VALID, i, 1);
		hybrid_put_dirty(e, s, i, 1);
		spin_unlock(&s->lock);
	}
	assert_true(next(0) == window_of(key));
}

static void clean_sets_cost_nothing(void **state)
{
	struct hybrid_set *s;
	u32 set, i, n;

	for (n = 0; n < 100; n++)
		assert_true(next(0) == window[n]);
	for (set = 0; set < e->map.nr_sets; set++) {
		s = &e->map.set[set];
		spin_lock(&s->lock);
		for (i = 0; i < e->map.set_size; i++)
			if (s->flags[i] & BLOCK_MAPPED)
				hybrid_put_dirty(e, s, i, 0);
		spin_unlock(&s->lock);
	}
	assert_int_equal(atomic_read(&e->writebacks.nr_dirty), 0);
	for (n = 0; n < NR_VOLUMES; n++)
		while (next(n) != HYBRID_NO_KEY)
			;
	assert_true(find_next_bit(e->writebacks.dirty_sets, e->map.nr_sets, 0) == e->map.nr_sets);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ascending, setup, teardown),
		cmocka_unit_test_setup_teardown(behind_the_cursor, setup, teardown),
		cmocka_unit_test_setup_teardown(side_by_side, setup, teardown),
		cmocka_unit_test_setup_teardown(room_is_divided, setup, teardown),
		cmocka_unit_test_setup_teardown(clean_sets_cost_nothing, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
