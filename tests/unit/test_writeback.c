// SPDX-License-Identifier: GPL-2.0-or-later
/* Writeback of one volume beside another's, and how much of it goes to a flush. */
#include "rig.h"
#include "engine-internal.h"

#define WINDOW		(4 * BLOCK)
#define OTHER_FROM	(64 * BLOCK)
#define FEW		6

static struct hybrid_volume *other;

/* Nothing is written back unless a test asks for it. */
static const struct hybrid_config lazy = {
	.high_watermark = 100, .low_watermark = 100, .commit_interval = 60000,
};

/* Everything is, while no user comes. */
static const struct hybrid_config background = {
	.high_watermark = 100, .low_watermark = 0, .commit_interval = 60000,
};

static void open_other(void)
{
	struct hybrid_volume_info info2 = info;
	const char *why;

	info2.flags = HYBRID_VOLUME_INPLACE;
	info2.data_sector = 0;
	info2.uuid[0]++;
	info2.member_uuid[0]++;
	info2.name[0]++;
	assert_int_equal(hybrid_volume_create(e, 2, &info2), 0);
	assert_int_equal(hybrid_volume_open(e, 2, ORIGIN_SECTORS, NULL, &other, &why), 0);
}

static int setup_two(void **state)
{
	setup(state);
	open_other();
	assert_int_equal(hybrid_engine_configure(e, &lazy), 0);
	set_mode(HYBRID_MODE_WRITEBACK);
	return 0;
}

/* One write to each of as many windows, recorded. */
static void dirty_windows(u64 from, u32 nr, u32 version)
{
	u32 n;

	for (n = 0; n < nr; n++)
		put(from + n * WINDOW, 8, version);
	assert_int_equal(flush_volume(), 0);
}

static void both_dirty(void)
{
	struct hybrid_volume *mine = v;

	dirty_windows(0, FEW, 1);
	v = other;
	set_mode(HYBRID_MODE_WRITEBACK);
	dirty_windows(OTHER_FROM, FEW, 1);
	v = mine;
}

static void drain_at(struct hybrid_volume *which, bool on, u32 rate)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_engine_drain(e, which, on, rate, &acts);
	carry(&acts);
}

static void drain(struct hybrid_volume *which, bool on)
{
	drain_at(which, on, 0);
}

/* The flush of one origin does not end: the other volume is drained all the same. */
static void flush_of_another_origin(void **state)
{
	both_dirty();
	hold_flush = true;
	drain(other, true);
	assert_non_null(held_flush);
	hold_flush = false;
	drain(v, true);
	assert_int_equal(status().dirty, 0);
	assert_non_null(held_flush);
	let_flush_go();
	assert_int_equal(pool().dirty, 0);
}

/* ... and its changes are recorded once an interval. */
static void records_beside_a_flush_that_hangs(void **state)
{
	struct hybrid_volume *mine = v;
	u64 records;

	set_mode(HYBRID_MODE_WRITETHROUGH);
	put(0, 8, 1);
	hold_flush = true;
	tick(60000);
	assert_non_null(held_flush);
	assert_true(held_flush->volume == mine);
	v = other;
	read_io(OTHER_FROM, 8);
	v = mine;
	records = pool().journal_records;
	tick(60000);
	assert_true(pool().journal_records > records);
	let_flush_go();
}

/* Two windows may be under way beside users: another volume's do not count. */
static void windows_of_another_origin(void **state)
{
	struct hybrid_actions acts, held;
	struct hybrid_op *op;
	u32 nr_held = 0;

	both_dirty();
	assert_int_equal(hybrid_engine_configure(e, &background), 0);
	e->writebacks.passed = true;
	hybrid_actions_init(&acts);
	hybrid_actions_init(&held);
	hybrid_writeback_kick(e, other, &acts);
	hybrid_writeback_kick(e, v, &acts);
	while ((op = hybrid_actions_pop(&acts))) {
		if (op->type == HYBRID_OP_TRANSFER && op->volume == other) {
			list_add_tail(&op->link, &held.list);
			nr_held++;
		} else {
			carry_one(op, &acts);
		}
	}
	assert_int_equal(nr_held, 2);
	assert_int_equal(atomic_read(&v->blocks.dirty), 0);
	assert_int_equal(atomic_read(&other->blocks.dirty), FEW);
	carry(&held);
	assert_int_equal(atomic_read(&other->blocks.dirty), 0);
}

