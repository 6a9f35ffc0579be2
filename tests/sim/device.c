// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * A disk with a volatile write cache.
 *
 * Every sector has one durable value and a chain of newer, volatile versions.  A
 * write in flight may be carried out in part at any time; when it completes, all
 * of it has been carried out.  A flush makes all writes durable that completed before
 * the flush was submitted.  A cut leaves each sector with its durable value, with any
 * of its versions, or with the value of a write still in flight.  On a protected
 * device completed writes are durable; a lying device makes nothing durable.
 */
#include <stdlib.h>

#include "sim.h"
#include "coverage.h"

u64 sim_now;
bool undo_on;
u64 sim_durable_changes;

static struct undo *undo_log;
static size_t undo_nr, undo_cap;

size_t undo_mark(void)
{
	return undo_nr;
}

void undo_to(size_t mark)
{
	while (undo_nr > mark) {
		struct undo *u = &undo_log[--undo_nr];

		u->dev->durable[u->sector] = u->val;
	}
}

u64 undo_hash(size_t mark)
{
	u64 sum = 0;
	size_t i;

	for (i = mark; i < undo_nr; i++) {
		const struct undo *u = &undo_log[i];
		struct rng r = { u->dev->durable[u->sector] ^ u->sector << 20 ^
				 (u64)u->dev->nr << 60 };

		if (u->dev->durable[u->sector] != u->val)
			sum += rng_next(&r);
	}
	return sum;
}

void device_set(struct device *d, u64 sector, val_t val)
{
	sim_durable_changes += !undo_on;
	if (undo_on) {
		if (undo_nr == undo_cap) {
			undo_cap = max_t(size_t, 2 * undo_cap, 4096);
			undo_log = xrealloc(undo_log, undo_cap * sizeof(*undo_log));
		}
		undo_log[undo_nr++] = (struct undo){ d, sector, d->durable[sector] };
	}
	d->durable[sector] = val;
}

void device_init(struct device *d, u32 nr, u64 sectors, u64 data_from, u64 data_to)
{
	int i;

	memset(d, 0, sizeof(*d));
	d->nr = nr;
	d->sectors = sectors;
	d->capacity = sectors;
	d->data_from = data_from;
	d->data_to = data_to;
	d->durable = xalloc(sectors * sizeof(*d->durable));
	for (i = 0; i < 2; i++) {
		d->vol[i].newest = xalloc(sectors * sizeof(u32));
		d->vol[i].nr = 1;	/* 0 ends a chain */
	}
	d->v = &d->vol[0];
}

void device_heal(struct device *d, bool forget)
{
	struct fault f = d->fault;

	memset(&d->fault, 0, sizeof(d->fault));
	memcpy(d->fault.bad, f.bad, sizeof(f.bad));
	d->fault.nr_bad = f.nr_bad;
	d->fault.nr_were_bad = forget ? f.nr_bad : f.nr_were_bad;
	memcpy(d->fault.worn, f.worn, sizeof(f.worn));
	d->fault.nr_worn = f.nr_worn;
	d->fault.dealt = f.dealt && !forget;
}

void device_free(struct device *d)
{
	int i;

	free(d->durable);
	free(d->older);
	for (i = 0; i < 2; i++) {
		free(d->vol[i].newest);
		free(d->vol[i].pool);
		free(d->vol[i].dirty);
		free(d->vol[i].inflight);
	}
}

static val_t whole(const struct device *d, u64 sector, val_t val)
{
	if (val || !device_is_data(d, sector))
		return val;
	return d->nr ? VAL(d->nr - 1, sector - d->data_from, 0) :
	       VAL(VAL_JUNK - 1, sector - d->data_from, 0);
}

val_t device_durable(const struct device *d, u64 sector)
{
	return whole(d, sector, d->durable[sector]);
}

inline val_t device_read(const struct device *d, u64 sector)
{
	u32 i = d->v->newest[sector];

	return whole(d, sector, i ? d->v->pool[i].val : d->durable[sector]);
}

val_t device_completed(const struct device *d, u64 sector)
{
	u32 i;

	for (i = d->v->newest[sector]; i; i = d->v->pool[i].older)
		if (d->v->pool[i].by->done)
			return whole(d, sector, d->v->pool[i].val);
	return device_durable(d, sector);
}

const void *(*sim_contents)(val_t val);

