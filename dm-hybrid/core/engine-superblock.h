/* SPDX-License-Identifier: GPL-2.0-only */
/* Superblocks of origins. */
#ifndef DM_HYBRID_ENGINE_SUPERBLOCK_H
#define DM_HYBRID_ENGINE_SUPERBLOCK_H

#include "engine.h"
#include "map.h"

enum sb_state {
	SB_CLEAN,		/* as on disk, as far as known */
	SB_DIRTY,		/* the dirty flag is durable */
	SB_ALONE,		/* written without its cache: a fresh nonce is durable */
};

struct hybrid_origin_sb {
	struct hybrid_sb info;		/* as it is on the disk, or on its way there */
	bool present;			/* an origin in place has none */
	u8 state;			/* enum sb_state, READ_ONCE without the lock */
	u8 wanted;
	u8 writing;
	u8 copy;			/* the copy being written */
	u8 oldest;			/* the copy to be written first */
	bool apart;			/* the two copies may have different nonces */
	bool busy;
	bool claim_waits;		/* no flush of the origin begins before the claim */
	bool lost_known;		/* info tells whether the failed cache took data with it */
	bool lost_saved;		/* ... and a copy of the lost map is durable */
	struct list_head waiters;	/* ios */
	struct hybrid_op op;
	struct hybrid_segment segment;
	struct hybrid_superblock *block;
};

/*
 * Makes @io wait until the superblock of the open volume is in state @wanted.  Takes the engine's
 * lock.
 */
void hybrid_sb_wait(struct hybrid_engine *e, struct hybrid_volume *v, enum sb_state wanted,
		    struct hybrid_io *io, struct hybrid_actions *acts);
/* Continues with the superblock after the flush that it waited for.  Under the engine's lock. */
void hybrid_sb_next_locked(struct hybrid_engine *e, struct hybrid_volume *v,
			   struct hybrid_actions *acts);
/*
 * Begins to write both copies for the wanted state, after the list of lost granules if there is
 * one.  Under the engine's lock.
 */
void hybrid_sb_update(struct hybrid_engine *e, struct hybrid_volume *v,
		      struct hybrid_actions *acts);
/*
 * The first prepares a write of sb.block to @sector.  The others block: they read or write one copy
 * on a member of @sectors, and write both copies; 0 or -errno.  Only while the volume is opened or
 * closed, grows, or its superblock is claimed.
 */
void hybrid_sb_write_block(struct hybrid_volume *v, struct hybrid_op *op, u64 sector);
int hybrid_sb_io(struct hybrid_volume *v, unsigned int copy, u64 sectors, bool write);
int hybrid_sb_write_both(struct hybrid_volume *v);
/*
 * May sleep.  Reads both copies and takes the valid one that counts.  Returns 0 or, with the
 * reason in *why, an error of the read, -EMEDIUMTYPE or an error of hybrid_sb_decode().
 */
int hybrid_sb_read(struct hybrid_volume *v, u64 sectors, const char **why);
/* Is this the volume's superblock?  Returns 0, or -EMEDIUMTYPE with the reason in *why. */
int hybrid_sb_matches(const struct hybrid_engine *e, const struct hybrid_volume *v, u64 sectors,
		      const char **why);
/*
 * May sleep.  If the copies may have different nonces, writes the present one to the older copy,
 * before the cache hears of another.
 */
int hybrid_sb_unite(struct hybrid_volume *v);
/*
 * In RAM only: notes a failed write; pairs origin and cache; takes the name from the entry.
 */
void hybrid_sb_failed(struct hybrid_volume *v, int error);
void hybrid_sb_paired(struct hybrid_volume *v, u64 nonce);
void hybrid_sb_take_name(struct hybrid_volume *v);
/* Ends hybrid_volume_claim_sb().  The caller holds no lock. */
void hybrid_sb_release(struct hybrid_engine *e, struct hybrid_volume *v,
		       struct hybrid_actions *acts);
/* Does the cache know this nonce? */
bool hybrid_nonce_known(const struct hybrid_volume *v, u64 nonce);

#endif
