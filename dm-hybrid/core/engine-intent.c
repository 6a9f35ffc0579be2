// SPDX-License-Identifier: GPL-2.0-only
/*
 * The intent log.  A user who flushes after each write waits for a flush of the cache device, and
 * then for the journal entry that records the new granules.  Where a volume's users do that, an
 * intent is written beside the data: it names the granules, with the checksum of their data.
 * After a crash the granules whose data has the checksum are dirty.  So the flush makes data and
 * intent durable at once, and the entry follows when nobody waits for it.
 *
 * The order of one write:
 *   1. its data is copied, so that it has the checksum whatever users do with their pages;
 *   2. data and intent go out side by side, neither with a flush before it.  One intent is written
 *      at a time, and writes that come meanwhile share the next;
 *   3. when both have ended, the granules are valid and dirty in RAM, and marked to be recorded;
 *      but users' flushes need no record of them;
 *   4. an entry that records all that is marked moves the tail past the intent (J13).  Until it is
 *      durable, the granules stay as they are (J12), and the block keeps its owner.
 *
 * Intents are not ordered against other writes: any may be missing after a crash, and nothing
 * depends on them.
 */
#include "engine-internal.h"

int hybrid_intents_create(struct hybrid_engine *e)
{
	e->intents.mem = vzalloc(HYBRID_META_BLOCK_SIZE);
	return e->intents.mem ? 0 : -ENOMEM;
}

static void free_list(struct list_head *list)
{
	struct hybrid_intended *w, *next;

	list_for_each_entry_safe(w, next, list, link)
		kfree(w);
}

void hybrid_intents_destroy(struct hybrid_engine *e)
{
	/* Only a pool that has failed, or was not loaded, leaves any. */
	free_list(&e->intents.pending);
	free_list(&e->intents.applied);
	vfree(e->intents.mem);
}

/* ---- what is under an intent ------------------------------------------------ */

u64 hybrid_intended_granules(const struct hybrid_set *s, u32 i)
{
	const struct hybrid_intended *w;
	u64 granules = 0;

	lockdep_assert_held(&s->lock);
	hlist_for_each_entry(w, &s->intended, node)
		if (w->i == i)
			granules |= w->granules;
	return granules;
}

static void await(struct hybrid_engine *e, struct hybrid_intended *w)
{
	lockdep_assert_held(&e->lock);
	e->intents.nr_awaited += !w->awaited;
	w->awaited = true;
}

void hybrid_intents_await(struct hybrid_engine *e, struct hybrid_set *s, u32 i, u64 granules,
			  struct hybrid_actions *acts)
{
	struct hybrid_intended *w;

	lockdep_assert_held(&s->lock);
	spin_lock(&e->lock);
	hlist_for_each_entry(w, &s->intended, node)
		if (w->i == i && (w->granules & granules))
			await(e, w);
	spin_unlock(&e->lock);
	want(acts, WANT_COMMIT);
}

/* ---- a write under an intent ------------------------------------------------- */

/* Places of the ring that hold intents which may still count. */
static u64 in_use(const struct hybrid_engine *e)
{
	return READ_ONCE(e->intents.head) - READ_ONCE(e->journal.intent_tail);
}

/* No intent may be written: nothing must follow a write of metadata that failed. */
static bool is_closed(const struct hybrid_engine *e)
{
	lockdep_assert_held(&e->lock);
	return e->intents.lost || READ_ONCE(e->life.failed);
}

bool hybrid_intent_allowed(struct hybrid_engine *e, const struct hybrid_set *s,
			   const struct hybrid_io *io, u32 i)
{
	/* Granules that are clean on record are in an open region (J4): a recovery drops them. */
	u64 dirty = block_mask(e, s, MASK_JDIRTY, i) | block_mask(e, s, MASK_DIRTY, i);

	lockdep_assert_held(&s->lock);
	if (!is_running(e) || io->count > HYBRID_INTENT_SECTORS)
		return false;
	/* Whole granules; the last one of a volume may be short. */
	if (io->to_origin || io->whole != io->mask ||
	    io->count != hweight64(io->mask) << e->g->granule_shift)
		return false;
	return !(dirty & io->mask) && !(s->flags[i] & BLOCK_BUSY) &&
	       !((s->regions.ending | s->regions.dropping) & region_bit(i)) &&
	       !hybrid_write_in_flight(s, io->key, io->mask);
}

