// SPDX-License-Identifier: GPL-2.0-or-later
/* Hits: the shipped file once more, with a look at the epochs wherever it looks a block up. */
#include "rig.h"
#include "engine-internal.h"

bool probed_hit(struct hybrid_engine *engine, struct hybrid_io *io);
void probed_hit_op(struct hybrid_io *io);
bool probed_hit_done(struct hybrid_engine *engine, struct hybrid_io *io);

static u32 lookups;

static unsigned long readers_inside(void)
{
	unsigned long inside = 0;
	int cpu;

	for_each_possible_cpu(cpu) {
		const struct hybrid_readers *r = per_cpu_ptr(e->evict.readers, cpu);

		inside += r->enter[0] + r->enter[1] - r->leave[0] - r->leave[1];
	}
	return inside;
}

/* A block found before the epoch began may be another block by the time it begins. */
static int look_up_in_an_epoch(const struct hybrid_map *map, const struct hybrid_set *s, u64 key,
			       u64 mask)
{
	lookups++;
	assert_int_equal(readers_inside(), 1);
	return hybrid_set_read_hit(map, s, key, mask);
}

#define hybrid_set_read_hit look_up_in_an_epoch
#define hybrid_engine_hit probed_hit
#define hybrid_engine_hit_op probed_hit_op
#define hybrid_engine_hit_done probed_hit_done
#include "engine-hit.c"

static void lookup_in_an_epoch(void **state)
{
	reads(0, BLOCK, 0);
	assert_int_equal(readers_inside(), 0);
	prepare(&reader, HYBRID_IO_READ, 0, 8, 0);
	assert_true(probed_hit(e, &reader.r.io));
	assert_int_equal(lookups, 1);
	assert_int_equal(readers_inside(), 1);
	assert_true(probed_hit_done(e, &reader.r.io));
	assert_int_equal(readers_inside(), 0);
	/* A miss leaves it at once. */
	prepare(&reader, HYBRID_IO_READ, 8 * BLOCK, 8, 0);
	assert_false(probed_hit(e, &reader.r.io));
	assert_int_equal(lookups, 2);
	assert_int_equal(readers_inside(), 0);
}

/* A rewrite ends with an error in a pool that failed: what was in the io's memory before counts for nothing. */
static void failed_rewrite(void **state)
{
	struct hybrid_actions acts;

	set_mode(HYBRID_MODE_WRITEBACK);
	put(0, 8, 1);
	fill_data(&writer, 0, 8, 2);
	prepare(&writer, HYBRID_IO_WRITE, 0, 8, 0);
	writer.r.io.wait = WAIT_JOB;
	assert_true(hybrid_engine_hit(e, &writer.r.io));
	WRITE_ONCE(e->life.failed, true);
	hybrid_actions_init(&acts);
	hybrid_engine_io_done(e, &writer.r.io, -EIO, &acts);
	carry(&acts);
	assert_true(writer.r.ended);
	assert_int_equal(e->jobs.nr_busy, 0);
	assert_int_equal(v->jobs.nr, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(failed_rewrite, setup, teardown),
		cmocka_unit_test_setup_teardown(lookup_in_an_epoch, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
