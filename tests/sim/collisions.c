// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * --collisions: makes rare coincidences frequent.
 *
 * Each of these orders once hid a defect from many thousand seeds:
 * - writes that begin or end within a granule, beside other writes of the same granules;
 * - flushes that need not wait, while flushes of other volumes wait for an origin;
 * - volumes that are closed while their pool stops;
 * - origins whose superblock cannot be written when the pool has just failed.
 */
#include <stdio.h>

#include "sim.h"
#include "engine-internal.h"
#include "coverage.h"
#include "fibers.h"
#include "script.h"

/* The coincidence that a seed makes frequent: profile.collisions. */
enum collision { COLLIDE_NONE, COLLIDE_PARTS, COLLIDE_FLUSHES, COLLIDE_STOPS, COLLIDE_ALONE, NR_COLLISIONS };

static const char * const collision_name[NR_COLLISIONS] = {
	[COLLIDE_PARTS] = "parts", [COLLIDE_FLUSHES] = "flushes", [COLLIDE_STOPS] = "stops",
	[COLLIDE_ALONE] = "alone",
};
static u64 met[NR_COLLISIONS];

/* ---- Profile ------------------------------------------------------------------ */

static void collide_parts(struct profile *p, struct rng *r)
{
	p->block_sectors = 16 << rng_below(r, 4);
	p->overlap = true;
	p->max_ios += 6;
	p->weight[EV_READ] += 60;
	p->weight[EV_WRITE] += 100;
	p->weight[EV_MODE] += 5 << rng_below(r, 4);
	p->weight[EV_EVICT] += 10 << rng_below(r, 4);
}

static void collide_flushes(struct profile *p, struct rng *r)
{
	p->block_sectors = 16 << rng_below(r, 3);
	p->cache_blocks = 64 << rng_below(r, 3);
	p->hot_blocks = 16 << rng_below(r, 3);
	p->volumes = 2 + rng_below(r, SIM_FEW_VOLUMES - 1);
	p->max_ios += 6;
	p->run_percent = 0;
	p->config.commit_interval = 100 << rng_below(r, 4);
	p->weight[EV_READ] += 100;
	p->weight[EV_WRITE] += 200;
	p->weight[EV_ZEROES] += 20 << rng_below(r, 3);
	p->weight[EV_FLUSH] += 10 << rng_below(r, 3);
	p->weight[EV_TICK] += 5 << rng_below(r, 3);
	p->weight[EV_FUA] = 0;
}

static void collide_stops(struct profile *p, struct rng *r)
{
	p->volumes = 1 + rng_below(r, SIM_FEW_VOLUMES);
	p->steps = min(p->steps, 800U);
	p->weight[EV_WRITE] += 60;
	p->weight[EV_RESTART] = 10 + rng_below(r, 20);
	p->aim = PHASE_CLOSE;
	p->aims = 40;
}

static void collide_alone(struct profile *p, struct rng *r)
{
	p->volumes = 1 + rng_below(r, SIM_FEW_VOLUMES);
	p->fault_kind = FAULTS_PLANNED;
	p->weight[EV_WRITE] += 60;
	p->weight[EV_REOPEN] = 5 + rng_below(r, 20);
}

void collide_draw(struct profile *p, struct rng r, char mode)
{
	static void (*const draw[NR_COLLISIONS])(struct profile *p, struct rng *r) = {
		[COLLIDE_PARTS] = collide_parts, [COLLIDE_FLUSHES] = collide_flushes,
		[COLLIDE_STOPS] = collide_stops, [COLLIDE_ALONE] = collide_alone,
	};
	u32 steps = p->steps;

	/* The last kind needs faults. */
	p->collisions = 1 + rng_below(&r, sim_faults ? NR_COLLISIONS - 1 : NR_COLLISIONS - 2);
	draw[p->collisions](p, &r);
	if (mode == 'B')
		p->steps = min(p->steps, steps);
}

/* ---- Parts of granules ---------------------------------------------------------- */

