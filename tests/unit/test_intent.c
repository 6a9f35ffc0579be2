// SPDX-License-Identifier: GPL-2.0-or-later
/* The intent log: writes of users who flush after each of them. */
#include <stdlib.h>

#include "rig.h"
#include "engine-internal.h"

#define SECTOR	(8 * BLOCK)
#define FIRST	6	/* blocks that syncing() makes dirty */

/* The volume syncs, and everything is recorded. */
static void syncing(void)
{
	u32 k;

	for (k = 0; k < FIRST; k++) {
		put(k * BLOCK, 8, 1);
		assert_int_equal(flush_volume(), 0);
	}
	rest();
	assert_int_equal(e->intents.nr, 0);
}

static struct hybrid_intent *on_disk(u64 n)
{
	return (void *)disk[CACHE] + 512 * hybrid_intent_sector(&sb.geometry, n);
}

static void seal(struct hybrid_intent *intent)
{
	struct hybrid_ident id = { .epoch = le64_to_cpu(intent->header.epoch) };

	memcpy(id.pool_uuid, sb.pool_uuid, sizeof(id.pool_uuid));
	hybrid_intent_seal(intent, &id, le64_to_cpu(intent->header.number),
			   le32_to_cpu(intent->header.count), le64_to_cpu(intent->flushed));
}

/* Entry @n of the log is the data of a write, and entry @n + 1 its intent. */
static bool data_and_intent(u32 n, bool fua)
{
	const struct logged_op *op = op_log + n;
	u64 end = sb.geometry.intent_sector +
		  (u64)sb.geometry.intent_blocks * HYBRID_META_BLOCK_SECTORS;

	return n + 1 < nr_log && op[0].write && !op[0].origin && !op[0].meta && op[0].fua == fua &&
	       op[1].write && op[1].meta && op[1].fua == fua &&
	       op[1].sector >= sb.geometry.intent_sector && op[1].sector < end;
}

static bool cache_flush(u32 n)
{
	return n < nr_log && op_log[n].flush && !op_log[n].origin;
}

/* Writes eight sectors under an intent and flushes them.  Returns the sector of the cache device. */
static u64 write_and_flush(u64 sector, u32 version)
{
	u64 cache;

	put(sector, 8, version);
	assert_int_equal(nr_log, 2);
	assert_true(data_and_intent(0, false));
	cache = op_log[0].sector;
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(nr_log, 1);
	assert_true(cache_flush(0));
	return cache;
}

static void restart(void)
{
	crash();
	start();
	open_volume();
}

static void refused(const char *reason)
{
	const char *why = NULL;
	int error;

	crash();
	e = new_engine(&error);
	assert_non_null(e);
	assert_int_equal(hybrid_engine_load(e, &why), -EUCLEAN);
	assert_string_equal(why, reason);
}

static void a_write_and_a_flush(void **state)
{
	u64 entries;

	syncing();
	entries = pool().journal_writes;
	write_and_flush(SECTOR, 1);
	write_and_flush(SECTOR + BLOCK, 2);
	assert_true(pool().journal_writes == entries);
	restart();
	assert_int_equal(status().dirty, FIRST + 2);
	reads(SECTOR, 8, 1);
	reads(SECTOR + BLOCK, 8, 2);
	reads(SECTOR + 8, 8, 0);
	/* The recovery's checkpoint has it. */
	restart();
	assert_int_equal(status().dirty, FIRST + 2);
	reads(SECTOR, 8, 1);
}

/* Nobody else waits for the entry, which comes with the interval. */
static void recorded_later(void **state)
{
	u64 tail;

	syncing();
	tail = e->journal.intent_tail;
	write_and_flush(SECTOR, 1);
	assert_int_equal(e->intents.nr, 1);
	assert_true(e->journal.intent_tail == tail);
	rest();
	assert_int_equal(e->intents.nr, 0);
	assert_true(e->journal.intent_tail == tail + 1);
	restart();
	reads(SECTOR, 8, 1);
}

static void only_who_syncs(void **state)
{
	u32 k;

	syncing();
	for (k = 0; k < 16; k++)
		put(SECTOR + k * BLOCK, 8, 1);
	put(SECTOR + k * BLOCK, 8, 1);
	assert_int_equal(nr_log, 1);
	assert_false(op_log[0].meta);
}

