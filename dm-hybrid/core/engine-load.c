// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loading a pool's metadata.  Without a clean stop before, this is recovery:
 *   1. flush the cache device, so that no later power cut loses metadata that is
 *      read here (J8);
 *   2. read the current root, the index blocks that it names, and the leaves that
 *      the index blocks name;
 *   3. replay the journal;
 *   4. forget clean granules in open regions (the origin wins) and blocks of
 *      volumes that no longer exist;
 *   5. take the granules of intents whose data has the checksum;
 *   6. write a checkpoint under a new epoch, without the clean mark.  Only then
 *      may anything else happen.
 * If a crash interrupts it, the next load has the same result: the same blocks, in
 * the same generations (engine-checkpoint.c).
 */
#include "engine-internal.h"
#include "intent.h"

#define LOAD_BLOCKS 128	/* metadata blocks in one read, of up to as many runs */

struct loader {
	struct hybrid_engine *e;
	const char **why;
	void *mem;
	struct hybrid_segment *run;	/* LOAD_BLOCKS */
	u32 *volume_of;		/* sorted pairs: instance, volume id */
	u32 nr_volumes;
	u32 nr_unresolved;	/* blocks */
	/* The last instance looked up */
	u32 instance;
	struct hybrid_volume *volume;	/* NULL: no longer exists */
	u64 key, oblocks;	/* of its first block; number of its blocks */
};

static int read_runs(struct hybrid_engine *e, struct hybrid_segment *run, u32 nr, void *mem)
{
	struct hybrid_op op = { .mem = mem, .segments = run };

	INIT_LIST_HEAD(&op.link);
	op_begin(&op, HYBRID_OP_META, false, NULL, NULL);
	op.nr_segments = nr;
	return e->ops->do_op(e, &op);
}

static int read_blocks(struct hybrid_engine *e, u64 sector, u32 blocks, void *mem)
{
	struct hybrid_segment run = {
		.sector = sector,
		.count = blocks * HYBRID_META_BLOCK_SECTORS,
	};

	return read_runs(e, &run, 1, mem);
}

static int flush_cache(struct hybrid_engine *e)
{
	struct hybrid_op op = { .mem = NULL };

	INIT_LIST_HEAD(&op.link);
	op_begin(&op, HYBRID_OP_FLUSH, true, NULL, NULL);
	return e->ops->do_op(e, &op);
}

/* Returns -EUCLEAN for any kind of damage; *why says more. */
static int damaged(int r)
{
	return r == -EIO || r == -ENOMEM ? r : -EUCLEAN;
}

/* Returns -EUCLEAN.  @why: a phrase; the codec would name a field alone. */
static int refuse(struct loader *l, const char *why)
{
	*l->why = why;
	return -EUCLEAN;
}

static int load_root(struct loader *l, struct hybrid_root_info *best)
{
	struct hybrid_engine *e = l->e;
	u16 *generation = vzalloc(array_size(e->g->nr_index, sizeof(u16)));
	struct hybrid_root_info root;
	bool found = false;
	u64 area;
	int r = 0;

	if (!generation)
		return -ENOMEM;
	for (area = 0; area < 2; area++) {
		r = read_blocks(e, hybrid_root_sector(e->g, area), 1, l->mem);
		if (r)
			break;
		if (hybrid_root_decode(l->mem, e->g, &e->meta.id, &root, generation, l->why) ||
		    (root.sequence & 1) != area || (found && root.sequence < best->sequence))
			continue;
		found = true;
		*best = root;
		memcpy(e->cp.index_generation, generation, e->g->nr_index * sizeof(u16));
	}
	vfree(generation);
	if (r)
		return r;
	if (!found) {
		*l->why = "no valid root";
		return -EUCLEAN;
	}
	return 0;
}

