// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checkpoints: the leaves that changed, then the index blocks that name them,
 * then a flush, which makes both durable, then the root, which makes them count.
 *
 * Leaves hold the state of the journal, not of RAM: they are captured from the
 * j-masks, while no journal write is in flight.  A leaf may hold records from
 * after the checkpoint began; replaying them once more is harmless, because
 * records are absolute.
 *
 * A lost write is noticed because the block in its place has another generation
 * than the one named.  So no block may get a generation that may already stand in
 * its place, with other content: a checkpoint that was cut before its root leaves
 * such blocks.
 *   - A recovery's checkpoint advances generations by three steps, all others by one.
 *   - A recovery's checkpoint writes at least the blocks that a checkpoint cut since
 *     the last durable root can have left.  A map leaf is written only for a record
 *     of the journal, which is replayed, or by a recovery.  Of the volume table the
 *     recovery writes all leaves that exist.
 *   - A recovery that was cut leaves blocks that are three steps ahead.  The next
 *     recovery begins with the same root and the same journal, to which nothing was
 *     written since.  So it writes the same blocks again, except for their epoch, and
 *     the hints of another policy.
 *   - A recovery does not write leaves of the volume table that do not exist.  So a leaf
 *     that was never written begins with the generation of the index block that is to
 *     name it.  An index block that was never written begins with a number made from the
 *     root's sequence.  Leaves cannot use such a number, because two roots in a row may
 *     name the same tree.  If the newer one is damaged, a recovery from the older one
 *     would write an index block of the same generation that names other generations of
 *     leaves.
 */
#include "engine-internal.h"

/* Commits in between are built in the same memory. */
static_assert(HYBRID_JOURNAL_ENTRY_LIMIT(HYBRID_JOURNAL_MIN_BLOCKS) >= CHECKPOINT_BLOCKS);

int hybrid_checkpoint_create(struct hybrid_engine *e)
{
	u32 leaves = e->g->nr_leaves;

	e->cp.leaf_generation = alloc_zeroes(array_size(leaves, sizeof(u16)));
	e->cp.index_generation = alloc_zeroes(array_size(e->g->nr_index, sizeof(u16)));
	e->cp.leaf_dirty = alloc_bits(leaves);
	e->cp.indexes = alloc_bits(e->g->nr_index);
	if (!e->cp.leaf_generation || !e->cp.index_generation || !e->cp.leaf_dirty ||
	    !e->cp.indexes)
		return -ENOMEM;
	return 0;
}

void hybrid_checkpoint_destroy(struct hybrid_engine *e)
{
	kvfree(e->cp.leaf_generation);
	kvfree(e->cp.index_generation);
	kvfree(e->cp.leaf_dirty);
	kvfree(e->cp.indexes);
}

void hybrid_mark_leaf(struct hybrid_engine *e, u32 set, u32 i)
{
	set_bit(HYBRID_VOLUME_LEAVES + set * HYBRID_LEAVES_PER_SET + i / HYBRID_MAP_LEAF_BLOCKS,
		e->cp.leaf_dirty);
}

/* The leaves that record whether these regions are open. */
void hybrid_mark_region_leaves(struct hybrid_engine *e, u32 set, u64 regions)
{
	u32 i;

	for (i = 0; regions; i += HYBRID_MAP_LEAF_BLOCKS) {
		if (regions & GENMASK_ULL(HYBRID_MAP_LEAF_REGIONS - 1, 0))
			hybrid_mark_leaf(e, set, i);
		regions >>= HYBRID_MAP_LEAF_REGIONS;
	}
}

void hybrid_mark_volume_leaf(struct hybrid_engine *e, u32 id)
{
	set_bit(id / HYBRID_VOLUMES_PER_LEAF, e->cp.leaf_dirty);
}

/* The generation of a block that follows @g, in the other area: see above. */
static u16 later_generation(const struct hybrid_engine *e, u16 g)
{
	return hybrid_later_generation(g, e->cp.recovery ? 3 : 1);
}

static u16 next_index_generation(const struct hybrid_engine *e, u32 nr)
{
	u16 g = e->cp.index_generation[nr];

	if (!g)
		return hybrid_first_generation(e->cp.root_sequence + 1, e->cp.recovery);
	return later_generation(e, g);
}

/* Before the index block of @leaf is written. */
static u16 next_leaf_generation(const struct hybrid_engine *e, u32 leaf)
{
	u16 g = e->cp.leaf_generation[leaf];

	if (!g)
		return next_index_generation(e, leaf / HYBRID_INDEX_LEAVES);
	return later_generation(e, g);
}

void hybrid_checkpoint_recovery(struct hybrid_engine *e)
{
	u32 leaf;

	e->cp.recovery = true;
	for (leaf = 0; leaf < HYBRID_VOLUME_LEAVES; leaf++)
		if (e->cp.leaf_generation[leaf])
			set_bit(leaf, e->cp.leaf_dirty);
}

