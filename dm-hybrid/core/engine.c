// SPDX-License-Identifier: GPL-2.0-only
/* The engine's life, its events and its clock, settings and reports. */
#include "engine-internal.h"

/* ---- create, destroy ----------------------------------------------------- */

static void init_lists(struct hybrid_engine *e)
{
	INIT_LIST_HEAD(&e->volumes.open);
	INIT_LIST_HEAD(&e->commit.next);
	INIT_LIST_HEAD(&e->commit.now);
	INIT_LIST_HEAD(&e->commit.waiting);
	INIT_LIST_HEAD(&e->cp.waiters);
	INIT_LIST_HEAD(&e->cp.now);
	INIT_LIST_HEAD(&e->intents.pending);
	INIT_LIST_HEAD(&e->intents.applied);
	INIT_LIST_HEAD(&e->intents.op.link);
	e->intents.done = hybrid_finish_intended;
	INIT_LIST_HEAD(&e->stall.waiters);
	INIT_LIST_HEAD(&e->stall.woken);
	e->stall.tick = 1;
	INIT_LIST_HEAD(&e->meta.op.link);
	INIT_LIST_HEAD(&e->writebacks.op.link);
	INIT_LIST_HEAD(&e->writebacks.turns);
	spin_lock_init(&e->lock);
}

/* Bytes of the arrays, besides the map's, that grow with the cache device. */
static u64 own_ram(const struct hybrid_geometry *g)
{
	return g->nr_leaves * sizeof(u16) + g->nr_leaves / 8 + 5 * (g->nr_sets / 8) +
	       hybrid_sweep_ram(g);
}

static int create_parts(struct hybrid_engine *e, const struct hybrid_policy_type *policy)
{
	u32 sets = e->g->nr_sets;
	void *none;
	int r;

	r = hybrid_map_create(&e->map, e->g);
	if (!r)
		r = hybrid_map_set_policy(&e->map, policy, &none);
	if (!r)
		r = hybrid_journal_create(&e->journal, e->g);
	if (!r)
		r = hybrid_checkpoint_create(e);
	if (!r)
		r = hybrid_intents_create(e);
	if (r)
		return r;
	e->commit.must_sets = alloc_bits(sets);
	e->commit.lazy_sets = alloc_bits(sets);
	e->commit.open_sets = alloc_bits(sets);
	e->evict.grace.sets = alloc_bits(sets);
	e->writebacks.dirty_sets = alloc_bits(sets);
	e->trim.sets = alloc_bits(sets);
	e->evict.readers = alloc_percpu(struct hybrid_readers);
	if (!e->commit.must_sets || !e->commit.lazy_sets || !e->commit.open_sets ||
	    !e->evict.grace.sets || !e->writebacks.dirty_sets || !e->trim.sets || !e->evict.readers)
		return -ENOMEM;
	e->stats.ram = own_ram(e->g);
	return 0;
}

u64 hybrid_engine_ram(const struct hybrid_geometry *g, const struct hybrid_policy_type *policy)
{
	return own_ram(g) + hybrid_map_ram(g, policy);
}

struct hybrid_engine *hybrid_engine_create(const struct hybrid_sb *sb,
					   const struct hybrid_engine_ops *ops, void *context,
					   const struct hybrid_policy_type *policy,
					   const struct hybrid_config *config, int *error)
{
	struct hybrid_engine *e = vzalloc(sizeof(*e));

	*error = -ENOMEM;
	if (!e)
		return NULL;
	e->ops = ops;
	e->context = context;
	e->config = *config;
	e->sb = *sb;
	e->g = &e->sb.geometry;
	memcpy(e->meta.id.pool_uuid, sb->pool_uuid, HYBRID_UUID_SIZE);
	e->volumes.next_instance = 1;
	/* Tiny sets evict on demand. */
	e->evict.reserve = min(16U, e->g->set_size / 16);
	init_lists(e);
	hybrid_stream_create(e);
	hybrid_jobs_create(e);
	*error = create_parts(e, policy);
	if (*error) {
		hybrid_engine_destroy(e);
		return NULL;
	}
	return e;
}

