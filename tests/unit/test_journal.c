// SPDX-License-Identifier: GPL-2.0-or-later
/* The journal: a ring in memory, written and replayed, whole and damaged. */
#include "unit.h"
#include "samples.h"
#include "journal.h"

#define RING 200	/* not a power of two */
#define MAX_BLOCKS (RING / 8)
#define LAST_PLACE (RING - MAX_BLOCKS)	/* an entry begins here or before */
#define MAX_ENTRIES 4096

static struct hybrid_geometry g;
static struct hybrid_ident id;
static struct hybrid_journal j;

/* The disk */
static u8 ring[RING][HYBRID_META_BLOCK_SIZE];
static int read_error_at;	/* which read fails; -1: none */
static u32 reads;

/* Entries written: entry k has number at[k] and records from first[k] on. */
static u64 at[MAX_ENTRIES], next_record;
static u64 first[MAX_ENTRIES + 1];
static u32 nr_entries;

/* Records that replay applied */
static u64 applied_first, applied_next;
static u32 fail_apply_at;
static bool apply_anything;

static int setup(void **state)
{
	assert_int_equal(hybrid_geometry_init(&g, 64 * MIB, 128, RING, NULL), 0);
	sample_ident(&id);
	assert_int_equal(hybrid_journal_create(&j, &g), 0);
	memset(ring, 0, sizeof(ring));
	nr_entries = 0;
	next_record = 1;
	first[0] = 1;
	read_error_at = -1;
	fail_apply_at = 0;
	apply_anything = false;
	return 0;
}

static int teardown(void **state)
{
	hybrid_journal_destroy(&j);
	shim_alloc_fails = NULL;
	return 0;
}

/* From here on it is as if the journal had always been at @n. */
static void start_at(u64 n)
{
	j.head = n;
	j.tail = n;
}

static u32 records_in(u32 blocks)
{
	return HYBRID_ENTRY_RECORDS(blocks);
}

/* Build an entry of @nr records, numbered through, and write it. */
static void put(u32 nr)
{
	u64 sector, n;
	u32 k;

	for (k = 0; k < nr; k++, next_record++) {
		assert_true(hybrid_journal_space(&j) || hybrid_journal_grow(&j, MAX_BLOCKS));
		if (k % 5 == 4)
			hybrid_journal_regions(&j, 1, next_record);
		else
			hybrid_journal_block(&j, to_cblock(next_record % g.nr_blocks), 7,
					     to_oblock(next_record), 3, 1, 2);
	}
	sector = hybrid_journal_seal(&j, &id, 0);
	n = j.place;
	assert_true(n >= j.head);
	assert_true(n % RING + j.blocks <= RING);
	assert_true(sector == g.journal_sector + n % RING * HYBRID_META_BLOCK_SECTORS);
	memcpy(ring[n % RING], j.entry, j.blocks * HYBRID_META_BLOCK_SIZE);
	at[nr_entries++] = n;
	assert_true(nr_entries < MAX_ENTRIES);
	first[nr_entries] = next_record;
	hybrid_journal_advance(&j);
	assert_true(j.head == n + j.blocks);
	/* The blocks that the entry grew by are given back. */
	assert_int_equal(hybrid_journal_space(&j), records_in(HYBRID_JOURNAL_KEPT_BLOCKS));
}

static void put_blocks(u32 blocks)
{
	put(records_in(blocks));
	assert_int_equal(j.blocks, blocks);
}

static void *block_of(u64 n)
{
	return ring[n % RING];
}

static int ring_read(void *context, u64 sector, u32 blocks, void *mem)
{
	u64 place = (sector - g.journal_sector) / HYBRID_META_BLOCK_SECTORS;

	assert_true(sector >= g.journal_sector);
	assert_int_equal((sector - g.journal_sector) % HYBRID_META_BLOCK_SECTORS, 0);
	assert_true(place + blocks <= RING);
	assert_in_range(blocks, 1, HYBRID_JOURNAL_ENTRY_BLOCKS);
	if ((int)reads++ == read_error_at)
		return -EIO;
	memcpy(mem, ring[place], blocks * HYBRID_META_BLOCK_SIZE);
	return 0;
}

