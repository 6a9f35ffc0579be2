// SPDX-License-Identifier: GPL-2.0-or-later
/* dump, restore and repair: the module takes their output, and agrees with it. */
#include "announce.h"
#include "errors.h"
#include "gpt.h"
#include "members.h"
#include "options.h"
#include "targets.h"
#include "words.h"

/* The device that the tools write to: as large as the cache devices of the images, and blank. */
static struct disk *spare(void)
{
	static struct disk disk;

	if (!disk.bytes) {
		disk_init(&disk, "spare", "cache", images()[0].disk[0].size);
		disk_keep(&disk);
	}
	disk_reset(&disk);
	return &disk;
}

/* ---- functions of hybridctl for the tools --------------------------------------- */

int confirm_format(const struct command_line *cl, const struct hybrid_device * const *devs,
		   unsigned int nr);
int confirm(const struct command_line *cl, const char *question);
int lock_tools(void);
void hold_signals(void);

int confirm_format(const struct command_line *cl, const struct hybrid_device * const *devs,
		   unsigned int nr)
{
	return 0;
}

int confirm(const struct command_line *cl, const char *question)
{
	return 0;
}

int lock_tools(void)
{
	return 0;
}

void hold_signals(void)
{
}

/* All are paths. */
/* No run directory: nobody lists devices found here. */
/* Nobody asks whether an image is blank. */
int hybrid_device_signatures(const struct hybrid_device *dev, char **text)
{
	*text = NULL;
	return HYBRID_BADDEV;
}

void announce_unreadable(dev_t devno, const char *why)
{
}

void announce_found(dev_t devno, const struct hybrid_member *m)
{
}

/* An image has no partitions. */
bool hybrid_gpt_there(const struct hybrid_device *dev)
{
	return false;
}

int device_words(struct device_words *w, int argc, char **argv, bool active)
{
	*w = (struct device_words) { .path = argv, .nr = argc };
	return 0;
}

void device_words_free(struct device_words *w)
{
}

/* ---- commands with their output, or input, as text -------------------------------- */

static int run_dump(struct disk *d, bool brief)
{
	char *argv[] = { d->device.path };
	struct command_line cl = { .argc = 1, .argv = argv };

	cl.given[OPT_SKIP_MAPPINGS] = brief;
	return command_dump(&cl);
}

int print_dump(struct image *im, bool brief)
{
	return im ? run_dump(&im->disk[0], brief) : 2;
}

/* free() *text, with any return value: the exit code. */
static int dump(struct disk *d, char **text, size_t *len)
{
	FILE *before = stdout;
	int r;

	stdout = open_memstream(text, len);
	if (!stdout)
		abort();
	r = run_dump(d, false);
	fclose(stdout);
	stdout = before;
	return r;
}

static int restore(const char *text, size_t len, struct disk *to)
{
	struct command_line cl = { .value = { [OPT_INPUT] = "-", [OPT_OUTPUT] = to->device.path } };
	FILE *before = stdin;
	int r;

	cl.given[OPT_DROP_DIRTY] = true;
	cl.given[OPT_FORCE] = true;	/* a spare disk has no root */
	stdin = fmemopen((void *)text, len, "r");
	if (!stdin)
		abort();
	r = command_restore(&cl);
	fclose(stdin);
	stdin = before;
	return r;
}

/* The result of recovery for a cache device. */
static void load(struct disk *cache, struct hybrid_pool_status *st)
{
	struct pool p = { .cache = cache };
	const char *why, *wrong;
	int r = pool_load(&p, &why);

	if (r)
		found("%s: not activated: %s (%d)", cache->device.path, why, r);
	wrong = hybrid_engine_check(p.x.engine);
	if (wrong)
		found("%s: %s", cache->device.path, wrong);
	hybrid_engine_status(p.x.engine, st);
	pool_drop(&p);
}

/* A pool restored from @text is dumped as the same text, which is restored, too. */
static void check_identity(struct disk *to, const char *text, size_t len)
{
	char *again;
	size_t again_len;
	int r = dump(to, &again, &again_len);

	if (r)
		found("what was restored is not dumped (%d)", r);
	if (text && (len != again_len || memcmp(text, again, len)))
		found("another dump:\n%s\nbecame\n%s", text, again);
	if (!text) {
		r = restore(again, again_len, to);
		if (r)
			found("its dump is not restored (%d):\n%s", r, again);
		check_identity(to, again, again_len);
	}
	(free)(again);
}

/* ---- targets ------------------------------------------------------------------------ */

/* Any text: refused, or restored to a pool that the module takes and a dump gives back. */
void fuzz_restore(const u8 *bytes, size_t len)
{
	struct disk *to = spare();
	struct hybrid_pool_status st;

	if (!len || restore((const char *)bytes, len, to))
		return;
	check_identity(to, NULL, 0);
	load(to, &st);
}

static void dump_and_restore(struct damage *d)
{
	struct disk *cache = &d->image->disk[0], *to = spare();
	struct hybrid_pool_status before, after;
	size_t len;
	char *text;
	int r = dump(cache, &text, &len);

	if (!r) {
		r = restore(text, len, to);
		/* Without a root, dirty blocks of volumes in place are refused */
		if (r && r != HYBRID_REFUSED)
			found("its dump is not restored (%d):\n%s", r, text);
	}
	if (!r) {
		check_identity(to, text, len);
		load(cache, &before);
		load(to, &after);
		if (before.used != after.used || before.dirty != after.dirty)
			found("%u blocks, %u dirty, became %u, %u", before.used, before.dirty,
			      after.used, after.dirty);
	}
	(free)(text);
}

void fuzz_dump(const u8 *bytes, size_t len)
{
	spare();
	with_damage(bytes, len, dump_and_restore);
}

/*
 * In place, or (@to) onto another device.  A repair that it reports is good, and if it reports
 * that it did nothing, it has written nothing.
 */
static int repair(struct disk *d, struct disk *to, bool json)
{
	char *argv[] = { d->device.path };
	struct command_line cl = { .argv = argv };
	u64 writes = d->writes;
	int r;

	cl.given[json ? OPT_JSON : OPT_QUIET] = true;
	cl.argc = !to;
	if (to) {
		cl.value[OPT_INPUT] = d->device.path;
		cl.value[OPT_OUTPUT] = to->device.path;
	}
	r = command_repair(&cl);
	if (d->writes != writes && (to || (r && r != HYBRID_PARTIAL)))
		found("%s was written to (%d)", d->device.path, r);
	return r;
}

static void check_repaired(struct disk *d)
{
	char *argv[] = { d->device.path };
	struct command_line cl = { .argc = 1, .argv = argv };
	struct hybrid_pool_status st;
	int r;

	cl.given[OPT_QUIET] = true;
	r = command_check(&cl);
	if (r && r != HYBRID_DEGRADED)
		found("%s: check says %d of what was repaired", d->device.path, r);
	load(d, &st);
}

static void repair_both(struct damage *d)
{
	struct disk *cache = &d->image->disk[0], *to = spare();
	struct hybrid_member m;
	int r;

	/* An origin by its superblocks is judged as one */
	if (hybrid_member_read(&cache->device, &m) || m.sb.role != HYBRID_ROLE_CACHE)
		return;
	r = repair(cache, to, d->nr % 2);
	if (!r || r == HYBRID_PARTIAL)
		check_repaired(to);
	r = repair(cache, NULL, d->nr % 2);
	if (!r || r == HYBRID_PARTIAL)
		check_repaired(cache);
}

void fuzz_repair(const u8 *bytes, size_t len)
{
	spare();
	with_damage(bytes, len, repair_both);
}
