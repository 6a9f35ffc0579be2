// SPDX-License-Identifier: GPL-2.0-only
/* Which way each user I/O goes that is no hit (engine-hit.c), and what its end means. */
#include "engine-internal.h"

/* What a route came to. */
enum route {
	ROUTE_REMAP,	/* io->op is ready */
	ROUTE_TAKEN,	/* somebody has it */
};

static bool finish_write(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
			 int error_origin, struct hybrid_actions *acts);

/* The granules that an I/O covers whole. */
static void note_whole(struct hybrid_engine *e, struct hybrid_io *io)
{
	const struct hybrid_geometry *g = e->g;
	u32 start = io->sector & (g->block_sectors - 1), end = start + io->count;
	u32 from = (start + g->granule_sectors - 1) >> g->granule_shift;
	u32 to = end >> g->granule_shift;

	/* The last granule of an origin in place may be cut off. */
	if (io->sector + io->count == io->volume->info.data_sectors)
		to = ((end - 1) >> g->granule_shift) + 1;
	io->full = to > from ? GENMASK_ULL(to - 1, from) : 0;
}

/* What hybrid_io_init() and hybrid_engine_hit() leave to who takes the long way. */
static void begin(struct hybrid_io *io)
{
	io->state = IO_NEW;
	io->wait = WAIT_NONE;
	io->commit = false;
	io->again = false;
	io->counted = false;
	io->fetch = false;
	io->redirected = false;
	io->over = 0;
	io->room_since = 0;
	io->idx = -1;
	io->job = NULL;
	io->to_cache = 0;
	io->to_origin = 0;
	io->cursor = 0;
	INIT_LIST_HEAD(&io->link);
	INIT_LIST_HEAD(&io->wait_link);
	INIT_LIST_HEAD(&io->op.link);
}

static enum route wait_routed(struct hybrid_set *s, struct hybrid_io *io, enum io_wait why)
{
	wait_in_set(s, io, why);
	return ROUTE_TAKEN;
}

/* ---- admission ------------------------------------------------------------ */

static void bypass(struct hybrid_io *io, enum hybrid_counter why)
{
	io->bypass = why;
	count(io->volume, why);
}

/* Has the set blocks that nothing needs to leave for? */
static bool set_fills(const struct hybrid_engine *e, const struct hybrid_set *s)
{
	return s->nr_free > e->reserve;
}

enum admission {
	REFUSED,
	WHILE_FILLING,	/* a long run: what it could push out is not there yet */
	IN_PLACE,	/* ... of what the run itself brought */
	ADMITTED,
	SINGLE,		/* ... and goes on no run */
};

/* May this miss enter the cache?  IN_PLACE: another block left.  Counts the reason if not. */
static enum admission admission(struct hybrid_engine *e, struct hybrid_set *s,
				struct hybrid_io *io, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	u64 cutoff = READ_ONCE(v->cutoff), from;
	u64 run = cutoff ? stream_run(v, io, &from) : 0;

	if (!s->policy->type->admit) {
		bypass(io, HYBRID_BYPASS_POLICY);
		return REFUSED;
	}
	if (run <= cutoff)
		return run == io->count ? SINGLE : ADMITTED;
	if (set_fills(e, s) || can_spare(e, s))
		return WHILE_FILLING;
	if (io->type == HYBRID_IO_READ && stream_spreads(e, s, io, from, run, acts))
		return IN_PLACE;
	bypass(io, HYBRID_BYPASS_SEQUENTIAL);
	return REFUSED;
}

/* ---- reads --------------------------------------------------------------- */

static enum route read_cache(struct hybrid_engine *e, struct hybrid_io *io, int i)
{
	io->idx = i;
	io->state = IO_READ_CACHE;
	user_op(io, false, io_cache_sector(e, io, i), false);
	return ROUTE_REMAP;
}

static enum route read_origin(struct hybrid_io *io)
{
	io_read_origin(io);
	return ROUTE_REMAP;
}

/* Some granules are dirty, others are not valid: read each where it is. */
static enum route read_mixed(struct hybrid_engine *e, struct hybrid_io *io, int i, u64 dirty,
			     struct hybrid_actions *acts)
{
	struct hybrid_job *job;

	if (!job_get_staged(e, io, true, &job))
		return ROUTE_TAKEN;
	io->idx = i;
	io->to_cache = io->mask & dirty;
	io->to_origin = io->mask & ~dirty;
	io->phase = epoch_enter(e);
	io->state = IO_READ_CACHE;
	staged_start(e, job, io, NULL, acts);
	return ROUTE_TAKEN;
}

/*
 * Is a block that is read worth what it costs the cache device?  Always while the
 * set fills, and if it is metadata; else, where the budget is short, if it was asked
 * for not long ago.
 */
