// SPDX-License-Identifier: GPL-2.0-or-later
/* Places of the cache device that fail twice, and are used no more. */
#include "rig.h"
#include "engine-internal.h"

/* Where the block of @sector is on the cache device; 0: nowhere. */
static u64 place_of(u64 sector)
{
	u64 key = hybrid_key(v->id, to_oblock(sector / BLOCK));
	u32 set = hybrid_map_set_of(&e->map, key);
	int i = hybrid_set_find(&e->map, &e->map.set[set], key);

	return i < 0 ? 0 : cache_sector(e, set, i, 0);
}

/* The first block of the next window in the same set. */
static u64 next_in_set(u64 sector)
{
	u64 step = (u64)BLOCK << e->g->window_shift, next = sector;
	u32 set = hybrid_map_set_of(&e->map, hybrid_key(v->id, to_oblock(sector / BLOCK)));

	do
		next += step;
	while (hybrid_map_set_of(&e->map, hybrid_key(v->id, to_oblock(next / BLOCK))) != set);
	return next;
}

static void bad(u64 from, u64 count)
{
	bad_from = from;
	bad_to = from + count;
}

/* The place that failed as the @n-th of the places remembered. */
static u64 noted(u32 n)
{
	return hybrid_data_sector(e->g, to_cblock(e->places.place[n].block));
}

/* So many blocks are retired, all else agrees, and (@place) the last one is there. */
static void retired(u32 nr, u64 place)
{
	u64 sector;

	assert_int_equal(pool().retired, nr);
	assert_int_equal(hybrid_engine_retired(e, &sector), nr);
	if (nr)
		assert_int_equal(sector, place);
	assert_null(hybrid_engine_check(e));
}

/* Blocks in use, free blocks and retired blocks make up all blocks. */
static void all_there(void)
{
	struct hybrid_pool_status st = pool();

	assert_int_equal(st.used + st.free + st.retired, st.blocks);
}

/* Has data I/O gone there, since the log began? */
static bool used(u64 place)
{
	u32 n;

	for (n = 0; n < nr_log; n++)
		if (!op_log[n].origin && !op_log[n].flush && op_log[n].sector < place + BLOCK &&
		    op_log[n].sector + op_log[n].count > place)
			return true;
	return false;
}

static void evict_now(u64 sector)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_engine_evict(e, v, to_oblock(sector / BLOCK), &acts);
	carry(&acts);
}

/* The next blocks of the volume, from @sector on, are cached, and none of them there. */
static void nobody_gets(u64 place, u64 sector)
{
	u32 n;

	for (n = 0; n < 16; n++, sector += BLOCK) {
		reads(sector, BLOCK, 0);
		assert_false(used(place));
		assert_true(place_of(sector));
	}
}

/* Cannot be written: the free list gives it to each that comes. */
static void place_of_fills(void **state)
{
	u64 place, second = next_in_set(0), third = next_in_set(second);

	reads(0, BLOCK, 0);
	place = place_of(0);
	evict_now(0);
	rest();
	bad(place + 8, 8);
	reads(second, BLOCK, 0);
	assert_true(used(place));
	assert_int_equal(place_of(second), 0);
	rest();
	retired(0, 0);
	reads(third, BLOCK, 0);
	assert_true(used(place));
	rest();
	retired(1, place);
	all_there();
	/* It would work again, but nobody asks. */
	bad(0, 0);
	nobody_gets(place, third + 8 * BLOCK);
	/* Until the pool is loaded again. */
	stop();
	crash();
	start();
	retired(0, 0);
	open_volume();
	all_there();
}

/* One error of a place is none of the next one's. */
static void one_error_each(void **state)
{
	u64 sector;

	for (sector = 0; sector < 8 * 8 * BLOCK; sector += 8 * BLOCK) {
		reads(sector, BLOCK, 0);
		fail_cache_reads = true;
		reads(sector, 8, 0);
		fail_cache_reads = false;
	}
	rest();
	retired(0, 0);
	for (sector = 0; sector < 8 * 8 * BLOCK; sector += 8 * BLOCK)
		assert_true(place_of(sector));
	assert_int_equal(pool().evictions, 0);
}

/* Hits of a clean block: it leaves with the second error, and is not taken back. */
static void place_of_reads(void **state)
{
	u64 place;

	reads(0, BLOCK, 0);
	rest();
	place = place_of(0);
	bad(place, BLOCK);
	reads(0, 8, 0);
	assert_int_equal(place_of(0), place);
	reads(8, 8, 0);
	assert_int_equal(pool().evictions, 1);
	rest();
	retired(1, place);
	all_there();
	nobody_gets(place, 8 * BLOCK);
	/* Its data are cached elsewhere. */
	reads(0, BLOCK, 0);
	assert_true(place_of(0) && place_of(0) != place);
	reads(0, BLOCK, 0);
	moved(BLOCK, 0, 0, 0);
}

