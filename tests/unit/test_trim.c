// SPDX-License-Identifier: GPL-2.0-or-later
/* Free blocks whose places are discarded on the cache device. */
#include "rig.h"
#include "engine-internal.h"

#define BLOCKS 48		/* that are cached, and discarded by the user: 3 MiB */

static struct hybrid_config with_rate(u32 rate)
{
	struct hybrid_config config = HYBRID_CONFIG_DEFAULT;

	config.trim_rate = rate;
	return config;
}

static void set_rate(u32 rate)
{
	struct hybrid_config config = with_rate(rate);

	hybrid_engine_configure(e, &config);
}

/* Dirty blocks, of which half is written back. */
static void cache_blocks(void)
{
	u32 k;

	set_mode(HYBRID_MODE_WRITEBACK);
	for (k = 0; k < BLOCKS; k++)
		put(k * BLOCK, BLOCK, 7);
	assert_int_equal(flush_volume(), 0);
	for (k = 0; k < BLOCKS; k += 2) {
		struct hybrid_actions acts;

		hybrid_actions_init(&acts);
		hybrid_engine_evict(e, v, to_oblock(k), &acts);
		carry(&acts);
	}
	rest();
	assert_int_equal(pool().used, BLOCKS);
	assert_int_equal(pool().trimmed, 0);
}

static void discard_all(void)
{
	u32 k;

	for (k = 0; k < BLOCKS; k++)
		assert_int_equal(submit(&writer, HYBRID_IO_DISCARD, k * BLOCK, BLOCK, 0), 0);
}

static void pass(u32 ms)
{
	for (; ms; ms -= 100)
		tick(100);
}

static u32 discards(void)
{
	u32 k, n = 0;

	for (k = 0; k < nr_log; k++)
		n += op_log[k].discard;
	return n;
}

/* Blocks that a user discards are given back to the cache device: in runs, of the data area. */
static void what_is_discarded(void **state)
{
	u32 k;

	cache_blocks();
	discard_all();
	pass(3000);
	assert_int_equal(pool().used, 0);
	assert_int_equal(pool().free, pool().blocks);
	assert_int_equal(pool().trimmed, BLOCKS * BLOCK);
	assert_in_range(discards(), 1, BLOCKS / 4);
	for (k = 0; k < nr_log; k++)
		if (op_log[k].discard)
			assert_true(op_log[k].sector >= e->g->data_sector &&
				    !(op_log[k].count % BLOCK));
	assert_null(hybrid_engine_check(e));
	/* There is nothing more to do ... */
	assert_false(tick(100));
	/* ... and the places are used as any others. */
	for (k = 0; k < 2 * BLOCKS; k++)
		put(k * BLOCK, BLOCK, 8);
	for (k = 0; k < 2 * BLOCKS; k++)
		reads(k * BLOCK, BLOCK, 8);
}

/* A place is discarded once after it was used. */
static void not_again(void **state)
{
	cache_blocks();
	discard_all();
	pass(3000);
	put(BLOCKS * BLOCK, BLOCK, 9);
	rest();
	assert_int_equal(submit(&writer, HYBRID_IO_DISCARD, BLOCKS * BLOCK, BLOCK, 0), 0);
	pass(5000);
	assert_int_equal(pool().trimmed, (BLOCKS + 1) * BLOCK);
}

/* Blocks evicted for other data are used again at once. */
static void not_what_is_evicted(void **state)
{
	const struct hybrid_config config = with_rate(1 << 20);
	u32 k;

	small_pool(12 * MIB, HYBRID_MODE_WRITEBACK, &config);
	for (k = 0; pool().evictions < 100; k += 2) {
		assert_true(k < 800);
		reads(k * BLOCK, BLOCK, 0);
		tick(100);
	}
	rest();
	assert_int_equal(pool().trimmed, 0);
}

/* Of a volume that is deleted, nothing is left. */
static void deleted_volume(void **state)
{
	cache_blocks();
	delete_volume();
	pass(3000);
	assert_int_equal(pool().trimmed, BLOCKS * BLOCK);
}

/* So much a second; short runs cost as much as a MiB. */
static void rate(void **state)
{
	u64 before;
	u32 n;

	set_rate(1024);
	cache_blocks();
	discard_all();
	for (n = 0; !pool().trimmed; n++) {
		assert_true(n < 50);
		tick(100);
	}
	/* A second's was saved up; more has to be paid before there is another. */
	before = pool().trimmed;
	assert_in_range(before, 24 * BLOCK, BLOCKS * BLOCK - 1);
	pass(400);
	assert_int_equal(pool().trimmed, before);
	pass(3000);
	assert_int_equal(pool().trimmed, BLOCKS * BLOCK);
}

static void no_rate(void **state)
{
	set_rate(0);
	cache_blocks();
	discard_all();
	rest();
	assert_int_equal(discards(), 0);
	assert_false(tick(100));
	/* The blocks are known, should that change. */
	set_rate(65536);
	pass(2000);
	assert_int_equal(pool().trimmed, BLOCKS * BLOCK);
}

/* A device that takes none is asked once, until the pool is activated again. */
static void refused(void **state)
{
	const char *why;

	cache_blocks();
	fail_discards = -EOPNOTSUPP;
	discard_all();
	rest();
	assert_int_equal(discards(), 1);
	assert_int_equal(pool().trimmed, 0);
	assert_int_equal(pool().free, pool().blocks);
	assert_false(tick(100));
	assert_null(hybrid_engine_check(e));
	stop();
	fail_discards = 0;
	assert_int_equal(hybrid_engine_restart(e, &why), 0);
	pass(3000);
	assert_int_equal(pool().trimmed, BLOCKS * BLOCK);
}

/* Nobody gets a block while its place is being discarded, and a pool waits for that when it stops. */
static void under_way(void **state)
{
	const struct hybrid_config config = with_rate(65536);
	struct hybrid_actions acts;
	u32 k, nr;

	small_pool(16 * MIB, HYBRID_MODE_WRITEBACK, &config);
	cache_blocks();
	hold_discard = true;
	discard_all();
	for (k = 0; !held_discard; k++) {
		assert_true(k < 50);
		tick(100);
	}
	nr = held_discard->segments->count / BLOCK;
	assert_int_equal(pool().free, pool().blocks - nr);
	assert_null(hybrid_engine_check(e));
	for (k = 0; k < pool().blocks; k++)
		put(k * BLOCK, BLOCK, 8);
	assert_in_range(pool().used, BLOCKS, pool().blocks - nr);
	hold_discard = false;
	hybrid_actions_init(&acts);
	for (k = 0; k < 20; k++) {
		assert_false(hybrid_engine_stop(e, &acts));
		carry(&acts);
	}
	memset(disk[CACHE] + held_discard->segments->sector * 512, 0xdc,
	       held_discard->segments->count * 512);
	hybrid_engine_op_done(e, held_discard, &acts);
	carry(&acts);
	stop();
	assert_int_equal(pool().trimmed, nr * BLOCK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_discarded, setup, teardown),
		cmocka_unit_test_setup_teardown(not_again, setup, teardown),
		cmocka_unit_test_setup_teardown(not_what_is_evicted, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(deleted_volume, setup, teardown),
		cmocka_unit_test_setup_teardown(rate, setup, teardown),
		cmocka_unit_test_setup_teardown(no_rate, setup, teardown),
		cmocka_unit_test_setup_teardown(refused, setup, teardown),
		cmocka_unit_test_setup_teardown(under_way, setup_disks, teardown),
	};

	return cmocka_run_group_tests_name("trim", tests, NULL, NULL);
}
