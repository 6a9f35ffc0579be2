// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Makes an ordinary logical volume of a cached one, by LVM's own commands.
 *
 * If LVM can activate it, lvconvert --uncache writes the cache back and takes it off.  If not:
 *
 * - dmsetup maps its parts beside LVM;
 * - cache_check tells whether the metadata can be trusted, and cache_dump how much is dirty;
 * - cache_writeback copies the dirty data to the origin, whose disk is then flushed;
 * - the mode writethrough tells LVM that nothing is dirty: LVM takes the cache off without activating it.
 *
 * After a cut anywhere, give the command again: dirty data stays dirty on record until LVM takes the
 * cache off.
 */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "common.h"
#include "create.h"
#include "devices.h"
#include "errors.h"
#include "lvm.h"

#define NAME_MAX_LVM	128
#define FULL_MAX	(2 * NAME_MAX_LVM + 2)

struct lv {
	char vg[NAME_MAX_LVM], name[NAME_MAX_LVM], type[32], mode[32];
	char pool[NAME_MAX_LVM], data[NAME_MAX_LVM], metadata[NAME_MAX_LVM];
	char origin[NAME_MAX_LVM], path[HYBRID_PATH_MAX], dm_path[HYBRID_PATH_MAX], dirty[32], chunk[32], lock[32];
	bool active;
};

bool lvm_is_name(const char *text)
{
	const char *slash;

	if (!strncmp(text, "/dev/", 5))
		text += 5;
	slash = strchr(text, '/');
	return slash && slash > text && slash[1] && !strchr(slash + 1, '/');
}

/* Running LVM and its tools --------------------------------------------------- */

static void print_command(const char * const argv[])
{
	for (; *argv; argv++)
		printf("%s%s", *argv, argv[1] ? " " : "\n");
}

/* Runs a command that changes something; with --test, only prints it. */
static int run(const struct command_line *cl, const char * const argv[])
{
	int status;

	if (cl->given[OPT_TEST]) {
		print_command(argv);
		return 0;
	}
	hybrid_verbose("run %s %s ...", argv[0], argv[1]);
	status = hybrid_child(argv, NULL);
	if (!status)
		return 0;
	if (status == 127)
		return hybrid_fail(HYBRID_NOTARGET, "install lvm2 and thin-provisioning-tools",
				   "%s is not installed", argv[0]);
	return hybrid_fail(HYBRID_BADDEV, "see its messages", "%s failed (%d)", argv[0], status);
}

static void copy(char *dst, size_t size, struct json_object *row, const char *field)
{
	struct json_object *value;
	const char *text = "";
	size_t n;

	if (json_object_object_get_ex(row, field, &value))
		text = json_object_get_string(value) ?: "";
	/* LVM puts names of hidden volumes in brackets */
	n = strcspn(text + (text[0] == '['), "]");
	snprintf(dst, size, "%.*s", (int)n, text + (text[0] == '['));
}

static struct json_object *rows_of(struct json_object *all, const char *kind)
{
	struct json_object *o = all;

	if (!o || !json_object_object_get_ex(o, "report", &o) || !(o = json_object_array_get_idx(o, 0)) ||
	    !json_object_object_get_ex(o, kind, &o))
		return NULL;
	return o;
}

