/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The map: which cache block holds a block of a volume, and which of its granules are
 * valid and dirty, both in RAM and on record.
 *
 * Cache blocks are divided into sets of set_size.  A key always lives in the
 * set that its hash names, anywhere within it.  Each set has arrays of its own.
 * After hybrid_map_create() only a change of the policy allocates or frees memory.
 *
 * Locking: all functions on a set need its lock, except hybrid_set_read_hit() and
 * hybrid_set_note_hit().  hybrid_set_find() without it is a hint.
 * Code that makes a granule invalid, or changes keys, chains or flags, does so
 * inside the set's sequence count, so that a lock-free reader notices.
 */
#ifndef DM_HYBRID_MAP_H
#define DM_HYBRID_MAP_H

#include "geometry.h"
#include "policy.h"

/* Key of a block: volume id and block number; fits format.h's limits. */
#define HYBRID_KEY_SHIFT	52
#define HYBRID_NO_KEY		U64_MAX

static inline u64 hybrid_key(u32 volume, oblock_t b)
{
	return (u64)volume << HYBRID_KEY_SHIFT | from_oblock(b);
}

static inline u32 hybrid_key_volume(u64 key)
{
	return key >> HYBRID_KEY_SHIFT;
}

static inline oblock_t hybrid_key_block(u64 key)
{
	return to_oblock(key & ((1ULL << HYBRID_KEY_SHIFT) - 1));
}

/*
 * Returns the fingerprint by which policies remember a key.  It does not depend on the
 * key's set.  It uses all of the product: hash_64() never returns more than 32 bits,
 * and the volume has no part in the lower ones.
 */
static inline u32 hybrid_key_fingerprint(u64 key)
{
	u64 h = key * GOLDEN_RATIO_64;

	return hash_64(h ^ (h >> 32), 32);
}

/* hybrid_set.flags */
#define BLOCK_MAPPED	BIT(0)	/* reads and writes find it */
#define BLOCK_JMAPPED	BIT(1)	/* the journal says it is mapped */
#define BLOCK_REMOVED	BIT(2)	/* evicted; its removal is not durable yet */
#define BLOCK_TRANSIT	BIT(3)	/* its removal record is on its way */
#define BLOCK_GRACE	BIT(4)	/* removed; reads may still be in flight */
#define BLOCK_BUSY	BIT(5)	/* a job works on it */
#define BLOCK_UNRESOLVED BIT(6)	/* loading: a journal record must resolve it */
#define BLOCK_KEPT	BIT(6)	/* once loaded: read as metadata, leaves last */
#define BLOCK_AHEAD	BIT(7)	/* filled ahead, or kept, and not read since */

enum hybrid_mask {
	MASK_VALID,	/* the cache copy can be read */
	MASK_DIRTY,	/* ... and is newer than the origin's */
	MASK_JVALID,	/* as the last submitted record says */
	MASK_JDIRTY,
	NR_MASKS
};

/* hybrid_set.free_use: has the place of a free block held data since it was discarded? */
#define FREE_TRIMMED	0
#define FREE_USED	1

/*
 * A policy and its state for each set.  Sets find both by one pointer, so that code
 * without the lock uses the operations and the state of the same policy.
 */
struct hybrid_policy_states {
	const struct hybrid_policy_type *type;
	size_t bytes;			/* of a set's state */
	/* One for each set, in order: set_policy_state() */
	u8 state[] ____cacheline_aligned_in_smp;
};

/* A bit for each region of a set */
struct hybrid_regions {
	u64 jopen;		/* open, as the last submitted record says */
	u64 dopen;		/* durably open; no submitted record closes it */
	u64 ending;		/* a record on its way ends a dirty granule */
	u64 dropping;		/* ... ends a clean granule, if the region is not durably open */
	u64 wanted;		/* to open with the next entry */
	u64 recent;		/* written since the last interval */
	u64 aged;		/* written in the interval before that */
	u64 must;		/* has records that a flush needs */
	u64 lazy;		/* has other unrecorded changes */
};

/* Blocks that leave last: BLOCK_KEPT */
struct hybrid_kept {
	u16 nr;			/* READ_ONCE without the lock */
	u16 aging;		/* evictions, in turn: metadata_ages() */
};

/* Users' I/O that waits for this set. */
struct hybrid_set_waiters {
	struct list_head ios;		/* hybrid_io.link */
	struct list_head ranges;	/* hybrid_io.range.wait_link */
};

