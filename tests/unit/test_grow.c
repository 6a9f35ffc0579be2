// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * An origin grows, and its volume follows: after each write of that, cut, an open finds the old size or
 * the new one, all data, and goes on.
 */
#include "rig.h"
#include "engine-internal.h"

#define LARGER (ORIGIN_SECTORS + 8 * MIB)
#define OLD (ORIGIN_SECTORS - 2 * DATA)
#define NEW (LARGER - 2 * DATA)

/* The device has grown; the space beyond its old end is not zero. */
static void grow_device(u64 sectors)
{
	u64 i, old = disk_sectors[1], seed = 11;

	disk[1] = realloc(disk[1], sectors * 512);
	assert_non_null(disk[1]);
	disk_sectors[1] = sectors;
	for (i = old; i < sectors; i++)
		*(u64 *)(disk[1] + i * 512) = next_random(&seed);
}

static int read_sb(u64 sector, u64 device, struct hybrid_sb *got)
{
	return hybrid_sb_decode((void *)disk[1] + sector * 512, sector, device, got, NULL);
}

static int suspend_and_grow_as(u64 sectors, const u8 *member_uuid)
{
	struct hybrid_actions acts;
	int r;

	hybrid_actions_init(&acts);
	assert_true(hybrid_volume_suspend(e, v, &acts));
	carry(&acts);
	r = hybrid_volume_grow(e, v, sectors, member_uuid);
	hybrid_actions_init(&acts);
	hybrid_volume_resume(e, v, &acts);
	carry(&acts);
	return r;
}

static int suspend_and_grow(u64 sectors)
{
	return suspend_and_grow_as(sectors, NULL);
}

static void sizes_are(u64 sectors, u64 new)
{
	struct hybrid_volume_info now;

	assert_int_equal(hybrid_volume_info(e, 1, &now), 0);
	assert_true(now.data_sectors == sectors && now.data_sectors_new == new);
}

static void origin_is(u64 member, u64 data)
{
	struct hybrid_sb got[2];
	u32 copy;

	for (copy = 0; copy < 2; copy++) {
		assert_int_equal(read_sb(hybrid_sb_sector(member, copy), member, &got[copy]), 0);
		assert_true(got[copy].member_sectors == member && got[copy].data_sectors == data);
	}
	assert_true(got[0].nonce == got[1].nonce && got[0].sequence == got[1].sequence);
}

/* Neither a superblock nor a lost map is where the old tail was. */
static void old_tail_is_gone(void)
{
	u64 sector = hybrid_sb_sector(ORIGIN_SECTORS, 1), i;

	for (i = 0; i < 2 * HYBRID_META_BLOCK_SECTORS * 512; i++)
		assert_int_equal(disk[1][sector * 512 + i], 0);
}

static int open_it(const char **why)
{
	return hybrid_volume_open(e, 1, disk_sectors[1], NULL, &v, why);
}

static void boot(void)
{
	const char *why = "";

	crash();
	start();
	if (open_it(&why))
		fail_msg("not opened: %s", why);
	assert_null(hybrid_engine_check(e));
}

static void grown(void **state)
{
	/* As a lost map that a session before has left */
	memset(disk[1] + 512 * (hybrid_sb_sector(ORIGIN_SECTORS, 1) + HYBRID_META_BLOCK_SECTORS), 7, 4096);
	put(0, BLOCK, 2);
	put(OLD - BLOCK, BLOCK, 3);
	grow_device(LARGER);
	assert_int_equal(suspend_and_grow(LARGER), 0);
	sizes_are(NEW, 0);
	origin_is(LARGER, NEW);
	old_tail_is_gone();
	assert_true(hybrid_volume_sectors(v) == NEW);
	reads(0, BLOCK, 2);
	/* The place of the old tail, and the space behind it */
	put(OLD, BLOCK, 4);
	put(NEW - BLOCK, BLOCK, 5);
	assert_int_equal(flush_volume(), 0);
	boot();
	sizes_are(NEW, 0);
	origin_is(LARGER, NEW);
	reads(0, BLOCK, 2);
	reads(OLD - BLOCK, BLOCK, 3);
	reads(OLD, BLOCK, 4);
	reads(NEW - BLOCK, BLOCK, 5);
	/* Again, by as little as can be */
	grow_device(LARGER + HYBRID_ALIGN_SECTORS);
	assert_int_equal(suspend_and_grow(LARGER + HYBRID_ALIGN_SECTORS), 0);
	origin_is(LARGER + HYBRID_ALIGN_SECTORS, NEW + HYBRID_ALIGN_SECTORS);
	reads(NEW - BLOCK, BLOCK, 5);
	stop();
}

