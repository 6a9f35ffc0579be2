// SPDX-License-Identifier: GPL-2.0-only
/*
 * Volumes: their table, their settings, and how they are opened and closed.
 */
#include "engine-internal.h"

/* Makes sure that the table has a place for volume @id. */
static bool have_place(struct hybrid_engine *e, u32 id)
{
	struct hybrid_volume ***some = &e->volumes.group[id / VOLUMES_TOGETHER], **new;
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

void hybrid_volume_enter(struct hybrid_engine *e, u32 id, struct hybrid_volume *v)
{
	e->volumes.group[id / VOLUMES_TOGETHER][id % VOLUMES_TOGETHER] = v;
}

struct hybrid_volume *hybrid_volume_alloc(struct hybrid_engine *e, u32 id,
					  const struct hybrid_volume_info *info)
{
	struct hybrid_volume *v = have_place(e, id) ? kzalloc(sizeof(*v), GFP_KERNEL) : NULL;

	if (!v)
		return NULL;
	v->counters = alloc_percpu(struct hybrid_counters);
	v->sb.block = kzalloc(sizeof(*v->sb.block), GFP_KERNEL);
	if (!v->counters || !v->sb.block) {
		hybrid_volume_free(v);
		return NULL;
	}
	v->e = e;
	v->id = id;
	v->info = *info;
	v->mode = info->mode;
	v->cutoff = info->cutoff_sectors;
	/* Epoch 0 is flushed: blocks that were loaded count as durable. */
	v->flush.epoch = 1;
	v->flush.ended = hybrid_origin_flushed;
	INIT_LIST_HEAD(&v->open_link);
	INIT_LIST_HEAD(&v->flush.now);
	INIT_LIST_HEAD(&v->flush.next);
	INIT_LIST_HEAD(&v->sb.waiters);
	INIT_LIST_HEAD(&v->ranges.list);
	INIT_LIST_HEAD(&v->ranges.waiters);
	INIT_LIST_HEAD(&v->ranges.queue);
	INIT_LIST_HEAD(&v->jobs.waiters);
	INIT_LIST_HEAD(&v->writeback.turn);
	hybrid_stall_create(v);
	hybrid_credit_create(v);
	hybrid_streams_init(&v->streams);
	return v;
}

void hybrid_volume_free(struct hybrid_volume *v)
{
	if (!v)
		return;
	hybrid_jobs_release(v);
	hybrid_sweep_destroy(v);
	hybrid_lost_release(v);
	free_percpu(v->counters);
	kfree(v->sb.block);
	kfree(v);
}

void hybrid_volumes_destroy(struct hybrid_engine *e)
{
	u32 id;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		hybrid_volume_free(volume_of(e, id));
	for (id = 0; id < HYBRID_MAX_VOLUMES; id += VOLUMES_TOGETHER)
		kfree(e->volumes.group[id / VOLUMES_TOGETHER]);
}

/* The last instance is never given out (-ENOSPC), so that there always is a next one. */
static int take_instance(struct hybrid_engine *e, u32 *instance)
{
	unsigned long flags;
	int r = -ENOSPC;

	spin_lock_irqsave(&e->lock, flags);
	if (e->volumes.next_instance < U32_MAX) {
		*instance = e->volumes.next_instance++;
		r = 0;
	}
	spin_unlock_irqrestore(&e->lock, flags);
	return r;
}

/*
 * The volume's records carry a dead instance: its blocks are free once both roots
 * say so.  If the newest root is lost, the other one counts, and must not find
 * another volume's data in these blocks.
 */
static int free_dead(struct hybrid_engine *e, struct hybrid_volume *v)
{
	int r = e->ops->wait_checkpoint(e);

	if (!r)
		r = e->ops->wait_checkpoint(e);
	if (!r)
		hybrid_volume_purge(e, v, true);
	return r;
}

/* Forgets all cached data of the volume. */
static int new_instance(struct hybrid_engine *e, struct hybrid_volume *v)
{
	unsigned long flags;
	u32 instance;
	int r = take_instance(e, &instance);

	if (r)
		return r;
	hybrid_volume_purge(e, v, false);
	spin_lock_irqsave(&e->lock, flags);
	v->info.instance = instance;
	hybrid_mark_volume_leaf(e, v->id);
	spin_unlock_irqrestore(&e->lock, flags);
	return free_dead(e, v);
}

static const char no_cold_start[] =
	"cannot be started cold: the cache device cannot be written, or no instance is left";

/* Drop the clean granules of block @i; evict the block if it has no others. */
static void forget_clean(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];
	u64 keep = block_mask(e, s, MASK_DIRTY, i) | block_mask(e, s, MASK_JDIRTY, i);

	if (!(s->flags[i] & BLOCK_MAPPED))
		return;
	if (!keep) {
		hybrid_evict_block(e, set, i);
	} else if (block_mask(e, s, MASK_VALID, i) & ~keep) {
		hybrid_set_invalidate(&e->map, s, i, ~keep);
		hybrid_mark_must(e, set, i);
	}
}

