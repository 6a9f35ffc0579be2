// SPDX-License-Identifier: GPL-2.0-or-later
/* A drain ends although users write to the same few blocks without a pause. */
#include "sim.h"
#include "engine-internal.h"
#include "fibers.h"

#define HOT_VOLUMES	2U
#define HOT_BLOCKS	3
#define WARM_STEPS	60
/* In steps, of which each ends a request or an action. */
#define TICK_STEPS	24
#define OLDEST_STEPS	4
/*
 * For each volume, until one more block is clean.  A block of 1 MiB may take most of these steps:
 * without memory for larger buffers, it is written back in 64 parts, one after the other.
 */
#define MOST_STEPS	4000
/* In all: a drain that has taken so many steps has shown that it goes on. */
#define ALL_STEPS	(2 * MOST_STEPS)

static bool under_way(struct world *w, const struct volume *vol, u64 sector)
{
	struct uio *u;

	list_for_each_entry(u, &w->uios, link)
		if (u->vol == vol && u->sector == sector)
			return true;
	return false;
}

/* Each half of the block is written again as soon as its write ended: one is always in flight. */
static void write_again(struct world *w, struct volume *vol, u64 block)
{
	u32 half = w->p.block_sectors / 2, n;

	for (n = 0; n < 2; n++) {
		u64 sector = block * w->p.block_sectors + n * half;

		if (sector + half <= vol->hot && !under_way(w, vol, sector))
			world_submit(w, vol, HYBRID_IO_WRITE, sector, half, 0);
	}
}

/* A step, and writes again; no request is passed over for ever. */
static void hot_step(struct world *w, u32 n)
{
	struct dreq *oldest = world_inflight(w, 0);
	u32 i, b;

	if (oldest && n % OLDEST_STEPS == 0)
		world_complete(w, oldest);
	else
		world_step(w);
	for (i = 0; i < min(w->nr_vol, HOT_VOLUMES); i++)
		for (b = 0; b < HOT_BLOCKS && w->vol[i]->v; b++)
			write_again(w, w->vol[i], b);
}

/* Starts a drain by a message to the pool, or by modes that keep no dirty data. */
static void drain_begins(struct world *w, struct rng r)
{
	static const u32 clean[] = {
		HYBRID_MODE_WRITETHROUGH, HYBRID_MODE_WRITEAROUND, HYBRID_MODE_PASSTHROUGH,
	};
	u32 i;

	if (rng_below(&r, 2)) {
		ask_drain(w, NULL, true);
		return;
	}
	for (i = 0; i < w->nr_vol; i++)
		if (w->vol[i]->v)
			ask_mode(w, w->vol[i], clean[rng_below(&r, ARRAY_SIZE(clean))]);
}

/* Counts dirty blocks of open volumes, in RAM and on record: nothing drains other volumes. */
static u32 left_dirty(struct world *w)
{
	u32 i, left = 0;

	for (i = 0; i < w->nr_vol; i++) {
		struct hybrid_volume *v = w->vol[i]->v;

		if (v)
			left += atomic_read(&v->blocks.dirty) + atomic_read(&v->blocks.jdirty);
	}
	return left;
}

static void report(struct world *w)
{
	u32 i;

	violation(w, "liveness", "a drain beside users does not end");
	for (i = 0; i < w->nr_vol; i++) {
		struct hybrid_volume *v = w->vol[i]->v;

		if (v)
			fprintf(stderr, "    volume %u: %d blocks dirty, %d on record\n", w->vol[i]->id,
				atomic_read(&v->blocks.dirty), atomic_read(&v->blocks.jdirty));
	}
}

void drain_beside_users(struct world *w)
{
	/* If calls sleep, or jobs wait for memory, users may overtake them for long. */
	bool fair = !sim_interleave && !w->p.alloc_faults;
	u32 i, n, left, fewest = U32_MAX, since = 0;

	/* Short workloads that are cut at each step stay short. */
	if (w->p.cut_every == 1)
		return;
	for (i = 0; i < w->nr_vol; i++)
		if (w->vol[i]->v && w->vol[i]->ever_writeback)
			ask_mode(w, w->vol[i], HYBRID_MODE_WRITEBACK);
	for (n = 0; n < WARM_STEPS; n++)
		hot_step(w, n);
	drain_begins(w, rng_fork(&w->rng, 120));
	for (n = 1; n < ALL_STEPS * w->nr_vol && !w->stop && !w->crashed; n++) {
		left = left_dirty(w);
		if (!left)
			break;
		if (left < fewest) {
			fewest = left;
			since = n;
		}
		if (n - since == MOST_STEPS * w->nr_vol) {
			if (fair)
				report(w);
			break;
		}
		hot_step(w, n);
		if (n % TICK_STEPS == 0)
			world_tick(w, 100);
	}
	ask_drain(w, NULL, false);
	world_idle(w);
}
