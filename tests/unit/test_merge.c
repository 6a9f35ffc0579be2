// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A pool that failed leaves its volumes so that they and their cache can be put
 * together again; and nothing else is ever put together.
 */
#include "rig.h"
#include "engine-internal.h"

/* Nothing can be recorded any more, but the data of the cache can be read. */
static void fail_pool_of(u32 dirty)
{
	fail_cache_writes = true;
	assert_int_equal(wait_checkpoint(e), -EIO);
	assert_true(status().degraded);
	assert_int_equal(status().dirty, dirty);
}

static struct hybrid_sb origin_sb(u32 copy)
{
	u64 sector = hybrid_sb_sector(ORIGIN_SECTORS, copy);
	struct hybrid_sb got;

	assert_int_equal(hybrid_sb_decode((void *)disk[1] + sector * 512, sector, ORIGIN_SECTORS,
					  &got, NULL), 0);
	return got;
}

static void put_origin_sb(u32 copy, const struct hybrid_sb *to)
{
	u64 sector = hybrid_sb_sector(ORIGIN_SECTORS, copy);

	hybrid_sb_encode((void *)disk[1] + sector * 512, to, sector);
}

/* In both copies. */
static void change_origin_sb(void (*change)(struct hybrid_sb *to))
{
	struct hybrid_sb changed;
	u32 copy;

	for (copy = 0; copy < 2; copy++) {
		changed = origin_sb(copy);
		change(&changed);
		put_origin_sb(copy, &changed);
	}
}

/* The machine comes up again, and the cache device works. */
static int boot_and_open(const char **why)
{
	crash();
	fail_cache_writes = false;
	start();
	*why = "";
	return hybrid_volume_open(e, 1, ORIGIN_SECTORS, NULL, &v, why);
}

static void refused(const char *reason)
{
	const char *why;

	assert_int_equal(boot_and_open(&why), -EMEDIUMTYPE);
	assert_string_equal(why, reason);
	v = NULL;
}

static void boot(void)
{
	const char *why;

	assert_int_equal(boot_and_open(&why), 0);
	assert_null(hybrid_engine_check(e));
}

static const char newer[] = "was written without its cache, which holds newer data of it";

/* Block 0 is dirty and flushed, 1 clean in the cache; then the pool fails. */
static void one_dirty(void)
{
	set_mode(HYBRID_MODE_WRITEBACK);
	reads(BLOCK, BLOCK, 0);
	put(0, BLOCK, 2);
	assert_int_equal(flush_volume(), 0);
	rest();
	assert_int_equal(status().dirty, 1);
	fail_pool_of(1);
}

/* ... and the origin is written without it. */
static void alone(void)
{
	struct hybrid_sb first;

	one_dirty();
	put(BLOCK, BLOCK, 3);
	first = origin_sb(0);
	assert_int_equal(first.flags, HYBRID_SB_DIRTY | HYBRID_SB_ALONE);
	assert_true(first.paired_nonce == v->info.nonce);
	assert_true(first.nonce != v->info.nonce);
	assert_true(first.lost);
	assert_int_equal(origin_sb(1).nonce, first.nonce);
}

/* Data that only the cache has comes back, and all other data is the origin's. */
static void merged(void **state)
{
	struct hybrid_sb after;
	u32 copy;

	alone();
	/* The flush covers the second write alone. */
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(read_io(0, 8), -EIO);
	boot();
	/* Recovery writes one, the exchange of nonces two; before it all clean granules go. */
	assert_int_equal(pool().checkpoints, 4);
	assert_true(hybrid_volume_state(v) & HYBRID_STATE_HEALTHY_AGAIN);
	assert_int_equal(status().merged, BLOCK);
	assert_int_equal(status().dirty, 1);
	reads(0, BLOCK, 2);
	reads(BLOCK, BLOCK, 3);
	for (copy = 0; copy < 2; copy++) {
		after = origin_sb(copy);
		assert_int_equal(after.flags, HYBRID_SB_DIRTY);
		assert_true(!after.lost && !after.paired_nonce);
		assert_true(after.nonce == v->info.nonce);
	}
	/* As any volume from here on. */
	stop();
	boot();
	assert_int_equal(pool().checkpoints, 3);
	assert_int_equal(status().merged, 0);
	reads(0, BLOCK, 2);
	reads(BLOCK, BLOCK, 3);
}

/* Dirty granules of the first block are written back; the entry that says so fails. */
static void ends_in_vain(u32 dirty)
{
	struct hybrid_actions acts;
	u32 n;

	rest();
	fail_cache_writes = true;
	hybrid_actions_init(&acts);
	hybrid_engine_evict(e, v, to_oblock(0), &acts);
	carry(&acts);
	for (n = 0; !status().degraded; n++) {
		assert_true(n < 100);
		tick(100);
	}
	assert_int_equal(atomic_read(&v->blocks.dirty), dirty);
	assert_int_equal(status().dirty, dirty + 1);
}

