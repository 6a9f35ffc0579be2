// SPDX-License-Identifier: GPL-2.0-or-later
/* The map: keys to blocks, masks, and the lock-free look-up. */
#include "unit.h"
#include "map.h"

static struct hybrid_geometry g;
static struct hybrid_map map;

/* A small cache device: 64 MiB makes some sets of up to 512 blocks. */
static void map_open(u32 block_sectors, u64 sectors)
{
	assert_int_equal(hybrid_geometry_init(&g, sectors, block_sectors, 0, NULL), 0);
	assert_int_equal(hybrid_map_create(&map, &g), 0);
}

static int teardown(void **state)
{
	shim_alloc_fails = NULL;
	hybrid_map_destroy(&map);
	return 0;
}

static struct hybrid_set *lock_set(u32 nr)
{
	spin_lock(&map.set[nr].lock);
	return &map.set[nr];
}

/* The @n-th key of volume 1 that lives in set @nr. */
static u64 key_in(u32 nr, u32 n)
{
	u64 key = hybrid_key(1, to_oblock(0));

	for (;; key++)
		if (hybrid_map_set_of(&map, key) == nr && !n--)
			return key;
}

/* As the engine lets a block go. */
static void let_go(struct hybrid_set *s, u32 i)
{
	hybrid_set_flags(s, i, BLOCK_REMOVED, BLOCK_MAPPED);
	hybrid_set_unhash(&map, s, i);
	hybrid_set_free(&map, s, i);
}

static void keys(void **state)
{
	static const u32 volumes[] = { 0, 1, 4095 };
	static const u64 blocks[] = { 0, 1, (1ULL << 52) - 1 };
	u32 v, b;

	for (v = 0; v < ARRAY_SIZE(volumes); v++)
		for (b = 0; b < ARRAY_SIZE(blocks); b++) {
			u64 key = hybrid_key(volumes[v], to_oblock(blocks[b]));

			assert_int_equal(hybrid_key_volume(key), volumes[v]);
			assert_true(from_oblock(hybrid_key_block(key)) == blocks[b]);
		}
	/* No block of a volume has this key: volumes end at 2^63 bytes of 4 KiB each. */
	assert_true(hybrid_key(4095, to_oblock((1ULL << 51) - 1)) != HYBRID_NO_KEY);
}

/* A print has 16 bits, and differs for another block, or for the same block of another volume. */
static void prints(void **state)
{
	u32 n = 20000, i, same[2] = { 0 };

	for (i = 0; i < n; i++) {
		u16 print = hybrid_key_fingerprint(hybrid_key(1, to_oblock(i)));

		same[0] += print == (u16)hybrid_key_fingerprint(hybrid_key(1, to_oblock(i + 1)));
		same[1] += print == (u16)hybrid_key_fingerprint(hybrid_key(2, to_oblock(i)));
	}
	/* by chance one in 65536 */
	assert_true(same[0] < 10 && same[1] < 10);
}

/* Every set gets its share, of sequential keys and of many volumes' first blocks. */
static void keys_spread(void **state)
{
	u32 n = 200000, i, *seen, kind;

	map_open(8, 128 * MIB);
	assert_true(map.nr_sets > 8);
	seen = calloc(map.nr_sets, sizeof(*seen));
	for (kind = 0; kind < 2; kind++) {
		u32 keys = kind ? HYBRID_MAX_VOLUMES * 8 : n;

		memset(seen, 0, map.nr_sets * sizeof(*seen));
		for (i = 0; i < keys; i++) {
			u64 window = (u64)(kind ? i / HYBRID_MAX_VOLUMES : i) << g.window_shift;
			u32 set = hybrid_map_set_of(&map, hybrid_key(kind ? i % HYBRID_MAX_VOLUMES
								    : 7, to_oblock(window)));

			assert_true(set < map.nr_sets);
			seen[set]++;
		}
		for (i = 0; i < map.nr_sets; i++) {
			assert_true(seen[i] > keys / map.nr_sets / 2);
			assert_true(seen[i] < keys / map.nr_sets * 2);
		}
	}
	/* The blocks of a window are together. */
	for (i = 0; i < 1U << g.window_shift; i++)
		assert_int_equal(hybrid_map_set_of(&map, hybrid_key(3, to_oblock(i))),
				 hybrid_map_set_of(&map, hybrid_key(3, to_oblock(0))));
	free(seen);
}

