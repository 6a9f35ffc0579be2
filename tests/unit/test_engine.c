// SPDX-License-Identifier: GPL-2.0-or-later
/* The engine: pools, lives and volumes, and failures.  test_traffic.c tests the traffic. */
#include "rig.h"

#include "engine-internal.h"

/* ---- pools ---------------------------------------------------------------- */

static void fresh_pool(void **state)
{
	struct hybrid_pool_status st;

	start();
	st = pool();
	assert_int_equal(st.blocks, sb.geometry.nr_blocks);
	assert_int_equal(st.free, st.blocks);
	assert_int_equal(st.used + st.dirty + st.volumes + st.open_regions + st.failed, 0);
	assert_true(st.checkpoints == 1);
	stop();
	crash();
	/* again, from a clean stop, and from a crash right after the start */
	start();
	crash();
	start();
	assert_int_equal(pool().free, st.blocks);
}

static void not_a_pool(void **state)
{
	const char *why = NULL;
	int error;
	u8 *root;

	e = new_engine(&error);
	assert_non_null(e);
	fail_cache_reads = true;
	assert_int_equal(hybrid_engine_load(e, &why), -EIO);
	fail_cache_reads = false;
	crash();
	e = new_engine(&error);
	root = disk[0] + 512 * hybrid_root_sector(&sb.geometry, 2);
	root[200] ^= 1;
	assert_int_equal(hybrid_engine_load(e, &why), -EUCLEAN);
	assert_string_equal(why, "no valid root");
	root[200] ^= 1;
	crash();
	/* nothing was written, and nothing is lost */
	start();
}

/* No reader would accept the root that follows. */
static void last_root(void **state)
{
	struct hybrid_root_info root = { .sequence = BIT_ULL(62), .next_instance = 1 };
	const char *why = NULL;
	u32 round, n;
	int error;

	for (round = 0; round < 3; round++) {
		write_root(&root);
		e = new_engine(&error);
		assert_non_null(e);
		nr_log = 0;
		assert_int_equal(hybrid_engine_load(e, &why), -EUCLEAN);
		assert_string_equal(why, round < 2 ? "no sequence or journal number is left" :
				    "no intent number is left");
		for (n = 0; n < nr_log; n++)
			assert_false(op_log[n].write);
		crash();
		root.sequence = 4;
		root.journal_tail = root.journal_head = round ? 0 : BIT_ULL(62);
		root.intent_tail = round ? BIT_ULL(62) : 0;
		memset(disk[0] + 512 * hybrid_root_sector(&sb.geometry, 0), 0, 4096);
	}
}

static void ram(void **state)
{
	static const char * const policies[] = { "c2q", "s3fifo", "sieve", "arc", "lru", "fifo" };
	char name[HYBRID_POLICY_NAME_SIZE];
	struct hybrid_pool_status st;
	int error;
	u32 i;

	assert_int_equal(hybrid_geometry_init(&sb.geometry, GIB, 128, 0, NULL), 0);
	e = new_engine(&error);
	assert_non_null(e);
	st = pool();
	assert_true(st.blocks > 16000);
	assert_true(st.ram <= 32 * (u64)st.blocks);
	hybrid_engine_policy_name(e, name);
	assert_string_equal(name, "lru");
	assert_true(st.ram == hybrid_engine_ram(&sb.geometry, hybrid_policy_get(name)));
	/* 512 MiB for 1 TiB, with any policy */
	assert_int_equal(hybrid_geometry_init(&sb.geometry, 1024ULL * GIB, 128, 0, NULL), 0);
	for (i = 0; i < ARRAY_SIZE(policies); i++)
		assert_true(hybrid_engine_ram(&sb.geometry, hybrid_policy_get(policies[i])) <=
			    512ULL << 20);
}

/* ---- volumes -------------------------------------------------------------- */