static int read_lv(const char *name, struct lv *lv)
{
	const char * const argv[] = {
		"lvs", "--all", "--reportformat", "json", "--units", "b", "--nosuffix", "-o",
		"vg_name,lv_name,segtype,cache_mode,pool_lv,data_lv,metadata_lv,origin,lv_path,cache_dirty_blocks,chunk_size,lv_active,lv_dm_path,vg_lock_type",
		name, NULL };
	char *text, active[16];
	struct json_object *all, *rows, *row;
	int status = hybrid_child(argv, &text);

	memset(lv, 0, sizeof(*lv));
	if (status == 127)
		return hybrid_fail(HYBRID_NOTARGET, "install lvm2", "lvs is not installed");
	all = status || !text ? NULL : json_tokener_parse(text);
	rows = rows_of(all, "lv");
	row = rows ? json_object_array_get_idx(rows, 0) : NULL;
	if (row) {
		copy(lv->vg, sizeof(lv->vg), row, "vg_name");
		copy(lv->name, sizeof(lv->name), row, "lv_name");
		copy(lv->type, sizeof(lv->type), row, "segtype");
		copy(lv->mode, sizeof(lv->mode), row, "cache_mode");
		copy(lv->pool, sizeof(lv->pool), row, "pool_lv");
		copy(lv->data, sizeof(lv->data), row, "data_lv");
		copy(lv->metadata, sizeof(lv->metadata), row, "metadata_lv");
		copy(lv->origin, sizeof(lv->origin), row, "origin");
		copy(lv->path, sizeof(lv->path), row, "lv_path");
		copy(lv->dirty, sizeof(lv->dirty), row, "cache_dirty_blocks");
		copy(lv->chunk, sizeof(lv->chunk), row, "chunk_size");
		copy(lv->dm_path, sizeof(lv->dm_path), row, "lv_dm_path");
		copy(lv->lock, sizeof(lv->lock), row, "vg_lock_type");
		copy(active, sizeof(active), row, "lv_active");
		lv->active = !strcmp(active, "active");
	}
	json_object_put(all);
	free(text);
	if (row)
		return 0;
	return hybrid_fail(HYBRID_BADDEV, "see lvs --all", "%s: LVM knows no such logical volume", name);
}

static const char *full_name(char buf[FULL_MAX], const struct lv *lv, const char *name)
{
	snprintf(buf, FULL_MAX, "%s/%s", lv->vg, name);
	return buf;
}

/* Where LVM cannot activate it ------------------------------------------------- */

/* The parts, as they are mapped here: metadata and data of the cache for reading, the origin for writing. */
enum { METADATA, FAST, SLOW, NR_PARTS };

static const char * const map_name[NR_PARTS] = {
	"hybrid-import-metadata", "hybrid-import-cache", "hybrid-import-origin"
};
static const char * const map_path[NR_PARTS] = {
	"/dev/mapper/hybrid-import-metadata", "/dev/mapper/hybrid-import-cache",
	"/dev/mapper/hybrid-import-origin"
};

struct parts {
	struct lv pool;
	const char *name[NR_PARTS];
	unsigned long long dirty, bits, chunk_sectors;
};

static int find_parts(const struct lv *lv, struct parts *p)
{
	char name[FULL_MAX];
	int r = read_lv(full_name(name, lv, lv->pool), &p->pool);

	if (r)
		return r;
	if (!p->pool.metadata[0] || !p->pool.data[0])
		return hybrid_fail(HYBRID_REFUSED, "have LVM activate it, or lvconvert --repair",
				   "%s/%s cannot be activated, and its cache %s is one logical volume (cachevol), whose parts cannot be read separately",
				   lv->vg, lv->name, lv->pool);
	p->name[METADATA] = p->pool.metadata;
	p->name[FAST] = p->pool.data;
	p->name[SLOW] = lv->origin;
	return 0;
}

static uint64_t bytes_of(struct json_object *row, const char *field)
{
	char text[32];

	copy(text, sizeof(text), row, field);
	return strtoull(text, NULL, 10);
}

/*
 * Adds one line to the table of a part; *end: end of the line before.  False: it is more than
 * linear.
 */
static bool add_line(FILE *table, struct json_object *row, uint64_t *end)
{
	uint64_t extent = bytes_of(row, "vg_extent_size"), start = bytes_of(row, "seg_start");
	uint64_t size = bytes_of(row, "pvseg_size") * extent;
	char pv[HYBRID_PATH_MAX], type[32];

	copy(pv, sizeof(pv), row, "pv_name");
	copy(type, sizeof(type), row, "segtype");
	if (strcmp(type, "linear") || start != *end || !size)
		return false;
	fprintf(table, "%s%llu %llu linear %s %llu", start ? "\n" : "", (unsigned long long)start / 512,
		(unsigned long long)size / 512, pv,
		(unsigned long long)(bytes_of(row, "pe_start") + bytes_of(row, "pvseg_start") * extent) / 512);
	*end = start + size;
	return true;
}

