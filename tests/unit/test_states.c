// SPDX-License-Identifier: GPL-2.0-or-later
/* States reported to an admin when they begin (events.c), and the conditions that end them. */
#include "rig.h"
#include "engine-internal.h"

static bool pool_is(u32 wanted)
{
	return hybrid_engine_state(e) & wanted;
}

static bool volume_is(u32 wanted)
{
	return hybrid_volume_state(v) & wanted;
}

static void drain(struct hybrid_volume *which, bool on)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_engine_drain(e, which, on, 0, &acts);
	carry(&acts);
}

/* Above the high watermark, and not below it, until the low one is reached. */
static void watermarks(void **state)
{
	struct hybrid_config config = { .high_watermark = 100, .low_watermark = 100,
					.commit_interval = 60000 };
	u32 n;

	small_pool(8 * MIB, HYBRID_MODE_WRITEBACK, &config);
	for (n = 0; n < 20; n++)
		put(n * BLOCK, 8, 1);
	tick(100);
	assert_false(pool_is(HYBRID_STATE_OVER_WATERMARK));
	/* all that is dirty is above it */
	config.high_watermark = 1;
	config.low_watermark = 0;
	config.writeback_rate = 1;
	assert_int_equal(hybrid_engine_configure(e, &config), 0);
	fail_origin = true;
	tick(100);
	assert_true(pool_is(HYBRID_STATE_OVER_WATERMARK));
	/* ... between the two */
	config.high_watermark = 100;
	assert_int_equal(hybrid_engine_configure(e, &config), 0);
	tick(100);
	assert_int_equal(status().dirty, 20);
	assert_true(pool_is(HYBRID_STATE_OVER_WATERMARK));
	/* ... at the low one, with nothing dirty */
	fail_origin = false;
	drain(v, true);
	for (n = 0; status().dirty; n++) {
		assert_true(n < 1000);
		tick(1000);
	}
	tick(100);
	assert_false(pool_is(HYBRID_STATE_OVER_WATERMARK));
}

/* It is used up when ten minutes' is owed, until half an hour's has been saved. */
static void endurance(void **state)
{
	struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u32 n;

	config.endurance = 1024;	/* MiB a day: 43 an hour */
	small_pool(8 * MIB, HYBRID_MODE_WRITETHROUGH, &config);
	tick(100);
	tick(3600 * 1000);
	assert_false(pool_is(HYBRID_STATE_ENDURANCE_USED));
	for (n = 0; n < 44 * 16; n++)
		assert_int_equal(write_io(0, BLOCK, n, false), 0);
	tick(1);
	assert_int_equal(e->wear.endurance, ENDURANCE_SHORT);
	assert_false(pool_is(HYBRID_STATE_ENDURANCE_USED));
	for (n = 0; n < 9 * 16; n++)
		assert_int_equal(write_io(0, BLOCK, n, false), 0);
	tick(1);
	assert_true(pool_is(HYBRID_STATE_ENDURANCE_USED));
	/* the debt is paid: reads are cached again, and the next of them may use up the budget */
	tick(1000 * 1000);
	assert_int_equal(e->wear.endurance, ENDURANCE_PLENTY);
	assert_true(pool_is(HYBRID_STATE_ENDURANCE_USED));
	tick(1800 * 1000);
	assert_false(pool_is(HYBRID_STATE_ENDURANCE_USED));
	/* no limit, nothing to use up */
	for (n = 0; n < 43 * 16; n++)
		assert_int_equal(write_io(0, BLOCK, n, false), 0);
	tick(1);
	assert_true(pool_is(HYBRID_STATE_ENDURANCE_USED));
	config.endurance = 0;
	assert_int_equal(hybrid_engine_configure(e, &config), 0);
	tick(100);
	assert_false(pool_is(HYBRID_STATE_ENDURANCE_USED));
}

/* Not before all is written back; and only where it was asked for. */
static void drained(void **state)
{
	static const struct hybrid_config lazy = {
		.high_watermark = 100, .low_watermark = 100, .commit_interval = 60000,
	};
	bool whole;
	u32 n;

	assert_int_equal(hybrid_engine_configure(e, &lazy), 0);
	for (whole = false; ; whole = true) {
		set_mode(HYBRID_MODE_WRITEBACK);
		put(0, 8, 1);
		assert_int_equal(flush_volume(), 0);
		assert_false(pool_is(HYBRID_STATE_DRAINED) || volume_is(HYBRID_STATE_DRAINED));
		fail_origin = true;
		drain(whole ? NULL : v, true);
		assert_int_equal(status().dirty, 1);
		assert_false(pool_is(HYBRID_STATE_DRAINED) || volume_is(HYBRID_STATE_DRAINED));
		fail_origin = false;
		for (n = 0; status().dirty; n++) {
			assert_true(n < 1000);
			tick(100);
		}
		assert_int_equal(pool_is(HYBRID_STATE_DRAINED), whole);
		assert_int_equal(volume_is(HYBRID_STATE_DRAINED), !whole);
		drain(whole ? NULL : v, false);
		assert_false(pool_is(HYBRID_STATE_DRAINED) || volume_is(HYBRID_STATE_DRAINED));
		if (whole)
			break;
	}
	set_mode(HYBRID_MODE_WRITETHROUGH);
	assert_true(volume_is(HYBRID_STATE_DRAINED));
}