#define REST_SAMPLES	4

/* Blocks of which only a part was filled: see REST_EVERY */
struct hybrid_samples {
	u16 fills;		/* in turn */
	u32 block[REST_SAMPLES];	/* the newest; 0: none */
};

/* Read hits use the first cache line alone: nobody writes it unless a granule becomes invalid. */
struct hybrid_set {
	seqcount_t seq;		/* covers the fields that lock-free readers use */
	u64 *key;
	void *mask;		/* NR_MASKS arrays of mask_bytes wide elements: mask_array() */
	u16 *next;		/* hash chain, or free list; set_size ends it */
	u16 *bucket;
	u8 *flags;
	struct hybrid_policy_states *policy;

	spinlock_t lock ____cacheline_aligned_in_smp;	/* everything in here */
	bool closing;		/* a job waits for writes in flight to end */
	u8 nr_retired;		/* blocks without owner, but not free, until the next load */
	struct hybrid_kept kept;
	u16 free;		/* head of the list of free blocks, through next */
	u16 nr_free;
	u16 nr_grace;
	u16 nr_mapped;
	u16 nr_dirty;		/* blocks that are dirty in RAM */
	struct hybrid_samples samples;
	union {			/* of a block, by its state */
		u32 *flush_epoch;	/* of its last origin write; while loading: hint */
		u32 *grace_period;	/* that must end: BLOCK_GRACE */
		u32 *free_use;		/* FREE_*, of a free block */
	};
	struct hybrid_regions regions;
	struct hlist_head inflight;	/* writes: hybrid_io.write.inflight */
	struct hlist_head intended;	/* hybrid_intended.node */
	struct hybrid_set_waiters waiting;
	struct list_head jobs;		/* hybrid_job.link */
};

#ifndef CONFIG_DEBUG_LOCK_ALLOC
static_assert(offsetofend(struct hybrid_set, policy) <= SMP_CACHE_BYTES);
#endif

struct hybrid_map {
	const struct hybrid_geometry *g;
	u32 nr_sets;
	u32 set_size;
	u32 nr_buckets;		/* a power of two */
	u8 mask_bytes;		/* 2, 4 or 8 */
	u32 mask_array;		/* bytes of one of a set's masks */
	u64 granules;		/* mask of all granules of a block */
	struct hybrid_set *set;
	void *arrays;
	struct hybrid_policy_states *policy;	/* that of all sets, except during a change */
	u32 *reads;		/* NULL, or first reads: hybrid_set_read_again() */
	u64 ram, policy_ram;	/* bytes allocated */
};

/* May sleep.  Returns 0 or -ENOMEM. */
int hybrid_map_create(struct hybrid_map *map, const struct hybrid_geometry *g);
void hybrid_map_destroy(struct hybrid_map *map);

/*
 * Allocates memory of first reads for all sets, 4 bytes for each block, if there is that much.
 * Once is enough, and two callers at a time do no harm.  May sleep.
 */
void hybrid_map_remember_reads(struct hybrid_map *map);

/*
 * Was @granule of the block of @key read not long ago, as far as this function was told?  It
 * remembers this read.  Without memory of first reads, every read counts as a second one.  Caller
 * holds the set's lock.
 */
bool hybrid_set_read_again(const struct hybrid_map *map, const struct hybrid_set *s, u64 key,
			   u32 granule);

/* Bytes that a map of that geometry takes, with the state of @policy. */
u64 hybrid_map_ram(const struct hybrid_geometry *g, const struct hybrid_policy_type *policy);

/*
 * Gives every set policy @type, which takes over the hints of the set's present policy,
 * if any.  May sleep, with I/O running.  The caller makes one call at a time, and holds
 * no set's lock.  Returns 0, and the caller frees *@old with vfree() once every hit that
 * began before has been noted; or -ENOMEM, and nothing has changed.
 */
int hybrid_map_set_policy(struct hybrid_map *map, const struct hybrid_policy_type *type,
			  void **old);

/* Returns the state of policy @p for set @s, which must be the map's own, no copy. */
static inline void *set_policy_state(const struct hybrid_map *map, struct hybrid_policy_states *p,
				     const struct hybrid_set *s)
{
	return p->state + (s - map->set) * p->bytes;
}

/* Number of the set in which @key lives. */
static inline u32 hybrid_map_set_of(const struct hybrid_map *map, u64 key)
{
	u64 h = hash_64(key >> map->g->window_shift, 32);

	return (h * map->nr_sets) >> 32;
}

