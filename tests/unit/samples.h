/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One valid example of each metadata block; also the golden bytes. */
#ifndef SAMPLES_H
#define SAMPLES_H

#include "codec.h"

#define SAMPLE_SECTORS (64ULL * 2097152)	/* 64 GiB */

static inline void fill_bytes(u8 *to, size_t n, u8 first)
{
	while (n--)
		*to++ = first++;
}

/* 64 KiB blocks: granules of 4 KiB, 16 in a block. */
static inline void sample_geometry(struct hybrid_geometry *g)
{
	if (hybrid_geometry_init(g, SAMPLE_SECTORS, 128, 1024, NULL))
		abort();
}

static inline void sample_ident(struct hybrid_ident *id)
{
	fill_bytes(id->pool_uuid, sizeof(id->pool_uuid), 0x10);
	id->epoch = 0x1122334455667788ULL;
}

static inline void sample_sb(struct hybrid_sb *sb, u32 role)
{
	memset(sb, 0, sizeof(*sb));
	sb->compat = 5;
	sb->ro_compat = 6;
	sb->member_sectors = SAMPLE_SECTORS;
	sb->sequence = 42;
	sb->role = role;
	fill_bytes(sb->pool_uuid, sizeof(sb->pool_uuid), 0x10);
	fill_bytes(sb->member_uuid, sizeof(sb->member_uuid), 0x20);
	fill_bytes(sb->host_id, sizeof(sb->host_id), 0x60);
	strcpy(sb->name, "vg0-fast_pool.1");
	if (role == HYBRID_ROLE_CACHE) {
		sample_geometry(&sb->geometry);
		strcpy(sb->policy, "c2q");
		sb->settings.high_watermark = 81;
		sb->settings.low_watermark = 1;
		sb->settings.writeback_rate = 1ULL << 32;
		sb->settings.commit_interval = 0;
		sb->settings.endurance = ~0ULL;
		sb->settings.metadata_share = 91;
		sb->settings.trim_rate = 92;
		sb->settings.read_error_limit = 93;
		sb->settings.write_error_limit = 94;
		fill_bytes(sb->replaces, sizeof(sb->replaces), 0x70);
		return;
	}
	sb->flags = role == HYBRID_ROLE_ORIGIN ? HYBRID_SB_DIRTY | HYBRID_SB_ALONE :
		    HYBRID_SB_LOSS_UNKNOWN;
	sb->flags |= HYBRID_SB_EPHEMERAL;
	sb->volume_id = 4095;
	sb->instance = 7;
	sb->data_sector = 2048;
	sb->data_sectors = SAMPLE_SECTORS - 4096;
	sb->nonce = 0x99aabbccddeeff00ULL;
	fill_bytes(sb->volume_uuid, sizeof(sb->volume_uuid), 0x30);
	fill_bytes(sb->pairing_key, sizeof(sb->pairing_key), 0x40);
	sb->lost = 41;
	sb->paired_nonce = 0x1020304050607080ULL;
	sb->next.mode = HYBRID_MODE_WRITEBACK + 1;
	sb->next.cutoff_sectors = 8193;
	sb->next.quota_sectors = 1 << 21;
	sb->next.minimum_sectors = 1 << 20;
	strcpy(sb->cache_path, "by-id/nvme-Fast_SSD_1");
}

#define SAMPLE_LOST_SHIFT 7
#define SAMPLE_LOST_BLOCKS 33

/* Chunks 0, 10 ... 29, 4000, and the last one.  @map has room for SAMPLE_LOST_BLOCKS. */
static inline void sample_lost(struct hybrid_lost_map *map)
{
	const u32 last = ((SAMPLE_SECTORS - 4096) >> SAMPLE_LOST_SHIFT) - 1;

	memset(map, 0, SAMPLE_LOST_BLOCKS * HYBRID_META_BLOCK_SIZE);
	map->bitmap[0] = 0x01;
	map->bitmap[1] = 0xfc;
	map->bitmap[2] = 0xff;
	map->bitmap[3] = 0x3f;
	map->bitmap[500] = 0x01;
	map->bitmap[last / 8] |= 1 << last % 8;
}

