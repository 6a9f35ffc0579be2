// SPDX-License-Identifier: GPL-2.0-only
/*
 * Volumes: the table, and the origins' superblocks.
 *
 * The superblock of a formatted origin is written for three reasons:
 *   - the session nonce, when the volume is opened (J9): first both copies have
 *     old, then the cache holds {old, new}, then the origin gets new, then the
 *     cache forgets old;
 *   - the dirty flag, before the first dirty write (J10); it is taken off when
 *     a clean volume is closed;
 *   - a fresh nonce that the cache does not know, and what is lost with the
 *     cache, before the origin is written without it; the latter also when a
 *     volume of a failed pool is closed.
 */
#include "engine-internal.h"

/* A place for volume @id. */
static bool have_place(struct hybrid_engine *e, u32 id)
{
	struct hybrid_volume ***some = &e->volumes[id / VOLUMES_TOGETHER], **new;
	unsigned long flags;

	if (*some)
		return true;
	new = kcalloc(VOLUMES_TOGETHER, sizeof(*new), GFP_KERNEL);
	if (!new)
		return false;
	spin_lock_irqsave(&e->lock, flags);
	*some = new;
	spin_unlock_irqrestore(&e->lock, flags);
	return true;
}

void volume_put(struct hybrid_engine *e, u32 id, struct hybrid_volume *v)
{
	e->volumes[id / VOLUMES_TOGETHER][id % VOLUMES_TOGETHER] = v;
}

struct hybrid_volume *volume_alloc(struct hybrid_engine *e, u32 id,
				   const struct hybrid_volume_info *info)
{
	struct hybrid_volume *v = have_place(e, id) ? kzalloc(sizeof(*v), GFP_KERNEL) : NULL;
	u32 k;

	if (!v)
		return NULL;
	v->counters = alloc_percpu(struct hybrid_counters);
	v->sb.block = kzalloc(sizeof(*v->sb.block), GFP_KERNEL);
	if (!v->counters || !v->sb.block) {
		volume_free(v);
		return NULL;
	}
	v->e = e;
	v->id = id;
	v->info = *info;
	v->mode = info->mode;
	v->cutoff = info->cutoff_sectors;
	/* Epoch 0 is flushed: stamps of blocks that were loaded count as settled. */
	v->flush.epoch = 1;
	INIT_LIST_HEAD(&v->open_link);
	INIT_LIST_HEAD(&v->flush.now);
	INIT_LIST_HEAD(&v->flush.next);
	INIT_LIST_HEAD(&v->sb.waiters);
	INIT_LIST_HEAD(&v->lost_link);
	INIT_LIST_HEAD(&v->ranges.list);
	INIT_LIST_HEAD(&v->ranges.waiters);
	INIT_LIST_HEAD(&v->ranges.queue);
	INIT_LIST_HEAD(&v->job_waiters);
	INIT_LIST_HEAD(&v->writeback.turn);
	room_create(v);
	for (k = 0; k < AHEAD_PARTS; k++)
		atomic_set(&v->ahead[k], AHEAD_LENT);
	spin_lock_init(&v->streams.lock);
	return v;
}

void volume_free(struct hybrid_volume *v)
{
	if (!v)
		return;
	jobs_release(v);
	sweep_destroy(v);
	free_percpu(v->counters);
	kfree(v->sb.block);
	kfree(v);
}

void volumes_destroy(struct hybrid_engine *e)
{
	u32 id;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		volume_free(volume_of(e, id));
	for (id = 0; id < HYBRID_MAX_VOLUMES; id += VOLUMES_TOGETHER)
		kfree(e->volumes[id / VOLUMES_TOGETHER]);
}

/* ---- the origin's superblock, while the volume is open ------------------- */

static void sb_written(struct hybrid_engine *e, struct hybrid_op *op,
		       struct hybrid_actions *acts);

/* What is in sb_block goes there. */
static void sb_write_block(struct hybrid_volume *v, struct hybrid_op *op, u64 sector)
{
	v->sb.segment.origin = true;
	v->sb.segment.sector = sector;
	v->sb.segment.offset = 0;
	v->sb.segment.count = HYBRID_META_BLOCK_SECTORS;
	op_begin(op, HYBRID_OP_META, true, v, sb_written);
	op->fua = true;
	op->mem = v->sb.block;
	op->segments = &v->sb.segment;
	op->nr_segments = 1;
}

static void sb_write_copy(struct hybrid_volume *v, struct hybrid_op *op)
{
	u64 sector = hybrid_sb_sector(v->sb.info.member_sectors, v->sb.copy);

	hybrid_sb_encode(v->sb.block, &v->sb.info, sector);
	sb_write_block(v, op, sector);
}

/*
 * The origin goes on without its cache (J9): a nonce that the cache does not know, and the
 * one by which it can tell that it was not opened with this origin since.
 */
static void sb_alone(struct hybrid_volume *v)
{
	v->sb.info.nonce = v->e->ops->random(v->e);
	v->sb.info.flags |= HYBRID_SB_ALONE;
	v->sb.info.paired_nonce = v->info.nonce;
}

/* It did not, or does no more. */
static void sb_paired(struct hybrid_volume *v, u64 nonce)
{
	v->sb.info.nonce = nonce;
	v->sb.info.flags &= ~HYBRID_SB_ALONE;
	v->sb.info.paired_nonce = 0;
}

void sb_update(struct hybrid_engine *e, struct hybrid_volume *v, struct hybrid_actions *acts)
{
	lockdep_assert_held(&e->lock);
	v->sb.busy = true;
	v->sb.writing = v->sb.wanted;
	/* Only what the dirty flag was set for can be lost. */
	if (v->sb.writing == SB_ALONE && (v->sb.info.flags & HYBRID_SB_DIRTY) &&
	    !v->sb.lost_known) {
		lost_save(e, v, acts);
		return;
	}
	v->sb.copy = v->sb.oldest;
	v->sb.info.sequence++;
	if (v->sb.writing == SB_ALONE)
		sb_alone(v);
	else
		v->sb.info.flags |= HYBRID_SB_DIRTY;
	sb_write_copy(v, &v->sb.op);
	act(acts, &v->sb.op);
}