static void alloc_find_free(void **state)
{
	struct hybrid_set *s;
	u64 key[HYBRID_MAX_SET_SIZE + 1];
	u32 n, size;

	map_open(128, 64 * MIB);
	assert_int_equal(map.nr_sets, 2);
	size = map.set_size;
	for (n = 0; n <= size; n++)
		key[n] = n ? key[n - 1] + 1 : 0;
	/* Any set will do: it does not check the keys. */
	s = lock_set(1);
	for (n = 0; n < size; n++) {
		assert_int_equal(hybrid_set_find(&map, s, key[n]), -1);
		assert_int_equal(hybrid_set_alloc(&map, s, key[n]), n);
		assert_int_equal(s->flags[n], BLOCK_MAPPED);
		assert_int_equal(s->nr_free, size - n - 1);
		assert_int_equal(s->nr_mapped, n + 1);
	}
	assert_int_equal(hybrid_set_alloc(&map, s, key[size]), -1);
	for (n = 0; n < size; n++)
		assert_int_equal(hybrid_set_find(&map, s, key[n]), n);
	assert_int_equal(hybrid_set_find(&map, s, key[size]), -1);
	for (n = 0; n < size; n += 2) {
		hybrid_set_flags(s, n, BLOCK_REMOVED, BLOCK_MAPPED);
		/* still found: a removed block can come back, or is waited for */
		assert_int_equal(hybrid_set_find(&map, s, key[n]), n);
		hybrid_set_unhash(&map, s, n);
		assert_int_equal(hybrid_set_find(&map, s, key[n]), -1);
		assert_true(s->key[n] == key[n]);
		hybrid_set_free(&map, s, n);
		assert_true(s->key[n] == HYBRID_NO_KEY);
	}
	assert_int_equal(s->nr_free, (size + 1) / 2);
	assert_int_equal(s->nr_mapped, size / 2);
	for (n = 0; n < size; n++)
		assert_int_equal(hybrid_set_find(&map, s, key[n]), n & 1 ? (int)n : -1);
	spin_unlock(&s->lock);
	assert_int_equal(map.set[0].nr_free, size);
}

/* A block that is retired is nobody's, and nobody gets it. */
static void retired_block(void **state)
{
	struct hybrid_set *s;
	u32 n;

	map_open(128, 64 * MIB);
	s = lock_set(0);
	for (n = 0; n < 3; n++)
		assert_int_equal(hybrid_set_alloc(&map, s, key_in(0, n)), n);
	for (n = 0; n < 3; n++) {
		hybrid_set_flags(s, n, 0, BLOCK_MAPPED);
		hybrid_set_unhash(&map, s, n);
	}
	hybrid_set_free(&map, s, 0);
	hybrid_set_retire(&map, s, 1);
	hybrid_set_free(&map, s, 2);
	assert_true(s->key[1] == HYBRID_NO_KEY);
	assert_int_equal(s->flags[1], 0);
	assert_int_equal(s->nr_retired, 1);
	assert_int_equal(s->nr_free, map.set_size - 1);
	assert_null(hybrid_set_check(&map, 0));
	for (n = 0; s->nr_free; n++)
		assert_int_not_equal(hybrid_set_alloc(&map, s, key_in(0, n)), 1);
	assert_int_equal(s->nr_mapped, map.set_size - 1);
	assert_int_equal(hybrid_set_alloc(&map, s, key_in(0, n)), -1);
	spin_unlock(&s->lock);
}

/* A block that is taken again brings nothing of its past. */
static void fresh_block(void **state)
{
	struct hybrid_set *s;
	unsigned int m;
	int i;

	map_open(128, 64 * MIB);
	s = lock_set(0);
	i = hybrid_set_alloc(&map, s, key_in(0, 0));
	for (m = 0; m < NR_MASKS; m++)
		set_put_mask(&map, s, m, i, map.granules);
	s->flush_epoch[i] = 77;
	let_go(s, i);
	assert_int_equal(hybrid_set_alloc(&map, s, key_in(0, 1)), i);
	for (m = 0; m < NR_MASKS; m++)
		assert_true(!set_mask(&map, s, m, i));
	assert_int_equal(s->flush_epoch[i], 0);
	assert_null(hybrid_set_check(&map, 0));
	spin_unlock(&s->lock);
}

