// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The recorded requests, carried out on the simulator's disks.
 *
 * Recorders of members are disks; recorders of volumes tell the oracle of the promises
 * to users.  All began as zeroes.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "replay.h"

/* A recorder, of a disk or of a volume. */
struct member {
	struct device *dev;
	struct volume *vol;
	struct history *history;	/* of vol */
	bool flushes;
};

static struct member *members;
static u32 nr_members;

/* A request under way, found by the number of its record. */
struct request {
	struct dreq dreq;
	u64 started;
};

static struct request **requests;

void die(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fputs("replay: ", stderr);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	exit(2);
}

/* ---- The file ---------------------------------------------------------------- */

static const void *map_file(const char *dir, const char *name, u64 *bytes)
{
	char path[4096];
	struct stat st;
	void *p;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY);
	if (fd < 0 || fstat(fd, &st) || !st.st_size)
		die("%s cannot be read", path);
	p = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		die("%s cannot be mapped", path);
	*bytes = st.st_size;
	return p;
}

static const char *text(const struct trace_file *t, const struct rec_record *r)
{
	return t->data + r->data;
}

void trace_open(struct trace_file *t, const char *dir)
{
	u64 bytes, i, sectors;

	t->record = map_file(dir, "records", &bytes);
	t->nr = bytes / sizeof(*t->record);
	t->data = map_file(dir, "data", &bytes);
	t->begin = 0;
	for (i = 0; i < t->nr; i++) {
		const struct rec_record *r = &t->record[i];

		sectors = r->type == REC_WRITE ? r->count : 0;
		if (r->data > bytes || sectors > (bytes - r->data) / 512 ||
		    (r->type == REC_END && r->id >= i))
			die("record %llu is damaged", (unsigned long long)i);
		if (r->type == REC_MARK && !strcmp(text(t, r), "begin"))
			t->begin = i;
	}
	if (!t->begin)
		die("the trace has no mark \"begin\"");
	requests = xalloc(t->nr * sizeof(*requests));
}

/* ---- The world ---------------------------------------------------------------- */

/* The pool's superblock, as last written before the mark. */
static void find_pool(struct trace_file *t, struct world *w)
{
	const char *why = "it was not written";
	u64 i, size = 0, sector = 0;
	bool found = false;

	for (i = 0; i < t->begin; i++) {
		const struct rec_record *r = &t->record[i];

		if (r->type == REC_DEVICE && !strcmp(text(t, r), "cache")) {
			size = r->sector;
			sector = hybrid_sb_sector(size, 0);
		}
		if (r->type != REC_WRITE || r->device || r->sector > sector ||
		    r->sector + r->count < sector + HYBRID_META_BLOCK_SECTORS)
			continue;
		found |= !hybrid_sb_decode((const void *)(t->data + r->data +
							  (sector - r->sector) * 512),
					   sector, size, &w->sb, &why);
	}
	if (!found)
		die("no superblock of a pool: %s", why);
	w->g = &w->sb.geometry;
	w->p.policy = w->sb.policy;
	w->p.block_sectors = 1U << w->g->block_shift;
	w->p.cut_writes = 6;
}

static bool held(const struct oracle *o, u64 sector, val_t val, u32 version)
{
	u32 i;

	for (i = 0; i < nr_members; i++)
		if (members[i].vol && members[i].vol->oracle == o)
			return history_held(members[i].history, sector, val, version);
	return false;
}

static void add_member(struct world *w, struct member *m, u64 sectors, u64 from, u64 end)
{
	u64 s;

	if (w->nr_dev == SIM_MAX_DEVICES)
		die("too many members");
	m->dev = xalloc(sizeof(*m->dev));
	device_init(m->dev, w->nr_dev, sectors, from, end);
	w->dev[w->nr_dev++] = m->dev;
	/* Not on the cache device: no sector may be read there that was not written. */
	for (s = from; m->dev->nr && s < end; s++)
		device_set(m->dev, s, VAL_ZERO);
}

static void add_volume(struct world *w, struct member *m, u64 sectors, u32 id, u32 origin)
{
	struct volume *vol = xalloc(sizeof(*vol));
	u64 block = 1ULL << w->g->block_shift;

	if (w->nr_vol == SIM_MAX_VOLUMES || origin + 1 >= w->nr_dev)
		die("volume %u has no origin", id);
	vol->nr = w->nr_vol;
	vol->id = id;
	vol->origin = w->dev[origin + 1];
	vol->hot = sectors;
	vol->created = true;
	if (sectors != vol->origin->data_to - vol->origin->data_from || sectors % block)
		die("volume %u has not the size of its origin's data", id);
	vol->oracle = xalloc(sizeof(*vol->oracle));
	oracle_init(vol->oracle, origin, sectors, w->g->block_shift);
	vol->oracle->held = held;
	oracle_submit(vol->oracle, 0, sectors, ++w->next_version, true, false);
	oracle_done(vol->oracle, 0, sectors, w->next_version, 0, true, SIM_NEVER);
	oracle_flush(vol->oracle, ++sim_now, SIM_NEVER);
	/* Sectors that nobody wrote are read back only now and then. */
	memset(vol->oracle->touched, 0, sectors / block);
	m->vol = vol;
	m->history = history_new(sectors);
	w->vol[w->nr_vol++] = vol;
}

