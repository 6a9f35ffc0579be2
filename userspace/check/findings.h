/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Findings of a check: numbered (findings.def), collected, printed, and summed up
 * in a verdict.
 */
#ifndef HYBRID_FINDINGS_H
#define HYBRID_FINDINGS_H

#include <linux/types.h>
#include <stdbool.h>
#include <stdio.h>

enum hybrid_severity {
	HYBRID_NOTE,
	HYBRID_RECOVERABLE,
	HYBRID_UNKNOWN,
	HYBRID_DAMAGE,
};

/* HYBRID_FOUND_NOT_CLEAN = 12 ... */
enum hybrid_finding_id {
#define FINDING(number, id, name, severity, meaning, next) HYBRID_FOUND_##id = (number),
#include "findings.def"
	HYBRID_FOUND_MAX = 100
};

#define HYBRID_FINDINGS_KEPT	8	/* of each kind; the others are only counted */

struct hybrid_finding;
struct json_object;

struct hybrid_findings {
	const char *device;		/* of the next findings; must stay valid */
	char where[64];
	struct hybrid_finding *list;
	unsigned int nr;
	bool nomem;			/* no memory to list some findings; the verdict counts them all the same */
	u64 count[HYBRID_FOUND_MAX];
};

/* A zeroed struct is an empty one. */
void hybrid_findings_free(struct hybrid_findings *f);

/*
 * Adds a finding on f->device.  @where: the place on it ("leaf 7"), or NULL; the
 * text describes the fault there.
 */
void hybrid_found(struct hybrid_findings *f, enum hybrid_finding_id id, const char *where,
		 const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Name and number of a place, for @where; valid until the next call. */
const char *hybrid_where(struct hybrid_findings *f, const char *what, u64 nr);

/* The worst severity found; a note if nothing was found. */
enum hybrid_severity hybrid_findings_worst(const struct hybrid_findings *f);

/* "clean", "recoverable", "unknown" or "damaged", and the exit code that says the same. */
const char *hybrid_verdict(const struct hybrid_findings *f);
int hybrid_verdict_exit(const struct hybrid_findings *f);

/*
 * Prints all findings in words, worst first, each kind with its meaning and the
 * next step; nothing with --quiet.
 */
void hybrid_findings_print(const struct hybrid_findings *f, FILE *out);

/*
 * The error of a command that cannot go on: prints the findings, then @fmt and the next step.  If
 * the format of a member is not known, prints that instead, and leads to the release that wrote it:
 * nothing is damaged, and @next might overwrite it.  Returns HYBRID_BADDEV, or HYBRID_NOMEM.
 */
int hybrid_findings_fail(const struct hybrid_findings *f, const char *next, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Adds "verdict", "findings" (an array of the findings kept) and "counts" (of all
 * findings, by id) to a json-c object.
 */
void hybrid_findings_json(const struct hybrid_findings *f, struct json_object *object);

#endif