/*
 * The copy is not written, or torn; and where the block layer emulates FUA by a flush,
 * that flush may have failed.
 */
static void sb_failed(struct hybrid_volume *v, int error)
{
	v->sb.oldest = v->sb.copy;
	/* What is lost, and could not be saved, gets another try. */
	v->sb.lost_known = v->sb.lost_saved;
	origin_flush_failed(v, error);
}

static void sb_written(struct hybrid_engine *e, struct hybrid_op *op,
		       struct hybrid_actions *acts)
{
	struct hybrid_volume *v = op->volume;
	struct hybrid_io *io, *n;
	unsigned long flags;
	LIST_HEAD(waiters);
	int error = op->error_origin;

	spin_lock_irqsave(&e->lock, flags);
	if (!error && v->sb.copy == v->sb.oldest) {
		v->sb.copy = !v->sb.copy;
		sb_write_copy(v, op);
		act(acts, op);
		spin_unlock_irqrestore(&e->lock, flags);
		return;
	}
	v->sb.busy = false;
	if (error)
		sb_failed(v, error);
	else
		WRITE_ONCE(v->sb.state, v->sb.writing);
	if (!error && v->sb.wanted > v->sb.state)
		sb_next_locked(e, v, acts);
	else
		list_splice_init(&v->sb.waiters, &waiters);
	origin_flush_next_locked(e, v, acts);
	spin_unlock_irqrestore(&e->lock, flags);
	if (!error) {
		rerun_list(e, &waiters, acts);
		return;
	}
	count(v, HYBRID_ORIGIN_ERRORS);
	wake_records(e, acts);
	list_for_each_entry_safe(io, n, &waiters, link) {
		list_del_init(&io->link);
		complete_io(io, error, acts);
	}
}

/* Is the origin to be flushed first?  Data written back count as lost until then. */
static bool sb_needs_flush(const struct hybrid_volume *v)
{
	return v->sb.wanted == SB_ALONE && (v->sb.info.flags & HYBRID_SB_DIRTY) &&
	       !v->flush.error && v->flush.last_write > v->flush.flushed;
}

/* What ours loses, a flush that is under way would not miss: after that. */
void sb_next_locked(struct hybrid_engine *e, struct hybrid_volume *v, struct hybrid_actions *acts)
{
	lockdep_assert_held(&e->lock);
	if (list_empty(&v->sb.waiters) || v->sb.busy || v->flush.busy)
		return;
	if (sb_needs_flush(v))
		origin_flush_locked(e, v, acts);
	else
		sb_update(e, v, acts);
}

void sb_wait(struct hybrid_engine *e, struct hybrid_volume *v, enum sb_state wanted,
	     struct hybrid_io *io, struct hybrid_actions *acts)
{
	unsigned long flags;
	bool ready;

	spin_lock_irqsave(&e->lock, flags);
	ready = v->sb.state >= wanted;
	if (!ready) {
		list_add_tail(&io->link, &v->sb.waiters);
		v->sb.wanted = max_t(u8, v->sb.wanted, wanted);
		sb_next_locked(e, v, acts);
	}
	spin_unlock_irqrestore(&e->lock, flags);
	/* Became so meanwhile; the caller may hold a set's lock. */
	if (ready)
		rerun_later(io, acts);
}

/* ---- blocking superblock I/O, while a volume is opened or closed --------- */

static int sb_io(struct hybrid_volume *v, unsigned int copy, u64 sectors, bool write)
{
	struct hybrid_engine *e = v->e;
	struct hybrid_op *op = &v->sb.op;
	int r;

	v->sb.copy = copy;
	v->sb.info.member_sectors = sectors;
	sb_write_copy(v, op);
	op->write = write;
	op->fua = write;
	r = e->ops->do_op(e, op);
	if (r && write)
		sb_failed(v, r);
	return r;
}

/*
 * The older copy first: the newer one may be the only one whose nonce the cache
 * knows.
 */
static int sb_write_both(struct hybrid_volume *v)
{
	u64 sectors = v->sb.info.member_sectors;
	int r;

	v->sb.info.sequence++;
	r = sb_io(v, v->sb.oldest, sectors, true);
	return r ? r : sb_io(v, !v->sb.oldest, sectors, true);
}

/* The pool's entry is the first to get another name: where they differ, that is the newer one. */
static void sb_take_name(struct hybrid_volume *v)
{
	memcpy(v->sb.info.name, v->info.name, sizeof(v->sb.info.name));
}

static bool nonce_known(const struct hybrid_volume *v, u64 nonce)
{
	return nonce == v->info.nonce || (v->info.nonce_old && nonce == v->info.nonce_old);
}

static int sb_read_copy(struct hybrid_volume *v, unsigned int copy, u64 sectors,
			struct hybrid_sb *sb, const char **why)
{
	int r = sb_io(v, copy, sectors, false);

	return r ? r : hybrid_sb_decode(v->sb.block, hybrid_sb_sector(sectors, copy), sectors, sb,
					why);
}

/*
 * The newer of the two copies that are good.  If only the older one has a nonce
 * that the cache knows, the newer one was to say that the origin goes on alone,
 * which begins when both say so: it never did.
 */