static void dirty_is(u32 blocks, u64 sectors)
{
	u64 listed;

	if (v) {
		assert_int_equal(status().dirty, blocks);
		assert_int_equal(status().dirty_sectors, sectors);
	}
	assert_int_equal(pool().dirty_sectors, sectors);
	assert_int_equal(hybrid_volume_dirty(e, 1, &listed), blocks);
	assert_int_equal(listed, sectors);
	assert_null(hybrid_engine_check(e));
}

/* Granules that only the cache has: in RAM or on record, for as long as either of them says so. */
static void dirty_granules(void **state)
{
	static const struct hybrid_config lazy = {
		.high_watermark = 100, .low_watermark = 100, .commit_interval = 60000,
	};
	u32 n;

	assert_int_equal(hybrid_engine_configure(e, &lazy), 0);
	set_mode(HYBRID_MODE_WRITEBACK);
	dirty_is(0, 0);
	put(0, 8, 1);
	dirty_is(1, 8);
	put(0, 8, 2);
	dirty_is(1, 8);
	put(8, 24, 1);
	put(2 * BLOCK + 16, 8, 1);
	dirty_is(2, 40);
	assert_int_equal(flush_volume(), 0);
	dirty_is(2, 40);
	/* Gone from RAM, and not yet from the record */
	assert_int_equal(submit(&writer, HYBRID_IO_DISCARD, 2 * BLOCK + 16, 8, 0), 0);
	put(2 * BLOCK + 24, 8, 1);
	dirty_is(2, 48);
	assert_int_equal(flush_volume(), 0);
	dirty_is(2, 40);
	crash();
	start();
	open_volume();
	dirty_is(2, 40);
	stop();
	crash();
	start();
	assert_null(v);
	dirty_is(2, 40);
	open_volume();
	drain(v, true);
	for (n = 0; status().dirty; n++) {
		assert_true(n < 1000);
		tick(100);
	}
	dirty_is(0, 0);
}

static bool pool_drain_is_on(void)
{
	struct hybrid_pool_status st;

	hybrid_engine_status(e, &st);
	return st.drain_on && !st.draining;
}

/* It keeps writes from the mode writeback until it is ended, dirty or not. */
static void drain_goes_on(void **state)
{
	set_mode(HYBRID_MODE_WRITEBACK);
	assert_false(status().drain_on || pool_drain_is_on());
	drain(v, true);
	assert_true(status().drain_on && !status().draining && !pool_drain_is_on());
	drain(NULL, true);
	drain(v, false);
	assert_true(status().drain_on && !status().draining && pool_drain_is_on());
	drain(NULL, false);
	assert_false(status().drain_on || pool_drain_is_on());
	drain(v, true);
	set_mode(HYBRID_MODE_WRITETHROUGH);
	assert_false(status().drain_on);
	set_mode(HYBRID_MODE_WRITEBACK);
	assert_false(status().drain_on);
}

/* A mode that keeps nothing dirty drains by itself: no end of a drain ends that. */
static void drain_of_a_mode(void **state)
{
	u32 n;

	set_mode(HYBRID_MODE_WRITEBACK);
	put(0, 8, 1);
	assert_int_equal(flush_volume(), 0);
	fail_origin = true;
	set_mode(HYBRID_MODE_WRITETHROUGH);
	drain(v, true);
	drain(v, false);
	assert_int_equal(status().dirty, 1);
	fail_origin = false;
	for (n = 0; status().dirty; n++) {
		assert_true(n < 1000);
		tick(100);
	}
}

static void fail_cache(bool fails)
{
	fail_cache_writes = fails;
	fail_cache_reads = fails;
}

/* The volume comes up in another life of the pool, whose cache device works again. */
static void come_back(void)
{
	crash();
	fail_cache(false);
	start();
	open_volume();
	assert_false(volume_is(HYBRID_STATE_FAILED) || pool_is(HYBRID_STATE_FAILED));
}

static void failed(void)
{
	fail_cache(true);
	assert_int_equal(wait_checkpoint(e), -EIO);
	assert_true(pool_is(HYBRID_STATE_FAILED));
	assert_true(volume_is(HYBRID_STATE_FAILED));
}

/* A pool that fails degrades its volumes: of one that goes on, and of one that lost data. */
static void failed_and_healed(void **state)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	read_io(0, BLOCK);
	stop();
	come_back();
	assert_false(volume_is(HYBRID_STATE_HEALTHY_AGAIN));
	failed();
	assert_int_equal(write_io(0, 8, 1, false), 0);
	assert_int_equal(flush_volume(), 0);
	come_back();
	assert_true(volume_is(HYBRID_STATE_HEALTHY_AGAIN));
	/* once */
	stop();
	come_back();
	assert_false(volume_is(HYBRID_STATE_HEALTHY_AGAIN));
	set_mode(HYBRID_MODE_WRITEBACK);
	put(0, 8, 2);
	assert_int_equal(flush_volume(), 0);
	failed();
	assert_true(hybrid_volume_suspend(e, v, &acts));
	carry(&acts);
	assert_int_equal(hybrid_volume_close(e, v), -EIO);
	come_back();
	assert_true(volume_is(HYBRID_STATE_HEALTHY_AGAIN));
	reads(0, 8, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(watermarks, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(endurance, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(drained, setup, teardown),
		cmocka_unit_test_setup_teardown(dirty_granules, setup, teardown),
		cmocka_unit_test_setup_teardown(drain_goes_on, setup, teardown),
		cmocka_unit_test_setup_teardown(drain_of_a_mode, setup, teardown),
		cmocka_unit_test_setup_teardown(failed_and_healed, setup, teardown),
	};

	return cmocka_run_group_tests_name("states", tests, NULL, NULL);
}