static bool worth_its_wear(struct hybrid_engine *e, struct hybrid_set *s,
			   const struct hybrid_io *io)
{
	struct hybrid_policy_states *p = s->policy;
	u8 endurance = READ_ONCE(e->wear.endurance);
	bool again;

	if (endurance == ENDURANCE_PLENTY || set_fills(e, s) || (io->flags & HYBRID_IO_META))
		return true;
	again = p->type->again && p->type->again(set_policy_state(&e->map, p, s),
						 hybrid_key_print(io->key));
	return again && endurance == ENDURANCE_SHORT;
}

/* A free block becomes @key's.  Caller has seen that there is one. */
static int take_block(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
		      u64 key)
{
	int i = hybrid_set_alloc(&e->map, s, key);

	/* Nothing of it was written: settled. */
	s->stamp[i] = (u32)READ_ONCE(v->flush.flushed);
	hold_forget(e, s, key, e->map.granules, HOLD_CACHED);
	atomic_inc(&v->nr_cached);
	hybrid_set_note_insert(&e->map, s, i);
	return i;
}

/* Is there a free block for a read miss?  Half of the reserve is for writes. */
static bool room_to_fill(struct hybrid_engine *e, struct hybrid_set *s,
			 const struct hybrid_io *io, struct hybrid_actions *acts)
{
	if (s->nr_free <= e->reserve / 2)
		evict(e, io, acts);
	return s->nr_free > e->reserve / 2;
}

/* ---- what was not asked for ------------------------------------------------ */

/* Would a miss now do without, if no hit had come?  Caller holds a set's lock. */
static bool rest_is_owed(struct hybrid_volume *v)
{
	return READ_ONCE(this_cpu_ptr(v->counters)->rest_debt) + REST_COST > REST_MOST;
}

/* May a miss bring more than it needs?  Caller holds a set's lock. */
static bool rest_is_paid(struct hybrid_volume *v)
{
	struct hybrid_counters *c = this_cpu_ptr(v->counters);
	u64 hits = READ_ONCE(c->c[HYBRID_READ_HITS]);
	u64 brings = min_t(u64, hits - c->hits_paid, REST_MOST) * REST_HIT + 1;
	/* Read once: all may become zero meanwhile, and this must not fall below it. */
	u32 debt = READ_ONCE(c->rest_debt);

	c->hits_paid = hits;
	WRITE_ONCE(c->rest_debt, debt - min_t(u64, debt, brings));
	if (rest_is_owed(v))
		return false;
	c->rest_debt += REST_COST;
	return true;
}

static void ahead_earns(struct hybrid_engine *e, u64 key, int credit)
{
	atomic_t *ahead = ahead_credit(e, key);

	if (atomic_read(ahead) < AHEAD_MOST)
		atomic_add(credit, ahead);
}

/* Hits on this CPU that pay for a fill ahead.  Caller holds a set's lock. */
static u32 ahead_hits(struct hybrid_volume *v)
{
	struct hybrid_counters *c = this_cpu_ptr(v->counters);
	u64 all = READ_ONCE(c->c[HYBRID_READ_HITS]), hits = all - READ_ONCE(c->hits_spent);

	if (hits > AHEAD_HITS) {
		hits = AHEAD_HITS;
		WRITE_ONCE(c->hits_spent, all - hits);
	}
	return hits;
}

/* How many blocks may be filled ahead beside @key?  @alone: of whose window nothing is there. */
static u32 ahead_most(struct hybrid_engine *e, struct hybrid_set *s, u64 key, bool alone)
{
	u32 most = alone ? 0 : max(atomic_read(ahead_credit(e, key)), 0) / AHEAD_COST;

	return most + (set_fills(e, s) ? ahead_hits(key_volume(e, key)) : 0);
}

static void ahead_costs(struct hybrid_engine *e, u64 key)
{
	struct hybrid_volume *v = key_volume(e, key);
	atomic_t *ahead = ahead_credit(e, key);

	if (atomic_read(ahead) >= AHEAD_COST)
		atomic_sub(AHEAD_COST, ahead);
	else if (ahead_hits(v))
		this_cpu_inc(v->counters->hits_spent);
}

/*
 * The first read of a block that was filled ahead: what would have been a miss, to
 * a run and to the policy.
 */
static void ahead_used(struct hybrid_engine *e, struct hybrid_set *s,
		       const struct hybrid_io *io, u32 i)
{
	hybrid_set_flags(s, i, 0, BLOCK_AHEAD);
	ahead_earns(e, io->key, AHEAD_USED);
	stream_run(io->volume, io, NULL);
}

/*
 * What to fill around @key, whose block is missed: with it what is missing next to
 * it in its window, without a gap, if something else of the window is there or the
 * set has free blocks.
 */