void data_bytes(val_t val, void *bytes)
{
	u64 *word = bytes;
	u32 i;

	if (sim_contents) {
		memcpy(bytes, sim_contents(val), 512);
		return;
	}
	for (i = 0; i < 512 / sizeof(*word); i++)
		word[i] = val;
}

/* The contents of a sector that holds @v. */
static void sector_bytes(const struct device *d, u64 sector, val_t v, void *bytes)
{
	if (device_is_data(d, sector))
		data_bytes(v, bytes);
	else if (v)
		memcpy(bytes, (void *)v, 512);
	else
		memset(bytes, 0, 512);
}

void device_get_bytes(const struct device *d, u64 sector, void *bytes, u32 len, bool durable)
{
	u32 i;

	for (i = 0; i < len / 512; i++)
		sector_bytes(d, sector + i,
			     durable ? device_durable(d, sector + i) : device_read(d, sector + i),
			     bytes + i * 512);
}

bool device_get_sb(const struct device *d, u32 copy, struct hybrid_sb *sb, bool durable)
{
	static struct hybrid_superblock block;
	u64 sector = hybrid_sb_sector(d->nr ? device_member(d, durable) : device_size(d), copy);

	device_get_bytes(d, device_place(d, sector), &block, sizeof(block), durable);
	return !hybrid_sb_decode(&block, sector, device_size(d), sb, NULL);
}

/* ---- Versions ------------------------------------------------------------- */

static u32 new_version(struct volatiles *v)
{
	u32 i = v->free;

	if (i) {
		v->free = v->pool[i].older;
		return i;
	}
	if (v->nr >= v->cap) {
		v->cap = max_t(u32, 2 * v->cap, 1024);
		v->pool = xrealloc(v->pool, v->cap * sizeof(*v->pool));
	}
	return v->nr++;
}

static void push_version(struct device *d, u64 sector, val_t val, struct dreq *by)
{
	struct volatiles *v = d->v;
	u32 i = new_version(v);

	v->pool[i] = (struct version){ val, by, v->newest[sector], false };
	if (!v->newest[sector]) {
		if (v->nr_dirty == v->cap_dirty) {
			v->cap_dirty = max_t(u32, 2 * v->cap_dirty, 1024);
			v->dirty = xrealloc(v->dirty, v->cap_dirty * sizeof(*v->dirty));
		}
		v->dirty[v->nr_dirty++] = sector;
	}
	v->newest[sector] = i;
}

static void drop_chain(struct volatiles *v, u32 i)
{
	while (i) {
		u32 older = v->pool[i].older;

		v->pool[i].older = v->free;
		v->free = i;
		i = older;
	}
}

/* Version *link becomes durable; this and all older versions leave the chain. */
static void settle(struct device *d, u64 sector, u32 *link)
{
	u32 i = *link;

	device_set(d, sector, d->v->pool[i].val);
	*link = 0;
	drop_chain(d->v, i);
}

static void flush_sector(struct device *d, u64 sector, u64 before)
{
	u32 *link = &d->v->newest[sector];

	for (; *link; link = &d->v->pool[*link].older) {
		struct version *x = &d->v->pool[*link];

		if (x->by->done && x->by->done < before && !x->doomed) {
			settle(d, sector, link);
			return;
		}
	}
}

static void forget_clean(struct volatiles *v)
{
	u32 i, n = 0;

	for (i = 0; i < v->nr_dirty; i++)
		if (v->newest[v->dirty[i]])
			v->dirty[n++] = v->dirty[i];
	v->nr_dirty = n;
}

static void flush_device(struct device *d, u64 before)
{
	u32 i;

	for (i = 0; i < d->v->nr_dirty; i++)
		flush_sector(d, d->v->dirty[i], before);
	forget_clean(d->v);
}

static void settle_write(struct dreq *r)
{
	u32 i;

	for (i = 0; i < r->count; i++) {
		u32 *link = &r->dev->v->newest[r->sector + i];

		for (; *link; link = &r->dev->v->pool[*link].older)
			if (r->dev->v->pool[*link].by == r) {
				settle(r->dev, r->sector + i, link);
				break;
			}
	}
	forget_clean(r->dev->v);
}

/* Writes as the tools do: the bytes are durable on return. */
void device_set_bytes(struct device *d, u64 sector, const void *bytes, u32 len)
{
	char *copy = arena_alloc(&sim_arena, len);
	u32 i;

	memcpy(copy, bytes, len);
	for (i = 0; i < len / 512; i++) {
		drop_chain(d->v, d->v->newest[sector + i]);
		d->v->newest[sector + i] = 0;
		device_set(d, sector + i, (val_t)(copy + i * 512));
	}
	forget_clean(d->v);
}

