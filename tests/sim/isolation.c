// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * --isolation: the cost of a hang to the volumes whose origins answer.
 *
 * For each kind of request that does not end, and each operation of a healthy volume, the
 * program makes a pool twice: without and with the hang.  In the second pool the hanging volumes
 * are under load: their users' reads and writes, and a drain, ask for more than their share of
 * everything.  The cost of the operation is counted in requests that the healthy volume and the
 * pool send to devices, and in ticks of the engine's clock while nothing else is under way.  With
 * the hang it may take three times as many, and few more.
 *
 * All volumes share the cache device: if it hangs, the table only names the operations that do
 * not end.
 */
#include <stdio.h>
#include <string.h>

#include "script.h"
#include "coverage.h"
#include "engine-internal.h"

#define BLOCKS		256	/* of each volume */
#define CACHE_BLOCKS	128	/* for each volume */
#define DIRTY		0	/* the first of SOME blocks in each state */
#define CLEAN		8
#define MISSING		16
#define SOME		6
#define MOST_TICKS	60U	/* more count as a hang: an operation alone takes fewer than ten */
#define TIMES		3
#define MORE_REQUESTS	2
#define MORE_TICKS	3
#define LOAD_TICKS	3	/* for the hang to spread */

#define WB HYBRID_MODE_WRITEBACK
#define WT HYBRID_MODE_WRITETHROUGH
#define WA HYBRID_MODE_WRITEAROUND
#define PT HYBRID_MODE_PASSTHROUGH

/* ---- Hangs -------------------------------------------------------------------- */

struct row {
	const char *name;
	u32 volumes, hung;	/* of them, the last ones; 0: the cache device */
	enum hang what;
	bool alloc_faults;	/* all allocations that may not wait fail */
};

#define ROWS(text, volumes, hung, alloc_faults) \
	{ text ": all", volumes, hung, HANG_ALL, alloc_faults }, \
	{ text ": read", volumes, hung, HANG_READ, alloc_faults }, \
	{ text ": write", volumes, hung, HANG_WRITE, alloc_faults }, \
	{ text ": flush", volumes, hung, HANG_FLUSH, alloc_faults }, \
	{ text ": discard", volumes, hung, HANG_DISCARD, alloc_faults }

static const struct row rows[] = {
	ROWS("1 of 2 origins", 2, 1, false),
	ROWS("15 of 16 origins", 16, 15, false),
	ROWS("1 of 2, no memory", 2, 1, true),
	ROWS("15 of 16, no memory", 16, 15, true),
	ROWS("cache", 2, 0, false),
};

/* ---- Operations of the healthy volume ------------------------------------------- */

static bool wait_until(struct world *w, struct volume *vol,
		       bool (*done)(struct world *w, struct volume *vol))
{
	u64 from = w->ms;

	while (!done(w, vol) && !w->crashed && !w->stop) {
		if (world_step(w))
			continue;
		if (w->ms - from > MOST_TICKS * 100)
			return false;
		world_tick(w, 100);
	}
	return !w->crashed && !w->stop;
}

static bool no_io(struct world *w, struct volume *vol)
{
	return !vol->ios && !vol->calls;
}

static bool clean(struct world *w, struct volume *vol)
{
	return !dirty_blocks(vol->v);
}

static void block_io(struct world *w, struct volume *vol, enum hybrid_io_type type, u32 block)
{
	world_submit(w, vol, type, (u64)block * w->p.block_sectors, w->p.block_sectors / 2, 0);
}

static bool read_hit(struct world *w, struct volume *vol)
{
	block_io(w, vol, HYBRID_IO_READ, CLEAN);
	return wait_until(w, vol, no_io);
}

static bool read_miss(struct world *w, struct volume *vol)
{
	block_io(w, vol, HYBRID_IO_READ, MISSING);
	return wait_until(w, vol, no_io);
}

/* Reads a block of which a part is dirty; the rest is not valid, or is read whole from the origin. */
static bool read_mixed(struct world *w, struct volume *vol)
{
	world_submit(w, vol, HYBRID_IO_READ, (u64)(DIRTY + 1) * w->p.block_sectors,
		     w->p.block_sectors, 0);
	return wait_until(w, vol, no_io);
}

