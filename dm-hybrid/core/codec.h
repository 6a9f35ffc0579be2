/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Encode, decode and validate one metadata block.  No I/O, no allocation, any
 * context.  Decoders treat their input as hostile: they check every field that
 * the caller may rely on, and write to their output only what they checked.
 *
 * Decoders return 0, or a negative errno:
 *   -ENODATA	no such block here (wrong magic)
 *   -EBADMSG	checksum does not match
 *   -EINVAL	a field is out of bounds
 *   -ESTALE	a good block, but not the one asked for (number, generation,
 *		pool, own sector)
 *   -EPROTONOSUPPORT	format version or incompat feature unknown
 * and, where there is one and it is not NULL, *why names the field.
 */
#ifndef DM_HYBRID_CODEC_H
#define DM_HYBRID_CODEC_H

#include "geometry.h"

/* CRC-32C of @len bytes with the 4 bytes at @skip taken as zero. */
u32 hybrid_crc(const void *data, size_t len, size_t skip);

/*
 * Settings of a pool for its next activation: value + 1, or 0 for the default.  Any
 * number may stand on the disk: the caller knows what fits.
 */
struct hybrid_settings {
	u64 high_watermark, low_watermark;
	u64 writeback_rate;
	u64 commit_interval;
	u64 endurance;
	u64 metadata_share;
	u64 trim_rate;
	u64 read_error_limit, write_error_limit;
};

/* Settings of a volume for its next cache: value + 1, or 0 for the default. */
struct hybrid_volume_settings {
	u64 mode;			/* HYBRID_MODE_* + 1 */
	u64 cutoff_sectors, quota_sectors, minimum_sectors;
};

/* A superblock in native form; all roles. */
struct hybrid_sb {
	u64 compat, ro_compat, incompat;
	u64 member_sectors;
	u64 sequence;
	u32 role;			/* HYBRID_ROLE_* */
	u32 flags;			/* HYBRID_SB_* */
	u8 pool_uuid[HYBRID_UUID_SIZE];
	u8 member_uuid[HYBRID_UUID_SIZE];
	u8 host_id[HYBRID_UUID_SIZE];	/* zero: nobody's */
	char name[HYBRID_NAME_SIZE];
	/* cache device */
	struct hybrid_geometry geometry;
	char policy[HYBRID_POLICY_NAME_SIZE];
	struct hybrid_settings settings;
	u8 replaces[HYBRID_UUID_SIZE];	/* zero: none */
	/* origin */
	u32 volume_id, instance;
	u64 data_sector, data_sectors;
	u64 nonce;
	u8 volume_uuid[HYBRID_UUID_SIZE];
	u8 pairing_key[HYBRID_KEY_SIZE];
	u64 lost;			/* generation of the lost map, 0: none */
	u64 paired_nonce;		/* 0: none */
	struct hybrid_volume_settings next;
	char cache_path[HYBRID_PATH_SIZE];	/* below /dev/disk */
};

/* Encode the copy that goes to @sector of the member. @block: 4096 bytes. */
void hybrid_sb_encode(struct hybrid_superblock *block, const struct hybrid_sb *sb,
		      u64 sector);

/*
 * Decode a superblock read from @sector of a device of @device_sectors (which
 * may have grown since, but not shrunk).  A cache device's geometry is computed
 * again and must be the same.
 */
int hybrid_sb_decode(const struct hybrid_superblock *block, u64 sector,
		     u64 device_sectors, struct hybrid_sb *sb, const char **why);

/*
 * The lost map that goes with an origin's superblock: its lost, UUIDs, instance
 * and data_sectors.  The caller fills map->bitmap[], zeroed first; seal sums up
 * copy @copy of it and fills in the rest.  Returns the number of chunks lost.
 */
u32 hybrid_lost_seal(struct hybrid_lost_map *map, const struct hybrid_sb *sb,
		     u32 chunk_shift, unsigned int copy);

/*
 * Metadata blocks of the lost map whose first block this is, 2 or more, if it is
 * copy @copy of the one that @sb names; else -ENODATA (none), -ESTALE (of
 * something else), -EINVAL.
 */
int hybrid_lost_peek(const struct hybrid_lost_map *map, const struct hybrid_sb *sb,
		     unsigned int copy, const char **why);

/* Check a whole lost map of @blocks (from peek): 0, -EBADMSG, -EINVAL. */
int hybrid_lost_check(const struct hybrid_lost_map *map, u32 blocks, const char **why);

/*
 * The next run of lost chunks at or after sector *sector of the volume.  Returns
 * its sectors and sets *sector, or 0: no more.  For maps that were checked.
 */
u64 hybrid_lost_next(const struct hybrid_lost_map *map, u64 *sector);

/*
 * Sequences and journal numbers only grow, and are read up to 2^62.  Who would go on
 * from one that is more than half way there refuses it: nobody comes that far, and
 * what was written next could be what nobody can read.
 */
static inline bool hybrid_number_ends(u64 n)
{
	return n > BIT_ULL(61);
}

/* What the headers of the other blocks of a pool have in common. */
struct hybrid_ident {
	u8 pool_uuid[HYBRID_UUID_SIZE];
	u64 epoch;			/* written, but to roots; checked only in the journal */
};

