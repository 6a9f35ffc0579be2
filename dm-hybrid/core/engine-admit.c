// SPDX-License-Identifier: GPL-2.0-only
/*
 * Admission of misses to the cache, and of data that nobody asked for, which is on credit: see
 * AHEAD_COST and REST_COST.
 */
#include "engine-internal.h"

/* ---- a miss --------------------------------------------------------------- */

void hybrid_io_bypass(struct hybrid_io *io, enum hybrid_counter why)
{
	io->bypass = why;
	count(io->volume, why);
}

bool hybrid_set_has_room(const struct hybrid_engine *e, const struct hybrid_set *s)
{
	return s->nr_free > e->evict.reserve;
}

/* A miss of random I/O, or the first of a run. */
static void missed_at_random(struct hybrid_engine *e, const struct hybrid_io *io)
{
	u32 beside = READ_ONCE(e->runs.beside_random);

	if (beside < BESIDE_RANDOM_MOST && !(io->flags & HYBRID_IO_META))
		WRITE_ONCE(e->runs.beside_random, beside + BESIDE_RANDOM);
}

/*
 * Random I/O, whose misses cost a disk more than blocks of a run, gets half of the free blocks.
 * The beginnings of two runs are no random I/O yet.
 */
static bool run_may_fill(struct hybrid_engine *e, struct hybrid_set *s)
{
	u32 beside = READ_ONCE(e->runs.beside_random);

	if (beside)
		WRITE_ONCE(e->runs.beside_random, beside - 1);
	if (beside > 2 * BESIDE_RANDOM)
		return s->nr_free > max(e->map.set_size / 2, e->evict.reserve);
	return hybrid_set_has_room(e, s) || hybrid_can_spare(e, s);
}

enum admission hybrid_io_admission(struct hybrid_engine *e, struct hybrid_set *s,
				   struct hybrid_io *io, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	u64 cutoff = READ_ONCE(v->cutoff), from;
	u64 run = cutoff ? hybrid_stream_run(v, io, &from) : 0;

	if (!s->policy->type->admit) {
		hybrid_io_bypass(io, HYBRID_BYPASS_POLICY);
		return REFUSED;
	}
	if (run == io->count)
		missed_at_random(e, io);
	if (run <= cutoff)
		return run == io->count ? SINGLE : ADMITTED;
	if (run_may_fill(e, s))
		return WHILE_FILLING;
	if (io->type == HYBRID_IO_READ && hybrid_stream_spreads(e, s, io, from, run, acts))
		return IN_PLACE;
	hybrid_io_bypass(io, HYBRID_BYPASS_SEQUENTIAL);
	return REFUSED;
}

bool hybrid_fill_pays(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io)
{
	return origin_seeks(io->volume) || (io->flags & HYBRID_IO_META) ||
	       hybrid_set_read_again(&e->map, s, io->key, __ffs64(io->mask));
}

bool hybrid_worth_its_wear(struct hybrid_engine *e, struct hybrid_set *s,
			   const struct hybrid_io *io)
{
	struct hybrid_policy_states *p = s->policy;
	u8 endurance = READ_ONCE(e->wear.endurance);
	bool again;

	if (endurance == ENDURANCE_PLENTY || hybrid_set_has_room(e, s) ||
	    (io->flags & HYBRID_IO_META))
		return true;
	again = p->type->ghost_hit && p->type->ghost_hit(set_policy_state(&e->map, p, s),
						 hybrid_key_fingerprint(io->key));
	return again && endurance == ENDURANCE_SHORT;
}

int hybrid_take_block(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
		      u64 key)
{
	int i = hybrid_set_alloc(&e->map, s, key);

	/* The new block has no writes that a flush of the origin must cover. */
	s->flush_epoch[i] = (u32)READ_ONCE(v->flush.flushed);
	hybrid_readahead_forget(e, s, key, e->map.granules, READAHEAD_CACHED);
	atomic_inc(&v->blocks.cached);
	hybrid_set_note_insert(&e->map, s, i);
	return i;
}

bool hybrid_room_to_fill(struct hybrid_engine *e, struct hybrid_set *s,
			 const struct hybrid_io *io, struct hybrid_actions *acts)
{
	if (s->nr_free <= e->evict.reserve / 2)
		hybrid_evict(e, io, acts);
	return s->nr_free > e->evict.reserve / 2;
}

/* ---- data that nobody asked for -------------------------------------------- */

