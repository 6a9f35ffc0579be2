// SPDX-License-Identifier: GPL-2.0-or-later
/* The engine: users' I/O that meet, in orders that take more than one CPU, or luck. */
#include "rig.h"
#include "engine-internal.h"

/* Moves the data of an operation of one segment, or of a user's, as a device would. */
static void move(struct hybrid_op *op)
{
	const struct hybrid_segment *seg = op->segments;

	if (op->type == HYBRID_OP_USER)
		memcpy(disk[op->origin] + op->sector * 512,
		       hybrid_request_of(op)->data, op->count * 512);
	else
		memcpy(op->buffer + seg->offset * 512, disk[seg->origin] + seg->sector * 512,
		       seg->count * 512);
}

/*
 * A write of part of a granule, and of the next one, to which another write is under way.  Once
 * that other write has ended, no reader may get the data fetched for the first granule.
 */
static void read_beside_a_fetch(void **state)
{
	struct user *first = calloc(1, sizeof(*first));
	struct hybrid_actions acts, later;
	struct hybrid_op *fetch;
	u64 sector = 8 * BLOCK;

	first_dirty();
	set_mode(HYBRID_MODE_WRITEAROUND);
	rest();
	hybrid_actions_init(&acts);
	hybrid_actions_init(&later);
	fill_data(first, sector + 8, 8, 2);
	prepare(first, HYBRID_IO_WRITE, sector + 8, 8, 0);
	assert_int_equal(hybrid_engine_map(e, &first->r.io, &acts), HYBRID_MAP_REMAP);
	set_mode(HYBRID_MODE_WRITEBACK);
	fill_data(&writer, sector + 4, 12, 3);
	arrive(&writer, HYBRID_IO_WRITE, sector + 4, 12, 0, &later);
	fetch = hybrid_actions_pop(&later);
	if (fetch)
		move(fetch);
	move(&first->r.io.op);
	assert_true(hybrid_engine_io_done(e, &first->r.io, 0, &later));
	/* The other write has not begun. */
	arrive(&reader, HYBRID_IO_READ, sector + 8, 8, 0, &acts);
	carry(&acts);
	if (fetch)
		hybrid_engine_op_done(e, fetch, &acts);
	carry(&acts);
	assert_true(reader.r.ended);
	assert_memory_equal(reader.data, first->data, 8 * 512);
	carry(&later);
	assert_int_equal(wait_for(&writer), 0);
	reads(sector + 8, 8, 3);
	reads(sector + 4, 4, 3);
	free(first);
}

/*
 * Discards for which there is no room, and the pool fails: each is given up when it is its
 * turn, because the superblock must say so first.  Not all of them in one event: it would
 * take too long.
 */
static void many_ranges_of_a_pool_that_failed(void **state)
{
	enum { IN_FLIGHT = 64, ALL = 100000 };
	struct hybrid_io *io = calloc(ALL, sizeof(*io));
	struct hybrid_actions acts;
	struct hybrid_op *op;
	u32 n, ended = 0;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	hybrid_actions_init(&acts);
	for (n = 0; n < ALL; n++) {
		hybrid_io_init(&io[n], v, HYBRID_IO_DISCARD, (1 + min_t(u32, n, IN_FLIGHT)) * BLOCK,
			       BLOCK, 0);
		assert_int_equal(hybrid_engine_map(e, &io[n], &acts),
				 n < IN_FLIGHT ? HYBRID_MAP_REMAP : HYBRID_MAP_TAKEN);
	}
	assert_null(hybrid_actions_pop(&acts));
	put(0, 16, 3);
	fail_cache_writes = true;
	assert_int_equal(flush_volume(), -EIO);
	for (n = 0; n < IN_FLIGHT; n++) {
		assert_true(hybrid_engine_io_done(e, &io[n], 0, &acts));
		assert_false(list_empty(&v->ranges.queue));
		ended++;
	}
	while ((op = hybrid_actions_pop(&acts))) {
		if (op->type == HYBRID_OP_USER)
			ended += hybrid_engine_io_done(e, op->io, 0, &acts);
		else
			carry_one(op, &acts);
	}
	assert_int_equal(ended, ALL);
	fail_cache_writes = false;
	free(io);
}

/*
 * Returns the discards that @acts sends to the origin in @sent, and their number; carries out all
 * else.
 */
