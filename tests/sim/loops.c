// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Loops: one short run again and again, in which the first, the second, ...
 * allocation, or request to a device, fails; until none failed.  After each failure
 * nothing crashes, leaks or hangs, the promises hold, the error is clear, and
 * the pool works again afterwards.
 */
#include <string.h>

#include "sim.h"
#include "coverage.h"

static struct {
	bool alloc;		/* else requests */
	bool sticky;		/* that kind of request to that device goes on failing */
	u64 left;		/* until one fails */
	bool hit;
	bool told;		/* a caller was told of the failed allocation */
	const struct device *dev;
	u8 kind;
} nth;

/* ---- Failures --------------------------------------------------------------- */

bool loop_alloc_fails(void)
{
	if (!nth.alloc || !nth.left || --nth.left)
		return false;
	nth.hit = true;
	coverage_alloc();
	return true;
}

bool loop_alloc_failed(void)
{
	bool failed = nth.alloc && nth.hit && !nth.told;

	nth.told |= failed;
	return failed;
}

static u8 kind_of(const struct dreq *r)
{
	return r->kind == DREQ_READ || r->kind == DREQ_FLUSH ? r->kind : DREQ_WRITE;
}

bool loop_request_fails(const struct dreq *r)
{
	if (nth.dev == r->dev && nth.kind == kind_of(r))
		return true;
	if (nth.alloc || !nth.left || --nth.left)
		return false;
	nth.hit = true;
	if (nth.sticky) {
		nth.dev = r->dev;
		nth.kind = kind_of(r);
	}
	sim_world->faulty = true;
	sim_world->pool_faulty |= !r->dev->nr;
	return true;
}

void loop_heal(void)
{
	nth.dev = NULL;
}

/* ---- A short run ------------------------------------------------------------ */

void loop_profile(struct profile *p, struct rng *r)
{
	p->block_sectors = 8 << rng_below(r, 5);
	p->cache_blocks = 1 + rng_below(r, 10);
	p->hot_blocks = 4 + rng_below(r, 12);
	p->volumes = rng_below(r, 4) ? 2 : 1;
	p->max_ios = 1 + rng_below(r, 6);
	p->inplace_percent = rng_chance(r, 25) ? 50 : 0;
	p->admin_percent = 3;
	p->load_percent = 30;
	p->fail_alloc = 0;
	p->fault_kind = 0;
	p->cut_every = 0;
	p->weight[EV_REOPEN] = 0;
	p->weight[EV_RESTART] = 0;
	p->weight[EV_RECREATE] = 0;
}

static void some_events(struct world *w, u32 n)
{
	while (n-- && !w->crashed && !w->stop)
		one_event(w);
}

static bool all_open(struct world *w)
{
	u32 i;

	for (i = 0; i < w->nr_vol; i++)
		if (!w->vol[i]->v)
			return false;
	return true;
}

/*
 * The admin's part after a failure: the machine starts again, on devices that
 * work.  An origin that went on without its cache is refused if the cache holds
 * newer data; then this data is dropped.
 */
static void repair(struct world *w)
{
	bool failed = true;
	u32 i, tries;

	for (tries = 0; failed || w->crashed || !all_open(w); tries++) {
		if (tries == 3)
			violation(w, "liveness", "the pool cannot be repaired");
		if (w->stop)
			return;
		failed = nth.hit;
		crash(w, false);
		boot(w);
		for (i = 0; i < w->nr_vol && !w->stop && !w->crashed; i++)
			if (!w->vol[i]->v)
				recreate(w, w->vol[i], true);
		failed = nth.hit && !failed;	/* only meanwhile */
	}
	w->faulty = false;
	w->pool_faulty = false;
}

void loop_run(struct world *w)
{
	static const enum event part[] = {
		EV_MODE, EV_DRAIN, EV_MODE, EV_REOPEN, EV_RECREATE, EV_CHECKPOINT, EV_RESTART,
		EV_RECREATE, EV_RESTART,
	};
	u32 i;

	boot(w);
	some_events(w, 40);
	for (i = 0; i < ARRAY_SIZE(part) && !w->stop; i++) {
		/* After a failure the pool goes on if it can; repair only a dead machine or closed volumes */
		if (!w->stop && (w->crashed || !all_open(w)))
			repair(w);
		if (!w->stop)
			do_event(w, part[i]);
		some_events(w, 20);
	}
	if (!w->stop)
		repair(w);
	some_events(w, 20);
	if (!w->stop && w->faulty)
		repair(w);
	nth.left = 0;
	if (!w->stop)
		finish(w);
}

/* ---- The loop --------------------------------------------------------------- */

static bool one_run(u64 seed, u64 n, bool sticky)
{
	u64 before = sim_violations, hash;

	memset(&nth.sticky, 0, sizeof(nth) - offsetof(typeof(nth), sticky));
	nth.left = n;
	nth.sticky = sticky;
	run_seed(seed, 'L', &hash);
	if (sim_violations == before)
		return true;
	fprintf(stderr, "reproduce: sim --loop %s --seed %llu --nth %s%llu --trace\n",
		nth.alloc ? "alloc" : "io", (unsigned long long)seed, sticky ? "-" : "",
		(unsigned long long)n);
	return false;
}

u64 loop_seed(const char *what, u64 seed, s64 only)
{
	u64 n, runs = 0;
	bool good = true;

	nth.alloc = !strcmp(what, "alloc");
	if (only) {
		one_run(seed, only < 0 ? -only : only, only < 0);
		return 1;
	}
	for (n = 1; good; n++) {
		good = one_run(seed, n, false);
		runs++;
		if (!nth.hit)
			break;
		if (good && !nth.alloc) {
			good = one_run(seed, n, true);
			runs++;
		}
	}
	return runs;
}
