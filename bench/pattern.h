/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The pattern of a load: its options, and the blocks that follow from them, in order. */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <err.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB		1024ULL
#define MAX_SIZES	4

enum pattern { SEQUENTIAL, SHUFFLED, SORTED, UNIFORM, ZIPF, ZONED };

static const char * const pattern_names[] = {
	"sequential",	/* from the start, again from there at the end */
	"shuffled",	/* each block once, in random order; then again */
	"sorted",	/* the blocks that "shuffled" takes, in ascending order */
	"uniform",	/* any block, also repeatedly */
	"zipf",		/* exponent 1.1; the popular blocks are scattered, with any seed */
	"zoned",	/* 80 % to the first 5 %, 15 % to the next 15 %, 5 % to the rest */
};

struct options {
	enum pattern pattern;
	unsigned int reads;	/* percent */
	uint64_t offset, size;	/* KiB: the part of the device */
	uint64_t ios;		/* how many; or for how long: */
	uint64_t seconds;
	unsigned int depth;
	unsigned int seed;
	uint64_t fsync;		/* after each so many writes */
	bool end_fsync;
	uint64_t think;		/* microseconds after each I/O, at depth 1 */
	uint64_t bs[MAX_SIZES];	/* KiB; with shares in percent: bs=4/40:16/30:... */
	unsigned int share[MAX_SIZES], sizes;
};

static struct options o = { .reads = 100, .depth = 1, .seed = 1, .bs = { 4 }, .share = { 100 },
			    .sizes = 1 };
static uint64_t random_state;
static uint64_t blocks, bs;		/* of the smallest size, bytes */
static uint32_t *order;			/* of SHUFFLED and SORTED */
static double zetan, eta;		/* of ZIPF */

/* splitmix64 */
static uint64_t random_u64(void)
{
	uint64_t z = random_state += 0x9E3779B97F4A7C15;

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
	return z ^ (z >> 31);
}

static uint64_t random_below(uint64_t n)
{
	return random_u64() % n;
}

/* Gray's method, and fio's: "Quickly generating billion-record synthetic databases", 1994 */
#define THETA	1.1

static void zipf_init(void)
{
	uint64_t i;

	for (i = 1; i <= blocks; i++)
		zetan += pow(1.0 / i, THETA);
	eta = (1 - pow(2.0 / blocks, 1 - THETA)) / (1 - (1 + pow(0.5, THETA)) / zetan);
}

static uint64_t zipf_next(void)
{
	double u = random_below(1 << 30) / (double)(1 << 30);
	uint64_t rank;

	if (u * zetan < 1)
		rank = 0;
	else if (u * zetan < 1 + pow(0.5, THETA))
		rank = 1;
	else
		rank = blocks * pow(eta * u - eta + 1, 1 / (1 - THETA));
	return rank * 0x61C8864680B583EB % blocks;
}

static uint64_t zoned_next(void)
{
	uint64_t twentieth = blocks / 20, p = random_below(100);

	if (p < 80)
		return random_below(twentieth);
	if (p < 95)
		return twentieth + random_below(3 * twentieth);
	return 4 * twentieth + random_below(blocks - 4 * twentieth);
}

static int ascending(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void shuffle(void)
{
	uint64_t i, j;
	uint32_t swap;

	order = calloc(blocks, sizeof(*order));
	if (!order)
		err(1, "blocks");
	for (i = 0; i < blocks; i++) {
		j = random_below(i + 1);
		swap = order[j];
		order[j] = i;
		order[i] = i == j ? i : swap;
	}
	if (o.pattern == SORTED)
		qsort(order, o.ios && o.ios < blocks ? o.ios : blocks, sizeof(*order), ascending);
}

/* The block of the n-th I/O. */
static uint64_t next_block(uint64_t n)
{
	switch (o.pattern) {
	case SEQUENTIAL:
		return n % blocks;
	case SHUFFLED:
	case SORTED:
		return order[n % blocks];
	case ZIPF:
		return zipf_next();
	case ZONED:
		return zoned_next();
	default:
		return random_below(blocks);
	}
}

static uint64_t next_size(void)
{
	unsigned int i = 0, p;

	if (o.sizes > 1)
		for (p = random_below(100); i < o.sizes - 1 && p >= o.share[i]; i++)
			p -= o.share[i];
	return o.bs[i] * KIB;
}

struct io {
	uint64_t pos, bytes;
	bool write;
};

/* The n-th I/O; of each n once, in order. */
static struct io next_io(uint64_t n)
{
	uint64_t block = next_block(n);
	struct io io = { .bytes = next_size() };

	io.pos = block * bs;
	if (io.pos + io.bytes > o.size * KIB)
		io.pos = o.size * KIB - io.bytes;
	io.pos += o.offset * KIB;
	io.write = o.reads < 100 && random_below(100) >= o.reads;
	return io;
}

static unsigned int parse_pattern(const char *name)
{
	unsigned int i;

	for (i = 0; i < sizeof(pattern_names) / sizeof(*pattern_names); i++)
		if (!strcmp(name, pattern_names[i]))
			return i;
	errx(2, "no pattern %s", name);
}

static void parse_sizes(const char *value)
{
	int used;

	for (o.sizes = 0; *value && o.sizes < MAX_SIZES; value += used + (value[used] == ':')) {
		unsigned long long size;

		o.share[o.sizes] = 100;
		if (sscanf(value, "%llu%n", &size, &used) != 1)
			errx(2, "bs=%s", value);
		if (value[used] == '/') {
			value += used;
			if (sscanf(value, "/%u%n", &o.share[o.sizes], &used) != 1)
				errx(2, "bs=%s", value);
		}
		o.bs[o.sizes++] = size;
	}
}

static void parse(const char *word)
{
	char key[16], value[64];
	uint64_t v;

	if (sscanf(word, "%15[a-z_]=%63s", key, value) != 2)
		errx(2, "no option: %s", word);
	v = strtoull(value, NULL, 10);
	if (!strcmp(key, "pattern"))
		o.pattern = parse_pattern(value);
	else if (!strcmp(key, "bs"))
		parse_sizes(value);
	else if (!strcmp(key, "reads"))
		o.reads = v;
	else if (!strcmp(key, "offset"))
		o.offset = v * KIB;
	else if (!strcmp(key, "size"))
		o.size = v * KIB;
	else if (!strcmp(key, "ios"))
		o.ios = v;
	else if (!strcmp(key, "seconds"))
		o.seconds = v;
	else if (!strcmp(key, "depth"))
		o.depth = v;
	else if (!strcmp(key, "seed"))
		o.seed = v;
	else if (!strcmp(key, "fsync"))
		o.fsync = v;
	else if (!strcmp(key, "end_fsync"))
		o.end_fsync = v;
	else if (!strcmp(key, "think"))
		o.think = v;
	else
		errx(2, "no option: %s", word);
}

/* Before the first I/O: reads the options. */
static void pattern_start(int nr, char **words)
{
	int i;

	for (i = 0; i < nr; i++)
		parse(words[i]);
	bs = o.bs[0] * KIB;
	blocks = bs ? o.size * KIB / bs : 0;
	if (!blocks || !o.ios == !o.seconds || !o.depth || ((o.fsync || o.think) && o.depth > 1))
		errx(2, "size and bs, either ios or seconds, and depth must make sense");
	random_state = o.seed;
	if (o.pattern == ZIPF)
		zipf_init();
	if (o.pattern == SHUFFLED || o.pattern == SORTED)
		shuffle();
}

#endif
