// SPDX-License-Identifier: GPL-2.0-or-later
/* A run: its profile, its lives and deaths, all drawn from the seed. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"
#include "fibers.h"
#include "coverage.h"
#include "recovery.h"
#include "script.h"

bool sim_hang, sim_faults, sim_rot, sim_events, sim_policies, sim_demand_fill, sim_alloc_faults, sim_collisions;
bool sim_nowait, sim_grow;
bool sim_lint = true;

/* ---- Profile ------------------------------------------------------------------ */

static u32 pick_block(struct rng *r)
{
	static const u32 size[] = { 8, 8, 16, 16, 32, 32, 64, 128, 1024, 2048 };

	return size[rng_below(r, ARRAY_SIZE(size))];
}

static void draw_weights(struct profile *p, struct rng *r)
{
	static const u8 base[NR_EVENTS] = {
		[EV_STEP] = 200, [EV_READ] = 30, [EV_WRITE] = 40, [EV_FUA] = 6,
		[EV_FLUSH] = 8, [EV_DISCARD] = 4, [EV_ZEROES] = 2, [EV_TICK] = 6,
		[EV_MODE] = 2, [EV_DRAIN] = 2, [EV_EVICT] = 8, [EV_CHECKPOINT] = 2,
		[EV_REOPEN] = 1, [EV_RESTART] = 1, [EV_RECREATE] = 1, [EV_CUTOFF] = 1,
	};
	u32 i;

	BUILD_BUG_ON(NR_EVENTS != ARRAY_SIZE(p->weight));
	/* A swarm: each seed leaves out some kinds of events and stresses others */
	for (i = 0; i < EV_POLICY; i++) {
		p->weight[i] = base[i] * (1 + rng_below(r, 4));
		if (i > EV_WRITE && rng_chance(r, 30))
			p->weight[i] = 0;
	}
}

/* So many commits in one life that the journal wraps. */
static void fill_journal(struct profile *p)
{
	p->block_sectors = min(p->block_sectors, 32U);
	p->steps = 8000;
	p->episode = 8000;
	p->max_ios = min(p->max_ios, 3U);
	p->slow_percent = 0;
	p->weight[EV_FUA] = 100;
	p->weight[EV_FLUSH] = 40;
	p->weight[EV_CHECKPOINT] = 0;
	p->weight[EV_REOPEN] = 0;
	p->weight[EV_RESTART] = 0;
	p->weight[EV_RECREATE] = 0;
}

/* So many commits that there is always one more before the next checkpoint step. */
static void overfill_journal(struct profile *p)
{
	fill_journal(p);
	p->admin_percent = 0;
	p->steps = 40000;
	p->episode = 8000;
	p->crash_percent = 70;
	p->max_ios = 24;
	p->weight[EV_STEP] = 400;
	p->weight[EV_FUA] = 400;
	p->weight[EV_FLUSH] = 100;
	p->aim = PHASE_JOURNAL_FULL;
	p->aims = 40;
}

/* More than one set, each used for more blocks than it can hold. */
static void fill_sets(struct profile *p, struct rng *r)
{
	p->block_sectors = 8;
	p->cache_blocks = HYBRID_MAX_SET_SIZE + 32 * (1 + rng_below(r, 8));
	p->hot_blocks = 2 * p->cache_blocks;
	p->steps = 6000;
	p->max_ios += 4;
	p->weight[EV_READ] += 60;
	p->weight[EV_WRITE] += 60;
}

/* More I/O at once than there are jobs, or ranges. */
static void overfill_jobs(struct profile *p)
{
	p->block_sectors = min(p->block_sectors, 64U);
	p->cache_blocks = 512;
	p->hot_blocks = 1024;
	p->max_ios = 600;
	p->steps = 4000;
	p->weight[EV_STEP] = 100;
	p->weight[EV_READ] += 300;
	p->weight[EV_DISCARD] += 300;
	p->inplace_percent = 0;
}

/* A set's checkpoint takes several writes, and blocks move from one to another. */
static void many_leaves(struct profile *p, struct rng *r)
{
	p->block_sectors = 8;
	p->cache_blocks = 8 * (17 + rng_below(r, 24));
	p->hot_blocks = 2 * p->cache_blocks;
	p->steps = 5000;
	p->max_ios += 4;
	p->cut_every = 20;
	p->weight[EV_READ] += 60;
	p->weight[EV_WRITE] += 60;
	p->weight[EV_EVICT] += 60;
	p->weight[EV_CHECKPOINT] += 20;
}

static void draw_rare(struct profile *p, struct rng r)
{
	switch (rng_below(&r, 60)) {
	case 0:
		overfill_jobs(p);
		break;
	case 1:
		many_leaves(p, &r);
	}
}

/* Volumes that do not fit into the cache are read in order, again and again. */
static void draw_runs(struct profile *p, struct rng r)
{
	if (!rng_chance(&r, 12))
		return;
	p->run_percent = 60 + rng_below(&r, 40);
	p->block_sectors = 8 << rng_below(&r, 6);
	p->cache_blocks = 8 * (1 + rng_below(&r, 6));
	p->hot_blocks = p->cache_blocks * (3 + rng_below(&r, 4)) / 2;
	p->max_ios += 3;
	p->weight[EV_READ] += 150 << rng_below(&r, 3);
	if (rng_below(&r, 2))
		p->weight[EV_DISCARD] += 4;
	if (rng_below(&r, 2))
		p->weight[EV_TICK] += 40;
}

