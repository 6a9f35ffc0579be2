// SPDX-License-Identifier: GPL-2.0-or-later
/* The engine: which I/O goes to which device, the cost of each event, and waiting I/O. */
#include "journal.h"
#include "rig.h"
#include "engine-internal.h"

/* ---- modes ---------------------------------------------------------------- */

static void modes(void **state)
{
	static const struct { u32 mode; bool cache, origin; } row[] = {
		{ HYBRID_MODE_WRITEBACK, true, false },
		{ HYBRID_MODE_WRITETHROUGH, true, true },
		{ HYBRID_MODE_WRITEAROUND, false, true },
		{ HYBRID_MODE_PASSTHROUGH, false, true },
	};
	u32 n, k;

	first_dirty();
	for (n = 0; n < ARRAY_SIZE(row); n++) {
		u64 at = (n + 1) * 16 * BLOCK;

		/* Hits would pay for fills ahead. */
		hybrid_volume_reset_counters(v);
		set_mode(row[n].mode);
		rest();
		put(at, BLOCK, n + 1);
		moved(0, row[n].cache ? BLOCK : 0, 0, row[n].origin ? BLOCK : 0);
		assert_int_equal(origin_has(at, BLOCK, n + 1), row[n].origin);
		reads(at, BLOCK, n + 1);
		moved(row[n].cache ? BLOCK : 0, !row[n].cache && n == 2 ? BLOCK : 0,
		      row[n].cache ? 0 : BLOCK, 0);
		/* a second write, to data that is or is not cached now */
		put(at + 8, 8, n + 10);
		reads(at, 8, n + 1);
		reads(at + 8, 8, n + 10);
		reads(at + 16, 8, n + 1);
		assert_int_equal(status().mode, row[n].mode);
	}
	assert_int_equal(flush_volume(), 0);
	for (k = 0; k < 2; k++) {
		if (k)
			stop();
		crash();
		start();
		open_volume();
		for (n = 0; n < ARRAY_SIZE(row); n++) {
			u64 at = (n + 1) * 16 * BLOCK;

			reads(at, 8, n + 1);
			reads(at + 8, 8, n + 10);
			reads(at + 16, BLOCK - 16, n + 1);
		}
	}
}

/* After a switch away from writeback no data stays dirty, and the origin has all of it. */
static void mode_switch_drains(void **state)
{
	u32 n;

	set_mode(HYBRID_MODE_WRITEBACK);
	for (n = 0; n < 20; n++)
		put(n * BLOCK, BLOCK, n + 1);
	assert_int_equal(status().dirty, 20);
	assert_false(origin_has(0, BLOCK, 1));
	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	assert_int_equal(status().dirty, 0);
	for (n = 0; n < 20; n++) {
		assert_true(origin_has(n * BLOCK, BLOCK, n + 1));
		reads(n * BLOCK, BLOCK, n + 1);
		moved(BLOCK, 0, 0, 0);
	}
}

/* Back in writeback mode the drain is over: data that becomes dirty then stays dirty. */
static void switch_back_ends_the_drain(void **state)
{
	u32 n;

	set_mode(HYBRID_MODE_WRITEBACK);
	for (n = 0; n < 20; n++)
		put(n * BLOCK, BLOCK, n + 1);
	set_mode(HYBRID_MODE_WRITETHROUGH);
	set_mode(HYBRID_MODE_WRITEBACK);
	for (n = 0; n < 20; n++)
		put(n * BLOCK, BLOCK, n + 101);
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(status().dirty, 20);
	assert_false(status().draining);
	rest();
	assert_int_equal(status().dirty, 20);
	assert_false(status().draining);
	assert_false(origin_has(0, BLOCK, 101));
}

/*
 * Writeback by the engine's clock, at any tick length: no more than the rate plus one second that
 * can be saved up, and no less while there is dirty data to write back.
 */
static void written_back_at(u32 rate, u32 tick_ms)
{
	struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u64 first, moved, want = (u64)rate * 2 * 20;
	u32 n, blocks = 400;

	config.high_watermark = 95;
	config.low_watermark = 0;
	config.writeback_rate = rate;
	fresh_disks(BLOCK);
	small_pool(64 * MIB, HYBRID_MODE_WRITEBACK, &config);
	for (n = 0; n < blocks; n++)
		put(n * BLOCK, BLOCK, n + 1);
	assert_int_equal(flush_volume(), 0);
	for (n = 0; n < 3000; n += tick_ms)
		tick(tick_ms);
	first = status().counter[HYBRID_WRITEBACKS];
	assert_true(first > 0 || rate < 64);
	for (n = 0; n < 20000; n += tick_ms)
		tick(tick_ms);
	moved = (status().counter[HYBRID_WRITEBACKS] - first) * BLOCK;
	assert_true(status().counter[HYBRID_WRITEBACKS] < blocks);
	/* A window, of four blocks, is begun as a whole. */
	assert_in_range(moved, want < 8 * BLOCK ? 0 : want - 8 * BLOCK, want + 8 * BLOCK);
	crash();
}

static void writeback_rate(void **state)
{
	static const u32 rates[] = { 3, 64, 200, 512, 1000 };
	u32 n;

	for (n = 0; n < ARRAY_SIZE(rates); n++) {
		written_back_at(rates[n], 100);
		written_back_at(rates[n], 1000);
	}
}

static void crash_and_open(void)
{
	crash();
	start();
	open_volume();
}

/*
 * A setting is recorded by itself: nobody waits for it, and no other setting's checkpoint
 * includes it.
 */
static void settings_are_recorded(void **state)
{
	u32 mode;

	rest();
	for (mode = HYBRID_NR_MODES; mode--;) {
		set_mode(mode);
		tick(1000);
		crash_and_open();
		assert_int_equal(status().mode, mode);
		set_cutoff_to(640 + mode);
		tick(1000);
		crash_and_open();
		assert_true(status().cutoff == 640 + mode);
	}
}

/* A table or a message that repeats a setting writes nothing. */
static void settings_that_stay(void **state)
{
	u32 checkpoints;

	set_mode(HYBRID_MODE_WRITEAROUND);
	set_cutoff_to(640);
	rest();
	checkpoints = pool().checkpoints;
	set_mode(HYBRID_MODE_WRITEAROUND);
	set_cutoff_to(640);
	tick(1000);
	assert_int_equal(pool().checkpoints, checkpoints);
}

/* ---- cost of each event --------------------------------------------------- */

static void flush_is_one_journal_write(void **state)
{
	u64 journal = sb.geometry.journal_sector;
	u64 writes;

	first_dirty();
	rest();
	/* new blocks, and nothing of the kind on the origin */
	put(64 * BLOCK, BLOCK, 5);
	moved(0, BLOCK, 0, 0);
	put(99 * BLOCK + 8, 8, 6);
	moved(0, 8, 0, 0);
	writes = pool().journal_writes;
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(nr_log, 2);
	assert_true(flushed_entry(0));
	assert_true(op_log[1].sector >= journal && op_log[1].sector < sb.geometry.data_sector);
	assert_int_equal(op_log[1].count, HYBRID_META_BLOCK_SECTORS);
	assert_true(pool().journal_writes == writes + 1);
	/* and nothing is left for the next */
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(nr_log, 0);
}

/* After a failed flush no metadata is written that relies on the flush. */
static void failed_flush_of_the_cache(void **state)
{
	first_dirty();
	rest();
	put(64 * BLOCK, BLOCK, 5);
	fail_cache_flushes = true;
	assert_int_equal(flush_volume(), -EIO);
	assert_int_equal(nr_log, 1);
	assert_true(op_log[0].flush);
	assert_true(hybrid_engine_failed(e));
	fail_cache_flushes = false;
}

static void failed_flush_before_the_root(void **state)
{
	first_dirty();
	rest();
	fail_cache_flushes = true;
	nr_log = 0;
	assert_int_equal(wait_checkpoint(e), -EIO);
	assert_true(nr_log && op_log[nr_log - 1].flush);
	assert_true(hybrid_engine_failed(e));
	fail_cache_flushes = false;
}

/* More records than one journal write holds: the flush waits for the last of them. */
static void flush_of_two_entries(void **state)
{
	u32 records, n, journal = 0;

	fresh_volume(8);
	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	records = HYBRID_ENTRY_RECORDS(HYBRID_JOURNAL_ENTRY_LIMIT(sb.geometry.journal_blocks));
	for (n = 0; n < records; n++)
		put(8 + n * 8, 8, 5);
	assert_int_equal(flush_volume(), 0);
	for (n = 0; n < flusher.nr_log; n++)
		journal += flushed_entry(n);
	assert_int_equal(journal, 2);
	crash();
	start();
	open_volume();
	reads(8 + (records - 1) * 8, 8, 5);
}

/* A flush under way must find dirty data on one of the devices: recorded first, then replaced. */
static void zeroes_replace_recorded_data(void **state)
{
	static const enum hybrid_io_type type[] = { HYBRID_IO_ZEROES, HYBRID_IO_DISCARD };
	u32 k;

	first_dirty();
	for (k = 0; k < ARRAY_SIZE(type); k++) {
		rest();
		put((64 + k) * BLOCK, BLOCK, 5);
		nr_log = 0;
		assert_int_equal(submit(&writer, type[k], (64 + k) * BLOCK, BLOCK, 0), 0);
		assert_true(nr_log >= 2);
		assert_true(flushed_entry(0));
	}
}

