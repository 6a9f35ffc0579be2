// SPDX-License-Identifier: GPL-2.0-only
/* Reads that are no hit. */
#include "engine-internal.h"

static enum route read_cache(struct hybrid_engine *e, struct hybrid_io *io, int i)
{
	io->idx = i;
	io->state = IO_READ_CACHE;
	hybrid_user_op(io, false, io_cache_sector(e, io, i), false);
	return ROUTE_REMAP;
}

enum route hybrid_route_origin(struct hybrid_io *io)
{
	hybrid_io_read_origin(io);
	return ROUTE_REMAP;
}

/* Some granules are dirty, others are not valid: read each where it is. */
static enum route read_mixed(struct hybrid_engine *e, struct hybrid_io *io, int i, u64 dirty,
			     struct hybrid_actions *acts)
{
	struct hybrid_job *job;

	if (!hybrid_job_get_staged(e, io, true, &job))
		return ROUTE_TAKEN;
	io->idx = i;
	io->to_cache = io->mask & dirty;
	io->to_origin = io->mask & ~dirty;
	io->phase = epoch_enter(e);
	io->state = IO_READ_CACHE;
	hybrid_staged_start(e, job, io, NULL, acts);
	return ROUTE_TAKEN;
}

/* A miss: fills the block, or only the granules read, if possible; else reads the origin. */
static enum route read_miss(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			    int i, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	enum admission admitted;
	u64 from, to, mask = e->map.granules;
	struct hybrid_job *job;
	bool ahead = false;

	if (READ_ONCE(v->mode) == HYBRID_MODE_PASSTHROUGH) {
		hybrid_io_bypass(io, HYBRID_BYPASS_MODE);
		return hybrid_route_origin(io);
	}
	if (i < 0 && hybrid_readahead_serve(e, s, io, acts)) {
		hybrid_stream_run(v, io, NULL);
		hybrid_io_bypass(io, HYBRID_BYPASS_SEQUENTIAL);
		return ROUTE_TAKEN;
	}
	if (!hybrid_fill_pays(e, s, io)) {
		hybrid_io_bypass(io, HYBRID_BYPASS_ONCE);
		return hybrid_route_origin(io);
	}
	admitted = hybrid_io_admission(e, s, io, acts);
	if (admitted == REFUSED)
		return hybrid_route_origin(io);
	if (hybrid_fill_conflicts(e, s, v, io->key, i, e->map.granules)) {
		hybrid_io_bypass(io, HYBRID_BYPASS_BUSY);
		return hybrid_route_origin(io);
	}
	if (i < 0 && !hybrid_worth_its_wear(e, s, io)) {
		hybrid_io_bypass(io, HYBRID_BYPASS_ONCE);
		return hybrid_route_origin(io);
	}
	if (i < 0 && !hybrid_room_to_fill(e, s, io, acts)) {
		hybrid_io_bypass(io, HYBRID_BYPASS_FULL);
		return hybrid_route_origin(io);
	}
	hybrid_rest_is_missed(e, s, io->key, i);
	hybrid_ahead_earns(e, io->key, 1);
	from = io->key;
	to = from + 1;
	if (!origin_seeks(v))
		mask = io->mask;
	else if (admitted != IN_PLACE)
		ahead = hybrid_ahead_range(e, s, v, io->key, &from, &to);
	if (admitted == SINGLE && i < 0 && (to - from > 1 || io->mask != mask) &&
	    !hybrid_rest_is_paid(e, s, io->key, !ahead)) {
		from = io->key;
		to = from + 1;
		mask = io->mask;
		ahead = false;
	}
	job = ahead ? hybrid_fill_get(e, JOB_AHEAD, v, from) : NULL;
	if (!job) {
		if (ahead && READ_ONCE(e->runs.nr_readahead))
			WRITE_ONCE(e->runs.unwanted, true);
		from = max(from, near_first(e, io->key));
		to = min(to, near_first(e, io->key) + near_blocks(e));
		job = hybrid_fill_get(e, JOB_FILL, v, from);
	}
	if (!job) {
		hybrid_io_bypass(io, HYBRID_BYPASS_BUSY);
		return hybrid_route_origin(io);
	}
	if (i < 0) {
		i = hybrid_take_block(e, s, v, io->key);
		if (io->flags & HYBRID_IO_META)
			hybrid_keep_metadata(e, s, i);
	}
	/* First, so that making room for the others does not evict this block. */
	hybrid_fill_add(e, s, job, io->key, i, mask);
	hybrid_fill_beside(e, s, io, job, from, to, admitted, acts);
	hybrid_fill_start(e, job, io, acts);
	if (s->nr_free < e->evict.reserve)
		hybrid_evict(e, io, acts);
	return ROUTE_TAKEN;
}

