// SPDX-License-Identifier: GPL-2.0-only
#include "intent.h"

#define READ_BLOCKS 128		/* metadata blocks in one read */

struct ring {
	const struct hybrid_geometry *g;
	struct hybrid_ident id;		/* the pool's, with the epoch of the root */
	struct hybrid_intent *block;	/* all of the ring */
	u64 tail, head;			/* the intents that count */
	u64 flushed;			/* intents below it were flushed */
};

static struct hybrid_intent *intent_at(const struct ring *ring, u64 n)
{
	return ring->block + hybrid_intent_place(ring->g, n);
}

static int read_ring(struct ring *ring, hybrid_read_fn read, void *context)
{
	const struct hybrid_geometry *g = ring->g;
	u32 place, nr;
	int r = 0;

	for (place = 0; !r && place < g->intent_blocks; place += nr) {
		nr = min_t(u32, g->intent_blocks - place, READ_BLOCKS);
		r = read(context, hybrid_intent_sector(g, place), nr, ring->block + place);
		cond_resched();
	}
	return r;
}

/*
 * Finds the intents that count, and clears the magic of all other blocks.  Each place can hold only
 * one number that may count.
 */
static int find_intents(struct ring *ring, u64 *n, const char **why)
{
	u64 end = ring->tail + ring->g->intent_blocks;
	struct hybrid_ident id = ring->id;
	struct hybrid_intent *intent;
	int r;

	for (*n = ring->tail; *n < end; ++*n) {
		intent = intent_at(ring, *n);
		id.epoch = le64_to_cpu(intent->header.epoch);
		r = hybrid_intent_check(intent, ring->g, &id, why);
		if (r == -ENODATA || r == -EBADMSG || le64_to_cpu(intent->header.number) != *n) {
			intent->header.magic = 0;
			continue;
		}
		if (id.epoch != ring->id.epoch) {
			*why = "the intents go on from a newer root";
			return -ESTALE;
		}
		if (r)
			return r;
		ring->head = *n + 1;
		ring->flushed = max(ring->flushed, le64_to_cpu(intent->flushed));
	}
	return 0;
}

static int apply_intents(struct ring *ring, u64 *n, hybrid_intent_fn apply, void *context,
			 const char **why)
{
	const struct hybrid_intent *intent;
	bool flushed;
	u32 k, nr;
	int r = 0;

	for (*n = ring->tail; *n < ring->head; ++*n) {
		intent = intent_at(ring, *n);
		flushed = *n < ring->flushed;
		nr = intent->header.magic ? le32_to_cpu(intent->header.count) : 0;
		if (!nr && flushed) {
			*why = "an intent that was flushed is missing";
			return -ENODATA;
		}
		for (k = 0; !r && k < nr; k++)
			r = apply(context, &intent->record[k], flushed);
		if (r)
			return r;
		cond_resched();
	}
	return 0;
}

int hybrid_intents_replay(const struct hybrid_geometry *g, const struct hybrid_ident *id,
			  u64 *tail, hybrid_read_fn read, hybrid_intent_fn apply, void *context,
			  const char **why)
{
	struct ring ring = { .g = g, .id = *id, .tail = *tail, .head = *tail };
	int r;

	ring.block = vmalloc(array_size(g->intent_blocks, HYBRID_META_BLOCK_SIZE));
	if (!ring.block)
		return -ENOMEM;
	r = read_ring(&ring, read, context);
	if (!r)
		r = find_intents(&ring, tail, why);
	if (!r)
		r = apply_intents(&ring, tail, apply, context, why);
	vfree(ring.block);
	return r;
}

int hybrid_intent_read_data(const struct hybrid_geometry *g, const struct hybrid_ident *id,
			    const struct hybrid_intent_record *r, hybrid_read_fn read,
			    void *context, void *mem)
{
	u64 granules = le64_to_cpu(r->granules);
	u32 blocks = (hweight64(granules) << g->granule_shift) / HYBRID_META_BLOCK_SECTORS;
	u64 sector = hybrid_data_sector(g, to_cblock(le32_to_cpu(r->where))) +
		     ((u64)__ffs64(granules) << g->granule_shift);
	int error = read(context, sector, blocks, mem);

	if (error)
		return error;
	return xxh64(mem, blocks * HYBRID_META_BLOCK_SIZE, id->epoch) == le64_to_cpu(r->checksum);
}
