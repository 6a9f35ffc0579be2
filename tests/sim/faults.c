// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The fault plan, and the fault atlas: the errors that each fault excuses.
 *
 * All faults are drawn from a generator of their own, so that a seed without
 * faults means the same run when faults are added.
 *
 * An error of a device excuses errors of users' I/O, but only these:
 *   - An error of the origin excuses errors of its own volume.
 *   - A bad sector of the origin excuses errors of reads of this sector.
 *   - An error of the cache device, whose worn sectors fail for good, excuses errors
 *     of volumes that ever were writeback (P5).  It excuses reads and writes only
 *     where the origin does not durably have the data, or the cache has dirty data
 *     on record (S8).  A write with FUA also fails if it went to the cache, and its
 *     commit cannot end.
 * Reads and writes without an error are judged as without faults (S1, S2, S7, S9).
 *
 * Rotten data (bits flipped, writes lost, or gone elsewhere) excuses one value of
 * one sector: the value that this copy holds now, until the sector is durably written
 * again.  A device that lies about flushes excuses nothing before the power goes,
 * and everything afterwards.  A lost write of metadata excuses nothing in this life.
 * In the next life, with which the run ends, it excuses the effects listed in rot.c.
 */
#include <stdlib.h>

#include "sim.h"
#include "engine-internal.h"
#include "script.h"

/* ---- Errors -------------------------------------------------------------------- */

/* Faults of one device and one kind of request, for a while. */
static void deal_simple(struct world *w)
{
	struct device *d = w->dev[w->p.fault_kind < 4 ? 0 : 1];

	script_log(w, LINE_FAULT, NULL, w->frng.state, 0);
	d->fault.left = 1 + rng_below(&w->rng, 3);
	switch (w->p.fault_kind) {
	case 1:
	case 4:
		d->fault.read = 20;
		break;
	case 2:
	case 5:
		d->fault.write = 20;
		d->fault.flush = 5;
		break;
	case 3:
		d->fault.dead = true;
	}
	d->fault.dealt = true;
	w->faulty = true;
	w->pool_faulty |= !d->nr;
	trace(w, 16, d->nr, w->p.fault_kind, "fault %u on dev%u", w->p.fault_kind, d->nr);
}

/* Draws a sector that users use. */
static u64 used_sector(struct world *w, const struct device *d)
{
	u64 n = d->nr ? w->vol[d->nr - 1]->hot : d->data_to - d->data_from;

	return d->data_from + rng_below(&w->frng, n);
}

/* A sector of the cache device's data will never be read or written again. */
static void deal_worn(struct world *w)
{
	struct device *d = w->dev[0];
	struct fault *f = &d->fault;
	u64 sector = used_sector(w, d);

	w->faulty = true;
	w->pool_faulty = true;
	if (f->nr_worn < SIM_MAX_BAD)
		f->worn[f->nr_worn++] = sector;
	trace(w, 16, d->nr, sector, "sector %llu of dev%u is worn", (unsigned long long)sector,
	      d->nr);
}

static void deal_any(struct world *w)
{
	u64 state = w->frng.state;
	struct device *d = w->dev[rng_below(&w->frng, w->nr_dev)];
	u32 what = rng_below(&w->frng, 8), percent = 1 + rng_below(&w->frng, 100);
	struct fault *f = &d->fault;
	bool bad = what == 4 || what == 5;

	script_log(w, LINE_FAULT, NULL, state, 0);
	w->faulty = true;
	w->pool_faulty |= !d->nr;
	f->dooms = rng_chance(&w->frng, 70);
	f->left = rng_chance(&w->frng, 60) ? 1 + rng_below(&w->frng, 3) : U32_MAX;
	if (rng_chance(&w->frng, 40)) {
		f->from = used_sector(w, d);
		f->to = f->from + (1 << rng_below(&w->frng, 8));
	} else {
		f->from = 0;
		f->to = d->sectors;
	}
	switch (what) {
	case 0:
		f->read = percent;
		break;
	case 1:
		f->write = percent;
		break;
	case 2:
		f->flush = percent;
		break;
	case 3:
		f->read = percent;
		f->write = percent;
		f->flush = percent / 4;
		break;
	case 4:
	case 5:
		device_add_bad(d, used_sector(w, d));
		break;
	case 6:
		f->dead = true;
		break;
	default:	/* the device works again */
		device_heal(d, false);
	}
	f->dealt |= what != 7 && !bad;
	trace(w, 16, d->nr, what, "fault %u of dev%u, %u%%, %u times, at %llu to %llu", what,
	      d->nr, percent, f->left, (unsigned long long)f->from, (unsigned long long)f->to);
}

