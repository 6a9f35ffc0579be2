// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Mode C: all sequences of up to a few operations on two blocks and a cache of
 * one or two blocks, each a script.  The first of two operations ends before the
 * second begins, or they overlap: both are tried.  The power is cut at every change
 * of a disk after the last point at which all was at rest; the changes before belong
 * to a shorter sequence.
 */
#include <stdlib.h>

#include "script.h"

/* The two blocks differ only by their numbers: block 0 comes first. */
static const struct {
	u8 kind;
	u8 block;
	u8 count;
} ops[] = {
	{ EV_WRITE, 0, 8 }, { EV_FUA, 0, 8 }, { EV_READ, 0, 8 }, { EV_DISCARD, 0, 8 },
	{ EV_EVICT, 0, 0 }, { EV_FLUSH, 0, 0 }, { EV_DRAIN, 0, 1 }, { LINE_RELOAD, 0, 0 },
	{ EV_WRITE, 1, 8 }, { EV_FUA, 1, 8 }, { EV_READ, 1, 8 }, { EV_DISCARD, 1, 8 },
	{ EV_EVICT, 1, 0 },
};

static const struct {
	u32 mode, slots;
} pools[] = {
	{ HYBRID_MODE_WRITEBACK, 1 }, { HYBRID_MODE_WRITEBACK, 2 },
	{ HYBRID_MODE_WRITETHROUGH, 1 }, { HYBRID_MODE_WRITETHROUGH, 2 },
	{ HYBRID_MODE_WRITEAROUND, 1 },
};

/* A sequence: its operations, and whether it waits before each of them except the first. */
struct sequence {
	u32 length;
	u32 op[8];
	u32 waits;
};

static bool blocks_in_order(const struct sequence *q)
{
	u32 i;

	for (i = 0; i < q->length; i++)
		if (ops[q->op[i]].kind != EV_FLUSH && ops[q->op[i]].kind != EV_DRAIN &&
		    ops[q->op[i]].kind != LINE_RELOAD)
			return !ops[q->op[i]].block;
	return true;
}

static void write_script(struct script *s, const struct sequence *q, u32 pool)
{
	u32 i, at_rest = 0;

	script_defaults(s);
	s->p.cache_blocks = pools[pool].slots;
	s->p.volumes = 1;
	s->volume[0].mode = pools[pool].mode;
	s->volume[0].discard = 1;
	for (i = 1; i < q->length; i++)
		if (q->waits >> i & 1)
			at_rest = i;
	for (i = 0; i < q->length; i++) {
		const struct line op = {
			.kind = ops[q->op[i]].kind,
			.sector = ops[q->op[i]].block * s->p.block_sectors,
			.count = ops[q->op[i]].count,
		};

		if (q->waits >> i & 1)
			script_add(s, &(struct line){ .kind = LINE_RUN });
		if (i == at_rest)
			script_add(s, &(struct line){ .kind = LINE_EXPLORE });
		script_add(s, &op);
	}
	script_add(s, &(struct line){ .kind = LINE_RUN });
	script_add(s, &(struct line){ .kind = EV_TICK, .count = 2000 });
	script_add(s, &(struct line){ .kind = LINE_RUN });
	if (!at_rest)
		script_add(s, &(struct line){ .kind = LINE_FINISH });
}

static bool sequence_of(struct sequence *q, u64 nr)
{
	u32 i;

	q->waits = 0;
	for (i = 0; i < q->length; i++) {
		q->op[i] = nr % ARRAY_SIZE(ops);
		nr /= ARRAY_SIZE(ops);
	}
	q->waits = nr << 1;
	return blocks_in_order(q);
}

static u64 nr_sequences(u32 length)
{
	u64 n = 1;
	u32 i;

	for (i = 0; i < length; i++)
		n *= ARRAY_SIZE(ops) * (i ? 2 : 1);
	return n;
}

/* Runs the sequences of number @part modulo @parts; returns how many. */
u64 exhaustive_run(u32 max_length, u32 part, u32 parts, bool (*go_on)(void), u64 *sum)
{
	struct script s = {};
	struct sequence q;
	u64 nr, done = 0, hash;
	u32 pool;

	for (q.length = 1; q.length <= max_length; q.length++)
		for (nr = 0; nr < nr_sequences(q.length); nr++) {
			if (nr % parts != part || !sequence_of(&q, nr))
				continue;
			for (pool = 0; pool < ARRAY_SIZE(pools); pool++) {
				if (!go_on())
					return done;
				write_script(&s, &q, pool);
				run_script(&s, &hash);
				*sum = *sum * 31 + hash;
				done++;
				if (sim_violations)
					script_print(&s, stdout);
				free(s.line);
				if (sim_violations)
					return done;
			}
		}
	return done;
}
