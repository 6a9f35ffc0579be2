// SPDX-License-Identifier: GPL-2.0-only
/* Routes users' I/O that missed the fast path (engine-hit.c), and handles its end. */
#include "engine-internal.h"

/* Notes the granules that an I/O covers entirely. */
static void note_whole(struct hybrid_engine *e, struct hybrid_io *io)
{
	const struct hybrid_geometry *g = e->g;
	u32 start = io->sector & (g->block_sectors - 1), end = start + io->count;
	u32 from = (start + g->granule_sectors - 1) >> g->granule_shift;
	u32 to = end >> g->granule_shift;

	/* The last granule of an origin in place may be cut off. */
	if (io->sector + io->count == io->volume->info.data_sectors)
		to = ((end - 1) >> g->granule_shift) + 1;
	io->whole = to > from ? GENMASK_ULL(to - 1, from) : 0;
}

/* ---- a pool that failed -------------------------------------------------- */

static enum route fail_lost(struct hybrid_io *io, struct hybrid_actions *acts)
{
	count(io->volume, HYBRID_CACHE_ERRORS);
	complete_io(io, -EIO, acts);
	return ROUTE_TAKEN;
}

/*
 * P5: I/O to dirty granules fails, all other I/O goes to the origin.  A granule that is dirty on
 * record alone can be read there, too; but the record would undo a write, unless lost_collect()
 * finds that no granule is dirty in any other way.
 */
static enum route route_failed(struct hybrid_engine *e, struct hybrid_set *s,
			       struct hybrid_io *io, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	int i = hybrid_set_find(&e->map, s, io->key);
	u64 dirty = i < 0 ? 0 : block_mask(e, s, MASK_DIRTY, i);

	if (dirty & io->mask)
		return fail_lost(io, acts);
	if (io->type == HYBRID_IO_READ)
		return hybrid_route_origin(io);
	/* J9: first the origin must say that it went on without its cache. */
	if (v->sb.present && READ_ONCE(v->sb.state) != SB_ALONE) {
		hybrid_sb_wait(e, v, SB_ALONE, io, acts);
		return ROUTE_TAKEN;
	}
	/* An intent may have failed while an entry was on its way: commit_lost() tells. */
	if (i >= 0 && (s->regions.ending & region_bit(i)))
		return hybrid_wait_routed(s, io, WAIT_RECORD);
	if (i >= 0 && (block_mask(e, s, MASK_JDIRTY, i) & io->mask))
		return fail_lost(io, acts);
	io->to_cache = 0;
	io->to_origin = io->mask;
	/* One that began before the pool failed may go to the cache (J6). */
	if (hybrid_write_conflicts(s, io))
		return hybrid_wait_routed(s, io, WAIT_OVERLAP);
	if (i >= 0) {
		hybrid_set_invalidate(&e->map, s, i, io->mask);
		hybrid_mark_lazy(e, io->set, i);
	}
	io->idx = -1;
	io->state = IO_WRITE;
	hlist_add_head(&io->write.inflight, &s->inflight);
	hybrid_readahead_forget(e, s, io->key, io->mask, READAHEAD_WRITTEN);
	hybrid_user_op(io, true, io_origin_sector(io), io->flags & HYBRID_IO_FUA);
	return ROUTE_REMAP;
}

/* ---- events -------------------------------------------------------------- */

static enum route route(struct hybrid_engine *e, struct hybrid_io *io,
			struct hybrid_actions *acts)
{
	struct hybrid_set *s = &e->map.set[io->set];
	struct hybrid_volume *v = io->volume;
	unsigned long flags;
	enum route r;

	hybrid_job_prepare(e, FILLS);
	if (io->type == HYBRID_IO_READ && origin_seeks(v))
		hybrid_job_prepare(e, AHEADS);
	spin_lock_irqsave(&s->lock, flags);
	if (io->type == HYBRID_IO_WRITE && READ_ONCE(v->ranges.nr) && hybrid_range_wait(v, io))
		r = ROUTE_TAKEN;
	else if (READ_ONCE(e->life.failed))
		r = route_failed(e, s, io, acts);
	else if (io->type == HYBRID_IO_READ)
		r = hybrid_route_read(e, s, io, acts);
	else
		r = hybrid_route_write(e, s, io, acts);
	spin_unlock_irqrestore(&s->lock, flags);
	if (READ_ONCE(e->runs.unwanted)) {
		WRITE_ONCE(e->runs.unwanted, false);
		hybrid_readahead_drop(e, NULL, READAHEAD_YIELDED);
	}
	return r;
}

void hybrid_io_again(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts)
{
	enum hybrid_map_result r = HYBRID_MAP_TAKEN;

	io->wait = WAIT_NONE;
	if (io->state == IO_COMMIT)
		hybrid_commit_or_complete(e, io, acts);
	else if (io->type == HYBRID_IO_DISCARD || io->type == HYBRID_IO_ZEROES)
		r = hybrid_range_io(e, io, acts);
	else if (route(e, io, acts) == ROUTE_REMAP)
		r = HYBRID_MAP_REMAP;
	if (r == HYBRID_MAP_REMAP)
		act(acts, &io->op);
}

enum hybrid_map_result hybrid_io_miss(struct hybrid_engine *e, struct hybrid_io *io,
				      struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	enum hybrid_map_result r;
	u64 end = 0;

	hybrid_io_begin(io);
	switch (io->type) {
	case HYBRID_IO_FLUSH:
		count(io->volume, HYBRID_FLUSHES);
		hybrid_flush_io(e, io, acts);
		return HYBRID_MAP_TAKEN;
	case HYBRID_IO_DISCARD:
	case HYBRID_IO_ZEROES:
		count(io->volume, HYBRID_DISCARDS);
		return hybrid_range_io(e, io, acts);
	case HYBRID_IO_READ:
		end = io->sector + io->count;
		break;
	default:
		break;
	}
	note_whole(e, io);
	note_foreground(v);
	r = route(e, io, acts) == ROUTE_REMAP ? HYBRID_MAP_REMAP : HYBRID_MAP_TAKEN;
	/* An I/O that was taken may have ended, but the volume stays open until this returns. */
	if (end)
		hybrid_stream_ahead(e, v, end, acts);
	return r;
}

bool hybrid_io_ended(struct hybrid_engine *e, struct hybrid_io *io, int error,
		     struct hybrid_actions *acts)
{
	if (io->state != IO_READ_CACHE)
		note_foreground(io->volume);
	switch (io->state) {
	case IO_READ_CACHE:
		epoch_leave(e, io->phase);
		if (error != -EAGAIN)
			return hybrid_read_failed(e, io, error, acts);
		io->error = error;
		return true;
	case IO_REWRITE:
		/* Fields that write_hit() leaves to the slow path, which reads them */
		io->wait = WAIT_NONE;
		io->write.redirty = false;
		io->write.intent = NULL;
		io->commit = false;
		io->write.redirected = false;
		fallthrough;
	case IO_WRITE:
		return hybrid_finish_write(e, io, io->to_cache ? error : 0,
					   io->to_origin ? error : 0, acts);
	case IO_RANGE:
		return hybrid_range_done(e, io, error, acts);
	case IO_READ_ORIGIN:
		hybrid_stall_read_ended(e, io->volume, acts);
		fallthrough;
	default:
		hybrid_count_errors(e, io, 0, error);
		io->error = error;
		return true;
	}
}
