// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * complete: lists possible last words of a command line, for shells.  The words that commands.def
 * uses for arguments name their kind: kinds[] below has each of them.
 */
#include <stdio.h>
#include <string.h>

#include "common.h"
#include "errors.h"
#include "list.h"
#include "policy-registry.h"
#include "ranges.h"
#include "settings.h"

struct completion {
	const struct command *cmd;	/* NULL: the command itself is to be completed */
	const char *first;		/* the command's first argument, or NULL */
	const char *word;		/* to be completed, as typed so far */
	size_t kept;			/* bytes of it that stay: "mode=", "name,size," */
};

static void offer(const struct completion *c, const char *text, const char *end,
		  const char *description)
{
	if (strncmp(text, c->word + c->kept, strlen(c->word + c->kept)))
		return;
	printf("%.*s%s%s", (int)c->kept, c->word, text, end);
	printf(description && description[0] ? "\t%s\n" : "\n", description);
}

static void offer_words(const struct completion *c, const char * const *words)
{
	for (; *words; words++)
		offer(c, *words, "", NULL);
}

/* Kinds ------------------------------------------------------------------------ */

/* Offers active and announced pools and volumes: reads no disk. */
static void offer_nodes(const struct completion *c, unsigned int kinds)
{
	struct hybrid_inventory inv;
	unsigned int i;

	if (!hybrid_inventory_load(&inv, HYBRID_LOAD_ALL, NULL, 0))
		for (i = 0; i < inv.nr_nodes; i++)
			if (kinds & (1U << inv.nodes[i].kind))
				offer(c, inv.nodes[i].name, "",
				      inv.nodes[i].kind == HYBRID_POOL ? "pool" : "volume");
	hybrid_inventory_free(&inv);
}

static void offer_volumes(const struct completion *c)
{
	offer_nodes(c, 1U << HYBRID_VOLUME);
}

static void offer_pools(const struct completion *c)
{
	offer_nodes(c, 1U << HYBRID_POOL);
}

static void offer_files(const struct completion *c)
{
	(void)c;
	puts(":files");
}

static void offer_commands(const struct completion *c)
{
	const struct command *cmd;

	for (cmd = commands; cmd < commands + NR_COMMANDS; cmd++)
		offer(c, cmd->name, "", cmd->summary);
}

static void offer_modes(const struct completion *c)
{
	static const char * const modes[] = {
		"writethrough", "writeback", "writearound", "passthrough", NULL
	};

	offer_words(c, modes);
}

static void offer_units(const struct completion *c)
{
	static const char * const units[] = { "h", "b", "s", "k", "m", "g", "t", NULL };

	offer_words(c, units);
}

static void offer_formats(const struct completion *c)
{
	static const char * const formats[] = { "text", "blkparse", "fio", NULL };

	offer_words(c, formats);
}

static void offer_policies(const struct completion *c)
{
	const struct hybrid_policy_type *type = NULL;

	while ((type = hybrid_policy_next(type)))
		offer(c, type->name, "", NULL);
}

static void keep_up_to(struct completion *c, const char *separators)
{
	size_t i;

	for (i = strlen(c->word); i > c->kept; i--)
		if (strchr(separators, c->word[i - 1]))
			break;
	c->kept = i;
}

static const struct hybrid_fields *fields_of(const char *command)
{
	static const struct {
		const char *command;
		const struct hybrid_fields *fields;
	} reports[] = {
		{ "list", &list_report },
		{ "scan", &scan_report },
		{ "get", &get_report },
		{ "lost", &hybrid_ranges_report },
	};
	size_t i;

	for (i = 0; i < sizeof(reports) / sizeof(reports[0]); i++)
		if (!strcmp(reports[i].command, command))
			return reports[i].fields;
	return NULL;
}