static int apply(void *context, const struct hybrid_record *r)
{
	u64 n = le32_to_cpu(r->type) == HYBRID_RECORD_REGIONS ? le64_to_cpu(r->valid)
							      : le64_to_cpu(r->oblock);

	if (apply_anything)
		return 0;
	if (fail_apply_at && n == fail_apply_at)
		return -ENOMEM;
	if (!applied_first)
		applied_first = n;
	else
		assert_true(n == applied_next);
	applied_next = n + 1;
	return 0;
}

static const char *why;

/* Replay by a reader that knows only the contents of the root. */
static int replay_as(const struct hybrid_ident *ident, u64 tail, u64 head, u64 *end)
{
	struct hybrid_journal k;
	int r;

	assert_int_equal(hybrid_journal_create(&k, &g), 0);
	k.tail = tail;
	applied_first = 0;
	applied_next = 0;
	reads = 0;
	why = NULL;
	r = hybrid_journal_replay(&k, ident, head, ring_read, apply, NULL, &why);
	if (end)
		*end = k.head;
	hybrid_journal_destroy(&k);
	return r;
}

static int replay(u64 tail, u64 head)
{
	return replay_as(&id, tail, head, NULL);
}

/* From entry @from up to entry @to, not included: all of it, and it ends there. */
static void replays(u32 from, u32 to)
{
	u64 end, tail = from < nr_entries ? at[from] : j.head;

	assert_int_equal(replay_as(&id, tail, tail, &end), 0);
	if (from == to) {
		assert_true(!applied_first);
		assert_true(end == tail);
		return;
	}
	assert_true(applied_first == first[from]);
	assert_true(applied_next == first[to]);
}

#define BEHIND "the journal goes on behind a damaged entry"
#define NEWER "the journal goes on from a newer root"
#define ENDS "the journal ends before the last checkpoint"

static void damaged(u64 tail, u64 head, const char *want)
{
	assert_int_equal(replay(tail, head), strcmp(want, ENDS) ? -EBADMSG : -ENODATA);
	assert_non_null(why);
	assert_string_equal(why, want);
}


/* ---- sizes and room ------------------------------------------------------ */

static void create(void **state)
{
	static const struct { u32 blocks, max; } row[] = {
		{ 128, 16 }, { 256, 32 }, { 511, 63 }, { 512, 64 }, { 4096, 64 },
	};
	struct hybrid_geometry big;
	struct hybrid_journal k;
	u32 n;

	for (n = 0; n < ARRAY_SIZE(row); n++) {
		assert_int_equal(hybrid_geometry_init(&big, GIB, 128, row[n].blocks, NULL), 0);
		assert_int_equal(hybrid_journal_create(&k, &big), 0);
		assert_int_equal(k.max_blocks, row[n].max);
		assert_true(hybrid_journal_has_room(&k));
		assert_false(hybrid_journal_half_full(&k));
		assert_int_equal(hybrid_journal_space(&k),
				 records_in(HYBRID_JOURNAL_KEPT_BLOCKS));
		assert_true(hybrid_journal_grow(&k, k.max_blocks));
		assert_int_equal(hybrid_journal_space(&k), records_in(row[n].max));
		hybrid_journal_destroy(&k);
	}
}

static bool no_memory_at_all(size_t size, gfp_t gfp)
{
	return true;
}

static void no_memory(void **state)
{
	struct hybrid_journal k;

	shim_alloc_fails = no_memory_at_all;
	assert_int_equal(hybrid_journal_create(&k, &g), -ENOMEM);
	hybrid_journal_destroy(&k);
}

static void space(void **state)
{
	u32 most = records_in(MAX_BLOCKS), n;

	assert_true(hybrid_journal_grow(&j, MAX_BLOCKS));
	for (n = 0; n < most; n++) {
		assert_int_equal(hybrid_journal_space(&j), most - n);
		hybrid_journal_regions(&j, 0, 0);
	}
	assert_int_equal(hybrid_journal_space(&j), 0);
	hybrid_journal_seal(&j, &id, 0);
	assert_int_equal(j.blocks, MAX_BLOCKS);
	/* sealed again it is the same: nothing moved before it was durable */
	hybrid_journal_seal(&j, &id, 0);
	assert_int_equal(j.blocks, MAX_BLOCKS);
	assert_true(j.head == 0 && j.place == 0);
	hybrid_journal_advance(&j);
	assert_true(j.head == MAX_BLOCKS);
	assert_int_equal(hybrid_journal_space(&j), records_in(HYBRID_JOURNAL_KEPT_BLOCKS));
}

static size_t most_bytes;