static void ahead_range(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_volume *v,
			u64 key, u64 *from, u64 *to)
{
	u64 blocks = 1ULL << e->g->window_shift, first = key & ~(blocks - 1), end = first + blocks;
	u32 most;

	*from = key;
	*to = key + 1;
	if (READ_ONCE(e->wear.endurance) != ENDURANCE_PLENTY)
		return;
	while (*from > first && block_missing(e, s, v, *from - 1))
		--*from;
	while (*to < end && block_missing(e, s, v, *to))
		++*to;
	most = ahead_most(e, s, key, *to - *from == blocks);
	*to = min(*to, key + 1 + most);
	*from = max(*from + most, *to - 1) - most;
}

/* Add to a fill, on credit, what is missing from @from to @to: the disk is there now. */
static void fill_ahead(struct hybrid_engine *e, struct hybrid_set *s, const struct hybrid_io *io,
		       struct hybrid_job *job, u64 from, u64 to, enum admission admitted,
		       struct hybrid_actions *acts)
{
	u64 key;
	int i;

	for (key = from; key < to; key++) {
		if (key == io->key)
			continue;
		if ((admitted == WHILE_FILLING && !set_fills(e, s)) ||
		    !room_to_fill(e, s, io, acts))
			return;
		ahead_costs(e, key);
		i = take_block(e, s, io->volume, key);
		hybrid_set_flags(s, i, BLOCK_AHEAD, 0);
		fill_add(e, s, job, key, i, e->map.granules);
	}
}

/* A miss: fill the block, or what is asked for of it, if that can be; or go to the origin. */
static enum route read_miss(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			    int i, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	enum admission admitted;
	u64 from, to, mask = e->map.granules;
	struct hybrid_job *job;

	if (READ_ONCE(v->mode) == HYBRID_MODE_PASSTHROUGH) {
		bypass(io, HYBRID_BYPASS_MODE);
		return read_origin(io);
	}
	if (i < 0 && hold_serve(e, s, io, acts)) {
		stream_run(v, io, NULL);
		bypass(io, HYBRID_BYPASS_SEQUENTIAL);
		return ROUTE_TAKEN;
	}
	admitted = admission(e, s, io, acts);
	if (admitted == REFUSED)
		return read_origin(io);
	if (fill_conflicts(e, s, v, io->key, i, e->map.granules)) {
		bypass(io, HYBRID_BYPASS_BUSY);
		return read_origin(io);
	}
	if (i < 0 && !worth_its_wear(e, s, io)) {
		bypass(io, HYBRID_BYPASS_ENDURANCE);
		return read_origin(io);
	}
	if (i < 0 && !room_to_fill(e, s, io, acts)) {
		bypass(io, HYBRID_BYPASS_FULL);
		return read_origin(io);
	}
	ahead_earns(e, io->key, 1);
	from = io->key;
	to = from + 1;
	if (admitted != IN_PLACE)
		ahead_range(e, s, v, io->key, &from, &to);
	if (admitted == SINGLE && i < 0 && (to - from > 1 || io->mask != mask) &&
	    !rest_is_paid(v)) {
		from = io->key;
		to = from + 1;
		mask = io->mask;
	}
	job = to - from > 1 ? fill_get(e, JOB_AHEAD, v, from) : NULL;
	if (!job) {
		if (to - from > 1 && READ_ONCE(e->runs.nr_holds))
			WRITE_ONCE(e->runs.unwanted, true);
		from = to;
		job = fill_get(e, JOB_FILL, v, io->key);
	}
	if (!job) {
		bypass(io, HYBRID_BYPASS_BUSY);
		return read_origin(io);
	}
	if (i < 0) {
		i = take_block(e, s, v, io->key);
		if (io->flags & HYBRID_IO_META)
			metadata_read(e, s, i);
	}
	/* First: room that is made for others must not be this one's. */
	fill_add(e, s, job, io->key, i, mask);
	fill_ahead(e, s, io, job, from, to, admitted, acts);
	fill_start(e, job, io, acts);
	if (s->nr_free < e->reserve)
		evict(e, io, acts);
	return ROUTE_TAKEN;
}

/*
 * Granules of @key that writes in flight replace in the cache.  Who reads them
 * meanwhile gets what was there or what comes, as from any device; they are not
 * valid, for the write may fail.
 */
static u64 overwritten(const struct hybrid_set *s, u64 key)
{
	struct hybrid_io *w;
	u64 over = 0;

	hlist_for_each_entry(w, &s->inflight, inflight)
		if (w->key == key)
			over |= w->over;
	return over;
}

