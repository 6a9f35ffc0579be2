// SPDX-License-Identifier: GPL-2.0-or-later
#include "unit.h"
#include "engine-internal.h"

/* The format's rules for a layout, checked without the code under test. */
static void check_layout(const struct hybrid_geometry *g)
{
	u64 data_end = g->data_sector + (u64)g->nr_blocks * g->block_sectors;

	assert_true(g->root_sector >= HYBRID_HEAD_SECTORS);
	assert_true(g->index_sector >= g->root_sector + 2 * 8);
	assert_true(g->leaf_sector >= g->index_sector + 2 * 8 * (u64)g->nr_index);
	assert_true(g->journal_sector >= g->leaf_sector + 2 * 8 * (u64)g->nr_leaves);
	assert_true(g->intent_sector >= g->journal_sector + 8 * (u64)g->journal_blocks);
	assert_in_range(g->intent_blocks, 1, g->journal_blocks);
	assert_true(g->data_sector >= g->intent_sector + 8 * (u64)g->intent_blocks);
	assert_int_equal(g->data_sector % HYBRID_ALIGN_SECTORS, 0);
	assert_true(data_end <= g->member_sectors - HYBRID_TAIL_SECTORS);

	assert_int_equal(g->nr_blocks, (u64)g->nr_sets * g->set_size);
	assert_true(g->nr_blocks > 0 && g->nr_blocks < 1U << 31);
	assert_in_range(g->set_size, 1, HYBRID_MAX_SET_SIZE);
	if (g->set_size < 8)
		assert_int_equal(g->nr_sets, 1);
	else
		assert_int_equal(g->set_size % 8, 0);
	assert_int_equal(g->nr_leaves, 274 + 4 * (u64)g->nr_sets);
	assert_in_range(g->nr_index, 1, HYBRID_ROOT_INDEXES);
	assert_true((u64)g->nr_index * HYBRID_INDEX_LEAVES >= g->nr_leaves);
	assert_true((u64)(g->nr_index - 1) * HYBRID_INDEX_LEAVES < g->nr_leaves);

	assert_int_equal(1U << g->block_shift, g->block_sectors);
	assert_int_equal(1U << g->granule_shift, g->granule_sectors);
	assert_true(g->granule_sectors >= HYBRID_MIN_GRANULE_SECTORS);
	assert_int_equal(g->granules * g->granule_sectors, g->block_sectors);
	assert_in_range(g->granules, 1, HYBRID_MAX_GRANULES);
	assert_int_equal((u64)g->block_sectors << g->window_shift,
			 max_t(u64, g->block_sectors, 512));
}

/* Less than a set's worth of room is given up. */
static void check_waste(const struct hybrid_geometry *g)
{
	u64 data_end = g->data_sector + (u64)g->nr_blocks * g->block_sectors;
	u64 rest = g->member_sectors - HYBRID_TAIL_SECTORS - data_end;
	u64 set = 512ULL * g->block_sectors + 2 * 8 * 4;

	assert_true(rest < set + 2 * HYBRID_ALIGN_SECTORS + 16);
}

static void check_again(const struct hybrid_geometry *g)
{
	struct hybrid_geometry again;
	const char *why;

	assert_int_equal(hybrid_geometry_init(&again, g->member_sectors, g->block_sectors,
					      g->journal_blocks, &why), 0);
	assert_memory_equal(g, &again, sizeof(again));
}

/* Returns whether there is a layout; a refusal has a reason. */
static bool try_size(u64 sectors, u32 block, u32 journal, struct hybrid_geometry *g)
{
	const char *why = NULL;
	int r = hybrid_geometry_init(g, sectors, block, journal, &why);

	if (r) {
		assert_int_equal(r, -ENOSPC);
		assert_non_null(why);
		return false;
	}
	assert_int_equal(g->member_sectors, sectors);
	assert_int_equal(g->block_sectors, block);
	if (journal)
		assert_int_equal(g->journal_blocks, journal);
	else
		assert_in_range(g->journal_blocks, 256, 16384);
	check_layout(g);
	check_waste(g);
	return true;
}