static int sb_read(struct hybrid_volume *v, u64 sectors, const char **why)
{
	struct hybrid_sb sb[2];
	unsigned int best;
	int r[2];

	r[0] = sb_read_copy(v, 0, sectors, &sb[0], why);
	/* A device that has grown has its tail where it was formatted. */
	if (!r[0])
		sectors = sb[0].member_sectors;
	r[1] = sb_read_copy(v, 1, sectors, &sb[1], why);
	if (r[0] && r[1])
		return r[0];
	if (!r[0] && !r[1] && memcmp(sb[0].member_uuid, sb[1].member_uuid, HYBRID_UUID_SIZE)) {
		*why = "has superblocks of two members";
		return -EMEDIUMTYPE;
	}
	best = r[0] || (!r[1] && sb[1].sequence > sb[0].sequence);
	v->sb.info = sb[best];
	v->sb.oldest = !best;
	v->sb.apart = r[!best] || sb[!best].nonce != v->sb.info.nonce;
	if (!r[!best] && !nonce_known(v, v->sb.info.nonce) && nonce_known(v, sb[!best].nonce)) {
		v->sb.info = sb[!best];
		v->sb.info.sequence = sb[best].sequence;
		v->sb.oldest = best;
	}
	return 0;
}

/*
 * No copy may ever have a nonce that the cache has forgotten: not one that could
 * not be read or written last time, either.  So both get the present one before
 * the cache hears of another.
 */
static int sb_unite(struct hybrid_volume *v)
{
	return v->sb.apart ? sb_io(v, v->sb.oldest, v->sb.info.member_sectors, true) : 0;
}

static int sb_matches(const struct hybrid_engine *e, const struct hybrid_volume *v, u64 sectors,
		      const char **why)
{
	const struct hybrid_volume_info *info = &v->info;
	u64 length = hybrid_volume_length(info, sectors);
	const struct hybrid_sb *sb = &v->sb.info;

	*why = NULL;
	if (sb->role != HYBRID_ROLE_ORIGIN)
		*why = "is not an origin";
	else if (sb->ro_compat & ~HYBRID_RO_COMPAT_KNOWN)
		*why = "has a feature that allows reading only";
	else if (hybrid_number_ends(sb->sequence))
		*why = "has no sequence left for its superblock";
	else if (memcmp(sb->pool_uuid, e->sb.pool_uuid, HYBRID_UUID_SIZE))
		*why = "belongs to another pool";
	else if (memcmp(sb->volume_uuid, info->uuid, HYBRID_UUID_SIZE))
		*why = "belongs to another volume";
	else if (memcmp(sb->member_uuid, info->member_uuid, HYBRID_UUID_SIZE))
		*why = "is another member";
	else if (memcmp(sb->pairing_key, info->pairing_key, HYBRID_KEY_SIZE))
		*why = "carries another pairing key";
	else if (sb->data_sector != info->data_sector ||
		 (sb->data_sectors != info->data_sectors && sb->data_sectors != length))
		*why = "has another data area than the volume table says";
	return *why ? -EMEDIUMTYPE : 0;
}

/* The last one is never given out, so that there always is a next one: -ENOSPC. */
static int take_instance(struct hybrid_engine *e, u32 *instance)
{
	unsigned long flags;
	int r = -ENOSPC;

	spin_lock_irqsave(&e->lock, flags);
	if (e->next_instance < U32_MAX) {
		*instance = e->next_instance++;
		r = 0;
	}
	spin_unlock_irqrestore(&e->lock, flags);
	return r;
}

/*
 * The volume's records carry a dead instance: its blocks are free once both roots
 * say so.  Should the newest be lost, the other one counts, and must not find
 * another volume's data in them.
 */
static int free_dead(struct hybrid_engine *e, struct hybrid_volume *v)
{
	int r = e->ops->wait_checkpoint(e);

	if (!r)
		r = e->ops->wait_checkpoint(e);
	if (!r)
		volume_purge(e, v, true);
	return r;
}

/* Everything cached of the volume is forgotten. */
static int new_instance(struct hybrid_engine *e, struct hybrid_volume *v)
{
	unsigned long flags;
	u32 instance;
	int r = take_instance(e, &instance);

	if (r)
		return r;
	volume_purge(e, v, false);
	spin_lock_irqsave(&e->lock, flags);
	v->info.instance = instance;
	mark_volume_leaf(e, v->id);
	spin_unlock_irqrestore(&e->lock, flags);
	return free_dead(e, v);
}

static const char no_cold_start[] =
	"cannot be started cold: the cache device cannot be written, or no instance is left";

void each_block(struct hybrid_engine *e, struct hybrid_volume *v,
		void (*each)(struct hybrid_engine *e, u32 set, u32 i))
{
	unsigned long flags;
	u32 set, i;

	for (set = 0; set < e->map.nr_sets; set++) {
		struct hybrid_set *s = &e->map.set[set];

		spin_lock_irqsave(&s->lock, flags);
		for (i = 0; i < e->map.set_size; i++)
			if ((s->flags[i] & (BLOCK_MAPPED | BLOCK_REMOVED)) &&
			    hybrid_key_volume(s->key[i]) == v->id)
				each(e, set, i);
		spin_unlock_irqrestore(&s->lock, flags);
		cond_resched();
	}
}

/* Drop the clean granules of block @i; evict the block if it has no others. */
static void forget_clean(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];
	u64 keep = block_mask(e, s, MASK_DIRTY, i) | block_mask(e, s, MASK_JDIRTY, i);

	if (!(s->flags[i] & BLOCK_MAPPED))
		return;
	if (!keep) {
		evict_block(e, set, i);
	} else if (block_mask(e, s, MASK_VALID, i) & ~keep) {
		hybrid_set_invalidate(&e->map, s, i, ~keep);
		mark_must(e, set, i);
	}
}

/*
 * Did the origin go on alone when the pool of the cache's last session failed?  Then
 * neither was opened with another since.
 */