/*
 * Did the origin go on alone when the pool failed, in the cache's last session?  Then
 * neither cache nor origin was opened with another since.
 */
static bool failed_together(const struct hybrid_volume *v)
{
	return (v->sb.info.flags & HYBRID_SB_ALONE) && v->sb.info.paired_nonce &&
	       hybrid_nonce_known(v, v->sb.info.paired_nonce) &&
	       v->sb.info.instance == v->info.instance;
}

/*
 * The origin was written without its cache, in the session in which the pool failed.  I/O to
 * dirty granules failed then, so the cached copy of these is the newest; all other data is
 * newest on the origin.  So all clean granules are dropped, durably, before the cache knows the
 * origin's nonce.  The writes that no flush covered may be missing, as after a power cut.
 */
static int merge(struct hybrid_engine *e, struct hybrid_volume *v, const char **why)
{
	int r;

	v->merged = dirty_sectors(e, v);
	hybrid_each_block(e, v, forget_clean);
	r = e->ops->wait_checkpoint(e);
	if (r)
		*why = "cannot be merged: the cache device cannot be written";
	return r;
}

/* If the origin changed since the cache last saw it: merges, drops the cached data, or refuses. */
static int check_nonce(struct hybrid_engine *e, struct hybrid_volume *v, const char **why)
{
	if (hybrid_nonce_known(v, v->sb.info.nonce))
		return 0;
	if (failed_together(v) && (v->sb.info.flags & HYBRID_SB_DIRTY))
		return merge(e, v, why);
	/* If nothing was lost then, records that call anything dirty are outdated. */
	if (failed_together(v)) {
		*why = no_cold_start;
		return new_instance(e, v);
	}
	if (dirty_blocks(v)) {
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

/*
 * Is the first write of this session likely to need the dirty flag (J10)?  Then the superblock that
 * takes the nonce to the origin has it, and that write does not wait for another.
 */
static bool marks_at_once(const struct hybrid_volume *v)
{
	return dirty_blocks(v) ||
	       (v->mode == HYBRID_MODE_WRITEBACK && (v->info.flags & HYBRID_VOLUME_WAS_DIRTY));
}

static int exchange_nonce(struct hybrid_engine *e, struct hybrid_volume *v)
{
	u64 new = e->ops->random(e);
	unsigned long flags;
	int r;

	r = hybrid_sb_unite(v);
	if (r)
		return r;
	spin_lock_irqsave(&e->lock, flags);
	v->info.nonce_old = v->sb.info.nonce;
	v->info.nonce = new;
	hybrid_mark_volume_leaf(e, v->id);
	spin_unlock_irqrestore(&e->lock, flags);
	r = e->ops->wait_checkpoint(e);
	if (r)
		return r;
	hybrid_sb_paired(v, new);
	v->sb.info.lost = 0;
	if (marks_at_once(v))
		v->sb.info.flags |= HYBRID_SB_DIRTY;
	v->sb.info.instance = v->info.instance;
	v->sb.info.volume_id = v->id;
	hybrid_sb_take_name(v);
	r = hybrid_sb_write_both(v);
	if (r)
		return r;
	spin_lock_irqsave(&e->lock, flags);
	v->info.nonce_old = 0;
	hybrid_mark_volume_leaf(e, v->id);
	spin_unlock_irqrestore(&e->lock, flags);
	return e->ops->wait_checkpoint(e);
}

/* ---- opening and closing -------------------------------------------------- */

/* Data that is on the origin now must not be lost later (J8). */
static int flush_origin(struct hybrid_volume *v)
{
	struct hybrid_op *op = &v->flush.op;
	int r;

	op_begin(op, HYBRID_OP_FLUSH, true, v, NULL);
	r = v->e->ops->do_op(v->e, op);
	if (r)
		hybrid_origin_flush_failed(v, r);
	return r;
}

static int open_formatted(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors,
			  const char **why)
{
	int r = hybrid_sb_read(v, sectors, why);

	if (!r)
		r = hybrid_sb_matches(e, v, sectors, why);
	if (!r) {
		v->healthy_again = v->sb.info.lost || !hybrid_nonce_known(v, v->sb.info.nonce);
		r = check_nonce(e, v, why);
	}
	if (!r) {
		r = hybrid_finish_growing(e, v, sectors);
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
 * No nonce tells whether an origin in place was written elsewhere, so the volume
 * starts cold, except for dirty granules.
 */
static int open_inplace(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors,
			const char **why)
{
	v->sb.present = false;
	v->sb.state = SB_ALONE;
	if (v->info.data_sectors_new)
		hybrid_volume_set_sizes(e, v, hybrid_volume_length(&v->info, sectors), 0);
	*why = no_cold_start;
	if (!dirty_blocks(v))
		return new_instance(e, v);
	hybrid_each_block(e, v, forget_clean);
	return e->ops->wait_checkpoint(e);
}

static int open_origin(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors,
		       const char **why)
{
	int r;

	v->healthy_again = false;
	v->merged = 0;
	*why = "belongs to a pool that has failed";
	if (READ_ONCE(e->life.failed))
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
 * A flush of the origin failed: the writes that it covered may be lost, even if
 * later flushes succeed.  So each granule that waits for it is as it stands on record,
 * as after a crash: dirty again if it was written back or replaced, and forgotten if it
 * may not be recorded as clean.
 */
static void distrust_origin(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];
	u64 dirty = block_mask(e, s, MASK_DIRTY, i) | block_mask(e, s, MASK_JDIRTY, i);

	if (origin_durable(key_volume(e, s->key[i]), s->flush_epoch[i]))
		return;
	hybrid_set_invalidate(&e->map, s, i, ~dirty);
	set_put_mask(&e->map, s, MASK_VALID, i, dirty);
	hybrid_put_dirty(e, s, i, dirty);
	hybrid_mark_lazy(e, set, i);
}

static u32 nr_volumes(const struct hybrid_engine *e)
{
	u32 id, nr = 0;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++)
		nr += !!volume_of(e, id);
	return nr;
}

/* Until volume_release() the volume is neither opened again nor deleted. */
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
	} else if (v->state != VOLUME_CLOSED) {
		*why = "is in use";
		r = -EBUSY;
	} else {
		v->state = VOLUME_CLAIMED;
		*volume = v;
	}
	spin_unlock_irqrestore(&e->lock, flags);
	return r;
}

static void volume_release(struct hybrid_engine *e, struct hybrid_volume *v)
{
	unsigned long flags;

	hybrid_jobs_release(v);
	hybrid_sweep_destroy(v);
	hybrid_lost_release(v);
	spin_lock_irqsave(&e->lock, flags);
	v->state = VOLUME_CLOSED;
	spin_unlock_irqrestore(&e->lock, flags);
}

/* All steps of opening a volume that may fail. */
static int open_claimed(struct hybrid_engine *e, struct hybrid_volume *v, u64 origin_sectors,
			const char **why)
{
	int r;

	*why = "is smaller than its volume";
	if (v->info.data_sector + v->info.data_sectors > origin_sectors)
		return -EMEDIUMTYPE;
	*why = "needs more memory than there is";
	/* A growth may be called off, and the map of the smaller volume may be the larger one. */
	r = hybrid_lost_reserve(e, v, v->info.data_sectors);
	if (!r)
		r = hybrid_lost_reserve(e, v, hybrid_volume_reach(&v->info));
	if (!r)
		r = hybrid_jobs_reserve(e, v);
	if (!r)
		r = hybrid_sweep_create(e, v, nr_volumes(e));
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
		hybrid_each_block(e, v, distrust_origin);
	WRITE_ONCE(v->blocks.dirtied, dirty_blocks(v));
	spin_lock_irqsave(&e->lock, flags);
	WRITE_ONCE(v->state, VOLUME_OPEN);
	v->flush.error = 0;
	v->sb.lost_known = false;
	v->sb.lost_saved = false;
	/* A mode that keeps nothing dirty begins with a drain. */
	drain_set(&v->drain, v->mode != HYBRID_MODE_WRITEBACK, 0);
	WRITE_ONCE(e->volumes.nr_open, e->volumes.nr_open + 1);
	list_add_tail(&v->open_link, &e->volumes.open);
	hybrid_stall_share(e);
	spin_unlock_irqrestore(&e->lock, flags);
	*volume = v;
	return 0;
}

/* Makes all writes to the origin that have ended durable. */
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
		hybrid_origin_flush_failed(v, r);
	else
		WRITE_ONCE(v->flush.flushed, v->flush.target);
	return r;
}