/* "a,b", or "+a,b" to be added to the default. */
static void offer_fields(const struct completion *c)
{
	const struct hybrid_fields *fields = fields_of(c->cmd->name);
	struct completion last = *c;
	unsigned int i;

	if (last.word[last.kept] == '+')
		last.kept++;
	keep_up_to(&last, ",");
	for (i = 0; fields && i < fields->nr; i++)
		offer(&last, fields->list[i].id, "", fields->list[i].description);
}

static void offer_volume_list(const struct completion *c)
{
	struct completion last = *c;

	keep_up_to(&last, ",");
	offer_volumes(&last);
}

/* Kinds that the first argument names, as bits; 0: it names nothing. */
static unsigned int kind_of_first(const struct completion *c)
{
	const struct hybrid_node *node = NULL;
	struct hybrid_inventory inv;
	unsigned int kind = 0;

	if (!hybrid_inventory_load(&inv, HYBRID_LOAD_ACTIVE, NULL, 0) && c->first)
		node = hybrid_find(&inv, c->first, HYBRID_ANY);
	if (node)
		kind = 1U << node->kind;
	hybrid_inventory_free(&inv);
	return kind;
}

static void offer_keys(const struct completion *c)
{
	unsigned int kind = kind_of_first(c);

#define X(name) offer(c, #name, "", NULL);
	if (kind == 1U << HYBRID_POOL) {
		HYBRID_POOL_STATUS_WORDS(X)
		HYBRID_POOL_STATUS_NUMBERS(X)
	} else if (kind) {
		HYBRID_VOLUME_STATUS_WORDS(X)
		HYBRID_VOLUME_STATUS_NUMBERS(X)
	}
#undef X
}

static void offer_values(const struct completion *c)
{
	struct completion value = *c;

	value.kept = (size_t)(strchr(c->word, '=') + 1 - c->word);
	if (!strncmp(c->word, "mode=", 5))
		offer_modes(&value);
	else if (!strncmp(c->word, "policy=", 7))
		offer_policies(&value);
}

static void offer_assignments(const struct completion *c)
{
	unsigned int kind;

	if (strchr(c->word, '=')) {
		offer_values(c);
		return;
	}
	kind = kind_of_first(c);
	if (kind & (1U << HYBRID_VOLUME)) {
		offer(c, "mode", "=", NULL);
		offer(c, "cutoff", "=", NULL);
	}
#define X(name, unit, lowest, highest) offer(c, #name, "=", unit);
	if (kind & (1U << HYBRID_POOL)) {
		HYBRID_POOL_TUNABLES(X)
		offer(c, "policy", "=", NULL);
	}
#undef X
}

static void offer_nothing(const struct completion *c)
{
	(void)c;
}

static const struct {
	const char *word;
	void (*offer)(const struct completion *c);
} kinds[] = {
	{ "NAME", offer_volumes },
	{ "POOL", offer_pools },
	{ "NAMES", offer_volume_list },
	{ "DEVICE", offer_files },
	{ "CACHE", offer_files },
	{ "ORIGIN", offer_files },
	{ "FILE", offer_files },
	{ "TRACE", offer_files },
	{ "DIRECTORY", offer_files },
	{ "COMMAND", offer_commands },
	{ "MODE", offer_modes },
	{ "POLICY", offer_policies },
	{ "FIELDS", offer_fields },
	{ "CONDITION", offer_fields },
	{ "KEY", offer_keys },
	{ "KEY=VALUE", offer_assignments },
	{ "UNIT", offer_units },
	{ "FORMAT", offer_formats },
	{ "NEWNAME", offer_nothing },
	{ "WORD", offer_nothing },
	{ "SIZE", offer_nothing },
	{ "SIZES", offer_nothing },
	{ "SECONDS", offer_nothing },
	{ "NUMBER", offer_nothing },
	{ "RATING", offer_nothing },
};

/* @words: "NAME|POOL", of @len bytes. */
static void offer_kinds(const struct completion *c, const char *words, size_t len)
{
	size_t n, i;

	for (; len; words += n, len -= n) {
		n = strspn(words, "|");
		if (n)
			continue;
		n = strcspn(words, "|");
		n = n < len ? n : len;
		for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
			if (!strncmp(kinds[i].word, words, n) && !kinds[i].word[n])
				kinds[i].offer(c);
	}
}