/* As if the origin had been formatted when it was so large. */
static void format_at(u64 member)
{
	struct hybrid_sb origin;
	u32 copy;

	crash();
	assert_int_equal(read_sb(HYBRID_SB_SECTOR, ORIGIN_SECTORS, &origin), 0);
	origin.member_sectors = member;
	for (copy = 0; copy < 2; copy++)
		hybrid_sb_encode((void *)disk[1] + 512 * hybrid_sb_sector(member, copy), &origin,
				 hybrid_sb_sector(member, copy));
	start();
	open_volume();
}

/* The new tail may stand right behind the superblock of the old one, where its lost map was. */
static void tails_that_touch(void **state)
{
	grow_device(ORIGIN_SECTORS + HYBRID_ALIGN_SECTORS - 8);
	assert_int_equal(suspend_and_grow(ORIGIN_SECTORS + HYBRID_ALIGN_SECTORS - 8), 0);
	origin_is(ORIGIN_SECTORS, OLD);
	boot();
	origin_is(ORIGIN_SECTORS, OLD);
	format_at(ORIGIN_SECTORS + HYBRID_ALIGN_SECTORS - 8);
	grow_device(ORIGIN_SECTORS + HYBRID_ALIGN_SECTORS);
	assert_int_equal(suspend_and_grow(ORIGIN_SECTORS + HYBRID_ALIGN_SECTORS), 0);
	origin_is(ORIGIN_SECTORS + HYBRID_ALIGN_SECTORS, OLD + HYBRID_ALIGN_SECTORS);
}

/* ---- cut -------------------------------------------------------------------- */

static u8 *shot[2];

static void take(void)
{
	u32 d;

	for (d = 0; d < 2; d++) {
		shot[d] = malloc(disk_sectors[d] * 512);
		assert_non_null(shot[d]);
		memcpy(shot[d], disk[d], disk_sectors[d] * 512);
	}
}

static void put_back(void)
{
	u32 d;

	for (d = 0; d < 2; d++)
		memcpy(disk[d], shot[d], disk_sectors[d] * 512);
}

static void drop_shot(void)
{
	free(shot[0]);
	free(shot[1]);
}

/* Damages copy @n of the superblock.  Returns false if there is no copy at this place. */
static bool damage(u32 n)
{
	const u64 place[] = { HYBRID_SB_SECTOR, hybrid_sb_sector(ORIGIN_SECTORS, 1),
			      hybrid_sb_sector(LARGER, 1) };
	struct hybrid_sb got;

	if (n >= ARRAY_SIZE(place))
		return true;
	if (read_sb(place[n], LARGER, &got))
		return false;
	memset(disk[1] + place[n] * 512 + 512, 0x5a, 512);
	return true;
}

/* The power goes after @n writes of a volume that grows.  Returns false if it did not. */
static bool cut_after(u32 n)
{
	const char *why = "";
	struct hybrid_actions acts;
	bool cut;

	put_back();
	start();
	assert_int_equal(open_it(&why), 0);
	hybrid_actions_init(&acts);
	assert_true(hybrid_volume_suspend(e, v, &acts));
	carry(&acts);
	writes_left = n;
	assert_int_equal(hybrid_volume_grow(e, v, LARGER, NULL), 0);
	cut = !writes_left;
	writes_left = U32_MAX;
	crash();
	return cut;
}

