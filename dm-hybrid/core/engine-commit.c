// SPDX-License-Identifier: GPL-2.0-only
/*
 * Flushes and commits.
 *
 * One metadata operation is in flight at a time: a journal write, a flush of
 * the cache device, or a step of a checkpoint.  Requests for a commit that come
 * while one is in flight share the next.  A commit assembles an entry, flushes the
 * cache device, so that the data that the records describe is durable (J5), and
 * then writes the entry.
 *
 * A user's flush:
 *   1. if the volume has origin writes that no flush covers: flush the origin;
 *   2. if changes of the volume are not recorded: join the next commit, which is a
 *      journal write where there are records to write, else a flush of the cache device;
 *   3. if only data of the volume is not durable: flush the cache device at once, or
 *      join the next commit if another metadata operation is in flight.
 *
 * A commit writes the records of regions marked *must* (granules that became
 * dirty, blocks that left).  Records of regions marked *lazy* go out once an
 * interval, after flushes of the origins that have writes outstanding (J2, J5), so
 * that no user's flush waits for an origin on their behalf.  If only open regions
 * are wanted, the entry records nothing else.  It vouches for no data, so it
 * needs no flush and overtakes all writes that the device has yet to do.
 */
#include "engine-internal.h"

/* ---- users' flushes ------------------------------------------------------ */

/*
 * Does anything of @v live only in the cache's volatile memory or in RAM?  The
 * lock makes the notes consistent: a commit moves them.
 */
static bool needs_commit(struct hybrid_engine *e, const struct hybrid_volume *v)
{
	const struct hybrid_volume_commit *c = &v->commit;
	unsigned long flags;
	bool needed;

	spin_lock_irqsave(&e->lock, flags);
	needed = READ_ONCE(c->written) || c->flushing || READ_ONCE(c->unrecorded) || c->recording;
	spin_unlock_irqrestore(&e->lock, flags);
	return needed;
}

/*
 * The pool has failed: no commit will come.  A volume with granules dirty in RAM has
 * lost them.  Otherwise the origin has everything, and no record counts once its
 * superblock says that it goes on alone: lost_collect() drops the records if all dirty
 * granules are dirty on record alone.  An origin in place cannot say so; its granules
 * stay dirty on record.
 */
static void complete_without_commit(struct hybrid_engine *e, struct hybrid_io *io,
				    struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;

	if (atomic_read(&v->blocks.dirty)) {
		complete_io(io, -EIO, acts);
	} else if (READ_ONCE(v->sb.state) == SB_ALONE) {
		complete_io(io, dirty_blocks(v) ? -EIO : 0, acts);
	} else {
		io->state = IO_COMMIT;
		hybrid_sb_wait(e, v, SB_ALONE, io, acts);
	}
}

void hybrid_commit_or_complete(struct hybrid_engine *e, struct hybrid_io *io,
			       struct hybrid_actions *acts)
{
	if (!needs_commit(e, io->volume))
		complete_io(io, 0, acts);
	else if (smp_load_acquire(&e->life.failed)) /* hybrid_fail_pool() */
		complete_without_commit(e, io, acts);
	else
		hybrid_join_commit(e, io, acts);
}

void hybrid_origin_flushed(struct hybrid_engine *e, struct hybrid_op *op,
			   struct hybrid_actions *acts)
{
	struct hybrid_volume *v = op->volume;
	int failed = op->error_origin;	/* the next flush may reuse op */
	struct hybrid_io *io, *n;
	unsigned long flags;
	LIST_HEAD(done);
	int error;
	bool lift;

	spin_lock_irqsave(&e->lock, flags);
	engine_assert(e, v->flush.busy && v->flush.target >= v->flush.flushed);
	v->flush.busy = false;
	if (failed)
		hybrid_origin_flush_failed(v, failed);
	error = v->flush.error;
	if (!error)
		WRITE_ONCE(v->flush.flushed, v->flush.target);
	/* Epochs copied from last_write are durable, however old the last write is. */
	if (v->flush.last_write < v->flush.flushed)
		WRITE_ONCE(v->flush.last_write, v->flush.flushed);
	lift = !(++e->lift.flushes % LIFT_FLUSHES);
	if (!error && v->flush.flushing_lazy) {
		e->commit.lazy_wanted = true;
		hybrid_meta_kick_locked(e, acts);
	}
	list_splice_init(&v->flush.now, &done);
	if (!list_empty(&e->commit.waiting)) {
		list_splice_tail_init(&e->commit.waiting, &e->commit.next);
		hybrid_meta_kick_locked(e, acts);
	}
	hybrid_sb_next_locked(e, v, acts);
	hybrid_stall_flush_ended(e, v, op->elapsed_ms, acts);
	hybrid_origin_flush_next_locked(e, v, acts);
	spin_unlock_irqrestore(&e->lock, flags);
	if (lift)
		hybrid_lift_flush_epochs(e);
	/* Records that wait for a flush of this origin can never be written now. */
	if (failed)
		hybrid_wake_all_sets(e, WAIT_RECORD, acts);
	/* Writeback may have waited for this flush. */
	want_writeback(acts, v);
	list_for_each_entry_safe(io, n, &done, link) {
		list_del_init(&io->link);
		if (error || (io->type == HYBRID_IO_WRITE && !io->commit))
			complete_io(io, error, acts);
		else if (io->type == HYBRID_IO_WRITE)
			hybrid_join_commit(e, io, acts);
		else
			hybrid_commit_or_complete(e, io, acts);
	}
}