static void volumes(void **state)
{
	struct hybrid_volume_info other = info, same;
	struct hybrid_volume *w;
	const char *why;

	/* setup made and opened number 1 */
	assert_int_equal(hybrid_volume_create(e, 1, &other), -EEXIST);
	assert_int_equal(hybrid_volume_create(e, 2, &other), -EEXIST);
	assert_int_equal(hybrid_volume_create(e, HYBRID_MAX_VOLUMES, &other), -EINVAL);
	other.uuid[0]++;
	other.member_uuid[0]++;
	assert_int_equal(hybrid_volume_create(e, 2, &other), -EEXIST);	/* the name */
	/* a volume that could not be loaded again */
	strcpy(other.name, ".other");
	assert_int_equal(hybrid_volume_create(e, 2, &other), -EINVAL);
	strcpy(other.name, "other");
	other.data_sector++;
	assert_int_equal(hybrid_volume_create(e, 2, &other), -EINVAL);
	other.data_sector--;
	assert_int_equal(hybrid_volume_create(e, 4095, &other), 0);
	assert_int_equal(hybrid_volume_info(e, 4095, &same), 0);
	assert_string_equal(same.name, "other");
	assert_true(same.instance > 1);
	assert_int_equal(hybrid_volume_info(e, 2, &same), -ENOENT);

	assert_int_equal(hybrid_volume_open(e, 2, ORIGIN_SECTORS, NULL, &w, &why), -ENOENT);
	assert_int_equal(hybrid_volume_open(e, 1, ORIGIN_SECTORS, NULL, &w, &why), -EBUSY);
	/* its member is another */
	assert_int_equal(hybrid_volume_open(e, 4095, ORIGIN_SECTORS, NULL, &w, &why),
			 -EMEDIUMTYPE);
	assert_string_equal(why, "belongs to another volume");
	assert_int_equal(hybrid_volume_open(e, 4095, 1024, NULL, &w, &why), -EMEDIUMTYPE);

	assert_int_equal(hybrid_volume_forget(e, 4095), -EBUSY);
	assert_int_equal(hybrid_volume_delete(e, 1, false), -EBUSY);
	assert_int_equal(hybrid_volume_delete(e, 4095, false), 0);
	assert_int_equal(hybrid_volume_open(e, 4095, ORIGIN_SECTORS, NULL, &w, &why), -ENOENT);
	crash();
	start();
	assert_int_equal(hybrid_volume_info(e, 4095, &same), 0);
	assert_int_equal(same.state, HYBRID_VOLUME_TOMBSTONE);
	assert_int_equal(hybrid_volume_forget(e, 4095), 0);
	assert_int_equal(hybrid_volume_info(e, 4095, &same), -ENOENT);
	open_volume();
	assert_int_equal(pool().volumes, 1);
}

/* Sequence of the root in area @area. */
static u64 root_sequence(u32 area)
{
	const struct hybrid_root *root = (void *)disk[0] +
					 512 * hybrid_root_sector(&sb.geometry, area);

	return le64_to_cpu(root->header.generation);
}

/*
 * A volume is closed while the clean checkpoint is written.  The close records changes that make
 * this checkpoint unclean, but its root is still a root: the next one may be torn.
 */
static void closed_while_it_stops(void **state)
{
	struct hybrid_actions acts;

	set_mode(HYBRID_MODE_WRITETHROUGH);
	reads(BLOCK, BLOCK, 0);
	rest();
	put(BLOCK, BLOCK, 2);
	hybrid_actions_init(&acts);
	assert_true(hybrid_volume_suspend(e, v, &acts));
	/* The region stays open: nobody flushes the origin. */
	assert_false(hybrid_engine_stop(e, &acts));
	carry(&acts);
	hold_meta = true;
	assert_false(hybrid_engine_stop(e, &acts));
	carry(&acts);
	assert_non_null(held_meta);
	assert_int_equal(hybrid_volume_close(e, v), 0);
	assert_null(held_meta);
	crash();
	memset(disk[0] + 512 * hybrid_root_sector(&sb.geometry, root_sequence(1) > root_sequence(0)),
	       0, HYBRID_META_BLOCK_SIZE);
	start();
	open_volume();
	reads(BLOCK, BLOCK, 2);
}

/* Wear counts over all lives of the cache device, traffic since it was loaded. */
static void wear_outlives_the_engine(void **state)
{
	u64 written;

	put(0, BLOCK, 2);
	rest();
	written = pool().total_written;
	assert_true(written >= BLOCK);
	assert_int_equal(pool().cache_written, written);
	stop();
	crash();
	start();
	open_volume();
	assert_true(pool().total_written - pool().cache_written >= written);
	written = pool().total_written;
	put(0, BLOCK, 3);
	assert_true(pool().total_written >= written + BLOCK);
}

/*
 * A volume that was to be closed stays open: its users must hear of data that its origin lost
 * meanwhile.
 */
static void settling_that_fails_is_said(void **state)
{
	struct hybrid_actions acts;

	set_mode(HYBRID_MODE_WRITETHROUGH);
	put(0, BLOCK, 2);
	hybrid_actions_init(&acts);
	assert_true(hybrid_volume_suspend(e, v, &acts));
	carry(&acts);
	fail_origin = true;
	assert_int_equal(hybrid_volume_settle(e, v), -EIO);
	fail_origin = false;
	assert_int_equal(hybrid_volume_settle(e, v), -EIO);
	hybrid_actions_init(&acts);
	hybrid_volume_resume(e, v, &acts);
	carry(&acts);
	assert_int_equal(flush_volume(), -EIO);
	reads(0, BLOCK, 2);
}

/*
 * Either root may be lost: the other one knows that the volume is gone, and its blocks belong to
 * others.
 */
