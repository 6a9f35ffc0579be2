// SPDX-License-Identifier: GPL-2.0-or-later
#include <stdlib.h>

#include "change.h"

static const char * const verbs[NR_VERBS] = {
	"set", "add", "swap", "flip", "copy", "zero", "append", "cut",
};

/* ---- mending ------------------------------------------------------------------- */

static u8 *place_bytes(struct image *im, const struct place *p, size_t *len)
{
	*len = p->blocks * HYBRID_META_BLOCK_SIZE;
	return disk_change(&im->disk[p->disk], p->sector, *len);
}

static void mend(const struct place *p, u8 *bytes, size_t len)
{
	struct hybrid_block_header *h = (void *)bytes;
	struct hybrid_superblock *sb = (void *)bytes;
	u32 blocks = le32_to_cpu(h->blocks);

	if (p->kind == PLACE_SUPERBLOCK) {
		sb->crc = cpu_to_le32(hybrid_crc(sb, sizeof(*sb),
						 offsetof(struct hybrid_superblock, crc)));
		return;
	}
	if (p->kind == PLACE_JOURNAL && blocks && blocks <= p->blocks)
		len = blocks * HYBRID_META_BLOCK_SIZE;
	h->crc = cpu_to_le32(hybrid_crc(h, len, offsetof(struct hybrid_block_header, crc)));
}

/* ---- one change ------------------------------------------------------------------ */

bool field_applies(const struct place *p, const struct field *f)
{
	if (p->kind != PLACE_SUPERBLOCK)
		return true;
	return !strstarts(f->name, p->disk ? "cache." : "origin.");
}

u32 field_count(struct image *im, const struct place *p, const struct field *f)
{
	const struct hybrid_block_header *h = (void *)(im->disk[p->disk].bytes + p->sector * 512);
	u32 max;

	if (f->count)
		return f->count;
	max = (p->blocks * HYBRID_META_BLOCK_SIZE - f->offset - f->size) / f->stride + 1;
	return clamp_t(u32, le32_to_cpu(h->count), 1, max);
}

static u64 get(const u8 *at, u32 size)
{
	u64 v = 0;

	memcpy(&v, at, min_t(u32, size, sizeof(v)));
	return v;
}

/* Bytes get the value again and again. */
static void put(u8 *at, u32 size, u64 value)
{
	u32 i;

	for (i = 0; i < size; i++)
		at[i] = value >> (i % 8 * 8);
}

/* With the next element, or the next field of the same size. */
static void swap_values(const struct place *p, const struct field *f, u8 *block, u32 element,
			u32 count)
{
	const struct fields *all = &fields_of[p->kind];
	u8 *a = block + f->offset + element * f->stride, *b = NULL, old[HYBRID_META_BLOCK_SIZE];
	const struct field *g;

	if (count > 1)
		b = block + f->offset + (element + 1) % count * f->stride;
	for (g = f + 1; !b && g < all->field + all->nr; g++)
		if (g->size == f->size && field_applies(p, g))
			b = block + g->offset;
	if (!b)
		return;
	memcpy(old, a, f->size);
	memmove(a, b, f->size);
	memcpy(b, old, f->size);
}

static void change_field(struct image *im, const struct change *c, const struct place *p,
			 u8 *bytes)
{
	const struct field *f = &fields_of[p->kind].field[le16_to_cpu(c->field) %
							  fields_of[p->kind].nr];
	u32 count = field_count(im, p, f), element = le16_to_cpu(c->element) % count;
	u8 *at = bytes + f->offset + element * f->stride;
	u64 value = le64_to_cpu(c->value);

	switch (c->verb % NR_VERBS) {
	case CHANGE_SET:
		put(at, f->size, value);
		break;
	case CHANGE_ADD:
		put(at, min(f->size, 8U), get(at, f->size) + value);
		break;
	default:
		swap_values(p, f, bytes, element, count);
	}
}

/* Another block's contents as if they had been written here. */
static void copy_place(struct image *im, const struct place *to, const struct place *from, u8 *bytes,
		       size_t len)
{
	struct hybrid_block_header *h = (void *)bytes, own = *h;
	struct hybrid_superblock *sb = (void *)bytes;
	const u8 *other = im->disk[from->disk].bytes + from->sector * 512;

	memmove(bytes, other, min_t(size_t, len, from->blocks * HYBRID_META_BLOCK_SIZE));
	if (to->kind == PLACE_SUPERBLOCK) {
		sb->sector = cpu_to_le64(to->sector);
		return;
	}
	h->number = own.number;
	h->generation = own.generation;
}

