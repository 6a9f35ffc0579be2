/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * All of a pool's metadata in memory, as the kernel would load it; if the kernel
 * would refuse it, all of its good parts.  The codec judges the bytes, and
 * journal.c replays the journal; the faults that they see become findings.
 */
#ifndef HYBRID_METADATA_H
#define HYBRID_METADATA_H

#include "codec.h"
#include "devices.h"
#include "findings.h"

/* hybrid_metadata.leaf_state */
enum hybrid_leaf_state {
	HYBRID_LEAF_EMPTY,	/* generation 0: never written */
	HYBRID_LEAF_GOOD,
	HYBRID_LEAF_BAD,	/* named, but no good block is there; or its index block is bad */
};

/* hybrid_metadata.block_state */
enum hybrid_block_state {
	HYBRID_BLOCK_FREE,
	HYBRID_BLOCK_LIVE,	/* the only one that holds this block of an active volume */
	HYBRID_BLOCK_DEAD,	/* its instance is of no active volume that is known */
	HYBRID_BLOCK_CLAIMED,	/* was live, but another one was loaded later for the same */
	HYBRID_BLOCK_BAD,	/* wrong set, beyond the volume, or its instance never was */
};

/* How much of a volume is cached. */
struct hybrid_volume_usage {
	u64 blocks, dirty_blocks, dirty_granules;
};

struct hybrid_metadata {
	struct hybrid_sb sb;		/* the cache device's, current copy */
	const struct hybrid_geometry *g;	/* of sb */
	struct hybrid_ident id;		/* pool UUID; epoch of the root */
	u32 copies;			/* good superblock copies: bit 0 head, bit 1 tail */
	u32 roots;			/* good roots: bit 0 area A, bit 1 area B */
	struct hybrid_root_info root;	/* the current one; zero if none is good */

	/* The rest only after hybrid_metadata_read() */
	u16 *index_generation;		/* nr_index; 0 if no root is good */
	u16 *leaf_generation;		/* nr_leaves; 0 below a bad index block */
	u8 *leaf_state;			/* nr_leaves */
	struct hybrid_volume_info *volume;	/* HYBRID_MAX_VOLUMES */
	struct hybrid_volume_usage *usage;	/* the same; of live blocks */
	struct hybrid_instance {
		u32 instance, volume;
	} *by_instance;			/* active volumes, sorted */
	u32 nr_active;
	/*
	 * By cache block, after the replay of the journal, and before recovery forgets
	 * clean granules in open regions.  Blocks that are not live keep their values.
	 */
	u64 *oblock, *valid, *dirty;
	u32 *instance;
	u8 *hint;
	u8 *block_state;
	u64 *open;			/* by set: open regions */
	u64 journal_head;		/* behind the last good entry */
	u64 journal_records;		/* replayed */
	u64 intent_tail;		/* behind the last good intent */
	u64 intent_records;		/* whose granules became dirty */
	u64 open_regions;
};

/* The meaning of an error of the codec, in words; @why: the field that it named, or NULL. */
#define HYBRID_CODEC_TEXT	96
const char *hybrid_codec_text(char buf[HYBRID_CODEC_TEXT], int error, const char *why);

/* Both superblocks of a member. */
struct hybrid_superblocks {
	struct hybrid_sb sb;		/* the one that counts */
	struct hybrid_sb copy[2];	/* head, tail */
	u32 good;			/* bit 0: head, bit 1: tail */
};

/*
 * Reads both superblocks.  Returns 0, or an exit code: there is none, or none that
 * may be used; a finding has the reason.  sb is zero if neither is good.
 */
int hybrid_superblocks_read(const struct hybrid_device *dev, struct hybrid_findings *f,
			    struct hybrid_superblocks *s);

/*
 * Reads superblocks, roots and the journal's first entry, which takes no time at
 * any size.  Returns 0, or an exit code: no superblock of a cache device that may
 * be used (with a finding), or no memory (with a message).  Free it in any case.
 */
int hybrid_metadata_read_head(struct hybrid_metadata *md, const struct hybrid_device *dev,
			      struct hybrid_findings *f);

/* Reads everything.  Returns as hybrid_metadata_read_head(). */
int hybrid_metadata_read(struct hybrid_metadata *md, const struct hybrid_device *dev,
			 struct hybrid_findings *f);

/*
 * Reads everything but superblocks, in the layout of @sb and with its UUIDs, which must be a cache
 * device's.  Returns 0, or no memory (with a message).  Free it in any case.
 */
int hybrid_metadata_read_as(struct hybrid_metadata *md, const struct hybrid_device *dev,
			    struct hybrid_findings *f, const struct hybrid_sb *sb);

void hybrid_metadata_free(struct hybrid_metadata *md);

/*
 * For callers that fill one in themselves: sb is given, everything else is zeroed.
 * Returns 0, or an exit code after a message; free it in any case.
 */
int hybrid_metadata_alloc(struct hybrid_metadata *md);

/* Set by_instance, and usage by block_state. */
void hybrid_metadata_index(struct hybrid_metadata *md);
void hybrid_metadata_count(struct hybrid_metadata *md);

/* The active volume whose blocks carry @instance, as its id; -1: none. */
int hybrid_metadata_volume_of(const struct hybrid_metadata *md, u32 instance);

/* The active volume in place whose origin @dev looks like, as its id; -1: none, or more than one. */
int hybrid_metadata_inplace(const struct hybrid_metadata *md, const struct hybrid_device *dev);

/* --volume a,b: is this one of them?  NULL: all are. */
bool hybrid_volume_named(const struct hybrid_volume_info *v, const char *list);

/*
 * The active volumes with dirty data that @list does not name, and how much they have, as text: ""
 * if there are none.  NULL: no memory.  Free it.
 */
char *hybrid_volumes_dirty(const struct hybrid_metadata *md, const char *list);

/* Are all of them there?  Returns 0 or an exit code. */
int hybrid_volumes_named(const struct hybrid_metadata *md, const char *list);

#endif
