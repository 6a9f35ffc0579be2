// SPDX-License-Identifier: GPL-2.0-or-later
#include "unit.h"
#include "policy.h"
#include "../../dm-hybrid/policy/ghost.h"

struct set {
	const struct hybrid_policy_type *type;
	void *state;
	u32 size;
};

static void set_open(struct set *s, const char *policy, u32 size)
{
	size_t bytes;

	s->type = hybrid_policy_get(policy);
	assert_non_null(s->type);
	s->size = size;
	bytes = s->type->set_bytes(size);
	assert_int_equal(bytes % 8, 0);
	/* exactly as much as it asked for, so that the sanitizer sees more */
	s->state = calloc(1, bytes);
	assert_non_null(s->state);
	s->type->init(s->state, size);
}

static void set_close(struct set *s)
{
	free(s->state);
	hybrid_policy_put(s->type);
}

/* The naive model: an array, first to evict first. */
struct model {
	u32 nr;
	u32 block[HYBRID_MAX_SET_SIZE];
};

static int model_find(const struct model *m, u32 i)
{
	u32 n;

	for (n = 0; n < m->nr; n++)
		if (m->block[n] == i)
			return n;
	return -1;
}

static bool model_remove(struct model *m, u32 i)
{
	int n = model_find(m, i);

	if (n < 0)
		return false;
	m->nr--;
	memmove(&m->block[n], &m->block[n + 1], (m->nr - n) * sizeof(m->block[0]));
	return true;
}

static void model_append(struct model *m, u32 i)
{
	model_remove(m, i);
	m->block[m->nr++] = i;
}

/* A block is usable unless its bit is set. */
struct choice {
	bool busy[HYBRID_MAX_SET_SIZE];
	u32 asked;
};

static bool usable(void *ctx, u32 i)
{
	struct choice *c = ctx;

	c->asked++;
	return !c->busy[i];
}

static int model_victim(const struct model *m, u32 scan, const struct choice *c)
{
	u32 n;

	for (n = 0; n < m->nr && n < scan; n++)
		if (!c->busy[m->block[n]])
			return m->block[n];
	return -1;
}

/* The whole order, read with victim alone. */
static void check_order(struct set *s, const struct model *m)
{
	struct choice c = { 0 };
	u32 n;

	for (n = 0; n < m->nr; n++) {
		assert_int_equal(s->type->victim(s->state, s->size, usable, &c), m->block[n]);
		c.busy[m->block[n]] = true;
	}
	assert_int_equal(s->type->victim(s->state, s->size, usable, &c), -1);
}

static void check_hints(struct set *s, const struct model *m)
{
	u32 slack = m->nr / 8 + 1 + m->nr / 256 + 1;
	u8 hint[HYBRID_MAX_SET_SIZE];
	u32 n, k;

	for (n = 0; n < m->nr; n++)
		hint[n] = s->type->hint(s->state, m->block[n]);
	for (n = 0; n < m->nr; n++)
		for (k = n + slack; k < m->nr; k++)
			assert_true(hint[n] <= hint[k]);
	if (m->nr > 16)
		assert_true(hint[0] < hint[m->nr - 1]);
}

/*
 * Random operations.  @hits_move: a hit makes a block the last.  At most 64 hits in a row, the
 * number that LRU promises to keep.
 */
static void random_ops(const char *policy, u32 size, bool hits_move, u64 seed)
{
	struct model m = { 0 };
	struct set s;
	u32 op, hits = 0;

	set_open(&s, policy, size);
	for (op = 0; op < 20000; op++) {
		u32 what = random_below(&seed, 100), i = random_below(&seed, size), n;
		struct choice c = { 0 };
		int victim;

		if (what < 60 && hits < 64) {
			s.type->hit(s.state, i);
			hits++;
			if (hits_move && model_find(&m, i) >= 0)
				model_append(&m, i);
			continue;
		}
		hits = 0;
		if (what < 80) {
			if (hits_move || model_find(&m, i) < 0)
				model_append(&m, i);
			s.type->insert(s.state, i, 0);
		} else if (what < 90) {
			model_remove(&m, i);
			s.type->remove(s.state, i, 0, true);
		} else if (what < 99) {
			u32 scan = random_below(&seed, size + 4);

			for (n = 0; n < size; n++)
				c.busy[n] = random_below(&seed, 2);
			victim = s.type->victim(s.state, scan, usable, &c);
			assert_int_equal(victim, model_victim(&m, scan, &c));
			assert_true(c.asked <= scan);
		} else {
			check_order(&s, &m);
			check_hints(&s, &m);
		}
	}
	check_order(&s, &m);
	set_close(&s);
}