/* Either size, and all that was written; and the command again ends it. */
static void goes_on(u32 n, u32 damaged)
{
	struct hybrid_volume_info now;
	struct hybrid_sb tail;
	const char *why = "";
	int r;

	start();
	r = open_it(&why);
	/* Without its head a member that was formatted smaller has no tail, as ever */
	if (r == -EMEDIUMTYPE && !damaged) {
		assert_int_not_equal(read_sb(hybrid_sb_sector(LARGER, 1), LARGER, &tail), 0);
		crash();
		return;
	}
	if (r)
		fail_msg("cut after %u, copy %u damaged: %s", n, damaged, why);
	assert_null(hybrid_engine_check(e));
	assert_int_equal(hybrid_volume_info(e, 1, &now), 0);
	assert_int_equal(now.data_sectors_new, 0);
	assert_true(now.data_sectors == OLD || now.data_sectors == NEW);
	if (now.data_sectors == OLD)
		assert_int_equal(suspend_and_grow(LARGER), 0);
	sizes_are(NEW, 0);
	origin_is(LARGER, NEW);
	/* Only the head knows where that is */
	if (damaged)
		old_tail_is_gone();
	reads(0, BLOCK, 2);
	reads(OLD - BLOCK, BLOCK, 3);
	put(NEW - BLOCK, BLOCK, 5);
	assert_int_equal(flush_volume(), 0);
	reads(NEW - BLOCK, BLOCK, 5);
	crash();
	/* For good */
	start();
	assert_int_equal(open_it(&why), 0);
	reads(0, BLOCK, 2);
	reads(NEW - BLOCK, BLOCK, 5);
	crash();
}

static void cut_at_each_write(void **state)
{
	bool cut = true;
	u32 n, damaged;

	set_mode(HYBRID_MODE_WRITEBACK);
	put(0, BLOCK, 2);
	put(OLD - BLOCK, BLOCK, 3);
	grow_device(LARGER);
	stop();
	crash();
	take();
	for (n = 0; cut; n++) {
		assert_true(n < 64);
		for (damaged = 0; damaged < 4; damaged++) {
			cut = cut_after(n);
			if (damage(damaged))
				goes_on(n, damaged);
		}
	}
	assert_true(n > 8);
	drop_shot();
}

/* It is made smaller again before anybody went on: the old size, as if nothing had been. */
static void cut_and_shrunk_again(void **state)
{
	struct hybrid_volume_info now;
	const char *why;
	u32 n, old = 0;
	bool cut = true;

	put(0, BLOCK, 2);
	grow_device(LARGER);
	stop();
	crash();
	take();
	for (n = 0; cut; n++) {
		struct hybrid_sb head;

		cut = cut_after(n);
		assert_int_equal(read_sb(HYBRID_SB_SECTOR, LARGER, &head), 0);
		disk_sectors[1] = ORIGIN_SECTORS;
		start();
		why = "";
		if (head.member_sectors == ORIGIN_SECTORS) {
			assert_int_equal(open_it(&why), 0);
			sizes_are(OLD, 0);
			origin_is(ORIGIN_SECTORS, OLD);
			reads(0, BLOCK, 2);
			old++;
		} else {
			/* Not the old tail in its place */
			assert_int_equal(open_it(&why), -EMEDIUMTYPE);
			v = NULL;
		}
		assert_int_equal(hybrid_volume_info(e, 1, &now), 0);
		crash();
		disk_sectors[1] = LARGER;
	}
	assert_true(old > 4 && n > old + 2);
	drop_shot();
}

/* A root rots: the other one knows of the growth, too. */
static void one_root(void **state)
{
	const char *why;
	u32 n, area;
	bool cut = true;

	put(0, BLOCK, 2);
	grow_device(LARGER);
	stop();
	crash();
	take();
	for (n = 0; cut; n++) {
		for (area = 0; area < 2; area++) {
			cut = cut_after(n);
			memset(disk[0] + 512 * hybrid_root_sector(&sb.geometry, area), 0, 512);
			e = new_engine(&(int){ 0 });
			why = "";
			/* The journal may go on behind the older one: then it says so */
			if (hybrid_engine_load(e, &why)) {
				crash();
				continue;
			}
			why = "";
			if (open_it(&why))
				fail_msg("cut after %u, without root %u: %s", n, area, why);
			crash();
		}
	}
	drop_shot();
}

/* The root with the new size alone rots, when the journal has blocks beyond the old end. */
static void last_root(void **state)
{
	set_mode(HYBRID_MODE_WRITEBACK);
	grow_device(LARGER);
	assert_int_equal(suspend_and_grow(LARGER), 0);
	put(NEW - BLOCK, BLOCK, 5);
	assert_int_equal(flush_volume(), 0);
	memset(disk[0] + 512 * hybrid_root_sector(&sb.geometry, e->cp.root_sequence), 0, 512);
	boot();
	sizes_are(NEW, 0);
	origin_is(LARGER, NEW);
	reads(NEW - BLOCK, BLOCK, 5);
}