static void deleted_in_both_roots(void **state)
{
	u8 *kept = malloc(CACHE_SECTORS * 512);
	struct hybrid_volume_info gone;
	struct hybrid_actions acts;
	u64 slot;

	reads(BLOCK, BLOCK, 0);
	hybrid_actions_init(&acts);
	assert_true(hybrid_volume_suspend(e, v, &acts));
	carry(&acts);
	assert_int_equal(hybrid_volume_close(e, v), 0);
	assert_int_equal(hybrid_volume_delete(e, 1, false), 0);
	crash();
	memcpy(kept, disk[0], CACHE_SECTORS * 512);
	for (slot = 0; slot < 2; slot++) {
		memcpy(disk[0], kept, CACHE_SECTORS * 512);
		memset(disk[0] + 512 * hybrid_root_sector(&sb.geometry, slot), 0,
		       HYBRID_META_BLOCK_SIZE);
		start();
		assert_int_equal(hybrid_volume_info(e, 1, &gone), 0);
		assert_int_equal(gone.state, HYBRID_VOLUME_TOMBSTONE);
		assert_int_equal(pool().used, 0);
		crash();
	}
	free(kept);
}

static u64 generation_at(u64 sector)
{
	const struct hybrid_block_header *header = (void *)disk[0] + 512 * sector;

	return le64_to_cpu(header->generation);
}

/*
 * Creates volume @id, and cuts the power before the root that names it is written.  No block
 * written may have the generation of the block that it replaced: a lost write would not be
 * noticed.
 */
static void create_and_cut(u32 id)
{
	const struct hybrid_geometry *g = &sb.geometry;
	size_t bytes = 2 * HYBRID_META_BLOCK_SIZE;
	void *roots = disk[0] + 512 * g->root_sector, *kept = malloc(bytes);
	u32 leaf = id / HYBRID_VOLUMES_PER_LEAF, area, leaves = 0, indexes = 0;
	u64 left[2], index[2];
	struct hybrid_volume_info other = info;

	other.uuid[0] += id;
	other.member_uuid[0] += id;
	snprintf(other.name, sizeof(other.name), "other-%u", id);
	memcpy(kept, roots, bytes);
	for (area = 0; area < 2; area++) {
		left[area] = generation_at(hybrid_leaf_sector(g, leaf, area));
		index[area] = generation_at(hybrid_index_sector(g, 0, area));
	}
	assert_int_equal(hybrid_volume_create(e, id, &other), 0);
	for (area = 0; area < 2; area++) {
		leaves += generation_at(hybrid_leaf_sector(g, leaf, area)) != left[area];
		indexes += generation_at(hybrid_index_sector(g, 0, area)) != index[area];
	}
	assert_int_equal(leaves, 1);
	assert_int_equal(indexes, 1);
	memcpy(roots, kept, bytes);
	free(kept);
	crash();
	start();
	assert_int_equal(hybrid_volume_info(e, id, &other), -ENOENT);
}

/* No recovery writes this leaf of the volume table, because it was never written. */
static void cut_before_its_root(void **state)
{
	u32 n;

	for (n = 0; n < 4; n++)
		create_and_cut(20 + n);
}

/*
 * Flush epochs have 32 bits: durable ones do not fall behind, and the epoch does not run ahead while
 * flushes fail.
 */
static void flush_epochs_are_lifted(void **state)
{
	static const struct hybrid_config config = HYBRID_CONFIG_DEFAULT;
	struct hybrid_set *s;
	u32 n, i;
	u64 epoch;

	small_pool(16 * MIB, HYBRID_MODE_WRITEAROUND, &config);
	assert_int_equal(e->map.nr_sets, 1);
	s = &e->map.set[0];
	read_io(0, BLOCK);
	for (i = 0; !(s->flags[i] & BLOCK_MAPPED); i++)
		;
	for (n = 0; n < 2 * LIFT_FLUSHES; n++) {
		assert_int_equal(write_io(8 * BLOCK, 8, n, false), 0);
		assert_int_equal(flush_volume(), 0);
		assert_true(origin_durable(v, s->flush_epoch[i]));
		assert_true(v->flush.flushed - s->flush_epoch[i] <= LIFT_FLUSHES);
		assert_true(v->flush.last_write >= v->flush.flushed);
	}
	/* a flush without a write */
	v->flush.last_write = 1;
	v->flush.last_user_write = v->flush.epoch;
	assert_int_equal(flush_volume(), 0);
	assert_true(v->flush.last_write == v->flush.flushed);
	epoch = v->flush.epoch;
	fail_origin = true;
	for (n = 0; n < 3; n++) {
		v->flush.last_user_write = v->flush.epoch;
		assert_int_equal(flush_volume(), -EIO);
	}
	assert_true(v->flush.epoch <= epoch + 1);
	fail_origin = false;
}