/* Under the engine's lock, with no metadata operation in flight; or while the pool is loaded. */
void hybrid_checkpoint_begin(struct hybrid_engine *e)
{
	/* Waiters for changes that this checkpoint will not cover get the next one. */
	if (!e->cp.lazy_due) {
		e->cp.wanted = false;
		list_splice_tail_init(&e->cp.waiters, &e->cp.now);
	}
	e->cp.tail = e->journal.head;
	e->cp.pos = 0;
	e->cp.phase = CP_LEAVES;
	bitmap_zero(e->cp.indexes, e->g->nr_index);
}

/* Copies of map and set, or each store would make the compiler read them again. */
static void capture_blocks(struct hybrid_engine *e, u32 set, u32 first, u32 count,
			   struct hybrid_map_leaf *block)
{
	const struct hybrid_map map = e->map;
	const struct hybrid_set s = map.set[set];
	u8 (*hint)(void *state, u32 i) = s.policy->type->hint;
	void *state = set_policy_state(&map, s.policy, &map.set[set]);
	const u8 recorded = BLOCK_JMAPPED | BLOCK_TRANSIT;
	u32 k, volume = HYBRID_MAX_VOLUMES;
	__le32 instance = 0;

	for (k = 0; k < count; k++) {
		u32 i = first + k;
		u64 key = s.key[i];

		if ((s.flags[i] & recorded) != BLOCK_JMAPPED)
			continue;
		if (hybrid_key_volume(key) != volume) {
			volume = hybrid_key_volume(key);
			instance = cpu_to_le32(key_volume(e, key)->info.instance);
		}
		block->oblock[k] = cpu_to_le64(from_oblock(hybrid_key_block(key)));
		block->instance[k] = instance;
		block->valid[k] = cpu_to_le64(set_mask(&map, &s, MASK_JVALID, i));
		block->dirty[k] = cpu_to_le64(set_mask(&map, &s, MASK_JDIRTY, i));
	}
	for (k = 0; k < count; k++)
		if ((s.flags[first + k] & (recorded | BLOCK_MAPPED)) ==
		    (BLOCK_JMAPPED | BLOCK_MAPPED))
			block->hint[k] = hint(state, first + k);
}

static void capture_map(struct hybrid_engine *e, u32 leaf, u16 generation, void *mem)
{
	u32 nr = leaf - HYBRID_VOLUME_LEAVES, set = nr / HYBRID_LEAVES_PER_SET;
	u32 first = nr % HYBRID_LEAVES_PER_SET * HYBRID_MAP_LEAF_BLOCKS;
	u32 count = first < e->map.set_size ?
		    min_t(u32, e->map.set_size - first, HYBRID_MAP_LEAF_BLOCKS) : 0;
	struct hybrid_set *s = &e->map.set[set];
	struct hybrid_map_leaf *block = mem;
	unsigned long flags;

	memset(block, 0, sizeof(*block));
	spin_lock_irqsave(&s->lock, flags);
	block->open_regions = cpu_to_le16(s->regions.jopen >> first / HYBRID_REGION_BLOCKS);
	capture_blocks(e, set, first, count, block);
	spin_unlock_irqrestore(&s->lock, flags);
	hybrid_map_seal(block, &e->meta.id, leaf, generation);
}

static void capture_volumes(struct hybrid_engine *e, u32 leaf, u16 generation, void *mem)
{
	static const struct hybrid_volume_info none;
	const struct hybrid_volume_info *info[HYBRID_VOLUMES_PER_LEAF];
	struct hybrid_volume_leaf *block = mem;
	unsigned long flags;
	u32 k;

	spin_lock_irqsave(&e->lock, flags);
	for (k = 0; k < HYBRID_VOLUMES_PER_LEAF; k++) {
		u32 id = leaf * HYBRID_VOLUMES_PER_LEAF + k;
		struct hybrid_volume *v = volume_of(e, id);

		info[k] = v ? &v->info : &none;
	}
	hybrid_volumes_encode(block, &e->meta.id, leaf, generation, info);
	spin_unlock_irqrestore(&e->lock, flags);
}

/* Write the block from next_block() to @sector.  Adjacent blocks share a segment. */
static void add_block(struct hybrid_engine *e, u64 sector)
{
	struct hybrid_segment *seg = &e->meta.segment[e->meta.op.nr_segments];

	if (e->cp.blocks && seg[-1].sector + seg[-1].count == sector) {
		seg[-1].count += HYBRID_META_BLOCK_SECTORS;
	} else {
		seg->origin = false;
		seg->sector = sector;
		seg->offset = e->cp.blocks * HYBRID_META_BLOCK_SECTORS;
		seg->count = HYBRID_META_BLOCK_SECTORS;
		e->meta.op.nr_segments++;
	}
	e->cp.blocks++;
}