static enum route route_read(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			     struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	int i = hybrid_set_find(&e->map, s, io->key);
	u64 valid = 0, dirty = 0, replaced = 0;
	bool first;

	if (i >= 0 && (s->flags[i] & BLOCK_REMOVED) && !resurrect(e, io->set, i, acts)) {
		count(v, HYBRID_READ_MISSES);
		bypass(io, HYBRID_BYPASS_BUSY);
		return read_origin(io);
	}
	if (i >= 0) {
		valid = block_mask(e, s, MASK_VALID, i);
		dirty = block_mask(e, s, MASK_DIRTY, i);
	}
	first = i >= 0 && (s->flags[i] & (BLOCK_AHEAD | BLOCK_KEPT)) == BLOCK_AHEAD;
	if (first)
		ahead_used(e, s, io, i);
	else if (i >= 0 && (s->flags[i] & BLOCK_AHEAD))
		hybrid_set_flags(s, i, 0, BLOCK_AHEAD);
	if (i >= 0 && (io->flags & HYBRID_IO_META))
		metadata_read(e, s, i);
	if ((io->mask & ~valid) && !io->redirected)
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
	}
	if (io->mask & dirty)
		return read_mixed(e, io, i, dirty, acts);
	if (i >= 0 && (s->flags[i] & BLOCK_BUSY)) {
		struct hybrid_job *job = job_find(e, s, io->key);

		/* Where a run must be known as one, also one whose reads come many at once. */
		if (rest_is_owed(v))
			stream_run(v, io, NULL);
		if (job && is_fill(job) && fill_join(e, job, io, acts))
			return ROUTE_TAKEN;
		bypass(io, HYBRID_BYPASS_BUSY);
		return read_origin(io);
	}
	return read_miss(e, s, io, i, acts);
}

/* ---- writes -------------------------------------------------------------- */

/*
 * Overlapping writes may be in flight together only where they all go to the
 * same one device (J6); the device decides their order then.
 */
static bool write_conflicts(const struct hybrid_set *s, const struct hybrid_io *io)
{
	struct hybrid_io *w;

	hlist_for_each_entry(w, &s->inflight, inflight) {
		u64 both = w->mask & io->mask;

		if (w->key != io->key || !both)
			continue;
		if ((w->to_cache | io->to_cache) & (w->to_origin | io->to_origin) & both)
			return true;
	}
	return false;
}