/* All that belongs to a block, in every set, is apart from all else. */
static void fields_apart(u32 block_sectors, u32 granules, u32 bytes)
{
	u32 set, i, pass;
	unsigned int m;

	map_open(block_sectors, 64 * MIB);
	assert_int_equal(g.granules, granules);
	assert_int_equal(map.mask_bytes, bytes);
	assert_true(map.granules == (granules == 64 ? ~0ULL : (1ULL << granules) - 1));
	for (pass = 0; pass < 2; pass++) {
		u64 seed = 1;

		for (set = 0; set < map.nr_sets; set++) {
			struct hybrid_set *s = &map.set[set];

			for (i = 0; i < map.nr_buckets; i++) {
				if (!pass)
					s->bucket[i] = next_random(&seed);
				else
					assert_int_equal(s->bucket[i], (u16)next_random(&seed));
			}
			for (i = 0; i < map.set_size; i++) {
				u64 r[NR_MASKS + 1];

				for (m = 0; m <= NR_MASKS; m++)
					r[m] = next_random(&seed);
				if (!pass) {
					s->key[i] = r[NR_MASKS];
					s->flush_epoch[i] = r[NR_MASKS] >> 8;
					s->next[i] = r[NR_MASKS] >> 16;
					s->flags[i] = r[NR_MASKS] >> 24;
				}
				for (m = 0; m < NR_MASKS; m++) {
					if (!pass)
						set_put_mask(&map, s, m, i, r[m] & map.granules);
					assert_true(set_mask(&map, s, m, i) ==
						    (r[m] & map.granules));
				}
				assert_true(s->key[i] == r[NR_MASKS]);
				assert_int_equal(s->flush_epoch[i], (u32)(r[NR_MASKS] >> 8));
				assert_int_equal(s->next[i], (u16)(r[NR_MASKS] >> 16));
				assert_int_equal(s->flags[i], (u8)(r[NR_MASKS] >> 24));
			}
		}
	}
	hybrid_map_destroy(&map);
}

static void masks_of_every_width(void **state)
{
	fields_apart(8, 1, 2);
	fields_apart(16, 2, 2);
	fields_apart(64, 8, 2);
	fields_apart(128, 16, 2);
	fields_apart(256, 32, 4);
	fields_apart(512, 64, 8);
	fields_apart(1024, 64, 8);
	fields_apart(2048, 64, 8);
}

/* Sets of one block, and of a few, as tiny devices have them. */
static void tiny_sets(void **state)
{
	u64 sectors;
	u32 small = 0;

	for (sectors = 6 * MIB; sectors < 40 * MIB; sectors += MIB) {
		struct hybrid_set *s;
		u32 i;

		if (hybrid_geometry_init(&g, sectors, 2048, 0, NULL))
			continue;
		assert_int_equal(hybrid_map_create(&map, &g), 0);
		small += map.set_size < 8;
		s = lock_set(map.nr_sets - 1);
		for (i = 0; i < map.set_size; i++)
			assert_int_equal(hybrid_set_alloc(&map, s, i), i);
		assert_int_equal(hybrid_set_alloc(&map, s, i), -1);
		for (i = 0; i < map.set_size; i++)
			assert_int_equal(hybrid_set_find(&map, s, i), i);
		spin_unlock(&s->lock);
		hybrid_map_destroy(&map);
	}
	assert_true(small);
}

/* ---- the lock-free look-up ----------------------------------------------- */

static void read_hit(void **state)
{
	struct hybrid_set *s;
	u64 key;
	int i;

	map_open(128, 64 * MIB);
	s = lock_set(0);
	key = key_in(0, 0);
	assert_int_equal(hybrid_set_read_hit(&map, s, key, 1), -1);
	i = hybrid_set_alloc(&map, s, key);
	assert_int_equal(hybrid_set_read_hit(&map, s, key, 1), -1);
	set_put_mask(&map, s, MASK_VALID, i, 0x0ff0);
	assert_int_equal(hybrid_set_read_hit(&map, s, key, 0x0ff0), i);
	assert_int_equal(hybrid_set_read_hit(&map, s, key, 0x0010), i);
	assert_int_equal(hybrid_set_read_hit(&map, s, key, 0x0018), -1);
	assert_int_equal(hybrid_set_read_hit(&map, s, key, 0x1000), -1);
	assert_int_equal(hybrid_set_read_hit(&map, s, key + 1, 0x10), -1);
	/* a set that is being changed */
	raw_write_seqcount_begin(&s->seq);
	assert_int_equal(hybrid_set_read_hit(&map, s, key, 0x10), -1);
	raw_write_seqcount_end(&s->seq);
	assert_int_equal(hybrid_set_read_hit(&map, s, key, 0x10), i);
	hybrid_set_flags(s, i, BLOCK_REMOVED, BLOCK_MAPPED);
	assert_int_equal(hybrid_set_read_hit(&map, s, key, 0x10), -1);
	hybrid_set_flags(s, i, BLOCK_MAPPED, BLOCK_REMOVED);
	hybrid_set_invalidate(&map, s, i, 0x0030);
	assert_true(set_mask(&map, s, MASK_VALID, i) == 0x0fc0);
	assert_int_equal(hybrid_set_read_hit(&map, s, key, 0x10), -1);
	assert_int_equal(hybrid_set_read_hit(&map, s, key, 0x40), i);
	spin_unlock(&s->lock);
}