static bool make_table(FILE *table, const char *text)
{
	struct json_object *all = json_tokener_parse(text), *rows = rows_of(all, "pvseg");
	size_t i, nr = rows ? json_object_array_length(rows) : 0;
	uint64_t end = 0;
	bool ok = nr;

	for (i = 0; i < nr && ok; i++)
		ok = add_line(table, json_object_array_get_idx(rows, i), &end);
	json_object_put(all);
	return ok;
}

/* LVM activates no part without the rest: maps it by the segments that pvs lists. */
static int map_part(const struct lv *lv, const char *name, unsigned int part)
{
	char select[2 * FULL_MAX + 32];
	const char * const pvs[] = { "pvs", "--segments", "--reportformat", "json", "--units", "b", "--nosuffix",
				     "-o", "pv_name,pe_start,pvseg_start,pvseg_size,vg_extent_size,seg_start,segtype",
				     "-O", "seg_start", "-S", select, NULL };
	/* By its UUID an origin without a file system can be recognised, as it can as a logical volume */
	const char *create[] = { "dmsetup", "create", map_name[part], "--uuid", map_name[part], "--table", NULL,
				 part == SLOW ? NULL : "--readonly", NULL };
	char *text, *table = NULL;
	bool ok = false;
	size_t len;
	FILE *f;
	int r;

	snprintf(select, sizeof(select), "vg_name=\"%s\" && lv_name=\"%s\"", lv->vg, name);
	if (hybrid_child(pvs, &text))
		return hybrid_fail(HYBRID_BADDEV, "see its messages", "pvs failed");
	f = open_memstream(&table, &len);
	if (f && text)
		ok = make_table(f, text);
	if (f)
		fclose(f);
	create[6] = table;
	r = ok ? hybrid_child(create, NULL) : 0;
	if (r || !ok)
		r = hybrid_fail(HYBRID_REFUSED, "have LVM activate it",
				ok ? "%s/%s cannot be mapped" : "%s/%s is not simply linear: only LVM can map it",
				lv->vg, name);
	free(text);
	free(table);
	return r;
}

/* Also removes maps that a killed command has left. */
static int unmap_parts(const struct command_line *cl)
{
	const char *argv[] = { "dmsetup", "remove", "--retry", NULL, NULL };
	unsigned int part;
	int r = 0, end;

	for (part = 0; part < NR_PARTS; part++) {
		argv[3] = map_name[part];
		end = hybrid_dm_name_taken(map_name[part]) ? run(cl, argv) : 0;
		r = r ? r : end;
	}
	return r;
}

static int map_parts(const struct command_line *cl, const struct lv *lv, const struct parts *p)
{
	int r = unmap_parts(cl);
	unsigned int part;

	for (part = 0; part < NR_PARTS && !r; part++)
		r = map_part(lv, p->name[part], part);
	return r;
}

/*
 * The metadata of dm-cache, as far as counting dirty blocks needs it:
 * drivers/md/dm-cache-metadata.c, persistent-data/dm-array.c.  LVM makes format 2.  The first
 * cache_writeback that reads format 2 is that of thin-provisioning-tools 1.0; older ones find
 * nothing dirty there.
 */
#define CACHE_CLEAN		1	/* of flags */
#define CACHE_SB_FLAGS		4
#define CACHE_SB_VERSION	40
#define CACHE_SB_DIRTY_ROOT	284
#define NODE_INTERNAL		1
#define NODE_HEADER		32
#define ARRAY_HEADER		24
#define TREE_DEPTH		8

static uint32_t get32(const uint8_t *block, size_t at)
{
	uint32_t value;

	memcpy(&value, block + at, sizeof(value));
	return le32toh(value);
}

static uint64_t get64(const uint8_t *block, size_t at)
{
	uint64_t value;

	memcpy(&value, block + at, sizeof(value));
	return le64toh(value);
}