/* Background writeback makes way for users of its own disk, not for users of another. */
static void users_of_another_origin(void **state)
{
	struct hybrid_volume *mine = v;
	u32 n;

	both_dirty();
	assert_int_equal(hybrid_engine_configure(e, &background), 0);
	for (n = 0; n < 3; n++) {
		v = other;
		put(OTHER_FROM, 8, 2 + n);
		v = mine;
		tick(1000);
	}
	assert_int_equal(atomic_read(&mine->blocks.dirty), 0);
	assert_int_equal(atomic_read(&other->blocks.dirty), FEW);
}

/* At one window a second, by a limit of one volume, of all, or the lower one of both. */
static void drain_with_a_limit(void **state)
{
	static const struct {
		bool volume;
		u32 rate, all;
	} drains[] = { { true, 4, 0 }, { false, 0, 4 }, { true, 4, 64 }, { true, 64, 4 } };
	u32 i, n;

	for (i = 0; i < ARRAY_SIZE(drains); i++) {
		dirty_windows(0, FEW, 1 + i);
		if (drains[i].volume)
			drain_at(v, true, drains[i].rate);
		if (drains[i].all)
			drain_at(NULL, true, drains[i].all);
		/* However idle the disk is */
		assert_int_equal(hybrid_engine_configure(e, &background), 0);
		assert_int_equal(atomic_read(&v->blocks.dirty), FEW);
		for (n = 1; n <= FEW; n++) {
			tick(500);
			tick(500);
			assert_int_equal(atomic_read(&v->blocks.dirty), FEW - n);
		}
		drain(NULL, false);
		drain(v, false);
		assert_int_equal(hybrid_engine_configure(e, &lazy), 0);
	}
}

/* Makes writeback urgent, as a user does that finds nothing to evict. */
static void writeback_is_urgent(void)
{
	struct hybrid_actions acts;

	WRITE_ONCE(e->writebacks.urgent, true);
	hybrid_actions_init(&acts);
	hybrid_writeback_kick(e, NULL, &acts);
	carry(&acts);
}

/* Users that find no room, and another mode, do not wait for the limit of a drain. */
static void limit_of_a_drain_makes_way(void **state)
{
	u32 n;

	for (n = 0; n < 2; n++) {
		dirty_windows(0, FEW, 1 + n);
		drain_at(v, true, 1);
		tick(100);
		tick(100);
		assert_int_equal(atomic_read(&v->blocks.dirty), FEW - 1);
		if (n)
			set_mode(HYBRID_MODE_WRITETHROUGH);
		else
			writeback_is_urgent();
		tick(100);
		tick(100);
		assert_int_equal(atomic_read(&v->blocks.dirty), 0);
		drain(v, false);
	}
}

/* Returns how many windows of a drain are written before its first flush, beside users. */
static u32 first_batch(u32 windows, u32 version)
{
	drain(v, false);
	dirty_windows(0, windows, version);
	hold_flush = true;
	nr_log = 0;
	drain(v, true);
	assert_non_null(held_flush);
	hold_flush = false;
	return sectors_of(ORIGIN, true) / 8;
}

/* An origin whose flushes nobody has timed yet may be slow, and reads may wait for the flush. */
static void first_batch_is_small(void **state)
{
	assert_int_equal(first_batch(65, 1), 8);
	let_flush_go();
	assert_in_range(first_batch(65, 2), 9, 64);
	let_flush_go();
	assert_int_equal(status().dirty, 0);
}

