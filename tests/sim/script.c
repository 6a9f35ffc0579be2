// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Scripts: one line each for the pool, every volume, and every decision.
 *
 *	pool block_sectors=8 cache_blocks=2 hot_blocks=4
 *	volume writeback
 *	write v0 8+4
 *	explore
 *	run
 *
 * Details that a line leaves open (for example, which part of a write was carried out)
 * come from random numbers made from the line itself, or from its state= if the line was
 * recorded.  So a line means the same among any other lines.
 */
#include <stdlib.h>

#include "engine-internal.h"
#include "script.h"

struct script *script_record, *script_play;

/* Arguments after the name: v volume, s sector, + count of sectors, n number, x hex, m mode, h how,
 * k kind of metadata, d requests that get no answer */
static const struct {
	const char *name, *args;
} kinds[NR_LINES] = {
	[EV_STEP] = { "step", "" },
	[EV_READ] = { "read", "vs+" },
	[EV_WRITE] = { "write", "vs+" },
	[EV_FUA] = { "fua", "vs+" },
	[EV_FLUSH] = { "flush", "v" },
	[EV_DISCARD] = { "discard", "vs+" },
	[EV_ZEROES] = { "zeroes", "vs+" },
	[EV_TICK] = { "tick", "n" },
	[EV_MODE] = { "mode", "vm" },
	[EV_DRAIN] = { "drain", "vn" },
	[EV_EVICT] = { "evict", "vs" },
	[EV_CHECKPOINT] = { "checkpoint", "" },
	[EV_REOPEN] = { "reopen", "" },
	[EV_RESTART] = { "restart", "" },
	[EV_RECREATE] = { "recreate", "" },
	[EV_CUTOFF] = { "cutoff", "" },
	[EV_POLICY] = { "policy", "" },
	[EV_META] = { "meta", "vs+" },
	[EV_AHEAD] = { "ahead", "vs+" },
	[LINE_BOOT] = { "boot", "" },
	[LINE_FAULT] = { "fault", "x" },
	[LINE_AGE] = { "age", "" },
	[LINE_LOSE] = { "lose", "k" },
	[LINE_POWER] = { "power", "n" },
	[LINE_AGAIN] = { "again", "n" },
	[LINE_CUT] = { "cut", "h" },
	[LINE_RESET] = { "reset", "" },
	[LINE_READALL] = { "readall", "" },
	[LINE_FINISH] = { "finish", "" },
	[LINE_RUN] = { "run", "" },
	[LINE_RELOAD] = { "reload", "" },
	[LINE_ADMIN] = { "admin", "" },
	[LINE_CLEAN] = { "clean", "v" },
	[LINE_CLOSED] = { "closed", "" },
	[LINE_HANG] = { "hang", "vd" },
	[LINE_ANSWER] = { "answer", "" },
	[LINE_GROW] = { "grow", "vn" },
	[LINE_EXPLORE] = { "explore", "" },
	[LINE_NOTHING] = { "nothing", "" },
	[LINE_COMPLETE] = { "complete", "n" },
	[LINE_APPLY] = { "apply", "n" },
	[LINE_PART] = { "part", "n" },
	[LINE_TELL] = { "tell", "n" },
	[LINE_PASS] = { "pass", "n" },
	[LINE_WAIT] = { "wait", "" },
};

static const char * const modes[HYBRID_NR_MODES] = {
	[HYBRID_MODE_WRITEBACK] = "writeback",
	[HYBRID_MODE_WRITETHROUGH] = "writethrough",
	[HYBRID_MODE_WRITEAROUND] = "writearound",
	[HYBRID_MODE_PASSTHROUGH] = "passthrough",
};

static const char * const hows[NR_CUTS + 1] = {
	"drawn", "none", "all", "completed", "sectors", "writes",
};

static const char * const meta_kinds[NR_META_KINDS] = {
	[META_NOTHING] = "nothing",
	[META_SUPERBLOCK] = "superblock",
	[META_ROOT] = "root",
	[META_INDEX] = "index",
	[META_VOLUMES] = "volumes",
	[META_MAP] = "map",
	[META_JOURNAL] = "journal",
	[META_INTENT] = "intent",
};

#define NO_VOLUME 255

/* ---- Recording -------------------------------------------------------------- */

void script_add(struct script *s, const struct line *l)
{
	if (s->nr == s->cap) {
		s->cap = max(2 * s->cap, 64U);
		s->line = xrealloc(s->line, s->cap * sizeof(*s->line));
	}
	s->line[s->nr++] = *l;
}

