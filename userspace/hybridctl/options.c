// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "apart.h"
#include "errors.h"
#include "format.h"
#include "options.h"
#include "tables.h"
#include "units.h"

#define O(id)	(1ULL << OPT_##id)
#define O_EVERYWHERE \
	(O(HELP) | O(VERSION) | O(TEST) | O(YES) | O(QUIET) | O(VERBOSE))
#define LONG_ONLY	256	/* getopt values of options without a letter */

_Static_assert(NR_OPTIONS <= 64, "options are bits of a 64-bit mask");

const struct option_info option_table[NR_OPTIONS] = {
#define OPTION(id, long_name, short_name, argument, text) \
	[OPT_##id] = { .name = long_name, .letter = short_name, .arg = argument, .help = text },
#include "commands.def"
};

const struct command commands[NR_COMMANDS] = {
#define COMMAND(id, verb, words, fewest, highest, mask, line, text) \
	[COMMAND_##id] = { .name = verb, .args = words, .least = fewest, .most = highest, \
	  .options = (mask) | O_EVERYWHERE, .summary = line, .description = text },
#include "commands.def"
};

static const struct {
	const char *program, *command;
} tools[] = {
#define TOOL(name, verb) { name, verb },
#include "commands.def"
};

#define NR_TOOLS	(sizeof(tools) / sizeof(tools[0]))

const struct command *find_tool(const char *name)
{
	size_t i;

	for (i = 0; i < NR_TOOLS; i++)
		if (!strcmp(tools[i].program, name))
			return find_command(tools[i].command);
	return NULL;
}

bool is_tool(const struct command *cmd)
{
	size_t i;

	for (i = 0; i < NR_TOOLS; i++)
		if (!strcmp(tools[i].command, cmd->name))
			return true;
	return false;
}

const struct command *find_command(const char *name)
{
	const struct command *cmd;

	for (cmd = commands; cmd < commands + NR_COMMANDS; cmd++)
		if (!strcmp(cmd->name, name))
			return cmd;
	return NULL;
}

const char *called_name(const struct command *cmd, char buf[64])
{
	const char *program = hybrid_output.program;

	snprintf(buf, 64, cmd && !find_tool(program) ? "%s %s" : "%s", program,
		 cmd ? cmd->name : "");
	return buf;
}

/* Fills getopt's two descriptions of all options; ":" at the front has getopt print nothing. */
static void describe_options(struct option longs[NR_OPTIONS + 1],
			     char shorts[3 * NR_OPTIONS + 3], bool stop_early)
{
	const struct option_info *o;
	char *s = shorts;
	int i;

	if (stop_early)
		*s++ = '+';
	*s++ = ':';
	for (i = 0; i < NR_OPTIONS; i++) {
		o = &option_table[i];
		longs[i] = (struct option) {
			.name = o->name,
			.has_arg = o->arg ? required_argument : no_argument,
			.val = LONG_ONLY + i,
		};
		if (!o->letter)
			continue;
		*s++ = o->letter;
		if (o->arg)
			*s++ = ':';
	}
	*s = '\0';
	longs[NR_OPTIONS] = (struct option) {};
}

/* One letter may stand for different options of different commands. */
static int option_of(int c, uint64_t allowed)
{
	int i, found = -1;

	if (c >= LONG_ONLY)
		return c - LONG_ONLY;
	for (i = NR_OPTIONS - 1; i >= 0; i--)
		if (option_table[i].letter == c &&
		    (found < 0 || !(allowed & (1ULL << found)) || allowed & (1ULL << i)))
			found = i;
	return found;
}

static void fail_option(const struct command *cmd, const char *what, char **argv)
{
	char next[80], name[64], letter[3] = { '-', optopt, '\0' };
	bool known = optopt && optopt < LONG_ONLY;

	snprintf(next, sizeof(next), "see %s --help", called_name(cmd, name));
	hybrid_fail(HYBRID_USAGE, next, "%s: %s", what, known ? letter : argv[optind - 1]);
}

/* 0, or an exit code */
static int parse_seconds(const char *option, const char *text, uint64_t *seconds)
{
	if (!hybrid_parse_u64(text, seconds) && *seconds && *seconds <= 86400)
		return 0;
	return hybrid_fail(HYBRID_USAGE, "give seconds, from 1 to 86400",
			   "--%s: %s is not valid", option, text);
}

static int set_patience(const char *text)
{
	uint64_t seconds;
	int r = parse_seconds("timeout", text, &seconds);

	if (!r)
		hybrid_patience = seconds;
	return r;
}

static int parse_rate(const char *text, uint64_t *kib)
{
	uint64_t bytes;

	if (!hybrid_parse_size(text, &bytes)) {
		*kib = bytes / 1024;
		if (*kib && *kib <= UINT32_MAX && !(bytes % 1024))
			return 0;
	}
	return hybrid_fail(HYBRID_USAGE, "give a size such as 512k or 20m, from 1k to 4095g",
			   "--rate: %s is not valid", text);
}

static int take_option(struct command_line *cl, const struct command *cmd, int id)
{
	cl->given[id] = true;
	if (option_table[id].arg)
		cl->value[id] = optarg;
	if (id == OPT_VERBOSE)
		hybrid_output.verbose++;
	if (id == OPT_QUIET) {
		hybrid_output.quiet = true;
		hybrid_output.silent = cmd && is_tool(cmd);
	}
	if (id == OPT_TIMEOUT && set_patience(optarg))
		return -1;
	if (id == OPT_WAIT && parse_seconds("wait", optarg, &cl->wait))
		return -1;
	if (id == OPT_RATE && parse_rate(optarg, &cl->rate))
		return -1;
	if (id == OPT_CACHE) {
		if (cl->nr_caches == 2)
			return hybrid_fail(HYBRID_USAGE, "give one, or two for a mirror",
					   "more than two --cache"), -1;
		cl->caches[cl->nr_caches++] = optarg;
		cl->value[OPT_CACHE] = cl->caches[0];
	}
	if (id == OPT_DEVICE) {
		cl->devices = realloc(cl->devices,
				      (cl->nr_devices + 1) * sizeof(*cl->devices));
		if (!cl->devices) {
			hybrid_nomem();
			return -1;
		}
		cl->devices[cl->nr_devices++] = optarg;
	}
	return 0;
}

int parse_options(struct command_line *cl, const struct command *cmd, int argc, char **argv)
{
	struct option longs[NR_OPTIONS + 1];
	char shorts[3 * NR_OPTIONS + 3];
	uint64_t allowed = cmd ? cmd->options : O_EVERYWHERE;
	int c, id;

	/* --quiet may have been given before the command */
	hybrid_output.silent = hybrid_output.quiet && cmd && is_tool(cmd);
	describe_options(longs, shorts, !cmd);
	opterr = 0;
	optind = 0;
	while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		if (c == '?' || c == ':') {
			fail_option(cmd, c == ':' ? "option needs an argument" :
				    "unknown option", argv);
			return -1;
		}
		id = option_of(c, allowed);
		if (!(allowed & (1ULL << id))) {
			hybrid_fail(HYBRID_USAGE, cmd ? "see its --help" :
				    "put it after the command; see hybridctl --help",
				    "--%s is not an option of %s", option_table[id].name,
				    cmd ? cmd->name : "hybridctl itself");
			return -1;
		}
		if (take_option(cl, cmd, id))
			return -1;
	}
	return optind;
}