static int count_bits(const struct hybrid_device *dev, uint64_t nr, unsigned int depth, bool array,
		      unsigned long long *bits)
{
	uint8_t *block = hybrid_buffer(HYBRID_META_BLOCK_SIZE);
	uint32_t i, entries, max, room;
	int r = block && depth ? hybrid_device_read(dev, nr * HYBRID_META_BLOCK_SECTORS, block,
						    HYBRID_META_BLOCK_SIZE) : -EIO;
	bool leaf;

	if (r)
		goto out;
	entries = get32(block, array ? 8 : 16);
	max = get32(block, array ? 4 : 20);
	room = array ? (HYBRID_META_BLOCK_SIZE - ARRAY_HEADER) / 8 : (HYBRID_META_BLOCK_SIZE - NODE_HEADER) / 16;
	leaf = !(get32(block, 4) & NODE_INTERNAL);
	if (entries > max || max > room)
		r = -EINVAL;
	for (i = 0; i < entries && !r; i++) {
		if (array)
			*bits += __builtin_popcountll(get64(block, ARRAY_HEADER + 8 * i));
		else
			r = count_bits(dev, get64(block, NODE_HEADER + 8 * (max + i)), depth - 1, leaf, bits);
	}
out:
	free(block);
	return r;
}

/* Counts dirty bits of format 2; format 1 is left to cache_dump. */
static int count_dirty_bits(struct parts *p, bool *clean, bool *known)
{
	uint8_t *sb = hybrid_buffer(HYBRID_META_BLOCK_SIZE);
	struct hybrid_device dev;
	int r;

	r = sb ? hybrid_device_open(&dev, map_path[METADATA], 0) : hybrid_nomem();
	if (r) {
		free(sb);
		return r;
	}
	r = hybrid_device_read(&dev, 0, sb, HYBRID_META_BLOCK_SIZE);
	*clean = !r && get32(sb, CACHE_SB_FLAGS) & CACHE_CLEAN;
	*known = !r && get32(sb, CACHE_SB_VERSION) == 2;
	if (*known)
		r = count_bits(&dev, get64(sb, CACHE_SB_DIRTY_ROOT), TREE_DEPTH, false, &p->bits);
	hybrid_device_close(&dev);
	free(sb);
	return r;
}

static unsigned long long count_words(const char *text, const char *word)
{
	unsigned long long nr = 0;

	for (; (text = strstr(text, word)); text += strlen(word))
		nr++;
	return nr;
}

static int fail_metadata(const struct lv *lv, const char *what, int status)
{
	return hybrid_fail(HYBRID_REFUSED,
			   "lvconvert --repair or cache_repair; or lvconvert --uncache --force, which gives up the dirty data",
			   "the metadata of the cache of %s/%s is damaged (%s: %d): the amount of dirty data is unknown",
			   lv->vg, lv->name, what, status);
}

/* Counts chunks that only the cache has, by its metadata.  After a crash that may be all of them. */
static int count_dirty(const struct lv *lv, struct parts *p)
{
	const char * const argv[] = { "cache_dump", map_path[METADATA], NULL };
	bool clean = false, known = false;
	const char *at;
	char *text;
	int status = hybrid_child(argv, &text);

	at = text ? strstr(text, "block_size=\"") : NULL;
	if (status || !at || sscanf(at, "block_size=\"%llu", &p->chunk_sectors) != 1) {
		free(text);
		return fail_metadata(lv, "cache_dump", status);
	}
	if (count_dirty_bits(p, &clean, &known)) {
		free(text);
		return fail_metadata(lv, "dirty bits", 1);
	}
	p->dirty = count_words(text, clean ? "dirty=\"true\"" : "<mapping ");
	free(text);
	if (!known || !clean || p->dirty == p->bits)
		return 0;
	return hybrid_fail(HYBRID_REFUSED,
			   "install version 1.0 or later, which reads metadata of format 2; or have LVM activate it",
			   "%s/%s: %llu chunks (%llu MiB) are dirty, but the installed thin-provisioning-tools find %llu",
			   lv->vg, lv->name, p->bits, p->bits * p->chunk_sectors >> 11, p->dirty);
}

static int check_metadata(const struct lv *lv, struct parts *p)
{
	const char * const argv[] = { "cache_check", map_path[METADATA], NULL };
	int status = hybrid_child(argv, NULL);

	if (status == 127)
		return hybrid_fail(HYBRID_NOTARGET, "install thin-provisioning-tools",
				   "cache_check is not installed, and LVM cannot activate %s/%s", lv->vg, lv->name);
	return status ? fail_metadata(lv, "cache_check", status) : count_dirty(lv, p);
}

