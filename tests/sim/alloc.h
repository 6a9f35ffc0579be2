/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Put in front of every pure file: its memory is counted, and may fail. */
#ifndef SIM_ALLOC_H
#define SIM_ALLOC_H

#include <stdlib.h>

void *sim_malloc(size_t bytes);
void *sim_calloc(size_t n, size_t bytes);
void sim_free(void *p);
_Bool heap_freed(const void *p);	/* with --interleave: not long ago */

#define malloc(n) sim_malloc(n)
#define calloc(n, bytes) sim_calloc(n, bytes)
#define free(p) sim_free(p)

#endif