void script_log(struct world *w, u32 kind, const struct volume *vol, u64 sector, u32 count)
{
	struct line l = {
		.kind = kind,
		.volume = vol ? vol->nr : NO_VOLUME,
		.cpu = shim_cpu,
		.count = count,
		.sector = sector,
		.state = w->rng.state,
		.meanwhile = w->doing && (kind <= EV_TICK || kind == LINE_NOTHING),
	};

	if (script_record && !w->branch)
		script_add(script_record, &l);
}

void script_begin(struct world *w)
{
	struct script *s = script_record;

	if (s) {
		s->p = w->p;
		s->rng = w->rng.state;
		s->brng = w->brng.state;
	}
	s = script_play;
	if (s) {
		w->p = s->p;
		w->brng.state = s->brng;
		s->next = 0;
	}
}

void script_volumes(struct world *w)
{
	struct script *s = script_record ? script_record : script_play;
	u32 i;

	for (i = 0; s && i < w->nr_vol; i++) {
		struct volume *vol = w->vol[i];

		if (script_record) {
			s->volume[i].mode = vol->info.mode;
			s->volume[i].cutoff = vol->info.cutoff_sectors;
			s->volume[i].discard = vol->origin->discard;
			continue;
		}
		vol->info.mode = s->volume[i].mode;
		vol->info.cutoff_sectors = s->volume[i].cutoff;
		vol->origin->discard = s->volume[i].discard;
		vol->ever_writeback = vol->info.mode == HYBRID_MODE_WRITEBACK;
	}
}

/* ---- Playing ------------------------------------------------------------------ */

static void begin_line(struct world *w, const struct line *l)
{
	struct rng rng = { l->kind | l->volume << 8 | (u64)l->count << 16 | l->sector << 40 };

	shim_cpu = l->cpu;
	w->rng.state = l->state ? l->state : rng_next(&rng);
	if (sim_trace)
		fprintf(stderr, "- %s\n", kinds[l->kind].name);
}

static bool next_is(u32 a, u32 b)
{
	struct script *s = script_play;

	return s->next < s->nr && s->line[s->next].kind >= a && s->line[s->next].kind <= b;
}

bool script_take(struct world *w, u32 a, u32 b, struct line *l)
{
	if (!next_is(a, b))
		return false;
	*l = script_play->line[script_play->next++];
	begin_line(w, l);
	return true;
}

static struct action *ready_action(struct world *w, u32 n)
{
	struct action *a;

	n = min(n, w->nr_ready - 1);
	list_for_each_entry(a, &w->ready, link)
		if (!n--)
			break;
	return a;
}

static struct dreq *chosen_request(struct world *w, u32 n)
{
	struct dreq *r = world_inflight(w, n);

	return r ? r : world_inflight(w, 0);
}

static void choose(struct world *w, const struct line *l)
{
	struct dreq *r = NULL;

	switch (l->kind) {
	case LINE_TELL:
		if (w->nr_ready)
			world_tell(w, ready_action(w, l->count));
		return;
	case LINE_PASS:
		world_tick(w, l->count);
		return;
	case LINE_WAIT:
		return;
	}
	r = chosen_request(w, l->count);
	if (r && l->kind == LINE_COMPLETE)
		world_complete(w, r);
	else if (r)
		world_apply(w, r, l->kind == LINE_PART);
}

bool script_step(struct world *w)
{
	struct line l;

	if (!w->nr_ready && !world_inflight(w, 0))
		return false;
	if (!script_take(w, LINE_COMPLETE, LINE_WAIT, &l))
		return world_plain_step(w);
	choose(w, &l);
	return true;
}

static struct volume *line_volume(struct world *w, const struct line *l)
{
	return l->volume < w->nr_vol ? w->vol[l->volume] : NULL;
}

static bool possible(struct world *w, const struct line *l)
{
	const char *args = kinds[l->kind].args;
	struct volume *vol = line_volume(w, l);
	u32 bs = w->p.block_sectors;

	if (l->kind == EV_DRAIN && l->volume == NO_VOLUME)
		return true;
	if (!strchr(args, 'v'))
		return true;
	if (!vol || !vol->v || vol->closing)
		return false;
	if (!strchr(args, 's'))
		return true;
	if (l->sector >= vol->hot || l->sector + l->count > vol->hot)
		return false;
	if (!strchr(args, '+'))
		return true;
	return l->count && (l->kind == EV_DISCARD || l->kind == EV_ZEROES ||
			    l->sector % bs + l->count <= bs);
}