/* ---- Requests ------------------------------------------------------------- */

static bool changes(const struct dreq *r)
{
	return r->kind != DREQ_READ && r->kind != DREQ_FLUSH;
}

bool device_add_bad(struct device *d, u64 sector)
{
	struct fault *f = &d->fault;

	if (f->nr_were_bad == SIM_MAX_BAD)
		return false;
	f->bad[f->nr_were_bad++] = sector;
	swap(f->bad[f->nr_bad], f->bad[f->nr_were_bad - 1]);
	f->nr_bad++;
	return true;
}

bool device_bad(const struct device *d, u64 sector, u32 count)
{
	u32 i;

	for (i = 0; i < d->fault.nr_bad; i++)
		if (d->fault.bad[i] >= sector && d->fault.bad[i] < sector + count)
			return true;
	return false;
}

static bool in_range(const struct dreq *r, u64 from, u64 to)
{
	return r->sector < to && r->sector + r->count > from;
}

/* A bad sector that is written can be read again. */
static void mend_bad(const struct dreq *r)
{
	struct fault *f = &r->dev->fault;
	u32 i = 0;

	while (i < f->nr_bad)
		if (!in_range(r, f->bad[i], f->bad[i] + 1)) {
			i++;
		} else {
			f->nr_bad--;
			swap(f->bad[i], f->bad[f->nr_bad]);
		}
}

static bool is_worn(const struct dreq *r)
{
	const struct fault *f = &r->dev->fault;
	u32 i;

	for (i = 0; i < f->nr_worn; i++)
		if (in_range(r, f->worn[i], f->worn[i] + 1))
			return true;
	return false;
}

static bool fails(struct dreq *r, struct rng *rng)
{
	struct fault *f = &r->dev->fault;
	u32 percent = r->kind == DREQ_READ ? f->read : r->kind == DREQ_FLUSH ? f->flush : f->write;

	if (loop_request_fails(r)) {
		f->dealt = true;
		return true;
	}
	if (f->dead || (r->kind == DREQ_READ && device_bad(r->dev, r->sector, r->count)))
		return true;
	if ((r->kind == DREQ_READ || r->kind == DREQ_WRITE) && is_worn(r))
		return true;
	if (!f->left || !percent)
		return false;
	if (r->kind != DREQ_FLUSH && f->to && !in_range(r, f->from, f->to))
		return false;
	if (!rng_chance(rng, percent))
		return false;
	if (f->left != U32_MAX)
		f->left--;
	return true;
}

static val_t value_of(struct dreq *r, u32 i, struct rng *rng)
{
	switch (r->kind) {
	case DREQ_ZEROES:
		return VAL_ZERO;
	case DREQ_DISCARD:
		/* Nobody may read the contents of the cache device there. */
		if (!r->dev->nr)
			return VAL(VAL_JUNK - 1, r->sector + i - r->dev->data_from, 0);
		if (r->dev->discard == 1 || (r->dev->discard == 2 && rng_below(rng, 2)))
			return VAL_ZERO;
		return 0;	/* the value stays */
	default:
		return r->vals[i];
	}
}

void dreq_submit(struct dreq *r, struct rng *rng)
{
	struct volatiles *v = r->dev->v;

	r->submitted = ++sim_now;
	r->done = 0;
	r->low = 0;
	r->high = 0;
	r->applied = r->kind == DREQ_FLUSH;
	r->error = fails(r, rng) ? -EIO : 0;
	if (r->error)
		coverage_error(r);
	else if (r->kind == DREQ_WRITE && !r->meta)
		r->lost = r->dev->fault.lose || r->dev->fault.misdirect;
	else if (r->kind == DREQ_WRITE && r->dev->fault.lose_meta)
		r->lost = r->dev->fault.lose_meta == meta_kind(sim_world, r);
	if (v->nr_inflight == v->cap_inflight) {
		v->cap_inflight = max_t(u32, 2 * v->cap_inflight, 64);
		v->inflight = xrealloc(v->inflight, v->cap_inflight * sizeof(*v->inflight));
	}
	r->place = v->nr_inflight;
	v->inflight[v->nr_inflight++] = r;
	if (changes(r))
		r->dev->writes++;
}