/* The count has moved, and nobody is inside. */
static void moved(const struct hybrid_set *s, unsigned int *seq)
{
	assert_true(s->seq.sequence != *seq);
	assert_false(s->seq.sequence & 1);
	*seq = s->seq.sequence;
}

/* Every change that could make a reader's answer wrong moves the count; other changes do not. */
static void sequence_count(void **state)
{
	struct hybrid_set *s;
	unsigned int seq;
	int i;

	map_open(128, 64 * MIB);
	s = lock_set(0);
	seq = s->seq.sequence;
	i = hybrid_set_alloc(&map, s, key_in(0, 0));
	moved(s, &seq);
	set_put_mask(&map, s, MASK_VALID, i, 3);
	hybrid_set_invalidate(&map, s, i, 4);
	assert_int_equal(s->seq.sequence, seq);
	hybrid_set_invalidate(&map, s, i, 6);
	moved(s, &seq);
	hybrid_set_flags(s, i, BLOCK_REMOVED, BLOCK_MAPPED);
	moved(s, &seq);
	hybrid_set_unhash(&map, s, i);
	moved(s, &seq);
	hybrid_set_free(&map, s, i);
	moved(s, &seq);
	spin_unlock(&s->lock);
}

/* A reader may follow a chain while it is being changed: it comes to an end. */
static void chains_end(void **state)
{
	struct hybrid_set *s;
	u64 seed = 5;
	u32 round, i;

	map_open(128, 64 * MIB);
	s = lock_set(0);
	for (i = 0; i < map.set_size; i++)
		hybrid_set_alloc(&map, s, i);
	for (round = 0; round < 200; round++) {
		for (i = 0; i < map.set_size; i++)
			s->next[i] = random_below(&seed, map.set_size + 2);
		for (i = 0; i < map.nr_buckets; i++)
			s->bucket[i] = next_random(&seed);
		for (i = 0; i < map.set_size; i += 7)
			assert_in_range(hybrid_set_find(&map, s, i) + 1, 0, map.set_size);
		assert_int_equal(hybrid_set_find(&map, s, 1ULL << 40), -1);
	}
	for (i = 0; i < map.set_size; i++)
		s->next[i] = i;
	hybrid_set_unhash(&map, s, 3);
	spin_unlock(&s->lock);
}

/* ---- loading, records ---------------------------------------------------- */

/* As the engine's hybrid_put_dirty() */
static void put_dirty(struct hybrid_set *s, u32 i, u64 dirty)
{
	s->nr_dirty += !!dirty - !!set_mask(&map, s, MASK_DIRTY, i);
	set_put_mask(&map, s, MASK_DIRTY, i, dirty);
}

static void load_as(struct hybrid_set *s, u32 i, u64 key, u64 valid, u64 dirty)
{
	__le64 mask = cpu_to_le64(valid);

	hybrid_set_load_valid(&map, s, i, 1, &mask);
	hybrid_set_load(&map, s, i, key);
	hybrid_set_count(s, 1);
	put_dirty(s, i, dirty);
	set_put_mask(&map, s, MASK_JDIRTY, i, dirty);
}

