// SPDX-License-Identifier: GPL-2.0-only
/* Writes that are no hit: which device each granule goes to, and the end of the write. */
#include "engine-internal.h"

bool hybrid_write_conflicts(const struct hybrid_set *s, const struct hybrid_io *io)
{
	struct hybrid_io *w;

	hlist_for_each_entry(w, &s->inflight, write.inflight) {
		u64 both = w->mask & io->mask;

		if (w->key != io->key || !both)
			continue;
		if ((w->to_cache | io->to_cache) & (w->to_origin | io->to_origin) & both)
			return true;
	}
	return false;
}

/* Chooses the device of each granule of a write, by the volume's mode. */
static void split_write(struct hybrid_engine *e, struct hybrid_io *io, bool cached, u64 valid,
			u64 dirty)
{
	u32 mode = write_mode(e, io->volume);
	u64 d = dirty & io->mask;
	/* J11: parts of granules that are not valid, where fetch_rest() could not help. */
	u64 partial = io->mask & ~io->whole & ~valid & ~d;

	if (mode == HYBRID_MODE_WRITEBACK && !dirty && dirty_limit_reached(io->volume))
		mode = HYBRID_MODE_WRITETHROUGH;
	switch (mode) {
	case HYBRID_MODE_WRITEBACK:
		io->to_cache = cached ? io->mask & ~partial : 0;
		io->to_origin = io->mask & ~io->to_cache;
		break;
	case HYBRID_MODE_WRITETHROUGH:
		io->to_cache = cached ? io->mask & ~partial : 0;
		io->to_origin = io->mask & ~d;
		break;
	default:
		io->to_cache = d;
		io->to_origin = io->mask & ~d;
	}
}

/* Should a write to a block that is not cached bring it into the cache? */
static bool write_allocates(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			    struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	u32 mode = write_mode(e, v);

	if (mode == HYBRID_MODE_WRITEAROUND || mode == HYBRID_MODE_PASSTHROUGH) {
		hybrid_io_bypass(io, HYBRID_BYPASS_MODE);
		return false;
	}
	if (!io->whole && mode != HYBRID_MODE_WRITEBACK) {
		hybrid_io_bypass(io, HYBRID_BYPASS_PARTIAL);
		return false;
	}
	return hybrid_io_admission(e, s, io, acts) != REFUSED;
}

/* Is there a free block for a write?  Refills the reserve before it is needed. */
static bool room_to_write(struct hybrid_engine *e, struct hybrid_set *s,
			  const struct hybrid_io *io, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;

	if (write_mode(e, v) == HYBRID_MODE_WRITEBACK && dirty_limit_reached(v)) {
		want_writeback(acts, v);
		return false;
	}
	if (s->nr_free <= e->evict.reserve)
		hybrid_evict(e, io, acts);
	return s->nr_free;
}

/*
 * Fills @parts, granules that are not valid and that the write covers in part (J11), and usually
 * the rest of the 64 KiB with them.  The disk reads in place of writing, and if writes go on
 * unaligned the next ones hit.  Returns false if no fill can begin now; the parts then go to the
 * origin.
 */
static bool fetch_rest(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
		       int i, u64 parts, struct hybrid_actions *acts)
{
	u64 mask = e->map.granules, from = io->key, to = from + 1;
	struct hybrid_job *job;

	if (!origin_seeks(io->volume) || hybrid_write_in_flight(s, io->key, mask) ||
	    !hybrid_worth_its_wear(e, s, io))
		mask = parts;
	/* Granules between the parts are read, too, and reads of them are served. */
	if ((i < 0 && !s->nr_free) ||
	    hybrid_fill_conflicts(e, s, io->volume, io->key, i, mask | io->mask))
		return false;
	if (mask != parts)
		hybrid_near_range(e, s, io->volume, io->key, &from, &to);
	job = hybrid_fill_get(e, JOB_FILL, io->volume, from);
	if (!job)
		return false;
	if (i < 0)
		i = hybrid_take_block(e, s, io->volume, io->key);
	hybrid_fill_add(e, s, job, io->key, i, mask);
	hybrid_fill_beside(e, s, io, job, from, to, ADMITTED, acts);
	hybrid_fill_start(e, job, io, acts);
	return true;
}

/*
 * Must this write wait for the record that ends dirty granules of the block?  Yes, if it goes to
 * the origin, or overlaps granules that were replaced there; and in a drain, if it would make
 * granules dirty again that were written back: otherwise the drain would last as long as writes do.
 */