#define for_each_block_size(block) \
	for ((block) = 8; (block) <= 2048; (block) *= 2)

/* Too small is one side of a line, and the layout grows with the device. */
static void small_sizes(void **state)
{
	u32 block;

	for_each_block_size(block) {
		struct hybrid_geometry g;
		bool fitted = false;
		u64 sectors;
		u32 last = 0;

		for (sectors = 0; sectors < 32 * MIB; sectors += 8) {
			bool fit = try_size(sectors, block, 0, &g);

			assert_true(fit || !fitted);
			fitted |= fit;
			if (!fit)
				continue;
			assert_true(g.nr_blocks + 8 * (u64)g.nr_sets + 1 > last);
			last = g.nr_blocks;
		}
		assert_true(fitted);
	}
}

static void up_to_16_tib(void **state)
{
	u32 block;

	for_each_block_size(block) {
		struct hybrid_geometry g;
		bool refused = false;
		u64 sectors;

		for (sectors = GIB; sectors <= 16 * TIB; sectors += GIB) {
			if (!try_size(sectors, block, 0, &g)) {
				refused = true;
				continue;
			}
			assert_false(refused);
			if (sectors % (256 * GIB) == 0)
				check_again(&g);
		}
		/* the root can name about 508 million blocks */
		assert_int_equal(refused, block <= 64);
	}
}

/* By a search that knows nothing of bisection: the most blocks in sets of 256 to 512, or in one set. */
static u32 most_blocks(u64 sectors, u32 least)
{
	u32 sets, size, best = 0;

	for (sets = 1; sets < 20; sets++) {
		u64 meta = 2048 + 16 + 16 + 16 * (274 + 4 * (u64)sets) + 8 * (128 + 64);
		u64 data = (meta + 2047) / 2048 * 2048;

		for (size = 1; size <= 512; size++) {
			if ((size >= 8 && size % 8) || size < least || (size < 256 && sets > 1))
				continue;
			if (data + 128 * (u64)sets * size + 2048 <= sectors)
				best = max(best, sets * size);
		}
	}
	return best;
}

static void exact_count(void **state)
{
	struct hybrid_geometry g;
	u64 sectors;

	for (sectors = 5 * MIB; sectors < 300 * MIB; sectors += 1000) {
		u32 most = most_blocks(sectors, 1);

		if (!try_size(sectors, 128, 128, &g)) {
			assert_int_equal(most, 0);
			continue;
		}
		assert_true(g.nr_blocks >= most - most / 100);
		/* The sets are as large as that allows. */
		if (g.nr_sets > 1)
			assert_true(most_blocks(sectors, g.set_size + 8) < most - most / 100);
	}
}

/* Of the space for data: a hundredth, for large sets, and a few blocks. */
static void little_is_wasted(void **state)
{
	struct hybrid_geometry g;
	u64 sectors;

	for (sectors = 512 * MIB; sectors < 4096 * 1024 * MIB; sectors += sectors / 9 + 1) {
		assert_true(try_size(sectors, 128, 0, &g));
		assert_true((u64)g.nr_blocks * 128 >
			    sectors - sectors / 80 - g.data_sector - HYBRID_TAIL_SECTORS);
	}
}

static void hostile_sizes(void **state)
{
	static const u64 sizes[] = {
		0, 1, 2047, 2048, 4095, 4096, 4097, 1ULL << 31, (1ULL << 32) - 1, 1ULL << 32,
		(1ULL << 54) - 1, 1ULL << 54, (1ULL << 54) + 1, 1ULL << 63, ~0ULL - 4096, ~0ULL,
	};
	u64 seed = 1;
	u32 block, i;

	for_each_block_size(block) {
		struct hybrid_geometry g;

		for (i = 0; i < ARRAY_SIZE(sizes); i++) {
			try_size(sizes[i], block, 0, &g);
			try_size(sizes[i], block, HYBRID_JOURNAL_MAX_BLOCKS, &g);
		}
		for (i = 0; i < 20000; i++) {
			u64 sectors = next_random(&seed) >> random_below(&seed, 64);

			if (try_size(sectors, block, 0, &g))
				check_again(&g);
		}
	}
}

