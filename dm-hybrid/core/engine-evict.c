// SPDX-License-Identifier: GPL-2.0-only
/*
 * Eviction and the reserve of free blocks (J1).  A block leaves in steps:
 *   1. REMOVED: reads and writes no longer use it; its removal waits to be
 *      recorded.  Until the record is on its way it can be taken back.
 *   2. TRANSIT: the record is on its way to the journal.
 *   3. GRACE: the record is durable; reads that found the block before may
 *      still be in flight.
 *   4. free; or retired, where its place failed: engine-place.c.
 * Only blocks that are clean, in RAM and in the journal, are evicted.
 *
 * Metadata of file systems leaves last: a block that is read as metadata is kept, up to a
 * share of its set (metadata_share).  A kept block leaves only if no other block can.
 */
#include "engine-internal.h"

#define KEPT_TURNS	16	/* of the whole set, until an unread block is no longer kept */
#define KEPT_TRIES	8	/* victims that a policy may name in vain */

struct victim_filter {
	struct hybrid_engine *e;
	struct hybrid_set *s;
	bool dirty_seen;
	bool spare;		/* refuse kept blocks */
	bool ahead;		/* for readahead, for which no kept block leaves */
};

/* ---- metadata ------------------------------------------------------------- */

static u32 kept_most(const struct hybrid_engine *e)
{
	return e->map.set_size * READ_ONCE(e->config.metadata_share) / 100;
}

/* Does the block leave last?  None does while more are kept than a lowered share allows. */
static bool is_kept(const struct hybrid_engine *e, const struct hybrid_set *s, u32 i)
{
	return (s->flags[i] & BLOCK_KEPT) && s->kept.nr <= kept_most(e);
}

bool hybrid_metadata_is_kept(const struct hybrid_engine *e, const struct hybrid_set *s, u32 i)
{
	return (READ_ONCE(s->flags[i]) & BLOCK_KEPT) || READ_ONCE(s->kept.nr) >= kept_most(e);
}

void hybrid_keep_metadata(struct hybrid_engine *e, struct hybrid_set *s, u32 i)
{
	if (hybrid_metadata_is_kept(e, s, i))
		return;
	WRITE_ONCE(s->kept.nr, s->kept.nr + 1);
	hybrid_set_flags(s, i, BLOCK_KEPT, 0);
}

/*
 * A block is evicted.  Every KEPT_TURNS evictions, the next block in turn is marked if it is
 * kept, so that its next read is noted.  If it still has its last mark, it is no longer kept.
 */
static void metadata_ages(struct hybrid_engine *e, struct hybrid_set *s)
{
	u32 i;

	s->kept.aging = (s->kept.aging + 1) % (KEPT_TURNS * e->map.set_size);
	i = s->kept.aging / KEPT_TURNS;
	if (s->kept.aging % KEPT_TURNS || !(s->flags[i] & BLOCK_KEPT))
		return;
	if (s->flags[i] & BLOCK_AHEAD)
		hybrid_set_unkeep(s, i);
	else
		hybrid_set_flags(s, i, BLOCK_AHEAD, 0);
}

/* ---- eviction ------------------------------------------------------------- */

static bool usable(void *ctx, u32 i)
{
	struct victim_filter *f = ctx;
	struct hybrid_engine *e = f->e;
	struct hybrid_set *s = f->s;

	if (!(s->flags[i] & BLOCK_MAPPED) || (s->flags[i] & BLOCK_BUSY))
		return false;
	if (f->spare && is_kept(e, s, i))
		return false;
	if (block_mask(e, s, MASK_DIRTY, i) | block_mask(e, s, MASK_JDIRTY, i)) {
		f->dirty_seen = true;
		return false;
	}
	return !hybrid_write_in_flight(s, s->key[i], e->map.granules);
}

bool hybrid_may_evict(struct hybrid_engine *e, struct hybrid_set *s, u32 i)
{
	struct victim_filter f = { .e = e, .s = s, .spare = true };

	lockdep_assert_held(&s->lock);
	return usable(&f, i);
}