/*
 * Several sets, in which so much changes between two flushes that the memory kept
 * for an entry has no room for all records.
 */
static void overfill_entries(struct profile *p, struct rng *r)
{
	p->block_sectors = 8;
	p->cache_blocks = HYBRID_MAX_SET_SIZE * (2 + rng_below(r, 3));
	p->hot_blocks = p->cache_blocks / 2;
	p->journal_blocks <<= rng_below(r, 3);
	p->alloc_faults = 40 + rng_below(r, 61);	/* several tries must fail */
	p->run_percent = 0;
	p->steps = 8000;
	p->episode = 4000;
	p->max_ios = 64;
	p->cut_every = 50;
	p->config.commit_interval = 60000;
	p->weight[EV_WRITE] += 600;
	p->weight[EV_FUA] = 0;
	p->weight[EV_FLUSH] = 1;
	p->aim = PHASE_COMMIT;
	p->aims = 40;
}

/*
 * Small sets, and entries of one block: a commit takes several entries, and flushes that
 * wait for the commit wait for the last entry.
 */
static void draw_small(struct profile *p, struct rng r, char mode)
{
	if (mode != 'A' || sim_rot || !rng_chance(&r, 2))
		return;
	p->small = 64;
	p->block_sectors = 32;	/* a window of neighbours is a quarter of a set */
	p->cache_blocks = p->small * (3 + rng_below(&r, 4));
	p->hot_blocks = p->cache_blocks / 2;
	p->volumes = 1;
	p->run_percent = 0;
	p->steps = 6000;
	p->episode = 3000;
	p->max_ios = 100;
	p->cut_every = 200;
	p->admin_percent = 0;
	p->config.commit_interval = 60000;
	p->config.high_watermark = 100;
	p->config.low_watermark = 90;
	memset(p->weight, 0, sizeof(p->weight));
	p->weight[EV_STEP] = 800;
	p->weight[EV_WRITE] = 400;
	p->weight[EV_FLUSH] = 4;
	p->weight[EV_RESTART] = 1;
}

/* The additions of --alloc-faults. */
static void draw_alloc_faults(struct profile *p, struct rng r, char mode)
{
	p->alloc_faults = 1 + rng_below(&r, 100);
	if (mode == 'A' && rng_chance(&r, 12))
		overfill_entries(p, &r);
}

/* The additions of --nowait. */
static void draw_nowait(struct profile *p, struct rng r)
{
	p->nowait = 1 + rng_below(&r, 80);
	p->busy = rng_chance(&r, 80) ? 1 + rng_below(&r, 60) : 0;
}

/* Switches to other policies, beside I/O. */
static void draw_switches(struct profile *p, struct rng r)
{
	if (rng_chance(&r, 25))
		p->weight[EV_POLICY] = 1 << rng_below(&r, 6);
}

/* The additions of --events. */
static void draw_events(struct profile *p, struct rng *r)
{
	struct rng a = rng_fork(r, 9);

	p->admin_percent = 1 + rng_below(r, 5);
	p->load_percent = rng_chance(r, 75) ? 1 + rng_below(r, 50) : 0;
	p->inplace_percent = rng_chance(r, 30) ? 50 : 0;
	p->aim = 1 + rng_below(&a, NR_PHASES - 1);
	p->aims = rng_below(&a, 4);
	p->weight[EV_REOPEN] += rng_below(r, 4);
	p->weight[EV_RECREATE] += rng_below(r, 4);
	p->weight[EV_RESTART] += rng_below(r, 2);
	if (p->volumes == 1 && rng_below(r, 2))
		p->volumes = 2;
	switch (rng_below(r, 40)) {
	case 0:
		overfill_journal(p);
		break;
	case 1:
		fill_sets(p, r);
	}
	draw_rare(p, rng_fork(r, 78));
	draw_switches(p, rng_fork(r, 79));
}

/* Draws one of the policies that cache, and now and then the one that caches nothing. */
const char *draw_policy(struct rng r)
{
	static const char * const policy[] = {
		"c2q", "c2q", "s3fifo", "s3fifo", "sieve", "sieve", "arc", "arc", "lru", "fifo", "null"
	};

	return policy[rng_below(&r, ARRAY_SIZE(policy))];
}

/* ... or the simulator's own policy, which checks the engine's calls? */
bool draw_contract(struct rng r)
{
	return rng_chance(&r, 15);
}

static u32 draw_no_fua(struct rng r)
{
	return rng_chance(&r, 40) ? 1 + rng_below(&r, 3) : 0;
}

static u32 draw_seeks(struct rng r)
{
	return rng_chance(&r, 60);
}

static u32 draw_aged(struct rng r)
{
	return rng_chance(&r, 30) ? 1 + rng_below(&r, 2) : 0;
}

/* MiB a day: plenty, or so little that the simulator's hours use it up. */
u32 draw_endurance(struct rng r)
{
	return rng_below(&r, 2) ? 1 << rng_below(&r, 20) : 0;
}

u32 draw_share(struct rng r)
{
	return rng_chance(&r, 50) ? 25 : rng_below(&r, 91);
}

/* Most seeds have no trim: with it, freed blocks cannot be used again at once. */
u32 draw_trim_rate(struct rng r)
{
	return rng_chance(&r, 25) ? 1 << (14 + rng_below(&r, 12)) : 0;
}

