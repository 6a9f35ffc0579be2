// SPDX-License-Identifier: GPL-2.0-only
/*
 * Growing: a volume follows an origin that has grown.  Each step is durable before the next:
 *
 *   1. No I/O of the volume is under way, and memory for the larger lost map is allocated.  The
 *      superblock of an open volume names no lost map.
 *   2. The pool's entry gets both sizes, in both roots.  From here on an open accepts either
 *      size, and goes on with the steps that follow.
 *   3. The new tail, a superblock with the old size, is written at the end of the larger member.
 *      The head still leads to the old tail; without the head the new tail is found, and says the
 *      same.  Then the old tail is zeroed, so that it is not found if the device shrinks again.
 *   4. The head is written with the new size and leads to the new tail; then the tail is written
 *      with the new size.
 *   5. The entry keeps the new size only.  The table must not get longer before this step: users'
 *      writes would reach the old tail.
 *
 * So there is a good copy at each moment.  If two copies are valid, either both say the same, or
 * the newer one has the new size, which the entry knows.  An origin in place needs only 2 and 5.
 */
#include "engine-internal.h"

void hybrid_volume_set_sizes(struct hybrid_engine *e, struct hybrid_volume *v, u64 data_sectors,
			     u64 data_sectors_new)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	v->info.data_sectors = data_sectors;
	v->info.data_sectors_new = data_sectors_new;
	hybrid_mark_volume_leaf(e, v->id);
	spin_unlock_irqrestore(&e->lock, flags);
}

static int zero_block(struct hybrid_volume *v, u64 sector)
{
	struct hybrid_op *op = &v->sb.op;

	memset(v->sb.block, 0, sizeof(*v->sb.block));
	hybrid_sb_write_block(v, op, sector);
	return v->e->ops->do_op(v->e, op);
}

/* Zeroes a tail, and the header of the lost map behind it, without which there is no map. */
static int zero_tail(struct hybrid_volume *v, u64 sector, u64 new_tail)
{
	int r = zero_block(v, sector);

	sector += HYBRID_META_BLOCK_SECTORS;
	return r || sector == new_tail ? r : zero_block(v, sector);
}

/* Step 3 */
static int move_tail(struct hybrid_volume *v, u64 member_sectors)
{
	u64 before = v->sb.info.member_sectors, old_tail = hybrid_sb_sector(before, 1);
	u64 new_tail = hybrid_sb_sector(member_sectors, 1);
	int r;

	if (old_tail == new_tail) {
		v->sb.info.member_sectors = member_sectors;
		return 0;
	}
	v->sb.info.sequence++;
	r = hybrid_sb_io(v, 1, member_sectors, true);
	if (r) {
		v->sb.info.member_sectors = before;
		return r;
	}
	r = zero_tail(v, old_tail, new_tail);
	/* The head still leads to the old tail, which the next attempt writes: drop the new one. */
	if (r) {
		zero_block(v, new_tail);
		v->sb.info.member_sectors = before;
		hybrid_sb_failed(v, r);
	}
	return r;
}

/* Steps 3 and 4 */
static int grow_origin(struct hybrid_volume *v, u64 member_sectors, u64 data_sectors)
{
	u64 before = v->sb.info.data_sectors;
	int r = move_tail(v, member_sectors);

	if (r)
		return r;
	v->sb.info.data_sectors = data_sectors;
	v->sb.oldest = 0;
	r = hybrid_sb_write_both(v);
	if (r)
		v->sb.info.data_sectors = before;
	else
		v->sb.apart = false;
	return r;
}

/*
 * Growth to another size has failed, perhaps after step 4 had written its size to one copy.  The
 * entry will not know that size any more, so both copies get the old size first.
 */
static int undo_growth(struct hybrid_volume *v)
{
	return v->sb.present ? hybrid_sb_write_both(v) : 0;
}