void hybrid_engine_destroy(struct hybrid_engine *e)
{
	/* A pool that was not stopped may still hold data read ahead. */
	hybrid_readahead_drop(e, NULL, READAHEAD_SUSPENDED);
	hybrid_volumes_destroy(e);
	hybrid_jobs_destroy(e);
	hybrid_checkpoint_destroy(e);
	hybrid_intents_destroy(e);
	hybrid_journal_destroy(&e->journal);
	hybrid_map_destroy(&e->map);
	free_percpu(e->evict.readers);
	kvfree(e->commit.must_sets);
	kvfree(e->commit.lazy_sets);
	kvfree(e->commit.open_sets);
	kvfree(e->evict.grace.sets);
	kvfree(e->writebacks.dirty_sets);
	kvfree(e->trim.sets);
	vfree(e);
}

void *hybrid_engine_context(struct hybrid_engine *e)
{
	return e->context;
}

bool hybrid_engine_failed(struct hybrid_engine *e)
{
	return READ_ONCE(e->life.failed);
}

bool hybrid_engine_inconsistent(struct hybrid_engine *e)
{
	return READ_ONCE(e->life.inconsistent);
}

/* ---- events -------------------------------------------------------------- */

/* Routes an I/O again.  If it waited for a job and took none, the next one that waits may. */
static void go_on(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->wait == WAIT_JOB ? io->volume : NULL;

	hybrid_io_again(e, io, acts);
	if (v)
		hybrid_job_ended(e, v, FILLS, acts);
}

static void go_on_all(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_op *op;

	while ((op = list_first_entry_or_null(&acts->again, struct hybrid_op, link))) {
		list_del_init(&op->link);
		go_on(e, container_of(op, struct hybrid_io, op), acts);
	}
}

/*
 * The end of each event: carries out the requests that files left for files above them.  I/O goes
 * first, so that the requests of all I/O are carried out together.
 */
void hybrid_engine_settle(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	u32 wanted;

	while (acts->wanted || !list_empty(&acts->again)) {
		go_on_all(e, acts);
		wanted = acts->wanted;
		acts->wanted = 0;
		if (wanted & WANT_STALLED)
			hybrid_stall_wake(e, acts);
		if (wanted & (WANT_COMMIT | WANT_OPENS | WANT_LAZY))
			hybrid_commit_kick(e, wanted, acts);
		if (wanted & WANT_WRITEBACK)
			hybrid_writeback_kick(e, acts->writeback, acts);
	}
}

enum hybrid_map_result hybrid_engine_miss(struct hybrid_engine *e, struct hybrid_io *io,
					  struct hybrid_actions *acts)
{
	enum hybrid_map_result r = hybrid_io_miss(e, io, acts);

	hybrid_engine_settle(e, acts);
	return r;
}

bool hybrid_engine_io_done(struct hybrid_engine *e, struct hybrid_io *io, int error,
			   struct hybrid_actions *acts)
{
	bool ended;

	if (!error && hybrid_engine_hit_done(e, io))
		return true;
	ended = hybrid_io_ended(e, io, error, acts);
	hybrid_engine_settle(e, acts);
	return ended;
}

void hybrid_engine_op_done(struct hybrid_engine *e, struct hybrid_op *op,
			   struct hybrid_actions *acts)
{
	op->done(e, op, acts);
	hybrid_engine_settle(e, acts);
}

void hybrid_engine_op_copied(struct hybrid_engine *e, struct hybrid_op *op,
			     struct hybrid_actions *acts)
{
	op->copied(e, op, acts);
	hybrid_engine_settle(e, acts);
}

void hybrid_volume_release_sb(struct hybrid_engine *e, struct hybrid_volume *v,
			      struct hybrid_actions *acts)
{
	hybrid_sb_release(e, v, acts);
	hybrid_engine_settle(e, acts);
}

