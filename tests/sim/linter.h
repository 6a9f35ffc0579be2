/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The linter's state, for linter.c and intents.c. */
#ifndef SIM_LINTER_H
#define SIM_LINTER_H

#include "sim.h"
#include "recovery.h"

struct owner {
	u32 instance;
	u64 oblock;
	u64 valid, dirty;
};

/* Journal entries that are durable, or in flight */
struct entry_seen {
	struct list_head link;
	struct action *action;	/* the action that writes it */
	u64 n;
	u64 intent_tail;
	u32 blocks, nr;
	bool durable;
	struct hybrid_record record[];
};

struct linter {
	struct world *w;
	const struct hybrid_geometry *g;
	bool failed;		/* the cache device's metadata could not be written ... */
	bool in_order;		/* ... and it was no intent: nothing may follow */
	bool known;		/* the state on disk, since the first root of this life */
	bool flushed[SIM_MAX_DEVICES];
	bool unsettled[SIM_MAX_DEVICES];	/* a flush failed: some records wait for ever */
	bool data_flushed;	/* the cache device was flushed since the last journal entry */
	u64 assembled;		/* the entry of the cache device's last flush was assembled by then */
	bool tree_flushed;	/* the cache device was flushed since the last leaf or index block */
	struct owner *durable, *sent;	/* of each cache block */
	struct owner *leaf;		/* ... by the leaves written last */
	u64 *open_durable, *open_sent, *open_leaf;	/* of each set */
	struct list_head entries;	/* since the durable root's tail, in order */
	struct hybrid_root_info root;	/* durable */
	const struct found *before;	/* state that the last life left; NULL: not known */
	u16 *generation;		/* of leaves, by the durable root */
	u16 *index;			/* of index blocks */
	u32 leaves_in_flight;
	struct hybrid_volume_info table[HYBRID_MAX_VOLUMES];	/* by the leaves */
	struct hybrid_volume_info table_durable[SIM_MAX_VOLUMES];
	bool origin_dirty[SIM_MAX_VOLUMES];
	u64 origin_nonce[SIM_MAX_VOLUMES];
	u64 copy_nonce[SIM_MAX_VOLUMES][2];	/* 0: no good copy */
	bool origin_lost[SIM_MAX_VOLUMES];	/* some copy names a lost map */
	u32 cold[SIM_MAX_VOLUMES];	/* the instance left behind by a cold start, 0: none */
	u8 *block;			/* one metadata block or entry, or both lost maps */
	struct list_head intended;	/* writes under intents that may count: intents.c */
	u64 next_intent, tail_sent, tail_durable;
	u64 intents_flushed, intents_flushing;	/* intents below it are durable, with their data */
	struct dreq *flush;		/* ... once this request has ended */
};

#define broken(l, rule, fmt, ...) \
	violation((l)->w, rule, fmt " (#%u)", ##__VA_ARGS__, (a)->nr)

struct volume *volume_of_instance(struct linter *l, u32 instance);
/* Number of the simulator's block: blocks in a volume's hole do not exist. */
u64 oblock_of(__le64 oblock);
/* Mask of the granules of @count sectors from sector @first of a block on. */
u64 granules_of(struct linter *l, u32 first, u32 count);

/* ---- intents.c -------------------------------------------------------------- */

/* The first root of a life says that the log begins with @tail. */
void intents_learn(struct linter *l, u64 tail);
void intents_drop(struct linter *l);
/* An intent is written. */
void intents_submitted(struct linter *l, struct action *a, u64 sector, const void *bytes);
/* Granules of block @b are written. */
void intents_data(struct linter *l, struct action *a, struct dreq *r, u32 b, u64 granules);
/* Something is done to sectors @from ... @to - 1 of the volume's origin. */
void intents_origin(struct linter *l, struct action *a, struct volume *vol, u64 from, u64 to);
/* The request has ended, perhaps with an error. */
void intents_ended(struct linter *l, struct action *a, struct dreq *r);
/* A flush of the cache device begins. */
void intents_flush(struct linter *l, struct dreq *r);
/* A journal entry that moves the tail to @tail: l->sent has its records already. */
void intents_entry(struct linter *l, struct action *a, u64 tail);
void intents_entry_durable(struct linter *l, u64 tail);
void intents_root(struct linter *l, struct action *a, const struct hybrid_root_info *root);

#endif