static int load_indexes(struct loader *l)
{
	struct hybrid_engine *e = l->e;
	u32 nr;
	int r;

	for (nr = 0; nr < e->g->nr_index; nr++) {
		u16 gen = e->cp.index_generation[nr];

		if (!gen)
			continue;
		r = read_blocks(e, hybrid_index_sector(e->g, nr, gen), 1, l->mem);
		if (r)
			return r;
		r = hybrid_index_decode(l->mem, e->g, &e->meta.id, nr, gen,
					e->cp.leaf_generation + nr * HYBRID_INDEX_LEAVES, NULL);
		if (r)
			return refuse(l, "an index block is damaged, or its write was lost");
	}
	return 0;
}

/*
 * Finds the places of @n leaves from @first on, each in the area that its generation
 * names.  Neighbours share a run; no run has other blocks.  Returns the number of runs.
 */
static u32 find_runs(struct loader *l, u32 first, u32 n)
{
	const u16 *gen = l->e->cp.leaf_generation + first;
	u32 k, nr = 0;

	for (k = 0; k < n; k++) {
		struct hybrid_segment *run = &l->run[nr];
		u64 sector = hybrid_leaf_sector(l->e->g, first + k, gen[k]);

		if (!gen[k])
			continue;
		if (nr && run[-1].sector + run[-1].count == sector) {
			run[-1].count += HYBRID_META_BLOCK_SECTORS;
			continue;
		}
		*run = (struct hybrid_segment){
			.sector = sector,
			.offset = k * HYBRID_META_BLOCK_SECTORS,
			.count = HYBRID_META_BLOCK_SECTORS,
		};
		nr++;
	}
	return nr;
}

static int load_leaves(struct loader *l, u32 first, u32 end,
		       int (*leaf)(struct loader *l, u32 nr, void *block))
{
	struct hybrid_engine *e = l->e;
	u32 k, n, nr;
	int r = 0;

	for (; !r && first < end; first += n) {
		n = min_t(u32, end - first, LOAD_BLOCKS);
		nr = find_runs(l, first, n);
		if (nr)
			r = read_runs(e, l->run, nr, l->mem);
		for (k = 0; !r && k < n; k++) {
			if (e->cp.leaf_generation[first + k])
				r = leaf(l, first + k, l->mem + k * HYBRID_META_BLOCK_SIZE);
			cond_resched();
		}
	}
	return r;
}

/* ---- instances ----------------------------------------------------------- */

static int compare_pairs(const void *a, const void *b)
{
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	return x < y ? -1 : x > y;
}

static void note_instance(struct loader *l, u32 instance, u32 id)
{
	u32 *pair = l->volume_of + 2 * l->nr_volumes++;

	pair[0] = instance;
	pair[1] = id;
}

static int index_instances(struct loader *l)
{
	u32 k;

	sort(l->volume_of, l->nr_volumes, 2 * sizeof(u32), compare_pairs, NULL);
	for (k = 1; k < l->nr_volumes; k++)
		if (l->volume_of[2 * k] == l->volume_of[2 * (k - 1)]) {
			*l->why = "two volumes have one instance";
			return -EUCLEAN;
		}
	return 0;
}

static struct hybrid_volume *find_instance(struct loader *l, u32 instance)
{
	u32 low = 0, high = l->nr_volumes;

	while (low < high) {
		u32 mid = (low + high) / 2;

		if (l->volume_of[2 * mid] == instance)
			return volume_of(l->e, l->volume_of[2 * mid + 1]);
		if (l->volume_of[2 * mid] < instance)
			low = mid + 1;
		else
			high = mid;
	}
	return NULL;
}

/* Looks up the volume whose blocks carry @instance. */
static int look_up(struct loader *l, u32 instance)
{
	if (instance >= l->e->volumes.next_instance) {
		*l->why = "a block's volume instance was never given out";
		return -EUCLEAN;
	}
	l->instance = instance;
	l->volume = find_instance(l, instance);
	l->oblocks = 0;
	if (l->volume) {
		l->key = hybrid_key(l->volume->id, to_oblock(0));
		l->oblocks = ((hybrid_volume_reach(&l->volume->info) - 1) >>
			      l->e->g->block_shift) + 1;
	}
	return 0;
}

