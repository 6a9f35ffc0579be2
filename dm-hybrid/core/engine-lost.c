// SPDX-License-Identifier: GPL-2.0-only
/*
 * Granules lost with the cache (P5): when the pool failed, only the cache had their
 * data.  They can be listed while their volume is active.  Their list is saved to a
 * formatted origin before its superblock says that it went on alone, or when the
 * volume is closed:
 *
 *   1. Mark in a lost map the chunks of granules that are dirty in RAM, and of
 *      writes to the cache alone that are in flight.  No other write begins once
 *      the pool has failed.  A granule that is dirty on record alone has its data
 *      on the origin, and counts only if no flush covers that.  If nothing is
 *      marked, nothing is lost: the volume is clean, and its cached data never
 *      comes back.
 *   2. Write both copies of the map, durably.
 *   3. Write the superblock that names the map.
 *
 * The superblock of an open volume names no map, and a map is saved only once while
 * a volume is open, so that no map in use is overwritten.  If neither copy can be
 * written, the dirty flag alone says that data is lost.
 */
#include "engine-internal.h"

static u32 lost_shift(const struct hybrid_volume *v)
{
	return hybrid_lost_shift(v->info.data_sectors, v->e->g->block_sectors);
}

static u32 lost_blocks(const struct hybrid_volume *v)
{
	return hybrid_lost_blocks(v->info.data_sectors, lost_shift(v));
}

int hybrid_lost_reserve(struct hybrid_engine *e, struct hybrid_volume *v, u64 data_sectors)
{
	u32 shift = hybrid_lost_shift(data_sectors, e->g->block_sectors);
	u32 blocks = hybrid_lost_blocks(data_sectors, shift);
	struct hybrid_lost_map *map;
	unsigned long flags;

	if (blocks <= v->lost.blocks)
		return 0;
	map = vmalloc(blocks * HYBRID_META_BLOCK_SIZE);
	if (!map)
		return -ENOMEM;
	spin_lock_irqsave(&e->lock, flags);
	/* A pool that has failed may be using the map of an open volume. */
	if (v->state == VOLUME_CLAIMED || !READ_ONCE(e->life.failed)) {
		swap(v->lost.map, map);
		v->lost.blocks = blocks;
	}
	spin_unlock_irqrestore(&e->lock, flags);
	vfree(map);
	return blocks <= v->lost.blocks ? 0 : -EIO;
}

void hybrid_lost_release(struct hybrid_volume *v)
{
	vfree(v->lost.map);
	v->lost.map = NULL;
	v->lost.blocks = 0;
}

/* ---- collecting ---------------------------------------------------------- */

static u64 lost_granules(const struct hybrid_engine *e, const struct hybrid_volume *v,
			 const struct hybrid_set *s, u32 i)
{
	u64 lost;

	if (!(s->flags[i] & (BLOCK_MAPPED | BLOCK_REMOVED)) ||
	    hybrid_key_volume(s->key[i]) != v->id)
		return 0;
	lost = block_mask(e, s, MASK_DIRTY, i);
	if (!origin_durable(v, s->flush_epoch[i]))
		lost |= block_mask(e, s, MASK_JDIRTY, i);
	return lost;
}

static void lost_mark(struct hybrid_engine *e, struct hybrid_lost_map *map, u32 shift, u64 key)
{
	u64 chunk = from_oblock(hybrid_key_block(key)) >> (shift - e->g->block_shift);

	map->bitmap[chunk / 8] |= 1 << chunk % 8;
}

/* Nothing of the volume is lost: its records, which end with the pool, no longer count. */
static void forget_records(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];

	if (!block_mask(e, s, MASK_JDIRTY, i))
		return;
	hybrid_put_jdirty(e, s, i, 0);
	hybrid_mark_lazy(e, set, i);
}

/*
 * Marks the lost granules in the volume's map.  The superblock to be written names the map, or
 * says that the cache has no newer data if nothing is lost.  Caller holds no lock.
 */
static bool lost_collect(struct hybrid_engine *e, struct hybrid_volume *v)
{
	struct hybrid_lost_map *map = v->lost.map;
	u32 shift = lost_shift(v), set, i;
	struct hybrid_io *io;
	unsigned long flags;
	bool lost = false;

	memset(map, 0, lost_blocks(v) * HYBRID_META_BLOCK_SIZE);
	for (set = 0; set < e->map.nr_sets; set++) {
		struct hybrid_set *s = &e->map.set[set];

		spin_lock_irqsave(&s->lock, flags);
		for (i = 0; i < e->map.set_size; i++) {
			if (!lost_granules(e, v, s, i))
				continue;
			lost_mark(e, map, shift, s->key[i]);
			lost = true;
		}
		hlist_for_each_entry(io, &s->inflight, write.inflight) {
			if (io->volume != v || !(io->to_cache & ~io->to_origin))
				continue;
			lost_mark(e, map, shift, io->key);
			lost = true;
		}
		spin_unlock_irqrestore(&s->lock, flags);
		cond_resched();
	}
	v->sb.lost_known = true;
	if (lost) {
		v->sb.info.lost = e->ops->random(e);
	} else {
		hybrid_each_block(e, v, forget_records);
		v->sb.info.flags &= ~HYBRID_SB_DIRTY;
	}
	return lost;
}