void faults_deal(struct world *w)
{
	u64 state = w->frng.state;

	if (collide_deal(w))
		return;
	if (w->p.worn && rng_chance(&w->frng, w->p.worn)) {
		script_log(w, LINE_FAULT, NULL, state, 0);
		deal_worn(w);
	} else {
		w->frng.state = state;
		deal_any(w);
	}
}

void faults_replay(struct world *w, u64 state)
{
	w->frng.state = state;
	if (w->p.fault_kind == FAULTS_PLANNED)
		faults_deal(w);
	else if (w->p.fault_kind)
		deal_simple(w);
}

/* ---- Damaged data ------------------------------------------------------------------ */

/* Which volume does the sector belong to?  @at: the sector within the volume. */
static struct volume *volume_at(struct world *w, const struct device *d, u64 sector, u64 *at)
{
	u64 offset = sector - d->data_from, b = offset >> w->g->block_shift, key;
	const struct hybrid_set *s;
	u32 i;

	if (d->nr) {
		*at = offset;
		return w->vol[d->nr - 1];
	}
	s = &w->e->map.set[b / w->g->set_size];
	if (!s->flags[b % w->g->set_size])
		return NULL;
	key = s->key[b % w->g->set_size];
	*at = (from_oblock(hybrid_key_block(key)) << w->g->block_shift) +
	      (offset & (w->g->block_sectors - 1)) - w->hole;
	for (i = 0; i < w->nr_vol; i++)
		if (w->vol[i]->id == hybrid_key_volume(key))
			return w->vol[i];
	return NULL;
}

/* Excuses all values that the sector of the volume's origin may hold after a crash. */
static void excuse_origin(struct volume *vol, u64 at)
{
	const struct device *d = vol->origin;
	u64 sector = d->data_from + at;
	u32 i;

	if (at >= vol->oracle->sectors)
		return;
	oracle_rot(vol->oracle, at, device_durable(d, sector));
	for (i = d->v->newest[sector]; i; i = d->v->pool[i].older)
		oracle_rot(vol->oracle, at, d->v->pool[i].val);
}

/* Where one sector of the data under an intent is damaged, a crash drops all of it. */
static void excuse_intended(struct world *w, u64 sector, struct volume *vol, u64 at)
{
	u64 offset = sector - w->g->data_sector, b = offset >> w->g->block_shift;
	u64 in_block = offset & (w->g->block_sectors - 1);
	const struct hybrid_set *s = &w->e->map.set[b / w->g->set_size];
	const struct hybrid_intended *x;
	u32 i;

	hlist_for_each_entry(x, &s->intended, node) {
		if (x->i != b % w->g->set_size ||
		    !(x->granules >> (in_block >> w->g->granule_shift) & 1))
			continue;
		w->intended_lost = true;
		for (i = 0; i < w->g->block_sectors; i++)
			if (x->granules >> (i >> w->g->granule_shift) & 1)
				excuse_origin(vol, at - in_block + i);
	}
}

/* The sector of the device holds @val: reads may return this value, and no other. */
static void excuse_sector(struct world *w, const struct device *d, u64 sector, val_t val)
{
	struct volume *vol;
	u64 at;

	vol = volume_at(w, d, sector, &at);
	if (!vol || at >= vol->oracle->sectors)
		return;
	oracle_rot(vol->oracle, at, val);
	if (!d->nr)
		excuse_intended(w, sector, vol, at);
}

/* Is the sector's value final: nothing volatile, and no request under way? */
static bool at_rest(const struct device *d, u64 sector)
{
	u32 i;

	for (i = 0; i < d->v->nr_inflight; i++)
		if (d->v->inflight[i]->sector <= sector &&
		    sector < d->v->inflight[i]->sector + d->v->inflight[i]->count)
			return false;
	return !d->v->newest[sector];
}

static void damage_sector(struct world *w, struct device *d, u64 sector, val_t val)
{
	if (sector >= d->data_to || !at_rest(d, sector))
		return;
	trace(w, 19, d->nr, sector, "dev%u %llu is %s now", d->nr, (unsigned long long)sector,
	      val_name(val));
	device_set(d, sector, val);
	excuse_sector(w, d, sector, val);
}

