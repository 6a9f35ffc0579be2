/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Images of pools, made by the tools' format and by the engine itself, and every
 * metadata block on them with its fields.
 */
#ifndef FUZZ_IMAGES_H
#define FUZZ_IMAGES_H

#include "pool.h"

enum place_kind {
	PLACE_SUPERBLOCK,
	PLACE_ROOT,
	PLACE_INDEX,
	PLACE_VOLUMES,
	PLACE_MAP,
	PLACE_JOURNAL,
	PLACE_INTENT,
	PLACE_LOST,
	NR_PLACE_KINDS
};

/* A value in a metadata block; an array is one field of several elements. */
struct field {
	const char *name;
	u32 offset, size;
	u32 count, stride;	/* count 0: as many as the entry has records */
};

struct fields {
	const struct field *field;
	u32 nr;
};

extern const struct fields fields_of[NR_PLACE_KINDS];

/* One metadata block, or journal entry, of an image. */
struct place {
	char name[24];
	enum place_kind kind;
	u32 disk;		/* 0: cache device, else origin disk - 1 */
	u64 sector;
	u32 blocks;
	bool old;		/* the other area's: no parent names it */
};

#define MAX_PLACES	96

struct image {
	const char *name;
	struct disk disk[1 + POOL_ORIGINS];
	struct hybrid_sb sb;		/* the cache device's */
	struct hybrid_root_info root;	/* the current one */
	u64 journal_end, journal_kept;	/* where the next entry belongs */
	u64 intent_tail;		/* of the newest entry */
	struct place place[MAX_PLACES];
	u32 nr_places, nr_kept;
};

#define NR_IMAGES	4

/* All of them, made at the first call. */
struct image *images(void);
struct image *image_find(const char *name);

/* As they were; forget the places that were added. */
void image_reset(struct image *im);

/* A pool over the image's disks, not yet loaded. */
void image_pool(struct image *im, struct pool *p);
/* Which volume belongs to which origin. */
extern const u32 image_volume[POOL_ORIGINS];

struct place *image_add_place(struct image *im, enum place_kind kind, u32 disk, u64 sector,
			      u32 blocks, const char *name);

#endif
