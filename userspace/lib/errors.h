/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Exit codes and messages of the tools.  Library functions that can fail for a
 * reason that the admin must read print it themselves, once, and return the
 * exit code; their callers only pass it on.
 */
#ifndef HYBRID_ERRORS_H
#define HYBRID_ERRORS_H

#include <stdbool.h>

enum hybrid_exit {
	HYBRID_OK = 0,
	HYBRID_USAGE = 1,	/* the command line */
	HYBRID_REFUSED = 2,	/* a safety check or a missing permission */
	HYBRID_NOMEM = 3,
	HYBRID_BADDEV = 4,	/* wrong device or metadata */
	HYBRID_BUSY = 5,	/* exists already, or is in use */
	HYBRID_PARTIAL = 6,	/* some of it was done */
	HYBRID_DEGRADED = 7,	/* works, but needs attention */
	HYBRID_NOTARGET = 8,	/* kernel target missing or too old */
};

/* Form of the messages; set once by main. */
struct hybrid_output {
	const char *program;
	bool quiet;		/* no notes */
	bool silent;		/* no errors either: the exit code says it all */
	int verbose;		/* notes on every step */
	bool color;		/* on stderr */
};

extern struct hybrid_output hybrid_output;

/*
 * Prints an error (@fmt names the device and the reason) and, unless NULL, the
 * next step.  Returns @code, so that callers can return it in turn.
 */
int hybrid_fail(int code, const char *next, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Something the admin should know; does not fail the command. */
void hybrid_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A result in words on stdout; nothing with --quiet. */
void hybrid_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A step on stderr; only with --verbose. */
void hybrid_verbose(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* hybrid_fail() for an allocation that failed. */
int hybrid_nomem(void);

/* The exit code that fits an errno value of a system call on a device. */
int hybrid_exit_of_errno(int err);

#endif