static void enter_grace(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];

	engine_assert(e, s->flags[i] & (BLOCK_MAPPED | BLOCK_REMOVED));
	engine_assert(e, !block_mask(e, s, MASK_DIRTY, i) && !block_mask(e, s, MASK_JDIRTY, i));
	hybrid_set_unhash(&e->map, s, i);
	hybrid_set_flags(s, i, BLOCK_GRACE, (u8)~BLOCK_GRACE);
	s->nr_grace++;
	set_bit(set, e->evict.grace.sets);
	/*
	 * Pairs with grace_poll(), twice.  Readers cannot find the block in a period whose
	 * beginning is not visible here.  And if such a period takes the wish below for an
	 * older one, its end finds the set.
	 */
	smp_mb();
	s->grace_period[i] = READ_ONCE(e->evict.grace.started);
	WRITE_ONCE(e->evict.grace.wanted, true);
}

static void remove_block(struct hybrid_engine *e, u32 set, u32 i, bool evicted)
{
	struct hybrid_set *s = &e->map.set[set];

	engine_assert(e, (s->flags[i] & (BLOCK_MAPPED | BLOCK_BUSY)) == BLOCK_MAPPED);
	hybrid_set_note_remove(&e->map, s, i, evicted);
	atomic_dec(&key_volume(e, s->key[i])->blocks.cached);
	if (s->flags[i] & BLOCK_JMAPPED) {
		hybrid_set_flags(s, i, BLOCK_REMOVED, BLOCK_MAPPED);
		hybrid_mark_must(e, set, i);
	} else {
		enter_grace(e, set, i);
	}
}

/* Evict block @i if it can be.  Caller holds the set's lock. */
bool hybrid_evict_block(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];
	struct victim_filter f = { .e = e, .s = s };

	lockdep_assert_held(&s->lock);
	if (!usable(&f, i))
		return false;
	remove_block(e, set, i, true);
	metadata_ages(e, s);
	atomic64_inc(&e->stats.evictions);
	return true;
}

void hybrid_place_failed(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts)
{
	struct hybrid_set *s = &e->map.set[set];

	lockdep_assert_held(&s->lock);
	/* A failed read may be reported after its block has left. */
	if (!s->flags[i] || READ_ONCE(e->life.failed))
		return;
	if (hybrid_place_note(e, set, i) && hybrid_evict_block(e, set, i))
		want(acts, WANT_COMMIT);
}

void hybrid_remove_empty_block(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];
	struct victim_filter f = { .e = e, .s = s };

	if (!block_mask(e, s, MASK_VALID, i) && usable(&f, i))
		remove_block(e, set, i, false);
}

bool hybrid_resurrect(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts)
{
	struct hybrid_set *s = &e->map.set[set];

	if (s->flags[i] & BLOCK_TRANSIT)
		return false;
	if (hybrid_place_is_bad(e, set, i)) {
		want(acts, WANT_COMMIT);
		return false;
	}
	hybrid_set_flags(s, i, BLOCK_MAPPED, BLOCK_REMOVED);
	hybrid_set_note_insert(&e->map, s, i);
	atomic_inc(&key_volume(e, s->key[i])->blocks.cached);
	return true;
}

/*
 * Of eight blocks from @i on, those that were filled ahead and not read since: bit 8 * n + 7 is
 * block @i + n.  Looks at eight at once, because a set has hundreds and few are found.  Beyond the
 * last block of the set, its array has zeroes.
 */
static u64 unread_ahead(const struct hybrid_set *s, u32 i)
{
	__le64 word;
	u64 flags;

	BUILD_BUG_ON(BLOCK_AHEAD != BIT(7) || BLOCK_KEPT != BIT(6));
	memcpy(&word, s->flags + i, sizeof(word));
	flags = le64_to_cpu(word);
	return flags & ~(flags << 1) & 0x8080808080808080ULL;
}

/*
 * Blocks that were filled ahead and not read since leave first, the oldest before
 * others, where fills ahead do not pay.  But some may always wait for their readers.
 */