static void written_back(void)
{
	set_mode(HYBRID_MODE_WRITEBACK);
	put(0, BLOCK, 2);
	ends_in_vain(0);
	assert_true(origin_has(0, BLOCK, 2));
}

/* If that is all that was dirty, nothing is lost, and everything goes on (P5). */
static void nothing_is_lost(void **state)
{
	written_back();
	put(0, 8, 3);
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(status().dirty, 0);
	assert_int_equal(origin_sb(0).flags, HYBRID_SB_ALONE);
	assert_int_equal(origin_sb(1).flags, HYBRID_SB_ALONE);
	assert_true(!origin_sb(0).lost);
	boot();
	assert_int_equal(status().merged, 0);
	assert_int_equal(status().cached, 0);
	reads(0, 8, 3);
	reads(8, BLOCK - 8, 2);
}

/*
 * Nor is anything lost where no flush of the origin has covered the data written back: a flush
 * follows.
 */
static void nothing_is_lost_unflushed(void **state)
{
	struct hybrid_actions acts;
	struct hybrid_op *op;

	set_mode(HYBRID_MODE_WRITEBACK);
	put(0, BLOCK, 2);
	rest();
	hybrid_actions_init(&acts);
	hybrid_engine_evict(e, v, to_oblock(0), &acts);
	/* On its way to the origin when the pool fails. */
	while ((op = hybrid_actions_pop(&acts)) && !(op->origin && op->write))
		carry_one(op, &acts);
	assert_non_null(op);
	fail_pool_of(1);
	carry_one(op, &acts);
	assert_int_equal(atomic_read(&v->blocks.dirty), 0);
	assert_true(v->flush.last_write > v->flush.flushed);
	carry(&acts);
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(status().dirty, 0);
	boot();
	reads(0, BLOCK, 2);
}

/* A flush alone decides it, too; so does a discard, and zeroes. */
static void nothing_is_lost_by(enum hybrid_io_type type)
{
	written_back();
	assert_int_equal(submit(&writer, type, 0, type == HYBRID_IO_FLUSH ? 0 : 8, 0), 0);
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(status().dirty, 0);
	boot();
	reads(8, BLOCK - 8, 2);
}

static void nothing_is_lost_by_a_flush(void **state)
{
	nothing_is_lost_by(HYBRID_IO_FLUSH);
}

static void nothing_is_lost_by_zeroes(void **state)
{
	nothing_is_lost_by(HYBRID_IO_ZEROES);
}

static void nothing_is_lost_by_a_discard(void **state)
{
	nothing_is_lost_by(HYBRID_IO_DISCARD);
}

/*
 * If it is not, such granules can be read, but neither written nor discarded: the record
 * would undo that.  All others can.
 */
static void ended_in_vain(void **state)
{
	const u64 other = 100 * BLOCK;
	u64 cursor = 0, sector;
	u32 count;

	set_mode(HYBRID_MODE_WRITETHROUGH);
	reads(0, BLOCK, 0);
	rest();
	set_mode(HYBRID_MODE_WRITEBACK);
	put(0, 8, 2);
	put(other, BLOCK, 4);
	ends_in_vain(1);
	assert_int_equal(write_io(0, 8, 3, false), -EIO);
	assert_int_equal(submit(&writer, HYBRID_IO_ZEROES, 0, 8, 0), -EIO);
	assert_int_equal(submit(&writer, HYBRID_IO_DISCARD, 0, 8, 0), -EIO);
	assert_int_equal(flush_volume(), -EIO);
	reads(0, 8, 2);
	put(8, BLOCK - 8, 3);
	assert_true(hybrid_volume_lost(e, v, &cursor, &sector, &count));
	assert_int_equal(sector, other);
	assert_int_equal(count, BLOCK);
	assert_false(hybrid_volume_lost(e, v, &cursor, &sector, &count));
	boot();
	assert_int_equal(status().merged, 8 + BLOCK);
	reads(0, 8, 2);
	reads(8, BLOCK - 8, 3);
	reads(other, BLOCK, 4);
}

/*
 * Only a write in flight leaves dirty data.  It ends after the pool has failed: before the
 * decision, or after it.
 */