/* Draws some granules of one of few blocks, without a part of the first, or of the last. */
bool collide_range(struct world *w, struct volume *vol, u64 *sector, u32 *count)
{
	u32 bs = w->p.block_sectors, gs = w->g->granule_sectors, first, cut;

	if (w->p.collisions != COLLIDE_PARTS || rng_below(&w->rng, 8) == 0)
		return false;
	first = rng_below(&w->rng, bs / gs);
	*sector = (u64)rng_below(&w->rng, 3) * bs + first * gs;
	*count = gs * (1 + rng_below(&w->rng, min(bs / gs - first, 3U)));
	if (rng_below(&w->rng, 2)) {
		cut = 1 + rng_below(&w->rng, gs - 1);
		*sector += cut;
		*count -= cut;
	}
	if (*count > 1 && rng_below(&w->rng, 4) == 0)
		*count -= rng_below(&w->rng, min(gs, *count));
	return *sector + *count <= vol->hot;
}

/* A write of a part of one granule, and of another one to which a write is under way? */
void collide_submitted(struct world *w, const struct uio *u)
{
	u64 mask = w->g->granule_sectors - 1, from = u->sector & ~mask;
	u64 to = (u->sector + u->count + mask) & ~mask;
	const struct uio *x;

	if (u->io.type != HYBRID_IO_WRITE || to - from <= mask + 1 || !((u->sector | u->count) & mask))
		return;
	list_for_each_entry(x, &w->uios, link)
		if (x != u && x->vol == u->vol && x->io.type == HYBRID_IO_WRITE && x->sector < to &&
		    from < x->sector + x->count) {
			met[COLLIDE_PARTS]++;
			return;
		}
}

/* The write was acknowledged: a read from now on must return its data, or newer data. */
void collide_written(struct world *w, const struct uio *u)
{
	if (w->branch || w->p.collisions != COLLIDE_PARTS || u->io.type != HYBRID_IO_WRITE)
		return;
	w->ask = u->vol;
	w->ask_sector = u->sector;
	w->ask_count = u->count;
}

static bool ask(struct world *w)
{
	struct volume *vol = w->ask;
	u32 at, count;

	w->ask = NULL;
	if (!vol->v || vol->closing || vol->suspended || rng_below(&w->rng, 3) == 0)
		return false;
	at = rng_below(&w->rng, w->ask_count);
	count = 1 + rng_below(&w->rng, min(w->ask_count - at, w->g->granule_sectors));
	user_io(w, EV_READ, vol, w->ask_sector + at, count);
	return true;
}

/* ---- Flushes -------------------------------------------------------------------- */

/* A flush was acknowledged: its promise is checked before the disks change again. */
void collide_flushed(struct world *w, struct volume *vol)
{
	struct hybrid_io *io;

	if (w->branch || (w->p.collisions != COLLIDE_FLUSHES && !w->p.small))
		return;
	w->look = max(w->look, 1U);
	list_for_each_entry(io, &w->e->commit.waiting, link)
		if (io->volume != vol->v) {
			met[COLLIDE_FLUSHES]++;
			w->look = 4;
			return;
		}
}

/* Writes are slow, so that reads come first; or flushes of origins are, so that others flush meanwhile. */
bool collide_slow(struct world *w, const struct dreq *r)
{
	if (w->branch)
		return false;
	if (w->p.collisions == COLLIDE_PARTS)
		return r->kind == DREQ_WRITE && rng_below(&w->rng, 2);
	return w->p.collisions == COLLIDE_FLUSHES && r->kind == DREQ_FLUSH && r->dev->nr;
}

/* Finds a clean granule of the volume in a closed region: a write there opens the region. */
static bool find_clean(struct world *w, const struct hybrid_volume *v, u64 *sector)
{
	struct hybrid_engine *e = w->e;
	u32 n = e->map.set_size, from = rng_below(&w->rng, n), k;
	bool fibers = fibers_stop(), found = false;

	for (k = 0; k < n && !found; k++) {
		struct hybrid_set *s = &e->map.set[0];
		u32 i = (from + k) % n;
		u64 clean = block_mask(e, s, MASK_JVALID, i) & ~block_mask(e, s, MASK_JDIRTY, i);

		found = (s->flags[i] & BLOCK_MAPPED) && clean &&
			!(s->regions.jopen & region_bit(i)) &&
			hybrid_key_volume(s->key[i]) == v->id;
		if (found)
			*sector = (from_oblock(hybrid_key_block(s->key[i])) << w->g->block_shift) +
				  __ffs64(clean) * w->g->granule_sectors - w->hole;
	}
	fibers_go_on(fibers);
	return found;
}