static bool write_blocks(struct world *w, struct volume *vol)
{
	block_io(w, vol, HYBRID_IO_WRITE, DIRTY);
	block_io(w, vol, HYBRID_IO_WRITE, CLEAN);
	block_io(w, vol, HYBRID_IO_WRITE, MISSING);
	return wait_until(w, vol, no_io);
}

/* Writes more blocks than are free. */
static bool write_many(struct world *w, struct volume *vol)
{
	u32 k;

	for (k = MISSING; k < MISSING + CACHE_BLOCKS / 2; k++)
		block_io(w, vol, HYBRID_IO_WRITE, k);
	return wait_until(w, vol, no_io);
}

static bool read_many(struct world *w, struct volume *vol)
{
	u32 k;

	for (k = MISSING; k < MISSING + CACHE_BLOCKS / 2; k++)
		block_io(w, vol, HYBRID_IO_READ, k);
	return wait_until(w, vol, no_io);
}

static bool flush(struct world *w, struct volume *vol)
{
	world_submit(w, vol, HYBRID_IO_FLUSH, 0, 0, 0);
	return wait_until(w, vol, no_io);
}

static bool fsync_one(struct world *w, struct volume *vol)
{
	return write_blocks(w, vol) && flush(w, vol);
}

static bool discard(struct world *w, struct volume *vol)
{
	world_submit(w, vol, HYBRID_IO_DISCARD, 0, (MISSING + SOME) * w->p.block_sectors, 0);
	return wait_until(w, vol, no_io);
}

/* Makes some blocks dirty: earlier dirty blocks may have been written back since. */
static bool dirty_some(struct world *w, struct volume *vol)
{
	u32 k;

	for (k = 0; k < SOME; k++)
		block_io(w, vol, HYBRID_IO_WRITE, DIRTY + k);
	return wait_until(w, vol, no_io);
}

static bool drain_volume(struct world *w, struct volume *vol)
{
	bool ended;

	if (!dirty_some(w, vol))
		return false;
	ask_drain(w, vol, true);
	ended = wait_until(w, vol, clean);
	ask_drain(w, vol, false);
	return ended;
}

static bool switch_mode(struct world *w, struct volume *vol)
{
	if (!dirty_some(w, vol))
		return false;
	ask_mode(w, vol, HYBRID_MODE_WRITETHROUGH);
	return wait_until(w, vol, clean);
}

static bool suspend(struct world *w, struct volume *vol)
{
	if (!quiet(w, vol) || !world_suspend(w, vol))
		return false;
	world_resume(w, vol);
	return !w->stop;
}

static bool status(struct world *w, struct volume *vol)
{
	struct hybrid_volume_status volume;
	struct hybrid_pool_status pool;

	hybrid_volume_status(w->e, vol->v, &volume);
	hybrid_engine_status(w->e, &pool);
	return true;
}

static bool policy(struct world *w, struct volume *vol)
{
	return !hybrid_engine_set_policy(w->e, hybrid_policy_get("sieve")) && read_hit(w, vol);
}

static bool checkpoint(struct world *w, struct volume *vol)
{
	return !w->e->ops->wait_checkpoint(w->e) && !w->stop;
}

static bool close_one(struct world *w, struct volume *vol)
{
	if (!quiet(w, vol))
		return false;
	world_close(w, vol);
	return !w->crashed && !w->stop;
}

static bool open_one(struct world *w, struct volume *vol)
{
	return open_volume(w, vol);
}

static bool detach(struct world *w, struct volume *vol)
{
	if (!drain_volume(w, vol) || !close_one(w, vol))
		return false;
	if (DURING(w, PHASE_DELETE, hybrid_volume_delete(w->e, vol->id, false)) ||
	    DURING(w, PHASE_FORGET, hybrid_volume_forget(w->e, vol->id)))
		return false;
	vol->created = false;
	name_volume(w, vol);
	vol->info.mode = WB;
	format_origin(w, vol);
	if (w->lint)
		linter_reformat(w->lint, vol);
	return !w->stop;
}

static bool create_one(struct world *w, struct volume *vol)
{
	return create_volume(w, vol);
}

static bool attach(struct world *w, struct volume *vol)
{
	return create_volume(w, vol) && open_volume(w, vol) && read_miss(w, vol);
}