/* ---- asking for a commit ------------------------------------------------- */

void hybrid_meta_kick_locked(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_op *op = &e->meta.op;

	lockdep_assert_held(&e->lock);
	if (READ_ONCE(e->meta.state) != META_IDLE || !is_loaded(e))
		return;
	WRITE_ONCE(e->meta.state, META_WORK);
	op->type = HYBRID_OP_WORK;
	op->done = hybrid_meta_work;
	act(acts, op);
}

void hybrid_join_commit(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts)
{
	unsigned long flags;

	io->state = IO_COMMIT;
	spin_lock_irqsave(&e->lock, flags);
	list_add_tail(&io->link, &e->commit.next);
	hybrid_meta_kick_locked(e, acts);
	spin_unlock_irqrestore(&e->lock, flags);
}

void hybrid_commit_kick(struct hybrid_engine *e, u32 wanted, struct hybrid_actions *acts)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	e->commit.wanted |= !!(wanted & WANT_COMMIT);
	e->commit.opens_wanted |= !!(wanted & WANT_OPENS);
	e->commit.lazy_wanted |= !!(wanted & WANT_LAZY);
	hybrid_meta_kick_locked(e, acts);
	spin_unlock_irqrestore(&e->lock, flags);
}

/*
 * Scattered writes go to regions that are still closed, and each wait for one costs a
 * commit.  So a region opens together with as many closed regions that follow it as the
 * set has open ones that were written recently.  Regions that are not written close soon.
 */
static u64 regions_ahead(const struct hybrid_engine *e, const struct hybrid_set *s, u32 i)
{
	u32 last = (e->map.set_size - 1) / HYBRID_REGION_BLOCKS;
	u32 n = hweight64(s->regions.recent & s->regions.jopen), r = i / HYBRID_REGION_BLOCKS, k;
	u64 ahead = 0;

	for (k = 0; n && k < last; k++) {
		r = r < last ? r + 1 : 0;
		if ((s->regions.jopen | s->regions.wanted) & BIT_ULL(r))
			continue;
		ahead |= BIT_ULL(r);
		n--;
	}
	return ahead;
}

bool hybrid_invalidate_first(struct hybrid_engine *e, u32 set, struct hybrid_actions *acts)
{
	if (!atomic_add_unless(&e->commit.invalidations, -1, 0))
		return false;
	set_bit(set, e->commit.must_sets);
	want(acts, WANT_OPENS);
	return true;
}

void hybrid_invalidate_tick(struct hybrid_engine *e, u64 passed)
{
	u64 earned = div_u64(passed * MAX_INVALIDATIONS, MS_PER_SECOND);

	atomic_set(&e->commit.invalidations,
		   min_t(u64, atomic_read(&e->commit.invalidations) + earned, MAX_INVALIDATIONS));
}

void hybrid_open_region(struct hybrid_engine *e, u32 set, u32 i, struct hybrid_actions *acts)
{
	struct hybrid_set *s = &e->map.set[set];

	lockdep_assert_held(&s->lock);
	s->regions.wanted |= region_bit(i) | regions_ahead(e, s, i);
	set_bit(set, e->commit.must_sets);
	want(acts, WANT_OPENS);
}

/* ---- assembling an entry ------------------------------------------------- */

/* The masks to record for a block whose origin has writes that no flush covers. */
static void dirty_part(struct hybrid_engine *e, struct hybrid_set *s, u32 i, u64 *valid,
		       u64 *dirty)
{
	u64 now = block_mask(e, s, MASK_DIRTY, i);

	*valid = block_mask(e, s, MASK_JVALID, i) | now;
	*dirty = block_mask(e, s, MASK_JDIRTY, i) | now;
}

static void record(struct hybrid_engine *e, u32 set, u32 i, const struct hybrid_volume *v,
		   u64 valid, u64 dirty)
{
	struct hybrid_set *s = &e->map.set[set];
	u64 jdirty = block_mask(e, s, MASK_JDIRTY, i);
	u64 jclean = block_mask(e, s, MASK_JVALID, i) & ~jdirty;

	if (jdirty & ~dirty)
		s->regions.ending |= region_bit(i);
	hybrid_journal_block(&e->journal, hybrid_map_cblock(&e->map, set, i),
			     v ? v->info.instance : 0, hybrid_key_block(s->key[i]), valid, dirty,
			     jdirty & ~dirty);
	/* A block that leaves is in TRANSIT, which says the same of this block alone. */
	if (v && (jclean & ~valid) && !(s->regions.dopen & region_bit(i)))
		s->regions.dropping |= region_bit(i);
	set_put_mask(&e->map, s, MASK_JVALID, i, valid);
	hybrid_put_jdirty(e, s, i, dirty);
	hybrid_mark_leaf(e, set, i);
}

/*
 * A user's flush of @v must not end before the records of its replaced granules
 * are written.  These records wait for a flush of its origin.
 */
