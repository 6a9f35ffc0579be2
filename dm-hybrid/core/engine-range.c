// SPDX-License-Identifier: GPL-2.0-only
/*
 * Discard and write-zeroes, which may span many blocks.
 *
 *   1. the range is entered on the volume's list: from then on writes to it
 *      wait, no fill of it begins, nothing of it is written back;
 *   2. block by block: wait for writes and jobs in flight, and (J4) for the
 *      region of a clean granule to be open;
 *   3. the origin carries out the operation, unless that is a discard and the
 *      origin takes none;
 *   4. the granules are dropped from the cache.  Zeroes replace dirty data, so
 *      the record of that waits for an origin flush (J2); a discard need not.
 *
 * After a discard a granule reads as its last value or as the origin's, and as the same one
 * from the next flush on, which makes the record of the drop durable.
 *
 * A range that does not begin and end at a granule's boundary is cut down (discard)
 * or refused (zeroes: the caller has to write such parts as data).
 */
#include "engine-internal.h"

/* Ranges of a volume that may be in flight: each write looks at all of them. */
#define MAX_RANGES 64

/* Cuts the range to whole granules.  Returns false if nothing is left, or it may not be cut. */
static bool align_range(struct hybrid_engine *e, struct hybrid_io *io)
{
	u64 granule = e->g->granule_sectors, end = io->sector + io->count;
	u64 from = round_up(io->sector, granule), to = round_down(end, granule);

	if (end == io->volume->info.data_sectors)
		to = end;
	if (from == io->sector && to == end)
		return true;
	if (io->type == HYBRID_IO_ZEROES || from >= to)
		return false;
	io->sector = from;
	io->count = to - from;
	return true;
}

/* Sets key and granules of @io to the part of the range in block @b. */
static void range_block(struct hybrid_engine *e, struct hybrid_io *io, u64 b)
{
	u64 start = b << e->g->block_shift;
	u64 from = max(io->sector, start), to = min(io->sector + io->count,
						    start + e->g->block_sectors);
	u32 first = (from - start) >> e->g->granule_shift;
	u32 last = (to - start - 1) >> e->g->granule_shift;

	io->key = hybrid_key(io->volume->id, to_oblock(b));
	io->set = hybrid_map_set_of(&e->map, io->key);
	io->mask = GENMASK_ULL(last, first);
}

/* Does the operation change the origin? */
static bool range_to_origin(const struct hybrid_io *io)
{
	return io->type == HYBRID_IO_ZEROES ||
	       !(READ_ONCE(io->volume->traits) & HYBRID_ORIGIN_NO_DISCARD);
}

/* Must the range wait for something in this block? */
static bool range_waits(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			struct hybrid_actions *acts)
{
	int i = hybrid_set_find(&e->map, s, io->key);
	u64 jclean, unrecorded;

	/* From here on nothing reads it ahead: the range is listed. */
	hybrid_readahead_forget(e, s, io->key, io->mask, READAHEAD_DISCARDED);
	io->wait = 0;
	if (hybrid_write_in_flight(s, io->key, io->mask))
		io->wait = WAIT_OVERLAP;
	if (i < 0)
		return io->wait;
	if ((s->flags[i] & BLOCK_REMOVED) && !hybrid_resurrect(e, io->set, i, acts) &&
	    !READ_ONCE(e->life.failed))
		io->wait = WAIT_TRANSIT;
	if (s->flags[i] & BLOCK_BUSY)
		io->wait = WAIT_BUSY;
	if (io->wait)
		return true;
	if (READ_ONCE(e->life.failed)) {
		/* Waits and fails as a write does: the record would undo it. */
		if (s->regions.ending & region_bit(i)) {
			io->wait = WAIT_RECORD;
			return true;
		}
		if ((block_mask(e, s, MASK_DIRTY, i) | block_mask(e, s, MASK_JDIRTY, i)) & io->mask)
			io->error = -EIO;
		return false;
	}
	/*
	 * Dirty data must be on record before the range replaces it: otherwise a
	 * flush that is under way would find the data on neither device.
	 */
	unrecorded = block_mask(e, s, MASK_DIRTY, i) & ~block_mask(e, s, MASK_JDIRTY, i);
	if (unrecorded & io->mask) {
		want(acts, WANT_COMMIT);
		io->wait = WAIT_RECORD;
		return true;
	}
	if (is_intended(s, i, io->mask)) {
		hybrid_intents_await(e, s, i, io->mask, acts);
		io->wait = WAIT_RECORD;
		return true;
	}
	if ((s->regions.dropping & region_bit(i)) || !hybrid_record_first(e, io->set, i, acts)) {
		io->wait = WAIT_RECORD;
		return true;
	}
	s->regions.recent |= region_bit(i);
	jclean = block_mask(e, s, MASK_JVALID, i) & ~block_mask(e, s, MASK_JDIRTY, i);
	if ((jclean & io->mask) && !(s->regions.dopen & region_bit(i)) && range_to_origin(io)) {
		hybrid_open_region(e, io->set, i, acts);
		io->wait = WAIT_OPEN;
		return true;
	}
	/* No granule may be recorded as clean while the origin changes. */
	hybrid_set_invalidate(&e->map, s, i, io->mask & ~block_mask(e, s, MASK_DIRTY, i));
	if (set_unrecorded(&e->map, s, i))
		hybrid_mark_lazy(e, io->set, i);
	return false;
}

