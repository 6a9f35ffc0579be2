// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests that each policy keeps its contract (policy.h) with the kernel's own
 * allocators, locks and, if there are several, CPUs.  tests/unit/test_policy.c and
 * tests/policies judge how good the policies are, because it costs less there.
 */
#include <kunit/test.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/prandom.h>
#include <linux/random.h>
#include <linux/vmalloc.h>

#include "core/policy.h"

#define SIZE		HYBRID_MAX_SET_SIZE
#define GUARD		64
#define POISON		0x5a
#define SEED		20260101
#define RANDOM_SETS	8
#define RANDOM_OPS	4000
#define CONTENTION_MS	500

/* A set as the engine has one: the lock is taken around all ops except hit. */
struct set {
	const struct hybrid_policy_type *type;
	spinlock_t lock;		/* of state and has */
	void *state;
	size_t bytes;			/* of state; GUARD more behind it */
	u32 size;
	bool has[SIZE];
	bool busy[SIZE];		/* not to be evicted */
	u32 wrong;			/* victims that may not leave */
};

static const struct policy_case {
	const char *name;
	bool keeps_loop;		/* a part of a loop of twice the set */
} policy_cases[] = {
	{ "c2q", true },
	{ "s3fifo", true },
	{ "sieve", false },
	{ "arc", false },
	{ "lru", false },
	{ "fifo", false },
	{ "null", false },
};

