// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A policy of dm-hybrid's over a trace, in the map's sets, as the engine uses it:
 *
 *   ours POLICY BLOCKS < TRACE     prints sets, blocks of each, misses, bytes of state
 *   ours sets BLOCKS < TRACE       the trace, with the set in the uppermost 16 bits
 *
 * A trace is a sequence of 64-bit block numbers in the machine's byte order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "map.h"

/* As with blocks of 64 KiB: neighbours within 256 KiB share a set. */
#define WINDOW_SHIFT		2

static struct hybrid_geometry g;
static struct hybrid_map map;
static const struct hybrid_policy_type *policy;

static bool usable(void *ctx, u32 i)
{
	return true;
}

static void evict(struct hybrid_set *s)
{
	int i = policy->victim(set_policy_state(&map, s->policy, s), map.set_size, usable, NULL);

	if (i < 0) {
		fprintf(stderr, "no victim in a full set\n");
		exit(1);
	}
	hybrid_set_note_remove(&map, s, i, true);
	hybrid_set_unhash(&map, s, i);
	hybrid_set_free(&map, s, i);
}

static bool access_block(u64 block)
{
	u64 key = hybrid_key(0, to_oblock(block));
	struct hybrid_set *s = &map.set[hybrid_map_set_of(&map, key)];
	int i = hybrid_set_find(&map, s, key);

	if (i >= 0) {
		hybrid_set_note_hit(&map, s, i);
		return true;
	}
	spin_lock(&s->lock);
	if (!s->nr_free)
		evict(s);
	i = hybrid_set_alloc(&map, s, key);
	hybrid_set_note_insert(&map, s, i);
	spin_unlock(&s->lock);
	return false;
}

static bool open_map(u32 blocks)
{
	void *none;

	g.nr_sets = DIV_ROUND_UP(blocks, HYBRID_MAX_SET_SIZE);
	g.set_size = blocks / g.nr_sets;
	g.nr_blocks = g.nr_sets * g.set_size;
	g.granules = 1;
	g.window_shift = WINDOW_SHIFT;
	return !hybrid_map_create(&map, &g) && !hybrid_map_set_policy(&map, policy, &none);
}

static u64 with_set(u64 block)
{
	return block | (u64)hybrid_map_set_of(&map, hybrid_key(0, to_oblock(block))) << 48;
}

int main(int argc, char **argv)
{
	bool sets = argc == 3 && !strcmp(argv[1], "sets");
	unsigned long misses = 0;
	static u64 buf[1 << 16];
	size_t n, k;

	policy = argc == 3 ? hybrid_policy_get(sets ? "null" : argv[1]) : NULL;
	if (!policy || atol(argv[2]) <= 0 || !open_map(atol(argv[2]))) {
		fprintf(stderr, "usage: ours POLICY BLOCKS < TRACE\n");
		return 2;
	}
	while ((n = fread(buf, sizeof(*buf), ARRAY_SIZE(buf), stdin))) {
		for (k = 0; k < n; k++) {
			if (sets)
				buf[k] = with_set(buf[k]);
			else
				misses += !access_block(buf[k]);
		}
		if (sets)
			fwrite(buf, sizeof(*buf), n, stdout);
	}
	if (!sets)
		printf("%u %u %lu %llu\n", g.nr_sets, g.set_size, misses,
		       (unsigned long long)map.policy_ram);
	return 0;
}
