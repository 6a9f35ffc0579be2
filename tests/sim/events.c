// SPDX-License-Identifier: GPL-2.0-or-later
/* What happens while the engine runs: drawn from the seed, one at a time. */
#include "sim.h"
#include "coverage.h"

static struct volume *pick_volume(struct world *w)
{
	struct volume *vol = w->vol[rng_below(&w->rng, w->nr_vol)];

	return vol->v && !vol->closing ? vol : NULL;
}

static bool overlaps(struct world *w, struct volume *vol, u64 sector, u32 count)
{
	struct uio *u;

	list_for_each_entry(u, &w->uios, link)
		if (u->vol == vol && u->io.type != HYBRID_IO_FLUSH &&
		    u->io.type != HYBRID_IO_READ && u->sector < sector + count &&
		    sector < u->sector + u->count)
			return true;
	return false;
}

/* A range within one block, often of whole granules, often the whole block. */
static void pick_range(struct world *w, struct volume *vol, u64 *sector, u32 *count)
{
	u32 bs = w->p.block_sectors, gs = w->g->granule_sectors, first, unit = 1;
	u64 block = rng_below(&w->rng, vol->hot / bs);

	/* Half of all I/O goes to few blocks */
	if (rng_below(&w->rng, 2))
		block = min(block, (u64)rng_below(&w->rng, 4));
	switch (rng_below(&w->rng, 4)) {
	case 0:
		*sector = block * bs;
		*count = bs;
		return;
	case 1:
	case 2:
		unit = gs;
	}
	first = rng_below(&w->rng, bs / unit);
	*count = unit * (1 + rng_below(&w->rng, min(bs / unit - first, 16U)));
	*sector = block * bs + first * unit;
}

static void user_event(struct world *w, enum event ev)
{
	static const enum hybrid_io_type type[] = {
		[EV_READ] = HYBRID_IO_READ, [EV_WRITE] = HYBRID_IO_WRITE,
		[EV_FUA] = HYBRID_IO_WRITE, [EV_FLUSH] = HYBRID_IO_FLUSH,
		[EV_DISCARD] = HYBRID_IO_DISCARD, [EV_ZEROES] = HYBRID_IO_ZEROES,
	};
	struct volume *vol = pick_volume(w);
	u64 sector = 0;
	u32 count = 0;

	if (!vol || w->nr_uios >= w->p.max_ios)
		return;
	if (ev != EV_FLUSH)
		pick_range(w, vol, &sector, &count);
	if ((ev == EV_DISCARD || ev == EV_ZEROES) && rng_below(&w->rng, 3) == 0)
		count = min_t(u64, vol->hot - sector, count + rng_below(&w->rng, 4 * w->p.block_sectors));
	if (ev != EV_READ && ev != EV_FLUSH && !w->p.overlap && overlaps(w, vol, sector, count))
		return;
	world_submit(w, vol, type[ev], sector, count, ev == EV_FUA);
}

static void mode_event(struct world *w)
{
	struct volume *vol = pick_volume(w);
	struct hybrid_actions acts;
	u32 mode = draw_mode(&w->rng);

	if (!vol)
		return;
	hybrid_actions_init(&acts);
	trace(w, 11, vol->id, mode, "mode of volume %u: %u", vol->id, mode);
	vol->ever_writeback |= mode == HYBRID_MODE_WRITEBACK;
	vol->info.mode = mode;
	hybrid_volume_set_mode(w->e, vol->v, mode, &acts);
	world_carry(w, &acts);
}

static void drain_event(struct world *w)
{
	struct volume *vol = rng_below(&w->rng, 2) ? pick_volume(w) : NULL;
	struct hybrid_actions acts;
	bool on = rng_below(&w->rng, 3);

	hybrid_actions_init(&acts);
	trace(w, 12, vol ? vol->id : 9999, on, "drain %d", on);
	hybrid_engine_drain(w->e, vol ? vol->v : NULL, on, &acts);
	world_carry(w, &acts);
}

static void evict_event(struct world *w)
{
	struct volume *vol = pick_volume(w);
	struct hybrid_actions acts;
	u64 sector;
	u32 count;

	if (!vol)
		return;
	pick_range(w, vol, &sector, &count);
	hybrid_actions_init(&acts);
	trace(w, 13, vol->id, sector, "evict volume %u block %llu", vol->id,
	      (unsigned long long)sector / w->p.block_sectors);
	hybrid_engine_evict(w->e, vol->v, to_oblock(sector / w->p.block_sectors), &acts);
	world_carry(w, &acts);
}