/*
 * Makes all data written back durable, while the origin can still be reached, and records that, and
 * what is dirty, in any case.
 */
static int settle_volume(struct hybrid_engine *e, struct hybrid_volume *v)
{
	int origin = settle_origin(e, v);
	int r = e->ops->wait_checkpoint(e);

	return origin ? origin : r;
}

int hybrid_volume_settle(struct hybrid_engine *e, struct hybrid_volume *v)
{
	return READ_ONCE(e->life.failed) ? -EIO : settle_volume(e, v);
}

/* Clears the flag of a clean volume's origin (J10): the clean records are durable. */
static int clear_dirty_flag(struct hybrid_volume *v)
{
	if (!v->sb.present || v->sb.state != SB_DIRTY)
		return 0;
	if (dirty_blocks(v))
		return 0;
	v->sb.info.flags &= ~HYBRID_SB_DIRTY;
	return hybrid_sb_write_both(v);
}

/* The pool failed, and the volume was not written since: its nonce stays. */
static void close_failed(struct hybrid_engine *e, struct hybrid_volume *v)
{
	if (!v->sb.present || v->sb.state == SB_ALONE || v->sb.wanted == SB_CLEAN)
		return;
	settle_origin(e, v);
	/* The superblock update to go on alone may have failed half way. */
	hybrid_sb_paired(v, v->info.nonce);
	if (v->sb.lost_known || !hybrid_lost_save_blocking(e, v))
		hybrid_sb_write_both(v);
}