bool hybrid_intent_begin(struct hybrid_engine *e, struct hybrid_set *s, struct hybrid_io *io,
			 u32 i)
{
	struct hybrid_intended *w;
	bool begins;

	lockdep_assert_held(&s->lock);
	if (in_use(e) >= e->g->intent_blocks || READ_ONCE(e->intents.nr) >= MAX_INTENDED)
		return false;
	w = kzalloc(sizeof(*w), GFP_NOWAIT | __GFP_NOWARN);
	if (!w)
		return false;
	w->set = io->set;
	w->i = i;
	w->key = io->key;
	w->granules = io->mask;
	w->io = io;
	spin_lock(&e->lock);
	begins = !is_closed(e);
	if (begins) {
		list_add_tail(&w->link, &e->intents.pending);
		WRITE_ONCE(e->intents.nr, e->intents.nr + 1);
	}
	spin_unlock(&e->lock);
	if (!begins) {
		kfree(w);
		return false;
	}
	hlist_add_head(&w->node, &s->intended);
	io->write.intent = w;
	return true;
}

/* ---- intents ------------------------------------------------------------------ */

/*
 * Fills the next intent with the writes whose data has been copied.  Returns their number; 0: there
 * are none, or none can be written now.
 */
static u32 gather(struct hybrid_engine *e)
{
	struct hybrid_intents *x = &e->intents;
	struct hybrid_intended *w;
	u32 nr = 0;

	lockdep_assert_held(&e->lock);
	if (x->busy || is_closed(e) || in_use(e) >= e->g->intent_blocks)
		return 0;
	x->fua = false;
	list_for_each_entry(w, &x->pending, link) {
		if (w->state != INTENDED_COPIED || nr == HYBRID_INTENT_RECORDS)
			continue;
		w->state = INTENDED_WRITING;
		w->number = x->head;
		x->fua |= (w->io->flags & HYBRID_IO_FUA) && cache_has_fua(w->io->volume);
		hybrid_intent_record(x->mem, nr++, hybrid_map_cblock(&e->map, w->set, w->i),
				     w->io->volume->info.instance, hybrid_key_block(w->io->key),
				     w->granules, w->checksum);
	}
	if (nr) {
		x->busy = true;
		WRITE_ONCE(x->head, x->head + 1);
		add_stat(&e->stats.intent_writes, 1);
	}
	return nr;
}

static void intent_written(struct hybrid_engine *e, struct hybrid_op *op,
			   struct hybrid_actions *acts);

/* Writes the next intent, if writes wait for one and none is being written. */
static void write_next(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_intents *x = &e->intents;
	unsigned long flags;
	u64 number, flushed;
	bool closed;
	u32 nr;

	spin_lock_irqsave(&e->lock, flags);
	closed = is_closed(e);
	nr = gather(e);
	number = x->head - 1;
	flushed = x->flushed;
	spin_unlock_irqrestore(&e->lock, flags);
	if (closed)
		hybrid_intents_failed(e, acts);
	if (!nr)
		return;
	hybrid_intent_seal(x->mem, &e->meta.id, number, nr, flushed);
	x->segment.sector = hybrid_intent_sector(e->g, number);
	x->segment.count = HYBRID_META_BLOCK_SECTORS;
	op_begin(&x->op, HYBRID_OP_META, true, NULL, intent_written);
	x->op.fua = x->fua;
	x->op.direct = true;
	x->op.mem = x->mem;
	x->op.segments = &x->segment;
	x->op.nr_segments = 1;
	act(acts, &x->op);
}

void hybrid_intent_copied(struct hybrid_engine *e, struct hybrid_op *op,
			  struct hybrid_actions *acts)
{
	struct hybrid_intended *w = op->io->write.intent;
	u64 checksum = e->ops->checksum(e, op->buffer, op->buffer_offset, op->io->count,
					e->meta.id.epoch);
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	w->checksum = checksum;
	w->state = INTENDED_COPIED;
	if (is_closed(e)) {
		w->state = INTENDED_WRITTEN;
		w->error = -EIO;
	}
	spin_unlock_irqrestore(&e->lock, flags);
	write_next(e, acts);
}

/* Writes in state @from have their intent now, or (@error) never will. */
static void have_intent(struct hybrid_engine *e, enum intended_state from, int error)
{
	struct hybrid_intended *w;

	lockdep_assert_held(&e->lock);
	list_for_each_entry(w, &e->intents.pending, link) {
		if (w->state != from)
			continue;
		w->state = INTENDED_WRITTEN;
		if (error)
			w->error = error;
	}
}

/* Ends a write: its data and its intent have ended. */
static void end_write(struct hybrid_engine *e, struct hybrid_io *io, int error,
		      struct hybrid_actions *acts)
{
	if (e->intents.done(e, io, error, 0, acts))
		complete_io(io, 0, acts);
}