static bool needs_record(const struct hybrid_engine *e, const struct hybrid_set *s,
			 const struct hybrid_io *io, int i)
{
	u64 ended = hybrid_replaced_granules(e, s, i);

	if (drains(e, io->volume))
		ended |= block_mask(e, s, MASK_JDIRTY, i) & ~block_mask(e, s, MASK_DIRTY, i);
	return io->to_origin || (ended & io->mask);
}

/*
 * Must this write wait, or has it ended with an error?  The caller has set to_cache and to_origin.
 */
static bool write_waits(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			int i, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	u64 jclean;

	if (hybrid_write_conflicts(s, io)) {
		hybrid_wait_in_set(s, io, WAIT_OVERLAP);
		return true;
	}
	if (i < 0)
		return false;
	if (is_intended(s, i, io->mask)) {
		hybrid_intents_await(e, s, i, io->mask, acts);
		hybrid_wait_in_set(s, io, WAIT_RECORD);
		return true;
	}
	/* Until the record is durable, granules that it drops count as clean (J4). */
	if (s->regions.dropping & region_bit(i)) {
		hybrid_wait_in_set(s, io, WAIT_RECORD);
		return true;
	}
	/* Nothing can make a write durable under a record that will never end. */
	if ((io->flags & HYBRID_IO_FUA) && READ_ONCE(v->flush.error) &&
	    (io->to_origin & block_mask(e, s, MASK_JDIRTY, i))) {
		complete_io(io, READ_ONCE(v->flush.error), acts);
		return true;
	}
	if (needs_record(e, s, io, i) && !hybrid_record_first(e, io->set, i, acts)) {
		hybrid_wait_in_set(s, io, WAIT_RECORD);
		return true;
	}
	jclean = block_mask(e, s, MASK_JVALID, i) & ~block_mask(e, s, MASK_JDIRTY, i);
	if ((jclean & io->mask) && !(s->regions.dopen & region_bit(i))) {
		if (io->to_origin || (s->regions.wanted & region_bit(i)) ||
		    !hybrid_invalidate_first(e, io->set, acts)) {
			/* It stays open for as long as after a write. */
			s->regions.recent |= region_bit(i);
			hybrid_open_region(e, io->set, i, acts);
		}
		hybrid_wait_in_set(s, io, WAIT_OPEN);
		return true;
	}
	if ((io->to_cache & ~io->to_origin) && READ_ONCE(v->sb.state) == SB_CLEAN &&
	    v->sb.present) {
		hybrid_sb_wait(e, v, SB_DIRTY, io, acts);
		return true;
	}
	return false;
}

static bool write_needs_copy(const struct hybrid_io *io)
{
	return io->to_cache && io->to_origin;
}

/* The write goes out: sets the state that its granules have in RAM meanwhile. */
static void write_started(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			  int i)
{
	struct hybrid_job *job;
	u64 dirty, jdirty, again, valid;
	bool fua = io->flags & HYBRID_IO_FUA;

	io->idx = i;
	io->state = IO_WRITE;
	hlist_add_head(&io->write.inflight, &s->inflight);
	hybrid_readahead_forget(e, s, io->key, io->mask, READAHEAD_WRITTEN);
	if (i < 0)
		return;
	s->regions.recent |= region_bit(i);
	dirty = block_mask(e, s, MASK_DIRTY, i);
	jdirty = block_mask(e, s, MASK_JDIRTY, i);
	/*
	 * Granules written back but not yet recorded: dirty again before the record could go out
	 * with this write in flight (J2).
	 */
	valid = block_mask(e, s, MASK_VALID, i);
	again = io->to_cache & jdirty & ~dirty & valid;
	if (again)
		hybrid_put_dirty(e, s, i, dirty | again);
	io->write.redirty = again;
	io->write.overwritten = io->to_cache & valid;
	hybrid_set_invalidate(&e->map, s, i, io->mask & ~(dirty | again));
	if (set_unrecorded(&e->map, s, i))
		hybrid_mark_lazy(e, io->set, i);
	if (s->flags[i] & BLOCK_BUSY) {
		job = hybrid_job_find(e, s, io->key);
		if (job)
			job->touched |= io->mask << ((io->key - job->key) * e->g->granules);
	}
	if (io->write.intent) {
		io->commit = fua && !cache_has_fua(io->volume);
		return;
	}
	/* A record must follow, unless the granules are dirty on disk already. */
	io->commit = fua && (io->to_cache & ~io->to_origin & ~(jdirty & valid));
	/*
	 * Dirty on record may mean: in an entry that is not durable yet, see record().  And a
	 * transfer to both devices has FUA on the origin alone.
	 */
	if (fua && (READ_ONCE(e->journal.nr) || !cache_has_fua(io->volume) ||
		    write_needs_copy(io)))
		io->commit |= !!(io->to_cache & ~io->to_origin);
}

