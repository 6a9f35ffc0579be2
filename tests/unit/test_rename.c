// SPDX-License-Identifier: GPL-2.0-or-later
/* A volume gets another name: first in its pool's entry, then on its origin, while I/O runs. */
#include "rig.h"
#include "engine-internal.h"

static struct hybrid_sb origin_sb(u32 copy)
{
	u64 sector = hybrid_sb_sector(ORIGIN_SECTORS, copy);
	struct hybrid_sb got;

	assert_int_equal(hybrid_sb_decode((void *)disk[1] + sector * 512, sector, ORIGIN_SECTORS,
					  &got, NULL), 0);
	return got;
}

static void origin_says(const char *name)
{
	assert_string_equal(origin_sb(0).name, name);
	assert_string_equal(origin_sb(1).name, name);
	assert_true(origin_sb(0).sequence == origin_sb(1).sequence);
}

static void entry_says(const char *name)
{
	struct hybrid_volume_info now;

	assert_int_equal(hybrid_volume_info(e, 1, &now), 0);
	assert_string_equal(now.name, name);
}

static int renew(void)
{
	struct hybrid_actions acts;
	int r;

	assert_true(hybrid_volume_claim_sb(e, v));
	r = hybrid_volume_renew_sb(e, v);
	hybrid_actions_init(&acts);
	hybrid_volume_release_sb(e, v, &acts);
	carry(&acts);
	return r;
}

static void in_this_order(void **state)
{
	char old[HYBRID_NAME_SIZE];

	strcpy(old, info.name);
	put(0, BLOCK, 2);
	assert_int_equal(hybrid_volume_rename(e, 1, "other"), 0);
	entry_says("other");
	origin_says(old);
	assert_int_equal(renew(), 0);
	origin_says("other");
	assert_int_equal(origin_sb(0).flags, HYBRID_SB_DIRTY);
	reads(0, BLOCK, 2);
	crash();
	start();
	entry_says("other");
	open_volume();
	reads(0, BLOCK, 2);
}

/* A cut between the two: each open writes the entry's name. */
static void the_entry_is_right(void **state)
{
	char old[HYBRID_NAME_SIZE];

	strcpy(old, info.name);
	assert_int_equal(hybrid_volume_rename(e, 1, "other"), 0);
	crash();
	origin_says(old);
	start();
	open_volume();
	entry_says("other");
	origin_says("other");
}

static void refused(void **state)
{
	struct hybrid_volume_info other = info;
	char name[HYBRID_NAME_SIZE];

	strcpy(name, info.name);
	other.uuid[0]++;
	other.member_uuid[0]++;
	strcpy(other.name, "other");
	assert_int_equal(hybrid_volume_create(e, 2, &other), 0);
	assert_int_equal(hybrid_volume_rename(e, 1, "other"), -EEXIST);
	assert_int_equal(hybrid_volume_rename(e, 3, "third"), -ENOENT);
	/* Names that could not be loaded again */
	assert_int_equal(hybrid_volume_rename(e, 1, ".hidden"), -EINVAL);
	assert_int_equal(hybrid_volume_rename(e, 1, "a/b"), -EINVAL);
	assert_int_equal(hybrid_volume_delete(e, 2, false), 0);
	assert_int_equal(hybrid_volume_rename(e, 2, "third"), -ENOENT);
	/* Its own name is no other volume's */
	assert_int_equal(hybrid_volume_rename(e, 1, name), 0);
	entry_says(name);
	fail_cache_writes = true;
	assert_int_equal(hybrid_volume_rename(e, 1, "third"), -EIO);
}

