/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * How far a drain, or a discard, is: a bar on a terminal, a line now and again elsewhere, or lines
 * of JSON; and its end.
 */
#ifndef HYBRIDCTL_PROGRESS_H
#define HYBRIDCTL_PROGRESS_H

#include <time.h>

#include "options.h"

struct json_object;

/* Of what is dirty, in how many blocks; of a discard: of what is left. */
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
	struct amount total;	/* the most seen */
	struct amount dirty;	/* last seen */
	struct timespec start;
	bool bar;		/* there is a terminal */
	double last_line;	/* seconds since the start */
	struct progress_sample earlier, recent;
	double speed;		/* bytes a second; 0: not known, or nothing */
	struct json_object *unwritten;	/* an array for the last line, which takes it; or NULL */
};

/* From here on SIGINT and SIGTERM only make progress_interrupted() true. */
void progress_begin(struct progress *p, const struct command_line *cl, const char *name,
		    struct amount dirty);
bool progress_interrupted(void);
double progress_seconds(const struct progress *p);	/* since it began */

void progress_show(struct progress *p, struct amount dirty);

/*
 * It is over.  @state is for JSON; "clean" is told in words, too.  NULL: the caller says
 * how it ended.  The signals do again what they did.
 */
void progress_end(struct progress *p, const char *state);

#endif