static void policy_name(const struct policy_case *p, char *desc)
{
	strscpy(desc, p->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(policy, policy_cases, policy_name);

static struct set *open_set(struct kunit *test, u32 size)
{
	const struct policy_case *p = test->param_value;
	struct set *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, s);
	s->type = hybrid_policy_get(p->name);
	KUNIT_ASSERT_NOT_NULL_MSG(test, s->type, "policy %s", p->name);
	/* close_set() frees it, also after a case that failed. */
	test->priv = s;
	spin_lock_init(&s->lock);
	s->size = size;
	s->bytes = s->type->set_bytes(size);
	KUNIT_EXPECT_EQ(test, s->bytes % 8, 0);
	s->state = vzalloc(s->bytes + GUARD);
	KUNIT_ASSERT_NOT_NULL(test, s->state);
	memset(s->state + s->bytes, POISON, GUARD);
	s->type->init(s->state, size);
	return s;
}

static void close_set(struct kunit *test)
{
	struct set *s = test->priv;

	if (!s)
		return;
	test->priv = NULL;
	KUNIT_EXPECT_EQ(test, s->wrong, 0);
	if (s->state)
		KUNIT_EXPECT_NULL(test, memchr_inv(s->state + s->bytes, POISON, GUARD));
	vfree(s->state);
	hybrid_policy_put(s->type);
}

static bool usable(void *context, u32 i)
{
	struct set *s = context;

	return !s->busy[i];
}

static void insert(struct set *s, u32 i, u32 fingerprint)
{
	s->type->insert(s->state, i, fingerprint);
	s->has[i] = true;
}

/* Evicts a block; false: there is none.  Under the lock if others use the set. */
static bool evict(struct set *s)
{
	int i = s->type->victim(s->state, s->size, usable, s);

	if (i < 0)
		return false;
	if (i >= s->size || !s->has[i] || s->busy[i]) {
		s->wrong++;
		return false;
	}
	s->type->remove(s->state, i, i, true);
	s->has[i] = false;
	return true;
}

static u32 evict_all(struct set *s)
{
	u32 n = 0;

	while (n <= SIZE && evict(s))
		n++;
	return n;
}

/* Each inserted block is evicted, once; a busy block stays. */
static void policy_victims(struct kunit *test)
{
	struct set *s = open_set(test, SIZE);
	u32 i;

	for (i = 0; i < SIZE; i++)
		insert(s, i, i);
	for (i = 0; i < SIZE; i += 3) {
		s->type->hit(s->state, i);
		s->busy[i] = true;
	}
	KUNIT_EXPECT_EQ(test, evict_all(s), SIZE - DIV_ROUND_UP(SIZE, 3));
	memset(s->busy, 0, sizeof(s->busy));
	KUNIT_EXPECT_EQ(test, evict_all(s), DIV_ROUND_UP(SIZE, 3));
	KUNIT_EXPECT_EQ(test, s->type->victim(s->state, SIZE, usable, s), -1);
}

static void random_ops(struct kunit *test, struct rnd_state *rnd, u32 size)
{
	struct set *s = open_set(test, size);
	u32 op, i, nr = 0;

	for (op = 0; op < RANDOM_OPS; op++) {
		i = prandom_u32_state(rnd) % s->size;
		switch (prandom_u32_state(rnd) % 8) {
		case 0:
			if (!s->has[i]) {
				insert(s, i, prandom_u32_state(rnd));
				nr++;
			}
			break;
		case 1:
			if (s->has[i]) {
				s->type->remove(s->state, i, prandom_u32_state(rnd), false);
				s->has[i] = false;
				nr--;
			}
			break;
		case 2:
			if (s->type->ghost_hit)
				s->type->ghost_hit(s->state, prandom_u32_state(rnd));
			break;
		case 3:
			if (nr == s->size && evict(s))
				nr--;
			break;
		default:
			s->type->hit(s->state, i);
		}
	}
	KUNIT_EXPECT_EQ(test, evict_all(s), nr);
}

/* Sets of random sizes, and operations in a random order; the same each time. */
static void policy_random(struct kunit *test)
{
	struct rnd_state rnd;
	u32 n;

	prandom_seed_state(&rnd, SEED);
	for (n = 0; n < RANDOM_SETS; n++) {
		random_ops(test, &rnd, n ? 1 + prandom_u32_state(&rnd) % SIZE : 1);
		close_set(test);
	}
}

/* Blocks with the places from before a restart: none is lost, and they keep their order. */
static void policy_load(struct kunit *test)
{
	struct set *s = open_set(test, SIZE);
	u32 i;

	for (i = 0; i < SIZE; i++) {
		s->type->load(s->state, i, i * 255 / (SIZE - 1));
		s->has[i] = true;
	}
	KUNIT_EXPECT_LE(test, s->type->hint(s->state, 0), s->type->hint(s->state, SIZE - 1));
	KUNIT_EXPECT_EQ(test, evict_all(s), SIZE);
}

/* A loop of twice the set, ten times. */
static void policy_loop(struct kunit *test)
{
	const struct policy_case *p = test->param_value;
	struct set *s = open_set(test, SIZE);
	u32 n, key, hits = 0, used = 0;
	u32 *key_of = kunit_kcalloc(test, SIZE, sizeof(u32), GFP_KERNEL);
	s16 *place = kunit_kcalloc(test, 2 * SIZE, sizeof(s16), GFP_KERNEL);
	int i;

	KUNIT_ASSERT_NOT_NULL(test, key_of);
	KUNIT_ASSERT_NOT_NULL(test, place);
	if (!s->type->admit)
		return;
	memset(place, 0xff, 2 * SIZE * sizeof(s16));
	for (n = 0; n < 20 * SIZE; n++) {
		key = n % (2 * SIZE);
		if (place[key] >= 0) {
			s->type->hit(s->state, place[key]);
			hits++;
			continue;
		}
		i = used < SIZE ? used++ : s->type->victim(s->state, SIZE, usable, s);
		KUNIT_ASSERT_GE(test, i, 0);
		if (s->has[i]) {
			s->type->remove(s->state, i, key_of[i] * 2654435761U, true);
			place[key_of[i]] = -1;
		}
		key_of[i] = key;
		place[key] = i;
		insert(s, i, key * 2654435761U);
	}
	if (p->keeps_loop)
		KUNIT_EXPECT_GT(test, hits, 7 * SIZE);
}

/* A thread for each CPU, two to eight in all: every other one hits, the rest change the set. */
struct worker {
	struct set *set;
	struct task_struct *task;
	unsigned long ops;
};

static int hit_all(void *context)
{
	struct worker *w = context;

	while (!kthread_should_stop()) {
		w->set->type->hit(w->set->state, get_random_u32() % SIZE);
		if (!(++w->ops % 1024))
			cond_resched();
	}
	return 0;
}

static int change_all(void *context)
{
	struct worker *w = context;
	struct set *s = w->set;
	unsigned long flags;
	u32 i;

	while (!kthread_should_stop()) {
		spin_lock_irqsave(&s->lock, flags);
		i = get_random_u32() % SIZE;
		if (s->has[i])
			evict(s);
		else
			insert(s, i, i);
		spin_unlock_irqrestore(&s->lock, flags);
		if (!(++w->ops % 1024))
			cond_resched();
	}
	return 0;
}

static void policy_contention(struct kunit *test)
{
	struct set *s = open_set(test, SIZE);
	u32 nr = clamp(num_online_cpus(), 2U, 8U), n, started;
	struct worker *w = kunit_kcalloc(test, nr, sizeof(*w), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, w);
	for (started = 0; started < nr; started++) {
		n = started;
		w[n].set = s;
		w[n].task = kthread_run(n % 2 ? change_all : hit_all, &w[n], "policy/%u", n);
		if (IS_ERR(w[n].task))
			break;
	}
	msleep(CONTENTION_MS);
	for (n = 0; n < started; n++)
		kthread_stop(w[n].task);
	KUNIT_EXPECT_EQ(test, started, nr);
	for (n = 0; n < started; n++)
		KUNIT_EXPECT_GT(test, w[n].ops, 0);
	/* No block is lost, and none is there twice. */
	evict_all(s);
	KUNIT_EXPECT_NULL(test, memchr_inv(s->has, 0, sizeof(s->has)));
}

static struct kunit_case policy_test_cases[] = {
	KUNIT_CASE_PARAM(policy_victims, policy_gen_params),
	KUNIT_CASE_PARAM(policy_random, policy_gen_params),
	KUNIT_CASE_PARAM(policy_load, policy_gen_params),
	KUNIT_CASE_PARAM(policy_loop, policy_gen_params),
	KUNIT_CASE_PARAM(policy_contention, policy_gen_params),
	{}
};

static struct kunit_suite policy_suite = {
	.name = "dm-hybrid-policy",
	.exit = close_set,
	.test_cases = policy_test_cases,
};

kunit_test_suite(policy_suite);

MODULE_DESCRIPTION("dm-hybrid tests of the policies");
MODULE_LICENSE("GPL");