/* Closes volume 1 and opens it again: it is in place, so its cached data is forgotten. */
static void open_cold(int error)
{
	struct hybrid_actions acts;

	hybrid_actions_init(&acts);
	assert_true(hybrid_volume_suspend(e, v, &acts));
	carry(&acts);
	assert_int_equal(hybrid_volume_close(e, v), error);
	open_volume();
}

/* After setup_disks(): an engine with volume 1 in place, opened. */
static void begin_in_place(u32 mode)
{
	info.flags = HYBRID_VOLUME_INPLACE;
	info.data_sector = 0;
	info.mode = mode;
	start();
	assert_int_equal(hybrid_volume_create(e, 1, &info), 0);
	open_volume();
}

/*
 * Blocks that no record knows go with their volume's instance.  Their leaf must not be
 * written for that: a recovery would not know that a checkpoint may have been cut.
 */
static void leaf_without_records(void **state)
{
	const struct hybrid_geometry *g = &sb.geometry;
	size_t bytes = 2 * HYBRID_META_BLOCK_SIZE, nr = 2 * g->nr_leaves, k;
	u64 *left = calloc(nr, sizeof(*left));
	void *roots = disk[0] + 512 * g->root_sector, *kept = malloc(bytes);

	begin_in_place(HYBRID_MODE_WRITEAROUND);
	/* its leaves have been written, and say nothing of it any more */
	read_io(0, BLOCK);
	rest();
	open_cold(0);
	crash();
	start();
	open_volume();
	fail_origin = true;
	assert_int_equal(write_io(8 * BLOCK, 8, 1, false), -EIO);
	assert_int_equal(flush_volume(), -EIO);
	fail_origin = false;
	read_io(0, BLOCK);
	assert_int_equal(status().cached, 1);
	open_cold(-EIO);
	assert_int_equal(status().cached, 0);
	memcpy(kept, roots, bytes);
	assert_int_equal(wait_checkpoint(e), 0);
	memcpy(roots, kept, bytes);
	crash();
	for (k = 0; k < nr; k++)
		left[k] = generation_at(g->leaf_sector + k * HYBRID_META_BLOCK_SECTORS);
	start();
	open_volume();
	read_io(0, BLOCK);
	nr_log = 0;
	rest();
	for (k = 0; k < nr_log; k++) {
		const struct logged_op *op = &op_log[k];
		u64 at = (op->sector - g->leaf_sector) / HYBRID_META_BLOCK_SECTORS;

		if (!op->meta || op->sector < g->leaf_sector || op->sector >= g->journal_sector)
			continue;
		assert_int_equal(op->count, HYBRID_META_BLOCK_SECTORS);
		assert_true(at % g->nr_leaves >= HYBRID_VOLUME_LEAVES);
		assert_true(generation_at(op->sector) != left[at]);
		break;
	}
	assert_true(k < nr_log);
	free(left);
	free(kept);
}

/* The cache dies: an origin in place, of which nothing was dirty, goes on, and its flushes end well. */
static void flush_in_place_of_a_dead_cache(void **state)
{
	begin_in_place(HYBRID_MODE_WRITETHROUGH);
	read_io(0, BLOCK);
	put(0, 8, 1);
	assert_int_equal(status().dirty, 0);
	fail_cache_writes = true;
	assert_int_equal(wait_checkpoint(e), -EIO);
	assert_true(e->life.failed);
	/* As after a write that ended beside the failure: no commit will flush it. */
	note_cache_written(v);
	assert_int_equal(flush_volume(), 0);
	reads(0, 8, 1);
	put(8, 8, 2);
	assert_int_equal(flush_volume(), 0);
	fail_cache_writes = false;
}

/* A deletion that could not be recorded is not done, however often it is asked for. */
static void not_deleted(void **state)
{
	struct hybrid_volume_info other = info;
	u32 n;

	other.uuid[0]++;
	other.member_uuid[0]++;
	strcpy(other.name, "other");
	assert_int_equal(hybrid_volume_create(e, 2, &other), 0);
	fail_cache_writes = true;
	for (n = 0; n < 3; n++)
		assert_int_equal(hybrid_volume_delete(e, 2, false), -EIO);
	/* Nor is it forgotten, for its blocks are still there. */
	assert_int_equal(hybrid_volume_forget(e, 2), -EIO);
	assert_int_equal(hybrid_volume_info(e, 2, &other), 0);
	fail_cache_writes = false;
	crash();
	start();
	assert_int_equal(hybrid_volume_info(e, 2, &other), 0);
	assert_int_equal(other.state, HYBRID_VOLUME_ACTIVE);
}

/* Change one copy of the origin's superblock. */
static void change_copy(u32 copy, void (*change)(struct hybrid_sb *sb))
{
	u64 at = hybrid_sb_sector(ORIGIN_SECTORS, copy);
	void *block = disk[1] + at * 512;
	struct hybrid_sb other;

	assert_int_equal(hybrid_sb_decode(block, at, ORIGIN_SECTORS, &other, NULL), 0);
	change(&other);
	hybrid_sb_encode(block, &other, at);
}