/* A block without valid granules becomes free, whether it was dirty, clean, or not on record. */
static void emptied_blocks_leave(void **state)
{
	static const enum hybrid_io_type type[] = { HYBRID_IO_ZEROES, HYBRID_IO_DISCARD };
	u32 k, used;

	first_dirty();
	rest();
	used = pool().used;
	for (k = 0; k < 2 * ARRAY_SIZE(type); k++) {
		u64 sector = (64 + k) * BLOCK;

		if (k % 2)
			put(sector, BLOCK, 5);
		else
			reads(sector, BLOCK, 0);
		rest();
		assert_int_equal(pool().used, used + 1);
		assert_int_equal(submit(&writer, type[k / 2], sector, BLOCK, 0), 0);
		rest();
		assert_int_equal(pool().used, used);
	}
	reads(80 * BLOCK, BLOCK, 0);
	assert_int_equal(submit(&writer, HYBRID_IO_DISCARD, 80 * BLOCK, BLOCK, 0), 0);
	assert_int_equal(pool().used, used);
	/* A write that the cache device did not take, in a mode that makes no other. */
	put(81 * BLOCK, BLOCK, 5);
	set_mode(HYBRID_MODE_WRITEAROUND);
	rest();
	assert_int_equal(pool().used, used + 1);
	put(81 * BLOCK, BLOCK, 6);
	rest();
	assert_int_equal(pool().used, used);
	reads(81 * BLOCK, BLOCK, 6);
	assert_null(hybrid_engine_check(e));
}

static void rewrite_of_dirty_is_free(void **state)
{
	u64 writes;

	first_dirty();
	put(64 * BLOCK, BLOCK, 5);
	assert_int_equal(flush_volume(), 0);
	writes = pool().metadata_writes;
	put(64 * BLOCK, BLOCK, 6);
	moved(0, BLOCK, 0, 0);
	put(64 * BLOCK + 3, 1, 7);	/* a part of a granule, too */
	moved(0, 1, 0, 0);
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(nr_log, 1);
	assert_true(op_log[0].flush && !op_log[0].origin);
	assert_true(pool().metadata_writes == writes);
	reads(64 * BLOCK + 3, 1, 7);
	reads(64 * BLOCK + 4, 100, 6);
}

static void fua_write(void **state)
{
	first_dirty();
	rest();
	/* data and intent, each with FUA */
	assert_int_equal(write_io(64 * BLOCK, 8, 5, true), 0);
	assert_int_equal(nr_log, 2);
	assert_true(op_log[0].fua && op_log[1].fua);
	rest();
	/* durably dirty already: the data alone */
	assert_int_equal(write_io(64 * BLOCK, 8, 6, true), 0);
	assert_int_equal(nr_log, 1);
	assert_true(op_log[0].fua && !op_log[0].meta && !op_log[0].origin);
	set_mode(HYBRID_MODE_WRITEAROUND);
	rest();
	assert_int_equal(write_io(70 * BLOCK, 8, 7, true), 0);
	assert_int_equal(nr_log, 1);
	assert_true(op_log[0].fua && op_log[0].origin);
}

/* In a write to both devices, FUA is for the origin; granules that only the cache gets need a commit. */
static void fua_write_to_both(void **state)
{
	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	put(8 * BLOCK, 8, 1);
	assert_int_equal(flush_volume(), 0);
	v->writeback.paused = U8_MAX;
	set_mode(HYBRID_MODE_WRITETHROUGH);
	WRITE_ONCE(v->drain.on, false);
	assert_int_equal(write_io(8 * BLOCK, 16, 2, true), 0);
	assert_int_equal(status().dirty, 2);
	assert_int_equal(nr_log, 3);
	assert_true(op_log[1].origin && op_log[1].sector == DATA + 8 * BLOCK + 8 && op_log[1].fua);
	assert_true(op_log[2].flush && !op_log[2].origin);
}

/* Where FUA would be a flush after the write, the engine begins the flush, and takes note of it. */
static void fua_write_without_fua(void **state)
{
	struct hybrid_actions acts;

	hybrid_volume_set_traits(v, HYBRID_ORIGIN_SEEKS | HYBRID_ORIGIN_NO_FUA | HYBRID_CACHE_NO_FUA);
	set_mode(HYBRID_MODE_WRITEAROUND);
	assert_int_equal(write_io(8 * BLOCK, 8, 1, true), 0);
	assert_int_equal(nr_log, 2);
	assert_true(op_log[0].origin && op_log[0].write && !op_log[0].fua);
	assert_true(op_log[1].origin && op_log[1].flush);
	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	put(9 * BLOCK, 8, 1);
	assert_int_equal(flush_volume(), 0);
	rest();
	assert_int_equal(write_io(9 * BLOCK, 8, 2, true), 0);
	assert_int_equal(nr_log, 2);
	assert_true(!op_log[0].origin && op_log[0].write && !op_log[0].fua);
	assert_true(op_log[1].flush && !op_log[1].origin);
	/* One that fails is the failure of a flush. */
	set_mode(HYBRID_MODE_WRITEAROUND);
	rest();
	hold_flush = true;
	hybrid_actions_init(&acts);
	fill_data(&writer, 20 * BLOCK, 8, 3);
	arrive(&writer, HYBRID_IO_WRITE, 20 * BLOCK, 8, HYBRID_IO_FUA, &acts);
	carry(&acts);
	assert_non_null(held_flush);
	assert_false(writer.r.ended);
	hold_flush = false;
	fail_origin = true;
	let_flush_go();
	fail_origin = false;
	assert_int_equal(wait_for(&writer), -EIO);
	assert_int_equal(flush_volume(), -EIO);
}

static void flush_of_writethrough(void **state)
{
	u32 k;

	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	put(64 * BLOCK, BLOCK, 5);
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(nr_log, 1);
	assert_true(op_log[0].flush && op_log[0].origin);
	for (k = 0; k < 3; k++)
		assert_int_equal(flush_volume(), 0);
	assert_int_equal(nr_log, 0);
	assert_int_equal(status().dirty, 0);
}

/*
 * Records that the flush under way does not cover start another flush when it ends, without
 * waiting one more interval.
 */
