// SPDX-License-Identifier: GPL-2.0-only
/*
 * Fast path for hits: reads of valid granules and rewrites of dirty ones.  The block's state
 * does not change, so nothing can block and no action follows.
 */
#include "engine-internal.h"

/* No lock, no allocation, nothing shared written. */
static bool read_hit(struct hybrid_engine *e, struct hybrid_io *io)
{
	struct hybrid_set *s = &e->map.set[io->set];
	int i;

	io->phase = epoch_enter(e);
	i = hybrid_set_read_hit(&e->map, s, io->key, io->mask);
	if (i < 0 || READ_ONCE(e->life.failed)) {
		epoch_leave(e, io->phase);
		return false;
	}
	io->state = IO_READ_CACHE;
	io->op.sector = io_cache_sector(e, io, i);
	count(io->volume, HYBRID_READ_HITS);
	hybrid_set_note_hit(&e->map, s, i);
	return true;
}

/*
 * Does the write only replace granules that are dirty?  Then it goes to the cache
 * alone, in any mode, and waits for nothing that hybrid_route_write() waits for:
 *
 * - a dirty granule is dirty on record, too, or not clean there, or its region is open
 *   (J4), and the origin's dirty flag is durable (J10);
 * - overlapping writes in flight go to the cache alone, too (J6);
 * - while the write is listed as in flight, its granules stay dirty (J2);
 * - a dirty granule that is not recorded is marked for the next commit already;
 * - no granule is under an intent (J12).
 *
 * hybrid_engine_check() checks all this.  Caller holds the set's lock.
 */
static bool rewrites(struct hybrid_engine *e, const struct hybrid_set *s,
		     const struct hybrid_io *io, int i)
{
	lockdep_assert_held(&s->lock);
	return i >= 0 && (s->flags[i] & (BLOCK_MAPPED | BLOCK_BUSY)) == BLOCK_MAPPED &&
	       !(io->mask & ~block_mask(e, s, MASK_DIRTY, i)) && !is_intended(s, i, io->mask);
}

static bool write_hit(struct hybrid_engine *e, struct hybrid_io *io)
{
	struct hybrid_set *s = &e->map.set[io->set];
	unsigned long flags;
	bool hit;
	int i;

	spin_lock_irqsave(&s->lock, flags);
	i = hybrid_set_find(&e->map, s, io->key);
	hit = rewrites(e, s, io, i) && !READ_ONCE(e->life.failed) &&
	      !READ_ONCE(io->volume->ranges.nr);
	if (hit) {
		io->idx = i;
		io->to_cache = io->mask;
		io->to_origin = 0;
		io->write.overwritten = io->mask;
		io->state = IO_REWRITE;
		s->regions.recent |= region_bit(i);
		hlist_add_head(&io->write.inflight, &s->inflight);
	}
	spin_unlock_irqrestore(&s->lock, flags);
	if (!hit)
		return false;
	note_foreground(io->volume);
	io->op.sector = io_cache_sector(e, io, i);
	cache_wears(e, io->count);
	count(io->volume, HYBRID_WRITE_HITS);
	hybrid_set_note_hit(&e->map, s, i);
	return true;
}

/*
 * May the I/O take the fast path if it hits?  A read of metadata may if it need not be noted.
 * Without the lock this is a hint, which may be wrong for one read.
 */
static bool flags_allow(const struct hybrid_engine *e, const struct hybrid_io *io)
{
	const struct hybrid_set *s = &e->map.set[io->set];
	int i;

	if (io->flags & HYBRID_IO_FUA)
		return false;
	if (!(io->flags & HYBRID_IO_META))
		return true;
	i = hybrid_set_find(&e->map, s, io->key);
	return i >= 0 && hybrid_metadata_is_kept(e, s, i);
}

bool hybrid_engine_hit(struct hybrid_engine *e, struct hybrid_io *io)
{
	if (io->type > HYBRID_IO_WRITE)
		return false;
	io_locate(e, io);
	if (unlikely(io->flags) && !flags_allow(e, io))
		return false;
	return io->type == HYBRID_IO_READ ? read_hit(e, io) : write_hit(e, io);
}

void hybrid_engine_hit_op(struct hybrid_io *io)
{
	hybrid_user_op(io, false, io->op.sector, false);
}

/* Ends a write hit, unless somebody waits for it and must be woken: then returns false. */
static bool rewritten(struct hybrid_engine *e, struct hybrid_io *io)
{
	struct hybrid_set *s = &e->map.set[io->set];
	unsigned long flags;
	bool alone;

	spin_lock_irqsave(&s->lock, flags);
	alone = !somebody_waits(s);
	if (alone) {
		hlist_del(&io->write.inflight);
		note_cache_written(io->volume);
	}
	spin_unlock_irqrestore(&s->lock, flags);
	return alone;
}

bool hybrid_engine_hit_done(struct hybrid_engine *e, struct hybrid_io *io)
{
	if (io->state == IO_READ_CACHE) {
		epoch_leave(e, io->phase);
		return true;
	}
	return io->state == IO_REWRITE && rewritten(e, io);
}