static void apply_sector(struct dreq *r, u32 i, struct rng *rng)
{
	val_t v;

	v = value_of(r, i, rng);
	if (!v && r->kind == DREQ_DISCARD)
		return;
	push_version(r->dev, r->sector + i, v, r);
}

#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define VECTORS __attribute__((optimize("O3"), target_clones("avx2", "default")))
#else
#define VECTORS
#endif

VECTORS static bool all_zero(const char *bytes, size_t len)
{
	u64 word, any = 0;
	size_t i;

	for (i = 0; i < len; i += sizeof(word)) {
		memcpy(&word, bytes + i, sizeof(word));
		any |= word;
	}
	return !any;
}

/* Most are zeroes already: reading costs less than writing. */
static void zero_sectors(void *bytes, u32 nr)
{
	if (!all_zero(bytes, nr * 512))
		memset(bytes, 0, nr * 512);
}

/* Reads metadata, much of which is zeroes, in long runs. */
static void read_bytes(struct dreq *r, u32 low, u32 high)
{
	u32 i, n;

	for (i = low; i < high; i += n) {
		val_t v = device_read(r->dev, r->sector + i);

		for (n = 1; !v && i + n < high && !device_read(r->dev, r->sector + i + n); n++)
			;
		if (v)
			sector_bytes(r->dev, r->sector + i, v, r->bytes + i * 512);
		else
			zero_sectors(r->bytes + i * 512, n);
	}
}

static void apply_part(struct dreq *r, u32 low, u32 high, struct rng *rng)
{
	u32 i;

	if (r->kind == DREQ_READ && r->meta) {
		read_bytes(r, low, high);
		return;
	}
	for (i = low; i < high; i++)
		if (r->kind == DREQ_READ)
			r->vals[i] = device_read(r->dev, r->sector + i);
		else
			apply_sector(r, i, rng);
}

/* Carries out @low ... @high, which extends the part already carried out. */
static void apply_range(struct dreq *r, u32 low, u32 high, struct rng *rng)
{
	apply_part(r, low, r->low, rng);
	apply_part(r, max(r->high, low), high, rng);
	r->low = min(r->low, low);
	r->high = max(r->high, high);
	r->applied = !r->low && r->high == r->count;
}

void dreq_apply(struct dreq *r, struct rng *rng, bool part)
{
	u32 low = 0, high = r->count;

	if (r->applied || r->dev->fault.dead)
		return;
	if (r->lost) {
		r->applied = true;
		return;
	}
	if (part) {
		if (r->low == r->high) {	/* no sector yet: start anywhere */
			r->low = rng_below(rng, r->count);
			r->high = r->low;
		}
		low = rng_below(rng, r->low + 1);
		high = r->high + rng_below(rng, r->count - r->high + 1);
	} else if (r->low == r->high) {
		r->low = 0;
		r->high = 0;
	}
	sim_now++;
	apply_range(r, low, high, rng);
}

static bool writes_sb(const struct dreq *r)
{
	const struct device *d = r->dev;

	return r->meta && r->kind == DREQ_WRITE &&
	       (r->sector == device_place(d, hybrid_sb_sector(device_size(d), 0)) ||
		r->sector == device_place(d, hybrid_sb_sector(device_size(d), 1)) ||
		(d->nr && r->sector == device_place(d, hybrid_sb_sector(device_member(d, false), 1))));
}

/* Where FUA is a flush after the write, nobody can tell which of them failed. */
static bool flush_failed(const struct dreq *r)
{
	return r->kind == DREQ_FLUSH || (r->dev->nr && writes_sb(r)) || (r->fua && r->dev->no_fua);
}

/* A flush failed: some of the data that it covered never becomes durable. */
static void doom(struct dreq *r, struct rng *rng)
{
	struct volatiles *v = r->dev->v;
	u32 i, k;

	for (i = 0; i < v->nr_dirty; i++)
		for (k = v->newest[v->dirty[i]]; k; k = v->pool[k].older)
			if (v->pool[k].by->done && v->pool[k].by->done < r->submitted)
				v->pool[k].doomed |= rng_chance(rng, 50);
}

static void leave_flight(struct dreq *r)
{
	struct volatiles *v = r->dev->v;
	struct dreq *last = v->inflight[--v->nr_inflight];

	v->inflight[r->place] = last;
	last->place = r->place;
}

