// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Replays a run of the kernel module, recorded by its tracepoints (the text that
 * tracefs prints), through the same engine here: all events that reached the
 * module's engine, in the same order, and with the same random numbers.  The
 * engine must then ask for the same operations, in the same order, give the same
 * answers, and leave the same metadata.
 *
 *   replay <trace> <cache before> <cache after> [<volume id> <before> <after>]...
 *
 * "before" and "after" are images of the members.  The last line says
 * "replay: events=N operations=M overlaps=K differences=D".  The first difference
 * ends the replay: from there on the recorded events mean something else.
 *
 * A call that began while another call ran (an interrupt, or a worker that gave way)
 * counts as an overlap.  The record does not say how far the other call was.  So the
 * replay tries each place where interrupts could come, in a process of its own, until
 * the rest of the trace agrees.
 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine.h"
#include "alloc.h"

#undef malloc
#undef calloc
#undef free

enum kind {
	REC_IO, REC_IO_MAPPED, REC_IO_DONE, REC_OP, REC_SEGMENT, REC_OP_COPIED, REC_OP_DONE, REC_TICK,
	REC_CALL, REC_CONFIG, REC_VOLUME_CREATE, REC_VOLUME_RENAME, REC_RETURN, REC_NUMBER, NR_KINDS
};

static const char * const kind_name[NR_KINDS] = {
	"io", "io_mapped", "io_done", "op", "segment", "op_copied", "op_done", "tick", "call",
	"config", "volume_create", "volume_rename", "return", "number",
};

/* A line of the trace. */
struct record {
	const char *text;	/* after the name */
	u32 line;
	u8 kind;
	bool resume;		/* op_done: a call that was blocked goes on */
	bool inside;		/* began while another call ran */
	u64 context;		/* process, interrupt */
	/* For the beginning of a call: the numbers it was given, its operations, its end */
	struct record *given, *want, *end;
	struct record *next;	/* on one of these lists */
	struct record *up;	/* the call around this one */
};

struct member {
	u8 *now, *after;
	u64 sectors;
};

struct vol {
	struct hybrid_volume *v;
	struct member origin;
	u64 data_sector, data_sectors;
	int id;
};

struct rio {
	struct hybrid_io io;
	u64 name;		/* in the trace */
};

static struct record *records, *current;	/* current: the call being replayed */
static u32 nr_records, pos, nr_calls, nr_ops, nr_overlaps;
static struct member cache;
static struct vol vols[HYBRID_MAX_VOLUMES];
static struct hybrid_sb sb;
static struct hybrid_engine *engine;
static u32 nr_blocks;		/* memory blocks that the engine holds */
static struct hybrid_waiter *last_wait;
static bool muted;		/* this is an attempt: if it fails, others follow */
static u32 places_left;		/* until the calls inside the current one come */

#define NO_SUCH_PLACE	3	/* exit status of an attempt */

static void replay_end(u32 differences)
{
	if (muted && differences)
		_exit(1);
	printf("replay: events=%u operations=%u overlaps=%u differences=%u\n", nr_calls, nr_ops,
	       nr_overlaps, differences);
	fflush(stdout);
	_exit(!!differences);
}

static void __printf(1, 2) difference(const char *fmt, ...)
{
	va_list args;

	if (muted)
		replay_end(1);
	va_start(args, fmt);
	if (current)
		printf("line %u, %s %s\n", current->line, kind_name[current->kind], current->text);
	vprintf(fmt, args);
	putchar('\n');
	va_end(args);
	replay_end(1);
}

/* ---- memory: alloc.h gives the engine these ---------------------------------- */

#define POISON	0xa5		/* nobody may rely on memory that is not zeroed */

static void *xalloc(size_t bytes)
{
	void *p = calloc(1, bytes);

	if (!p)
		abort();
	return p;
}

void *sim_malloc(size_t bytes)
{
	nr_blocks++;
	return memset(xalloc(bytes), POISON, bytes);
}

void *sim_calloc(size_t n, size_t bytes)
{
	nr_blocks++;
	return xalloc(n * bytes);
}

void sim_free(void *p)
{
	nr_blocks -= !!p;
	free(p);
}

/* ---- the trace ------------------------------------------------------------ */

