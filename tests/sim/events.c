// SPDX-License-Identifier: GPL-2.0-or-later
/* Events while the engine runs: drawn from the seed, one at a time. */
#include "sim.h"
#include "coverage.h"
#include "fibers.h"
#include "script.h"

/* A request of an admin to the engine. */
struct request {
	struct volume *vol;	/* or NULL: the pool */
	u64 what;
	struct hybrid_waiter *waiter;
};

static struct volume *pick_volume(struct world *w)
{
	struct volume *vol = w->vol[rng_below(&w->rng, w->nr_vol)];

	return vol->v && !vol->closing ? vol : NULL;
}

/* ... one that takes I/O. */
static struct volume *pick_running(struct world *w)
{
	struct volume *vol = pick_volume(w);

	return vol && !vol->suspended ? vol : NULL;
}

bool users_overlap(struct world *w, struct volume *vol, u64 sector, u32 count)
{
	struct uio *u;

	list_for_each_entry(u, &w->uios, link)
		if (u->vol == vol && u->io.type != HYBRID_IO_FLUSH &&
		    u->io.type != HYBRID_IO_READ && u->sector < sector + count &&
		    sector < u->sector + u->count)
			return true;
	return false;
}

/* Draws a block that the run will reach soon. */
static u64 soon_in_run(struct world *w, struct volume *vol)
{
	u64 block = vol->run_at / w->p.block_sectors + rng_below(&w->rng, 8);

	return block % DIV_ROUND_UP(vol->hot, w->p.block_sectors);
}

/* A range within one block, often of whole granules, often the whole block. */
static void pick_range(struct world *w, struct volume *vol, u64 *sector, u32 *count)
{
	u32 bs = w->p.block_sectors, gs = w->g->granule_sectors, first, unit = 1;
	u64 block;

	if (collide_range(w, vol, sector, count))
		return;
	block = rng_below(&w->rng, DIV_ROUND_UP(vol->hot, bs));
	/* Half of all I/O goes to few blocks */
	if (rng_below(&w->rng, 2))
		block = min(block, (u64)rng_below(&w->rng, 4));
	if (w->p.run_percent && rng_below(&w->rng, 2))
		block = soon_in_run(w, vol);
	switch (rng_below(&w->rng, 4)) {
	case 0:
		*sector = block * bs;
		*count = min_t(u64, bs, vol->hot - *sector);
		return;
	case 1:
	case 2:
		unit = gs;
	}
	bs = min_t(u64, bs, vol->hot - block * bs);
	if (bs < unit)		/* the last block is not whole */
		unit = 1;
	first = rng_below(&w->rng, bs / unit);
	*count = unit * (1 + rng_below(&w->rng, min(bs / unit - first, 16U)));
	*sector = block * w->p.block_sectors + first * unit;
}

/* The next block of the volume's run, seldom another one. */
static void next_of_run(struct world *w, struct volume *vol, u64 *sector, u32 *count)
{
	if (vol->run_at >= vol->hot)
		vol->run_at = 0;
	if (!rng_below(&w->rng, 100))
		vol->run_at = round_down(rng_below(&w->rng, vol->hot), w->p.block_sectors);
	*sector = vol->run_at;
	*count = min_t(u64, w->p.block_sectors, vol->hot - *sector);
	vol->run_at += *count;
}

void user_io(struct world *w, enum event ev, struct volume *vol, u64 sector, u32 count)
{
	static const enum hybrid_io_type type[] = {
		[EV_READ] = HYBRID_IO_READ, [EV_WRITE] = HYBRID_IO_WRITE,
		[EV_FUA] = HYBRID_IO_WRITE, [EV_FLUSH] = HYBRID_IO_FLUSH,
		[EV_DISCARD] = HYBRID_IO_DISCARD, [EV_ZEROES] = HYBRID_IO_ZEROES,
		[EV_META] = HYBRID_IO_READ, [EV_AHEAD] = HYBRID_IO_READ,
	};
	static const u8 flags[NR_EVENTS] = {
		[EV_FUA] = HYBRID_IO_FUA, [EV_META] = HYBRID_IO_META,
		[EV_AHEAD] = HYBRID_IO_AHEAD,
	};

	script_log(w, ev, vol, sector, count);
	if (ev != EV_FLUSH && w->p.nowait && rng_chance(&w->nrng, w->p.nowait))
		world_submit_nowait(w, vol, type[ev], sector, count, flags[ev]);
	else
		world_submit(w, vol, type[ev], sector, count, flags[ev]);
}