/* Takes a write whose data and intent have been written, or NULL. */
static struct hybrid_intended *take_written(struct hybrid_engine *e)
{
	struct hybrid_intended *w;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	list_for_each_entry(w, &e->intents.pending, link)
		if (w->state == INTENDED_WRITTEN && w->data_ended)
			goto found;
	w = NULL;
found:
	if (w)
		w->state = INTENDED_ENDING;
	spin_unlock_irqrestore(&e->lock, flags);
	return w;
}

static void end_written(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_intended *w;

	while ((w = take_written(e)))
		end_write(e, w->io, w->error, acts);
}

bool hybrid_intent_data_ended(struct hybrid_engine *e, struct hybrid_io *io, int *error)
{
	struct hybrid_intended *w = io->write.intent;
	unsigned long flags;
	bool ended;

	spin_lock_irqsave(&e->lock, flags);
	w->data_ended = true;
	if (*error)
		w->error = *error;
	*error = w->error;
	ended = w->state == INTENDED_WRITTEN;
	if (ended)
		w->state = INTENDED_ENDING;
	spin_unlock_irqrestore(&e->lock, flags);
	return ended;
}

void hybrid_fail_pool(struct hybrid_engine *e, enum cache_error kind)
{
	atomic64_inc(&e->stats.errors[kind]);
	hybrid_intents_lost(e);
	/* After the counts of lost granules; pairs with hybrid_commit_or_complete(). */
	smp_store_release(&e->life.failed, true);
}

void hybrid_metadata_failed(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	hybrid_fail_pool(e, CACHE_WRITE_ERRORS);
	/* The commit that finds the pool failed wakes all that waits for metadata. */
	want(acts, WANT_COMMIT);
}

static void intent_written(struct hybrid_engine *e, struct hybrid_op *op,
			   struct hybrid_actions *acts)
{
	int error = op->error_cache;	/* the next intent may reuse op */
	unsigned long flags;

	if (error)
		hybrid_metadata_failed(e, acts);
	spin_lock_irqsave(&e->lock, flags);
	engine_assert(e, e->intents.busy);
	e->intents.busy = false;
	have_intent(e, INTENDED_WRITING, error);
	spin_unlock_irqrestore(&e->lock, flags);
	if (READ_ONCE(e->life.failed))
		hybrid_intents_failed(e, acts);
	end_written(e, acts);
	write_next(e, acts);
}

/* Has so much gathered under intents that the tail should move? */
static bool half_full(const struct hybrid_engine *e)
{
	return in_use(e) * 2 >= e->g->intent_blocks || e->intents.nr * 2 >= MAX_INTENDED;
}

void hybrid_intent_applied(struct hybrid_engine *e, struct hybrid_intended *w,
			   struct hybrid_actions *acts)
{
	unsigned long flags;
	bool commit;

	spin_lock_irqsave(&e->lock, flags);
	w->io = NULL;
	list_move_tail(&w->link, &e->intents.applied);
	commit = e->intents.nr_awaited || (half_full(e) && !e->intents.wanted);
	e->intents.wanted |= commit;
	spin_unlock_irqrestore(&e->lock, flags);
	if (commit)
		want(acts, WANT_COMMIT);
}

bool hybrid_intent_give_up(struct hybrid_engine *e, struct hybrid_io *io, int error,
			   struct hybrid_actions *acts)
{
	struct hybrid_intended *w = io->write.intent;
	unsigned long flags;
	bool closed;

	spin_lock_irqsave(&e->lock, flags);
	closed = is_closed(e);
	if (!closed) {
		w->gave_up = true;
		e->intents.nr_gave_up++;
		w->error = error;
		await(e, w);
		list_move_tail(&w->link, &e->intents.applied);
	}
	spin_unlock_irqrestore(&e->lock, flags);
	if (!closed)
		want(acts, WANT_COMMIT);
	return !closed;
}

/* ---- the tail --------------------------------------------------------------------- */

u64 hybrid_intents_ended(struct hybrid_engine *e, bool well)
{
	const struct hybrid_intended *w;
	u64 n = e->intents.head;

	lockdep_assert_held(&e->lock);
	list_for_each_entry(w, &e->intents.pending, link)
		if (w->state >= INTENDED_WRITING)
			n = min(n, w->number);
	if (!well || !e->intents.nr_gave_up)
		return n;
	list_for_each_entry(w, &e->intents.applied, link)
		if (w->gave_up)
			n = min(n, w->number);
	return n;
}