/*
 * A power cut came after step 2.  This runs before the nonces are exchanged, so that no copy keeps
 * a nonce that the cache forgets.
 */
int hybrid_finish_growing(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors)
{
	u64 length = hybrid_volume_length(&v->info, sectors);
	int r = 0;

	if (!v->info.data_sectors_new)
		return 0;
	if (length == v->info.data_sectors_new) {
		/* The lost map does not move with the tail, and nothing was lost. */
		v->sb.info.lost = 0;
		r = hybrid_sb_unite(v);
		if (!r)
			r = grow_origin(v, sectors, length);
	}
	if (!r)
		hybrid_volume_set_sizes(e, v, length, 0);
	return r;
}

/*
 * The old end of an origin in place may lie within a granule.  The cache has a part of that
 * granule, and must not return it as the whole.
 */
static int drop_end(struct hybrid_engine *e, struct hybrid_volume *v)
{
	u64 end = v->info.data_sectors;
	u64 key = hybrid_key(v->id, to_oblock(end >> e->g->block_shift));
	u64 mask = BIT_ULL((end & (e->g->block_sectors - 1)) >> e->g->granule_shift);
	u32 set = hybrid_map_set_of(&e->map, key);
	struct hybrid_set *s = &e->map.set[set];
	unsigned long flags;
	int i, r = 0;

	if (!(end & (e->g->granule_sectors - 1)))
		return 0;
	spin_lock_irqsave(&s->lock, flags);
	i = hybrid_set_find(&e->map, s, key);
	if (i >= 0 && (block_mask(e, s, MASK_DIRTY, i) | block_mask(e, s, MASK_JDIRTY, i)) & mask) {
		r = -EBUSY;
	} else if (i >= 0) {
		hybrid_set_invalidate(&e->map, s, i, mask);
		if (s->flags[i] & BLOCK_MAPPED) {
			hybrid_mark_must(e, set, i);
			hybrid_remove_empty_block(e, set, i);
		}
	}
	spin_unlock_irqrestore(&s->lock, flags);
	return r;
}

/* Step 1, for a volume of @sectors. */
static int prepare_growing(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors)
{
	struct hybrid_volume_info info = v->info;
	int r;

	info.data_sectors_new = sectors;
	r = hybrid_volume_check(&info, v->id, NULL);
	if (!r)
		r = hybrid_lost_reserve(e, v, sectors);
	return r ? r : drop_end(e, v);
}

/* Step 2, for a checkpoint to capture: the size and the identity change together. */
static void set_new_size(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors,
			 const u8 *member_uuid)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	v->info.data_sectors_new = sectors;
	if (member_uuid)
		memcpy(v->info.member_uuid, member_uuid, sizeof(v->info.member_uuid));
	hybrid_mark_volume_leaf(e, v->id);
	spin_unlock_irqrestore(&e->lock, flags);
}

int hybrid_volume_grow(struct hybrid_engine *e, struct hybrid_volume *v, u64 origin_sectors,
		       const u8 *member_uuid)
{
	u64 old = v->info.data_sectors, new = hybrid_volume_room(&v->info, origin_sectors);
	int r;

	if (READ_ONCE(e->life.failed))
		return -EIO;
	if (new < old)
		return -ENOSPC;
	if (new == old)
		return 0;
	r = prepare_growing(e, v, new);
	if (!r && v->info.data_sectors_new && v->info.data_sectors_new != new)
		r = undo_growth(v);
	if (r)
		return r;
	set_new_size(e, v, new, member_uuid);
	r = e->ops->wait_checkpoint(e);
	/* The newest root may be lost: the other one must accept the larger origin, too. */
	if (!r)
		r = e->ops->wait_checkpoint(e);
	if (!r && v->sb.present)
		r = grow_origin(v, origin_sectors, new);
	if (r)
		return r;
	hybrid_volume_set_sizes(e, v, new, 0);
	return e->ops->wait_checkpoint(e);
}
