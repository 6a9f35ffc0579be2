/* SPDX-License-Identifier: GPL-2.0-only */
/* Places in a test build of dm-hybrid where a task can be held: README.md. */
#ifndef DM_HYBRID_PAUSE_H
#define DM_HYBRID_PAUSE_H

/*
 * If the point called @name is armed, stay here until the test releases it; from any context.
 * One task is held at a time: the first that comes.
 */
void hybrid_pause(const char *name);

/* The same for a task that does not give up its CPU, but for one that preempts it. */
void hybrid_pause_running(const char *name);

#endif
