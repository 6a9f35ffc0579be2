// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The world around the engine: carries its actions out, one random step at a
 * time.  In a crash state (branch) all actions are carried out in order and at once.
 */
#include <stdarg.h>
#include <stdlib.h>

#include "sim.h"
#include "engine-internal.h"
#include "script.h"
#include "coverage.h"
#include "recovery.h"
#include "fibers.h"

bool sim_trace;
u64 sim_violations, sim_ios;
const char *sim_rule;
struct world *sim_world;

#define FNV_PRIME 0x100000001b3ULL

enum trace_code {
	T_SUBMIT = 1, T_APPLY, T_COMPLETE, T_TELL, T_IO, T_END, T_TICK, T_VALUE, T_LIFE,
};

const char *val_name(val_t v)
{
	static char buf[4][48];
	static int n;
	char *b = buf[n++ & 3];

	if (v == VAL_ZERO)
		snprintf(b, 48, "zeroes");
	else if (!v)
		snprintf(b, 48, "none");
	else if (!(v >> 56))
		snprintf(b, 48, "bytes %016llx...", (unsigned long long)*(const u64 *)v);
	else if (val_owner(v) == VAL_JUNK - 1)
		snprintf(b, 48, "junk[%llu]", (unsigned long long)val_sector(v));
	else
		snprintf(b, 48, "o%u[%llu]v%u", val_owner(v) + 1,
			 (unsigned long long)val_sector(v), val_version(v));
	return b;
}

static void hash(struct world *w, u64 v)
{
	w->hash = (w->hash ^ v) * FNV_PRIME;
}

