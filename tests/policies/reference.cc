// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Replacement policies as their papers say, to judge dm-hybrid's by: one cache,
 * whole keys, plain containers, nothing shared with the kernel's code.
 *
 *   reference POLICY BLOCKS CACHES < TRACE      prints the number of misses
 *
 * A trace is a sequence of 64-bit block numbers in the machine's byte order.  If there are
 * several caches, of BLOCKS each, the uppermost 16 bits say which.
 *
 *   lru, fifo
 *   sieve    Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is simpler than LRU. NSDI'24
 *   s3fifo   Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache
 *            eviction. SOSP'23, algorithm 1; but until the first eviction what the small
 *            queue's share has no room for goes to the main queue, as in the authors' later
 *            version (libCacheSim, S3FIFO.c)
 *   c2q      Clock2Q+, arXiv 2511.21958, with two bits for each block in the main clock;
 *            filled in the same way
 *   (both remember evicted blocks as the kernel's: see Ghost)
 *   arc      Megiddo, Modha: ARC, a self-tuning, low overhead replacement cache.
 *            FAST'03, figure 4
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <list>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

using Key = uint64_t;

/*
 * Blocks of the small queue: a tenth, as in the papers.  A cache of fewer than 512 blocks has as many
 * as one of 512, but at most a third of its own (dm-hybrid/policy/twoqueue.h).
 */
static size_t small_share(size_t capacity)
{
	return std::max(capacity / 10, std::clamp<size_t>(capacity / 3, 1, 51));
}

/* A queue of keys, newest first, that can be asked for one. */
class Queue {
	std::list<Key> keys;
	std::unordered_map<Key, std::list<Key>::iterator> where;

public:
	size_t size() const { return keys.size(); }
	bool has(Key k) const { return where.count(k); }
	Key oldest() const { return keys.back(); }

	void push(Key k)
	{
		keys.push_front(k);
		where[k] = keys.begin();
	}

	void drop(Key k)
	{
		keys.erase(where.at(k));
		where.erase(k);
	}

	Key pop()
	{
		Key k = oldest();

		drop(k);
		return k;
	}
};

struct Policy {
	size_t capacity;

	explicit Policy(size_t blocks) : capacity(blocks) {}
	virtual ~Policy() {}
	/* Is it a hit?  If not, it is cached afterwards. */
	virtual bool access(Key k) = 0;
};

struct Fifo : Policy {
	Queue queue;
	bool use_counts;

	Fifo(size_t blocks, bool lru) : Policy(blocks), use_counts(lru) {}

	bool access(Key k) override
	{
		bool hit = queue.has(k);

		if (hit && !use_counts)
			return true;
		if (hit)
			queue.drop(k);
		else if (queue.size() == capacity)
			queue.pop();
		queue.push(k);
		return hit;
	}
};

struct Sieve : Policy {
	struct Node { Key key; bool visited; };
	std::list<Node> nodes;		/* head is front, tail is back */
	std::unordered_map<Key, std::list<Node>::iterator> where;
	std::list<Node>::iterator hand = nodes.end();

	using Policy::Policy;

	/* Towards the head; from there to nowhere, which is the tail next time. */
	std::list<Node>::iterator onward(std::list<Node>::iterator o)
	{
		return o == nodes.begin() ? nodes.end() : std::prev(o);
	}

	void evict()
	{
		auto o = hand == nodes.end() ? std::prev(nodes.end()) : hand;

		while (o->visited) {
			o->visited = false;
			o = onward(o);
			if (o == nodes.end())
				o = std::prev(nodes.end());
		}
		hand = onward(o);
		where.erase(o->key);
		nodes.erase(o);
	}

	bool access(Key k) override
	{
		auto found = where.find(k);

		if (found != where.end()) {
			found->second->visited = true;
			return true;
		}
		if (nodes.size() == capacity)
			evict();
		nodes.push_front({ k, false });
		where[k] = nodes.begin();
		return false;
	}
};

/*
 * Blocks that left the small queue, in two halves: when one is full, the other is forgotten.  In the
 * papers it is a queue (dm-hybrid/policy/ghost.h).
 */
struct Ghost {
	size_t most, added = 0;
	std::unordered_set<Key> half[2];
	int young = 0;

	explicit Ghost(size_t share) : most(share / 2 + 1) {}

	void add(Key k)
	{
		if (added == most) {
			young = !young;
			added = 0;
			half[young].clear();
		}
		added += half[young].insert(k).second;
	}

	/* Forgets @k, if it is known. */
	bool take(Key k) { return half[0].erase(k) + half[1].erase(k); }
};

struct S3Fifo : Policy {
	Queue small, main;
	Ghost ghost{ capacity * 9 / 10 };
	std::unordered_map<Key, int> freq;
	bool evicted = false;

	using Policy::Policy;

	void evict_main()
	{
		for (;;) {
			Key t = main.pop();

			if (!freq[t]) {
				freq.erase(t);
				return;
			}
			freq[t]--;
			main.push(t);
		}
	}

	/* False: all went to the main queue, or that is over its share now. */
	bool evict_small()
	{
		while (small.size()) {
			Key t = small.pop();

			if (freq[t] <= 1) {
				freq.erase(t);
				ghost.add(t);
				return true;
			}
			freq[t] = 0;
			main.push(t);
			if (main.size() > capacity - small_share())
				return false;
		}
		return false;
	}

	size_t small_share() const { return ::small_share(capacity); }

	bool access(Key k) override
	{
		if (small.has(k) || main.has(k)) {
			freq[k] = std::min(freq[k] + 1, 3);
			return true;
		}
		if (small.size() + main.size() == capacity) {
			evicted = true;
			if (small.size() < small_share() || !evict_small())
				evict_main();
		}
		freq[k] = 0;
		if (ghost.take(k)) {
			main.push(k);
		} else if (!evicted && small.size() >= small_share()) {
			main.push(k);
		} else {
			small.push(k);
		}
		return false;
	}
};

/* Entries of the small queue know when they came: a hit counts if they are old by then. */
struct Clock2QPlus : Policy {
	struct Entry { Key key; uint64_t came; int hits; };
	std::list<Entry> small, clock;	/* the clock's hand is at its end */
	struct Place { bool in_small; std::list<Entry>::iterator at; };
	std::unordered_map<Key, Place> where;
	Ghost ghost{ capacity * 9 / 10 };
	uint64_t arrivals = 0;
	bool evicted = false;

	using Policy::Policy;

	size_t small_share() const { return ::small_share(capacity); }
	size_t window() const { return small_share() / 2; }

	void to_clock(Key k)
	{
		clock.push_front({ k, 0, 0 });
		where[k] = { false, clock.begin() };
	}

	void evict_clock()
	{
		for (;;) {
			auto o = std::prev(clock.end());

			if (!o->hits) {
				where.erase(o->key);
				clock.erase(o);
				return;
			}
			o->hits--;
			clock.splice(clock.begin(), clock, o);
		}
	}

	void evict()
	{
		while (small.size() >= small_share()) {
			Entry e = small.back();

			small.pop_back();
			if (e.hits) {
				to_clock(e.key);
				continue;
			}
			where.erase(e.key);
			ghost.add(e.key);
			return;
		}
		evict_clock();
	}

	bool access(Key k) override
	{
		auto found = where.find(k);

		if (found != where.end()) {
			Entry &e = *found->second.at;

			if (!found->second.in_small)
				e.hits = std::min(e.hits + 1, 3);
			else if (arrivals - e.came >= window())
				e.hits = 1;
			return true;
		}
		if (small.size() + clock.size() == capacity) {
			evicted = true;
			evict();
		}
		if (ghost.take(k)) {
			to_clock(k);
		} else if (!evicted && small.size() >= small_share()) {
			to_clock(k);
		} else {
			small.push_front({ k, ++arrivals, 0 });
			where[k] = { true, small.begin() };
		}
		return false;
	}
};

struct Arc : Policy {
	Queue t1, t2, b1, b2;
	size_t p = 0;

	using Policy::Policy;

	void replace(bool in_b2)
	{
		if (t1.size() && (t1.size() > p || (in_b2 && t1.size() == p)))
			b1.push(t1.pop());
		else if (t2.size())
			b2.push(t2.pop());
		else
			b1.push(t1.pop());
	}

	void make_room()
	{
		size_t l1 = t1.size() + b1.size();
		size_t total = l1 + t2.size() + b2.size();

		if (l1 == capacity) {
			if (t1.size() < capacity) {
				b1.pop();
				replace(false);
			} else {
				t1.pop();
			}
		} else if (total >= capacity) {
			if (total == 2 * capacity)
				b2.pop();
			replace(false);
		}
	}

	bool access(Key k) override
	{
		if (t1.has(k) || t2.has(k)) {
			(t1.has(k) ? t1 : t2).drop(k);
			t2.push(k);
			return true;
		}
		if (b1.has(k)) {
			p = std::min(capacity, p + std::max<size_t>(b2.size() / b1.size(), 1));
			replace(false);
			b1.drop(k);
			t2.push(k);
		} else if (b2.has(k)) {
			p -= std::min(p, std::max<size_t>(b1.size() / b2.size(), 1));
			replace(true);
			b2.drop(k);
			t2.push(k);
		} else {
			make_room();
			t1.push(k);
		}
		return false;
	}
};

static std::unique_ptr<Policy> policy(const char *name, size_t blocks)
{
	if (!strcmp(name, "lru"))
		return std::make_unique<Fifo>(blocks, true);
	if (!strcmp(name, "fifo"))
		return std::make_unique<Fifo>(blocks, false);
	if (!strcmp(name, "sieve"))
		return std::make_unique<Sieve>(blocks);
	if (!strcmp(name, "s3fifo"))
		return std::make_unique<S3Fifo>(blocks);
	if (!strcmp(name, "c2q"))
		return std::make_unique<Clock2QPlus>(blocks);
	if (!strcmp(name, "arc"))
		return std::make_unique<Arc>(blocks);
	return nullptr;
}

int main(int argc, char **argv)
{
	std::vector<std::unique_ptr<Policy>> caches;
	unsigned long misses = 0;
	long nr = argc == 4 ? atol(argv[3]) : 0;
	std::vector<Key> buf(1 << 16);
	size_t n, k;

	while (nr-- > 0 && atol(argv[2]) > 0)
		caches.push_back(policy(argv[1], atol(argv[2])));
	if (caches.empty() || !caches[0]) {
		fprintf(stderr, "usage: reference POLICY BLOCKS CACHES < TRACE\n");
		return 2;
	}
	while ((n = fread(buf.data(), sizeof(Key), buf.size(), stdin)))
		for (k = 0; k < n; k++)
			misses += !caches.at(caches.size() > 1 ? buf[k] >> 48 : 0)->access(buf[k]);
	printf("%lu\n", misses);
	return 0;
}
