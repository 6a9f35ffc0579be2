// SPDX-License-Identifier: GPL-2.0-or-later
/* Journal entries: seal, peek, check. */
#include "unit.h"
#include "samples.h"

#define MAX_RECORDS HYBRID_ENTRY_RECORDS(HYBRID_JOURNAL_ENTRY_BLOCKS)
#define ENTRY_BYTES (HYBRID_JOURNAL_ENTRY_BLOCKS * HYBRID_META_BLOCK_SIZE)

static union {
	struct hybrid_journal_entry entry;
	u8 byte[ENTRY_BYTES + 64];
} buffer, saved;

static struct hybrid_geometry g;
static struct hybrid_ident id;

#define entry (&buffer.entry)

static int setup(void **state)
{
	sample_geometry(&g);
	sample_ident(&id);
	return 0;
}

static u32 seal(u64 n, u32 nr)
{
	memset(&buffer, 0xa5, sizeof(buffer));
	sample_records(entry, nr);
	return hybrid_entry_seal(entry, &id, n, nr, 0);
}

static void reseal(u32 blocks)
{
	entry->header.crc = cpu_to_le32(hybrid_crc(entry, blocks * HYBRID_META_BLOCK_SIZE,
						   offsetof(struct hybrid_block_header, crc)));
}

static void round_trip(void **state)
{
	u32 nr, i, blocks, want = 1;
	const char *why = NULL;

	for (nr = 0; nr <= MAX_RECORDS; nr++) {
		size_t end = 64 + nr * 40;

		if (end > want * 4096)
			want++;
		blocks = seal(1024, nr);
		assert_int_equal(blocks, want);
		assert_int_equal(hybrid_entry_peek(&entry->header, &id, 1024), blocks);
		assert_int_equal(hybrid_entry_check(entry, &g, blocks, &why), nr);
		if (nr > 210 && nr < MAX_RECORDS - 110)
			continue;
		/* zeroes up to the end of the last block, and not a byte more */
		for (i = end; i < blocks * 4096; i++)
			assert_int_equal(buffer.byte[i], 0);
		assert_int_equal(buffer.byte[i], 0xa5);
	}
	assert_int_equal(want, HYBRID_JOURNAL_ENTRY_BLOCKS);
}

#define PEEK_CASE(field, value, r) do {					\
	seal(1024, 150);						\
	entry->header.field = (value);					\
	assert_int_equal(hybrid_entry_peek(&entry->header, &id, 1024), r); \
} while (0)

static void peek(void **state)
{
	struct hybrid_ident other = id;

	seal(1024, 150);
	assert_int_equal(hybrid_entry_peek(&entry->header, &id, 1024), 2);
	assert_int_equal(hybrid_entry_peek(&entry->header, &id, 0), -ENODATA);
	assert_int_equal(hybrid_entry_peek(&entry->header, &id, 1025), -ENODATA);
	other.epoch++;
	assert_int_equal(hybrid_entry_peek(&entry->header, &other, 1024), -ENODATA);
	other = id;
	other.pool_uuid[0] ^= 0x80;
	assert_int_equal(hybrid_entry_peek(&entry->header, &other, 1024), -ENODATA);

	PEEK_CASE(magic, 0, -ENODATA);
	PEEK_CASE(magic, cpu_to_le32(HYBRID_MAP_MAGIC), -ENODATA);
	PEEK_CASE(generation, cpu_to_le64(1023), -ENODATA);
	PEEK_CASE(count, cpu_to_le32(MAX_RECORDS + 1), -EINVAL);
	PEEK_CASE(count, cpu_to_le32(~0), -EINVAL);
	PEEK_CASE(count, cpu_to_le32(0x66666667), -EINVAL);	/* 40 times this is small */
	PEEK_CASE(count, cpu_to_le32(100), -EINVAL);
	PEEK_CASE(count, cpu_to_le32(101), 2);
	PEEK_CASE(count, cpu_to_le32(203), 2);
	PEEK_CASE(count, cpu_to_le32(204), -EINVAL);
	PEEK_CASE(blocks, 0, -EINVAL);
	PEEK_CASE(blocks, cpu_to_le32(1), -EINVAL);
	PEEK_CASE(blocks, cpu_to_le32(3), -EINVAL);
	PEEK_CASE(blocks, cpu_to_le32(~0), -EINVAL);
	PEEK_CASE(crc, 0, 2);	/* not its business */
}