static void bad_arguments(void **state)
{
	static const u32 blocks[] = { 0, 1, 4, 7, 9, 12, 2047, 4096, 1U << 31, ~0U };
	static const u32 journals[] = { 1, 127, HYBRID_JOURNAL_MAX_BLOCKS + 1, ~0U };
	struct hybrid_geometry g;
	const char *why;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(blocks); i++) {
		why = NULL;
		assert_int_equal(hybrid_geometry_init(&g, TIB, blocks[i], 0, &why), -EINVAL);
		assert_non_null(why);
	}
	for (i = 0; i < ARRAY_SIZE(journals); i++) {
		why = NULL;
		assert_int_equal(hybrid_geometry_init(&g, TIB, 128, journals[i], &why),
				 -EINVAL);
		assert_non_null(why);
	}
	assert_int_equal(hybrid_geometry_init(&g, TIB, 9, 0, NULL), -EINVAL);
	assert_int_equal(hybrid_geometry_init(&g, 9 * MIB, 8, HYBRID_JOURNAL_MAX_BLOCKS, &why),
			 -ENOSPC);
}

static void default_journal(void **state)
{
	struct hybrid_geometry g;

	assert_true(try_size(64 * MIB, 128, 0, &g));
	assert_int_equal(g.journal_blocks, 256);
	assert_true(try_size(256 * MIB, 128, 0, &g));
	assert_int_equal(g.journal_blocks, 256);
	assert_true(try_size(512 * MIB, 128, 0, &g));
	assert_int_equal(g.journal_blocks, 512);
	assert_true(try_size(GIB, 128, 0, &g));
	assert_int_equal(g.journal_blocks, 1024);
	/* 2^20 blocks of 64 KiB, 40 bytes each, half of that, less head and tail */
	assert_true(try_size(64 * GIB, 128, 0, &g));
	assert_in_range(g.journal_blocks, 5119, 5120);
	assert_true(try_size(4 * TIB, 128, 0, &g));
	assert_int_equal(g.journal_blocks, 16384);
}

/* No two metadata blocks in one place, and all inside their areas. */
static void block_sectors(void **state)
{
	struct hybrid_geometry g;
	u32 i;

	assert_true(try_size(256 * GIB, 128, 0, &g));
	assert_true(g.nr_index > 1);
	assert_int_equal(hybrid_root_sector(&g, 6), 2048);
	assert_int_equal(hybrid_root_sector(&g, 7), 2056);
	assert_int_equal(hybrid_root_sector(&g, ~0ULL), 2056);
	assert_int_equal(hybrid_index_sector(&g, 0, 2), 2064);
	for (i = 0; i < g.nr_index; i++) {
		assert_int_equal(hybrid_index_sector(&g, i, 2), 2064 + 8 * i);
		assert_int_equal(hybrid_index_sector(&g, i, U16_MAX), 2064 + 8 * (g.nr_index + i));
	}
	assert_int_equal(hybrid_index_sector(&g, g.nr_index - 1, 1) + 8, g.leaf_sector);
	for (i = 0; i < g.nr_leaves; i++) {
		assert_int_equal(hybrid_leaf_sector(&g, i, 4), g.leaf_sector + 8 * (u64)i);
		assert_int_equal(hybrid_leaf_sector(&g, i, 5),
				 g.leaf_sector + 8 * ((u64)g.nr_leaves + i));
	}
	assert_int_equal(hybrid_leaf_sector(&g, g.nr_leaves - 1, 1) + 8, g.journal_sector);
	assert_int_equal(hybrid_data_sector(&g, to_cblock(0)), g.data_sector);
	assert_true(hybrid_data_sector(&g, to_cblock(g.nr_blocks - 1)) + 128 <=
		    g.member_sectors - HYBRID_TAIL_SECTORS);
}