/* Is there room for one more block in this write? */
static bool has_room(struct hybrid_engine *e)
{
	return e->cp.blocks < min_t(u32, e->journal.room, CHECKPOINT_BLOCKS) ||
	       hybrid_journal_grow(&e->journal, CHECKPOINT_BLOCKS);
}

/* No entry is being built: the memory for it is free. */
static void *next_block(struct hybrid_engine *e)
{
	return (void *)e->journal.entry + e->cp.blocks * HYBRID_META_BLOCK_SIZE;
}

static void step_leaves(struct hybrid_engine *e)
{
	u32 leaf;

	for (leaf = find_next_bit(e->cp.leaf_dirty, e->g->nr_leaves, e->cp.pos);
	     leaf < e->g->nr_leaves && has_room(e);) {
		u16 gen = next_leaf_generation(e, leaf);

		/* Before the leaf is captured: later changes are for the next checkpoint. */
		clear_bit(leaf, e->cp.leaf_dirty);
		__set_bit(leaf / HYBRID_INDEX_LEAVES, e->cp.indexes);
		if (leaf < HYBRID_VOLUME_LEAVES)
			capture_volumes(e, leaf, gen, next_block(e));
		else
			capture_map(e, leaf, gen, next_block(e));
		e->cp.leaf_generation[leaf] = gen;
		add_block(e, hybrid_leaf_sector(e->g, leaf, gen));
		e->cp.pos = leaf + 1;
		leaf = find_next_bit(e->cp.leaf_dirty, e->g->nr_leaves, e->cp.pos);
	}
}

static void step_indexes(struct hybrid_engine *e)
{
	u32 nr;

	for (nr = find_next_bit(e->cp.indexes, e->g->nr_index, e->cp.pos);
	     nr < e->g->nr_index && has_room(e);) {
		u16 gen = next_index_generation(e, nr);

		hybrid_index_encode(next_block(e), e->g, &e->meta.id, nr, gen,
				    e->cp.leaf_generation + nr * HYBRID_INDEX_LEAVES);
		e->cp.index_generation[nr] = gen;
		add_block(e, hybrid_index_sector(e->g, nr, gen));
		e->cp.pos = nr + 1;
		nr = find_next_bit(e->cp.indexes, e->g->nr_index, e->cp.pos);
	}
}

static void step_root(struct hybrid_engine *e)
{
	struct hybrid_root_info root = {
		.sequence = e->cp.root_sequence + 1,
		.epoch = e->meta.id.epoch,
		.journal_tail = e->cp.tail,
		.journal_head = e->journal.head,
		.intent_tail = e->journal.intent_tail,
		.next_instance = e->volumes.next_instance,
	};

	hybrid_wear_save(e, &root);
	/* Clean if no replay is needed: nothing was recorded since the checkpoint began. */
	e->cp.is_clean = e->cp.clean && e->cp.tail == e->journal.head &&
			 e->journal.intent_tail == READ_ONCE(e->intents.head);
	if (e->cp.is_clean)
		root.flags |= HYBRID_ROOT_CLEAN;
	hybrid_root_encode(next_block(e), e->g, &e->meta.id, &root, e->cp.index_generation);
	add_block(e, hybrid_root_sector(e->g, root.sequence));
	e->meta.op.fua = true;
}

void hybrid_checkpoint_step(struct hybrid_engine *e)
{
	struct hybrid_op *op = &e->meta.op;

	e->cp.blocks = 0;
	op->segments = e->meta.segment;
	if (e->cp.phase == CP_LEAVES) {
		step_leaves(e);
		if (!op->nr_segments) {
			e->cp.phase = CP_INDEX;
			e->cp.pos = 0;
		}
	}
	if (e->cp.phase == CP_INDEX) {
		step_indexes(e);
		if (!op->nr_segments)
			e->cp.phase = CP_FLUSH;
	}
	if (e->cp.phase == CP_FLUSH)
		op->type = HYBRID_OP_FLUSH;
	if (e->cp.phase == CP_ROOT)
		step_root(e);
	op->mem = e->journal.entry;
	add_stat(&e->stats.metadata_writes, e->cp.blocks);
}

/* The root is durable. */
static void checkpoint_done(struct hybrid_engine *e)
{
	hybrid_journal_shrink(&e->journal);
	e->cp.root_sequence++;
	e->journal.tail = e->cp.tail;
	e->cp.phase = CP_NONE;
	e->cp.recovery = false;
	add_stat(&e->stats.checkpoints, 1);
}

/* The operation that the last step prepared has ended. */
void hybrid_checkpoint_step_done(struct hybrid_engine *e)
{
	engine_assert(e, e->cp.phase != CP_NONE);
	if (e->cp.phase == CP_FLUSH)
		e->cp.phase = CP_ROOT;
	else if (e->cp.phase == CP_ROOT)
		checkpoint_done(e);
}
