// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Crash states.  The world stands still; in a copy of it the power is cut, and a new
 * engine recovers.  All data is read back and compared with the values that the oracle
 * allows.  Then the copy is taken back.
 */
#include <stdlib.h>

#include "sim.h"
#include "fibers.h"
#include "coverage.h"
#include "recovery.h"

/* ---- The state of the disks ------------------------------------------------- */

static u32 volatile_writes(struct world *w)
{
	struct dreq *list[64];
	u32 i, n = 0;

	for (i = 0; i < w->nr_dev && n <= 64; i++)
		n += device_volatile_writes(w->dev[i], list, 64);
	return n;
}

static void cut_by_mask(struct world *w, u64 mask, struct rng *rng)
{
	struct dreq *list[64];
	u32 i;

	for (i = 0; i < w->nr_dev; i++) {
		u32 n = min(device_volatile_writes(w->dev[i], list, 64), 64U);

		device_cut(w->dev[i], CUT_WRITES, mask, rng);
		mask = n < 64 ? mask >> n : 0;
	}
}

static void cut_by_chance(struct world *w, struct rng *rng)
{
	bool same = rng_below(rng, 3) == 0;
	enum cut how = rng_below(rng, NR_CUTS);
	u32 i;

	for (i = 0; i < w->nr_dev; i++) {
		if (!same)
			how = rng_below(rng, NR_CUTS);
		device_cut(w->dev[i], how, rng_next(rng), rng);
	}
}

/* ---- Promises ----------------------------------------------------------------- */

/* Reads the newer good copy of an origin's superblock. */
static bool read_origin_sb(struct volume *vol, struct hybrid_sb *best)
{
	struct hybrid_sb sb;
	bool found = false;
	u32 copy;

	for (copy = 0; copy < 2; copy++) {
		if (!device_get_sb(vol->origin, copy, &sb, true) ||
		    (found && sb.sequence < best->sequence))
			continue;
		*best = sb;
		found = true;
	}
	return found;
}

/* Returns the durable lost map that the superblock names; NULL: no copy is good. */
static struct hybrid_lost_map *read_lost_map(struct volume *vol, const struct hybrid_sb *sb)
{
	struct hybrid_lost_map *map;
	u32 copy;
	int blocks;

	for (copy = 0; copy < 2; copy++) {
		u64 sector = device_place(vol->origin, hybrid_lost_sector(sb->member_sectors, copy));

		map = arena_alloc(&sim_arena, HYBRID_META_BLOCK_SIZE);
		device_get_bytes(vol->origin, sector, map, HYBRID_META_BLOCK_SIZE, true);
		blocks = hybrid_lost_peek(map, sb, copy, NULL);
		if (blocks < 0)
			continue;
		map = arena_alloc(&sim_arena, blocks * HYBRID_META_BLOCK_SIZE);
		device_get_bytes(vol->origin, sector, map, blocks * HYBRID_META_BLOCK_SIZE, true);
		if (!hybrid_lost_check(map, blocks, NULL))
			return map;
	}
	return NULL;
}

static bool lost(const struct hybrid_lost_map *map, u64 sector)
{
	u64 at = sector;

	return map && hybrid_lost_next(map, &at) && at == sector;
}

/* Checks that the origin alone has all data except the granules that @map lists. */
static void check_origin_alone(struct world *w, struct volume *vol, const char *rule,
			       const struct hybrid_lost_map *map)
{
	struct oracle *o = vol->oracle;
	u32 j;

	for (j = 0; j < o->nr_active; j++) {
		u64 s = o->active[j];
		val_t v = device_durable(vol->origin, vol->origin->data_from + s);
		const char *why = oracle_crash_read(o, s, v, false);

		if (!why || lost(map, s + w->hole))
			continue;
		violation(w, rule, "the origin alone of volume %u (%s) holds %s at %llu: %s",
			  vol->id, vol->ever_writeback ? "nothing lost there" : "never writeback",
			  val_name(v), (unsigned long long)s, why);
		oracle_explain(o, s);
		return;
	}
}

/*
 * P4: without the cache, a volume that never was writeback is whole.  P5: so is a volume
 * whose origin says that nothing is lost; other volumes lack only the granules that their
 * origin lists.
 */