/* Where each granule of a write goes, for the volume's mode. */
static void split_write(struct hybrid_engine *e, struct hybrid_io *io, bool cached, u64 valid,
			u64 dirty)
{
	u32 mode = write_mode(e, io->volume);
	u64 d = dirty & io->mask;
	/* J11: parts of granules that are not valid, where fetch_rest() could not help. */
	u64 partial = io->mask & ~io->full & ~valid & ~d;

	if (mode == HYBRID_MODE_WRITEBACK && !dirty && room_used_up(io->volume))
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

/* Should a write to a block that is not cached make it so? */
static bool write_allocates(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			    struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	u32 mode = write_mode(e, v);

	if (mode == HYBRID_MODE_WRITEAROUND || mode == HYBRID_MODE_PASSTHROUGH) {
		bypass(io, HYBRID_BYPASS_MODE);
		return false;
	}
	if (!io->full && mode != HYBRID_MODE_WRITEBACK) {
		bypass(io, HYBRID_BYPASS_PARTIAL);
		return false;
	}
	return admission(e, s, io, acts) != REFUSED;
}

/* Is there a free block for a write?  Keeps the reserve before it is needed. */
static bool room_to_write(struct hybrid_engine *e, struct hybrid_set *s,
			  const struct hybrid_io *io, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;

	if (write_mode(e, v) == HYBRID_MODE_WRITEBACK && room_used_up(v)) {
		want(acts, WANT_WRITEBACK);
		return false;
	}
	if (s->nr_free <= e->reserve)
		evict(e, io, acts);
	return s->nr_free;
}

/*
 * Before a write of @parts of granules that are not valid, what surrounds them is
 * read (J11), and the rest of the block with it: the disk reads in place of writing,
 * and where writes go on unaligned the next ones hit.  False: not now, so the parts
 * go to the origin.
 */
static bool fetch_rest(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
		       int i, u64 parts, struct hybrid_actions *acts)
{
	u64 mask = e->map.granules;
	struct hybrid_job *job;

	if (write_in_flight(s, io->key, mask) || !worth_its_wear(e, s, io))
		mask = parts;
	/* What lies between the parts is read, too, and reads of it are served. */
	if ((i < 0 && !s->nr_free) ||
	    fill_conflicts(e, s, io->volume, io->key, i, mask | io->mask))
		return false;
	job = fill_get(e, JOB_FILL, io->volume, io->key);
	if (!job)
		return false;
	if (i < 0)
		i = take_block(e, s, io->volume, io->key);
	fill_add(e, s, job, io->key, i, mask);
	fill_start(e, job, io, acts);
	return true;
}

/*
 * Must this write wait for the record of what ended granules of the block?  If it goes to
 * the origin, or replaces what was replaced there; and in a drain, if it would make dirty
 * again what was written back, which would go on for ever where writes do.
 */
static bool needs_record(const struct hybrid_engine *e, const struct hybrid_set *s,
			 const struct hybrid_io *io, int i)
{
	u64 ended = replaced_granules(e, s, i);

	if (drains(e, io->volume))
		ended |= block_mask(e, s, MASK_JDIRTY, i) & ~block_mask(e, s, MASK_DIRTY, i);
	return io->to_origin || (ended & io->mask);
}

/*
 * Something that this write must wait for?  Caller has set to_cache and
 * to_origin.
 */
static bool write_waits(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			int i, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	u64 jclean;

	if (write_conflicts(s, io)) {
		wait_in_set(s, io, WAIT_OVERLAP);
		return true;
	}
	if (i < 0)
		return false;
	/* Until the record is durable, what it drops counts as clean (J4). */
	if (s->dropping & region_bit(i)) {
		wait_in_set(s, io, WAIT_RECORD);
		return true;
	}
	/* Nothing can make a write durable under a record that will never end. */
	if ((io->flags & HYBRID_IO_FUA) && READ_ONCE(v->flush.error) &&
	    (io->to_origin & block_mask(e, s, MASK_JDIRTY, i))) {
		complete_io(io, READ_ONCE(v->flush.error), acts);
		return true;
	}
	if (needs_record(e, s, io, i) && !record_first(e, io->set, i, acts)) {
		wait_in_set(s, io, WAIT_RECORD);
		return true;
	}
	jclean = block_mask(e, s, MASK_JVALID, i) & ~block_mask(e, s, MASK_JDIRTY, i);
	if ((jclean & io->mask) && !(s->dopen & region_bit(i))) {
		open_region(e, io->set, i, acts);
		wait_in_set(s, io, WAIT_OPEN);
		return true;
	}
	if ((io->to_cache & ~io->to_origin) && READ_ONCE(v->sb.state) == SB_CLEAN &&
	    v->sb.present) {
		sb_wait(e, v, SB_DIRTY, io, acts);
		return true;
	}
	return false;
}

/* The write goes out: what RAM says of its granules meanwhile. */
static void write_started(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			  int i)
{
	struct hybrid_job *job;
	u64 dirty, jdirty, again, valid;
	bool fua = io->flags & HYBRID_IO_FUA;

	io->idx = i;
	io->state = IO_WRITE;
	hlist_add_head(&io->inflight, &s->inflight);
	hold_forget(e, s, io->key, io->mask, HOLD_WRITTEN);
	if (i < 0)
		return;
	s->recent |= region_bit(i);
	dirty = block_mask(e, s, MASK_DIRTY, i);
	jdirty = block_mask(e, s, MASK_JDIRTY, i);
	/*
	 * Written back, but not yet recorded: dirty again before the record
	 * could go out with this write in flight (J2).
	 */
	valid = block_mask(e, s, MASK_VALID, i);
	again = io->to_cache & jdirty & ~dirty & valid;
	if (again)
		put_dirty(e, s, i, dirty | again);
	io->again = again;
	io->over = io->to_cache & valid;
	hybrid_set_invalidate(&e->map, s, i, io->mask & ~(dirty | again));
	if (set_unrecorded(&e->map, s, i))
		mark_lazy(e, io->set, i);
	if (s->flags[i] & BLOCK_BUSY) {
		job = job_find(e, s, io->key);
		if (job)
			job->touched |= io->mask << ((io->key - job->key) * e->g->granules);
	}
	/* A record must follow, unless the granules are dirty on disk already. */
	io->commit = fua && (io->to_cache & ~io->to_origin & ~(jdirty & valid));
	if (fua && READ_ONCE(e->meta.state) != META_IDLE)
		io->commit |= !!(io->to_cache & ~io->to_origin);
}

static enum route send_write(struct hybrid_engine *e, struct hybrid_io *io,
			     struct hybrid_job *job, struct hybrid_actions *acts)
{
	bool fua = io->flags & HYBRID_IO_FUA;

	if (job) {
		staged_start(e, job, io, finish_write, acts);
		return ROUTE_TAKEN;
	}
	if (!io->to_cache) {
		user_op(io, true, io_origin_sector(io), fua);
		return ROUTE_REMAP;
	}
	cache_wears(e, io->count);
	/* The commit that follows makes the data durable, too. */
	user_op(io, false, io_cache_sector(e, io, io->idx), fua && !io->commit);
	return ROUTE_REMAP;
}

static bool write_needs_copy(const struct hybrid_io *io)
{
	return io->to_cache && io->to_origin;
}

/* The block exists; is a job in the way of the write, or of a fill of those @parts? */
static bool busy_blocks_write(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			      int i, u64 parts)
{
	struct hybrid_job *job;

	if (!(s->flags[i] & BLOCK_BUSY))
		return false;
	job = job_find(e, s, io->key);
	return !job || job->type != JOB_WRITEBACK || job->exclusive || parts ||
	       (io->to_origin && io->to_cache);
}

static enum route route_write(struct hybrid_engine *e, struct hybrid_set *s,
			      struct hybrid_io *io, struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	struct hybrid_job *job = NULL;
	u64 valid = 0, dirty = 0, parts;
	int i = hybrid_set_find(&e->map, s, io->key);
	bool alloc;

	if (i >= 0 && (s->flags[i] & BLOCK_REMOVED) && !resurrect(e, io->set, i, acts))
		return wait_routed(s, io, WAIT_TRANSIT);
	if (i >= 0) {
		/* Written back but not yet recorded counts as dirty, too. */
		valid = block_mask(e, s, MASK_VALID, i);
		dirty = (block_mask(e, s, MASK_DIRTY, i) | block_mask(e, s, MASK_JDIRTY, i)) &
			valid;
	}
	if (!io->counted) {
		io->counted = true;
		count(v, (io->mask & ~valid) ? HYBRID_WRITE_MISSES : HYBRID_WRITE_HITS);
		/* Decided once, however often the write has to wait. */
		io->cursor = i < 0 && write_allocates(e, s, io, acts);
		io->fetch = (i >= 0 || io->cursor) &&
			    write_mode(e, v) == HYBRID_MODE_WRITEBACK;
	}
	alloc = i < 0 && io->cursor && io->bypass != HYBRID_BYPASS_FULL;
	if (alloc && !room_to_write(e, s, io, acts)) {
		if (room_wait(e, s, io))
			return ROUTE_TAKEN;
		bypass(io, HYBRID_BYPASS_FULL);
		io->fetch = false;
		alloc = false;
	}
	split_write(e, io, i >= 0 || alloc, valid, dirty);
	parts = io->fetch ? io->mask & ~io->full & ~valid : 0;
	if (i >= 0 && busy_blocks_write(e, s, io, i, parts))
		return wait_routed(s, io, WAIT_BUSY);
	if (parts) {
		io->fetch = false;
		if (fetch_rest(e, s, io, i, parts, acts))
			return wait_routed(s, io, WAIT_BUSY);
		bypass(io, HYBRID_BYPASS_PARTIAL);
	}
	if (write_waits(e, s, io, i, acts))
		return ROUTE_TAKEN;
	if (i < 0 && (io->to_cache & ~io->to_origin) && v->sb.present &&
	    READ_ONCE(v->sb.state) == SB_CLEAN) {
		sb_wait(e, v, SB_DIRTY, io, acts);
		return ROUTE_TAKEN;
	}
	if (write_needs_copy(io) && !job_get_staged(e, io, dirty & io->mask, &job))
		return ROUTE_TAKEN;
	if (write_needs_copy(io) && !job) {
		/* Others have the jobs: all of it to the origin alone. */
		io->to_cache = 0;
		io->to_origin = io->mask;
		if (write_waits(e, s, io, i, acts))
			return ROUTE_TAKEN;
		bypass(io, HYBRID_BYPASS_BUSY);
	}
	if (i < 0 && io->to_cache)
		i = take_block(e, s, v, io->key);
	else if (i >= 0 && io->to_cache)
		hybrid_set_note_hit(&e->map, s, i);
	if (i >= 0 && (s->flags[i] & BLOCK_AHEAD))
		hybrid_set_flags(s, i, 0, BLOCK_AHEAD);
	write_started(e, s, io, i);
	return send_write(e, io, job, acts);
}

/* ---- a pool that failed -------------------------------------------------- */

static enum route fail_lost(struct hybrid_io *io, struct hybrid_actions *acts)
{
	count(io->volume, HYBRID_CACHE_ERRORS);
	complete_io(io, -EIO, acts);
	return ROUTE_TAKEN;
}

/*
 * P5: dirty granules fail, everything else is the origin's.  A granule that is dirty on
 * record alone can be read there, too; but the record would undo a write, unless
 * lost_collect() finds that such granules are all that is dirty.
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
		return read_origin(io);
	/* J9: first the origin must say that it went on without its cache. */
	if (v->sb.present && READ_ONCE(v->sb.state) != SB_ALONE) {
		sb_wait(e, v, SB_ALONE, io, acts);
		return ROUTE_TAKEN;
	}
	if (i >= 0 && (block_mask(e, s, MASK_JDIRTY, i) & io->mask))
		return fail_lost(io, acts);
	io->to_cache = 0;
	io->to_origin = io->mask;
	/* One that began before the pool failed may go to the cache (J6). */
	if (write_conflicts(s, io))
		return wait_routed(s, io, WAIT_OVERLAP);
	if (i >= 0) {
		hybrid_set_invalidate(&e->map, s, i, io->mask);
		mark_lazy(e, io->set, i);
	}
	io->idx = -1;
	io->state = IO_WRITE;
	hlist_add_head(&io->inflight, &s->inflight);
	hold_forget(e, s, io->key, io->mask, HOLD_WRITTEN);
	user_op(io, true, io_origin_sector(io), io->flags & HYBRID_IO_FUA);
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

	job_prepare(e, FILLS);
	if (io->type == HYBRID_IO_READ)
		job_prepare(e, AHEADS);
	spin_lock_irqsave(&s->lock, flags);
	if (io->type == HYBRID_IO_WRITE && READ_ONCE(v->ranges.nr) && range_wait(v, io))
		r = ROUTE_TAKEN;
	else if (READ_ONCE(e->failed))
		r = route_failed(e, s, io, acts);
	else if (io->type == HYBRID_IO_READ)
		r = route_read(e, s, io, acts);
	else
		r = route_write(e, s, io, acts);
	spin_unlock_irqrestore(&s->lock, flags);
	if (READ_ONCE(e->runs.unwanted)) {
		WRITE_ONCE(e->runs.unwanted, false);
		holds_drop(e, NULL, HOLD_YIELDED);
	}
	return r;
}

