/* SPDX-License-Identifier: GPL-2.0-only */
/* The sizes and offsets that format.h promises, asserted at compile time. */
#ifndef DM_HYBRID_FORMAT_CHECK_H
#define DM_HYBRID_FORMAT_CHECK_H

#include "core.h"

#define CHECK_SIZE(type, size) \
	static_assert(sizeof(struct type) == (size))
#define CHECK_OFFSET(type, member, offset) \
	static_assert(offsetof(struct type, member) == (offset))

CHECK_SIZE(hybrid_superblock, HYBRID_META_BLOCK_SIZE);
CHECK_OFFSET(hybrid_superblock, crc, 16);
CHECK_OFFSET(hybrid_superblock, compat, 24);
CHECK_OFFSET(hybrid_superblock, sector, 48);
CHECK_OFFSET(hybrid_superblock, pool_uuid, 64);
CHECK_OFFSET(hybrid_superblock, member_uuid, 80);
CHECK_OFFSET(hybrid_superblock, role, 96);
CHECK_OFFSET(hybrid_superblock, sequence, 104);
CHECK_OFFSET(hybrid_superblock, name, 112);
CHECK_OFFSET(hybrid_superblock, cache, 176);
CHECK_OFFSET(hybrid_superblock, origin, 176);
CHECK_OFFSET(hybrid_superblock, host_id, 688);
CHECK_SIZE(hybrid_sb_cache, 184);
CHECK_SIZE(hybrid_sb_origin, 240);
CHECK_SIZE(hybrid_block_header, 64);
CHECK_SIZE(hybrid_lost_map, HYBRID_META_BLOCK_SIZE);
CHECK_SIZE(hybrid_root, HYBRID_META_BLOCK_SIZE);
CHECK_OFFSET(hybrid_root, index_generation, 160);
CHECK_SIZE(hybrid_index, HYBRID_META_BLOCK_SIZE);
CHECK_SIZE(hybrid_volume_entry, 256);
CHECK_SIZE(hybrid_volume_leaf, HYBRID_META_BLOCK_SIZE);
CHECK_SIZE(hybrid_map_leaf, HYBRID_META_BLOCK_SIZE);
CHECK_OFFSET(hybrid_map_leaf, oblock, 72);
CHECK_OFFSET(hybrid_map_leaf, instance, 72 + 3 * 1024);
CHECK_SIZE(hybrid_record, 40);
CHECK_SIZE(hybrid_intent, HYBRID_META_BLOCK_SIZE);
CHECK_OFFSET(hybrid_intent, record, 72);
CHECK_SIZE(hybrid_intent_record, 32);

static_assert(HYBRID_VOLUMES_PER_LEAF * HYBRID_VOLUME_LEAVES >= HYBRID_MAX_VOLUMES);
static_assert(HYBRID_LEAVES_PER_SET * HYBRID_MAP_LEAF_BLOCKS == HYBRID_MAX_SET_SIZE);
/* The largest lost map fits behind each superblock, in head and tail. */
static_assert(HYBRID_SB_SECTOR + (2 + HYBRID_LOST_CHUNKS / 8 / HYBRID_META_BLOCK_SIZE) *
	      HYBRID_META_BLOCK_SECTORS <= HYBRID_HEAD_SECTORS);
static_assert((2 + HYBRID_LOST_CHUNKS / 8 / HYBRID_META_BLOCK_SIZE) *
	      HYBRID_META_BLOCK_SECTORS <= HYBRID_SB_SECTOR);
static_assert(HYBRID_INTENT_BLOCKS(HYBRID_JOURNAL_MIN_BLOCKS) == HYBRID_INTENT_MIN_BLOCKS);
static_assert(HYBRID_MAP_LEAF_REGIONS * HYBRID_REGION_BLOCKS == HYBRID_MAP_LEAF_BLOCKS);

#endif