bool hybrid_rest_is_owed(struct hybrid_volume *v)
{
	return READ_ONCE(this_cpu_ptr(v->counters)->rest_debt) + REST_COST > REST_MOST;
}

void hybrid_credit_create(struct hybrid_volume *v)
{
	u32 k;

	for (k = 0; k < AHEAD_PARTS; k++)
		atomic_set(&v->credit.ahead[k], AHEAD_LENT);
	atomic_set(&v->credit.rest, REST_WORTH);
}

/* Under the locks of different sets, a change may get lost. */
static void rest_learns(struct hybrid_volume *v, int change)
{
	int worth = atomic_read(&v->credit.rest) + change;

	atomic_set(&v->credit.rest, clamp(worth, 0, REST_WORTH));
}

#define SAMPLE_SHIFT	20

static_assert(BIT(32 - SAMPLE_SHIFT) >= HYBRID_MAX_VOLUMES);

/* The block's volume, and a part of its fingerprint. */
static u32 sample_of(u64 key)
{
	return hybrid_key_volume(key) << SAMPLE_SHIFT |
	       hybrid_key_fingerprint(key) >> (32 - SAMPLE_SHIFT);
}

/* Is @key's block to be the next sample?  Then it takes the oldest one's place. */
static bool rest_is_sampled(struct hybrid_engine *e, struct hybrid_set *s, u64 key)
{
	struct hybrid_volume *v;
	unsigned long flags;
	u32 *sample;

	s->samples.fills = (s->samples.fills + 1) % (REST_SAMPLES * REST_EVERY);
	if (s->samples.fills % REST_EVERY)
		return false;
	sample = &s->samples.block[s->samples.fills / REST_EVERY];
	/* No block keeps the volume of the old sample: it may be forgotten at any time. */
	spin_lock_irqsave(&e->lock, flags);
	v = *sample ? volume_of(e, *sample >> SAMPLE_SHIFT) : NULL;
	if (v)
		rest_learns(v, -1);
	spin_unlock_irqrestore(&e->lock, flags);
	*sample = sample_of(near_first(e, key));
	return true;
}

/* Is a part of @key's 64 KiB cached?  @i: @key's block, or -1. */
static bool near_is_cached(struct hybrid_engine *e, struct hybrid_set *s, u64 key, int i)
{
	u64 other = near_first(e, key), end = other + near_blocks(e);

	for (; i < 0 && other < end; other++)
		if (other != key)
			i = hybrid_set_find(&e->map, s, other);
	return i >= 0;
}

void hybrid_rest_is_missed(struct hybrid_engine *e, struct hybrid_set *s, u64 key, int i)
{
	u32 sample = sample_of(near_first(e, key)), k;

	if (!near_is_cached(e, s, key, i))
		return;
	/* 0 would match empty places. */
	for (k = 0; sample && k < REST_SAMPLES; k++)
		if (s->samples.block[k] == sample) {
			s->samples.block[k] = 0;
			rest_learns(key_volume(e, key), REST_USED);
		}
}

static bool rest_is_paid(struct hybrid_volume *v)
{
	struct hybrid_counters *c = this_cpu_ptr(v->counters);
	u64 hits = READ_ONCE(c->c[HYBRID_READ_HITS]);
	u64 brings = min_t(u64, hits - c->hits_paid, REST_MOST) * REST_HIT + 1;
	/* Read once: a reset may zero the counters, and the debt must not fall below zero. */
	u32 debt = READ_ONCE(c->rest_debt);

	c->hits_paid = hits;
	WRITE_ONCE(c->rest_debt, debt - min_t(u64, debt, brings));
	if (hybrid_rest_is_owed(v))
		return false;
	c->rest_debt += REST_COST;
	return true;
}

bool hybrid_rest_is_paid(struct hybrid_engine *e, struct hybrid_set *s, u64 key, bool alone)
{
	struct hybrid_volume *v = key_volume(e, key);

	if (alone && (rest_is_sampled(e, s, key) || atomic_read(&v->credit.rest) < REST_PAYS))
		return false;
	return rest_is_paid(v);
}

void hybrid_ahead_earns(struct hybrid_engine *e, u64 key, int credit)
{
	atomic_t *ahead = ahead_credit(e, key);

	if (atomic_read(ahead) < AHEAD_MOST)
		atomic_add(credit, ahead);
}