static const u32 sizes[] = { 1, 2, 3, 7, 8, 16, 120, 504, 512 };

static void lru_is_lru(void **state)
{
	u32 n;

	for (n = 0; n < ARRAY_SIZE(sizes); n++)
		random_ops("lru", sizes[n], true, n + 1);
}

static void fifo_is_fifo(void **state)
{
	u32 n;

	for (n = 0; n < ARRAY_SIZE(sizes); n++)
		random_ops("fifo", sizes[n], false, n + 1);
}

/*
 * The newest hits count in their order, the others in the order that was; also
 * where the counters wrap.
 */
static void lru_ring_overflow(void **state)
{
	struct model m = { 0 }, before;
	u32 i, n, round, hit;
	struct set s;

	set_open(&s, "lru", 512);
	for (i = 0; i < 512; i++) {
		s.type->insert(s.state, i, 0);
		model_append(&m, i);
	}
	for (round = 0; round < 400; round++) {
		for (i = 0; i < 300; i++)
			s.type->hit(s.state, (round + i * 7) % 512);
		before = m;
		for (n = 0; n < 512; n++)
			for (hit = 0; hit < 236; hit++)
				if ((round + hit * 7) % 512 == before.block[n])
					model_append(&m, before.block[n]);
		for (i = 236; i < 300; i++)
			model_append(&m, (round + i * 7) % 512);
		check_order(&s, &m);
	}
	set_close(&s);
}

static const struct {
	const char *name;
	u32 tenths;		/* of a byte for each block */
	bool keeps_loop;	/* a part of a loop that is too large */
	bool withstands_scan;
} policies[] = {
	{ "lru", 54, false, false },
	{ "fifo", 41, false, false },
	{ "null", 2, false, false },
	{ "c2q", 75, true, true },
	{ "s3fifo", 75, true, true },
	{ "sieve", 51, false, true },
	{ "arc", 76, false, true },
};

/* Some hits of a block are news, then no more. */
static void repeated_hit_is_free(void **state)
{
	u32 p, n;

	for (p = 0; p < ARRAY_SIZE(policies); p++) {
		size_t bytes;
		struct set s;
		void *before;

		set_open(&s, policies[p].name, 8);
		bytes = s.type->set_bytes(8);
		before = malloc(bytes);
		s.type->insert(s.state, 3, 0);
		for (n = 0; n < 3; n++)
			s.type->hit(s.state, 3);
		memcpy(before, s.state, bytes);
		s.type->hit(s.state, 3);
		assert_memory_equal(before, s.state, bytes);
		free(before);
		set_close(&s);
	}
}

static void state_is_small(void **state)
{
	u32 p;

	for (p = 0; p < ARRAY_SIZE(policies); p++)
		assert_true(hybrid_policy_get(policies[p].name)->set_bytes(512) * 10 <=
			    policies[p].tenths * 512);
}

/* ---- a set as a cache ------------------------------------------------------ */

struct cache {
	struct set s;
	u32 nr;
	u64 key[HYBRID_MAX_SET_SIZE];
};

static u32 print(u64 key)
{
	return (u32)(key * 2654435761U) ^ 0x5bd1e995;
}

static int cache_find(const struct cache *c, u64 key)
{
	u32 i;

	for (i = 0; i < c->nr; i++)
		if (c->key[i] == key)
			return i;
	return -1;
}

static bool cache_access(struct cache *c, u64 key)
{
	struct choice all = { 0 };
	int i = cache_find(c, key);

	if (i >= 0) {
		c->s.type->hit(c->s.state, i);
		return true;
	}
	i = c->nr;
	if (c->nr < c->s.size) {
		c->nr++;
	} else {
		i = c->s.type->victim(c->s.state, c->s.size, usable, &all);
		assert_in_range(i, 0, c->s.size - 1);
		c->s.type->remove(c->s.state, i, print(c->key[i]), true);
	}
	c->key[i] = key;
	c->s.type->insert(c->s.state, i, print(key));
	return false;
}