struct hybrid_root_info {
	u64 sequence;
	u64 epoch;
	u64 journal_tail, journal_head;	/* journal block numbers, tail <= head */
	u32 flags;			/* HYBRID_ROOT_* */
	u32 next_instance;		/* at least 1 */
	u64 written_sectors;		/* to the cache device, since it was formatted */
	u32 read_errors, write_errors;	/* recent ones of the cache device */
};

/*
 * Root.  index_generation is copied from and to the caller's array of
 * g->nr_index elements.  The epoch in the header is root->epoch.  The caller
 * checks that the block was read from where its sequence belongs.
 */
void hybrid_root_encode(struct hybrid_root *block, const struct hybrid_geometry *g,
			const struct hybrid_ident *id,
			const struct hybrid_root_info *root, const u16 *index_generation);
int hybrid_root_decode(const struct hybrid_root *block, const struct hybrid_geometry *g,
		       const struct hybrid_ident *id, struct hybrid_root_info *root,
		       u16 *index_generation, const char **why);

/*
 * Index block @nr.  leaf_generation: the part of the caller's array (of
 * g->nr_leaves) that belongs to it.
 */
void hybrid_index_encode(struct hybrid_index *block, const struct hybrid_geometry *g,
			 const struct hybrid_ident *id, u32 nr, u16 generation,
			 const u16 *leaf_generation);
int hybrid_index_decode(const struct hybrid_index *block, const struct hybrid_geometry *g,
			const struct hybrid_ident *id, u32 nr, u16 generation,
			u16 *leaf_generation, const char **why);

/* One volume's entry in native form. */
struct hybrid_volume_info {
	u32 state;		/* HYBRID_VOLUME_* */
	u32 instance;
	u32 mode;		/* HYBRID_MODE_* */
	u32 flags;
	u8 uuid[HYBRID_UUID_SIZE];
	u8 member_uuid[HYBRID_UUID_SIZE];
	u8 pairing_key[HYBRID_KEY_SIZE];
	u64 data_sector, data_sectors;
	u64 nonce, nonce_old;
	u64 cutoff_sectors;
	u64 data_sectors_new;	/* it is being grown to that; 0: it is not */
	u64 quota_sectors, minimum_sectors;	/* 0: none */
	char name[HYBRID_NAME_SIZE];
};

/*
 * Sectors of data that an origin of @origin_sectors has room for; and how long the volume is once
 * it has been opened on it: one that is being grown becomes as long as it was to be, if there is
 * room, and stays as it is if the origin has shrunk again.
 */
u64 hybrid_volume_room(const struct hybrid_volume_info *info, u64 origin_sectors);
u64 hybrid_volume_length(const struct hybrid_volume_info *info, u64 origin_sectors);

/* Would this entry be good when it is read back?  0 or -EINVAL. */
int hybrid_volume_check(const struct hybrid_volume_info *info, u32 volume_id, const char **why);

/* Volume leaf @nr holds the volumes from nr * HYBRID_VOLUMES_PER_LEAF on. */
void hybrid_volumes_encode(struct hybrid_volume_leaf *block, const struct hybrid_ident *id,
			   u32 nr, u16 generation,
			   const struct hybrid_volume_info *const info[HYBRID_VOLUMES_PER_LEAF]);
int hybrid_volumes_decode(const struct hybrid_volume_leaf *block,
			  const struct hybrid_ident *id, u32 nr, u16 generation,
			  struct hybrid_volume_info info[HYBRID_VOLUMES_PER_LEAF],
			  const char **why);

/*
 * Map leaves.  The fields of the entries are not copied twice: the writer fills
 * block->oblock ... hint and open_regions itself and then seals the block; the
 * reader checks it and then reads the fields of entries below @count.
 *
 * check: dirty within valid, masks within g->granules, nothing valid where
 * nothing is mapped, oblock within 2^63 bytes, no open region and no mapped
 * entry beyond @count (entries of the leaf that exist, 0 ... 128).
 */
void hybrid_map_seal(struct hybrid_map_leaf *block, const struct hybrid_ident *id,
		     u32 nr, u16 generation);
int hybrid_map_check(const struct hybrid_map_leaf *block, const struct hybrid_geometry *g,
		     const struct hybrid_ident *id, u32 nr, u16 generation, u32 count,
		     const char **why);

/*
 * Journal entry number @n with @nr records, already in entry->record[].
 * seal: zeroes the rest of the last block, fills the header.  Returns the number
 * of metadata blocks, 1 ... HYBRID_JOURNAL_ENTRY_BLOCKS.
 */
u32 hybrid_entry_seal(struct hybrid_journal_entry *entry, const struct hybrid_ident *id,
		      u64 n, u32 nr);

/*
 * Blocks of the entry that starts with this header if it is entry @n of this
 * epoch and pool, else -ENODATA or -EINVAL.  Does not read beyond the header.
 */
int hybrid_entry_peek(const struct hybrid_block_header *header,
		      const struct hybrid_ident *id, u64 n);

/*
 * Check a whole entry of @blocks (from peek): checksum, and every record: block
 * and set numbers within the geometry, masks within the granules, dirty within
 * valid, both zero where nothing is mapped, hint within a byte, type known.
 * Returns the number of records, or -EBADMSG, -EINVAL.
 */
int hybrid_entry_check(const struct hybrid_journal_entry *entry,
		       const struct hybrid_geometry *g, u32 blocks, const char **why);

#endif