/* Parts of granules, and much data, have no intent. */
static void whole_and_small(void **state)
{
	syncing();
	put(SECTOR, 40, 1);
	put(SECTOR + 2 * BLOCK, 7, 1);
	assert_int_equal(e->intents.nr, 0);
	assert_int_equal(flush_volume(), 0);
	put(SECTOR + BLOCK, 32, 1);
	assert_int_equal(e->intents.nr, 1);
	assert_int_equal(flush_volume(), 0);
	restart();
	reads(SECTOR + BLOCK, 32, 1);
}

static void fua(void **state)
{
	syncing();
	assert_int_equal(write_io(SECTOR, 8, 1, true), 0);
	assert_int_equal(nr_log, 2);
	assert_true(data_and_intent(0, true));
	hybrid_volume_set_traits(v, HYBRID_ORIGIN_SEEKS | HYBRID_CACHE_NO_FUA);
	assert_int_equal(write_io(SECTOR + BLOCK, 8, 1, true), 0);
	assert_int_equal(nr_log, 3);
	assert_true(data_and_intent(0, false));
	assert_true(cache_flush(2));
}

/* The volume syncs, and its blocks are clean on record. */
static void syncing_clean(void)
{
	syncing();
	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	set_mode(HYBRID_MODE_WRITEBACK);
	assert_int_equal(status().dirty, 0);
	assert_int_equal(status().cached, FIRST);
	atomic_set(&e->commit.invalidations, 0);
}

/* Granules that are clean on record are in an open region: a recovery drops them first. */
static void clean_on_record(void **state)
{
	syncing_clean();
	put(0, 8, 2);
	assert_true(nr_log > 2 && data_and_intent(nr_log - 2, false));
	write_and_flush(BLOCK, 3);
	restart();
	assert_int_equal(status().dirty, 2);
	reads(0, 8, 2);
	reads(BLOCK, 8, 3);
}

/* ... or a record that they are not valid went before the write. */
static void clean_and_invalidated(void **state)
{
	syncing_clean();
	atomic_set(&e->commit.invalidations, 1);
	put(0, 8, 2);
	assert_int_equal(nr_log, 3);
	assert_true(op_log[0].meta && op_log[0].fua && data_and_intent(1, false));
	assert_int_equal(pool().open_regions, 0);
	restart();
	assert_int_equal(status().dirty, 1);
	assert_int_equal(status().cached, FIRST);
	reads(0, 8, 2);
}

/* ... and the origin has their data if the write was lost. */
static void clean_on_record_and_torn(void **state)
{
	syncing_clean();
	put(0, 8, 2);
	disk[CACHE][op_log[nr_log - 2].sector * 512 + 9] ^= 1;
	restart();
	assert_int_equal(status().dirty, 0);
	reads(0, 8, 1);
}

/* A FUA write has an intent whatever the volume's users do otherwise. */
static void fua_alone(void **state)
{
	syncing();
	forget_syncs();
	put(SECTOR, 8, 1);
	assert_int_equal(nr_log, 1);
	assert_int_equal(write_io(SECTOR + BLOCK, 8, 1, true), 0);
	assert_int_equal(nr_log, 2);
	assert_true(data_and_intent(0, true));
	restart();
	reads(SECTOR + BLOCK, 8, 1);
}

/* J12: the data stays as it is until an entry has recorded it. */
static void rewrite_waits(void **state)
{
	syncing();
	write_and_flush(SECTOR, 1);
	put(SECTOR, 8, 2);
	assert_int_equal(nr_log, 3);
	assert_true(flushed_entry(0));
	assert_true(op_log[2].write && !op_log[2].meta);
	/* Once is enough. */
	put(SECTOR, 8, 3);
	assert_int_equal(nr_log, 1);
	reads(SECTOR, 8, 3);
}

/* An intent for each of two writes that come beside a third. */
static void shared(void **state)
{
	struct hybrid_actions acts;
	struct user u[3];
	u64 head;
	u32 k;

	syncing();
	hybrid_actions_init(&acts);
	head = e->intents.head;
	for (k = 0; k < 3; k++) {
		fill_data(&u[k], SECTOR + k * BLOCK, 8, 1);
		prepare(&u[k], HYBRID_IO_WRITE, SECTOR + k * BLOCK, 8, 0);
		assert_int_equal(hybrid_engine_map(e, &u[k].r.io, &acts), HYBRID_MAP_TAKEN);
	}
	carry(&acts);
	for (k = 0; k < 3; k++)
		assert_int_equal(wait_for(&u[k]), 0);
	assert_true(e->intents.head == head + 2);
	assert_int_equal(le32_to_cpu(on_disk(head)->header.count), 1);
	assert_int_equal(le32_to_cpu(on_disk(head + 1)->header.count), 2);
}