/* A loop of twice the cache: a policy that cannot hold it all should hold a part. */
static void loops(void **state)
{
	u32 p, n, hits;

	for (p = 0; p < ARRAY_SIZE(policies); p++) {
		struct cache c = { .nr = 0 };

		set_open(&c.s, policies[p].name, 256);
		if (c.s.type->admit) {
			for (n = 0; n < 512; n++)
				cache_access(&c, n);
			for (n = hits = 0; n < 10 * 512; n++)
				hits += cache_access(&c, n % 512);
			if (policies[p].keeps_loop)
				assert_true(hits > 10 * 256 * 8 / 10);
			else
				assert_int_equal(hits, 0);
		}
		set_close(&c.s);
	}
}

/* Half a cache that is in use, then a scan of ten caches: what is left? */
static void scans(void **state)
{
	u32 p, n, hits;

	for (p = 0; p < ARRAY_SIZE(policies); p++) {
		struct cache c = { .nr = 0 };

		set_open(&c.s, policies[p].name, 256);
		for (n = 0; c.s.type->admit && n < 10 * 256; n++) {
			if (n % 2)
				cache_access(&c, 1000 + n);
			else
				cache_access(&c, n / 2 % 100);
		}
		for (n = 0; c.s.type->admit && n < 10 * 256; n++)
			cache_access(&c, 100000 + n);
		for (n = hits = 0; n < 100; n++)
			hits += cache_find(&c, n) >= 0;
		if (policies[p].withstands_scan)
			assert_true(hits >= 80);
		else
			assert_int_equal(hits, 0);
		set_close(&c.s);
	}
}

/* An evicted block that is asked for again stays longer than a new one. */
static void ghosts(void **state)
{
	static const char * const names[] = { "c2q", "s3fifo", "arc" };
	u32 p, n, known;

	for (p = 0; p < ARRAY_SIZE(names); p++) {
		struct cache c = { .nr = 0 };

		set_open(&c.s, names[p], 256);
		for (n = 0; n < 256; n++)
			cache_access(&c, n);
		for (n = 0; n < 128; n++)
			cache_access(&c, n);
		for (n = 256; n < 400; n++)
			cache_access(&c, n);
		for (n = 399; cache_find(&c, n) >= 0; n--)
			;
		assert_in_range(n, 256, 399);
		cache_access(&c, n);
		cache_access(&c, n + 10000);
		/* one of each, and a scan */
		for (u32 k = 1000; k < 1600; k++)
			cache_access(&c, k);
		assert_true(cache_find(&c, n) >= 0);
		assert_true(cache_find(&c, n + 10000) < 0);
		/* refused once, wanted the second time; of all that was refused, the newest */
		assert_false(c.s.type->ghost_hit(c.s.state, print(77)));
		assert_true(c.s.type->ghost_hit(c.s.state, print(77)));
		/* prints are short: some seem to be known */
		for (u32 k = known = 0; k < 2000; k++)
			known += c.s.type->ghost_hit(c.s.state, print(100000000 + k));
		assert_true(known < 40);
		assert_true(c.s.type->ghost_hit(c.s.state, print(100000000 + 1999)));
		assert_false(c.s.type->ghost_hit(c.s.state, print(77)));
		set_close(&c.s);
	}
}

/* The newest half is known, and nothing older than both tables hold. */
static void fingerprints(void **state)
{
	static const u32 sizes[] = { 0, 1, 2, 7, 460 };
	u32 s, n, k, most;

	for (s = 0; s < ARRAY_SIZE(sizes); s++) {
		struct hybrid_ghost *g = calloc(1, hybrid_ghost_bytes(sizes[s]));

		assert_non_null(g);
		hybrid_ghost_init(g, sizes[s]);
		most = sizes[s] / 2 + 1;
		for (n = 0; n < 5 * most + 3; n++) {
			/* odd, so that no two of 65536 are the same */
			assert_null(hybrid_ghost_find(g, n * 40503));
			hybrid_ghost_add(g, n * 40503);
			for (k = 0; k <= n; k++) {
				bool known = hybrid_ghost_find(g, (n - k) * 40503);

				assert_true(known || k >= most);
				assert_true(!known || k < 2 * most);
			}
		}
		/* what comes back is forgotten, and its neighbours in the table are not */
		for (k = 0; k < most; k += 2)
			*hybrid_ghost_find(g, (n - 1 - k) * 40503) = GHOST_FORGOTTEN;
		for (k = 0; k < most; k++)
			assert_true(!hybrid_ghost_find(g, (n - 1 - k) * 40503) == !(k % 2));
		free(g);
	}
}

