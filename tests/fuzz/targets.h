/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The fuzz targets.  A target takes any bytes; a finding is an abort(), a sanitizer's report, or
 * a run that takes too long or too much memory.
 */
#ifndef FUZZ_TARGETS_H
#define FUZZ_TARGETS_H

#include "change.h"

#define FUZZ_TARGETS(X) \
	X(superblock) X(load) X(check) X(dump) X(restore) X(repair) X(table) X(status) X(message) \
	X(trace)

#define X(name) void fuzz_##name(const u8 *bytes, size_t len);
FUZZ_TARGETS(X)
#undef X

/* Report a finding, and abort. */
__attribute__((format(printf, 1, 2), noreturn))
void found(const char *fmt, ...);

/* A second of CPU time for the next input: others may keep the machine busy. */
void time_limit(void);

/* From here on only found() prints. */
void be_quiet(void);

/* The input as text; free() it. */
char *text_of(const u8 *bytes, size_t len);

/* Run target @run on the damage that these bytes describe; no memory may be left. */
void with_damage(const u8 *bytes, size_t len, void (*run)(struct damage *d));

/* The module's results for an image. */
struct outcome {
	int load;		/* of the pool: 0 or -errno */
	const char *why;
	int open[POOL_ORIGINS];	/* of the origin's volume */
	bool gone[POOL_ORIGINS];	/* there is no such volume, or no more */
	u32 id[POOL_ORIGINS];
	u64 sectors[POOL_ORIGINS];	/* of a formatted volume */
};

/*
 * Activate the pool, use it, stop it, activate it again: a pool or volume that is accepted works,
 * and one that is refused has not been written to.
 */
void live(struct image *im, struct outcome *out);

/*
 * Does check agree with the module?  Returns NULL, or the difference.  code: its exit codes, for
 * the cache device alone, and with each of the origins.
 */
const char *disagreement(struct image *im, int code[1 + POOL_ORIGINS]);

/* hybridctl dump of it, to stdout; brief: without mappings. */
int print_dump(struct image *im, bool brief);

/*
 * Write @nr damaged images to DIRECTORY/N.cache, .origin0, .origin1.  For each, print a line:
 * N, block size, error of the load, for each origin the error, id and size of its volume (size 0:
 * none that could be opened by its table), and the reason.
 */
void export_images(const char *directory, u32 nr, u64 seed);

/* Print the corruption matrix; returns 1 if check and module ever disagree. */
int matrix(void);

#endif
