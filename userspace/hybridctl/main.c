// SPDX-License-Identifier: GPL-2.0-or-later
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dm.h"
#include "errors.h"
#include "options.h"

#ifndef HYBRID_VERSION
#define HYBRID_VERSION "0.1.0"
#endif

/* By command_id. */
static int (*const run[NR_COMMANDS])(const struct command_line *cl) = {
#define COMMAND(id, name, args, least, most, options, summary, description) \
	[COMMAND_##id] = command_##id,
#include "commands.def"
};

static int fail_command(const char *name)
{
	return hybrid_fail(HYBRID_USAGE, "see hybridctl --help", "no such command: %s", name);
}

int command_help(const struct command_line *cl)
{
	const struct command *cmd;

	if (!cl->argc) {
		print_usage();
		return 0;
	}
	cmd = find_command(cl->argv[0]);
	if (!cmd)
		cmd = find_tool(cl->argv[0]);
	if (!cmd)
		return fail_command(cl->argv[0]);
	print_command_help(cmd);
	return 0;
}

static int check_arguments(const struct command *cmd, const struct command_line *cl)
{
	char next[80], name[64];

	snprintf(next, sizeof(next), "see %s --help", called_name(cmd, name));
	if (cl->argc < cmd->least)
		return hybrid_fail(HYBRID_USAGE, next, "%s needs %s", cmd->name, cmd->args);
	if (cmd->most >= 0 && cl->argc > cmd->most)
		return hybrid_fail(HYBRID_USAGE, next, "%s: too many arguments: %s", cmd->name,
				   cl->argv[cmd->most]);
	return 0;
}

static int run_command(const struct command *cmd, struct command_line *cl, int argc,
		       char **argv)
{
	int next, r;

	next = parse_options(cl, cmd, argc, argv);
	if (next < 0)
		return HYBRID_USAGE;
	if (cl->given[OPT_HELP]) {
		print_command_help(cmd);
		return 0;
	}
	if (cl->given[OPT_VERSION]) {
		printf("%s " HYBRID_VERSION "\n", hybrid_output.program);
		return 0;
	}
	cl->argc = argc - next;
	cl->argv = argv + next;
	r = check_arguments(cmd, cl);
	return r ? r : run[cmd - commands](cl);
}

static int dispatch(struct command_line *cl, int argc, char **argv)
{
	const char *slash = argc ? strrchr(argv[0], '/') : NULL;
	const char *program = slash ? slash + 1 : argc ? argv[0] : "";
	const struct command *cmd;
	int next;

	cmd = find_tool(program);
	if (cmd) {
		hybrid_output.program = program;
		return run_command(cmd, cl, argc, argv);
	}
	next = parse_options(cl, NULL, argc, argv);
	if (next < 0)
		return HYBRID_USAGE;
	if (cl->given[OPT_VERSION]) {
		printf("%s " HYBRID_VERSION "\n", hybrid_output.program);
		return 0;
	}
	if (cl->given[OPT_HELP] && next == argc) {
		print_usage();
		return 0;
	}
	if (next == argc)
		return hybrid_fail(HYBRID_USAGE, "see hybridctl --help", "no command given");
	cmd = find_command(argv[next]);
	if (!cmd)
		return fail_command(argv[next]);
	return run_command(cmd, cl, argc - next, argv + next);
}

int main(int argc, char **argv)
{
	struct command_line cl = {};
	const char *no_color = getenv("NO_COLOR");
	int r;

	hybrid_output.color = isatty(STDERR_FILENO) && !(no_color && no_color[0]);
	/* A reader that went away is an error of ours to report, not a signal */
	signal(SIGPIPE, SIG_IGN);
	hybrid_dm_init();
	r = dispatch(&cl, argc, argv);
	free(cl.devices);
	if ((fflush(stdout) || ferror(stdout)) && !r)
		r = HYBRID_PARTIAL;
	return r;
}