static void load(void **state)
{
	struct hybrid_set *s;
	u32 n, i, size;

	map_open(128, 64 * MIB);
	size = map.set_size;
	s = lock_set(0);
	for (n = 0; n < size / 2; n++) {
		i = n * 5 % (size - 1);
		load_as(s, i, key_in(0, i), 0xff, i & 1 ? 0x0f : 0);
		assert_int_equal(s->flags[i], BLOCK_MAPPED | BLOCK_JMAPPED);
		assert_false(set_unrecorded(&map, s, i));
	}
	assert_int_equal(s->nr_mapped, size / 2);
	assert_int_equal(s->nr_free, size - size / 2);
	hybrid_set_loaded(&map, s);
	assert_null(hybrid_set_check(&map, 0));
	/* a block taken out looks as if it had never been loaded */
	i = 5;
	assert_int_equal(hybrid_set_find(&map, s, key_in(0, i)), i);
	put_dirty(s, i, 0);
	set_put_mask(&map, s, MASK_JDIRTY, i, 0);
	hybrid_set_unload(&map, s, i);
	assert_int_equal(hybrid_set_find(&map, s, key_in(0, i)), -1);
	assert_int_equal(s->nr_mapped, size / 2 - 1);
	hybrid_set_loaded(&map, s);
	assert_null(hybrid_set_check(&map, 0));
	load_as(s, size - 1, key_in(0, i), 1, 0);
	hybrid_set_unload(&map, s, size - 1);
	load_as(s, i, key_in(0, i), 0xff, 0);
	/* a block taken out is found no more; all others are */
	hybrid_set_unload(&map, s, i);
	hybrid_set_loaded(&map, s);
	assert_int_equal(hybrid_set_find(&map, s, key_in(0, i)), -1);
	for (n = 0; n < size / 2; n++)
		assert_true(n * 5 % (size - 1) == i ||
			    hybrid_set_find(&map, s, key_in(0, n * 5 % (size - 1))) >= 0);
	assert_null(hybrid_set_check(&map, 0));
	load_as(s, i, key_in(0, i), 0xff, 0);
	/* the remaining blocks can be allocated: the ones that were not loaded */
	hybrid_set_loaded(&map, s);
	for (n = 0; n < size - size / 2; n++) {
		int k = hybrid_set_alloc(&map, s, key_in(0, size - 1 + n));

		assert_true(k >= 0);
		assert_int_equal(s->flags[k], BLOCK_MAPPED);
	}
	assert_int_equal(hybrid_set_alloc(&map, s, HYBRID_NO_KEY - 1), -1);
	s->regions.lazy = ~0ULL;
	assert_null(hybrid_set_check(&map, 0));
	spin_unlock(&s->lock);
}

static void unrecorded(void **state)
{
	static const struct {
		u8 flags;
		u16 valid, dirty, jvalid, jdirty;
		bool want;
	} row[] = {
		{ 0, 0, 0, 0, 0, false },
		/* new, and nothing in it yet: there is nothing to say */
		{ BLOCK_MAPPED, 0, 0, 0, 0, false },
		{ BLOCK_MAPPED, 1, 0, 0, 0, true },
		{ BLOCK_MAPPED, 1, 1, 0, 0, true },
		{ BLOCK_MAPPED | BLOCK_JMAPPED, 1, 0, 1, 0, false },
		{ BLOCK_MAPPED | BLOCK_JMAPPED, 3, 1, 3, 1, false },
		{ BLOCK_MAPPED | BLOCK_JMAPPED, 3, 0, 1, 0, true },
		{ BLOCK_MAPPED | BLOCK_JMAPPED, 1, 0, 3, 0, true },
		{ BLOCK_MAPPED | BLOCK_JMAPPED, 3, 1, 3, 0, true },
		{ BLOCK_MAPPED | BLOCK_JMAPPED, 3, 0, 3, 1, true },
		/* removed: the journal must hear of it */
		{ BLOCK_REMOVED | BLOCK_JMAPPED, 0, 0, 1, 0, true },
		{ BLOCK_REMOVED | BLOCK_JMAPPED, 0, 0, 0, 0, true },
		{ BLOCK_REMOVED | BLOCK_TRANSIT, 0, 0, 0, 0, false },
	};
	struct hybrid_set *s;
	u32 n;

	map_open(128, 64 * MIB);
	s = &map.set[0];
	for (n = 0; n < ARRAY_SIZE(row); n++) {
		s->flags[2] = row[n].flags;
		set_put_mask(&map, s, MASK_VALID, 2, row[n].valid);
		set_put_mask(&map, s, MASK_DIRTY, 2, row[n].dirty);
		set_put_mask(&map, s, MASK_JVALID, 2, row[n].jvalid);
		set_put_mask(&map, s, MASK_JDIRTY, 2, row[n].jdirty);
		assert_int_equal(set_unrecorded(&map, s, 2), row[n].want);
	}
}