/* ---- saving -------------------------------------------------------------- */

static void lost_write(struct hybrid_volume *v, unsigned int copy,
		       void (*done)(struct hybrid_engine *e, struct hybrid_op *op,
				    struct hybrid_actions *acts))
{
	struct hybrid_op *op = &v->sb.op;

	hybrid_lost_seal(v->lost.map, &v->sb.info, lost_shift(v), copy);
	v->sb.copy = copy;
	v->sb.segment.origin = true;
	v->sb.segment.sector = hybrid_lost_sector(v->sb.info.member_sectors, copy);
	v->sb.segment.offset = 0;
	v->sb.segment.count = lost_blocks(v) * HYBRID_META_BLOCK_SECTORS;
	op_begin(op, HYBRID_OP_META, true, v, done);
	/* FUA: the map must not be lost if the flush before the superblock fails. */
	op->fua = true;
	op->mem = v->lost.map;
	op->segments = &v->sb.segment;
	op->nr_segments = 1;
}

/* The superblock follows. */
static void lost_done(struct hybrid_engine *e, struct hybrid_volume *v,
		      struct hybrid_actions *acts)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	v->lost.saved(e, v, acts);
	spin_unlock_irqrestore(&e->lock, flags);
}

static void lost_copied(struct hybrid_volume *v, int error)
{
	if (!error)
		v->sb.lost_saved = true;
	else
		count(v, HYBRID_ORIGIN_ERRORS);
}

static void lost_written(struct hybrid_engine *e, struct hybrid_op *op,
			 struct hybrid_actions *acts)
{
	struct hybrid_volume *v = op->volume;

	lost_copied(v, op->error_origin);
	if (!v->sb.copy) {
		lost_write(v, 1, lost_written);
		act(acts, op);
		return;
	}
	if (!v->sb.lost_saved)
		v->sb.info.lost = 0;
	lost_done(e, v, acts);
}

static void lost_work(struct hybrid_engine *e, struct hybrid_op *op,
		      struct hybrid_actions *acts)
{
	struct hybrid_volume *v = op->volume;

	if (!lost_collect(e, v)) {
		lost_done(e, v, acts);
		return;
	}
	lost_write(v, 0, lost_written);
	act(acts, op);
}

void hybrid_lost_save(struct hybrid_engine *e, struct hybrid_volume *v,
		      void (*saved)(struct hybrid_engine *e, struct hybrid_volume *v,
				    struct hybrid_actions *acts), struct hybrid_actions *acts)
{
	lockdep_assert_held(&e->lock);
	v->lost.saved = saved;
	op_begin(&v->sb.op, HYBRID_OP_WORK, false, NULL, lost_work);
	v->sb.op.volume = v;
	act(acts, &v->sb.op);
}

int hybrid_lost_save_blocking(struct hybrid_engine *e, struct hybrid_volume *v)
{
	unsigned int copy;
	int r = 0;

	if (lost_collect(e, v)) {
		for (copy = 0; copy < 2; copy++) {
			lost_write(v, copy, NULL);
			r = e->ops->do_op(e, &v->sb.op);
			lost_copied(v, r);
		}
		if (!v->sb.lost_saved)
			v->sb.info.lost = 0;
	}
	return v->sb.lost_saved ? 0 : r;
}

/* ---- listing ------------------------------------------------------------- */

bool hybrid_volume_lost(struct hybrid_engine *e, struct hybrid_volume *v, u64 *cursor,
			u64 *sector, u32 *count)
{
	const u32 granules = e->g->granules;
	u32 b, at, run = 0;
	u64 rest;

	if (!READ_ONCE(e->life.failed))
		return false;
	rest = div_u64_rem(*cursor, granules, &at);
	for (; rest < e->g->nr_blocks && !run; rest++, at = 0) {
		struct hybrid_set *s;
		unsigned long flags;
		u32 i;

		b = rest;
		s = &e->map.set[b / e->map.set_size];
		i = b % e->map.set_size;
		spin_lock_irqsave(&s->lock, flags);
		run = next_run(lost_granules(e, v, s, i), &at);
		if (run) {
			*sector = origin_sector(e, v, s->key[i], at) - v->info.data_sector;
			*count = min((u64)run << e->g->granule_shift,
				     v->info.data_sectors - *sector);
			*cursor = rest * granules + at + run;
		}
		spin_unlock_irqrestore(&s->lock, flags);
		cond_resched();
	}
	return run;
}