/* Moves the writes whose intents the tail has passed to @out. */
static void take_passed(struct hybrid_engine *e, struct list_head *out)
{
	struct hybrid_intents *x = &e->intents;
	struct hybrid_intended *w, *next;
	unsigned long flags;

	spin_lock_irqsave(&e->lock, flags);
	list_for_each_entry_safe(w, next, &x->applied, link) {
		if (w->number >= e->journal.intent_tail)
			continue;
		list_move_tail(&w->link, out);
		x->nr_awaited -= w->awaited;
		x->nr_gave_up -= w->gave_up;
		/* I/O that finds it in its set before it is freed need not be counted. */
		w->awaited = true;
		WRITE_ONCE(x->nr, x->nr - 1);
	}
	spin_unlock_irqrestore(&e->lock, flags);
}

void hybrid_intents_passed(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_intended *w, *next;
	unsigned long flags;
	LIST_HEAD(passed);
	bool waiting;

	take_passed(e, &passed);
	list_for_each_entry_safe(w, next, &passed, link) {
		struct hybrid_set *s = &e->map.set[w->set];

		spin_lock_irqsave(&s->lock, flags);
		hlist_del(&w->node);
		waiting = somebody_waits(s);
		spin_unlock_irqrestore(&s->lock, flags);
		if (w->gave_up) {
			w->io->write.intent = NULL;
			end_write(e, w->io, w->error, acts);
		}
		if (waiting)
			hybrid_wake_set(e, w->set, WAIT_RECORD, acts);
		kfree(w);
	}
	/* There is room in the ring again. */
	write_next(e, acts);
}

/* ---- a pool that fails -------------------------------------------------------------- */

static void lose_set(struct hybrid_engine *e, u32 set)
{
	struct hybrid_set *s = &e->map.set[set];
	struct hybrid_intended *w;
	u64 granules;

	lockdep_assert_held(&s->lock);
	hlist_for_each_entry(w, &s->intended, node) {
		granules = w->granules & ~block_mask(e, s, MASK_DIRTY, w->i);
		/* The intents of a volume that was deleted do not count. */
		if (!granules || s->key[w->i] != w->key)
			continue;
		set_put_mask(&e->map, s, MASK_JVALID, w->i,
			     block_mask(e, s, MASK_JVALID, w->i) | granules);
		hybrid_put_jdirty(e, s, w->i, block_mask(e, s, MASK_JDIRTY, w->i) | granules);
		hybrid_mark_lazy(e, set, w->i);
	}
}

void hybrid_intents_lost(struct hybrid_engine *e)
{
	unsigned long flags;
	bool known;
	u32 set;

	spin_lock_irqsave(&e->lock, flags);
	known = e->intents.lost;
	e->intents.lost = true;
	spin_unlock_irqrestore(&e->lock, flags);
	if (known)
		return;
	for (set = 0; set < e->map.nr_sets; set++) {
		struct hybrid_set *s = &e->map.set[set];

		spin_lock_irqsave(&s->lock, flags);
		lose_set(e, set);
		spin_unlock_irqrestore(&s->lock, flags);
	}
}

/* Takes a write that has given up, or NULL. */
static struct hybrid_io *take_given_up(struct hybrid_engine *e, int *error)
{
	struct hybrid_intended *w;
	unsigned long flags;
	struct hybrid_io *io = NULL;

	spin_lock_irqsave(&e->lock, flags);
	list_for_each_entry(w, &e->intents.applied, link) {
		if (!w->gave_up)
			continue;
		w->gave_up = false;
		e->intents.nr_gave_up--;
		*error = w->error;
		io = w->io;
		break;
	}
	spin_unlock_irqrestore(&e->lock, flags);
	return io;
}

void hybrid_intents_failed(struct hybrid_engine *e, struct hybrid_actions *acts)
{
	struct hybrid_io *io;
	unsigned long flags;
	int error;

	spin_lock_irqsave(&e->lock, flags);
	have_intent(e, INTENDED_COPIED, -EIO);
	spin_unlock_irqrestore(&e->lock, flags);
	end_written(e, acts);
	while ((io = take_given_up(e, &error))) {
		io->write.intent = NULL;
		end_write(e, io, error, acts);
	}
}

static void count_intended(const struct list_head *list, u32 *nr, u32 *nr_awaited, u32 *nr_gave_up)
{
	const struct hybrid_intended *w;

	list_for_each_entry(w, list, link) {
		++*nr;
		*nr_awaited += w->awaited;
		*nr_gave_up += w->gave_up;
	}
}

const char *hybrid_intents_check(const struct hybrid_engine *e)
{
	const struct hybrid_intents *x = &e->intents;
	u32 nr = 0, nr_awaited = 0, nr_gave_up = 0;

	count_intended(&x->pending, &nr, &nr_awaited, &nr_gave_up);
	count_intended(&x->applied, &nr, &nr_awaited, &nr_gave_up);
	return nr == x->nr && nr_awaited == x->nr_awaited && nr_gave_up == x->nr_gave_up ? NULL :
	       "the counts of writes under intents are wrong";
}