/* Without room in the ring, a write goes as any other. */
static void full_ring(void **state)
{
	syncing();
	/* No entry can be written. */
	WRITE_ONCE(e->meta.state, META_WORK);
	e->intents.head = e->journal.intent_tail + e->g->intent_blocks - 1;
	put(SECTOR, 8, 1);
	assert_true(data_and_intent(0, false));
	put(SECTOR + BLOCK, 8, 1);
	assert_int_equal(nr_log, 1);
	assert_int_equal(e->intents.nr, 1);
	WRITE_ONCE(e->meta.state, META_IDLE);
	rest();
	assert_int_equal(e->intents.nr, 0);
	put(SECTOR + 2 * BLOCK, 8, 1);
	assert_true(data_and_intent(0, false));
}

static bool no_memory(size_t bytes, gfp_t gfp)
{
	return gfp & __GFP_NOWARN;
}

/* The first sector of the volume whose block is in that set and not cached. */
static u64 sector_in_set(u32 set)
{
	u64 key, b;

	for (b = SECTOR / BLOCK; ; b++) {
		key = hybrid_key(v->id, to_oblock(b));
		if (hybrid_map_set_of(&e->map, key) == set &&
		    hybrid_set_find(&e->map, &e->map.set[set], key) < 0)
			return b * BLOCK;
	}
}

/* Entry @n of the log is a journal entry: the tail in its header. */
static u64 tail_of_entry(u32 n)
{
	const struct hybrid_block_header *h = (void *)disk[CACHE] + 512 * op_log[n].sector;

	assert_true(op_log[n].meta && op_log[n].fua);
	assert_true(op_log[n].sector >= sb.geometry.journal_sector &&
		    op_log[n].sector < sb.geometry.intent_sector);
	return le64_to_cpu(h->intent_tail);
}

/* J13: the first of two entries has no room for the granules, so it does not move the tail. */
static void two_entries(void **state)
{
	u64 tail;
	u32 k;

	assert_int_equal(e->map.nr_sets, 2);
	syncing();
	v->writeback.paused = U8_MAX;
	tail = e->journal.intent_tail;
	write_and_flush(sector_in_set(1), 1);
	forget_syncs();
	for (k = 0; k < 120; k++)
		put(sector_in_set(k % 2), 8, 1);
	e->journal.room = 1;
	shim_alloc_fails = no_memory;
	assert_int_equal(flush_volume(), 0);
	shim_alloc_fails = NULL;
	assert_int_equal(nr_log, 4);
	assert_true(flushed_entry(0) && flushed_entry(2));
	assert_true(tail_of_entry(1) == tail);
	assert_true(tail_of_entry(3) == tail + 1);
	assert_true(e->journal.intent_tail == tail + 1);
}

/* ---- errors of devices --------------------------------------------------------- */

/* Reads avoid a place whose write failed, although that write goes on. */
static void reads_beside_failed_data(void **state)
{
	struct hybrid_actions later;

	syncing_clean();
	/* Their region is open then. */
	put(0, 8, 2);
	hybrid_actions_init(&later);
	fill_data(&writer, BLOCK, 8, 2);
	hold_meta = true;
	arrive(&writer, HYBRID_IO_WRITE, BLOCK, 8, 0, &later);
	bad_from = sb.geometry.data_sector;
	bad_to = CACHE_SECTORS;
	carry(&later);
	bad_from = 0;
	bad_to = 0;
	assert_non_null(held_meta);
	assert_false(list_empty(&e->intents.pending));
	assert_int_equal(read_io(BLOCK, 8), 0);
	assert_int_equal(nr_log, 1);
	assert_true(op_log[0].origin);
	let_meta_go(&later);
	assert_int_equal(wait_for(&writer), 0);
	assert_true(origin_has(BLOCK, 8, 2));
}

/* A volume that was deleted under an intent is nobody's when the pool fails. */
static void deleted(void **state)
{
	struct hybrid_intended *older = kzalloc(sizeof(*older), GFP_KERNEL);

	syncing();
	/* Of another volume: it has not ended, so the tail stays. */
	older->state = INTENDED_WRITING;
	older->number = e->journal.intent_tail;
	e->intents.head++;
	e->intents.nr++;
	list_add_tail(&older->link, &e->intents.pending);
	write_and_flush(SECTOR, 1);
	delete_volume();
	assert_int_equal(e->intents.nr, 2);
	hybrid_intents_lost(e);
	assert_int_equal(atomic_read(&e->writebacks.nr_jdirty), 0);
}