static const char *value(const struct record *ev, const char *key)
{
	char pattern[32];
	const char *p;

	snprintf(pattern, sizeof(pattern), " %s=", key);
	p = strstr(ev->text, pattern);
	if (!p)
		difference("line %u has no %s: %s", ev->line, key, ev->text);
	return p + strlen(pattern);
}

static u64 number(const struct record *ev, const char *key)
{
	return strtoull(value(ev, key), NULL, 10);
}

static u64 pointer(const struct record *ev, const char *key)
{
	return strtoull(value(ev, key), NULL, 16);
}

static bool is(const struct record *ev, const char *key, const char *word)
{
	const char *v = value(ev, key);
	size_t n = strlen(word);

	return !strncmp(v, word, n) && (v[n] == ' ' || !v[n]);
}

static void copy_word(const struct record *ev, const char *key, char *to, size_t size)
{
	const char *v = value(ev, key);
	size_t n = min(strcspn(v, " "), size - 1);

	memset(to, 0, size);
	memcpy(to, v, n);
}

static void copy_hex(const struct record *ev, const char *key, u8 *to, u32 n)
{
	const char *v = value(ev, key);

	for (; n--; v += 2)
		sscanf(v, "%2hhx", to++);
}

/* "  comm-pid [cpu] flags time: hybrid_name: text", where comm may be anything */
static bool parse(char *line, struct record *ev)
{
	char *name = strstr(line, ": hybrid_"), *text, *cpu, *pid;

	if (!name || *line == '#')
		return false;
	*name = '\0';
	name += strlen(": hybrid_");
	text = strstr(name, ": ");
	cpu = strrchr(line, '[');
	if (!text || !cpu)
		return false;
	*text = '\0';
	ev->text = text + 1;
	for (pid = cpu; pid > line && *pid != '-'; pid--)
		;
	/* The third flag says whether this is an interrupt. */
	ev->context = strtoull(pid + 1, NULL, 10) << 8 | strchr(cpu, ' ')[3];
	for (ev->kind = 0; ev->kind < NR_KINDS; ev->kind++)
		if (!strcmp(name, kind_name[ev->kind]))
			return true;
	difference("line %u: unknown event %s", ev->line, name);
	return false;
}

static void load_trace(const char *path)
{
	size_t room = 0;
	char *line = NULL;
	FILE *f = fopen(path, "r");
	u32 number = 0, cap = 0;

	if (!f)
		difference("cannot read %s", path);
	while (getline(&line, &room, f) > 0) {
		struct record ev = { .line = ++number };

		line[strcspn(line, "\n")] = '\0';
		if (strstr(line, "LOST"))
			difference("line %u: events were lost", number);
		if (!parse(strdup(line), &ev))
			continue;
		if (nr_records == cap)
			records = realloc(records, (cap = 2 * cap + 1024) * sizeof(*records));
		records[nr_records++] = ev;
	}
	free(line);
	fclose(f);
}

/* May the call wait for I/O, so that other calls go on meanwhile? */
static bool blocks(const struct record *ev)
{
	static const char * const quick[] = {
		"stop", "checkpoint", "drain", "suspend", "resume", "mode", "cutoff", "origin",
		"claim_sb", "release_sb", "fail",
	};
	u32 i;

	if (ev->kind != REC_CALL)
		return ev->kind == REC_CONFIG || ev->kind == REC_VOLUME_CREATE ||
		       ev->kind == REC_VOLUME_RENAME;
	for (i = 0; i < ARRAY_SIZE(quick); i++)
		if (is(ev, "call", quick[i]))
			return false;
	return true;
}

static void append(struct record **list, struct record *ev)
{
	while (*list)
		list = &(*list)->next;
	*list = ev;
}

/* Calls of one context nest; the records between a call's beginning and end belong to it. */
static struct record *open_calls[64];

static void begin_call(struct record **open, struct record *ev)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(open_calls); i++)
		if (open_calls[i] && open_calls[i]->context != ev->context &&
		    !blocks(open_calls[i])) {
			ev->inside = true;
			nr_overlaps++;
			break;
		}
	ev->up = *open;
	*open = ev;
}

static struct record **find_open(u64 context)
{
	struct record **free = NULL;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(open_calls); i++) {
		if (open_calls[i] && open_calls[i]->context == context)
			return &open_calls[i];
		if (!open_calls[i])
			free = &open_calls[i];
	}
	if (!free)
		difference("too many calls at once");
	return free;
}

