/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Encodes, decodes and validates one metadata block.  No I/O, no allocation, any
 * context.  Decoders treat their input as hostile: they check every field that
 * the caller may rely on, and write only checked values to their output.
 *
 * Decoders return 0 or a negative errno.  On an error, *why names the field, if
 * the decoder has a @why and it is not NULL.  The errors are:
 *
 *	-ENODATA		no such block here (wrong magic)
 *	-EBADMSG		the checksum does not match
 *	-EINVAL			a field is out of bounds
 *	-ESTALE			a good block, but not the requested one (number,
 *				generation, pool, own sector)
 *	-EPROTONOSUPPORT	unknown format version or incompat feature
 */
#ifndef DM_HYBRID_CODEC_H
#define DM_HYBRID_CODEC_H

#include "geometry.h"

/* Returns the CRC-32C of @len bytes, with the 4 bytes at offset @skip taken as zero. */
u32 hybrid_crc(const void *data, size_t len, size_t skip);

/*
 * Settings of a pool for its next activation: value + 1, or 0 for the default.  The
 * codec accepts any number; the caller checks the range.
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
	u8 host_id[HYBRID_UUID_SIZE];	/* zero: no owner */
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

/* Encodes the copy of @sb that goes to @sector of the member.  @block has 4096 bytes. */
void hybrid_sb_encode(struct hybrid_superblock *block, const struct hybrid_sb *sb,
		      u64 sector);

/*
 * Decodes a superblock that was read from @sector of a device of @device_sectors.
 * The device may have grown since, but not shrunk.  The geometry of a cache device
 * is computed again and must be the same.
 */
int hybrid_sb_decode(const struct hybrid_superblock *block, u64 sector,
		     u64 device_sectors, struct hybrid_sb *sb, const char **why);

/*
 * Seals copy @copy of the lost map that belongs to the origin's superblock @sb.  The
 * caller has filled map->bitmap[], zeroed first.  Takes the generation, UUIDs,
 * instance and data_sectors from @sb, and fills in everything else.  Returns the
 * number of lost chunks.
 */
u32 hybrid_lost_seal(struct hybrid_lost_map *map, const struct hybrid_sb *sb,
		     u32 chunk_shift, unsigned int copy);

/*
 * Checks the first block of copy @copy of the lost map that @sb names.  Returns the
 * number of metadata blocks of the whole map, 2 or more.  Otherwise returns -ENODATA
 * (no lost map), -ESTALE (another lost map) or -EINVAL.
 */
int hybrid_lost_peek(const struct hybrid_lost_map *map, const struct hybrid_sb *sb,
		     unsigned int copy, const char **why);

/* Checks a whole lost map of @blocks (from peek).  Returns 0, -EBADMSG or -EINVAL. */
int hybrid_lost_check(const struct hybrid_lost_map *map, u32 blocks, const char **why);

/*
 * Finds the next run of lost chunks at or after sector *sector of the volume, in a
 * map that was checked.  Sets *sector to the start of the run and returns its
 * length in sectors, or returns 0 if there are no more.
 */
u64 hybrid_lost_next(const struct hybrid_lost_map *map, u64 *sector);

/*
 * Sequences and journal numbers only grow, and decoders accept them up to 2^62.  A
 * writer does not continue from a number beyond half of that: no device gets that
 * far, and decoders could refuse the next number.
 */
static inline bool hybrid_number_ends(u64 n)
{
	return n > BIT_ULL(61);
}

/* Fields that the headers of all metadata blocks of a pool have, except superblocks. */
struct hybrid_ident {
	u8 pool_uuid[HYBRID_UUID_SIZE];
	u64 epoch;			/* written, except to roots; checked only in the journal */
};

struct hybrid_root_info {
	u64 sequence;
	u64 epoch;
	u64 journal_tail, journal_head;	/* journal block numbers, tail <= head */
	u64 intent_tail;		/* first intent that may still count */
	u32 flags;			/* HYBRID_ROOT_* */
	u32 next_instance;		/* at least 1 */
	u64 written_sectors;		/* to the cache device, since it was formatted */
	u32 read_errors, write_errors;	/* recent errors of the cache device */
	u32 halved_ms;			/* run time since they were halved, below HYBRID_DAY_MS */
};

/*
 * Encode and decode a root.  @index_generation is the caller's array of
 * g->nr_index elements.  The epoch in the header is root->epoch.  The caller of
 * decode checks that the block was read from the place of its sequence.
 */
void hybrid_root_encode(struct hybrid_root *block, const struct hybrid_geometry *g,
			const struct hybrid_ident *id,
			const struct hybrid_root_info *root, const u16 *index_generation);
int hybrid_root_decode(const struct hybrid_root *block, const struct hybrid_geometry *g,
		       const struct hybrid_ident *id, struct hybrid_root_info *root,
		       u16 *index_generation, const char **why);