/* The data goes to the origin once the intent means nothing any more. */
static void data_fails(void **state)
{
	u64 tail;
	u32 k;

	syncing();
	tail = e->journal.intent_tail;
	put(SECTOR, 8, 1);
	rest();
	assert_true(e->journal.intent_tail == tail + 1);
	bad_from = sb.geometry.data_sector;
	bad_to = CACHE_SECTORS;
	put(SECTOR + 4 * BLOCK, 8, 2);
	for (k = 0; k < nr_log && !op_log[k].origin; k++)
		;
	assert_true(k < nr_log && op_log[k].write);
	assert_true(flushed_entry(k - 2));
	assert_true(e->journal.intent_tail == tail + 2);
	assert_true(origin_has(SECTOR + 4 * BLOCK, 8, 2));
	assert_int_equal(e->intents.nr, 0);
}

static void fail_intents(void)
{
	bad_from = sb.geometry.intent_sector;
	bad_to = bad_from + (u64)sb.geometry.intent_blocks * HYBRID_META_BLOCK_SECTORS;
}

/* An intent that cannot be written fails the pool, as an entry does. */
static void intent_fails(void **state)
{
	syncing();
	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	set_mode(HYBRID_MODE_WRITEBACK);
	fail_intents();
	put(SECTOR, 8, 1);
	assert_true(hybrid_engine_failed(e));
	assert_int_equal(pool().write_errors, 2);
	assert_true(origin_has(SECTOR, 8, 1));
	reads(SECTOR, 8, 1);
}

/*
 * But if other data is lost with the cache, dirty data may be merged later, and the intent may be
 * durable all the same: then nothing newer must be on the origin.
 */
static void intent_fails_beside_dirty_data(void **state)
{
	syncing();
	fail_intents();
	assert_int_equal(write_io(SECTOR, 8, 1, false), -EIO);
	assert_int_equal(write_io(SECTOR, 8, 2, false), -EIO);
	reads(SECTOR, 8, 0);
	put(SECTOR + BLOCK, 8, 3);
	assert_true(origin_has(SECTOR + BLOCK, 8, 3));
}

/*
 * An intent fails while an entry is on its way that ends dirty granules.  Until it is known whether
 * they are dirty on disk, a write to them waits.
 */
static void fail_beside_an_entry(u32 written_back)
{
	struct hybrid_actions acts;
	u32 k;

	syncing();
	hybrid_actions_init(&acts);
	for (k = 0; k < written_back; k++)
		hybrid_engine_evict(e, v, to_oblock(k), &acts);
	carry(&acts);
	hold_meta = true;
	tick(60000);
	assert_non_null(held_meta);
	hold_meta = false;
	fail_intents();
	fill_data(&writer, SECTOR, 8, 2);
	arrive(&writer, HYBRID_IO_WRITE, SECTOR, 8, 0, &acts);
	carry(&acts);
	assert_true(hybrid_engine_failed(e));
	fill_data(&reader, 0, 8, 3);
	arrive(&reader, HYBRID_IO_WRITE, 0, 8, HYBRID_IO_FUA, &acts);
	arrive(&flusher, HYBRID_IO_ZEROES, BLOCK, 8, 0, &acts);
	carry(&acts);
	assert_false(reader.r.ended);
	assert_false(flusher.r.ended);
	assert_true(origin_has(0, 8, 1));
	fail_cache_writes = true;
	let_meta_go(&acts);
	assert_true(reader.r.ended);
	assert_true(flusher.r.ended);
	fail_cache_writes = false;
	bad_to = 0;
}

/* Other data is lost with the cache: recovery takes the granules that the entry did not end. */
static void intent_fails_beside_an_entry(void **state)
{
	fail_beside_an_entry(1);
	assert_int_equal(reader.r.io.error, -EIO);
	assert_int_equal(flusher.r.io.error, -EIO);
	crash();
	start();
	open_volume();
	reads(0, 8, 1);
}

/* Nothing is lost: no record counts any more, and users go on without the cache (P5). */
static void intent_fails_beside_the_last_entry(void **state)
{
	fail_beside_an_entry(FIRST);
	assert_int_equal(reader.r.io.error, 0);
	assert_int_equal(flusher.r.io.error, 0);
	assert_int_equal(flush_volume(), 0);
	assert_int_equal(write_io(BLOCK, 8, 4, false), 0);
	crash();
	start();
	open_volume();
	reads(0, 8, 3);
	reads(BLOCK, 8, 4);
	reads(2 * BLOCK, 8, 1);
}

