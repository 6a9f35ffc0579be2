// SPDX-License-Identifier: GPL-2.0-or-later
/* Long runs: blocks of them that stay, and readahead into memory. */
#include "rig.h"
#include "engine-internal.h"

#define RUN 240			/* blocks: more than the pool has */
#define LAST (ORIGIN_SECTORS / BLOCK - 32)	/* a block near the volume's end */

static bool is_cached(u32 block)
{
	u64 key = hybrid_key(1, to_oblock(block));

	return hybrid_set_find(&e->map, &e->map.set[hybrid_map_set_of(&e->map, key)], key) >= 0;
}

static u64 counter(enum hybrid_counter c)
{
	return status().counter[c];
}

/* Reads blocks in order, as a disk would take its time over them. */
static void run(u32 from, u32 to)
{
	for (; from < to; from++) {
		reads((u64)from * BLOCK, BLOCK, 0);
		tick(10);
	}
}

/* The first block from @block on that is cached, or is not. */
static u32 next(u32 block, bool cached)
{
	while (block < RUN && is_cached(block) != cached)
		block++;
	return block;
}

static void pool_of(u64 cache)
{
	static const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;

	small_pool(cache, HYBRID_MODE_WRITEBACK, &config);
}

static void set_cutoff(void)
{
	set_cutoff_to(2 * BLOCK);
}

static void read_once(void)
{
	pool_of(16 * MIB);
	set_cutoff();
	run(0, RUN);
}

/* A second run, up to data that was read ahead: the block where that begins. */
static u32 read_up_to_a_hole(void)
{
	u32 hole;

	read_once();
	/* Long from its first block on: nothing changes any more. */
	set_cutoff_to(1);
	hole = next(0, false);
	run(hole, next(hole, true));
	assert_true(e->runs.nr_readahead);
	hole = next(next(hole, true), false);
	assert_true(hole < RUN);
	return hole;
}

/* ---- blocks that stay ---------------------------------------------------- */

static u32 holes(void)
{
	u32 n = 0, k;

	for (k = next(0, false); k < RUN; k = next(next(k, true), false))
		n++;
	return n;
}

/* Not the run's beginning: the blocks that stay are in parts of whole windows, and remain so. */
static void run_is_spread(void **state)
{
	u64 fills, evictions;
	u32 k, parts, longest = 0;

	read_once();
	assert_in_range(pool().used, pool().blocks - 32, pool().blocks);
	parts = holes();
	assert_in_range(parts, 10, 30);
	for (k = next(0, false); k < RUN; k = next(next(k, true), false))
		longest = max(longest, next(k, true) - k);
	assert_in_range(longest, 4, 16);
	/* The second time little changes: a run's first blocks are as any. */
	fills = counter(HYBRID_FILLS);
	evictions = pool().evictions;
	run(0, RUN);
	assert_in_range(counter(HYBRID_FILLS) - fills, 0, 8);
	assert_in_range(pool().evictions - evictions, 0, 8);
	assert_in_range(holes(), parts - 2, parts + 4);
}

/* A run evicts only its own blocks: blocks that others brought stay, at any rank. */
static void run_leaves_others_alone(void **state)
{
	u32 k, n = 0;

	pool_of(16 * MIB);
	for (k = 0; pool().free > pool().blocks / 2; k++)
		reads((u64)(260 + k / 4 * 8 + k % 4) * BLOCK, BLOCK, 0);
	set_cutoff();
	run(0, 200);
	for (k = 260; k < 480; k++)
		n += is_cached(k);
	assert_in_range(n, pool().blocks / 2 - 16, pool().blocks);
}

/* Random I/O needs the free blocks more than a run, which gets no more than half of them. */
static void run_leaves_room_to_random(void **state)
{
	u32 k;

	pool_of(16 * MIB);
	set_cutoff();
	for (k = 0; k < 14; k++) {
		reads((u64)(RUN + 16 * k) * BLOCK, 8, 0);
		run(16 * k, 16 * k + 16);
	}
	/* Each random read may have brought the four blocks of its window. */
	assert_in_range(pool().free, pool().blocks / 2 - 14 * 4, pool().blocks / 2 + 8);
}