/* As many windows become dirty, and are written back without a drain. */
static void written_in_background(u32 windows)
{
	u32 n;

	dirty_windows(0, windows, 1);
	assert_int_equal(hybrid_engine_configure(e, &background), 0);
	for (n = 0; n < 4; n++)
		tick(100);
	assert_int_equal(atomic_read(&v->blocks.dirty), 0);
}

/* As many blocks are dirty on record alone: a drain that begins now does not wait for the interval. */
static void drain_records(u32 blocks)
{
	assert_int_equal(status().dirty, blocks);
	drain(v, true);
	tick(100);
	assert_int_equal(status().dirty, 0);
}

/* A batch was written back and flushed, but will be recorded at the end of the interval. */
static void drain_of_a_flushed_batch(void **state)
{
	written_in_background(8);
	assert_true(v->flush.flushed >= v->flush.last_write);
	drain_records(8);
}

/* Windows were written back, and a user's flush has covered them. */
static void drain_after_a_users_flush(void **state)
{
	written_in_background(5);
	/* A flush of the origin takes the windows along, and a slow one makes batches smaller. */
	assert_int_equal(submit(&writer, HYBRID_IO_ZEROES, 16 * WINDOW, 8, 0), 0);
	flush_ms = 60;
	assert_int_equal(flush_volume(), 0);
	flush_ms = 0;
	assert_int_equal(v->writeback.windows, 0);
	drain_records(5);
}

/* Zeroes and discards leave blocks that are dirty on record, and nothing to write back. */
static void drain_of_zeroed_data(void **state)
{
	u32 n;

	dirty_windows(0, 2, 1);
	put(8, 8, 1);
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(submit(&writer, HYBRID_IO_ZEROES, 0, 8, 0), 0);
	assert_int_equal(submit(&writer, HYBRID_IO_DISCARD, WINDOW, 8, 0), 0);
	drain(v, true);
	for (n = 0; n < 3; n++)
		tick(100);
	assert_int_equal(status().dirty, 0);
}

/*
 * Beside users a batch has as many windows as are flushed in 50 ms: half after a flush that took
 * longer.
 */
static void batch_by_the_last_flush(void **state)
{
	u32 n, batch;

	origin_was_quick();
	assert_int_equal(first_batch(65, 1), 64);
	flush_ms = 51;
	/* 64, and the rest */
	let_flush_go();
	assert_int_equal(v->writeback.bound, 16);
	assert_int_equal(first_batch(65, 2), 16);
	for (n = 3; n < 6; n++) {
		let_flush_go();
		batch = first_batch(20, n);
	}
	assert_int_equal(batch, 1);
	/* It is raised by full batches that were flushed in less, and has an end. */
	flush_ms = 50;
	let_flush_go();
	batch = first_batch(100, n++);
	assert_in_range(batch, 3, 20);
	let_flush_go();
	for (; n < 12; n++) {
		batch = first_batch(100, n);
		let_flush_go();
	}
	assert_int_equal(batch, 64);
	assert_int_equal(status().dirty, 0);
}

/* The next batch waits for as many reads as the flush held up, or for two ticks. */
static void reads_before_the_next_batch(void **state)
{
	struct hybrid_actions acts;
	u32 n, dirty;

	dirty_windows(0, 4, 1);
	v->writeback.bound = 1;
	hold_flush = true;
	drain(v, true);
	assert_non_null(held_flush);
	stall_read_begins(v);
	stall_read_begins(v);
	v->writeback.bound = 2;
	flush_ms = 26;
	nr_log = 0;
	let_flush_go();
	assert_int_equal(v->writeback.bound, 1);
	assert_null(held_flush);
	assert_int_equal(sectors_of(ORIGIN, true), 0);
	hybrid_actions_init(&acts);
	hybrid_stall_read_ended(e, v, &acts);
	hybrid_engine_settle(e, &acts);
	carry(&acts);
	assert_int_equal(sectors_of(ORIGIN, true), 0);
	/* The second read to end counts, whenever it began. */
	stall_read_begins(v);
	hybrid_actions_init(&acts);
	hybrid_stall_read_ended(e, v, &acts);
	hybrid_engine_settle(e, &acts);
	carry(&acts);
	assert_non_null(held_flush);
	assert_in_range(sectors_of(ORIGIN, true), 1, 2 * 8);
	/* A read that does not end holds up no drain. */
	hold_flush = false;
	let_flush_go();
	dirty = atomic_read(&v->blocks.dirty);
	tick(100);
	assert_int_equal(atomic_read(&v->blocks.dirty), dirty);
	for (n = 0; n < 8; n++)
		tick(100);
	assert_int_equal(status().dirty, 0);
}