/* A victim is one that may go, if there is any; in the end all have gone. */
static void victims(void **state)
{
	u32 p, z, op, i;

	for (p = 0; p < ARRAY_SIZE(policies); p++) {
		for (z = 0; z < ARRAY_SIZE(sizes); z++) {
			u32 size = sizes[z], nr = 0;
			bool has[HYBRID_MAX_SET_SIZE] = { 0 };
			u64 seed = z + 100 * p + 1;
			struct choice c;
			struct set s;

			set_open(&s, policies[p].name, size);
			for (op = 0; op < 5000; op++) {
				u32 what = random_below(&seed, 100), free = 0;
				int victim;

				i = random_below(&seed, size);
				if (what < 50) {
					s.type->hit(s.state, i);
				} else if (what < 70 && !has[i]) {
					s.type->insert(s.state, i, random_below(&seed, 2 * size));
					has[i] = true;
				} else if (what < 74 && has[i]) {
					s.type->remove(s.state, i, 5, what < 72);
					has[i] = false;
				} else if (what < 80 && s.type->ghost_hit) {
					s.type->ghost_hit(s.state, random_below(&seed, 2 * size));
				} else if (what >= 80) {
					for (i = 0; i < size; i++) {
						c.busy[i] = random_below(&seed, 4);
						free += has[i] && !c.busy[i];
					}
					victim = s.type->victim(s.state, size, usable, &c);
					assert_int_equal(victim >= 0, free > 0);
					if (victim < 0)
						continue;
					assert_true(has[victim] && !c.busy[victim]);
					s.type->remove(s.state, victim, 5 + victim, true);
					has[victim] = false;
				}
			}
			memset(&c, 0, sizeof(c));
			for (i = nr = 0; i < size; i++)
				nr += has[i];
			while (nr--) {
				int victim = s.type->victim(s.state, size, usable, &c);

				assert_true(victim >= 0 && has[victim]);
				s.type->remove(s.state, victim, 0, true);
				has[victim] = false;
			}
			assert_int_equal(s.type->victim(s.state, size, usable, &c), -1);
			set_close(&s);
		}
	}
}

/* All are hit again and again, and one has to go. */
static void all_hot(void **state)
{
	u32 p, n, i;

	for (p = 0; p < ARRAY_SIZE(policies); p++) {
		struct choice c = { 0 };
		struct set s;

		set_open(&s, policies[p].name, 512);
		for (i = 0; i < 512; i++)
			s.type->insert(s.state, i, i);
		for (n = 0; n < 5; n++)
			for (i = 0; i < 512; i++)
				s.type->hit(s.state, i);
		/* and but for one none may go: first, last, anywhere */
		for (i = 0; i < 512; i++)
			c.busy[i] = true;
		for (i = 0; i < 512; i += 73) {
			c.busy[i] = false;
			assert_int_equal(s.type->victim(s.state, 512, usable, &c), i);
			c.busy[i] = true;
		}
		assert_int_equal(s.type->victim(s.state, 512, usable, &c), -1);
		set_close(&s);
	}
}

/*
 * Over a restart, and from any policy to any other: blocks that were hit often stay longer than
 * blocks that came once.
 */
static void hints_keep_the_best(void **state)
{
	u32 p, q, i, n, kept;

	for (p = 3; p < ARRAY_SIZE(policies); p++) {
		for (q = 0; q < ARRAY_SIZE(policies); q++) {
			struct choice c = { 0 };
			struct set s, t;

			if (!strcmp(policies[q].name, "null"))
				continue;
			set_open(&s, policies[p].name, 512);
			for (i = 0; i < 512; i++)
				s.type->insert(s.state, i, i);
			/* not while they are new */
			for (i = 0; i < 100; i++)
				s.type->hit(s.state, i * 4 + 1);
			for (n = 0; n < 30; n++) {
				int victim = s.type->victim(s.state, 512, usable, &c);

				assert_true(victim >= 0);
				s.type->remove(s.state, victim, victim, true);
				s.type->insert(s.state, victim, 10000 + n);
			}
			set_open(&t, policies[q].name, 512);
			for (i = 0; i < 512; i++)
				t.type->load(t.state, i, s.type->hint(s.state, i));
			for (n = 0; n < 200; n++) {
				int victim = t.type->victim(t.state, 512, usable, &c);

				assert_true(victim >= 0);
				t.type->remove(t.state, victim, victim, true);
				t.type->insert(t.state, victim, 20000 + n);
				c.busy[victim] = true;
			}
			for (i = kept = 0; i < 100; i++)
				kept += !c.busy[i * 4 + 1];
			if (kept < 85)
				fail_msg("%s to %s: %u", policies[p].name, policies[q].name, kept);
			set_close(&s);
			set_close(&t);
		}
	}
}