static void structure(void)
{
	u32 i;

	for (i = 0; i < nr_records; i++) {
		struct record *ev = &records[i], **open = find_open(ev->context);

		switch (ev->kind) {
		case REC_OP_DONE:
			ev->resume = is(ev, "type", "wake") || (*open && blocks(*open));
			if (!ev->resume)
				begin_call(open, ev);
			break;
		case REC_OP:
		case REC_SEGMENT:
		case REC_NUMBER:
			if (!*open)
				difference("line %u belongs to no call", ev->line);
			append(ev->kind == REC_NUMBER ? &(*open)->given : &(*open)->want, ev);
			break;
		case REC_RETURN:
		case REC_IO_MAPPED:
			if (!*open)
				difference("line %u ends no call", ev->line);
			(*open)->end = ev;
			*open = (*open)->up;
			break;
		default:
			begin_call(open, ev);
		}
	}
}

/* ---- names: pointers in the trace, and the objects here --------------------- */

struct name {
	struct name *next;
	u64 there;
	void *here;
};

static struct name *names[1 << 14];

static struct name *find_name(u64 there)
{
	struct name **list = &names[hash_64(there, 14)], *n;

	for (n = *list; n; n = n->next)
		if (n->there == there)
			return n;
	n = xalloc(sizeof(*n));
	n->there = there;
	n->next = *list;
	*list = n;
	return n;
}

static void *named(const struct record *ev, const char *key)
{
	struct name *n = find_name(pointer(ev, key));

	if (!n->here)
		difference("line %u: nothing here is that %s", ev->line, key);
	return n->here;
}

/* An operation ends once. */
static struct hybrid_op *ended_op(const struct record *ev)
{
	struct hybrid_op *op = named(ev, "op");

	find_name(pointer(ev, "op"))->here = NULL;
	return op;
}

static void end_io(struct rio *io)
{
	find_name(io->name)->here = NULL;
	free(io);
}

/* ---- the engine's operations ------------------------------------------------ */

/* The next line that the call wrote must say this. */
static struct record *expect(enum kind kind, const char *fmt, ...)
{
	struct record *ev = current->want;
	char said[256];
	const char *text;
	va_list args;

	va_start(args, fmt);
	vsnprintf(said, sizeof(said), fmt, args);
	va_end(args);
	if (!ev)
		difference("  recorded: nothing more\n  replayed: %s %s", kind_name[kind], said);
	/* The pool and the operation's address are not compared. */
	text = strchr(value(ev, "op"), ' ') + 1;
	if (ev->kind != kind || strcmp(text, said))
		difference("  recorded: %s %s (line %u)\n  replayed: %s %s", kind_name[ev->kind],
			   text, ev->line, kind_name[kind], said);
	current->want = ev->next;
	return ev;
}

static int volume_of(const struct hybrid_op *op)
{
	struct vol *vol = op->volume ? hybrid_volume_context(op->volume) : NULL;

	return vol ? vol->id : -1;
}

/* As trace.h prints it: only fields that mean something for the type. */
static void check_op(struct hybrid_op *op)
{
	static const char * const type[] = {
		"user", "transfer", "meta", "flush", "discard", "copy_out", "complete", "work",
		"wake",
	};
	bool user = op->type == HYBRID_OP_USER, complete = op->type == HYBRID_OP_COMPLETE;
	bool moves = op->type <= HYBRID_OP_COPY_OUT;
	struct rio *io = (moves || complete) && op->io ?
			 container_of(op->io, struct rio, io) : NULL;
	bool one = user || op->type == HYBRID_OP_META || op->type == HYBRID_OP_FLUSH;
	struct record *ev;
	u32 i;

	nr_ops++;
	ev = expect(REC_OP, "type=%s io=%016llx volume=%d device=%s write=%d sector=%llu count=%u fua=%d segments=%u error=%d",
		    type[op->type], (unsigned long long)(io ? io->name : 0),
		    moves ? volume_of(op) : -1, one ? op->origin ? "origin" : "cache" : "-",
		    moves && op->write, (unsigned long long)(user ? op->sector : 0),
		    user || op->type == HYBRID_OP_COPY_OUT ? op->count : 0, moves && op->fua,
		    moves ? op->nr_segments : 0,
		    complete ? op->io->error : 0);
	find_name(pointer(ev, "op"))->here = op;
	for (i = 0; moves && i < op->nr_segments; i++) {
		const struct hybrid_segment *seg = &op->segments[i];
		bool origin = op->type == HYBRID_OP_META ? op->origin : seg->origin;

		expect(REC_SEGMENT, "volume=%d device=%s write=%d sector=%llu count=%u offset=%u",
		       volume_of(op), origin ? "origin" : "cache", op->write,
		       (unsigned long long)seg->sector, seg->count, seg->offset);
	}
}