/* ---- time ---------------------------------------------------------------- */

static void watermark_tick(struct hybrid_engine *e)
{
	u64 dirty = (u64)atomic_read(&e->writebacks.nr_dirty) * 100, blocks = e->g->nr_blocks;

	put_state(e, HYBRID_STATE_OVER_WATERMARK,
		  dirty > blocks * READ_ONCE(e->config.high_watermark),
		  dirty <= blocks * READ_ONCE(e->config.low_watermark));
}

bool hybrid_engine_tick(struct hybrid_engine *e, u64 now_ms, struct hybrid_actions *acts)
{
	u64 passed;

	if (!is_loaded(e))
		return false;
	passed = e->now ? now_ms - e->now : 0;
	e->now = now_ms;
	hybrid_reclaim(e, acts);
	hybrid_writeback_tick(e, passed, acts);
	hybrid_stall_tick(e, acts);
	hybrid_engine_settle(e, acts);
	hybrid_stall_tick_flush(e, acts);
	hybrid_trim_tick(e, passed, acts);
	hybrid_readahead_tick(e);
	watermark_tick(e);
	hybrid_wear_tick(e, passed);
	hybrid_invalidate_tick(e, passed);
	hybrid_jobs_tick(e, acts);
	if (!READ_ONCE(e->life.failed) &&
	    now_ms - e->commit.last_interval >= READ_ONCE(e->config.commit_interval)) {
		e->commit.last_interval = now_ms;
		hybrid_lazy_interval(e, acts);
	}
	hybrid_engine_settle(e, acts);
	return hybrid_unrecorded_left(e) || atomic_read(&e->writebacks.nr_dirty) ||
	       READ_ONCE(e->evict.grace.wanted) || READ_ONCE(e->jobs.nr_busy) ||
	       hybrid_jobs_spare(e) || READ_ONCE(e->jobs.nr_waiters) || hybrid_trim_wanted(e) ||
	       READ_ONCE(e->wear.endurance) != ENDURANCE_PLENTY;
}

void hybrid_engine_checkpoint(struct hybrid_engine *e, struct hybrid_waiter *w,
			      struct hybrid_actions *acts)
{
	unsigned long flags;
	bool failed;

	spin_lock_irqsave(&e->lock, flags);
	failed = READ_ONCE(e->life.failed) || !is_loaded(e);
	if (!failed) {
		list_add_tail(&w->link, &e->cp.waiters);
		e->cp.wanted = true;
		e->cp.lazy_due = true;
		e->commit.lazy_wanted = true;
		hybrid_meta_kick_locked(e, acts);
	}
	spin_unlock_irqrestore(&e->lock, flags);
	if (failed) {
		w->error = -EIO;
		w->op.type = HYBRID_OP_WAKE;
		w->op.waiter = w;
		act(acts, &w->op);
	}
}

void hybrid_engine_fail(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	hybrid_metadata_failed(e, acts);
	hybrid_engine_settle(e, acts);
}

/*
 * Each call starts the next step: jobs end by themselves; then origins are flushed and everything
 * is recorded; then the clean checkpoint is written.
 */
