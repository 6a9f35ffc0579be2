// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Makes a script that breaks a rule as short as possible: leaves out lines, and
 * replaces lines by simpler ones, as long as the script breaks the same rule.
 * Every candidate runs in a process of its own: it may die, or never end.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "script.h"

#define MAX_LINES	(1 << 18)
#define CANDIDATE_SECONDS 20

/* The report of a child. */
struct told {
	char rule[32];
	struct script script;
	struct line line[MAX_LINES];
};

static struct told *told;
static struct script *best;
static char wanted[32];
static u32 tries;

/* Runs the seed, or the script if @s; returns the rule that it breaks or "". */
static const char *run(struct script *s, u64 seed, char mode)
{
	pid_t pid;
	u64 hash;
	int status;

	memset(told->rule, 0, sizeof(told->rule));
	fflush(NULL);
	pid = fork();
	if (pid < 0)
		abort();
	if (!pid) {
		if (!freopen("/dev/null", "w", stderr))
			_exit(2);
		alarm(s ? CANDIDATE_SECONDS : 0);
		if (s)
			run_script(s, &hash);
		else
			run_seed(seed, mode, &hash);
		if (sim_violations)
			snprintf(told->rule, sizeof(told->rule), "%s", sim_rule);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status))
		snprintf(told->rule, sizeof(told->rule), "signal %d", WTERMSIG(status));
	return told->rule;
}

static void setup(void)
{
	if (told)
		return;
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		    -1, 0);
	if (told == MAP_FAILED)
		abort();
}

struct script *script_of_seed(u64 seed, char mode)
{
	struct script *s = xalloc(sizeof(*s));

	setup();
	script_defaults(&told->script);
	told->script.line = told->line;
	told->script.cap = MAX_LINES;
	script_record = &told->script;
	snprintf(wanted, sizeof(wanted), "%s", run(NULL, seed, mode));
	script_record = NULL;
	*s = told->script;
	s->line = xalloc(s->nr * sizeof(*s->line));
	s->cap = s->nr;
	memcpy(s->line, told->line, s->nr * sizeof(*s->line));
	return s;
}

/* ---- Candidates --------------------------------------------------------------- */

static struct script *copy(const struct script *s)
{
	struct script *c = xalloc(sizeof(*c));

	*c = *s;
	c->line = xalloc((s->nr + 1) * sizeof(*c->line));
	c->cap = s->nr + 1;
	memcpy(c->line, s->line, s->nr * sizeof(*c->line));
	return c;
}

/* Takes @c; keeps it if it breaks the same rule. */
static bool accept(struct script *c)
{
	bool ok;

	tries++;
	ok = !strcmp(run(c, 0, 0), wanted);
	if (ok) {
		script_free(best);
		best = c;
		fprintf(stderr, "\r%u lines after %u tries ", c->nr, tries);
	} else {
		script_free(c);
	}
	return ok;
}

static bool without(u32 from, u32 n)
{
	struct script *c = copy(best);

	memmove(c->line + from, c->line + from + n, (c->nr - from - n) * sizeof(*c->line));
	c->nr -= n;
	return accept(c);
}

static void leave_out(void)
{
	u32 n, i;

	for (n = best->nr; n; n /= 2)
		for (i = 0; i < best->nr;)
			if (!without(i, min(n, best->nr - i)))
				i += n;
}

static bool is_choice(const struct line *l)
{
	return l->kind >= LINE_COMPLETE;
}

/* Every sequence of choices becomes "run", except those before line @from. */
static bool oldest_first(u32 from)
{
	struct script *c = copy(best);
	u32 i, n = from;

	for (i = from; i < best->nr; i++) {
		const struct line *l = &best->line[i];

		if (!is_choice(l))
			c->line[n++] = *l;
		else if (!n || c->line[n - 1].kind != LINE_RUN)
			c->line[n++] = (struct line){ .kind = LINE_RUN, .volume = l->volume };
	}
	c->nr = n;
	return n < best->nr && accept(c);
}

