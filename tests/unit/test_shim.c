// SPDX-License-Identifier: GPL-2.0-or-later
/* The stand-ins for kernel headers, where they could differ from the kernel. */
#include "unit.h"
#include <linux/sched.h>

static void crc(void **state)
{
	u8 data[8400];		/* more than twice the length done in lanes */
	u64 seed = 5;
	u32 i, len;

	assert_int_equal(~crc32c(~0, "123456789", 9), 0xe3069283);
	for (i = 0; i < sizeof(data); i++)
		data[i] = next_random(&seed);
	for (len = 0; len <= sizeof(data); len += len < 257 ? 1 : 13) {
		u32 whole = crc32c(7, data, len);

		assert_int_equal(whole, shim_crc32c_table(7, data, len));
		assert_int_equal(whole, crc32c(crc32c(7, data, len / 3), data + len / 3,
					       len - len / 3));
	}
}

static void hashes(void **state)
{
	assert_int_equal(hash_32(1, 32), 0x61C88647);
	assert_int_equal(hash_32(1, 8), 0x61);
	assert_int_equal(hash_64(1, 32), 0x61C88646);
	assert_int_equal(hash_64(2, 1), 1);
}

static void bits(void **state)
{
	DECLARE_BITMAP(map, 130);
	unsigned int i, n = 0, sum = 0;

	bitmap_zero(map, 130);
	assert_true(bitmap_empty(map, 130));
	assert_int_equal(find_first_bit(map, 130), 130);
	set_bit(0, map);
	__set_bit(64, map);
	assert_false(test_and_set_bit(129, map));
	assert_true(test_and_set_bit(129, map));
	for_each_set_bit(i, map, 130) {
		n++;
		sum += i;
	}
	assert_int_equal(n, 3);
	assert_int_equal(sum, 193);
	assert_int_equal(find_next_bit(map, 130, 65), 129);
	assert_int_equal(find_next_bit(map, 129, 65), 129);
	assert_int_equal(find_first_zero_bit(map, 130), 1);
	clear_bit(64, map);
	assert_false(test_bit(64, map));
	assert_int_equal(bitmap_weight(map, 130), 2);

	assert_int_equal(fls64(0), 0);
	assert_int_equal(fls64(~0ULL), 64);
	assert_int_equal(__ffs64(1ULL << 63), 63);
	assert_int_equal(hweight64(~0ULL), 64);
	assert_true(GENMASK_ULL(63, 0) == ~0ULL);
	assert_true(GENMASK_ULL(7, 4) == 0xf0);
	assert_int_equal(ilog2(1), 0);
	assert_int_equal(ilog2(4095), 11);
	assert_int_equal(roundup_pow_of_two(4097), 8192);
	assert_false(is_power_of_2(0));
}

static void arithmetic(void **state)
{
	u32 rem;
	u64 sum;

	assert_int_equal(DIV_ROUND_UP(9, 8), 2);
	assert_true(round_up(1ULL << 40 | 1, 2048ULL) == (1ULL << 40) + 2048);
	assert_true(round_down(~0ULL, 2048) == ~2047ULL);
	assert_int_equal(roundup(10, 3), 12);
	assert_int_equal(clamp(5, 6, 9), 6);
	assert_int_equal(clamp_t(u32, 50, 6, 9), 9);
	assert_int_equal(min_t(u8, 0x101, 5), 1);
	assert_int_equal(min_not_zero(0, 3), 3);
	assert_true(div_u64_rem(1ULL << 40, 1000, &rem) == 1099511627);
	assert_int_equal(rem, 776);
	assert_true(check_add_overflow(~0ULL, 1ULL, &sum));
	assert_false(check_add_overflow(~0ULL, 0ULL, &sum));
	assert_true(struct_size((struct hybrid_journal_entry *)NULL, record, SIZE_MAX) == SIZE_MAX);
}

static void strings(void **state)
{
	char to[4];

	assert_int_equal(strscpy(to, "abc", sizeof(to)), 3);
	assert_int_equal(strscpy(to, "abcd", sizeof(to)), -E2BIG);
	assert_string_equal(to, "abc");
	assert_int_equal(strscpy(to, "", sizeof(to)), 0);
	assert_int_equal(strscpy(to, "a", 0), -E2BIG);
	assert_null(memchr_inv("\0\0\0", 0, 3));
	assert_non_null(memchr_inv("\0\0\1", 0, 3));
}

struct item {
	int value;
	struct list_head list;
	struct hlist_node node;
};

static int list_sum(struct list_head *head)
{
	struct item *i;
	int sum = 0;

	list_for_each_entry(i, head, list)
		sum = 10 * sum + i->value;
	return sum;
}

