// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * load <device> <key>=<value> ...: one stream of direct I/O, and its figures as a line of JSON.
 * In place of the device may stand a directory: each write then makes a file of its own.
 *
 * It does the same as fio with the options of the same names. fio itself is Debian's, with sixty
 * libraries: under emulation it takes eight seconds to start, and this program none.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pattern.h"

#define NS_PER_SEC	1000000000ULL
#define PAGE		4096
#define MAX_DEPTH	256
#define NR_BUCKETS	4096	/* of latencies: 32 for each power of two */

struct slot {
	struct iocb cb;
	void *buffer;
	uint64_t started;
	bool write;
};

struct latencies {
	uint64_t count, sum, max, bytes;
	uint64_t bucket[NR_BUCKETS];
};

static struct latencies done[2];	/* reads, writes */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * NS_PER_SEC + t.tv_nsec;
}

static void prepare(struct slot *s, int fd, uint64_t n)
{
	struct io io = next_io(n);

	s->write = io.write;
	memset(&s->cb, 0, sizeof(s->cb));
	s->cb.aio_data = (uintptr_t)s;
	s->cb.aio_fildes = fd;
	s->cb.aio_lio_opcode = s->write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
	s->cb.aio_buf = (uintptr_t)s->buffer;
	s->cb.aio_nbytes = io.bytes;
	s->cb.aio_offset = io.pos;
}

static void account(struct slot *s, uint64_t now)
{
	struct latencies *l = &done[s->write];
	uint64_t ns = now - s->started;
	unsigned int power = ns < 64 ? 0 : 58 - __builtin_clzll(ns);

	l->count++;
	l->sum += ns;
	l->max = ns > l->max ? ns : l->max;
	l->bytes += s->cb.aio_nbytes;
	l->bucket[power * 64 + (ns >> power)]++;
}

/* The latency below which @permille of all are. */
static uint64_t percentile(struct latencies *l, unsigned int permille)
{
	uint64_t seen = 0;
	unsigned int i;

	for (i = 0; i < NR_BUCKETS && l->count; i++) {
		seen += l->bucket[i];
		if (seen * 1000 >= l->count * permille)
			return (uint64_t)(i % 64) << (i / 64);
	}
	return 0;
}

static void sync_device(int fd)
{
	if (fsync(fd))
		err(1, "fsync");
}

/* Makes a file in the directory: create, write, close. */
static void make_file(int directory, uint64_t n, struct slot *s)
{
	char name[24];
	int fd;

	snprintf(name, sizeof(name), "%llu", (unsigned long long)n);
	fd = openat(directory, name, O_CREAT | O_EXCL | O_WRONLY, 0600);
	if (fd < 0)
		err(1, "%s", name);
	if (write(fd, s->buffer, s->cb.aio_nbytes) != (ssize_t)s->cb.aio_nbytes)
		err(1, "write %s", name);
	if (o.fsync)
		sync_device(fd);
	close(fd);
}

static void run_files(int directory, struct slot *s, uint64_t end)
{
	uint64_t n, now = now_ns();

	for (n = 0; o.ios ? n < o.ios : now < end; n++) {
		prepare(s, directory, n);
		s->started = now;
		make_file(directory, n, s);
		now = now_ns();
		account(s, now);
	}
}

/* At depth 1 by read and write, as most programs do: this measures the cost of a hit. */
static void run_sync(int fd, struct slot *s, uint64_t end)
{
	uint64_t n, now = now_ns(), writes = 0;

	for (n = 0; o.ios ? n < o.ios : now < end; n++) {
		ssize_t r;

		prepare(s, fd, n);
		s->started = now;
		r = s->write ? pwrite(fd, s->buffer, s->cb.aio_nbytes, s->cb.aio_offset) :
			       pread(fd, s->buffer, s->cb.aio_nbytes, s->cb.aio_offset);
		if (r != (ssize_t)s->cb.aio_nbytes)
			err(1, "I/O at %lld", (long long)s->cb.aio_offset);
		if (s->write && o.fsync && ++writes % o.fsync == 0)
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

static void print_latencies(const char *name, struct latencies *l)
{
	printf("\"%s\": {\"ios\": %llu, \"sectors\": %llu, \"mean_ns\": %llu, \"p50_ns\": %llu, "
	       "\"p99_ns\": %llu, \"p999_ns\": %llu, \"max_ns\": %llu}", name,
	       (unsigned long long)l->count, (unsigned long long)l->bytes / 512,
	       (unsigned long long)(l->count ? l->sum / l->count : 0),
	       (unsigned long long)percentile(l, 500), (unsigned long long)percentile(l, 990),
	       (unsigned long long)percentile(l, 999), (unsigned long long)l->max);
}

int main(int argc, char **argv)
{
	struct slot slots[MAX_DEPTH];
	uint64_t largest = 0, started, ns;
	struct stat st;
	unsigned int i;
	int fd;

	if (argc < 3)
		errx(2, "usage: load <device> <key>=<value> ...");
	pattern_start(argc - 2, argv + 2);
	for (i = 0; i < o.sizes; i++)
		largest = o.bs[i] * KIB > largest ? o.bs[i] * KIB : largest;
	if (o.depth > MAX_DEPTH)
		errx(2, "depth %u is more than %u", o.depth, MAX_DEPTH);
	if (stat(argv[1], &st))
		err(1, "%s", argv[1]);
	if (S_ISDIR(st.st_mode) && (o.reads || o.fsync > 1 || o.end_fsync || o.depth > 1))
		errx(2, "a file is written, once, and flushed or not");
	fd = open(argv[1], S_ISDIR(st.st_mode) ? O_RDONLY : O_RDWR | O_DIRECT);
	if (fd < 0)
		err(1, "%s", argv[1]);
	for (i = 0; i < o.depth; i++) {
		slots[i].buffer = aligned_alloc(PAGE, largest);
		if (!slots[i].buffer)
			err(1, "buffer");
		memset(slots[i].buffer, i + 1, largest);
	}

	started = now_ns();
	if (S_ISDIR(st.st_mode))
		run_files(fd, slots, started + o.seconds * NS_PER_SEC);
	else if (o.depth == 1)
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