static bool no_memory_for_more(size_t size, gfp_t gfp)
{
	assert_true(gfp == (GFP_NOWAIT | __GFP_NOWARN));
	return size > most_bytes;
}

/* An entry grows as far as there is memory, and keeps its records. */
static void grows(void **state)
{
	u32 kept = records_in(HYBRID_JOURNAL_KEPT_BLOCKS), n;

	for (n = 0; n < kept; n++)
		hybrid_journal_regions(&j, n, n);
	shim_alloc_fails = no_memory_for_more;
	most_bytes = (HYBRID_JOURNAL_KEPT_BLOCKS + 1) * HYBRID_META_BLOCK_SIZE - 1;
	assert_false(hybrid_journal_grow(&j, MAX_BLOCKS));
	assert_int_equal(hybrid_journal_space(&j), 0);
	most_bytes = MAX_BLOCKS / 2 * HYBRID_META_BLOCK_SIZE;
	assert_true(hybrid_journal_grow(&j, MAX_BLOCKS));
	shim_alloc_fails = NULL;
	assert_int_equal(hybrid_journal_space(&j), records_in(MAX_BLOCKS / 2) - kept);
	assert_false(hybrid_journal_grow(&j, MAX_BLOCKS));
	for (; n < records_in(MAX_BLOCKS / 2); n++)
		hybrid_journal_regions(&j, n, n);
	for (n = 0; n < records_in(MAX_BLOCKS / 2); n++)
		assert_true(le64_to_cpu(j.entry->record[n].valid) == n);
	hybrid_journal_seal(&j, &id, 0);
	assert_int_equal(j.blocks, MAX_BLOCKS / 2);
	hybrid_journal_advance(&j);
	assert_int_equal(hybrid_journal_space(&j), kept);
}

static void records(void **state)
{
	const struct hybrid_record *r;

	/* values that an earlier entry left in the buffer are not taken for a field */
	put(3);
	hybrid_journal_block(&j, to_cblock(9), 3, to_oblock(1ULL << 40), 7, 5, 2);
	hybrid_journal_block(&j, to_cblock(10), 0, to_oblock(77), 7, 5, 0);
	hybrid_journal_regions(&j, 1, 6);
	r = j.entry->record;
	assert_int_equal(le32_to_cpu(r[0].type), HYBRID_RECORD_BLOCK);
	assert_int_equal(le32_to_cpu(r[0].where), 9);
	assert_int_equal(le32_to_cpu(r[0].instance), 3);
	assert_int_equal(le32_to_cpu(r[0].hint), 0);
	assert_true(le64_to_cpu(r[0].oblock) == 1ULL << 40);
	assert_int_equal(le64_to_cpu(r[0].valid), 7);
	assert_int_equal(le64_to_cpu(r[0].dirty), 5);
	assert_int_equal(le32_to_cpu(r[1].where), 10);
	assert_true(!r[1].instance && !r[1].oblock && !r[1].valid && !r[1].dirty);
	assert_int_equal(le32_to_cpu(r[2].type), HYBRID_RECORD_REGIONS);
	assert_int_equal(le32_to_cpu(r[2].where), 1);
	assert_int_equal(le64_to_cpu(r[2].valid), 6);
	assert_true(!r[2].instance && !r[2].oblock && !r[2].dirty);
}

static void half_full(void **state)
{
	while (j.head < RING / 2) {
		put_blocks(10);
		assert_int_equal(hybrid_journal_half_full(&j), j.head > RING / 2);
	}
	assert_true(j.head == RING / 2);
	put(1);
	assert_true(hybrid_journal_half_full(&j));
	j.tail = 2;
	assert_false(hybrid_journal_half_full(&j));
}

/* There is room if the largest entry fits, and the gap before it where it wraps. */
static void has_room(void **state)
{
	u32 n;

	for (n = 0; n < RING / MAX_BLOCKS; n++) {
		assert_true(hybrid_journal_has_room(&j));
		put_blocks(MAX_BLOCKS);
	}
	assert_true(j.head == RING);
	assert_false(hybrid_journal_has_room(&j));
	j.tail = MAX_BLOCKS - 1;
	assert_false(hybrid_journal_has_room(&j));
	j.tail = MAX_BLOCKS;
	assert_true(hybrid_journal_has_room(&j));
	/* one block too far: the rest of the ring is lost to the gap */
	start_at(10 * RING + RING - MAX_BLOCKS + 1);
	j.tail = j.head - (RING - MAX_BLOCKS) + MAX_BLOCKS - 2;
	assert_false(hybrid_journal_has_room(&j));
	j.tail++;
	assert_true(hybrid_journal_has_room(&j));
	put_blocks(MAX_BLOCKS);
	assert_true(at[nr_entries - 1] == 11 * RING);
}