/*
 * Encode and decode index block @nr.  @leaf_generation is the part of the caller's
 * array (of g->nr_leaves elements) that belongs to this block.
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
	u64 data_sectors_new;	/* size that it is growing to; 0: it is not growing */
	u64 quota_sectors, minimum_sectors;	/* 0: none */
	char name[HYBRID_NAME_SIZE];
};

/*
 * Room: returns the sectors of data that an origin of @origin_sectors has room for.
 * Length: returns the sectors of the volume once it has been opened on such an origin.  A
 * volume that is growing gets its new size if there is room, and keeps its old size if the
 * origin has shrunk again.
 * Reach: returns the sectors within which all cached blocks of the volume begin.
 */
u64 hybrid_volume_room(const struct hybrid_volume_info *info, u64 origin_sectors);
u64 hybrid_volume_length(const struct hybrid_volume_info *info, u64 origin_sectors);
u64 hybrid_volume_reach(const struct hybrid_volume_info *info);

/* Checks that decode would accept this entry.  Returns 0 or -EINVAL. */
int hybrid_volume_check(const struct hybrid_volume_info *info, u32 volume_id, const char **why);

/* Encode and decode volume leaf @nr: the volumes from nr * HYBRID_VOLUMES_PER_LEAF on. */
void hybrid_volumes_encode(struct hybrid_volume_leaf *block, const struct hybrid_ident *id,
			   u32 nr, u16 generation,
			   const struct hybrid_volume_info *const info[HYBRID_VOLUMES_PER_LEAF]);
int hybrid_volumes_decode(const struct hybrid_volume_leaf *block,
			  const struct hybrid_ident *id, u32 nr, u16 generation,
			  struct hybrid_volume_info info[HYBRID_VOLUMES_PER_LEAF],
			  const char **why);

/*
 * Map leaves.  To avoid a second copy of the entries' fields, the writer fills
 * block->oblock ... hint and open_regions itself and then seals the block.  The
 * reader checks the block and then reads the fields of entries below @count.
 *
 * Check accepts masks within g->granules, dirty within valid, and an oblock within
 * 2^63 bytes.  An entry that is not mapped has nothing valid.  No region is open and
 * no entry mapped beyond @count (entries of the leaf that exist, 0 ... 128).
 */
void hybrid_map_seal(struct hybrid_map_leaf *block, const struct hybrid_ident *id,
		     u32 nr, u16 generation);
int hybrid_map_check(const struct hybrid_map_leaf *block, const struct hybrid_geometry *g,
		     const struct hybrid_ident *id, u32 nr, u16 generation, u32 count,
		     const char **why);

/*
 * Seals journal entry number @n with @nr records, already in entry->record[]:
 * zeroes the rest of the last block and fills the header.  Returns the number of metadata
 * blocks, 1 ... HYBRID_JOURNAL_ENTRY_BLOCKS.
 */
u32 hybrid_entry_seal(struct hybrid_journal_entry *entry, const struct hybrid_ident *id,
		      u64 n, u32 nr, u64 intent_tail);

/*
 * Returns the metadata blocks of the entry that starts with this header, if it is
 * entry @n of this epoch and pool; otherwise -ENODATA or -EINVAL.  Does not read
 * beyond the header.
 */
int hybrid_entry_peek(const struct hybrid_block_header *header,
		      const struct hybrid_ident *id, u64 n);

/*
 * Checks a whole entry of @blocks (from peek): its checksum, its place, and each
 * record.  A good record has a known type, a block or set number within the
 * geometry, masks within the granules, dirty within valid, both zero if it maps
 * nothing, and a hint within a byte.  Returns the number of records, -EBADMSG or
 * -EINVAL.
 */
int hybrid_entry_check(const struct hybrid_journal_entry *entry,
		       const struct hybrid_geometry *g, u32 blocks, const char **why);

/* Sets record @nr of an intent: @granules of block @b, with their data's @checksum. */
void hybrid_intent_record(struct hybrid_intent *intent, u32 nr, cblock_t b, u32 instance,
			  oblock_t oblock, u64 granules, u64 checksum);

/*
 * Seals intent number @n with @nr records, which are set already: fills the header, and zeroes the
 * records behind them.  @intent is memory that was sealed before, or is zero but for the records.
 * @flushed: hybrid_intent.flushed.
 */
void hybrid_intent_seal(struct hybrid_intent *intent, const struct hybrid_ident *id, u64 n,
			u32 nr, u64 flushed);

/*
 * Checks an intent of this epoch and pool, of any number.  The caller checks that the
 * number belongs to the block's place.  A good record has a block number within the
 * geometry, an instance, and one run of granules within a block, of at most
 * HYBRID_INTENT_SECTORS.  Returns 0, -ENODATA, -EBADMSG or -EINVAL.
 */
int hybrid_intent_check(const struct hybrid_intent *intent, const struct hybrid_geometry *g,
			const struct hybrid_ident *id, const char **why);

#endif