static void gate_volume(struct hybrid_volume *v)
{
	WRITE_ONCE(v->commit.unrecorded, true);
	v->flush.gated = true;
	v->e->commit.gated = true;
}

/* Record as much of block @i as allowed; returns whether something is left. */
static bool record_block(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];
	struct hybrid_volume *v;
	u64 valid, dirty;

	if (!set_unrecorded(&e->map, s, i))
		return false;
	if (s->flags[i] & BLOCK_REMOVED) {
		if (s->flags[i] & BLOCK_TRANSIT)
			return false;
		record(e, set, i, NULL, 0, 0);
		hybrid_set_flags(s, i, BLOCK_TRANSIT, 0);
		return false;
	}
	v = key_volume(e, s->key[i]);
	valid = block_mask(e, s, MASK_VALID, i);
	dirty = block_mask(e, s, MASK_DIRTY, i);
	if (!origin_durable(v, s->flush_epoch[i]))
		dirty_part(e, s, i, &valid, &dirty);
	/* A block that the journal does not know has empty masks there. */
	if (valid != block_mask(e, s, MASK_JVALID, i) ||
	    dirty != block_mask(e, s, MASK_JDIRTY, i)) {
		hybrid_set_flags(s, i, BLOCK_JMAPPED, 0);
		record(e, set, i, v, valid, dirty);
	}
	if (hybrid_replaced_granules(e, s, i))
		gate_volume(v);
	return set_unrecorded(&e->map, s, i);
}

static bool record_region(struct hybrid_engine *e, u32 set, u32 region)
{
	u32 i = region * HYBRID_REGION_BLOCKS;
	u32 end = min(i + HYBRID_REGION_BLOCKS, e->map.set_size);
	bool left = false;

	for (; i < end; i++)
		left |= record_block(e, set, i);
	return left;
}

/*
 * Nothing in flight, nothing unrecorded, both copies durable (J4)?
 *
 * A range in flight needs no check of its own.  Where it has looked at a block, it made clean
 * granules invalid, and the record of that is durable no later than the closing of the region.
 * Where it has yet to look at a block, it finds the region closed, and opens it.
 */
static bool closable(struct hybrid_engine *e, struct hybrid_set *s, u32 region)
{
	u32 i = region * HYBRID_REGION_BLOCKS;
	u32 end = min(i + HYBRID_REGION_BLOCKS, e->map.set_size);
	struct hybrid_io *w;

	if ((s->regions.must | s->regions.lazy | s->regions.wanted) & BIT_ULL(region))
		return false;
	if (!is_stopping(e) && ((s->regions.recent | s->regions.aged) & BIT_ULL(region)))
		return false;
	for (; i < end; i++) {
		if (s->flags[i] & BLOCK_BUSY)
			return false;
		if ((s->flags[i] & BLOCK_MAPPED) &&
		    !origin_durable(key_volume(e, s->key[i]), s->flush_epoch[i]))
			return false;
	}
	hlist_for_each_entry(w, &s->inflight, write.inflight)
		if (w->idx >= 0 && w->idx / HYBRID_REGION_BLOCKS == region)
			return false;
	return true;
}

static void record_regions(struct hybrid_engine *e, u32 set)
{
	struct hybrid_set *s = &e->map.set[set];
	u64 open = s->regions.jopen | s->regions.wanted;
	u64 look = e->commit.lazy ? open : 0;

	for (; look; look &= look - 1)
		if (closable(e, s, __ffs64(look)))
			open &= ~(look & -look);
	s->regions.wanted = 0;
	if (open == s->regions.jopen)
		return;
	hybrid_journal_regions(&e->journal, set, open);
	hybrid_mark_region_leaves(e, set, s->regions.jopen ^ open);
	s->regions.jopen = open;
	s->regions.dopen &= open;
	if (open)
		set_bit(set, e->commit.open_sets);
	else
		clear_bit(set, e->commit.open_sets);
}

/* The clean granules that a write which waits must not find valid on record. */
static u64 to_invalidate(struct hybrid_engine *e, const struct hybrid_set *s,
			 const struct hybrid_io *io, u32 i)
{
	if ((s->regions.jopen | s->regions.wanted) & region_bit(i))
		return 0;
	return io->mask & block_mask(e, s, MASK_JVALID, i) & ~block_mask(e, s, MASK_JDIRTY, i);
}

/* Is the removal of block @i, or -1, in no entry yet?  That entry wakes writes that wait for it. */
static bool removal_is_due(const struct hybrid_set *s, int i)
{
	return i >= 0 && (s->flags[i] & (BLOCK_REMOVED | BLOCK_TRANSIT)) == BLOCK_REMOVED;
}

/*
 * Records the granules of writes that wait for that as not valid, as far as the entry has room.
 * In RAM they stay valid until the writes begin, which is before the next entry is assembled.
 * If the block was evicted meanwhile, its removal must not wait for the next interval.
 */