/* S16: beyond 2 TiB a product of 32 bits would not do. */
static void sector_products(void **state)
{
	static struct hybrid_engine e;
	static struct hybrid_volume v = { .info.data_sector = 2048 };
	struct hybrid_geometry g;
	u64 last;

	assert_true(try_size(16 * TIB, 128, 0, &g));
	last = g.nr_blocks - 1;
	assert_true(last * 128 > U32_MAX);
	assert_int_equal(hybrid_data_sector(&g, to_cblock(last)), g.data_sector + last * 128);
	e.g = &g;
	last = 1ULL << 40;
	assert_int_equal(origin_sector(&e, &v, hybrid_key(4095, to_oblock(last)), 3),
			 2048 + last * 128 + 3 * g.granule_sectors);
}

static void journal_ring(void **state)
{
	struct hybrid_geometry g;
	u64 n;
	u32 blocks;

	assert_true(try_size(64 * MIB, 128, 130, &g));
	for (n = 0; n < 400; n++) {
		assert_int_equal(hybrid_journal_sector(&g, n), g.journal_sector + 8 * (n % 130));
		for (blocks = 1; blocks <= HYBRID_JOURNAL_ENTRY_BLOCKS; blocks++) {
			u64 place = hybrid_journal_place(&g, n, blocks);

			if (n % 130 + blocks <= 130)
				assert_int_equal(place, n);
			else
				assert_int_equal(place, (n / 130 + 1) * 130);
		}
	}
	assert_int_equal(hybrid_journal_sector(&g, 1ULL << 62),
			 g.journal_sector + 8 * ((1ULL << 62) % 130));
}

static void generations(void **state)
{
	u32 g;

	for (g = 0; g <= U16_MAX; g++) {
		u16 next = hybrid_next_generation(g);

		assert_true(next);
		assert_int_equal(next & 1, !(g & 1));
	}
}

/* Over the wrap, too: areas alternate, and no generation that may stand there comes again. */
static void generations_of_steps(void **state)
{
	static const u16 from[] = { 65530, 65531, 65532, 65533, 65534, 65535 };
	static const u16 by_one[] = { 65531, 65532, 65533, 65534, 65535, 2 };
	static const u16 by_three[] = { 65533, 65534, 65535, 2, 3, 4 };
	u32 g, steps, k;

	for (k = 0; k < ARRAY_SIZE(from); k++) {
		assert_int_equal(hybrid_later_generation(from[k], 0), from[k]);
		assert_int_equal(hybrid_later_generation(from[k], 1), by_one[k]);
		assert_int_equal(hybrid_later_generation(from[k], 3), by_three[k]);
	}
	for (g = 1; g <= U16_MAX; g++) {
		u16 cut = hybrid_later_generation(g, 1), recovered = hybrid_later_generation(g, 3);

		for (steps = 1; steps <= 7; steps++) {
			u16 later = hybrid_later_generation(g, steps);

			assert_true(later);
			assert_int_not_equal(later, g);
			assert_int_equal((later ^ g) & 1, steps & 1);
		}
		/*
		 * A checkpoint that was cut and the recovery write to the same area, with
		 * different generations.
		 */
		assert_int_not_equal(cut, recovered);
		assert_int_equal((cut ^ recovered) & 1, 0);
		assert_int_not_equal(hybrid_later_generation(recovered, 1), g);
	}
}

/* Of blocks never written: not one generation for two roots, or a recovery and no recovery. */
static void first_generations(void **state)
{
	static bool seen[U16_MAX + 1];
	u64 sequence;
	u32 recovery;

	memset(seen, 0, sizeof(seen));
	for (sequence = (1ULL << 40) + 5; sequence < (1ULL << 40) + 5 + 8192; sequence++)
		for (recovery = 0; recovery < 2; recovery++) {
			u16 g = hybrid_first_generation(sequence, recovery);

			assert_int_equal(g & 1, 1);
			assert_false(seen[g]);
			seen[g] = true;
		}
}