static u64 first_block(const struct hybrid_engine *e, const struct hybrid_io *io)
{
	return io->sector >> e->g->block_shift;
}

static u64 last_block(const struct hybrid_engine *e, const struct hybrid_io *io)
{
	return (io->sector + io->count - 1) >> e->g->block_shift;
}

static bool range_enter(struct hybrid_engine *e, struct hybrid_io *io)
{
	struct hybrid_volume *v = io->volume;
	unsigned long flags;
	bool full, entered;

	spin_lock_irqsave(&e->lock, flags);
	full = v->ranges.nr >= MAX_RANGES;
	/* Ranges that overlap go one at a time. */
	entered = !full && !hybrid_find_range(v, io->sector, io->count);
	if (full) {
		list_add_tail(&io->link, &v->ranges.queue);
	} else if (entered) {
		list_add_tail(&io->link, &v->ranges.list);
		WRITE_ONCE(v->ranges.nr, v->ranges.nr + 1);
		io->state = IO_RANGE;
		io->range.cursor = first_block(e, io);
	} else {
		list_add_tail(&io->link, &v->ranges.waiters);
	}
	spin_unlock_irqrestore(&e->lock, flags);
	return entered;
}

/* The next range in the queue, if there is room for it now. */
static struct hybrid_io *next_queued(struct hybrid_engine *e, struct hybrid_volume *v)
{
	struct hybrid_io *io = NULL;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	if (v->ranges.nr < MAX_RANGES)
		io = list_first_entry_or_null(&v->ranges.queue, struct hybrid_io, link);
	if (io)
		list_del_init(&io->link);
	spin_unlock_irqrestore(&e->lock, flags);
	return io;
}

static void range_leave(struct hybrid_engine *e, struct hybrid_io *io,
			struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	struct hybrid_io *next;
	unsigned long flags;
	LIST_HEAD(waiters);

	spin_lock_irqsave(&e->lock, flags);
	list_del_init(&io->link);
	if (engine_assert(e, v->ranges.nr))
		WRITE_ONCE(v->ranges.nr, v->ranges.nr - 1);
	list_splice_init(&v->ranges.waiters, &waiters);
	spin_unlock_irqrestore(&e->lock, flags);
	hybrid_rerun_list(&waiters, acts);
	/*
	 * Each range that leaves makes room for one.  In a pool that failed that one may leave
	 * at once, and so may all in the queue, perhaps thousands: too many for one event.
	 */
	next = next_queued(e, v);
	if (next)
		hybrid_rerun_later(next, acts);
}