static void check_clean(struct world *w, const struct volume *vol)
{
	struct hybrid_volume_status st;

	hybrid_volume_status(w->e, vol->v, &st);
	if (st.dirty)
		violation(w, "liveness", "volume %u has %u dirty blocks", vol->id, st.dirty);
}

static void check_closed(struct world *w)
{
	u32 set = find_first_bit(w->e->commit.open_sets, w->e->map.nr_sets);

	if (set < w->e->map.nr_sets)
		violation(w, "liveness", "set %u has open regions", set);
}

static void carry_out(struct world *w, const struct line *l)
{
	struct volume *vol = line_volume(w, l);

	switch (l->kind) {
	case EV_READ ... EV_ZEROES:
	case EV_META ... EV_AHEAD:
		user_io(w, l->kind, vol, l->sector, l->count);
		break;
	case EV_TICK:
		tick(w, l->count);
		break;
	case EV_MODE:
		set_mode(w, vol, l->count);
		break;
	case EV_DRAIN:
		drain(w, vol, l->count);
		break;
	case EV_EVICT:
		evict_sector(w, vol, l->sector);
		break;
	case LINE_BOOT:
		boot(w);
		break;
	case LINE_FAULT:
		faults_replay(w, l->sector);
		break;
	case LINE_AGE:
		age_flushes(w);
		break;
	case LINE_LOSE:
		faults_lose(w, l->count);
		break;
	case LINE_POWER:
		w->crash_at = l->count ? w->changes + l->count : SIM_NEVER;
		break;
	case LINE_CUT:
	case LINE_RESET:
		script_play->next--;	/* crash() takes it */
		w->crashed = true;
		break;
	case LINE_READALL:
		read_all(w);
		break;
	case LINE_FINISH:
		finish(w);
		break;
	case LINE_RUN:
		world_idle(w);
		break;
	case LINE_RELOAD:
		world_settle(w);
		reload(w);
		break;
	case LINE_NOTHING:
		break;
	case LINE_ADMIN:
		admin_event(w);
		break;
	case LINE_CLEAN:
		check_clean(w, vol);
		break;
	case LINE_CLOSED:
		check_closed(w);
		break;
	case LINE_HANG:
		hang_begin(w, vol, l->count);
		break;
	case LINE_ANSWER:
		hang_end(w);
		break;
	case LINE_GROW:
		grow(w, vol, l->count);
		break;
	case LINE_EXPLORE:
		w->p.cut_every = 1;
		break;
	case LINE_COMPLETE ... LINE_WAIT:
		choose(w, l);
		break;
	default:
		do_event(w, l->kind);
	}
}

void script_meanwhile(struct world *w)
{
	struct script *s = script_play;
	struct line l;

	/* The recorded run drew whether there is an event */
	rng_next(&w->rng);
	if (s->next == s->nr || !s->line[s->next].meanwhile ||
	    !script_take(w, EV_READ, LINE_NOTHING, &l))
		return;
	if (possible(w, &l) && l.kind != LINE_NOTHING)
		carry_out(w, &l);
}

void script_run(struct world *w)
{
	struct line l;

	if (!next_is(LINE_BOOT, LINE_BOOT))
		boot(w);
	while (!w->stop && script_take(w, 0, NR_LINES, &l)) {
		w->step = script_play->next;
		if (!w->e && l.kind != LINE_BOOT)
			break;		/* end of the script */
		if (!possible(w, &l)) {
			violation(w, "script", "line %u cannot be carried out", w->step);
			break;
		}
		carry_out(w, &l);
		if (w->crashed && !w->stop) {
			w->crash_at = SIM_NEVER;
			crash(w, false);
			boot(w);
		}
	}
}

/* ---- As text -------------------------------------------------------------------- */

#define FIELD(name) { #name, offsetof(struct profile, name) }
#define CONFIG(name) { #name, offsetof(struct profile, config.name) }

