// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The corruption matrix: every field of every structure, and every block, damaged in every way;
 * check's verdict, and whether the module agrees.
 *
 * One letter for each way: c clean, r recoverable, v refused for a volume, d damaged.
 */
#include <stdlib.h>

#include "errors.h"
#include "targets.h"

static u32 disagreements;

/* The letter for the damage. */
static char verdict(const struct damage *d)
{
	int code[1 + POOL_ORIGINS], i;
	const char *different;
	char letter = 'c';

	damage_do(d);
	different = disagreement(d->image, code);
	if (different) {
		printf("# %s:\n", different);
		damage_to_text((struct damage *)d, stdout);
		disagreements++;
	}
	for (i = 0; i <= POOL_ORIGINS; i++)
		if (code[i] == HYBRID_BADDEV)
			return i ? 'v' : 'd';
		else if (code[i])
			letter = 'r';
	return letter;
}

/* ---- fields -------------------------------------------------------------------- */

static const struct way {
	enum verb verb;
	u64 value;
	bool raw;
} ways[] = {
	{ CHANGE_SET, 0 },
	{ CHANGE_SET, U64_MAX },
	{ CHANGE_ADD, 1 },
	{ CHANGE_ADD, U64_MAX },
	{ CHANGE_SET, 0x9e3779b97f4a7c15ULL },
	{ CHANGE_SWAP, 0 },
	{ CHANGE_ADD, 1, true },
};

static void field_line(struct image *im, u32 place, u32 field, u32 element, u32 count)
{
	const struct place *p = &im->place[place];
	struct damage d = { .image = im, .nr = 1 };
	struct change *c = &d.change[0];
	char letters[ARRAY_SIZE(ways) + 1] = "", name[80];
	u32 i;
	int len;

	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		*c = (struct change){
			.verb = ways[i].verb, .raw = ways[i].raw, .place = place,
			.field = cpu_to_le16(field), .element = cpu_to_le16(element),
			.value = cpu_to_le64(ways[i].value),
		};
		letters[i] = verdict(&d);
	}
	len = snprintf(name, sizeof(name), "%s %s.%s", im->name, p->name,
		       fields_of[p->kind].field[field].name);
	if (count > 1)
		snprintf(name + len, sizeof(name) - len, "[%u]", element);
	printf("%-52s %s\n", name, letters);
}

/* The first element, the last, and the first other one that is in use on the disk. */
static void field_lines(struct image *im, u32 place, u32 field)
{
	const struct place *p = &im->place[place];
	const struct field *f = &fields_of[p->kind].field[field];
	u32 count = field_count(im, p, f), used;
	const u8 *at = im->disk[p->disk].bytes + p->sector * 512 + f->offset;

	for (used = 1; used < count && !at[used * f->stride]; used++)
		;
	field_line(im, place, field, 0, count);
	if (used + 1 < count)
		field_line(im, place, field, used, count);
	if (count > 1)
		field_line(im, place, field, count - 1, count);
}

/* ---- blocks -------------------------------------------------------------------- */

/* A block of the same kind: the next one, or of an older generation. */
static int other(struct image *im, u32 place, bool old)
{
	const struct place *p = &im->place[place], *q;
	u32 i;

	for (i = 0; i < im->nr_places; i++) {
		q = &im->place[i];
		if (i != place && q->kind == p->kind && q->disk == p->disk &&
		    strstarts(q->name, p->name) == old)
			return i;
	}
	return -1;
}

/* Zeroed; another one's contents, an older one's: renumbered, and as they were. */
static void block_line(struct image *im, u32 place)
{
	struct damage d = { .image = im, .nr = 1 };
	char letters[] = "-----", name[80];
	u32 old, raw;
	int from;

	d.change[0] = (struct change){ .verb = CHANGE_ZERO, .place = place };
	letters[0] = verdict(&d);
	for (old = 0; old < 2; old++)
		for (raw = 0; raw < 2; raw++) {
			from = other(im, place, old);
			if (from < 0)
				continue;
			d.change[0] = (struct change){ .verb = CHANGE_COPY, .raw = raw,
						       .place = place, .from = from };
			letters[1 + 2 * old + raw] = verdict(&d);
		}
	snprintf(name, sizeof(name), "%s %s", im->name, im->place[place].name);
	printf("%-52s %s\n", name, letters);
}

/* ---- all ------------------------------------------------------------------------ */

/* One block of each kind on each device, and one of each kind that is old. */
static bool first_of_its_kind(const struct image *im, const struct place *p)
{
	const struct place *q;

	for (q = im->place; q < p; q++)
		if (q->kind == p->kind && q->disk == p->disk && q->old == p->old &&
		    p->kind != PLACE_SUPERBLOCK)
			return false;
	return true;
}

static void place_lines(struct image *im, u32 place)
{
	const struct place *p = &im->place[place];
	const struct fields *all = &fields_of[p->kind];
	u32 f;

	block_line(im, place);
	for (f = 0; first_of_its_kind(im, p) && f < all->nr; f++)
		if (field_applies(p, &all->field[f]))
			field_lines(im, place, f);
}

int matrix(void)
{
	static const char * const names[] = { "crashed", "clean", "lost" };
	struct image *im;
	u32 i, p;

	puts("# SPDX-License-Identifier: GPL-2.0-or-later");
	puts("# Written by build/fuzz-replay/replay --matrix; tests/fuzz/matrix.c explains it.");
	puts("# A field: 0, max, +1, -1, random, swapped, all mended; +1, not mended.");
	puts("# A block: zeroed; another, an older one, each renumbered and as it was.");
	for (i = 0; i < ARRAY_SIZE(names); i++) {
		im = image_find(names[i]);
		for (p = 0; p < im->nr_places; p++)
			/* Of the third image, the places that the others do not have */
			if (i < 2 || im->place[p].kind == PLACE_LOST)
				place_lines(im, p);
	}
	return disagreements ? 1 : 0;
}
