// SPDX-License-Identifier: GPL-2.0-or-later
/* hybridctl replay: how a cache would have served a trace. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"
#include "options.h"
#include "output.h"
#include "units.h"

#define MAX_WORDS	32
#define MAX_CACHES	1024
#define SAMPLE_WINDOWS	4096
#define CURVE_STEP	M_SQRT2
#define CURVE_LOW	-16		/* steps from the touched data: 1/256 of it */
#define MIN_BLOCKS	16
#define DWPD		0.3

/* Words of a list, and the text that they were cut from. */
struct words {
	char *text;
	char *word[MAX_WORDS];
	u32 nr;
};

struct job {
	struct run run;
	struct endurance endurance;
	struct words policies, sizes, blocks;
};

/* ---- options --------------------------------------------------------------- */

static int get_words(struct words *w, const char *option, const char *text)
{
	char *at;

	w->text = strdup(text);
	if (!w->text)
		return hybrid_nomem();
	for (at = strtok(w->text, ","); at; at = strtok(NULL, ",")) {
		if (w->nr == MAX_WORDS)
			return hybrid_fail(HYBRID_USAGE, NULL, "--%s: more than %d", option,
					   MAX_WORDS);
		w->word[w->nr++] = at;
	}
	if (w->nr)
		return 0;
	return hybrid_fail(HYBRID_USAGE, "give one or more, separated by commas",
			   "--%s: no value is given", option);
}

/* A number without sign, exponent or other words, and where it ends; negative: none. */
static double get_decimal(const char *text, char **end)
{
	size_t n = strspn(text, "0123456789.");
	double value = strtod(text, end);

	return isdigit((unsigned char)*text) && n < 16 && *end == text + n ? value : -1;
}

static int get_size(const struct survey *s, const char *text, uint64_t *bytes)
{
	double percent;
	char *end;

	percent = get_decimal(text, &end);
	if (percent > 0 && percent <= 10000 && !strcmp(end, "%"))
		*bytes = fmax(1, percent / 100 * s->footprint);
	else if (hybrid_parse_size(text, bytes) || !*bytes)
		return hybrid_fail(HYBRID_USAGE, "give sizes such as 512m or 8g, or percent such as 10%",
				   "--size: %s is not a size", text);
	return 0;
}

static int get_block(const char *text, u32 *sectors)
{
	uint64_t value;
	int e;

	e = parse_sectors("--block-size", text, &value);
	if (e)
		return e;
	if (value < HYBRID_MIN_BLOCK_SECTORS || value > HYBRID_MAX_BLOCK_SECTORS ||
	    value & (value - 1))
		return hybrid_fail(HYBRID_USAGE, "use powers of two from 4k to 1m",
				   "--block-size %s is not valid", text);
	*sectors = value;
	return 0;
}

static int get_policy(const char *name, const struct hybrid_policy_type **policy)
{
	*policy = hybrid_policy_get(name);
	if (*policy)
		return 0;
	return hybrid_fail(HYBRID_USAGE, "see dm-hybrid(7) for the policies",
			   "no such policy: %s", name);
}

static int get_endurance(struct endurance *e, const char *text)
{
	char *end;

	*e = (struct endurance) { .daily = DWPD };
	if (!text)
		return 0;
	e->daily = get_decimal(text, &end);
	if (e->daily > 0 && !strcmp(end, "dwpd"))
		return 0;
	if (!hybrid_parse_size(text, &e->bytes) && e->bytes)
		return 0;
	return hybrid_fail(HYBRID_USAGE, "give the total bytes written, such as 600t, or drive writes a day, such as 0.3dwpd",
			   "--endurance: %s is neither", text);
}

static int get_sample(const struct command_line *cl, u32 *windows)
{
	const char *text = cl->value[OPT_SAMPLE];
	uint64_t value = SAMPLE_WINDOWS;

	*windows = 0;
	if (text && !cl->given[OPT_CURVE])
		return hybrid_fail(HYBRID_USAGE, "without --curve, everything is simulated",
				   "--sample needs --curve");
	if (!cl->given[OPT_CURVE] || (text && !strcmp(text, "all")))
		return 0;
	if (text && (hybrid_parse_u64(text, &value) || value < 64 || value > 1U << 30))
		return hybrid_fail(HYBRID_USAGE, "give a number of windows, from 64, or all",
				   "--sample: %s is neither", text);
	*windows = value;
	return 0;
}

static int get_lists(struct job *job, const struct command_line *cl)
{
	const char *sizes = cl->value[OPT_SIZE], *blocks = cl->value[OPT_BLOCK_SIZE];
	const char *policies = cl->value[OPT_POLICY];
	bool curve = cl->given[OPT_CURVE];
	int e;

	if (curve && sizes)
		return hybrid_fail(HYBRID_USAGE, "give one of them",
				   "--curve and --size exclude each other");
	e = get_words(&job->sizes, "size", sizes ? sizes : "1%,10%,25%");
	if (!e)
		e = get_words(&job->blocks, "block-size",
			      blocks ? blocks : curve ? "4k,16k,32k,64k,256k" : "32k");
	return e ? e : get_words(&job->policies, "policy", policies ? policies : DEFAULT_POLICY);
}