/* Most seeds have no limits: a cache device that counts as failing keeps no dirty data. */
void draw_error_limits(struct hybrid_config *config, struct rng r)
{
	config->read_error_limit = rng_chance(&r, 20) ? 1 + rng_below(&r, 8) : 0;
	config->write_error_limit = rng_chance(&r, 20) ? 1 + rng_below(&r, 8) : 0;
}

/* A file system reads its metadata, too, and the kernel reads ahead. */
static void draw_metadata(struct profile *p, struct rng r)
{
	if (rng_chance(&r, 30))
		p->weight[EV_META] = 1 << rng_below(&r, 8);
	if (rng_chance(&r, 30))
		p->weight[EV_AHEAD] = 1 << rng_below(&r, 8);
	p->config.metadata_share = draw_share(r);
}

/* The cache device may refuse discards. */
static void draw_trim(struct profile *p, struct rng r)
{
	p->config.trim_rate = draw_trim_rate(rng_fork(&r, 1));
	draw_error_limits(&p->config, rng_fork(&r, 2));
	p->trims = rng_chance(&r, 80);
}

/* Only blocks of 128 KiB have masks of four bytes; blocks of 256 KiB have the most granules. */
static void draw_large_blocks(struct profile *p, struct rng r)
{
	if (p->cache_blocks <= 64 && p->hot_blocks <= 64 && rng_chance(&r, 15))
		p->block_sectors = rng_below(&r, 3) ? 256 : 512;
}

/* Many volumes, or block numbers that do not fit 32 bits. */
static void draw_size(struct profile *p, struct rng r, char mode)
{
	if (p->hot_blocks <= 64 && rng_chance(&r, 5) && mode == 'A')
		p->volumes = SIM_FEW_VOLUMES + 1 + rng_below(&r, SIM_MANY_VOLUMES - SIM_FEW_VOLUMES);
	if (rng_chance(&r, 12))
		p->far = 32 + rng_below(&r, 8);
}

static void draw_profile(struct profile *p, u64 seed, char mode, struct rng *r)
{
	static const char * const policy[] = { "lru", "lru", "fifo" };
	u32 every;

	memset(p, 0, sizeof(*p));
	p->seed = seed;
	p->block_sectors = pick_block(r);
	p->cache_blocks = rng_chance(r, 30) ? 1 + rng_below(r, 8) : 8 * (1 + rng_below(r, 8));
	p->volumes = 1 + (rng_below(r, 3) ? 0 : rng_below(r, SIM_FEW_VOLUMES));
	p->hot_blocks = 16 << rng_below(r, 3);
	p->journal_blocks = HYBRID_JOURNAL_MIN_BLOCKS;
	p->steps = 600 + rng_below(r, 1200);
	p->max_ios = 1 + rng_below(r, 12);
	p->crash_percent = rng_chance(r, 70) ? 50 : 0;
	p->reset_percent = 30;
	p->slow_percent = rng_chance(r, 50) ? 1 + rng_below(r, 10) : 0;
	p->episode = 150 + rng_below(r, 400);
	p->overlap = rng_chance(r, 60);
	p->policy = policy[rng_below(r, ARRAY_SIZE(policy))];
	if (sim_policies)
		p->policy = draw_policy(rng_fork(r, 101));
	if (draw_contract(rng_fork(r, 109)))
		p->policy = "contract";
	p->fail_alloc = rng_chance(r, 20) ? 20 : 0;
	p->config = (struct hybrid_config)HYBRID_CONFIG_DEFAULT;
	p->config.high_watermark = 20 + rng_below(r, 70);
	p->config.low_watermark = rng_below(r, p->config.high_watermark);
	p->config.commit_interval = 10 + rng_below(r, 1000);
	if (sim_policies)
		p->config.endurance = draw_endurance(rng_fork(r, 102));
	p->seeks = draw_seeks(rng_fork(r, 103));
	p->no_fua = draw_no_fua(rng_fork(r, 123));
	p->aged = draw_aged(rng_fork(r, 107));
	draw_weights(p, r);
	if (rng_chance(r, 4))
		fill_journal(p);
	if (sim_faults)
		p->fault_kind = rng_below(r, 6);
	if (sim_events)
		draw_events(p, r);
	every = p->steps / 20 + rng_below(r, 100);
	if (!p->cut_every)
		p->cut_every = every;
	p->cut_samples = 1;
	if (mode == 'B') {
		p->block_sectors = 8 << rng_below(r, 4);
		p->cache_blocks = 1 + rng_below(r, 10);
		p->hot_blocks = 4 + rng_below(r, 12);
		p->volumes = 1 + (rng_below(r, 4) == 0);
		p->steps = 80 + rng_below(r, 160);
		p->max_ios = 1 + rng_below(r, 4);
		p->cut_every = 1;
		p->cut_writes = 10;
		p->cut_samples = 4;
		p->episode = 60 + rng_below(r, 60);
	}
	if (mode == 'L')
		loop_profile(p, r);
	draw_large_blocks(p, rng_fork(r, 107));
	draw_size(p, rng_fork(r, 108), mode);
	draw_metadata(p, rng_fork(r, 111));
	draw_trim(p, rng_fork(r, 121));
	hang_profile(p, rng_fork(r, 110));
	p->grow = sim_grow;
}