static bool failed_together(const struct hybrid_volume *v)
{
	return (v->sb.info.flags & HYBRID_SB_ALONE) && v->sb.info.paired_nonce &&
	       nonce_known(v, v->sb.info.paired_nonce) && v->sb.info.instance == v->info.instance;
}

/*
 * The origin was written without its cache, in the session in which the pool failed.  All
 * that is dirty was refused to its users then, so the cached copy is the newest, and of
 * everything else the origin's: so everything clean goes, durably, before the cache knows
 * the origin's nonce.  The writes that no flush covered may be missing, as after a power cut.
 */
static int merge(struct hybrid_engine *e, struct hybrid_volume *v, const char **why)
{
	int r;

	v->merged = dirty_sectors(e, v);
	each_block(e, v, forget_clean);
	r = e->ops->wait_checkpoint(e);
	if (r)
		*why = "cannot be merged: the cache device cannot be written";
	return r;
}

/* The origin is the one that the cache last saw, or its cached data goes. */
static int check_nonce(struct hybrid_engine *e, struct hybrid_volume *v, const char **why)
{
	if (nonce_known(v, v->sb.info.nonce))
		return 0;
	if (failed_together(v) && (v->sb.info.flags & HYBRID_SB_DIRTY))
		return merge(e, v, why);
	/* If nothing was lost then, records that call anything dirty are outdated. */
	if (failed_together(v)) {
		*why = no_cold_start;
		return new_instance(e, v);
	}
	if (atomic_read(&v->nr_jdirty)) {
		*why = "was written without its cache, which holds newer data of it";
		return -EMEDIUMTYPE;
	}
	if (v->sb.info.flags & HYBRID_SB_DIRTY) {
		*why = "may have newer data in a cache that is lost: this one is older";
		return -EMEDIUMTYPE;
	}
	*why = no_cold_start;
	return new_instance(e, v);
}

static int exchange_nonce(struct hybrid_engine *e, struct hybrid_volume *v)
{
	u64 new = e->ops->random(e);
	unsigned long flags;
	int r;

	r = sb_unite(v);
	if (r)
		return r;
	spin_lock_irqsave(&e->lock, flags);
	v->info.nonce_old = v->sb.info.nonce;
	v->info.nonce = new;
	mark_volume_leaf(e, v->id);
	spin_unlock_irqrestore(&e->lock, flags);
	r = e->ops->wait_checkpoint(e);
	if (r)
		return r;
	sb_paired(v, new);
	v->sb.info.lost = 0;
	if (atomic_read(&v->nr_jdirty))
		v->sb.info.flags |= HYBRID_SB_DIRTY;
	v->sb.info.instance = v->info.instance;
	v->sb.info.volume_id = v->id;
	sb_take_name(v);
	r = sb_write_both(v);
	if (r)
		return r;
	spin_lock_irqsave(&e->lock, flags);
	v->info.nonce_old = 0;
	mark_volume_leaf(e, v->id);
	spin_unlock_irqrestore(&e->lock, flags);
	return e->ops->wait_checkpoint(e);
}

/* ---- growing -------------------------------------------------------------- */

/*
 * An origin has grown, and its volume follows.  In this order, each step durable:
 *
 *   1. Nothing of the volume is under way, and there is room for the larger lost map; no
 *      superblock of an open volume names one.
 *   2. The pool's entry, in both roots, has both sizes: from here on an open accepts either, and
 *      goes on with the steps that follow.
 *   3. A new tail: a superblock of the old size, at the end of the larger member.  The head
 *      leads to the old tail still; without the head the new one is found, and says the same.
 *      Then the old tail is zeroed: should the device shrink again, it must not be found.
 *   4. The head with the new size, which leads to the new tail; then that with the new size.
 *   5. The entry has the new size only.  Then there may be a longer table, and not before: users'
 *      writes would reach the old tail.
 *
 * So there is a good copy at each moment, and of two that count both say the same, or the newer one
 * has the new size, which the entry knows.  An origin in place has 2 and 5 alone.
 */

/* In RAM; recorded with the next checkpoint. */
static void set_sizes(struct hybrid_engine *e, struct hybrid_volume *v, u64 data_sectors,
		      u64 data_sectors_new)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	v->info.data_sectors = data_sectors;
	v->info.data_sectors_new = data_sectors_new;
	mark_volume_leaf(e, v->id);
	spin_unlock_irqrestore(&e->lock, flags);
}

static int zero_block(struct hybrid_volume *v, u64 sector)
{
	struct hybrid_op *op = &v->sb.op;

	memset(v->sb.block, 0, sizeof(*v->sb.block));
	sb_write_block(v, op, sector);
	return v->e->ops->do_op(v->e, op);
}

/* Of the lost map the header: without that there is none. */
static int zero_tail(struct hybrid_volume *v, u64 sector, u64 new_tail)
{
	int r = zero_block(v, sector);

	sector += HYBRID_META_BLOCK_SECTORS;
	return r || sector == new_tail ? r : zero_block(v, sector);
}

/* 3. */
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
	r = sb_io(v, 1, member_sectors, true);
	if (r) {
		v->sb.info.member_sectors = before;
		return r;
	}
	r = zero_tail(v, old_tail, new_tail);
	/* The head leads to it still, and the next attempt writes it.  The new one must go. */
	if (r) {
		zero_block(v, new_tail);
		v->sb.info.member_sectors = before;
		sb_failed(v, r);
	}
	return r;
}

/* 3. and 4. */
static int grow_origin(struct hybrid_volume *v, u64 member_sectors, u64 data_sectors)
{
	u64 before = v->sb.info.data_sectors;
	int r = move_tail(v, member_sectors);

	if (r)
		return r;
	v->sb.info.data_sectors = data_sectors;
	v->sb.oldest = 0;
	r = sb_write_both(v);
	if (r)
		v->sb.info.data_sectors = before;
	else
		v->sb.apart = false;
	return r;
}

