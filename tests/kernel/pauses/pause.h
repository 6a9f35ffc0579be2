/* SPDX-License-Identifier: GPL-2.0-only */
/* Places in a test build of dm-hybrid where a task can be held: README.md. */
#ifndef DM_HYBRID_PAUSE_H
#define DM_HYBRID_PAUSE_H

/*
 * If the point called @name is armed, stays here until the test releases it.  Any context.
 * Only the first task that comes is held.
 */
void hybrid_pause(const char *name);

/* The same for a task that gives up its CPU only to a task that preempts it. */
void hybrid_pause_running(const char *name);

#endif