int parse_sectors(const char *what, const char *text, uint64_t *sectors)
{
	uint64_t bytes;
	int r = hybrid_parse_size(text, &bytes);

	if (r || bytes % 512)
		return hybrid_fail(HYBRID_USAGE, "give a size such as 64k, 4m or 1g",
				   "%s: %s is not a size%s", what, text,
				   r == -ERANGE ? ": it is too large" :
				   r ? "" : ": it is not a multiple of 512 bytes");
	*sectors = bytes / 512;
	return 0;
}

int parse_pool_sizes(const struct command_line *cl, uint32_t *block_sectors,
		     uint32_t *journal_blocks)
{
	uint64_t block = DEFAULT_BLOCK_SECTORS, journal = 0;
	int r = 0;

	if (cl->value[OPT_BLOCK_SIZE])
		r = parse_sectors("--block-size", cl->value[OPT_BLOCK_SIZE], &block);
	if (!r && cl->value[OPT_JOURNAL_SIZE])
		r = parse_sectors("--journal-size", cl->value[OPT_JOURNAL_SIZE], &journal);
	if (r)
		return r;
	if (block < HYBRID_MIN_BLOCK_SECTORS || block > HYBRID_MAX_BLOCK_SECTORS ||
	    block & (block - 1))
		return hybrid_fail(HYBRID_USAGE, "use a power of two from 4k to 1m",
				   "--block-size %s is not valid", cl->value[OPT_BLOCK_SIZE]);
	journal /= HYBRID_META_BLOCK_SECTORS;
	if (cl->value[OPT_JOURNAL_SIZE] &&
	    (journal < HYBRID_JOURNAL_MIN_BLOCKS || journal > UINT32_MAX))
		return hybrid_fail(HYBRID_USAGE, "use 512k or more",
				   "--journal-size %s is not valid",
				   cl->value[OPT_JOURNAL_SIZE]);
	*block_sectors = block;
	*journal_blocks = journal;
	return 0;
}