static void check_clean_origins(struct world *w)
{
	u32 i;

	for (i = 0; i < w->nr_vol && !w->stop; i++) {
		struct volume *vol = w->vol[i];
		const struct hybrid_lost_map *map = NULL;
		struct hybrid_sb sb;

		if (!vol->ever_writeback) {
			check_origin_alone(w, vol, "P4", NULL);
			continue;
		}
		if (vol->info.flags & HYBRID_VOLUME_INPLACE || !read_origin_sb(vol, &sb))
			continue;
		if (sb.lost)
			map = read_lost_map(vol, &sb);
		if (map || !(sb.flags & HYBRID_SB_DIRTY))
			check_origin_alone(w, vol, "P5", map);
		else if (sb.lost)
			violation(w, "P5", "volume %u: the superblock names a lost map that is not there",
				  vol->id);
	}
}

static void check_dirty_counts(struct world *w)
{
	u32 i;

	for (i = 0; i < w->nr_vol && !w->stop; i++) {
		struct volume *vol = w->vol[i];
		struct hybrid_volume_status st = {};

		if (!vol->v || vol->ever_writeback)
			continue;
		hybrid_volume_status(w->e, vol->v, &st);
		if (st.dirty)
			violation(w, "P4", "volume %u was never writeback and has %u dirty blocks",
				  vol->id, st.dirty);
	}
}

/* After a drain and a stop the origins alone hold all data. */
static void check_drained_origins(struct world *w)
{
	u32 i;
	u64 s;

	for (i = 0; i < w->nr_vol && !w->stop; i++) {
		struct volume *vol = w->vol[i];

		for (s = 0; s < vol->hot && !w->stop; s++) {
			val_t v = device_durable(vol->origin, vol->origin->data_from + s);
			const char *why = oracle_crash_read(vol->oracle, s, v, false);

			if (!why)
				continue;
			violation(w, "drain", "the drained origin of volume %u holds %s at %llu: %s",
				  vol->id, val_name(v), (unsigned long long)s, why);
			oracle_explain(vol->oracle, s);
		}
	}
}

/* ---- Steps of a crash state ---------------------------------------------------- */

bool crash_boot(struct world *w)
{
	struct rng look = rng_fork(&w->rng, 6);
	const char *why;
	u32 i;
	int r;

	w->found = rng_below(&look, 3) ? NULL : found_read(w);
	why = world_boot(w, &r);
	if (w->crashed || w->stop)
		return false;
	if (why && faults_refuse(w, why))
		return false;
	if (why) {
		violation(w, "recovery", "load fails with %d: %s", r, why);
		return false;
	}
	for (i = 0; i < w->nr_vol; i++) {
		struct volume *vol = w->vol[i];

		if (!vol->created && !vol->unsure)
			continue;
		r = world_open(w, vol, &why);
		if (w->crashed || w->stop)
			return false;
		if (!r || (r == -ENOENT && vol->unsure))
			continue;
		violation(w, "recovery", "open of volume %u fails with %d: %s", vol->id, r,
			  why ? why : "(no reason given)");
		return false;
	}
	w->found = NULL;
	return true;
}

void crash_read_back(struct world *w)
{
	u32 i;
	u64 b;

	for (i = 0; i < w->nr_vol; i++) {
		struct volume *vol = w->vol[i];
		u32 count = 1 << vol->oracle->touched_shift;

		for (b = 0; vol->v && b * count < vol->hot && !w->stop && !w->crashed; b++) {
			if (!vol->oracle->touched[b] && rng_below(&w->rng, 16))
				continue;
			world_read_block(w, vol, b);
			world_settle(w);
		}
	}
}

static void die_again(struct world *w, bool reset)
{
	u32 i;

	coverage_death(w, reset, 1);
	w->deaths++;
	for (i = 0; reset && i < w->nr_dev; i++)
		device_reset(w->dev[i], &w->rng);
	if (!reset)
		cut_by_chance(w, &w->rng);
	world_drop(w);
}

static void cut_again(struct world *w)
{
	die_again(w, false);
}

