/* SPDX-License-Identifier: GPL-2.0-only */
/* Places in a test build of dm-hybrid where a task can be held: README.md. */
#ifndef DM_HYBRID_PAUSE_H
#define DM_HYBRID_PAUSE_H

/*
 * If the point called @name is armed, stay here until the test releases it; from any context.
 * One task is held at a time: the first that comes.
 */
void hybrid_pause(const char *name);

#endif