/* Moves metadata, but not users' data: the engine never looks at users' data. */
static void carry_meta(struct hybrid_op *op)
{
	struct vol *vol = op->volume ? hybrid_volume_context(op->volume) : NULL;
	struct member *m = op->origin ? &vol->origin : &cache;
	u32 i;

	if (op->type != HYBRID_OP_META || op->error_cache || op->error_origin)
		return;
	for (i = 0; i < op->nr_segments; i++) {
		const struct hybrid_segment *seg = &op->segments[i];
		void *mem = op->mem + seg->offset * 512UL, *disk = m->now + seg->sector * 512;

		if (seg->sector + seg->count > m->sectors)
			difference("metadata beyond the end of the member");
		if (op->write)
			memcpy(disk, mem, seg->count * 512UL);
		else
			memcpy(mem, disk, seg->count * 512UL);
	}
}

static void op_ended(const struct record *ev, struct hybrid_op *op)
{
	op->error_cache = number(ev, "error_cache");
	op->error_origin = number(ev, "error_origin");
	op->elapsed_ms = number(ev, "elapsed_ms");
	carry_meta(op);
}

/* After a call: checks its list, in order; operations that need no device are done at once. */
static void check_actions(struct hybrid_actions *acts)
{
	struct hybrid_op *op;

	list_for_each_entry(op, &acts->list, link)
		check_op(op);
	while ((op = hybrid_actions_pop(acts))) {
		if (op->type == HYBRID_OP_WAKE)
			op->waiter->done(op->waiter);
		else if (op->type == HYBRID_OP_COMPLETE)
			end_io(container_of(op->io, struct rio, io));
	}
}

static void check_end(const char *fmt, ...)
{
	char said[64];
	va_list args;

	va_start(args, fmt);
	vsnprintf(said, sizeof(said), fmt, args);
	va_end(args);
	if (current->want)
		difference("  recorded: %s %s (line %u)\n  replayed: nothing more",
			   kind_name[current->want->kind], current->want->text,
			   current->want->line);
	if (current->given)
		difference("a number was not asked for");
	if (!current->end || !strstr(current->end->text, said))
		difference("  recorded: %s\n  replayed: %s",
			   current->end ? current->end->text : "no end", said);
}

/* ---- the engine's surroundings ---------------------------------------------- */

static void run_call(struct record *ev);

/* Returns the next line that is an event itself, not part of one. */
static struct record *next_event(void)
{
	while (pos < nr_records) {
		struct record *ev = &records[pos++];

		if (ev->kind == REC_OP || ev->kind == REC_SEGMENT || ev->kind == REC_NUMBER ||
		    ev->kind == REC_RETURN || ev->kind == REC_IO_MAPPED)
			continue;
		nr_calls++;
		return ev;
	}
	return NULL;
}

/* Replays until the trace says that @op ended; NULL: to the end. */
static struct record *run_until(const struct hybrid_op *op)
{
	struct record *ev;

	while ((ev = next_event())) {
		if (!ev->resume)
			run_call(ev);
		else if (ended_op(ev) == op)
			return ev;
		else if (!is(ev, "type", "wake"))
			difference("line %u: an operation ended that nobody waits for", ev->line);
	}
	if (op)
		difference("the trace ends while a call waits");
	return NULL;
}

static void *replay_alloc_buffer(struct hybrid_engine *e, u32 sectors, gfp_t gfp)
{
	return xalloc(1);
}

static void replay_free_buffer(struct hybrid_engine *e, void *buffer)
{
	free(buffer);
}

static int replay_do_op(struct hybrid_engine *e, struct hybrid_op *op)
{
	struct record *call = current;

	check_op(op);
	op_ended(run_until(op), op);
	current = call;
	return op->error_cache ? op->error_cache : op->error_origin;
}

