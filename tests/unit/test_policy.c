// SPDX-License-Identifier: GPL-2.0-or-later
#include "unit.h"
#include "policy.h"

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
 * Random operations.  @hits_move: a hit makes a block the last.  At most 64 hits
 * in a row, which is what LRU promises to keep.
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

/* The newest hits count, the oldest are lost; also where the counters wrap. */
static void lru_ring_overflow(void **state)
{
	struct model m = { 0 };
	struct set s;
	u32 i, round;

	set_open(&s, "lru", 512);
	for (i = 0; i < 512; i++) {
		s.type->insert(s.state, i, 0);
		model_append(&m, i);
	}
	for (round = 0; round < 400; round++) {
		for (i = 0; i < 300; i++)
			s.type->hit(s.state, (round + i) % 512);
		for (i = 236; i < 300; i++)
			model_append(&m, (round + i) % 512);
		check_order(&s, &m);
	}
	set_close(&s);
}

static void lru_repeated_hit_is_free(void **state)
{
	size_t bytes;
	struct set s;
	void *before;

	set_open(&s, "lru", 8);
	bytes = s.type->set_bytes(8);
	before = malloc(bytes);
	s.type->insert(s.state, 3, 0);
	s.type->hit(s.state, 3);
	memcpy(before, s.state, bytes);
	s.type->hit(s.state, 3);
	assert_memory_equal(before, s.state, bytes);
	free(before);
	set_close(&s);
}

static void state_is_small(void **state)
{
	const struct hybrid_policy_type *lru = hybrid_policy_get("lru");

	assert_true(lru->set_bytes(512) * 10 <= 43 * 512);
}

/* A hint survives a restart, in whatever order blocks are loaded. */
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

/* More blocks than hints: those of one hint may swap, no others. */
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

static const char * const names[] = { "lru", "fifo", "null" };

/* Indices that no set has, blocks that are not there, everything twice. */
static void hostile_indices(void **state)
{
	static const u32 index[] = { 8, 9, 63, 64, 511, 512, 1023, 65535, 65536, 65539, ~0U };
	struct choice c = { 0 };
	struct set s;
	u32 p, i;

	for (p = 0; p < ARRAY_SIZE(names); p++) {
		set_open(&s, names[p], 8);
		assert_int_equal(s.type->victim(s.state, 8, usable, &c), -1);
		s.type->load(s.state, 8, 1);
		s.type->insert(s.state, 5, 0);
		for (i = 0; i < ARRAY_SIZE(index); i++) {
			s.type->hit(s.state, index[i]);
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

/* What races could leave in the ring must not lead anywhere else. */
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

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		const struct hybrid_policy_type *type = hybrid_policy_get(names[i]);

		assert_non_null(type);
		assert_string_equal(type->name, names[i]);
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
		cmocka_unit_test(lru_repeated_hit_is_free),
		cmocka_unit_test(state_is_small),
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
