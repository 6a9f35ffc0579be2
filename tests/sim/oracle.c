// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Which values may a sector hold?
 *
 * For each sector that was ever written there is a chain of entries: the writes
 * that may still be seen, each with the time from its submission to its
 * completion.  Write A stands before write B if A completed before B was
 * submitted.  Where a read shows that B stands (nothing else completed later),
 * B's submission moves up to the read's start.  All writes that had completed by then
 * stand before B: reading one of them again would be a flip without a write (P2).
 *
 * A read started at t may return E unless some X that completed before t stands
 * after E (S1).  After a crash E may stand unless a durable X stands after it
 * (S2).  The remaining entries are durable from then on: one of them stands, for good (P2).
 */
#include <stdlib.h>

#include "sim.h"

u64 sim_oracle_changes;

void oracle_init(struct oracle *o, u32 owner, u64 sectors, u32 block_shift)
{
	memset(o, 0, sizeof(*o));
	o->owner = owner;
	o->sectors = sectors;
	o->head = xalloc(sectors * sizeof(u32));
	o->is_active = xalloc(sectors);
	o->was_rotten = xalloc(sectors);
	o->touched_shift = block_shift;
	o->touched = xalloc((sectors >> block_shift) + 1);
	o->pin = xalloc(sectors * sizeof(val_t));
	o->nr = 1;
}

void oracle_free(struct oracle *o)
{
	free(o->head);
	free(o->is_active);
	free(o->was_rotten);
	free(o->touched);
	free(o->pin);
	free(o->pool);
	free(o->active);
	free(o->pinned);
}

static val_t initial(const struct oracle *o, u64 sector)
{
	return VAL(o->owner, sector, 0);
}

/* ---- Chains --------------------------------------------------------------- */

static u32 new_entry(struct oracle *o)
{
	u32 i = o->free;

	if (i) {
		o->free = o->pool[i].next;
		return i;
	}
	if (o->nr >= o->cap) {
		o->cap = max_t(u32, 2 * o->cap, 1024);
		o->pool = xrealloc(o->pool, o->cap * sizeof(*o->pool));
	}
	return o->nr++;
}

static struct entry *add_entry(struct oracle *o, u64 sector)
{
	u32 i = new_entry(o);
	struct entry *e = &o->pool[i];

	memset(e, 0, sizeof(*e));
	e->next = o->head[sector];
	o->head[sector] = i;
	return e;
}

/* Adds the value that the sector holds before the first write. */
static void add_initial(struct oracle *o, u64 sector)
{
	struct entry *e;

	if (o->head[sector])
		return;
	e = add_entry(o, sector);
	e->val = initial(o, sector);
	e->durable = true;
}

static void activate(struct oracle *o, u64 sector)
{
	if (o->is_active[sector])
		return;
	if (o->nr_active == o->cap_active) {
		o->cap_active = max_t(u32, 2 * o->cap_active, 1024);
		o->active = xrealloc(o->active, o->cap_active * sizeof(*o->active));
	}
	o->active[o->nr_active++] = sector;
	o->is_active[sector] = 1;
}