/* The call that asks for the checkpoint is the next call of this context in the trace. */
static int replay_wait_checkpoint(struct hybrid_engine *e)
{
	struct record *call = current, *ev;
	struct hybrid_waiter *w;
	int error;

	do {
		ev = next_event();
		if (!ev || ev->resume)
			difference("a checkpoint was not asked for, or two calls wait");
		last_wait = NULL;
		run_call(ev);
	} while (ev->context != call->context);
	w = last_wait;
	if (!w)
		difference("a checkpoint was not asked for");
	run_until(&w->op);
	if (!w->ended)
		difference("a checkpoint has not ended");
	current = call;
	error = w->error;
	free(w);
	return error;
}

/* Nothing runs beside another call. */
static void replay_wait_hits(struct hybrid_engine *e)
{
}

static u64 replay_random(struct hybrid_engine *e)
{
	struct record *ev = current->given;

	if (!ev)
		difference("no number was given");
	current->given = ev->next;
	return number(ev, "value");
}

/* Users' data is not recorded. */
static u64 replay_checksum(struct hybrid_engine *e, void *buffer, u32 offset, u32 count, u64 seed)
{
	return replay_random(e);
}

static const struct hybrid_engine_ops replay_ops = {
	.alloc_buffer = replay_alloc_buffer,
	.free_buffer = replay_free_buffer,
	.checksum = replay_checksum,
	.do_op = replay_do_op,
	.wait_checkpoint = replay_wait_checkpoint,
	.wait_hits = replay_wait_hits,
	.random = replay_random,
};

/* ---- calls ------------------------------------------------------------------ */

static struct vol *volume(const struct record *ev)
{
	u64 id = number(ev, "volume");

	if (id >= HYBRID_MAX_VOLUMES || !vols[id].origin.now)
		difference("line %u: no image of volume %lld", ev->line, (long long)id);
	return &vols[id];
}

static void run_io(struct record *ev)
{
	static const char * const type[] = { "read", "write", "flush", "discard", "zeroes" };
	static const char * const bypass[HYBRID_NR_COUNTERS] = {
		[HYBRID_BYPASS_SEQUENTIAL] = "sequential", [HYBRID_BYPASS_POLICY] = "policy",
		[HYBRID_BYPASS_FULL] = "full", [HYBRID_BYPASS_BUSY] = "busy",
		[HYBRID_BYPASS_MODE] = "mode", [HYBRID_BYPASS_PARTIAL] = "partial",
		[HYBRID_BYPASS_ONCE] = "once",
	};
	struct rio *io = xalloc(sizeof(*io));
	struct hybrid_actions acts;
	u8 t = 0, why;
	bool remap;

	memset(io, POISON, sizeof(*io));
	while (!is(ev, "type", type[t]))
		if (++t == ARRAY_SIZE(type))
			difference("line %u: unknown type", ev->line);
	io->name = pointer(ev, "io");
	find_name(io->name)->here = io;
	hybrid_io_init(&io->io, volume(ev)->v, t, number(ev, "sector"), number(ev, "count"),
		       (number(ev, "fua") ? HYBRID_IO_FUA : 0) |
		       (number(ev, "meta") ? HYBRID_IO_META : 0));
	if (current->end && current->end->kind == REC_RETURN) {
		if (hybrid_engine_hit(engine, &io->io))
			difference("  recorded: no hit, and it would not wait\n  replayed: a hit");
		check_end("result=%d", -EAGAIN);
		end_io(io);
		return;
	}
	if (ev->end && number(ev->end, "ahead"))
		io->io.flags |= HYBRID_IO_AHEAD;
	hybrid_actions_init(&acts);
	remap = hybrid_engine_map(engine, &io->io, &acts) == HYBRID_MAP_REMAP;
	why = remap ? io->io.bypass : 0;
	check_actions(&acts);
	if (remap)
		check_op(&io->io.op);
	check_end("remapped=%d bypass=%s", remap, why ? bypass[why] : "none");
}

static void run_io_done(struct record *ev)
{
	struct rio *io = named(ev, "io");
	struct hybrid_actions acts;
	bool ended;

	hybrid_actions_init(&acts);
	ended = hybrid_engine_io_done(engine, &io->io, number(ev, "error"), &acts);
	check_actions(&acts);
	check_end("result=%d", ended ? io->io.error : 1);
	if (ended)
		end_io(io);
}