/* A user's flush says nothing where it takes nothing along that was written back. */
static void flush_of_users_data_alone(void **state)
{
	u32 n, bound = v->writeback.bound;

	set_mode(HYBRID_MODE_WRITETHROUGH);
	flush_ms = 1000;
	for (n = 0; n < 4; n++) {
		put(n * BLOCK, 8, 1);
		assert_int_equal(flush_volume(), 0);
	}
	assert_int_equal(v->writeback.bound, bound);
}

/* As where eviction passes over dirty blocks. */
static void write_back(void)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	e->writebacks.passed = true;
	hybrid_writeback_kick(e, v, &acts);
	carry(&acts);
}

/* Also where nobody needs the room: then the flush is not followed by a commit. */
static void batch_beside_users(void **state)
{
	u32 windows = 20;

	dirty_windows(0, windows, 1);
	assert_int_equal(hybrid_engine_configure(e, &background), 0);
	v->writeback.bound = 4;
	hold_flush = true;
	nr_log = 0;
	write_back();
	assert_non_null(held_flush);
	assert_int_equal(sectors_of(ORIGIN, true), 4 * 8);
	put(0, 8, 2);
	nr_log = 0;
	write_back();
	assert_int_equal(sectors_of(ORIGIN, true), 0);
	hold_flush = false;
	nr_log = 0;
	let_flush_go();
	assert_true(sectors_of(ORIGIN, true) >= 8 * 8);
	/* on record all are still dirty */
	assert_int_equal(status().dirty, windows);
	assert_int_equal(sectors_of(CACHE, true), 0);
}

/*
 * A flush that covers only users' writes holds up no window: beside users the next window may
 * follow at once, for as long as they write.
 */
static void window_beside_a_flush(void **state)
{
	u32 n;

	dirty_windows(0, 2, 1);
	assert_int_equal(submit(&writer, HYBRID_IO_DISCARD, 64 * BLOCK, BLOCK, 0), 0);
	/* To be recorded as clean */
	reads(128 * BLOCK, 8, 0);
	hold_flush = true;
	for (n = 0; n < 61 && !held_flush; n++)
		tick(1000);
	assert_non_null(held_flush);
	nr_log = 0;
	drain(v, true);
	assert_int_equal(sectors_of(ORIGIN, true), 2 * 8);
	/* The next covers them; beside that none is written back. */
	let_flush_go();
	assert_non_null(held_flush);
	hold_flush = false;
	let_flush_go();
	assert_int_equal(status().dirty, 0);
}

/* Write to @nr blocks that were not written before. */
static void write_blocks(u64 from, u32 nr)
{
	u32 n;

	for (n = 0; n < nr; n++)
		put(from + (u64)n * BLOCK, 8, n);
}

