// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * scale CACHE-GIB BLOCK-KIB ORIGIN-GIB SWEEPS: the engine with a full cache of that size, over
 * metadata that is made up as it is read.  Prints a line of JSON for each phase: the requests to
 * the cache device, and seconds of CPU that the engine took in all, and in the longest of its
 * calls.  So many sweeps of the dirty data are written back.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "engine-internal.h"
#include "executor.h"
#include "scale-disk.h"

#define PAGE_SECTORS	8
#define HITS		200000
#define SINGLES		256	/* writes, each with its flush */
#define GROUP		64	/* ... with one for all */
#define BULK		4096

static struct scale_disk disk;
static struct hybrid_engine *e;
static struct hybrid_volume *v;
static struct hybrid_executor x;
static u64 drawn;
static double device_seconds;	/* in transfers */

static struct {
	const char *name;
	struct scale_disk before;
	u64 records;
	double cpu, longest;
} phase;

static struct {
	u32 max, nr;
	double cpu, longest;
} sweeps;

/* Calls that prepare a step of a checkpoint. */
static struct {
	double cpu, longest;
} steps;

static struct {
	u64 writes, sectors, back, end;
	double gap;		/* sectors in all, from the end of one write to the next */
} origin;

static void die(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(2);
}

static double cpu(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static u64 resident(void)
{
	unsigned long size = 0, pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (!f || fscanf(f, "%lu %lu", &size, &pages) != 2)
		die("/proc/self/statm", "cannot be read");
	fclose(f);
	return (u64)pages * sysconf(_SC_PAGESIZE);
}

/* ---- phases -------------------------------------------------------------- */

static void begin(const char *name)
{
	phase.name = name;
	phase.before = disk;
	phase.records = e ? e->stats.journal_records : 0;
	phase.cpu = 0;
	phase.longest = 0;
	memset(&steps, 0, sizeof(steps));
}

static void spent(double seconds)
{
	phase.cpu += seconds;
	phase.longest = max(phase.longest, seconds);
}

static void field(const char *name, double value)
{
	printf(", \"%s\": %.12g", name, value);
}

/* The line of a phase; the caller adds fields of its own, and ends it with finish(). */
static void end(void)
{
	const struct scale_disk *b = &phase.before;

	printf("{\"phase\": \"%s\"", phase.name);
	field("cpu", phase.cpu);
	field("longest", phase.longest);
	field("reads", disk.reads - b->reads);
	field("read_bytes", disk.read_bytes - b->read_bytes);
	field("small_reads", disk.small_reads - b->small_reads);
	field("writes", disk.writes - b->writes);
	field("write_bytes", disk.write_bytes - b->write_bytes);
	field("journal_bytes", disk.journal_bytes - b->journal_bytes);
	field("records", e->stats.journal_records - phase.records);
	field("step_cpu", steps.cpu);
	field("longest_step", steps.longest);
}

static void finish(void)
{
	puts("}");
	fflush(stdout);
}

/* ---- carrying out -------------------------------------------------------- */

static void note_origin(u64 sector, u32 count)
{
	if (sector < origin.end)
		origin.back++;
	else if (origin.writes)
		origin.gap += sector - origin.end;
	origin.end = sector + count;
	origin.writes++;
	origin.sectors += count;
}

static void op_done(struct hybrid_executor *executor, struct hybrid_op *op)
{
	static struct hybrid_sweep none;
	double t = cpu();
	struct hybrid_sweep *w = v ? &v->writeback.sweep : &none;
	u8 cp = e->cp.phase;
	u32 set;

	/* As the next one begins; so that it is seen. */
	if (!w->under_way)
		w->set = 0;
	set = w->set;

	hybrid_engine_op_done(e, op, &executor->acts);
	t = cpu() - t;
	spent(t);
	if (e->cp.phase != cp || e->meta.state == META_CHECKPOINT) {
		steps.cpu += t;
		steps.longest = max(steps.longest, t);
	}
	if (w->set == set)
		return;
	sweeps.nr += !w->under_way;
	sweeps.cpu += t;
	sweeps.longest = max(sweeps.longest, t);
}

/* Data is not moved. */
static int transfer(struct hybrid_executor *executor, const struct hybrid_op *op, bool on_origin,
		    u64 sector, u32 count, void *data)
{
	double t = cpu();

	(void)executor;
	if (op->type == HYBRID_OP_META)
		scale_disk_transfer(&disk, op, sector, count, data);
	else if (op->type == HYBRID_OP_TRANSFER && op->write && on_origin)
		note_origin(sector, count);
	device_seconds += cpu() - t;
	return 0;
}

static int flush(struct hybrid_executor *executor, struct hybrid_op *op, bool on_origin)
{
	(void)executor;
	scale_disk_flush(&disk, op, on_origin);
	return 0;
}

static void tick(u32 ms)
{
	double t = cpu();

	x.now += ms;
	hybrid_engine_tick(e, x.now, &x.acts);
	spent(cpu() - t);
	hybrid_execute_all(&x);
}

static bool wait_for(struct hybrid_executor *executor, const bool *ended)
{
	u32 n;

	hybrid_execute_all(executor);
	for (n = 0; !*ended; n++) {
		if (n == 1000)
			die(phase.name, "the engine does not go on");
		tick(100);
	}
	return true;
}

static const struct hybrid_executor_ops executor_ops = {
	.transfer = transfer,
	.flush = flush,
	.wait = wait_for,
	.op_done = op_done,
};

/* ---- services for the engine --------------------------------------------- */

static u64 next_random(struct hybrid_engine *engine)
{
	(void)engine;
	return ++drawn;
}

static const struct hybrid_engine_ops ops = {
	.alloc_buffer = hybrid_execute_no_buffer,
	.free_buffer = hybrid_execute_no_free,
	.checksum = hybrid_execute_no_checksum,
	.do_op = hybrid_execute_now,
	.wait_checkpoint = hybrid_execute_checkpoint,
	.random = next_random,
};

/* ---- the pool's life ----------------------------------------------------- */

static void create(void)
{
	struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	int error;

	/* Nothing is written back unless it is asked for. */
	config.low_watermark = 100;
	config.high_watermark = 100;
	hybrid_executor_init(&x, &executor_ops);
	e = hybrid_engine_create(&disk.sb, &ops, &x, hybrid_policy_get(disk.sb.policy), &config,
				 &error);
	if (!e)
		die("create", "there is not enough memory");
	x.engine = e;
}

static void activate(const char *name)
{
	const char *why = "";
	struct hybrid_pool_status st;
	u64 before;
	double t;

	/* The last engine goes as in a power cut: its writes stay. */
	if (e)
		hybrid_engine_destroy(e);
	e = NULL;
	before = resident();
	create();
	begin(name);
	device_seconds = 0;
	t = cpu();
	if (hybrid_engine_load(e, &why))
		die(name, why);
	spent(cpu() - t - device_seconds);
	end();
	hybrid_engine_status(e, &st);
	field("blocks", st.blocks);
	field("used", st.used);
	field("dirty", st.dirty);
	field("leaves", e->g->nr_leaves);
	field("indexes", e->g->nr_index);
	field("journal_blocks", e->g->journal_blocks);
	field("intent_blocks", e->g->intent_blocks);
	field("ram", st.ram);
	field("resident", resident() - before);
	finish();
	tick(100);
	if (hybrid_volume_open(e, 0, disk.origin.member_sectors, &disk, &v, &why))
		die("open", why);
}

/* ---- hits ---------------------------------------------------------------- */

/* A page of the volume that is cached, at random. */
static u64 cached_sector(void)
{
	u64 r = scale_mix(++drawn), b = (r << 32 | scale_mix(++drawn)) % e->g->nr_blocks;
	u32 pages = e->g->block_sectors / PAGE_SECTORS;

	return (scale_disk_oblock(&disk, b) << e->g->block_shift) + r % pages * PAGE_SECTORS;
}

static double hits(u64 *sector)
{
	double t = cpu();
	struct hybrid_request q;
	u32 n;

	for (n = 0; n < HITS; n++) {
		hybrid_io_init(&q.io, v, HYBRID_IO_READ, sector[n], PAGE_SECTORS, 0);
		if (hybrid_engine_map(e, &q.io, &x.acts) != HYBRID_MAP_REMAP ||
		    !hybrid_engine_io_done(e, &q.io, 0, &x.acts))
			die("hits", "one was none");
	}
	return cpu() - t;
}

/* All over the cache; and again and again the same 64 pages. */
static void measure_hits(void)
{
	u64 *sector = malloc(HITS * sizeof(*sector));
	u32 n;

	if (!sector)
		die("hits", "there is not enough memory");
	begin("hits");
	for (n = 0; n < HITS; n++)
		sector[n] = cached_sector();
	spent(hits(sector));
	for (n = 64; n < HITS; n++)
		sector[n] = sector[n % 64];
	end();
	field("near_cpu", hits(sector));
	field("hits", HITS);
	finish();
	free(sector);
}

/* ---- the journal --------------------------------------------------------- */

static void map_io(struct hybrid_request *q, enum hybrid_io_type type, u64 sector, u32 count)
{
	double t = cpu();

	hybrid_request_send(&x, q, v, type, sector, count, 0);
	spent(cpu() - t);
}

/* So many writes of a page each at the same time, then a flush. */
static void write_group(u32 nr)
{
	static struct hybrid_request q[BULK], flush;
	u32 n;

	for (n = 0; n < nr; n++)
		map_io(&q[n], HYBRID_IO_WRITE, cached_sector(), PAGE_SECTORS);
	for (n = 0; n < nr; n++)
		wait_for(&x, &q[n].ended);
	map_io(&flush, HYBRID_IO_FLUSH, 0, 0);
	wait_for(&x, &flush.ended);
}

static void measure_writes(const char *name, u32 groups, u32 nr)
{
	u32 n;

	begin(name);
	for (n = 0; n < groups; n++)
		write_group(nr);
	end();
	field("user_writes", (double)groups * nr);
	finish();
}

/* A second in which nothing arrives, and the cost of `dmsetup status`. */
static void measure_idle(void)
{
	struct hybrid_pool_status st;
	double t;
	u32 n;

	begin("idle");
	for (n = 0; n < 10; n++)
		tick(100);
	end();
	t = cpu();
	hybrid_engine_status(e, &st);
	field("status_cpu", cpu() - t);
	field("open_regions", st.open_regions);
	finish();
}

/* Until one more group would be too much for the journal, or (@over) was. */
static void fill_journal(const char *name, bool over)
{
	u64 checkpoints = e->stats.checkpoints;
	u64 used = e->journal.head - e->journal.tail, writes = 0, group = 0, last;
	u32 nr = min_t(u32, BULK, e->g->nr_blocks / 256);

	begin(name);
	while (over ? e->stats.checkpoints == checkpoints :
	       (used + 2 * group) * 2 < e->g->journal_blocks) {
		last = used;
		write_group(nr);
		writes += nr;
		used = e->journal.head - e->journal.tail;
		group = used - min(used, last);
	}
	end();
	field("user_writes", writes);
	field("journal_used", used);
	field("journal_blocks", e->g->journal_blocks);
	finish();
}

/* ---- checkpoints --------------------------------------------------------- */

static void measure_checkpoint(const char *name)
{
	begin(name);
	hybrid_execute_checkpoint(e);
	end();
	finish();
}

/* As if each leaf had a record since the last checkpoint. */
static void mark_all_leaves(void)
{
	u32 set, i;

	for (set = 0; set < e->map.nr_sets; set++)
		for (i = 0; i < e->map.set_size; i += HYBRID_MAP_LEAF_BLOCKS)
			hybrid_mark_leaf(e, set, i);
}

static void measure_delete(void)
{
	double t;

	begin("close");
	hybrid_volume_close(e, v);
	end();
	finish();
	begin("delete");
	device_seconds = 0;
	t = cpu();
	if (hybrid_volume_delete(e, 0, true))
		die("delete", "refused");
	t = cpu() - t;
	end();
	/* Calls inside are counted twice: the whole beside its parts. */
	field("all_cpu", t);
	finish();
	mark_all_leaves();
	measure_checkpoint("checkpoint-all");
}

/* ---- writeback ----------------------------------------------------------- */

/* As if the full cache had been loaded so: that much is dirty, blocks at random. */
static void make_dirty(u32 per_mille)
{
	struct hybrid_sweep *w = &v->writeback.sweep;
	u32 set, i;

	for (set = 0; set < e->map.nr_sets; set++) {
		struct hybrid_set *s = &e->map.set[set];

		spin_lock(&s->lock);
		for (i = 0; i < e->map.set_size; i++) {
			bool dirty = scale_mix(s->key[i]) % 1000 < per_mille;

			set_put_mask(&e->map, s, MASK_VALID, i, e->map.granules);
			hybrid_put_dirty(e, s, i, dirty ? e->map.granules : 0);
			hybrid_put_jdirty(e, s, i, dirty ? e->map.granules : 0);
		}
		spin_unlock(&s->lock);
	}
	w->cursor = 0;
	w->nr = 0;
	w->next = 0;
	w->under_way = false;
}

static void measure_writeback(u32 per_mille)
{
	struct hybrid_op *op;
	char name[32];
	u32 made;

	make_dirty(per_mille);
	made = atomic_read(&e->writebacks.nr_dirty);
	snprintf(name, sizeof(name), "writeback-%u", per_mille);
	sweeps.nr = 0;
	sweeps.cpu = 0;
	sweeps.longest = 0;
	memset(&origin, 0, sizeof(origin));
	begin(name);
	hybrid_engine_drain(e, NULL, true, 0, &x.acts);
	while (sweeps.nr <= sweeps.max && atomic_read(&e->writebacks.nr_dirty) &&
	       (op = hybrid_actions_pop(&x.acts)))
		hybrid_execute(&x, op);
	hybrid_engine_drain(e, NULL, false, 0, &x.acts);
	end();
	field("made_dirty", made);
	field("dirty", atomic_read(&e->writebacks.nr_dirty));
	field("sweeps", sweeps.nr);
	field("sweep_cpu", sweeps.cpu / sweeps.nr);
	field("longest_slice", sweeps.longest);
	field("origin_writes", origin.writes);
	field("origin_bytes", origin.sectors * 512.0);
	field("origin_back", origin.back);
	field("origin_gap", origin.gap * 512 / (origin.writes > 1 ? origin.writes - 1 : 1));
	finish();
	hybrid_execute_all(&x);
}

int main(int argc, char **argv)
{
	if (argc != 5)
		die("scale", "CACHE-GIB BLOCK-KIB ORIGIN-GIB SWEEPS");
	sweeps.max = atoi(argv[4]);
	scale_disk_init(&disk, strtoull(argv[1], NULL, 0) << 21, atoi(argv[2]) * 2,
			strtoull(argv[3], NULL, 0) << 21, "c2q");
	scale_disk_format(&disk, false);
	activate("empty");
	scale_disk_format(&disk, true);
	activate("clean");
	measure_hits();
	measure_writeback(1);
	measure_writeback(100);
	measure_writeback(700);
	make_dirty(0);
	hybrid_execute_checkpoint(e);
	measure_writes("singles", SINGLES, 1);
	measure_checkpoint("checkpoint-few");
	measure_writes("groups", 16, GROUP);
	measure_idle();
	fill_journal("fill", false);
	disk.forget = true;
	activate("cut");
	fill_journal("forced", true);
	measure_delete();
	return 0;
}