static void invalidate_for_writes(struct hybrid_engine *e, u32 set)
{
	struct hybrid_set *s = &e->map.set[set];
	struct hybrid_io *io;
	u64 granules;
	int i;

	lockdep_assert_held(&s->lock);
	list_for_each_entry(io, &s->waiting.ios, link) {
		if (io->wait != WAIT_OPEN || !hybrid_journal_space(&e->journal))
			continue;
		i = hybrid_set_find(&e->map, s, io->key);
		if (e->commit.opens && removal_is_due(s, i)) {
			spin_lock(&e->lock);
			e->commit.wanted = true;
			spin_unlock(&e->lock);
			continue;
		}
		granules = i < 0 || (s->flags[i] & BLOCK_REMOVED) ? 0 : to_invalidate(e, s, io, i);
		if (!granules)
			continue;
		record(e, set, i, io->volume, block_mask(e, s, MASK_JVALID, i) & ~granules,
		       block_mask(e, s, MASK_JDIRTY, i));
		if (set_unrecorded(&e->map, s, i))
			hybrid_mark_lazy(e, set, i);
	}
}

/* Blocks of @regions that have something to record.  Caller holds the set's lock. */
static u32 nr_unrecorded(const struct hybrid_engine *e, const struct hybrid_set *s, u64 regions)
{
	u32 i, end, n = 0;

	lockdep_assert_held(&s->lock);
	for (; regions; regions &= regions - 1) {
		i = __ffs64(regions) * HYBRID_REGION_BLOCKS;
		end = min(i + HYBRID_REGION_BLOCKS, e->map.set_size);
		for (; i < end; i++)
			n += set_unrecorded(&e->map, s, i);
	}
	return n;
}

/* Record the changes of one set; false: the entry is full. */
static bool record_set(struct hybrid_engine *e, u32 set)
{
	struct hybrid_set *s = &e->map.set[set];
	unsigned long flags;
	bool room = true;
	u64 regions;
	u32 r;

	spin_lock_irqsave(&s->lock, flags);
	regions = e->commit.opens ? 0 : s->regions.must | (e->commit.lazy ? s->regions.lazy : 0);
	if (hybrid_journal_space(&e->journal) < nr_unrecorded(e, s, regions) + 1) {
		room = false;
		goto out;
	}
	clear_bit(set, e->commit.must_sets);
	if (e->commit.lazy)
		clear_bit(set, e->commit.lazy_sets);
	for (; regions; regions &= regions - 1) {
		r = __ffs64(regions);
		if (record_region(e, set, r))
			continue;
		s->regions.must &= ~BIT_ULL(r);
		s->regions.lazy &= ~BIT_ULL(r);
	}
	/* A set whose records wait for an origin flush stays listed as before. */
	if (s->regions.must)
		set_bit(set, e->commit.must_sets);
	if (s->regions.lazy)
		set_bit(set, e->commit.lazy_sets);
	record_regions(e, set);
	invalidate_for_writes(e, set);
out:
	spin_unlock_irqrestore(&s->lock, flags);
	return room;
}

/* The same; a full entry grows first, where there is memory. */
static bool record_or_grow(struct hybrid_engine *e, u32 set)
{
	struct hybrid_journal *j = &e->journal;

	return record_set(e, set) ||
	       (hybrid_journal_grow(j, j->max_blocks) && record_set(e, set));
}

/* Fill the entry; false: there is more. */
static bool assemble(struct hybrid_engine *e)
{
	u32 set;

	for_each_set_bit(set, e->commit.must_sets, e->map.nr_sets)
		if (!record_or_grow(e, set))
			return false;
	if (!e->commit.lazy)
		return true;
	for (set = 0; set < e->map.nr_sets; set++)
		if ((test_bit(set, e->commit.lazy_sets) || test_bit(set, e->commit.open_sets)) &&
		    !record_or_grow(e, set))
			return false;
	return true;
}

/* ---- intents -------------------------------------------------------------- */

/* The tail that an entry may have that is assembled from now on (J13). */
static u64 intents_ended(struct hybrid_engine *e)
{
	return e->intents.nr ? hybrid_intents_ended(e, false) : e->intents.head;
}

/* A flush of the cache device begins. */
static void intents_flush_begins(struct hybrid_engine *e)
{
	e->intents.flushing = e->intents.nr ? hybrid_intents_ended(e, true) : e->intents.head;
}

/* ---- the metadata state machine ------------------------------------------ */

static void meta_op(struct hybrid_engine *e, enum hybrid_op_type type, enum meta_state state)
{
	WRITE_ONCE(e->meta.state, state);
	op_begin(&e->meta.op, type, true, NULL, hybrid_meta_work);
}

static void commit_write(struct hybrid_engine *e)
{
	struct hybrid_op *op = &e->meta.op;

	meta_op(e, HYBRID_OP_META, META_COMMIT);
	op->fua = true;
	op->mem = e->journal.entry;
	op->segments = e->meta.segment;
	op->nr_segments = 1;
	e->meta.segment[0].origin = false;
	e->meta.segment[0].offset = 0;
	e->meta.segment[0].sector = hybrid_journal_seal(&e->journal, &e->meta.id,
							e->intents.next_tail);
	e->meta.segment[0].count = e->journal.blocks * HYBRID_META_BLOCK_SECTORS;
	add_stat(&e->stats.journal_writes, 1);
	add_stat(&e->stats.journal_records, e->journal.nr);
	add_stat(&e->stats.metadata_writes, e->journal.blocks);
}