/* A read fails after its block has left, and its data were cached elsewhere: it was the old place. */
static void place_left_meanwhile(void **state)
{
	struct user *slow = calloc(1, sizeof(*slow));
	struct hybrid_actions acts;
	u64 place;

	reads(0, BLOCK, 0);
	rest();
	place = place_of(0);
	hybrid_actions_init(&acts);
	prepare(slow, HYBRID_IO_READ, 0, 8, 0);
	assert_int_equal(hybrid_engine_map(e, &slow->r.io, &acts), HYBRID_MAP_REMAP);
	assert_false(slow->r.io.op.origin);
	evict_now(0);
	reads(0, BLOCK, 0);
	assert_true(place_of(0) != place);
	assert_false(hybrid_engine_io_done(e, &slow->r.io, -EIO, &acts));
	carry(&acts);
	assert_int_equal(e->places.nr, 1);
	assert_int_equal(noted(0), place);
	free(slow);
	assert_null(hybrid_engine_check(e));
}

/* I/O that a device refuses says nothing about the place. */
static void refused(void **state)
{
	struct hybrid_actions acts;
	u32 n;

	reads(0, BLOCK, 0);
	rest();
	for (n = 0; n < 4; n++) {
		hybrid_actions_init(&acts);
		prepare(&reader, HYBRID_IO_READ, 0, 8, 0);
		assert_int_equal(hybrid_engine_map(e, &reader.r.io, &acts), HYBRID_MAP_REMAP);
		assert_true(hybrid_engine_io_done(e, &reader.r.io, -EAGAIN, &acts));
		prepare(&writer, HYBRID_IO_WRITE, 8 * BLOCK, BLOCK, 0);
		set_mode(HYBRID_MODE_WRITEBACK);
		if (hybrid_engine_map(e, &writer.r.io, &acts) == HYBRID_MAP_REMAP &&
		    !writer.r.io.op.origin)
			assert_true(hybrid_engine_io_done(e, &writer.r.io, -EAGAIN, &acts));
		carry(&acts);
	}
	rest();
	retired(0, 0);
	assert_int_equal(pool().evictions, 0);
}

/* A dirty block, recorded, of which the first granule has failed twice; returns its place. */
static u64 bad_dirty_place(void)
{
	u64 place;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	put(8 * BLOCK, BLOCK, 1);
	assert_int_equal(flush_volume(), 0);
	place = place_of(8 * BLOCK);
	bad(place, 8);
	assert_int_equal(read_io(8 * BLOCK, 8), -EIO);
	assert_int_equal(read_io(8 * BLOCK, 8), -EIO);
	return place;
}

/*
 * Dirty data stays despite all failures; once it has been written back, the block leaves like any
 * other, and is retired then.
 */
static void place_of_dirty_data(void **state)
{
	u64 place;

	place = bad_dirty_place();
	rest();
	retired(0, 0);
	assert_int_equal(place_of(8 * BLOCK), place);
	reads(8 * BLOCK + 8, 8, 1);
	bad(0, 0);
	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	assert_int_equal(status().dirty, 0);
	assert_true(origin_has(8 * BLOCK, BLOCK, 1));
	retired(0, 0);
	evict_now(8 * BLOCK);
	rest();
	retired(1, place);
	all_there();
	reads(8 * BLOCK, 8, 1);
}

/* Writeback finds the granule that cannot be read, and dirty data stays where it is. */
static void place_of_writeback(void **state)
{
	u64 place;
	u32 n;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	put(8 * BLOCK, BLOCK, 1);
	put(9 * BLOCK, BLOCK, 1);
	assert_int_equal(flush_volume(), 0);
	place = place_of(8 * BLOCK);
	bad(place, 8);
	set_mode(HYBRID_MODE_WRITETHROUGH);
	for (n = 0; n < 4; n++)
		rest();
	assert_int_equal(status().dirty, 1);
	assert_true(e->places.nr == 1 && e->places.place[0].bad);
	/* Data that could not be read can be read again, and is written back. */
	bad(0, 0);
	for (n = 0; n < 4; n++)
		rest();
	assert_int_equal(status().dirty, 0);
	evict_now(9 * BLOCK);
	evict_now(8 * BLOCK);
	rest();
	retired(1, place);
	all_there();
}

