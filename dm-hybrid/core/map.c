// SPDX-License-Identifier: GPL-2.0-only
#include "map.h"

static size_t array_bytes(u32 nr, size_t size)
{
	return round_up(nr * size, 8);
}

/*
 * Places the arrays of one set, widest elements first, and returns their bytes.  With
 * @s NULL only computes the bytes.
 */
static size_t set_layout(struct hybrid_map *map, struct hybrid_set *s, void *base)
{
	u32 n = map->set_size;
	size_t at[6], bytes = 0;
	unsigned int a = 0;

	at[a++] = bytes;
	bytes += array_bytes(n, sizeof(u64));
	at[a++] = bytes;
	bytes += NR_MASKS * map->mask_array;
	at[a++] = bytes;
	bytes += array_bytes(n, sizeof(u32));
	at[a++] = bytes;
	bytes += array_bytes(n, sizeof(u16));
	at[a++] = bytes;
	bytes += array_bytes(map->nr_buckets, sizeof(u16));
	at[a++] = bytes;
	bytes += array_bytes(n, sizeof(u8));
	/* Sets share no cache line. */
	bytes = round_up(bytes, SMP_CACHE_BYTES);
	if (!s)
		return bytes;
	a = 0;
	s->key = base + at[a++];
	s->mask = base + at[a++];
	s->flush_epoch = base + at[a++];
	s->next = base + at[a++];
	s->bucket = base + at[a++];
	s->flags = base + at[a++];
	return bytes;
}

static void set_init(struct hybrid_map *map, struct hybrid_set *s)
{
	u32 i, n = map->set_size, buckets = map->nr_buckets;
	u16 *next = s->next, *bucket = s->bucket;

	spin_lock_init(&s->lock);
	seqcount_init(&s->seq);
	INIT_HLIST_HEAD(&s->inflight);
	INIT_HLIST_HEAD(&s->intended);
	INIT_LIST_HEAD(&s->waiting.ios);
	INIT_LIST_HEAD(&s->waiting.ranges);
	INIT_LIST_HEAD(&s->jobs);
	for (i = 0; i < buckets; i++)
		bucket[i] = n;
	memset(s->key, 0xff, n * sizeof(u64));	/* HYBRID_NO_KEY */
	for (i = 0; i < n; i++)
		next[i] = i + 1;
	s->free = 0;
	s->nr_free = n;
}

/* Sets all sizes of the map; returns the bytes of one set's arrays. */
static size_t map_shape(struct hybrid_map *map, const struct hybrid_geometry *g)
{
	memset(map, 0, sizeof(*map));
	map->g = g;
	map->nr_sets = g->nr_sets;
	map->set_size = g->set_size;
	map->nr_buckets = roundup_pow_of_two(max(g->set_size / 2, 1U));
	map->mask_bytes = g->granules <= 16 ? 2 : g->granules / 8;
	map->mask_array = array_bytes(g->set_size, map->mask_bytes);
	map->granules = GENMASK_ULL(g->granules - 1, 0);
	return set_layout(map, NULL, NULL);
}

static size_t policy_bytes(u32 set_size, const struct hybrid_policy_type *policy)
{
	return round_up(max_t(size_t, policy->set_bytes(set_size), 8), SMP_CACHE_BYTES);
}

u64 hybrid_map_ram(const struct hybrid_geometry *g, const struct hybrid_policy_type *policy)
{
	struct hybrid_map map;
	u64 set_bytes = sizeof(*map.set) + map_shape(&map, g) + policy_bytes(g->set_size, policy);

	return set_bytes * g->nr_sets;
}

int hybrid_map_create(struct hybrid_map *map, const struct hybrid_geometry *g)
{
	size_t stride = map_shape(map, g);
	size_t bytes = array_size(map->nr_sets, stride);
	u32 nr;

	map->set = vzalloc(array_size(map->nr_sets, sizeof(*map->set)));
	map->arrays = vzalloc(bytes);
	if (!map->set || !map->arrays) {
		hybrid_map_destroy(map);
		return -ENOMEM;
	}
	map->ram = (u64)bytes + map->nr_sets * sizeof(*map->set);
	for (nr = 0; nr < map->nr_sets; nr++) {
		struct hybrid_set *s = &map->set[nr];

		set_layout(map, s, map->arrays + nr * stride);
		set_init(map, s);
		cond_resched();
	}
	return 0;
}