/* ---- volumes -------------------------------------------------------------- */

static int load_volumes(struct loader *l, u32 nr, void *block)
{
	struct hybrid_engine *e = l->e;
	struct hybrid_volume_info *info;
	struct hybrid_volume *v;
	int r;
	u32 k;

	info = kcalloc(HYBRID_VOLUMES_PER_LEAF, sizeof(*info), GFP_KERNEL);
	if (!info)
		return -ENOMEM;
	r = hybrid_volumes_decode(block, &e->meta.id, nr, e->cp.leaf_generation[nr], info, NULL);
	if (r)
		r = refuse(l, "a leaf of the volume table is damaged, or its write was lost");
	for (k = 0; !r && k < HYBRID_VOLUMES_PER_LEAF; k++) {
		u32 id = nr * HYBRID_VOLUMES_PER_LEAF + k;

		if (info[k].state == HYBRID_VOLUME_FREE || id >= HYBRID_MAX_VOLUMES)
			continue;
		if (info[k].instance >= e->volumes.next_instance) {
			*l->why = "a volume's instance was never given out";
			r = -EUCLEAN;
			break;
		}
		v = hybrid_volume_alloc(e, id, &info[k]);
		if (!v) {
			r = -ENOMEM;
			break;
		}
		hybrid_volume_enter(e, id, v);
		if (info[k].state == HYBRID_VOLUME_ACTIVE)
			note_instance(l, info[k].instance, id);
	}
	kfree(info);
	return r;
}

/* ---- the map ------------------------------------------------------------- */

static void unload(struct loader *l, struct hybrid_set *s, u32 i)
{
	if (s->flags[i] & BLOCK_MAPPED) {
		hybrid_put_dirty(l->e, s, i, 0);
		hybrid_put_jdirty(l->e, s, i, 0);
		atomic_dec(&key_volume(l->e, s->key[i])->blocks.cached);
		hybrid_set_unload(&l->e->map, s, i);
	}
	if (s->flags[i] & BLOCK_UNRESOLVED)
		l->nr_unresolved--;
	s->flags[i] = 0;
}

/*
 * An activation spends its time in the functions below, which run for each block of the
 * cache.  So they are inline, in loops of few variables, and on copies of map and set:
 * otherwise the compiler would read map and set again after each store.
 */

/* Finds the block's key.  Returns 1 and *key; 0 if the volume no longer exists; or -EUCLEAN. */
static __always_inline int find_key(struct loader *l, const struct hybrid_map *map, u32 set,
				    u32 instance, u64 oblock, u64 *key)
{
	int r = instance == l->instance ? 0 : look_up(l, instance);

	if (r)
		return r;
	if (oblock >= l->oblocks) {
		if (!l->volume)
			return 0;
		*l->why = "a block lies beyond its volume's end";
		return -EUCLEAN;
	}
	*key = l->key | oblock;
	if (hybrid_map_set_of(map, *key) != set) {
		*l->why = "a block is in the wrong set";
		return -EUCLEAN;
	}
	atomic_inc(&l->volume->blocks.cached);
	return 1;
}

/* Only the key of block @i is known yet.  Caller holds the set's lock. */
static noinline void load_dirty(struct hybrid_engine *e, u32 set, u32 i, u64 dirty)
{
	hybrid_put_dirty(e, &e->map.set[set], i, dirty);
	hybrid_put_jdirty(e, &e->map.set[set], i, dirty);
}

/*
 * A checkpoint captures leaves one by one while the journal goes on, so that two of
 * them may claim one block of a volume.  The journal must resolve that, with a record
 * of the cache block that loses here.
 */
static noinline void outdo(struct loader *l, u32 set, u32 other)
{
	struct hybrid_set *s = &l->e->map.set[set];

	unload(l, s, other);
	s->flags[other] = BLOCK_UNRESOLVED;
	l->nr_unresolved++;
}