/*
 * Granules of @key that writes in flight replace in the cache.  A read meanwhile returns the old or
 * the new data, as from any device; the granules are not valid, because the write may fail.
 */
static u64 overwritten(const struct hybrid_set *s, u64 key)
{
	struct hybrid_io *w;
	u64 over = 0;

	hlist_for_each_entry(w, &s->inflight, write.inflight)
		if (w->key == key)
			over |= w->write.overwritten;
	return over;
}

enum route hybrid_route_read(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			     struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	int i = hybrid_set_find(&e->map, s, io->key);
	u64 valid = 0, dirty = 0, replaced = 0;
	bool first;

	if (i >= 0 && (s->flags[i] & BLOCK_REMOVED) && !hybrid_resurrect(e, io->set, i, acts)) {
		count(v, HYBRID_READ_MISSES);
		hybrid_io_bypass(io, HYBRID_BYPASS_BUSY);
		return hybrid_route_origin(io);
	}
	if (i >= 0) {
		valid = block_mask(e, s, MASK_VALID, i);
		dirty = block_mask(e, s, MASK_DIRTY, i);
	}
	first = i >= 0 && (s->flags[i] & (BLOCK_AHEAD | BLOCK_KEPT)) == BLOCK_AHEAD;
	if (first)
		first = hybrid_ahead_used(e, s, io, i);
	else if (i >= 0 && (s->flags[i] & BLOCK_AHEAD))
		hybrid_set_flags(s, i, 0, BLOCK_AHEAD);
	if (i >= 0 && (io->flags & HYBRID_IO_META))
		hybrid_keep_metadata(e, s, i);
	if ((io->mask & ~valid) && !io->write.redirected)
		replaced = overwritten(s, io->key);
	if (!(io->mask & ~(valid | replaced))) {
		io->phase = epoch_enter(e);
		if (!first)
			hybrid_set_note_hit(&e->map, s, i);
		count(v, HYBRID_READ_HITS);
		return read_cache(e, io, i);
	}
	if (!io->counted) {
		io->counted = true;
		count(v, HYBRID_READ_MISSES);
		/* A seek takes longer than four entries. */
		invalidations_earned(&e->commit, origin_seeks(v) ? 4 : 1);
	}
	if (io->mask & dirty)
		return read_mixed(e, io, i, dirty, acts);
	if (i >= 0 && (s->flags[i] & BLOCK_BUSY)) {
		struct hybrid_job *job = hybrid_job_find(e, s, io->key);

		/* Out of credit, a run must be recognised even if its reads come many at once. */
		if (hybrid_rest_is_owed(v))
			hybrid_stream_run(v, io, NULL);
		if (job && is_fill(job) && hybrid_fill_join(e, job, io, acts))
			return ROUTE_TAKEN;
		hybrid_io_bypass(io, HYBRID_BYPASS_BUSY);
		return hybrid_route_origin(io);
	}
	return read_miss(e, s, io, i, acts);
}

bool hybrid_read_failed(struct hybrid_engine *e, struct hybrid_io *io, int error,
			struct hybrid_actions *acts)
{
	struct hybrid_set *s = &e->map.set[io->set];
	unsigned long flags;
	u64 dirty = 0;
	int i;

	count_cache_error(e, io->volume, CACHE_READ_ERRORS);
	spin_lock_irqsave(&s->lock, flags);
	i = hybrid_set_find(&e->map, s, io->key);
	if (i >= 0) {
		dirty = block_mask(e, s, MASK_DIRTY, i) & io->mask;
		if (dirty != io->mask && (s->flags[i] & BLOCK_MAPPED)) {
			hybrid_set_invalidate(&e->map, s, i, io->mask & ~dirty);
			hybrid_mark_lazy(e, io->set, i);
		}
	}
	/* Where it was read, which may have another owner by now. */
	hybrid_place_failed(e, io->set, io_block(e, io), acts);
	spin_unlock_irqrestore(&s->lock, flags);
	if (dirty == io->mask) {
		io->error = error;
		return true;
	}
	if (dirty) {
		hybrid_io_begin(io);
		io->write.redirected = true;
		hybrid_rerun(io, acts);
	} else {
		hybrid_io_read_origin(io);
		act(acts, &io->op);
	}
	return false;
}