static void read_sb(void)
{
	struct hybrid_sb copy;
	const char *why;
	u32 i;

	sb.sequence = 0;
	for (i = 0; i < 2; i++) {
		u64 sector = hybrid_sb_sector(cache.sectors, i);

		if (!hybrid_sb_decode((void *)(cache.now + sector * 512), sector, cache.sectors,
				      &copy, &why) && copy.sequence > sb.sequence)
			sb = copy;
	}
}

static bool stopped;

/*
 * pool.c records the settings, beside the engine: after the load, with each configuration, and
 * with each policy of a message.  A policy of a table is for a pool that was stopped; a
 * configuration follows.
 */
static void record_settings(void)
{
	struct hybrid_settings settings = hybrid_settings(hybrid_engine_config(engine));
	char policy[HYBRID_POLICY_NAME_SIZE];
	u32 i;

	if (hybrid_engine_failed(engine))
		return;
	hybrid_engine_policy_name(engine, policy);
	read_sb();
	if (!strcmp(sb.policy, policy) && !memcmp(&sb.settings, &settings, sizeof(settings)))
		return;
	snprintf(sb.policy, sizeof(sb.policy), "%s", policy);
	sb.settings = settings;
	sb.sequence++;
	for (i = 0; i < 2; i++) {
		u64 sector = hybrid_sb_sector(cache.sectors, i);

		hybrid_sb_encode((void *)(cache.now + sector * 512), &sb, sector);
	}
}

static void run_config(struct record *ev)
{
	struct hybrid_config config = {
		.high_watermark = number(ev, "high_watermark"),
		.low_watermark = number(ev, "low_watermark"),
		.writeback_rate = number(ev, "writeback_rate"),
		.commit_interval = number(ev, "commit_interval"),
		.endurance = number(ev, "endurance"),
		.metadata_share = number(ev, "metadata_share"),
		.trim_rate = number(ev, "trim_rate"),
		.read_error_limit = number(ev, "read_error_limit"),
		.write_error_limit = number(ev, "write_error_limit"),
	};
	char policy[HYBRID_POLICY_NAME_SIZE];
	int r = 0;

	copy_word(ev, "policy", policy, sizeof(policy));
	if (is(ev, "call", "create")) {
		read_sb();
		engine = hybrid_engine_create(&sb, &replay_ops, NULL, hybrid_policy_get(policy),
					      &config, &r);
	} else if (is(ev, "call", "policy")) {
		r = hybrid_engine_set_policy(engine, hybrid_policy_get(policy));
		if (!r && !stopped)
			record_settings();
	} else {
		r = hybrid_engine_configure(engine, &config);
		if (!r)
			record_settings();
	}
	check_end("result=%d", r);
}

static void run_volume_create(struct record *ev)
{
	struct hybrid_volume_info info = {
		.state = HYBRID_VOLUME_ACTIVE,
		.mode = number(ev, "mode"),
		.flags = number(ev, "flags"),
		.data_sector = number(ev, "data_sector"),
		.data_sectors = number(ev, "data_sectors"),
		.cutoff_sectors = number(ev, "cutoff"),
	};

	copy_hex(ev, "uuid", info.uuid, HYBRID_UUID_SIZE);
	copy_hex(ev, "member_uuid", info.member_uuid, HYBRID_UUID_SIZE);
	copy_hex(ev, "pairing_key", info.pairing_key, HYBRID_KEY_SIZE);
	copy_word(ev, "name", info.name, HYBRID_NAME_SIZE);
	check_end("result=%d", hybrid_volume_create(engine, number(ev, "volume"), &info));
}

static void run_volume_rename(struct record *ev)
{
	char name[HYBRID_NAME_SIZE];

	copy_word(ev, "name", name, sizeof(name));
	check_end("result=%d", hybrid_volume_rename(engine, number(ev, "volume"), name));
}

static int run_open(struct record *ev)
{
	struct hybrid_volume_info info;
	struct vol *vol = volume(ev);
	const char *why;

	if (!hybrid_volume_info(engine, vol->id, &info)) {
		vol->data_sector = info.data_sector;
		vol->data_sectors = info.data_sectors;
	}
	return hybrid_volume_open(engine, vol->id, number(ev, "value"), vol, &vol->v, &why);
}

static int destroy(void)
{
	hybrid_engine_destroy(engine);
	engine = NULL;
	if (nr_blocks)
		difference("the engine leaks memory");
	return 0;
}