/* A commit without records. */
static void commit_flush(struct hybrid_engine *e)
{
	meta_op(e, HYBRID_OP_FLUSH, META_FLUSH);
	add_stat(&e->stats.cache_flushes, 1);
}

/*
 * This commit covers neither cache writes that end from here on nor their changes.  The notes move
 * before the records are gathered, so that a write that ends meanwhile notes them again.
 */
static void take_notes(struct hybrid_engine *e)
{
	struct hybrid_volume *v;

	list_for_each_entry(v, &e->volumes.open, open_link) {
		if (READ_ONCE(v->commit.written)) {
			v->commit.flushing = true;
			WRITE_ONCE(v->commit.written, false);
		}
		if (READ_ONCE(v->commit.unrecorded)) {
			v->commit.recording = true;
			WRITE_ONCE(v->commit.unrecorded, false);
		}
	}
	/* Before looking at the marks; pairs with note_cache_written() and note_unrecorded(). */
	smp_mb();
}

/* All that the notes stand for is durable now; or (@again) some of it needs another commit. */
static void end_notes(struct hybrid_engine *e, bool again)
{
	struct hybrid_volume *v;

	list_for_each_entry(v, &e->volumes.open, open_link) {
		if (again && v->commit.flushing)
			WRITE_ONCE(v->commit.written, true);
		if (again && v->commit.recording)
			WRITE_ONCE(v->commit.unrecorded, true);
		v->commit.flushing = false;
		v->commit.recording = false;
	}
}

static bool commit_needed(struct hybrid_engine *e)
{
	return e->commit.wanted || e->commit.opens_wanted || e->commit.lazy_wanted ||
	       !list_empty(&e->commit.next);
}

static bool waits_for_commit(struct hybrid_engine *e, const struct hybrid_volume *v)
{
	struct hybrid_io *io;

	list_for_each_entry(io, &e->commit.now, link)
		if (io->volume == v)
			return true;
	return false;
}

/*
 * Some volumes have records that only a flush of their origin lets out.  Waiters of
 * these wait for that flush, or fail if no flush can help any more.
 */
static void commit_wait_origins(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_volume *v;
	struct hybrid_io *io, *n;

	e->commit.gated = false;
	list_for_each_entry(v, &e->volumes.open, open_link)
		if (v->flush.gated && !v->flush.error && waits_for_commit(e, v))
			hybrid_origin_flush_locked(e, v, acts);
	list_for_each_entry_safe(io, n, &e->commit.now, link) {
		v = io->volume;
		if (!v->flush.gated)
			continue;
		if (v->flush.error) {
			list_del_init(&io->link);
			complete_io(io, v->flush.error, acts);
		} else {
			list_move_tail(&io->link, &e->commit.waiting);
		}
	}
	list_for_each_entry(v, &e->volumes.open, open_link)
		v->flush.gated = false;
}

/*
 * Does the commit need a flush of the cache device alone?  Then records stay for a later entry: of
 * granules that are under intents.  Only the notes that the commit has taken tell: other CPUs note
 * changes all the time, and those are the next commit's.
 */
static bool flush_suffices(const struct hybrid_engine *e)
{
	const struct hybrid_volume *v;

	lockdep_assert_held(&e->lock);
	if (list_empty(&e->commit.now) || e->commit.wanted || e->commit.opens_wanted ||
	    e->commit.lazy_wanted)
		return false;
	list_for_each_entry(v, &e->volumes.open, open_link)
		if (v->commit.recording)
			return false;
	return true;
}

/* Prepare a commit in meta.op; false: there was nothing to do. */
static bool commit_begin(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	bool waiters, all, flush, moves_tail;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	list_splice_tail_init(&e->commit.next, &e->commit.now);
	waiters = !list_empty(&e->commit.now);
	if (waiters)
		take_notes(e);
	flush = flush_suffices(e);
	e->commit.lazy = e->commit.lazy_wanted;
	e->commit.opens = !waiters && !e->commit.wanted && !e->commit.lazy_wanted;
	e->commit.wanted = false;
	e->commit.opens_wanted = false;
	e->commit.lazy_wanted = false;
	e->intents.wanted = false;
	/* Before the records are gathered (J13) */
	e->intents.next_tail = e->commit.opens ? e->journal.intent_tail : intents_ended(e);
	intents_flush_begins(e);
	spin_unlock_irqrestore(&e->lock, flags);
	e->commit.gated = false;
	WRITE_ONCE(e->journal.nr, 0);
	all = flush || assemble(e);
	spin_lock_irqsave(&e->lock, flags);
	if (!all) {
		/* The waiters complete with the last of the entries that the commit takes. */
		end_notes(e, true);
		list_splice_init(&e->commit.now, &e->commit.next);
		e->commit.wanted |= !e->commit.opens;
		e->commit.opens_wanted |= e->commit.opens;
		e->commit.lazy_wanted |= e->commit.lazy;
		e->intents.next_tail = e->journal.intent_tail;
	} else if (e->commit.lazy) {
		e->cp.lazy_due = false;
	}
	moves_tail = !flush && e->intents.next_tail > e->journal.intent_tail;
	if (e->commit.gated && waiters)
		commit_wait_origins(e, acts);
	waiters = !list_empty(&e->commit.now);
	/* All waiters wait for origins: nothing goes out, and the next entry may need no flush. */
	if (!waiters && !e->journal.nr && !moves_tail)
		end_notes(e, true);
	spin_unlock_irqrestore(&e->lock, flags);
	if (e->journal.nr && e->commit.opens)
		commit_write(e);
	else if (e->journal.nr || moves_tail)
		meta_op(e, HYBRID_OP_FLUSH, META_COMMIT_FLUSH);
	else if (waiters)
		commit_flush(e);
	else
		return false;
	return true;
}