/* The last step: from here on a lookup of @key finds block @i. */
static __always_inline void load_block(struct loader *l, const struct hybrid_map *map,
				       struct hybrid_set *s, u32 set, u32 i, u64 key)
{
	int other = hybrid_set_find_alone(map, s, key);

	if (other >= 0)
		outdo(l, set, other);
	hybrid_set_load(map, s, i, key);
}

static int load_keys(struct loader *l, u32 set, u32 first, u32 count,
		     struct hybrid_map_leaf *leaf)
{
	const struct hybrid_map map = l->e->map;
	u64 *set_key = map.set[set].key + first, key = HYBRID_NO_KEY;
	u32 k;
	int r;

	for (k = 0; k < count; k++) {
		u32 instance = le32_to_cpu(leaf->instance[k]);

		if (!instance)
			continue;
		r = find_key(l, &map, set, instance, le64_to_cpu(leaf->oblock[k]), &key);
		if (r < 0)
			return r;
		if (r) {
			set_key[k] = key;
			continue;
		}
		/* Such a block is free; its leaf on the disk still says otherwise. */
		leaf->valid[k] = 0;
		leaf->dirty[k] = 0;
		hybrid_mark_leaf(l->e, set, first + k);
	}
	return 0;
}

static void load_masks(struct loader *l, u32 set, u32 first, u32 count,
		       const struct hybrid_map_leaf *leaf)
{
	struct hybrid_map *map = &l->e->map;
	u32 *hint = map->set[set].flush_epoch + first, k;

	hybrid_set_load_valid(map, &map->set[set], first, count, leaf->valid);
	for (k = 0; k < count; k++) {
		hint[k] = leaf->hint[k];
		if (leaf->dirty[k])
			load_dirty(l->e, set, first + k, le64_to_cpu(leaf->dirty[k]));
	}
}

static noinline void load_blocks(struct loader *l, u32 set, u32 first, u32 count)
{
	const struct hybrid_map map = l->e->map;
	struct hybrid_set s = map.set[set];
	u32 i, nr = 0;

	for (i = first; i < first + count; i++) {
		if (s.key[i] == HYBRID_NO_KEY)
			continue;
		load_block(l, &map, &s, set, i, s.key[i]);
		nr++;
	}
	hybrid_set_count(&map.set[set], nr);
}

static int load_map(struct loader *l, u32 nr, void *mem)
{
	struct hybrid_engine *e = l->e;
	u32 set = (nr - HYBRID_VOLUME_LEAVES) / HYBRID_LEAVES_PER_SET;
	u32 first = (nr - HYBRID_VOLUME_LEAVES) % HYBRID_LEAVES_PER_SET * HYBRID_MAP_LEAF_BLOCKS;
	u32 count = first < e->map.set_size ?
		    min_t(u32, e->map.set_size - first, HYBRID_MAP_LEAF_BLOCKS) : 0;
	struct hybrid_set *s = &e->map.set[set];
	struct hybrid_map_leaf *leaf = mem;
	unsigned long flags;
	int r;

	r = hybrid_map_check(leaf, e->g, &e->meta.id, nr, e->cp.leaf_generation[nr], count, NULL);
	if (r)
		return refuse(l, "a leaf of the map is damaged, or its write was lost");
	spin_lock_irqsave(&s->lock, flags);
	s->regions.jopen |= (u64)le16_to_cpu(leaf->open_regions) << first / HYBRID_REGION_BLOCKS;
	r = load_keys(l, set, first, count, leaf);
	if (!r) {
		load_masks(l, set, first, count, leaf);
		load_blocks(l, set, first, count);
	}
	spin_unlock_irqrestore(&s->lock, flags);
	return r;
}

static int replay_read(void *context, u64 sector, u32 blocks, void *mem)
{
	struct loader *l = context;

	return read_blocks(l->e, sector, blocks, mem);
}

