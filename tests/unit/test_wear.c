// SPDX-License-Identifier: GPL-2.0-or-later
/* A cache device whose recent errors say that it fails: the pool keeps nothing dirty there. */
#include "rig.h"
#include "engine-internal.h"

#define HOUR_MS	(60 * 60 * 1000)
#define DAY_MS	(24 * HOUR_MS)
#define STEP	(8 * BLOCK)

static void limits(u32 reads, u32 writes)
{
	struct hybrid_config config = *hybrid_engine_config(e);

	config.read_error_limit = reads;
	config.write_error_limit = writes;
	hybrid_engine_configure(e, &config);
}

/* Hits that fail, each of another block; the origin has their data, too. */
static void failed_reads(u32 nr)
{
	u64 sector;

	for (sector = STEP; nr--; sector += STEP) {
		reads(sector, BLOCK, 0);
		fail_cache_reads = true;
		reads(sector, 8, 0);
		fail_cache_reads = false;
	}
	tick(1000);
}

/* No data can be written, but metadata can. */
static void failed_fills(u32 nr)
{
	u64 sector;

	bad_from = e->g->data_sector;
	bad_to = U64_MAX;
	for (sector = STEP; nr--; sector += STEP)
		reads(sector, BLOCK, 0);
	bad_from = bad_to = 0;
	tick(1000);
}

static bool failing(void)
{
	bool says = hybrid_engine_state(e) & HYBRID_STATE_FAILING;

	assert_int_equal(pool().failing, says);
	return says;
}

/* Is a write that arrives now durable on the origin without its cache? */
static bool written_through(void)
{
	static u32 version = 10;

	put(0, BLOCK, ++version);
	return origin_has(0, BLOCK, version);
}

static void reads_fail(void **state)
{
	limits(4, 0);
	put(0, BLOCK, 2);
	failed_reads(3);
	assert_false(failing());
	assert_false(written_through());
	failed_reads(1);
	assert_true(failing());
	assert_int_equal(pool().recent_read_errors, 4);
	assert_int_equal(pool().recent_write_errors, 0);
	rest();
	assert_int_equal(pool().dirty, 0);
	assert_true(hybrid_engine_state(e) & HYBRID_STATE_DRAINED);
	assert_true(written_through());
	/* Nobody asked for a drain, so nobody can end it. */
	assert_false(pool().drain_on);
	assert_true(status().drain_on);
}

static void writes_fail(void **state)
{
	limits(0, 2);
	failed_reads(8);
	assert_false(failing());
	failed_fills(2);
	assert_true(pool().recent_write_errors >= 2);
	assert_true(failing());
	assert_true(written_through());
}

static void no_limits(void **state)
{
	limits(0, 0);
	failed_reads(30);
	failed_fills(30);
	assert_false(failing());
	assert_false(written_through());
}

/* By default a few errors are none of it, and many are. */
static void default_limits(void **state)
{
	failed_reads(19);
	assert_false(failing());
	failed_reads(1);
	assert_true(failing());
}

/* Halved each day, idle or not; failing until nothing is left. */
static void forgotten(void **state)
{
	limits(4, 0);
	failed_reads(5);
	assert_true(failing());
	tick(DAY_MS - 2000);
	assert_int_equal(pool().recent_read_errors, 5);
	tick(2000);
	assert_int_equal(pool().recent_read_errors, 2);
	assert_true(failing());
	tick(DAY_MS / 2);
	tick(DAY_MS / 2);
	assert_int_equal(pool().recent_read_errors, 1);
	assert_true(failing());
	assert_true(written_through());
	tick(DAY_MS);
	assert_false(failing());
	assert_false(written_through());
	failed_reads(1);
	assert_false(failing());
	/* After a month without I/O there is one tick, and ticks of 32 days count as that. */
	tick(30 * (u32)DAY_MS);
	assert_int_equal(pool().recent_read_errors, 0);
}

