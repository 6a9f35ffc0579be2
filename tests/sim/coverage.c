// SPDX-License-Identifier: GPL-2.0-or-later
/* Which faults happened in which phases. */
#include "coverage.h"
#include "fibers.h"
#include "engine-internal.h"

static u64 hits[NR_PHASES][NR_FAULTS];
static u64 readahead[NR_READAHEAD_ENDS];

/* Callers that ask for memory without waiting for it. */
enum asker { ASKER_JOB, ASKER_ENTRY, ASKER_CHECKPOINT, NR_ASKERS };

static const char * const asker_name[NR_ASKERS] = { "job", "entry", "checkpoint" };
static u64 asked[NR_ASKERS][2];

static const char * const readahead_name[NR_READAHEAD_ENDS] = {
	[READAHEAD_READ] = "read", [READAHEAD_WRITTEN] = "written",
	[READAHEAD_DISCARDED] = "discarded", [READAHEAD_CACHED] = "cached",
	[READAHEAD_MODE] = "mode", [READAHEAD_SUSPENDED] = "suspended",
	[READAHEAD_UNUSED] = "unused", [READAHEAD_YIELDED] = "yielded",
	[READAHEAD_FAILED] = "failed",
};

static const char * const phase_name[NR_PHASES] = {
	[PHASE_LOAD] = "load", [PHASE_RECOVER] = "recover", [PHASE_CREATE] = "create",
	[PHASE_OPEN] = "open", [PHASE_CLOSE] = "close", [PHASE_DELETE] = "delete",
	[PHASE_FORGET] = "forget", [PHASE_SUSPEND] = "suspend", [PHASE_STOP] = "stop",
	[PHASE_RESTART] = "restart", [PHASE_POLICY] = "policy", [PHASE_RUN] = "run",
	[PHASE_FILL] = "fill", [PHASE_STAGED] = "staged", [PHASE_READAHEAD] = "readahead",
	[PHASE_RANGE] = "range",
	[PHASE_WRITEBACK] = "writeback", [PHASE_EVICT] = "evict", [PHASE_COMMIT] = "commit",
	[PHASE_CHECKPOINT] = "checkpoint", [PHASE_JOURNAL_FULL] = "journal-full",
	[PHASE_FLUSH] = "origin-flush", [PHASE_MARK] = "mark-origin", [PHASE_MODE] = "mode",
	[PHASE_DRAIN] = "drain",
};

static const char * const fault_name[NR_FAULTS] = {
	[FAULT_CUT] = "cut", [FAULT_CUT_AGAIN] = "cut2", [FAULT_CUT_THRICE] = "cut3",
	[FAULT_RESET] = "reset", [FAULT_ALLOC] = "alloc",
	[FAULT_CACHE_READ] = "cache-read", [FAULT_CACHE_WRITE] = "cache-write",
	[FAULT_CACHE_FLUSH] = "cache-flush", [FAULT_ORIGIN_READ] = "origin-read",
	[FAULT_ORIGIN_WRITE] = "origin-write", [FAULT_ORIGIN_FLUSH] = "origin-flush", [FAULT_ROT] = "rot",
};

/* ---- Phases under way -------------------------------------------------------- */

static bool any_leaving(struct hybrid_engine *e)
{
	u32 set, i;

	for (set = 0; set < e->map.nr_sets; set++)
		for (i = 0; i < e->map.set_size; i++)
			if (e->map.set[set].flags[i] &
			    (BLOCK_REMOVED | BLOCK_TRANSIT | BLOCK_GRACE))
				return true;
	return false;
}

/* Returns the phase of the job that the request is part of. */
static u32 job_phase(const struct dreq *r)
{
	struct hybrid_op *op = r->action->op;

	if (op->type != HYBRID_OP_TRANSFER)
		return 0;
	switch (container_of(op, struct hybrid_job, op)->type) {
	case JOB_FILL:
	case JOB_AHEAD:
		return BIT(PHASE_FILL);
	case JOB_STAGED:
		return BIT(PHASE_STAGED);
	case JOB_READAHEAD:
		return BIT(PHASE_READAHEAD);
	default:
		return BIT(PHASE_WRITEBACK);
	}
}