/* ---- round trips --------------------------------------------------------- */

static void empty(void **state)
{
	u64 end;

	assert_int_equal(replay_as(&id, 0, 0, &end), 0);
	assert_true(end == 0 && !applied_first);
	assert_int_equal(replay_as(&id, 12345, 12345, &end), 0);
	assert_true(end == 12345 && !applied_first);
	put(0);		/* an entry without records is one all the same */
	assert_int_equal(replay_as(&id, 0, 1, &end), 0);
	assert_true(end == 1 && !applied_first);
}

/*
 * Entries of all sizes, round and round; the tail follows at random.  Replay applies the records
 * written since the tail, never more or less.
 */
static void round_and_round(void **state)
{
	u64 seed = 3, lap = 0;
	u32 tail = 0, gaps = 0;

	start_at(7 * RING - 3);
	while (nr_entries < MAX_ENTRIES - 1) {
		u32 blocks = random_below(&seed, 3) ? 1 + random_below(&seed, 3)
						    : 1 + random_below(&seed, MAX_BLOCKS);
		u64 head = j.head;

		if (!hybrid_journal_has_room(&j)) {
			/* it says so only when it is true */
			assert_true(j.head - j.tail + 2 * MAX_BLOCKS > RING);
			tail += 1 + random_below(&seed, nr_entries - tail);
			j.tail = tail < nr_entries ? at[tail] : j.head;
			if (!hybrid_journal_has_room(&j))
				continue;
		}
		put(records_in(blocks) - random_below(&seed, 90));
		gaps += at[nr_entries - 1] != head;
		lap += j.head % RING < head % RING;
		assert_true(j.head - j.tail <= RING);
		if (nr_entries % 8 == 0)
			replays(tail, nr_entries);
	}
	assert_true(lap > 50 && gaps > 20);
	replays(tail, nr_entries);
}

/* The head that the root knows is a promise, not a limit. */
static void beyond_the_root(void **state)
{
	u64 end;

	put(1);
	put_blocks(3);
	put(1);
	assert_int_equal(replay_as(&id, 0, at[1], &end), 0);
	assert_true(end == j.head && applied_next == next_record);
	assert_int_equal(replay_as(&id, 0, j.head, &end), 0);
	damaged(0, j.head + 1, ENDS);
}

static void twice_is_the_same(void **state)
{
	u32 n;

	for (n = 0; n < 20; n++)
		put(n * 7);
	replays(0, 20);
	replays(0, 20);
	replays(13, 20);
	replays(20, 20);
}

/* ---- ends ---------------------------------------------------------------- */

/* A last entry with any of its parts missing is ignored, quietly. */
static void torn_last(void **state)
{
	static u8 whole[3 * HYBRID_META_BLOCK_SIZE];
	u64 last;
	u32 sector, kind;

	put(5);
	put_blocks(2);
	put_blocks(3);
	last = at[2];
	memcpy(whole, block_of(last), sizeof(whole));
	for (kind = 0; kind < 3; kind++)
		for (sector = 0; sector < 24; sector++) {
			u8 *p = (u8 *)block_of(last) + 512 * sector;

			memcpy(block_of(last), whole, sizeof(whole));
			/* this sector, all from it on, all up to it */
			if (kind == 2)
				memset(block_of(last), 0, 512 * (sector + 1));
			else
				memset(p, 0x33, kind ? (24 - sector) * 512 : 512);
			replays(0, 2);
			assert_int_equal(replay(0, last), 0);
			/* but not if the root has seen it */
			damaged(0, last + 1, ENDS);
		}
	memcpy(block_of(last), whole, sizeof(whole));
	replays(0, 3);
}

static void ends_before_head(void **state)
{
	u32 n;

	for (n = 0; n < 5; n++)
		put(100);
	memset(block_of(at[4]), 0, HYBRID_META_BLOCK_SIZE);
	assert_int_equal(replay(0, at[4]), 0);
	damaged(0, j.head, ENDS);
	memset(ring, 0, sizeof(ring));
	damaged(0, 1, ENDS);
	assert_int_equal(replay(0, 0), 0);
}

