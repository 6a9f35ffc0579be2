/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Work on disks that may never answer: each piece in a process of its own, which is left
 * behind if it does not end.
 */
#ifndef HYBRID_APART_H
#define HYBRID_APART_H

#include <stddef.h>

/* How long a disk may take; set once by main.  One that sleeps may need 20 seconds to spin up. */
extern int hybrid_patience;

/*
 * Call @fn for each of the @nr elements, of @size bytes, of @array, beside each other.  What
 * @fn makes of its element, and what it prints, counts if it ends within @seconds: what reads
 * disks has hybrid_patience; else the element stays as it was, and the process that is left behind has no
 * file, lock, pipe or terminal of ours.  Not to be called under the lock of the tools.
 * Returns 0 or an exit code.
 */
int hybrid_apart(void (*fn)(void *element), void *array, size_t size, unsigned int nr,
		 int seconds);

#endif