static int ahead_victim(struct hybrid_engine *e, struct hybrid_set *s)
{
	struct victim_filter f = { .e = e, .s = s };
	u32 size = e->map.set_size, some = size / 16, from, n, i;
	int victim = -1;
	u64 found;

	from = READ_ONCE(e->evict.ahead_next) / 8 * 8;
	for (n = 0; n < size; n += 8, from += 8) {
		if (from >= size)
			from = 0;
		for (found = unread_ahead(s, from); found; found &= found - 1) {
			i = from + __ffs64(found) / 8;
			if (victim < 0 && usable(&f, i) &&
			    atomic_read(ahead_credit(e, s->key[i])) < AHEAD_PAYS)
				victim = i;
			if (some)
				some--;
			else if (victim >= 0)
				return victim;
		}
	}
	return -1;
}

bool hybrid_can_spare(struct hybrid_engine *e, struct hybrid_set *s)
{
	lockdep_assert_held(&s->lock);
	return ahead_victim(e, s) >= 0;
}

/* The policy's choice among the blocks that can leave, or -1. */
static int policy_victim(struct hybrid_engine *e, struct hybrid_set *s, struct victim_filter *f)
{
	struct hybrid_policy_states *p = s->policy;
	void *state = set_policy_state(&e->map, p, s);
	int i = p->type->victim(state, 32, usable, f);

	return i >= 0 ? i : p->type->victim(state, e->map.set_size, usable, f);
}

/*
 * The same, but a block that is not kept, if there is one.  A kept block counts as hit for the
 * policy, so that it gets out of the way of others.
 */
static int unkept_victim(struct hybrid_engine *e, struct hybrid_set *s, struct victim_filter *f)
{
	int i, kept = -1;
	u32 tries;

	for (tries = 0; tries < KEPT_TRIES; tries++) {
		i = policy_victim(e, s, f);
		if (i < 0 || !is_kept(e, s, i))
			return i;
		kept = i;
		hybrid_set_note_hit(&e->map, s, i);
	}
	f->spare = true;
	i = policy_victim(e, s, f);
	f->spare = false;
	return i >= 0 || f->ahead ? i : kept;
}

/* A block that can leave, or -1. */
static int find_victim(struct hybrid_engine *e, struct hybrid_set *s, struct victim_filter *f)
{
	int i;

	/* If all blocks are dirty, each write would search the whole set in vain. */
	if (s->nr_dirty == s->nr_mapped) {
		f->dirty_seen = s->nr_dirty;
		return -1;
	}
	i = ahead_victim(e, s);
	if (i >= 0) {
		WRITE_ONCE(e->evict.ahead_next, i + 1);
		return i;
	}
	return unkept_victim(e, s, f);
}

void hybrid_evict(struct hybrid_engine *e, const struct hybrid_io *io, struct hybrid_actions *acts)
{
	u32 set = io->set;
	struct hybrid_set *s = &e->map.set[set];
	struct victim_filter f = { .e = e, .s = s, .ahead = io->flags & HYBRID_IO_AHEAD };
	u32 most = 4, enough = max(e->evict.reserve, 1U);
	int i;

	lockdep_assert_held(&s->lock);
	while (most-- && s->nr_free + leaving(e, s) < enough) {
		i = find_victim(e, s, &f);
		if (f.dirty_seen)
			WRITE_ONCE(e->writebacks.passed, true);
		/* Dirty blocks prevent the eviction.  For readahead that is not urgent. */
		if (i < 0 && f.dirty_seen && !f.ahead)
			WRITE_ONCE(e->writebacks.urgent, true);
		if (i < 0 || !hybrid_evict_block(e, set, i))
			break;
	}
	if (READ_ONCE(e->writebacks.urgent))
		want_writeback(acts, NULL);
	if (s->nr_free <= e->evict.reserve / 2 && leaving(e, s))
		want(acts, WANT_COMMIT);
}