static void other_nonce(struct hybrid_sb *sb)
{
	sb->nonce += 2;
}

static void written_without_its_cache(void **state)
{
	struct hybrid_volume *w;
	const char *why;
	u32 copy, dirty;

	for (dirty = 0; dirty < 2; dirty++) {
		set_mode(HYBRID_MODE_WRITEBACK);
		reads(BLOCK, BLOCK, 0);
		if (dirty)
			first_dirty();
		stop();
		crash();
		/* somebody gives the origin another nonce */
		for (copy = 0; copy < 2; copy++)
			change_copy(copy, other_nonce);
		disk[1][(DATA + BLOCK) * 512 + 8] = 0x77;
		start();
		if (dirty) {
			assert_int_equal(hybrid_volume_open(e, 1, ORIGIN_SECTORS, NULL, &w, &why),
					 -EMEDIUMTYPE);
			return;
		}
		open_volume();
		assert_int_equal(status().cached, 0);
		reads(BLOCK, BLOCK, 0);
	}
}

static void other_member(struct hybrid_sb *sb)
{
	sb->member_uuid[0]++;
}

static void read_only(struct hybrid_sb *sb)
{
	sb->ro_compat = 1;
}

/* The highest that a reader takes: there is no next one. */
static void last_sequence(struct hybrid_sb *sb)
{
	sb->sequence = BIT_ULL(62);
}

static void writable(struct hybrid_sb *sb)
{
	sb->ro_compat = 0;
}

static void origin_refused(const char *reason)
{
	const char *why;
	u32 before;

	start();
	before = nr_log;
	assert_int_equal(hybrid_volume_open(e, 1, ORIGIN_SECTORS, NULL, &v, &why), -EMEDIUMTYPE);
	assert_string_equal(why, reason);
	for (; before < nr_log; before++)
		assert_false(op_log[before].origin && op_log[before].write);
	crash();
}

/* A copy of the cache device from a time when nothing was dirty lacks data written since. */
static void an_older_cache(void **state)
{
	size_t bytes = disk_sectors[0] * 512;
	void *older = malloc(bytes);

	assert_non_null(older);
	set_mode(HYBRID_MODE_WRITEBACK);
	reads(BLOCK, BLOCK, 0);
	stop();
	crash();
	memcpy(older, disk[0], bytes);
	start();
	open_volume();
	first_dirty();
	stop();
	crash();
	memcpy(disk[0], older, bytes);
	free(older);
	origin_refused("may have newer data in a cache that is lost: this one is older");
}

static void superblocks_that_do_not_fit(void **state)
{
	stop();
	crash();
	change_copy(1, other_member);
	origin_refused("has superblocks of two members");
	change_copy(0, other_member);
	origin_refused("is another member");
	fresh_disks(BLOCK);
	start();
	assert_int_equal(hybrid_volume_create(e, 1, &info), 0);
	stop();
	crash();
	change_copy(0, read_only);
	change_copy(1, read_only);
	origin_refused("has a feature that allows reading only");
	change_copy(0, writable);
	change_copy(1, writable);
	change_copy(1, last_sequence);
	origin_refused("has no sequence left for its superblock");
}

/* ---- failures ------------------------------------------------------------- */

static void cache_dies(void **state)
{
	first_dirty();
	reads(50 * BLOCK, BLOCK, 0);
	set_mode(HYBRID_MODE_WRITEBACK);
	fail_cache_writes = fail_cache_reads = true;
	/* clean: read from the origin; dirty: lost, with an error */
	reads(50 * BLOCK, BLOCK, 0);
	assert_int_equal(read_io(0, 8), -EIO);
	put(60 * BLOCK, BLOCK, 3);
	/* One granule whole and a part of the next, which cannot be made whole */
	put(70 * BLOCK, 12, 4);
	tick(1000);
	assert_int_equal(flush_volume(), 0);
	reads(60 * BLOCK, BLOCK, 3);
	assert_true(origin_has(60 * BLOCK, BLOCK, 3));
	assert_true(origin_has(70 * BLOCK, 12, 4));
	reads(50 * BLOCK, BLOCK, 0);
	assert_int_equal(read_io(0, 8), -EIO);
	assert_true(status().counter[HYBRID_CACHE_ERRORS] > 0);
}

/* Nothing can be recorded any more: the pool fails. */
static void kill_cache(void)
{
	fail_cache_writes = fail_cache_reads = true;
	assert_int_equal(wait_checkpoint(e), -EIO);
	assert_true(status().degraded);
}

/* Stores the runs of lost sectors, by the volume's list; returns the number of runs. */
static u32 list_lost(u64 *sector, u32 *count)
{
	u64 cursor = 0;
	u32 nr = 0;

	while (hybrid_volume_lost(e, v, &cursor, &sector[nr], &count[nr]))
		nr++;
	return nr;
}

