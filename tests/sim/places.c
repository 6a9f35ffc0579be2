// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Places of the cache device that fail: a block for which alone I/O failed twice is used no
 * more once it has left, until the pool is loaded again.  Failures are counted here from the
 * answers of the devices; the engine is asked for the owner of a block.
 *
 * Not judged: a set in which more blocks failed than may be retired; and a life in which more
 * places failed than are remembered.
 */
#include <stdlib.h>
#include <string.h>

#include "fibers.h"
#include "engine-internal.h"

#define RETIRED_SHARE 8

/* Only for the main run: crash states begin a short life of their own. */
static struct place {
	u32 failed;
	u64 key;		/* the owner at the second failure */
} *places;

static u32 nr_places, nr_blocks;

void places_boot(struct world *w)
{
	if (w->branch)
		return;
	if (nr_blocks < w->g->nr_blocks) {
		nr_blocks = w->g->nr_blocks;
		places = xrealloc(places, nr_blocks * sizeof(*places));
	}
	memset(places, 0, nr_blocks * sizeof(*places));
	nr_places = 0;
}

static u32 block_at(const struct world *w, u64 sector)
{
	return (sector - w->g->data_sector) >> w->g->block_shift;
}

static struct hybrid_set *set_of(const struct world *w, u32 block)
{
	return &w->e->map.set[block / w->g->set_size];
}

/* Returns the only block of the cache device whose data the operation moved; -1: there are more. */
static s64 block_alone(const struct world *w, const struct hybrid_op *op)
{
	s64 block = -1;
	u32 i, count = 0;

	if (op->type == HYBRID_OP_USER)
		return block_at(w, op->sector);
	if (op->type != HYBRID_OP_TRANSFER)
		return -1;
	for (i = 0; i < op->nr_segments; i++) {
		u32 b = block_at(w, op->segments[i].sector);

		if (op->segments[i].origin)
			continue;
		if (block >= 0 && block != b)
			return -1;
		block = b;
		count += op->segments[i].count;
	}
	/* Writeback then looks for the granule that failed. */
	return !op->write && !op->user && count > w->g->granule_sectors ? -1 : block;
}

void places_told(struct world *w, const struct action *a)
{
	struct place *p;
	s64 block;

	if (w->branch || !a->error_cache || a->error_cache == -EAGAIN ||
	    hybrid_engine_failed(w->e))
		return;
	block = block_alone(w, a->op);
	/* A read may end after its block has left. */
	if (block < 0 || !set_of(w, block)->flags[block % w->g->set_size])
		return;
	p = &places[block];
	nr_places += !p->failed;
	if (++p->failed == 2)
		p->key = set_of(w, block)->key[block % w->g->set_size];
}

static u32 failed_in_set(const struct world *w, u32 block)
{
	u32 first = block - block % w->g->set_size, i, n = 0;

	for (i = first; i < first + w->g->set_size; i++)
		n += places[i].failed >= 2;
	return n;
}

void places_submit(struct world *w, const struct dreq *r)
{
	u32 block;

	if (w->branch || r->dev->nr || r->meta || r->kind == DREQ_FLUSH || sim_interleave)
		return;
	block = block_at(w, r->sector);
	if (places[block].failed < 2 || nr_places > NR_PLACES ||
	    failed_in_set(w, block) > w->g->set_size / RETIRED_SHARE)
		return;
	if (set_of(w, block)->key[block % w->g->set_size] != places[block].key)
		violation(w, "place", "block %u, whose place failed %u times, is used again", block,
			  places[block].failed);
}