/* The removal of block @i is durable.  Caller holds the set's lock. */
void hybrid_removal_durable(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];

	lockdep_assert_held(&s->lock);
	if (s->flags[i] & BLOCK_TRANSIT)
		enter_grace(e, set, i);
}

static bool phase_empty(struct hybrid_engine *e, u32 phase)
{
	unsigned long enter = 0, leave = 0;
	int cpu;

	/* Leaves first: a reader counted there was counted entering, too. */
	for_each_possible_cpu(cpu)
		leave += READ_ONCE(per_cpu_ptr(e->evict.readers, cpu)->leave[phase]);
	/* Pairs with epoch_enter() and epoch_leave(). */
	smp_mb();
	for_each_possible_cpu(cpu)
		enter += READ_ONCE(per_cpu_ptr(e->evict.readers, cpu)->enter[phase]);
	return enter == leave;
}

/*
 * Advance the grace period as far as possible; under the engine's lock.  After the
 * period began, both phases must be seen empty in turn, with a flip before each
 * look, so that every reader that entered before it has left.
 */
static void grace_poll(struct hybrid_engine *e)
{
	lockdep_assert_held(&e->lock);
	if (!e->evict.grace.stage) {
		if (!READ_ONCE(e->evict.grace.wanted))
			return;
		WRITE_ONCE(e->evict.grace.wanted, false);
		WRITE_ONCE(e->evict.grace.started, e->evict.grace.started + 1);
		/*
		 * Pairs with enter_grace().  Removed blocks can no longer be found when the
		 * phase is flipped.  The order in which others see the two stores above does
		 * not matter: when the period has ended, hybrid_reclaim() finds each set whose wish
		 * was taken back.
		 */
		smp_mb();
		e->evict.grace.stage = 1;
		WRITE_ONCE(e->evict.phase, e->evict.phase + 1);
	}
	for (; e->evict.grace.stage <= 2; e->evict.grace.stage++) {
		/* The flip before the look; pairs with epoch_enter(). */
		smp_mb();
		if (!phase_empty(e, (e->evict.phase + 1) & 1)) {
			WRITE_ONCE(e->evict.grace.wanted, true);
			return;
		}
		if (e->evict.grace.stage == 1)
			WRITE_ONCE(e->evict.phase, e->evict.phase + 1);
	}
	e->evict.grace.stage = 0;
	e->evict.grace.done = e->evict.grace.started;
}

static void reclaim_set(struct hybrid_engine *e, u32 set, u32 done)
{
	struct hybrid_set *s = &e->map.set[set];
	unsigned long flags;
	u32 i;

	spin_lock_irqsave(&s->lock, flags);
	for (i = 0; s->nr_grace && i < e->map.set_size; i++) {
		if (!(s->flags[i] & BLOCK_GRACE) || (s32)(done - s->grace_period[i]) <= 0)
			continue;
		if (hybrid_place_free(e, set, i))
			WRITE_ONCE(e->stall.freed, true);
		s->nr_grace--;
	}
	if (!s->nr_grace)
		clear_bit(set, e->evict.grace.sets);
	hybrid_trim_note(e, set);
	spin_unlock_irqrestore(&s->lock, flags);
}

/*
 * Free the blocks whose grace period is over.  Caller holds no lock.  Periods
 * begin and end here: in between, all readers of one phase, then all of the other,
 * have left (the scheme of SRCU).
 */
void hybrid_reclaim(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	unsigned long flags;
	u32 set, before, done;

	if (!READ_ONCE(e->evict.grace.wanted))
		return;
	spin_lock_irqsave(&e->lock, flags);
	before = e->evict.grace.done;
	grace_poll(e);
	done = e->evict.grace.done;
	spin_unlock_irqrestore(&e->lock, flags);
	if (done == before)
		return;
	for_each_set_bit(set, e->evict.grace.sets, e->map.nr_sets)
		reclaim_set(e, set, done);
	if (find_first_bit(e->evict.grace.sets, e->map.nr_sets) < e->map.nr_sets)
		WRITE_ONCE(e->evict.grace.wanted, true);
	want(acts, WANT_STALLED);
}
