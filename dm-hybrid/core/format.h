/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The on-disk format of dm-hybrid, version 7, and nothing else.  The kernel
 * module, the tools and the tests all include this file, so that no second copy
 * of these definitions exists.
 *
 * Units: a *sector* is 512 bytes; a *metadata block* is 4096 bytes.  All
 * integers are little endian.  Reserved fields are written as zero and ignored
 * when read.  Every CRC is CRC-32C (Castagnoli, reflected, initial value and
 * final XOR all ones) over the whole structure with its crc field zero.
 *
 * Members
 * -------
 * A member is a device that belongs to a pool: one cache device, and any number
 * of formatted origins.  The first and the last MiB of a member are its head
 * and its tail.  Each holds one copy of the superblock, HYBRID_SB_SECTOR
 * sectors after the member's start, and the same distance before its end (its
 * size rounded down to a metadata block).  Of two valid copies the one with the
 * higher sequence is current.
 *
 * A formatted origin has room behind each superblock for a copy of the lost map.
 *
 * Cache device
 * ------------
 *
 *	head | root A, root B | index A | index B | leaves A | leaves B |
 *	journal | intents | data (aligned to 1 MiB) | tail
 *
 * The metadata is a tree of fixed shape: the root names the generation of each
 * index block, and each index block names the generations of its leaves.  A
 * block of generation g stands in area A if g is even and in area B if it is
 * odd; a block of generation 0 was never written and is empty.  A write of a
 * block makes a later generation of it, in the other area, which takes effect
 * when the next root is written.  A block whose header does not carry the
 * generation that its parent names is damaged, or its write was lost.
 *
 * The root's generation is its 64-bit sequence: the valid root with the higher
 * sequence is current, and the low bit of the sequence tells the area.
 *
 * Leaves 0 ... HYBRID_VOLUME_LEAVES - 1 are the volume table.  The leaves after
 * them are the map: HYBRID_LEAVES_PER_SET for each set of cache blocks, in the
 * order of the sets.
 *
 * Journal
 * -------
 * The journal is a ring of metadata blocks.  Journal block numbers only grow;
 * block number n stands at place n modulo the size of the ring.  An entry is one
 * write of up to HYBRID_JOURNAL_ENTRY_LIMIT blocks under one checksum.  It
 * begins right behind the entry before it.  But where the largest entry would
 * wrap, every entry begins at the next multiple of the ring's size, and the
 * skipped blocks hold nothing.  Replay starts at the root's journal_tail and
 * takes entries of the root's epoch, in order, until the next entry is not
 * valid.  It must reach the root's journal_head.
 *
 * Records are absolute: each gives the state after it, so replaying one twice is
 * harmless.
 *
 * Intents
 * -------
 * An intent names granules to which a user writes at the same time.  Intents are a ring of
 * metadata blocks like the journal: intent n stands at place n modulo the size of the ring.
 *
 * The root, and each journal entry, has the tail of the ring: intents below it mean nothing
 * any more.  The intents of the root's epoch from the newest tail on count, whichever of
 * them are missing, after the journal has been replayed.  The granules of a record are
 * valid and dirty if their data has the record's checksum, unless one of them is valid
 * already.  An intent that was flushed (hybrid_intent.flushed) is damaged if it is missing,
 * or if its data does not have the checksum.
 *
 * Open regions
 * ------------
 * A region is HYBRID_REGION_BLOCKS cache blocks.  While a region is open, cache
 * and origin may differ in its clean granules.  After an unclean stop, a reader of
 * the map forgets the clean granules of open regions (the origin wins) and keeps
 * the dirty ones.
 */
#ifndef DM_HYBRID_FORMAT_H
#define DM_HYBRID_FORMAT_H

#include <linux/types.h>