/*
 * An entry in the middle was lost, or is another, or is damaged: the entries after it give this
 * away.
 */
static void lost_in_the_middle(void **state)
{
	u8 saved[HYBRID_META_BLOCK_SIZE];
	u32 n, k;

	start_at(3 * RING);
	for (n = 0; n < 12; n++)
		put_blocks(1 + n % 3);
	for (n = 0; n < 11; n++)
		for (k = 0; k < 3; k++) {
			u8 *p = block_of(at[n]);

			memcpy(saved, p, sizeof(saved));
			if (k == 0)
				memset(p, 0, sizeof(saved));
			else if (k == 1)
				p[64 + 40 * n] ^= 1;
			else
				memcpy(p, block_of(at[11]), sizeof(saved));
			damaged(at[0], at[0], BEHIND);
			memcpy(p, saved, sizeof(saved));
		}
	replays(0, 12);
	/* the second block of a larger one */
	((u8 *)block_of(at[4] + 1))[9] ^= 0x40;
	damaged(at[0], at[0], BEHIND);
}

/* A write of this lap was lost: the last lap's entry stands there, whole. */
static void lost_shows_last_lap(void **state)
{
	u8 saved[HYBRID_META_BLOCK_SIZE];
	u32 n, lap;

	for (n = 0; n <= LAST_PLACE; n++)
		put(10);
	lap = nr_entries;
	j.tail = j.head;
	for (n = 0; n < 10; n++) {
		if (n == 4)
			memcpy(saved, block_of(4), sizeof(saved));
		put(10);
	}
	assert_true(at[lap] == RING);
	replays(lap, lap + 10);
	memcpy(block_of(4), saved, sizeof(saved));
	damaged(RING, RING, BEHIND);
	damaged(RING, RING + 4, BEHIND);
	damaged(RING, RING + 5, ENDS);
}

/* Far behind, and across the end of the ring. */
static void lost_long_ago(void **state)
{
	u64 tail = LAST_PLACE - 20;
	u32 n;

	start_at(tail);
	for (n = 0; n <= LAST_PLACE; n++)
		put(1);
	assert_true(j.head == tail + RING);
	for (n = 0; n < LAST_PLACE; n++)
		memset(block_of(at[n]), 0, HYBRID_META_BLOCK_SIZE);
	damaged(tail, tail, BEHIND);
	memset(block_of(at[n]), 0, HYBRID_META_BLOCK_SIZE);
	assert_int_equal(replay(tail, tail), 0);
}

/* ---- the end of the ring ------------------------------------------------- */

/* Where the largest entry would wrap, none begins, however small. */
static void begins(void **state)
{
	u32 place, blocks;

	for (place = LAST_PLACE - 2; place < RING; place++)
		for (blocks = 1; blocks <= MAX_BLOCKS; blocks += 8) {
			nr_entries = 0;
			start_at(4 * RING + place);
			put_blocks(blocks);
			assert_true(at[0] == (place <= LAST_PLACE ? 4 * RING + place : 5 * RING));
		}
}

/*
 * The last entry before the wrap was lost: the entry at the start of the ring does not make a gap
 * of it.
 */
static void lost_before_the_wrap(void **state)
{
	u32 blocks, n;

	for (blocks = 1; blocks <= MAX_BLOCKS; blocks++) {
		start_at((2 * blocks + 1) * RING + LAST_PLACE - 2);
		nr_entries = 0;
		first[0] = next_record;
		put_blocks(2);
		put_blocks(blocks);
		put_blocks(2);
		put_blocks(1);
		assert_true(at[1] % RING == LAST_PLACE && at[2] % RING == 0);
		replays(0, 4);
		for (n = 0; n < 3; n++) {
			u8 *p = block_of(at[n]);

			p[100] ^= 1;
			damaged(at[0], at[0], BEHIND);
			if (n)
				damaged(at[1], at[1], BEHIND);
			p[100] ^= 1;
		}
	}
}

