// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * The differential promise: check says clean, or recoverable, if and only if the
 * module takes the pool, and the volume.
 */
#include "errors.h"
#include "options.h"
#include "targets.h"

/* hybridctl check of the cache device, and of that origin (-1: none): its exit code. */
static int check(struct image *im, int origin, enum hybrid_option how)
{
	char *argv[] = { im->disk[0].device.path,
			 origin < 0 ? NULL : im->disk[1 + origin].device.path };
	struct command_line cl = { .argc = origin < 0 ? 1 : 2, .argv = argv };

	cl.given[how] = true;
	return command_check(&cl);
}

const char *disagreement(struct image *im, int code[1 + POOL_ORIGINS])
{
	static char text[256];
	struct outcome out;
	bool refused;
	int i;

	for (i = -1; i < POOL_ORIGINS; i++)
		code[1 + i] = check(im, i, OPT_QUIET);
	live(im, &out);
	/* An image that looks like an origin is judged as one */
	if (out.load == -EMEDIUMTYPE)
		return NULL;
	for (i = -1; i < POOL_ORIGINS; i++) {
		if (i >= 0 && (out.load || out.gone[i] || out.open[i] == -ENOSPC))
			continue;
		refused = i < 0 ? out.load : out.open[i];
		if ((code[1 + i] == HYBRID_BADDEV) == refused)
			continue;
		snprintf(text, sizeof(text), "%s: check says %d, the module %d (%s)",
			 i < 0 ? "pool" : im->disk[1 + i].name, code[1 + i],
			 i < 0 ? out.load : out.open[i], out.load ? out.why : "");
		return text;
	}
	return NULL;
}

/* All that it prints, too: which way depends on the input. */
static void check_and_compare(struct damage *d)
{
	static const enum hybrid_option hows[] = { OPT_JSON, OPT_VERBOSE, OPT_FAST };
	int code[1 + POOL_ORIGINS];
	const char *different;

	check(d->image, d->nr % POOL_ORIGINS, hows[d->nr % ARRAY_SIZE(hows)]);
	different = disagreement(d->image, code);
	if (different)
		found("%s", different);
}

void fuzz_check(const u8 *bytes, size_t len)
{
	with_damage(bytes, len, check_and_compare);
}