/* ---- Formatting ----------------------------------------------------------------- */

static void draw_bytes(struct rng *r, u8 *to, u32 n)
{
	while (n--)
		*to++ = rng_next(r);
}

static void write_sb(struct device *d, struct hybrid_sb *sb)
{
	struct hybrid_superblock block;
	u32 copy;

	for (copy = 0; copy < 2; copy++) {
		u64 sector = hybrid_sb_sector(device_size(d), copy);

		hybrid_sb_encode(&block, sb, sector);
		device_set_bytes(d, device_place(d, sector), &block, sizeof(block));
	}
}

/* Makes as many sets as the geometry has room for, but of few blocks: no tool makes such a pool. */
static void shrink_sets(struct hybrid_geometry *g, u32 size)
{
	g->set_size = size;
	g->nr_blocks = g->nr_sets * size;
}

static void format_cache(struct world *w)
{
	struct hybrid_geometry *g = &w->sb.geometry;
	struct hybrid_ident id = {};
	struct hybrid_root_info root = {};
	struct hybrid_root block;
	const char *why = "";
	u32 sets = DIV_ROUND_UP(w->p.cache_blocks, w->p.small ? w->p.small : HYBRID_MAX_SET_SIZE);
	u32 blocks = w->p.small ? sets * HYBRID_MAX_SET_SIZE : w->p.cache_blocks;
	u16 *generations;
	u64 sectors;

	w->sb.role = HYBRID_ROLE_CACHE;
	w->sb.sequence = 1;
	draw_bytes(&w->rng, w->sb.pool_uuid, HYBRID_UUID_SIZE);
	draw_bytes(&w->rng, w->sb.member_uuid, HYBRID_UUID_SIZE);
	snprintf(w->sb.name, sizeof(w->sb.name), "pool");
	snprintf(w->sb.policy, sizeof(w->sb.policy), "%s", w->p.policy);
	/* The size of the area in front of the data depends on the number of sets alone */
	if (hybrid_geometry_init(g, 1 << 20, w->p.block_sectors, w->p.journal_blocks, &why))
		goto bad;
	sectors = HYBRID_HEAD_SECTORS + HYBRID_META_BLOCK_SECTORS *
		  (2 + 2 + 2 * (HYBRID_VOLUME_LEAVES + HYBRID_LEAVES_PER_SET * sets) +
		   w->p.journal_blocks);
	sectors = round_up(sectors, (u64)HYBRID_ALIGN_SECTORS) +
		  (u64)blocks * w->p.block_sectors + HYBRID_TAIL_SECTORS;
	if (hybrid_geometry_init(g, sectors, w->p.block_sectors, w->p.journal_blocks, &why))
		goto bad;
	if (w->p.small)
		shrink_sets(g, w->p.small);
	if (w->p.intent_blocks)
		g->intent_blocks = w->p.intent_blocks;
	w->g = g;
	w->sb.member_sectors = sectors;
	w->dev[0] = xalloc(sizeof(struct device));
	device_init(w->dev[0], 0, sectors, g->data_sector,
		    g->data_sector + ((u64)g->nr_blocks << g->block_shift));
	w->dev[0]->no_fua = w->p.no_fua & 1;
	w->nr_dev = 1;
	write_sb(w->dev[0], &w->sb);
	memcpy(id.pool_uuid, w->sb.pool_uuid, HYBRID_UUID_SIZE);
	id.epoch = rng_next(&w->rng) | 1;
	root.sequence = w->p.aged ? (u64)w->p.aged * BIT_ULL(31) - 6 : 2;
	root.journal_head = w->p.aged ? root.sequence + 1 : 0;
	root.journal_tail = root.journal_head;
	root.epoch = id.epoch;
	root.flags = HYBRID_ROOT_CLEAN;
	root.next_instance = 1;
	generations = xalloc(g->nr_index * sizeof(u16));
	hybrid_root_encode(&block, g, &id, &root, generations);
	free(generations);
	device_set_bytes(w->dev[0], hybrid_root_sector(g, root.sequence), &block, sizeof(block));
	return;
bad:
	fprintf(stderr, "seed %llu: geometry: %s\n", (unsigned long long)w->seed, why);
	abort();
}

void format_origin(struct world *w, struct volume *vol)
{
	struct hybrid_sb sb = {};

	if (vol->info.flags & HYBRID_VOLUME_INPLACE)
		return;
	sb.role = HYBRID_ROLE_ORIGIN;
	sb.sequence = 1;
	if (w->p.grow)
		grow_format(vol->origin);
	sb.member_sectors = device_size(vol->origin);
	memcpy(sb.pool_uuid, w->sb.pool_uuid, HYBRID_UUID_SIZE);
	memcpy(sb.member_uuid, vol->info.member_uuid, HYBRID_UUID_SIZE);
	memcpy(sb.name, vol->info.name, HYBRID_NAME_SIZE);
	sb.volume_id = vol->id;
	sb.data_sector = vol->info.data_sector;
	sb.data_sectors = vol->info.data_sectors;
	memcpy(sb.volume_uuid, vol->info.uuid, HYBRID_UUID_SIZE);
	memcpy(sb.pairing_key, vol->info.pairing_key, HYBRID_KEY_SIZE);
	write_sb(vol->origin, &sb);
}

u32 draw_mode(struct rng *r)
{
	return rng_chance(r, 55) ? HYBRID_MODE_WRITEBACK : rng_below(r, HYBRID_NR_MODES);
}