/* A run of many times the cache wears it no more: it would not be found again. */
static void too_long_a_run(void **state)
{
	u64 fills;
	u32 n;

	pool_of(8 * MIB);
	set_cutoff();
	n = 4 * pool().blocks;
	assert_true(n + 20 < LAST);
	run(0, n / 2);
	fills = counter(HYBRID_FILLS);
	run(n / 2, n);
	assert_true(counter(HYBRID_FILLS) > fills);
	fills = counter(HYBRID_FILLS);
	run(n + 1, n + 2);
	run(n, n + 1);
	assert_in_range(counter(HYBRID_FILLS), fills, fills + 2);
}

/* Where its budget is short, nothing is exchanged. */
static void spread_costs_wear(void **state)
{
	u64 evictions;
	u32 k;

	pool_of(16 * MIB);
	set_cutoff();
	for (k = 0; pool().free > pool().blocks / 8; k++)
		run(k, k + 1);
	run(k, k + 24);
	e->wear.endurance = ENDURANCE_SHORT;
	evictions = pool().evictions;
	for (k += 24; k < RUN; k++)
		reads((u64)k * BLOCK, BLOCK, 0);
	assert_int_equal(pool().evictions, evictions);
}

/* ---- data read ahead ----------------------------------------------------- */

/* Where the run comes to cached blocks, the next hole is read at once, and once. */
static void holes_are_read_ahead(void **state)
{
	u64 hits, misses, bypassed;
	u32 hole, end, k, n = 0;

	hole = read_up_to_a_hole();
	end = next(hole, true);
	for (k = 0; k < nr_log; k++)
		if (op_log[k].origin && op_log[k].sector >= DATA + hole * BLOCK) {
			assert_false(op_log[k].write);
			assert_in_range(op_log[k].sector + op_log[k].count, 0, DATA + end * BLOCK);
			n += op_log[k].count;
		}
	assert_int_equal(n, (end - hole) * BLOCK);
	hits = counter(HYBRID_READ_HITS);
	misses = counter(HYBRID_READ_MISSES);
	bypassed = counter(HYBRID_BYPASS_SEQUENTIAL);
	for (k = hole; k < end; k++) {
		reads((u64)k * BLOCK, 8, 0);
		assert_int_equal(sectors_of(CACHE, false), 0);
		/* With the last of it the next is read. */
		reads((u64)k * BLOCK + 8, BLOCK - 8, 0);
		assert_true(k == end - 1 || !sectors_of(ORIGIN, false));
		assert_int_equal(sectors_of(CACHE, true), 0);
	}
	/* To a user it was a miss. */
	assert_int_equal(counter(HYBRID_READ_HITS), hits);
	assert_int_equal(counter(HYBRID_READ_MISSES), misses + 2 * (end - hole));
	assert_int_equal(counter(HYBRID_BYPASS_SEQUENTIAL), bypassed + 2 * (end - hole));
	/* Another time it is read from the origin. */
	reads((u64)hole * BLOCK, 8, 0);
	assert_true(sectors_of(ORIGIN, false) >= 8);
}

/* Metadata are cached, not only read from there. */
static void metadata_are_not_read_ahead(void **state)
{
	u64 fills, sector = (u64)read_up_to_a_hole() * BLOCK;

	fills = counter(HYBRID_FILLS);
	assert_int_equal(read_meta(sector, 8), 0);
	assert_int_equal(counter(HYBRID_FILLS), fills + 1);
	assert_int_equal(read_meta(sector, 8), 0);
	moved(8, 0, 0, 0);
}

/* I/O that replaces the origin's data, or may. */
static void never_what_was(void **state)
{
	static const enum hybrid_io_type type[] = { HYBRID_IO_DISCARD, HYBRID_IO_ZEROES };
	u32 hole = read_up_to_a_hole(), mode, n = 0;
	u64 at = (u64)hole * BLOCK;

	assert_true(next(hole, true) - hole >= 4);
	for (mode = 0; mode < HYBRID_NR_MODES; mode++) {
		/* Not by a switch of modes, which would drop all data read ahead. */
		v->mode = mode;
		put(at + n * 8, 8, 5 + mode);
		reads(at + n * 8, 8, 5 + mode);
		assert_int_equal(sectors_of(CACHE, false) + sectors_of(ORIGIN, false), 8);
		n += BLOCK / 8 * (mode < 2);
		n++;
	}
	v->mode = HYBRID_MODE_WRITEBACK;
	for (n = 0; n < 2; n++) {
		u64 sector = at + 3 * BLOCK + n * 16;

		assert_int_equal(submit(&writer, type[n], sector, 8, 0), 0);
		memset(disk[1] + (DATA + sector) * 512, 0, 8 * 512);
		assert_int_equal(read_io(sector, 8), 0);
		for (mode = 0; mode < 8 * 512; mode++)
			assert_int_equal(reader.data[mode], 0);
		/* Data beside it is still in memory. */
		reads(sector + 8, 8, 0);
		moved(0, 0, 0, 0);
	}
}