/* Returns the map that the origin's superblock names, or NULL if it names none. */
static struct hybrid_lost_map *saved_map(u32 copy, struct hybrid_sb *sb)
{
	void *block = disk[1] + hybrid_sb_sector(ORIGIN_SECTORS, copy) * 512;
	struct hybrid_lost_map *map = (void *)(disk[1] + hybrid_lost_sector(ORIGIN_SECTORS, copy) * 512);
	const char *why;
	int blocks;

	assert_int_equal(hybrid_sb_decode(block, hybrid_sb_sector(ORIGIN_SECTORS, copy),
					  ORIGIN_SECTORS, sb, &why), 0);
	if (!sb->lost)
		return NULL;
	blocks = hybrid_lost_peek(map, sb, copy, &why);
	assert_true(blocks > 0);
	assert_int_equal(hybrid_lost_check(map, blocks, &why), 0);
	return map;
}

/* Both copies name a map of the first block alone. */
static void first_block_lost(void)
{
	struct hybrid_lost_map *map;
	struct hybrid_sb sb;
	u64 sector;
	u32 copy;

	for (copy = 0; copy < 2; copy++) {
		map = saved_map(copy, &sb);
		assert_non_null(map);
		assert_true(sb.flags & HYBRID_SB_DIRTY);
		sector = 0;
		assert_int_equal(hybrid_lost_next(map, &sector), BLOCK);
		assert_int_equal(sector, 0);
		sector = BLOCK;
		assert_int_equal(hybrid_lost_next(map, &sector), 0);
	}
}

/* P5: lost granules are listed, and the list is saved before the origin goes on alone. */
static void lost_is_listed(void **state)
{
	struct hybrid_sb before, sb;
	u64 sector[8];
	u32 count[8], nr;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	assert_int_equal(list_lost(sector, count), 0);
	assert_null(saved_map(0, &before));
	kill_cache();
	assert_int_equal(status().lost, 1);
	nr = list_lost(sector, count);
	assert_int_equal(nr, 1);
	assert_int_equal(sector[0], 0);
	assert_in_range(count[0], 1, BLOCK);
	put(60 * BLOCK, BLOCK, 3);
	first_block_lost();
	saved_map(0, &sb);
	assert_int_not_equal(sb.nonce, before.nonce);
	/* Once in a life */
	put(61 * BLOCK, BLOCK, 3);
	saved_map(1, &before);
	assert_int_equal(sb.lost, before.lost);
}

/* Data on the origin must not be lost later: without a flush there is no activation (J8). */
static void origin_fails_at_open(void **state)
{
	const char *why = NULL;

	stop();
	crash();
	start();
	fail_origin = true;
	assert_int_equal(hybrid_volume_open(e, 1, ORIGIN_SECTORS, NULL, &v, &why), -EIO);
	assert_string_equal(why, "cannot be flushed");
	fail_origin = false;
	open_volume();
}

/* The last data sent to the origin may be lost: the close returns the error. */
static void origin_fails_at_close(void **state)
{
	struct hybrid_actions acts;

	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	put(0, 8, 1);
	hybrid_actions_init(&acts);
	assert_true(hybrid_volume_suspend(e, v, &acts));
	carry(&acts);
	fail_origin = true;
	assert_int_equal(hybrid_volume_close(e, v), -EIO);
	fail_origin = false;
	open_volume();
	reads(0, 8, 1);
}

/* Not written since: the list is saved when the volume is closed, and dropped with the cache back. */
static void lost_is_saved_on_close(void **state)
{
	struct hybrid_sb before, sb;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	saved_map(0, &before);
	kill_cache();
	assert_null(saved_map(0, &sb));
	assert_int_equal(hybrid_volume_close(e, v), -EIO);
	first_block_lost();
	saved_map(0, &sb);
	assert_true(sb.nonce == before.nonce);
	fail_cache_writes = fail_cache_reads = false;
	crash();
	start();
	open_volume();
	assert_null(saved_map(0, &sb));
	assert_null(saved_map(1, &sb));
	assert_true(sb.flags & HYBRID_SB_DIRTY);
	assert_int_equal(status().lost, 0);
	assert_true(status().dirty > 0);
}

/* The origin could not be told that it goes on alone, so it never did: its nonce stays. */
static void never_alone(void **state)
{
	struct hybrid_sb before, sb;
	u32 copy;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	saved_map(0, &before);
	kill_cache();
	fail_origin = true;
	assert_int_equal(write_io(60 * BLOCK, BLOCK, 3, false), -EIO);
	fail_origin = false;
	assert_int_equal(hybrid_volume_close(e, v), -EIO);
	/* The list could not be saved then either, but is saved now. */
	first_block_lost();
	for (copy = 0; copy < 2; copy++) {
		saved_map(copy, &sb);
		assert_true(sb.nonce == before.nonce);
	}
	fail_cache_writes = fail_cache_reads = false;
	crash();
	start();
	open_volume();
	reads(0, 8, 1);
}