/* ---- caches ---------------------------------------------------------------- */

static int add_cache(struct run *run, const struct hybrid_policy_type *policy, u32 block, u64 bytes)
{
	if (run->nr_caches == MAX_CACHES)
		return hybrid_fail(HYBRID_USAGE, "give fewer of them",
				   "more than %d caches at a time", MAX_CACHES);
	run->cache[run->nr_caches++] = (struct cache) {
		.policy = policy, .block_sectors = block, .bytes = bytes,
	};
	return 0;
}

/*
 * From 1/256 of the touched data to twice the room that all touched blocks need.  Sizes of too few
 * blocks for a curve are left out.
 */
static int add_curve(struct run *run, const struct hybrid_policy_type *policy, u32 block)
{
	const struct survey *s = &run->survey;
	double most = 2 * 512.0 * block * s->blocks[block_class(block)];
	double least = MIN_BLOCKS * 512.0 * block, bytes = 0;
	int e = 0, step;

	if (run->max_windows && s->windows > run->max_windows)
		least *= (double)s->windows / run->max_windows;
	for (step = CURVE_LOW; !e && bytes < most; step++) {
		bytes = fmax(1, s->footprint * pow(CURVE_STEP, step));
		if (bytes >= least || bytes >= most)
			e = add_cache(run, policy, block, bytes);
	}
	return e;
}

static int add_sizes(struct job *job, const struct hybrid_policy_type *policy, u32 block)
{
	uint64_t bytes;
	u32 i;
	int e = 0;

	for (i = 0; !e && i < job->sizes.nr; i++) {
		e = get_size(&job->run.survey, job->sizes.word[i], &bytes);
		if (!e)
			e = add_cache(&job->run, policy, block, bytes);
	}
	return e;
}

static int add_caches(struct job *job, bool curve)
{
	const struct hybrid_policy_type *policy;
	u32 i, k, block = 0;
	int e = 0;

	job->run.cache = calloc(MAX_CACHES, sizeof(*job->run.cache));
	if (!job->run.cache)
		return hybrid_nomem();
	for (i = 0; !e && i < job->policies.nr; i++) {
		e = get_policy(job->policies.word[i], &policy);
		for (k = 0; !e && k < job->blocks.nr; k++) {
			e = get_block(job->blocks.word[k], &block);
			if (!e)
				e = curve ? add_curve(&job->run, policy, block) :
					    add_sizes(job, policy, block);
		}
	}
	return e;
}

/* ---- the command ----------------------------------------------------------- */

static int get_options(struct job *job, const struct command_line *cl, enum trace_format *format)
{
	const char *name = cl->value[OPT_FORMAT];
	int e;

	*format = name ? trace_format_parse(name) : TRACE_AUTO;
	if (name && *format == TRACE_AUTO)
		return hybrid_fail(HYBRID_USAGE, "use text, blkparse or fio",
				   "no such format: %s", name);
	e = parse_volume_options(cl, &job->run.mode, &job->run.cutoff);
	if (!e)
		e = get_endurance(&job->endurance, cl->value[OPT_ENDURANCE]);
	if (!e)
		e = get_sample(cl, &job->run.max_windows);
	return e ? e : get_lists(job, cl);
}

static int present(const struct job *job, const struct command_line *cl)
{
	bool curve = cl->given[OPT_CURVE];

	if (cl->given[OPT_JSON]) {
		json_output(&job->run, &job->endurance, curve);
	} else if (!cl->given[OPT_QUIET]) {
		table_print(&job->run, &job->endurance);
		if (curve)
			advice_print(&job->run, &job->endurance);
	}
	return cl->value[OPT_SVG] ? svg_write(&job->run, cl->argv[0], cl->value[OPT_SVG]) : 0;
}

int command_replay(const struct command_line *cl)
{
	struct job job = { .run = { .nr_caches = 0 } };
	enum trace_format format;
	int e;

	e = get_options(&job, cl, &format);
	if (!e)
		e = trace_open(&job.run.trace, cl->argv[0], format);
	if (!e)
		e = run_survey(&job.run);
	if (!e)
		e = add_caches(&job, cl->given[OPT_CURVE]);
	if (!e)
		e = run_caches(&job.run);
	if (!e)
		e = present(&job, cl);
	trace_close(job.run.trace);
	run_free(&job.run);
	free(job.policies.text);
	free(job.sizes.text);
	free(job.blocks.text);
	return e;
}