/* Calls that may block have no list of actions. */
static int run_blocking(struct record *ev)
{
	const char *why;
	int r;

	if (is(ev, "call", "load")) {
		r = hybrid_engine_load(engine, &why);
		if (!r)
			record_settings();
		return r;
	}
	if (is(ev, "call", "restart")) {
		stopped = false;
		return hybrid_engine_restart(engine, &why);
	}
	if (is(ev, "call", "destroy"))
		return destroy();
	if (is(ev, "call", "volume_delete"))
		return hybrid_volume_delete(engine, number(ev, "volume"), number(ev, "value"));
	if (is(ev, "call", "volume_forget"))
		return hybrid_volume_forget(engine, number(ev, "volume"));
	if (is(ev, "call", "open"))
		return run_open(ev);
	if (is(ev, "call", "settle"))
		return hybrid_volume_settle(engine, volume(ev)->v);
	if (is(ev, "call", "grow"))
		return hybrid_volume_grow(engine, volume(ev)->v, number(ev, "value"), NULL);
	if (is(ev, "call", "renew_sb"))
		return hybrid_volume_renew_sb(engine, volume(ev)->v);
	if (is(ev, "call", "close"))
		return hybrid_volume_close(engine, volume(ev)->v);
	difference("unknown call");
	return 0;
}

static void ask_checkpoint(struct hybrid_actions *acts)
{
	last_wait = xalloc(sizeof(*last_wait));
	last_wait->done = hybrid_waiter_ended;
	hybrid_engine_checkpoint(engine, last_wait, acts);
}

static int run_quick(struct record *ev, struct hybrid_actions *acts)
{
	u64 arg = number(ev, "value");

	if (is(ev, "call", "stop")) {
		stopped = hybrid_engine_stop(engine, acts);
		return stopped;
	}
	if (is(ev, "call", "checkpoint"))
		ask_checkpoint(acts);
	else if (is(ev, "call", "fail"))
		hybrid_engine_fail(engine, acts);
	else if (is(ev, "call", "drain"))
		hybrid_engine_drain(engine, is(ev, "volume", "-1") ? NULL : volume(ev)->v, arg,
				    arg ? arg - 1 : 0, acts);
	else if (is(ev, "call", "suspend"))
		return hybrid_volume_suspend(engine, volume(ev)->v, acts);
	else if (is(ev, "call", "claim_sb"))
		return hybrid_volume_claim_sb(engine, volume(ev)->v);
	else if (is(ev, "call", "release_sb"))
		hybrid_volume_release_sb(engine, volume(ev)->v, acts);
	else if (is(ev, "call", "resume"))
		hybrid_volume_resume(engine, volume(ev)->v, acts);
	else if (is(ev, "call", "mode"))
		hybrid_volume_set_mode(engine, volume(ev)->v, arg, acts);
	else if (is(ev, "call", "origin"))
		hybrid_volume_set_traits(volume(ev)->v, arg);
	else
		hybrid_volume_set_cutoff(engine, volume(ev)->v, arg, acts);
	return 0;
}

/* Calls without more arguments than a volume and a number. */
static void run_listed(struct record *ev)
{
	struct hybrid_actions acts;
	struct hybrid_op *op;
	int r = 0;

	hybrid_actions_init(&acts);
	if (ev->kind == REC_TICK) {
		r = hybrid_engine_tick(engine, number(ev, "now_ms"), &acts);
	} else if (ev->kind == REC_OP_COPIED) {
		hybrid_engine_op_copied(engine, named(ev, "op"), &acts);
	} else if (ev->kind == REC_OP_DONE) {
		op = ended_op(ev);
		op_ended(ev, op);
		hybrid_engine_op_done(engine, op, &acts);
	} else if (blocks(ev)) {
		r = run_blocking(ev);
	} else {
		r = run_quick(ev, &acts);
	}
	check_actions(&acts);
	check_end("result=%d", r);
}

/* ---- overlaps ---------------------------------------------------------------- */

#define MAX_ATTEMPTS	100	/* in all: if all fail, there is a difference */

static u32 *attempts;		/* shared by all processes */

/* Runs the calls that began inside the running call, in their order. */
static void run_inside(void)
{
	struct record *call = current, *ev;

	while ((ev = next_event())) {
		if (!ev->inside) {
			pos = ev - records;
			nr_calls--;
			break;
		}
		run_call(ev);
	}
	current = call;
}