/* The entry is durable: its records take effect. */
static void commit_applied(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_journal *j = &e->journal;
	unsigned long flags;
	u32 k;

	for (k = 0; k < j->nr; k++) {
		const struct hybrid_record *r = &j->entry->record[k];
		u32 where = le32_to_cpu(r->where), set, i;
		bool regions = le32_to_cpu(r->type) == HYBRID_RECORD_REGIONS;
		struct hybrid_set *s;
		bool waiting;

		set = regions ? where : where / e->map.set_size;
		i = where % e->map.set_size;
		s = &e->map.set[set];
		spin_lock_irqsave(&s->lock, flags);
		if (regions)
			s->regions.dopen = s->regions.jopen;
		else if (!r->instance)
			hybrid_removal_durable(e, set, i);
		else if (!r->valid)
			hybrid_remove_empty_block(e, set, i);
		s->regions.ending = 0;
		s->regions.dropping = 0;
		waiting = somebody_waits(s);
		spin_unlock_irqrestore(&s->lock, flags);
		if (waiting)
			hybrid_wake_set(e, set, WAIT_OPEN | WAIT_TRANSIT | WAIT_RECORD, acts);
	}
	hybrid_journal_advance(j);
	if (READ_ONCE(e->intents.nr))
		hybrid_intents_passed(e, acts);
}

static void commit_end(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_io *io, *n;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	end_notes(e, false);
	spin_unlock_irqrestore(&e->lock, flags);
	list_for_each_entry_safe(io, n, &e->commit.now, link) {
		list_del_init(&io->link);
		complete_io(io, 0, acts);
	}
}

static void wake_checkpoint(struct hybrid_engine *e, struct list_head *list, int error,
			    struct hybrid_actions *acts)
{
	struct hybrid_waiter *w, *n;

	list_for_each_entry_safe(w, n, list, link) {
		list_del_init(&w->link);
		w->error = error;
		w->op.type = HYBRID_OP_WAKE;
		w->op.waiter = w;
		act(acts, &w->op);
	}
}

/* Has the pool failed with nothing of @v lost?  Its superblock says so, or will: lost_collect(). */
static bool records_are_void(const struct hybrid_volume *v)
{
	return v->sb.lost_known && !(v->sb.info.flags & HYBRID_SB_DIRTY);
}

/*
 * The granules that record @k of the entry ends count as dirty on record again.  But if an intent
 * failed first, and nothing of the volume was lost, no record of it counts any more.
 */
static void record_lost(struct hybrid_engine *e, u32 k)
{
	u32 where = le32_to_cpu(e->journal.entry->record[k].where);
	u32 set = where / e->map.set_size, i = where % e->map.set_size;
	struct hybrid_set *s = &e->map.set[set];
	u64 ended = e->journal.ended[k];
	unsigned long flags;

	if (!ended)
		return;
	spin_lock_irqsave(&s->lock, flags);
	if (!records_are_void(key_volume(e, s->key[i]))) {
		set_put_mask(&e->map, s, MASK_JVALID, i,
			     block_mask(e, s, MASK_JVALID, i) | ended);
		hybrid_put_jdirty(e, s, i, block_mask(e, s, MASK_JDIRTY, i) | ended);
		hybrid_mark_lazy(e, set, i);
	}
	spin_unlock_irqrestore(&s->lock, flags);
}

/*
 * The entry failed, but may be durable all the same.  If it is not, the granules that its
 * records end stay dirty on disk, and recovery takes their cached copies.  So these granules
 * count as dirty on record: neither writes nor discards may change the origin's copies.  Those
 * that came before this was known wait for the end of the entry.
 */
static void commit_lost(struct hybrid_engine *e)
{
	unsigned long flags;
	u32 k, set;

	for (k = 0; k < e->journal.nr; k++)
		record_lost(e, k);
	for (k = 0; k < e->journal.nr; k++) {
		if (!e->journal.ended[k])
			continue;
		set = le32_to_cpu(e->journal.entry->record[k].where) / e->map.set_size;
		spin_lock_irqsave(&e->map.set[set].lock, flags);
		e->map.set[set].regions.ending = 0;
		spin_unlock_irqrestore(&e->map.set[set].lock, flags);
	}
}

/* The intents that had ended when the flush began are durable, with their data. */
static void intents_flushed(struct hybrid_engine *e)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	e->intents.flushed = e->intents.flushing;
	spin_unlock_irqrestore(&e->lock, flags);
}