/* Puts as much of the end as possible in the order of submission. */
static void order_end(void)
{
	u32 low = 0, high = best->nr, middle;

	if (oldest_first(0))
		return;
	while (low < high) {
		middle = (low + high) / 2;
		if (oldest_first(middle))
			high = min(middle, best->nr);
		else
			low = middle + 1;
	}
}

static void order_each(void)
{
	struct script *c;
	u32 i, n;

	for (i = 0; i < best->nr; i++) {
		for (n = 0; i + n < best->nr && is_choice(&best->line[i + n]); n++)
			;
		if (!n)
			continue;
		c = copy(best);
		c->line[i] = (struct line){ .kind = LINE_RUN, .volume = c->line[i].volume };
		memmove(c->line + i + 1, c->line + i + n, (c->nr - i - n) * sizeof(*c->line));
		c->nr -= n - 1;
		if (!accept(c))
			i += n - 1;
	}
}

static void drop_states(void)
{
	struct script *c = copy(best);
	u32 i;

	c->rng = 1;
	c->brng = 1;
	for (i = 0; i < c->nr; i++) {
		c->line[i].state = 0;
		c->line[i].cpu = 0;
	}
	if (accept(c))
		return;
	for (i = 0; i < best->nr; i++) {
		if (!best->line[i].state && !best->line[i].cpu)
			continue;
		c = copy(best);
		c->line[i].state = 0;
		c->line[i].cpu = 0;
		accept(c);
	}
}

/* Explores crash states only at the end, but more of them there. */
static void explore_late(void)
{
	struct script *c;
	u32 i, n = best->nr;

	if (!best->p.cut_every)
		return;
	for (i = 1; i <= n && i < 1000; i *= 2) {
		c = copy(best);
		memmove(c->line + n - i + 1, c->line + n - i, i * sizeof(*c->line));
		c->line[n - i] = (struct line){ .kind = LINE_EXPLORE };
		c->nr++;
		c->p.cut_every = 0;
		c->p.cut_writes = 8;
		c->p.cut_samples = 16;
		if (accept(c))
			return;
	}
}

static bool set_number(u32 *in_best, u32 value)
{
	size_t at = (char *)in_best - (char *)best;
	struct script *c;

	if (*in_best == value)
		return true;
	c = copy(best);
	*(u32 *)((char *)c + at) = value;
	return accept(c);
}

static void simpler_pool(void)
{
	static const u32 small[] = { 1, 2, 4, 8 };
	u32 i;

	set_number(&best->p.slow_percent, 0);
	set_number(&best->p.seeks, 0);
	set_number(&best->p.no_fua, 0);
	set_number(&best->p.reset_percent, 0);
	set_number(&best->p.fail_alloc, 0);
	set_number(&best->p.alloc_faults, 0);
	set_number(&best->p.nowait, 0);
	set_number(&best->p.busy, 0);
	set_number(&best->p.collisions, 0);
	set_number(&best->p.demand_fill, 0);
	set_number(&best->p.syncs, 0);
	set_number(&best->p.intent_blocks, 0);
	set_number(&best->p.journal_blocks, HYBRID_JOURNAL_MIN_BLOCKS);
	set_number(&best->p.fault_kind, 0);
	set_number(&best->p.admin_percent, 0);
	set_number(&best->p.load_percent, 0);
	set_number(&best->p.inplace_percent, 0);
	set_number(&best->p.cut_every, 0);
	set_number(&best->p.cut_writes, 10);
	set_number(&best->p.cut_samples, 4);
	set_number(&best->p.config.high_watermark, 70);
	set_number(&best->p.config.low_watermark, 10);
	set_number(&best->p.config.commit_interval, 1000);
	set_number(&best->p.config.endurance, 0);
	set_number(&best->p.config.metadata_share, 25);
	set_number(&best->p.config.trim_rate, 0);
	set_number(&best->p.config.read_error_limit, 0);
	set_number(&best->p.config.write_error_limit, 0);
	set_number(&best->p.trims, 0);
	for (i = best->p.volumes; i > 1 && set_number(&best->p.volumes, i - 1); i--)
		;
	for (i = 0; i < best->p.volumes; i++) {
		set_number(&best->volume[i].cutoff, 0);
		set_number(&best->volume[i].discard, 0);
	}
	set_number(&best->p.block_sectors, 8);
	for (i = 0; i < ARRAY_SIZE(small) && !set_number(&best->p.cache_blocks, small[i]); i++)
		;
	for (i = 0; i < ARRAY_SIZE(small) && !set_number(&best->p.hot_blocks, small[i]); i++)
		;
}