/* Makes @new the set's policy, which takes over the present policy's hints. */
static void set_change_policy(const struct hybrid_map *map, struct hybrid_set *s,
			      struct hybrid_policy_states *new)
{
	void *to = set_policy_state(map, new, s), *from;
	struct hybrid_policy_states *old;
	unsigned long flags;
	u32 i;

	new->type->init(to, map->set_size);
	spin_lock_irqsave(&s->lock, flags);
	old = s->policy;
	if (old) {
		from = set_policy_state(map, old, s);
		for (i = 0; i < map->set_size; i++)
			if (s->flags[i] & BLOCK_MAPPED)
				new->type->load(to, i, old->type->hint(from, i));
	}
	/* The new state is complete before a hit finds it; pairs with hybrid_set_note_hit(). */
	smp_store_release(&s->policy, new);
	spin_unlock_irqrestore(&s->lock, flags);
}

int hybrid_map_set_policy(struct hybrid_map *map, const struct hybrid_policy_type *type,
			  void **old)
{
	size_t bytes = policy_bytes(map->set_size, type);
	size_t all = array_size(map->nr_sets, bytes);
	struct hybrid_policy_states *new = vzalloc(struct_size(new, state, all));
	u32 nr;

	if (!new)
		return -ENOMEM;
	new->type = type;
	new->bytes = bytes;
	for (nr = 0; nr < map->nr_sets; nr++) {
		set_change_policy(map, &map->set[nr], new);
		cond_resched();
	}
	*old = map->policy;
	map->policy = new;
	WRITE_ONCE(map->policy_ram, all);
	return 0;
}

void hybrid_map_destroy(struct hybrid_map *map)
{
	vfree(map->policy);
	vfree(map->reads);
	vfree(map->arrays);
	vfree(map->set);
	map->policy = NULL;
	map->reads = NULL;
	map->arrays = NULL;
	map->set = NULL;
}

/* ---- first reads ----------------------------------------------------------- */

/*
 * An entry of ->reads is half of a block's fingerprint, and a bit for each part of the block that
 * was read: a granule, or a 16th of a block with more.  A set has as many entries as blocks, in
 * buckets, each with the newest entry first.
 */
#define READS_BUCKET	8
#define READS_PARTS	16

static u32 reads_buckets(const struct hybrid_map *map)
{
	return DIV_ROUND_UP(map->set_size, READS_BUCKET);
}

void hybrid_map_remember_reads(struct hybrid_map *map)
{
	size_t bytes = array_size(map->nr_sets * reads_buckets(map), READS_BUCKET * sizeof(u32));
	u32 *reads;

	if (READ_ONCE(map->reads))
		return;
	reads = vzalloc(bytes);
	if (!reads)
		return;
	if (cmpxchg(&map->reads, NULL, reads))
		vfree(reads);	/* another volume's opening was faster */
	else
		WRITE_ONCE(map->ram, map->ram + bytes);
}

bool hybrid_set_read_again(const struct hybrid_map *map, const struct hybrid_set *s, u64 key,
			   u32 granule)
{
	u32 fingerprint = hybrid_key_fingerprint(key), buckets = reads_buckets(map), seen, n;
	u32 part = BIT(granule * READS_PARTS / max_t(u32, map->g->granules, READS_PARTS));
	u32 *entry = READ_ONCE(map->reads);

	lockdep_assert_held(&s->lock);
	if (!entry)
		return true;
	entry += ((s - map->set) * buckets + ((fingerprint & U16_MAX) * buckets >> 16)) *
		 READS_BUCKET;
	for (n = 0; n < READS_BUCKET - 1; n++)
		if (entry[n] >> 16 == fingerprint >> 16)
			break;
	seen = entry[n] >> 16 == fingerprint >> 16 ? entry[n] : fingerprint & ~U16_MAX;
	memmove(entry + 1, entry, n * sizeof(*entry));
	entry[0] = seen | part;
	return seen & part;
}

int hybrid_set_alloc(const struct hybrid_map *map, struct hybrid_set *s, u64 key)
{
	u32 i = s->free;
	unsigned int m;

	lockdep_assert_held(&s->lock);
	if (!s->nr_free || i >= map->set_size)
		return -1;
	raw_write_seqcount_begin(&s->seq);
	s->free = s->next[i];
	s->nr_free--;
	s->nr_mapped++;
	for (m = 0; m < NR_MASKS; m++)
		set_put_mask(map, s, m, i, 0);
	s->flush_epoch[i] = 0;
	set_hash_insert(map, s, i, key);
	WRITE_ONCE(s->flags[i], BLOCK_MAPPED);
	raw_write_seqcount_end(&s->seq);
	return i;
}