static bool stop_next(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_volume *v;
	unsigned long flags;
	bool busy, ended;

	spin_lock_irqsave(&e->lock, flags);
	if (is_loaded(e))
		WRITE_ONCE(e->life.state, POOL_STOPPING);
	WRITE_ONCE(e->writebacks.drain_asked, false);
	drain_set(&e->writebacks.drain, READ_ONCE(e->wear.failing), 0);
	spin_unlock_irqrestore(&e->lock, flags);
	hybrid_readahead_drop(e, NULL, READAHEAD_SUSPENDED);
	hybrid_reclaim(e, acts);
	spin_lock_irqsave(&e->lock, flags);
	busy = e->jobs.nr_busy || READ_ONCE(e->meta.state) != META_IDLE ||
	       e->writebacks.queued || e->stall.queued || e->trim.busy || e->intents.busy;
	list_for_each_entry(v, &e->volumes.open, open_link)
		busy |= v->flush.busy || v->sb.busy;
	ended = !busy && (READ_ONCE(e->life.failed) || !is_loaded(e) ||
			  (e->cp.is_clean && e->cp.clean));
	/* From here on no checkpoint begins. */
	if (ended)
		WRITE_ONCE(e->life.state, POOL_STOPPED);
	spin_unlock_irqrestore(&e->lock, flags);
	if (busy || ended)
		return ended;
	if (hybrid_unrecorded_left(e) && !e->life.stop_tried) {
		e->life.stop_tried = true;
		hybrid_lazy_interval(e, acts);
		return false;
	}
	spin_lock_irqsave(&e->lock, flags);
	e->life.stop_tried = false;
	e->cp.clean = true;
	e->cp.wanted = true;
	e->cp.lazy_due |= e->commit.lazy_wanted;
	hybrid_meta_kick_locked(e, acts);
	spin_unlock_irqrestore(&e->lock, flags);
	return false;
}

bool hybrid_engine_stop(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	bool ended = stop_next(e, acts);

	hybrid_engine_settle(e, acts);
	return ended;
}

/* ---- settings, reports --------------------------------------------------- */

int hybrid_engine_configure(struct hybrid_engine *e, const struct hybrid_config *config)
{
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	e->config.writeback_rate = config->writeback_rate;
	WRITE_ONCE(e->config.trim_rate, config->trim_rate);
	/* These are read without the lock. */
	WRITE_ONCE(e->config.high_watermark, config->high_watermark);
	WRITE_ONCE(e->config.low_watermark, config->low_watermark);
	WRITE_ONCE(e->config.commit_interval, config->commit_interval);
	WRITE_ONCE(e->config.metadata_share, config->metadata_share);
	hybrid_wear_configure(e, config);
	spin_unlock_irqrestore(&e->lock, flags);
	return 0;
}

int hybrid_engine_set_policy(struct hybrid_engine *e, const struct hybrid_policy_type *policy)
{
	void *old;
	int r = hybrid_map_set_policy(&e->map, policy, &old);

	if (r)
		return r;
	/* A hit that began before may still be noted in the old state. */
	e->ops->wait_hits(e);
	vfree(old);
	return 0;
}

void hybrid_engine_policy_name(struct hybrid_engine *e, char name[HYBRID_POLICY_NAME_SIZE])
{
	struct hybrid_set *s = &e->map.set[0];
	unsigned long flags;

	spin_lock_irqsave(&s->lock, flags);
	/* A set's policy is not freed before the set has another one. */
	strscpy(name, s->policy->type->name, HYBRID_POLICY_NAME_SIZE);
	spin_unlock_irqrestore(&s->lock, flags);
}

const struct hybrid_config *hybrid_engine_config(struct hybrid_engine *e)
{
	return &e->config;
}

/* Number of blocks that are dirty in RAM, or on record if that is larger. */
static u32 dirty_in_all(const struct hybrid_engine *e)
{
	return max(atomic_read(&e->writebacks.nr_dirty), atomic_read(&e->writebacks.nr_jdirty));
}

/* Sectors in dirty granules of all volumes, open or not. */
static u64 dirty_sectors_in_all(struct hybrid_engine *e)
{
	const struct hybrid_volume *v;
	unsigned long flags;
	u64 sectors = 0;
	u32 id;

	spin_lock_irqsave(&e->lock, flags);
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		v = volume_of(e, id);
		if (v)
			sectors += dirty_sectors(e, v);
	}
	spin_unlock_irqrestore(&e->lock, flags);
	return sectors;
}