static void drain_and_stop(struct world *w)
{
	struct hybrid_pool_status st;
	struct hybrid_actions acts;
	u32 i, ticks;

	/* Dirty data that cannot be read cannot be drained */
	if (w->dev[0]->fault.nr_bad || w->dev[0]->fault.nr_worn)
		return;
	for (i = 0; i < w->nr_vol; i++)
		if (!w->vol[i]->v)
			return;

	hybrid_actions_init(&acts);
	hybrid_engine_drain(w->e, NULL, true, 0, &acts);
	world_carry(w, &acts);
	world_kick(w);
	for (ticks = 0; !w->stop && !w->crashed; ticks++) {
		world_idle(w);
		hybrid_engine_status(w->e, &st);
		if (!st.dirty)
			break;
		if (ticks == 300) {
			violation(w, "liveness", "a drain leaves %u blocks dirty", st.dirty);
			return;
		}
		world_tick(w, 100);
	}
	for (i = 0; i < w->nr_vol && !w->stop && !w->crashed; i++)
		if (w->vol[i]->v)
			world_close(w, w->vol[i]);
	if (w->stop || w->crashed || !world_stop(w))
		return;
	check_drained_origins(w);
	hybrid_engine_destroy(w->e);
	w->e = NULL;
	if (!heap_empty(&w->heap))
		violation(w, "memory", "destroy leaves %llu bytes",
			  (unsigned long long)w->heap.bytes);
}

/* The machine comes up, and dies again at any change of the disks; at last it may live. */
static void explore_deaths(struct world *w, u32 deaths, struct rng *rng)
{
	while (deaths-- && !w->stop) {
		w->crash_at = w->changes + 1 + rng_below(rng, 24);
		if (crash_boot(w))
			crash_read_back(w);
		w->crash_at = SIM_NEVER;
		if (w->stop)
			return;
		die_again(w, !rng_below(rng, 3));
		check_clean_origins(w);
	}
	if (!w->stop && crash_boot(w))
		crash_read_back(w);
}

/* The machine dies while the pool drains, closes its volumes, or stops. */
static void explore_stop(struct world *w, struct rng *rng)
{
	w->crash_at = w->changes + 1 + rng_below(rng, 40);
	drain_and_stop(w);
	w->crash_at = SIM_NEVER;
	if (w->stop)
		return;
	cut_again(w);
	if (crash_boot(w))
		crash_read_back(w);
}

static void explore_reset(struct world *w)
{
	explore_deaths(w, 1 + rng_below(&w->rng, 3), &w->rng);
}

static void explore(struct world *w)
{
	struct rng rng = rng_fork(&w->rng, 3);

	check_clean_origins(w);
	if (w->stop)
		return;
	if (rng_below(&w->rng, 8) == 0) {	/* a crash in the recovery */
		w->crash_at = w->changes + 1 + rng_below(&w->rng, 24);
		if (crash_boot(w))
			crash_read_back(w);
		w->crash_at = SIM_NEVER;
		if (w->stop)
			return;
		cut_again(w);
		check_clean_origins(w);
	}
	if (w->stop || !crash_boot(w))
		return;
	check_dirty_counts(w);
	crash_read_back(w);
	if (w->stop)
		return;
	switch (rng_below(&w->rng, 6)) {
	case 0:
		cut_again(w);
		if (crash_boot(w))
			crash_read_back(w);
		break;
	case 1:
		drain_and_stop(w);
		if (!w->stop && crash_boot(w))
			crash_read_back(w);
		break;
	case 2:
		if (rng_below(&rng, 3))
			break;
		cut_again(w);
		explore_deaths(w, 2 + rng_below(&rng, 2), &rng);
		break;
	case 3:
		if (!rng_below(&rng, 3))
			explore_stop(w, &rng);
	}
}

/* ---- The copy ------------------------------------------------------------------ */

static struct world branch_world;
static struct volume branch_volume[SIM_MAX_VOLUMES];

static void copy_world(struct world *b, struct world *w, u32 sample)
{
	u32 i;

	*b = *w;
	b->main = w;
	b->branch = true;
	b->lint = NULL;
	b->found = NULL;
	b->p.cut_every = 0;
	b->crashed = false;
	b->blocking = false;
	b->ticking = false;
	b->crash_at = SIM_NEVER;
	b->deaths++;
	b->doing = 0;
	b->e = NULL;
	b->faulty = w->faulty;
	b->rng = rng_fork(&w->brng, w->changes * 4096 + sample);
	heap_init(&b->heap);
	b->heap.raw = true;
	INIT_LIST_HEAD(&b->ready);
	INIT_LIST_HEAD(&b->uios);
	b->nr_ready = 0;
	b->nr_uios = 0;
	b->nr_actions = 0;
	for (i = 0; i < w->nr_vol; i++) {
		branch_volume[i] = *w->vol[i];
		branch_volume[i].v = NULL;
		branch_volume[i].ios = 0;
		branch_volume[i].calls = 0;
		branch_volume[i].suspended = false;
		b->vol[i] = &branch_volume[i];
	}
}

#define MAX_SEEN (1 << 14)

