/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Damage to an image, as a list of small changes: the fuzzer mutates such lists,
 * and regressions and the matrix are written in them.  After each change that is
 * not raw the checksum of the block is mended, so that readers get beyond the
 * check.
 *
 * As bytes (the fuzzer's): the number of the image, then changes of 16 bytes.
 * Any bytes mean something.  As text, one a line:
 *
 *	image crashed
 *	set map0.oblock[5] 0x10
 *	add root.journal_head -1
 *	swap map0.instance[3]		with the next one
 *
 *	flip index0 100 0x80		bits of the byte at 100
 *	copy volumes0 volumes1		... and renumber it
 *	zero map1
 *
 *	append 3 0x1234			a journal entry of 3 records, journalN from then on
 *	cut cache 9000			the device has so many sectors
 *	raw set map0.valid[0] 1
 */
#ifndef FUZZ_CHANGE_H
#define FUZZ_CHANGE_H

#include <stdio.h>

#include "images.h"

enum verb {
	CHANGE_SET,
	CHANGE_ADD,
	CHANGE_SWAP,
	CHANGE_FLIP,
	CHANGE_COPY,
	CHANGE_ZERO,
	CHANGE_APPEND,
	CHANGE_CUT,
	NR_VERBS
};

struct change {
	u8 verb;
	u8 raw;			/* odd: the checksum stays as it was */
	u8 place;		/* cut: disk */
	u8 from;		/* copy: place */
	__le16 field;		/* flip: offset; append: records */
	__le16 element;
	__le64 value;
};

#define MAX_CHANGES	24

struct damage {
	struct image *image;
	struct change change[MAX_CHANGES];
	u32 nr;
};

void damage_from_bytes(struct damage *d, const u8 *bytes, size_t len);
size_t damage_to_bytes(const struct damage *d, u8 *bytes, size_t len);

/* As many changes as lines; 0, or the number of the line that makes no sense. */
int damage_from_text(struct damage *d, FILE *file);
void damage_to_text(struct damage *d, FILE *file);

/* Reset the image, then change it. */
void damage_do(const struct damage *d);

/* The elements that a field of a place has in this image. */
u32 field_count(struct image *im, const struct place *p, const struct field *f);
/* Does the field exist at this place? */
bool field_applies(const struct place *p, const struct field *f);

#endif