/* ---- check --------------------------------------------------------------- */

/* Set 0 with some blocks, all of it as it should be. */
static struct hybrid_set *healthy(void)
{
	struct hybrid_set *s;
	u32 i;

	hybrid_map_destroy(&map);
	map_open(128, 64 * MIB);
	s = lock_set(0);
	for (i = 0; i < 100; i++)
		load_as(s, i, key_in(0, i), 0xff, i & 1 ? 0x10 : 0);
	hybrid_set_loaded(&map, s);
	hybrid_set_flags(s, 90, BLOCK_REMOVED, BLOCK_MAPPED);
	s->regions.must = region_bit(90);
	hybrid_set_flags(s, 91, BLOCK_REMOVED | BLOCK_TRANSIT | BLOCK_GRACE,
			 BLOCK_MAPPED | BLOCK_JMAPPED);
	s->nr_grace = 1;
	s->regions.jopen = 5;
	s->regions.dopen = 4;
	assert_null(hybrid_set_check(&map, 0));
	return s;
}

#define PLANT(what, want) do {						\
	const char *why;						\
	s = healthy();							\
	what;								\
	why = hybrid_set_check(&map, 0);				\
	spin_unlock(&s->lock);						\
	assert_non_null(why);						\
	assert_string_equal(why, want);					\
} while (0)

static void check_finds(void **state)
{
	struct hybrid_set *s;

	PLANT(set_put_mask(&map, s, MASK_DIRTY, 300, 1), "a block that is not mapped is dirty");
	PLANT(s->flags[5] |= BLOCK_REMOVED, "a block is mapped and removed");
	PLANT(s->key[5] = key_in(1, 0), "a block is in the wrong set");
	PLANT(s->key[5] = key_in(0, 6), "two blocks have one key, or a chain is broken");
	PLANT(s->key[5] = key_in(0, 200), "two blocks have one key, or a chain is broken");
	PLANT(memset(s->bucket, 0xff, 2 * map.nr_buckets),
	      "two blocks have one key, or a chain is broken");
	PLANT(set_put_mask(&map, s, MASK_DIRTY, 5, 0x100), "dirty is not within valid");
	PLANT(set_put_mask(&map, s, MASK_JDIRTY, 5, 0x100),
	      "recorded dirty is not within recorded valid");
	PLANT(set_put_mask(&map, s, MASK_VALID, 5, 0x1f), "an unrecorded change is not listed");
	PLANT(set_put_mask(&map, s, MASK_DIRTY, 6, 1), "an unrecorded change is not listed");
	PLANT(s->regions.must = 0, "an unrecorded change is not listed");
	PLANT(s->nr_mapped++, "a set's counts are wrong");
	PLANT(s->nr_dirty--, "a set's counts are wrong");
	PLANT(s->nr_free--, "a set's counts are wrong");
	PLANT(s->nr_grace = 0, "a set's counts are wrong");
	PLANT(s->nr_retired++, "a set's counts are wrong");
	PLANT((s->nr_retired++, s->nr_free--, s->next[s->free] = 5),
	      "a set's list of free blocks is wrong");
	PLANT(s->free = map.set_size, "a set's list of free blocks is wrong");
	PLANT(s->flags[300] = BLOCK_BUSY, "a set's counts are wrong");
	PLANT(s->regions.dopen = 2, "a region is durably open that was recorded closed");
}

/* A block whose I/O is under way needs no list. */
static void check_allows(void **state)
{
	struct hybrid_set *s = healthy();
	struct hlist_node write;

	set_put_mask(&map, s, MASK_VALID, 5, 0x1f);
	s->flags[5] |= BLOCK_BUSY;
	assert_null(hybrid_set_check(&map, 0));
	s->flags[5] &= ~BLOCK_BUSY;
	hlist_add_head(&write, &s->inflight);
	assert_null(hybrid_set_check(&map, 0));
	hlist_del(&write);
	assert_non_null(hybrid_set_check(&map, 0));
	s->regions.lazy = region_bit(5);
	assert_null(hybrid_set_check(&map, 0));
	spin_unlock(&s->lock);
}