static bool suspend(void)
{
	struct hybrid_actions acts;
	bool done;

	hybrid_actions_init(&acts);
	done = hybrid_volume_suspend(e, v, &acts);
	carry(&acts);
	return done;
}

/* Suspended, a volume has no data read ahead: its origin may be changed by others. */
static void suspend_drops(void **state)
{
	u32 hole = read_up_to_a_hole();
	struct hybrid_actions acts;

	assert_true(suspend());
	assert_int_equal(e->runs.nr_readahead, 0);
	fill_data(&writer, (u64)hole * BLOCK, BLOCK, 9);
	memcpy(disk[1] + (DATA + (u64)hole * BLOCK) * 512, writer.data, BLOCK * 512);
	hybrid_actions_init(&acts);
	hybrid_volume_resume(e, v, &acts);
	carry(&acts);
	reads((u64)hole * BLOCK, BLOCK, 9);
}

static void mode_drops(void **state)
{
	read_up_to_a_hole();
	set_mode(HYBRID_MODE_PASSTHROUGH);
	assert_int_equal(e->runs.nr_readahead, 0);
}

static void stop_drops(void **state)
{
	read_up_to_a_hole();
	stop();
	assert_int_equal(e->runs.nr_readahead, 0);
	assert_int_equal(e->jobs.nr_busy, 0);
}

/* Nobody came: after two seconds the memory is free, and time need not pass any more. */
static void time_drops(void **state)
{
	u32 k;

	read_up_to_a_hole();
	for (k = 0; e->runs.nr_readahead; k++) {
		assert_true(k < 20);
		tick(100);
	}
	assert_in_range(k, 18, 20);
	assert_int_equal(e->jobs.nr_busy, 0);
}

static struct hybrid_job *get_job(enum job_type type, struct hybrid_volume *volume)
{
	hybrid_job_prepare(e, type == JOB_FILL ? FILLS : type == JOB_AHEAD ? AHEADS : WRITEBACKS);
	if (type == JOB_WRITEBACK)
		return hybrid_job_get(e, type, volume);
	return hybrid_fill_get(e, type, volume, 0);
}

/* A part of the jobs is for fills, and fills get more if they need more. */
static void fills_come_first(void **state)
{
	struct hybrid_job *job[NR_AHEAD_JOBS];
	u32 n, hole = read_up_to_a_hole();

	assert_in_range(e->runs.nr_readahead, 1, NR_AHEAD_JOBS / 4 * 3);
	for (n = 0; (job[n] = get_job(JOB_AHEAD, v)); n++)
		;
	assert_in_range(n, NR_AHEAD_JOBS / 4, NR_AHEAD_JOBS - 1);
	/* Two neighbours of a cached block, to be filled with one miss */
	atomic_set(&v->credit.ahead[0], AHEAD_MOST);
	set_cutoff_to(0);
	reads((u64)(RUN + 41) * BLOCK, 8, 0);
	reads((u64)(RUN + 42) * BLOCK, 8, 0);
	assert_int_equal(e->runs.nr_readahead, 0);
	assert_int_equal(e->runs.ends[READAHEAD_YIELDED] > 0, 1);
	reads((u64)hole * BLOCK, 8, 0);
	while (n--)
		hybrid_job_put(e, job[n], NULL);
}

static void unclaim(struct hybrid_volume *volume)
{
	spin_lock(&e->lock);
	hybrid_jobs_unclaim(e, volume);
	spin_unlock(&e->lock);
}