static void user_event(struct world *w, enum event ev)
{
	struct volume *vol = pick_running(w);
	u64 sector = 0;
	u32 count = 0;

	if (!vol || w->nr_uios >= w->p.max_ios)
		return;
	if (ev == EV_READ && w->p.run_percent && rng_chance(&w->rng, w->p.run_percent))
		next_of_run(w, vol, &sector, &count);
	else if (ev != EV_FLUSH)
		pick_range(w, vol, &sector, &count);
	if ((ev == EV_DISCARD || ev == EV_ZEROES) && rng_below(&w->rng, 3) == 0)
		count = min_t(u64, vol->hot - sector, count + rng_below(&w->rng, 4 * w->p.block_sectors));
	if (ev != EV_READ && ev != EV_META && ev != EV_AHEAD && ev != EV_FLUSH && !w->p.overlap &&
	    users_overlap(w, vol, sector, count))
		return;
	user_io(w, ev, vol, sector, count);
}

static void request(struct world *w, void (*fn)(struct world *w, void *arg),
		    const struct request *r)
{
	if (r->vol)
		r->vol->calls++;
	fiber_call(w, fn, r, sizeof(*r));
}

static void carry_request(struct world *w, const struct request *r, struct hybrid_actions *acts)
{
	world_carry(w, acts);
	world_kick(w);
	if (r->vol)
		r->vol->calls--;
}

static void call_mode(struct world *w, void *arg)
{
	struct request *r = arg;
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_volume_set_mode(w->e, r->vol->v, r->what, &acts);
	carry_request(w, r, &acts);
}

void ask_mode(struct world *w, struct volume *vol, u32 mode)
{
	struct request r = { .vol = vol, .what = mode };

	trace(w, 11, vol->id, mode, "mode of volume %u: %u", vol->id, mode);
	vol->ever_writeback |= mode == HYBRID_MODE_WRITEBACK;
	vol->info.mode = mode;
	request(w, call_mode, &r);
}

void set_mode(struct world *w, struct volume *vol, u32 mode)
{
	script_log(w, EV_MODE, vol, 0, mode);
	ask_mode(w, vol, mode);
}

static void call_cutoff(struct world *w, void *arg)
{
	struct request *r = arg;
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_volume_set_cutoff(w->e, r->vol->v, r->vol->info.cutoff_sectors, &acts);
	carry_request(w, r, &acts);
}

void set_cutoff(struct world *w, struct volume *vol)
{
	struct request r = { .vol = vol };

	request(w, call_cutoff, &r);
}

static void mode_event(struct world *w)
{
	struct volume *vol = pick_volume(w);
	u32 mode = draw_mode(&w->rng);

	if (vol)
		set_mode(w, vol, mode);
}

static void call_drain(struct world *w, void *arg)
{
	struct request *r = arg;
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_engine_drain(w->e, r->vol ? r->vol->v : NULL, r->what, 0, &acts);
	carry_request(w, r, &acts);
}

void ask_drain(struct world *w, struct volume *vol, bool on)
{
	struct request r = { .vol = vol, .what = on };

	trace(w, 12, vol ? vol->id : 9999, on, "drain %d", on);
	request(w, call_drain, &r);
}

void drain(struct world *w, struct volume *vol, bool on)
{
	script_log(w, EV_DRAIN, vol, 0, on);
	ask_drain(w, vol, on);
}

static void drain_event(struct world *w)
{
	struct volume *vol = rng_below(&w->rng, 2) ? pick_volume(w) : NULL;

	drain(w, vol, rng_below(&w->rng, 3));
}

static void call_evict(struct world *w, void *arg)
{
	struct request *r = arg;
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_engine_evict(w->e, r->vol->v, to_oblock(r->what), &acts);
	carry_request(w, r, &acts);
}