/* ---- refused, or failed ------------------------------------------------------- */

static void refused(void **state)
{
	put(0, BLOCK, 2);
	assert_int_equal(flush_volume(), 0);
	nr_log = 0;
	assert_int_equal(suspend_and_grow(ORIGIN_SECTORS), 0);
	assert_int_equal(suspend_and_grow(ORIGIN_SECTORS + HYBRID_ALIGN_SECTORS - 1), 0);
	assert_int_equal(suspend_and_grow(ORIGIN_SECTORS - 1), -ENOSPC);
	assert_int_equal(suspend_and_grow(BIT_ULL(60)), -EINVAL);
	sizes_are(OLD, 0);
	origin_is(ORIGIN_SECTORS, OLD);
	/* A cache that cannot be written */
	grow_device(LARGER);
	fail_cache_writes = true;
	assert_int_equal(suspend_and_grow(LARGER), -EIO);
	origin_is(ORIGIN_SECTORS, OLD);
	assert_int_equal(suspend_and_grow(LARGER), -EIO);
	fail_cache_writes = false;
	boot();
	reads(0, BLOCK, 2);
}

/*
 * Growth that fails is done the next time.  Meanwhile the volume goes on, with the size on
 * record.
 */
static void an_origin_that_fails(void **state)
{
	put(0, BLOCK, 2);
	grow_device(LARGER);
	fail_origin = true;
	assert_int_equal(suspend_and_grow(LARGER), -EIO);
	fail_origin = false;
	sizes_are(OLD, NEW);
	origin_is(ORIGIN_SECTORS, OLD);
	assert_true(hybrid_volume_sectors(v) == OLD);
	assert_int_equal(suspend_and_grow(LARGER), 0);
	sizes_are(NEW, 0);
	origin_is(LARGER, NEW);
	old_tail_is_gone();
	reads(0, BLOCK, 2);
	boot();
	reads(0, BLOCK, 2);
}

#define LARGEST (LARGER + 8 * MIB)
#define NEWEST (LARGEST - 2 * DATA)

/*
 * The origin fails after @ok writes of a volume that grows, and the power goes after @n writes of
 * the growth to another size that follows.  Returns false if one of them did not happen.
 */
static bool fail_and_cut(u32 ok, u32 n)
{
	const char *why = "";
	bool cut;
	int r;

	put_back();
	start();
	assert_int_equal(open_it(&why), 0);
	origin_writes_left = ok;
	r = suspend_and_grow(LARGER);
	origin_writes_left = U32_MAX;
	writes_left = n;
	assert_int_equal(suspend_and_grow(LARGEST), 0);
	cut = !writes_left;
	writes_left = U32_MAX;
	boot();
	reads(0, BLOCK, 2);
	reads(OLD - BLOCK, BLOCK, 3);
	assert_int_equal(suspend_and_grow(LARGEST), 0);
	sizes_are(NEWEST, 0);
	origin_is(LARGEST, NEWEST);
	reads(OLD - BLOCK, BLOCK, 3);
	crash();
	return r && cut;
}

/* The first growth may have left its size in the head, of which the entry then knew nothing. */
static void again_to_another_size(void **state)
{
	u32 ok, n;

	put(0, BLOCK, 2);
	put(OLD - BLOCK, BLOCK, 3);
	assert_int_equal(flush_volume(), 0);
	crash();
	grow_device(LARGEST);
	take();
	for (ok = 0, n = 1; n; ok++)
		for (n = 0; fail_and_cut(ok, n); )
			n++;
	assert_true(ok > 4);
	drop_shot();
}

/* ---- in place ------------------------------------------------------------------- */

#define ODD (ORIGIN_SECTORS - 5)

static void make_inplace(u64 sectors)
{
	const char *why = "";

	delete_volume();
	assert_int_equal(hybrid_volume_forget(e, 1), 0);
	info.flags = HYBRID_VOLUME_INPLACE;
	info.data_sector = 0;
	info.data_sectors = sectors;
	disk_sectors[1] = sectors;
	assert_int_equal(hybrid_volume_create(e, 1, &info), 0);
	assert_int_equal(open_it(&why), 0);
}