static inline cblock_t hybrid_map_cblock(const struct hybrid_map *map, u32 set, u32 i)
{
	return to_cblock(set * map->set_size + i);
}

static inline void *mask_array(const struct hybrid_map *map, const struct hybrid_set *s,
			       enum hybrid_mask m)
{
	return s->mask + m * map->mask_array;
}

static inline u64 set_mask(const struct hybrid_map *map, const struct hybrid_set *s,
			   enum hybrid_mask m, u32 i)
{
	const void *array = mask_array(map, s, m);

	switch (map->mask_bytes) {
	case 2:
		return READ_ONCE(((u16 *)array)[i]);
	case 4:
		return READ_ONCE(((u32 *)array)[i]);
	default:
		return READ_ONCE(((u64 *)array)[i]);
	}
}

static inline void set_put_mask(const struct hybrid_map *map, struct hybrid_set *s,
				enum hybrid_mask m, u32 i, u64 mask)
{
	void *array = mask_array(map, s, m);

	switch (map->mask_bytes) {
	case 2:
		WRITE_ONCE(((u16 *)array)[i], mask);
		break;
	case 4:
		WRITE_ONCE(((u32 *)array)[i], mask);
		break;
	default:
		WRITE_ONCE(((u64 *)array)[i], mask);
	}
}

static inline u32 set_hash(const struct hybrid_map *map, u64 key)
{
	return hash_64(key ^ (key >> 29), 32) & (map->nr_buckets - 1);
}

static inline u64 region_bit(u32 i)
{
	return BIT_ULL(i / HYBRID_REGION_BLOCKS);
}

/*
 * Returns the index of the block that holds @key, mapped or removed, or -1.
 * Also runs without the lock, inside a section of the sequence count.  Then the
 * result means nothing until the count shows that no writer has disturbed the section.
 */
static inline int hybrid_set_find(const struct hybrid_map *map, const struct hybrid_set *s,
				  u64 key)
{
	u32 i = READ_ONCE(s->bucket[set_hash(map, key)]);
	u32 steps;

	for (steps = 0; i < map->set_size && steps < map->set_size; steps++) {
		if (READ_ONCE(s->key[i]) == key)
			return i;
		i = READ_ONCE(s->next[i]);
	}
	return -1;
}

/* The same, while no other task uses the set. */
static inline int hybrid_set_find_alone(const struct hybrid_map *map, const struct hybrid_set *s,
					u64 key)
{
	u32 i;

	for (i = s->bucket[set_hash(map, key)]; i < map->set_size; i = s->next[i])
		if (s->key[i] == key)
			return i;
	return -1;
}

/*
 * The read hit, without a lock: are all granules of @mask of @key valid?
 * Returns the block's index, or -1: no, or another task was changing the set, or the
 * block has BLOCK_AHEAD, so that this read has to be noted.
 */
static inline int hybrid_set_read_hit(const struct hybrid_map *map, const struct hybrid_set *s,
				      u64 key, u64 mask)
{
	unsigned int seq = READ_ONCE(s->seq.sequence);
	int i;

	/* Read the count before the fields that it covers; pairs with the writers' count. */
	smp_rmb();
	if (seq & 1)
		return -1;
	i = hybrid_set_find(map, s, key);
	if (i < 0 || (READ_ONCE(s->flags[i]) & (BLOCK_MAPPED | BLOCK_AHEAD)) != BLOCK_MAPPED)
		return -1;
	if (mask & ~set_mask(map, s, MASK_VALID, i))
		return -1;
	/* Read these fields before the count again; pairs with the writers' count. */
	smp_rmb();
	if (READ_ONCE(s->seq.sequence) != seq)
		return -1;
	return i;
}

/* Tells the policy that block @i was read or written.  Needs no lock: see policy.h. */
static inline void hybrid_set_note_hit(const struct hybrid_map *map, struct hybrid_set *s, u32 i)
{
	/* Type and state behind it are complete; pairs with set_change_policy(). */
	struct hybrid_policy_states *p = READ_ONCE(s->policy);

	p->type->hit(set_policy_state(map, p, s), i);
}

/* Tells the policy that block @i has a new owner, or its old one again. */
static inline void hybrid_set_note_insert(const struct hybrid_map *map, struct hybrid_set *s,
					  u32 i)
{
	struct hybrid_policy_states *p = s->policy;

	p->type->insert(set_policy_state(map, p, s), i, hybrid_key_fingerprint(s->key[i]));
}

