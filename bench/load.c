// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * load <device> <key>=<value> ...: one stream of direct I/O, and its figures as a line of JSON.
 *
 * What it does is what fio does with the options of the same names. fio itself is Debian's, with
 * sixty libraries: under emulation it takes eight seconds to start, and this one none.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_SEC	1000000000ULL
#define KIB		1024ULL
#define PAGE		4096
#define MAX_DEPTH	256
#define MAX_SIZES	4
#define NR_BUCKETS	4096	/* of latencies: 32 for each power of two */

enum pattern { SEQUENTIAL, SHUFFLED, SORTED, UNIFORM, ZIPF, ZONED };

static const char * const pattern_names[] = {
	"sequential",	/* from the start, again from there at the end */
	"shuffled",	/* each block once, in random order; then again */
	"sorted",	/* the blocks that "shuffled" takes, in ascending order */
	"uniform",	/* any block, also repeatedly */
	"zipf",		/* exponent 1.1; the popular blocks are scattered, whatever the seed */
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
	bool fsync;		/* after each write */
	bool end_fsync;
	uint64_t think;		/* microseconds after each I/O, at depth 1 */
	uint64_t bs[MAX_SIZES];	/* KiB; with shares in percent: bs=4/40:16/30:... */
	unsigned int share[MAX_SIZES], sizes;
};

struct slot {
	struct iocb cb;
	void *buffer;
	uint64_t started;
	bool write;
};

struct latencies {
	uint64_t count, sum, bytes;
	uint64_t bucket[NR_BUCKETS];
};

static struct options o = { .reads = 100, .depth = 1, .seed = 1, .bs = { 4 }, .share = { 100 },
			    .sizes = 1 };
static struct latencies done[2];	/* reads, writes */
static uint64_t random_state;
static uint64_t blocks, bs;		/* of the smallest size, bytes */
static uint32_t *order;			/* of SHUFFLED and SORTED */
static double zetan, eta;		/* of ZIPF */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NS_PER_SEC + t.tv_nsec;
}

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

static void prepare(struct slot *s, int fd, uint64_t n)
{
	uint64_t block = next_block(n), size = next_size();
	uint64_t pos = block * bs;

	if (pos + size > o.size * KIB)
		pos = o.size * KIB - size;
	s->write = o.reads < 100 && random_below(100) >= o.reads;
	memset(&s->cb, 0, sizeof(s->cb));
	s->cb.aio_data = (uintptr_t)s;
	s->cb.aio_fildes = fd;
	s->cb.aio_lio_opcode = s->write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
	s->cb.aio_buf = (uintptr_t)s->buffer;
	s->cb.aio_nbytes = size;
	s->cb.aio_offset = o.offset * KIB + pos;
}

static void account(struct slot *s, uint64_t now)
{
	struct latencies *l = &done[s->write];
	uint64_t ns = now - s->started;
	unsigned int power = ns < 64 ? 0 : 58 - __builtin_clzll(ns);

	l->count++;
	l->sum += ns;
	l->bytes += s->cb.aio_nbytes;
	l->bucket[power * 64 + (ns >> power)]++;
}

/* The latency below which @percent of all are. */
static uint64_t percentile(struct latencies *l, unsigned int percent)
{
	uint64_t seen = 0;
	unsigned int i;

	for (i = 0; i < NR_BUCKETS && l->count; i++) {
		seen += l->bucket[i];
		if (seen * 100 >= l->count * percent)
			return (uint64_t)(i % 64) << (i / 64);
	}
	return 0;
}

static void sync_device(int fd)
{
	if (fsync(fd))
		err(1, "fsync");
}

/* At depth 1 by read and write, as most programs do: what a hit costs is measured so. */
static void run_sync(int fd, struct slot *s, uint64_t end)
{
	uint64_t n, now = now_ns();

	for (n = 0; o.ios ? n < o.ios : now < end; n++) {
		ssize_t r;

		prepare(s, fd, n);
		s->started = now;
		r = s->write ? pwrite(fd, s->buffer, s->cb.aio_nbytes, s->cb.aio_offset) :
			       pread(fd, s->buffer, s->cb.aio_nbytes, s->cb.aio_offset);
		if (r != (ssize_t)s->cb.aio_nbytes)
			err(1, "I/O at %lld", (long long)s->cb.aio_offset);
		if (s->write && o.fsync)
			sync_device(fd);
		now = now_ns();
		account(s, now);
		if (o.think) {
			usleep(o.think);
			now = now_ns();
		}
	}
}