/*
 * A job for a write under an intent.  NULL: the write has no intent, as it would gain nothing, or
 * there is no room or memory.
 */
static struct hybrid_job *intent_job(struct hybrid_engine *e, struct hybrid_set *s,
				     struct hybrid_io *io, u32 i, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	bool fua = io->flags & HYBRID_IO_FUA;
	struct hybrid_job *job;

	sync_written(v);
	if (fua)
		sync_flushed(v);
	if (!(fua || volume_syncs(v)) || !hybrid_intent_allowed(e, s, io, i))
		return NULL;
	job = hybrid_job_get(e, JOB_STAGED, v);
	if (job && !hybrid_intent_begin(e, s, io, i)) {
		hybrid_job_put(e, job, acts);
		job = NULL;
	}
	return job;
}

/* The data of a write under an intent has been written, or could not be. */
static bool intended_data_written(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
				  int error_origin, struct hybrid_actions *acts)
{
	struct hybrid_set *s = &e->map.set[io->set];
	unsigned long flags;

	if (error_cache) {
		/* Reads avoid the place that failed, although the write goes on. */
		spin_lock_irqsave(&s->lock, flags);
		io->write.overwritten = 0;
		spin_unlock_irqrestore(&s->lock, flags);
	}
	return hybrid_intent_data_ended(e, io, &error_cache) &&
	       hybrid_finish_intended(e, io, error_cache, 0, acts);
}

static enum route send_write(struct hybrid_engine *e, struct hybrid_io *io,
			     struct hybrid_job *job, struct hybrid_actions *acts)
{
	bool fua = io->flags & HYBRID_IO_FUA;

	if (job && io->write.intent) {
		hybrid_staged_start(e, job, io, intended_data_written, acts);
		job->op.copied = hybrid_intent_copied;
		job->op.fua = fua && cache_has_fua(io->volume);
		return ROUTE_TAKEN;
	}
	if (job) {
		hybrid_staged_start(e, job, io, hybrid_finish_write, acts);
		return ROUTE_TAKEN;
	}
	if (!io->to_cache) {
		hybrid_user_op(io, true, io_origin_sector(io), fua);
		return ROUTE_REMAP;
	}
	cache_wears(e, io->count);
	/* The commit that follows makes the data durable, too. */
	hybrid_user_op(io, false, io_cache_sector(e, io, io->idx), fua && !io->commit);
	return ROUTE_REMAP;
}

/* The block exists; is a job in the way of the write, or of a fill of @parts? */
static bool busy_blocks_write(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			      int i, u64 parts)
{
	struct hybrid_job *job;

	if (!(s->flags[i] & BLOCK_BUSY))
		return false;
	job = hybrid_job_find(e, s, io->key);
	return !job || job->type != JOB_WRITEBACK || job->exclusive || parts ||
	       (io->to_origin && io->to_cache);
}