void io_again(struct hybrid_engine *e, struct hybrid_io *io, struct hybrid_actions *acts)
{
	enum hybrid_map_result r = HYBRID_MAP_TAKEN;

	io->wait = WAIT_NONE;
	if (io->state == IO_COMMIT)
		commit_or_complete(e, io, acts);
	else if (io->type == HYBRID_IO_DISCARD || io->type == HYBRID_IO_ZEROES)
		r = range_io(e, io, acts);
	else if (route(e, io, acts) == ROUTE_REMAP)
		r = HYBRID_MAP_REMAP;
	if (r == HYBRID_MAP_REMAP)
		act(acts, &io->op);
}

enum hybrid_map_result io_miss(struct hybrid_engine *e, struct hybrid_io *io,
			       struct hybrid_actions *acts)
{
	struct hybrid_volume *v = io->volume;
	enum hybrid_map_result r;
	u64 end = 0;

	begin(io);
	switch (io->type) {
	case HYBRID_IO_FLUSH:
		count(io->volume, HYBRID_FLUSHES);
		flush_io(e, io, acts);
		return HYBRID_MAP_TAKEN;
	case HYBRID_IO_DISCARD:
	case HYBRID_IO_ZEROES:
		count(io->volume, HYBRID_DISCARDS);
		return range_io(e, io, acts);
	case HYBRID_IO_READ:
		end = io->sector + io->count;
		break;
	default:
		break;
	}
	note_whole(e, io);
	note_foreground(v);
	r = route(e, io, acts) == ROUTE_REMAP ? HYBRID_MAP_REMAP : HYBRID_MAP_TAKEN;
	/* What was taken may be gone; but the volume is not closed before this returns. */
	if (end)
		stream_ahead(e, v, end, acts);
	return r;
}