static int replay_apply(void *context, const struct hybrid_record *record)
{
	struct loader *l = context;
	struct hybrid_engine *e = l->e;
	u32 where = le32_to_cpu(record->where), set = where / e->map.set_size;
	u32 i = where % e->map.set_size;
	struct hybrid_set *s = &e->map.set[set];
	unsigned long flags;
	u64 key = HYBRID_NO_KEY;
	int r;

	if (le32_to_cpu(record->type) == HYBRID_RECORD_REGIONS) {
		u64 open = le64_to_cpu(record->valid);

		hybrid_mark_region_leaves(e, where, e->map.set[where].regions.jopen ^ open);
		e->map.set[where].regions.jopen = open;
		return 0;
	}
	hybrid_mark_leaf(e, set, i);
	spin_lock_irqsave(&s->lock, flags);
	if (s->flags[i])
		unload(l, s, i);
	r = find_key(l, &e->map, set, le32_to_cpu(record->instance),
		     le64_to_cpu(record->oblock), &key);
	if (r > 0) {
		s->key[i] = key;
		hybrid_set_load_valid(&e->map, s, i, 1, &record->valid);
		load_dirty(e, set, i, le64_to_cpu(record->dirty));
		load_block(l, &e->map, s, set, i, key);
		hybrid_set_count(s, 1);
	}
	spin_unlock_irqrestore(&s->lock, flags);
	return min(r, 0);
}

/* In open regions the origin wins: clean granules there are forgotten. */
static void forget_region(struct hybrid_engine *e, struct hybrid_set *s, u32 first)
{
	u32 end = min(first + HYBRID_REGION_BLOCKS, e->map.set_size), i;

	for (i = first; i < end; i++) {
		u64 dirty = block_mask(e, s, MASK_JDIRTY, i);

		if (dirty) {
			set_put_mask(&e->map, s, MASK_VALID, i, dirty);
			set_put_mask(&e->map, s, MASK_JVALID, i, dirty);
		} else if (s->flags[i] & BLOCK_MAPPED) {
			atomic_dec(&key_volume(e, s->key[i])->blocks.cached);
			hybrid_set_unload(&e->map, s, i);
		}
	}
}

/* Hands the hints to the policy; from here on flush epochs are in their place. */
static void load_policy(struct hybrid_engine *e, struct hybrid_set *s)
{
	void (*load)(void *state, u32 i, u8 hint) = s->policy->type->load;
	void *state = set_policy_state(&e->map, s->policy, s);
	u32 i, n = s->nr_mapped ? e->map.set_size : 0;
	const u32 *hint = s->flush_epoch;
	const u8 *flags = s->flags;

	for (i = 0; i < n; i++)
		if (flags[i] & BLOCK_MAPPED)
			load(state, i, hint[i]);
	memset(s->flush_epoch, 0, e->map.set_size * sizeof(*s->flush_epoch));
}

/* The journal has been replayed. */
static void forget_open_regions(struct hybrid_engine *e, u32 set)
{
	struct hybrid_set *s = &e->map.set[set];
	unsigned long flags;
	u32 i;

	if (!s->regions.jopen)
		return;
	spin_lock_irqsave(&s->lock, flags);
	for (i = 0; i < e->map.set_size; i += HYBRID_REGION_BLOCKS)
		if (s->regions.jopen & region_bit(i))
			forget_region(e, s, i);
	hybrid_mark_region_leaves(e, set, s->regions.jopen);
	s->regions.jopen = 0;
	spin_unlock_irqrestore(&s->lock, flags);
}

/* All metadata of the set has been read. */
static void set_loaded(struct hybrid_engine *e, u32 set)
{
	struct hybrid_set *s = &e->map.set[set];
	unsigned long flags;

	spin_lock_irqsave(&s->lock, flags);
	load_policy(e, s);
	hybrid_set_loaded(&e->map, s);
	spin_unlock_irqrestore(&s->lock, flags);
}

/* ---- intents -------------------------------------------------------------- */