/* A volume that holds all lent jobs leaves another its own one, and gives way to a claim. */
static void jobs_are_shared(void **state)
{
	struct hybrid_job *job[NR_FILL_JOBS], *own, *claimed;
	struct hybrid_volume *other;
	u32 n;

	pool_of(16 * MIB);
	other = hybrid_volume_alloc(e, 2, &info);
	e->volumes.nr_open++;
	for (n = 0; n < NR_FILL_JOBS && (job[n] = get_job(JOB_FILL, v)); n++)
		;
	assert_int_equal(n, e->jobs.pool[FILLS].most);
	own = get_job(JOB_FILL, other);
	assert_non_null(own);
	assert_null(get_job(JOB_FILL, other));
	hybrid_job_put(e, job[--n], NULL);
	assert_null(get_job(JOB_FILL, v));
	claimed = get_job(JOB_FILL, other);
	assert_non_null(claimed);
	hybrid_job_put(e, claimed, NULL);
	hybrid_job_put(e, own, NULL);
	while (n--)
		hybrid_job_put(e, job[n], NULL);
	assert_int_equal(e->jobs.pool[FILLS].lent, 0);
	unclaim(other);
	e->volumes.nr_open--;
	hybrid_volume_free(other);
}

/* All jobs for fills are in use: one by the volume, the rest by another. */
struct all_jobs {
	struct hybrid_job *own, *job[NR_FILL_JOBS];
	struct hybrid_volume *other;
	u32 nr;
};

static void take_all_jobs(struct all_jobs *all)
{
	all->other = hybrid_volume_alloc(e, 2, &info);
	e->volumes.nr_open++;
	all->own = get_job(JOB_FILL, v);
	assert_non_null(all->own);
	for (all->nr = 0; all->nr < NR_FILL_JOBS; all->nr++) {
		all->job[all->nr] = get_job(JOB_FILL, all->other);
		if (!all->job[all->nr])
			break;
	}
}

static void others_jobs_end(struct all_jobs *all)
{
	while (all->nr)
		hybrid_job_put(e, all->job[--all->nr], NULL);
}

static void end_all_jobs(struct all_jobs *all)
{
	unclaim(v);
	unclaim(all->other);
	e->volumes.nr_open--;
	hybrid_volume_free(all->other);
}

/* A read by the volume that must have a job waits for one. */
static void waits_for_a_job(struct user *u)
{
	struct hybrid_actions acts;
	struct hybrid_job *staged;

	hybrid_actions_init(&acts);
	prepare(u, HYBRID_IO_READ, 64, 8, 0);
	/* Any way to an I/O that has begun */
	if (hybrid_engine_map(e, &u->r.io, &acts) == HYBRID_MAP_REMAP)
		assert_true(hybrid_engine_io_done(e, &u->r.io, 0, &acts));
	carry(&acts);
	INIT_LIST_HEAD(&u->r.io.link);
	assert_false(hybrid_job_get_staged(e, &u->r.io, true, &staged));
}

static void read_waits_for_a_job(void)
{
	waits_for_a_job(&reader);
}

/*
 * A write that would go partly to the cache device gets no job, and goes to the origin whole: I/O
 * that looks for overlaps with it sees this (J6).
 */
static void write_without_a_job(void **state)
{
	struct all_jobs all;

	pool_of(16 * MIB);
	set_mode(HYBRID_MODE_WRITEBACK);
	put(64, 8, 1);
	take_all_jobs(&all);
	put(4, 16, 2);
	assert_int_equal(writer.r.io.to_cache, 0);
	assert_int_equal(writer.r.io.to_origin, 7);
	assert_true(origin_has(4, 16, 2));
	others_jobs_end(&all);
	hybrid_job_put(e, all.own, NULL);
	end_all_jobs(&all);
}

/* However many I/Os wait for a job: a tick routes no more of them again than could get one. */
static void waiters_in_slices(void **state)
{
	static struct user many[NR_FILL_JOBS + 20];
	struct hybrid_actions acts;
	struct all_jobs all;
	u32 k;

	memset(many, 0, sizeof(many));
	read_up_to_a_hole();
	take_all_jobs(&all);
	for (k = 0; k < ARRAY_SIZE(many); k++)
		waits_for_a_job(&many[k]);
	tick(100);
	assert_int_equal(e->jobs.nr_waiters, ARRAY_SIZE(many) - e->jobs.pool[FILLS].most);
	tick(100);
	assert_int_equal(e->jobs.nr_waiters, 0);
	others_jobs_end(&all);
	hybrid_actions_init(&acts);
	hybrid_job_put(e, all.own, &acts);
	end_all_jobs(&all);
}