/* A hint survives a restart, with blocks loaded in any order. */
static void load_keeps_order(const char *policy)
{
	u32 n;

	for (n = 0; n < ARRAY_SIZE(sizes); n++) {
		u32 size = sizes[n], i, k;
		struct model m = { 0 };
		u64 seed = n + 1;
		struct set s;

		set_open(&s, policy, size);
		for (i = 0; i < size; i++) {
			k = (i * 5 + 3) % size;
			if (model_find(&m, k) >= 0)
				continue;
			s.type->insert(s.state, k, 0);
			model_append(&m, k);
		}
		if (m.nr <= 256) {
			u8 hint[HYBRID_MAX_SET_SIZE];
			struct set t;

			for (i = 0; i < m.nr; i++)
				hint[i] = s.type->hint(s.state, m.block[i]);
			set_open(&t, policy, size);
			k = random_below(&seed, m.nr);
			for (i = 0; i < m.nr; i++, k = (k + 1) % m.nr)
				t.type->load(t.state, m.block[k], hint[k]);
			check_order(&t, &m);
			set_close(&t);
		}
		set_close(&s);
	}
}

static void lru_load(void **state)
{
	load_keeps_order("lru");
}

static void fifo_load(void **state)
{
	load_keeps_order("fifo");
}

/* More blocks than hints: blocks with the same hint may swap, no others. */
static void load_full_set(void **state)
{
	struct choice c = { 0 };
	struct set s;
	int victim;
	u32 i, last = 0;

	set_open(&s, "lru", 512);
	for (i = 512; i-- > 0; )
		s.type->load(s.state, i, (i * 7 % 512) / 2);
	for (i = 0; i < 512; i++) {
		victim = s.type->victim(s.state, 512, usable, &c);
		assert_in_range(victim, 0, 511);
		assert_true((u32)(victim * 7 % 512) / 2 >= last);
		last = (victim * 7 % 512) / 2;
		c.busy[victim] = true;
	}
	set_close(&s);
}

/* Removing, inserting and loading again before anything else is done. */
static void load_then_change(void **state)
{
	struct model m = { 0 };
	struct set s;

	set_open(&s, "lru", 8);
	s.type->load(s.state, 5, 50);
	s.type->load(s.state, 1, 10);
	s.type->load(s.state, 3, 30);
	s.type->remove(s.state, 3, 0, true);
	s.type->insert(s.state, 1, 0);
	s.type->load(s.state, 7, 0);	/* too late: goes last */
	model_append(&m, 5);
	model_append(&m, 1);
	model_append(&m, 7);
	check_order(&s, &m);
	set_close(&s);
}

/* Indices that no set has, blocks that are not there, everything twice. */
static void hostile_indices(void **state)
{
	static const u32 index[] = { 8, 9, 63, 64, 511, 512, 1023, 65535, 65536, 65539, ~0U };
	struct choice c = { 0 };
	char before[1024];
	struct set s;
	u32 p, i;

	for (p = 0; p < ARRAY_SIZE(policies); p++) {
		size_t bytes;

		set_open(&s, policies[p].name, 8);
		bytes = s.type->set_bytes(8);
		assert_true(bytes <= sizeof(before));
		assert_int_equal(s.type->victim(s.state, 8, usable, &c), -1);
		s.type->load(s.state, 8, 1);
		s.type->insert(s.state, 5, 0);
		for (i = 0; i < ARRAY_SIZE(index); i++) {
			memcpy(before, s.state, bytes);
			s.type->hit(s.state, index[i]);
			assert_memory_equal(before, s.state, bytes);
			s.type->insert(s.state, index[i], 0);
			s.type->hint(s.state, index[i]);
			s.type->remove(s.state, index[i], 0, true);
		}
		assert_int_equal(s.type->victim(s.state, 8, usable, &c), 5);
		s.type->remove(s.state, 5, 0, true);
		assert_int_equal(s.type->victim(s.state, 8, usable, &c), -1);
		s.type->hit(s.state, 2);
		assert_int_equal(s.type->victim(s.state, 8, usable, &c), -1);
		s.type->insert(s.state, 2, 0);
		s.type->insert(s.state, 2, 0);
		s.type->hit(s.state, 2);
		assert_int_equal(s.type->victim(s.state, 8, usable, &c), 2);
		assert_int_equal(s.type->victim(s.state, 0, usable, &c), -1);
		s.type->remove(s.state, 2, 0, true);
		s.type->remove(s.state, 2, 0, true);
		s.type->hit(s.state, 2);
		assert_int_equal(s.type->victim(s.state, 8, usable, &c), -1);
		set_close(&s);
	}
}