void dreq_complete(struct dreq *r, struct rng *rng)
{
	if (r->dev->fault.dead)
		r->error = -EIO;
	if (r->error) {
		if (changes(r) && rng_below(rng, 2))
			dreq_apply(r, rng, true);
		/* A lying device loses nothing before the power goes */
		if (flush_failed(r) && r->dev->fault.dooms &&
		    r->dev->profile != DEVICE_LYING)
			doom(r, rng);
		r->dev->flush_failed |= flush_failed(r);
		leave_flight(r);
		/* The next flush covers this write */
		r->done = ++sim_now;
		return;
	}
	dreq_apply(r, rng, false);
	leave_flight(r);
	r->done = ++sim_now;
	if (r->lost)
		faults_write_lost(sim_world, r);
	if (r->kind == DREQ_WRITE && r->dev->fault.nr_bad)
		mend_bad(r);
	if (r->dev->profile == DEVICE_LYING)
		return;
	if (r->kind == DREQ_FLUSH)
		flush_device(r->dev, r->submitted);
	else if (changes(r) && (r->fua || r->dev->profile == DEVICE_PROTECTED))
		settle_write(r);
}

/* ---- Power cut and reset --------------------------------------------------- */

static void forget_volatile(struct volatiles *v)
{
	u32 i;

	for (i = 0; i < v->nr_dirty; i++)
		v->newest[v->dirty[i]] = 0;
	v->nr_dirty = 0;
	v->nr_inflight = 0;
	v->nr = 1;
	v->free = 0;
}

/* Lists the writes with volatile sectors, oldest first. */
u32 device_volatile_writes(struct device *d, struct dreq **list, u32 max)
{
	struct volatiles *v = d->v;
	u32 i, j, k, n = 0;

	for (i = 0; i < v->nr_inflight; i++) {
		if (!changes(v->inflight[i]))
			continue;
		if (n == max)
			return max + 1;
		list[n++] = v->inflight[i];
	}
	for (i = 0; i < v->nr_dirty; i++) {
		for (j = v->newest[v->dirty[i]]; j; j = v->pool[j].older) {
			for (k = 0; k < n && list[k] != v->pool[j].by; k++)
				;
			if (k < n)
				continue;
			if (n == max)
				return max + 1;
			list[n++] = v->pool[j].by;
		}
	}
	return n;
}

static bool survives(struct dreq *by, enum cut how, u64 mask, struct dreq **list, u32 nr)
{
	u32 k;

	if (how == CUT_COMPLETED)
		return by->done;
	for (k = 0; k < nr; k++)
		if (list[k] == by)
			return mask >> k & 1;
	return false;
}

/* The rest of each write in flight lands, as far as it survives. */
static void land_inflight(struct device *d, enum cut how, u64 mask, struct dreq **list, u32 nr,
			  struct rng *rng)
{
	u32 i;

	for (i = 0; i < d->v->nr_inflight; i++) {
		struct dreq *r = d->v->inflight[i];

		if (!changes(r) || r->applied || d->fault.dead)
			continue;
		if (how == CUT_ALL || (how == CUT_WRITES && survives(r, how, mask, list, nr)))
			dreq_apply(r, rng, false);
		else if (how == CUT_SECTORS && rng_below(rng, 3))
			dreq_apply(r, rng, rng_below(rng, 2));
	}
}

static void cut_sector(struct device *d, u64 sector, enum cut how, u64 mask,
		       struct dreq **list, u32 nr, struct rng *rng)
{
	struct volatiles *v = d->v;
	u32 i, n = 0, pick;

	if (how == CUT_SECTORS) {
		for (i = v->newest[sector]; i; i = v->pool[i].older)
			n += !v->pool[i].doomed;
		pick = rng_below(rng, n + 1);
		for (i = v->newest[sector]; i; i = v->pool[i].older)
			if (!v->pool[i].doomed && !pick--)
				break;
	} else {
		for (i = v->newest[sector]; i; i = v->pool[i].older)
			if (!v->pool[i].doomed &&
			    (how == CUT_ALL || survives(v->pool[i].by, how, mask, list, nr)))
				break;
	}
	if (i)
		device_set(d, sector, v->pool[i].val);
}

/*
 * In a crash state (undo_on) the versions and the state of the requests in
 * flight belong to the world, and must be unchanged afterwards.
 */