#define for_each_entry(o, sector, e)					\
	for (u32 i_##e = (o)->head[sector];				\
	     i_##e && ((e) = &(o)->pool[i_##e], true);			\
	     i_##e = (e)->next)

/*
 * Does write @x stand after @e?  Reads cannot show that a damaged copy is gone, and a
 * discard may bring it back.  Reads cannot show either that a failed write has left
 * nothing: a write that overlapped it may bring its data to light.
 */
static bool replaces(const struct entry *x, const struct entry *e)
{
	if (x == e || x->maybe || (e->rot && x->wild))
		return false;
	return e->complete < (e->rot || e->maybe ? x->born : x->submit);
}

/*
 * Some of the writes that may replace others for good: each entry that any of them replaces is
 * replaced by one of these.  For a failed write, and for a rotten copy, born decides, for others
 * submit.  A write does not replace itself, and a discard does not replace a rotten copy.
 */
struct latest {
	const struct entry *submit[2], *born, *written;
};

static void consider(struct latest *l, const struct entry *x)
{
	if (!l->submit[0] || x->submit > l->submit[0]->submit) {
		l->submit[1] = l->submit[0];
		l->submit[0] = x;
	} else if (!l->submit[1] || x->submit > l->submit[1]->submit) {
		l->submit[1] = x;
	}
	if (!l->born || x->born > l->born->born)
		l->born = x;
	if (!x->wild && (!l->written || x->born > l->written->born))
		l->written = x;
}

static bool is_replaced(const struct latest *l, const struct entry *e)
{
	return (l->submit[0] && replaces(l->submit[0], e)) ||
	       (l->submit[1] && replaces(l->submit[1], e)) ||
	       (l->born && replaces(l->born, e)) || (l->written && replaces(l->written, e));
}

static void prune(struct oracle *o, u64 sector, u64 oldest_read)
{
	u32 *link = &o->head[sector];
	struct latest latest = {};
	struct entry *x;

	for_each_entry(o, sector, x)
		if (x->durable && !x->maybe && x->complete < oldest_read)
			consider(&latest, x);
	while (*link) {
		u32 i = *link;

		if (is_replaced(&latest, &o->pool[i])) {
			*link = o->pool[i].next;
			o->pool[i].next = o->free;
			o->free = i;
		} else {
			link = &o->pool[i].next;
		}
	}
}

static struct entry *find_version(struct oracle *o, u64 sector, u32 version)
{
	struct entry *e;

	for_each_entry(o, sector, e)
		if (e->version == version)
			return e;
	return NULL;
}

/* ---- Writes --------------------------------------------------------------- */

void oracle_submit(struct oracle *o, u64 sector, u32 count, u32 version, bool zero, bool wild)
{
	u64 s;

	sim_oracle_changes++;
	sim_now++;
	o->newest = version;
	for (s = sector; s < sector + count; s++) {
		struct entry *e;

		add_initial(o, s);
		e = add_entry(o, s);
		e->val = wild ? 0 : zero ? VAL_ZERO : VAL(o->owner, s, version);
		e->wild = wild;
		e->submit = sim_now;
		e->born = sim_now;
		e->complete = SIM_NEVER;
		e->version = version;
		e->until = U32_MAX;
		o->touched[s >> o->touched_shift] = 1;
		activate(o, s);
	}
}

void oracle_give(struct oracle *o, u64 sector, u32 version, val_t val)
{
	find_version(o, sector, version)->val = val;
}

void oracle_done(struct oracle *o, u64 sector, u32 count, u32 version, int error, bool durable,
		 u64 oldest_read)
{
	u64 s;

	sim_oracle_changes++;
	sim_now++;
	for (s = sector; s < sector + count; s++) {
		struct entry *e = find_version(o, s, version);

		if (!e)
			continue;
		e->complete = sim_now;
		e->until = o->newest;
		e->maybe = error;
		e->durable = durable && !error;
		if (e->durable)
			prune(o, s, oldest_read);
	}
}

/* The write was refused, and has changed nothing. */
void oracle_withdraw(struct oracle *o, u64 sector, u32 count, u32 version)
{
	u64 s;

	sim_oracle_changes++;
	for (s = sector; s < sector + count; s++) {
		u32 *link = &o->head[s];

		while (*link) {
			u32 i = *link;

			if (o->pool[i].version != version) {
				link = &o->pool[i].next;
				continue;
			}
			*link = o->pool[i].next;
			o->pool[i].next = o->free;
			o->free = i;
		}
	}
}

static void forget_settled(struct oracle *o)
{
	u32 i, n = 0;

	for (i = 0; i < o->nr_active; i++) {
		u32 s = o->active[i];
		u32 h = o->head[s];

		if (h && !o->pool[h].next && o->pool[h].durable && !o->pool[h].wild)
			o->is_active[s] = 0;
		else
			o->active[n++] = s;
	}
	o->nr_active = n;
}

void oracle_flush(struct oracle *o, u64 started, u64 oldest_read)
{
	u32 i;

	sim_oracle_changes++;
	for (i = 0; i < o->nr_active; i++) {
		struct entry *e;

		for_each_entry(o, o->active[i], e)
			if (!e->maybe && e->complete < started)
				e->durable = true;
		prune(o, o->active[i], oldest_read);
	}
	forget_settled(o);
}

/* ---- Reads ---------------------------------------------------------------- */

/* Was @val written, or on its way, before discard @e ended? */
static bool older(const struct oracle *o, const struct entry *e, u64 sector, val_t val)
{
	if (o->held)
		return o->held(o, sector, val, e->until);
	return val_owner(val) == o->owner && val_sector(val) == sector &&
	       val_version(val) <= e->until;
}

static bool matches(struct oracle *o, const struct entry *e, u64 sector, val_t val,
		    bool undecided)
{
	if (!e->wild)
		return e->val == val;
	if (e->val && !undecided)
		return e->val == val;
	return val == VAL_ZERO || older(o, e, sector, val) || o->was_rotten[sector];
}

static bool readable(struct oracle *o, u64 sector, const struct entry *e, u64 started)
{
	struct entry *x;

	/* It was in flight together with the read: later reads do not matter */
	if (e->complete >= started)
		return true;
	for_each_entry(o, sector, x)
		if (x->complete < started && replaces(x, e))
			return false;
	return true;
}

static const char *what(const struct oracle *o, u64 sector, val_t val)
{
	if (val == VAL_ZERO || !val)
		return "zeroes that nobody wrote, or old ones";
	if (val_owner(val) == VAL_JUNK - 1)
		return "content of the cache device that nobody wrote";
	if (val_owner(val) != o->owner)
		return "another volume's data";
	if (val_sector(val) != sector)
		return "another sector's data";
	return "an older value than allowed";
}

const char *oracle_read(struct oracle *o, u64 sector, val_t val, u64 started)
{
	struct entry *e, *hit = NULL;
	u32 hits = 0;

	if (!o->head[sector])
		return val == initial(o, sector) ? NULL : what(o, sector, val);
	for_each_entry(o, sector, e) {
		if (!matches(o, e, sector, val, e->complete >= started) ||
		    !readable(o, sector, e, started))
			continue;
		hits++;
		hit = e;
	}
	if (!hits)
		return what(o, sector, val);
	if (hits > 1 || hit->rot)
		return NULL;
	sim_oracle_changes++;
	hit->submit = max(hit->submit, started);
	/* A read during a failed write may have seen a copy that is gone */
	if (hit->complete < started)
		hit->maybe = false;
	if (hit->wild && hit->complete < started)
		hit->val = val;
	return NULL;
}

bool oracle_settled(struct oracle *o, u64 sector, val_t val, u32 but)
{
	const struct entry *e, *only = NULL;

	if (!o->head[sector])
		return val == initial(o, sector);
	for_each_entry(o, sector, e) {
		if (e->version == but)
			continue;
		if (only)
			return false;
		only = e;
	}
	return only && only->val == val && only->complete < sim_now;
}

/* ---- Crashes -------------------------------------------------------------- */

static bool survives(struct oracle *o, u64 sector, const struct entry *e)
{
	struct entry *x;

	for_each_entry(o, sector, x)
		if (x->durable && replaces(x, e))
			return false;
	return true;
}

static void crash_sector(struct oracle *o, u64 sector)
{
	struct entry *e;

	prune(o, sector, SIM_NEVER);
	for_each_entry(o, sector, e) {
		if (e->rot)
			continue;
		if (!e->durable || e->maybe)
			e->born = 0;	/* it may have had no effect */
		if (e->wild && !e->durable)
			e->val = 0;
		if (e->complete == SIM_NEVER)
			e->until = o->newest;
		e->durable = true;
		e->maybe = false;
		e->submit = sim_now;
		e->complete = sim_now;
	}
}

void oracle_crash(struct oracle *o)
{
	u32 i;

	sim_oracle_changes++;
	sim_now++;
	for (i = 0; i < o->nr_active; i++)
		crash_sector(o, o->active[i]);
	forget_settled(o);
	sim_now++;
}

/* The admin dropped dirty data: each sector may hold any value that it ever had. */
void oracle_forget(struct oracle *o)
{
	u64 s;

	sim_oracle_changes++;
	sim_now++;
	for (s = 0; s < o->sectors; s++) {
		struct entry *e;

		if (!o->head[s])
			continue;
		e = add_entry(o, s);
		e->wild = true;
		e->durable = true;
		e->version = U32_MAX;
		e->until = U32_MAX;
		e->submit = sim_now;
		e->born = sim_now;
		e->complete = sim_now;
		activate(o, s);
		prune(o, s, SIM_NEVER);
	}
	sim_now++;
}

void oracle_rot(struct oracle *o, u64 sector, val_t val)
{
	struct entry *e;

	sim_now++;
	add_initial(o, sector);
	e = add_entry(o, sector);
	e->val = val;
	e->version = U32_MAX - 1;
	e->submit = sim_now;
	e->born = sim_now;
	e->complete = sim_now;
	e->durable = true;
	e->maybe = true;
	e->rot = true;
	o->was_rotten[sector] = 1;
	o->touched[sector >> o->touched_shift] = 1;
	activate(o, sector);
	sim_now++;
}

static void pin_value(struct oracle *o, u64 sector, val_t val)
{
	if (o->nr_pinned == o->cap_pinned) {
		o->cap_pinned = max_t(u32, 2 * o->cap_pinned, 1024);
		o->pinned = xrealloc(o->pinned, o->cap_pinned * sizeof(*o->pinned));
	}
	o->pinned[o->nr_pinned++] = sector;
	o->pin[sector] = val;
}

bool oracle_crash_allows(struct oracle *o, u64 sector, val_t val)
{
	struct entry *e;

	if (!o->head[sector])
		return val == initial(o, sector);
	for_each_entry(o, sector, e)
		if (matches(o, e, sector, val, !e->durable) && survives(o, sector, e))
			return true;
	return false;
}

static bool rotten(struct oracle *o, u64 sector)
{
	struct entry *e;

	for_each_entry(o, sector, e)
		if (e->rot)
			return true;
	return false;
}

/* In a crash state: may @val stand, and is it what stood before? */
const char *oracle_crash_read(struct oracle *o, u64 sector, val_t val, bool pin)
{
	if (!oracle_crash_allows(o, sector, val))
		return what(o, sector, val);
	if (rotten(o, sector))
		return NULL;
	if (o->pin[sector] && o->pin[sector] != val)
		return "another value than after the crash (P2)";
	if (pin && !o->pin[sector])
		pin_value(o, sector, val);
	return NULL;
}

void oracle_unpin(struct oracle *o)
{
	u32 i;

	for (i = 0; i < o->nr_pinned; i++)
		o->pin[o->pinned[i]] = 0;
	o->nr_pinned = 0;
}

/* ---- For the linter -------------------------------------------------------- */

static struct entry *find_value(struct oracle *o, u64 sector, val_t val)
{
	struct entry *e;

	for_each_entry(o, sector, e)
		if (e->val == val)
			return e;
	return NULL;
}

bool oracle_before(struct oracle *o, u64 sector, val_t a, val_t b, u64 then)
{
	struct entry *ea, *eb = find_value(o, sector, b);

	if (a == b || !eb)
		return false;
	/* No user had been told of @b */
	if (eb->complete > then)
		return !oracle_crash_allows(o, sector, a);
	/* Zeroes may have been written more than once */
	for_each_entry(o, sector, ea)
		if (ea->val == a && ea->complete >= eb->submit)
			return false;
	return true;
}

bool oracle_wild(struct oracle *o, u64 sector)
{
	struct entry *e;

	for_each_entry(o, sector, e)
		if (e->wild)
			return true;
	return false;
}

void oracle_explain(struct oracle *o, u64 sector)
{
	struct entry *e;

	if (!o->head[sector])
		fprintf(stderr, "    never written\n");
	for_each_entry(o, sector, e)
		fprintf(stderr, "    %s version %u, %llu to %lld%s%s%s\n", val_name(e->val),
			e->version, (unsigned long long)e->submit, (long long)e->complete,
			e->durable ? " durable" : "", e->maybe ? " failed" : "",
			e->wild ? " discard" : "");
}