static void lost_by_a_write_in_flight(bool ends_first)
{
	const u64 other = 100 * BLOCK;
	struct hybrid_actions acts;

	set_mode(HYBRID_MODE_WRITEBACK);
	put(0, BLOCK, 2);
	rest();
	hybrid_actions_init(&acts);
	hybrid_engine_evict(e, v, to_oblock(0), &acts);
	carry(&acts);
	rest();
	assert_int_equal(status().dirty, 0);
	assert_int_equal(origin_sb(0).flags, HYBRID_SB_DIRTY);
	fill_data(&writer, other, BLOCK, 3);
	prepare(&writer, HYBRID_IO_WRITE, other, BLOCK, 0);
	assert_int_equal(hybrid_engine_map(e, &writer.r.io, &acts), HYBRID_MAP_REMAP);
	assert_false(writer.r.io.op.origin);
	fail_pool_of(0);
	if (ends_first)
		assert_true(hybrid_engine_io_done(e, &writer.r.io, 0, &acts));
	assert_int_equal(submit(&flusher, HYBRID_IO_ZEROES, BLOCK, BLOCK, 0), 0);
	assert_int_equal(origin_sb(0).flags, HYBRID_SB_DIRTY | HYBRID_SB_ALONE);
	assert_true(origin_sb(0).lost);
	if (!ends_first)
		assert_true(hybrid_engine_io_done(e, &writer.r.io, 0, &acts));
	assert_int_equal(read_io(other, 8), -EIO);
}

static void lost_by_a_write_that_ended(void **state)
{
	lost_by_a_write_in_flight(true);
}

static void lost_by_a_write_under_way(void **state)
{
	lost_by_a_write_in_flight(false);
}

/* ---- no merge -------------------------------------------------------------- */

/* The cache of an earlier session, as from a copy. */
static void another_session(void **state)
{
	u8 *older;

	set_mode(HYBRID_MODE_WRITEBACK);
	put(0, BLOCK, 2);
	assert_int_equal(flush_volume(), 0);
	stop();
	crash();
	older = malloc(CACHE_SECTORS * 512);
	assert_non_null(older);
	memcpy(older, disk[0], CACHE_SECTORS * 512);
	start();
	open_volume();
	alone();
	memcpy(disk[0], older, CACHE_SECTORS * 512);
	free(older);
	refused(newer);
}

static void change_another_instance(struct hybrid_sb *to)
{
	to->instance++;
}

/* ... whose volume has another instance. */
static void another_instance(void **state)
{
	alone();
	change_origin_sb(change_another_instance);
	refused(newer);
}

static void change_accepted_loss(struct hybrid_sb *to)
{
	to->role = HYBRID_ROLE_DETACHED;
	to->flags = HYBRID_SB_LOSS_UNKNOWN;
	to->nonce++;
}

/* The tools gave up the lost data: the origin has no cache. */
static void accepted_loss(void **state)
{
	alone();
	change_origin_sb(change_accepted_loss);
	refused("is not an origin");
}

static void change_alone_by_the_tools(struct hybrid_sb *to)
{
	to->paired_nonce = 0;
}

/* The tools wrote that it goes on alone: no session failed. */
static void alone_by_the_tools(void **state)
{
	alone();
	change_origin_sb(change_alone_by_the_tools);
	refused(newer);
}

/* One copy alone says that it goes on alone: it never did. */
static void one_copy(void **state)
{
	struct hybrid_sb before;
	u32 copy;

	for (copy = 0; copy < 2; copy++) {
		if (copy) {
			teardown(state);
			setup(state);
		}
		one_dirty();
		before = origin_sb(copy);
		put(BLOCK, BLOCK, 3);
		put_origin_sb(copy, &before);
		boot();
		assert_int_equal(status().merged, 0);
		assert_int_equal(origin_sb(0).flags, HYBRID_SB_DIRTY);
		assert_int_equal(origin_sb(1).flags, HYBRID_SB_DIRTY);
		reads(0, BLOCK, 2);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(merged, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_is_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_is_lost_unflushed, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_is_lost_by_a_flush, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_is_lost_by_zeroes, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_is_lost_by_a_discard, setup, teardown),
		cmocka_unit_test_setup_teardown(ended_in_vain, setup, teardown),
		cmocka_unit_test_setup_teardown(lost_by_a_write_that_ended, setup, teardown),
		cmocka_unit_test_setup_teardown(lost_by_a_write_under_way, setup, teardown),
		cmocka_unit_test_setup_teardown(another_session, setup, teardown),
		cmocka_unit_test_setup_teardown(another_instance, setup, teardown),
		cmocka_unit_test_setup_teardown(accepted_loss, setup, teardown),
		cmocka_unit_test_setup_teardown(alone_by_the_tools, setup, teardown),
		cmocka_unit_test_setup_teardown(one_copy, setup, teardown),
	};

	return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