void name_volume(struct world *w, struct volume *vol)
{
	struct hybrid_volume_info *info = &vol->info;

	draw_bytes(&w->rng, info->uuid, HYBRID_UUID_SIZE);
	draw_bytes(&w->rng, info->member_uuid, HYBRID_UUID_SIZE);
	draw_bytes(&w->rng, info->pairing_key, HYBRID_KEY_SIZE);
	snprintf(info->name, sizeof(info->name), "volume%u", vol->nr);
	info->state = HYBRID_VOLUME_ACTIVE;
	info->mode = draw_mode(&w->rng);
	if (w->p.small)
		info->mode = HYBRID_MODE_WRITEBACK;
	info->cutoff_sectors = rng_chance(&w->rng, 30) ? 8 << rng_below(&w->rng, 8) : 0;
	if (w->p.run_percent)
		info->cutoff_sectors = w->p.block_sectors * (1 + rng_below(&w->rng, 3));
	vol->ever_writeback |= info->mode == HYBRID_MODE_WRITEBACK;
}

/* Existing data, cached in place: its last block is seldom whole.  Some data had another cache before. */
static u64 place_data(struct world *w, struct volume *vol)
{
	vol->info.flags = HYBRID_VOLUME_INPLACE;
	vol->info.data_sector = vol->nr % 2 ? 16 : 0;
	vol->hot -= rng_below(&w->rng, w->p.block_sectors / 8) * 8;
	vol->info.data_sectors = w->hole + vol->hot;
	return vol->info.data_sector + vol->info.data_sectors;
}

static u8 draw_discard(u8 effect, struct rng r)
{
	return rng_chance(&r, 20) ? ORIGIN_TAKES_NONE : effect;
}

static void add_volume(struct world *w, u32 nr)
{
	struct volume *vol = xalloc(sizeof(*vol));
	u64 hot = (u64)w->p.hot_blocks * w->p.block_sectors;
	u64 sectors = HYBRID_HEAD_SECTORS + w->hole + round_up(hot, (u64)HYBRID_ALIGN_SECTORS) +
		      HYBRID_TAIL_SECTORS;

	vol->nr = nr;
	vol->id = nr == 2 ? 4095 : nr * 7;
	vol->hot = hot;
	if (w->p.inplace_percent && rng_chance(&w->rng, w->p.inplace_percent))
		sectors = place_data(w, vol);
	else if (hybrid_origin_data(sectors, 0, &vol->info.data_sector, &vol->info.data_sectors))
		abort();
	vol->origin = xalloc(sizeof(struct device));
	device_init(vol->origin, nr + 1, sectors - w->hole + grow_room(w), vol->info.data_sector,
		    vol->info.data_sector + vol->info.data_sectors - w->hole);
	vol->origin->sectors -= grow_room(w);
	vol->origin->hole = w->hole;
	vol->origin->no_fua = w->p.no_fua & 2;
	vol->origin->discard = draw_discard(rng_below(&w->rng, 3), rng_fork(&w->rng, 113));
	vol->oracle = xalloc(sizeof(*vol->oracle));
	oracle_init(vol->oracle, nr, vol->info.data_sectors - w->hole + grow_room(w),
		    ilog2(w->p.block_sectors));
	name_volume(w, vol);
	format_origin(w, vol);
	w->dev[w->nr_dev++] = vol->origin;
	w->vol[w->nr_vol++] = vol;
}

static void free_world(struct world *w)
{
	u32 i;

	world_drop(w);
	for (i = 0; i < w->nr_vol; i++) {
		oracle_free(w->vol[i]->oracle);
		free(w->vol[i]->oracle);
		free(w->vol[i]);
	}
	for (i = 0; i < w->nr_dev; i++) {
		device_free(w->dev[i]);
		free(w->dev[i]);
	}
}

/* ---- Life and death --------------------------------------------------------------- */

static void cut_device(struct world *w, struct device *d, u32 how)
{
	u64 mask = rng_next(&w->rng);
	u32 drawn = rng_below(&w->rng, NR_CUTS);

	device_cut(d, how ? how - 1 : drawn, mask, &w->rng);
}

/* Takes the kind of cut from the script, or draws and notes it; 0: each disk draws for itself. */
static u32 how_to_crash(struct world *w, bool *reset)
{
	struct line l = { .kind = LINE_CUT };

	if (!script_play) {
		script_log(w, *reset ? LINE_RESET : LINE_CUT, NULL, 0, 0);
		return 0;
	}
	script_take(w, LINE_CUT, LINE_RESET, &l);
	*reset = l.kind == LINE_RESET;
	return l.count;
}

void crash(struct world *w, bool reset)
{
	u32 how = how_to_crash(w, &reset), i;

	trace(w, 10, reset, 0, reset ? "RESET" : "POWER CUT");
	coverage_death(w, reset, 1);
	w->deaths++;
	w->hang_left = 0;
	loop_heal();
	for (i = 0; i < w->nr_dev; i++) {
		device_heal(w->dev[i], true);
		w->dev[i]->flush_failed = false;
		if (reset)
			device_reset(w->dev[i], &w->rng);
		else
			cut_device(w, w->dev[i], how);
	}
	for (i = 0; i < w->nr_vol; i++)
		oracle_crash(w->vol[i]->oracle);
	w->unjudged = w->lying;
	if (w->lint)
		linter_crash(w->lint);
	world_drop(w);
}

