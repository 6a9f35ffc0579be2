// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Preloaded into a tool: its disks have volatile caches and bad places, and the
 * power is cut.  In the environment:
 *
 *	FAULT_CUT=<n> <seed>	in the n-th write: each logical sector that no fsync covers
 *				is as it was or as it was written; then SIGKILL
 *	FAULT_POWER=<seed>	the same when the tool has ended, however well
 *	FAULT_BAD=<read|write|discard> <file> <first> <end>[;...]	sectors: EIO, or
 *	FAULT_ERRNO=<errno>	another one; 0: a read ends its process, as if it hung
 *		"part" instead of "write": EINVAL for writes of parts of 4 KiB, as if these were sectors
 *	FAULT_LATE=<n>		only after n writes
 *	FAULT_FLUSH=<n> <file>	its fsync fails from the nth on; any: that of all files
 *	FAULT_SIGNAL=<signal>	comes with each discard, which is done
 *	FAULT_RESUME=<n>	the nth resume of a device-mapper device fails, before the kernel
 *				hears of it
 *	FAULT_DELAY=<ms>	each write of more than 4 KiB takes so long
 *	FAULT_COUNT=<file>	the number of writes goes there in the end
 *	FAULT_READS=<file>	the number of reads, and of bytes read in all
 *
 * fsync does nothing else: the machine that runs this stays alive.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

struct undo {
	struct undo *next;
	int fd;
	ino_t ino;
	off_t at;
	size_t len, sector;
	char *old;
};

/* A file that was written; it stays open until we end, so that writes can be undone. */
struct written {
	ino_t ino;
	int fd;
};

struct bad {
	char what;
	ino_t ino;
	off_t first, end;
};

static ssize_t (*real_pread)(int fd, void *buf, size_t len, off_t at);
static ssize_t (*real_pwrite)(int fd, const void *buf, size_t len, off_t at);
static ssize_t (*real_write)(int fd, const void *buf, size_t len);

static int (*real_ioctl)(int fd, unsigned long request, ...);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct undo *undo;
static struct written written[64];
static int nr_written;
static bool power;
static struct bad bad[1024];
static int nr_bad, bad_errno = EIO;
static long writes, cut, late, delay, flushes;
static long reads, bytes_read;
static int discard_signal, resumes;
static ino_t bad_flush;
static bool any_flush;
static unsigned short state[3];		/* not of random(), which libuuid seeds by the clock */

static ino_t ino_of_path(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : st.st_ino;
}

static ino_t ino_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

static void add_bad(char *spec)
{
	char what[8], path[1024];
	long long first, end;

	if (nr_bad == 1024 || sscanf(spec, "%7s %1023s %lld %lld", what, path, &first, &end) != 4)
		abort();
	bad[nr_bad++] = (struct bad) { what[0], ino_of_path(path), first * 512, end * 512 };
}

__attribute__((constructor)) static void init(void)
{
	char *text, *save, *spec, path[1024];
	unsigned int seed = 0;

	real_pread = dlsym(RTLD_NEXT, "pread64");
	real_ioctl = dlsym(RTLD_NEXT, "ioctl");
	real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
	real_write = dlsym(RTLD_NEXT, "write");
	text = getenv("FAULT_CUT");
	if (text && sscanf(text, "%ld %u", &cut, &seed) != 2)
		abort();
	text = getenv("FAULT_POWER");
	if (text && sscanf(text, "%u", &seed) != 1)
		abort();
	power = text;
	state[0] = seed;
	text = getenv("FAULT_BAD");
	for (spec = text ? strtok_r(text, ";", &save) : NULL; spec;
	     spec = strtok_r(NULL, ";", &save))
		add_bad(spec);
	text = getenv("FAULT_ERRNO");
	if (text)
		bad_errno = atoi(text);
	text = getenv("FAULT_LATE");
	late = text ? atol(text) : 0;
	text = getenv("FAULT_FLUSH");
	if (text && sscanf(text, "%ld %1023s", &flushes, path) != 2)
		abort();
	any_flush = text && !strcmp(path, "any");
	bad_flush = text ? ino_of_path(path) : 0;
	text = getenv("FAULT_SIGNAL");
	discard_signal = text ? atoi(text) : 0;
	text = getenv("FAULT_RESUME");
	resumes = text ? atoi(text) : 0;
	text = getenv("FAULT_DELAY");
	delay = text ? atol(text) : 0;
}

static void lose(void);

static void report_to(const char *path, const char *text)
{
	FILE *f = path ? fopen(path, "w") : NULL;

	if (!f)
		return;
	fputs(text, f);
	fclose(f);
}

__attribute__((destructor)) static void report(void)
{
	char text[64];

	if (power)
		lose();
	snprintf(text, sizeof(text), "%ld\n", writes);
	report_to(getenv("FAULT_COUNT"), text);
	snprintf(text, sizeof(text), "%ld %ld\n", reads, bytes_read);
	report_to(getenv("FAULT_READS"), text);
}