/* Arguments and options --------------------------------------------------------- */

/* Offers the n-th argument of "POOL NAME [--origin DEVICE]"; the last one may be repeated ("NAME..."). */
static void offer_argument(const struct completion *c, int n)
{
	const char *p = c->cmd->args, *last = NULL;
	size_t len, last_len = 0;
	bool skip = false;

	for (; *p; p += len) {
		len = strspn(p, " []{}.");
		if (len)
			continue;
		len = strcspn(p, " []{}.");
		if (!strncmp(p, "--", 2)) {
			skip = true;	/* and its argument */
		} else if (skip) {
			skip = false;
		} else if (strncmp(p, "|", len)) {
			last = p;
			last_len = len;
			if (!n--)
				break;
		}
	}
	if (last && (n < 0 || strstr(last, "...")))
		offer_kinds(c, last, last_len);
}

static bool has_option(const struct completion *c, int id)
{
	/* help takes only the options of every command */
	const struct command *cmd = c->cmd ? c->cmd : find_command("help");

	return cmd->options & (1ULL << id);
}

static void offer_options(const struct completion *c)
{
	char name[64];
	int id;

	for (id = 0; id < NR_OPTIONS; id++) {
		snprintf(name, sizeof(name), "--%s", option_table[id].name);
		if (has_option(c, id))
			offer(c, name, "", option_table[id].help);
	}
}

/* Returns the option that @word is, "--mode" or "-o", if it takes an argument; else -1. */
static int option_with_argument(const struct completion *c, const char *word, size_t len)
{
	int id;

	for (id = 0; id < NR_OPTIONS; id++) {
		if (!has_option(c, id) || !option_table[id].arg)
			continue;
		if (len == 2 && word[0] == '-' && word[1] == option_table[id].letter)
			return id;
		if (len > 2 && !strncmp(word, "--", 2) && strlen(option_table[id].name) == len - 2 &&
		    !strncmp(word + 2, option_table[id].name, len - 2))
			return id;
	}
	return -1;
}

static void offer_for_option(const struct completion *c, int id)
{
	offer_kinds(c, option_table[id].arg, strlen(option_table[id].arg));
}

/* "--mode=writeb" */
static void offer_joined(struct completion *c, const char *equals)
{
	int id = option_with_argument(c, c->word, (size_t)(equals - c->word));

	c->kept = (size_t)(equals + 1 - c->word);
	if (id >= 0)
		offer_for_option(c, id);
}

static void offer_next(struct completion *c, int nr_args, int option)
{
	const char *equals = strchr(c->word, '=');

	if (option >= 0)
		offer_for_option(c, option);
	else if (c->word[0] == '-' && equals)
		offer_joined(c, equals);
	else if (c->word[0] == '-')
		offer_options(c);
	else if (c->cmd)
		offer_argument(c, nr_args);
	else
		offer_commands(c);
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

int command_complete(const struct command_line *cl)
{
	struct completion c = { .cmd = find_tool(base_name(cl->argv[0])) };
	int i, nr_args = 0, option = -1;

	/* Messages would appear in the middle of the line that the user types */
	hybrid_output.silent = true;
	c.word = cl->argc > 1 ? cl->argv[cl->argc - 1] : "";
	for (i = 1; i < cl->argc - 1; i++) {
		if (option >= 0)
			option = -1;
		else if (cl->argv[i][0] == '-')
			option = option_with_argument(&c, cl->argv[i], strlen(cl->argv[i]));
		else if (c.cmd && !nr_args++)
			c.first = cl->argv[i];
		else if (!c.cmd && !(c.cmd = find_command(cl->argv[i])))
			return 0;
	}
	offer_next(&c, nr_args, option);
	return 0;
}
