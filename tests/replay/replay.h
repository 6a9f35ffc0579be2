/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Power cuts in a trace that a real kernel left (tests/modules/recorder.c).
 *
 * trace.c	the recorded requests, carried out on the simulator's disks
 * contents.c	real sectors as the simulator's values
 * main.c	options, where the power is cut, images, the last line
 *
 * The disks, the oracle, and what happens in a crash state (the shipped engine
 * recovers, everything is read back, now and then the power goes again) are the
 * simulator's.  There a sector's value is one number, here it is the address of
 * its recorded bytes, one for all sectors with the same bytes: equal numbers are
 * equal bytes, for metadata as for data.
 */
#ifndef REPLAY_H
#define REPLAY_H

#include "sim.h"
#include "recorder.h"

/* ---- contents.c ------------------------------------------------------------ */

/* The value of these 512 bytes, which must stay where they are. */
val_t content(const void *bytes, bool data);
const void *content_bytes(val_t val);

struct history;

/* What each sector of a volume ever was. */
struct history *history_new(u64 sectors);
void history_add(struct history *h, u64 sector, u32 version, val_t val);
/* Was it @val, or on its way there, by @version? */
bool history_held(const struct history *h, u64 sector, val_t val, u32 version);

/* ---- trace.c --------------------------------------------------------------- */

struct trace_file {
	const struct rec_record *record;
	u64 nr;
	const char *data;
	u64 begin;		/* record with the mark */
};

/* Maps the trace in @dir; exits if it is none. */
void trace_open(struct trace_file *t, const char *dir);
/* A world with the members and volumes of the trace, as before its first record. */
void trace_world(struct trace_file *t, struct world *w);
/* Carries out record @nr. */
void trace_step(struct trace_file *t, struct world *w, u64 nr);

void die(const char *fmt, ...) __printf(1, 2) __attribute__((noreturn));

#endif