int parse_volume_options(const struct command_line *cl, uint32_t *mode, uint64_t *cutoff)
{
	const char *text = cl->value[OPT_MODE];
	int parsed = text ? hybrid_mode_parse(text) : HYBRID_MODE_WRITETHROUGH;

	if (parsed < 0)
		return hybrid_fail(HYBRID_USAGE,
				   "use writethrough, writeback, writearound or passthrough",
				   "no such mode: %s", text);
	*mode = parsed;
	*cutoff = DEFAULT_CUTOFF_SECTORS;
	return !cl->value[OPT_CUTOFF] ? 0 :
	       parse_sectors("--cutoff", cl->value[OPT_CUTOFF], cutoff);
}

int report_options(const struct command_line *cl, struct hybrid_report_options *opts)
{
	const char *unit = cl->value[OPT_UNITS];

	*opts = (struct hybrid_report_options) {
		.fields = cl->value[OPT_FIELDS],
		.sort = cl->value[OPT_SORT],
		.select = cl->value[OPT_SELECT],
		.unit = unit ? unit[0] : 'h',
		.noheadings = cl->given[OPT_NOHEADINGS],
		.json = cl->given[OPT_JSON],
		.export = cl->given[OPT_EXPORT],
	};
	if (unit && !hybrid_unit_valid(unit))
		return hybrid_fail(HYBRID_USAGE, "use one of h, b, s, k, m, g, t",
				   "no such unit: %s", unit);
	if (opts->json && opts->export)
		return hybrid_fail(HYBRID_USAGE, "give one of them",
				   "--json and --export exclude each other");
	return 0;
}

/* Help --------------------------------------------------------------------- */

static void print_option(const struct option_info *o)
{
	char left[48];

	snprintf(left, sizeof(left), "%c%c%s --%s%s%s", o->letter ? '-' : ' ',
		 o->letter ? o->letter : ' ', o->letter ? "," : " ", o->name,
		 o->arg ? " " : "", o->arg ? o->arg : "");
	printf("  %-26s %s\n", left, o->help);
}

static void print_options(uint64_t mask)
{
	int i;

	for (i = 0; i < NR_OPTIONS; i++)
		if (mask & (1ULL << i))
			print_option(&option_table[i]);
}

void print_usage(void)
{
	const struct command *cmd;

	printf("Usage: hybridctl [OPTION...] COMMAND [ARGUMENT...]\n\n"
	       "Caches slow block devices on a fast one.\n\nCommands:\n");
	for (cmd = commands; cmd < commands + NR_COMMANDS; cmd++)
		printf("  %-13s %s\n", cmd->name, cmd->summary);
	printf("\nOptions of every command:\n");
	print_options(O_EVERYWHERE);
	printf("\nSee hybridctl COMMAND --help, hybridctl(8), dm-hybrid(7).\n");
}

void print_command_help(const struct command *cmd)
{
	char name[64];

	printf("Usage: %s %s [OPTION...]\n\n%s\n\nOptions:\n", called_name(cmd, name), cmd->args,
	       cmd->description);
	print_options(cmd->options & ~O_EVERYWHERE);
	print_options(O_EVERYWHERE);
}