/* Two users flush in turn, without a pause: a claim does not wait for both to stop. */
static void claimed_beside_flushes(void **state)
{
	static struct user users[8];
	struct hybrid_actions acts;
	u32 n;

	memset(users, 0, sizeof(users));
	set_mode(HYBRID_MODE_WRITETHROUGH);
	hybrid_actions_init(&acts);
	hold_flush = true;
	put(0, BLOCK, 2);
	arrive(&users[0], HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	carry(&acts);
	for (n = 1; !hybrid_volume_claim_sb(e, v); n++) {
		assert_true(n < ARRAY_SIZE(users));
		assert_non_null(held_flush);
		put(0, BLOCK, 2 + n);
		arrive(&users[n], HYBRID_IO_FLUSH, 0, 0, 0, &acts);
		carry(&acts);
		let_flush_go();
	}
	hold_flush = false;
	assert_int_equal(hybrid_volume_renew_sb(e, v), 0);
	hybrid_volume_release_sb(e, v, &acts);
	carry(&acts);
	while (n--)
		assert_int_equal(wait_for(&users[n]), 0);
}

/* One that is open, and one that is closed after it: two flushes of the origin are never beside a superblock. */
static void not_beside_a_flush(void **state)
{
	struct hybrid_actions acts;

	set_mode(HYBRID_MODE_WRITETHROUGH);
	put(0, BLOCK, 2);
	hold_flush = true;
	hybrid_actions_init(&acts);
	arrive(&flusher, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	carry(&acts);
	assert_non_null(held_flush);
	assert_false(hybrid_volume_claim_sb(e, v));
	hold_flush = false;
	let_flush_go();
	assert_int_equal(wait_for(&flusher), 0);
	assert_int_equal(hybrid_volume_rename(e, 1, "other"), 0);
	assert_true(hybrid_volume_claim_sb(e, v));
	assert_false(hybrid_volume_claim_sb(e, v));
	/* A flush, and a write that needs the dirty flag, wait for the claim */
	put(0, BLOCK, 3);
	hybrid_actions_init(&acts);
	arrive(&flusher, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	carry(&acts);
	assert_false(flusher.r.ended);
	set_mode(HYBRID_MODE_WRITEBACK);
	fill_data(&writer, BLOCK, BLOCK, 4);
	hybrid_actions_init(&acts);
	arrive(&writer, HYBRID_IO_WRITE, BLOCK, BLOCK, 0, &acts);
	carry(&acts);
	assert_false(writer.r.ended);
	assert_int_equal(hybrid_volume_renew_sb(e, v), 0);
	assert_int_equal(origin_sb(0).flags, 0);
	origin_says("other");
	hybrid_actions_init(&acts);
	hybrid_volume_release_sb(e, v, &acts);
	carry(&acts);
	assert_int_equal(wait_for(&writer), 0);
	assert_int_equal(wait_for(&flusher), 0);
	assert_int_equal(origin_sb(0).flags, HYBRID_SB_DIRTY);
	origin_says("other");
	reads(0, BLOCK, 3);
	reads(BLOCK, BLOCK, 4);
}

/* Every waiter gets an error or goes on: nobody waits for ever. */
static void an_origin_that_fails(void **state)
{
	assert_int_equal(hybrid_volume_rename(e, 1, "other"), 0);
	fail_origin = true;
	assert_int_equal(renew(), -EIO);
	assert_int_equal(status().counter[HYBRID_ORIGIN_ERRORS], 1);
	fail_origin = false;
	assert_int_equal(renew(), 0);
	origin_says("other");
}

static void in_place(void **state)
{
	struct hybrid_volume_info inplace = info;

	delete_volume();
	assert_int_equal(hybrid_volume_forget(e, 1), 0);
	inplace.flags = HYBRID_VOLUME_INPLACE;
	inplace.data_sector = 0;
	inplace.data_sectors = ORIGIN_SECTORS;
	assert_int_equal(hybrid_volume_create(e, 1, &inplace), 0);
	open_volume();
	assert_int_equal(hybrid_volume_rename(e, 1, "other"), 0);
	nr_log = 0;
	assert_int_equal(renew(), 0);
	assert_int_equal(nr_log, 0);
	entry_says("other");
}

/* The first dirty write waits while the superblock is claimed, and goes on when it is not. */
static void write_beside_a_claim(void **state)
{
	struct hybrid_actions acts;

	set_mode(HYBRID_MODE_WRITEBACK);
	assert_true(hybrid_volume_claim_sb(e, v));
	fill_data(&writer, 0, 8, 1);
	hybrid_actions_init(&acts);
	arrive(&writer, HYBRID_IO_WRITE, 0, 8, 0, &acts);
	carry(&acts);
	assert_false(writer.r.ended);
	hybrid_actions_init(&acts);
	hybrid_volume_release_sb(e, v, &acts);
	carry(&acts);
	assert_int_equal(wait_for(&writer), 0);
	reads(0, 8, 1);
}

/*
 * A write waits for a record that waits for a flush of the origin; the superblock cannot be
 * written, and after that error no flush lets the record out.
 */
static void write_beside_a_failure(void **state)
{
	struct hybrid_set *s = &e->map.set[0];
	struct hybrid_actions acts;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	rest();
	fill_data(&writer, 0, 8, 2);
	hybrid_actions_init(&acts);
	prepare(&writer, HYBRID_IO_WRITE, 0, 8, 0);
	/* Any way to a write that has begun; then it waits. */
	if (hybrid_engine_map(e, &writer.r.io, &acts) == HYBRID_MAP_REMAP)
		assert_true(hybrid_engine_io_done(e, &writer.r.io, 0, &acts));
	carry(&acts);
	INIT_LIST_HEAD(&writer.r.io.link);
	spin_lock(&s->lock);
	hybrid_wait_in_set(s, &writer.r.io, WAIT_RECORD);
	spin_unlock(&s->lock);
	fail_origin = true;
	assert_int_equal(renew(), -EIO);
	fail_origin = false;
	assert_int_equal(wait_for(&writer), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(in_this_order, setup, teardown),
		cmocka_unit_test_setup_teardown(the_entry_is_right, setup, teardown),
		cmocka_unit_test_setup_teardown(refused, setup, teardown),
		cmocka_unit_test_setup_teardown(write_beside_a_claim, setup, teardown),
		cmocka_unit_test_setup_teardown(write_beside_a_failure, setup, teardown),
		cmocka_unit_test_setup_teardown(not_beside_a_flush, setup, teardown),
		cmocka_unit_test_setup_teardown(claimed_beside_flushes, setup, teardown),
		cmocka_unit_test_setup_teardown(an_origin_that_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(in_place, setup, teardown),
	};

	return cmocka_run_group_tests_name("rename", tests, NULL, NULL);
}
