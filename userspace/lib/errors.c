// SPDX-License-Identifier: GPL-2.0-or-later
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "errors.h"

struct hybrid_output hybrid_output = { .program = "hybridctl" };

static void say(const char *label, const char *color, const char *fmt, va_list ap)
{
	bool colored = hybrid_output.color && color;

	/* stdout first, so that the two streams read in order on one terminal */
	fflush(stdout);
	fprintf(stderr, "%s: %s%s%s", hybrid_output.program, colored ? color : "", label,
		colored ? "\033[0m" : "");
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
}

int hybrid_fail(int code, const char *next, const char *fmt, ...)
{
	va_list ap;

	if (hybrid_output.silent)
		return code;
	va_start(ap, fmt);
	say("error: ", "\033[31m", fmt, ap);
	va_end(ap);
	if (next)
		fprintf(stderr, "  next: %s\n", next);
	return code;
}

void hybrid_warn(const char *fmt, ...)
{
	va_list ap;

	if (hybrid_output.silent)
		return;
	va_start(ap, fmt);
	say("warning: ", "\033[33m", fmt, ap);
	va_end(ap);
}

void hybrid_note(const char *fmt, ...)
{
	va_list ap;

	if (hybrid_output.quiet)
		return;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

void hybrid_verbose(const char *fmt, ...)
{
	va_list ap;

	if (!hybrid_output.verbose)
		return;
	va_start(ap, fmt);
	say("", NULL, fmt, ap);
	va_end(ap);
}

int hybrid_nomem(void)
{
	return hybrid_fail(HYBRID_NOMEM, "free some memory and try again", "out of memory");
}

int hybrid_exit_of_errno(int err)
{
	switch (err) {
	case EPERM:
	case EACCES:
	case EROFS:
		return HYBRID_REFUSED;
	case ENOMEM:
		return HYBRID_NOMEM;
	case EBUSY:
	case EEXIST:
		return HYBRID_BUSY;
	default:
		return HYBRID_BADDEV;
	}
}