#define HYBRID_FORMAT_VERSION		7
#define HYBRID_META_BLOCK_SIZE		4096	/* bytes */
#define HYBRID_META_BLOCK_SECTORS	8
#define HYBRID_HEAD_SECTORS		2048	/* 1 MiB */
#define HYBRID_TAIL_SECTORS		2048	/* 1 MiB */
#define HYBRID_SB_SECTOR		1024	/* 512 KiB into head and tail */
#define HYBRID_ALIGN_SECTORS		2048	/* data areas, sizes of volumes */

#define HYBRID_UUID_SIZE		16	/* bytes, RFC 4122 order */
#define HYBRID_KEY_SIZE			16
#define HYBRID_NAME_SIZE		64	/* NUL-terminated within */
#define HYBRID_POLICY_NAME_SIZE		16	/* NUL-terminated within */
#define HYBRID_PATH_SIZE		128	/* NUL-terminated within */

#define HYBRID_MIN_BLOCK_SECTORS	8	/* 4 KiB */
#define HYBRID_MAX_BLOCK_SECTORS	2048	/* 1 MiB */
#define HYBRID_MIN_GRANULE_SECTORS	8	/* 4 KiB */
#define HYBRID_MAX_GRANULES		64	/* in a block: masks are 64 bits */
#define HYBRID_REGION_BLOCKS		8
#define HYBRID_MAX_SET_SIZE		512	/* cache blocks, a multiple of 8 */
#define HYBRID_MAX_VOLUMES		4096

/* Superblock -------------------------------------------------------------- */

#define HYBRID_SB_MAGIC			"dm-hybrid member"	/* 16 bytes, no NUL */
#define HYBRID_SB_MAGIC_SIZE		16

#define HYBRID_ROLE_CACHE		1
#define HYBRID_ROLE_ORIGIN		2
#define HYBRID_ROLE_DETACHED		3	/* an origin that has no cache */

/* hybrid_superblock.flags: each, except the last, is for one role only */
#define HYBRID_SB_DIRTY		0x1U /* ORIGIN: its cache may hold newer data */
#define HYBRID_SB_ALONE		0x2U /* ORIGIN: it may have been written without its cache */
#define HYBRID_SB_LOSS_UNKNOWN	0x4U /* DETACHED: any data may have been lost with a cache */
#define HYBRID_SB_EPHEMERAL	0x8U /* its cache device may come up blank; CACHE: it did */

/*
 * Feature bits.  A reader that does not know a bit refuses the member if the bit
 * is in incompat, only reads the member if it is in ro_compat, and ignores the bit
 * in compat.
 */
#define HYBRID_COMPAT_KNOWN		0ULL
#define HYBRID_RO_COMPAT_KNOWN		0ULL
#define HYBRID_INCOMPAT_KNOWN		0ULL
/* Reserved for later versions of the format */
#define HYBRID_INCOMPAT_MULTI_CACHE	0x1ULL /* several cache devices */
#define HYBRID_INCOMPAT_DATA_CRC	0x2ULL /* checksums of cached data */
#define HYBRID_INCOMPAT_COMPRESSED	0x4ULL /* compressed extents */

struct hybrid_sb_cache {
	__le32 block_sectors;
	__le32 granule_sectors;
	__le32 set_size;		/* cache blocks */
	__le32 nr_sets;
	__le32 journal_blocks;		/* metadata blocks */
	__le32 nr_index;		/* index blocks, in each area */
	__le32 nr_leaves;		/* leaves, in each area */
	__le32 intent_blocks;		/* metadata blocks */
	__le64 root_sector;
	__le64 index_sector;
	__le64 leaf_sector;
	__le64 journal_sector;
	__le64 intent_sector;
	__le64 data_sector;
	__u8 policy[HYBRID_POLICY_NAME_SIZE];	/* for the next activation */
	/* These, too, are for the next activation: value + 1, 0 for the default */
	__le64 high_watermark;		/* percent */
	__le64 low_watermark;
	__le64 writeback_rate;		/* KiB a second */
	__le64 commit_interval;		/* ms */
	__le64 endurance;		/* MiB a day */
	__le64 metadata_share;		/* percent */
	__le64 trim_rate;		/* KiB a second */
	__u8 replaces[HYBRID_UUID_SIZE]; /* pool that this one replaces; zero: none */
	__le64 read_error_limit;	/* as trim_rate: value + 1 */
	__le64 write_error_limit;
};