/* A flush waits for its origin: first its volume opens a region, then another one flushes. */
static void beside_gated(struct world *w)
{
	struct hybrid_io *io = list_first_entry(&w->e->commit.waiting, struct hybrid_io, link);
	struct volume *vol = container_of(io, struct uio, io)->vol;
	bool opened = w->e->stats.journal_writes != w->gated_at;
	u32 what = rng_below(&w->rng, 8);
	bool flush = opened ? what > 2 : !what;
	u64 sector;

	if (flush)
		vol = w->vol[rng_below(&w->rng, w->nr_vol)];
	if (!vol->v || vol->closing || vol->suspended)
		do_event(w, EV_STEP);
	else if (flush)
		user_io(w, EV_FLUSH, vol, 0, 0);
	else if (what > 3 && find_clean(w, vol->v, &sector) &&
		 sector + w->g->granule_sectors <= vol->hot)
		user_io(w, EV_WRITE, vol, sector, w->g->granule_sectors);
	else
		do_event(w, EV_STEP);
}

bool collide_event(struct world *w)
{
	if (w->ask)
		return ask(w);
	if (w->p.collisions != COLLIDE_FLUSHES || list_empty(&w->e->commit.waiting)) {
		w->gated_at = w->e->stats.journal_writes;
		return false;
	}
	beside_gated(w);
	return true;
}

void collide_before_change(struct world *w)
{
	u32 samples = w->look;

	if (!samples || w->branch)
		return;
	w->look = 0;
	crash_explore(w, samples);
}

/* ---- Stops ---------------------------------------------------------------------- */

/* The pool stops, and somebody takes a volume away meanwhile. */
void collide_stop(struct world *w)
{
	struct volume *vol;

	if (w->p.collisions != COLLIDE_STOPS || w->branch || rng_below(&w->rng, 4))
		return;
	vol = w->vol[rng_below(&w->rng, w->nr_vol)];
	if (!vol->v || !vol->suspended)
		return;
	met[COLLIDE_STOPS] += w->e->cp.phase != CP_NONE;
	vol->taken = true;
	world_close(w, vol);
}

/* The pool runs again: the volumes come back. */
void collide_restarted(struct world *w)
{
	u32 i;

	for (i = 0; i < w->nr_vol && !w->crashed && !w->stop; i++) {
		struct volume *vol = w->vol[i];

		if (!vol->taken)
			continue;
		vol->taken = false;
		faults_reopen(w, vol);
		open_volume(w, vol);
	}
}

/* ---- Origins that cannot go on alone ---------------------------------------------- */

/* The cache dies, and then an origin does not take the superblock that must be written first. */
bool collide_deal(struct world *w)
{
	struct device *d = w->dev[0];

	if (w->p.collisions != COLLIDE_ALONE)
		return false;
	script_log(w, LINE_FAULT, NULL, w->frng.state, 0);
	w->faulty = true;
	if (!rng_below(&w->frng, 8)) {
		device_heal(w->dev[rng_below(&w->frng, w->nr_dev)], false);
	} else if (!d->fault.dead && rng_below(&w->frng, 2)) {
		d->fault.dead = true;
		d->fault.dealt = true;
		w->pool_faulty = true;
	} else {
		d = w->dev[1 + rng_below(&w->frng, w->nr_vol)];
		d->fault.write = 100;
		d->fault.left = 1 + rng_below(&w->frng, 3);
		d->fault.from = rng_below(&w->frng, 2) ? d->data_to : 0;
		d->fault.to = d->fault.from ? d->sectors : d->data_from;
		d->fault.dealt = true;
	}
	trace(w, 16, d->nr, d->fault.dead, "fault of dev%u", d->nr);
	return true;
}

/* Counts closes in a failed pool of volumes whose origin could not be marked as alone. */
void collide_closes(struct world *w, const struct volume *vol)
{
	const struct hybrid_volume *v = vol->v;

	met[COLLIDE_ALONE] += hybrid_engine_failed(w->e) && v->sb.present &&
			    v->sb.wanted == SB_ALONE && v->sb.state != SB_ALONE;
}

void collide_print(void)
{
	u32 c;

	for (c = 1; c < NR_COLLISIONS; c++)
		printf("collision-%s %llu\n", collision_name[c], (unsigned long long)met[c]);
}