static void run_async(int fd, struct slot *slots, uint64_t end)
{
	struct iocb *batch[MAX_DEPTH];
	struct io_event events[MAX_DEPTH];
	aio_context_t context = 0;
	unsigned int i, idle = o.depth, flying = 0;
	struct slot *free[MAX_DEPTH];
	uint64_t n = 0, now;
	long r;

	if (syscall(SYS_io_setup, o.depth, &context))
		err(1, "io_setup");
	for (i = 0; i < o.depth; i++)
		free[i] = &slots[i];
	for (now = now_ns(); ; now = now_ns()) {
		for (i = 0; idle && (o.ios ? n < o.ios : now < end); i++, n++) {
			struct slot *s = free[--idle];

			prepare(s, fd, n);
			s->started = now;
			batch[i] = &s->cb;
		}
		if (i && syscall(SYS_io_submit, context, (long)i, batch) != (long)i)
			err(1, "io_submit");
		flying += i;
		if (!flying)
			break;
		r = syscall(SYS_io_getevents, context, 1L, (long)o.depth, events, NULL);
		if (r < 1)
			err(1, "io_getevents");
		now = now_ns();
		flying -= r;
		while (r--) {
			struct slot *s = (struct slot *)(uintptr_t)events[r].data;

			if (events[r].res != (int64_t)s->cb.aio_nbytes)
				errx(1, "I/O at %lld: %lld", (long long)s->cb.aio_offset,
				     (long long)events[r].res);
			account(s, now);
			free[idle++] = s;
		}
	}
	syscall(SYS_io_destroy, context);
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

static void print_latencies(const char *name, struct latencies *l)
{
	printf("\"%s\": {\"ios\": %llu, \"sectors\": %llu, \"mean_ns\": %llu, \"p50_ns\": %llu, "
	       "\"p99_ns\": %llu}", name, (unsigned long long)l->count,
	       (unsigned long long)l->bytes / 512,
	       (unsigned long long)(l->count ? l->sum / l->count : 0),
	       (unsigned long long)percentile(l, 50), (unsigned long long)percentile(l, 99));
}

int main(int argc, char **argv)
{
	struct slot slots[MAX_DEPTH];
	uint64_t largest = 0, started, ns;
	unsigned int i;
	int fd, a;

	if (argc < 3)
		errx(2, "usage: load <device> <key>=<value> ...");
	for (a = 2; a < argc; a++)
		parse(argv[a]);
	bs = o.bs[0] * KIB;
	for (i = 0; i < o.sizes; i++)
		largest = o.bs[i] * KIB > largest ? o.bs[i] * KIB : largest;
	blocks = bs ? o.size * KIB / bs : 0;
	if (!blocks || !o.ios == !o.seconds || !o.depth || o.depth > MAX_DEPTH ||
	    ((o.fsync || o.think) && o.depth > 1))
		errx(2, "size and bs, either ios or seconds, and depth must make sense");
	fd = open(argv[1], O_RDWR | O_DIRECT);
	if (fd < 0)
		err(1, "%s", argv[1]);
	for (i = 0; i < o.depth; i++) {
		slots[i].buffer = aligned_alloc(PAGE, largest);
		if (!slots[i].buffer)
			err(1, "buffer");
		memset(slots[i].buffer, i + 1, largest);
	}
	random_state = o.seed;
	if (o.pattern == ZIPF)
		zipf_init();
	if (o.pattern == SHUFFLED || o.pattern == SORTED)
		shuffle();

	started = now_ns();
	if (o.depth == 1)
		run_sync(fd, slots, started + o.seconds * NS_PER_SEC);
	else
		run_async(fd, slots, started + o.seconds * NS_PER_SEC);
	if (o.end_fsync)
		sync_device(fd);
	ns = now_ns() - started;

	printf("{\"ns\": %llu, ", (unsigned long long)ns);
	print_latencies("read", &done[0]);
	printf(", ");
	print_latencies("write", &done[1]);
	printf("}\n");
	return 0;
}