/* A read of both devices, of which one fails */
static void place_of_mixed_reads(void **state)
{
	u64 place;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	put(8 * BLOCK, 8, 1);
	assert_int_equal(flush_volume(), 0);
	place = place_of(8 * BLOCK);
	bad(place, 8);
	assert_int_equal(read_io(8 * BLOCK, 16), -EIO);
	assert_false(e->places.place[0].bad);
	assert_int_equal(read_io(8 * BLOCK, 16), -EIO);
	assert_int_equal(e->places.nr, 1);
	assert_true(e->places.place[0].bad);
	assert_null(hybrid_engine_check(e));
}

/* Writes to the cache alone go to the origin; of the block something else is valid. */
static void place_of_redirected_writes(void **state)
{
	u64 place;

	reads(0, BLOCK, 0);
	rest();
	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	reads(8 * BLOCK, BLOCK, 0);
	place = place_of(8 * BLOCK);
	bad(place + 16, 8);
	put(8 * BLOCK + 16, 8, 1);
	assert_true(origin_has(8 * BLOCK + 16, 8, 1));
	assert_int_equal(place_of(8 * BLOCK), place);
	rest();
	put(8 * BLOCK + 16, 8, 2);
	assert_true(origin_has(8 * BLOCK + 16, 8, 2));
	rest();
	retired(1, place);
	all_there();
	reads(8 * BLOCK + 16, 8, 2);
}

/* ... and to both devices */
static void place_of_writes_to_both(void **state)
{
	u64 place;

	reads(8 * BLOCK, BLOCK, 0);
	rest();
	place = place_of(8 * BLOCK);
	bad(place + 16, 8);
	put(8 * BLOCK + 16, 8, 1);
	put(8 * BLOCK + 16, 8, 2);
	rest();
	retired(1, place);
	reads(8 * BLOCK + 16, 8, 2);
}

/* Of a fill of several blocks one cannot be written: the others are, and it is known which. */
static void one_of_several(void **state)
{
	u64 place, other = next_in_set(0);

	reads(0, BLOCK, 0);
	/* The block freed last is allocated first. */
	reads(other, BLOCK, 0);
	place = place_of(other);
	evict_now(other);
	rest();
	bad(place, 8);
	reads(BLOCK, BLOCK, 0);
	assert_true(used(place));
	assert_int_equal(sectors_of(ORIGIN, false), 3 * BLOCK);
	assert_int_equal(e->places.nr, 1);
	assert_int_equal(noted(0), place);
	rest();
	/* Two of the three are cached. */
	assert_int_equal(!!place_of(BLOCK) + !!place_of(2 * BLOCK) + !!place_of(3 * BLOCK), 2);
	assert_null(hybrid_engine_check(e));
	for (place = BLOCK; place < 4 * BLOCK; place += BLOCK)
		reads(place, BLOCK, 0);
}

/* Nobody who waits for the fill waits for more than one block: the rest is not tried. */
static void several_and_a_suspend(void **state)
{
	struct hybrid_actions acts;

	reads(0, BLOCK, 0);
	fail_cache_writes = true;
	v->state = VOLUME_SUSPENDED;
	hybrid_actions_init(&acts);
	arrive(&reader, HYBRID_IO_READ, BLOCK, BLOCK, 0, &acts);
	carry(&acts);
	assert_int_equal(wait_for(&reader), 0);
	v->state = VOLUME_OPEN;
	assert_int_equal(pool().write_errors, 1);
	assert_int_equal(e->places.nr, 0);
	assert_int_equal(place_of(BLOCK), 0);
	fail_cache_writes = false;
	assert_null(hybrid_engine_check(e));
}

/* Where more than a share of a set fails it is the device. */
static void no_more_than_a_share(void **state)
{
	u32 n, most = e->map.nr_sets * (e->map.set_size / 8);
	struct hybrid_pool_status st;

	fail_cache_writes = false;
	bad(e->g->data_sector, (u64)e->g->nr_blocks * BLOCK);
	for (n = 0; n < 4 * most; n++) {
		reads(n % 200 * BLOCK, BLOCK, 0);
		tick(1000);
		tick(1000);
	}
	st = pool();
	assert_int_equal(st.retired, most);
	assert_null(hybrid_engine_check(e));
	assert_false(hybrid_engine_failed(e));
	bad(0, 0);
	rest();
	all_there();
	for (n = 0; n < 64; n++)
		reads(n * BLOCK, BLOCK, 0);
	assert_int_equal(status().cached, 64);
}

/* More places fail than are remembered: of the older ones it is forgotten. */
static void too_many(void **state)
{
	u32 n;

	for (n = 0; n <= NR_PLACES; n++)
		reads(n * BLOCK, BLOCK, 0);
	rest();
	fail_cache_reads = true;
	for (n = 0; n <= NR_PLACES; n++)
		reads(n * BLOCK, 8, 0);
	assert_int_equal(e->places.nr, NR_PLACES);
	/* The first one's second error is its first; the last one's is not. */
	reads(8, 8, 0);
	assert_int_equal(pool().evictions, 0);
	reads(NR_PLACES * BLOCK + 8, 8, 0);
	assert_int_equal(pool().evictions, 1);
	fail_cache_reads = false;
	assert_null(hybrid_engine_check(e));
}