static const struct {
	const char *name;
	size_t at;
} fields[] = {
	FIELD(block_sectors), FIELD(cache_blocks), FIELD(hot_blocks), FIELD(slow_percent),
	FIELD(reset_percent), FIELD(fail_alloc), FIELD(alloc_faults),
	FIELD(nowait), FIELD(busy), FIELD(collisions), FIELD(syncs), FIELD(demand_fill), FIELD(fault_kind), FIELD(worn),
	FIELD(admin_percent), FIELD(load_percent), FIELD(inplace_percent), FIELD(aim),
	FIELD(aims), FIELD(cut_every), FIELD(run_percent), FIELD(journal_blocks), FIELD(far), FIELD(small), FIELD(intent_blocks),
	FIELD(cut_samples), FIELD(cut_writes), FIELD(seeks), FIELD(no_fua), FIELD(trims), FIELD(aged), FIELD(grow),
	CONFIG(high_watermark), CONFIG(low_watermark),
	CONFIG(writeback_rate), CONFIG(commit_interval), CONFIG(endurance),
	CONFIG(metadata_share), CONFIG(trim_rate),
	CONFIG(read_error_limit), CONFIG(write_error_limit),
};

static u32 *field(const struct profile *p, u32 i)
{
	return (u32 *)((char *)p + fields[i].at);
}

void script_defaults(struct script *s)
{
	memset(s, 0, sizeof(*s));
	s->p.block_sectors = 8;
	s->p.cache_blocks = 2;
	s->p.hot_blocks = 2;
	s->p.journal_blocks = HYBRID_JOURNAL_MIN_BLOCKS;
	s->p.volumes = 0;
	s->p.policy = "lru";
	s->p.cut_samples = 4;
	s->p.cut_writes = 10;
	s->p.config = (struct hybrid_config)HYBRID_CONFIG_DEFAULT;
	s->p.config.trim_rate = 0;
	s->p.config.read_error_limit = 0;
	s->p.config.write_error_limit = 0;
	s->rng = 1;
	s->brng = 1;
}

static void print_line(const struct line *l, FILE *f)
{
	const char *a;

	fputs(kinds[l->kind].name, f);
	for (a = kinds[l->kind].args; *a; a++)
		switch (*a) {
		case 'v':
			if (l->volume == NO_VOLUME)
				fprintf(f, " all");
			else
				fprintf(f, " v%u", l->volume);
			break;
		case 's':
			fprintf(f, " %llu", (unsigned long long)l->sector);
			break;
		case 'x':
			fprintf(f, " %llx", (unsigned long long)l->sector);
			break;
		case '+':
			fprintf(f, "+%u", l->count);
			break;
		case 'n':
			fprintf(f, " %u", l->count);
			break;
		case 'm':
			fprintf(f, " %s", modes[l->count]);
			break;
		case 'h':
			fprintf(f, " %s", hows[l->count]);
			break;
		case 'k':
			fprintf(f, " %s", meta_kinds[l->count]);
			break;
		case 'd':
			fprintf(f, " %s", hang_kinds[l->count]);
		}
	if (l->meanwhile)
		fprintf(f, " meanwhile");
	if (l->cpu)
		fprintf(f, " cpu=%u", l->cpu);
	if (l->state)
		fprintf(f, " state=%llx", (unsigned long long)l->state);
	fputc('\n', f);
}

void script_print(const struct script *s, FILE *f)
{
	struct script d;
	u32 i;

	script_defaults(&d);
	fprintf(f, "pool");
	for (i = 0; i < ARRAY_SIZE(fields); i++)
		if (*field(&s->p, i) != *field(&d.p, i))
			fprintf(f, " %s=%u", fields[i].name, *field(&s->p, i));
	if (strcmp(s->p.policy, d.p.policy))
		fprintf(f, " policy=%s", s->p.policy);
	if (s->rng != d.rng)
		fprintf(f, " rng=%llx", (unsigned long long)s->rng);
	if (s->brng != d.brng)
		fprintf(f, " brng=%llx", (unsigned long long)s->brng);
	fputc('\n', f);
	for (i = 0; i < s->p.volumes; i++) {
		fprintf(f, "volume %s", modes[s->volume[i].mode]);
		if (s->volume[i].cutoff)
			fprintf(f, " cutoff=%u", s->volume[i].cutoff);
		if (s->volume[i].discard)
			fprintf(f, " discard=%u", s->volume[i].discard);
		fputc('\n', f);
	}
	for (i = 0; i < s->nr; i++)
		print_line(&s->line[i], f);
}

static int find_name(const char * const *names, u32 nr, const char *word)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (names[i] && !strcmp(names[i], word))
			return i;
	return -1;
}

