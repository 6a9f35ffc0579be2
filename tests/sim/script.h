/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A run as a list of decisions: actions of users and admins, which request ended
 * when, when the power went.  Recorded from a seed, written by hand, or made by
 * exhaustive.c.  A run from a script draws nothing that the script decides.
 */
#ifndef SIM_SCRIPT_H
#define SIM_SCRIPT_H

#include "sim.h"

/* Events of enum event have their own numbers; the others follow. */
enum line_kind {
	LINE_BOOT = NR_EVENTS,
	LINE_FAULT,
	LINE_AGE,		/* as after 2^30 flushes of each origin */
	LINE_LOSE,		/* the next write of metadata of kind count is lost */
	LINE_POWER,		/* the power goes before the count-th change of a disk; 0: never */
	LINE_AGAIN,		/* ... of the recovery that follows */
	LINE_CUT,		/* volatile data survives or not; then boot */
	LINE_RESET,		/* the volatile caches survive; then boot */
	LINE_READALL,
	LINE_FINISH,
	LINE_RUN,		/* until nothing is under way */
	LINE_RELOAD,		/* suspend all, stop, restart, resume */
	LINE_ADMIN,
	LINE_CLEAN,		/* the volume has no dirty data, in RAM or on record */
	LINE_CLOSED,		/* no region is open */
	LINE_HANG,		/* requests of some kinds to one origin stay under way */
	LINE_ANSWER,		/* ... until here, where other volumes must have finished */
	LINE_GROW,		/* the volume and its origin grow by so many sectors */
	LINE_EXPLORE,		/* crash states from here on */
	LINE_NOTHING,		/* could have happened while somebody waited, and did not */
	/* Choices, also in the midst of a blocking call */
	LINE_COMPLETE,		/* the count-th oldest request */
	LINE_APPLY,
	LINE_PART,
	LINE_TELL,		/* the count-th action that ended */
	LINE_PASS,		/* time passes */
	LINE_WAIT,		/* nothing happens */
	NR_LINES
};

struct line {
	u8 kind;
	u8 volume;
	u8 cpu;
	bool meanwhile;		/* while somebody waits for a call */
	u32 count;
	u64 sector;
	u64 state;		/* of the random numbers for the rest; 0: made from the line */
};

struct script {
	struct profile p;
	u64 rng, brng;
	struct {
		u32 mode, cutoff, discard;
	} volume[SIM_MAX_VOLUMES];
	struct line *line;
	u32 nr, cap, next;
	void (*body)(struct world *w);	/* instead of the lines, if it is not NULL */
};

/* Where decisions are written down, and where they come from; or NULL. */
extern struct script *script_record, *script_play;

/* Notes the run's profile, or sets it from the script. */
void script_begin(struct world *w);
void script_volumes(struct world *w);
void script_add(struct script *s, const struct line *l);
/* Notes a decision just drawn. */
void script_log(struct world *w, u32 kind, const struct volume *vol, u64 sector, u32 count);
/* Returns how many lines were noted so far. */
static inline u32 script_lines(void)
{
	return script_record ? script_record->nr : 0;
}

/* Takes the next line if its kind is between @a and @b. */
bool script_take(struct world *w, u32 a, u32 b, struct line *l);
/* Carries out the next choice, or the oldest step if there is none. */
bool script_step(struct world *w);
/* Carries out other users' next line, while somebody waits. */
void script_meanwhile(struct world *w);
/* Carries out all lines. */
void script_run(struct world *w);

void run_script(struct script *s, u64 *hash);

void script_defaults(struct script *s);
/* Mode C: runs part @part of @parts of all sequences; returns how many, adds their hashes to @sum. */
u64 exhaustive_run(u32 max_length, u32 part, u32 parts, bool (*go_on)(void), u64 *sum);

struct script *script_read(FILE *f, const char *name);
void script_print(const struct script *s, FILE *f);
void script_free(struct script *s);

/* Returns the decisions of a seed, which runs in a process of its own. */
struct script *script_of_seed(u64 seed, char mode);
/* Prints the shortest script found that breaks the same rule. */
void script_shrink(struct script *s);

#endif