/* From now on block @i leaves as other blocks do, whether or not it was kept. */
void hybrid_set_unkeep(struct hybrid_set *s, u32 i);

/* Tells the policy that block @i loses its owner. */
static inline void hybrid_set_note_remove(const struct hybrid_map *map, struct hybrid_set *s,
					  u32 i, bool evicted)
{
	struct hybrid_policy_states *p = s->policy;

	hybrid_set_unkeep(s, i);
	p->type->remove(set_policy_state(map, p, s), i, hybrid_key_fingerprint(s->key[i]), evicted);
}

/*
 * Takes a free block for @key, which has none.  The block is mapped, with nothing valid.
 * Returns its index, or -1 if no block is free.
 */
int hybrid_set_alloc(const struct hybrid_map *map, struct hybrid_set *s, u64 key);

/* Takes block @i out of the hash; its key stays readable. */
void hybrid_set_unhash(const struct hybrid_map *map, struct hybrid_set *s, u32 i);

/* Make block @i, unhashed or taken before, free; or retire it, so that it is not allocated. */
void hybrid_set_free(const struct hybrid_map *map, struct hybrid_set *s, u32 i);
void hybrid_set_retire(const struct hybrid_map *map, struct hybrid_set *s, u32 i);

/* Takes @nr free blocks from @first on: they are BUSY, without a key, and not allocated. */
void hybrid_set_take(const struct hybrid_map *map, struct hybrid_set *s, u32 first, u32 nr);

/* Is block @i free, and would its place have to be discarded? */
static inline bool hybrid_set_free_used(const struct hybrid_set *s, u32 i)
{
	return !s->flags[i] && s->free_use[i] == FREE_USED;
}

void hybrid_set_flags(struct hybrid_set *s, u32 i, u8 set, u8 clear);

/* Makes the granules of @mask of block @i invalid. */
void hybrid_set_invalidate(const struct hybrid_map *map, struct hybrid_set *s, u32 i, u64 mask);

static inline void set_hash_insert(const struct hybrid_map *map, struct hybrid_set *s, u32 i,
				   u64 key)
{
	u16 *bucket = &s->bucket[set_hash(map, key)];

	WRITE_ONCE(s->key[i], key);
	WRITE_ONCE(s->next[i], *bucket);
	WRITE_ONCE(*bucket, i);
}

/*
 * While a set is loaded no task reads it, and no block can be taken from it.  @s may be
 * a copy of the set: its counts are left to hybrid_set_count().
 */

/* Sets the valid masks of @count blocks from @first on, in RAM and on record. */
void hybrid_set_load_valid(const struct hybrid_map *map, struct hybrid_set *s, u32 first,
			   u32 count, const __le64 *valid);

/* Maps block @i, which is free, to @key, which has no block. */
static inline void hybrid_set_load(const struct hybrid_map *map, struct hybrid_set *s, u32 i,
				   u64 key)
{
	set_hash_insert(map, s, i, key);
	s->flags[i] = BLOCK_MAPPED | BLOCK_JMAPPED;
}

/* Counts @nr loaded blocks. */
static inline void hybrid_set_count(struct hybrid_set *s, u32 nr)
{
	s->nr_free -= nr;
	s->nr_mapped += nr;
}

/* Takes block @i out again, counted or not; its dirty masks are empty already. */
void hybrid_set_unload(const struct hybrid_map *map, struct hybrid_set *s, u32 i);

/* All of the set is loaded: lists the free blocks, in order. */
void hybrid_set_loaded(const struct hybrid_map *map, struct hybrid_set *s);

/* Has block @i a change in RAM that the journal does not have? */
static inline bool set_unrecorded(const struct hybrid_map *map, const struct hybrid_set *s, u32 i)
{
	bool mapped = s->flags[i] & BLOCK_MAPPED;
	bool jmapped = s->flags[i] & BLOCK_JMAPPED;

	if (mapped != jmapped)
		return !mapped || set_mask(map, s, MASK_VALID, i);
	return mapped && (set_mask(map, s, MASK_VALID, i) != set_mask(map, s, MASK_JVALID, i) ||
			  set_mask(map, s, MASK_DIRTY, i) != set_mask(map, s, MASK_JDIRTY, i));
}

/* Checks set @nr.  Returns NULL or the fault found.  Caller holds the set's lock. */
const char *hybrid_set_check(const struct hybrid_map *map, u32 nr);

#endif