/* cache_writeback sends no flush: until then, its writes may be in the volatile cache of the disk alone. */
static int flush_slow(const struct lv *lv)
{
	struct hybrid_device dev;
	int r = hybrid_device_open(&dev, map_path[SLOW], HYBRID_OPEN_WRITE);

	if (r)
		return r;
	r = hybrid_device_flush(&dev);
	hybrid_device_close(&dev);
	return !r ? 0 : hybrid_fail(HYBRID_BADDEV, "check the disk and the kernel log, then give the command again",
				    "%s/%s: cannot flush the data that was written back: %s; its cache is as before",
				    lv->vg, lv->name, strerror(-r));
}

static int copy_dirty(const struct lv *lv, const struct parts *p)
{
	const char * const copy[] = { "cache_writeback", "--no-metadata-update",
				      "--metadata-device", map_path[METADATA], "--fast-device", map_path[FAST],
				      "--origin-device", map_path[SLOW], NULL };
	unsigned long long done, all;
	const char *at;
	char *text;
	int status;

	hybrid_note("%s/%s: writing back %llu chunks of %llu KiB", lv->vg, lv->name, p->dirty,
		    p->chunk_sectors / 2);
	status = hybrid_child(copy, &text);
	at = text ? strrchr(text, '/') : NULL;
	while (at && at > text && at[-1] >= '0' && at[-1] <= '9')
		at--;
	/* The last line of its output has the number */
	if (!status && at && sscanf(at, "%llu/%llu", &done, &all) == 2 && done != p->dirty)
		status = -1;
	free(text);
	if (status)
		return hybrid_fail(HYBRID_BADDEV, "see the kernel log; the dirty data is as before",
				   "cache_writeback failed (%d) on %s/%s", status, lv->vg, lv->name);
	return flush_slow(lv);
}

/*
 * LVM takes the cache off without activating it only if its mode is writethrough, and changes the
 * mode only of an active cache.  So its metadata is written anew: the output of vgcfgbackup with
 * that word changed.
 */
static char *set_writethrough(const char *text, const char *pool)
{
	static const char old[] = "cache_mode = \"writeback\"", new[] = "cache_mode = \"writethrough\"";
	char head[NAME_MAX_LVM + 8], *changed = NULL;
	const char *from, *end, *at;

	snprintf(head, sizeof(head), "\n\t\t%s {", pool);
	from = strstr(text, head);
	end = from ? strstr(from, "\n\t\t}") : NULL;
	at = end ? strstr(from, old) : NULL;
	if (!at || at > end ||
	    asprintf(&changed, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old)) < 0)
		return NULL;
	return changed;
}

/* @path was made by vgcfgbackup. */
static int change_backup(const char *path, const char *pool)
{
	char *text = NULL, *changed = NULL;
	size_t len = 0;
	FILE *f = fopen(path, "re");
	bool ok = f && getdelim(&text, &len, '\0', f) > 0;

	if (f)
		fclose(f);
	if (ok)
		changed = set_writethrough(text, pool);
	f = changed ? fopen(path, "we") : NULL;
	ok = f && fputs(changed, f) >= 0;
	if (f && fclose(f))
		ok = false;
	free(changed);
	free(text);
	return ok ? 0 : hybrid_fail(HYBRID_REFUSED, "see vgcfgbackup",
				    "the mode of the cache %s is not found in LVM's metadata", pool);
}

static int forget_cache(const struct command_line *cl, const struct lv *lv)
{
	char path[] = "/tmp/hybrid-import-XXXXXX";
	const char * const save[] = { "vgcfgbackup", "--quiet", "--quiet", "--file", path, lv->vg, NULL };
	const char * const restore[] = { "vgcfgrestore", "--quiet", "--quiet", "--yes", "--file", path, lv->vg,
					 NULL };
	int fd, r;

	if (!strcmp(lv->mode, "writethrough"))
		return 0;
	fd = mkstemp(path);
	if (fd < 0)
		return hybrid_fail(HYBRID_REFUSED, "see df", "cannot make a file in /tmp");
	close(fd);
	r = run(cl, save);
	if (!r)
		r = change_backup(path, lv->pool);
	if (!r)
		r = run(cl, restore);
	unlink(path);
	return r;
}

/*
 * Makes the checks of create, and asks its questions, while LVM's cache is still there.  @origin: a
 * device with the contents of the logical volume; @disk: a device on the disks of the later origin.
 */