/* ---- policies ------------------------------------------------------------ */

static bool not_yet(void *ctx, u32 i)
{
	return !((bool *)ctx)[i];
}

static void *state_of(u32 set)
{
	return set_policy_state(&map, map.set[set].policy, &map.set[set]);
}

static void set_policy(void **state)
{
	static const char *const names[] = { "lru", "fifo", "lru", "null", "lru" };
	const struct hybrid_policy_type *new;
	void *old = NULL;
	u32 n, k, set;
	int victim;

	map_open(128, 64 * MIB);
	for (n = 0; n < ARRAY_SIZE(names); n++) {
		new = hybrid_policy_get(names[n]);
		assert_int_equal(hybrid_map_set_policy(&map, new, &old), 0);
		assert_true(!old == !n);
		vfree(old);
		assert_true(map.policy_ram >= map.nr_sets * new->set_bytes(map.set_size));
		for (set = 0; !n && set < map.nr_sets; set++)
			for (k = 0; k < 200; k++) {
				u32 i = (k * 7 + set) % 200;

				spin_lock(&map.set[set].lock);
				/* every index up to 199 is taken, in order */
				hybrid_set_alloc(&map, &map.set[set], key_in(set, k));
				spin_unlock(&map.set[set].lock);
				new->insert(state_of(set), i, 0);
			}
		if (n > 2)
			continue;	/* null keeps no order */
		for (set = 0; set < map.nr_sets; set++) {
			bool taken[HYBRID_MAX_SET_SIZE] = { false };

			for (k = 0; k < 200; k++) {
				victim = new->victim(state_of(set), map.set_size, not_yet, taken);
				assert_int_equal(victim, (k * 7 + set) % 200);
				taken[victim] = true;
			}
			assert_int_equal(new->victim(state_of(set), map.set_size, not_yet, taken),
					 -1);
		}
	}
}

static u32 allocs, fail_at;

static bool fail_nth(size_t size, gfp_t gfp)
{
	return allocs++ == fail_at;
}

static void no_memory(void **state)
{
	const struct hybrid_policy_type *lru = hybrid_policy_get("lru");
	void *old, *before;
	u32 n;
	int r = -1;

	assert_int_equal(hybrid_geometry_init(&g, 64 * MIB, 128, 0, NULL), 0);
	shim_alloc_fails = fail_nth;
	for (n = 0; r; n++) {
		allocs = 0;
		fail_at = n;
		r = hybrid_map_create(&map, &g);
		if (r)
			assert_int_equal(r, -ENOMEM);
		if (!r)
			r = hybrid_map_set_policy(&map, lru, &old);
		if (r)
			assert_int_equal(r, -ENOMEM);
		if (r)
			hybrid_map_destroy(&map);	/* twice is harmless */
	}
	assert_int_equal(n, 4);
	/* a policy that cannot be: the old one stays */
	before = state_of(1);
	lru->insert(before, 3, 0);
	allocs = fail_at = 0;
	assert_int_equal(hybrid_map_set_policy(&map, hybrid_policy_get("fifo"), &old), -ENOMEM);
	assert_ptr_equal(state_of(1), before);
	assert_int_equal(lru->victim(before, 512, not_yet, (bool[512]){ false }), 3);
}

/* ---- against a naive model ----------------------------------------------- */

struct model_block {
	bool used, removed;
	u64 key, mask[NR_MASKS];
};

static int model_find(const struct model_block *m, u64 key)
{
	u32 i;

	for (i = 0; i < map.set_size; i++)
		if (m[i].used && m[i].key == key)
			return i;
	return -1;
}

static void same_as_model(struct hybrid_set *s, const struct model_block *m)
{
	u32 i, used = 0, mapped = 0;
	unsigned int k;

	for (i = 0; i < map.set_size; i++) {
		used += m[i].used;
		mapped += m[i].used && !m[i].removed;
		for (k = 0; k < NR_MASKS; k++)
			assert_true(set_mask(&map, s, k, i) == m[i].mask[k]);
	}
	assert_int_equal(s->nr_mapped, mapped);
	assert_int_equal(s->nr_free, map.set_size - used);
	s->regions.lazy = ~0ULL;
	assert_null(hybrid_set_check(&map, 0));
}