/* ---- recovery -------------------------------------------------------------------- */

/* What no flush has covered may be lost, and reads as before. */
static void torn(void **state)
{
	u64 first, second;

	syncing();
	first = write_and_flush(SECTOR, 1);
	put(SECTOR + BLOCK, 8, 2);
	second = op_log[0].sector;
	put(SECTOR + 2 * BLOCK, 8, 3);
	disk[CACHE][second * 512 + 9] ^= 1;
	on_disk(e->intents.head - 1)->header.crc ^= 1;
	restart();
	assert_int_equal(status().dirty, FIRST + 1);
	reads(SECTOR, 8, 1);
	reads(SECTOR + BLOCK, 8, 0);
	reads(SECTOR + 2 * BLOCK, 8, 0);
	assert_true(first != second);
}

/* Any intent may be missing; the others count. */
static void missing(void **state)
{
	syncing();
	put(SECTOR, 8, 1);
	put(SECTOR + BLOCK, 8, 2);
	memset(on_disk(e->intents.head - 2), 0, 4096);
	restart();
	assert_int_equal(status().dirty, FIRST + 1);
	reads(SECTOR, 8, 0);
	reads(SECTOR + BLOCK, 8, 2);
}

static void flushed_intent_is_missed(void **state)
{
	syncing();
	write_and_flush(SECTOR, 1);
	put(SECTOR + BLOCK, 8, 2);
	memset(on_disk(e->intents.head - 2), 0, 4096);
	refused("an intent that was flushed is missing");
}

static void flushed_data_is_missed(void **state)
{
	u64 cache;

	syncing();
	cache = write_and_flush(SECTOR, 1);
	put(SECTOR + BLOCK, 8, 2);
	disk[CACHE][cache * 512 + 7] ^= 1;
	refused("data under an intent was lost");
}

static void unreadable_data(void **state)
{
	syncing();
	bad_from = write_and_flush(SECTOR, 1);
	bad_to = bad_from + 1;
	refused("data under an intent cannot be read");
}

/* The data that a later entry describes is not looked at. */
static void passed(void **state)
{
	u64 cache;

	syncing();
	cache = write_and_flush(SECTOR, 1);
	rest();
	disk[CACHE][cache * 512 + 7] ^= 1;
	restart();
	assert_int_equal(status().dirty, FIRST + 1);
}

static void newer_root_is_missed(void **state)
{
	struct hybrid_intent *intent;

	syncing();
	write_and_flush(SECTOR, 1);
	intent = on_disk(e->intents.head - 1);
	intent->header.epoch ^= 1;
	seal(intent);
	refused("the intents go on from a newer root");
}

/*
 * An in-place volume starts cold, except for its dirty granules.  The volume keeps them even if its
 * origin fails as it is closed, before an entry has recorded them.
 */
static void closed_beside_a_bad_origin(void **state)
{
	struct hybrid_actions acts;
	const char *why = NULL;

	info.flags = HYBRID_VOLUME_INPLACE;
	start();
	assert_int_equal(hybrid_volume_create(e, 1, &info), 0);
	open_volume();
	syncing_clean();
	write_and_flush(SECTOR, 1);
	assert_int_equal(submit(&writer, HYBRID_IO_ZEROES, SECTOR + 64 * BLOCK, 8, 0), 0);
	fail_origin = true;
	hybrid_actions_init(&acts);
	hybrid_volume_suspend(e, v, &acts);
	carry(&acts);
	assert_int_equal(hybrid_volume_close(e, v), -EIO);
	assert_int_equal(atomic_read(&v->blocks.jdirty), 1);
	fail_origin = false;
	assert_int_equal(hybrid_volume_open(e, 1, ORIGIN_SECTORS, NULL, &v, &why), 0);
	hybrid_volume_set_traits(v, HYBRID_ORIGIN_SEEKS);
	reads(SECTOR, 8, 1);
}

/* ---- hostile intents -------------------------------------------------------------- */

static struct hybrid_intent *forge(void)
{
	struct hybrid_intent *intent;

	syncing();
	write_and_flush(SECTOR, 1);
	intent = on_disk(e->intents.head - 1);
	crash();
	return intent;
}