enum route hybrid_route_write(struct hybrid_engine *e, struct hybrid_set *s,
			      struct hybrid_io *io, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	struct hybrid_job *job = NULL;
	u64 valid = 0, dirty = 0, parts;
	int i = hybrid_set_find(&e->map, s, io->key);
	bool alloc;

	if (i >= 0 && (s->flags[i] & BLOCK_REMOVED) && !hybrid_resurrect(e, io->set, i, acts))
		return hybrid_wait_routed(s, io, WAIT_TRANSIT);
	if (i >= 0) {
		/* Granules written back but not yet recorded count as dirty, too. */
		valid = block_mask(e, s, MASK_VALID, i);
		dirty = (block_mask(e, s, MASK_DIRTY, i) | block_mask(e, s, MASK_JDIRTY, i)) &
			valid;
	}
	if (!io->counted) {
		io->counted = true;
		count(v, (io->mask & ~valid) ? HYBRID_WRITE_MISSES : HYBRID_WRITE_HITS);
		/* Decided once, however often the write has to wait. */
		io->write.admitted = i < 0 && write_allocates(e, s, io, acts);
		io->write.fetch = (i >= 0 || io->write.admitted) &&
			    write_mode(e, v) == HYBRID_MODE_WRITEBACK;
	}
	alloc = i < 0 && io->write.admitted && io->bypass != HYBRID_BYPASS_FULL;
	if (alloc && !room_to_write(e, s, io, acts)) {
		if (hybrid_stall_wait(e, s, io))
			return ROUTE_TAKEN;
		hybrid_io_bypass(io, HYBRID_BYPASS_FULL);
		io->write.fetch = false;
		alloc = false;
	}
	split_write(e, io, i >= 0 || alloc, valid, dirty);
	parts = io->write.fetch ? io->mask & ~io->whole & ~valid : 0;
	if (i >= 0 && busy_blocks_write(e, s, io, i, parts))
		return hybrid_wait_routed(s, io, WAIT_BUSY);
	if (parts) {
		io->write.fetch = false;
		if (fetch_rest(e, s, io, i, parts, acts))
			return hybrid_wait_routed(s, io, WAIT_BUSY);
		hybrid_io_bypass(io, HYBRID_BYPASS_PARTIAL);
	}
	if (write_waits(e, s, io, i, acts))
		return ROUTE_TAKEN;
	if (i < 0 && (io->to_cache & ~io->to_origin) && v->sb.present &&
	    READ_ONCE(v->sb.state) == SB_CLEAN) {
		hybrid_sb_wait(e, v, SB_DIRTY, io, acts);
		return ROUTE_TAKEN;
	}
	if (write_needs_copy(io) && !hybrid_job_get_staged(e, io, dirty & io->mask, &job))
		return ROUTE_TAKEN;
	if (write_needs_copy(io) && !job) {
		/* Others have the jobs: all of it to the origin alone. */
		io->to_cache = 0;
		io->to_origin = io->mask;
		if (write_waits(e, s, io, i, acts))
			return ROUTE_TAKEN;
		hybrid_io_bypass(io, HYBRID_BYPASS_BUSY);
	}
	if (i < 0 && io->to_cache)
		i = hybrid_take_block(e, s, v, io->key);
	else if (i >= 0 && io->to_cache)
		hybrid_set_note_hit(&e->map, s, i);
	if (i >= 0 && (s->flags[i] & BLOCK_AHEAD))
		hybrid_set_flags(s, i, 0, BLOCK_AHEAD);
	if (io->to_cache && !io->to_origin)
		job = intent_job(e, s, io, i, acts);
	write_started(e, s, io, i);
	return send_write(e, io, job, acts);
}

/* Applies a write that ended to the state in RAM.  Caller holds the set's lock. */
static void write_applied(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			  bool cache_ok, bool origin_ok)
{
	int i = io->idx;
	u64 newly = io->to_cache & ~io->to_origin;
	u64 both = io->to_cache & io->to_origin;
	u64 valid = block_mask(e, s, MASK_VALID, i), dirty = block_mask(e, s, MASK_DIRTY, i);
	u64 jdirty;

	lockdep_assert_held(&s->lock);
	if (io->to_origin)
		s->flush_epoch[i] = (u32)READ_ONCE(io->volume->flush.last_write);
	if (cache_ok)
		valid |= newly;
	if (cache_ok && origin_ok)
		valid |= both & ~dirty;
	set_put_mask(&e->map, s, MASK_VALID, i, valid);
	if (cache_ok && (newly & ~dirty))
		hybrid_put_dirty(e, s, i, dirty | newly);
	jdirty = block_mask(e, s, MASK_JDIRTY, i);
	if (cache_ok && (newly & ~jdirty)) {
		hybrid_mark_must(e, io->set, i);
		/* An intent makes up for the record. */
		if (!io->write.intent)
			note_unrecorded(io->volume);
	} else if (set_unrecorded(&e->map, s, i)) {
		hybrid_mark_lazy(e, io->set, i);
	}
	/* A write that failed may have changed dirty granules, which are read all the same. */
	if (cache_ok ? newly : newly & dirty)
		note_cache_written(io->volume);
	hybrid_remove_empty_block(e, io->set, i);
}

/*
 * A granule that only the cache would have held could not be written there.  May the whole write go
 * to the origin, including parts that have been written there already?  In a pool that failed,
 * route_failed() decides.
 */
static bool write_redirects(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io)
{
	u64 dirty = block_mask(e, s, MASK_DIRTY, io->idx) | block_mask(e, s, MASK_JDIRTY, io->idx);

	return (READ_ONCE(e->life.failed) || !(dirty & io->mask)) &&
	       (io->to_cache & ~io->to_origin);
}

