// SPDX-License-Identifier: GPL-2.0-or-later
#include <string.h>

#include "model.h"

#define RANDOM_MS		8.0
#define STREAM_MS		0.5
#define WRITEBACK_MS		5.0
#define SECTORS_A_MS		(150e6 / 512 / 1000)

/*
 * Does the operation continue one of the last ones?  Its end becomes the newest.  Sectors count from 1
 * here: 0 is none.
 */
static bool goes_on(struct model_disk *d, u64 sector, u32 count)
{
	bool found;
	u32 i;

	for (i = 0; i < MODEL_STREAMS - 1; i++)
		if (d->end[i] == sector)
			break;
	found = d->end[i] == sector;
	memmove(d->end + 1, d->end, i * sizeof(d->end[0]));
	d->end[0] = sector + count;
	return found;
}

void model_op(struct model_disk *d, bool write, u64 sector, u32 count, bool writeback)
{
	bool merged, stream;

	sector++;
	merged = !writeback && d->merge_at == sector && d->merge_write == write;
	stream = goes_on(d, sector, count);
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
	d->ms += stream ? STREAM_MS : writeback ? WRITEBACK_MS : RANDOM_MS;
}