static void gap(void **state)
{
	u64 n;
	u32 room;

	for (room = 1; room < MAX_BLOCKS; room++) {
		hybrid_journal_destroy(&j);
		setup(NULL);
		/* the gap is full of blocks that look like entries of the last lap */
		for (n = 0; n < RING; n++) {
			hybrid_entry_seal(j.entry, &id, n, 0, 0);
			memcpy(ring[n], j.entry, HYBRID_META_BLOCK_SIZE);
		}
		start_at(RING + LAST_PLACE - room);
		put_blocks(MAX_BLOCKS);
		put_blocks(1 + room / 2);
		put_blocks(1);
		assert_true(at[1] == 2 * RING);
		replays(0, 3);
		replays(1, 3);
		/* the tail may point at the gap, too: it was the head */
		assert_int_equal(replay(2 * RING - room, 2 * RING - room), 0);
		assert_true(applied_first == first[1] && applied_next == first[3]);
		/* the entry behind the gap is the last, and torn */
		memset(block_of(at[2]), 0, HYBRID_META_BLOCK_SIZE);
		((u8 *)block_of(at[1]))[100] ^= 1;
		replays(0, 1);
	}
}

/* ---- others, hostile ----------------------------------------------------- */

static void other_epoch(void **state)
{
	struct hybrid_ident other = id;
	u32 n;

	for (n = 0; n < 6; n++)
		put(50);
	/* By the root of another life: the one of these entries is lost. */
	other.epoch++;
	assert_int_equal(replay_as(&other, 0, 0, NULL), -ESTALE);
	assert_string_equal(why, NEWER);
	assert_true(!applied_first);
	assert_int_equal(replay_as(&other, j.head - 1, 0, NULL), -ESTALE);
	assert_int_equal(replay_as(&other, j.head, 0, NULL), 0);
	other = id;
	other.pool_uuid[15] ^= 1;
	assert_int_equal(replay_as(&other, 0, 0, NULL), 0);
	assert_true(!applied_first);
	/* The next life goes on where the last one ended. */
	id.epoch++;
	put(50);
	put(50);
	replays(6, 8);
	other = id;
	other.epoch--;
	assert_int_equal(replay_as(&other, 0, at[6], NULL), -ESTALE);
	assert_string_equal(why, NEWER);
	assert_true(applied_next == first[6]);
}

static void seal_again(void *block, u32 blocks)
{
	struct hybrid_block_header *h = block;

	h->crc = cpu_to_le32(hybrid_crc(block, blocks * HYBRID_META_BLOCK_SIZE,
					offsetof(struct hybrid_block_header, crc)));
}

#define HOSTILE(change, r) do {						\
	struct hybrid_journal_entry *e = block_of(at[1]);		\
	memcpy(saved, e, sizeof(saved));				\
	change;								\
	seal_again(e, 2);						\
	assert_int_equal(replay(0, 0), r);				\
	assert_true(applied_next == first[1]);				\
	memcpy(e, saved, sizeof(saved));				\
} while (0)

/* Checksums right, all else wrong. */
static void hostile(void **state)
{
	static u8 saved[2 * HYBRID_META_BLOCK_SIZE];

	put(20);
	put_blocks(2);
	/* its size cannot be: it is no entry, and nothing follows */
	HOSTILE(e->header.count = cpu_to_le32(~0), 0);
	HOSTILE(e->header.count = cpu_to_le32(0x66666667), 0);
	HOSTILE(e->header.blocks = cpu_to_le32(~0), 0);
	HOSTILE(e->header.blocks = 0, 0);
	HOSTILE(e->header.blocks = cpu_to_le32(HYBRID_JOURNAL_ENTRY_BLOCKS + 1);
		e->header.count = cpu_to_le32(records_in(HYBRID_JOURNAL_ENTRY_BLOCKS + 1)), 0);
	/* larger than the blocks present: its checksum covers other blocks */
	HOSTILE(e->header.blocks = cpu_to_le32(HYBRID_JOURNAL_ENTRY_BLOCKS);
		e->header.count = cpu_to_le32(records_in(HYBRID_JOURNAL_ENTRY_BLOCKS)), 0);
	/* it is an entry, and lies: none of it is applied */
	HOSTILE(e->record[7].type = 0, -EINVAL);
	HOSTILE(e->record[0].where = cpu_to_le32(g.nr_blocks), -EINVAL);
	HOSTILE(e->record[4].where = cpu_to_le32(g.nr_sets), -EINVAL);
	HOSTILE(e->record[4].valid = cpu_to_le64(~0ULL), -EINVAL);
	HOSTILE(e->record[0].valid = cpu_to_le64(1 << 16), -EINVAL);
	HOSTILE(e->record[0].dirty = cpu_to_le64(4), -EINVAL);
	HOSTILE(e->record[0].oblock = cpu_to_le64(~0ULL), -EINVAL);
	HOSTILE(e->record[150].hint = cpu_to_le32(256), -EINVAL);
	replays(0, 2);
}

