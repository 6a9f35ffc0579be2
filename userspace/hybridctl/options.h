/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The command line, as commands.def declares it. */
#ifndef HYBRIDCTL_OPTIONS_H
#define HYBRIDCTL_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "report.h"

#define DEFAULT_BLOCK_SECTORS	64
#define DEFAULT_CUTOFF_SECTORS	8192
#define DEFAULT_POLICY		"c2q"

enum hybrid_option {
#define OPTION(id, name, letter, arg, help) OPT_##id,
#include "commands.def"
	NR_OPTIONS
};

/* The options and arguments that main() passes to a command. */
struct command_line {
	const char *value[NR_OPTIONS];	/* of options with an argument; else NULL */
	bool given[NR_OPTIONS];
	char **devices;			/* the argument of each --device */
	unsigned int nr_devices;
	const char *caches[2];		/* the argument of each --cache */
	unsigned int nr_caches;
	uint64_t wait;			/* --wait: seconds, or 0 */
	uint64_t rate;			/* --rate: KiB a second, or 0 */
	int argc;			/* positional arguments */
	char **argv;
};

enum command_id {
#define COMMAND(id, name, args, least, most, options, summary, description) COMMAND_##id,
#include "commands.def"
	NR_COMMANDS
};

struct command {
	const char *name, *args;
	int least, most;
	uint64_t options;
	const char *summary, *description;
};

struct option_info {
	const char *name;
	int letter;
	const char *arg, *help;
};

extern const struct option_info option_table[NR_OPTIONS];
extern const struct command commands[NR_COMMANDS];

/* The command of that name, or NULL. */
const struct command *find_command(const char *name);

/* Returns the command that the program @name runs, or NULL; whether @cmd has such a program. */
const struct command *find_tool(const char *name);
bool is_tool(const struct command *cmd);

/* The words by which @cmd (NULL: none yet) was called: "hybridctl check", or "hybrid_check". */
const char *called_name(const struct command *cmd, char buf[64]);

/*
 * Parses options into @cl.  With @cmd NULL, parses only the global ones, up to the first word that
 * is no option.  Returns the index of the next word of argv, or -1 after an error message.
 */
int parse_options(struct command_line *cl, const struct command *cmd, int argc, char **argv);

/* Parses a size into sectors; messages name the option or setting.  Returns 0 or an exit code. */
int parse_sectors(const char *what, const char *text, uint64_t *sectors);

/*
 * Returns 64 KiB, in sectors: on the traces at hand the best in disk time at a bearable wear (see
 * hybrid_replay(8)).  Returns more if the map of a cache device of so many sectors would take more
 * than a 32nd of this machine's memory.  Prints the reason.
 */
uint32_t choose_block_size(const char *policy_name, uint64_t cache_sectors,
			   uint32_t journal_blocks);
/* Parses --block-size and --journal-size (0: geometry chooses).  Returns 0 or an exit code. */
int parse_pool_sizes(const struct command_line *cl, uint32_t *block_sectors,
		     uint32_t *journal_blocks);

/* Parses --mode and --cutoff, or takes their defaults.  Returns 0 or an exit code. */
int parse_volume_options(const struct command_line *cl, uint32_t *mode, uint64_t *cutoff);

/* Parses -o, -O, -S, --units, --noheadings, --json and --export.  Returns 0 or an exit code. */
int report_options(const struct command_line *cl, struct hybrid_report_options *opts);

void print_usage(void);
void print_command_help(const struct command *cmd);

/* The commands; see commands.def.  Each returns an exit code, after printing the error. */
#define COMMAND(id, name, args, least, most, options, summary, description) \
	int command_##id(const struct command_line *cl);
#include "commands.def"

#endif
