// SPDX-License-Identifier: GPL-2.0-or-later
/* What filesystems say of their reads: which are of metadata. */
#include "rig.h"
#include "engine-internal.h"

#define CUTOFF (2 * BLOCK)
#define RUN 8			/* blocks: beyond the cutoff */

static u64 counter(enum hybrid_counter c)
{
	return status().counter[c];
}

static bool is_cached(u32 block)
{
	u64 key = hybrid_key(1, to_oblock(block));

	return hybrid_set_find(&e->map, &e->map.set[hybrid_map_set_of(&e->map, key)], key) >= 0;
}

/* A small pool, as full as reads of every other block from 0 on make it. */
static void full_pool(void)
{
	static const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u32 k;

	small_pool(8 * MIB, HYBRID_MODE_WRITEBACK, &config);
	for (k = 0; !pool().evictions; k += 2) {
		assert_true(k < 400);
		reads(k * BLOCK, BLOCK, 0);
		tick(100);
	}
	set_cutoff_to(CUTOFF);
}

static void read_run(u32 block)
{
	u32 k;

	for (k = 0; k < RUN; k++) {
		reads((u64)(block + k) * BLOCK, BLOCK, 0);
		tick(100);
	}
}

/* Nobody passes over metadata because they were read in order. */
static void metadata_in_order(void **state)
{
	u64 bypassed;
	u32 k;

	full_pool();
	for (k = 0; k < RUN; k++) {
		assert_int_equal(read_meta((401 + k) * BLOCK, BLOCK), 0);
		assert_true(is_cached(401 + k));
		tick(100);
	}
	assert_int_equal(counter(HYBRID_BYPASS_SEQUENTIAL), 0);
	bypassed = counter(HYBRID_BYPASS_SEQUENTIAL);
	read_run(421);
	assert_true(counter(HYBRID_BYPASS_SEQUENTIAL) > bypassed);
}

/* They are no part of a run of data, and no run is forgotten for them. */
static void metadata_beside_a_run(void **state)
{
	u64 bypassed;
	u32 k;

	full_pool();
	read_run(401);
	for (k = 0; k < 2 * NR_STREAMS; k++) {
		assert_int_equal(read_meta((k * 2 + 1) * BLOCK, 8), 0);
		tick(100);
	}
	bypassed = counter(HYBRID_BYPASS_SEQUENTIAL);
	read_run(401 + RUN);
	assert_int_equal(counter(HYBRID_BYPASS_SEQUENTIAL), bypassed + RUN);
}

/* They are worth what they cost the cache device, whatever its budget. */
static void metadata_cost_wear(void **state)
{
	full_pool();
	WRITE_ONCE(e->endurance, ENDURANCE_SPENT);
	reads(401 * BLOCK, 8, 0);
	assert_int_equal(counter(HYBRID_BYPASS_ENDURANCE), 1);
	assert_int_equal(read_meta(402 * BLOCK, 8), 0);
	assert_int_equal(counter(HYBRID_BYPASS_ENDURANCE), 1);
	assert_true(is_cached(402));
	assert_false(is_cached(401));
}

/* Their blocks come whole, also where nothing has been read again yet. */
static void metadata_without_credit(void **state)
{
	fresh_volume(BLOCK);
	set_cutoff_to(8192);
	this_cpu_ptr(v->counters)->rest_debt = REST_MOST + 100 * REST_COST;
	reads(16 * BLOCK, 8, 0);
	moved(0, 8, 8, 0);
	assert_int_equal(read_meta(32 * BLOCK, 8), 0);
	assert_true(sectors_of(ORIGIN, false) >= BLOCK);
	reads(33 * BLOCK - 8, 8, 0);
	moved(8, 0, 0, 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(metadata_in_order, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(metadata_beside_a_run, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(metadata_cost_wear, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(metadata_without_credit, setup_disks, teardown),
	};

	return cmocka_run_group_tests_name("hints", tests, NULL, NULL);
}