/* Its pool fails, and nothing is dirty; but it was. */
static void clean_again(struct hybrid_sb *sb)
{
	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	set_mode(HYBRID_MODE_WRITETHROUGH);
	while (status().dirty)
		tick(1000);
	saved_map(0, sb);
	assert_true(sb->flags & HYBRID_SB_DIRTY);
	kill_cache();
}

/* The same, where the origin could not be told that nothing is lost. */
static void never_alone_and_clean(void **state)
{
	struct hybrid_sb before, sb;
	u32 copy;

	clean_again(&before);
	fail_origin = true;
	assert_int_equal(write_io(60 * BLOCK, BLOCK, 3, false), -EIO);
	fail_origin = false;
	assert_int_equal(hybrid_volume_close(e, v), -EIO);
	for (copy = 0; copy < 2; copy++) {
		assert_null(saved_map(copy, &sb));
		assert_true(sb.nonce == before.nonce);
		assert_int_equal(sb.flags & HYBRID_SB_DIRTY, 0);
	}
}

/* Begins a session; returns whether the origin is marked dirty. */
static bool next_session(void)
{
	struct hybrid_sb sb;

	stop();
	crash();
	start();
	open_volume();
	saved_map(0, &sb);
	return sb.flags & HYBRID_SB_DIRTY;
}

/* Writes a block, and writes it back; returns how many superblocks of the origin that took. */
static u32 dirty_and_clean(void)
{
	u32 n, nr = 0;

	put(0, BLOCK, 1);
	for (n = 0; n < nr_log; n++)
		nr += op_log[n].origin && op_log[n].meta && op_log[n].write;
	set_mode(HYBRID_MODE_WRITETHROUGH);
	while (status().dirty)
		tick(1000);
	set_mode(HYBRID_MODE_WRITEBACK);
	return nr;
}

/* J10: after a session with dirty data the next one marks the origin when it begins. */
static void marked_at_once(void **state)
{
	set_mode(HYBRID_MODE_WRITEBACK);
	assert_false(next_session());
	assert_int_equal(dirty_and_clean(), 2);
	assert_true(next_session());
	assert_int_equal(dirty_and_clean(), 0);
	assert_true(next_session());
	assert_false(next_session());
	assert_int_equal(dirty_and_clean(), 2);
	/* Only where writes are kept dirty */
	set_mode(HYBRID_MODE_WRITETHROUGH);
	assert_false(next_session());
}

/* A volume with nothing dirty says that nothing is lost. */
static void nothing_lost(void **state)
{
	struct hybrid_sb sb;
	u64 sector[1];
	u32 count[1];

	clean_again(&sb);
	put(60 * BLOCK, BLOCK, 3);
	assert_null(saved_map(0, &sb));
	assert_int_equal(sb.flags & HYBRID_SB_DIRTY, 0);
	assert_int_equal(status().lost, 0);
	assert_int_equal(list_lost(sector, count), 0);
}

/* All is written back: the origin has everything, and says that it goes alone. */
static void flush_loses_nothing(void **state)
{
	struct hybrid_actions acts;
	struct hybrid_sb sb, alone;

	set_mode(HYBRID_MODE_WRITEBACK);
	first_dirty();
	rest();
	put(50 * BLOCK, BLOCK, 3);
	hybrid_actions_init(&acts);
	hybrid_engine_drain(e, v, true, 0, &acts);
	carry(&acts);
	while (status().dirty)
		tick(10);
	saved_map(0, &sb);
	fail_cache_writes = fail_cache_reads = true;
	assert_int_equal(flush_volume(), 0);
	assert_true(hybrid_engine_failed(e));
	saved_map(0, &alone);
	assert_true(alone.nonce != sb.nonce);
	assert_int_equal(flush_volume(), 0);
}

static void origin_errors_pass_through(void **state)
{
	set_mode(HYBRID_MODE_WRITETHROUGH);
	rest();
	put(50 * BLOCK, BLOCK, 3);
	fail_origin = true;
	assert_int_equal(read_io(60 * BLOCK, 8), -EIO);
	assert_int_equal(write_io(60 * BLOCK, 8, 4, false), -EIO);
	assert_int_equal(write_io(50 * BLOCK, 8, 4, false), -EIO);
	reads(50 * BLOCK + 8, 8, 3);
	fail_origin = false;
	assert_true(status().counter[HYBRID_ORIGIN_ERRORS] >= 3);
	assert_int_equal(hybrid_engine_failed(e), false);
	put(60 * BLOCK, 8, 5);
	reads(60 * BLOCK, 8, 5);
}

static u32 allocs, fail_at;

static bool fail_nth(size_t size, gfp_t gfp)
{
	return allocs++ == fail_at;
}