/* Step 2, from io->range.cursor on.  Returns false if @io waits, listed by io->range.wait_link. */
static bool prepare_blocks(struct hybrid_engine *e, struct hybrid_io *io,
			   struct hybrid_actions *acts)
{
	for (; io->range.cursor <= last_block(e, io); io->range.cursor++) {
		struct hybrid_set *s;
		unsigned long flags;
		bool waits;

		range_block(e, io, io->range.cursor);
		s = &e->map.set[io->set];
		spin_lock_irqsave(&s->lock, flags);
		waits = range_waits(e, s, io, acts);
		if (waits)
			list_add_tail(&io->range.wait_link, &s->waiting.ranges);
		spin_unlock_irqrestore(&s->lock, flags);
		if (waits)
			return false;
	}
	return true;
}

/* After an error only clean granules are dropped: the origin may have changed below them. */
static void drop_granules(struct hybrid_engine *e, struct hybrid_io *io, int error)
{
	struct hybrid_set *s = &e->map.set[io->set];
	unsigned long flags;
	int i;

	spin_lock_irqsave(&s->lock, flags);
	i = hybrid_set_find(&e->map, s, io->key);
	if (i >= 0 && (s->flags[i] & BLOCK_MAPPED)) {
		u64 dirty = block_mask(e, s, MASK_DIRTY, i);
		u64 drop = error ? io->mask & ~dirty : io->mask;
		/* Dirty in RAM or on record, or the record that ends it is on its way */
		bool ends = (drop & (dirty | block_mask(e, s, MASK_JDIRTY, i))) ||
			    (s->regions.ending & region_bit(i));

		hybrid_put_dirty(e, s, i, dirty & ~drop);
		hybrid_set_invalidate(&e->map, s, i, drop);
		if (io->type == HYBRID_IO_ZEROES)
			s->flush_epoch[i] = (u32)READ_ONCE(io->volume->flush.last_write);
		if (set_unrecorded(&e->map, s, i))
			hybrid_mark_must(e, io->set, i);
		/* The user's next flush makes this final; clean granules' region is open. */
		if (ends)
			note_unrecorded(io->volume);
		hybrid_remove_empty_block(e, io->set, i);
	}
	spin_unlock_irqrestore(&s->lock, flags);
}

static void drop_range(struct hybrid_engine *e, struct hybrid_io *io, int error)
{
	u64 b;

	for (b = first_block(e, io); b <= last_block(e, io); b++) {
		range_block(e, io, b);
		drop_granules(e, io, error);
	}
}

enum hybrid_map_result hybrid_range_io(struct hybrid_engine *e, struct hybrid_io *io,
				       struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;

	if (io->state != IO_RANGE) {
		if (!align_range(e, io)) {
			complete_io(io, io->type == HYBRID_IO_ZEROES ? -EOPNOTSUPP : 0, acts);
			return HYBRID_MAP_TAKEN;
		}
		if (!range_enter(e, io))
			return HYBRID_MAP_TAKEN;
	}
	if (!prepare_blocks(e, io, acts))
		return HYBRID_MAP_TAKEN;
	if (READ_ONCE(e->life.failed) && v->sb.present && READ_ONCE(v->sb.state) != SB_ALONE &&
	    (io->error || range_to_origin(io))) {
		/* This is rare, so the range simply begins anew. */
		io->state = IO_NEW;
		io->error = 0;
		range_leave(e, io, acts);
		hybrid_sb_wait(e, v, SB_ALONE, io, acts);
		return HYBRID_MAP_TAKEN;
	}
	if (io->error) {
		range_leave(e, io, acts);
		complete_io(io, io->error, acts);
		return HYBRID_MAP_TAKEN;
	}
	if (!range_to_origin(io)) {
		if (!READ_ONCE(e->life.failed))
			drop_range(e, io, 0);
		range_leave(e, io, acts);
		complete_io(io, 0, acts);
		return HYBRID_MAP_TAKEN;
	}
	hybrid_user_op(io, true, v->info.data_sector + io->sector, false);
	return HYBRID_MAP_REMAP;
}

bool hybrid_range_done(struct hybrid_engine *e, struct hybrid_io *io, int error,
		       struct hybrid_actions *acts)
{
	hybrid_origin_written(e, io->volume, true);
	if (error) {
		count(io->volume, HYBRID_ORIGIN_ERRORS);
		io->error = error;
	}
	drop_range(e, io, error);
	range_leave(e, io, acts);
	return true;
}