void device_cut(struct device *d, enum cut how, u64 mask, struct rng *rng)
{
	struct dreq *list[64], **inflight;
	u32 nr = 0, i, n = 0;
	struct dreq *saved = NULL;

	if (how == CUT_WRITES)
		nr = min(device_volatile_writes(d, list, 64), 64U);
	if (how != CUT_NONE) {
		inflight = d->v->inflight;
		n = d->v->nr_inflight;
		saved = arena_alloc(&sim_arena, (n + 1) * sizeof(*saved));
		for (i = 0; i < n; i++)
			saved[i] = *inflight[i];
		land_inflight(d, how, mask, list, nr, rng);
		for (i = 0; i < d->v->nr_dirty; i++)
			cut_sector(d, d->v->dirty[i], how, mask, list, nr, rng);
	}
	if (!undo_on || d->v != &d->vol[0]) {
		forget_volatile(d->v);
		return;
	}
	/* Take back the writes that landed only in this crash state */
	for (i = 0; i < n; i++) {
		struct dreq *r = d->v->inflight[i];
		u32 k;

		if (!changes(r))
			continue;
		for (k = 0; k < r->count; k++) {
			u32 *newest = &d->v->newest[r->sector + k], top = *newest;

			if (k >= saved[i].low && k < saved[i].high)
				continue;
			while (top && d->v->pool[top].by != r) {
				newest = &d->v->pool[top].older;
				top = *newest;
			}
			if (!top)
				continue;
			*newest = d->v->pool[top].older;
			d->v->pool[top].older = d->v->free;
			d->v->free = top;
		}
		*r = saved[i];
	}
	if (n)
		forget_clean(d->v);
}

/* The machine was reset: the device may carry out the rest of the request, or some of it. */
static void land(struct dreq *r, struct rng *rng)
{
	if (changes(r) && !r->dev->fault.dead) {
		switch (rng_below(rng, 3)) {
		case 0:
			dreq_apply(r, rng, true);
			break;
		case 1:
			dreq_apply(r, rng, false);
		}
	}
	/* The next flush covers this write */
	r->done = ++sim_now;
}

void device_reset(struct device *d, struct rng *rng)
{
	struct volatiles *v = d->v;

	while (v->nr_inflight) {
		struct dreq *r = v->inflight[v->nr_inflight - 1];

		leave_flight(r);
		land(r, rng);
	}
	device_drop_doomed(d);
}

void device_drop_doomed(struct device *d)
{
	struct volatiles *v = d->v;
	u32 i;

	for (i = 0; i < v->nr_dirty; i++) {
		u32 *link = &v->newest[v->dirty[i]];

		while (*link) {
			u32 k = *link;

			if (!v->pool[k].doomed) {
				link = &v->pool[k].older;
				continue;
			}
			*link = v->pool[k].older;
			v->pool[k].older = v->free;
			v->free = k;
		}
	}
	forget_clean(v);
}

void device_clear(struct device *d, u64 sector)
{
	struct volatiles *v = d->v;
	u32 *link = &v->newest[sector];

	while (*link) {
		u32 k = *link;

		*link = v->pool[k].older;
		v->pool[k].older = v->free;
		v->free = k;
	}
	forget_clean(v);
	device_set(d, sector, 0);
}

void device_enter_branch(struct device *d)
{
	d->world_data_to = d->data_to;
	d->v = &d->vol[1];
	forget_volatile(d->v);
}

/* Copies versions of the world, oldest first, with the requests that wrote them. */
static void copy_chain(struct device *d, u64 sector, u32 i, struct dreq *landed)
{
	struct version *x = &d->vol[0].pool[i];

	if (!i)
		return;
	copy_chain(d, sector, x->older, landed);
	if (!x->doomed)
		if (!x->doomed)
		push_version(d, sector, x->val, x->by->done ? x->by : &landed[x->by->place]);
}

void device_enter_branch_alive(struct device *d, struct rng *rng)
{
	struct volatiles *world = &d->vol[0];
	struct dreq *landed = arena_alloc(&sim_arena, (world->nr_inflight + 1) * sizeof(*landed));
	u32 i;

	device_enter_branch(d);
	for (i = 0; i < world->nr_inflight; i++)
		landed[i] = *world->inflight[i];
	for (i = 0; i < world->nr_dirty; i++)
		copy_chain(d, world->dirty[i], world->newest[world->dirty[i]], landed);
	for (i = 0; i < world->nr_inflight; i++)
		land(&landed[i], rng);
}

void device_leave_branch(struct device *d)
{
	d->data_to = d->world_data_to;
	forget_volatile(d->v);
	d->v = &d->vol[0];
}