/* An entry that claims to reach over the end of the ring. */
static void hostile_over_the_end(void **state)
{
	struct hybrid_journal_entry *e;

	start_at(LAST_PLACE - 1);
	put_blocks(1);
	put_blocks(1);
	assert_true(at[1] == LAST_PLACE);
	e = block_of(at[1]);
	e->header.blocks = cpu_to_le32(MAX_BLOCKS + 1);
	e->header.count = cpu_to_le32(records_in(MAX_BLOCKS + 1));
	seal_again(e, 1);
	replays(0, 1);
}

/* Any bits, with good checksums: no crash, nothing but clean ends or a complaint. */
static void hostile_at_random(void **state)
{
	static u8 saved[2 * HYBRID_META_BLOCK_SIZE];
	u64 seed = 11;
	u32 n, k;

	put(20);
	put_blocks(2);
	for (n = 0; n < 3000; n++) {
		u8 *p = block_of(at[1]);
		int r;

		memcpy(saved, p, sizeof(saved));
		for (k = random_below(&seed, 4); k < 4; k++)
			p[random_below(&seed, n % 2 ? 64 : sizeof(saved))] =
				next_random(&seed) >> 32;
		seal_again(p, 2);
		/* within their bounds, fields may say anything */
		apply_anything = true;
		r = replay(0, 0);
		assert_true(r == 0 || r == -EINVAL || r == -EBADMSG || r == -ESTALE);
		memcpy(p, saved, sizeof(saved));
	}
}

/* ---- errors -------------------------------------------------------------- */

static void errors(void **state)
{
	u32 all, n;

	for (n = 0; n < 5; n++)
		put_blocks(1 + n % 2);
	reads = 0;
	assert_int_equal(replay(0, 0), 0);
	all = reads;
	/* all of the ring, and not an entry at a time */
	assert_in_range(all, RING / HYBRID_JOURNAL_ENTRY_BLOCKS, RING / HYBRID_JOURNAL_ENTRY_BLOCKS + 1);
	for (n = 0; n < all; n++) {
		read_error_at = n;
		assert_int_equal(replay(0, 0), -EIO);
	}
	read_error_at = -1;
	fail_apply_at = first[3] + 1;
	assert_int_equal(replay(0, 0), -ENOMEM);
	assert_true(applied_next == fail_apply_at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(create, setup, teardown),
		cmocka_unit_test_setup_teardown(no_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(space, setup, teardown),
		cmocka_unit_test_setup_teardown(grows, setup, teardown),
		cmocka_unit_test_setup_teardown(records, setup, teardown),
		cmocka_unit_test_setup_teardown(half_full, setup, teardown),
		cmocka_unit_test_setup_teardown(has_room, setup, teardown),
		cmocka_unit_test_setup_teardown(empty, setup, teardown),
		cmocka_unit_test_setup_teardown(round_and_round, setup, teardown),
		cmocka_unit_test_setup_teardown(beyond_the_root, setup, teardown),
		cmocka_unit_test_setup_teardown(twice_is_the_same, setup, teardown),
		cmocka_unit_test_setup_teardown(torn_last, setup, teardown),
		cmocka_unit_test_setup_teardown(ends_before_head, setup, teardown),
		cmocka_unit_test_setup_teardown(lost_in_the_middle, setup, teardown),
		cmocka_unit_test_setup_teardown(lost_shows_last_lap, setup, teardown),
		cmocka_unit_test_setup_teardown(lost_long_ago, setup, teardown),
		cmocka_unit_test_setup_teardown(begins, setup, teardown),
		cmocka_unit_test_setup_teardown(lost_before_the_wrap, setup, teardown),
		cmocka_unit_test_setup_teardown(gap, setup, teardown),
		cmocka_unit_test_setup_teardown(other_epoch, setup, teardown),
		cmocka_unit_test_setup_teardown(hostile, setup, teardown),
		cmocka_unit_test_setup_teardown(hostile_over_the_end, setup, teardown),
		cmocka_unit_test_setup_teardown(hostile_at_random, setup, teardown),
		cmocka_unit_test_setup_teardown(errors, setup, teardown),
	};

	return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