struct hybrid_sb_origin {
	__le32 volume_id;
	__le32 instance;		/* 0: never opened yet */
	__le64 data_sector;		/* first sector of the volume's data */
	__le64 data_sectors;		/* size of the volume */
	__le64 nonce;			/* of the last session that may have written to it */
	__u8 volume_uuid[HYBRID_UUID_SIZE];
	__u8 pairing_key[HYBRID_KEY_SIZE];	/* the cache's volume entry has the same */
	__le64 lost;			/* generation of the lost map, 0: there is none */
	__le64 paired_nonce;		/* ALONE: of the session whose pool failed, 0: none */
	/* For the next cache: value + 1, 0 for the default */
	__le64 mode;			/* HYBRID_MODE_* */
	__le64 cutoff_sectors;
	__le64 quota_sectors;
	__le64 minimum_sectors;
	__u8 cache_path[HYBRID_PATH_SIZE];	/* EPHEMERAL: below /dev/disk */
};

/* One metadata block */
struct hybrid_superblock {
	__u8 magic[HYBRID_SB_MAGIC_SIZE];
	__le32 crc;
	__le32 version;
	__le64 compat;
	__le64 ro_compat;
	__le64 incompat;
	__le64 sector;			/* where on the member this copy stands */
	__le64 member_sectors;		/* size of the member when formatted or last grown */
	__u8 pool_uuid[HYBRID_UUID_SIZE];
	__u8 member_uuid[HYBRID_UUID_SIZE];
	__le32 role;
	__le32 flags;
	__le64 sequence;
	__u8 name[HYBRID_NAME_SIZE];	/* of the pool, or of the volume */
	union {
		struct hybrid_sb_cache cache;
		struct hybrid_sb_origin origin;
		__u8 role_data[512];
	};
	__u8 host_id[HYBRID_UUID_SIZE];	/* of the host that owns the member; zero: none */
	__u8 reserved[3392];
};

/* Header of every other metadata block ------------------------------------- */

#define HYBRID_ROOT_MAGIC		0x746f6f52	/* "Root" */
#define HYBRID_INDEX_MAGIC		0x78646e49	/* "Indx" */
#define HYBRID_VOLUMES_MAGIC		0x736c6f56	/* "Vols" */
#define HYBRID_MAP_MAGIC		0x7370614d	/* "Maps" */
#define HYBRID_JOURNAL_MAGIC		0x6e726e4a	/* "Jnrn" */
#define HYBRID_INTENT_MAGIC		0x746e7449	/* "Itnt" */

struct hybrid_block_header {
	__le32 magic;
	__le32 crc;
	__le64 number;		/* index of the block in its area; journal, intent: n */
	__le64 generation;	/* root: sequence; journal, intent: number again */
	__u8 pool_uuid[HYBRID_UUID_SIZE];
	__le64 epoch;		/* random, new with each activation */
	__le32 count;		/* journal, intent: records */
	__le32 blocks;		/* journal: metadata blocks in the entry */
	__le64 intent_tail;	/* journal: first intent that may still count */
};

/* Lost map ----------------------------------------------------------------- */

/*
 * The data of a volume that only the cache device had when it failed.  The pool
 * saves the map to the origin, behind each superblock, before the superblock names
 * the map's generation.  Bit c % 8 of byte c / 8 stands for chunk c of the volume;
 * a chunk whose bit is clear is not lost.  The size of a chunk is the smallest
 * power of two, at least a cache block, for which no more than HYBRID_LOST_CHUNKS
 * chunks make up the volume.
 */
