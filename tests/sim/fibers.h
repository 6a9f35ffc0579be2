/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * More than one CPU.  An engine call runs in a fiber, and may be suspended before
 * any of its accesses to memory, inside its critical sections, too.  Meanwhile
 * other calls run, until the seed lets it go on.  Memory is as if every access
 * reached it at once and in the order of the program: what a CPU may reorder is
 * not modelled.
 *
 * A fiber that is suspended before an access also watches it, as KCSAN does: if
 * another makes one to the same bytes, one of them writes and a plain read is
 * among them, that is a data race and a violation.  So is an access to what the engine
 * has freed.
 *
 * Needs an engine compiled with -fsanitize=thread (make interleave), whose
 * hooks are in fibers.c instead of a library.
 */
#ifndef SIM_FIBERS_H
#define SIM_FIBERS_H

#include "sim.h"

extern bool sim_interleave;		/* --interleave */

bool fibers_built(void);		/* was the engine compiled for it? */
void fibers_begin(struct world *w);	/* a run begins */
void fibers_profile(struct world *w);	/* what it does suits that */
void fibers_drop(struct world *w);	/* the machine is gone, and what ran on it */

/*
 * Call fn(w, copy of *arg), perhaps in a fiber: then it may still be under way
 * afterwards.  From the main flow of the program only.
 */
void fiber_call(struct world *w, void (*fn)(struct world *w, void *arg), const void *arg,
		size_t bytes);
/* A call of hybrid_engine_hit() begins, or has returned; wait for those that have begun. */
void fiber_hit(bool begins);
void fibers_wait_hits(void);
/* Another CPU may be faster here.  Nothing happens outside of fibers. */
void fiber_pause(void);
/* Let a fiber go on instead of one of @others things that could happen; false: none did. */
bool fiber_step(struct world *w, u32 others);
/* May a call be made?  Else only fibers and devices can go on. */
bool fibers_room(void);
bool fibers_idle(void);			/* none is suspended */
bool fiber_overlapped(void);		/* did others run since this call began? */
u64 fiber_began(void);			/* when it began, if they did, else now */
bool fibers_locked(void);		/* one of them has a lock */

/* For crash states, which have one CPU. */
bool fibers_stop(void);
void fibers_go_on(bool on);

#endif