void trace(struct world *w, u32 code, u64 a, u64 b, const char *fmt, ...)
{
	va_list args;

	hash(w, code);
	hash(w, a);
	hash(w, b);
	if (!sim_trace)
		return;
	fprintf(stderr, "%s%6llu ", w->branch ? "    | " : "", (unsigned long long)sim_now);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

void violation(struct world *w, const char *rule, const char *fmt, ...)
{
	struct world *top = w->main ? w->main : w;
	va_list args;

	if (w->may_hang) {
		w->stop = true;
		return;
	}
	if (!top->stop)
		sim_rule = rule;
	sim_violations++;
	top->stop = true;
	w->stop = true;
	fprintf(stderr, "VIOLATION %s seed=%llu step=%u time=%llu%s: ", rule,
		(unsigned long long)top->seed, top->step, (unsigned long long)sim_now,
		w->branch ? " in a crash state" : "");
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

/* ---- Device requests ------------------------------------------------------- */

static const char * const kind_name[] = { "read", "write", "flush", "discard", "zeroes" };
static const char * const op_name[] = {
	"USER", "TRANSFER", "META", "FLUSH", "DISCARD", "COPY_OUT", "COMPLETE", "WORK", "WAKE",
};

static void request_ended(struct world *w, struct dreq *r);

void world_before_change(struct world *w)
{
	w->changes++;
	if (w->stop)
		return;
	if (w->p.aims)
		aimed_event(w);
	if (w->changes >= w->crash_at) {
		w->crash_phases = coverage_phases(w);
		w->crashed = true;
		return;
	}
	collide_before_change(w);
	if (!w->branch && w->p.cut_every && w->changes % w->p.cut_every == 0)
		crash_explore(w, w->p.cut_samples);
}

static void count_request(struct world *w, const struct action *a)
{
	if (a->uio)
		a->uio->vol->requests++;
	else if (a->op->volume)
		((struct volume *)hybrid_volume_context(a->op->volume))->requests++;
	else
		w->requests++;
}

static void submit(struct world *w, struct dreq *r)
{
	struct action *a = r->action;

	if (r->kind != DREQ_READ && r->kind != DREQ_FLUSH)
		world_before_change(w);
	a->left++;
	if (w->crashed)
		return;
	count_request(w, a);
	dreq_submit(r, &w->rng);
	r->slow = !w->branch && w->p.slow_percent && rng_chance(&w->rng, w->p.slow_percent);
	r->slow |= collide_slow(w, r);
	if (a->op->io && !r->dev->nr)
		container_of(a->op->io, struct uio, io)->cached = true;
	trace(w, T_SUBMIT, r->sector, r->count << 8 | r->kind, "#%u %s %s dev%u %llu+%u%s%s %s",
	      a->nr, op_name[a->op->type], kind_name[r->kind], r->dev->nr,
	      (unsigned long long)r->sector, r->count, r->fua ? " fua" : "",
	      r->meta ? " meta" : "",
	      r->kind == DREQ_WRITE && r->vals && !r->meta ? val_name(r->vals[0]) : "");
	if (w->lint)
		linter_submit(w->lint, a, r);
	places_submit(w, r);
}

static struct dreq *new_request(struct action *a, struct device *d, enum dreq_kind kind,
				u64 sector, u32 count)
{
	struct dreq *r = arena_alloc(&sim_arena, sizeof(*r));

	memset(r, 0, sizeof(*r));
	r->dev = d;
	r->kind = kind;
	r->sector = sector;
	r->count = count;
	r->action = a;
	return r;
}

static bool in_bounds(struct world *w, struct device *d, u64 sector, u32 count, bool data)
{
	if (!count || sector + count > d->sectors || sector + count < sector) {
		violation(w, "bounds", "%llu+%u beyond dev%u", (unsigned long long)sector, count,
			  d->nr);
		return false;
	}
	if (device_is_data(d, sector) != data || device_is_data(d, sector + count - 1) != data) {
		violation(w, "bounds", "%s %llu+%u of dev%u", data ? "data outside the data area" :
			  "metadata inside the data area", (unsigned long long)sector, count,
			  d->nr);
		return false;
	}
	return true;
}

static void data_request(struct world *w, struct action *a, struct device *d,
			 enum dreq_kind kind, u64 sector, u32 count, val_t *vals, bool fua)
{
	struct dreq *r;

	sector = device_place(d, sector);
	if (!in_bounds(w, d, sector, count, true))
		return;
	if (fua && d->no_fua)
		violation(w, "contract", "FUA of a user's write on a device that emulates it");
	r = new_request(a, d, kind, sector, count);
	r->vals = vals;
	r->fua = fua;
	if (kind == DREQ_WRITE) {
		r->vals = arena_alloc(&sim_arena, count * sizeof(val_t));
		memcpy(r->vals, vals, count * sizeof(val_t));
	}
	submit(w, r);
}

static void meta_request(struct world *w, struct action *a, struct device *d,
			 const struct hybrid_segment *s)
{
	struct hybrid_op *op = a->op;
	struct dreq *r;
	char *mem = (char *)op->mem + s->offset * 512;
	u64 sector = device_place(d, s->sector);
	u32 i;

	/* A recovery reads data under intents as bytes. */
	if (!in_bounds(w, d, sector, s->count,
		       !op->write && a->finished && device_is_data(d, sector)))
		return;
	r = new_request(a, d, op->write ? DREQ_WRITE : DREQ_READ, sector, s->count);
	r->meta = true;
	r->fua = op->fua;
	r->bytes = mem;
	if (op->write) {
		char *copy = arena_alloc(&sim_arena, s->count * 512);

		memcpy(copy, mem, s->count * 512);
		r->bytes = copy;
		r->vals = arena_alloc(&sim_arena, s->count * sizeof(val_t));
		for (i = 0; i < s->count; i++)
			r->vals[i] = (val_t)(copy + i * 512);
		generations_check(w, r);
	}
	submit(w, r);
}

/* ---- Actions --------------------------------------------------------------- */

static struct device *origin_of(struct world *w, struct hybrid_op *op)
{
	struct volume *vol;

	if (op->volume)
		vol = hybrid_volume_context(op->volume);
	else if (op->io)
		vol = container_of(op->io, struct uio, io)->vol;
	else
		vol = NULL;
	if (!vol) {
		violation(w, "contract", "%s on an origin without volume", op_name[op->type]);
		return w->dev[1];
	}
	return vol->origin;
}

static struct action *new_action(struct world *w, struct hybrid_op *op)
{
	struct action *a = arena_alloc(&sim_arena, sizeof(*a));

	memset(a, 0, sizeof(*a));
	a->op = op;
	a->nr = ++w->next_action;
	a->started = sim_now;
	op->private = a;
	op->error_cache = 0;
	op->error_origin = 0;
	w->nr_actions++;
	return a;
}

static void end_action(struct world *w, struct action *a)
{
	list_add_tail(&a->link, &w->ready);
	w->nr_ready++;
}

/* Would the device have to wait for an I/O that must not? */
static bool refuses(struct world *w, struct action *a)
{
	struct hybrid_op *op = a->op;
	struct uio *u = container_of(op->io, struct uio, io);

	if (!u->nowait || !w->p.busy || !rng_chance(&w->nrng, w->p.busy))
		return false;
	a->uio = u;
	u->user_op = true;
	*(op->origin ? &a->error_origin : &a->error_cache) = -EAGAIN;
	coverage_refused(true);
	trace(w, T_SUBMIT, op->sector, op->type, "#%u USER dev%u %llu+%u refused", a->nr,
	      op->origin ? u->vol->origin->nr : 0, (unsigned long long)op->sector, op->count);
	end_action(w, a);
	return true;
}

static void carry_user(struct world *w, struct action *a)
{
	struct hybrid_op *op = a->op;
	struct uio *u = container_of(op->io, struct uio, io);
	struct device *d = op->origin ? u->vol->origin : w->dev[0];

	a->uio = u;
	u->user_op = true;
	a->left = 1;
	switch (op->io->type) {
	case HYBRID_IO_READ:
		data_request(w, a, d, DREQ_READ, op->sector, u->count, u->data, false);
		break;
	case HYBRID_IO_WRITE:
		data_request(w, a, d, DREQ_WRITE, op->sector, u->count, u->data, op->fua);
		break;
	case HYBRID_IO_DISCARD:
		if (u->vol->origin->discard == ORIGIN_TAKES_NONE)
			violation(w, "contract", "discard on an origin that takes none");
		data_request(w, a, u->vol->origin, DREQ_DISCARD, op->sector, op->count, NULL,
			     op->fua);
		break;
	case HYBRID_IO_ZEROES:
		data_request(w, a, u->vol->origin, DREQ_ZEROES, op->sector, op->count, NULL,
			     op->fua);
		break;
	default:
		violation(w, "contract", "USER operation for io type %u", op->io->type);
	}
	a->left--;
}

static bool transfers_to_origin(const struct hybrid_op *op)
{
	u32 i;

	for (i = 0; i < op->nr_segments; i++)
		if (op->segments[i].origin)
			return true;
	return false;
}

static void carry_transfer(struct world *w, struct action *a, struct hybrid_actions *acts)
{
	struct hybrid_op *op = a->op;
	bool fua_cache = op->fua && !transfers_to_origin(op);
	val_t *buffer = op->buffer;
	u32 i;

	if (op->io) {
		struct uio *u = container_of(op->io, struct uio, io);

		memcpy(buffer + op->buffer_offset, u->data, u->count * sizeof(val_t));
		u->intended |= !!op->copied;
	}
	if (op->copied && w->lint)
		linter_copied(w->lint, a);
	if (op->copied)
		hybrid_engine_op_copied(w->e, op, acts);
	a->left = 1;
	for (i = 0; i < op->nr_segments; i++) {
		struct hybrid_segment *s = &op->segments[i];
		struct device *d = s->origin ? origin_of(w, op) : w->dev[0];

		data_request(w, a, d, op->write ? DREQ_WRITE : DREQ_READ, s->sector, s->count,
			     buffer + s->offset,
			     op->write && (s->origin ? op->fua : fua_cache));
	}
	a->left--;
}

static void carry_segments(struct world *w, struct action *a)
{
	struct hybrid_op *op = a->op;
	struct device *d = op->origin ? origin_of(w, op) : w->dev[0];
	u32 i;

	a->left++;
	for (i = 0; i < op->nr_segments; i++)
		meta_request(w, a, d, &op->segments[i]);
	a->left--;
}

static void carry_meta(struct world *w, struct action *a)
{
	struct hybrid_op *op = a->op;

	coverage_commit(w, op);
	if (w->lint && op->write)
		linter_meta(w->lint, a, op->origin ? origin_of(w, op) : w->dev[0]);
	carry_segments(w, a);
}

/* Discards free blocks of the cache device. */
static void carry_discard(struct world *w, struct action *a)
{
	struct hybrid_op *op = a->op;
	u32 i;

	a->left++;
	for (i = 0; i < op->nr_segments; i++)
		data_request(w, a, w->dev[0], DREQ_DISCARD, op->segments[i].sector,
			     op->segments[i].count, NULL, false);
	a->left--;
}

static bool refuses_discard(struct world *w, struct action *a)
{
	if (w->p.trims)
		return false;
	a->error_cache = -EOPNOTSUPP;
	end_action(w, a);
	return true;
}

static void end_uio(struct world *w, struct uio *u, int error);

static void carry_copy_out(struct world *w, struct action *a)
{
	struct hybrid_op *op = a->op;
	struct uio *u = container_of(op->io, struct uio, io);

	memcpy(u->data, (val_t *)op->buffer + op->buffer_offset, u->count * sizeof(val_t));
	end_action(w, a);
}

/* A suspended volume's origin may be gone, or belong to somebody else. */
static void check_suspended(struct world *w, struct hybrid_op *op)
{
	bool origin = op->origin;
	struct volume *vol;
	u32 i;

	for (i = 0; op->type == HYBRID_OP_TRANSFER && i < op->nr_segments; i++)
		origin |= op->segments[i].origin;
	if (!origin || !op->volume)
		return;
	vol = hybrid_volume_context(op->volume);
	if (vol->suspended)
		violation(w, "contract", "%s to the origin of volume %u, which is suspended",
			  op_name[op->type], vol->id);
}

static void carry(struct world *w, struct hybrid_op *op)
{
	struct hybrid_actions acts;
	struct action *a;

	if (op->type == HYBRID_OP_COMPLETE) {
		end_uio(w, container_of(op->io, struct uio, io), op->io->error);
		return;
	}
	if (op->type == HYBRID_OP_WAKE) {
		op->waiter->done(op->waiter);
		return;
	}
	check_suspended(w, op);
	hybrid_actions_init(&acts);
	a = new_action(w, op);
	switch (op->type) {
	case HYBRID_OP_USER:
		if (refuses(w, a))
			return;
		carry_user(w, a);
		break;
	case HYBRID_OP_TRANSFER:
		carry_transfer(w, a, &acts);
		break;
	case HYBRID_OP_META:
		carry_meta(w, a);
		break;
	case HYBRID_OP_FLUSH:
		submit(w, new_request(a, op->origin ? origin_of(w, op) : w->dev[0], DREQ_FLUSH,
				      0, 0));
		break;
	case HYBRID_OP_DISCARD:
		if (refuses_discard(w, a))
			return;
		carry_discard(w, a);
		break;
	case HYBRID_OP_COPY_OUT:
		carry_copy_out(w, a);
		return;
	case HYBRID_OP_WORK:
		end_action(w, a);
		return;
	default:
		violation(w, "contract", "unknown operation %u", op->type);
	}
	if (!a->left && !w->stop)
		violation(w, "contract", "#%u %s without a segment", a->nr, op_name[op->type]);
	world_carry(w, &acts);
}

void world_carry(struct world *w, struct hybrid_actions *acts)
{
	struct hybrid_op *op;

	while (!w->crashed && !w->stop && !list_empty(&acts->list)) {
		fiber_pause();
		if (!list_empty(&acts->again) || acts->wanted)
			violation(w, "contract", "an event has ended, and something of it is not settled");
		op = hybrid_actions_pop(acts);
		carry(w, op);
	}
}

/* ---- Ends ------------------------------------------------------------------ */

static void request_ended(struct world *w, struct dreq *r)
{
	struct action *a = r->action;

	if (w->lint)
		linter_complete(w->lint, a, r);
	if (r->error && r->kind == DREQ_READ && r->meta && !r->dev->nr)
		w->intended_unread |= device_is_data(r->dev, r->sector);
	if (r->error) {
		if (r->dev->nr)
			a->error_origin = r->error;
		else
			a->error_cache = r->error;
	}
	if (!--a->left)
		end_action(w, a);
}

static void call_done(struct world *w, void *arg)
{
	struct action *a = *(struct action **)arg;
	struct hybrid_actions acts;
	struct uio *u = a->uio;

	hybrid_actions_init(&acts);
	if (u) {
		int error = a->error_cache ? a->error_cache : a->error_origin;

		u->user_op = false;
		if (!error && hybrid_engine_hit_done(w->e, &u->io)) {
			end_uio(w, u, 0);
		} else {
			/* I/O that is sent again may wait. */
			u->nowait &= error == -EAGAIN;
			if (hybrid_engine_io_done(w->e, &u->io, error, &acts))
				end_uio(w, u, u->io.error);
			else if (error == -EAGAIN)
				violation(w, "contract", "an I/O that must not wait goes on");
			world_kick(w);
		}
		world_carry(w, &acts);
	} else {
		a->op->error_cache = a->error_cache;
		a->op->error_origin = a->error_origin;
		/* Each event takes a ms. */
		a->op->elapsed_ms = sim_now - a->started;
		hybrid_engine_op_done(w->e, a->op, &acts);
		world_carry(w, &acts);
		world_kick(w);
	}
	if (u)
		u->vol->calls--;
	world_check(w);
}

/* Tells the engine that an action ended. */
void world_tell(struct world *w, struct action *a)
{
	struct hybrid_op *op = a->op;

	list_del(&a->link);
	w->nr_ready--;
	w->nr_actions--;
	trace(w, T_TELL, a->nr, op->type, "#%u %s ended%s", a->nr, op_name[op->type],
	      a->error_cache || a->error_origin ? " with an error" : "");
	if (a->finished) {
		op->error_cache = a->error_cache;
		op->error_origin = a->error_origin;
		*a->finished = true;
		return;
	}
	places_told(w, a);
	if (a->uio)
		a->uio->vol->calls++;
	fiber_call(w, call_done, &a, sizeof(a));
}

void world_check(struct world *w)
{
	const char *why;
	bool fibers;

	if (w->stop || w->crashed || !w->e)
		return;
	if (w->branch && rng_below(&w->rng, 32))
		return;
	/* While a lock is held, the state need not be consistent. */
	if (fibers_locked())
		return;
	fibers = fibers_stop();
	why = hybrid_engine_check(w->e);
	fibers_go_on(fibers);
	if (why)
		violation(w, "check", "%s", why);
}

/* ---- Users' I/O ------------------------------------------------------------ */

static const char * const io_name[] = { "read", "write", "flush", "discard", "zeroes" };

u64 world_oldest_read(struct world *w, struct volume *vol)
{
	struct uio *u;
	u64 t = SIM_NEVER;

	list_for_each_entry(u, &w->uios, link)
		if (u->vol == vol && u->io.type == HYBRID_IO_READ)
			t = min(t, u->started);
	return t;
}

static void check_read(struct world *w, struct uio *u)
{
	struct oracle *o = u->vol->oracle;
	u32 i;

	if (w->unjudged || u->vol->unjudged)
		return;
	for (i = 0; i < u->count; i++) {
		u64 s = u->sector + i;
		const char *why;

		why = w->branch ? oracle_crash_read(o, s, u->data[i], true) :
				  oracle_read(o, s, u->data[i], u->started);
		hash(w, u->data[i]);
		if (!why)
			continue;
		violation(w, w->branch ? "S2" : "S1", "volume %u sector %llu returned %s: %s",
			  u->vol->id, (unsigned long long)s, val_name(u->data[i]), why);
		oracle_explain(o, s);
		return;
	}
}

static void end_uio(struct world *w, struct uio *u, int error)
{
	struct oracle *o = u->vol->oracle;
	u64 oldest;

	list_del(&u->link);
	w->nr_uios--;
	u->vol->ios--;
	sim_now++;
	oldest = world_oldest_read(w, u->vol);
	trace(w, T_END, u->io.type, u->sector, "io v%u %s %llu+%u v%u ends %d", u->vol->id,
	      io_name[u->io.type], (unsigned long long)u->sector, u->count, u->version,
	      error);
	if (u->user_op)
		violation(w, "contract", "an io ended while its USER operation is under way");
	if (error && !(u->nowait && error == -EAGAIN) && !faults_excuse(w, u) &&
	    !(u->io.type == HYBRID_IO_ZEROES && error == -EOPNOTSUPP))
		violation(w, "error", "%s %llu+%u of volume %u ends with %d and no fault excuses it",
			  io_name[u->io.type], (unsigned long long)u->sector, u->count,
			  u->vol->id, error);
	switch (u->io.type) {
	case HYBRID_IO_READ:
		if (!error)
			check_read(w, u);
		break;
	case HYBRID_IO_FLUSH:
		if (!error) {
			oracle_flush(o, u->started, oldest);
			collide_flushed(w, u->vol);
		}
		break;
	default:
		oracle_done(o, u->sector, u->count, u->version, error, u->io.flags & HYBRID_IO_FUA,
			    oldest);
		collide_written(w, u);
		if (error == -EOPNOTSUPP || error == -EAGAIN)
			oracle_withdraw(o, u->sector, u->count, u->version);
	}
}

static void call_map(struct world *w, void *arg)
{
	struct uio *u = *(struct uio **)arg;
	struct hybrid_actions acts;
	bool hit, nowait = u->nowait;

	hybrid_actions_init(&acts);
	fiber_hit(true);
	hit = hybrid_engine_hit(w->e, &u->io);
	fiber_hit(false);
	if (hit) {
		hybrid_engine_hit_op(&u->io);
		fiber_pause();
		carry(w, &u->io.op);
	} else if (nowait && rng_chance(&w->nrng, 75)) {
		coverage_refused(false);
		end_uio(w, u, -EAGAIN);
	} else {
		/* The worker that takes it may wait. */
		u->nowait = false;
		if (hybrid_engine_miss(w->e, &u->io, &acts) == HYBRID_MAP_REMAP) {
			u->nowait = nowait;
			fiber_pause();
			carry(w, &u->io.op);
		}
		world_carry(w, &acts);
		world_kick(w);
	}
	u->vol->calls--;
	world_check(w);
}

static void submit_io(struct world *w, struct volume *vol, enum hybrid_io_type type, u64 sector,
		      u32 count, u8 flags, bool nowait)
{
	struct uio *u = arena_alloc(&sim_arena, sizeof(*u));
	u32 i;

	memset(u, 0, sizeof(*u));
	/* The engine may rely on no field of an io that its init does not set: WAIT_JOB would count */
	memset(&u->io, w->next_version & 1 ? WAIT_JOB : 0xa5, sizeof(u->io));
	u->vol = vol;
	if (w->p.syncs)
		WRITE_ONCE(vol->v->users.sync.flushes, U16_MAX);
	u->version = ++w->next_version;
	u->data = arena_alloc(&sim_arena, (count + 1) * sizeof(val_t));
	hybrid_io_init(&u->io, vol->v, type, sector + w->hole, count, flags);
	u->sector = sector;
	u->count = count;
	u->nowait = nowait;
	u->started = ++sim_now;
	u->clean = (type == HYBRID_IO_READ || type == HYBRID_IO_WRITE) && w->faulty &&
		   faults_clean(w, u);
	sim_ios++;
	list_add_tail(&u->link, &w->uios);
	if (!w->branch)
		collide_submitted(w, u);
	w->nr_uios++;
	vol->ios++;
	if (type == HYBRID_IO_READ || type == HYBRID_IO_WRITE)
		for (i = 0; i < count; i++)
			u->data[i] = type == HYBRID_IO_READ ? 0 :
				     VAL(vol->oracle->owner, sector + i, u->version);
	if (type != HYBRID_IO_READ && type != HYBRID_IO_FLUSH)
		oracle_submit(vol->oracle, sector, count, u->version,
			      type == HYBRID_IO_ZEROES, type == HYBRID_IO_DISCARD);
	trace(w, T_IO, sector, count << 8 | type, "io v%u %s %llu+%u%s%s v%u", vol->id,
	      io_name[type], (unsigned long long)sector, count,
	      flags & HYBRID_IO_FUA ? " fua" : flags & HYBRID_IO_META ? " meta" : "",
	      nowait ? " nowait" : "", u->version);
	vol->calls++;
	fiber_call(w, call_map, &u, sizeof(u));
}

void world_submit(struct world *w, struct volume *vol, enum hybrid_io_type type, u64 sector,
		  u32 count, u8 flags)
{
	submit_io(w, vol, type, sector, count, flags, false);
}

void world_submit_nowait(struct world *w, struct volume *vol, enum hybrid_io_type type,
			 u64 sector, u32 count, u8 flags)
{
	submit_io(w, vol, type, sector, count, flags, true);
}

void world_read_block(struct world *w, struct volume *vol, u64 b)
{
	u64 sector = b * w->p.block_sectors;

	world_submit(w, vol, HYBRID_IO_READ, sector,
		     min_t(u64, w->p.block_sectors, vol->hot - sector), 0);
}

/* ---- Steps ----------------------------------------------------------------- */

/* The devices of a crash state always answer. */
static bool answers(const struct world *w, const struct dreq *r)
{
	return w->branch || !hang_holds(r);
}

static u32 nr_inflight(struct world *w)
{
	u32 i, j, n = 0;

	for (i = 0; i < w->nr_dev; i++)
		for (j = 0; j < w->dev[i]->v->nr_inflight; j++)
			n += answers(w, w->dev[i]->v->inflight[j]);
	return n;
}

void world_complete(struct world *w, struct dreq *r)
{
	if (r->kind == DREQ_FLUSH || r->fua)
		world_before_change(w);
	if (w->crashed || w->stop)
		return;
	dreq_complete(r, &w->rng);
	trace(w, T_COMPLETE, r->sector, r->kind, "#%u %s dev%u %llu+%u completes%s",
	      r->action->nr, kind_name[r->kind], r->dev->nr, (unsigned long long)r->sector,
	      r->count, r->error ? " with an error" : "");
	request_ended(w, r);
}

static struct dreq *pick_request(struct world *w)
{
	u32 n = rng_below(&w->rng, nr_inflight(w)), i, j;

	for (i = 0; i < w->nr_dev; i++)
		for (j = 0; j < w->dev[i]->v->nr_inflight; j++)
			if (answers(w, w->dev[i]->v->inflight[j]) && !n--)
				return w->dev[i]->v->inflight[j];
	return NULL;
}

void world_apply(struct world *w, struct dreq *r, bool part)
{
	trace(w, T_APPLY, r->sector, r->kind, "#%u %s dev%u %llu+%u in part",
	      r->action->nr, kind_name[r->kind], r->dev->nr,
	      (unsigned long long)r->sector, r->count);
	dreq_apply(r, &w->rng, part);
}

static void log_choice(struct world *w, u32 kind, struct dreq *r)
{
	u32 n;

	if (!script_record)
		return;
	for (n = 0; world_inflight(w, n) != r; n++)
		;
	script_log(w, kind, NULL, 0, n);
}

/* Lets time pass while all requests under way are slow. */
static void pass(struct world *w)
{
	u32 ms = rng_chance(&w->rng, 20) ? 10 + rng_below(&w->rng, 200) : 0;

	script_log(w, ms ? LINE_PASS : LINE_WAIT, NULL, 0, ms);
	if (ms)
		world_tick(w, ms);
}

static void device_step(struct world *w)
{
	struct dreq *r = pick_request(w);
	u32 tries;

	for (tries = 0; tries < 16 && r->slow; tries++)
		r = pick_request(w);
	/* Nothing else is under way: time may pass, too */
	if (r->slow && !w->blocking && rng_chance(&w->rng, 80)) {
		pass(w);
		return;
	}
	if (!r->applied && rng_chance(&w->rng, 20)) {
		bool part = rng_below(&w->rng, 2);

		log_choice(w, part ? LINE_PART : LINE_APPLY, r);
		world_apply(w, r, part);
		return;
	}
	log_choice(w, LINE_COMPLETE, r);
	world_complete(w, r);
}

struct dreq *world_inflight(struct world *w, u32 n)
{
	struct dreq *found = NULL;
	u64 after = 0;
	u32 i, j;

	do {
		found = NULL;
		for (i = 0; i < w->nr_dev; i++)
			for (j = 0; j < w->dev[i]->v->nr_inflight; j++) {
				struct dreq *r = w->dev[i]->v->inflight[j];

				if (answers(w, r) && r->submitted > after &&
				    (!found || r->submitted < found->submitted))
					found = r;
			}
		after = found ? found->submitted : 0;
	} while (found && n--);
	return found;
}

bool world_plain_step(struct world *w)
{
	struct dreq *oldest;

	if (w->nr_ready) {
		world_tell(w, list_first_entry(&w->ready, struct action, link));
		return true;
	}
	oldest = world_inflight(w, 0);
	if (!oldest)
		return false;
	world_complete(w, oldest);
	return true;
}

bool world_step(struct world *w)
{
	u32 devs = nr_inflight(w), ready, n, k;
	struct action *a;

	if (w->crashed || w->stop)
		return false;
	if (w->branch)
		return world_plain_step(w);
	if (script_play)
		return script_step(w);
	if (fiber_step(w, devs + w->nr_ready))
		return true;
	ready = fibers_room() ? w->nr_ready : 0;
	if (!devs && !ready)
		return false;
	if (rng_below(&w->rng, devs + ready) < devs) {
		device_step(w);
		return true;
	}
	n = rng_below(&w->rng, ready);
	k = n;
	shim_cpu = rng_below(&w->rng, SHIM_NR_CPUS);
	list_for_each_entry(a, &w->ready, link)
		if (!k--)
			break;
	script_log(w, LINE_TELL, NULL, 0, n);
	world_tell(w, a);
	return true;
}

void world_idle(struct world *w)
{
	u32 n = 0;

	while (world_step(w))
		if (++n > 1000000) {
			violation(w, "liveness", "never idle");
			return;
		}
}

void world_kick(struct world *w)
{
	w->timer = true;
}

static bool do_tick(struct world *w, u64 now)
{
	struct hybrid_actions acts;
	bool again;

	hybrid_actions_init(&acts);
	again = hybrid_engine_tick(w->e, now, &acts);
	world_carry(w, &acts);
	return again;
}

/*
 * As tick_work() of the glue: a kick from here on starts the timer; the second look sees
 * all earlier changes.
 */
static void call_tick(struct world *w, void *arg)
{
	u64 now = *(u64 *)arg;

	if (!do_tick(w, now)) {
		w->timer = false;
		fiber_pause();
		if (!w->crashed && !w->stop && do_tick(w, now))
			w->timer = true;
	}
	w->ticking = false;
	world_check(w);
}

void world_tick(struct world *w, u32 ms)
{
	/* The one call that never overlaps with itself */
	if (w->crashed || w->stop || w->ticking)
		return;
	w->ms += ms;
	if (!w->timer)
		return;
	w->ticking = true;
	trace(w, T_TICK, w->ms, 0, "tick %llu", (unsigned long long)w->ms);
	fiber_call(w, call_tick, &w->ms, sizeof(w->ms));
}

static void report_stuck(struct world *w)
{
	struct uio *u;

	violation(w, "liveness", "%u ios are stuck, nothing is under way", w->nr_uios);
	list_for_each_entry(u, &w->uios, link)
		fprintf(stderr, "    volume %u %s %llu+%u v%u state %u wait %u phase %u\n",
			u->vol->id, io_name[u->io.type], (unsigned long long)u->sector,
			u->count, u->version, u->io.state, u->io.wait, u->io.phase);
}

/* No user's I/O is left: no reader is in its epoch. */
static void check_readers(struct world *w)
{
	unsigned long inside;
	u32 i, phase;
	int cpu;

	if (w->crashed || w->stop || !w->e)
		return;
	for (i = 0; i < w->nr_vol; i++)
		if (w->vol[i]->calls)
			return;
	for (phase = 0; phase < 2; phase++) {
		inside = 0;
		for_each_possible_cpu(cpu) {
			inside += per_cpu_ptr(w->e->evict.readers, cpu)->enter[phase];
			inside -= per_cpu_ptr(w->e->evict.readers, cpu)->leave[phase];
		}
		if (inside)
			violation(w, "J1", "%ld readers never leave their epoch", (long)inside);
	}
}

static u32 nr_grace(const struct world *w)
{
	u32 set, nr = 0;

	for (set = 0; set < w->e->map.nr_sets; set++)
		nr += w->e->map.set[set].nr_grace;
	return nr;
}

void world_check_grace(struct world *w)
{
	u32 ticks;

	for (ticks = 0; nr_grace(w); ticks++) {
		world_idle(w);
		if (w->crashed || w->stop)
			return;
		if (ticks == 20) {
			violation(w, "J1", "%u blocks are never free again", nr_grace(w));
			return;
		}
		world_tick(w, 100);
	}
}

void world_settle(struct world *w)
{
	u32 ticks;

	for (ticks = 0; ticks < 300; ticks++) {
		world_idle(w);
		if (!w->nr_uios)
			check_readers(w);
		if (!w->nr_uios || w->crashed || w->stop)
			return;
		world_tick(w, 100);
	}
	report_stuck(w);
}

/* More than enough to record all, to give back memory, and for wear to catch up. */
#define REST_TICKS 600

void world_rest(struct world *w)
{
	u32 ms = w->e && hybrid_engine_config(w->e)->endurance ? 3600 * 1000 : 1000, ticks;

	for (ticks = 0; ticks < REST_TICKS && w->timer; ticks++) {
		world_tick(w, ms);
		world_idle(w);
		if (w->crashed || w->stop)
			return;
	}
	/* Changes that a failed flush holds back are never recorded. */
	if (!w->lint || w->faulty || w->nr_uios)
		return;
	if (!w->timer)
		linter_rest(w->lint);
	else if (!linter_any_dirty(w->lint))
		violation(w, "rest", "nothing is dirty, nothing under way, and the timer never stops");
}

/* ---- The engine's surroundings ---------------------------------------------- */

static struct world *world_of(struct hybrid_engine *e)
{
	return hybrid_engine_context(e);
}

bool world_alloc_fails(size_t bytes, gfp_t gfp)
{
	struct world *w = sim_world;
	bool fails;

	/* Entries do not grow. */
	if ((gfp & GFP_NOWAIT) && w->p.small && bytes > HYBRID_META_BLOCK_SIZE)
		return true;
	if (!(gfp & GFP_NOWAIT) || !w->p.alloc_faults)
		return false;
	fails = rng_chance(&w->rng, w->p.alloc_faults);
	coverage_nowait(w, bytes, fails);
	return fails;
}

static void *sim_alloc_buffer(struct hybrid_engine *e, u32 sectors, gfp_t gfp)
{
	struct world *w = world_of(e);

	if (!w->branch && w->p.fail_alloc && rng_chance(&w->rng, w->p.fail_alloc)) {
		coverage_alloc();
		return NULL;
	}
	if (loop_alloc_fails() || world_alloc_fails(0, gfp))
		return NULL;
	/* A crash state drops its engine without freeing anything: a leak would not show. */
	if (w->branch)
		return arena_alloc(&sim_arena, sectors * sizeof(val_t));
	return heap_alloc(&w->heap, sectors * sizeof(val_t), HEAP_POISON);
}

static void sim_free_buffer(struct hybrid_engine *e, void *buffer)
{
	void sim_free(void *p);

	if (!world_of(e)->branch)
		sim_free(buffer);
}

static int sim_do_op(struct hybrid_engine *e, struct hybrid_op *op)
{
	struct world *w = world_of(e);
	struct action *a;
	bool finished = false;

	if (w->crashed || w->stop)
		return -EIO;
	if (op->type != HYBRID_OP_META && op->type != HYBRID_OP_FLUSH) {
		violation(w, "contract", "do_op of %s", op_name[op->type]);
		return -EIO;
	}
	a = new_action(w, op);
	a->finished = &finished;
	if (op->type == HYBRID_OP_META)
		carry_meta(w, a);
	else
		submit(w, new_request(a, op->origin ? origin_of(w, op) : w->dev[0], DREQ_FLUSH,
				      0, 0));
	w->blocking = true;
	while (!finished && world_step(w))
		other_events(w);
	w->blocking = false;
	if (!finished)
		return -EIO;
	return op->error_cache ? op->error_cache : op->error_origin;
}

static int sim_wait_checkpoint(struct hybrid_engine *e)
{
	struct world *w = world_of(e);
	struct hybrid_actions acts;
	/* After a crash the engine may still point to it: it must not be on the stack */
	struct hybrid_waiter *wait = arena_alloc(&sim_arena, sizeof(*wait));
	u32 ticks = 0;

	if (w->crashed || w->stop)
		return -EIO;
	memset(wait, 0, sizeof(*wait));
	wait->done = hybrid_waiter_ended;
	hybrid_actions_init(&acts);
	hybrid_engine_checkpoint(w->e ? w->e : e, wait, &acts);
	world_carry(w, &acts);
	world_kick(w);
	while (!wait->ended) {
		if (world_step(w)) {
			other_events(w);
			continue;
		}
		if (w->crashed || w->stop)
			return -EIO;
		if (++ticks > 300) {
			violation(w, "liveness", "a checkpoint never ends");
			return -EIO;
		}
		world_tick(w, 100);
	}
	return wait->error;
}

static void sim_wait_hits(struct hybrid_engine *e)
{
	fibers_wait_hits();
}

static u64 sim_random(struct hybrid_engine *e)
{
	return rng_next(&world_of(e)->rng) | 1;
}

static u64 sim_checksum(struct hybrid_engine *e, void *buffer, u32 offset, u32 count, u64 seed)
{
	u8 *bytes = arena_alloc(&sim_arena, count * 512);
	const val_t *vals = buffer;
	u32 i;

	for (i = 0; i < count; i++)
		data_bytes(vals[offset + i], bytes + i * 512);
	return xxh64(bytes, count * 512, seed);
}

static const struct hybrid_engine_ops sim_ops = {
	.alloc_buffer = sim_alloc_buffer,
	.free_buffer = sim_free_buffer,
	.checksum = sim_checksum,
	.do_op = sim_do_op,
	.wait_checkpoint = sim_wait_checkpoint,
	.wait_hits = sim_wait_hits,
	.random = sim_random,
};

/* ---- Lives ------------------------------------------------------------------ */

/* The machine is gone, and with it all of the engine's memory. */
void world_drop(struct world *w)
{
	struct uio *u, *next;
	u32 i;

	list_for_each_entry_safe(u, next, &w->uios, link)
		list_del(&u->link);
	INIT_LIST_HEAD(&w->ready);
	w->nr_ready = 0;
	w->nr_uios = 0;
	w->nr_actions = 0;
	coverage_readahead(w);
	w->e = NULL;
	for (i = 0; i < w->nr_vol; i++) {
		w->vol[i]->v = NULL;
		w->vol[i]->ios = 0;
		w->vol[i]->calls = 0;
		w->vol[i]->closing = false;
		w->vol[i]->suspended = false;
		w->vol[i]->taken = false;
	}
	w->look = 0;
	w->ask = NULL;
	w->found = NULL;
	heap_drop(&w->heap);
	w->crashed = false;
	w->ticking = false;
	w->switching = false;
	w->crash_at = SIM_NEVER;
	fibers_drop(w);
}

/* Makes an engine and loads the pool. */
const char *world_boot(struct world *w, int *error)
{
	const char *why = NULL;

	sim_heap = &w->heap;
	trace(w, T_LIFE, 0, 0, "boot");
	*error = 0;
	w->e = DURING(w, PHASE_LOAD,
		      hybrid_engine_create(&w->sb, &sim_ops, w, hybrid_policy_get(w->p.policy),
					   &w->p.config, error));
	if (!w->e && loop_alloc_failed()) {
		if (*error != -ENOMEM || !heap_empty(&w->heap))
			violation(w, "memory", "create without memory: %d, %llu bytes left",
				  *error, (unsigned long long)w->heap.bytes);
		return world_boot(w, error);
	}
	if (!w->e)
		return "create failed";
	places_boot(w);
	if (w->p.small)
		w->e->journal.room = 1;
	*error = DURING(w, PHASE_LOAD, hybrid_engine_load(w->e, &why));
	if (*error)
		return why ? why : "(no reason given)";
	age_pool(w);
	world_kick(w);
	world_check(w);
	if (w->found && !w->crashed && !w->stop)
		found_check(w, w->found, NULL);
	return NULL;
}

/* No read will ever pay for the rest of its block. */
static void never_pays(struct hybrid_volume *v)
{
	int cpu;

	for_each_possible_cpu(cpu)
		per_cpu_ptr(v->counters, cpu)->rest_debt = U32_MAX / 2;
}

static int open_once(struct world *w, struct volume *vol, const char **why)
{
	*why = NULL;
	trace(w, T_LIFE, 1, vol->id, "open volume %u", vol->id);
	if (w->lint)
		linter_open(w->lint, vol);
	return DURING(w, PHASE_OPEN, hybrid_volume_open(w->e, vol->id, device_size(vol->origin),
							vol, &vol->v, why));
}

/* Was the open refused for lack of memory, by name?  The next time there is memory. */
static bool memory_was_short(const struct world *w, int r, const char *why)
{
	return r == -ENOMEM && why && strstr(why, "memory") && !w->crashed && !w->stop &&
	       (w->p.fail_alloc || loop_alloc_failed());
}

static u32 origin_traits(const struct world *w, const struct volume *vol)
{
	return (w->p.seeks ? HYBRID_ORIGIN_SEEKS : 0) |
	       (vol->origin->discard == ORIGIN_TAKES_NONE ? HYBRID_ORIGIN_NO_DISCARD : 0) |
	       (vol->origin->no_fua ? HYBRID_ORIGIN_NO_FUA : 0) |
	       (w->dev[0]->no_fua ? HYBRID_CACHE_NO_FUA : 0);
}

int world_open(struct world *w, struct volume *vol, const char **why)
{
	int r;

	do
		r = open_once(w, vol, why);
	while (memory_was_short(w, r, *why));
	if (r)
		vol->v = NULL;
	else
		hybrid_volume_set_traits(vol->v, origin_traits(w, vol));
	world_kick(w);
	if (!r && w->p.demand_fill)
		never_pays(vol->v);
	if (!r)
		age_volume(w, vol->v);
	vol->closing = false;
	vol->suspended = false;
	if (!r && w->p.grow)
		grow_follow(w, vol);
	/* I/O of other volumes may evict its blocks while it is opened */
	if (!r && w->found && (w->branch || !w->p.load_percent) && !w->crashed && !w->stop)
		found_check(w, w->found, vol);
	trace(w, T_LIFE, 2, r, "open of volume %u: %d %s", vol->id, r, *why ? *why : "");
	world_check(w);
	return r;
}

/* The engine sends no more I/O of its own to this origin. */
bool world_suspend(struct world *w, struct volume *vol)
{
	struct hybrid_actions acts;
	u32 ticks = 0;
	bool done;

	trace(w, T_LIFE, 5, vol->id, "suspend volume %u", vol->id);
	vol->closing = true;
	while (ticks < 300 && !w->crashed && !w->stop) {
		hybrid_actions_init(&acts);
		done = hybrid_volume_suspend(w->e, vol->v, &acts);
		world_carry(w, &acts);
		if (done) {
			vol->suspended = true;
			return true;
		}
		if (!world_step(w)) {
			world_tick(w, 100);
			ticks++;
		}
		other_events(w);
	}
	if (!w->crashed && !w->stop)
		violation(w, "liveness", "volume %u does not suspend", vol->id);
	return false;
}

void world_resume(struct world *w, struct volume *vol)
{
	struct hybrid_actions acts;

	trace(w, T_LIFE, 6, vol->id, "resume volume %u", vol->id);
	vol->closing = false;
	vol->suspended = false;
	hybrid_actions_init(&acts);
	hybrid_volume_resume(w->e, vol->v, &acts);
	world_carry(w, &acts);
	world_kick(w);
	world_check(w);
}

/* After its last I/O */
void world_close(struct world *w, struct volume *vol)
{
	int r;

	world_suspend(w, vol);
	if (w->crashed || w->stop)
		return;
	trace(w, T_LIFE, 3, vol->id, "close volume %u", vol->id);
	collide_closes(w, vol);
	r = DURING(w, PHASE_CLOSE, hybrid_volume_close(w->e, vol->v));
	if (w->crashed || w->stop)
		return;
	if (r && !faults_of_volume(w, vol) && !w->pool_faulty)
		violation(w, "error", "close of volume %u: %d", vol->id, r);
	vol->v = NULL;
	world_check(w);
}

static bool stop(struct world *w)
{
	struct hybrid_actions acts;
	u32 n, ticks = 0;

	trace(w, T_LIFE, 4, 0, "stop");
	for (n = 0; ticks < 300; n++) {
		bool done;

		hybrid_actions_init(&acts);
		done = hybrid_engine_stop(w->e, &acts);
		world_carry(w, &acts);
		if (w->crashed || w->stop)
			return false;
		if (done) {
			world_idle(w);
			return true;
		}
		if (!world_step(w)) {
			world_tick(w, 100);
			ticks++;
		}
		collide_stop(w);
	}
	violation(w, "liveness", "the pool does not stop");
	return false;
}

bool world_stop(struct world *w)
{
	return DURING(w, PHASE_STOP, stop(w));
}