/*
 * A cut came after 2.  Before the nonces are exchanged: no copy must be left behind with one that
 * the cache forgets.
 */
static int finish_growing(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors)
{
	u64 length = hybrid_volume_length(&v->info, sectors);
	int r = 0;

	if (!v->info.data_sectors_new)
		return 0;
	if (length == v->info.data_sectors_new) {
		/* It does not move, and nothing was lost. */
		v->sb.info.lost = 0;
		r = sb_unite(v);
		if (!r)
			r = grow_origin(v, sectors, length);
	}
	if (!r)
		set_sizes(e, v, length, 0);
	return r;
}

/*
 * The end of an origin in place may cut off its last granule: the cache has a part of it, and
 * must not give that for the whole.
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
			mark_must(e, set, i);
			remove_empty_block(e, set, i);
		}
	}
	spin_unlock_irqrestore(&s->lock, flags);
	return r;
}

/* 1., for a volume of @sectors. */
static int prepare_growing(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors)
{
	struct hybrid_volume_info info = v->info;
	int r;

	info.data_sectors_new = sectors;
	r = hybrid_volume_check(&info, v->id, NULL);
	if (!r)
		r = lost_reserve(e, sectors);
	return r ? r : drop_end(e, v);
}

int hybrid_volume_grow(struct hybrid_engine *e, struct hybrid_volume *v, u64 origin_sectors,
		       const u8 *member_uuid)
{
	u64 old = v->info.data_sectors, new = hybrid_volume_room(&v->info, origin_sectors);
	int r;

	if (READ_ONCE(e->failed))
		return -EIO;
	if (new < old)
		return -ENOSPC;
	if (new == old)
		return 0;
	r = prepare_growing(e, v, new);
	if (r)
		return r;
	set_sizes(e, v, old, new);
	if (member_uuid)
		memcpy(v->info.member_uuid, member_uuid, sizeof(v->info.member_uuid));
	r = e->ops->wait_checkpoint(e);
	/* The newest root may be lost: the other one must accept the larger origin, too. */
	if (!r)
		r = e->ops->wait_checkpoint(e);
	if (!r && v->sb.present)
		r = grow_origin(v, origin_sectors, new);
	if (r)
		return r;
	set_sizes(e, v, new, 0);
	return e->ops->wait_checkpoint(e);
}

/* ---- opening and closing -------------------------------------------------- */

/* What is on the origin now must not be lost later (J8). */
static int flush_origin(struct hybrid_volume *v)
{
	struct hybrid_op *op = &v->flush.op;
	int r;

	op_begin(op, HYBRID_OP_FLUSH, true, v, NULL);
	r = v->e->ops->do_op(v->e, op);
	if (r)
		origin_flush_failed(v, r);
	return r;
}

static int open_formatted(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors,
			  const char **why)
{
	int r = sb_read(v, sectors, why);

	if (r == -ENODATA)
		*why = "has no dm-hybrid superblock";
	if (r == -EIO)
		*why = "cannot be read";
	if (!r)
		r = sb_matches(e, v, sectors, why);
	if (!r) {
		v->healthy_again = v->sb.info.lost || !nonce_known(v, v->sb.info.nonce);
		r = check_nonce(e, v, why);
	}
	if (!r) {
		r = finish_growing(e, v, sectors);
		if (!r)
			r = exchange_nonce(e, v);
		if (r)
			*why = "cannot be written, or the cache device cannot";
	}
	if (r)
		return r == -EIO || r == -ENOMEM || r == -ENOSPC ? r : -EMEDIUMTYPE;
	v->sb.present = true;
	v->sb.state = v->sb.info.flags & HYBRID_SB_DIRTY ? SB_DIRTY : SB_CLEAN;
	v->sb.wanted = v->sb.state;
	return 0;
}

/*
 * No nonce tells whether an origin in place was written elsewhere: it starts
 * cold, but for what is dirty.
 */
static int open_inplace(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors,
			const char **why)
{
	v->sb.present = false;
	v->sb.state = SB_ALONE;
	if (v->info.data_sectors_new)
		set_sizes(e, v, hybrid_volume_length(&v->info, sectors), 0);
	*why = no_cold_start;
	if (!atomic_read(&v->nr_jdirty))
		return new_instance(e, v);
	each_block(e, v, forget_clean);
	return e->ops->wait_checkpoint(e);
}

static int open_origin(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors,
		       const char **why)
{
	int r;

	v->healthy_again = false;
	v->merged = 0;
	*why = "belongs to a pool that has failed";
	if (READ_ONCE(e->failed))
		return -EIO;
	*why = "cannot be flushed";
	r = flush_origin(v);
	if (r)
		return r;
	if (v->info.flags & HYBRID_VOLUME_INPLACE)
		return open_inplace(e, v, sectors, why);
	return open_formatted(e, v, sectors, why);
}

/*
 * A flush of the origin failed: what it should have kept may be lost, whatever
 * later flushes say.  So all that waits for it is as it stands on record, as
 * after a crash: what was written back, or replaced, is dirty again, and what
 * may not be recorded as clean is forgotten.
 */
static void distrust_origin(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];
	u64 dirty = block_mask(e, s, MASK_DIRTY, i) | block_mask(e, s, MASK_JDIRTY, i);

	if (settled(key_volume(e, s->key[i]), s->stamp[i]))
		return;
	hybrid_set_invalidate(&e->map, s, i, ~dirty);
	set_put_mask(&e->map, s, MASK_VALID, i, dirty);
	put_dirty(e, s, i, dirty);
	mark_lazy(e, set, i);
}

static u32 nr_volumes(const struct hybrid_engine *e)
{
	u32 id, nr = 0;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		nr += !!volume_of(e, id);
	return nr;
}