/* Returns false if the power went. */
bool create_volume(struct world *w, struct volume *vol)
{
	int r;

	vol->unsure = true;
	r = DURING(w, PHASE_CREATE, hybrid_volume_create(w->e, vol->id, &vol->info));
	if (w->crashed || w->stop)
		return false;
	if (r == -ENOMEM && loop_alloc_failed())
		return create_volume(w, vol);
	if (r == -EEXIST && vol->created)
		r = 0;
	if (r && !w->dev[0]->fault.dealt)
		violation(w, "error", "create of volume %u: %d", vol->id, r);
	vol->unsure = r;	/* the next life tells */
	vol->created = !r;
	return !w->stop;
}

static bool settle_existence(struct world *w, struct volume *vol)
{
	struct hybrid_volume_info info;
	int r;

	if (vol->unsure) {
		r = hybrid_volume_info(w->e, vol->id, &info);
		vol->created = !r && info.state == HYBRID_VOLUME_ACTIVE;
		if (!r && info.state == HYBRID_VOLUME_TOMBSTONE) {
			r = DURING(w, PHASE_FORGET, hybrid_volume_forget(w->e, vol->id));
			if (w->crashed || w->stop)
				return false;
			if (r && !w->dev[0]->fault.dealt)
				violation(w, "error", "forget of volume %u: %d", vol->id, r);
		}
		vol->unsure = false;
		/* Deleted, and the tools had no time for a new superblock */
		if (!vol->created) {
			format_origin(w, vol);
			if (w->lint)
				linter_reformat(w->lint, vol);
		}
	}
	return vol->created || create_volume(w, vol);
}

/* Does the reason tell an admin what happened? */
static void check_reason(struct world *w, const char *what, int r, const char *why)
{
	bool clear;

	if (r == -ENOMEM)
		clear = why && strstr(why, "memory");
	else if (r == -EIO)
		clear = why && (strstr(why, "cannot be") || strstr(why, "failed"));
	else
		clear = !r || (why && *why);
	if (!clear)
		violation(w, "reason", "%s fails with %d: %s", what, r, why ? why : "(none)");
}

bool open_volume(struct world *w, struct volume *vol)
{
	const char *why;
	int r;

	r = world_open(w, vol, &why);
	if (w->crashed || w->stop)
		return false;
	check_reason(w, "open", r, why);
	if (r && !faults_of_volume(w, vol))
		violation(w, "recovery", "open of volume %u fails with %d: %s", vol->id, r,
			  why ? why : "(no reason given)");
	if (!r)
		set_cutoff(w, vol);
	return !w->stop;
}

static void destroy(struct world *w)
{
	coverage_readahead(w);
	hybrid_engine_destroy(w->e);
	w->e = NULL;
	if (!heap_empty(&w->heap))
		violation(w, "memory", "destroy leaves %llu bytes",
			  (unsigned long long)w->heap.bytes);
}

static bool boot_once(struct world *w)
{
	const char *why;
	u32 i;
	int r;

	rot_keep(w);
	w->found = w->rotting || w->lying ? NULL : found_read(w);
	if (w->lint)
		linter_boot(w->lint, w->found);
	why = world_boot(w, &r);
	if (w->crashed || w->stop)
		return false;
	check_reason(w, "load", r, why);
	if (why && r == -ENOMEM && loop_alloc_failed()) {
		destroy(w);	/* again, with more memory */
		return false;
	}
	if (why && w->dev[0]->fault.dealt && r == -EIO) {
		destroy(w);
		w->crashed = true;	/* again, without the fault */
		return false;
	}
	if (why && faults_refuse(w, why)) {
		w->stop = true;
		return false;
	}
	if (why) {
		violation(w, "recovery", "load fails with %d: %s", r, why);
		return false;
	}
	for (i = 0; i < w->nr_vol; i++)
		if (!settle_existence(w, w->vol[i]) || !open_volume(w, w->vol[i]))
			return false;
	w->found = NULL;
	return true;
}

/* Boots until it succeeds, however often the power goes meanwhile. */
void boot(struct world *w)
{
	struct line l;
	u32 tries;

	for (tries = 0; !w->stop; tries++) {
		bool again = tries < 3 && rng_chance(&w->rng, 20);

		if (w->unjudged) {	/* it need only live */
			rot_explore_lies(w);
			w->stop = true;
			return;
		}

		if (w->lost_meta) {	/* its effects end the run */
			rot_explore_lost(w);
			w->stop = true;
			return;
		}
		if (script_play) {
			if (script_take(w, LINE_AGAIN, LINE_AGAIN, &l))
				w->crash_at = w->changes + l.count;
			if (script_take(w, LINE_LOSE, LINE_LOSE, &l))
				faults_lose(w, l.count);
		} else if (again) {
			w->crash_at = w->changes + 1 + rng_below(&w->rng, 40);
			script_log(w, LINE_AGAIN, NULL, 0, w->crash_at - w->changes);
		}
		if (tries < 3)
			faults_boot(w);
		if (boot_once(w)) {
			w->crash_at = SIM_NEVER;
			return;
		}
		if (w->stop)
			return;
		if (w->crashed)
			crash(w, rng_chance(&w->rng, w->p.reset_percent));
	}
}

static void quiesce(struct world *w)
{
	world_settle(w);
}