void hybrid_engine_status(struct hybrid_engine *e, struct hybrid_pool_status *st)
{
	u32 set;

	memset(st, 0, sizeof(*st));
	st->failed = READ_ONCE(e->life.failed);
	st->dirty = dirty_in_all(e);
	st->dirty_sectors = dirty_sectors_in_all(e);
	hybrid_wear_status(e, st);
	st->drain_on = READ_ONCE(e->writebacks.drain_asked) && !st->failing;
	st->draining = READ_ONCE(e->writebacks.drain.on) && st->dirty;
	st->block_sectors = e->g->block_sectors;
	st->granule_sectors = e->g->granule_sectors;
	st->blocks = e->g->nr_blocks;
	for (set = 0; set < e->map.nr_sets; set++) {
		const struct hybrid_set *s = &e->map.set[set];

		st->used += READ_ONCE(s->nr_mapped);
		st->free += READ_ONCE(s->nr_free);
		st->open_regions += hweight64(READ_ONCE(s->regions.jopen));
		st->metadata += READ_ONCE(s->kept.nr);
	}
	st->volumes = e->volumes.nr_open;
	st->ram = e->stats.ram + READ_ONCE(e->map.ram) + READ_ONCE(e->map.policy_ram);
	st->journal_used = e->journal.head - e->journal.tail;
	st->journal_blocks = e->g->journal_blocks;
	st->journal_writes = READ_ONCE(e->stats.journal_writes);
	st->journal_records = READ_ONCE(e->stats.journal_records);
	st->checkpoints = READ_ONCE(e->stats.checkpoints);
	st->intent_writes = READ_ONCE(e->stats.intent_writes);
	st->metadata_writes = READ_ONCE(e->stats.metadata_writes) + st->intent_writes;
	st->cache_flushes = READ_ONCE(e->stats.cache_flushes);
	st->evictions = atomic64_read(&e->stats.evictions);
	st->read_errors = atomic64_read(&e->stats.errors[CACHE_READ_ERRORS]);
	st->write_errors = atomic64_read(&e->stats.errors[CACHE_WRITE_ERRORS]);
	st->flush_errors = atomic64_read(&e->stats.errors[CACHE_FLUSH_ERRORS]);
	st->trimmed = READ_ONCE(e->stats.trimmed);
	st->retired = READ_ONCE(e->places.nr_retired);
}

u32 hybrid_engine_state(const struct hybrid_engine *e)
{
	return READ_ONCE(e->life.flags) |
	       (READ_ONCE(e->wear.failing) ? HYBRID_STATE_FAILING : 0) |
	       (READ_ONCE(e->life.failed) ? HYBRID_STATE_FAILED : 0) |
	       (READ_ONCE(e->writebacks.drain.on) && !dirty_in_all(e) ? HYBRID_STATE_DRAINED : 0);
}

/* ---- for the simulator --------------------------------------------------- */

/* Checks the conditions that write_hit() relies on: of dirty granules ... */
static const char *check_dirty(struct hybrid_engine *e, struct hybrid_set *s, u32 i)
{
	u64 left = block_mask(e, s, MASK_DIRTY, i) & ~block_mask(e, s, MASK_JDIRTY, i);

	if (left && !(s->regions.must & region_bit(i)))
		return "what is dirty is neither recorded nor listed";
	if ((left & block_mask(e, s, MASK_JVALID, i)) && !(s->regions.dopen & region_bit(i)))
		return "what is dirty is clean on record, and its region not open";
	return NULL;
}

/* ... of writes in flight ... */
static const char *check_writes(struct hybrid_engine *e, struct hybrid_set *s)
{
	struct hybrid_io *w;
	u64 dirty;
	int i;

	hlist_for_each_entry(w, &s->inflight, write.inflight) {
		i = hybrid_set_find(&e->map, s, w->key);
		dirty = i < 0 ? 0 : block_mask(e, s, MASK_DIRTY, i);
		if (w->to_origin & dirty)
			return "a write to the origin is under way beside what is dirty";
		if (w->state == IO_REWRITE && (w->mask & ~dirty))
			return "what is being written again is dirty no more";
		if (w->write.overwritten && i < 0)
			return "a write replaces what the cache has not";
	}
	return NULL;
}