void evict_sector(struct world *w, struct volume *vol, u64 sector)
{
	struct request r = { .vol = vol, .what = (sector + w->hole) / w->p.block_sectors };

	script_log(w, EV_EVICT, vol, sector, 0);
	trace(w, 13, vol->id, sector, "evict volume %u block %llu", vol->id,
	      (unsigned long long)sector / w->p.block_sectors);
	request(w, call_evict, &r);
}

static void evict_event(struct world *w)
{
	struct volume *vol = pick_volume(w);
	u64 sector;
	u32 count;

	if (!vol)
		return;
	pick_range(w, vol, &sector, &count);
	evict_sector(w, vol, sector);
}

static void nobody_waits(struct hybrid_waiter *waiter)
{
}

static void call_checkpoint(struct world *w, void *arg)
{
	struct request *r = arg;
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	hybrid_engine_checkpoint(w->e, r->waiter, &acts);
	carry_request(w, r, &acts);
}

static void checkpoint_event(struct world *w)
{
	struct hybrid_waiter *waiter = arena_alloc(&sim_arena, sizeof(*waiter));
	struct request r = { .waiter = waiter };

	memset(waiter, 0, sizeof(*waiter));
	waiter->done = nobody_waits;
	trace(w, 14, 0, 0, "checkpoint");
	request(w, call_checkpoint, &r);
}

bool quiet(struct world *w, struct volume *vol)
{
	u32 ticks = 0;

	vol->closing = true;
	while ((vol->ios || vol->calls) && !w->crashed && !w->stop) {
		if (world_step(w)) {
			DURING(w, PHASE_SUSPEND, (other_events(w), 0));
			continue;
		}
		if (++ticks > 300) {
			world_settle(w);	/* reports it */
			return false;
		}
		world_tick(w, 100);
	}
	return !w->crashed && !w->stop;
}

static bool close_event(struct world *w, struct volume *vol)
{
	if (!quiet(w, vol))
		return false;
	world_close(w, vol);
	return !w->crashed && !w->stop;
}

/*
 * Other volumes run meanwhile.  Whether users' I/O is flushed is dm's affair: its core does
 * this, or skips it (noflush), before it calls.
 */
static bool suspend(struct world *w, struct volume *vol)
{
	return quiet(w, vol) && DURING(w, PHASE_SUSPEND, world_suspend(w, vol));
}

static void draw_tunables(struct world *w, struct hybrid_config *config)
{
	*config = *hybrid_engine_config(w->e);
	config->high_watermark = 1 + rng_below(&w->rng, 100);
	config->low_watermark = rng_below(&w->rng, config->high_watermark);
	config->commit_interval = 10 + rng_below(&w->rng, 2000);
	config->writeback_rate = rng_below(&w->rng, 2) ? 4096 << rng_below(&w->rng, 4) : 0;
	if (sim_policies)
		config->endurance = draw_endurance(rng_fork(&w->rng, 102));
	config->metadata_share = draw_share(rng_fork(&w->rng, 111));
	config->trim_rate = draw_trim_rate(rng_fork(&w->rng, 121));
	draw_error_limits(config, rng_fork(&w->rng, 122));
}

static const char *draw_next_policy(struct world *w)
{
	static const char * const policy[] = { "lru", "lru", "fifo", "fifo", "null" };
	const char *name = policy[rng_below(&w->rng, ARRAY_SIZE(policy))];

	if (sim_policies)
		name = draw_policy(rng_fork(&w->rng, 101));
	if (draw_contract(rng_fork(&w->rng, 109)))
		name = "contract";
	trace(w, 18, name[0], 0, "policy %s", name);
	return name;
}

static int set_policy(struct world *w, const char *name)
{
	int r = hybrid_engine_set_policy(w->e, hybrid_policy_get(name));

	if (r == -ENOMEM && loop_alloc_failed())
		r = hybrid_engine_set_policy(w->e, hybrid_policy_get(name));
	if (r)
		violation(w, "error", "policy %s: %d", name, r);
	return r;
}

static void call_policy(struct world *w, void *arg)
{
	set_policy(w, *(const char **)arg);
	w->switching = false;
}