/* Notes for the next session whether this one had dirty blocks; the next checkpoint records it. */
static void note_was_dirty(struct hybrid_engine *e, struct hybrid_volume *v)
{
	u32 was_dirty = READ_ONCE(v->blocks.dirtied) ? HYBRID_VOLUME_WAS_DIRTY : 0;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	if ((v->info.flags & HYBRID_VOLUME_WAS_DIRTY) != was_dirty) {
		v->info.flags ^= HYBRID_VOLUME_WAS_DIRTY;
		hybrid_mark_volume_leaf(e, v->id);
	}
	spin_unlock_irqrestore(&e->lock, flags);
}

int hybrid_volume_close(struct hybrid_engine *e, struct hybrid_volume *v)
{
	unsigned long flags;
	int r = -EIO;

	note_was_dirty(e, v);
	if (!READ_ONCE(e->life.failed))
		r = settle_volume(e, v);
	if (!r)
		r = clear_dirty_flag(v);
	else if (READ_ONCE(e->life.failed))
		close_failed(e, v);
	spin_lock_irqsave(&e->lock, flags);
	engine_assert(e, !v->jobs.nr && !v->writeback.nr_active);
	engine_assert(e, list_empty(&v->jobs.waiters) && list_empty(&v->ranges.list));
	WRITE_ONCE(v->state, VOLUME_CLAIMED);
	v->commit = (struct hybrid_volume_commit){ };
	hybrid_jobs_unclaim(e, v);
	WRITE_ONCE(e->volumes.nr_open, e->volumes.nr_open - 1);
	list_del_init(&v->open_link);
	hybrid_stall_share(e);
	spin_unlock_irqrestore(&e->lock, flags);
	volume_release(e, v);
	return r;
}

bool hybrid_volume_suspend(struct hybrid_engine *e, struct hybrid_volume *v,
			   struct hybrid_actions *acts)
{
	unsigned long flags;
	bool done;

	spin_lock_irqsave(&e->lock, flags);
	WRITE_ONCE(v->state, VOLUME_SUSPENDED);
	spin_unlock_irqrestore(&e->lock, flags);
	hybrid_readahead_drop(e, v, READAHEAD_SUSPENDED);
	spin_lock_irqsave(&e->lock, flags);
	done = !v->jobs.nr && !v->flush.busy && !v->sb.busy && list_empty(&v->writeback.turn);
	spin_unlock_irqrestore(&e->lock, flags);
	return done;
}

void hybrid_volume_resume(struct hybrid_engine *e, struct hybrid_volume *v,
			  struct hybrid_actions *acts)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	WRITE_ONCE(v->state, VOLUME_OPEN);
	spin_unlock_irqrestore(&e->lock, flags);
	hybrid_writeback_kick(e, v, acts);
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
	v = hybrid_volume_alloc(e, id, info);
	if (!v)
		return -ENOMEM;
	v->info.state = HYBRID_VOLUME_ACTIVE;
	r = take_instance(e, &v->info.instance);
	/* An entry that could not be loaded again must not get into the table. */
	if (!r)
		r = hybrid_volume_check(&v->info, id, NULL);
	if (r) {
		hybrid_volume_free(v);
		return r;
	}
	spin_lock_irqsave(&e->lock, flags);
	hybrid_volume_enter(e, id, v);
	hybrid_mark_volume_leaf(e, id);
	spin_unlock_irqrestore(&e->lock, flags);
	return e->ops->wait_checkpoint(e);
}