static const struct column {
	const char *name;
	u32 mode;
	bool (*run)(struct world *w, struct volume *vol);	/* false: it does not end */
	bool (*before)(struct world *w, struct volume *vol);	/* while all answer */
} columns[] = {
	{ "read hit", WB, read_hit },
	{ "read miss", WB, read_miss },
	{ "read mixed", WB, read_mixed },
	{ "read many", WB, read_many },
	{ "write wb", WB, write_blocks },
	{ "write many", WB, write_many },
	{ "write wt", WT, write_blocks },
	{ "write wa", WA, write_blocks },
	{ "write pt", PT, write_blocks },
	{ "fsync wb", WB, fsync_one },
	{ "fsync wt", WT, fsync_one },
	{ "discard", WB, discard },
	{ "drain", WB, drain_volume },
	{ "mode", WB, switch_mode },
	{ "suspend", WB, suspend },
	{ "status", WB, status },
	{ "policy", WB, policy },
	{ "checkpoint", WB, checkpoint },
	{ "remove", WB, close_one },
	{ "resume", WB, open_one, close_one },
	{ "detach", WB, detach },
	{ "create", WB, create_one, detach },
	{ "attach", WB, attach, detach },
};

/* ---- One cell --------------------------------------------------------------------- */

struct cost {
	bool ended;
	u64 requests, ticks;
};

static struct {
	const struct row *row;
	const struct column *column;
	bool hangs;
	struct cost cost;
} cell;

/* Blocks of each volume become clean, and others dirty. */
static bool warm_up(struct world *w, struct volume *vol)
{
	u32 k;

	for (k = 0; k < SOME; k++)
		world_read_block(w, vol, CLEAN + k);
	return wait_until(w, vol, no_io) && dirty_some(w, vol);
}

/* Asks for more than any share: of jobs of each kind, of room, of I/O that waits for records. */
static void load(struct world *w, struct volume *vol)
{
	u32 k;

	for (k = MISSING; k < BLOCKS && !w->stop; k++) {
		block_io(w, vol, k & 1 ? HYBRID_IO_READ : HYBRID_IO_WRITE, k);
		/* The whole block where only half of it is dirty. */
		if (k < MISSING + SOME)
			world_read_block(w, vol, DIRTY + k - MISSING);
	}
	for (k = 0; k < SOME; k++)
		block_io(w, vol, HYBRID_IO_WRITE, CLEAN + k);
	world_submit(w, vol, HYBRID_IO_FLUSH, 0, 0, 0);
	world_submit(w, vol, HYBRID_IO_DISCARD, (u64)(CLEAN + SOME) * w->p.block_sectors,
		     w->p.block_sectors, 0);
	ask_drain(w, vol, true);
}

static void hang_some(struct world *w)
{
	u32 first = w->nr_vol - cell.row->hung, i;

	if (!cell.row->hung) {
		if (cell.hangs)
			hang_device(w->dev[0], cell.row->what);
		return;
	}
	for (i = first; i < w->nr_vol && cell.hangs; i++)
		hang_begin(w, w->vol[i], cell.row->what);
	for (i = first; i < w->nr_vol; i++)
		load(w, w->vol[i]);
	for (i = 0; i < LOAD_TICKS && !w->stop; i++) {
		world_idle(w);
		world_tick(w, 100);
	}
	world_idle(w);
}

static void run_cell(struct world *w)
{
	struct volume *vol = w->vol[0];
	u64 requests, ms;
	u32 i;

	boot(w);
	for (i = 0; i < w->nr_vol && !w->stop; i++)
		if (!warm_up(w, w->vol[i]))
			violation(w, "isolation", "volume %u does not warm up", w->vol[i]->id);
	if (!w->stop && cell.column->before && !cell.column->before(w, vol))
		violation(w, "isolation", "%s cannot be prepared", cell.column->name);
	world_settle(w);
	if (w->stop)
		return;
	w->p.alloc_faults = cell.row->alloc_faults ? 100 : 0;
	hang_some(w);
	w->may_hang = true;
	requests = w->requests + vol->requests;
	ms = w->ms;
	cell.cost.ended = cell.column->run(w, vol);
	cell.cost.requests = w->requests + vol->requests - requests;
	cell.cost.ticks = (w->ms - ms) / 100;
	w->stop = true;
}