static void in_place(void **state)
{
	const char *why;

	make_inplace(ODD);
	put(0, BLOCK, 2);
	rest();
	nr_log = 0;
	grow_device(LARGER);
	assert_int_equal(suspend_and_grow(LARGER), 0);
	sizes_are(LARGER, 0);
	reads(0, BLOCK, 2);
	put(LARGER - BLOCK, BLOCK, 3);
	reads(LARGER - BLOCK, BLOCK, 3);
	/* A cut after 2: an open goes on; smaller again, it is as before */
	assert_int_equal(hybrid_volume_close(e, v), 0);
	v = NULL;
	why = "";
	assert_int_equal(open_it(&why), 0);
	sizes_are(LARGER, 0);
}

static const u8 new_identity[HYBRID_UUID_SIZE] = { 7 };
static bool half_an_entry;

/* A checkpoint could capture the entry now: no lock is held. */
static void look_at_the_entry(void)
{
	half_an_entry |= v->info.data_sectors_new &&
			 memcmp(v->info.member_uuid, new_identity, HYBRID_UUID_SIZE);
}

/* The entry gets its new size and its new identity at once: no root has only one of them. */
static void in_place_with_a_new_identity(void **state)
{
	struct hybrid_volume_info now;
	int r;

	make_inplace(ODD);
	grow_device(LARGER);
	half_an_entry = false;
	shim_irqs_on = look_at_the_entry;
	r = suspend_and_grow_as(LARGER, new_identity);
	shim_irqs_on = NULL;
	assert_int_equal(r, 0);
	assert_false(half_an_entry);
	boot();
	sizes_are(LARGER, 0);
	assert_int_equal(hybrid_volume_info(e, 1, &now), 0);
	assert_memory_equal(now.member_uuid, new_identity, HYBRID_UUID_SIZE);
}

/* The cache has a part of the granule that the end cut off. */
static void in_place_with_half_a_granule(void **state)
{
	make_inplace(ODD);
	set_mode(HYBRID_MODE_WRITETHROUGH);
	put(ODD - 3, 3, 2);
	assert_true(status().cached);
	rest();
	grow_device(ORIGIN_SECTORS);
	memset(disk[1] + ODD * 512, 0x77, (ORIGIN_SECTORS - ODD) * 512);
	assert_int_equal(suspend_and_grow(ORIGIN_SECTORS), 0);
	assert_int_equal(read_io(ORIGIN_SECTORS - 8, 8), 0);
	assert_memory_equal(reader.data, disk[1] + (ORIGIN_SECTORS - 8) * 512, 8 * 512);
	reads(ODD - 3, 3, 2);
}

static void in_place_with_half_a_dirty_granule(void **state)
{
	make_inplace(ODD);
	set_mode(HYBRID_MODE_WRITEBACK);
	put(ODD - 3, 3, 2);
	assert_int_equal(status().dirty, 1);
	grow_device(ORIGIN_SECTORS);
	assert_int_equal(suspend_and_grow(ORIGIN_SECTORS), -EBUSY);
	sizes_are(ODD, 0);
	reads(ODD - 3, 3, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(grown, setup, teardown),
		cmocka_unit_test_setup_teardown(tails_that_touch, setup, teardown),
		cmocka_unit_test_setup_teardown(cut_at_each_write, setup, teardown),
		cmocka_unit_test_setup_teardown(cut_and_shrunk_again, setup, teardown),
		cmocka_unit_test_setup_teardown(one_root, setup, teardown),
		cmocka_unit_test_setup_teardown(last_root, setup, teardown),
		cmocka_unit_test_setup_teardown(refused, setup, teardown),
		cmocka_unit_test_setup_teardown(an_origin_that_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(again_to_another_size, setup, teardown),
		cmocka_unit_test_setup_teardown(in_place, setup, teardown),
		cmocka_unit_test_setup_teardown(in_place_with_a_new_identity, setup, teardown),
		cmocka_unit_test_setup_teardown(in_place_with_half_a_granule, setup, teardown),
		cmocka_unit_test_setup_teardown(in_place_with_half_a_dirty_granule, setup, teardown),
	};

	return cmocka_run_group_tests_name("grow", tests, NULL, NULL);
}
