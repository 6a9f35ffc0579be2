// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Build-time helper: fills the templates of the man pages from commands.def, fields.def,
 * findings.def, and the description of the status in the kernel's documentation, its argument.
 * Reads a template on stdin, replaces lines that are one of the words below, writes to stdout.
 */
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
#define OPTION(id, name, letter, arg, help) OPT_##id,
#include "commands.def"
	NR_OPTIONS
};

#define O(id)	(1ULL << OPT_##id)
#define O_EVERYWHERE \
	(O(HELP) | O(VERSION) | O(TEST) | O(YES) | O(QUIET) | O(VERBOSE))

static const struct {
	const char *name;
	int letter;
	const char *arg, *help;
} options[] = {
#define OPTION(id, name, letter, arg, help) { name, letter, arg, help },
#include "commands.def"
};

static const struct {
	const char *name, *args;
	uint64_t options;
	const char *summary, *description;
} commands[] = {
#define COMMAND(id, name, args, least, most, options, summary, description) \
	{ name, args, options, summary, description },
#include "commands.def"
};

static const struct {
	const char *program, *command;
} tools[] = {
#define TOOL(program, command) { program, command },
#include "commands.def"
};

#include "fields.def"

static const struct field {
	const char *name, *type, *text;
} list_fields[] = {
#define X(id, name, heading, type, text) { name, #type, text },
	LIST_FIELDS(X)
}, scan_fields[] = {
	SCAN_FIELDS(X)
#undef X
};