static void bit_flips(void **state)
{
	const char *why;
	u32 bit, blocks = seal(1024, 150);
	int r;

	for (bit = 0; bit < 8 * 4096 * blocks; bit++) {
		buffer.byte[bit / 8] ^= 1 << bit % 8;
		r = hybrid_entry_check(entry, &g, blocks, &why);
		if (r != -EBADMSG)
			assert_int_equal(r, -EINVAL);	/* count or blocks */
		/* the magic alone is only looked at by peek, but is summed up too */
		assert_true(r < 0);
		buffer.byte[bit / 8] ^= 1 << bit % 8;
	}
	assert_int_equal(hybrid_entry_check(entry, &g, blocks, &why), 150);
}

/* Of an entry of several blocks, any may have been written and any not. */
static void torn(void **state)
{
	u32 blocks, sector, half;
	const char *why;

	blocks = seal(2048, 1500);
	assert_true(blocks > 8);
	saved = buffer;
	for (half = 0; half < 2; half++) {
		for (sector = 0; sector < 8 * blocks; sector++) {
			buffer = saved;
			/* half: all from here on are old; else this one alone */
			memset(buffer.byte + 512 * sector, 0x11,
			       half ? 4096 * blocks - 512 * sector : 512);
			if (!sector) {
				assert_int_equal(hybrid_entry_peek(&entry->header, &id, 2048),
						 -ENODATA);
				continue;
			}
			assert_int_equal(hybrid_entry_peek(&entry->header, &id, 2048), blocks);
			assert_int_equal(hybrid_entry_check(entry, &g, blocks, &why), -EBADMSG);
			assert_string_equal(why, "crc");
		}
	}
}

static void wrong_size_or_place(void **state)
{
	const char *why;
	u32 blocks;

	blocks = seal(1024, 150);
	assert_int_equal(hybrid_entry_check(entry, &g, 0, &why), -EINVAL);
	assert_int_equal(hybrid_entry_check(entry, &g, blocks - 1, &why), -EINVAL);
	assert_int_equal(hybrid_entry_check(entry, &g, blocks + 1, &why), -EINVAL);
	assert_int_equal(hybrid_entry_check(entry, &g, 65, &why), -EINVAL);
	assert_int_equal(hybrid_entry_check(entry, &g, ~0, &why), -EINVAL);
	assert_string_equal(why, "blocks");
	/* two blocks at the last place of the ring would wrap */
	blocks = seal(1023, 150);
	assert_int_equal(hybrid_entry_check(entry, &g, blocks, &why), -EINVAL);
	assert_string_equal(why, "number");
	blocks = seal(1023, 100);
	assert_int_equal(hybrid_entry_check(entry, &g, blocks, NULL), 100);
}

#define RECORD_CASE(i, field, value, name) do {				\
	const char *why_ = "nothing";					\
									\
	seal(1024, 8);							\
	entry->record[i].field = (value);				\
	reseal(1);							\
	assert_int_equal(hybrid_entry_check(entry, &g, 1, &why_), -EINVAL); \
	assert_string_equal(why_, name);				\
} while (0)

#define RECORD_OK(i, field, value) do {					\
	seal(1024, 8);							\
	entry->record[i].field = (value);				\
	reseal(1);							\
	assert_int_equal(hybrid_entry_check(entry, &g, 1, NULL), 8);	\
} while (0)