#define HYBRID_LOST_MAGIC		0x74736f4c	/* "Lost" */
#define HYBRID_LOST_CHUNKS		2097152

struct hybrid_lost_map {
	struct hybrid_block_header header; /* number: copy; count: chunks lost; blocks: all */
	__u8 volume_uuid[HYBRID_UUID_SIZE];
	__u8 member_uuid[HYBRID_UUID_SIZE];	/* the origin's */
	__le32 instance;	/* of the volume */
	__le32 chunk_shift;	/* log2 of a chunk's sectors */
	__le64 data_sectors;	/* size of the volume */
	__u8 reserved[3984];
	__u8 bitmap[];
};

/* Root, index -------------------------------------------------------------- */

#define HYBRID_ROOT_CLEAN	0x1U /* stopped: journal and intents are empty */

#define HYBRID_DAY_MS			86400000
#define HYBRID_ROOT_INDEXES		1968
#define HYBRID_INDEX_LEAVES		2016

struct hybrid_root {
	struct hybrid_block_header header;
	__le64 journal_tail;	/* first entry to replay */
	__le64 journal_head;	/* replay must reach at least this */
	__le64 intent_tail;	/* as in the newest journal entry */
	__le32 flags;
	__le32 next_instance;	/* volume instances from here on were never used */
	__le64 written_sectors;	/* to the cache device, since it was formatted */
	__le32 read_errors;	/* recent errors of the cache device, halved each day */
	__le32 write_errors;
	__le32 halved_ms;	/* run time since they were halved, below HYBRID_DAY_MS */
	__le32 reserved[11];
	__le16 index_generation[HYBRID_ROOT_INDEXES];
};

struct hybrid_index {
	struct hybrid_block_header header;
	__le16 leaf_generation[HYBRID_INDEX_LEAVES];
};

/* Volume table ------------------------------------------------------------- */

#define HYBRID_VOLUME_FREE		0
#define HYBRID_VOLUME_ACTIVE		1
#define HYBRID_VOLUME_TOMBSTONE		2	/* detached; its origin is not yet marked */

/* hybrid_volume_entry.flags */
#define HYBRID_VOLUME_INPLACE	0x1U /* the origin has no head and no tail */
#define HYBRID_VOLUME_WAS_DIRTY	0x2U /* it had dirty blocks in its last session */

#define HYBRID_MODE_WRITETHROUGH	0
#define HYBRID_MODE_WRITEBACK		1
#define HYBRID_MODE_WRITEAROUND		2
#define HYBRID_MODE_PASSTHROUGH		3
#define HYBRID_NR_MODES			4

#define HYBRID_VOLUMES_PER_LEAF		15
#define HYBRID_VOLUME_LEAVES		274	/* for HYBRID_MAX_VOLUMES */

struct hybrid_volume_entry {
	__le32 state;
	__le32 instance;	/* never reused; map records carry it */
	__le32 mode;
	__le32 flags;
	__u8 uuid[HYBRID_UUID_SIZE];
	__u8 member_uuid[HYBRID_UUID_SIZE];	/* the origin's */
	__u8 pairing_key[HYBRID_KEY_SIZE];
	__le64 data_sector;	/* on the origin */
	__le64 data_sectors;
	__le64 nonce;		/* session nonce; the origin has this one ... */
	__le64 nonce_old;	/* ... or this one; 0: none */
	__le64 cutoff_sectors;	/* sequential cutoff, 0: cache everything */
	__le64 data_sectors_new;	/* size that it is growing to; 0: it is not growing */
	__u8 name[HYBRID_NAME_SIZE];
	__le64 quota_sectors;	/* limit of its share of the cache; 0: no limit */
	__le64 minimum_sectors;	/* share of the cache that other volumes leave to it */
	__u8 reserved[64];
};

struct hybrid_volume_leaf {
	struct hybrid_block_header header;
	struct hybrid_volume_entry entry[HYBRID_VOLUMES_PER_LEAF];
	__u8 reserved[192];
};