/* A volume that cannot write back leaves the other its share of the cache. */
static void room_for_another(void **state)
{
	struct hybrid_volume *mine;
	u32 share, dirty;

	small_pool(16 * MIB, HYBRID_MODE_WRITEBACK, &lazy);
	open_other();
	assert_int_equal(e->map.nr_sets, 1);
	share = e->g->nr_blocks / 8;
	dirty = e->g->nr_blocks - share;
	assert_true(share > 4);
	mine = v;
	mine->writeback.paused = other->writeback.paused = U8_MAX;
	write_blocks(0, dirty + share + 4);
	assert_int_equal(atomic_read(&mine->blocks.dirty), dirty);
	assert_true(status().counter[HYBRID_BYPASS_FULL]);

	v = other;
	write_blocks(0, share);
	assert_int_equal(atomic_read(&other->blocks.dirty), share);

	/* Once a volume has written back, the dirty blocks of the other lower its limit. */
	v = mine;
	mine->writeback.paused = 0;
	drain(mine, true);
	assert_int_equal(flush_volume(), 0);
	wait_checkpoint(e);
	drain(mine, false);
	assert_int_equal(atomic_read(&mine->blocks.dirty), 0);
	v = other;
	write_blocks(share * BLOCK, 8);
	assert_true(atomic_read(&other->blocks.dirty) > share);
	tick(1000);
	assert_int_equal(mine->blocks.most_dirty,
			 e->g->nr_blocks - atomic_read(&other->blocks.dirty));
	v = mine;
}

/*
 * A flush of the origin failed: no later one covers the data written back, whose blocks then stay
 * dirty on record.  The limit holds all the same, and the other volume has its share.
 */
static void limit_after_a_failed_flush(void **state)
{
	u32 share, dirty, stalls, n;

	small_pool(16 * MIB, HYBRID_MODE_WRITEBACK, &lazy);
	open_other();
	share = e->g->nr_blocks / 8;
	dirty = e->g->nr_blocks - share;
	put(0, 8, 1);
	hybrid_origin_flush_failed(v, -EIO);
	write_blocks(0, dirty + share + 4);
	for (n = 0; n < 20; n++)
		tick(100);
	/* No tick passes: nobody waits. */
	stalls = e->stall.tick;
	write_blocks(dirty * BLOCK, share + 4);
	assert_int_equal(e->stall.tick, stalls);
	assert_int_equal(atomic_read(&v->blocks.dirty), dirty);
	assert_int_equal(dirty_blocks(v), dirty);
	v = other;
	write_blocks(0, share);
	assert_int_equal(atomic_read(&other->blocks.cached), share);
}

/*
 * A set is full of dirty blocks of a volume that is not written back: a write of the other volume
 * does not wait for one of them.
 */
static void no_wait_for_what_stays(void **state)
{
	struct hybrid_actions acts;
	u32 n;

	small_pool(16 * MIB, HYBRID_MODE_WRITEBACK, &lazy);
	open_other();
	assert_int_equal(e->map.nr_sets, 1);
	v->writeback.paused = U8_MAX;
	for (n = 0; n < e->g->nr_blocks; n++) {
		WRITE_ONCE(v->blocks.most_dirty, e->g->nr_blocks);
		put((u64)n * BLOCK, 8, n);
	}
	assert_int_equal(atomic_read(&v->blocks.dirty), e->g->nr_blocks);
	v->writeback.stuck = 0;
	v = other;
	hybrid_volume_set_traits(v, HYBRID_ORIGIN_SEEKS);
	hybrid_actions_init(&acts);
	arrive(&writer, HYBRID_IO_WRITE, 0, 8, 0, &acts);
	carry(&acts);
	assert_false(list_empty(&e->stall.waiters));
	for (n = 0; n < 10; n++) {
		/* Blocks of other sets become free. */
		WRITE_ONCE(e->stall.freed, true);
		tick(100);
	}
	assert_true(list_empty(&e->stall.waiters));
	assert_int_equal(wait_for(&writer), 0);
	arrive(&writer, HYBRID_IO_WRITE, BLOCK, 8, 0, &acts);
	carry(&acts);
	assert_true(list_empty(&e->stall.waiters));
	assert_int_equal(wait_for(&writer), 0);
}