/* Finds the block of the volume that a record names.  Returns 1 and *key, 0, or -EUCLEAN. */
static int intent_key(struct loader *l, const struct hybrid_intent_record *r, u32 set, u32 i,
		      u64 *key)
{
	const struct hybrid_map *map = &l->e->map;
	const struct hybrid_set *s = &map->set[set];
	u64 oblock = le64_to_cpu(r->oblock);
	int error = look_up(l, le32_to_cpu(r->instance));

	if (error || !l->volume)
		return error;
	*key = l->key | oblock;
	if (oblock >= l->oblocks ||
	    hybrid_intent_end(l->e->g, r) > hybrid_volume_reach(&l->volume->info))
		return refuse(l, "an intent lies beyond its volume's end");
	if (hybrid_map_set_of(map, *key) != set)
		return refuse(l, "an intent is for the wrong set");
	if (s->flags[i] ? s->key[i] != *key : hybrid_set_find_alone(map, s, *key) >= 0)
		return refuse(l, "an intent is for another block than the map says");
	return 1;
}

/* The granules of block @i are dirty, as if a record had said so. */
static void take_granules(struct loader *l, u32 set, u32 i, u64 key, u64 granules)
{
	struct hybrid_engine *e = l->e;
	struct hybrid_set *s = &e->map.set[set];
	unsigned long flags;
	u64 valid = granules;

	spin_lock_irqsave(&s->lock, flags);
	if (s->flags[i]) {
		valid |= block_mask(e, s, MASK_VALID, i);
	} else {
		hybrid_set_load(&e->map, s, i, key);
		hybrid_set_count(s, 1);
		s->flush_epoch[i] = 0;	/* the hint */
		atomic_inc(&l->volume->blocks.cached);
	}
	set_put_mask(&e->map, s, MASK_VALID, i, valid);
	set_put_mask(&e->map, s, MASK_JVALID, i, valid);
	load_dirty(e, set, i, block_mask(e, s, MASK_DIRTY, i) | granules);
	hybrid_mark_leaf(e, set, i);
	spin_unlock_irqrestore(&s->lock, flags);
}

static int load_intent(void *context, const struct hybrid_intent_record *r, bool flushed)
{
	struct loader *l = context;
	struct hybrid_engine *e = l->e;
	u32 set = le32_to_cpu(r->where) / e->map.set_size;
	u32 i = le32_to_cpu(r->where) % e->map.set_size;
	u64 granules = le64_to_cpu(r->granules), key = HYBRID_NO_KEY;
	int found = intent_key(l, r, set, i, &key);

	if (found <= 0)
		return found;
	/* A granule that is valid has been recorded since. */
	if (block_mask(e, &e->map.set[set], MASK_JVALID, i) & granules)
		return 0;
	found = hybrid_intent_read_data(e->g, &e->meta.id, r, replay_read, l, l->mem);
	if (found == -ENOMEM)
		return found;
	if (found < 0)
		return refuse(l, "data under an intent cannot be read");
	if (!found && flushed)
		return refuse(l, "data under an intent was lost");
	if (found)
		take_granules(l, set, i, key, granules);
	return 0;
}

static int load_intents(struct loader *l)
{
	struct hybrid_engine *e = l->e;
	u64 head = e->journal.intent_tail;
	int r;

	if (hybrid_number_ends(head)) {
		*l->why = "no intent number is left";
		return -EUCLEAN;
	}
	r = hybrid_intents_replay(e->g, &e->meta.id, &head, replay_read, load_intent, l, l->why);
	if (r == -EINVAL)
		r = refuse(l, "an intent has impossible contents");
	/* The checkpoint of the recovery ends what all of them say. */
	e->journal.intent_tail = head;
	e->intents.head = head;
	e->intents.flushed = head;
	return r;
}

/* ---- making it durable --------------------------------------------------- */