static void records_wait_for_the_next_flush(void **state)
{
	struct hybrid_actions acts;

	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	put(64 * BLOCK, BLOCK, 5);
	hybrid_actions_init(&acts);
	hold_flush = true;
	arrive(&flusher, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	carry(&acts);
	assert_non_null(held_flush);
	put(70 * BLOCK, BLOCK, 6);
	tick(10000);
	let_flush_go();
	assert_int_equal(wait_for(&flusher), 0);
	assert_non_null(held_flush);
	hold_flush = false;
	let_flush_go();
	crash();
	start();
	open_volume();
	reads(70 * BLOCK, BLOCK, 6);
	moved(BLOCK, 0, 0, 0);
}

/* ---- fills and writeback -------------------------------------------------- */

static void read_miss_fills_the_block(void **state)
{
	u64 at = 33 * BLOCK;

	reads(at + 40, 8, 0);
	assert_int_equal(nr_log, 2);
	assert_false(op_log[0].write);
	assert_true(op_log[0].origin && op_log[0].sector == DATA + at);
	assert_int_equal(op_log[0].count, BLOCK);
	assert_true(op_log[1].write && !op_log[1].origin);
	assert_int_equal(op_log[1].count, BLOCK);
	reads(at, 8, 0);
	moved(8, 0, 0, 0);
	reads(at, BLOCK, 0);
	moved(BLOCK, 0, 0, 0);
	assert_int_equal(status().counter[HYBRID_FILLS], 1);
	assert_int_equal(status().counter[HYBRID_READ_MISSES], 1);
	assert_int_equal(status().counter[HYBRID_READ_HITS], 2);
	/* the cache survives a crash warm, once it is recorded */
	rest();
	crash();
	start();
	open_volume();
	reads(at, BLOCK, 0);
	moved(BLOCK, 0, 0, 0);
}

/* Whole granules are written without reading; of parts the block is filled first (J11). */
static void writes_of_parts(void **state)
{
	static const struct {
		u32 offset, count;
		bool whole;
	} row[] = {
		{ 0, 8, true }, { 8, 16, true }, { 120, 8, true }, { 0, BLOCK, true },
		{ 3, 1, false }, { 0, 7, false }, { 4, 8, false }, { 4, 16, false },
		{ 1, BLOCK - 1, false },
	};
	u32 n, mode;

	first_dirty();
	for (mode = 0; mode < 2; mode++) {	/* writethrough, writeback */
		assert_int_equal(HYBRID_MODE_WRITEBACK, 1);
		set_mode(mode);
		rest();
		for (n = 0; n < ARRAY_SIZE(row); n++) {
			u64 at = (20 * (mode + 1) + n) * 4 * BLOCK;
			u32 count = row[n].count;

			put(at + row[n].offset, count, n + 1);
			if (row[n].whole)
				moved(0, count, 0, mode ? 0 : count);
			else if (mode)
				moved(0, BLOCK + count, BLOCK, 0);
			else
				assert_int_equal(sectors_of(ORIGIN, true), count);
			hybrid_volume_reset_counters(v);
			reads(at + row[n].offset, count, n + 1);
			if (row[n].offset)
				reads(at, row[n].offset, 0);
			if (row[n].offset + count < BLOCK)
				reads(at + row[n].offset + count,
				      BLOCK - row[n].offset - count, 0);
		}
	}
	/* A write to valid granules is a hit. */
	put(24 * 8 * BLOCK + 5, 1, 9);
	moved(0, 1, 0, 0);
	/* Only the invalid granules are fetched, with any granules between them. */
	put(90 * BLOCK, 64, 9);
	moved(0, 64, 0, 0);
	put(90 * BLOCK + 66, 2, 10);
	moved(0, 64 + 2, 64, 0);
	reads(90 * BLOCK, 64, 9);
	reads(90 * BLOCK + 64, 2, 0);
	reads(90 * BLOCK + 66, 2, 10);
}

/* From low addresses to high ones, like a lift: it may begin anywhere. */
static void drain_is_sorted(void **state)
{
	static const u32 order[] = { 9, 2, 30, 5, 17, 1, 28, 11, 3, 40 };
	struct hybrid_actions acts;
	u64 last = 0;
	u32 n, k = 0, descents = 0;

	set_mode(HYBRID_MODE_WRITEBACK);
	for (n = 0; n < ARRAY_SIZE(order); n++)
		put(order[n] * 4 * BLOCK, BLOCK, n + 1);
	hybrid_actions_init(&acts);
	nr_log = 0;
	hybrid_engine_drain(e, v, true, 0, &acts);
	carry(&acts);
	for (n = 0; status().dirty && n < 50; n++)
		tick(500);
	assert_int_equal(status().dirty, 0);
	for (n = 0; n < nr_log; n++)
		if (op_log[n].origin && op_log[n].write && !op_log[n].meta) {
			descents += op_log[n].sector < last;
			last = op_log[n].sector;
			k++;
		}
	assert_int_equal(k, ARRAY_SIZE(order));
	assert_in_range(descents, 0, 1);
	for (n = 0; n < ARRAY_SIZE(order); n++)
		assert_true(origin_has(order[n] * 4 * BLOCK, BLOCK, n + 1));
}

/* Returns how much a read adds to that counter. */
static u64 read_moves(enum hybrid_counter c, u32 block)
{
	u64 before = status().counter[c];

	assert_int_equal(read_io(block * BLOCK, 8), 0);
	return status().counter[c] - before;
}

/* Reads so many blocks in sequence; returns how much they add to the counter. */
static u64 run_moves(enum hybrid_counter c, u32 block, u32 count)
{
	u64 before = status().counter[c];

	while (count--) {
		reads(block++ * BLOCK, BLOCK, 0);
		tick(1000);
	}
	return status().counter[c] - before;
}

/* A long run is cached while there is room, and later evicts only its own blocks. */
static void sequential_bypass(void **state)
{
	static const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u32 n;

	small_pool(8 * MIB, HYBRID_MODE_WRITETHROUGH, &config);
	set_cutoff_to(4 * BLOCK);
	assert_int_equal(run_moves(HYBRID_BYPASS_SEQUENTIAL, 400, 8), 0);
	for (n = 0; pool().free > pool().blocks / 8; n++)
		assert_int_equal(run_moves(HYBRID_BYPASS_SEQUENTIAL, n, 1), 0);
	assert_int_equal(status().cached, 8 + round_up(n, 4));
	while (!run_moves(HYBRID_BYPASS_SEQUENTIAL, n++, 1))
		assert_true(n < 200);
	/* test_stream.c tests which blocks of a run stay.  A longer run leaves none. */
	run_moves(HYBRID_FILLS, n, 4 * pool().blocks - n);
	n = 4 * pool().blocks;
	assert_int_equal(run_moves(HYBRID_BYPASS_SEQUENTIAL, n, 20), 20);
	assert_int_equal(run_moves(HYBRID_READ_HITS, 400, 8), 8);
	/* Four, and as many in their place */
	assert_in_range(run_moves(HYBRID_FILLS, 300, 10), 4, 8);
	assert_in_range(run_moves(HYBRID_BYPASS_SEQUENTIAL, 320, 10), 2, 6);
	set_cutoff_to(0);
	assert_int_equal(run_moves(HYBRID_FILLS, 332, 8), 8);
}

/* Reads one block of the window, then another; returns how many blocks they add to the cache. */
static u32 window_moves(u32 window)
{
	u32 before = status().cached;

	reads((window * 4 + 1) * BLOCK, 8, 0);
	assert_int_equal(status().cached, before + 1);
	reads((window * 4 + 2) * BLOCK, 8, 0);
	return status().cached - before;
}

/*
 * A read that misses, continues no run, and is the first in its window.  Returns the sectors that
 * it read from the origin.
 */
static u32 single_miss(u32 window)
{
	u32 sectors = window_blocks(e) * e->g->block_sectors;

	reads((u64)window * sectors + 8, 8, 0);
	return sectors_of(ORIGIN, false);
}

/*
 * Reads of data that was never read before get a limited credit for the rest of their blocks, and
 * hits pay it off: a cold cache must not take the disk's time for data that nobody asks for.
 */
static void rest_is_on_credit(void **state)
{
	u32 rest = NEAR_SECTORS, k = 0, end, whole = 0;

	fresh_volume(32);
	set_cutoff_to(8192);
	while (single_miss(k) == rest)
		k++;
	assert_in_range(k, REST_MOST / REST_COST, REST_MOST / (REST_COST - 1) + 1);
	moved(0, 8, 8, 0);
	/* nothing is read again: one miss in so many gets the rest */
	for (end = ++k + REST_COST; k < end; k++)
		whole += single_miss(k) == rest;
	assert_int_equal(whole, 1);
	/* ... and the others get it once more of the block is read */
	reads((u64)(k - 1) * 512 + 16, 8, 0);
	moved(0, rest - 8, rest, 0);
	/* a hit pays for so many, and its neighbour */
	reads((u64)(k - 1) * 512 + 8, 8, 0);
	moved(8, 0, 0, 0);
	for (end = k + REST_HIT / REST_COST; k < end; k++)
		assert_true(single_miss(k) >= rest);
	assert_int_equal(single_miss(k++), 8);
	/* a run gets the whole of its next blocks */
	reads((u64)k * 512 + 24, 8, 0);
	moved(0, 8, 8, 0);
	reads((u64)k * 512 + 32, 8, 0);
	assert_true(sectors_of(ORIGIN, false) >= rest - 32);
	/* nothing is held back where everything is to be cached */
	set_cutoff_to(0);
	for (end = ++k + 4; k < end; k++)
		assert_true(single_miss(k) >= rest);
}

/* A miss fills the 64 KiB around it, in one read, up to a block that is cached. */
static void small_blocks_are_filled_together(void **state)
{
	u32 k;

	fresh_volume(32);
	set_cutoff_to(8192);
	reads(512 + 2 * 32 + 8, 8, 0);
	moved(0, NEAR_SECTORS, NEAR_SECTORS, 0);
	assert_int_equal(status().cached, 4);
	for (k = 0; k < NEAR_SECTORS; k += 32) {
		reads(512 + k, 32, 0);
		moved(32, 0, 0, 0);
	}
	/* Others of the window follow, on credit. */
	put(1024 + 32, 32, 7);
	reads(1024 + 3 * 32, 8, 0);
	assert_in_range(sectors_of(ORIGIN, false), 64, 512 - 64);
	reads(1024 + 2 * 32, 32, 0);
	moved(32, 0, 0, 0);
	reads(1024 + 32, 32, 7);
}

/* 64 KiB cost and earn as one, in however many blocks. */
static void small_blocks_share_credit(void **state)
{
	atomic_t *credit;

	fresh_volume(32);
	set_cutoff_to(8192);
	credit = ahead_credit(e, hybrid_key(v->id, to_oblock(1024 / 32)));
	/* The missed 64 KiB cost no credit, and earn none later. */
	reads(1024, 8, 0);
	assert_int_equal(atomic_read(credit), AHEAD_LENT + 1);
	reads(1024 + 32, 8, 0);
	assert_int_equal(atomic_read(credit), AHEAD_LENT + 1);
	/* The rest of the window is filled ahead. */
	reads(1024 + NEAR_SECTORS, 8, 0);
	moved(0, 3 * NEAR_SECTORS, 3 * NEAR_SECTORS, 0);
	assert_int_equal(atomic_read(credit), AHEAD_LENT + 2 - 2 * AHEAD_COST);
	reads(1024 + 2 * NEAR_SECTORS + 32, 8, 0);
	assert_int_equal(atomic_read(credit), AHEAD_LENT + 2 - 2 * AHEAD_COST + AHEAD_USED);
	reads(1024 + 2 * NEAR_SECTORS, 8, 0);
	assert_int_equal(atomic_read(credit), AHEAD_LENT + 2 - 2 * AHEAD_COST + AHEAD_USED);
}

/* A write of part of a granule fills the 64 KiB around it, up to a block that is cached. */
static void part_of_a_granule_fills_small_blocks(void **state)
{
	fresh_volume(32);
	set_mode(HYBRID_MODE_WRITEBACK);
	put(1024 + 3 * 32, 32, 5);
	put(1024 + 32 + 2, 4, 7);
	assert_int_equal(sectors_of(ORIGIN, false), 3 * 32);
	assert_int_equal(status().cached, 4);
	reads(1024, 32, 0);
	moved(32, 0, 0, 0);
	reads(1024 + 32, 2, 0);
	reads(1024 + 32 + 2, 4, 7);
	reads(1024 + 32 + 6, 26, 0);
	reads(1024 + 2 * 32, 32, 0);
	moved(32, 0, 0, 0);
	reads(1024 + 3 * 32, 32, 5);
}

/* Is the rest of the block of key @k filled?  Hits have paid for it. */
static bool rest_is_filled(u32 k)
{
	struct hybrid_set *s = &e->map.set[0];
	unsigned long flags;
	bool filled;

	this_cpu_ptr(v->counters)->rest_debt = 0;
	spin_lock_irqsave(&s->lock, flags);
	filled = hybrid_rest_is_paid(e, s, hybrid_key(1, to_oblock(k)), true);
	spin_unlock_irqrestore(&s->lock, flags);
	return filled;
}

/* A volume learns from samples whether the rests of its blocks are read. */
static void rest_is_learned(void **state)
{
	const u32 learned = (REST_SAMPLES + REST_WORTH - REST_PAYS + 1) * REST_EVERY;
	struct hybrid_set *s = &e->map.set[0];
	u32 k, filled = 0, n;

	for (k = 1; k <= learned; k++)
		filled += rest_is_filled(k);
	assert_int_equal(filled, learned - learned / REST_EVERY);
	assert_false(rest_is_filled(k++));
	/* A sample is noticed while it is among the newest, once. */
	assert_int_equal(atomic_read(&v->credit.rest), REST_PAYS - 1);
	hybrid_rest_is_missed(e, s, hybrid_key(1, to_oblock(learned - REST_SAMPLES * REST_EVERY)), 0);
	assert_int_equal(atomic_read(&v->credit.rest), REST_PAYS - 1);
	for (n = 0; n < 2; n++)
		hybrid_rest_is_missed(e, s, hybrid_key(1, to_oblock(learned)), 0);
	assert_int_equal(atomic_read(&v->credit.rest), REST_PAYS - 1 + REST_USED);
	assert_true(rest_is_filled(k++));
	/* Samples of a volume that is gone count for nobody. */
	for (n = 0; n < REST_SAMPLES; n++)
		s->samples.block[n] = 7 << 20;
	for (n = 0; n < REST_EVERY; n++)
		rest_is_filled(k++);
	assert_int_equal(atomic_read(&v->credit.rest), REST_PAYS - 1 + REST_USED);
}

/* ... and reads give the samples. */
static void samples_of_reads(void **state)
{
	u32 set, k;

	set_cutoff_to(8192);
	for (set = 0; set < e->map.nr_sets; set++)
		e->map.set[set].samples.fills = REST_EVERY - 1;
	atomic_set(&v->credit.rest, REST_PAYS);
	assert_int_equal(single_miss(1), 8);
	for (set = 0, k = 0; set < e->map.nr_sets; set++)
		k += !!e->map.set[set].samples.block[1];
	assert_int_equal(k, 1);
	reads(window_blocks(e) * BLOCK + 16, 8, 0);
	assert_int_equal(sectors_of(ORIGIN, false), BLOCK);
	assert_int_equal(atomic_read(&v->credit.rest), REST_PAYS + REST_USED);
}

/* A run of many reads at once gets whole blocks, too, even without any credit left. */
static void rest_of_a_run_at_once(void **state)
{
	struct user *u = calloc(16, sizeof(*u));
	struct hybrid_actions acts;
	u32 n, k;

	set_cutoff_to(8192);
	this_cpu_ptr(v->counters)->rest_debt = REST_MOST + 100 * REST_COST;
	nr_log = 0;
	for (n = 0; n < 20; n++) {
		hybrid_actions_init(&acts);
		for (k = 0; k < 16; k++)
			arrive(&u[k], HYBRID_IO_READ, n * BLOCK + k * 8, 8, 0, &acts);
		carry(&acts);
		for (k = 0; k < 16; k++)
			assert_int_equal(wait_for(&u[k]), 0);
	}
	/* the first block comes in its 16 parts */
	for (n = 0, k = 0; n < nr_log; n++)
		k += op_log[n].origin;
	assert_in_range(k, 1, 16 + 20);
	for (n = BLOCK; n < 20 * BLOCK; n += 8) {
		reads(n, 8, 0);
		moved(8, 0, 0, 0);
	}
	free(u);
}

/* Where one block of a window is cached, a miss fills all missing blocks beside it. */
static void fills_ahead(void **state)
{
	u64 hits = HYBRID_READ_HITS;
	u32 n, k;

	assert_int_equal(window_moves(0), 3);
	assert_int_equal(read_moves(hits, 3), 1);
	/* ... not across a cached block */
	assert_int_equal(read_moves(HYBRID_FILLS, 0), 1);
	/* Another test covers fills that hits pay for. */
	hybrid_volume_reset_counters(v);
	reads(4 * BLOCK, 8, 0);
	reads(6 * BLOCK, 8, 0);
	assert_int_equal(status().cached, 4 + 4);
	/* Nobody reads the blocks filled ahead: it ends. */
	for (n = 0; window_moves(3 + n) > 2; n++)
		assert_true(n < 100);
	assert_in_range(n, 7, 9);
	/* ... and is tried again, now and then */
	for (k = 0; window_moves(3 + ++n) == 2; k++)
		assert_true(k < 40);
	assert_in_range(k, 20, 32);
	/* Blocks filled ahead that are read bring others. */
	for (k = 0; k < 5; k++)
		assert_int_equal(read_moves(hits, (3 + k) * 4 + 3), 1);
	hybrid_volume_reset_counters(v);
	for (k = 0; window_moves(3 + ++n) == 3; k++)
		assert_true(k < 20);
	assert_int_equal(k, 15);
}

/* While there are free blocks hits pay for fills ahead: of whole windows, each in one read. */
static void hits_pay(void **state)
{
	u32 n, k, paid = 0;

	for (k = 0; k < 100; k++)
		reads(0, 8, 0);
	assert_int_equal(status().cached, 1);
	for (n = 1; n < 30; n++) {
		reads((n * 4 + 1) * BLOCK, 8, 0);
		if (sectors_of(ORIGIN, false) == 4 * BLOCK)
			paid++;
		assert_int_equal(op_log[0].count, sectors_of(ORIGIN, false));
	}
	/* The newest 64, and eight that are lent */
	assert_int_equal(paid, 24);
	assert_int_equal(status().cached, 1 + 29 + 64 + 8);
}

/* Blocks filled ahead in vain are evicted before any block that was read. */
static void ahead_goes_first(void **state)
{
	struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u32 n, k;

	small_pool(8 * MIB, HYBRID_MODE_WRITETHROUGH, &config);
	for (k = 0; k < 100; k++)
		reads(0, 8, 0);
	for (n = 1; n < 20; n++) {
		reads((n * 4 + 1) * BLOCK, 8, 0);
		rest();
	}
	assert_in_range(pool().evictions, 10, 40);
	for (n = 1; n < 20; n++)
		assert_int_equal(read_moves(HYBRID_READ_HITS, n * 4 + 1), 1);
}

/*
 * In the last window nothing is filled beyond the volume's end; the blocks in front of a miss
 * are.
 */
static void ahead_ends_at_the_volume(void **state)
{
	u32 last = info.data_sectors / BLOCK - 1;

	assert_int_equal(last % 4, 3);
	reads((last - 1) * BLOCK, 8, 0);
	reads(last * BLOCK, 8, 0);
	reads((last - 2) * BLOCK, BLOCK, 0);
	assert_int_equal(status().cached, 4);
	reads((last - 3) * BLOCK, BLOCK, 0);
	assert_int_equal(status().counter[HYBRID_READ_HITS], 1);
}

/*
 * A read of data that is just being written gets it from the cache, but not once the write
 * failed.
 */
static void reads_beside_a_write(void **state)
{
	struct hybrid_actions acts;
	u64 sector = 8 * BLOCK;

	first_dirty();
	reads(sector, BLOCK, 0);
	hybrid_actions_init(&acts);
	fill_data(&writer, sector, 8, 2);
	prepare(&writer, HYBRID_IO_WRITE, sector, 8, 0);
	assert_int_equal(hybrid_engine_map(e, &writer.r.io, &acts), HYBRID_MAP_REMAP);
	assert_int_equal(read_io(sector, 16), 0);
	moved(16, 0, 0, 0);
	assert_false(hybrid_engine_io_done(e, &writer.r.io, -EIO, &acts));
	assert_int_equal(read_io(sector, 16), 0);
	moved(0, 0, 16, 0);
	carry(&acts);
	assert_true(writer.r.ended);
	reads(sector, 8, 2);
}

/* Two writes of one block fail in the cache, and it goes; the first goes out to the origin then. */
static void reads_beside_writes_that_failed(void **state)
{
	struct user *first = calloc(1, sizeof(*first));
	struct hybrid_actions acts;
	u64 sector = 8 * BLOCK;

	first_dirty();
	reads(sector, BLOCK, 0);
	hybrid_actions_init(&acts);
	fill_data(first, sector, BLOCK, 2);
	fill_data(&writer, sector, BLOCK, 2);
	prepare(first, HYBRID_IO_WRITE, sector, BLOCK, 0);
	prepare(&writer, HYBRID_IO_WRITE, sector, BLOCK, 0);
	assert_int_equal(hybrid_engine_map(e, &first->r.io, &acts), HYBRID_MAP_REMAP);
	assert_int_equal(hybrid_engine_map(e, &writer.r.io, &acts), HYBRID_MAP_REMAP);
	assert_false(hybrid_engine_io_done(e, &first->r.io, -EIO, &acts));
	assert_null(hybrid_actions_pop(&acts));
	assert_false(hybrid_engine_io_done(e, &writer.r.io, -EIO, &acts));
	assert_ptr_equal(hybrid_actions_pop(&acts), &writer.r.io.op);
	assert_true(writer.r.io.op.origin);
	assert_true(hybrid_engine_io_done(e, &writer.r.io, 0, &acts));
	assert_null(hybrid_engine_check(e));
	assert_int_equal(read_io(sector, BLOCK), 0);
	moved(0, 0, BLOCK, 0);
	carry(&acts);
	assert_true(first->r.ended);
	reads(sector, BLOCK, 2);
	free(first);
}

/*
 * Sends I/O that the cache device, or the origin (@origin), refuses because it would have to
 * wait: the user gets -EAGAIN.
 */
static void refused(enum hybrid_io_type type, u64 sector, u32 count, bool origin)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	fill_data(&writer, sector, count, 99);
	prepare(&writer, type, sector, count, false);
	assert_int_equal(hybrid_engine_map(e, &writer.r.io, &acts), HYBRID_MAP_REMAP);
	assert_int_equal(writer.r.io.op.origin, origin);
	assert_true(hybrid_engine_io_done(e, &writer.r.io, -EAGAIN, &acts));
	assert_int_equal(writer.r.io.error, -EAGAIN);
	assert_null(hybrid_actions_pop(&acts));
	assert_null(hybrid_engine_check(e));
}