/* Switches the policy as a message does: I/O goes on, but nobody else switches meanwhile. */
static void policy_event(struct world *w)
{
	const char *name;

	if (w->switching)
		return;
	name = draw_next_policy(w);
	w->switching = true;
	fiber_call(w, call_policy, &name, sizeof(name));
}

/* Changes settings as a reload does, while nothing is in flight. */
static void new_settings(struct world *w)
{
	const char *name = draw_next_policy(w);
	struct hybrid_config config;

	DURING(w, PHASE_POLICY, set_policy(w, name));
	draw_tunables(w, &config);
	hybrid_engine_configure(w->e, &config);
}

/* Reloads as for a pool's new table: all volumes are suspended meanwhile. */
void reload(struct world *w)
{
	bool suspended[SIM_MAX_VOLUMES];
	const char *why = NULL;
	u32 i;
	int r;

	for (i = 0; i < w->nr_vol; i++) {
		struct volume *vol = w->vol[i];

		suspended[i] = !vol->v || vol->suspended;
		/* Writes that nobody flushed may stay volatile */
		if (!suspended[i] && !suspend(w, vol))
			return;
	}
	if (!world_stop(w))
		return;
	if (w->p.admin_percent)
		new_settings(w);
	r = DURING(w, PHASE_RESTART, hybrid_engine_restart(w->e, &why));
	if (w->crashed || w->stop)
		return;
	/* A failed pool still serves clean granules (P5) */
	if (r && !(w->faulty && hybrid_engine_failed(w->e)))
		violation(w, "error", "restart fails with %d: %s", r, why ? why : "");
	world_kick(w);
	for (i = 0; i < w->nr_vol; i++)
		if (!suspended[i] && !w->vol[i]->taken)
			world_resume(w, w->vol[i]);
	collide_restarted(w);
}

/* Events of an admin: reload, tunables, suspend and resume. */
void admin_event(struct world *w)
{
	struct hybrid_config config;
	struct volume *vol;

	script_log(w, LINE_ADMIN, NULL, 0, 0);
	vol = pick_volume(w);
	switch (rng_below(&w->rng, 8)) {
	case 0:
		reload(w);
		break;
	case 1:
	case 2:
		draw_tunables(w, &config);
		trace(w, 17, config.high_watermark, config.writeback_rate, "tunables");
		hybrid_engine_configure(w->e, &config);
		world_kick(w);
		world_tick(w, 1);
		break;
	default:
		if (vol && vol->suspended)
			world_resume(w, vol);
		else if (vol)
			suspend(w, vol);
	}
}

static void reopen_event(struct world *w)
{
	struct volume *vol = pick_volume(w);

	if (!vol || !close_event(w, vol))
		return;
	faults_reopen(w, vol);
	open_volume(w, vol);
}

void recreate(struct world *w, struct volume *vol, bool drop)
{
	int r;

	trace(w, 15, vol->id, drop, "delete volume %u%s", vol->id, drop ? ", dirty or not" : "");
	vol->unsure = true;
	if (drop)
		oracle_forget(vol->oracle);
	r = DURING(w, PHASE_DELETE, hybrid_volume_delete(w->e, vol->id, drop));
	if (w->crashed || w->stop)
		return;
	if (r == -EBUSY && !drop) {
		vol->unsure = false;
		faults_reopen(w, vol);
		open_volume(w, vol);
		return;
	}
	if (!r)
		r = DURING(w, PHASE_FORGET, hybrid_volume_forget(w->e, vol->id));
	if (w->crashed || w->stop)
		return;
	if (r && w->faulty) {
		w->crashed = true;	/* only a new life tells the outcome */
		return;
	}
	if (r)
		violation(w, "error", "delete or forget of volume %u: %d", vol->id, r);
	vol->created = false;
	faults_reopen(w, vol);
	/* The tools write a new superblock: another volume on the same origin */
	name_volume(w, vol);
	format_origin(w, vol);
	if (w->lint)
		linter_reformat(w->lint, vol);
	if (create_volume(w, vol))
		open_volume(w, vol);
}

static void recreate_event(struct world *w)
{
	struct volume *vol = pick_volume(w);
	bool drop = rng_below(&w->rng, 3) == 0;

	if (vol && close_event(w, vol))
		recreate(w, vol, drop);
}