/* From here to volume_release() the volume is neither opened again nor deleted. */
static int volume_claim(struct hybrid_engine *e, u32 id, struct hybrid_volume **volume,
			const char **why)
{
	struct hybrid_volume *v;
	unsigned long flags;
	int r = 0;

	spin_lock_irqsave(&e->lock, flags);
	v = volume_of(e, id);
	if (!v || v->info.state != HYBRID_VOLUME_ACTIVE) {
		*why = "is not in the pool's volume table";
		r = -ENOENT;
	} else if (v->claimed) {
		*why = "is in use";
		r = -EBUSY;
	} else {
		v->claimed = true;
		*volume = v;
	}
	spin_unlock_irqrestore(&e->lock, flags);
	return r;
}

static void volume_release(struct hybrid_engine *e, struct hybrid_volume *v)
{
	unsigned long flags;

	jobs_release(v);
	sweep_destroy(v);
	spin_lock_irqsave(&e->lock, flags);
	v->claimed = false;
	spin_unlock_irqrestore(&e->lock, flags);
}

/* All of opening it that may fail. */
static int open_claimed(struct hybrid_engine *e, struct hybrid_volume *v, u64 origin_sectors,
			const char **why)
{
	int r;

	*why = "is smaller than its volume";
	if (v->info.data_sector + v->info.data_sectors > origin_sectors)
		return -EMEDIUMTYPE;
	*why = "needs more memory than there is";
	r = lost_reserve(e, max(v->info.data_sectors, v->info.data_sectors_new));
	if (!r)
		r = jobs_reserve(e, v);
	if (!r)
		r = sweep_create(e, v, nr_volumes(e));
	return r ? r : open_origin(e, v, origin_sectors, why);
}

int hybrid_volume_open(struct hybrid_engine *e, u32 id, u64 origin_sectors, void *context,
		       struct hybrid_volume **volume, const char **why)
{
	struct hybrid_volume *v = NULL;
	unsigned long flags;
	int r = volume_claim(e, id, &v, why);

	if (r)
		return r;
	v->context = context;
	r = open_claimed(e, v, origin_sectors, why);
	if (r) {
		volume_release(e, v);
		return r;
	}
	if (v->flush.error)
		each_block(e, v, distrust_origin);
	spin_lock_irqsave(&e->lock, flags);
	WRITE_ONCE(v->open, true);
	WRITE_ONCE(v->suspended, false);
	v->flush.error = 0;
	v->sb.lost_known = false;
	v->sb.lost_saved = false;
	/* A mode that keeps nothing dirty gets rid of what there is (S14). */
	drain_set(&v->drain, v->mode != HYBRID_MODE_WRITEBACK, 0);
	WRITE_ONCE(e->nr_open, e->nr_open + 1);
	list_add_tail(&v->open_link, &e->open_volumes);
	room_share(e);
	spin_unlock_irqrestore(&e->lock, flags);
	*volume = v;
	return 0;
}

/* All writes to the origin that have ended become durable. */
static int settle_origin(struct hybrid_engine *e, struct hybrid_volume *v)
{
	unsigned long flags;
	int r = v->flush.error;

	if (r || v->flush.last_write <= v->flush.flushed)
		return r;
	spin_lock_irqsave(&e->lock, flags);
	v->flush.target = v->flush.epoch;
	WRITE_ONCE(v->flush.epoch, v->flush.epoch + 1);
	spin_unlock_irqrestore(&e->lock, flags);
	r = flush_origin(v);
	if (r)
		origin_flush_failed(v, r);
	else
		WRITE_ONCE(v->flush.flushed, v->flush.target);
	return r;
}

/*
 * What was written back becomes durable, and recorded, while the origin can
 * still be reached.
 */
static int settle_volume(struct hybrid_engine *e, struct hybrid_volume *v)
{
	int r = settle_origin(e, v);

	return r ? r : e->ops->wait_checkpoint(e);
}

int hybrid_volume_settle(struct hybrid_engine *e, struct hybrid_volume *v)
{
	return READ_ONCE(e->failed) ? -EIO : settle_volume(e, v);
}

/* A clean volume's origin says so (J10): its clean records are durable. */
static int clear_dirty_flag(struct hybrid_volume *v)
{
	if (!v->sb.present || v->sb.state != SB_DIRTY)
		return 0;
	if (dirty_blocks(v))
		return 0;
	v->sb.info.flags &= ~HYBRID_SB_DIRTY;
	return sb_write_both(v);
}

/* The pool failed, and the volume was not written since: its nonce stays. */
static void close_failed(struct hybrid_engine *e, struct hybrid_volume *v)
{
	if (!v->sb.present || v->sb.state == SB_ALONE || v->sb.wanted == SB_CLEAN)
		return;
	settle_origin(e, v);
	/* The one that was to go with it alone may have failed half way. */
	sb_paired(v, v->info.nonce);
	if (v->sb.lost_known || !lost_save_blocking(e, v))
		sb_write_both(v);
}

int hybrid_volume_close(struct hybrid_engine *e, struct hybrid_volume *v)
{
	unsigned long flags;
	int r = -EIO;

	if (!READ_ONCE(e->failed))
		r = settle_volume(e, v);
	if (!r)
		r = clear_dirty_flag(v);
	else if (READ_ONCE(e->failed))
		close_failed(e, v);
	spin_lock_irqsave(&e->lock, flags);
	WRITE_ONCE(v->open, false);
	v->cache_written = false;
	v->cache_flushing = false;
	jobs_unclaim(e, v);
	WRITE_ONCE(e->nr_open, e->nr_open - 1);
	list_del_init(&v->open_link);
	room_share(e);
	spin_unlock_irqrestore(&e->lock, flags);
	volume_release(e, v);
	return r;
}