/* So many reads, writes and flushes of the cache device have failed. */
static void cache_errors(u64 nr_reads, u64 nr_writes, u64 nr_flushes)
{
	struct hybrid_pool_status st = pool();

	assert_int_equal(st.read_errors, nr_reads);
	assert_int_equal(st.write_errors, nr_writes);
	assert_int_equal(st.flush_errors, nr_flushes);
}

/*
 * I/O that a device refuses goes nowhere else, counts as no error of the device, and changes
 * nothing.
 */
static void refused_by_a_device(void **state)
{
	struct hybrid_volume_status before;
	u64 clean = 8 * BLOCK, dirty = 16 * BLOCK, none = 24 * BLOCK;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	reads(clean, BLOCK, 0);
	put(clean + 64, 8, 1);
	put(dirty, BLOCK, 1);
	assert_int_equal(flush_volume(), 0);
	before = status();
	/* Hits: cached data stays cached. */
	refused(HYBRID_IO_READ, clean, 8, CACHE);
	refused(HYBRID_IO_READ, clean + 56, 24, CACHE);
	refused(HYBRID_IO_READ, dirty, BLOCK, CACHE);
	refused(HYBRID_IO_WRITE, dirty + 8, 16, CACHE);
	assert_int_equal(status().dirty, before.dirty);
	assert_int_equal(status().cached, before.cached);
	reads(clean, 64, 0);
	moved(64, 0, 0, 0);
	reads(dirty, BLOCK, 1);
	moved(BLOCK, 0, 0, 0);
	/*
	 * Others: the origin, or the cache, has the only copy of the data that they would have
	 * replaced.
	 */
	atomic_set(&e->commit.invalidations, 0);
	put(clean + 72, 8, 2);
	refused(HYBRID_IO_WRITE, clean, 8, CACHE);
	refused(HYBRID_IO_WRITE, none, BLOCK, CACHE);
	assert_int_equal(status().dirty, before.dirty);
	assert_int_equal(status().cached, before.cached);
	reads(clean, 64, 0);
	reads(clean + 64, 8, 1);
	set_mode(HYBRID_MODE_PASSTHROUGH);
	rest();
	refused(HYBRID_IO_READ, none, 8, ORIGIN);
	refused(HYBRID_IO_WRITE, none, 8, ORIGIN);
	reads(none, 8, 0);
	assert_int_equal(status().counter[HYBRID_CACHE_ERRORS], 0);
	assert_int_equal(status().counter[HYBRID_ORIGIN_ERRORS], 0);
	cache_errors(0, 0, 0);
	/* The refused I/O does not hinder I/O that follows. */
	put(dirty + 8, 16, 3);
	rest();
	assert_int_equal(status().dirty, 0);
	assert_true(origin_has(dirty, 8, 1));
	assert_true(origin_has(dirty + 8, 16, 3));
}