static __always_inline void unhash(const struct hybrid_map *map, struct hybrid_set *s, u32 i)
{
	u16 *link = &s->bucket[set_hash(map, s->key[i])];
	u32 steps;

	for (steps = 0; *link < map->set_size && steps < map->set_size; steps++) {
		if (*link == i) {
			WRITE_ONCE(*link, s->next[i]);
			break;
		}
		link = &s->next[*link];
	}
}

void hybrid_set_unhash(const struct hybrid_map *map, struct hybrid_set *s, u32 i)
{
	lockdep_assert_held(&s->lock);
	raw_write_seqcount_begin(&s->seq);
	unhash(map, s, i);
	raw_write_seqcount_end(&s->seq);
}

static __always_inline void disown(const struct hybrid_map *map, struct hybrid_set *s, u32 i)
{
	unsigned int m;

	WRITE_ONCE(s->key[i], HYBRID_NO_KEY);
	WRITE_ONCE(s->flags[i], 0);
	for (m = 0; m < NR_MASKS; m++)
		set_put_mask(map, s, m, i, 0);
}

void hybrid_set_free(const struct hybrid_map *map, struct hybrid_set *s, u32 i)
{
	lockdep_assert_held(&s->lock);
	raw_write_seqcount_begin(&s->seq);
	disown(map, s, i);
	s->free_use[i] = FREE_USED;
	WRITE_ONCE(s->next[i], s->nr_free ? s->free : map->set_size);
	s->free = i;
	s->nr_free++;
	raw_write_seqcount_end(&s->seq);
}

void hybrid_set_take(const struct hybrid_map *map, struct hybrid_set *s, u32 first, u32 nr)
{
	u16 *link = &s->free;
	u32 left = s->nr_free;

	lockdep_assert_held(&s->lock);
	raw_write_seqcount_begin(&s->seq);
	for (; left; left--) {
		u32 i = *link;

		if (i - first >= nr) {
			link = &s->next[i];
			continue;
		}
		WRITE_ONCE(*link, s->next[i]);
		WRITE_ONCE(s->flags[i], BLOCK_BUSY);
		s->nr_free--;
	}
	raw_write_seqcount_end(&s->seq);
}

void hybrid_set_retire(const struct hybrid_map *map, struct hybrid_set *s, u32 i)
{
	lockdep_assert_held(&s->lock);
	raw_write_seqcount_begin(&s->seq);
	disown(map, s, i);
	s->free_use[i] = FREE_TRIMMED;
	s->nr_retired++;
	raw_write_seqcount_end(&s->seq);
}

void hybrid_set_flags(struct hybrid_set *s, u32 i, u8 set, u8 clear)
{
	u8 old = s->flags[i], new = (old & ~clear) | set;

	lockdep_assert_held(&s->lock);
	raw_write_seqcount_begin(&s->seq);
	WRITE_ONCE(s->flags[i], new);
	if ((old ^ new) & BLOCK_MAPPED)
		s->nr_mapped += new & BLOCK_MAPPED ? 1 : -1;
	raw_write_seqcount_end(&s->seq);
}

void hybrid_set_unkeep(struct hybrid_set *s, u32 i)
{
	if (!(s->flags[i] & BLOCK_KEPT))
		return;
	WRITE_ONCE(s->kept.nr, s->kept.nr - 1);
	hybrid_set_flags(s, i, 0, BLOCK_KEPT | BLOCK_AHEAD);
}

void hybrid_set_invalidate(const struct hybrid_map *map, struct hybrid_set *s, u32 i, u64 mask)
{
	u64 valid = set_mask(map, s, MASK_VALID, i);

	lockdep_assert_held(&s->lock);
	if (!(valid & mask))
		return;
	raw_write_seqcount_begin(&s->seq);
	set_put_mask(map, s, MASK_VALID, i, valid & ~mask);
	raw_write_seqcount_end(&s->seq);
}

static void load_masks(const struct hybrid_map *map, void *mask, u32 first, u32 count,
		       const __le64 *from)
{
	u16 *mask2 = mask;
	u32 *mask4 = mask;
	u64 *mask8 = mask;
	u32 k;

	switch (map->mask_bytes) {
	case 2:
		for (k = 0; k < count; k++)
			mask2[first + k] = le64_to_cpu(from[k]);
		break;
	case 4:
		for (k = 0; k < count; k++)
			mask4[first + k] = le64_to_cpu(from[k]);
		break;
	default:
		for (k = 0; k < count; k++)
			mask8[first + k] = le64_to_cpu(from[k]);
	}
}