static void cutoff_event(struct world *w)
{
	struct volume *vol = pick_volume(w);

	if (!vol)
		return;
	vol->info.cutoff_sectors = rng_below(&w->rng, 2) ? 0 : 8 << rng_below(&w->rng, 8);
	set_cutoff(w, vol);
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

void tick(struct world *w, u32 ms)
{
	script_log(w, EV_TICK, NULL, 0, ms);
	world_tick(w, ms);
}

/* Choices without a line of their own in a script are drawn again when the script is replayed. */
void do_event(struct world *w, enum event ev)
{
	switch (ev) {
	case EV_STEP:
		if (!world_step(w) && !w->crashed && rng_below(&w->rng, 4) == 0)
			tick(w, 10 + rng_below(&w->rng, 200));
		return;
	case EV_TICK:
		tick(w, 10 + rng_below(&w->rng, 200));
		return;
	case EV_MODE:
		mode_event(w);
		return;
	case EV_DRAIN:
		drain_event(w);
		return;
	case EV_EVICT:
		evict_event(w);
		return;
	case EV_READ ... EV_ZEROES:
	case EV_META ... EV_AHEAD:
		user_event(w, ev);
		return;
	default:
		script_log(w, ev, NULL, 0, 0);
	}
	switch (ev) {
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
	case EV_POLICY:
		policy_event(w);
		break;
	default:
		break;
	}
}

/* Any other event may wait for the origin that hangs. */
static void easy_event(struct world *w)
{
	enum event ev = draw_event(w);

	if (ev <= EV_EVICT || ev == EV_CHECKPOINT)
		do_event(w, ev);
	else
		do_event(w, EV_STEP);
}

void one_event(struct world *w)
{
	enum event ev;

	if (hang_any(w)) {
		easy_event(w);
		return;
	}
	if (w->p.admin_percent && rng_chance(&w->rng, w->p.admin_percent)) {
		admin_event(w);
		return;
	}
	ev = draw_event(w);
	shim_cpu = rng_below(&w->rng, SHIM_NR_CPUS);
	if (!collide_event(w))
		do_event(w, ev);
}

/* One request of some kind to some device fails. */
static void aim_error(struct world *w)
{
	struct device *d = w->dev[rng_below(&w->arng, w->nr_dev)];
	struct fault *f = &d->fault;

	f->left = 1;
	f->from = 0;
	f->to = d->sectors;
	f->read = 100 * !rng_below(&w->arng, 3);
	f->flush = 100 * !rng_below(&w->arng, 2);
	f->write = 100 * !f->read * !f->flush;
	f->dealt = true;
	w->faulty = true;
	w->pool_faulty |= !d->nr;
	trace(w, 19, d->nr, w->p.aim, "an error of dev%u is due", d->nr);
}

void aimed_event(struct world *w)
{
	if (w->branch || !(coverage_phases(w) & BIT(w->p.aim)) || rng_below(&w->arng, 6))
		return;
	w->p.aims--;
	switch (rng_below(&w->arng, w->p.fault_kind ? 4 : 2)) {
	case 0:
		w->crash_at = w->changes;
		break;
	case 1:
		crash_explore(w, 1);
		break;
	default:
		aim_error(w);
	}
}

void other_events(struct world *w)
{
	bool waits = w->doing == PHASE_CREATE || w->doing == PHASE_OPEN ||
		     w->doing == PHASE_CLOSE || w->doing == PHASE_DELETE ||
		     w->doing == PHASE_FORGET || w->doing == PHASE_SUSPEND;
	u32 lines;

	if (!waits || w->branch || w->crashed || w->stop || !w->p.load_percent)
		return;
	if (script_play) {
		script_meanwhile(w);
		return;
	}
	if (!rng_chance(&w->rng, w->p.load_percent))
		return;
	lines = script_lines();
	if (rng_below(&w->rng, 10))
		user_event(w, EV_READ + rng_below(&w->rng, EV_ZEROES - EV_READ + 1));
	else
		tick(w, 10 + rng_below(&w->rng, 100));
	if (lines == script_lines())
		script_log(w, LINE_NOTHING, NULL, 0, 0);
}