static void add_recorder(struct trace_file *t, struct world *w, const struct rec_record *r)
{
	struct member *m = &members[r->device];
	u64 from, sectors;
	u32 id, origin;

	if (!strcmp(text(t, r), "cache")) {
		if (w->nr_dev)
			die("the cache device must be recorded first");
		add_member(w, m, r->sector, w->g->data_sector,
			   w->g->data_sector + ((u64)w->g->nr_blocks << w->g->block_shift));
	} else if (sscanf(text(t, r), "origin%u", &origin) == 1) {
		if (origin + 1 != w->nr_dev || hybrid_origin_data(r->sector, 0, &from, &sectors))
			die("%s out of order, or too small", text(t, r));
		add_member(w, m, r->sector, from, from + sectors);
	} else if (sscanf(text(t, r), "volume%u@%u", &id, &origin) == 2) {
		add_volume(w, m, r->sector, id, origin);
	} else {
		die("a recorder with the tag %s", text(t, r));
	}
}

void trace_world(struct trace_file *t, struct world *w)
{
	u64 i;

	memset(w, 0, sizeof(*w));
	INIT_LIST_HEAD(&w->ready);
	INIT_LIST_HEAD(&w->uios);
	heap_init(&w->heap);
	w->crash_at = SIM_NEVER;
	w->p.config = (struct hybrid_config)HYBRID_CONFIG_DEFAULT;
	find_pool(t, w);
	for (i = 0; i < t->nr; i++)
		nr_members += t->record[i].type == REC_DEVICE;
	members = xalloc(nr_members * sizeof(*members));
	for (i = 0; i < t->nr; i++)
		if (t->record[i].type == REC_DEVICE)
			add_recorder(t, w, &t->record[i]);
}

/* ---- Members ------------------------------------------------------------------ */

/* Zeroes and discards are writes of zeroes, as on the guests' disks. */
static void begin_member(struct trace_file *t, struct world *w, struct device *d,
			 const struct rec_record *r, struct request *rq)
{
	struct dreq *q = &rq->dreq;
	static const char zero[512];
	u32 i;

	if (r->sector + r->count > d->sectors)
		die("a request beyond the end of member %u", d->nr);
	q->dev = d;
	q->kind = r->type == REC_FLUSH ? DREQ_FLUSH : DREQ_WRITE;
	q->sector = r->sector;
	q->count = r->count;
	q->fua = r->fua;
	q->vals = arena_alloc(&sim_arena, r->count * sizeof(val_t));
	for (i = 0; i < r->count; i++)
		q->vals[i] = content(r->type == REC_WRITE ? text(t, r) + i * 512 : zero,
				     device_is_data(d, r->sector + i));
	dreq_submit(q, &w->rng);
}

/* ---- Volumes ------------------------------------------------------------------ */

static void begin_volume(struct trace_file *t, struct world *w, struct member *m,
			 const struct rec_record *r)
{
	struct oracle *o = m->vol->oracle;
	u32 version = ++w->next_version, i;

	if (r->type == REC_FLUSH)
		return;
	if (r->sector + r->count > o->sectors)
		die("a request beyond the end of volume %u", m->vol->id);
	oracle_submit(o, r->sector, r->count, version, r->type == REC_ZEROES,
		      r->type == REC_DISCARD);
	for (i = 0; r->type == REC_WRITE && i < r->count; i++) {
		val_t val = content(text(t, r) + i * 512, true);

		oracle_give(o, r->sector + i, version, val);
		history_add(m->history, r->sector + i, version, val);
	}
}

static void end_volume(struct member *m, const struct rec_record *r, const struct request *rq,
		       int error)
{
	struct oracle *o = m->vol->oracle;
	u32 version = rq->dreq.low;

	sim_now++;
	if (r->type == REC_FLUSH) {
		if (!error)
			oracle_flush(o, rq->started, SIM_NEVER);
		return;
	}
	oracle_done(o, r->sector, r->count, version, error, r->fua, SIM_NEVER);
	if (error == -EOPNOTSUPP)
		oracle_withdraw(o, r->sector, r->count, version);
}

/* ---- Steps -------------------------------------------------------------------- */

static void begin_request(struct trace_file *t, struct world *w, u64 nr)
{
	const struct rec_record *r = &t->record[nr];
	struct member *m = &members[r->device];
	struct request *rq = arena_alloc(&sim_arena, sizeof(*rq));

	memset(rq, 0, sizeof(*rq));
	requests[nr] = rq;
	rq->started = ++sim_now;
	if (m->vol) {
		begin_volume(t, w, m, r);
		rq->dreq.low = w->next_version;
	} else {
		begin_member(t, w, m->dev, r, rq);
	}
}

static void end_request(struct trace_file *t, struct world *w, const struct rec_record *end)
{
	const struct rec_record *r = &t->record[end->id];
	struct request *rq = requests[end->id];
	struct member *m = &members[r->device];

	if (!rq)
		die("the end of a request that never began");
	requests[end->id] = NULL;
	if (m->vol) {
		end_volume(m, r, rq, end->error);
		return;
	}
	rq->dreq.error = end->error;
	dreq_complete(&rq->dreq, &w->rng);
}

void trace_step(struct trace_file *t, struct world *w, u64 nr)
{
	const struct rec_record *r = &t->record[nr];

	if (r->device >= nr_members)
		die("record %llu is of an unknown recorder", (unsigned long long)nr);
	w->step = nr;
	w->changes++;
	switch (r->type) {
	case REC_DEVICE:
		break;
	case REC_MARK:
		if (members[r->device].vol && !strcmp(text(t, r), "writeback"))
			members[r->device].vol->ever_writeback = true;
		break;
	case REC_END:
		end_request(t, w, r);
		break;
	default:
		begin_request(t, w, nr);
	}
}