/* ... and of origins. */
static const char *check_volumes(struct hybrid_engine *e)
{
	struct hybrid_volume *v;

	list_for_each_entry(v, &e->volumes.open, open_link)
		if (v->sb.present && v->sb.state == SB_CLEAN && atomic_read(&v->blocks.dirty))
			return "a volume has dirty blocks, and its origin is marked clean";
	return NULL;
}

/* A granule is weighted by its volume's id, because each volume has its own count. */
struct dirty_sums {
	u32 blocks, recorded;
	u64 granules, ended;	/* times 1 + the volume's number */
};

static void sum_dirty(struct hybrid_engine *e, struct hybrid_set *s, u32 i,
		      struct dirty_sums *sums)
{
	u64 dirty = block_mask(e, s, MASK_DIRTY, i), jdirty = block_mask(e, s, MASK_JDIRTY, i);

	sums->blocks += !!dirty;
	sums->recorded += !!jdirty;
	if (dirty | jdirty)
		sums->granules += (u64)hweight64(dirty | jdirty) *
				  (1 + hybrid_key_volume(s->key[i]));
	if (jdirty && !dirty)
		sums->ended += 1 + hybrid_key_volume(s->key[i]);
}

static const char *check_sums(struct hybrid_engine *e, const struct dirty_sums *sums)
{
	const struct hybrid_volume *v;
	u64 granules = 0, ended = 0;
	u32 id;

	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		v = volume_of(e, id);
		if (!v)
			continue;
		granules += (u64)atomic64_read(&v->blocks.granules) * (1 + id);
		ended += (u64)atomic_read(&v->blocks.ended) * (1 + id);
	}
	if (sums->blocks != (u32)atomic_read(&e->writebacks.nr_dirty) ||
	    sums->recorded != (u32)atomic_read(&e->writebacks.nr_jdirty) || sums->ended != ended)
		return "the count of dirty blocks is wrong";
	return sums->granules == granules ? NULL : "a count of dirty granules is wrong";
}

static const char *check_set(struct hybrid_engine *e, u32 set, struct dirty_sums *sums)
{
	struct hybrid_set *s = &e->map.set[set];
	const char *why = hybrid_set_check(&e->map, set);
	u32 i, before = sums->blocks;

	for (i = 0; !why && i < e->map.set_size; i++) {
		why = check_dirty(e, s, i);
		sum_dirty(e, s, i, sums);
	}
	if (!why)
		why = check_writes(e, s);
	if (!why)
		why = hybrid_readahead_check(e, s);
	if (!why && sums->blocks > before && !test_bit(set, e->writebacks.dirty_sets))
		return "no sweep finds a set's dirty blocks";
	return why;
}

const char *hybrid_engine_check(struct hybrid_engine *e)
{
	struct dirty_sums sums = {};
	u32 set;

	for (set = 0; set < e->map.nr_sets; set++) {
		const char *why = check_set(e, set, &sums);

		if (why)
			return why;
	}
	return check_sums(e, &sums) ?: check_volumes(e) ?: hybrid_places_check(e) ?:
	       hybrid_intents_check(e);
}

void hybrid_engine_evict(struct hybrid_engine *e, struct hybrid_volume *v, oblock_t b,
			 struct hybrid_actions *acts)
{
	u64 key = hybrid_key(v->id, b);
	u32 set = hybrid_map_set_of(&e->map, key);
	struct hybrid_set *s = &e->map.set[set];
	unsigned long flags;
	bool dirty = false;
	int i;

	spin_lock_irqsave(&s->lock, flags);
	i = hybrid_set_find(&e->map, s, key);
	if (i >= 0 && (s->flags[i] & BLOCK_MAPPED)) {
		dirty = block_mask(e, s, MASK_DIRTY, i);
		if (!dirty)
			hybrid_evict_block(e, set, i);
	}
	spin_unlock_irqrestore(&s->lock, flags);
	if (dirty)
		hybrid_writeback_window(e, key, acts);
	want(acts, WANT_COMMIT);
	hybrid_engine_settle(e, acts);
}