static u32 request_phases(struct world *w)
{
	u32 i, k, p = 0;

	for (i = 0; i < w->nr_dev; i++)
		for (k = 0; k < w->dev[i]->v->nr_inflight; k++)
			p |= job_phase(w->dev[i]->v->inflight[k]);
	return p;
}

static u32 volume_phases(struct world *w)
{
	u32 i, p = 0;

	for (i = 0; i < w->nr_vol; i++) {
		struct hybrid_volume *v = w->vol[i]->v;

		if (!v)
			continue;
		if (w->vol[i]->suspended)
			p |= BIT(PHASE_SUSPEND);
		if (v->flush.busy)
			p |= BIT(PHASE_FLUSH);
		if (v->sb.busy)
			p |= BIT(PHASE_MARK);
		if (v->ranges.nr)
			p |= BIT(PHASE_RANGE);
		if (!atomic_read(&v->blocks.dirty) && !atomic_read(&v->blocks.jdirty))
			continue;
		if (v->mode != HYBRID_MODE_WRITEBACK)
			p |= BIT(PHASE_MODE);
		else if (v->drain.on || w->e->writebacks.drain.on)
			p |= BIT(PHASE_DRAIN);
	}
	return p;
}

static u32 engine_phases(struct hybrid_engine *e)
{
	u32 p = 0;

	if (e->runs.nr_readahead)
		p |= BIT(PHASE_READAHEAD);
	if (e->meta.state == META_COMMIT_FLUSH || e->meta.state == META_COMMIT ||
	    e->meta.state == META_FLUSH)
		p |= BIT(PHASE_COMMIT);
	if (e->cp.phase != CP_NONE)
		p |= BIT(PHASE_CHECKPOINT);
	if (!hybrid_journal_has_room(&e->journal))
		p |= BIT(PHASE_JOURNAL_FULL);
	if (any_leaving(e))
		p |= BIT(PHASE_EVICT);
	return p;
}

u32 coverage_phases(struct world *w)
{
	struct hybrid_engine *e = w->e;
	u32 p = w->doing ? BIT(w->doing) : 0;
	bool fibers;

	if (e && !is_loaded(e) && w->doing == PHASE_LOAD)
		return e->cp.phase == CP_NONE ? p : BIT(PHASE_RECOVER);
	if (!e || !is_loaded(e))
		return p;
	/* No other call may see these accesses. */
	fibers = fibers_stop();
	if (!list_empty(&w->uios))
		p |= BIT(PHASE_RUN);
	p |= request_phases(w) | volume_phases(w) | engine_phases(e);
	fibers_go_on(fibers);
	return p;
}

/* ---- Faults ----------------------------------------------------------------- */

void coverage_count(u32 phases, enum sim_fault fault, u32 times)
{
	u32 p;

	for (p = 0; p < NR_PHASES; p++)
		if (phases & BIT(p))
			hits[p][fault] += times;
}

/* Of the calls that somebody waits for, these allocate.  All other allocations are of I/O, for its job. */
static bool allocates(enum sim_phase p)
{
	return p == PHASE_LOAD || p == PHASE_CREATE || p == PHASE_OPEN || p == PHASE_POLICY;
}

void coverage_alloc(void)
{
	enum sim_phase doing = sim_world->doing;

	coverage_count(BIT(allocates(doing) ? doing : PHASE_RUN), FAULT_ALLOC, 1);
}

#define KEPT_BYTES (HYBRID_JOURNAL_KEPT_BLOCKS * HYBRID_META_BLOCK_SIZE)

void coverage_nowait(struct world *w, size_t bytes, bool fails)
{
	enum asker who = ASKER_JOB;

	/* The journal asks for less before it does without. */
	if (fails && bytes / 2 > KEPT_BYTES)
		return;
	if (bytes > KEPT_BYTES)
		who = w->e->journal.nr ? ASKER_ENTRY : ASKER_CHECKPOINT;
	asked[who][fails]++;
}

