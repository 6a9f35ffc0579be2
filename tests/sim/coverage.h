/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The engine's phases during faults: a table of pairs (phase, fault).  A pair
 * that was never hit is a hole in the tests.
 */
#ifndef SIM_COVERAGE_H
#define SIM_COVERAGE_H

#include "sim.h"

/* Several may be under way at a time: a fault counts for each. */
enum sim_phase {
	PHASE_LOAD = 1,		/* calls that somebody waits for: world.doing */
	PHASE_RECOVER,		/* load: the result becomes durable */
	PHASE_CREATE,
	PHASE_OPEN,
	PHASE_CLOSE,
	PHASE_DELETE,
	PHASE_FORGET,
	PHASE_SUSPEND,		/* of a volume: until it is resumed */
	PHASE_STOP,
	PHASE_RESTART,
	PHASE_POLICY,		/* another policy takes over */
	PHASE_RUN,		/* users' I/O is in flight */
	PHASE_FILL,
	PHASE_STAGED,		/* a user's I/O goes through a buffer */
	PHASE_READAHEAD,		/* data is in memory, or on its way there, ahead of a run */
	PHASE_RANGE,		/* discard, write-zeroes */
	PHASE_WRITEBACK,
	PHASE_EVICT,		/* a removed block is not free yet */
	PHASE_COMMIT,
	PHASE_CHECKPOINT,
	PHASE_JOURNAL_FULL,	/* commits wait for a checkpoint */
	PHASE_FLUSH,		/* of an origin */
	PHASE_MARK,		/* an origin's superblock is being written */
	PHASE_MODE,		/* dirty data of a volume that is no longer writeback */
	PHASE_DRAIN,
	NR_PHASES
};

enum sim_fault {
	FAULT_CUT,		/* power cut or reset in a life that began cleanly */
	FAULT_CUT_AGAIN,	/* ... that began with the recovery from one */
	FAULT_CUT_THRICE,	/* ... from a cut in such a life, or more of them */
	FAULT_RESET,		/* in any such life; the power stays on */
	FAULT_ALLOC,
	FAULT_CACHE_READ,	/* errors, in the order of enum dreq_kind */
	FAULT_CACHE_WRITE,
	FAULT_CACHE_FLUSH,
	FAULT_ORIGIN_READ,
	FAULT_ORIGIN_WRITE,
	FAULT_ORIGIN_FLUSH,
	FAULT_ROT,		/* damaged metadata, after a cut */
	NR_FAULTS
};

/* Returns the phases under way: a bit for each enum sim_phase. */
u32 coverage_phases(struct world *w);
/* @fault happened @times in those phases. */
void coverage_count(u32 phases, enum sim_fault fault, u32 times);
/* An allocation of the call under way fails. */
void coverage_alloc(void);
/* An allocation that may not wait: of a job, of its buffer (@bytes 0), or of the journal. */
void coverage_nowait(struct world *w, size_t bytes, bool fails);
/* I/O that must not wait ends: it is no hit, or (@device) its device would have to wait. */
void coverage_refused(bool device);
/* The request fails. */
void coverage_error(const struct dreq *r);
/* The machine dies @times in this state, or did when w->crashed was set. */
void coverage_death(struct world *w, bool reset, u32 times);

/* A write of metadata begins: counts it if it is an entry of a commit that takes more entries. */
void coverage_commit(struct world *w, const struct hybrid_op *op);

/* This engine dies: adds up ends of readahead, retired places, and whether its cache is failing. */
void coverage_readahead(struct world *w);

/* Prints ends of readahead, allocations without waiting, phases by faults; "-": impossible pairs. */
void coverage_print(void);

/* The value of @call, which is phase @p as long as it runs. */
#define DURING(w, p, call) ({						\
	u8 before_ = (w)->doing;					\
	__typeof__(call) value_;					\
									\
	(w)->doing = (p);						\
	value_ = (call);						\
	(w)->doing = before_;						\
	value_; })

#endif