/*
 * The cache could not be read.  A clean granule is read from the origin and
 * dropped from the cache; a dirty one is lost (S8).  Of both, any may be the one:
 * each is read where it is then, and not again where a write replaces it, which may
 * take for ever.  Returns whether the io ends.
 */
static bool read_failed(struct hybrid_engine *e, struct hybrid_io *io, int error,
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
			mark_lazy(e, io->set, i);
		}
	}
	/* Where it was read, which may have another owner by now. */
	place_failed(e, io->set, io_block(e, io), acts);
	spin_unlock_irqrestore(&s->lock, flags);
	if (dirty == io->mask) {
		io->error = error;
		return true;
	}
	if (dirty) {
		begin(io);
		io->redirected = true;
		rerun(io, acts);
	} else {
		io_read_origin(io);
		act(acts, &io->op);
	}
	return false;
}

/* Make what a write that ended means true in RAM.  Caller holds the set's lock. */
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
		s->stamp[i] = (u32)READ_ONCE(io->volume->flush.last_write);
	if (cache_ok)
		valid |= newly;
	if (cache_ok && origin_ok)
		valid |= both & ~dirty;
	set_put_mask(&e->map, s, MASK_VALID, i, valid);
	if (cache_ok && (newly & ~dirty))
		put_dirty(e, s, i, dirty | newly);
	jdirty = block_mask(e, s, MASK_JDIRTY, i);
	if (cache_ok && (newly & ~jdirty))
		mark_must(e, io->set, i);
	else if (set_unrecorded(&e->map, s, i))
		mark_lazy(e, io->set, i);
	/* What a write that failed left of dirty granules is read from now on, too. */
	if (cache_ok ? newly : newly & dirty)
		note_cache_written(io->volume);
	remove_empty_block(e, io->set, i);
}

/*
 * A granule that only the cache would have held could not be written there: may all of the
 * write go to the origin, parts that did so already again?
 */