/* The last operation has succeeded. */
static void meta_succeeded(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	switch (e->meta.state) {
	case META_COMMIT:
		commit_applied(e, acts);
		/* Blocks that it recorded as clean can be evicted. */
		want(acts, WANT_STALLED);
		/* Granules that it recorded as dirty can be written back. */
		want_writeback(acts, NULL);
		commit_end(e, acts);
		break;
	case META_FLUSH:
		intents_flushed(e);
		commit_end(e, acts);
		break;
	case META_CHECKPOINT:
		hybrid_checkpoint_step_done(e);
		if (e->cp.phase == CP_NONE)
			wake_checkpoint(e, &e->cp.now, 0, acts);
		break;
	default:
		break;
	}
}

static void meta_done(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	int error = e->meta.op.error_cache;

	/*
	 * Before others see the failure, unless an intent failed first; for a flush see
	 * hybrid_meta_work().
	 */
	if (e->meta.state == META_COMMIT_FLUSH || (e->meta.state == META_COMMIT && error))
		commit_lost(e);
	if (error)
		hybrid_fail_pool(e, e->meta.op.type == HYBRID_OP_FLUSH ? CACHE_FLUSH_ERRORS :
								 CACHE_WRITE_ERRORS);
	else
		meta_succeeded(e, acts);
	WRITE_ONCE(e->meta.state, META_WORK);
}

/* Wake all I/O and all checkpoints that wait for metadata of a failed pool. */
static void meta_fail(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	LIST_HEAD(waiters);
	unsigned long flags;
	LIST_HEAD(ios);

	spin_lock_irqsave(&e->lock, flags);
	list_splice_tail_init(&e->commit.now, &ios);
	list_splice_tail_init(&e->commit.next, &ios);
	list_splice_tail_init(&e->commit.waiting, &ios);
	list_splice_tail_init(&e->cp.now, &waiters);
	list_splice_tail_init(&e->cp.waiters, &waiters);
	e->commit.wanted = false;
	e->commit.opens_wanted = false;
	e->commit.lazy_wanted = false;
	e->cp.wanted = false;
	e->cp.lazy_due = false;
	e->cp.phase = CP_NONE;
	WRITE_ONCE(e->meta.state, META_IDLE);
	spin_unlock_irqrestore(&e->lock, flags);
	hybrid_intents_failed(e, acts);
	hybrid_rerun_list(&ios, acts);
	wake_checkpoint(e, &waiters, -EIO, acts);
	hybrid_wake_all_sets(e, WAIT_OPEN | WAIT_TRANSIT | WAIT_RECORD, acts);
}

/* The prepared operation is not carried out: the pool has failed meanwhile. */
static void meta_give_up(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	if (e->meta.state == META_COMMIT_FLUSH || e->meta.state == META_COMMIT)
		commit_lost(e);
	hybrid_intents_lost(e);
	meta_fail(e, acts);
}

/*
 * Choose and prepare the next operation.  Commits and the steps of a checkpoint take turns, where
 * the journal has room.  So no flush waits for a whole checkpoint.  And flushes without a pause do
 * not keep it from its end, for which the opening of another volume may wait.
 */
static bool meta_next(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	bool room = hybrid_journal_has_room(&e->journal);
	unsigned long flags;
	bool commit;

	spin_lock_irqsave(&e->lock, flags);
	/*
	 * Changes that a checkpoint is to cover may still wait for a lazy commit: one, of those
	 * that writeback asks for without a pause.
	 */
	if (e->cp.phase == CP_NONE &&
	    ((e->cp.wanted && !e->cp.lazy_due) || !room ||
	     hybrid_journal_half_full(&e->journal)))
		hybrid_checkpoint_begin(e);
	commit = commit_needed(e);
	spin_unlock_irqrestore(&e->lock, flags);
	if (commit && room && !(e->cp.phase != CP_NONE && e->cp.passed) && commit_begin(e, acts)) {
		e->cp.passed = true;
		return true;
	}
	if (e->cp.phase == CP_NONE)
		return false;
	e->cp.passed = false;
	meta_op(e, HYBRID_OP_META, META_CHECKPOINT);
	hybrid_checkpoint_step(e);
	return true;
}

/*
 * Begins the next operation.  If the pool has failed while the operation was prepared, it is not
 * carried out: an assertion may have failed on the very state that its entry records.
 */
static void meta_begin(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	unsigned long flags;
	bool more = true;

	do {
		hybrid_reclaim(e, acts);
		if (meta_next(e, acts)) {
			if (READ_ONCE(e->life.failed))
				break;
			act(acts, &e->meta.op);
			return;
		}
		spin_lock_irqsave(&e->lock, flags);
		more = commit_needed(e) || e->cp.wanted;
		if (!more)
			WRITE_ONCE(e->meta.state, META_IDLE);
		spin_unlock_irqrestore(&e->lock, flags);
	} while (more && !READ_ONCE(e->life.failed));
	if (more)
		meta_give_up(e, acts);
}

