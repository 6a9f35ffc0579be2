// SPDX-License-Identifier: GPL-2.0-or-later
#include <string.h>

#include "model.h"

#define RANDOM_MS		8.0
#define STREAM_MS		0.5
#define WRITEBACK_MS		5.0
#define SECTORS_A_MS		(150e6 / 512 / 1000)
#define GAP_SECTORS		512	/* 1.7 ms: a seek and half a rotation take longer */

/*
 * The sectors between the operation and the end of one of the last ones, or -1: it continues none.  Its
 * own end becomes the newest.  Sectors count from 1 here: 0 is none.
 */
static s64 gap_before(struct model_disk *d, u64 sector, u32 count)
{
	s64 gap = -1;
	u32 i;

	for (i = 0; i < MODEL_STREAMS; i++)
		if (d->end[i] && sector - d->end[i] <= GAP_SECTORS) {
			gap = sector - d->end[i];
			break;
		}
	memmove(d->end + 1, d->end, (gap < 0 ? MODEL_STREAMS - 1 : i) * sizeof(d->end[0]));
	d->end[0] = sector + count;
	return gap;
}

void model_op(struct model_disk *d, bool write, u64 sector, u32 count, bool writeback)
{
	bool merged;
	s64 gap;

	sector++;
	merged = !writeback && d->merge_at == sector && d->merge_write == write;
	gap = gap_before(d, sector, count);
	d->sectors[write] += count;
	d->ms += count / SECTORS_A_MS;
	if (!writeback) {
		d->merge_at = sector + count;
		d->merge_write = write;
	}
	if (merged)
		return;
	d->ops[write]++;
	d->runs += writeback;
	d->ms += gap >= 0 ? STREAM_MS + gap / SECTORS_A_MS :
		 writeback ? WRITEBACK_MS : RANDOM_MS;
}
