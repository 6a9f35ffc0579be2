/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Work on disks that may never answer.  Each piece of work has its own process, which is left
 * behind if it does not end.
 */
#ifndef HYBRID_APART_H
#define HYBRID_APART_H

#include <stddef.h>

/* Seconds that a disk may take; set once by main.  A sleeping disk may need 20 to spin up. */
extern int hybrid_patience;

/*
 * Calls @fn for each of the @nr elements of @array, of @size bytes each, in parallel processes.
 * If @fn ends within @seconds (hybrid_patience, if it reads disks), its changes to the element
 * and its output are taken over.  Otherwise the element stays as it was, and the process is left
 * behind, without any file, lock, pipe or terminal of ours.  Must not be called under the lock of
 * the tools.  Returns 0 or an exit code.
 */
int hybrid_apart(void (*fn)(void *element), void *array, size_t size, unsigned int nr,
		 int seconds);

#endif
