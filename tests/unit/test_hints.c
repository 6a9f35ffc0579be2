// SPDX-License-Identifier: GPL-2.0-or-later
/* Hints on reads: reads of metadata, and readahead. */
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

	small_pool(12 * MIB, HYBRID_MODE_WRITEBACK, &config);
	for (k = 0; !pool().evictions; k += 2) {
		assert_true(k < 400);
		reads(k * BLOCK, BLOCK, 0);
		tick(100);
	}
	set_cutoff_to(CUTOFF);
}

static void read_run(u32 from, u32 to)
{
	for (; from < to; from++) {
		reads((u64)from * BLOCK, BLOCK, 0);
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
	read_run(421, 421 + RUN);
	assert_true(counter(HYBRID_BYPASS_SEQUENTIAL) > bypassed);
}

/* They are no part of a run of data, and no run is forgotten for them. */
static void metadata_beside_a_run(void **state)
{
	u64 bypassed;
	u32 k;

	full_pool();
	read_run(401, 401 + RUN);
	for (k = 0; k < 2 * NR_STREAMS; k++) {
		assert_int_equal(read_meta((k * 2 + 1) * BLOCK, 8), 0);
		tick(100);
	}
	bypassed = counter(HYBRID_BYPASS_SEQUENTIAL);
	read_run(401 + RUN, 401 + 2 * RUN);
	assert_int_equal(counter(HYBRID_BYPASS_SEQUENTIAL), bypassed + RUN);
}

/* Metadata is worth its wear of the cache device, even with a budget that is spent. */
static void metadata_cost_wear(void **state)
{
	full_pool();
	WRITE_ONCE(e->wear.endurance, ENDURANCE_SPENT);
	reads(401 * BLOCK, 8, 0);
	assert_int_equal(counter(HYBRID_BYPASS_ONCE), 1);
	assert_int_equal(read_meta(402 * BLOCK, 8), 0);
	assert_int_equal(counter(HYBRID_BYPASS_ONCE), 1);
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

/* ---- metadata leaves last -------------------------------------------------- */

#define METADATA 12		/* blocks, fewer than the share */
#define DATA_FROM 100		/* the first block of the data that is read all the time */
#define DATA_BLOCKS 370

static u32 churned;

/* Data goes through the cache until so many blocks were evicted for it. */
static void churn(u32 evictions)
{
	u64 end = pool().evictions + evictions;

	while (pool().evictions < end) {
		reads((DATA_FROM + churned++ % DATA_BLOCKS) * BLOCK, 8, 0);
		tick(100);
	}
}

static void read_metadata(u32 from, u32 to)
{
	for (; from < to; from++) {
		assert_int_equal(read_meta(from * BLOCK, 8), 0);
		tick(100);
	}
}

static u32 nr_cached(u32 from, u32 to)
{
	u32 n = 0;

	for (; from < to; from++)
		n += is_cached(from);
	return n;
}

static void set_share(u32 percent)
{
	struct hybrid_config config = *hybrid_engine_config(e);

	config.metadata_share = percent;
	hybrid_engine_configure(e, &config);
}

static void pool_of(const char *policy)
{
	static const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;

	setup_disks(NULL);
	churned = 0;
	small_pool(12 * MIB, HYBRID_MODE_WRITETHROUGH, &config);
	set_cutoff_to(0);
	assert_int_equal(hybrid_engine_set_policy(e, hybrid_policy_get(policy)), 0);
}

/* Of metadata that were read once: how much is left when all of the cache was exchanged twice. */
static u32 left_of_metadata(const char *policy, u32 share)
{
	u32 left;

	pool_of(policy);
	set_share(share);
	read_metadata(0, METADATA);
	assert_int_equal(pool().metadata, share ? METADATA : 0);
	churn(2 * pool().blocks);
	left = nr_cached(0, METADATA);
	/* data does not get the blocks that metadata keeps, but is cached all the same */
	assert_true(nr_cached(DATA_FROM, DATA_FROM + DATA_BLOCKS) > pool().blocks / 2);
	teardown(NULL);
	return left;
}

static void metadata_leave_last(void **state)
{
	static const char * const policy[] = { "c2q", "s3fifo", "sieve", "arc", "lru", "fifo" };
	u32 k;

	for (k = 0; k < ARRAY_SIZE(policy); k++) {
		assert_int_equal(left_of_metadata(policy[k], 25), METADATA);
		assert_true(left_of_metadata(policy[k], 0) < METADATA);
	}
}

/* More of them than the share are as other blocks, and so are all where it became smaller. */
static void metadata_up_to_a_share(void **state)
{
	u32 most;

	pool_of("lru");
	most = pool().blocks / 4;
	read_metadata(0, most + 10);
	assert_int_equal(pool().metadata, most);
	churn(2 * pool().blocks);
	assert_int_equal(nr_cached(0, most + 10), most);
	set_share(5);
	churn(2 * pool().blocks);
	assert_int_equal(nr_cached(0, most + 10), pool().blocks / 20);
	assert_int_equal(pool().metadata, pool().blocks / 20);
}

/* A block that is read as metadata no more, for many times the cache, is kept no more. */
static void metadata_age(void **state)
{
	u32 turns;
	u64 hits;

	pool_of("lru");
	churn(1);
	read_metadata(0, METADATA);
	for (turns = 0; nr_cached(0, METADATA) == METADATA; turns++) {
		churn(pool().blocks);
		/* half of them are read now and then, hits all of them */
		hits = counter(HYBRID_READ_HITS);
		read_metadata(0, METADATA / 2);
		assert_int_equal(counter(HYBRID_READ_HITS) - hits, METADATA / 2);
		assert_true(turns < 40);
	}
	assert_in_range(turns, 16, 34);
	for (turns = 0; turns < 4; turns++) {
		churn(pool().blocks);
		read_metadata(0, METADATA / 2);
	}
	assert_int_equal(nr_cached(0, METADATA), METADATA / 2);
	assert_int_equal(pool().metadata, METADATA / 2);
}

/* Metadata goes where nothing else can: nobody waits for blocks that are only worth more. */
static void metadata_make_room(void **state)
{
	static const struct hybrid_config lazy = {
		.high_watermark = 100, .low_watermark = 100, .commit_interval = 1000,
		.metadata_share = 25,
	};
	u32 k;

	small_pool(12 * MIB, HYBRID_MODE_WRITEBACK, &lazy);
	origin_was_quick();
	set_cutoff_to(0);
	read_metadata(0, METADATA);
	for (k = DATA_FROM; pool().dirty < pool().blocks; k++) {
		assert_true(k < DATA_FROM + pool().blocks);
		put(k * BLOCK, 8, k);
		tick(100);
	}
	assert_int_equal(counter(HYBRID_BYPASS_FULL), 0);
	assert_int_equal(nr_cached(0, METADATA), 0);
	assert_int_equal(pool().metadata, 0);
}

/* A long run takes the place of its own blocks, not of metadata that it has passed. */
static void metadata_stay_in_a_run(void **state)
{
	u32 end, k;

	pool_of("c2q");
	set_cutoff_to(CUTOFF);
	end = DATA_FROM + 2 * pool().blocks;
	read_run(DATA_FROM, end);
	for (k = 0; k < METADATA; k++)
		read_metadata(DATA_FROM + 12 * k, DATA_FROM + 12 * k + 1);
	read_run(end, end + pool().blocks);
	for (k = 0; k < METADATA; k++)
		assert_true(is_cached(DATA_FROM + 12 * k));
}

/* A hit is noted once: from then on it goes the fast path, until that is forgotten. */
static void metadata_go_short(void **state)
{
	pool_of("lru");
	reads(0, 8, 0);
	prepare(&reader, HYBRID_IO_READ, 0, 8, HYBRID_IO_META);
	assert_false(hybrid_engine_hit(e, &reader.r.io));
	assert_int_equal(pool().metadata, 0);
	assert_int_equal(read_meta(0, 8), 0);
	moved(8, 0, 0, 0);
	assert_int_equal(pool().metadata, 1);
	prepare(&reader, HYBRID_IO_READ, 0, 8, HYBRID_IO_META);
	assert_true(hybrid_engine_hit(e, &reader.r.io));
	assert_true(hybrid_engine_hit_done(e, &reader.r.io));
}

/* A discarded block is metadata no more. */
static void metadata_discarded(void **state)
{
	pool_of("lru");
	read_metadata(0, METADATA);
	assert_int_equal(submit(&writer, HYBRID_IO_DISCARD, 0, BLOCK, 0), 0);
	churn(2 * pool().blocks);
	assert_int_equal(nr_cached(0, METADATA), METADATA - 1);
	assert_int_equal(pool().metadata, METADATA - 1);
}

/* ---- reads ahead ----------------------------------------------------------- */

static int read_ahead(u64 sector, u32 count)
{
	return submit(&reader, HYBRID_IO_READ, sector, count, HYBRID_IO_AHEAD);
}

/*
 * Most reads of files are marked as readahead: they are cached like others, and evict blocks like
 * others.
 */
static void ahead_is_cached(void **state)
{
	u64 evictions;
	u32 k;

	pool_of("lru");
	churn(1);
	evictions = pool().evictions;
	for (k = 0; k < 20; k++) {
		assert_int_equal(read_ahead(k * 4 * BLOCK, 8), 0);
		assert_true(is_cached(k * 4));
		tick(100);
	}
	assert_true(pool().evictions > evictions);
	assert_int_equal(counter(HYBRID_BYPASS_FULL), 0);
}

/* A pool of dirty blocks, of metadata, and of no more free blocks than its reserve. */
static void no_room(u32 metadata)
{
	static const struct hybrid_config lazy = {
		.high_watermark = 100, .low_watermark = 100, .commit_interval = 1000,
		.metadata_share = 25,
	};
	u32 k;

	setup_disks(NULL);
	small_pool(12 * MIB, HYBRID_MODE_WRITEBACK, &lazy);
	set_cutoff_to(0);
	read_metadata(0, metadata);
	for (k = DATA_FROM; pool().free > e->evict.reserve; k++)
		put(k * BLOCK, 8, k);
	assert_int_equal(nr_cached(0, metadata), metadata);
	assert_int_equal(counter(HYBRID_WRITEBACKS), 0);
}

/* Nobody may ever ask for it: for its sake no metadata leave. */
static void ahead_spares_metadata(void **state)
{
	no_room(METADATA);
	assert_int_equal(read_ahead(40 * BLOCK, 8), 0);
	assert_true(is_cached(40));
	assert_int_equal(pool().metadata, METADATA);
	teardown(state);
	no_room(METADATA);
	reads(40 * BLOCK, 8, 0);
	assert_true(pool().metadata < METADATA);
}

/* ... and nothing is written back out of turn. */
static void ahead_spares_the_disk(void **state)
{
	no_room(0);
	assert_int_equal(read_ahead(40 * BLOCK, 8), 0);
	assert_true(is_cached(40));
	tick(100);
	assert_int_equal(counter(HYBRID_WRITEBACKS), 0);
	teardown(state);
	no_room(0);
	reads(40 * BLOCK, 8, 0);
	tick(100);
	assert_true(counter(HYBRID_WRITEBACKS));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(metadata_in_order, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(metadata_beside_a_run, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(metadata_cost_wear, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(metadata_without_credit, setup_disks, teardown),
		cmocka_unit_test(metadata_leave_last),
		cmocka_unit_test_teardown(metadata_up_to_a_share, teardown),
		cmocka_unit_test_teardown(metadata_age, teardown),
		cmocka_unit_test_setup_teardown(metadata_make_room, setup_disks, teardown),
		cmocka_unit_test_teardown(metadata_stay_in_a_run, teardown),
		cmocka_unit_test_teardown(metadata_go_short, teardown),
		cmocka_unit_test_teardown(metadata_discarded, teardown),
		cmocka_unit_test_teardown(ahead_is_cached, teardown),
		cmocka_unit_test_teardown(ahead_spares_metadata, teardown),
		cmocka_unit_test_teardown(ahead_spares_the_disk, teardown),
	};

	return cmocka_run_group_tests_name("hints", tests, NULL, NULL);
}
