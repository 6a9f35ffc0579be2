/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Power cuts in a trace that a real kernel left (tests/modules/recorder.c).
 *
 * - trace.c: the recorded requests, carried out on the simulator's disks
 * - contents.c: real sectors as the simulator's values
 * - main.c: options, the points of power cuts, images, the last line
 *
 * The disks, the oracle, and the steps of a crash state (the shipped engine recovers,
 * all data is read back, now and then the power goes again) are the simulator's.  In
 * the simulator a sector's value is one number; here it is the address of its recorded
 * bytes, one for all sectors with the same bytes.  Equal numbers are equal bytes, for
 * metadata as for data.
 */
#ifndef REPLAY_H
#define REPLAY_H

#include "sim.h"
#include "recorder.h"

/* ---- contents.c ------------------------------------------------------------ */

/* Returns the value of these 512 bytes, which must stay where they are. */
val_t content(const void *bytes, bool data);
const void *content_bytes(val_t val);

struct history;

/* All values that each sector of a volume ever had. */
struct history *history_new(u64 sectors);
void history_add(struct history *h, u64 sector, u32 version, val_t val);
/* Did the sector hold @val, or was @val on its way, by @version? */
bool history_held(const struct history *h, u64 sector, val_t val, u32 version);

/* ---- trace.c --------------------------------------------------------------- */

struct trace_file {
	const struct rec_record *record;
	u64 nr;
	const char *data;
	u64 begin;		/* record with the mark */
};

/* Maps the trace in @dir; exits if there is none. */
void trace_open(struct trace_file *t, const char *dir);
/* Makes a world with the members and volumes of the trace, as before its first record. */
void trace_world(struct trace_file *t, struct world *w);
/* Carries out record @nr. */
void trace_step(struct trace_file *t, struct world *w, u64 nr);

void die(const char *fmt, ...) __printf(1, 2) __attribute__((noreturn));

#endif
