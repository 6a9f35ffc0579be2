/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * More than one CPU.  An engine call runs in a fiber, and may be suspended before
 * any of its accesses to memory, inside its critical sections, too.  Meanwhile
 * other calls run, until the seed lets it go on.  Every access reaches memory at once
 * and in the order of the program: reordering by a CPU is not modelled.
 *
 * A fiber that is suspended before an access also watches these bytes, as KCSAN does.
 * If another fiber accesses the same bytes, one of the two accesses writes, and one is
 * a plain read, that is a data race and a violation.  So is an access to memory that
 * the engine has freed.
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
void fibers_profile(struct world *w);	/* makes the run's profile suit fibers */
void fibers_drop(struct world *w);	/* the machine is gone, with its calls */

/*
 * Calls fn(w, copy of *arg), perhaps in a fiber: then fn may still be under way
 * afterwards.  Only for the main flow of the program.
 */
void fiber_call(struct world *w, void (*fn)(struct world *w, void *arg), const void *arg,
		size_t bytes);
/* A call of hybrid_engine_hit() begins, or has returned; the second waits for all calls that have begun. */
void fiber_hit(bool begins);
void fibers_wait_hits(void);
/* Another CPU may be faster here.  Nothing happens outside of fibers. */
void fiber_pause(void);
/* Lets a fiber go on, instead of one of @others possible events; false: no fiber did. */
bool fiber_step(struct world *w, u32 others);
/* May a call be made?  Otherwise only fibers and devices can go on. */
bool fibers_room(void);
bool fibers_idle(void);			/* no fiber is suspended */
bool fiber_overlapped(void);		/* did other fibers run since this call began? */
u64 fiber_began(void);			/* time at which it began, if they did; otherwise now */
bool fibers_locked(void);		/* some fiber holds a lock */

/* For crash states, which have one CPU. */
bool fibers_stop(void);
void fibers_go_on(bool on);

#endif