/*
 * Removes a block of a closed volume from RAM; it is not free before both roots know that.  Its
 * leaf need not be written for this: its instance is dead, and a leaf changes only with a
 * record, or in a recovery (engine-checkpoint.c).
 */
static void purge_block(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];

	if (s->flags[i] & BLOCK_MAPPED) {
		hybrid_set_note_remove(&e->map, s, i, false);
		atomic_dec(&key_volume(e, s->key[i])->blocks.cached);
	}
	hybrid_put_dirty(e, s, i, 0);
	hybrid_put_jdirty(e, s, i, 0);
	hybrid_set_flags(s, i, BLOCK_REMOVED | BLOCK_TRANSIT, BLOCK_MAPPED | BLOCK_JMAPPED);
}

static void free_block(struct hybrid_engine *e, u32 set, u32 i)
{
	struct hybrid_set *s = &e->map.set[set];

	purge_block(e, set, i);
	hybrid_set_unhash(&e->map, s, i);
	hybrid_place_free(e, set, i);
	hybrid_trim_note(e, set);
}

void hybrid_volume_purge(struct hybrid_engine *e, struct hybrid_volume *v, bool free)
{
	hybrid_each_block(e, v, free ? free_block : purge_block);
}

int hybrid_volume_delete(struct hybrid_engine *e, u32 id, bool drop_dirty)
{
	struct hybrid_volume *v = volume_of(e, id);
	unsigned long flags;
	bool busy;

	if (!v)
		return -ENOENT;
	/* A tombstone that could not be recorded does not count. */
	if (v->info.state == HYBRID_VOLUME_TOMBSTONE)
		return READ_ONCE(e->life.failed) ? -EIO : 0;
	spin_lock_irqsave(&e->lock, flags);
	busy = v->state != VOLUME_CLOSED || (!drop_dirty && dirty_blocks(v));
	if (!busy) {
		v->info.state = HYBRID_VOLUME_TOMBSTONE;
		hybrid_mark_volume_leaf(e, id);
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
	/* The volume may still have blocks: a pool that has failed frees none. */
	if (READ_ONCE(e->life.failed))
		return -EIO;
	spin_lock_irqsave(&e->lock, flags);
	hybrid_volume_enter(e, id, NULL);
	hybrid_mark_volume_leaf(e, id);
	spin_unlock_irqrestore(&e->lock, flags);
	r = e->ops->wait_checkpoint(e);
	hybrid_volume_free(v);
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
	hybrid_mark_volume_leaf(e, id);
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

/* Records a changed setting in the volume's entry.  Caller holds the engine's lock. */
static void record_entry(struct hybrid_engine *e, struct hybrid_volume *v,
			 struct hybrid_actions *acts)
{
	lockdep_assert_held(&e->lock);
	hybrid_mark_volume_leaf(e, v->id);
	e->cp.wanted = true;
	hybrid_meta_kick_locked(e, acts);
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
	hybrid_readahead_drop(e, v, READAHEAD_MODE);
	hybrid_writeback_kick(e, v, acts);
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

void hybrid_volume_set_traits(struct hybrid_volume *v, u32 traits)
{
	/* Without memory of first reads, the first read fills. */
	if (!(traits & HYBRID_ORIGIN_SEEKS))
		hybrid_map_remember_reads(&v->e->map);
	WRITE_ONCE(v->traits, traits);
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
	st->degraded = READ_ONCE(e->life.failed);
	st->draining = drains(e, v) && dirty_blocks(v);
	st->mode = READ_ONCE(v->mode);
	st->drain_on = st->mode == HYBRID_MODE_WRITEBACK && drains(e, v);
	st->cutoff = READ_ONCE(v->cutoff);
	st->dirty = dirty_blocks(v);
	st->dirty_sectors = dirty_sectors(e, v);
	st->cached = atomic_read(&v->blocks.cached);
	st->lost = st->degraded ? st->dirty : 0;
	st->merged = v->merged;
	for_each_possible_cpu(cpu)
		for (c = 0; c < HYBRID_NR_COUNTERS; c++)
			st->counter[c] += READ_ONCE(per_cpu_ptr(v->counters, cpu)->c[c]);
}

u32 hybrid_volume_state(const struct hybrid_volume *v)
{
	return (READ_ONCE(v->e->life.failed) ? HYBRID_STATE_FAILED : 0) |
	       (READ_ONCE(v->drain.on) && !dirty_blocks(v) ? HYBRID_STATE_DRAINED : 0) |
	       (v->healthy_again ? HYBRID_STATE_HEALTHY_AGAIN : 0);
}