/* A bad place stays on the list until it is retired, and there is no room for others. */
static void all_bad(void **state)
{
	u32 n;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	for (n = 0; n <= NR_PLACES; n++)
		put(n * BLOCK, BLOCK, 1);
	assert_int_equal(flush_volume(), 0);
	fail_cache_reads = true;
	for (n = 0; n < 2 * NR_PLACES; n++)
		assert_int_equal(read_io(n / 2 * BLOCK, 8), -EIO);
	assert_int_equal(e->places.nr_bad, NR_PLACES);
	assert_int_equal(read_io(NR_PLACES * BLOCK, 8), -EIO);
	assert_int_equal(read_io(NR_PLACES * BLOCK, 8), -EIO);
	fail_cache_reads = false;
	assert_int_equal(e->places.nr, NR_PLACES);
	assert_int_equal(e->places.nr_bad, NR_PLACES);
	for (n = 0; n < NR_PLACES; n++)
		assert_int_equal(noted(n), place_of(n * BLOCK));
	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	for (n = 0; n <= NR_PLACES; n++)
		evict_now(n * BLOCK);
	rest();
	assert_int_equal(e->places.nr, 0);
	assert_int_equal(pool().retired, NR_PLACES);
	all_there();
}

/* A removed block of a bad place goes: reads pass it by, a write waits for its removal. */
static void not_taken_back(void **state)
{
	struct hybrid_actions acts;
	u64 place;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	reads(8 * BLOCK, BLOCK, 0);
	rest();
	place = place_of(8 * BLOCK);
	bad(place, BLOCK);
	hold_meta = true;
	/* A commit is under way, which the removal comes too late for. */
	put(16 * BLOCK, BLOCK, 1);
	hybrid_actions_init(&acts);
	arrive(&flusher, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	carry(&acts);
	assert_non_null(held_meta);
	reads(8 * BLOCK, 8, 0);
	reads(8 * BLOCK + 8, 8, 0);
	assert_int_equal(pool().evictions, 1);
	bad(0, 0);
	reads(8 * BLOCK + 16, 8, 0);
	moved(0, 0, 8, 0);
	hybrid_actions_init(&acts);
	fill_data(&writer, 8 * BLOCK, BLOCK, 2);
	arrive(&writer, HYBRID_IO_WRITE, 8 * BLOCK, BLOCK, 0, &acts);
	carry(&acts);
	assert_false(writer.r.ended);
	assert_null(hybrid_engine_check(e));
	assert_int_equal(wait_checkpoint(e), 0);
	hold_meta = false;
	assert_int_equal(wait_for(&writer), 0);
	assert_int_equal(wait_for(&flusher), 0);
	rest();
	retired(1, place);
	assert_true(place_of(8 * BLOCK) != place);
	reads(8 * BLOCK, BLOCK, 2);
}

/* A purge frees blocks at once; a bad place among them is retired all the same. */
static void place_of_a_dead_volume(void **state)
{
	u64 place = bad_dirty_place();

	bad(0, 0);
	rest();
	delete_volume();
	retired(1, place);
	all_there();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(place_of_fills, setup, teardown),
		cmocka_unit_test_setup_teardown(one_error_each, setup, teardown),
		cmocka_unit_test_setup_teardown(place_of_reads, setup, teardown),
		cmocka_unit_test_setup_teardown(place_left_meanwhile, setup, teardown),
		cmocka_unit_test_setup_teardown(refused, setup, teardown),
		cmocka_unit_test_setup_teardown(place_of_dirty_data, setup, teardown),
		cmocka_unit_test_setup_teardown(place_of_writeback, setup, teardown),
		cmocka_unit_test_setup_teardown(place_of_mixed_reads, setup, teardown),
		cmocka_unit_test_setup_teardown(place_of_redirected_writes, setup, teardown),
		cmocka_unit_test_setup_teardown(place_of_writes_to_both, setup, teardown),
		cmocka_unit_test_setup_teardown(one_of_several, setup, teardown),
		cmocka_unit_test_setup_teardown(several_and_a_suspend, setup, teardown),
		cmocka_unit_test_setup_teardown(no_more_than_a_share, setup, teardown),
		cmocka_unit_test_setup_teardown(too_many, setup, teardown),
		cmocka_unit_test_setup_teardown(all_bad, setup, teardown),
		cmocka_unit_test_setup_teardown(not_taken_back, setup, teardown),
		cmocka_unit_test_setup_teardown(place_of_a_dead_volume, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