static const struct {
	int number;
	const char *name, *severity, *meaning, *next;
} findings[] = {
#define FINDING(number, id, name, severity, meaning, next) \
	{ number, name, #severity, meaning, next },
#include "findings.def"
};

#define NR_TOOLS	(sizeof(tools) / sizeof(tools[0]))
#define NR_COMMANDS	(sizeof(commands) / sizeof(commands[0]))

/* Escapes characters that begin markup in scdoc; "-" does so only at the start of a line. */
static void put_escaped(const char *text)
{
	const char *p;

	for (p = text; *p; p++) {
		if (strchr("*_\\[]<>#", *p) || (*p == '-' && (p == text || p[-1] == '\n')))
			putchar('\\');
		putchar(*p);
	}
}

static void man_synopsis(void)
{
	size_t i;

	for (i = 0; i < NR_COMMANDS; i++) {
		printf("*hybridctl %s* ", commands[i].name);
		put_escaped(commands[i].args);
		printf(" \\[OPTION...\\]%s\n", i + 1 < NR_COMMANDS ? "++" : "");
	}
}

static void man_options(uint64_t mask)
{
	int i;

	for (i = 0; i < NR_OPTIONS; i++) {
		if (!(mask & (1ULL << i)))
			continue;
		if (options[i].letter)
			printf("*-%c*, ", options[i].letter);
		printf("*--%s*", options[i].name);
		if (options[i].arg)
			printf(" _%s_", options[i].arg);
		printf("\n\t");
		put_escaped(options[i].help);
		printf("\n\n");
	}
}

static void man_commands(void)
{
	size_t i;

	for (i = 0; i < NR_COMMANDS; i++) {
		/* scdoc takes headings as they are */
		printf("## hybridctl %s %s\n\n", commands[i].name, commands[i].args);
		put_escaped(commands[i].description);
		printf("\n\n");
		man_options(commands[i].options);
	}
}

/* Prints one part of the page of a command, which is found by its name as a program. */
static int man_tool(const char *what, const char *program)
{
	size_t t, i;

	for (t = 0; t < NR_TOOLS && strcmp(tools[t].program, program); t++)
		;
	for (i = 0; t < NR_TOOLS && i < NR_COMMANDS; i++) {
		if (strcmp(commands[i].name, tools[t].command))
			continue;
		if (!strcmp(what, "SYNOPSIS")) {
			printf("*%s* ", program);
			put_escaped(commands[i].args);
			printf(" \\[OPTION...\\]++\n*hybridctl %s* ", commands[i].name);
			put_escaped(commands[i].args);
			printf(" \\[OPTION...\\]\n");
		} else if (!strcmp(what, "DESCRIPTION")) {
			put_escaped(commands[i].description);
			putchar('\n');
		} else {
			man_options(commands[i].options | O(QUIET) | O(HELP) | O(VERSION));
		}
		return 1;
	}
	return 0;
}

static void man_findings(void)
{
	size_t i;

	for (i = 0; i < sizeof(findings) / sizeof(findings[0]); i++) {
		printf("*%d* %s (%s)\n\t", findings[i].number, findings[i].name,
		       findings[i].severity);
		put_escaped(findings[i].meaning);
		printf("++\nNext: ");
		put_escaped(findings[i].next);
		printf("\n\n");
	}
}

static void man_fields(const struct field *fields, size_t nr)
{
	size_t i;

	for (i = 0; i < nr; i++) {
		printf("*%s* (", fields[i].name);
		for (const char *p = fields[i].type; *p; p++)
			putchar(*p | 0x20);
		printf(")\n\t");
		put_escaped(fields[i].text);
		printf("\n\n");
	}
}

/* Prints a line of a table of reStructuredText, in which ``a word`` is one of the kernel's. */
static void put_rst(char *text)
{
	char *word;

	text[strcspn(text, "\n")] = '\0';
	for (; (word = strstr(text, "``")); text = word + 2) {
		*word = '\0';
		put_escaped(text);
		putchar('_');
	}
	put_escaped(text);
}

static const char *read_line(FILE *f, char *line, int len)
{
	if (fgets(line, len, f))
		return line;
	fprintf(stderr, "generate: a table of the status is not found\n");
	exit(1);
}

/* Prints the table of the section "Status" below the heading @target: Pool or Volume. */
static int man_status(const char *rst, const char *target)
{
	char line[4096], name[64];
	FILE *f = fopen(rst, "r");
	int text;

	if (!f) {
		perror(rst);
		exit(1);
	}
	while (strcmp(read_line(f, line, sizeof(line)), "Status\n"))
		;
	while (strncmp(read_line(f, line, sizeof(line)), target, strlen(target)))
		;
	while (read_line(f, line, sizeof(line))[0] != '=')
		;
	while (read_line(f, line, sizeof(line))[0] != '=') {
		if (!isspace((unsigned char)line[0]) && sscanf(line, "%63s %n", name, &text) == 1) {
			printf("\n\n*");
			put_escaped(name);
			printf("*\n\t");
			put_rst(line + text);
		} else {
			putchar(' ');
			put_rst(line + strspn(line, " "));
		}
	}
	printf("\n\n");
	fclose(f);
	return 1;
}

static int expand(const char *line, const char *rst)
{
	char what[16], of[64];

	if (sscanf(line, "@STATUS %63[A-Za-z]@", of) == 1)
		return man_status(rst, of);
	if (sscanf(line, "@%15[A-Z] %63[a-z_]@", what, of) == 2)
		return man_tool(what, of);
	if (!strcmp(line, "@SYNOPSIS@\n"))
		man_synopsis();
	else if (!strcmp(line, "@OPTIONS@\n"))
		man_options(O_EVERYWHERE);
	else if (!strcmp(line, "@COMMANDS@\n"))
		man_commands();
	else if (!strcmp(line, "@LISTFIELDS@\n"))
		man_fields(list_fields, sizeof(list_fields) / sizeof(list_fields[0]));
	else if (!strcmp(line, "@SCANFIELDS@\n"))
		man_fields(scan_fields, sizeof(scan_fields) / sizeof(scan_fields[0]));
	else if (!strcmp(line, "@FINDINGS@\n"))
		man_findings();
	else
		return 0;
	return 1;
}

int main(int argc, char **argv)
{
	char line[4096];

	while (fgets(line, sizeof(line), stdin))
		if (!expand(line, argc > 1 ? argv[1] : ""))
			fputs(line, stdout);
	return ferror(stdin) || fflush(stdout);
}