static bool has_sector(const struct line *l)
{
	return (l->kind >= EV_READ && l->kind <= EV_ZEROES && l->kind != EV_FLUSH) ||
	       l->kind == EV_META || l->kind == EV_AHEAD ||
	       l->kind == EV_EVICT;
}

/* Makes blocks of 8 sectors, numbered in the order of their appearance. */
static void renumber(void)
{
	struct script *c = copy(best);
	u32 bs = best->p.block_sectors, n = 0, i, k;

	c->p.block_sectors = 8;
	for (i = 0; i < c->nr; i++) {
		const struct line *l = &best->line[i];

		if (!has_sector(l))
			continue;
		for (k = 0; k < i; k++)
			if (has_sector(&best->line[k]) &&
			    best->line[k].sector / bs == l->sector / bs)
				break;
		c->line[i].sector = k < i ? c->line[k].sector / 8 * 8 : 8 * n++;
		if (l->count < bs)
			c->line[i].sector += min(l->sector % bs, 7ULL);
		c->line[i].count = min(l->count, 8 - (u32)c->line[i].sector % 8);
	}
	c->p.hot_blocks = max(n, 1U);
	accept(c);
}

/* Makes the pool write back at once. */
static void low_watermarks(void)
{
	struct script *c = copy(best);

	c->p.config.high_watermark = 1;
	c->p.config.low_watermark = 0;
	if (best->nr < 12)
		script_free(c);
	else
		accept(c);
}

static bool replace_line(u32 i, u32 kind, u64 sector, u32 count)
{
	struct line *l = &best->line[i];
	struct script *c;

	if (l->kind == kind && l->sector == sector && l->count == count)
		return true;
	c = copy(best);
	c->line[i].kind = kind;
	c->line[i].sector = sector;
	c->line[i].count = count;
	return accept(c);
}

static void simpler_lines(void)
{
	u32 i, k, bs = best->p.block_sectors;

	for (i = 0; i < best->nr; i++) {
		const struct line *l = &best->line[i];

		switch (l->kind) {
		case EV_READ ... EV_FUA:
		case EV_META ... EV_AHEAD:
		case EV_DISCARD:
		case EV_ZEROES:
		case EV_EVICT:
			for (k = 0; k < 3; k++)
				if (replace_line(i, l->kind, k * bs, l->kind == EV_EVICT ? 0 : bs))
					break;
			break;
		case LINE_CUT:
			for (k = CUT_NONE; k <= CUT_COMPLETED && !l->count; k++)
				replace_line(i, LINE_CUT, 0, k + 1);
			break;
		case EV_TICK:
			replace_line(i, EV_TICK, 0, 1000);
			break;
		case LINE_COMPLETE ... LINE_TELL:
			replace_line(i, l->kind, 0, 0);
		}
	}
}

void script_shrink(struct script *s)
{
	u32 before;

	setup();
	best = copy(s);
	if (!*wanted)
		snprintf(wanted, sizeof(wanted), "%s", run(best, 0, 0));
	tries = 0;
	if (strcmp(run(best, 0, 0), wanted)) {
		fprintf(stderr, "played back it breaks \"%s\", not \"%s\"\n", told->rule, wanted);
		return;
	}
	explore_late();
	order_end();
	leave_out();
	do {
		before = best->nr;
		drop_states();
		order_each();
		renumber();
		simpler_pool();
		simpler_lines();
		leave_out();
		low_watermarks();
	} while (best->nr < before);
	fprintf(stderr, "\n");
	printf("# %s\n", wanted);
	script_print(best, stdout);
	script_free(best);
	*wanted = 0;
}