/* Errors of the cache device count by their kind: errors of data here, errors of metadata below. */
static void errors_by_kind(void **state)
{
	u64 clean = 8 * BLOCK, dirty = 16 * BLOCK, none = 24 * BLOCK;
	u64 other = 32 * BLOCK, nr, written;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	reads(clean, BLOCK, 0);
	reads(other, BLOCK, 0);
	put(dirty, 8, 1);
	assert_int_equal(flush_volume(), 0);
	cache_errors(0, 0, 0);
	/* A hit, and a read from both devices */
	fail_cache_reads = true;
	reads(clean, 8, 0);
	cache_errors(1, 0, 0);
	assert_int_equal(read_io(dirty, 16), -EIO);
	cache_errors(2, 0, 0);
	/* Writeback */
	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	nr = pool().read_errors;
	assert_true(nr > 2);
	cache_errors(nr, 0, 0);
	set_mode(HYBRID_MODE_WRITEBACK);
	rest();
	nr = pool().read_errors;
	fail_cache_reads = false;
	/* A fill, a write to the cache and one to both devices */
	fail_cache_writes = true;
	reads(none, BLOCK, 0);
	/* Of several blocks, and then of each of them */
	written = pool().write_errors;
	assert_true(written > 1);
	cache_errors(nr, written, 0);
	put(none + 4 * BLOCK, BLOCK, 2);
	cache_errors(nr, ++written, 0);
	fail_cache_writes = false;
	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	/* Its region is open then; its place is one that has not failed yet. */
	put(other, BLOCK, 2);
	fail_cache_writes = true;
	put(other, 8, 3);
	cache_errors(nr, ++written, 0);
	fail_cache_writes = false;
	/* Users' I/O counts for its volume, too. */
	assert_int_equal(status().counter[HYBRID_CACHE_ERRORS], nr + written);
	assert_int_equal(status().counter[HYBRID_ORIGIN_ERRORS], 0);
	assert_false(hybrid_engine_failed(e));
}