static bool fail_large(size_t size, gfp_t gfp)
{
	return size > 2 * BLOCK * 512;	/* more than the buffer of a job */
}

/* A volume of 16 TiB needs memory that a volume of some MiB did not need. */
static void no_memory_for_a_larger_volume(void **state)
{
	struct hybrid_volume_info large = info;
	struct hybrid_volume *w;
	const char *why;

	large.uuid[0]++;
	large.member_uuid[0]++;
	strcpy(large.name, "large");
	large.data_sectors = 1ULL << 35;
	assert_int_equal(hybrid_volume_create(e, 2, &large), 0);
	shim_alloc_fails = fail_large;
	assert_int_equal(hybrid_volume_open(e, 2, 1ULL << 36, NULL, &w, &why), -ENOMEM);
	assert_non_null(strstr(why, "memory"));
	shim_alloc_fails = NULL;
	reads(0, 8, 0);
}

/* Every allocation in turn fails: nothing leaks (the sanitizer looks), and the next try works. */
static void no_memory(void **state)
{
	const char *why;
	int error, r;
	u32 n;

	hybrid_geometry_init(&sb.geometry, 16 * MIB, 128, 0, NULL);
	for (n = 0; ; n++) {
		assert_true(n < 1000);
		shim_alloc_fails = fail_nth;
		allocs = 0;
		fail_at = n;
		error = 1;
		e = new_engine(&error);
		shim_alloc_fails = NULL;
		if (e)
			break;
		assert_int_equal(error, -ENOMEM);
		assert_int_equal(nr_buffers, 0);
	}
	assert_int_equal(error, 0);
	assert_true(n >= 15);
	assert_int_equal(allocs, n);
	crash();

	fresh_disks(BLOCK);
	for (n = 0, r = -1; r; n++) {
		assert_true(n < 1000);
		e = new_engine(&error);
		shim_alloc_fails = fail_nth;
		allocs = 0;
		fail_at = n;
		r = hybrid_engine_load(e, &why);
		shim_alloc_fails = NULL;
		if (!r)
			break;
		assert_int_equal(r, -ENOMEM);
		crash();
	}
	assert_true(n >= 2);

	for (n = 0, r = -1; r; n++) {
		shim_alloc_fails = fail_nth;
		allocs = 0;
		fail_at = n;
		r = hybrid_volume_create(e, 1, &info);
		if (r)
			assert_int_equal(r, -ENOMEM);
		shim_alloc_fails = NULL;
	}
	assert_true(n > 1);

	for (n = 0, r = -1; r; n++) {
		shim_alloc_fails = fail_nth;
		allocs = 0;
		fail_at = n;
		r = hybrid_volume_open(e, 1, ORIGIN_SECTORS, NULL, &v, &why);
		shim_alloc_fails = NULL;
		if (r)
			assert_int_equal(r, -ENOMEM);
	}
	assert_true(n > 1);
	reads(0, 8, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(fresh_pool, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(not_a_pool, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(last_root, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(ram, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(volumes, setup, teardown),
		cmocka_unit_test_setup_teardown(settling_that_fails_is_said, setup, teardown),
		cmocka_unit_test_setup_teardown(deleted_in_both_roots, setup, teardown),
		cmocka_unit_test_setup_teardown(cut_before_its_root, setup, teardown),
		cmocka_unit_test_setup_teardown(leaf_without_records, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(flush_epochs_are_lifted, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(closed_while_it_stops, setup, teardown),
		cmocka_unit_test_setup_teardown(wear_outlives_the_engine, setup, teardown),
		cmocka_unit_test_setup_teardown(flush_in_place_of_a_dead_cache, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(not_deleted, setup, teardown),
		cmocka_unit_test_setup_teardown(written_without_its_cache, setup, teardown),
		cmocka_unit_test_setup_teardown(an_older_cache, setup, teardown),
		cmocka_unit_test_setup_teardown(superblocks_that_do_not_fit, setup, teardown),
		cmocka_unit_test_setup_teardown(cache_dies, setup, teardown),
		cmocka_unit_test_setup_teardown(lost_is_listed, setup, teardown),
		cmocka_unit_test_setup_teardown(origin_fails_at_open, setup, teardown),
		cmocka_unit_test_setup_teardown(origin_fails_at_close, setup, teardown),
		cmocka_unit_test_setup_teardown(lost_is_saved_on_close, setup, teardown),
		cmocka_unit_test_setup_teardown(never_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(never_alone_and_clean, setup, teardown),
		cmocka_unit_test_setup_teardown(marked_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(flush_loses_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(origin_errors_pass_through, setup, teardown),
		cmocka_unit_test_setup_teardown(no_memory, setup_disks, teardown),
		cmocka_unit_test_setup_teardown(no_memory_for_a_larger_volume, setup, teardown),
	};

	return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