/* Records 0 and 1 map a block, 2 unmaps one, 3 states open regions. */
static void record_fields(void **state)
{
	RECORD_CASE(0, type, 0, "type");
	RECORD_CASE(7, type, cpu_to_le32(3), "type");
	RECORD_CASE(0, type, cpu_to_le32(~0), "type");
	RECORD_CASE(0, where, cpu_to_le32(g.nr_blocks), "where");
	RECORD_CASE(2, where, cpu_to_le32(~0), "where");
	RECORD_OK(0, where, cpu_to_le32(g.nr_blocks - 1));
	RECORD_CASE(1, hint, cpu_to_le32(256), "hint");
	RECORD_OK(1, hint, cpu_to_le32(255));
	RECORD_CASE(0, valid, cpu_to_le64(0x1ffff), "valid");
	RECORD_CASE(0, valid, cpu_to_le64(0xfffe), "dirty");
	RECORD_CASE(0, dirty, cpu_to_le64(0x10000), "dirty");
	RECORD_CASE(0, oblock, cpu_to_le64(1ULL << 47), "oblock");
	RECORD_OK(0, oblock, cpu_to_le64((1ULL << 47) - 1));
	RECORD_CASE(0, instance, 0, "valid");
	RECORD_CASE(2, valid, cpu_to_le64(1), "valid");
	RECORD_CASE(2, dirty, cpu_to_le64(1), "dirty");
	RECORD_OK(2, oblock, cpu_to_le64(~0ULL));
	RECORD_CASE(3, where, cpu_to_le32(g.nr_sets), "where");
	RECORD_CASE(3, where, cpu_to_le32(~0), "where");
	RECORD_OK(3, where, cpu_to_le32(g.nr_sets - 1));
	RECORD_OK(3, valid, cpu_to_le64(~0ULL));
	RECORD_OK(3, valid, 0);
}

/* A set of fewer blocks has fewer regions. */
static void regions_of_small_set(void **state)
{
	const char *why;
	u32 regions;

	assert_int_equal(hybrid_geometry_init(&g, 26 * MIB, 128, 128, NULL), 0);
	assert_true(g.set_size > 8 && g.set_size < 512);
	regions = g.set_size / 8;
	memset(&buffer, 0, sizeof(buffer));
	entry->record[0].type = cpu_to_le32(HYBRID_RECORD_REGIONS);
	entry->record[0].valid = cpu_to_le64((1ULL << regions) - 1);
	hybrid_entry_seal(entry, &id, 0, 1, 0);
	assert_int_equal(hybrid_entry_check(entry, &g, 1, &why), 1);
	entry->record[0].valid = cpu_to_le64(1ULL << regions);
	hybrid_entry_seal(entry, &id, 0, 1, 0);
	assert_int_equal(hybrid_entry_check(entry, &g, 1, &why), -EINVAL);
	assert_string_equal(why, "valid");
}

static void random_entries(void **state)
{
	const char *why;
	u64 seed = 11;
	u32 n, i;

	for (n = 0; n < 3000; n++) {
		u32 nr = random_below(&seed, 300), blocks;

		for (i = 0; i < 64 + 300 * 40; i++)
			buffer.byte[i] = next_random(&seed) >> 40;
		for (i = 0; i < nr; i++)
			entry->record[i].type = cpu_to_le32(1 + n % 2);
		blocks = hybrid_entry_seal(entry, &id, 0, nr, 0);
		assert_int_equal(hybrid_entry_peek(&entry->header, &id, 0), blocks);
		assert_int_equal(hybrid_entry_check(entry, &g, blocks, &why), nr ? -EINVAL : 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(round_trip, setup),
		cmocka_unit_test_setup(peek, setup),
		cmocka_unit_test_setup(bit_flips, setup),
		cmocka_unit_test_setup(torn, setup),
		cmocka_unit_test_setup(wrong_size_or_place, setup),
		cmocka_unit_test_setup(record_fields, setup),
		cmocka_unit_test_setup(regions_of_small_set, setup),
		cmocka_unit_test_setup(random_entries, setup),
	};

	return cmocka_run_group_tests_name("entry", tests, NULL, NULL);
}