void coverage_error(const struct dreq *r)
{
	u32 kind = r->kind == DREQ_READ ? 0 : r->kind == DREQ_FLUSH ? 2 : 1;

	coverage_count(coverage_phases(sim_world) | job_phase(r),
		       (r->dev->nr ? FAULT_ORIGIN_READ : FAULT_CACHE_READ) + kind, 1);
}

void coverage_death(struct world *w, bool reset, u32 times)
{
	u32 p = w->crashed ? w->crash_phases : coverage_phases(w);

	coverage_count(p, FAULT_CUT + min(w->deaths, 2U), times);
	if (reset)
		coverage_count(p, FAULT_RESET, times);
}

/* ---- The table -------------------------------------------------------------- */

#define ERRORS GENMASK(FAULT_ORIGIN_FLUSH, FAULT_CACHE_READ)
#define ORIGIN_ERRORS GENMASK(FAULT_ORIGIN_FLUSH, FAULT_ORIGIN_READ)

/* Faults that cannot happen in a phase, and why. */
static u32 impossible(enum sim_phase p)
{
	u32 no = allocates(p) || p == PHASE_RUN ? 0 : BIT(FAULT_ALLOC);

	switch (p) {
	case PHASE_LOAD:	/* only reads and flushes the cache device */
		return no | ORIGIN_ERRORS | BIT(FAULT_CACHE_WRITE);
	case PHASE_RECOVER:	/* only writes a checkpoint */
	case PHASE_RESTART:
		return no | ORIGIN_ERRORS | BIT(FAULT_CACHE_READ);
	case PHASE_POLICY:	/* nothing is in flight, nothing changes on disk */
		return ERRORS | BIT(FAULT_CUT) | BIT(FAULT_CUT_AGAIN) | BIT(FAULT_CUT_THRICE) |
		       BIT(FAULT_RESET) | BIT(FAULT_ROT);
	case PHASE_STOP:	/* no volume runs: only metadata is written */
		return no | ORIGIN_ERRORS | BIT(FAULT_CACHE_READ);
	default:
		return no;
	}
}

static u64 retired, failing;

void coverage_readahead(struct world *w)
{
	u32 k;

	for (k = 0; w->e && k < NR_READAHEAD_ENDS; k++)
		readahead[k] += w->e->runs.ends[k];
	if (!w->e)
		return;
	retired += w->e->places.nr_retired;
	failing += w->e->wear.failing;
}

static u64 entries_of_several, refused[2];

void coverage_commit(struct world *w, const struct hybrid_op *op)
{
	struct hybrid_engine *e = w->e;
	bool fibers;

	if (!e || op != &e->meta.op)
		return;
	fibers = fibers_stop();
	/* Flushes that wait for the rest were taken off the list, and put on it again. */
	entries_of_several += e->meta.state == META_COMMIT && e->commit.wanted &&
			      !list_empty(&e->commit.next);
	fibers_go_on(fibers);
}

void coverage_refused(bool device)
{
	refused[device]++;
}

void coverage_print(void)
{
	u32 p, f;

	printf("entries-of-several %llu\n", (unsigned long long)entries_of_several);
	grow_print();
	printf("refused %llu by-device %llu\n", (unsigned long long)refused[false],
	       (unsigned long long)refused[true]);
	printf("retired %llu\n", (unsigned long long)retired);
	printf("failing %llu\n", (unsigned long long)failing);
	for (f = 0; f < NR_READAHEAD_ENDS; f++)
		printf("readahead-%s %llu\n", readahead_name[f], (unsigned long long)readahead[f]);
	for (f = 0; f < NR_ASKERS; f++)
		printf("memory-%s %llu refused %llu\n", asker_name[f],
		       (unsigned long long)asked[f][0], (unsigned long long)asked[f][1]);
	collide_print();
	printf("%-14s", "phase");
	for (f = 0; f < NR_FAULTS; f++)
		printf(" %12s", fault_name[f]);
	for (p = PHASE_LOAD; p < NR_PHASES; p++) {
		printf("\n%-14s", phase_name[p]);
		for (f = 0; f < NR_FAULTS; f++)
			if (impossible(p) & BIT(f))
				printf(" %12s", hits[p][f] ? "?" : "-");
			else
				printf(" %12llu", (unsigned long long)hits[p][f]);
	}
	printf("\n");
}