static void random_record(struct image *im, struct hybrid_record *r, u64 *seed)
{
	const struct hybrid_geometry *g = &im->sb.geometry;
	u64 x = *seed = *seed * 6364136223846793005ULL + 1442695040888963407ULL;
	u64 masks = GENMASK_ULL(g->granules - 1, 0);

	memset(r, 0, sizeof(*r));
	if (x >> 60 == 0) {
		r->type = cpu_to_le32(HYBRID_RECORD_REGIONS);
		r->where = cpu_to_le32((x >> 32) % g->nr_sets);
		r->valid = cpu_to_le64(x >> 8 & 0xf);
		return;
	}
	r->type = cpu_to_le32(HYBRID_RECORD_BLOCK);
	r->where = cpu_to_le32((x >> 32) % g->nr_blocks);
	r->instance = cpu_to_le32(x >> 28 & 3);
	if (!r->instance)
		return;
	r->oblock = cpu_to_le64(x >> 40 & 0x3f);
	r->valid = cpu_to_le64(x >> 16 & masks);
	r->dirty = cpu_to_le64(x >> 16 & x >> 20 & masks);
}

static void append(struct image *im, const struct change *c)
{
	u32 nr = 1 + le16_to_cpu(c->field) % 100, blocks, i;
	const struct hybrid_geometry *g = &im->sb.geometry;
	u32 max = HYBRID_JOURNAL_ENTRY_LIMIT(g->journal_blocks);
	u64 n = hybrid_journal_place(g, im->journal_end, max), seed = le64_to_cpu(c->value);
	struct hybrid_ident id = { .epoch = im->root.epoch };
	struct hybrid_journal_entry *e;
	char name[24];

	/* 100 records fill two blocks */
	e = disk_change(&im->disk[0], hybrid_journal_sector(g, n), 2 * HYBRID_META_BLOCK_SIZE);
	if (!e)
		return;
	memcpy(id.pool_uuid, im->sb.pool_uuid, sizeof(id.pool_uuid));
	for (i = 0; i < nr; i++)
		random_record(im, &e->record[i], &seed);
	blocks = hybrid_entry_seal(e, &id, n, nr, im->intent_tail);
	snprintf(name, sizeof(name), "added%u", im->nr_places - im->nr_kept);
	image_add_place(im, PLACE_JOURNAL, 0, hybrid_journal_sector(g, n), blocks, name);
	im->journal_end = n + blocks;
}

static void change_place(struct image *im, const struct change *c)
{
	const struct place *p = &im->place[c->place % im->nr_places];
	size_t len;
	u8 *bytes = place_bytes(im, p, &len);

	if (!bytes)
		return;
	switch (c->verb % NR_VERBS) {
	case CHANGE_FLIP:
		bytes[le16_to_cpu(c->field) % len] ^= le64_to_cpu(c->value);
		break;
	case CHANGE_COPY:
		copy_place(im, p, &im->place[c->from % im->nr_places], bytes, len);
		break;
	case CHANGE_ZERO:
		memset(bytes, 0, len);
		return;
	default:
		change_field(im, c, p, bytes);
	}
	if (!(c->raw & 1))
		mend(p, bytes, len);
}

static void do_change(struct image *im, const struct change *c)
{
	struct disk *d = &im->disk[c->place % (1 + POOL_ORIGINS)];

	if (c->verb % NR_VERBS == CHANGE_APPEND)
		append(im, c);
	else if (c->verb % NR_VERBS == CHANGE_CUT)
		d->device.sectors = le64_to_cpu(c->value) % (d->size + 1);
	else
		change_place(im, c);
}

void damage_do(const struct damage *d)
{
	u32 i;

	image_reset(d->image);
	for (i = 0; i < d->nr; i++)
		do_change(d->image, &d->change[i]);
}

/* ---- bytes ----------------------------------------------------------------------- */

void damage_from_bytes(struct damage *d, const u8 *bytes, size_t len)
{
	struct image *all = images();

	d->image = &all[len ? bytes[0] % NR_IMAGES : 0];
	d->nr = len ? min_t(size_t, (len - 1) / sizeof(struct change), MAX_CHANGES) : 0;
	memcpy(d->change, bytes + 1, d->nr * sizeof(struct change));
}

size_t damage_to_bytes(const struct damage *d, u8 *bytes, size_t len)
{
	size_t need = 1 + d->nr * sizeof(struct change);

	if (len < need)
		return 0;
	bytes[0] = d->image - images();
	memcpy(bytes + 1, d->change, d->nr * sizeof(struct change));
	return need;
}

/* ---- text ------------------------------------------------------------------------ */

static int find_place(struct image *im, const char *name, size_t len)
{
	u32 i;

	for (i = 0; i < im->nr_places; i++)
		if (strlen(im->place[i].name) == len && !strncmp(im->place[i].name, name, len))
			return i;
	return -1;
}

/* "map0.oblock[5]": the longest name of a place that it begins with, then a field. */
static int parse_field(struct image *im, const char *text, struct change *c)
{
	const struct fields *all;
	char name[64];
	u32 element = 0, i;
	size_t len;
	int place = -1;

	for (len = strlen(text); len && place < 0; len--)
		if (text[len] == '.')
			place = find_place(im, text, len);
	if (place < 0 || sscanf(text + len + 2, "%63[^[][%u]", name, &element) < 1)
		return -1;
	c->place = place;
	c->element = cpu_to_le16(element);
	all = &fields_of[im->place[place].kind];
	for (i = 0; i < all->nr; i++)
		if (!strcmp(all->field[i].name, name)) {
			c->field = cpu_to_le16(i);
			return 0;
		}
	return -1;
}