/*
 * Readahead ends while an I/O of its volume waits for a job, and another volume has given one back:
 * the next tick finds this, and not under the lock of a set.
 */
static void readahead_ends_beside_a_waiter(void **state)
{
	struct hybrid_actions acts;
	struct all_jobs all;

	read_up_to_a_hole();
	take_all_jobs(&all);
	read_waits_for_a_job();
	others_jobs_end(&all);
	assert_true(e->runs.nr_readahead);
	hybrid_readahead_drop(e, v, READAHEAD_MODE);
	assert_int_equal(e->runs.nr_readahead, 0);
	assert_int_equal(e->jobs.nr_waiters, 1);
	tick(100);
	assert_true(reader.r.ended);
	assert_int_equal(e->jobs.nr_waiters, 0);
	hybrid_actions_init(&acts);
	hybrid_job_put(e, all.own, &acts);
	end_all_jobs(&all);
}

/* A job that ends is for the I/O that has waited for it, not for others that its end lets go on. */
static void waiter_gets_the_job(void **state)
{
	struct hybrid_actions acts;
	struct all_jobs all;

	pool_of(16 * MIB);
	take_all_jobs(&all);
	read_waits_for_a_job();
	hybrid_actions_init(&acts);
	hybrid_rerun(&writer.r.io, &acts);
	INIT_LIST_HEAD(&all.own->link);
	hybrid_job_put(e, all.own, &acts);
	assert_ptr_equal(acts.again.next, &reader.r.io.op.link);
	list_del_init(&writer.r.io.op.link);
	hybrid_engine_settle(e, &acts);
	carry(&acts);
	assert_true(reader.r.ended);
	others_jobs_end(&all);
	end_all_jobs(&all);
}

static bool no_memory_now(size_t size, gfp_t gfp)
{
	return gfp & GFP_NOWAIT;
}

/* Where there is no memory each volume still has a job of each kind that I/O may wait for. */
static void own_jobs(void **state)
{
	static const enum job_type type[] = { JOB_FILL, JOB_WRITEBACK };
	struct hybrid_job *mine, *its;
	struct hybrid_volume *other;
	u32 k;

	pool_of(16 * MIB);
	other = hybrid_volume_alloc(e, 2, &info);
	assert_int_equal(hybrid_jobs_reserve(e, other), 0);
	other->state = VOLUME_OPEN;
	e->volumes.nr_open++;
	shim_alloc_fails = no_memory_now;
	for (k = 0; k < 2; k++) {
		mine = get_job(type[k], v);
		assert_non_null(mine);
		assert_null(get_job(type[k], v));
		its = get_job(type[k], other);
		assert_non_null(its);
		assert_null(get_job(type[k], other));
		hybrid_job_put(e, mine, NULL);
		mine = get_job(type[k], v);
		assert_non_null(mine);
		hybrid_job_put(e, its, NULL);
		hybrid_job_put(e, mine, NULL);
	}
	unclaim(other);
	e->volumes.nr_open--;
	hybrid_volume_free(other);
}

/* An origin that cannot be read fails reads that ask for its data, but no others. */
static void error_ahead(void **state)
{
	u32 hole, end;

	read_once();
	hole = next(0, false);
	end = next(hole, true);
	run(hole, end - 1);
	reads((u64)(end - 1) * BLOCK, 8, 0);
	fail_origin = true;
	assert_int_equal(read_io((u64)(end - 1) * BLOCK + 8, BLOCK - 8), -EIO);
	fail_origin = false;
	assert_int_equal(e->runs.nr_readahead, 0);
	assert_true(e->runs.ends[READAHEAD_FAILED]);
	reads((u64)next(end, false) * BLOCK, BLOCK, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(run_is_spread, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(run_leaves_others_alone, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(run_leaves_room_to_random, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(too_long_a_run, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(spread_costs_wear, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(holes_are_read_ahead, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(metadata_are_not_read_ahead, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(never_what_was, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(suspend_drops, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(mode_drops, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(stop_drops, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(time_drops, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(fills_come_first, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(jobs_are_shared, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(write_without_a_job, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(waiters_in_slices, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(readahead_ends_beside_a_waiter, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(waiter_gets_the_job, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(own_jobs, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(error_ahead, setup_disks, teardown),
	};

	return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