static void random_step(struct hybrid_set *s, struct model_block *m, const u64 *key, u32 nr_keys,
			u64 *seed)
{
	u64 k = key[random_below(seed, nr_keys)];
	u64 mask = next_random(seed) & next_random(seed) & map.granules;
	u32 what = random_below(seed, 100), n;
	int i = hybrid_set_find(&map, s, k);

	assert_int_equal(i, model_find(m, k));
	if (i < 0) {
		i = hybrid_set_alloc(&map, s, k);
		for (n = 0; n < map.set_size && m[n].used; n++)
			;
		assert_int_equal(i < 0, n == map.set_size);
		if (i < 0)
			return;
		assert_false(m[i].used);
		m[i] = (struct model_block){ .used = true, .key = k };
	} else if (what < 40) {
		m[i].mask[MASK_VALID] |= mask;
		set_put_mask(&map, s, MASK_VALID, i, m[i].mask[MASK_VALID]);
		m[i].mask[MASK_DIRTY] = m[i].mask[MASK_VALID] & next_random(seed);
		put_dirty(s, i, m[i].mask[MASK_DIRTY]);
	} else if (what < 60) {
		mask &= ~m[i].mask[MASK_DIRTY];
		hybrid_set_invalidate(&map, s, i, mask);
		m[i].mask[MASK_VALID] &= ~mask;
	} else if (what < 70) {
		m[i].removed = !m[i].removed;
		hybrid_set_flags(s, i, m[i].removed ? BLOCK_REMOVED : BLOCK_MAPPED,
				 m[i].removed ? BLOCK_MAPPED : BLOCK_REMOVED);
	} else if (what < 85) {
		hybrid_set_flags(s, i, BLOCK_REMOVED, BLOCK_MAPPED);
		put_dirty(s, i, 0);
		hybrid_set_unhash(&map, s, i);
		hybrid_set_free(&map, s, i);
		memset(&m[i], 0, sizeof(m[i]));
	}
	i = hybrid_set_find(&map, s, k);
	mask = next_random(seed) & next_random(seed) & next_random(seed) & map.granules;
	assert_int_equal(hybrid_set_read_hit(&map, s, k, mask),
			 i >= 0 && !m[i].removed && !(mask & ~m[i].mask[MASK_VALID]) ? i : -1);
}

static void as_the_model(void **state)
{
	static const u32 block[] = { 8, 128, 256, 2048 };
	u32 b, n, nr_keys;

	for (b = 0; b < ARRAY_SIZE(block); b++) {
		struct model_block *m;
		struct hybrid_set *s;
		u64 seed = b + 1, *key;

		map_open(block[b], 64 * MIB);
		nr_keys = map.set_size + map.set_size / 8 + 2;
		m = calloc(map.set_size, sizeof(*m));
		key = calloc(nr_keys, sizeof(*key));
		for (n = 0; n < nr_keys; n++) {
			u64 k = n ? key[n - 1] + 1 : 0;

			while (hybrid_map_set_of(&map, k))
				k++;
			key[n] = k;
		}
		s = lock_set(0);
		for (n = 0; n < 20000; n++) {
			random_step(s, m, key, nr_keys, &seed);
			if (n % 500 == 0)
				same_as_model(s, m);
		}
		same_as_model(s, m);
		spin_unlock(&s->lock);
		hybrid_map_destroy(&map);
		free(key);
		free(m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys),
		cmocka_unit_test(prints),
		cmocka_unit_test_teardown(keys_spread, teardown),
		cmocka_unit_test_teardown(alloc_find_free, teardown),
		cmocka_unit_test_teardown(retired_block, teardown),
		cmocka_unit_test_teardown(fresh_block, teardown),
		cmocka_unit_test_teardown(masks_of_every_width, teardown),
		cmocka_unit_test_teardown(tiny_sets, teardown),
		cmocka_unit_test_teardown(read_hit, teardown),
		cmocka_unit_test_teardown(sequence_count, teardown),
		cmocka_unit_test_teardown(chains_end, teardown),
		cmocka_unit_test_teardown(load, teardown),
		cmocka_unit_test_teardown(unrecorded, teardown),
		cmocka_unit_test_teardown(check_finds, teardown),
		cmocka_unit_test_teardown(check_allows, teardown),
		cmocka_unit_test_teardown(set_policy, teardown),
		cmocka_unit_test_teardown(no_memory, teardown),
		cmocka_unit_test_teardown(as_the_model, teardown),
	};

	return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