static u32 discards_sent(struct hybrid_actions *acts, struct hybrid_io **sent)
{
	struct hybrid_op *op;
	u32 n = 0;

	while ((op = hybrid_actions_pop(acts))) {
		if (op->type == HYBRID_OP_USER)
			sent[n++] = op->io;
		else
			carry_one(op, acts);
	}
	return n;
}

/*
 * Each discard that ends makes room for a queued one, which goes beside the discards still in
 * flight.
 */
static void queued_discards_side_by_side(void **state)
{
	enum { IN_FLIGHT = 64, QUEUED = 3 };
	struct hybrid_io *io = calloc(IN_FLIGHT + QUEUED, sizeof(*io)), *sent[QUEUED];
	struct hybrid_actions acts;
	u32 n;

	hybrid_actions_init(&acts);
	for (n = 0; n < IN_FLIGHT + QUEUED; n++) {
		hybrid_io_init(&io[n], v, HYBRID_IO_DISCARD, (1 + n) * BLOCK, BLOCK, 0);
		assert_int_equal(hybrid_engine_map(e, &io[n], &acts),
				 n < IN_FLIGHT ? HYBRID_MAP_REMAP : HYBRID_MAP_TAKEN);
	}
	assert_int_equal(discards_sent(&acts, sent), 0);
	for (n = 0; n < QUEUED; n++) {
		assert_true(hybrid_engine_io_done(e, &io[n], 0, &acts));
		assert_int_equal(discards_sent(&acts, sent + n), 1);
		assert_ptr_equal(sent[n], &io[IN_FLIGHT + n]);
	}
	for (n = QUEUED; n < IN_FLIGHT + QUEUED; n++)
		assert_true(hybrid_engine_io_done(e, &io[n], 0, &acts));
	assert_int_equal(discards_sent(&acts, sent), 0);
	free(io);
}

/*
 * An origin that takes no discards gets none: cached data goes, dirty or clean, and the end of
 * the replaced data is final with the next flush.  In a pool that failed none of it is lost.
 */
static void discard_that_the_origin_does_not_take(void **state)
{
	const u64 dirty = BLOCK, clean = 2 * BLOCK, unrecorded = 3 * BLOCK;

	set_mode(HYBRID_MODE_WRITEBACK);
	hybrid_volume_set_traits(v, HYBRID_ORIGIN_NO_DISCARD);
	put(dirty, BLOCK, 1);
	assert_int_equal(flush_volume(), 0);
	reads(clean, BLOCK, 0);
	reads(clean, BLOCK, 0);
	rest();
	put(unrecorded, 16, 2);
	assert_int_equal(status().dirty, 2);
	assert_int_equal(status().cached, 3);
	nr_log = 0;
	/* The origin's beginning of the first granule and end of the last stay. */
	assert_int_equal(submit(&writer, HYBRID_IO_DISCARD, dirty + 1, 2 * BLOCK + 16, false), 0);
	assert_int_equal(sectors_of(ORIGIN, true), 0);
	assert_int_equal(status().dirty, 2);
	reads(dirty, 8, 1);
	reads(dirty + 8, BLOCK - 8, 0);
	reads(clean, BLOCK, 0);
	reads(unrecorded, 16, 0);
	assert_int_equal(flush_volume(), 0);
	crash();
	start();
	open_volume();
	reads(dirty, 8, 1);
	reads(dirty + 8, BLOCK - 8, 0);
	reads(unrecorded, 16, 0);
	hybrid_volume_set_traits(v, HYBRID_ORIGIN_NO_DISCARD);
	put(clean, 16, 3);
	fail_cache_writes = true;
	assert_int_equal(flush_volume(), -EIO);
	assert_int_equal(submit(&writer, HYBRID_IO_DISCARD, clean, 16, false), -EIO);
	assert_int_equal(submit(&writer, HYBRID_IO_DISCARD, 5 * BLOCK, 16, false), 0);
	assert_int_equal(status().dirty, 2);
	fail_cache_writes = false;
}

static void open_other(struct hybrid_volume **other)
{
	struct hybrid_volume_info info2 = info;
	const char *why;

	info2.flags = HYBRID_VOLUME_INPLACE;
	info2.data_sector = 0;
	info2.uuid[0]++;
	info2.member_uuid[0]++;
	info2.name[0]++;
	assert_int_equal(hybrid_volume_create(e, 2, &info2), 0);
	assert_int_equal(hybrid_volume_open(e, 2, ORIGIN_SECTORS, NULL, other, &why), 0);
}