static void refuse_forged(struct hybrid_intent *intent, const char *reason)
{
	u8 *before = malloc(CACHE_SECTORS * 512);
	const char *why = NULL;
	int error;

	seal(intent);
	memcpy(before, disk[CACHE], CACHE_SECTORS * 512);
	e = new_engine(&error);
	assert_non_null(e);
	assert_int_equal(hybrid_engine_load(e, &why), -EUCLEAN);
	assert_string_equal(why, reason);
	assert_memory_equal(before, disk[CACHE], CACHE_SECTORS * 512);
	free(before);
	crash();
}

#define IMPOSSIBLE "an intent has impossible contents"

static void hostile(void **state)
{
	struct hybrid_intent *intent = forge(), good = *intent;
	struct hybrid_intent_record *r = &intent->record[0];
	u32 set_size = sb.geometry.set_size;

	r->where = cpu_to_le32(sb.geometry.nr_blocks);
	refuse_forged(intent, IMPOSSIBLE);
	*intent = good;
	r->where = cpu_to_le32((le32_to_cpu(r->where) + set_size) % sb.geometry.nr_blocks);
	refuse_forged(intent, "an intent is for the wrong set");
	*intent = good;
	r->oblock = cpu_to_le64(info.data_sectors / BLOCK + 1);
	refuse_forged(intent, "an intent lies beyond its volume's end");
	*intent = good;
	r->instance = cpu_to_le32(1000);
	refuse_forged(intent, "a block's volume instance was never given out");
	*intent = good;
	r->granules = cpu_to_le64(5);
	refuse_forged(intent, IMPOSSIBLE);
	*intent = good;
	r->granules = cpu_to_le64(0x1f);
	refuse_forged(intent, IMPOSSIBLE);
	*intent = good;
	intent->flushed = cpu_to_le64(le64_to_cpu(intent->header.number) + 1);
	refuse_forged(intent, IMPOSSIBLE);
}

/* A block that the map gives to another owner */
static void names_another_block(void **state)
{
	struct hybrid_intent *intent;
	struct hybrid_intent_record *r;

	put(SECTOR + BLOCK, 8, 1);
	intent = forge();
	r = &intent->record[0];
	r->oblock = cpu_to_le64(SECTOR / BLOCK + 1);
	refuse_forged(intent, "an intent is for another block than the map says");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_write_and_a_flush, setup, teardown),
		cmocka_unit_test_setup_teardown(recorded_later, setup, teardown),
		cmocka_unit_test_setup_teardown(only_who_syncs, setup, teardown),
		cmocka_unit_test_setup_teardown(whole_and_small, setup, teardown),
		cmocka_unit_test_setup_teardown(fua, setup, teardown),
		cmocka_unit_test_setup_teardown(fua_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(clean_on_record, setup, teardown),
		cmocka_unit_test_setup_teardown(clean_on_record_and_torn, setup, teardown),
		cmocka_unit_test_setup_teardown(clean_and_invalidated, setup, teardown),
		cmocka_unit_test_setup_teardown(rewrite_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(shared, setup, teardown),
		cmocka_unit_test_setup_teardown(full_ring, setup, teardown),
		cmocka_unit_test_setup_teardown(two_entries, setup, teardown),
		cmocka_unit_test_setup_teardown(data_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(reads_beside_failed_data, setup, teardown),
		cmocka_unit_test_setup_teardown(deleted, setup, teardown),
		cmocka_unit_test_setup_teardown(intent_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(intent_fails_beside_dirty_data, setup, teardown),
		cmocka_unit_test_setup_teardown(intent_fails_beside_an_entry, setup, teardown),
		cmocka_unit_test_setup_teardown(intent_fails_beside_the_last_entry, setup, teardown),
		cmocka_unit_test_setup_teardown(torn, setup, teardown),
		cmocka_unit_test_setup_teardown(missing, setup, teardown),
		cmocka_unit_test_setup_teardown(flushed_intent_is_missed, setup, teardown),
		cmocka_unit_test_setup_teardown(flushed_data_is_missed, setup, teardown),
		cmocka_unit_test_setup_teardown(unreadable_data, setup, teardown),
		cmocka_unit_test_setup_teardown(passed, setup, teardown),
		cmocka_unit_test_setup_teardown(newer_root_is_missed, setup, teardown),
		cmocka_unit_test_setup_teardown(closed_beside_a_bad_origin, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(hostile, setup, teardown),
		cmocka_unit_test_setup_teardown(names_another_block, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