static bool read_pool(struct script *s, char *word)
{
	char *value = strchr(word, '=');
	u32 i;

	if (!value)
		return false;
	*value++ = 0;
	if (!strcmp(word, "rng") || !strcmp(word, "brng")) {
		*(*word == 'r' ? &s->rng : &s->brng) = strtoull(value, NULL, 16);
		return true;
	}
	if (!strcmp(word, "policy")) {
		const struct hybrid_policy_type *t = hybrid_policy_get(value);

		if (t)
			s->p.policy = t->name;
		return t;
	}
	for (i = 0; i < ARRAY_SIZE(fields); i++)
		if (!strcmp(word, fields[i].name)) {
			*field(&s->p, i) = strtoul(value, NULL, 10);
			return true;
		}
	return false;
}

static bool read_volume(struct script *s, char *word)
{
	u32 i = s->p.volumes - 1;
	int mode = find_name(modes, HYBRID_NR_MODES, word);

	if (mode >= 0)
		s->volume[i].mode = mode;
	else if (sscanf(word, "cutoff=%u", &s->volume[i].cutoff) != 1 &&
		 sscanf(word, "discard=%u", &s->volume[i].discard) != 1)
		return false;
	return true;
}

static bool read_arg(struct line *l, char arg, char *word)
{
	unsigned long long sector;
	int n;

	switch (arg) {
	case 'v':
		l->volume = NO_VOLUME;
		return !strcmp(word, "all") || sscanf(word, "v%hhu", &l->volume) == 1;
	case 's':
		n = sscanf(word, "%llu+%u", &sector, &l->count);
		l->sector = sector;
		return n > 0;
	case 'x':
		n = sscanf(word, "%llx", &sector);
		l->sector = sector;
		return n == 1;
	case 'n':
		return sscanf(word, "%u", &l->count) == 1;
	case 'm':
		n = find_name(modes, HYBRID_NR_MODES, word);
		l->count = n;
		return n >= 0;
	case 'h':
		n = find_name(hows, NR_CUTS + 1, word);
		l->count = n;
		return n >= 0;
	case 'k':
		n = find_name(meta_kinds, NR_META_KINDS, word);
		l->count = n;
		return n >= 0;
	case 'd':
		n = find_name(hang_kinds, NR_HANGS, word);
		l->count = n;
		return n >= 0;
	}
	return false;
}

static bool read_event(struct script *s, char *name)
{
	struct line l = { .volume = NO_VOLUME };
	unsigned long long state;
	const char *a;
	char *word;

	for (l.kind = 0; l.kind < NR_LINES; l.kind++)
		if (kinds[l.kind].name && !strcmp(kinds[l.kind].name, name))
			break;
	if (l.kind == NR_LINES)
		return false;
	for (a = kinds[l.kind].args; *a; a++) {
		if (*a == '+')		/* read with the sector */
			continue;
		word = strtok(NULL, " \t");
		if (!word || !read_arg(&l, *a, word))
			return false;
	}
	while ((word = strtok(NULL, " \t"))) {
		if (sscanf(word, "state=%llx", &state) == 1)
			l.state = state;
		else if (!strcmp(word, "meanwhile"))
			l.meanwhile = true;
		else if (sscanf(word, "cpu=%hhu", &l.cpu) != 1)
			return false;
	}
	script_add(s, &l);
	return true;
}

static bool read_line(struct script *s, char *text)
{
	char *word, *name;
	bool ok = true;

	text[strcspn(text, "#\n")] = 0;
	name = strtok(text, " \t");
	if (!name)
		return true;
	if (strcmp(name, "pool") && strcmp(name, "volume"))
		return read_event(s, name);
	if (*name == 'v' && s->p.volumes++ == SIM_MAX_VOLUMES)
		return false;
	while (ok && (word = strtok(NULL, " \t")))
		ok = *name == 'p' ? read_pool(s, word) : read_volume(s, word);
	return ok;
}

struct script *script_read(FILE *f, const char *name)
{
	struct script *s = xalloc(sizeof(*s));
	char text[512];
	u32 n = 0;

	script_defaults(s);
	while (fgets(text, sizeof(text), f)) {
		n++;
		if (!read_line(s, text)) {
			fprintf(stderr, "%s:%u: not understood\n", name, n);
			script_free(s);
			return NULL;
		}
	}
	if (!s->p.volumes)
		s->p.volumes = 1;
	return s;
}

void script_free(struct script *s)
{
	free(s->line);
	free(s);
}