/* A clean stop makes all acknowledged writes durable. */
static void all_durable(struct world *w)
{
	u32 i;

	if (w->faulty)
		return;
	sim_now++;
	for (i = 0; i < w->nr_vol; i++)
		oracle_flush(w->vol[i]->oracle, sim_now, SIM_NEVER);
	sim_now++;
}

static void close_all(struct world *w)
{
	u32 i;

	for (i = 0; i < w->nr_vol; i++) {
		if (w->vol[i]->v && quiet(w, w->vol[i]))
			world_close(w, w->vol[i]);
		if (w->crashed || w->stop)
			return;
	}
}

void restart(struct world *w)
{
	u32 i;

	quiesce(w);
	if (w->crashed || w->stop)
		return;
	if (rng_below(&w->rng, 2)) {
		close_all(w);
		if (w->crashed || w->stop || !world_stop(w))
			return;
		all_durable(w);
		for (i = 0; w->faulty && i < w->nr_vol; i++) {	/* as after a crash */
			oracle_crash(w->vol[i]->oracle);
			device_drop_doomed(w->vol[i]->origin);
			w->vol[i]->origin->flush_failed = false;
			device_heal(w->vol[i]->origin, true);
		}
		device_drop_doomed(w->dev[0]);
		if (w->faulty)
			device_heal(w->dev[0], true);
		destroy(w);
		w->deaths = 0;
		if (!w->stop)
			boot(w);
		return;
	}
	reload(w);
}

/* ---- The end -------------------------------------------------------------------------- */

void read_all(struct world *w)
{
	u32 i, count = w->p.block_sectors;
	u64 b;

	for (i = 0; i < w->nr_vol; i++)
		for (b = 0; w->vol[i]->v && b * count < w->vol[i]->hot; b++) {
			if (w->stop || w->crashed)
				return;
			world_read_block(w, w->vol[i], b);
			if (b % 8 == 7)
				world_settle(w);
		}
	world_settle(w);
}

static void check_origins(struct world *w)
{
	u32 i;
	u64 s;

	sim_now++;
	for (i = 0; i < w->nr_vol && !w->stop; i++)
		for (s = 0; s < w->vol[i]->origin->data_to - w->vol[i]->origin->data_from && !w->stop; s++) {
			struct volume *vol = w->vol[i];
			val_t v = device_durable(vol->origin, vol->origin->data_from + s);
			const char *why = oracle_read(vol->oracle, s, v, sim_now);

			if (!why)
				continue;
			violation(w, "drain", "the drained origin of volume %u holds %s at %llu: %s",
				  vol->id, val_name(v), (unsigned long long)s, why);
			oracle_explain(vol->oracle, s);
		}
}

/*
 * Half of all runs end with late commits, and with a drain that waits for its
 * rate: then the timer has no other reason to run.
 */
static void slow_end(struct world *w)
{
	struct hybrid_config config = *hybrid_engine_config(w->e);

	if (w->p.config.commit_interval & 1)
		return;
	config.commit_interval = 60000;
	config.writeback_rate = 1 + (w->g->nr_blocks << w->g->block_shift) / 40;
	hybrid_engine_configure(w->e, &config);
	world_kick(w);
}

static void drain_all(struct world *w)
{
	struct hybrid_pool_status st;
	struct hybrid_actions acts;
	u32 ticks;

	hybrid_actions_init(&acts);
	hybrid_engine_drain(w->e, NULL, true, 0, &acts);
	world_carry(w, &acts);
	world_kick(w);
	for (ticks = 0; !w->stop && !w->crashed; ticks++) {
		world_idle(w);
		hybrid_engine_status(w->e, &st);
		if (!st.dirty)
			return;
		if (ticks == 300) {
			violation(w, "liveness", "a drain leaves %u blocks dirty", st.dirty);
			return;
		}
		world_tick(w, 100);
	}
}

void finish(struct world *w)
{
	u32 i;

	script_log(w, LINE_FINISH, NULL, 0, 0);
	for (i = 0; i < w->nr_dev; i++)
		device_heal(w->dev[i], false);
	w->p.load_percent = 0;
	for (i = 0; i < w->nr_vol; i++)
		if (w->vol[i]->suspended)
			world_resume(w, w->vol[i]);
	quiesce(w);
	if (!w->stop && !w->crashed)
		slow_end(w);
	if (!w->stop)
		read_all(w);
	if (!w->stop && !w->crashed)
		world_rest(w);
	if (w->stop)
		return;
	if (w->lying || w->p.fault_kind || w->faulty || rng_below(&w->rng, 2)) {
		crash(w, false);
		boot(w);
		if (!w->stop)
			read_all(w);
		if (w->stop || w->p.fault_kind || w->faulty)
			return;
	}
	drain_beside_users(w);
	if (!w->stop)
		drain_all(w);
	if (!w->stop && !w->crashed)
		world_rest(w);
	if (!w->stop)
		world_check_grace(w);
	if (!w->stop)
		close_all(w);
	if (w->stop || !world_stop(w))
		return;
	all_durable(w);
	check_origins(w);
	destroy(w);
}