static bool write_redirects(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io)
{
	u64 dirty = block_mask(e, s, MASK_DIRTY, io->idx) | block_mask(e, s, MASK_JDIRTY, io->idx);

	return !(dirty & io->mask) && (io->to_cache & ~io->to_origin);
}

/*
 * It goes out anew: when a record that may end one of its granules is durable, or in a
 * pool that failed, to an origin that says so first.  Caller holds the set's lock.
 * Returns whether it does.
 */
static bool write_anew(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
		       struct hybrid_actions *acts)
{
	lockdep_assert_held(&s->lock);
	if (READ_ONCE(e->failed))
		rerun(io, acts);
	else if (s->ending & region_bit(io->idx))
		wait_in_set(s, io, WAIT_RECORD);
	else
		return false;
	writeback_written(e, s, io->key, acts);
	return true;
}

/* Errors of a write, or of the origin, but for -EAGAIN, which says nothing about the device. */
static void count_errors(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
			 int error_origin)
{
	if (error_origin && error_origin != -EAGAIN)
		count(io->volume, HYBRID_ORIGIN_ERRORS);
	if (error_cache && error_cache != -EAGAIN)
		count_cache_error(e, io->volume, CACHE_WRITE_ERRORS);
}

static bool finish_write(struct hybrid_engine *e, struct hybrid_io *io, int error_cache,
			   int error_origin, struct hybrid_actions *acts)
{
	u32 set = io->set;
	struct hybrid_set *s = &e->map.set[set];
	bool failed = error_cache && error_cache != -EAGAIN;
	bool commit = io->commit, waiting;
	unsigned long flags;

	if (io->to_origin)
		origin_written(e, io->volume, true);
	count_errors(e, io, error_cache, error_origin);
	spin_lock_irqsave(&s->lock, flags);
	if (failed && !error_origin && write_redirects(e, s, io)) {
		hlist_del(&io->inflight);
		/* When it goes out again, the block may be gone. */
		io->over = 0;
		io->commit = false;
		/* Others write parts of the same granules to the cache: after them. */
		if (write_in_flight(s, io->key, io->mask)) {
			place_failed(e, set, io->idx, acts);
			wait_in_set(s, io, WAIT_OVERLAP);
			spin_unlock_irqrestore(&s->lock, flags);
			return false;
		}
		if (write_anew(e, s, io, acts)) {
			place_failed(e, set, io->idx, acts);
			spin_unlock_irqrestore(&s->lock, flags);
			/* It is in nobody's way now. */
			wake_set(e, set, WAIT_OVERLAP, acts);
			return false;
		}
		hlist_add_head(&io->inflight, &s->inflight);
		io->redirected = true;
		io->to_origin = io->mask;
		io->to_cache = 0;
		spin_unlock_irqrestore(&s->lock, flags);
		user_op(io, true, io_origin_sector(io), io->flags & HYBRID_IO_FUA);
		act(acts, &io->op);
		return false;
	}
	hlist_del(&io->inflight);
	if (io->idx >= 0)
		write_applied(e, s, io, !error_cache, !error_origin);
	/* Now it is no write in flight, which would keep the block. */
	if (failed || io->redirected)
		place_failed(e, set, io->idx, acts);
	writeback_written(e, s, io->key, acts);
	waiting = somebody_waits(s);
	spin_unlock_irqrestore(&s->lock, flags);
	/* No record will come of what this write made dirty again, and wake who waits for it. */
	if (waiting)
		wake_set(e, io->set, WAIT_OVERLAP | (io->again ? WAIT_RECORD : 0), acts);
	if (error_origin)
		io->error = error_origin;
	else if (error_cache && (io->to_cache & ~io->to_origin))
		io->error = error_cache;
	if (io->error || !commit)
		return true;
	join_commit(e, io, acts);
	return false;
}

bool io_done(struct hybrid_engine *e, struct hybrid_io *io, int error, struct hybrid_actions *acts)
{
	if (io->state != IO_READ_CACHE)
		note_foreground(io->volume);
	switch (io->state) {
	case IO_READ_CACHE:
		epoch_leave(e, io->phase);
		if (error != -EAGAIN)
			return read_failed(e, io, error, acts);
		io->error = error;
		return true;
	case IO_REWRITE:
		/* What write_hit() leaves to who takes the long way */
		io->again = false;
		io->commit = false;
		io->redirected = false;
		fallthrough;
	case IO_WRITE:
		return finish_write(e, io, io->to_cache ? error : 0, io->to_origin ? error : 0,
				    acts);
	case IO_RANGE:
		return range_done(e, io, error, acts);
	case IO_READ_ORIGIN:
		room_read_ended(e, io->volume, acts);
		fallthrough;
	default:
		count_errors(e, io, 0, error);
		io->error = error;
		return true;
	}
}