static void limit_raised(void **state)
{
	limits(4, 0);
	failed_reads(5);
	assert_true(failing());
	limits(5, 0);
	assert_true(failing());
	limits(6, 0);
	assert_false(failing());
	assert_false(written_through());
	tick(1000);
	assert_false(failing());
	limits(5, 0);
	assert_true(failing());
	limits(0, 0);
	assert_false(failing());
}

/* Other settings say nothing about errors: a device that is failing, below its limit, still is. */
static void other_settings(void **state)
{
	struct hybrid_config config;

	limits(4, 0);
	failed_reads(5);
	tick(DAY_MS);
	config = *hybrid_engine_config(e);
	config.high_watermark = 50;
	hybrid_engine_configure(e, &config);
	assert_true(failing());
}

static void drain(bool on)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_engine_drain(e, NULL, on, 0, &acts);
	carry(&acts);
}

/* A drain that was asked for before is not over when the device is no longer failing. */
static void drain_outlives_failing(void **state)
{
	limits(4, 0);
	drain(true);
	assert_true(pool().drain_on);
	failed_reads(5);
	assert_true(failing());
	limits(0, 0);
	assert_false(failing());
	assert_true(pool().drain_on);
	assert_true(written_through());
	drain(false);
	assert_false(pool().drain_on);
	assert_false(written_through());
}

/* The end of a requested drain ends nothing else. */
static void drain_cancelled(void **state)
{
	limits(4, 0);
	drain(true);
	failed_reads(5);
	assert_true(failing());
	drain(false);
	assert_true(written_through());
}

/* The root keeps the errors, so a reboot forgets nothing; a requested drain ends there. */
static void kept(void **state)
{
	const char *why;

	failed_reads(20);
	assert_true(failing());
	stop();
	assert_int_equal(hybrid_engine_restart(e, &why), 0);
	open_volume();
	assert_true(failing());
	assert_true(written_through());
	stop();
	crash();
	start();
	open_volume();
	assert_int_equal(pool().recent_read_errors, 20);
	assert_true(failing());
	assert_true(written_through());
	assert_int_equal(pool().read_errors, 0);
}

/* Days are days of operation, whatever their parts: after 30 hours the first one has passed. */
static void halved_in_parts(void **state)
{
	u32 n;

	failed_reads(20);
	for (n = 1; n <= 5; n++) {
		tick(10 * HOUR_MS);
		stop();
		crash();
		start();
		open_volume();
		tick(1000);
		assert_int_equal(pool().recent_read_errors, n < 3 ? 20 : n < 5 ? 10 : 5);
	}
}

/* The budget: the amount saved up, or owed. */
static void budget(void **state)
{
	struct hybrid_config config = *hybrid_engine_config(e);

	assert_true(pool().endurance <= 0);
	config.endurance = 24;		/* MiB a day: 1 an hour */
	hybrid_engine_configure(e, &config);
	tick(1000);
	tick(DAY_MS / 24);
	assert_in_range(pool().endurance, 1900, 2048);
	failed_reads(30);
	put(0, BLOCK, 2);
	tick(1000);
	assert_true(pool().endurance < 1900);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(reads_fail, setup, teardown),
		cmocka_unit_test_setup_teardown(writes_fail, setup, teardown),
		cmocka_unit_test_setup_teardown(drain_outlives_failing, setup, teardown),
		cmocka_unit_test_setup_teardown(no_limits, setup, teardown),
		cmocka_unit_test_setup_teardown(default_limits, setup, teardown),
		cmocka_unit_test_setup_teardown(forgotten, setup, teardown),
		cmocka_unit_test_setup_teardown(limit_raised, setup, teardown),
		cmocka_unit_test_setup_teardown(other_settings, setup, teardown),
		cmocka_unit_test_setup_teardown(drain_cancelled, setup, teardown),
		cmocka_unit_test_setup_teardown(kept, setup, teardown),
		cmocka_unit_test_setup_teardown(halved_in_parts, setup, teardown),
		cmocka_unit_test_setup_teardown(budget, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