/* Interrupts go on: is this the place? */
static void at_place(void)
{
	if (--places_left)
		return;
	shim_irqs_on = NULL;
	run_inside();
}

/*
 * The next call began while this one ran: before this call did anything in the engine, at
 * the first place, the second, ... or after all places.
 */
static void choose_place(void)
{
	int status = 0;
	u32 n;

	for (n = 0; (*attempts)++ < MAX_ATTEMPTS; n++) {
		pid_t child = fork();

		if (!child) {
			muted = true;
			places_left = n;
			if (n)
				shim_irqs_on = at_place;
			else
				run_inside();
			return;
		}
		/* In the wrong order the engine may even crash. */
		if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
			continue;
		if (!WEXITSTATUS(status))
			_exit(0);
		if (WEXITSTATUS(status) == NO_SUCH_PLACE)
			break;
	}
}

static bool next_is_inside(void)
{
	u32 here = pos, calls = nr_calls;
	struct record *ev = next_event();

	pos = here;
	nr_calls = calls;
	return ev && ev->inside;
}

static void run_call(struct record *ev)
{
	struct record *call = current;

	current = ev;
	if (!ev->inside && next_is_inside())
		choose_place();
	if (!engine && !(ev->kind == REC_CONFIG && is(ev, "call", "create")))
		difference("the trace does not begin with the pool");
	switch (ev->kind) {
	case REC_IO:
		run_io(ev);
		break;
	case REC_IO_DONE:
		run_io_done(ev);
		break;
	case REC_CONFIG:
		run_config(ev);
		break;
	case REC_VOLUME_CREATE:
		run_volume_create(ev);
		break;
	case REC_VOLUME_RENAME:
		run_volume_rename(ev);
		break;
	default:
		run_listed(ev);
	}
	if (!ev->inside && shim_irqs_on)
		_exit(NO_SUCH_PLACE);
	current = call;
}

/* ---- members ----------------------------------------------------------------- */

static u8 *map_image(const char *path, u64 *sectors)
{
	int fd = open(path, O_RDONLY);
	struct stat st;
	u8 *p;

	if (fd < 0 || fstat(fd, &st))
		difference("cannot read %s", path);
	p = mmap(NULL, st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED)
		difference("cannot map %s", path);
	close(fd);
	*sectors = st.st_size / 512;
	return p;
}

static void load_member(struct member *m, const char *before, const char *after)
{
	m->after = map_image(after, &m->sectors);
	m->now = map_image(before, &m->sectors);
}

static void compare(const char *what, const struct member *m, u64 from, u64 to)
{
	for (; from < to; from++)
		if (memcmp(m->now + from * 512, m->after + from * 512, 512))
			difference("sector %llu of %s is not what the kernel left",
				   (unsigned long long)from, what);
}

static void compare_members(void)
{
	const struct hybrid_geometry *g = &sb.geometry;
	u64 end = hybrid_data_sector(g, to_cblock(g->nr_blocks - 1)) + g->block_sectors;
	char name[32];
	u32 id;

	compare("the cache", &cache, 0, g->data_sector);
	compare("the cache", &cache, end, cache.sectors);
	for (id = 0; id < HYBRID_MAX_VOLUMES; id++) {
		struct vol *v = &vols[id];

		if (!v->data_sectors)
			continue;
		snprintf(name, sizeof(name), "volume %u", id);
		compare(name, &v->origin, 0, v->data_sector);
		compare(name, &v->origin, v->data_sector + v->data_sectors, v->origin.sectors);
	}
}

int main(int argc, char **argv)
{
	int i;

	if (argc < 4 || (argc - 4) % 3) {
		fputs("usage: replay TRACE BEFORE AFTER [ID BEFORE AFTER]...\n", stderr);
		return 2;
	}
	load_member(&cache, argv[2], argv[3]);
	for (i = 4; i < argc; i += 3) {
		u32 id = strtoul(argv[i], NULL, 10) % HYBRID_MAX_VOLUMES;

		vols[id].id = id;
		load_member(&vols[id].origin, argv[i + 1], argv[i + 2]);
	}
	attempts = mmap(NULL, sizeof(*attempts), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	load_trace(argv[1]);
	structure();
	run_until(NULL);
	compare_members();
	replay_end(nr_calls ? 0 : 1);
}