/*
 * A commit whose waiters all wait for an origin makes nothing durable, nor does a commit of open
 * regions alone: data that another volume wrote to the cache meanwhile needs its flush all the
 * same.
 */
static void flush_beside_a_commit_that_waits(void **state)
{
	struct user *first = calloc(1, sizeof(*first));
	struct hybrid_volume *mine, *other;
	struct hybrid_actions acts;
	u64 sector = 8 * BLOCK;

	mine = v;
	open_other(&other);
	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	put(sector, 8, 1);
	reads(16 * BLOCK, BLOCK, 0);
	v = other;
	set_mode(HYBRID_MODE_WRITEBACK);
	put(0, 8, 1);
	v = mine;
	rest();
	/* A write that fails in the cache is on its way to the origin ... */
	hybrid_actions_init(&acts);
	fill_data(first, sector + 64, 8, 2);
	prepare(first, HYBRID_IO_WRITE, sector + 64, 8, 0);
	assert_int_equal(hybrid_engine_map(e, &first->r.io, &acts), HYBRID_MAP_REMAP);
	assert_false(hybrid_engine_io_done(e, &first->r.io, -EIO, &acts));
	assert_ptr_equal(hybrid_actions_pop(&acts), &first->r.io.op);
	/* ... when zeroes replace the dirty data of the block, and ends during a flush. */
	assert_int_equal(submit(&writer, HYBRID_IO_ZEROES, sector, 8, 0), 0);
	hold_flush = true;
	arrive(&flusher, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	carry(&acts);
	assert_non_null(held_flush);
	assert_true(hybrid_engine_io_done(e, &first->r.io, 0, &acts));
	/* The other volume writes data again that is dirty on record. */
	v = other;
	put(0, 8, 2);
	v = mine;
	/* The record has to wait for the next flush of the origin. */
	let_flush_go();
	assert_non_null(held_flush);
	assert_false(flusher.r.ended);
	/* A region is opened meanwhile. */
	put(16 * BLOCK, 8, 2);
	v = other;
	nr_log = 0;
	assert_int_equal(submit(&reader, HYBRID_IO_FLUSH, 0, 0, 0), 0);
	v = mine;
	assert_int_equal(nr_log, 2);
	assert_false(flusher.r.ended);
	assert_true(flushed_entry(0));
	hold_flush = false;
	let_flush_go();
	assert_true(flusher.r.ended);
	free(first);
}

/*
 * A read of dirty data, and of clean data that cannot be read from the cache: the origin has the
 * clean data.
 */
static void bad_sector_beside_what_is_dirty(void **state)
{
	struct hybrid_actions acts;
	u64 sector = 8 * BLOCK;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	reads(sector, BLOCK, 0);
	put(sector, 8, 1);
	hybrid_actions_init(&acts);
	prepare(&reader, HYBRID_IO_READ, sector, 16, 0);
	assert_int_equal(hybrid_engine_map(e, &reader.r.io, &acts), HYBRID_MAP_REMAP);
	assert_false(reader.r.io.op.origin);
	assert_false(hybrid_engine_io_done(e, &reader.r.io, -EIO, &acts));
	carry(&acts);
	assert_int_equal(wait_for(&reader), 0);
	fill_data(&writer, sector, 8, 1);
	assert_memory_equal(reader.data, writer.data, 8 * 512);
	assert_memory_equal(reader.data + 8 * 512, disk[ORIGIN] + (DATA + sector + 8) * 512,
			    8 * 512);
	/* The dirty data is bad: it is lost, and the origin's data is not returned in its place. */
	fail_cache_reads = true;
	assert_int_equal(read_io(sector, 16), -EIO);
	assert_int_equal(read_io(sector, 8), -EIO);
	fail_cache_reads = false;
}

/* Starts a write that the cache will fail. */
static void write_begins(u64 sector, struct hybrid_actions *acts)
{
	forget_syncs();
	fill_data(&writer, sector, 8, 2);
	prepare(&writer, HYBRID_IO_WRITE, sector, 8, 0);
	assert_int_equal(hybrid_engine_map(e, &writer.r.io, acts), HYBRID_MAP_REMAP);
	assert_false(writer.r.io.op.origin);
}

/*
 * ... while a record that ends dirty data in its region is written: the write waits for that
 * record, and nobody waits for the write.
 */
static void bad_sector_beside_a_record(void **state)
{
	struct hybrid_actions acts;
	u64 sector = 8 * BLOCK;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	put(sector, 8, 1);
	assert_int_equal(flush_volume(), 0);
	rest();
	hybrid_actions_init(&acts);
	write_begins(sector + BLOCK, &acts);
	hold_meta = true;
	hybrid_engine_drain(e, v, true, 0, &acts);
	carry(&acts);
	while (!held_meta)
		tick(100);
	arrive(&flusher, HYBRID_IO_DISCARD, sector + BLOCK, 8, 0, &acts);
	assert_false(hybrid_engine_io_done(e, &writer.r.io, -EIO, &acts));
	carry(&acts);
	assert_false(writer.r.ended || flusher.r.ended);
	assert_int_equal(wait_checkpoint(e), 0);
	assert_int_equal(wait_for(&flusher), 0);
	assert_int_equal(wait_for(&writer), 0);
	reads(sector + BLOCK, 8, 2);
}

/*
 * ... when the pool fails: nothing of the volume is lost with it, so the write goes to the
 * origin.
 */
static void write_beside_the_end_of_the_pool(void **state)
{
	struct hybrid_actions acts;
	u64 sector = 8 * BLOCK;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	hybrid_actions_init(&acts);
	hybrid_engine_drain(e, v, true, 0, &acts);
	carry(&acts);
	rest();
	assert_int_equal(status().dirty, 0);
	hybrid_engine_drain(e, v, false, 0, &acts);
	reads(sector, BLOCK, 0);
	write_begins(sector + BLOCK, &acts);
	fail_cache_writes = true;
	while (!hybrid_engine_failed(e))
		tick(1000);
	assert_false(hybrid_engine_io_done(e, &writer.r.io, -EIO, &acts));
	carry(&acts);
	assert_int_equal(wait_for(&writer), 0);
	assert_true(origin_has(sector + BLOCK, 8, 2));
	assert_int_equal(flush_volume(), 0);
	fail_cache_writes = false;
}

/*
 * ... and while a drain waits for the write, to write back the dirty data of its block: the write
 * lets the drain go first, then waits for the record.
 */
static void bad_sector_beside_a_drain(void **state)
{
	u64 sector = 8 * BLOCK, other = 40 * BLOCK;
	struct hybrid_actions acts;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	put(sector, 8, 1);
	put(other, 8, 1);
	assert_int_equal(flush_volume(), 0);
	rest();
	hybrid_actions_init(&acts);
	write_begins(other + 8, &acts);
	hold_meta = true;
	hybrid_engine_drain(e, v, true, 0, &acts);
	carry(&acts);
	while (!held_meta)
		tick(100);
	assert_false(hybrid_engine_io_done(e, &writer.r.io, -EIO, &acts));
	carry(&acts);
	assert_false(writer.r.ended);
	assert_int_equal(wait_checkpoint(e), 0);
	assert_int_equal(wait_for(&writer), 0);
	reads(other + 8, 8, 2);
	rest();
	assert_true(origin_has(other, 8, 1));
	assert_true(origin_has(other + 8, 8, 2));
}

/*
 * Lazy records are due when a region has been opened for a write: their entry does not close it
 * before the write has run.
 */
static void region_opened_for_a_write(void **state)
{
	struct hybrid_actions acts;
	u64 sector = 8 * BLOCK, before;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	reads(sector, 8, 0);
	rest();
	before = e->stats.journal_writes;
	hybrid_actions_init(&acts);
	hold_meta = true;
	fill_data(&writer, sector, 8, 2);
	arrive(&writer, HYBRID_IO_WRITE, sector, 8, 0, &acts);
	carry(&acts);
	assert_non_null(held_meta);
	assert_false(writer.r.ended);
	e->commit.lazy_wanted = true;
	hybrid_actions_init(&acts);
	let_meta_go(&acts);
	assert_true(writer.r.ended);
	assert_int_equal(writer.r.io.error, 0);
	assert_in_range(e->stats.journal_writes - before, 1, 2);
	reads(sector, 8, 2);
}

/*
 * A flush under way does not notice data that a failed flush before it loses.  The FUA of a
 * superblock write may be such a flush, so no superblock is written beside a flush.
 */
static void superblock_beside_a_flush(void **state)
{
	struct hybrid_actions acts;

	set_mode(HYBRID_MODE_WRITETHROUGH);
	put(0, 8, 1);
	set_mode(HYBRID_MODE_WRITEBACK);
	hybrid_actions_init(&acts);
	hold_flush = true;
	arrive(&flusher, HYBRID_IO_FLUSH, 0, 0, 0, &acts);
	carry(&acts);
	assert_non_null(held_flush);
	fill_data(&writer, 8 * BLOCK, 8, 2);
	nr_log = 0;
	/* The first dirty write: the origin must say first that it may be behind. */
	arrive(&writer, HYBRID_IO_WRITE, 8 * BLOCK, 8, 0, &acts);
	carry(&acts);
	assert_int_equal(nr_log, 0);
	assert_false(writer.r.ended);
	hold_flush = false;
	let_flush_go();
	assert_int_equal(wait_for(&flusher), 0);
	assert_int_equal(wait_for(&writer), 0);
	assert_true(op_log[1].origin && op_log[1].meta && op_log[1].write && op_log[1].fua);
	reads(8 * BLOCK, 8, 2);
}

/*
 * A write waits for the record of data that zeroes have replaced.  It goes on when the flush of
 * the origin fails, without which that record never comes.
 */
static void write_beside_a_flush_that_fails(void **state)
{
	struct hybrid_actions acts;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	rest();
	assert_int_equal(submit(&writer, HYBRID_IO_ZEROES, 0, 8, 0), 0);
	set_mode(HYBRID_MODE_WRITEAROUND);
	hybrid_actions_init(&acts);
	hold_flush = true;
	fill_data(&writer, 0, 8, 2);
	arrive(&writer, HYBRID_IO_WRITE, 0, 8, 0, &acts);
	carry(&acts);
	while (!held_flush)
		tick(100);
	assert_false(writer.r.ended);
	fail_origin = true;
	hold_flush = false;
	let_flush_go();
	fail_origin = false;
	assert_true(writer.r.ended);
}

static struct hybrid_policy_states *left;	/* of the policy that was replaced */
static u32 waits;

static void hit_that_began_before(void)
{
	waits++;
	assert_ptr_not_equal(left, e->map.set[0].policy);
	left->type->hit(set_policy_state(&e->map, left, &e->map.set[0]), 0);
}

/*
 * A hit that had begun is still noted in the state of the replaced policy, which stays until
 * then.
 */
static void hit_beside_another_policy(void **state)
{
	put(0, 8, 1);
	left = e->map.set[0].policy;
	waits = 0;
	on_wait_hits = hit_that_began_before;
	assert_int_equal(hybrid_engine_set_policy(e, hybrid_policy_get("c2q")), 0);
	assert_int_equal(waits, 1);
}

static struct hybrid_policy_type noted;	/* lru, but for: */
static u32 noted_sets, noted_hits;
static u64 noted_sector;		/* of a block of the first set */

static void note_set(void *state, u32 set_size)
{
	hybrid_policy_get("lru")->init(state, set_size);
	/* The first set has the policy, the second not yet. */
	if (++noted_sets == 2)
		assert_int_equal(read_io(noted_sector, 8), 0);
}

static void note_hit(void *state, u32 i)
{
	hybrid_policy_get("lru")->hit(state, i);
	noted_hits++;
}

/* During a change of the policy, a hit is noted by the policy that its set has. */
static void hit_amid_a_change_of_the_policy(void **state)
{
	u32 b;

	for (b = 0; hybrid_map_set_of(&e->map, hybrid_key(1, to_oblock(b))); b++)
		;
	noted_sector = b * BLOCK;
	put(noted_sector, 8, 1);
	noted = *hybrid_policy_get("lru");
	noted.init = note_set;
	noted.hit = note_hit;
	noted_sets = noted_hits = 0;
	assert_true(e->map.nr_sets >= 2);
	assert_int_equal(hybrid_engine_set_policy(e, &noted), 0);
	assert_int_equal(noted_hits, 1);
	assert_int_equal(hybrid_engine_set_policy(e, hybrid_policy_get("c2q")), 0);
}

/* Evicts all clean blocks; returns their number. */
static u32 evict_clean(void)
{
	struct hybrid_set *s;
	unsigned long flags;
	u32 set, i, n = 0;

	for (set = 0; set < e->map.nr_sets; set++) {
		s = &e->map.set[set];
		spin_lock_irqsave(&s->lock, flags);
		for (i = 0; i < e->map.set_size; i++)
			if (s->flags[i] & BLOCK_MAPPED)
				n += hybrid_evict_block(e, set, i);
		spin_unlock_irqrestore(&s->lock, flags);
	}
	return n;
}

static u32 nr_leaving(void)
{
	u32 set, n = 0;

	for (set = 0; set < e->map.nr_sets; set++)
		n += leaving(e, &e->map.set[set]);
	return n;
}

/* A read from both devices whose origin does not answer keeps no block from becoming free. */
static void eviction_beside_a_mixed_read(void **state)
{
	struct hybrid_actions acts;
	struct hybrid_op *op;

	set_mode(HYBRID_MODE_WRITEBACK);
	assert_int_equal(read_io(8 * BLOCK, BLOCK), 0);
	rest();
	first_dirty();
	hybrid_actions_init(&acts);
	arrive(&reader, HYBRID_IO_READ, 0, BLOCK, 0, &acts);
	while ((op = hybrid_actions_pop(&acts)) && !op->segments[0].origin)
		carry_one(op, &acts);
	assert_non_null(op);
	assert_int_equal(evict_clean(), 1);
	assert_int_equal(nr_leaving(), 1);
	rest();
	assert_false(reader.r.ended);
	assert_int_equal(nr_leaving(), 0);
	carry_one(op, &acts);
	carry(&acts);
	assert_int_equal(wait_for(&reader), 0);
	reads(0, 8, 1);
}

/*
 * A read of dirty data, and of data that a write is replacing, finds the cache device dead: the
 * read ends, however long the write takes.
 */
static void read_of_a_dead_cache_beside_a_write(void **state)
{
	struct hybrid_actions acts;
	struct hybrid_op *op;

	set_mode(HYBRID_MODE_WRITEBACK);
	reads(8 * BLOCK, BLOCK, 0);
	put(8 * BLOCK, 8, 1);
	assert_int_equal(flush_volume(), 0);
	hybrid_actions_init(&acts);
	fill_data(&writer, 8 * BLOCK + 8, 8, 2);
	arrive(&writer, HYBRID_IO_WRITE, 8 * BLOCK + 8, 8, 0, &acts);
	/* It waits until its region is open, and is on its way from then on. */
	while ((op = hybrid_actions_pop(&acts)) != &writer.r.io.op)
		carry_one(op, &acts);
	fail_cache_reads = true;
	assert_int_equal(read_io(8 * BLOCK, 16), -EIO);
	fail_cache_reads = false;
	assert_true(hybrid_engine_io_done(e, &writer.r.io, 0, &acts));
	carry(&acts);
	reads(8 * BLOCK, 8, 1);
	assert_int_equal(read_io(8 * BLOCK, 16), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(read_beside_a_fetch, setup, teardown),
		cmocka_unit_test_setup_teardown(many_ranges_of_a_pool_that_failed, setup, teardown),
		cmocka_unit_test_setup_teardown(queued_discards_side_by_side, setup, teardown),
		cmocka_unit_test_setup_teardown(discard_that_the_origin_does_not_take, setup, teardown),
		cmocka_unit_test_setup_teardown(flush_beside_a_commit_that_waits, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_sector_beside_what_is_dirty, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_sector_beside_a_record, setup, teardown),
		cmocka_unit_test_setup_teardown(write_beside_the_end_of_the_pool, setup, teardown),
		cmocka_unit_test_setup_teardown(bad_sector_beside_a_drain, setup, teardown),
		cmocka_unit_test_setup_teardown(superblock_beside_a_flush, setup, teardown),
		cmocka_unit_test_setup_teardown(write_beside_a_flush_that_fails, setup, teardown),
		cmocka_unit_test_setup_teardown(hit_beside_another_policy, setup, teardown),
		cmocka_unit_test_setup_teardown(hit_amid_a_change_of_the_policy, setup, teardown),
		cmocka_unit_test_setup_teardown(eviction_beside_a_mixed_read, setup, teardown),
		cmocka_unit_test_setup_teardown(region_opened_for_a_write, setup, teardown),
		cmocka_unit_test_setup_teardown(read_of_a_dead_cache_beside_a_write, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