static int parse_place(struct image *im, const char *text, u8 *number)
{
	int place = find_place(im, text, strlen(text));

	*number = place;
	return place < 0 ? -1 : 0;
}

static int parse_disk(struct image *im, const char *text, u8 *number)
{
	for (*number = 0; *number <= POOL_ORIGINS; ++*number)
		if (!strcmp(im->disk[*number].name, text))
			return 0;
	return -1;
}

/* @word: the words behind the verb; "" for missing ones. */
static int parse_words(struct image *im, struct change *c, char word[3][64])
{
	c->value = cpu_to_le64(strtoull(word[1], NULL, 0));
	switch (c->verb) {
	case CHANGE_SET:
	case CHANGE_ADD:
	case CHANGE_SWAP:
		return parse_field(im, word[0], c);
	case CHANGE_FLIP:
		c->field = cpu_to_le16(strtoul(word[1], NULL, 0));
		c->value = cpu_to_le64(strtoull(word[2], NULL, 0));
		return parse_place(im, word[0], &c->place);
	case CHANGE_COPY:
		return parse_place(im, word[0], &c->place) | parse_place(im, word[1], &c->from);
	case CHANGE_ZERO:
		return parse_place(im, word[0], &c->place);
	case CHANGE_APPEND:
		c->field = cpu_to_le16(strtoul(word[0], NULL, 0) - 1);
		return 0;
	default:
		return parse_disk(im, word[0], &c->place);
	}
}

static int parse_line(struct damage *d, const char *line)
{
	struct change *c = &d->change[d->nr];
	char verb[8] = "", word[3][64] = { "", "", "" };
	int skip = 0;

	if (sscanf(line, "image %63s", word[0]) == 1) {
		d->image = image_find(word[0]);
		if (d->image)
			image_reset(d->image);
		return d->image ? 0 : -1;
	}
	if (!d->image || d->nr == MAX_CHANGES)
		return -1;
	memset(c, 0, sizeof(*c));
	sscanf(line, "raw %n", &skip);
	c->raw = !!skip;
	if (sscanf(line + skip, "%7s %63s %63s %63s", verb, word[0], word[1], word[2]) < 2)
		return -1;
	for (c->verb = 0; c->verb < NR_VERBS && strcmp(verbs[c->verb], verb); c->verb++)
		;
	if (c->verb == NR_VERBS || parse_words(d->image, c, word))
		return -1;
	/* Places that it adds are known from here on */
	do_change(d->image, c);
	d->nr++;
	return 0;
}

int damage_from_text(struct damage *d, FILE *file)
{
	char line[256];
	int nr;

	memset(d, 0, sizeof(*d));
	for (nr = 1; fgets(line, sizeof(line), file); nr++) {
		if (line[0] == '#' || line[0] == '\n')
			continue;
		if (parse_line(d, line))
			return nr;
	}
	return d->image ? 0 : nr;
}

static void print_change(struct image *im, const struct change *c, FILE *file)
{
	const struct place *p = &im->place[c->place % im->nr_places];
	u8 verb = c->verb % NR_VERBS;
	const struct field *f = &fields_of[p->kind].field[le16_to_cpu(c->field) %
							  fields_of[p->kind].nr];
	u32 count = field_count(im, p, f);
	unsigned long long value = le64_to_cpu(c->value);

	fprintf(file, "%s%s ", c->raw & 1 ? "raw " : "", verbs[verb]);
	switch (verb) {
	case CHANGE_SET:
	case CHANGE_ADD:
	case CHANGE_SWAP:
		fprintf(file, "%s.%s", p->name, f->name);
		if (count > 1)
			fprintf(file, "[%u]", le16_to_cpu(c->element) % count);
		fprintf(file, verb == CHANGE_SWAP ? "\n" : " %#llx\n", value);
		break;
	case CHANGE_FLIP:
		fprintf(file, "%s %u %#llx\n", p->name, (u32)(le16_to_cpu(c->field) %
			(p->blocks * HYBRID_META_BLOCK_SIZE)), value & 0xff);
		break;
	case CHANGE_COPY:
		fprintf(file, "%s %s\n", p->name, im->place[c->from % im->nr_places].name);
		break;
	case CHANGE_ZERO:
		fprintf(file, "%s\n", p->name);
		break;
	case CHANGE_APPEND:
		fprintf(file, "%u %#llx\n", 1 + le16_to_cpu(c->field) % 100, value);
		break;
	default:
		fprintf(file, "%s %llu\n", im->disk[c->place % (1 + POOL_ORIGINS)].name,
			value % (im->disk[c->place % (1 + POOL_ORIGINS)].size + 1));
	}
}

void damage_to_text(struct damage *d, FILE *file)
{
	u32 i;

	image_reset(d->image);
	fprintf(file, "image %s\n", d->image->name);
	for (i = 0; i < d->nr; i++) {
		print_change(d->image, &d->change[i], file);
		do_change(d->image, &d->change[i]);
	}
}
