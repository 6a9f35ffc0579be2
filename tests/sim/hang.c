// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Origins that do not answer.
 *
 * From hang_begin() on, requests of some kinds to one volume's origin stay under way; hang_end()
 * lets them go on.  Before that, all other volumes must have finished: their users' I/O has
 * ended, and volumes that drain are clean.
 */
#include "script.h"

#define GO_ON_TICKS 200

const char * const hang_kinds[NR_HANGS] = {
	[HANG_ALL] = "all",
	[HANG_READ] = "read",
	[HANG_WRITE] = "write",
	[HANG_FLUSH] = "flush",
	[HANG_DISCARD] = "discard",
};

static const u8 kinds_of[NR_HANGS] = {
	[HANG_ALL] = 0xff,
	[HANG_READ] = BIT(DREQ_READ),
	[HANG_WRITE] = BIT(DREQ_WRITE),
	[HANG_FLUSH] = BIT(DREQ_FLUSH),
	[HANG_DISCARD] = BIT(DREQ_DISCARD) | BIT(DREQ_ZEROES),
};

bool hang_holds(const struct dreq *r)
{
	return r->dev->fault.hangs & BIT(r->kind);
}

static bool hangs(const struct volume *vol)
{
	return vol->origin->fault.hangs;
}

bool hang_any(const struct world *w)
{
	u32 i;

	for (i = 0; i < w->nr_vol; i++)
		if (hangs(w->vol[i]))
			return true;
	return false;
}

void hang_device(struct device *d, enum hang what)
{
	d->fault.hangs = kinds_of[what];
}

void hang_begin(struct world *w, struct volume *vol, u32 what)
{
	script_log(w, LINE_HANG, vol, 0, what);
	hang_device(vol->origin, what);
	trace(w, 21, vol->id, what, "v%u: %s of its origin hangs", vol->id, hang_kinds[what]);
}

void hang_forget(struct world *w)
{
	u32 i;

	for (i = 0; i < w->nr_vol; i++)
		w->vol[i]->origin->fault.hangs = 0;
}

/* Has a volume whose origin answers not finished yet? */
static bool others_wait(struct world *w)
{
	struct hybrid_volume_status st;
	struct uio *u;
	u32 i;

	list_for_each_entry(u, &w->uios, link)
		if (!hangs(u->vol))
			return true;
	for (i = 0; i < w->nr_vol; i++) {
		struct volume *vol = w->vol[i];

		if (!vol->v || hangs(vol) || vol->suspended)
			continue;
		hybrid_volume_status(w->e, vol->v, &st);
		if (st.draining)
			return true;
	}
	return false;
}

static void report(struct world *w)
{
	struct hybrid_volume_status st;
	struct uio *u;
	u32 i;

	violation(w, "isolation", "an origin does not answer, and other volumes wait");
	list_for_each_entry(u, &w->uios, link)
		if (!hangs(u->vol))
			fprintf(stderr, "    volume %u: io type %u at %llu state %u wait %u\n", u->vol->id,
				u->io.type, (unsigned long long)u->sector, u->io.state, u->io.wait);
	for (i = 0; i < w->nr_vol; i++) {
		if (!w->vol[i]->v)
			continue;
		hybrid_volume_status(w->e, w->vol[i]->v, &st);
		fprintf(stderr, "    volume %u: %llu blocks dirty%s%s\n", w->vol[i]->id,
			(unsigned long long)st.dirty, st.draining ? ", drains" : "",
			hangs(w->vol[i]) ? ", hangs" : "");
	}
}

void hang_end(struct world *w)
{
	u32 ticks;

	if (!w->crashed)
		script_log(w, LINE_ANSWER, NULL, 0, 0);
	for (ticks = 0; ticks < GO_ON_TICKS && !w->crashed && !w->stop; ticks++) {
		world_idle(w);
		if (!others_wait(w))
			break;
		world_tick(w, 100);
	}
	/* Errors may hold up records for good, and a failed pool drains nothing. */
	if (ticks == GO_ON_TICKS && !w->faulty && !w->crashed && !w->stop)
		report(w);
	hang_forget(w);
}

/* Its users ask for more than any share of the pool's buffers. */
static void load(struct world *w, struct volume *vol)
{
	u32 bs = w->p.block_sectors, left = rng_below(&w->hrng, 2) ? 0 : 70 + rng_below(&w->hrng, 90);
	u32 blocks = DIV_ROUND_UP(vol->hot, bs), first = rng_below(&w->hrng, blocks), count;
	u64 sector;

	for (; left && !w->crashed && !w->stop; left--) {
		sector = (u64)bs * ((first + left) % blocks);
		count = min_t(u64, bs >> rng_below(&w->hrng, 2), vol->hot - sector);
		if (users_overlap(w, vol, sector, count))
			continue;
		user_io(w, rng_below(&w->hrng, 3) ? EV_READ : EV_WRITE, vol, sector, count);
		if (!rng_below(&w->hrng, 4))
			world_step(w);
	}
}

/* Enough blocks for such a load, and several volumes. */
void hang_profile(struct profile *p, struct rng r)
{
	if (!sim_hang)
		return;
	p->volumes = 2 + rng_below(&r, SIM_FEW_VOLUMES - 1);
	if (!rng_below(&r, 4))
		p->volumes = SIM_MANY_VOLUMES;
	if (rng_below(&r, 2)) {
		p->hot_blocks = 128;
		p->cache_blocks = 64 + rng_below(&r, 200);
		/* There are fewer buffers for large blocks, and none for several blocks. */
		if (rng_below(&r, 2))
			p->block_sectors = 512 << rng_below(&r, 3);
	}
}

/* Now and then one of several volumes hangs for a while. */
void hang_event(struct world *w)
{
	if (!sim_hang || w->nr_vol < 2 || w->branch || w->crashed || w->stop)
		return;
	if (w->hang_left) {
		if (!--w->hang_left)
			hang_end(w);
	} else if (!rng_below(&w->hrng, 60)) {
		struct volume *vol = w->vol[rng_below(&w->hrng, w->nr_vol)];

		if (!vol->v || vol->closing || vol->suspended)
			return;
		w->hang_left = 20 + rng_below(&w->hrng, 200);
		hang_begin(w, vol, rng_below(&w->hrng, NR_HANGS));
		load(w, vol);
	}
}