static int check_create(const struct command_line *create, const char *origin, const char *disk)
{
	struct command_line check = *create;

	check.value[OPT_ORIGIN] = origin;
	return create_check(&check, disk);
}

/* @create: the command line for create_check(), once the origin has its data. */
static int write_back_parts(const struct command_line *cl, const struct lv *lv,
			    const struct command_line *create)
{
	struct parts p = {};
	int r, end;

	r = find_parts(lv, &p);
	if (r)
		return r;
	r = map_parts(cl, lv, &p);
	if (!r)
		r = check_metadata(lv, &p);
	if (!r && p.dirty)
		r = copy_dirty(lv, &p);
	if (!r)
		r = check_create(create, map_path[SLOW], map_path[SLOW]);
	end = unmap_parts(cl);
	if (!r)
		r = end;
	return r ? r : forget_cache(cl, lv);
}

/* All of them ------------------------------------------------------------------ */

/* LVM may be unable to activate it because another host has it active. */
static int check_unshared(const struct lv *lv)
{
	char next[FULL_MAX + NAME_MAX_LVM + 128];

	if (!lv->lock[0] || !strcmp(lv->lock, "none"))
		return 0;
	snprintf(next, sizeof(next), "lvconvert --uncache %s/%s on the host that uses it; or vgchange --lock-type none %s, once no host does",
		 lv->vg, lv->name, lv->vg);
	return hybrid_fail(HYBRID_REFUSED, next,
			   "%s/%s is in a shared volume group (lock type %s): another host may be using it", lv->vg,
			   lv->name, lv->lock);
}

static int check_lv(const struct lv *lv)
{
	char first[FULL_MAX + 32] = "", next[FULL_MAX + 96];

	if (!strcmp(lv->type, "cache"))
		return 0;
	if (!strcmp(lv->type, "writecache"))
		return hybrid_fail(HYBRID_REFUSED, "lvconvert --uncache removes it; then hybridctl create --in-place",
				   "%s/%s has a dm-writecache, not a dm-cache", lv->vg, lv->name);
	/* After a killed import it may be inactive */
	if (!lv->active)
		snprintf(first, sizeof(first), "lvchange -ay %s/%s, then ", lv->vg, lv->name);
	snprintf(next, sizeof(next), "%shybridctl create --in-place caches its data", first);
	return hybrid_fail(HYBRID_REFUSED, next, "%s/%s has no cache of LVM (it is %s)", lv->vg, lv->name,
			   lv->type);
}

/*
 * LVM writes back and changes its metadata: nobody may use the logical volume then, nor the device
 * that is to be its cache.
 */
static int check_usable(const struct command_line *cl, const struct lv *lv)
{
	uint32_t mode, block_sectors, journal_blocks;
	struct hybrid_device dev;
	uint64_t cutoff;
	int r;

	r = parse_volume_options(cl, &mode, &cutoff);
	if (!r)
		r = check_mode(cl, true, mode);
	if (!r)
		r = parse_pool_sizes(cl, &block_sectors, &journal_blocks);
	if (!r && lv->active) {
		r = hybrid_device_open(&dev, lv->path, HYBRID_OPEN_EXCLUSIVE);
		hybrid_device_close(&dev);
	}
	if (!r)
		r = check_new_name("volume", cl->argv[0], !cl->given[OPT_TEST]);
	if (!r && !cl->given[OPT_TEST])
		r = hybrid_dm_check(true);
	if (!r && cl->value[OPT_CACHE]) {
		r = hybrid_device_open(&dev, cl->value[OPT_CACHE], HYBRID_OPEN_EXCLUSIVE |
				       (cl->given[OPT_TEST] ? HYBRID_OPEN_FILES : 0));
		hybrid_device_close(&dev);
	}
	return r;
}

static int ask(const struct command_line *cl, const struct lv *lv)
{
	unsigned long long dirty = strtoull(lv->dirty, NULL, 10), chunk = strtoull(lv->chunk, NULL, 10);
	char question[2 * FULL_MAX + 256], much[64] = "the dirty data";

	if (lv->active)
		snprintf(much, sizeof(much), "%llu dirty chunks (%llu MiB)", dirty, dirty * chunk >> 20);
	snprintf(question, sizeof(question),
		 "LVM will take the cache %s off %s/%s after writing back %s, and remove it.", lv->pool, lv->vg,
		 lv->name, much);
	return confirm(cl, question);
}