/*
 * Makes the write go out anew if it must: once a record that may end one of its granules is
 * durable; or, in a pool that failed, after the origin's superblock says so.  Returns whether it
 * goes out anew.  Caller holds the set's lock.
 */
static bool write_anew(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
		       struct hybrid_actions *acts)
{
	lockdep_assert_held(&s->lock);
	if (READ_ONCE(e->life.failed))
		hybrid_rerun(io, acts);
	else if (s->regions.ending & region_bit(io->idx))
		hybrid_wait_in_set(s, io, WAIT_RECORD);
	else
		return false;
	hybrid_writeback_written(e, s, io->key, acts);
	return true;
}

void hybrid_count_errors(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
			 int error_origin)
{
	if (error_origin && error_origin != -EAGAIN)
		count(io->volume, HYBRID_ORIGIN_ERRORS);
	if (error_cache && error_cache != -EAGAIN)
		count_cache_error(e, io->volume, CACHE_WRITE_ERRORS);
}

bool hybrid_finish_write(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
			 int error_origin, struct hybrid_actions *acts)
{
	u32 set = io->set;
	struct hybrid_set *s = &e->map.set[set];
	bool failed = error_cache && error_cache != -EAGAIN;
	bool commit = io->commit, waiting;
	unsigned long flags;

	if (io->to_origin)
		hybrid_origin_written(e, io->volume, true);
	hybrid_count_errors(e, io, error_cache, error_origin);
	spin_lock_irqsave(&s->lock, flags);
	engine_assert(e, !hlist_unhashed(&io->write.inflight));
	if (failed && !error_origin && write_redirects(e, s, io)) {
		hlist_del_init(&io->write.inflight);
		/* When it goes out again, the block may be gone. */
		io->write.overwritten = 0;
		io->commit = false;
		/* Other writes of the same granules are in flight to the cache: go after them. */
		if (hybrid_write_in_flight(s, io->key, io->mask)) {
			hybrid_place_failed(e, set, io->idx, acts);
			hybrid_wait_in_set(s, io, WAIT_OVERLAP);
			spin_unlock_irqrestore(&s->lock, flags);
			return false;
		}
		if (write_anew(e, s, io, acts)) {
			hybrid_place_failed(e, set, io->idx, acts);
			spin_unlock_irqrestore(&s->lock, flags);
			/* It is in nobody's way now. */
			hybrid_wake_set(e, set, WAIT_OVERLAP, acts);
			return false;
		}
		hlist_add_head(&io->write.inflight, &s->inflight);
		io->write.redirected = true;
		io->to_origin = io->mask;
		io->to_cache = 0;
		spin_unlock_irqrestore(&s->lock, flags);
		hybrid_user_op(io, true, io_origin_sector(io), io->flags & HYBRID_IO_FUA);
		act(acts, &io->op);
		return false;
	}
	hlist_del_init(&io->write.inflight);
	if (io->idx >= 0)
		write_applied(e, s, io, !error_cache, !error_origin);
	/* Now it is no write in flight, which would keep the block. */
	if (failed || io->write.redirected)
		hybrid_place_failed(e, set, io->idx, acts);
	hybrid_writeback_written(e, s, io->key, acts);
	waiting = somebody_waits(s);
	spin_unlock_irqrestore(&s->lock, flags);
	/* Granules made dirty again get no record now: wake I/O that waits for one, too. */
	if (waiting)
		hybrid_wake_set(e, io->set,
				WAIT_OVERLAP | (io->write.redirty ? WAIT_RECORD : 0), acts);
	if (error_origin)
		io->error = error_origin;
	else if (error_cache && (io->to_cache & ~io->to_origin))
		io->error = error_cache;
	if (io->error)
		return true;
	if ((io->flags & HYBRID_IO_FUA) && io->to_origin && !origin_has_fua(io->volume)) {
		hybrid_flush_after_write(e, io, acts);
		return false;
	}
	if (!commit)
		return true;
	hybrid_join_commit(e, io, acts);
	return false;
}

bool hybrid_finish_intended(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
			    int error_origin, struct hybrid_actions *acts)
{
	struct hybrid_intended *w = io->write.intent;
	bool ended;

	if (w && error_cache && hybrid_intent_give_up(e, io, error_cache, acts))
		return false;
	if (error_cache)
		io->write.intent = NULL;
	ended = hybrid_finish_write(e, io, error_cache, error_origin, acts);
	/* The io may be gone, unless it has ended. */
	if (w)
		hybrid_intent_applied(e, w, acts);
	return ended;
}