static inline void sample_root(struct hybrid_root_info *root, u16 *generation, u32 nr_index)
{
	u32 i;

	root->sequence = 0x100000001ULL;
	root->epoch = 0x1122334455667788ULL;
	root->journal_tail = 5000;
	root->journal_head = 5100;
	root->intent_tail = 70;
	root->flags = 0;
	root->next_instance = 8;
	root->written_sectors = 0x123456789aULL;
	root->read_errors = 19;
	root->write_errors = 4;
	root->halved_ms = 36000000;
	for (i = 0; i < nr_index; i++)
		generation[i] = i + 1;
}

/* Two records of one volume */
static inline void sample_intent(struct hybrid_intent *intent)
{
	hybrid_intent_record(intent, 0, to_cblock(17), 7, to_oblock(0x123456), 0x1e, 0x0123456789abcdefULL);
	hybrid_intent_record(intent, 1, to_cblock(18), 7, to_oblock(0x123457), 0x8000, 0xfedcba9876543210ULL);
}

static inline void sample_volume(struct hybrid_volume_info *v)
{
	memset(v, 0, sizeof(*v));
	v->state = HYBRID_VOLUME_ACTIVE;
	v->instance = 7;
	v->mode = HYBRID_MODE_WRITEBACK;
	fill_bytes(v->uuid, sizeof(v->uuid), 0x30);
	fill_bytes(v->member_uuid, sizeof(v->member_uuid), 0x50);
	fill_bytes(v->pairing_key, sizeof(v->pairing_key), 0x40);
	v->data_sector = 2048;
	v->data_sectors = 1 << 30;
	v->nonce = 3;
	v->nonce_old = 2;
	v->cutoff_sectors = 8192;
	v->data_sectors_new = 1U << 31;
	v->quota_sectors = 1 << 22;
	v->minimum_sectors = 1 << 19;
	v->flags = HYBRID_VOLUME_WAS_DIRTY;
	strcpy(v->name, "home");
}

/* Volumes 15 ... 29: an active one, a free one, a tombstone, one in place. */
static inline void sample_volumes(struct hybrid_volume_info *info)
{
	memset(info, 0, sizeof(*info) * HYBRID_VOLUMES_PER_LEAF);
	sample_volume(&info[0]);
	sample_volume(&info[2]);
	info[2].state = HYBRID_VOLUME_TOMBSTONE;
	sample_volume(&info[14]);
	info[14].flags = HYBRID_VOLUME_INPLACE;
	info[14].data_sectors_new = 0;
	info[14].data_sector = 0;
	info[14].data_sectors = 12345677;
}

static inline void sample_map(struct hybrid_map_leaf *leaf)
{
	u32 i;

	memset(leaf, 0, sizeof(*leaf));
	leaf->open_regions = cpu_to_le16(0x8001);
	for (i = 0; i < HYBRID_MAP_LEAF_BLOCKS; i += 3) {
		leaf->oblock[i] = cpu_to_le64(1000 * i);
		leaf->valid[i] = cpu_to_le64(0xff00 | i);
		leaf->dirty[i] = cpu_to_le64(0x8100);
		leaf->instance[i] = cpu_to_le32(7);
		leaf->hint[i] = i;
	}
}

/* Records of both types; @entry has room for them. */
static inline void sample_records(struct hybrid_journal_entry *entry, u32 nr)
{
	u32 i;

	memset(entry->record, 0, nr * sizeof(entry->record[0]));
	for (i = 0; i < nr; i++) {
		struct hybrid_record *rec = &entry->record[i];

		rec->where = cpu_to_le32(3 * i);
		if (i % 4 == 3) {
			rec->type = cpu_to_le32(HYBRID_RECORD_REGIONS);
			rec->where = cpu_to_le32(i % 16);
			rec->valid = cpu_to_le64(0x8000000000000001ULL);
			continue;
		}
		rec->type = cpu_to_le32(HYBRID_RECORD_BLOCK);
		if (i % 4 == 2)
			continue;
		rec->instance = cpu_to_le32(7);
		rec->hint = cpu_to_le32(200);
		rec->oblock = cpu_to_le64(1ULL << 40);
		rec->valid = cpu_to_le64(0xffff);
		rec->dirty = cpu_to_le64(1);
	}
}

#endif