/* Excuses the sector's present value, and the values that a power cut may leave. */
static void excuse_content(struct world *w, const struct device *d, u64 sector)
{
	u32 i;

	excuse_sector(w, d, sector, device_durable(d, sector));
	for (i = d->v->newest[sector]; i; i = d->v->pool[i].older)
		excuse_sector(w, d, sector, d->v->pool[i].val);
}

enum meta_kind meta_kind(const struct world *w, const struct dreq *r)
{
	const struct hybrid_geometry *g = w->g;

	if (r->dev->nr || r->sector < g->root_sector || r->sector >= g->data_sector)
		return r->sector == hybrid_sb_sector(r->dev->sectors, 0) ||
		       r->sector == hybrid_sb_sector(r->dev->sectors, 1) ?
		       META_SUPERBLOCK : META_NOTHING;
	if (r->sector < g->index_sector)
		return META_ROOT;
	if (r->sector < g->leaf_sector)
		return META_INDEX;
	if (r->sector >= g->intent_sector)
		return META_INTENT;
	if (r->sector >= g->journal_sector)
		return META_JOURNAL;
	return (r->sector - g->leaf_sector) / HYBRID_META_BLOCK_SECTORS % g->nr_leaves <
	       HYBRID_VOLUME_LEAVES ? META_VOLUMES : META_MAP;
}

void faults_lose(struct world *w, enum meta_kind kind)
{
	u32 i;

	script_log(w, LINE_LOSE, NULL, 0, kind);
	for (i = 0; i < w->nr_dev; i++)
		w->dev[i]->fault.lose_meta = kind;
	trace(w, 19, kind, 0, "a write of metadata will be lost, of kind %u", kind);
}

/* A write of metadata was lost, and no other will be.  From now on, crash states are more frequent. */
static void meta_lost(struct world *w, struct dreq *r)
{
	const struct hybrid_block_header *header = r->bytes;
	u32 i;

	for (i = 0; i < w->nr_dev; i++)
		w->dev[i]->fault.lose_meta = META_NOTHING;
	w->lost_meta = meta_kind(w, r);
	if (w->lost_meta == META_JOURNAL || w->lost_meta == META_INTENT) {
		w->lost_entry = le64_to_cpu(header->number);
		w->lost_epoch = le64_to_cpu(header->epoch);
	}
	/* The linter takes each acknowledged write for carried out. */
	if (w->lint)
		linter_free(w->lint);
	w->lint = NULL;
	if (w->p.cut_every)
		w->p.cut_every = min(w->p.cut_every, 4U);
}

/* A write was acknowledged but not carried out, or carried out elsewhere. */
void faults_write_lost(struct world *w, struct dreq *r)
{
	struct device *d = r->dev;
	u64 victim = used_sector(w, d);
	bool elsewhere = d->fault.misdirect;
	u32 i;

	if (r->meta)
		elsewhere = false;
	else if (elsewhere)
		d->fault.misdirect--;
	else if (d->fault.lose)
		d->fault.lose--;
	trace(w, 19, d->nr, r->sector, "dev%u %llu+%u is not written", d->nr,
	      (unsigned long long)r->sector, r->count);
	if (r->meta) {
		meta_lost(w, r);
		return;
	}
	for (i = 0; i < r->count; i++) {
		excuse_content(w, d, r->sector + i);
		if (elsewhere)
			damage_sector(w, d, victim + i, r->vals[i]);
	}
}

static void damage_data(struct world *w)
{
	struct device *d = w->dev[rng_below(&w->frng, w->nr_dev)];
	u64 sector = used_sector(w, d);

	switch (rng_below(&w->frng, 3)) {
	case 0:
		damage_sector(w, d, sector, VAL(VAL_ROTTEN, sector, 1));
		break;
	case 1:
		d->fault.lose++;
		break;
	default:
		d->fault.misdirect++;
	}
}

void faults_event(struct world *w)
{
	if (w->rotting && !rng_below(&w->frng, 40))
		damage_data(w);
	if (w->losing && !rng_below(&w->frng, 60)) {
		w->losing = false;
		faults_lose(w, 1 + rng_below(&w->frng, NR_META_KINDS - 1));
	}
	if (w->p.fault_kind == FAULTS_PLANNED) {
		if (!rng_below(&w->frng, 80))
			faults_deal(w);
	} else if (w->p.fault_kind && !rng_below(&w->rng, 60)) {
		deal_simple(w);
	}
}

/*
 * The volume is opened again in the same life.  If a flush of its origin failed,
 * this is as after a crash: all data that no flush covers may be gone.
 */