/* Values that races could leave in the ring must not lead anywhere else. */
static void lru_garbage_in_ring(void **state)
{
	struct model m = { 0 };
	struct set s;
	u32 i;

	set_open(&s, "lru", 8);
	for (i = 0; i < 8; i++) {
		s.type->insert(s.state, i, 0);
		model_append(&m, i);
	}
	/* hits noted, not seen; the ring itself full of an index that is none */
	((u16 *)s.state)[0] += 40;
	memset((u16 *)s.state + 3, 0xff, 64 * sizeof(u16));
	check_order(&s, &m);
	set_close(&s);
}

static void null_gives_up_all(void **state)
{
	struct choice c = { 0 };
	struct set s;
	u32 i;

	set_open(&s, "null", 512);
	assert_false(s.type->admit);
	for (i = 0; i < 512; i += 2)
		s.type->load(s.state, i, 9);
	for (i = 0; i < 512; i += 2)
		c.busy[i] = i < 400;
	/* 200 busy ones, looked at by and by */
	assert_int_equal(s.type->victim(s.state, 100, usable, &c), -1);
	assert_int_equal(s.type->victim(s.state, 100, usable, &c), -1);
	assert_int_equal(s.type->victim(s.state, 100, usable, &c), 400);
	assert_int_equal(c.asked, 201);
	memset(&c, 0, sizeof(c));
	for (i = 0; i < 256; i++) {
		int victim = s.type->victim(s.state, 1, usable, &c);

		assert_true(victim >= 0 && victim % 2 == 0);
		s.type->remove(s.state, victim, 0, true);
	}
	assert_int_equal(s.type->victim(s.state, 512, usable, &c), -1);
	set_close(&s);
}

static void registry(void **state)
{
	struct hybrid_policy_type same = { .name = "lru" }, none = { .name = "" };
	struct hybrid_policy_type longest = { .name = "abcdefghijklmno" };
	struct hybrid_policy_type longer = { .name = "abcdefghijklmnop" };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(policies); i++) {
		const struct hybrid_policy_type *type = hybrid_policy_get(policies[i].name);

		assert_non_null(type);
		assert_string_equal(type->name, policies[i].name);
		hybrid_policy_put(type);
	}
	assert_null(hybrid_policy_get("nosuch"));
	assert_null(hybrid_policy_get(""));
	assert_int_equal(hybrid_policy_register(&same), -EEXIST);
	assert_int_equal(hybrid_policy_register(&none), -EINVAL);
	assert_int_equal(hybrid_policy_register(&longer), -EINVAL);
	assert_int_equal(hybrid_policy_register(&longest), 0);
	assert_ptr_equal(hybrid_policy_get("abcdefghijklmno"), &longest);
	hybrid_policy_unregister(&longest);
	assert_null(hybrid_policy_get("abcdefghijklmno"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lru_is_lru),
		cmocka_unit_test(fifo_is_fifo),
		cmocka_unit_test(lru_ring_overflow),
		cmocka_unit_test(repeated_hit_is_free),
		cmocka_unit_test(state_is_small),
		cmocka_unit_test(loops),
		cmocka_unit_test(scans),
		cmocka_unit_test(ghosts),
		cmocka_unit_test(fingerprints),
		cmocka_unit_test(victims),
		cmocka_unit_test(all_hot),
		cmocka_unit_test(hints_keep_the_best),
		cmocka_unit_test(lru_load),
		cmocka_unit_test(fifo_load),
		cmocka_unit_test(load_full_set),
		cmocka_unit_test(load_then_change),
		cmocka_unit_test(hostile_indices),
		cmocka_unit_test(lru_garbage_in_ring),
		cmocka_unit_test(null_gives_up_all),
		cmocka_unit_test(registry),
	};

	return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