static void one_episode(struct world *w)
{
	u32 end = w->step + w->p.episode;

	if (rng_chance(&w->rng, w->p.crash_percent)) {
		w->crash_at = w->changes + 1 + rng_below(&w->rng, w->p.episode / 2);
		script_log(w, LINE_POWER, NULL, 0, w->crash_at - w->changes);
	}
	while (w->step < end && w->step < w->p.steps && !w->crashed && !w->stop) {
		w->step++;
		faults_event(w);
		hang_event(w);
		grow_event(w);
		if (!w->crashed && !w->stop)
			one_event(w);
	}
	if (w->hang_left) {
		w->hang_left = 0;
		hang_end(w);
	}
	if (w->crash_at != SIM_NEVER && !w->crashed)
		script_log(w, LINE_POWER, NULL, 0, 0);
	w->crash_at = SIM_NEVER;
	if (w->crashed && !w->stop) {
		crash(w, rng_chance(&w->rng, w->p.reset_percent));
		boot(w);
		if (!w->stop && rng_below(&w->rng, 2)) {
			script_log(w, LINE_READALL, NULL, 0, 0);
			read_all(w);
		}
	}
}

static struct world *begin(u64 seed, u64 state)
{
	static struct world world;
	struct world *w = &world;

	memset(w, 0, sizeof(*w));
	w->seed = seed;
	w->rng.state = state;
	w->crash_at = SIM_NEVER;
	w->hash = 0xcbf29ce484222325ULL;
	w->ms = 1000;
	sim_now = 1;
	shim_cpu = 0;
	sim_world = w;
	shim_alloc_fails = world_alloc_fails;
	heap_init(&w->heap);
	sim_heap = &w->heap;
	INIT_LIST_HEAD(&w->ready);
	INIT_LIST_HEAD(&w->uios);
	return w;
}

static void format(struct world *w)
{
	u32 i;

	w->arng = rng_fork(&w->brng, 5);
	w->agerng = rng_fork(&w->brng, 6);
	w->hrng = rng_fork(&w->brng, 7);
	w->nrng = rng_fork(&w->brng, 8);
	w->growrng = rng_fork(&w->brng, 9);
	format_cache(w);
	w->hole = w->p.far ? (u64)w->p.block_sectors << w->p.far : 0;
	for (i = 0; i < w->p.volumes; i++)
		add_volume(w, i);
	if (sim_lint && !w->rotting && !w->lying)
		w->lint = linter_new(w);
	if (sim_trace)
		fprintf(stderr, "seed %llu: %u blocks of %u sectors, %u volumes, %u hot blocks, policy %s\n",
			(unsigned long long)w->seed, w->g->nr_blocks, w->p.block_sectors,
			w->p.volumes, w->p.hot_blocks, w->p.policy);
}

static void end(struct world *w, struct mark mark, u64 *hash)
{
	if (w->lint)
		linter_free(w->lint);
	*hash = w->hash;
	free_world(w);
	fibers_stop();
	arena_release(&sim_arena, mark);
	sim_world = NULL;
}

/* Intents: few users flush after most writes, whatever the profile; and few rings wrap. */
static void draw_intents(struct profile *p, struct rng r)
{
	p->syncs = rng_chance(&r, 60);
	if (p->syncs && !sim_rot && rng_chance(&r, 40))
		p->intent_blocks = 2 << rng_below(&r, 4);
}

void run_seed(u64 seed, char mode, u64 *hash)
{
	struct mark mark = arena_mark(&sim_arena);
	struct world *w = begin(seed, seed ^ (u64)mode << 56);

	w->rng.state = rng_next(&w->rng);	/* streams of neighbours do not overlap */
	w->brng = rng_fork(&w->rng, 1);
	fibers_begin(w);
	draw_profile(&w->p, seed, mode, &w->rng);
	faults_draw(w);
	fibers_profile(w);
	if (mode == 'A')
		draw_runs(&w->p, rng_fork(&w->rng, 104));
	draw_small(&w->p, rng_fork(&w->rng, 110), mode);
	w->p.demand_fill = sim_demand_fill;
	draw_intents(&w->p, rng_fork(&w->rng, 112));
	if (sim_alloc_faults)
		draw_alloc_faults(&w->p, rng_fork(&w->rng, 105), mode);
	if (sim_nowait)
		draw_nowait(&w->p, rng_fork(&w->rng, 111));
	if (sim_collisions && mode != 'L')
		collide_draw(&w->p, rng_fork(&w->rng, 106), mode);
	script_begin(w);
	format(w);
	faults_devices(w);
	script_volumes(w);
	if (mode == 'L') {
		loop_run(w);
		w->stop = true;
	} else {
		script_log(w, LINE_BOOT, NULL, 0, 0);
		boot(w);
	}
	while (w->step < w->p.steps && !w->stop)
		one_episode(w);
	if (!w->stop)
		finish(w);
	/* An aimed crash ends finish(), too, as it ends an episode. */
	w->crash_at = SIM_NEVER;
	if (w->crashed && !w->stop) {
		crash(w, false);
		boot(w);
		if (!w->stop) {
			script_log(w, LINE_READALL, NULL, 0, 0);
			read_all(w);
		}
	}
	end(w, mark, hash);
}

void run_script(struct script *s, u64 *hash)
{
	struct mark mark = arena_mark(&sim_arena);
	struct world *w = begin(s->p.seed, s->rng);

	script_play = s;
	script_begin(w);
	format(w);
	script_volumes(w);
	if (s->body)
		s->body(w);
	else
		script_run(w);
	script_play = NULL;
	end(w, mark, hash);
}