void faults_reopen(struct world *w, struct volume *vol)
{
	if (!vol->origin->flush_failed)
		return;
	trace(w, 17, vol->id, 0, "what failed flushes of volume %u lost is gone", vol->id);
	vol->origin->flush_failed = false;
	device_drop_doomed(vol->origin);
	oracle_crash(vol->oracle);
}

/* The machine comes up, perhaps without one of its devices. */
void faults_boot(struct world *w)
{
	struct line l;

	if (script_play) {
		if (script_take(w, LINE_FAULT, LINE_FAULT, &l))
			faults_replay(w, l.sector);
		return;
	}
	if (w->p.fault_kind == FAULTS_PLANNED && rng_chance(&w->frng, 15))
		faults_deal(w);
	/* Loses a write of the recovery, or of an activation. */
	if (w->losing && w->step && rng_chance(&w->frng, 30)) {
		w->losing = false;
		faults_lose(w, 1 + rng_below(&w->frng, NR_META_KINDS - 1));
	}
}

/* Draws the profile of each device. */
void faults_devices(struct world *w)
{
	u32 i;

	for (i = 0; sim_rot && i < w->nr_dev; i++)
		w->dev[i]->profile = rng_chance(&w->frng, 25) ? DEVICE_PROTECTED : DEVICE_VOLATILE;
	if (w->lying)
		w->dev[rng_below(&w->frng, w->nr_dev)]->profile = DEVICE_LYING;
}

static void draw_rot(struct world *w)
{
	u32 what = rng_below(&w->frng, 10);

	w->rotting = what < 3;
	w->lying = what == 3;
	w->losing = what == 4;
}

void faults_draw(struct world *w)
{
	struct rng r;

	w->frng = rng_fork(&w->rng, 44);
	if (sim_faults && rng_chance(&w->frng, 50))
		w->p.fault_kind = FAULTS_PLANNED;
	if (sim_rot)
		draw_rot(w);
	r = rng_fork(&w->rng, 45);
	if (!sim_rot && w->p.fault_kind == FAULTS_PLANNED && rng_chance(&r, 25))
		w->p.worn = 50;
}

/* ---- The atlas ------------------------------------------------------------------- */

bool faults_of_volume(const struct world *w, const struct volume *vol)
{
	return w->dev[0]->fault.dealt || vol->origin->fault.dealt;
}

static bool was_bad(const struct device *d, u64 sector, u32 count)
{
	u32 i;

	for (i = 0; i < d->fault.nr_were_bad; i++)
		if (d->fault.bad[i] >= sector && d->fault.bad[i] < sector + count)
			return true;
	return false;
}

/* Does the origin durably have all data that may be read of the granules around the I/O? */
bool faults_clean(const struct world *w, const struct uio *u)
{
	u64 mask = w->g->granule_sectors - 1, s = u->sector & ~mask;
	const struct device *d = u->vol->origin;
	u64 end = min((u->sector + u->count + mask) & ~mask, d->data_to - d->data_from);

	for (; s < end; s++)
		if (!oracle_settled(u->vol->oracle, s, device_durable(d, d->data_from + s),
				    u->version))
			return false;
	return w->lint && !linter_dirty(w->lint, u->vol, u->sector, u->count);
}

/*
 * Nobody can tell whether an intent counts whose data cannot be read; and a loss of data that had
 * been flushed is noticed.
 */
bool faults_refuse(const struct world *w, const char *why)
{
	if (!strcmp(why, "data under an intent was lost"))
		return w->intended_lost;
	return w->intended_unread && !strcmp(why, "data under an intent cannot be read");
}

/* May this I/O end with an error? */
bool faults_excuse(const struct world *w, const struct uio *u)
{
	const struct device *origin = u->vol->origin, *cache = w->dev[0];
	bool read = u->io.type == HYBRID_IO_READ;

	if (w->unjudged || u->vol->unjudged || origin->fault.dealt)
		return true;
	if (read && was_bad(origin, origin->data_from + u->sector, u->count))
		return true;
	if (!cache->fault.dealt && !cache->fault.nr_were_bad && !cache->fault.nr_worn)
		return false;
	if (!u->vol->ever_writeback)
		return false;
	if (!read && u->io.type != HYBRID_IO_WRITE)
		return true;
	if ((u->io.flags & HYBRID_IO_FUA) && u->cached)
		return true;
	/* Its intent may be durable: then nothing may go to the origin. */
	if (u->intended && hybrid_engine_failed(w->e))
		return true;
	return !u->clean || !faults_clean(w, u);
}