static void lists(void **state)
{
	struct item a = { .value = 1 }, b = { .value = 2 }, c = { .value = 3 };
	LIST_HEAD(one);
	LIST_HEAD(two);
	struct item *i, *next;

	list_add_tail(&b.list, &one);
	list_add_tail(&c.list, &one);
	list_add(&a.list, &one);
	assert_int_equal(list_sum(&one), 123);
	list_move_tail(&a.list, &one);
	assert_int_equal(list_sum(&one), 231);
	list_move(&c.list, &two);
	list_splice_tail_init(&one, &two);
	assert_true(list_empty(&one));
	assert_int_equal(list_sum(&two), 321);
	list_for_each_entry_safe(i, next, &two, list)
		if (i->value == 2)
			list_del_init(&i->list);
	assert_true(list_empty(&b.list));
	list_splice_init(&two, &one);
	assert_int_equal(list_sum(&one), 31);
	assert_ptr_equal(list_first_entry(&one, struct item, list), &c);
	assert_ptr_equal(list_last_entry(&one, struct item, list), &a);
	list_del(&c.list);
	assert_true(list_is_singular(&one));
	assert_null(list_first_entry_or_null(&two, struct item, list));
}

static void hlists(void **state)
{
	struct item a = { .value = 1 }, b = { .value = 2 };
	HLIST_HEAD(head);
	struct item *i;
	int sum = 0;

	hlist_add_head(&a.node, &head);
	hlist_add_head(&b.node, &head);
	hlist_for_each_entry(i, &head, node)
		sum = 10 * sum + i->value;
	assert_int_equal(sum, 21);
	hlist_del_init(&b.node);
	assert_true(hlist_unhashed(&b.node));
	hlist_del(&a.node);
	assert_true(hlist_empty(&head));
}

struct counters {
	u64 hits, misses;
};

static void percpu(void **state)
{
	struct counters *c = alloc_percpu(struct counters);
	unsigned int cpu;
	u64 sum = 0;

	assert_non_null(c);
	this_cpu_inc(c->misses);
	shim_cpu = 1;
	this_cpu_add(c->misses, 5);
	assert_int_equal(this_cpu_read(c->misses), 5);
	shim_cpu = 0;
	assert_int_equal(this_cpu_read(c->misses), 1);
	for_each_possible_cpu(cpu)
		sum += per_cpu_ptr(c, cpu)->misses + per_cpu_ptr(c, cpu)->hits;
	assert_int_equal(sum, 6);
	free_percpu(c);
}

static void sequence_count(void **state)
{
	seqcount_t s;
	unsigned int seq;

	seqcount_init(&s);
	seq = read_seqcount_begin(&s);
	assert_false(read_seqcount_retry(&s, seq));
	write_seqcount_begin(&s);
	assert_true(read_seqcount_retry(&s, seq));
	write_seqcount_end(&s);
	assert_true(read_seqcount_retry(&s, seq));
}

static void locks(void **state)
{
	DEFINE_SPINLOCK(lock);
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	lockdep_assert_held(&lock);
	assert_false(spin_trylock(&lock));
	spin_unlock_irqrestore(&lock, flags);
	assert_true(spin_trylock(&lock));
	spin_unlock(&lock);
}

static int allocations_left;

static bool fail_in_the_end(size_t size, gfp_t gfp)
{
	return allocations_left-- == 0;
}

static void failing_allocation(void **state)
{
	void *p;

	shim_alloc_fails = fail_in_the_end;
	allocations_left = 1;
	p = kzalloc(8, GFP_KERNEL);
	assert_non_null(p);
	assert_null(kvcalloc(3, 8, GFP_NOIO));
	kfree(p);
	p = alloc_percpu(u64);
	assert_non_null(p);
	free_percpu(p);
	shim_alloc_fails = NULL;
	assert_null(kcalloc(SIZE_MAX / 2, 4, GFP_KERNEL));
	cond_resched();
}

static void atomics(void **state)
{
	atomic_t v = ATOMIC_INIT(1);
	atomic64_t w = ATOMIC64_INIT(0);
	u32 x = 3;

	atomic_inc(&v);
	assert_int_equal(atomic_read(&v), 2);
	assert_false(atomic_dec_and_test(&v));
	assert_true(atomic_dec_and_test(&v));
	assert_false(atomic_inc_not_zero(&v));
	atomic64_add(1LL << 40, &w);
	assert_true(atomic64_read(&w) == 1LL << 40);
	assert_int_equal(xchg(&x, 4), 3);
	assert_int_equal(cmpxchg(&x, 5, 6), 4);
	assert_int_equal(cmpxchg(&x, 4, 6), 4);
	assert_int_equal(READ_ONCE(x), 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crc),
		cmocka_unit_test(hashes),
		cmocka_unit_test(bits),
		cmocka_unit_test(arithmetic),
		cmocka_unit_test(strings),
		cmocka_unit_test(lists),
		cmocka_unit_test(hlists),
		cmocka_unit_test(percpu),
		cmocka_unit_test(sequence_count),
		cmocka_unit_test(locks),
		cmocka_unit_test(failing_allocation),
		cmocka_unit_test(atomics),
	};

	return cmocka_run_group_tests_name("shim", tests, NULL, NULL);
}