void hybrid_meta_work(struct hybrid_engine *e, struct hybrid_op *op, struct hybrid_actions *acts)
{
	engine_assert(e, e->meta.state != META_IDLE);
	/* The data that the records describe is durable. */
	if (e->meta.state == META_COMMIT_FLUSH && !op->error_cache && !READ_ONCE(e->life.failed)) {
		intents_flushed(e);
		commit_write(e);
		act(acts, &e->meta.op);
		return;
	}
	if (e->meta.state != META_WORK)
		meta_done(e, acts);
	if (READ_ONCE(e->life.failed)) {
		meta_give_up(e, acts);
	} else if (!list_empty(&acts->again)) {
		/*
		 * I/O that waited for this commit goes on before the next entry is assembled,
		 * which could close the region that was opened for it.
		 */
		op->type = HYBRID_OP_WORK;
		act(acts, op);
	} else {
		meta_begin(e, acts);
	}
}

/* ---- users' flushes that begin at once ------------------------------------- */

/* If the flush has succeeded, in any context. */
static void flushed_at_once(struct hybrid_engine *e, struct hybrid_op *op,
			    struct hybrid_actions *acts)
{
	struct hybrid_io *io;
	unsigned long flags;

	if (op->error_cache) {
		hybrid_meta_work(e, op, acts);
		return;
	}
	spin_lock_irqsave(&e->lock, flags);
	io = list_first_entry(&e->commit.now, struct hybrid_io, link);
	list_del_init(&io->link);
	engine_assert(e, list_empty(&e->commit.now));
	io->volume->commit.flushing = false;
	e->intents.flushed = e->intents.flushing;
	complete_io(io, 0, acts);
	WRITE_ONCE(e->meta.state, META_IDLE);
	if (commit_needed(e) || e->cp.wanted)
		hybrid_meta_kick_locked(e, acts);
	spin_unlock_irqrestore(&e->lock, flags);
}

/*
 * Begins a flush of the cache device for @io, if that is all that @io needs and no metadata
 * operation is in flight.  It is not the worker's: nothing is assembled.
 */
static bool flush_at_once(struct hybrid_engine *e, struct hybrid_io *io,
			  struct hybrid_actions *acts)
{
	struct hybrid_volume_commit *c = &io->volume->commit;

	lockdep_assert_held(&e->lock);
	if (READ_ONCE(c->unrecorded) || !READ_ONCE(c->written) ||
	    READ_ONCE(e->meta.state) != META_IDLE || !is_loaded(e) || READ_ONCE(e->life.failed))
		return false;
	intents_flush_begins(e);
	c->flushing = true;
	WRITE_ONCE(c->written, false);
	/* Take the note before the flush begins; pairs with note_cache_written(). */
	smp_mb();
	io->state = IO_COMMIT;
	list_add_tail(&io->link, &e->commit.now);
	commit_flush(e);
	e->meta.op.done = flushed_at_once;
	e->meta.op.direct = true;
	act(acts, &e->meta.op);
	return true;
}

void hybrid_flush_io(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	unsigned long flags;
	bool taken;

	sync_flushed(v);
	spin_lock_irqsave(&e->lock, flags);
	if (v->flush.error || v->flush.last_user_write > v->flush.flushed) {
		taken = true;
		list_add_tail(&io->link, &v->flush.next);
		hybrid_origin_flush_locked(e, v, acts);
	} else {
		taken = flush_at_once(e, io, acts);
	}
	spin_unlock_irqrestore(&e->lock, flags);
	if (!taken)
		hybrid_commit_or_complete(e, io, acts);
}

void hybrid_flush_after_write(struct hybrid_engine *e, struct hybrid_io *io,
			      struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	list_add_tail(&io->link, &v->flush.next);
	hybrid_origin_flush_locked(e, v, acts);
	spin_unlock_irqrestore(&e->lock, flags);
}

/* ---- once an interval ---------------------------------------------------- */

/* Is anything left that the journal does not know? */
bool hybrid_unrecorded_left(struct hybrid_engine *e)
{
	return find_first_bit(e->commit.must_sets, e->map.nr_sets) < e->map.nr_sets ||
	       find_first_bit(e->commit.lazy_sets, e->map.nr_sets) < e->map.nr_sets ||
	       find_first_bit(e->commit.open_sets, e->map.nr_sets) < e->map.nr_sets ||
	       READ_ONCE(e->intents.nr);
}

/*
 * Requests a commit at once if no origin needs a flush.  An origin that may never answer the flush
 * under way must not keep other volumes' changes from the journal.
 */
static void record_lazily(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_volume *v;
	unsigned long flags;
	bool flushing = false, busy;

	spin_lock_irqsave(&e->lock, flags);
	list_for_each_entry(v, &e->volumes.open, open_link) {
		busy = v->flush.busy || v->sb.busy;
		flushing |= hybrid_origin_settle_locked(e, v, true, acts) && !busy;
	}
	if (!flushing) {
		e->commit.lazy_wanted = true;
		hybrid_meta_kick_locked(e, acts);
	}
	spin_unlock_irqrestore(&e->lock, flags);
}

void hybrid_lazy_interval(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	unsigned long flags;
	u32 set;

	for_each_set_bit(set, e->commit.open_sets, e->map.nr_sets) {
		struct hybrid_set *s = &e->map.set[set];

		spin_lock_irqsave(&s->lock, flags);
		s->regions.aged = s->regions.recent;
		s->regions.recent = 0;
		spin_unlock_irqrestore(&s->lock, flags);
	}
	if (hybrid_unrecorded_left(e))
		record_lazily(e, acts);
}