static int activate_lv(const struct lv *lv, const char *how)
{
	char name[FULL_MAX];
	const char * const argv[] = { "lvchange", how, full_name(name, lv, lv->name), NULL };

	return hybrid_child(argv, NULL);
}

static int check_active(const struct command_line *create, const struct lv *lv)
{
	char name[FULL_MAX];
	struct lv slow;
	int r = read_lv(full_name(name, lv, lv->origin), &slow);

	return r ? r : check_create(create, lv->path, slow.dm_path);
}

/* @create: the command line for create_check(), before LVM takes the cache off. */
static int uncache(const struct command_line *cl, const struct lv *lv, const struct command_line *create)
{
	char name[FULL_MAX];
	const char * const argv[] = { "lvconvert", "--yes", "--uncache", full_name(name, lv, lv->name), NULL };
	bool activates;
	int r;

	/* Nothing is activated with --test, although the next steps depend on whether that works */
	if (cl->given[OPT_TEST])
		return run(cl, argv);
	activates = lv->active || !activate_lv(lv, "-ay");
	if (activates) {
		r = check_active(create, lv);
	} else {
		activate_lv(lv, "-an");
		hybrid_note("LVM cannot activate %s: its cache is read without LVM", name);
		r = write_back_parts(cl, lv, create);
	}
	if (r && activates && !lv->active)
		activate_lv(lv, "-an");
	return r ? r : run(cl, argv);
}

/* The command that completes an import, once LVM has taken the cache off. */
static void print_rest(FILE *out, const struct command_line *cl, const struct lv *lv)
{
	unsigned int i, k;

	fprintf(out, "hybridctl create %s --in-place --origin %s", cl->argv[0], lv->path);
	for (i = 0; i < cl->nr_caches; i++)
		fprintf(out, " --cache %s", cl->caches[i]);
	for (k = 0; k < NR_OPTIONS; k++)
		if (cl->given[k] && k != OPT_ORIGIN && k != OPT_CACHE &&
		    commands[COMMAND_import].options & 1ULL << k)
			fprintf(out, " --%s%s%s", option_table[k].name, option_table[k].arg ? " " : "",
				option_table[k].arg ? cl->value[k] : "");
}

/* LVM has taken the cache off.  @create: what the user has agreed to is not asked again. */
static int create_rest(const struct command_line *cl, const struct lv *lv, struct command_line *create)
{
	char *rest = NULL;
	size_t len;
	FILE *f = open_memstream(&rest, &len);
	int r = 0;

	if (f) {
		print_rest(f, cl, lv);
		fclose(f);
	}
	if (activate_lv(lv, "-ay"))
		r = hybrid_fail(HYBRID_PARTIAL, "see lvs; the command below finishes it, once LVM can activate it",
				"%s/%s no longer has a cache, but cannot be activated", lv->vg, lv->name);
	create->given[OPT_YES] = true;
	create->given[OPT_WIPE_SIGNATURES] = true;
	if (!r)
		r = create_volume(create, NULL);
	if (r)
		hybrid_note("%s is an ordinary logical volume now; to finish: %s", lv->path, rest ? rest : "");
	free(rest);
	return r;
}

int import_lvm(const struct command_line *cl, const char *name)
{
	struct command_line create = *cl;
	struct lv lv;
	int r;

	r = read_lv(strncmp(name, "/dev/", 5) || !lvm_is_name(name) ? name : name + 5, &lv);
	if (!r)
		r = check_lv(&lv);
	if (!r)
		r = check_unshared(&lv);
	if (!r)
		r = check_usable(cl, &lv);
	if (!r && !cl->given[OPT_TEST])
		r = ask(cl, &lv);
	create.given[OPT_IN_PLACE] = true;
	create.value[OPT_ORIGIN] = lv.path;
	if (!r)
		r = uncache(cl, &lv, &create);
	if (r || (cl->given[OPT_TEST] && !lv.active))
		return r;
	return cl->given[OPT_TEST] ? create_volume(&create, NULL) : create_rest(cl, &lv, &create);
}