/* Map ---------------------------------------------------------------------- */

#define HYBRID_MAP_LEAF_BLOCKS		128	/* cache blocks */
#define HYBRID_LEAVES_PER_SET		4
#define HYBRID_MAP_LEAF_REGIONS		16

/*
 * Cache block i of the leaf holds block oblock[i] of the volume whose instance is
 * instance[i]; instance 0: it holds none.  Bit g of valid and dirty stands for
 * granule g of the block; dirty is within valid.
 */
struct hybrid_map_leaf {
	struct hybrid_block_header header;
	__le16 open_regions;	/* bit r: the leaf's region r is open */
	__le16 reserved16[3];
	__le64 oblock[HYBRID_MAP_LEAF_BLOCKS];
	__le64 valid[HYBRID_MAP_LEAF_BLOCKS];
	__le64 dirty[HYBRID_MAP_LEAF_BLOCKS];
	__le32 instance[HYBRID_MAP_LEAF_BLOCKS];
	__u8 hint[HYBRID_MAP_LEAF_BLOCKS];	/* the policy's */
	__u8 reserved[312];
};

/* Journal ------------------------------------------------------------------ */

#define HYBRID_JOURNAL_ENTRY_BLOCKS	64
/* Blocks of the largest entry in a ring of @ring blocks */
#define HYBRID_JOURNAL_ENTRY_LIMIT(ring) \
	((ring) / 8 < HYBRID_JOURNAL_ENTRY_BLOCKS ? (ring) / 8 : HYBRID_JOURNAL_ENTRY_BLOCKS)
#define HYBRID_JOURNAL_MIN_BLOCKS	128
#define HYBRID_JOURNAL_MAX_BLOCKS	1048576	/* 4 GiB */

#define HYBRID_RECORD_BLOCK		1	/* state of one cache block */
#define HYBRID_RECORD_REGIONS		2	/* open regions of one set */

struct hybrid_record {
	__le32 type;
	__le32 where;		/* block: cache block number; regions: set number */
	__le32 instance;	/* block: 0 = not mapped */
	__le32 hint;
	__le64 oblock;
	__le64 valid;		/* regions: mask of the open ones */
	__le64 dirty;
};

#define HYBRID_ENTRY_RECORDS(blocks) \
	(((blocks) * HYBRID_META_BLOCK_SIZE - sizeof(struct hybrid_block_header)) / \
	 sizeof(struct hybrid_record))

/* The header, then records without gaps: header.blocks metadata blocks in all */
struct hybrid_journal_entry {
	struct hybrid_block_header header;
	struct hybrid_record record[];
};

/* Intents ------------------------------------------------------------------ */

#define HYBRID_INTENT_MIN_BLOCKS	64
#define HYBRID_INTENT_MAX_BLOCKS	512
/* Blocks of the ring beside a journal of @journal blocks */
#define HYBRID_INTENT_BLOCKS(journal) \
	((journal) / 2 < HYBRID_INTENT_MAX_BLOCKS ? (journal) / 2 : HYBRID_INTENT_MAX_BLOCKS)

#define HYBRID_INTENT_RECORDS		125
#define HYBRID_INTENT_SECTORS		32	/* of the data of a record, at most */

/* A write of whole, neighbouring granules of one cache block. */
struct hybrid_intent_record {
	__le32 where;		/* cache block number */
	__le32 instance;
	__le64 oblock;
	__le64 granules;	/* mask; their data is at most HYBRID_INTENT_SECTORS */
	__le64 checksum;	/* XXH64 of that data; its seed is header.epoch */
};

struct hybrid_intent {
	struct hybrid_block_header header;
	__le64 flushed;		/* a flush made all intents below it durable, with their data */
	struct hybrid_intent_record record[HYBRID_INTENT_RECORDS];
	__u8 reserved[24];
};

#endif
