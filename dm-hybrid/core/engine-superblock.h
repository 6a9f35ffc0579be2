/* SPDX-License-Identifier: GPL-2.0-only */
/* Origins' superblocks. */
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
	u8 copy;			/* that is being written */
	u8 oldest;			/* the copy to be written first */
	bool apart;			/* the volume may have another nonce than the superblock */
	bool busy;
	bool lost_known;		/* it says what is lost with the cache */
	bool lost_saved;		/* ... and where */
	struct list_head waiters;	/* ios */
	struct hybrid_op op;
	struct hybrid_segment segment;
	struct hybrid_superblock *block;
};

/* While the volume is open: the superblock must be in state @wanted before @io goes on. */
void sb_wait(struct hybrid_engine *e, struct hybrid_volume *v, enum sb_state wanted,
	     struct hybrid_io *io, struct hybrid_actions *acts);
/* Under the engine's lock: the flush ended that the superblock waited for. */
void sb_next_locked(struct hybrid_engine *e, struct hybrid_volume *v,
		    struct hybrid_actions *acts);
/* Under the engine's lock: write both copies for what is wanted now. */
void sb_update(struct hybrid_engine *e, struct hybrid_volume *v, struct hybrid_actions *acts);
/*
 * Blocking, while the volume is opened, closed, or grows, or its superblock is claimed.  Write
 * sb.block there; read or write a copy of a superblock on a member of so many sectors.
 */
void sb_write_block(struct hybrid_volume *v, struct hybrid_op *op, u64 sector);
int sb_io(struct hybrid_volume *v, unsigned int copy, u64 sectors, bool write);
int sb_write_both(struct hybrid_volume *v);
/* Read both, and take the one that counts; -ENODATA, -EIO, -EMEDIUMTYPE: *why says more. */
int sb_read(struct hybrid_volume *v, u64 sectors, const char **why);
/* Is it that of the volume?  0 or -EMEDIUMTYPE. */
int sb_matches(const struct hybrid_engine *e, const struct hybrid_volume *v, u64 sectors,
	       const char **why);
/* Both copies get the present nonce, before the cache hears of another. */
int sb_unite(struct hybrid_volume *v);
/* In RAM: a write failed; it goes, or went on, with its cache; it gets the name of its entry. */
void sb_failed(struct hybrid_volume *v, int error);
void sb_paired(struct hybrid_volume *v, u64 nonce);
void sb_take_name(struct hybrid_volume *v);
/* Is it a nonce that the cache knows? */
bool nonce_known(const struct hybrid_volume *v, u64 nonce);

#endif