void hybrid_set_load_valid(const struct hybrid_map *map, struct hybrid_set *s, u32 first,
			   u32 count, const __le64 *valid)
{
	load_masks(map, mask_array(map, s, MASK_VALID), first, count, valid);
	memcpy(mask_array(map, s, MASK_JVALID) + first * map->mask_bytes,
	       mask_array(map, s, MASK_VALID) + first * map->mask_bytes, count * map->mask_bytes);
}

void hybrid_set_unload(const struct hybrid_map *map, struct hybrid_set *s, u32 i)
{
	unhash(map, s, i);
	s->nr_free++;
	s->nr_mapped--;
	s->key[i] = HYBRID_NO_KEY;
	set_put_mask(map, s, MASK_VALID, i, 0);
	set_put_mask(map, s, MASK_JVALID, i, 0);
	s->flags[i] = 0;
}

void hybrid_set_loaded(const struct hybrid_map *map, struct hybrid_set *s)
{
	u32 i, left = s->nr_free, free = map->set_size;
	const u64 *key = s->key;
	u16 *next = s->next;

	for (i = map->set_size; left && i-- > 0;) {
		if (key[i] != HYBRID_NO_KEY)
			continue;
		next[i] = free;
		free = i;
		left--;
	}
	s->free = free;
}

static const char *check_block(const struct hybrid_map *map, u32 nr, u32 i)
{
	struct hybrid_set *s = &map->set[nr];
	u8 flags = s->flags[i];
	u64 dirty = set_mask(map, s, MASK_DIRTY, i);

	if (!(flags & BLOCK_MAPPED) && (flags & BLOCK_KEPT))
		return "a block that is not mapped is kept";
	if (!(flags & (BLOCK_MAPPED | BLOCK_REMOVED)))
		return dirty ? "a block that is not mapped is dirty" : NULL;
	if ((flags & (BLOCK_MAPPED | BLOCK_REMOVED)) == (BLOCK_MAPPED | BLOCK_REMOVED))
		return "a block is mapped and removed";
	if (hybrid_map_set_of(map, s->key[i]) != nr)
		return "a block is in the wrong set";
	if (hybrid_set_find(map, s, s->key[i]) != (int)i)
		return "two blocks have one key, or a chain is broken";
	if (dirty & ~set_mask(map, s, MASK_VALID, i))
		return "dirty is not within valid";
	if (set_mask(map, s, MASK_JDIRTY, i) & ~set_mask(map, s, MASK_JVALID, i))
		return "recorded dirty is not within recorded valid";
	if (set_unrecorded(map, s, i) && !((s->regions.must | s->regions.lazy) & region_bit(i)) &&
	    hlist_empty(&s->inflight) && !(flags & (BLOCK_BUSY | BLOCK_TRANSIT)))
		return "an unrecorded change is not listed";
	return NULL;
}

/* Does the list have nr_free blocks, all of them without owner? */
static bool check_free(const struct hybrid_map *map, const struct hybrid_set *s)
{
	u32 i = s->free, n;

	for (n = 0; n < s->nr_free; n++) {
		if (i >= map->set_size || s->flags[i])
			return false;
		i = s->next[i];
	}
	return true;
}

const char *hybrid_set_check(const struct hybrid_map *map, u32 nr)
{
	struct hybrid_set *s = &map->set[nr];
	u32 i, mapped = 0, dirty = 0, grace = 0, free = 0, kept = 0;

	for (i = 0; i < map->set_size; i++) {
		const char *why = check_block(map, nr, i);

		if (why)
			return why;
		mapped += !!(s->flags[i] & BLOCK_MAPPED);
		dirty += !!set_mask(map, s, MASK_DIRTY, i);
		grace += !!(s->flags[i] & BLOCK_GRACE);
		free += !s->flags[i];
		kept += !!(s->flags[i] & BLOCK_KEPT);
	}
	if (mapped != s->nr_mapped || dirty != s->nr_dirty || grace != s->nr_grace ||
	    free != (u32)s->nr_free + s->nr_retired || kept != s->kept.nr)
		return "a set's counts are wrong";
	if (!check_free(map, s))
		return "a set's list of free blocks is wrong";
	if (s->regions.dopen & ~s->regions.jopen)
		return "a region is durably open that was recorded closed";
	return NULL;
}