static bool is_bad(char what, int fd, off_t at, size_t len)
{
	ino_t ino = nr_bad ? ino_of(fd) : 0;
	int i;

	for (i = 0; i < nr_bad && writes >= late; i++)
		if (bad[i].what == what && bad[i].ino == ino && at < bad[i].end &&
		    at + (off_t)len > bad[i].first)
			return true;
	return false;
}

/* A descriptor of the file that stays, and is in nobody's way: O_EXCL is not for it. */
static int fd_of(ino_t ino, int fd)
{
	char path[64];
	int i, own;

	for (i = 0; i < nr_written; i++)
		if (written[i].ino == ino)
			return written[i].fd;
	if (nr_written == 64)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, fcntl(fd, F_GETFL) & (O_ACCMODE | O_DIRECT));
	if (own < 0)
		abort();
	written[nr_written] = (struct written) { ino, own };
	return written[nr_written++].fd;
}

/* The unit that is written whole or not at all. */
static size_t sector_of(int fd)
{
	int size;

	return real_ioctl(fd, BLKSSZGET, &size) ? 512 : size;
}

static void remember(int fd, off_t at, size_t len)
{
	struct undo *u = malloc(sizeof(*u));

	/* Aligned, for a file that is read without the page cache */
	if (!u || posix_memalign((void **)&u->old, 4096, len))
		abort();
	u->ino = ino_of(fd);
	u->fd = fd_of(u->ino, fd);
	u->at = at;
	u->len = len;
	u->sector = sector_of(fd);
	if (real_pread(fd, u->old, len, at) != (ssize_t)len)
		abort();
	u->next = undo;
	undo = u;
}

static void lose(void)
{
	size_t i;

	for (; undo; undo = undo->next)
		for (i = 0; i < undo->len; i += undo->sector)
			if (nrand48(state) & 1)
				real_pwrite(undo->fd, undo->old + i,
					    undo->len - i < undo->sector ? undo->len - i : undo->sector,
					    undo->at + i);
}

static void cut_power(void)
{
	lose();
	kill(getpid(), SIGKILL);
	for (;;)
		pause();
}

ssize_t pread64(int fd, void *buf, size_t len, off_t at)
{
	__atomic_add_fetch(&reads, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&bytes_read, len, __ATOMIC_RELAXED);
	if (!is_bad('r', fd, at, len))
		return real_pread(fd, buf, len, at);
	if (!bad_errno)
		_exit(0);
	errno = bad_errno;
	return -1;
}

ssize_t pwrite64(int fd, const void *buf, size_t len, off_t at)
{
	ssize_t n;

	if (delay && len > 4096)
		usleep(delay * 1000);
	if (is_bad('w', fd, at, len)) {
		errno = bad_errno;
		return -1;
	}
	if (len % 4096 && is_bad('p', fd, at, len)) {
		errno = EINVAL;
		return -1;
	}
	pthread_mutex_lock(&lock);
	if (cut || power)
		remember(fd, at, len);
	n = real_pwrite(fd, buf, len, at);
	if (++writes == cut)
		cut_power();
	pthread_mutex_unlock(&lock);
	return n;
}

/* Of libraries, to a block device: as pwrite64() there. */
ssize_t write(int fd, const void *buf, size_t len)
{
	struct stat st;
	off_t at;
	ssize_t n;

	if (fstat(fd, &st) || !S_ISBLK(st.st_mode))
		return real_write(fd, buf, len);
	at = lseek(fd, 0, SEEK_CUR);
	n = pwrite64(fd, buf, len, at);
	if (n > 0)
		lseek(fd, at + n, SEEK_SET);
	return n;
}

static bool resume_fails(unsigned long request, const struct dm_ioctl *dmi)
{
	return resumes && request == DM_DEV_SUSPEND && !(dmi->flags & DM_SUSPEND_FLAG) && !--resumes;
}

int ioctl(int fd, unsigned long request, ...)
{
	unsigned long long *range;
	va_list ap;

	va_start(ap, request);
	range = va_arg(ap, void *);
	va_end(ap);
	if (resume_fails(request, (const void *)range)) {
		errno = ENOMEM;
		return -1;
	}
	if (request != BLKDISCARD)
		return real_ioctl(fd, request, range);
	if (is_bad('d', fd, range[0], range[1])) {
		errno = bad_errno;
		return -1;
	}
	if (discard_signal)
		raise(discard_signal);
	return real_ioctl(fd, request, range);
}

int fsync(int fd)
{
	struct undo **p = &undo, *u;
	ino_t ino = ino_of(fd);

	pthread_mutex_lock(&lock);
	if ((any_flush || (bad_flush && bad_flush == ino)) && --flushes <= 0) {
		pthread_mutex_unlock(&lock);
		errno = EIO;
		return -1;
	}
	while ((u = *p)) {
		if (u->ino != ino) {
			p = &u->next;
			continue;
		}
		*p = u->next;
		free(u->old);
		free(u);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}