/* Writes to clean blocks do not take a volume beyond its limit of dirty blocks, either. */
static void dirty_limit_reached_by_hits(void **state)
{
	u32 dirty;

	small_pool(16 * MIB, HYBRID_MODE_WRITEBACK, &lazy);
	open_other();
	reads(300 * BLOCK, BLOCK, 0);
	reads(300 * BLOCK, BLOCK, 0);
	v->writeback.paused = U8_MAX;
	write_blocks(0, 2);
	WRITE_ONCE(v->blocks.most_dirty, 2);
	dirty = atomic_read(&v->blocks.dirty);
	nr_log = 0;
	put(300 * BLOCK, 8, 7);
	assert_int_equal(atomic_read(&v->blocks.dirty), dirty);
	assert_int_equal(sectors_of(ORIGIN, true), 8);
	assert_int_equal(sectors_of(CACHE, true), 8);
	reads(300 * BLOCK, 8, 7);
	/* A dirty block stays the cache's. */
	nr_log = 0;
	put(0, 8, 8);
	assert_int_equal(sectors_of(ORIGIN, true), 0);
}

/* Since the log began anew. */
static void origin_sleeps(void)
{
	u32 n;

	for (n = 0; n < nr_log; n++)
		assert_false(op_log[n].origin);
}

/*
 * With both watermarks at one place there is no writeback below it: for an hour in which users
 * write, read cached data, and flush, nothing wakes the disk.
 */
static void disk_sleeps_below_the_watermark(void **state)
{
	static const struct hybrid_config quiet = {
		.high_watermark = 70, .low_watermark = 70, .commit_interval = 1000,
	};
	u32 second;

	assert_int_equal(hybrid_engine_configure(e, &quiet), 0);
	first_dirty();
	rest();
	nr_log = 0;
	for (second = 1; second <= 3600; second++) {
		tick(500);
		tick(500);
		origin_sleeps();
		if (!(second % 5))
			put(second % 300 * 8, 8, second);
		origin_sleeps();
		if (!(second % 7))
			reads(second / 5 * 5 % 300 * 8, 8, second / 5 * 5);
		origin_sleeps();
		if (!(second % 30))
			assert_int_equal(flush_volume(), 0);
		origin_sleeps();
	}
	assert_true(status().dirty > 10);
	/* A drain, which a timer may start at night, takes it all in one go. */
	drain(v, true);
	while (status().dirty)
		tick(100);
	drain(v, false);
	nr_log = 0;
	for (second = 0; second < 60; second++)
		tick(1000);
	origin_sleeps();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(flush_of_another_origin, setup_two, teardown),
		cmocka_unit_test_setup_teardown(records_beside_a_flush_that_hangs, setup_two, teardown),
		cmocka_unit_test_setup_teardown(windows_of_another_origin, setup_two, teardown),
		cmocka_unit_test_setup_teardown(users_of_another_origin, setup_two, teardown),
		cmocka_unit_test_setup_teardown(drain_with_a_limit, setup_two, teardown),
		cmocka_unit_test_setup_teardown(limit_of_a_drain_makes_way, setup_two, teardown),
		cmocka_unit_test_setup_teardown(first_batch_is_small, setup_two, teardown),
		cmocka_unit_test_setup_teardown(drain_of_a_flushed_batch, setup_two, teardown),
		cmocka_unit_test_setup_teardown(drain_after_a_users_flush, setup_two, teardown),
		cmocka_unit_test_setup_teardown(drain_of_zeroed_data, setup_two, teardown),
		cmocka_unit_test_setup_teardown(batch_by_the_last_flush, setup_two, teardown),
		cmocka_unit_test_setup_teardown(reads_before_the_next_batch, setup_two, teardown),
		cmocka_unit_test_setup_teardown(flush_of_users_data_alone, setup_two, teardown),
		cmocka_unit_test_setup_teardown(batch_beside_users, setup_two, teardown),
		cmocka_unit_test_setup_teardown(window_beside_a_flush, setup_two, teardown),
		cmocka_unit_test_setup_teardown(disk_sleeps_below_the_watermark, setup_two, teardown),
		cmocka_unit_test_setup_teardown(room_for_another, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(limit_after_a_failed_flush, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(no_wait_for_what_stays, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(dirty_limit_reached_by_hits, setup_disks, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