static void superblock_sectors(void **state)
{
	u64 sectors;

	for (sectors = 4097; sectors < 4200; sectors++) {
		u64 tail = hybrid_sb_sector(sectors, 1);

		assert_int_equal(hybrid_sb_sector(sectors, 0), 1024);
		assert_int_equal(tail % 8, 0);
		assert_true(tail >= sectors - HYBRID_TAIL_SECTORS && tail + 8 <= sectors);
	}
	assert_int_equal(hybrid_sb_sector(1ULL << 40, 1), (1ULL << 40) - 1024);
}

/* Chunks are no larger than they must be; the map fits where it stands. */
static void lost_map(void **state)
{
	u32 block, shift, blocks;
	u64 seed = 9, size;
	u32 n;

	assert_int_equal(hybrid_lost_sector(1ULL << 30, 0), 1032);
	assert_int_equal(hybrid_lost_sector((1ULL << 30) + 7, 1), (1ULL << 30) - 1016);
	assert_int_equal(hybrid_lost_shift(128 * GIB, 128), 7);
	assert_int_equal(hybrid_lost_shift(128 * GIB + 1, 128), 8);
	assert_int_equal(hybrid_lost_shift(128 * GIB, 8), 7);
	assert_int_equal(hybrid_lost_shift(1, 2048), 11);
	for (n = 0; n < 10000; n++) {
		size = (next_random(&seed) >> (10 + random_below(&seed, 54))) | 1;
		block = 8U << random_below(&seed, 9);
		shift = hybrid_lost_shift(size, block);
		blocks = hybrid_lost_blocks(size, shift);
		assert_true((1ULL << shift) >= block);
		assert_true((size - 1) >> shift < HYBRID_LOST_CHUNKS);
		assert_true((1ULL << shift) == block ||
			    (size - 1) >> (shift - 1) >= HYBRID_LOST_CHUNKS);
		assert_true((u64)(blocks - 1) * 32768 > (size - 1) >> shift);
		assert_true((u64)(blocks - 2) * 32768 <= (size - 1) >> shift);
		assert_true(hybrid_lost_sector(MIB * 10, 0) + 8 * blocks <= HYBRID_HEAD_SECTORS);
		assert_true(hybrid_lost_sector(MIB * 10, 1) + 8 * blocks <= MIB * 10);
	}
}

static void origin_data(void **state)
{
	static const u32 optimal[] = { 0, 8, 1536, 2048, 2049, 3000, 4096, 1U << 31, ~0U };
	u64 seed = 7, start, size;
	u32 i, n;

	for (i = 0; i < ARRAY_SIZE(optimal); i++) {
		u64 want = max_t(u64, 2048, (optimal[i] + 2047ULL) / 2048 * 2048);

		assert_int_equal(hybrid_origin_data(want + 4095, optimal[i], &start, &size),
				 -ENOSPC);
		assert_int_equal(hybrid_origin_data(want + 4096, optimal[i], &start, &size), 0);
		assert_int_equal(start, want);
		assert_int_equal(size, 2048);
		for (n = 0; n < 10000; n++) {
			u64 sectors = next_random(&seed) >> random_below(&seed, 64);

			if (hybrid_origin_data(sectors, optimal[i], &start, &size)) {
				assert_true(sectors < want + 4096 || sectors > 1ULL << 54);
				continue;
			}
			assert_int_equal(start, want);
			assert_int_equal(size % 2048, 0);
			assert_true(start + size + 2048 <= sectors);
			assert_true(start + size + 4096 > sectors);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(small_sizes),
		cmocka_unit_test(up_to_16_tib),
		cmocka_unit_test(exact_count),
		cmocka_unit_test(little_is_wasted),
		cmocka_unit_test(hostile_sizes),
		cmocka_unit_test(bad_arguments),
		cmocka_unit_test(default_journal),
		cmocka_unit_test(block_sectors),
		cmocka_unit_test(sector_products),
		cmocka_unit_test(journal_ring),
		cmocka_unit_test(generations),
		cmocka_unit_test(generations_of_steps),
		cmocka_unit_test(first_generations),
		cmocka_unit_test(superblock_sectors),
		cmocka_unit_test(lost_map),
		cmocka_unit_test(origin_data),
	};

	return cmocka_run_group_tests_name("geometry", tests, NULL, NULL);
}