static int write_checkpoint(struct hybrid_engine *e)
{
	int r;

	hybrid_checkpoint_begin(e);
	while (e->cp.phase != CP_NONE) {
		op_begin(&e->meta.op, HYBRID_OP_META, true, NULL, NULL);
		hybrid_checkpoint_step(e);
		r = e->ops->do_op(e, &e->meta.op);
		if (r) {
			e->cp.phase = CP_NONE;
			return r;
		}
		hybrid_checkpoint_step_done(e);
	}
	return 0;
}

static int start(struct hybrid_engine *e, const char **why)
{
	int r;

	e->meta.id.epoch = e->ops->random(e);
	e->cp.clean = false;
	r = write_checkpoint(e);
	if (r) {
		*why = "the cache device cannot be written";
		return r;
	}
	WRITE_ONCE(e->life.state, POOL_RUNNING);
	return 0;
}

static int load(struct loader *l)
{
	struct hybrid_engine *e = l->e;
	struct hybrid_root_info root = { .sequence = 0 };
	u32 set;
	int r;

	r = flush_cache(e);
	if (!r)
		r = load_root(l, &root);
	if (r)
		return r;
	if (hybrid_number_ends(root.sequence) || hybrid_number_ends(root.journal_head)) {
		*l->why = "no sequence or journal number is left";
		return -EUCLEAN;
	}
	e->cp.root_sequence = root.sequence;
	e->meta.id.epoch = root.epoch;
	e->volumes.next_instance = root.next_instance;
	hybrid_wear_load(e, &root);
	e->journal.tail = root.journal_tail;
	e->journal.head = root.journal_head;
	e->journal.intent_tail = root.intent_tail;
	r = load_indexes(l);
	if (!r)
		r = load_leaves(l, 0, HYBRID_VOLUME_LEAVES, load_volumes);
	if (!r)
		r = index_instances(l);
	if (!r)
		r = load_leaves(l, HYBRID_VOLUME_LEAVES, e->g->nr_leaves, load_map);
	if (!r)
		r = hybrid_journal_replay(&e->journal, &e->meta.id, root.journal_head, replay_read,
					  replay_apply, l, l->why);
	if (r == -EINVAL)
		r = refuse(l, "an entry of the journal has impossible contents");
	if (r)
		return damaged(r);
	if (l->nr_unresolved) {
		*l->why = "two cache blocks hold one block of a volume";
		return -EUCLEAN;
	}
	for (set = 0; set < e->map.nr_sets; set++)
		forget_open_regions(e, set);
	r = load_intents(l);
	if (r)
		return damaged(r);
	for (set = 0; set < e->map.nr_sets; set++) {
		set_loaded(e, set);
		cond_resched();
	}
	return 0;
}

int hybrid_engine_load(struct hybrid_engine *e, const char **why)
{
	struct loader l = { .e = e, .why = why };
	int r = -ENOMEM;

	*why = "the cache device cannot be read";
	l.mem = vmalloc(LOAD_BLOCKS * HYBRID_META_BLOCK_SIZE);
	l.run = vmalloc(array_size(LOAD_BLOCKS, sizeof(*l.run)));
	l.volume_of = vmalloc(array_size(HYBRID_MAX_VOLUMES, 2 * sizeof(u32)));
	if (l.mem && l.run && l.volume_of)
		r = load(&l);
	vfree(l.mem);
	vfree(l.run);
	vfree(l.volume_of);
	/* A block decoded before may have left another reason. */
	if (r == -EIO)
		*why = "the cache device cannot be read";
	if (r == -ENOMEM)
		*why = "there is not enough memory";
	if (r)
		return r;
	hybrid_checkpoint_recovery(e);
	return start(e, why);
}

int hybrid_engine_restart(struct hybrid_engine *e, const char **why)
{
	int r;

	*why = "the pool has failed";
	if (e->life.failed)
		return -EIO;
	e->trim.refused = false;
	r = start(e, why);
	if (r) {
		/* The device died meanwhile: its volumes go on without it (P5). */
		WRITE_ONCE(e->life.state, POOL_RUNNING);
		WRITE_ONCE(e->life.failed, true);
	}
	return r;
}
