// SPDX-License-Identifier: GPL-2.0-or-later
/* Users' flushes that begin at once, without the worker, and those that need a commit. */
#include "rig.h"
#include "engine-internal.h"

#define SECTOR	(8 * BLOCK)

static struct hybrid_actions acts;
static struct user other;

/* Blocks 8 and 9 are dirty, on record, and nothing else is under way. */
static void two_dirty_blocks(void)
{
	first_dirty();
	put(SECTOR, 8, 1);
	put(SECTOR + BLOCK, 8, 1);
	assert_int_equal(flush_volume(), 0);
	rest();
	hybrid_actions_init(&acts);
	nr_log = 0;
}

/* The flush begins at once: returns the operation, to be carried out. */
static struct hybrid_op *begin_flush(struct user *u)
{
	struct hybrid_op *op;

	arrive(u, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	op = hybrid_actions_pop(&acts);
	assert_non_null(op);
	assert_true(op->type == HYBRID_OP_FLUSH && op->direct && !op->origin);
	assert_true(list_empty(&acts.list));
	return op;
}

/* The flush succeeds, and its user hears of that without the worker. */
static void succeed(struct user *u, struct hybrid_op *op)
{
	struct hybrid_op *end;

	op->error_cache = 0;
	hybrid_engine_op_done(e, op, &acts);
	end = hybrid_actions_pop(&acts);
	assert_ptr_equal(end, &u->r.io.op);
	assert_int_equal(end->type, HYBRID_OP_COMPLETE);
	assert_int_equal(u->r.io.error, 0);
}

static void nothing_but_a_flush(void)
{
	assert_int_equal(nr_log, 1);
	assert_true(op_log[0].flush && !op_log[0].origin);
}

/* Data of rewrites is flushed once, without an entry of the journal. */
static void rewrites(void **state)
{
	u64 flushes;

	two_dirty_blocks();
	put(SECTOR, 8, 2);
	flushes = pool().cache_flushes;
	assert_int_equal(flush_volume(), 0);
	nothing_but_a_flush();
	assert_int_equal(pool().cache_flushes, flushes + 1);
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(nr_log, 0);
	crash();
	start();
	open_volume();
	reads(SECTOR, 8, 2);
}

/* Newly dirty granules need an entry, a discard of dirty ones, too. */
static void changes_need_an_entry(void **state)
{
	two_dirty_blocks();
	put(SECTOR + 2 * BLOCK, 8, 1);
	assert_int_equal(flush_volume(), 0);
	assert_true(flushed_entry(0));
	assert_int_equal(submit(&other, HYBRID_IO_DISCARD, SECTOR, BLOCK, 0), 0);
	assert_int_equal(flush_volume(), 0);
	assert_true(nr_log && op_log[nr_log - 1].meta);
	crash();
	start();
	open_volume();
	reads(SECTOR + 2 * BLOCK, 8, 1);
}

/* The entry that is on its way is written, and both flushes succeed. */
static void entry_and_flushes_end(void)
{
	let_meta_go(&acts);
	assert_int_equal(wait_for(&flusher), 0);
	assert_int_equal(wait_for(&other), 0);
}

/* A user flushes, and the entry is on its way. */
static void hold_entry_of_a_flush(void)
{
	hold_meta = true;
	arrive(&flusher, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	carry(&acts);
	assert_non_null(held_meta);
}

/* A flush waits for its entry, which is held; another one comes after a write. */
static void flush_beside_a_commit(void)
{
	two_dirty_blocks();
	put(SECTOR + 2 * BLOCK, 8, 1);
	hold_entry_of_a_flush();
	put(SECTOR, 8, 2);
	arrive(&other, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
}

/* A flush beside a commit waits for the entry, and for its own flush where that began before. */
static void beside_a_commit(void **state)
{
	flush_beside_a_commit();
	carry(&acts);
	assert_false(flusher.r.ended || other.r.ended);
	nr_log = 0;
	entry_and_flushes_end();
	assert_int_equal(nr_log, 2);
	assert_true(op_log[0].meta && op_log[1].flush);
}

/* A record of a discard is on its way, and no data is to be flushed: a second flush waits, too. */
static void beside_a_record(void **state)
{
	two_dirty_blocks();
	assert_int_equal(submit(&other, HYBRID_IO_DISCARD, SECTOR, BLOCK, 0), 0);
	hold_entry_of_a_flush();
	arrive(&other, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	carry(&acts);
	assert_false(flusher.r.ended || other.r.ended);
	entry_and_flushes_end();
}

/* A FUA write to granules whose record is on its way waits for that. */
static void fua_beside_its_record(void **state)
{
	two_dirty_blocks();
	put(SECTOR + 2 * BLOCK, 8, 1);
	hold_entry_of_a_flush();
	nr_log = 0;
	fill_data(&other, SECTOR + 2 * BLOCK, 8, 2);
	arrive(&other, HYBRID_IO_WRITE, SECTOR + 2 * BLOCK, 8, HYBRID_IO_FUA, &acts);
	carry(&acts);
	assert_int_equal(nr_log, 1);
	assert_false(op_log[0].fua || other.r.ended);
	entry_and_flushes_end();
	reads(SECTOR + 2 * BLOCK, 8, 2);
}

/* Where metadata is busy with other things, it waits for none of these. */
static void fua_beside_a_flush(void **state)
{
	struct hybrid_op *op;

	two_dirty_blocks();
	put(SECTOR, 8, 2);
	op = begin_flush(&flusher);
	assert_int_equal(write_io(SECTOR + BLOCK, 8, 2, true), 0);
	assert_int_equal(nr_log, 1);
	assert_true(op_log[0].fua && !op_log[0].meta);
	succeed(&flusher, op);
	carry(&acts);
}

/* While a flush is under way nothing else of the metadata is; then it goes on by itself. */
static void holds_up_commits(void **state)
{
	struct hybrid_op *op;

	two_dirty_blocks();
	put(SECTOR, 8, 2);
	op = begin_flush(&flusher);
	put(SECTOR, 8, 3);
	put(SECTOR + 2 * BLOCK, 8, 1);
	nr_log = 0;
	arrive(&other, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	carry(&acts);
	tick(2000);
	assert_false(other.r.ended);
	assert_int_equal(nr_log, 0);
	succeed(&flusher, op);
	carry(&acts);
	assert_int_equal(wait_for(&other), 0);
	assert_true(flushed_entry(0));
}

/* Another flush of the same data waits for the one under way, and then for its own. */
static void two_at_once(void **state)
{
	struct hybrid_op *op;

	two_dirty_blocks();
	put(SECTOR, 8, 2);
	op = begin_flush(&flusher);
	nr_log = 0;
	arrive(&other, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	carry(&acts);
	assert_false(other.r.ended);
	succeed(&flusher, op);
	carry(&acts);
	assert_true(other.r.ended);
	nothing_but_a_flush();
}

/* A write that ends during the flush needs another one. */
static void write_beside_a_flush(void **state)
{
	struct hybrid_op *op;

	two_dirty_blocks();
	put(SECTOR, 8, 2);
	op = begin_flush(&flusher);
	put(SECTOR + BLOCK, 8, 2);
	succeed(&flusher, op);
	assert_true(list_empty(&acts.list));
	assert_int_equal(flush_volume(), 0);
	nothing_but_a_flush();
}

/* The pool cannot write its superblock: nothing that waits for metadata, or will, succeeds. */
static void superblock_fails(void **state)
{
	flush_beside_a_commit();
	hybrid_engine_fail(e, &acts);
	carry(&acts);
	assert_true(hybrid_engine_failed(e));
	let_meta_go(&acts);
	assert_int_equal(wait_for(&other), -EIO);
	assert_int_equal(flush_volume(), -EIO);
	assert_int_equal(wait_checkpoint(e), -EIO);
	assert_int_equal(pool().write_errors, 1);
}

/* The same while nothing is under way. */
static void superblock_fails_at_rest(void **state)
{
	two_dirty_blocks();
	put(SECTOR, 8, 2);
	hybrid_engine_fail(e, &acts);
	carry(&acts);
	assert_int_equal(flush_volume(), -EIO);
	assert_int_equal(nr_log, 0);
}

/* The pool fails with a flush that fails, and so do the flushes that wait for it. */
static void failed(void **state)
{
	struct hybrid_op *op;

	two_dirty_blocks();
	put(SECTOR, 8, 2);
	op = begin_flush(&flusher);
	arrive(&other, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	op->error_cache = -EIO;
	hybrid_engine_op_done(e, op, &acts);
	carry(&acts);
	assert_true(hybrid_engine_failed(e));
	assert_int_equal(wait_for(&flusher), -EIO);
	assert_int_equal(wait_for(&other), -EIO);
	assert_int_equal(pool().flush_errors, 1);
	assert_int_equal(flush_volume(), -EIO);
}

/* Two threads flush in turn, without a pause: the checkpoint that an opening waits for ends all the same. */
static void checkpoint_beside_flushes(void **state)
{
	struct hybrid_waiter w = { .done = hybrid_waiter_ended };
	struct user users[2] = {};
	bool begun[2] = {};
	struct hybrid_op *op;
	u32 n, k = 0;

	two_dirty_blocks();
	hybrid_engine_checkpoint(e, &w, &acts);
	for (n = 0; !w.ended && n < 100; n++) {
		/* The other one's flush comes while an operation is under way. */
		op = hybrid_actions_pop(&acts);
		if (!begun[k] || users[k].r.ended) {
			put(SECTOR + k * BLOCK, 8, 2 + n);
			arrive(&users[k], HYBRID_IO_FLUSH, 0, 0, 0, &acts);
			begun[k] = true;
			k = !k;
		}
		if (op)
			carry_one(op, &acts);
	}
	assert_true(w.ended);
	carry(&acts);
	assert_true(users[0].r.ended && users[1].r.ended);
}

/* Writeback asks for one lazy commit after the other: the checkpoint waits for one of them. */
static void checkpoint_beside_lazy_commits(void **state)
{
	struct hybrid_waiter w = { .done = hybrid_waiter_ended };
	struct hybrid_op *op;
	u32 n;

	two_dirty_blocks();
	hybrid_engine_checkpoint(e, &w, &acts);
	for (n = 0; !w.ended && n < 100; n++) {
		op = hybrid_actions_pop(&acts);
		put(SECTOR + (2 + n) * BLOCK, 8, 1);
		e->commit.lazy_wanted = true;
		if (op)
			carry_one(op, &acts);
	}
	assert_true(w.ended);
	carry(&acts);
}

/* The journal has no room: the flush waits for a checkpoint, and the entry follows. */
static void full_journal(void **state)
{
	u64 checkpoints;

	two_dirty_blocks();
	put(SECTOR + 2 * BLOCK, 8, 1);
	e->journal.head = e->journal.tail + e->g->journal_blocks;
	assert_false(hybrid_journal_has_room(&e->journal));
	checkpoints = pool().checkpoints;
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(pool().checkpoints, checkpoints + 1);
	assert_true(hybrid_journal_has_room(&e->journal));
	crash();
	start();
	open_volume();
	reads(SECTOR + 2 * BLOCK, 8, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(rewrites, setup, teardown),
		cmocka_unit_test_setup_teardown(changes_need_an_entry, setup, teardown),
		cmocka_unit_test_setup_teardown(beside_a_commit, setup, teardown),
		cmocka_unit_test_setup_teardown(beside_a_record, setup, teardown),
		cmocka_unit_test_setup_teardown(fua_beside_its_record, setup, teardown),
		cmocka_unit_test_setup_teardown(fua_beside_a_flush, setup, teardown),
		cmocka_unit_test_setup_teardown(holds_up_commits, setup, teardown),
		cmocka_unit_test_setup_teardown(two_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(write_beside_a_flush, setup, teardown),
		cmocka_unit_test_setup_teardown(superblock_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(superblock_fails_at_rest, setup, teardown),
		cmocka_unit_test_setup_teardown(failed, setup, teardown),
		cmocka_unit_test_setup_teardown(checkpoint_beside_flushes, setup, teardown),
		cmocka_unit_test_setup_teardown(checkpoint_beside_lazy_commits, setup, teardown),
		cmocka_unit_test_setup_teardown(full_journal, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
