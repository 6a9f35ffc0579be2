/* SPDX-License-Identifier: GPL-2.0-only */
/* An origin has grown, and its volume follows. */
#ifndef DM_HYBRID_ENGINE_GROW_H
#define DM_HYBRID_ENGINE_GROW_H

#include "engine.h"
#include "map.h"

/* The sizes of the entry, in RAM; recorded with the next checkpoint.  Without the engine's lock. */
void set_sizes(struct hybrid_engine *e, struct hybrid_volume *v, u64 data_sectors,
	       u64 data_sectors_new);
/* Blocking, while the volume is opened: the rest of what a cut left half done. */
int finish_growing(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors);

#endif
