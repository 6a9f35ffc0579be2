/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The progress of a drain or a discard, and its end: a bar on a terminal, an occasional line
 * elsewhere, or lines of JSON.
 */
#ifndef HYBRIDCTL_PROGRESS_H
#define HYBRIDCTL_PROGRESS_H

#include <time.h>

#include "options.h"

struct json_object;

/* An amount of dirty data; for a discard, of data that is left. */
struct amount {
	uint64_t blocks, bytes;
};

struct progress_sample {
	double seconds;		/* since the start */
	uint64_t done;		/* bytes */
};

struct progress {
	const struct command_line *cl;
	const char *name;
	struct amount at_start;
	struct amount total;	/* the largest amount seen */
	struct amount dirty;	/* last seen */
	struct timespec start;
	bool bar;		/* there is a terminal */
	double last_line;	/* seconds since the start */
	struct progress_sample earlier, recent;
	double speed;		/* bytes a second; 0: unknown, or no progress */
	struct json_object *unwritten;	/* an array for the last line, which frees it; or NULL */
	const char *others;	/* dirty volumes that were not named, as text; or NULL */
	struct json_object *other_dirty;	/* the same, as unwritten */
};

/* From here on SIGHUP, SIGINT and SIGTERM only make progress_interrupted() true. */
void progress_begin(struct progress *p, const struct command_line *cl, const char *name,
		    struct amount dirty);
bool progress_interrupted(void);
double progress_seconds(const struct progress *p);	/* since it began */

void progress_show(struct progress *p, struct amount dirty);

/*
 * Ends the display.  @state is for JSON; "clean" is printed in words, too.  NULL: the caller prints
 * the end.  The signals end the process again.
 */
void progress_end(struct progress *p, const char *state);

#endif