/* Has this very state of the disks been explored before, with the same values allowed? */
static bool seen(const struct world *w, size_t undo)
{
	static struct {
		u64 key, stamp;
	} table[2 * MAX_SEEN];
	static u64 durable, oracle, stamp = 1, nr;
	u64 key = undo_hash(undo);
	struct rng r;
	u32 i;

	if (durable != sim_durable_changes || oracle != sim_oracle_changes) {
		durable = sim_durable_changes;
		oracle = sim_oracle_changes;
		stamp++;
		nr = 0;
	}
	for (i = 0; i < w->nr_vol; i++) {
		r.state = w->vol[i]->created | w->vol[i]->unsure << 1 |
			  w->vol[i]->ever_writeback << 2 | w->faulty << 3 | i << 4;
		key += rng_next(&r);
	}
	for (i = key % ARRAY_SIZE(table); table[i].stamp == stamp; i = (i + 1) % ARRAY_SIZE(table))
		if (table[i].key == key)
			return true;
	if (nr++ < MAX_SEEN) {
		table[i].key = key;
		table[i].stamp = stamp;
	}
	return false;
}

void crash_explore_one(struct world *w, u32 sample, enum crash_kind kind,
		       void (*explore)(struct world *b))
{
	struct world *b = &branch_world;
	struct fault fault[SIM_MAX_DEVICES];
	struct mark mark = arena_mark(&sim_arena);
	size_t undo = undo_mark();
	u64 now = sim_now;
	bool fibers;
	u32 i;

	undo_on = true;
	fibers = fibers_stop();
	copy_world(b, w, sample);
	if (sim_trace)
		fprintf(stderr, "    | crash state %u at change %llu\n", sample,
			(unsigned long long)w->changes);
	if (kind == CRASH_BY_MASK)
		cut_by_mask(w, sample, &b->rng);
	else if (kind == CRASH_BY_CHANCE)
		cut_by_chance(w, &b->rng);
	if (kind != CRASH_RESET && seen(w, undo))
		goto out;
	sim_crash_states++;
	for (i = 0; i < w->nr_dev; i++) {
		fault[i] = w->dev[i]->fault;
		device_heal(w->dev[i], true);
		if (kind == CRASH_RESET)
			device_enter_branch_alive(w->dev[i], &b->rng);
		else
			device_enter_branch(w->dev[i]);
	}
	sim_world = b;
	explore(b);
	sim_world = w;
	heap_drop(&b->heap);
	sim_heap = &w->heap;
	for (i = 0; i < w->nr_vol; i++)
		oracle_unpin(w->vol[i]->oracle);
	for (i = 0; i < w->nr_dev; i++) {
		device_leave_branch(w->dev[i]);
		w->dev[i]->fault = fault[i];
	}
out:
	undo_to(undo);
	undo_on = false;
	fibers_go_on(fibers);
	arena_release(&sim_arena, mark);
	sim_now = now;
}

void crash_explore(struct world *w, u32 samples)
{
	u64 before = sim_crash_states;
	u32 n = volatile_writes(w), i;
	struct rng rng = rng_fork(&w->brng, w->changes);

	if (w->lying) {
		for (i = 0; i < samples && !w->stop; i++)
			crash_explore_one(w, i, CRASH_BY_CHANCE, rot_explore_lies);
		return;
	}

	if (w->lost_meta) {
		for (i = 0; i < samples && !w->stop; i++)
			crash_explore_one(w, i, CRASH_BY_CHANCE, rot_explore_lost);
		return;
	}
	if (w->p.cut_writes && n <= w->p.cut_writes)
		for (i = 0; i < 1U << n && !w->stop; i++)
			crash_explore_one(w, i, CRASH_BY_MASK, explore);
	for (i = 0; i < samples && !w->stop; i++)
		crash_explore_one(w, max(64U, 1U << w->p.cut_writes) + i, CRASH_BY_CHANCE, explore);
	coverage_death(w, false, sim_crash_states - before);
	for (i = 0; sim_rot && i < samples && !w->stop; i++)
		crash_explore_one(w, 2048 + i, CRASH_BY_CHANCE,
				  (i + w->changes) % 4 == 3 ?
				  rot_explore_older : rot_explore);
	if (!w->stop && !rng_below(&rng, 10)) {
		crash_explore_one(w, 0, CRASH_RESET, explore_reset);
		coverage_death(w, true, 1);
	}
	trace(w, 20, w->changes, n, "cut: %u volatile writes", n);
}