/* Hits on this CPU that pay for a fill ahead.  Caller holds a set's lock. */
static u32 ahead_hits(struct hybrid_volume *v)
{
	struct hybrid_counters *c = this_cpu_ptr(v->counters);
	u64 all = READ_ONCE(c->c[HYBRID_READ_HITS]), hits = all - READ_ONCE(c->hits_spent);

	if (hits > AHEAD_HITS) {
		hits = AHEAD_HITS;
		WRITE_ONCE(c->hits_spent, all - hits);
	}
	return hits;
}

/* Blocks that may be filled ahead beside @key.  @alone: nothing of its window is cached. */
static u32 ahead_most(struct hybrid_engine *e, struct hybrid_set *s, u64 key, bool alone)
{
	u32 most = alone ? 0 : max(atomic_read(ahead_credit(e, key)), 0) / AHEAD_COST;

	most += hybrid_set_has_room(e, s) ? ahead_hits(key_volume(e, key)) : 0;
	return most * near_blocks(e);
}

static void ahead_costs(struct hybrid_engine *e, u64 key)
{
	struct hybrid_volume *v = key_volume(e, key);
	atomic_t *ahead = ahead_credit(e, key);

	if (atomic_read(ahead) >= AHEAD_COST)
		atomic_sub(AHEAD_COST, ahead);
	else if (ahead_hits(v))
		this_cpu_inc(v->counters->hits_spent);
}

/* Was another block of @key's 64 KiB read since it was filled? */
static bool near_was_read(struct hybrid_engine *e, struct hybrid_set *s, u64 key)
{
	u64 other = near_first(e, key), end = other + near_blocks(e);
	int i;

	for (; other < end; other++) {
		i = other == key ? -1 : hybrid_set_find(&e->map, s, other);
		if (i >= 0 && (s->flags[i] & (BLOCK_AHEAD | BLOCK_KEPT)) != BLOCK_AHEAD)
			return true;
	}
	return false;
}

bool hybrid_ahead_used(struct hybrid_engine *e, struct hybrid_set *s,
		       const struct hybrid_io *io, u32 i)
{
	hybrid_set_flags(s, i, 0, BLOCK_AHEAD);
	hybrid_stream_run(io->volume, io, NULL);
	if (near_was_read(e, s, io->key))
		return false;
	hybrid_ahead_earns(e, io->key, AHEAD_USED);
	return true;
}

/* [*from, *to): @key and the missing blocks next to it, without a gap, from @first to @end. */
static void missing_around(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
			   u64 key, u64 first, u64 end, u64 *from, u64 *to)
{
	*from = key;
	*to = key + 1;
	while (*from > first && hybrid_block_missing(e, s, v, *from - 1))
		--*from;
	while (*to < end && hybrid_block_missing(e, s, v, *to))
		++*to;
}

void hybrid_near_range(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
		       u64 key, u64 *from, u64 *to)
{
	u64 first = near_first(e, key);

	missing_around(e, s, v, key, first, first + near_blocks(e), from, to);
}

bool hybrid_ahead_range(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
			u64 key, u64 *from, u64 *to)
{
	u64 blocks = window_blocks(e), first = key & ~(blocks - 1);
	u64 near = near_blocks(e), near_from = near_first(e, key), near_to = near_from + near;
	u32 most;

	*from = key;
	*to = key + 1;
	if (READ_ONCE(e->wear.endurance) != ENDURANCE_PLENTY)
		return false;
	missing_around(e, s, v, key, first, first + blocks, from, to);
	most = ahead_most(e, s, key, *to - *from == blocks);
	near_from = max(near_from, *from);
	*to = min(*to, near_to + most);
	*from = min(near_from, max(*from + near + most, *to) - near - most);
	return *from < near_from || *to > near_to;
}

void hybrid_fill_beside(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io,
			struct hybrid_job *job, u64 from, u64 to, enum admission admitted,
			struct hybrid_actions *acts)
{
	u64 key;
	int i;

	for (key = from; key < to; key++) {
		if (key == io->key)
			continue;
		if ((admitted == WHILE_FILLING && !hybrid_set_has_room(e, s)) ||
		    !hybrid_room_to_fill(e, s, io, acts))
			return;
		if (near_first(e, key) != near_first(e, io->key) &&
		    (key == from || key == near_first(e, key)))
			ahead_costs(e, key);
		i = hybrid_take_block(e, s, io->volume, key);
		hybrid_set_flags(s, i, BLOCK_AHEAD, 0);
		hybrid_fill_add(e, s, job, key, i, e->map.granules);
	}
}
