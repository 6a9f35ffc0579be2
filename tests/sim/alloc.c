// SPDX-License-Identifier: GPL-2.0-or-later
/* Memory: the engine's, with a list of its blocks; and arenas of our own. */
#include <stdio.h>
#include <stdlib.h>

#include "sim.h"
#include "alloc.h"
#include "fibers.h"

#undef malloc
#undef calloc
#undef free

struct block {
	struct list_head link;
	struct heap *heap;
	size_t bytes;
	struct block *next_spare;
	u32 order;
	u64 pad[2];		/* the engine's part stays aligned to 64 bytes */
};

static_assert(sizeof(struct block) == 64);

struct heap *sim_heap;

void heap_init(struct heap *h)
{
	INIT_LIST_HEAD(&h->blocks);
	h->bytes = 0;
	h->raw = false;
}

/*
 * Freed blocks, by the power of two of their size: crash states allocate and free
 * the same blocks again and again.  A sanitizer needs to see each of these calls.
 */
#ifdef __SANITIZE_ADDRESS__
#define RECYCLE false
#else
#define RECYCLE true
#endif

static struct block *spare_blocks[40];

static struct block *get_block(size_t bytes)
{
	u32 order = ilog2(bytes - 1) + 1;
	struct block *b = RECYCLE ? spare_blocks[order] : NULL;

	if (b) {
		spare_blocks[order] = b->next_spare;
		return b;
	}
	b = aligned_alloc(64, RECYCLE ? 1UL << order : round_up(bytes, 64UL));
	if (!b)
		abort();
	b->order = order;
	return b;
}

static void put_block(struct block *b)
{
	if (!RECYCLE) {
		free(b);
		return;
	}
	b->next_spare = spare_blocks[b->order];
	spare_blocks[b->order] = b;
}

void *heap_alloc(struct heap *h, size_t bytes, int fill)
{
	struct block *b = get_block(sizeof(*b) + bytes);

	if (fill != HEAP_RAW)
		memset(b + 1, fill, bytes);
	b->heap = h;
	b->bytes = bytes;
	h->bytes += bytes;
	list_add_tail(&b->link, &h->blocks);
	return b + 1;
}

void heap_drop(struct heap *h)
{
	struct block *b, *next;

	list_for_each_entry_safe(b, next, &h->blocks, link)
		put_block(b);
	INIT_LIST_HEAD(&h->blocks);
	h->bytes = 0;
}

bool heap_empty(const struct heap *h)
{
	return list_empty(&h->blocks);
}

void *sim_malloc(size_t bytes)
{
	if (loop_alloc_fails())
		return NULL;
	return heap_alloc(sim_heap, bytes, sim_heap->raw ? HEAP_RAW : HEAP_POISON);
}

void *sim_calloc(size_t n, size_t bytes)
{
	if (loop_alloc_fails())
		return NULL;
	return heap_alloc(sim_heap, n * bytes, 0);
}

/* The blocks freed last: a call that overlaps the free may still access them. */
static struct block *freed[8];
static u32 nr_freed;

bool heap_freed(const void *p)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(freed); i++)
		if (freed[i] && p >= (void *)(freed[i] + 1) &&
		    p < (void *)(freed[i] + 1) + freed[i]->bytes)
			return true;
	return false;
}

void sim_free(void *p)
{
	struct block *b = p;

	if (!p)
		return;
	b--;
	b->heap->bytes -= b->bytes;
	list_del(&b->link);
	if (sim_interleave) {
		u32 i = nr_freed++ % ARRAY_SIZE(freed);

		swap(b, freed[i]);
	}
	if (b)
		put_block(b);
}

/* ---- Arenas --------------------------------------------------------------- */

#define CHUNK_BYTES (1UL << 20)

struct chunk {
	struct chunk *below;
	size_t used, size;
	char mem[];
};

struct arena sim_arena;

void *xalloc(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	if (!p)
		abort();
	return p;
}

void *xrealloc(void *p, size_t bytes)
{
	p = realloc(p, bytes);
	if (!p)
		abort();
	return p;
}

static struct chunk *spare;

static struct chunk *new_chunk(size_t bytes)
{
	struct chunk *c = spare;

	if (c && bytes <= CHUNK_BYTES) {
		spare = c->below;
		return c;
	}
	bytes = max_t(size_t, bytes, CHUNK_BYTES);
	c = malloc(sizeof(*c) + bytes);
	if (!c)
		abort();
	c->size = bytes;
	return c;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
	struct chunk *c = a->chunk;
	void *p;

	bytes = round_up(bytes, 16UL);
	if (!c || c->used + bytes > c->size) {
		c = new_chunk(bytes);
		c->below = a->chunk;
		c->used = 0;
		a->chunk = c;
	}
	p = c->mem + c->used;
	c->used += bytes;
	return p;
}

struct mark arena_mark(struct arena *a)
{
	struct mark m = { a->chunk, a->chunk ? a->chunk->used : 0 };

	return m;
}

void arena_release(struct arena *a, struct mark m)
{
	while (a->chunk != m.chunk) {
		struct chunk *c = a->chunk;

		a->chunk = c->below;
		if (c->size == CHUNK_BYTES) {
			c->below = spare;
			spare = c;
		} else {
			free(c);
		}
	}
	if (a->chunk)
		a->chunk->used = m.used;
}
