/* SPDX-License-Identifier: GPL-2.0-only */
/* Growing: a volume follows its origin. */
#ifndef DM_HYBRID_ENGINE_GROW_H
#define DM_HYBRID_ENGINE_GROW_H

#include "engine.h"
#include "map.h"

/*
 * Sets both sizes in the volume's entry, in RAM; the next checkpoint records them.  Takes the
 * engine's lock.
 */
void hybrid_volume_set_sizes(struct hybrid_engine *e, struct hybrid_volume *v, u64 data_sectors,
			     u64 data_sectors_new);
/* Completes a growth that a power cut interrupted, while the volume is being opened.  May sleep. */
int hybrid_finish_growing(struct hybrid_engine *e, struct hybrid_volume *v, u64 sectors);

#endif