static void metadata_errors_by_kind(void **state)
{
	struct hybrid_actions acts;

	/* A flush before an entry */
	put(0, 8, 1);
	fail_cache_flushes = true;
	assert_int_equal(flush_volume(), -EIO);
	assert_true(hybrid_engine_failed(e));
	cache_errors(0, 0, 1);
	/* A flush without one */
	fail_cache_flushes = false;
	crash();
	fresh_volume(BLOCK);
	first_dirty();
	put(0, 8, 2);
	fail_cache_flushes = true;
	assert_int_equal(flush_volume(), -EIO);
	cache_errors(0, 0, 1);
	/* An entry, whose flush went well */
	fail_cache_flushes = false;
	crash();
	fresh_volume(BLOCK);
	put(0, 8, 1);
	hold_meta = true;
	hybrid_actions_init(&acts);
	arrive(&flusher, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	carry(&acts);
	assert_non_null(held_meta);
	fail_cache_writes = true;
	assert_int_equal(wait_checkpoint(e), -EIO);
	assert_int_equal(wait_for(&flusher), -EIO);
	cache_errors(0, 1, 0);
	/* Nothing goes to a device that failed. */
	assert_int_equal(read_io(0, 8), -EIO);
	cache_errors(0, 1, 0);
	fail_cache_writes = false;
}

/* I/O that waits for a write goes on when a device has refused that write. */
static void refused_and_waited_for(void **state)
{
	struct hybrid_actions acts;
	u64 sector = 8 * BLOCK;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	put(sector, BLOCK, 1);
	assert_int_equal(flush_volume(), 0);
	hybrid_actions_init(&acts);
	prepare(&writer, HYBRID_IO_WRITE, sector, 8, false);
	assert_true(hybrid_engine_hit(e, &writer.r.io));
	prepare(&reader, HYBRID_IO_DISCARD, sector, BLOCK, false);
	assert_int_equal(hybrid_engine_map(e, &reader.r.io, &acts), HYBRID_MAP_TAKEN);
	carry(&acts);
	assert_false(reader.r.ended);
	assert_true(hybrid_engine_io_done(e, &writer.r.io, -EAGAIN, &acts));
	assert_int_equal(writer.r.io.error, -EAGAIN);
	carry(&acts);
	assert_int_equal(wait_for(&reader), 0);
}

static bool goes_short(enum hybrid_io_type type, u64 sector, u32 count, bool fua)
{
	prepare(&writer, type, sector, count, fua ? HYBRID_IO_FUA : 0);
	if (!hybrid_engine_hit(e, &writer.r.io))
		return false;
	assert_int_equal(writer.r.io.op.sector % BLOCK, sector % BLOCK);
	assert_null(hybrid_engine_check(e));
	assert_true(hybrid_engine_hit_done(e, &writer.r.io));
	assert_null(hybrid_engine_check(e));
	return true;
}

/* A hit goes the fast path where all of it is valid, to be read, or dirty, to be written. */
static void short_way(void **state)
{
	u64 sector = 8 * BLOCK;

	first_dirty();
	assert_false(goes_short(HYBRID_IO_READ, sector, 8, false));
	assert_false(goes_short(HYBRID_IO_WRITE, sector, 8, false));
	reads(sector, BLOCK, 0);
	assert_true(goes_short(HYBRID_IO_READ, sector, BLOCK, false));
	assert_false(goes_short(HYBRID_IO_WRITE, sector, 8, false));
	put(sector, 8, 2);
	assert_true(goes_short(HYBRID_IO_WRITE, sector, 8, false));
	assert_true(goes_short(HYBRID_IO_WRITE, sector + 2, 3, false));
	assert_false(goes_short(HYBRID_IO_WRITE, sector, 9, false));
	assert_false(goes_short(HYBRID_IO_WRITE, sector, 8, true));
	assert_int_equal(flush_volume(), 0);
	assert_true(goes_short(HYBRID_IO_WRITE, sector, 8, false));
	assert_int_equal(status().counter[HYBRID_WRITE_HITS], 4);
	assert_false(goes_short(HYBRID_IO_FLUSH, 0, 0, false));
	assert_false(goes_short(HYBRID_IO_DISCARD, sector, 8, false));
	/* A pool that failed has no hits. */
	put(0, 16, 3);
	fail_cache_writes = true;
	assert_int_equal(flush_volume(), -EIO);
	assert_false(goes_short(HYBRID_IO_READ, sector, 8, false));
	assert_false(goes_short(HYBRID_IO_WRITE, sector, 8, false));
	fail_cache_writes = false;
}

/* The end of a write on the fast path wakes I/O that waits for the write. */
static void short_way_awaited(void **state)
{
	struct hybrid_actions acts;
	u64 sector = 8 * BLOCK;

	first_dirty();
	put(sector, 8, 2);
	assert_int_equal(flush_volume(), 0);
	prepare(&writer, HYBRID_IO_WRITE, sector, 8, 0);
	assert_true(hybrid_engine_hit(e, &writer.r.io));
	hybrid_actions_init(&acts);
	prepare(&reader, HYBRID_IO_DISCARD, sector, 8, 0);
	assert_int_equal(hybrid_engine_map(e, &reader.r.io, &acts), HYBRID_MAP_TAKEN);
	carry(&acts);
	assert_false(reader.r.ended);
	assert_null(hybrid_engine_check(e));
	assert_false(hybrid_engine_hit_done(e, &writer.r.io));
	assert_true(hybrid_engine_io_done(e, &writer.r.io, 0, &acts));
	assert_int_equal(writer.r.io.error, 0);
	carry(&acts);
	assert_true(reader.r.ended);
}

/* Scattered writes to clean data open regions for each other, and flush nothing. */
static void opens_ahead(void **state)
{
	u64 before;
	u32 n, k;

	for (n = 0; n < 110; n++)
		reads(n * 4 * BLOCK, 8, 0);
	rest();
	first_dirty();
	atomic_set(&e->commit.invalidations, 0);
	before = pool().journal_writes;
	for (n = 0; n < 110; n++) {
		put(n * 4 * BLOCK, 8, 2);
		for (k = 0; k < nr_log; k++)
			assert_false(op_log[k].flush);
	}
	assert_int_equal(status().counter[HYBRID_WRITE_MISSES], 0);
	assert_in_range(pool().journal_writes - before, 2, 9);
	/* Regions that nobody wrote to are closed again. */
	rest();
	rest();
	assert_int_equal(pool().open_regions, 0);
}

/* Eight clean blocks, and no region is open; credit for so many writes. */
static void eight_clean_blocks(int credit)
{
	u32 n;

	for (n = 1; n <= 8; n++)
		reads(n * 4 * BLOCK, BLOCK, 0);
	first_dirty();
	rest();
	rest();
	assert_int_equal(pool().open_regions, 0);
	assert_int_equal(status().cached, 9);
	atomic_set(&e->commit.invalidations, credit);
}

/* A record that clean granules are not valid goes before a write, and a crash costs no others. */
static void invalidated_first(void **state)
{
	eight_clean_blocks(1);
	put(4 * BLOCK, 8, 2);
	assert_int_equal(nr_log, 2);
	assert_true(op_log[0].meta && op_log[0].fua && !op_log[0].origin);
	assert_true(op_log[1].write && !op_log[1].meta && !op_log[1].origin);
	assert_int_equal(pool().open_regions, 0);
	assert_null(hybrid_engine_check(e));
	put(4 * BLOCK, 8, 3);
	assert_int_equal(nr_log, 1);
	assert_int_equal(flush_volume(), 0);
	crash();
	start();
	open_volume();
	assert_int_equal(status().cached, 9);
	reads(4 * BLOCK, 8, 3);
	moved(8, 0, 0, 0);
	reads(4 * BLOCK + 8, 8, 0);
	moved(8, 0, 0, 0);
}

/* A write waits for a record of its block, which is evicted before: it goes on with no tick. */
static void invalidated_and_evicted(void **state)
{
	struct user first = {}, second = {};
	struct hybrid_actions acts;
	u32 set;

	eight_clean_blocks(2);
	hold_meta = true;
	hybrid_actions_init(&acts);
	fill_data(&first, 4 * BLOCK, 8, 2);
	arrive(&first, HYBRID_IO_WRITE, 4 * BLOCK, 8, 0, &acts);
	carry(&acts);
	assert_non_null(held_meta);
	fill_data(&second, 8 * BLOCK, 8, 2);
	arrive(&second, HYBRID_IO_WRITE, 8 * BLOCK, 8, 0, &acts);
	carry(&acts);
	assert_false(second.r.ended);
	set = second.r.io.set;
	spin_lock(&e->map.set[set].lock);
	assert_true(hybrid_evict_block(e, set, hybrid_set_find(&e->map, &e->map.set[set],
							       second.r.io.key)));
	spin_unlock(&e->map.set[set].lock);
	let_meta_go(&acts);
	assert_true(first.r.ended && second.r.ended);
	reads(8 * BLOCK, 8, 2);
}

/* Without a flush the write may be lost, and the origin has the data. */
static void invalidated_and_lost(void **state)
{
	u64 sector;

	eight_clean_blocks(1);
	put(4 * BLOCK, 8, 2);
	sector = op_log[1].sector;
	disk[CACHE][sector * 512] ^= 1;
	crash();
	start();
	open_volume();
	assert_int_equal(status().cached, 9);
	reads(4 * BLOCK, 8, 0);
	assert_int_equal(sectors_of(ORIGIN, false), 8);
	reads(4 * BLOCK + 64, 8, 0);
	moved(8, 0, 0, 0);
}

/* The credit is earned by time and by misses; without any, regions open. */
static void invalidations_are_limited(void **state)
{
	eight_clean_blocks(0);
	put(4 * BLOCK, 8, 2);
	assert_in_range(pool().open_regions, 1, 64);
	atomic_set(&e->commit.invalidations, 0);
	tick(500);
	assert_int_equal(atomic_read(&e->commit.invalidations), 8);
	tick(60000);
	assert_int_equal(atomic_read(&e->commit.invalidations), 16);
	atomic_set(&e->commit.invalidations, 0);
	reads(100 * BLOCK, 8, 0);
	assert_int_equal(atomic_read(&e->commit.invalidations), 4);
	hybrid_volume_set_traits(v, 0);
	reads(101 * BLOCK, 8, 0);
	assert_int_equal(atomic_read(&e->commit.invalidations), 5);
}

/* A write to both copies leaves the granule clean, so that it would ask for each write. */
static void both_copies_open_a_region(void **state)
{
	eight_clean_blocks(16);
	set_mode(HYBRID_MODE_WRITETHROUGH);
	put(4 * BLOCK, 8, 2);
	assert_in_range(pool().open_regions, 1, 64);
	assert_int_equal(atomic_read(&e->commit.invalidations), 16);
}

/* Between the watermarks writeback waits until nobody else does anything. */
static void writeback_yields(void **state)
{
	struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u32 n = 0;

	small_pool(8 * MIB, HYBRID_MODE_WRITEBACK, &config);
	while (status().dirty * 100 < pool().blocks * 60) {
		put(n++ * 4 * BLOCK, 8, 1);
		tick(100);
	}
	for (n = 0; n < 40; n++) {
		put(0, 8, 2);
		tick(100);
		assert_int_equal(flush_volume(), 0);
	}
	assert_int_equal(status().counter[HYBRID_WRITEBACKS], 0);
	for (n = 0; n < 4; n++)
		tick(100);
	assert_true(status().counter[HYBRID_WRITEBACKS]);
	for (; status().dirty * 100 > pool().blocks * 11; n++) {
		tick(100);
		assert_true(n < 100);
	}
}

/*
 * c2q would evict the newest blocks first: if they are dirty, other blocks go, without writeback.
 */
static void clean_goes_first(void **state)
{
	struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u32 n, k, few = 48;

	config.low_watermark = 50;
	config.high_watermark = 60;
	small_pool(32 * MIB, HYBRID_MODE_WRITEBACK, &config);
	for (n = 0; n < 2 * pool().blocks; n++) {
		read_moves(HYBRID_FILLS, n % 300);
		tick(100);
	}
	for (k = 0; k < few; k++) {
		put((310 + k) * BLOCK, BLOCK, 1);
		tick(100);
	}
	for (n = 0; n < 100; n++) {
		read_moves(HYBRID_FILLS, 360 + n);
		tick(100);
	}
	assert_int_equal(status().dirty, few);
	assert_int_equal(status().counter[HYBRID_WRITEBACKS], 0);
	assert_int_equal(status().counter[HYBRID_BYPASS_FULL], 0);
}

/* Reads are cached while there is room; then as the endurance budget says. */
static void endurance(void **state)
{
	struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u32 n, k;

	config.endurance = 1024;	/* MiB a day: 43 an hour */
	small_pool(8 * MIB, HYBRID_MODE_WRITETHROUGH, &config);
	tick(100);
	/* one block uses up the present budget, but there is room */
	for (n = 0; pool().free > pool().blocks / 8; n++) {
		assert_true(n < 200);
		assert_int_equal(read_moves(HYBRID_FILLS, n), 1);
		tick(100);
	}
	assert_int_equal(pool().cache_written,
			 n * BLOCK + pool().metadata_writes * HYBRID_META_BLOCK_SECTORS);
	while (read_moves(HYBRID_FILLS, n))
		assert_true(++n < 200);
	/* no room: a block read once is not cached, a block read again is */
	assert_int_equal(read_moves(HYBRID_BYPASS_ONCE, 300), 1);
	assert_int_equal(read_moves(HYBRID_FILLS, 301), 0);
	assert_int_equal(read_moves(HYBRID_FILLS, 300), 1);
	assert_int_equal(read_moves(HYBRID_READ_HITS, 300), 1);
	/* writes are cached, and leave more than an hour's debt: no read is */
	for (k = 0; k < 2000; k++)
		assert_int_equal(write_io(300 * BLOCK, BLOCK, k, false), 0);
	tick(100);
	assert_int_equal(read_moves(HYBRID_BYPASS_ONCE, 301), 1);
	assert_int_equal(read_moves(HYBRID_BYPASS_ONCE, 301), 1);
	assert_int_equal(read_moves(HYBRID_READ_HITS, 300), 1);
	/* it asks for more time until that is paid */
	assert_true(tick(3600 * 1000));
	for (k = 0; tick(3600 * 1000); k++)
		assert_true(k < 48);
	assert_int_equal(read_moves(HYBRID_FILLS, 302), 1);
}

/* Writes dirty blocks until there is no room for another; returns their number. */
static u32 fill_with_dirty(void)
{
	static const struct hybrid_config lazy = {
		.high_watermark = 100, .low_watermark = 100, .commit_interval = 1000,
	};
	u32 n;

	small_pool(8 * MIB, HYBRID_MODE_WRITEBACK, &lazy);
	origin_was_quick();
	for (n = 0; pool().free; n++)
		put(n * BLOCK, 8, n + 1);
	assert_int_equal(status().dirty, pool().blocks);
	return n;
}

/*
 * If the origin seeks, writes without room wait: the disk makes room sooner by writeback in order
 * than by taking these writes one by one.
 */
static void full_of_dirty_blocks(void **state)
{
	u32 blocks = fill_with_dirty(), n = blocks, k;
	u64 bypasses;

	for (; n < 2 * blocks; n++)
		put(n * BLOCK, 8, n + 1);
	assert_int_equal(status().counter[HYBRID_BYPASS_FULL], 0);
	assert_false(origin_has((n - 1) * BLOCK, 8, n));
	for (k = 0; k < n; k++)
		reads(k * BLOCK, 8, k + 1);
	/* ... unless writeback fails: then nobody waits for it */
	for (; pool().free || status().dirty < pool().blocks; n++)
		put(n * BLOCK, 8, n + 1);
	fail_origin = true;
	for (k = 0; k < 20; k++)
		tick(100);
	bypasses = status().counter[HYBRID_BYPASS_FULL];
	assert_int_equal(write_io(n * BLOCK, 8, 1, false), -EIO);
	assert_int_equal(status().counter[HYBRID_BYPASS_FULL], bypasses + 1);
	fail_origin = false;
}

/* However many writes wait for room: one event routes some of them again, and the worker the others. */
static void woken_in_slices(void **state)
{
	static struct user many[300];
	u32 n = fill_with_dirty(), k, again = 0;
	struct hybrid_actions acts;
	const struct list_head *pos;

	memset(many, 0, sizeof(many));
	hold_flush = true;
	hybrid_actions_init(&acts);
	for (k = 0; k < ARRAY_SIZE(many); k++) {
		fill_data(&many[k], (n + k) * BLOCK, 8, n + k + 1);
		arrive(&many[k], HYBRID_IO_WRITE, (n + k) * BLOCK, 8, 0, &acts);
		carry(&acts);
	}
	hybrid_stall_wake(e, &acts);
	list_for_each(pos, &acts.again)
		again++;
	assert_int_equal(again, 256);
	hybrid_engine_settle(e, &acts);
	carry(&acts);
	assert_true(list_empty(&e->stall.woken));
	tick(100);
	assert_non_null(held_flush);
	hold_flush = false;
	let_flush_go();
	for (k = 0; k < ARRAY_SIZE(many); k++)
		assert_int_equal(wait_for(&many[k]), 0);
	for (k = 0; k < ARRAY_SIZE(many); k++)
		reads((n + k) * BLOCK, 8, n + k + 1);
}

/* The worker's operation on woken writes may outlive all of them. */
static void stop_beside_woken_writes(void **state)
{
	struct hybrid_actions acts;
	u32 n;

	close_volume();
	e->stall.queued = true;
	hybrid_actions_init(&acts);
	for (n = 0; n < 10; n++) {
		assert_false(hybrid_engine_stop(e, &acts));
		carry(&acts);
	}
	e->stall.queued = false;
	stop();
}

/* Other writes get room all the time, and this one does not: it waits two seconds. */
static void full_for_one_write(void **state)
{
	u32 n = fill_with_dirty(), k;
	struct hybrid_actions acts;

	hold_flush = true;
	hybrid_actions_init(&acts);
	fill_data(&writer, n * BLOCK, 8, n + 1);
	arrive(&writer, HYBRID_IO_WRITE, n * BLOCK, 8, 0, &acts);
	carry(&acts);
	for (k = 0; !writer.r.ended && k < 100; k++) {
		e->stall.freed = true;
		v->writeback.stuck = 0;
		tick(100);
	}
	assert_in_range(k, 18, 22);
	assert_int_equal(status().counter[HYBRID_BYPASS_FULL], 1);
	assert_true(origin_has(n * BLOCK, 8, n + 1));
	hold_flush = false;
	let_flush_go();
	put((n + 1) * BLOCK, 8, n + 2);
	assert_int_equal(status().counter[HYBRID_BYPASS_FULL], 1);
}

/* If the origin does not seek, writes without room go to the origin. */
static void full_beside_an_ssd(void **state)
{
	u32 n = fill_with_dirty();

	hybrid_volume_set_traits(v, 0);
	put(n * BLOCK, 8, n + 1);
	assert_int_equal(status().counter[HYBRID_BYPASS_FULL], 1);
	assert_true(origin_has(n * BLOCK, 8, n + 1));
}

/* Reads one granule of a block; returns how much that adds to the counter. */
static u64 granule_moves(enum hybrid_counter c, u32 block, u32 granule)
{
	u64 before = status().counter[c];

	reads(block * BLOCK + granule * 8, 8, 0);
	return status().counter[c] - before;
}

/*
 * If the origin does not seek, the first read of data leaves the cache alone, and the second caches
 * the granules that it reads, and no others.
 */
static void second_read_beside_an_ssd(void **state)
{
	static const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u32 n;

	small_pool(8 * MIB, HYBRID_MODE_WRITETHROUGH, &config);
	hybrid_volume_set_traits(v, 0);
	for (n = 0; n < 4; n++)
		assert_int_equal(granule_moves(HYBRID_BYPASS_ONCE, 10, n), 1);
	assert_int_equal(status().cached, 0);
	assert_int_equal(granule_moves(HYBRID_FILLS, 10, 2), 1);
	assert_int_equal(sectors_of(ORIGIN, false), 8);
	assert_int_equal(granule_moves(HYBRID_READ_HITS, 10, 2), 1);
	/* each granule by itself, also of a block that is cached */
	assert_int_equal(granule_moves(HYBRID_BYPASS_ONCE, 10, 9), 1);
	assert_int_equal(granule_moves(HYBRID_FILLS, 10, 3), 1);
	assert_int_equal(sectors_of(ORIGIN, false), 8);
	assert_int_equal(status().cached, 1);
	/* metadata is worth a fill at once */
	assert_int_equal(read_meta(20 * BLOCK, 8), 0);
	assert_int_equal(sectors_of(ORIGIN, false), 8);
	/* and so is all, once the volume has an origin that seeks */
	hybrid_volume_set_traits(v, HYBRID_ORIGIN_SEEKS);
	assert_int_equal(granule_moves(HYBRID_BYPASS_ONCE, 30, 0), 0);
	assert_true(sectors_of(ORIGIN, false) >= BLOCK);
}

/* Read in passes, as much data as the cache holds enters with the second one, in single granules. */
static void second_pass_beside_an_ssd(void **state)
{
	static const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	u32 blocks, pass, n, k, fills = 0;

	small_pool(8 * MIB, HYBRID_MODE_WRITETHROUGH, &config);
	hybrid_volume_set_traits(v, 0);
	blocks = pool().blocks / 2;
	for (pass = 0; pass < 2; pass++)
		for (k = 0; k < 16; k++)
			for (n = 0; n < blocks; n++)
				fills += granule_moves(HYBRID_FILLS, n, (5 * k + 3 * n) % 16) * pass;
	assert_true(fills > blocks * 16 * 9 / 10);
	assert_true(status().counter[HYBRID_BYPASS_ONCE] >= blocks * 16);
}

/* Without memory of first reads, the first read is cached. */
static void first_read_without_a_memory(void **state)
{
	hybrid_volume_set_traits(v, 0);
	vfree(e->map.reads);
	e->map.reads = NULL;
	assert_int_equal(granule_moves(HYBRID_FILLS, 10, 2), 1);
	assert_int_equal(sectors_of(ORIGIN, false), 8);
}

/* A write of part of a granule brings the rest of the granule, not of the block. */
static void part_of_a_granule_beside_an_ssd(void **state)
{
	hybrid_volume_set_traits(v, 0);
	assert_int_equal(write_io(10 * BLOCK + 3, 1, 7, false), 0);
	assert_int_equal(sectors_of(ORIGIN, false), 8);
}

/* After @idle_ticks begins a drain of windows, one write each; returns how many go before a flush. */
static u32 first_batch(u32 windows, u32 version, u32 idle_ticks)
{
	struct hybrid_actions acts;
	u32 n;

	hybrid_actions_init(&acts);
	hybrid_engine_drain(e, v, false, 0, &acts);
	for (n = 0; n < windows; n++)
		put(n * 4 * BLOCK, 8, version);
	assert_int_equal(flush_volume(), 0);
	for (n = 0; n < idle_ticks; n++)
		tick(100);
	hold_flush = true;
	nr_log = 0;
	hybrid_engine_drain(e, v, true, 0, &acts);
	carry(&acts);
	assert_non_null(held_flush);
	hold_flush = false;
	for (n = nr_log; n > held_log; n--)
		assert_false(op_log[n - 1].origin);
	return sectors_of(ORIGIN, true) / 8;
}

/*
 * A drain's flush comes when its windows are written, and none is written beside it.
 * There are more windows to a flush where nobody could be waiting.
 */
static void drain_in_batches(void **state)
{
	static const struct hybrid_config lazy = {
		.high_watermark = 100, .low_watermark = 100, .commit_interval = 1000,
	};
	u32 all = 120;

	small_pool(CACHE_SECTORS, HYBRID_MODE_WRITEBACK, &lazy);
	origin_was_quick();
	assert_int_equal(first_batch(all, 1, 0), 64);
	tick(100);
	assert_int_equal(sectors_of(ORIGIN, true), 64 * 8);
	let_flush_go();
	assert_int_equal(sectors_of(ORIGIN, true), all * 8);
	/* the last ones are no whole batch: nothing waits for the tick either */
	assert_int_equal(status().dirty, 0);
	assert_int_equal(first_batch(all, 2, USERS_AWAY), 64);
	let_flush_go();
	assert_int_equal(status().dirty, 0);
	assert_int_equal(first_batch(all, 3, USERS_AWAY + 1), all);
	let_flush_go();
	assert_int_equal(status().dirty, 0);
}

static bool no_memory_now(size_t size, gfp_t gfp)
{
	return gfp & GFP_NOWAIT;
}

/* Reads @nr blocks, far from each other, all at once. */
static void misses_at_once(u32 nr)
{
	struct user *u = calloc(nr, sizeof(*u));
	struct hybrid_actions acts;
	u32 k;

	hybrid_actions_init(&acts);
	for (k = 0; k < nr; k++)
		arrive(&u[k], HYBRID_IO_READ, k * 8 * BLOCK, 8, 0, &acts);
	carry(&acts);
	for (k = 0; k < nr; k++) {
		assert_int_equal(wait_for(&u[k]), 0);
		assert_memory_equal(u[k].data, disk[1] + (DATA + k * 8 * BLOCK) * 512, 8 * 512);
	}
	free(u);
}

static void memory_comes_and_goes(void **state)
{
	u32 kept = nr_buffers, most, n;

	misses_at_once(24);
	most = nr_buffers;
	/* and one for a fill ahead */
	assert_int_equal(most, kept + 25);
	assert_int_equal(status().counter[HYBRID_FILLS], 24);
	/* Buffers that are needed again and again stay. */
	for (n = 0; n < 20; n++) {
		misses_at_once(24);
		assert_int_equal(nr_buffers, most);
	}
	for (n = 0; tick(100); n++) {
		assert_true(n < 100);
		assert_true(nr_buffers <= most);
	}
	assert_int_equal(nr_buffers, kept);
}

static void memory_does_not_come(void **state)
{
	u32 kept = nr_buffers;

	shim_alloc_fails = no_memory_now;
	misses_at_once(24);
	assert_int_equal(nr_buffers, kept);
	assert_int_equal(status().counter[HYBRID_FILLS], 1);
	put(0, 8, 1);
	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	put(8, 8, 2);
	reads(0, 8, 1);
	assert_true(origin_has(0, 8, 1));
	assert_int_equal(nr_buffers, kept);
}

/* A window of 64 granules, each but the seventh dirty. */
static void dirty_window(void)
{
	u32 n;

	set_mode(HYBRID_MODE_WRITEBACK);
	for (n = 0; n < 64; n++)
		if (n != 6)
			put(n * 8, 8, n + 1);
	rest();
	assert_int_equal(status().dirty, 4);
}

/*
 * Drains in runs of up to @most sectors, with so many more buffers; returns the number of runs
 * that reach the origin.
 */
static u32 drain_window(u32 most, u32 more_buffers)
{
	u32 n, written = 0, buffers = nr_buffers;
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	nr_log = 0;
	hybrid_engine_drain(e, v, true, 0, &acts);
	carry(&acts);
	for (n = 0; n < nr_log; n++)
		if (!op_log[n].meta && !op_log[n].flush) {
			assert_true(op_log[n].origin == op_log[n].write);
			assert_true(op_log[n].count <= most);
			written += op_log[n].origin;
		}
	assert_int_equal(nr_buffers, buffers + more_buffers);
	for (n = 0; status().dirty && n < 50; n++)
		tick(500);
	assert_int_equal(status().dirty, 0);
	for (n = 0; n < 64; n++)
		assert_true(origin_has(n * 8, 8, n + 1) == (n != 6));
	return written;
}

/* The volume's own buffer for writeback is a small one: a window goes in parts. */
static void writeback_in_parts(void **state)
{
	dirty_window();
	shim_alloc_fails = no_memory_now;
	/* 16 parts of four granules, one of them of two runs */
	assert_int_equal(drain_window(32, 0), 17);
}

static void writeback_in_one_part(void **state)
{
	dirty_window();
	/* a second job finds nothing more to be done */
	assert_int_equal(drain_window(64 * 8, 2), 2);
}

/* A part fails: the rest goes one by one, and nothing is called clean that is not. */
static void parts_that_fail(void **state)
{
	struct hybrid_actions acts;
	u32 n;

	dirty_window();
	shim_alloc_fails = no_memory_now;
	fail_origin = true;
	hybrid_actions_init(&acts);
	hybrid_engine_drain(e, v, true, 0, &acts);
	carry(&acts);
	assert_int_equal(status().dirty, 4);
	fail_origin = false;
	for (n = 0; n < 64; n++)
		if (n != 6)
			reads(n * 8, 8, n + 1);
	for (n = 0; status().dirty && n < 50; n++)
		tick(500);
	assert_int_equal(status().dirty, 0);
	for (n = 0; n < 64; n++)
		assert_true(origin_has(n * 8, 8, n + 1) == (n != 6));
}

/*
 * Returns the number of metadata writes that follow a flush.  @most: blocks of the largest of all
 * metadata writes, of one run or of single blocks.
 */
static u32 durable_writes(u32 *most)
{
	u32 n, nr = 0;

	*most = 0;
	for (n = 0; n < nr_log; n++) {
		if (!op_log[n].meta || !op_log[n].write)
			continue;
		nr += n && flushed_entry(n - 1);
		*most = max(*most, op_log[n].count / HYBRID_META_BLOCK_SECTORS);
		*most = max(*most, op_log[n].nr_segments);
	}
	return nr;
}

/*
 * An entry, and a write of a checkpoint, grow if there is memory; otherwise there are more of
 * them.
 */
static void metadata_memory(u32 most, u32 checkpoint, u32 entries)
{
	u32 n, records = 2000, largest;

	fresh_volume(8);
	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	shim_alloc_fails = most == HYBRID_JOURNAL_KEPT_BLOCKS ? no_memory_now : NULL;
	for (n = 0; n < records; n++)
		put(8 + n * 8, 8, 5);
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(durable_writes(&largest), entries);
	assert_int_equal(largest, most);
	crash();
	/* Loading ends with a checkpoint. */
	nr_log = 0;
	start();
	assert_int_equal(durable_writes(&largest), 1);
	assert_int_equal(largest, checkpoint);
	open_volume();
	for (n = 0; n < records; n++)
		reads(8 + n * 8, 8, 5);
	stop();
	crash();
	start();
	open_volume();
	reads(8 + (records - 1) * 8, 8, 5);
}

static void metadata_with_memory(void **state)
{
	metadata_memory(20, 16, 1);
}

static void metadata_without_memory(void **state)
{
	metadata_memory(HYBRID_JOURNAL_KEPT_BLOCKS, HYBRID_JOURNAL_KEPT_BLOCKS, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(modes, setup, teardown),
		cmocka_unit_test_setup_teardown(mode_switch_drains, setup, teardown),
		cmocka_unit_test_setup_teardown(switch_back_ends_the_drain, setup, teardown),
		cmocka_unit_test_setup_teardown(writeback_rate, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(settings_are_recorded, setup, teardown),
		cmocka_unit_test_setup_teardown(settings_that_stay, setup, teardown),
		cmocka_unit_test_setup_teardown(flush_is_one_journal_write, setup, teardown),
		cmocka_unit_test_setup_teardown(failed_flush_of_the_cache, setup, teardown),
		cmocka_unit_test_setup_teardown(failed_flush_before_the_root, setup, teardown),
		cmocka_unit_test_setup_teardown(flush_of_two_entries, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(zeroes_replace_recorded_data, setup, teardown),
		cmocka_unit_test_setup_teardown(emptied_blocks_leave, setup, teardown),
		cmocka_unit_test_setup_teardown(rewrite_of_dirty_is_free, setup, teardown),
		cmocka_unit_test_setup_teardown(fua_write, setup, teardown),
		cmocka_unit_test_setup_teardown(fua_write_to_both, setup, teardown),
		cmocka_unit_test_setup_teardown(fua_write_without_fua, setup, teardown),
		cmocka_unit_test_setup_teardown(flush_of_writethrough, setup, teardown),
		cmocka_unit_test_setup_teardown(records_wait_for_the_next_flush, setup, teardown),
		cmocka_unit_test_setup_teardown(read_miss_fills_the_block, setup, teardown),
		cmocka_unit_test_setup_teardown(writes_of_parts, setup, teardown),
		cmocka_unit_test_setup_teardown(drain_is_sorted, setup, teardown),
		cmocka_unit_test_setup_teardown(sequential_bypass, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(small_blocks_are_filled_together, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(small_blocks_share_credit, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(part_of_a_granule_fills_small_blocks, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(rest_is_on_credit, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(rest_is_learned, setup, teardown),
		cmocka_unit_test_setup_teardown(samples_of_reads, setup, teardown),
		cmocka_unit_test_setup_teardown(rest_of_a_run_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(fills_ahead, setup, teardown),
		cmocka_unit_test_setup_teardown(hits_pay, setup, teardown),
		cmocka_unit_test_setup_teardown(ahead_goes_first, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(ahead_ends_at_the_volume, setup, teardown),
		cmocka_unit_test_setup_teardown(reads_beside_a_write, setup, teardown),
		cmocka_unit_test_setup_teardown(reads_beside_writes_that_failed, setup, teardown),
		cmocka_unit_test_setup_teardown(refused_by_a_device, setup, teardown),
		cmocka_unit_test_setup_teardown(errors_by_kind, setup, teardown),
		cmocka_unit_test_setup_teardown(metadata_errors_by_kind, setup, teardown),
		cmocka_unit_test_setup_teardown(refused_and_waited_for, setup, teardown),
		cmocka_unit_test_setup_teardown(short_way, setup, teardown),
		cmocka_unit_test_setup_teardown(short_way_awaited, setup, teardown),
		cmocka_unit_test_setup_teardown(opens_ahead, setup, teardown),
		cmocka_unit_test_setup_teardown(invalidated_first, setup, teardown),
		cmocka_unit_test_setup_teardown(invalidated_and_evicted, setup, teardown),
		cmocka_unit_test_setup_teardown(invalidated_and_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(invalidations_are_limited, setup, teardown),
		cmocka_unit_test_setup_teardown(both_copies_open_a_region, setup, teardown),
		cmocka_unit_test_setup_teardown(writeback_yields, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(clean_goes_first, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(endurance, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(full_of_dirty_blocks, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(full_for_one_write, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(stop_beside_woken_writes, setup, teardown),
		cmocka_unit_test_setup_teardown(woken_in_slices, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(full_beside_an_ssd, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(second_read_beside_an_ssd, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(second_pass_beside_an_ssd, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(first_read_without_a_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(part_of_a_granule_beside_an_ssd, setup, teardown),
		cmocka_unit_test_setup_teardown(drain_in_batches, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(memory_comes_and_goes, setup, teardown),
		cmocka_unit_test_setup_teardown(memory_does_not_come, setup, teardown),
		cmocka_unit_test_setup_teardown(writeback_in_parts, setup, teardown),
		cmocka_unit_test_setup_teardown(writeback_in_one_part, setup, teardown),
		cmocka_unit_test_setup_teardown(parts_that_fail, setup, teardown),
		cmocka_unit_test_setup_teardown(metadata_with_memory, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(metadata_without_memory, setup_disks, teardown),
	};

	return cmocka_run_group_tests_name("traffic", tests, NULL, NULL);
}