static struct cost measure(const struct row *row, const struct column *column, bool hangs)
{
	struct script s;
	u64 hash;
	u32 i;

	script_defaults(&s);
	s.p.block_sectors = 32;
	s.p.cache_blocks = CACHE_BLOCKS * row->volumes;
	s.p.hot_blocks = BLOCKS;
	s.p.policy = "lru";
	s.p.seeks = 1;
	s.p.volumes = row->volumes;
	for (i = 0; i < row->volumes; i++) {
		s.volume[i].mode = i % 2 ? WB : WT;
		s.volume[i].discard = 1;
	}
	s.volume[0].mode = column->mode;
	s.body = run_cell;
	cell.row = row;
	cell.column = column;
	cell.hangs = hangs;
	memset(&cell.cost, 0, sizeof(cell.cost));
	run_script(&s, &hash);
	return cell.cost;
}

/* ---- The table -------------------------------------------------------------------- */

#define WIDTH 11

static void print_cost(const struct cost *c, bool bad)
{
	char text[32];

	if (!c->ended)
		snprintf(text, sizeof(text), "HANGS");
	else if (c->ticks)
		snprintf(text, sizeof(text), "%llu+%llut%s", (unsigned long long)c->requests,
			 (unsigned long long)c->ticks, bad ? "!" : "");
	else
		snprintf(text, sizeof(text), "%llu%s", (unsigned long long)c->requests, bad ? "!" : "");
	printf(" %*s", WIDTH - 1, text);
}

static bool too_much(const struct cost *with, const struct cost *without)
{
	return !with->ended || with->requests > TIMES * without->requests + MORE_REQUESTS ||
	       with->ticks > TIMES * without->ticks + MORE_TICKS;
}

static bool same_pool(const struct row *a, const struct row *b)
{
	return a->volumes == b->volumes && a->hung == b->hung && a->alloc_faults == b->alloc_faults;
}

static bool chosen(const char *name, const char *wanted)
{
	return !wanted || strstr(name, wanted);
}

static void print_line(const char *name, const struct cost *cost, const struct cost *limit,
		       const char *operation)
{
	bool bad;
	u32 c;

	printf("%-28s", name);
	for (c = 0; c < ARRAY_SIZE(columns); c++) {
		if (!chosen(columns[c].name, operation))
			continue;
		bad = limit && too_much(&cost[c], &limit[c]);
		print_cost(&cost[c], bad);
		if (bad)
			fprintf(stderr, "VIOLATION isolation seed=0: %s beside \"%s\"\n", columns[c].name, name);
		sim_violations += bad;
	}
	printf("\n");
	fflush(stdout);
}

static u64 measure_all(const struct row *row, bool hangs, const char *operation, struct cost *cost)
{
	u64 cells = 0;
	u32 c;

	for (c = 0; c < ARRAY_SIZE(columns); c++) {
		if (!chosen(columns[c].name, operation))
			continue;
		cost[c] = measure(row, &columns[c], hangs);
		cells++;
	}
	return cells;
}

/*
 * Returns how many cells were measured.  Each that costs too much is a violation.  HANG and
 * OPERATION: only rows and columns whose names contain them; NULL: all.
 */
u64 isolation_run(const char *hang, const char *operation)
{
	struct cost without[ARRAY_SIZE(columns)], with[ARRAY_SIZE(columns)];
	const struct row *pool = NULL;
	u64 cells = 0;
	u32 r, c;

	printf("%-28s", "requests+ticks");
	for (c = 0; c < ARRAY_SIZE(columns); c++)
		if (chosen(columns[c].name, operation))
			printf(" %*s", WIDTH - 1, columns[c].name);
	printf("\n");
	for (r = 0; r < ARRAY_SIZE(rows); r++) {
		const struct row *row = &rows[r];

		if (!chosen(row->name, hang))
			continue;
		if (!pool || !same_pool(row, pool)) {
			cells += measure_all(row, false, operation, without);
			print_line("nothing hangs", without, without, operation);
			pool = row;
		}
		cells += measure_all(row, true, operation, with);
		print_line(row->name, with, row->hung ? without : NULL, operation);
	}
	return cells;
}