bool hybrid_volume_claim_sb(struct hybrid_engine *e, struct hybrid_volume *v)
{
	unsigned long flags;
	bool claimed;

	spin_lock_irqsave(&e->lock, flags);
	claimed = !v->sb.busy && !v->flush.busy;
	if (claimed)
		v->sb.busy = true;
	spin_unlock_irqrestore(&e->lock, flags);
	return claimed;
}

int hybrid_volume_renew_sb(struct hybrid_engine *e, struct hybrid_volume *v)
{
	int r;

	if (!v->sb.present)
		return 0;
	sb_take_name(v);
	r = sb_write_both(v);
	if (r)
		count(v, HYBRID_ORIGIN_ERRORS);
	return r;
}

void hybrid_volume_release_sb(struct hybrid_engine *e, struct hybrid_volume *v,
			      struct hybrid_actions *acts)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	v->sb.busy = false;
	sb_next_locked(e, v, acts);
	origin_flush_next_locked(e, v, acts);
	spin_unlock_irqrestore(&e->lock, flags);
}

bool hybrid_volume_suspend(struct hybrid_engine *e, struct hybrid_volume *v,
			   struct hybrid_actions *acts)
{
	unsigned long flags;
	bool done;

	spin_lock_irqsave(&e->lock, flags);
	WRITE_ONCE(v->suspended, true);
	spin_unlock_irqrestore(&e->lock, flags);
	holds_drop(e, v, HOLD_SUSPENDED);
	spin_lock_irqsave(&e->lock, flags);
	done = !v->nr_jobs && !v->flush.busy && !v->sb.busy && list_empty(&v->writeback.turn);
	spin_unlock_irqrestore(&e->lock, flags);
	return done;
}

void hybrid_volume_resume(struct hybrid_engine *e, struct hybrid_volume *v,
			  struct hybrid_actions *acts)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	WRITE_ONCE(v->suspended, false);
	spin_unlock_irqrestore(&e->lock, flags);
	writeback_kick(e, v, acts);
}

/* ---- the table ----------------------------------------------------------- */

static bool same_volume(const struct hybrid_volume_info *a, const struct hybrid_volume_info *b)
{
	return !memcmp(a->uuid, b->uuid, HYBRID_UUID_SIZE) ||
	       !memcmp(a->member_uuid, b->member_uuid, HYBRID_UUID_SIZE) ||
	       !strncmp(a->name, b->name, HYBRID_NAME_SIZE);
}

int hybrid_volume_create(struct hybrid_engine *e, u32 id, const struct hybrid_volume_info *info)
{
	struct hybrid_volume *v;
	unsigned long flags;
	u32 k;
	int r;

	if (id >= HYBRID_MAX_VOLUMES)
		return -EINVAL;
	for (k = 0; k < HYBRID_MAX_VOLUMES; k++) {
		v = volume_of(e, k);
		if (v && (k == id || same_volume(&v->info, info)))
			return -EEXIST;
	}
	v = volume_alloc(e, id, info);
	if (!v)
		return -ENOMEM;
	v->info.state = HYBRID_VOLUME_ACTIVE;
	r = take_instance(e, &v->info.instance);
	/* Whatever could not be loaded again must not get into the table. */
	if (!r)
		r = hybrid_volume_check(&v->info, id, NULL);
	if (r) {
		volume_free(v);
		return r;
	}
	spin_lock_irqsave(&e->lock, flags);
	volume_put(e, id, v);
	mark_volume_leaf(e, id);
	spin_unlock_irqrestore(&e->lock, flags);
	return e->ops->wait_checkpoint(e);
}

/*
 * A block of a closed volume: gone from RAM; not free before the disk knows.  Its leaf
 * need not be written for it: its instance is dead, and a leaf changes only with a
 * record, or in a recovery (engine-checkpoint.c).
 */
static void purge_block(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];

	if (s->flags[i] & BLOCK_MAPPED) {
		hybrid_set_note_remove(&e->map, s, i, false);
		atomic_dec(&key_volume(e, s->key[i])->nr_cached);
	}
	put_dirty(e, s, i, 0);
	put_jdirty(e, s, i, 0);
	hybrid_set_flags(s, i, BLOCK_REMOVED | BLOCK_TRANSIT, BLOCK_MAPPED | BLOCK_JMAPPED);
}

static void free_block(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];

	purge_block(e, set, i);
	hybrid_set_unhash(&e->map, s, i);
	place_free(e, set, i);
	trim_note(e, set);
}

/* Nothing of the volume may be in flight.  @free: its records are dead, durably. */
void volume_purge(struct hybrid_engine *e, struct hybrid_volume *v, bool free)
{
	each_block(e, v, free ? free_block : purge_block);
}

int hybrid_volume_delete(struct hybrid_engine *e, u32 id, bool drop_dirty)
{
	struct hybrid_volume *v = volume_of(e, id);
	unsigned long flags;
	bool busy;

	if (!v)
		return -ENOENT;
	/* One that could not be recorded is none. */
	if (v->info.state == HYBRID_VOLUME_TOMBSTONE)
		return READ_ONCE(e->failed) ? -EIO : 0;
	spin_lock_irqsave(&e->lock, flags);
	busy = v->claimed || (!drop_dirty && dirty_blocks(v));
	if (!busy) {
		v->info.state = HYBRID_VOLUME_TOMBSTONE;
		mark_volume_leaf(e, id);
	}
	spin_unlock_irqrestore(&e->lock, flags);
	return busy ? -EBUSY : free_dead(e, v);
}

int hybrid_volume_forget(struct hybrid_engine *e, u32 id)
{
	struct hybrid_volume *v = volume_of(e, id);
	unsigned long flags;
	int r;

	if (!v)
		return -ENOENT;
	if (v->info.state != HYBRID_VOLUME_TOMBSTONE)
		return -EBUSY;
	spin_lock_irqsave(&e->lock, flags);
	volume_put(e, id, NULL);
	mark_volume_leaf(e, id);
	spin_unlock_irqrestore(&e->lock, flags);
	r = e->ops->wait_checkpoint(e);
	volume_free(v);
	return r;
}

