/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Which 4 KiB pages of all devices a trace touches: 16 bytes for each 256 KiB of them. */
#ifndef HYBRID_REPLAY_FOOTPRINT_H
#define HYBRID_REPLAY_FOOTPRINT_H

#include "sample.h"

#define FOOTPRINT_WINDOW_SHIFT	9	/* sectors: 256 KiB */

struct footprint_window {
	u64 key;		/* 0: none */
	u64 pages;
};

struct footprint {
	struct footprint_window *table;
	u64 size, used;		/* size: a power of two */
};

/* Zero @f first.  False: no memory. */
bool footprint_add(struct footprint *f, u32 source, u64 sector, u32 count);
void footprint_free(struct footprint *f);

/* Number of blocks of that size in @sample with a touched page; 8: of the pages themselves. */
u64 footprint_blocks(const struct footprint *f, u32 block_sectors, const struct sample *sample);

#endif