static void nobody_waits(struct hybrid_waiter *waiter)
{
}

static void checkpoint_event(struct world *w)
{
	struct hybrid_waiter *waiter = arena_alloc(&sim_arena, sizeof(*waiter));
	struct hybrid_actions acts;

	memset(waiter, 0, sizeof(*waiter));
	waiter->done = nobody_waits;
	hybrid_actions_init(&acts);
	trace(w, 14, 0, 0, "checkpoint");
	hybrid_engine_checkpoint(w->e, waiter, &acts);
	world_carry(w, &acts);
}

/* Let the volume's I/O end, then close it. */
static bool close_event(struct world *w, struct volume *vol)
{
	u32 ticks = 0;

	while (vol->ios && !w->crashed && !w->stop) {
		if (world_step(w))
			continue;
		if (++ticks > 300) {
			world_settle(w);	/* reports it */
			return false;
		}
		world_tick(w, 100);
	}
	if (w->crashed || w->stop)
		return false;
	world_close(w, vol);
	return !w->crashed && !w->stop;
}

static void reopen_event(struct world *w)
{
	struct volume *vol = pick_volume(w);

	if (vol && close_event(w, vol))
		open_volume(w, vol);
}

static void recreate_event(struct world *w)
{
	struct volume *vol = pick_volume(w);
	struct hybrid_volume_status st = {};
	bool drop = rng_below(&w->rng, 3) == 0;
	int r;

	if (!vol)
		return;
	hybrid_volume_status(w->e, vol->v, &st);
	if (!close_event(w, vol))
		return;
	trace(w, 15, vol->id, drop, "delete volume %u%s", vol->id, drop ? ", dirty or not" : "");
	vol->unsure = true;
	if (drop)
		oracle_forget(vol->oracle);
	r = DURING(w, PHASE_DELETE, hybrid_volume_delete(w->e, vol->id, drop));
	if (w->crashed || w->stop)
		return;
	if (r == -EBUSY && !drop) {
		vol->unsure = false;
		open_volume(w, vol);
		return;
	}
	if (!r)
		r = DURING(w, PHASE_FORGET, hybrid_volume_forget(w->e, vol->id));
	if (w->crashed || w->stop)
		return;
	if (r && w->faulty) {
		w->crashed = true;	/* what became of it, only a new life tells */
		return;
	}
	if (r)
		violation(w, "error", "delete or forget of volume %u: %d", vol->id, r);
	vol->created = false;
	/* The tools write a new superblock: another volume on the same origin */
	name_volume(w, vol);
	format_origin(w, vol);
	if (w->lint)
		linter_reformat(w->lint, vol);
	if (create_volume(w, vol))
		open_volume(w, vol);
}

static void cutoff_event(struct world *w)
{
	struct volume *vol = pick_volume(w);

	if (!vol)
		return;
	vol->info.cutoff_sectors = rng_below(&w->rng, 2) ? 0 : 8 << rng_below(&w->rng, 8);
	hybrid_volume_set_cutoff(w->e, vol->v, vol->info.cutoff_sectors);
}

static enum event draw_event(struct world *w)
{
	u32 sum = 0, n, i;

	for (i = 0; i < NR_EVENTS; i++)
		sum += w->p.weight[i];
	n = rng_below(&w->rng, sum);
	for (i = 0; n >= w->p.weight[i]; i++)
		n -= w->p.weight[i];
	return i;
}

void one_event(struct world *w)
{
	enum event ev = draw_event(w);

	shim_cpu = rng_below(&w->rng, SHIM_NR_CPUS);
	switch (ev) {
	case EV_STEP:
		if (!world_step(w) && !w->crashed && rng_below(&w->rng, 4) == 0)
			world_tick(w, 10 + rng_below(&w->rng, 200));
		break;
	case EV_TICK:
		world_tick(w, 10 + rng_below(&w->rng, 200));
		break;
	case EV_MODE:
		mode_event(w);
		break;
	case EV_DRAIN:
		drain_event(w);
		break;
	case EV_EVICT:
		evict_event(w);
		break;
	case EV_CHECKPOINT:
		checkpoint_event(w);
		break;
	case EV_REOPEN:
		reopen_event(w);
		break;
	case EV_RESTART:
		restart(w);
		break;
	case EV_RECREATE:
		recreate_event(w);
		break;
	case EV_CUTOFF:
		cutoff_event(w);
		break;
	default:
		user_event(w, ev);
	}
}