static bool name_taken(const struct hybrid_engine *e, u32 id, const char *name)
{
	const struct hybrid_volume *v;
	u32 k;

	for (k = 0; k < HYBRID_MAX_VOLUMES; k++) {
		v = volume_of(e, k);
		if (v && k != id && !strncmp(v->info.name, name, HYBRID_NAME_SIZE))
			return true;
	}
	return false;
}

int hybrid_volume_rename(struct hybrid_engine *e, u32 id, const char *name)
{
	struct hybrid_volume *v = volume_of(e, id);
	struct hybrid_volume_info info;
	unsigned long flags;
	int r;

	if (!v || v->info.state != HYBRID_VOLUME_ACTIVE)
		return -ENOENT;
	if (name_taken(e, id, name))
		return -EEXIST;
	info = v->info;
	strscpy(info.name, name, sizeof(info.name));
	r = hybrid_volume_check(&info, id, NULL);
	if (r)
		return r;
	spin_lock_irqsave(&e->lock, flags);
	memcpy(v->info.name, info.name, sizeof(v->info.name));
	mark_volume_leaf(e, id);
	spin_unlock_irqrestore(&e->lock, flags);
	return e->ops->wait_checkpoint(e);
}

u32 hybrid_volume_dirty(struct hybrid_engine *e, u32 id, u64 *sectors)
{
	const struct hybrid_volume *v;
	unsigned long flags;
	u32 dirty;

	spin_lock_irqsave(&e->lock, flags);
	v = volume_of(e, id);
	dirty = v ? dirty_blocks(v) : 0;
	*sectors = v ? dirty_sectors(e, v) : 0;
	spin_unlock_irqrestore(&e->lock, flags);
	return dirty;
}

int hybrid_volume_info(struct hybrid_engine *e, u32 id, struct hybrid_volume_info *info)
{
	const struct hybrid_volume *v;
	unsigned long flags;
	int r = -ENOENT;

	spin_lock_irqsave(&e->lock, flags);
	v = volume_of(e, id);
	if (v) {
		*info = v->info;
		r = 0;
	}
	spin_unlock_irqrestore(&e->lock, flags);
	return r;
}

/* ---- settings and reports ------------------------------------------------ */

void *hybrid_volume_context(struct hybrid_volume *v)
{
	return v->context;
}

u64 hybrid_volume_data_sector(struct hybrid_volume *v)
{
	return v->info.data_sector;
}

u64 hybrid_volume_sectors(struct hybrid_volume *v)
{
	return v->info.data_sectors;
}

/* A setting in the volume's entry has changed; caller holds the engine's lock. */
static void record_entry(struct hybrid_engine *e, struct hybrid_volume *v,
			 struct hybrid_actions *acts)
{
	lockdep_assert_held(&e->lock);
	mark_volume_leaf(e, v->id);
	e->cp.wanted = true;
	meta_kick_locked(e, acts);
}

void hybrid_volume_set_mode(struct hybrid_engine *e, struct hybrid_volume *v, u32 mode,
			    struct hybrid_actions *acts)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	if (v->mode != mode || v->info.mode != mode) {
		WRITE_ONCE(v->mode, mode);
		v->info.mode = mode;
		record_entry(e, v, acts);
	}
	drain_set(&v->drain, mode != HYBRID_MODE_WRITEBACK, 0);
	spin_unlock_irqrestore(&e->lock, flags);
	holds_drop(e, v, HOLD_MODE);
	writeback_kick(e, v, acts);
}

void hybrid_volume_set_cutoff(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors,
			      struct hybrid_actions *acts)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	if (v->cutoff != sectors || v->info.cutoff_sectors != sectors) {
		WRITE_ONCE(v->cutoff, sectors);
		v->info.cutoff_sectors = sectors;
		record_entry(e, v, acts);
	}
	spin_unlock_irqrestore(&e->lock, flags);
}

void hybrid_volume_set_origin(struct hybrid_volume *v, u32 traits)
{
	WRITE_ONCE(v->origin_traits, traits);
}

void hybrid_volume_reset_counters(struct hybrid_volume *v)
{
	int cpu;

	for_each_possible_cpu(cpu)
		memset(per_cpu_ptr(v->counters, cpu), 0, sizeof(struct hybrid_counters));
}

void hybrid_volume_status(struct hybrid_engine *e, struct hybrid_volume *v,
			  struct hybrid_volume_status *st)
{
	int cpu, c;

	memset(st, 0, sizeof(*st));
	st->degraded = READ_ONCE(e->failed);
	st->draining = drains(e, v) && dirty_blocks(v);
	st->mode = READ_ONCE(v->mode);
	st->drain_on = st->mode == HYBRID_MODE_WRITEBACK && drains(e, v);
	st->cutoff = READ_ONCE(v->cutoff);
	st->dirty = dirty_blocks(v);
	st->dirty_sectors = dirty_sectors(e, v);
	st->cached = atomic_read(&v->nr_cached);
	st->lost = st->degraded ? st->dirty : 0;
	st->merged = v->merged;
	for_each_possible_cpu(cpu)
		for (c = 0; c < HYBRID_NR_COUNTERS; c++)
			st->counter[c] += READ_ONCE(per_cpu_ptr(v->counters, cpu)->c[c]);
}

u32 hybrid_volume_state(const struct hybrid_volume *v)
{
	return (READ_ONCE(v->e->failed) ? HYBRID_STATE_FAILED : 0) |
	       (READ_ONCE(v->drain.on) && !dirty_blocks(v) ? HYBRID_STATE_DRAINED : 0) |
	       (v->healthy_again ? HYBRID_STATE_HEALTHY_AGAIN : 0);
}
